"""Counts of a configuration's answers per seed, subsample, answer and group, by queries."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.schema import NLI, ProblemFormat
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.divergence import Sums, added, distribution_shift
from merge_metric.seed_variant_accuracy.inputs import Clusters, Rows
from merge_metric.seed_variant_accuracy.options import NO_LABEL

Ints = NDArray[np.int64]

_MISSING: Final = NO_LABEL - 1
"""Code of a missing prediction."""

_ROWS_AT_A_TIME: Final = 2**18
"""Approximate number of rows whose probabilities are held at a time."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ConfigAnswers:
    """The answers to a configuration: some rows of a table of answers, and its N seeds by id."""

    query: Callable[[str], pa.Table]
    """Fetches the rows of a query."""
    table: str
    seeds_in: str
    """Numbers of its files of seeds, for `IN`; likewise for variants."""
    variants_in: str
    labels: tuple[str, ...]
    merged: str
    numbers: Ints
    """Numbers of the seeds in the table `seeds`, (N,)."""
    gold: Ints
    """Gold labels in the seeds' rows, (N,)."""
    own: Ints
    """Predictions for the seeds, (N,): `NO_LABEL` for no label, `_MISSING` if missing."""
    own_shares: NDArray[np.float64]
    """Their probabilities, (N, L), or (N, 0)."""
    row_order: Ints
    """Positions in the files of seeds, (N,)."""
    n_rows: Ints
    """Number of rows of variants, answered or not, (N,)."""
    n_answered: Ints
    low: Ints
    """Lowest gold label of the variants, (N,), which should equal the highest (`high`)."""
    high: Ints
    orphans: Ints
    """Numbers of seeds that variants name but that have no row; -1 for no number."""

    @classmethod
    def of(
        cls,
        query: Callable[[str], pa.Table],
        table: str,
        seeds_in: str,
        variants_in: str,
        labels: tuple[str, ...],
        *,
        merged: str = "",
        has_probabilities: bool = False,
    ) -> "ConfigAnswers":
        """Find the seeds, and count the variants of each."""
        shares = [f"p{n}" for n in range(len(labels) if has_probabilities else 0)]
        own = query(
            f"SELECT coalesce(seed, -1) AS seed, label, coalesce(prediction, {_MISSING}) AS "
            f"prediction{''.join(f', {name}' for name in shares)} FROM {table} "
            f"WHERE file IN {seeds_in} ORDER BY file, row"
        )
        of_variants = query(
            "SELECT coalesce(seed, -1) AS seed, count(*) AS n_rows, count(answer) AS n_answered, "
            f"min(label) AS low, max(label) AS high FROM {table} WHERE file IN {variants_in} "
            "GROUP BY 1 ORDER BY 1"
        )
        row_order = np.argsort(own["seed"].to_numpy(), kind="stable")
        numbers = _ints(own["seed"])[row_order]
        seeds = _ints(of_variants["seed"])
        place = np.searchsorted(numbers, seeds)
        known = place < len(numbers)
        known[known] = numbers[place[known]] == seeds[known]

        def of_seeds(name: str, empty: int) -> Ints:
            values = np.full(len(numbers), empty, np.int64)
            values[place[known]] = _ints(of_variants[name])[known]
            return values

        columns = [own[name].to_numpy()[row_order] for name in shares]
        return cls(
            query=query,
            table=table,
            seeds_in=seeds_in,
            variants_in=variants_in,
            labels=labels,
            merged=merged,
            numbers=numbers,
            gold=_ints(own["label"])[row_order],
            own=_ints(own["prediction"])[row_order],
            own_shares=np.stack(columns, axis=1) if columns else np.zeros((len(numbers), 0)),
            row_order=row_order,
            n_rows=of_seeds("n_rows", 0),
            n_answered=of_seeds("n_answered", 0),
            low=of_seeds("low", -1),
            high=of_seeds("high", -1),
            orphans=seeds[~known],
        )

    @property
    def is_complete(self) -> NDArray[np.bool_]:
        """Whether no prediction is missing, (N,)."""
        complete: NDArray[np.bool_] = (self.own != _MISSING) & (self.n_answered == self.n_rows)
        return complete

    @property
    def variants(self) -> str:
        """SQL for the rows of variants of complete seeds, for `FROM`."""
        incomplete = self.numbers[~self.is_complete].tolist()
        kept = f" AND seed NOT IN ({', '.join(map(str, incomplete))})" if incomplete else ""
        return f"(FROM {self.table} WHERE file IN {self.variants_in}{kept})"

    @property
    def places(self) -> Ints:
        """Array from numbers of seeds to positions among the complete seeds; -1 for others."""
        complete = self.numbers[self.is_complete]
        places = np.full(self.numbers.max(initial=0) + 1, -1)
        places[complete] = np.arange(len(complete))
        return places

    def count(
        self, grouped: Sequence[str], clusters: Clusters | None
    ) -> tuple[SeedCounts | None, Ints, dict[str, dict[str, SeedCounts]]]:
        """Count variants of complete seeds: all, by answer (as `Frame.answers`), and by group.

        The first counts are None if the dataset contradicts itself.
        """
        complete = self.is_complete
        own, gold, n_seeds = self.own[complete], self.low[complete], int(complete.sum())
        has_subsamples, is_odd = self._subsamples()
        names = self.query("SELECT seed_id FROM seeds ORDER BY seed")["seed_id"]
        ids = tuple(names.take(pa.array(self.numbers[complete])).to_pylist())

        tally = partial(self._tally, has_subsamples=has_subsamples)
        # If each variant has one value of a group, that tally also serves for all variants.
        tallies = {
            name: tally(f'unnest(list_distinct("{name}"))' if is_list(name) else f'"{name}"')
            for name in grouped
        }
        whole = next((rows for name, (_, rows) in tallies.items() if not is_list(name)), None)
        rows = whole or tally("NULL")[1]
        subsamples = np.unique(rows["subsample"])
        shape = (n_seeds, max(1, len(subsamples)), len(self.labels) + 1)  # last code: no label

        def counts_of(rows: Mapping[str, Any]) -> tuple[SeedCounts, Ints]:
            code = np.searchsorted(subsamples, rows["subsample"])
            cell = np.ravel_multi_index((rows["place"], code, rows["prediction"] % shape[2]), shape)
            of_cells, of_rows = (
                np.bincount(cell, rows[name], math.prod(shape)).astype(np.int64).reshape(shape)
                for name in ("n", "n_rows")
            )
            by_answer = of_rows.sum(axis=1)
            counts = SeedCounts.of_tally(
                of_cells,
                labels=self.labels,
                has_subsamples=has_subsamples,
                seed_ids=ids,
                gold=gold,
                own=own,
                n_rows=by_answer.sum(axis=1),
                clusters=clusters,
                merged=self.merged,
            )
            return counts, by_answer

        counts, by_answer = counts_of(rows)
        contradictory = is_odd or (self.low != self.high)[complete].any()
        if contradictory or (counts.n_variants == 0).any():
            return None, by_answer, {}
        groups: dict[str, dict[str, SeedCounts]] = {}
        del whole, rows
        for name in grouped:
            values, of_group = tallies.pop(name)  # to free memory
            groups[name] = {}
            for value, code in sorted((v, n) for n, v in enumerate(values) if v is not None):
                chosen = of_group["value"] == code
                part, _ = counts_of({key: column[chosen] for key, column in of_group.items()})
                has_rows = part.n_rows > 0
                groups[name][value] = part if has_rows.all() else part.take(has_rows)
        return counts, by_answer, groups

    def _subsamples(self) -> tuple[bool, bool]:
        """Return whether there are subsamples, and whether they or answers are odd."""
        (signs,) = self.query(
            "SELECT coalesce(max(len(subsamples)), 0) AS longest, "
            f"coalesce(bool_or(list_min(subsamples) < 0), false) AS odd FROM {self.variants}"
        ).to_pylist()
        is_odd: bool = signs["odd"]
        if signs["longest"] > 1:
            again = "len(list_distinct(subsamples)) < len(subsamples)"
            repeated = self.query(f"SELECT 1 FROM {self.variants} WHERE {again} LIMIT 1")
            is_odd |= len(repeated) > 0
        used = self.query(f"SELECT answer FROM {self.variants}")["answer"].to_numpy()
        is_odd |= bool((np.bincount(used) > 1).any())
        return signs["longest"] > 0, is_odd

    def _tally(
        self, values: str, *, has_subsamples: bool
    ) -> tuple[list[str | None], dict[str, Any]]:
        """Count by value, place, subsample and prediction: values, and columns.

        `value` is a position among the values, `n` a count in a subsample, `n_rows` one of
        variants whose first subsample it is.
        """
        drawn, subsample, is_first = "true", "0", "true"
        if has_subsamples:
            drawn, subsample = "len(subsamples) > 0", "unnest(subsamples)"
            is_first = "subsample = subsamples[1]"
        rows = self.query(
            "SELECT value, seed, subsample, prediction, count(*) AS n, "
            f"count(*) FILTER ({is_first}) AS n_rows FROM (SELECT *, {subsample} AS subsample "
            f"FROM (SELECT {values} AS value, seed, prediction, subsamples "
            f"FROM {self.variants} WHERE {drawn})) GROUP BY ALL"
        )
        value = rows["value"].combine_chunks().dictionary_encode(null_encoding="encode")
        columns = {name: rows[name].to_numpy() for name in rows.column_names[2:]}
        columns |= {
            "value": value.indices.to_numpy(),
            "place": self.places[rows["seed"].to_numpy()],
        }
        return value.dictionary.to_pylist(), columns

    def shift(self, counts: SeedCounts) -> Sums:
        """Sum divergences over the variants of seeds answered right; see `distribution_shift`."""
        complete, places = self.is_complete, self.places
        before = _scaled(self.own_shares[complete].T)
        numbers = [*self.numbers[complete].tolist(), len(places)]
        drawn = "len(subsamples) > 0" if counts.has_subsamples else "true"
        shares = [f"p{n}" for n in range(len(self.labels))]
        steps = max(1, -(-int(counts.n_rows.sum()) // _ROWS_AT_A_TIME))
        ends = np.linspace(0, len(numbers) - 1, steps + 1).astype(int).tolist()
        parts = []
        for start, end in pairwise(ends):
            rows = self.query(
                f"SELECT seed, prediction, {', '.join(shares)} FROM {self.variants} WHERE {drawn} "
                f"AND seed >= {numbers[start]} AND seed < {numbers[end]} ORDER BY file, row"
            )
            place = places[rows["seed"].to_numpy()]
            kept = np.flatnonzero(counts.right[place])
            place = place[kept]
            after = np.stack([rows[name].to_numpy()[kept] for name in shares])
            parts.append(
                distribution_shift(
                    np.take(before, place, axis=1).T,
                    _scaled(after).T,
                    place,
                    rows["prediction"].to_numpy()[kept] != counts.own[place],
                )
            )
        return added(parts)

    def rows(self, counts: SeedCounts, grouped: Sequence[str]) -> tuple[Rows, dict[str, Any]]:
        """List the variants of complete seeds in the dataset's order, and make `Frame.values`.

        `place` in the values is their position in the files of variants.
        """
        wanted = [f'"{name}" AS value_{n}' for n, name in enumerate(grouped)]
        table = self.query(
            f"SELECT {', '.join(['seed', 'prediction', 'subsamples', *wanted])} "
            f"FROM {self.table} WHERE file IN {self.variants_in} ORDER BY file, row"
        )
        place = self.places[table["seed"].to_numpy()]
        number = np.flatnonzero(place >= 0)
        table = table.take(pa.array(number))
        values = {name: table[f"value_{n}"].to_pylist() for n, name in enumerate(grouped)}
        lists = table["subsamples"].combine_chunks()
        sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        draw_row = np.arange(len(table))
        draw_subsample = np.zeros(len(table), np.int64)
        if counts.has_subsamples:
            draw_row = np.repeat(draw_row, sizes)
            drawn = pc.list_flatten(lists).to_numpy()
            draw_subsample = np.searchsorted(np.unique(drawn), drawn)
        rows = Rows(
            labels=counts.labels,
            seed_ids=counts.seed_ids,
            gold=counts.gold,
            own=counts.own,
            seed=place[number],
            prediction=_ints(table["prediction"]),
            draw_row=draw_row,
            draw_subsample=draw_subsample,
            n_subsamples=counts.n_variants.shape[1] if counts.has_subsamples else None,
            clusters=counts.clusters,
            merged=counts.merged,
        )
        return rows, {**values, "place": number}


def _ints(column: pa.ChunkedArray) -> Ints:
    values: Ints = column.to_numpy().astype(np.int64)
    return values


def _scaled(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    scaled: NDArray[np.float64] = shares / shares.sum(axis=0)
    return scaled


# --- Groups of variants ---


def groupings(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """List the columns of the dataset by which variants can be grouped."""
    return "word_class", "mlms", *problem_format.mlms, "original", "replacement"


def is_list(name: str) -> bool:
    """Return whether a row can have several values of a grouping."""
    return name.endswith("mlms")
