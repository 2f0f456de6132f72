"""Paths and lists in arguments: one or several, as text or `pathlib.Path`."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def as_path(name: str, given: object) -> Path:
    """Turn a text or path into a path.

    >>> as_path("dataset", "merge-nli").name
    'merge-nli'
    >>> as_path("dataset", ["merge-nli"])
    Traceback (most recent call last):
    TypeError: dataset: expected one path, as text or pathlib.Path, got a list
    """
    if isinstance(given, str | os.PathLike):
        return Path(given)
    hint = ""
    if type(given).__module__.partition(".")[0] == "datasets":
        hint = "; give the folder, or the name on the Hub, that it was loaded from"
    raise TypeError(
        f"{name}: expected one path, as text or pathlib.Path, got {described(given)}{hint}"
    )


def as_paths(name: str, given: object) -> list[Path]:
    """Turn one or several texts or paths into paths; see `as_list`.

    >>> as_paths("paths", "a.jsonl") == as_paths("paths", [Path("a.jsonl")])
    True
    """
    kinds = (str, os.PathLike)
    found = as_list(name, given, kinds, "one or several paths, as text or pathlib.Path")
    return [as_path(name, each) for each in found]


def as_texts(name: str, given: object) -> tuple[str, ...]:
    """Turn one or several texts into a tuple; see `as_list`. None is none.

    >>> as_texts("configs", "snli"), as_texts("configs", None)
    (('snli',), ())
    """
    return () if given is None else tuple(as_list(name, given, (str,), "one or several texts"))


def as_list(name: str, given: object, kinds: tuple[Any, ...], expected: str) -> list[Any]:
    """Turn one or several values into a list."""
    if isinstance(given, kinds):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise TypeError(f"{name}: expected {expected}, got {described(given)}")
    return list(given)


def described(given: object) -> str:
    """Describe a given value for messages.

    >>> described(None), described(3), described(["a"]), described(described)
    ('None', 'the int 3', 'a list', 'a function')
    """
    if given is None:
        return "None"
    kind = type(given).__name__
    if isinstance(given, bool | int | float | bytes):
        return f"the {kind} {given!r:.40}"
    return f"an {kind}" if kind[0] in "AEIOUaeiou" else f"a {kind}"
