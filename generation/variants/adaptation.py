"""Further edits: changes to a replaced word's family, and to articles before edited words.

A family is the other forms of a shared word in its problem, by lemma: "sleeps" and "sleeping",
both verbs. A replacement with further edits has to pass D8 again, with all edits in place.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from generation.config import Config
from generation.problems.morphology import inflected, lemmas
from generation.problems.shared_words import TaggedProblems, coarse_class
from generation.problems.tagging import Tagger
from generation.records import Sentence, SharedWord, sorted_replacements, with_columns
from generation.signals.grammar import NOUN_TAGS, article_position, fitting_article
from generation.variants.funnel import WordKey
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
    rows_of_more,
    tags_after,
    with_further_edits,
    words_of,
)
from generation.variants.reasons import KEPT, Reason
from generation.variants.words import match_case, scramble

Fate = tuple[str, str]
"""Word class, and rejection reason or `KEPT`, of a replacement with further edits."""

Family = Sequence[tuple[int, int]]

_Outcome = Perturbation | Reason
"""All edits of a replacement, or the reason to reject it."""


def adapt(
    problems: TaggedProblems, rows: pa.Table, tagger: Tagger, config: Config
) -> tuple[pa.Table, list[Reason | None]]:
    """Add further edits to replacements; return the rows, and [n] reasons to reject, or None."""
    if config.families == "ignore" and not config.repair_articles:
        return rows, [None] * len(rows)
    outcomes: dict[int, _Outcome] = {}
    if config.families != "ignore":
        outcomes = _with_families(rows, problems, tagger, inflect=config.families == "inflect")
    if config.repair_articles:
        outcomes = _with_articles(rows, problems, outcomes)
    if config.class_filter:
        asked = {n: o for n, o in outcomes.items() if isinstance(o, Perturbation) and o.is_more}
        judged = reject_in_context(list(asked.values()), tagger, tag_match=config.tag_match)
        outcomes |= {n: reason for n, reason in zip(asked, judged, strict=True) if reason}
    edits: list[list[Edit]] = [[] for _ in range(len(rows))]
    reasons: list[Reason | None] = [None] * len(rows)
    keys, seen = keys_of(rows), set[object]()
    for n, outcome in sorted(outcomes.items()):
        if isinstance(outcome, Reason):
            reasons[n] = outcome
        elif not outcome.is_more:
            edits[n] = [edit for edit in outcome.edits if edit.part != WORD]
        elif outcome.is_ambiguous():
            reasons[n] = Reason.AMBIGUOUS
        else:
            # Two shared words of one family may make the same edits.
            what = frozenset((edit.text, edit.position, edit.word) for edit in outcome.edits)
            key = *keys[n][:2], what
            if key in seen:
                reasons[n] = Reason.SAME_TEXT
            else:
                edits[n] = [edit for edit in outcome.edits if edit.part != WORD]
            seen.add(key)
    return with_further_edits(rows, edits), reasons


def count_fates(rows: pa.Table, reasons: Sequence[Reason | None]) -> Counter[Fate]:
    """Count the fates of replacements that edit, or would have to edit, more than their word."""
    fates = zip(rows["word_class"].to_pylist(), reasons, rows_of_more(rows).tolist(), strict=True)
    return Counter(
        (word_class, reason or KEPT) for word_class, reason, is_more in fates if reason or is_more
    )


def rejected_families(
    rows: pa.Table, reasons: Sequence[Reason | None]
) -> dict[WordKey, tuple[Reason, int]]:
    """Map words left out because of their families to the reason and their replacements' number."""
    of_words = Reason.of_steps("families")
    found: dict[WordKey, tuple[Reason, int]] = {}
    for key, reason in zip(keys_of(rows), reasons, strict=True):
        if reason in of_words:  # the same for all replacements of a word
            _, count = found.get(key[:3], (reason, 0))
            found[key[:3]] = reason, count + 1
    return found


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
    mine = {
        lemma
        for _, _, token in tokens
        if token.text == word.word
        for lemma in lemmas(token.text.lower(), token.tag)
    }
    return [
        (text, position)
        for text, position, token in tokens
        if token.text != word.word and not mine.isdisjoint(lemmas(token.text.lower(), token.tag))
    ]


