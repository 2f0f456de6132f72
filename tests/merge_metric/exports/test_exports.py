import csv
import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import scored_folder
from helpers.commands import refused, run
from helpers.dataset_files import write_predictions
from helpers.subsampled_folder import SUBSAMPLES, write_folder
from jsonschema import Draft7Validator

from merge_dataset.checks import check_dataset
from merge_dataset.files import read_table
from merge_dataset.schema import LABELS, arrow_schema
from merge_metric.exports import registry
from merge_metric.exports.croissant import FILE, export_croissant
from merge_metric.exports.flat import export_csv, export_jsonl, export_mini_datasets, write_file
from merge_metric.exports.registry import MARK, Exported, new_file
from merge_metric.score import score_file

Row = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "merge-nli")


def of_dataset(folder: Path, *names: str) -> list[Row]:
    rows = [row for name in names for row in pq.ParquetFile(folder / name).read().to_pylist()]
    for row in rows:
        row["label"] = LABELS[row["label"]]
        row["annotator_labels"] = [LABELS[label] for label in row["annotator_labels"]]
    return rows


FILES = {
    "snli/seeds": ["snli/seeds.parquet"],
    "snli/variants": ["snli/nouns/variants.parquet", "snli/verbs/variants.parquet"],
    "snli_verbs/seeds": ["snli/verbs/seeds.parquet"],
    "snli_verbs/variants": ["snli/verbs/variants.parquet"],
}
"""Configuration and split → files of the dataset."""


def same(found: list[Row], expected: list[Row]) -> bool:
    """Whether rows are equal, with numbers as float32, the dataset's type."""
    for row in (*found, *expected):
        for name in ("log_odds", "zipf_frequency"):
            if row[name] is not None:
                row[name] = np.float32(row[name])
        for name in ("mlm_count", "number_changed", "article_fits"):
            row[name] = None if row[name] is None else str(row[name])  # as in CSV
    return found == expected


