"""Groups of variants that may be harder, as contrasts on the same seeds, and of seeds.

Word classes are in section 5.2 and figures 6 and 12 to 14 of the paper, masked LMs in section 5.3
and figures 7 and 15. Seeds are grouped by phenomena in their texts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.schema import WORD_CLASSES
from merge_dataset.settings import parse_toml
from merge_metric.agreement.shares import wilson
from merge_metric.analyses.curves import SV_LABEL, draw_curves
from merge_metric.analyses.measures import (
    Floats,
    Ints,
    Row,
    fooling_of,
    identity,
    intervals,
    measures,
    titled,
)
from merge_metric.analyses.registry import Request
from merge_metric.frame.joined import Frame
from merge_metric.seed_variant_accuracy.counts import SeedCounts, count
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, figures, sv_at
from merge_metric.seed_variant_accuracy.inputs import Rows
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import Table, figure_values, plots
from merge_metric.tables.plots import DASHES, PALETTE, distinct, grouped

log = logging.getLogger(__name__)


# --- Word classes ---


def classes(request: Request, *, settings: Settings = USUAL) -> Table:
    """Make two rows per model, configuration and pair of classes: variants of each of the two."""
    rows = []
    for frame in request.frames(with_rows=True):
        classes = frame.values.get("word_class", ())
        for pair in combinations(groups_of(frame, classes, WORD_CLASSES), 2):
            contrast = " & ".join(pair)
            counts = on_shared_seeds(frame.rows, classes, pair)
            contrasted = rows_of_counts(identity(frame) | {"contrast": contrast}, counts, settings)
            if not contrasted:
                log.warning("%s: no seed has variants of %s", frame.config, contrast)
            rows += contrasted
    return contrast_table("classes", rows, settings)


# --- Masked LMs ---

ORIGINS: Final = ("equiv", "size", "multi", "one")
"""Suggested by the model's own MLM, its kind in another size, several, or one other MLM."""

PAPER: Final = Path(__file__).with_name("paper_mlms.toml")

Counterparts = Mapping[str, str]
"""MLM of the model's architecture → "equiv" if it also has the model's size, else "size"."""


def read_counterparts(path: Path) -> dict[str, Counterparts]:
    """Read a TOML file with the counterparts of models among MLMs; return model → counterparts.

    Each model has a table: `equivalent` and `size` list MLMs, `names` further names of the model.
    """
    counterparts: dict[str, Counterparts] = {}
    for model, table in parse_toml(path.read_text(encoding="utf-8"), str(path)).items():
        is_table = isinstance(table, dict) and all(isinstance(x, list) for x in table.values())
        keys = set(table) if is_table else set()
        equivalent, size, names = (
            table[key] if key in keys else [] for key in ("equivalent", "size", "names")
        )
        own = (model, *names)
        if (
            not keys & {"equivalent", "size"}
            or keys - {"equivalent", "size", "names"}
            or {*equivalent} & {*size}
            or counterparts.keys() & own
        ):
            raise ValueError(
                f"{path}: expected a table for each model, once, of different MLMs in the lists "
                f"equivalent and size, one or both, and perhaps names, got for {model!r}: {table!r}"
            )
        mlms = dict.fromkeys(equivalent, "equiv") | dict.fromkeys(size, "size")
        counterparts |= dict.fromkeys(own, mlms)
    return counterparts


def mlms(
    request: Request,
    *,
    mlm_map: Path | Mapping[str, Counterparts] | None = None,
    settings: Settings = USUAL,
) -> Table:
    """Make rows per model, configuration and group, on seeds that have all groups.

    The first rows take equal numbers of variants of each group, as SV accuracy at high thresholds
    falls with their number; the next take all variants. `mlm_map` says which MLMs belong to a
    model, by default the paper's.
    """
    given = mlm_map if isinstance(mlm_map, Mapping) else read_counterparts(mlm_map or PAPER)
    rows: list[Row] = []
    unknown: dict[str, None] = {}
    for frame in request.frames(with_rows=True, by=("mlms",)):
        if frame.model not in given:
            unknown[frame.model] = None
            continue
        known = given[frame.model]
        origins = [
            "multi" if len(set(names)) > 1 else known.get(names[0], "one") if names else None
            for names in frame.values["mlms"]
        ]
        groups = groups_of(frame, origins, ORIGINS)
        if empty := ", ".join(name for name in ORIGINS if name not in groups):
            where = f"{frame.model}, {frame.config}"
            log.warning("%s: left out, as there are no variants of it: %s", where, empty)
        rows += _fixed_rows(frame, origins, groups, settings)
    if unknown:
        log.warning(
            "left out, as not in the mapping to MLMs: %s; name a model as there with NAME=FILE, "
            "such as %s, or give a mapping: --mlm-map FILE",
            *(", ".join(unknown), ", ".join(list(given)[:3])),
        )
    return contrast_table("mlms", rows, settings, fixed=True)


