import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from helpers import metric_oracle as oracle
from helpers.bench.contender import Contender, in_turn
from helpers.bench.made_up_rows import write_made_up_predictions, write_made_up_run
from helpers.bench.results import Goal, Measurement, Row, Side, compare, sides_of

from merge_dataset.export import export_dataset
from merge_metric import seed_variant_accuracy
from merge_metric.seed_variant_accuracy.scoring import score

pytestmark = pytest.mark.benchmark

MILLION: Final = (50_000, 20)
"""Number of seeds, and variants per seed."""
PAPER: Final = (4_000, 77, 10, 20)
"""Seeds, distinct variants per seed, subsamples, variants per subsample: MNLI-mm's size."""


def million_rows() -> dict[str, Any]:
    """Columns as lists of ints, as users have them, in random order."""
    seeds, variants = MILLION
    rng = np.random.default_rng(0)
    p, gold = rng.beta(4, 1, seeds), rng.integers(3, size=seeds)
    own = np.where(rng.random(seeds) < p, gold, rng.integers(3, size=seeds))
    seed = rng.permutation(np.repeat(np.arange(seeds), variants))
    right = rng.random(len(seed)) < p[seed]
    return {
        "predictions": np.where(right, gold[seed], rng.integers(3, size=len(seed))).tolist(),
        "references": gold[seed].tolist(),
        "seed_ids": seed.tolist(),
        "seed_predictions": own[seed].tolist(),
    }


def ten_subsamples() -> dict[str, Any]:
    """The paper's layout: names as ids and labels, each distinct variant once."""
    seeds, variants, subsamples, size = PAPER
    rng = np.random.default_rng(1)
    p, gold = rng.beta(4, 1, seeds), rng.integers(3, size=seeds)
    own = np.where(rng.random(seeds) < p, gold, rng.integers(3, size=seeds))
    seed = np.repeat(np.arange(seeds), variants)
    right = rng.random(len(seed)) < p[seed]
    drawn = rng.random((seeds, subsamples, variants)).argsort(axis=2)[:, :, :size]
    chosen: list[list[int]] = [[] for _ in seed]
    for (number, subsample, _), variant in np.ndenumerate(drawn):
        chosen[number * variants + variant].append(subsample)
    names = np.array(oracle.LABELS, object)
    kept = [row for row, numbers in enumerate(chosen) if numbers]
    return {
        "predictions": names[np.where(right, gold[seed], (gold[seed] + 1) % 3)][kept].tolist(),
        "references": names[gold[seed]][kept].tolist(),
        "seed_ids": [f"mnli-mm:{seed[row]}" for row in kept],
        "seed_predictions": names[own[seed]][kept].tolist(),
        "subsamples": [chosen[row] for row in kept],
    }


ROWS_OF_A_SEED: Final = 22
"""Rows of a made-up seed: the seed itself, and seven variants in each of three classes."""
MOST_MB: Final = {10_000_000: 1200}
"""Rows → largest resident set allowed for each command; 1,000 MB for fewer rows."""
MOST_SECONDS: Final = {
    ("score", 1_000_000): 3,
    ("score with 1,000 replicates", 1_000_000): 5,
    ("score", 10_000_000): 35,
}
"""(Command, rows) → most CPU seconds allowed."""

COLUMNS: Final = {"default": million_rows, "subsamples": ten_subsamples}


def own_score(configuration: str) -> Callable[[int], Callable[[], Any]]:
    """`score`, without intervals if `n_bootstrap` is 0."""
    data = COLUMNS[configuration]()

    def answer(n_bootstrap: int) -> Callable[[], Any]:
        result = score(**data, n_bootstrap=n_bootstrap)
        return lambda: repr(result)

    return answer


def whole_metric(configuration: str, cache: str) -> Callable[[], Callable[[], Any]]:
    """The metric through `evaluate`, which first ingests the columns."""
    import evaluate

    evaluate.config.HF_MODULES_CACHE = f"{cache}/modules"
    script = Path(seed_variant_accuracy.__file__).parent / "seed_variant_accuracy.py"
    metric = evaluate.load(str(script), configuration, cache_dir=f"{cache}/cache")
    data = COLUMNS[configuration]()

    def answer() -> Callable[[], Any]:
        result = metric.compute(**data, n_bootstrap=0)
        return lambda: repr(result)

    return answer