def rows_of_csv(path: Path) -> list[Row]:
    """Rows as the csv module reads them; lists are JSON, nulls are empty cells."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows: list[Row] = list(csv.DictReader(stream))
    assert list(rows[0]) == arrow_schema().names
    lists = {field.name for field in arrow_schema() if str(field.type).startswith("list")}
    return [
        {name: json.loads(v) if name in lists else v or None for name, v in row.items()}
        for row in rows
    ]


@pytest.mark.parametrize("export", [export_jsonl, export_csv])
def test_rows_are_those_of_the_dataset(
    export: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suffix = {export_jsonl: "jsonl", export_csv: "csv"}[export]
    export(Exported(folder=folder, config=["snli", "snli_verbs"], output="json"), tmp_path / "out")
    counts = (8, 8 * 6 + 4 * 6, 4, 24)
    names = [f"{name}.{suffix}" for name in FILES]
    assert json.loads(capsys.readouterr().out)["files"] == dict(zip(names, counts, strict=True))
    for name, files in zip(names, FILES.values(), strict=True):
        path = tmp_path / "out" / name
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = rows_of_csv(path) if suffix == "csv" else list(map(json.loads, lines))
        assert same(rows, of_dataset(folder, *files))
    if suffix == "jsonl":  # and not 0.30000001192092896
        text = (tmp_path / "out/snli/variants.jsonl").read_text(encoding="utf-8")
        assert '"log_odds": 0.3,' in text
    assert not (tmp_path / "out/snli_nouns").exists()


def test_csv_for_spreadsheets(tmp_path: Path) -> None:
    """Texts that begin like a formula are marked; numbers and other texts stay unchanged."""
    texts = ("=1+1", "+49", "-x", "@SUM(1)", "A girl runs.")
    row = {"annotator_labels": [0], "label": 1, "min_log_odds": -1.5}
    schema = pa.schema({"premise": pa.string(), "annotator_labels": pa.list_(pa.int64()),
                        "label": pa.int64(), "min_log_odds": pa.float64()})  # fmt: skip
    rows = pa.Table.from_pylist([{**row, "premise": text} for text in texts], schema)
    for marks in (False, True):
        write_file(tmp_path / "rows.csv", [rows], for_spreadsheets=marks)
        with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as stream:
            result = list(csv.DictReader(stream))
        expected = [f"'{text}" if marks and text[0] in "=+-@" else text for text in texts]
        assert [item["premise"] for item in result] == expected
        assert {item["min_log_odds"] for item in result} == {"-1.5"}


def test_mini_datasets(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export_mini_datasets(
        Exported(folder=folder, config=["snli", "snli_verbs"], output="json"), tmp_path / "out"
    )
    written = json.loads(capsys.readouterr().out)["files"]
    for config in ("snli", "snli_verbs"):
        variants = of_dataset(folder, *FILES[f"{config}/variants"])
        expected = {
            f"{config}/mini-{k:02}.parquet": [r for r in variants if k in r["subsamples"]]
            for k in range(SUBSAMPLES)
        } | {f"{config}/seeds.parquet": of_dataset(folder, *FILES[f"{config}/seeds"])}
        mine = {name: rows for name, rows in written.items() if name.startswith(f"{config}/")}
        assert mine == {name: len(rows) for name, rows in expected.items()}
        assert len({len(rows) for rows in expected.values()}) > 1
        for name, rows in expected.items():
            path = tmp_path / "out" / name
            assert same(of_dataset(path.parent, path.name), rows)
    schema = pq.read_schema(tmp_path / "out/snli/mini-00.parquet")
    assert schema.equals(arrow_schema())
    assert b"huggingface" not in (schema.metadata or {})


def test_other_columns_are_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / "snli/seeds.parquet"
    pq.write_table(pq.ParquetFile(path).read().drop_columns("mlms"), path)
    with pytest.raises(ValueError, match=r"seeds\.parquet: expected what was written, got other"):
        export_jsonl(Exported(folder=folder), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_an_earlier_export_is_replaced(folder: Path, tmp_path: Path) -> None:
    out, mine = tmp_path / "out", tmp_path / "mine"
    out.mkdir()
    export_csv(Exported(folder=folder), out)  # into an empty folder
    with pytest.raises(FileExistsError, match=r"got an earlier export: replace it with --over"):
        export_jsonl(Exported(folder=folder, config=["snli"]), out)
    assert (out / "snli/seeds.csv").is_file()
    export_jsonl(Exported(folder=folder, config=["snli"], overwrite=True), out)
    files = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    assert files == [MARK, "snli/seeds.jsonl", "snli/variants.jsonl"]
    assert json.loads((out / MARK).read_text()) == {
        "export": "jsonl", "dataset": f"../{folder.name}", "configurations": ["snli"],
    }  # fmt: skip
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    for place in (mine, mine / "notes.txt"):
        with pytest.raises(FileExistsError, match=r"expected no files there, got others: name"):
            export_csv(Exported(folder=folder, overwrite=True), place)
    assert [path.name for path in mine.iterdir()] == ["notes.txt"]


def test_croissant(folder: Path) -> None:
    """It has a version and a date if they are given, and the folder stays a good dataset."""
    before = check_dataset(folder)
    export_croissant(Exported(folder=folder))
    assert "version" not in json.loads((folder / FILE).read_text())
    again = Exported(folder=folder, overwrite=True)
    export_croissant(again, "1.0.0", datetime(2026, 1, 31))
    metadata = json.loads((folder / FILE).read_text())
    assert (metadata["version"], metadata["datePublished"]) == ("1.0.0", "2026-01-31")
    assert check_dataset(folder) == before
    card = folder / "README.md"
    card.write_text(card.read_text().replace("\nlicense:", "\nterms:"))
    with pytest.raises(ValueError, match=r"README\.md: expected a card .*, got 'license'; `merge"):
        export_croissant(again)


ROOT = Path(__file__).parents[3]


@pytest.fixture
def text() -> Iterator[str]:
    """Register the export of CONTRIBUTING.md, yield its text, and remove it again."""
    run("export", "--help")  # registers all others before
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(@export.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    names = {name: getattr(registry, name) for name in ("FILES", "Exported", "Out", "tell")}
    exec(code, {"export": registry.export, "new_file": new_file, "Path": Path, **names})
    yield code
    registry.app.registered_commands.pop()


def test_an_export_is_one_function(text: str, tmp_path: Path) -> None:
    folder, out = write_folder(tmp_path / "data"), tmp_path / "names.txt"
    shown = run("export", "names", "--help").stdout
    assert "Names of the configurations, one per line." in shown
    assert re.search(r"--format .*How to write the result", shown)
    done = run("export", "names", folder, "--out", out)
    assert done.stdout == f"{out}: written\nNext: cat {out}\n"
    names = out.read_text().split()
    assert names == ["snli", "snli_nouns", "snli_verbs"]
    again = str(tmp_path / "b")
    shown = run("export", "names", folder, "--out", again, "--format", "json").stdout
    assert json.loads(shown) == {"out": again, "names": names, "next": f"cat {again}"}
    assert "expected no file, found one" in refused("export", "names", folder, "--out", out)


def test_every_export_is_on_the_page() -> None:
    text = (ROOT / "merge_metric/README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"merge-nli export ([\w-]+)", text))
    assert {command.name for command in registry.app.registered_commands} - shown == {"csv"}
    assert "`jsonl` and `csv`" in text


SCHEMAS = Path(__file__).parents[2] / "data" / "every_eval_ever"


def check(name: str, value: Any) -> None:
    schema = json.loads((SCHEMAS / name).read_text(encoding="utf-8"))
    Draft7Validator(schema).validate(value)


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    folder = scored_folder.write_folder(tmp_path / "data")
    rows = scored_folder.predicted("snli")
    rows[-1] = rows[-1] | {"prediction": -1}
    write_predictions(tmp_path / "m.parquet", rows, {"name": "lab/model", "parameters": 9})
    return folder


def words(folder: Path, *options: str) -> list[object]:
    files = (folder.parent / "m.parquet", "--dataset", folder, "--out", folder.parent / "out")
    return ["export", "results", *files, "--config", "snli", *options]


def test_figures_and_answers(scored: Path) -> None:
    hub = ("--dataset-repo", "lab/data", "--organization", "Lab", "--relationship", "first_party")
    done = run(*words(scored, *hub, "--date", "2026-01-31"))
    out = scored.parent / "out"
    # Not the whole scored: it also has our own record, which the validator refuses.
    hint = f"every_eval_ever validate {out}/results.json {out}/samples.jsonl"
    assert hint in " ".join(done.output.split())
    record = json.loads((out / "results.json").read_text())
    check("eval.schema.json", record)
    result = score_file(scored.parent / "m.parquet", scored, "snli")["snli"]
    outcome = {item["evaluation_result_id"]: item for item in record["evaluation_results"]}
    assert len(outcome) == len(record["evaluation_results"])
    for key in ("seed_accuracy", "variant_accuracy", "seed_variant_accuracy"):
        item = outcome[f"snli/{key}"]["score_details"]
        assert item["score"] == result[key]
        interval = item["uncertainty"]["confidence_interval"]
        assert [interval["lower"], interval["upper"]] == result[f"{key}_ci"]
    assert outcome["snli/relaxed_fooling_rate"]["metric_config"]["lower_is_better"] is True
    assert record["model_info"]["additional_details"] == {"name": "lab/model", "parameters": "9"}
    assert record["evaluation_results"][0]["source_data"]["hf_repo"] == "lab/data"
    lines = (out / "samples.jsonl").read_bytes()
    details = record["detailed_evaluation_results"]
    assert details["checksum"].removeprefix("sha256:") == hashlib.sha256(lines).hexdigest()
    samples = [json.loads(line) for line in lines.splitlines()]
    assert details["total_rows"] == len(samples)
    for sample in samples:
        check("instance_level_eval.schema.json", sample)
        assert sample["evaluation_id"] == record["evaluation_id"]
        assert sample["evaluation_result_id"] in outcome
    labels = ("entailment", "neutral", "contradiction", "")
    expected = {
        row["variant_id"]: (labels[row["prediction"]], labels[row["label"]])
        for row in read_table(scored.parent / "m.parquet").to_pylist()
    }
    assert {item["sample_id"] for item in samples} == expected.keys()
    for item in samples:
        answer, gold = expected[item["sample_id"]]
        assert (item["output"]["raw"][0], item["input"]["reference"][0]) == (answer, gold)
        assert item["evaluation"]["is_correct"] is (answer == gold)
    assert "--overwrite" in refused(*words(scored))
    assert "'June' does not match the format" in refused(*words(scored, "--date", "June"))


def test_seeds_that_were_not_asked_about(scored: Path) -> None:
    path, out = scored.parent / "m.parquet", scored.parent / "out"
    rows = read_table(path).to_pylist()
    kept = [row for row in rows if row["seed_id"] != rows[0]["seed_id"]]
    write_predictions(path, kept, {"name": "lab/model"})
    assert "--allow-missing scores" in refused(*words(scored))
    run(*words(scored, "--allow-missing"))
    record = json.loads((out / "results.json").read_text())
    check("eval.schema.json", record)
    assert record["detailed_evaluation_results"]["total_rows"] == len(kept)
    details = [result["score_details"]["details"] for result in record["evaluation_results"]]
    assert {item["n_seeds_left_out"] for item in details} == {"1"}
