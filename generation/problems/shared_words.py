"""Shared words of a problem's texts (D1, D2), and word classes of Penn tags."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

from generation.problems.substitutions import Place
from generation.problems.tagging import Tagger
from generation.records import Seed, Sentence, SharedWord
from merge_dataset.schema import WORD_CLASSES

_CLASS_OF_TAG = {
    "NN": "noun",
    "NNS": "noun",
    "VB": "verb",
    "VBD": "verb",
    "VBG": "verb",
    "VBN": "verb",
    "VBP": "verb",
    "VBZ": "verb",
    "JJ": "adjective",
    "JJR": "adjective",
    "JJS": "adjective",
    "RB": "adverb",
    "RBR": "adverb",
    "RBS": "adverb",
}


def coarse_class(tag: str) -> str:
    """Return the word class of a Penn tag (D1); a tag outside the four classes is its own class.

    Modals and proper nouns belong to none of the four. Such tokens still count as
    occurrences (D2), and there a replacement has to keep the very tag.

    >>> coarse_class("NNS"), coarse_class("VBZ"), coarse_class("MD")
    ('noun', 'verb', 'MD')
    """
    return _CLASS_OF_TAG.get(tag, tag)


def shared_words(
    sentences: Sequence[Sentence],
    *,
    word_classes: Collection[str],
    sharing: Sequence[int] | None = None,
) -> list[SharedWord]:
    """List the words that stand in all sentences in the same form with the same class (D1).

    Args:
        sentences: The tagged texts of a problem.
        word_classes: The wanted classes, from `WORD_CLASSES`.
        sharing: Numbers of the sentences in which a word has to stand; by default all.

    Returns:
        One record per (form, class), sorted by class in the order of `WORD_CLASSES`,
        then by form. Each lists *every* token with that form in any of the sentences,
        whatever its class there (D2).
    """
    return _shared([_Forms.of(each) for each in sentences], word_classes, sharing)


@dataclass(frozen=True, slots=True)
class _Forms:
    """Word forms of a text, found once for all problems that it stands in."""

    classed: set[tuple[str, str]]
    """(form, class) of its alphabetic tokens."""
    positions: dict[str, tuple[int, ...]]
    """Form → the places of its tokens."""

    @classmethod
    def of(cls, sentence: Sentence) -> Self:
        return cls(_classed_forms(sentence), _positions(sentence))


def _shared(
    texts: Sequence[_Forms], word_classes: Collection[str], sharing: Sequence[int] | None
) -> list[SharedWord]:
    among = [texts[i] for i in sharing] if sharing else texts
    shared = set.intersection(*(text.classed for text in among))
    return [
        SharedWord(word, word_class, tuple(text.positions.get(word, ()) for text in texts))
        for word_class in WORD_CLASSES
        if word_class in word_classes
        for word in sorted(word for word, c in shared if c == word_class)
    ]


def _classed_forms(sentence: Sentence) -> set[tuple[str, str]]:
    """Collect (form, class) of a sentence's alphabetic tokens."""
    return {
        (token.text, coarse_class(token.tag)) for token in sentence.tokens if token.text.isalpha()
    }


def _positions(sentence: Sentence) -> dict[str, tuple[int, ...]]:
    """Map each token's text to its places."""
    found: dict[str, list[int]] = {}
    for i, token in enumerate(sentence.tokens):
        found.setdefault(token.text, []).append(i)
    return {text: tuple(places) for text, places in found.items()}


@dataclass(frozen=True, slots=True)
class TaggedProblems:
    """Seeds with their tagged sentences and shared words."""

    seeds: list[Seed]
    sentences: dict[str, Sentence]
    """Text → its sentence."""
    words: dict[str, list[SharedWord]]
    """Seed id → its shared words of the wanted classes."""

    def of(self, seed: Seed) -> list[Sentence]:
        """Return the tagged texts of a problem."""
        return [self.sentences[text] for text in seed.texts]

    def places(self, seed: Seed, word: SharedWord) -> list[tuple[int, Place]]:
        """List (number of the text, place) for each text in which a shared word stands."""
        return [
            (number, Place(sentence, positions))
            for number, (sentence, positions) in enumerate(
                zip(self.of(seed), word.positions, strict=True)
            )
            if positions
        ]


def tag_problems(
    seeds: Sequence[Seed],
    tagger: Tagger,
    word_classes: Sequence[str],
    sharing: Sequence[int] | None = None,
) -> TaggedProblems:
    """Tag every distinct text once, and find the shared words.

    Args:
        seeds: The problems.
        tagger: Tags their texts.
        word_classes: The wanted classes of shared words.
        sharing: Numbers of the texts that have to share them; by default all.
    """
    texts = sorted({text for seed in seeds for text in seed.texts})
    sentences = {sentence.text: sentence for sentence in tagger.tag(texts)}
    forms = {text: _Forms.of(sentence) for text, sentence in sentences.items()}
    words = {
        seed.seed_id: _shared([forms[text] for text in seed.texts], word_classes, sharing)
        for seed in seeds
    }
    return TaggedProblems(list(seeds), sentences, words)
