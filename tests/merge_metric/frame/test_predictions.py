import gzip
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import run
from helpers.dataset_files import write_plain, write_rows
from helpers.problem_folder import many_problems, write_folder
from helpers.report_data import problems
from helpers.scored_folder import C, E, N, predicted, problem_row, without

from merge_dataset.engine import connect
from merge_dataset.schema import LABELS
from merge_metric.frame.answer_table import PredictionsSource
from merge_metric.frame.checks import labelled
from merge_metric.frame.joined import VARIANT_IDS, Frame, read_frames
from merge_metric.frame.predictions import read_metadata, read_predictions, write_predictions
from merge_metric.frame.relations import changed_draws, draw_digests
from merge_metric.frame.texts import combined, digest_in_hex, digest_in_sql, text_digests, to_hex
from merge_metric.predict.baselines import Majority
from merge_metric.predict.driver import predict
from merge_metric.predict.problems import read_problems

Rows = list[dict[str, Any]]

ROWS: Rows = [
    {"variant_id": "a", "seed_id": "a", "label": 0, "prediction": 2},
    {"variant_id": "a/1", "seed_id": "a", "label": 0, "prediction": 0},
    {"variant_id": "2020-01-02", "seed_id": "b", "label": 1, "prediction": 1},
]
DISTRIBUTIONS = [[0.25, 0.25, 0.5], [1, 0, 0], [0.2, 0.6, 0.195]]


Write = Callable[[Rows], Path]


@pytest.fixture(params=["jsonl", "parquet"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    return lambda rows: write_plain(tmp_path / f"predictions.{request.param}", rows)


def changed(row: int, **columns: Any) -> Rows:
    return [{**item, **columns} if i == row else dict(item) for i, item in enumerate(ROWS)]


def names(rows: Rows) -> Rows:
    return [{**r, "label": LABELS[r["label"]], "prediction": LABELS[r["prediction"]]} for r in rows]


def test_columns_come_in_one_form(write: Write) -> None:
    rows = [{"model": n, **row} for n, row in enumerate(ROWS)]
    table = read_predictions(write(rows))
    assert table.to_pylist() == read_predictions(write(names(ROWS))).to_pylist() == ROWS
    assert table.schema.types == [pa.string(), pa.string(), pa.int64(), pa.int64()]


def test_columns_that_may_be_absent(write: Write) -> None:
    rows = [{**row, "probabilities": p} for row, p in zip(ROWS, DISTRIBUTIONS, strict=True)]
    table = read_predictions(write(rows))
    assert table.schema.field("probabilities").type == pa.list_(pa.float64(), 3)
    assert table["probabilities"].to_pylist() == DISTRIBUTIONS
    # Programs without probabilities may leave the column empty.
    empty = write([{**row, "probabilities": None} for row in ROWS])
    assert "probabilities" not in read_predictions(empty).column_names
    # An empty column is another error than a missing one.
    with pytest.raises(ValueError, match=r"1: label: expected a value, got none \(3"):
        read_predictions(write([{**row, "label": None} for row in ROWS]))
    with pytest.raises(ValueError, match=r"1: probabilities: .* with the sum 1, got"):
        read_predictions(write([{**row, "probabilities": [0.5, 0.4, 0.05]} for row in ROWS]))
    # Digests of texts are kept, even if some rows have none.
    digests = ["md5:00ff00ff00ff00ff", None, "md5:0123456789abcdef"]
    rows = [{**row, "text_digest": d} for row, d in zip(ROWS, digests, strict=True)]
    assert read_predictions(write(rows)).to_pylist() == rows


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("variant_id", pa.array(["a", "b"]).dictionary_encode()),
        ("seed_id", pa.array(["a", "a"], pa.large_string())),
        ("label", pa.array(["neutral", "neutral"]).dictionary_encode()),
        ("prediction", pa.array([1, 2], pa.int8())),
        ("prediction", pa.array([1, 2], pa.uint64())),
        ("probabilities", pa.array([[0.5, 0.5, 0]] * 2, pa.large_list(pa.float32()))),
        ("probabilities", pa.array([[0, 1, 0]] * 2, pa.list_(pa.int64(), 3))),
    ],
)
def test_other_ways_to_store_the_same(column: str, array: pa.Array, tmp_path: Path) -> None:
    columns = {"variant_id": ["a", "b"], "seed_id": ["a", "a"], "label": [1, 1]}
    table = pa.table({**columns, "prediction": [1, 2], column: array})
    pq.write_table(table, tmp_path / "p.parquet")
    read = read_predictions(tmp_path / "p.parquet")
    expected = [1, 1] if column == "label" else array.to_pylist()
    assert read[column].to_pylist() == expected


