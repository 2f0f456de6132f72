"""What is asked of a text generator and what comes back: data only, nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How candidates are searched for: everything that determines them but the temperature.

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
class Request:
    """A hypothesis to be paraphrased."""

    hypothesis: str
    temperature: float
    """What logits are divided by; above 0."""
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
    """As decoded, special tokens left out; `prompts.clean` finds the paraphrase in it."""
    finished: bool
    """False where the most new tokens were reached before an end."""
    score: float
    """Log-probability at the request's temperature, without penalties, in nats per token."""


class TextGenerator(Protocol):
    """A model that rewrites hypotheses."""

    @property
    def batch_size(self) -> int:
        """How many requests suit its device at a time."""

    def describe(self) -> dict[str, Any]:
        """What tells it from other generators; JSON-able, `name` and `revision` at least."""

    def length(self, hypothesis: str) -> int:
        """Tokens of a hypothesis' prompt: requests of similar lengths suit a batch."""

    def candidates(self, requests: Sequence[Request]) -> list[list[Candidate]]:
        """The candidates for each request of one batch.

        The best of each group first, group by group, then each group's second best, and so
        on. The same batch gives the same candidates; a request gives the same in other
        batches but for rounding.
        """
