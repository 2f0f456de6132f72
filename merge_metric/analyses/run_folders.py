"""Analyses of run folders, and of what datasets are made of.

Shared words, suggestions that pass filters, composition, and masked LMs that validated replacements
(a dataset's sampled variants, or all before sampling): tables 2, 3, 5 and 10 and figure 11 of the
paper, and the poster, which counts variants before sampling. A seed whose word stands twice in a
text, or has another form in the problem, may be biased (Limitations).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merge_dataset.engine import connect, naming_damaged, parquet
from merge_dataset.files import changed_files, digest_of_file, read_record, read_schema, read_table
from merge_dataset.layout import format_in, split_files
from merge_dataset.provenance import format_of_run
from merge_dataset.schema import (
    PARAPHRASE,
    VARIANT_CLASSES,
    WORD_CLASSES,
    format_of,
    parse_config_name,
)
from merge_metric.agreement.overview import short_names
from merge_metric.analyses.measures import Bools, Floats, Ints, Row, titled
from merge_metric.analyses.registry import MAKERS, Request
from merge_metric.frame.joined import same_labels
from merge_metric.tables import Table, initials, legend, plots
from merge_metric.tables.plots import PAGE, PALETTE

log = logging.getLogger(__name__)

REPLACEMENTS: Final = "replacements.parquet"
"""File with all replacements R_M(⟨p, h⟩, o), before sampling."""
PROBLEMS: Final = "problems.parquet"
VARIANTS: Final = "variants.parquet"

MANIFEST: Final = "manifest.json"
_COUNTS: Final = "counts.json"


def _require(is_there: bool, run: Path, name: str, command: str) -> None:
    if not is_there:
        raise FileNotFoundError(
            f"{run}: expected a run folder with {name} as its record says, found none; run: "
            f"merge-nli {command} --run {run}"
        )


def file_of_build(run: Path, name: str) -> Path:
    """Return the path of a file of a finished build, checked against its record."""
    manifest = run / MANIFEST
    recorded = read_record(manifest).get("files", {}) if manifest.is_file() else {}
    whole = not changed_files(run, {name: recorded[name]} if name in recorded else {})
    _require(whole and manifest.is_file() and (run / name).is_file(), run, name, "build")
    return run / name


def read_counts(run: Path) -> dict[str, Any]:
    """Read the counts of a run's suggestions; count where there are none, or of other files."""
    path, suggested = run / _COUNTS, run / "suggested.json"
    for make in (MAKERS.get("counts"), None):
        record = read_record(path) if path.is_file() and suggested.is_file() else {}
        is_current = bool(record) and record["made_from"] == digest_of_file(suggested)
        if is_current and not changed_files(run, record["files"]):
            break
        if make:
            log.info(
                "%s: counting what each filter lets pass, which takes longer than a build", run
            )
            make(run)
    else:
        _require(False, run, _COUNTS, "analyse filters")
    return record


# --- Problems that share a word ---

SHARING: Final = "sharing"
ELIGIBLE: Final = "eligible"
"""Values of `which`: problems that share a word, and problems that have variants."""

ALL: Final = "all"


def _by_class(tables: str, values: Mapping[str, str]) -> str:
    """Write a query with a row for each class of variants, in order, and a last one for all."""
    columns = "".join(f', {sql} AS "{name}"' for name, sql in values.items())
    return (
        f"SELECT coalesce(word_class, '{ALL}') AS word_class{columns} FROM {tables} "
        "GROUP BY GROUPING SETS ((word_class), ()) HAVING count(*) > 0 "
        f"ORDER BY list_position({[*VARIANT_CLASSES]}, word_class) NULLS LAST"
    )


