"""Perturbations: all edits of a row of replacements in the texts of its problem.

*Further edits* change other forms of a replaced word, and articles before edited words. A family is
the other forms of a shared word in its problem, by lemma: "sleeps" and "sleeping", both verbs. A
replacement with further edits has to pass D8 again, with all edits in place. In memory, a column
may hold a row's further edits; files have pairs of words (`in_full`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from generation.config import Config
from generation.problems.substitutions import Place, Substitutions
from generation.problems.tagging import TaggedProblems, Tagger, coarse_class
from generation.records import (
    REPLACEMENT_KEY,
    Sentence,
    SharedWord,
    TextEdits,
    Token,
    sorted_replacements,
    with_columns,
)
from generation.variants import grammar
from generation.variants.equation import match_case
from generation.variants.reasons import KEPT, Reason, WordKey

WORD, FAMILY, ARTICLE = range(3)
"""Parts of a perturbation: the shared word, its other forms, and articles before edited words."""

PLL_CHANGE: Final = "_pll_change"
"""Ending of the names of columns with changes of pseudo-log-likelihood."""

FURTHER_EDITS: Final = "further_edits"
"""Column of a row's edits besides the edits of its word; it is not written to files."""

_EDITS: Final = pa.list_(
    pa.struct(
        [("part", pa.int8()), ("text", pa.int16()), ("position", pa.int32()), ("word", pa.string())]
    )
)

Key = tuple[str, str, str, str]
"""Seed, class, word, replacement."""


