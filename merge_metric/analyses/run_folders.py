"""Analyses of run folders: shared words, suggestions that pass filters, and composition.

Tables 2, 3 and 5 of the paper, and the poster, which counts variants before sampling. A seed whose
word stands twice in a text, or has another form in the problem, may be biased (Limitations).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from merge_dataset.engine import connect, parquet
from merge_dataset.files import changed_files, digest_of_file, read_record, read_schema, read_table
from merge_dataset.layout import format_in, split_files
from merge_dataset.provenance import format_of_run
from merge_dataset.schema import VARIANT_CLASSES, WORD_CLASSES, format_of
from merge_metric.analyses.measures import Row, titled
from merge_metric.analyses.registry import MAKERS, Request
from merge_metric.frame.joined import same_labels
from merge_metric.tables import Column, Table, columns, initials, legend, plots

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

    def is_current() -> bool:
        return (
            path.is_file()
            and suggested.is_file()
            and (record := read_record(path))["made_from"] == digest_of_file(suggested)
            and not changed_files(run, record["files"])
        )

    if not is_current() and "counts" in MAKERS:
        log.info("%s: counting what each filter lets pass, which takes longer than a build", run)
        MAKERS["counts"](run)
    if not is_current():
        raise FileNotFoundError(
            f"{run}: expected a run folder with {_COUNTS} of its present files, found none; run: "
            f"merge-nli analyse filters --run {run}"
        )
    return read_record(path)


# --- Problems that share a word ---

SHARING: Final = "sharing"
ELIGIBLE: Final = "eligible"
"""Values of `which`: problems that share a word, and problems that have variants."""

ALL: Final = "all"


def seeds(request: Request, *, run: Path) -> Table:
    """Make rows by word class: problems that share words and, where there is a build, seeds."""
    source = read_counts(run)["source"]
    labels = format_of(read_schema(run / PROBLEMS)).labels
    total, rows = _shared_words(run, source, labels)
    letters = {f"label_{n}": f"{letter}, %" for n, letter in enumerate(initials(labels))}
    shown = (
        *columns(source="source", which="problems", word_class="class"),
        *columns("count", n="number"),
        *columns("share", **letters, stands_twice="twice, %", other_form="other form, %"),
    )
    unknown = any(row["which"] == SHARING and row["other_form"] is None for row in rows)
    built = (run / MANIFEST).is_file()
    return titled(
        "seeds", shown, rows, total=total, legend=legend(labels), built=built, unknown=unknown
    )


def _shared_words(run: Path, source: str, labels: Sequence[str]) -> tuple[int, list[Row]]:
    rows: list[Row] = []
    with connect() as connection:
        connection.sql(f"FROM {parquet([run / PROBLEMS])}").create_view("problems")
        connection.sql(f"FROM {parquet([run / SHARED_WORDS])}").create_view("words")
        total = len(connection.sql("SELECT seed_id FROM problems"))
        parts = {SHARING: "words"}
        if (run / MANIFEST).is_file():
            variants = parquet([file_of_build(run, VARIANTS)])
            parts[ELIGIBLE] = (
                # A variant with several replaced words counts for each of them.
                "words SEMI JOIN (SELECT seed_id, word_class, "
                f"unnest(regexp_split_to_array(original, '\\s+')) AS word FROM {variants}) "
                "USING (seed_id, word_class, word)"
            )
        of_words = connection.table("words").columns
        occurrences = [name for name in of_words if name.endswith("_occurrences")]
        n_problems = "count(DISTINCT seed_id)"
        wanted = [
            n_problems,
            "bool_and(other_forms IS NOT NULL)",
            f"{n_problems} FILTER (greatest({', '.join(occurrences)}) > 1)",
            f"{n_problems} FILTER (len(other_forms) > 0)",
            *(f"{n_problems} FILTER (label = ${n})" for n in range(1, len(labels) + 1)),
        ]
        for which, words in parts.items():
            relation = connection.sql(
                f"SELECT coalesce(word_class, '{ALL}'), {', '.join(wanted)} "
                f"FROM {words} JOIN problems USING (seed_id) "
                "GROUP BY GROUPING SETS ((word_class), ()) HAVING count(*) > 0",
                params=list(labels),
            )
            counts = {name: numbers for name, *numbers in relation.fetchall()}
            for name in (group for group in (*WORD_CLASSES, ALL) if group in counts):
                n, known, n_twice, n_forms, *golds = counts[name]
                row: Row = {"source": source, "which": which, "word_class": name}
                row |= {"n": n, "share": n / total}
                row |= {f"label_{code}": of_label / n for code, of_label in enumerate(golds)}
                row |= {"n_stands_twice": n_twice, "stands_twice": n_twice / n}
                row |= {"n_other_form": n_forms if known else None}
                rows.append(row | {"other_form": n_forms / n if known else None})
    return total, rows


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
    rows = []
    group = itemgetter("mlm", "word_class")
    order = sorted(record["filters"], key=lambda c: (c["mlm"], WORD_CLASSES.index(group(c)[1])))
    for (mlm, word_class), of_group in groupby(order, key=group):
        parts = list(of_group)
        total = {key: sum(part[key] for part in parts) for key in ("occurrences", _UNKNOWN, _ALL)}
        asked = total["occurrences"] - total[_UNKNOWN]
        row: Row = {"source": record["source"], "mlm": mlm, "word_class": word_class}
        row |= {"asked": asked, _UNKNOWN: total[_UNKNOWN]}
        row["per_occurrence"] = total[_ALL] / asked if asked else None
        for field in (None, *fields):
            mine = [part for part in parts if field in (None, part["field"])]
            n = sum(part[_ALL] for part in mine)
            for key in ("whole_words", *_SHARES):
                share = sum(part[key] for part in mine) / n if n else None
                row[f"{key}_{field}" if field else key] = share
        rows.append(row)
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
        rows += _count(files, name, labels, replacements)
    names = same_labels(labels_of)
    letters = dict(zip(names, initials(names), strict=True))
    before: tuple[Column, ...] = ()
    if run:
        of_labels = {f"n_replacements_{name}": letter for name, letter in letters.items()}
        before = columns("count", n_replacements="before sampling", **of_labels)
    shown = (
        *columns(config="source", word_class="class"),
        *columns("count", n_seeds="seeds"),
        *columns("share", **{f"seeds_{name}": f"{x}, %" for name, x in letters.items()}),
        *before,
        *columns("count", n_variants="variants"),
        *columns("threshold", per_seed="per seed"),
        *columns("count", n_drawn="in a subsample"),
    )
    return titled("composition", shown, rows, legend=legend(names), run=run)


def _count(
    files: Sequence[Path], config: str, labels: Sequence[str], replacements: str
) -> Iterator[Row]:
    parts = ["", *(f" FILTER (label = {code})" for code in range(len(labels)))]
    ends = ["", *(f"_{label}" for label in labels)]
    with connect() as connection:
        wanted = ("seed_id", "word_class", "label", "subsamples")
        connection.register("variants", pa.concat_tables([read_table(f, wanted) for f in files]))

        def counts(table: str, **numbers: str) -> dict[str, Row]:
            named = ", ".join(f'{sql} AS "{key}"' for key, sql in numbers.items())
            rows = connection.sql(
                f"SELECT coalesce(word_class, '{ALL}') AS word_class, {named} FROM {table} "
                "GROUP BY GROUPING SETS ((word_class), ())"
            )
            return {row["word_class"]: row for row in rows.to_arrow_table().to_pylist()}

        ((n_subsamples,),) = connection.sql(
            "SELECT count(DISTINCT number) FROM (SELECT unnest(subsamples) AS number FROM variants)"
        ).fetchall()
        of_seeds = (f"count(DISTINCT seed_id){part}" for part in parts)
        seeds = dict(zip((f"seeds{end}" for end in ends), of_seeds, strict=True))
        draws = "sum(len(subsamples))::BIGINT"
        variants = counts("variants", n_variants="count(*)", n_draws=draws, **seeds)
        before = {}
        if replacements:
            keys = (f"n_replacements{end}" for end in ends)
            every = (f"count(*){part}" for part in parts)
            before = counts(replacements, **dict(zip(keys, every, strict=True)))
    for name in (group for group in (*VARIANT_CLASSES, ALL) if group in variants):
        of_class = variants[name]
        n_variants, n_seeds = of_class["n_variants"], of_class["seeds"]
        row: Row = {"config": config, "word_class": name, "n_seeds": n_seeds}
        row |= {key: of_class[key] / n_seeds for key in seeds if key != "seeds"}
        row |= before.get(name, {}) | {"n_variants": n_variants, "per_seed": n_variants / n_seeds}
        yield row | {"n_drawn": round(of_class["n_draws"] / n_subsamples)}


def plot_composition(table: Table) -> plots.Figure:
    """Draw a panel per configuration: shares of labels among the seeds of each class."""
    keys = (column.key for column in table.columns if column.key.startswith("seeds_"))
    series = {key.removeprefix("seeds_"): key for key in keys}
    return plots.bar_panels(table, series, "seeds, %", at="word_class")
