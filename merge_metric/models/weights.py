"""Weights in files: their format, their tensors, and whether the files are complete.

Reads headers only, on this machine or, by parts of files, on the Hub: safetensors, and GGUF, whose
layout is that of ggml's specification (docs/gguf.md in its repository), versions 2 and 3.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from merge_metric.models.model_files import ModelFiles, find_files

WeightsFormat = Literal["safetensors", "pickle", "GGUF"]

_LARGEST_HEADER: Final = 100_000_000
"""Bytes of a safetensors header; the library's own limit."""
_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6,
    "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""Type of tensors in safetensors → bits of an element."""
_POINTER: Final = b"version https://git-lfs"
_OTHERS: Final = {
    "tf_model.h5": "TensorFlow", "flax_model.msgpack": "Flax", "rust_model.ot": "Rust",
    "model.onnx": "ONNX", "model.ckpt.index": "TensorFlow 1", "consolidated.00.pth": "Llama's own",
}  # fmt: skip
"""Files with weights that are not read, and their formats."""

_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
"""Number of a type of values → format of struct."""
_STRING, _ARRAY = 8, 9
_GGUF_CHUNK: Final = 4 * 2**20
_LARGEST_GGUF: Final = 256 * 2**20
"""Most bytes of a header; the largest vocabularies take about 10 MB."""
_LONGEST_TEXT: Final = 2**20
"""Most bytes of a text that is kept."""
_MOST_DIMENSIONS: Final = 8


class Tensor(NamedTuple):
    """A tensor, as a header tells."""

    dtype: str
    """As the file calls it, such as `F32`."""
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's weights in files."""

    format: WeightsFormat
    names: tuple[str, ...]
    """The files, in order; the index, where there is one, is not among them."""
    index: str | None = None
    """The file that says which tensor is in which file."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """Name → tensor; empty for pickles, whose tensors are not known before they are read."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Statements of a GGUF file about its model."""

    @property
    def described(self) -> str:
        """The format in words, such as `safetensors, 4 files`."""
        return f"{self.format}, {len(self.names)} files" if len(self.names) > 1 else self.format

    @property
    def all_names(self) -> tuple[str, ...]:
        """The files and their index."""
        return self.names if self.index is None else (*self.names, self.index)


def find_weights(
    files: ModelFiles, *, stem: str = "model", pickled: str = "pytorch_model"
) -> Weights:
    """Find a model's weights: safetensors if there are any, else pickles; read their headers."""
    if (name := f"{stem}.safetensors") in files:
        return _read_headers(files, (name,), None)
    if (index := f"{stem}.safetensors.index.json") in files:
        return _read_headers(files, _shards(files, index, ".safetensors"), index)
    if (name := f"{pickled}.bin") in files:
        return _look_at_pickles(files, (name,), None)
    if (index := f"{pickled}.bin.index.json") in files:
        return _look_at_pickles(files, _shards(files, index, ".bin"), index)
    expected = f"{files.source}: expected weights as {stem}.safetensors or {pickled}.bin"
    if gguf := sorted(name for name in files.sizes if name.endswith(".gguf")):
        raise ValueError(
            f"{expected}, found GGUF files: name one with `gguf_file`, such as {gguf[0]}"
        )
    if others := [f"{name} ({whose} weights)" for name, whose in _OTHERS.items() if name in files]:
        raise ValueError(f"{expected}, found {', '.join(others)} only: convert it first")
    near = sorted(n for n in files.sizes if n.endswith((".safetensors", ".bin", ".pt", ".pth")))
    raise ValueError(f"{expected}, found {', '.join(near[:5]) or 'none'}")


def read_header(files: ModelFiles, name: str) -> dict[str, Tensor]:
    """Read the header of a safetensors file, and check that the file is whole."""
    size = files.sizes[name]
    first = files.read_range(name, 0, 100_000)
    _refuse_pointer(files, name, first)
    length = struct.unpack("<Q", first[:8])[0] if len(first) >= 8 else 0
    if not 0 < length <= min(_LARGEST_HEADER, size - 8):
        raise ValueError(_damaged(files, name, "its header is not whole"))
    text = first[8 : 8 + length]
    if len(text) < length:
        text += files.read_range(name, 8 + len(text), length - len(text))
    try:
        entries = json.loads(text)
        entries.pop("__metadata__", None)
        tensors = {name: Tensor(of["dtype"], tuple(of["shape"])) for name, of in entries.items()}
        spans = [tuple(of["data_offsets"]) for of in entries.values()]
        fit = all(map(_fits, tensors.values(), spans))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(_damaged(files, name, "its header is no JSON")) from error
    if not fit:
        raise ValueError(_damaged(files, name, "its header contradicts itself"))
    expected = 8 + length + max((end for _, end in spans), default=0)
    if size != expected:
        what = f"expected {expected:,} bytes, as its header says, got {size:,}"
        raise ValueError(_damaged(files, name, what))
    return tensors


