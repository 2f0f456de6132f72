from pathlib import Path

import pytest
from helpers.commands import refused, run
from helpers.subsampled_folder import write_folder

COMMANDS = ("lm-eval", "inspect", "croissant", "mini-datasets", "jsonl", "csv")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_folder(tmp_path / "merge-nli")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_is_in_the_help() -> None:
    assert all(name in run("export", "--help").stdout for name in COMMANDS)
    for name in COMMANDS:
        text = run("export", name, "--help").stdout
        assert f"merge-nli export {name} merge-nli" in text
        assert "--overwrite" in text


@pytest.mark.slow(but=["lm-eval"])
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_overwritten_silently(command: str) -> None:
    run("export", command)
    told = refused("export", command)
    assert "error: " in told
    assert "--overwrite" in told
