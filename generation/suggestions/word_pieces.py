"""Suggestions of several word pieces, and their probabilities (D3–D5).

A word's log-probability is the sum over its pieces, each with itself and the pieces to its right
masked: PLL-word-l2r of Kauf and Ivanova (2023), "A Better Way to Do Masked Language Model Scoring".
Further pieces can only make a word less probable, so a search misses no word if it extends all
prefixes that are more probable than the original and than the least of the suggestions so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from generation.records import MaskedQuery, Scores
from generation.suggestions.masked_lm import Blank, MaskedLM
from generation.suggestions.vocabulary import ATTACHED, WHOLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TOGETHER_CPU, _TOGETHER = 128, 4096
"""Number of questions searched side by side, so that their prefixes share batches."""
_MOST_PREFIXES: Final = 200
"""Maximum of prefixes extended in a step of a question's search; one question in twenty has more.
This takes a quarter less time than no bound and misses one word in a hundred; 50, one in four."""
_CONTINUES, _BEGINS = 0, 1


def score_words(
    mlm: MaskedLM,
    queries: Sequence[MaskedQuery],
    *,
    k: int,
    max_pieces: int,
    on_progress: Callable[[int], object] = lambda queries: None,
) -> Scores:
    """Find the `k` most probable words of up to `max_pieces` pieces at each query's mask (D4).

    Words of several pieces consist of letters, are tokenised into exactly these pieces, and are
    more probable than the original. Rows of queries whose word has more pieces are empty.
    """
    if max_pieces > mlm.max_tokens // 4:
        raise ValueError(
            f"max_pieces: expected at most {mlm.max_tokens // 4} with {mlm.name}, whose input is "
            f"{mlm.max_tokens} tokens long, got {max_pieces}"
        )
    scores = Scores.empty(len(queries), k, max_pieces=max_pieces)
    together = _TOGETHER_CPU if mlm.device == "cpu" else _TOGETHER
    for start in range(0, len(queries), together):
        some = queries[start : start + together]
        if blanks := list(mlm.blanks(dict(enumerate(some, start)), max_pieces)):
            _Search(mlm, blanks, k, max_pieces).write(scores)
        on_progress(len(some))
    return scores


@dataclass(frozen=True, slots=True)
class _Prefixes:
    """Prefixes of words, each for one of the blanks."""

    blank: NDArray[np.int64]
    """[n] Number of the blank."""
    pieces: NDArray[np.int32]
    """[n, pieces so far] Token ids."""
    log_prob: NDArray[np.float32]
    """[n] Sum of log P over the pieces, in nats."""

    def take(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> _Prefixes:
        """Select prefixes by number or by mask."""
        return _Prefixes(self.blank[which], self.pieces[which], self.log_prob[which])

    def most_probable(self, most: int) -> _Prefixes:
        """Keep the `most` most probable prefixes of each blank, in the same order."""
        # Ties are broken by the ids of the pieces.
        order = np.lexsort((*self.pieces.T[::-1], -self.log_prob, self.blank))
        first = np.searchsorted(self.blank[order], self.blank[order])
        return self.take(np.sort(order[np.arange(len(order)) - first < most]))


_Words = tuple["NDArray[np.int32]", "NDArray[np.float32]"]
"""[n, max_pieces] Pieces of the words found for a blank so far, most probable first, −1 after the
last piece; [n] their log-probabilities."""


class _Search:
    """Search for words in several blanks side by side."""

    def __init__(self, mlm: MaskedLM, blanks: Sequence[Blank], k: int, max_pieces: int) -> None:
        self._mlm, self._blanks, self._k, self._max_pieces = mlm, blanks, k, max_pieces
        kinds, letters = mlm.vocabulary.kinds, mlm.vocabulary.is_alphabetic
        self._allowed = np.stack([(kinds == kind) & letters for kind in (ATTACHED, WHOLE)])
        self._begins = np.array(
            [_BEGINS if kinds[b.original[0]] == WHOLE else _CONTINUES for b in blanks], np.int64
        )

    def write(self, scores: Scores) -> None:
        """Search, and write the results into the rows of the questions."""
        n = len(self._blanks)
        inputs = [
            blank.input(row, (), [1] * len(blank.places), blank.original[0], self._mlm)
            for row, blank in enumerate(self._blanks)
        ]
        best = self._mlm.best(inputs, rows=n, k=self._k)
        pieces = np.full((*best.tokens.shape, self._max_pieces), -1, np.int32)
        pieces[:, :, 0] = best.tokens
        words: list[_Words] = list(
            zip(pieces, best.logits - best.log_normalizer[:, None], strict=True)
        )
        own = best.original_logit - best.log_normalizer
        # This is an original's log-probability only if each of its masked occurrences has one
        # piece.
        longer = [row for row, blank in enumerate(self._blanks) if max(map(len, blank.places)) > 1]
        own[longer] = self._originals([self._blanks[row] for row in longer])
        for length in range(2, self._max_pieces + 1):
            words = self._add_longer(words, own, length)
        for blank, log_prob, (found, log_probs) in zip(self._blanks, own, words, strict=True):
            row, original = blank.row, blank.original
            scores.original[row, : len(original)] = original
            scores.original_logit[row], scores.log_normalizer[row] = log_prob, 0
            scores.tokens[row, : len(found)] = found
            scores.logits[row, : len(found)] = log_probs
            longest = blank.input(0, (), [self._max_pieces] * len(blank.places), 0, self._mlm)
            scores.windowed[row] = longest.windowed

    def _originals(self, blanks: Sequence[Blank]) -> NDArray[np.float32]:
        """Return [blanks] log P of the original words, each occurrence tokenised as it is."""
        steps = [(row, step) for row, b in enumerate(blanks) for step in range(len(b.original))]
        inputs = []
        for number, (row, step) in enumerate(steps):
            pieces, sizes = blanks[row].original, [len(place) for place in blanks[row].places]
            inputs.append(blanks[row].input(number, pieces[:step], sizes, pieces[step], self._mlm))
        log_probs = self._mlm.log_probs(inputs)
        sums = np.zeros(len(blanks), np.float32)
        np.add.at(sums, np.array([row for row, _ in steps], np.int64), log_probs)
        return sums

    def _add_longer(
        self, words: list[_Words], own: NDArray[np.float32], length: int
    ) -> list[_Words]:
        """Merge the best words so far with better ones of `length` pieces."""
        floors = np.array(
            [
                max(log_prob, log_probs[-1] if len(log_probs) == self._k else -np.inf)
                for log_prob, (_, log_probs) in zip(own, words, strict=True)
            ],
            np.float32,
        )
        n = len(self._blanks)
        prefixes = _Prefixes(np.arange(n), np.zeros((n, 0), np.int32), np.zeros(n, np.float32))
        for _ in range(length):
            prefixes = prefixes.most_probable(_MOST_PREFIXES)
            prefixes = self._extend(prefixes, floors, length)
        prefixes = self._drop_invalid(prefixes)
        bounds = np.searchsorted(prefixes.blank, np.arange(n + 1))
        merged = []
        for (found, log_probs), start, end in zip(words, bounds[:-1], bounds[1:], strict=True):
            filled = np.full((end - start, self._max_pieces), -1, np.int32)
            filled[:, :length] = prefixes.pieces[start:end]
            every = np.concatenate([found, filled])
            of_every = np.concatenate([log_probs, prefixes.log_prob[start:end]])
            # Ties are broken by the ids of the pieces.
            order = np.lexsort((*every.T[::-1], -of_every))[: self._k]
            merged.append((every[order], of_every[order]))
        return merged

    def _extend(self, prefixes: _Prefixes, floors: NDArray[np.float32], length: int) -> _Prefixes:
        """Extend prefixes by all pieces that keep them above their blank's floor."""
        inputs = [
            self._blanks[blank].input(
                row, pieces, [length] * len(self._blanks[blank].places), 0, self._mlm
            )
            for row, (blank, pieces) in enumerate(
                zip(prefixes.blank.tolist(), prefixes.pieces.tolist(), strict=True)
            )
        ]
        is_first = prefixes.pieces.shape[1] == 0
        row, token, log_prob = self._mlm.likely(
            inputs,
            floors=floors[prefixes.blank] - prefixes.log_prob,
            allowed=self._allowed,
            which=self._begins[prefixes.blank] if is_first else np.full(len(inputs), _CONTINUES),
        )
        return _Prefixes(
            prefixes.blank[row],
            np.column_stack([prefixes.pieces[row], token]).astype(np.int32),
            prefixes.log_prob[row] + log_prob,
        )

    def _drop_invalid(self, words: _Prefixes) -> _Prefixes:
        """Drop originals, and words that are tokenised otherwise, such as "pl" + "aying"."""
        texts = self._mlm.vocabulary.texts
        put, expected, is_other = [], [], []
        for number, pieces in zip(words.blank.tolist(), words.pieces.tolist(), strict=True):
            blank = self._blanks[number]
            start, end = blank.query.span
            word, sentence = "".join(texts[piece] for piece in pieces), blank.query.sentence
            put.append(sentence[:start] + word + sentence[end:])
            ids, place = blank.encoding.ids, blank.places[blank.here]
            expected.append([*ids[: place.start], *pieces, *ids[place.stop :]])
            is_other.append(tuple(pieces) != blank.original)
        is_cut_so = [
            encoding.ids == ids
            for encoding, ids in zip(self._mlm.encode(put), expected, strict=True)
        ]
        sound = np.array(is_cut_so, np.bool_) & np.array(is_other, np.bool_)
        return words.take(sound)
