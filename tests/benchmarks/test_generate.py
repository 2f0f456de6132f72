from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest
from helpers.bench import obvious_order
from helpers.bench.contender import Contender, in_turn, spread
from helpers.bench.models import REAL, model_folder
from helpers.bench.problems import read_seeds
from helpers.bench.results import Measurement, Side, compare, sides_of

from generation import Config, build, suggest

pytestmark = pytest.mark.benchmark

SEEDS: Final = 512
OBVIOUS: Final = {
    "one_by_one": "every suggestion tagged, one by one",
    "in_batches": "every suggestion tagged, nlp.pipe on the tagger's pipes",
}
GOALS: Final = {
    ("bert-tiny-mlm", "one_by_one"): 325,
    ("bert-tiny-mlm", "in_batches"): 64,
    ("minilm-l6-mlm", "one_by_one"): 91,
    ("minilm-l6-mlm", "in_batches"): 19,
}
"""Ratios that a prototype reached."""


def pipeline(file: str, model: str, run: str) -> Callable[[], Callable[[], list[list[str]]]]:
    numbers = count()

    def answer() -> Callable[[], list[list[str]]]:
        folder = f"{run}/{next(numbers)}"
        config = Config.from_recipe(
            "demo", source="bench", data=file, mlms=(model,), limit=SEEDS, run=folder,
            min_replacements=1,
        )  # fmt: skip
        suggest(config)
        build(config.run)
        names = ("seed_id", "word", "word_class", "replacement")
        return lambda: [
            [row[name] for name in names]
            for row in pq.read_table(f"{folder}/replacements.parquet").to_pylist()
        ]

    return answer


@pytest.mark.parametrize("model", REAL)
def test_generate_against_the_obvious_order(
    model: str, tmp_path: Path, problem_file: Path, shared_models: Path, rounds: int, budget: float
) -> None:
    folder = model_folder(model, shared_models)
    if folder is None:
        pytest.skip(f"needs {shared_models / model}")
    measurement = Measurement("replacements", model)
    seeds = read_seeds(problem_file)[:SEEDS]
    few = spread(range(len(seeds)), max(4, int(budget)))  # each takes nearly a second
    arguments = {"file": str(problem_file), "model": str(folder)}
    ours = Contender("ours", pipeline, arguments | {"run": str(tmp_path)})
    theirs = [
        Contender(name, obvious_order.load, arguments | {"rows": few, "tagging": tagging})
        for tagging, name in OBVIOUS.items()
    ]
    with ExitStack() as running:
        contenders = [running.enter_context(contender) for contender in (ours, *theirs)]
        replies = in_turn(rounds, *(contender.ask for contender in contenders))
    ids = {seeds[row].seed_id for row in few}
    found = sorted(row for row in replies[0][0].answer if row[0] in ids)
    row = partial(compare, f"replacements, {model}", Side.of(ours.name, replies[0], len(seeds)))
    said = f"the same {len(found):,} replacements of {len(few)} seeds"
    measurement.write(
        [
            row(side, unit="seed", at_least=GOALS[model, tagging], agreement=said)
            for side, tagging in zip(sides_of(theirs, replies[1:], len(few)), OBVIOUS, strict=True)
        ]
    )
    assert found
    for each in replies[1:]:
        assert each[0].answer == found


def fresh_run(run: str) -> Callable[[int], None]:

    def answer(number: int) -> None:
        config = Config.from_recipe("demo", run=f"{run}/{number}")
        suggest(config)
        build(config.run)

    return answer


def ablation(run: str) -> Callable[[int], None]:

    def answer(number: int) -> None:
        build(f"{run}/{number}", ablation="prob")

    return answer


def test_ablation_against_a_fresh_run(tmp_path: Path, rounds: int) -> None:
    measurement = Measurement("ablation", "demo")
    where, numbers = {"run": str(tmp_path)}, {"fresh": count(), "ablation": count()}
    with (
        Contender("fresh run", fresh_run, where) as fresh,
        Contender("ours, `prob` from the filled store", ablation, where) as again,
    ):
        replies = in_turn(
            rounds,
            lambda: fresh.ask(number=next(numbers["fresh"])),
            lambda: again.ask(number=next(numbers["ablation"])),
        )
    assert all((tmp_path / f"{n}/prob/variants.parquet").is_file() for n in range(rounds))
    sides = sides_of((fresh, again), replies, 1)
    measurement.write([compare("ablation, demo", sides[1], sides[0], unit="build")])
