"""Replacements by the masked LMs that validated them: table 10 and figure 11 of the paper.

For a dataset the replacements are its sampled variants, for a run folder all before sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any, Final

import numpy as np

from merge_dataset.engine import connect, naming_damaged, parquet
from merge_dataset.files import read_schema
from merge_dataset.layout import split_files
from merge_dataset.schema import PARAPHRASE, parse_config_name
from merge_metric.agreement.overview import short_names
from merge_metric.analyses.measures import Bools, Floats, Ints, Row, titled
from merge_metric.analyses.registry import Request
from merge_metric.analyses.run_folders import REPLACEMENTS, file_of_build
from merge_metric.tables import Table, columns, plots
from merge_metric.tables.plots import PAGE, PALETTE

MLM: Final = "mlm"
NUMBER: Final = "number"
NONE: Final = "none"
SEVERAL: Final = "several"
ALL: Final = "all"
"""Values of `kind`: what a row is about."""


def provenance(request: Request, *, run: Path | None = None) -> Table:
    """Make a row per masked LM and per number of them, for each configuration or a run folder.

    They are of distinct variants, or of all replacements of a run folder or a build inside one.
    """
    unit = "replacements" if run else "variants"
    rows: list[Row] = []
    problems = []
    if run:
        files: dict[str | None, list[Path]] = {None: [file_of_build(run, REPLACEMENTS)]}
    else:
        chosen = request.chosen_configs()
        if not request.configs:
            chosen = [c for c in chosen if parse_config_name(c)[1] != PARAPHRASE] or chosen
        folder = request.dataset
        files = {c: [folder / f for f in split_files(folder, c)["variants"]] for c in chosen}
    for config, of_config in files.items():
        name, n_problems, made = _rows(of_config, config, unit)
        problems.append(f"{name} {n_problems:,}")
        rows += made
    width = max(sum(key.startswith("shared_") for key in row) for row in rows)
    shown = (
        *columns(config="source", place="", by="validated by"),
        *columns("count", n_anywhere="in a text"),
        *columns("share", anywhere="%"),
        *columns("count", n_everywhere="in each text"),
        *columns("share", everywhere="%", kept="enough, %"),
        *columns("number", **{f"shared_{n}": str(n) for n in range(1, width + 1)}),
    )
    return titled("provenance", shown, rows, unit=unit, problems=problems)


def _rows(files: Sequence[Path], config: str | None, unit: str) -> tuple[str, int, list[Row]]:
    """Make the rows of files of replacements; also return their source, and count problems."""
    texts = [name for name in read_schema(files[0]).names if name.endswith("_mlms")]
    lists = ", ".join(f'coalesce(list_sort("{column}"), [])' for column in texts)
    query = (
        "SELECT texts, count(*) AS n, count(DISTINCT seed_id) AS seeds, "
        "list(DISTINCT source ORDER BY source) AS sources "
        f"FROM (SELECT *, [{lists}] AS texts FROM {parquet(files)}) "
        "GROUP BY GROUPING SETS ((texts), ()) ORDER BY texts"
    )
    with connect() as connection, naming_damaged(dict(zip(files, files, strict=True))):
        counted = connection.sql(query).to_arrow_table().to_pylist()
    patterns = [row for row in counted if row["texts"] is not None]
    (whole,) = (row for row in counted if row["texts"] is None)
    mlms = sorted({mlm for row in patterns for names in row["texts"] for mlm in names})
    if not mlms:
        raise ValueError(
            f"{config or files[0]}: expected {unit} that masked LMs validated, got none"
            + ("; name other configurations with `config`" if config else "")
        )
    # Which LMs validated the replacements of a pattern in which text, (P, texts, M).
    needed = np.array([[[m in names for m in mlms] for names in row["texts"]] for row in patterns])
    has = {"anywhere": np.any(needed, axis=1)}
    if len(texts) > 2:
        # Two texts both have the word. With more texts, some may lack it: there no LM validated.
        needed |= ~np.any(needed, axis=2, keepdims=True)
    has["everywhere"] = np.all(needed, axis=1)
    of_patterns = np.array([row["n"] for row in patterns], np.int64)
    n, n_mlms, kept = whole["n"], len(mlms), kept_with(needed, of_patterns)
    name = config or ", ".join(whole["sources"])
    numbers = {key: _by_number(of, of_patterns) for key, of in has.items()}
    alone = {
        key: of_patterns @ (of & (of.sum(axis=1, keepdims=True) == 1)) for key, of in has.items()
    }
    shared = (has["anywhere"] * of_patterns[:, None]).T @ has["anywhere"]
    np.fill_diagonal(shared, alone["anywhere"])
    per_problem = (shared / whole["seeds"]).tolist()

    def row(kind: str, by: str, counts: dict[str, Any], kept: float | None, place: str = "") -> Row:
        about: Row = {"config": name, "kind": kind, "place": place, "by": by}
        about |= {f"n_{key}": int(count) for key, count in counts.items()}
        about |= {key: int(count) / n for key, count in counts.items()}
        return about | {"n_kept": kept, "kept": None if kept is None else kept / n}

    rows = []
    for m, mlm in enumerate(mlms):
        in_all = float(of_patterns @ has["everywhere"][:, m])
        of_mlm = row(MLM, mlm, {key: of[m] for key, of in alone.items()}, in_all, str(m + 1))
        others = enumerate(per_problem[m], start=1)
        rows.append(of_mlm | {f"shared_{other}": value for other, value in others})
    for k in range(2, n_mlms + 1):
        of_k = {key: values[k] for key, values in numbers.items()}
        rows.append(row(NUMBER, f"{k} masked LMs", of_k, float(kept[k - 1])))
    if n_mlms > 1:
        several = {key: values[2:].sum() for key, values in numbers.items()}
        rows.append(row(SEVERAL, SEVERAL, several, None))
        rows.append(row(NONE, NONE, {key: values[0] for key, values in numbers.items()}, None))
    rows.append(row(ALL, ALL, dict.fromkeys(numbers, n), float(kept[-1])))
    return name, whole["seeds"], rows


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


# --- The drawing ---


def plot_provenance(table: Table) -> plots.Figure:
    """Draw overlaps of masked LMs (figure 11) and rows kept with fewer LMs, by configuration."""
    configs = plots.distinct(table.rows, "config")
    of_configs = [[row for row in table.rows if row["config"] == config] for config in configs]
    n_mlms = max(sum(row["kind"] == MLM for row in rows) for rows in of_configs)
    figure = plots.new_figure(PAGE, len(configs) * (1.9 + 0.24 * n_mlms))
    axes_of = figure.subplots(len(configs), 2, squeeze=False)
    for (heat, curve), config, rows in zip(axes_of, configs, of_configs, strict=True):
        of_mlms = [row for row in rows if row["kind"] == MLM]
        numbers = range(1, len(of_mlms) + 1)
        values = [[row[f"shared_{n}"] for n in numbers] for row in of_mlms]
        top = max(max(line) for line in values) or 1.0
        image = plots.heat_map(heat, values, (0.0, top), "{:.1f}")
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
        plots.grid(curve)
    return figure
