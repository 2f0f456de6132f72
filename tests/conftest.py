"""Shared fixtures and the two tiers: everything runs offline, in a separate, empty home."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import hypothesis
import pytest
from faults.attack import RESULTS, table_of
from filelock import FileLock
from helpers.processes import processor_flags

if TYPE_CHECKING:
    from helpers.hub.publishing import Desk

TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parents[1] / "shared"

OF_THEIR_OWN = ("benchmarks", "harnesses", "legacy", "trackers")
"""Folders with targets of their own, collected only if named: their imports take seconds."""

_HOME = TemporaryDirectory(prefix="merge-nli-home-", ignore_cleanup_errors=True)
os.environ["HF_HOME"] = _HOME.name  # a user's own cache may have datasets by the names of tests'

gc.disable()  # until collection ends: imports make millions of objects that stay
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_EVALUATE_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads would mostly wait for each other
if "avx512f" not in processor_flags():  # before any product: `checkpoints.load` comes too late
    os.environ.setdefault("MKL_CBWR", "AVX2")

# Examples per property: few in the first tier, many in the second. Slowness is no failure.
for name, examples in (("fast", 10), ("full", 60)):
    hypothesis.settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("fast")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.parent != TESTS or collection_path.name not in OF_THEIR_OWN:
        return None
    asked = (config.invocation_params.dir / arg.partition("::")[0] for arg in config.args)
    named = any(path.resolve().is_relative_to(collection_path) for path in asked)
    return None if named else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that lack real data, and put the cases of `slow(but=…)` into the first tier."""
    for item in items:
        if "real" in item.keywords and not SHARED.is_dir():
            item.add_marker(pytest.mark.skip(reason=f"needs {SHARED}"))
        slow = item.get_closest_marker("slow")
        case = item.callspec.id if hasattr(item, "callspec") else None
        if slow and case in slow.kwargs.get("but", ()):
            item.own_markers.remove(slow)


def pytest_collection_finish() -> None:
    """Exclude the objects of imports and collection from later garbage collections."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tries of fault injection held, and write the table to a file."""
    if "PYTEST_XDIST_WORKER" in os.environ:  # a worker has only a part of the reports
        return
    stats = terminalreporter.stats
    if table := table_of(item for name in stats if "subtest" in name for item in stats[name]):
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(table, encoding="utf-8")
        terminalreporter.write_line(f"\n{table}{RESULTS}")


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a folder once for all workers: `once(name, make)`, where `make` fills the folder."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make_once(name: str, make: Callable[[Path], object]) -> Path:
        folder, made = root / name, root / f"{name}.made"
        with FileLock(root / f"{name}.lock"):
            if not made.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                made.touch()
        return folder

    return make_once


@pytest.fixture
def shared_data() -> Path:
    return SHARED / "data"


@pytest.fixture
def shared_models() -> Path:
    return SHARED / "models"


@pytest.fixture(scope="module")
def office() -> Iterator[Desk]:
    from helpers.hub.publishing import desk_at_a_hub

    with desk_at_a_hub() as desk:
        yield desk


@pytest.fixture
def desk(office: Desk) -> Iterator[Desk]:
    """Yield the desk with an empty Hub, which must understand every request."""
    office.hub.reset()
    yield office
    assert office.hub.errors == []
