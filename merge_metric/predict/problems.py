"""Datasets → the table of problems that a model is asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from merge_dataset.files import draw_rank
from merge_dataset.layout import (
    all_configurations,
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
from merge_metric.models.pair_model import Pair
from merge_metric.runs.predictions import metadata_of, with_metadata
from merge_metric.runs.texts import rows_of

_PAIRS: Final = 65_536
"""Pairs that are Python objects at a time."""

_FORMAT: Final = "format"
"""In the description of problems that are not of NLI: their fields and labels."""


def problem_schema(problem_format: ProblemFormat = NLI) -> pa.Schema:
    """Return the columns of a table of problems.

    Of a seed, `variant_id` is `seed_id`; `label` is a position among the format's labels. A
    table's metadata say under `merge_nli` where the problems are from, and of what format.
    """
    texts = [(field, pa.string()) for field in problem_format.fields]
    ids = [("variant_id", pa.string()), ("seed_id", pa.string())]
    return pa.schema([*ids, *texts, ("label", pa.int64())])


def read_problems(
    dataset: str, configs: Sequence[str] = (), *, revision: str | None = None
) -> pa.Table:
    """Read the seeds and variants of some configurations of a dataset, each once.

    Args:
        dataset: A dataset folder; or the Parquet file of a run's problems, all of which
            count as seeds then; or a name for `datasets.load_dataset`.
        configs: Names of configurations; by default, of each source, that of all word
            classes and that of the paraphrases.
        revision: Of a dataset on the Hub.

    Returns:
        The columns of `problem_schema`, configuration by configuration, seeds before variants.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such dataset.
        ValueError: it is no MERGE-NLI dataset, or lacks a configuration, or the problems are
            of several formats.
    """
    path = Path(dataset)
    if path.suffix == ".parquet":
        return _read_file(path, configs)
    if path.is_dir():
        require_dataset(path)
        known = all_configurations(path)
    elif path.is_file():
        raise ValueError(
            f"{dataset}: expected a dataset folder or a run's problems.parquet, got another file; "
            f"`merge-nli generate --data {dataset}` makes a dataset of problems"
        )
    else:
        known = _configurations_on_hub(dataset, revision) or list(configs)
    chosen = choose_configurations(dataset, known, configs)
    if path.is_dir():
        formats = {config: format_in(path, config) for config in chosen}
        problem_format = _one_format(dataset, formats)
        tables = [
            _read_split(path, config, split, problem_format)
            for config in chosen
            for split in SPLITS
        ]
    else:
        parts = {
            config: [_load_split(dataset, config, split, revision) for split in SPLITS]
            for config in chosen
        }
        formats = {config: splits[0][0] for config, splits in parts.items()}
        problem_format = _one_format(dataset, formats)
        tables = [table for splits in parts.values() for _, table in splits]
    table = _distinct(pa.concat_tables(tables), dataset)
    name = path.resolve().name if path.is_dir() else dataset
    description = {"dataset": name, "revision": revision, "configs": chosen}
    return with_metadata(table, description | _described(problem_format))


def format_of_problems(problems: pa.Table) -> ProblemFormat:
    """Return the format that `read_problems` found."""
    recorded = description_of(problems).get(_FORMAT)
    if recorded is None:
        return NLI
    return ProblemFormat(tuple(recorded["fields"]), tuple(recorded["labels"]))


def pairs_of(problems: pa.Table) -> Iterator[Pair]:
    """Yield each problem as a pair of texts: the first one, and the others.

    Premise and hypothesis of NLI; three texts or more are put together by a space from
    the second on.
    """
    for first, *others in rows_of(problems, format_of_problems(problems).fields):
        yield first, " ".join(others)


class Pairs(Sequence[Pair]):
    """Problems as pairs of texts, few of which are Python objects at a time; see `pairs_of`."""

    def __init__(self, problems: pa.Table, rows: NDArray[np.int64]) -> None:
        """Choose problems.

        Args:
            problems: From `read_problems`.
            rows: Numbers of rows of it, in the order wanted.
        """
        fields = format_of_problems(problems).fields
        self._problems, self._rows = problems.select([*fields]), rows

    def at(self, positions: Sequence[int] | NDArray[np.int64]) -> Pairs:
        """Take those at some positions."""
        return Pairs(self._problems, self._rows[np.asarray(positions, np.int64)])

    def __len__(self) -> int:
        """Count them."""
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Pair: ...
    @overload
    def __getitem__(self, place: slice) -> list[Pair]: ...
    def __getitem__(self, place: int | slice) -> Pair | list[Pair]:
        """Read one, or a list of some."""
        if isinstance(place, slice):
            return list(self._read(self._rows[place]))
        return next(pairs_of(self._problems.slice(self._rows[place], 1)))

    def __iter__(self) -> Iterator[Pair]:
        """Read all, one after the other."""
        for start in range(0, len(self._rows), _PAIRS):
            yield from self._read(self._rows[start : start + _PAIRS])

    def _read(self, rows: NDArray[np.int64]) -> Iterator[Pair]:
        # Tables are taken from in slices: of a column in many chunks `take` makes one, all of it.
        for run in np.split(rows, np.flatnonzero(np.diff(rows // _PAIRS)) + 1):
            if len(run):
                first = run.min()
                part = self._problems.slice(first, run.max() - first + 1)
                yield from pairs_of(part.take(pa.array(run - first)))


def _described(problem_format: ProblemFormat) -> dict[str, Any]:
    return {} if problem_format == NLI else {_FORMAT: problem_format.as_record()}


def _one_format(dataset: str, formats: Mapping[str, ProblemFormat]) -> ProblemFormat:
    """Return the format that all configurations have."""
    found = dict.fromkeys(formats.values())
    if len(found) > 1:
        parts = "; ".join(
            f"{', '.join(c for c, each in formats.items() if each == one)} with the {one.described}"
            for one in found
        )
        raise ValueError(
            f"{dataset}: expected problems of one format, got {parts}; name configurations of one "
            f"with `config`"
        )
    return next(iter(found))


def choose_configurations(dataset: str, known: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """List the configurations asked for, each once; by default all classes and paraphrases.

    Raises:
        ValueError: the dataset does not have one that is asked for.
    """
    require_configurations(dataset, known, wanted)
    whole = [config for config in known if parse_config_name(config)[1] in (None, PARAPHRASE)]
    if not (chosen := list(dict.fromkeys(wanted)) or whole):
        raise ValueError(
            f"{dataset}: the configurations of a registered name cannot be listed; name them "
            f"with `config`, such as snli, or give the dataset folder"
        )
    return chosen


def sources_of(problems: pa.Table) -> list[str]:
    """List the sources that problems are from, sorted; none where that is not known."""
    configs = description_of(problems).get("configs", [])
    return sorted({parse_config_name(config)[0] for config in configs})


def description_of(problems: pa.Table) -> dict[str, Any]:
    """Return what metadata say about where problems are from."""
    return metadata_of(problems.schema)


def seeds_of(problems: pa.Table) -> pa.Table:
    """Return the problems that are seeds."""
    return problems.filter(pc.equal(problems["variant_id"], problems["seed_id"]))


def part_of_source(problems: pa.Table, source: str) -> pa.Table:
    """Return the problems of one source, whose name their ids begin with."""
    description = description_of(problems)
    configs = [name for name in description["configs"] if parse_config_name(name)[0] == source]
    kept = pc.starts_with(problems["seed_id"], f"{source}:")
    return with_metadata(problems.filter(kept), {**description, "configs": configs})


def sample_seeds(problems: pa.Table, count: int, *, rng_seed: int = 0) -> pa.Table:
    """Draw seeds of each source at random, and return them with all their variants.

    Seeds are ranked by a hash of their id, so a sample does not depend on what else is
    there, and a smaller one lies within a larger one.

    Args:
        problems: From `read_problems`.
        count: Number of seeds of each source; all where there are fewer.
        rng_seed: Another number, another sample.
    """
    by_source: dict[str, list[str]] = {}
    for seed in problems["seed_id"].unique().to_pylist():
        by_source.setdefault(seed.partition(":")[0], []).append(seed)
    rank = partial(draw_rank, rng_seed)
    chosen = [seed for seeds in by_source.values() for seed in sorted(seeds, key=rank)[:count]]
    kept = pc.is_in(problems["seed_id"], value_set=pa.array(chosen, pa.string()))
    description = description_of(problems) | {"limit_seeds": count, "rng_seed": rng_seed}
    return with_metadata(problems.filter(kept), description)


def _distinct(table: pa.Table, dataset: str) -> pa.Table:
    """Keep each problem once: a seed stands in the files of all its classes."""
    ids = table["variant_id"]
    if pc.count_distinct(ids).as_py() == len(ids):
        return table
    codes = ids.combine_chunks().dictionary_encode().indices.to_numpy()
    _, first, of_row = np.unique(codes, return_index=True, return_inverse=True)
    for name in table.column_names:
        differs = pc.not_equal(table[name], table[name].take(pa.array(first[of_row])))
        if pc.any(differs).as_py():
            variant = table["variant_id"].filter(differs)[0].as_py()
            raise ValueError(
                f"{dataset}: expected one problem per variant_id, got two with different "
                f"{name} for {variant!r}; `merge-nli check` says more"
            )
    return table.take(pa.array(np.sort(first)))


# --- Folders and files ---


def _read_split(folder: Path, config: str, split: str, problem_format: ProblemFormat) -> pa.Table:
    tables = []
    for name in split_files(folder, config)[split]:
        # Not pq.read_table: it would take a parent folder called a=b for a partition column.
        with pq.ParquetFile(folder / name) as file:
            tables.append(_columns(file, str(folder / name), problem_format))
    if not tables:
        raise ValueError(f"{folder}: configuration {config!r} has no files for the split {split}")
    return _checked(pa.concat_tables(tables), f"{folder}: {config}/{split}", problem_format)


def _read_file(path: Path, configs: Sequence[str]) -> pa.Table:
    """Read all labelled problems of a source, as `merge-nli suggest` leaves them."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of problems, found no file there")
    if configs:
        raise ValueError(f"{path}: expected no configurations for a file of problems")
    with pq.ParquetFile(path) as file:
        problem_format = format_of(file.schema_arrow)
        there, columns = file.schema_arrow.names, problem_schema(problem_format).names
        needed = [name for name in columns if name != "variant_id"]
        if missing := set(needed) - set(there):
            raise ValueError(
                f"{path}: expected the columns {', '.join(needed)}, as in the "
                f"problems.parquet of a run folder, got none called {', '.join(sorted(missing))}"
            )
        table = file.read(columns=[name for name in (*columns, "source") if name in there])
    if pa.types.is_string(table["label"].type):
        codes = pc.index_in(table["label"], value_set=pa.array(problem_format.labels))
        table = table.set_column(table.column_names.index("label"), "label", codes)
    if "variant_id" not in table.column_names:
        table = table.append_column("variant_id", table["seed_id"])
    sources = table["source"].unique().to_pylist() if "source" in table.column_names else []
    checked = _distinct(_checked(table.select(columns), str(path), problem_format), str(path))
    return with_metadata(
        checked,
        {"dataset": path.name, "revision": None, "configs": sources, "all_problems": True}
        | _described(problem_format),
    )


