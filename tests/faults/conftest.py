from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from helpers.forks import forks_in

from faults.attack import PROPERTY, Attack, from_environment
from faults.commands import Workshop, environment_of, prepare


@pytest.fixture
def attack(request: pytest.FixtureRequest) -> Attack:
    return from_environment(request.node.nodeid)


@pytest.fixture(scope="session")
def workshop(
    once: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workshop]:
    folder = tmp_path_factory.mktemp("faults") / "work"
    logs = folder.with_name("logs")
    with forks_in(folder, logs, environment_of(folder)) as forks:
        base = once("faults-base", lambda base: prepare(base, forks))
        yield Workshop(forks, base, {})


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    made = pyfuncitem.funcargs.get("attack")
    try:
        result = yield
    finally:
        if isinstance(made, Attack):
            counts = [(area, held, count) for (area, held), count in made.counts.items()]
            ends = {area: made.ends[area] for area, _, _ in counts if area in made.ends}
            pyfuncitem.user_properties.append((PROPERTY, (counts, ends)))
    if isinstance(made, Attack):
        made.finish()
    return result
