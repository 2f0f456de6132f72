"""Files of weights: format and tensors, read from headers; pickles are converted once."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from merge_dataset.files import atomic, digest_of_file, write_json
from merge_dataset.locks import working_in
from merge_metric.models.model_files import ModelFiles, digest_of_files, find_files

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

WeightsFormat = Literal["safetensors", "pickle", "GGUF"]

_LARGEST_HEADER: Final = 100_000_000
_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6,
    "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""Data type in safetensors → bits per element."""
_OTHERS: Final = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".h5",
    ".msgpack",
    ".ot",
    ".onnx",
    ".index",
)
"""Endings of the names of files that may be weights."""
_POINTER: Final = b"version https://git-lfs"
_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
"""Number of a value type in GGUF → format of `struct`."""
_STRING, _ARRAY = 8, 9
_GGUF_HEADERS: Final = (2**22, 2**24, 2**26, 2**28)
"""Increasing numbers of bytes read until a GGUF header is complete; vocabularies take 10 MB."""
_MOST_DIMENSIONS: Final = 8


class Tensor(NamedTuple):
    """Name, type and shape of a tensor, from a header."""

    dtype: str
    """Data type as named in the file, such as `F32`."""
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
    """Names of the files, in order, without the index."""
    index: str | None = None
    """Name of the index, which maps tensors to files."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """Name → tensor; empty for pickles, whose tensors are unknown before reading."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of a GGUF file about its model."""

    @property
    def all_names(self) -> tuple[str, ...]:
        """The files and their index."""
        return self.names if self.index is None else (*self.names, self.index)


def find_weights(files: ModelFiles, stem: str = "model") -> Weights:
    """Find a model's weights: safetensors if there are any, else pickles; read their headers."""
    pickled = "pytorch_model" if stem == "model" else stem
    for name in (f"{stem}.safetensors", f"{pickled}.bin"):
        index = None if name in files else f"{name}.index.json"
        if index is not None and index not in files:
            continue
        names = (name,) if index is None else _shards(files, index, Path(name).suffix)
        if name.endswith(".bin"):
            for each in names:
                if not _beginning(files, each, 64).startswith((b"PK", b"\x80")):
                    raise _damaged(files, each, "expected a file that torch saved")
            return Weights("pickle", names, index)
        tensors: dict[str, Tensor] = {}
        for each in names:
            tensors |= read_header(files, each)
        if not tensors:
            where = files.where(names[0])
            raise ValueError(f"{where}: expected weights, got a file without tensors")
        return Weights("safetensors", names, index, tensors)
    expected = f"{files.source}: expected weights as {stem}.safetensors or {pickled}.bin"
    if gguf := sorted(name for name in files.sizes if name.endswith(".gguf")):
        raise ValueError(
            f"{expected}, found GGUF files: name one with `gguf_file`, such as {gguf[0]}"
        )
    near = sorted(n for n in files.sizes if n.endswith(_OTHERS))
    raise ValueError(f"{expected}, found {', '.join(near[:5]) or 'none'}")


