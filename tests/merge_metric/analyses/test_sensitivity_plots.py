"""Figures of the paper on paraphrases draw what the tables say."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.analysed import answered, run
from helpers.metric_oracle import columns, problems, random_problems
from helpers.sensitivity_data import run_with_probabilities
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from merge_metric.analyses.fooling import (
    Size,
    fooling_by_size,
    fooling_rates,
    plot_fooling,
    plot_sizes,
    short,
)
from merge_metric.analyses.overlap import overlap, plot_overlap
from merge_metric.analyses.probabilities import confidence, plot_confidence, plot_shift, shift
from merge_metric.analyses.variant_rows import VariantRows
from merge_metric.runs.run import Run
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.tables.plots import percent_axis

CONFIGS = ("snli_paraphrases", "anli-r1_paraphrases", "anli-r2_paraphrases")
RATES = ("relaxed_fooling_rate", "strict_fooling_rate")


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Three models on three sources, but for c, which has only the first."""
    rng = random.Random(5)
    found = []
    for config in CONFIGS:
        problems = random_problems(rng, seeds=25, variants=(2, 6))
        for model, skill in (("a", 0.6), ("b", 0.8), ("c", 0.9)):
            if model != "c" or config == CONFIGS[0]:
                rows = answered(problems, rng, skill)
                found.append(run_with_probabilities(rows, columns(rows), model, config)[0])
    return found


def drawn(figure: Figure) -> Figure:
    """The figure, laid out as for a file."""
    figure.savefig(io.BytesIO(), format="png", dpi=30)
    return figure


