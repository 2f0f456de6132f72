"""Judging variants by a model, from the trial to a dataset that only has what it finds good."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import refused, run
from helpers.completions_server import Reply, Request, Server, serving
from helpers.dataset_files import read_rows
from helpers.judged import JUDGED as STUDIES
from helpers.judged import write_dataset, write_session
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from generation import build, suggest
from generation.config import Config
from merge_dataset.annotation import is_good, read_answers, read_session
from merge_dataset.export import export_dataset
from merge_metric.judging import ASKED, BUNDLED, JUDGED, Trial, questions, read_trial
from merge_metric.seed_variant_accuracy.options import Settings

PROBLEMS = """\
pairID,sentence1,sentence2,gold_label
owl,An owl and a dog watch the dogs.,A dog sees an owl.,neutral
boy,A boy and an old man wait for an artist.,The boy and the artist see an old man.,neutral
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run by the bundled masked LM, and the dataset made of it."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "problems.csv").write_text(PROBLEMS, encoding="utf-8")
    config = Config.from_recipe(
        "demo", source="mine", data=str(folder / "problems.csv"), min_replacements=2,
        variants_per_class=3, subsamples=1, with_columns=(), run=str(folder / "run"),
    )  # fmt: skip
    suggest(config)
    export_dataset(build(config.run), folder / "merge-nli")
    return folder


def answering(table: Any, *, odd: int = 0) -> Iterator[Server]:
    """A judge that knows the trial, but says nothing of use to its first `odd` questions.

    Of other variants it finds those good whose replacement has an even number of letters.
    """
    known = {
        (row["variant_problem"], row["asked"]): row["label"]
        for row in table.to_pylist()
        if row["variant_id"].startswith("trial:")
    }

    def answer(request: Request, number: int) -> Reply:
        question = request.payload["messages"][-1]["content"]
        text = next((t for t, a in known if t in question and a in question), None)
        asked = next(asked for asked in ASKED.values() if asked in question)
        score = known[text, asked] if text else 4 - (len(question.split("**")[-2]) % 2)
        said = f"It reads so. Answer: {'ABCDE'[score]}" if number >= odd else "Hard to say."
        usage = {"prompt_tokens": 900, "completion_tokens": 5}
        choice = {"message": {"content": said}, "finish_reason": "stop"}
        return Reply({"choices": [choice], "model": "judge", "usage": usage})

    with serving(answer) as server:
        yield server


