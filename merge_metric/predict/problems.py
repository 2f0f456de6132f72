"""The table of problems that a model is asked about, read from a dataset."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, Final
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.engine import connect
from merge_dataset.files import ROWS, draw_rank, naming, read_row_groups, read_schema
from merge_dataset.layout import (
    all_configurations,
    as_dataset,
    check_configurations,
    format_in,
    require_dataset,
    split_files,
)
from merge_dataset.schema import (
    NLI,
    PARAPHRASE,
    SPLITS,
    ProblemFormat,
    collection_name,
    format_of,
    parse_config_name,
)
from merge_metric.frame.predictions import MERGE_LABELS, METADATA_KEY, with_metadata
from merge_metric.frame.relations import DRAWS, draw_digests
from merge_metric.frame.texts import digest_in_sql, drawn_seeds, rows_of
from merge_metric.models.pair_model import Pair
from merge_metric.seed_variant_accuracy.options import Merging

_PAIRS: Final = 65_536

SHOTS: Final = "shots"
"""Key in the description of problems: source → seeds held out as examples."""

FORMAT: Final = "format"
"""Key in the description of problems other than NLI: their fields and labels."""


def problem_schema(problem_format: ProblemFormat = NLI) -> pa.Schema:
    """Return the columns of problems: labels are positions; a seed's ids are both its own."""
    texts = [(field, pa.string()) for field in problem_format.fields]
    ids = [("variant_id", pa.string()), ("seed_id", pa.string())]
    return pa.schema([*ids, *texts, ("label", pa.int64())])


# --- Reading ---


def read_problems(
    dataset: str,
    configs: Sequence[str] = (),
    *,
    revision: str | None = None,
    with_shots: bool = False,
    limit_seeds: int | None = None,
    rng_seed: int = 0,
    merge_labels: str | Sequence[str] = (),
) -> pa.Table:
    """Read the seeds and variants of some configurations of a dataset, each once.

    Args:
        dataset: A dataset folder, its registered name, or owner/name on the Hub; or the Parquet
            file of a run's problems, all of which count as seeds then.
        configs: Names of configurations; by default, of each source, that of all word
            classes and that of the paraphrases.
        revision: Of a dataset on the Hub.
        with_shots: Hold out seeds that are shown as examples; see `hold_out`.
        limit_seeds: Number of seeds of each source; see `sample_seeds`.
        rng_seed: Of the draws of seeds.
        merge_labels: Labels that count as one in answers, noted in the description.

    Returns:
        The columns of `problem_schema`, configuration by configuration, seeds before variants. The
        table lies on disk: see `on_disk`.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such dataset.
        ValueError: it is no MERGE-NLI dataset, or lacks a configuration, or the problems are
            of several formats.
    """
    path = as_dataset(dataset)
    read = _read_run if path.suffix == ".parquet" else _read_dataset
    problems = read(path, dataset, configs, revision)
    if with_shots:
        problems = hold_out(problems, rng_seed=rng_seed)
    if limit_seeds is not None:
        problems = sample_seeds(problems, limit_seeds, rng_seed=rng_seed)
    if merging := Merging.parse(merge_labels):
        merging.require(format_of_problems(problems).labels)
        problems = _described(problems, {MERGE_LABELS: str(merging)})
    return problems


def _read_dataset(
    path: Path, dataset: str, configs: Sequence[str], revision: str | None
) -> pa.Table:
    folder = dataset_folder(path, configs, revision)
    known = all_configurations(folder)
    whole = [config for config in known if parse_config_name(config)[1] in (None, PARAPHRASE)]
    chosen = check_configurations(folder, configs) or whole
    formats: dict[ProblemFormat, list[str]] = {}
    for config in chosen:
        formats.setdefault(format_in(folder, config), []).append(config)
    if len(formats) > 1:
        parts = (f"{', '.join(names)} with the {its.described}" for its, names in formats.items())
        raise ValueError(
            f"{dataset}: expected problems of one format, got {'; '.join(parts)}; name "
            f"configurations of one with `config`"
        )
    (its,) = formats
    files = [split_files(folder, config) for config in chosen]
    paths = (folder / name for of_config in files for split in SPLITS for name in of_config[split])
    names = problem_schema(its).names
    tables = (table for path in paths for table in read_row_groups(path, names))
    shown = folder.resolve().name if folder == path else dataset
    description = {"dataset": shown, "revision": revision, "configs": chosen}
    problems = _distinct(tables, dataset, description, its)
    drawn = (name for of_config in files for name in of_config["variants"])
    return _described(problems, {DRAWS: draw_digests(folder, drawn)})


