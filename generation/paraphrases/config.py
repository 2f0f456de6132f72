"""The settings of a run that paraphrases hypotheses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from generation.paraphrases.candidates import Decoding
from generation.paraphrases.prompts import INSTRUCTION, check_prompt
from generation.settings import (
    ProblemSettings,
    check_counts,
    check_settings,
    from_mapping,
    parse_toml,
    to_toml,
    values_of,
)
from merge_dataset.schema import NLI

GENERATOR: Final = "google/flan-t5-xl"
"""The generator of Arakelyan et al. (2024), section 4.1."""

_DECODING: Final = Decoding()
_FLOATS: Final = ("temperature_min", "temperature_max", "diversity_penalty", "sibling_penalty")
_OF_THE_MACHINE: Final = frozenset(
    {"data", "generator", "gguf_file", "model", "model_kind", "model_revision", "label_order",
     "device", "dtype", "run"}
)  # fmt: skip
"""Settings left out of `ParaphraseConfig.what_is_made`: paths, and what the manifest records
as it came out (generator and NLI model with revision, device and dtype)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParaphraseConfig(ProblemSettings):
    """Everything that determines a run; validated on creation."""

    # Generator
    generator: str = GENERATOR
    """Hub id, optionally `id@revision`, folder, or .gguf file."""
    gguf_file: str | None = None
    """A GGUF file in that folder or repository."""
    prompt: str = INSTRUCTION
    """What it is asked, with `{hypothesis}` in it."""

    # NLI model: answers the problems, and decides what is a paraphrase
    model: str
    """Hub id, folder, or .gguf file."""
    model_kind: Literal["classifier", "lm"] | None = None
    """By default found out."""
    model_revision: str | None = None
    label_order: str | None = None
    """What a classifier's classes 0, 1, 2 mean, where its configuration does not say it."""

    # Search
    k: int = 10
    """Paraphrases kept of a hypothesis."""
    max_rounds: int = 5
    """How often a hypothesis is rewritten at most, each time with a new temperature."""
    temperature_min: float = 0.3
    temperature_max: float = 0.6
    num_beams: int = _DECODING.num_beams
    """Candidates per round."""
    num_beam_groups: int = _DECODING.num_beam_groups
    diversity_penalty: float = _DECODING.diversity_penalty
    sibling_penalty: float = _DECODING.sibling_penalty
    max_new_tokens: int = _DECODING.max_new_tokens
    rng_seed: int = 0
    """Of the temperatures."""

    # Machine
    batch_size: int | None = None
    """Hypotheses rewritten together; by default what suits the device. Their company decides
    by rounding only, but may so decide between two words."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, `mps`."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the generator; `auto` is what suits the device."""
    run: str = "runs/paraphrases"

    def __post_init__(self) -> None:
        """Check every value; raises ValueError or TypeError naming field and remedy."""
        check_settings(self)
        if self.fields != NLI.fields or self.labels not in ((), NLI.labels):
            raise ValueError(
                "fields, labels: expected problems of NLI, as it is their hypotheses that are "
                f"paraphrased, got {list(self.fields)}, {list(self.labels)}"
            )
        for name in _FLOATS:
            object.__setattr__(self, name, float(getattr(self, name)))
        for name in ("generator", "model"):
            if not getattr(self, name):
                raise ValueError(f"{name}: expected a Hub id or a folder, got nothing")
        check_prompt(self.prompt)
        check_counts(self, "k", "max_rounds", optional=("batch_size",))
        if not 0 < self.temperature_min <= self.temperature_max < float("inf"):
            raise ValueError(
                f"temperature: expected two numbers above 0, the smaller one first, got "
                f"{self.temperature_min} and {self.temperature_max}"
            )
        _ = self.decoding  # checks its values itself

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Fields by name, as read from TOML.

        Raises:
            ValueError: a key is no field; the message names the nearest one.
        """
        return from_mapping(cls, values)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a `config.toml` as `to_toml` wrote it."""
        return cls.from_mapping(parse_toml(path.read_text(encoding="utf-8"), str(path)))

    def to_toml(self) -> str:
        """The settings as TOML in the order above; unset ones left out."""
        return to_toml(self)

    @property
    def decoding(self) -> Decoding:
        """How the generator searches."""
        return Decoding(
            num_beams=self.num_beams,
            num_beam_groups=self.num_beam_groups,
            diversity_penalty=self.diversity_penalty,
            sibling_penalty=self.sibling_penalty,
            max_new_tokens=self.max_new_tokens,
        )

    @property
    def most_characters(self) -> int:
        """Longest candidate that is looked at: a token has seldom ten characters."""
        return 10 * self.max_new_tokens

    def what_is_made(self) -> dict[str, Any]:
        """The settings that decide what is made: neither the machine's nor the paths."""
        values = {**values_of(self), "label_map": dict(self.label_map)}
        return {k: v for k, v in values.items() if k not in _OF_THE_MACHINE}
