"""One tagger and one thread for all tests of a process."""

from collections.abc import Iterator
from functools import cache

import pytest
from threadpoolctl import threadpool_limits

from generation.problems.tagging import Tagger


@pytest.fixture(scope="session", autouse=True)
def _one_tagger() -> Iterator[None]:
    """Load spaCy's model once: it takes half a second, and about fifty builds need one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tagger, "load", cache(Tagger.load))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Limit threads, as waiting threads take ten times as long on a busy machine."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def tagger() -> Tagger:
    return Tagger.load()


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the folder, so that no dataset of `make demo` in the checkout is found."""
    monkeypatch.chdir(tmp_path_factory.getbasetemp())
