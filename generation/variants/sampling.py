"""Eligibility and sampling: seeds with enough replacements (D9), and the subsamples (D10).

Combinations of several words at once are never listed, as there may be very many: each is computed
from its rank, in a keyed order, and judged when it is reached (D8).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b, shake_128
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from generation.config import Config
from generation.problems.shared_words import TaggedProblems
from generation.problems.tagging import Tagger
from generation.reasons import KEPT, Reason
from generation.records import REPLACEMENT_KEY, Exclusion, groups_of, lists_of
from generation.variants.adaptation import Fate
from generation.variants.perturbations import (
    ARTICLE,
    FURTHER_EDITS,
    Perturbation,
    perturbations_of,
    reject_in_context,
)

COMBINATIONS: Final = "combinations"
"""The kind of `Fate` that is about combinations of replacements."""

_DIGEST_BYTES: Final = 32

Member = tuple[int, int]
"""Number of a set, and number of a member of it."""
Combination = tuple[int, int]
"""Number of the group (the replacements of a seed and class), rank of the combination."""
Walk = tuple[int, Iterator[int], int]
"""Number of the group, ranks in the order of the walk, and number of valid ones wanted."""

_UNITS: Final = {
    "class": ("seed_id", "word_class"),
    "problem": ("seed_id",),
    "word": ("seed_id", "word_class", "word"),
}
"""Scope → columns by which replacements are grouped for counting."""


def eligible(
    replacements: pa.Table, *, minimum: int, scope: str
) -> tuple[pa.Table, list[Exclusion]]:
    """Keep replacements of each class, problem or word with `minimum` (D9); list the others."""
    _, first, unit, counts = np.unique(
        groups_of(replacements, _UNITS[scope]),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    kept = replacements.filter(pa.array(counts[unit] >= minimum))
    few = np.sort(first[counts < minimum])
    names = ("source", *_UNITS[scope])
    left_out = replacements.take(few).select(names).to_pylist()
    return kept, [
        Exclusion(**row, reason=Reason.TOO_FEW, replacements=int(count))
        for row, count in zip(left_out, counts[unit[few]], strict=True)
    ]


def of_pairs(replacements: pa.Table, pairs: pa.Table) -> pa.Table:
    """Return the replacements of given (seed, class) pairs, in order."""
    wanted = set(zip(*(pairs[name].to_pylist() for name in _UNITS["class"]), strict=True))
    mine = zip(*(replacements[name].to_pylist() for name in _UNITS["class"]), strict=True)
    return replacements.filter(pa.array([pair in wanted for pair in mine], pa.bool_()))


def draw(replacements: pa.Table, *, subsamples: int, size: int, rng_seed: int) -> pa.Table:
    """Draw each subsample: `size` replacements per seed and class, without repetition (D10).

    In each subsample a replacement has a key, a hash of (rng_seed, seed_id, class, word,
    replacement), and the replacements with the smallest keys are drawn. So if one is taken away,
    at most one other takes its place in each subsample. Returns the drawn replacements, sorted by
    `REPLACEMENT_KEY`, with a column `subsamples` of numbers from 0.
    """
    members = replacements.sort_by([(name, "ascending") for name in REPLACEMENT_KEY])
    is_first = np.diff(groups_of(members, _UNITS["class"]), prepend=-1) != 0
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


# --- Several words at once ---


@dataclass(frozen=True)
class Combinations:
    """Ways to choose k of some sets, and one member of each."""

    sizes: Sequence[int]
    k: int

    @property
    def total(self) -> int:
        """Number of combinations: the k-th elementary symmetric polynomial of the sizes.

        >>> Combinations((2, 3, 4), 2).total  # 2·3 + 2·4 + 3·4
        26
        """
        return self._beyond[0][self.k]

    def at(self, rank: int) -> tuple[Member, ...]:
        """Return the combination of a rank, 0 ≤ rank < total; every rank has a different one.

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
        """[sets + 1][k + 1] Entry [i][n]: number of combinations of n of the sets from i on."""
        ways = [[1] + [0] * self.k]
        for size in reversed(self.sizes):
            after = ways[-1]
            ways.append([1] + [after[n] + size * after[n - 1] for n in range(1, self.k + 1)])
        return ways[::-1]


