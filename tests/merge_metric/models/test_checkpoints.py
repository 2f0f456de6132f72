import shutil
from pathlib import Path

import pytest
from helpers.tiny_models import tiny_model

from merge_metric.models.checkpoints import load
from merge_metric.models.inspection import MASKED_LM, inspect
from merge_metric.models.model_files import find_files


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
