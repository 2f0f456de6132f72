import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from helpers import metric_oracle as oracle
from helpers.metric_oracle import LABELS, Row, columns
from hypothesis import given
from hypothesis import strategies as st

from merge_metric.seed_variant_accuracy.scoring import score

LABEL = st.sampled_from(LABELS)
SEEDS = st.lists(
    st.tuples(LABEL, LABEL, st.lists(LABEL, min_size=1, max_size=7)), min_size=1, max_size=9
)
"""Gold label, the seed's prediction and its variants' predictions, for each seed."""


Seeds = list[tuple[str, str, list[str]]]


def rows_of(seeds: Seeds) -> list[Row]:
    return [
        Row(f"s:{number}", gold, own, prediction)
        for number, (gold, own, variants) in enumerate(seeds)
        for prediction in variants
    ]


@st.composite
def subsampled(draw: st.DrawFn) -> list[Row]:
    """Draw rows in two or three subsamples, with every seed in all of them."""
    count = draw(st.integers(2, 3))
    chosen = st.sets(st.integers(0, count - 1))
    rows = []
    for row in rows_of(draw(SEEDS)):
        first = not any(other.seed_id == row.seed_id for other in rows)
        numbers = range(count) if first else sorted(draw(chosen))
        rows.append(replace(row, subsamples=tuple(numbers)))
    return rows


def plain(rows: list[Row], **options: Any) -> dict[str, Any]:
    return score(**columns(rows), **{"n_bootstrap": 0, **options})


def without_signature(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if not key.startswith("signature")}


@given(SEEDS, st.integers(1, 100))
def test_the_curve_never_rises(seeds: Seeds, threshold: int) -> None:
    """At 100 all variants must be right; at 1, with fewer than 100 variants, one must be."""
    result = plain(rows_of(seeds), correctness_threshold=threshold)
    curve = result["sv_curve"]["accuracy"]
    assert len(curve) == 100
    assert all(a >= b for a, b in pairwise(curve))
    assert all(0 <= value <= 1 for value in curve)
    assert result["seed_variant_accuracy"] == curve[threshold - 1]
    right = [[prediction == gold for prediction in variants] for gold, _, variants in seeds]
    assert curve[99] == sum(map(all, right)) / len(seeds)
    assert curve[0] == sum(map(any, right)) / len(seeds)


@given(
    st.sampled_from([1, 2, 4, 5, 10, 20]).flatmap(
        lambda n: st.lists(
            st.tuples(LABEL, LABEL, st.lists(LABEL, min_size=n, max_size=n)), min_size=1, max_size=6
        )
    )
)
def test_the_area_under_the_curve_is_variant_accuracy(seeds: Seeds) -> None:
    """If all seeds have n variants and n divides 100, the curve's mean is variant accuracy."""
    result = plain(rows_of(seeds))
    mean = sum(result["sv_curve"]["accuracy"]) / 100
    assert mean == pytest.approx(result["variant_accuracy"], abs=1e-12)


@given(subsampled(), st.randoms(use_true_random=False), st.booleans())
def test_row_order_changes_nothing(rows: list[Row], rng: random.Random, several: bool) -> None:
    for number, row in enumerate(rows):
        groups = (("odd", (str(number % 2),)),)
        rows[number] = replace(row, groups=groups)
    shuffled = list(rows)
    rng.shuffle(shuffled)
    shuffled = [replace(r, subsamples=tuple(reversed(r.subsamples))) for r in shuffled]
    first, second = (
        score(**columns(each, subsamples=several, groups=True), n_bootstrap=10)
        for each in (rows, shuffled)
    )
    assert first == second


@given(subsampled(), st.permutations(range(9)), st.booleans())
def test_names_of_seeds_change_nothing(rows: list[Row], numbers: list[int], several: bool) -> None:
    ints = [replace(row, seed_id=numbers[int(row.seed_id[2:])] - 4) for row in rows]
    strings = [replace(row, seed_id="zyxwvutsr"[row.seed_id]) for row in ints]
    first, second, third = (
        without_signature(score(**columns(each, subsamples=several), n_bootstrap=10))
        for each in (rows, ints, strings)
    )
    assert first == second == third


