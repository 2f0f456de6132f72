import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.commands import run
from helpers.completions_server import Reply, Request, Server, serving
from helpers.gguf_files import write_llama
from helpers.pages import blocks
from helpers.processes import output_of
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from helpers.tiny_models import save, tiny_model
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from generation.cli import app
from generation.suggestions.masked_lm import MaskedLM
from generation.suggestions.questions import Questions

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "generation", "merge_dataset", "merge_metric")
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *(page for f in FOLDERS for page in (ROOT / f).rglob("*.md"))]
    if page.name != "CHANGELOG.md"
)


OTHER_OPTIONS = {
    "--min-letters", "--rounds", "--problems", "--rows", "--again", "--logits", "--extra-index-url",
}  # fmt: skip
"""A setting that CONTRIBUTING.md adds, and options of `make bench` and other programs."""


def run_page(page: str, home: Path, replaced: Mapping[str, str] | None = None) -> list[str]:
    """Run a page's blocks here and return their outputs; `replaced` has the reader's words."""
    outputs: list[str] = []
    for language, code in blocks(page):
        if language == "text":
            assert outputs[-1] == code
        else:
            outputs.append(_RUNNERS[language](code, home, replaced or {}))
    return outputs


def run_shell(code: str, home: Path, replaced: Mapping[str, str]) -> str:
    """Run our commands in this process, which is faster, and other lines in a shell."""
    files = "".join(re.findall(r"^cat .*?^END\n", code, flags=re.DOTALL | re.MULTILINE))
    subprocess.run(["bash", "-ec", files], check=True)
    output = ""
    for line in code.replace(files, "").replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "merge-nli"
        done = CliRunner().invoke(app, [replaced.get(word, word) for word in arguments])
        assert done.exit_code == 0, done.output
        output += done.stdout
    return output


def run_python(code: str, home: Path, replaced: Mapping[str, str]) -> str:
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    return output_of(sys.executable, "-c", code, env=environment)


_RUNNERS = {"sh": run_shell, "python": run_python}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Masked LM → number of questions that it answered."""
    counts: Counter[str] = Counter()
    answer = MaskedLM.answer

    def counted(self: MaskedLM, queries: Sequence[Any], **options: Any) -> Any:
        counts[self.name] += len(queries)
        return answer(self, queries, **options)

    monkeypatch.setattr(MaskedLM, "answer", counted)
    return counts


@pytest.mark.slow
def test_your_own_data(here: Path, tmp_path: Path) -> None:
    folder = here / "your-name" / "your-pairs"
    folder.mkdir(parents=True)
    (folder / "validation.csv").write_text(
        "premise,hypothesis,label\n"
        "A sailor repairs a net by the harbour.,A sailor works near the harbour.,entailment\n"
    )
    outputs = run_page("generation/your-own-data.md", tmp_path)
    assert "6 problems, 1 without a label left out" in outputs[1]
    assert "(configurations claims, claims_nouns)" in outputs[1]
    assert "Funnel: what became of the suggestions" in outputs[1]
    assert "(configurations pairs, pairs_nouns)" in outputs[3]
    assert sorted(path.name for path in Path("merge-nli").iterdir() if path.is_dir()) == [
        "claims",
        "pairs",
    ]
    assert run("check", "merge-nli").output == "merge-nli: good\n"


@pytest.mark.slow
def test_pairs_that_repeat_are_asked_about_once(here: Path, asked: Counter[str]) -> None:
    row = '{"premise": "A sailor rests.", "hypothesis": "A sailor sleeps.", "label": "n"}\n'
    Path("twice.jsonl").write_text(row * 2)
    command = "generate --source twice --data twice.jsonl --recipe demo --run run"
    run(*command.split())
    assert asked == {"bert-tiny-mlm": 2}  # in the premise and in the hypothesis
    rows = pq.read_table("run/variants.parquet").to_pylist()
    first, second = (
        [(row["replacement"], row["subsamples"]) for row in rows if row["seed_id"] == seed]
        for seed in ("twice:0", "twice:1")
    )
    assert first != second


@pytest.mark.slow
def test_other_tasks(here: Path, tmp_path: Path) -> None:
    outputs = run_page("generation/other-tasks.md", tmp_path)
    assert "pairs.jsonl: 64 problems, 0 without a label left out" in outputs[1]
    assert outputs[1].endswith("merge-nli: good\n")
    scored = outputs[4]
    assert "pairs, averaged over 10 subsamples" in scored
    assert "labels:different,paraphrase|opposites:none" in scored
    differences = scored.split("pairs: 2 models")[1]
    (by_overlap,) = re.findall(r"^[\d–]+ +overlap +(.*)$", differences, flags=re.MULTILINE)
    figures = by_overlap.split()  # MC may be a range
    seeds, relaxed, strict = (float(figures[n]) for n in (0, -2, -1))
    assert (relaxed, strict) == (0, 0), "it does not see which words they are"
    page = (ROOT / "generation/other-tasks.md").read_text(encoding="utf-8")
    assert (text := re.search(r"is right on ([\d.]+) % of the (\d+) eligible seeds", page))
    assert float(text[1]) == seeds
    assert f"2 models on the same {text[2]} seeds" in scored
    assert "labels:entailment,not_entailment|merged:contradiction,neutral=" in outputs[6]
    assert "label: not_entailment" in outputs[6]
    assert "reading.jsonl: 42 problems" in outputs[7]
    assert run("check", "merge-nli").output == "merge-nli: good\n"


def replacements(run: str) -> set[tuple[str, ...]]:
    names = ["seed_id", "word_class", "word", "replacement"]
    return {tuple(row.values()) for row in pq.read_table(run, columns=names).to_pylist()}


@pytest.mark.slow
def test_your_own_mlm(
    here: Path, tmp_path: Path, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first masked LM is asked once in two runs, the second once."""
    shutil.copytree(tiny_model("roberta"), here / "my-mlm")
    before: list[set[tuple[str, ...]]] = []

    def run_and_look(code: str, home: Path, replaced: Mapping[str, str]) -> str:
        output = run_shell(code, home, replaced)
        before.append(replacements("runs/mine/replacements.parquet"))
        return output

    monkeypatch.setitem(_RUNNERS, "sh", run_and_look)
    run_page("generation/your-own-mlm.md", tmp_path)
    questions = len(Questions(Path("runs/mine/questions")))
    assert asked == {"bert-tiny-mlm": questions, "my-mlm": questions}
    alone, both = before
    assert alone < both, "another masked LM takes no replacement away"
    names = pq.read_table("runs/mine/replacements.parquet")["premise_mlms"].to_pylist()
    assert set().union(*names) == {"bert-tiny-mlm", "my-mlm"}