def read_header(files: ModelFiles, name: str) -> dict[str, Tensor]:
    """Read the header of a safetensors file, and check that the file is whole."""
    size, first = files.sizes[name], _beginning(files, name, 100_000)
    length = struct.unpack("<Q", first[:8])[0] if len(first) >= 8 else 0
    if not 0 < length <= min(_LARGEST_HEADER, size - 8):
        raise _damaged(files, name, "its header is not whole")
    text = first[8 : 8 + length]
    if len(text) < length:
        text += files.read_range(name, 8 + len(text), length - len(text))
    tensors, last, fit = {}, 0, True
    try:
        entries = json.loads(text)
        entries.pop("__metadata__", None)
        for key, entry in entries.items():
            tensors[key] = tensor = Tensor(entry["dtype"], tuple(entry["shape"]))
            start, end = entry["data_offsets"]
            fit &= all(type(n) is int and n >= 0 for n in tensor.shape) and start >= 0
            fit = fit and end - start == -(-tensor.size * _BITS[tensor.dtype] // 8)
            last = max(last, end)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(files, name, "its header is no JSON") from error
    if not fit:
        raise _damaged(files, name, "its header contradicts itself")
    if size != (expected := 8 + length + last):
        raise _half(files, name, expected)
    return tensors


def _shards(files: ModelFiles, index: str, suffix: str) -> tuple[str, ...]:
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


def _beginning(files: ModelFiles, name: str, length: int) -> bytes:
    """Read the beginning of a file of weights; raise ValueError for a pointer of Git LFS."""
    first = files.read_range(name, 0, length)
    if first.startswith(_POINTER):
        raise ValueError(
            f"{files.where(name)}: expected weights, got a pointer of Git LFS to them: get the "
            f"file itself by git lfs pull"
        )
    return first


def _damaged(files: ModelFiles, name: str, what: str) -> ValueError:
    where = files.where(name)
    return ValueError(f"{where}: {what}: it is damaged, or half a download; get it again")


def _half(files: ModelFiles, name: str, expected: int) -> ValueError:
    size = files.sizes[name]
    what = f"expected {expected:,} bytes, as its header says, got {size:,}"
    return _damaged(files, name, what)


# --- GGUF, versions 2 and 3, by ggml's specification (docs/gguf.md in its repository) ---


class _Header:
    """Reader of a header's bytes: `struct.error` if more are needed, LookupError if malformed."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def number(self, form: str) -> Any:
        (found,) = struct.unpack_from(form, self.data, self.place)
        self.place += struct.calcsize(form)
        return found

    def text(self) -> str:
        length = self.number("<Q")
        if length > len(self.data) - self.place:
            raise struct.error
        self.place += length
        return self.data[self.place - length : self.place].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """Read a value; for an array return the number of its elements."""
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(_SCALARS[kind])
        inner, count = self.number("<I"), self.number("<Q")
        if inner == _STRING:
            for _ in range(count):
                self.text()
            return count
        length = count * struct.calcsize(_SCALARS[inner])
        if length > len(self.data) - self.place:
            raise struct.error
        self.place += length
        return count


def read_gguf(files: ModelFiles, name: str) -> Weights:
    """Read the header of a GGUF file, and check that the file is whole."""
    size, data = files.sizes[name], b""
    for length in _GGUF_HEADERS:
        data += files.read_range(name, len(data), length - len(data))
        try:
            metadata, tensors, end = _read_gguf_header(_Header(data), size, files.where(name))
            break
        except (struct.error, LookupError) as error:
            is_last = len(data) < length or length == _GGUF_HEADERS[-1]
            if is_last or isinstance(error, LookupError):
                raise _damaged(files, name, "its header is not whole") from error
    if end is None:
        raise _damaged(files, name, "its header contradicts itself")
    if size < end:
        raise _half(files, name, end)
    return Weights("GGUF", (name,), tensors=tensors, metadata=metadata)


def _read_gguf_header(
    header: _Header, size: int, where: str
) -> tuple[dict[str, Any], dict[str, Tensor], int | None]:
    """Return a header's values, tensors and the end of the last tensor (None if inconsistent)."""
    try:
        from gguf.constants import GGML_QUANT_SIZES as sizes
    except ImportError:
        sizes = {}
    if header.data[:4] != b"GGUF":
        raise ValueError(f"{where}: expected a GGUF file, got another")
    header.place = 4
    if (of_format := header.number("<I")) not in (2, 3):
        raise ValueError(f"{where}: expected version 2 or 3 of GGUF, got {of_format}")
    n_tensors, n_values = header.number("<Q"), header.number("<Q")
    if max(n_tensors, n_values) * 8 > size:
        raise LookupError
    metadata, tensors, end = dict[str, Any](), dict[str, Tensor](), 0
    for _ in range(n_values):
        key = header.text()
        metadata[key] = header.value(header.number("<I"))
    blocks = {int(kind): (kind.name, *size) for kind, size in sizes.items()}
    for _ in range(n_tensors):
        name, n_dimensions = header.text(), header.number("<I")
        if n_dimensions > _MOST_DIMENSIONS:
            raise LookupError
        shape = tuple(header.number("<Q") for _ in range(n_dimensions))
        kind, offset = header.number("<I"), header.number("<Q")
        dtype, elements, of_block = blocks.get(kind, ("", 0, 0))
        tensors[name] = tensor = Tensor(dtype, shape)
        if elements:
            end = max(end, offset + tensor.size // elements * of_block)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 2**20:
        return metadata, tensors, None
    return metadata, tensors, -(-header.place // alignment) * alignment + end


# --- Adapters ---

ADAPTER_CONFIG: Final = "adapter_config.json"
"""File that marks a folder as an adapter (LoRA and related methods)."""
ADAPTER_STEM: Final = "adapter_model"
TASKS: Final = {
    "SEQ_CLS": "ForSequenceClassification",
    "CAUSAL_LM": "ForCausalLM",
    "SEQ_2_SEQ_LM": "ForConditionalGeneration",
}
"""Task of an adapter in peft → ending of the resulting architecture."""
_MERGED: Final = ("LORA", "IA3", "LOHA", "LOKR")
_CLASS_MATRIX: Final = re.compile(r"(^|\.)(classifier|score|out_proj|logits_proj)\.weight$")
"""Pattern of names of the last matrix of classification heads, with a row per class."""


def read_adapter(files: ModelFiles) -> tuple[ModelFiles, str]:
    """Read from an adapter's configuration the base model, not yet listed, and the task."""
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
    found = find_files(base, revision=revision if isinstance(revision, str) else None)
    return found, str(config.get("task_type"))


def count_classes(weights: Weights) -> int | None:
    """Count the classes of an adapter's saved head; None if it has none, or only pickles."""
    for name, tensor in weights.tensors.items():
        if _CLASS_MATRIX.search(name) and ".lora_" not in name and len(tensor.shape) == 2:
            return tensor.shape[0]
    return None


# --- Pickles, such as pytorch_model.bin, kept once as safetensors ---
#
# A pickle can name any function, and reading the pickle would call it. torch's restricted reader
# builds only tensors; its versions before 2.10 have a known hole (CVE-2026-24747) and are refused.
# Converted weights are kept under the digest of the pickle, so the same bytes are never read twice,
# wherever they lie, and all later steps read safetensors. transformers' own conversion, which asks
# a service on the Hub, is not used.

CACHE_VARIABLE: Final = "MERGE_NLI_CACHE"
SAFE_TORCH: Final = (2, 10)
"""First version of torch whose reader of pickles is trusted."""

_ORIGIN: Final = "origin.json"
"""File with the origin of converted weights; written last, it marks a complete conversion."""
_LARGEST: Final = 8
"""Most bytes of tensors per byte of a pickle, in which parameters may have several names."""


def cache_folder() -> Path:
    """Return the folder of converted weights."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given) / "converted"
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "merge-nli" / "converted"


def find_converted(files: ModelFiles, weights: Weights) -> Path | None:
    """Find the folder of a model's converted pickles; None if they have not been converted."""
    if all(name in files.digests or files.local(name) for name in weights.names):
        folder = cache_folder() / digest_of_files(files, weights.names)
        return folder if _is_whole(folder) else None
    return None


def unfit_torch() -> str:
    """Say why this version of torch may not read pickles; empty if it may."""
    installed = version("torch")
    found = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    if found >= SAFE_TORCH:
        return ""
    return (
        f"expected torch {'.'.join(map(str, SAFE_TORCH))} or newer, as older ones can be made to "
        f"run code when they read pickled weights (CVE-2026-24747), got {installed}: "
        f"pip install 'torch>={'.'.join(map(str, SAFE_TORCH))}'"
    )


def convert(files: ModelFiles, weights: Weights, *, stem: str = "model") -> Path:
    """Convert a model's pickles, unless they are converted already; return the folder."""
    if (known := find_converted(files, weights)) is not None:
        return known
    if reason := unfit_torch():
        raise ValueError(f"{files.where(weights.names[0])}: {reason}")
    folder = files.download(weights.all_names)
    for name in weights.names:
        path = folder / name
        if files.commit is not None and digest_of_file(path) != files.digest_of(name):
            raise ValueError(
                f"{files.where(name)}: expected the content that the Hub tells of, got another: it "
                f"is damaged, or half a download; delete {path.resolve()} and get it again"
            )
    target = cache_folder() / digest_of_files(files, weights.names)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{target.parent}: expected a folder that can be made, to keep converted weights in: "
            f"{error}; name another by the environment variable {CACHE_VARIABLE}"
        ) from error
    with working_in(target, wait=True):
        if not _is_whole(target):
            from safetensors.torch import save_file

            table: dict[str, str] = {}
            sizes: dict[str, int] = {}
            for number, name in enumerate(weights.names, 1):
                tensors = read_pickle(folder / name, files.where(name))
                kept = f"{stem}.safetensors"
                if len(weights.names) > 1:
                    kept = f"{stem}-{number:05}-of-{len(weights.names):05}.safetensors"
                with atomic(target / kept) as temporary:
                    save_file(tensors, temporary, metadata={"format": "pt"})
                table |= dict.fromkeys(tensors, kept)
                sizes[kept] = (target / kept).stat().st_size
            if len(weights.names) > 1:
                write_json(
                    target / f"{stem}.safetensors.index.json", {"metadata": {}, "weight_map": table}
                )
            origin = {
                "repository": files.source,
                "commit": files.commit,
                "sha256": {name: files.digest_of(name) for name in weights.names},
                "bytes": sizes,
                "torch": version("torch"),
            }
            write_json(target / _ORIGIN, origin)
            size = sum(files.sizes[name] for name in weights.names)
            log.info(
                "%s: converted %s (%s) to safetensors, once: %s",
                files.source, described_names(weights), in_megabytes(size), target,
            )  # fmt: skip
    return target


def described_names(weights: Weights) -> str:
    """Write the names of a model's files of weights; only the first of many."""
    more = len(weights.names) - 1
    return weights.names[0] + (f" and {more} more" if more else "")


def in_megabytes(size: int) -> str:
    """Write a number of bytes for people, such as `438 MB`."""
    return f"{size / 1e6:,.0f} MB" if size >= 10**6 else f"{max(size / 1e6, 0.1):.1f} MB"


def _is_whole(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / _ORIGIN).read_bytes())["bytes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def read_pickle(path: Path, where: str) -> dict[str, torch.Tensor]:
    """Read the tensors of a pickle, and copy tensors that share memory."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about old formats
            found = torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except Exception as error:  # damaged or hostile bytes may raise anything
        text = str(error)
        named = r"(?:GLOBAL|global|class|function)s?:? ([A-Za-z_][\w.]*\.\w+)"
        if hostile := re.search(named, text):
            raise ValueError(
                f"{where}: expected tensors only, got {hostile[1]}, which could run code: it is "
                f"refused, and nothing of it was run; take the weights from elsewhere"
            ) from error
        text = text.rpartition("WeightsUnpickler error:")[2].partition("This is an internal")[0]
        text = text.partition("Check the documentation")[0]
        first = re.sub(r"\s+", " ", text).strip()[:160] or type(error).__name__
        raise ValueError(
            f"{where}: expected a file that torch saved, could not read it ({first}): it is "
            f"damaged, or half a download; get it again"
        ) from error
    if not isinstance(found, dict):
        raise ValueError(f"{where}: expected tensors by name, got {type(found).__name__}")
    for name, value in found.items():  # types that safetensors cannot hold
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise ValueError(
                f"{where}: expected tensors by name only, got {name!r:.60}, which is of type "
                f"{type(value).__name__}: save the model by save_pretrained"
            )
        if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
            raise ValueError(f"{where}: expected plain tensors, got {name!r:.60}, which is none")
    if not found:
        raise ValueError(f"{where}: expected tensors by name, got none")
    bound = _LARGEST * path.stat().st_size + 2**20
    if (total := sum(each.numel() * each.element_size() for each in found.values())) > bound:
        raise ValueError(
            f"{where}: expected tensors of at most {bound:,} bytes, as the file is so small, got "
            f"{total:,}: it is damaged, or made to fill the memory"
        )
    seen: set[int] = set()  # safetensors require separate memory: tied tensors are copied
    apart = {}
    for name, value in found.items():
        tensor = value.detach()
        place = tensor.untyped_storage().data_ptr()
        whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        if place in seen or not whole or not tensor.is_contiguous():
            tensor = tensor.contiguous().clone()
        seen.add(place)
        apart[name] = tensor
    return apart
