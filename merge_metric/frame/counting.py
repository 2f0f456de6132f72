"""Counts of a configuration's answers per seed, subsample, answer and group, by queries."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.schema import NLI, ProblemFormat
from merge_metric.frame.answer_table import PredictionRows
from merge_metric.frame.relations import fetch
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.divergence import Sums, added, distribution_shift
from merge_metric.seed_variant_accuracy.inputs import Clusters, Rows
from merge_metric.seed_variant_accuracy.options import NO_LABEL

Ints = NDArray[np.int64]

_MISSING: Final = NO_LABEL - 1
"""Code of a missing prediction."""

_ROWS_AT_A_TIME: Final = 2**18
"""Approximate number of rows whose probabilities are held at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class ConfigSeeds:
    """The N seeds of a configuration, in the order of their ids."""

    numbers: Ints
    """Numbers in the table `seeds`, (N,)."""
    gold: Ints
    """Gold labels in the seeds' rows, (N,)."""
    own: Ints
    """Predictions for the seeds, (N,): `NO_LABEL` for no label, `_MISSING` if missing."""
    answers: Ints
    """Numbers of these predictions, (N,)."""
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

    @property
    def is_complete(self) -> NDArray[np.bool_]:
        """Whether no prediction is missing, (N,)."""
        complete: NDArray[np.bool_] = (self.own != _MISSING) & (self.n_answered == self.n_rows)
        return complete

    @property
    def places(self) -> Ints:
        """Array from numbers of seeds to positions among the complete seeds; -1 for others."""
        complete = self.numbers[self.is_complete]
        places = np.full(self.numbers.max(initial=0) + 1, -1)
        places[complete] = np.arange(len(complete))
        return places


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ConfigAnswers:
    """The answers to a configuration: a part of the rows of a table of answers."""

    connection: duckdb.DuckDBPyConnection
    table: str
    seeds_in: str
    """Numbers of its files of seeds, for `IN`; likewise for variants."""
    variants_in: str
    predictions: PredictionRows

    @property
    def variants(self) -> str:
        """SQL for the rows of variants, for `FROM`."""
        return f"(FROM {self.table} WHERE file IN {self.variants_in})"

    def seeds(self) -> ConfigSeeds:
        """Find the seeds, and count the variants of each."""
        own = _arrays(
            self.connection,
            f"SELECT coalesce(seed, -1) AS seed, label, coalesce(prediction, {_MISSING}) AS "
            f"prediction, coalesce(answer, -1) AS answer FROM {self.table} "
            f"WHERE file IN {self.seeds_in} ORDER BY file, row",
        )
        of_variants = _arrays(
            self.connection,
            "SELECT coalesce(seed, -1) AS seed, count(*) AS n_rows, count(answer) AS n_answered, "
            f"min(label) AS low, max(label) AS high FROM {self.variants} GROUP BY 1 ORDER BY 1",
        )
        row_order = np.argsort(own["seed"], kind="stable")
        numbers = own["seed"][row_order]
        place = np.searchsorted(numbers, of_variants["seed"])
        known = place < len(numbers)
        known[known] = numbers[place[known]] == of_variants["seed"][known]

        def of_seeds(name: str, empty: int) -> Ints:
            values = np.full(len(numbers), empty, np.int64)
            values[place[known]] = of_variants[name][known]
            return values

        return ConfigSeeds(
            numbers=numbers,
            gold=own["label"][row_order],
            own=own["prediction"][row_order],
            answers=own["answer"][row_order],
            row_order=row_order,
            n_rows=of_seeds("n_rows", 0),
            n_answered=of_seeds("n_answered", 0),
            low=of_seeds("low", -1),
            high=of_seeds("high", -1),
            orphans=of_variants["seed"][~known],
        )

    def count(
        self, seeds: ConfigSeeds, grouped: Sequence[str], clusters: Clusters | None
    ) -> tuple[SeedCounts | None, Ints, dict[str, dict[str, SeedCounts]]]:
        """Count variants of complete seeds: all, by answer (as `Frame.answers`), and by group.

        The first counts are None if the dataset contradicts itself.
        """
        complete = seeds.is_complete
        own, gold, n_seeds = seeds.own[complete], seeds.low[complete], int(complete.sum())
        subsamples, is_sound = self._subsamples(seeds)
        has_subsamples = len(subsamples) > 0
        names = fetch(self.connection, "SELECT seed_id FROM seeds ORDER BY seed")["seed_id"]
        ids = tuple(names.take(pa.array(seeds.numbers[complete])).to_pylist())
        labels = self.predictions.labels
        shape = (n_seeds, max(1, len(subsamples)), len(labels) + 1)  # the last code: no label

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
                labels=labels,
                has_subsamples=has_subsamples,
                seed_ids=ids,
                gold=gold,
                own=own,
                n_rows=by_answer.sum(axis=1),
                clusters=clusters,
                merged=str(self.predictions.merging),
            )
            return counts, by_answer

        tally = partial(self._tally, places=seeds.places, has_subsamples=has_subsamples)
        # If each variant has one value of a group, that tally also serves for all variants.
        tallies = {
            name: tally(f'unnest(list_distinct("{name}"))' if is_list(name) else f'"{name}"')
            for name in grouped
        }
        whole = next((found[1] for name, found in tallies.items() if not is_list(name)), None)
        counts, by_answer = counts_of(whole or tally("NULL")[1])
        is_sound &= not (counts.n_variants == 0).any()
        if not is_sound or (seeds.low != seeds.high)[complete].any():
            return None, by_answer, {}
        groups: dict[str, dict[str, SeedCounts]] = {}
        del whole
        for name in grouped:
            values, rows = tallies.pop(name)  # to free memory
            groups[name] = {}
            for value, code in sorted((v, n) for n, v in enumerate(values) if v is not None):
                chosen = rows["value"] == code
                part, _ = counts_of({key: column[chosen] for key, column in rows.items()})
                is_there = part.n_rows > 0
                groups[name][value] = part if is_there.all() else part.take(is_there)
        return counts, by_answer, groups

    def _tally(
        self, values: str, *, places: Ints, has_subsamples: bool
    ) -> tuple[list[str | None], dict[str, Any]]:
        """Count variants of complete seeds by value, place, subsample and prediction.

        Returns the values, and columns with positions of values as `value`, with `n`, the count in
        each subsample, and `n_rows`, the count of variants whose first subsample it is.
        """
        drawn, subsample, is_first = "true", "0", "true"
        if has_subsamples:
            drawn, subsample = "len(subsamples) > 0", "unnest(subsamples)"
            is_first = "subsample = subsamples[1]"
        found = fetch(
            self.connection,
            "SELECT value, seed, subsample, prediction, count(*) AS n, "
            f"count(*) FILTER ({is_first}) AS n_rows FROM (SELECT *, {subsample} AS subsample "
            f"FROM (SELECT {values} AS value, seed, prediction, subsamples "
            f"FROM {self.variants} WHERE {drawn})) GROUP BY ALL",
        )
        place = places[found["seed"].to_numpy()]
        if (place < 0).any():
            found = found.filter(pa.array(place >= 0))
        value = found["value"].combine_chunks().dictionary_encode(null_encoding="encode")
        rows = {name: found[name].to_numpy() for name in found.column_names[2:]}
        rows |= {"value": value.indices.to_numpy(), "place": place[place >= 0]}
        return value.dictionary.to_pylist(), rows

    def _subsamples(self, seeds: ConfigSeeds) -> tuple[Ints, bool]:
        """List the subsamples of complete seeds; return also whether they and answers are valid."""
        found, is_sound, places, n_answers = np.zeros(0, np.int64), True, seeds.places, 0
        is_used = np.zeros(self.predictions.count, bool)
        rows = self.connection.sql(f"SELECT seed, answer, subsamples FROM {self.variants}")
        for batch in rows.to_arrow_reader(_ROWS_AT_A_TIME):
            batch = batch.filter(pa.array(places[batch["seed"].to_numpy()] >= 0))
            is_used[batch["answer"].to_numpy()] = True
            n_answers += len(batch)
            is_sound &= _are_sets(batch["subsamples"])
            found = np.union1d(found, pc.list_flatten(batch["subsamples"]).unique().to_numpy())
        return found, is_sound and int(is_used.sum()) == n_answers

    def shift(self, seeds: ConfigSeeds, counts: SeedCounts) -> Sums:
        """Sum divergences over the variants of seeds answered right; see `distribution_shift`."""
        complete, places = seeds.is_complete, seeds.places
        before = self.predictions.probabilities_of(seeds.answers[complete])
        numbers = [*seeds.numbers[complete].tolist(), len(places)]
        drawn = "len(subsamples) > 0" if counts.has_subsamples else "true"
        steps = max(1, -(-int(counts.n_rows.sum()) // _ROWS_AT_A_TIME))
        ends = np.linspace(0, len(numbers) - 1, steps + 1).astype(int).tolist()
        parts = []
        for start, end in pairwise(ends):
            rows = _arrays(
                self.connection,
                f"SELECT seed, prediction, coalesce(answer, -1) AS answer FROM {self.variants} "
                f"WHERE {drawn} AND seed >= {numbers[start]} AND seed < {numbers[end]} "
                "ORDER BY file, row",
            )
            place = places[rows["seed"]]
            kept = np.flatnonzero(counts.right[place] & (place >= 0))
            place = place[kept]
            parts.append(
                distribution_shift(
                    np.take(before, place, axis=1).T,
                    self.predictions.probabilities_of(rows["answer"][kept]).T,
                    place,
                    rows["prediction"][kept] != counts.own[place],
                )
            )
        return added(parts)

    def rows(
        self, seeds: ConfigSeeds, counts: SeedCounts, grouped: Sequence[str]
    ) -> tuple[Rows, dict[str, Any]]:
        """List the variants of complete seeds in the dataset's order, and make `Frame.values`.

        `place` in the rows is their position in the files of variants.
        """
        wanted = [f'"{name}" AS value_{n}' for n, name in enumerate(grouped)]
        found = fetch(
            self.connection,
            f"SELECT {', '.join(['seed', 'prediction', 'subsamples', *wanted])} "
            f"FROM {self.variants} ORDER BY file, row",
        )
        place = seeds.places[found["seed"].to_numpy()]
        number = np.flatnonzero(place >= 0)
        found = found.take(pa.array(number))
        values = {name: found[f"value_{n}"].to_pylist() for n, name in enumerate(grouped)}
        lists = found["subsamples"].combine_chunks()
        sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        draw_row = np.arange(len(found))
        draw_subsample = np.zeros(len(found), np.int64)
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
            prediction=found["prediction"].to_numpy().astype(np.int64),
            draw_row=draw_row,
            draw_subsample=draw_subsample,
            n_subsamples=counts.n_variants.shape[1] if counts.has_subsamples else None,
            clusters=counts.clusters,
            merged=counts.merged,
        )
        return rows, {**values, "place": number}


def _are_sets(lists: pa.ListArray) -> bool:
    """Return whether no list has a negative number or the same number twice."""
    numbers = pc.list_flatten(lists).to_numpy()
    row = pc.list_parent_indices(lists).to_numpy()
    order = np.lexsort((numbers, row)) if (np.diff(numbers) <= 0)[np.diff(row) == 0].any() else ...
    again = (np.diff(numbers[order]) == 0) & (np.diff(row[order]) == 0)
    return not again.any() and not (numbers < 0).any()


def _arrays(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    """Fetch the columns of a query as arrays, with integers as int64."""
    table = fetch(connection, query)
    found = {name: table[name].to_numpy() for name in table.column_names}
    return {k: v.astype(np.int64) if v.dtype.kind in "iu" else v for k, v in found.items()}


# --- Groups of variants ---


def groupings(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """List the columns of the dataset by which variants can be grouped."""
    return "word_class", "mlms", *problem_format.mlms, "original", "replacement"


def is_list(name: str) -> bool:
    """Return whether a row can have several values of a grouping."""
    return name.endswith("mlms")
