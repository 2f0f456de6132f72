import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.answers import answers
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_models import tiny_model
from safetensors.torch import load_file

from merge_dataset.files import digest_of_file
from merge_metric.models import model_files
from merge_metric.models.checkpoints import load
from merge_metric.models.classifier import Classifier
from merge_metric.models.inspection import CLASSIFIER, MASKED_LM, inspect
from merge_metric.models.model_files import find_files, read_shapes

PAIRS = [("The big dog sees the house.", "A dog runs."), ("A girl.", "The boy plays a game.")]


def answers_of(folder: Path) -> np.ndarray:
    return answers(Classifier.load(folder, device="cpu"), PAIRS)


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
        ({"weight": some, "epoch": 3}, {}, "got 'epoch', which is of type int"),
        ({3: some}, {}, "got 3, which is of type Tensor"),
        ({"model": {"weight": some}}, {}, "got 'model', which is of type dict"),
        ([some], {}, "got list"),
        ({}, {}, "got dict, or none"),
        ({"weight": some.to_sparse()}, {}, "got 'weight', which is of type Tensor"),
        ({"weight": torch.zeros(1).expand(10**5, 10**6)}, {}, "made to fill the memory"),
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


def test_a_torch_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pickled(tmp_path, "zip", whole)
    monkeypatch.setattr(model_files, "version", lambda package: "2.9.1+cpu")
    message = r"expected torch 2\.10 or newer.* got 2\.9\.1\+cpu: pip install 'torch>=2\.10'"
    with pytest.raises(ValueError, match=rf"pytorch_model\.bin: {message}$"):
        inspect(folder, CLASSIFIER)


@pytest.mark.parametrize("name", ["other.gguf", "/no/folder", "https://me:secret@host/v1"])
def test_places_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match="an id on the Hub such as org/name") as error:
        find_files(name)
    assert "secret" not in str(error.value)


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
