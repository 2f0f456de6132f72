"""Replacements and paraphrases on the same seeds: which of the two fool a model more?"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.schema import PARAPHRASE, parse_config_name
from merge_metric.analyses.contrasts import contrast_rows, contrast_table
from merge_metric.runs.join import preview
from merge_metric.runs.run import Run
from merge_metric.seed_variant_accuracy.inputs import Rows
from merge_metric.tables import Table

log = logging.getLogger(__name__)

_REPLACEMENT = "replacement"


def kinds(
    runs: Iterable[Run],
    *,
    matched: bool = False,
    correctness_threshold: int = 90,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
) -> Table:
    """Two rows per model and source: replacements and paraphrases of the seeds with both.

    Args:
        runs: Models on configurations of paraphrases, such as `snli_paraphrases`, and of
            replacements, such as `snli` or `snli_nouns`.
        matched: Take equally many variants of each (see `contrasts.on_shared_seeds`).
        correctness_threshold: CT of the differences.
        n_bootstrap: Replicates for their intervals; 0 for none.
        rng_seed: Of the bootstrap, and of the choice of matched variants.

    Raises:
        ValueError: no model has both of a source, no seed has both, or answers to the seeds
            themselves differ.
    """
    rows = []
    pairs = _pairs(list(runs))
    for replacements, paraphrases in pairs:
        source, word_class = parse_config_name(replacements.config)
        group = word_class or _REPLACEMENT
        where = f"{replacements.model}, {replacements.config} and {paraphrases.config}"
        together, is_paraphrase = merge_rows(replacements.rows, paraphrases.rows, where)
        contrast = f"{group} & {PARAPHRASE}"
        found = contrast_rows(
            {"config": source, "model": replacements.model, "contrast": contrast},
            together,
            {group: ~is_paraphrase, PARAPHRASE: is_paraphrase},
            matched=matched,
            correctness_threshold=correctness_threshold,
            n_bootstrap=n_bootstrap,
            rng_seed=rng_seed,
        )
        if not found:
            log.warning("%s: no seed has variants of both", where)
        rows += found
    if not rows:
        raise ValueError("expected seeds with replacements and paraphrases, got none")
    return contrast_table(
        "kinds",
        "Replacements and paraphrases on the same seeds",
        rows,
        group="variants",
        matched=matched,
        correctness_threshold=correctness_threshold,
        with_fooling=True,
        notes=(
            "Paraphrases are there for seeds answered right, and count in every subsample of the "
            "replacements. r_s, r_r: the share of seeds answered right of which at least one "
            "variant changes the prediction to the opposite label (r_s), to any other (r_r); both "
            "rise with the number of variants per seed.",
        ),
    )


def _pairs(runs: list[Run]) -> list[tuple[Run, Run]]:
    """The runs on replacements, each with the same model's run on paraphrases of the source."""
    paraphrases: dict[tuple[str, str], Run] = {}
    others = []
    for run in runs:
        source, variant_class = parse_config_name(run.config)
        if variant_class == PARAPHRASE:
            paraphrases[run.model, source] = run
        else:
            others.append(((run.model, source), run))
    if pairs := [(run, paraphrases[key]) for key, run in others if key in paraphrases]:
        return pairs
    got = ", ".join(f"{run.model} on {run.config}" for run in runs)
    raise ValueError(
        f"expected a model's predictions for replacements and for paraphrases of a source, such "
        f"as the configurations snli and snli_paraphrases, got {got}; files of the same model "
        f"must have the same name: NAME=FILE or NAME=FILE@DATASET"
    )


def merge_rows(first: Rows, second: Rows, where: str) -> tuple[Rows, NDArray[np.bool_]]:
    """The rows of two data sets as those of one, on the seeds that both have.

    Where only one of them was subsampled, the other counts as a whole in each subsample.

    Args:
        first: Rows of a model.
        second: Rows of the same model.
        where: What messages begin with.

    Returns:
        The rows, of the first before those of the second, and (n,) which are of the second.

    Raises:
        ValueError: gold labels or answers to the seeds differ, or numbers of subsamples.
    """
    ids: list[Any] = sorted(set(first.seed_ids) & set(second.seed_ids))
    parts = [_on_seeds(rows, ids) for rows in (first, second)]
    for what, one, other in (
        ("gold labels", parts[0].gold, parts[1].gold),
        ("predictions", parts[0].own, parts[1].own),
    ):
        if (differs := one != other).any():
            seeds = pa.array([str(ids[n]) for n in np.flatnonzero(differs)])
            raise ValueError(
                f"{where}: expected the same {what} of the seeds that both have, got others for "
                f"{len(seeds):,} of {len(ids):,} seeds: {preview(seeds)}; are both files of the "
                f"same model, in the same precision?"
            )
    a, b = _in_as_many_subsamples(parts, where)
    n_first = len(a.seed)
    together = replace(
        a,
        seed=np.concatenate([a.seed, b.seed]),
        prediction=np.concatenate([a.prediction, b.prediction]),
        draw_row=np.concatenate([a.draw_row, b.draw_row + n_first]),
        draw_subsample=np.concatenate([a.draw_subsample, b.draw_subsample]),
    )
    return together, np.arange(len(together.seed)) >= n_first


def _on_seeds(rows: Rows, ids: list[Any]) -> Rows:
    """The rows of some seeds, numbered in this order."""
    place = {seed: number for number, seed in enumerate(ids)}
    of_seed = np.array([place.get(seed, -1) for seed in rows.seed_ids], np.int64)
    kept = of_seed[rows.seed] >= 0
    of_row = np.cumsum(kept) - 1
    drawn = kept[rows.draw_row]
    chosen = np.flatnonzero(of_seed >= 0)
    order = chosen[np.argsort(of_seed[chosen])]
    return replace(
        rows,
        seed_ids=tuple(ids),
        gold=rows.gold[order],
        own=rows.own[order],
        seed=of_seed[rows.seed[kept]],
        prediction=rows.prediction[kept],
        draw_row=of_row[rows.draw_row[drawn]],
        draw_subsample=rows.draw_subsample[drawn],
    )


def _in_as_many_subsamples(parts: list[Rows], where: str) -> list[Rows]:
    """Each with the subsamples of the other: a single one is repeated."""
    numbers = [rows.n_subsamples or 1 for rows in parts]
    most = max(numbers)
    if any(number not in (1, most) for number in numbers):
        raise ValueError(
            f"{where}: expected as many subsamples in both, or one in either, got "
            f"{' and '.join(map(str, numbers))}"
        )
    n_subsamples = None if all(rows.n_subsamples is None for rows in parts) else most
    return [
        replace(rows, n_subsamples=n_subsamples)
        if number == most
        else replace(
            rows,
            n_subsamples=n_subsamples,
            draw_row=np.repeat(rows.draw_row, most),
            draw_subsample=np.tile(np.arange(most), len(rows.draw_row)),
        )
        for rows, number in zip(parts, numbers, strict=True)
    ]
