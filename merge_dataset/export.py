"""A run folder → the dataset folder: Parquet per collection and class, provenance, card."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_dataset import provenance
from merge_dataset.card import render as card
from merge_dataset.files import (
    locked_folder,
    partial_path,
    read_row_groups,
    replace_folder,
    write_json,
    write_row_groups,
    write_text,
)
from merge_dataset.layout import CARD, PROVENANCE, collections, configurations, leftovers
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


def export_dataset(run: Path, out: Path, *, replace: bool = False) -> list[str]:
    """Write or replace one collection of a dataset folder, and its card from all of them.

    A run of replacements becomes the collection `<source>`, one of paraphrases
    `<source>_paraphrases`; neither touches the other. Each file and each collection's
    folder appears complete or not at all; an interrupted export is cleaned up by the next
    one. The same run gives the same bytes.

    Args:
        run: Folder with `manifest.json`, `seeds.parquet` and `variants.parquet`.
        out: The dataset folder; made when it does not exist.
        replace: Also replace paraphrases that another NLI model chose.

    Returns:
        Names of the configurations of the run's collection.

    Raises:
        FileNotFoundError: a file of the run is missing.
        FileExistsError: `out` holds something else than a dataset, or paraphrases of
            this source that another NLI model chose.
        ValueError: the run's files are not what they should be.
    """
    out = out.expanduser().resolve()
    manifest = _read_manifest(run)
    source = check_source(manifest["source"])
    kind = provenance.kind_of(manifest)
    is_paraphrases = kind == provenance.PARAPHRASES
    problem_format = NLI if is_paraphrases else format_of(pq.read_schema(run / "seeds.parquet"))
    for split in SPLITS:
        _check_split(run, split, source, _CLASSES[kind], problem_format)
    _require_ours_or_empty(out)
    out.mkdir(parents=True, exist_ok=True)
    collection = provenance.collection_of(manifest)
    made = provenance.describe(manifest)
    with locked_folder(out):  # two exports at once would miss each other in the card
        _clean(out)
        target = out / collection
        if is_paraphrases and not replace:
            _require_same_model(target, made)
        partial = partial_path(target)
        if is_paraphrases:
            _write_paraphrases(partial, run)
        else:
            _write_replacements(partial, run, arrow_schema(problem_format))
        write_json(partial / PROVENANCE, made)
        replace_folder(partial, target)
        write_text(out / CARD, card.render(out))
    return configurations(out, collection)


def _read_manifest(run: Path) -> dict[str, Any]:
    for name in ("manifest.json", *(f"{split}.parquet" for split in SPLITS)):
        if not (run / name).is_file():
            raise FileNotFoundError(
                f"{run / name}: expected a run folder with this file, found none; "
                f"run `merge-nli build` or `merge-nli paraphrase` first"
            )
    return provenance.read(run / "manifest.json")


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


def _require_same_model(target: Path, made: dict[str, Any]) -> None:
    """Paraphrases are chosen by an NLI model: those of another are other data."""
    if not (target / PROVENANCE).is_file():
        return
    there = provenance.read(target / PROVENANCE)["nli_model"]
    if any(there[key] != made["nli_model"][key] for key in ("name", "revision")):
        raise FileExistsError(
            f"{target}: expected paraphrases chosen by {_model(made['nli_model'])}, as those to "
            f"be written are, got some chosen by {_model(there)}; take another --out for these, "
            f"or replace the others by --replace"
        )


def _model(described: dict[str, Any]) -> str:
    revision = described["revision"]
    return f"{described['name']} (revision {revision})" if revision else str(described["name"])


def _values(path: Path, column: str) -> set[Any]:
    """The different values in a column."""
    tables = read_row_groups(path, [column])
    return {value for table in tables for value in table[column].unique().to_pylist()}


def _require_ours_or_empty(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out}: expected a folder or nothing, got a file")
    if not out.exists() or collections(out):
        return
    ours = {path.name for path in leftovers(out)}
    ours |= {CARD} if ours else set()
    if foreign := sorted({path.name for path in out.iterdir()} - ours):
        raise FileExistsError(
            f"{out}: expected a dataset folder, an empty one or none, got one that holds "
            f"{foreign[:5]}; name another folder"
        )


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