def dataset_folder(path: Path, configs: Sequence[str] = (), revision: str | None = None) -> Path:
    """Return a dataset folder, or fetch what is needed of a dataset of the Hub."""
    name = str(path)
    if path.is_dir() or name.count("/") != 1:
        require_dataset(path)
        return path
    from huggingface_hub import snapshot_download

    wanted = [f"{collection_name(*parse_config_name(config))}/*" for config in configs]
    try:
        fetched = snapshot_download(
            name, repo_type="dataset", revision=revision, allow_patterns=wanted or None
        )
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{name}: expected a dataset folder or a data set on the Hub, got an error: "
            f"{str(error).splitlines()[0]}"
        ) from error
    require_dataset(Path(fetched))
    return Path(fetched)


def _read_run(path: Path, dataset: str, configs: Sequence[str], revision: str | None) -> pa.Table:
    """Read the file of a run's problems."""
    if configs:
        raise ValueError(f"{path}: expected no configurations for a file of problems")
    stored = read_schema(path)
    its, sources = format_of(stored), dict[str, None]()
    names = {*problem_schema(its).names, "source"}.intersection(stored.names)

    def tables() -> Iterator[pa.Table]:
        for table in read_row_groups(path, sorted(names)):
            columns = dict(zip(table.column_names, table.columns, strict=True))
            if pa.types.is_string(table.schema.field("label").type):
                columns["label"] = pc.index_in(table["label"], value_set=pa.array(its.labels))
            sources.update(dict.fromkeys(columns.get("source", pa.array([])).to_pylist()))
            yield pa.table({"variant_id": columns["seed_id"], **columns})

    about = {"dataset": path.name, "revision": None, "configs": list[str](), "all_problems": True}
    problems = _distinct(tables(), str(path), about, its)
    return _described(problems, {"configs": [*sources]})


def _distinct(
    tables: Iterable[pa.Table], dataset: str, description: dict[str, Any], its: ProblemFormat
) -> pa.Table:
    """Check problems, and keep each once, as seeds are in the files of all classes."""
    schema = problem_schema(its)

    def cast() -> Iterator[pa.Table]:
        try:
            for table in tables:
                yield table.select(schema.names).cast(schema)
        except (pa.ArrowException, KeyError) as error:
            raise ValueError(
                f"{dataset}: expected the columns {', '.join(schema.names)}, got an error: {error}"
            ) from error

    if its != NLI:
        description = description | {FORMAT: its.as_record()}
    problems = with_metadata(on_disk(cast(), schema), description)
    codes = pa.array(range(len(its.labels)), pa.int64())
    wrong = {name: problems[name].null_count for name in schema.names}
    wrong["label"] = pc.sum(pc.invert(pc.is_in(problems["label"], codes))).as_py()
    if lacking := [f"{count:,} rows without {name}" for name, count in wrong.items() if count]:
        raise ValueError(
            f"{dataset}: expected ids, texts and a label out of {', '.join(its.labels)} in every "
            f"row, got {', '.join(lacking)}"
        )
    first = _first_rows(*_digests(problems, ["variant_id"]))
    if (kept := first == np.arange(len(first))).all():
        return problems
    (texts,), gold = _digests(problems, schema.names[:-1]), problems["label"].to_numpy()
    if len(odd := np.flatnonzero((texts != texts[first]) | (gold != gold[first]))):
        raise ValueError(
            f"{dataset}: expected one problem per variant_id, got two for "
            f"{problems['variant_id'][odd[0]].as_py()!r}; `merge-nli check` says more"
        )
    return _only(problems, pa.chunked_array([kept]))


# --- Descriptions ---


def description_of(problems: pa.Table) -> dict[str, Any]:
    """Return the description of the problems' origin from their metadata."""
    return dict(json.loads((problems.schema.metadata or {}).get(METADATA_KEY, b"{}")))


def _described(problems: pa.Table, more: Mapping[str, Any]) -> pa.Table:
    return with_metadata(problems, {**description_of(problems), **more})


def sources_of(problems: pa.Table) -> list[str]:
    """List the sources of problems, sorted; none if they are unknown."""
    configs = description_of(problems).get("configs", [])
    return sorted({parse_config_name(config)[0] for config in configs})


