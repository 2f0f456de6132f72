"""The metric in a browser: edit a table of predictions or upload a file, and read the figures.

Run it in this folder, whatever the folder is called: `python app.py`. It needs Gradio 6, and
pyarrow for Parquet files, and asks nothing of the network.
"""

import html
import importlib.util
import json
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import gradio as gr
import pandas as pd  # type: ignore[import-untyped]

if not __package__:  # run as a script, where relative imports would have nothing to relate to
    __package__ = "seed_variant_accuracy"
    _folder = Path(__file__).resolve().parent
    _spec = importlib.util.spec_from_file_location(
        __package__, _folder / "__init__.py", submodule_search_locations=[str(_folder)]
    )
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules[__package__] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__package__])

from .figures import CATALOGUE, FEW_SEEDS, MATCHING_RANGE, Unit, is_undetermined, keys_shown, span
from .formatting import HUNDRED, show_value
from .inputs import split_predictions
from .options import LABELS
from .scoring import score

MEGABYTES_AT_MOST: Final = 100
REPLICATES_AT_MOST: Final = 10_000
HOUR: Final = 3600

COLUMNS: Final = ("variant_id", "seed_id", "label", "prediction")
"""Columns that every row of the table or of a file has."""
PROBABILITIES: Final = "probabilities"

_E, _N, _C = LABELS
EXAMPLE: Final = [
    [f"seed {seed}" + (f", variant {n}" if n else ""), f"seed {seed}", gold, prediction]
    for seed, gold, predictions in (
        (1, _E, (_E, _E, _E, _E, _E)),
        (2, _N, (_N, _N, _N, _N, _C)),
        (3, _C, (_E, _C, _C, _E, _E)),
    )
    for n, prediction in enumerate(predictions)
]
"""Three seeds with four variants each: 4, 3 and 2 right, and the third seed itself wrong."""

INTRO: Final = f"""
# Seed-variant accuracy
Does a model that answers a problem right also answer its minimal variants right? A *seed* is an
original problem; its *variants* differ from it in one word and have the same gold label. SV
accuracy at a correctness threshold is the share of seeds with at least that percentage of their
variants classified right.

There is a row per seed and per variant; in a seed's own row, `variant_id` equals `seed_id`. Labels
are {", ".join(LABELS)}; in files also 0, 1, 2. Files (Parquet or JSON Lines, at most
{MEGABYTES_AT_MOST} MB) may have `{PROBABILITIES}` too. Each variant counts once; figures averaged
over the subsamples of a dataset come from the metric itself.
"""
STYLE: Final = """
#sva-results table { width: 100%; font-variant-numeric: tabular-nums; }
#sva-results .md { overflow-x: auto; }
#sva-results :is(th, td) { word-break: normal; overflow-wrap: normal; }
#sva-figures :is(td, th):is(:nth-child(2), :nth-child(3)) { white-space: nowrap; }
"""
FONTS: Final = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Arial", "sans-serif"]
MONO_FONTS: Final = ["ui-monospace", "Menlo", "Consolas", "monospace"]


# --- Reading ---


def read_file(path: Path) -> dict[str, list[Any]]:
    """Read the columns of a predictions file, Parquet or JSON Lines."""
    from pyarrow import ArrowException, json, parquet

    try:
        if path.suffix.lower() == ".parquet":
            with parquet.ParquetFile(path) as file:
                table = file.read()
        else:
            table = json.read_json(path)
        names = [name for name in (PROBABILITIES,) if name in table.column_names]
        columns: dict[str, list[Any]] = table.select([*COLUMNS, *names]).to_pydict()
    except (ArrowException, KeyError, OSError) as error:
        raise ValueError(
            f"{path.name}: expected a .parquet or .jsonl file with {', '.join(COLUMNS)} and "
            f"optionally {PROBABILITIES}, got another ({error}): write it again"
        ) from error
    if all(row is None for row in columns.get(PROBABILITIES, ())):  # as good as no such column
        columns.pop(PROBABILITIES, None)
    return columns


def read_table(rows: list[list[Any]]) -> dict[str, list[Any]]:
    """Read the columns of the table; rows without any entry do not count."""
    cells = [["" if cell is None else str(cell).strip() for cell in row] for row in rows]
    filled = [row[: len(COLUMNS)] for row in cells if any(row)]
    for number, row in enumerate(filled, 1):
        if len(row) < len(COLUMNS) or "" in row[:2]:
            raise ValueError(
                f"filled row {number}: expected {', '.join(COLUMNS)}, got {row}: fill in the ids, "
                "or empty the whole row"
            )
    return {name: [row[n] for row in filled] for n, name in enumerate(COLUMNS)}


