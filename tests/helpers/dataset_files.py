"""Files of runs, datasets and predictions, from dictionaries; missing values are empty."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from merge_dataset.files import write_record
from merge_dataset.provenance import DRAW, EXPLAINED
from merge_dataset.schema import (
    NLI,
    PARAPHRASE,
    ProblemFormat,
    arrow_schema,
    config_files,
    config_name,
    variant_id,
)

Row = Mapping[str, Any]


def empty_row(problem_format: ProblemFormat = NLI) -> dict[str, Any]:
    """An empty row: lists without elements, nulls elsewhere."""
    return {
        field.name: [] if pa.types.is_list(field.type) else None
        for field in arrow_schema(problem_format)
    }


def seed_row(
    seed_id: str,
    texts: Iterable[str],
    label: int,
    votes: Sequence[int] = (),
    problem_format: ProblemFormat = NLI,
) -> dict[str, Any]:
    """A row of the split `seeds`, with every column; `votes` are the annotators' labels."""
    return empty_row(problem_format) | {
        "variant_id": seed_id,
        "seed_id": seed_id,
        "source": seed_id.partition(":")[0],
        **dict(zip(problem_format.fields, texts, strict=True)),
        "label": label,
        "annotator_labels": list(votes),
    }


def variant_row(
    seed: Row,
    word_class: str,
    word: str,
    replacement: str,
    validated: Mapping[str, Sequence[str]],
    **columns: Any,
) -> dict[str, Any]:
    """A row of `variants`: the word is replaced in the texts of `validated` (text → masked LMs)."""
    row = dict(seed) | {
        "variant_id": variant_id(seed["seed_id"], word_class, word, replacement),
        "word_class": word_class,
        "original": word,
        "replacement": replacement,
        "mlms": sorted({mlm for mlms in validated.values() for mlm in mlms}),
    }
    for field, mlms in validated.items():
        row[f"{field}_mlms"] = list(mlms)
        starts = [result.start() for result in re.finditer(rf"\b{word}\b", seed[field])]
        shift = len(replacement) - len(word)
        row[field] = re.sub(rf"\b{word}\b", replacement, seed[field])
        row[f"{field}_spans"] = [
            [start + shift * n, start + shift * n + len(replacement)]
            for n, start in enumerate(starts)
        ]
    return row | columns


def run_manifest(source: str, **changes: Any) -> dict[str, Any]:
    """A manifest with all keys that a dataset needs; `changes` adds or replaces keys."""
    return {
        "source": source,
        "config": {"recipe": "paper-v2", "masking": "single", "subsamples": 3},
        "mlms": [],
        "tagger": "en_core_web_sm 3.8.0",
        "packages": {},
        "fingerprint": "f00d",
        "problems": {"read": 20, "unlabelled": 0, "kept": 20},
        "source_data": {"description": "made up", "sha256": None},
        "funnel": [],
        "eligible": {"noun": 8, "verb": 4},
        "ablation": None,
        "draw": DRAW,
        EXPLAINED: {"settings": {}, "funnel": {}},
        **changes,
    }


def write_rows(path: Path, rows: Iterable[Row], problem_format: ProblemFormat = NLI) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    empty = empty_row(problem_format)
    table = [{**empty, **row} for row in rows]
    pq.write_table(pa.Table.from_pylist(table, schema=arrow_schema(problem_format)), path)
    return path


def write_plain(path: Path, rows: Sequence[Row]) -> Path:
    """Write rows with only their own columns, as Parquet or JSON lines, by the suffix."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([*rows]), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of one Parquet file, without columns from the names of folders above it."""
    return list(pq.ParquetFile(path).read().to_pylist())


def files_of(folder: Path, *left_out: str) -> dict[str, bytes]:
    """Files of a folder, except those whose names match one of the patterns."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(re.fullmatch(pattern, path.name) for pattern in left_out)
    }


def write_run(
    folder: Path,
    seeds: Iterable[Row],
    variants: Iterable[Row],
    manifest: Row,
    problem_format: ProblemFormat = NLI,
) -> Path:
    """Write a run folder with the files that an export reads, rows in the given order."""
    write_rows(folder / "seeds.parquet", seeds, problem_format)
    write_rows(folder / "variants.parquet", variants, problem_format)
    write_record(folder / "manifest.json", manifest)
    return folder


def write_source(
    folder: Path,
    seeds: Sequence[Row],
    variants: Sequence[Row],
    *,
    provenance: Row | None = None,
    paraphrase_provenance: Row | None = None,
) -> Path:
    """Write a source's configurations into a dataset folder, with the seeds of each kind."""
    source = seeds[0]["seed_id"].partition(":")[0]
    classes: dict[str, set[str]] = {row["seed_id"]: set() for row in seeds}
    by_class: dict[str, list[Row]] = {}
    for row in variants:
        classes[row["seed_id"]].add(row["word_class"])
        if row["word_class"] is not None:  # a test writes rows without a class itself
            by_class.setdefault(row["word_class"], []).append(row)
    if whole := [row for row in seeds if classes[row["seed_id"]] != {PARAPHRASE}]:
        path = write_rows(folder / source / "seeds.parquet", whole)
        write_record(path.with_name("provenance.json"), {"files": {}, **(provenance or {})})
    for word_class, rows in by_class.items():
        files = config_files(config_name(source, word_class))
        eligible = [row for row in seeds if word_class in classes[row["seed_id"]]]
        path = write_rows(folder / files["seeds"][0], eligible)
        write_rows(folder / files["variants"][0], rows)
        if word_class == PARAPHRASE:
            made = {"files": {}, **(paraphrase_provenance or {})}
            write_record(path.with_name("provenance.json"), made)
    return folder


def write_problems(folder: Path, rows: Sequence[Row]) -> Path:
    """Write problems of any sources into a dataset folder; seeds have no word class."""
    for source in {row["seed_id"].partition(":")[0] for row in rows}:
        mine = [row for row in rows if row["seed_id"].startswith(f"{source}:")]
        seeds = [row for row in mine if row.get("word_class") is None]
        write_source(folder, seeds, [row for row in mine if row.get("word_class") is not None])
    return folder


def write_predictions(path: Path, rows: Iterable[Row], description: Row | None = None) -> Path:
    """Write a predictions file, each problem once, with the model's description if given."""
    distinct = {row["variant_id"]: dict(row) for row in rows}
    table = pa.Table.from_pylist(list(distinct.values()))
    if description is not None:
        table = table.replace_schema_metadata({b"merge_nli": json.dumps(description).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path
