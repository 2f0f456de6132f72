"""R_M(⟨p, h⟩, o) for a block of problems: the filters in order, every rejection counted.

What the set algebra passes on is `Validated`, a row per side and word. Of each row the
rest of the way decides the *fate*: kept, or the reason why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from generation.config import Config
from generation.problems.shared_words import TaggedProblems
from generation.problems.substitutions import Substitutions
from generation.ragged import lists_of, pairs, ranges, split, starts_of
from generation.records import MaskedQuery
from generation.run_tables import replacement_schema, sorted_replacements
from generation.signals.automatic import (
    UNKNOWN,
    answers_about_articles,
    answers_of,
    articles_of,
    forms_changed,
    zipf_frequencies,
)
from generation.variants.filters import (
    CHEAP_REASONS,
    IN_PROBLEM,
    OTHER_OCCURRENCE,
    OTHER_SENTENCE,
    TOKENIZATION,
    WORD_CLASS,
    Survivors,
    comparable,
    not_in_problem,
)
from generation.variants.funnel import KEPT, NOT_IN_VOCABULARY, Funnel
from generation.variants.lexicon import Lexicon
from generation.variants.occurrences import Occurrences
from generation.variants.set_algebra import (
    Members,
    Validated,
    over_mlms,
    over_occurrences,
    over_sentences,
)
from merge_dataset.schema import WORD_CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_FATES: Final = (KEPT, TOKENIZATION, WORD_CLASS)
_KEPT, _TOKENIZATION, _WORD_CLASS = range(3)


class Answers(Protocol):
    """One MLM's candidates at the occurrences asked about, as `Candidates` has them."""

    def take(self, queries: Sequence[MaskedQuery]) -> Survivors:
        """Those at some occurrences, in the order of the questions."""


class ContextTagger(Protocol):
    """What is needed of `Tagger`."""

    @property
    def labels(self) -> Sequence[str]:
        """Penn tags by number."""

    def tags_after(self, substitutions: Substitutions) -> NDArray[np.int64]:
        """Tags in context, as `Tagger.tags_after` has them."""

    def keeps_tokens(self, substitutions: Substitutions) -> NDArray[np.bool_]:
        """Whether the tokenisation stays, as `Tagger.keeps_tokens` has it."""


def find_replacements(
    problems: TaggedProblems,
    answers: Mapping[str, Answers],
    lexicon: Lexicon,
    tagger: ContextTagger,
    config: Config,
) -> tuple[pa.Table, Funnel]:
    """Equation 1 for every shared word of some problems.

    Args:
        problems: A block: as many as memory is wanted for.
        answers: By MLM.
        lexicon: The words of these MLMs.
        tagger: Judges classes in context (D8).
        config: Masking, filters, how the sentences combine.

    Returns:
        The replacements as `replacement_schema` has them, sorted by seed, class, word and
        replacement, and what became of the suggestions.
    """
    texts = len(config.problem_format.fields)
    words = Occurrences.of(problems, lexicon, masking=config.masking, texts=texts)
    mlms = sorted(answers)
    funnel = Funnel()
    for mlm in mlms:
        for word_class in np.unique(words.word_class):
            funnel.add(mlm, WORD_CLASSES[word_class], {})
    validated = over_mlms(
        [
            _validated_by(mlm, answers[mlm].take(words.queries), words, lexicon, funnel)
            for mlm in mlms
        ]
    )
    found = _Outcome.of(validated, words, lexicon, tagger, config)
    _count(found, mlms, words, funnel)
    return sorted_replacements(_table(found, mlms, words, lexicon, config)), funnel


