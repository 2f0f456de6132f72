from pathlib import Path

import pytest
from helpers.judged import write_dataset


@pytest.fixture(scope="session")
def dataset_judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("dataset") / "merge-nli")
