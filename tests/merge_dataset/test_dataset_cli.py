import json
import re
from pathlib import Path

import pytest
from helpers.commands import refused, run

from merge_dataset.show import choose_problems

METRIC = 'evaluate.load("seed_variant_accuracy")'


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Evaluate's module cache, in which the metric is registered."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "modules"


def test_register(dataset: Path, tmp_path: Path, modules: Path) -> None:
    """Metric and dataset get entries in the given cache, and lines of code to load them."""
    command = ("register", dataset, "--cache-dir", tmp_path / "cache")
    result = run(*command)
    lines = [METRIC, *(f'load_dataset("merge-nli", "{name}")' for name in ("snli", "snli_nouns"))]
    assert result.stdout.splitlines()[:3] == lines
    names = ["snli", "snli_adjectives", "snli_nouns", "snli_verbs"]
    assert sorted(p.name for p in (tmp_path / "cache/merge-nli").iterdir() if p.is_dir()) == names
    assert len(list(modules.rglob("seed_variant_accuracy.py"))) == 1
    made = json.loads(run(*command, "--format", "json").stdout)
    assert (made["metric"], made["folder"]) == ("seed_variant_accuracy", str(dataset))
    assert sorted(made["registered"]) == names


def test_register_without_a_folder(
    dataset: Path, tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("register", "--cache-dir", tmp_path / "cache")
    monkeypatch.chdir(dataset.parent)
    assert 'load_dataset("merge-nli", "snli")' in run(*command).stdout
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = run(*command)
    assert result.stdout == METRIC + "\n"
    assert result.stderr == "No folder merge-nli here: no dataset registered.\n"
    made = json.loads(run(*command, "--format", "json").stdout)
    assert made == {
        "metric": "seed_variant_accuracy",
        "folder": None,
        "name": None,
        "registered": [],
    }


def test_register_with_a_bad_folder(dataset: Path, tmp_path: Path, modules: Path) -> None:
    (dataset / "README.md").unlink()
    cache = tmp_path / "cache"
    bad = ("register", dataset, "--cache-dir", cache)
    done = run(*bad, code=1)
    assert done.stdout == 'evaluate.load("seed_variant_accuracy")\n'
    assert re.search(r"not registered: \d+ problem\(s\)", done.stderr)
    assert "README.md: expected a dataset card" in done.stderr
    assert json.loads(run(*bad, "--format", "json", code=1).stdout)["registered"] == []
    assert "name" in refused(*bad, "--name", "a/b")
    assert not cache.exists()
    assert len(list(modules.rglob("seed_variant_accuracy.py"))) == 1
    run("register", tmp_path / "nowhere", code=2)


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
