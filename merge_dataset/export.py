"""A run folder → the dataset folder: Parquet per collection and class, provenance, card."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_dataset import provenance
from merge_dataset.alike import describe_alike
from merge_dataset.card import render as card
from merge_dataset.files import (
    SplitWriter,
    changed_files,
    digests,
    partial_path,
    read_record,
    read_row_groups,
    remove,
    replace_folder,
    target_of,
    write_record,
    write_text,
)
from merge_dataset.layout import (
    CARD,
    FILES,
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
from merge_dataset.seed_ranges import seed_ranges

log = logging.getLogger(__name__)

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
    parts = provenance.parts_of(run, manifest)
    first = parts[0] / "seeds.parquet"
    problem_format = NLI if is_paraphrases else format_of(pq.read_schema(first))
    for split in SPLITS:
        rows = [_check_split(part, split, source, _CLASSES[kind], problem_format) for part in parts]
        if not sum(rows):
            path = run / f"{split}.parquet"
            raise ValueError(f"{path}: expected at least one row, got none: nothing to export")
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
            write = _write_paraphrases if is_paraphrases else _write_replacements
            write(partial, parts, arrow_schema(problem_format))
            if _read_manifest(run) != manifest:
                raise ValueError(f"{run}: expected it to stay, but another build replaced it")
            paths = {path.relative_to(partial): path for path in partial.rglob("*.parquet")}
            files = digests({name.as_posix(): path for name, path in sorted(paths.items())})
            write_record(partial / PROVENANCE, {**made, FILES: files})
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        replace_folder(partial, target)
        write_text(out / CARD, card.render(out))
    if not is_paraphrases and (alike := describe_alike(parts, problem_format.fields)):
        log.warning("%s: %s", target, alike)
    return configurations(out, collection)


def require_target(
    out: Path, coming: Mapping[str, Any], run: str | Path, *, overwrite: bool = False
) -> None:
    """Check before the work that a collection can be written, by what is known of it then.

    Args:
        out: The dataset folder.
        coming: A part of a manifest: `source`, `config` and, of paraphrases, `kind`; perhaps
            models.
        run: The run folder to be, which a new dataset folder cannot hold.
        overwrite: As in `export_dataset`.

    Raises:
        FileExistsError: as in `export_dataset`.
        PermissionError: nothing can be written there.
    """
    out = out.expanduser().resolve()
    _require_ours_or_empty(out)
    if Path(run).expanduser().resolve().is_relative_to(out) and not collections(out):
        raise FileExistsError(
            f"{out}: expected a folder for the dataset alone, got the one that the run {run} is to "
            f"lie in; name another with --out"
        )
    there = next(path for path in (out, *out.parents) if path.exists())
    if not os.access(there, os.W_OK):
        raise PermissionError(f"{out}: expected a folder to write in; {there} is read-only")
    if not overwrite:
        _require_same(out / provenance.collection_of({**coming}), coming)


def _read_manifest(run: Path) -> dict[str, Any]:
    _require_file(run / "manifest.json")
    read_record(run / "manifest.json")
    manifest = provenance.read(run / "manifest.json")
    for part in provenance.parts_of(run, manifest):
        for split in SPLITS:
            _require_file(part / f"{split}.parquet")
    return manifest


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected a run folder with this file, found none; "
            f"run `merge-nli build` or `merge-nli paraphrase` first"
        )


def _require_unchanged(run: Path, manifest: Mapping[str, Any]) -> None:
    """Raise ValueError where the rows are not those that the build wrote."""
    names = [f"{split}.parquet" for split in SPLITS]
    recorded = {k: v for k, v in manifest.get("files", {}).items() if Path(k).name in names}
    if changed := changed_files(run, recorded):
        raise ValueError(
            f"{run}: expected {' and '.join(changed)} as manifest.json has it, got other contents; "
            "build again"
        )


def _check_split(
    run: Path, split: str, source: str, classes: tuple[str, ...], problem_format: ProblemFormat
) -> int:
    """Check the columns of a run's rows, their source and classes; count them."""
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
    if (found := sorted(sources)) not in ([source], []):
        raise ValueError(f"{path}: expected the source {source!r} in every row, got {found}")
    if split == "variants" and (unknown := _values(path, "word_class") - set(classes)):
        raise ValueError(f"{path}: expected word classes of {classes}, got {unknown}")
    return int(pq.read_metadata(path).num_rows)


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
    for path in [*target.glob("seeds*.parquet"), *target.rglob("variants*.parquet")]:
        with suppress(OSError, ValueError):  # damaged
            counts[path.stem.partition("-")[0]] += pq.read_metadata(path).num_rows
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


def _write_paraphrases(folder: Path, runs: Sequence[Path], schema: pa.Schema) -> None:
    folder.mkdir()
    for split in SPLITS:
        with SplitWriter(folder / f"{split}.parquet", schema) as writer:
            for run in runs:
                for table in read_row_groups(run / f"{split}.parquet"):
                    writer.write(table)


def _write_replacements(folder: Path, runs: Sequence[Path], schema: pa.Schema) -> None:
    """Write the seeds of a collection, and for each word class its seeds and their variants."""
    names = [f"{split}.parquet" for split in SPLITS]
    folder.mkdir()
    with ExitStack() as stack:

        def writers(folder: Path) -> list[SplitWriter]:
            return [stack.enter_context(SplitWriter(folder / name, schema)) for name in names]

        every = stack.enter_context(SplitWriter(folder / names[0], schema))
        of_classes: dict[str, list[SplitWriter]] = {}
        for some in (some for run in runs for some in seed_ranges(run, names)):
            seeds, variants = (some.read(name) for name in names)
            every.write(seeds)
            found = variants["word_class"].unique().to_pylist()
            for word_class in (name for name in WORD_CLASSES if name in found):
                if word_class not in of_classes:
                    class_folder = folder / CONFIG_SUFFIXES[word_class]
                    class_folder.mkdir()
                    of_classes[word_class] = writers(class_folder)
                of_class = variants.filter(pc.equal(variants["word_class"], word_class))
                eligible = pc.is_in(seeds["seed_id"], value_set=of_class["seed_id"].unique())
                write_seeds, write_variants = of_classes[word_class]
                write_seeds.write(seeds.filter(eligible))
                write_variants.write(of_class)
