import math
import random
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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

from generation import Config, build, generate
from generation.run_summary import summarise
from generation.variants.reasons import Reason
from generation.variants.signal_columns import (
    FAULTS,
    LEAST_CHANGE,
    LEAST_NEIGHBOUR_CHANGE,
    quality,
    shipped,
)
from merge_dataset.checks import check_dataset
from merge_dataset.export import export_dataset
from merge_dataset.files import read_json

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


def test_classes_may_have_limits_of_their_own() -> None:
    config = Config(min_quality=0.6, class_quality={"verb": "0.45"})
    assert (config.least_quality("verb"), config.least_quality("noun")) == (0.45, 0.6)
    assert Config.from_mapping(tomllib.loads(config.to_toml())) == config
    rows = pa.table(
        {"word_class": ["verb", "noun"] * 3, "quality": pa.array([0.5, 0.5, 0.4, 0.7, None, None])}
    )
    dropped = Reason.LOW_QUALITY.drops(np.ones(6, np.bool_), rows, config)
    assert dropped.tolist() == [False, True, True, False, False, False]
    for given, message in (
        ({"noums": "0.4"}, "did you mean 'noun'"),
        ({"noun": "5"}, "probabilities from 0 to 1, got 5"),
    ):
        with pytest.raises(ValueError, match=f"class_quality: .*{message}"):
            Config(min_quality=0.6, class_quality=given)
    with pytest.raises(ValueError, match="class_quality: expected min_quality"):
        Config(class_quality={"noun": "0.5"})


@pytest.mark.slow
def test_a_build_says_which_limit_keeps_half_of_a_class(tmp_path: Path) -> None:
    demo = Config.from_recipe("demo", limit=24, run=str(tmp_path / "run"), min_replacements=5)
    run = generate(demo)
    made: dict[tuple[str, str], list[float]] = {}
    for row in pq.read_table(run.replacements).to_pylist():
        made.setdefault((row["word_class"], row["seed_id"]), []).append(row["quality"])
    nouns = sorted((sorted(own)[-5] for (of, _), own in made.items() if of == "noun" and own[4:]))
    limit = float(np.nextafter(np.float32(nouns[-2]), np.float32(1)))  # leaves one seed
    strict = build(run.path, into="strict", min_quality=limit)
    (few,) = [row for row in read_json(strict.manifest)["thinned"] if row["word_class"] == "noun"]
    assert (few["without_limit"], few["seeds"]) == (len(nouns), 1)
    own = {"noun": str(few["half_at"])}
    again = build(run.path, into="again", min_quality=limit, class_quality=own)
    assert 2 * read_json(again.manifest)["eligible"]["noun"] >= len(nouns)
    assert "noun" not in {row["word_class"] for row in read_json(again.manifest).get("thinned", ())}
    configs = export_dataset(again.path, tmp_path / "again")
    assert check_dataset(tmp_path / "again") == []
    export_dataset(strict.path, tmp_path / "strict")
    text = summarise(strict.path, tmp_path / "strict", configs[:1])
    assert f"1 of {len(nouns)} seeds have enough nouns of that quality; half of them would" in text


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
