"""Draw the pictures of the README: `make pictures`.

- worked-example.svg: five seeds and their variants, and every main figure computed from them;
- spine.svg: what asks models, keeps their answers and counts them, for those who change the code;
- funnel.svg: what became of the suggestions in the demo;
- report.webp: the top of a report on the demo, by headless Chromium.

Each is drawn twice, for light pages and for dark ones. Tests compare the drawings with these
files, so they are made anew when the demo or the metric changes.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import pyarrow.parquet as pq

from merge_metric.seed_variant_accuracy.scoring import score

HERE: Final = Path(__file__).parent

WIDTH: Final = 880
FONT: Final = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

THEMES: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        "ink": "#1b1f23",
        "quiet": "#57606a",
        "line": "#d0d7de",
        "accent": "#0069a6",
        "right": "#d5e7f5",
        "on-right": "#0b3a5c",
        "wrong": "#c24e00",
        "on-wrong": "#ffffff",
        "bar": "#7fb2da",
        "kept": "#0069a6",
    },
    "-dark": {
        "ink": "#e6edf3",
        "quiet": "#9aa5b1",
        "line": "#3d444d",
        "accent": "#58b0ea",
        "right": "#1d3b52",
        "on-right": "#cbe5f8",
        "wrong": "#ff9455",
        "on-wrong": "#1b1005",
        "bar": "#3b6f97",
        "kept": "#58b0ea",
    },
}
"""Colours by the end of the file's name; wrong answers also have a bold letter and a frame."""


NAMES: Final = {"E": "entailment", "N": "neutral", "C": "contradiction"}
OPPOSITES: Final = {"E": "C", "C": "E"}


@dataclass(frozen=True, slots=True)
class Seed:
    """A seed of the worked example.

    Attributes:
        premise: Text with the word.
        hypothesis: Text with the word.
        word: The shared word that the variants replace.
        replacements: A word per variant.
        label: Gold label, by its first letter.
        answer: The model's answer to the seed.
        answers: Its answers to the variants.
    """

    premise: str
    hypothesis: str
    word: str
    replacements: tuple[str, ...]
    label: str
    answer: str
    answers: str


def worked_example() -> list[Seed]:
    """Read the seeds of the worked example."""
    seeds = tomllib.loads((HERE / "worked-example.toml").read_text(encoding="utf-8"))["seed"]
    return [Seed(**{**seed, "replacements": tuple(seed["replacements"])}) for seed in seeds]


def figures_of(seeds: Sequence[Seed]) -> dict[str, Any]:
    """Compute the metric on the worked example."""
    rows = [(n, seed, answer) for n, seed in enumerate(seeds) for answer in seed.answers]
    return score(
        predictions=[NAMES[answer] for _, _, answer in rows],
        references=[NAMES[seed.label] for _, seed, _ in rows],
        seed_ids=[str(n) for n, _, _ in rows],
        seed_predictions=[NAMES[seed.answer] for _, seed, _ in rows],
        correctness_threshold=90,
    )


# --- Drawing ---


