"""How alike the hypotheses of variants and of their seeds are.

Arakelyan, Liu and Augenstein (2024), table 4 (tokens), and section 5.2 (embeddings).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.layout import format_in, split_files
from merge_dataset.schema import NLI
from merge_metric.analyses.averages import over_models, per_config
from merge_metric.analyses.distances import Encode, cosine_distances, histogram_divergence
from merge_metric.analyses.token_overlap import fuzzy_match, n_common, tokens
from merge_metric.runs.join import read_columns
from merge_metric.runs.run import Run
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import config_bars, panels, percent_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LENGTHS: Final = {"h": "length", "h′": "length_variant", "in both": "overlap"}
_FUZZY: Final = {"token sort ratio": "fuzzy_sort", "token set ratio": "fuzzy_set"}
_CHUNK: Final = 20_000

_MEASURES: Final = (*_LENGTHS.values(), *_FUZZY.values())

_DISTANCES: Final = {
    "all": "distance",
    "prediction unchanged": "distance_unchanged",
    "prediction changed": "distance_changed",
}
_JSD: Final = "distance_jsd"


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Hypotheses of a configuration's variants, each beside that of its seed."""

    config: str
    dataset: str
    originals: Sequence[str]
    """(n,) h."""
    rewritten: Sequence[str]
    """(n,) h′."""
    model: str | None = None
    """Whose predictions there are, if any."""
    changed: NDArray[np.bool_] | None = None
    """(n,) with predictions: whether the variant changes them."""
    right: NDArray[np.bool_] | None = None
    """(n,) with predictions: whether the seed is answered right."""


def read_pairs(folder: Path, config: str) -> Pairs:
    """The pairs of a configuration, each distinct variant once."""
    return _pairs(folder, config, None)


def pairs_of(run: Run) -> Pairs:
    """The pairs of a run, which keeps `variant_ids`, and what its model says of them."""
    rows = run.rows
    own = rows.own[rows.seed]
    pairs = _pairs(run.folder, run.config, run.kept["variant_ids"])
    return Pairs(
        config=run.config,
        dataset=run.dataset,
        originals=pairs.originals,
        rewritten=pairs.rewritten,
        model=run.model,
        changed=rows.prediction != own,
        right=own == rows.gold[rows.seed],
    )


def _pairs(folder: Path, config: str, variant_ids: Sequence[str] | None) -> Pairs:
    """The pairs of some variants, in their order; by default of all."""
    if (problem_format := format_in(folder, config)) != NLI:
        raise ValueError(
            f"{config}: expected problems of NLI, of whose hypotheses overlap is told, got some "
            f"with the {problem_format.described}; name others by --config"
        )
    files = split_files(folder, config)
    seeds = read_columns(folder, files["seeds"], ("seed_id", "hypothesis"))
    variants = read_columns(folder, files["variants"], ("variant_id", "seed_id", "hypothesis"))
    if variant_ids is not None:
        ids = pa.array(variant_ids, pa.string())
        variants = variants.take(pc.index_in(ids, variants["variant_id"].combine_chunks()))
    of_seed = pc.index_in(variants["seed_id"], seeds["seed_id"].combine_chunks())
    return Pairs(
        config=config,
        dataset=folder.resolve().name,
        originals=seeds["hypothesis"].take(of_seed).to_pylist(),
        rewritten=variants["hypothesis"].to_pylist(),
    )


