"""A table in LaTeX, as narrow and as low as a page of the class `article`.

Intervals stand below their values and long texts in the first column. What is still too wide
or too high becomes several tables. Widths are estimates: LaTeX alone knows the true ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from merge_metric.tables.table import Column, Row, Table

PACKAGES: Final = (r"\usepackage[T1]{fontenc}", r"\usepackage{array,booktabs}")
"""What the tables need."""

_WIDTH: Final = 345.0
"""Of a line, in points: that of `article` on paper of any size."""

_HEIGHT: Final = 48.0
"""Of a table, in lines."""

_CHARACTER: Final = 4.3
"""Width of a character on average, in points, at \\footnotesize."""

_SMALLER: Final = 0.88
"""Width of an interval's characters relative to that."""

_GAP: Final = 6.0
"""Between columns, in points."""

_TEXT: Final = 0.2
"""The widest column of texts that are not wrapped, of the line's width."""

_LEAST: Final = 0.32
"""The narrowest column of long texts, of the line's width."""


def to_latex(table: Table) -> str:
    """One or several floating tables, which need `PACKAGES`."""
    return "\n\n".join(floats(table))


def floats(table: Table) -> list[str]:
    """A table as floating ones that each fit on a page."""
    parts = [part for narrow in _across(table) for part in _down(narrow)]
    if len(parts) == 1:
        return [_float(table)]
    return [
        _float(
            replace(
                part,
                name=f"{table.name}-{number}",
                title=f"{table.title} ({number} of {len(parts)})",
            )
        )
        for number, part in enumerate(parts, start=1)
    ]


def _float(table: Table) -> str:
    headings = [escape(column.heading) for column in _columns(table)]
    separator = "\n\\addlinespace\n" if _is_spaced(table) else "\n"
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            r"\footnotesize",
            rf"\setlength{{\tabcolsep}}{{{_GAP / 2:g}pt}}",
            rf"\begin{{tabular}}{{{_format(table)}}}",
            r"\toprule",
            _line(headings),
            r"\midrule",
            *([separator.join(_row(table, row) for row in table.rows)] if table.rows else ()),
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{' '.join(map(_sentence, (table.title, *table.notes)))}}}",
            rf"\label{{tab:{table.name}}}",
            r"\end{table}",
        ]
    )


def _row(table: Table, row: Row) -> str:
    """A row, and below it the intervals that it has."""
    columns = _columns(table)
    first, *others = (
        _breakable(column.show(row)) if _is_wrapped(table, column) else escape(column.show(row))
        for column in columns
    )
    for passage in _passages(table):
        first += rf"\newline \textit{{{escape(passage.heading)}:}} {escape(passage.show(row))}"
    line = _line([first, *others])
    intervals = [column.show_interval(row) for column in columns]
    if not any(intervals):
        return line
    below = [rf"{{\scriptsize {escape(text)}}}" if text else "" for text in intervals]
    return f"{line}\n{_line(below)}"


def _line(cells: Sequence[str]) -> str:
    line = " & ".join(cells)
    # After the \\ of the line above, a bracket or asterisk would be an argument.
    return ("{}" if line.startswith(("[", "*")) else "") + line + r" \\"


def _sentence(text: str) -> str:
    return escape(text if text.endswith((".", "!", "?")) else f"{text}.")


# --- Widths ---


def _columns(table: Table) -> list[Column]:
    return [column for column in table.columns if column.kind != "passage"]


def _passages(table: Table) -> list[Column]:
    return [column for column in table.columns if column.kind == "passage"]


def _width(table: Table, column: Column) -> float:
    """Of a column, with the gap beside it, in points."""
    shown = max([len(column.heading), *(len(column.show(row)) for row in table.rows)])
    intervals = [_SMALLER * len(column.show_interval(row)) for row in table.rows]
    width = _CHARACTER * max([shown, *intervals])
    return _GAP + (min(width, _TEXT * _WIDTH) if column.is_text else width)


def _is_wrapped(table: Table, column: Column) -> bool:
    """Whether a column is one of several lines: with passages, or of long names."""
    if column is table.columns[0] and _passages(table):
        return True
    return column.is_text and _width(table, column) == _GAP + _TEXT * _WIDTH


def _share(table: Table, column: Column) -> float:
    """Of a wrapped column, of the line's width: with passages, what the others leave."""
    if column is not table.columns[0] or not _passages(table):
        return _TEXT
    others = sum(_width(table, column) for column in _columns(table)[1:])
    return max(_LEAST, 1 - others / _WIDTH)


