"""Asking only questions that matter, against asking all: real masked LMs and noisy copies."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from helpers.bench.contender import Contender
from helpers.bench.models import REAL, model_folder, noisy_folder, widened_folder
from helpers.bench.results import Measurement, Race, Row

from generation import Config, build, suggest
from generation.run_folder import RunFolder
from generation.suggestions.questions import Questions
from merge_dataset.files import digest_of_file

pytestmark = pytest.mark.benchmark

PROBLEMS: Final = {2: 1024, 4: 512, 8: 256}
"""Number of masked LMs → number of problems; a round takes one to three minutes of a core."""


def pipeline(
    file: str, models: list[str], run: str, ask_all: bool, limit: int
) -> Callable[[], Callable[[], dict[str, Any]]]:
    numbers = count()

    def answer() -> Callable[[], dict[str, Any]]:
        folder = RunFolder(Path(f"{run}/{next(numbers)}"))
        settings = {"source": "bench", "data": file, "limit": limit, "run": str(folder.path)}
        suggest(Config(mlms=tuple(models), ask_all=ask_all, **settings))
        build(folder.path)
        return lambda: _made(folder)

    return answer


def _made(folder: RunFolder) -> dict[str, Any]:
    questions = Questions(folder.questions)
    asked = questions.asked
    queries = (query for block in questions.blocks for query in questions.of(block, asked))
    return {
        "variants": digest_of_file(folder.variants),
        "questions": int(asked.sum()),
        "characters": sum(len(query.sentence) for query in queries),
    }


@pytest.mark.parametrize("mlms", list(PROBLEMS))
def test_asking(
    mlms: int, tmp_path: Path, problem_file: Path, shared_models: Path, race: Race
) -> None:
    real = [model_folder(name, shared_models) for name in REAL]
    if None in real:
        pytest.skip(f"needs {shared_models}")
    folders = real + [noisy_folder(REAL[n % 2], n // 2, shared_models) for n in range(2, mlms)]
    models = []
    for n, folder in enumerate(folders):
        for _ in range(min(n // 2, 2)):
            folder = widened_folder(folder)
        models.append(str(folder))
    problems = PROBLEMS[mlms]
    arguments = {"file": str(problem_file), "models": models, "limit": problems}
    ways = {"what can matter": False, "everything": True}
    contenders = [
        Contender(name, pipeline, {**arguments, "run": str(tmp_path / name), "ask_all": ask_all})
        for name, ask_all in ways.items()
    ]
    ours, theirs = race(contenders, problems)
    less, everything = ours.answer, theirs.answer
    assert less["variants"] == everything["variants"]
    share = less["questions"] / everything["questions"]
    read = everything["characters"] / less["characters"]
    text = f"same variants from {share:.0%} of the questions; {read:.2f}× fewer characters"
    what = f"asking, {mlms} masked LMs"
    row = Row(what, ours.side, theirs.side, unit="problem", agreement=text)
    Measurement("asking", f"{mlms}").write([row])