def _validated_by(
    mlm: str, survivors: Survivors, words: Occurrences, lexicon: Lexicon, funnel: Funnel
) -> Members:
    """R_j(S, o) of every side but for the class: conditions (i) and (ii), ∩ over occurrences.

    Args:
        mlm: j.
        survivors: Its candidates at every occurrence.
        words: The shared words.
        lexicon: The words of j, among others.
        funnel: Takes the rejections.
    """
    side = np.repeat(words.side, survivors.sizes)
    word = lexicon.of_token[mlm][survivors.tokens]
    outside = not_in_problem(pairs(words.sides.word[side], word), words.problem_words)
    candidates = Members(pairs(side, word)[outside], survivors.log_odds[outside])
    validated = over_occurrences(candidates, words.per_side)

    at_occurrences = words.class_of(words.side)
    for reason, rejected in zip(CHEAP_REASONS, survivors.rejected.T, strict=True):
        funnel.add_columns(mlm, reason, at_occurrences, rejected)
    funnel.add_columns(mlm, NOT_IN_VOCABULARY, words.class_of(words.side[~survivors.in_vocabulary]))
    funnel.add_columns(mlm, IN_PROBLEM, words.class_of(side[~outside]))
    everywhere, _ = split(validated.keys)
    lost = np.bincount(side[outside], minlength=len(words.places)) - (
        np.bincount(everywhere, minlength=len(words.places)) * words.per_side
    )
    funnel.add_columns(mlm, OTHER_OCCURRENCE, words.class_of(np.arange(len(lost))), lost)
    return validated


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What equation 1 makes of the validated words."""

    validated: Validated
    fate: NDArray[np.int64]
    """[validated] Place in `_FATES`; −1 if another text has not the word."""
    keys: NDArray[np.int64]
    """[replacements] (shared word, word), sorted."""
    places: NDArray[np.int64]
    """[replacements, texts] Rows of `validated` by text of the problem, −1 for none."""
    changed: NDArray[np.int64]
    """[replacements, 2] Whether number and verb form change in the texts that validated it, as
    `signals.forms_changed` has it."""

    @classmethod
    def of(
        cls,
        validated: Validated,
        words: Occurrences,
        lexicon: Lexicon,
        tagger: ContextTagger,
        config: Config,
    ) -> _Outcome:
        """Combine the sentences, then ask the tagger about what is left (D8)."""
        keys, places = over_sentences(validated.keys, words.sides, combine=config.combine)
        fate = np.full(len(validated.keys), -1)
        changed = np.full((len(validated.keys), 2), UNKNOWN)
        proposed = np.unique(places[places >= 0])
        fate[proposed] = _KEPT
        if config.class_filter:
            context = _Context(words, lexicon, tagger, config.tag_match)
            if config.combine == "intersection":
                there = places >= 0
                fates, forms = context.judge_together(validated.keys, places)
                fate[places[there]], changed[places[there]] = fates[there], forms[there]
            else:
                fate[proposed], changed[proposed] = context.judge(validated.keys[proposed])
        places = np.where((places >= 0) & (fate[places] == _KEPT), places, -1)
        kept = (places >= 0).any(1)
        places = places[kept]
        of_texts = np.where((places >= 0)[:, :, None], changed[places], UNKNOWN)
        return cls(validated, fate, keys[kept], places, of_texts.max(axis=1))

    def mlms(self, text: int) -> NDArray[np.bool_]:
        """[replacements, MLMs] Who validated each replacement in a text: of NLI p (0) or h (1)."""
        rows = self.places[:, text]
        return self.validated.mlms[rows] & (rows >= 0)[:, None]

    @property
    def anywhere(self) -> NDArray[np.bool_]:
        """[replacements, MLMs] Who validated each replacement in any text."""
        by_text = [self.mlms(text) for text in range(self.places.shape[1])]
        somewhere: NDArray[np.bool_] = np.any(by_text, axis=0)
        return somewhere

    @property
    def log_odds(self) -> NDArray[np.float32]:
        """[replacements] The smallest over all texts (D14)."""
        infinite = np.float32(np.inf)
        odds = np.where(self.places >= 0, self.validated.log_odds[self.places], infinite)
        least: NDArray[np.float32] = odds.min(1)
        return least


@dataclass(frozen=True, slots=True)
class _Context:
    """Condition (iii), D8: what becomes of words put on sides.

    Their fates, as places in `_FATES`, and whether their forms change, as
    `signals.forms_changed` has it.
    """

    words: Occurrences
    lexicon: Lexicon
    tagger: ContextTagger
    tag_match: str

    def judge_together(
        self, keys: NDArray[np.int64], places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A word that fails in one text fails in the others, there for its own reason.

        A word of another class in one text is rejected in those after it too, whatever
        its class is there, so there it only has to be tokenised.

        Args:
            keys: Of (side, word).
            places: [n, texts] The place of each word in `keys`, −1 where a text has it not.

        Returns:
            [n, texts] fates and [n, texts, 2] changes.
        """
        fates = np.full(places.shape, _KEPT)
        changed = np.full((*places.shape, 2), UNKNOWN)
        settled = np.zeros(len(places), np.bool_)
        for text, place in enumerate(places.T):
            tagged, tokenised = (place >= 0) & ~settled, (place >= 0) & settled
            fates[tagged, text], changed[tagged, text] = self.judge(keys[place[tagged]])
            sound = self.tagger.keeps_tokens(self._substitutions(keys[place[tokenised]]))
            fates[tokenised, text] = np.where(sound, _KEPT, _TOKENIZATION)
            settled |= fates[:, text] == _WORD_CLASS
        first = np.argmax(fates != _KEPT, axis=1)
        return np.where(
            fates == _KEPT, fates[np.arange(len(fates)), first][:, None], fates
        ), changed

    def judge(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """By the tags in context.

        Args:
            keys: [n] (side, word)

        Returns:
            [n] fates and [n, 2] changes.
        """
        side, _ = split(keys)
        sizes = self.words.per_side[side]
        tags = self.tagger.tags_after(self._substitutions(keys))
        numbers: dict[str, int] = {}

        def compared(tags: Sequence[str]) -> NDArray[np.int64]:
            names = (comparable(tag, tag_match=self.tag_match) for tag in tags)
            return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)

        before = [tag for place in self.words.places for tag in place.tags]
        originals = compared(before)
        occurrences = ranges(starts_of(self.words.per_side)[side], sizes)
        same = compared(self.tagger.labels)[tags] == originals[occurrences]
        starts = starts_of(sizes)[:-1]
        fate = np.where(np.logical_and.reduceat(same, starts), _KEPT, _WORD_CLASS)
        changed = forms_changed(before, self.tagger.labels, tags, occurrences, starts)
        return np.where(tags[starts] < 0, _TOKENIZATION, fate), changed

    def _substitutions(self, keys: NDArray[np.int64]) -> Substitutions:
        side, word = split(keys)
        form = self.lexicon.form(self.words.casing[self.words.sides.word[side]], word)
        return Substitutions(self.words.places, self.lexicon.forms, side, form)


