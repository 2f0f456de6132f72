"""Several shared words of a class replaced at once: the paper's k words.

A variant is a replacement each of k different words of a seed and class. Combinations are not
listed but walked through in a keyed order, and judged where somebody comes along (D8 with all
of the words in place).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from generation.config import Config
from generation.records import Exclusion
from generation.variants.adaptation import keys_of
from generation.variants.changes import AMBIGUOUS, ARTICLE, COMBINATIONS, Fate, Variation, fates
from generation.variants.combinations import Combinations, Walk, Walks, shuffled
from generation.variants.funnel import KEPT
from generation.variants.sampling import TOO_FEW, eligible, of_pairs

if TYPE_CHECKING:
    from generation.variants.validation import ContextTagger

TOO_FEW_WORDS: Final = "too_few_words"
"""A seed has fewer words of a class with replacements than are to be replaced at once."""
SAME_TOKEN: Final = "same_token"
"""Two of the words are of one family, which each would replace."""
SAME_WORD: Final = "same_word"
"""Two of the words would become the same one."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Variants in which k words are replaced."""

    variants: pa.Table
    """As `sampling.draw` gives them, without a word of their own; the next says what changes."""
    variations: list[Variation]
    exclusions: list[Exclusion]
    fates: Counter[Fate]
    """Of the combinations that were looked at."""


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
        """The rows of a combination."""
        return [self.words[word][member] for word, member in self.combinations.at(rank)]

    def exclusion(self, reason: str, count: int | None, *, whole_seed: bool = False) -> Exclusion:
        """The class of the seed, or all of it, is left out."""
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
    variations: Sequence[Variation],
    tagger: ContextTagger,
    config: Config,
    *,
    pairs: pa.Table | None = None,
) -> Drawn:
    """Draw each subsample: combinations of k replacements (D9, D10).

    Each (rng_seed, seed, class, subsample) has an order of the combinations of its own, all
    orders being equally likely; the subsample is what is valid of it, up to its size. So
    every set of so many valid combinations is as likely as every other. A seed is eligible by
    the number of valid ones, which are counted up to the number needed.

    Args:
        replacements: Sorted, each by its word alone.
        variations: [replacements] What each changes.
        tagger: Judges classes in context (D8).
        config: How many words, eligibility, subsamples.
        pairs: In an ablation the (seed, class) that are eligible without it.
    """
    of_key = dict(zip(keys_of(replacements), variations, strict=True))
    exclusions: list[Exclusion] = []
    if pairs is not None:
        replacements = of_pairs(replacements, pairs)
    elif config.min_replacements_scope == "word":
        replacements, exclusions = eligible(
            replacements, minimum=config.min_replacements, scope="word"
        )
    every = _groups(replacements, config.words_at_once)
    exclusions += [g.exclusion(TOO_FEW_WORDS, None) for g in every if not g.combinations.total]
    groups = [group for group in every if group.combinations.total]
    judge = _Judge(groups, [of_key[key] for key in keys_of(replacements)], tagger, config)
    subsamples, too_few = _subsamples(groups, judge, config, is_ablation=pairs is not None)
    return Drawn(
        _table(replacements, groups, subsamples),
        [judge.variation(*key) for key in subsamples],
        [*exclusions, *too_few],
        judge.fates,
    )


def combined(parts: Sequence[Variation]) -> Variation | str:
    """Variations of one problem put together, or why they cannot be."""
    changes = [change for part in parts for change in part.changes]
    if len({(change.text, change.position) for change in changes}) < len(changes):
        return SAME_TOKEN
    words = [{c.word.lower() for c in part.changes if c.part != ARTICLE} for part in parts]
    if len(set().union(*words)) < sum(map(len, words)):
        return SAME_WORD
    together = Variation(parts[0].sentences, tuple(sorted(changes)))
    return AMBIGUOUS if together.is_ambiguous() else together


class _Judge:
    """Says which combinations are valid, and counts why the others are not."""

    def __init__(
        self,
        groups: Sequence[_Group],
        variations: Sequence[Variation],
        tagger: ContextTagger,
        config: Config,
    ) -> None:
        """Of groups of rows, each of which changes what `variations` says."""
        self._groups, self._variations = groups, variations
        self._tagger, self._config = tagger, config
        self.fates: Counter[Fate] = Counter()

    def variation(self, group: int, rank: int) -> Variation:
        """What a combination changes.

        Raises:
            ValueError: it cannot be put together.
        """
        together = self._combined(group, rank)
        if isinstance(together, str):
            raise ValueError(f"expected a valid combination, got one with a {together}")
        return together

    def __call__(self, asked: Sequence[tuple[int, int]]) -> list[bool]:
        """For each (group, rank) whether it is valid."""
        outcomes: list[Variation | str] = [self._combined(*key) for key in asked]
        # Shuffled letters have no class.
        if self._config.class_filter and not self._config.scramble:
            tagged = [(n, o) for n, o in enumerate(outcomes) if isinstance(o, Variation)]
            reasons = fates(
                [each for _, each in tagged], self._tagger, tag_match=self._config.tag_match
            )
            for (n, each), reason in zip(tagged, reasons, strict=True):
                outcomes[n] = reason or each
        for (group, _), outcome in zip(asked, outcomes, strict=True):
            fate = outcome if isinstance(outcome, str) else KEPT
            self.fates[COMBINATIONS, self._groups[group].word_class, fate] += 1
        return [isinstance(outcome, Variation) for outcome in outcomes]

    def _combined(self, group: int, rank: int) -> Variation | str:
        return combined([self._variations[row] for row in self._groups[group].at(rank)])


def _groups(replacements: pa.Table, k: int) -> list[_Group]:
    """The replacements by seed and class, then by word."""
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
    """Draw them.

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
        group.exclusion(TOO_FEW, counts[unit], whole_seed=scope == "problem")
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
    """The combinations as `sampling.draw` gives variants.

    Their log-odds are the smallest of their words' (D14); the masked LMs of each text are those
    that validated one of their words there, as there may be none that validated all.
    """
    chosen = [groups[group].at(rank) for group, rank in subsamples]
    columns: dict[str, list[Any]] = {}
    for name in replacements.column_names:
        values = replacements[name].to_pylist()
        of_words = [[values[row] for row in rows] for rows in chosen]
        columns[name] = [_joined(name, each) for each in of_words]
    lists = [values for values in columns.values() if values and isinstance(values[0], list)]
    columns["mlm_count"] = [len(set().union(*mlms)) for mlms in zip(*lists, strict=True)]
    table = pa.table(columns, schema=replacements.schema)
    numbers = pa.array(subsamples.values(), pa.list_(pa.int32()))
    return table.append_column("subsamples", numbers)


def _joined(name: str, values: Sequence[Any]) -> Any:
    """A column's value of a combination, from those of its words."""
    known = [value for value in values if value is not None]
    if name in ("log_odds", "zipf_frequency"):
        return min(known, default=None)
    if name in ("number_changed", "tense_changed"):
        return any(known) if known else None
    if isinstance(values[0], list):
        return sorted(set().union(*values))
    return " ".join(values) if name in ("word", "replacement") else values[0]
