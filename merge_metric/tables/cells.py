"""Columns of a table: which value of a row is shown, and how."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from merge_metric.seed_variant_accuracy.figures import (
    FEW_SEEDS,
    MATCHING_RANGE,
    Figure,
    estimate,
    is_undetermined,
    span,
)
from merge_metric.seed_variant_accuracy.formatting import HUNDRED, Kind, show_value

Value = Any
"""A string, number or None, or lists and dictionaries of them: what JSON knows."""

Row = Mapping[str, Value]

_DIFFERENCES: Final[Mapping[str, Kind]] = {"share": "points", "threshold": "gain"}

FEW_MARK: Final = "†"

FEW_NOTE: Final = f"{FEW_MARK} fewer than {FEW_SEEDS} seeds: too few to conclude from."


def is_few(n_seeds: Value) -> bool:
    """Tell whether figures are of so few seeds that tables mark them; None is unknown."""
    return n_seeds is not None and n_seeds < FEW_SEEDS


@dataclass(frozen=True, slots=True)
class Column:
    """One value of each row, and how it is shown."""

    key: str
    heading: str
    kind: Kind = "text"
    interval: str | None = None
    """Key of the [low, high] of the value, or of a text that goes below a text."""
    optional: bool = False
    """Whether it is left out where no row has a value; CSV has it all the same."""

    @property
    def is_text(self) -> bool:
        """Whether values stand at the left of their column."""
        return self.kind in ("text", "passage")

    def show(self, row: Row) -> str:
        """Write the value of a row, without its interval; of an undetermined one its range.

        A value of few seeds (`<key>_n_seeds`) is marked, as is an upper bound (`<key>_at_most`).
        """
        mark = FEW_MARK if is_few(row.get(f"{self.key}_n_seeds")) else ""
        if span := self._undetermined(row):
            return f"{span}{mark}"
        shown = show_value(row.get(self.key), self.kind)
        bound = "≤" if row.get(f"{self.key}_at_most") and not shown.startswith("<") else ""
        return f"{bound}{shown}{mark}"

    def show_interval(self, row: Row, *, tight: bool = False) -> str:
        """Write an interval as "[79.9, 83.4]", tight as "79.9–83.4"; empty where there is none."""
        bounds = row.get(self.interval) if self.interval else None
        if self._undetermined(row):
            return ""
        if bounds is None or self.is_text:
            return bounds or ""
        if None in bounds:
            return ""
        signed = self.kind not in _DIFFERENCES.values()  # whose bounds are shorter
        shown = [show_value(bound, self.kind, signed=signed) for bound in bounds]
        return "–".join(shown).replace(HUNDRED, "100") if tight else f"[{', '.join(shown)}]"

    def _undetermined(self, row: Row) -> str:
        """Write the range of a threshold that says nothing; empty for any other value."""
        low, high = (row.get(f"{self.key}_{end}") for end in ("low", "high"))
        if self.kind != "threshold" or low is None or high is None:
            return ""
        return span(low, high) if is_undetermined(low, high) else ""


def columns(kind: Kind = "text", /, **headings: str) -> tuple[Column, ...]:
    """Make columns of a kind, without intervals, by their keys and headings.

    >>> [(column.key, column.heading) for column in columns("count", n_seeds="seeds")]
    [('n_seeds', 'seeds')]
    """
    return tuple(Column(key, heading, kind) for key, heading in headings.items())


def interval_columns(kind: Kind, /, **headings: str) -> tuple[Column, ...]:
    """Make columns with intervals, which rows have under `<key>_ci`."""
    return tuple(Column(key, heading, kind, f"{key}_ci") for key, heading in headings.items())


def figure_column(figure: Figure, *, difference: bool = False) -> Column:
    """Make the column of a figure, or of its signed differences, and their intervals."""
    kind = _DIFFERENCES.get(figure.unit, figure.unit) if difference else figure.unit
    return Column(figure.key, figure.heading, kind, f"{figure.key}_ci")


def figure_values(result: Mapping[str, Any], figures: Iterable[Figure]) -> dict[str, Value]:
    """Take the values of `figure_column`s from a result: shares of 1, thresholds in percent."""
    values: dict[str, Value] = {key: result[key] for key in ("n_seeds", "n_variants")}
    for figure in figures:
        found = estimate(result, figure)
        values[figure.key] = found.value
        if figure.key == "matching_threshold":
            values |= {key: result[key] for key in MATCHING_RANGE}
        if found.has_interval:
            values[f"{figure.key}_ci"] = [found.low, found.high]
    return values


# --- Headings ---


def initials(labels: Sequence[str]) -> tuple[str, ...]:
    """Make a letter of each label, in upper case; numbers where two begin alike.

    >>> initials(("entailment", "neutral", "contradiction")), initials(("no", "none"))
    (('E', 'N', 'C'), ('0', '1'))
    """
    letters = tuple(label[0].upper() for label in labels)
    if len(set(letters)) == len(letters):
        return letters
    return tuple(str(number) for number in range(len(labels)))


def legend(labels: Sequence[str]) -> str:
    """Explain `initials`.

    >>> legend(("yes", "no")), legend(("no", "none"))
    ('Y(es), N(o)', '0 no, 1 none')
    """
    pairs = zip(initials(labels), labels, strict=True)
    if initials(labels)[0].isdigit():
        return ", ".join(f"{letter} {label}" for letter, label in pairs)
    return ", ".join(f"{letter}({label[1:]})" for letter, label in pairs)
