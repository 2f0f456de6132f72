"""The one list of reasons to drop a suggestion, a word or a problem, in the order of the steps.

An entry of `Reason` is a name, a step, a sentence and, where the step goes through its reasons by
`first_reasons`, the function that finds what to drop. The funnel, exclusions, messages and tables
read the list.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from generation.config import Config, is_set
from generation.problems.tagging import TaggedProblems
from generation.records import Exclusion, Scores
from generation.suggestions.vocabulary import OTHER, Vocabulary
from generation.variants import equation
from generation.variants.equation import Flags
from merge_dataset.dataset_columns import LIMITS
from merge_dataset.schema import ProblemFormat

KEPT: Final = "kept"
"""Name, among the reasons, of the count of suggestions or other things not rejected."""

NO_REASON: Final = -1
"""Number that stands for no reason, in columns of `RejectionReason.number`."""

Drops = Callable[..., Flags]
"""Function of what is left, and of further arguments of its step, to what is dropped of it."""


class RejectionReason(StrEnum):
    """A reason to drop something, equal to its name: `MEMBER = "name", "step", "sentence"`."""

    step: str
    """The step that gives the reason."""
    sentence: str
    """The reason in words, true of everything dropped for it."""
    drops: Drops
    """The function that finds what is dropped of what is left; nothing if the step does it."""
    number: int
    """Place in the list, from 0, for columns of reasons."""

    def __new__(
        cls, name: str, step: str, sentence: str, drops: Drops = lambda left, *_: left & False
    ) -> Self:
        """Make a member from its row."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.step, member.sentence, member.drops = step, sentence, drops
        member.number = len(cls.__members__)
        return member

    @classmethod
    def of_steps(cls, *steps: str) -> tuple[Self, ...]:
        """Return the reasons that some steps give, in order."""
        return tuple(reason for reason in cls if reason.step in steps)


# --- Candidates: `left` are [n, k] suggestions of a masked LM ---


def _token_ids(scores: Scores, vocabulary: Vocabulary) -> NDArray[np.int32]:
    """Return token ids, a special one for ids past the vocabulary, which pad the output layer."""
    special = int(np.flatnonzero(vocabulary.kinds == OTHER)[0])
    is_known = (scores.tokens >= 0) & (scores.tokens < len(vocabulary.texts))
    return np.where(is_known, scores.tokens, special)


def _duplicate(left: Flags, scores: Scores, vocabulary: Vocabulary, _: Config) -> Flags:
    words = vocabulary.word_numbers[_token_ids(scores, vocabulary)].astype(np.int64)
    rows = np.arange(len(words))[:, None] * (len(vocabulary.texts) + 1)
    _, first = np.unique((rows + words)[left], return_index=True)
    is_later = left.reshape(-1).copy()
    is_later[np.flatnonzero(left)[first]] = False
    return is_later.reshape(left.shape)


# --- Signals: `left` are [n] replacements, rows with signals; what is unknown passes ---


def _limit(column: str) -> Drops:
    """Drop replacements beyond the limit that a setting puts on a column, or on each text's."""
    setting, refused = LIMITS[column]
    ending = column.removeprefix("{field}")

    def drops(left: Flags, rows: pa.Table, config: Config) -> Flags:
        limit, beyond = getattr(config, setting), np.zeros(len(rows), np.bool_)
        for name in rows.column_names if is_set(limit) else ():
            if name == column or ("{field}" in column and name.endswith(ending)):
                values = rows[name]
                # In the column's type: 3.1 as float32 is less than 3.1 as float64.
                wrong = (
                    pc.less(values, pa.scalar(limit, values.type))
                    if refused is None
                    else pc.equal(values, refused)
                )
                beyond |= pc.fill_null(wrong, False).to_numpy()
        return beyond

    return drops


