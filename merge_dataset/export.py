"""A run folder → the dataset folder: Parquet per source and class, provenance, card."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_dataset import card, provenance
from merge_dataset.layout import (
    CARD,
    PROVENANCE,
    configurations,
    leftovers,
    old_path,
    partial_path,
    sources,
)
from merge_dataset.schema import (
    CONFIG_SUFFIXES,
    SPLITS,
    WORD_CLASSES,
    arrow_schema,
    check_source,
)

_ROW_GROUP: Final = 100_000


def export(run: Path, out: Path) -> list[str]:
    """Write or replace one source of a dataset folder, and its card from all sources.

    Each file and each source's folder appears complete or not at all; an interrupted
    export is cleaned up by the next one. The same run gives the same bytes.

    Args:
        run: Folder with `manifest.json`, `seeds.parquet` and `variants.parquet`.
        out: The dataset folder; made when it does not exist.

    Returns:
        Names of the configurations of the run's source.

    Raises:
        FileNotFoundError: a file of the run is missing.
        FileExistsError: `out` holds something else than a dataset.
        ValueError: the run's files are not what they should be.
    """
    out = out.expanduser().resolve()
    manifest = _read_manifest(run)
    source = check_source(manifest["source"])
    tables = {split: _read_split(run, split, source) for split in SPLITS}
    _require_ours_or_empty(out)
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        _clean(out)
        target = out / source
        partial = partial_path(target)
        _write_source(partial, tables["seeds"], tables["variants"])
        _write_json(partial / PROVENANCE, provenance.describe(manifest))
        _swap(partial, target)
        _write_text(out / CARD, card.render(out))
    return configurations(out, source)


def _read_manifest(run: Path) -> dict[str, Any]:
    for name in ("manifest.json", *(f"{split}.parquet" for split in SPLITS)):
        if not (run / name).is_file():
            raise FileNotFoundError(
                f"{run / name}: expected a run folder with this file, found none; "
                f"run `merge-nli build` first"
            )
    return provenance.read(run / "manifest.json")


def _read_split(run: Path, split: str, source: str) -> pa.Table:
    path = run / f"{split}.parquet"
    table = pq.ParquetFile(path).read()
    if not table.schema.equals(arrow_schema()):
        raise ValueError(
            f"{path}: expected the columns\n{arrow_schema()}\ngot\n{table.schema.remove_metadata()}"
        )
    if not len(table):
        raise ValueError(f"{path}: expected at least one row, got none: nothing to export")
    if (found := sorted(set(table["source"].unique().to_pylist()))) != [source]:
        raise ValueError(f"{path}: expected the source {source!r} in every row, got {found}")
    if split == "variants":
        unknown = set(table["word_class"].unique().to_pylist()) - set(WORD_CLASSES)
        if unknown:
            raise ValueError(f"{path}: expected word classes of {WORD_CLASSES}, got {unknown}")
    return table


def _require_ours_or_empty(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out}: expected a folder or nothing, got a file")
    if not out.exists() or sources(out):
        return
    ours = {path.name for path in leftovers(out)}
    ours |= {CARD} if ours else set()
    if foreign := sorted({path.name for path in out.iterdir()} - ours):
        raise FileExistsError(
            f"{out}: expected a dataset folder, an empty one or none, got one that holds "
            f"{foreign[:5]}; name another folder"
        )


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold off other exports into `out`: two at once would miss each other in the card.

    The lock is on the folder itself, so nothing is left behind, whatever happens.
    Windows has no such lock; there, export one source after the other.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _clean(out: Path) -> None:
    """Undo an interrupted export: bring back what it had moved away, drop the rest."""
    for path in leftovers(out):
        target = out / path.name.removeprefix(".").removesuffix(path.suffix)
        if path.suffix == ".old" and not target.exists():
            path.rename(target)
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write_source(folder: Path, seeds: pa.Table, variants: pa.Table) -> None:
    folder.mkdir()
    _write_parquet(folder / "seeds.parquet", seeds)
    for word_class in WORD_CLASSES:
        of_class = variants.filter(pc.equal(variants["word_class"], word_class))
        if not len(of_class):
            continue
        eligible = pc.is_in(seeds["seed_id"], value_set=of_class["seed_id"].unique())
        class_folder = folder / CONFIG_SUFFIXES[word_class]
        class_folder.mkdir()
        _write_parquet(class_folder / "seeds.parquet", seeds.filter(eligible))
        _write_parquet(class_folder / "variants.parquet", of_class)


def _write_parquet(path: Path, table: pa.Table) -> None:
    # Chunks follow the input's row groups and would show in the bytes: combine them.
    # Without metadata, because of its `huggingface` key (see `arrow_schema`).
    table = table.replace_schema_metadata(None).combine_chunks()
    pq.write_table(table, path, compression="zstd", row_group_size=_ROW_GROUP)


def _swap(partial: Path, target: Path) -> None:
    old = old_path(target)
    if target.exists():
        target.rename(old)
    partial.rename(target)
    if old.exists():
        shutil.rmtree(old)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_text(path: Path, text: str) -> None:
    partial = partial_path(path)
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
