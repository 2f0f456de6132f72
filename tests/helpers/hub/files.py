import io
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import safetensors.torch
import torch

Files = Mapping[str, bytes]
Tensors = Mapping[str, torch.Tensor]

LFS_POINTER: Final = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 440473133\n"
)
"""Content of a large file in a repository that was cloned without git-lfs."""


def written(files: Files, folder: Path) -> Path:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


# --- Weights ---


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def renamed(tensors: Tensors, *changes: tuple[str, str]) -> dict[str, torch.Tensor]:
    """Rename tensors by pairs of a pattern and its replacement."""
    made = {}
    for name, tensor in tensors.items():
        for pattern, replacement in changes:
            name = re.sub(pattern, replacement, name)
        made[name] = tensor
    return made


OLD_NORMS: Final = (
    (r"LayerNorm\.weight$", "LayerNorm.gamma"),
    (r"LayerNorm\.bias$", "LayerNorm.beta"),
)


def noise(*shape: int) -> torch.Tensor:
    """Weights of an unused head, the same every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def safetensors_of(tensors: Tensors, *, shards: int = 1) -> dict[str, bytes]:
    """Make `model.safetensors`, or shards with an index."""

    def write(part: Tensors) -> bytes:
        own = {name: tensor.clone().contiguous() for name, tensor in part.items()}
        return safetensors.torch.save(own, {"format": "pt"})

    return _in_shards(tensors, shards, write, "model{}.safetensors")


def pickles_of(
    tensors: Tensors, *, shards: int = 1, old: bool = False, **more: Any
) -> dict[str, bytes]:
    """Make `pytorch_model.bin`, or shards with an index; `old` is the format before torch 1.6."""

    def write(part: Tensors) -> bytes:
        return pickled({**part, **more}, old=old)

    return _in_shards(tensors, shards, write, "pytorch_model{}.bin")


def pickled(value: Any, *, old: bool = False) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=not old)
    return file.getvalue()


def from_a_gpu(tensors: Tensors) -> dict[str, bytes]:
    """Make a pickle of the old format as on a machine with a GPU, where the tensors were."""
    (content,) = pickles_of(tensors, old=True).values()
    content = content.replace(b"ctorch\nFloatStorage", b"ctorch.cuda\nFloatStorage")
    content = content.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    assert content.count(b"cuda") >= 2
    return {"pytorch_model.bin": content}


def _in_shards(
    tensors: Tensors, shards: int, write: Callable[[Tensors], bytes], name: str
) -> dict[str, bytes]:
    if shards == 1:
        return {name.format(""): write(tensors)}
    files, places, size = {}, {}, sum(tensor.nbytes for tensor in tensors.values())
    for number in range(shards):
        path = name.format(f"-{number + 1:05}-of-{shards:05}")
        part = {tensor: tensors[tensor] for tensor in sorted(tensors)[number::shards]}
        files[path] = write(part)
        places |= dict.fromkeys(part, path)
    index = {"metadata": {"total_size": size}, "weight_map": places}
    return files | {f"{name.format('')}.index.json": as_json(index)}


class Payload:
    """A pickle that, when read, creates a file whose path is in the environment."""

    MARKER: Final = "MERGE_NLI_TEST_PAYLOAD"
    """Environment variable with the path of the file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f'touch "${{{self.MARKER}:-/nowhere}}"',)


PAYLOAD: Final = pickled({"weight": Payload()})
REMOTE_CODE: Final = (
    f'import os, pathlib\npathlib.Path(os.environ["{Payload.MARKER}"]).touch()\n'
).encode()
"""A repository's module that creates the same file when it is run."""


# --- Configuration ---


def as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def config_of(folder: Path, **changes: Any) -> dict[str, bytes]:
    """Make `config.json` as older versions wrote it; a change to None removes the key."""
    config = json.loads((folder / "config.json").read_text())
    for key in ("dtype", "tie_word_embeddings", "is_decoder", "add_cross_attention"):
        config.pop(key, None)
    config |= {"transformers_version": "4.6.0.dev0"} | changes
    return {"config.json": as_json({key: v for key, v in config.items() if v is not None})}


def anonymous() -> dict[str, Any]:
    """Labels of a configuration without names of classes."""
    return {
        "id2label": {str(number): f"LABEL_{number}" for number in range(3)},
        "label2id": {f"LABEL_{number}": number for number in range(3)},
    }


# --- Tokenizers ---


def whole_tokenizer(folder: Path) -> dict[str, bytes]:
    names = ("tokenizer.json", "tokenizer_config.json")
    return {name: (folder / name).read_bytes() for name in names}


def word_pieces(folder: Path, *, lowercase: bool) -> dict[str, bytes]:
    """Make `vocab.txt` and its companions of 2020."""
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    lines = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {
        f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")
    }
    return {
        "vocab.txt": "".join(f"{part}\n" for part in lines).encode(),
        "special_tokens_map.json": as_json(special),
        "tokenizer_config.json": as_json({"do_lower_case": lowercase, "model_max_length": 512}),
    }


def byte_pairs(folder: Path, **config: Any) -> dict[str, bytes]:
    """Make `vocab.json` and `merges.txt`, as for GPT-2, RoBERTa and BART."""
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    pairs = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    files = {
        "vocab.json": json.dumps(model["vocab"], ensure_ascii=False).encode(),
        "merges.txt": "\n".join(["#version: 0.2", *pairs, ""]).encode(),
    }
    return files | ({"tokenizer_config.json": as_json(config)} if config else {})
