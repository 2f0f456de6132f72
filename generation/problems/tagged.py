"""Problems with what the tagger found in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generation.problems.shared_words import shared_words
from generation.problems.substitutions import Place
from generation.problems.tagging import Tagger
from generation.records import MaskedQuery, Seed, Sentence, SharedWord


@dataclass(frozen=True, slots=True)
class TaggedProblems:
    """Seeds with their sentences and shared words."""

    seeds: list[Seed]
    sentences: dict[str, Sentence]
    """By text."""
    words: dict[str, list[SharedWord]]
    """Seed id → its shared words of the classes wanted."""

    def of(self, seed: Seed) -> list[Sentence]:
        """The tagged texts of a problem."""
        return [self.sentences[text] for text in seed.texts]

    def places(self, seed: Seed, word: SharedWord) -> list[tuple[int, Place]]:
        """Where a shared word stands: the number of each text that has it, and its tokens."""
        return [
            (number, Place(sentence, positions))
            for number, (sentence, positions) in enumerate(
                zip(self.of(seed), word.positions, strict=True)
            )
            if positions
        ]

    def queries(self, masking: str) -> list[MaskedQuery]:
        """Every distinct question to ask, in the order of the seeds."""
        found: dict[MaskedQuery, None] = {}
        for seed in self.seeds:
            for word in self.words[seed.seed_id]:
                for _, place in self.places(seed, word):
                    found.update(dict.fromkeys(masked_queries(place, masking=masking)))
        return list(found)


def tag_problems(
    seeds: Sequence[Seed],
    tagger: Tagger,
    word_classes: Sequence[str],
    sharing: Sequence[int] | None = None,
) -> TaggedProblems:
    """Tag every distinct text once and find the shared words.

    Args:
        seeds: The problems.
        tagger: Tags their texts.
        word_classes: The classes of shared words wanted.
        sharing: Numbers of the texts that have to share them; by default all.
    """
    texts = sorted({text for seed in seeds for text in seed.texts})
    sentences = {sentence.text: sentence for sentence in tagger.tag(texts)}
    words = {
        seed.seed_id: shared_words(
            [sentences[text] for text in seed.texts], word_classes=word_classes, sharing=sharing
        )
        for seed in seeds
    }
    return TaggedProblems(list(seeds), sentences, words)


def masked_queries(place: Place, *, masking: str) -> list[MaskedQuery]:
    """What to ask about a word's occurrences in a sentence, one question each (D4)."""
    spans = place.spans
    return [
        MaskedQuery(place.sentence.text, span, spans if masking == "joint" else (span,))
        for span in spans
    ]