def test_lines_may_be_blank_compressed_or_from_windows(tmp_path: Path) -> None:
    text = "\ufeff" + "\r\n\r\n".join(json.dumps(row) for row in ROWS)
    (tmp_path / "p.jsonl").write_bytes(text.encode())
    with gzip.open(tmp_path / "p.jsonl.gz", "wb") as file:
        file.write(text.encode())
    assert read_predictions(tmp_path / "p.jsonl").to_pylist() == ROWS
    assert read_predictions(tmp_path / "p.jsonl.gz").to_pylist() == ROWS
    (tmp_path / "label=0").mkdir()  # which pyarrow would take for a column
    assert read_predictions(write_plain(tmp_path / "label=0/p.parquet", ROWS)).to_pylist() == ROWS


def test_csv_with_blank_lines_and_lists(tmp_path: Path) -> None:
    """Delimiters, byte order marks, spaces and names of labels in any case are in the record."""
    rows = [{**row, "probabilities": p} for row, p in zip(ROWS, DISTRIBUTIONS, strict=True)]
    lines = [",".join(rows[0]), "", *(",".join(f'"{v}"' for v in row.values()) for row in rows)]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    assert read_predictions(tmp_path / "p.csv").to_pylist() == rows


def test_a_list_is_not_closed_in_another_row(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    head = "variant_id;seed_id;label;prediction;probabilities\n"
    path.write_text(f"{head}a;a;0;0;[1, 0, 0], [1\na/1;a;0;0;0, 0]\na/2;a;0;0;[0, 0, 1]\n")
    with pytest.raises(ValueError, match=r"2: probabilities: expected a list of numbers"):
        read_predictions(path)
    path.write_text(f"{head}a;a;0;0;[1, 0, 0]\na/1;a;0;0;\na/2;a;0;0;[0, 0, 1]\n")
    with pytest.raises(ValueError, match=r"line 3: probabilities: .* got none"):
        read_predictions(path)


def test_answers_without_a_label_come_back(tmp_path: Path) -> None:
    for ending in ("jsonl", "parquet"):
        for codes in ([-1, 0, 2], [-1, -1, -1]):
            for labels in (LABELS, ("no", "yes", "maybe")):
                rows = [{**row, "prediction": c} for row, c in zip(ROWS, codes, strict=True)]
                table = labelled(pa.Table.from_pylist(rows), labels)
                path = tmp_path / f"p.{ending}"
                write_predictions(path, table)
                if ending == "jsonl" and labels != LABELS:
                    continue  # names alone do not give the order of labels
                assert read_predictions(path)["prediction"].to_pylist() == codes


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "jsonl.gz"])
def test_written_files_read_back(suffix: str, tmp_path: Path) -> None:
    expected = [{**r, "probabilities": p} for r, p in zip(ROWS, DISTRIBUTIONS, strict=True)]
    table = pa.Table.from_pylist([{**row, "model": "m"} for row in names(expected)])
    first, second = tmp_path / f"new/one.{suffix}", tmp_path / f"two.{suffix}"
    write_predictions(first, table)
    write_predictions(second, pa.concat_tables([table.slice(0, 1), table.slice(1)]))
    assert first.read_bytes() == second.read_bytes()
    assert read_predictions(first).to_pylist() == expected
    if suffix == "jsonl":
        line = json.loads(first.read_text().splitlines()[0])
        assert line == {**expected[0], "model": "m"}
    if suffix == "parquet":
        assert pq.ParquetFile(first).schema_arrow.names[-1] == "model"


