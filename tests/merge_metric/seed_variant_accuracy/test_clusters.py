import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers import metric_oracle as oracle
from helpers.metric_oracle import Row, columns, problems, random_problems
from hypothesis import given
from hypothesis import strategies as st

from merge_metric.seed_variant_accuracy.inputs import read_rows
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import compare
from merge_metric.seed_variant_accuracy.scoring import count, score

REPLICATES = 2_000
CHANCE = 4 * math.sqrt(0.025 * 0.975 / REPLICATES)
LINES = ("E E EEEE", "E N EEEN", "E E NNNN", "C C CNNE", "N N NNNN")
PREMISES = ("p", "q", "p", "r", "r")
"""Premises of the five seeds of `LINES`."""


def clustered(rows: Sequence[Row], premises: Sequence[Any], **options: Any) -> dict[str, Any]:
    values = [premises[int(row.seed_id[2:])] for row in rows]
    return score(**columns(rows), clusters={"premise": values}, **options)


def every_draw(rows: Sequence[Row], premises: Sequence[str]) -> Iterator[list[Row]]:
    """Yield the rows of each possible draw of premises; all draws are equally probable."""
    distinct = sorted(set(premises))
    for drawn in product(distinct, repeat=len(distinct)):
        times = {f"s:{n}": drawn.count(premise) for n, premise in enumerate(premises)}
        yield oracle.resampled(rows, times)


def test_intervals_are_those_of_all_draws_of_premises() -> None:
    rows = problems(*LINES)
    result = clustered(rows, PREMISES, n_bootstrap=REPLICATES, correctness_threshold=70)
    exact = [oracle.averaged(drawn, 70) for drawn in every_draw(rows, PREMISES)]
    for key in oracle.FIGURES:
        values = [(float(item[key]), 1 / 27) for item in exact if item[key] is not None]
        for bound, at in zip(result[f"{key}_ci"], (0.025, 0.975), strict=True):
            least, most = (oracle.quantile(values, at + side) for side in (-CHANCE, CHANCE))
            assert least - 1e-9 <= bound <= most + 1e-9, key
    # A binomial over seeds would give another interval.
    assert result["seed_accuracy_ci"] != score(**columns(rows))["seed_accuracy_ci"]


def intervals(rows: list[Row], premises: Sequence[Any] | None = None) -> list[Any]:
    """Intervals of all figures of five replicates, by clusters if there are any."""
    several = len(rows[0].subsamples) > 1 or any(len(row.subsamples) != 1 for row in rows)
    clusters = premises and {"premise": [premises[int(row.seed_id[2:])] for row in rows]}
    given = columns(rows, subsamples=several)
    result = score(**given, clusters=clusters, n_bootstrap=5, rng_seed=1)
    return [result["sv_curve"], *(result[key] for key in result if key.endswith("_ci"))]


@given(st.randoms(use_true_random=False), st.booleans())
def test_premises_of_one_seed_each_change_nothing(rng: random.Random, several: bool) -> None:
    rows = random_problems(rng, seeds=6, skill=0.9, subsamples=2 if several else 0)
    premises = [f"premise {n}" for n in range(6)]
    assert repr(intervals(rows, premises)) == repr(intervals(rows))


@given(st.randoms(use_true_random=False))
def test_names_and_order_decide_nothing(rng: random.Random) -> None:
    rows = random_problems(rng, seeds=8, variants=(1, 3))
    premises = [rng.randrange(4) for _ in range(8)]
    order, names = rng.sample(range(8), 8), rng.sample("abcd", 4)
    renamed = [replace(row, seed_id=f"s:{order[int(row.seed_id[2:])]}") for row in rows]
    rng.shuffle(renamed)
    moved = [names[premises[order.index(n)]] for n in range(8)]
    assert repr(intervals(rows, premises)) == repr(intervals(renamed, moved))


def test_comparisons_draw_premises() -> None:
    values = [*np.repeat(PREMISES, 4)]
    better, worse = problems(*LINES), problems(*(f"{line[:2]}N{line[3:]}" for line in LINES))

    def counts_of(rows: list[Row], premises: Sequence[str] | None = values) -> Any:
        clusters = premises and {"premise": premises}
        return count(read_rows(**columns(rows), clusters=clusters))

    together = compare(counts_of(better), counts_of(worse), Settings(n_bootstrap=500))
    alone = compare(counts_of(better, None), counts_of(worse, None), Settings(n_bootstrap=500))
    assert together["seed_accuracy"]["difference"] == alone["seed_accuracy"]["difference"]
    assert together["seed_accuracy"]["ci"] != alone["seed_accuracy"]["ci"]
    with pytest.raises(ValueError, match=r"expected the same seeds.*other clusters"):
        compare(counts_of(better), counts_of(worse, ["one"] * 20))


def test_signature_says_so() -> None:
    rows = problems(*LINES)
    plain = score(**columns(rows), n_bootstrap=5)
    one, other = (clustered(rows, p, n_bootstrap=5) for p in (PREMISES, "ppppp"))
    assert "|bootstrap:5|cluster:premise|rng_seed:0|" in one["signature"]
    assert "|b:5|g:premise|r:0|" in one["signature_short"]
    assert len({item["signature"] for item in (plain, one, other)}) == 3
    assert clustered(rows, "qrqpp", n_bootstrap=5)["signature"] == one["signature"]
    assert "cluster" not in clustered(rows, PREMISES, n_bootstrap=0)["signature"]