def _columns(file: pq.ParquetFile, where: str, problem_format: ProblemFormat) -> pa.Table:
    names = problem_schema(problem_format).names
    if missing := set(names) - set(file.schema_arrow.names):
        raise ValueError(
            f"{where}: expected the columns {', '.join(names)}, got none called "
            f"{', '.join(sorted(missing))}"
        )
    return file.read(columns=names).select(names)


def _checked(table: pa.Table, where: str, problem_format: ProblemFormat) -> pa.Table:
    """Cast the columns to their types, and check that each row has a known value."""
    schema, labels = problem_schema(problem_format), problem_format.labels
    try:
        table = table.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise ValueError(f"{where}: expected {schema}, got an error: {error}") from error
    for name in schema.names:
        if table[name].null_count:
            raise ValueError(
                f"{where}: expected a value of {name} in every row, got "
                f"{table[name].null_count:,} rows without (or with an unknown label)"
            )
    if not pc.all(pc.is_in(table["label"], value_set=pa.array(range(len(labels))))).as_py():
        raise ValueError(
            f"{where}: expected labels 0 to {len(labels) - 1} ({', '.join(labels)}), got "
            f"{sorted(table['label'].unique().to_pylist())}"
        )
    return table


# --- Names for `datasets.load_dataset` ---


