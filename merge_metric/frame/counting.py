"""Counts of a configuration's answers per seed, subsample, answer and group, by queries."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.schema import NLI, ProblemFormat
from merge_metric.frame.answer_table import AnswerTable
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.inputs import Clusters, Ints, Rows
from merge_metric.seed_variant_accuracy.options import NO_LABEL
from merge_metric.seed_variant_accuracy.scoring import Sums, distribution_shift

MISSING: Final = NO_LABEL - 1
"""Code of a missing prediction."""

_ROWS_AT_A_TIME: Final = 2**18
"""Approximate number of rows whose probabilities are held at a time."""
CONFIDENCE, SEED_CONFIDENCE = "confidence", "seed_confidence"
"""Names in `Frame.values` of the highest probability of an answer, and of that to its seed."""


@dataclass(frozen=True, slots=True, eq=False)
class ConfigAnswers:
    """The answers to a configuration: some rows of a table of answers, and its N seeds by id."""

    model: AnswerTable
    variants_in: str
    """Numbers of the files of variants, for `IN`."""
    seeds: Mapping[str, NDArray[Any]]
    """Columns of the seeds, (N,): `seed`, the number in the table `seeds`; of its row `place` (in
    the files of seeds), `label`, `prediction` (`MISSING` if missing) and probabilities; of its
    variants `n_rows`, `n_answered`, `low` and `high` labels, most subsamples `longest`, and the
    `least` subsample."""
    n_orphans: int
    """Number of seeds that variants name but that have no row."""

    @classmethod
    def of(cls, model: AnswerTable, seeds_in: str, variants_in: str) -> "ConfigAnswers":
        """Find the seeds, and count the variants of each."""
        own = "".join(f"{name}, " for name in model.shares)
        rows = model.dataset.engine.columns(
            f"FROM (SELECT seed, label::BIGINT AS label, {own}prediction::BIGINT AS prediction, "
            f"row_number() OVER (ORDER BY file, row) - 1 AS place FROM {model.answers} "
            f"WHERE file IN {seeds_in}) FULL JOIN (SELECT seed, count(*) AS n_rows, "
            "count(answer) AS n_answered, min(label)::BIGINT AS low, max(label)::BIGINT AS high, "
            "max(len(subsamples)) AS longest, min(list_min(subsamples)) AS least "
            f"FROM {model.answers} WHERE file IN {variants_in} GROUP BY seed) USING (seed) "
            "ORDER BY seed, place"
        )
        absent = {"seed": -1, "place": -1, "label": -1, "prediction": MISSING, "low": -1}
        seeds = {
            name: np.asarray(np.ma.filled(values, absent.get(name, 0)))
            for name, values in rows.items()
        }
        has_row = seeds["place"] >= 0
        seeds = {name: values[has_row] for name, values in seeds.items()}
        return cls(model, variants_in, seeds, int((~has_row).sum()))

    @property
    def is_complete(self) -> NDArray[np.bool_]:
        """Whether no prediction is missing, (N,)."""
        seeds = self.seeds
        complete = (seeds["prediction"] != MISSING) & (seeds["n_answered"] == seeds["n_rows"])
        return np.asarray(complete)

    @property
    def most_draws(self) -> int:
        """Most subsamples that a variant of a complete seed is in."""
        return int(self.seeds["longest"][self.is_complete].max(initial=0))

    @property
    def variants(self) -> str:
        """SQL for the rows of variants of complete seeds, for `FROM`."""
        incomplete = self.seeds["seed"][~self.is_complete].tolist()
        kept = f" AND seed NOT IN ({', '.join(map(str, incomplete))})" if incomplete else ""
        return f"(FROM {self.model.answers} WHERE file IN {self.variants_in}{kept})"

    @property
    def places(self) -> Ints:
        """Array from numbers of seeds to positions among the complete seeds; -1 for others."""
        complete = self.seeds["seed"][self.is_complete]
        places = np.full(self.seeds["seed"].max(initial=0) + 1, -1)
        places[complete] = np.arange(len(complete))
        return places

    def count(
        self, grouped: Sequence[str], clusters: Clusters | None
    ) -> tuple[SeedCounts | None, Ints, dict[str, dict[str, SeedCounts]]]:
        """Count variants of complete seeds: all, by answer (as `Frame.answers`), and by group.

        The first counts are None if the dataset contradicts itself.
        """
        engine, labels, most_draws = self.model.dataset.engine, self.model.labels, self.most_draws
        seeds = {name: values[self.is_complete] for name, values in self.seeds.items()}
        # Every seed has variants, no number of a draw below 0, and one label.
        sound = (seeds["n_rows"] > 0) & (seeds["least"] >= 0)
        sound &= (seeds["low"] == seeds["label"]) & (seeds["high"] == seeds["label"])
        if self.n_orphans or not sound.all():
            return None, np.zeros(0, np.int64), {}
        names = engine.columns("SELECT seed_id FROM seeds ORDER BY seed")["seed_id"]
        ids = tuple(names[seeds["seed"]].tolist())
        # If each variant has one value of a group, that tally also serves for all variants.
        tallies = {
            name: self._tally(f'unnest(list_distinct("{name}"))' if is_list(name) else f'"{name}"')
            for name in grouped
        }
        whole = next((rows for name, (_, rows) in tallies.items() if not is_list(name)), None)
        rows = whole or self._tally("NULL")[1]
        subsamples = np.unique(rows["subsample"])
        # The last code is for no label.
        shape = (len(ids), max(1, len(subsamples)), len(labels) + 1)

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
                n_subsamples=shape[1] if most_draws else None,
                seed_ids=ids,
                gold=seeds["label"],
                own=seeds["prediction"],
                n_rows=by_answer.sum(axis=1),
                clusters=clusters,
                merged=str(self.model.merging),
            )
            return counts, by_answer

        counts, by_answer = counts_of(rows)
        answers = engine.columns(f"SELECT answer FROM {self.variants}")["answer"]
        is_odd = (np.bincount(answers) > 1).any()
        if most_draws > 1:
            again = "len(list_distinct(subsamples)) < len(subsamples)"
            is_odd |= len(engine.fetch(f"FROM {self.variants} WHERE {again} LIMIT 1")) > 0
        if is_odd or (counts.n_variants == 0).any():
            return None, by_answer, {}
        groups: dict[str, dict[str, SeedCounts]] = {}
        del whole, rows
        for name in grouped:
            values, of_group = tallies.pop(name)  # to free memory
            groups[name] = {}
            for code, value in enumerate(values):
                chosen = of_group["value"] == code
                part, _ = counts_of({key: column[chosen] for key, column in of_group.items()})
                has_rows = part.n_rows > 0
                groups[name][value] = part if has_rows.all() else part.take(has_rows)
        return counts, by_answer, groups

    def _tally(self, values: str) -> tuple[list[str], dict[str, Any]]:
        """Count by value, place, subsample and prediction: sorted values, and columns.

        `value` is a position among the values, -1 for none; `n` a count in a subsample, `n_rows`
        one of variants whose first subsample it is.
        """
        drawn, subsample, is_first = "true", "0", "true"
        if self.most_draws:
            drawn, subsample = "len(subsamples) > 0", "unnest(subsamples)"
            is_first = "subsample = subsamples[1]"
        table = self.model.dataset.engine.fetch(
            "SELECT value, seed, subsample, prediction, count(*) AS n, "
            f"count(*) FILTER ({is_first}) AS n_rows FROM (SELECT *, {subsample} AS subsample "
            f"FROM (SELECT {values} AS value, seed, prediction, subsamples "
            f"FROM {self.variants} WHERE {drawn})) GROUP BY ALL"
        )
        value = table["value"].combine_chunks().dictionary_encode(null_encoding="encode")
        texts = value.dictionary.to_pylist()
        names = sorted(text for text in texts if text is not None)
        position = {None: -1} | {name: code for code, name in enumerate(names)}
        codes = np.array([position[text] for text in texts], np.int64)
        rows = {
            name: np.from_dlpack(table[name].combine_chunks()) for name in table.column_names[1:]
        }
        rows["value"] = codes[np.from_dlpack(value.indices)]
        rows["place"] = self.places[rows.pop("seed")]
        return names, rows

    def shift(self, counts: SeedCounts) -> Sums | None:
        """Sum divergences over the variants of seeds answered right; see `distribution_shift`.

        None unless all predictions have probabilities.
        """
        if not (names := self.model.shares):
            return None
        complete, places = self.is_complete, self.places

        def scaled(shares: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
            """Stack columns, (L, n), and scale them to sum to 1."""
            table = np.stack(shares)
            return np.asarray(table / table.sum(axis=0))

        before = scaled([self.seeds[name][complete] for name in names])
        numbers = [*self.seeds["seed"][complete].tolist(), len(places)]
        drawn = "len(subsamples) > 0" if counts.has_subsamples else "true"
        steps = max(1, -(-int(counts.n_rows.sum()) // _ROWS_AT_A_TIME))
        ends = np.linspace(0, len(numbers) - 1, steps + 1).astype(int).tolist()
        parts = []
        for start, end in pairwise(ends):
            rows = self.model.dataset.engine.columns(
                f"SELECT seed, prediction, {', '.join(names)} FROM {self.variants} WHERE {drawn} "
                f"AND seed >= {numbers[start]} AND seed < {numbers[end]} ORDER BY file, row"
            )
            place = places[rows["seed"]]
            kept = np.flatnonzero(counts.right[place])
            place = place[kept]
            parts.append(
                distribution_shift(
                    np.take(before, place, axis=1).T,
                    scaled([rows[name][kept] for name in names]).T,
                    place,
                    rows["prediction"][kept] != counts.own[place],
                )
            )
        return {
            key: (math.fsum(part[key][0] for part in parts), sum(part[key][1] for part in parts))
            for key in parts[0]
        }

    def rows(self, counts: SeedCounts, grouped: Sequence[str]) -> tuple[Rows, dict[str, Any]]:
        """List the variants of complete seeds in the dataset's order, and make `Frame.values`.

        `place` in the values is their position in the files of variants.
        """
        import pyarrow.compute as pc

        wanted = [f'"{name}" AS value_{n}' for n, name in enumerate(grouped)]
        if shares := self.model.shares:
            wanted.append(f"greatest({', '.join(shares)}) / ({' + '.join(shares)}) AS {CONFIDENCE}")
        table = self.model.dataset.engine.fetch(
            f"SELECT {', '.join(['seed', 'prediction', 'subsamples', *wanted])} "
            f"FROM {self.model.answers} WHERE file IN {self.variants_in} ORDER BY file, row"
        )
        place = self.places[table["seed"].to_numpy()]
        number = np.flatnonzero(place >= 0)
        table = table.take(pa.array(number))
        values = {name: table[f"value_{n}"].to_pylist() for n, name in enumerate(grouped)}
        if shares:
            values[CONFIDENCE] = table[CONFIDENCE].to_numpy()
            own = np.stack([self.seeds[name][self.is_complete] for name in shares])
            values[SEED_CONFIDENCE] = (own.max(axis=0) / own.sum(axis=0))[place[number]]
        draw_row, draw_subsample = np.arange(len(table)), np.zeros(len(table), np.int64)
        if counts.has_subsamples:
            lists = table["subsamples"].combine_chunks()
            sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
            draw_row, drawn = np.repeat(draw_row, sizes), pc.list_flatten(lists).to_numpy()
            draw_subsample = np.searchsorted(np.unique(drawn), drawn)
        rows = Rows(
            **counts.as_known,
            seed=place[number],
            prediction=table["prediction"].to_numpy().astype(np.int64),
            draw_row=draw_row,
            draw_subsample=draw_subsample,
        )
        return rows, {**values, "place": number}


# --- Groups of variants ---


def groupings(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """List the columns of the dataset by which variants can be grouped."""
    return "word_class", "mlms", *problem_format.mlms, "original", "replacement"


def is_list(name: str) -> bool:
    """Return whether a row can have several values of a grouping."""
    return name.endswith("mlms")
