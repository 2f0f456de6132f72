import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.harness import CASES, ask_others, assert_answers, make_place, run
from helpers.processes import python_of

pytestmark = [pytest.mark.harness, pytest.mark.slow]


def test_figures_and_probabilities_are_ours(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    out = tmp_path / "tasks"
    place.export(
        *("lighteval", str(place.dataset), "--out", str(out), "--letters", "both"),
        *("--ct", "50", "--ct", "90"),
    )
    command = [python_of("MERGE_NLI_LIGHTEVAL_PYTHON"), str(out / "run.py")]
    command += ["--model", str(place.model), "--device", "cpu", "--dtype", "float32"]
    command += ["--batch-size", "48", "--out", "results"]
    configs = ("snli", "snli_verbs")
    for config in configs:
        command += ["--task", f"merge_nli_{config}"]
    table = run(command, tmp_path)
    (file,) = (tmp_path / "results").rglob("results_*.json")
    results = json.loads(file.read_text(encoding="utf-8"))["results"]
    for config in configs:
        rows = place.ours(config)
        expected = place.figures(config, (50, 90))
        found = results[f"merge_nli_{config}|0"]
        assert found == pytest.approx(
            expected
            | {
                "n_seeds": sum(name == row["seed_id"] for name, row in rows.items()),
                "n_variants": sum(name != row["seed_id"] for name, row in rows.items()),
            },
            nan_ok=True,
        )
        (details,) = (tmp_path / "results").rglob(f"details_merge_nli_{config}|0_*.parquet")
        answers = [each["merge_nli"] for each in pq.read_table(details)["metric"].to_pylist()]
        assert len(answers) == len(rows)
        assert_answers({answer["variant_id"]: answer for answer in answers}, rows)
    assert 0 < expected["variant_accuracy"] < 1
    assert "seed_accuracy" in table


@pytest.mark.parametrize("answers", ["letters", "words"])
@pytest.mark.parametrize("case", CASES)
def test_other_problems_and_answers(case: str, answers: str, tmp_path: Path) -> None:
    place, config, asked = ask_others("lighteval", case, answers, tmp_path, "--letters", "both")
    command = [python_of("MERGE_NLI_LIGHTEVAL_PYTHON"), str(tmp_path / "tasks/run.py")]
    command += ["--model", str(place.model), "--device", "cpu", "--dtype", "float32"]
    command += ["--batch-size", "8", "--out", "results", "--task", f"merge_nli_{config}"]
    run(command, tmp_path)
    (file,) = (tmp_path / "results").rglob("results_*.json")
    found = json.loads(file.read_text(encoding="utf-8"))["results"][f"merge_nli_{config}|0"]
    rows = place.ours(config, *asked)
    expected = place.figures(config, (90,), allow_missing=config == "snli")
    assert {name: found[name] for name in expected} == pytest.approx(expected, nan_ok=True)
    (details,) = (tmp_path / "results").rglob("details_*.parquet")
    told = [each["merge_nli"] for each in pq.read_table(details)["metric"].to_pylist()]
    assert_answers({each["variant_id"]: each for each in told}, rows, CASES[case][0].labels)
