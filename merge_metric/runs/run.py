"""Runs: a model's answers to one configuration, read, joined and counted once.

`score`, `compare`, `analyse` and `report` all start here:

    Source (as users name files) → Model (its predictions beside a dataset) → Run
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from merge_dataset.schema import LABELS
from merge_metric.runs.coverage import Coverage, cover, preview
from merge_metric.runs.join import join
from merge_metric.runs.label_check import tell_other_order
from merge_metric.runs.predictions import model_name, read_metadata, read_predictions
from merge_metric.runs.row_checks import PROBABILITIES, labels_of
from merge_metric.runs.texts import TEXT_DIGEST, UNVERIFIED
from merge_metric.seed_variant_accuracy.counts import SeedCounts, count
from merge_metric.seed_variant_accuracy.inputs import Rows, read_rows

log = logging.getLogger(__name__)

KEPT: Final = ("probabilities", "seed_probabilities", "variant_ids")
"""Columns that runs can keep; the probabilities only where the file has them."""

_IGNORED: Final = ("probabilities", "seed_probabilities", "groups")


# --- Files as users name them ---


@dataclass(frozen=True, slots=True)
class Source:
    """A predictions file as a user names it: `FILE`, `NAME=FILE`, `FILE@DATASET`."""

    model: str
    path: Path
    dataset: Path | None = None


def parse_source(text: str) -> Source:
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
    return Source(name or model_name(path), path, dataset)


# --- Models ---


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model's predictions beside one dataset folder, and what is known of the model."""

    name: str
    paths: tuple[Path, ...]
    """The predictions files, for example one per source."""
    description: Mapping[str, Any]
    """From the first file's metadata; empty where it says nothing."""
    predictions: pa.Table
    coverage: Coverage

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the predictions files."""
        return tuple(path.name for path in self.paths)

    @property
    def folder(self) -> Path:
        """The dataset folder."""
        return self.coverage.folder


def read_models(sources: Iterable[Source], dataset: Path) -> Iterator[Model]:
    """Read the predictions of one or several models beside their dataset folders.

    Files of one name and dataset are parts of one model's answers.

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
    for name, folder, of_model in sources_of_models(sources, dataset):
        by_labels: dict[tuple[str, ...], list[tuple[Path, pa.Table]]] = {}
        for source in of_model:
            table = read_predictions(source.path, folder)
            by_labels.setdefault(labels_of(table), []).append((source.path, table))
        for alike in by_labels.values():
            paths = [path for path, _ in alike]
            predictions = _concatenate(name, paths, [table for _, table in alike])
            yield make_model(name, paths, predictions, folder)


def sources_of_models(
    sources: Iterable[Source], dataset: Path
) -> list[tuple[str, Path, list[Source]]]:
    """Group files by model and dataset folder: its name, the folder, the parts of its answers.

    Arguments as in `read_models`.
    """
    parts: dict[tuple[str, Path], list[Source]] = {}
    for source in sources:
        folder = source.dataset or dataset
        parts.setdefault((source.model, folder.resolve()), []).append(source)
    return [(name, part[0].dataset or dataset, part) for (name, _), part in parts.items()]


def make_model(name: str, paths: Sequence[Path], predictions: pa.Table, folder: Path) -> Model:
    """Put predictions beside a dataset folder; see `Model` for the arguments.

    Raises:
        NotADirectoryError: there is no such folder.
        ValueError: there are predictions for problems that the dataset does not have.
    """
    with naming_files(paths, beside=folder):
        coverage = cover(predictions, folder)
    if TEXT_DIGEST not in predictions.column_names or predictions[TEXT_DIGEST].null_count:
        tell_unverified(paths, folder)
    tell_other_order(predictions, ", ".join(map(str, paths)))
    return Model(name, tuple(paths), read_metadata(paths[0]), predictions, coverage)


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
            f"{name}: expected every problem once in {', '.join(map(str, paths))}, or seeds that "
            f"are answered alike, got {len(twice):,} several times: {preview(twice)}; if these are "
            f"different models, give each a name: NAME=FILE"
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


# --- Runs ---


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One model's answers to one configuration of one dataset."""

    model: str
    config: str
    rows: Rows
    counts: SeedCounts
    """Counts of all rows."""
    groups: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Column of the dataset → one value, or a list of values, per row."""
    dataset: str = ""
    """Name of the dataset folder."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Out of `KEPT`, those that were asked for and are there: an entry per row."""
    folder: Path = Path()
    """The dataset folder itself."""
    n_seeds_left_out: int = 0
    """Seeds left out because predictions are missing."""
    texts: str = ""
    """Digest of the dataset's texts that it answered, or `texts.UNVERIFIED`."""


def make_run(
    model: str,
    config: str,
    columns: Mapping[str, Any],
    *,
    keep: Sequence[str] = (),
    **origin: Any,
) -> Run:
    """Read and count the rows of a configuration.

    Args:
        model: Its name.
        config: Name of the configuration.
        columns: Keyword arguments of `scoring.score`.
        keep: Columns out of `KEPT` that the run keeps.
        origin: Further fields of `Run`.
    """
    rows = read_rows(**{name: column for name, column in columns.items() if name not in _IGNORED})
    kept = {name: columns[name] for name in keep if name in columns}
    groups = columns.get("groups", {})
    return Run(model, config, rows, count(rows), groups=groups, kept=kept, **origin)


