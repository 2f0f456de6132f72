import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.answers import answers
from helpers.tiny_classifiers import tiny_classifier

from merge_metric.models.classifier import Classifier
from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER, MASKED_LM, Head, inspect
from merge_metric.models.model_files import find_files, list_files
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.readiness import inspect_models
from merge_metric.models.weights import Tensor, read_header

TOKENIZER = {"tokenizer.json": b"{}"}


def safetensors(tensors: dict[str, tuple[int, ...]], *, dtype: str = "F32", size: int = 4) -> bytes:
    header, end = {}, 0
    for name, shape in tensors.items():
        length = size
        for n in shape:
            length *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + length]}
        end += length
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


def folder_of(tmp_path: Path, files: dict[str, bytes], config: Any = None) -> Path:
    shutil.rmtree(tmp_path / "model", ignore_errors=True)
    (folder := tmp_path / "model").mkdir()
    settings = {"model_type": "bert", "vocab_size": 7} | (config or {})
    for name, content in ({"config.json": json.dumps(settings).encode()} | files).items():
        (folder / name).write_bytes(content)
    return folder


WHOLE = {**TOKENIZER, "model.safetensors": safetensors({"a": (7, 3), "b": (3,)})}


def test_what_is_there(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, WHOLE, {"num_labels": 3})
    request = ModelRequest(model=str(folder), dtype="float16", label_order="e,n,c")
    (found,) = inspect_models([("", request, CLASSIFIER)])
    assert found.problems == found.notes == []
    described = (found.format, found.tokenizer, found.parameters)
    assert described == ("safetensors", "tokenizer.json", 24)
    assert (found.room, found.download_bytes, found.files.commit) == (6 * 10**8 + 2 * 48, 0, None)
    assert found.class_names == ("LABEL_0", "LABEL_1", "LABEL_2")
    halves = {"model.safetensors": safetensors({"a": (7, 3)}, dtype="F16", size=2)}
    asked = ModelRequest(model=str(folder_of(tmp_path, TOKENIZER | halves)))
    assert inspect_models([("", asked, MASKED_LM)])[0].room == 6 * 10**8 + 2 * 84


@pytest.mark.parametrize(
    "classes",
    [
        {"id2label": ["contradiction", "entailment", "neutral"]},
        {"label2id": {"neutral": 2, "contradiction": 0, "entailment": 1}},
    ],
)
def test_names_of_classes_in_other_ways(classes: dict[str, Any], tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_classifier("bert-uncased"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    del config["id2label"], config["label2id"]
    (folder / "config.json").write_text(json.dumps(config | classes))
    model = Classifier.load(folder, device="cpu")
    assert model.label_order.names == ["contradiction", "entailment", "neutral"]
    assert model.label_order.source == "id2label"
    pair = ("Two dogs run.", "A dog runs.")
    plain = Classifier.load(tiny_classifier("bert-uncased"), label_order="c,e,n", device="cpu")
    np.testing.assert_array_equal(answers(model, [pair]), answers(plain, [pair]))


def test_what_is_wrong(tmp_path: Path) -> None:
    """Faults that `helpers.hub.damages` lacks."""
    unindexed = {"model.safetensors.index.json": b'{"weight_map": {}}', **TOKENIZER}
    content = WHOLE["model.safetensors"]
    cases: list[tuple[dict[str, bytes], dict[str, Any] | None, str]] = [
        (WHOLE, {"text_config": {"n_layer": 10**7}}, "config.json: it says n_layer 10,000,000"),
        (WHOLE, {"num_labels": 10**9}, "config.json: expected num_labels up to 10,000"),
        (WHOLE, {"architectures": "Bert"}, "config.json: expected architectures, a list of names"),
        (WHOLE, {"architectures": ["BertForMaskedLM"]}, "is it a model for another task?"),
        (WHOLE | {"config.json": b"\xff{"}, None, "config.json: expected JSON in UTF-8"),
        (WHOLE | {"config.json": b"[" * 10**5}, None, "config.json: expected JSON in UTF-8"),
        (WHOLE | {"model.safetensors": content.replace(b"7, 3", b"7, 4")}, None, "contradicts"),
        (unindexed, None, "index.json: expected weight_map, a table of files, got none"),
        ({**TOKENIZER, "a.gguf": b""}, None, "name one with `gguf_file`, such as a.gguf"),
    ]  # fmt: skip
    for files, config, said in cases:
        folder = folder_of(tmp_path, files, config)
        problems = inspect(folder, CLASSIFIER).problems
        assert len(problems) == 1, (said, problems)
        assert said in problems[0]
        assert problems[0].startswith(str(folder))
        assert "\n" not in problems[0]


def test_headers(tmp_path: Path) -> None:
    """A header longer than the part that is read first."""
    tensors = {f"tensor-{n:05}": (n % 3, 2) for n in range(3000)}
    folder = folder_of(tmp_path, {"a.safetensors": safetensors(tensors)})
    found = read_header(list_files(find_files(folder)), "a.safetensors")
    assert found == {name: Tensor("F32", shape) for name, shape in tensors.items()}


def gguf(values: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> bytes:
    """Write a GGUF file with numbers, texts and lists of texts, and zeros in float32 as tensors."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    made = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for key, value in values.items():
        made += text(key)
        if isinstance(value, int):
            made += struct.pack("<II", 4, value)
        elif isinstance(value, str):
            made += struct.pack("<I", 8) + text(value)
        else:
            made += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    end = 0
    for name, shape in tensors.items():
        made += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        made += struct.pack("<IQ", 0, end)
        end += 4 * shape[0] * shape[1]
    return made + bytes(-len(made) % 32) + bytes(end)


def test_gguf(tmp_path: Path) -> None:
    """Sizes come from the header; truncated files, other files and absurd sizes are errors."""
    values = {"general.architecture": "llama", "llama.block_count": 2, "tokens": ["a", "b", "ü"]}
    tensors = {"a": (4, 8), "b": (8, 8)}
    content = gguf(values, tensors)
    folder = folder_of(tmp_path, {"m.gguf": content})

    def look(content: bytes, head: Head = CAUSAL_LM) -> Any:
        (folder / "m.gguf").write_bytes(content)
        return inspect(folder / "m.gguf", head)

    found = look(content)
    assert (found.problems, found.parameters, found.format) == ([], 96, "GGUF")
    assert found.weights.metadata["tokens"] == 3
    for changed, said in (
        (content[:-1], f"m.gguf: expected {len(content):,} bytes, as its header says, got"),
        (content[:90], "m.gguf: its header is not whole"),
        (content[:10], "m.gguf: its header is not whole"),
        (b"PK" + content[2:], "m.gguf: expected a GGUF file, got another"),
        (content[:4] + b"\x07" + content[5:], "m.gguf: expected version 2 or 3 of GGUF, got 7"),
        (content[:8] + b"\xff" * 8 + content[16:], "m.gguf: its header is not whole"),
        (
            content.replace(struct.pack("<II", 4, 2), struct.pack("<II", 99, 2)) + bytes(2**23),
            "m.gguf: its header is not whole",
        ),
        (gguf(values | {"llama.block_count": 99}, tensors), "num_layers 99; the weights have 2"),
    ):
        (problem,) = look(changed).problems
        assert said in problem
    assert "expected a masked LM, got a GGUF file" in look(content, MASKED_LM).problems[0]
    missing = inspect(folder, CAUSAL_LM, gguf_file="n.gguf").problems
    assert missing == [f"{folder}: n.gguf: there is no such file; GGUF files there: m.gguf"]
