import json
import os
import pickle
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.answers import answers
from helpers.gguf_files import write_llama
from helpers.hub.files import safetensors_of
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from helpers.tiny_models import tiny_model
from safetensors.torch import load_file, save_file

from merge_dataset.files import digest_of_file
from merge_metric.models.checkpoints import load
from merge_metric.models.classifier import Classifier
from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER, MASKED_LM, inspect
from merge_metric.models.loading import find_kind
from merge_metric.models.model_files import find_files, read_shapes
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.readiness import Machine, inspect_models

PAIRS = [("The big dog sees the house.", "A dog runs."), ("A girl.", "The boy plays a game.")]


def answers_of(folder: Path) -> np.ndarray:
    return answers(Classifier.load(folder, device="cpu", label_order="e,n,c"), PAIRS)


def pickled(tmp_path: Path, name: str, save: Callable[[dict[str, Any], Path], object]) -> Path:
    folder = shutil.copytree(tiny_classifier("bert-uncased"), tmp_path / name)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save(tensors, folder)
    return folder


def whole(tensors: dict[str, Any], folder: Path, **more: Any) -> None:
    torch.save(tensors, folder / "pytorch_model.bin", **more)


def tied(tensors: dict[str, Any], folder: Path) -> None:
    """Save views of one memory, one of them transposed, and parameters."""
    words = tensors["bert.embeddings.word_embeddings.weight"]
    backing = words.t().contiguous().t()
    more = {
        "bert.embeddings.word_embeddings.weight": torch.nn.Parameter(backing),
        "cls.predictions.decoder.weight": backing,
        "bert.embeddings.position_ids": torch.arange(64).expand(1, -1),
    }
    whole(tensors | more, folder)


def test_the_same_model_however_it_was_saved(tmp_path: Path) -> None:
    expected = answers_of(tiny_classifier("bert-uncased"))
    ways = {
        "zip": whole, "old": lambda t, f: whole(t, f, _use_new_zipfile_serialization=False),
        "tied": tied,
    }  # fmt: skip
    for name, save in ways.items():
        folder = pickled(tmp_path, name, save)
        np.testing.assert_array_equal(answers_of(folder), expected, err_msg=name)


def test_what_was_used_is_recorded(tmp_path: Path) -> None:
    folder = pickled(tmp_path, "zip", whole)
    loaded = load(inspect(folder, CLASSIFIER), device="cpu")
    digest = digest_of_file(folder / "pytorch_model.bin")
    assert loaded.weights == {"format": "pickle", "sha256": digest}
    whole(load_file(tiny_classifier("roberta") / "model.safetensors"), folder)
    result = inspect(folder, CLASSIFIER)
    assert result.files.digest_of("pytorch_model.bin") != digest
    shutil.copy(tiny_classifier("bert-uncased") / "model.safetensors", folder)
    beside = load(inspect(folder, CLASSIFIER), device="cpu")
    assert beside.weights["format"] == "safetensors"  # then the pickle is unused
    plain = load(inspect(tiny_classifier("bert-uncased"), CLASSIFIER), device="cpu")
    assert beside.revision == plain.revision != loaded.revision


class Payload:
    """Makes a folder when unpickled by a reader that runs the functions it names."""

    target = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.target,)


def test_nothing_but_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Payload, "target", str(tmp_path / "payload-ran"))
    file, some = tmp_path / "pytorch_model.bin", torch.zeros(2)
    files, names = find_files(tmp_path), ["pytorch_model.bin"]
    old = {"_use_new_zipfile_serialization": False}
    for value, more, named in (
        ({"weight": some, "more": Payload()}, {}, r"expected tensors only, got \w+\.mkdir"),
        ({"weight": some, "more": Payload()}, old, r"expected tensors only, got \w+\.mkdir"),
        ({"weight": some, "epoch": 3}, {}, "got 'epoch' of type int"),
        ({3: some}, {}, "got 3 of type Tensor"),
        ({"model": {"weight": some}}, {}, "got 'model' of type dict"),
        ([some], {}, "a file that torch saved"),
        ({}, {}, "tensors, got none"),
        ({"weight": some.to_sparse()}, {}, "got 'weight' of type Tensor"),
        ({"weight": torch.zeros(1).expand(10**5, 10**6)}, {}, "to fill the memory"),
    ):
        torch.save(value, file, **more)
        with pytest.raises(ValueError, match=rf"^{file.parent}: {file.name}: .*{named}"):
            read_shapes(files, names)
    file.write_bytes(pickle.dumps({"more": Payload()}))
    with pytest.raises(ValueError, match=r"bin: expected .*(mkdir|that torch saved)"):
        read_shapes(files, names)
    assert not (tmp_path / "payload-ran").exists()
    Payload().__reduce__()[0](*Payload().__reduce__()[1])
    assert (tmp_path / "payload-ran").exists(), "it does run where it is let"