def overlap(pairs: Iterable[Pairs], *, encode: Encode | None = None) -> Table:
    """A row per configuration and, with predictions, model; averages over models.

    Args:
        pairs: Of configurations.
        encode: For distances of embeddings, which need no predictions, and how much they
            differ between variants that do and do not change them, which do.
    """
    rows = []
    with_models = False
    for each in pairs:
        with_models = each.model is not None
        row = {"config": each.config, "model": each.model, "dataset": each.dataset}
        row |= {"averaged": None} | _tokens_row(each)
        rows.append(row | (_distances_row(each, encode) if encode else {}))
    keys = [*_MEASURES, *([*_DISTANCES.values(), _JSD] if encode else [])]
    keys = [key for key in keys if all(key in row for row in rows)]
    averages = over_models(rows, keys, ["n_pairs"]) if with_models else []
    return Table(
        name="overlap",
        title="Hypotheses of variants (h′) beside those of their seeds (h)",
        columns=(
            Column("config", "source"),
            Column("model", "model") if with_models else Column("dataset", "data set"),
            Column("n_pairs", "pairs", "count"),
            Column("length", "tokens h", "number"),
            Column("length_variant", "h′", "number"),
            Column("overlap", "in both", "number"),
            Column("fuzzy_sort", "fuzzy sort", "share"),
            Column("fuzzy_set", "fuzzy set", "share"),
            *(
                Column(key, heading, "fraction")
                for key, heading in (
                    ("distance", "distance"),
                    ("distance_unchanged", "unch."),
                    ("distance_changed", "ch."),
                    (_JSD, "JSD"),
                )
                if key in keys
            ),
        ),
        rows=(*rows, *averages),
        notes=_notes(keys, with_averages=bool(averages)),
    )


def _tokens_row(pairs: Pairs) -> dict[str, Any]:
    """Averages over pairs, some thousands of which are taken apart at a time."""
    n_pairs = len(pairs.originals)
    totals = np.zeros(len(_MEASURES))
    for start in range(0, n_pairs, _CHUNK):
        part = slice(start, start + _CHUNK)
        one, other = (
            list(map(tokens, texts[part])) for texts in (pairs.originals, pairs.rewritten)
        )
        totals += [
            sum(map(len, one)),
            sum(map(len, other)),
            sum(map(n_common, one, other)),
            *(ratios.sum() for ratios in fuzzy_match(one, other)),
        ]
    means = (totals / n_pairs).tolist()
    return {"n_pairs": n_pairs} | dict(zip(_MEASURES, means, strict=True))


def _distances_row(pairs: Pairs, encode: Encode) -> dict[str, Any]:
    distances = cosine_distances(pairs.originals, pairs.rewritten, encode)
    row: dict[str, Any] = {"distance": float(distances.mean())}
    if pairs.changed is None or pairs.right is None:
        return row
    changed = distances[pairs.right & pairs.changed]
    unchanged = distances[pairs.right & ~pairs.changed]
    for name, part in (("unchanged", unchanged), ("changed", changed)):
        row[f"distance_{name}"] = float(part.mean()) if len(part) else None
    return row | {_JSD: histogram_divergence(changed, unchanged)}


def _notes(keys: Sequence[str], *, with_averages: bool) -> tuple[str, ...]:
    notes = [
        "Averages over pairs. Tokens are words and single other marks, without regard to case; in "
        "both: as often as in either. Fuzzy: rapidfuzz's token_sort_ratio, which every difference "
        "lowers, and token_set_ratio, which is 100 where one has all tokens of the other; in "
        "percent.",
    ]
    if "distance" in keys:
        note = "Distance: one less the cosine of the sentences' embeddings."
        if _JSD in keys:
            note += (
                " Apart for variants of seeds answered right that do not (unch.) and do (ch.) "
                "change the prediction; JSD: Jensen–Shannon divergence of their two histograms."
            )
        notes.append(note)
    if with_averages:
        notes.append("(mean): over models, which weigh the same.")
    return tuple(notes)


def plot_overlap(table: Table) -> Figure:
    """Panels of lengths, of fuzzy matches and, where known, of distances, by configuration."""
    shown = {column.key for column in table.columns}
    distances = {name: key for name, key in _DISTANCES.items() if key in shown}
    keys = [*_MEASURES, *distances.values()]
    rows = per_config(table.rows, keys, merge_rounds=False)
    parts = [("tokens on average", _LENGTHS), ("fuzzy match, %", _FUZZY)]
    parts += [("cosine distance", distances)] if distances else []
    figure, (row_of_axes,) = panels(1, len(parts), share_y=False)
    for axes, (title, series) in zip(row_of_axes, parts, strict=True):
        config_bars(axes, rows, series)
        axes.set_ylabel(title)
        # Above each panel, as the same colours mean something else in another.
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize="x-small"
        )
    percent_axis(row_of_axes[1], 1.0)
    return figure
