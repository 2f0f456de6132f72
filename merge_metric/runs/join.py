"""Predictions beside a dataset: what a file answers, what that is for, the columns to score."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.files import read_table
from merge_dataset.layout import (
    all_configurations,
    collections,
    configurations,
    format_in,
    require_configurations,
    require_dataset,
    sources,
    split_files,
)
from merge_dataset.schema import (
    LABELS,
    NLI,
    PARAPHRASE,
    SPLITS,
    ProblemFormat,
    collection_name,
    parse_config_name,
)
from merge_metric.runs.row_checks import PROBABILITIES, labels_of
from merge_metric.runs.texts import TEXT_DIGEST, UNVERIFIED, combined, from_hex, text_digests

log = logging.getLogger(__name__)

_EXAMPLES: Final = 3

_MANY_GROUPS: Final = 100
"""More make the bootstrap take minutes."""

_IDENTITY: Final = ("variant_id", "seed_id", "label")


# --- Coverage ---


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """The dataset's problems in a predictions file."""

    folder: Path
    rows: Mapping[str, NDArray[np.int64]]
    """File of the dataset → for each of its rows the row of the predictions, or -1."""

    def of(self, config: str, split: str) -> NDArray[np.int64]:
        """Find each problem of a split: its row in the predictions, or -1."""
        files = split_files(self.folder, config)[split]
        return np.concatenate([self.rows[file] for file in files] or [np.empty(0, np.int64)])

    def n_missing(self, config: str, split: str) -> int:
        """Count the problems of a split that have no prediction."""
        return int((self.of(config, split) < 0).sum())

    def is_complete(self, config: str) -> bool:
        """Whether every problem of a configuration has its prediction."""
        return not any(self.n_missing(config, split) for split in SPLITS)

    def describe_missing(self, config: str) -> str:
        """Say how much a configuration lacks: "3 of 10 seeds and 4 of 20 variants"."""
        return " and ".join(
            f"{self.n_missing(config, split):,} of {len(self.of(config, split)):,} {split}"
            for split in SPLITS
        )


def cover(predictions: pa.Table, folder: Path) -> Coverage:
    """Find every problem of a dataset folder in a predictions table.

    Raises:
        NotADirectoryError, ValueError: `folder` is no dataset folder, or there are
            predictions for problems that it does not hold.
    """
    require_dataset(folder)
    files = dict.fromkeys(
        file
        for config in all_configurations(folder)
        for split in SPLITS
        for file in split_files(folder, config)[split]
    )
    ids = [read_columns(folder, [file], ["variant_id"])["variant_id"] for file in files]
    every = pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string())
    found = pc.index_in(every, value_set=predictions["variant_id"].combine_chunks())
    rows = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    _require_known(predictions, rows, folder)
    ends = np.cumsum([len(column) for column in ids])
    return Coverage(folder, dict(zip(files, np.split(rows, ends[:-1]), strict=True)))


def choose(coverage: Coverage) -> list[str]:
    """Choose the configurations that a predictions file is meant for.

    For each source that it mentions: all word classes, where every prediction is there or
    some of every class; else the classes of which it has variants, complete or not, so
    that a file cut short is noticed. Also the paraphrases, where it has some: their seeds
    alone, which replacements may share, do not mean them.
    """
    chosen = []
    for source in sources(coverage.folder):
        names = (collection_name(source), collection_name(source, PARAPHRASE))
        of_source = [
            configurations(coverage.folder, name)
            for name in collections(coverage.folder)
            if name in names
        ]
        begun = [config for configs in of_source for config in _begun(coverage, configs)]
        # A file with nothing but seeds was cut short, too.
        chosen += begun or [
            everything
            for everything, *_ in of_source
            if (coverage.of(everything, "seeds") >= 0).any()
        ]
    return chosen


