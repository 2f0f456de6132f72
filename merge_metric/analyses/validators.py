"""Replacements by the masked LMs that validated them: table 10 and figure 11 of the paper.

For a dataset the replacements are its sampled variants, for a run folder all before sampling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_dataset.engine import connect, naming_damaged, parquet
from merge_dataset.layout import split_files
from merge_metric.agreement.judgements import mlm_columns
from merge_metric.agreement.overview import short_names
from merge_metric.analyses.measures import Bools, Floats, Ints, Row
from merge_metric.analyses.run_folders import REPLACEMENTS, file_of_build
from merge_metric.tables import Table, columns
from merge_metric.tables.plots import PAGE, PALETTE, distinct, grid, heat_map, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MLM: Final = "mlm"
NUMBER: Final = "number"
NONE: Final = "none"
SEVERAL: Final = "several"
ALL: Final = "all"
"""Values of `kind`: what a row is about."""


@dataclass(frozen=True, slots=True, eq=False)
class Validated:
    """Replacements of a configuration or run, in P patterns: which LMs validated them where."""

    config: str
    unit: str
    """Name of what is counted, in the plural."""
    mlms: tuple[str, ...]
    """The M masked LMs, sorted."""
    needed: Bools
    """Whether each LM validated in each text, (P, texts, M); all true for a text without word."""
    anywhere: Bools
    """Whether each LM validated the replacements in some text, (P, M)."""
    n: Ints
    """Number of replacements of each pattern, (P,)."""
    n_problems: int


def of_dataset(folder: Path, config: str) -> Validated:
    """Read a configuration's distinct variants."""
    files = [folder / name for name in split_files(folder, config)["variants"]]
    return _read(files, config, "variants")


def of_run(run: Path) -> Validated:
    """Read all replacements of a run folder, or of a build inside one."""
    return _read([file_of_build(run, REPLACEMENTS)], None, "replacements")


def _read(files: Sequence[Path], config: str | None, unit: str) -> Validated:
    texts = mlm_columns(files[0])
    lists = ", ".join(f'coalesce(list_sort("{column}"), [])' for column in texts)
    query = (
        "SELECT texts, count(*) AS n, count(DISTINCT seed_id) AS seeds, "
        "list(DISTINCT source ORDER BY source) AS sources "
        f"FROM (SELECT *, [{lists}] AS texts FROM {parquet(files)}) "
        "GROUP BY GROUPING SETS ((texts), ())"
    )
    with connect() as connection, naming_damaged(dict(zip(files, files, strict=True))):
        rows = connection.sql(f"{query} ORDER BY texts").to_arrow_table().to_pylist()
    patterns = [row for row in rows if row["texts"] is not None]
    (whole,) = (row for row in rows if row["texts"] is None)
    mlms = sorted({name for pattern in patterns for names in pattern["texts"] for name in names})
    if not mlms:
        raise ValueError(
            f"{config or files[0]}: expected {unit} that masked LMs validated, got none"
            + ("; name other configurations with `config`" if config else "")
        )
    has = np.array(
        [[[m in names for m in mlms] for names in pattern["texts"]] for pattern in patterns]
    )
    needed = has
    if len(texts) > 2:
        # Two texts both have the word. With more texts, some may lack it: there no LM validated.
        needed = has | ~np.any(has, axis=2, keepdims=True)
    return Validated(
        config=config or ", ".join(whole["sources"]),
        unit=unit,
        mlms=tuple(mlms),
        needed=needed,
        anywhere=np.any(has, axis=1),
        n=np.array([pattern["n"] for pattern in patterns], np.int64),
        n_problems=whole["seeds"],
    )


def kept_with(needed: Bools, n: Ints) -> Floats:
    """Count rows kept with 1, 2, …, M of the masked LMs, (M,), averaged over all choices of LMs.

    `needed`, (P, texts, M), says which LMs validated rows in which text, `n`, (P,), how many rows.
    By inclusion–exclusion over texts: C(M − v, k) of C(M, k) choices have none of v masked LMs.

    >>> both = np.array([[[True, False], [True, True]], [[True, False], [False, True]]])
    >>> kept_with(both, np.array([1, 1]))
    array([0.5, 2. ])
    """
    _, n_texts, n_mlms = needed.shape
    share_without = np.array(
        [[comb(n_mlms - v, k) / comb(n_mlms, k) for v in range(n_mlms + 1)]
         for k in range(1, n_mlms + 1)]
    )  # fmt: skip
    kept = np.full(n_mlms, float(n.sum()))
    for size in range(1, n_texts + 1):
        for chosen in combinations(range(n_texts), size):
            numbers = _by_number(np.any(needed[:, chosen], axis=1), n)
            kept += (-1) ** size * (share_without @ numbers)
    return kept


