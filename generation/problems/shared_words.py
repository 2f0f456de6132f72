"""Shared words of a problem's texts (D1, D2), and word classes of Penn tags."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from generation.problems.substitutions import Place
from generation.problems.tagging import Tagger
from generation.records import Seed, Sentence, SharedWord
from merge_dataset.schema import TAGS_OF_CLASSES, WORD_CLASSES

_CLASS_OF_TAG = {tag: name for name, (_, tags) in TAGS_OF_CLASSES.items() for tag in tags}


def coarse_class(tag: str) -> str:
    """Return the word class of a Penn tag (D1); a tag outside the four classes is its own class.

    >>> coarse_class("NNS"), coarse_class("VBZ"), coarse_class("MD")
    ('noun', 'verb', 'MD')
    """
    return _CLASS_OF_TAG.get(tag, tag)


WordForms = tuple[set[tuple[str, str]], dict[str, tuple[int, ...]]]
"""(form, class) of a text's alphabetic tokens; form → indices of its tokens."""


def word_forms(sentence: Sentence) -> WordForms:
    """Find the word forms of a text, to be reused for all problems that have the text."""
    classed = {
        (token.text, coarse_class(token.tag)) for token in sentence.tokens if token.text.isalpha()
    }
    places: dict[str, list[int]] = {}
    for i, token in enumerate(sentence.tokens):
        places.setdefault(token.text, []).append(i)
    return classed, {text: tuple(at) for text, at in places.items()}


def shared_words(
    texts: Sequence[WordForms], word_classes: Collection[str], sharing: Sequence[int] | None = None
) -> list[SharedWord]:
    """List words shared by all texts or by `sharing` (D1), with all places (D2), sorted."""
    among = [texts[i] for i in sharing] if sharing else texts
    shared = set.intersection(*(classed for classed, _ in among))
    return [
        SharedWord(word, word_class, tuple(places.get(word, ()) for _, places in texts))
        for word_class in WORD_CLASSES
        if word_class in word_classes
        for word in sorted(word for word, c in shared if c == word_class)
    ]


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

    def pairs(self) -> Iterator[tuple[Seed, SharedWord]]:
        """Yield all shared words with their problems."""
        for seed in self.seeds:
            for word in self.words[seed.seed_id]:
                yield seed, word

    def places(self, seed: Seed, word: SharedWord) -> list[tuple[int, Place]]:
        """List (number of the text, place) for each text that has a shared word."""
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
    """Tag every distinct text once, and find the shared words."""
    texts = sorted({text for seed in seeds for text in seed.texts})
    sentences = {sentence.text: sentence for sentence in tagger.tag(texts)}
    forms = {text: word_forms(sentence) for text, sentence in sentences.items()}
    words = {
        seed.seed_id: shared_words([forms[text] for text in seed.texts], word_classes, sharing)
        for seed in seeds
    }
    return TaggedProblems(list(seeds), sentences, words)