def _begun(coverage: Coverage, configs: Sequence[str]) -> list[str]:
    """Choose among a collection's configurations, the whole one first, those predicted."""
    everything, *classes = configs
    parts = classes or [everything]
    begun = [config for config in parts if (coverage.of(config, "variants") >= 0).any()]
    return [everything] if coverage.is_complete(everything) or begun == parts else begun


def check_configurations(folder: Path, configs: Sequence[str]) -> list[str]:
    """Check the configurations asked for; each once.

    Raises:
        ValueError: the folder has no such configuration.
    """
    known = all_configurations(folder)
    require_configurations(folder, known, configs)
    return list(dict.fromkeys(configs))


def read_columns(folder: Path, files: Sequence[str], names: Sequence[str]) -> pa.Table:
    """Read some columns of some files of a dataset folder, one after the other.

    Raises:
        ValueError: a file cannot be read, or lacks a column.
    """
    tables = []
    for file in files:
        try:
            tables.append(read_table(folder / file, names).select(names))
        except FileNotFoundError as error:
            raise ValueError(f"{folder / file}: expected a file, found none") from error
        except KeyError as error:
            raise ValueError(
                f"{folder / file}: expected the columns {', '.join(names)}, got none called "
                f"{error.args[0]}; `merge-nli check {folder}` says more"
            ) from error
        except ValueError as error:
            raise ValueError(f"{error}; `merge-nli check {folder}` says more") from error
    return pa.concat_tables(tables)


def preview(values: Any) -> str:
    """Show the first few values of a column, and that there are more.

    >>> preview(pa.array(["a", "b", "c", "d"]))
    "'a', 'b', 'c', …"
    """
    shown = ", ".join(repr(value.as_py()) for value in values[:_EXAMPLES])
    return f"{shown}, …" if len(values) > _EXAMPLES else shown


def _require_known(predictions: pa.Table, rows: NDArray[np.int64], folder: Path) -> None:
    unknown = np.ones(len(predictions), bool)
    unknown[rows[rows >= 0]] = False
    if not unknown.any():
        return
    ids = predictions["variant_id"].filter(pa.array(unknown))
    raise ValueError(
        f"expected predictions for problems of the dataset {folder}, got {len(ids):,} of "
        f"{len(predictions):,} for ids that none of its configurations holds: {preview(ids)}; "
        f"give the dataset that the model was run on"
    )


# --- Joining ---


