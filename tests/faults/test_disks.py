"""Full disks (a tmpfs for root, else size limits): one line says so, and nothing is lost."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from helpers.forks import Ended

from faults.attack import Attack, Try, noted
from faults.commands import Workshop, snapshot, words
from faults.test_kills import FINISHED, GROUPS, require_whole

PAGE = 4096
LEAST = 20_000
"""Least limit in bytes of a file, as a command's messages are in files, too."""
CURES = ("make room there, then give the same command again",
         "allow larger files (ulimit -f), then give the same command again",
         "name another place, or allow it there, then give the same command again",
         "is read-only")  # fmt: skip
LOCKS = re.compile(r"\.lock$")
WRITING = [name for group, (_, names) in GROUPS.items() for name in names
           if group != "demo" and not name.startswith("publish")]  # fmt: skip


@pytest.fixture(scope="module")
def can_mount() -> bool:
    if os.name != "posix" or os.geteuid():
        return False
    tried = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
                           capture_output=True, check=False)  # fmt: skip
    return tried.returncode == 0


@contextmanager
def small_disk(workshop: Workshop, free: int) -> Iterator[None]:
    """Give the workshop its own disk with `free` bytes beside the first files."""
    folder = str(workshop.folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m", "none", folder], check=True)
    try:
        workshop.restore()
        disk = os.statvfs(folder)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        _remount(workshop, f"size={used + free}")
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _remount(workshop: Workshop, options: str) -> None:
    command = ["mount", "-o", f"remount,{options}", str(workshop.folder)]
    subprocess.run(command, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_no_room(part: int, attack: Attack, workshop: Workshop, can_mount: bool) -> None:
    names = WRITING[part::3]
    ends = "refused: by the file's name and a cure; with room the same command ends well"
    for attempt in attack.tries("full and read-only disks", 3 * len(names), ends):
        with attempt:
            name = names[attempt.number % len(names)]
            kind = attempt.random.choice(("full", "full", "read-only")) if can_mount else "limit"
            if attempt.random.random() < 0.2:
                kind = "limit"
            _without_room(workshop, name, kind, attempt)


def _without_room(workshop: Workshop, name: str, kind: str, attempt: Try) -> None:
    arguments = words(name)
    good = workshop.undisturbed(name)
    if kind == "limit":
        most = max(good.sizes.values())
        workshop.restore()
        limit = attempt.random.randrange(LEAST, max(most, LEAST + 1))
        ended = workshop.forks.run(*arguments, limits={"FSIZE": limit})
        _try(workshop, name, ended, f"limit {limit}")
        again(workshop, name)
        return
    growth = sum(-(-size // PAGE) + 1 for file, size in good.sizes.items()
                 if good.after[file] != good.before.get(file))  # fmt: skip
    free = PAGE * attempt.random.randrange(growth) if kind == "full" else 2**26
    with small_disk(workshop, free):
        if kind == "read-only":
            _remount(workshop, "ro")
        ended = workshop.forks.run(*arguments)
        if kind == "read-only":
            assert ended.code == 2, ended
            assert snapshot(workshop.folder) == good.before
        _try(workshop, name, ended, f"{kind}, {free} bytes free")
        _remount(workshop, "rw,size=512m")
        again(workshop, name)


def _try(workshop: Workshop, name: str, ended: Ended, what: str) -> None:
    with noted(lambda: f"{name}; {what}: {ended.code}, {ended.err[-300:]}"):
        require_whole(workshop, name)
        if ended.code == 0:
            return
        line = ended.err.rstrip().rpartition("\n")[2]
        assert ended.code == 2, ended.err
        assert line.startswith("error: "), ended.err
        assert any(cure in line for cure in CURES), line
        text = line.removeprefix("error: ")
        assert str(workshop.folder) in line or re.match(r"[\w.…/-]+: ", text), line
        assert not re.search(r"/\.[^/]+\.(partial|lock|answers)", line), line


def again(workshop: Workshop, name: str, *, renamed: bool = False) -> None:
    """Run a command to its end, and compare; a renamed folder's lock keeps its old name."""
    ended = workshop.forks.run(*words(name))
    if ended.code != 2 or not any(word in ended.err for word in FINISHED):
        assert ended.code == 0, (name, ended.err)
    good, after = workshop.outcomes[name], snapshot(workshop.folder)
    if renamed:
        after = {file: digest for file, digest in after.items() if not LOCKS.search(file)}
    assert set(after) - set(good.after) == set(), f"{name}: temporary files stay"
    assert after == good.after, name
