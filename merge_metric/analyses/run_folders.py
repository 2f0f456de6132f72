"""Analyses of run folders, and of what datasets are made of.

Shared words, suggestions that pass filters, composition, and masked LMs that validated replacements
(a dataset's sampled variants, or all before sampling): tables 2, 3, 5 and 10 and figure 11 of the
paper, and the poster, which counts variants before sampling. A seed whose word stands twice in a
text, or has another form in the problem, may be biased (Limitations).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
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
from merge_metric.tables import Column, Table, columns, initials, legend, plots
from merge_metric.tables.plots import PAGE, PALETTE

log = logging.getLogger(__name__)

REPLACEMENTS: Final = "replacements.parquet"
"""File with all replacements R_M(⟨p, h⟩, o), before sampling."""
PROBLEMS: Final = "problems.parquet"
VARIANTS: Final = "variants.parquet"
SHARED_WORDS: Final = "shared_words.parquet"
"""File with shared words of all classes, their counts in each text, and their other forms."""

MANIFEST: Final = "manifest.json"
_COUNTS: Final = "counts.json"


def file_of_build(run: Path, name: str) -> Path:
    """Return the path of a file of a finished build, checked against its record."""
    manifest = run / MANIFEST
    recorded = read_record(manifest).get("files", {}) if manifest.is_file() else {}
    whole = not changed_files(run, {name: recorded[name]} if name in recorded else {})
    if not whole or not manifest.is_file() or not (run / name).is_file():
        raise FileNotFoundError(
            f"{run}: expected a run folder with {name} as recorded in its {MANIFEST}, found none; "
            f"run: merge-nli build --run {run}"
        )
    return run / name


def read_counts(run: Path) -> dict[str, Any]:
    """Read the counts of a run's suggestions; count where there are none, or of other files."""
    path, suggested = run / _COUNTS, run / "suggested.json"
    for make in (MAKERS.get("counts"), None):
        record = read_record(path) if path.is_file() and suggested.is_file() else {}
        is_current = record and record["made_from"] == digest_of_file(suggested)
        if is_current and not changed_files(run, record["files"]):
            return record
        if make:
            log.info(
                "%s: counting what each filter lets pass, which takes longer than a build", run
            )
            make(run)
    raise FileNotFoundError(
        f"{run}: expected a run folder with {_COUNTS} of its present files, found none; run: "
        f"merge-nli analyse filters --run {run}"
    )


# --- Problems that share a word ---

SHARING: Final = "sharing"
ELIGIBLE: Final = "eligible"
"""Values of `which`: problems that share a word, and problems that have variants."""

ALL: Final = "all"

_BY_CLASS: Final = (
    "GROUP BY GROUPING SETS ((word_class), ()) HAVING count(*) > 0 "
    f"ORDER BY list_position({[*VARIANT_CLASSES]}, word_class) NULLS LAST"
)
"""End of a query with a row for each class of variants, in order, and a last one for all."""


