import shutil
from pathlib import Path

import pytest
from helpers.tiny_models import tiny_model

from merge_metric.models.checkpoints import load
from merge_metric.models.inspection import MASKED_LM, inspect
from merge_metric.models.model_files import ModelFiles, find_files


def test_ids_folders_and_files_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "mine@2").mkdir()
    (gguf := folder / "mine.Q8.gguf").touch()
    monkeypatch.chdir(folder)
    assert find_files("org/name") == ModelFiles("org/name", "org/name")
    of_a_commit = ModelFiles("org/name", "org/name", "refs/pr/1", "a.gguf")
    assert find_files("org/name@refs/pr/1", "a.gguf") == of_a_commit
    assert find_files(folder) == ModelFiles(str(folder), "mine@2", folder=folder)
    assert find_files(".").name == "mine@2"
    in_folder = ModelFiles(str(folder), "mine.Q8", gguf_file="mine.Q8.gguf", folder=folder)
    assert find_files(gguf) == find_files(folder, "mine.Q8.gguf") == in_folder
    for nothing in (folder / "other.gguf", "/no/folder", "https://me:secret@host/v1"):
        with pytest.raises(ValueError, match=r"an id on the Hub such as org/name") as error:
            find_files(nothing)
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
