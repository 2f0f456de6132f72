"""Causal language models from a folder, a GGUF file or the Hub. No code of theirs is run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

_FILES: Final = frozenset({".json", ".jinja", ".safetensors", ".model", ".txt"})
"""What a model's folder is known by: configuration, tokenizer, chat template, weights."""


class Loaded(NamedTuple):
    """A model on its device, with what tells it from others."""

    model: Any
    tokenizer: Any
    name: str
    """Hub id, or name of the folder or GGUF file."""
    revision: str
    """Commit on the Hub, or digest of the files."""


def load_causal_lm(
    model: str | Path, *, gguf_file: str | None = None, device: str = "auto", dtype: str = "auto"
) -> Loaded:
    """Load a causal language model and its tokenizer.

    Args:
        model: Directory, Hub id with an optional `@revision`, or a .gguf file.
        gguf_file: Name of a GGUF file in the directory or repository; else the weights must
            be safetensors.
        device: `auto` takes a GPU if there is one.
        dtype: `auto` is bfloat16 on CUDA devices and float32 elsewhere.

    Raises:
        ValueError: no such model, no weights in these formats, or not a trained one.
    """
    import torch

    from merge_metric.models.packed_linear import pack_linear_layers

    path = Path(model)
    if path.suffix == ".gguf" and path.is_file():
        path, gguf_file = path.parent, path.name
    local = path.is_dir()
    source, _, revision = (str(path), "", "") if local else str(model).partition("@")
    device = resolve_device(device)
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    weights, tokenizer = _read(source, revision or None, gguf_file, getattr(torch, dtype))
    return Loaded(
        pack_linear_layers(weights.to(device)),
        tokenizer,
        (Path(gguf_file).stem if gguf_file else path.resolve().name) if local else source,
        digest_of_files(model_files(path, gguf_file))
        if local
        else hub_commit(weights, source, revision, gguf_file or "config.json"),
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


def _read(source: str, revision: str | None, gguf_file: str | None, dtype: Any) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    arguments: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
    if gguf_file:
        arguments["gguf_file"] = gguf_file
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **arguments)
        result: Any = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, use_safetensors=True, output_loading_info=True, **arguments
        )
    except ImportError as error:
        raise ValueError(
            f"{source}: expected the packages that can read it (for GGUF files: "
            f"pip install gguf accelerate): {error}"
        ) from error
    except (OSError, ValueError) as error:
        raise ValueError(
            f"expected a causal language model with safetensors or GGUF weights, in a folder or "
            f"on the Hub, could not load {source!r}: {error}"
        ) from error
    model, info = result
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"{source}: expected a trained causal language model, but the checkpoint lacks "
            f"{missing[:3]}; is it a model for another task?"
        )
    return model, tokenizer


def digest_of_files(paths: Iterable[Path]) -> str:
    """Digest of files' names and contents, in whatever order they come."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        with path.open("rb") as file:
            digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def model_files(folder: Path, gguf_file: str | None = None) -> list[Path]:
    """What a local model is known by; a GGUF file holds the tokenizer too."""
    if gguf_file:
        return [folder / gguf_file]
    return [path for path in folder.iterdir() if path.suffix in _FILES]


def hub_commit(model: Any, source: str, revision: str, name: str) -> str:
    """The commit on the Hub that a model was loaded from.

    Args:
        model: As transformers loaded it.
        source: Its id on the Hub.
        revision: What was asked for; "" for the newest.
        name: A file that was loaded; where it lies in the cache tells the commit where the
            model does not, as with GGUF files.
    """
    if commit := getattr(model.config, "_commit_hash", None):
        return str(commit)
    from huggingface_hub import try_to_load_from_cache

    cached = str(try_to_load_from_cache(source, name, revision=revision or None))
    found = re.search(r"snapshots[/\\]([0-9a-f]{40})[/\\]", cached)
    return found[1] if found else revision or "unknown"
