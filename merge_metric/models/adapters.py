"""Adapters: weights beside a base model's, merged into them by the package peft."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from merge_metric.models.model_files import ModelFiles, find_files
from merge_metric.models.weights import Weights, find_weights

ADAPTER_CONFIG: Final = "adapter_config.json"
"""File by which an adapter (LoRA and its kin) is known, whatever else lies there."""
ADAPTER_STEM: Final = "adapter_model"
"""Name, without the ending, of an adapter's weights."""
TASKS: Final = {
    "SEQ_CLS": "ForSequenceClassification",
    "CAUSAL_LM": "ForCausalLM",
    "SEQ_2_SEQ_LM": "ForConditionalGeneration",
}
"""Task of an adapter in peft → ending of the architecture that results."""
_MERGED: Final = ("LORA", "IA3", "LOHA", "LOKR")
"""Types of adapters that can be merged, by their names in peft."""
_CLASS_MATRIX: Final = re.compile(r"(^|\.)(classifier|score|out_proj|logits_proj)\.weight$")
"""Names of the last matrix of classification heads: a row per class."""


def read_adapter(files: ModelFiles) -> dict[str, Any]:
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
    return config


def find_base(adapter: Mapping[str, Any]) -> ModelFiles:
    """Find the base model that an adapter's configuration names; nothing is listed yet."""
    revision = adapter.get("revision")
    base = str(adapter["base_model_name_or_path"])
    return find_files(base, revision=revision if isinstance(revision, str) else None)


def find_adapter_weights(files: ModelFiles) -> Weights:
    """Find an adapter's weights; raise ValueError where there are none, or they are not whole."""
    return find_weights(files, stem=ADAPTER_STEM, pickled=ADAPTER_STEM)


def count_classes(weights: Weights) -> int | None:
    """Count the classes of a classification head that is saved with an adapter.

    Returns:
        None where no head is, or the weights are pickled, so that nothing is known of them yet.
    """
    for name, tensor in weights.tensors.items():
        if _CLASS_MATRIX.search(name) and ".lora_" not in name and len(tensor.shape) == 2:
            return tensor.shape[0]
    return None
