"""Signals of variants, packed for the page: how good each replacement looks to a program.

`assets/problems.js` shows them below the replaced word; its `signalsOf` unpacks what
`pack_signals` packs. What the columns mean is in `merge_dataset/schema.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.schema import ProblemFormat

_LIKELIHOOD: Final = "likelihood_change"
"""The lower one of the changes in the texts: the text that suffers most."""

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ZERO: Final = 648
_MOST: Final = 36 * 36 - 1


@dataclass(frozen=True, slots=True)
class ShownSignal:
    """A figure of a variant on the page.

    Attributes:
        column: In the dataset.
        name: On the page.
        decimals: Digits behind the point, 0 to 2.
    """

    column: str
    name: str
    decimals: int


FIGURES: Final = (
    ShownSignal("quality", "quality", 2),
    ShownSignal("zipf_frequency", "frequency", 1),
    ShownSignal(_LIKELIHOOD, "log-likelihood", 1),
    ShownSignal("log_odds", "log-odds", 1),
    ShownSignal("mlm_count", "masked LMs", 0),
)

FAULTS: Final = {
    "number_changed": (True, "other number"),
    "tense_changed": (True, "other verb form"),
    "article_fits": (False, "article does not fit"),
}
"""Column → the value that is a fault, and its name on the page."""


SIGNALS: Final = (*(each.column for each in FIGURES), *FAULTS)
"""Columns of `as_signals`."""

_KINDS: Final = {each.column: pa.float64() for each in FIGURES} | dict.fromkeys(FAULTS, pa.bool_())
"""Column → its type on the page."""


def signal_columns(names: Collection[str], problem_format: ProblemFormat) -> list[str]:
    """List the columns that `as_signals` looks at among those of a file."""
    return [name for name in (*_KINDS, *problem_format.pll_changes) if name in names]


def as_signals(table: pa.Table, problem_format: ProblemFormat) -> pa.Table:
    """Bring the signals of variants into one form: null where a file has none.

    Args:
        table: With the columns of `signal_columns`.
        problem_format: Of these variants.
    """
    columns = {
        name: table[name].cast(kind)
        if name in table.column_names
        else pa.chunked_array([pa.nulls(len(table), kind)])
        for name, kind in _KINDS.items()
    }
    if changes := [name for name in problem_format.pll_changes if name in table.column_names]:
        columns[_LIKELIHOOD] = pc.min_element_wise(
            *(table[name].cast(pa.float64()) for name in changes)
        )
    return pa.table(columns)


def pack_signals(variants: pa.Table, order: Sequence[int]) -> dict[str, Any]:
    """Pack the signals of variants: two characters for each figure, one for all faults.

    Args:
        variants: With the columns of `as_signals`.
        order: Rows, in the order of the page.

    Returns:
        Figures that tell variants apart, and names and codes of faults.
    """
    rows = variants.take(pa.array(order, pa.int64()))
    figures = [
        {
            "name": each.name,
            "decimals": each.decimals,
            "codes": "".join(
                _code(value, each.decimals) for value in rows[each.column].to_pylist()
            ),
        }
        for each in FIGURES
        if len(rows[each.column].unique()) > 1
    ]
    flags = [
        [value is bad for value in rows[name].to_pylist()] for name, (bad, _) in FAULTS.items()
    ]
    return {
        "figures": figures,
        "faults": [name for _, name in FAULTS.values()],
        "faulty": "".join(_bits(each) for each in zip(*flags, strict=True)),
    }


def _code(value: float | None, decimals: int) -> str:
    """Write a figure as a number of base 36, or "--".

    With two decimals from -6.48 to 6.47, with one from -64.8 to 64.7; the page marks both ends.

    >>> _code(0.0, 2), _code(4.1, 2), _code(-3.2, 1), _code(None, 0)
    ('i0', 'te', 'h4', '--')
    """
    if value is None or math.isnan(value):
        return "--"
    number = min(max(round(value * 10**decimals) + _ZERO, 0), _MOST)
    return _DIGITS[number // 36] + _DIGITS[number % 36]


def _bits(flags: Iterable[bool]) -> str:
    """Write truth values as one digit, the first as the lowest bit.

    >>> _bits([True, False, True])
    '5'
    """
    return str(sum(flag << place for place, flag in enumerate(flags)))
