"""The words of the dataset card, which are in `text.toml`.

It speaks of replacements where there are some, and of paraphrases where there are some.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from merge_dataset.dataset_columns import COLUMNS
from merge_dataset.known_sources import source_of
from merge_dataset.provenance import PARAPHRASES, REPLACEMENTS
from merge_dataset.schema import DATASET_NAME, NLI, SPLITS, ProblemFormat

Kinds = Collection[str]
"""`REPLACEMENTS`, `PARAPHRASES`, or both: what a folder holds."""

Formats = Mapping[str, ProblemFormat]
"""Collection → the format of its problems."""

TEXT: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    Path(__file__).with_name("text.toml").read_text(encoding="utf-8")
)
"""Part of the card → its texts, some of them by kind."""


def introduction(kinds: Kinds, formats: Formats) -> str:
    """Say what the data are for, and what a variant is."""
    words = TEXT["introduction"]
    if REPLACEMENTS not in kinds:
        text = f"{words['paraphrases']}\n{words['rule']}"
    else:
        both = words["both"] if PARAPHRASES in kinds else ""
        text = f"{words['replacements']}{words['rule']}{both}"
    text = text.replace("{example}", words["example"])
    rows = "".join(
        f"| `{name}` | {', '.join(each.fields)} | {', '.join(each.labels)} |\n"
        for name, each in formats.items()
        if each != NLI
    )
    return f"{text}{words['other_formats']}{rows}" if rows else text


def loading(example: str, kinds: Kinds) -> str:
    """Say how to load the data, with an example configuration."""
    seeds, variants = SPLITS
    return TEXT["loading"]["text"].format(
        name=DATASET_NAME,
        example=example,
        seeds=seeds,
        variants=variants,
        configurations="".join(of_kinds("loading", kinds)),
    )


def columns(kinds: Kinds, formats: Formats, empty: Collection[str] = ()) -> dict[str, str]:
    """Map the names of columns, as code, to what the columns hold; not of those that are empty."""
    fields = dict.fromkeys(one.fields for one in formats.values())
    labels = dict.fromkeys(one.labels for one in formats.values())
    numbers = (", ".join(f"{n} {label}" for n, label in enumerate(names)) for names in labels)
    label_text, meanings = "; or ".join(numbers), {}
    for column in COLUMNS:
        if column.optional and not any(column.name in one.optional for one in formats.values()):
            continue
        groups = dict.fromkeys(column.names(each) for each in fields)
        if {name for group in groups for name in group} <= {*empty}:
            continue
        names = "; ".join(", ".join(f"`{name}`" for name in group) for group in groups)
        meaning = column.meaning
        if PARAPHRASES in kinds and column.in_paraphrases:
            others = f"{meaning}; of a paraphrase: " if REPLACEMENTS in kinds else ""
            meaning = f"{others}{column.in_paraphrases}"
        meanings[names] = meaning.format(labels=label_text)
    return meanings


def of_kinds(part: str, kinds: Kinds) -> list[str]:
    """List the texts of a part on what a folder holds."""
    return [text for kind, text in TEXT[part].items() if kind in kinds]


def limits(kinds: Kinds, *, relatives_stay: bool = True, pieces_stay: bool = True) -> str:
    """Say what a reader should not expect."""
    english = "- English only.\n" if REPLACEMENTS not in kinds else ""
    text, words = "".join(["## Limits\n\n", *of_kinds("limits", kinds), english]), TEXT["limits"]
    return text.format(
        pieces=words["pieces"] if pieces_stay else "",
        relatives=words["relatives"] if relatives_stay else "",
    )


def options(config: Mapping[str, Any]) -> Iterator[str]:
    """Say what variants change beside one word, by a run's settings."""
    families, count = config.get("families"), config.get("words_at_once", 1)
    if families in ("reject", "inflect"):
        yield TEXT["families"][families]
    if count > 1:
        yield f"A variant replaces {count} shared words of the class at once."
    if config.get("repair_articles"):
        yield 'Where "a" or "an" stands before a replaced word, it is made to fit.'
    if families == "inflect" or count > 1 or config.get("repair_articles"):
        yield TEXT["families"]["pairs"]


def licence_section(names: Iterable[str]) -> str:
    """Write the section of the card on the licences of these sources."""
    facts = {name: source_of(name) for name in names}
    items = [f"- `{name}` ({fact.title}): {fact.licence}.\n" for name, fact in facts.items()]
    return (
        "## Licences\n\nSeeds are problems of the source, and variants are adaptations of "
        "them. Both are under its licence:\n\n" + "".join(items)
    )


def citation_section(names: Iterable[str], *, paraphrases: bool) -> str:
    """Write the section with BibTeX entries: of the methods, then of sources that have one."""
    words = TEXT["citations"]
    entries = [words["merge"], *([words["sensitivity"]] if paraphrases else [])]
    entries += [citation for name in names if (citation := source_of(name).citation)]
    return "## Citation\n\n```bibtex\n" + "\n".join(dict.fromkeys(entries)) + "```\n"
