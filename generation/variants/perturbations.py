"""Perturbations: all edits of a row of replacements in the texts of its problem.

Beside the shared word itself, a row may edit other words: see `further_edits.py`. In memory, a
column may hold a row's further edits; files have pairs of words (`in_full`).
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from generation.problems.tagging import TaggedProblems
from generation.records import (
    REPLACEMENT_KEY,
    Sentence,
    Span,
    TextEdits,
    Token,
    sorted_replacements,
    with_columns,
)
from generation.variants.equation import match_case
from generation.variants.reasons import WordKey

WORD, FAMILY, ARTICLE = range(3)
"""Parts of a perturbation: the shared word, its other forms, and articles before edited words."""

FURTHER_EDITS: Final = "further_edits"
"""Column of a row's edits besides the edits of its word; it is not written to files."""

_EDITS: Final = pa.list_(
    pa.struct(
        [("part", pa.int8()), ("text", pa.int16()), ("position", pa.int32()), ("word", pa.string())]
    )
)


class Key(NamedTuple):
    """Identity of a replacement: the columns `REPLACEMENT_KEY`."""

    seed_id: str
    word_class: str
    word: str
    replacement: str

    @property
    def of_word(self) -> WordKey:
        """Seed id, word class and word."""
        return self[:3]


class Edit(NamedTuple):
    """Edit of one token, by text and token number; `part` is `WORD`, `FAMILY` or `ARTICLE`."""

    part: int
    text: int
    position: int
    word: str


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A problem, and all edits to it."""

    key: Key
    sentences: Sequence[Sentence]
    edits: tuple[Edit, ...]
    """The edits in order, each token once."""

    def token(self, edit: Edit) -> Token:
        """Return the original token of an edit."""
        return self.sentences[edit.text].tokens[edit.position]

    @property
    def further(self) -> list[Edit]:
        """The edits of other words than the shared one, in order."""
        return [edit for edit in self.edits if edit.part != WORD]

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
        by_text: list[list[tuple[Span, str]]] = [[] for _ in self.sentences]
        for edit in self.edits:
            by_text[edit.text].append((self.token(edit).span, edit.word))
        every = map(sorted, by_text)
        return [([span for span, _ in own], [word for _, word in own]) for own in every]


def keys_of(rows: pa.Table) -> list[Key]:
    """Return [n] the keys that identify rows."""
    columns = (rows[name].to_pylist() for name in REPLACEMENT_KEY)
    return list(map(Key._make, zip(*columns, strict=True)))


def with_further_edits(rows: pa.Table, edits: Sequence[Sequence[Edit]]) -> pa.Table:
    """Add the column of further edits."""
    column = pa.array([[edit._asdict() for edit in of_row] for of_row in edits], _EDITS)
    return rows.append_column(FURTHER_EDITS, column)


def perturbations_of(rows: pa.Table, problems: TaggedProblems) -> list[Perturbation]:
    """Return [n] the perturbations of replacements or variants that are not yet `in_full`."""
    has_further = FURTHER_EDITS in rows.column_names
    further = rows[FURTHER_EDITS].to_pylist() if has_further else [()] * len(rows)
    wanted = set(rows["seed_id"].unique().to_pylist())
    places = {
        (seed.seed_id, word.word_class, word.word): (problems.of(seed), word.positions)
        for seed, word in problems.pairs()
        if seed.seed_id in wanted
    }
    perturbations = []
    for key, more in zip(keys_of(rows), further, strict=True):
        sentences, positions = places[key.of_word]
        edits = [Edit(**edit) for edit in more]
        edits += [
            Edit(WORD, text, position, key.replacement)
            for text, of_text in enumerate(positions)
            for position in of_text
        ]
        perturbations.append(Perturbation(key, sentences, tuple(sorted(edits))))
    return perturbations


def in_full(rows: pa.Table, problems: TaggedProblems) -> pa.Table:
    """Return rows as files have them: with all words that they edit, not the shared word alone.

    The i-th of several `word`s becomes the i-th `replacement`; changes of log-likelihood are null.
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
        if name.endswith("_pll_change"):
            new[name] = pc.if_else(one_word, rows[name], None)
    return with_columns(rows, new)


# --- Shuffled letters (D13) ---


def scramble(word: str, key: str) -> str:
    """Shuffle a word's letters by the key; the outcome differs from the word if it can.

    >>> sorted(scramble("poodle", "x")) == sorted("poodle")
    True
    """
    if len(set(word)) < 2:
        return word
    rng = random.Random(f"{key}\n{word}")
    while True:
        letters = sorted(((rng.random(), letter) for letter in word), key=lambda pair: pair[0])
        shuffled = "".join(letter for _, letter in letters)
        if shuffled != word:
            return shuffled


def shuffle_letters(
    rows: pa.Table, problems: TaggedProblems, rng_seed: int
) -> tuple[pa.Table, Counter[str]]:
    """Shuffle letters of new words but articles (D13), whose casings stay.

    Returns sorted rows, and counts of ambiguous rows.
    """
    first: dict[Key, tuple[int, list[Edit]]] = {}
    ambiguous: Counter[str] = Counter()
    for row, whole in enumerate(perturbations_of(rows, problems)):
        salt = f"{rng_seed}\n{whole.key.seed_id}"
        words = [(whole.key.replacement, whole.key.word)]
        words += [(edit.word, whole.token(edit).text) for edit in whole.edits]
        new, *forms = [match_case(scramble(word.lower(), salt), old) for word, old in words]
        edits = sorted(
            edit if edit.part == ARTICLE else edit._replace(word=form)
            for edit, form in zip(whole.edits, forms, strict=True)
        )
        key = whole.key._replace(replacement=new)
        shuffled = Perturbation(key, whole.sentences, tuple(edits))
        if shuffled.is_ambiguous():
            ambiguous[whole.key.word_class] += 1
        else:
            first.setdefault(shuffled.key, (row, shuffled.further))
    taken = rows.take(pa.array([row for row, _ in first.values()], pa.int64()))
    taken = with_columns(taken, {"replacement": [key.replacement for key in first]})
    if FURTHER_EDITS in rows.column_names:
        taken = with_further_edits(
            taken.drop_columns([FURTHER_EDITS]), [edits for _, edits in first.values()]
        )
    return sorted_replacements(taken), ambiguous
