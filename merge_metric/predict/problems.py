"""The table of problems that a model is asked about, read from a dataset."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    all_configurations,
    as_dataset,
    format_in,
    require_configurations,
    require_dataset,
    split_files,
)
from merge_dataset.schema import (
    LABELS,
    NLI,
    PARAPHRASE,
    SPLITS,
    ProblemFormat,
    format_of,
    parse_config_name,
)
from merge_metric.frame.predictions import MERGE_LABELS, metadata_of, with_metadata
from merge_metric.frame.relations import DRAWS, draw_digests
from merge_metric.frame.texts import rows_of, text_digests
from merge_metric.models.pair_model import Pair
from merge_metric.seed_variant_accuracy.merging import Merging

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


def read_problems(
    dataset: str, configs: Sequence[str] = (), *, revision: str | None = None
) -> pa.Table:
    """Read the seeds and variants of some configurations of a dataset, each once.

    Args:
        dataset: A dataset folder, or its registered name; or the Parquet file of a run's
            problems, all of which count as seeds then; or a name for `datasets.load_dataset`.
        configs: Names of configurations; by default, of each source, that of all word
            classes and that of the paraphrases.
        revision: Of a dataset on the Hub.

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
    if path.suffix == ".parquet":
        return _read_file(path, configs)
    if is_folder := path.is_dir():
        require_dataset(path)
        known = all_configurations(path)
    elif path.is_file():
        raise ValueError(
            f"{dataset}: expected a dataset folder or a run's problems.parquet, got another file; "
            f"`merge-nli generate --data {dataset}` makes a dataset of problems"
        )
    else:
        import datasets

        try:
            known = datasets.get_dataset_config_names(dataset, revision=revision)
        except (OSError, ValueError) as error:
            if "/" not in dataset:
                require_dataset(path)
            raise FileNotFoundError(
                f"{dataset}: expected a dataset folder, a Parquet file of problems, or a name that "
                f"datasets.load_dataset knows, got an error: {error}"
            ) from error
        # A dataset in the local cache has only a configuration "default", not the real ones.
        known = [*configs] if known in ([], ["default"]) else known
    require_configurations(dataset, known, configs)
    whole = [config for config in known if parse_config_name(config)[1] in (None, PARAPHRASE)]
    if not (chosen := list(dict.fromkeys(configs)) or whole):
        raise ValueError(
            f"{dataset}: the configurations of a cached data set cannot be listed; name them "
            f"with `config`, such as snli, or give the dataset folder"
        )
    description: dict[str, Any] = {"dataset": dataset, "revision": revision, "configs": chosen}
    if not is_folder:
        splits = [_load_split(dataset, revision, c, split) for c in chosen for split in SPLITS]
        _require_one_format(dataset, chosen, [its for its, _ in splits[:: len(SPLITS)]])
        return _distinct((rows for _, rows in splits), dataset, description, splits[0][0])
    return _read_folder(path, chosen, description)


def format_of_problems(problems: pa.Table) -> ProblemFormat:
    """Return the format of problems that `read_problems` recorded."""
    recorded = description_of(problems).get(_FORMAT)
    if recorded is None:
        return NLI
    return ProblemFormat(tuple(recorded["fields"]), tuple(recorded["labels"]))


def merging_labels(problems: pa.Table, merge_labels: str | Sequence[str]) -> pa.Table:
    """Note in the description of problems which labels count as one in answers to them."""
    if not (merging := Merging.parse(merge_labels)):
        return problems
    merging.require(format_of_problems(problems).labels)
    return with_metadata(problems, description_of(problems) | {MERGE_LABELS: str(merging)})


def merging_of(problems: pa.Table) -> Merging:
    """Return which labels count as one, as `merging_labels` noted."""
    return Merging.parse(description_of(problems).get(MERGE_LABELS, ()))


def asked_format(problems: pa.Table) -> ProblemFormat:
    """Return the format of problems with the labels that a model gives, before any are merged."""
    own = format_of_problems(problems)
    return ProblemFormat(own.fields, merging_of(problems).given(own.labels))


def pairs_of(problems: pa.Table, *, fields: bool = False) -> Iterator[Pair]:
    """Yield each problem's first text and the joined others; with `fields` all texts."""
    for rows in row_blocks(problems):
        for texts in rows_of(rows, format_of_problems(problems).fields):
            yield texts if fields else (texts[0], " ".join(texts[1:]))