def _low_quality(left: Flags, rows: pa.Table, config: Config) -> Flags:
    beyond = np.zeros(len(rows), np.bool_)
    for word_class in config.word_classes if config.min_quality is not None else ():
        limit = float(config.class_quality.get(word_class, config.min_quality or 0))
        of_class = pc.equal(rows["word_class"], word_class)
        is_less = pc.less(rows["quality"], pa.scalar(limit, rows["quality"].type))
        beyond |= pc.fill_null(pc.and_(of_class, is_less), False).to_numpy()
    return beyond


class Reason(RejectionReason):
    """Reasons why suggestions, words and problems yield no variants, in the order of steps."""

    # fmt: off
    UNLABELLED = "unlabelled", "problems", "the problem has no gold label (D15)"
    NO_SHARED_WORD = "no_shared_word", "problems", "the problem has no shared word (D1)"

    NOT_ALPHABETIC = ("not_alphabetic", "candidates", "not letters only (D4)",
        lambda left, scores, words, _: ~words.is_alphabetic[_token_ids(scores, words)])
    SUBWORD = ("subword", "candidates", "not a whole word where it stands (D4)",
        lambda left, scores, words, _: ~words.fits(scores.tokens, scores.original))
    LESS_PROBABLE = ("less_probable", "candidates",
        "not more probable than the original (D5)", equation.not_more_probable)
    DUPLICATE = ("duplicate", "candidates",
        "differs from a more probable suggestion in case alone (D6)", _duplicate)

    OUT_OF_REACH = ("out_of_reach", "asking",
        "not asked about in every text, as too few replacements can come of it",
        equation.out_of_reach)

    IN_PROBLEM = ("in_problem", "one text",
        "is a word of the problem already (D7)", equation.in_problem)
    OTHER_OCCURRENCE = ("other_occurrence", "one text",
        "the same MLM did not validate it at the word's other occurrence (D2)",
        equation.not_at_every_occurrence)
    OTHER_SENTENCE = ("other_sentence", "all texts",
        "no MLM validated it in the other sentence (eq. 1)", equation.not_in_every_text)

    TOKENIZATION = ("tokenization", "context",
        "changes the tokenisation (D8)", equation.changes_tokens)
    WORD_CLASS = ("other_class", "context",
        "has another word class in context (D8)", equation.changes_class)

    FAMILY_REJECTED = ("word_family", "families",
        "another form of the word stands in the problem (families = reject)")
    FAMILY_IN_COMPOUND = ("family_in_compound", "families",
        "a form of the word is the first part of a nominal compound (families = inflect)")
    FAMILY_AUXILIARY = ("family_auxiliary", "families",
        'another form of the word is one of "be", "have" or "do" (families = inflect)')

    NO_INFLECTION = ("no_inflection", "further edits",
        "has not the form that another form of the word asks for (families = inflect)")
    AMBIGUOUS = "ambiguous", "further edits", "two words would become the same one"
    SAME_TEXT = ("same_text", "further edits",
        "a replacement of another form of the word makes the same edits")

    LOW_LOG_ODDS = "low_log_odds", "signals", "log-odds below min_log_odds", _limit("log_odds")
    FEW_MLMS = ("few_mlms", "signals",
        "validated by fewer masked LMs than min_mlms", _limit("mlm_count"))
    RARE = ("rare_word", "signals",
        "less frequent in English than min_zipf_frequency", _limit("zipf_frequency"))
    UNLIKELY = ("less_likely_sentence", "signals",
        "changes a sentence's pseudo-log-likelihood by less than min_pll_change",
        _limit("{field}_pll_change"))
    OTHER_NUMBER = ("other_number", "signals",
        "changes a noun's number (same_number)", _limit("number_changed"))
    OTHER_TENSE = ("other_tense", "signals",
        "changes a verb's form (same_tense)", _limit("tense_changed"))
    OTHER_ARTICLE = ("other_article", "signals",
        'wants the other one of "a" and "an" (fitting_article)', _limit("article_fits"))
    UNATTESTED_FORM = ("unattested_form", "signals",
        "is not the form that its place asks for (attested_form)", _limit("form_attested"))
    DISAGREES = ("other_agreement", "signals",
        "does not agree with its determiner or verb (agreeing_number)", _limit("number_agrees"))
    OTHER_DETERMINER = ("other_determiner", "signals",
        "does not go with the determiner before it (fitting_determiner)",
        _limit("determiner_fits"))
    IN_COMPOUND = ("in_compound", "signals",
        "replaces a part of a compound or particle verb (no_compounds)", _limit("in_compound"))
    LOW_QUALITY = "low_quality", "signals", "quality below min_quality", _low_quality
    NOT_JUDGED = ("not_judged", "signals", "nobody judged it (min_judged)",
        lambda left, rows, config: left & (config.min_judged is not None
            and rows["judged"].is_null().to_numpy()))
    POORLY_JUDGED = "poorly_judged", "signals", "judged below min_judged", _limit("judged")

    NO_REPLACEMENT = "no_replacement", "words", "the word has no replacement"
    REJECTED_BY_SIGNALS = ("rejected_by_signals", "words",
        "all replacements of the word are below the limits on signals")

    TOO_FEW = ("too_few_replacements", "sampling",
        "the seed, class or word has fewer replacements than min_replacements (D9)")
    # fmt: on


