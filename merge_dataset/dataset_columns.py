"""The columns of the dataset: what each is called, its type, and what it means."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class DatasetColumn:
    """A column of the dataset, or a column for each of a problem's texts."""

    name: str
    """Name; with `{field}` in it, there is a column for each text."""
    kind: str
    """Its type: a key in `arrow_schema`."""
    meaning: str
    """Its content where words are replaced; `{labels}` stands for labels with numbers."""
    in_paraphrases: str = ""
    """Its content in paraphrases, where that is something else."""
    optional: bool = False
    limited_by: str = ""
    """The setting that limits it."""
    refused: bool | None = None
    """The answer of a flag that this setting refuses."""
    of_words: bool = False
    """Whether it says nothing of shuffled letters, so that builds with them do not have it."""
    by_dictionary: bool = False
    """Whether lemminflect computes it."""

    def names(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Names of the columns for these texts."""
        if "{field}" not in self.name:
            return (self.name,)
        return tuple(self.name.format(field=field) for field in fields)


_TABLES: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

COLUMNS: Final = tuple(DatasetColumn(**table) for table in _TABLES["columns"])
"""The columns of both splits; those from `word_class` to `subsamples` are empty in `seeds`."""

OPTIONAL: Final = tuple(column.name for column in COLUMNS if column.optional)

OF_WORDS: Final = tuple(column.name for column in COLUMNS if column.of_words)

LIMITS: Final = {c.name: (c.limited_by, c.refused) for c in COLUMNS if c.limited_by}
"""Column → the setting that limits it, and the answer that this refuses; None for numbers."""
