"""The table of problems that a model is asked about, read from a dataset."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import astuple
from functools import partial
from heapq import nsmallest
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any, Final
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.engine import connect
from merge_dataset.files import ROWS, draw_rank, naming, read_row_groups, read_schema
from merge_dataset.layout import (
    PROVENANCE,
    all_configurations,
    as_dataset,
    format_in,
    require_configurations,
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
from merge_metric.frame.texts import digest_in_sql, rows_of
from merge_metric.models.pair_model import Pair
from merge_metric.seed_variant_accuracy.options import Merging

_PAIRS: Final = 65_536

SHOTS: Final = "shots"
"""Key in the description of problems: source → seeds held out as examples."""
_SHOTS: Final = 6
"""Number of examples per source, as in the paper; with more labels, one of each."""

_FORMAT: Final = "format"
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
        BlockingIOError: its files were replaced meanwhile.
        FileNotFoundError, NotADirectoryError: there is no such dataset.
        ValueError: it is no MERGE-NLI dataset, or lacks a configuration, or the problems are
            of several formats.
    """
    path = as_dataset("dataset", dataset)
    read = _read_run if path.suffix == ".parquet" else _read_dataset
    problems = read(path, dataset, configs, revision)
    if with_shots:
        problems = hold_out(problems, rng_seed=rng_seed)
    if limit_seeds is not None:
        problems = sample_seeds(problems, limit_seeds, rng_seed=rng_seed)
    if merging := Merging.parse(merge_labels):
        merging.require(format_of_problems(problems).labels)
        description = description_of(problems) | {MERGE_LABELS: str(merging)}
        problems = with_metadata(problems, description)
    return problems


def _read_dataset(
    path: Path, dataset: str, configs: Sequence[str], revision: str | None
) -> pa.Table:
    folder = dataset_folder(path, configs, revision)
    known = all_configurations(folder)
    require_configurations(dataset, known, configs)
    whole = [config for config in known if parse_config_name(config)[1] in (None, PARAPHRASE)]
    chosen = list(dict.fromkeys(configs)) or whole
    formats: dict[ProblemFormat, list[str]] = {}
    for config in chosen:
        formats.setdefault(format_in(folder, config), []).append(config)
    if len(formats) > 1:
        parts = (f"{', '.join(names)} with the {its.described}" for its, names in formats.items())
        raise ValueError(
            f"{dataset}: expected problems of one format, got {'; '.join(parts)}; name "
            f"configurations of one with `config`"
        )
    files = [split_files(folder, config) for config in chosen]
    paths = [folder / name for of_config in files for split in SPLITS for name in of_config[split]]
    states = [(it.st_ino, it.st_size, it.st_mtime_ns) for it in map(Path.stat, paths)]
    (problem_format,) = formats
    names = problem_schema(problem_format).names
    tables = (table for path in paths for table in read_row_groups(path, names))
    shown = folder.resolve().name if folder == path else dataset
    description = {"dataset": shown, "revision": revision, "configs": chosen}
    problems = _distinct(tables, dataset, description, problem_format)
    drawn = (name for of_config in files for name in of_config["variants"])
    description = description_of(problems) | {DRAWS: draw_digests(folder, drawn)}
    if states != [(it.st_ino, it.st_size, it.st_mtime_ns) for it in map(Path.stat, paths)]:
        raise BlockingIOError(
            f"{folder}: expected files that stay while they are read, got others; read it again"
        )
    return with_metadata(problems, description)


