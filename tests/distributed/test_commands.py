import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any, Final

import pytest
from helpers import namespaces
from helpers.dealt_commands import COMMANDS, kill_worker, killing, made, prepare, run
from helpers.processes import PYTHON_PATH
from helpers.ray_cluster import CLUSTER, short_folder
from helpers.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slow

ON_SLURM: Final = {"suggest": False, "paraphrase": False, "predict": True}
ON_RAY: Final = {"build": False, "signals": True, "baseline": False}
"""Command → whether tasks are killed. Executors do not depend on the command, and commands
do not depend on the executor: so each command is tried on one of the clusters, and tasks of most
are killed once, there or below."""


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder


@pytest.fixture
def whole(name: str, prepared: Path) -> dict[str, bytes]:
    """Files that a command makes undisturbed, once."""
    folder = prepared.with_name(f"whole-{name}")
    is_new = not folder.exists()
    if is_new:
        shutil.copytree(prepared, folder)
    with chdir(folder):
        if is_new:
            done = run(name)
            assert done.exit_code == 0, done.output
        assert made(name)
        return made(name)


@pytest.fixture
def here(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(prepared, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize("name", ["suggest", "build", "baseline"])
def test_a_task_that_is_killed(name: str, whole: dict[str, bytes], here: None) -> None:
    options = ("--executor", "local", "--tasks", "2", "--workers", "2")
    with killing(name, kill_worker) as killed:
        failed = run(name, *options)
    assert killed, failed.output
    assert failed.exit_code == 1, failed.output
    assert "killed by SIGKILL, as the system does when memory runs out" in failed.stderr
    done = run(name, *options)
    assert done.exit_code == 0, done.output
    assert made(name) == whole


def test_every_command_is_tried_on_a_cluster() -> None:
    assert {*ON_SLURM, *ON_RAY} == {*COMMANDS}


@pytest.mark.slurm
@pytest.mark.parametrize("name", ON_SLURM)
def test_on_slurm(name: str, whole: dict[str, bytes], here: None, on_slurm: SlurmCluster) -> None:
    options = ("--executor", "slurm", "--tasks", "2", "--workers", "2")
    if ON_SLURM[name]:
        with killing(name, lambda: on_slurm.ask("scancel", "--user=root")):
            failed = run(name, *options)
        assert failed.exit_code == 1, failed.output
        assert "tasks failed" in failed.stderr
        assert "CANCELLED" in failed.stderr
    done = run(name, *options)
    assert done.exit_code == 0, done.output
    assert made(name) == whole


@pytest.fixture(scope="module")
def on_ray(
    prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[Path, dict[str, Any]]]]:
    if missing := namespaces.missing():
        pytest.fail(missing)
    folder = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", PYTHON_PATH)
        program = [sys.executable, "-m", "helpers.dealt_commands", "ray", str(prepared)]
        with short_folder() as ray:
            done = namespaces.run_apart(
                CLUSTER, ray, *program, str(folder), json.dumps(ON_RAY), timeout=800
            )
    assert done.returncode == 0, done.stderr
    text = [json.loads(line) for line in done.stdout.splitlines()]
    yield {record["name"]: (folder / record["name"], record) for record in text}
    shutil.rmtree(folder)


@pytest.mark.ray
@pytest.mark.parametrize("name", ON_RAY)
def test_on_ray(
    name: str,
    whole: dict[str, bytes],
    on_ray: dict[str, tuple[Path, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, text = on_ray[name]
    assert text["code"] == 0, text["output"]
    assert text["killed"] == ([1, True] if ON_RAY[name] else [])
    monkeypatch.chdir(folder)
    assert made(name) == whole
