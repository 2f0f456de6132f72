"""Replacements by the masked LMs that validated them: table 10 and figure 11 of the paper.

Also how many there would be with fewer masked LMs, which the first version of the paper shows.
Of a dataset these are the sampled variants, of a run folder all replacements before sampling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.files import read_row_groups
from merge_dataset.layout import split_files
from merge_metric.agreement.judgements import mlm_columns
from merge_metric.agreement.overview import short_names
from merge_metric.analyses.measures import Row
from merge_metric.analyses.run_folders import REPLACEMENTS, file_of_build
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import (
    PAGE,
    PALETTE,
    distinct,
    grid,
    heat_map,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Bools = NDArray[np.bool_]

MLM: Final = "mlm"
NUMBER: Final = "number"
NONE: Final = "none"
SEVERAL: Final = "several"
ALL: Final = "all"
"""Values of `kind`: what a row is about."""


@dataclass(frozen=True, slots=True, eq=False)
class Validated:
    """The masked LMs that validated the replacements of a configuration or run."""

    config: str
    unit: str
    """Name of what is counted, in the plural."""
    mlms: tuple[str, ...]
    """Sorted."""
    anywhere: Bools
    """(n, M) whether each validated it in some text."""
    everywhere: Bools
    """(n, M) whether each validated it in every text that has the word."""
    kept: NDArray[np.float64]
    """(M,) how many there would be with 1, 2, … of the masked LMs, on average over all choices."""
    n_problems: int
    several_words: bool
    """Whether some replace several words, any of which their masked LMs validated."""


def of_dataset(folder: Path, config: str) -> Validated:
    """Read a configuration's distinct variants."""
    files = [folder / name for name in split_files(folder, config)["variants"]]
    return _read(files, config, "variants", "original")


def of_run(run: Path) -> Validated:
    """Read all replacements of a run folder, or of a build inside one."""
    return _read([file_of_build(run, REPLACEMENTS)], None, "replacements", "word")


def _read(files: Sequence[Path], config: str | None, unit: str, word: str) -> Validated:
    mlms = sorted(
        {
            name
            for path in files
            for columns in [mlm_columns(path)]
            for table in read_row_groups(path, columns)
            for column in columns
            for name in pc.list_flatten(table[column]).unique().to_pylist()
        }
    )
    if not mlms:
        raise ValueError(
            f"{config or files[0]}: expected {unit} that masked LMs validated, got none"
            + ("; name other configurations with `config`" if config else "")
        )
    parts: list[Bools] = []
    seeds: set[str] = set()
    sources: set[str] = set()
    several = False
    for path in files:
        columns = mlm_columns(path)
        for table in read_row_groups(path, ["seed_id", "source", word, *columns]):
            parts.append(validators(table, columns, mlms))
            seeds.update(table["seed_id"].unique().to_pylist())
            sources.update(table["source"].unique().to_pylist())
            several = several or bool(pc.any(pc.match_substring(table[word], " ")).as_py())
    texts = np.concatenate(parts)
    needed = texts
    if texts.shape[1] > 2:
        # Each of two texts has the word. Of more, some need not; there nobody validated anything.
        needed = texts | ~np.any(texts, axis=2, keepdims=True)
    return Validated(
        config=config or ", ".join(sorted(sources)),
        unit=unit,
        mlms=tuple(mlms),
        anywhere=np.any(texts, axis=1),
        everywhere=np.all(needed, axis=1),
        kept=kept_with(needed),
        n_problems=len(seeds),
        several_words=several,
    )


def validators(table: pa.Table, columns: Sequence[str], mlms: Sequence[str]) -> Bools:
    """Read who validated each row in which text, (n, texts, M); others than `mlms` do not count."""
    members = np.zeros((len(table), len(columns), len(mlms)), np.bool_)
    names = pa.array(mlms, pa.string())
    for number, column in enumerate(columns):
        lists = table[column].combine_chunks()
        which = pc.fill_null(pc.index_in(pc.list_flatten(lists), names), -1).to_numpy()
        rows = pc.list_parent_indices(lists).to_numpy()
        members[rows[which >= 0], number, which[which >= 0]] = True
    return members


def kept_with(needed: Bools) -> NDArray[np.float64]:
    """Compute, (M,), how many rows 1, 2, … masked LMs validate, on average over all choices.

    A row stays where each of its texts has one of the chosen; by inclusion and exclusion over
    texts, as of C(M, k) choices C(M − v, k) have none of v masked LMs.

    Args:
        needed: (n, texts, M) who validated each row in which text.

    >>> kept_with(np.array([[[True, False], [True, True]], [[True, False], [False, True]]]))
    array([0.5, 2. ])
    """
    n, n_texts, n_mlms = needed.shape
    share_without = np.array(
        [[comb(n_mlms - v, k) / comb(n_mlms, k) for v in range(n_mlms + 1)]
         for k in range(1, n_mlms + 1)]
    )  # fmt: skip
    kept = np.full(n_mlms, float(n))
    for size in range(1, n_texts + 1):
        for chosen in combinations(range(n_texts), size):
            in_any = np.any(needed[:, chosen], axis=1).sum(axis=1)
            numbers = np.bincount(in_any, minlength=n_mlms + 1)
            kept += (-1) ** size * (share_without @ numbers)
    return kept


def in_common(has: Bools) -> NDArray[np.int64]:
    """Count, (M, M), rows that two masked LMs have, on the diagonal those that one has alone.

    Args:
        has: (n, M) whether each has a row.
    """
    counts: NDArray[np.int64] = has.T.astype(np.int64) @ has
    alone = has & (has.sum(axis=1, keepdims=True) == 1)
    np.fill_diagonal(counts, alone.sum(axis=0))
    return counts