def seeds(request: Request, *, run: Path) -> Table:
    """Make rows by word class: problems that share words and, where there is a build, seeds."""
    source, built = read_counts(run)["source"], (run / MANIFEST).is_file()
    labels = format_of(read_schema(run / PROBLEMS)).labels
    parts, rows = {SHARING: "words"}, list[Row]()
    if built:
        variants = parquet([file_of_build(run, VARIANTS)])
        parts[ELIGIBLE] = (
            # A variant with several replaced words counts for each of them.
            "words SEMI JOIN (SELECT seed_id, word_class, "
            f"unnest(regexp_split_to_array(original, '\\s+')) AS word FROM {variants}) "
            "USING (seed_id, word_class, word)"
        )
    with connect() as connection:
        for view, file in {"problems": PROBLEMS, "words": "shared_words.parquet"}.items():
            connection.execute(f"CREATE TEMP VIEW {view} AS FROM {parquet([run / file])}")
        total = len(connection.sql("SELECT seed_id FROM problems"))
        names = connection.table("words").columns
        occurrences = ", ".join(name for name in names if name.endswith("_occurrences"))
        n_problems = "count(DISTINCT seed_id)"
        twice = f"{n_problems} FILTER (greatest({occurrences}) > 1)"
        known = "bool_and(other_forms IS NOT NULL)"
        other = f"CASE WHEN {known} THEN {n_problems} FILTER (len(other_forms) > 0) END"
        wanted = {"n": n_problems, "share": f"{n_problems} / {total}"}
        values = {f"label_{k}": label for k, label in enumerate(labels)}
        wanted |= {
            label: f"{n_problems} FILTER (label = ${label}) / {n_problems}" for label in values
        }
        wanted |= {"n_stands_twice": twice, "stands_twice": f"{twice} / {n_problems}"}
        wanted |= {"n_other_form": other, "other_form": f"({other}) / {n_problems}"}
        for which, words in parts.items():
            query = _by_class(f"{words} JOIN problems USING (seed_id)", wanted)
            about = {"source": source, "which": which}
            counted = connection.sql(query, params=values).to_arrow_table().to_pylist()
            rows += [about | row for row in counted]
    letters = {f"label_{n}": f"{letter}, %" for n, letter in enumerate(initials(labels))}
    unknown = any(row["which"] == SHARING and row["other_form"] is None for row in rows)
    of_labels: Row = {"legend": legend(labels), "letters": letters}
    return titled("seeds", rows, "", total=total, built=built, unknown=unknown, **of_labels)


def plot_seeds(table: Table) -> plots.Figure:
    """Draw problems, and seeds below: shares of labels, of words twice and in other forms."""
    shares = [column for column in table.columns if column.kind == "share"]
    series = {column.heading.removesuffix(", %"): column.key for column in shares}
    return plots.bar_panels(table, series, "problems, %", panel="which", at="word_class")


# --- Suggestions that filters pass ---

_UNKNOWN: Final = "not_in_vocabulary"
_ALL: Final = "suggestions"
_SHARES: Final = {"same_class": "same class", "more_probable": "more probable", "both": "both"}


def filters(request: Request, *, run: Path) -> Table:
    """Make a row per masked LM and word class, with shares by text and over all texts."""
    record = read_counts(run)
    fields = plots.distinct(record["filters"], "field")
    shares: dict[str, str] = {}
    for key, heading in _SHARES.items():
        of_fields = zip(fields, initials(fields), strict=True)
        shares |= {key: heading} | {f"{key}_{field}": letter for field, letter in of_fields}
    asked = f"sum(occurrences - {_UNKNOWN})"
    wanted = {"asked": f"{asked}::BIGINT", _UNKNOWN: f"sum({_UNKNOWN})::BIGINT"}
    wanted["per_occurrence"] = f"sum({_ALL}) / nullif({asked}, 0)"
    for field in ("", *fields):
        mine = f"FILTER (field = '{field}')" if field else ""
        for key in ("whole_words", *_SHARES):
            share = f'sum("{key}") {mine} / nullif(sum({_ALL}) {mine}, 0)'
            wanted[f"{key}_{field}" if field else key] = share
    values = ", ".join(f'{sql} AS "{name}"' for name, sql in wanted.items())
    with connect() as connection:
        connection.register("filters", pa.Table.from_pylist(record["filters"]))
        made = connection.sql(
            f"SELECT $source AS source, mlm, word_class, {values} FROM filters "
            f"GROUP BY mlm, word_class ORDER BY mlm, list_position({[*WORD_CLASSES]}, word_class)",
            params={"source": record["source"]},
        )
        rows = made.to_arrow_table().to_pylist()
    return titled("filters", rows, legend=legend(fields), shares=shares)


