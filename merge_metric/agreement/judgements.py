"""What annotators said of variants, as arrays, and what is known of the variants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.annotation.answers import good
from merge_dataset.schema import VARIANT_CLASSES
from merge_metric.agreement.coefficients import Codes, Floats

FLUENCY: Final = "F"
REASONING: Final = "R"
GOOD: Final = "good"

SCORES: Final = {FLUENCY: 5, REASONING: 5, GOOD: 2}
"""What variants are judged by → how many answers there are: 1–5, and whether it is `good`."""

Cell = tuple[str, str]
"""Source and class."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Item:
    """What is known of a variant that was judged."""

    source: str
    word_class: str
    seed_id: str
    validated: tuple[frozenset[str], ...]
    """For each of its texts the masked LMs that validated it there; none of a paraphrase."""
    chance: float | None = None
    """How likely it was to be drawn, beside others of its source and class; None: not known."""

    words_at_once: int = 1
    """How many words it replaces. Of several, `validated` is of any of them: a masked LM may have
    company there, and be the only one for its word."""

    @property
    def cell(self) -> Cell:
        """Its source and class."""
        return self.source, self.word_class

    @cached_property
    def mlms(self) -> frozenset[str]:
        """Those that validated it in any of its texts."""
        return frozenset().union(*self.validated)

    @cached_property
    def needs(self) -> frozenset[str]:
        """Those without which it would not be there: in one of its texts it has no other."""
        return frozenset().union(*(mlms for mlms in self.validated if len(mlms) == 1))

    def without(self, dropped: frozenset[str]) -> Item | None:
        """The same where these masked LMs were not asked; None where it would not be there.

        >>> both = (frozenset("ab"), frozenset("b"))
        >>> item = Item(source="snli", word_class="noun", seed_id="snli:1", validated=both)
        >>> sorted(item.needs), item.without(frozenset("b"))
        (['b'], None)
        >>> item.without(frozenset("a")).validated
        (frozenset({'b'}), frozenset({'b'}))
        """
        left = tuple(mlms - dropped for mlms in self.validated)
        return replace(self, validated=left) if all(left) else None


@dataclass(frozen=True, eq=False)
class Judgements:
    """Answers of A annotators to N variants."""

    annotators: tuple[str, ...]
    variant_ids: tuple[str, ...]
    codes: Mapping[str, Codes]
    """By `SCORES`, (A, N): 1–5, of good 1 or 2; 0 where there is no answer."""
    items: tuple[Item, ...] | None = None
    """(N,) or None where nothing is known of the variants."""

    @classmethod
    def of(cls, answers: pa.Table, items: Mapping[str, Item] | None = None) -> Judgements:
        """From a table of answers, and what is known of their variants.

        Args:
            answers: As `merge_dataset.annotation.answers.read_answers` gives it.
            items: By variant.

        Raises:
            ValueError: there are no answers, or some to variants of which nothing is known.
        """
        if not len(answers):
            raise ValueError("expected answers of annotators, got none that count")
        annotators, rows = _numbered(answers["annotator"])
        variants, columns = _numbered(answers["variant_id"])
        scores = {FLUENCY: "fluency", REASONING: "reasoning"}
        codes = {name: np.zeros((len(annotators), len(variants)), np.int8) for name in SCORES}
        for name, column in scores.items():
            codes[name][rows, columns] = answers[column].to_numpy()
        total = codes[FLUENCY] + codes[REASONING]
        codes[GOOD][:] = np.where(total > 0, 1 + good(total), 0)
        if items is None:
            return cls(annotators, variants, codes)
        if unknown := [name for name in variants if name not in items]:
            raise ValueError(
                f"expected answers to variants of the session or dataset given, got {len(unknown)} "
                f"to others, such as {unknown[0]!r}"
            )
        return cls(annotators, variants, codes, tuple(items[name] for name in variants))

    def take(self, chosen: Bools) -> Judgements:
        """Of the items where `chosen`, (N,), holds."""
        kept = np.flatnonzero(chosen)
        return Judgements(
            self.annotators,
            tuple(self.variant_ids[i] for i in kept),
            {name: codes[:, kept] for name, codes in self.codes.items()},
            None if self.items is None else tuple(self.items[i] for i in kept),
        )

    def by_class(self) -> Iterator[tuple[str, Judgements]]:
        """All together, then each class that is there, where classes are known."""
        yield "all", self
        classes = np.array([item.word_class for item in self.items or ()])
        for name in VARIANT_CLASSES:
            if name in classes:
                yield name, self.take(classes == name)

    def where(self, holds: Callable[[Item], bool]) -> Judgements:
        """Of the variants of which something holds; none where nothing is known of them."""
        return self.take(np.array([holds(item) for item in self.items or ()], dtype=np.bool_))

    def by_one(self, number: int) -> Judgements:
        """What one annotator said alone, of the same variants."""
        codes = {name: codes[number : number + 1] for name, codes in self.codes.items()}
        return replace(self, annotators=self.annotators[number : number + 1], codes=codes)

    def without(self, mlms: Iterable[str]) -> Judgements:
        """As if these masked LMs had not been asked: without what would not be there.

        Raises:
            ValueError: nothing is known of the variants, none of them has such a masked LM, none
                would be left, or several of their words were replaced.
        """
        dropped = frozenset(mlms)
        if not dropped:
            return self
        if self.several_words:
            raise ValueError(
                "expected variants in which one word is replaced, to tell which would not be "
                "there without a masked LM, got some with several; leave out --without-mlm, or "
                "build without it and see what changes: merge-nli build --without-mlm, merge-nli "
                "diff"
            )
        items = self.items or ()
        known = {mlm for item in items for mlm in item.mlms}
        if unknown := sorted(dropped - known):
            raise ValueError(
                f"expected masked LMs of the judged variants "
                f"({', '.join(sorted(known)) or 'none'}), got {', '.join(unknown)}"
            )
        left = [item.without(dropped) for item in items]
        if not any(left):
            raise ValueError(
                f"expected judged variants to be left without {', '.join(sorted(dropped))}, "
                "got none"
            )
        kept = self.take(np.array([item is not None for item in left]))
        return replace(kept, items=tuple(item for item in left if item))

    @property
    def several_words(self) -> bool:
        """Whether it cannot be told of all variants what would go with a masked LM."""
        return any(item.words_at_once > 1 for item in self.items or ())

    @property
    def seed_ids(self) -> tuple[str, ...]:
        """(N,) or, where nothing is known of the variants, each as if it had a seed of its own."""
        if self.items is None:
            return self.variant_ids
        return tuple(item.seed_id for item in self.items)

    @cached_property
    def n_annotators(self) -> NDArray[np.int64]:
        """(N,) how many judged each variant."""
        answered: NDArray[np.int64] = (self.codes[FLUENCY] > 0).sum(axis=0)
        return answered

    def mean(self, score: str) -> Floats:
        """(N,) F or R of each variant on average over its annotators."""
        return np.asarray(self.codes[score].sum(axis=0, dtype=np.int64) / self.n_annotators)

    @cached_property
    def good(self) -> Bools:
        """(N,) whether it is, by all of its annotators."""
        fluency, reasoning = (
            self.codes[name].sum(axis=0, dtype=np.int64) for name in (FLUENCY, REASONING)
        )
        return good(fluency + reasoning, self.n_annotators)


def _numbered(column: pa.ChunkedArray) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Distinct names, sorted, and for each row the number of its name."""
    names, numbers = np.unique(column.to_pylist(), return_inverse=True)
    return tuple(map(str, names)), numbers