def _format(table: Table) -> str:
    """The argument of `tabular`."""

    def letter(column: Column) -> str:
        if not _is_wrapped(table, column):
            return "l" if column.is_text else "r"
        return rf">{{\raggedright\arraybackslash}}p{{{_share(table, column):.2f}\linewidth}}"

    return f"@{{}}{''.join(map(letter, _columns(table)))}@{{}}"


# --- Parts ---


def _across(table: Table) -> list[Table]:
    """Tables beside each other: texts in all of them, numbers shared out."""
    texts = [column for column in table.columns if column.is_text]
    numbers = [column for column in table.columns if not column.is_text]
    room = _WIDTH - sum(_width(table, column) for column in texts)
    needed = sum(_width(table, column) for column in numbers)
    if needed <= room or _passages(table):
        return [table]
    n_parts = min(len(numbers), math.ceil(needed / max(room, 1.0)))
    size = math.ceil(len(numbers) / n_parts)
    return [
        replace(table, columns=(*texts, *numbers[start : start + size]))
        for start in range(0, len(numbers), size)
    ]


def _down(table: Table) -> list[Table]:
    """Tables below each other; what is the same in the first column stays together if it can."""
    parts: list[list[Row]] = [[]]
    free = _HEIGHT
    for _, group in groupby(table.rows, key=table.columns[0].show):
        rows = list(group)
        whole = sum(_height(table, row) for row in rows)
        for row in rows:
            height = _height(table, row)
            needed = whole if row is rows[0] and whole <= _HEIGHT else height
            if parts[-1] and needed > free:
                parts.append([])
                free = _HEIGHT
            parts[-1].append(row)
            free -= height
    return [replace(table, rows=tuple(rows)) for rows in parts]


def _height(table: Table, row: Row) -> float:
    """Of a row, with the space below it, in lines."""
    if not _is_spaced(table):
        return 1.0
    lines = max(_lines(table, column, row) for column in _columns(table))
    return lines + any(column.show_interval(row) for column in table.columns) + 0.5


def _lines(table: Table, column: Column, row: Row) -> int:
    """Of a cell, without its interval."""
    if not _is_wrapped(table, column):
        return 1
    texts = [column.show(row)]
    if column is table.columns[0]:
        texts += [f"{each.heading}: {each.show(row)}" for each in _passages(table)]
    room = _share(table, column) * _WIDTH / _CHARACTER
    return sum(math.ceil(len(text) / room) for text in texts)


def _is_spaced(table: Table) -> bool:
    """Whether there is a little space between rows, as some are of several lines."""
    return any(_is_wrapped(table, column) for column in table.columns) or any(
        column.show_interval(row) for column in table.columns for row in table.rows
    )


# --- Escapes ---


_COMMANDS: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "∩": r"$\cap$",
    "∪": r"$\cup$",
    "←": r"$\leftarrow$",
    "→": r"$\rightarrow$",
    "↔": r"$\leftrightarrow$",
    "²": "$^2$",
    "′": "$'$",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "κ": r"$\kappa$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
}

_LETTERS: Final = frozenset(map(chr, range(0xA1, 0x180))) - set("ĦħĸĿŀŉŦŧſ")
"""Beyond ASCII, what pdflatex sets with the fonts of `PACKAGES`."""

_DASHES: Final = {"–": "--", "—": "---"}


def escape(text: str) -> str:
    r"""Text on one line, as pdflatex sets it; characters that it cannot by their number.

    >>> print(escape("50 % of a_b, −3–5, --top, 猫"))
    50 \% of a\_b, $-$3--5, -{}-top, [U+732B]
    """
    escaped = "".join(map(_escaped, " ".join(text.split())))
    escaped = escaped.replace("--", "-{}-")  # no dash
    for dash, hyphens in _DASHES.items():
        escaped = escaped.replace(dash, hyphens)
    return re.sub(r"\br\\_([rs])\b", r"$r_\1$", escaped)  # the fooling rates


def _escaped(character: str) -> str:
    if character in _COMMANDS:
        return _COMMANDS[character]
    if character.isascii() or character in _LETTERS or character in _DASHES:
        return character
    return f"[U+{ord(character):04X}]"


def _breakable(name: str) -> str:
    """A name, such as a model's or a seed's, that may be broken at its marks too."""
    escaped = escape(name)
    for mark in ("/", ":", ".", r"\_"):
        escaped = escaped.replace(mark, rf"{mark}\allowbreak{{}}")
    return escaped
