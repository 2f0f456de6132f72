"""Files are written whole or not at all, whenever the process ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from faults.attack import Attack
from merge_dataset.files import read_record, write_record

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")


def ends_at(number: int, folder: Path) -> None:
    """Replace a record in a child process that ends before its change of this number."""
    pid = os.fork()
    if not pid:
        seen = 0

        def count(event: str, _: object) -> None:
            nonlocal seen
            seen += event in CHANGES
            if seen > number:
                os._exit(9)

        sys.addaudithook(count)
        write_record(folder / "record.json", {"version": 2})
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.slow
def test_a_record_is_the_old_or_the_new_one(attack: Attack, tmp_path: Path) -> None:
    """Whenever its writer ends."""
    for each in attack.tries("kills", 6):
        with each:
            folder = tmp_path / str(each.number)
            write_record(folder / "record.json", {"version": 1})
            ends_at(each.number, folder)  # of its changes the second is the renaming
            assert read_record(folder / "record.json") == {"version": 1 if each.number < 2 else 2}
