"""R_M(⟨p, h⟩, o) for one shared word: the filters in order, every rejection counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from generation.candidates import Candidates
from generation.config import Config
from generation.filters import (
    IN_PROBLEM,
    OTHER_OCCURRENCE,
    OTHER_SENTENCE,
    class_verdict,
    match_case,
    not_in_problem,
)
from generation.funnel import KEPT, NOT_IN_VOCABULARY, Funnel
from generation.records import (
    Evidence,
    MaskedQuery,
    Replacement,
    Seed,
    Sentence,
    SharedWord,
)
from generation.replacements import over_mlms, over_occurrences, over_sentences
from generation.tagging import Substitution


@dataclass(frozen=True, slots=True)
class SentenceSets:
    """What the MLMs hold probable for a word in one sentence."""

    sentence: Sentence
    positions: tuple[int, ...]
    """The word's occurrences."""
    by_mlm: Mapping[str, Mapping[str, float]]
    """R_j(S, o) but for the class: MLM → word → smallest log-odds."""
    evidence: Mapping[str, Evidence]
    """R_M(S, o) but for the class."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Penn tags of the original at its occurrences."""
        return tuple(self.sentence.tokens[position].tag for position in self.positions)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A shared word with what may replace it once the tagger agrees."""

    seed: Seed
    word: SharedWord
    sides: tuple[SentenceSets, SentenceSets]
    """Premise, hypothesis."""
    words: list[str]
    """The candidates of eq. 1 but for the class, lower case, sorted."""

    def substitutions(self) -> list[tuple[int, str, Substitution]]:
        """What to tag: side, candidate, and the candidate in its place."""
        return [
            (side, word, Substitution(s.sentence, s.positions, match_case(word, self.word.word)))
            for side, s in enumerate(self.sides)
            for word in self.words
            if word in s.evidence
        ]


def masked_queries(
    sentence: Sentence, positions: Sequence[int], *, masking: str
) -> list[MaskedQuery]:
    """What to ask about a word's occurrences in a sentence, one question each (D4)."""
    spans = tuple(sentence.tokens[position].span for position in positions)
    return [
        MaskedQuery(sentence.text, span, spans if masking == "joint" else (span,)) for span in spans
    ]


def propose(
    seed: Seed,
    word: SharedWord,
    sentences: tuple[Sentence, Sentence],
    candidates: Mapping[str, Candidates],
    *,
    config: Config,
    funnel: Funnel,
) -> Proposal:
    """Everything of eq. 1 that needs no tagger.

    Args:
        seed: The problem.
        word: One of its shared words.
        sentences: Premise and hypothesis, tagged.
        candidates: By MLM.
        config: Masking and how the sentences combine.
        funnel: Takes the rejections.
    """
    problem_words = {token.text.lower() for sentence in sentences for token in sentence.tokens}
    sides = tuple(
        _sentence_sets(
            sentence,
            positions,
            word.word_class,
            candidates,
            problem_words,
            config.masking,
            funnel,
        )
        for sentence, positions in zip(sentences, (word.premise, word.hypothesis), strict=True)
    )
    premise, hypothesis = sides
    words = over_sentences(premise.evidence, hypothesis.evidence, combine=config.combine)
    for side in sides:
        for mlm, validated in side.by_mlm.items():
            lost = len(validated) - sum(w in validated for w in words)
            funnel.add(mlm, word.word_class, {OTHER_SENTENCE: lost * len(side.positions)})
    return Proposal(seed, word, (premise, hypothesis), words)


def settle(
    proposal: Proposal,
    tags: Mapping[tuple[int, str], tuple[str, ...] | None],
    *,
    config: Config,
    funnel: Funnel,
) -> list[Replacement]:
    """Condition (iii) and with it the rest of eq. 1: the replacements, sorted.

    Args:
        proposal: From `propose`.
        tags: (side, candidate) → tags in context, as `Tagger.tags_after` gives them;
            ignored without the class filter.
        config: Whether and how classes are compared.
        funnel: Takes the rejections and what is kept.
    """
    failed: dict[tuple[int, str], str] = {}
    if config.class_filter:
        for (side, word), found in tags.items():
            verdict = class_verdict(found, proposal.sides[side].tags, tag_match=config.tag_match)
            if verdict:
                failed[side, word] = verdict
                if config.combine == "intersection":
                    failed.setdefault((1 - side, word), verdict)
    replacements = []
    for word in proposal.words:
        valid = [
            side.evidence[word] if word in side.evidence and (n, word) not in failed else None
            for n, side in enumerate(proposal.sides)
        ]
        if any(valid):
            replacements.append(_replacement(proposal, word, *valid))
    _count(proposal, failed, funnel)
    return replacements


def _sentence_sets(
    sentence: Sentence,
    positions: tuple[int, ...],
    word_class: str,
    candidates: Mapping[str, Candidates],
    problem_words: Collection[str],
    masking: str,
    funnel: Funnel,
) -> SentenceSets:
    queries = masked_queries(sentence, positions, masking=masking)
    by_mlm = {}
    for mlm, of_mlm in candidates.items():
        occurrences = [of_mlm.at(query) for query in queries]
        sets = [not_in_problem(o.log_odds, problem_words) for o in occurrences]
        validated = over_occurrences(sets)
        by_mlm[mlm] = validated
        for occurrence, kept in zip(occurrences, sets, strict=True):
            counts = {
                **occurrence.rejected,
                IN_PROBLEM: len(occurrence.log_odds) - len(kept),
                OTHER_OCCURRENCE: len(kept) - len(validated),
                NOT_IN_VOCABULARY: int(not occurrence.in_vocabulary),
            }
            funnel.add(mlm, word_class, counts)
    return SentenceSets(sentence, positions, by_mlm, over_mlms(by_mlm))


def _replacement(
    proposal: Proposal, word: str, premise: Evidence | None, hypothesis: Evidence | None
) -> Replacement:
    return Replacement(
        seed_id=proposal.seed.seed_id,
        source=proposal.seed.source,
        word=proposal.word.word,
        word_class=proposal.word.word_class,
        replacement=match_case(word, proposal.word.word),
        premise_mlms=premise.mlms if premise else (),
        hypothesis_mlms=hypothesis.mlms if hypothesis else (),
        log_odds=min(e.log_odds for e in (premise, hypothesis) if e),
    )


def _count(proposal: Proposal, failed: Mapping[tuple[int, str], str], funnel: Funnel) -> None:
    made: dict[str, set[str]] = {}
    for n, side in enumerate(proposal.sides):
        for mlm, validated in side.by_mlm.items():
            for word in proposal.words:
                if word in validated:
                    fate = failed.get((n, word), KEPT)
                    funnel.add(mlm, proposal.word.word_class, {fate: len(side.positions)})
                    if fate == KEPT:
                        made.setdefault(mlm, set()).add(word)
    for mlm, words in made.items():
        funnel.add(mlm, proposal.word.word_class, {"replacements": len(words)})
