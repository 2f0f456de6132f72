from collections.abc import Iterator

import pytest
from helpers import slurm_cluster
from helpers.processes import PYTHON_PATH
from helpers.slurm_cluster import SlurmCluster


@pytest.fixture(autouse=True)
def workers_can_import_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass on the helpers' path, as pytest's `pythonpath` does not reach other processes."""
    monkeypatch.setenv("PYTHONPATH", PYTHON_PATH)


@pytest.fixture(scope="session")
def running_slurm() -> Iterator[SlurmCluster]:
    # Not skipped: anyone who selects these tests wants them to run.
    if missing := slurm_cluster.missing():
        pytest.fail(missing)
    with slurm_cluster.slurm_cluster() as cluster:
        yield cluster


@pytest.fixture
def on_slurm(running_slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """The cluster, for this process too."""
    monkeypatch.setenv("SLURM_CONF", str(running_slurm.conf))
    return running_slurm