SEVERAL: Final = "several"


def origins(request: Request, *, settings: Settings = USUAL) -> Table:
    """Make rows by the only MLM that validated, or `SEVERAL`: on own seeds, then on shared ones."""
    rows: list[Row] = []
    for frame in request.frames(with_rows=True, by=("mlms",)):
        validated = [set(names) for names in frame.values["mlms"]]
        alone = [SEVERAL if len(names) > 1 else "".join(names) for names in validated]
        groups = groups_of(frame, alone, [*sorted({*alone} - {"", SEVERAL}), SEVERAL])
        about = identity(frame) | {"contrast": "own seeds"}
        for name in groups:
            rows += rows_of_counts(about, on_shared_seeds(frame.rows, alone, [name]), settings)
        rows += _fixed_rows(frame, alone, groups, settings)
    return contrast_table("origins", rows, settings, fixed=True)


def _fixed_rows(
    frame: Frame, of_variants: Groups, names: Sequence[str], settings: Settings
) -> list[Row]:
    rows = []
    for matched, chosen in ((True, "equally many"), (False, "all")):
        drawn = redrawn(frame.rows, FIXED_DRAWS if matched else None)
        draws_seed = settings.rng_seed if matched else None
        counts = on_shared_seeds(drawn, of_variants, names, draws_seed=draws_seed)
        rows += rows_of_counts(identity(frame) | {"contrast": chosen}, counts, settings)
    return rows


# --- Contrasts ---

Groups = Sequence[str | None]
"""Group of each variant, (n,), if any."""


def groups_of(frame: Frame, of_variants: Groups, names: Sequence[str]) -> list[str]:
    """List the names out of some that are groups of variants: two or more."""
    known = {*of_variants}
    if len(groups := [name for name in names if name in known]) < 2:
        raise ValueError(
            f"{frame.model}, {frame.config}: expected variants of two or more groups out of "
            f"{', '.join(names)}, got {', '.join(groups) or 'none'}"
        )
    return groups


def on_shared_seeds(
    rows: Rows, of_variants: Groups, names: Sequence[str], *, draws_seed: int | None = None
) -> dict[str, SeedCounts]:
    """Count some groups of variants; in each subsample on the seeds that have all of them.

    With `draws_seed`, an equal number of variants of each group is chosen at random per seed and
    subsample: SV accuracy at high thresholds falls with the number of variants.
    """
    places = pc.index_in(pa.array(of_variants), value_set=pa.array(names))
    group = places.fill_null(-1).to_numpy().astype(np.int64)[rows.draw_row]
    n_subsamples = rows.n_subsamples or 1
    n_cells = len(rows.seed_ids) * n_subsamples
    cell = rows.seed[rows.draw_row] * n_subsamples + rows.draw_subsample
    grouped = group >= 0
    key = group * n_cells + cell
    sizes = np.bincount(key[grouped], minlength=len(names) * n_cells).reshape(-1, n_cells)
    least = sizes.min(axis=0)[cell]
    kept = grouped & (least > 0)
    if draws_seed is not None:  # ranks are within a group, seed and subsample
        kept &= random_ranks(key, draws_seed) < least
    return {
        name: count(rows, draws=np.flatnonzero(kept & (group == number)))
        for number, name in enumerate(names)
    }


def random_ranks(key: Ints, rng_seed: int) -> Ints:
    """Rank each entry, (m,), among those with the same key, in random order."""
    shuffled = np.random.default_rng(rng_seed).permutation(len(key))
    order = shuffled[np.argsort(key[shuffled], kind="stable")]
    starts = np.searchsorted(key[order], key[order])
    ranks = np.empty_like(key)
    ranks[order] = np.arange(len(key)) - starts
    return ranks


