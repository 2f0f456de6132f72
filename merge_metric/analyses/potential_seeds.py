"""Problems that share a word, and the seeds among them: table 3 and limits of the paper.

A seed whose word stands twice in a text, or has another form in the problem, is one of which the
paper says that a replacement may be biased, or not fit (Limitations).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_dataset.files import read_row_groups, read_schema
from merge_dataset.schema import WORD_CLASSES, format_of
from merge_metric.analyses.measures import Row
from merge_metric.analyses.run_records import (
    MANIFEST,
    PROBLEMS,
    SHARED_WORDS,
    VARIANTS,
    file_of_build,
    read_counts,
)
from merge_metric.tables import Column, Table, initials, legend
from merge_metric.tables.plots import (
    PAGE,
    PALETTE,
    grid,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARING: Final = "sharing"
ELIGIBLE: Final = "eligible"
"""Values of `which`: problems that share a word, and those that have variants."""

ALL: Final = "all"
"""Name of the classes together."""

_OCCURRENCES: Final = "_occurrences"


@dataclass(frozen=True, slots=True)
class SharedWords:
    """The shared words of a problem of one class."""

    seed_id: str
    word_class: str
    stands_twice: bool
    """Whether one of them stands twice in a text."""
    has_other_form: bool | None
    """Whether one of them has another form in the problem; None where that is not known."""


@dataclass(frozen=True, slots=True)
class RunProblems:
    """The problems of a run, and which of them share words."""

    source: str
    labels: tuple[str, ...]
    label_of: dict[str, str]
    """Id of a problem → its gold label."""
    words: dict[str, list[SharedWords]]
    """`SHARING` or `ELIGIBLE` → an entry per problem and class."""


def read_run_problems(run: Path) -> RunProblems:
    """Read a run's problems, its shared words and, where there is a build, its seeds.

    Raises:
        FileNotFoundError, ValueError: as `run_records.read_counts`.
    """
    record = read_counts(run)
    label_of = {
        row["seed_id"]: row["label"]
        for table in read_row_groups(run / PROBLEMS, ["seed_id", "label"])
        for row in table.to_pylist()
    }
    words = [row for table in read_row_groups(run / SHARED_WORDS) for row in table.to_pylist()]
    found = {SHARING: list(_by_class(words))}
    if (run / MANIFEST).is_file():
        replaced = _replaced(file_of_build(run, VARIANTS))
        found[ELIGIBLE] = list(
            _by_class(w for w in words if (w["seed_id"], w["word_class"], w["word"]) in replaced)
        )
    labels = format_of(read_schema(run / PROBLEMS)).labels
    return RunProblems(record["source"], labels, label_of, found)


def _replaced(path: Path) -> set[tuple[str, str, str]]:
    """Collect seed, class and word of all variants; of those of several words each."""
    columns = ["seed_id", "word_class", "original"]
    return {
        (row["seed_id"], row["word_class"], word)
        for table in read_row_groups(path, columns)
        for row in table.group_by(columns).aggregate([]).to_pylist()
        for word in row["original"].split()
    }


def _by_class(words: Iterable[dict[str, Any]]) -> Iterator[SharedWords]:
    """Put together the words of each problem and class."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for word in words:
        groups.setdefault((word["seed_id"], word["word_class"]), []).append(word)
    for (seed_id, word_class), mine in groups.items():
        counts = [n for word in mine for key, n in word.items() if key.endswith(_OCCURRENCES)]
        forms = [word["other_forms"] for word in mine]
        yield SharedWords(
            seed_id,
            word_class,
            stands_twice=max(counts) > 1,
            has_other_form=None if None in forms else any(forms),
        )


def potential_seeds(problems: RunProblems) -> Table:
    """Make a row per word class, and of all classes, of problems that share words and of seeds."""
    letters = initials(problems.labels)
    total = len(problems.label_of)
    return Table(
        name="seeds",
        title="Problems that share a word, and eligible seeds, by the class of the word",
        columns=(
            Column("source", "source"),
            Column("which", "problems"),
            Column("word_class", "class"),
            Column("n", "number", "count"),
            *(Column(f"label_{n}", f"{letter}, %", "share") for n, letter in enumerate(letters)),
            Column("stands_twice", "twice, %", "share"),
            Column("other_form", "other form, %", "share"),
        ),
        rows=tuple(
            row for which, words in problems.words.items() for row in _rows(problems, which, words)
        ),
        notes=_notes(problems, total),
    )


