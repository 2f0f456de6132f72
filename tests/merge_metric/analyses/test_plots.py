import io
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from helpers.analysed import answered, random_dataset, run, seeds_table
from helpers.metric_oracle import columns, problems, random_problems
from helpers.sensitivity_data import run_with_probabilities
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from merge_metric.analyses.accuracy import (
    accuracy,
    first_answers,
    plot_accuracy,
    plot_first_answers,
)
from merge_metric.analyses.contrasts import plot_contrasts
from merge_metric.analyses.curves import (
    ablations,
    curves,
    matching,
    plot_curves,
    plot_matching,
)
from merge_metric.analyses.hardest import hardest, plot_hardest
from merge_metric.analyses.overlap import overlap, plot_overlap
from merge_metric.analyses.sensitivity import (
    Size,
    confidence,
    fooling_by_size,
    fooling_rates,
    plot_confidence,
    plot_fooling,
    plot_shift,
    plot_sizes,
    shift,
    short,
)
from merge_metric.analyses.variant_groups import plot_source_mlms, source_mlms, word_classes
from merge_metric.analyses.variant_rows import VariantRows
from merge_metric.runs.run import Run
from merge_metric.seed_variant_accuracy.figures import is_undetermined
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.tables import Table
from merge_metric.tables.plots import (
    DASHES,
    PALETTE,
    check_output,
    line_style,
    percent_axis,
    row_of_panels,
    save,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    rng = random.Random(1)
    found = []
    for source in ("snli", "mnli-m"):
        rows = random_dataset(rng, seeds=40)
        found += [
            run(answered(rows, rng, skill), m, source) for m, skill in (("a", 0.5), ("b", 0.8))
        ]
    return found


def lines(axes: Axes) -> list[np.ndarray[Any, Any]]:
    """Heights of the lines, without dots."""
    solid = (line for line in axes.get_lines() if line.get_linestyle() != "None")
    return [np.asarray(line.get_ydata(), float) for line in solid]


def drawn(figure: Figure) -> Figure:
    figure.savefig(io.BytesIO(), format="png", dpi=30)
    return figure


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def bar_heights(axes: Axes) -> list[list[float]]:
    return [[bar.get_height() for bar in series] for series in axes.containers]


def test_curves_are_drawn_as_steps_with_a_dot_at_mc(runs: list[Run]) -> None:
    table = curves(runs, Settings(n_bootstrap=50))
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


def test_the_heat_map_shows_its_numbers(runs: list[Run]) -> None:
    template = matching(runs[:3])  # b is not on mnli-m
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


def test_numbers_in_the_heat_map_can_be_read() -> None:
    """Numbers are black or white, with a contrast to their cells of at least 4.5 to 1 (WCAG)."""
    rows = tuple(
        {"model": str(n), **dict.fromkeys(("snli", "snli_low", "snli_high"), float(n))}
        for n in range(1, 101, 3)
    )
    template = matching([run(random_dataset(random.Random(0), seeds=5))])
    axes = drawn(plot_matching(Table("m", "M", template.columns, rows))).axes[0]
    image = axes.images[0]
    for row, text in zip(rows, axes.texts, strict=True):
        ground = luminance(image.to_rgba(row["snli"])[:3])
        ink = luminance(to_rgb(text.get_color()))
        assert (max(ground, ink) + 0.05) / (min(ground, ink) + 0.05) >= 4.5, row


def luminance(rgb: tuple[float, ...]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_accuracy_bars(runs: list[Run]) -> None:
    """Bars are of seeds and variants, and of test problems if known."""
    table = accuracy(runs)
    figure = drawn(plot_accuracy(table))
    assert legend(figure) == ["seeds", "variants"]
    for axes in figure.axes:
        rows = [row for row in table.rows if row["config"] == axes.get_title()]
        assert bar_heights(axes) == [
            [row[key] for row in rows] for key in ("seed_accuracy", "variant_accuracy")
        ]
    answers = {f"snli:{n}": n % 2 == 0 for n in range(99)}
    seeds = {str(seed): True for each in runs for seed in each.counts.seed_ids}
    named = [run_ for run_ in runs if run_.config == "snli"]
    table = accuracy(
        [Run(r.model, "s", r.counts, r.answers) for r in named],
        {"a": {**seeds, **{f"s:x{k}": v for k, v in answers.items()}}},
    )
    (axes,) = drawn(plot_accuracy(table)).axes
    first, *_ = bar_heights(axes)
    assert first[0] == table.rows[0]["test_accuracy"]
    assert np.isnan(first[1])
    assert legend(axes.figure) == ["test problems", "seeds", "variants"]


def test_first_answers_bars(runs: list[Run]) -> None:
    table = first_answers(runs)
    figure = drawn(plot_first_answers(table))
    for axes in figure.axes:
        rows = [row for row in table.rows if row["config"] == axes.get_title()]
        assert bar_heights(axes) == [
            [row[f"variant_accuracy_{which}"] for row in rows] for which in ("right", "wrong")
        ]
    assert [label.get_text() for label in figure.axes[-1].get_xticklabels()] == ["a", "b"]


def test_bars_stand_at_their_model(runs: list[Run]) -> None:
    table = first_answers([runs[0], *runs[2:]])  # b is not on snli
    top, bottom = drawn(plot_first_answers(table)).axes
    assert [bar.get_x() for bar in top.patches] == [bar.get_x() for bar in bottom.patches]
    assert [np.isnan(height) for height in bar_heights(top)[0]] == [False, True]
    assert bar_heights(bottom)[0] == [
        row["variant_accuracy_right"] for row in table.rows if row["config"] == "mnli-m"
    ]


def test_word_classes_are_drawn_in_pairs(runs: list[Run]) -> None:
    table = word_classes(runs, Settings(n_bootstrap=0))
    figure = drawn(plot_contrasts(table))
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


def test_source_mlms_are_drawn(runs: list[Run]) -> None:
    bert = {"bert": "equiv", "bert-large": "size"}
    table = source_mlms(runs[:1], {"a": bert}, Settings(n_bootstrap=0))
    matched, every = drawn(plot_source_mlms(table)).axes
    titles = [axes.get_title() for axes in (matched, every)]
    assert titles == ["a on snli, equally many", "a on snli, all"]
    for axes, rows in ((matched, table.rows[:4]), (every, table.rows[4:])):
        assert [list(y) for y in lines(axes)] == [row["curve"] for row in rows]
    axes = matched
    assert legend(axes.figure) == [row["group"] for row in table.rows[:4]]
    assert len({to_hex(line.get_color()) for line in axes.get_lines()}) == 4
    assert len({str(line._dash_pattern) for line in axes.get_lines()}) == 4  # type: ignore[attr-defined]
    assert axes.texts[0].get_text() == f"{table.rows[0]['n_seeds']} seeds"


def test_ablations_are_drawn(runs: list[Run]) -> None:
    some = [
        Run(r.model, r.config, r.counts, r.answers, dataset=name)
        for name in ("all", "union")
        for r in runs[:2]
    ]
    table = ablations(some)
    (axes,) = drawn(plot_curves(table)).axes
    assert [list(y) for y in lines(axes)] == [row["curve"] for row in table.rows]
    assert legend(axes.figure) == ["all", "union"]


def test_hardest_seeds_are_drawn_from_above() -> None:
    rng = random.Random(2)
    rows = random_dataset(rng, seeds=30)
    some = [run(answered(rows, rng, 0.2), model) for model in "abc"]
    table = hardest(some, {"snli": seeds_table(rows)}, top=9)
    (axes,) = drawn(plot_hardest(table)).axes
    *models, mean = axes.get_lines()
    for line, model in zip(models, "abc", strict=True):
        assert list(line.get_xdata()) == [row["by_model"][model] for row in table.rows]
    assert list(mean.get_xdata()) == [row["variants_right"] for row in table.rows]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [row["seed_id"] for row in table.rows]
    assert axes.yaxis_inverted()
    drawn(plot_hardest(hardest(some, {"snli": seeds_table(rows)}, top=None)))


@pytest.mark.slow
def test_legends_stay_inside_the_figure() -> None:
    rng = random.Random(4)
    for sources in (["snli"], ["snli", "mnli-m", "mnli-mm"]):
        rows = random_dataset(rng, seeds=4)
        names = [f"organisation/some-large-model-{n}-snli" for n in range(19)]
        figure = drawn(plot_curves(curves(run(rows, n, s) for s in sources for n in names)))
        box = figure.legends[0].get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
        assert all(axes.get_position().height > 0.2 for axes in figure.axes)


def test_lines_can_be_told_apart() -> None:
    """28 lines look different; neighbouring ones differ in dashes, for readers in grey."""
    looks = [(style["color"], style["linestyle"]) for style in map(line_style, range(28))]
    assert len(set(looks)) == 28
    assert all(one != other for (_, one), (_, other) in pairwise(looks))
    assert {dashes for _, dashes in looks} == set(DASHES)


def test_colours_can_be_seen_on_white() -> None:
    """Contrasts are at least 1.9 to 1; the lightest colours always have hatching or dashes."""
    for colour in PALETTE:
        assert 1.05 / (luminance(to_rgb(colour)) + 0.05) >= 1.9


def test_a_plot_of_one_panel_is_as_wide_as_a_column(runs: list[Run]) -> None:
    widths = {1: 3.3, 2: 6.6, 3: 6.9, 7: 6.9}
    for number, width in widths.items():
        figure, axes = row_of_panels(number)
        assert figure.get_figwidth() == pytest.approx(width)
        assert len(figure.axes) == len(axes) == number
        assert len({round(each.get_position().y0, 3) for each in axes}) == -(-number // 3)
    assert plot_curves(curves(runs[:1])).get_figwidth() == pytest.approx(3.3)


def test_colours_differ_for_every_kind_of_colour_vision() -> None:
    """CIELAB distances are at least 10, also without one kind of cone (Machado et al. 2009)."""
    full = np.eye(3)
    protan = np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    )  # fmt: skip
    deutan = np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    )  # fmt: skip
    tritan = np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    )  # fmt: skip
    for seen in (full, protan, deutan, tritan):
        colours = [lab(seen, to_rgb(colour)) for colour in PALETTE]
        distances = [float(np.linalg.norm(a - b)) for a, b in combinations(colours, 2)]
        assert min(distances) >= 10


