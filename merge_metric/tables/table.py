"""A small table of results, as text, Markdown, HTML, LaTeX, JSON and CSV."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import StringIO
from itertools import takewhile
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, cast

from merge_dataset.files import to_json
from merge_metric.seed_variant_accuracy.figures import (
    FEW_SEEDS,
    MATCHING_RANGE,
    Figure,
    estimate,
    figure_named,
    is_undetermined,
    span,
)
from merge_metric.seed_variant_accuracy.formatting import HUNDRED, Kind, show_value

if TYPE_CHECKING:
    import jinja2

Value = Any
"""Value of JSON: a string, number or None, or lists and dictionaries of these."""

Row = Mapping[str, Value]

_DIFFERENCES: Final[Mapping[str, Kind]] = {"share": "points", "threshold": "gain"}

FEW_MARK: Final = "†"


def is_few(n_seeds: Value) -> bool:
    """Return whether figures have so few seeds that tables mark them; None means unknown."""
    return n_seeds is not None and n_seeds < FEW_SEEDS


@dataclass(frozen=True, slots=True)
class Column:
    """One value of each row, and its format."""

    key: str
    heading: str
    kind: Kind = "text"
    interval: str | None = None
    """Key of the interval [low, high] of the value, or of a text below a text."""
    optional: bool = False
    """Whether it is left out if no row has a value; CSV always has it."""

    @property
    def is_text(self) -> bool:
        """Whether values are text, aligned at the left."""
        return self.kind in ("text", "passage")

    def show(self, row: Row) -> str:
        """Format the value of a row without its interval, or the range of an undetermined one.

        A value of few seeds (`<key>_n_seeds`) and an upper bound (`<key>_at_most`) are marked.
        """
        mark = FEW_MARK if is_few(row.get(f"{self.key}_n_seeds")) else ""
        if span := self._undetermined(row):
            return f"{span}{mark}"
        shown = show_value(row.get(self.key), self.kind)
        bound = "≤" if row.get(f"{self.key}_at_most") and not shown.startswith("<") else ""
        return f"{bound}{shown}{mark}"

    def show_interval(self, row: Row, *, tight: bool = False) -> str:
        """Format an interval as "[79.9, 83.4]", or tight "79.9–83.4"; empty if there is none."""
        bounds = row.get(self.interval) if self.interval else None
        if self._undetermined(row):
            return ""
        if bounds is None or self.is_text:
            return bounds or ""
        if None in bounds:
            return ""
        signed = self.kind not in _DIFFERENCES.values()  # differences have shorter bounds
        shown = [show_value(bound, self.kind, signed=signed) for bound in bounds]
        return "–".join(shown).replace(HUNDRED, "100") if tight else f"[{', '.join(shown)}]"

    def _undetermined(self, row: Row) -> str:
        low, high = (row.get(f"{self.key}_{end}") for end in ("low", "high"))
        if self.kind != "threshold" or low is None or high is None:
            return ""
        return span(low, high) if is_undetermined(low, high) else ""


def figure_column(figure: Figure, *, difference: bool = False) -> Column:
    """Make the column of a figure or of its signed differences, with intervals."""
    kind = _DIFFERENCES.get(figure.unit, figure.unit) if difference else figure.unit
    return Column(figure.key, figure.heading, kind, f"{figure.key}_ci")


def figure_values(result: Mapping[str, Any], figures: Iterable[Figure]) -> dict[str, Value]:
    """Take the values of `figure_column`s from a result: shares in 0–1, thresholds in percent."""
    values: dict[str, Value] = {key: result[key] for key in ("n_seeds", "n_variants")}
    for figure in figures:
        value = estimate(result, figure)
        values[figure.key] = value.value
        if figure.key == "matching_threshold":
            values |= {key: result[key] for key in MATCHING_RANGE}
        if value.has_interval:
            values[f"{figure.key}_ci"] = [value.low, value.high]
    return values


# --- Headings ---


def initials(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels' first letters in upper case, or numbers if two begin alike.

    >>> initials(("entailment", "neutral", "contradiction")), initials(("no", "none"))
    (('E', 'N', 'C'), ('0', '1'))
    """
    letters = tuple(label[0].upper() for label in labels)
    if len(set(letters)) == len(letters):
        return letters
    return tuple(str(number) for number in range(len(labels)))


