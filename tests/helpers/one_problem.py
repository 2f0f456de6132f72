"""One problem made by hand: answers of masked LMs and a tagger, and the word's outcome."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from generation.config import Config
from generation.problems.substitutions import Substitutions
from generation.problems.tagging import TaggedProblems
from generation.records import MaskedQuery, Seed, Sentence, SharedWord, replacement_schema
from generation.suggestions.vocabulary import WHOLE, Vocabulary
from generation.variants.equation import Lexicon, Survivors
from generation.variants.reasons import Funnel, Reason, funnel_rows
from generation.variants.validation import CHEAP_REASONS, find_replacements
from helpers.replacement_tables import Replacement, replacements_in
from helpers.tagged_texts import shared_words_of

Odds = Mapping[str, float]
"""A set of words, each with log-odds."""

VOCABULARY = """boy man dog girl child kid carried teen small tiny poodle mother play race boys men
run swim swims cat tree""".split()
LEXICON_OF = Vocabulary(tuple(VOCABULARY), np.full(len(VOCABULARY), WHOLE, np.int8))


@dataclass
class Answers:
    """Suggestions of one masked LM; stands in for `Candidates`."""

    by_place: dict[tuple[str, int], Odds] = field(default_factory=dict)
    """(sentence, number of the occurrence) → candidates; occurrences that are missing here are
    not in the vocabulary."""
    rejected: int = 0
    """Number of suggestions at every occurrence that the cheap filters remove."""

    def take(self, queries: Sequence[MaskedQuery]) -> Survivors:
        rows = [self.by_place.get(self._place(query)) for query in queries]
        rejected = np.zeros((len(rows), len(CHEAP_REASONS)), np.int32)
        known = np.array([row is not None for row in rows], np.bool_)
        rejected[known, CHEAP_REASONS.index(Reason.NOT_ALPHABETIC)] = self.rejected
        result = [row or {} for row in rows]
        return Survivors(
            starts=np.cumsum([0, *map(len, result)]),
            in_vocabulary=known,
            asked=np.ones(len(rows), np.bool_),
            tokens=np.array([VOCABULARY.index(w) for row in result for w in row], np.int32),
            log_odds=np.array([x for row in result for x in row.values()], np.float32),
            rejected=rejected,
        )

    def _place(self, query: MaskedQuery) -> tuple[str, int]:
        word = query.sentence[slice(*query.span)]
        tokens = query.sentence.replace(".", " ").split()
        before = query.sentence[: query.span[0]].split()
        return query.sentence, tokens[: len(before)].count(word)


def odds(words: str) -> dict[str, float]:
    """Candidates with log-odds that fall from 3 in steps of one half."""
    return {word: 3.0 - i / 2 for i, word in enumerate(words.split())}


Tags = tuple[str, ...] | None
"""Tags of a word at all its occurrences in a sentence; None if it changes the tokenisation."""


@dataclass
class FakeTagger:
    """Gives each candidate the tags of `tags_of`; stands in for `Tagger`."""

    tags_of: Callable[[int, str], Tags]
    """(side, candidate) → tags."""
    labels: tuple[str, ...] = ("NN", "NNS", "NNP", "VB", "VBP", "VBZ", "JJ", "RB", "MD")

    def tags_after(self, substitutions: Substitutions) -> Any:
        numbers: list[int] = []
        rows = zip(substitutions.place.tolist(), substitutions.form.tolist(), strict=True)
        for side, number in rows:
            n_places = len(substitutions.places[side].positions)
            tags = self.tags_of(side, substitutions.forms[number].lower())
            assert tags is None or len(tags) == n_places
            numbers += [-1] * n_places if tags is None else map(self.labels.index, tags)
        return np.array(numbers, np.int64)

    def keeps_tokens(self, substitutions: Substitutions) -> Any:
        forms = (substitutions.forms[number].lower() for number in substitutions.form.tolist())
        tags = map(self.tags_of, substitutions.place.tolist(), forms)
        return np.array([tag is not None for tag in tags], np.bool_)


@dataclass
class Outcome:
    replacements: list[Replacement]
    funnel: Funnel

    @property
    def words(self) -> list[str]:
        return [r.replacement for r in self.replacements]

    def counts(self, mlm: str) -> dict[str, Any]:
        """The masked LM's row of the funnel, without zeros."""
        (row,) = (row for row in funnel_rows(self.funnel) if row["mlm"] == mlm)
        return {k: v for k, v in row.items() if v and k not in {"mlm", "word_class"}}


def outcome_of(
    sentences: tuple[Sentence, Sentence],
    word: SharedWord,
    candidates: Mapping[str, Any],
    tags_of: Callable[[int, str], Tags],
    config: Config,
) -> Outcome:
    premise, hypothesis = sentences
    seed = Seed(
        seed_id="snli:1", source="snli", texts=(premise.text, hypothesis.text), label="neutral"
    )
    problems = TaggedProblems(
        [seed], {premise.text: premise, hypothesis.text: hypothesis}, {seed.seed_id: [word]}
    )
    lexicon = Lexicon.of(dict.fromkeys(candidates, LEXICON_OF))
    table, funnel, _ = find_replacements(
        problems,
        lambda queries: {mlm: candidates[mlm].take(queries) for mlm in sorted(candidates)},
        lexicon,
        FakeTagger(tags_of),
        config,
    )
    assert table.schema == replacement_schema(config.problem_format)
    return Outcome(replacements_in(table), funnel)


def run(
    premise: Sentence,
    hypothesis: Sentence,
    word: str,
    candidates: Mapping[str, Any],
    tags: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `find_replacements` for one word; a candidate has its tags, or else the word's."""
    sentences = (premise, hypothesis)
    (one,) = (s for s in shared_words_of(sentences) if s.word == word)

    def tags_of(side: int, candidate: str) -> Tags:
        own = (sentences[side].tokens[i].tag for i in one.positions[side])
        return tuple((tags or {}).get(candidate, tag) for tag in own)

    return outcome_of(sentences, one, candidates, tags_of, Config())
