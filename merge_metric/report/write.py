"""The report as a file: HTML that loads nothing else, Markdown, LaTeX or JSON, and its plots.

The page's SV curves are drawn twice: interactively by a script, and here as small static drawings
for the breakdowns, for print and for readers without JavaScript (the macro `panel`).
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape

from merge_dataset.files import to_json, write_text
from merge_dataset.provenance import PARAPHRASES
from merge_dataset.show import marked_parts
from merge_metric.analyses.curves import plot_curves, plot_matching
from merge_metric.compare import Comparison
from merge_metric.report import ReportFormat, sections
from merge_metric.report.evidence import TEXTS, Configuration, Evidence, Result, VariantPart, joined
from merge_metric.report.finding import doubts, findings, flipped_example, overall_findings
from merge_metric.report.sections import HEADLINE, MATCHING, cell, number, seed_rows, tables
from merge_metric.report.seeds import describe_sample, embed_source, limit_variants
from merge_metric.seed_variant_accuracy.figures import FEW_SEEDS, MATCHING_RANGE, Figure, sv_at
from merge_metric.seed_variant_accuracy.formatting import DECIMALS, show_value
from merge_metric.seed_variant_accuracy.resampling import resampled_units
from merge_metric.seed_variant_accuracy.scoring import VERSION
from merge_metric.tables import Table, initials, is_few, plots
from merge_metric.tables.plots import PALETTE, distinct, grouped

log = logging.getLogger(__name__)

MAX_VARIANTS: Final = 500_000
MAX_BYTES: Final = 15_000_000
"""Largest size of the page in bytes; if it would be larger, fewer variants are shown."""


_SIGNATURE: Final = re.compile(rb"\bct:\d+\|(<wbr>)?subsamples")
"""Pattern of a part of the signature that stands in every report."""

SUFFIXES: Final[dict[str, ReportFormat]] = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".tex": "latex",
    ".json": "json",
}


def format_by_suffix(path: Path) -> ReportFormat:
    """Return the format of a file's suffix; raise ValueError for others.

    >>> format_by_suffix(Path("report.md"))
    'markdown'
    """
    plots.require_suffix(path, SUFFIXES)
    return SUFFIXES[path.suffix]


def require_report_or_none(path: Path) -> None:
    """Raise FileExistsError if the path is anything but an earlier report."""
    others = path.is_file() and path.stat().st_size and not _SIGNATURE.search(path.read_bytes())
    if path.is_dir() or others:
        raise FileExistsError(
            f"{path}: expected no file or an earlier report, found another; name another file "
            "with --out, or move that one away"
        )


def write_report(
    evidence: Evidence,
    path: str | Path,
    output: ReportFormat | None = None,
    *,
    max_variants: int = MAX_VARIANTS,
) -> None:
    """Write a report; the same bytes for the same inputs.

    Args:
        evidence: Everything to report.
        path: The file; an earlier report is replaced.
        output: Its format; by default what the suffix says.
        max_variants: Variants shown in the page at most.

    Raises:
        FileExistsError: there is another file.
        FileNotFoundError: there is no such folder.
        ValueError: the suffix says no format.
    """
    path = Path(path)
    output = output or format_by_suffix(path)
    require_report_or_none(path)
    if output == "html":
        text = render_html(evidence, max_variants=max_variants)
    else:
        render = {"markdown": render_markdown, "latex": render_latex, "json": render_json}[output]
        text = render(evidence)
    write_text(path, text)


def render_html(evidence: Evidence, *, max_variants: int = MAX_VARIANTS) -> str:
    """Render the page with the most variants allowed that keep it below `MAX_BYTES`."""
    while True:
        shown = limit_variants(evidence.sources, max_variants)
        page = render_page(replace(evidence, sources=shown))
        n_shown = sum(len(source.seed) for source in shown)
        size = len(page.encode())
        if size <= MAX_BYTES or not n_shown:
            return page
        max_variants = int(0.95 * n_shown * MAX_BYTES / size)
        log.info(
            "the page would have %.1f MB; showing %s variants", size / 1e6, f"{max_variants:,}"
        )


# --- The page ---

STYLES: Final = ("uPlot.min.css", "report.css")
SCRIPTS: Final = ("uPlot.iife.min.js", "report.js", "curves.js", "problems.js", "views.js")

HEAT: Final = sv_at(90)
"""The figure that the heat map shows first."""

HEAT_STEPS: Final = 9

_LABELS: Final = {
    "variant_accuracy": "Variants",
    "relaxed_fooling_rate": "relaxed",
    "strict_fooling_rate": "strict",
}
"""Figure → words in place of its symbol, where it stands alone."""


def render_markdown(evidence: Evidence) -> str:
    """Render tables, findings and methods in GitHub's Markdown."""
    template = templates().get_template("report.md.j2")
    return template.render(evidence=evidence, made=tables(evidence)) + "\n"


