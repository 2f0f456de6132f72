"""Fits the models of the column `quality`: `python -m helpers.fit_quality`, in `tests/`.

Reads judged variants and their signals, writes `generation/signals/quality.toml`, and prints how
well the models do on judgements that they were not fitted on. Wants scikit-learn.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from generation.signals.signal_columns import FAULTS, GRAMMAR, LIKELIHOOD, features
from merge_dataset.annotation.answers import current, is_good, read_standing
from merge_dataset.annotation.session import read_session
from merge_dataset.files import digest_of_file, write_text

DATA: Final = Path(__file__).parents[1] / "data"
JUDGED: Final = DATA / "judged_variants"
FRESH: Final = DATA / "judged_variants_fresh"
SIGNALS: Final = "signals.csv"
SHIPPED: Final = Path(__file__).parents[2] / "generation" / "signals" / "quality.toml"

PENALTY: Final = 0.3
"""Inverse strength of the L2 penalty, chosen by hand: the outcome hardly hangs on it."""
BINS: Final = 5
CHANGES: Final = ("premise_pll_change", "hypothesis_pll_change")
CHOSEN: Final = {
    GRAMMAR: (*FAULTS, "is_verb", "is_adjective", "zipf_frequency"),
    LIKELIHOOD: (*FAULTS, "is_verb", "is_adjective", "zipf_frequency", "least_change"),
}
"""Model → its features."""

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Judged:
    """Judged variants, in the order of the file of signals."""

    features: Mapping[str, Floats]
    good: np.ndarray[Any, np.dtype[np.bool_]]
    """[n] F + R of 9 or more, over all passes."""
    seeds: tuple[str, ...]


def read_judged(folder: Path) -> Judged:
    """Read a session with its signals."""
    session = read_session(folder)
    passes = [current(read_standing(path)) for path in sorted((folder / "answers").glob("*.jsonl"))]
    with (folder / SIGNALS).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    totals = [
        sum(each[row["variant_id"]].fluency + each[row["variant_id"]].reasoning for each in passes)
        for row in rows
    ]
    return Judged(
        features=features(lambda name: _column(rows, name), CHANGES),
        good=np.array([is_good(total, len(passes)) for total in totals]),
        seeds=tuple(session.items[row["variant_id"]].seed_id for row in rows),
    )


def _column(rows: Sequence[Mapping[str, str]], name: str) -> pa.Array:
    """Return a column of the file of signals, as the dataset has it."""
    texts = [row[name] or None for row in rows]
    if name == "word_class":
        return pa.array(texts)
    if name in FAULTS:
        return pa.array([None if text is None else text == "true" for text in texts], pa.bool_())
    return pa.array([None if text is None else float(text) for text in texts], pa.float32())


def known(judged: Judged, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the rows of which a model's features are all known."""
    values = np.stack([judged.features[each] for each in CHOSEN[name]], axis=1)
    return np.flatnonzero(~np.isnan(values).any(axis=1))


@dataclass(frozen=True, slots=True)
class Fitted:
    """A logistic regression over standardised features."""

    means: Floats
    deviations: Floats
    coefficients: Floats
    intercept: float

    def probabilities(self, values: Floats) -> Floats:
        """Return [n] the probabilities of rows to be good."""
        z = self.intercept + ((values - self.means) / self.deviations) @ self.coefficients
        found: Floats = 1 / (1 + np.exp(-z))
        return found


def fit(values: Floats, good: np.ndarray[Any, np.dtype[np.bool_]]) -> Fitted:
    """Fit one model on [n, features]."""
    means, deviations = values.mean(axis=0), values.std(axis=0)
    deviations[deviations == 0] = 1.0
    regression = LogisticRegression(C=PENALTY, tol=1e-10, max_iter=10_000)
    regression.fit((values - means) / deviations, good)
    return Fitted(means, deviations, regression.coef_[0], float(regression.intercept_[0]))


