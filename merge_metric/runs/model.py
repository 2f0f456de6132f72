"""A model's predictions beside a dataset: files as users name them, put together and looked up.

Source (as users name files) → Model (its predictions beside a dataset, in parts if large)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from merge_dataset.seed_ranges import SeedRange, range_of
from merge_metric.runs.coverage import (
    EXAMPLES,
    Coverage,
    Parts,
    Tally,
    cover,
    cover_seeds,
    ranges_in,
    require_known,
)
from merge_metric.runs.dealing import PredictionParts, dealt
from merge_metric.runs.label_check import tell_other_order, tell_other_probabilities
from merge_metric.runs.predictions import (
    model_name,
    place_in,
    read_batches,
    read_metadata,
    read_predictions,
)
from merge_metric.runs.row_checks import COLUMNS, PROBABILITIES, labels_of
from merge_metric.runs.texts import TEXT_DIGEST

log = logging.getLogger(__name__)

# --- Files as users name them ---


@dataclass(frozen=True, slots=True)
class PredictionsSource:
    """A predictions file as a user names it: `FILE`, `NAME=FILE`, `FILE@DATASET`."""

    model: str
    path: Path
    dataset: Path | None = None


def parse_source(text: str) -> PredictionsSource:
    """Read `[NAME=]FILE[@DATASET]`.

    Without a name the model is called what the file's metadata say, else like the file.

    Raises:
        FileNotFoundError: there is no such file.
    """
    name, dataset, path = "", None, Path(text)
    if not path.exists():
        before, at, after = text.rpartition("@")
        if at and Path(after).is_dir():
            text, dataset = before, Path(after)
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


def require_different_files(sources: Sequence[PredictionsSource]) -> None:
    """Raise ValueError where a predictions file is given twice."""
    paths = [source.path.resolve() for source in sources]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise ValueError(
                f"expected different predictions files, got {sources[number].path} twice"
            )


# --- Models ---


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model's predictions beside one dataset folder, and what is known of the model."""

    name: str
    paths: tuple[Path, ...]
    """The predictions files, for example one per source."""
    description: Mapping[str, Any]
    """From the first file's metadata; empty where it says nothing."""
    parts: Parts

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the predictions files."""
        return tuple(path.name for path in self.paths)

    @property
    def folder(self) -> Path:
        """The dataset folder."""
        return self.parts.tally.folder


def read_models(sources: Iterable[PredictionsSource], dataset: Path) -> Iterator[Model]:
    """Read the predictions of one or several models beside their dataset folders.

    Files of one name and dataset are parts of one model's answers. Beside a large dataset
    predictions are dealt to temporary files, and a model can be used until the next is asked for.

    Args:
        sources: The files.
        dataset: The dataset folder of those that name none.

    Yields:
        Models in the order in which they are first named; one per dataset folder and, where
        its problems differ in their labels, per set of these.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file or dataset folder.
        ValueError: a file is unusable, or two of the same name answer the same problems.
    """
    for models in _each_model(sources, dataset):
        with models as found:
            while found:  # which then holds it no longer
                yield found.pop(0)


@contextmanager
def opened_models(sources: Iterable[PredictionsSource], dataset: Path) -> Iterator[list[Model]]:
    """Read models as `read_models`, all of which can be used as long as the block runs."""
    with ExitStack() as stack:
        each = map(stack.enter_context, _each_model(sources, dataset))
        yield list(chain.from_iterable(each))


def _each_model(
    sources: Iterable[PredictionsSource], dataset: Path
) -> Iterator[AbstractContextManager[list[Model]]]:
    """Group files by model and dataset folder, and make what opens each group."""
    groups: dict[tuple[str, Path], list[PredictionsSource]] = {}
    for source in sources:
        folder = source.dataset or dataset
        groups.setdefault((source.model, folder.resolve()), []).append(source)
    ranges: dict[Path, list[SeedRange]] = {}
    for (name, place), group in groups.items():
        if place not in ranges:
            ranges[place] = ranges_in(group[0].dataset or dataset)
        paths = [source.path for source in group]
        yield (_dealt if len(ranges[place]) > 1 else _held)(name, paths, ranges[place])


@contextmanager
def _held(name: str, paths: Sequence[Path], ranges: Sequence[SeedRange]) -> Iterator[list[Model]]:
    """Read predictions into memory."""
    folder = ranges[0].folder
    by_labels: dict[tuple[str, ...], list[tuple[Path, pa.Table]]] = {}
    for path in paths:
        (table,) = tell_other_probabilities([read_predictions(path, folder)], path)
        by_labels.setdefault(labels_of(table), []).append((path, table))
    models = []
    for alike in by_labels.values():
        of_labels = [path for path, _ in alike]
        predictions = _concatenate(name, of_labels, [table for _, table in alike])
        models.append(make_model(name, of_labels, predictions, folder))
    yield models


def make_model(name: str, paths: Sequence[Path], predictions: pa.Table, folder: Path) -> Model:
    """Put predictions in memory beside a dataset folder; see `Model` for the arguments.

    Raises:
        NotADirectoryError: there is no such folder.
        ValueError: there are predictions for problems that the dataset does not have.
    """
    with naming_files(paths, beside=folder):
        coverage = cover(predictions, folder)
    if TEXT_DIGEST not in predictions.column_names or predictions[TEXT_DIGEST].null_count:
        tell_unverified(paths, folder)
    tell_other_order(predictions, ", ".join(map(str, paths)))
    parts = Parts.whole(predictions, coverage)
    return Model(name, tuple(paths), read_metadata(paths[0]), parts)


def tell_unverified(paths: Sequence[Path], folder: Path) -> None:
    """Note that nothing says which texts some predictions are for."""
    log.warning(
        "%s: nothing in it says for which texts these are the predictions; they are taken to be "
        "for those of %s (unverified)",
        ", ".join(map(str, paths)),
        folder,
    )


def _concatenate(name: str, paths: Sequence[Path], tables: Sequence[pa.Table]) -> pa.Table:
    """Make one table of several that answer different problems.

    Only a seed may stand in several, as those of replacements and of paraphrases have some in
    common; what the first file says of it counts.
    """
    if len(tables) == 1:
        return tables[0]
    if not all(PROBABILITIES in table.column_names for table in tables):
        tables = [
            table.drop_columns([PROBABILITIES]) if PROBABILITIES in table.column_names else table
            for table in tables
        ]
    # Texts are known of the rows of some files only.
    whole = pa.concat_tables(tables, promote_options="default").combine_chunks()
    ids = whole["variant_id"].combine_chunks()
    _, first, of_row = np.unique(
        ids.dictionary_encode().indices.to_numpy(), return_index=True, return_inverse=True
    )
    again = first[of_row] != np.arange(len(whole))
    is_variant = pc.not_equal(ids, whole["seed_id"].combine_chunks()).to_numpy(zero_copy_only=False)
    prediction = whole["prediction"].to_numpy()
    wrong = again & (is_variant | (prediction != prediction[first[of_row]]))
    if wrong.any():
        twice = ids.filter(pa.array(wrong)).unique()
        raise ValueError(
            f"expected {', '.join(map(str, paths))} to answer different problems, as all are of "
            f"the model {name}, got several answers to {len(twice):,} problems, such as "
            f"{twice[0].as_py()!r}; if they are of different models, give each a name: NAME=FILE"
        )
    return whole.filter(pa.array(~again))


@contextmanager
def naming_files(paths: Iterable[Path], *, beside: Path | None = None) -> Iterator[None]:
    """Name the files in the message of a ValueError, unless it is about the dataset `beside`."""
    try:
        yield
    except ValueError as error:
        if beside is not None and str(error).startswith((f"{beside}{os.sep}", f"{beside}: ")):
            raise
        raise ValueError(f"{', '.join(map(str, paths))}: {error}") from error


# --- Beside a large dataset ---


@contextmanager
def _dealt(name: str, paths: Sequence[Path], ranges: Sequence[SeedRange]) -> Iterator[list[Model]]:
    """Deal predictions to parts on disk, of consecutive seeds of the dataset each."""
    folder = ranges[0].folder
    by_labels: dict[tuple[str, ...], list[tuple[Path, pa.Table, Iterator[pa.Table]]]] = {}
    for path in paths:
        batches = tell_other_probabilities(read_batches(path, folder), path)
        first = next(batches)
        by_labels.setdefault(labels_of(first), []).append((path, first, batches))
    with ExitStack() as stack:
        models = []
        for alike in by_labels.values():
            names = _shared_columns([first for _, first, _ in alike])
            files = [
                (place_in(path), _with_columns(chain([first], batches), names))
                for path, first, batches in alike
            ]
            parted = dealt(files, parts=len(ranges), part_of=lambda seed: range_of(ranges, seed))
            of_labels = [path for path, _, _ in alike]
            models.append(_parted_model(name, of_labels, stack.enter_context(parted), ranges))
        yield models


def _parted_model(
    name: str, paths: Sequence[Path], parted: PredictionParts, ranges: Sequence[SeedRange]
) -> Model:
    folder = ranges[0].folder

    def parts() -> Iterator[tuple[pa.Table, Coverage]]:
        each = tqdm(ranges, desc=f"counting {name}".rstrip(), unit="part", disable=None)
        for number, seeds in enumerate(each):
            predictions = _concatenate(name, paths, parted.part(number))
            yield predictions, cover_seeds(predictions, seeds)

    with naming_files(paths, beside=folder):
        tally, rows = _tally(parts(), ranges)
    if not parted.is_verified:
        tell_unverified(paths, folder)
    tell_other_order(parted.of_seeds, ", ".join(map(str, paths)))
    found = Parts(tally, rows, len(ranges), parts)
    return Model(name, tuple(paths), read_metadata(paths[0]), found)


def _tally(
    parts: Iterable[tuple[pa.Table, Coverage]], ranges: Sequence[SeedRange]
) -> tuple[Tally, int]:
    """Count what is there and what is missing, and all rows.

    Raises:
        ValueError: there are predictions for problems that the dataset does not have.
    """
    tallies, unknown, n_unknown, rows = [], [], 0, 0
    for predictions, coverage in parts:
        tallies.append(coverage.tally)
        others = coverage.unknown(predictions)
        n_unknown, rows = n_unknown + len(others), rows + len(predictions)
        unknown.append(others.slice(0, EXAMPLES + 1))
    if n_unknown:
        found = pa.concat_tables(unknown).slice(0, EXAMPLES + 1)
        _require_own_seeds(found, ranges)
        require_known(found["variant_id"], n_unknown, rows, ranges[0].folder)
    return reduce(Tally.__add__, tallies), rows


def _require_own_seeds(predictions: pa.Table, ranges: Sequence[SeedRange]) -> None:
    """Raise where predictions for problems of the dataset name other seeds than it does."""
    for seeds in ranges:
        for file in seeds.rows:
            known = seeds.read(file, ["variant_id", "seed_id"])
            rows = pc.index_in(predictions["variant_id"], known["variant_id"].combine_chunks())
            for row, place in enumerate(rows.to_pylist()):
                if place is not None:
                    name, got = (predictions[key][row].as_py() for key in ("variant_id", "seed_id"))
                    raise ValueError(
                        f"expected for {name!r} the seed {known['seed_id'][place].as_py()!r}, as "
                        f"in the dataset, got {got!r}; is this the dataset that the model was run "
                        f"on?"
                    )


def _shared_columns(tables: Sequence[pa.Table]) -> list[str]:
    """List the columns of a model's files: probabilities if all have them, digests if any does."""
    some = {name for table in tables for name in table.column_names}
    lacking = {name for table in tables for name in COLUMNS if name not in table.column_names}
    return [
        name for name in COLUMNS if name in some and (name == TEXT_DIGEST or name not in lacking)
    ]


def _with_columns(tables: Iterable[pa.Table], names: Sequence[str]) -> Iterator[pa.Table]:
    for table in tables:
        if TEXT_DIGEST in names and TEXT_DIGEST not in table.column_names:
            table = table.append_column(TEXT_DIGEST, pa.nulls(len(table), pa.string()))
        yield table.select(names)
