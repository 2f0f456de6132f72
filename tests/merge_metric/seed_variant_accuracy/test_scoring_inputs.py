import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.metric_oracle import LABELS, columns, problems

from merge_metric.seed_variant_accuracy.inputs import split_predictions
from merge_metric.seed_variant_accuracy.scoring import score

ROWS = problems("E E EENC", "N N NEC", "C E CC")
NAMES = columns(ROWS)
INTS = columns(ROWS, labels=LABELS) | {"seed_ids": [int(row.seed_id[2:]) for row in ROWS]}
COLUMNS = tuple(NAMES)


def result(**changes: Any) -> dict[str, Any]:
    return score(**{**NAMES, "n_bootstrap": 0, **changes})


def changed(column: Sequence[Any], at: int, value: Any) -> list[Any]:
    """Copy a column with another value in one row."""
    return [*column[:at], value, *column[at + 1 :]]


def assert_refused(*telling: str, **changes: Any) -> None:
    """Require a ValueError whose message has all these words, in this order."""
    with pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, telling))):
        result(**changes)


@pytest.mark.parametrize(
    "kind",
    [tuple, np.array, pd.Series, lambda column: pd.Series(column, index=range(50, 41, -1))],
    ids=["tuple", "array", "Series", "Series with another index"],
)
@pytest.mark.parametrize("source", [NAMES, INTS], ids=["strings", "ints"])
def test_kinds_of_columns(kind: Callable[[list[Any]], Any], source: dict[str, Any]) -> None:
    converted = {name: kind(column) for name, column in source.items()}
    assert score(**converted, n_bootstrap=0) == score(**source, n_bootstrap=0)


