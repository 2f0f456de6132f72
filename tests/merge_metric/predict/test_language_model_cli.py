import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused, run
from helpers.completions_server import Reply, Request, Server, serving
from helpers.problem_folder import many_problems, write_folder
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from numpy.typing import NDArray
from typer.testing import Result

from merge_dataset.schema import LABELS
from merge_metric.models.prompts import read_prompt

PROBLEMS = {
    "snli:1": ("A girl jumps.", "A girl is here.", 0),
    "snli:1/noun/0": ("A boy jumps.", "A boy is here.", 0),
    "snli:1/noun/1": ("A dog jumps.", "A dog is here.", 0),
    "snli:2": ("A man sits.", "A man walks.", 2),
    "snli:2/noun/0": ("A woman sits.", "A woman walks.", 2),
}
SHOTS = """
{"premise": "It runs.", "hypothesis": "It plays.", "label": 1}
{"premise": "A cat is red.", "hypothesis": "A cat is there.", "label": "entailment"}
{"premise": "A car is old.", "hypothesis": "A car is new.", "label": "contradiction"}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_folder(tmp_path / "merge-nli", PROBLEMS)
    tiny_lm("gpt2").save_pretrained(tmp_path / "tiny")
    tiny_tokenizer("gpt2").save_pretrained(tmp_path / "tiny")
    (tmp_path / "own.jsonl").write_text(SHOTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMAND = ("predict", "--dataset", "merge-nli", "--out", "out.parquet")


def predict(*options: str, code: int = 0) -> Result:
    return run(*COMMAND, *options, code=code)


def table() -> tuple[NDArray[np.float64], list[int], dict[str, object]]:
    result = pq.read_table("out.parquet")
    rows = {row["variant_id"]: row for row in result.to_pylist()}
    assert set(rows) == set(PROBLEMS)
    metadata = json.loads(result.schema.metadata[b"merge_nli"])
    ordered = [rows[name] for name in PROBLEMS]
    probabilities = np.array([row["probabilities"] for row in ordered])
    return probabilities, [row["prediction"] for row in ordered], metadata


@pytest.mark.usefixtures("here")
def test_a_model_in_a_folder() -> None:
    predict("--model", "tiny", "--shots", "own.jsonl", "--device", "cpu")
    result, predictions, metadata = table()
    assert predictions == result.argmax(axis=1).tolist()
    assert (metadata["kind"], metadata["name"]) == ("language-model", "tiny")
    assert (metadata["shots"], metadata["n_shots"]) == ("own", 3)
    assert 0 < metadata["letter_mass"] < 1
    assert metadata["prefix_cached_tokens"] > 50


@pytest.mark.usefixtures("here")
def test_a_server() -> None:
    """The source's own examples are sent; an answer without letters may end the run."""

    def answer(request: Request, number: int) -> Reply:
        prompt = request.payload["prompt"]
        assert prompt.startswith(read_prompt("snli").text("", "")[:600])
        top = {" B": math.log(0.75), " C": math.log(0.25)} if "dog" not in prompt else {"I": -1}
        return Reply({"choices": [{"logprobs": {"top_logprobs": [top]}}]})

    with serving(answer) as server:
        options = ("--model", "big", "--base-url", server.url, "--concurrency", "2")
        stopped = predict(*options, code=2)
        assert "--missing-letters uniform" in " ".join(stopped.output.split())
        asked = len(server.requests)
        predict(*options, "--missing-letters", "uniform")
        assert len(server.requests) < asked + len(PROBLEMS), "it goes on where it stopped"
    result, predictions, metadata = table()
    expected = [[0, 0.75, 0.25]] * 5
    expected[2] = [1 / 3] * 3
    np.testing.assert_allclose(result, expected)
    assert predictions == [1, 1, 0, 1, 1]
    assert (metadata["kind"], metadata["name"], metadata["shots"]) == ("remote", "big", "snli")
    assert metadata["answers_without_letters"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_odd_answers_of_an_interrupted_run(caplog: pytest.LogCaptureFixture) -> None:
    is_odd = True

    def answer(request: Request, number: int) -> Reply:
        if is_odd and number == 3:
            return Reply({"error": "no"}, 400)
        top = {" A": -0.5, " B": -1.0} | ({} if is_odd else {" C": -3.0})
        body = {"choices": [{"logprobs": {"top_logprobs": [top]}}]}
        return Reply({**body, "model": "small" if is_odd else "big"})

    with serving(answer) as server:
        options = ("--model", "big", "--base-url", server.url, "--concurrency", "1")
        strict = (*options, "--strict-server")
        assert "--strict-server refuses such answers" in predict(*strict, code=2).output
        predict(*options, code=2)
        is_odd = False
        assert "remove it to ask again" in " ".join(predict(*strict, code=2).output.split())
        for count in (2, 3):
            predict(*options)
            assert caplog.text.count("the server says they are of small") == count
        told = " ".join(predict(*strict, code=2).output.split())
    assert "refuses such answers; name another file" in told
    _, _, metadata = table()
    assert metadata["answered_as"] == ["small"]
    assert 0 < metadata["answers_partial"] < metadata["distinct_pairs"]


@pytest.mark.parametrize("answers", ["letters", "words"])
def test_a_model_that_always_says_a(
    answers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "merge-nli", many_problems(60, 3))

    def answer(request: Request, number: int) -> Reply:
        content = [{"token": t, "logprob": p, "top_logprobs": []} for t, p in ((" A", -0.1),)]
        content[0]["top_logprobs"] = [{"token": t, "logprob": -3.0} for t in "BC"]
        choice = {"message": {"content": "A"}, "finish_reason": "stop"}
        return Reply({"choices": [choice | {"logprobs": {"content": content}}]})

    def prompts(server: Server) -> set[str]:
        return {json.dumps(request.payload) for request in server.requests}

    with serving(answer) as server, serving(answer) as again, serving(answer) as other:
        asked = ["--model", "m", "--chat-template", "--answers", answers, "--config", "snli"]
        plain = predict(*asked, "--base-url", server.url)
        assert table_of("prediction") == [0] * 240
        assert "answers by letter: A 100.0%, B 0.0%, C 0.0%" in plain.stdout
        asked = [*asked, "--shuffle-letters", "--overwrite"]
        done = predict(*asked, "--base-url", server.url)
        right = np.equal(table_of("prediction"), table_of("label")).mean()
        assert 0.25 < right < 0.42
        assert "answers by letter: A 100.0%, B 0.0%, C 0.0%" in done.stdout
        metadata = json.loads(pq.read_schema("out.parquet").metadata[b"merge_nli"])
        assert metadata["letters_seed"] == 0
        predict(*asked, "--base-url", again.url)
        assert prompts(again) < prompts(server)
        predict(*asked, "--letters-seed", "1", "--base-url", other.url)
        assert not prompts(other) & prompts(again)
    report = run("report", "out.parquet", "--dataset", "merge-nli", "--out", "report.md")
    assert report.exit_code == 0
    assert "m: answers by letter: A 100.0%, B 0.0%, C 0.0%." in Path("report.md").read_text()


def table_of(column: str) -> list[int]:
    return list(pq.read_table("out.parquet")[column].to_pylist())


def test_seeds_as_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = {n: (f"Now {p}", h, y) for n, (p, h, y) in many_problems(14, 2, "mine").items()}
    everything = many_problems(14, 2) | mine
    write_folder(tmp_path / "merge-nli", everything)

    def answer(request: Request, number: int) -> Reply:
        text = {"message": {"content": "B"}, "finish_reason": "stop"}
        return Reply({"choices": [text]})

    with serving(answer) as server:
        asked = ["--base-url", server.url, "--model", "m", "--chat-template", "--answers", "words"]
        asked += ["--shots", "seeds"]
        told = refused(*COMMAND, *asked)
        assert "--shots: expected with seeds problems of one source" in told
        assert not server.requests
        done = predict(*asked, "--config", "snli")
    metadata = json.loads(pq.read_schema("out.parquet").metadata[b"merge_nli"])
    shots = metadata["problems"]["shots"]["snli"]
    assert (metadata["shots"], metadata["n_shots"], len(shots)) == ("seeds", 6, 6)
    shown = [message["content"] for message in server.requests[0].payload["messages"]]
    assert shown[1:12:2] == ["ABC"[LABELS.index(shot["label"])] for shot in shots]
    for request in server.requests:
        assert not {request.payload["messages"][-1]["content"]} & {*shown[:12:2]}
    result = set(pq.read_table("out.parquet")["seed_id"].to_pylist())
    assert not result & {shot["seed_id"] for shot in shots}
    assert len(result) == 14 - 6
    assert "--allow-missing" in done.stdout
