"""Named lists of models that are run together, from `presets.toml`."""

import logging
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Literal

from merge_dataset.settings import did_you_mean
from merge_metric.models.pair_model import ModelRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Preset:
    """A model of a list."""

    name: str
    """Short name, as in the paper's figures: `BERT-B-S`."""
    model: str
    group: str
    """Training data (`S`, `M` or `SMFA`), or `LLM`."""
    kind: Literal["classifier", "lm"] = "classifier"
    label_order: str | None = None
    """Labels of its classes; `seeds` if no document states them; None if its names are labels."""
    label_order_source: str | None = None
    not_on_hub: str | None = None


def read_presets(name: str, only: Sequence[str] = ()) -> list[Preset]:
    """Read the models of a list, in its order.

    Raises:
        ValueError: there is no such list, model or group.

    >>> [preset.name for preset in read_presets("paper", ["bert-b-s", "llm"])]
    ['BERT-B-S', 'Gemma-2-9b', 'Llama-3.1-8B']
    """
    lists = _read()
    if name not in lists:
        raise ValueError(f"preset: expected one of {', '.join(lists)}, got {name!r}")
    presets, wanted = lists[name], {entry.casefold(): entry for entry in only}
    names = [p.name for p in presets] + list(dict.fromkeys(p.group for p in presets))
    if unknown := wanted.keys() - map(str.casefold, names):
        odd = wanted[min(unknown)]
        advice = did_you_mean(odd, names, f"; `merge-nli models --preset {name}` lists them")
        raise ValueError(
            f"only: expected models of the preset {name} or groups, got {odd!r}{advice}"
        )
    chosen = wanted or dict.fromkeys(map(str.casefold, names))
    return [p for p in presets if {p.name.casefold(), p.group.casefold()} & chosen.keys()]


def request_of(entry: Preset, request: ModelRequest) -> ModelRequest:
    """Fill a preset's model into a request; without a document, seeds decide its label order."""
    order = request.label_order if entry.kind == "classifier" else None
    if order is None and entry.label_order == "seeds":
        order = "seeds"
    return replace(request, model=entry.model, kind=entry.kind, label_order=order)


def on_hub(presets: Sequence[Preset], only: Sequence[str] = ()) -> list[Preset]:
    """Leave out models that are not on the Hub, with a message; raise if one was named."""
    named = {entry.casefold() for entry in only}
    missing = [preset for preset in presets if preset.not_on_hub]
    for preset in missing:
        if preset.name.casefold() in named or len(missing) == len(presets):
            raise ValueError(f"{preset.name}: cannot be run: {preset.not_on_hub}")
        log.warning("left out: %s: %s", preset.name, preset.not_on_hub)
    return [preset for preset in presets if not preset.not_on_hub]


def documented_order(model: str) -> tuple[str, str] | None:
    """Look up the labels of a model's classes, and the address of the document with them.

    >>> documented_order("textattack/bert-base-uncased-snli")[0]
    'c,e,n'
    """
    for presets in _read().values():
        for preset in presets:
            if preset.model.casefold() == model.casefold():
                order, document = preset.label_order, preset.label_order_source
                return (order, document) if order and document else None
    return None


def _read() -> dict[str, list[Preset]]:
    file = resources.files("merge_metric.models").joinpath("presets.toml")
    lists = tomllib.loads(file.read_text(encoding="utf-8"))
    return {name: [Preset(**entry) for entry in entries] for name, entries in lists.items()}