def format_of_problems(problems: pa.Table) -> ProblemFormat:
    """Return the format of problems that `read_problems` recorded."""
    recorded = description_of(problems).get(FORMAT)
    if recorded is None:
        return NLI
    return ProblemFormat(tuple(recorded["fields"]), tuple(recorded["labels"]))


def asked_format(problems: pa.Table) -> ProblemFormat:
    """Return the format of problems with the labels that a model gives, before any are merged."""
    own = format_of_problems(problems)
    merging = Merging.parse(description_of(problems).get(MERGE_LABELS, ()))
    return ProblemFormat(own.fields, merging.given(own.labels))


# --- Some of the problems ---


def seeds_of(problems: pa.Table) -> pa.Table:
    """Return the problems that are seeds."""
    return _only(problems, pc.equal(problems["variant_id"], problems["seed_id"]))


def part_of_source(problems: pa.Table, source: str) -> pa.Table:
    """Return the problems of one source; ids begin with its name."""
    description = description_of(problems)
    configs = [name for name in description["configs"] if parse_config_name(name)[0] == source]
    shots = {SHOTS: {source: description[SHOTS][source]}} if SHOTS in description else {}
    kept = pc.starts_with(problems["seed_id"], f"{source}:")
    return _described(_only(problems, kept), {"configs": configs, **shots})


def sample_seeds(problems: pa.Table, count: int, *, rng_seed: int = 0) -> pa.Table:
    """Draw seeds of each source at random, and return them with all their variants.

    Args:
        problems: From `read_problems`.
        count: Most seeds of each source; see `drawn_seeds`.
        rng_seed: Seed of the draw.
    """
    chosen = drawn_seeds(problems["seed_id"].unique().to_pylist(), count, rng_seed=rng_seed)
    forget_read()
    kept = pc.is_in(problems["seed_id"], value_set=pa.array(chosen, pa.string()))
    return _described(_only(problems, kept), {"limit_seeds": count, "rng_seed": rng_seed})


