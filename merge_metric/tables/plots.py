"""Style of all plots: sizes for paper columns, colour-blind-safe colours, bars, files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np

from merge_dataset.files import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Figure
    from matplotlib.image import AxesImage

    from merge_metric.tables.table import Row, Table

Rows = TypeVar("Rows", bound=Mapping[str, Any])

PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours without yellow, which is too light for lines on white."""

DASHES: Final = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
"""Line styles, which distinguish lines in greyscale too."""

_BARS: Final = (PALETTE[0], PALETTE[4], PALETTE[2], PALETTE[1], PALETTE[3])
_NESTED: Final = (PALETTE[5], PALETTE[0])
_HATCHES: Final = ("", "////", "....", "xxxx", "----")

FORMATS: Final = (".png", ".svg", ".pdf")

GREY: Final = "#555555"

_MIDDLE: Final = 0.179
"""Luminance with equal contrast to black and white: (L + .05)² = .05 · 1.05."""

COLUMN: Final = 3.3
"""Width of a paper's column in inches."""

PAGE: Final = 6.9
"""Width of two columns and the gap between them, in inches."""

_STYLE: Final[Any] = {  # matplotlib types keys as literals
    "font.size": 8.0,  # so that "small" is 6.7 points
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,  # TrueType, as required by publishers
    "svg.fonttype": "path",
    "svg.hashsalt": "merge-nli",
}


def line_style(number: int) -> dict[str, Any]:
    """Choose colour and dashes of a line by its number; 28 lines are distinct.

    >>> line_style(0)["color"], line_style(7)["color"], line_style(7)["linestyle"] == "-"
    ('#0072B2', '#0072B2', False)
    """
    colour, dashes = PALETTE[number % len(PALETTE)], DASHES[number % len(DASHES)]
    return {"color": colour, "linestyle": dashes, "linewidth": 1.3}


@contextmanager
def paper_style() -> Iterator[None]:
    """Set text and line sizes for papers; use it around drawing and saving."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure without pyplot; sizes in inches, width limited to a page."""
    from matplotlib.figure import Figure

    return Figure(figsize=(min(width, PAGE), height), layout="constrained", dpi=200)


def panels(n_rows: int, n_columns: int, *, share_y: bool = True) -> tuple[Figure, list[list[Axes]]]:
    """Make a figure and its axes, row by row, with shared scales by default."""
    figure = new_figure(COLUMN * n_columns, 2.5 * n_rows)
    axes = figure.subplots(n_rows, n_columns, sharex=True, sharey=share_y, squeeze=False)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize="small")
    return figure, axes.tolist()


