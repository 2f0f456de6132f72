"""Counts of the variants that share a value: a word class, a masked LM, any column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from .columns import Ints
from .counts import SeedCounts, count
from .inputs import Rows


def count_all_groups(
    rows: Rows, groups: Mapping[str, Sequence[Any]], opposites: tuple[tuple[str, str], ...]
) -> dict[str, dict[str, SeedCounts]]:
    """Count the values of several columns, see `count_groups`: name → value → counts.

    Raises:
        ValueError: no mapping, or not one entry per row.
    """
    if not isinstance(groups, Mapping):
        raise ValueError(f"groups: expected a mapping from names to columns, got {groups!r}")
    return {
        str(name): count_groups(rows, str(name), values, opposites)
        for name, values in groups.items()
    }


def count_groups(
    rows: Rows, name: str, values: Sequence[Any], opposites: tuple[tuple[str, str], ...]
) -> dict[str, SeedCounts]:
    """Count the variants with each value of a column, over the seeds that have some.

    Args:
        rows: n rows.
        name: How messages call the column.
        values: One value per row, or a list of values, under each of which the row
            counts; None for none.
        opposites: As `count` takes them.

    Returns:
        Value → counts, in the order of the values' text. A value of which no subsample
        drew a row is left out.

    Raises:
        ValueError: not one entry per row.
    """
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != len(rows.seed):
        got = f"{len(values):,}" if hasattr(values, "__len__") else repr(values)
        raise ValueError(
            f"groups[{name!r}]: expected one value, or list of values, for each of "
            f"{len(rows.seed):,} variants, got {got}"
        )
    try:
        names, member_row, member_code = _members(values)
    except TypeError as error:
        raise ValueError(
            f"groups[{name!r}]: expected strings or numbers, or lists of them; {error}"
        ) from error
    draw, code = _draws_of(rows, member_row, member_code)
    order = np.argsort(code, kind="stable")
    ends = np.searchsorted(code[order], np.arange(1, len(names)))
    parts = zip(names, np.split(draw[order], ends), strict=True) if names else ()
    return {value: count(rows, opposites, draws) for value, draws in parts if len(draws)}


def _members(values: Sequence[Any]) -> tuple[list[str], Ints, Ints]:
    """Find the distinct values, and pairs of a row and the position of one of its values."""
    rows = np.arange(len(values))
    flat: Sequence[Any] = values
    if any(issubclass(kind, list | tuple | set | np.ndarray) for kind in set(map(type, values))):
        several = [
            value if isinstance(value, list | tuple | set | np.ndarray) else (value,)
            for value in values
        ]
        rows = np.repeat(rows, np.fromiter(map(len, several), np.int64, count=len(several)))
        flat = list(chain.from_iterable(several))
    present = (value for value in dict.fromkeys(flat) if value is not None and value == value)
    texts = {value: str(value) for value in present}  # NaN is not itself
    names = sorted(set(texts.values()))
    position = {name: code for code, name in enumerate(names)}
    code_of = {value: position[text] for value, text in texts.items()}
    codes = np.fromiter((code_of.get(value, -1) for value in flat), np.int64, count=len(flat))
    # Ascending by row; a row that names a value twice counts once.
    member = np.sort(rows[codes >= 0] * len(names) + codes[codes >= 0])
    member = member[np.diff(member, prepend=-1) > 0]
    return names, member // max(1, len(names)), member % max(1, len(names))


def _draws_of(rows: Rows, member_row: Ints, member_code: Ints) -> tuple[Ints, Ints]:
    """Find the draws of each member's row, as positions in `rows.draw_row`, and its code."""
    n_draws = np.bincount(rows.draw_row, minlength=len(rows.seed))
    first = np.cumsum(n_draws) - n_draws  # draws are in the order of rows
    times = n_draws[member_row]
    start = np.repeat(first[member_row] - (np.cumsum(times) - times), times)
    return start + np.arange(len(start)), np.repeat(member_code, times)
