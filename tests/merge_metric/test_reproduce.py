"""The commands of reproduce.md run as written: small real models, SmolLM2, a file as ANLI's."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from helpers.gguf_files import smollm2
from typer.testing import CliRunner

from generation.cli import app

PAGE = (Path(__file__).parents[2] / "merge_metric" / "reproduce.md").read_text(encoding="utf-8")

MODELS = ("bert-tiny-mlm", "minilm-l6-mlm", "bert-tiny-nli", "minilm-l6-nli")
FILES = {
    "snli_1.0_test.jsonl": ("snli_test.jsonl", 200),
    "snli_1.0_train.jsonl": ("snli_dev.jsonl", 300),
    "multinli_1.0_dev_matched.jsonl": ("mnli_dev_matched.jsonl", 24),
}
"""File as the page names it → the file here, and how many of its problems are enough."""

ANLI = (
    ("A man is cooking soup in a kitchen.", "A man is cooking.", "e"),
    ("A woman plays the guitar on a stage.", "A woman is sleeping in a bed.", "c"),
    ("Two dogs run through the snow.", "Two dogs are outside.", "e"),
)


def commands() -> Iterator[tuple[str, str]]:
    """Yield each command, and the text that goes into it."""
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE):
        yield from re.findall(r"^(.+?)(?: <<'END'\n(.*?)^END)?$", block, re.DOTALL | re.M)


@pytest.fixture
def place(
    shared_models: Path, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The working directory, with the files that the page names."""
    for name in MODELS:
        (tmp_path / name).symlink_to(shared_models / name)
    for name, (file, size) in FILES.items():
        with (shared_data / file).open(encoding="utf-8") as whole:
            (tmp_path / name).write_text("".join(islice(whole, size)), encoding="utf-8")
    rows = [
        {"uid": f"u{n}", "context": context, "hypothesis": hypothesis, "label": label}
        for n, (context, hypothesis, label) in enumerate(ANLI)
    ]
    (tmp_path / "anli_r1_test.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "SmolLM2-135M-Instruct.gguf").symlink_to(smollm2())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fill_in(path: Path, **answers: str) -> None:
    """Answer alike in every row of a table, as somebody may in a spreadsheet."""
    rows = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | answers for row in rows)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(1800)
def test_every_command_runs(place: Path) -> None:
    """In the page's order: each ends well and writes what it names."""
    ran = 0
    for line, text in commands():
        program, *words = shlex.split(line)
        if program == "cat":
            (place / words[1]).write_text(text)
            continue
        assert program == "merge-nli"
        if "--import" in words:
            fill_in(place / "items.csv", fluency="5", reasoning="4")
        if "--corrected" in words:
            fill_in(place / "hardest.csv", corrected_label="N")
        if words[:2] == ["analyse", "stability"]:
            words += ["--seeds", "10"]  # fewer than there are here
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


def test_the_page_names_every_analysis() -> None:
    """All that a paper shows; the others are ours."""
    from merge_metric.analyses import ANALYSES

    named = set(re.findall(r"analyse ([a-z-]+)", PAGE))
    assert set(ANALYSES) - named == {"signals", "labels", "validity", "kinds", "power"}