COMMANDS: Final = {
    "score": ["score", "p.parquet", "--n-bootstrap", "0"],
    "score with 1,000 replicates": ["score", "p.parquet"],
    "compare of two models": ["compare", "a=p.parquet", "b=q.parquet", "--n-bootstrap", "100"],
    "analyse matching": ["analyse", "matching", "p.parquet"],
    "analyse classes": ["analyse", "classes", "p.parquet", "--n-bootstrap", "0"],
    "report": ["report", "p.parquet", "--n-bootstrap", "0", "--out", "report.html"],
    "baseline majority": ["baseline", "majority", "--out", "majority.parquet"],
    "check": ["check", "merge-nli"],
}
"""Name of a measurement → arguments of `merge-nli`, without the dataset."""

_ANSWERS: Final = """
    CREATE OR REPLACE TEMP TABLE problems AS
        SELECT variant_id, any_value(seed_id) AS seed_id, any_value(label) AS label,
            any_value(md5(concat_ws(chr(0), premise, hypothesis))) AS texts
        FROM read_parquet('merge-nli/made-up/**/*.parquet', union_by_name = true)
        GROUP BY variant_id;
    CREATE OR REPLACE TEMP TABLE answers AS
        SELECT p.variant_id, q.seed_id, q.label, p.prediction, p.label = q.label AS same_label,
            p.seed_id = q.seed_id AS same_seed, q.texts
        FROM '{file}' p LEFT JOIN problems q USING (variant_id);
"""
_COUNTS: Final = """
    SELECT count(*) FROM (SELECT variant_id FROM answers GROUP BY variant_id HAVING count(*) > 1);
    SELECT count(*) FROM problems ANTI JOIN answers USING (variant_id);
    SELECT count(*) FILTER (NOT same_label), count(*) FILTER (NOT same_seed) FROM answers;
    SELECT seed_id, any_value(label), max(prediction) FILTER (variant_id = seed_id),
        count(*) FILTER (variant_id <> seed_id AND prediction = 0),
        count(*) FILTER (variant_id <> seed_id AND prediction = 1),
        count(*) FILTER (variant_id <> seed_id AND prediction = 2)
    FROM answers GROUP BY seed_id ORDER BY seed_id;
"""
_SCORED: Final = [_ANSWERS.format(file="p.parquet"), _COUNTS]
PLAIN: Final = {
    "score": _SCORED,
    "score with 1,000 replicates": _SCORED,
    "compare of two models": [*_SCORED, _ANSWERS.format(file="q.parquet"), _COUNTS],
    "report": _SCORED,
    "baseline majority": [
        """
        COPY (
            SELECT DISTINCT variant_id, seed_id, label, 0 AS prediction
            FROM read_parquet('merge-nli/made-up/**/*.parquet', union_by_name = true)
            ORDER BY variant_id
        ) TO 'plain.parquet' (FORMAT parquet, COMPRESSION zstd);
        """
    ],
    "check": [
        """
        SELECT count(*), count(DISTINCT variant_id), count(*) FILTER (label NOT IN (0, 1, 2)),
            count(*) FILTER (premise = '' OR hypothesis = ''), min(len(subsamples)),
            count(*) FILTER (substr(premise, premise_spans[1][1] + 1, len(replacement)) <>
                replacement)
        FROM read_parquet('merge-nli/made-up/*/variants.parquet');
        SELECT count(*) FROM (SELECT premise, hypothesis
            FROM read_parquet('merge-nli/made-up/*/variants.parquet')
            GROUP BY ALL HAVING count(*) > 1);
        """
    ],
}
"""Command → the queries that a user would write for its main result alone."""