def out_of_fold(judged: Judged, name: str, *, repeats: int = 10) -> tuple[Floats, Floats]:
    """Return [n] probabilities by models that did not see a row's seed, and [n] good or not.

    Every variant is of a seed of its own, so folds of variants are folds of seeds.
    """
    assert len(set(judged.seeds)) == len(judged.seeds)
    rows = known(judged, name)
    values = np.stack([judged.features[each][rows] for each in CHOSEN[name]], axis=1)
    good, total = judged.good[rows], np.zeros(len(rows))
    for repeat in range(repeats):
        folds = StratifiedKFold(10, shuffle=True, random_state=repeat)
        for train, test in folds.split(values, good):
            total[test] += fit(values[train], good[train]).probabilities(values[test])
    return total / repeats, good.astype(np.float64)


def reliability(probability: Floats, good: Floats) -> list[tuple[float, float, int]]:
    """Return for equally wide bins, of those that have any, mean probability, share good, count."""
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    return [
        (
            float(probability[bins == n].mean()),
            float(good[bins == n].mean()),
            int((bins == n).sum()),
        )
        for n in range(BINS)
        if (bins == n).any()
    ]


def summary(probability: Floats, good: Floats) -> dict[str, float]:
    """Return AUC, Brier score (of the base rate, too) and expected calibration error."""
    better = probability[good == 1][:, None] - probability[good == 0][None, :]
    table = reliability(probability, good)
    return {
        "n": len(good),
        "auc": float((better > 0).mean() + 0.5 * (better == 0).mean()),
        "brier": float(((probability - good) ** 2).mean()),
        "brier_of_base_rate": float(good.mean() * (1 - good.mean())),
        "calibration_error": sum(abs(p - g) * n for p, g, n in table) / len(good),
    }


def render(judged: Judged, date: str) -> str:
    """Write `quality.toml`."""
    answers = sorted((JUDGED / "answers").glob("*.jsonl"))
    lines = [
        "# Logistic regressions for the column quality: python -m helpers.fit_quality, in tests/.",
        "# z = intercept + sum of coefficient * (value - mean) / deviation; quality = 1/(1+e^-z).",
        "",
        "[fitted]",
        f'date = "{date}"',
        'judgements = "tests/data/judged_variants"',
        f"variants = {len(judged.good)}",
        f"good = {int(judged.good.sum())}",
        f'signals_sha256 = "{digest_of_file(JUDGED / SIGNALS)}"',
        *(f'{p.stem.replace("-", "_")}_sha256 = "{digest_of_file(p)}"' for p in answers),
        f"l2_penalty = {PENALTY}",
        'likelihood_by = "SmolLM2-135M-Instruct, 4-bit"',
    ]
    for name, chosen in CHOSEN.items():
        rows = known(judged, name)
        values = np.stack([judged.features[each][rows] for each in chosen], axis=1)
        found = fit(values, judged.good[rows])
        lines += ["", f"[{name}]", f"rows = {len(rows)}", f"intercept = {found.intercept:.9f}"]
        for n, each in enumerate(chosen):
            lines += [
                f"[{name}.features.{each}]",
                f"mean = {found.means[n]:.9f}",
                f"deviation = {found.deviations[n]:.9f}",
                f"coefficient = {found.coefficients[n]:.9f}",
            ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Fit, write, and print how good the models are, out of fold and on fresh judgements."""
    judged = read_judged(JUDGED)
    write_text(SHIPPED, render(judged, sys.argv[1]))
    for name, chosen in CHOSEN.items():
        print(name, "cross-validated", summary(*out_of_fold(judged, name)))
        print(reliability(*out_of_fold(judged, name)))
        if not (FRESH / SIGNALS).is_file():
            continue
        fresh, rows = read_judged(FRESH), known(judged, name)
        found = fit(
            np.stack([judged.features[each][rows] for each in chosen], axis=1), judged.good[rows]
        )
        there = known(fresh, name)
        values = np.stack([fresh.features[each][there] for each in chosen], axis=1)
        tested = found.probabilities(values), fresh.good[there].astype(np.float64)
        print(name, "fresh", summary(*tested))
        print(reliability(*tested))


if __name__ == "__main__":
    main()