def shuffled(n: int, key: str) -> Iterator[int]:
    """Yield 0 to n − 1 lazily, in an order shuffled (Fisher and Yates) by the key alone."""
    moved: dict[int, int] = {}
    for i in range(n):
        digest = blake2b(f"{key}\n{i}".encode(), digest_size=_DIGEST_BYTES).digest()
        j = i + (int.from_bytes(digest) * (n - i) >> 8 * _DIGEST_BYTES)
        first = moved.pop(i, i)
        chosen = first if i == j else moved.get(j, j)
        if i != j:
            moved[j] = first
        yield chosen


def first_valid(
    walks: Sequence[Walk],
    judge: Callable[[Sequence[Combination]], Sequence[bool]],
    known: dict[Combination, bool],
) -> list[list[int]]:
    """Return [walks] the first ranks of valid combinations; `known` caches judgements."""
    found: list[list[int]] = [[] for _ in walks]
    while asked := [
        (mine, group, ranks)
        for mine, (group, order, wanted) in zip(found, walks, strict=True)
        if (ranks := list(islice(order, wanted - len(mine))))
    ]:
        keys = dict.fromkeys((group, rank) for _, group, ranks in asked for rank in ranks)
        new = [key for key in keys if key not in known]
        known.update(zip(new, judge(new), strict=True))
        for mine, group, ranks in asked:
            mine += [rank for rank in ranks if known[group, rank]]
    return found


@dataclass(frozen=True, slots=True)
class _Group:
    seed_id: str
    source: str
    word_class: str
    words: list[list[int]]
    """Rows of the replacements of each word."""
    combinations: Combinations

    def at(self, rank: int) -> list[int]:
        """Return the rows of a combination."""
        return [self.words[word][member] for word, member in self.combinations.at(rank)]


def draw_several(
    replacements: pa.Table,
    problems: TaggedProblems,
    tagger: Tagger,
    config: Config,
    *,
    pairs: pa.Table | None = None,
) -> tuple[pa.Table, list[Exclusion], Counter[Fate]]:
    """Draw each subsample: combinations of k replacements (D9, D10).

    Each (rng_seed, seed, class, subsample) has its own order of the combinations, all orders being
    equally likely. The subsample is the first valid combinations in it, up to its size. A seed is
    eligible by its number of valid ones, counted up to the number needed. Returns variants as
    `draw` does, the exclusions, and the fates of the combinations judged.
    """
    exclusions: list[Exclusion] = []
    if pairs is not None:
        replacements = of_pairs(replacements, pairs)
    elif config.min_replacements_scope == "word":
        replacements, exclusions = eligible(
            replacements, minimum=config.min_replacements, scope="word"
        )
    members: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    names = ("seed_id", "source", "word_class", "word")
    columns = (replacements[name].to_pylist() for name in names)
    for row, (seed_id, source, word_class, word) in enumerate(zip(*columns, strict=True)):
        of_group = members.setdefault((seed_id, source, word_class), {})
        of_group.setdefault(word, []).append(row)
    groups = []
    for (seed_id, source, word_class), words in members.items():
        ways = Combinations([len(rows) for rows in words.values()], config.words_at_once)
        if ways.total:
            groups.append(_Group(seed_id, source, word_class, list(words.values()), ways))
        else:
            reason = Reason.TOO_FEW_WORDS
            exclusions.append(Exclusion(seed_id, source, reason, word_class=word_class))
    perturbations = perturbations_of(replacements, problems)
    fates: Counter[Fate] = Counter()

    def judge(asked: Sequence[Combination]) -> list[bool]:
        outcomes = [
            combined([perturbations[row] for row in groups[group].at(rank)])
            for group, rank in asked
        ]
        # Shuffled letters have no class.
        if config.class_filter and not config.scramble:
            tagged = [(n, o) for n, o in enumerate(outcomes) if isinstance(o, Perturbation)]
            reasons = reject_in_context(
                [each for _, each in tagged], tagger, tag_match=config.tag_match
            )
            for (n, each), reason in zip(tagged, reasons, strict=True):
                outcomes[n] = reason or each
        for (group, _), outcome in zip(asked, outcomes, strict=True):
            fate = outcome if isinstance(outcome, Reason) else KEPT
            fates[COMBINATIONS, groups[group].word_class, fate] += 1
        return [isinstance(outcome, Perturbation) for outcome in outcomes]

    subsamples, too_few = _subsamples(groups, judge, config, is_ablation=pairs is not None)
    chosen = [groups[group].at(rank) for group, rank in subsamples]
    of_rows: dict[str, list[Any]] = {}
    for name in replacements.column_names:
        values = replacements[name].to_pylist()
        of_rows[name] = [_joined(name, [values[row] for row in rows]) for rows in chosen]
    lists = [v for name, v in of_rows.items() if v and isinstance(v[0], list)
             and name != FURTHER_EDITS]  # fmt: skip
    of_rows["mlm_count"] = [len(set().union(*mlms)) for mlms in zip(*lists, strict=True)]
    numbers = pa.array(subsamples.values(), pa.list_(pa.int32()))
    table = pa.table(of_rows, schema=replacements.schema).append_column("subsamples", numbers)
    return table, [*exclusions, *too_few], fates