def test_wrong_predictions_are_not_written(tmp_path: Path) -> None:
    path = write_plain(tmp_path / "p.jsonl", ROWS)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="to write: row 2: prediction: expected one of"):
        write_predictions(path, pa.Table.from_pylist(changed(1, prediction=5)))
    strange = pa.Table.from_pylist([{**row, "extra": b"\xff"} for row in ROWS])
    with pytest.raises(TypeError, match="bytes is not JSON serializable"):
        write_predictions(path, strange)
    for name, value in (("repeats", 1), ("repeats", [None]), ("answer_text", 1)):
        strange = pa.Table.from_pylist([{**row, name: value} for row in ROWS])
        with pytest.raises(ValueError, match=f"to write: {name}: expected "):
            write_predictions(tmp_path / "p.parquet", strange)
    with pytest.raises(ValueError, match=r"end in \.parquet"):
        write_predictions(tmp_path / "p.json", pa.Table.from_pylist(ROWS))
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["p.jsonl"]


def columns_of(run: Frame) -> dict[str, Any]:
    rows = run.rows
    seeds = rows.seed.tolist()
    columns = {
        "predictions": rows.prediction.tolist(),
        "references": rows.gold[rows.seed].tolist(),
        "seed_ids": [rows.seed_ids[seed] for seed in seeds],
        "seed_predictions": rows.own[rows.seed].tolist(),
        "variant_ids": run.values[VARIANT_IDS].to_pylist(),
    }
    if rows.n_subsamples:
        drawn: list[list[int]] = [[] for _ in seeds]
        for row, subsample in zip(rows.draw_row, rows.draw_subsample, strict=True):
            drawn[row].append(int(subsample))
        columns["subsamples"] = drawn
    if groups := {name: item for name, item in run.values.items() if isinstance(item, list)}:
        columns["groups"] = groups
    return columns


def joined(rows: Rows, folder: Path, *configs: str, **options: Any) -> list[Frame]:
    path = write_plain(folder.parent / "p.parquet", rows)
    try:
        return list(read_frames([PredictionsSource("m", path)], folder, configs, **options))
    except ValueError as error:
        raise ValueError(str(error).removeprefix(f"{path}: ")) from error


def test_columns_of_a_class(folder: Path) -> None:
    """By hand: the class's variants, each beside its seed's prediction."""
    (nouns,) = joined(predicted("snli"), folder, "snli_nouns", by=["mlms"])
    assert (nouns.config, nouns.n_seeds_left_out) == ("snli_nouns", 0)
    assert columns_of(nouns) == {
        "predictions": [E, C, E, N, N],
        "references": [E, E, E, N, N],
        "seed_ids": ["snli:a"] * 3 + ["snli:b"] * 2,
        "seed_predictions": [E, E, E, N, N],
        "variant_ids": [
            f"snli:{v}" for v in "a/noun/1 a/noun/2 a/noun/3 b/noun/1 b/noun/2".split()
        ],
        "subsamples": [[0, 1], [0], [1], [0, 1], [0, 1]],
        "groups": {"mlms": [["x/big", "y/small"], ["x/big"], ["y/small"], ["x/big"], ["y/small"]]},
    }


