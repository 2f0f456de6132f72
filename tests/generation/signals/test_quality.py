import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.fit_quality import (
    BEFORE,
    CHANGES,
    CHOSEN,
    aucs,
    calibration_error,
    interval,
    out_of_fold,
    read_judged,
    tables,
)
from helpers.judged import JUDGED
from sklearn.metrics import brier_score_loss

from generation.config import Config
from generation.variants.signal_columns import (
    FAULTS,
    LEAST_CHANGE,
    LEAST_NEIGHBOUR_CHANGE,
    quality,
    shipped,
)

OF_MLMS = ("mean_rank", "neighbour_change")
NAMES = ("word_class", "zipf_frequency", *OF_MLMS, *FAULTS, *CHANGES)
Row = dict[str, Any]


def random_rows(number: int) -> list[Row]:
    """Random rows with all possible kinds of values."""
    rng = random.Random(number)
    return [
        {
            "word_class": rng.choice(["noun", "verb", "adjective", "adverb"]),
            "zipf_frequency": round(rng.uniform(0, 7), 2),
            "mean_rank": round(rng.uniform(1, 201), 2),
            "neighbour_change": rng.choice([None, -9.0, round(rng.uniform(-5, 1), 3)]),
            **{name: rng.choice([True, False, None]) for name in FAULTS},
            CHANGES[0]: rng.choice([None, -80.0, round(rng.uniform(-20, 5), 3)]),
            CHANGES[1]: rng.choice([None, round(rng.uniform(-20, 5), 3)]),
        }
        for _ in range(300)
    ]


def estimated(rows: list[Row], changes: tuple[str, ...] = CHANGES) -> list[float | None]:
    """Compute the column `quality` of some rows."""
    types = {"word_class": pa.string()} | dict.fromkeys(FAULTS, pa.bool_())
    columns = {n: pa.array([row[n] for row in rows], types.get(n, pa.float32())) for n in NAMES}
    result: list[float | None] = quality(lambda name: columns[name], changes).to_pylist()
    return result


def plainly(row: Row, *, is_causal: bool) -> float:
    """Compute 1 / (1 + e^-z), feature by feature, from the values of the file."""
    there = [row[name] for name in CHANGES if row[name] is not None] if is_causal else []
    has_neighbours = row["neighbour_change"] is not None
    chosen = shipped()["likelihood" if there else "neighbours" if has_neighbours else "grammar"]
    z = chosen["intercept"]
    for name, feature in chosen["features"].items():
        if name == "least_change":
            value = min(max(min(there), LEAST_CHANGE), 0.0)
        elif name == "log_rank":
            value = np.log(np.float64(np.float32(row["mean_rank"])))
        elif name == "neighbour_change":
            value = min(max(np.float32(row[name]), LEAST_NEIGHBOUR_CHANGE), 0.0)
        elif name == "zipf_frequency":
            value = np.float32(row[name])
        elif name in FAULTS:
            value = 1 if row[name] is not None and row[name] is FAULTS[name] else 0
        else:
            value = 1 if f"is_{row['word_class']}" == name else 0
        z += feature["coefficient"] * (value - feature["mean"]) / feature["deviation"]
    return 1 / (1 + math.exp(-z))


@pytest.mark.parametrize("is_causal", [True, False])
def test_formula_row_by_row(is_causal: bool) -> None:
    rows = random_rows(3)
    result = estimated(rows, CHANGES if is_causal else ())
    wanted = [plainly(row, is_causal=is_causal) for row in rows]
    assert result == pytest.approx(wanted, abs=1e-6)
    assert len(set(result)) > 100


def test_shipped_coefficients_are_those_of_the_judged_variants() -> None:
    expected, there = tables(read_judged(*JUDGED)), shipped()
    assert there["fitted"].items() >= expected["fitted"].items()
    for name, chosen in CHOSEN.items():
        again, kept = expected[name]["features"], there[name]["features"]
        assert tuple(kept) == tuple(again) == chosen
        for feature, values in kept.items():
            assert values == pytest.approx(again[feature], abs=1e-5)
        assert there[name]["intercept"] == pytest.approx(expected[name]["intercept"], abs=1e-5)


def test_a_limit_is_a_probability() -> None:
    assert Config(min_quality=0.5).optional_columns == ("mean_rank", "quality")
    with pytest.raises(ValueError, match=r"min_quality: expected .* from 0 to 1, got 50"):
        Config(min_quality=50)


@pytest.mark.slow
def test_it_tells_good_from_bad_out_of_fold() -> None:
    judged = read_judged(*JUDGED)
    plain, good = out_of_fold(judged, BEFORE, repeats=3)
    result = {name: out_of_fold(judged, chosen, repeats=3)[0] for name, chosen in CHOSEN.items()}
    for value in result.values():
        assert brier_score_loss(good, value) < good.mean() * (1 - good.mean())
        assert calibration_error(value, good) < 0.1
        assert interval(value, good, plain)[0] > 0
    both, _ = out_of_fold(judged, (*CHOSEN["likelihood"], "neighbour_change"), repeats=3)
    assert interval(both, good, result["likelihood"])[0] < 0
    assert interval(result["likelihood"], good, result["grammar"])[0] > 0
    kept = shipped()["fitted"]["auc"]
    for name, numbers in aucs(JUDGED).items():
        assert kept[name] == pytest.approx(numbers, abs=0.002), name
