"""The metric's figures that rows of analyses share, and averages of rows."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.schema import ANLI_SOURCES, parse_config_name
from merge_metric.analyses.registry import ANALYSES, TEXTS
from merge_metric.frame.joined import Frame
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import MATCHING_RANGE
from merge_metric.seed_variant_accuracy.figures import Floats as Floats
from merge_metric.seed_variant_accuracy.inputs import Clusters
from merge_metric.seed_variant_accuracy.inputs import Ints as Ints
from merge_metric.seed_variant_accuracy.options import NO_INTERVALS, Settings
from merge_metric.seed_variant_accuracy.resampling import interval, seed_weights
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import Texts
from merge_metric.tables.plots import distinct, grouped

THRESHOLDS: Final = (50, 60, 70, 80, 90, 100)
"""CTs at which rows have SV accuracy; plots and JSON have the whole curve."""

_SCALARS: Final = (
    "n_seeds",
    "n_variants",
    "seed_accuracy",
    "variant_accuracy",
    "matching_threshold",
    *MATCHING_RANGE,
    "holding_threshold",
)

Row = dict[str, Any]
Bools = NDArray[np.bool_]

FOOLING: Final = ("strict_fooling_rate", "relaxed_fooling_rate")
"""The rates r_s and r_r of Arakelyan et al. (2024), section 3.2."""


titled: Final = Texts(lambda name: TEXTS.get(name) or ANALYSES[name].text).table
"""Function that makes the table of an analysis, with the title and the notes of its text."""


def sums_by(first: Ints, second: Ints, shape: tuple[int, int], *values: Floats | Bools) -> Floats:
    """Sum columns of values, (n,), by two groupings with numbers of groups `shape`: (G, H, K)."""
    sums = np.zeros((*shape, len(values)))
    for k, column in enumerate(values):
        np.add.at(sums[:, :, k], (first, second), column)
    return sums


def intervals(
    of: Callable[[Floats], Mapping[Any, Floats]],
    n_seeds: int,
    settings: Settings,
    clusters: Clusters | None = None,
) -> dict[Any, list[float] | None]:
    """Find 95 % intervals of figures over resampled seeds; none without replicates.

    `of` maps weights of seeds, (b, S), a block of replicates, to figures, (b,). An interval is None
    where the figure is undefined in all replicates.
    """
    parts = [of(weights) for weights in seed_weights(n_seeds, settings, clusters)]
    bounds = {
        key: interval(np.concatenate([part[key] for part in parts])).tolist()
        for key in (parts[0] if parts else ())
    }
    return {key: None if np.isnan(pair).any() else pair for key, pair in bounds.items()}


def identity(frame: Frame) -> Row:
    """Begin the row of a frame: its configuration and its model."""
    return {"config": frame.config, "model": frame.model}


def measures(counts: SeedCounts, settings: Settings = NO_INTERVALS) -> Row:
    """Compute S, variant accuracy, MC and the SV curve (CT 1–100), averaged over subsamples."""
    (summary,) = summarise([counts], settings)
    curve = summary["sv_curve"]
    row = {key: summary[key] for key in _SCALARS}
    row |= {f"sv_at_{ct}": curve["accuracy"][ct - 1] for ct in THRESHOLDS}
    n_present = int(counts.present.sum())
    row |= {"seeds_per_subsample": n_present / counts.present.shape[1]}
    row |= {"variants_per_seed": float(counts.n_variants.sum() / n_present)}
    row |= {"curve": curve["accuracy"]}
    return row | {f"curve_{side}": curve[side] for side in ("low", "high") if side in curve}


def fooling_of(counts: SeedCounts, settings: Settings | None = None) -> Row:
    """Compute the rates `FOOLING` over seeds answered right, None if none is; `*_ci` if asked."""
    n_right = int(counts.right.sum())
    summary = summarise([counts], settings or NO_INTERVALS)[0] if n_right else {}
    ends = ("", "_ci") if settings else ("",)
    return {"n_right": n_right} | {
        f"{key}{end}": summary.get(f"{key}{end}") for key in FOOLING for end in ends
    }


def values_of_models(
    option: str, texts: Sequence[str], models: Sequence[str], example: str, pattern: str = ".+"
) -> dict[str, str]:
    """Read an option given as NAME=VALUE, once for each of some models with predictions."""
    values: dict[str, str] = {}
    for text in texts:
        model, _, value = text.rpartition("=")
        is_value = re.fullmatch(pattern, value, re.IGNORECASE)
        if not is_value or model not in models or values.setdefault(model, value) != value:
            raise ValueError(
                f"{option}: expected NAME=VALUE, such as {example}, once for each of "
                f"{', '.join(models)}, got {text!r}"
            )
    return values


# --- Averages ---

MEAN: Final = "(mean)"

MODELS: Final = "models"
ROUNDS: Final = "rounds"
CONFIGS: Final = "configurations"
"""Values of `averaged`: the things over which a row is an average."""


def weighted_mean(
    values: Iterable[float | None], weights: Iterable[float] | None = None
) -> float | None:
    """Average the values that are not None; None where their weights sum to 0."""
    pairs = zip(values, weights or repeat(1.0), strict=weights is not None)
    known = [(value, weight) for value, weight in pairs if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def per_config(
    rows: Iterable[Mapping[str, Any]],
    means: Sequence[str],
    sums: Sequence[str] = (),
    *,
    merge_rounds: bool = True,
) -> list[Row]:
    """Average `means` and add up `sums` of rows: over models, with `merge_rounds` over ANLI's too.

    Rows of several models have `averaged` set, rows of one model None.
    """

    def merged(config: str, parts: Sequence[Mapping[str, Any]], over: str) -> Row:
        model = MEAN if len(distinct(parts, "model")) > 1 else parts[0]["model"]
        row = {"config": config, "model": model, "averaged": over if len(parts) > 1 else None}
        row |= {key: sum(part[key] for part in parts) for key in sums}
        return row | {key: weighted_mean(part[key] for part in parts) for key in means}

    of_configs: dict[str, list[Row]] = {}
    own = [row for row in rows if row["averaged"] is None]
    for config, group in grouped(own, "config").items():
        name, (source, _) = config, parse_config_name(config)
        if merge_rounds and source in ANLI_SOURCES:
            name = "anli" + config.removeprefix(source)  # such as anli_paraphrases
        of_configs.setdefault(name, []).append(merged(config, group, MODELS))
    return [
        merged(config, rounds, ROUNDS) if rounds[1:] else rounds[0]
        for config, rounds in of_configs.items()
    ]
