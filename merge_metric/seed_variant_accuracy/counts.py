"""Counts per seed, from which alone all figures are made, of all variants and of groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .inputs import Ints, Rows, Seeds, require_same_length
from .options import NO_LABEL, check_opposites

_PER_SEED: Final = (
    "gold", "own", "n_rows", "n_variants", "n_correct", "n_changed", "n_opposite", "n_commonest",
    "n_unlabelled",
)  # fmt: skip
"""Arrays of `SeedCounts`."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SeedCounts(Seeds):
    """Counts of S seeds in K subsamples (K = 1 where rows came without subsamples)."""

    n_rows: Ints
    """(S,) distinct variants over all subsamples."""
    n_variants: Ints
    """(S, K) 0 where the seed has none in that subsample."""
    n_correct: Ints
    """(S, K) predicted as the gold label."""
    n_changed: Ints
    """(S, K) predicted differently from the seed's own prediction."""
    n_opposite: Ints
    """(S, K) changed to the opposite of the seed's own prediction; where that has no
    opposite, as neutral has none, all that changed (papers/Arakelyan et al. 2024, 3.3)."""
    n_commonest: Ints
    """(S, K) predicted as the label that most of them are predicted as, right or wrong."""
    n_unlabelled: Ints
    """(S, K) answered without a label: changed, but to no opposite, and as no other answer."""

    @property
    def right(self) -> NDArray[np.bool_]:
        """(S,) whether the seed's own prediction is the gold label."""
        return np.asarray(self.own == self.gold)

    @property
    def present(self) -> NDArray[np.bool_]:
        """(S, K) whether the seed has variants there."""
        return self.n_variants > 0

    @property
    def level(self) -> Ints:
        """(S, K) the largest CT of 0..100 at which the seed counts as right, in integers.

        `100 * n_correct >= CT * n_variants` holds exactly for the CTs up to this one.
        """
        return 100 * self.n_correct // self.divisor

    @property
    def divisor(self) -> Ints:
        """(S, K) number of variants, 1 where there are none."""
        return np.maximum(self.n_variants, 1)

    @property
    def without_label(self) -> dict[str, float]:
        """Answers that name no label: `seeds`, `variants` of a subsample, `share` of all answers.

        Empty where there are none.
        """
        seeds = int((self.own == NO_LABEL).sum())
        variants = float(self.n_unlabelled.sum(axis=0).mean())
        if not seeds and not variants:
            return {}
        answers = len(self.own) + float(self.n_variants.sum(axis=0).mean())
        return {"seeds": seeds, "variants": variants, "share": (seeds + variants) / answers}

    @property
    def variants_per_seed(self) -> dict[str, list[float]]:
        """Count, by number of variants, the seeds of a subsample."""
        sizes, times = np.unique(self.n_variants[self.present], return_counts=True)
        mean = times / self.n_variants.shape[1]
        return {"variants": sizes.tolist(), "seeds": mean.tolist()}

    def of_subsample(self, k: int) -> SeedCounts:
        """Return the counts of one subsample: arrays are (S,)."""
        arrays = {name: getattr(self, name) for name in _PER_SEED}
        return replace(self, **{name: a[:, k] for name, a in arrays.items() if a.ndim > 1})

    def take(self, keep: NDArray[np.bool_] | NDArray[np.intp]) -> SeedCounts:
        """Keep the counts of some seeds: under a mask, (S,), or at positions, in their order."""
        arrays = {name: getattr(self, name)[keep] for name in _PER_SEED}
        ids = tuple(np.asarray(self.seed_ids, object)[keep].tolist())
        clusters = self.clusters and replace(self.clusters, code=self.clusters.code[keep])
        return replace(self, seed_ids=ids, clusters=clusters, **arrays)

    @classmethod
    def of_tally(
        cls, tally: Ints, opposites: Iterable[Sequence[str]] | None = None, **known: Any
    ) -> SeedCounts:
        """Make counts of a tally of answers, and the fields `known` that a tally does not give.

        The tally, (S, K, L + 1), counts variants of each seed in each subsample by the label
        predicted; the last ones are those without a label.
        """
        labels, gold, own = known["labels"], known["gold"], known["own"]
        is_opposite = opposite_table(labels, check_opposites(opposites, labels))
        total, labelled = tally.sum(axis=2), tally[..., : len(labels)]
        row, has_label = np.arange(len(gold)), own != NO_LABEL
        return cls(
            **known,
            n_variants=total,
            n_correct=tally[row, :, gold],
            n_changed=total - tally[row, :, own] * has_label[:, None],
            n_opposite=np.einsum(
                "skl,sl->sk", labelled, (is_opposite[own] & has_label[:, None]).astype(np.int64)
            ),
            n_commonest=labelled.max(axis=2),
            n_unlabelled=tally[..., len(labels)],
        )


