"""Files of earlier releases are read by this release, and replaced only on demand."""

import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faults import small_world
from faults.commands import snapshot
from merge_dataset.files import read_record

pytestmark = pytest.mark.slow

RELEASES = sorted(Path(__file__).parents[1].glob("data/earlier_releases/*/"))

READERS = (
    "check merge-nli", "show merge-nli --n 1",
    "score p.parquet --dataset merge-nli --n-bootstrap 0",
    "report p.parquet --dataset merge-nli --n-bootstrap 0 --out report.md",
    "analyse hardest p.parquet --dataset merge-nli", "analyse composition --run run",
    "annotate --out study --export items.csv", "export jsonl merge-nli --out lines",
    "baseline majority --dataset merge-nli --out again.parquet", "diff run run", "count --run run",
    "build --run run --into other --out other-data",
    "score m.parquet --dataset sliced-nli --n-bootstrap 0",
    "score m.jsonl.gz --dataset sliced-nli --n-bootstrap 0", "check sliced-nli",
    "diff run sliced/slices/00000-of-00002", "count --run sliced/slices/00001-of-00002",
    "build --run sliced --into other --out sliced-data", "check paraphrased-nli",
    "show paraphrased-nli --n 1", "analyse hardest m.parquet --dataset sliced-nli",
    "baseline majority --dataset paraphrased-nli --out paraphrased.parquet",
)  # fmt: skip
"""Commands; slices, paraphrases and a model's answers only if a release left some."""

_LATER = {"sliced", "sliced-nli", "paraphrased-nli", "m.parquet", "m.jsonl.gz"}

DRAW = "the draw of variants: version 1 (merge-nli before 1.0) there, 2 now"


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    shutil.copytree(request.param, tmp_path, dirs_exist_ok=True)
    with chdir(tmp_path):
        yield request.param.name


def test_everything_reads_them(release: str) -> None:
    before = snapshot(Path())
    kept = {name.split("/")[0] for name in before}
    for command in READERS:
        if kept >= {word.split("/")[0] for word in command.split()} & _LATER:
            small_world.do(command)
    assert before.items() <= snapshot(Path()).items()


@pytest.mark.parametrize("command", [
    "build --run run --out merge-nli",
    "build --run run --out new-data",
    "build --run run --into other --out merge-nli",
    "generate --recipe demo --limit 3 --set suggestions_per_occurrence=40 --set min_replacements=3 "
    "--set variants_per_class=3 --set subsamples=2 --set with_columns=[] --run new --out merge-nli",
])  # fmt: skip
def test_another_draw_replaces_nothing_without_overwrite(release: str, command: str) -> None:
    before = snapshot(Path())
    code, _, said = small_world.call(*command.split())
    if release.startswith("0."):
        assert code == 2
        assert DRAW in said
        assert "--overwrite" in said
        assert before.items() <= snapshot(Path()).items()
        code, _, said = small_world.call(*command.split(), "--overwrite")
    assert code == 0, said
    small_world.do("check merge-nli")
    if release.startswith("1."):
        kept = [name for name in before if name.startswith("merge-nli/")]
        after = snapshot(Path())
        for made in Path().glob("run/manifest.json"):
            then = read_record(RELEASES[0].parent / release / made)
            assert read_record(made)["fingerprint"] == then["fingerprint"]
        if command.startswith("build"):
            for name in kept:  # later releases record their draw, too
                if not name.endswith("provenance.json") and Path(name).name != "README.md":
                    assert before[name] == after[name]
        for name in kept:  # another processor's log-probabilities differ in the last digits
            if name.endswith(".parquet"):
                assert _rows(Path(name)) == _rows(RELEASES[0].parent / release / name)


def _rows(path: Path) -> list[dict[str, object]]:
    table = pq.read_table(path)
    exact = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
    return list(table.select(exact).to_pylist())