@pytest.mark.slow
def test_families_articles_and_joint_masking(here: Path, tmp_path: Path) -> None:
    _, reasons, families, articles, joint = run_page("generation/README.md", tmp_path)
    assert "\nless_probable (candidates): not more probable than the original (D5)\n" in reasons
    assert re.search(r"A \[(\w+)\] stirs the soup and another \[\1\] tastes", joint)
    assert "The cat [runs] here; it was [running] there before." in families
    assert re.search(r"\[an?\] \[", articles, flags=re.IGNORECASE)


@pytest.fixture
def server() -> Iterator[Server]:

    def answer(request: Request, number: int) -> Reply:
        assert request.payload["prompt"].startswith("Premise: A cook stirs the soup.")
        top = {f" {letter}": math.log(p) for letter, p in zip("ABC", (0.2, 0.5, 0.3), strict=True)}
        return Reply({"choices": [{"logprobs": {"top_logprobs": [top]}}]})

    with serving(answer) as running:
        yield running


@pytest.mark.slow
def test_your_own_model(here: Path, tmp_path: Path, server: Server) -> None:
    bundled = ROOT / "merge_metric/demo/bert-tiny-nli"
    shutil.copytree(bundled, here / "my-classifier")
    shutil.copytree(tiny_classifier("bert-uncased", ("LABEL_0", "LABEL_1", "LABEL_2")), "nameless")
    save(tiny_lm("gpt2"), tiny_tokenizer("gpt2"), here / "my-llm")
    write_llama(tiny_lm("llama-bytes"), tiny_tokenizer("llama-bytes"), here / "my-llm.gguf")
    replaced = {"http://localhost:8000/v1": server.url}
    outputs = run_page("merge_metric/your-own-model.md", tmp_path, replaced)
    names = ["classifier.parquet", "nameless.parquet", "llm.parquet", "gguf.parquet"]
    tables = [pq.read_table(name) for name in [*names, "server.parquet"]]
    assert len({table.num_rows for table in tables}) == 1
    assert set(tables[-1]["prediction"].to_pylist()) == {1}
    assert "mine" in outputs[-1]
    assert "<html" in Path("report.html").read_text(encoding="utf-8")