@pytest.mark.slow
def test_from_the_trial_to_a_filtered_dataset(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read like an annotator's, and the build keeps what the judge finds good."""
    monkeypatch.chdir(made)
    for server in answering(questions(None)[0]):
        asking = ("--model", "judge", "--base-url", server.url, "--chat-template", "--answers")
        told = run("judge", *asking, "words", "--concurrency", 1)
        assert "judgements/judge.parquet: 0 variants judged" in told.stdout
        assert "AUC of F + R for what is good" in told.stdout
        into = ("--out", "judge.parquet", "--format", "json")
        whole = json.loads(run("judge", "merge-nli", *asking, "words", *into).stdout)
    assert whole["is_trusted"]
    auc = whole["trial"]["rows"][0]["value"]
    assert 0.99 < auc < 1  # where two passes differ, it has to round
    answers = read_answers("judge.parquet").to_pylist()
    variants = read_rows(made / "run" / "variants.parquet")
    assert [row["variant_id"] for row in answers] == sorted(row["variant_id"] for row in variants)
    even = {row["variant_id"] for row in variants if len(row["replacement"]) % 2 == 0}
    good = {row["variant_id"] for row in answers if is_good(row["fluency"] + row["reasoning"])}
    assert even == good != {row["variant_id"] for row in variants}

    assert "judge" in run("agreement", "judge.parquet", "--dataset", "merge-nli").stdout
    refused("build", "--run", "run", "--into", "odd", "--min-judged", 9)
    judging = ("--judged", "judge.parquet", "--min-judged", 9, "--min-replacements", 1)
    run("build", "--run", "run", "--into", "good", *judging)
    kept = read_rows(made / "run" / "good" / "replacements.parquet")
    assert {row["replacement"] for row in kept} <= {
        row["replacement"] for row in variants if row["variant_id"] in good
    }
    rows = read_rows(made / "run" / "good" / "variants.parquet")
    assert {row["variant_id"] for row in rows} <= good
    assert {row["judged"] for row in rows} == {10.0}
    manifest = json.loads((made / "run" / "good" / "manifest.json").read_text(encoding="utf-8"))
    (trial,) = manifest["judged"]["trials"]
    assert trial["figures"]["auc"]["value"] == auc
    funnel = {key: sum(row.get(key, 0) for row in manifest["funnel"])
              for key in ("not_judged", "poorly_judged")}  # fmt: skip
    assert min(funnel.values()) > 0
    export_dataset(made / "run" / "good", made / "good")
    assert "told good ones from others with an AUC of 1.0" in (
        made / "good" / "README.md"
    ).read_text(encoding="utf-8")
    run("check", "good")


@pytest.mark.slow
def test_a_judge_that_cannot_tell(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its judgements filter only on request; answers without a score are no judgements."""
    monkeypatch.chdir(made)
    table = questions(None)[0]
    flat = table.set_column(table.column_names.index("label"), "label", [[3] * len(table)])
    for server in answering(flat, odd=6):
        words = ("--chat-template", "--answers", "words", "--concurrency", 1)
        told = run("judge", "merge-nli", "--model", "flat", "--base-url", server.url, *words)
    assert "Its AUC is below 0.7" in told.stdout
    assert "3 name no score" in told.stdout
    judging = ("--judged", "judgements/flat.parquet", "--min-judged", 9, "--min-replacements", 1)
    message = refused("build", "--run", "run", "--into", "flat", *judging)
    assert message.startswith("error: --judged: expected a judge with an AUC of 0.7 or more")
    run("build", "--run", "run", "--into", "flat", *judging, "--trust-judge")


@pytest.fixture(scope="module")
def dataset_judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("dataset") / "merge-nli")


def test_a_session_is_judged_against_another(tmp_path: Path, dataset_judged: Path) -> None:
    session = write_session(tmp_path / "study", dataset_judged)
    table, extra = questions(session.folder, against=STUDIES[0])
    rows = table.to_pylist()
    assert len(rows) == 2 * (330 + len(session.items))
    assert extra["trial"]["against"] == "judged_variants"
    first = rows[0]
    assert first["variant_id"] == first["seed_id"]
    of_study = rows[660]
    assert of_study["variant_id"].partition(":")[0] == "fluency"
    item = session.items[of_study["variant_id"].partition(":")[2]]
    assert (
        f"Premise: {item.seed_texts['premise']}".replace("girl", "**girl**")
        in of_study["original_problem"]
    )


def test_figures_are_those_of_scikit_learn() -> None:
    """AUC, κ and bias, of all and of resamplings of seeds."""
    rng = np.random.default_rng(1)
    given = rng.integers(2, 11, (60, 2)) / 2
    judged = rng.integers(1, 6, (60, 2)).astype(np.int8)
    judged[7, 0] = 0  # an answer without a score
    seeds = tuple(f"s{n // 2}" for n in range(60))
    figures = Trial("m", "study", seeds, given, judged).figures(Settings(n_bootstrap=20))
    rows = np.delete(np.arange(60), 7)
    good, total = given[rows].sum(axis=1) >= 9, judged[rows].sum(axis=1)
    assert figures["auc"][0] == pytest.approx(roc_auc_score(good, total))
    assert figures["kappa_good"][0] == pytest.approx(cohen_kappa_score(good, total >= 9))
    for n, score in enumerate(ASKED):
        one, other = np.rint(given[rows, n]).astype(int), judged[rows, n]
        kappa = cohen_kappa_score(one, other, weights="quadratic", labels=range(1, 6))
        assert figures[f"kappa_{score}"][0] == pytest.approx(kappa)
        bias = judged[rows, n].mean() - given[rows, n].mean()
        assert figures[f"bias_{score}"][0] == pytest.approx(bias)
    assert {len(values) for values in figures.values()} == {21}
    assert len(set(figures["auc"].round(12))) > 15


def test_the_bundled_trial_is_part_of_the_judged_variants() -> None:
    """20 of each source and class, texts and answers as in tests/data."""
    whole, bundled = read_session(STUDIES[0]), read_session(BUNDLED)
    for name, item in bundled.items.items():
        assert whole.items[name].variant_texts == item.variant_texts
    answers = read_answers(STUDIES[0]).to_pylist()
    assert read_answers(BUNDLED).to_pylist() == [
        row for row in answers if row["variant_id"] in bundled.items
    ]
    assert len(bundled.items) == 120
    assert JUDGED.labels == ("1", "2", "3", "4", "5")


def test_what_is_no_judge(tmp_path: Path, dataset_judged: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "none"):
        with pytest.raises((ValueError, FileNotFoundError), match=r"session\.json|expected"):
            questions(None, against=folder)
    file = next(dataset_judged.rglob("variants*.parquet"))
    for read in (read_answers, read_trial):
        with pytest.raises(ValueError, match="expected a file of `merge-nli judge`"):
            read(file)
