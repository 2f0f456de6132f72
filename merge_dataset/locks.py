"""Locks, so that one command at a time writes to a folder or a file."""

from __future__ import annotations

import errno
import logging
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
"""Name of the lock file in a folder that commands write to."""

_HELD: Final[set[tuple[Path, int]]] = set()
"""Folders that this process holds, each with the id of the holding thread."""


@contextmanager
def exclusive(lock_file: Path, refusal: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file, with a note of the time, while the block runs; then remove it.

    The lock is the system's (`flock`), so it ends with the process; on a file system without locks,
    the existence of the file is the lock, and a message says so. If another process holds it,
    BlockingIOError is raised with the refusal and the note; with `wait`, this is logged, and the
    call waits.
    """
    from filelock import FileLock, SoftFileLock, Timeout

    note = lock_file.with_name(f"{lock_file.name}.holder")
    # The system's lock or, if there is none, the existence of the file.
    taken = lock_file.with_name(f"{lock_file.name}.taken")  # `FileLock` leaves its own file
    for lock in (FileLock(lock_file), SoftFileLock(taken)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # handled below
                _acquire(lock, timeout=0)
            break
        except Timeout as error:
            if not wait:
                cure = f"; if that process is gone, remove {lock.lock_file}"
                message = refusal + _since(note)
                raise BlockingIOError(
                    message + cure if isinstance(lock, SoftFileLock) else message
                ) from error
            log.info("%s: waiting for another command%s", lock_file.parent, _since(note))
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
        with suppress(OSError):  # on a full disk the refusal has no time
            note.write_text(time.strftime("%Y-%m-%d %H:%M:%S %z"), encoding="utf-8")
        yield
    finally:
        try:
            note.unlink(missing_ok=True)
            if not isinstance(lock, SoftFileLock) or Path(lock.lock_file) != lock_file:
                # Removed while held: a process that opened the file before notices that it is gone.
                with suppress(PermissionError):  # Windows does not remove open files
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
            with suppress(OSError):  # the folder is not empty
                folder.rmdir()


@contextmanager
def writing_to(target: Path) -> Iterator[None]:
    """Hold a file or folder for writing by one command at a time; errors name it."""
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
            continue  # the holder has removed the folder, which stayed empty
        return


def _since(note: Path) -> str:
    """Say since when a lock is held; nothing where its holder has not noted it yet."""
    with suppress(OSError):
        if since := note.read_text(encoding="utf-8"):
            return f" (at work since {since})"
    return ""
