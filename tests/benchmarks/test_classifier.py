"""Classifiers over distinct pairs, against a batch loop over all subsamples."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.bench import exported
from helpers.bench.contender import Contender, in_turn, spread
from helpers.bench.on_device import over_pairs
from helpers.bench.packed_product import classifier_flop, packed_products, products_flop, shape_of
from helpers.bench.results import Measurement, Side, compare, sides_of

import merge_metric
from generation import Config, build, suggest
from merge_dataset.export import export_dataset
from merge_metric.models.classifier import Classifier
from merge_metric.predict.driver import predict
from merge_metric.predict.problems import read_problems

pytestmark = pytest.mark.benchmark

SEEDS: Final = 256
PAIRS: Final = {"bert-tiny-nli": 3000, "minilm-l6-nli": 1000}
TOLERANCE: Final = 1e-4


def over_distinct_pairs(model: str, dataset: str, out: str) -> Callable[[], Callable[[], Any]]:
    """Our own command, with its predictions file; returns probabilities by pair."""
    import torch

    torch.set_num_threads(1)
    classifier = Classifier.load(model, device="cpu")
    problems = read_problems(dataset)

    def answer() -> Callable[[], Any]:
        path = Path(out)
        path.unlink(missing_ok=True)
        predict(classifier, problems, path, progress=False)
        return lambda: {
            json.dumps([premise, hypothesis]): row
            for premise, hypothesis, row in zip(
                problems["premise"].to_pylist(),
                problems["hypothesis"].to_pylist(),
                pq.read_table(path)["probabilities"].to_pylist(),
                strict=True,
            )
        }

    return answer


def over_all_rows(model: str, rows: list[tuple[str, str]]) -> Callable[[list[int]], list[Any]]:
    """The obvious code: batches of 32 in the given order, padded; returns probabilities."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(model)
    classifier = AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32)
    classifier.eval()
    order = [classifier.config.label2id[n] for n in ("entailment", "neutral", "contradiction")]

    def answer(chosen: list[int]) -> list[Any]:
        found: list[Any] = []
        for first in range(0, len(chosen), 32):
            batch = [rows[i] for i in chosen[first : first + 32]]
            inputs = tokenizer(*zip(*batch, strict=True), padding=True, return_tensors="pt")
            with torch.inference_mode():
                logits = classifier(**inputs).logits
            found += logits.softmax(-1)[:, order].tolist()
        return found

    return answer


@pytest.mark.parametrize("model", PAIRS)
def test_runtimes(
    model: str, labelled: list[dict[str, str]], shared_models: Path, peers_python: str, rounds: int
) -> None:
    folder = shared_models / model
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    measurement = Measurement("classifier", f"{model}-runtimes")
    pairs = [(each["sentence1"], each["sentence2"]) for each in labelled]
    pairs = [pairs[i] for i in spread(range(len(pairs)), PAIRS[model])]
    where: dict[str, Any] = {"model": str(folder), "pairs": pairs}
    contenders = [Contender("ours, pairs alone", over_pairs, where)] + [
        Contender(
            name,
            exported.classifier,
            where | {"runtime": name.replace(" ", "").lower()},
            peers_python,
        )
        for name in ("ONNX Runtime", "OpenVINO")
    ]
    shape = shape_of(folder)
    yardstick = Contender(
        "packed products, float32",
        packed_products,
        {"hidden": shape[0], "inner": shape[1], "dtype": "float32"},
    )
    rows = list(range(len(pairs)))
    with ExitStack() as running:
        for contender in (*contenders, yardstick):
            running.enter_context(contender)
        for contender in contenders:
            contender.ask(rows=rows)
        requests = [partial(contender.ask, rows=rows) for contender in contenders]
        *replies, products = in_turn(rounds, *requests, partial(yardstick.ask, times=20))
    packed = products_flop(*shape) / float(np.median([reply.cpu for reply in products]))
    found = [np.array(each[0].answer) for each in replies]
    ours, *theirs = sides_of(contenders, replies, len(rows))
    theirs.sort(key=lambda side: float(np.median(side.cpu)))
    apart = max(float(abs(each - found[0]).max()) for each in found[1:])
    measurement.write(
        [
            compare(
                f"classifier, {model}",
                ours,
                side,
                unit="pair",
                at_least=1,
                agreement=f"probabilities differ by {apart:.0e} at most",
                flop=classifier_flop(folder, pairs),
                packed=packed,
            )
            for side in theirs
        ]
    )
    assert apart < TOLERANCE


@pytest.fixture
def dataset(tmp_path: Path, problem_file: Path) -> Path:
    run = str(tmp_path / "run")
    suggest(
        Config.from_recipe("demo", source="bench", data=str(problem_file), run=run, limit=SEEDS)
    )
    build(run)
    export_dataset(Path(run), tmp_path / "merge-nli")
    return tmp_path / "merge-nli"


def all_rows(dataset: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs of one subsample after the other, each with its seeds, as in the paper."""
    tables = [
        pq.read_table(path, columns=["premise", "hypothesis", "subsamples"]).to_pylist()
        for path in sorted(dataset.glob("*/*/variants.parquet"))
    ]
    variants = [row for table in tables for row in table]
    for subsample in sorted({number for row in variants for number in row["subsamples"]}):
        for row in variants:
            if subsample in row["subsamples"]:
                yield row["premise"], row["hypothesis"]


@pytest.mark.parametrize("model", ["bert-tiny-nli", "minilm-l6-nli"])
def test_classifier(
    model: str, dataset: Path, tmp_path: Path, shared_models: Path, rounds: int, budget: float
) -> None:
    places = (shared_models / model, Path(merge_metric.__file__).parent / "demo" / model)
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        pytest.skip(f"needs {shared_models / model}")
    measurement = Measurement("classifier", model)
    rows = list(all_rows(dataset))
    pairs = set(rows)
    where = {"dataset": str(dataset), "out": str(tmp_path / "out.parquet")}
    ours = Contender("ours, distinct pairs", over_distinct_pairs, {"model": str(folder)} | where)
    theirs = Contender(
        "padded batches of 32, all ten subsamples",
        over_all_rows,
        {"model": str(folder), "rows": rows},
    )
    with ExitStack() as running:
        for contender in (ours, theirs):
            running.enter_context(contender)
        each = theirs.ask(chosen=spread(range(len(rows)), 128)).cpu / 128
        chosen = spread(range(len(rows)), max(128, int(budget / each)))
        replies = in_turn(rounds, ours.ask, partial(theirs.ask, chosen=chosen))
    sides = [
        Side.of(ours.name, replies[0], len(rows)),
        Side.of(theirs.name, replies[1], len(chosen)),
    ]
    found = np.array([replies[0][0].answer[json.dumps(rows[i])] for i in chosen])
    expected = np.array(replies[1][0].answer)
    said = (
        f"{len(rows):,} rows, {len(pairs):,} distinct pairs; "
        f"probabilities differ by {abs(found - expected).max():.0e} at most"
    )
    measurement.write([compare(f"classifier, {model}", *sides, unit="row", agreement=said)])
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
