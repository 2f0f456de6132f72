from pathlib import Path

import pytest
from helpers.commands import refused

from merge_dataset.show import choose_problems


def test_draws_are_repeatable(dataset: Path) -> None:
    drawn = [
        [(each.seed_id, [row["variant_id"] for row in each.variants]) for each in found]
        for found in (
            choose_problems(dataset, ["snli"], n=1, variants=1, rng_seed=seed)
            for seed in (*range(30), 0)
        )
    ]
    assert drawn[0] == drawn[-1]
    seeds = {seed_id for (found,) in drawn for seed_id in found[:1]}
    assert seeds == {"snli:1", "snli:2", "snli:3"}


def test_configurations_by_default(dataset: Path) -> None:
    assert {each.config for each in choose_problems(dataset)} == {"snli"}
    for problem in choose_problems(dataset, ["snli_verbs"], variants=None):
        assert {row["word_class"] for row in problem.variants} == {"verb"}
        assert {word_class for word_class, _ in problem.counts} == {"verb"}


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
