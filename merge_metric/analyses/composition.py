"""Seeds and variants by word class and label: table 2 of the paper, and the poster's table.

The poster counts variants before sampling, which only a run folder knows: all replacements of
seeds (or words, if the recipe says so) with enough of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.files import read_record, read_row_groups, read_schema
from merge_dataset.layout import format_in, split_files
from merge_dataset.provenance import format_of_run
from merge_dataset.schema import VARIANT_CLASSES
from merge_metric.analyses.measures import Row
from merge_metric.analyses.run_records import MANIFEST, REPLACEMENTS, VARIANTS, file_of_build
from merge_metric.tables import Column, Table, initials, legend
from merge_metric.tables.plots import (
    PALETTE,
    distinct,
    draw_bars,
    grid,
    label_left,
    legend_below,
    percent_axis,
    row_of_panels,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL: Final = "all"

_UNITS: Final = {
    "class": ("seed_id", "word_class"),
    "problem": ("seed_id",),
    "word": ("seed_id", "word_class", "word"),
}
"""Scope of the smallest number of replacements → what is counted together."""


@dataclass(frozen=True, slots=True, eq=False)
class Variants:
    """Variants of one configuration or run."""

    config: str
    labels: tuple[str, ...]
    sampled: pa.Table
    """`seed_id`, `word_class`, `label` and `draws`, in how many subsamples it is."""
    n_subsamples: int
    replacements: pa.Table | None = None
    """`seed_id` and `word_class` of all before sampling; None of a dataset."""


def of_dataset(folder: Path, config: str) -> Variants:
    """Read a configuration's distinct variants."""
    files = [folder / name for name in split_files(folder, config)["variants"]]
    sampled, n_subsamples = _sampled(files)
    return Variants(config, format_in(folder, config).labels, sampled, n_subsamples)


def of_run(run: Path) -> Variants:
    """Read the variants of a run folder, or of a build inside one, and all replacements.

    Raises:
        FileNotFoundError, ValueError: as `run_records.file_of_build`.
    """
    sampled, n_subsamples = _sampled([file_of_build(run, VARIANTS)])
    made = read_record(run / MANIFEST)
    config = made["config"]
    found = _with_enough(
        file_of_build(run, REPLACEMENTS),
        config["min_replacements"],
        config["min_replacements_scope"],
    )
    # Of variants with several words seeds can be too few although their words are not.
    replacements = found.filter(pc.is_in(found["seed_id"], sampled["seed_id"].unique()))
    return Variants(made["source"], format_of_run(made).labels, sampled, n_subsamples, replacements)


def _sampled(files: Sequence[Path]) -> tuple[pa.Table, int]:
    """Read what is needed of variants, and count the subsamples."""
    columns = ["seed_id", "word_class", "label", "subsamples"]
    parts, subsamples = [], set[int]()
    for path in files:
        for table in read_row_groups(path, columns):
            subsamples.update(pc.list_flatten(table["subsamples"]).unique().to_pylist())
            draws = pc.list_value_length(table["subsamples"])
            parts.append(table.drop_columns(["subsamples"]).append_column("draws", draws))
    return pa.concat_tables(parts), len(subsamples)


def _with_enough(path: Path, minimum: int, scope: str) -> pa.Table:
    """Read replacements, without those of seeds or words that have too few."""
    columns = [name for name in _UNITS["word"] if name in read_schema(path).names]
    whole = pa.concat_tables(list(read_row_groups(path, columns)))
    unit = list(_UNITS[scope])
    sizes = whole.group_by(unit).aggregate([([], "count_all")])
    enough = sizes.filter(pc.greater_equal(sizes["count_all"], minimum))
    kept = whole.join(enough.select(unit), keys=unit, join_type="left semi")
    return kept.select(["seed_id", "word_class"])


