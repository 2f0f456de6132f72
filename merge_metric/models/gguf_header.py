"""Headers of GGUF files: what a file says of its model, its tensors, and whether it is whole.

The layout is that of ggml's specification (docs/gguf.md in its repository), versions 2 and 3.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from merge_metric.models.model_files import ModelFiles
from merge_metric.models.weight_files import Tensor, Weights

_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
"""Number of a type of values → format of struct."""
_STRING, _ARRAY = 8, 9
_CHUNK: Final = 4 * 2**20
_LARGEST: Final = 256 * 2**20
"""Most bytes of a header; the largest vocabularies take about 10 MB."""
_LONGEST_TEXT: Final = 2**20
"""Most bytes of a text that is kept."""
_MOST_DIMENSIONS: Final = 8


class _Cut(Exception):
    """The file ends before its header does, or the header makes no sense."""


class _Reader:
    """Bytes of a file one after the other, fetched in chunks."""

    def __init__(self, files: ModelFiles, name: str) -> None:
        self.files, self.name, self.size = files, name, files.files[name].size
        self.position = 0
        self._start, self._chunk = 0, b""

    def take(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > min(self.size, _LARGEST):
            raise _Cut
        if not (self._start <= self.position and end <= self._start + len(self._chunk)):
            self._start = self.position
            self._chunk = self.files.read_range(self.name, self._start, max(_CHUNK, length))
        found = self._chunk[self.position - self._start : end - self._start]
        if len(found) < length:
            raise _Cut
        self.position = end
        return found

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def skip(self, length: int) -> None:
        if length < 0 or self.position + length > min(self.size, _LARGEST):
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
    """Read the header of a GGUF file, and check that the file is whole.

    Raises:
        ValueError: it is no such file, or only the beginning of one.
    """
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
    """Read what the header says of tensors; return also where the last one ends in the data."""
    sizes = _block_sizes()
    tensors, end = {}, 0
    for _ in range(count):
        name, n_dimensions = reader.text(), reader.number("<I")
        if n_dimensions > _MOST_DIMENSIONS:
            raise _Cut
        shape = tuple(reader.number("<Q") for _ in range(n_dimensions))
        kind, offset = reader.number("<I"), reader.number("<Q")
        dtype, elements, size = sizes.get(kind, ("", 0, 0))
        tensors[name] = tensor = Tensor(dtype, shape)
        if elements:
            end = max(end, offset + tensor.size // elements * size)
    return tensors, end


def _block_sizes() -> dict[int, tuple[str, int, int]]:
    """Number of a type of tensors → its name, elements and bytes of a block."""
    try:
        from gguf.constants import GGML_QUANT_SIZES
    except ImportError:
        return {}
    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


def _damaged(files: ModelFiles, name: str, what: str) -> str:
    return f"{files.where(name)}: {what}: it is damaged, or half a download; get it again"
