"""Commands that are killed at random moments, and two at once in one folder."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.processes import PATIENCE, running

from merge_dataset.checks import check_dataset
from merge_dataset.files import LOCK, digest_of_file

LONG = 10 * PATIENCE
RUNS = 4


def command(*arguments: str) -> list[str]:
    """A call of merge-nli in a process of its own."""
    call = "import sys; from generation.cli import app; sys.argv[0] = 'merge-nli'; app()"
    return [sys.executable, "-c", call, *arguments]


def generate(run: Path, out: Path) -> list[str]:
    return command("generate", "--recipe", "demo", "--limit", "12", "--run", str(run),
                   "--out", str(out))  # fmt: skip


def digests_in(folder: Path) -> dict[str, str]:
    """Digests of a dataset folder's files, and hidden ones by name."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): digest_of_file(path) for path in paths}


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    """Whenever it is killed, the same command goes on, and ends with the same files."""
    moments = random.Random(17)
    unbroken = tmp_path / "unbroken" / "merge-nli"
    subprocess.run(generate(tmp_path / "one", unbroken), check=True, timeout=LONG)
    run, out = tmp_path / "killed", tmp_path / "again" / "merge-nli"
    for _ in range(RUNS):
        with running(generate(run, out), stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(moments.uniform(1, 12))
            except subprocess.TimeoutExpired:
                process.kill()
    subprocess.run(generate(run, out), check=True, timeout=LONG)
    assert digests_in(out) == digests_in(unbroken)
    assert check_dataset(out) == []
    left = [path.name for path in run.iterdir() if path.name.startswith(".")]
    assert left == [], "what killed commands left is removed"


@pytest.mark.slow
def test_two_builds_at_once(tmp_path: Path) -> None:
    """One of them works; the other is told by whom, and what is there is of one of the two."""
    run, out = tmp_path / "run", tmp_path / "merge-nli"
    subprocess.run(generate(run, out), check=True, timeout=LONG)
    builds = [
        command("build", "--run", str(run), "--out", str(out), "--overwrite", "--set", setting)
        for setting in ("subsamples=5", "subsamples=7")
    ]
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with running(builds[0], **options) as one, running(builds[1], **options) as other:
        said = {each: each.communicate(timeout=LONG)[1] for each in (one, other)}
    refused = [each for each in (one, other) if each.returncode]
    for each in refused:
        assert each.returncode == 2
        assert "another command is at work in this folder" in said[each]
        assert "(at work: merge-nli build --run" in said[each]
    assert len(refused) < 2
    assert check_dataset(out) == []
    assert not (run / LOCK).exists()
