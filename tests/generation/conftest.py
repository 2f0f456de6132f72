"""One tagger and one thread for all tests of a process."""

from collections.abc import Iterator
from functools import cache

import pytest
from threadpoolctl import threadpool_limits

from generation.problems.tagging import Tagger


@pytest.fixture(scope="session", autouse=True)
def _one_tagger() -> Iterator[None]:
    """Load spaCy's model once: it takes half a second, and fifty builds want one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tagger, "load", cache(Tagger.load))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for one another take ten times as long on a busy machine."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def tagger() -> Tagger:
    return Tagger.load()


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without --out find no dataset that `make demo` made in the checkout."""
    monkeypatch.chdir(tmp_path_factory.getbasetemp())