def runs_of(
    model: Model,
    configs: Sequence[str] = (),
    *,
    by: Sequence[str] = (),
    cluster: str = "",
    keep: Sequence[str] = (),
    allow_missing: bool = False,
) -> Iterator[Run]:
    """Join and count a model's answers to one configuration after the other.

    Args:
        model: From `read_models`.
        configs: Configurations; by default what the predictions are for (see `join.choose`).
        by: Columns to group variants by (see `join.groupings`).
        cluster: Text by which seeds are clustered for the bootstrap, such as `premise`.
        keep: Columns out of `KEPT` that runs keep.
        allow_missing: Leave out seeds of which a prediction is missing.

    Raises:
        ValueError: the predictions cannot be used (see `join.join`).
    """
    joined = join(
        model.predictions,
        model.coverage,
        configs,
        by=by,
        cluster=cluster,
        allow_missing=allow_missing,
    )
    origin = {"dataset": model.folder.resolve().name, "folder": model.folder}
    with naming_files(model.paths, beside=model.folder):
        for part in joined:
            known = {"n_seeds_left_out": part.n_seeds_left_out, "texts": part.texts}
            yield make_run(model.name, part.config, part.columns, keep=keep, **known, **origin)


def read_runs(
    sources: Sequence[Source],
    dataset: Path,
    configs: Sequence[str] = (),
    *,
    by: Sequence[str] = (),
    cluster: str = "",
    keep: Sequence[str] = (),
    allow_missing: bool = False,
) -> Iterator[Run]:
    """Read the runs of several models, one after the other.

    Args:
        sources: The files; those of one name and dataset are parts of one model's answers.
        dataset: The dataset folder of those that name none.
        configs: Configurations; by default what each model's predictions are for.
        by: As `runs_of` takes it.
        cluster: As `runs_of` takes it.
        keep: As `runs_of` takes it.
        allow_missing: Leave out seeds of which a prediction is missing.

    Raises:
        ValueError: a file cannot be used (see `join.join`), is given twice, or two of one
            model answer the same problems.
    """
    require_different_files(sources)
    for model in tqdm(read_models(sources, dataset), desc="reading", unit="model", disable=None):
        yield from runs_of(
            model, configs, by=by, cluster=cluster, keep=keep, allow_missing=allow_missing
        )


def common_texts(texts: Iterable[str]) -> str:
    """Find what all runs have as `Run.texts`; `texts.UNVERIFIED` where they differ."""
    found = set(texts)
    return found.pop() if len(found) == 1 else UNVERIFIED


def by_config(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Group runs by configuration, in the order given."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.config, []).append(run)
    return found


# --- What runs have in common ---


def common_labels(runs: Sequence[Run]) -> tuple[str, ...]:
    """Find the labels that all runs share; those of NLI without a run.

    Raises:
        ValueError: they differ.
    """
    return same_labels((run.config, run.counts.labels) for run in runs)


def same_labels(configs: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Find the labels that all configurations share; those of NLI without one.

    Args:
        configs: Names of configurations and the labels of their problems.

    Raises:
        ValueError: they differ.
    """
    found = {labels: config for config, labels in configs}
    if len(found) > 1:
        parts = "; ".join(f"{config}: {', '.join(labels)}" for labels, config in found.items())
        raise ValueError(
            f"expected problems with the same labels, got {parts}; name configurations of one "
            f"kind with `config`"
        )
    return next(iter(found), LABELS)


def shared_seeds(counts: Sequence[SeedCounts]) -> list[SeedCounts]:
    """Keep the counts of the seeds that all have, if any."""
    common = set.intersection(*(set(each.seed_ids) for each in counts))
    return [
        each.take(np.array([seed in common for seed in each.seed_ids], bool)) for each in counts
    ]


def on_common_seeds(counts: Sequence[SeedCounts], where: str) -> list[SeedCounts]:
    """Keep the counts of the seeds that all have; log how many that leaves out.

    Args:
        counts: One per model or dataset.
        where: What messages begin with, such as the configuration.

    Raises:
        ValueError: there is no such seed.
    """
    everything = [set(each.seed_ids) for each in counts]
    kept = shared_seeds(counts)
    if not (n_common := len(kept[0].seed_ids)):
        first, second = next(
            (a, b) for a in everything for b in everything if not a & b or a & b != a | b
        )
        raise ValueError(
            f"{where}: expected predictions for the same seeds, got none in common: one has "
            f"{preview(pa.array(sorted(map(str, first))))}, another "
            f"{preview(pa.array(sorted(map(str, second))))}"
        )
    total = len(set.union(*everything))
    if n_common < total:
        log.warning(
            "%s: only the %s seeds that all have are used, out of %s",
            where,
            f"{n_common:,}",
            f"{total:,}",
        )
    return kept


def require_different_files(sources: Sequence[Source]) -> None:
    """Raise ValueError where a predictions file is given twice."""
    paths = [source.path.resolve() for source in sources]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise ValueError(
                f"expected different predictions files, got {sources[number].path} twice"
            )
