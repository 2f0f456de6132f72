"""Sentences of a report: definitions, and descriptions of data and models."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from merge_dataset.provenance import PARAPHRASES
from merge_metric.frame.noise import usage_text
from merge_metric.models.label_order import describe_evidence
from merge_metric.report.evidence import Evidence, Result
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
from merge_metric.seed_variant_accuracy.formatting import HUNDRED, show_value
from merge_metric.seed_variant_accuracy.resampling import resampled_units

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
    found = estimate(result, figure)
    return Estimate(*(each if each is None else percent(each, figure.unit) for each in found))


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

_REPLACED: Final = (
    "differ from it in one word that premise and hypothesis share, replaced by the same word in "
    "both"
)
_REPLACED_ANYWHERE: Final = (
    "differ from it in one word that its texts share, replaced by the same word in all of them"
)
_PARAPHRASED: Final = "have its hypothesis paraphrased as a whole"


def definitions(
    *, replacements: bool, paraphrases: bool, is_nli: bool = True, cluster: str = ""
) -> tuple[tuple[str, str], ...]:
    """List terms with a sentence of definition each, for the kinds of variants present."""
    if not is_nli:
        differ = _REPLACED_ANYWHERE
    elif not paraphrases:
        differ = _REPLACED
    else:
        differ = f"either {_REPLACED}, or {_PARAPHRASED}" if replacements else _PARAPHRASED
    return (
        ("Seed, variant", f"{_seed_is(is_nli)}. Its variants {differ}; the gold label stays."),
        *map(_definition, (SEED, VARIANT)),
        (
            "SV accuracy at CT, SV@CT",
            "Seed-variant accuracy: share of seeds with at least CT percent of their variants "
            "answered right (correctness threshold CT); pattern accuracy (PA) in older papers.",
        ),
        *map(_definition, (MATCHING, RELAXED, STRICT)),
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


def _definition(figure: Figure) -> tuple[str, str]:
    name = figure.name
    term = f"{figure.symbol}, {name[0].lower()}{name[1:]}" if figure.symbol else name
    return term, figure.explanation


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
    said_elsewhere = ("recipe", "source", "ablation", "prompt")
    said: tuple[str, ...] = _MERE
    of_paraphrases = []
    if provenance.get("kind") == PARAPHRASES:
        said += ("kind", "generator", "nli_model", "prompt")
        right = problems.get("answered_right")
        of_paraphrases = [
            ("Answered right", "" if right is None else f"{right:,} by the NLI model below"),
            ("Text generator", _model(provenance.get("generator") or {})),
            ("Prompt", provenance.get("prompt")),
            ("NLI model", _model(provenance.get("nli_model") or {})),
        ]
    rest = {key: value for key, value in provenance.items() if key not in said}
    facts = [
        ("Problems", ": ".join(filter(None, (data.get("description"), used)))),
        *of_paraphrases,
        ("Recipe", ", ablation ".join(filter(None, recipe))),
        ("Masked language models", "; ".join(map(_mlm, provenance.get("mlms") or ()))),
        ("Tagger", provenance.get("tagger")),
        ("Eligible seeds", _settings(provenance.get("eligible") or {})),
        ("Settings", _settings({k: v for k, v in config.items() if k not in said_elsewhere})),
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
        for each in [value] if isinstance(value, str) or not isinstance(value, Sequence) else value:
            if isinstance(each, bool):
                texts.append("yes" if each else "no")
            elif isinstance(each, int) and each >= 10_000:
                texts.append(f"{each:,}")
            else:
                texts.append(str(each))
        yield name, "" if value is None else ", ".join(texts)


def _model(description: Mapping[str, Any]) -> str:
    return "; ".join(filter(None, (description.get("name"), model_text(description))))


def _mlm(mlm: Mapping[str, Any]) -> str:
    more = [mlm.get("architecture"), mlm.get("dtype")]
    if revision := mlm.get("revision"):
        more.append(f"revision {revision[:12]}")
    return f"{mlm['name']} ({', '.join(filter(None, more))})"


CAUTION: Final = (
    "Before you blame a model, read the variants: each has its seed's label, which nobody checked "
    "again, and some do not read well."
)