def groupings(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """List the columns of the dataset by whose values variants can be grouped."""
    return "word_class", "mlms", *problem_format.mlms, "original", "replacement"


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """One configuration's columns for `scoring.score`."""

    config: str
    columns: dict[str, Any]
    """Keyword arguments of `scoring.score`."""
    n_seeds_left_out: int
    """Seeds left out because predictions are missing."""
    texts: str
    """Digest of the configuration's texts in the dataset, or `texts.UNVERIFIED`."""


def join(
    predictions: pa.Table,
    coverage: Coverage,
    configs: Sequence[str] = (),
    *,
    by: Sequence[str] = (),
    cluster: str = "",
    allow_missing: bool = False,
) -> Iterator[Joined]:
    """Put predictions beside what the dataset knows of their problems.

    Args:
        predictions: From `predictions.read_predictions`.
        coverage: Of these predictions.
        configs: Configurations to score; by default those of `choose`.
        by: Columns out of `groupings` to group variants by; word classes always are where
            a configuration has all.
        cluster: Text by which seeds are clustered, such as `premise`; see `require_text`.
        allow_missing: Leave out seeds of which a prediction, their own or that of a
            variant, is missing.

    Yields:
        One per configuration, variants in the order of the dataset.

    Raises:
        ValueError: unknown configurations or columns, predictions for other texts or with other
            gold labels than the dataset's, or predictions missing.
    """
    folder = coverage.folder
    formats = dict.fromkeys(format_in(folder, name) for name in collections(folder))
    known = dict.fromkeys(name for each in formats for name in groupings(each))
    if unknown := [name for name in by if name not in known]:
        raise ValueError(
            f"expected columns to group by out of {', '.join(known)}, "
            f"got {', '.join(map(repr, unknown))}"
        )
    chosen = check_configurations(folder, configs) or choose(coverage)
    for config in chosen:
        if cluster:
            require_text(folder, config, cluster)
    for config in chosen:
        yield _join(predictions, coverage, config, by, cluster, allow_missing=allow_missing)
    _tell_unscored(predictions, coverage, chosen)


def _join(
    predictions: pa.Table,
    coverage: Coverage,
    config: str,
    by: Sequence[str],
    cluster: str,
    *,
    allow_missing: bool,
) -> Joined:
    problem_format = format_in(coverage.folder, config)
    if (got := labels_of(predictions)) != problem_format.labels:
        raise ValueError(
            f"{config}: expected predictions out of the labels {', '.join(problem_format.labels)}, "
            f"got {', '.join(got)}"
        )
    classes = () if parse_config_name(config)[1] else ("word_class",)
    chosen = [name for name in by if name in groupings(problem_format)]
    grouped = tuple(dict.fromkeys((*classes, *chosen)))
    files = split_files(coverage.folder, config)
    texts_of_seeds = (*_IDENTITY, cluster) if cluster else _IDENTITY
    seeds = read_columns(coverage.folder, files["seeds"], texts_of_seeds)
    wanted = (*_IDENTITY, "subsamples", *grouped)
    variants = read_columns(coverage.folder, files["variants"], wanted)
    own, rows = coverage.of(config, "seeds"), coverage.of(config, "variants")
    seed = _seeds_of(variants, seeds, config, coverage.folder)
    for split, split_rows in ((seeds, own), (variants, rows)):
        _require_same_identity(predictions, split, split_rows, config)
    texts = _require_same_texts(predictions, coverage, config)

    complete = (own >= 0) & (np.bincount(seed[rows < 0], minlength=len(seeds)) == 0)
    if not complete.all():
        _judge_missing(coverage, config, seeds, variants, complete, allow_missing=allow_missing)
    kept = complete[seed]
    variants, rows, own_rows = variants.filter(pa.array(kept)), rows[kept], own[seed[kept]]

    columns = _variant_columns(variants, grouped) | _answers(predictions, rows, own_rows)
    if cluster:
        columns["clusters"] = {cluster: text_codes(seeds[cluster])[seed[kept]]}
    return Joined(config, columns, int((~complete).sum()), texts)


def require_text(folder: Path, config: str, cluster: str) -> None:
    """Raise unless the problems of a configuration have a text of that name.

    Raises:
        ValueError: they have not.
    """
    known = format_in(folder, config).fields
    if cluster not in known:
        raise ValueError(
            f"expected seeds to be clustered by a text of theirs, {' or '.join(known)}, got "
            f"{cluster!r} for {config}"
        )


def text_codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Number texts, the same number for equal ones."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    codes: NDArray[np.int64] = encoded.indices.to_numpy().astype(np.int64)
    return codes


def _variant_columns(variants: pa.Table, grouped: Sequence[str]) -> dict[str, Any]:
    """Take columns for `scoring.score` from the dataset."""
    columns: dict[str, Any] = {
        "references": variants["label"].to_numpy(),
        "seed_ids": variants["seed_id"].to_pylist(),
        "variant_ids": variants["variant_id"].to_pylist(),
    }
    if grouped:
        columns["groups"] = {name: variants[name].to_pylist() for name in grouped}
    for name in grouped:
        values = variants[name]
        many = pc.list_flatten(values) if pa.types.is_list(values.type) else values
        if (n_values := pc.count_distinct(many).as_py()) > _MANY_GROUPS:
            log.info("%s has %s values; without bootstrap they are scored sooner", name, n_values)
    if len(pc.list_flatten(variants["subsamples"])):
        columns["subsamples"] = variants["subsamples"].to_pylist()
    return columns


def _answers(
    predictions: pa.Table, rows: NDArray[np.int64], own_rows: NDArray[np.int64]
) -> dict[str, Any]:
    """Take columns for `scoring.score` from the model, by rows of variants and their seeds."""
    prediction = predictions["prediction"].to_numpy()
    columns = {"predictions": prediction[rows], "seed_predictions": prediction[own_rows]}
    columns |= label_columns(predictions)
    if PROBABILITIES in predictions.column_names:
        table = probability_table(predictions)
        columns |= {"probabilities": table[rows], "seed_probabilities": table[own_rows]}
    return columns


def label_columns(predictions: pa.Table) -> dict[str, Any]:
    """Make the keyword `labels` of `scoring.score`, where it has to be told them."""
    labels = labels_of(predictions)
    return {} if labels == LABELS else {"labels": labels}


def probability_table(predictions: pa.Table) -> NDArray[np.float64]:
    """Read the probabilities of a predictions table, (n, labels)."""
    column = predictions[PROBABILITIES].combine_chunks()
    per_row = len(labels_of(predictions))
    table: NDArray[np.float64] = column.flatten().to_numpy().reshape(-1, per_row)
    return table


def _seeds_of(variants: pa.Table, seeds: pa.Table, config: str, folder: Path) -> NDArray[np.int64]:
    """Find for each variant the row of its seed."""
    found = pc.index_in(variants["seed_id"], value_set=seeds["seed_id"].combine_chunks())
    if found.null_count:
        ids = variants["seed_id"].filter(pc.is_null(found)).unique()
        raise ValueError(
            f"{folder}: {config}: expected the seed of every variant in the dataset, got none for "
            f"{preview(ids)}; the dataset is damaged: `merge-nli check {folder}` says more"
        )
    seed: NDArray[np.int64] = found.to_numpy().astype(np.int64)
    if (bare := np.bincount(seed, minlength=len(seeds)) == 0).any():
        ids = seeds["seed_id"].filter(pa.array(bare))
        raise ValueError(
            f"{folder}: {config}: expected variants of every seed in the dataset, got none of "
            f"{preview(ids)}; the dataset is damaged: `merge-nli check {folder}` says more"
        )
    return seed


def _require_same_identity(
    predictions: pa.Table, problems: pa.Table, rows: NDArray[np.int64], config: str
) -> None:
    """Raise where a prediction names another seed or gold label than the dataset does."""
    there, labels = rows >= 0, labels_of(predictions)
    given, known = predictions.take(rows[there]), problems.filter(pa.array(there))
    for name, what in (("seed_id", "seed"), ("label", "gold label")):
        differs = pc.not_equal(given[name], known[name])
        if not pc.any(differs).as_py():
            continue
        given, known = given.filter(differs), known.filter(differs)
        first, theirs, ours = (
            column[0].as_py() for column in (given["variant_id"], given[name], known[name])
        )
        asked = "is this the dataset that the model was run on"
        if name == "label":
            theirs, ours = labels[theirs], labels[ours]
            asked += f", and are the labels {', '.join(labels)} in this order"
        raise ValueError(
            f"{config}: expected the {what} that the dataset has in the column {name}, got "
            f"another for {len(given):,} of {there.sum():,} problems: "
            f"{preview(given['variant_id'])}; "
            f"for {first!r} expected {ours!r}, got {theirs!r}: {asked}?"
        )


def _require_same_texts(predictions: pa.Table, coverage: Coverage, config: str) -> str:
    """Raise where a model was asked about other texts than the dataset has.

    Returns:
        As `Joined.texts`.
    """
    if TEXT_DIGEST not in predictions.column_names:
        return UNVERIFIED
    given, is_given = from_hex(predictions[TEXT_DIGEST])
    known = {split: _texts_of(coverage.folder, config, split) for split in SPLITS}
    other, unknown = [], False
    for split, digests in known.items():
        rows = coverage.of(config, split)
        asked = rows[rows >= 0]
        unknown |= not is_given[asked].all()
        other.append(asked[is_given[asked] & (given[asked] != digests[rows >= 0])])
    if len(differ := np.concatenate(other)):
        ids = predictions["variant_id"].take(pa.array(differ))
        asked_about = sum(int((coverage.of(config, split) >= 0).sum()) for split in SPLITS)
        raise ValueError(
            f"{config}: expected predictions for the texts of the dataset {coverage.folder}, got "
            f"predictions for other texts of {len(differ):,} of {asked_about:,} problems: "
            f"{preview(ids)}; give the dataset that the model was run on, or run the model on "
            f"this one"
        )
    return UNVERIFIED if unknown else combined(np.concatenate(list(known.values())))


def _texts_of(folder: Path, config: str, split: str) -> NDArray[np.uint64]:
    """Digest the texts of a split's problems, in the order of the dataset."""
    fields = format_in(folder, config).fields
    digests = [
        _texts_in(folder, file, fields, (folder / file).stat().st_mtime_ns)
        for file in split_files(folder, config)[split]
    ]
    return np.concatenate(digests or [np.empty(0, np.uint64)])


@lru_cache(maxsize=256)
def _texts_in(
    folder: Path, file: str, fields: tuple[str, ...], modified: int
) -> NDArray[np.uint64]:
    """Digest the texts of a file once for all models, unless it was `modified` since."""
    return text_digests(read_columns(folder, [file], ("variant_id", *fields)), fields)


def _judge_missing(
    coverage: Coverage,
    config: str,
    seeds: pa.Table,
    variants: pa.Table,
    complete: NDArray[np.bool_],
    *,
    allow_missing: bool,
) -> None:
    """Raise about missing predictions, or tell of the seeds left out."""
    missing = f"predictions are missing for {coverage.describe_missing(config)}"
    if complete.any() and allow_missing:
        log.warning(
            "%s: %s of %s seeds are left out: %s",
            config,
            f"{(~complete).sum():,}",
            f"{len(seeds):,}",
            missing,
        )
        return
    ids = pa.chunked_array(
        [
            chunk
            for split, table in (("seeds", seeds), ("variants", variants))
            for chunk in table["variant_id"].filter(coverage.of(config, split) < 0).chunks
        ]
    )
    advice = f"--allow-missing scores the complete seeds, {complete.sum():,} of {len(seeds):,}"
    if not complete.any():
        advice = "no seed has all of its predictions"
    if coverage.n_missing(config, "seeds") == len(seeds):
        advice += "; a seed's own prediction is the row whose variant_id is the seed's id"
    else:
        advice += _less_incomplete(coverage, config)
    raise ValueError(f"{config}: {missing}: {preview(ids)}; {advice}")


def _less_incomplete(coverage: Coverage, config: str) -> str:
    """Name other configurations that lack less, for the end of a message."""

    def missing(name: str) -> int:
        return sum(coverage.n_missing(name, split) for split in SPLITS)

    better = [
        f"{name} ({coverage.describe_missing(name) + ' missing' if missing(name) else 'complete'})"
        for name in all_configurations(coverage.folder)
        if missing(name) < missing(config) and (coverage.of(name, "variants") >= 0).any()
    ]
    return f"; with --config: {', '.join(better)}" if better else ""


def _tell_unscored(predictions: pa.Table, coverage: Coverage, configs: Iterable[str]) -> None:
    """Say how many predictions belong to other configurations only."""
    unscored = np.ones(len(predictions), bool)
    for config in configs:
        for split in SPLITS:
            rows = coverage.of(config, split)
            unscored[rows[rows >= 0]] = False
    if unscored.any():
        log.info(
            "%s of %s predictions belong to other configurations and are not scored",
            f"{unscored.sum():,}",
            f"{len(predictions):,}",
        )