def _by_number(has: Bools, n: Ints) -> Ints:
    """Count the rows validated by 0, 1, …, M masked LMs, (M + 1,)."""
    numbers = np.bincount(has.sum(axis=1), n, minlength=has.shape[1] + 1)
    return numbers.astype(np.int64)


def _in_common(has: Bools, n: Ints) -> Ints:
    """Count rows that both of two masked LMs validated, (M, M); diagonal: rows of one LM alone."""
    counts: Ints = (has * n[:, None]).T @ has
    alone = has & (has.sum(axis=1, keepdims=True) == 1)
    np.fill_diagonal(counts, n @ alone)
    return counts


# --- The table ---


def provenance(everything: Iterable[Validated]) -> Table:
    """Make a row per masked LM and per number of them, for each configuration or run."""
    of_all = list(everything)
    unit = of_all[0].unit
    width = max(len(of.mlms) for of in of_all)
    problems = ", ".join(f"{of.config} {of.n_problems:,}" for of in of_all)
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
    title = f"{unit.capitalize()} by the masked LMs that validated them"
    shown = (
        *columns(config="source", place="", by="validated by"),
        *columns("count", n_anywhere="in a text"),
        *columns("share", anywhere="%"),
        *columns("count", n_everywhere="in each text"),
        *columns("share", everywhere="%", kept="enough, %"),
        *columns("number", **{f"shared_{n}": str(n) for n in range(1, width + 1)}),
    )
    made = tuple(row for of in of_all for row in _rows(of))
    return Table("provenance", title, shown, made, tuple(notes))


def _rows(validated: Validated) -> Iterator[Row]:
    n, n_mlms, kept = (
        int(validated.n.sum()),
        len(validated.mlms),
        kept_with(validated.needed, validated.n),
    )
    has = {"anywhere": validated.anywhere, "everywhere": np.all(validated.needed, axis=1)}
    numbers = {name: _by_number(of, validated.n) for name, of in has.items()}
    shared = (_in_common(validated.anywhere, validated.n) / validated.n_problems).tolist()
    alone = {name: np.diag(_in_common(of, validated.n)) for name, of in has.items()}

    def row(kind: str, by: str, counts: dict[str, Any], kept: float | None, place: str = "") -> Row:
        about: Row = {"config": validated.config, "kind": kind, "place": place, "by": by}
        about |= {f"n_{name}": int(count) for name, count in counts.items()}
        about |= {name: int(count) / n for name, count in counts.items()}
        return about | {"n_kept": kept, "kept": None if kept is None else kept / n}

    for m, mlm in enumerate(validated.mlms):
        own = {name: values[m] for name, values in alone.items()}
        in_all = float(validated.n @ has["everywhere"][:, m])
        yield row(MLM, mlm, own, in_all, str(m + 1)) | {
            f"shared_{other}": value for other, value in enumerate(shared[m], start=1)
        }
    for k in range(2, n_mlms + 1):
        of_k = {name: values[k] for name, values in numbers.items()}
        yield row(NUMBER, f"{k} masked LMs", of_k, float(kept[k - 1]))
    if n_mlms > 1:
        yield row(SEVERAL, SEVERAL, {k: v[2:].sum() for k, v in numbers.items()}, None)
        yield row(NONE, NONE, {k: v[0] for k, v in numbers.items()}, None)
    yield row(ALL, ALL, dict.fromkeys(numbers, n), float(kept[-1]))


# --- The drawing ---


def plot_provenance(table: Table) -> Figure:
    """Draw overlaps of masked LMs (figure 11) and rows kept with fewer LMs, by configuration."""
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
        # Rows kept with fewer masked LMs: a dot for each, a line for the average.
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
