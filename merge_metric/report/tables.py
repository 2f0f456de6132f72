"""The tables of a report, for Markdown, LaTeX and JSON; the page has them in its own form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from merge_dataset.schema import PARAPHRASE
from merge_metric.report.columns import (
    BREAKDOWN,
    HEADLINE,
    MATCHING,
    RELAXED,
    SEED,
    STRICT,
    Column,
    Result,
)
from merge_metric.report.evidence import Configuration, Evidence, Part
from merge_metric.report.seeds import MISSING, SourceSeeds
from merge_metric.tables import Column as TableColumn
from merge_metric.tables import Kind, Table, initials, legend

HARDEST: Final = 20
"""Seeds of a source in the table of the hardest."""

FEW: Final = 6
"""Models that can be told apart with everything about them shown."""

_MODEL: Final = TableColumn("model", "model")
_PART: Final = TableColumn("part", "of")

_SHIFT: Final = {
    "jsd_changed": "JSD, changed",
    "jsd_unchanged": "JSD, same",
    "ks_changed": "KS, changed",
    "ks_unchanged": "KS, same",
    "sigma_seeds": "σ, seeds",
    "sigma_changed": "σ, changed",
    "sigma_unchanged": "σ, same",
}


def tables(evidence: Evidence, sources: Sequence[SourceSeeds]) -> list[Table]:
    """Every table of a report, in its order."""
    found = [headline(evidence, configuration) for configuration in evidence.configurations]
    for configuration in evidence.configurations:
        found += comparison(configuration)
    found.append(matching(evidence))
    for configuration in evidence.configurations:
        for kind, title in (("word_class", "class of the replaced word"), ("label", "gold label")):
            if parts := configuration.parts_by(kind):
                found.append(breakdown(evidence, configuration, parts, title))
    found += [table for classes in evidence.classes for table in classes.tables]
    for configuration in evidence.configurations:
        found.append(fooling(evidence, configuration))
        if shifted := shift(evidence, configuration):
            found.append(shifted)
    return found + [hardest(evidence, source) for source in sources]


def headline(evidence: Evidence, configuration: Configuration) -> Table:
    """A row per model."""
    whole = configuration.parts()[0].some_result
    size = f"{whole['n_seeds']:,} seeds, {whole['n_variants']:,} variants"
    return Table(
        name=_name("figures", configuration),
        title=f"{configuration.name}: {size}",
        columns=(_MODEL, *map(_column, HEADLINE)),
        rows=tuple(_rows(evidence, configuration.results, HEADLINE)),
        notes=(f"In percent{_with_intervals(evidence)}.",),
    )


def comparison(configuration: Configuration) -> list[Table]:
    """What `merge-nli compare` says: ranks, and of few models all differences.

    Of many models those that follow one another: the page and the JSON have the others.
    """
    if not (compared := configuration.comparison):
        return []
    pairs = compared.pairs if len(compared.models.rows) <= FEW else compared.neighbours()
    return [
        replace(compared.ranking(), name=_name("ranking", configuration)),
        replace(
            pairs,
            name=_name("differences", configuration),
            title=f"{configuration.name}: {pairs.title[0].lower()}{pairs.title[1:]}",
        ),
    ]


def matching(evidence: Evidence) -> Table:
    """The heat map: a row per model, a column per configuration and word class."""
    alone = len(evidence.configurations) == 1
    parts = [
        (part.title if alone else f"{configuration.name}, {part.title}", part)
        for configuration in evidence.configurations
        for part in configuration.parts()
        if part.kind != "label"
    ]
    rows = (
        {"model": name}
        | {
            heading: result[MATCHING.key]
            for heading, part in parts
            if (result := part.results[position])
        }
        for position, name in enumerate(evidence.names)
    )
    return Table(
        name="matching",
        title="Matching threshold MC of models on sources and word classes",
        columns=(_MODEL, *(TableColumn(heading, heading, "threshold") for heading, _ in parts)),
        rows=tuple(rows),
        notes=(f"In percent. {MATCHING.meaning[0].upper()}{MATCHING.meaning[1:]}",),
    )


def breakdown(
    evidence: Evidence, configuration: Configuration, parts: Sequence[Part], title: str
) -> Table:
    """A row per part and model."""
    return Table(
        name=_name(parts[0].kind, configuration),
        title=f"{configuration.name}, by {title}",
        columns=(_PART, _MODEL, *map(_column, BREAKDOWN)),
        rows=tuple(_part_rows(evidence, parts, BREAKDOWN)),
        notes=(f"In percent{_with_intervals(evidence)}.",),
    )


def fooling(evidence: Evidence, configuration: Configuration) -> Table:
    """Fooling rates of all seeds and by gold label."""
    parts = [configuration.parts()[0], *configuration.parts_by("label")]
    return Table(
        name=_name("fooling", configuration),
        title=f"{configuration.name}: fooling rates, relaxed (r_r) and strict (r_s)",
        columns=(_PART, _MODEL, _column(RELAXED), _column(STRICT)),
        rows=tuple(_part_rows(evidence, parts, (RELAXED, STRICT))),
        notes=(
            f"In percent of the seeds answered right{_with_intervals(evidence)}: those with a "
            "variant that gets another answer, or the opposite one.",
        ),
    )


def shift(evidence: Evidence, configuration: Configuration) -> Table | None:
    """How label probabilities shift; None where no predictions have probabilities."""
    rows = [
        {"model": name, **{key: result[key] for key in _SHIFT}}
        for name, result in zip(evidence.names, configuration.results, strict=True)
        if result and "jsd_changed" in result
    ]
    if not rows:
        return None
    return Table(
        name=_name("shift", configuration),
        title=f"{configuration.name}: shift of the label probabilities",
        columns=(_MODEL, *(TableColumn(key, head, "fraction") for key, head in _SHIFT.items())),
        rows=tuple(rows),
        notes=(
            "Over the variants of the seeds answered right, apart for answers that change and "
            "that stay the same: Jensen–Shannon divergence from the seed in bits, "
            "Kolmogorov–Smirnov statistic, standard deviation (σ) of the probabilities.",
        ),
    )


def hardest(evidence: Evidence, source: SourceSeeds, most: int = HARDEST) -> Table:
    """The hardest seeds, as `merge-nli analyse hardest --top` finds them."""
    has_both = PARAPHRASE in source.word_classes and len(source.word_classes) > 1
    return Table(
        name=f"hardest-{source.source}",
        title=f"{source.source}: the hardest seeds",
        columns=(
            TableColumn("seed_id", "seed"),
            *(TableColumn(name, name, "passage") for name in source.texts),
            TableColumn("gold", "gold"),
            TableColumn("votes", "votes"),
            TableColumn("answers", "answers"),
            TableColumn("variants_right", "variants right", "share"),
        ),
        rows=tuple(seed_rows(evidence, source, most)),
        notes=(
            "By the share of variants answered right, in percent, averaged over models; each "
            "distinct variant counts once. Answers to the seed itself, in the order "
            f"{', '.join(evidence.names)}, and votes of annotators where known: "
            f"{legend(evidence.labels)}.",
            *(["Replacements and paraphrases count alike."] if has_both else []),
        ),
    )


def seed_rows(
    evidence: Evidence, source: SourceSeeds, most: int | None = None
) -> Iterator[dict[str, Any]]:
    """Seeds, hardest first: texts, labels, each model's answer and counts of right variants."""
    order, labels = source.hardest()[:most].tolist(), evidence.labels
    texts = source.seeds.take(order).to_pylist()
    n_variants, mean_right = source.n_variants.sum(axis=0), source.mean_right()
    counts = [table.sum(axis=1) for table in (source.n_answered, source.n_right)]
    for seed, text in zip(order, texts, strict=True):
        own = source.own[:, seed].tolist()
        answered, right = (table[:, seed].tolist() for table in counts)
        mean = float(mean_right[seed])
        yield {
            "source": source.source,
            "seed_id": text["seed_id"],
            **dict(zip(source.texts, (text["premise"], text["hypothesis"]), strict=True)),
            "gold": labels[text["label"]],
            "votes": _letters(sorted(text["annotator_labels"] or ()), labels) or None,
            "answers": _letters(own, labels),
            "variants_right": None if math.isnan(mean) else mean,
            "n_variants": int(n_variants[seed]),
            "by_model": {
                name: {
                    "answer": None if code == MISSING else labels[code],
                    "n_answered": n,
                    "n_right": n_right,
                }
                for name, code, n, n_right in zip(evidence.names, own, answered, right, strict=True)
            },
        }


