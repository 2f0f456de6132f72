"""A result of `score` → tables, download and style of the page, as HTML."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Result = dict[str, Any]

FEW_SEEDS: Final = 30
"""Below this many seeds the page says that bootstrap intervals are coarse."""

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
.sva-curve { margin: 0; --sv: #0072b2; --seeds: #d55e00; --mc: #111; }
.dark .sva-curve { --sv: #56b4e9; --seeds: #e69f00; --mc: #fff; }
.sva-curve svg text { font-size: 13px; fill: var(--body-text-color); }
@media (max-width: 640px) { .sva-curve svg text { font-size: 16px; } }
.sva-curve .grid { stroke: var(--border-color-primary); stroke-width: 1; }
.sva-curve .sv { stroke: var(--sv); stroke-width: 2.5; fill: none; }
.sva-curve .band { fill: var(--sv); opacity: 0.18; }
.sva-curve .seeds { stroke: var(--seeds); stroke-width: 2; stroke-dasharray: 8 4; }
.sva-curve .chosen { stroke: var(--body-text-color); stroke-width: 1.5; stroke-dasharray: 2 3; }
.sva-curve .mc { fill: var(--mc); stroke: var(--background-fill-primary); }
.sva-curve .hint { fill: transparent; }
.sva-curve .hint:hover { fill: var(--body-text-color); opacity: 0.1; }
.sva-curve figcaption { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 0.85em; }
.sva-curve figcaption span { display: inline-flex; align-items: center; gap: 6px; }
.sva-curve figcaption svg { width: 28px; height: 14px; flex: none; }
.sva-download { margin: 0; padding: 0; font-weight: 600; text-decoration: underline; }
"""


def percent(share: float) -> str:
    """A share as percent.

    >>> percent(2 / 3)
    '66.7 %'
    """
    return f"{100 * share:.1f} %"


def points(difference: float) -> str:
    """A difference of two shares in percentage points.

    >>> points(-1 / 3), points(-0.0)
    ('−33.3 points', '0.0 points')
    """
    return f"{100 * difference:z.1f} points".replace("-", "−")


