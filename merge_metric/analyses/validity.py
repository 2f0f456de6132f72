"""Are models fooled by bad variants? Figures on good variants, beside those on bad ones and on all.

Where only some variants were judged, predictions for the others make the estimate more precise.
Rates are over variants: seed-variant accuracy is not a mean over variants, so that judgements of a
sample cannot correct it. Figures of seeds are contrasts on the same seeds, with equally many
variants of each.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.annotation import ENOUGH
from merge_dataset.layout import format_in
from merge_metric.agreement.shares import newcombe, wilson
from merge_metric.analyses.measures import (
    FOOLING,
    Floats,
    Ints,
    Row,
    identity,
    intervals,
    sums_by,
    titled,
)
from merge_metric.analyses.registry import Request
from merge_metric.analyses.variant_groups import FIXED_DRAWS, random_ranks, redrawn
from merge_metric.analyses.variant_rows import VariantRows, mean_judgements, variant_rows
from merge_metric.frame.joined import Frame
from merge_metric.seed_variant_accuracy.counts import count
from merge_metric.seed_variant_accuracy.figures import CATALOGUE
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.seed_variant_accuracy.resampling import compare_all, resampled_units
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import Table, figure_values
from merge_metric.tables.plots import bar_panels

COLUMNS: Final = ("word_class",)

_SHOWN: Final = {
    "judged good": "changed_good",
    "judged bad": "changed_bad",
    "good, corrected": "changed_corrected",
}


def validity(request: Request, *, annotations: Sequence[str], settings: Settings = USUAL) -> Table:
    """Make a row per model and configuration, by sessions, .json or .csv files of annotators."""
    cluster = request.cluster
    texts = (cluster,) if cluster else ()
    every = request.variants(lambda *_: COLUMNS, texts, annotations=annotations)
    rows = (validity_row(variants, cluster=cluster, settings=settings) for variants in every)
    return validity_table(rows, cluster)


def validity_table(
    rows: Iterable[Row | None], cluster: str = "", *, model_first: bool = False
) -> Table:
    """Make the table of rows of `validity_row`."""
    known = tuple(row for row in rows if row)
    if not known:
        raise ValueError(
            "expected annotations of variants of these configurations whose seed a model answers "
            "right, got none; are they of another dataset?"
        )
    units = resampled_units(cluster)
    return titled("validity", known, enough=ENOUGH, units=units, model_first=model_first)


def validity_row(
    variants: VariantRows, *, cluster: str = "", settings: Settings = USUAL
) -> Row | None:
    """Make a frame's row; None if no judged variant is of a seed that the model answers right."""
    table = variants.table.filter(variants.table["seed_right"])
    changed = table["changed"].to_numpy().astype(np.float64)
    good, chance = (pc.fill_null(table[key], float("nan")).to_numpy() for key in ("good", "chance"))
    if np.isnan(good).all():
        return None
    unit, word_class = (
        np.unique(table[key].to_pylist(), return_inverse=True)[1]
        for key in (f"seed_{cluster}" if cluster else "seed_id", "word_class")
    )
    row: Row = {"config": variants.config, "model": variants.model}
    effective = {}
    for name, value in (("good", 1.0), ("bad", 0.0)):
        part = good == value
        row |= {f"n_{name}": int(part.sum()), f"changed_{name}": None}
        if part.any():
            row[f"changed_{name}"] = float(changed[part].mean())
            effective[name] = _effective(changed[part], unit[part])
            row[f"changed_{name}_ci"] = wilson(*effective[name])
    row |= {"difference": None, "difference_ci": None}
    if len(effective) == 2:
        row["difference"] = row["changed_bad"] - row["changed_good"]
        row["difference_ci"] = newcombe(*effective["bad"], *effective["good"])
    if np.isnan(chance[~np.isnan(good)]).any():  # for some variants it is not known
        chance = np.ones(len(chance))
    sums = _sums(changed, good, 1 / chance, unit, word_class)
    row["changed_all"] = float(changed.mean())
    corrected = float(corrected_rate(sums.sum(axis=0)[None])[0])
    row["changed_corrected"] = None if np.isnan(corrected) else corrected
    if settings.n_bootstrap and 0 < (row["changed_good"] or 0) < 1:
        row |= intervals(
            lambda w: {"changed_corrected_ci": corrected_rate(np.einsum("bu,uhk->bhk", w, sums))},
            len(sums),
            settings,
        )
    return row


def _effective(changed: Floats, unit: Ints) -> tuple[float, float]:
    """Compute effective numbers of changes and variants: n* = p(1 − p) / v + 1.

    v is the variance of p over U units, with the factor U / (U − 1). Because p(1 − p) falls short
    of a variant's variance by v, n independent variants count as n, and copies of one as one.
    """
    n, share, units = len(changed), float(changed.mean()), len(np.unique(unit))
    squares = float((np.bincount(unit, changed - share) ** 2).sum())
    if squares <= 1e-12 * n**2:  # units vary by rounding alone
        return share * units, float(units)
    variance = squares / n**2 * units / (units - 1)
    size = min(float(n), share * (1 - share) / variance + 1)
    return share * size, size


def _sums(changed: Floats, good: Floats, weight: Floats, unit: Ints, cell: Ints) -> Floats:
    """Sum by unit and class, (U, H, 6): variants, changes; w, wg, wc and wgc of judged variants."""
    judged = ~np.isnan(good)
    w, g = np.where(judged, weight, 0.0), np.where(judged, good, 0.0)
    values = (np.ones(len(changed)), changed, w, w * g, w * changed, w * g * changed)
    sums = sums_by(unit, cell, (unit.max() + 1, cell.max() + 1), *values)
    return sums[:, sums[:, :, 2].sum(axis=0) > 0]  # classes without judgements are left out


