"""From suggestions to variants: validation (eq. 1), eligibility (D9) and sampling (D10).

Validation applies the conditions of `equation.py` in the order of their costs: `survivors_of` those
on single suggestions, `find_replacements` those on sets, and `judge_in_context` those that need a
tagger, which costs a thousand times more than comparing two numbers. All that is dropped has its
reason.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import shake_128
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from generation.config import Config
from generation.problems.substitutions import Substitutions
from generation.problems.tagging import TaggedProblems, Tagger, coarse_class
from generation.records import (
    REPLACEMENT_KEY,
    Exclusion,
    MaskedQuery,
    Scores,
    groups_of,
    lists_of,
    ranges,
    replacement_schema,
    sorted_replacements,
    starts_of,
)
from generation.suggestions.vocabulary import Vocabulary
from generation.variants.equation import Lexicon, Survivors, Table, Words
from generation.variants.reasons import (
    KEPT,
    NO_REASON,
    NOT_IN_VOCABULARY,
    Funnel,
    Reason,
    WordKey,
    first_reasons,
)
from merge_dataset.schema import WORD_CLASSES

UNKNOWN, NO, YES = -1, 0, 1
"""Answers about an occurrence; for several occurrences the highest answer counts."""

CHEAP_REASONS: Final = Reason.of_steps("candidates")


def survivors_of(scores: Scores, vocabulary: Vocabulary, config: Config) -> Survivors:
    """Keep whole alphabetic words (D4), more probable than the original (i, D5), once each (D6)."""
    suggested = scores.answered[:, None] & (scores.tokens >= 0)
    numbers = first_reasons(suggested, ("candidates",), scores, vocabulary, config)
    kept = suggested & (numbers == NO_REASON)
    rows, columns = np.nonzero(kept)
    rejected = [(numbers == reason.number).sum(axis=1) for reason in CHEAP_REASONS]
    return Survivors(
        starts=starts_of(kept.sum(axis=1)),
        in_vocabulary=scores.answered,
        asked=np.ones(len(scores.original), np.bool_),
        tokens=scores.tokens[rows, columns],
        log_odds=scores.logits[rows, columns] - scores.original_logit[rows],
        rejected=np.stack(rejected, axis=1).astype(np.int32),
    )


def find_replacements(
    problems: TaggedProblems,
    survivors_at: Callable[[Sequence[MaskedQuery]], Mapping[str, Survivors]],
    lexicon: Lexicon,
    tagger: Tagger,
    config: Config,
) -> tuple[pa.Table, Funnel, list[WordKey]]:
    """Find R_M(⟨p, h⟩, o) of each shared word o; return also the funnel and unsettled words."""
    words = Words.of(problems, lexicon, config)
    survivors = survivors_at(words.queries)
    table = Table.of(words, survivors, scope=config.min_replacements_scope)
    cells = table.suggested > 0
    reasons = first_reasons(cells, ("asking", "one text", "all texts"), table, config)
    kept = cells & (reasons == NO_REASON)
    of_texts, changed = judge_replacements(table, kept.any(axis=2), tagger, config)
    reasons = np.where(kept, of_texts[:, :, None], reasons)
    kept &= reasons == NO_REASON
    rows = _replacement_table(table, kept, changed, list(survivors), config)
    unsettled = [
        (words.seeds[n].seed_id, words.words[n].word_class, words.words[n].word)
        for n in np.flatnonzero(~table.settled).tolist()
    ]
    return sorted_replacements(rows), _funnel_of(table, survivors, reasons, kept), unsettled


def _funnel_of(
    table: Table,
    survivors: Mapping[str, Survivors],
    reasons: NDArray[np.int8],
    kept: NDArray[np.bool_],
) -> Funnel:
    """Count suggestions by what became of them, given the outcomes of the table's cells."""
    words, funnel = table.words, Funnel()

    def count(mlm: str, column: str, word_classes: NDArray[np.int64], numbers: Any = None) -> None:
        totals = np.bincount(word_classes, numbers, minlength=len(WORD_CLASSES)).tolist()
        for number in np.unique(words.word_class):
            funnel[mlm, WORD_CLASSES[number], column] += int(totals[number])

    at_occurrences, of_rows = words.word_class[words.word_of], words.word_class[table.shared]
    for n, (mlm, of_mlm) in enumerate(survivors.items()):
        count(mlm, NOT_IN_VOCABULARY, at_occurrences[~of_mlm.in_vocabulary])
        for reason, dropped in zip(CHEAP_REASONS, of_mlm.rejected.T, strict=True):
            count(mlm, reason, at_occurrences, dropped)
        for reason in Reason.of_steps("asking", "one text", "all texts", "context"):
            ended = table.suggested[:, :, n] * (reasons[:, :, n] == reason.number)
            count(mlm, reason, of_rows, ended.sum(axis=1))
        count(mlm, KEPT, of_rows, (table.suggested[:, :, n] * kept[:, :, n]).sum(axis=1))
        count(mlm, "replacements", of_rows[kept[:, :, n].any(axis=1)])
    return funnel