FIXED_DRAWS: Final = 10
"""Number of draws of matched variants from fixed seeds: the paper's number of subsamples."""


def redrawn(rows: Rows, n_draws: int | None) -> Rows:
    """Draw each distinct variant in each of some subsamples, or once without any."""
    n, n_rows = n_draws or 1, len(rows.seed)
    draw_row, subsample = np.repeat(np.arange(n_rows), n), np.tile(np.arange(n), n_rows)
    return replace(rows, draw_row=draw_row, draw_subsample=subsample, n_subsamples=n_draws)


def difference(a: SeedCounts, b: SeedCounts, settings: Settings) -> dict[str, Any]:
    """Compute the SV accuracy of `a` minus that of `b`; if wanted, a paired interval over seeds."""

    def less(weights: Floats | None) -> dict[str, Floats]:
        ct = settings.correctness_threshold
        of_a, of_b = (figures(x, ct, weights).means()["seed_variant_accuracy"] for x in (a, b))
        return {"difference_ci": of_a - of_b}

    exact = {"difference": float(less(None)["difference_ci"][0])}
    return exact | intervals(less, len(a.seed_ids), settings, a.clusters)


def rows_of_counts(
    row: Mapping[str, Any], counts: Mapping[str, SeedCounts], settings: Settings
) -> list[Row]:
    """Make a row per group, on shared seeds (no rows without any); differences are to the first."""
    first, rows = next(iter(counts.values())), []
    for name, of_group in counts.items() if first.seed_ids else ():
        rates = fooling_of(of_group)
        gap = {"difference": None, "difference_ci": None}
        if of_group is not first:
            gap = difference(of_group, first, settings)
        rows.append({**row, "group": name} | measures(of_group) | rates | gap)
    return rows


def contrast_table(
    name: str, rows: Sequence[Row], settings: Settings, *, fixed: bool = False
) -> Table:
    """Make the table of `rows_of_counts`; if `fixed`, seeds are the same in all subsamples."""
    ct, about = settings.correctness_threshold, ("config", "model", "contrast")
    changing = any(row["seeds_per_subsample"] < row["n_seeds"] for row in rows)
    contrasts = {tuple(row[key] for key in about) for row in rows}
    sizes = {(*(r[key] for key in about), round(r["variants_per_seed"], 9)) for r in rows}
    unequal = not fixed and len(sizes) > len(contrasts)
    return titled(name, rows, ct=ct, fixed=fixed, changing=changing, unequal=unequal)


def plot_contrasts(table: Table) -> plots.Figure:
    """Draw panels: models by configurations; colours show contrasts, dashes the second groups."""
    models, configs = distinct(table.rows, "model"), distinct(table.rows, "config")
    contrasts, groups = distinct(table.rows, "contrast"), distinct(table.rows, "group")
    figure, axes_of = plots.panels(len(models), len(configs))
    for model, row_of_axes in zip(models, axes_of, strict=True):
        for config, axes in zip(configs, row_of_axes, strict=True):
            axes.set_title(f"{model} on {config}", fontsize="medium")
            rows = [r for r in table.rows if r["model"] == model and r["config"] == config]
            notes, lines = [], []
            for contrast, of_contrast in grouped(rows, "contrast").items():
                for number, row in enumerate(of_contrast):
                    label, place = row["group"], groups.index(row["group"])
                    if len(contrasts) > 1:
                        label, place = f"{label} (of {contrast})", contrasts.index(contrast)
                    style = {
                        "color": PALETTE[place % len(PALETTE)],
                        "linestyle": DASHES[number % len(DASHES)],
                        "linewidth": 1.6,
                    }
                    lines.append((row, label, style))
                several = len(distinct(rows, "contrast")) > 1
                notes.append(f"{contrast}: " * several + f"{row['n_seeds']:,} seeds")
            # SV curves leave this corner free.
            axes.text(0.03, 0.04, "\n".join(notes), transform=axes.transAxes, fontsize="small")
            draw_curves(axes, lines, bottom=row_of_axes is axes_of[-1])
    plots.label_left(figure, SV_LABEL)
    plots.legend_below(figure)
    return figure


plot_classes: Final = plot_contrasts


