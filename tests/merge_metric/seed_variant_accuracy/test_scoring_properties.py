"""Properties of figures, signatures, and formulas against libraries."""

import random
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from helpers import metric_oracle as oracle
from helpers.metric_oracle import LABELS, Row, columns, problems, random_problems
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import jensenshannon

from merge_metric.seed_variant_accuracy.figures import CATALOGUE, figures
from merge_metric.seed_variant_accuracy.scoring import (
    VERSION,
    count,
    jensen_shannon,
    kolmogorov_smirnov,
    read_rows,
    score,
)

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


ROWS = problems("E E EENC", "N N NEC", "C E CCE")
SUBSAMPLES = [[0, 1]] * len(ROWS)


def signatures(rows: list[Row] = ROWS, **options: Any) -> tuple[str, str]:
    result = score(**{**columns(rows), "n_bootstrap": 10, **options})
    return result["signature"], result["signature_short"]


def test_every_option_changes_it() -> None:
    settings: list[dict[str, Any]] = [
        {}, *({"correctness_threshold": n} for n in (1, 10, 100)),
        *({"n_bootstrap": n} for n in (0, 1, 100)), *({"rng_seed": n} for n in (1, 10, 100)),
        *({"subsamples": [list(range(n))] * len(ROWS)} for n in (1, 2, 10)),
        *({"opposites": pairs} for pairs in ([], [("entailment", "neutral")])),
        *({"labels": labels} for labels in (LABELS[::-1], [*LABELS, "other"])),
    ]  # fmt: skip
    result = [signatures(**options) for options in settings]
    for form in zip(*result, strict=True):
        assert len(set(form)) == len(settings)


def test_other_data_change_it() -> None:
    """A draw of equal sizes is other data; other answers are not, nor a seed without replicates."""
    others = {
        "a variant fewer": ROWS[:-1],
        "seeds fewer": ROWS[:4],
        "another seed": [replace(r, seed_id=r.seed_id.replace("s:2", "s:3")) for r in ROWS],
        "another gold label": [
            replace(r, gold="neutral") if r.seed_id == "s:0" else r for r in ROWS
        ],
        "a variant more": [*ROWS, ROWS[0]],
    }
    for name, rows in others.items():
        assert all(a != b for a, b in zip(signatures(), signatures(rows), strict=True)), name
    rows = problems("E E EENC", "N N NECN")
    one = [[0], [0], [1], [1]] * 2
    other = [[0, 1], [0], [1], []] * 2
    assert signatures(rows, subsamples=one)[0] != signatures(rows, subsamples=other)[0]
    neutral = [replace(row, prediction="neutral", own="neutral") for row in ROWS]
    assert signatures(neutral) == signatures()
    assert signatures(n_bootstrap=0, rng_seed=1) == signatures(n_bootstrap=0, rng_seed=2)


def test_what_it_reads_like() -> None:
    long, short = signatures(correctness_threshold=75, rng_seed=42, subsamples=SUBSAMPLES)
    parts = dict(part.split(":") for part in long.split("|"))
    assert parts.items() >= {
        "ct": "75", "subsamples": "2", "bootstrap": "10", "rng_seed": "42", "version": VERSION,
        "labels": "entailment,neutral,contradiction", "opposites": "entailment-contradiction",
    }.items()  # fmt: skip
    assert version("merge-nli") == VERSION
    assert "\n" not in long
    assert [part.split(":")[1] for part in short.split("|")] == list(parts.values())


@pytest.mark.parametrize("labels", [2, 3, 7])
def test_jensen_shannon_against_scipy(labels: int) -> None:
    rng = np.random.default_rng(labels)
    p, q = rng.dirichlet([0.3] * labels, size=(2, 200))
    p[:50, 0], q[25:75, -1] = 0.0, 0.0
    p, q = (x / x.sum(axis=1, keepdims=True) for x in (p, q))
    result = jensen_shannon(p, q)
    expected = [jensenshannon(a, b, base=2) ** 2 for a, b in zip(p, q, strict=True)]
    assert result == pytest.approx(expected, abs=1e-12)
    assert jensen_shannon(q, p) == pytest.approx(result, abs=1e-15)
    assert result.shape == (200,)


def test_jensen_shannon_stays_within_its_bounds() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], size=2000)
    nearly = p * (1 + 1e-15 * rng.standard_normal(p.shape))
    assert (jensen_shannon(p, nearly) >= 0).all()
    one_hot = np.eye(3)[rng.integers(3, size=500)]
    assert (jensen_shannon(one_hot, np.roll(one_hot, 1, axis=1)) <= 1).all()


@pytest.mark.parametrize("labels", [2, 3, 7])
def test_kolmogorov_smirnov_against_scipy(labels: int) -> None:
    """Compare with `ks_2samp` of samples in which labels have the given frequencies."""
    rng = np.random.default_rng(labels)
    times = rng.multinomial(60, rng.dirichlet([0.5] * labels, size=40), size=(2, 40))
    p, q = times / 60
    result = kolmogorov_smirnov(p, q)
    samples = [[np.repeat(range(labels), row) for row in time] for time in times]
    expected = [
        stats.ks_2samp(x, y, method="asymp").statistic for x, y in zip(*samples, strict=True)
    ]
    assert result == pytest.approx(expected, abs=1e-12)
    assert kolmogorov_smirnov(q, p) == pytest.approx(result, abs=1e-15)


def test_equal_to_the_package_of_the_index() -> None:
    """`llm-consistency` 1.1, if it is installed: MCA, CORE and agreement-gated accuracy."""
    package = pytest.importorskip("llm_consistency.metrics", reason="pip install llm-consistency")
    rng = random.Random(5)
    for _ in range(30):
        rows = random_problems(rng, seeds=rng.randint(1, 30), variants=(1, 25))
        results = [
            package.build_question_consistency_result(
                name, [(row.prediction, row.prediction == row.gold) for row in variants]
            )
            for name, variants in oracle.by_seed(rows).items()
        ]
        result = plain(rows, correctness_threshold=(ct := rng.randint(1, 100)))
        curve = result["sv_curve"]["accuracy"]
        assert curve == [package.mca(results, n / 100) for n in range(1, 101)]
        assert result["core_index"] == pytest.approx(package.core_index(results), abs=1e-12)
        gated = package.agreement_gated_accuracy(results, ct / 100)
        assert (result["agreement_gated_accuracy"] or 0) == pytest.approx(gated, abs=1e-11)
        agreement = sum(result.rc_agree for result in results) / len(results)
        assert result["agreement"] == pytest.approx(agreement, abs=1e-11)


def test_every_figure_is_in_the_catalogue() -> None:
    computed = figures(count(read_rows(**columns(ROWS)))).scalars
    assert set(CATALOGUE) == set(computed)
    rows = CATALOGUE.values()
    assert all(figure.name and figure.meaning.endswith(".") for figure in rows)
    headings = [figure.heading for figure in rows]
    assert len(set(headings)) == len(headings)
    assert max(map(len, headings)) <= 8