def judge_replacements(
    table: Table, proposed: NDArray[np.bool_], tagger: Tagger, config: Config
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Return [n, texts] reasons to reject by condition (iii), and [n, texts, 2] changes of form.

    A word r of an intersection that fails in one text fails in all: where it fails, for that text's
    reason, else for the first text's that has one. Once its class has changed in a text, only its
    tokenisation is checked in others.
    """
    reasons = np.full(proposed.shape, NO_REASON, np.int8)
    changed = np.full((*proposed.shape, 2), UNKNOWN)
    if not config.class_filter:
        return reasons, changed
    together = config.combine == "intersection"
    has_changed = np.zeros(len(proposed), np.bool_)
    for text in range(proposed.shape[1]):
        row = np.flatnonzero(proposed[:, text] & ~has_changed)
        reasons[row, text], changed[row, text] = judge_in_context(
            table.put(row, np.full_like(row, text)), tagger, tag_match=config.tag_match
        )
        row = np.flatnonzero(proposed[:, text] & has_changed)
        keeps_tokens = tagger.keeps_tokens(table.put(row, np.full_like(row, text)))
        reasons[row[~keeps_tokens], text] = Reason.TOKENIZATION.number
        np.copyto(has_changed, together, where=reasons[:, text] == Reason.WORD_CLASS.number)
    if together:
        first = np.argmax(reasons != NO_REASON, axis=1)
        of_first = reasons[np.arange(len(reasons)), first][:, None]
        reasons = np.where(reasons == NO_REASON, of_first, reasons)
    return reasons, changed


def judge_in_context(
    substitutions: Substitutions, tagger: Tagger, *, tag_match: str
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Return [n] reasons to reject in context (D8), and [n, 2] changes of form.

    These say whether a noun's number, and a verb's form, change at any occurrence: `YES`, `NO`, or
    `UNKNOWN` where no original is a noun, or a verb.
    """
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
    tags = tagger.tags_after(substitutions)
    same = compared(tagger.labels)[tags] == compared(before)[occurrences]
    starts = starts_of(sizes)[:-1]
    reasons = first_reasons(np.ones(len(starts), np.bool_), ("context",), tags, same, starts)
    changes = []
    for kinds in (
        {"NN": 0, "NNS": 1},
        # VB and VBP are one form, as they are spelt alike.
        {"VB": 0, "VBP": 0, "VBZ": 1, "VBD": 2, "VBN": 3, "VBG": 4},
    ):
        old, new = (
            np.array([kinds.get(name, UNKNOWN) for name in names], np.int64)
            for names in (before, tagger.labels)
        )
        changed = np.where(old[occurrences] < 0, UNKNOWN, old[occurrences] != new[tags])
        changes.append(np.maximum.reduceat(changed, starts))
    return reasons, np.stack(changes, axis=1)


def _replacement_table(
    table: Table,
    kept: NDArray[np.bool_],
    changed: NDArray[np.int64],
    mlms: Sequence[str],
    config: Config,
) -> pa.Table:
    row = np.flatnonzero(kept.any(axis=(1, 2)))
    words, shared, kept = table.words, table.shared[row], kept[row]
    in_text: NDArray[np.bool_] = np.any(kept, axis=2)
    log_odds = np.where(kept, table.log_odds[row], np.float32(np.inf)).min(axis=(1, 2))
    changed = np.where(in_text[:, :, None], changed[row], UNKNOWN).max(axis=1)
    # Geometric mean of the ranks: all words not suggested share the rank after the last suggestion.
    missing = table.known[shared] - table.suggested[row].sum(axis=(1, 2))
    last = np.log(config.suggestions_per_occurrence + 1)
    mean_rank = np.exp((table.log_ranks[row] + missing * last) / table.known[shared])
    forms, form = words.lexicon.forms, words.lexicon.form(words.casing[shared], table.word[row])
    texts = pa.array([forms[number] for number in form.tolist()], pa.string())
    problem_format, names = config.problem_format, pa.array(mlms, pa.string())
    schema = replacement_schema(problem_format)
    columns = {
        # Filled later, by `signal_columns.py`.
        **{field.name: pa.nulls(len(row), field.type) for field in schema},
        "seed_id": pa.array([seed.seed_id for seed in words.seeds], pa.string()).take(shared),
        "source": pa.array([seed.source for seed in words.seeds], pa.string()).take(shared),
        "word": pa.array([word.word for word in words.words], pa.string()).take(shared),
        "word_class": pa.array([word.word_class for word in words.words], pa.string()).take(shared),
        "replacement": texts,
        **{name: lists_of(names, kept[:, n]) for n, name in enumerate(problem_format.mlms)},
        "log_odds": pa.array(log_odds),
        "mlm_count": pa.array(kept.any(axis=1).sum(axis=1)),
        **{
            name: pa.array(answers == YES, mask=answers == UNKNOWN)
            for name, answers in zip(("number_changed", "tense_changed"), changed.T, strict=True)
        },
        "mean_rank": pa.array(mean_rank),
    }
    return pa.table(columns).select(schema.names).cast(schema)


# --- Eligibility and sampling ---

_GROUPS: Final = {
    "class": ("seed_id", "word_class"),
    "problem": ("seed_id",),
    "word": ("seed_id", "word_class", "word"),
}
"""Scope → columns by which replacements are grouped for counting."""


def eligible(replacements: pa.Table, config: Config) -> tuple[pa.Table, list[Exclusion]]:
    """Keep replacements of each class, problem or word that has enough (D9); list the others."""
    minimum, scope = config.min_replacements, config.min_replacements_scope
    _, first, group, counts = np.unique(
        groups_of(replacements, _GROUPS[scope]),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    kept = replacements.filter(pa.array(counts[group] >= minimum))
    few = np.sort(first[counts < minimum])
    names = ("source", *_GROUPS[scope])
    left_out = replacements.take(few).select(names).to_pylist()
    return kept, [
        {**row, "reason": Reason.TOO_FEW, "replacements": int(count)}
        for row, count in zip(left_out, counts[group[few]], strict=True)
    ]


def of_pairs(replacements: pa.Table, pairs: pa.Table) -> pa.Table:
    """Return the replacements of given (seed, class) pairs, in order."""
    wanted = set(zip(*(pairs[name].to_pylist() for name in _GROUPS["class"]), strict=True))
    every = zip(*(replacements[name].to_pylist() for name in _GROUPS["class"]), strict=True)
    return replacements.filter(pa.array([pair in wanted for pair in every], pa.bool_()))


def draw(replacements: pa.Table, config: Config) -> pa.Table:
    """Draw each subsample: some replacements per seed and class, without repetition (D10).

    In each, those with the smallest hashes of (rng_seed, seed_id, class, word, replacement) are
    drawn. So if one is taken away, at most one other takes its place. A column `subsamples` has
    numbers from 0; rows are sorted by `REPLACEMENT_KEY`.
    """
    subsamples, size, rng_seed = config.subsamples, config.variants_per_class, config.rng_seed
    members = replacements.sort_by([(name, "ascending") for name in REPLACEMENT_KEY])
    is_first = np.diff(groups_of(members, _GROUPS["class"]), prepend=-1) != 0
    starts, groups = np.flatnonzero(is_first), is_first.cumsum() - 1
    # Longer digests of this extendable hash begin with the shorter ones, so a subsample does not
    # depend on the number of subsamples.
    columns = [members[name].to_pylist() for name in REPLACEMENT_KEY]
    digests = b"".join(
        shake_128("\0".join((str(rng_seed), *key)).encode()).digest(8 * subsamples)
        for key in zip(*columns, strict=True)
    )
    keys = np.frombuffer(digests, ">u8").reshape(-1, subsamples)
    drawn = np.zeros(keys.shape, bool)
    for subsample in range(subsamples):
        order = np.lexsort((keys[:, subsample], groups))  # groups stay where they are
        rank = np.arange(len(order)) - starts[groups]
        drawn[order[rank < size], subsample] = True
    rows = np.flatnonzero(drawn.any(axis=1))
    names = pa.array(range(subsamples), pa.int32())
    taken = members.take(pa.array(rows, pa.int64()))
    return taken.append_column("subsamples", lists_of(names, drawn[rows]))
