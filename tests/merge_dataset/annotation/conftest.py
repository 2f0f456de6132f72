"""Sessions of annotation on the dataset made by hand."""

import shutil
from pathlib import Path

import pytest

from merge_dataset.annotation import Session, open_session, read_session


@pytest.fixture(scope="session")
def same_session(same_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return open_session(tmp_path_factory.mktemp("session") / "study", same_dataset).folder


@pytest.fixture
def session(same_session: Path, tmp_path: Path) -> Session:
    """A session with all eleven variants of `snli`: six nouns, three verbs, two adjectives."""
    return read_session(Path(shutil.copytree(same_session, tmp_path / "study")))


@pytest.fixture
def pairs(paraphrases: Path, tmp_path: Path) -> Session:
    """A session of paraphrases: whether each has the meaning of its original."""
    return open_session(tmp_path / "pairs", paraphrases, ["snli_paraphrases"])
