from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import write_plain, write_rows
from helpers.problem_folder import Problem, write_folder

from merge_metric.frame.answer_table import PredictionsSource, choose, read_models
from merge_metric.models.prompts import read_prompt
from merge_metric.predict.jobs import file_name
from merge_metric.predict.problems import part_of_source, read_problems
from merge_metric.score import score_file, scores_text

E, N, C = range(3)

PROBLEMS: dict[str, Problem] = {
    "snli:1": ("A girl runs.", "A girl moves.", E),
    "snli:1/noun/0": ("A boy runs.", "A boy moves.", E),
    "snli:1/verb/0": ("A girl swims.", "A girl moves.", E),
    "snli:1/paraphrase/a": ("A girl runs.", "A girl is moving.", E),
    "snli:1/paraphrase/b": ("A girl runs.", "Some girl moves.", E),
    "snli:2": ("A dog eats.", "A dog sleeps.", C),
    "snli:2/noun/0": ("A cat eats.", "A cat sleeps.", C),
    "snli:3": ("It rains.", "It rains a lot.", N),
    "snli:3/paraphrase/c": ("It rains.", "There is much rain.", N),
    "anli-r1:4": ("Two men sit.", "They rest.", N),
    "anli-r1:4/paraphrase/d": ("Two men sit.", "They are resting.", N),
}
"""Seed 1 has both kinds of variants, 2 has replacements, 3 and ANLI's seed have paraphrases."""

WRONG = {"snli:1/paraphrase/b": N, "snli:3/paraphrase/c": E, "anli-r1:4": E}
"""Problems with wrong predictions."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = write_folder(tmp_path / "merge-nli", PROBLEMS)
    for path in made.rglob("variants.parquet"):
        rows = [{**row, "subsamples": [0]} for row in pq.ParquetFile(path).read().to_pylist()]
        write_rows(path, rows)
    return made


def predicted(
    path: Path, *names: str, wrong: Mapping[str, int] = WRONG, without: tuple[str, ...] = ()
) -> Path:
    """Write predictions for the problems whose ids begin with one of the names."""
    rows: list[dict[str, Any]] = [
        {"variant_id": name, "seed_id": name.partition("/")[0], "label": label}
        | {"prediction": wrong.get(name, label)}
        for name, (_, _, label) in PROBLEMS.items()
        if name.startswith(names) and name not in without
    ]
    return write_plain(path, rows)


ALL = ("snli", "anli-r1")


def test_part_of_a_source(folder: Path) -> None:
    table = read_problems(str(folder))
    part = part_of_source(table, "snli")
    assert part["variant_id"].to_pylist() == [
        *("snli:1", "snli:2", "snli:1/noun/0", "snli:2/noun/0", "snli:1/verb/0"),
        *("snli:3", "snli:1/paraphrase/a", "snli:1/paraphrase/b", "snli:3/paraphrase/c"),
    ]
    model = {"name": "some/model"}
    assert file_name(model, part) == "model-snli+snli_paraphrases.parquet"
    anli = part_of_source(table, "anli-r1")
    assert file_name(model, anli) == "model-anli-r1_paraphrases.parquet"
    assert len(anli) == 2


@pytest.mark.parametrize(
    ("names", "without", "expected"),
    [
        (ALL, (), ["anli-r1_paraphrases", "snli", "snli_paraphrases"]),
        (("snli:",), (), ["snli", "snli_paraphrases"]),
        (("snli:1", "snli:2"), ("snli:1/paraphrase/a", "snli:1/paraphrase/b"), ["snli"]),
        (("snli:1/p", "snli:3"), (), ["snli_paraphrases"]),  # a truncated file: no seed 1
        (("snli:1", "snli:3"), ("snli:1/noun/0", "snli:1/verb/0"), ["snli_paraphrases"]),
        (("snli:1",), ("snli:1/verb/0",), ["snli_nouns", "snli_paraphrases"]),
        (("snli:3",), ("snli:3/paraphrase/c",), ["snli_paraphrases"]),  # only a seed
        (("anli",), (), ["anli-r1_paraphrases"]),
        (("anli",), ("anli-r1:4/paraphrase/d",), ["anli-r1_paraphrases"]),
    ],
)
def test_what_a_file_is_for(
    folder: Path, tmp_path: Path, names: tuple[str, ...], without: tuple[str, ...],
    expected: list[str],
) -> None:  # fmt: skip
    path = predicted(tmp_path / "p.parquet", *names, without=without)
    (model,) = read_models([PredictionsSource("m", path)], folder)
    assert choose(model) == expected


def test_one_file_for_both_is_scored_on_both(folder: Path, tmp_path: Path) -> None:
    """By hand, each configuration on its own seeds.

    Replacements: seeds 1 and 2, all right. Paraphrases: seed 1 right, one of its two variants
    wrong (neutral, not the opposite of entailment); seed 3 right, its variant wrong (for a
    neutral seed any change is strict).
    """
    results = score_file(predicted(tmp_path / "p.parquet", "snli"), folder, n_bootstrap=0)
    assert list(results) == ["snli", "snli_paraphrases"]
    words, paraphrases = results.values()
    assert (words["n_seeds"], words["n_variants"]) == (2, 3)
    assert list(words["by_group"]["word_class"]) == ["noun", "verb"]
    assert words["seed_variant_accuracy"] == 1.0
    assert (paraphrases["n_seeds"], paraphrases["n_variants"]) == (2, 3)
    assert "by_group" not in paraphrases
    assert paraphrases["seed_accuracy"] == 1.0
    assert paraphrases["variant_accuracy"] == pytest.approx(1 / 3)
    curve = paraphrases["sv_curve"]["accuracy"]
    assert (curve[49], curve[50]) == (0.5, 0.0)
    assert paraphrases["relaxed_fooling_rate"] == 1.0
    assert paraphrases["strict_fooling_rate"] == 0.5


def test_grouped_by_what_paraphrases_have_not(folder: Path, tmp_path: Path) -> None:
    path = predicted(tmp_path / "p.parquet", "snli")
    by = ["mlms", "word_class"]
    results = score_file(path, folder, ["snli_paraphrases"], by=by, n_bootstrap=0)
    groups = results["snli_paraphrases"]["by_group"]
    assert groups["mlms"] == {}
    assert groups["word_class"]["paraphrase"]["n_variants"] == 3
    text = scores_text(results)
    assert text.startswith("snli_paraphrases\n")  # not: averaged over 1 subsamples
    assert "\nmlms: " not in text
    assert "\nlabel: " in text


def test_examples_for_sources_that_have_none(caplog: pytest.LogCaptureFixture) -> None:
    """ANLI is shown examples of MultiNLI; sources with different examples are refused."""
    assert read_prompt("exc", sources=["anli-r3", "anli-r2"]) == read_prompt("mnli")
    substituted = "there are no examples of anli-r2, anli-r3; those of mnli are shown"
    assert caplog.messages == [f"`shots`: {substituted}"]
    with pytest.raises(ValueError, match=r"may go together\), got anli-r1, snli; run sources one"):
        read_prompt("exc", sources=["snli", "anli-r1"])