def test_readers_at_the_same_time_do_not_meet(folder: Path) -> None:
    """Their tables have the same names in the database that a process has."""
    configs = ("snli_nouns", "snli_verbs")
    right = predicted("snli")
    wrong = [{**row, "prediction": (row["label"] + 1) % 3} for row in right]
    files = {name: write_plain(folder.parent / name, rows) for name, rows in
             (("right.parquet", right), ("wrong.parquet", wrong))}  # fmt: skip

    def read(name: str) -> Iterator[Frame]:
        return read_frames([PredictionsSource("m", files[name])], folder, configs)

    alone = {name: [frame.answers.tolist() for frame in read(name)] for name in files}
    for pair in zip(*map(read, files), zip(*alone.values(), strict=True), strict=True):
        *frames, expected = pair
        assert [frame.answers.tolist() for frame in frames] == list(expected)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
@pytest.mark.parametrize("lacking", [("seed_id", "label"), ("label",)])
def test_seeds_and_labels_of_the_dataset(
    lacking: tuple[str, ...], suffix: str, folder: Path
) -> None:
    """Ids and predictions are enough where the dataset is given; in any order."""
    rows = [{**row, "probabilities": [0.2, 0.3, 0.5]} for row in predicted("snli")[::-1]]
    fewer = pa.Table.from_pylist(rows).drop_columns([*lacking])
    path = folder.parent / f"few{suffix}"

    def write(table: pa.Table) -> None:
        if suffix == ".parquet":
            pq.write_table(table, path)
        else:
            frame = table.to_pandas()
            frame["probabilities"] = frame["probabilities"].map(np.ndarray.tolist)
            if suffix == ".csv":
                frame.to_csv(path, index=False)
            else:
                frame.to_json(path, orient="records", lines=True)

    write(fewer)
    whole = joined(rows, folder)
    assert [columns_of(run) for run in read_frames(path, folder)] == [*map(columns_of, whole)]
    with pytest.raises(ValueError, match=f"got no {' and no '.join(lacking)} among .*: give it"):
        read_predictions(path)
    write(pa.Table.from_pylist([*fewer.to_pylist(), fewer.to_pylist()[0] | {"variant_id": "no"}]))
    with pytest.raises(ValueError, match=f"got 1 of {len(rows) + 1} for ids that none.*'no'"):
        read_predictions(path, folder)


def test_a_dataset_without_subsamples(folder: Path) -> None:
    row = {**problem_row("demo:d/noun/1"), "subsamples": []}
    write_rows(folder / "demo/nouns/variants.parquet", [row])
    (demo,) = joined(predicted("demo"), folder)
    assert "subsamples" not in columns_of(demo)


def message(rows: Rows, folder: Path, *configs: str, **options: Any) -> str:
    with pytest.raises(ValueError, match=r"expected|missing") as caught:
        joined(rows, folder, *configs, **options)
    return str(caught.value)


def test_incomplete_seeds_are_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = without(predicted("snli"), "snli:c", "snli:a/noun/2")
    (left,) = joined(rows, folder, "snli", allow_missing=True)
    assert left.n_seeds_left_out == 2
    columns = columns_of(left)
    assert set(columns["seed_ids"]) == {"snli:b"}
    assert columns["groups"] == {"word_class": ["noun", "noun", "verb", "verb", "verb"]}
    assert caplog.messages[1:] == [
        "snli: 2 of 3 seeds are left out: "
        "predictions are missing for 1 of 3 seeds and 1 of 10 variants"
    ]


def test_damaged_datasets(folder: Path) -> None:
    """Seeds without variants, variants without seeds, and files other than Parquet are errors."""
    path = folder / "snli/nouns/seeds.parquet"
    for seeds in ("a", "abc"):
        write_rows(path, (problem_row(f"snli:{name}") for name in seeds))
        assert message(predicted(), folder, "snli_nouns") == (
            f"{folder}: snli_nouns: expected every seed with variants of its gold label in every "
            f"subsample, got others; the dataset is damaged: `merge-nli check {folder}` says more"
        )
    path.write_bytes(b"")
    assert "seeds.parquet: expected a whole Parquet file, got " in message(predicted(), folder)


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