def threshold(value: float) -> str:
    """A correctness threshold, already in percent.

    >>> threshold(51.0), threshold(51.25)
    ('51 %', '51.2 %')
    """
    return f"{value:.1f} %".replace(".0 ", " ")


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the result and how to present it."""

    key: str
    name: str
    show: Callable[[float], str]
    meaning: str
    """Like the name, it may hold {ct}; that of MC holds {tie}."""


FIGURES: Final = (
    Figure(
        "seed_accuracy",
        "Seed accuracy S",
        percent,
        "Share of the seeds themselves that are classified as their gold label.",
    ),
    Figure(
        "seed_variant_accuracy",
        "Seed-variant accuracy SV@{ct}",
        percent,
        "Share of seeds of which at least {ct} % of the variants are classified as gold.",
    ),
    Figure(
        "matching_threshold",
        "Matching threshold MC",
        threshold,
        "Where the SV curve comes closest to S; higher is more consistent. {tie}",
    ),
    Figure(
        "holding_threshold",
        "Holding threshold",
        threshold,
        "The largest threshold at which SV still reaches S; 0 if none does.",
    ),
    Figure(
        "qt_gap",
        "QT gap, S − SV@90",
        points,
        "What is lost when a seed counts only with nine in ten of its variants.",
    ),
    Figure(
        "variant_accuracy",
        "Variant accuracy",
        percent,
        "Share of single variants classified as gold.",
    ),
    Figure(
        "relaxed_fooling_rate",
        "Relaxed fooling rate",
        percent,
        "Of the seeds classified right, those with a variant that changes the prediction.",
    ),
    Figure(
        "strict_fooling_rate",
        "Strict fooling rate",
        percent,
        "The same, where it becomes the opposite (entailment ↔ contradiction; "
        "for neutral seeds any change).",
    ),
)
HEADLINE: Final = frozenset({"seed_accuracy", "seed_variant_accuracy", "matching_threshold"})

DISTRIBUTIONS: Final = (
    ("Jensen–Shannon divergence from the seed, bits", None, "jsd_unchanged", "jsd_changed"),
    ("Kolmogorov–Smirnov statistic", None, "ks_unchanged", "ks_changed"),
    ("Kolmogorov–Smirnov p-value", None, "ks_unchanged_p_value", "ks_changed_p_value"),
    (
        "Spread σ of the label probabilities",
        "sigma_seeds",
        "sigma_unchanged",
        "sigma_changed",
    ),
)
"""Name, and the keys for seeds, unchanged and changed variants."""


def summary(name: str, result: Result) -> str:
    """One line on what was computed from what."""
    n_seeds, n_variants = result["n_seeds"], result["n_variants"]
    line = f"From {name}: {_count(n_seeds, 'seed')} with {_count(n_variants, 'variant')}."
    if "seed_accuracy_ci" in result:
        line += " Intervals: 95 %, bootstrap over seeds."
        if n_seeds < FEW_SEEDS:
            line += " With so few seeds they are coarse."
    return f"<p>{html.escape(line)}</p>"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def figures_table(result: Result, correctness_threshold: int) -> str:
    """All figures with their intervals and what they mean."""
    intervals = "seed_accuracy_ci" in result
    low, high = result["matching_threshold_low"], result["matching_threshold_high"]
    tie = f"{low:g}–{high:g} % come equally close" if low < high else "No other comes as close"
    words = {"ct": correctness_threshold, "tie": f"{tie} (gap {points(result['matching_gap'])})."}
    rows = "".join(
        f"<tr{' class=headline' if figure.key in HEADLINE else ''} data-figure={figure.key}>"
        f"<th scope=row>{figure.name.format(**words)}</th>"
        f"<td class=value>{_value(result, figure)}</td>"
        + (f"<td class=interval>{_interval(result, figure)}</td>" if intervals else "")
        + f"<td class=meaning>{figure.meaning.format(**words)}</td></tr>"
        for figure in FIGURES
    )
    head = "<th scope=col>Figure</th><th scope=col class=value>Value</th>"
    head += "<th scope=col class=interval>95 % interval</th>" if intervals else ""
    head += "<th scope=col class=meaning>Meaning</th>"
    return _table("figures", "Figures", head, rows)


def labels_table(result: Result, correctness_threshold: int) -> str:
    """The figures for the seeds of each gold label."""
    shown = [figure for figure in FIGURES if figure.key != "holding_threshold"]
    names = [figure.name.format(ct=correctness_threshold) for figure in shown]
    head = "".join(
        f"<th scope=col>{name}</th>" for name in ("Gold label", "Seeds", "Variants", *names)
    )
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
    """What the probabilities say; empty where none were given."""
    if "sigma_seeds" not in result:
        return ""
    head = "".join(
        f"<th scope=col>{name}</th>"
        for name in ("Label distributions", "Seeds", "Unchanged variants", "Changed variants")
    )
    rows = "".join(
        f"<tr><th scope=row>{name}</th>"
        + "".join(f"<td>{'' if key is None else _number(result[key])}</td>" for key in keys)
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


def _value(values: Result, figure: Figure) -> str:
    value = values[figure.key]
    return (
        "<abbr title='undefined: no seed is right'>–</abbr>"
        if value is None
        else figure.show(value)
    )


def _interval(values: Result, figure: Figure) -> str:
    """Low and high in the unit of the figure, which only the figure itself names."""
    interval = values.get(f"{figure.key}_ci")
    if interval is None:
        return ""
    return " – ".join(figure.show(bound).rsplit(" ", 1)[0] for bound in interval)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def download(result: Result) -> str:
    """A link that holds the whole result, so that nothing is kept on the server."""
    text = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    data = base64.b64encode(text.encode()).decode()
    return (
        "<a class=sva-download download=seed_variant_accuracy.json "
        f"href='data:application/json;base64,{data}'>Download all figures (JSON)</a>"
    )
