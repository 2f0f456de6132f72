import json
import sys
from pathlib import Path

import pytest
from helpers import namespaces
from helpers.ray_cluster import CLUSTER, short_folder
from helpers.toy_blocks import FUNCTION, blocks, outputs, undisturbed

pytestmark = pytest.mark.ray

RUN_TWICE = f"""
import json, logging, sys
from pathlib import Path
from merge_dataset.executors import Distribution
from merge_dataset.executors import run_blocks
from helpers.toy_blocks import unfinished
logging.basicConfig()
for run in json.loads(sys.argv[1]):
    folder, names = Path(run["folder"]), run["names"]
    cluster = Distribution(executor="ray", tasks=run["tasks"], workers=2,
                           memory_gb=run.get("memory_gb"))
    for attempt in range(2):
        try:
            run_blocks({FUNCTION!r}, folder, unfinished(folder, names), cluster)
        except (RuntimeError, ConnectionError) as error:
            print(error)
        print("missing", *unfinished(folder, names))
        (folder / "healed").touch()
"""
"""Code that does each run twice, the second time after the faults are healed."""


@pytest.fixture(scope="module", autouse=True)
def _namespaces() -> None:
    # Not skipped: anyone who selects these tests wants them to run.
    if missing := namespaces.missing():
        pytest.fail(missing)


def test_faults_and_the_rest(tmp_path: Path) -> None:
    """Tasks that raise or are killed are named, others finish; a resumed run gives equal bytes."""
    names, orphan = blocks(5, "raise-0", "kill-0"), blocks(3, "orphan-0")
    runs = [
        {"folder": f"{tmp_path}/run", "names": names, "tasks": 4, "memory_gb": 1},
        {"folder": f"{tmp_path}/orphan", "names": orphan, "tasks": 2},
    ]
    program = [sys.executable, "-c", RUN_TWICE, json.dumps(runs)]
    with short_folder() as folder:
        done = namespaces.run_apart(CLUSTER, folder, *program, timeout=300)
    assert done.returncode == 0, done.stderr
    *message, first, second, orphaned, after = done.stdout.splitlines()
    assert message == [
        "2 of 4 tasks failed:",
        "  task 1: 1 of 2 blocks failed: raise-0: ValueError: expected something else, got raise-0",
        "  task 2: killed by SIGKILL, as the system does when memory runs out",
        f"Their logs are in {tmp_path}/run/tasks/0001. Models' answers are kept; give the "
        "same command again.",
    ]
    assert (first, second) == ("missing raise-0 kill-0 fine-4", "missing")
    assert outputs(tmp_path / "run") == undisturbed(tmp_path / "undisturbed", names)
    assert (orphaned, after) == ("missing", "missing")
    assert (tmp_path / "orphan" / "orphaned").exists()
    assert outputs(tmp_path / "orphan") == undisturbed(tmp_path / "fine", orphan)


def test_no_cluster(tmp_path: Path) -> None:
    """No cluster is started, as the local executor is better on one machine."""
    # Ray looks for clusters in the temporary folder.
    script = 'export TMPDIR="$1"; "${@:2}"'
    runs = [{"folder": f"{tmp_path}/run", "names": ["fine-0"], "tasks": 2}]
    program = [sys.executable, "-c", RUN_TWICE, json.dumps(runs)]
    done = namespaces.run_apart(script, str(tmp_path), *program)
    assert "Could not find any running Ray instance" in done.stdout, done.stderr
