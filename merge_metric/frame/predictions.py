"""A predictions file, with a model's answer to each problem: opened, read, written, described.

One row per problem, in Parquet (`.parquet`), as JSON lines (`.jsonl`, `.jsonl.gz`) or, to be
read only, CSV (`.csv`, `.tsv`) or a harness's log (see `logs`): `variant_id` (of a seed, its own
id), `seed_id`, `label` (both from the dataset, where it is given and the file lacks them) and
`prediction` (positions among the labels of the problems' format, or names; null, -1 or an empty
string for an answer that names no label; labels may be merged on reading) and, optionally,
`probabilities` (one per label, in that order), `text_digest` (see `frame.texts`),
`answer_text` and `repeats`. Of NLI the labels are `LABELS`.

The engine reads Parquet files as they lie, and tables of Arrow likewise. Files of text become a
temporary Parquet file first, by the readers of `merge_dataset`.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from weakref import finalize

import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset import data_files
from merge_dataset.engine import no_pattern, parquet
from merge_dataset.files import (
    atomic,
    naming_damage,
    open_parquet,
    read_row_groups,
    read_schema,
    write_tables,
)
from merge_dataset.layout import as_dataset, collections, format_in
from merge_dataset.schema import LABELS, parse_config_name
from merge_metric.frame.checks import (
    ANSWER_TEXT,
    ANSWERS,
    COLUMNS,
    FURTHER,
    IDS,
    LABELS_KEY,
    OF_DATASET,
    PROBABILITIES,
    REPEATS,
    REQUIRED,
    ROW,
    PredictionsFile,
    labels_of,
    require_columns,
    require_types,
    value_type,
)
from merge_metric.frame.logs import INSPECT, is_log, model_in, read_log
from merge_metric.frame.relations import DatasetRelations, Engine, unknown_ids
from merge_metric.frame.texts import TEXT_DIGEST
from merge_metric.seed_variant_accuracy.options import NO_LABEL, Merging

log = logging.getLogger(__name__)

MERGE_LABELS: Final = "merge_labels"
"""Key of the description of predictions whose labels are merged on reading."""

METADATA_KEY: Final = b"merge_nli"
"""Key in the Parquet metadata: JSON object that describes how a file was made."""

SUFFIXES: Final = (".parquet", ".jsonl.gz", ".jsonl")
"""Suffixes of files that can be written."""
CSV: Final = (".csv", ".tsv")
"""Suffixes of files that can only be read."""

_TYPES: Final = {
    **dict.fromkeys(IDS, (pa.string(),)),
    **dict.fromkeys(ANSWERS, (pa.int64(), pa.string())),
    TEXT_DIGEST: (pa.string(),),
    PROBABILITIES: (data_files.NUMBERS,),
    ANSWER_TEXT: (pa.string(),),
    REPEATS: (data_files.NUMBERS,),
}
"""Column → allowed types in JSON lines."""


def suffix_of(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> str:
    """Return the suffix of a file, by default one of predictions that can be written."""
    for suffix in suffixes:
        if path.name.endswith(suffix):
            return suffix
    raise ValueError(
        f"{path}: expected a name to end in {', '.join(suffixes)}, "
        f"got {'a folder' if path.is_dir() else repr(path.suffix) if path.suffix else 'no suffix'}"
    )


# --- Reading ---


def read_predictions(
    path: str | Path, dataset: str | Path | None = None, *, merge_labels: str | Sequence[str] = ()
) -> pa.Table:
    """Read and check a predictions file; arguments and errors as in `open_predictions`.

    Returns:
        `variant_id`, `seed_id` (string), `label`, `prediction` (int64) and, where given,
        `text_digest` (string) and `probabilities` (fixed-size list of float64), in row order.

    Raises:
        ValueError: also where an id comes twice.
    """
    path = Path(path)
    folder = None if dataset is None else as_dataset(dataset)
    file = open_predictions(path, folder, Merging.parse(merge_labels))
    table, lacking = file.table(), [name for name in OF_DATASET if name not in file.names]
    if folder is None or not lacking:
        return table
    problems = DatasetRelations.of(folder).problems(merging=file.merging)
    known = file.engine.fetch(
        "SELECT variant_id, arg_min(seed_id, file) AS seed_id, "
        f"arg_min(label, file)::BIGINT AS label FROM {problems} GROUP BY variant_id"
    ).combine_chunks()
    rows = pc.index_in(table["variant_id"], known["variant_id"])
    if rows.null_count:
        unknown = table["variant_id"].filter(pc.is_null(rows))
        raise unknown_ids(path, folder, len(unknown), len(table), unknown)
    for name in lacking:
        table = table.append_column(name, known[name].take(rows))
    return table.select([name for name in COLUMNS if name in table.column_names])


def open_predictions(
    path: Path,
    dataset: Path | None = None,
    merging: Merging | None = None,
    engine: Engine | None = None,
) -> PredictionsFile:
    """Open a predictions file in an engine.

    Labels are those of the dataset's problems; without a dataset, those in the file, or NLI's. They
    are merged as asked or else as the file's description says.
    """
    if path.is_dir():
        patterns = ("samples_*.jsonl", "*.eval")
        logs = [log for pattern in patterns for log in sorted(path.rglob(pattern))]
        listed = " ".join(map(str, logs[:3])) + " …" * (len(logs) > 3)
        advice = f"; give the logs of one model by name: {listed}"
        advice = advice if logs else f" without logs ({' or '.join(patterns)}); name a file"
        raise ValueError(f"{path}: expected a predictions file, got a folder{advice}")
    suffix_of(path, (*SUFFIXES, *CSV, *INSPECT))
    with ExitStack() as kept:
        stored = path
        if path.suffix != ".parquet":
            folder = kept.enter_context(TemporaryDirectory(prefix="merge-nli-"))
            stored = Path(folder, "columns.parquet")
            noted = None
            if of_harness := is_log(path):
                answers = read_log(path, dataset, merging or Merging())
                names = [name for name in _TYPES if name in answers.column_names]
                letters = answers["letter"].to_pylist() if "letter" in answers.column_names else []
                counts = Counter(f"letter_{letter}" for letter in sorted(letters) if letter)
                noted = described({"name": model_in(path), **counts})
                tables = iter([answers.select(names)])
            else:
                tables = data_files.read_batches(path, _TYPES)
            write_tables(stored, tables, noted)
        with naming_damage(path), open_parquet(stored) as opened:
            schema, rows = opened.schema_arrow, opened.metadata.num_rows
            labels = labels_of(schema) if LABELS_KEY in (schema.metadata or {}) else None
        given = schema.names
        if stored != path and not of_harness:
            given = data_files.column_names(path)
        source = f"(SELECT *, {ROW} FROM {parquet([stored])})"
        file = PredictionsFile(path, schema, rows, [], source, engine or Engine())
        finalize(file, kept.pop_all().close)  # a temporary file lives as long
    file.engine.files[stored] = path
    # The engine crashes where a row group does not describe a column.
    chunks = f"SELECT 1 FROM parquet_metadata({no_pattern(stored)}) WHERE path_in_schema = ''"
    if len(file.engine.fetch(chunks)):
        raise ValueError(f"{path}: expected a whole Parquet file, got a damaged one")
    folded = [name.casefold() for name in schema.names]  # as the engine takes them
    for name in (name for name in _TYPES if name in schema.names):
        if folded.count(name) > 1:
            raise ValueError(f"{path}: expected each column once, got {name} twice")
        if name in given if name in REQUIRED else file.has_values(name):
            file.names.append(name)
    require_columns(path, given, rows, () if dataset is None else OF_DATASET)
    file.description = description_in(schema, path)
    recorded = file.description.get(MERGE_LABELS)
    file.merging = merging or Merging.parse(recorded if isinstance(recorded, str) else ())
    _set_labels(file, dataset, labels)
    require_types(file)
    return file


def _set_labels(
    file: PredictionsFile, dataset: Path | None, recorded: tuple[str, ...] | None
) -> None:
    """Find the labels that the file is written with, and those of its problems, merged."""
    known = _labels(file, dataset, recorded)
    file.written = recorded or known
    if not file.merging:
        file.labels = file.written
        return
    file.merging.require(known)
    file.labels = file.merging.of(known)
    if other := {*file.merging.of(file.merging.known(file.written))} - {*file.labels}:
        raise ValueError(
            f"{file.path}: expected predictions out of the labels {', '.join(file.labels)}, after "
            f"merging ({file.merging}), got some of a model that also knows {', '.join(other)}"
        )


def _labels(
    file: PredictionsFile, dataset: Path | None, recorded: tuple[str, ...] | None
) -> tuple[str, ...]:
    formats: dict[str, set[tuple[str, ...]]] = {}
    if dataset is not None and dataset.is_dir():
        for name in collections(dataset):
            labels = format_in(dataset, name).labels
            formats.setdefault(parse_config_name(name)[0], set()).add(labels)
    known = set[tuple[str, ...]]().union(*formats.values())
    name = "seed_id" if "seed_id" in file.names else "variant_id"
    if len(known) > 1 and value_type(file.schema.field(name).type) == pa.string():
        source = f"split_part({name}::VARCHAR, ':', 1)"
        rows = file.engine.fetch(f"SELECT DISTINCT {source} AS source FROM {file.source}")
        known = set[tuple[str, ...]]().union(
            *(formats.get(source, ()) for source in rows["source"].to_pylist())
        )
    if len(known) > 1:
        sets = "; ".join(", ".join(labels) for labels in sorted(known))
        raise ValueError(
            f"{file.path}: expected predictions for problems with the same labels, got some "
            f"with different ones: {sets}; write a file for each"
        )
    if known:
        return next(iter(known))
    if recorded:
        return recorded
    if any(value_type(file.schema.field(name).type) != pa.string() for name in ANSWERS):
        return LABELS
    named = {name: {*file.texts_in(name)} - {"", str(NO_LABEL)} for name in ANSWERS}
    if file.path.suffix in CSV and any(
        all(text.strip().isdecimal() for text in texts) for texts in named.values()
    ):
        return LABELS
    gold, answers = ({text.strip().casefold() for text in named[name]} for name in ANSWERS)
    # Of two classes, such as entailment and not_entailment, one alone has a name of NLI's.
    is_two = len(gold) == 2 and len(gold.intersection(LABELS)) == 1
    if not is_two and (gold | answers).intersection(LABELS):
        return LABELS
    every = tuple(sorted({*named["label"], *named["prediction"]}))
    if len(every) < 2:
        raise ValueError(
            f"{file.path}: expected two or more labels, got {', '.join(every) or 'none'}; name the "
            "dataset, which knows them"
        )
    return every


# --- Writing ---


def write_predictions(path: str | Path, table: pa.Table) -> None:
    """Check predictions and write them, whole or not at all; the same bytes for the same table.

    Args:
        path: Parquet or JSON lines, by its suffix; replaced where it exists.
        table: At least the required columns; further ones are written as they are, and in
            Parquet the schema's metadata.

    Raises:
        ValueError: the suffix is unknown, or something is wrong with a row.
    """
    path, where, labels = Path(path), Path("predictions to write"), labels_of(table.schema)
    suffix_of(path)
    require_columns(where, table.column_names, len(table))
    names = [name for name in (*COLUMNS, *FURTHER) if name in table.column_names]
    file = PredictionsFile(where, table.schema, len(table), [], "given")
    numbered = table.select(names).append_column(ROW, pa.array(range(len(table))))
    file.engine.connection.register("given", numbered)
    file.names = [name for name in names if name in REQUIRED or file.has_values(name)]
    file.labels = file.written = labels
    require_types(file)
    checked = file.table()
    for name in table.column_names:
        if name not in COLUMNS:
            checked = checked.append_column(name, table[name])
    write_batches(path, iter([checked]), labels, table.schema.metadata or {})


def write_batches(
    path: Path, batches: Iterator[pa.Table], labels: Sequence[str], metadata: Mapping[bytes, bytes]
) -> None:
    """Write checked predictions, batch by batch; see `write_predictions`."""
    suffix = suffix_of(path)
    written = (_named(batch, labels) for batch in batches)
    if suffix != ".parquet":
        data_files.write_rows(path, written, compress=suffix == ".jsonl.gz")
        return
    with atomic(path) as temporary:
        write_tables(temporary, written, {**metadata, LABELS_KEY: json.dumps(labels).encode()})


def _named(predictions: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Replace codes by names of labels, except for NLI, whose numbers have a fixed meaning."""
    if tuple(labels) == LABELS:
        return predictions
    for name in ANSWERS:
        codes = predictions[name].combine_chunks()
        named = pa.array(labels).take(pc.if_else(pc.equal(codes, NO_LABEL), None, codes))
        place = predictions.column_names.index(name)
        predictions = predictions.set_column(place, name, named)
    return predictions