def count(
    rows: Rows, opposites: Iterable[Sequence[str]] | None = None, draws: Ints | None = None
) -> SeedCounts:
    """Count the variants of each seed in each subsample.

    `draws` are ascending positions in `rows.draw_row`, by default all; seeds without any are left
    out.
    """
    shape = (len(rows.seed_ids), rows.n_subsamples or 1, len(rows.labels) + 1)
    n_seeds, n_subsamples, n_answers = shape
    part = slice(None) if draws is None else draws
    row, subsample = rows.draw_row[part], rows.draw_subsample[part]
    seed, prediction = rows.seed[row], rows.prediction[row] % n_answers  # without a label the last
    cell = seed * n_subsamples + subsample
    is_first = np.diff(row, prepend=-1) > 0  # of the draws of its row
    tally = np.bincount(cell * n_answers + prediction, minlength=math.prod(shape)).reshape(shape)
    counts = SeedCounts.of_tally(
        tally, opposites, n_rows=np.bincount(seed[is_first], minlength=n_seeds), **rows.as_known
    )
    return counts if draws is None else counts.take(counts.n_rows > 0)


def opposite_table(
    labels: tuple[str, ...], opposites: tuple[tuple[str, str], ...]
) -> NDArray[np.bool_]:
    """Tabulate, (L, L), whether a change from the row's label to the column's is strict.

    >>> opposite_table(("e", "n", "c"), (("e", "c"),)).astype(int).tolist()
    [[0, 0, 1], [1, 0, 1], [1, 0, 0]]
    """
    table = ~np.eye(len(labels), dtype=bool)
    for pair in opposites:
        first, second = (labels.index(label) for label in pair)
        table[[first, second]] = False
        table[first, second] = table[second, first] = True
    return table


# --- Groups of variants ---


def count_groups(
    rows: Rows, name: str, values: Sequence[Any], opposites: tuple[tuple[str, str], ...]
) -> dict[str, SeedCounts]:
    """Count the variants with each value of a column, over the seeds that have some.

    A row has a value, or a list of values, under each of which it counts; None for none. Counts are
    in the order of the values' text, without values of which no subsample drew a row.
    """
    require_same_length({f"groups[{name!r}]": values, "seed_ids": rows.seed})
    rows_of: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        several = value if isinstance(value, list | tuple | set | np.ndarray) else (value,)
        for text in {str(one) for one in several if one is not None and one == one}:  # NaN is not
            rows_of.setdefault(text, []).append(row)
    # The draws of a row stand together: from its start to that of the next row.
    starts = np.searchsorted(rows.draw_row, np.arange(len(rows.seed) + 1))
    groups = {}
    for value, own in sorted(rows_of.items()):
        first = starts[own]
        times = starts[np.add(own, 1)] - first
        draws = np.repeat(first - (np.cumsum(times) - times), times) + np.arange(times.sum())
        if len(draws):
            groups[value] = count(rows, opposites, draws)
    return groups
