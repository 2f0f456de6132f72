"""A small table of results, as text, Markdown, HTML, LaTeX, JSON and CSV."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from io import StringIO
from itertools import takewhile
from textwrap import wrap
from typing import Final

from merge_dataset.files import to_json
from merge_metric.tables import latex
from merge_metric.tables.cells import FEW_MARK, FEW_NOTE, Column, Row, Value, is_few

WIDTH: Final = 100

_GAP: Final = "  "

_TABLE: Final = "border-collapse: collapse; font-variant-numeric: tabular-nums"
_CAPTION: Final = (
    "caption-side: top; text-align: left; color: inherit; font-weight: 600; padding: 0.3em 0"
)
_CELL: Final = "padding: 0.25em 0.6em; vertical-align: top; text-align: {}"
_SMALL: Final = "opacity: 0.75; white-space: nowrap"


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
            told = below[len(lines) - 1] = []
            for column in (each for each in passages if row.get(each.key) != ""):
                heading = f"  {column.heading}: "
                text = wrap(
                    _one_line(column.show(row)),
                    WIDTH,
                    initial_indent=heading,
                    subsequent_indent=" " * len(heading),
                )
                told += text or [heading]
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
        styles = [_CELL.format("left" if column.is_text else "right") for column in self.shown]
        headings = "".join(
            f'<th scope="col" style="{style}">{escape(column.heading)}</th>'
            for column, style in zip(self.shown, styles, strict=True)
        )
        lines = [
            '<div style="overflow-x: auto">',
            f'<table style="{_TABLE}">',
            f'<caption style="{_CAPTION}">{escape(self.title)}</caption>',
            f"<thead><tr>{headings}</tr></thead>",
            "<tbody>",
        ]
        for row in rows:
            cells = []
            for column, style in zip(self.shown, styles, strict=True):
                shown = escape(_one_line(column.show(row)))
                if interval := column.show_interval(row, tight=True):
                    shown += f'<br><small style="{_SMALL}">{escape(interval)}</small>'
                cells.append(f'<td style="{style}">{shown}</td>')
            lines.append(f"<tr>{''.join(cells)}</tr>")
        lines += ["</tbody>", "</table>"]
        lines += [f'<p style="opacity: 0.75">{escape(note)}</p>' for note in notes]
        return "\n".join([*lines, "</div>"])

    _repr_html_ = to_html

    def to_latex(self, *, long: bool = False) -> str:
        """Render for LaTeX with `latex.PACKAGES`: a `tabular`, or a `longtable` if `long`."""
        rows, notes = self._marked()
        return latex.to_latex(self.name, (self.title, *notes), self.shown, rows, long=long)

    def to_longtable(self) -> str:
        """Render for such a document as a table that breaks across pages."""
        return self.to_latex(long=True)

    def _marked(self) -> tuple[tuple[Row, ...], tuple[str, ...]]:
        """Mark rows with few seeds (`n_seeds` or `n_right`), and add a note on the mark."""
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
        return rows, (*self.notes, FEW_NOTE)

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
