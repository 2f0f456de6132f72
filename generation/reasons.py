"""Rejection reasons: why a suggestion, a word or a problem is dropped."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, Self

KEPT: Final = "kept"
"""Name, among the reasons, of the count of suggestions or other things not rejected."""

_DECISION: Final = re.compile(r" \(D\d+\)$")
"""Pattern of a decision's number at the end of a sentence."""

NO_REASON: Final = -1
"""Number that stands for no reason, in columns of `RejectionReason.number`."""


class RejectionReason(StrEnum):
    """A reason to drop something, equal to its name: `MEMBER = "name", "step", "sentence"`."""

    step: str
    """The step that gives the reason."""
    sentence: str
    """The reason in words, true of everything dropped for it."""
    number: int
    """Place in the list, from 0, for columns of reasons."""

    def __new__(cls, name: str, step: str, sentence: str) -> Self:
        """Make a member from its row."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.step, member.sentence, member.number = step, sentence, len(cls.__members__)
        return member

    @classmethod
    def of_steps(cls, *steps: str) -> tuple[Self, ...]:
        """Return the reasons that some steps give, in order."""
        return tuple(reason for reason in cls if reason.step in steps)


class Reason(RejectionReason):
    """Reasons why suggestions, words and problems yield no variants, in the order of steps."""

    # One row each, so that the list reads as a table.
    # fmt: off
    UNLABELLED = "unlabelled", "problems", "the problem has no gold label (D15)"
    NO_SHARED_WORD = "no_shared_word", "problems", "the problem has no shared word (D1)"

    NOT_ALPHABETIC = "not_alphabetic", "candidates", "not letters only (D4)"
    SUBWORD = "subword", "candidates", "not a whole word where it stands (D4)"
    LESS_PROBABLE = "less_probable", "candidates", "not more probable than the original (D5)"
    DUPLICATE = ("duplicate", "candidates",
        "differs from a more probable suggestion in case alone (D6)")

    OUT_OF_REACH = ("out_of_reach", "asking",
        "not asked about in every text, as too few replacements can come of it")

    IN_PROBLEM = "in_problem", "set algebra", "is a word of the problem already (D7)"
    OTHER_OCCURRENCE = ("other_occurrence", "set algebra",
        "the same MLM did not validate it at the word's other occurrence (D2)")
    OTHER_SENTENCE = ("other_sentence", "set algebra",
        "no MLM validated it in the other sentence (eq. 1)")

    TOKENIZATION = "tokenization", "context", "changes the tokenisation (D8)"
    WORD_CLASS = "other_class", "context", "has another word class in context (D8)"

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

    LOW_LOG_ODDS = "low_log_odds", "signals", "log-odds below min_log_odds"
    FEW_MLMS = "few_mlms", "signals", "validated by fewer masked LMs than min_mlms"
    RARE = "rare_word", "signals", "less frequent in English than min_zipf_frequency"
    UNLIKELY = ("less_likely_sentence", "signals",
        "changes a sentence's pseudo-log-likelihood by less than min_pll_change")
    OTHER_NUMBER = "other_number", "signals", "changes a noun's number (same_number)"
    OTHER_TENSE = "other_tense", "signals", "changes a verb's form (same_tense)"
    OTHER_ARTICLE = ("other_article", "signals",
        'wants the other one of "a" and "an" (fitting_article)')

    UNATTESTED_FORM = ("unattested_form", "signals",
        "is not the form that its place asks for (attested_form)")
    DISAGREES = ("other_agreement", "signals",
        "does not agree with its determiner or verb (agreeing_number)")
    OTHER_DETERMINER = ("other_determiner", "signals",
        "does not go with the determiner before it (fitting_determiner)")
    IN_COMPOUND = ("in_compound", "signals",
        "replaces a part of a compound or particle verb (no_compounds)")
    LOW_VALENCY = ("other_valency", "signals",
        "is a verb that is seldom followed by what follows here (min_valency)")
    LOW_QUALITY = "low_quality", "signals", "quality below min_quality"

    NO_REPLACEMENT = "no_replacement", "words", "the word has no replacement"
    REJECTED_BY_SIGNALS = ("rejected_by_signals", "words",
        "all replacements of the word are below the limits on signals")

    TOO_FEW = ("too_few_replacements", "sampling",
        "the seed, class or word has fewer replacements than min_replacements (D9)")
    # fmt: on


REASONS: Final = tuple(Reason)
"""All reasons, by number."""


def funnel_columns(reasons: Iterable[RejectionReason], counts: Mapping[str, str]) -> dict[str, str]:
    """Describe what columns of a funnel count, without the numbers of our decisions."""
    return {**{str(each): _DECISION.sub("", each.sentence) for each in reasons}, **counts}


FUNNEL_COLUMNS: Final = funnel_columns(
    Reason.of_steps("candidates", "asking", "set algebra", "context", "signals"),
    {
        "suggestions": "all suggestions of the model, for each occurrence of each shared word",
        KEPT: "part of a replacement",
        "replacements": "distinct replacements of a seed's words, validated by the model in some "
        "text",
        "not_one_token": "occurrences without suggestions, as the model has no one token for the "
        "word",
    },
)
"""Column of a funnel of suggestions → what it counts."""
