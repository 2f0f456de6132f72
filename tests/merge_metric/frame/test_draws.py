import hashlib
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import run
from helpers.dataset_files import write_rows
from helpers.report_data import problems

from merge_metric.frame.predictions import (
    read_metadata,
    read_predictions,
)
from merge_metric.frame.relations import changed_draws, draw_digests
from merge_metric.predict.baselines import Majority
from merge_metric.predict.driver import predict
from merge_metric.predict.problems import read_problems

NOUNS, VERBS = "snli/nouns/variants.parquet", "snli/verbs/variants.parquet"
TOLD = "warning: these predictions are of another draw: the dataset"


def drawn_otherwise(folder: Path, out: Path) -> Path:
    """Copy a dataset, with the first two nouns' variants in other subsamples."""
    shutil.copytree(folder, out)
    rows = pq.read_table(out / NOUNS, partitioning=None).to_pylist()
    rows[0]["subsamples"], rows[1]["subsamples"] = [0], [1, 2]
    write_rows(out / NOUNS, rows)
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("draws")
    folder = problems(12).write(root / "merge-nli")
    drawn_otherwise(folder, root / "other")
    ask(folder, root / "p.parquet")
    return root


def ask(folder: Path, out: Path) -> dict[str, object]:
    asked = read_problems(str(folder))
    model = Majority(asked["label"].to_numpy(), {})
    return predict(model, asked, out, progress=False).metadata


def score(path: Path, folder: Path) -> None:
    run("score", path, "--dataset", folder, "--n-bootstrap", 0)


def test_digests(made: Path) -> None:
    """By hand; independent of the rows' order, but not of lists or ids."""
    rows = pq.read_table(made / "merge-nli" / NOUNS, partitioning=None)
    total = 0
    for row in rows.to_pylist():
        text = f"{row['variant_id']} {row['subsamples']}"
        digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
        total += int.from_bytes(digest[8:], "little") % 2**32
    result = draw_digests(made / "merge-nli", [NOUNS, VERBS, NOUNS])
    assert list(result) == [NOUNS, VERBS]
    assert result[NOUNS] == f"{total % 2**32:08x}"
    again = made / "again"
    shutil.copytree(made / "merge-nli", again, dirs_exist_ok=True)
    pq.write_table(rows.slice(3), again / NOUNS)
    assert changed_draws(again, result, [NOUNS, VERBS]) == [NOUNS]
    pq.write_table(pa.concat_tables([rows.slice(3), rows.slice(0, 3)]), again / NOUNS)
    assert changed_draws(again, result, [NOUNS, VERBS]) == []
    assert changed_draws(made / "other", result, [NOUNS, VERBS]) == [NOUNS]
    assert changed_draws(made / "other", result, [VERBS]) == []


def test_the_same_answers_serve_another_draw(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, rows = tmp_path / "p.parquet", read_predictions(made / "p.parquet")
    shutil.copy(made / "p.parquet", path)
    before = read_metadata(path)
    metadata = ask(made / "other", path)
    assert metadata == read_metadata(path)
    assert read_predictions(path).equals(rows)
    assert metadata["problems"]["draws"] == draw_digests(made / "other", [NOUNS, VERBS])
    assert {key for key in before if before[key] != metadata[key]} == {"problems"}
    score(path, made / "other")
    assert TOLD not in caplog.text
    score(path, made / "merge-nli")
    assert TOLD in caplog.text
