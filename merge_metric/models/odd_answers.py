"""Odd answers of a server: by another model, or to truncated prompts; and unknown tokens."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from merge_dataset.redaction import mask_secrets

_ALIKE: Final = 5
"""Number of different prompt lengths with the same, largest token count that shows cutting."""
_SHOWN: Final = 300


def beginning(answer: Any) -> str:
    """Show the beginning of an answer; what looks like a secret is masked before it is cut."""
    return mask_secrets(str(answer))[:_SHOWN]


def sentences(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Describe oddities of answers that the metadata of predictions record: key → sentence.

    >>> list(sentences({"name": "m", "answered_as": ["m-mini"]}).values())
    ['expected answers of the model m, the server says they are of m-mini']
    """
    oddities = {}
    if isinstance(models := metadata.get("answered_as"), list) and models:
        oddities["answered_as"] = (
            f"expected answers of the model {metadata.get('name')}, the server says they are of "
            f"{', '.join(map(str, models))}"
        )
    try:
        tokens, words = (metadata["prompts_cut"][f"prompt_{of}"] for of in ("tokens", "words"))
        oddities["prompts_cut"] = (
            f"expected whole prompts, the server seems to cut them: it counts {tokens:,} tokens "
            f"for {words:,} words; is its context too short?"
        )
    except (KeyError, TypeError, ValueError):
        pass  # no such key, or metadata of another program
    return oddities


def require_as_asked(where: str, metadata: Mapping[str, Any], remedy: str = "") -> None:
    """Raise ValueError if answers are odd; the message begins with `where`, ends with `remedy`."""
    for sentence in sentences(metadata).values():
        raise ValueError(f"{where}{sentence}; `strict_server` refuses such answers{remedy}")


class OddAnswers:
    """Notes of odd answers, taken from several threads at a time.

    A prompt was cut if the server counts fewer tokens than it has words, or if prompts of several
    lengths, which differ by ten words or more, all have the largest number of tokens.
    """

    def __init__(self, name: str, asked_for: str, *, strict: bool) -> None:
        """Begin with no answer of the model `asked_for`; oddities are errors if `strict`."""
        self._name, self._asked_for, self._strict = name, asked_for, strict
        self._notes: dict[str, Any] = {}
        self._most_tokens = 0
        self._words_of_most: set[int] = set()
        self._lock = threading.Lock()

    def look_at(self, answer: Any, prompt: str) -> None:
        """Check an answer to a prompt, and note oddities."""
        if not isinstance(answer, dict):
            return
        model, usage = answer.get("model"), answer.get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        with self._lock:
            if isinstance(model, str) and model not in ("", self._asked_for, self._name):
                others = {*self._notes.get("answered_as", ()), beginning(model)}
                self._notes["answered_as"] = sorted(others)
            if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0:
                words = len(prompt.split())
                if tokens > self._most_tokens:
                    self._most_tokens, self._words_of_most = tokens, set()
                if tokens == self._most_tokens:
                    self._words_of_most.add(words)
                lengths = self._words_of_most
                is_limit = len(lengths) >= _ALIKE and max(lengths) - min(lengths) >= 2 * _ALIKE
                if tokens < words or is_limit:
                    cut = {"prompt_tokens": tokens, "prompt_words": max(words, *lengths)}
                    self._notes.setdefault("prompts_cut", cut)
        if self._strict:
            require_as_asked("", {"name": self._name, **self.notes()})

    def notes(self) -> dict[str, Any]:
        """Return the oddities in the form of the metadata; empty if there were none."""
        with self._lock:
            return dict(self._notes)


# --- Unknown tokens ---
#
# A vocabulary that fits the language splits unknown words, down to single letters if necessary:
# with BERT's, one token in 20,000 of MultiNLI is unknown, and none of SNLI. A model with a missing
# or broken tokenizer, or one of another language, still gives answers.

SHARE: Final = 0.03
"""Largest share of unknown tokens without a warning; a suitable vocabulary has far fewer."""
_TEXTS: Final = 2000
"""Size of the sample of texts: with 24 tokens each, 3 % is estimated to within 0.2."""
_EXAMPLES: Final = 5

log = logging.getLogger(__name__)

T = TypeVar("T")


def unknown_sentence(unknown: Mapping[str, Any]) -> str:
    """Describe the result of `count_unknown` in a sentence."""
    return (
        f"{unknown['unknown'] / unknown['tokens']:.0%} of {unknown['tokens']:,} tokens in "
        f"{unknown['texts']:,} texts are unknown to its tokenizer, as in "
        f"{', '.join(map(repr, unknown['words']))}; is it the tokenizer that it was trained with, "
        "and the right language?"
    ).replace("%", " %", 1)


def warn_of_unknown(name: str, unknown: Mapping[str, Any]) -> None:
    """Warn if `count_unknown` found many unknown tokens."""
    if unknown:
        log.warning("%s: warning: %s", name, unknown_sentence(unknown))


def evenly(values: Sequence[T]) -> Sequence[T]:
    """Take every n-th value, so that at most `_TEXTS` remain."""
    return values[:: -(-len(values) // _TEXTS) or 1]


def count_unknown(
    texts: Sequence[str],
    tokenize: Callable[[list[str]], Sequence[Sequence[int]]],
    unknown_id: int | None,
) -> dict[str, Any]:
    """Count unknown tokens in an even sample of texts, for provenance; empty if there are few."""
    sample = list(evenly(texts))
    if unknown_id is None or not sample:
        return {}
    rows = tokenize(sample)
    tokens = sum(map(len, rows))
    unknown = sum(list(row).count(unknown_id) for row in rows)
    if unknown <= SHARE * tokens:
        return {}
    words = [w for w, _ in Counter(w for text in sample for w in text.split()).most_common()]
    bad = (word for word, row in zip(words, tokenize(words), strict=True) if unknown_id in row)
    examples = list(islice(bad, _EXAMPLES))
    return {"texts": len(sample), "tokens": tokens, "unknown": unknown, "words": examples}
