"""Locks: one command at a time writes to a folder or a file."""

from __future__ import annotations

import errno
import json
import logging
import os
import shlex
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Final

from merge_dataset.files import naming

if TYPE_CHECKING:
    from filelock import BaseFileLock

log = logging.getLogger(__name__)

LOCK: Final = ".lock"
"""File that is locked in a folder that commands work in."""

_HELD: Final[set[tuple[Path, int]]] = set()
"""Folders that this process holds, with the thread that does."""


@contextmanager
def exclusive(lock_file: Path, refusal: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file while the block runs, with a note of who holds it; it is gone afterwards.

    The lock is the system's (`flock`), so it ends with the process; where a file system has none,
    the existence of the file is the lock, and that is said. Where another holds it, BlockingIOError
    has the refusal and the note; with `wait`, this is told, and the other is waited for.
    """
    from filelock import FileLock, SoftFileLock, Timeout

    note = lock_file.with_name(f"{lock_file.name}.holder")
    # The system's lock or, where there is none, one that is the file's existence.
    taken = lock_file.with_name(f"{lock_file.name}.taken")  # the other one leaves its file
    for lock in (FileLock(lock_file), SoftFileLock(taken)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is said below
                _acquire(lock, timeout=0)
            break
        except Timeout as error:
            if not wait:
                cure = f"; if that process is gone, remove {lock.lock_file}"
                message = f"{refusal} (at work: {_described(note)})"
                raise BlockingIOError(
                    message + cure if isinstance(lock, SoftFileLock) else message
                ) from error
            log.info("%s: waiting for: %s", lock_file.parent, _described(note))
            _acquire(lock, timeout=-1)
            break
        except OSError as error:
            has_none = error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
            if isinstance(lock, SoftFileLock) or not has_none:
                raise
    if isinstance(lock, SoftFileLock):
        log.warning(
            "%s: this file system has no locks, so that the file stands for one; remove it if a "
            "killed command leaves it",
            lock.lock_file,
        )
    try:
        with suppress(OSError):  # on a full disk the others are refused without a name
            command = [Path(sys.argv[0]).name, *sys.argv[1:]]
            holder = {
                "command": shlex.join(command),
                "process": os.getpid(),
                "host": socket.gethostname(),
                "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            }
            note.write_text(json.dumps(holder), encoding="utf-8")
        yield
    finally:
        try:
            note.unlink(missing_ok=True)
            if not isinstance(lock, SoftFileLock) or Path(lock.lock_file) != lock_file:
                # While it is held: whoever opened the file before finds out that it is gone.
                with suppress(PermissionError):  # Windows keeps open files
                    lock_file.unlink(missing_ok=True)
        finally:
            lock.release()


@contextmanager
def working_in(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder so that one command at a time writes to it; the block may lock it again."""
    folder = folder.resolve()
    held = folder, get_ident()
    if held in _HELD:
        yield
        return
    made = not folder.exists()
    refusal = (
        f"{folder}: another command is at work in this folder; wait until it has ended, or name "
        "another folder"
    )
    try:
        with naming(folder), exclusive(folder / LOCK, refusal, wait=wait):
            _HELD.add(held)
            try:
                yield
            finally:
                _HELD.discard(held)
    finally:
        if made:
            with suppress(OSError):  # there is something in it
                folder.rmdir()


@contextmanager
def writing_to(target: Path) -> Iterator[None]:
    """Hold a file or folder that is to be written, for one command at a time; errors name it."""
    refusal = (
        f"{target}: another command is writing to this place; wait until it has ended, or name "
        "another with --out"
    )
    with naming(target), exclusive(target.with_name(f".{target.name}.lock"), refusal):
        yield


def _acquire(lock: BaseFileLock, *, timeout: float) -> None:
    while True:
        Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=timeout)
        except FileNotFoundError:
            continue  # who held it has removed the folder, in which nothing came to be
        return


def _described(note: Path) -> str:
    """Say who holds a lock, from the note."""
    for seconds in (0.02, 0.2, 0.5, 0):  # between the lock and the note is a moment
        try:
            who = json.loads(note.read_text(encoding="utf-8"))
            return (
                f"{who['command']}, process {who['process']} on {who['host']}, since {who['since']}"
            )
        except (OSError, ValueError, KeyError, TypeError):
            time.sleep(seconds)
    return "a process that has not said yet which it is"
