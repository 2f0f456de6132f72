"""Builds with a name of their own, in folders inside their run's."""

import pytest

from generation import Config, build, generate
from generation.run_folder import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run on bundled problems, with a further build by equal tags."""
    path = tmp_path_factory.mktemp("run") / "base"
    folder = generate(Config.from_recipe("demo", run=str(path), limit=12))
    build(path, into="fine", tag_match="fine", min_replacements=15)
    return folder


def test_a_build_beside_its_run_leaves_the_run_as_it_was(run: RunFolder) -> None:
    assert RunFolder(run.path / "fine").manifest.is_file()
    assert Config.read(run.path / "fine" / "config.toml").tag_match == "fine"
    assert Config.read(run.config).tag_match == "coarse"


@pytest.mark.parametrize("name", ["../elsewhere", ".hidden", "suggestions", "tasks"])
def test_a_build_stays_inside_its_run(run: RunFolder, name: str) -> None:
    with pytest.raises(ValueError, match=f"into: expected for the build a name .*, got '{name}'"):
        build(run.path, into=name)
