"""Classifiers on a server that answers in the documented formats."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused, run
from helpers.completions_server import Reply, Request, Server, serving
from helpers.problem_folder import many_problems, write_folder

from merge_dataset.schema import LABELS

PROBLEMS = many_problems(50, 3)
GOLD = {(p, h): gold for p, h, gold in PROBLEMS.values()}
NAMES = ("contradiction", "entailment", "neutral")
"""Names of classes 0, 1 and 2: labels 2, 0 and 1."""
NUMBERS = ("LABEL_0", "LABEL_1", "LABEL_2")


def scores_of(pair: tuple[str, ...]) -> list[float]:
    """Probabilities of classes, by a hash, mostly right on the problems."""
    draw = hashlib.sha256(repr(pair).encode()).digest()
    weights = np.array([*draw[:3]], np.float64) + 1
    weights[(GOLD.get(pair, draw[3]) + 1) % 3] += 300 * (draw[4] > 30)
    return list((weights / weights.sum()).tolist())


def expected(pair: tuple[str, ...]) -> list[float]:
    by_name = dict(zip(NAMES, scores_of(pair), strict=True))
    return [by_name[label] for label in LABELS]


Served = Callable[[dict[str, Any], list[list[Any]]], Any]


def embeddings_inference(names: tuple[str, ...]) -> Served:
    def answer(payload: dict[str, Any], rows: list[list[Any]]) -> Any:
        assert payload.keys() == {"inputs", "raw_scores"}
        records = [
            [{"label": n, "score": s} for n, s in zip(names, row, strict=True)] for row in rows
        ]
        return [sorted(row, key=lambda item: -item["score"]) for row in records]

    return answer


def vllm(names: tuple[str, ...]) -> Served:
    def answer(payload: dict[str, Any], rows: list[list[Any]]) -> Any:
        assert (payload["model"], payload["use_activation"]) == ("nli", True)
        data = [
            {"index": n, "label": names[int(np.argmax(row))], "probs": row, "num_classes": len(row)}
            for n, row in enumerate(rows)
        ]
        return {"id": "classify-1", "object": "list", "model": "nli", "data": data[::-1]}

    return answer


@contextmanager
def served(answer: Served, path: str) -> Iterator[Server]:
    """Serve a classifier that is overloaded at its third request."""

    def reply(request: Request, number: int) -> Reply:
        assert request.path == f"/v1/{path}"
        if number == 2:
            return Reply({"error": "Model is overloaded"}, 429, {"Retry-After": "0.01"})
        payload = request.payload
        pairs = [tuple(text.split("</s></s>")) for text in payload.get("input", ())]
        pairs = pairs or [tuple(pair) for pair in payload["inputs"]]
        assert len(pairs) <= 32
        return Reply(answer(payload, [scores_of(pair) for pair in pairs]))

    with serving(reply) as server:
        yield server


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "merge-nli", PROBLEMS)
    monkeypatch.chdir(tmp_path)


COMMAND = ("predict", "--dataset", "merge-nli", "--model", "nli", "--kind", "classifier",
           "--config", "snli", "--out", "out.parquet")  # fmt: skip
JOINED = ("--pair-separator", "</s></s>")


@pytest.mark.parametrize(
    ("server", "path", "options", "source"),
    [
        (embeddings_inference(NAMES), "predict", (), "id2label"),
        (embeddings_inference(NUMBERS), "predict", ("--label-order", "c,e,n"), "given"),
        (embeddings_inference(NUMBERS), "predict", ("--label-order", "seeds"), "seeds"),
        (vllm(NAMES), "classify", JOINED, "id2label"),
        (vllm(NUMBERS), "classify", (*JOINED, "--label-order", "c,e,n"), "given"),
    ],
)
def test_labels_by_name(server: Served, path: str, options: tuple[str, ...], source: str) -> None:
    with served(server, path) as place:
        run(*COMMAND, *options, "--base-url", place.url)
    table = pq.read_table("out.parquet")
    metadata = json.loads(table.schema.metadata[b"merge_nli"])
    order = metadata["label_order"]
    assert order == [*NAMES] if source != "id2label" else {*order} == {*NAMES}
    assert (metadata["label_order_source"], metadata["kind"]) == (source, "classifier")
    assert metadata["endpoint"].endswith(path)
    texts = {name: problem[:2] for name, problem in PROBLEMS.items()}
    for row in table.to_pylist():
        assert row["probabilities"] == pytest.approx(expected(texts[row["variant_id"]]))
        assert row["prediction"] == int(np.argmax(row["probabilities"]))


@pytest.mark.parametrize(
    ("server", "options", "message"),
    [
        (embeddings_inference(NUMBERS), (), "nothing says which class is which label"),
        (embeddings_inference(NAMES), ("--label-order", "c,e,n"),
         "--label-order: expected none, or seeds, as the server names its classes neutral, "
         "entailment, contradiction, without numbers, got c,e,n"),
        (vllm(("entailment", "entailment", "neutral")), JOINED, "nothing says which class is"),
        (lambda payload, rows: {"error": "no classifier"}, (), "expected probabilities of the cl"),
        (lambda payload, rows: embeddings_inference(NAMES)(payload, rows)[: 32 - 1], (),
         "contradiction for 32 pairs, got "),
        (lambda payload, rows: [[{"label": n, "score": 2.0} for n in NAMES] for _ in rows], (),
         "expected 3 probabilities that sum to 1"),
    ],
)  # fmt: skip
def test_answers_that_say_too_little(
    server: Served, options: tuple[str, ...], message: str
) -> None:
    with served(server, "classify" if JOINED[0] in options else "predict") as place:
        assert message in refused(*COMMAND, *options, "--base-url", place.url)
    assert not Path("out.parquet").exists()


def test_other_names_than_before() -> None:
    asked = list[int]()

    def answer(payload: dict[str, Any], rows: list[list[Any]]) -> Any:
        asked.append(len(rows))
        names = NAMES if len(asked) < 3 else ("contradiction", "entailment", "other")
        return embeddings_inference(names)(payload, rows)

    with served(answer, "predict") as place:
        told = refused(*COMMAND, "--base-url", place.url, "--concurrency", "1")
    assert "/v1/predict: expected probabilities of the classes neutral, entailment, " in told
