"""Blocks, whose names say how they fail; all succeed if a file `healed` exists."""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

from merge_dataset.files import write_text

FUNCTION = "helpers.toy_blocks:run"


def run(folder: Path, block: str) -> None:
    """Write the output of `block`; raise an error if it exists already."""
    out = folder / "out" / block
    if out.exists():
        raise AssertionError(f"{block} was there and was asked for again")
    kind = block.partition("-")[0]
    if not (folder / "healed").exists():
        if kind == "raise":
            raise ValueError(f"expected something else,\n got {block}")
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "exit":
            print("the library gave up", file=sys.stderr)
            os._exit(3)
        if kind == "orphan" and not (folder / "orphaned").exists():
            write_text(folder / "orphaned", str(os.getpid()))
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(300)
        if kind == "sleep":
            write_text(folder / "pids" / block, str(os.getpid()))
            time.sleep(300)
        if kind == "fill":
            fill(folder / "filler")
    if kind == "environment":
        names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
        write_text(out, " ".join(os.environ.get(name, "-") for name in names))
    else:
        write_text(out, hashlib.sha256(block.encode()).hexdigest())


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def blocks(count: int, *special: str) -> list[str]:
    fine = [f"fine-{number}" for number in range(count)]
    return [*fine[:1], *special, *fine[1:]]


def unfinished(folder: Path, names: list[str]) -> list[str]:
    return [name for name in names if not (folder / "out" / name).exists()]


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "out").iterdir())}


def undisturbed(folder: Path, names: list[str]) -> dict[str, bytes]:
    """The outputs of one undisturbed process."""
    write_text(folder / "healed", "")
    for name in names:
        run(folder, name)
    return outputs(folder)
