"""Letters by which language models answer, and their probabilities as a first token.

This module is exported with tasks for other harnesses, so it imports nothing of ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

_SPACES: Final = " ▁Ġ"
"""A space, also in the forms in which tokenizers and servers show it."""


def letter_probabilities(tokens: Mapping[str, float], letters: Sequence[str]) -> list[float]:
    """Sum up the letters' probabilities, with and without a space before them.

    Args:
        tokens: Token → natural logarithm of its probability.
        letters: Of the choices.

    >>> tokens = {" A": math.log(0.5), "A": math.log(0.25), "▁C": math.log(0.25)}
    >>> letter_probabilities(tokens, "ABC")
    [0.75, 0.0, 0.25]
    """
    found = [0.0] * len(letters)
    for token, log_prob in tokens.items():
        if (letter := token.lstrip(_SPACES)) in set(letters):
            found[letters.index(letter)] += math.exp(log_prob)
    return found