def _notes(problems: RunProblems, total: int) -> tuple[str, ...]:
    notes = [
        f"Of {total:,} labelled problems; a problem that shares words of two classes counts in "
        f"both, and once in all. Gold labels: {legend(problems.labels)}.",
        "Twice: a shared word of the class stands twice or more in one text, where it is masked "
        "one place at a time. Other form: a word of the same class and lemma stands in the problem "
        "too, such as “sleeping” beside “sleeps”; of seeds only the words that were replaced "
        "count.",
    ]
    if ELIGIBLE not in problems.words:
        notes.append("The run has no build yet, so nothing says which problems are eligible.")
    if any(words.has_other_form is None for words in problems.words[SHARING]):
        notes.append(
            "Other forms are not known: lemminflect was not installed when merge-nli count ran."
        )
    return tuple(notes)


def _rows(problems: RunProblems, which: str, words: list[SharedWords]) -> Iterator[Row]:
    for word_class in (*WORD_CLASSES, ALL):
        mine = [each for each in words if word_class in (ALL, each.word_class)]
        if not mine:
            continue
        seeds = {each.seed_id for each in mine}
        golds = Counter(problems.label_of[seed] for seed in seeds)
        twice = {each.seed_id for each in mine if each.stands_twice}
        forms = {each.seed_id for each in mine if each.has_other_form}
        known = all(each.has_other_form is not None for each in mine)
        yield {
            "source": problems.source,
            "which": which,
            "word_class": word_class,
            "n": len(seeds),
            "share": len(seeds) / len(problems.label_of),
            **{f"label_{n}": golds[label] / len(seeds) for n, label in enumerate(problems.labels)},
            "n_stands_twice": len(twice),
            "stands_twice": len(twice) / len(seeds),
            "n_other_form": len(forms) if known else None,
            "other_form": len(forms) / len(seeds) if known else None,
        }


def plot_potential_seeds(table: Table) -> Figure:
    """Draw numbers of problems by class, their labels, and words that stand twice or vary."""
    labels = [column for column in table.columns if column.key.startswith("label_")]
    groups = [f"{row['word_class']}, {row['which']}" for row in table.rows]
    figure = new_figure(PAGE, 1.0 + 0.25 * len(groups))
    numbers, golds, limits = figure.subplots(1, 3, sharey=True)
    places = np.arange(len(groups))
    colours = [PALETTE[row["which"] == ELIGIBLE] for row in table.rows]
    bars = numbers.barh(places, [row["n"] for row in table.rows], color=colours, height=0.7)
    numbers.bar_label(bars, [f"{row['n']:,}" for row in table.rows], fontsize="small", padding=2)
    numbers.set_xlabel("problems")
    left = np.zeros(len(groups))
    for n, column in enumerate(labels):
        widths = np.array([100 * row[column.key] for row in table.rows])
        name = column.heading.removesuffix(", %")
        golds.barh(places, widths, left=left, height=0.7, color=PALETTE[n], label=name)
        left += widths
    golds.set_xlabel("gold labels, %")
    for n, (key, name) in enumerate((("stands_twice", "twice"), ("other_form", "other form"))):
        values = [100 * (row[key] or 0.0) for row in table.rows]
        limits.barh(places + 0.4 * n - 0.2, values, height=0.38, color=PALETTE[4 + n], label=name)
    limits.set_xlabel("with a word that stands twice,\nor has another form, %")
    for axes in (numbers, golds, limits):
        axes.spines[["top", "right"]].set_visible(False)
        grid(axes, "x")
    for axes in (golds, limits):
        axes.legend(
            frameon=False, fontsize="small", ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1)
        )
    numbers.set_yticks(places, groups, fontsize="small")
    numbers.invert_yaxis()
    return figure