plot_filters: Final = partial(
    plots.bar_panels,
    series={name: key for key, name in _SHARES.items()},
    label="suggestions, %",
    panel="word_class",
    at="mlm",
)
"""Draw a panel per word class: bars of the shares at each masked LM, over all texts."""


# --- Seeds and variants by word class and label ---

_UNITS: Final = {
    "class": "seed_id, word_class",
    "problem": "seed_id",
    "word": "seed_id, word_class, word",
}
"""Scope of the least number of replacements → columns that define one unit of it."""


def composition(request: Request, *, run: Path | None = None) -> Table:
    """Make a row per word class, and one for all, of each configuration or of a run folder.

    Distinct variants are counted, the seeds that they are of and, of a run folder or a build inside
    one, all replacements.
    """
    labels_of: dict[str, tuple[str, ...]] = {}
    rows: list[Row] = []
    n_seeds = "count(DISTINCT seed)"
    draws = "SELECT count(DISTINCT draw) FROM (SELECT unnest(subsamples) AS draw FROM variants)"
    for name in [""] if run else request.chosen_configs():
        # Replacements have another column of seeds, so that counts of seeds are those of variants.
        counted = "SELECT seed_id AS seed, word_class, label, subsamples FROM variants"
        if run:
            made, files = read_record(run / MANIFEST), [file_of_build(run, VARIANTS)]
            name, labels = made["source"], format_of_run(made).labels
            unit = _UNITS[made["config"]["min_replacements_scope"]]
            every = parquet([file_of_build(run, REPLACEMENTS)])
            counted += (
                " UNION ALL BY NAME SELECT seed_id AS replaced, every.word_class, label FROM "
                f"{every} every JOIN (SELECT DISTINCT seed_id, label FROM variants) "
                "USING (seed_id) SEMI JOIN "
                f"(SELECT {unit} FROM {every} GROUP BY ALL HAVING count(*) >= "
                f"{made['config']['min_replacements']:d}) USING ({unit})"
            )
        else:
            labels = format_in(request.dataset, name).labels
            files = [request.dataset / f for f in split_files(request.dataset, name)["variants"]]
        labels_of[name] = labels
        of_label = {label: f"FILTER (label = {code})" for code, label in enumerate(labels)}
        wanted = {"n_seeds": n_seeds}
        wanted |= {f"seeds_{x}": f"{n_seeds} {part} / {n_seeds}" for x, part in of_label.items()}
        if run:
            wanted |= {"n_replacements": "count(replaced)"}
            wanted |= {f"n_replacements_{x}": f"count(replaced) {p}" for x, p in of_label.items()}
        wanted |= {"n_variants": "count(seed)", "per_seed": f"count(seed) / {n_seeds}"}
        wanted |= {"n_drawn": f"round_even(sum(len(subsamples)) / ({draws}), 0)::BIGINT"}
        with connect() as connection:
            columns = ("seed_id", "word_class", "label", "subsamples")
            tables = [read_table(file, columns) for file in files]
            connection.register("variants", pa.concat_tables(tables))
            table = connection.sql(_by_class(f"({counted})", wanted)).to_arrow_table()
        rows += ({"config": name} | row for row in table.to_pylist() if row["n_variants"])
    names = same_labels(labels_of)
    letters = dict(zip(names, initials(names), strict=True))
    return titled(
        "composition",
        rows,
        legend=legend(names),
        run=run,
        seeds={f"seeds_{name}": f"{letter}, %" for name, letter in letters.items()},
        replacements={f"n_replacements_{name}": letter for name, letter in letters.items()},
    )


def plot_composition(table: Table) -> plots.Figure:
    """Draw a panel per configuration: shares of labels among the seeds of each class."""
    keys = (column.key for column in table.columns if column.key.startswith("seeds_"))
    series = {key.removeprefix("seeds_"): key for key in keys}
    return plots.bar_panels(table, series, "seeds, %", at="word_class")


# --- Masked LMs that validated replacements ---

