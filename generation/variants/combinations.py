"""Several shared words of a class replaced at once: the paper's k words.

A variant is a replacement each of k different words of a seed and class. There may be very many
combinations, so they are never listed: each is computed from its rank, walked through in a keyed
order, and judged where it comes along (D8 with all of the words in place).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from generation.config import Config
from generation.problems.shared_words import TaggedProblems
from generation.reasons import KEPT, Reason
from generation.records import Exclusion
from generation.variants.adaptation import Fate
from generation.variants.perturbations import (
    ARTICLE,
    FURTHER_EDITS,
    Perturbation,
    perturbations_of,
    reject_in_context,
)
from generation.variants.sampling import eligible, of_pairs

if TYPE_CHECKING:
    from generation.variants.context import ContextTagger

COMBINATIONS: Final = "combinations"
"""The kind of `Fate` that is about combinations of replacements."""

Member = tuple[int, int]
"""Number of the set, number in the set."""

_DIGEST_BYTES: Final = 32


@dataclass(frozen=True)
class Combinations:
    """The ways to take one member each of k of some sets."""

    sizes: Sequence[int]
    k: int

    @property
    def total(self) -> int:
        """Their number: the k-th elementary symmetric polynomial of the sizes.

        >>> Combinations((2, 3, 4), 2).total  # 2·3 + 2·4 + 3·4
        26
        """
        return self._beyond[0][self.k]

    def at(self, rank: int) -> tuple[Member, ...]:
        """Return the combination of a rank, 0 ≤ rank < total; another for each.

        >>> [Combinations((1, 2), 2).at(rank) for rank in range(2)]
        [((0, 0), (1, 0)), ((0, 0), (1, 1))]
        """
        found: list[Member] = []
        for number, size in enumerate(self.sizes):
            if len(found) == self.k:
                break
            rest = self._beyond[number + 1][self.k - len(found) - 1]
            if rank < size * rest:
                member, rank = divmod(rank, rest)
                found.append((number, member))
            else:
                rank -= size * rest
        return tuple(found)

    @cached_property
    def _beyond(self) -> list[list[int]]:
        """[sets + 1][k + 1] How many combinations of so many sets there are from a set on."""
        ways = [[1] + [0] * self.k]
        for size in reversed(self.sizes):
            after = ways[-1]
            ways.append([1] + [after[n] + size * after[n - 1] for n in range(1, self.k + 1)])
        return ways[::-1]


def shuffled(n: int, key: str) -> Iterator[int]:
    """Yield the numbers below n in an order that hangs on the key alone, as far as it is read.

    Fisher and Yates's shuffle, of which only what has moved is kept. Every order is as likely
    as every other, to the extent that digests are random.
    """
    moved: dict[int, int] = {}
    for i in range(n):
        j = i + _below(n - i, f"{key}\n{i}")
        first = moved.pop(i, i)
        chosen = first if i == j else moved.get(j, j)
        if i != j:
            moved[j] = first
        yield chosen


@dataclass(slots=True)
class Walk:
    """A walk through the combinations of a group until there are enough good ones."""

    group: int
    ranks: Iterator[int]
    wanted: int
    found: list[int] = field(default_factory=list)
    """Ranks of good ones, in the order in which they were met."""

    def ask(self) -> list[int]:
        """Return the next ranks to look at; none when there are enough, or no more."""
        return list(islice(self.ranks, self.wanted - len(self.found)))


class Walks:
    """Walks together, so that many combinations are judged at a time, and each once."""

    def __init__(self, judge: Callable[[Sequence[tuple[int, int]]], Sequence[bool]]) -> None:
        """Judge with a function of (group, rank) that says which are good."""
        self._judge = judge
        self._known: dict[tuple[int, int], bool] = {}

    def finish(self, walks: Sequence[Walk]) -> None:
        """Let each go on until it has found what it wants, or all that there is."""
        while asked := [(walk, ranks) for walk in walks if (ranks := walk.ask())]:
            keys = dict.fromkeys((walk.group, rank) for walk, ranks in asked for rank in ranks)
            new = [key for key in keys if key not in self._known]
            self._known.update(zip(new, self._judge(new), strict=True))
            for walk, ranks in asked:
                walk.found += [rank for rank in ranks if self._known[walk.group, rank]]


@dataclass(frozen=True, slots=True)
class _Group:
    """The replacements of a seed and class."""

    seed_id: str
    source: str
    word_class: str
    words: list[list[int]]
    """By word the rows of its replacements."""
    combinations: Combinations

    def at(self, rank: int) -> list[int]:
        """Return the rows of a combination."""
        return [self.words[word][member] for word, member in self.combinations.at(rank)]

    def exclusion(self, reason: str, count: int | None, *, whole_seed: bool = False) -> Exclusion:
        """Leave out the class of the seed, or all of it."""
        return Exclusion(
            seed_id=self.seed_id,
            source=self.source,
            word=None,
            word_class=None if whole_seed else self.word_class,
            reason=reason,
            replacements=count,
        )


def draw_several(
    replacements: pa.Table,
    problems: TaggedProblems,
    tagger: ContextTagger,
    config: Config,
    *,
    pairs: pa.Table | None = None,
) -> tuple[pa.Table, list[Exclusion], Counter[Fate]]:
    """Draw each subsample: combinations of k replacements (D9, D10).

    Each (rng_seed, seed, class, subsample) has an order of the combinations of its own, all
    orders being equally likely; the subsample is what is valid of it, up to its size. So
    every set of so many valid combinations is as likely as every other. A seed is eligible by
    the number of valid ones, which are counted up to the number needed.

    Args:
        replacements: Sorted, each by its word alone.
        problems: The block that they are of.
        tagger: Judges classes in context (D8).
        config: How many words, eligibility, subsamples.
        pairs: In an ablation the (seed, class) that are eligible without it.

    Returns:
        The variants as `sampling.draw` gives them, with their words and replacements joined by
        spaces, what is left out, and what became of the combinations that were looked at.
    """
    exclusions: list[Exclusion] = []
    if pairs is not None:
        replacements = of_pairs(replacements, pairs)
    elif config.min_replacements_scope == "word":
        replacements, exclusions = eligible(
            replacements, minimum=config.min_replacements, scope="word"
        )
    every = _groups(replacements, config.words_at_once)
    exclusions += [
        g.exclusion(Reason.TOO_FEW_WORDS, None) for g in every if not g.combinations.total
    ]
    groups = [group for group in every if group.combinations.total]
    judge = _Judge(groups, perturbations_of(replacements, problems), tagger, config)
    subsamples, too_few = _subsamples(groups, judge, config, is_ablation=pairs is not None)
    return _table(replacements, groups, subsamples), [*exclusions, *too_few], judge.fates


def combined(parts: Sequence[Perturbation]) -> Perturbation | Reason:
    """Put perturbations of one problem together, or say why that cannot be."""
    edits = [edit for part in parts for edit in part.edits]
    if len({(edit.text, edit.position) for edit in edits}) < len(edits):
        return Reason.SAME_TOKEN
    words = [{e.word.lower() for e in part.edits if e.part != ARTICLE} for part in parts]
    if len(set().union(*words)) < sum(map(len, words)):
        return Reason.SAME_WORD
    together = Perturbation(parts[0].sentences, tuple(sorted(edits)))
    return Reason.AMBIGUOUS if together.is_ambiguous() else together


class _Judge:
    """Says which combinations are valid, and counts why the others are not."""

    def __init__(
        self,
        groups: Sequence[_Group],
        perturbations: Sequence[Perturbation],
        tagger: ContextTagger,
        config: Config,
    ) -> None:
        """Judge combinations of rows of groups, each of which edits what `perturbations` says."""
        self._groups, self._perturbations = groups, perturbations
        self._tagger, self._config = tagger, config
        self.fates: Counter[Fate] = Counter()

    def __call__(self, asked: Sequence[tuple[int, int]]) -> list[bool]:
        """Return for each (group, rank) whether it is valid."""
        outcomes = [
            combined([self._perturbations[row] for row in self._groups[group].at(rank)])
            for group, rank in asked
        ]
        # Shuffled letters have no class.
        if self._config.class_filter and not self._config.scramble:
            tagged = [(n, o) for n, o in enumerate(outcomes) if isinstance(o, Perturbation)]
            reasons = reject_in_context(
                [each for _, each in tagged], self._tagger, tag_match=self._config.tag_match
            )
            for (n, each), reason in zip(tagged, reasons, strict=True):
                outcomes[n] = reason or each
        for (group, _), outcome in zip(asked, outcomes, strict=True):
            fate = outcome if isinstance(outcome, Reason) else KEPT
            self.fates[COMBINATIONS, self._groups[group].word_class, fate] += 1
        return [isinstance(outcome, Perturbation) for outcome in outcomes]


def _groups(replacements: pa.Table, k: int) -> list[_Group]:
    """Group the replacements by seed and class, then by word."""
    rows: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    names = ("seed_id", "source", "word_class", "word")
    columns = (replacements[name].to_pylist() for name in names)
    for row, (*group, word) in enumerate(zip(*columns, strict=True)):
        seed_id, source, word_class = group
        rows.setdefault((seed_id, source, word_class), {}).setdefault(word, []).append(row)
    return [
        _Group(*group, list(words.values()), Combinations([len(r) for r in words.values()], k))
        for group, words in rows.items()
    ]


def _subsamples(
    groups: Sequence[_Group], judge: _Judge, config: Config, *, is_ablation: bool
) -> tuple[dict[tuple[int, int], list[int]], list[Exclusion]]:
    """Draw the subsamples of all groups.

    Returns:
        (group, rank) → its subsamples, and who has too few combinations (D9).
    """
    scope, size = config.min_replacements_scope, config.variants_per_class
    minimum = 1 if is_ablation or scope == "word" else config.min_replacements
    walks = Walks(judge)

    def walk(group: int, subsample: int, wanted: int) -> Walk:
        mine = groups[group]
        key = f"{config.rng_seed}\n{mine.seed_id}\n{mine.word_class}\n{subsample}"
        return Walk(group, shuffled(mine.combinations.total, key), wanted)

    first = [walk(group, 0, max(minimum, size)) for group in range(len(groups))]
    walks.finish(first)
    units = [(g.seed_id, None if scope == "problem" else g.word_class) for g in groups]
    counts: Counter[tuple[str, str | None]] = Counter()
    for unit, each in zip(units, first, strict=True):
        counts[unit] += len(each.found)
    few = {unit: g for unit, g in zip(units, groups, strict=True) if counts[unit] < minimum}
    excluded = [
        group.exclusion(Reason.TOO_FEW, counts[unit], whole_seed=scope == "problem")
        for unit, group in few.items()
        if not is_ablation
    ]
    eligible_walks = [each for unit, each in zip(units, first, strict=True) if unit not in few]
    others = [
        [walk(each.group, subsample, size) for each in eligible_walks]
        for subsample in range(1, config.subsamples)
    ]
    walks.finish([each for of_subsample in others for each in of_subsample])
    drawn: dict[tuple[int, int], list[int]] = defaultdict(list)
    for subsample, of_subsample in enumerate([eligible_walks, *others]):
        for each in of_subsample:
            for rank in each.found[:size]:
                drawn[each.group, rank].append(subsample)
    return dict(sorted(drawn.items())), excluded


def _table(
    replacements: pa.Table,
    groups: Sequence[_Group],
    subsamples: Mapping[tuple[int, int], list[int]],
) -> pa.Table:
    """Return the combinations as `sampling.draw` gives variants.

    Their log-odds are the smallest of their words' (D14); the masked LMs of each text are those
    that validated one of their words there, as there may be none that validated all.
    """
    chosen = [groups[group].at(rank) for group, rank in subsamples]
    columns: dict[str, list[Any]] = {}
    for name in replacements.column_names:
        values = replacements[name].to_pylist()
        of_words = [[values[row] for row in rows] for rows in chosen]
        columns[name] = [_joined(name, each) for each in of_words]
    lists = [values for name, values in columns.items() if _is_list(name, values)]
    columns["mlm_count"] = [len(set().union(*mlms)) for mlms in zip(*lists, strict=True)]
    table = pa.table(columns, schema=replacements.schema)
    numbers = pa.array(subsamples.values(), pa.list_(pa.int32()))
    return table.append_column("subsamples", numbers)


def _is_list(name: str, values: Sequence[Any]) -> bool:
    """Tell whether a column lists masked LMs."""
    return name != FURTHER_EDITS and bool(values) and isinstance(values[0], list)


def _joined(name: str, values: Sequence[Any]) -> Any:
    """Return a column's value of a combination, from those of its words."""
    known = [value for value in values if value is not None]
    if name in ("log_odds", "zipf_frequency"):
        return min(known, default=None)
    if name in ("number_changed", "tense_changed"):
        return any(known) if known else None
    if name == FURTHER_EDITS:
        return [edit for edits in values for edit in edits]
    if isinstance(values[0], list):
        return sorted(set().union(*values))
    return " ".join(values) if name in ("word", "replacement") else values[0]


def _below(n: int, key: str) -> int:
    """Return a number below n, by a digest."""
    digest = blake2b(key.encode(), digest_size=_DIGEST_BYTES).digest()
    return int.from_bytes(digest) * n >> 8 * _DIGEST_BYTES
