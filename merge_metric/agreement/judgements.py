"""Judgements: annotators' answers about variants, as arrays, and facts about the variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.annotation import is_good, read_answers, read_session
from merge_dataset.annotation.sample import Item, count_seeds, items_of
from merge_dataset.layout import all_configurations, require_dataset
from merge_dataset.schema import VARIANT_CLASSES, parse_config_name
from merge_metric.seed_variant_accuracy.figures import Floats

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
Codes = NDArray[np.int8]
"""Array of answers, 1 to k; 0 where there is none."""


@dataclass(frozen=True, eq=False)
class Judgements:
    """Answers of A annotators to N variants."""

    annotators: tuple[str, ...]
    variant_ids: tuple[str, ...]
    codes: Mapping[str, Codes]
    """Question → answers, (A, N): 1–5 for `SCORES`, 1 or 2 for `SAME`; 0 where there is none."""
    items: tuple[Item, ...] = ()
    """The variants, (N,); none where nothing is known of them."""
    seeds: Mapping[Cell, int] = field(default_factory=dict)
    """Source and class → number of seeds in the dataset, where it is known."""

    @classmethod
    def from_answers(
        cls, answers: pa.Table, items: Mapping[str, Item], seeds: Mapping[Cell, int]
    ) -> Judgements:
        """Make judgements from answers, variants by id if known, and numbers of seeds by cell."""
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
        if unknown := [name for name in variants if items and name not in items]:
            raise ValueError(
                f"expected answers to variants of the session or dataset given, got {len(unknown)} "
                f"to others, such as {unknown[0]!r}"
            )
        known = tuple(items[name] for name in variants if items)
        return cls(annotators, variants, codes, known, seeds)

    def take(self, chosen: Bools) -> Judgements:
        """Take the items where `chosen`, (N,), holds."""
        kept = np.flatnonzero(chosen)
        return replace(
            self,
            variant_ids=tuple(self.variant_ids[i] for i in kept),
            codes={name: codes[:, kept] for name, codes in self.codes.items()},
            items=tuple(self.items[i] for i in kept if self.items),
        )

    def by_class(self) -> Iterator[tuple[str, Judgements]]:
        """Yield "all" judgements, then each class that occurs, where classes are known."""
        yield "all", self
        classes = np.array([item.word_class for item in self.items])
        for name in VARIANT_CLASSES:
            if name in classes:
                yield name, self.take(classes == name)

    @property
    def seed_ids(self) -> tuple[str, ...]:
        """Seed ids, (N,); where nothing is known, each variant counts as a seed of its own."""
        return tuple(item.seed_id for item in self.items) or self.variant_ids

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
        total = sum(self.codes[name].sum(axis=0, dtype=np.int64) for name in (FLUENCY, REASONING))
        return np.asarray(is_good(total, self.n_annotators))


def _numbered(column: pa.ChunkedArray) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    names, numbers = np.unique(column.to_pylist(), return_inverse=True)
    return tuple(map(str, names)), numbers


# --- Reading ---


def read_judgements(
    files: Sequence[Path], sessions: Sequence[Path] = (), dataset: Path | None = None
) -> Judgements:
    """Read session folders and files of answers; items come from sessions or a dataset."""
    answers = read_answers(files)
    opened = [read_session(path) for path in (*filter(Path.is_dir, files), *sessions)]
    items = {name: item for session in opened for name, item in session.items.items()}
    seeds: dict[Cell, int] = {}
    for session in opened:
        for row in session.description["population"]:
            cell = (row["source"], row["class"])
            if seeds.setdefault(cell, row["seeds"]) != row["seeds"]:
                raise ValueError(
                    f"{session.folder}: expected sessions of the same data, got {row['seeds']} "
                    f"seeds of {' '.join(cell)}, and {seeds[cell]} in another; look at them one by "
                    "one"
                )
    if dataset is not None:
        require_dataset(dataset)
        wanted = {*items, *answers["variant_id"].to_pylist()}
        configs = [name for name in all_configurations(dataset) if parse_config_name(name)[1]]
        read = [item for config in configs for item in items_of(dataset, config, wanted)]
        earlier = [(items.setdefault(item.variant_id, item), item) for item in read]
        if other := [item for one, item in earlier if one.variant_texts != item.variant_texts]:
            raise ValueError(
                f"{dataset}: expected the texts that annotators judged, got others for "
                f"{len(other):,} variants of the sample, such as {other[0].variant_id!r}; give the "
                f"dataset that the sample was drawn from"
            )
        sources = {item.source for item in items.values()}
        for config in configs:
            source, word_class = parse_config_name(config)
            if source in sources and word_class is not None:
                seeds.setdefault((source, word_class), count_seeds(dataset, config))
    return Judgements.from_answers(answers, items, seeds)