def _named(columns: Mapping[str, str]) -> str:
    """Write the columns of such a query: the class, then values by name."""
    values = (f', {sql} AS "{name}"' for name, sql in columns.items())
    return f"coalesce(word_class, '{ALL}') AS word_class{''.join(values)}"


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
        for view, file in {"problems": PROBLEMS, "words": SHARED_WORDS}.items():
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
            made = connection.sql(
                f"SELECT {_named(wanted)} FROM {words} JOIN problems USING (seed_id) {_BY_CLASS}",
                params=values,
            )
            about = {"source": source, "which": which}
            rows += [about | row for row in made.to_arrow_table().to_pylist()]
    letters = {f"label_{n}": f"{letter}, %" for n, letter in enumerate(initials(labels))}
    shown = (
        *columns(source="source", which="problems", word_class="class"),
        *columns("count", n="number"),
        *columns("share", **letters, stands_twice="twice, %", other_form="other form, %"),
    )
    unknown = any(row["which"] == SHARING and row["other_form"] is None for row in rows)
    return titled(
        "seeds", shown, rows, total=total, legend=legend(labels), built=built, unknown=unknown
    )


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
    shown = (
        *columns(source="source", mlm="masked LM", word_class="class"),
        *columns("count", asked="occurrences"),
        *columns("number", per_occurrence="each"),
        *columns("share", **shares),
    )
    return titled("filters", shown, rows, legend=legend(fields))


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
    for config in [run] if run else request.chosen_configs():
        replacements = ""
        if isinstance(config, Path):
            made, files = read_record(config / MANIFEST), [file_of_build(config, VARIANTS)]
            unit = _UNITS[made["config"]["min_replacements_scope"]]
            every = parquet([file_of_build(config, REPLACEMENTS)])
            replacements = (
                f"(SELECT every.*, label FROM {every} every JOIN (SELECT DISTINCT seed_id, label "
                f"FROM variants) USING (seed_id) SEMI JOIN (SELECT {unit} FROM {every} GROUP BY "
                f"ALL HAVING count(*) >= {made['config']['min_replacements']:d}) USING ({unit}))"
            )
            name, labels = made["source"], format_of_run(made).labels
        else:
            name, labels = config, format_in(request.dataset, config).labels
            files = [request.dataset / f for f in split_files(request.dataset, config)["variants"]]
        labels_of[name] = labels
        rows += [{"config": name} | row for row in _count(files, labels, replacements)]
    names = same_labels(labels_of)
    letters = dict(zip(names, initials(names), strict=True))
    of_labels: tuple[Column, ...] = ()
    if run:
        keys = {f"n_replacements_{name}": letter for name, letter in letters.items()}
        of_labels = columns("count", n_replacements="before sampling", **keys)
    shown = (
        *columns(config="source", word_class="class"),
        *columns("count", n_seeds="seeds"),
        *columns("share", **{f"seeds_{name}": f"{x}, %" for name, x in letters.items()}),
        *of_labels,
        *columns("count", n_variants="variants"),
        *columns("threshold", per_seed="per seed"),
        *columns("count", n_drawn="in a subsample"),
    )
    return titled("composition", shown, rows, legend=legend(names), run=run)


def _count(files: Sequence[Path], labels: Sequence[str], replacements: str) -> Iterator[Row]:
    of_label = {label: f"FILTER (label = {code})" for code, label in enumerate(labels)}
    n = "count(DISTINCT seed_id)"
    seeds = {"n_seeds": n} | {f"seeds_{x}": f"{n} {part} / {n}" for x, part in of_label.items()}
    before = {"n_replacements": "count(*)"}
    before |= {f"n_replacements_{x}": f"count(*) {part}" for x, part in of_label.items()}
    draws = "SELECT count(DISTINCT draw) FROM (SELECT unnest(subsamples) AS draw FROM variants)"
    variants = {"n_variants": "count(*)", "per_seed": f"count(*) / {n}"}
    variants |= {"n_drawn": f"round_even(sum(len(subsamples)) / ({draws}), 0)::BIGINT"}
    queries = [("variants", seeds), (replacements, before), ("variants", variants)]
    counted = []
    with connect() as connection:
        wanted = ("seed_id", "word_class", "label", "subsamples")
        tables = [read_table(file, wanted) for file in files]
        connection.register("variants", pa.concat_tables(tables))
        for table, columns in ((table, columns) for table, columns in queries if table):
            query = f"SELECT {_named(columns)} FROM {table} {_BY_CLASS}"
            made = connection.sql(query).to_arrow_table().to_pylist()
            counted.append({row["word_class"]: row for row in made})
    for word_class, row in counted[0].items():
        for others in counted[1:]:
            row |= others.get(word_class, {})
        yield row


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
    shown = (
        *columns(config="source", place="", by="validated by"),
        *columns("count", n_anywhere="in a text"),
        *columns("share", anywhere="%"),
        *columns("count", n_everywhere="in each text"),
        *columns("share", everywhere="%", kept="enough, %"),
        *columns("number", **{f"shared_{n}": str(n) for n in range(1, width + 1)}),
    )
    return titled("provenance", shown, rows, unit=unit, problems=problems)


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
