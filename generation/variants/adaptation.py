"""Replacements that change more than their word: its family, and the articles before it.

What equation 1 leaves is a word for a word. Here other forms of that word are replaced too, or
the word is left out; "a" becomes "an" where it has to; and whoever then changes more than the
word has to pass D8 again, with all of it in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from generation.config import Config
from generation.problems.shared_words import TaggedProblems, coarse_class
from generation.records import Exclusion, Seed, Sentence, SharedWord
from generation.run_tables import REPLACEMENT_KEY, sorted_replacements
from generation.signals.articles import article_position, fitting_article, repaired
from generation.signals.automatic import zipf_frequencies
from generation.variants.changes import (
    AMBIGUOUS,
    ARTICLE,
    FAMILY,
    REPLACEMENTS,
    WORD,
    Change,
    Fate,
    Variation,
    fates,
    tags_after,
)
from generation.variants.families import family_of, inflected, is_in_compound, may_be_auxiliary
from generation.variants.filters import IN_PROBLEM, match_case
from generation.variants.funnel import KEPT
from generation.variants.rows import scramble

if TYPE_CHECKING:
    from generation.variants.validation import ContextTagger

FAMILY_REJECTED: Final = "word_family"
"""Another form of the word stands in the problem (`families = "reject"`)."""
FAMILY_IN_COMPOUND: Final = "family_in_compound"
"""A form of the word is the first part of a nominal compound (`families = "inflect"`)."""
FAMILY_AUXILIARY: Final = "family_auxiliary"
"""The word is a form of "be", "have" or "do" (the same)."""
NO_INFLECTION: Final = "no_inflection"
"""The replacement has not the form that another form of the word asks for."""
SAME_TEXT: Final = "same_text"
"""A replacement of another form of the word changes the same tokens to the same words."""

Key = tuple[str, str, str, str]
"""Seed, class, word, replacement."""

_OF_WORDS: Final = (FAMILY_REJECTED, FAMILY_IN_COMPOUND, FAMILY_AUXILIARY)
"""Reasons that reject all replacements of a word."""

Family = Sequence[tuple[int, int]]
"""Where other forms of a word stand: text and token."""

_Outcome = Variation | str
"""What a replacement changes, or why it is rejected."""


@dataclass(frozen=True, slots=True)
class Adapted:
    """Replacements with all that they change."""

    replacements: pa.Table
    """Those that are left, in order, each by its word alone."""
    variations: dict[Key, Variation]
    """What each changes."""
    exclusions: list[Exclusion]
    """Words that are left out for their families."""
    fates: Counter[Fate]
    """Of the replacements that change more than their word."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A replacement."""

    seed: Seed
    word: SharedWord
    sentences: Sequence[Sentence]
    text: str

    def variation(self) -> Variation:
        """The replacement at all occurrences."""
        return Variation(
            self.sentences,
            tuple(
                Change(WORD, number, position, self.text)
                for number, positions in enumerate(self.word.positions)
                for position in positions
            ),
        )


def adapt(
    problems: TaggedProblems, found: pa.Table, tagger: ContextTagger, config: Config
) -> Adapted:
    """What replacements change in all, and which of them that leaves.

    Args:
        problems: A block.
        found: Its replacements as `find_replacements` gives them, not scrambled.
        tagger: Judges classes in context (D8).
        config: Families, articles, whether D8 is asked and how.
    """
    rows = _rows(problems, found)
    outcomes: list[_Outcome] = [row.variation() for row in rows]
    if config.families != "ignore":
        outcomes = _with_families(rows, outcomes, tagger, inflect=config.families == "inflect")
    if config.repair_articles:
        outcomes = [o if isinstance(o, str) else with_articles(o) for o in outcomes]
    outcomes = _judged(outcomes, tagger, config)
    outcomes = [AMBIGUOUS if _is_ambiguous(outcome) else outcome for outcome in outcomes]
    outcomes = _each_once(rows, outcomes)
    left = found.filter(pa.array([not isinstance(o, str) for o in outcomes], pa.bool_()))
    variations = {
        key: outcome
        for key, outcome in zip(keys_of(found), outcomes, strict=True)
        if not isinstance(outcome, str)
    }
    return Adapted(
        sorted_replacements(left), variations, _excluded(rows, outcomes), _counted(rows, outcomes)
    )


