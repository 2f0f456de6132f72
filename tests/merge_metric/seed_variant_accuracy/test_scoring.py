"""Worked examples by hand, and the slow oracle on random inputs."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from helpers import metric_oracle as oracle
from helpers.metric_oracle import LABELS, Row, columns, problems, random_problems
from hypothesis import given
from hypothesis import strategies as st

from merge_metric.seed_variant_accuracy.figures import CATALOGUE, figures
from merge_metric.seed_variant_accuracy.scoring import (
    VERSION,
    count,
    jensen_shannon,
    read_rows,
    score,
)


def scored(*lines: str, **options: Any) -> dict[str, Any]:
    return score(**columns(problems(*lines)), **{"n_bootstrap": 0, **options})


def assert_same(got: Mapping[str, Any], expected: Mapping[str, Any], *, subsampled: bool) -> None:
    """Compare all figures, those of groups too: counts exactly, others up to rounding."""
    for key, wanted in expected.items():
        only_with_subsamples = key.endswith(("_std", "_per_subsample")) or key == "n_subsamples"
        if isinstance(wanted, dict):
            if "seed_accuracy" not in wanted:  # but names of labels or groups
                assert set(got.get(key, ())) == set(wanted), key
            assert_same(got.get(key, {}), wanted, subsampled=subsampled)
        elif key == "curve":
            curve = [float(value) for value in wanted]
            assert got["sv_curve"]["threshold"] == list(range(1, 101))
            assert got["sv_curve"]["accuracy"] == pytest.approx(curve, rel=1e-12, abs=1e-15)
        elif only_with_subsamples and not subsampled:
            assert key not in got
        elif wanted is None:
            assert got[key] is None, key
        elif isinstance(wanted, int) or (isinstance(wanted, Fraction) and wanted.denominator == 1):
            assert got[key] == wanted, key
            assert type(got[key]) is int or not isinstance(wanted, int), key
        else:
            assert got[key] == pytest.approx(float(wanted), rel=1e-12, abs=1e-12), key


def assert_exact(got: Mapping[str, Any], rows: Sequence[Row], **options: Any) -> None:
    """Require a result to be that of the slow oracle."""
    assert_same(got, oracle.scores(rows, **options), subsampled="n_subsamples" in got)


@pytest.mark.parametrize("n", range(1, 61))
def test_thresholds_are_exact_for_any_number_of_variants(n: int) -> None:
    """Seeds with 0, 1, … n of n right count if k/n ≥ CT/100, for which floats would err at 20."""
    result = scored(*(f"E E {'E' * k}{'C' * (n - k)}" for k in range(n + 1)))
    shares = [Fraction(k, n) for k in range(n + 1)]
    assert result["sv_curve"]["accuracy"] == [
        sum(share >= Fraction(ct, 100) for share in shares) / (n + 1) for ct in range(1, 101)
    ]


@pytest.mark.slow(but=[f"{number}-{most}" for number in range(10) for most in (0, 5)])
@pytest.mark.parametrize("most_subsamples", [0, 5])
@pytest.mark.parametrize("number", range(30))
def test_agrees_with_the_slow_oracle(number: int, most_subsamples: int) -> None:
    """For any threshold; subsamples of any numbers overlap, some rows are in none, or no group."""
    rng, several = random.Random(200 * most_subsamples + number), most_subsamples > 0
    subsamples = rng.randint(1, most_subsamples) if several else 0
    rows = random_problems(rng, seeds=rng.randint(1, 12), subsamples=subsamples)
    names = rng.sample(range(50), 5)
    rows = [replace(row, subsamples=tuple(names[n] for n in row.subsamples)) for row in rows]
    threshold = rng.randint(1, 100)
    labels = LABELS if number % 2 else None
    given = columns(rows, labels=labels, subsamples=several, groups=True)
    result = score(**given, correctness_threshold=threshold, n_bootstrap=0)
    assert_exact(result, rows, threshold=threshold)
    assert several or not [key for key in result if key.endswith(("_ci", "_std"))]


@pytest.mark.slow(but=[f"{number}" for number in range(10)])
@pytest.mark.parametrize("number", range(30))
def test_agrees_with_the_slow_oracle_without_labels(number: int) -> None:
    rng = random.Random(3000 + number)
    seeds, share = rng.randint(1, 12), rng.choice([0.1, 0.5, 1])
    rows = random_problems(rng, seeds=seeds, subsamples=number % 3, unlabelled=share)
    labels = LABELS if number % 2 else None
    given = columns(rows, labels=labels, subsamples=number % 3 > 0, groups=True)
    if number % 5 == 1:  # as from files, whose column may have no null
        none = -1 if number % 2 else ""
        for name in ("predictions", "seed_predictions"):
            given[name] = [none if value is None else value for value in given[name]]
    result = score(**given, n_bootstrap=0)
    assert_exact(result, rows)
    drawn = [row for row in rows if row.subsamples]
    seeds = {row.seed_id: row.own for row in drawn}
    n_none = sum(own is None for own in seeds.values())
    item = [[row.prediction is None for row in part] for part in oracle.parts(rows)]
    mean_none = sum(map(sum, item)) / len(item)
    told = result.get("without_label", {"seeds": 0, "variants": 0})
    assert (told["seeds"], told["variants"]) == (n_none, pytest.approx(mean_none))
    if n_none or mean_none:
        mean_rows = sum(map(len, item)) / len(item)
        share = (n_none + mean_none) / (len(seeds) + mean_rows)
        assert told["share"] == pytest.approx(share)


@pytest.mark.slow(but=[f"{number}" for number in range(6)])
@pytest.mark.parametrize("number", range(20))
def test_agrees_with_the_slow_oracle_for_other_labels(number: int) -> None:
    rng = random.Random(2000 + number)
    labels = ["up", "down", "left", "right", "still"][: rng.randint(2, 5)]
    rng.shuffle(labels)
    opposites = [("down", "up"), ("left", "right")][: len(set(labels) & {"left", "right"})]
    rows = random_problems(rng, seeds=10, labels=labels, subsamples=number % 3)
    given = columns(rows, labels=labels if number % 2 else None, subsamples=number % 3 > 0)
    result = score(**given, labels=labels, opposites=opposites, n_bootstrap=0)
    assert_exact(result, [replace(row, groups=()) for row in rows], opposites=opposites)


def random_probabilities(rng: random.Random, favoured: int, size: int) -> list[float]:
    """A random distribution with its largest value at `favoured`, and some zeros."""
    weights = sorted(max(0, rng.random() - 0.2) for _ in range(size))
    largest = weights.pop() or 1.0
    rng.shuffle(weights)
    weights.insert(favoured, largest)
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("number", range(12))
def test_divergences_agree_with_the_slow_oracle(number: int) -> None:
    rng, labels = random.Random(number), [*"abcdefg"[: (2, 3, 7)[number % 3]]]
    rows = random_problems(rng, seeds=12, labels=labels, skill=(0.1, 0.5, 0.95)[number // 4])

    def answer(label: str) -> list[float]:
        # Mostly the prediction, but other decision rules than the maximum are allowed.
        favoured = labels.index(label) if rng.random() < 0.8 else rng.randrange(len(labels))
        return random_probabilities(rng, favoured, len(labels))

    own = {row.seed_id: answer(row.own) for row in rows}
    seed_probabilities = [own[row.seed_id] for row in rows]
    probabilities = [answer(row.prediction) for row in rows]
    both = {"probabilities": probabilities, "seed_probabilities": seed_probabilities}
    result = score(**columns(rows), **both, labels=labels, opposites=[], n_bootstrap=0)
    expected = oracle.divergences(rows, probabilities, seed_probabilities)
    assert len(expected) == 7  # of changed and unchanged variants; σ also of seeds
    for key, wanted in expected.items():
        approximate = None if wanted is None else pytest.approx(wanted, rel=1e-9, abs=1e-12)
        assert result[key] == approximate, key


def plain_types(value: Any) -> bool:
    """Whether a value has only JSON's own types, no NumPy scalars and no subclasses."""
    if isinstance(value, dict):
        return all(type(key) is str and plain_types(item) for key, item in value.items())
    if isinstance(value, list):
        return all(plain_types(item) for item in value)
    return value is None or type(value) in (int, float, str, bool)


