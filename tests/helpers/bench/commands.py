"""Commands of `merge-nli` as contenders; results are kept, so that a stopped run continues."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from helpers.bench.contender import FOLDER, Contender, Reply
from helpers.bench.results import commit


def a_command(line: str, folder: str) -> Callable[[], None]:
    """Run a command of `merge-nli` in a folder, including its imports, as for a user."""

    def answer() -> None:
        from generation.cli import main

        os.chdir(folder)
        sys.argv = ["merge-nli", *line.split()]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"merge-nli {line}: exit code {end.code}") from end

    return answer


def folder_of(name: str) -> Path:
    """Make the folder of a measurement at this commit; it stays until the measurement is done."""
    folder = FOLDER / "commands" / f"{commit()}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def once(file: Path, write: Callable[[Path], object]) -> None:
    """Write a file, unless it exists; it appears whole or not at all."""
    if not file.is_file():
        partial = file.with_suffix(".partial")
        write(partial)
        partial.rename(file)


def measured(
    folder: Path, name: str, load: Callable[..., Callable[..., Any]], arguments: Mapping[str, Any]
) -> tuple[Reply, str]:
    """Ask once, in a separate process, or return the kept reply; with a remark."""
    kept, begun = folder / f"{name}.json", folder / f"{name}.begun"
    if not kept.is_file():
        remark = "stopped once: the rest alone" if begun.is_file() else ""
        begun.touch()
        with Contender(f"{name}", load, {**arguments, "folder": str(folder)}) as ours:
            kept.write_text(json.dumps([asdict(ours.ask()), remark]), encoding="utf-8")
    reply, remark = json.loads(kept.read_text(encoding="utf-8"))
    return Reply(**reply), remark
