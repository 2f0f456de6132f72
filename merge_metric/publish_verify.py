"""Loads the metric from its Space and computes the example of its card.

A process of its own (see `merge_dataset.hub.fresh`):
`python -m merge_metric.publish_verify OWNER/NAME`. Prints the figures as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from merge_metric.seed_variant_accuracy.scoring import score

EXAMPLE: Final[dict[str, Any]] = {
    "predictions": ["entailment", "entailment", "entailment", "neutral"],
    "references": ["entailment"] * 4,
    "seed_ids": ["seed 1", "seed 1", "seed 2", "seed 2"],
    "seed_predictions": ["entailment"] * 4,
}
"""Of the second seed's two variants, one is answered wrong."""

FIGURES: Final = {
    "seed_accuracy": 1.0,
    "variant_accuracy": 0.75,
    "seed_variant_accuracy": 0.5,
    "matching_threshold_low": 1.0,
    "matching_threshold_high": 50.0,
    "relaxed_fooling_rate": 0.5,
    "strict_fooling_rate": 0.0,
}
"""By hand."""


def verify(name: str) -> dict[str, float]:
    """Figures of the example by the metric of that name.

    Raises:
        ValueError: they are others; or anything that `evaluate.load` raises.
    """
    import evaluate

    result = evaluate.load(name).compute(**EXAMPLE)
    figures = {key: result.get(key) for key in FIGURES}
    if figures != FIGURES:
        raise ValueError(f"expected {FIGURES}, got {figures}")
    if result != score(**EXAMPLE):
        raise ValueError("expected the figures of this version, got those of another")
    return figures


def main() -> None:
    """The command."""
    (name,) = sys.argv[1:]
    try:
        figures = verify(name)
    except Exception as error:  # whatever loading raises: the caller shows this one line
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main()
