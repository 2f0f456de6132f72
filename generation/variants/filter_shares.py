"""Each filter by itself: suggestions that have the word class, and that are more probable.

Table 5 of the paper. A build drops each suggestion for the first reason that applies, and tags
only what the cheap filters leave. Here all suggestions that are words are tagged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from generation.problems.substitutions import Place, Substitutions
from generation.ragged import pairs, split
from generation.reasons import NO_REASON, Reason
from generation.records import MaskedQuery, Scores
from generation.suggestions.vocabulary import Vocabulary
from generation.variants.candidates import each_filter
from generation.variants.context import judge_in_context
from generation.variants.words import CASINGS, Lexicon, casing_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from generation.problems.tagging import Tagger

PASSED: Final = ("suggestions", "whole_words", "same_class", "more_probable", "both")
"""Columns of counts: suggestions, those that are whole words (D4), that keep the word class in
context (D8), that are more probable than the original (D5), and the last two together."""

_AT_ONCE: Final = 256
"""Questions that are worked on together: their suggestions are held in memory."""


def count_passed(
    queries: Sequence[MaskedQuery],
    answers: Mapping[str, tuple[Scores, Vocabulary]],
    tagger: Tagger,
    *,
    tag_match: str,
) -> NDArray[np.int32]:
    """Count the suggestions that each filter lets pass, whatever the others say.

    Args:
        queries: n questions; those about the same sentence side by side.
        answers: By masked LM the scores of its suggestions, and what their numbers read as.
        tagger: Tags sentences, and words put in them.
        tag_match: As in the settings.

    Returns:
        [MLMs, n, len(PASSED)]; zeros where the original is not in the vocabulary (D3).
    """
    lexicon = Lexicon.of({mlm: vocabulary for mlm, (_, vocabulary) in answers.items()})
    counts = np.zeros((len(answers), len(queries), len(PASSED)), np.int32)
    for start in range(0, len(queries), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        of_part = {mlm: (scores.take(part), known) for mlm, (scores, known) in answers.items()}
        counts[:, part] = _count(queries[part], of_part, lexicon, tagger, tag_match)
    return counts


def _count(
    queries: Sequence[MaskedQuery],
    answers: Mapping[str, tuple[Scores, Vocabulary]],
    lexicon: Lexicon,
    tagger: Tagger,
    tag_match: str,
) -> NDArray[np.int32]:
    places, place, casing = _places(queries, tagger)
    rows, keys, probable = [], [], []
    counts = np.zeros((len(answers), len(queries), len(PASSED)), np.int32)
    for n, (mlm, (scores, vocabulary)) in enumerate(answers.items()):
        alone = each_filter(scores, vocabulary)
        words = alone[Reason.NOT_ALPHABETIC] & alone[Reason.SUBWORD]
        row, column = np.nonzero(words)
        word = lexicon.of_token[mlm][scores.tokens[row, column]]
        rows.append(row)
        keys.append(pairs(place[row], lexicon.form(casing[row], word)))
        probable.append(alone[Reason.LESS_PROBABLE][row, column])
        counts[n, :, 0] = scores.answered * (scores.tokens >= 0).sum(1)
        counts[n, :, 1] = words.sum(1)
        counts[n, :, 3] = alone[Reason.LESS_PROBABLE].sum(1)
    distinct, of_key = np.unique(np.concatenate(keys), return_inverse=True)
    keeps_class = _keep_class(distinct, places, lexicon, tagger, tag_match)[of_key]
    ends = np.cumsum([len(row) for row in rows])[:-1]
    for n, same in enumerate(np.split(keeps_class, ends)):
        counts[n, :, 2] = np.bincount(rows[n][same], minlength=len(queries))
        counts[n, :, 4] = np.bincount(rows[n][same & probable[n]], minlength=len(queries))
    return counts


def _places(
    queries: Sequence[MaskedQuery], tagger: Tagger
) -> tuple[list[Place], NDArray[np.int64], NDArray[np.int64]]:
    """Find where words are put: all occurrences of the word asked about (D2).

    Returns:
        The places, and [n] the number of each question's place and of its casing.
    """
    texts = list(dict.fromkeys(query.sentence for query in queries))
    sentences = dict(zip(texts, tagger.tag(texts), strict=True))
    numbers: dict[tuple[str, str], int] = {}
    places: list[Place] = []
    for query in queries:
        word = query.sentence[slice(*query.span)]
        if (query.sentence, word) not in numbers:
            numbers[query.sentence, word] = len(places)
            tokens = sentences[query.sentence].tokens
            positions = tuple(i for i, token in enumerate(tokens) if token.text == word)
            places.append(Place(sentences[query.sentence], positions))
    words = [(query.sentence, query.sentence[slice(*query.span)]) for query in queries]
    casings = list(CASINGS)
    return (
        places,
        np.array([numbers[key] for key in words], np.int64),
        np.array([casings.index(casing_of(word)) for _, word in words], np.int64),
    )


def _keep_class(
    keys: NDArray[np.int64],
    places: list[Place],
    lexicon: Lexicon,
    tagger: Tagger,
    tag_match: str,
) -> NDArray[np.bool_]:
    """Tell, [n], whether words keep tokenisation and class where they are put: keys (place, form).

    All occurrences are replaced, as in a variant, and each has to keep its class.
    """
    if not len(keys):
        return np.zeros(0, np.bool_)
    place, form = split(keys)
    substitutions = Substitutions(places, lexicon.forms, place, form).compact()
    reasons, _ = judge_in_context(substitutions, tagger, tag_match=tag_match)
    keeps: NDArray[np.bool_] = reasons == NO_REASON
    return keeps
