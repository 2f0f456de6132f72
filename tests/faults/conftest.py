from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from helpers.forks import forks_in

from faults.attack import Attack
from faults.commands import Workshop, environment_of, prepare
from generation.problems.tagging import Tagger

_load = cache(Tagger.load)


@pytest.fixture(autouse=True)
def _one_tagger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tagger, "load", _load)


@pytest.fixture
def attack(subtests: pytest.Subtests) -> Attack:
    return Attack(subtests)


@pytest.fixture(scope="session")
def workshop(
    once: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workshop]:
    folder = tmp_path_factory.mktemp("faults") / "work"
    logs = folder.with_name("logs")
    with forks_in(folder, logs, environment_of(folder)) as forks:
        base = once("faults-base", lambda base: prepare(base, forks))
        yield Workshop(forks, base, {})
