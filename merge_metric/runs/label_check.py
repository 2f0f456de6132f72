"""Whether predictions for seeds would fit the gold labels far better in another order of labels."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_metric.models.label_order import MOST_LABELS, OrderCheck, check_order
from merge_metric.runs.join import probability_table
from merge_metric.runs.row_checks import ANSWERS, PROBABILITIES, labels_of
from merge_metric.seed_variant_accuracy.options import SUM_TOLERANCE

log = logging.getLogger(__name__)


def check_seeds(batches: Iterable[pa.Table], labels: Sequence[str]) -> OrderCheck | None:
    """Compare the order of labels with the seeds' gold labels; None where that is not possible.

    Args:
        batches: Predictions, with `variant_id`, `seed_id`, and `label` and `prediction` as
            positions among the labels.
        labels: Of the problems.
    """
    if len(labels) > MOST_LABELS:
        return None
    seeds = pa.concat_tables(
        batch.select(list(ANSWERS)).filter(pc.equal(batch["variant_id"], batch["seed_id"]))
        for batch in batches
    )
    if not len(seeds):
        return None
    return check_order(seeds["prediction"].to_numpy(), seeds["label"].to_numpy(), len(labels))


def tell_other_order(predictions: pa.Table, where: str) -> None:
    """Warn of predictions that look as if their labels stood in another order.

    Args:
        predictions: As `check_seeds` takes them.
        where: What the message begins with, such as the name of the file.
    """
    labels = labels_of(predictions)
    check = check_seeds([predictions], labels)
    if check is None or not check.suspicious:
        return
    log.warning(
        "%s: warning: right on %.0f %% of %s seeds, and would be on %.0f %% if %s meant %s: are "
        "the model's labels in another order? Predictions given by name leave no doubt",
        where,
        100 * check.accuracy,
        f"{check.seeds:,}",
        100 * check.best_accuracy,
        ", ".join(labels),
        ", ".join(labels[i] for i in check.best),
    )


def tell_other_probabilities(batches: Iterable[pa.Table], path: Path) -> Iterator[pa.Table]:
    """Pass predictions on; warn at the end of probabilities that favour other labels."""
    others, rows = 0, 0
    labels: tuple[str, ...] = ()
    for predictions in batches:
        if PROBABILITIES in predictions.column_names:
            table = probability_table(predictions)
            predicted = table[np.arange(len(table)), predictions["prediction"].to_numpy()]
            others += int((predicted < table.max(axis=1) - SUM_TOLERANCE).sum())
        rows, labels = rows + len(predictions), labels_of(predictions)
        yield predictions
    if others:
        log.warning(
            "%s: in %s of %s rows another label than the prediction is the most probable one; "
            "are the probabilities in the order %s?",
            path,
            f"{others:,}",
            f"{rows:,}",
            ", ".join(labels),
        )
