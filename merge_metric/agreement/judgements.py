"""Judgements: annotators' answers about variants, as arrays, and facts about the variants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.annotation import Session, is_good, read_answers, read_session
from merge_dataset.files import read_row_groups, read_schema, read_table
from merge_dataset.layout import all_configurations, require_dataset, split_files
from merge_dataset.schema import VARIANT_CLASSES, format_of, parse_config_name

FLUENCY: Final = "F"
REASONING: Final = "R"
GOOD: Final = "good"

SAME: Final = "same"

SCORES: Final = {FLUENCY: 5, REASONING: 5, GOOD: 2}
"""Score → number of possible answers: 5 (1–5), or 2 for whether a variant is `good`."""

N_ANSWERS: Final = SCORES | {SAME: 2}
"""Question → number of possible answers; also whether a paraphrase means the same."""

EQUIVALENT: Final = "equivalent"
Cell = tuple[str, str]
"""Source and class."""

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Codes = NDArray[np.int8]
"""Array of answers, 1 to k; 0 where there is none."""


@dataclass(frozen=True)
class JudgedVariant:
    """Facts about a variant that was judged."""

    source: str
    word_class: str
    seed_id: str
    validated: tuple[frozenset[str], ...]
    """Masked LMs that validated it, for each of its texts; none of a paraphrase."""
    chance: float | None = None
    """Probability of being drawn, relative to its source and class; None if not known."""

    @property
    def cell(self) -> Cell:
        """Its source and class."""
        return self.source, self.word_class

    @cached_property
    def mlms(self) -> frozenset[str]:
        """Masked LMs that validated it in any of its texts."""
        return frozenset().union(*self.validated)


@dataclass(frozen=True, eq=False)
class Judgements:
    """Answers of A annotators to N variants."""

    annotators: tuple[str, ...]
    variant_ids: tuple[str, ...]
    codes: Mapping[str, Codes]
    """Question → answers, (A, N): 1–5 for `SCORES`, 1 or 2 for `SAME`; 0 where there is none."""
    items: tuple[JudgedVariant, ...] | None = None
    """Facts about the variants, (N,); None where nothing is known."""
    seeds: Mapping[Cell, int] | None = None
    """Source and class → number of seeds in the dataset; None where it is not known."""

    @classmethod
    def from_answers(
        cls,
        answers: pa.Table,
        items: Mapping[str, JudgedVariant] | None = None,
        seeds: Mapping[Cell, int] | None = None,
    ) -> Judgements:
        """Make judgements from answers, facts by variant, and numbers of seeds by cell."""
        if not len(answers):
            raise ValueError("expected answers of annotators, got none that count")
        annotators, rows = _numbered(answers["annotator"])
        variants, columns = _numbered(answers["variant_id"])
        scores = {FLUENCY: "fluency", REASONING: "reasoning"}
        if EQUIVALENT in answers.column_names:
            scores = {SAME: EQUIVALENT}
        shape = len(annotators), len(variants)
        codes = {name: np.zeros(shape, np.int8) for name in scores}
        for name, column in scores.items():
            least = 1 if name == SAME else 0  # "no" is an answer, too
            codes[name][rows, columns] = least + answers[column].to_numpy().astype(np.int8)
        if SAME not in codes:
            total = codes[FLUENCY] + codes[REASONING]
            codes[GOOD] = np.where(total > 0, 1 + is_good(total), 0).astype(np.int8)
        if items is None:
            return cls(annotators, variants, codes)
        if unknown := [name for name in variants if name not in items]:
            raise ValueError(
                f"expected answers to variants of the session or dataset given, got {len(unknown)} "
                f"to others, such as {unknown[0]!r}"
            )
        return cls(annotators, variants, codes, tuple(items[name] for name in variants), seeds)

    def take(self, chosen: Bools) -> Judgements:
        """Take the items where `chosen`, (N,), holds."""
        kept = np.flatnonzero(chosen)
        return replace(
            self,
            variant_ids=tuple(self.variant_ids[i] for i in kept),
            codes={name: codes[:, kept] for name, codes in self.codes.items()},
            items=None if self.items is None else tuple(self.items[i] for i in kept),
        )

    def by_class(self) -> Iterator[tuple[str, Judgements]]:
        """Yield "all" judgements, then each class that occurs, where classes are known."""
        yield "all", self
        classes = np.array([item.word_class for item in self.items or ()])
        for name in VARIANT_CLASSES:
            if name in classes:
                yield name, self.take(classes == name)

    @property
    def seed_ids(self) -> tuple[str, ...]:
        """Seed ids, (N,); where nothing is known, each variant counts as a seed of its own."""
        return (
            self.variant_ids if self.items is None else tuple(item.seed_id for item in self.items)
        )

    @property
    def about_meaning(self) -> bool:
        """Whether paraphrases were judged on sameness of meaning instead of by scores."""
        return SAME in self.codes

    @property
    def answered(self) -> Bools:
        """Whether each annotator judged each variant, (A, N)."""
        return np.asarray(next(iter(self.codes.values())) > 0)

    @cached_property
    def n_annotators(self) -> NDArray[np.int64]:
        """Number of annotators who judged each variant, (N,)."""
        return np.asarray(self.answered.sum(axis=0))

    def mean(self, score: str) -> Floats:
        """Average a score, fluency or reasoning, of each variant, (N,), over its annotators."""
        return np.asarray(self.codes[score].sum(axis=0, dtype=np.int64) / self.n_annotators)

    @cached_property
    def good(self) -> Bools:
        """Whether each variant is good, (N,), by all of its annotators."""
        fluency, reasoning = (
            self.codes[name].sum(axis=0, dtype=np.int64) for name in (FLUENCY, REASONING)
        )
        good: Bools = is_good(fluency + reasoning, self.n_annotators)
        return good


def _numbered(column: pa.ChunkedArray) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    names, numbers = np.unique(column.to_pylist(), return_inverse=True)
    return tuple(map(str, names)), numbers


# --- Reading ---


def read_judgements(
    files: Sequence[Path], sessions: Sequence[Path] = (), dataset: Path | None = None
) -> Judgements:
    """Read session folders and files of answers; facts come from sessions or a dataset."""
    answers = read_answers(files)
    opened = [read_session(path) for path in (*filter(Path.is_dir, files), *sessions)]
    if not opened and dataset is None:
        return Judgements.from_answers(answers)
    items, seeds = _known_from(opened)
    if dataset is not None:
        _read_dataset(dataset, opened, {*answers["variant_id"].to_pylist()}, items, seeds)
    return Judgements.from_answers(answers, items, seeds)


def _known_from(sessions: Iterable[Session]) -> tuple[dict[str, JudgedVariant], dict[Cell, int]]:
    """Gather facts of each variant, and numbers of seeds of each source and class drawn from."""
    items: dict[str, JudgedVariant] = {}
    seeds: dict[Cell, int] = {}
    for session in sessions:
        for row in session.description["population"]:
            cell = (row["source"], row["class"])
            if seeds.setdefault(cell, row["seeds"]) != row["seeds"]:
                raise ValueError(
                    f"{session.folder}: expected sessions of the same data, got {row['seeds']} "
                    f"seeds of {' '.join(cell)}, and {seeds[cell]} in another; look at them one by "
                    "one"
                )
        for name, item in session.items.items():
            cell, validated = (item.source, item.word_class), item.mlms_by_field.values()
            items[name] = JudgedVariant(*cell, item.seed_id, _validated(validated), item.chance)
    return items, seeds


def _read_dataset(
    dataset: Path,
    sessions: Iterable[Session],
    answered: Collection[str],
    items: dict[str, JudgedVariant],
    seeds: dict[Cell, int],
) -> None:
    require_dataset(dataset)
    judged = {name: item for session in sessions for name, item in session.items.items()}
    wanted = {*answered} - {*items}
    other: list[str] = []
    files_of: dict[Cell, list[Path]] = {}
    for config in all_configurations(dataset):
        source, word_class = parse_config_name(config)
        if word_class is None:
            continue
        names = split_files(dataset, config)
        files = [dataset / name for name in names["variants"]]
        files_of[source, word_class] = [dataset / name for name in names["seeds"]]
        fields = format_of(read_schema(files[0])).fields
        for name, *texts in _rows_of(files, ["variant_id", *fields], judged):
            if dict(zip(fields, texts, strict=True)) != judged[name].variant_texts:
                other.append(name)
        columns = ["variant_id", "seed_id", *mlm_columns(files[0])]
        for variant, seed, *by_text in _rows_of(files, columns, wanted):
            items[variant] = JudgedVariant(source, word_class, seed, _validated(by_text))
    if other:
        raise ValueError(
            f"{dataset}: expected the texts that annotators judged, got others for "
            f"{len(other):,} of {len(judged):,} variants of the sample, such as "
            f"{min(other)!r}; give the dataset that the sample was drawn from"
        )
    sources = {item.source for item in items.values()}
    for cell, files in files_of.items():
        if cell[0] in sources and cell not in seeds:
            seeds[cell] = sum(len(read_table(path, ["seed_id"])) for path in files)


def _validated(by_text: Iterable[Sequence[str]]) -> tuple[frozenset[str], ...]:
    validated = tuple(map(frozenset, by_text))
    return validated if any(validated) else ()


def _rows_of(
    files: Sequence[Path], names: Sequence[str], variant_ids: Collection[str]
) -> Iterator[tuple[Any, ...]]:
    wanted = pa.array(sorted(variant_ids), pa.string())
    for table in (table for path in files for table in read_row_groups(path, list(names))):
        chosen = table.filter(pc.is_in(table["variant_id"], wanted))
        yield from zip(*(chosen[name].to_pylist() for name in names), strict=True)


def mlm_columns(path: Path) -> list[str]:
    """List a file's columns with the masked LMs that validated a replacement, one per text."""
    return [name for name in read_schema(path).names if name.endswith("_mlms")]
