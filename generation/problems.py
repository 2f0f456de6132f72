"""Problems with what the tagger found in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from generation.records import MaskedQuery, Seed, Sentence, SharedWord
from generation.shared_words import shared_words
from generation.tagging import Tagger


@dataclass(frozen=True, slots=True)
class TaggedProblems:
    """Seeds with their sentences and shared words."""

    seeds: list[Seed]
    sentences: dict[str, Sentence]
    """By text."""
    words: dict[str, list[SharedWord]]
    """Seed id → its shared words of the classes wanted."""

    def pair(self, seed: Seed) -> tuple[Sentence, Sentence]:
        """Premise and hypothesis, tagged."""
        return self.sentences[seed.premise], self.sentences[seed.hypothesis]

    def queries(self, masking: str) -> list[MaskedQuery]:
        """Every distinct question to ask, in the order of the seeds."""
        found: dict[MaskedQuery, None] = {}
        for seed in self.seeds:
            for word in self.words[seed.seed_id]:
                for sentence, positions in zip(
                    self.pair(seed), (word.premise, word.hypothesis), strict=True
                ):
                    found.update(
                        dict.fromkeys(masked_queries(sentence, positions, masking=masking))
                    )
        return list(found)


def tag_problems(
    seeds: Sequence[Seed], tagger: Tagger, word_classes: Sequence[str]
) -> TaggedProblems:
    """Tag every distinct sentence once and find the shared words.

    Args:
        seeds: The problems.
        tagger: Tags premises and hypotheses.
        word_classes: The classes of shared words wanted.
    """
    texts = sorted({text for seed in seeds for text in (seed.premise, seed.hypothesis)})
    sentences = {sentence.text: sentence for sentence in tagger.tag(texts)}
    return TaggedProblems(list(seeds), sentences, dict(_words(seeds, sentences, word_classes)))


def masked_queries(
    sentence: Sentence, positions: Sequence[int], *, masking: str
) -> list[MaskedQuery]:
    """What to ask about a word's occurrences in a sentence, one question each (D4)."""
    spans = tuple(sentence.tokens[position].span for position in positions)
    return [
        MaskedQuery(sentence.text, span, spans if masking == "joint" else (span,)) for span in spans
    ]


def _words(
    seeds: Iterable[Seed], sentences: dict[str, Sentence], word_classes: Sequence[str]
) -> Iterator[tuple[str, list[SharedWord]]]:
    for seed in seeds:
        pair = sentences[seed.premise], sentences[seed.hypothesis]
        yield seed.seed_id, shared_words(*pair, word_classes=word_classes)