def test_what_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    for marker in options["markers"]:
        name, _, needs = marker.partition(":")
        assert name in re.findall(r"\w+", options["addopts"][-1]), f"{name} is not left out"
        assert re.search(r"; make [a-z-]+$", needs), f"{name} is run nowhere"
    targets = set(re.findall(r"\bmake ([a-z-]+)", "\n".join([text, *options["markers"]])))
    assert targets >= {"test", "lint", "format", "bench", "test-browser"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    names = re.findall(r"`(\w+)`(?: or `(\w+)`)?\s+of\s+`([\w/.]+)`", text)
    assert len(names) > 10
    for *members, path in names:
        for member in filter(None, members):
            assert re.search(rf"\b{member}\b", (ROOT / path).read_text()), f"{member} of {path}"


def test_options_are_known() -> None:

    def options(group: Any) -> set[str]:
        commands = [group.get_command(None, name) for name in group.list_commands(None)]
        own = [option for command in commands for option in command.params]
        names = {name for option in own for name in (*option.opts, *option.secondary_opts)}
        return names.union(
            *(options(command) for command in commands if isinstance(command, TyperGroup))
        )

    group = get_command(app)
    assert isinstance(group, TyperGroup)
    known = {*options(group), "--help", "--version", *OTHER_OPTIONS}
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)) <= known, page


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_whole(page: str) -> None:
    """No blank line cuts a table: what follows would be text with bars."""
    parts = re.findall(r"\n\n(\|.*\n.*)", (ROOT / page).read_text(encoding="utf-8"))
    assert [part for part in parts if not re.search(r"\n\|[\s:|-]+$", part)] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "THIRD-PARTY.md"])
def test_paths_are_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    made = {"../shared", ".venv/bin/pytest", "build/site"}
    paths = set(re.findall(r"`([\w.-]+(?:/[\w.-]*)+)`", text)) - made
    assert len(paths) > 5
    for path in paths:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("package", ["generation", "merge_dataset", "merge_metric"])
def test_maps_name_files_that_are_there(package: str) -> None:
    """First cells of a package's map: rooms, and files in them or beside them."""
    text = (ROOT / package / "architecture.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", text, flags=re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`([\w/]+(?:\.py|/))`", cell)]
    assert len(names) > 10
    files = {path.name for path in (ROOT / package).rglob("*")}
    assert [name for name in names if name.rstrip("/").rpartition("/")[2] not in files] == []


def test_licences_are_those_of_the_files() -> None:
    text = (ROOT / "THIRD-PARTY.md").read_text(encoding="utf-8")
    rows = {
        name: licence
        for names, licence in re.findall(r"^\|.*?\| (.*?) \| (.*?) \|$", text, flags=re.MULTILINE)
        for name in re.findall(r"`([\w/.-]+)`", names)
    }
    for model in ("generation/demo/bert-tiny-mlm/", "merge_metric/demo/bert-tiny-nli/"):
        assert "\nlicense: apache-2.0\n" in (ROOT / model / "README.md").read_text()
        assert rows[model].startswith("Apache 2.0")
    data = {".jsonl", ".json", ".safetensors", ".gz"}
    bundled = [
        path.relative_to(ROOT).as_posix()
        for package in ("generation", "merge_dataset", "merge_metric")
        for path in (ROOT / package).rglob("*")
        if path.suffix in data or ".min." in path.name
    ]
    assert len(bundled) > 10
    places = [*rows, "merge_metric/report/assets/uPlot.min.css"]  # named without its folder
    assert [path for path in bundled if not path.startswith(tuple(places))] == []
    shots = ROOT / "merge_metric/models/shots"
    assert {path.name for path in shots.iterdir()} == {"snli.toml", "mnli.toml", "mixed.toml"}
    for name in ("snli", "mnli"):
        message = tomllib.loads((shots / f"{name}.toml").read_text())["licence"]
        assert rows[f"merge_metric/models/shots/{name}.toml"] == message
    assert rows["merge_metric/report/assets/uPlot.iife.min.js"].startswith("MIT")
    assert "CC0 1.0" in (ROOT / "generation/demo/README.md").read_text()


def test_page_for_pypi_stands_alone() -> None:
    """It has no links to the repository; its code, commands and output are the README's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / project["readme"]).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", text)
    assert links
    assert all("".join(link).startswith("https://") for link in links)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for language, code in blocks(project["readme"]):
        for part in code.splitlines() if language == "sh" else [code.strip()]:
            assert part in readme or part.startswith("pip install"), part
    assert project["urls"]["Paper"] in readme


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", text)
        for link in (link or address for link, address in links):
            if link.startswith("https://"):
                continue
            name, _, heading = link.partition("#")
            target = (ROOT / page).parent / name if name else ROOT / page
            assert target.exists(), f"{page}: {link}"
            if heading:
                titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}
                assert heading in anchors, f"{page}: {link}"
