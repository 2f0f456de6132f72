"""Sections of a report as tables, for Markdown, LaTeX and JSON; the page lays out its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from merge_metric.analyses.curves import matching_table
from merge_metric.frame.noise import noise_text
from merge_metric.report.evidence import Configuration, Evidence, VariantPart
from merge_metric.report.seeds import SourceSeeds, hardest_table
from merge_metric.report.wording import (
    BREAKDOWN,
    HEADLINE,
    KIN,
    MATCHING,
    RELAXED,
    STRICT,
)
from merge_metric.seed_variant_accuracy.figures import Figure
from merge_metric.seed_variant_accuracy.formatting import as_percent
from merge_metric.seed_variant_accuracy.resampling import resampled_units
from merge_metric.tables import Column, Table, columns, figure_column, figure_values

FEW: Final = 6
"""Largest number of models for which everything is shown."""

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


def tables(
    evidence: Evidence, sources: Sequence[SourceSeeds] = (), *, for_page: bool = False
) -> list[Table]:
    """List a report's tables; for the page, with all pairs and a heat map of all figures."""
    configurations = evidence.configurations
    found = [headline(evidence, each) for each in configurations]
    for configuration in configurations:
        found += comparison(configuration, every_pair=for_page)
    found.append(heat_map(evidence) if for_page else matching(evidence))
    found += [evidence.validity] if evidence.validity else []
    for configuration in configurations:
        for kind, by in (("word_class", "class of the replaced word"), ("label", "gold label")):
            if parts := configuration.parts_by(kind):
                title = f", by {by}"
                found.append(_figures(evidence, configuration, kind, title, BREAKDOWN, parts=parts))
    found += evidence.classes
    for configuration in configurations:
        found += [fooling(evidence, configuration), kin(evidence, configuration)]
        if shifted := shift(evidence, configuration):
            found.append(shifted)
    return found + [hardest_table(evidence, source) for source in sources]


def headline(evidence: Evidence, configuration: Configuration) -> Table:
    """Make the first table, with a row per model."""
    whole, mixture = configuration.parts()[0].some_result, configuration.mixture
    sizes = f": {whole['n_seeds']:,} seeds, {whole['n_variants']:,} variants"
    notes = (*([mixture] if mixture else []), *of_answers(evidence, configuration))
    return _figures(evidence, configuration, "figures", sizes, HEADLINE, notes)


def of_answers(evidence: Evidence, configuration: Configuration) -> Iterator[str]:
    """Yield sentences on answers without a label, and on the noise of models."""
    for name, result in zip(evidence.names, configuration.results, strict=True):
        if result and (found := result.get("without_label")):
            share = as_percent(found["share"])
            yield f"{name}: {share} of the answers name no label and count as wrong."
        if result and (noise := result.get("noise")):
            yield f"{name}: {' '.join(line.strip() for line in noise_text(noise))}."


def kin(evidence: Evidence, configuration: Configuration) -> Table:
    """Make the table of related figures by other authors on the same sets, with a row per model."""
    title = ": summaries without a threshold, consistency and agreement"
    meanings = " ".join(f"{figure.heading}: {figure.meaning}" for figure in KIN)
    return _figures(evidence, configuration, "kin", title, KIN, [meanings])


def comparison(configuration: Configuration, *, every_pair: bool = False) -> list[Table]:
    """Make the tables of `merge-nli compare`; for many models only neighbours, or `every_pair`."""
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
    return matching_table(
        (
            (name, heading, part.results[position])
            for position, name in enumerate(evidence.names)
            for heading, part in parts
        ),
        "Matching threshold MC of models on sources and word classes",
        f"In percent. {MATCHING.explanation}",
    )


def heat_map(evidence: Evidence) -> Table:
    """Make a table of all figures, with a row per configuration, part of it and model."""
    rows = (
        {"config": configuration.name, **row}
        for configuration in evidence.configurations
        for row in _rows(evidence, configuration.parts_by("all", "word_class"), HEADLINE)
    )
    shown = (*columns(config="config"), _PART, _MODEL, *map(figure_column, HEADLINE))
    return Table(
        "heat-map",
        "Sources and word classes",
        shown,
        tuple(rows),
        (f"In percent{_with_intervals(evidence)}.",),
    )


def _figures(
    evidence: Evidence,
    configuration: Configuration,
    name: str,
    title: str,
    figures: Sequence[Figure],
    notes: Sequence[str] = (),
    parts: Sequence[VariantPart] = (),
) -> Table:
    """Make a table of figures, with a row per model or, if given, per part and model."""
    rows = _rows(evidence, parts or configuration.parts()[:1], figures)
    if not parts:
        rows = ({key: row[key] for key in row if key != "part"} for row in rows)
    title = f"{configuration.name}{title}"
    shown = (*([_PART] if parts else []), _MODEL, *map(figure_column, figures))
    all_notes = (f"In percent{_with_intervals(evidence)}.", *notes)
    return Table(_name(name, configuration), title, shown, tuple(rows), all_notes)


def fooling(evidence: Evidence, configuration: Configuration) -> Table:
    """Make the table of fooling rates, for all seeds and by gold label."""
    parts = [configuration.parts()[0], *configuration.parts_by("label")]
    title = ": fooling rates, relaxed (r_r) and strict (r_s)"
    table = _figures(evidence, configuration, "fooling", title, (RELAXED, STRICT), parts=parts)
    note = (
        f"In percent of the seeds answered right{_with_intervals(evidence)}: those with a variant "
        "that gets another answer, or the opposite one."
    )
    return replace(table, notes=(note,))


def shift(evidence: Evidence, configuration: Configuration) -> Table | None:
    """Make the table of shifts of label probabilities; None without probabilities."""
    rows = [
        {"model": name, **{key: result[key] for key in SHIFT}}
        for name, result in zip(evidence.names, configuration.results, strict=True)
        if result and "jsd_changed" in result
    ]
    if not rows:
        return None
    title = f"{configuration.name}: shift of the label probabilities"
    shown = (_MODEL, *columns("fraction", **SHIFT))
    notes = (
        "Over the variants of the seeds answered right, apart for answers that change and "
        "that stay the same: Jensen–Shannon divergence from the seed in bits, "
        "Kolmogorov–Smirnov statistic, standard deviation (σ) of the probabilities.",
    )
    return Table(_name("shift", configuration), title, shown, tuple(rows), notes)


def _rows(
    evidence: Evidence, parts: Sequence[VariantPart], figures: Sequence[Figure]
) -> Iterator[Mapping[str, Any]]:
    for part in parts:
        for name, result in zip(evidence.names, part.results, strict=True):
            values = figure_values(result, figures) if result else {}
            yield {"part": part.title, "model": name} | values


def _name(kind: str, configuration: Configuration) -> str:
    return f"{kind.replace('_', '-')}-{configuration.name.replace('_', '-')}"


def _with_intervals(evidence: Evidence) -> str:
    units = resampled_units(evidence.cluster)
    return f", with 95 % intervals by bootstrap over {units}" if evidence.n_bootstrap else ""
