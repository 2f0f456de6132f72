"""Models on servers: a real HTTP server in this process, which answers well or badly."""

import logging
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers.answers import answers
from helpers.completions_server import Reply, Request, Server, remote_model, serving

from merge_metric.models.pair_model import Answers
from merge_metric.models.prompts import read_prompt
from merge_metric.models.remote import RemoteModel, alternatives

PROMPT = read_prompt("mix")
PAIRS = [(f"Premise {i}.", f"Hypothesis {i}.") for i in range(23)]
KEY = "sk-very-secret-0123"


def shares(pair: tuple[str, str]) -> list[float]:
    weights = [1 + (len(pair[0]) * 7 + ord(pair[0][-2]) * k) % 5 for k in (1, 2, 3)]
    return [weight / sum(weights) for weight in weights]


def pair_of(payload: dict[str, Any]) -> tuple[str, str]:
    text = payload["prompt"] if "prompt" in payload else payload["messages"][-1]["content"]
    lines = text.splitlines()
    premise, hypothesis = lines[-6], lines[-5]
    assert lines[-4:] == ["A. Entailment", "B. Neutral", "C. Contradiction", "Answer:"]
    return premise.removeprefix("Premise: "), hypothesis.removeprefix("Hypothesis: ")


def table(log_probs: dict[str, float]) -> dict[str, Any]:
    """Log-probabilities in the form of /completions."""
    best = max(log_probs, key=log_probs.__getitem__, default="")
    own = {"tokens": [best], "token_logprobs": [log_probs.get(best)]}
    return {"choices": [{"text": best, "logprobs": {"top_logprobs": [log_probs], **own}}]}


def records(log_probs: dict[str, float]) -> dict[str, Any]:
    """Log-probabilities in the form of /chat/completions."""
    top = [{"token": t, "logprob": p, "bytes": list(t.encode())} for t, p in log_probs.items()]
    return {"choices": [{"logprobs": {"content": [{**top[0], "top_logprobs": top}]}}]}


def good(request: Request, number: int = 0) -> Reply:
    """Reply with shares of each letter, a quarter of them without a space, and another token."""
    result = {"The": math.log(0.2)}
    for letter, share in zip("ABC", shares(pair_of(request.payload)), strict=True):
        result[f" {letter}"] = math.log(0.6 * share)
        result[letter] = math.log(0.2 * share)
    form = records if request.path.endswith("/chat/completions") else table
    return Reply(form(result))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(good) as running:
        yield running


def model_at(server: Server, **options: Any) -> RemoteModel:
    return remote_model(server.url, prompt=PROMPT, **options)


def outcome(answer: Callable[[Request, int], Reply], **options: Any) -> tuple[Exception, Server]:
    with serving(answer) as server:
        with pytest.raises((ValueError, ConnectionError)) as caught:
            answers(model_at(server, **options), PAIRS)
        assert server.url in str(caught.value)
        return caught.value, server


@pytest.mark.parametrize(("chat", "concurrency"), [(False, 1), (True, 4)])
def test_probabilities_are_the_servers(server: Server, chat: bool, concurrency: int) -> None:
    result = answers(model_at(server, chat_template=chat, concurrency=concurrency), PAIRS)
    np.testing.assert_allclose(result, [shares(pair) for pair in PAIRS], atol=1e-12)
    assert sorted(pair_of(r.payload) for r in server.requests) == sorted(PAIRS)
    assert len({tuple(row) for row in result.round(3)}) > 5


def test_what_is_sent(server: Server) -> None:
    assert answers(model_at(server), []).shape == (0, 3)
    answers(model_at(server), PAIRS[:1])
    answers(model_at(server, chat_template=True), PAIRS[:1])
    completion, chat = server.requests
    assert (completion.path, chat.path) == ("/v1/completions", "/v1/chat/completions")
    common = {"model": "tiny", "max_tokens": 1, "temperature": 0}
    assert completion.payload == {**common, "prompt": PROMPT.text(*PAIRS[0]), "logprobs": 5}
    assert chat.payload == {
        **common, "messages": PROMPT.messages(*PAIRS[0]), "logprobs": True, "top_logprobs": 20,
    }  # fmt: skip
    assert "authorization" not in {name.lower() for name in completion.headers}


