"""`build --label-flags` and `--common-mlms`, and `signals --nonce`, against plain reading."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refused
from helpers.commands import run as run_command
from helpers.dataset_files import read_rows as rows_in
from helpers.pages import commands, section
from helpers.units_here import UnitsHere

from generation import Config, build, generate
from generation.model_signals import nonce_probe
from generation.model_signals.nonce_probe import write_nonce_answers
from generation.run_folder import RunFolder
from generation.signals.label_flags import gender_of
from merge_dataset.checks import check_dataset
from merge_dataset.dataset_columns import LABEL_FLAGS
from merge_dataset.export import export_dataset
from merge_metric.demo import MODEL
from merge_metric.models import Classifier

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "limit": 12, "suggestions_per_occurrence": 40, "min_replacements": 2, "device": "cpu",
}  # fmt: skip
MASCULINE = {"he", "him", "his", "himself"}
FEMININE = {"she", "her", "hers", "herself"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return generate(
        Config.from_recipe("demo", run=str(tmp_path_factory.mktemp("flags") / "run"), **SETTINGS)
    )


def test_flags_of_a_build(run: RunFolder, tmp_path: Path) -> None:
    plain = rows_in(run.variants)
    data = tmp_path / "data"
    options = ("--label-flags", "--common-mlms", "--into", "flagged", "--out", data)
    run_command("build", "--run", run.path, *options)
    seeds = {row["seed_id"]: row for row in rows_in(run.seeds)}
    flagged = rows_in(run.path / "flagged/variants.parquet")
    more = (*LABEL_FLAGS, "common_mlm_count")
    assert [{k: v for k, v in row.items() if k not in more} for row in flagged] == plain
    beyond: dict[str, set[bool | None]] = {}
    for row in flagged:
        seed = seeds[row["seed_id"]]
        words = set(re.findall("[a-z]+", f"{seed['premise']} {seed['hypothesis']}".lower()))
        genders = {"masculine"} if words & MASCULINE else set()
        genders |= {"feminine"} if words & FEMININE else set()
        new, old = gender_of(row["replacement"]), gender_of(row["original"])
        clash = new is not None and new != old and bool(genders - {new})
        assert row["pronoun_clash"] == (clash if row["word_class"] == "noun" else None)
        assert row["common_mlm_count"] == len(
            set(row["premise_mlms"]) & set(row["hypothesis_mlms"])
        )
        assert row["hangs_on_word"] is None
        beyond.setdefault(row["seed_id"], set()).add(row["beyond_premise"])
    for seed_id, found in beyond.items():
        assert len(found) == 1
        assert (found == {None}) == (seeds[seed_id]["label"] != 0)
    assert check_dataset(data) == []
    assert "`pronoun_clash`" in (data / "README.md").read_text(encoding="utf-8")


def test_nonce_words_are_asked(run: RunFolder, tmp_path: Path) -> None:
    words = ("signals", "--run", run.path, "--nonce", MODEL, "--format", "json")
    found = json.loads(run_command(*words).stdout)
    rows = rows_in(run.nonce)
    words = {(r["seed_id"], r["word_class"], r["word"]) for r in rows_in(run.replacements)}
    assert {(r["seed_id"], r["word_class"], r["word"]) for r in rows} == words
    assert sum(each["words"] for each in found["words"]) == len(rows) == len(words)
    problems = {row["seed_id"]: row for row in rows_in(run.problems)}
    model = Classifier.load(MODEL, device="cpu")
    labels = ("entailment", "neutral", "contradiction")

    def answer(premise: str, hypothesis: str) -> str:
        ((_, probabilities),) = model.probabilities([(premise, hypothesis)])
        return labels[int(probabilities.argmax())]

    for row in rows[::7]:
        problem = problems[row["seed_id"]]
        own = answer(problem["premise"], problem["hypothesis"])
        assert (row["seed_right"], len(row["stems"])) == (own == problem["label"], 3)
        assert 0 <= row["nonce_right"] <= 3
    nouns = [row for row in rows if row["word"].islower() and row["word_class"] == "noun"]
    for row in nouns[:3]:  # the same form in place of every noun
        problem = problems[row["seed_id"]]
        texts = [problem["premise"], problem["hypothesis"]]
        if row["word"].endswith("s") or any(t.count(row["word"]) > 1 for t in texts):
            continue
        right = [
            answer(*(re.sub(rf"\b{row['word']}\b", stem, text) for text in texts))
            == problem["label"]
            for stem in row["stems"]
        ]
        assert row["nonce_right"] == sum(right)
    built = build(run.path, into="asked", label_flags=True)
    of_word = {
        (r["seed_id"], r["word_class"], r["word"]): r["nonce_right"] < 2
        if r["seed_right"]
        else None
        for r in rows
    }
    for row in rows_in(built.variants):
        key = row["seed_id"], row["word_class"], row["original"]
        assert row["hangs_on_word"] == of_word[key]
    assert json.loads(built.manifest.read_text())["nonce"]["model"]["name"] == "bert-tiny-nli"
    data = tmp_path / "data"
    export_dataset(built.path, data)
    assert check_dataset(data) == []
    assert "Model of `hangs_on_word`" in (data / "README.md").read_text(encoding="utf-8")
    with run.nonce.open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(ValueError, match=r"nonce\.parquet: expected it as nonce\.json has it"):
        build(run.path, into="damaged", label_flags=True)


@pytest.mark.parametrize("count", [1, 3])
def test_questions_in_tasks(run: RunFolder, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(nonce_probe, "PART_SIZE", 20)
    shutil.rmtree(run.nonce_parts, ignore_errors=True)
    made, answers = write_nonce_answers(run.path, str(MODEL)), run.nonce.read_bytes()
    parts = {path: path.read_bytes() for path in run.nonce_parts.rglob("*.parquet")}
    shutil.rmtree(run.nonce_parts)
    tasks = UnitsHere(monkeypatch)
    command = ["signals", "--run", str(run.path), "--nonce", str(MODEL), "--format", "json",
               "--executor", "local", "--tasks", str(count)]  # fmt: skip
    if count == 3:
        tasks.failing = ("1/3",)
        assert "1 of 3 tasks failed" in run_command(*command, code=1).stderr
        assert set() < set(run.nonce_parts.rglob("*.parquet")) < set(parts)
        tasks.failing = ()
    assert json.loads(run_command(*command).stdout) == made
    assert tasks.units == (["1/3"] if count == 3 else ["0/1"])
    assert run.nonce.read_bytes() == answers
    assert {path: path.read_bytes() for path in run.nonce_parts.rglob("*.parquet")} == parts
    assert not (run.path / "nonce_tasks").exists()
    command[4] = "no/such-model"
    assert "no/such-model: HF_HUB_OFFLINE is set" in refused(*command)
    assert not (run.path / "nonce_tasks").exists()


def test_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_command("generate", "--recipe", "demo", "--limit", 4, "--run", "runs/plain")
    for command in commands(section("generation/signals.md", "Labels that may not hold")):
        models = ("FacebookAI/roberta-large-mnli", "./my-classifier")
        output = run_command(*(MODEL if word in models else word for word in command)).stdout
    assert "beyond_premise" in output
