"""Further edits: changes to a replaced word's family, and to articles before edited words.

A family is the other forms of a shared word in its problem, by lemma: "sleeps" and "sleeping",
both verbs. A replacement with further edits has to pass D8 again, with all edits in place.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from generation.config import Config
from generation.problems.shared_words import TaggedProblems, coarse_class
from generation.problems.tagging import Tagger
from generation.records import Sentence, SharedWord, sorted_replacements, with_columns
from generation.variants.equation import match_case
from generation.variants.grammar import (
    NOUN_TAGS,
    article_position,
    fitting_article,
    inflected,
    lemmas,
)
from generation.variants.perturbations import (
    ARTICLE,
    FAMILY,
    FURTHER_EDITS,
    WORD,
    Edit,
    Perturbation,
    keys_of,
    perturbations_of,
    reject_in_context,
    tags_after,
    with_further_edits,
    words_of,
)
from generation.variants.reasons import KEPT, Reason, WordKey

Fate = tuple[str, str]
"""Word class, and rejection reason or `KEPT`, of a replacement with further edits."""


def adapt(
    problems: TaggedProblems, rows: pa.Table, tagger: Tagger, config: Config
) -> tuple[pa.Table, dict[WordKey, tuple[Reason, int]], Counter[Fate]]:
    """Add further edits to replacements, and drop those that cannot have them.

    Returns the rows left; words left out because of their families, with the reason and the number
    of replacements; and the fates of rows that edit, or would have to edit, more than their word.
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
            else replace(
                edit, word=match_case(scramble(edit.word.lower(), key), whole.token(edit).text)
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
        for lemma in lemmas(token.text.lower(), token.tag)
    }
    return [
        (text, position)
        for text, position, token in tokens
        if token.text != word.word and not own.isdisjoint(lemmas(token.text.lower(), token.tag))
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
        if here.tag in NOUN_TAGS and any(token.tag in NOUN_TAGS for token in after):
            return Reason.FAMILY_IN_COMPOUND
    for number, n in family:
        token = sentences[number].tokens[n]
        of_token = lemmas(token.text.lower(), token.tag)
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
        form = tag and inflected(text.lower(), tag, token.tag)
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
        position = article_position(sentence, edit.position)
        if position is not None and (edit.text, position) not in edited:
            before = sentence.tokens[position].text
            article = match_case(fitting_article(edit.word), before)
            if article.lower() != before.lower():
                yield Edit(ARTICLE, edit.text, position, article)
