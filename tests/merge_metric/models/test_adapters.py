import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.answers import answers
from helpers.tiny_classifiers import tiny_classifier
from safetensors.torch import load_file, save_file

from merge_metric.models.checkpoints import load
from merge_metric.models.classifier import Classifier
from merge_metric.models.inspection import CLASSIFIER, inspect
from merge_metric.models.loading import find_kind
from merge_metric.models.pair_model import ModelRequest

PAIRS = [("The big dog sees the house.", "A dog runs."), ("A girl.", "The boy plays a game.")]
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


def answers_of(folder: Path) -> np.ndarray:
    return answers(Classifier.load(folder, device="cpu", label_order="e,n,c"), PAIRS)


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
