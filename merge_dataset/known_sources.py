"""Known sources: their columns and labels, their place on the Hub, licence, origin, citation."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from merge_dataset.schema import LABELS


class HubSplit(NamedTuple):
    """A split of a dataset on the Hub."""

    dataset: str
    config: str | None
    split: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source of problems; variants inherit its licence."""

    title: str
    hub: HubSplit | None = None
    """Its copy on the Hub, which is read unless a file is named."""
    official_file: str | None = None
    """Name of the release's file with annotators' votes, which the Hub's copy lacks."""
    licence_ids: tuple[str, ...] = ("unknown",)
    """Identifiers of the licences, as spelt by the Hub."""
    licence: str = (
        "the licence of the data set it was made from. Look it up there before passing these files "
        "on"
    )
    source_dataset: str
    """Value of `source_datasets` on the Hub."""
    creators: str = "found"
    """The Hub's value for the authors and annotators of the problems."""
    citation: str | None = None


COLUMN_NAMES: Final = {
    "premise": ("sentence1", "premise", "context", "sentence_A", "text1"),
    "hypothesis": ("sentence2", "hypothesis", "sentence_B", "text2"),
    "label": ("gold_label", "label", "entailment_judgment", "entailment_label"),
    "id": ("pairID", "pair_ID", "uid", "idx", "id"),
}
"""Part of a problem → names of its column in common NLI releases, in the order of trying."""

UNLABELLED: Final = ("-", "-1", "", "null")
"""Spellings that mean no gold label."""

LABEL_SPELLINGS: Final = {
    **{label: label for label in LABELS},
    **{label[0]: label for label in LABELS},
    **{str(number): label for number, label in enumerate(LABELS)},
    **dict.fromkeys((*UNLABELLED, "none", "hidden"), ""),
}
"""Lower-case spelling in common NLI releases → label; "" means unlabelled."""


def label_text(value: Any) -> str:
    """Write a label as text: whole numbers without decimals, and nothing for a missing one.

    >>> [label_text(value) for value in (1.0, "1.0", " B ", "1.5", None)]
    ['1', '1', 'B', '1.5', '']
    """
    text = "" if value is None else str(value).strip()
    return re.sub(r"^(-?[0-9]+)\.0+$", r"\1", text)


def source_of(name: str) -> Source:
    """Look up a source; a user's own source has only defaults, and its name as title."""
    return SOURCES.get(name) or Source(title=name, source_dataset=f"extended|other-{name}")


_KNOWN: Final = tomllib.loads(
    Path(__file__).with_name("known_sources.toml").read_text(encoding="utf-8")
)

SOURCES: Final = {
    name: Source(
        **facts
        | {
            "hub": HubSplit(**{"config": None} | facts["hub"]) if "hub" in facts else None,
            "licence_ids": tuple(facts["licence_ids"]),
            "citation": _KNOWN["citations"].get(facts.get("citation")),
        }
    )
    for name, facts in _KNOWN["sources"].items()
}
