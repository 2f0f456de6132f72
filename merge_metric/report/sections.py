"""Sections of a report as tables, for Markdown, LaTeX and JSON; the page lays out its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from merge_dataset.provenance import PARAPHRASES
from merge_metric.analyses.curves import matching_table
from merge_metric.frame.noise import noise_text, usage_text
from merge_metric.models.label_order import describe_evidence
from merge_metric.report.evidence import Configuration, Evidence, Result, VariantPart
from merge_metric.report.seeds import SourceSeeds, hardest_table
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
from merge_metric.seed_variant_accuracy.resampling import resampled_units
from merge_metric.tables import Column, Table, columns, figure_column, figure_values

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


# --- Definitions ---


def definitions(
    *, replacements: bool, paraphrases: bool, is_nli: bool = True, cluster: str = ""
) -> tuple[tuple[str, str], ...]:
    """List terms with a sentence of definition each, for the kinds of variants present."""
    texts, both = ("premise and hypothesis share", "both") if is_nli else (
        "its texts share", "all of them")  # fmt: skip
    replaced = f"differ from it in one word that {texts}, replaced by the same word in {both}"
    paraphrased = "have its hypothesis paraphrased as a whole"
    if not is_nli or not paraphrases:
        differ = replaced
    else:
        differ = f"either {replaced}, or {paraphrased}" if replacements else paraphrased

    def term(figure: Figure) -> tuple[str, str]:
        name = figure.name[0].lower() + figure.name[1:]
        return f"{figure.symbol}, {name}" if figure.symbol else figure.name, figure.explanation

    return (
        ("Seed, variant", f"{_seed_is(is_nli)}. Its variants {differ}; the gold label stays."),
        *map(term, (SEED, VARIANT)),
        (
            "SV accuracy at CT, SV@CT",
            "Seed-variant accuracy: share of seeds with at least CT percent of their variants "
            "answered right (correctness threshold CT); pattern accuracy (PA) in older papers.",
        ),
        *map(term, (MATCHING, RELAXED, STRICT)),
        *((figure.heading, f"{figure.name}. {figure.explanation}") for figure in KIN),
        (
            "Subsamples",
            "Each figure is computed in every subsample of the variants as if it were the data, "
            "and averaged.",
        ),
        (
            "Intervals",
            f"95 %, by bootstrap over {resampled_units(cluster)}, with all their variants "
            "(percentile method).",
        ),
    )


def _seed_is(is_nli: bool) -> str:
    return f"A seed is {'an NLI' if is_nli else 'a'} problem as it was collected"


def lede(evidence: Evidence) -> str:
    """Write the introduction of seeds and variants, for the kinds of variants present."""
    kinds = []
    if evidence.has_replacements or not evidence.has_paraphrases:
        kinds.append(
            "replaces one word that premise and hypothesis share by another that fits both"
            if evidence.is_nli
            else "replaces one word that its texts share by another that fits all of them"
        )
    if evidence.has_paraphrases:
        kinds.append("paraphrases its hypothesis as a whole")
    return (
        f"{_seed_is(evidence.is_nli)}. Each of its variants {', or '.join(kinds)}; the gold label "
        "is kept. A model that is right about a seed should be right about its variants, where "
        "these read well and the label still fits."
    )


# --- Origin of data and models ---

Facts = list[tuple[str, str]]

_MERE: Final = (
    *("source", "config", "mlms", "tagger", "packages", "fingerprint", "problems", "source_data"),
    *("funnel", "eligible", "ablation", "files", "digest"),
)
"""Keys that MERE writes; they have their own wording, or are left to the dataset's card."""

_OF_THE_RUN: Final = (
    *("name", "problems", "rows", "distinct_pairs", "label_order_check", "fingerprint", "prompt"),
)
"""Keys about a run instead of its model, or shown elsewhere; the JSON has them."""


