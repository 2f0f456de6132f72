"""The figures that rows of analyses share, all of them the metric's own."""

from __future__ import annotations

from typing import Any, Final

from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import Column

THRESHOLDS: Final = (50, 60, 70, 80, 90, 100)
"""CTs at which tables show SV accuracy; plots and JSON have the whole curve."""

_SCALARS: Final = (
    "n_seeds",
    "n_variants",
    "seed_accuracy",
    "variant_accuracy",
    "matching_threshold",
    "matching_threshold_low",
    "matching_threshold_high",
    "holding_threshold",
)

FOOLING: Final = ("strict_fooling_rate", "relaxed_fooling_rate")
"""The rates r_s and r_r of Arakelyan et al. (2024), section 3.2."""


def measures(counts: SeedCounts, *, n_bootstrap: int = 0, rng_seed: int = 0) -> dict[str, Any]:
    """S, variant accuracy, MC and the SV curve of some seeds, averaged over subsamples.

    Args:
        counts: Of at least one seed.
        n_bootstrap: Replicates for the band of the curve; 0 for none.
        rng_seed: Of the bootstrap.

    Returns:
        Plain values by the metric's keys; `sv_at_50` …; `seeds_per_subsample` and
        `variants_per_seed`, in a subsample, on average; `curve`, SV accuracy at CT 1..100, and
        with a bootstrap `curve_low` and `curve_high`.
    """
    summary = summarise(counts, n_bootstrap=n_bootstrap, rng_seed=rng_seed)
    curve = summary["sv_curve"]
    row = {key: summary[key] for key in _SCALARS}
    row |= {f"sv_at_{ct}": curve["accuracy"][ct - 1] for ct in THRESHOLDS}
    n_present = int(counts.present.sum())
    row |= {"seeds_per_subsample": n_present / counts.present.shape[1]}
    row |= {"variants_per_seed": float(counts.n_variants.sum() / n_present)}
    row |= {"curve": curve["accuracy"]}
    return row | {f"curve_{side}": curve[side] for side in ("low", "high") if side in curve}


def fooling(counts: SeedCounts, *, n_bootstrap: int = 0, rng_seed: int = 0) -> dict[str, Any]:
    """How many of the seeds answered right have a variant that fools the model.

    Args:
        counts: Of any seeds, also of none.
        n_bootstrap: Replicates for intervals; 0 for none.
        rng_seed: Of the bootstrap.

    Returns:
        `n_right`, the seeds answered right, and by the keys `FOOLING` the rates and, as
        `*_ci`, their intervals; None where no seed is answered right, or without bootstrap.
    """
    n_right = int(counts.right.sum())
    summary = summarise(counts, n_bootstrap=n_bootstrap, rng_seed=rng_seed) if n_right else {}
    row: dict[str, Any] = {"n_right": n_right}
    for key in FOOLING:
        row |= {name: summary.get(name) for name in (key, f"{key}_ci")}
    return row


def measure_columns(*, with_matching: bool = True) -> tuple[Column, ...]:
    """Columns of what `measures` gives."""
    return (
        Column("n_seeds", "seeds", "count"),
        Column("n_variants", "variants", "count"),
        Column("seed_accuracy", "S", "share"),
        Column("variant_accuracy", "var.acc", "share"),
        *(Column(f"sv_at_{ct}", f"SV@{ct}", "share") for ct in THRESHOLDS),
        *([Column("matching_threshold", "MC", "threshold")] if with_matching else []),
    )
