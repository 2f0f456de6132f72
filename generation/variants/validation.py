"""Equation 1 for a block of problems: its conditions in order, and every rejection counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from generation.config import Config
from generation.problems.shared_words import TaggedProblems, coarse_class
from generation.problems.substitutions import Substitutions
from generation.problems.tagging import Tagger
from generation.reasons import KEPT, NO_REASON, REASONS, Reason
from generation.records import (
    lists_of,
    pairs,
    ranges,
    replacement_schema,
    sorted_replacements,
    split,
    starts_of,
)
from generation.signals.signal_columns import (
    UNKNOWN,
    answers_about_articles,
    answers_of,
    forms_changed,
    zipf_frequencies,
)
from generation.variants.candidates import CHEAP_REASONS, Candidates, Survivors
from generation.variants.funnel import NOT_IN_VOCABULARY, Funnel, WordKey
from generation.variants.set_algebra import (
    Occurrences,
    Suggested,
    over_mlms,
    over_occurrences,
    over_sentences,
)
from generation.variants.words import Lexicon
from merge_dataset.schema import WORD_CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray


LAST_RANK: Final = 201
"""Rank of all words after the first 200 suggestions, the number that the paper asks for."""


def find_replacements(
    problems: TaggedProblems,
    answers: Mapping[str, Candidates],
    lexicon: Lexicon,
    tagger: Tagger,
    config: Config,
) -> tuple[pa.Table, Funnel, list[WordKey]]:
    """Find R_M(⟨p, h⟩, o) of each shared word o; return also the funnel and unsettled words."""
    texts = len(config.problem_format.fields)
    words = Occurrences.of(problems, lexicon, masking=config.masking, texts=texts)
    mlms = sorted(answers)
    funnel = Funnel()
    for mlm in mlms:
        for word_class in np.unique(words.word_class):
            funnel.add(mlm, WORD_CLASSES[word_class], {})
    survivors = {mlm: answers[mlm].take(words.queries) for mlm in mlms}
    # All masked LMs are asked the same questions.
    settled = words.settled(survivors[mlms[0]].asked, scope=config.min_replacements_scope)
    usable = settled[words.side_word]
    suggested = over_mlms(
        [validated_by(mlm, survivors[mlm], usable, words, funnel) for mlm in mlms]
    )
    keys, places = over_sentences(
        suggested.keys, words.side_word, words.side_text, texts=texts, combine=config.combine
    )
    suggested = _judged(suggested, places, words, tagger, config)
    places = np.where((places >= 0) & (suggested.reasons[places] == NO_REASON), places, -1)
    found = (places >= 0).any(1)
    keys, places = keys[found], places[found]
    side, _ = split(suggested.keys)
    replaced, _ = split(keys)
    anywhere: NDArray[np.bool_] = np.any(suggested.mlms_by_text(places), axis=1)
    for n, mlm in enumerate(mlms):
        for number in np.unique(suggested.reasons).tolist():
            name = KEPT if number == NO_REASON else REASONS[number]
            ended = side[suggested.mlms[:, n] & (suggested.reasons == number)]
            funnel.add_columns(mlm, name, words.class_of(ended), words.per_side[ended])
        funnel.add_columns(mlm, "replacements", words.word_class[replaced[anywhere[:, n]]])
    ranks = mean_ranks(keys, survivors, words)
    table = _table(suggested, keys, places, mlms, ranks, words, config)
    left_out = [(words.seeds[n].seed_id, words.words[n]) for n in np.flatnonzero(~settled).tolist()]
    unsettled = [(seed_id, word.word_class, word.word) for seed_id, word in left_out]
    return sorted_replacements(table), funnel, unsettled


def mean_ranks(
    keys: NDArray[np.int64], survivors: Mapping[str, Survivors], words: Occurrences
) -> NDArray[np.float64]:
    """Return [n] geometric means of ranks, 1 to `LAST_RANK`, over MLMs and a word's occurrences.

    `keys` are [n] (shared word, word). An MLM that has no token for the original at an occurrence
    is left out there; NaN where all are left out.
    """
    row, word = split(keys)
    per_word = np.bincount(words.side_word[words.side], minlength=len(words.words))
    sizes = per_word[row]
    owner = np.repeat(np.arange(len(keys)), sizes)
    occurrence = ranges(starts_of(per_word)[row], sizes)
    wanted = pairs(occurrence, word[owner])
    total, said = np.zeros(len(keys)), np.zeros(len(keys))
    for mlm, left in survivors.items():
        at = np.repeat(np.arange(len(left.sizes)), left.sizes)
        there = pairs(at, words.lexicon.of_token[mlm][left.tokens])
        order = np.argsort(there, kind="stable")  # the more probable of equal words first
        place = np.minimum(np.searchsorted(there, wanted, sorter=order), max(len(there) - 1, 0))
        rank = np.full(len(wanted), LAST_RANK)
        if len(there):
            found = there[order[place]] == wanted
            rank[found] = 1 + (order[place] - left.starts[occurrence])[found]
        knows = left.in_vocabulary[occurrence]
        logs = np.where(knows, np.log(np.minimum(rank, LAST_RANK)), 0.0)
        total += np.bincount(owner, logs, minlength=len(keys))
        said += np.bincount(owner, knows, minlength=len(keys))
    means = np.divide(total, said, out=np.full(len(keys), np.nan), where=said > 0)
    ranks: NDArray[np.float64] = np.exp(means)
    return ranks


def validated_by(
    mlm: str, survivors: Survivors, usable: NDArray[np.bool_], words: Occurrences, funnel: Funnel
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find R_j(S, o), classes unchecked: [n] sorted (side, word) keys, [n] log-odds in nats."""
    side = np.repeat(words.side, survivors.sizes)
    word = words.lexicon.of_token[mlm][survivors.tokens]
    log_odds_of = survivors.log_odds
    if not usable.all():
        mine = usable[side]
        funnel.add_columns(mlm, Reason.OUT_OF_REACH, words.class_of(side[~mine]))
        side, word, log_odds_of = side[mine], word[mine], log_odds_of[mine]
    problem = words.problem[words.side_word[side]]
    outside = np.isin(pairs(problem, word), words.problem_words, invert=True)  # condition (ii), D7
    keys, log_odds = over_occurrences(
        pairs(side, word)[outside], log_odds_of[outside], words.per_side
    )
    at_occurrences = words.class_of(words.side)
    for reason, rejected in zip(CHEAP_REASONS, survivors.rejected.T, strict=True):
        funnel.add_columns(mlm, reason, at_occurrences, rejected)
    funnel.add_columns(mlm, NOT_IN_VOCABULARY, words.class_of(words.side[~survivors.in_vocabulary]))
    funnel.add_columns(mlm, Reason.IN_PROBLEM, words.class_of(side[~outside]))
    everywhere, _ = split(keys)
    lost = np.bincount(side[outside], minlength=len(words.places)) - (
        np.bincount(everywhere, minlength=len(words.places)) * words.per_side
    )
    funnel.add_columns(mlm, Reason.OTHER_OCCURRENCE, words.class_of(np.arange(len(lost))), lost)
    return keys, log_odds


