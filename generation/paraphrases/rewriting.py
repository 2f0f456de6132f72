"""Rewriting a hypothesis: the prompt and the search, and the paraphrase in what comes back.

Data and their checks only, nothing heavy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

INSTRUCTION: Final = (
    "Rephrase the following sentence while preserving its original meaning: {hypothesis}"
)
"""The paper's prompt."""

_MARKS: Final = ('""', "''", "“”", "‘’", "«»", "``")
"""Opening and closing quotation marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Settings of the search for candidates: all that determine them but the temperature.

    Beams are dealt to groups that keep out of each other's way (Vijayakumar et al., 2016,
    arXiv:1610.02424), and within a group beams of one parent keep out of each other's way
    (Li, Monroe and Jurafsky, 2016, arXiv:1611.08562).

    Penalties are in nats of the scores they are taken from, which are log-probabilities at
    the request's temperature. A temperature t stretches differences of log-probabilities by
    1/t, so at 0.3–0.6 a penalty of 1 is what 0.3–0.6 is at temperature 1: within 0.2–0.8,
    where Vijayakumar et al. found group beam search to work well.
    """

    num_beams: int = 20
    """Candidates per request."""
    num_beam_groups: int = 10
    diversity_penalty: float = 1.0
    """Per beam of an earlier group that goes on with the same token at the same step."""
    sibling_penalty: float = 0.5
    """Per better continuation of the same beam."""
    max_new_tokens: int = 40

    def __post_init__(self) -> None:
        """Check every value; raises ValueError naming field and remedy."""
        for name in ("num_beams", "num_beam_groups", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")
        for name in ("diversity_penalty", "sibling_penalty"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(
                    f"{name}: expected a number of nats from 0 on (0: no penalty), got "
                    f"{getattr(self, name)}"
                )
        if self.num_beams % self.num_beam_groups:
            raise ValueError(
                f"num_beams: expected a multiple of num_beam_groups ({self.num_beam_groups}), "
                f"so that groups are of one size, got {self.num_beams}"
            )

    @property
    def group_size(self) -> int:
        """Beams of a group."""
        return self.num_beams // self.num_beam_groups


@dataclass(frozen=True, slots=True)
class ParaphraseRequest:
    """A hypothesis to be paraphrased."""

    hypothesis: str
    temperature: float
    """Divisor of the logits; above 0."""
    earlier: tuple[str, ...] = ()
    """Candidates of earlier rounds as they came (`Candidate.text`): they count as groups
    before the first."""

    def __post_init__(self) -> None:
        """Raises ValueError for a temperature that is not above 0."""
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature: expected a number above 0, got {self.temperature}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One output for a request."""

    text: str
    """Decoded text without special tokens; `clean` finds the paraphrase in it."""
    finished: bool
    """False where the most new tokens were reached before an end."""
    score: float
    """Log-probability at the request's temperature, without penalties, in nats per token."""


class TextGenerator(Protocol):
    """A model that rewrites hypotheses."""

    @property
    def batch_size(self) -> int:
        """Number of requests that suit its device at a time."""

    def describe(self) -> dict[str, Any]:
        """Describe what tells it from others; JSON-able, `name` and `revision` at least."""

    def length(self, hypothesis: str) -> int:
        """Count the tokens of a hypothesis' prompt: similar lengths suit a batch."""

    def candidates(self, requests: Sequence[ParaphraseRequest]) -> list[list[Candidate]]:
        """Find the candidates for each request of one batch.

        The best of each group first, group by group, then each group's second best, and so
        on. The same batch gives the same candidates; a request gives the same in other
        batches but for rounding.
        """


# --- Prompt and answer ---


def fill_prompt(prompt: str, hypothesis: str) -> str:
    """Put the hypothesis in its place in the prompt, whatever other braces either has.

    >>> fill_prompt(INSTRUCTION, "A girl jumps.")
    'Rephrase the following sentence while preserving its original meaning: A girl jumps.'
    """
    return prompt.replace("{hypothesis}", hypothesis)


def check_prompt(prompt: str) -> str:
    """Return the prompt, which must have a place for the hypothesis.

    Raises:
        ValueError: it has no place for the hypothesis.
    """
    if "{hypothesis}" not in prompt:
        raise ValueError(
            f"prompt: expected {{hypothesis}} where the sentence is to stand, got {prompt!r}"
        )
    return prompt


def clean(text: str, hypothesis: str) -> str:
    r"""Find the paraphrase in a generator's answer; "" if there is none.

    The first line that says something: a first line that ends in a colon announces the
    answer. Quotation marks around the whole are left out. What the hypothesis has itself,
    a colon at the end or quotation marks, stays.

    >>> clean('Here is another way to say it:\n\n"A girl leaps."\nOr not.', "A girl jumps.")
    'A girl leaps.'
    >>> clean('"So," she said.', "She said so.")
    '"So," she said.'
    """
    hypothesis = hypothesis.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].endswith(":") and not hypothesis.endswith(":"):
        lines = lines[1:]
    line = lines[0] if lines else ""
    return line if _quoted(hypothesis) else _without_marks(line)


def _without_marks(line: str) -> str:
    while _quoted(line):
        line = line[1:-1].strip()
    return line


def _quoted(line: str) -> bool:
    """Tell whether one pair of quotation marks encloses the whole, and no more than that.

    >>> [_quoted(line) for line in ('"A girl."', '"A" and "B"', "'A girl doesn't.'", '"')]
    [True, False, True, False]
    """
    inner = line[1:-1]
    return any(
        len(line) > 1
        and line[0] == opening
        and line[-1] == closing
        and not any(_is_mark(inner, i) for i, c in enumerate(inner) if c in {opening, closing})
        for opening, closing in _MARKS
    )


def _is_mark(text: str, position: int) -> bool:
    """Tell whether a character is a quotation mark there, not an apostrophe between letters."""
    around = text[max(0, position - 1) : position + 2]
    return not (len(around) == 3 and around[0].isalpha() and around[2].isalpha())