# --- Descriptions ---


def description_in(schema: pa.Schema, path: Path) -> dict[str, Any]:
    """Read the description of how a file was made; warn and return an empty one if malformed."""
    with suppress(ValueError):
        value = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
        if isinstance(value, dict):
            return value
    log.warning("%s: expected a JSON object in its metadata %r", path, METADATA_KEY.decode())
    return {}


def read_metadata(path: Path) -> dict[str, Any]:
    """Read a Parquet file's description of how it was made, or a log's; empty without it."""
    if path.suffix != ".parquet" or not path.is_file():
        return {"name": model_in(path)} if path.is_file() and is_log(path) else {}
    try:
        schema = read_schema(path)
    except ValueError:
        return {}  # reading the file itself raises the right error
    return description_in(schema, path)


def rewrite_metadata(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a Parquet file's description of how it was made."""
    noted = {**read_schema(path).metadata, **described(value)}
    with atomic(path) as temporary:
        write_tables(temporary, read_row_groups(path), noted)


def with_metadata(table: pa.Table, value: Mapping[str, Any]) -> pa.Table:
    """Set the description of how a table was made as its only metadata."""
    return table.replace_schema_metadata(described(value))


def described(value: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Write the description of how a file was made as metadata."""
    return {METADATA_KEY: json.dumps(value, ensure_ascii=False).encode()}


def model_name(path: Path) -> str:
    """Return a model's name: from the predictions file's metadata, else from the file name."""
    stem = path.name
    for suffix in (*SUFFIXES, *CSV, *INSPECT):
        stem = stem.removesuffix(suffix)
    metadata = read_metadata(path)
    name = str(metadata.get("short_name") or metadata.get("name") or "").rstrip("/\\")
    # If it is a folder on someone's machine, only the last part.
    return (Path(name).name if Path(name).is_absolute() else name) or stem
