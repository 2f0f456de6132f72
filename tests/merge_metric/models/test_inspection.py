import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.gguf_files import write_llama
from helpers.hub.files import safetensors_of
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer

from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER, MASKED_LM, inspect
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.readiness import Machine, inspect_models

TOKENIZER = {"tokenizer.json": b"{}"}


def folder_of(tmp_path: Path, files: dict[str, bytes], config: Any = None) -> Path:
    shutil.rmtree(tmp_path / "model", ignore_errors=True)
    (folder := tmp_path / "model").mkdir()
    settings = {"model_type": "bert", "vocab_size": 7} | (config or {})
    for name, content in ({"config.json": json.dumps(settings).encode()} | files).items():
        (folder / name).write_bytes(content)
    return folder


WHOLE = {**TOKENIZER, **safetensors_of({"a": torch.zeros(7, 3), "b": torch.zeros(3)})}


def test_what_is_there(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, WHOLE, {"num_labels": 3})
    request = ModelRequest(model=str(folder), dtype="float16", label_order="e,n,c")
    (look,) = inspect_models([("", request, CLASSIFIER)], Machine("cpu", None))
    assert (look["wrong"], look["loading"], look["commit"]) == ("", "", None)
    assert (look["weights"], look["tokenizer"]) == ("safetensors", "tokenizer.json")
    assert (look["parameters"], look["download_bytes"]) == (24, 0)
    assert look["memory_bytes"] == 6 * 10**8 + 2 * 48
    assert list(inspect(folder, CLASSIFIER).config.id2label.values()) == [
        f"LABEL_{n}" for n in range(3)
    ]
    halves = safetensors_of({"a": torch.zeros(7, 3).half()})
    asked = ModelRequest(model=str(folder_of(tmp_path, {**TOKENIZER, **halves})))
    (look,) = inspect_models([("", asked, MASKED_LM)], Machine("cpu", None))
    assert look["memory_bytes"] == 6 * 10**8 + 2 * 84


def test_what_is_wrong(tmp_path: Path) -> None:
    """Faults that `helpers.hub.damages` lacks."""
    unindexed = {"model.safetensors.index.json": b'{"weight_map": {}}', **TOKENIZER}
    content = WHOLE["model.safetensors"]
    cases: list[tuple[dict[str, bytes], dict[str, Any] | None, str]] = [
        (WHOLE, {"num_labels": 10**9}, "config.json: expected num_labels up to 10,000"),
        (WHOLE, {"architectures": ["BertForMaskedLM"]}, "is it a model for another task?"),
        (WHOLE | {"config.json": b"\xff{"}, None, "config.json: expected a JSON object in UTF-8"),
        (WHOLE | {"config.json": b"[" * 10**5}, None, "config.json: expected a JSON object in"),
        (WHOLE | {"model.safetensors": content.replace(b"7,3", b"7,4")}, None, "it is damaged"),
        (unindexed, None, "index.json: expected weight_map, a table of files beside it, got none"),
        ({**TOKENIZER, "a.gguf": b""}, None, "name one with `gguf_file`, such as a.gguf"),
    ]  # fmt: skip
    for files, config, text in cases:
        folder = folder_of(tmp_path, files, config)
        with pytest.raises(ValueError, match=rf"^{folder}.*{re.escape(text)}.*$"):
            inspect(folder, CLASSIFIER)


def test_gguf(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    file = tmp_path / "m.gguf"
    write_llama(tiny_lm("llama-bytes"), tiny_tokenizer("llama-bytes"), file)
    checkpoint, content = inspect(file, CAUSAL_LM), file.read_bytes()
    described = (checkpoint.parameters, checkpoint.weights.format)
    assert described == (tiny_lm("llama-bytes").num_parameters(), "GGUF")
    other, newer = b"PK" + content[2:], content[:4] + b"\x07" + content[5:]
    for changed in (content[:-9], content[:90], other, newer):
        file.write_bytes(changed)
        with pytest.raises(ValueError, match=r"m\.gguf: expected a GGUF file, could not load it"):
            inspect(file, CAUSAL_LM)
    with pytest.raises(ValueError, match="expected a masked LM, got a GGUF file"):
        inspect(file, MASKED_LM)
    with pytest.raises(ValueError, match=r"n\.gguf: expected a .*, found no file of this name"):
        inspect(tmp_path, CAUSAL_LM, gguf_file="n.gguf")