def _count(found: _Outcome, mlms: Sequence[str], words: Occurrences, funnel: Funnel) -> None:
    """Count what equation 1 and the tagger reject, what is kept, and the replacements."""
    side, _ = split(found.validated.keys)
    replaced, _ = split(found.keys)
    anywhere = found.anywhere
    for n, mlm in enumerate(mlms):
        for fate, reason in ((-1, OTHER_SENTENCE), *enumerate(_FATES)):
            of_fate = side[found.validated.mlms[:, n] & (found.fate == fate)]
            funnel.add_columns(mlm, reason, words.class_of(of_fate), words.per_side[of_fate])
        funnel.add_columns(mlm, "replacements", words.word_class[replaced[anywhere[:, n]]])


def _table(
    found: _Outcome, mlms: Sequence[str], words: Occurrences, lexicon: Lexicon, config: Config
) -> pa.Table:
    """The replacements as `replacement_schema` has them, in the order of their keys."""
    problem_format = config.problem_format
    row, word = split(found.keys)
    form = lexicon.form(words.casing[row], word)
    names = pa.array(mlms, pa.string())
    columns = {
        "seed_id": pa.array([seed.seed_id for seed in words.seeds], pa.string()).take(row),
        "source": pa.array([seed.source for seed in words.seeds], pa.string()).take(row),
        "word": pa.array([word.word for word in words.words], pa.string()).take(row),
        "word_class": pa.array([word.word_class for word in words.words], pa.string()).take(row),
        "replacement": lexicon.arrow_forms.take(form),
        **{
            name: lists_of(names, found.mlms(text)) for text, name in enumerate(problem_format.mlms)
        },
        "log_odds": pa.array(found.log_odds),
        "mlm_count": pa.array(found.anywhere.sum(1)),
        **{name: pa.nulls(len(row), pa.float32()) for name in problem_format.pll_changes},
        "zipf_frequency": zipf_frequencies(lexicon.arrow_forms.take(form)),
        "number_changed": answers_of(found.changed[:, 0]),
        "tense_changed": answers_of(found.changed[:, 1]),
        "article_fits": answers_of(
            answers_about_articles(
                articles_of(words.places), words.sides.table[row], [lexicon.forms[n] for n in form]
            )
        ),
    }
    return pa.table(columns).cast(replacement_schema(problem_format))
