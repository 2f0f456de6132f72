"""A predictions table and a dataset folder → the columns of `scoring.score`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.layout import (
    all_configurations,
    collections,
    format_in,
    require_dataset,
    split_files,
)
from merge_dataset.schema import LABELS, NLI, SPLITS, ProblemFormat, parse_config_name
from merge_metric.runs.coverage import (
    Coverage,
    check_configurations,
    choose,
    cover,
    read_columns,
    some,
)
from merge_metric.runs.predictions import PROBABILITIES, labels_of

log = logging.getLogger(__name__)


def groupings(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """Columns of the dataset by whose values variants can be grouped."""
    return "word_class", "mlms", *problem_format.mlms, "original", "replacement"


_MANY_GROUPS: Final = 100
"""More make the bootstrap take minutes."""

_IDENTITY: Final = ("variant_id", "seed_id", "label")


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """What `scoring.score` needs of one configuration."""

    config: str
    columns: dict[str, Any]
    """Keyword arguments of `scoring.score`."""
    n_seeds_left_out: int
    """Seeds left out because predictions are missing."""


def join(
    predictions: pa.Table,
    folder: Path,
    configs: Sequence[str] = (),
    *,
    by: Sequence[str] = (),
    allow_missing: bool = False,
) -> list[Joined]:
    """Put predictions beside what the dataset knows of their problems.

    Args:
        predictions: From `predictions.read_predictions`.
        folder: The dataset folder.
        configs: Configurations to score; by default those of `coverage.choose`.
        by: Columns out of `groupings` to group variants by; word classes always are where
            a configuration has all.
        allow_missing: Leave out seeds of which a prediction, their own or that of a
            variant, is missing.

    Returns:
        One per configuration, variants in the order of the dataset.

    Raises:
        NotADirectoryError, ValueError: no dataset folder, unknown configurations or
            columns, predictions for other problems, other gold labels than the dataset's,
            or predictions missing.
    """
    require_dataset(folder)
    formats = dict.fromkeys(format_in(folder, name) for name in collections(folder))
    known = dict.fromkeys(name for each in formats for name in groupings(each))
    if unknown := [name for name in by if name not in known]:
        raise ValueError(
            f"expected columns to group by out of {', '.join(known)}, "
            f"got {', '.join(map(repr, unknown))}"
        )
    coverage = cover(predictions, folder)
    chosen = check_configurations(folder, configs) or choose(coverage)
    joined = [
        _join(predictions, coverage, config, by, allow_missing=allow_missing) for config in chosen
    ]
    _tell_unscored(predictions, coverage, chosen)
    return joined


def _join(
    predictions: pa.Table,
    coverage: Coverage,
    config: str,
    by: Sequence[str],
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
    seeds = read_columns(coverage.folder, files["seeds"], _IDENTITY)
    wanted = (*_IDENTITY, "subsamples", *grouped)
    variants = read_columns(coverage.folder, files["variants"], wanted)
    own, rows = coverage.of(config, "seeds"), coverage.of(config, "variants")
    seed = _seeds_of(variants, seeds, config)
    for split, split_rows in ((seeds, own), (variants, rows)):
        _require_same_identity(predictions, split, split_rows, config)

    complete = (own >= 0) & (np.bincount(seed[rows < 0], minlength=len(seeds)) == 0)
    if not complete.all():
        _judge_missing(coverage, config, seeds, variants, complete, allow_missing=allow_missing)
    kept = complete[seed]
    variants, rows, own_rows = variants.filter(pa.array(kept)), rows[kept], own[seed[kept]]

    columns = _variant_columns(variants, grouped) | _answers(predictions, rows, own_rows)
    return Joined(config, columns, int((~complete).sum()))


def _variant_columns(variants: pa.Table, grouped: Sequence[str]) -> dict[str, Any]:
    """What `scoring.score` needs of the dataset."""
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
    """What `scoring.score` needs of the model: rows of the variants and of their seeds."""
    prediction = predictions["prediction"].to_numpy()
    columns = {"predictions": prediction[rows], "seed_predictions": prediction[own_rows]}
    columns |= label_columns(predictions)
    if PROBABILITIES in predictions.column_names:
        table = probability_table(predictions)
        columns |= {"probabilities": table[rows], "seed_probabilities": table[own_rows]}
    return columns


def label_columns(predictions: pa.Table) -> dict[str, Any]:
    """The labels, where `scoring.score` has to be told them."""
    labels = labels_of(predictions)
    return {} if labels == LABELS else {"labels": labels}


def probability_table(predictions: pa.Table) -> NDArray[np.float64]:
    """The probabilities of a predictions table, (n, labels)."""
    column = predictions[PROBABILITIES].combine_chunks()
    per_row = len(labels_of(predictions))
    table: NDArray[np.float64] = column.flatten().to_numpy().reshape(-1, per_row)
    return table


def _seeds_of(variants: pa.Table, seeds: pa.Table, config: str) -> NDArray[np.int64]:
    """For each variant the row of its seed."""
    found = pc.index_in(variants["seed_id"], value_set=seeds["seed_id"].combine_chunks())
    if found.null_count:
        ids = variants["seed_id"].filter(pc.is_null(found)).unique()
        raise ValueError(
            f"{config}: expected the seed of every variant in the dataset, got none for "
            f"{some(ids)}; the dataset is damaged, see `merge-nli check`"
        )
    seed: NDArray[np.int64] = found.to_numpy().astype(np.int64)
    if (bare := np.bincount(seed, minlength=len(seeds)) == 0).any():
        ids = seeds["seed_id"].filter(pa.array(bare))
        raise ValueError(
            f"{config}: expected variants of every seed in the dataset, got none of "
            f"{some(ids)}; the dataset is damaged, see `merge-nli check`"
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
        if name == "label":
            theirs, ours = labels[theirs], labels[ours]
        raise ValueError(
            f"{config}: expected the {what} that the dataset has in the column {name}, got "
            f"another for {len(given):,} of {there.sum():,} problems: {some(given['variant_id'])}; "
            f"for {first!r} expected {ours!r}, got {theirs!r}: is this the dataset that the "
            f"model was run on, and are the labels {', '.join(labels)} in this order?"
        )


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
    raise ValueError(
        f"{config}: {missing}: {some(ids)}; {advice}{_less_incomplete(coverage, config)}"
    )


def _less_incomplete(coverage: Coverage, config: str) -> str:
    """Other configurations that lack less, for the end of a message."""

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
