"""The fixture of fault injection, and how its tests end."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from faults.attack import PROPERTY, Attack, from_environment


@pytest.fixture
def attack(request: pytest.FixtureRequest) -> Attack:
    """Seeded tries, which are counted, and fail the test at its end if one fails."""
    return from_environment(request.node.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test whose tries failed; what it counted goes into its report."""
    made = pyfuncitem.funcargs.get("attack")
    try:
        result = yield
    finally:
        if isinstance(made, Attack):
            counts = [(area, held, count) for (area, held), count in made.counts.items()]
            pyfuncitem.user_properties.append((PROPERTY, counts))
    if isinstance(made, Attack):
        made.finish()
    return result
