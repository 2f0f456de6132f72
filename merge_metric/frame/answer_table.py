"""Predictions files as named by users, and a model's predictions joined to a dataset."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any, Final, Protocol, runtime_checkable
from weakref import finalize

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.files import naming
from merge_dataset.layout import as_dataset, collections, configurations, sources, split_files
from merge_dataset.paths import as_list, as_path
from merge_dataset.schema import PARAPHRASE, SPLITS, collection_name
from merge_metric.frame.column_checks import ANSWERS, IDS, PROBABILITIES
from merge_metric.frame.plausibility import (
    AnswerTally,
    disagreements,
    tell_of_answers,
    tell_of_model,
)
from merge_metric.frame.prediction_columns import PredictionsFile, open_predictions
from merge_metric.frame.predictions import model_name, read_predictions
from merge_metric.frame.relations import EXAMPLES, DatasetRelations, Stream, fetch, unknown_ids
from merge_metric.frame.texts import TEXT_DIGEST, from_hex
from merge_metric.seed_variant_accuracy.merging import Merging

log = logging.getLogger(__name__)

# --- Files as named by users ---


@dataclass(frozen=True, slots=True)
class PredictionsSource:
    """A predictions file as named by a user: `FILE`, `NAME=FILE`, `FILE@DATASET`."""

    model: str
    path: Path
    dataset: Path | None = None


@runtime_checkable
class HasPredictions(Protocol):
    """An object with a predictions file, such as an `Evaluation`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def predictions(self) -> Path: ...  # noqa: D102


Predictions = str | Path | PredictionsSource | HasPredictions

PREDICTIONS = (str, Path, PredictionsSource, HasPredictions)


def as_sources(
    name: str, given: Predictions | Iterable[Predictions] | Mapping[str, Predictions]
) -> list[PredictionsSource]:
    """Turn one or several predictions, or a mapping of model names to them, into sources."""
    names = list(map(str, given)) if isinstance(given, Mapping) else None
    found = []
    for each in as_list(
        name,
        given.values() if isinstance(given, Mapping) else given,
        PREDICTIONS,
        "one or several predictions files, as text (FILE or NAME=FILE) or pathlib.Path, or "
        "evaluations",
    ):
        if isinstance(each, PredictionsSource):
            found.append(each)
        elif isinstance(each, HasPredictions):
            found.append(PredictionsSource(each.name, each.predictions))
        else:
            found.append(parse_source(each))
    if names is None:
        return found
    return [replace(each, model=model) for each, model in zip(found, names, strict=True)]


def parse_source(text: str | Path) -> PredictionsSource:
    """Parse `[NAME=]FILE[@DATASET]`; by default the name is from the metadata or the file name."""
    path = as_path("predictions", text)
    name, dataset, text = "", None, str(text)
    if not path.exists():
        before, at, after = text.rpartition("@")
        if at and after and (place := as_dataset("dataset", after)).is_dir():
            text, dataset = before, place
            path = Path(text)
    if not path.exists() and "=" in text:
        name, _, file = text.partition("=")
        path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected a predictions file, as FILE, NAME=FILE or FILE@DATASET, "
            "found no file there"
        )
    return PredictionsSource(name or model_name(path), path, dataset)


# --- Streams of predictions ---

_FIELDS: Final = {
    **dict.fromkeys(IDS, pa.string()),
    **dict.fromkeys(ANSWERS, pa.int8()),
    "answer": pa.int32(),
    "file": pa.int16(),
    "digest": pa.uint64(),
}


