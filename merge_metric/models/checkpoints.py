"""Checkpoints: configuration, tokenizer and weights from a folder, the Hub, or a GGUF file.

The one place that loads weights, whatever head they are wanted with. Everything is of one commit,
which `inspection` found, and transformers reads it from a folder on this machine: it asks the Hub
for nothing. No code of a repository is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from merge_metric.models.heads import Head
from merge_metric.models.inspection import Inspection
from merge_metric.models.model_files import digest_of_files, digest_of_folder

if TYPE_CHECKING:
    import torch

DTYPES: Final = ("auto", "float32", "bfloat16", "float16", "float64")


class Loaded(NamedTuple):
    """A model on its device, with what tells it from others."""

    model: Any
    """Its linear layers are packed where that is faster."""
    tokenizer: Any
    name: str
    revision: str
    """Commit on the Hub, or digest of the files."""
    weights_sha256: str
    """Digest of the file with the weights; of several, of their names and digests."""


def load(found: Inspection, *, device: str = "auto", dtype: str = "auto") -> Loaded:
    """Load a checkpoint's weights with a head, and its tokenizer.

    Args:
        found: From `inspection.inspect`.
        device: `auto` takes a GPU if there is one.
        dtype: One of `DTYPES`; `auto` is bfloat16 on CUDA devices and float32 elsewhere.

    Raises:
        ValueError: no such model, device or dtype, no weights in the formats read, or weights
            that were not trained with this head.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    device = resolve_device(device)
    files, weights = found.require()
    import torch

    from merge_metric.models.packed_linear import pack_linear_layers

    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    model, tokenizer = _read(found, getattr(torch, dtype))
    files.remember()
    return Loaded(
        pack_linear_layers(model.to(device)),
        tokenizer,
        found.name,
        files.commit or _digest(found),
        digest_of_files(files, weights.names),
    )


def resolve_device(device: str) -> str:
    """`auto` → the best device there is; anything else must be a torch device.

    Raises:
        ValueError: torch knows no such device, or it is not there.
    """
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device: expected 'auto', 'cpu' or a device torch can use, got {device!r}: {error}"
        ) from error
    return device


def max_tokens(model: Any, tokenizer: Any) -> int | None:
    """Longest input in tokens, special ones included; None where there is no limit.

    RoBERTa and its kin count positions from `padding_idx + 1`.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or -1
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    if positions > 0 and padding is not None:
        positions -= padding + 1
    limits = [limit for limit in (positions, tokenizer.model_max_length) if 0 < limit < 10**9]
    return min(limits, default=None)


def _read(found: Inspection, dtype: torch.dtype) -> tuple[Any, Any]:
    """Load model and tokenizer with transformers."""
    import transformers

    source, head = found.checkpoint.source, found.head
    folder = found.require()[0].download(found.needed)
    gguf = {"gguf_file": found.checkpoint.gguf_file} if found.checkpoint.gguf_file else {}
    try:
        config = _read_config(found, folder, gguf)
        auto_class = head.auto_class
        if getattr(config, "is_encoder_decoder", False) and head.encoder_decoder_class:
            auto_class = head.encoder_decoder_class
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            folder, config=config, trust_remote_code=False, **gguf
        )
        model, info = getattr(transformers, auto_class).from_pretrained(
            folder,
            config=config,  # reading a GGUF file's metadata again takes seconds
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            trust_remote_code=False,
            **gguf,
        )
    except ImportError as error:
        raise ValueError(
            f"{source}: expected the packages that can read it (for GGUF files: "
            f"pip install gguf accelerate): {error}"
        ) from error
    except (OSError, ValueError) as error:
        raise _not_loaded(source, head, error) from error
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"{source}: expected {head.trained}, but the checkpoint lacks {missing[:3]}; "
            f"is it a model for another task?"
        )
    return model, tokenizer


def _read_config(found: Inspection, folder: Path, gguf: dict[str, str]) -> Any:
    """Read a checkpoint's configuration, as transformers understands it."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, **gguf)
    # transformers knows some models by their names on the Hub, and mends their tokenizers.
    config._name_or_path = found.checkpoint.source
    if getattr(config, "is_gated_act", False) and config.feed_forward_proj == "relu":
        # Of GGUF files transformers (5.23) reads that a T5 has gates, but leaves the activation
        # at the first T5's, which had none. T5 v1.1 and Flan-T5, which have, use GELU.
        config.feed_forward_proj, config.dense_act_fn = "gated-gelu", "gelu_new"
    return config


def _not_loaded(source: str, head: Head, error: Exception) -> ValueError:
    return ValueError(f"{source}: expected {head.described}, could not load it: {error}")


def _digest(found: Inspection) -> str:
    """Digest of the names and contents of a local checkpoint's files."""
    files, weights = found.require()
    if found.checkpoint.gguf_file:  # holds configuration and tokenizer, too
        return digest_of_files(files, weights.names)
    return digest_of_folder(files, weights.names)