def render_page(evidence: Evidence) -> str:
    """Render the report as HTML, with the variants that its sources show."""
    light, dark = (
        "".join(f"--model-{i}: {colour}; " for i, colour in enumerate(colours))
        for colours in (PALETTE, ON_DARK)
    )
    on_dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}"
    stylesheet = "\n".join([*map(_asset, STYLES), f":root {{ {light}}}\n{on_dark}"])
    scripts = [_asset(name) for name in SCRIPTS]
    *allowed, styled = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (*scripts, stylesheet)
    )
    made, provenance = tables(evidence, for_page=True), evidence.provenance.values()
    results = (of for c in evidence.configurations for part in c.parts() for of in part.results)
    return (
        templates()
        .get_template("report.html.j2")
        .render(
            evidence=evidence,
            made=made,
            policy=(  # only these scripts run, and nothing is loaded
                f"default-src 'none'; script-src {' '.join(allowed)}; style-src {styled}; "
                "base-uri 'none'; form-action 'none'"
            ),
            style=stylesheet,
            scripts=scripts,
            uplot_licence=_asset("uPlot.LICENSE"),
            data=embed(evidence, made),
            sampled=describe_sample(evidence.sources),
            few=len(evidence.models) <= sections.FEW,
            has_few=any(map(is_few_of, results)),
            heat_range=heat_range(evidence),
            mlm_names=distinct((mlm for of in provenance for mlm in of.get("mlms") or ()), "name"),
            paraphrasers=dict.fromkeys(
                f"{of['generator']['name']}, chosen by {of['nli_model']['name']}"
                for of in provenance
                if of.get("kind") == PARAPHRASES and {"generator", "nli_model"} <= of.keys()
            ),
        )
    )


def templates() -> jinja2.Environment:
    """Return the templates; besides what one is rendered with, they may use what is named here."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("merge_metric.report"),
        autoescape=jinja2.select_autoescape(("html.j2",), default=False),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    compact = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_kwargs"] = compact
    environment.filters |= {
        "breakable": lambda signature: Markup("|<wbr>").join(
            map(escape, signature.split("|"))  # allow a line break between its parts
        ),
        # Keeps the given order; Jinja's filter `groupby` sorts.
        "grouped": grouped,
        "plain": plain,
    }
    called = (
        *(findings, doubts, overall_findings, flipped_example, sections.of_answers, signed, zip),
        *(cell, label, number, sections.shown, sections.interval_text, show_value, marked),
        *(is_best, is_few_of, heat_step, comparison_rows, sections.figures_table),
        *(sections.model_text, sections.settings_text, resampled_units),
        *(style_of, step_path, units),
    )
    environment.globals |= {one.__name__: one for one in called} | {
        "SEED": sections.SEED, "VARIANT": sections.VARIANT, "MATCHING": MATCHING, "HEAT": HEAT,
        "RELAXED": sections.RELAXED, "STRICT": sections.STRICT, "SHIFT": sections.SHIFT,
        "HEADLINE": HEADLINE, "BREAKDOWN": sections.BREAKDOWN, "KIN": sections.KIN,
        "ACROSS": ACROSS, "UP": UP, "FEW_SEEDS": FEW_SEEDS, "PARAPHRASES": PARAPHRASES,
        "TEXTS": TEXTS, "VERSION": VERSION,
    }  # fmt: skip
    return environment


def plain(text: str) -> str:
    r"""Escape text so that Markdown shows it literally.

    >>> print(plain("a_b <i>"))
    a\_b \<i\>
    """
    return "".join(f"\\{c}" if c in "\\`*_|<>[]#" else c for c in " ".join(text.split()))


def label(figure: Figure, *, below_group: bool = False) -> str:
    """Return the words beside a single figure, or below a heading such as "accuracy on"."""
    is_head = below_group and figure.symbol
    return figure.heading if is_head else _LABELS.get(figure.key, figure.heading)


def heat_range(evidence: Evidence) -> tuple[int, int]:
    """Compute the range of `HEAT` that the colours span, in percent."""
    values = [
        value
        for configuration in evidence.configurations
        for part in configuration.parts("all", "word_class")
        for result in part.results
        if result and (value := cell(result, HEAT).value) is not None
    ]
    # Rounded as by the script.
    least, most = (round(bound, DECIMALS) for bound in (min(values), max(values)))
    low, high = (int(bound // 10 * 10) for bound in (least, most + 9.999))
    return low, max(high, low + 10)


def heat_step(result: Result | None, low: int, high: int) -> str:
    """Choose the class of a cell's colour: h0, the palest, to h8."""
    value = cell(result, HEAT).value if result and not is_few_of(result) else None
    if value is None:
        return "none"
    steps = int(HEAT_STEPS * (round(value, DECIMALS) - low) / (high - low))
    return f"h{min(HEAT_STEPS - 1, steps)}"


