"""Lists of models that are run together: `presets.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal


@dataclass(frozen=True, slots=True)
class Preset:
    """A model of a list."""

    name: str
    """Short, such as the paper's figures have it: `BERT-B-S`."""
    model: str
    """Hub id."""
    group: str
    """Its training data: `S`, `M`, `SMFA`; or `LLM`."""
    kind: Literal["classifier", "lm"] = "classifier"
    label_order: str | None = None
    """Labels of its classes 0, 1, 2, where they are documented: `c,e,n`."""


def read_presets(name: str, only: Sequence[str] = ()) -> list[Preset]:
    """Read the models of a list, in its order.

    Args:
        name: Name of the list, such as `paper`.
        only: Names of models or groups, in any case; by default all.

    Raises:
        ValueError: there is no such list, model or group.

    >>> [preset.name for preset in read_presets("paper", ["bert-b-s", "llm"])]
    ['BERT-B-S', 'Gemma-2-9b', 'Llama-3.1-8B']
    """
    lists = _read()
    if name not in lists:
        raise ValueError(f"preset: expected one of {', '.join(lists)}, got {name!r}")
    presets = lists[name]
    wanted = {each.casefold() for each in only}
    known = {each.casefold() for preset in presets for each in (preset.name, preset.group)}
    if unknown := [each for each in only if each.casefold() not in known]:
        groups = list(dict.fromkeys(preset.group for preset in presets))
        raise ValueError(
            f"preset {name}: expected groups out of {', '.join(groups)} or models out of "
            f"{', '.join(preset.name for preset in presets)}, got "
            f"{', '.join(map(repr, unknown))}"
        )
    return [
        preset
        for preset in presets
        if not wanted or {preset.name.casefold(), preset.group.casefold()} & wanted
    ]


def documented_order(model: str) -> str | None:
    """Look up the labels of a model's classes, for configurations that do not name them.

    Args:
        model: Hub id, in any case.

    >>> documented_order("textattack/bert-base-uncased-snli")
    'c,e,n'
    """
    for presets in _read().values():
        for preset in presets:
            if preset.model.casefold() == model.casefold():
                return preset.label_order
    return None


def _read() -> dict[str, list[Preset]]:
    file = resources.files("merge_metric.models").joinpath("presets.toml")
    lists = tomllib.loads(file.read_text(encoding="utf-8"))
    return {name: [Preset(**entry) for entry in entries] for name, entries in lists.items()}
