import hashlib
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import run
from helpers.dataset_files import write_rows
from helpers.problem_folder import many_problems, write_folder
from helpers.report_data import problems

from merge_dataset.engine import connect
from merge_metric.frame.predictions import (
    read_metadata,
    read_predictions,
)
from merge_metric.frame.relations import changed_draws, draw_digests
from merge_metric.frame.texts import combined, digest_in_hex, digest_in_sql, text_digests, to_hex
from merge_metric.predict.baselines import Majority
from merge_metric.predict.driver import predict
from merge_metric.predict.problems import read_problems

FIELDS = ("premise", "hypothesis")


def score(path: Path, folder: Path, *more: str) -> str:
    return run("score", path, "--dataset", folder, "--n-bootstrap", 0, *more).stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset, and predictions for it."""
    root = tmp_path_factory.mktemp("texts")
    folder = write_folder(root / "merge-nli", many_problems(40, 3))
    problems = read_problems(str(folder))
    model = Majority(problems["label"].to_numpy(), {})
    predict(model, problems, root / "p.parquet", progress=False)
    predict(model, problems, root / "p.jsonl", progress=False)
    return root


def test_digests_depend_on_ids_texts_and_their_borders() -> None:
    columns = {
        "variant_id": ["a", "b", "a", "a", "a", "a1"],
        "premise": ["x y", "x y", "x", "1:x", "", "x y"],
        "hypothesis": ["z", "z", " yz", "", "1:x", "z"],
    }
    table = pa.table(columns)
    digests = text_digests(table, FIELDS)
    assert len(set(digests.tolist())) == 6
    with connect() as connection:
        connection.register("problems", table.append_column("digest", to_hex(digests)))
        query = f"{digest_in_sql(['variant_id', *FIELDS])}, {digest_in_hex('digest')}"
        rows = connection.execute(f"SELECT {query} FROM problems").fetchall()
        assert rows == [(digest, digest) for digest in digests.tolist()]
        odd = f"SELECT {digest_in_hex('x')} FROM (VALUES ('md5:ff00000000000000'), ('md5:g')) t(x)"
        assert connection.execute(odd).fetchall() == [(255,), (None,)]
    assert combined(digests) == combined(digests[::-1]) != combined(digests[1:])


def test_the_signature_has_the_texts(made: Path) -> None:
    result = {}
    rows = [json.loads(line) for line in (made / "p.jsonl").read_text().splitlines()]
    part = made / "part.jsonl"
    kept = {row["seed_id"] for row in rows[:20]}
    lines = [json.dumps(row) for row in rows if row["seed_id"] in kept]
    part.write_text("\n".join(lines))
    for path in (made / "p.parquet", made / "p.jsonl", part):
        done = score(path, made / "merge-nli", "--allow-missing")
        assert "unverified" not in done
        result[path] = done.partition("texts:")[2][:8]
    assert len(set(result.values())) == 1


def test_predictions_of_other_programs_are_unverified(
    made: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [json.loads(line) for line in (made / "p.jsonl").read_text().splitlines()]
    path = made / "some.jsonl"
    for left_out in (rows[:1], rows):
        for row in left_out:
            row.pop("text_digest", None)
        path.write_text("\n".join(map(json.dumps, rows)))
        done = score(path, made / "merge-nli")
        assert f"{path}: nothing in it says for which texts" in caplog.text
        caplog.clear()
        assert "|texts:unverified|" in done
    assert "texts:" not in run("score", path, "--n-bootstrap", 0).stdout
    compared = run("compare", f"a={path}", made / "p.parquet", "--dataset", made / "merge-nli")
    assert "|texts:unverified|" in compared.stdout


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
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("draws")
    folder = problems(12).write(root / "merge-nli")
    drawn_otherwise(folder, root / "other")
    ask(folder, root / "p.parquet")
    return root


def ask(folder: Path, out: Path) -> dict[str, object]:
    asked = read_problems(str(folder))
    model = Majority(asked["label"].to_numpy(), {})
    return predict(model, asked, out, progress=False).metadata


def test_digests(drawn: Path) -> None:
    """By hand; independent of the rows' order, but not of lists or ids."""
    rows = pq.read_table(drawn / "merge-nli" / NOUNS, partitioning=None)
    total = 0
    for row in rows.to_pylist():
        text = f"{row['variant_id']} {row['subsamples']}"
        digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
        total += int.from_bytes(digest[8:], "little") % 2**32
    result = draw_digests(drawn / "merge-nli", [NOUNS, VERBS, NOUNS])
    assert list(result) == [NOUNS, VERBS]
    assert result[NOUNS] == f"{total % 2**32:08x}"
    again = drawn / "again"
    shutil.copytree(drawn / "merge-nli", again, dirs_exist_ok=True)
    pq.write_table(rows.slice(3), again / NOUNS)
    assert changed_draws(again, result, [NOUNS, VERBS]) == [NOUNS]
    pq.write_table(pa.concat_tables([rows.slice(3), rows.slice(0, 3)]), again / NOUNS)
    assert changed_draws(again, result, [NOUNS, VERBS]) == []
    assert changed_draws(drawn / "other", result, [NOUNS, VERBS]) == [NOUNS]
    assert changed_draws(drawn / "other", result, [VERBS]) == []


def test_the_same_answers_serve_another_draw(
    drawn: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, rows = tmp_path / "p.parquet", read_predictions(drawn / "p.parquet")
    shutil.copy(drawn / "p.parquet", path)
    before = read_metadata(path)
    metadata = ask(drawn / "other", path)
    assert metadata == read_metadata(path)
    assert read_predictions(path).equals(rows)
    assert metadata["problems"]["draws"] == draw_digests(drawn / "other", [NOUNS, VERBS])
    assert {key for key in before if before[key] != metadata[key]} == {"problems"}
    score(path, drawn / "other")
    assert TOLD not in caplog.text
    score(path, drawn / "merge-nli")
    assert TOLD in caplog.text
