"""Write quality.toml: `python -m helpers.fit_quality DATE`; tests measure how good it is."""

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import tomli_w
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score as auc
from sklearn.model_selection import PredefinedSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from generation.variants.signal_columns import FAULTS, GRAMMAR, LIKELIHOOD, NEIGHBOURS, features
from helpers.judged import JUDGED, answers_of
from merge_dataset.annotation import is_good, read_session
from merge_dataset.files import digest_of_file, write_text

TESTS: Final = Path(__file__).parents[1]
SIGNALS: Final = "signals.csv"
SHIPPED: Final = TESTS.parent / "generation" / "variants" / "quality.toml"

PENALTY: Final = 0.3
"""Inverse strength of the L2 penalty, chosen by hand: the result hardly depends on it."""
BINS: Final = 5
CHANGES: Final = ("premise_pll_change", "hypothesis_pll_change")
"""Columns by SmolLM2; those by gemma have an ending more."""
GEMMA: Final = "_by_gemma"
BEFORE: Final = (*FAULTS, "is_verb", "is_adjective", "zipf_frequency")
CHOSEN: Final = {
    GRAMMAR: (*BEFORE, "log_rank"),
    NEIGHBOURS: (*BEFORE, "log_rank", "neighbour_change"),
    LIKELIHOOD: (*BEFORE, "log_rank", "least_change"),
}
LIMITS: Final = (0.4, 0.5, 0.6)

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Judged:
    """Judged variants of sessions, in the order of the signals files."""

    features: Mapping[str, Floats]
    good: np.ndarray[Any, np.dtype[np.bool_]]
    """[n] whether F + R is 9 or more on average over all passes."""
    seeds: tuple[str, ...]
    reading: np.ndarray[Any, np.dtype[np.int64]]
    """[n] number of the session in which each was read."""


def read_judged(*folders: Path, lm: str = "") -> Judged:
    """Read sessions, with changes of log-likelihood by SmolLM2 or `lm`, the ending of columns."""
    columns: list[Mapping[str, Floats]] = []
    good: list[bool] = []
    seeds: list[str] = []
    for folder in folders:
        items = read_session(folder).items
        passes = [answers_of(path) for path in sorted((folder / "answers").glob("*.csv"))]
        with (folder / SIGNALS).open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        by_lm = {name: name + lm for name in CHANGES}
        columns.append(
            features(lambda name, rows=rows, by=by_lm: _column(rows, by.get(name, name)), CHANGES)
        )
        for name in (row["variant_id"] for row in rows):
            total = sum(answers[name].fluency + answers[name].reasoning for answers in passes)
            good.append(is_good(total, len(passes)))
            seeds.append(items[name].seed_id)
    joined = {name: np.concatenate([item[name] for item in columns]) for name in columns[0]}
    reading = np.repeat(np.arange(len(columns)), [len(item["log_rank"]) for item in columns])
    return Judged(joined, np.array(good), tuple(seeds), reading)


def _column(rows: Sequence[Mapping[str, str]], name: str) -> pa.Array:
    texts = [row[name] or None for row in rows]
    if name == "word_class":
        return pa.array(texts)
    if name in FAULTS:
        return pa.array([None if text is None else text == "true" for text in texts], pa.bool_())
    return pa.array([None if text is None else float(text) for text in texts], pa.float32())


def rows_of(judged: Judged, chosen: Sequence[str]) -> Floats:
    values = np.stack([judged.features[item] for item in chosen], axis=1)
    assert not np.isnan(values).any()
    return values


def fit(values: Floats, good: np.ndarray[Any, np.dtype[np.bool_]]) -> Any:
    regression = LogisticRegression(C=PENALTY, tol=1e-10, max_iter=10_000)
    return make_pipeline(StandardScaler(), regression).fit(values, good)


def out_of_fold(
    judged: Judged,
    chosen: Sequence[str],
    *,
    repeats: int = 10,
    used: Judged | None = None,
    by_reading: bool = False,
) -> tuple[Floats, Floats]:
    """Return [n] probabilities by models not fitted on a row's seed, and [n] good or not.

    `used` has the same rows as another LM sees them; `by_reading` fits on the other sessions.
    """
    assert len(set(judged.seeds)) == len(judged.seeds)
    values, good = rows_of(judged, chosen), judged.good
    others = rows_of(used or judged, chosen)
    total, splits = np.zeros(len(good)), [PredefinedSplit(judged.reading)]
    if not by_reading:
        splits = [StratifiedKFold(10, shuffle=True, random_state=n) for n in range(repeats)]
    for split in splits:
        for train, test in split.split(values, good):
            total[test] += fit(values[train], good[train]).predict_proba(others[test])[:, 1]
    return total / len(splits), good.astype(np.float64)


