"""Units on a real Ray cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import namespaces
from helpers.ray_cluster import CLUSTER
from helpers.toy_units import FUNCTION, outputs, undisturbed, units

from merge_dataset.executors import clusters
from merge_dataset.executors.plan import Resources

pytestmark = pytest.mark.ray

RUN_TWICE = f"""
import logging, sys
from pathlib import Path
from merge_dataset.executors.plan import Distribution, Resources
from merge_dataset.executors.calls import run_units
from helpers.toy_units import unfinished
logging.basicConfig()
folder, tasks, memory, *names = sys.argv[1:]
folder = Path(folder)
for attempt in range(2):
    try:
        resources = Resources(memory_gb=int(memory) or None)
        run_units({FUNCTION!r}, folder, unfinished(folder, names),
                  Distribution(executor="ray", tasks=int(tasks), workers=2, resources=resources))
    except RuntimeError as error:
        print(error)
    print("missing", *unfinished(folder, names))
    (folder / "healed").touch()
"""


@pytest.fixture(scope="module", autouse=True)
def _namespaces() -> None:
    # Not skipped: who asks for these tests wants them run.
    if missing := namespaces.missing():
        pytest.fail(missing)


def run_twice(
    ray_folder: str, folder: Path, names: list[str], *, tasks: int, memory_gb: int
) -> list[str]:
    """Output of the two runs, the second after the faults are gone."""
    run = [sys.executable, "-c", RUN_TWICE, str(folder), str(tasks), str(memory_gb), *names]
    done = namespaces.run_apart(CLUSTER, ray_folder, *run, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_faults_and_the_rest(ray_folder: str, tmp_path: Path) -> None:
    """Raising and killed tasks are named, the rest is done; resumed, the bytes are equal."""
    names = units(5, "raise-0", "kill-0")
    *message, first, second = run_twice(ray_folder, tmp_path / "run", names, tasks=4, memory_gb=1)
    assert message == [
        "2 of 4 tasks failed:",
        "  task 1: 1 of 2 units failed: raise-0: ValueError: expected something else, got raise-0",
        "  task 2: killed by SIGKILL, as the system does when memory runs out",
        f"Their logs are in {tmp_path}/run/tasks/0001. What was finished is kept; the same "
        "command does the rest.",
    ]
    assert (first, second) == ("missing raise-0 kill-0 fine-4", "missing")
    assert outputs(tmp_path / "run") == undisturbed(tmp_path / "undisturbed", names)


def test_a_killed_ray_worker(ray_folder: str, tmp_path: Path) -> None:
    """Its task is run again on another; the process it leaves behind ends."""
    names = units(3, "orphan-0")
    said = run_twice(ray_folder, tmp_path / "run", names, tasks=2, memory_gb=0)
    assert said == ["missing", "missing"]
    assert (tmp_path / "run" / "orphaned").exists()
    assert outputs(tmp_path / "run") == undisturbed(tmp_path / "undisturbed", names)


def test_no_cluster(tmp_path: Path) -> None:
    """None is started: on one machine there is a better executor."""
    # Ray looks for clusters in the folder for temporary files.
    script = 'export TMPDIR="$1"; "${@:2}"'
    done = namespaces.run_apart(
        script,
        str(tmp_path),
        *(sys.executable, "-c", RUN_TWICE, str(tmp_path / "run"), "2", "1", "fine-0"),
    )
    assert done.stdout.splitlines()[:1] == [
        "expected a Ray cluster at address auto, found none; start one with: ray start --head"
    ], done.stderr


def test_a_cluster_that_cannot_run_us(caplog: pytest.LogCaptureFixture) -> None:
    """Where datatrove would wait for ever, there is a word first."""
    import ray

    class Cluster:
        """A cluster of one machine that is too small, and does not have this package."""

        exceptions = ray.exceptions

        def nodes(self) -> list[dict[str, Any]]:
            return [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {}}]

        def remote(self, **options: int) -> Callable[[object], Any]:
            return lambda function: SimpleNamespace(remote=lambda *arguments: None)

        def get(self, reference: object) -> None:
            raise ray.exceptions.RayError("Traceback\nModuleNotFoundError: no generation")

    with pytest.raises(
        RuntimeError, match=r"expected merge-nli\[distributed\] on .*: ModuleNotFoundError: no gen"
    ):
        clusters._check_ray(Cluster(), Resources(cpus=4))
    assert "no machine of the Ray cluster has {'CPU': 4, 'GPU': 0, 'memory': 0} yet" in caplog.text
