"""Columns of the dataset by which variants are grouped, label flags among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from merge_dataset.dataset_columns import LABEL_FLAGS
from merge_dataset.schema import NLI, ProblemFormat

FLAGS: Final = "label_flags"
"""Name of the grouping by label flags: variants with each of them, and those with none."""

NO_FLAG: Final = "no flag"
"""Name of the group of variants without any."""


def groupings(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """List what variants can be grouped by: columns of the dataset, `FLAGS` where it has any."""
    flags = (FLAGS,) if flags_in(problem_format) else ()
    return "word_class", "mlms", *problem_format.mlms, "original", "replacement", *flags


def flags_in(problem_format: ProblemFormat) -> tuple[str, ...]:
    """List the label flags that files of a format have."""
    return tuple(name for name in LABEL_FLAGS if name in problem_format.optional)


def columns_of_groups(by: Sequence[str]) -> list[str]:
    """List the columns of the dataset that some groupings need."""
    return [each for name in by for each in (LABEL_FLAGS if name == FLAGS else (name,))]


def is_list(name: str) -> bool:
    """Tell whether a row has several values of a grouping."""
    return name == FLAGS or name.endswith("mlms")


def group_in_sql(name: str, problem_format: ProblemFormat) -> str:
    """Write the value, or list of values, under which a row counts."""
    if name != FLAGS:
        return f'"{name}"'
    flags = ", ".join(f"CASE WHEN {each} THEN '{each}' END" for each in flags_in(problem_format))
    found = f"list_filter([{flags}], lambda each: each IS NOT NULL)"
    return f"CASE WHEN len({found}) > 0 THEN {found} ELSE ['{NO_FLAG}'] END"
