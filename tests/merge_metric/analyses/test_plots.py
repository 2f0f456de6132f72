import io
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.analysed import answered, given, random_dataset, run, seeds_table
from helpers.metric_oracle import random_problems
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from merge_metric.analyses.curves import curves, matching, plot_curves, plot_matching
from merge_metric.analyses.hardest import hardest, plot_hardest
from merge_metric.analyses.sensitivity import fooling, plot_fooling
from merge_metric.analyses.variant_groups import classes, plot_classes
from merge_metric.frame.joined import Frame
from merge_metric.seed_variant_accuracy.figures import is_undetermined
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.tables import Table
from merge_metric.tables.plots import PALETTE, save

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def runs() -> list[Frame]:
    rng = random.Random(1)
    result = []
    for source in ("snli", "mnli-m"):
        rows = random_dataset(rng, seeds=40)
        result += [
            run(answered(rows, rng, skill), m, source) for m, skill in (("a", 0.5), ("b", 0.8))
        ]
    return result


def lines(axes: Axes) -> list[np.ndarray[Any, Any]]:
    """Heights of the lines, without dots."""
    solid = (line for line in axes.get_lines() if line.get_linestyle() != "None")
    return [np.asarray(line.get_ydata(), float) for line in solid]


def drawn(figure: Figure) -> Figure:
    figure.savefig(io.BytesIO(), format="png", dpi=30)
    return figure


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_curves_are_drawn_as_steps_with_a_dot_at_mc(runs: list[Frame]) -> None:
    table = curves(given(*runs), settings=Settings(n_bootstrap=50))
    figure = drawn(plot_curves(table))
    assert [axes.get_title() for axes in figure.axes] == ["snli", "mnli-m"]
    for axes in figure.axes:
        rows = [row for row in table.rows if row["config"] == axes.get_title()]
        assert [list(y) for y in lines(axes)] == [row["curve"] for row in rows]
        steps = [line for line in axes.get_lines() if line.get_linestyle() != "None"]
        assert all(line.get_drawstyle() == "steps-pre" for line in steps)
        assert all((line.get_xdata() == np.arange(1, 101)).all() for line in steps)
        dots = [line for line in axes.get_lines() if line.get_linestyle() == "None"]
        assert [(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots] == [
            (row["matching_threshold"], row["seed_accuracy"])
            for row in rows
            if row["model"] != "(mean)"
            and not is_undetermined(row["matching_threshold_low"], row["matching_threshold_high"])
        ]
        assert len(axes.collections) == 2  # the bands
    assert legend(figure) == ["a", "b", "(mean)", "SV = S, at MC"]


def test_the_heat_map_shows_its_numbers(runs: list[Frame]) -> None:
    template = matching(given(*runs[:3]))  # b is not on mnli-m
    values = {"snli": 41.0, "snli_low": 41.0, "snli_high": 45.0}
    values |= {"mnli-m": 1.0, "mnli-m_low": 1.0, "mnli-m_high": 100.0}
    missing = dict.fromkeys(("mnli-m", "mnli-m_low", "mnli-m_high"))
    rows = ({"model": "a", **values}, {"model": "b", **values, "snli": 61.0, **missing})
    table = Table("m", "M", template.columns, rows)
    figure = drawn(plot_matching(table))
    axes = figure.axes[0]
    image = np.ma.filled(axes.images[0].get_array().astype(float), np.nan)
    assert np.array_equal(image, [[41, np.nan], [61, np.nan]], equal_nan=True)
    assert [text.get_text() for text in axes.texts] == ["41", "1–100", "61", "–"]
    low, high = axes.images[0].get_clim()
    assert low <= np.nanmin(image) <= np.nanmax(image) <= high
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_word_classes_are_drawn_in_pairs(runs: list[Frame]) -> None:
    table = classes(given(*runs), settings=Settings(n_bootstrap=0))
    figure = drawn(plot_classes(table))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["a on snli", "a on mnli-m", "b on snli", "b on mnli-m"]
    for axes in figure.axes:
        model, _, config = axes.get_title().partition(" on ")
        rows = [row for row in table.rows if (row["model"], row["config"]) == (model, config)]
        assert [list(y) for y in lines(axes)] == [row["curve"] for row in rows]
        colours = [line.get_color() for line in axes.get_lines()]
        assert colours == [colour for colour in PALETTE[:3] for _ in range(2)]
        assert [line.is_dashed() for line in axes.get_lines()] == [False, True] * 3
        assert f"noun & verb: {rows[0]['n_seeds']} seeds" in axes.texts[0].get_text()
    assert legend(figure)[:2] == ["noun (of noun & verb)", "verb (of noun & verb)"]


def test_hardest_seeds_are_drawn_from_above() -> None:
    rng = random.Random(2)
    rows = random_dataset(rng, seeds=30)
    frames = [run(answered(rows, rng, 0.2), model) for model in "abc"]
    some = given(*frames, of_configs={"snli": seeds_table(rows)})
    table = hardest(some, top=9)
    (axes,) = drawn(plot_hardest(table)).axes
    *models, mean = axes.get_lines()
    for line, model in zip(models, "abc", strict=True):
        assert list(line.get_xdata()) == [row["by_model"][model] for row in table.rows]
    assert list(mean.get_xdata()) == [row["variants_right"] for row in table.rows]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [row["seed_id"] for row in table.rows]
    assert axes.yaxis_inverted()
    drawn(plot_hardest(hardest(some)))


@pytest.mark.slow
def test_legends_stay_inside_the_figure() -> None:
    rng = random.Random(4)
    for sources in (["snli"], ["snli", "mnli-m", "mnli-mm"]):
        rows = random_dataset(rng, seeds=4)
        names = [f"organisation/some-large-model-{n}-snli" for n in range(19)]
        figure = drawn(
            plot_curves(curves(given(*(run(rows, n, s) for s in sources for n in names))))
        )
        box = figure.legends[0].get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
        assert all(axes.get_position().height > 0.2 for axes in figure.axes)


@pytest.fixture(scope="module")
def figure(runs: list[Frame]) -> Callable[[], Figure]:
    table = matching(given(*runs))
    return lambda: plot_matching(table)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_files_of_plots(figure: Callable[[], Figure], suffix: str, tmp_path: Path) -> None:
    for name in "ab":
        save(figure(), tmp_path / f"{name}.{suffix}")
    content = (tmp_path / f"a.{suffix}").read_bytes()
    assert content == (tmp_path / f"b.{suffix}").read_bytes()
    if suffix == "svg":
        root = ElementTree.fromstring(content)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("viewBox")
        assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 5
        assert b"<dc:date>" not in content
    elif suffix == "pdf":
        assert b"/FontFile2" in content
        assert b"/Type3" not in content


@pytest.mark.slow
def test_no_pyplot_and_no_settings_are_touched(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from merge_metric.analyses import curves, hardest, overlap, sensitivity, signals, variant_groups
from merge_metric.commands import analyse
from merge_metric.tables import Column, Table, plots
assert not any(name.startswith("matplotlib") for name in sys.modules)
import matplotlib
before = matplotlib.rcParams.copy()  # without finding a backend, which imports pyplot
row = dict(model="a", s=5.0, s_low=5.0, s_high=5.0)
figure = curves.plot_matching(Table("t", "T", (Column("s", "s", "threshold"),), (row,)))
plots.save(figure, Path(sys.argv[1]) / "a.svg")
assert matplotlib.rcParams.copy() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)


CONFIGS = ("snli_paraphrases", "anli-r1_paraphrases", "anli-r2_paraphrases")
RATES = ("relaxed_fooling_rate", "strict_fooling_rate")


def test_strict_bars_lie_within_relaxed_ones() -> None:
    """Three models on three sources, except c, which has only the first source."""
    rng = random.Random(5)
    three_models = list[Frame]()
    for config in CONFIGS:
        problems = random_problems(rng, seeds=25, variants=(2, 6))
        for model, skill in (("a", 0.6), ("b", 0.8), ("c", 0.9)):
            if model != "c" or config == CONFIGS[0]:
                rows = answered(problems, rng, skill)
                three_models.append(run(rows, model, config, subsamples=False))
    table = fooling(given(*three_models), settings=Settings(n_bootstrap=30))
    figure = drawn(plot_fooling(table))
    assert [axes.get_title() for axes in figure.axes] == list(CONFIGS)
    for axes in figure.axes:
        rows = [r for r in table.rows if r["config"] == axes.get_title() and not r["averaged"]]
        relaxed, strict = ([bar.get_height() for bar in bars] for bars in axes.containers)
        for result, key in ((relaxed, RATES[0]), (strict, RATES[1])):
            assert result[: len(rows)] == [row[key] for row in rows]
            assert all(np.isnan(result[len(rows) :]))
        for inner, outer in zip(axes.containers[1], axes.containers[0], strict=True):
            assert (inner.get_x(), inner.get_width()) == (outer.get_x(), outer.get_width())
        segments = [s for lines in axes.collections for s in lines.get_segments()]  # type: ignore[attr-defined]
        ends = [sorted(segment[:, 1].tolist()) for segment in segments]
        assert ends == [pytest.approx(row[f"{key}_ci"]) for key in RATES for row in rows]
        assert axes.get_ylim()[1] >= max(end for _, end in ends)
    ticks = figure.axes[-1].get_xticklabels()
    assert [label.get_text() for label in ticks] == ["a", "b", "c"]
    assert legend(figure) == ["changed (r_r)", "to the opposite (r_s)"]
    figure = drawn(plot_fooling(fooling(given(*three_models), settings=Settings(n_bootstrap=0))))
    assert not any(len(lines.get_segments()) for a in figure.axes for lines in a.collections)  # type: ignore[attr-defined]
