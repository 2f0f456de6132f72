import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refused, run
from helpers.dataset_files import write_predictions
from helpers.scored_folder import predicted, write_folder
from jsonschema import Draft7Validator

from merge_dataset.files import read_table
from merge_metric.score import score_file

SCHEMAS = Path(__file__).parents[2] / "data" / "every_eval_ever"


def check(name: str, value: Any) -> None:
    schema = json.loads((SCHEMAS / name).read_text(encoding="utf-8"))
    Draft7Validator(schema).validate(value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "data")
    rows = predicted("snli")
    rows[-1] = rows[-1] | {"prediction": -1}
    write_predictions(tmp_path / "m.parquet", rows, {"name": "lab/model", "parameters": 9})
    return folder


def words(folder: Path, *options: str) -> list[object]:
    files = (folder.parent / "m.parquet", "--dataset", folder, "--out", folder.parent / "out")
    return ["export", "results", *files, "--config", "snli", *options]


def test_figures_and_answers(folder: Path) -> None:
    hub = ("--dataset-repo", "lab/data", "--organization", "Lab", "--relationship", "first_party")
    done = run(*words(folder, *hub, "--date", "2026-01-31"))
    out = folder.parent / "out"
    # Not the whole folder: it also has our own record, which the validator refuses.
    hint = f"every_eval_ever validate {out}/results.json {out}/samples.jsonl"
    assert hint in " ".join(done.output.split())
    record = json.loads((out / "results.json").read_text())
    check("eval.schema.json", record)
    result = score_file(folder.parent / "m.parquet", folder, "snli")["snli"]
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
        for row in read_table(folder.parent / "m.parquet").to_pylist()
    }
    assert {item["sample_id"] for item in samples} == expected.keys()
    for item in samples:
        answer, gold = expected[item["sample_id"]]
        assert (item["output"]["raw"][0], item["input"]["reference"][0]) == (answer, gold)
        assert item["evaluation"]["is_correct"] is (answer == gold)
    assert "--overwrite" in refused(*words(folder))
    assert "'June' does not match the format" in refused(*words(folder, "--date", "June"))


def test_seeds_that_were_not_asked_about(folder: Path) -> None:
    path, out = folder.parent / "m.parquet", folder.parent / "out"
    rows = read_table(path).to_pylist()
    kept = [row for row in rows if row["seed_id"] != rows[0]["seed_id"]]
    write_predictions(path, kept, {"name": "lab/model"})
    assert "--allow-missing scores" in refused(*words(folder))
    run(*words(folder, "--allow-missing"))
    record = json.loads((out / "results.json").read_text())
    check("eval.schema.json", record)
    assert record["detailed_evaluation_results"]["total_rows"] == len(kept)
    details = [result["score_details"]["details"] for result in record["evaluation_results"]]
    assert {item["n_seeds_left_out"] for item in details} == {"1"}