def many_rows(folder: str, rows: int, command: str) -> Callable[[], None]:
    place = Path(folder)
    seeds = range(rows // ROWS_OF_A_SEED)
    if not (place / "merge-nli").is_dir():
        export_dataset(write_made_up_run(place / "run", seeds), place / "merge-nli")
        for name in ("p.parquet", "q.parquet"):
            write_made_up_predictions(place / name, seeds)

    def answer() -> None:
        from generation.cli import app

        os.chdir(place)
        (place / "majority.parquet").unlink(missing_ok=True)
        dataset = [] if command == "check" else ["--dataset", "merge-nli"]
        app([*COMMANDS[command], *dataset], standalone_mode=False)

    return answer


def plain_query(folder: str, command: str) -> Callable[[], None]:
    """Plain DuckDB on the same files, in one thread: only joins, checks and counts."""
    import duckdb

    def answer() -> None:
        os.chdir(folder)
        with duckdb.connect(config={"threads": 1}) as connection:
            for query in PLAIN[command]:
                for statement in connection.extract_statements(query):
                    connection.execute(statement).fetchnumpy()

    return answer


def slow_oracle(of_oracle: bool) -> Callable[[], Callable[[], Any]]:
    """The definitions in plain Python, or `score`, on 500 seeds with 20 variants each."""
    rows = oracle.random_problems(random.Random(0), seeds=500, variants=(20, 20))
    rows = [oracle.Row(r.seed_id, r.gold, r.own, r.prediction) for r in rows]
    data = oracle.columns(rows)

    def answer() -> Callable[[], Any]:
        result = oracle.scores(rows) if of_oracle else score(**data, n_bootstrap=0)
        return lambda: {key: float(result[key]) for key in oracle.FIGURES}

    return answer


@pytest.mark.parametrize("configuration", COLUMNS)
def test_score_beside_the_ingestion_of_evaluate(
    configuration: str, tmp_path: Path, rounds: int
) -> None:
    """Ingestion is the time by which `compute` is slower than `score`."""
    measurement = Measurement("metric", configuration)
    where = {"configuration": configuration}
    with (
        Contender("ours", own_score, where) as ours,
        Contender("ours, 1,000 replicates", own_score, where) as again,
        Contender("compute", whole_metric, where | {"cache": str(tmp_path)}) as whole,
    ):
        replies = in_turn(
            rounds,
            partial(ours.ask, n_bootstrap=0),
            partial(again.ask, n_bootstrap=1000),
            whole.ask,
        )
    count = len(COLUMNS[configuration]()["predictions"])
    figures, replicates, computed = sides_of((ours, again, whole), replies, 1)
    ingestion = computed.beyond(figures, "evaluate's own ingestion")
    row = partial(compare, f"metric, {count:,} rows", unit="call", at_least=1)
    said = "compute gives what score gives"
    measurement.write([row(figures, ingestion, agreement=said), row(replicates, ingestion)])
    assert replies[2][0].answer == replies[0][0].answer


@pytest.mark.parametrize("command", COMMANDS)
def test_many_rows(command: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Time per row, and memory, which is bounded by the seeds and the rows held at a time."""
    measurement = Measurement("metric", f"many-rows-{command.replace(' ', '-')}")
    rows: list[Row] = []
    smallest: Side | None = None
    for count in sorted(map(int, request.config.getoption("--rows").split(","))):
        place = Path(request.config.getoption("--rows-folder") or tmp_path) / str(count)
        arguments = {"folder": str(place), "rows": count, "command": command}
        with Contender("made up", many_rows, arguments):
            pass  # otherwise made-up data would count as memory
        with Contender(f"merge-nli {command}", many_rows, arguments) as ours:
            side = Side.of(f"{count:,} rows", [ours.ask()], count)
        most = MOST_MB.get(count, 1000)
        goals = [Goal(f"≤ {most:,} MB", (side.peak_mb or 0) <= most)]
        if seconds := MOST_SECONDS.get((command, count)):
            goals.append(Goal(f"≤ {seconds} s", side.cpu[0] * count <= seconds))
        rows.append(Row(f"merge-nli {command}", "row", side, smallest, tuple(goals)))
        if command in PLAIN:
            with Contender(
                "plain DuckDB", plain_query, {"folder": str(place), "command": command}
            ) as peer:
                plain = Side.of("plain DuckDB", [peer.ask()], count)
            rows.append(Row(f"merge-nli {command}", "row", side, plain))
        smallest = smallest or side
    measurement.write(rows)


def test_score_against_the_slow_oracle(rounds: int) -> None:
    measurement = Measurement("metric", "oracle")
    with ExitStack() as running:
        ours, theirs = (
            running.enter_context(Contender(name, slow_oracle, {"of_oracle": of_oracle}))
            for name, of_oracle in (("ours", False), ("the definitions in plain Python", True))
        )
        replies = in_turn(rounds, partial(ours.ask, times=20), theirs.ask)
    sides = sides_of((ours, theirs), replies, 1)
    measurement.write(
        [compare("metric, 10,000 rows", *sides, unit="call", agreement="the same figures")]
    )
    assert replies[0][0].answer == pytest.approx(replies[1][0].answer)