def legend(labels: Sequence[str]) -> str:
    """Write the legend of `initials`.

    >>> legend(("yes", "no")), legend(("no", "none"))
    ('Y(es), N(o)', '0 no, 1 none')
    """
    pairs = zip(initials(labels), labels, strict=True)
    if initials(labels)[0].isdigit():
        return ", ".join(f"{letter} {label}" for letter, label in pairs)
    return ", ".join(f"{letter}({label[1:]})" for letter, label in pairs)


WIDTH: Final = 100

_GAP: Final = "  "


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of plain values; values without a column, such as curves, are in the JSON only."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    tight: bool = False
    """Whether plain text is as narrow as possible, for many columns of figures."""

    @property
    def shown(self) -> tuple[Column, ...]:
        """Columns that are shown to readers."""
        return tuple(
            column
            for column in self.columns
            if not column.optional or any(row.get(column.key) is not None for row in self.rows)
        )

    def to_text(self) -> str:
        """Render as aligned plain text, with each interval below its value."""
        rows, notes = self._marked()
        shown = [column for column in self.shown if column.kind != "passage"]
        passages = [column for column in self.shown if column.kind == "passage"]
        lines = [[column.heading for column in shown]]
        below: dict[int, list[str]] = {}
        for row in rows:
            lines.append([column.show(row) for column in shown])
            if any(intervals := [column.show_interval(row, tight=self.tight) for column in shown]):
                lines.append(intervals)
            passages_below = below[len(lines) - 1] = []
            for column in (of for of in passages if row.get(of.key) != ""):
                heading = f"  {column.heading}: "
                text = wrap(
                    _one_line(column.show(row)),
                    WIDTH,
                    initial_indent=heading,
                    subsequent_indent=" " * len(heading),
                )
                passages_below += text or [heading]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        heading, *aligned = (
            (" " if self.tight else _GAP).join(
                cell.ljust(width) if column.is_text else cell.rjust(width)
                for cell, width, column in zip(cells, widths, shown, strict=True)
            )
            for cells in lines
        )
        text = [*wrap(self.title, WIDTH), "", heading.rstrip(), "-" * len(heading)]
        for number, line in enumerate(aligned, start=1):
            text += [line.rstrip(), *below.get(number, [])]
        if notes:
            text += ["", *(line for note in notes for line in wrap(note, WIDTH))]
        return "\n".join(text)

    __str__ = to_text

    def to_markdown(self) -> str:
        """Render as a pipe table, with the title above and the notes below."""
        rows, notes = self._marked()
        cells = [
            [column.heading for column in self.shown],
            [":--" if column.is_text else "--:" for column in self.shown],
            *([f"{c.show(row)} {c.show_interval(row)}" for c in self.shown] for row in rows),
        ]
        text = [f"**{_one_line(self.title)}**", ""]
        for line in cells:
            escaped = (re.sub(r"([\\`*_|<\[\]#])", r"\\\1", _one_line(cell)) for cell in line)
            text.append(f"| {' | '.join(escaped)} |")
        for note in notes:
            text += ["", _one_line(note)]
        return "\n".join(text)

    def to_html(self) -> str:
        """Render as an HTML table that scrolls sideways if too wide, with intervals below values.

        It sets no fonts or colours, escapes text, and has only inline styles, which GitHub allows.
        """
        rows, notes = self._marked()
        return _template("table.html.j2").render(table=self, rows=rows, notes=notes)

    _repr_html_ = to_html

    def to_latex(self, *, long: bool = False) -> str:
        """Render for LaTeX with `PACKAGES`: a `tabular`, or a `longtable` if `long`.

        Intervals stand below values, passages in the first column.
        """
        rows, notes = self._marked()
        shown = [column for column in self.shown if column.kind != "passage"]
        passages = [column for column in self.shown if column.kind == "passage"]
        lines = []
        for row in rows:
            cells = [escape(column.show(row)) for column in shown]
            for passage in passages:
                heading, text = escape(passage.heading), escape(passage.show(row))
                cells[0] += rf"\newline \textit{{{heading}:}} {text}"
            texts = [escape(column.show_interval(row)) for column in shown]
            intervals = [text and rf"{{\scriptsize {text}}}" for text in texts]
            lines.append((cells, intervals if any(intervals) else []))
        letters = ["l" if column.is_text else "r" for column in shown]
        if passages:
            letters[0] = r">{\raggedright\arraybackslash}p{0.45\linewidth}"
        return _template("table.tex.j2").render(
            name=self.name,
            sentences=(self.title, *notes),
            shown=shown,
            letters=letters,
            lines=lines,
            spaced=passages or any(intervals for _, intervals in lines),
            long=long,
            packages=PACKAGES,
        )

    def to_longtable(self) -> str:
        """Render for such a document as a table that breaks across pages."""
        return self.to_latex(long=True)

    def _marked(self) -> tuple[tuple[Row, ...], tuple[str, ...]]:
        leading = [*takewhile(lambda column: column.is_text, self.columns)]
        few = [is_few(row.get("n_seeds", row.get("n_right"))) for row in self.rows]
        keys = [f"{column.key}_n_seeds" for column in self.columns]
        if not any(few) and not any(is_few(row.get(key)) for row in self.rows for key in keys):
            return self.rows, self.notes
        rows = self.rows
        if leading:
            name = leading[-1]
            rows = tuple(
                {**row, name.key: f"{name.show(row)}{FEW_MARK}"} if is_one else row
                for row, is_one in zip(self.rows, few, strict=True)
            )
        note = f"{FEW_MARK} fewer than {FEW_SEEDS} seeds: too few to conclude from."
        return rows, (*self.notes, note)

    def to_json(self) -> str:
        """Render everything as JSON: shares as fractions of 1, thresholds in percent."""
        return to_json(self.as_dict(), allow_nan=False)

    def to_csv(self) -> str:
        """Render as CSV the cells of `flat`, unrounded; columns that the table shows come first."""
        names = dict.fromkeys(column.key for column in self.columns)
        rows = [flat(names | dict(row)) for row in self.rows]
        file = StringIO()
        header = dict.fromkeys(name for row in rows for name in row) or names
        writer = csv.DictWriter(file, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue().removesuffix("\n")

    def as_dict(self) -> dict[str, Value]:
        """Make plain values of everything, as `to_json` writes them."""
        return {
            "name": self.name,
            "title": self.title,
            "columns": {column.key: column.heading for column in self.columns},
            "rows": [dict(row) for row in self.rows],
            "notes": list(self.notes),
        }


def flat(row: Mapping[str, Value]) -> dict[str, Value]:
    """Make single cells of a row, under its keys; lists and dictionaries are left out.

    The bounds of an interval `*_ci` are `*_ci_low` and `*_ci_high`, names that no figure has.
    """
    cells: dict[str, Value] = {}
    for key, value in row.items():
        if key.endswith("_ci"):
            low, high = value or (None, None)
            cells |= {f"{key}_low": low, f"{key}_high": high}
        elif not isinstance(value, list | tuple | dict):
            cells[key] = value
    return cells


def _one_line(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Texts:
    """Templates of tables: what a reader sees of each beside its rows."""

    template_of: Callable[[str], str]
    """Name → a title, notes in further paragraphs and, below a line `---`, columns by kind.

    A line `share: good = good, %; bad = bad, %` has keys and headings; after `share ci:` columns
    have intervals, after `text optional:` they may be left out, and after `figures:` keys of the
    metric's figures are enough; `figures difference:` are signed differences. `*name` stands for
    the headings by key, or the figures, of a value called so. Templates may include one another.
    """

    @classmethod
    def read(cls, path: Path) -> Texts:
        """Read the templates of a TOML file: name → template."""
        return cls(tomllib.loads(path.read_text(encoding="utf-8")).__getitem__)

    def table(self, text: str, rows: Iterable[Row], name: str = "", **values: Any) -> Table:
        """Make a table with a text, filled with values; by default it has the text's name.

        Columns that no row has are left out.
        """
        import jinja2

        rows = tuple(rows)
        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(self.template_of), undefined=jinja2.StrictUndefined
        )
        filled = environment.get_template(text).render(values, show=show_value, rows=rows)
        told, _, shown = filled.strip().partition("\n---\n")
        title, *notes = map(_one_line, re.split(r"\n\s*\n", told.strip()))
        made: list[Column] = []
        for line in filter(None, map(str.strip, shown.split("\n"))):
            head, _, cells = line.partition(":")
            kind, *marks = cast("list[Any]", head.split())
            for cell in filter(None, map(str.strip, cells.split(";"))):
                key, _, heading = (part.strip() for part in cell.partition("="))
                several = values[key[1:]] if key.startswith("*") else {key: heading}
                if kind == "figures":
                    figures: Iterable[Any] = [figure_named(key)] if key in several else several
                    signed = "difference" in marks
                    made += [figure_column(of, difference=signed) for of in figures]
                else:
                    ends = "{}_ci" if "ci" in marks else None
                    made += [
                        Column(key, heading, kind, ends and ends.format(key), "optional" in marks)
                        for key, heading in several.items()
                    ]
        kept = (of for of in made if not rows or any(of.key in row for row in rows))
        return Table(name or text, title, tuple(kept), rows, tuple(notes))


# --- LaTeX ---

PACKAGES: Final = (r"\usepackage[T1]{fontenc}", r"\usepackage{adjustbox,array,booktabs,longtable}")
"""Preamble lines that load the LaTeX packages of the tables."""


@cache
def _template(name: str) -> jinja2.Template:
    """Read a template beside this file; in LaTeX, braces are its own."""
    import jinja2

    marks: dict[str, Any] = {}
    if name.endswith(".tex.j2"):
        marks = {"block_start_string": "<%", "block_end_string": "%>"}
        marks |= {"variable_start_string": "<<", "variable_end_string": ">>"}
        marks |= {"comment_start_string": "<#", "comment_end_string": "#>"}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=not marks,
        trim_blocks=True,
        lstrip_blocks=True,
        **marks,
    )
    environment.filters["escaped"] = escape
    return environment.get_template(name)


