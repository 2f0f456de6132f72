import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers.completions_server import Reply, Request, Server, remote_model, serving
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from merge_metric.frame.predictions import read_metadata, read_predictions
from merge_metric.models.answer_words import NO_LABEL
from merge_metric.models.checkpoints import Loaded
from merge_metric.models.language_model import Words, WritingModel, keyed_draws
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.prompts import read_prompt
from merge_metric.models.remote import RemoteModel, said_in
from merge_metric.predict.driver import predict

PROMPT = read_prompt("none")
FURTHER = "Premise: It rains.\nHypothesis: It pours.\nAnswer: C"
SAID = [
    "A", f"**B**\r\n\r\n{FURTHER}", "<think>A</think>The answer is (C).", "I cannot tell.", "",
    '{"answer": "B"}',
]  # fmt: skip
CODES = [0, 1, 2, NO_LABEL, NO_LABEL, 1]
PAIRS = [(f"Premise {n}.", f"Hypothesis {n}.") for n in range(len(SAID))]


def number_of(payload: dict[str, Any]) -> int:
    text = payload["prompt"] if "prompt" in payload else payload["messages"][-1]["content"]
    return int(text.split("Premise: Premise ")[-1].partition(".")[0])


def chat(text: str | None, reason: str = "stop", **message: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": text, **message}, "finish_reason": reason}
    usage = {"prompt_tokens": 40, "completion_tokens": 7}
    return {"choices": [choice], "model": "tiny", "usage": usage}


def completion(text: str) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": "stop"}], "model": "tiny"}


def spoken(request: Request, number: int = 0) -> Reply:
    form = chat if request.path.endswith("/chat/completions") else completion
    return Reply(form(SAID[number_of(request.payload)]))


def problems() -> pa.Table:
    premises, hypotheses = zip(*PAIRS, strict=True)
    ids = ["s", *(f"s/{n}" for n in range(1, len(PAIRS)))]
    same = {"seed_id": ["s"] * len(PAIRS), "label": [1] * len(PAIRS)}
    return pa.table({"variant_id": ids, "premise": premises, "hypothesis": hypotheses, **same})


def model_at(server: Server, words: Words | None = None, **options: Any) -> RemoteModel:
    options = {"chat_template": True, "words": words or Words(), **options}
    return remote_model(server.url, prompt=PROMPT, **options)


@pytest.mark.parametrize("is_chat", [True, False])
def test_final_answers_are_read(is_chat: bool, tmp_path: Path) -> None:
    with serving(spoken) as server:
        out = tmp_path / "p.parquet"
        outcome = predict(model_at(server, chat_template=is_chat), problems(), out, progress=False)
    result = read_predictions(out)
    assert result["prediction"].to_pylist() == CODES
    assert "probabilities" not in result.column_names
    told = pq.read_table(out)["answer_text"].to_pylist()
    assert told == ["A", "**B**", "The answer is (C).", "I cannot tell.", "", '{"answer": "B"}']
    metadata = outcome.metadata
    assert metadata["requests"] == len(SAID)
    assert metadata["samples_without_label"] == pytest.approx(2 / 6)
    assert metadata.get("prompt_tokens") == (40 * 6 if is_chat else None)
    assert metadata.get("answer_tokens") == (7 * 6 if is_chat else None)
    assert metadata["milliseconds"] >= 0
    assert len(metadata["texts"]) == 8  # the digest of the problems
    assert read_metadata(out)["requests"] == metadata["requests"]


def test_what_is_sent() -> None:
    more = {"top_p": 0.9, "max_tokens": None, "max_completion_tokens": 99}
    with serving(spoken) as server:
        words = Words(max_tokens=50, temperature=0.5, samples=2, more=more)
        model = model_at(server, words)
        list(model.answer(PAIRS[:1]))
        list(model_at(server, Words(max_tokens=50), chat_template=False).answer(PAIRS[:1]))
    asked = {"model": "tiny", "temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 99}
    messages = PROMPT.messages(*PAIRS[0])
    assert [r.payload for r in server.requests[:2]] == [{**asked, "messages": messages}] * 2
    assert server.requests[2].payload == {
        "model": "tiny", "max_tokens": 50, "temperature": 0, "prompt": PROMPT.text(*PAIRS[0]),
        "stop": ["\n\nPremise:"],
    }  # fmt: skip
    described = model.describe().identity
    assert described["server_settings"] == more
    assert (described["samples"], described["temperature"]) == (2, 0.5)
    assert "top_logprobs" not in described


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (chat("B"), ("B", False)),
        (chat("B", "length"), ("B", True)),
        (chat(None, reasoning_content="The answer is A."), ("", False)),
        (chat("C", reasoning="A?"), ("C", False)),
        (chat(None, refusal="I can't."), ("I can't.", False)),
        (chat([{"type": "text", "text": "B"}, {"type": "text", "text": "."}]), ("B.", False)),
        (completion(" B"), (" B", False)),
        ({"choices": [{"index": 1, "text": "A"}, {"index": 0, "text": "B"}]}, ("B", False)),
    ],
)
def test_forms_of_completions(answer: Any, expected: tuple[str, bool]) -> None:
    assert said_in(answer) == expected


