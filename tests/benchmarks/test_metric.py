import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from helpers.bench.contender import Contender
from helpers.bench.made_up_rows import write_made_up_predictions, write_made_up_run
from helpers.bench.results import Goal, Measurement, Race, Row, Side

from merge_dataset.export import export_dataset
from merge_metric import seed_variant_accuracy
from merge_metric.seed_variant_accuracy.scoring import score

pytestmark = pytest.mark.benchmark

MILLION: Final = (50_000, 20)
"""Number of seeds, and variants per seed."""


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


ROWS_OF_A_SEED: Final = 22
"""Rows of a made-up seed: the seed itself, and seven variants in each of three classes."""
MOST_MB: Final = {10_000_000: 1500}
"""Rows → largest resident set allowed for each command; 1,000 MB for fewer rows."""
MOST_SECONDS: Final = {
    ("score", 1_000_000): 3,
    ("score with 1,000 replicates", 1_000_000): 5,
    ("score", 10_000_000): 35,
}
"""(Command, rows) → most CPU seconds allowed."""


def own_score() -> Callable[[int], Callable[[], Any]]:
    """`score`, without intervals if `n_bootstrap` is 0."""
    data = million_rows()

    def answer(n_bootstrap: int) -> Callable[[], Any]:
        result = score(**data, n_bootstrap=n_bootstrap)
        return lambda: repr(result)

    return answer


def whole_metric(cache: str) -> Callable[[], Callable[[], Any]]:
    """The metric through `evaluate`, which first ingests the columns."""
    import evaluate

    evaluate.config.HF_MODULES_CACHE = f"{cache}/modules"
    script = Path(seed_variant_accuracy.__file__).parent / "seed_variant_accuracy.py"
    metric = evaluate.load(str(script), cache_dir=f"{cache}/cache")
    data = million_rows()

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


_DIGEST = (
    "'md5:' || left(md5(concat(strlen(v.variant_id), ':', v.variant_id, strlen(v.premise), ':', "
    "v.premise, strlen(v.hypothesis), ':', v.hypothesis)), 16)"
)


def plain_query(folder: str) -> Callable[[], int]:
    """Join the same files and count per seed, with digests of texts, by DuckDB alone."""
    place = Path(folder)

    def answer() -> int:
        import duckdb

        connection = duckdb.connect()
        variants = f"'{place}/merge-nli/*/*/variants*.parquet'"
        answers = f"'{place}/p.parquet'"
        seeds = connection.execute(
            "SELECT v.seed_id, count(*), count(*) FILTER (p.prediction = v.label), "
            f"count(*) FILTER (p.prediction <> o.prediction), "
            f"count(*) FILTER (p.text_digest <> {_DIGEST}) "
            f"FROM {variants} v JOIN {answers} p USING (variant_id) "
            f"JOIN {answers} o ON o.variant_id = v.seed_id GROUP BY v.seed_id ORDER BY v.seed_id"
        ).fetchnumpy()
        return len(seeds["seed_id"])

    return answer


def test_score_beside_the_plain_query(tmp_path: Path, race: Race) -> None:
    """`score` checks rows and makes figures, of probabilities too, in at most twice the time."""
    rows, arguments = 1_000_000, {"folder": str(tmp_path)}
    asked = arguments | {"rows": rows, "command": "score"}
    contenders = [
        Contender("merge-nli score", many_rows, asked),
        Contender("plain query", plain_query, arguments),
    ]
    ours, query = race(contenders, rows)
    assert query.answer == rows // ROWS_OF_A_SEED
    what = "merge-nli score beside the query"
    row = Row(what, ours.side, query.side, unit="row", at_least=0.5)
    Measurement("metric", "plain-query").write([row])


def test_score_beside_the_ingestion_of_evaluate(tmp_path: Path, race: Race) -> None:
    """Ingestion is the time by which `compute` is slower than `score`."""
    measurement = Measurement("metric", "default")
    contenders = [
        Contender("ours", own_score, request={"n_bootstrap": 0}),
        Contender("ours, 1,000 replicates", own_score, request={"n_bootstrap": 1000}),
        Contender("compute", whole_metric, {"cache": str(tmp_path)}),
    ]
    figures, replicates, computed = race(contenders, 1)
    ingestion = computed.side.beyond(figures.side, "evaluate's own ingestion")
    seeds, variants = MILLION
    row = partial(Row, f"metric, {seeds * variants:,} rows", unit="call", at_least=1)
    text = "compute gives what score gives"
    rows = [row(figures.side, ingestion, agreement=text), row(replicates.side, ingestion)]
    measurement.write(rows)
    assert computed.answer == figures.answer


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
        rows.append(Row(f"merge-nli {command}", side, smallest, "row", goals=tuple(goals)))
        smallest = smallest or side
    measurement.write(rows)
