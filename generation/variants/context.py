"""Condition (iii), D8: whether what is put in place of words keeps their class in context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from generation.problems.shared_words import coarse_class
from generation.problems.substitutions import Substitutions
from generation.ragged import ranges, starts_of
from generation.reasons import NO_REASON, Reason
from generation.signals.signal_columns import forms_changed

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ContextTagger(Protocol):
    """The part of `Tagger` that judging in context needs."""

    @property
    def labels(self) -> Sequence[str]:
        """Penn tags by number."""

    def tags_after(self, substitutions: Substitutions) -> NDArray[np.int64]:
        """Tag in context, as `Tagger.tags_after` does."""

    def keeps_tokens(self, substitutions: Substitutions) -> NDArray[np.bool_]:
        """Tell whether the tokenisation stays, as `Tagger.keeps_tokens` does."""


def comparable(tag: str, *, tag_match: str) -> str:
    """Return what D8 compares: a Penn tag's class, or the tag itself with `fine`.

    >>> comparable("VBD", tag_match="coarse"), comparable("VBD", tag_match="fine")
    ('verb', 'VBD')
    """
    return coarse_class(tag) if tag_match == "coarse" else tag


def judge_in_context(
    substitutions: Substitutions, tagger: ContextTagger, *, tag_match: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Compare the tags of what is put in places with those of what stood there.

    Args:
        substitutions: What is put where.
        tagger: Tags it.
        tag_match: `coarse` or `fine`.

    Returns:
        [n] numbers of rejection reasons, `NO_REASON` where the tokenisation and all classes stay,
        and [n, 2] whether number and verb form change, as `forms_changed` has it.
    """
    numbers: dict[str, int] = {}

    def compared(tags: Sequence[str]) -> NDArray[np.int64]:
        names = (comparable(tag, tag_match=tag_match) for tag in tags)
        return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)

    places = substitutions.places
    per_place = np.array([len(place.positions) for place in places], np.int64)
    sizes = substitutions.sizes
    occurrences = ranges(starts_of(per_place)[substitutions.place], sizes)
    before = [tag for place in places for tag in place.tags]
    originals = compared(before)
    tags = tagger.tags_after(substitutions)
    same = compared(tagger.labels)[tags] == originals[occurrences]
    starts = starts_of(sizes)[:-1]
    reasons = np.where(np.logical_and.reduceat(same, starts), NO_REASON, Reason.WORD_CLASS.number)
    changed = forms_changed(before, tagger.labels, tags, occurrences, starts)
    return np.where(tags[starts] < 0, Reason.TOKENIZATION.number, reasons), changed