def corrected_rate(sums: Floats) -> Floats:
    """Estimate the rate of changes on good variants, (B,), from `_sums` over units, (B, H, 6).

    With means over the judged variants, weighted to the classes' shares of all variants, the
    rate is E[gc] / E[g]. The rates of change of all variants, C, and of the judged ones, E[c],
    differ by chance only; the slope λ of y = g (c − rate) on c turns this difference into the
    correction with the least variance: (E[gc] + λ (C − E[c])) / E[g]. That is the power-tuned
    prediction-powered estimate (Angelopoulos, Duchi and Zrnic 2023) of a ratio, with "as if every
    variant were good" as the prediction.
    """
    n, c, w = sums[..., 0], sums[..., 1], sums[..., 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = n / n.sum(axis=1, keepdims=True)
        good, changed, both = (
            (shares * sums[..., k] / w).sum(axis=1) for k in (3, 4, 5)
        )  # NaN where a replicate has no judged variant of a class
        rate = both / good
        slope = np.nan_to_num(both * (1 - rate) / (changed * (1 - changed)), posinf=0.0)
        of_all = c.sum(axis=1) / n.sum(axis=1)
        estimate = (both + slope * (of_all - changed)) / good
    return np.asarray(np.clip(estimate, 0.0, 1.0))


plot_validity: Final = partial(bar_panels, series=_SHOWN, label="changed predictions, %")
"""Function that draws the rates of each model as bars."""


# --- Good variants beside as many of all ---

_KEYS: Final = ("seed_accuracy", "seed_variant_accuracy", *reversed(FOOLING))
_ALL, GOOD = "as many of all", "good"


def good(request: Request, *, annotations: Sequence[str] = (), settings: Settings = USUAL) -> Table:
    """Make two rows per model and configuration, of `good_rows`."""
    judged = mean_judgements(annotations) if annotations else None
    frames = request.frames(with_rows=True)
    rows = [row for frame in frames for row in good_rows(frame, judged, settings=settings)]
    return good_table(rows, settings, request.cluster)


def good_table(
    rows: Sequence[Row], settings: Settings, cluster: str = "", *, model_first: bool = False
) -> Table:
    """Make the table of `good_rows` of any frames."""
    limits = {row["config"]: row["limit"] for row in rows if row["limit"] is not None}
    return titled(
        "good",
        rows,
        figures=[CATALOGUE[key].at(settings.correctness_threshold) for key in _KEYS],
        ct=settings.correctness_threshold,
        limits=limits,
        enough=ENOUGH,
        draws=FIXED_DRAWS,
        units=resampled_units(cluster),
        has_intervals=settings.n_bootstrap > 0,
        model_first=model_first,
    )


def good_rows(
    frame: Frame, judged: pa.Table | None = None, *, settings: Settings = USUAL
) -> list[Row]:
    """Make the rows of as many of all variants and of the good ones, on the seeds that have some.

    Good are the variants that are `judged` so or, without judgements, the better half by `quality`,
    from its median. All variants of a seed are drawn from `FIXED_DRAWS` times. Without a variant
    known to be good there are no rows.
    """
    key, rows = "quality" if judged is None else "good", frame.rows
    if judged is None and key not in format_in(frame.folder, frame.config).signals:
        return []
    wanted = (key,) if judged is None else ()
    table = variant_rows(frame.folder, frame.config, wanted, frame=frame, judged=judged).table
    value = pc.fill_null(pc.cast(table[key], pa.float64()), float("nan")).to_numpy()
    if np.isnan(value).all():
        return []
    limit = float(np.nanmedian(value)) if judged is None else None
    is_good = value >= (1 if limit is None else limit)  # one that is not known is not
    drawn = redrawn(rows, FIXED_DRAWS)
    seed = rows.seed[drawn.draw_row]
    n_good = np.bincount(rows.seed[is_good], minlength=len(rows.seed_ids))
    ranks = random_ranks(seed * FIXED_DRAWS + drawn.draw_subsample, settings.rng_seed)
    counts = {
        GOOD: count(drawn, draws=np.flatnonzero(is_good[drawn.draw_row])),
        _ALL: count(drawn, draws=np.flatnonzero(ranks < n_good[seed])),
    }
    if not counts[GOOD].seed_ids:
        return []
    of_rows: dict[str, Row] = {}
    for name, part in counts.items():
        result = summarise([part], settings)[0]
        per_seed = float(part.n_variants.sum() / part.present.sum())
        row = identity(frame) | {"variants": name, "limit": limit, "variants_per_seed": per_seed}
        of_rows[name] = row | figure_values(result, [CATALOGUE[key] for key in _KEYS])
    if settings.n_bootstrap:
        gaps = compare_all([*counts.values()], settings)[0][0, 1].figures
        for key in ("seed_variant_accuracy", "relaxed_fooling_rate"):
            gap = gaps[key].as_dict()
            of_rows[GOOD][f"{key}_difference"] = gap["difference"]
            of_rows[GOOD][f"{key}_difference_ci"] = gap["ci"]
    of_rows[GOOD]["changed_on_all"] = of_rows[_ALL]["relaxed_fooling_rate"]
    return [of_rows[_ALL], of_rows[GOOD]]


plot_good: Final = partial(
    bar_panels,
    series={_ALL: "changed_on_all", GOOD: "relaxed_fooling_rate"},
    label="changed on some variant, %",
)
"""Function that draws the relaxed fooling rates of each model as bars."""
