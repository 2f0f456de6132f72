import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from merge_dataset.commands.command_line import distribution_of
from merge_dataset.executors import Distribution, ExecutorError, map_blocks, run_blocks, worker
from merge_metric.models.checkpoints import resolve_device
from merge_metric.models.readiness import machine_for


def work(factor: int, block: int) -> tuple[int, int]:
    if block < 0:
        raise ValueError(f"expected a positive block, got {block}")
    return factor * block, os.getpid()


def counted(blocks: range, read: list[int]) -> Iterator[int]:
    for block in blocks:
        read.append(block)
        yield block


@pytest.mark.parametrize("workers", [1, 2])
def test_outcomes_come_in_the_order_of_the_blocks(workers: int) -> None:
    outcomes = list(map_blocks(range(20), partial(partial, work, 3), workers=workers))
    assert [outcome for outcome, _ in outcomes] == [3 * block for block in range(20)]
    assert (os.getpid() in {pid for _, pid in outcomes}) == (workers == 1)


def test_blocks_are_read_as_they_are_needed() -> None:
    read: list[int] = []
    outcomes = map_blocks(counted(range(100), read), partial(partial, work, 1), workers=2)
    assert next(outcomes)[0] == 0
    assert len(read) <= 6
    outcomes.close()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="expected a positive block, got -1"):
        list(map_blocks([1, -1, 2], partial(partial, work, 1), workers=2))


def test_a_result_that_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "run_on_this_machine", lambda *_: {})
    with pytest.raises(ExecutorError, match="0 of 1 tasks failed, but 1 blocks have no result"):
        run_blocks("module:function", tmp_path, ["a"], Distribution())


def test_settings_of_executors() -> None:
    dealt = Distribution(executor="slurm", workers=2, memory_gb=3)
    assert machine_for(dealt, "cpu").memory_bytes == 3 * 2**30
    assert (dealt.tasks, Distribution().executor) == (2, "local")


@pytest.mark.parametrize(
    ("device", "options", "expected"),
    [
        ("all", {}, {"workers": 3, "gpus": 1, "devices": ("4", "6", "8")}),
        ("cuda:2,cuda:0", {"tasks": 5, "workers": 1, "gpus": 1},
         {"workers": 2, "gpus": 1, "devices": ("8", "4"), "tasks": 5}),
        ("cpu,cpu", {"executor": "local", "cpus": 2}, {"workers": 2, "cpus": 2}),
        ("cuda:1", {}, None),
    ],
)  # fmt: skip
def test_several_devices(
    device: str, options: dict[str, Any], expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,8")
    wanted = expected and Distribution(**expected)
    assert distribution_of(options, device=device) == wanted
    if expected:
        assert resolve_device("cpu,cpu") == "cpu"


@pytest.mark.parametrize(
    ("device", "options", "message"),
    [
        (
            "cuda:0,cuda:3",
            {},
            r"GPUs of this machine \(cuda:0, cuda:1\), all, or cpu,cpu, got cuda:0",
        ),
        ("cuda:0,cuda:0", {}, "GPUs of this machine"),
        ("cpu,cuda:0", {}, "GPUs of this machine"),
        ("all", {"executor": "slurm"}, "expected one with an executor that is not local, got all"),
        ("all", {"workers": 4}, "expected as many as --workers, got all"),
    ],
)
def test_devices_that_are_not_here(
    device: str, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ValueError, match=message):
        distribution_of(options, device=device)
