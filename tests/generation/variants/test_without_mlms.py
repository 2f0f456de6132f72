from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.tiny_models import tiny_model

from generation import Config, build, generate
from generation.config import BUNDLED_MLM
from generation.run_folder import RunFolder
from merge_dataset.files import digest_of_file, read_json, read_record

pytestmark = pytest.mark.usefixtures("elsewhere")

MADE = ("replacements", "exclusions", "seeds", "variants")


def config(run: Path, *mlms: str) -> Config:
    return Config.from_recipe("demo", run=str(run), limit=12, mlms=mlms)


def made(run: RunFolder) -> dict[str, str]:
    return {name: digest_of_file(getattr(run, name)) for name in MADE}


@pytest.fixture(scope="module")
def other() -> Path:
    return tiny_model("bert-uncased")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, other: Path) -> RunFolder:
    return generate(config(tmp_path_factory.mktemp("run") / "both", str(other), BUNDLED_MLM))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return generate(config(tmp_path_factory.mktemp("run") / "alone", BUNDLED_MLM))


@pytest.mark.slow
def test_bytes_are_those_of_a_run_without_it(
    both: RunFolder, alone: RunFolder, other: Path
) -> None:
    """All tables are equal; the manifest differs only in the setting, and so the fingerprint."""
    without = build(both.path, into="without", without_mlms=(other.name,))
    assert made(without) == made(alone)
    assert made(without)["replacements"] != made(both)["replacements"]
    named = {m for row in pq.read_table(both.variants)["mlms"].to_pylist() for m in row}
    assert named == {other.name, BUNDLED_MLM}
    without = read_record(build(both.path, into="told", without_mlms=(other.name,)).manifest)
    expected = read_record(alone.manifest)
    assert without["config"].pop("without_mlms") == [other.name]
    assert without["explained"]["settings"].pop("without_mlms").startswith("Leave out")
    assert [mlm["name"] for mlm in without["mlms"]] == [BUNDLED_MLM]
    assert without.pop("fingerprint") != expected.pop("fingerprint")
    assert without == expected
    assert "without_mlms" not in read_json(both.manifest)["config"]
    assert "without_mlms" not in both.config.read_text(encoding="utf-8")