def _column(column: Column) -> TableColumn:
    kind: Kind = "threshold" if column is MATCHING else "share"
    head = {SEED.key: "S", "variant_accuracy": "var.acc"}.get(column.key, column.head)
    return TableColumn(column.key, head, kind, f"{column.key}_ci")


def _rows(
    evidence: Evidence, results: Sequence[Result | None], columns: Sequence[Column]
) -> Iterator[Mapping[str, Any]]:
    for name, result in zip(evidence.names, results, strict=True):
        yield {"model": name} | (_values(result, columns) if result else {})


def _part_rows(
    evidence: Evidence, parts: Sequence[Part], columns: Sequence[Column]
) -> Iterator[Mapping[str, Any]]:
    for part in parts:
        for row in _rows(evidence, part.results, columns):
            yield {"part": part.title, **row}


def _values(result: Result, columns: Sequence[Column]) -> dict[str, Any]:
    """As results have them: shares of 1, thresholds in percent."""
    curve = result["sv_curve"]
    values: dict[str, Any] = {key: result[key] for key in ("n_seeds", "n_variants")}
    for column in columns:
        key = column.key
        if key.startswith("SV@"):
            position = int(key[3:]) - 1
            values[key] = curve["accuracy"][position]
            if "low" in curve:
                values[f"{key}_ci"] = [curve["low"][position], curve["high"][position]]
        else:
            values |= {name: result[name] for name in (key, f"{key}_ci") if name in result}
    return values


def _name(kind: str, configuration: Configuration) -> str:
    return f"{kind.replace('_', '-')}-{configuration.name.replace('_', '-')}"


def _with_intervals(evidence: Evidence) -> str:
    return ", with 95 % intervals by bootstrap over seeds" if evidence.n_bootstrap else ""


def _letters(codes: Sequence[int], labels: Sequence[str]) -> str:
    letters = initials(labels)
    return " ".join("–" if code == MISSING else letters[code] for code in codes)
