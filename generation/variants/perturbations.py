"""Perturbations: all edits of a row of replacements in the texts of its problem.

In memory, a column may hold a row's *further edits* (other forms, articles). Files have pairs of
words (`in_full`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from generation.problems.shared_words import TaggedProblems
from generation.problems.substitutions import Place, Substitutions
from generation.problems.tagging import Tagger
from generation.records import REPLACEMENT_KEY, Sentence, SharedWord, TextEdits, Token
from generation.signals.grammar import article_position, fitting_article
from generation.signals.signal_columns import PLL_CHANGE, zipf_frequencies
from generation.variants.reasons import NO_REASON, REASONS, Reason
from generation.variants.validation import judge_in_context

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD, FAMILY, ARTICLE = range(3)
"""Parts of a perturbation: the shared word, its other forms, and articles before edited words."""

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

    def has_fitting_articles(self) -> bool | None:
        """Tell whether each "a" or "an" before an edit fits the new word; None without any."""
        new = {(edit.text, edit.position): edit.word for edit in self.edits}
        fits = []
        for edit in self.edits:
            sentence = self.sentences[edit.text]
            position = article_position(sentence, edit.position)
            if position is not None:
                article = new.get((edit.text, position), sentence.tokens[position].text)
                fits.append(article.lower() == fitting_article(edit.word))
        return all(fits) if fits else None

    def text_edits(self) -> list[TextEdits]:
        """Return for each text the spans that change, in order, and their new words."""
        found: list[TextEdits] = []
        for text in range(len(self.sentences)):
            mine = sorted((self.token(e).span, e.word) for e in self.edits if e.text == text)
            found.append(([span for span, _ in mine], [word for _, word in mine]))
        return found


def keys_of(rows: pa.Table) -> list[Key]:
    """Return [n] the keys that identify rows."""
    return list(zip(*(rows[name].to_pylist() for name in REPLACEMENT_KEY), strict=True))


def with_further_edits(rows: pa.Table, edits: Sequence[Sequence[Edit]]) -> pa.Table:
    """Add the column of further edits."""
    column = pa.array([[asdict(edit) for edit in of_row] for of_row in edits], _EDITS)
    return rows.append_column(FURTHER_EDITS, column)


def rows_of_more(rows: pa.Table) -> NDArray[np.bool_]:
    """Return [n] whether a row has further edits."""
    if FURTHER_EDITS not in rows.column_names:
        return np.zeros(len(rows), np.bool_)
    return np.array(pc.list_value_length(rows[FURTHER_EDITS]).to_numpy() > 0, np.bool_)


def perturbations_of(rows: pa.Table, problems: TaggedProblems) -> list[Perturbation]:
    """Return [n] the perturbations of replacements or variants that are not yet `in_full`."""
    if FURTHER_EDITS in rows.column_names:
        further = [[Edit(**e) for e in of_row] for of_row in rows[FURTHER_EDITS].to_pylist()]
    else:
        further = [[] for _ in range(len(rows))]
    words = words_of(problems, rows)
    found = []
    for (seed_id, word_class, word, text), more in zip(keys_of(rows), further, strict=True):
        shared, sentences = words[seed_id, word_class, word]
        edits = [
            Edit(WORD, number, position, text)
            for number, positions in enumerate(shared.positions)
            for position in positions
        ]
        found.append(Perturbation(sentences, tuple(sorted([*more, *edits]))))
    return found


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


def text_edits_of(rows: pa.Table, problems: TaggedProblems) -> list[list[TextEdits]]:
    """Return [n, texts] the edits of rows, not yet `in_full`, in the texts of their seeds."""
    spans = {
        key: [
            [sentence.tokens[position].span for position in positions]
            for sentence, positions in zip(sentences, word.positions, strict=True)
        ]
        for key, (word, sentences) in words_of(problems, rows).items()
    }
    is_more = rows_of_more(rows)
    of_more = iter(perturbations_of(rows.filter(pa.array(is_more)), problems))
    return [
        next(of_more).text_edits()
        if more
        else [(of_text, text) for of_text in spans[seed_id, word_class, word]]
        for (seed_id, word_class, word, text), more in zip(
            keys_of(rows), is_more.tolist(), strict=True
        )
    ]


def in_full(rows: pa.Table, problems: TaggedProblems) -> pa.Table:
    """Return rows as files have them: with all words that they edit, not the shared word alone.

    Where more than one word changes, `word` and `replacement` list the pairs, separated by spaces:
    the i-th word becomes the i-th replacement. The frequency is the rarest word's, and changes of
    log-likelihood are null.
    """
    is_more = rows_of_more(rows)
    perturbations = perturbations_of(rows.filter(pa.array(is_more)), problems)
    is_more[is_more] = [each.is_more for each in perturbations]
    if FURTHER_EDITS in rows.column_names:
        rows = rows.drop_columns([FURTHER_EDITS])
    if not is_more.any():
        return rows
    perturbations = [each for each in perturbations if each.is_more]
    pairs = [each.pairs() for each in perturbations]
    words, texts = (
        pa.array([" ".join(pair[side] for pair in each) for each in pairs], pa.string())
        for side in (0, 1)
    )
    fits = [each.has_fitting_articles() for each in perturbations]
    new = {
        "word": words,
        "replacement": texts,
        "zipf_frequency": zipf_frequencies(texts),
        "article_fits": pa.array(fits, pa.bool_()),
    }
    columns = {}
    for field in rows.schema:
        column = rows[field.name].combine_chunks()
        if field.name.endswith(PLL_CHANGE):
            unknown = pa.nulls(len(pairs), field.type)
            column = pc.replace_with_mask(column, pa.array(is_more), unknown)
        elif field.name in new:
            column = pc.replace_with_mask(column, pa.array(is_more), new[field.name])
        columns[field.name] = column
    return pa.table(columns, schema=rows.schema)


def reject_in_context(
    perturbations: Sequence[Perturbation], tagger: Tagger, *, tag_match: str
) -> list[Reason | None]:
    """Return [n] the first reason to reject perturbations with all edits in place (D8), or None."""
    found: list[Reason | None] = [None] * len(perturbations)
    if not perturbations:
        return found
    owners, _, substitutions = _substitutions(perturbations)
    numbers, _ = judge_in_context(substitutions, tagger, tag_match=tag_match)
    for owner, number in zip(owners, numbers.tolist(), strict=True):
        there = found[owner]
        if number != NO_REASON and (there is None or number < there.number):
            found[owner] = REASONS[number]
    return found


def tags_after(
    perturbations: Sequence[Perturbation], tagger: Tagger
) -> list[dict[tuple[int, int], str | None]]:
    """Return [n] Penn tags by edited (text, token), all edits in place; None if tokens change."""
    found: list[dict[tuple[int, int], str | None]] = [{} for _ in perturbations]
    if not perturbations:
        return found
    owners, texts, substitutions = _substitutions(perturbations)
    tags = iter(tagger.tags_after(substitutions).tolist())
    for owner, text, place in zip(owners, texts, substitutions.place.tolist(), strict=True):
        positions = substitutions.places[place].positions
        for position, tag in zip(positions, tags, strict=False):
            found[owner][text, position] = None if tag < 0 else tagger.labels[tag]
    return found


def _substitutions(
    perturbations: Sequence[Perturbation],
) -> tuple[list[int], list[int], Substitutions]:
    """Make m substitutions; return their [m] perturbations, [m] texts, and the substitutions."""
    places: dict[tuple[str, tuple[int, ...]], int] = {}
    forms: dict[tuple[str, ...], int] = {}
    distinct: list[Place] = []
    owners, texts, where, what = [], [], [], []
    for owner, perturbation in enumerate(perturbations):
        for text, sentence in enumerate(perturbation.sentences):
            mine = sorted((e.position, e.word) for e in perturbation.edits if e.text == text)
            if not mine:
                continue
            positions, words = zip(*mine, strict=True)
            key = sentence.text, positions
            if key not in places:
                places[key] = len(places)
                distinct.append(Place(sentence, positions, several=True))
            owners.append(owner)
            texts.append(text)
            where.append(places[key])
            what.append(forms.setdefault(words, len(forms)))
    substitutions = Substitutions(
        distinct, list(forms), np.array(where, np.int64), np.array(what, np.int64)
    )
    return owners, texts, substitutions
