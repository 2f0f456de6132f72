"""Options that several commands of generation have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from merge_dataset.commands.check import OutputFormat

PROBLEMS, MACHINE = "Problems", "Machine"
BEYOND = "Beyond the paper's limits"


class DType(StrEnum):
    """Number format of the weights."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Families(StrEnum):
    """What becomes of a word of which another form stands in the problem."""

    ignore = "ignore"
    reject = "reject"
    inflect = "inflect"


def option(text: str, *names: str, group: str | None = None, **more: Any) -> Any:
    """An option with its help, in a group of its own where one is named."""
    return typer.Option(*names, help=text, rich_help_panel=group, **more)


Source = Annotated[
    str | None,
    option(
        "snli, mnli-m, mnli-mm, anli-r1, -r2, -r3, demo, or a name for your own.", group=PROBLEMS
    ),
]
Data = Annotated[str | None, option("A .jsonl, .csv, .tsv or .parquet file.", group=PROBLEMS)]
Dataset = Annotated[str | None, option("A dataset on the Hub.", group=PROBLEMS)]
DatasetConfig = Annotated[str | None, option("Its configuration.", group=PROBLEMS)]
Split = Annotated[str | None, option("Its split.", group=PROBLEMS)]
Revision = Annotated[str | None, option("Its revision.", group=PROBLEMS)]
PremiseColumn = Annotated[str | None, option("Column of the premise.", group=PROBLEMS)]
HypothesisColumn = Annotated[str | None, option("Column of the hypothesis.", group=PROBLEMS)]
LabelColumn = Annotated[str | None, option("Column of the label.", group=PROBLEMS)]
IdColumn = Annotated[str | None, option("Column of the id.", group=PROBLEMS)]
LabelMap = Annotated[
    str | None, option("Labels, as theirs=ours,…; ours empty for unlabelled.", group=PROBLEMS)
]
Fields = Annotated[
    str | None,
    option("Names of the texts of problems that are not of NLI, as context,question,answer.",
           group=PROBLEMS),
]  # fmt: skip
Labels = Annotated[str | None, option("Their labels, as yes,no.", group=PROBLEMS)]
SharedFields = Annotated[
    str | None, option("The texts that have to share a word; by default all.", group=PROBLEMS)
]
FieldColumn = Annotated[
    list[str] | None,
    option("Column of a text, as context=passage; may be repeated.", group=PROBLEMS),
]
Limit = Annotated[int | None, option("Only the first so many problems.", group=PROBLEMS, min=1)]
Device = Annotated[str | None, option("auto, cpu, cuda, cuda:1, mps.", group=MACHINE)]
FamiliesOption = Annotated[
    Families | None,
    option(
        "Other forms of a word: left alone, reason to leave the word out, or inflected like it.",
        "--families",
        group=BEYOND,
    ),
]
WordsAtOnce = Annotated[
    int | None, option("Shared words of a class that a variant replaces.", group=BEYOND, min=1)
]
RepairArticles = Annotated[
    bool | None, option('"a" becomes "an" where the replacement wants it.', group=BEYOND)
]
Out = Annotated[Path, option("Dataset folder to write or to add this source to.")]
Format = Annotated[OutputFormat, option("How to write the summary.", "--format")]


def read_names(text: str | None) -> tuple[str, ...] | None:
    """What `--fields`, `--labels` and `--shared-fields` say.

    >>> read_names("context, question")
    ('context', 'question')
    """
    return None if text is None else tuple(name.strip() for name in text.split(","))


def read_field_columns(pairs: list[str] | None) -> dict[str, str] | None:
    """What `--field-column` says.

    Raises:
        ValueError: a pair is no field=column.

    >>> read_field_columns(["context=passage"])
    {'context': 'passage'}
    """
    if not pairs:
        return None
    split = [pair.partition("=") for pair in pairs]
    for pair, (_, equals, _) in zip(pairs, split, strict=True):
        if not equals:
            raise ValueError(f"--field-column: expected field=column, got {pair!r}")
    return {field.strip(): column.strip() for field, _, column in split}


def read_label_map(text: str | None) -> dict[str, str] | None:
    """What `--label-map` says.

    Raises:
        ValueError: it is no list of theirs=ours.

    >>> read_label_map("not_entailment=neutral,hidden=")
    {'not_entailment': 'neutral', 'hidden': ''}
    """
    if text is None:
        return None
    pairs = [pair.partition("=") for pair in text.split(",")]
    for theirs, equals, _ in pairs:
        if not equals:
            raise ValueError(f"--label-map: expected theirs=ours,…, got {theirs!r}")
    return {theirs.strip(): ours.strip() for theirs, _, ours in pairs}
