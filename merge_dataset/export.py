"""A run folder → the dataset folder: Parquet per collection and class, provenance, card."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_dataset import provenance
from merge_dataset.card import render as card
from merge_dataset.files import (
    changed_files,
    digests,
    partial_path,
    read_record,
    read_row_groups,
    remove,
    replace_folder,
    target_of,
    write_record,
    write_row_groups,
    write_text,
)
from merge_dataset.layout import (
    CARD,
    PROVENANCE,
    collections,
    configurations,
    is_leftover,
    leftovers,
)
from merge_dataset.locks import LOCK, working_in
from merge_dataset.schema import (
    CONFIG_SUFFIXES,
    NLI,
    PARAPHRASE,
    SPLITS,
    WORD_CLASSES,
    ProblemFormat,
    arrow_schema,
    check_source,
    format_of,
)

_CLASSES: Final = {
    provenance.REPLACEMENTS: WORD_CLASSES,
    provenance.PARAPHRASES: (PARAPHRASE,),
}
"""Kind of run → classes of its variants."""


def export_dataset(run: Path, out: Path, *, overwrite: bool = False) -> list[str]:
    """Write or replace one collection of a dataset folder, and its card from all of them.

    A run of replacements becomes the collection `<source>`, one of paraphrases
    `<source>_paraphrases`; neither touches the other. Each file and each collection's
    folder appears complete or not at all; an interrupted export is cleaned up by the next
    one. The same run gives the same bytes.

    Args:
        run: Folder with `manifest.json`, `seeds.parquet` and `variants.parquet`.
        out: The dataset folder; made when it does not exist.
        overwrite: Also replace a collection made with other settings, of other problems or by
            other models.

    Returns:
        Names of the configurations of the run's collection.

    Raises:
        FileNotFoundError: a file of the run is missing.
        FileExistsError: `out` holds something else than a dataset, or a collection of this
            name that is made otherwise.
        ValueError: the run's files are not what they should be, or were changed since.
    """
    out = out.expanduser().resolve()
    manifest = _read_manifest(run)
    source = check_source(manifest["source"])
    kind = provenance.kind_of(manifest)
    is_paraphrases = kind == provenance.PARAPHRASES
    problem_format = NLI if is_paraphrases else format_of(pq.read_schema(run / "seeds.parquet"))
    for split in SPLITS:
        _check_split(run, split, source, _CLASSES[kind], problem_format)
    _require_unchanged(run, manifest)
    collection = provenance.collection_of(manifest)
    made = provenance.describe(manifest)
    _require_ours_or_empty(out)
    with working_in(out, wait=True):  # two exports at once would miss each other in the card
        _clean(out)
        target = out / collection
        if not overwrite:
            _require_same(target, made, variants=manifest.get("variants"))
        partial = partial_path(target)
        try:
            if is_paraphrases:
                _write_paraphrases(partial, run)
            else:
                _write_replacements(partial, run, arrow_schema(problem_format))
            if _read_manifest(run) != manifest:
                raise ValueError(f"{run}: expected it to stay, but another build replaced it")
            paths = {path.relative_to(partial): path for path in partial.rglob("*.parquet")}
            files = digests({name.as_posix(): path for name, path in sorted(paths.items())})
            write_record(partial / PROVENANCE, {**made, provenance.FILES: files})
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        replace_folder(partial, target)
        write_text(out / CARD, card.render(out))
    return configurations(out, collection)


def require_target(out: Path, coming: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Check before the work that a collection can be written, by what is known of it then.

    Args:
        out: The dataset folder.
        coming: A part of a manifest: `source`, `config` and, of paraphrases, `kind`; perhaps
            models.
        overwrite: As in `export_dataset`.

    Raises:
        FileExistsError: as in `export_dataset`.
        PermissionError: nothing can be written there.
    """
    out = out.expanduser().resolve()
    _require_ours_or_empty(out)
    there = next(path for path in (out, *out.parents) if path.exists())
    if not os.access(there, os.W_OK):
        raise PermissionError(f"{out}: expected a folder to write in; {there} is read-only")
    if not overwrite:
        _require_same(out / provenance.collection_of({**coming}), coming)


def _read_manifest(run: Path) -> dict[str, Any]:
    for name in ("manifest.json", *(f"{split}.parquet" for split in SPLITS)):
        if not (run / name).is_file():
            raise FileNotFoundError(
                f"{run / name}: expected a run folder with this file, found none; "
                f"run `merge-nli build` or `merge-nli paraphrase` first"
            )
    read_record(run / "manifest.json")
    return provenance.read(run / "manifest.json")