def hold_out(problems: pa.Table, *, rng_seed: int = 0) -> pa.Table:
    """Remove six seeds of each source, or one of each label, to show them as examples (`SHOTS`).

    They are the last that `sample_seeds` would draw of seeds whose texts no other problem has.
    """
    fields, labels = astuple(format_of_problems(problems))[:2]
    wanted = max(1, 6 // len(labels))
    place = _first_rows(*_digests(problems, fields))
    is_seed = pc.equal(problems["variant_id"], problems["seed_id"]).to_numpy()
    rows = np.flatnonzero(is_seed & (np.bincount(place)[place] == 1))
    seeds = problems.take(pa.array(rows)).to_pylist()
    seeds.sort(key=lambda seed: draw_rank(rng_seed, seed["seed_id"]))
    shots: dict[str, list[dict[str, Any]]] = {}
    for source in sources_of(problems):
        own = [seed for seed in seeds if seed["seed_id"].startswith(f"{source}:")]
        of_labels = [[seed for seed in own if seed["label"] == n] for n in range(len(labels))]
        if min(map(len, of_labels)) < wanted or len(own) <= wanted * len(labels):
            raise ValueError(
                f"shots: expected with seeds at least {wanted} of each label to show, with texts "
                f"of their own, and others to ask about, got {len(own)} seeds of {source}, "
                f"{min(map(len, of_labels))} of the rarest label: take none, or a file"
            )
        chosen = [seed for of_label in of_labels for seed in of_label[-wanted:]]
        shots[source] = [
            {name: seed[name] for name in ("seed_id", *fields)} | {"label": labels[seed["label"]]}
            for seed in sorted(chosen, key=own.index)
        ]
    held = [shot["seed_id"] for of_source in shots.values() for shot in of_source]
    kept = pc.invert(pc.is_in(problems["seed_id"], value_set=pa.array(held, pa.string())))
    return _described(_only(problems, kept), {SHOTS: shots})


def _only(problems: pa.Table, kept: pa.ChunkedArray) -> pa.Table:
    starts = range(0, len(problems), ROWS)
    parts = (problems.slice(n, ROWS).filter(kept.slice(n, ROWS)) for n in starts)
    return on_disk(parts, problems.schema)


# --- Many problems ---


class Pairs(Sequence[Pair]):
    """Problems as pairs, or with `fields` all their texts; few are Python objects at a time."""

    def __init__(
        self, problems: pa.Table, rows: NDArray[np.int64] | None = None, *, fields: bool = False
    ) -> None:
        """Choose problems by the numbers of their rows, in the given order; by default all."""
        self._names, self._fields = format_of_problems(problems).fields, fields
        self._texts = problems.select([*self._names])
        self._rows = np.arange(len(problems)) if rows is None else rows

    def at(self, places: Sequence[int] | NDArray[np.int64]) -> Pairs:
        """Take the problems at some places."""
        some = copy(self)
        some._rows = self._rows[np.asarray(places, np.int64)]
        return some

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return list(self.at(range(len(self))[place]))
        return next(iter(self.at([place])))

    def __iter__(self) -> Iterator[Pair]:
        # Taken from slices: `take` on a column with many chunks would copy the whole column.
        for rows in np.split(self._rows, np.flatnonzero(np.diff(self._rows // _PAIRS)) + 1):
            if len(rows):
                first = rows.min()
                part = self._texts.slice(first, rows.max() - first + 1)
                for texts in rows_of(part.take(pa.array(rows - first)), self._names):
                    yield texts if self._fields else (texts[0], " ".join(texts[1:]))
                forget_read()


def _digests(problems: pa.Table, *columns: Sequence[str]) -> list[NDArray[np.uint64]]:
    """Digest some columns of each problem, as `text_digests` does, for each list of their names."""
    shown = ", ".join(f"{digest_in_sql(names)} AS digest{n}" for n, names in enumerate(columns))
    blocks = []
    with connect() as connection:
        for start in range(0, max(len(problems), 1), ROWS):
            block = problems.slice(start, ROWS)
            connection.register("block", block.append_column("row", pa.array(range(len(block)))))
            blocks.append(connection.sql(f'SELECT {shown} FROM block ORDER BY "row"').fetchnumpy())
            forget_read()
    return [np.concatenate([block[name] for block in blocks]) for name in blocks[0]]


def _first_rows(digests: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Find for each row the first one with the same digest."""
    _, first, same = np.unique(digests, return_index=True, return_inverse=True)
    return first[same]


def distinct_pairs(
    problems: pa.Table, *, fields: bool = False
) -> tuple[Pairs, NDArray[np.int64], NDArray[np.uint64]]:
    """Return the distinct pairs in order of appearance, and of each row its place among them.

    Third are digests of the rows' ids and texts; see `text_digests`.
    """
    names = format_of_problems(problems).fields
    texts, whole = _digests(problems, names, ("variant_id", *names))
    first = _first_rows(texts)
    rows = np.flatnonzero(first == np.arange(len(first)))
    return Pairs(problems, rows, fields=fields), np.searchsorted(rows, first), whole


def fingerprint_of(
    description: Mapping[str, Any], problems: pa.Table, digests: NDArray[np.uint64]
) -> str:
    """Digest everything that determines a predictions file."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name in ("variant_id", "seed_id", "label"):
        # The JSON of the whole list, with few values as Python objects at a time.
        for start in range(0, len(problems), ROWS):
            values = json.dumps(problems[name].slice(start, ROWS).to_pylist())[1:-1]
            digest.update(f"{', ' if start else '['}{values}".encode())
            forget_read()
        digest.update(b"]")
    digest.update(digests.astype("<u8", copy=False).data)
    return digest.hexdigest()


# --- Tables on disk ---

_MAPPED: Final[WeakSet[mmap.mmap]] = WeakSet()


def on_disk(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Write tables to an unnamed temporary file that lives as long as the returned table."""
    with naming(Path(gettempdir())), TemporaryFile() as file:
        write_stream(file, tables, schema)
        return mapped(file)


def write_stream(file: IO[bytes], tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write tables to a file for `mapped`."""
    with pa.ipc.new_stream(file, schema) as writer:
        for table in tables:
            writer.write_table(table)
            forget_read()
    file.flush()


def mapped(file: IO[bytes]) -> pa.Table:
    """Open the tables in a file, which are read where they are needed."""
    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _MAPPED.add(content)
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()


def forget_read() -> None:
    """Release pages of tables on disk that were read, which count as the process's memory."""
    if hasattr(mmap, "MADV_DONTNEED"):  # not available on Windows
        for mapped in _MAPPED:
            mapped.madvise(mmap.MADV_DONTNEED)