def dataset_folder(path: Path, configs: Sequence[str] = (), revision: str | None = None) -> Path:
    """Return a dataset folder, or fetch what is needed of a dataset of the Hub."""
    name = str(path)
    if path.is_dir() or name.count("/") != 1:
        require_dataset(path)
        return path
    from huggingface_hub import snapshot_download

    of_configs = dict.fromkeys(collection_name(*parse_config_name(config)) for config in configs)
    wanted = [f"{collection}/*" for collection in of_configs]
    try:
        fetched = snapshot_download(
            name, repo_type="dataset", revision=revision, allow_patterns=wanted or None
        )
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{name}: expected a dataset folder or a data set on the Hub, got an error: "
            f"{str(error).splitlines()[0]}"
        ) from error
    for pattern in wanted:
        if not Path(fetched, pattern).with_name(PROVENANCE).is_file():
            raise FileNotFoundError(
                f"{name}: expected {pattern.replace('*', PROVENANCE)} there or, without a "
                f"connection, in the cache, found none; with a connection, `hf download {name} "
                f"--repo-type dataset --include '{pattern}'` fetches all that is needed"
            )
    require_dataset(Path(fetched))
    return Path(fetched)


def _read_run(path: Path, dataset: str, configs: Sequence[str], revision: str | None) -> pa.Table:
    """Read the file of a run's problems."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of problems, found no file there")
    if configs:
        raise ValueError(f"{path}: expected no configurations for a file of problems")
    stored = read_schema(path)
    problem_format = format_of(stored)
    names = [*problem_schema(problem_format).names, "source"]
    sources: dict[str, None] = {}

    def tables() -> Iterator[pa.Table]:
        for table in read_row_groups(path, [name for name in names if name in stored.names]):
            if pa.types.is_string(table["label"].type):
                codes = pc.index_in(table["label"], value_set=pa.array(problem_format.labels))
                table = table.set_column(table.column_names.index("label"), "label", codes)
            if "variant_id" not in stored.names:
                table = table.append_column("variant_id", table["seed_id"])
            if "source" in stored.names:
                sources.update(dict.fromkeys(table["source"].unique().to_pylist()))
            yield table

    description: dict[str, Any] = {"dataset": path.name, "revision": None, "configs": []}
    description |= {"all_problems": True}
    problems = _distinct(tables(), str(path), description, problem_format)
    return with_metadata(problems, description_of(problems) | {"configs": [*sources]})


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
        description = description | {_FORMAT: its.as_record()}
    problems = with_metadata(on_disk(cast(), schema), description)
    for name in schema.names:
        if count := problems[name].null_count:
            raise ValueError(
                f"{dataset}: expected a value of {name} in every row, got "
                f"{count:,} rows without (or with an unknown label)"
            )
    if others := sorted(set(problems["label"].unique().to_pylist()) - {*range(len(its.labels))}):
        raise ValueError(
            f"{dataset}: expected labels 0 to {len(its.labels) - 1} ({', '.join(its.labels)}), "
            f"got {others}"
        )
    first = first_rows(problems, ["variant_id"])
    if (kept := first == np.arange(len(first))).all():
        return problems
    if len(odd := np.flatnonzero(first_rows(problems, schema.names) != first)):
        one, other = (problems.slice(row, 1).to_pylist()[0] for row in (first[odd[0]], odd[0]))
        name = next(name for name in schema.names if one[name] != other[name])
        raise ValueError(
            f"{dataset}: expected one problem per variant_id, got two with different {name} for "
            f"{one['variant_id']!r}; `merge-nli check` says more"
        )
    return _only(problems, pa.chunked_array([kept]))


# --- Descriptions ---


def description_of(problems: pa.Table) -> dict[str, Any]:
    """Return the description of the problems' origin from their metadata."""
    description: dict[str, Any] = json.loads(
        (problems.schema.metadata or {}).get(METADATA_KEY, b"{}")
    )
    return description


def sources_of(problems: pa.Table) -> list[str]:
    """List the sources of problems, sorted; none if they are unknown."""
    configs = description_of(problems).get("configs", [])
    return sorted({parse_config_name(config)[0] for config in configs})


def format_of_problems(problems: pa.Table) -> ProblemFormat:
    """Return the format of problems that `read_problems` recorded."""
    recorded = description_of(problems).get(_FORMAT)
    if recorded is None:
        return NLI
    return ProblemFormat(tuple(recorded["fields"]), tuple(recorded["labels"]))