def _fits(tensor: Tensor, span: tuple[int, int]) -> bool:
    """Tell whether a tensor has a shape, and as many bytes as that takes."""
    start, end = span
    shaped = all(type(n) is int and n >= 0 for n in tensor.shape)
    return shaped and start >= 0 and end - start == -(-tensor.size * _BITS[tensor.dtype] // 8)


def _read_headers(files: ModelFiles, names: tuple[str, ...], index: str | None) -> Weights:
    tensors: dict[str, Tensor] = {}
    for name in names:
        tensors |= read_header(files, name)
    if not tensors:
        raise ValueError(f"{files.where(names[0])}: expected weights, got a file without tensors")
    return Weights("safetensors", names, index, tensors)


def _shards(files: ModelFiles, index: str, suffix: str) -> tuple[str, ...]:
    """Read the names of the files that an index tells of."""
    table = files.read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise ValueError(f"{files.where(index)}: expected weight_map, a table of files, got none")
    names = sorted({str(name) for name in table.values()})
    for name in names:
        if not name.endswith(suffix) or any(mark in name for mark in "/\\:\0"):
            raise ValueError(
                f"{files.where(index)}: expected names of {suffix} files beside it, got {name!r}"
            )
    if missing := [name for name in names if name not in files]:
        raise ValueError(
            f"{files.where(index)}: expected {len(names)} files of weights, {missing[0]} is "
            f"missing{f', and {len(missing) - 1} more' if missing[1:] else ''}: get it again"
        )
    return tuple(names)


def _look_at_pickles(files: ModelFiles, names: tuple[str, ...], index: str | None) -> Weights:
    for name in names:
        first = files.read_range(name, 0, 64)
        _refuse_pointer(files, name, first)
        if not first.startswith((b"PK", b"\x80")):
            raise ValueError(_damaged(files, name, "expected a file that torch saved"))
    return Weights("pickle", names, index)


def _refuse_pointer(files: ModelFiles, name: str, first: bytes) -> None:
    if first.startswith(_POINTER):
        raise ValueError(
            f"{files.where(name)}: expected weights, got a pointer of Git LFS to them: get the "
            f"file itself by git lfs pull"
        )


def _damaged(files: ModelFiles, name: str, what: str) -> str:
    return f"{files.where(name)}: {what}: it is damaged, or half a download; get it again"


# --- GGUF ---


class _Cut(Exception):
    """The file ends before its header does, or the header makes no sense."""


class _Reader:
    """Bytes of a file one after the other, fetched in chunks."""

    def __init__(self, files: ModelFiles, name: str) -> None:
        self.files, self.name, self.size = files, name, files.sizes[name]
        self.position = 0
        self._start, self._chunk = 0, b""

    def take(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > min(self.size, _LARGEST_GGUF):
            raise _Cut
        if not (self._start <= self.position and end <= self._start + len(self._chunk)):
            self._start = self.position
            self._chunk = self.files.read_range(self.name, self._start, max(_GGUF_CHUNK, length))
        found = self._chunk[self.position - self._start : end - self._start]
        if len(found) < length:
            raise _Cut
        self.position = end
        return found

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def skip(self, length: int) -> None:
        if length < 0 or self.position + length > min(self.size, _LARGEST_GGUF):
            raise _Cut
        self.position += length

    def text(self) -> str:
        length = self.number("<Q")
        if length > _LONGEST_TEXT:
            self.skip(length)
            return ""
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """Read a value; of an array, the number of its members."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise _Cut
        inner, count = self.number("<I"), self.number("<Q")
        if inner in _SCALARS:
            self.skip(count * struct.calcsize(_SCALARS[inner]))
        elif inner == _STRING and count * 8 <= self.size:
            for _ in range(count):
                self.skip(self.number("<Q"))
        else:
            raise _Cut
        return count


def read_gguf(files: ModelFiles, name: str) -> Weights:
    """Read the header of a GGUF file, and check that the file is whole."""
    reader = _Reader(files, name)
    try:
        if reader.take(4) != b"GGUF":
            raise ValueError(f"{files.where(name)}: expected a GGUF file, got another")
        if (version := reader.number("<I")) not in (2, 3):
            raise ValueError(f"{files.where(name)}: expected version 2 or 3 of GGUF, got {version}")
        n_tensors, n_values = reader.number("<Q"), reader.number("<Q")
        if max(n_tensors, n_values) * 8 > reader.size:
            raise _Cut
        metadata = {}
        for _ in range(n_values):
            key = reader.text()
            metadata[key] = reader.value(reader.number("<I"))
        tensors, end = _read_tensors(reader, n_tensors)
    except (_Cut, struct.error) as error:
        raise ValueError(_damaged(files, name, "its header is not whole")) from error
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 2**20:
        raise ValueError(_damaged(files, name, "its header contradicts itself"))
    expected = -(-reader.position // alignment) * alignment + end
    if reader.size < expected:
        what = f"expected {expected:,} bytes, as its header says, got {reader.size:,}"
        raise ValueError(_damaged(files, name, what))
    return Weights("GGUF", (name,), tensors=tensors, metadata=metadata)


def _read_tensors(reader: _Reader, count: int) -> tuple[dict[str, Tensor], int]:
    """Read the header's entries of tensors; return also where the last one ends in the data."""
    try:
        from gguf.constants import GGML_QUANT_SIZES as sizes
    except ImportError:
        sizes = {}
    blocks = {int(kind): (kind.name, *size) for kind, size in sizes.items()}
    tensors, end = {}, 0
    for _ in range(count):
        name, n_dimensions = reader.text(), reader.number("<I")
        if n_dimensions > _MOST_DIMENSIONS:
            raise _Cut
        shape = tuple(reader.number("<Q") for _ in range(n_dimensions))
        kind, offset = reader.number("<I"), reader.number("<Q")
        dtype, elements, size = blocks.get(kind, ("", 0, 0))
        tensors[name] = tensor = Tensor(dtype, shape)
        if elements:
            end = max(end, offset + tensor.size // elements * size)
    return tensors, end


# --- Adapters ---

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
    """Read an adapter's configuration."""
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

    None where no head is, or the weights are pickled, so that nothing is known of them yet.
    """
    for name, tensor in weights.tensors.items():
        if _CLASS_MATRIX.search(name) and ".lora_" not in name and len(tensor.shape) == 2:
            return tensor.shape[0]
    return None
