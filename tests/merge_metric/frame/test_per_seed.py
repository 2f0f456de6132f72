import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused, run
from helpers.dataset_files import write_source
from helpers.scored_folder import SEEDS, VARIANTS, predicted, problem_row

from merge_metric.frame.per_seed import write_seed_results


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Predictions, and a dataset folder with texts, and with votes on one seed."""
    seeds, variants = (
        [problem_row(name) for name in names if name.startswith("snli")]
        for names in (SEEDS, VARIANTS)
    )
    for row in (*seeds, *variants):
        row |= {"premise": f"Premise, of {row['seed_id']}.", "hypothesis": "A “hypothesis”."}
        row["annotator_labels"] = [0, 0, 2] if row["variant_id"] == "snli:a" else []
    write_source(tmp_path / "merge-nli", seeds, variants)
    pq.write_table(pa.Table.from_pylist(predicted("snli")), tmp_path / "p.parquet")
    return tmp_path / "p.parquet", tmp_path / "merge-nli"


def words(files: tuple[Path, Path], *more: object) -> list[object]:
    return ["score", files[0], "--dataset", files[1], "--config", "snli", "--n-bootstrap", 0, *more]


EXPECTED: dict[str, Any] = {
    "config": "snli", "seed_id": "snli:a", "premise": "Premise, of snli:a.",
    "hypothesis": "A “hypothesis”.",
    "annotator_labels": ["entailment", "entailment", "contradiction"], "label": "entailment",
    "prediction": "entailment", "n_variants": 3, "n_right": 2, "share_right": 2 / 3,
    "n_entailment": 2, "n_neutral": 0, "n_contradiction": 1, "agreement": 2 / 3,
}  # fmt: skip
"""Row of the first seed, by hand."""


def test_a_row_per_seed_by_hand(files: tuple[Path, Path], tmp_path: Path) -> None:
    for suffix in ("parquet", "jsonl", "csv"):
        result = run(*words(files, "--per-seed", tmp_path / f"new/seeds.{suffix}"))
        assert result.stdout.startswith("snli, averaged over 2 subsamples")
    made = tmp_path / "new"
    assert {path.name for path in made.iterdir()} == {"seeds.parquet", "seeds.jsonl", "seeds.csv"}
    rows = pq.read_table(made / "seeds.parquet").to_pylist()
    assert rows[0] == EXPECTED
    assert [(row["n_variants"], row["n_right"]) for row in rows] == [(3, 2), (5, 4), (2, 1)]
    assert [row["agreement"] for row in rows] == [pytest.approx(2 / 3), 0.8, 0.5]
    lines = (made / "seeds.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == rows
    with (made / "seeds.csv").open(encoding="utf-8", newline="") as file:
        first, *others = csv.DictReader(file)
    votes = {"annotator_labels": "entailment entailment contradiction"}
    assert first == {key: str(value) for key, value in (EXPECTED | votes).items()}
    assert others[0]["annotator_labels"] == ""


def test_formulas_are_marked_for_spreadsheets(tmp_path: Path) -> None:
    texts = ["=1+1", "+49", "-x", "@SUM(1)", "A girl runs.", "", None]
    columns = {"premise": texts, "n_right": [-1] * 7, "annotator_labels": [["neutral"]] * 7}
    for marks in (False, True):
        path = tmp_path / f"{marks}.csv"
        write_seed_results(path, pa.table(columns), for_spreadsheets=marks)
        rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
        expected = [f"'{text}" if marks and text[:1] in tuple("=+-@") else text
                    for text in (*texts[:-1], "")]  # fmt: skip
        assert [row["premise"] for row in rows] == expected
        assert {(row["n_right"], row["annotator_labels"]) for row in rows} == {("-1", "neutral")}


def test_files_are_judged_before_the_work(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "seeds.csv").write_text("mine")
    for arguments, message in (
        (["--per-seed", "seeds.xlsx"], "end in .parquet, .csv, .jsonl, got '.xlsx'"),
        (["--per-seed", "seeds"], "end in .parquet, .csv, .jsonl, got no suffix"),
        (["--per-seed", tmp_path / "seeds.csv"], "or replace it with --overwrite"),
    ):
        assert message in refused(*words((tmp_path / "nowhere.parquet", files[1]), *arguments))
    assert (tmp_path / "seeds.csv").read_text() == "mine"
    run(*words(files, "--per-seed", tmp_path / "seeds.csv", "--overwrite"))
    assert (tmp_path / "seeds.csv").read_text().startswith('"config","seed_id","premise"')