@dataclass(slots=True, eq=False, weakref_slot=True)
class PredictionRows:
    """Predictions files of one model with the same labels; rows are numbered through all files."""

    folder: Path | None
    labels: tuple[str, ...]
    files: list[PredictionsFile] = field(default_factory=list)
    has_probabilities: bool = True
    has_digests: bool = False
    """Whether a file has digests of texts."""
    count: int = 0
    """Number of rows of all files; like the next fields, known after streaming."""
    is_verified: bool = True
    """Whether each row has a digest of its texts."""
    tally: AnswerTally = field(init=False)
    stored: Any = field(default_factory=TemporaryFile)
    """File of the probabilities."""

    def __post_init__(self) -> None:
        """Begin the tally, and arrange that the file is closed."""
        self.tally = AnswerTally(self.labels)
        finalize(self, self.stored.close)

    @classmethod
    def group(
        cls, paths: Sequence[Path], folder: Path | None, merging: Merging | None = None
    ) -> list[PredictionRows]:
        """Open files, group them by the labels of their problems, and check the first rows."""
        found: dict[tuple[tuple[str, ...], str], PredictionRows] = {}
        for path in paths:
            file = open_predictions(path, folder, merging)
            first = next(file.tables())
            same = found.setdefault((file.labels, str(file.merging)), cls(folder, file.labels))
            same.files.append(file)
            same.has_probabilities &= PROBABILITIES in first.column_names
            same.has_digests |= TEXT_DIGEST in first.column_names
        return list(found.values())

    @property
    def merging(self) -> Merging:
        """The labels that count as one."""
        return self.files[0].merging

    @property
    def where(self) -> str:
        """The paths of the files, as messages name them."""
        return ", ".join(str(file.path) for file in self.files)

    def probabilities_of(self, answers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Read the probabilities of some answers from disk, (L, n), scaled to sum to 1."""
        with naming(Path(gettempdir())):
            self.stored.flush()
        shape = self.count, len(self.labels)
        # Mapped anew each time, as pages of a lasting map stay in memory once read.
        found = np.memmap(self.stored, np.float64, "r", shape=shape)[answers]
        table = np.ascontiguousarray(found.T)
        scaled: NDArray[np.float64] = table / table.sum(axis=0)
        return scaled

    def stream(self, *, first: bool = False) -> Stream:
        """Stream `_FIELDS`: `answer` and `file` are numbers from 0, `digest` may be null.

        The `first` pass also fills `count`, `is_verified`, the tally and `stored`.
        """
        return pa.schema(_FIELDS.items()), self._batches(first=first)

    def _batches(self, *, first: bool) -> Iterator[pa.RecordBatch]:
        done = 0
        for number, file in enumerate(self.files):
            others = 0
            for table in file.unmerged():
                others += disagreements(table) if first else 0
                table = file.merged(table)
                digest = np.zeros(len(table), np.uint64)
                has_digest = np.zeros(len(table), np.bool_)
                if TEXT_DIGEST in table.column_names:
                    digest, has_digest = from_hex(table[TEXT_DIGEST])
                if first:
                    self.tally.add(table)
                    self.is_verified &= bool(has_digest.all())
                    self.count += len(table)
                    if self.has_probabilities:
                        flat = table[PROBABILITIES].combine_chunks().flatten()
                        with naming(Path(gettempdir())):
                            self.stored.write(memoryview(flat.to_numpy()))
                arrays = [table[name].combine_chunks() for name in (*IDS, *ANSWERS)]
                arrays.append(pa.array(np.arange(done, done + len(table))))
                arrays.append(pa.array(np.full(len(table), number)))
                arrays.append(pa.array(digest, mask=~has_digest))
                done += len(table)
                cast = map(pa.Array.cast, arrays, _FIELDS.values())
                yield pa.record_batch([*cast], list(_FIELDS))
            if others:
                log.warning(
                    "%s: in %s of %s rows another label than the prediction is the most "
                    "probable one; are the probabilities in the order %s?",
                    file.path,
                    f"{others:,}",
                    f"{file.rows:,}",
                    ", ".join(file.written),
                )

    def tell(self) -> None:
        """Warn of oddities in the rows streamed, with or without a dataset."""
        if self.folder is not None and not self.is_verified:
            log.warning(
                "%s: nothing in it says for which texts these are the predictions; they are taken "
                "to be for those of %s (unverified)",
                self.where,
                self.folder,
            )
        for file in self.files:
            tell_of_model(str(file.path), file.description)
        tell_of_answers(self.where, self.tally, self.files[0].description)


# --- Models ---


@dataclass(frozen=True, slots=True, eq=False)
class AnswerTable:
    """A model's predictions joined to one dataset folder, and the model's description."""

    name: str
    rows: PredictionRows
    dataset: DatasetRelations
    answers: str
    """Name of the table of answers; see `DatasetRelations.join`."""
    sizes: Mapping[str | None, tuple[int, int]]
    """File of the dataset → numbers of problems, and of problems without a prediction."""
    n_predictions: int
    """Number of predictions; equal answers to a seed in several files count once."""

    @property
    def description(self) -> Mapping[str, Any]:
        """Description of the first file; empty if it has none."""
        return self.rows.files[0].description

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the predictions files, for example one per source."""
        return tuple(file.path.name for file in self.rows.files)

    @property
    def folder(self) -> Path:
        """The dataset folder."""
        return self.dataset.folder

    def query(self, query: str) -> pa.Table:
        """Fetch the rows of a query over its table, whose name in the query is `answers`."""
        return fetch(self.dataset.connection, f"WITH answers AS (FROM {self.answers}) {query}")

    def sizes_of(self, config: str, split: str) -> tuple[int, int]:
        """Count the problems of a split, and the problems without a prediction."""
        found = [self.sizes[file] for file in split_files(self.folder, config)[split]]
        return sum(size for size, _ in found), sum(missing for _, missing in found)

    def has(self, config: str, split: str) -> bool:
        """Return whether any problem of a split has a prediction."""
        size, missing = self.sizes_of(config, split)
        return size > missing

    def is_complete(self, config: str) -> bool:
        """Return whether every problem of a configuration has a prediction."""
        return not any(self.sizes_of(config, split)[1] for split in SPLITS)

    def describe_missing(self, config: str) -> str:
        """Say what is missing in a configuration: "3 of 10 seeds and 4 of 20 variants"."""
        return " and ".join(
            f"{missing:,} of {count:,} {split}"
            for split in SPLITS
            for count, missing in [self.sizes_of(config, split)]
            if missing
        )


def read_models(
    sources: Iterable[PredictionsSource],
    dataset: Path,
    *,
    columns: Sequence[str] = (),
    tell: bool = True,
    merging: Merging | None = None,
) -> Iterator[AnswerTable]:
    """Read models' predictions and join them to their dataset folders, by default `dataset`.

    Files with the same name and dataset are parts of one model's answers. Yields a model per
    dataset folder and set of labels, in the given order; `columns` are further dataset columns.
    Labels are merged as asked or else as a file's description says.
    """
    groups: dict[tuple[str, Path], list[PredictionsSource]] = {}
    for source in sources:
        folder = source.dataset or dataset
        groups.setdefault((source.model, folder.resolve()), []).append(source)
    opened: dict[Path, DatasetRelations] = {}
    for number, ((name, place), group) in enumerate(groups.items()):
        if place not in opened:
            opened[place] = DatasetRelations.of(group[0].dataset or dataset)
        relations = opened[place]
        paths = [each.path for each in group]
        of_labels = PredictionRows.group(paths, relations.folder, merging)
        for part, rows in enumerate(of_labels):
            model = _join(name, f"answers_{number}_{part}", rows, relations, columns)
            if tell:
                rows.tell()
            yield model


def _join(
    name: str,
    table: str,
    rows: PredictionRows,
    dataset: DatasetRelations,
    columns: Sequence[str],
) -> AnswerTable:
    """Join a model's rows to the dataset, and run the checks on all rows."""
    wanted = ["word_class", "subsamples", *columns]
    stream = rows.stream(first=True)
    dataset.join(table, stream, wanted, with_digests=rows.has_digests, merging=rows.merging)
    found, n_repeated = dataset.sizes_in(table), 0
    if found[None][0] or any(found[file][0] > size for file, size in dataset.sizes.items()):
        n_repeated = _drop_repeated_seeds(name, table, rows, dataset)
        found = dataset.sizes_in(table)
    n_predictions = rows.count - n_repeated
    if found[None][0]:
        unknown = fetch(
            dataset.connection,
            "SELECT variant_id, count(*) OVER () AS count FROM predictions "
            f"ANTI JOIN problems USING (variant_id) ORDER BY answer LIMIT {EXAMPLES + 1}",
            predictions=rows.stream(),
            problems=dataset.problems(["variant_id"]),
        )
        count, some = unknown["count"][0].as_py(), unknown["variant_id"]
        raise unknown_ids(rows.where, dataset.folder, count, n_predictions, some)
    for file, size in dataset.sizes.items():
        if size and not found[file][0]:
            raise ValueError(
                f"{dataset.folder / file}: expected {size:,} rows, as its footer says, got none: "
                "the file is damaged; restore it from a copy"
            )
    return AnswerTable(name, rows, dataset, table, found, n_predictions)


def _drop_repeated_seeds(
    name: str, table: str, rows: PredictionRows, dataset: DatasetRelations
) -> int:
    """Drop repeated equal answers to seeds, which a model's files may share; return the count."""
    repeated = fetch(
        dataset.connection,
        "SELECT variant_id, variant_id = seed_id AS is_seed, prediction, answer, file "
        "FROM predictions QUALIFY count(*) OVER (PARTITION BY variant_id) > 1 ORDER BY answer",
        predictions=rows.stream(),
    ).to_pylist()
    first: dict[str, Mapping[str, Any]] = {}
    again: list[int] = []
    wrong: dict[str, None] = {}
    for row in repeated:
        known = first.setdefault(row["variant_id"], row)
        if known is row:
            continue
        if known["file"] == row["file"]:
            read_predictions(rows.files[row["file"]].path, dataset.folder)  # names the rows
        again.append(row["answer"])
        if not row["is_seed"] or row["prediction"] != known["prediction"]:
            wrong[row["variant_id"]] = None
    if wrong:
        raise ValueError(
            f"expected {rows.where} to answer different problems, as all are of "
            f"the model {name}, got several answers to {len(wrong):,} problems, such as "
            f"{next(iter(wrong))!r}; if they are of different models, give each a name: NAME=FILE"
        )
    dataset.connection.execute(f"DELETE FROM {table} WHERE answer IN (SELECT unnest(?))", [again])
    return len(again)


def choose(model: AnswerTable) -> list[str]:
    """Choose the configurations that a predictions file is meant for.

    For each source, it is the configuration of all word classes if every prediction is there, or
    some of every class; else the classes with predictions for variants, complete or not, so that
    truncated files are noticed. Paraphrases are chosen only if some are answered, as their seeds
    are shared with replacements.
    """
    chosen = []
    for source in sources(model.folder):
        names = (collection_name(source), collection_name(source, PARAPHRASE))
        of_source = [
            configurations(model.folder, name)
            for name in collections(model.folder)
            if name in names
        ]
        begun = []
        for everything, *classes in of_source:
            parts = classes or [everything]
            found = [config for config in parts if model.has(config, "variants")]
            whole = model.is_complete(everything) or found == parts
            begun += [everything] if whole else found
        # A file with only seeds was truncated, too.
        chosen += begun or [
            everything for everything, *_ in of_source if model.has(everything, "seeds")
        ]
    return chosen


@contextmanager
def naming_files(rows: PredictionRows) -> Iterator[None]:
    """Add the files' names to the message of a ValueError, unless it is about the dataset."""
    try:
        yield
    except ValueError as error:
        folder = rows.folder
        if folder is not None and str(error).startswith((f"{folder}{os.sep}", f"{folder}: ")):
            raise
        raise ValueError(f"{rows.where}: {error}") from error