def row_of_panels(number: int, *, share_y: bool = True) -> tuple[Figure, list[Axes]]:
    """Make a figure with `number` panels, in rows of at most three."""
    n_columns = number if number <= 3 else 2 if number == 4 else 3
    n_rows = -(-number // n_columns)
    figure, rows = panels(n_rows, n_columns, share_y=share_y)
    axes = [panel for row in rows for panel in row]
    for panel in axes[number:]:
        panel.remove()
    for panel in axes[:number]:  # also if there is a panel below
        panel.tick_params(labelbottom=True)
    return figure, axes[:number]


def label_left(figure: Figure, label: str) -> None:
    """Label the vertical axis of the first panel in each row."""
    for panel in figure.axes:
        spec = panel.get_subplotspec()
        if spec is None or spec.is_first_col():
            panel.set_ylabel(label)


def grid(axes: Axes, which: Literal["x", "y", "both"] = "both") -> None:
    """Draw a light grid behind everything, and only the left and bottom axes."""
    axes.grid(axis=which, color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


def percent_ticks(axis: Axis) -> None:
    """Set ticks for shares, 0–1, in steps of 20 %."""
    axis.set_ticks(np.arange(0, 1.01, 0.2), labels=[str(n) for n in range(0, 101, 20)])


def legend_below(figure: Figure, note: str | None = None) -> None:
    """Draw one legend for all panels, each label once, in the order of drawing."""
    from matplotlib.lines import Line2D

    entries: dict[str, Any] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if note:
        entries[note] = Line2D([], [], marker="o", markersize=4, color=GREY, linestyle="none")
    width, height = figure.get_size_inches()
    columns = max(1, min(len(entries), int(width / (0.65 + 0.056 * max(map(len, entries))))))
    lines = -(-len(entries) // columns)
    figure.set_size_inches(width, height + 0.18 * (lines - 1))  # without shrinking the panels
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize="small",
        handlelength=3,
    )


def luminance(colour: Sequence[float]) -> float:
    """Compute the relative luminance of (red, green, blue), 0–1 each (WCAG 2): 0 black, 1 white.

    >>> round(luminance((0.5, 0.5, 0.5)), 3)
    0.214
    """
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def heat_map(
    axes: Axes,
    values: Sequence[Sequence[float | str | None]],
    limits: tuple[float, float],
    show: str,
) -> AxesImage:
    """Draw rows of numbers on viridis colours between limits; texts and gaps have no colour."""
    from matplotlib import colormaps

    colormap, (low, high) = colormaps["viridis"], limits
    cells = [[v if isinstance(v, float) else np.nan for v in row] for row in values]
    image = axes.imshow(cells, cmap=colormap, vmin=low, vmax=high, aspect="auto")
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if value is None or isinstance(value, str):
                axes.text(x, y, value or "–", ha="center", va="center", color=GREY)
                continue
            bright = luminance(colormap((value - low) / (high - low))) > _MIDDLE
            colour = "black" if bright else "white"
            axes.text(x, y, show.format(value), ha="center", va="center", color=colour)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def grouped(rows: Iterable[Rows], key: str) -> dict[Any, list[Rows]]:
    """Group rows by their value of a key, in order."""
    groups: dict[Any, list[Rows]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def config_panels(
    table: Table, *, stacked: bool = False
) -> tuple[Figure, list[tuple[Axes, list[Row]]]]:
    """Make a figure with a titled panel per configuration; also return these with their rows.

    If `stacked`, each is below the other.
    """
    groups = grouped(table.rows, "config")
    figure, _ = panels(len(groups), 1) if stacked else row_of_panels(len(groups))
    for panel, config in zip(figure.axes, groups, strict=True):
        panel.set_title(config, fontsize="medium")
    return figure, list(zip(figure.axes, groups.values(), strict=True))


def distinct(rows: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    """List the distinct values of a key, in order."""
    return list(dict.fromkeys(row[key] for row in rows))


def require_suffix(path: Path, suffixes: Iterable[str]) -> None:
    """Raise ValueError unless a file has one of some suffixes, which say its format."""
    if path.suffix not in suffixes:
        raise ValueError(
            f"{path}: expected a file whose name ends in {', '.join(suffixes)}, got "
            f"{repr(path.suffix) if path.suffix else 'no suffix'}"
        )


def check_output(path: Path) -> None:
    """Raise, before any work, if a plot cannot be saved to a path, or matplotlib is missing."""
    require_suffix(path, FORMATS)
    import matplotlib  # noqa: F401 - whether it is there


def save(figure: Figure, path: Path) -> None:
    """Write a plot, whole or not at all; the same bytes for the same plot."""
    check_output(path)
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    with atomic(path) as partial, paper_style():
        figure.savefig(partial, format=path.suffix[1:], metadata=undated)


def save_all(figures: Iterable[tuple[str, Figure]], folder: Path) -> list[Path]:
    """Draw named plots one after the other, and save each as PNG, SVG and PDF."""
    files = []
    with paper_style():
        for name, figure in figures:
            for suffix in FORMATS:
                files.append(folder / f"{name}{suffix}")
                save(figure, files[-1])
    return files


def bar_panels(
    table: Table,
    series: Mapping[str, str],
    label: str,
    panel: str = "config",
    at: str = "model",
    *,
    nested: bool = False,
) -> Figure:
    """Draw groups of hatched bars at the values of column `at`; a panel per value of `panel`.

    If `nested`, bars stand within one another, with their intervals side by side.
    """
    groups, places = grouped(table.rows, panel), distinct(table.rows, at)
    figure, column = panels(len(groups), 1)
    n_bars = 1 if nested else len(series)
    width = max(COLUMN, 0.9 + (0.12 + 0.16 * n_bars) * len(places))
    figure.set_size_inches(min(width, PAGE), 2.0 * len(groups) + 0.7)
    tops = [0.0]
    for (axes,), (title, of_panel) in zip(column, groups.items(), strict=True):
        axes.set_title(title, fontsize="medium")
        axes.set_ylabel(label)
        name_bars(axes, places)
        by_place = {row[at]: row for row in of_panel}
        rows = [by_place.get(place, {}) for place in places]
        for number, (name, key) in enumerate(series.items()):
            values = [row.get(key) for row in rows]
            if not nested:
                draw_bars(axes, values, name, number, n_bars)
                continue
            draw_bars(axes, values, name, 0, 1, _NESTED[number:])
            tops += [value or 0.0 for value in values]
            for place, row in enumerate(rows):
                if bounds := row.get(f"{key}_ci"):
                    tops.append(bounds[1])
                    axes.vlines(place + 0.12 - 0.24 * number, *bounds, color="black", linewidth=1)
        axes.set_ylim(0, 1)
        percent_ticks(axes.yaxis)
    if nested:
        percent_axis(figure.axes[0], max(tops))  # whose scale the others share
    legend_below(figure)
    return figure


def percent_axis(axes: Axes, top: float) -> None:
    """Set a vertical scale in percent, up to the next multiple of ten above `top`."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.set_ylim(0, min(1.0, (10 * top // 1 + 1) / 10))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=""))


def bars_by_config(
    rows: Sequence[Row], parts: Mapping[str, Mapping[str, str]], top: float | None = None
) -> Figure:
    """Draw panels of hatched bars at each configuration: label → series, unless it is empty.

    The scale ends at `top`, of labels in percent at 100.
    """
    drawn = {label: series for label, series in parts.items() if series}
    figure, row_of_axes = row_of_panels(len(drawn), share_y=False)
    for axes, (label, series) in zip(row_of_axes, drawn.items(), strict=True):
        for number, (name, key) in enumerate(series.items()):
            draw_bars(axes, [row[key] for row in rows], name, number, len(series))
        name_bars(axes, [row["config"] for row in rows])
        axes.set_ylabel(label)
        if label.endswith("%"):
            percent_axis(axes, 1.0)
        elif top is not None:
            axes.set_ylim(0, top)
        # Each panel has a legend above it, as colours mean something else in another panel.
        place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1)}
        columns = max(1, min(len(series), 45 // max(map(len, series))))
        axes.legend(**place, ncols=columns, frameon=False, fontsize="small")
    return figure


def name_bars(axes: Axes, names: Sequence[str]) -> None:
    """Label bars, or groups of bars, below a panel."""
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize="small")
    axes.set_xlim(-0.6, len(names) - 0.4)
    grid(axes, "y")


def draw_bars(
    axes: Axes,
    values: Sequence[float | None],
    name: str,
    number: int,
    of: int,
    colours: Sequence[str] = _BARS,
) -> None:
    """Draw series `number` of `of`; no bar for a missing value."""
    offset = (number - (of - 1) / 2) * 0.8 / of
    axes.bar(
        [place + offset for place in range(len(values))],
        [np.nan if value is None else value for value in values],
        width=0.8 / of,
        label=name,
        color=colours[number % len(colours)],
        hatch=_HATCHES[(number + number // len(colours)) % len(_HATCHES)],
        edgecolor="white",
        linewidth=0.5,
    )