def aucs(folders: Sequence[Path]) -> dict[str, list[float]]:
    """Return AUCs out of fold: of all, nouns, verbs, adjectives, and of all by the other reading.

    Changes of log-likelihood are in nats for every LM, as fits transfer: over whole texts AUCs were
    .806 to .810 with either LM in either role, .797 to .809 with z-scores by the distribution in a
    run, .795 to .805 with ranks in it.
    """
    smol, gemma = (read_judged(*folders, lm=lm) for lm in ("", GEMMA))
    verb, adjective = (smol.features[f"is_{name}"] == 1 for name in ("verb", "adjective"))
    result = {}
    for name, chosen, fitted_on, used in (
        ("grammar and ranks", GRAMMAR, smol, smol),
        ("and neighbours", NEIGHBOURS, smol, smol),
        ("and SmolLM2-135M", LIKELIHOOD, smol, smol),
        ("and gemma-3-270m", LIKELIHOOD, gemma, gemma),
        ("fitted with SmolLM2, used with gemma", LIKELIHOOD, smol, gemma),
        ("fitted with gemma, used with SmolLM2", LIKELIHOOD, gemma, smol),
    ):
        value, good = out_of_fold(fitted_on, CHOSEN[chosen], used=used)
        other, _ = out_of_fold(fitted_on, CHOSEN[chosen], used=used, by_reading=True)
        groups = (np.ones(len(good), np.bool_), ~verb & ~adjective, verb, adjective)
        numbers = [*(auc(good[group], value[group]) for group in groups), auc(good, other)]
        result[name] = [round(number, 3) for number in numbers]
    return result


def interval(probability: Floats, good: Floats, less: Floats) -> tuple[float, float]:
    """Return the bootstrapped 95 % interval of how much more the AUC is than that of `less`."""
    rng, result = np.random.default_rng(0), []
    for _ in range(1000):
        rows = rng.integers(0, len(good), len(good))
        result.append(auc(good[rows], probability[rows]) - auc(good[rows], less[rows]))
    low, high = np.percentile(result, [2.5, 97.5])
    return float(low), float(high)


def calibration_error(probability: Floats, good: Floats) -> float:
    """Return the expected calibration error, in bins of equal width."""
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    misses = [abs((probability - good)[bins == n].sum()) for n in range(BINS)]
    return float(sum(misses)) / len(good)


def tables(judged: Judged) -> dict[str, Any]:
    """Return the content of quality.toml, as numbers that are rounded to nine decimals."""
    files = [path for folder in JUDGED for path in sorted((folder / "answers").glob("*.csv"))]
    files += [folder / SIGNALS for folder in JUDGED]
    result: dict[str, Any] = {
        "fitted": {
            "variants": len(judged.good),
            "good": int(judged.good.sum()),
            "l2_penalty": PENALTY,
            "neighbours_by": "bert-tiny-mlm, minilm-l6-mlm",
            "likelihood_by": "SmolLM2-135M-Instruct, 4-bit",
            "sha256": {path.relative_to(TESTS).as_posix(): digest_of_file(path) for path in files},
        }
    }
    for name, chosen in CHOSEN.items():
        scaler, regression = fit(rows_of(judged, chosen), judged.good)
        numbers = [scaler.mean_, scaler.scale_, regression.coef_[0]]
        values = np.stack(numbers, axis=1).round(9)
        result[name] = {
            "intercept": round(float(regression.intercept_[0]), 9),
            "features": {
                item: dict(zip(("mean", "deviation", "coefficient"), row, strict=True))
                for item, row in zip(chosen, values.tolist(), strict=True)
            },
        }
    return result


HEAD: Final = """\
# Logistic regressions for the column quality: python -m helpers.fit_quality, in tests/.
# z = intercept + sum of coefficient * (value - mean) / deviation; quality = 1/(1+e^-z).

"""

if __name__ == "__main__":
    made = tables(read_judged(*JUDGED))
    made["fitted"]["date"] = sys.argv[1]
    made["fitted"]["auc"] = aucs(JUDGED)
    write_text(SHIPPED, HEAD + tomli_w.dumps(made))