@given(SEEDS, st.integers(2, 4))
def test_duplicating_all_variants_changes_nothing(seeds: Seeds, times: int) -> None:
    rows = rows_of(seeds)
    once, often = (
        without_signature(score(**columns(each), n_bootstrap=10)) for each in (rows, rows * times)
    )
    results = [(often, once)]
    results += [(often["by_label"][label], once["by_label"][label]) for label in once["by_label"]]
    for a, b in results:
        assert a.pop("n_variants") == times * b.pop("n_variants")
        sizes, before = (each.pop("variants_per_seed") for each in (a, b))
        assert sizes["variants"] == [times * size for size in before["variants"]]
        assert sizes["seeds"] == before["seeds"]
    assert often == once


@given(st.lists(st.tuples(LABEL, LABEL, LABEL), min_size=1, max_size=12))
def test_one_variant_per_seed(seeds: list[tuple[str, str, str]]) -> None:
    result = plain(rows_of([(gold, own, [other]) for gold, own, other in seeds]))
    assert result["sv_curve"]["accuracy"] == [result["variant_accuracy"]] * 100


@given(subsampled(), st.booleans())
def test_strict_is_no_more_than_relaxed(rows: list[Row], several: bool) -> None:
    """0 ≤ r_s ≤ r_r ≤ 1, or both are None; for each label, too; equal for neutral seeds."""
    result = score(**columns(rows, subsamples=several), n_bootstrap=0)
    for figures in (result, *result["by_label"].values()):
        relaxed, strict = figures["relaxed_fooling_rate"], figures["strict_fooling_rate"]
        assert (relaxed is None) == (strict is None)
        if relaxed is not None:
            assert 0 <= strict <= relaxed <= 1
    neutral = result["by_label"].get("neutral")
    if neutral:
        assert neutral["relaxed_fooling_rate"] == neutral["strict_fooling_rate"]


@given(SEEDS)
def test_the_interval_holds_exactly_the_thresholds_of_least_gap(seeds: Seeds) -> None:
    rows = rows_of(seeds)
    result = plain(rows)
    low, high = result["matching_threshold_low"], result["matching_threshold_high"]
    own = oracle.seed_accuracy(rows)
    gaps = [abs(value - own) for value in oracle.curve(rows)]
    best = [n for n, gap in enumerate(gaps, start=1) if gap == min(gaps)]
    assert best == list(range(int(low), int(high) + 1))
    assert result["matching_threshold"] == low
    assert result["matching_gap"] == pytest.approx(float(min(gaps)), abs=1e-15)


@given(SEEDS)
def test_the_holding_threshold_is_the_last_that_holds(seeds: Seeds) -> None:
    rows = rows_of(seeds)
    result = plain(rows)
    holding, own = int(result["holding_threshold"]), oracle.seed_accuracy(rows)
    holds = [value >= own for value in oracle.curve(rows)]
    assert holds == [True] * holding + [False] * (100 - holding)
    if result["matching_gap"] == 0:
        assert result["matching_threshold_high"] <= holding


@given(subsampled())
def test_subsamples_that_hold_everything_are_the_whole(rows: list[Row]) -> None:
    whole = [replace(row, subsamples=(5, 0, 2)) for row in rows]
    expected = plain(rows)
    result = score(**columns(whole, subsamples=True), n_bootstrap=0)
    for key in oracle.FIGURES:
        if expected[key] is None:
            assert result[key] is result[f"{key}_std"] is None
        else:
            assert result[key] == pytest.approx(expected[key], abs=1e-12)
            if key not in oracle.WHERE_CURVE_MEETS_S:
                assert result[f"{key}_std"] == pytest.approx(0, abs=1e-12)
    assert result["matching_threshold_per_subsample"] == expected["matching_threshold"]
    assert result["matching_threshold_per_subsample_std"] == 0


