import random
from dataclasses import replace
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


@given(subsampled(), st.randoms(use_true_random=False), st.booleans())
def test_row_order_changes_nothing(rows: list[Row], rng: random.Random, several: bool) -> None:
    for number, row in enumerate(rows):
        groups = (("odd", (str(number % 2),)),)
        rows[number] = replace(row, groups=groups)
    shuffled = list(rows)
    rng.shuffle(shuffled)
    shuffled = [replace(r, subsamples=tuple(reversed(r.subsamples))) for r in shuffled]
    first, second = (
        score(**columns(item, subsamples=several, groups=True), n_bootstrap=10)
        for item in (rows, shuffled)
    )
    assert first == second


@given(subsampled(), st.permutations(range(9)), st.booleans())
def test_names_of_seeds_change_nothing(rows: list[Row], numbers: list[int], several: bool) -> None:
    ints = [replace(row, seed_id=numbers[int(row.seed_id[2:])] - 4) for row in rows]
    strings = [replace(row, seed_id="zyxwvutsr"[row.seed_id]) for row in ints]
    first, second, third = (
        without_signature(score(**columns(item, subsamples=several), n_bootstrap=10))
        for item in (rows, ints, strings)
    )
    assert first == second == third


@given(SEEDS, st.integers(2, 4))
def test_duplicating_all_variants_changes_nothing(seeds: Seeds, times: int) -> None:
    rows = rows_of(seeds)
    once, often = (
        without_signature(score(**columns(item), n_bootstrap=10)) for item in (rows, rows * times)
    )
    results = [(often, once)]
    results += [(often["by_label"][label], once["by_label"][label]) for label in once["by_label"]]
    for a, b in results:
        assert a.pop("n_variants") == times * b.pop("n_variants")
        sizes, before = (item.pop("variants_per_seed") for item in (a, b))
        assert sizes["variants"] == [times * size for size in before["variants"]]
        assert sizes["seeds"] == before["seeds"]
    assert often == once


@given(subsampled())
def test_numbers_of_subsamples_are_names(rows: list[Row]) -> None:
    renamed = [replace(r, subsamples=tuple((7, 40, 3)[n] for n in r.subsamples)) for r in rows]
    first, second = (
        without_signature(score(**columns(item, subsamples=True), n_bootstrap=10))
        for item in (rows, renamed)
    )
    assert set(first) == set(second)
    for key in (*oracle.FIGURES, *(key for key in first if key.endswith("_std"))):
        assert first[key] == pytest.approx(second[key], abs=1e-12), key


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
