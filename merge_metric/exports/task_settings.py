"""Settings of tasks in other harnesses, from a file beside them; copied into exports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from merge_metric.models.templates import Prompt

EXPORTED: Final = Path(__file__).resolve().parents[1]
"""The exported folder, in which this file is in the metric's."""

SETTINGS: Final = "merge_nli.json"


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Content of `SETTINGS`: the questions to a model, and where the problems are."""

    dataset: str
    """Name for `datasets.load_dataset`, or a folder, as seen from the exported one."""
    revision: str | None
    prompts: dict[str, Prompt]
    left_out: dict[str, list[str]]
    thresholds: tuple[int, ...]
    forms: tuple[str, ...]
    """Texts that may stand before a letter: a space, or also nothing."""
    max_answer_tokens: int | None
    """Most tokens of an answer in words; None where letters are compared."""

    @classmethod
    def read(cls) -> TaskSettings:
        """Read the file of the exported folder."""
        settings = json.loads((EXPORTED / SETTINGS).read_text(encoding="utf-8"))
        prompts = {name: Prompt.of_record(record) for name, record in settings["prompts"].items()}
        lists = {name: tuple(settings[name]) for name in ("thresholds", "forms")}
        return cls(**settings | lists | {"prompts": prompts})

    @property
    def is_in_words(self) -> bool:
        """Whether the model writes, and its final answer is read."""
        return self.max_answer_tokens is not None

    def choices(self, config: str) -> list[str]:
        """List the letters, in each way to write them after the question."""
        letters = self.prompts[config].template.letters
        return [form + letter for form in self.forms for letter in letters]