def lab(seen: np.ndarray[Any, Any], rgb: tuple[float, ...]) -> np.ndarray[Any, Any]:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    red, green, blue = np.clip(seen @ np.array(linear), 0, 1)
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue
    z = (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.fixture(scope="module")
def figure(runs: list[Run]) -> Callable[[], Figure]:
    table = matching(runs)
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


def test_other_formats_are_refused(figure: Callable[[], Figure], tmp_path: Path) -> None:
    for name in ("plot.jpg", "plot"):
        with pytest.raises(ValueError, match=r"expected a plot's file to end in \.png, \.svg"):
            check_output(tmp_path / name)
        with pytest.raises(ValueError, match="expected a plot's file"):
            save(figure(), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_no_pyplot_and_no_settings_are_touched(tmp_path: Path) -> None:
    code = """
import sys
from merge_metric.analyses import accuracy, contrasts, curves, hardest, variant_groups
from merge_metric.analyses import measures, overlap, sensitivity, signals
from merge_metric import tables
from merge_metric.tables import plots as drawing
from merge_metric.commands import analyse as cli
assert not any(name.startswith("matplotlib") for name in sys.modules)
import matplotlib
before = matplotlib.rcParams.copy()  # without finding a backend, which imports pyplot
row = dict(model="a", s=5.0, s_low=5.0, s_high=5.0)
table = tables.Table("t", "T", (tables.Column("s", "s", "threshold"),), (row,))
figure = curves.plot_matching(table)
drawing.save(figure, __import__("pathlib").Path(sys.argv[1]) / "a.svg")
assert matplotlib.rcParams.copy() == before
print("matplotlib.pyplot" in sys.modules)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr


CONFIGS = ("snli_paraphrases", "anli-r1_paraphrases", "anli-r2_paraphrases")
RATES = ("relaxed_fooling_rate", "strict_fooling_rate")


@pytest.fixture(scope="module")
def three_models() -> list[Run]:
    """Three models on three sources, except c, which has only the first source."""
    rng = random.Random(5)
    found = []
    for config in CONFIGS:
        problems = random_problems(rng, seeds=25, variants=(2, 6))
        for model, skill in (("a", 0.6), ("b", 0.8), ("c", 0.9)):
            if model != "c" or config == CONFIGS[0]:
                rows = answered(problems, rng, skill)
                found.append(run_with_probabilities(rows, columns(rows), model, config)[0])
    return found


def names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels()]


def test_strict_bars_lie_within_relaxed_ones(three_models: list[Run]) -> None:
    table = fooling_rates(three_models, settings=Settings(n_bootstrap=30))
    figure = drawn(plot_fooling(table))
    assert [axes.get_title() for axes in figure.axes] == list(CONFIGS)
    for axes in figure.axes:
        rows = [r for r in table.rows if r["config"] == axes.get_title() and not r["averaged"]]
        relaxed, strict = bar_heights(axes)
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
    figure = drawn(plot_fooling(fooling_rates(three_models, settings=Settings(n_bootstrap=0))))
    assert not any(len(lines.get_segments()) for a in figure.axes for lines in a.collections)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_sizes_are_lines_per_family(three_models: list[Run]) -> None:
    size_of = {"a": Size(10**8, "X"), "b": Size(10**7, "X"), "c": Size(10**9, "Y")}
    table = fooling_by_size(three_models, size_of, Settings(n_bootstrap=0))
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


def test_one_model_of_one_size(three_models: list[Run]) -> None:
    table = fooling_by_size(three_models[:1], {"a": Size(5, "X")}, Settings(n_bootstrap=0))
    drawn(plot_sizes(table))
    rows = tuple({**row, RATES[0]: None, RATES[1]: None} for row in table.rows)
    drawn(plot_sizes(replace(table, rows=rows)))
    assert [short(n) for n in (999, 999_400, 999_999)] == ["999", "999K", "1M"]


def test_shift_is_drawn_over_sources(three_models: list[Run]) -> None:
    table = shift(three_models)
    jsd, ks = drawn(plot_shift(table)).axes
    averages = {row["config"]: row for row in table.rows if row["averaged"]}
    assert names(jsd) == names(ks) == list(averages) == ["snli_paraphrases", "anli_paraphrases"]
    for axes, key in ((jsd, "jsd"), (ks, "ks")):
        assert bar_heights(axes) == [
            [row[f"{key}_{group}"] for row in averages.values()]
            for group in ("unchanged", "changed")
        ]
        assert axes.get_ylim() == (0, 1)
    assert legend(jsd.figure) == ["prediction unchanged", "prediction changed"]  # type: ignore[arg-type]


def test_confidence_is_drawn_over_sources(three_models: list[Run]) -> None:
    table = confidence(three_models)
    (axes,) = drawn(plot_confidence(table)).axes
    averages = [row for row in table.rows if row["averaged"]]
    keys = ("sigma_seeds", "sigma_unchanged", "sigma_changed")
    assert bar_heights(axes) == [[row[key] for row in averages] for key in keys]
    assert axes.get_lines()[0].get_ydata()[0] == pytest.approx(2**0.5 / 3)  # type: ignore[index]
    (axes,) = drawn(plot_confidence(confidence(three_models[:1]))).axes
    assert bar_heights(axes) == [[table.rows[0][key]] for key in keys]


def some_pairs(with_predictions: bool) -> list[VariantRows]:
    texts = {
        "seed_hypothesis": ["A dog.", "A cat."], "hypothesis": ["A dog!", "It is a cat."],
        "changed": [True, False], "seed_right": [True, True],
    }  # fmt: skip
    answers = run(problems("E E E"), "m") if with_predictions else None
    return [VariantRows(config, "d", pa.table(texts), run=answers) for config in CONFIGS[1:]]


@pytest.mark.slow
def test_overlap_is_drawn_over_sources() -> None:
    """Rounds of ANLI are separate, as in the table; distances are drawn if known."""

    def encode(texts: Any) -> Any:
        return np.array([[len(text), text.count("a") + 1] for text in texts], float)

    table = overlap(some_pairs(with_predictions=False))
    tokens, fuzzy = drawn(plot_overlap(table)).axes
    assert names(tokens) == list(CONFIGS[1:])
    lengths, matches = ("length", "length_variant", "overlap"), ("fuzzy_sort", "fuzzy_set")
    for axes, keys in ((tokens, lengths), (fuzzy, matches)):
        assert bar_heights(axes) == [[row[key] for row in table.rows] for key in keys]
    *_, distances = drawn(plot_overlap(overlap(some_pairs(False), encode=encode))).axes
    assert len(bar_heights(distances)) == 1
    table = overlap(some_pairs(with_predictions=True), encode=encode)
    *_, distances = drawn(plot_overlap(table)).axes
    assert bar_heights(distances) == [
        [row[key] for row in table.rows]
        for key in ("distance", "distance_unchanged", "distance_changed")
    ]


def test_scales_end_above_the_highest() -> None:
    tops = {0.0: 0.1, 0.05: 0.1, 0.1: 0.2, 0.31: 0.4, 0.97: 1.0, 1.0: 1.0}
    for highest, top in tops.items():
        axes = Figure().subplots()
        percent_axis(axes, highest)
        assert axes.get_ylim() == (0, pytest.approx(top))
