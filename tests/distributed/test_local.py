import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import namespaces
from helpers.processes import PATIENCE, running
from helpers.toy_blocks import FUNCTION, blocks, outputs, undisturbed, unfinished

from merge_dataset.commands.command_line import distribution_of
from merge_dataset.executors import Distribution, run_blocks

pytestmark = pytest.mark.slow  # workers are processes with many imports


def run(folder: Path, names: list[str], **options: Any) -> None:
    """Run the unfinished blocks of `names` in two tasks, on one worker each."""
    todo = unfinished(folder, names)
    options = {"executor": "local", "tasks": 2, "workers": 2, **options}
    run_blocks(FUNCTION, folder, todo, Distribution(**options))


def failure_of(folder: Path, names: list[str], **options: Any) -> list[str]:
    with pytest.raises(RuntimeError) as caught:
        run(folder, names, **options)
    return str(caught.value).splitlines()


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not (came := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return came


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_more_tasks_than_blocks(tmp_path: Path) -> None:
    """A block that runs twice would fail, and a block that does not run would be missing."""
    names = blocks(5)
    run(tmp_path, names, tasks=7)
    assert sorted(outputs(tmp_path)) == names
    assert outputs(tmp_path)["fine-3"].startswith(b"386c9f28")
    run(tmp_path / "nothing", [])
    assert not (tmp_path / "nothing").exists()


def test_each_call_has_a_log_per_task(tmp_path: Path) -> None:
    """There is no task without blocks."""
    run(tmp_path, blocks(3), tasks=9)
    logs = tmp_path / "tasks" / "0001"
    names = [f"task_0000{task}.log" for task in range(3)]
    assert sorted(path.name for path in logs.glob("*.log")) == names
    run(tmp_path, blocks(4), tasks=1)
    assert (tmp_path / "tasks" / "0002" / "task_00000.log").exists()


def test_workers_share_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7,9")
    names = ["environment-0", "environment-1"]
    run(tmp_path, names, cpus=3, gpus=2)
    assert sorted(outputs(tmp_path).values()) == [b"3 3,5", b"3 7,9"]
    chosen = distribution_of({}, device="cuda:3,cuda:1")
    assert chosen
    run_blocks(FUNCTION, tmp_path / "chosen", names, chosen)
    assert sorted(outputs(tmp_path / "chosen").values()) == [b"1 5", b"1 9"]


def test_a_block_that_raises(tmp_path: Path) -> None:
    names = blocks(6, "raise-0")
    assert failure_of(tmp_path, names) == [
        "1 of 2 tasks failed:",
        "  task 1: 1 of 3 blocks failed: raise-0: ValueError: expected something else, got raise-0",
        f"Their logs are in {tmp_path}/tasks/0001. Models' answers are kept; give the same "
        "command again.",
    ]
    assert unfinished(tmp_path, names) == ["raise-0"]
    logs = tmp_path / "tasks" / "0001"
    assert "Traceback" in (logs / "task_00001.log").read_text()

    (tmp_path / "healed").touch()
    run(tmp_path, names)
    assert sorted(outputs(tmp_path)) == sorted(names)


def test_a_killed_worker(tmp_path: Path) -> None:
    names = blocks(6, "kill-0")
    message = failure_of(tmp_path, names)
    assert message[:2] == [
        "1 of 2 tasks failed:",
        "  task 1: killed by SIGKILL, as the system does when memory runs out",
    ]
    assert unfinished(tmp_path, names) == ["kill-0", "fine-2", "fine-4"]
    (tmp_path / "healed").touch()
    run(tmp_path, names, tasks=3)
    assert outputs(tmp_path) == undisturbed(tmp_path / "undisturbed", names)


def test_words_of_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure_of(tmp_path, ["exit-0"])[1] == "  task 0: the library gave up"
    monkeypatch.setattr("merge_dataset.executors._FAILURES_SHOWN", 1)
    message = failure_of(tmp_path, ["exit-0", "exit-1"])
    assert message[:3] == ["2 of 2 tasks failed:", "  task 0: the library gave up", "  and 1 more"]
    with pytest.raises(RuntimeError, match=r"No module named 'helpers\.nothing'"):
        run_blocks("helpers.nothing:f", tmp_path, ["a"], Distribution(executor="local"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_run(tmp_path: Path, how: signal.Signals) -> None:
    """Otherwise, two workers would write the same files when the run is resumed."""
    code = f"""
import signal
from pathlib import Path
from merge_dataset.executors import run_blocks
from merge_dataset.executors import Distribution
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs the tests may ignore it
run_blocks({FUNCTION!r}, Path({str(tmp_path)!r}), ["sleep-0", "sleep-1"],
          Distribution(executor="local", tasks=2, workers=2))
"""
    with running([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as process:
        pids = tmp_path / "pids"
        assert eventually(lambda: pids.is_dir() and len(outputs_of(pids)) == 2)
        process.send_signal(how)
        process.wait(PATIENCE)
    assert eventually(lambda: not any(map(is_alive, outputs_of(pids))))


def outputs_of(pids: Path) -> list[int]:
    return [int(path.read_text()) for path in pids.glob("sleep-*")]


FULL_DISK = f"""
import sys
from pathlib import Path
from merge_dataset.executors import run_blocks
from merge_dataset.executors import Distribution
from helpers.toy_blocks import unfinished
folder, names = Path(sys.argv[1]), sys.argv[2:]
try:
    here = Distribution(executor="local", tasks=2)
    run_blocks({FUNCTION!r}, folder, unfinished(folder, names), here)
except RuntimeError as error:
    print(error)
print("missing", *unfinished(folder, names))
"""


@pytest.mark.skipif(namespaces.missing() is not None, reason=f"{namespaces.missing()}")
def test_a_full_disk(tmp_path: Path) -> None:
    """The disk is too full for logs: the message gives the reason, and with space it resumes."""
    script = '''mount -t tmpfs -o size=1m none "$1"
"$2" -c "$3" "${@:4}"
rm "$1/filler"
touch "$1/healed"
"$2" -c "$3" "${@:4}"
cp -r "$1/out" "$4-out"'''
    disk, names = tmp_path / "disk", ["fine-0", "fill-0", "fine-1", "fine-2"]
    disk.mkdir()
    done = namespaces.run_apart(script, str(disk), sys.executable, FULL_DISK, str(disk), *names)
    assert done.returncode == 0, done.stderr
    first, reason, *rest = done.stdout.splitlines()
    assert first == "1 of 2 tasks failed:"
    # From the block, or from the task if not even that could be written.
    assert reason.startswith("  task 1: ")
    assert "OSError: [Errno 28] No space left on device" in reason
    assert rest == [
        f"Their logs are in {disk}/tasks/0001. Models' answers are kept; give the same command "
        "again.",
        "missing fill-0 fine-2",
        "missing",
    ]
    kept = {path.name: path.read_bytes() for path in (tmp_path / "disk-out").iterdir()}
    assert kept == undisturbed(tmp_path / "undisturbed", names)


def test_what_is_asked_for_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="cpus: expected at least 1, got 0"):
        Distribution(cpus=0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(ValueError, match="at most 1 on this machine, got 2 workers with 1 each"):
        run(tmp_path, ["a", "b"], gpus=1)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="squeue"):
        run(tmp_path, ["a"], executor="slurm")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError) as error:
        run(tmp_path, ["a"], executor="ray")
    assert error.value.args[1:] == ("distributed",)


@pytest.mark.parametrize(("listed", "count"), [("0\\n1\\n", 2), (None, 0)])
def test_gpus_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str | None, count: int
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if listed:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{listed}'\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    with pytest.raises(ValueError, match=f"at most {count} on this machine"):
        run(tmp_path, ["a", "b"], gpus=2)