def dataset_facts(provenance: Mapping[str, Any]) -> Facts:
    """List facts about a source's data, whatever program wrote its provenance."""
    data, problems, config = (
        provenance.get(key) or {} for key in ("source_data", "problems", "config")
    )
    used = f"{problems['kept']:,} of {problems['read']:,} used" if problems else ""
    recipe = (config.get("recipe"), provenance.get("ablation"))
    own_facts = ("recipe", "source", "ablation", "prompt")
    ours: tuple[str, ...] = _MERE
    of_paraphrases = []
    if provenance.get("kind") == PARAPHRASES:
        ours += ("kind", "generator", "nli_model", "prompt")
        right = problems.get("answered_right")
        of_models = (provenance.get(key) or {} for key in ("generator", "nli_model"))
        generator, nli_model = (
            "; ".join(filter(None, (model.get("name"), model_text(model)))) for model in of_models
        )
        of_paraphrases = [
            ("Answered right", "" if right is None else f"{right:,} by the NLI model below"),
            ("Text generator", generator),
            ("Prompt", provenance.get("prompt")),
            ("NLI model", nli_model),
        ]
    rest = {key: value for key, value in provenance.items() if key not in ours}
    mlms = []
    for mlm in provenance.get("mlms") or ():
        revision = f"revision {mlm['revision'][:12]}" if mlm.get("revision") else None
        more = filter(None, (mlm.get("architecture"), mlm.get("dtype"), revision))
        mlms.append(f"{mlm['name']} ({', '.join(more)})")
    facts = [
        ("Problems", ": ".join(filter(None, (data.get("description"), used)))),
        *of_paraphrases,
        ("Recipe", ", ablation ".join(filter(None, recipe))),
        ("Masked language models", "; ".join(mlms)),
        ("Tagger", provenance.get("tagger")),
        ("Eligible seeds", _settings(provenance.get("eligible") or {})),
        ("Settings", _settings({k: v for k, v in config.items() if k not in own_facts})),
        ("Further", _settings(rest)),
        ("Fingerprint", provenance.get("fingerprint")),
        ("SHA-256 of the problems", data.get("sha256")),
    ]
    return [(term, str(text)) for term, text in facts if text]


def model_text(description: Mapping[str, Any]) -> str:
    """Describe a model by the metadata of its predictions file."""
    shown = {k: v for k, v in description.items() if k not in _OF_THE_RUN}
    if requests := description.get("requests"):
        for key in ("requests", "prompt_tokens", "answer_tokens", "milliseconds", "prices"):
            shown.pop(key, None)
        shown["usage"] = usage_text(description, requests)
    if evidence := shown.get("label_order_evidence"):
        shown["label_order_evidence"] = describe_evidence(evidence)
    return _settings(shown)


def _settings(values: Mapping[str, Any]) -> str:
    return "; ".join(f"{key}: {text}" for key, text in flat(values) if text)


def flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as flat names and texts; the text is empty for no value."""
    for key, value in values.items():
        name = above + key.replace("_", " ")
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}, ")
            continue
        texts = []
        for item in [value] if isinstance(value, str) or not isinstance(value, Sequence) else value:
            if isinstance(item, bool):
                texts.append("yes" if item else "no")
            elif isinstance(item, int) and item >= 10_000:
                texts.append(f"{item:,}")
            else:
                texts.append(str(item))
        yield name, "" if value is None else ", ".join(texts)


CAUTION: Final = (
    "Before you blame a model, read the variants: each has its seed's label, which nobody checked "
    "again, and some do not read well."
)

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
    made = [headline(evidence, configuration) for configuration in configurations]
    for configuration in configurations:
        made += comparison(configuration, every_pair=for_page)
    made.append(heat_map(evidence) if for_page else matching(evidence))
    made += [evidence.validity] if evidence.validity else []
    for configuration in configurations:
        for kind, by in (("word_class", "class of the replaced word"), ("label", "gold label")):
            if parts := configuration.parts_by(kind):
                title = f", by {by}"
                made.append(_figures(evidence, configuration, kind, title, BREAKDOWN, parts=parts))
    made += evidence.classes
    for configuration in configurations:
        made += [fooling(evidence, configuration), kin(evidence, configuration)]
        if shifted := shift(evidence, configuration):
            made.append(shifted)
    return made + [hardest_table(evidence, source) for source in sources]


def headline(evidence: Evidence, configuration: Configuration) -> Table:
    """Make the first table, with a row per model."""
    whole, mixture = configuration.parts()[0].some_result, configuration.mixture
    sizes = f": {whole['n_seeds']:,} seeds, {whole['n_variants']:,} variants"
    notes = (*([mixture] if mixture else []), *of_answers(evidence, configuration))
    return _figures(evidence, configuration, "figures", sizes, HEADLINE, notes)


def of_answers(evidence: Evidence, configuration: Configuration) -> Iterator[str]:
    """Yield sentences on answers without a label, and on the noise of models."""
    for name, result in zip(evidence.names, configuration.results, strict=True):
        if result and (lost := result.get("without_label")):
            share = as_percent(lost["share"])
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
