"""Plain data for `merge_dataset.hub` to publish: the metric's example, and a model's figures."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from merge_dataset.hub.dataset import ModelFigure
from merge_metric.frame.joined import JoinOptions, read_file
from merge_metric.frame.predictions import read_metadata
from merge_metric.score import score_all
from merge_metric.seed_variant_accuracy.merging import Merging
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.scoring import score

log = logging.getLogger(__name__)

_ARGUMENTS: Final[dict[str, Any]] = {
    "predictions": ["entailment", "entailment", "entailment", "neutral"],
    "references": ["entailment"] * 4,
    "seed_ids": ["seed 1", "seed 1", "seed 2", "seed 2"],
    "seed_predictions": ["entailment"] * 4,
}
"""Arguments of the example: one of the second seed's two variants is answered wrong."""

_FIGURES: Final = {
    "seed_accuracy": 1.0,
    "variant_accuracy": 0.75,
    "seed_variant_accuracy": 0.5,
    "matching_threshold_low": 1.0,
    "matching_threshold_high": 50.0,
    "relaxed_fooling_rate": 0.5,
    "strict_fooling_rate": 0.0,
}
"""Expected figures of the example, computed by hand."""


def worked_example() -> dict[str, Any]:
    """Compute the example of the metric's card, as `plan_metric` takes it."""
    return {"arguments": _ARGUMENTS, "figures": _FIGURES, "result": score(**_ARGUMENTS)}


def model_figures(
    predictions: Path,
    folder: Path,
    configs: Sequence[str],
    *,
    model: str,
    merge_labels: str | Sequence[str] = (),
) -> dict[str, ModelFigure]:
    """Score a predictions file for the page of a model, OWNER/NAME, by configuration.

    A file that names another model causes a warning.
    """
    name = str(read_metadata(predictions).get("name", ""))
    if name and name != model:
        log.warning(
            "%s says that it is of %s, not of %s: is that the same model?", predictions, name, model
        )
    options = JoinOptions(configs=configs, merging=Merging.parse(merge_labels))
    frames = read_file(predictions, folder, options)
    results = score_all(frames, Settings(), shown=False)
    shares = {
        frame.config: frame.answers[np.arange(len(frame.answers)), frame.counts.gold].sum()
        / frame.answers.sum()
        for frame in frames
    }

    found = {}
    for config, result in results.items():
        of_seeds, sv = (
            round(100 * result[key], 2) for key in ("seed_accuracy", "seed_variant_accuracy")
        )
        low, high = (round(100 * bound, 2) for bound in result["seed_variant_accuracy_ci"])
        found[config] = ModelFigure(
            round(100 * float(shares[config]), 2),
            f"value: accuracy on variants, each once; seed-variant accuracy at 90 % "
            f"{sv}, 95 % interval {low}-{high}; "
            f"accuracy on seeds {of_seeds}; "
            f"{result['n_seeds']} seeds, {result['n_variants']} variants; "
            f"{result['signature_short']}",
        )
    return found
