"""Automatic signals of how good a replacement is, and filters by them.

Whatever a program can tell of a replacement beyond the definition: how many masked LMs agree,
how much likelier the word and its sentences are, how frequent it is, and whether it agrees
with its surroundings as the original did. None of them decides anything unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from generation.config import Config
from generation.signals.articles import article_position, fitting_article

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from generation.problems.substitutions import Place

NUMBERS: Final = {"NN": 0, "NNS": 1}
"""Penn tag of a noun → its number."""

VERB_FORMS: Final = {"VB": 0, "VBP": 0, "VBZ": 1, "VBD": 2, "VBN": 3, "VBG": 4}
"""Penn tag of a verb → its form: plain, -s, past, participle, -ing.

The infinitive and the present without -s are one form, as they are spelt alike: a tagger that
takes one for the other says nothing about the word."""

UNKNOWN, NO, YES = -1, 0, 1
"""Answers about an occurrence; about several, the highest counts."""

LOW_LOG_ODDS: Final = "low_log_odds"
FEW_MLMS: Final = "few_mlms"
RARE: Final = "rare_word"
UNLIKELY: Final = "less_likely_sentence"
OTHER_NUMBER: Final = "other_number"
OTHER_TENSE: Final = "other_tense"
OTHER_ARTICLE: Final = "other_article"

SIGNAL_REASONS: Final = {
    LOW_LOG_ODDS: "log-odds below min_log_odds",
    FEW_MLMS: "validated by fewer masked LMs than min_mlms",
    RARE: "less frequent in English than min_zipf_frequency",
    UNLIKELY: "changes a sentence's pseudo-log-likelihood by less than min_pll_change",
    OTHER_NUMBER: "changes a noun's number (same_number)",
    OTHER_TENSE: "changes a verb's form (same_tense)",
    OTHER_ARTICLE: 'wants the other one of "a" and "an" (fitting_article)',
}
"""Why a replacement is rejected by its signals, in the order in which the reasons are tried."""

AGREEMENT: Final = ("number_changed", "tense_changed", "article_fits")
"""Columns that say whether a replacement agrees with its surroundings as the original did."""

PLL_CHANGE: Final = "_pll_change"
"""What the columns of pseudo-log-likelihoods end in."""


def forms_changed(
    before: Sequence[str],
    labels: Sequence[str],
    after: NDArray[np.int64],
    occurrence: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> NDArray[np.int64]:
    """[n, 2] Whether the number of a noun, the form of a verb changes at any occurrence.

    Args:
        before: Penn tags of all occurrences of originals.
        labels: Penn tags by number.
        after: [m] Numbers of the tags of replacements in context.
        occurrence: [m] At which occurrences these are.
        starts: [n] Where each replacement's occurrences begin.

    Returns:
        `YES`, `NO`, or `UNKNOWN` where no original is a noun, or a verb.

    >>> forms_changed(
    ...     ["NN", "VBZ"], ["NNS", "VBZ"], np.array([0, 1]), np.array([0, 1]), np.array([0, 1])
    ... ).tolist()
    [[1, -1], [-1, 0]]
    """
    columns = []
    for kinds in (NUMBERS, VERB_FORMS):
        old, new = (
            np.array([kinds.get(tag, UNKNOWN) for tag in tags], np.int64)
            for tags in (before, labels)
        )
        changed = np.where(old[occurrence] < 0, UNKNOWN, old[occurrence] != new[after])
        columns.append(np.maximum.reduceat(changed, starts))
    return np.stack(columns, axis=1)


def articles_of(places: Sequence[Place]) -> list[frozenset[str]]:
    """For each place the articles, "a" or "an", that stand right before the word there."""
    return [
        frozenset(
            place.sentence.tokens[article].text.lower()
            for position in place.positions
            if (article := article_position(place.sentence, position)) is not None
        )
        for place in places
    ]


def answers_about_articles(
    articles: Sequence[frozenset[str]], places: NDArray[np.int64], texts: Sequence[str]
) -> NDArray[np.int64]:
    """[n] Whether every article before a replacement is the one that it wants.

    Args:
        articles: Of `articles_of`.
        places: [n, texts] Numbers of the places where each replacement stands, −1 for none.
        texts: [n] The replacements.

    Returns:
        `YES`, `NO`, or `UNKNOWN` where there is no article.
    """
    has_article = np.array([bool(found) for found in articles], np.bool_)
    with_article = (places >= 0) & has_article[places]
    fits = np.full(len(places), UNKNOWN)
    for row in np.flatnonzero(with_article.any(1)).tolist():
        found = frozenset[str]().union(*(articles[n] for n in places[row][with_article[row]]))
        fits[row] = YES if found == {fitting_article(texts[row])} else NO
    return fits


def answers_of(values: NDArray[np.int64]) -> pa.BooleanArray:
    """`YES`, `NO` and `UNKNOWN` as true, false and null."""
    return pa.array(values == YES, mask=values == UNKNOWN)


def zipf_frequencies(texts: pa.ChunkedArray | pa.Array) -> pa.Array:
    """log10 of each word's occurrences in a billion words of English; 0 for unknown words."""
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    encoded = column.dictionary_encode()
    values = [zipf_frequency(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, pa.float32()).take(encoded.indices)


@lru_cache(maxsize=200_000)
def zipf_frequency(text: str) -> float:
    """The same of one replacement; of several words it is that of the rarest."""
    from wordfreq import zipf_frequency

    return min(zipf_frequency(word, "en") for word in text.split())


def rejections(table: pa.Table, config: Config) -> NDArray[np.int64]:
    """[n] Why a row is rejected: place in `SIGNAL_REASONS` of the first reason, −1 if none is.

    What is not known of a row does not reject it.

    Args:
        table: Replacements with their signals.
        config: Its limits.
    """
    pll_changes = [name for name in table.column_names if name.endswith(PLL_CHANGE)]
    tests: Mapping[str, Callable[[], NDArray[np.bool_]]] = {
        LOW_LOG_ODDS: lambda: _below(table, ["log_odds"], config.min_log_odds),
        FEW_MLMS: lambda: _below(table, ["mlm_count"], config.min_mlms),
        RARE: lambda: _below(table, ["zipf_frequency"], config.min_zipf_frequency),
        UNLIKELY: lambda: _below(table, pll_changes, config.min_pll_change),
        OTHER_NUMBER: lambda: _is(table, "number_changed", config.same_number),
        OTHER_TENSE: lambda: _is(table, "tense_changed", config.same_tense),
        OTHER_ARTICLE: lambda: _is(table, "article_fits", config.fitting_article, not_=True),
    }
    reasons = np.full(len(table), -1)
    for number, reason in enumerate(SIGNAL_REASONS):
        reasons[(reasons < 0) & tests[reason]()] = number
    return reasons


def _below(table: pa.Table, names: Sequence[str], least: float | None) -> NDArray[np.bool_]:
    """Rows in which one of some numbers is too small."""
    found = np.zeros(len(table), np.bool_)
    for name in names if least is not None else ():
        # As the column has it: 3.1 as float32 is less than 3.1 as float64.
        low = pc.less(table[name], pa.scalar(least, table[name].type))
        found |= pc.fill_null(low, False).to_numpy()
    return found


def _is(table: pa.Table, name: str, wanted: bool, *, not_: bool = False) -> NDArray[np.bool_]:
    """Rows in which something is so, or with `not_` is not so."""
    if not wanted:
        return np.zeros(len(table), np.bool_)
    column = pc.invert(table[name]) if not_ else table[name]
    found: NDArray[np.bool_] = pc.fill_null(column, False).to_numpy()
    return found
