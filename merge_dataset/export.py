"""Export of a run folder to a dataset folder: Parquet files, provenance and card."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset import layout, provenance
from merge_dataset.card import render
from merge_dataset.checks.rules import rules_of, view_rows
from merge_dataset.engine import connect
from merge_dataset.files import (
    LOCK,
    atomic_folder,
    changed_files,
    digests,
    read_record,
    read_row_groups,
    read_schema,
    remove,
    target_of,
    working_in,
    write_record,
    write_split,
    write_text,
)
from merge_dataset.layout import CARD, FILES, PROVENANCE
from merge_dataset.schema import CONFIG_SUFFIXES, NLI, SPLITS, WORD_CLASSES, arrow_schema, format_of

log = logging.getLogger(__name__)


def export_dataset(run: str | Path, out: str | Path, *, overwrite: bool = False) -> list[str]:
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
    run, out = Path(run), Path(out).expanduser().resolve()
    manifest = _read_manifest(run)
    is_paraphrases = provenance.kind_of(manifest) == provenance.PARAPHRASES
    problem_format = NLI if is_paraphrases else format_of(read_schema(run / "seeds.parquet"))
    names = [f"{split}.parquet" for split in SPLITS]
    recorded = {k: v for k, v in manifest.get("files", {}).items() if Path(k).name in names}
    collection = provenance.collection_of(manifest)
    made = provenance.describe(manifest)
    _require_ours_or_empty(out)
    with working_in(out, wait=True):  # concurrent exports would miss each other in the card
        for path in layout.leftovers(out):  # left by an interrupted export, which is undone
            moved = target_of(path)
            if moved and path.suffix == ".old" and not moved.exists():
                path.rename(moved)
            else:
                remove(path)
        target = out / collection
        if not overwrite:
            _require_same(target, made)
        with atomic_folder(target) as partial:
            schema = arrow_schema(problem_format)
            for split in SPLITS if is_paraphrases else SPLITS[:1]:
                rows = read_row_groups(run / f"{split}.parquet")
                write_split(partial / f"{split}.parquet", rows, schema)
            if not is_paraphrases:
                _write_classes(partial, run, schema)
            if (changed := changed_files(run, recorded)) or _read_manifest(run) != manifest:
                raise ValueError(
                    f"{run}: expected {' and '.join(changed or names)} as manifest.json had it, "
                    "got other contents; build again"
                )
            paths = {path.relative_to(partial): path for path in partial.rglob("*.parquet")}
            written = digests({name.as_posix(): path for name, path in sorted(paths.items())})
            write_record(partial / PROVENANCE, {**made, FILES: written})
        write_text(out / CARD, render(out))
    if not is_paraphrases:
        with connect() as connection:
            for split in SPLITS:
                view_rows(connection, split, run, {"": [f"{split}.parquet"]})
            query = rules_of("", problem_format, {})["of_paraphrases"][-1]["query"]
            alike = [pair for _, *pair in connection.execute(query).fetchall()]
        if alike:
            log.warning(
                "%s: texts that stand in variants of several problems: %s, such as that of %s; "
                "`merge-nli check` and `register` will refuse the dataset: of problems that differ "
                "by one word, leave one out of the data",
                *(target, f"{len({first for first, _ in alike}):,}", " and ".join(alike[0])),
            )
    return layout.configurations(out, collection)


def require_target(
    out: Path, coming: Mapping[str, Any], run: str | Path, *, overwrite: bool = False
) -> None:
    """Check, before the work, that a collection with the coming manifest can be written."""
    out = out.expanduser().resolve()
    _require_ours_or_empty(out, Path(run).expanduser().resolve())
    if not overwrite:
        _require_same(out / provenance.collection_of({**coming}), coming)


def _read_manifest(run: Path) -> dict[str, Any]:
    needed, manifest = [run / "manifest.json"], {}
    if needed[0].is_file():
        read_record(needed[0])  # this verifies its digest
        manifest = provenance.read(needed[0])
        needed += [run / f"{split}.parquet" for split in SPLITS]
    if absent := next((path for path in needed if not path.is_file()), None):
        raise FileNotFoundError(
            f"{absent}: expected a run folder with this file, found none; "
            f"run `merge-nli build` or `merge-nli paraphrase` first"
        )
    return manifest


def _require_same(target: Path, made: Mapping[str, Any]) -> None:
    if not (target / PROVENANCE).is_file():
        return
    try:
        differing = provenance.differences(provenance.read(target / PROVENANCE), made)
    except ValueError as error:
        differing = [f"its description cannot be read: {error}"]
    if differing:
        raise FileExistsError(
            f"{target}: expected none or the same data, found data made otherwise: "
            f"{'; '.join(differing)}. Name another --out, or replace them with --overwrite"
        )


def _require_ours_or_empty(out: Path, run: Path | None = None) -> None:
    """Raise FileExistsError for a folder that holds others' files, or will hold the run."""
    # Listed once and first, as another export may be running there.
    present = {path.name for path in out.iterdir()} if out.exists() else set()
    if layout.collections(out):
        return
    ours = {name for name in present if name.startswith(LOCK)}
    ours |= {path.name for path in layout.leftovers(out)} if present else set()
    ours |= {CARD} if ours else set()
    coming = {run.name} if run and run.is_relative_to(out) else set()
    if foreign := sorted((present | coming) - ours):
        raise FileExistsError(
            f"{out}: expected a dataset folder, an empty one or none, got one that holds "
            f"{', '.join(foreign[:5])}; name another folder"
        )


def _write_classes(folder: Path, run: Path, schema: pa.Schema) -> None:
    def of_class(word_class: str) -> Iterator[pa.Table]:
        for table in read_row_groups(run / "variants.parquet"):
            yield table.filter(pc.equal(table["word_class"], word_class))

    classes = (
        table["word_class"].unique()
        for table in read_row_groups(run / "variants.parquet", ["word_class"])
    )
    present = pa.chunked_array(classes, pa.string()).unique().to_pylist()
    for word_class in (name for name in WORD_CLASSES if name in present):
        class_folder = folder / CONFIG_SUFFIXES[word_class]
        class_folder.mkdir()
        write_split(class_folder / "variants.parquet", of_class(word_class), schema)
        ids = (table["seed_id"].unique() for table in of_class(word_class))
        eligible = pa.chunked_array(ids, pa.string()).unique()
        seeds = read_row_groups(run / "seeds.parquet")
        of_seeds = (table.filter(pc.is_in(table["seed_id"], value_set=eligible)) for table in seeds)
        write_split(class_folder / "seeds.parquet", of_seeds, schema)
