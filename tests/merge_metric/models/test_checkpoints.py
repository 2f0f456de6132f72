"""The one way to weights: naming a checkpoint, and what is refused, whatever the head."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_models import tiny_model
from safetensors.torch import load_file

from merge_metric.models.checkpoints import (
    CAUSAL_LM,
    CLASSIFIER,
    MASKED_LM,
    TEXT_GENERATOR,
    Checkpoint,
    Head,
    find_checkpoint,
    load,
    read_config,
)

HEADS = (MASKED_LM, CLASSIFIER, CAUSAL_LM, TEXT_GENERATOR)


def test_ids_folders_and_files_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id may have a revision; a folder, however it is written, has its own name."""
    (folder := tmp_path / "mine@2").mkdir()
    (gguf := folder / "mine.Q8.gguf").touch()
    monkeypatch.chdir(folder)
    assert find_checkpoint("org/name") == Checkpoint("org/name", "org/name")
    assert find_checkpoint("org/name@refs/pr/1", "a.gguf") == Checkpoint(
        "org/name", "org/name", "refs/pr/1", "a.gguf"
    )
    assert find_checkpoint(folder) == Checkpoint(str(folder), "mine@2")
    assert find_checkpoint(".").name == "mine@2"
    in_folder = Checkpoint(str(folder), "mine.Q8", gguf_file="mine.Q8.gguf")
    assert find_checkpoint(gguf) == find_checkpoint(folder, "mine.Q8.gguf") == in_folder
    assert find_checkpoint(folder / "other.gguf").name == str(folder).partition("@")[0]


def test_the_revision_depends_on_every_file_that_matters(tmp_path: Path) -> None:
    """Weights, configuration and tokenizer do, under whatever folder; notes do not."""
    folder = shutil.copytree(tiny_model("bert-cased"), tmp_path / "copy")

    def revision() -> str:
        return load(find_checkpoint(folder), MASKED_LM, device="cpu").revision

    first = load(find_checkpoint(tiny_model("bert-cased")), MASKED_LM, device="cpu").revision
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


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.auto_class)
def test_every_head_refuses_alike(head: Head, tmp_path: Path) -> None:
    """Nothing there, pickled weights, a device or a dtype that is none."""
    (empty := tmp_path / "empty").mkdir()
    pickled = shutil.copytree(tiny_classifier("gpt2"), tmp_path / "pickled")
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    for source in ("nobody/nothing", empty):
        with pytest.raises(ValueError, match=f"expected {head.described[:12]}.* could not load"):
            read_config(find_checkpoint(source), head)
    # GPT-2 is no masked LM, and its classifier no generator: that is said first.
    with pytest.raises(ValueError, match=r"safetensors|Unrecognized configuration|generates text"):
        load(find_checkpoint(pickled), head, device="cpu")
    with pytest.raises(ValueError, match="device: expected 'auto', 'cpu' or a device torch can"):
        load(find_checkpoint("nobody/nothing"), head, device="abacus")
    with pytest.raises(ValueError, match=r"dtype: expected one of auto, float32.* got 'int4'"):
        load(find_checkpoint("nobody/nothing"), head, device="cpu", dtype="int4")
