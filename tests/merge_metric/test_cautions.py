import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import commands
from helpers.dataset_files import write_source
from helpers.scored_folder import SEEDS, VARIANTS, predicted, problem_row
from typer.testing import Result

from merge_metric.tables import Column, Table

README = (Path(__file__).parents[2] / "merge_metric" / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small dataset folder in the working directory, with predictions of two models."""
    monkeypatch.chdir(tmp_path)
    for name in ("bert", "other"):
        pq.write_table(pa.Table.from_pylist(predicted("snli")), tmp_path / f"{name}.parquet")
    texts = {"premise": "A dog runs.", "hypothesis": "An animal runs."}
    seeds, variants = (
        [problem_row(name) | texts for name in names if name.startswith("snli")]
        for names in (SEEDS, VARIANTS)
    )
    write_source(tmp_path / "merge-nli", seeds, variants)
    return tmp_path / "merge-nli"


def run(command: str, code: int = 0) -> Result:
    return commands.run(*shlex.split(command), "--dataset", "merge-nli", code=code)


@pytest.mark.usefixtures("folder")
def test_clusters_need_intervals() -> None:
    vain = "expected intervals by bootstrap, which clusters by premise change"
    for command, message in (
        ("analyse hardest bert.parquet", "which say how seeds vary, got 'premise' with hardest"),
        ("analyse curves bert.parquet", vain),
        ("report bert.parquet --n-bootstrap 0", vain),
    ):
        assert message in run(f"{command} --cluster premise", code=2).stderr
    result = run("compare bert.parquet other.parquet --cluster sentence", code=2)
    assert "premise or hypothesis, got 'sentence' for snli" in result.stderr


@pytest.mark.usefixtures("folder")
def test_the_pipeline_of_the_readme() -> None:
    (section,) = re.findall(r"## In a pipeline\n(.*?)\n## ", README, flags=re.DOTALL)
    (command,) = re.findall(r"```sh\nmerge-nli (.*?)\n```", section, flags=re.DOTALL)
    result = commands.run(*shlex.split(command), code=1)
    assert "snli: seed_variant_accuracy is 0.3333, wanted 0.7 or more" in result.stderr
    assert "snli: relaxed_fooling_rate is 0.5, wanted 0.4 or less" in result.stderr


def test_marks_of_a_table() -> None:
    columns = (Column("rank", "rank"), Column("model", "model"), Column("x", "x", "share"))
    rows = ({"rank": "1", "model": "a", "x": 0.5, "n_seeds": 29}, {"model": "b", "n_seeds": 30})
    table = Table("t", "T", columns, rows)
    assert table.to_text().splitlines()[4].split() == ["1", "a†", "50.0"]
    assert "| 1 | a† | 50.0 |" in table.to_markdown()
    assert r"a\dag{}" in table.to_latex()
    assert "†" not in table.to_csv() + table.to_json()
    cell = Table("t", "T", columns[2:], ({"x": 0.5, "x_n_seeds": 3}, {"x": 1.0, "x_n_seeds": 99}))
    assert cell.to_text().split()[3:5] == ["50.0†", "100.0"]