class Edit(NamedTuple):
    """Edit of one token, by text and token number; `part` is `WORD`, `FAMILY` or `ARTICLE`."""

    part: int
    text: int
    position: int
    word: str


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A problem, and all edits to it."""

    sentences: Sequence[Sentence]
    edits: tuple[Edit, ...]
    """The edits in order, each token once."""

    def with_edits(self, more: Iterable[Edit]) -> Perturbation:
        """Add edits of other tokens."""
        return Perturbation(self.sentences, tuple(sorted((*self.edits, *more))))

    def token(self, edit: Edit) -> Token:
        """Return the original token of an edit."""
        return self.sentences[edit.text].tokens[edit.position]

    @property
    def is_more(self) -> bool:
        """Whether more than one word changes."""
        return len(self.pairs()) > 1

    def pairs(self) -> list[tuple[str, str]]:
        """Return the distinct (original, replacement) pairs: the word first, articles last."""
        return list(dict.fromkeys((self.token(edit).text, edit.word) for edit in self.edits))

    def is_ambiguous(self) -> bool:
        """Tell whether one replacement stands for two originals, so that it cannot be undone."""
        pairs = self.pairs()
        return len({new for _, new in pairs}) < len(pairs)

    def text_edits(self) -> list[TextEdits]:
        """Return for each text the spans that change, in order, and their new words."""
        by_text: list[TextEdits] = []
        for text in range(len(self.sentences)):
            own = sorted((self.token(e).span, e.word) for e in self.edits if e.text == text)
            by_text.append(([span for span, _ in own], [word for _, word in own]))
        return by_text


def keys_of(rows: pa.Table) -> list[Key]:
    """Return [n] the keys that identify rows."""
    return list(zip(*(rows[name].to_pylist() for name in REPLACEMENT_KEY), strict=True))


def with_further_edits(rows: pa.Table, edits: Sequence[Sequence[Edit]]) -> pa.Table:
    """Add the column of further edits."""
    column = pa.array([[edit._asdict() for edit in of_row] for of_row in edits], _EDITS)
    return rows.append_column(FURTHER_EDITS, column)


def perturbations_of(rows: pa.Table, problems: TaggedProblems) -> list[Perturbation]:
    """Return [n] the perturbations of replacements or variants that are not yet `in_full`."""
    further: list[list[Edit]] = [[]] * len(rows)
    if FURTHER_EDITS in rows.column_names:
        further = [[Edit(**edit) for edit in edits] for edits in rows[FURTHER_EDITS].to_pylist()]
    words, perturbations = words_of(problems, rows), []
    for (seed_id, word_class, word, text), more in zip(keys_of(rows), further, strict=True):
        shared, sentences = words[seed_id, word_class, word]
        edits = [
            Edit(WORD, number, position, text)
            for number, positions in enumerate(shared.positions)
            for position in positions
        ]
        perturbations.append(Perturbation(sentences, tuple(sorted([*more, *edits]))))
    return perturbations


def words_of(
    problems: TaggedProblems, rows: pa.Table
) -> dict[tuple[str, str, str], tuple[SharedWord, list[Sentence]]]:
    """Map (seed id, class, word), for all problems of some rows, to the word and its texts."""
    wanted = set(rows["seed_id"].unique().to_pylist())
    return {
        (seed.seed_id, word.word_class, word.word): (word, problems.of(seed))
        for seed, word in problems.pairs()
        if seed.seed_id in wanted
    }


def in_full(rows: pa.Table, problems: TaggedProblems) -> pa.Table:
    """Return rows as files have them: with all words that they edit, not the shared word alone.

    The i-th of several `word`s becomes the i-th `replacement`; changes of log-likelihood are null.
    """
    if FURTHER_EDITS not in rows.column_names:
        return rows
    pairs = [perturbation.pairs() for perturbation in perturbations_of(rows, problems)]
    rows = rows.drop_columns([FURTHER_EDITS])
    one_word = pa.array([len(of_row) == 1 for of_row in pairs], pa.bool_())
    new: dict[str, Any] = {
        name: [" ".join(pair[n] for pair in of_row) for of_row in pairs]
        for n, name in enumerate(("word", "replacement"))
    }
    for name in rows.column_names:
        if name.endswith(PLL_CHANGE):
            new[name] = pc.if_else(one_word, rows[name], None)
    return with_columns(rows, new)


def tags_after(
    perturbations: Sequence[Perturbation], tagger: Tagger
) -> list[dict[tuple[int, int], str | None]]:
    """Return [n] Penn tags by edited (text, token), all edits in place; None if tokens change."""
    places: dict[tuple[str, tuple[int, ...]], tuple[int, Place]] = {}
    forms: dict[tuple[str, ...], int] = {}
    of_texts, where, what = [], [], []
    for owner, perturbation in enumerate(perturbations):
        for text, sentence in enumerate(perturbation.sentences):
            edits = sorted((e.position, e.word) for e in perturbation.edits if e.text == text)
            if edits:
                positions, words = zip(*edits, strict=True)
                place = len(places), Place(sentence, positions, several=True)
                of_texts.append((owner, text, positions))
                where.append(places.setdefault((sentence.text, positions), place)[0])
                what.append(forms.setdefault(words, len(forms)))
    distinct = [place for _, place in places.values()]
    numbers = (np.array(column, np.int64) for column in (where, what))
    tags = iter(tagger.tags_after(Substitutions(distinct, list(forms), *numbers)).tolist())
    of_tokens: list[dict[tuple[int, int], str | None]] = [{} for _ in perturbations]
    for owner, text, positions in of_texts:
        for position, tag in zip(positions, tags, strict=False):
            of_tokens[owner][text, position] = None if tag < 0 else tagger.labels[tag]
    return of_tokens


def reject_in_context(
    perturbations: Sequence[Perturbation], tagger: Tagger, *, tag_match: str
) -> list[Reason | None]:
    """Return [n] the first reason to reject perturbations with all edits in place (D8), or None."""
    compared = coarse_class if tag_match == "coarse" else str
    reasons: list[Reason | None] = []
    for perturbation, tags in zip(perturbations, tags_after(perturbations, tagger), strict=True):
        reason = Reason.TOKENIZATION if None in tags.values() else None
        for (text, position), tag in tags.items() if not reason else ():
            if compared(perturbation.sentences[text].tokens[position].tag) != compared(tag or ""):
                reason = Reason.WORD_CLASS
        reasons.append(reason)
    return reasons


# --- Further edits ---

Fate = tuple[str, str]
"""Word class, and rejection reason or `KEPT`, of a replacement with further edits."""


def adapt(
    problems: TaggedProblems, rows: pa.Table, tagger: Tagger, config: Config
) -> tuple[pa.Table, dict[WordKey, tuple[Reason, int]], Counter[Fate]]:
    """Add further edits to replacements, and drop those that cannot have them.

    Returns the rows left; words left out for their families, with reason and number; and fates.
    """
    reasons: list[Reason | None] = [None] * len(rows)
    if not config.changes_more:
        return rows, {}, Counter()
    whole, keys = perturbations_of(rows, problems), keys_of(rows)
    if config.families != "ignore":
        words = words_of(problems, rows)
        families = {key: family_of(*words[key]) for key in dict.fromkeys(key[:3] for key in keys)}
        having = [n for n, key in enumerate(keys) if families[key[:3]]]
        if config.families == "reject":
            for n in having:
                reasons[n] = Reason.FAMILY_REJECTED
            having = []
        tags = tags_after([whole[n] for n in having], tagger)
        for n, of_row in zip(having, tags, strict=True):
            word_key, text = keys[n][:3], keys[n][3]
            forms = _inflected(whole[n], words[word_key][0], text, families[word_key], of_row)
            if isinstance(forms, Reason):
                reasons[n] = forms
            else:
                whole[n] = whole[n].with_edits(forms)
    if config.repair_articles:
        whole = [one.with_edits(_articles(one)) for one in whole]
    if config.class_filter:
        more = [n for n, one in enumerate(whole) if one.is_more and not reasons[n]]
        judged = reject_in_context([whole[n] for n in more], tagger, tag_match=config.tag_match)
        for n, reason in zip(more, judged, strict=True):
            reasons[n] = reason
    edits: list[list[Edit]] = [[] for _ in range(len(rows))]
    fates, seen, word_classes = Counter[Fate](), set[object](), rows["word_class"].to_pylist()
    for n, (key, one) in enumerate(zip(keys, whole, strict=True)):
        if not reasons[n] and one.is_ambiguous():
            reasons[n] = Reason.AMBIGUOUS
        elif not reasons[n] and one.is_more:
            # Two shared words of one family may make the same edits.
            same = *key[:2], frozenset((e.text, e.position, e.word) for e in one.edits)
            reasons[n] = Reason.SAME_TEXT if same in seen else None
            seen.add(same)
        if not reasons[n]:
            edits[n] = [edit for edit in one.edits if edit.part != WORD]
        if reasons[n] or edits[n]:
            fates[word_classes[n], reasons[n] or KEPT] += 1
    rows, of_words = with_further_edits(rows, edits), Reason.of_steps("families")
    if any(reasons):
        rows = rows.filter(pa.array([reason is None for reason in reasons], pa.bool_()))
    # All replacements of a word have the same reason.
    counts = Counter(
        (key[:3], r) for key, r in zip(keys, reasons, strict=True) if r and r in of_words
    )
    return rows, {key: (reason, count) for (key, reason), count in counts.items()}, fates


def scramble(word: str, key: str) -> str:
    """Shuffle a word's letters by the key (D13); the outcome differs from the word if it can.

    >>> sorted(scramble("poodle", "x")) == sorted("poodle")
    True
    """
    if len(set(word)) < 2:
        return word
    rng = random.Random(f"{key}\n{word}")
    while True:
        letters = sorted(((rng.random(), letter) for letter in word), key=lambda pair: pair[0])
        shuffled = "".join(letter for _, letter in letters)
        if shuffled != word:
            return shuffled


def shuffle_letters(
    rows: pa.Table, problems: TaggedProblems, rng_seed: int
) -> tuple[pa.Table, Counter[str]]:
    """Shuffle letters of new words (D13); return sorted rows, and counts of ambiguous rows."""
    first: dict[tuple[str, str, str, str], tuple[int, list[Edit]]] = {}
    ambiguous: Counter[str] = Counter()
    both = zip(keys_of(rows), perturbations_of(rows, problems), strict=True)
    for row, ((seed_id, word_class, word, text), whole) in enumerate(both):
        key = f"{rng_seed}\n{seed_id}"
        edits = [
            edit
            if edit.part == ARTICLE
            else edit._replace(
                word=match_case(scramble(edit.word.lower(), key), whole.token(edit).text)
            )
            for edit in whole.edits
        ]
        if Perturbation(whole.sentences, tuple(sorted(edits))).is_ambiguous():
            ambiguous[word_class] += 1
            continue
        shuffled = match_case(scramble(text.lower(), key), word)
        further = [edit for edit in sorted(edits) if edit.part != WORD]
        first.setdefault((seed_id, word_class, word, shuffled), (row, further))
    taken = rows.take(pa.array([row for row, _ in first.values()], pa.int64()))
    taken = with_columns(taken, {"replacement": [text for *_, text in first]})
    if FURTHER_EDITS in rows.column_names:
        taken = with_further_edits(
            taken.drop_columns([FURTHER_EDITS]), [edits for _, edits in first.values()]
        )
    return sorted_replacements(taken), ambiguous


def family_of(word: SharedWord, sentences: Sequence[Sentence]) -> list[tuple[int, int]]:
    """Find (text, token) numbers of a word's other forms, of its class and with a common lemma."""
    tokens = [
        (text, position, token)
        for text, sentence in enumerate(sentences)
        for position, token in enumerate(sentence.tokens)
        if coarse_class(token.tag) == word.word_class and token.text.isalpha()
    ]
    own = {
        lemma
        for _, _, token in tokens
        if token.text == word.word
        for lemma in grammar.lemmas(token.text.lower(), token.tag)
    }
    return [
        (text, position)
        for text, position, token in tokens
        if token.text != word.word
        and not own.isdisjoint(grammar.lemmas(token.text.lower(), token.tag))
    ]