def is_in_compound(sentence: Sentence, position: int) -> bool:
    """Tell whether a noun precedes a noun: "air" for "leaf" suits "leaf blowers", not "leaves"."""
    here, following = sentence.tokens[position], sentence.tokens[position + 1 : position + 2]
    return here.tag in NOUN_TAGS and any(token.tag in NOUN_TAGS for token in following)


def may_be_auxiliary(sentence: Sentence, position: int) -> bool:
    """Tell whether a verb is a form of "be", "have" or "do", as in "is waiting"."""
    token = sentence.tokens[position]
    mine = lemmas(token.text.lower(), token.tag)
    return coarse_class(token.tag) == "verb" and bool({"be", "have", "do"} & set(mine))


def _with_families(
    rows: pa.Table, problems: TaggedProblems, tagger: Tagger, *, inflect: bool
) -> dict[int, _Outcome]:
    """Replace the words' families too, or reject the replacements: row number → outcome."""
    words = words_of(problems, rows)
    families = {
        key: family_of(*words[key]) for key in dict.fromkeys(key[:3] for key in keys_of(rows))
    }
    mine = [n for n, key in enumerate(keys_of(rows)) if families[key[:3]]]
    if not inflect:
        return dict.fromkeys(mine, Reason.FAMILY_REJECTED)
    own = rows.take(pa.array(mine, pa.int64()))
    perturbations = perturbations_of(own, problems)
    return {
        n: _inflected(perturbation, words[key[:3]][0], key[3], families[key[:3]], tags)
        for n, perturbation, key, tags in zip(
            mine, perturbations, keys_of(own), tags_after(perturbations, tagger), strict=True
        )
    }


def _inflected(
    perturbation: Perturbation,
    word: SharedWord,
    text: str,
    family: Family,
    tags: Mapping[tuple[int, int], str | None],
) -> _Outcome:
    """Inflect the replacement for each word of the family, or return the reason why not."""
    sentences = perturbation.sentences
    own = [(edit.text, edit.position) for edit in perturbation.edits]
    if any(is_in_compound(sentences[number], n) for number, n in (*own, *family)):
        return Reason.FAMILY_IN_COMPOUND
    if any(may_be_auxiliary(sentences[number], n) for number, n in family):
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
    return perturbation.with_edits(more)


def _with_articles(
    rows: pa.Table, problems: TaggedProblems, outcomes: Mapping[int, _Outcome]
) -> dict[int, _Outcome]:
    """Repair the articles before edited words; words without an article add no outcomes."""
    has_article = {
        key: any(
            article_position(sentence, position) is not None
            for sentence, positions in zip(sentences, word.positions, strict=True)
            for position in positions
        )
        for key, (word, sentences) in words_of(problems, rows).items()
    }
    mine = [n for n, key in enumerate(keys_of(rows)) if n not in outcomes and has_article[key[:3]]]
    own = rows.take(pa.array(mine, pa.int64()))
    found = {**outcomes, **dict(zip(mine, perturbations_of(own, problems), strict=True))}
    for n, outcome in found.items():
        if isinstance(outcome, Reason):
            continue
        edited = {(edit.text, edit.position) for edit in outcome.edits}
        articles = []
        for edit in outcome.edits:
            sentence = outcome.sentences[edit.text]
            position = article_position(sentence, edit.position)
            if position is None or (edit.text, position) in edited:
                continue
            before = sentence.tokens[position].text
            article = match_case(fitting_article(edit.word), before)
            if article.lower() != before.lower():
                articles.append(Edit(ARTICLE, edit.text, position, article))
        found[n] = outcome.with_edits(articles)
    return dict(sorted(found.items()))