def _configurations_on_hub(name: str, revision: str | None) -> list[str]:
    import datasets

    try:
        found = datasets.get_dataset_config_names(name, revision=revision)
    except (OSError, ValueError) as error:
        if "/" not in name:
            require_dataset(Path(name))
        raise FileNotFoundError(
            f"{name}: expected a dataset folder, a Parquet file of problems, or a name that "
            f"datasets.load_dataset knows, got an error: {error}"
        ) from error
    # A name registered in the local cache has this one, and does not tell the real ones.
    return [] if found == ["default"] else [str(config) for config in found]


def _load_split(
    name: str, config: str, split: str, revision: str | None
) -> tuple[ProblemFormat, pa.Table]:
    """Load a split's problems, and tell their format from columns and label names."""
    import datasets

    where = f"{name}: {config}/{split}"
    try:
        rows = datasets.load_dataset(name, config, split=split, revision=revision)
    except (OSError, ValueError) as error:
        raise ValueError(f"{where}: could not be loaded: {error}") from error
    there = rows.column_names
    fields = tuple(field for field in there if f"{field}_spans" in there) or NLI.fields
    names = problem_schema(ProblemFormat(fields, LABELS)).names
    if missing := set(names) - set(there):
        raise ValueError(
            f"{where}: expected a MERGE-NLI dataset with the columns {', '.join(names)}, "
            f"got none called {', '.join(sorted(missing))}"
        )
    labels = tuple(getattr(rows.features["label"], "names", LABELS))
    if fields == NLI.fields and set(labels) == set(LABELS) and labels != LABELS:
        raise ValueError(
            f"{where}: expected the labels {', '.join(LABELS)}, got {', '.join(labels)}"
        )
    problem_format = ProblemFormat(fields, labels)
    table: pa.Table = rows.select_columns(names).with_format("arrow")[:]
    return problem_format, _checked(table.select(names), where, problem_format)