def with_letters_shuffled(adapted: Adapted, rng_seed: int) -> Adapted:
    """The same with the letters of all words but articles shuffled (D13), each outcome once."""
    variations: dict[Key, Variation] = {}
    kept: list[int] = []
    fates = Counter(adapted.fates)
    for row, key in enumerate(keys_of(adapted.replacements)):
        seed_id, word_class, word, _ = key
        variation = _scrambled(adapted.variations[key], f"{rng_seed}\n{seed_id}")
        if _is_ambiguous(variation):
            fates[REPLACEMENTS, word_class, KEPT] -= 1
            fates[REPLACEMENTS, word_class, AMBIGUOUS] += 1
            continue
        shuffled = seed_id, word_class, word, variation.changes[0].word
        if shuffled not in variations:
            variations[shuffled] = variation
            kept.append(row)
    table = adapted.replacements.take(pa.array(kept, pa.int64()))
    column = table.schema.get_field_index("replacement")
    texts = pa.array([text for *_, text in variations], pa.string())
    table = table.set_column(column, table.schema.field(column), texts)
    return Adapted(sorted_replacements(table), variations, adapted.exclusions, +fates)


def with_pairs(table: pa.Table, variations: Sequence[Variation]) -> pa.Table:
    """Replacements or variants with all that changes in `word` and `replacement`, as pairs.

    The i-th of `word` becomes the i-th of `replacement`; a space is between.

    Args:
        table: Each by its word alone.
        variations: [n] What each changes.
    """
    pairs = [variation.pairs() for variation in variations]
    for side, name in enumerate(("word", "replacement")):
        texts = pa.array([" ".join(pair[side] for pair in each) for each in pairs], pa.string())
        column = table.schema.get_field_index(name)
        table = table.set_column(column, table.schema.field(column), texts)
    return table


def with_signals(table: pa.Table, variations: Sequence[Variation]) -> pa.Table:
    """Replacements or variants with the signals that what changes besides the word decides.

    Where more than one word changes, the rarest counts, articles are judged as they stand then,
    and how likely the texts are is no longer known.

    Args:
        table: With all that changes, and signals of the words alone.
        variations: [n] What each changes.
    """
    rarest = zipf_frequencies(table["replacement"])
    is_more = pa.array([variation.is_more for variation in variations], pa.bool_())
    fits = pa.array([v.is_more and has_fitting_articles(v) for v in variations], pa.bool_())
    for number, field in enumerate(table.schema):
        if field.name.endswith("_pll_change"):
            unknown = pa.nulls(len(table), field.type)
            table = table.set_column(number, field, pc.if_else(is_more, unknown, table[field.name]))
        elif field.name == "zipf_frequency":
            column = pc.if_else(is_more, rarest, table[field.name])
            table = table.set_column(number, field, column)
        elif field.name == "article_fits":
            table = table.set_column(number, field, pc.if_else(is_more, fits, table[field.name]))
    return table


def has_fitting_articles(variation: Variation) -> bool | None:
    """Whether every "a" and "an" before a word that changes fits it then; None without any."""
    new = {(change.text, change.position): change.word for change in variation.changes}
    fits = []
    for change in variation.changes:
        sentence = variation.sentences[change.text]
        position = article_position(sentence, change.position)
        if position is not None:
            article = new.get((change.text, position), sentence.tokens[position].text)
            fits.append(article.lower() == fitting_article(change.word))
    return all(fits) if fits else None


def keys_of(table: pa.Table) -> list[Key]:
    """[n] Which replacement each row is of."""
    return list(zip(*(table[name].to_pylist() for name in REPLACEMENT_KEY), strict=True))


def with_articles(variation: Variation) -> Variation:
    """The same with "a" and "an" as what comes next wants them.

    They stand directly before what changes and are tagged as articles.
    """
    changed = {(change.text, change.position) for change in variation.changes}
    more = []
    for change in variation.changes:
        sentence = variation.sentences[change.text]
        position = article_position(sentence, change.position)
        if position is None or (change.text, position) in changed:
            continue
        before = sentence.tokens[position]
        article = repaired(before.text, change.word)
        if article.lower() != before.text.lower():
            more.append(Change(ARTICLE, change.text, position, article))
    return variation.with_changes(more)


def _rows(problems: TaggedProblems, found: pa.Table) -> list[_Row]:
    seeds = {seed.seed_id: seed for seed in problems.seeds}
    words = {
        (seed_id, word.word_class, word.word): (seeds[seed_id], word, problems.of(seeds[seed_id]))
        for seed_id in set(found["seed_id"].to_pylist())
        for word in problems.words[seed_id]
    }
    return [_Row(*words[seed_id, c, word], text) for seed_id, c, word, text in keys_of(found)]


def _with_families(
    rows: Sequence[_Row], outcomes: Sequence[_Outcome], tagger: ContextTagger, *, inflect: bool
) -> list[_Outcome]:
    """Replace a word's family too, or reject whatever would replace the word."""
    found = list(outcomes)
    families = _families(rows)
    mine = [n for n, family in enumerate(families) if family]
    if not inflect:
        for n in mine:
            found[n] = FAMILY_REJECTED
        return found
    variations = [rows[n].variation() for n in mine]
    for n, tags in zip(mine, tags_after(variations, tagger), strict=True):
        found[n] = _inflected(rows[n], families[n], tags)
    return found


