"""Perturbations: all edits of a row of replacements in the texts of its problem.

In memory, a column may hold a row's *further edits* (other forms, articles). Files have pairs of
words (`in_full`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from generation.problems.shared_words import TaggedProblems, coarse_class
from generation.problems.substitutions import Place, Substitutions
from generation.problems.tagging import Tagger
from generation.records import (
    REPLACEMENT_KEY,
    Sentence,
    SharedWord,
    TextEdits,
    Token,
    with_columns,
)
from generation.variants.reasons import Reason

WORD, FAMILY, ARTICLE = range(3)
"""Parts of a perturbation: the shared word, its other forms, and articles before edited words."""

PLL_CHANGE: Final = "_pll_change"
"""Ending of the names of columns with changes of pseudo-log-likelihood."""

FURTHER_EDITS: Final = "further_edits"
"""Column of a row's edits besides the edits of its word; it is not written to files."""

_EDITS: Final = pa.list_(
    pa.struct(
        [("part", pa.int8()), ("text", pa.int16()), ("position", pa.int32()), ("word", pa.string())]
    )
)

Key = tuple[str, str, str, str]
"""Seed, class, word, replacement."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Edit of one token, by text and token number; `part` is `WORD`, `FAMILY` or `ARTICLE`."""

    part: int
    text: int
    position: int
    word: str


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A problem, and all edits to it."""

    sentences: Sequence[Sentence]
    edits: tuple[Edit, ...]
    """The edits in order, each token once."""

    def with_edits(self, more: Iterable[Edit]) -> Perturbation:
        """Add edits of other tokens."""
        return Perturbation(self.sentences, tuple(sorted((*self.edits, *more))))

    def token(self, edit: Edit) -> Token:
        """Return the original token of an edit."""
        return self.sentences[edit.text].tokens[edit.position]

    @property
    def is_more(self) -> bool:
        """Whether more than one word changes."""
        return len(self.pairs()) > 1

    def pairs(self) -> list[tuple[str, str]]:
        """Return the distinct (original, replacement) pairs: the word first, articles last."""
        return list(dict.fromkeys((self.token(edit).text, edit.word) for edit in self.edits))

    def is_ambiguous(self) -> bool:
        """Tell whether one replacement stands for two originals, so that it cannot be undone."""
        pairs = self.pairs()
        return len({new for _, new in pairs}) < len(pairs)

    def text_edits(self) -> list[TextEdits]:
        """Return for each text the spans that change, in order, and their new words."""
        by_text: list[TextEdits] = []
        for text in range(len(self.sentences)):
            own = sorted((self.token(e).span, e.word) for e in self.edits if e.text == text)
            by_text.append(([span for span, _ in own], [word for _, word in own]))
        return by_text


def keys_of(rows: pa.Table) -> list[Key]:
    """Return [n] the keys that identify rows."""
    return list(zip(*(rows[name].to_pylist() for name in REPLACEMENT_KEY), strict=True))


def with_further_edits(rows: pa.Table, edits: Sequence[Sequence[Edit]]) -> pa.Table:
    """Add the column of further edits."""
    column = pa.array([[asdict(edit) for edit in of_row] for of_row in edits], _EDITS)
    return rows.append_column(FURTHER_EDITS, column)


def perturbations_of(rows: pa.Table, problems: TaggedProblems) -> list[Perturbation]:
    """Return [n] the perturbations of replacements or variants that are not yet `in_full`."""
    further: list[list[Edit]] = [[]] * len(rows)
    if FURTHER_EDITS in rows.column_names:
        further = [[Edit(**edit) for edit in edits] for edits in rows[FURTHER_EDITS].to_pylist()]
    words, perturbations = words_of(problems, rows), []
    for (seed_id, word_class, word, text), more in zip(keys_of(rows), further, strict=True):
        shared, sentences = words[seed_id, word_class, word]
        edits = [
            Edit(WORD, number, position, text)
            for number, positions in enumerate(shared.positions)
            for position in positions
        ]
        perturbations.append(Perturbation(sentences, tuple(sorted([*more, *edits]))))
    return perturbations


def words_of(
    problems: TaggedProblems, rows: pa.Table
) -> dict[tuple[str, str, str], tuple[SharedWord, list[Sentence]]]:
    """Map (seed id, class, word), for all problems of some rows, to the word and its texts."""
    wanted = set(rows["seed_id"].unique().to_pylist())
    return {
        (seed.seed_id, word.word_class, word.word): (word, problems.of(seed))
        for seed, word in problems.pairs()
        if seed.seed_id in wanted
    }


def in_full(rows: pa.Table, problems: TaggedProblems) -> pa.Table:
    """Return rows as files have them: with all words that they edit, not the shared word alone.

    Where more than one word changes, `word` and `replacement` list the pairs, separated by spaces:
    the i-th word becomes the i-th replacement. Changes of log-likelihood are then null.
    """
    if FURTHER_EDITS not in rows.column_names:
        return rows
    pairs = [perturbation.pairs() for perturbation in perturbations_of(rows, problems)]
    rows = rows.drop_columns([FURTHER_EDITS])
    one_word = pa.array([len(of_row) == 1 for of_row in pairs], pa.bool_())
    new: dict[str, Any] = {
        name: [" ".join(pair[n] for pair in of_row) for of_row in pairs]
        for n, name in enumerate(("word", "replacement"))
    }
    for name in rows.column_names:
        if name.endswith(PLL_CHANGE):
            new[name] = pc.if_else(one_word, rows[name], None)
    return with_columns(rows, new)


def tags_after(
    perturbations: Sequence[Perturbation], tagger: Tagger
) -> list[dict[tuple[int, int], str | None]]:
    """Return [n] Penn tags by edited (text, token), all edits in place; None if tokens change."""
    places: dict[tuple[str, tuple[int, ...]], tuple[int, Place]] = {}
    forms: dict[tuple[str, ...], int] = {}
    of_texts, where, what = [], [], []
    for owner, perturbation in enumerate(perturbations):
        for text, sentence in enumerate(perturbation.sentences):
            edits = sorted((e.position, e.word) for e in perturbation.edits if e.text == text)
            if edits:
                positions, words = zip(*edits, strict=True)
                place = len(places), Place(sentence, positions, several=True)
                of_texts.append((owner, text, positions))
                where.append(places.setdefault((sentence.text, positions), place)[0])
                what.append(forms.setdefault(words, len(forms)))
    distinct = [place for _, place in places.values()]
    numbers = (np.array(column, np.int64) for column in (where, what))
    tags = iter(tagger.tags_after(Substitutions(distinct, list(forms), *numbers)).tolist())
    of_tokens: list[dict[tuple[int, int], str | None]] = [{} for _ in perturbations]
    for owner, text, positions in of_texts:
        for position, tag in zip(positions, tags, strict=False):
            of_tokens[owner][text, position] = None if tag < 0 else tagger.labels[tag]
    return of_tokens


def reject_in_context(
    perturbations: Sequence[Perturbation], tagger: Tagger, *, tag_match: str
) -> list[Reason | None]:
    """Return [n] the first reason to reject perturbations with all edits in place (D8), or None."""
    compared = coarse_class if tag_match == "coarse" else str
    reasons: list[Reason | None] = []
    for perturbation, tags in zip(perturbations, tags_after(perturbations, tagger), strict=True):
        reason = Reason.TOKENIZATION if None in tags.values() else None
        for (text, position), tag in tags.items() if not reason else ():
            if compared(perturbation.sentences[text].tokens[position].tag) != compared(tag or ""):
                reason = Reason.WORD_CLASS
        reasons.append(reason)
    return reasons