def _require_unchanged(run: Path, manifest: Mapping[str, Any]) -> None:
    """Raise ValueError where the rows are not those that the build wrote."""
    names = [f"{split}.parquet" for split in SPLITS]
    recorded = {k: v for k, v in manifest.get("files", {}).items() if k in names}
    if changed := changed_files(run, recorded):
        raise ValueError(
            f"{run}: expected {' and '.join(changed)} as manifest.json has it, got other contents; "
            "build again"
        )


def _check_split(
    run: Path, split: str, source: str, classes: tuple[str, ...], problem_format: ProblemFormat
) -> None:
    path = run / f"{split}.parquet"
    schema, expected = pq.read_schema(path), arrow_schema(problem_format)
    if not schema.equals(expected):
        raise ValueError(
            f"{path}: expected the columns\n{expected.remove_metadata()}\ngot\n"
            f"{schema.remove_metadata()}"
        )
    if (got := format_of(schema)) != problem_format:
        raise ValueError(
            f"{path}: expected the labels {problem_format.labels}, got {got.labels}; build again"
        )
    sources = _values(path, "source")
    if not sources:
        raise ValueError(f"{path}: expected at least one row, got none: nothing to export")
    if (found := sorted(sources)) != [source]:
        raise ValueError(f"{path}: expected the source {source!r} in every row, got {found}")
    if split == "variants" and (unknown := _values(path, "word_class") - set(classes)):
        raise ValueError(f"{path}: expected word classes of {classes}, got {unknown}")


def _require_same(target: Path, made: Mapping[str, Any], *, variants: int | None = None) -> None:
    """Raise FileExistsError where a collection is there that was made otherwise."""
    if not (target / PROVENANCE).is_file():
        return
    try:
        differing = provenance.differences(provenance.read(target / PROVENANCE), made)
    except ValueError as error:
        differing = [f"its description cannot be read: {error}"]
    if differing:
        coming = "" if variants is None else f" by {variants:,} variants"
        raise FileExistsError(
            f"{target}: expected none or the same data, found {_size(target)} made otherwise: "
            f"{'; '.join(differing)}. Name another --out, or replace them{coming} with --overwrite"
        )


def _size(target: Path) -> str:
    """Count the seeds and variants of a collection in words."""
    counts = {"seeds": 0, "variants": 0}
    for path in [target / "seeds.parquet", *target.rglob("variants.parquet")]:
        with suppress(OSError, ValueError):  # damaged
            counts[path.stem] += pq.read_metadata(path).num_rows
    return f"{counts['seeds']:,} seeds with {counts['variants']:,} variants"


def _values(path: Path, column: str) -> set[Any]:
    """The different values in a column."""
    tables = read_row_groups(path, [column])
    return {value for table in tables for value in table[column].unique().to_pylist()}


def _require_ours_or_empty(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out}: expected a folder or nothing, got a file")
    # Listed once, and first: another export may be at work there.
    there = list(out.iterdir()) if out.exists() else []
    if not there or collections(out):
        return
    ours = {path.name for path in there if is_leftover(path) or path.name.startswith(LOCK)}
    ours |= {CARD} if ours else set()
    if foreign := sorted({path.name for path in there} - ours):
        raise FileExistsError(
            f"{out}: expected a dataset folder, an empty one or none, got one that holds "
            f"{', '.join(foreign[:5])}; name another folder"
        )


def _clean(out: Path) -> None:
    """Undo an interrupted export: bring back what it had moved away, drop the rest."""
    for path in leftovers(out):
        target = target_of(path)
        if target and path.suffix == ".old" and not target.exists():
            path.rename(target)
        else:
            remove(path)


def _write_paraphrases(folder: Path, run: Path) -> None:
    folder.mkdir()
    for split in SPLITS:
        rows = read_row_groups(run / f"{split}.parquet")
        write_row_groups(folder / f"{split}.parquet", rows, arrow_schema())


def _write_replacements(folder: Path, run: Path, schema: pa.Schema) -> None:
    seeds, variants = run / "seeds.parquet", run / "variants.parquet"
    folder.mkdir()
    write_row_groups(folder / seeds.name, read_row_groups(seeds), schema)
    found = _values(variants, "word_class")
    for word_class in (name for name in WORD_CLASSES if name in found):
        class_folder = folder / CONFIG_SUFFIXES[word_class]
        class_folder.mkdir()
        of_class = (
            table.filter(pc.equal(table["word_class"], word_class))
            for table in read_row_groups(variants)
        )
        write_row_groups(class_folder / variants.name, of_class, schema)
        eligible = pa.array(sorted(_values(class_folder / variants.name, "seed_id")), pa.string())
        of_class = (
            table.filter(pc.is_in(table["seed_id"], value_set=eligible))
            for table in read_row_groups(seeds)
        )
        write_row_groups(class_folder / seeds.name, of_class, schema)