def _judged(
    suggested: Suggested,
    places: NDArray[np.int64],
    words: Occurrences,
    tagger: Tagger,
    config: Config,
) -> Suggested:
    """Return suggested words with reasons and changes by condition (iii), D8.

    A word that fails in one text is rejected in all: where it fails, for that text's reason, else
    for the first reason found. Once its class has changed in one text, later texts only check its
    tokenisation. `places` has [n, texts] rows of the words that equation 1 proposes, −1 for none.
    """
    reasons = np.full(len(suggested.keys), Reason.OTHER_SENTENCE.number)
    changed = suggested.changed.copy()
    there = places >= 0
    proposed = np.unique(places[there])
    reasons[proposed] = NO_REASON
    if config.class_filter and config.combine == "intersection":
        of_texts = np.full(places.shape, NO_REASON)
        forms = np.full((*places.shape, 2), UNKNOWN)
        settled = np.zeros(len(places), np.bool_)
        for text, place in enumerate(places.T):
            tagged, tokenised = there[:, text] & ~settled, there[:, text] & settled
            of_texts[tagged, text], forms[tagged, text] = judge_in_context(
                words.put(suggested.keys[place[tagged]]), tagger, tag_match=config.tag_match
            )
            stay = tagger.keeps_tokens(words.put(suggested.keys[place[tokenised]]))
            of_texts[tokenised, text] = np.where(stay, NO_REASON, Reason.TOKENIZATION.number)
            settled |= of_texts[:, text] == Reason.WORD_CLASS.number
        first = np.argmax(of_texts != NO_REASON, axis=1)
        of_first = of_texts[np.arange(len(of_texts)), first][:, None]
        of_texts = np.where(of_texts == NO_REASON, of_first, of_texts)
        reasons[places[there]], changed[places[there]] = of_texts[there], forms[there]
    elif config.class_filter:
        reasons[proposed], changed[proposed] = judge_in_context(
            words.put(suggested.keys[proposed]), tagger, tag_match=config.tag_match
        )
    return replace(suggested, reasons=reasons, changed=changed)


