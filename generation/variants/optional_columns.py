"""Optional columns: filled for builds that ask for them, or that set a limit on them.

A column is an entry of `COLUMNS` in `merge_dataset/dataset_columns.py` with `optional=True`, and of
`FILLERS` here. A limit on it is a setting, listed in `Config.optional_columns`, and a `Reason`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from generation.config import Config
from generation.problems.shared_words import TaggedProblems
from generation.records import Sentence
from generation.variants import grammar
from generation.variants.grammar import require_library
from generation.variants.perturbations import WORD, Perturbation, keys_of, perturbations_of
from generation.variants.signal_columns import SignalFile, quality
from merge_dataset.dataset_columns import OF_WORDS


@dataclass(frozen=True)
class BlockRows:
    """Replacements or variants of a block, for the functions that fill columns."""

    written: pa.Table
    """The rows as files have them, `in_full`, with the signals that every build has."""
    edited: pa.Table
    """These rows before `in_full`: each with its word alone, and its further edits."""
    problems: TaggedProblems
    config: Config
    signals: Mapping[str, SignalFile] = field(default_factory=dict)
    """Outputs of `merge-nli signals`, by name: `signals` and `neighbours`."""

    @cached_property
    def perturbations(self) -> list[Perturbation]:
        """[n] All edits of each row."""
        return perturbations_of(self.edited, self.problems)

    def column(self, name: str) -> pa.Array:
        """Return the values of any signal, filled if it is optional."""
        if name in FILLERS:
            return FILLERS[name](self)
        return self.written[name].combine_chunks()


def _at_words(
    ask: Callable[[Sentence, int, str], bool | None], together: Callable[[Iterable[bool]], bool]
) -> Callable[[BlockRows], pa.Array]:
    """Make a filler that asks about each replaced word; `together` combines known answers."""

    def fill(rows: BlockRows) -> pa.Array:
        known: dict[tuple[int, int, str], bool | None] = {}
        combined = []
        for perturbation in rows.perturbations:
            answers = []
            for edit in perturbation.edits:
                if edit.part == WORD:
                    sentence = perturbation.sentences[edit.text]
                    key = id(sentence), edit.position, edit.word
                    if key not in known:
                        known[key] = ask(sentence, edit.position, edit.word)
                    if (answer := known[key]) is not None:
                        answers.append(answer)
            combined.append(together(answers) if answers else None)
        return pa.array(combined, pa.bool_())

    return fill


def _fill_quality(rows: BlockRows) -> pa.Array:
    def column(name: str) -> pa.Array:
        values = rows.column(name)
        if name == "neighbour_change" and rows.config.scored_by:
            # A row without a score, or not scored yet, counts as the best: see `SCORED`.
            return pc.fill_null(values, 0.0)
        return values

    changes = rows.signals.get("signals")
    is_used = changes is not None and changes.is_causal and not rows.config.scored_by
    return quality(column, rows.config.problem_format.pll_changes if is_used else ())


def _fill_neighbour_change(rows: BlockRows) -> pa.Array:
    neighbours = rows.signals.get("neighbours")
    if neighbours is None or not len(rows.written):
        return pa.nulls(len(rows.written), pa.float32())
    return neighbours.of(rows.written)["neighbour_change"].combine_chunks()


def _fill_common_mlm_count(rows: BlockRows) -> pa.Array:
    table = rows.written
    standing = {
        (seed.seed_id, word.word_class, word.word): [n for n, at in enumerate(word.positions) if at]
        for seed, word in rows.problems.pairs()
    }
    fields = [table[name].to_pylist() for name in table.column_names if name.endswith("_mlms")]
    counts = []
    for (seed_id, word_class, words, _), *mlms in zip(keys_of(table), *fields, strict=True):
        # Where other words change too, the shared word comes first.
        texts = standing[seed_id, word_class, words.partition(" ")[0]]
        counts.append(len(set.intersection(*(set(mlms[text]) for text in texts))))
    return pa.array(counts, pa.int32())


FILLERS: Final[Mapping[str, Callable[[BlockRows], pa.Array]]] = {
    "form_attested": _at_words(grammar.form_attested, all),
    "number_agrees": _at_words(grammar.number_agrees, all),
    "determiner_fits": _at_words(grammar.determiner_fits, all),
    "in_compound": _at_words(
        lambda sentence, position, _: grammar.in_compound(sentence, position), any
    ),
    "mean_rank": lambda rows: rows.written["mean_rank"].combine_chunks(),
    "neighbour_change": _fill_neighbour_change,
    "quality": _fill_quality,
    "common_mlm_count": _fill_common_mlm_count,
}

DECIDING_NOTHING: Final = ("common_mlm_count",)
"""Columns without a limit, which need not be filled before rows are chosen."""

_WITHOUT_DICTIONARY: Final = ("mean_rank", "neighbour_change", "in_compound", *DECIDING_NOTHING)


def require_dictionary(config: Config) -> None:
    """Raise ValueError if a column of the build needs lemminflect, which is not installed."""
    if wanting := [name for name in config.optional_columns if name not in _WITHOUT_DICTIONARY]:
        require_library(", ".join(wanting))


def require_columns(config: Config, asked: str | Sequence[str] | None) -> None:
    """Raise ValueError if columns that are asked for by name cannot be filled."""
    names = (asked,) if isinstance(asked, str) else asked or ()
    if gone := [name for name in names if name not in (config.with_columns or ())]:
        raise ValueError(
            f"with_columns: expected none of {', '.join(OF_WORDS)} with scramble, as they are "
            f"of words, got {', '.join(gone)}; leave out one or the other"
        )
