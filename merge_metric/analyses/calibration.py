"""Calibration: whether a model's confidence says how often it is right, on seeds and on variants.

Confidence is the highest of the probabilities of an answer. Definitions: expected calibration error
(Naeini et al. 2015) over bins of equal mass (Nguyen and O'Connor 2015), the Brier score (1950) of
confidence as a forecast of being right, and its parts (Murphy 1973).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from merge_metric.analyses.measures import RUN_COLUMNS, Bools, Floats, Ints, Row, identity, titled
from merge_metric.analyses.registry import Request
from merge_metric.frame.counting import CONFIDENCE, SEED_CONFIDENCE
from merge_metric.frame.joined import Frame
from merge_metric.seed_variant_accuracy.options import NO_LABEL, USUAL, Settings
from merge_metric.seed_variant_accuracy.resampling import interval, seed_weights
from merge_metric.tables import Table, columns, interval_columns, plots

_BINS: Final = 15


def calibration(request: Request, *, bins: int = _BINS, settings: Settings = USUAL) -> Table:
    """Make a row for seeds and one for variants of each model and configuration."""
    rows = [
        row
        for frame in request.frames(with_rows=True)
        for row in calibration_rows(frame, bins=bins, settings=settings)
    ]
    shown = (
        *RUN_COLUMNS,
        *columns(of="of"),
        *columns("count", n="answers"),
        *columns("share", accuracy="right", confidence="confidence"),
        *interval_columns("share", ece="ECE"),
        *interval_columns("fraction", brier="Brier"),
        *columns("fraction", reliability="rel.", resolution="res.", uncertainty="unc."),
        *interval_columns("points", drop="changed less same"),
    )
    return titled("calibration", shown, rows, bins=bins)


def calibration_rows(
    frame: Frame, *, bins: int = _BINS, settings: Settings = USUAL
) -> Iterator[Row]:
    """Yield the rows of a frame: of its seeds, each once, and of its distinct variants."""
    if CONFIDENCE not in frame.values:
        raise ValueError(
            f"{frame.model}, {frame.config}: expected label probabilities, in a column called "
            f"probabilities, got predictions without; `merge-nli predict` writes them"
        )
    rows, cluster = frame.rows, frame.counts.clusters
    confidence, own = (np.asarray(frame.values[key]) for key in (CONFIDENCE, SEED_CONFIDENCE))
    seeds, first = np.unique(rows.seed, return_index=True)
    right = rows.prediction == rows.gold[rows.seed]
    parts = {
        "seeds": (own[first], (rows.own == rows.gold)[seeds], seeds),
        "variants": (confidence, right, rows.seed),
    }
    comparable = rows.own[rows.seed] != NO_LABEL
    changed = rows.prediction != rows.own[rows.seed]
    for of, (sure, is_right, seed) in parts.items():
        bin_of = equal_mass(sure, bins)
        sums = summed(sure, is_right, seed, bin_of, len(rows.seed_ids))
        group = np.where(comparable, changed.astype(np.int64), 2)
        groups = np.stack(
            [
                np.bincount(rows.seed, (group == n) * value, len(rows.seed_ids)).astype(np.float64)
                for n in range(2)
                for value in (1.0, confidence)
            ],
            axis=1,
        )
        replicates = [
            (calibration_of(weights, sums), _drop(weights, groups))
            for weights in seed_weights(len(sums), settings, cluster)
        ]
        every = np.ones((1, len(sums)))
        figures = calibration_of(every, sums)
        drawn = {key: np.concatenate([part[key] for part, _ in replicates] or [np.empty(0)])
                 for key in figures}  # fmt: skip
        if of == "variants":
            figures["drop"] = _drop(every, groups)
            drawn["drop"] = np.concatenate([drop for _, drop in replicates] or [np.empty(0)])
        row: Row = identity(frame) | {"of": of, "n": len(sure), "drop": None}
        for key, (value,) in figures.items():
            row[key] = None if np.isnan(value) else float(value)
            if settings.n_bootstrap and key in ("ece", "brier", "drop"):
                row[f"{key}_ci"] = interval(drawn[key]).tolist()
        n, *means = sums.sum(axis=0)[:, :3].T
        filled = n > 0
        row["curve"] = [(mean[filled] / n[filled]).tolist() for mean in means]
        yield row


def equal_mass(confidence: Floats, bins: int) -> Ints:
    """Assign answers to bins between quantiles, (n,); equal confidences share a bin.

    >>> equal_mass(np.array([0.4, 0.9, 0.5, 0.9]), 2).tolist()
    [0, 1, 0, 1]
    """
    edges = np.quantile(confidence, np.linspace(0, 1, bins + 1))[1:-1]
    return np.searchsorted(edges, confidence)


def summed(confidence: Floats, right: Bools, seed: Ints, bin_of: Ints, n_seeds: int) -> Floats:
    """Sum by seed and bin, (S, bins, 4): answers, confidence, right ones, squared errors."""
    sums = np.zeros((n_seeds, int(bin_of.max()) + 1, 4))
    errors = (confidence - right) ** 2
    for n, values in enumerate((np.ones(len(seed)), confidence, right.astype(np.float64), errors)):
        np.add.at(sums[:, :, n], (seed, bin_of), values)
    return sums


def calibration_of(weights: Floats, sums: Floats) -> dict[str, Floats]:
    """Compute figures of B weightings, (B, S), of `summed` answers; each (B,).

    `ece` is |right − confidence|, weighted by n / N, over bins; `brier` the mean squared error;
    `reliability` − `resolution` + `uncertainty` is the Brier score of the bins' means.
    """
    n, confidence, right, errors = np.tensordot(weights, sums, axes=1).transpose(2, 0, 1)
    total = n.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = right.sum(axis=1) / total
        gaps = np.nan_to_num((confidence - right) ** 2 / n)
        spread = np.nan_to_num((right - n * rate[:, None]) ** 2 / n)
        return {
            "accuracy": rate,
            "confidence": confidence.sum(axis=1) / total,
            "ece": np.abs(confidence - right).sum(axis=1) / total,
            "brier": errors.sum(axis=1) / total,
            "reliability": gaps.sum(axis=1) / total,
            "resolution": spread.sum(axis=1) / total,
            "uncertainty": rate * (1 - rate),
        }


def _drop(weights: Floats, groups: Floats) -> Floats:
    """Compute mean confidence where answers differ from the seed's, less where they do not."""
    same, sure, changed, of_changed = (weights @ groups).T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(of_changed / changed - sure / same)


def plot_calibration(table: Table) -> plots.Figure:
    """Draw a panel per configuration: share right by confidence, a line per model and part."""
    configs = plots.distinct(table.rows, "config")
    models = plots.distinct(table.rows, "model")
    figure, row_of_axes = plots.row_of_panels(len(configs))
    for axes, rows in plots.config_panels(table, row_of_axes):
        axes.plot([0, 1], [0, 1], color="0.7", lw=0.8)
        for row in rows:
            style = plots.line_style(models.index(row["model"]))
            dashes = {"linestyle": ":"} if row["of"] == "seeds" else {}
            axes.plot(*row["curve"], label=f"{row['model']}, {row['of']}", **(style | dashes))
        axes.set_ylim(0, 1)
        for axis in (axes.xaxis, axes.yaxis):
            plots.percent_ticks(axis)
        plots.grid(axes)
        axes.set_xlabel("confidence, %")
    plots.label_left(row_of_axes, "right, %")
    plots.legend_below(figure, row_of_axes)
    return figure