@pytest.mark.parametrize("line", ["E E EENC", "E N EENC"])
def test_result_is_plain_json(line: str) -> None:
    result = score(
        **columns([*problems(line), Row("t:1", "neutral", "entailment", "neutral")]),
        subsamples=[[0, 1], [0], [1], [1], [0, 1]],
        groups={"word": ["noun", "verb", "noun", "verb", "noun"], "n": [1, 2, [1, 2], [], 1]},
        probabilities=[[0.5, 0.25, 0.25]] * 5,
        seed_probabilities=[[0.5, 0.25, 0.25]] * 5,
        n_bootstrap=20,
    )
    assert plain_types(result)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["signature"]
    assert result["signature_short"]
    assert len(result["signature_short"]) < len(result["signature"])


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([1, "1", 1, "2"], {"1": 3, "2": 1}),  # values are strings in the result
        (["noun", None, float("nan"), float("nan")], {"noun": 1}),  # in tables, NaN is no value
        # As if two MLMs of one family both have its name.
        ([["bert", "bert"], ["bert"], ["roberta", "bert", 1], [1, "1"]],
         {"1": 2, "bert": 3, "roberta": 1}),
    ],
)  # fmt: skip
def test_groups_are_distinct_values(values: list[Any], counts: dict[str, int]) -> None:
    result = scored("E E EENC", groups={"g": values})["by_group"]["g"]
    assert {value: figures["n_variants"] for value, figures in result.items()} == counts
    if "bert" in counts:
        assert result["bert"]["variant_accuracy"] == pytest.approx(2 / 3)
    right = scored("E E EN", groups={"g": [[1, "1"], [1]]})["by_group"]["g"]["1"]
    assert right["variant_accuracy"] == 0.5


