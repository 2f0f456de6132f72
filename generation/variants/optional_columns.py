"""Optional columns: filled for builds that ask for them, or whose limits want them.

A column is an entry of `COLUMNS` in `merge_dataset/dataset_columns.py` with `optional=True`, and
a function here that gives its values: of `BlockRows`, which have the replacements as they are
written and, where that is wanted, all that each of them edits. `--with-column NAME` asks for it; a
limit on it is a setting, named in `Config.optional_columns`, and a reason
(`signal_columns._LIMITS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from generation.problems.shared_words import TaggedProblems
from generation.records import Sentence
from generation.signals import grammar
from generation.signals.quality import quality
from generation.signals.valency import valency
from generation.variants.perturbations import WORD, Perturbation, perturbations_of

_FLAG: Final = pa.bool_()


@dataclass(frozen=True)
class BlockRows:
    """Replacements or variants of a block, for the functions that fill columns."""

    written: pa.Table
    """As they are written, `in_full`, with the signals that every build has."""
    edited: pa.Table
    """Rows once more, each by its word alone, with their further edits."""
    problems: TaggedProblems
    likelihoods: tuple[str, ...] = ()
    """Columns with changes of log-likelihood, where a causal language model computed them."""

    @cached_property
    def perturbations(self) -> list[Perturbation]:
        """[n] All that each row edits."""
        return perturbations_of(self.edited, self.problems)

    def column(self, name: str) -> pa.Array:
        """Return the values of any signal, filled where it is an optional one."""
        if name in FILLERS:
            return FILLERS[name](self)
        return self.written[name].combine_chunks()


_Answer = TypeVar("_Answer", bool, float)


def _at_words(
    ask: Callable[[Sentence, int, str], _Answer | None],
    together: Callable[[Iterable[_Answer]], _Answer],
    kind: pa.DataType = _FLAG,
) -> Callable[[BlockRows], pa.Array]:
    """Make a column of answers about the places where words are replaced, other edits aside.

    Args:
        ask: Answers about one place: the sentence, the number of the token, the new word.
        together: Makes one answer of those that are known of a row.
        kind: Type of the column.
    """

    def fill(rows: BlockRows) -> pa.Array:
        known: dict[tuple[int, int, str], _Answer | None] = {}

        def answer(sentence: Sentence, position: int, word: str) -> _Answer | None:
            key = id(sentence), position, word
            if key not in known:
                known[key] = ask(sentence, position, word)
            return known[key]

        found = []
        for each in rows.perturbations:
            answers = [
                answer(each.sentences[edit.text], edit.position, edit.word)
                for edit in each.edits
                if edit.part == WORD
            ]
            there = [value for value in answers if value is not None]
            found.append(together(there) if there else None)
        return pa.array(found, kind)

    return fill


def _fill_quality(rows: BlockRows) -> pa.Array:
    """Estimate quality of what replaces one word; unknown where several change at once."""
    values = quality(rows.column, rows.likelihoods)
    several = pc.greater(pc.count_substring(rows.edited["word"], " "), 0).combine_chunks()
    return pc.if_else(several, pa.scalar(None, values.type), values)


FILLERS: Final[Mapping[str, Callable[[BlockRows], pa.Array]]] = {
    "form_attested": _at_words(grammar.form_attested, all),
    "number_agrees": _at_words(grammar.number_agrees, all),
    "determiner_fits": _at_words(grammar.determiner_fits, all),
    "in_compound": _at_words(
        lambda sentence, position, _: grammar.in_compound(sentence, position), any
    ),
    "valency": _at_words(valency, min, pa.float32()),
    "quality": _fill_quality,
}
"""Optional column → the function that gives its values, a row each."""

OF_DICTIONARY: Final = frozenset(FILLERS) - {"in_compound"}
"""Columns that want lemminflect."""


def with_optional_columns(rows: BlockRows, names: Sequence[str]) -> pa.Table:
    """Fill the optional columns of rows as they are written.

    Args:
        rows: Their columns of these names are there, and empty.
        names: Optional columns.
    """
    table = rows.written
    for name in names:
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        table = table.set_column(place, field, rows.column(name).cast(field.type))
    return table