def _families(rows: Sequence[_Row]) -> list[Family]:
    """Of each row's word, found once."""
    found: dict[tuple[str, SharedWord], Family] = {}
    for row in rows:
        key = row.seed.seed_id, row.word
        if key not in found:
            found[key] = family_of(row.word, row.sentences)
    return [found[row.seed.seed_id, row.word] for row in rows]


def _inflected(row: _Row, family: Family, tags: Mapping[tuple[int, int], str | None]) -> _Outcome:
    """A replacement with the word's family replaced too, or why that cannot be.

    Args:
        row: The replacement.
        family: Where other forms of its word stand.
        tags: Those of the replacement where it stands.
    """
    own = [(text, n) for text, positions in enumerate(row.word.positions) for n in positions]
    if any(is_in_compound(row.sentences[text], n) for text, n in (*own, *family)):
        return FAMILY_IN_COMPOUND
    if any(may_be_auxiliary(row.sentences[text], n) for text, n in family):
        return FAMILY_AUXILIARY
    in_problem = {token.text.lower() for sentence in row.sentences for token in sentence.tokens}
    # Where the word has its class; elsewhere it may have another (D2).
    tag = next(
        tag
        for (text, position), tag in tags.items()
        if coarse_class(row.sentences[text].tokens[position].tag) == row.word.word_class
    )
    more = []
    for text, position in family:
        token = row.sentences[text].tokens[position]
        form = tag and inflected(row.text.lower(), tag, token.tag)
        if not form or not form.isalpha():
            return NO_INFLECTION
        if form in in_problem:
            return IN_PROBLEM
        more.append(Change(FAMILY, text, position, match_case(form, token.text)))
    return row.variation().with_changes(more)


def _judged(outcomes: Sequence[_Outcome], tagger: ContextTagger, config: Config) -> list[_Outcome]:
    """D8 for what changes more than its word."""
    found = list(outcomes)
    if config.class_filter:
        asked = [(n, o) for n, o in enumerate(found) if isinstance(o, Variation) and o.is_more]
        reasons = fates([variation for _, variation in asked], tagger, tag_match=config.tag_match)
        for (n, variation), reason in zip(asked, reasons, strict=True):
            found[n] = reason or variation
    return found


def _is_ambiguous(outcome: _Outcome) -> bool:
    return isinstance(outcome, Variation) and outcome.is_more and outcome.is_ambiguous()


def _each_once(rows: Sequence[_Row], outcomes: Sequence[_Outcome]) -> list[_Outcome]:
    """Reject what changes the same as an earlier one: two shared words may be of one family."""
    seen: set[object] = set()
    found: list[_Outcome] = []
    for row, outcome in zip(rows, outcomes, strict=True):
        if isinstance(outcome, str) or not outcome.is_more:
            found.append(outcome)
            continue
        what = frozenset((change.text, change.position, change.word) for change in outcome.changes)
        key = row.seed.seed_id, row.word.word_class, what
        found.append(SAME_TEXT if key in seen else outcome)
        seen.add(key)
    return found


def _excluded(rows: Sequence[_Row], outcomes: Sequence[_Outcome]) -> list[Exclusion]:
    """The words that are left out, with how many replacements they had."""
    counts = Counter(
        (row.seed.seed_id, row.seed.source, row.word.word, row.word.word_class, outcome)
        for row, outcome in zip(rows, outcomes, strict=True)
        if isinstance(outcome, str) and outcome in _OF_WORDS
    )
    return [
        Exclusion(
            seed_id=seed_id,
            source=source,
            word=word,
            word_class=word_class,
            reason=reason,
            replacements=count,
        )
        for (seed_id, source, word, word_class, reason), count in counts.items()
    ]


def _counted(rows: Sequence[_Row], outcomes: Sequence[_Outcome]) -> Counter[Fate]:
    """What became of the replacements that change more than their word."""
    return Counter(
        (REPLACEMENTS, row.word.word_class, outcome if isinstance(outcome, str) else KEPT)
        for row, outcome in zip(rows, outcomes, strict=True)
        if isinstance(outcome, str) or outcome.is_more
    )


def _scrambled(variation: Variation, key: str) -> Variation:
    """The same with the letters of all words but articles shuffled (D13)."""
    changes = (
        change
        if change.part == ARTICLE
        else replace(
            change,
            word=match_case(scramble(change.word.lower(), key), variation.token(change).text),
        )
        for change in variation.changes
    )
    return Variation(variation.sentences, tuple(sorted(changes)))
