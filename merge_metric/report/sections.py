"""Tables of a report's sections, for documents; the page lays out its own."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from merge_dataset.schema import PARAPHRASE
from merge_metric.analyses.curves import matching_table
from merge_metric.frame.counting import MISSING
from merge_metric.frame.noise import letters_text, noise_text, usage_text
from merge_metric.models.label_order import describe_evidence
from merge_metric.report.evidence import Configuration, Evidence, Result, VariantPart, titled
from merge_metric.report.seeds import SourceSeeds
from merge_metric.seed_variant_accuracy.figures import (
    CATALOGUE,
    MATCHING_RANGE,
    QUALITY_THRESHOLD,
    Estimate,
    Figure,
    estimate,
    is_undetermined,
    keys_shown,
    main_figures,
    percent,
    span,
    sv_at,
)
from merge_metric.seed_variant_accuracy.formatting import HUNDRED, as_percent, show_value
from merge_metric.seed_variant_accuracy.options import NO_LABEL
from merge_metric.seed_variant_accuracy.resampling import resampled_units
from merge_metric.tables import Table, figure_values, initials, legend

# --- Figures and numbers ---

SEED, VARIANT = CATALOGUE["seed_accuracy"], CATALOGUE["variant_accuracy"]
MATCHING = CATALOGUE["matching_threshold"]
RELAXED, STRICT = CATALOGUE["relaxed_fooling_rate"], CATALOGUE["strict_fooling_rate"]
HEADLINE: Final = main_figures(50, 80, 90, 100)

KIN: Final = tuple(CATALOGUE[key].at(QUALITY_THRESHOLD) for key in keys_shown("kin"))
"""Figures of the table on relatives of SV accuracy, at the threshold of reports."""

BREAKDOWN: Final = (SEED, VARIANT, sv_at(90), MATCHING)


def cell(result: Result, figure: Figure) -> Estimate:
    """Read a figure from a result, in percent; an undetermined threshold has no value."""
    if figure.key == MATCHING.key and undetermined(result):
        return Estimate(None)
    figures = estimate(result, figure)
    return Estimate(*(value if value is None else percent(value, figure.unit) for value in figures))


def undetermined(result: Result) -> str:
    """Write the range of matching thresholds if it is too wide to be informative, else ""."""
    low, high = (result[key] for key in MATCHING_RANGE)
    return span(low, high) if is_undetermined(low, high) else ""


def shown(result: Result, figure: Figure) -> str:
    """Format a figure of a result, or the range of an undetermined threshold."""
    value = cell(result, figure).value
    return number(value) if figure.key != MATCHING.key else undetermined(result) or number(value)


def number(value: float | None) -> str:
    """Format a figure as everywhere in the report, 100 without decimals.

    >>> number(81.25), number(100.0), number(None)
    ('81.2', '100', '–')
    """
    return show_value(value, "threshold").replace(HUNDRED, "100")


def interval_text(of: Estimate) -> str:
    """Format an interval; empty if there is none."""
    return f"{number(of.low)}–{number(of.high)}" if of.has_interval else ""


# --- Origin of data and models ---

_OF_THE_RUN: Final = (
    *("name", "problems", "rows", "distinct_pairs", "label_order_check", "fingerprint", "prompt"),
)
"""Keys about a run instead of its model, or shown elsewhere; the JSON has them."""


def model_text(description: Mapping[str, Any]) -> str:
    """Describe a model by the metadata of its predictions file."""
    shown = {k: v for k, v in description.items() if k not in _OF_THE_RUN}
    if requests := description.get("requests"):
        for key in ("requests", "prompt_tokens", "answer_tokens", "milliseconds", "prices"):
            shown.pop(key, None)
        shown["usage"] = usage_text(description, requests)
    if letters := letters_text(description):
        shown = {k: v for k, v in shown.items() if not re.fullmatch("letter_[A-Z]", k)}
        shown["answers_by_letter"] = letters
    if evidence := shown.get("label_order_evidence"):
        shown["label_order_evidence"] = describe_evidence(evidence)
    return settings_text(shown)


def settings_text(
    values: Mapping[str, Any], above: str = "", *, without: Collection[str] = ()
) -> str:
    """Write nested settings, those with a value, without some keys."""
    parts = []
    for key, value in ((key, value) for key, value in values.items() if key not in without):
        name = above + key.replace("_", " ")
        if isinstance(value, Mapping):
            parts.append(settings_text(value, f"{name}, "))
            continue
        texts = []
        for item in [value] if isinstance(value, str) or not isinstance(value, Sequence) else value:
            if isinstance(item, bool):
                texts.append("yes" if item else "no")
            else:
                texts.append(f"{item:,}" if isinstance(item, int) and item >= 10_000 else str(item))
        text = ", ".join(texts) if value is not None else ""
        parts.append(f"{name}: {text}" if text else "")
    return "; ".join(filter(None, parts))


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


# --- Tables by section ---


def tables(evidence: Evidence, *, for_page: bool = False) -> dict[str, list[Table]]:
    """Make the tables of sections; the page leaves out those that have a list without any.

    For the page they have all pairs and a heat map of all figures.
    """
    configurations = evidence.configurations

    def with_rows(*names: str) -> list[Table]:
        made = (figures_table(evidence, of, name) for of in configurations for name in names)
        return [table for table in made if table.rows]

    made = {
        "figures": with_rows("figures"),
        "comparison": [
            table for of in configurations for table in comparison(of, every_pair=for_page)
        ],
        "matching": [heat_map(evidence) if for_page else matching(evidence)],
        "validity": list(evidence.validity),
        "breakdowns": with_rows("word_class", "label"),
        "classes": list(evidence.classes),
        "fooling": [
            table
            for of in configurations
            for table in (*(figures_table(evidence, of, name) for name in ("fooling", "kin")),
                          shift(evidence, of))
            if table.rows
        ],
    }  # fmt: skip
    if not for_page:  # where a script shows the seeds
        made["problems"] = [hardest(evidence, source) for source in evidence.sources]
    return made


_FIGURES: Final[Mapping[str, tuple[tuple[Figure, ...], tuple[str, ...]]]] = {
    "figures": (HEADLINE, ()),
    "word_class": (BREAKDOWN, ("word_class",)),
    "label": (BREAKDOWN, ("label",)),
    "fooling": ((RELAXED, STRICT), ("all", "label")),
    "kin": (KIN, ()),
}
"""Table → its figures, and the kinds of parts that have rows; without any, there is a row per model
for all variants."""


def figures_table(evidence: Evidence, configuration: Configuration, name: str) -> Table:
    """Make a table of `_FIGURES`, with a row per model and part."""
    figures, kinds = _FIGURES[name]
    return titled(
        name,
        _rows(evidence, configuration.parts(*(kinds or ("all",))), figures, bool(kinds)),
        _name(name, configuration),
        config=configuration.name,
        whole=configuration.parts()[0].some_result,
        intervals=_with_intervals(evidence),
        figures=figures,
        sentences=[*filter(None, [configuration.mixture]), *of_answers(evidence, configuration)],
    )


def of_answers(evidence: Evidence, configuration: Configuration) -> Iterator[str]:
    """Yield sentences on answers without a label, and on the noise of models."""
    for name, result in zip(evidence.names, configuration.results, strict=True):
        if result and (lost := result.get("without_label")):
            share = as_percent(lost["share"])
            yield f"{name}: {share} of the answers name no label and count as wrong."
        if result and (noise := result.get("noise")):
            yield f"{name}: {' '.join(line.strip() for line in noise_text(noise))}."
    for model in evidence.models:
        if letters := letters_text(model.description):
            yield f"{model.name}: answers by letter: {letters}."


def comparison(configuration: Configuration, *, every_pair: bool = False) -> list[Table]:
    """Make the tables of `merge-nli compare`; for many models only neighbours, or `every_pair`."""
    if not (compared := configuration.comparison):
        return []
    is_whole = every_pair or len(compared.models.rows) <= FEW
    pairs = compared.pairs if is_whole else compared.neighbours()
    title = f"{configuration.name}: {pairs.title[0].lower()}{pairs.title[1:]}"
    return [
        replace(compared.ranking(), name=_name("ranking", configuration)),
        replace(pairs, name=_name("differences", configuration), title=title),
    ]


def matching(evidence: Evidence) -> Table:
    """Make the heat map: a row per model, a column per configuration and word class."""
    alone = len(evidence.configurations) == 1
    return matching_table(
        (
            (name, part.title if alone else f"{of.name}, {part.title}", part.results[position])
            for position, name in enumerate(evidence.names)
            for of in evidence.configurations
            for part in of.parts("all", "word_class")
        ),
        "Matching threshold MC of models on sources and word classes",
        f"In percent. {MATCHING.explanation}",
    )


def heat_map(evidence: Evidence) -> Table:
    """Make a table of all figures, with a row per configuration, part of it and model."""
    rows = (
        {"config": of.name, **row}
        for of in evidence.configurations
        for row in _rows(evidence, of.parts("all", "word_class"), HEADLINE)
    )
    return titled("heat-map", rows, intervals=_with_intervals(evidence), figures=HEADLINE)


def shift(evidence: Evidence, configuration: Configuration) -> Table:
    """Make the table of shifts of label probabilities; it has no rows without probabilities."""
    rows = (
        {"model": name, **{key: result[key] for key in SHIFT}}
        for name, result in zip(evidence.names, configuration.results, strict=True)
        if result and "jsd_changed" in result
    )
    name = _name("shift", configuration)
    return titled("shift", rows, name, config=configuration.name, headings=SHIFT)


def hardest(evidence: Evidence, source: SourceSeeds) -> Table:
    """Make the table of the 20 hardest seeds, as `merge-nli analyse hardest --top` finds them."""
    return titled(
        "hardest",
        seed_rows(evidence, source, 20),
        f"hardest-{source.source}",
        source=source.source,
        texts={name: name for name in source.texts},
        names=evidence.names,
        legend=legend(evidence.labels),
        has_both=PARAPHRASE in source.word_classes and len(source.word_classes) > 1,
    )


def seed_rows(
    evidence: Evidence, source: SourceSeeds, most: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield rows of seeds, hardest first: texts, gold label, votes, models' answers and counts."""
    order, labels = source.hardest()[:most], evidence.labels
    letters = {**dict(enumerate(initials(labels))), NO_LABEL: "?", MISSING: "–"}
    names = {**dict(enumerate(labels)), NO_LABEL: "no label", MISSING: None}
    n_variants, mean_right = source.n_variants.sum(axis=0), source.mean_right()
    of_models = (source.own, source.n_answered.sum(axis=1), source.n_right.sum(axis=1))
    by_seed = (of_model[:, order].T.tolist() for of_model in of_models)
    seeds = zip(order.tolist(), source.seeds.take(order).to_pylist(), *by_seed, strict=True)
    for seed, text, own, answered, right in seeds:
        mean = float(mean_right[seed])
        votes = sorted(text["annotator_labels"] or ())
        yield {
            "source": source.source,
            "seed_id": text["seed_id"],
            **dict(zip(source.texts, (text["premise"], text["hypothesis"]), strict=True)),
            "gold": labels[text["label"]],
            "votes": " ".join(letters[code] for code in votes) or None,
            "answers": " ".join(letters[code] for code in own),
            "variants_right": None if math.isnan(mean) else mean,
            "n_variants": int(n_variants[seed]),
            "by_model": {
                name: {"answer": names[code], "n_answered": n, "n_right": n_right}
                for name, code, n, n_right in zip(evidence.names, own, answered, right, strict=True)
            },
        }


def _rows(
    evidence: Evidence,
    parts: Sequence[VariantPart],
    figures: Sequence[Figure],
    with_parts: bool = True,
) -> Iterator[Mapping[str, Any]]:
    for part in parts:
        for name, result in zip(evidence.names, part.results, strict=True):
            values = figure_values(result, figures) if result else {}
            yield {**({"part": part.title} if with_parts else {}), "model": name} | values


def _name(kind: str, configuration: Configuration) -> str:
    return f"{kind.replace('_', '-')}-{configuration.name.replace('_', '-')}"


def _with_intervals(evidence: Evidence) -> str:
    units = resampled_units(evidence.cluster)
    return f", with 95 % intervals by bootstrap over {units}" if evidence.n_bootstrap else ""