def test_most_requests_of_several_answers(tmp_path: Path) -> None:
    words, out = Words(samples=2, temperature=1.0), tmp_path / "p.parquet"
    with serving(spoken) as server:
        for _ in range(2):
            model = model_at(server, words, max_requests=5, concurrency=4)
            with pytest.raises(InterruptedError, match="what was answered is kept"):
                predict(model, problems(), out, progress=False)
        assert len(server.requests) == 8
        predict(model_at(server, words, max_requests=5), problems(), out, progress=False)
        assert len(server.requests) == 2 * len(SAID)


def test_draws_of_questions_that_are_asked_again() -> None:
    """They depend on the question, the sample and the repeat, and on no other question."""
    loaded = Loaded(tiny_lm("gpt2"), tiny_tokenizer("gpt2"), "tiny", "0")
    words = Words(max_tokens=8, temperature=1.0, samples=2)
    model = WritingModel(loaded, prompt=PROMPT, words=words)

    def written(pairs: Sequence[Any], repeat: int) -> dict[Any, str]:
        batches = model.answer(pairs, repeat=repeat)
        return {
            pairs[n]: t for b in batches for n, t in zip(b.positions, b.texts or (), strict=True)
        }

    several = [written(PAIRS, repeat) for repeat in range(3)]
    texts = [text.split("\n———\n") for answers in several for text in answers.values()]
    assert len({sample for both in texts for sample in both}) == 3 * len(PAIRS) * 2
    some = PAIRS[4:1:-1]
    assert written(some, 1) == {pair: several[1][pair] for pair in some}


def test_draws_are_those_of_the_probabilities() -> None:
    scores = torch.tensor([[0.0, math.log(3.0), -math.inf]] * 4000)
    draw = keyed_draws([b"%d" % n for n in range(4000)], 2.0, "cpu")
    drawn = draw(None, scores).argmax(dim=1)
    assert not torch.equal(drawn, draw(None, scores).argmax(dim=1))
    shares = (torch.bincount(drawn, minlength=3) / 4000).tolist()
    root = math.sqrt(3)
    assert shares == pytest.approx([1 / (1 + root), root / (1 + root), 0], abs=0.03)


@given(st.lists(st.sampled_from(["A", "B", "C", "?"]), min_size=1, max_size=9), st.text("ab "))
def test_votes(said: list[str], premise: str) -> None:
    """A tie is broken in the same way for the same question, whatever the order of answers."""
    words, pair = Words(samples=len(said)), (premise, "x")
    shares, chosen, lost, _ = words.read(PROMPT, pair, [(text, False) for text in said])
    votes = {letter: said.count(letter) for letter in "ABC"}
    assert lost == said.count("?") / len(said)
    if not any(votes.values()):
        assert chosen == NO_LABEL
        return
    assert votes["ABC"[chosen]] == max(votes.values())
    total = sum(votes.values())
    assert shares == [votes[letter] / total for letter in "ABC"]
    assert words.read(PROMPT, pair, [(text, False) for text in said[::-1]])[1] == chosen


class Characters:
    """A tokenizer of characters, whose chat template opens the thinking."""

    chat_template, eos_token_id, pad_token_id = "{{ messages }}<think>\n", 0, 0
    added_tokens_decoder: ClassVar[dict[int, Any]] = {}

    def apply_chat_template(self, chats: list[Any], **_: Any) -> list[str]:
        return [f"{messages}<think>\n" for messages in chats]

    def __call__(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [[*map(ord, text)] for text in texts]}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(map(chr, ids))


