"""Words of several pieces, slowly and obviously, by PLL-word-l2r (Kauf and Ivanova, 2023)."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from helpers.reference import SlowMLM, Span

Pieces = tuple[int, ...]


@dataclass
class SlowWords:
    path: Path
    slow: SlowMLM = field(init=False)

    def __post_init__(self) -> None:
        self.slow = SlowMLM(self.path)
        self._log_probs: dict[tuple[Any, ...], list[float]] = {}
        # cached, as they are called repeatedly
        self.locate = cache(self.slow.locate_pieces)
        self._ids = cache(lambda text: self.tokenizer(text)["input_ids"])

    @property
    def tokenizer(self) -> Any:
        return self.slow.tokenizer

    def read(self, number: int) -> tuple[str, bool]:
        return self.slow.read(self.tokenizer.convert_ids_to_tokens(number))

    def log_prob(
        self,
        text: str,
        span: Span,
        masked: Sequence[Span],
        pieces: Pieces,
        *,
        itself: bool = False,
        steps: int = 99,
    ) -> float:
        """Log P of a word's pieces at `span`, or of `steps` of them, with `masked` spans hidden."""
        total = 0.0
        for step, piece in enumerate(pieces[:steps]):
            ids: list[int] = []
            end = place = 0
            whole = self._ids(text)
            for each in sorted(masked):
                where = self.locate(text, each, 99)
                ids += whole[end : where[0]]
                size = len(where) if itself else len(pieces)
                word = [self.tokenizer.mask_token_id] * size
                if each == span:
                    word[:step] = pieces[:step]
                    place = len(ids) + step
                ids += word
                end = where[-1] + 1
            total += self._at(place, (*ids, *whole[end:]))[piece]
        return total

    def _at(self, place: int, ids: tuple[int, ...]) -> list[float]:
        if (place, ids) not in self._log_probs:
            with torch.no_grad():
                logits = self.slow.model(torch.tensor([ids])).logits[0, place]
            self._log_probs[place, ids] = torch.log_softmax(logits.double(), -1).tolist()
        return self._log_probs[place, ids]

    def words(self, begins: bool, length: int) -> Iterator[Pieces]:
        """Yield all alphabetic words of `length` pieces that begin a word, or that do not."""
        special = set(self.tokenizer.all_special_ids)
        letters = {
            number: self.read(number)[1]
            for number in range(len(self.tokenizer))
            if number not in special and self.read(number)[0].isalpha()
        }
        initial = [number for number, is_initial in letters.items() if is_initial == begins]
        others = [number for number, is_initial in letters.items() if not is_initial]
        return itertools.product(initial, *[others] * (length - 1))

    def is_cut_so(self, text: str, span: Span, pieces: Pieces) -> bool:
        """Whether the tokenizer splits the word of these pieces into the same pieces."""
        word = "".join(self.read(piece)[0] for piece in pieces)
        put = text[: span[0]] + word + text[span[1] :]
        where = self.locate(text, span, 99)
        whole = self._ids(text)
        expected = [*whole[: where[0]], *pieces, *whole[where[-1] + 1 :]]
        return bool(self.tokenizer(put)["input_ids"] == expected)

    def answer(
        self, text: str, span: Span, masked: Sequence[Span], *, k: int, max_pieces: int
    ) -> tuple[Pieces, float, dict[Pieces, float]] | None:
        """The original, its log P, and the `k` best words with theirs; None if D3 fails."""
        if any(self.locate(text, each, max_pieces) is None for each in masked):
            return None
        where = self.locate(text, span, max_pieces)
        original = tuple(self.tokenizer(text)["input_ids"][i] for i in where)
        own = self.log_prob(text, span, masked, original, itself=True)
        size = self.slow.model.config.vocab_size
        found = {(i,): self.log_prob(text, span, masked, (i,)) for i in range(size)}
        begins = self.read(original[0])[1]
        for length in range(2, max_pieces + 1):
            for word in self.words(begins, length):
                log_prob = self.log_prob(text, span, masked, word)
                if log_prob > own and self.is_cut_so(text, span, word):
                    found[word] = log_prob
        best = sorted(found, key=lambda word: -found[word])[:k]
        return original, own, {word: found[word] for word in best}


@lru_cache
def slow_words(path: Path) -> SlowWords:
    return SlowWords(path)