# --- The table ---


def provenance(everything: Iterable[Validated]) -> Table:
    """Make a row per masked LM and per number of them, for each configuration or run."""
    found = list(everything)
    unit = found[0].unit
    width = max(len(each.mlms) for each in found)
    problems = ", ".join(f"{each.config} {each.n_problems:,}" for each in found)
    notes = [
        f"In a text: by the masked LMs that validated it in at least one text, this one only or so "
        f"many; “several” is the paper's Multi. In each text: by those that validated it in every "
        f"text; “none”: one masked LM did in one text, another in the other. Both add up to all "
        f"{unit}.",
        f"Enough: share of the {unit} that there would be with this masked LM alone, or with so "
        f"many, on average over all choices.",
        f"Columns 1, 2, …: {unit} of a problem that two masked LMs have in common, validated in "
        f"some text; where both are the same, those that no other has. Averages over problems: "
        f"{problems}.",
    ]
    if any(each.several_words for each in found):
        notes.append(
            "Some change several words; their masked LMs are those that validated any of these."
        )
    return Table(
        name="provenance",
        title=f"{unit.capitalize()} by the masked LMs that validated them",
        columns=(
            Column("config", "source"),
            Column("place", ""),
            Column("by", "validated by"),
            Column("n_anywhere", "in a text", "count"),
            Column("anywhere", "%", "share"),
            Column("n_everywhere", "in each text", "count"),
            Column("everywhere", "%", "share"),
            Column("kept", "enough, %", "share"),
            *(Column(f"shared_{n}", str(n), "number") for n in range(1, width + 1)),
        ),
        rows=tuple(row for each in found for row in _rows(each)),
        notes=tuple(notes),
    )


def _rows(found: Validated) -> Iterator[Row]:
    n, n_mlms = len(found.anywhere), len(found.mlms)
    shared = (in_common(found.anywhere) / found.n_problems).tolist()
    numbers = {
        "anywhere": np.bincount(found.anywhere.sum(axis=1), minlength=n_mlms + 1),
        "everywhere": np.bincount(found.everywhere.sum(axis=1), minlength=n_mlms + 1),
    }
    only = {
        "anywhere": np.diag(in_common(found.anywhere)),
        "everywhere": np.diag(in_common(found.everywhere)),
    }

    def row(kind: str, by: str, counts: dict[str, Any], kept: float | None, place: str) -> Row:
        values = {name: int(count) for name, count in counts.items()}
        return {
            "config": found.config,
            "kind": kind,
            "place": place,
            "by": by,
            **{f"n_{name}": count for name, count in values.items()},
            **{name: count / n for name, count in values.items()},
            "n_kept": kept,
            "kept": None if kept is None else kept / n,
        }

    for m, mlm in enumerate(found.mlms):
        counts = {name: values[m] for name, values in only.items()}
        in_all = float(found.everywhere[:, m].sum())
        yield row(MLM, mlm, counts, in_all, str(m + 1)) | {
            f"shared_{other + 1}": value for other, value in enumerate(shared[m])
        }
    for k in range(2, n_mlms + 1):
        counts = {name: values[k] for name, values in numbers.items()}
        yield row(NUMBER, f"{k} masked LMs", counts, float(found.kept[k - 1]), "")
    if n_mlms > 1:
        yield row(SEVERAL, SEVERAL, {k: v[2:].sum() for k, v in numbers.items()}, None, "")
        yield row(NONE, NONE, {k: v[0] for k, v in numbers.items()}, None, "")
    yield row(ALL, ALL, dict.fromkeys(numbers, n), float(found.kept[-1]), "")


# --- The drawing ---


def plot_provenance(table: Table) -> Figure:
    """Draw for each configuration what masked LMs share (figure 11), and what fewer would keep."""
    configs = distinct(table.rows, "config")
    of_configs = [[row for row in table.rows if row["config"] == config] for config in configs]
    n_mlms = max(sum(row["kind"] == MLM for row in rows) for rows in of_configs)
    figure = new_figure(PAGE, len(configs) * (1.9 + 0.24 * n_mlms))
    axes_of = figure.subplots(len(configs), 2, squeeze=False)
    for (heat, curve), config, rows in zip(axes_of, configs, of_configs, strict=True):
        of_mlms = [row for row in rows if row["kind"] == MLM]
        numbers = range(1, len(of_mlms) + 1)
        values = [[row[f"shared_{n}"] for n in numbers] for row in of_mlms]
        top = max(max(line) for line in values) or 1.0
        image = heat_map(heat, values, (0.0, top), "{:.1f}")
        names = short_names([row["by"] for row in of_mlms])
        heat.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize="small")
        heat.set_yticks(range(len(names)), names, fontsize="small")
        heat.set_title(f"{config}: shared; on the diagonal had alone", fontsize="small")
        figure.colorbar(image, ax=heat, label="shared per problem", shrink=0.8)
        # How many there would be with fewer masked LMs: dots for each, a line on average.
        alone = [row["n_kept"] for row in of_mlms]
        mean = [sum(alone) / len(alone)]
        mean += [row["n_kept"] for row in rows if row["kind"] == NUMBER]
        curve.plot(range(1, len(mean) + 1), mean, "o-", color=PALETTE[0], label="on average")
        curve.plot([1] * len(alone), alone, "x", color=PALETTE[1], label="each masked LM")
        curve.set_xticks(range(1, len(mean) + 1))
        curve.set_ylim(bottom=0)
        curve.set_xlabel("masked LMs")
        curve.set_title(f"{table.title.partition(' ')[0].lower()} with fewer", fontsize="small")
        curve.legend(frameon=False, fontsize="small", loc="lower right")
        grid(curve)
    return figure
