"""Whole commands, and large sources: `BENCH="-k made_up --problems 10000000"` up to ten million."""

import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.bench.contender import Contender, Reply
from helpers.bench.results import Goal, Measurement, Row, Side

from generation.config import BUNDLED_MLM, bundled_path
from merge_dataset.schema import LABELS

pytestmark = pytest.mark.benchmark

PEAK_MB: Final = 2000
GROUP: Final = 32

# --- A masked LM with made-up answers, to measure everything else at any size ---

MADE_UP: Final = "made-up"
"""Name of the masked LM in the manifest, in the dataset's columns and on its card."""
_SHARE: Final = 0.25
"""Share of words with more probable replacements; the other words have none."""
_OFFERED: Final = (
    "apple baby ball bank basket beach bear bed bird boat book bottle box brother bus cake "
    "camera car cat chair chicken church city coat cow cup desk doctor door farmer father flag "
    "flower friend garden glass guitar hat hill horse hotel house island jacket kitchen lady "
    "lake lamp lion mother mouse neighbor"
).split()
"""Words that stay nouns in place of any noun."""


def write_made_up_mlm(folder: Path) -> None:
    target = folder / MADE_UP
    shutil.copytree(bundled_path(f"demo/{BUNDLED_MLM}"), target, dirs_exist_ok=True)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config["answers"] = MADE_UP
    (target / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def make_up_answers() -> None:
    """Let masked LMs in this process answer without a forward pass."""
    from generation.records import Scores
    from generation.suggestions.masked_lm import MaskedLM

    def answer(
        mlm: MaskedLM, queries: Sequence[Any], *, k: int
    ) -> Iterator[tuple[list[int], Scores]]:
        scores, inputs = Scores.empty(len(queries), k), list(mlm._inputs(queries))
        for item in inputs:
            tokens, probable = _answer(item.original, k, _ids(mlm))
            scores.tokens[item.row] = tokens
            scores.original[item.row] = item.original
            scores.original_logit[item.row] = 0.5 - probable
        mine = [item.row for item in inputs]
        scores.logits[mine] = -np.arange(k, dtype=np.float32)
        scores.log_normalizer[mine] = 2
        yield list(range(len(queries))), scores

    MaskedLM.answer = answer


@lru_cache(maxsize=1)
def _ids(mlm: Any) -> tuple[int, ...]:
    return tuple(mlm.vocabulary.texts.index(word) for word in _OFFERED)


@lru_cache(maxsize=100_000)
def _answer(original: int, k: int, offered: tuple[int, ...]) -> tuple[Any, int]:
    """Tokens in place of a word, and the number of tokens more probable than the word."""
    rng = random.Random(original)
    others = range(2000, 2000 + k)
    tokens = [*rng.sample(offered, len(offered)), *others][:k]
    return np.array(tokens, np.int32), len(offered) if rng.random() < _SHARE else 0


# --- Problems and steps ---


def write_crossed_problems(file: Path, real: Path, count: int) -> None:
    """Write distinct problems from real texts, crossed in groups of 32."""
    every = map(json.loads, real.read_text(encoding="utf-8").splitlines())
    rows = [row for row in every if row["gold_label"] in LABELS]
    crossed = _crossed(rows)
    with file.open("w", encoding="utf-8") as lines:
        for number in range(count):
            lines.write(json.dumps(next(crossed) | {"pairID": f"crossed-{number:010}"}) + "\n")


def _crossed(rows: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the premise of one problem with another's hypothesis and label, each pair once."""
    premises = list(dict.fromkeys(row["sentence1"] for row in rows))
    others = list({row["sentence2"]: row for row in rows}.values())
    groups = [others[start : start + GROUP] for start in range(0, len(others), GROUP)]
    for turn in range(len(groups)):
        for number, start in enumerate(range(0, len(premises), GROUP)):
            group = groups[(number + turn) % len(groups)]
            for premise, row in product(premises[start : start + GROUP], group):
                yield {
                    "gold_label": row["gold_label"], "sentence1": premise,
                    "sentence2": row["sentence2"],
                }  # fmt: skip


def a_command(line: str, folder: str) -> Callable[[], None]:
    """Run a command of `merge-nli` in a folder, including its imports, as for a user."""

    def answer() -> None:
        from generation.cli import main

        os.chdir(folder)
        sys.argv = ["merge-nli", *line.split()]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"merge-nli {line}: exit code {end.code}") from end

    return answer


def alone(folder: str, work: str, **options: Any) -> Callable[[], Any]:
    """Time one of these functions alone, without the rest of a command."""
    return partial(globals()[work], folder, **options)


def suggest_made_up(folder: str) -> None:
    """`suggest` without a forward pass: read, sort, tag, ask, keep answers."""
    make_up_answers()
    line = f"suggest --recipe demo --mlm {MADE_UP} --set subsamples=1 --source {MADE_UP}"
    line += " --data problems.jsonl --run run"
    a_command(line, folder)()


def build(folder: str) -> None:
    """`build` by two processes, without the export."""
    from generation import build

    build(f"{folder}/run", workers=2)


def export(folder: str) -> None:
    from merge_dataset.export import export_dataset

    export_dataset(Path(folder, "run"), Path(folder, "merge-nli"))


def register(folder: str) -> None:
    """`register` without the check, which it shares with `check`."""
    from merge_dataset import register

    os.chdir(folder)
    with patch.object(register, "check_dataset", return_value=[]):
        register.register_dataset(Path("merge-nli"))


def load(folder: str, streaming: bool) -> int:
    """`load_dataset` of a registered dataset, or streaming of its folder: all rows, in batches."""
    import datasets

    path = str(Path(folder, "merge-nli")) if streaming else "merge-nli"
    variants = datasets.load_dataset(path, MADE_UP, split="variants", streaming=streaming)
    batches = variants.with_format("arrow").iter(10_000)
    return sum(len(batch["label"]) for batch in batches)


def predict_made_up(folder: str) -> None:
    from helpers.bench.made_up_rows import write_other_predictions

    write_other_predictions(Path(folder, "m.parquet"), Path(folder, "other.parquet"))


STEPS: Final[dict[str, tuple[Callable[..., Callable[[], Any]], dict[str, Any]]]] = {
    "suggest without masked LMs": (alone, {"work": "suggest_made_up"}),
    "build": (alone, {"work": "build"}),
    "export": (alone, {"work": "export"}),
    "check": (a_command, {"line": "check merge-nli"}),
    "register without the check": (alone, {"work": "register"}),
    "load": (alone, {"work": "load", "streaming": False}),
    "stream": (alone, {"work": "load", "streaming": True}),
    "predict": (a_command, {"line": "baseline majority --dataset merge-nli --out m.parquet"}),
    "score": (a_command, {"line": "score m.parquet --dataset merge-nli"}),
    "other predictions": (alone, {"work": "predict_made_up"}),
    "compare": (a_command, {"line": "compare m.parquet other.parquet --dataset merge-nli"}),
}

REAL: Final = {
    "generate": "generate --source snli --data {problems} --mlm {models}/bert-tiny-mlm "
    "--mlm {models}/minilm-l6-mlm --run run --out merge-nli",
    "predict": "predict --model {models}/bert-tiny-nli --dataset merge-nli --out m.parquet",
    "report": "report m.parquet --dataset merge-nli --out report.html",
}


def row(name: str, count: int, reply: Reply, variants: int) -> Row:
    side = Side.of(f"{count:,} problems", [reply], count)
    goal = Goal(f"≤ {PEAK_MB:,} MB", (side.peak_mb or 0) <= PEAK_MB)
    remark = f"{variants:,} variants" if variants else ""
    return Row(name, side, unit="problem", goals=(goal,), agreement=remark)


def test_made_up(
    tmp_path: Path,
    problem_file: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for count in sorted(map(int, request.config.getoption("--problems").split(","))):
        folder = tmp_path / f"{count}"
        folder.mkdir()
        monkeypatch.setenv("HF_HOME", str(folder / "cache"))
        write_crossed_problems(folder / "problems.jsonl", problem_file, count)
        measurement, rows = Measurement("made-up", f"{count:010}"), []
        write_made_up_mlm(folder)
        variants = 0
        for name, (work, arguments) in STEPS.items():
            with Contender(name, work, arguments | {"folder": str(folder)}) as ours:
                reply = ours.ask()
            if name == "build":
                variants = pq.read_metadata(folder / "run/variants.parquet").num_rows
            if name in ("load", "stream"):
                assert reply.answer == variants
            rows.append(row(f"answers made up, {name}", count, reply, variants))
            measurement.write(rows)
        shutil.rmtree(folder)


def test_whole_commands(tmp_path: Path, problem_file: Path, shared_models: Path) -> None:
    """Commands with real problems and models, and with their imports."""
    rows, places = [], {"problems": problem_file, "models": shared_models}
    for name, line in REAL.items():
        arguments = {"line": line.format(**places), "folder": str(tmp_path)}
        with Contender(name, a_command, arguments) as ours:
            side = Side.of(problem_file.name, [ours.ask()], 1)
        rows.append(Row(f"merge-nli {name}", side, unit="command"))
        Measurement("commands", "real").write(rows)