def plot_mlms(table: Table) -> plots.Figure:
    """Draw a panel per model (row), and per configuration and choice of variants (column)."""
    rows = [
        {**row, "config": f"{row['config']}, {row['contrast']}", "contrast": ""}
        for row in table.rows
    ]
    return plot_contrasts(replace(table, rows=tuple(rows)))


plot_origins: Final = plot_mlms


# --- Phenomena ---
#
# Do replacements preserve reasoning that depends on a quantifier, a negation or an expression of
# time? Annotators' judgements say how many variants of these seeds are good. A dataset of
# `--ablation union` is the control without a filter.

DOUBTFUL: Final = 4
"""Mean reasoning score (1–5) below which annotators find the label doubtful."""

TEXTS: Final = ("premise", "hypothesis")

PHENOMENA: Final = {
    "quantifier": r"\b(?:all|any|both|each|every|few|fewer|half|less|many|more|most|much|several"
    r"|some)\b",
    "negation": r"\b(?:no|not|cannot|never|nobody|none|nothing|nowhere|neither|nor|without)\b"
    r"|n['’]t\b",
    "time": r"\b(?:after|afternoon|ago|already|always|before|days?|during|early|evening|hours?"
    r"|late|later|minutes?|months?|morning|night|now|often|since|soon|still|then|today|tomorrow"
    r"|tonight|until|weeks?|when|while|years?|yesterday)\b",
}
"""Phenomenon → pattern (RE2, case-insensitive) that one of the seed's texts must match."""


def phenomena(
    request: Request, *, annotations: Sequence[str] = (), settings: Settings = USUAL
) -> Table:
    """Make a row for the seeds with each phenomenon in a text, and a row for all other seeds."""
    names = ("seed_accuracy", "variant_accuracy", "relaxed_fooling_rate")
    wanted = (*(CATALOGUE[name] for name in names), sv_at(settings.correctness_threshold))
    rows: list[Row] = []
    for variants in request.variants(of_seeds=TEXTS, annotations=annotations):
        table = variants.table
        text = pc.binary_join_element_wise(*(table[f"seed_{name}"] for name in TEXTS), "\n")
        masks = {
            name: pc.match_substring_regex(text, pattern, ignore_case=True).to_numpy()
            for name, pattern in PHENOMENA.items()
        }
        masks["none of these"] = ~np.any([*masks.values()], axis=0)
        for name, mask in masks.items():
            part = table.filter(mask)
            seeds = set(part["seed_id"].to_pylist())
            row: Row = {"config": variants.config, "dataset": variants.dataset, "phenomenon": name}
            row |= {"n_seeds": len(seeds), "n_variants": len(part)}
            if variants.frame is not None:
                row["model"] = variants.frame.model
                counts = variants.frame.counts
                chosen = np.array([seed in seeds for seed in counts.seed_ids], np.bool_)
                if chosen.any():
                    row |= figure_values(summarise([counts.take(chosen)], settings)[0], wanted)
            if "good" in part.column_names:
                good, reasoning = (part[key].drop_null() for key in ("good", "reasoning"))
                n_good, n_judged = pc.sum(good, min_count=0).as_py(), len(good)
                row |= {"n_judged": n_judged, "n_doubtful": 0}
                if n_judged:
                    row |= {"good": n_good / n_judged, "good_ci": wilson(n_good, n_judged)}
                    row["n_doubtful"] = pc.sum(pc.less(reasoning, DOUBTFUL)).as_py()
            rows.append(row)
    judged = any("n_judged" in row for row in rows)
    ct = settings.correctness_threshold
    return titled("phenomena", rows, judged=judged, doubtful=DOUBTFUL, ct=ct)


def plot_phenomena(table: Table) -> plots.Figure:
    """Draw models' SV accuracy by group of seeds; without models, shares of good variants."""
    figure = next((column for column in table.columns if column.key.startswith("sv_at")), None)
    bars: dict[tuple[str, str], Row] = {}
    for row in table.rows:
        key = (row["config"], row.get("model") or row["dataset"])
        bar = bars.setdefault(key, {"config": key[0], "model": key[1]})
        bar[row["phenomenon"]] = row.get(figure.key if figure else "good")
    series = {name: name for name in plots.distinct(table.rows, "phenomenon")}
    label = f"{figure.heading}, %" if figure else "good variants, %"
    return plots.bar_panels(replace(table, rows=tuple(bars.values())), series, label)
