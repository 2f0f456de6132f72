"""Adapters (LoRA and its kin): weights beside a base model's, merged into them by the package peft.

An adapter is known by its `adapter_config.json`, whatever else lies there.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from merge_metric.models.model_files import ModelFiles
from merge_metric.models.weight_files import Weights, find_weights

ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_STEM: Final = "adapter_model"
"""Name, without the ending, of an adapter's weights."""

_MERGED: Final = ("LORA", "IA3", "LOHA", "LOKR")
"""Kinds of adapters that can be merged, as peft calls them."""
_PREFIX: Final = "base_model.model."
"""Beginning of the names of an adapter's tensors."""
_HEAD: Final = re.compile(r"(^|\.)(classifier|score|out_proj|logits_proj)\.weight$")
"""Names of the last matrix of classification heads: a row per class."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's configuration, as far as it is needed before peft reads it."""

    kind: str
    """Kind of adapter, as peft calls it, such as LORA."""
    base: str
    """Folder or id of the base model."""
    base_revision: str | None
    config: Mapping[str, Any]

    @property
    def asked_base(self) -> str:
        """The base model with its revision, as users write it."""
        return f"{self.base}@{self.base_revision}" if self.base_revision else self.base


def is_adapter(files: ModelFiles) -> bool:
    """Tell whether a folder or repository holds an adapter."""
    return ADAPTER_CONFIG in files


def read_adapter(files: ModelFiles) -> Adapter:
    """Read an adapter's configuration.

    Raises:
        ValueError: it is damaged, or of a kind that cannot be merged.
    """
    where, config = files.where(ADAPTER_CONFIG), files.read_json(ADAPTER_CONFIG)
    kind, base = config.get("peft_type"), config.get("base_model_name_or_path")
    if kind not in _MERGED:
        raise ValueError(
            f"{where}: expected an adapter that can be merged into its base model "
            f"({', '.join(_MERGED)}), got {kind!r:.60}"
        )
    if not isinstance(base, str) or not base:
        raise ValueError(
            f"{where}: expected base_model_name_or_path, the model it was trained on, got {base!r}"
        )
    if config.get("megatron_config"):
        raise ValueError(f"{where}: expected an adapter of transformers, got one of Megatron")
    revision = config.get("revision")
    return Adapter(str(kind), base, revision if isinstance(revision, str) else None, config)


def find_adapter_weights(files: ModelFiles) -> Weights:
    """Find an adapter's weights.

    Raises:
        ValueError: there are none, or they are not whole.
    """
    return find_weights(files, stem=ADAPTER_STEM, pickled=ADAPTER_STEM)


def count_classes(weights: Weights) -> int | None:
    """Count the classes of a classification head that is saved with an adapter.

    Returns:
        None where no head is, or the weights are pickled, so that nothing is known of them yet.
    """
    for name, tensor in weights.tensors.items():
        if _HEAD.search(name) and ".lora_" not in name and len(tensor.shape) == 2:
            return tensor.shape[0]
    return None


def names_in_base(names: Iterable[str]) -> set[str]:
    """Name the base model's tensors that an adapter's replace as a whole."""
    return {name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)}


def merge(
    base: Any, config_folder: Path, weights_folder: Path, names: Set[str], source: str
) -> Any:
    """Merge an adapter into its base model.

    Args:
        base: The model, on the CPU. Changed.
        config_folder: Folder with the adapter's configuration.
        weights_folder: Folder with its weights in safetensors.
        names: Names of these.
        source: What messages call it.

    Returns:
        The base model with the adapter's weights added.

    Raises:
        ValueError: it does not fit.
    """
    from peft import PeftConfig, PeftModel, get_peft_model_state_dict

    with warnings.catch_warnings():
        # On settings of other versions, and on keys that are missing, which are counted below.
        warnings.simplefilter("ignore")
        config = PeftConfig.from_pretrained(str(config_folder))
        config.auto_mapping = None
        model = PeftModel.from_pretrained(
            base, str(weights_folder), config=config, low_cpu_mem_usage=True
        )
    expected = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    if odd := sorted(expected ^ names):
        lacks = "lacks" if odd[0] in expected else "has, beside others,"
        raise ValueError(
            f"{source}: for {type(base).__name__} its weights' file {lacks} {odd[0]}: is it an "
            f"adapter of another base model?"
        )
    return model.merge_and_unload()
