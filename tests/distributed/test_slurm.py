import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import processes
from helpers.slurm_cluster import MAX_ARRAY_SIZE, SlurmCluster
from helpers.toy_blocks import FUNCTION, blocks, outputs, undisturbed, unfinished

from merge_dataset.executors import Distribution, run_blocks

pytestmark = pytest.mark.slurm


def run(folder: Path, names: list[str], tasks: int, **options: Any) -> None:
    cluster = Distribution(executor="slurm", tasks=tasks, workers=3, **options)
    run_blocks(FUNCTION, folder, unfinished(folder, names), cluster)


def test_more_tasks_than_an_array_takes(on_slurm: SlurmCluster, tmp_path: Path) -> None:
    """Elements of the array do several tasks; a killed task and one that fails are named."""
    tasks = MAX_ARRAY_SIZE + 2
    names = [*blocks(tasks - 2, "kill-0"), "raise-0", "fine-a", "fine-b"]
    with pytest.raises(RuntimeError) as caught:
        run(tmp_path / "run", names, tasks)
    first, killed, failed, *_ = str(caught.value).splitlines()
    assert first == f"2 of {tasks} tasks failed:"
    assert killed.startswith("  task 1: FAILED")
    assert "Killed" in killed
    assert failed == (
        f"  task {tasks - 1}: FAILED, 1 of 1 blocks failed: raise-0: ValueError: expected "
        "something else, got raise-0"
    )
    assert unfinished(tmp_path / "run", names) == ["kill-0", "raise-0", "fine-b"]
    assert on_slurm.ask("squeue", "--noheader") == ""
    (tmp_path / "run" / "healed").touch()
    run(tmp_path / "run", names, 1)
    assert outputs(tmp_path / "run") == undisturbed(tmp_path / "undisturbed", names)


def test_a_cancelled_job(on_slurm: SlurmCluster, tmp_path: Path) -> None:
    cancel = f"until [ -e {tmp_path}/pids/sleep-0 ]; do sleep 0.2; done; scancel --user=root"
    with (
        processes.running(["bash", "-c", cancel]),
        pytest.raises(RuntimeError, match="task 0: CANCELLED, "),
    ):
        run(tmp_path, ["sleep-0"], 1)


def test_an_interrupted_run_cancels_its_job(on_slurm: SlurmCluster, tmp_path: Path) -> None:
    """Until the job is gone, no other job for the same folder is submitted."""
    code = f"""
import signal
from pathlib import Path
from typing import Any
from merge_dataset.executors import run_blocks
from merge_dataset.executors import Distribution
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs the tests may ignore it
run_blocks({FUNCTION!r}, Path({str(tmp_path)!r}), ["sleep-0"], Distribution(executor="slurm"))
"""
    with processes.running([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "pids" / "sleep-0").exists():
            assert process.poll() is None
            time.sleep(0.2)
        with pytest.raises(RuntimeError, match="found 1 tasks of an earlier command"):
            run(tmp_path, ["fine-0"], 1)
        process.send_signal(signal.SIGINT)
        process.wait(processes.PATIENCE)
    assert process.returncode != 0
    while on_slurm.ask("squeue", "--noheader"):
        time.sleep(0.2)


def test_what_a_task_gets(on_slurm: SlurmCluster, tmp_path: Path) -> None:
    run(
        tmp_path, ["environment-0"], 1,
        cpus=2, memory_gb=1, time="0:05:00", partition="main",
        sbatch={"comment": "from-us", "nice": ""}, setup="export OMP_NUM_THREADS=7",
    )  # fmt: skip
    assert outputs(tmp_path)["environment-0"].startswith(b"7 ")
    script = (tmp_path / "tasks" / "0001" / "job.sh").read_text()
    for line in ("cpus-per-task=2", "mem=1G", "time=0:05:00", "partition=main", "comment=from-us"):
        assert f"#SBATCH --{line}\n" in script
    assert "#SBATCH --nice\n" in script
    assert f"export PATH={Path(sys.executable).parent}:" in script


def test_what_slurm_refuses(on_slurm: SlurmCluster, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="expected an answer of sbatch, got: "):
        run(tmp_path, ["fine-0"], 1, gpus=2)
    script = (tmp_path / "tasks" / "0001" / "job.sh").read_text()
    assert "#SBATCH --gpus=2\n" in script
    assert "--mem" not in script


def test_a_controller_that_does_not_answer(
    on_slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is submitted; once it has been, Slurm's own command waits for the controller."""
    program = tmp_path / "bin" / "squeue"
    program.parent.mkdir()
    program.write_text("#!/bin/bash\necho no controller >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    with pytest.raises(RuntimeError, match="expected an answer of squeue, got: no controller"):
        run(tmp_path, ["fine-0"], 1)