# --- Answers ---


def show(value: float | None, unit: Unit) -> str:
    """Show a value with its unit; thresholds are in percent already, and mostly whole.

    >>> show(2 / 3, "share"), show(-1 / 3, "points"), show(-0.0, "points")
    ('66.7 %', '−33.3 points', '0.0 points')
    >>> show(51.0, "threshold"), show(51.25, "threshold"), show(None, "share")
    ('51 %', '51.2 %', '–')
    """
    if value is None:
        return "–"
    text = show_value(value, unit, signed=False)
    if unit == "threshold":
        text = text.removesuffix(HUNDRED.removeprefix("100"))
    return f"{text} {'points' if unit == 'points' else '%'}"


DISTRIBUTIONS: Final = (
    ("jsd", "Jensen–Shannon divergence from the seed, bits"),
    ("ks", "Kolmogorov–Smirnov distance from the seed"),
    ("sigma", "Spread σ of the label probabilities"),
)
"""Beginning of a key of label distributions, and its name."""


def figures_table(result: Mapping[str, Any], threshold: int) -> str:
    """Write figures, their intervals and meanings as a table of Markdown."""
    head = ("Figure", "Value", "95 % interval", "Meaning")
    rows: list[tuple[str, ...]] = [head, ("---", "--:", "--:", "---")]
    for figure in (CATALOGUE[key].at(threshold) for key in keys_shown("page")):
        meaning = figure.explanation
        if figure.key == "matching_threshold":
            low, high = (result[key] for key in MATCHING_RANGE)
            tie = f"{span(low, high)} % come equally close" if low < high else "No other does"
            tie = f"Undetermined: {tie}" if is_undetermined(low, high) else tie
            meaning = f"{figure.meaning} {tie}."
        symbol = "" if figure.symbol in ("", *figure.name.split()) else f" {figure.symbol}"
        interval = (show(bound, figure.unit) for bound in result.get(f"{figure.key}_ci") or ())
        value = show(result[figure.key], figure.unit)
        rows.append((figure.name + symbol, value, " – ".join(interval), meaning))
    rows += [
        (f"{name}: {of}", f"{result[f'{key}_{of}']:.3f}", "", "Over the seeds classified right.")
        for (key, name), of in product(DISTRIBUTIONS, ("seeds", "unchanged", "changed"))
        if result.get(f"{key}_{of}") is not None
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def labels_table(result: Mapping[str, Any], threshold: int) -> str:
    """Write the main figures of the seeds of each gold label as a table of Markdown."""
    figures = [CATALOGUE[key].at(threshold) for key in keys_shown("labels")]
    head = ("Gold label", "Seeds", "Variants", *(figure.name for figure in figures))
    rows: list[tuple[str, ...]] = [head, ("---", *["--:"] * (len(head) - 1))]
    for label, group in result["by_label"].items():
        values = (show(group[figure.key], figure.unit) for figure in figures)
        rows.append((label, f"{group['n_seeds']:,}", f"{group['n_variants']:,}", *values))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


AXES: Final = ("correctness threshold, %", "share of seeds, %")
COLOURS: Final = {"SV": "#2f8fce", "95 % low": "#8cc4ea", "95 % high": "#8cc4ea", "S": "#d55e00"}
"""Line → colour on light and dark ground."""


def curve_points(result: Mapping[str, Any]) -> pd.DataFrame:
    """Make the lines of the plot: the SV curve, the bounds of its interval, and S across.

    The curve is a step function: the value at CT holds above CT − 1 and up to CT.
    """
    curve, s = result["sv_curve"], result["seed_accuracy"]
    rows = [(x, 100 * s, "S") for x in (0, 100)]
    for name, side in (("SV", "accuracy"), ("95 % low", "low"), ("95 % high", "high")):
        for ct, value in enumerate(curve.get(side, ()), 1):
            rows += [(x, 100 * value, name) for x in (ct - 1, ct)]
    return pd.DataFrame(rows, columns=[*AXES, "line"]).round(2)


def answer(
    rows: list[list[Any]], file: str | None, threshold: int, n_bootstrap: int
) -> tuple[Any, ...]:
    """Compute the figures of the file, else of the table: values of the page's outputs."""
    try:
        columns = read_file(Path(file)) if file else read_table(rows)
        result = score(
            **split_predictions(**columns), correctness_threshold=threshold, n_bootstrap=n_bootstrap
        )
    except (TypeError, ValueError) as error:
        message = f"<strong>Nothing was computed.</strong> {html.escape(str(error))}"
        return message, gr.Column(visible=False), "", None, "", "", ""
    name = html.escape(Path(file).name) if file else "the table"
    message = f"From {name}: seeds {result['n_seeds']:,}, variants {result['n_variants']:,}."
    if n_bootstrap:
        message += " Intervals: bootstrap over seeds."
        if result["n_seeds"] < FEW_SEEDS:
            message += " With so few seeds they are coarse."
    return (
        message,
        gr.Column(visible=True),
        figures_table(result, threshold),
        curve_points(result),
        labels_table(result, threshold),
        result["signature"],
        json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    )


# --- The page ---


SLIDERS: Final = (
    (1, 100, 90, 1, "Correctness threshold (CT), %",
     "How many of a seed's variants must be right", "sva-threshold"),
    (0, REPLICATES_AT_MOST, 1000, 100, "Bootstrap replicates",
     "0 leaves the intervals out", "sva-replicates"),
)  # fmt: skip
"""Least and largest value, first value, step, label, explanation and id of each slider."""

TABLE: Final[dict[str, Any]] = {
    "headers": list(COLUMNS), "column_count": len(COLUMNS), "type": "array", "interactive": True,
    "max_height": 380, "elem_id": "sva-input", "scale": 3,
}  # fmt: skip
CURVE: Final[dict[str, Any]] = {
    "x": AXES[0], "y": AXES[1], "color": "line", "color_map": COLOURS, "color_title": " ",
    "x_lim": [0, 100], "y_lim": [0, 100], "height": 340, "elem_id": "sva-curve",
    "label": "SV curve", "show_label": False,  # it would push the legend out of sight
}  # fmt: skip
SIGNATURE: Final[dict[str, Any]] = {
    "label": "Signature", "info": "Says all that determines the figures; quote it beside them",
    "interactive": False, "buttons": ["copy"], "elem_id": "sva-signature",
}  # fmt: skip
"""Options of the parts that have many."""


def build() -> Any:
    """Build the page and connect its parts."""
    with gr.Blocks(
        title="Seed-variant accuracy", analytics_enabled=False, delete_cache=(HOUR, HOUR)
    ) as page:
        gr.Markdown(INTRO)
        with gr.Row():
            inputs: list[Any] = [gr.Dataframe(EXAMPLE, **TABLE)]
            with gr.Column(scale=2, min_width=280):
                suffixes = [".parquet", ".jsonl"]
                inputs.append(gr.File(label="Or a file", file_types=suffixes, elem_id="sva-upload"))
                inputs += [
                    gr.Slider(low, high, value, step=step, label=label, info=info, elem_id=name)
                    for low, high, value, step, label, info, name in SLIDERS
                ]
        message = gr.HTML(elem_id="sva-message")  # Markdown would change what it quotes
        with gr.Column(visible=False, elem_id="sva-results") as results:
            outputs: list[Any] = [
                message,
                results,
                gr.Markdown(elem_id="sva-figures"),
                gr.LinePlot(**CURVE),
                gr.Markdown(elem_id="sva-labels"),
                gr.Textbox(**SIGNATURE),
            ]
            with gr.Accordion("All figures as JSON", open=False):
                outputs.append(gr.Code(language="json", max_lines=20, elem_id="sva-json"))
        events = [page.load, *(part.change for part in inputs)]
        options: dict[str, Any] = {"trigger_mode": "always_last", "api_visibility": "private"}
        gr.on(events, answer, inputs, outputs, show_progress="minimal", **options)
    return page


def main() -> None:
    """Serve the page; Gradio reads address and port from its environment variables."""
    # Fonts of the reader's system, as others would be asked of the network, and small print that
    # can be read.
    theme = gr.themes.Default(primary_hue="blue", font=FONTS, font_mono=MONO_FONTS).set(
        body_text_color_subdued="*neutral_600", body_text_color_subdued_dark="*neutral_300"
    )
    build().launch(
        theme=theme,
        head=f"<style>{STYLE}</style>",  # Gradio rewrites what it gets as css
        max_file_size=f"{MEGABYTES_AT_MOST}mb",
        run_history=False,
        ssr_mode=False,
        footer_links=[],
    )


if __name__ == "__main__":
    main()