REASONS: Final = tuple(Reason)
"""All reasons, by number."""


def first_reasons(left: Flags, steps: tuple[str, ...], *given: Any) -> NDArray[np.int8]:
    """Return the number of the first reason to drop each of what is `left`; `NO_REASON` without."""
    numbers = np.full(left.shape, NO_REASON, np.int8)
    for reason in Reason.of_steps(*steps):
        dropped = left & reason.drops(left, *given)
        numbers[dropped], left = reason.number, left & ~dropped
    return numbers


def funnel_columns(reasons: Iterable[RejectionReason], counts: Mapping[str, str]) -> dict[str, str]:
    """Describe what columns of a funnel count, without the numbers of our decisions."""
    sentences = {str(reason): re.sub(r" \(D\d+\)$", "", reason.sentence) for reason in reasons}
    return {**sentences, **counts}


# --- The funnel: counts of suggestions by what became of them ---

SUGGESTION_REASONS: Final = Reason.of_steps("candidates", "one text", "all texts", "context")
OCCASIONAL_REASONS: Final = Reason.of_steps("asking", "signals")
"""Reasons that only some runs have; their columns appear only where they reject something."""
NOT_IN_VOCABULARY: Final = "not_one_token"
"""Column that counts occurrences without suggestions: the word is not one token there (D3)."""

FUNNEL_COLUMNS: Final = funnel_columns(
    Reason.of_steps("candidates", "asking", "one text", "all texts", "context", "signals"),
    {
        "suggestions": "all suggestions of the model, for each occurrence of each shared word",
        KEPT: "part of a replacement",
        "replacements": "distinct replacements of a seed's words, validated by the model in some "
        "text",
        NOT_IN_VOCABULARY: "occurrences without suggestions, as the model has no one token for the "
        "word",
    },
)
"""Column of a funnel of suggestions → what it counts."""

WordKey = tuple[str, str, str]
"""Seed id, word class, word."""

Funnel = Counter[tuple[str, str, str]]
"""Counts by MLM, word class and column: suggestions = Σ reasons + kept.

A suggestion is counted once for each shared word and occurrence it was made for. A replacement has
one kept suggestion at each occurrence, in either sentence."""


