"""Counts of a configuration's answers, by queries: per seed, subsample, answer and group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.dataset_columns import LABEL_FLAGS
from merge_dataset.schema import NLI, ProblemFormat
from merge_metric.runs.relations import execute, fetch
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.divergence import Sums, added, distribution_shift
from merge_metric.seed_variant_accuracy.inputs import Clusters, Rows
from merge_metric.seed_variant_accuracy.options import NO_LABEL, check_probabilities

Ints = NDArray[np.int64]

_MISSING: Final = NO_LABEL - 1
"""In place of a prediction that a file lacks."""

_ROWS_AT_A_TIME: Final = 2**18
"""Rows, about, of which probabilities are held at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class ConfigSeeds:
    """A configuration's seeds, by their numbers in the order of their ids."""

    numbers: Ints
    """(N,) numbers in the table `seeds`."""
    gold: Ints
    """(N,) of the seeds' rows."""
    own: Ints
    """(N,) the prediction for the seed itself, `NO_LABEL` where it names none; `_MISSING` where
    there is none."""
    row_order: Ints
    """(N,) positions in the files of seeds."""
    n_rows: Ints
    """(N,) rows of variants, answered or not."""
    n_answered: Ints
    """(N,)"""
    low: Ints
    """(N,) the lowest gold label of the variants, which is the highest, too."""
    high: Ints
    orphans: Ints
    """Seeds of variants that have no row themselves; their numbers, or -1 for no number."""

    @property
    def is_complete(self) -> NDArray[np.bool_]:
        """(N,) whether no prediction is missing."""
        complete: NDArray[np.bool_] = (self.own != _MISSING) & (self.n_answered == self.n_rows)
        return complete


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ConfigAnswers:
    """The answers to a configuration: some rows of a table of answers."""

    connection: duckdb.DuckDBPyConnection
    table: str
    seeds_in: str
    """Numbers of the files of its seeds, for `IN`."""
    variants_in: str
    labels: tuple[str, ...]
    probabilities: tuple[str, ...]
    """Columns of the table with the probability of each label; empty where there are none."""

    def seeds(self) -> ConfigSeeds:
        """Find the seeds, and how many variants each has."""
        own = _arrays(
            self.connection,
            "SELECT coalesce(seed, -1) AS seed, label, "
            f"coalesce(prediction, {_MISSING}) AS prediction, "
            f"row_number() OVER (ORDER BY file, row) - 1 AS place FROM {self.table} "
            f"WHERE file IN {self.seeds_in} ORDER BY seed",
        )
        of_variants = _arrays(
            self.connection,
            "SELECT coalesce(seed, -1) AS seed, count(*) AS n_rows, count(answer) AS n_answered, "
            f"min(label) AS low, max(label) AS high FROM {self.table} "
            f"WHERE file IN {self.variants_in} GROUP BY 1 ORDER BY 1",
        )
        place = np.searchsorted(own["seed"], of_variants["seed"])
        known = place < len(own["seed"])
        known[known] = own["seed"][place[known]] == of_variants["seed"][known]

        def of_seeds(name: str, empty: int) -> Ints:
            values = np.full(len(own["seed"]), empty, np.int64)
            values[place[known]] = of_variants[name][known]
            return values

        return ConfigSeeds(
            numbers=own["seed"],
            gold=own["label"],
            own=own["prediction"],
            row_order=own["place"],
            n_rows=of_seeds("n_rows", 0),
            n_answered=of_seeds("n_answered", 0),
            low=of_seeds("low", -1),
            high=of_seeds("high", -1),
            orphans=of_variants["seed"][~known],
        )

    def count(
        self, seeds: ConfigSeeds, grouped: Mapping[str, str], clusters: Clusters | None
    ) -> tuple[SeedCounts | None, Ints, dict[str, dict[str, SeedCounts]]]:
        """Count the variants of complete seeds, by subsample and by group.

        Returns:
            Counts, None where the dataset contradicts itself; `Run.answers`; counts of groups.
        """
        complete = seeds.is_complete
        numbers, own = seeds.numbers[complete], seeds.own[complete]
        gold = seeds.low[complete]
        kept = pa.table({"seed": numbers, "place": np.arange(len(numbers))})
        given = (kept.schema, iter(kept.to_batches()))
        execute(
            self.connection, "CREATE OR REPLACE TEMP TABLE kept_seeds AS FROM given", given=given
        )
        found = fetch(
            self.connection,
            f"SELECT DISTINCT unnest(subsamples) AS subsample FROM {self._kept} ORDER BY subsample",
        )["subsample"]
        subsamples = found.to_numpy() if len(found) else np.zeros(1, np.int64)
        names = fetch(self.connection, "SELECT seed_id FROM seeds ORDER BY seed")["seed_id"]
        ids = tuple(names.take(pa.array(numbers)).to_pylist())
        n_answers = len(self.labels) + 1  # those without a label, -1, are the last

        def counts_of(rows: Mapping[str, Any]) -> tuple[SeedCounts, Ints]:
            by_answer = np.zeros((len(numbers), n_answers), np.int64)
            np.add.at(by_answer, (rows["place"], rows["prediction"]), rows["n_rows"])
            tally = np.zeros((len(numbers), len(subsamples), n_answers), np.int64)
            code = np.searchsorted(subsamples, rows["subsample"])
            tally[rows["place"], code, rows["prediction"]] = rows["n"]
            counts = SeedCounts.of_tally(
                tally,
                labels=self.labels,
                has_subsamples=bool(len(found)),
                seed_ids=ids,
                gold=gold,
                own=own,
                n_rows=by_answer.sum(axis=1),
                clusters=clusters,
            )
            return counts, by_answer

        counts, by_answer = counts_of(self._tally("NULL", is_drawn=len(found) > 0))
        rows = fetch(self.connection, f"SELECT answer, subsamples FROM {self._kept}")
        if (
            (counts.n_variants == 0).any()
            or (seeds.low != seeds.high)[complete].any()
            or np.bincount(rows["answer"].to_numpy()).max(initial=0) > 1
            or not _are_sets(rows["subsamples"].combine_chunks())
        ):
            return None, by_answer, {}
        groups: dict[str, dict[str, SeedCounts]] = {}
        for name, values in grouped.items():
            each = f"unnest(list_distinct({values}))" if is_list(name) else values
            of_group = self._tally(each, "WHERE value IS NOT NULL", is_drawn=len(found) > 0)
            groups[name] = {}
            for value in sorted(set(of_group["value"].tolist())):
                chosen = of_group["value"] == value
                whole, _ = counts_of({key: row[chosen] for key, row in of_group.items()})
                groups[name][value] = whole.take(whole.n_rows > 0)
        return counts, by_answer, groups

    def _tally(self, value: str, of_value: str = "", *, is_drawn: bool) -> dict[str, Any]:
        """Count variants of complete seeds by `value`, `place`, `subsample` and `prediction`.

        Args:
            value: What they are grouped by, in SQL.
            of_value: Which values are wanted.
            is_drawn: Whether the dataset has subsamples, in each of which a row counts once;
                else once. `n_rows` has each row once.
        """
        subsample, is_first, drawn = "0", "true", "true"
        if is_drawn:
            subsample, is_first = "unnest(subsamples)", "subsample = subsamples[1]"
            drawn = "len(subsamples) > 0"
        return _arrays(
            self.connection,
            "SELECT value, place, subsample, prediction, count(*) AS n, "
            f"count(*) FILTER ({is_first}) AS n_rows FROM (SELECT value, place, prediction, "
            f"subsamples, {subsample} AS subsample FROM (SELECT {value} AS value, place, "
            f"prediction, subsamples FROM {self._kept} WHERE {drawn}) {of_value}) GROUP BY ALL",
        )

    @property
    def _kept(self) -> str:
        """The variants of complete seeds, with the seed's `place` among these."""
        return (
            f"(SELECT * FROM {self.table} JOIN kept_seeds USING (seed) "
            f"WHERE file IN {self.variants_in})"
        )

    def shift(self, seeds: ConfigSeeds, counts: SeedCounts) -> Sums:
        """Sum divergences over the variants of seeds answered right; see `distribution_shift`."""
        own = _arrays(
            self.connection,
            f"SELECT {', '.join(self.probabilities)} FROM {self.table} "
            f"JOIN kept_seeds USING (seed) WHERE file IN {self.seeds_in} ORDER BY place",
        )
        before = self._probabilities_in(own)
        drawn = "len(subsamples) > 0" if counts.has_subsamples else "true"
        steps = max(1, -(-int(counts.n_rows.sum()) // _ROWS_AT_A_TIME))
        ends = np.linspace(0, len(counts.seed_ids), steps + 1).astype(int).tolist()
        parts = []
        for start, end in pairwise(ends):
            rows = _arrays(
                self.connection,
                f"SELECT place, prediction, {', '.join(self.probabilities)} FROM {self._kept} "
                f"WHERE {drawn} AND place >= {start} AND place < {end} ORDER BY file, row",
            )
            place, after = rows["place"], self._probabilities_in(rows)
            right = counts.right[place]
            changed = rows["prediction"] != counts.own[place]
            parts.append(
                distribution_shift(
                    before.T[:, place[right]].T, after.T[:, right].T, place[right], changed[right]
                )
            )
        return added(parts)

    def _probabilities_in(self, rows: Mapping[str, Any]) -> NDArray[np.float64]:
        # Label after label, as NumPy adds long columns faster than short rows.
        table = np.stack([rows[name] for name in self.probabilities]).T
        return check_probabilities("probabilities", table, table.shape)

    def rows(
        self, seeds: ConfigSeeds, counts: SeedCounts, grouped: Mapping[str, str]
    ) -> tuple[Rows, dict[str, Any]]:
        """List the variants of complete seeds in the order of the dataset.

        Returns:
            The rows, and `Run.values`; `place` are their positions in the files of variants.
        """
        wanted = [f'{values} AS "{name}"' for name, values in grouped.items()]
        found = fetch(
            self.connection,
            f"SELECT * FROM (SELECT row_number() OVER (ORDER BY file, row) - 1 AS number, * FROM "
            f"{self.table} WHERE file IN {self.variants_in}) JOIN kept_seeds USING (seed) "
            "ORDER BY number",
        )
        values: dict[str, Any] = {}
        if wanted:
            grouped_rows = fetch(
                self.connection,
                f"SELECT {', '.join(wanted)} FROM {self._kept} ORDER BY file, row",
            )
            values = {name: grouped_rows[name].to_pylist() for name in grouped}
        lists = found["subsamples"].combine_chunks()
        sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        draw_row = np.arange(len(found))
        draw_subsample = np.zeros(len(found), np.int64)
        if counts.has_subsamples:
            draw_row = np.repeat(draw_row, sizes)
            drawn = pc.list_flatten(lists).to_numpy()
            draw_subsample = np.searchsorted(np.unique(drawn), drawn)
        rows = Rows(
            labels=self.labels,
            seed_ids=counts.seed_ids,
            gold=counts.gold,
            own=counts.own,
            seed=found["place"].to_numpy().astype(np.int64),
            prediction=found["prediction"].to_numpy().astype(np.int64),
            draw_row=draw_row,
            draw_subsample=draw_subsample,
            n_subsamples=counts.n_variants.shape[1] if counts.has_subsamples else None,
            clusters=counts.clusters,
        )
        return rows, {**values, "place": found["number"].to_numpy()}


def _are_sets(lists: pa.ListArray) -> bool:
    """Tell whether lists of numbers have no negative one, and none twice."""
    numbers = pc.list_flatten(lists).to_numpy()
    row = pc.list_parent_indices(lists).to_numpy()
    order = np.lexsort((numbers, row)) if (np.diff(numbers) <= 0)[np.diff(row) == 0].any() else ...
    again = (np.diff(numbers[order]) == 0) & (np.diff(row[order]) == 0)
    return not again.any() and not (numbers < 0).any()


def _arrays(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    """Fetch columns of a query as arrays: ints as int64, lists of numbers one after the other."""
    table = fetch(connection, query)
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        column = column.combine_chunks()
        if pa.types.is_fixed_size_list(column.type) or pa.types.is_list(column.type):
            found[name] = pc.list_flatten(column).to_numpy()
        elif pa.types.is_integer(column.type) or pa.types.is_decimal(column.type):
            found[name] = column.to_numpy(zero_copy_only=False).astype(np.int64)
        else:
            found[name] = column.to_numpy(zero_copy_only=False)
    return found


# --- Groups of variants ---

FLAGS: Final = "label_flags"
"""Name of the grouping by label flags: variants with each of them, and those with none."""

NO_FLAG: Final = "no flag"
"""Name of the group of variants without any."""


def groupings(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """List what variants can be grouped by: columns of the dataset, `FLAGS` where it has any."""
    flags = (FLAGS,) if flags_in(problem_format) else ()
    return "word_class", "mlms", *problem_format.mlms, "original", "replacement", *flags


def flags_in(problem_format: ProblemFormat) -> tuple[str, ...]:
    """List the label flags that files of a format have."""
    return tuple(name for name in LABEL_FLAGS if name in problem_format.optional)


def columns_of_groups(by: Sequence[str]) -> list[str]:
    """List the columns of the dataset that some groupings need."""
    return [each for name in by for each in (LABEL_FLAGS if name == FLAGS else (name,))]


def is_list(name: str) -> bool:
    """Tell whether a row has several values of a grouping."""
    return name == FLAGS or name.endswith("mlms")


def group_in_sql(name: str, problem_format: ProblemFormat) -> str:
    """Write the value, or list of values, under which a row counts."""
    if name != FLAGS:
        return f'"{name}"'
    flags = ", ".join(f"CASE WHEN {each} THEN '{each}' END" for each in flags_in(problem_format))
    found = f"list_filter([{flags}], lambda each: each IS NOT NULL)"
    return f"CASE WHEN len({found}) > 0 THEN {found} ELSE ['{NO_FLAG}'] END"
