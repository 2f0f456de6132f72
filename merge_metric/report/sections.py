"""Sections of a report as tables, for Markdown, LaTeX and JSON; the page has its own forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from merge_metric.report.evidence import Configuration, Evidence, Result, VariantPart
from merge_metric.report.seeds import SourceSeeds, hardest_table
from merge_metric.report.wording import (
    BREAKDOWN,
    FLAGS_EXPLAINED,
    HEADLINE,
    KIN,
    MATCHING,
    RELAXED,
    STRICT,
)
from merge_metric.runs.noise import noise_text
from merge_metric.seed_variant_accuracy.figures import Figure
from merge_metric.seed_variant_accuracy.resampling import resampled_units
from merge_metric.tables import Column, Table, columns, figure_column, figure_values

FEW: Final = 6
"""Models that can be told apart with everything about them shown."""

SHIFT: Final = {
    "jsd_changed": "JSD, changed",
    "jsd_unchanged": "JSD, same",
    "ks_changed": "KS, changed",
    "ks_unchanged": "KS, same",
    "sigma_seeds": "σ, seeds",
    "sigma_changed": "σ, changed",
    "sigma_unchanged": "σ, same",
}
"""Figures of label probabilities: key of the result → heading."""

_MODEL: Final = Column("model", "model")
_PART: Final = Column("part", "of")


def tables(evidence: Evidence, sources: Sequence[SourceSeeds]) -> list[Table]:
    """List every table of a report, in its order."""
    found = [headline(evidence, configuration) for configuration in evidence.configurations]
    for configuration in evidence.configurations:
        found += comparison(configuration)
    found.append(matching(evidence))
    found += _tables_of_parts(evidence)
    return found + [hardest_table(evidence, source) for source in sources]


def page_tables(evidence: Evidence) -> list[Table]:
    """List the tables that the page offers to take away: with all pairs, and all figures."""
    found = [headline(evidence, configuration) for configuration in evidence.configurations]
    for configuration in evidence.configurations:
        found += comparison(configuration, every_pair=True)
    return [*found, heat_map(evidence), *_tables_of_parts(evidence)]


def _tables_of_parts(evidence: Evidence) -> list[Table]:
    found = [evidence.validity] if evidence.validity else []
    for configuration in evidence.configurations:
        for kind, title in (("word_class", "class of the replaced word"), ("label", "gold label")):
            if parts := configuration.parts_by(kind):
                found.append(_breakdown(evidence, configuration, parts, title))
        if parts := configuration.flag_parts():
            found.append(label_flags(evidence, configuration, parts))
    found += [table for classes in evidence.classes for table in classes.tables]
    for configuration in evidence.configurations:
        found += [fooling(evidence, configuration), kin(evidence, configuration)]
        if shifted := shift(evidence, configuration):
            found.append(shifted)
    return found


def headline(evidence: Evidence, configuration: Configuration) -> Table:
    """Make the first table, with a row per model."""
    whole = configuration.parts()[0].some_result
    mixture = configuration.mixture
    return Table(
        name=_name("figures", configuration),
        title=f"{configuration.name}: {whole['n_seeds']:,} seeds, {whole['n_variants']:,} variants",
        columns=(_MODEL, *map(figure_column, HEADLINE)),
        rows=tuple(_rows(evidence, configuration.results, HEADLINE)),
        notes=(
            f"In percent{_with_intervals(evidence)}.",
            *([mixture] if mixture else []),
            *of_answers(evidence, configuration),
        ),
    )


def of_answers(evidence: Evidence, configuration: Configuration) -> Iterator[str]:
    """Say which models gave answers without a label, and how noisy they are."""
    for name, result in zip(evidence.names, configuration.results, strict=True):
        if result and (found := result.get("without_label")):
            yield f"{name}: {found['share']:.1%} of the answers name no label and count as wrong."
        if result and (noise := result.get("noise")):
            yield f"{name}: {' '.join(line.strip() for line in noise_text(noise))}."


def kin(evidence: Evidence, configuration: Configuration) -> Table:
    """Make the table of what others compute of the same sets, with a row per model."""
    return Table(
        name=_name("kin", configuration),
        title=f"{configuration.name}: summaries without a threshold, consistency and agreement",
        columns=(_MODEL, *map(figure_column, KIN)),
        rows=tuple(_rows(evidence, configuration.results, KIN)),
        notes=(
            f"In percent{_with_intervals(evidence)}.",
            " ".join(f"{figure.heading}: {figure.meaning}" for figure in KIN),
        ),
    )


def comparison(configuration: Configuration, *, every_pair: bool = False) -> list[Table]:
    """Make the tables of `merge-nli compare`: ranks and, of few models, all differences.

    Of many models those that follow one another, unless every pair is asked for: the page and
    the JSON have the others.
    """
    if not (compared := configuration.comparison):
        return []
    is_whole = every_pair or len(compared.models.rows) <= FEW
    pairs = compared.pairs if is_whole else compared.neighbours()
    return [
        replace(compared.ranking(), name=_name("ranking", configuration)),
        replace(
            pairs,
            name=_name("differences", configuration),
            title=f"{configuration.name}: {pairs.title[0].lower()}{pairs.title[1:]}",
        ),
    ]


def matching(evidence: Evidence) -> Table:
    """Make the heat map: a row per model, a column per configuration and word class."""
    alone = len(evidence.configurations) == 1
    parts = [
        (part.title if alone else f"{configuration.name}, {part.title}", part)
        for configuration in evidence.configurations
        for part in configuration.parts_by("all", "word_class")
    ]
    keys = {end: f"{MATCHING.key}{end}" for end in ("", "_low", "_high")} | {"_n_seeds": "n_seeds"}
    rows = (
        {"model": name}
        | {
            f"{heading}{end}": result[key]
            for end, key in keys.items()
            for heading, part in parts
            if (result := part.results[position])
        }
        for position, name in enumerate(evidence.names)
    )
    return Table(
        name="matching",
        title="Matching threshold MC of models on sources and word classes",
        columns=(_MODEL, *columns("threshold", **{heading: heading for heading, _ in parts})),
        rows=tuple(rows),
        notes=(f"In percent. {MATCHING.explanation}",),
    )


def heat_map(evidence: Evidence) -> Table:
    """Make a table of all figures, with a row per configuration, part of it and model."""
    rows = (
        {"config": configuration.name, **row}
        for configuration in evidence.configurations
        for row in _part_rows(evidence, configuration.parts_by("all", "word_class"), HEADLINE)
    )
    return Table(
        name="heat-map",
        title="Sources and word classes",
        columns=(*columns(config="config"), _PART, _MODEL, *map(figure_column, HEADLINE)),
        rows=tuple(rows),
        notes=(f"In percent{_with_intervals(evidence)}.",),
    )


def _breakdown(
    evidence: Evidence, configuration: Configuration, parts: Sequence[VariantPart], title: str
) -> Table:
    """Make a table with a row per part and model."""
    return Table(
        name=_name(parts[0].kind, configuration),
        title=f"{configuration.name}, by {title}",
        columns=(_PART, _MODEL, *map(figure_column, BREAKDOWN)),
        rows=tuple(_part_rows(evidence, parts, BREAKDOWN)),
        notes=(f"In percent{_with_intervals(evidence)}.",),
    )


def label_flags(
    evidence: Evidence, configuration: Configuration, parts: Sequence[VariantPart]
) -> Table:
    """Make the table of variants with and without label flags, and how many there are."""
    table = _breakdown(evidence, configuration, parts, "label flag")
    results = (result or {} for part in parts for result in part.results)
    sizes = columns("count", n_seeds="seeds", n_variants="variants")
    part, model, *figures = table.columns
    rows = (
        {**row, **{column.key: result.get(column.key) for column in sizes}}
        for row, result in zip(table.rows, results, strict=True)
    )
    return replace(
        table,
        columns=(part, model, *sizes, *figures),
        rows=tuple(rows),
        notes=(*table.notes, FLAGS_EXPLAINED),
    )


def fooling(evidence: Evidence, configuration: Configuration) -> Table:
    """Make the table of fooling rates, of all seeds and by gold label."""
    parts = [configuration.parts()[0], *configuration.parts_by("label")]
    return Table(
        name=_name("fooling", configuration),
        title=f"{configuration.name}: fooling rates, relaxed (r_r) and strict (r_s)",
        columns=(_PART, _MODEL, figure_column(RELAXED), figure_column(STRICT)),
        rows=tuple(_part_rows(evidence, parts, (RELAXED, STRICT))),
        notes=(
            f"In percent of the seeds answered right{_with_intervals(evidence)}: those with a "
            "variant that gets another answer, or the opposite one.",
        ),
    )


def shift(evidence: Evidence, configuration: Configuration) -> Table | None:
    """Make the table of shifting label probabilities; None where there are none."""
    rows = [
        {"model": name, **{key: result[key] for key in SHIFT}}
        for name, result in zip(evidence.names, configuration.results, strict=True)
        if result and "jsd_changed" in result
    ]
    if not rows:
        return None
    return Table(
        name=_name("shift", configuration),
        title=f"{configuration.name}: shift of the label probabilities",
        columns=(_MODEL, *columns("fraction", **SHIFT)),
        rows=tuple(rows),
        notes=(
            "Over the variants of the seeds answered right, apart for answers that change and "
            "that stay the same: Jensen–Shannon divergence from the seed in bits, "
            "Kolmogorov–Smirnov statistic, standard deviation (σ) of the probabilities.",
        ),
    )


def _rows(
    evidence: Evidence, results: Sequence[Result | None], figures: Sequence[Figure]
) -> Iterator[Mapping[str, Any]]:
    for name, result in zip(evidence.names, results, strict=True):
        yield {"model": name} | (figure_values(result, figures) if result else {})


def _part_rows(
    evidence: Evidence, parts: Sequence[VariantPart], figures: Sequence[Figure]
) -> Iterator[Mapping[str, Any]]:
    for part in parts:
        for row in _rows(evidence, part.results, figures):
            yield {"part": part.title, **row}


def _name(kind: str, configuration: Configuration) -> str:
    return f"{kind.replace('_', '-')}-{configuration.name.replace('_', '-')}"


def _with_intervals(evidence: Evidence) -> str:
    units = resampled_units(evidence.cluster)
    return f", with 95 % intervals by bootstrap over {units}" if evidence.n_bootstrap else ""
