"""Variants with their signals, and what a model and annotators make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from merge_dataset.annotation.answers import Answer, good
from merge_dataset.annotation.transfer import read_answers
from merge_dataset.layout import split_files
from merge_metric.runs.join import read_columns
from merge_metric.runs.run import Run

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What annotators say of a variant, averaged over them."""

    fluency: float
    """1–5"""
    reasoning: float
    """1–5"""
    good: float
    """1 where it is (`annotation.answers.good`), else 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """One signal of n variants."""

    name: str
    values: Floats
    """(n,) 0 and 1 for no and yes, NaN where it is not known or does not apply."""
    is_answer: bool
    """Whether it is no or yes."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """The n distinct variants of a configuration."""

    config: str
    model: str | None
    """Whose predictions there are, if any."""
    seed: Ints
    """(n,) numbers from 0 to n_seeds − 1."""
    n_seeds: int
    signals: tuple[Signal, ...]
    right: NDArray[np.bool_] | None
    """(n,) whether the model answers the variant right."""
    judgements: Mapping[str, Floats]
    """(n,) `fluency`, `reasoning`, `good`; NaN where nobody judged. Empty without annotations."""


def read_judgements(paths: Sequence[Path | str]) -> dict[str, Judgement]:
    """Variant → what annotators say of it.

    Args:
        paths: Of `annotation.answers.read_answers`.

    Raises:
        ValueError: there are no answers, or a file is malformed.
    """
    answers: dict[str, list[Answer]] = {}
    for row in read_answers(paths).to_pylist():
        answer = Answer(row["variant_id"], row["fluency"], row["reasoning"])
        answers.setdefault(answer.variant_id, []).append(answer)
    if not answers:
        raise ValueError(f"{', '.join(map(str, paths))}: expected annotations, found none")
    return {
        variant: Judgement(
            fluency=float(np.mean([answer.fluency for answer in mine])),
            reasoning=float(np.mean([answer.reasoning for answer in mine])),
            good=float(good(sum(each.fluency + each.reasoning for each in mine), len(mine))),
        )
        for variant, mine in answers.items()
    }


def observe(
    folder: Path,
    config: str,
    judgements: Mapping[str, Judgement] | None = None,
    run: Run | None = None,
) -> Observed:
    """The variants of a configuration, or those of a run on it.

    Args:
        folder: The dataset folder.
        config: The configuration.
        judgements: By variant.
        run: Keeps `variant_ids`.
    """
    files = split_files(folder, config)["variants"]
    names = signal_names(folder, files)
    variants = read_columns(folder, files, ("variant_id", "seed_id", *names))
    right = None
    if run is not None:
        ids = pa.array(run.kept["variant_ids"], pa.string())
        variants = variants.take(pc.index_in(ids, variants["variant_id"].combine_chunks()))
        right = run.rows.prediction == run.rows.gold[run.rows.seed]
    seeds = variants["seed_id"].combine_chunks().dictionary_encode()
    ids = variants["variant_id"].to_pylist()
    return Observed(
        config=config,
        model=run.model if run else None,
        seed=seeds.indices.to_numpy().astype(np.int64),
        n_seeds=len(seeds.dictionary),
        signals=tuple(_signal(name, variants[name]) for name in names),
        right=right,
        judgements=_judged(ids, judgements) if judgements is not None else {},
    )


def signal_names(folder: Path, files: Sequence[str]) -> list[str]:
    """The columns of a dataset that are signals."""
    columns: list[str] = pq.read_schema(folder / files[0]).names
    return columns[columns.index("log_odds") : columns.index("subsamples")]


def _signal(name: str, column: pa.ChunkedArray) -> Signal:
    values = pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy()
    return Signal(name, values, pa.types.is_boolean(column.type))


def _judged(ids: Sequence[str], judgements: Mapping[str, Judgement]) -> dict[str, Floats]:
    found = [judgements.get(variant) for variant in ids]
    return {
        name: np.array([np.nan if each is None else getattr(each, name) for each in found])
        for name in ("fluency", "reasoning", "good")
    }