def test_mixed_numbers_of_variants_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Seeds with twice as many variants as others are; subsamples make numbers equal."""
    columns = {"predictions": [0] * 5, "references": [0] * 5, "seed_predictions": [0] * 5}
    score(**columns, seed_ids=[1, 1, 2, 2, 2], n_bootstrap=0)
    samples = [[0], [0], [1], [1], [0, 1]]
    score(**columns, seed_ids=[1, 2, 1, 2, 2], subsamples=samples, n_bootstrap=0)
    assert not caplog.messages
    score(**columns, seed_ids=[1, 2, 2, 2, 2], n_bootstrap=0)
    (told,) = caplog.messages
    assert told.startswith("Seeds have 1 to 4 variants, and no `subsamples` were given: the more")


def test_narrow_ints_and_great_numbers() -> None:
    zeros = np.zeros(1000, np.int8)
    predictions = zeros.copy()
    predictions[:90] = 1
    others = dict.fromkeys(("references", "seed_ids", "seed_predictions"), zeros)
    outcome = score(predictions=predictions, **others, n_bootstrap=0)
    assert outcome["variant_accuracy"] == 0.91
    assert outcome["matching_threshold_high"] == 91
    # Ids with equal last bits are different seeds.
    numbers = np.array([0, 2**8, 2**32, -(2**62)])
    labels = {"references": np.array([0, 1, 2, 0]), "seed_predictions": np.array([0, 1, 0, 1])}
    outcome = score(predictions=np.zeros(4, int), seed_ids=numbers, **labels, n_bootstrap=0)
    assert (outcome["n_seeds"], outcome["seed_accuracy"]) == (4, 0.5)


def test_tensors() -> None:
    tensors = {name: torch.tensor(column) for name, column in INTS.items()}
    probabilities = torch.tensor([[0.5, 0.25, 0.25]] * len(ROWS))
    both = dict.fromkeys(("probabilities", "seed_probabilities"), probabilities)
    outcome = score(**tensors, **both, n_bootstrap=0)
    assert outcome["jsd_changed"] == pytest.approx(0, abs=1e-12)
    assert outcome["seed_accuracy"] == result()["seed_accuracy"]


WHOLE = [[0, 1]] * len(ROWS)
UNIFORM = [[0.5, 0.25, 0.25]] * len(ROWS)
IDS = [f"v{number}" for number in range(9)]


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        ({"correctness_threshold": 0.07}, ["an integer percent from 1 to 100", "did you mean 7?"]),
        ({"correctness_threshold": 101}, ["an integer percent from 1 to 100", "got 101"]),
        ({"correctness_threshold": True}, ["an integer percent from 1 to 100", "got True"]),
        ({"n_bootstrap": -1}, ["n_bootstrap", "expected an int of 0 or more", "got -1"]),
        ({"rng_seed": 10.0}, ["rng_seed", "expected an int of 0 or more", "got 10.0"]),
        ({"labels": ["a", "a"]}, ["labels", "distinct names", "got ['a', 'a']"]),
        ({"opposites": [("entailment", "refutation")]}, ["opposites", "expected pairs of", "got"]),
        ({"opposites": [("entailment", "neutral"), ("entailment", "contradiction")]},
         ["opposites", "expected pairs of", "got"]),
        ({"variant_ids": changed(IDS, 2, "v1")},
         ["each variant once per seed", "duplicate (seed, variant)", "('s:0', 'v1')", "drop"]),
        ({"subsamples": [*WHOLE[:4], [], [], [], *WHOLE[7:]]},
         ["every seed to have variants", "others of 's:1':"]),
        ({"subsamples": [*[[4, 7]] * 7, [4], [4]]}, ["variants in every subsample", "of 's:2':"]),
        ({"subsamples": [[10**7 * n] for n in range(9)]}, ["'s:0', 's:1', 's:2':"]),
        ({"subsamples": changed(WHOLE, 3, [1, None])}, ["subsamples", "lists of ints", "got None"]),
        ({"subsamples": changed(WHOLE, 2, [1, 0, 1])}, ["subsamples", "once", "of 's:0':"]),
        ({"probabilities": UNIFORM}, ["seed_probabilities", "expected 3", "shape ()"]),
        ({"groups": {"word_class": ["noun"] * 8}}, ["same length", "word_class", "8", "9"]),
        ({"clusters": {"premise": [None] * 9}}, ["clusters['premise']: expected ints", "got None"]),
        ({"clusters": {"premise": IDS}}, ["one value for all variants of a seed, got several for"]),
        ({"references": changed(NAMES["references"], 5, "entailment")},
         ["expected one gold label per seed", "entailment and neutral", "'s:1'"]),
        ({"seed_predictions": NAMES["predictions"]},
         ["expected one own prediction per seed", "2 such seeds"]),
        ({"references": INTS["references"]},
         ["labels", "all ints or all strings", "strings mixed with ints", "convert"]),
        ({name: [] for name in COLUMNS}, ["expected at least one variant", "empty"]),
    ],
)  # fmt: skip
def test_unusable_arguments(changes: dict[str, Any], telling: list[str]) -> None:
    assert_refused(*telling, **changes)


@pytest.mark.parametrize("name", COLUMNS)
def test_wrong_columns(name: str) -> None:
    """Logits, booleans, names mixed with ints, ints too large, other lengths and gaps fail."""
    told = ("expected ints in all rows, or strings", "0.5 in row 3", "argmax")
    assert_refused(name, *told, **{**INTS, name: changed(INTS[name], 3, 0.5)})
    flags = np.ones(len(ROWS), bool)
    assert_refused(name, "expected ints", "True", **{**INTS, name: flags})
    mixed = changed(NAMES[name], 5, 1)
    assert_refused(name, "got 1 in row 5 after", repr(mixed[0]), **{name: mixed})
    assert_refused(name, "expected one entry per variant", **{name: "entailment"})
    for table in (torch.zeros(9, 3), [[0.5, 0.25, 0.25]] * 9):
        assert_refused(name, "expected", "argmax", **{**INTS, name: table})
    assert_refused("same length", f"{name} 8", **{name: NAMES[name][:-1]})
    gap = changed(INTS[name], 2, np.nan)  # which turns ints into floats
    for column in (pd.Series(gap), np.array(gap)):
        assert_refused(name, "leave rows without a value out", **{**INTS, name: column})
    if not name.endswith("predictions"):  # which may be no label
        for source in (NAMES, INTS):
            broken = {**source, name: changed(source[name], 4, None)}
            assert_refused(name, "expected ints", "None in row 4", **broken)


@pytest.mark.parametrize("name", ["predictions", "references", "seed_predictions"])
@pytest.mark.parametrize("value", ["Entailment", "1", 3, -1])
def test_labels_outside_the_set(name: str, value: Any) -> None:
    if value == -1 and name != "references":
        return  # an answer that names no label
    source = NAMES if isinstance(value, str) else INTS
    rows = changed(changed(source[name], 0, value), 6, value)
    known = ", ".join(LABELS) if isinstance(value, str) else f"0 to 2 ({', '.join(LABELS)})"
    told = ("expected labels out of", known, f"got {value!r} in 2 of 9 rows", "labels=")
    assert_refused(name, *told, **{**source, name: rows})


def test_variants_with_ids() -> None:
    assert result(variant_ids=[0, 1, 2, 3, 0, 1, 2, 0, 1]) == result(variant_ids=IDS) == result()


@pytest.mark.parametrize(("row", "telling"), [
    ([1.5, -0.5, 0.0], "sum to 1"), ([0.53, 0.25, 0.25], "sum to 1"),
    ([0.5, 0.5, float("nan")], "sum to 1"), ([0.5, 0.5], "inhomogeneous"),
])  # fmt: skip
def test_rows_that_are_no_probabilities(row: list[Any], telling: str) -> None:
    for name in ("probabilities", "seed_probabilities"):
        tables = {"probabilities": UNIFORM, "seed_probabilities": UNIFORM}
        assert_refused(telling, **tables | {name: changed(UNIFORM, 4, row)})


def test_softmaxes_of_low_precision() -> None:
    """Sums that differ from 1 by less than 0.01 are rounding, and are normalised."""
    rough = [[0.503, 0.25, 0.25]] * len(ROWS)
    outcome = result(probabilities=rough, seed_probabilities=rough)
    assert outcome["jsd_changed"] == pytest.approx(0, abs=1e-12)
    exact = [[p / 1.003 for p in row] for row in rough]
    expected = result(probabilities=exact, seed_probabilities=exact)["sigma_seeds"]
    assert outcome["sigma_seeds"] == pytest.approx(expected, abs=1e-12)


FILE = {
    "variant_id": ["a", "a1", "b1", "b", "a2"],
    "seed_id": ["a", "a", "b", "b", "a"],
    "label": ["entailment", "entailment", "neutral", "neutral", "entailment"],
    "prediction": ["entailment", "neutral", "contradiction", "neutral", "entailment"],
}


def test_splitting_ints_and_probabilities() -> None:
    table = np.arange(10).reshape(5, 2) / 10
    outcome = split_predictions(
        variant_id=[10, 11, 21, 20, 12], seed_id=[10, 10, 20, 20, 10],
        label=np.array([0, 0, 1, 1, 0]), prediction=[0, 1, 2, 1, 0], probabilities=table.tolist(),
    )  # fmt: skip
    probabilities, of_seeds = outcome.pop("probabilities"), outcome.pop("seed_probabilities")
    assert np.array_equal(probabilities, table[[1, 2, 4]])
    assert np.array_equal(of_seeds, table[[0, 3, 0]])
    assert {name: np.asarray(column).tolist() for name, column in outcome.items()} == {
        "predictions": [1, 2, 0], "references": [0, 1, 0], "seed_ids": [10, 20, 10],
        "seed_predictions": [0, 1, 0], "variant_ids": [11, 21, 12],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        ({"variant_id": ["a", "a1", "b1", "b", "a1"]}, ["expected one row per id", "for 'a1'"]),
        ({"variant_id": ["a", "a1", "b", "b", "a2"]}, ["expected one row per id", "for 'b'"]),
        ({"variant_id": ["a", "a1", "b1", "b2", "a2"]}, ["row of every seed", "for 'b'"]),
        ({"seed_id": ["a", "a", "a", "b", "a"]}, ["every seed to have variants", "for 'b'"]),
        ({"label": ["entailment"] * 4 + ["neutral"]}, ["label", "that of the seed", "for 'a2'"]),
        ({"variant_id": [1, 2, 3, 4, 5]}, ["ids", "strings mixed with ints"]),
        ({"probabilities": [[0.5, 0.5]] * 4}, ["same length", "probabilities 4"]),
    ],
)
def test_broken_predictions_files(changes: dict[str, Any], telling: list[str]) -> None:
    with pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, telling))):
        split_predictions(**{**FILE, **changes})