def judge_in_context(
    substitutions: Substitutions, tagger: Tagger, *, tag_match: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return [n] reasons to reject in context (D8), and [n, 2] changes as `forms_changed` does."""
    numbers: dict[str, int] = {}

    def compared(tags: Sequence[str]) -> NDArray[np.int64]:
        # D8: a Penn tag's class, or the tag itself with `fine`.
        names = map(coarse_class, tags) if tag_match == "coarse" else tags
        return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)

    places = substitutions.places
    per_place = np.array([len(place.positions) for place in places], np.int64)
    sizes = substitutions.sizes
    occurrences = ranges(starts_of(per_place)[substitutions.place], sizes)
    before = [place.sentence.tokens[at].tag for place in places for at in place.positions]
    originals = compared(before)
    tags = tagger.tags_after(substitutions)
    same = compared(tagger.labels)[tags] == originals[occurrences]
    starts = starts_of(sizes)[:-1]
    reasons = np.where(np.logical_and.reduceat(same, starts), NO_REASON, Reason.WORD_CLASS.number)
    changed = forms_changed(before, tagger.labels, tags, occurrences, starts)
    return np.where(tags[starts] < 0, Reason.TOKENIZATION.number, reasons), changed


def _table(
    suggested: Suggested,
    keys: NDArray[np.int64],
    places: NDArray[np.int64],
    mlms: Sequence[str],
    ranks: NDArray[np.float64],
    words: Occurrences,
    config: Config,
) -> pa.Table:
    """Make the table of replacements of [n] `keys`, with `replacement_schema`."""
    problem_format = config.problem_format
    row, word = split(keys)
    there: NDArray[np.bool_] = places >= 0
    by_text = suggested.mlms_by_text(places)
    log_odds = np.where(there, suggested.log_odds[places], np.float32(np.inf)).min(1)
    changed = np.where(there[:, :, None], suggested.changed[places], UNKNOWN).max(axis=1)
    forms = words.lexicon.forms
    texts = pa.array([forms[form] for form in words.form(row, word).tolist()], pa.string())
    names = pa.array(mlms, pa.string())
    columns = {
        "seed_id": pa.array([seed.seed_id for seed in words.seeds], pa.string()).take(row),
        "source": pa.array([seed.source for seed in words.seeds], pa.string()).take(row),
        "word": pa.array([word.word for word in words.words], pa.string()).take(row),
        "word_class": pa.array([word.word_class for word in words.words], pa.string()).take(row),
        "replacement": texts,
        **{
            name: lists_of(names, by_text[:, text]) for text, name in enumerate(problem_format.mlms)
        },
        "log_odds": pa.array(log_odds),
        "mlm_count": pa.array(by_text.any(1).sum(1)),
        **{name: pa.nulls(len(row), pa.float32()) for name in problem_format.pll_changes},
        "zipf_frequency": zipf_frequencies(texts),
        "number_changed": answers_of(changed[:, 0]),
        "tense_changed": answers_of(changed[:, 1]),
        "article_fits": answers_of(
            answers_about_articles(words.places, words.sides[row], texts.to_pylist())
        ),
    }
    schema = replacement_schema(problem_format)
    more = {name: pa.nulls(len(row), schema.field(name).type) for name in problem_format.optional}
    if "mean_rank" in more:
        more["mean_rank"] = pa.array(ranks, mask=np.isnan(ranks))
    return pa.table(columns | more).select(schema.names).cast(schema)
