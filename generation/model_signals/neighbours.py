"""How much less expected a replacement makes the words beside it.

A replacement that does not fit breaks what can be said of it: in "a set of youths is singing",
"singing" is less expected than in "a group of youths is singing". Each of the three words on each
side is masked, one at a time, in the text with the replacement and in the seed's, by every masked
LM that suggested replacements. The word whose log-probability falls most decides for a text; of
texts and of masked LMs the mean is taken (signals.md says what it is worth).

`generation.model_signals.pll_changes` keeps the scores, in the store of likelihoods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from generation.model_signals.likelihoods import Likelihoods
from generation.records import Span
from generation.suggestions.masked_lm import Input, MaskedLM

if TYPE_CHECKING:
    from generation.suggestions.masked_lm import Encoding

NEIGHBOURS_SCHEME: Final = "neighbours-3"
"""Name of how it is computed, for stores and records."""
BESIDE: Final = 3
"""Words on each side."""

_WORD: Final = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
"""A word, or a mark by itself."""


def neighbour_changes(
    mlm: MaskedLM,
    items: Sequence[str],
    *,
    batch_tokens: int | None = None,
    on_progress: Callable[[int], object] = lambda items: None,
) -> Likelihoods:
    """Score texts with replacements; a score does not depend on which others are scored with it.

    The log-probability of a word of several tokens is the sum of theirs, each with itself and the
    later ones masked (as in PLL-word-l2r). Each distinct masked text is asked once.

    Args:
        mlm: The masked LM.
        items: As `item_of` writes them.
        batch_tokens: Tokens in a forward pass.
        on_progress: Called with the number of items done.

    Returns:
        [items] the most negative change of a neighbour's log-probability, in nats; nan where a text
        has no other word.
    """
    parsed = [json.loads(item) for item in items]
    texts = list(dict.fromkeys(side[0] for item in parsed for side in item))
    encodings = dict(zip(texts, mlm.encode(texts), strict=True))
    inputs: list[Input] = []
    known: dict[tuple[str, Span], range] = {}

    def ask(text: str, word: Span) -> range:
        if (text, word) not in known:
            first = len(inputs)
            inputs.extend(_masked(mlm, encodings[text], word, first))
            known[text, word] = range(first, len(inputs))
        return known[text, word]

    asked = [
        [
            (ask(old, before), ask(new, after))
            for before, after in zip(
                neighbours(old, old_spans), neighbours(new, new_spans), strict=True
            )
        ]
        for (old, old_spans), (new, new_spans) in parsed
    ]
    log_probs = mlm.log_probs(inputs, batch_tokens=batch_tokens).astype(np.float64)
    windowed = np.array([each.windowed for each in inputs], np.bool_)
    changes = [
        [log_probs[after].sum() - log_probs[before].sum() for before, after in of_item]
        for of_item in asked
    ]
    on_progress(len(items))
    return Likelihoods(
        np.array([min(each, default=np.nan) for each in changes], np.float64),
        np.array(
            [any(windowed[n].any() for pair in each for n in pair) for each in asked], np.bool_
        ),
    )


def neighbours(text: str, spans: Sequence[Sequence[int]]) -> list[Span]:
    """Find the words of a text within three of a span, in order, spans themselves left out.

    >>> [slice(*span) for span in neighbours("A set of youths is singing a new song.", [(2, 5)])]
    [slice(0, 1, None), slice(6, 8, None), slice(9, 15, None), slice(16, 18, None)]
    """
    words = [match.span() for match in _WORD.finditer(text)]
    found = set[Span]()
    for start, end in spans:
        before = [word for word in words if word[1] <= start]
        after = [word for word in words if word[0] >= end]
        found.update((*before[-BESIDE:], *after[:BESIDE]))
    return sorted(
        (start, end)
        for start, end in found
        if not any(start < stop and first < end for first, stop in spans)
    )


def item_of(old: str, old_spans: Sequence[Span], new: str, new_spans: Sequence[Span]) -> str:
    """Write a text without and with a replacement, and where that stands, as one key."""
    return json.dumps([[old, old_spans], [new, new_spans]], ensure_ascii=False)


def _masked(mlm: MaskedLM, encoding: Encoding, word: Span, first: int) -> Iterator[Input]:
    """Yield an input for each token of a word, with it and the later ones masked."""
    tokens = [
        n
        for n, (start, end) in enumerate(encoding.offsets)
        if start < word[1] and word[0] < end and not encoding.special_tokens_mask[n]
    ]
    for row, token in enumerate(tokens, start=first):
        ids = list(encoding.ids)
        for later in tokens[row - first :]:
            ids[later] = mlm.mask_id
        kept, position = mlm.fitted(ids, token, encoding)
        yield Input(row, kept, position, encoding.ids[token], len(kept) < len(ids))
