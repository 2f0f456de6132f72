"""A result of `score` → tables, curve, download and style of the page."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from typing import Any, Final

import pandas as pd  # type: ignore[import-untyped]

from .figures import CATALOGUE, FEW_SEEDS, MATCHING_RANGE, Figure, Unit, is_undetermined, span
from .formatting import show_value

Result = dict[str, Any]

STYLE: Final = """
.sva-note {
  border-left: 4px solid var(--color-accent); padding: 8px 12px;
  background: var(--background-fill-secondary);
}
.sva-error { border-color: #d55e00; }
#sva-message:not(:has(.sva-note)) { display: none; }
[id^="sva-"] > .html-container.html-container { padding: 0; }
.sva-scroll { container-type: inline-size; overflow-x: auto; margin-bottom: 12px; }
.sva-scroll table.sva-table {
  width: 100%; margin: 0; border: 0; border-collapse: collapse;
  font-variant-numeric: tabular-nums;
}
.sva-table caption { text-align: left; font-weight: 600; padding: 0 0 6px; }
.sva-scroll .sva-table tr {
  padding: 0; border: 0; border-bottom: 1px solid var(--border-color-primary);
}
.sva-scroll .sva-table tr :is(th, td) {
  border: 0; padding: 6px 0 6px 12px; text-align: right; vertical-align: baseline;
  font-weight: 400;
}
.sva-scroll .sva-table tr > :first-child { padding-left: 0; text-align: left; }
.sva-scroll .sva-table tr .meaning { text-align: left; font-size: 0.85em; }
.sva-table :is(td, .interval) { white-space: nowrap; }
.sva-table td.meaning { white-space: normal; }
.sva-scroll .sva-table thead tr th { font-size: 0.85em; vertical-align: bottom; }
.sva-table :is(thead th, .interval, .meaning) { color: var(--body-text-color-subdued); }
.sva-scroll .sva-table .headline :is(th, .value) { font-weight: 600; }
.sva-table .headline .value { font-size: 1.25em; }
.sva-table.labels td .interval { display: block; font-size: 0.8em; }
@container (max-width: 520px) {
  .sva-table.figures thead { display: none; }
  .sva-table.figures tr { display: grid; grid-template-columns: 1fr 6.4em 7.8em; }
  .sva-scroll .sva-table.figures tr .meaning { grid-column: 1 / -1; padding: 0 0 6px; }
}
.sva-marks { font-size: 0.85em; margin: 0; }
.sva-download { margin: 0; padding: 0; font-weight: 600; text-decoration: underline; }
"""


def show(value: float, unit: Unit) -> str:
    """Show a value with its unit; thresholds are in percent already, and mostly whole.

    >>> show(2 / 3, "share"), show(-1 / 3, "points"), show(-0.0, "points")
    ('66.7 %', '−33.3 points', '0.0 points')
    >>> show(51.0, "threshold"), show(51.25, "threshold")
    ('51 %', '51.2 %')
    """
    text = show_value(value, unit, signed=False)
    if unit == "threshold":
        text = text.removesuffix(".0")
    return f"{text} {'points' if unit == 'points' else '%'}"


SHOWN: Final = (
    "seed_accuracy",
    "seed_variant_accuracy",
    "matching_threshold",
    "holding_threshold",
    "qt_gap",
    "variant_accuracy",
    "relaxed_fooling_rate",
    "strict_fooling_rate",
)
"""Keys of the figures in both tables, in their order."""

KIN: Final = (
    "sv_curve_area",
    "core_index",
    "contrast_consistency",
    "agreement",
    "agreement_gated_accuracy",
    "stable_but_wrong",
)
"""Keys of the figures that only the first table has, below."""

HEADLINE: Final = frozenset({"seed_accuracy", "seed_variant_accuracy", "matching_threshold"})

DISTRIBUTIONS: Final = (
    ("Jensen–Shannon divergence from the seed, bits", None, "jsd_unchanged", "jsd_changed"),
    ("Kolmogorov–Smirnov distance from the seed", None, "ks_unchanged", "ks_changed"),
    (
        "Spread σ of the label probabilities",
        "sigma_seeds",
        "sigma_unchanged",
        "sigma_changed",
    ),
)
"""Name, and the keys for seeds, unchanged and changed variants."""


def summary(name: str, result: Result) -> str:
    """Say in one line what was computed from what."""
    n_seeds, n_variants = result["n_seeds"], result["n_variants"]
    seeds, variants = (
        f"{n:,} {noun}{'' if n == 1 else 's'}"
        for n, noun in ((n_seeds, "seed"), (n_variants, "variant"))
    )
    line = f"From {name}: {seeds} with {variants}."
    if "seed_accuracy_ci" in result:
        line += " Intervals: 95 %, bootstrap over seeds."
        if n_seeds < FEW_SEEDS:
            line += " With so few seeds they are coarse."
    return f"<p>{html.escape(line)}</p>"


def figures_table(result: Result, correctness_threshold: int) -> str:
    """Show all figures with their intervals and meanings."""
    intervals = "seed_accuracy_ci" in result
    rows = "".join(
        f"<tr{' class=headline' if figure.key in HEADLINE else ''} data-figure={figure.key}>"
        f"<th scope=row>{_name(figure)}</th>"
        f"<td class=value>{_value(result, figure)}</td>"
        + (f"<td class=interval>{_interval(result, figure)}</td>" if intervals else "")
        + f"<td class=meaning>{_meaning(result, figure)}</td></tr>"
        for figure in _figures(correctness_threshold, (*SHOWN, *KIN))
    )
    head = "<th scope=col>Figure</th><th scope=col class=value>Value</th>"
    head += "<th scope=col class=interval>95 % interval</th>" if intervals else ""
    head += "<th scope=col class=meaning>Meaning</th>"
    return _table("figures", "Figures", head, rows)


def labels_table(result: Result, correctness_threshold: int) -> str:
    """Show the figures for the seeds of each gold label."""
    shown = [f for f in _figures(correctness_threshold) if f.key != "holding_threshold"]
    names = ("Gold label", "Seeds", "Variants", *map(_name, shown))
    head = "".join(f"<th scope=col>{name}</th>" for name in names)
    rows = "".join(
        f"<tr><th scope=row>{html.escape(label)}</th>"
        f"<td>{group['n_seeds']:,}</td><td>{group['n_variants']:,}</td>"
        + "".join(
            f"<td>{_value(group, figure)}"
            f"<span class=interval>{_interval(group, figure)}</span></td>"
            for figure in shown
        )
        + "</tr>"
        for label, group in result["by_label"].items()
    )
    return _table("labels", "By gold label", head, rows)


def distributions_table(result: Result) -> str:
    """Show the figures of probabilities; empty where none were given."""
    if "sigma_seeds" not in result:
        return ""
    head = "".join(
        f"<th scope=col>{name}</th>"
        for name in ("Label distributions", "Seeds", "Unchanged variants", "Changed variants")
    )
    rows = "".join(
        f"<tr><th scope=row>{name}</th>"
        + "".join(
            f"<td>{'' if key is None else show_value(result[key], 'fraction')}</td>" for key in keys
        )
        + "</tr>"
        for name, *keys in DISTRIBUTIONS
    )
    caption = "Label probabilities, over the seeds classified right"
    return _table("distributions", caption, head, rows)


def _table(name: str, caption: str, head: str, rows: str) -> str:
    return (
        f"<div class='sva-scroll' tabindex=0><table class='sva-table {name}'>"
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _figures(correctness_threshold: int, keys: Sequence[str] = SHOWN) -> list[Figure]:
    return [CATALOGUE[key].at(correctness_threshold) for key in keys]


def _name(figure: Figure) -> str:
    """Name a figure, with its symbol."""
    symbol = "" if figure.symbol in figure.name.split() else figure.symbol
    letter, _, index = symbol.partition("_")
    return f"{figure.name} {letter}{index and f'<sub>{index}</sub>'}".rstrip()


def _meaning(result: Result, figure: Figure) -> str:
    """Say what a figure means; of MC also whether other thresholds come as close."""
    if figure.key != "matching_threshold":
        return figure.explanation
    low, high = (result[key] for key in MATCHING_RANGE)
    tie = f"{span(low, high)} % come equally close" if low < high else "No other comes as close"
    if is_undetermined(low, high):
        tie = f"Undetermined: {tie}"
    return f"{figure.meaning} {tie} (gap {show(result['matching_gap'], 'points')})."


def _value(values: Result, figure: Figure) -> str:
    value = values[figure.key]
    if value is not None:
        return show(value, figure.unit)
    gated = figure.key == "agreement_gated_accuracy"
    why = "no seed has such an agreement" if gated else "no seed is right"
    return f"<abbr title='undefined: {why}'>–</abbr>"


def _interval(values: Result, figure: Figure) -> str:
    """Show low and high in the unit of the figure, which only the figure itself names."""
    interval = values.get(f"{figure.key}_ci")
    if interval is None:
        return ""
    return " – ".join(show(bound, figure.unit).rsplit(" ", 1)[0] for bound in interval)


def download(result: Result) -> str:
    """Make a link that holds the whole result, so that nothing is kept on the server."""
    text = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    data = base64.b64encode(text.encode()).decode()
    return (
        "<a class=sva-download download=seed_variant_accuracy.json "
        f"href='data:application/json;base64,{data}'>Download all figures (JSON)</a>"
    )


# --- The SV curve ---

AXES: Final = ("correctness threshold, %", "share of seeds, %")
"""Columns of `curve_points`, with `LINE` the name of the line."""
LINE: Final = "line"
COLOURS: Final = {
    "SV": "#2f8fce",
    "95 %": "#8cc4ea",
    "95 % ": "#8cc4ea",
    "S": "#d55e00",
    "MC": "#009e73",
    "CT": "#8a8a8a",
}
"""Line → its colour, on light and dark ground; the two bounds of the interval are two lines."""


def curve_points(result: Result, correctness_threshold: int) -> pd.DataFrame:
    """Make the lines of the plot: the SV curve, its interval, S, MC and the threshold.

    The curve is a step function: the value at CT holds above CT − 1 and up to CT.
    """
    curve, s, mc = result["sv_curve"], result["seed_accuracy"], result["matching_threshold"]
    sides = [side for side in ("accuracy", "low", "high") if side in curve]
    steps = [
        [(x, value) for ct, value in enumerate(curve[side], 1) for x in (ct - 1, ct)]
        for side in sides
    ]
    uprights = [
        [(ct, 0.0), (ct, curve["accuracy"][round(ct) - 1])] for ct in (mc, correctness_threshold)
    ]
    names = list(COLOURS)
    lines = zip(
        (*names[: len(sides)], *names[3:]), (*steps, [(0, s), (100, s)], *uprights), strict=True
    )
    rows = [(x, round(100 * y, 2), name) for name, points in lines for x, y in points]
    return pd.DataFrame(rows, columns=[*AXES, LINE])


def curve_text(result: Result, correctness_threshold: int) -> str:
    """Say what the plot shows, for those who do not see it too."""
    accuracy = result["sv_curve"]["accuracy"]
    return (
        f"<p class=sva-marks>SV accuracy falls from {show(accuracy[0], 'share')} at threshold 1 % "
        f"to {show(accuracy[-1], 'share')} at 100 %; seed accuracy S, "
        f"{show(result['seed_accuracy'], 'share')}; MC, "
        f"{show(result['matching_threshold'], 'threshold')}; chosen threshold "
        f"{correctness_threshold} %: SV {show(accuracy[correctness_threshold - 1], 'share')}.</p>"
    )