def test_the_revision_depends_on_every_file_that_matters(tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("bert-cased"), tmp_path / "copy")

    def revision() -> str:
        return load(inspect(folder, MASKED_LM), device="cpu").revision

    first = load(inspect(tiny_model("bert-cased"), MASKED_LM), device="cpu").revision
    assert revision() == first
    (folder / "README.md").write_text("Notes.")
    assert revision() == first
    seen = {first}
    for name in ("config.json", "tokenizer.json", "chat_template.jinja"):
        path = folder / name
        path.write_text((path.read_text() if path.is_file() else "") + "\n")
        now = revision()
        assert now not in seen, name
        seen.add(now)


KINDS = ("LORA", "IA3", "LOHA", "LOKR")


def trained(kind: str, folder: Path) -> tuple[Path, Any]:
    """Train an adapter with its own head, save it by peft, and return it with its model."""
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    base = tiny_classifier("bert-uncased")
    targets = {"target_modules": ["query", "value"], "modules_to_save": ["classifier"]}
    if kind == "IA3":
        targets["feedforward_modules"] = []
    config = peft.get_peft_config({"peft_type": kind, "task_type": "SEQ_CLS", **targets})
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(3)
        plain = AutoModelForSequenceClassification.from_pretrained(base)
        model = peft.get_peft_model(plain, config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter) * (0.5 if "class" in name else 0.3))
        model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder, model.eval()


def expected(model: Any, folder: Path) -> np.ndarray:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_classifier("bert-uncased"))
    rows = []
    for pair in PAIRS:
        with torch.inference_mode():
            logits = model(**tokenizer(*pair, return_tensors="pt")).logits[0]
        rows.append(logits.double().softmax(0).numpy())
    return np.array(rows)


@pytest.mark.slow(but=["LORA"])
@pytest.mark.parametrize("kind", KINDS)
def test_merged_is_the_same(kind: str, tmp_path: Path) -> None:
    folder, model = trained(kind, tmp_path / "adapter")
    wanted = expected(model, folder)
    np.testing.assert_allclose(answers_of(folder), wanted, atol=2e-6)
    assert find_kind(ModelRequest(model=str(folder))) == "classifier"
    weights = folder / "adapter_model.safetensors"
    torch.save(load_file(weights), folder / "adapter_model.bin")
    weights.unlink()
    stray = json.loads((tiny_classifier("bert-uncased") / "config.json").read_text())
    names = ("neutral", "entailment", "contradiction")
    (folder / "config.json").write_text(json.dumps(stray | {"id2label": dict(enumerate(names))}))
    assert inspect(folder, CLASSIFIER).config.id2label == dict(enumerate(names))
    np.testing.assert_allclose(answers_of(folder), wanted, atol=2e-6)


def test_both_models_are_recorded(tmp_path: Path) -> None:
    folder, _ = trained("LORA", tmp_path / "adapter")
    result = inspect(folder, CLASSIFIER)
    base = load(inspect(tiny_classifier("bert-uncased"), CLASSIFIER), device="cpu")
    assert result.base is not None
    assert result.notes == (f"merges the adapter into {tiny_classifier('bert-uncased')}",)
    loaded = load(result, device="cpu")
    own, _, of_base = loaded.revision.partition("+")
    assert len(own) == 64
    assert of_base == base.revision
    expected = {"name": base.name, "revision": base.revision, **base.weights}
    assert loaded.weights["base"] == expected


def test_what_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = trained("LORA", tmp_path / "whole")
    weights = load_file(whole / "adapter_model.safetensors")
    first = min(weights)
    cases: list[tuple[str, dict[str, Any], Any, str]] = [
        ("code", {"megatron_config": {"a": 1}}, None, r"of Megatron"),
        ("fewer", {}, lambda t: t.pop(first), rf"too few, as {first} shows: is it an adapter of"),
        ("more", {}, lambda t: t.update(x=torch.zeros(1)), "got others or too few, as x shows"),
        ("head", {}, lambda t: [t.pop(n) for n in list(t) if "class" in n],
         r"it lacks 'base_model.*classifier"),
    ]  # fmt: skip
    for name, changes, edit, reason in cases:
        folder = shutil.copytree(whole, tmp_path / name)
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        if edit is not None:
            edit(tensors := dict(weights))
            save_file(tensors, folder / "adapter_model.safetensors")
        with pytest.raises(ValueError, match=reason):
            load(inspect(folder, CLASSIFIER), device="cpu")
    monkeypatch.setattr("merge_metric.models.inspection._missing", lambda *names: ["peft"])
    with pytest.raises(ValueError, match=r"pip install 'merge-nli\[adapters\]'$"):
        inspect(folder, CLASSIFIER)


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