def text(
    x: float, y: float, words: str, *, colour: str = "ink", size: int = 14, **attributes: str
) -> str:
    """Write one line; `words` is XML, attributes are those of SVG with `_` for `-`."""
    more = "".join(f' {name.replace("_", "-")}="{v}"' for name, v in attributes.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" class="{colour}"{more}>{words}</text>'


def rectangle(x: float, y: float, width: float, height: float, colour: str, radius: int = 3) -> str:
    """Fill a rectangle."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" '
        f'class="{colour}"/>'
    )


def line(points: Iterable[tuple[float, float]], colour: str, **attributes: str) -> str:
    """Draw a line through points."""
    more = "".join(f' {name.replace("_", "-")}="{v}"' for name, v in attributes.items())
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{path}" fill="none" class="s-{colour}"{more}/>'


def document(parts: Iterable[str], height: float, title: str, theme: str) -> str:
    """Put the parts of a drawing into an SVG file with the colours of a theme."""
    colours = THEMES[theme]
    style = "".join(f".{name}{{fill:{c}}}.s-{name}{{stroke:{c}}}" for name, c in colours.items())
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f"font-family='{FONT}' role=\"img\">\n<title>{escape(title)}</title>\n"
        f"<style>{style}</style>\n{body}\n</svg>\n"
    )


# --- The worked example ---

TABLE: Final = 188
"""Where the table of seeds begins."""

ROW: Final = 30
SQUARE: Final = 24
STEP: Final = 27
SEED, VARIANTS, RIGHT, SOLVED, CHANGED, OPPOSITE = 252, 284, 600, 676, 754, 836
"""Middles of the table's columns; of the variants the left edge of the first square."""


def draw_example(theme: str) -> str:
    """Draw the worked example: texts, the table of answers, the SV curve, the definitions."""
    seeds = worked_example()
    figures = figures_of(seeds)
    totals = TABLE + 34 + ROW * len(seeds)
    curve = totals + 104
    parts = [
        *_problem(seeds[0]),
        *_heads(),
        *(part for n, seed in enumerate(seeds) for part in _row(TABLE + 26 + ROW * n, seed)),
        *_totals(seeds, figures, totals),
        *_curve(figures, curve),
        *_definitions(figures, curve),
    ]
    return document(parts, curve + 214, "Seeds, variants and the figures: an example", theme)


def _problem(seed: Seed) -> list[str]:
    """Write the first seed and two of its variants, with the model's answers."""
    parts = [
        text(620, 14, "gold label", colour="quiet", size=13),
        text(740, 14, "a model’s answer", colour="quiet", size=13),
    ]
    for number, variant in enumerate((None, 0, len(seed.answers) - 1)):
        y = 38 + 45 * number
        word = seed.word if variant is None else seed.replacements[variant]
        answer = seed.answer if variant is None else seed.answers[variant]
        marked = f'<tspan class="accent" font-weight="700">{word}</tspan>'
        kind = "seed" if variant is None else "variant"
        parts.append(text(0, y, kind, font_weight="700"))
        for row, sentence in enumerate((seed.premise, seed.hypothesis)):
            parts.append(text(72, y + 18 * row, escape(sentence).replace(seed.word, marked)))
        parts.append(text(620, y, NAMES[seed.label]))
        if answer == seed.label:
            parts.append(text(740, y, f"{NAMES[answer]} ✓"))
        else:
            parts.append(text(740, y, f"{NAMES[answer]} ✗", colour="wrong", font_weight="700"))
    return parts


def _heads() -> list[str]:
    """Write the heads of the table's columns, in two lines."""
    heads = [
        *((0, n, line, "start") for n, line in enumerate(("", "five seeds: word → replacements"))),
        *((SEED, n, line, "middle") for n, line in enumerate(("answer", "to seed"))),
        *(
            (VARIANTS, n, line, "start")
            for n, line in enumerate(("", "answers to ten variants (orange: wrong)"))
        ),
        *((RIGHT, n, line, "middle") for n, line in enumerate(("variants", "right"))),
        *((SOLVED, n, line, "middle") for n, line in enumerate(("at least", "90 % right"))),
        *((CHANGED, n, line, "middle") for n, line in enumerate(("answer", "changes"))),
        *((OPPOSITE, n, line, "middle") for n, line in enumerate(("to the", "opposite"))),
    ]
    return [
        text(x, TABLE + 16 * n, words, size=13, colour="quiet", text_anchor=anchor)
        for x, n, words, anchor in heads
    ]


def _row(y: float, seed: Seed) -> list[str]:
    """Draw a row of the table: a seed, its answers, and what they count for."""
    base = y + 17
    words = f"{seed.word} → {seed.replacements[0]}, {seed.replacements[1]}, …"
    parts = [text(0, base, words), *_square(SEED - SQUARE / 2, y, seed.answer, seed.label)]
    for place, answer in enumerate(seed.answers):
        parts += _square(VARIANTS + STEP * place, y, answer, seed.label)
    right = seed.answers.count(seed.label)
    cells: list[tuple[float, object]] = [
        (RIGHT, f"{right} of {len(seed.answers)}"),
        (SOLVED, 100 * right >= 90 * len(seed.answers)),
        (CHANGED, _changes(seed) if seed.answer == seed.label else None),
        (OPPOSITE, _changes(seed, opposite=True) if seed.answer == seed.label else None),
    ]
    words_of = {True: "yes", False: "no", None: "–"}
    for x, cell in cells:
        shown = cell if isinstance(cell, str) else words_of[cell]  # type: ignore[index]
        parts.append(text(x, base, shown, text_anchor="middle"))
    return parts


def _changes(seed: Seed, *, opposite: bool = False) -> bool:
    """Say whether some variant changes the answer, or makes it the opposite."""
    others = {*seed.answers} - {seed.answer}
    return OPPOSITES.get(seed.answer) in others if opposite else bool(others)


def _square(x: float, y: float, answer: str, label: str) -> list[str]:
    """Draw an answer: pale where it is right, strong and bold where it is wrong."""
    kind, weight = ("right", "400") if answer == label else ("wrong", "700")
    letter = text(
        x + SQUARE / 2,
        y + 17,
        answer,
        colour=f"on-{kind}",
        text_anchor="middle",
        font_weight=weight,
    )
    return [rectangle(x, y, SQUARE, SQUARE, kind), letter]


def _totals(seeds: Sequence[Seed], figures: Mapping[str, Any], y: float) -> list[str]:
    """Write each column's figure below it."""
    total = sum(len(seed.answers) for seed in seeds)
    n_right = sum(seed.answer == seed.label for seed in seeds)
    sub = "<tspan dy='4' font-size='11'>{}</tspan>"
    cells = (
        (SEED, "S", "seed_accuracy", len(seeds)),
        (RIGHT, "variants", "variant_accuracy", total),
        (SOLVED, "SV@90", "seed_variant_accuracy", len(seeds)),
        (CHANGED, "r" + sub.format("r"), "relaxed_fooling_rate", n_right),
        (OPPOSITE, "r" + sub.format("s"), "strict_fooling_rate", n_right),
    )
    parts = [line([(0, y), (WIDTH, y)], "line")]
    for x, symbol, name, of in cells:
        value = float(figures[name])
        parts += [
            text(x, y + 20, symbol, colour="accent", text_anchor="middle", font_weight="700"),
            text(
                x, y + 40, f"{100 * value:.0f} %", size=17, text_anchor="middle", font_weight="700"
            ),
            text(
                x,
                y + 57,
                f"{value * of:.0f} of {of}",
                size=13,
                colour="quiet",
                text_anchor="middle",
            ),
        ]
    return parts


def _curve(figures: Mapping[str, Any], y: float) -> list[str]:
    """Draw the SV curve with S, SV@90 and MC."""
    left, width, height = 44, 380, 150

    def at(threshold: float, share: float) -> tuple[float, float]:
        return left + width * threshold / 100, y + height * (1 - share)

    curve = [float(value) for value in figures["sv_curve"]["accuracy"]]
    steps = [point for n, v in enumerate(curve) for point in (at(n, v), at(n + 1, v))]
    accuracy, low = float(figures["seed_accuracy"]), float(figures["matching_threshold_low"])
    parts = []
    for share in (0, 0.2, 0.4, 0.6, 0.8, 1):
        parts.append(line([at(0, share), at(100, share)], "line"))
        x, base = at(0, share)
        parts.append(
            text(x - 8, base + 4, f"{100 * share:.0f}", size=12, colour="quiet", text_anchor="end")
        )
    for threshold in range(0, 101, 10):
        x, base = at(threshold, 0)
        parts.append(
            text(x, base + 17, str(threshold), size=12, colour="quiet", text_anchor="middle")
        )
    parts.append(line([at(0, accuracy), at(100, accuracy)], "ink", stroke_dasharray="2 4"))
    parts.append(line(steps, "accent", stroke_width="2.5"))
    x, base = at(low, accuracy)
    parts.append(
        f'<circle cx="{x:g}" cy="{base:g}" r="7" fill="none" class="s-wrong" stroke-width="2.5"/>'
    )
    parts.append(text(x + 2, base - 13, f"MC {low:.0f}", colour="wrong", font_weight="700"))
    x, base = at(90, curve[89])
    parts.append(f'<circle cx="{x:g}" cy="{base:g}" r="5" class="accent"/>')
    parts.append(
        text(x + 3, base - 11, "SV@90", colour="accent", font_weight="700", text_anchor="middle")
    )
    x, base = at(4, accuracy)
    parts.append(text(x, base + 16, f"S {100 * accuracy:.0f} %", font_weight="700"))
    x, base = at(50, 0)
    foot = "correctness threshold CT: percent of a seed’s variants that have to be right"
    parts.append(text(0, base + 38, foot, size=13, colour="quiet"))
    parts.append(
        text(0, y - 18, "SV accuracy: percent of the seeds, by threshold", size=13, colour="quiet")
    )
    return parts


def _definitions(figures: Mapping[str, Any], y: float) -> list[str]:
    """Write what each figure means."""
    sub = "r<tspan dy='4' font-size='11'>{}</tspan>"
    low, high = (float(figures[f"matching_threshold_{end}"]) for end in ("low", "high"))
    rows = (
        ("S", ("accuracy on the seeds",)),
        ("SV@CT", ("seed-variant accuracy: seeds with at least", "CT % of their variants right")),
        (
            "MC",
            (
                f"the thresholds, here {low:.0f} to {high:.0f}, at which SV",
                "is closest to S; higher is better",
            ),
        ),
        (sub.format("r"), ("of the seeds answered right: some variant", "changes the answer")),
        (
            sub.format("s"),
            (
                "the same: some variant turns E into C or C",
                "into E (if the answer is N: any change)",
            ),
        ),
    )
    parts, base = [], y
    for symbol, lines in rows:
        parts.append(text(468, base, symbol, colour="accent", font_weight="700"))
        for number, words in enumerate(lines):
            parts.append(text(530, base + 18 * number, words))
        base += 18 * len(lines) + 8
    return parts


# --- The spine ---

FILES: Final = ("NLI problems", "run folder", "dataset", "predictions", "figures")
VERBS: Final = ("suggest", "build", "predict", "score")
"""The main road: files, and the commands between them."""


def draw_spine(theme: str) -> str:
    """Draw what the commands call: the store, the models, the frame."""
    width, gap, top = 112, 80, 8
    lefts = [(width + gap) * place for place in range(len(FILES))]
    middles = [left + width + gap / 2 for left in lefts[:-1]]
    parts = []
    for left, name in zip(lefts, FILES, strict=True):
        parts += _box(left, top, width, (name,), "line")
    for left, middle, verb in zip(lefts, middles, VERBS, strict=False):
        parts += _arrow((left + width + 6, top + 22), (left + width + gap - 8, top + 22))
        parts.append(text(middle, top + 12, verb, colour="accent", text_anchor="middle"))
    store, models, frame, counts = 112, 214, 112, 214
    ends = middles[0] - 76, middles[2] + 76
    asks = ("AnswerStore.ask", "which answers are missing? ask, keep them at once, show progress")
    kinds = "masked LM, classifier, language model, server, function, baseline"
    parts += _box(ends[0], store, ends[1] - ends[0], asks, "right")
    parts += _box(ends[0], models, ends[1] - ends[0], ("Models", kinds), "right")
    parts += _box(middles[3] - 76, frame, 192, ("Frame", "dataset joined to answers"), "right")
    parts += _box(middles[3] - 76, counts, 192, ("SeedCounts", "NumPy, one row per seed"), "right")
    for middle in (middles[0], middles[2], middles[3]):
        parts += _arrow((middle, top + 32), (middle, store - 8))
    for middle in (middles[0], middles[3]):
        parts += _arrow((middle, store + 56), (middle, models - 8))
    parts += _arrow((middles[2], models - 8), (middles[2], store + 60))
    questions = ((middles[0], "questions"), (middles[2], "Answers"))
    parts += [text(x + 10, store + 82, word, size=13, colour="quiet") for x, word in questions]
    also = "also: signals, paraphrase"
    parts.append(
        text(
            (middles[0] + middles[2]) / 2,
            store - 14,
            also,
            size=13,
            colour="quiet",
            text_anchor="middle",
        )
    )
    return document(parts, models + 60, "The spine: one answer, one store, one frame", theme)


def _box(x: float, y: float, width: float, lines: Sequence[str], colour: str) -> list[str]:
    """Draw a box; its first line is bold where others follow."""
    parts = [rectangle(x, y, width, 8 + 24 * len(lines) + 10 * (len(lines) == 1), colour, 6)]
    ink = "on-right" if colour == "right" else "ink"
    for number, words in enumerate(lines):
        bold = {"font_weight": "700"} if len(lines) > 1 and not number else {}
        base = y + 22 + 22 * number + 4 * (len(lines) == 1)
        parts.append(
            text(
                x + width / 2,
                base,
                words,
                colour=ink,
                size=14 - number,
                text_anchor="middle",
                **bold,
            )
        )
    return parts


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> list[str]:
    """Draw an arrow along one axis."""
    (x0, y0), (x, y) = start, end
    dx, dy = (x > x0) - (x < x0), (y > y0) - (y < y0)
    head = [
        (x - 7 * dx - 5 * dy, y - 7 * dy - 5 * dx),
        (x, y),
        (x - 7 * dx + 5 * dy, y - 7 * dy + 5 * dx),
    ]
    return [line(points, "quiet", stroke_width="1.6") for points in ([start, end], head)]


# --- The funnel ---

STEPS: Final = (
    ("suggestions", "suggestions of the masked LM", ()),
    ("words", "whole words of letters", ("not_alphabetic", "subword")),
    ("probable", "more probable than the original", ("less_probable", "duplicate")),
    ("new", "not in the problem yet", ("in_problem",)),
    ("both", "pass in premise and hypothesis", ("other_occurrence", "other_sentence")),
    ("class", "same word class in the new sentence", ("tokenization", "other_class")),
)
"""Bars of the funnel: what is left, and after which reasons."""


def funnel_of(manifest: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Sum the funnel of a run over word classes: what is left after each step.

    Args:
        manifest: `manifest.json` of the run.

    Returns:
        A sentence and a number for each bar.

    Raises:
        ValueError: What is left in the end is not what the run kept.
    """
    totals: dict[str, int] = {}
    for row in manifest["funnel"]:
        for name, count in row.items():
            if isinstance(count, int):
                totals[name] = totals.get(name, 0) + count
    left, bars = totals["suggestions"], []
    for _, words, reasons in STEPS:
        left -= sum(totals.get(reason, 0) for reason in reasons)
        bars.append((words, left))
    if left != totals["kept"]:
        raise ValueError(f"expected {totals['kept']} kept suggestions, got {left}: another funnel?")
    return bars


def draw_funnel(run: Path, theme: str) -> str:
    """Draw the funnel: a bar for what is left after each step.

    Args:
        run: A run folder.
        theme: Key of `THEMES`.
    """
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    bars = funnel_of(manifest)
    left, width, step = 276, 500, 34
    most = max(count for _, count in bars)
    parts = []
    for number, (words, count) in enumerate(bars):
        y = 4 + step * number
        end = left + width * count / most
        kind = "kept" if number == len(bars) - 1 else "bar"
        parts += [
            text(left - 14, y + 18, words, text_anchor="end"),
            rectangle(left, y, end - left, 25, kind),
            text(end + 10, y + 18, f"{count:,}", font_weight="700"),
        ]
    y = 4 + step * len(bars) + 18
    kept = sum(row["replacements"] for row in manifest["funnel"])
    seeds = pq.read_metadata(run / "seeds.parquet").num_rows
    words = (
        f"These are {kept:,} different replacements. Of them {manifest['variants']:,} are drawn "
        f"as variants of {seeds} seeds."
    )
    parts.append(text(0, y, words, colour="quiet"))
    return document(parts, y + 12, "What becomes of the suggestions in the demo", theme)


# --- The report ---

REPORT_SIZE: Final = (1000, 1075)
"""Width and height of what is shown of it, in CSS pixels."""


def photograph(report: Path, theme: str) -> bytes:
    """Take a picture of the top of a report, as WebP.

    Args:
        report: An HTML report.
        theme: Key of `THEMES`.
    """
    from helpers.browser import chromium
    from PIL import Image

    scheme = {"name": "prefers-color-scheme", "value": "dark" if theme else "light"}
    width, height = REPORT_SIZE
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as browser:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        browser.get(report.resolve().as_uri())
        with Image.open(io.BytesIO(browser.get_screenshot_as_png())) as picture:
            packed = io.BytesIO()
            picture.convert("RGB").save(packed, "WEBP", quality=80, method=6)
    return packed.getvalue()


def main() -> None:
    """Write the pictures beside this file; without options only the drawings without data."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the README.")
    parser.add_argument("--run", type=Path, help="the demo's run folder, for the funnel")
    parser.add_argument("--report", type=Path, help="an HTML report on the demo")
    given = parser.parse_args()
    for theme in THEMES:
        (HERE / f"worked-example{theme}.svg").write_text(draw_example(theme), encoding="utf-8")
        (HERE / f"spine{theme}.svg").write_text(draw_spine(theme), encoding="utf-8")
        if given.run:
            drawn = draw_funnel(given.run, theme)
            (HERE / f"funnel{theme}.svg").write_text(drawn, encoding="utf-8")
        if given.report:
            (HERE / f"report{theme}.webp").write_bytes(photograph(given.report, theme))


if __name__ == "__main__":
    main()
