from pathlib import Path

import pytest
from helpers.commands import refused

from merge_dataset.show import choose_problems


def test_draws_are_repeatable(dataset: Path) -> None:
    drawn = [
        [(p["seed_id"], [row["variant_id"] for row in p["variants"]]) for p in problems]
        for problems in (
            choose_problems(dataset, ["snli"], n=1, variants=1, rng_seed=seed)
            for seed in (*range(30), 0)
        )
    ]
    assert drawn[0] == drawn[-1]
    seeds = {seed_id for (first,) in drawn for seed_id in first[:1]}
    assert seeds == {"snli:1", "snli:2", "snli:3"}


def test_configurations_by_default(dataset: Path) -> None:
    assert {problem["config"] for problem in choose_problems(dataset)} == {"snli"}
    for problem in choose_problems(dataset, ["snli_verbs"], variants=None):
        assert {row["word_class"] for row in problem["variants"]} == {"verb"}
        assert {word_class for word_class, _ in problem["counts"]} == {"verb"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed-id", "snli:1", "--n", "2"], "--n: expected it or --seed-id, got both"),
        (["--seed-id", "snli:2/noun/girl/boy"], "did you mean 'snli:2'?"),
        (["--seed-id", "snli:7", "--config", "snli_nouns"], "one of 2 problems of snli_nouns"),
    ],
)
def test_what_is_not_there_is_named(dataset: Path, arguments: list[str], message: str) -> None:
    assert message in refused("show", dataset, *arguments)
