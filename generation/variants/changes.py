"""Several changes in one variant: what is put in place of which tokens of a problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from generation.problems.substitutions import Place, Substitutions
from generation.records import Sentence, Token
from generation.variants.filters import TOKENIZATION, WORD_CLASS, comparable

if TYPE_CHECKING:
    from generation.variants.rows import Edits
    from generation.variants.validation import ContextTagger

WORD, FAMILY, ARTICLE = range(3)
"""What a change is of: the shared word itself, another form of it, the article before one."""

AMBIGUOUS: Final = "ambiguous"
"""Two words of a problem would become the same one, so that nothing says which was which."""


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """A token of a problem that becomes another word."""

    part: int
    """`WORD`, `FAMILY` or `ARTICLE`."""
    text: int
    """Number of the text."""
    position: int
    """Number of the token."""
    word: str
    """What stands there afterwards."""


Fate = tuple[str, str, str]
"""`REPLACEMENTS` or `COMBINATIONS`, word class, and why rejected, or `KEPT`."""

REPLACEMENTS, COMBINATIONS = "replacements", "combinations"
"""What changes more than one word: a replacement with what goes with it, several of them."""

Changes = tuple[Change, ...]
"""Of one variant, in their order; each token once."""


@dataclass(frozen=True, slots=True)
class Variation:
    """A problem, and what changes in it."""

    sentences: Sequence[Sentence]
    changes: Changes

    def with_changes(self, more: Iterable[Change]) -> Variation:
        """The same with other tokens changed as well."""
        return Variation(self.sentences, tuple(sorted((*self.changes, *more))))

    def token(self, change: Change) -> Token:
        """What stands where something changes."""
        return self.sentences[change.text].tokens[change.position]

    @property
    def is_more(self) -> bool:
        """Whether more than one shared word changes."""
        return len(self.pairs()) > 1

    def pairs(self) -> list[tuple[str, str]]:
        """The distinct (original, replacement): shared words first, articles last."""
        return list(dict.fromkeys((self.token(each).text, each.word) for each in self.changes))

    def is_ambiguous(self) -> bool:
        """Whether a replacement stands for two originals, so that no one can undo it."""
        pairs = self.pairs()
        return len({new for _, new in pairs}) < len(pairs)

    def edits(self) -> list[Edits]:
        """By text: where something changes, in order, and to what."""
        found: list[Edits] = []
        for text in range(len(self.sentences)):
            mine = sorted((self.token(c).span, c.word) for c in self.changes if c.text == text)
            found.append(([span for span, _ in mine], [word for _, word in mine]))
        return found


def fates(
    variations: Sequence[Variation], tagger: ContextTagger, *, tag_match: str
) -> list[str | None]:
    """What D8 says of variations, with all that changes in place.

    Every changed token keeps its class, or the very tag where it has none of the four classes,
    as articles have; the tokenisation stays.

    Args:
        variations: Each with a change at least.
        tagger: Tags them.
        tag_match: `coarse` or `fine`.

    Returns:
        For each the reason of a rejection, or None.
    """
    return [
        _fate(variation, tags, tag_match)
        for variation, tags in zip(variations, tags_after(variations, tagger), strict=True)
    ]


def tags_after(
    variations: Sequence[Variation], tagger: ContextTagger
) -> list[dict[tuple[int, int], str | None]]:
    """The Penn tags of what changes, with all of it in place.

    Args:
        variations: Each with a change at least.
        tagger: Tags them.

    Returns:
        For each the tags by number of the text and of the token; None in a text whose
        tokenisation changes.
    """
    places = [
        (number, text, place, words)
        for number, variation in enumerate(variations)
        for text, place, words in _filled_places(variation)
    ]
    found: list[dict[tuple[int, int], str | None]] = [{} for _ in variations]
    if not places:
        return found
    substitutions = _substitutions([(place, words) for *_, place, words in places])
    tags = iter(tagger.tags_after(substitutions).tolist())
    for number, text, place, _ in places:
        for position, tag in zip(place.positions, tags, strict=False):
            found[number][text, position] = None if tag < 0 else tagger.labels[tag]
    return found


def _fate(
    variation: Variation, tags: Mapping[tuple[int, int], str | None], tag_match: str
) -> str | None:
    if None in tags.values():
        return TOKENIZATION
    for (text, position), tag in tags.items():
        before = variation.sentences[text].tokens[position].tag
        names = (comparable(str(each), tag_match=tag_match) for each in (before, tag))
        if len(set(names)) > 1:
            return WORD_CLASS
    return None


def _filled_places(variation: Variation) -> Iterator[tuple[int, Place, tuple[str, ...]]]:
    """The texts in which something changes: their number, where, and what is put there."""
    for text, sentence in enumerate(variation.sentences):
        mine = sorted((c.position, c.word) for c in variation.changes if c.text == text)
        if mine:
            positions, words = zip(*mine, strict=True)
            yield text, Place(sentence, positions, several=True), words


def _substitutions(rows: Sequence[tuple[Place, tuple[str, ...]]]) -> Substitutions:
    """As the tagger takes them: each place and each tuple of words once."""
    places: dict[tuple[str, tuple[int, ...]], int] = {}
    forms: dict[tuple[str, ...], int] = {}
    distinct: list[Place] = []
    where, what = [], []
    for place, words in rows:
        key = place.sentence.text, place.positions
        if key not in places:
            places[key] = len(places)
            distinct.append(place)
        where.append(places[key])
        what.append(forms.setdefault(words, len(forms)))
    return Substitutions(distinct, list(forms), np.array(where, np.int64), np.array(what, np.int64))