def _inflected(
    perturbation: Perturbation,
    word: SharedWord,
    text: str,
    family: Sequence[tuple[int, int]],
    tags: Mapping[tuple[int, int], str | None],
) -> list[Edit] | Reason:
    """Return edits of a word's other forms to those of its replacement, or why there are none."""
    sentences = perturbation.sentences
    for number, n in [*((edit.text, edit.position) for edit in perturbation.edits), *family]:
        # "Air" for "leaf" suits "leaf blowers", not "leaves".
        here, *after = sentences[number].tokens[n : n + 2]
        if here.tag in grammar.NOUN_TAGS and any(token.tag in grammar.NOUN_TAGS for token in after):
            return Reason.FAMILY_IN_COMPOUND
    for number, n in family:
        token = sentences[number].tokens[n]
        of_token = grammar.lemmas(token.text.lower(), token.tag)
        if coarse_class(token.tag) == "verb" and not {"be", "have", "do"}.isdisjoint(of_token):
            return Reason.FAMILY_AUXILIARY
    in_problem = {token.text.lower() for sentence in sentences for token in sentence.tokens}
    # The tag where the original has the word's class; elsewhere it may have another (D2).
    tag = next(
        tag
        for (number, position), tag in tags.items()
        if coarse_class(sentences[number].tokens[position].tag) == word.word_class
    )
    more = []
    for number, position in family:
        token = sentences[number].tokens[position]
        form = tag and grammar.inflected(text.lower(), tag, token.tag)
        if not form or not form.isalpha():
            return Reason.NO_INFLECTION
        if form in in_problem:
            return Reason.IN_PROBLEM
        more.append(Edit(FAMILY, number, position, match_case(form, token.text)))
    return more


def _articles(perturbation: Perturbation) -> Iterator[Edit]:
    """Yield edits of articles that do not fit the words after them; not of edited articles."""
    edited = {(edit.text, edit.position) for edit in perturbation.edits}
    for edit in perturbation.edits:
        sentence = perturbation.sentences[edit.text]
        position = grammar.article_position(sentence, edit.position)
        if position is not None and (edit.text, position) not in edited:
            before = sentence.tokens[position].text
            article = match_case(grammar.fitting_article(edit.word), before)
            if article.lower() != before.lower():
                yield Edit(ARTICLE, edit.text, position, article)