def combined(parts: Sequence[Perturbation]) -> Perturbation | Reason:
    """Combine perturbations of one problem, or return the reason why they cannot be combined."""
    edits = [edit for part in parts for edit in part.edits]
    if len({(edit.text, edit.position) for edit in edits}) < len(edits):
        return Reason.SAME_TOKEN
    words = [{e.word.lower() for e in part.edits if e.part != ARTICLE} for part in parts]
    if len(set().union(*words)) < sum(map(len, words)):
        return Reason.SAME_WORD
    together = Perturbation(parts[0].sentences, tuple(sorted(edits)))
    return Reason.AMBIGUOUS if together.is_ambiguous() else together


def _subsamples(
    groups: Sequence[_Group],
    judge: Callable[[Sequence[Combination]], list[bool]],
    config: Config,
    *,
    is_ablation: bool,
) -> tuple[dict[Combination, list[int]], list[Exclusion]]:
    """Map each drawn (group, rank) to its subsamples; list units with too few combinations (D9)."""
    scope, size = config.min_replacements_scope, config.variants_per_class
    minimum = 1 if is_ablation or scope == "word" else config.min_replacements
    known: dict[Combination, bool] = {}

    def walk(group: int, subsample: int, wanted: int) -> Walk:
        mine = groups[group]
        key = f"{config.rng_seed}\n{mine.seed_id}\n{mine.word_class}\n{subsample}"
        return group, shuffled(mine.combinations.total, key), wanted

    first = [walk(group, 0, max(minimum, size)) for group in range(len(groups))]
    of_first = first_valid(first, judge, known)
    units = [(g.seed_id, None if scope == "problem" else g.word_class) for g in groups]
    counts: Counter[tuple[str, str | None]] = Counter()
    for unit, ranks in zip(units, of_first, strict=True):
        counts[unit] += len(ranks)
    few = {unit: g for unit, g in zip(units, groups, strict=True) if counts[unit] < minimum}
    excluded = [
        Exclusion(group.seed_id, group.source, Reason.TOO_FEW, counts[unit], word_class=unit[1])
        for unit, group in few.items()
        if not is_ablation
    ]
    eligible_groups = [group for group, unit in enumerate(units) if unit not in few]
    others = [
        walk(group, subsample, size)
        for subsample in range(1, config.subsamples)
        for group in eligible_groups
    ]
    found = [of_first[group] for group in eligible_groups] + first_valid(others, judge, known)
    drawn: dict[Combination, list[int]] = defaultdict(list)
    for n, ranks in enumerate(found):
        subsample, place = divmod(n, len(eligible_groups))
        for rank in ranks[:size]:
            drawn[eligible_groups[place], rank].append(subsample)
    return dict(sorted(drawn.items())), excluded


def _joined(name: str, values: Sequence[Any]) -> Any:
    """Combine the words' values of a column: the smallest log-odds (D14), all masked LMs."""
    known = [value for value in values if value is not None]
    if name in ("log_odds", "zipf_frequency"):
        return min(known, default=None)
    if name in ("number_changed", "tense_changed"):
        return any(known) if known else None
    if name in ("mean_rank", "neighbour_change"):
        return None
    if name == FURTHER_EDITS:
        return [edit for edits in values for edit in edits]
    if isinstance(values[0], list):
        return sorted(set().union(*values))
    return " ".join(values) if name in ("word", "replacement") else values[0]
