"""Equation 1 (section 3): which words may replace a shared word of a problem.

For a sentence S, a masked LM j and a word o at place i of S, R_j(S, i) has the words r for which

(i)   P_j(r | S with i masked) > P_j(o | S with i masked);
(ii)  r does not occur in the problem;
(iii) r in place of o has the word class of o.

R_j(S, o) = ∩ over the occurrences i of o in S of R_j(S, i); R_M(S, o) = ∪ over the masked LMs j of
R_j(S, o); and R_M(⟨p, h⟩, o) = R_M(p, o) ∩ R_M(h, o). So one masked LM has to validate all
occurrences in a sentence, while p and h may be validated by different ones.

Each condition is a function at the end of this module, which finds what it drops. `reasons.py` has
them in order, and `validation.py` applies them: (iii) last, as tagging is what costs most; the
outcome is the same.

=============================================  =========================  ===================
condition, with its decision                   decided by                 applied by
=============================================  =========================  ===================
(i), D5                                        `not_more_probable`        `survivors_of`
(ii), D7                                       `in_problem`               `find_replacements`
∩ over the occurrences i, D2                   `not_at_every_occurrence`  `find_replacements`
∪ over the masked LMs j, ∩ over the texts S    `not_in_every_text`        `find_replacements`
(iii), D8                                      `changes_class`            `judge_in_context`
=============================================  =========================  ===================

A `Table` has a row for each pair of o and r, with an axis for the texts S and one for the j.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from generation.config import Config
from generation.problems.substitutions import Place, Substitutions
from generation.problems.tagging import TaggedProblems
from generation.records import MaskedQuery, Scores, Seed, SharedWord, pairs, split
from generation.suggestions.questions import masked_queries
from generation.suggestions.vocabulary import Vocabulary
from merge_dataset.schema import WORD_CLASSES

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

CASINGS: Final[Mapping[str, Callable[[str], str]]] = {
    "lower": str,
    "title": str.capitalize,
    "upper": str.upper,
}
"""Casings that a replacement can take over (D6): name → function of a lower-case word."""


def casing_of(original: str) -> str:
    """Return which of `CASINGS` a word has (D6).

    >>> [casing_of(word) for word in ("boy", "Boy", "BOY", "A", "McBoy")]
    ['lower', 'title', 'upper', 'title', 'lower']
    """
    if len(original) > 1 and original.isupper():
        return "upper"
    if original[:1].isupper() and original[1:].lower() == original[1:]:
        return "title"
    return "lower"


def match_case(word: str, original: str) -> str:
    """Give a lower-case word the casing of the original (D6).

    >>> match_case("girl", "Boy"), match_case("girl", "BOY"), match_case("girl", "boy")
    ('Girl', 'GIRL', 'girl')
    """
    return CASINGS[casing_of(original)](word)


@dataclass(frozen=True)
class Lexicon:
    """Words in lower case (D6); their forms are numbered `casing × len(words) + word`."""

    numbers: Mapping[str, int]
    """Word → its number, which is its place among the sorted words."""
    of_token: Mapping[str, NDArray[np.int64]]
    """MLM → [vocabulary] number of each token's word."""

    @classmethod
    def of(cls, vocabularies: Mapping[str, Vocabulary]) -> Self:
        """Number the words of each MLM's vocabulary."""
        words = sorted({word for known in vocabularies.values() for word in known.lowered})
        numbers = {word: number for number, word in enumerate(words)}
        return cls(
            numbers,
            {
                mlm: np.array([numbers[word] for word in known.lowered], np.int64)
                for mlm, known in vocabularies.items()
            },
        )

    def form(self, casing: NDArray[np.int64], word: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return [n] numbers of forms, from [n] numbers of casings and of words."""
        return casing * len(self.numbers) + word

    @cached_property
    def forms(self) -> list[str]:
        """The text of every form."""
        return [shape(word) for shape in CASINGS.values() for word in self.numbers]


@dataclass(frozen=True, slots=True)
class Survivors:
    """One MLM's suggestions that pass (i) at n occurrences: `starts[i]:starts[i + 1]` for the i-th.

    They are whole alphabetic words, once each (D4–D6), the most probable first.
    """

    starts: NDArray[np.int64]
    """[n + 1] Start of each occurrence's suggestions, and the end of all."""
    in_vocabulary: NDArray[np.bool_]
    """[n] Whether the original is one token there (D3), or nothing was asked."""
    asked: NDArray[np.bool_]
    """[n] Whether the masked LM was asked."""
    tokens: NDArray[np.int32]
    """[starts[-1]] Token ids."""
    log_odds: NDArray[np.float32]
    """[starts[-1]] log P(suggestion) − log P(original), in nats."""
    rejected: NDArray[np.int32]
    """[n, reasons] Number of suggestions dropped for each reason of the step "candidates"."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[n] Number of survivors at each occurrence."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class Words:
    """The shared words of some problems, by seed, class and form, and where they stand."""

    seeds: list[Seed]
    """[words] The word's problem."""
    words: list[SharedWord]
    """[words] The shared word."""
    places: list[Place]
    """The words' places in their texts."""
    place: NDArray[np.int64]
    """[words, texts] Number of the word's place in the text, −1 where the text lacks the word."""
    occurrences: NDArray[np.int64]
    """[words, texts] How often the word occurs in the text."""
    queries: list[MaskedQuery]
    """[occurrences] The question to the masked LMs about each occurrence."""
    word_of: NDArray[np.int64]
    """[occurrences] Number of the word."""
    text_of: NDArray[np.int64]
    """[occurrences] Number of its text; in NLI 0 is the premise, 1 the hypothesis."""
    problem: NDArray[np.int64]
    """[words] Number of the word's problem."""
    problem_words: NDArray[np.int64]
    """Pairs of a problem and the number of a word that occurs in it (D7)."""
    lexicon: Lexicon

    @classmethod
    def of(cls, problems: TaggedProblems, lexicon: Lexicon, config: Config) -> Self:
        """Lay out the shared words of some problems."""
        texts = len(config.fields)
        shared = sorted(
            problems.pairs(), key=lambda row: (row[0].seed_id, row[1].word_class, row[1].word)
        )
        place = np.full((len(shared), texts), -1)
        occurrences = np.zeros((len(shared), texts), np.int64)
        places, queries, standing = list[Place](), list[MaskedQuery](), list[tuple[int, int]]()
        for number, (seed, word) in enumerate(shared):
            for text, of_text in problems.places(seed, word):
                place[number, text] = len(places)
                occurrences[number, text] = len(of_text.positions)
                places.append(of_text)
                queries += masked_queries(of_text, masking=config.masking)
                standing += [(number, text)] * len(of_text.positions)
        word_of, text_of = np.array(standing, np.int64).reshape(-1, 2).T
        known = {
            text: {token.text.lower() for token in sentence.tokens} & lexicon.numbers.keys()
            for text, sentence in problems.sentences.items()
        }
        seeds = list({seed.seed_id: seed for seed, _ in shared}.values())
        number_of = {seed.seed_id: number for number, seed in enumerate(seeds)}
        in_problem = [
            (number, lexicon.numbers[word])
            for number, seed in enumerate(seeds)
            for word in set().union(*(known[text] for text in seed.texts))
        ]
        return cls(
            seeds=[seed for seed, _ in shared],
            words=[word for _, word in shared],
            places=places,
            place=place,
            occurrences=occurrences,
            queries=queries,
            word_of=word_of,
            text_of=text_of,
            problem=np.array([number_of[seed.seed_id] for seed, _ in shared], np.int64),
            problem_words=pairs(*np.array(in_problem, np.int64).reshape(-1, 2).T),
            lexicon=lexicon,
        )

    @cached_property
    def word_class(self) -> NDArray[np.int64]:
        """[words] Place in `WORD_CLASSES`."""
        return np.array([WORD_CLASSES.index(word.word_class) for word in self.words], np.int64)

    @cached_property
    def casing(self) -> NDArray[np.int64]:
        """[words] Place in `CASINGS`."""
        casings = list(CASINGS)
        return np.array([casings.index(casing_of(word.word)) for word in self.words], np.int64)

    def groups(self, scope: str) -> NDArray[np.int64]:
        """Return [words] a number for each group whose replacements are counted together (D9)."""
        if scope == "word":
            return np.arange(len(self.words))
        if scope == "problem":
            return self.problem
        return self.problem * len(WORD_CLASSES) + self.word_class


@dataclass(frozen=True, slots=True)
class Table:
    """A row for each shared word o and each word r that a masked LM suggests for it somewhere."""

    words: Words
    shared: NDArray[np.int64]
    """[n] Number of o."""
    word: NDArray[np.int64]
    """[n] Number of r."""
    suggested: NDArray[np.int16]
    """[n, texts, MLMs] At how many occurrences of o the masked LM finds r more probable (i)."""
    log_odds: NDArray[np.float32]
    """[n, texts, MLMs] Smallest log P(r) − log P(o) over these occurrences, in nats (D14)."""
    log_ranks: NDArray[np.float64]
    """[n] Sum of the logarithms of the ranks of r, from 1, over all texts and masked LMs."""
    known: NDArray[np.int64]
    """[words] Number of occurrences of o, over the masked LMs that have a token for it (D3)."""
    settled: NDArray[np.bool_]
    """[words] Whether all questions that matter to the word were asked."""

    @classmethod
    def of(cls, words: Words, survivors: Mapping[str, Survivors], *, scope: str) -> Self:
        """Tabulate what masked LMs, in the order given, suggest for shared words."""
        keys, rests, log_odds, ranks = [], [], [], []
        known = np.zeros(len(words.words), np.int64)
        for number, (mlm, of_mlm) in enumerate(survivors.items()):
            at = np.repeat(np.arange(len(of_mlm.sizes)), of_mlm.sizes)
            keys.append(pairs(words.word_of[at], words.lexicon.of_token[mlm][of_mlm.tokens]))
            rests.append(words.text_of[at] * len(survivors) + number)
            log_odds.append(of_mlm.log_odds)
            ranks.append(1 + np.arange(len(at)) - of_mlm.starts[at])
            np.add.at(known, words.word_of[of_mlm.in_vocabulary], 1)
        distinct, row = np.unique(np.concatenate(keys), return_inverse=True)
        shape = len(distinct), words.place.shape[1], len(survivors)
        cell = row * (shape[1] * shape[2]) + np.concatenate(rests)
        suggested = np.zeros(shape, np.int16)
        np.add.at(suggested.reshape(-1), cell, np.int16(1))
        smallest = np.full(shape, np.inf, np.float32)
        np.minimum.at(smallest.reshape(-1), cell, np.concatenate(log_odds))
        log_ranks = np.zeros(len(distinct))
        np.add.at(log_ranks, row, np.log(np.concatenate(ranks)))
        # All masked LMs are asked the same questions.
        asked = next(iter(survivors.values())).asked
        groups = words.groups("problem" if scope == "problem" else "class")
        settled = ~np.isin(groups, groups[words.word_of[~asked]])
        return cls(words, *split(distinct), suggested, smallest, log_ranks, known, settled)

    @property
    def occurrences(self) -> NDArray[np.int64]:
        """[n, texts] How often o occurs in each text."""
        return self.words.occurrences[self.shared]

    def put(self, row: NDArray[np.int64], text: NDArray[np.int64]) -> Substitutions:
        """Put r in place of o, in the right casing (D6), for [m] rows and texts."""
        words, shared = self.words, self.shared[row]
        form = words.lexicon.form(words.casing[shared], self.word[row])
        return Substitutions(words.places, words.lexicon.forms, words.place[shared, text], form)


# --- Conditions on a masked LM's suggestions: which of those `left`, [n, k], they drop ---


def not_more_probable(left: Flags, scores: Scores, _: Vocabulary, config: Config) -> Flags:
    """Condition (i): find words r no more probable than o (D5); none without the filter (D13)."""
    more_probable = scores.logits > scores.original_logit[:, None]
    return ~more_probable & config.probability_filter


# --- Conditions on a table: which of the cells `left`, [n, texts, MLMs], they drop ---


def out_of_reach(left: Flags, table: Table, config: Config) -> Flags:
    """Find words o that were not asked about in full, as too few replacements can come of it."""
    return ~table.settled[table.shared][:, None, None]


def in_problem(left: Flags, table: Table, config: Config) -> Flags:
    """Condition (ii): find words r that occur in the problem (D7)."""
    words = pairs(table.words.problem[table.shared], table.word)
    return np.isin(words, table.words.problem_words)[:, None, None]


def not_at_every_occurrence(left: Flags, table: Table, config: Config) -> Flags:
    """R_j(S, o) = ∩ over i of R_j(S, i): find words r that j lacks at an occurrence of o (D2)."""
    return table.suggested < table.occurrences[:, :, None]


def not_in_every_text(left: Flags, table: Table, config: Config) -> Flags:
    """R_M(⟨p, h⟩, o) = R_M(p, o) ∩ R_M(h, o): find words r that a text lacks; none with `union`."""
    in_text = left.any(axis=2)  # R_M(S, o) = ∪ over j of R_j(S, o)
    lacking: Flags = np.any(~in_text & (table.occurrences > 0), axis=1)
    return lacking[:, None, None] & (config.combine == "intersection")


# --- Conditions in context: which of the substitutions `left`, [n], they drop ---
#
# Substitutions have [m] tags, −1 where the tokens change, which begin at [n] `starts`. `same` tells
# whether they are the originals' or, by default, of the same class.


def changes_tokens(left: Flags, tags: Ints, same: Flags, starts: Ints) -> Flags:
    """Find words r that change the tokenisation, so that nothing says their class (D8)."""
    return tags[starts] < 0


def changes_class(left: Flags, tags: Ints, same: Flags, starts: Ints) -> Flags:
    """Condition (iii): find words r of another class than o at an occurrence (D8)."""
    keeps: Flags = np.logical_and.reduceat(same, starts)
    return ~keeps