def test_requests_overlap() -> None:
    barrier = threading.Barrier(3)

    def together(request: Request, number: int) -> Reply:
        if number:
            barrier.wait(timeout=20)
        return good(request)

    with serving(together) as server:
        result = answers(model_at(server, concurrency=3), PAIRS[:10])
        assert server.most_at_once == 3
    np.testing.assert_allclose(result, [shares(pair) for pair in PAIRS[:10]], atol=1e-12)


def test_the_key_comes_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    with caplog.at_level(logging.DEBUG):
        model = model_at(server, api_key_env="MY_KEY")
        answers(model, PAIRS[:1])
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in caplog.text + str(model.describe()) + repr(model) + repr(vars(model))
    for change in (lambda: monkeypatch.setenv("MY_KEY", " "), lambda: monkeypatch.delenv("MY_KEY")):
        change()
        with pytest.raises(ValueError, match=r"key of .* environment variable MY_KEY, got none"):
            remote_model("http://localhost/v1", prompt=PROMPT, api_key_env="MY_KEY")


@pytest.mark.parametrize("odd", ["é", "\n", "\r\n", " ", "\0", "\u200b", "–"])
def test_keys_that_no_header_can_have(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused before any request, without a word of the key."""
    for environment in ({"MY_KEY": f"{KEY}{odd}{KEY}"}, {}):
        monkeypatch.setattr("os.environ", environment)
        given = {"api_key_env": "MY_KEY"} if environment else {"api_key": f"{KEY}{odd}{KEY}"}
        where = "environment variable MY_KEY" if environment else "`api_key`"
        with pytest.raises(ValueError, match=f"in (the )?{where}, got one whose char.*20") as error:
            remote_model("http://localhost/v1", prompt=PROMPT, **given)
        assert "very" not in str(error.value)


@pytest.mark.slow(but=["500"])
@pytest.mark.parametrize(
    "trouble",
    [
        Reply({"error": "slow down"}, 429, {"Retry-After": "0"}),
        Reply({"error": "slow down"}, 429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        Reply(b"<html>oops</html>", 500), Reply(b"", 503), Reply(b'{"choices": [', cut=True),
        Reply(b"no gzip", 200, {"Content-Encoding": "gzip"}),
    ],
    ids=["429", "429-date", "500", "503", "cut", "encoding"],
)  # fmt: skip
def test_trouble_that_passes(trouble: Reply) -> None:
    def troubled(request: Request, number: int) -> Reply:
        return trouble if number % 2 == 0 else good(request)

    with serving(troubled) as server:
        result = answers(model_at(server, retries=30), PAIRS[:8])
        assert len(server.requests) > 8
    np.testing.assert_allclose(result, [shares(pair) for pair in PAIRS[:8]], atol=1e-12)


def test_a_server_that_goes_away_and_comes_back() -> None:
    with serving(good) as server:
        model = model_at(server, retries=3)
        answers(model, PAIRS)
    told = r"in 4 attempts; the last one ended in ConnectErr.*; is the server running"
    with pytest.raises(ConnectionError, match=told):
        answers(model, PAIRS)


def test_a_server_that_hangs() -> None:
    released = threading.Event()

    def silent(request: Request, number: int) -> Reply:
        released.wait(10)
        return good(request)

    with serving(silent) as server:
        with pytest.raises(ConnectionError, match="ended in ReadTimeout"):
            answers(model_at(server, retries=1, timeout=0.2), PAIRS)
        released.set()


def test_waiting_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pause is about twice as long as the last one; the server's own wish has precedence."""
    pauses: list[float] = []
    with serving(lambda _, n: Reply({}, 429, {"Retry-After": "7"} if n == 3 else {})) as server:
        model = model_at(server, retries=4, backoff=1.0)
        monkeypatch.setattr(model._endpoint._stopped, "wait", lambda s: pauses.append(s))
        with pytest.raises(ConnectionError):
            answers(model, PAIRS)
    assert pauses[3] == 7
    np.testing.assert_allclose(pauses[:3], [1, 2, 4], rtol=0.2001)


def test_an_error_ends_the_run_soon() -> None:
    """The error does not wait for threads that pause for an hour before another attempt."""

    def some(request: Request, number: int) -> Reply:
        if number == 0:
            return good(request)
        return Reply({}, 404) if number == 6 else Reply({}, 500)

    error, server = outcome(some, retries=9, backoff=3600.0, concurrency=6)
    assert isinstance(error, ValueError)
    assert len(server.requests) < 12


REFUSALS = {400: "too long", 401: "`api_key_env`", 404: "ends in /v1", 307: "", 418: ""}
BECAUSE, REFUSED = {"detail": "because"}, 'expected an answer, got HTTP {}: {{"detail": "because"}}'
NO_LOG_PROBS = "expected a completion with log-probabilities, got"


@pytest.mark.parametrize(
    ("reply", "message", "hint"),
    [
        *((Reply(BECAUSE, n), REFUSED.format(n), hint) for n, hint in REFUSALS.items()),
        (Reply(b"<html>Welcome</html>"), "expected an answer, got no JSON: '<html>Welcome", ""),
        (Reply({"object": "list"}), f"{NO_LOG_PROBS} {{'object': 'list'", ""),
        (Reply({"choices": [{"text": " A"}]}), "llama.cpp's server and vLLM give them", ""),
        (Reply(table({" A": 0.7})), NO_LOG_PROBS, ""),
        (Reply(records({" A": float("nan")})), NO_LOG_PROBS, ""),
    ],
)
def test_refusals_and_other_answers(reply: Reply, message: str, hint: str) -> None:
    """The first one ends the run, in the server's own words; it is not asked again."""
    error, server = outcome(lambda *_: reply)
    assert isinstance(error, ValueError)
    assert message in str(error)
    assert hint in str(error)
    assert len(server.requests) == 1


def counts_of(batches: list[Answers]) -> dict[str, int]:
    names = batches[0].counts
    return {name: sum(batch.counts[name] for batch in batches) for name in names}


def test_the_token_itself_counts_once() -> None:
    given = table({" A": -1.0})["choices"][0]["logprobs"]
    for top in ({" A": -1.0}, {" B": -2.0}):
        body = {"choices": [{"logprobs": {**given, "top_logprobs": [top]}}]}
        assert alternatives(body) == {" A": -1.0, **top}
    assert alternatives(records({"A": -1.0, "B": -2.0})) == {"A": -1.0, "B": -2.0}


def test_letters_beyond_the_alternatives() -> None:
    """A missing letter has probability 0; the number of such answers is noted."""

    def partial(request: Request, number: int) -> Reply:
        return Reply(table({" A": math.log(0.6), "▁C": math.log(0.2)})) if number else good(request)

    with serving(partial) as server:
        batches = list(model_at(server).answer(PAIRS[:5]))
    for batch in batches[1:]:
        np.testing.assert_allclose(batch.probabilities, [[0.75, 0, 0.25]] * len(batch.positions))
    assert counts_of(batches) == {"answers_partial": 4, "answers_without_letters": 0}


@pytest.mark.parametrize("body", [
    table({"The": -0.1, " the": -3.0}), {"choices": [{"logprobs": {"content": []}}]},
    {"choices": [{"text": "", "logprobs": {"top_logprobs": [], "tokens": []}}]},
], ids=["others", "no-token-chat", "no-token"])  # fmt: skip
def test_no_letter_at_all(body: Any) -> None:
    error, _ = outcome(lambda r, n: Reply(body) if n else good(r))
    assert "expected A, B, C among the 5 most probable tokens" in str(error)
    assert "`missing_letters` uniform" in str(error)
    with serving(lambda r, n: Reply(body) if n else good(r)) as server:
        batches = list(model_at(server, missing_letters="uniform").answer(PAIRS[:3]))
    assert all((batch.probabilities == 1 / 3).all() for batch in batches[1:])
    assert counts_of(batches) == {"answers_partial": 0, "answers_without_letters": 2}
