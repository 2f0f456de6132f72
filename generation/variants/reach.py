"""Questions that can still matter: about words whose class can get enough replacements.

A replacement has to be in the sets of all texts (eq. 1), so the set of one text bounds their
intersection from above. The masked LMs are asked about a word in one text first: in the one whose
sentence is short, or shared by many problems. Where these sets, with the filters that need only
that text, add up to fewer words than `min_replacements`, the other texts are not asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from generation.config import Config
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.shared_words import tag_problems
from generation.problems.substitutions import Substitutions
from generation.problems.tagging import Tagger
from generation.ragged import split
from generation.reasons import NO_REASON
from generation.suggestions.asked import Asked
from generation.variants.candidates import Candidates
from generation.variants.context import judge_in_context
from generation.variants.funnel import Funnel
from generation.variants.set_algebra import Occurrences, over_mlms
from generation.variants.validation import validated_by
from generation.variants.words import Lexicon
from merge_dataset.executors.blocks import map_blocks

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

DECISIVE: Final = (
    "min_replacements", "min_replacements_scope", "word_classes", "probability_filter",
    "class_filter", "tag_match", "combine", "words_at_once",
)  # fmt: skip
"""Settings of a build on which it depends which answers can matter."""
_SCOPES: Final = ("problem", "class", "word")
"""Scopes: a seed that is eligible by one is also eligible by those before it."""


def can_ask_less(config: Config) -> bool:
    """Tell whether one text's set is a bound on the number of replacements."""
    return not config.ask_all and config.combine == "intersection" and config.words_at_once == 1


def decisive_settings(config: Config) -> dict[str, Any]:
    """Return the settings by which it was chosen what to ask."""
    values = {name: asdict(config)[name] for name in DECISIVE}
    return values | {"word_classes": list(config.word_classes)}


def wider_settings(config: Config, asked_for: Mapping[str, Any]) -> list[str]:
    """Name the settings of a build with which answers can matter that were not asked for.

    Args:
        config: The build's.
        asked_for: `decisive_settings` of those that questions were chosen by.
    """
    wanted = decisive_settings(config)
    fits = {
        "min_replacements": wanted["min_replacements"] >= asked_for["min_replacements"],
        "min_replacements_scope": _SCOPES.index(wanted["min_replacements_scope"])
        >= _SCOPES.index(asked_for["min_replacements_scope"]),
        "word_classes": set(wanted["word_classes"]) <= set(asked_for["word_classes"]),
        "probability_filter": wanted["probability_filter"] or not asked_for["probability_filter"],
        "class_filter": wanted["class_filter"] or not asked_for["class_filter"],
        "tag_match": wanted["tag_match"] in (asked_for["tag_match"], "fine"),
        "combine": wanted["combine"] == asked_for["combine"],
        "words_at_once": wanted["words_at_once"] == asked_for["words_at_once"],
    }
    return [name for name in DECISIVE if not fits[name]]