@given(subsampled())
def test_the_matching_threshold_begins_a_step_of_the_mean_curve(rows: list[Row]) -> None:
    result = score(**columns(rows, subsamples=True), n_bootstrap=0)
    curve, threshold = oracle.averaged(rows)["curve"], int(result["matching_threshold"])
    assert threshold == result["matching_threshold"] == result["matching_threshold_low"]
    assert threshold == 1 or curve[threshold - 2] > curve[threshold - 1]


@given(subsampled())
def test_numbers_of_subsamples_are_names(rows: list[Row]) -> None:
    renamed = [replace(r, subsamples=tuple((7, 40, 3)[n] for n in r.subsamples)) for r in rows]
    first, second = (
        without_signature(score(**columns(each, subsamples=True), n_bootstrap=10))
        for each in (rows, renamed)
    )
    assert set(first) == set(second)
    for key in (*oracle.FIGURES, *(key for key in first if key.endswith("_std"))):
        assert first[key] == pytest.approx(second[key], abs=1e-12), key


@given(SEEDS)
def test_a_label_column_as_group_is_by_label(seeds: Seeds) -> None:
    rows = rows_of(seeds)
    result = score(**columns(rows), groups={"gold": [row.gold for row in rows]}, n_bootstrap=10)
    assert result["by_group"] == {"gold": result["by_label"]}


@given(SEEDS)
def test_labels_average_to_the_whole(seeds: Seeds) -> None:
    result = plain(rows_of(seeds))
    by_label = result["by_label"].values()
    for key, weight in (
        ("seed_accuracy", "n_seeds"),
        ("seed_variant_accuracy", "n_seeds"),
        ("variant_accuracy", "n_variants"),
    ):
        total = sum(figures[key] * figures[weight] for figures in by_label)
        assert total / result[weight] == pytest.approx(result[key], abs=1e-12)
    assert sum(figures["n_seeds"] for figures in by_label) == result["n_seeds"] == len(seeds)


@given(SEEDS, st.permutations(LABELS))
def test_labels_are_names(seeds: Seeds, names: list[str]) -> None:
    new = dict(zip(LABELS, names, strict=True))
    rows = rows_of(seeds)
    renamed = [
        replace(r, gold=new[r.gold], own=new[r.own], prediction=new[r.prediction]) for r in rows
    ]
    opposites = [(new["contradiction"], new["entailment"])]
    first = without_signature(plain(rows))
    second = without_signature(plain(renamed, opposites=opposites))
    assert {new[k]: v for k, v in first.pop("by_label").items()} == second.pop("by_label")
    assert first == second


@given(SEEDS)
def test_ints_are_names_by_position(seeds: Seeds) -> None:
    """0, 1, 2 are entailment, neutral, contradiction; with other labels, positions in these."""
    rows = rows_of(seeds)
    expected = without_signature(plain(rows))
    assert without_signature(score(**columns(rows, labels=LABELS), n_bootstrap=0)) == expected
    other = ("contradiction", "entailment", "neutral")
    result = score(**columns(rows, labels=other), labels=other, n_bootstrap=0)
    by_label = result.pop("by_label")
    assert by_label == expected.pop("by_label")
    assert without_signature(result) == expected


@given(SEEDS, st.integers(0, 8))
def test_a_better_answer_never_lowers_accuracy(seeds: Seeds, which: int) -> None:
    """One more right variant raises variant accuracy by 1/n and lowers no SV."""
    rows = rows_of(seeds)
    at = which % len(rows)
    better = [replace(r, prediction=r.gold) if i == at else r for i, r in enumerate(rows)]
    before, after = plain(rows), plain(better)
    gained = Fraction(rows[at].prediction != rows[at].gold, len(rows))
    difference = after["variant_accuracy"] - before["variant_accuracy"]
    assert difference == pytest.approx(float(gained), abs=1e-12)
    curves = zip(before["sv_curve"]["accuracy"], after["sv_curve"]["accuracy"], strict=True)
    assert all(b <= a for b, a in curves)