def funnel_rows(funnel: Funnel) -> list[dict[str, Any]]:
    """Return a record per MLM and class, sorted; occasional reasons only where they reject."""
    used = [r for r in OCCASIONAL_REASONS if any(n for key, n in funnel.items() if key[2] == r)]
    rows = []
    for mlm, word_class in sorted({key[:2] for key in funnel}):
        counts = {column: funnel[mlm, word_class, column] for column in FUNNEL_COLUMNS}
        ended = {str(reason): counts[reason] for reason in (*SUGGESTION_REASONS, *used, KEPT)}
        others = {column: counts[column] for column in ("replacements", NOT_IN_VOCABULARY)}
        named = {"mlm": mlm, "word_class": word_class, "suggestions": sum(ended.values())}
        rows.append({**named, **ended, **others})
    return rows


def most_frequent_reasons(funnel: Funnel) -> str:
    """Name the most frequent reasons to drop suggestions, in one line.

    >>> counts = {("m", "noun", "less_probable"): 3237, ("m", "noun", "few_mlms"): 12}
    >>> most_frequent_reasons(Counter(counts))
    'not more probable than the original (3,237), validated by fewer masked LMs than min_mlms (12)'
    """
    totals, by_name = Counter[Reason](), {str(reason): reason for reason in Reason}
    for (_, _, column), count in funnel.items():
        if column in by_name:
            totals[by_name[column]] += count
    return ", ".join(
        f"{reason.sentence.partition(' (')[0]} ({total:,})"
        for reason, total in totals.most_common(3)
        if total
    )


def count_rejections(
    replacements: pa.Table,
    reasons: NDArray[np.int8],
    problems: TaggedProblems,
    problem_format: ProblemFormat,
    funnel: Funnel,
) -> None:
    """Move counts from kept to the reasons for which signals reject replacements."""
    is_rejected = reasons != NO_REASON
    occurrences = {
        (seed.seed_id, word.word_class, word.word): list(map(len, word.positions))
        for seed, word in problems.pairs()
    }
    rejected = replacements.filter(pa.array(is_rejected)).to_pylist()
    for row, number in zip(rejected, reasons[is_rejected].tolist(), strict=True):
        of_texts = occurrences[row["seed_id"], row["word_class"], row["word"]]
        validated = [row[name] for name in problem_format.mlms]
        for mlm in sorted(set().union(*validated)):
            count = sum(n for n, mlms in zip(of_texts, validated, strict=True) if mlm in mlms)
            for column, n in ((REASONS[number], count), (KEPT, -count), ("replacements", -1)):
                funnel[mlm, row["word_class"], column] += n


def count_words(replacements: pa.Table) -> dict[WordKey, int]:
    """Count the replacements of each word that has any."""
    names = ["seed_id", "word_class", "word"]
    counted = replacements.group_by(names).aggregate([([], "count_all")])
    *keys, counts = (counted[name].to_pylist() for name in (*names, "count_all"))
    return dict(zip(zip(*keys, strict=True), counts, strict=True))


def excluded_words(
    problems: TaggedProblems,
    replacements: pa.Table,
    rejected: Mapping[WordKey, tuple[Reason, int | None]],
) -> Iterator[Exclusion]:
    """Yield problems without a shared word, and shared words without a replacement."""
    replaced = count_words(replacements)
    for seed in problems.seeds:
        of_seed = {"seed_id": seed.seed_id, "source": seed.source}
        if not problems.words[seed.seed_id]:
            yield {**of_seed, "reason": Reason.NO_SHARED_WORD}
        for word in problems.words[seed.seed_id]:
            key = (seed.seed_id, word.word_class, word.word)
            if key not in replaced:
                reason, count = rejected.get(key, (Reason.NO_REPLACEMENT, 0))
                named = {"word": word.word, "word_class": word.word_class}
                yield {**of_seed, **named, "reason": reason, "replacements": count}


def unlabelled(seed_ids: Iterable[str], source: str) -> Iterator[Exclusion]:
    """Yield rows of the source without a gold label (D15)."""
    for seed_id in seed_ids:
        yield {"seed_id": seed_id, "source": source, "reason": Reason.UNLABELLED}
