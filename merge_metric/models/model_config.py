"""Configurations of models as they lie in files, and what is wrong with them before any is built.

transformers builds a model by its configuration, however absurd the sizes in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from merge_metric.models.heads import Head
from merge_metric.models.model_files import ModelFiles
from merge_metric.models.weight_files import Weights

CONFIG: Final = "config.json"

_LAYERS: Final = frozenset(
    {
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks", "encoder_layers",
        "decoder_layers", "num_encoder_layers", "num_decoder_layers", "num_hidden_groups",
    }
)  # fmt: skip
"""Numbers of layers: each has a tensor of its own at least, but for some that share all."""
_WIDTHS: Final = frozenset(
    {"vocab_size", "hidden_size", "d_model", "n_embd", "dim", "intermediate_size", "d_ff"}
)
"""Sizes that are the size of a dimension of some tensor."""
_MOST_CLASSES: Final = 10_000
_ENDINGS: Final = re.compile(
    r"(Model|Decoder|LMHead|For(MaskedLM|PreTraining|CausalLM|ConditionalGeneration|"
    r"SequenceClassification|TokenClassification|QuestionAnswering\w*|MultipleChoice|"
    r"NextSentencePrediction|\w*Image\w*|\w*Audio\w*|\w*Speech\w*|CTC|\w*Retrieval))$"
)
"""How classes of transformers end; others are somebody's own."""


def read_config(files: ModelFiles) -> dict[str, Any]:
    """Read a model's configuration as it lies there.

    Raises:
        ValueError: there is none, or it is no JSON object.
    """
    if CONFIG not in files:
        raise ValueError(f"{files.source}: expected a model, found no {CONFIG} in it")
    return files.read_json(CONFIG)


def class_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of a classifier's classes in order, as transformers understands a configuration.

    >>> class_names({"id2label": {"1": "no", "0": "yes"}}), class_names({"num_labels": 1})
    (('yes', 'no'), ('LABEL_0',))
    """
    names = config.get("id2label")
    if isinstance(names, Mapping) and all(str(n).isdecimal() for n in names):
        return tuple(str(names[n]) for n in sorted(names, key=int))
    count = config.get("num_labels", 2)
    count = count if type(count) is int and 0 < count <= _MOST_CLASSES else 2
    return tuple(f"LABEL_{n}" for n in range(count))


def problems_of_config(
    files: ModelFiles, config: Mapping[str, Any], head: Head, *, is_base: bool
) -> Iterator[str]:
    """Say what is wrong with a configuration.

    Args:
        files: Of the model.
        config: The configuration.
        head: What the weights must have been trained for.
        is_base: Whether they are those of an adapter's base model, which may have another head.
    """
    where = files.where(CONFIG)
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        yield f"{where}: expected architectures, a list of names, got {names!r:.80}"
        return
    count = config.get("num_labels", len(config.get("id2label") or ()))
    if type(count) is not int or not 0 <= count <= _MOST_CLASSES:
        yield f"{where}: expected num_labels up to {_MOST_CLASSES:,}, got {count!r:.40}"
    own = [name for name in names if not _ENDINGS.search(name)] or _own_code(config, head)
    if own:
        yield (
            f"{where}: expected a class of transformers, got {own[0]}, which needs code of its "
            f"own; that is never run"
        )
    elif "model_type" in config and not _is_known_type(config):
        yield (
            f"{where}: expected a type of model that transformers has, got "
            f"{config['model_type']!r:.60}: a newer transformers may have it"
        )
    elif is_base or not names or any(name.endswith(head.architectures) for name in names):
        return
    elif not all(name.endswith("Model") for name in names):
        yield (
            f"{where}: expected an architecture that ends in …{', …'.join(head.architectures)}, "
            f"got {', '.join(names)}: is it a model for another task?"
        )


def _own_code(config: Mapping[str, Any], head: Head) -> list[str]:
    """Name the class of code that lies with the model, where transformers has none of its name."""
    table = config.get("auto_map")
    if not isinstance(table, Mapping):
        return []
    for key in (head.auto_class, head.encoder_decoder_class, "AutoConfig"):
        if isinstance(named := table.get(key), str) and not _is_known_type(config):
            return [named.rpartition(".")[2]]
    return []


def _is_known_type(config: Mapping[str, Any]) -> bool:
    """Tell whether transformers has a model of this type; most are seen without importing it."""
    kind, spec = str(config.get("model_type", "")), find_spec("transformers")
    folder = kind.replace("-", "_")
    models = Path(spec.origin).parent / "models" if spec and spec.origin else None
    if models is not None and folder.isidentifier() and (models / folder).is_dir():
        return True
    from transformers.models.auto import configuration_auto

    return kind in vars(configuration_auto)["CONFIG_MAPPING_NAMES"]


def problems_of_sizes(
    files: ModelFiles, config: Mapping[str, Any], weights: Weights
) -> Iterator[str]:
    """Compare a configuration's sizes with the weights': a model is built by the former."""
    if not weights.tensors:
        return
    largest = max((n for tensor in weights.tensors.values() for n in tensor.shape), default=0)
    for key, value in _integers(config):
        if value < 0 and (key in _LAYERS | _WIDTHS or key.startswith(("num_", "n_"))):
            yield f"{files.where(CONFIG)}: {key}: expected no negative number, got {value:,}"
            continue
        if key in _LAYERS and value > len(weights.tensors):
            told = f"the weights have {len(weights.tensors):,} tensors only"
        elif key in _WIDTHS and value > largest:
            told = f"the largest dimension of the weights is {largest:,}"
        else:
            continue
        yield (
            f"{files.where(CONFIG)}: it says {key} {value:,}; {told}: one of the two is damaged, "
            f"or not of this model; get it again"
        )


def _integers(config: Mapping[str, Any], depth: int = 3) -> Iterator[tuple[str, int]]:
    for key, value in config.items():
        if type(value) is int:
            yield key, value
        elif isinstance(value, Mapping) and depth:
            yield from _integers(value, depth - 1)
