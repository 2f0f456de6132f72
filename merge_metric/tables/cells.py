"""Columns of a table: the value of a row to show, and its format."""

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
"""Value of JSON: a string, number or None, or lists and dictionaries of these."""

Row = Mapping[str, Value]

_DIFFERENCES: Final[Mapping[str, Kind]] = {"share": "points", "threshold": "gain"}

FEW_MARK: Final = "†"

FEW_NOTE: Final = f"{FEW_MARK} fewer than {FEW_SEEDS} seeds: too few to conclude from."


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
        """Format the range of an undetermined threshold; empty for any other value."""
        low, high = (row.get(f"{self.key}_{end}") for end in ("low", "high"))
        if self.kind != "threshold" or low is None or high is None:
            return ""
        return span(low, high) if is_undetermined(low, high) else ""


def columns(kind: Kind = "text", /, **headings: str) -> tuple[Column, ...]:
    """Make columns of a kind, without intervals, from keys and headings.

    >>> [(column.key, column.heading) for column in columns("count", n_seeds="seeds")]
    [('n_seeds', 'seeds')]
    """
    return tuple(Column(key, heading, kind) for key, heading in headings.items())


def interval_columns(kind: Kind, /, **headings: str) -> tuple[Column, ...]:
    """Make columns with intervals, whose keys are `<key>_ci`."""
    return tuple(Column(key, heading, kind, f"{key}_ci") for key, heading in headings.items())


def figure_column(figure: Figure, *, difference: bool = False) -> Column:
    """Make the column of a figure or of its signed differences, with intervals."""
    kind = _DIFFERENCES.get(figure.unit, figure.unit) if difference else figure.unit
    return Column(figure.key, figure.heading, kind, f"{figure.key}_ci")


def figure_values(result: Mapping[str, Any], figures: Iterable[Figure]) -> dict[str, Value]:
    """Take the values of `figure_column`s from a result: shares in 0–1, thresholds in percent."""
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
