from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.dataset_files import write_predictions
from helpers.report_data import paraphrased, problems

from merge_metric.analyses import analyse
from merge_metric.frame import answer_table
from merge_metric.frame.counting import ConfigAnswers
from merge_metric.report.evidence import gather_evidence
from merge_metric.score import score_file

STEPS = {"_join": answer_table, "count": ConfigAnswers}
"""Steps from files to counts."""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Three models on replacements and paraphrases; the last has a file for each half."""
    place = tmp_path_factory.mktemp("road")
    made = paraphrased(problems(8))
    folder = made.write(place / "merge-nli")
    files = []
    for name in ("a", "b"):
        files.append(write_predictions(place / f"{name}.parquet", made.predictions(0.6, name)))
    rows = made.predictions(0.8, "c")
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        files.append(write_predictions(place / f"c{number}.parquet", part))
    return folder, [f"{path.stem[0]}={path}" for path in files]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Number of calls of each step, from anywhere."""
    calls: Counter[str] = Counter()

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return original(*arguments, **options)

        return call

    for name, home in STEPS.items():
        monkeypatch.setattr(home, name, counting(name, getattr(home, name)))
    return calls


def test_each_model_and_configuration_is_counted_once(
    case: tuple[Path, list[str]], counted: Counter[str]
) -> None:
    folder, files = case
    evidence = gather_evidence(files, folder, n_bootstrap=0)
    assert [c.name for c in evidence.configurations] == ["snli", "snli_paraphrases"]
    assert counted == {"_join": 3, "count": 6}
    counted.clear()
    table, _ = analyse("matching", files, folder)
    assert [row["model"] for row in table.rows] == ["a", "b", "c"]
    assert counted == {"_join": 3, "count": 6}
    counted.clear()
    results = score_file(files[0].partition("=")[2], folder, n_bootstrap=0)
    assert list(results) == ["snli", "snli_paraphrases"]
    assert counted == {"_join": 1, "count": 2}
