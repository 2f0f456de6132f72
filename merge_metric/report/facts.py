"""How a dataset was made and what a model is, as terms and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from merge_dataset.provenance import PARAPHRASES

Facts = list[tuple[str, str]]

_GROUPED: Final = 10_000
"""Whole numbers from here on are written with commas."""

_SAID_ELSEWHERE: Final = ("recipe", "source", "ablation", "prompt")
"""Settings that other facts say."""

_MERE: Final = (
    "source",
    "config",
    "mlms",
    "tagger",
    "packages",
    "fingerprint",
    "problems",
    "source_data",
    "funnel",
    "eligible",
    "ablation",
)
"""What MERE writes: said in a form of its own, or left to the dataset's card."""

_OF_PARAPHRASES: Final = ("kind", "generator", "nli_model", "prompt")
"""What is written besides of paraphrases."""

_OF_THE_RUN: Final = (
    "name",
    "problems",
    "rows",
    "distinct_pairs",
    "label_order_check",
    "fingerprint",
)
"""What a runner writes of its work rather than of the model; the JSON has it."""


def dataset_facts(provenance: Mapping[str, Any]) -> Facts:
    """What a reader must know of a source's data.

    Args:
        provenance: A `provenance.json` as this program writes it (see
            `merge_dataset.provenance`), or of whatever else made the data.
    """
    data, problems, config = (
        provenance.get(key) or {} for key in ("source_data", "problems", "config")
    )
    paraphrased = provenance.get("kind") == PARAPHRASES
    said = (*_MERE, *(_OF_PARAPHRASES if paraphrased else ()))
    rest = {key: value for key, value in provenance.items() if key not in said}
    facts = [
        ("Problems", _problems(data, problems)),
        *(_paraphrases(provenance) if paraphrased else ()),
        ("Recipe", _recipe(config.get("recipe"), provenance.get("ablation"))),
        ("Masked language models", "; ".join(map(_mlm, provenance.get("mlms") or ()))),
        ("Tagger", provenance.get("tagger")),
        ("Eligible seeds", _settings(provenance.get("eligible") or {})),
        ("Settings", _settings({k: v for k, v in config.items() if k not in _SAID_ELSEWHERE})),
        ("Further", _settings(rest)),
        ("Fingerprint", provenance.get("fingerprint")),
        ("SHA-256 of the problems", data.get("sha256")),
    ]
    return [(term, str(text)) for term, text in facts if text]


def model_text(description: Mapping[str, Any]) -> str:
    """What a predictions file says of its model.

    >>> model_text({"name": "m", "kind": "classifier", "packages": {"torch": "2.13"}})
    'kind: classifier; packages, torch: 2.13'
    """
    return _settings({k: v for k, v in description.items() if k not in _OF_THE_RUN})


def _settings(values: Mapping[str, Any]) -> str:
    return "; ".join(f"{key}: {text}" for key, text in flat(values) if text)


def flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Settings, however nested, as names and texts; empty text where there is no value."""
    for key, value in values.items():
        name = above + key.replace("_", " ")
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}, ")
        elif isinstance(value, str) or not isinstance(value, Sequence):
            yield name, "" if value is None else _text(value)
        else:
            yield name, ", ".join(map(_text, value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) and value >= _GROUPED else str(value)


def _problems(data: Mapping[str, Any], problems: Mapping[str, Any]) -> str:
    counts = f"{problems['kept']:,} of {problems['read']:,} used" if problems else ""
    return ": ".join(filter(None, (data.get("description"), counts)))


def _paraphrases(provenance: Mapping[str, Any]) -> Facts:
    """What generated them, and the model that chose them, and the seeds too."""
    right = (provenance.get("problems") or {}).get("answered_right")
    return [
        ("Answered right", "" if right is None else f"{right:,} by the NLI model below"),
        ("Text generator", _model(provenance.get("generator") or {})),
        ("Prompt", provenance.get("prompt") or ""),
        ("NLI model", _model(provenance.get("nli_model") or {})),
    ]


def _model(description: Mapping[str, Any]) -> str:
    return "; ".join(filter(None, (description.get("name"), model_text(description))))


def _recipe(recipe: str | None, ablation: str | None) -> str:
    return ", ablation ".join(filter(None, (recipe, ablation)))


def _mlm(mlm: Mapping[str, Any]) -> str:
    more = [mlm.get("architecture"), mlm.get("dtype")]
    if revision := mlm.get("revision"):
        more.append(f"revision {revision[:12]}")
    return f"{mlm['name']} ({', '.join(filter(None, more))})"