class Pairs(Sequence[Pair]):
    """Sequence of problems as pairs (see `pairs_of`), of which few are Python objects at a time."""

    def __init__(
        self, problems: pa.Table, rows: NDArray[np.int64], *, fields: bool = False
    ) -> None:
        """Choose problems by the numbers of their rows, in the given order."""
        names = format_of_problems(problems).fields
        self._problems, self._rows, self._fields = problems.select([*names]), rows, fields

    def at(self, positions: Sequence[int] | NDArray[np.int64]) -> Pairs:
        """Take the problems at some positions."""
        rows = self._rows[np.asarray(positions, np.int64)]
        return Pairs(self._problems, rows, fields=self._fields)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return list(self._read(self._rows[place]))
        return next(pairs_of(self._problems.slice(self._rows[place], 1), fields=self._fields))

    def __iter__(self) -> Iterator[Pair]:
        for start in range(0, len(self._rows), _PAIRS):
            yield from self._read(self._rows[start : start + _PAIRS])

    def _read(self, rows: NDArray[np.int64]) -> Iterator[Pair]:
        # Taken from slices: `take` on a column with many chunks would copy the whole column.
        for run in np.split(rows, np.flatnonzero(np.diff(rows // _PAIRS)) + 1):
            if len(run):
                first = run.min()
                part = self._problems.slice(first, run.max() - first + 1)
                yield from pairs_of(part.take(pa.array(run - first)), fields=self._fields)


def _require_one_format(
    dataset: str, configs: Sequence[str], formats: Sequence[ProblemFormat]
) -> None:
    if len(kinds := dict.fromkeys(formats)) > 1:
        pairs = [*zip(configs, formats, strict=True)]
        parts = "; ".join(
            f"{', '.join(name for name, its in pairs if its == kind)} with the {kind.described}"
            for kind in kinds
        )
        raise ValueError(
            f"{dataset}: expected problems of one format, got {parts}; name configurations of one "
            f"with `config`"
        )


def sources_of(problems: pa.Table) -> list[str]:
    """List the sources of problems, sorted; none if they are unknown."""
    configs = description_of(problems).get("configs", [])
    return sorted({parse_config_name(config)[0] for config in configs})


def description_of(problems: pa.Table) -> dict[str, Any]:
    """Return the description of the problems' origin from their metadata."""
    return metadata_of(problems.schema)


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


# --- Many problems ---


def _only(problems: pa.Table, kept: pa.ChunkedArray) -> pa.Table:
    starts = range(0, len(problems), ROWS)
    parts = (problems.slice(n, ROWS).filter(kept.slice(n, ROWS)) for n in starts)
    return on_disk(parts, problems.schema)


def problem_digests(problems: pa.Table) -> NDArray[np.uint64]:
    """Digest ids and texts of problems; see `text_digests`."""
    fields = format_of_problems(problems).fields
    return np.concatenate([text_digests(rows, fields) for rows in row_blocks(problems)])


def first_rows(problems: pa.Table, names: Sequence[str]) -> NDArray[np.int64]:
    """Find for each problem the first row with equal values in `names`; the first is a text."""
    one, *others = (f'"{name}"' for name in names)
    # With a length, as any separator could occur in the texts.
    rest = f"concat_ws(' ', {', '.join(others)})" if others else "''"
    text = f"concat(strlen({one}), ':', {one}, {rest})"
    row = pa.array(np.arange(len(problems)))
    with connect() as connection:
        connection.register("problems", problems.select(names).append_column("row", row))
        firsts = connection.sql(
            f"""
            WITH digests AS (SELECT "row", md5_number({text}) AS digest FROM problems)
            SELECT "first" FROM digests
            JOIN (SELECT digest, min("row") AS "first" FROM digests GROUP BY digest)
            USING (digest) ORDER BY "row"
            """
        ).fetchnumpy()
    forget_read()
    return np.asarray(firsts["first"], np.int64)


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


def _distinct(
    tables: Iterable[pa.Table], dataset: str, description: dict[str, Any], its: ProblemFormat
) -> pa.Table:
    """Check problems, and keep each once, as seeds are in the files of all classes."""
    schema = problem_schema(its)

    def cast() -> Iterator[pa.Table]:
        for table in tables:
            try:
                yield table.cast(schema)
            except (pa.ArrowException, ValueError) as error:
                raise ValueError(f"{dataset}: expected {schema}, got an error: {error}") from error

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


def _read_folder(path: Path, chosen: Sequence[str], description: dict[str, Any]) -> pa.Table:
    files = [split_files(path, config) for config in chosen]
    paths = [path / name for split in SPLITS for of_config in files for name in of_config[split]]
    states = [(it.st_ino, it.st_size, it.st_mtime_ns) for it in map(Path.stat, paths)]
    formats = [format_in(path, config) for config in chosen]
    _require_one_format(str(path), chosen, formats)
    names = problem_schema(formats[0]).names

    def tables() -> Iterator[pa.Table]:
        for config, of_config in zip(chosen, files, strict=True):
            for split in SPLITS:
                if not of_config[split]:
                    raise ValueError(
                        f"{path}: configuration {config!r} has no files for the split {split}"
                    )
                for file in of_config[split]:
                    _require_columns(str(path / file), names, read_schema(path / file).names)
                    for table in read_row_groups(path / file, names):
                        yield table.select(names)

    problems = _distinct(tables(), str(path), description, formats[0])
    drawn = (name for of_config in files for name in of_config["variants"])
    description |= {"dataset": path.resolve().name, DRAWS: draw_digests(path, drawn)}
    if states != [(it.st_ino, it.st_size, it.st_mtime_ns) for it in map(Path.stat, paths)]:
        raise BlockingIOError(
            f"{path}: expected files that stay while they are read, got others; read it again"
        )
    return with_metadata(problems, description_of(problems) | description)


def _read_file(path: Path, configs: Sequence[str]) -> pa.Table:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of problems, found no file there")
    if configs:
        raise ValueError(f"{path}: expected no configurations for a file of problems")
    stored = read_schema(path)
    problem_format = format_of(stored)
    schema = problem_schema(problem_format)
    needed = [name for name in schema.names if name != "variant_id"]
    as_there = "the columns {}, as in the problems.parquet of a run folder"
    _require_columns(str(path), needed, stored.names, as_there)
    sources: dict[str, None] = {}
    present = [name for name in (*schema.names, "source") if name in stored.names]

    def tables() -> Iterator[pa.Table]:
        for table in read_row_groups(path, present):
            if pa.types.is_string(table["label"].type):
                codes = pc.index_in(table["label"], value_set=pa.array(problem_format.labels))
                table = table.set_column(table.column_names.index("label"), "label", codes)
            if "variant_id" not in present:
                table = table.append_column("variant_id", table["seed_id"])
            if "source" in present:
                sources.update(dict.fromkeys(table["source"].unique().to_pylist()))
            yield table.select(schema.names)

    description: dict[str, Any] = {"dataset": path.name, "revision": None, "configs": []}
    problems = _distinct(tables(), str(path), description | {"all_problems": True}, problem_format)
    return with_metadata(problems, description_of(problems) | {"configs": [*sources]})


def _require_columns(
    where: str, names: Sequence[str], given: Sequence[str], wanted: str = "the columns {}"
) -> None:
    if missing := sorted(set(names) - set(given)):
        raise ValueError(
            f"{where}: expected {wanted.format(', '.join(names))}, got none called "
            f"{', '.join(missing)}"
        )


def _load_split(
    name: str, revision: str | None, config: str, split: str
) -> tuple[ProblemFormat, pa.Table]:
    import datasets

    where = f"{name}: {config}/{split}"
    try:
        rows = datasets.load_dataset(name, config, split=split, revision=revision)
    except (OSError, ValueError) as error:
        raise ValueError(f"{where}: could not be loaded: {error}") from error
    if (kind := rows.info.builder_name) in ("csv", "json", "text"):
        raise ValueError(
            f"{where}: expected Parquet files, as `merge-nli publish` writes, got {kind}, whose "
            "types `datasets` guesses, so that a text such as None or an id such as 001 is lost"
        )
    present = rows.column_names
    fields = tuple(field for field in present if f"{field}_spans" in present) or NLI.fields
    names = problem_schema(ProblemFormat(fields, LABELS)).names
    _require_columns(where, names, present, "a MERGE-NLI dataset with the columns {}")
    labels = tuple(getattr(rows.features["label"], "names", LABELS))
    if fields == NLI.fields and set(labels) == set(LABELS) and labels != LABELS:
        raise ValueError(
            f"{where}: expected the labels {', '.join(LABELS)}, got {', '.join(labels)}"
        )
    table: pa.Table = rows.select_columns(names).with_format("arrow")[:]
    return ProblemFormat(fields, labels), table.select(names)


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