def figures_of(rows: Sequence[Row], **kinds: bool) -> dict[str, Any]:
    """All that `score` says of rows but the signature, with intervals."""
    result = score(**columns(rows, **kinds), n_bootstrap=10)
    return {key: value for key, value in result.items() if not key.startswith("signature")}


@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_order_and_names_change_nothing(rng: random.Random, subsamples: int) -> None:
    """Rows, and the subsamples of each, stand in any order; ids are ints or strings."""
    rows = random_problems(rng, seeds=rng.randint(1, 9), subsamples=subsamples)
    kinds = {"subsamples": subsamples > 0, "groups": True}
    shuffled = [replace(r, subsamples=r.subsamples[::-1]) for r in rng.sample(rows, len(rows))]
    both = (score(**columns(item, **kinds), n_bootstrap=10) for item in (rows, shuffled))
    assert next(both) == next(both)
    numbers = rng.sample(range(9), 9)
    ints = [replace(row, seed_id=numbers[int(row.seed_id[2:])] - 4) for row in rows]
    strings = [replace(row, seed_id="zyxwvutsr"[row.seed_id]) for row in ints]
    expected = figures_of(rows, **kinds)
    assert figures_of(ints, **kinds) == expected == figures_of(strings, **kinds)


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


def test_jensen_shannon_stays_within_its_bounds() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], size=2000)
    nearly = p * (1 + 1e-15 * rng.standard_normal(p.shape))
    assert (jensen_shannon(p, nearly) >= 0).all()
    one_hot = np.eye(3)[rng.integers(3, size=500)]
    assert (jensen_shannon(one_hot, np.roll(one_hot, 1, axis=1)) <= 1).all()


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
        ct = rng.randint(1, 100)
        result = score(**columns(rows), correctness_threshold=ct, n_bootstrap=0)
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