def merging_of(problems: pa.Table) -> Merging:
    """Return which labels count as one, as `read_problems` noted."""
    return Merging.parse(description_of(problems).get(MERGE_LABELS, ()))


def asked_format(problems: pa.Table) -> ProblemFormat:
    """Return the format of problems with the labels that a model gives, before any are merged."""
    own = format_of_problems(problems)
    return ProblemFormat(own.fields, merging_of(problems).given(own.labels))


# --- Some of the problems ---


def seeds_of(problems: pa.Table) -> pa.Table:
    """Return the problems that are seeds."""
    return _only(problems, pc.equal(problems["variant_id"], problems["seed_id"]))


def part_of_source(problems: pa.Table, source: str) -> pa.Table:
    """Return the problems of one source; ids begin with its name."""
    description = description_of(problems)
    configs = [name for name in description["configs"] if parse_config_name(name)[0] == source]
    kept = pc.starts_with(problems["seed_id"], f"{source}:")
    shots = {SHOTS: {source: description[SHOTS][source]}} if SHOTS in description else {}
    return with_metadata(_only(problems, kept), description | {"configs": configs} | shots)


def sample_seeds(problems: pa.Table, count: int, *, rng_seed: int = 0) -> pa.Table:
    """Draw seeds of each source at random, and return them with all their variants.

    Seeds are ranked by a hash of their id, so a sample does not depend on other problems, and a
    smaller sample is a subset of a larger one.

    Args:
        problems: From `read_problems`.
        count: Number of seeds of each source; all where there are fewer.
        rng_seed: Seed of the hash.
    """
    ids = sorted(problems["seed_id"].unique().to_pylist())
    forget_read()
    rank = partial(draw_rank, rng_seed)
    by_source = groupby(ids, lambda seed: seed.partition(":")[0])
    chosen = [seed for _, seeds in by_source for seed in nsmallest(count, seeds, key=rank)]
    kept = pc.is_in(problems["seed_id"], value_set=pa.array(chosen, pa.string()))
    description = description_of(problems) | {"limit_seeds": count, "rng_seed": rng_seed}
    return with_metadata(_only(problems, kept), description)


