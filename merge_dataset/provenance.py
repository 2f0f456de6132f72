"""How a source's data was made: the part of a run's manifest that the dataset keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

MLM_KEYS: Final = ("name", "revision", "architecture", "dtype", "device")

_KEYS: Final[dict[str, type | tuple[type, ...]]] = {
    "source": str,
    "config": dict,
    "mlms": list,
    "tagger": str,
    "packages": dict,
    "fingerprint": str,
    "problems": dict,
    "source_data": dict,
    "funnel": list,
    "eligible": dict,
    "ablation": (str, type(None)),
}
"""What the dataset keeps of a manifest, in this order."""

_MACHINE_SETTINGS: Final = ("run", "store", "device", "batch_tokens", "workers")
"""Settings that say where and how a run was computed, not what was made: left out of the
dataset, which is the same whatever they are. Device and dtype of each MLM are kept."""

_LOCAL_PATH = re.compile(
    r"""(?<![^\s"'(=,\[])(?:file://)?(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^\s"'),;\]]+"""
)
"""A file's path inside a text: absolute, or relative by its leading `~`, `.` or `..`."""


def read(path: Path) -> dict[str, Any]:
    """Read a run's manifest or a source's provenance, and check what is used of it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no JSON object with the keys and types needed here.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: expected JSON, got an error: {error}") from error
    _require(path, "", value, tuple(_KEYS))
    for key, kind in _KEYS.items():
        if not isinstance(value[key], kind):
            name = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise ValueError(f"{path}: expected {key} of type {name}, got {value[key]!r}")
    _require(path, "problems", value["problems"], ("read", "unlabelled", "kept"))
    _require(path, "source_data", value["source_data"], ("description", "sha256"))
    for mlm in value["mlms"]:
        _require(path, "mlms", mlm, MLM_KEYS)
    for row in value["funnel"]:
        _require(path, "funnel", row, ("mlm", "word_class"))
    return {**value}


def describe(manifest: dict[str, Any]) -> dict[str, Any]:
    """The parts of a manifest that say how the data was made, without local paths.

    >>> manifest = dict.fromkeys(_KEYS) | {"finished": "today"}
    >>> describe(manifest | {"config": {"data": "/home/me/dev.jsonl", "run": "a"}})["config"]
    {'data': 'dev.jsonl'}
    """
    kept = {key: manifest[key] for key in _KEYS}
    config = {k: v for k, v in kept["config"].items() if k not in _MACHINE_SETTINGS}
    return {key: _without_paths(value) for key, value in (kept | {"config": config}).items()}


def _require(path: Path, part: str, value: Any, keys: tuple[str, ...]) -> None:
    where = f"{path}, {part}" if part else str(path)
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(value).__name__}")
    if missing := [key for key in keys if key not in value]:
        raise ValueError(f"{where}: expected the keys {missing} too, got {sorted(value)}")


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    if not isinstance(value, str):
        return value
    if PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute():
        return PureWindowsPath(value).name  # splits at either kind of slash
    return _LOCAL_PATH.sub(lambda path: PureWindowsPath(path.group()).name, value)