def read_of(written: str, tokenizer: Characters) -> tuple[int, str]:
    """The label read from what a model writes, and the words kept."""

    def generate(input_ids: Any, **_: Any) -> Any:
        text = torch.tensor([[*map(ord, written)]] * len(input_ids))
        return torch.cat([input_ids, text], dim=1)

    model = SimpleNamespace(
        generation_config=SimpleNamespace(eos_token_id=0), generate=generate,
        device=torch.device("cpu"),
        config=SimpleNamespace(get_text_config=SimpleNamespace),
    )  # fmt: skip
    loaded: Any = SimpleNamespace(name="m", tokenizer=tokenizer, model=model)
    words = Words(max_tokens=len(written))
    writing = WritingModel(loaded, prompt=PROMPT, words=words, chat_template=True)
    (answers,) = writing.answer(PAIRS[:1])
    assert answers.texts
    return int(answers.labels[0]), answers.texts[0]


class Marked(Characters):
    """A tokenizer with letters for an end mark of thinking and for padding."""

    chat_template = "{{ messages }}"
    added_tokens_decoder: ClassVar[dict[int, Any]] = {
        ord("{"): SimpleNamespace(special=True, content="[/THINK]"),
        ord("~"): SimpleNamespace(special=True, content="<pad>"),
        ord("^"): SimpleNamespace(special=True, content="<|eot_id|>"),
    }

    def apply_chat_template(self, chats: list[Any], **_: Any) -> list[str]:
        return ["[THINK]"] * len(chats)

    def decode(self, ids: list[int], **_: Any) -> str:
        return (
            "".join(map(chr, ids))
            .replace("{", "[/THINK]")
            .replace("~", "<pad>")
            .replace("^", "<|eot_id|>")
        )


def test_thinking_that_the_prompt_begins() -> None:
    """The template writes the opening tag, and the model the closing one, unless it is cut off."""
    assert read_of("It may be A.</think>B", Characters()) == (1, "B")
    label, text = read_of("The answer is A. Hm, the answer is B", Characters())
    assert (label, text[:7]) == (NO_LABEL, "<think>")
    # Special tokens that mark thinking are kept; other special tokens are not.
    assert read_of("The answer is A.{~B~", Marked()) == (1, "B")
    # So are those that end a turn, and the model's own stop may be another.
    assert read_of(f"Hm.{{B^user\n\n{FURTHER}", Marked()) == (1, "B")


def request(**options: Any) -> ModelRequest:
    return ModelRequest(model="m", base_url="http://localhost:1/v1", answers="words", **options)


def test_settings_that_are_none() -> None:
    for options, text in (
        ({}, "a temperature above 0, got 0"),
        ({"temperature": 0.7, "max_requests": 4}, "at least as many `max_requests`, got 4"),
        ({"temperature": 0.7, "server_settings": ("temperature=0.0",)}, "a temperature above 0"),
        ({"temperature": 0.7, "server_settings": ("seed=3",)}, "no seed .* got 3"),
    ):
        with pytest.raises(ValueError, match=f"samples: expected with 5 {text}"):
            Words.of(request(samples=5, **options))
    for text in ("top_p", "=1", "a b=1", "api_key=sk-1234567890", 'extra={"token": "abcd"}'):
        with pytest.raises(ValueError, match="server_setting: expected NAME=VALUE and no") as error:
            Words.of(request(server_settings=(text,)))
        assert "sk-" not in str(error.value)
        assert "abcd" not in str(error.value)
    more = ("top_p=0.9", "stop=null", "mode=fast", 'extra={"a": [1]}')
    result = Words.of(request(server_settings=more, reasoning_effort="low", samples=1)).more
    expected = {"reasoning_effort": "low", "top_p": 0.9, "stop": None, "mode": "fast"}
    assert result == {**expected, "extra": {"a": [1]}}
    for text, sent in {"temperature=null": None, "temperature=0.3": 0.3, "top_k=9": 0.7}.items():
        words = Words.of(request(temperature=0.7, samples=2, server_settings=(text,)))
        assert words.describe()["temperature"] == sent