MLM: Final = "mlm"
NUMBER: Final = "number"
NONE: Final = "none"
SEVERAL: Final = "several"
"""Values of `kind`, with `ALL`: what a row is about."""


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
        name, n_problems, made = _provenance_of(of_config, config, unit)
        problems.append(f"{name} {n_problems:,}")
        rows += made
    width = max(sum(key.startswith("shared_") for key in row) for row in rows)
    shared = {f"shared_{n}": str(n) for n in range(1, width + 1)}
    return titled("provenance", rows, unit=unit, problems=problems, shared=shared)


def _provenance_of(
    files: Sequence[Path], config: str | None, unit: str
) -> tuple[str, int, list[Row]]:
    """Make the rows of files of replacements; also return their source, and count problems."""
    texts = [name for name in read_schema(files[0]).names if name.endswith("_mlms")]
    lists = ", ".join(f'coalesce(list_sort("{column}"), [])' for column in texts)
    query = (
        "SELECT texts, count(*) AS n, count(DISTINCT seed_id) AS seeds, "
        "list(DISTINCT source ORDER BY source) AS sources "
        f"FROM (SELECT *, [{lists}] AS texts FROM {parquet(files)}) "
        "GROUP BY GROUPING SETS ((texts), ()) ORDER BY texts NULLS LAST"
    )
    with connect() as connection, naming_damaged(dict(zip(files, files, strict=True))):
        *patterns, whole = connection.sql(query).to_arrow_table().to_pylist()
    mlms = sorted({mlm for row in patterns for names in row["texts"] for mlm in names})
    if not mlms:
        raise ValueError(
            f"{config or files[0]}: expected {unit} that masked LMs validated, got none"
            + ("; name other configurations with `config`" if config else "")
        )
    # Which LMs validated the replacements of a pattern in which text, (P, texts, M).
    needed = np.array([[[m in names for m in mlms] for names in row["texts"]] for row in patterns])
    anywhere = np.any(needed, axis=1)
    if len(texts) > 2:
        # Two texts both have the word. With more texts, some may lack it: there no LM validated.
        needed |= ~np.any(needed, axis=2, keepdims=True)
    everywhere = np.all(needed, axis=1)
    n = np.array([row["n"] for row in patterns], np.int64)
    kept, in_all = kept_with(needed, n), (n @ everywhere).astype(np.float64)
    # Of both readings: replacements of an LM alone, (2, M), and of 0, 1, … LMs, (2, M + 1).
    alone = [n @ (has & (has.sum(axis=1, keepdims=True) == 1)) for has in (anywhere, everywhere)]
    numbers = np.array([_by_number(has, n) for has in (anywhere, everywhere)])
    shared = (anywhere * n[:, None]).T @ anywhere
    np.fill_diagonal(shared, alone[0])
    kinds: list[tuple[str, str, Ints, float | None]] = [
        *((MLM, mlm, of, k) for mlm, of, k in zip(mlms, np.transpose(alone), in_all, strict=True)),
        *((NUMBER, f"{k} masked LMs", numbers[:, k], kept[k - 1]) for k in range(2, len(mlms) + 1)),
        (SEVERAL, SEVERAL, numbers[:, 2:].sum(axis=1), None),
        (NONE, NONE, numbers[:, 0], None),
        (ALL, ALL, numbers.sum(axis=1), kept[-1]),
    ]
    name, total, rows = config or ", ".join(whole["sources"]), whole["n"], list[Row]()
    for place, (kind, by, counts, n_kept) in enumerate(kinds):
        row: Row = {"config": name, "kind": kind, "place": "", "by": by}
        row |= dict(zip(("n_anywhere", "n_everywhere"), counts.tolist(), strict=True))
        row |= dict(zip(("anywhere", "everywhere"), (counts / total).tolist(), strict=True))
        row |= {"n_kept": None, "kept": None}
        if n_kept is not None:
            row |= {"n_kept": float(n_kept), "kept": float(n_kept) / total}
        if kind == MLM:
            row["place"] = str(place + 1)
            of_problem = (shared[place] / whole["seeds"]).tolist()
            row |= {f"shared_{other}": value for other, value in enumerate(of_problem, start=1)}
        if len(mlms) > 1 or kind in (MLM, ALL):
            rows.append(row)
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
