"""Files written whole or not at all, digests, and the layout of a run folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps what."""

    path: Path

    @property
    def config(self) -> Path:
        """The settings the run was made with."""
        return self.path / "config.toml"

    @property
    def manifest(self) -> Path:
        """What was made from what, with counts and file digests; written last."""
        return self.path / "manifest.json"

    @property
    def suggested(self) -> Path:
        """What `suggest` leaves for `build`: problems read, models, their stores."""
        return self.path / "suggested.json"

    @property
    def store(self) -> Path:
        """The suggestion store, unless the settings put it elsewhere."""
        return self.path / "suggestions"

    @property
    def problems(self) -> Path:
        """All labelled problems of the source, by `seed_id`."""
        return self.path / "problems.parquet"

    @property
    def questions(self) -> Path:
        """What the masked LMs are asked, in shards."""
        return self.path / "questions"

    @property
    def stores(self) -> Path:
        """Which store each masked LM's answers are in, a file for each."""
        return self.path / "stores"

    @property
    def replacements(self) -> Path:
        """R_M(⟨p, h⟩, o) in full, before sampling."""
        return self.path / "replacements.parquet"

    @property
    def exclusions(self) -> Path:
        """Problems and words without variants, and why."""
        return self.path / "exclusions.parquet"

    @property
    def seeds(self) -> Path:
        """The eligible problems, as in the dataset."""
        return self.path / "seeds.parquet"

    @property
    def variants(self) -> Path:
        """The sampled variants, as in the dataset."""
        return self.path / "variants.parquet"

    @property
    def signals(self) -> Path:
        """What `merge-nli signals` found out about the replacements of a build."""
        return self.path / "signals.parquet"

    @property
    def signals_made(self) -> Path:
        """By which model; written last."""
        return self.path / "signals.json"

    @property
    def likelihoods(self) -> Path:
        """Pseudo-log-likelihoods of texts, unless the settings put them elsewhere."""
        return self.path / "likelihoods"

    def require_build(self) -> None:
        """Raise FileNotFoundError unless a build was finished here."""
        if not self.manifest.is_file():
            raise FileNotFoundError(
                f"{self.path}: expected a run folder with a finished build, found none; run: "
                "merge-nli build"
            )

    def named(self, name: str) -> RunFolder:
        """The folder of another build over this run's suggestions, such as an ablation.

        Raises:
            ValueError: it would lie elsewhere, or where a run keeps something else.
        """
        folder = RunFolder(self.path / name)
        kept = (self.store, self.questions, self.stores, self.likelihoods)
        taken = {path.name for path in kept} | {"tasks"}
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or name in taken:
            raise ValueError(
                f"expected a name for the build of letters, digits, - and _, none of "
                f"{sorted(taken)}, got {name!r}"
            )
        return folder


@contextmanager
def atomic(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """A temporary file beside `path` to fill, which takes its place unless there is an error.

    Args:
        path: Where the file will be.
        shared: Whether other processes may be writing it too. If not, the temporary name
            is always the same, so that what a killed run leaves is overwritten.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp" if shared else f".{path.name}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, write: Callable[[Path], object], *, shared: bool = False) -> None:
    """Let `write` fill a file, whole or not at all."""
    with atomic(path, shared=shared) as temporary:
        write(temporary)


def write_text(path: Path, text: str, *, shared: bool = False) -> None:
    """Write a text file, whole or not at all."""
    write_atomic(path, lambda temp: temp.write_text(text, encoding="utf-8"), shared=shared)


def write_json(path: Path, value: Any, *, shared: bool = False) -> None:
    """Write indented JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", shared=shared)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        ValueError: the file is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: expected JSON, got an error: {error}") from error


def write_table(path: Path, table: pa.Table) -> None:
    """Write Parquet, whole or not at all, the same bytes for the same table."""
    import pyarrow.parquet as pq

    write_atomic(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON-able value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(paths: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of several files by name."""
    return {name: digest_of_file(path) for name, path in paths.items()}


def slug(text: str) -> str:
    """`text` as a file name: letters, digits, dots and hyphens.

    >>> slug("google-bert/bert-base-cased")
    'google-bert--bert-base-cased'
    """
    return re.sub(r"[^A-Za-z0-9.-]", "-", text.replace("/", "--"))