def composition(everything: Iterable[Variants]) -> Table:
    """Make a row per word class, and one for all, of each configuration or run.

    Raises:
        ValueError: problems of two kinds, with different labels.
    """
    found = list(everything)
    labels = {each.labels for each in found}
    if len(labels) > 1:
        raise ValueError(
            "expected configurations with the same labels, got several kinds; name those of one "
            "kind with --config"
        )
    (names,) = labels
    letters = list(zip(names, initials(names), strict=True))
    before = any(each.replacements is not None for each in found)
    return Table(
        name="composition",
        title="Seeds and variants by the class of the replaced word, and by label",
        columns=(
            Column("config", "source"),
            Column("word_class", "class"),
            Column("n_seeds", "seeds", "count"),
            *(Column(f"seeds_{name}", f"{letter}, %", "share") for name, letter in letters),
            *([Column("n_replacements", "before sampling", "count")] if before else []),
            *(
                Column(f"n_replacements_{name}", letter, "count")
                for name, letter in letters
                if before
            ),
            Column("n_variants", "variants", "count"),
            Column("per_seed", "per seed", "threshold"),
            Column("n_drawn", "in a subsample", "count"),
        ),
        rows=tuple(row for each in found for row in _rows(each)),
        notes=(
            f"Seeds, and the labels of these; distinct variants in all subsamples together, those "
            f"of a seed, and those in a subsample, on average. {legend(names)}.",
            *(
                ["Before sampling: all replacements of seeds that have enough of them."]
                if before
                else []
            ),
        ),
    )


def _rows(found: Variants) -> list[Row]:
    classes = found.sampled["word_class"].unique().to_pylist()
    label_of = dict(
        zip(found.sampled["seed_id"].to_pylist(), found.sampled["label"].to_pylist(), strict=True)
    )
    rows = []
    for name in (*(each for each in VARIANT_CLASSES if each in classes), ALL):
        sampled = _of_class(found.sampled, name)
        seeds = sampled["seed_id"].unique().to_pylist()
        by_label = Counter(label_of[seed] for seed in seeds)
        row: Row = {"config": found.config, "word_class": name, "n_seeds": len(seeds)}
        row |= {
            f"seeds_{label}": by_label[code] / len(seeds) for code, label in enumerate(found.labels)
        }
        if found.replacements is not None:
            row |= _before(_of_class(found.replacements, name), found.labels, label_of)
        rows.append(
            row
            | {"n_variants": len(sampled), "per_seed": len(sampled) / len(seeds)}
            | {"n_drawn": round(pc.sum(sampled["draws"]).as_py() / found.n_subsamples)}
        )
    return rows


def _before(
    replacements: pa.Table, labels: Sequence[str], label_of: dict[str, int]
) -> dict[str, Any]:
    """Count replacements, and those of seeds of each label."""
    by_label: Counter[int] = Counter()
    for each in replacements.group_by("seed_id").aggregate([([], "count_all")]).to_pylist():
        by_label[label_of[each["seed_id"]]] += each["count_all"]
    counts = {f"n_replacements_{label}": by_label[code] for code, label in enumerate(labels)}
    return {"n_replacements": len(replacements), **counts}


def _of_class(table: pa.Table, name: str) -> pa.Table:
    return table if name == ALL else table.filter(pc.equal(table["word_class"], name))


def plot_composition(table: Table) -> Figure:
    """Draw a panel per configuration: shares of labels among the seeds of each class."""
    configs = distinct(table.rows, "config")
    names = [
        column.key.removeprefix("seeds_")
        for column in table.columns
        if column.key.startswith("seeds_")
    ]
    figure, row_of_axes = row_of_panels(len(configs))
    for axes, config in zip(row_of_axes, configs, strict=True):
        rows = [row for row in table.rows if row["config"] == config]
        for number, name in enumerate(names):
            values = [row[f"seeds_{name}"] for row in rows]
            draw_bars(axes, values, name, number % 5, len(names), PALETTE)
        ticks = [f"{row['word_class']}\n{row['n_seeds']:,}" for row in rows]
        axes.set_xticks(range(len(rows)), ticks, fontsize="small")
        axes.set_title(config, fontsize="medium")
        grid(axes, "y")
    top = max(row[f"seeds_{name}"] for row in table.rows for name in names)
    percent_axis(row_of_axes[0], top)
    label_left(row_of_axes, "seeds, %")
    legend_below(figure, row_of_axes)
    return figure