@dataclass(frozen=True)
class Reach:
    """Everything needed to choose questions, block by block. Can be sent to other processes."""

    problems: Path
    asked: Asked
    candidates: Mapping[str, Candidates]
    """By MLM, at what was asked; none before anything was."""
    config: Config

    def wanted(self) -> NDArray[np.bool_]:
        """Return [questions] those that are to be asked: in one text, or then in the others."""
        blocks = range(len(block_sizes(self.problems)))
        return self.mask(map_blocks(blocks, self.open, workers=self.config.workers))

    def mask(self, rows: Iterable[ArrayLike]) -> NDArray[np.bool_]:
        """Return [questions] those of the rows that blocks gave."""
        wanted = np.zeros(len(self.asked.questions), np.bool_)
        for each in rows:
            wanted[np.asarray(each, np.int64)] = True
        return wanted

    def open(self) -> Callable[[int], NDArray[np.int64]]:
        """Return the function that works on blocks; each process has its own tagger."""
        return self.rows

    def rows(self, block: int) -> NDArray[np.int64]:
        """Return [n] rows of the questions wanted about the problems of a block."""
        config = self.config
        problems = tag_problems(
            read_block(self.problems, block), self._tagger, config.word_classes, config.sharing
        )
        texts = len(config.problem_format.fields)
        words = Occurrences.of(problems, self._lexicon, masking=config.masking, texts=texts)
        rows = self.asked.questions.rows(words.queries)
        if not self.candidates:
            return rows[first_sides(words, rows)[words.side]]
        return rows[self._within_reach(words)[words.sides.word[words.side]]]

    def _within_reach(self, words: Occurrences) -> NDArray[np.bool_]:
        """Return [words] whether the class of each can still get enough replacements."""
        config = self.config
        survivors = {mlm: each.take(words.queries) for mlm, each in self.candidates.items()}
        known = words.known(next(iter(survivors.values())).asked)
        suggested = over_mlms(
            [
                validated_by(mlm, each, known, words, self._lexicon, Funnel())
                for mlm, each in survivors.items()
            ]
        )
        units = words.units(config.min_replacements_scope)
        keys = suggested.keys
        alive = _enough(keys, words, known, units, config.min_replacements)
        if config.class_filter:
            # Tagging is dear, so only where it can make the difference: first of so many on each
            # side as mostly are enough, then of the rest where they were not.
            keys = keys[alive[words.sides.word[split(keys)[0]]]]
            side, _ = split(keys)
            rank = np.arange(len(side)) - np.searchsorted(side, side)
            keeps = np.zeros(len(keys), np.bool_)
            alive = np.zeros(len(alive), np.bool_)
            for some in (rank < 2 * config.min_replacements, rank >= 2 * config.min_replacements):
                asked = some & ~alive[words.sides.word[side]]
                keeps[asked] = self._keep_class(keys[asked], words)
                alive = _enough(keys[keeps], words, known, units, config.min_replacements)
        # Ablations keep seeds and classes, with all of their words.
        classes = words.units("class")
        return np.isin(classes, classes[alive])

    def _keep_class(self, keys: NDArray[np.int64], words: Occurrences) -> NDArray[np.bool_]:
        """Return [n] whether words keep the class on their sides.

        Args:
            keys: [n] (side, word).
            words: The shared words.
        """
        side, word = split(keys)
        form = self._lexicon.form(words.casing[words.sides.word[side]], word)
        reasons, _ = judge_in_context(
            Substitutions(words.places, self._lexicon.forms, side, form),
            self._tagger,
            tag_match=self.config.tag_match,
        )
        keep: NDArray[np.bool_] = reasons == NO_REASON
        return keep

    @cached_property
    def _tagger(self) -> Tagger:
        return Tagger.load(self.config.tagger, spare_torch=self.config.workers > 1)

    @cached_property
    def _lexicon(self) -> Lexicon:
        return Lexicon.of({mlm: each.vocabulary for mlm, each in self.candidates.items()})


def first_sides(words: Occurrences, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Choose for each word the text to ask about first: the one with the least to read.

    What several problems ask costs each of them its share.

    Args:
        words: Those of a block of problems.
        rows: [occurrences] The row of each one's question.

    Returns:
        [sides] Whether each is its word's first.
    """
    _, question, shared_by = np.unique(rows, return_inverse=True, return_counts=True)
    lengths = np.array([len(query.sentence) for query in words.queries], np.float64)
    cost = np.bincount(words.side, lengths / shared_by[question], minlength=len(words.places))
    order = np.lexsort((words.sides.text, cost, words.sides.word))
    first = np.zeros(len(words.places), np.bool_)
    first[order[np.diff(words.sides.word[order], prepend=-1) != 0]] = True
    return first


def _enough(
    keys: NDArray[np.int64],
    words: Occurrences,
    known: NDArray[np.bool_],
    units: NDArray[np.int64],
    minimum: int,
) -> NDArray[np.bool_]:
    """Return [words] whether the words counted together can have `minimum` replacements.

    Args:
        keys: [n] (side, word): members of the sets of the sides that are known.
        words: The shared words.
        known: [sides] Whether all was asked about a side.
        units: [words] As `Occurrences.units` has them.
        minimum: Replacements needed.
    """
    sizes = np.bincount(split(keys)[0], minlength=len(words.places))
    bounds = np.full(len(words.words), np.iinfo(np.int32).max, np.int64)
    np.minimum.at(bounds, words.sides.word[known], sizes[known])
    totals = np.bincount(units, bounds)
    enough: NDArray[np.bool_] = totals[units] >= minimum
    return enough