def legend(figure: Figure) -> list[str]:
    """Its labels."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def heights(axes: Axes) -> list[list[float]]:
    """Heights of bars, series by series."""
    return [[bar.get_height() for bar in series] for series in axes.containers]


def names(axes: Axes) -> list[str]:
    """Below the panel."""
    return [label.get_text() for label in axes.get_xticklabels()]


def test_strict_bars_lie_within_relaxed_ones(runs: list[Run]) -> None:
    """A panel per source; a model without it has no bars there; intervals beside each other."""
    table = fooling_rates(runs, settings=Settings(n_bootstrap=30))
    figure = drawn(plot_fooling(table))
    assert [axes.get_title() for axes in figure.axes] == list(CONFIGS)
    for axes in figure.axes:
        rows = [r for r in table.rows if r["config"] == axes.get_title() and not r["averaged"]]
        relaxed, strict = heights(axes)
        for found, key in ((relaxed, RATES[0]), (strict, RATES[1])):
            assert found[: len(rows)] == [row[key] for row in rows]
            assert all(np.isnan(found[len(rows) :]))
        for inner, outer in zip(axes.containers[1], axes.containers[0], strict=True):
            assert (inner.get_x(), inner.get_width()) == (outer.get_x(), outer.get_width())
        segments = [s for lines in axes.collections for s in lines.get_segments()]  # type: ignore[attr-defined]
        ends = [sorted(segment[:, 1].tolist()) for segment in segments]
        assert ends == [pytest.approx(row[f"{key}_ci"]) for key in RATES for row in rows]
        assert axes.get_ylim()[1] >= max(end for _, end in ends)
    assert names(figure.axes[-1]) == ["a", "b", "c"]
    assert legend(figure) == ["changed (r_r)", "to the opposite (r_s)"]


def test_bars_without_intervals(runs: list[Run]) -> None:
    """No bootstrap, no lines."""
    figure = drawn(plot_fooling(fooling_rates(runs, settings=Settings(n_bootstrap=0))))
    assert not any(len(lines.get_segments()) for a in figure.axes for lines in a.collections)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_sizes_are_lines_per_family(runs: list[Run]) -> None:
    """Both rates over the number of parameters, names at the upper line."""
    size_of = {"a": Size(10**8, "X"), "b": Size(10**7, "X"), "c": Size(10**9, "Y")}
    table = fooling_by_size(runs, size_of, Settings(n_bootstrap=0))
    figure = drawn(plot_sizes(table))
    assert [axes.get_title() for axes in figure.axes] == list(CONFIGS)
    for axes in figure.axes:
        lines = {str(line.get_label()): line for line in axes.get_lines()}
        rows = [row for row in table.rows if row["config"] == axes.get_title()]
        families = dict.fromkeys(row["family"] for row in rows)
        assert list(lines) == [f"{f}, {rate}" for f in families for rate in ("r_r", "r_s")]
        for family in families:
            mine = [row for row in rows if row["family"] == family]
            for rate, key in zip(("r_r", "r_s"), RATES, strict=True):
                line = lines[f"{family}, {rate}"]
                assert list(line.get_xdata()) == [row["parameters"] for row in mine]
                assert list(line.get_ydata()) == [row[key] for row in mine]
        assert [text.get_text() for text in axes.texts] == [row["model"] for row in rows]
        assert axes.get_xscale() == "log"
    low, high = figure.axes[0].get_xlim()
    assert low < 10**7 < 10**9 < high
    assert legend(figure) == ["X, r_r", "X, r_s", "Y, r_r", "Y, r_s"]


def test_one_model_of_one_size(runs: list[Run]) -> None:
    """A dot is a figure, too, also where no seed is right."""
    table = fooling_by_size(runs[:1], {"a": Size(5, "X")}, Settings(n_bootstrap=0))
    drawn(plot_sizes(table))
    rows = [{**row, RATES[0]: None, RATES[1]: None} for row in
            table.rows]  # fmt: skip
    drawn(plot_sizes(type(table)(table.name, table.title, table.columns, tuple(rows))))
    assert [short(n) for n in (999, 999_400, 999_999)] == ["999", "999K", "1M"]


def test_shift_is_drawn_over_sources(runs: list[Run]) -> None:
    """Averaged over models, the rounds of ANLI as one, JSD and KS side by side."""
    table = shift(runs)
    jsd, ks = drawn(plot_shift(table)).axes
    averages = {row["config"]: row for row in table.rows if row["averaged"]}
    assert names(jsd) == names(ks) == list(averages) == ["snli_paraphrases", "anli_paraphrases"]
    for axes, key in ((jsd, "jsd"), (ks, "ks")):
        assert heights(axes) == [
            [row[f"{key}_{group}"] for row in averages.values()]
            for group in ("unchanged", "changed")
        ]
        assert axes.get_ylim() == (0, 1)
    assert legend(jsd.figure) == ["prediction unchanged", "prediction changed"]  # type: ignore[arg-type]


def test_confidence_is_drawn_over_sources(runs: list[Run]) -> None:
    """Three bars below the highest there can be; of a single model its own values."""
    table = confidence(runs)
    (axes,) = drawn(plot_confidence(table)).axes
    averages = [row for row in table.rows if row["averaged"]]
    keys = ("sigma_seeds", "sigma_unchanged", "sigma_changed")
    assert heights(axes) == [[row[key] for row in averages] for key in keys]
    assert axes.get_lines()[0].get_ydata()[0] == pytest.approx(2**0.5 / 3)  # type: ignore[index]
    (axes,) = drawn(plot_confidence(confidence(runs[:1]))).axes
    assert heights(axes) == [[table.rows[0][key]] for key in keys]


def some_pairs(with_predictions: bool) -> list[VariantRows]:
    """Tables of two configurations."""
    texts = {
        "seed_hypothesis": ["A dog.", "A cat."], "hypothesis": ["A dog!", "It is a cat."],
        "changed": [True, False], "seed_right": [True, True],
    }  # fmt: skip
    answers = run(problems("E E E"), "m") if with_predictions else None
    return [VariantRows(config, "d", pa.table(texts), run=answers) for config in CONFIGS[1:]]


@pytest.mark.slow
def test_overlap_is_drawn_over_sources() -> None:
    """Rounds of ANLI apart, as in the table; distances where they are known."""

    def encode(texts: Any) -> Any:
        return np.array([[len(text), text.count("a") + 1] for text in texts], float)

    table = overlap(some_pairs(with_predictions=False))
    tokens, fuzzy = drawn(plot_overlap(table)).axes
    assert names(tokens) == list(CONFIGS[1:])
    for axes, keys in (
        (tokens, ("length", "length_variant", "overlap")),
        (fuzzy, ("fuzzy_sort", "fuzzy_set")),
    ):
        assert heights(axes) == [[row[key] for row in table.rows] for key in keys]
    *_, distances = drawn(plot_overlap(overlap(some_pairs(False), encode=encode))).axes
    assert len(heights(distances)) == 1
    table = overlap(some_pairs(with_predictions=True), encode=encode)
    *_, distances = drawn(plot_overlap(table)).axes
    assert heights(distances) == [
        [row[key] for row in table.rows]
        for key in ("distance", "distance_unchanged", "distance_changed")
    ]


@pytest.mark.parametrize(
    ("highest", "top"), [(0.0, 0.1), (0.05, 0.1), (0.1, 0.2), (0.31, 0.4), (0.97, 1.0), (1.0, 1.0)]
)
def test_scales_end_above_the_highest(highest: float, top: float) -> None:
    """At a multiple of ten percent, at one hundred at most."""
    axes = Figure().subplots()
    percent_axis(axes, highest)
    assert axes.get_ylim() == (0, pytest.approx(top))
