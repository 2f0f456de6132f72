"""Further edits: of other forms of a replaced word, and of articles before edited words.

A family is the other forms of a shared word in its problem, by lemma: "sleeps" and "sleeping", both
verbs. `adapt` asks rules one after the other. Each sees the replacements that the rules before it
left, with their edits so far, and yields by row further edits, or the reason to drop the row.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from generation.config import Config
from generation.problems.substitutions import Place, Substitutions
from generation.problems.tagging import TaggedProblems, Tagger, coarse_class
from generation.variants import grammar
from generation.variants.equation import match_case
from generation.variants.perturbations import (
    ARTICLE,
    FAMILY,
    Edit,
    Perturbation,
    keys_of,
    perturbations_of,
    with_further_edits,
)
from generation.variants.reasons import KEPT, NO_REASON, REASONS, Reason, WordKey
from generation.variants.validation import judge_in_context

Fate = tuple[str, str]
"""Word class, and rejection reason or `KEPT`, of a replacement with further edits."""

Left = Mapping[int, Perturbation]
"""Row → its perturbation with the edits so far, of the rows that no rule has dropped."""

Outcomes = Iterator[tuple[int, Reason | list[Edit]]]
"""Rows, with the reason to drop it or the edits to add to it."""


def adapt(
    problems: TaggedProblems, rows: pa.Table, tagger: Tagger, config: Config
) -> tuple[pa.Table, dict[WordKey, tuple[Reason, int]], Counter[Fate]]:
    """Add further edits to replacements, and drop those that cannot have them.

    Returns the rows left; words left out for their families, with reason and number; and fates.
    """
    if not config.changes_more:
        return rows, {}, Counter()
    left, dropped = dict(enumerate(perturbations_of(rows, problems))), dict[int, Reason]()
    rules: list[tuple[bool, Callable[[Left], Outcomes]]] = [
        (config.families == "reject", reject_families),
        (config.families == "inflect", partial(inflect_families, tagger=tagger)),
        (config.repair_articles, repair_articles),
        (config.class_filter, partial(judge_again, tagger=tagger, tag_match=config.tag_match)),
        (True, reject_ambiguous),
        (True, reject_same_text),
    ]
    for rule in (rule for applies, rule in rules if applies):
        for row, outcome in list(rule(left)):
            if isinstance(outcome, Reason):
                dropped[row] = outcome
                del left[row]
            else:
                edits = sorted((*left[row].edits, *outcome))
                left[row] = replace(left[row], edits=tuple(edits))
    keys, further = keys_of(rows), {row: one.further for row, one in left.items()}
    fates = Counter((keys[row].word_class, str(reason)) for row, reason in dropped.items())
    fates.update((keys[row].word_class, KEPT) for row, more in further.items() if more)
    # All replacements of a word have the same of these reasons.
    of_families = Reason.of_steps("families")
    counts = Counter((keys[n].of_word, why) for n, why in dropped.items() if why in of_families)
    words = {key: (reason, count) for (key, reason), count in counts.items()}
    rows = rows.take(pa.array(list(left), pa.int64()))
    return with_further_edits(rows, list(further.values())), words, fates


# --- Families ---


def reject_families(left: Left) -> Outcomes:
    """Drop replacements of words that have a family."""
    families = _families(left)
    for row, one in left.items():
        if families[one.key.of_word]:
            yield row, Reason.FAMILY_REJECTED


def inflect_families(left: Left, tagger: Tagger) -> Outcomes:
    """Put the replacement's forms in place of the word's other forms."""
    families = _families(left)
    having = [(row, one) for row, one in left.items() if families[one.key.of_word]]
    tags = tags_of_words([one for _, one in having], tagger)
    for (row, one), tag in zip(having, tags, strict=True):
        yield row, _inflected(one, families[one.key.of_word], tag)


def _families(left: Left) -> dict[WordKey, list[tuple[int, int]]]:
    """Map each word to the (text, token) numbers of its family."""
    texts = {one.key.of_word: one.sentences for one in left.values()}
    return {
        (seed_id, word_class, word): grammar.family_of(word, word_class, sentences)
        for (seed_id, word_class, word), sentences in texts.items()
    }


def _inflected(
    perturbation: Perturbation, family: Sequence[tuple[int, int]], tag: str | None
) -> list[Edit] | Reason:
    """Return edits of a word's other forms to those of its replacement, or why there are none.

    The `tag` is the replacement's, or None where it changes the tokenisation.
    """
    key, sentences = perturbation.key, perturbation.sentences
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
    more = []
    for number, n in family:
        token = sentences[number].tokens[n]
        form = tag and grammar.inflected(key.replacement.lower(), tag, token.tag)
        if not form or not form.isalpha():
            return Reason.NO_INFLECTION
        if form in in_problem:
            return Reason.IN_PROBLEM
        more.append(Edit(FAMILY, number, n, match_case(form, token.text)))
    return more


# --- Articles ---


def repair_articles(left: Left) -> Outcomes:
    """Have each "a" and "an" fit the edited word after it; edited articles stay as they are."""
    for row, one in left.items():
        edited, more = {(edit.text, edit.position) for edit in one.edits}, list[Edit]()
        for edit in one.edits:
            sentence = one.sentences[edit.text]
            position = grammar.article_position(sentence, edit.position)
            if position is not None and (edit.text, position) not in edited:
                before = sentence.tokens[position].text
                article = match_case(grammar.fitting_article(edit.word), before)
                if article.lower() != before.lower():
                    more.append(Edit(ARTICLE, edit.text, position, article))
        yield row, more


# --- All edits in place ---


def judge_again(left: Left, tagger: Tagger, tag_match: str) -> Outcomes:
    """Drop what fails condition (iii), D8, once all edits are in place."""
    more = {row: one for row, one in left.items() if one.is_more}
    reasons = reject_in_context([*more.values()], tagger, tag_match=tag_match)
    yield from ((row, reason) for row, reason in zip(more, reasons, strict=True) if reason)


def reject_ambiguous(left: Left) -> Outcomes:
    """Drop what makes one word of two."""
    yield from ((row, Reason.AMBIGUOUS) for row, one in left.items() if one.is_ambiguous())


def reject_same_text(left: Left) -> Outcomes:
    """Drop the same edits made from another shared word of the family."""
    seen = set[object]()
    for row, one in left.items():
        if one.is_more:
            edits = frozenset((edit.text, edit.position, edit.word) for edit in one.edits)
            same = one.key.seed_id, one.key.word_class, edits
            if same in seen:
                yield row, Reason.SAME_TEXT
            seen.add(same)


def reject_in_context(
    perturbations: Sequence[Perturbation], tagger: Tagger, *, tag_match: str
) -> list[Reason | None]:
    """Return [n] the first reason to reject perturbations in any text (D8), or None."""
    substitutions, owners = _substitutions(perturbations)
    numbers, _ = judge_in_context(substitutions, tagger, tag_match=tag_match)
    reasons: list[Reason | None] = [None] * len(perturbations)
    for number, (owner, _) in sorted(zip(numbers.tolist(), owners, strict=True), reverse=True):
        if number != NO_REASON:
            reasons[owner] = REASONS[number]  # the first comes last
    return reasons


def tags_of_words(perturbations: Sequence[Perturbation], tagger: Tagger) -> list[str | None]:
    """Return [n] Penn tags of new words, all edits in place; None if tokens change.

    Taken where the original has the word's class; elsewhere it may have another (D2).
    """
    substitutions, owners = _substitutions(perturbations)
    tags, found = iter(tagger.tags_after(substitutions).tolist()), dict[int, str | None]()
    for (owner, text), place in zip(owners, substitutions.place.tolist(), strict=True):
        one = perturbations[owner]
        for position in substitutions.places[place].positions:
            tag = next(tags)
            if coarse_class(one.sentences[text].tokens[position].tag) == one.key.word_class:
                found.setdefault(owner, None if tag < 0 else tagger.labels[tag])
    return [found[n] for n in range(len(perturbations))]


def _substitutions(
    perturbations: Sequence[Perturbation],
) -> tuple[Substitutions, list[tuple[int, int]]]:
    """Return the edits of each text as a substitution; and [n] (perturbation, text) of each."""
    places: dict[tuple[str, tuple[int, ...]], tuple[int, Place]] = {}
    forms: dict[tuple[str, ...], int] = {}
    owners, where, what = [], [], []
    for owner, perturbation in enumerate(perturbations):
        for text, sentence in enumerate(perturbation.sentences):
            edits = sorted((e.position, e.word) for e in perturbation.edits if e.text == text)
            if edits:
                positions, words = zip(*edits, strict=True)
                place = len(places), Place(sentence, positions, several=True)
                owners.append((owner, text))
                where.append(places.setdefault((sentence.text, positions), place)[0])
                what.append(forms.setdefault(words, len(forms)))
    numbers = (np.array(column, np.int64) for column in (where, what))
    return Substitutions([place for _, place in places.values()], list(forms), *numbers), owners
