"""Which word classes are harder, on seeds that have variants of both (paper, 5.2, figure 6)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import combinations

import numpy as np

from merge_dataset.schema import WORD_CLASSES
from merge_metric.analyses.contrasts import contrast_rows, contrast_table
from merge_metric.runs.run import Run
from merge_metric.tables import Table

log = logging.getLogger(__name__)


def word_classes(
    runs: Iterable[Run],
    *,
    matched: bool = False,
    correctness_threshold: int = 90,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
) -> Table:
    """Two rows per model, configuration and pair of classes: variants of each of the two.

    Args:
        runs: Models on configurations of all classes, with the group `word_class`.
        matched: Take equally many variants of each class (see `contrasts.on_shared_seeds`).
        correctness_threshold: CT of the differences.
        n_bootstrap: Replicates for their intervals; 0 for none.
        rng_seed: Of the bootstrap, and of the choice of matched variants.

    Raises:
        ValueError: a configuration of a single class, or no seed has variants of two.
    """
    rows = []
    for run in runs:
        of_row = np.asarray(run.groups.get("word_class", ()), dtype=object)
        classes = [name for name in WORD_CLASSES if (of_row == name).any()]
        if len(classes) < 2:
            raise ValueError(
                f"{run.model}: expected a configuration of several word classes, such as 'snli', "
                f"got {run.config!r}"
            )
        for pair in combinations(classes, 2):
            contrast = " & ".join(pair)
            found = contrast_rows(
                {"config": run.config, "model": run.model, "contrast": contrast},
                run.rows,
                {name: of_row == name for name in pair},
                matched=matched,
                correctness_threshold=correctness_threshold,
                n_bootstrap=n_bootstrap,
                rng_seed=rng_seed,
            )
            if not found:
                log.warning("%s: no seed has variants of %s", run.config, contrast)
            rows += found
    if not rows:
        raise ValueError("expected seeds with variants of two word classes, got none")
    return contrast_table(
        "classes",
        "Word classes on the same seeds: variants by the class of the replaced word",
        rows,
        group="replaced",
        matched=matched,
        correctness_threshold=correctness_threshold,
        notes=(),
    )