def comparison_rows(comparison: Comparison) -> list[tuple[Result, list[Result | None]]]:
    """List models, best first, each with its pairs with the second to last; None if not worse."""
    models = comparison.models.rows
    pairs = {(pair["a"], pair["b"]): pair for pair in comparison.pairs.rows}
    return [
        (row, [pairs.get((row["model"], other["model"])) for other in models[1:]]) for row in models
    ]


def is_best(results: Sequence[Result | None], result: Result, figure: Figure) -> bool:
    """Return whether a figure, rounded as shown, is the best of several models."""
    shown = [cell(of, figure).value for of in results if of]
    values = [round(value, DECIMALS) for value in shown if value is not None]
    mine = cell(result, figure).value
    if mine is None or len(shown) < 2:
        return False
    return round(mine, DECIMALS) == (max(values) if figure.higher_is_better else min(values))


def is_few_of(result: Result | None) -> bool:
    """Return whether a result has few seeds."""
    return is_few((result or {}).get("n_seeds"))


def signed(evidence: Evidence, configuration: Configuration, signature: str) -> str:
    """Name the models whose result has this signature."""
    pairs = zip(evidence.names, configuration.results, strict=True)
    return joined([name for name, of in pairs if of and of["signature"] == signature])


def _asset(name: str) -> str:
    return (resources.files("merge_metric.report") / "assets" / name).read_text(encoding="utf-8")


def marked(text: str, spans: Sequence[Sequence[int]]) -> Markup:
    """Escape a text, and mark its spans."""
    mark = Markup("<mark>{}</mark>").format
    return Markup().join(mark(t) if is_marked else t for t, is_marked in marked_parts(text, spans))


# --- Data for the scripts ---


def embed(evidence: Evidence, made: Mapping[str, Sequence[Table]]) -> dict[str, Any]:
    """Pack figures (in percent), problems, line styles and tables to copy for `assets/*.js`."""
    words = [model.words for model in evidence.models]
    return {
        "labels": list(evidence.labels),
        "letters": list(initials(evidence.labels)),
        "models": evidence.names,
        "columns": [
            {
                "key": f.key,
                "head": label(f, below_group=True),
                "name": f.name,
                "meaning": f.explanation,
            }
            for f in HEADLINE
        ],
        "configs": [
            {
                "name": c.name,
                "parts": [
                    {
                        "key": part.key,
                        "title": part.title,
                        "kind": part.kind,
                        "results": [result and _result(result) for result in part.results],
                    }
                    for part in c.parts()
                ],
            }
            for c in evidence.configurations
        ],
        "sources": [embed_source(source, words) for source in evidence.sources],
        "decimals": DECIMALS,
        "styles": list(map(style_of, range(len(evidence.models)))),
        "heat": HEAT.key,
        "heatSteps": HEAT_STEPS,
        "tables": {
            table.name: {
                "csv": table.to_csv(),
                "json": table.to_json(),
                "Markdown": table.to_markdown(),
                "LaTeX": table.to_latex(),
            }
            for table in chain.from_iterable(made.values())
        },
    }


def _result(result: Result) -> dict[str, Any]:
    """Pack figures as shown, [value, low, high(, text)] in order of `HEADLINE`, and the curve."""
    curve = result["sv_curve"]
    sides = [side for side in ("accuracy", "low", "high") if side in curve]
    return {
        "n": [result["n_seeds"], result["n_variants"]],
        "figures": [
            [value if value is None else round(value, DECIMALS) for value in cell(result, figure)]
            + ([text] if figure == MATCHING and (text := sections.undetermined(result)) else [])
            for figure in HEADLINE
        ],
        "curve": [[round(100 * share, DECIMALS) for share in curve[side]] for side in sides],
    }


# --- Styles that distinguish models ---

DASHES: Final = ((), (8, 3), (2, 2.5), (10, 3, 2, 3))
"""Dash patterns in pixels, in the same number as `tables.plots.DASHES`, for equal looks."""

MARKERS: Final = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "M-3.5-3.5h7v7h-7Z",
    "M0-4.8L4.5 3.6h-9Z",
    "M0-5.2L5.2 0L0 5.2L-5.2 0Z",
    "M0 4.8L4.5-3.6h-9Z",
)
"""SVG paths around the origin: circle, square, triangle, diamond, inverted triangle."""


