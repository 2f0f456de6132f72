"""Models that are opened when they are needed, and known without that."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from merge_dataset.files import read_json, write_json

log = logging.getLogger(__name__)

Model = TypeVar("Model")


class ModelChangedError(Exception):
    """A model is not the one that an earlier run was told of by the same settings."""


class Opened(Generic[Model]):
    """A model: opened at the first question, described from an earlier run's record."""

    def __init__(
        self,
        open_model: Callable[[], Model],
        describe: Callable[[Model], dict[str, Any]],
        *,
        asked: Mapping[str, Any],
        record: Path,
    ) -> None:
        """Open nothing yet.

        Args:
            open_model: Loads it.
            describe: What tells it from other models; JSON-able.
            asked: The settings that say which model it is.
            record: File with what these settings came to.
        """
        self._open, self._describe = open_model, describe
        self._asked, self._record = json.loads(json.dumps(asked)), record
        self._model: Model | None = None
        self._description: dict[str, Any] | None = None

    @property
    def description(self) -> dict[str, Any]:
        """What tells the model from others; it is opened where no record says it."""
        if self._description is None:
            there = self._recorded()
            if there.get("asked") == self._asked:
                self._description = there["description"]
            else:
                self()
        assert self._description is not None
        return self._description

    def _recorded(self) -> dict[str, Any]:
        """What an earlier run wrote down; nothing where it did not, or the file is damaged."""
        try:
            there: dict[str, Any] = read_json(self._record)
        except (FileNotFoundError, ValueError):
            return {}
        return there

    def __call__(self) -> Model:
        """The model.

        Raises:
            ModelChangedError: its description was another one so far. From now on it is right.
        """
        if self._model is None:
            self._model = self._open()
            before = self._description
            self._description = json.loads(json.dumps(self._describe(self._model)))
            write_json(self._record, {"asked": self._asked, "description": self._description})
            if before not in (None, self._description):
                log.info("%s: another model than in the run so far", self._record.stem)
                raise ModelChangedError(self._record.stem)
        return self._model


def stamp(model: str | None) -> list[tuple[str, int, int]]:
    """Names, sizes and times of a local model's files: others, and it is looked at again.

    Empty for a model on the Hub.
    """
    path = Path(model or "")
    files = [path] if path.is_file() else sorted(path.rglob("*")) if model and path.is_dir() else []
    return [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for file in files
        if file.is_file()
    ]
