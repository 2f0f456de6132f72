"""Texts of a tokenizer's ids, and whether they are whole words (D4); read by decoding them."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WHOLE: Final = 1
"""Kind of a token that is a word by itself: " girl"."""
ATTACHED: Final = 2
"""Kind of a token that joins on to the text before it: "girl" at the start of a text, "##s"."""
OTHER: Final = 0
"""Kind of special tokens and white space."""


@dataclass(frozen=True)
class Vocabulary:
    """Texts and kinds of one tokenizer's ids."""

    texts: tuple[str, ...]
    """Text of each id, without markers; "" if `OTHER`."""
    kinds: NDArray[np.int8]
    """[len(texts)] `WHOLE`, `ATTACHED` or `OTHER`."""

    def is_text(self, token: int) -> bool:
        """Tell whether an id stands for text, not for padding or an unknown word."""
        return token < len(self.texts) and bool(self.kinds[token] != OTHER)

    @cached_property
    def is_alphabetic(self) -> NDArray[np.bool_]:
        """[len(texts)] Whether each text has only letters."""
        return np.array([text.isalpha() for text in self.texts], np.bool_)

    @cached_property
    def lowered(self) -> tuple[str, ...]:
        """Texts in lower case, for comparison of words (D6)."""
        return tuple(text.lower() for text in self.texts)

    @cached_property
    def word_numbers(self) -> NDArray[np.int64]:
        """[len(texts)] Numbers of the texts; texts that differ only in case share one."""
        numbers = {word: number for number, word in enumerate(dict.fromkeys(self.lowered))}
        return np.array([numbers[word] for word in self.lowered], np.int64)

    @cached_property
    def has_whole_twin(self) -> NDArray[np.bool_]:
        """[len(texts)] Whether some `WHOLE` token has the same text."""
        whole = {t for t, kind in zip(self.texts, self.kinds, strict=True) if kind == WHOLE}
        return np.array([text in whole for text in self.texts], np.bool_)

    def fits(self, tokens: NDArray[np.int32], originals: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return [n, k] whether suggestions are whole words in place of [n] originals (D4).

        If the original joins on to the text before it (byte-level BPE at the start of a sentence or
        after a quotation mark), a suggestion must too, and a whole-word token must have its text.
        """
        known = (tokens >= 0) & (tokens < len(self.texts))
        ids = np.where(known, tokens, 0)
        whole = self.kinds[ids] == WHOLE
        attached = (self.kinds[ids] == ATTACHED) & self.has_whole_twin[ids]
        original_is_whole = (originals >= 0) & (self.kinds[originals] == WHOLE)
        fitting: NDArray[np.bool_] = np.where(original_is_whole[:, None], whole, attached)
        return known & fitting


def read_vocabulary(tokenizer: Any, special_ids: Collection[int]) -> Vocabulary:
    """Decode every id between two copies of a plain word, to see whether it joins on to it."""
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    # Finds an id that is a whole word in any position.
    ids = [i for i in range(size) if i not in special_ids]
    anchor, word = -1, ""
    for i in ids:
        text = tokenizer.decode([i, i, i], skip_special_tokens=False)
        words = text.strip().split(" ")
        if len(words) == 3 and len(set(words)) == 1 and len(words[0]) > 1 and words[0].isalpha():
            anchor, word = i, words[0]
            break
    else:
        raise ValueError("expected a tokenizer with whole words in its vocabulary, found none")
    decoded = tokenizer.decode_batch(
        [[anchor, i, anchor] for i in range(size)], skip_special_tokens=False
    )
    texts, kinds = [], []
    for i, text in enumerate(decoded):
        middle = text.strip().removeprefix(word).removesuffix(f" {word}")
        kind = WHOLE if middle.startswith(" ") else ATTACHED
        middle = middle.removeprefix(" ")
        if i in special_ids or not middle or middle != middle.strip() or text.count(word) < 2:
            kind, middle = OTHER, ""
        texts.append(middle)
        kinds.append(kind)
    return Vocabulary(tuple(texts), np.array(kinds, np.int8))