# --- Escapes ---

_MATHS: Final = {
    "⟨": r"\langle", "⟩": r"\rangle", "−": "-", "±": r"\pm", "×": r"\times", "·": r"\cdot",
    "≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "≈": r"\approx", "∩": r"\cap", "∪": r"\cup",
    "←": r"\leftarrow", "→": r"\rightarrow", "↔": r"\leftrightarrow", "²": "^2", "′": "'",
    "Δ": r"\Delta", "δ": r"\delta", "α": r"\alpha", "κ": r"\kappa", "λ": r"\lambda",
    "τ": r"\tau", "ρ": r"\rho", "σ": r"\sigma",
}  # fmt: skip

_COMMANDS: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"‘": "`", "’": "'", "“": "``", "”": "''", "…": r"\ldots{}", "†": r"\dag{}"},
    **{character: f"${maths}$" for character, maths in _MATHS.items()},
}

_LETTERS: Final = frozenset(map(chr, range(0xA1, 0x180))) - set("ĦħĸĿŀŉŦŧſ")
"""Non-ASCII letters that pdflatex sets with the fonts of `PACKAGES`."""

_DASHES: Final = {"–": "--", "—": "---"}


def escape(text: str) -> str:
    r"""Escape text for pdflatex, on one line; unsupported characters become their numbers.

    >>> print(escape("50 % of a_b, −3–5, --top, 猫"))
    50 \% of a\_b, $-$3--5, -{}-top, [U+732B]
    """
    escaped = "".join(
        _COMMANDS[character]
        if character in _COMMANDS
        else character
        if character.isascii() or character in _LETTERS or character in _DASHES
        else f"[U+{ord(character):04X}]"
        for character in " ".join(text.split())
    )
    escaped = escaped.replace("--", "-{}-")  # keep "--" from becoming a dash
    for dash, hyphens in _DASHES.items():
        escaped = escaped.replace(dash, hyphens)
    return re.sub(r"\br\\_([rs])\b", r"$r_\1$", escaped)  # the fooling rates