ON_DARK: Final = ("#3D9BDC", "#FF8A4C", "#2CC39A", "#E59AC4", "#F0B43C", "#A5DCFA", "#FFFFFF")
"""Lighter forms of `PALETTE`, for a dark page."""


def style_of(position: int) -> dict[str, Any]:
    """Choose colour (a CSS variable), dashes and marker of a model, distinct for 140 models.

    >>> style_of(1)
    {'colour': 'var(--model-1)', 'dash': (8, 3), 'marker': 'M-3.5-3.5h7v7h-7Z'}
    """
    return {
        "colour": f"var(--model-{position % len(PALETTE)})",
        "dash": DASHES[position % len(DASHES)],
        "marker": MARKERS[position % len(MARKERS)],
    }


# --- Small drawings of curves ---

ACROSS: Final = 2.0
"""Units of a drawing per percent of the threshold."""

UP: Final = 1.4
"""Units of a drawing per percent of accuracy."""


def step_path(curve: Sequence[float]) -> str:
    """Make the SVG path of a step curve of shares: that at CT holds for thresholds above CT − 1."""
    heights = [units(UP * (100 - 100 * share)) for share in curve]
    path = [f"M0 {heights[0]}"]
    for threshold, (before, height) in enumerate(pairwise(heights), start=1):
        if height != before:
            path.append(f"H{units(ACROSS * threshold)}V{height}")
    return "".join([*path, f"H{units(ACROSS * len(curve))}"])


def units(value: float) -> str:
    """Write a length in a drawing, with one decimal where it is needed."""
    return f"{value:.1f}".removesuffix(".0")


# --- LaTeX and JSON ---


def render_latex(evidence: Evidence) -> str:
    """Render the tables for a LaTeX document."""
    head = [
        f"% MERGE report: {' '.join(evidence.title.split())}",
        f"% Made by merge-nli {VERSION}.",
    ]
    for configuration in evidence.configurations:
        head += [f"% {configuration.name}: {sig}" for sig in configuration.signatures]
    made = (
        table.to_latex(long=any(column.kind == "passage" for column in table.columns))
        for table in chain.from_iterable(tables(evidence).values())
    )
    return "\n\n".join(["\n".join(head), *made]) + "\n"


def render_json(evidence: Evidence) -> str:
    """Render everything: results as `scoring.score` gives them, and seeds, hardest first."""
    named = [
        (c, {n: result for n, result in zip(evidence.names, c.results, strict=True) if result})
        for c in evidence.configurations
    ]
    whole = {
        "title": evidence.title,
        "version": VERSION,
        "models": [
            {"name": model.name, "files": list(model.files), "description": dict(model.description)}
            for model in evidence.models
        ],
        "findings": overall_findings(evidence),
        "configurations": [
            {
                "name": c.name,
                "findings": findings(evidence, c) + doubts(evidence, c),
                "results": results,
                "comparison": c.comparison and c.comparison.as_dict(),
            }
            for c, results in named
        ],
        "classes": [table.as_dict() for table in evidence.classes],
        "provenance": evidence.provenance,
        **{table.name: table.as_dict() for table in evidence.validity},
        "seeds": [row for source in evidence.sources for row in seed_rows(evidence, source)],
    }
    return to_json(whole, allow_nan=False) + "\n"


# --- Plots ---


def draw_figures(evidence: Evidence) -> Iterator[tuple[str, plots.Figure]]:
    """Yield names and figures of plots: all curves, heat map, curves by class and by label."""
    whole = [(c.name, c.parts()[0]) for c in evidence.configurations]
    yield "curves", plot_curves(_curves(evidence, whole))
    yield "matching", plot_matching(sections.matching(evidence))
    for configuration in evidence.configurations:
        for kind in ("word_class", "label"):
            if parts := configuration.parts(kind):
                panels = [(part.title, part) for part in parts]
                name = f"curves-{configuration.name}-by-{kind.replace('_', '-')}"
                yield name, plot_curves(_curves(evidence, panels))


def _curves(evidence: Evidence, panels: Sequence[tuple[str, VariantPart]]) -> Table:
    keys = ("seed_accuracy", "matching_threshold", *MATCHING_RANGE)
    rows = []
    for title, part in panels:
        for name, result in zip(evidence.names, part.results, strict=True):
            if result:
                curves = result["sv_curve"]
                row = {"config": title, "model": name, "curve": curves["accuracy"]}
                row |= {key: result[key] for key in keys}
                row |= {f"curve_{side}": curves[side] for side in ("low", "high") if side in curves}
                rows.append(row)
    return Table("curves", "Seed-variant accuracy by correctness threshold", (), tuple(rows))