def hold_out(problems: pa.Table, *, rng_seed: int = 0) -> pa.Table:
    """Remove a few seeds of each label and source, to show them as examples (`SHOTS`).

    They are the last that `sample_seeds` would draw of seeds whose texts no other problem has.
    """
    fields, labels = astuple(format_of_problems(problems))[:2]
    wanted = max(1, _SHOTS // len(labels))
    place = first_rows(problems, fields)
    is_seed = pc.equal(problems["variant_id"], problems["seed_id"]).to_numpy()
    rows = np.flatnonzero(is_seed & (np.bincount(place)[place] == 1))
    ids = problems["seed_id"].take(pa.array(rows)).to_pylist()
    gold = problems["label"].to_numpy()[rows]
    shots: dict[str, list[dict[str, Any]]] = {}
    for source in sources_of(problems):
        own = [n for n, name in enumerate(ids) if name.startswith(f"{source}:")]
        own.sort(key=lambda n: draw_rank(rng_seed, ids[n]))
        chosen = set[int]()
        for code, label in enumerate(labels):
            of_label = [n for n in own if gold[n] == code]
            chosen.update(of_label[-wanted:])
            if len(of_label) < wanted or len(own) <= wanted * len(labels):
                raise ValueError(
                    f"shots: expected with seeds at least {wanted} of each label to show, with "
                    f"texts of their own, and others to ask about, got {len(of_label)} "
                    f"of {label} among {len(own)} seeds of {source}: take none, or a file"
                )
        shown = [n for n in own if n in chosen]
        texts = Pairs(problems, rows[shown], fields=True)
        shots[source] = [
            {"seed_id": ids[n], **dict(zip(fields, of_seed, strict=True)), "label": labels[gold[n]]}
            for n, of_seed in zip(shown, texts, strict=True)
        ]
    held = [shot["seed_id"] for of_source in shots.values() for shot in of_source]
    kept = pc.invert(pc.is_in(problems["seed_id"], value_set=pa.array(held, pa.string())))
    return with_metadata(_only(problems, kept), description_of(problems) | {SHOTS: shots})


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


def problem_digests(problems: pa.Table) -> NDArray[np.uint64]:
    """Digest ids and texts of problems; see `text_digests`."""
    names = ("variant_id", *format_of_problems(problems).fields)
    query = f"SELECT {digest_in_sql(names)} AS value FROM problems"
    blocks = [_by_row(rows, names, query) for rows in row_blocks(problems)]
    return np.concatenate(blocks).astype(np.uint64)


def _by_row(problems: pa.Table, names: Sequence[str], query: str) -> NDArray[Any]:
    """Fetch the values that a query makes of columns of problems, with the number `row` of each."""
    row = pa.array(np.arange(len(problems)))
    with connect() as connection:
        connection.register("problems", problems.select([*names]).append_column("row", row))
        values = connection.sql(f'{query} ORDER BY "row"').fetchnumpy()["value"]
    forget_read()
    return np.asarray(values)


def first_rows(problems: pa.Table, names: Sequence[str]) -> NDArray[np.int64]:
    """Find for each problem the first row with equal values in `names`; the first is a text."""
    one, *others = (f'"{name}"' for name in names)
    # With a length, as any separator could occur in the texts.
    rest = f"concat_ws(' ', {', '.join(others)})" if others else "''"
    text = f"concat(strlen({one}), ':', {one}, {rest})"
    firsts = _by_row(
        problems,
        names,
        f"""
        WITH digests AS (SELECT "row", md5_number({text}) AS digest FROM problems)
        SELECT "first" AS value FROM digests
        JOIN (SELECT digest, min("row") AS "first" FROM digests GROUP BY digest) USING (digest)
        """,
    )
    return firsts.astype(np.int64)


def distinct_pairs(problems: pa.Table, *, fields: bool = False) -> tuple[Pairs, NDArray[np.int64]]:
    """Return the distinct pairs in order of appearance, and each row's place among them."""
    first = first_rows(problems, format_of_problems(problems).fields)
    rows = np.flatnonzero(first == np.arange(len(first)))
    return Pairs(problems, rows, fields=fields), np.searchsorted(rows, first)


def fingerprint_of(
    description: Mapping[str, Any], problems: pa.Table, digests: NDArray[np.uint64]
) -> str:
    """Digest everything that determines a predictions file."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name in ("variant_id", "seed_id", "label"):
        # The JSON of the whole list, with few values as Python objects at a time.
        before = "["
        for rows in row_blocks(problems.select([name])):
            values = json.dumps(rows[name].to_pylist())[1:-1]
            digest.update(f"{before}{values}".encode())
            before = ", "
        digest.update(b"]")
    digest.update(digests.astype("<u8", copy=False).data)
    return digest.hexdigest()


# --- Tables on disk ---

_MAPPED: Final[WeakSet[mmap.mmap]] = WeakSet()


def on_disk(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Write tables to an unnamed temporary file that lives as long as the returned table."""
    with naming(Path(gettempdir())), TemporaryFile() as file:
        with pa.ipc.new_stream(file, schema) as writer:
            for table in tables:
                writer.write_table(table)
                forget_read()
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _MAPPED.add(mapped)
    return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()


def row_blocks(table: pa.Table) -> Iterator[pa.Table]:
    """Yield slices of a table, at least one; the memory of each is freed afterwards."""
    for start in range(0, max(len(table), 1), ROWS):
        yield table.slice(start, ROWS)
        forget_read()


def forget_read() -> None:
    """Release pages of tables on disk that were read, which count as the process's memory."""
    if hasattr(mmap, "MADV_DONTNEED"):  # not available on Windows
        for mapped in _MAPPED:
            mapped.madvise(mmap.MADV_DONTNEED)
