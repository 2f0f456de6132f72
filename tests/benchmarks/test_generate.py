"""How much faster the pipeline is than the obvious order; `make bench`.

Ratios of whole paths, measured in turn in one process, on the bundled problems or, where
there are any, on real ones. The machine's noise is shown as the range over the rounds.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.reference import SlowMLM, cased_like, keeps_class, shared, tag

from generation import Config, build, suggest
from generation.config import BUNDLED_MLM, bundled_path
from generation.records import Seed

pytestmark = pytest.mark.benchmark

ROUNDS = 3
SEEDS = 512
SEEDS_OF_OBVIOUS_ORDER = 16
"""It takes most of a second for each."""


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def shown(name: str, values: list[float]) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{name}: {middle:.3g} ({low:.3g} to {high:.3g} over {len(values)} rounds)"


def problems(file: Path) -> list[Seed]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        Seed(
            seed_id=f"demo:{row['pairID']}",
            source="demo",
            premise=row["sentence1"],
            hypothesis=row["sentence2"],
            label=row["gold_label"],
        )
        for row in rows
        if row["gold_label"] != "-"
    ]


def obvious_order(seeds: list[Seed], model: Path) -> set[tuple[str, str, str, str]]:
    """Score one by one, tag every suggestion in its whole sentence, then filter."""
    tag.cache_clear()
    mlm, found = SlowMLM(model), set()
    for seed in seeds:
        texts = (seed.premise, seed.hypothesis)
        problem = {token.text.lower() for text in texts for token in tag(text)}
        for word, word_class in shared(seed, ("noun", "verb", "adjective")):
            sets = []
            for text in texts:
                for token in tag(text):
                    if token.text == word:
                        odds = mlm.suggestions(text, token.span, [token.span], 200, False) or {}
                        tagged = {
                            other: keeps_class(text, word, cased_like(other, word), "coarse")
                            for other in odds
                        }
                        sets.append({o for o in odds if tagged[o] and odds[o] > 0} - problem)
            words = set.intersection(*sets)
            found |= {(seed.seed_id, word, word_class, cased_like(o, word)) for o in words}
    return found


def test_generate_against_the_obvious_order(
    tmp_path: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seconds per seed of the whole path, and the same replacements."""
    real = shared_data / "snli_test.jsonl"
    file = real if real.is_file() else bundled_path("demo/problems.jsonl")
    few = problems(file)[:SEEDS_OF_OBVIOUS_ORDER]
    model = bundled_path(f"demo/{BUNDLED_MLM}")
    slow, fast, expected = [], [], set()
    for number in range(ROUNDS):
        run = str(tmp_path / str(number))
        config = Config.from_recipe(
            "demo", data=str(file), limit=SEEDS, run=run, min_replacements=1
        )
        fast.append(seconds(lambda c=config: (suggest(c), build(c.run))) / SEEDS)
        slow.append(seconds(lambda: expected.update(obvious_order(few, model))) / len(few))
    ids = {seed.seed_id for seed in few}
    found = {
        (r["seed_id"], r["word"], r["word_class"], r["replacement"])
        for r in pq.read_table(tmp_path / "0/replacements.parquet").to_pylist()
        if r["seed_id"] in ids
    }
    assert expected
    assert found == expected
    with capsys.disabled():
        print(f"\n{file.name}, seconds per seed, loading of models included:")
        print(shown("  pipeline", fast))
        print(shown("  obvious order", slow))
        print(shown("  ratio", [s / f for s, f in zip(slow, fast, strict=True)]))


def test_ablation_against_a_fresh_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An ablation from the filled store against the run that filled it."""
    fresh, ablation = [], []
    for number in range(ROUNDS):
        config = Config.from_recipe("demo", run=str(tmp_path / str(number)))
        fresh.append(seconds(lambda c=config: (suggest(c), build(c.run))))
        ablation.append(seconds(lambda c=config: build(c.run, ablation="prob")))
    assert (tmp_path / "0/prob/variants.parquet").is_file()
    with capsys.disabled():
        print(shown("\n  fresh run, seconds", fresh))
        print(shown("  ablation `prob`, seconds", ablation))
        print(shown("  ratio", [f / a for f, a in zip(fresh, ablation, strict=True)]))
