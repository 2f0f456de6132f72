"""The protocol `Model`, its `Answers`, and the settings that define a model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from merge_dataset.settings import INPUT, RUNNING, Value, setting

_Answers = TypeVar("_Answers")

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from merge_metric.models.templates import Prompt

Prepared = tuple[list[list[int]], Callable[[list[int]], _Answers]]
"""Batches, as places in a block of questions, and a function that asks about a batch."""

Pair = tuple[str, ...]
"""Texts of a problem: the first and the others joined or, for language models, all fields."""

_LM, _SERVER, _WORDS = "Language models", "Models on a server", "Answers in words"


def batched(
    questions: Sequence[Pair],
    *,
    block: int,
    prepare: Callable[[Sequence[Pair], int], Prepared[_Answers]],
    device: str,
) -> Iterator[tuple[list[int], _Answers]]:
    """Yield positions and answers of batches; `prepare` encodes a block, given its start.

    On the device "cpu" several threads ask: see `on_single_threads`.
    """
    from merge_metric.models.fast_layers import on_single_threads

    for start in range(0, len(questions), block):
        batches, ask = prepare(questions[start : start + block], start)
        for batch, answers in zip(batches, on_single_threads(ask, batches, device), strict=True):
            yield [start + i for i in batch], answers


def batches_of(
    shapes: Sequence[tuple[int, int]], budget: int, *, mixed: bool, filler: int = 0
) -> list[list[int]]:
    """Group positions of texts into batches of at most `budget` tokens; return them shuffled.

    Texts are given by their shapes: number of tokens, and a second number. Only if `mixed` may a
    batch have several second numbers and any lengths without padding; else the second numbers of
    a batch are equal, and padding to its longest text takes at most `filler` tokens.

    >>> batches_of([(3, 0), (2, 0), (3, 0), (2, 0)], 9, mixed=False, filler=2)
    [[1, 3, 0], [2]]
    """
    batches, tokens, before = list[list[int]](), 0, 0
    for i in sorted(range(len(shapes)), key=lambda i: (shapes[i], i)):
        length, other = shapes[i]
        tokens += length
        padded = tokens if mixed or not batches else length * (len(batches[-1]) + 1)
        apart = not mixed and (other != before or padded - tokens > filler)
        if not batches or apart or padded > budget:
            batches.append([])
            tokens = length
        batches[-1].append(i)
        before = other
    random.Random(0).shuffle(batches)
    return batches


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """A model's answers to n of the questions it was asked."""

    positions: list[int]
    """Places of the questions among those asked, (n,)."""
    labels: NDArray[np.int64]
    """Positions of the labels answered, (n,); `NO_LABEL` where an answer names none."""
    probabilities: NDArray[np.float64] | None = None
    """Probabilities of the labels, (n, labels); None from a model that only names labels."""
    texts: list[str] | None = None
    """The answers in the model's own words, (n,)."""
    numbers: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Further numbers about each answer, by name, (n,); metadata have their means."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers of things, such as tokens; metadata have the sums."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further facts for the metadata, JSON-able; lists of several answers are merged."""

    @classmethod
    def of(cls, positions: list[int], probabilities: NDArray[np.float64], **more: Any) -> Answers:
        """Make answers whose labels are the most probable ones."""
        labels = probabilities.argmax(axis=-1)
        return cls(positions=positions, labels=labels, probabilities=probabilities, **more)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Description:
    """Facts about a model that are known before it is asked."""

    identity: dict[str, Any]
    """All that determines its answers, JSON-able: at least `kind`, `name` and `revision`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """More for the metadata, such as its number of parameters."""
    prompt: Prompt | None = None
    """Question to a language model, which reads all fields of a problem; others read pairs."""
    chat: bool = False
    """Whether the prompt is a chat."""
    samples: int = 1
    """Answers in words to each question."""
    answer_tokens: int | None = 1
    """Most tokens of an answer; None where nothing limits them."""
    strict: bool = False
    """Whether answers of another model, or to prompts that were cut, are errors."""


class Model(Protocol):
    """Anything that answers questions about problems."""

    def describe(self) -> Description:
        """Describe the model."""

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield answers to distinct places of `questions`, all in the end, as they come.

        `repeat` is how often they were asked before: random draws depend on question and repeat.
        """


def require_probabilities(
    answers: Answers, pairs: Sequence[Pair], labels: Sequence[str]
) -> NDArray[np.float64]:
    """Return the probabilities of answers; raise ValueError unless they are some, (n, labels)."""
    from merge_metric.seed_variant_accuracy.inputs import check_probabilities

    rows = answers.probabilities
    check_probabilities("probabilities", rows, (len(pairs), len(labels)))
    assert rows is not None
    return rows


def _option(default: Value, help: str, panel: str = INPUT, **more: Any) -> Value:
    return setting(default, help, commands="predict", panel=panel, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A model and its settings as given by a user; None and "" mean not given."""

    model: str
    """Directory, Hub id, .gguf file, the server's name of the model, or a baseline."""
    kind: Literal["classifier", "lm", "remote", "baseline"] | None = _option(
        None, "Kind of the model; found out by default."
    )
    train: str | None = None
    """File that a baseline is trained on."""
    revision: str | None = _option(None, "Revision of the model on the Hub.")
    label_order: str | None = _option(
        None,
        "What a classifier's classes 0, 1, 2 mean, e.g. c,e,n; or seeds: "
        "find it out from gold labels where nothing says it.",
    )
    shots: str = _option(
        "auto", "auto, exc, mix, none, snli, mnli, seeds, or a .toml or .jsonl file.", _LM
    )
    prompt_start: str = _option("", "Text before the prompt, e.g. <|endoftext|>.", _LM)
    chat_template: bool = _option(
        False, "Ask in the model's chat template.", _LM, option="--chat-template"
    )
    shuffle_letters: bool = _option(
        False, "Draw the order of the choices for each problem, by a hash of its texts.", _LM
    )
    letters_seed: int = _option(0, "Another number, other orders of the choices.", _LM)
    prefix_cache: bool = _option(True, "Run the examples once, not per pair.", _LM)
    gguf_file: str | None = _option(None, "A GGUF file in the folder.", _LM)
    answers: Literal["letters", "words"] = _option(
        "letters",
        "What counts: the letters' probabilities, or the final answer of what the model writes.",
        _WORDS,
    )
    max_answer_tokens: int = _option(
        1024, "Most tokens that a model may write, thinking included.", _WORDS, minimum=1
    )
    samples: int = _option(
        1,
        "Answers per question; their shares are the probabilities, the most frequent counts.",
        _WORDS,
        minimum=1,
    )
    temperature: float = _option(0.0, "Of what the model writes.", _WORDS, minimum=0)
    reasoning_effort: str | None = _option(None, "As servers take it: low, medium, high.", _WORDS)
    server_settings: tuple[str, ...] = _option(
        (),
        "Another setting of the server, e.g. top_p=0.9; null sends none of that name; may be "
        "repeated.",
        _WORDS,
        option="--server-setting",
        metavar="NAME=VALUE",
    )
    base_url: str | None = _option(
        None,
        "OpenAI-compatible, e.g. http://localhost:8000/v1; or, with --kind classifier, "
        "text-embeddings-inference or vLLM.",
        _SERVER,
    )
    pair_separator: str | None = _option(
        None,
        "Text between the two of a pair, e.g. '</s></s>', for a classifier that vLLM serves.",
        _SERVER,
    )
    max_requests: int | None = _option(
        None, "Stop after this number of requests; the same command goes on.", _SERVER, minimum=1
    )
    api_key_env: str | None = _option(None, "Environment variable with the key.", _SERVER)
    concurrency: int = _option(8, "Requests at a time.", _SERVER, minimum=1)
    missing_letters: Literal["error", "uniform"] = _option(
        "error", "What an answer without letters means.", _SERVER
    )
    strict_server: bool = _option(
        False,
        "Refuse answers of another model than asked for, or of prompts that were cut.",
        _SERVER,
        option="--strict-server",
    )
    repeat_seeds: int = _option(
        0, "Ask about each seed this many more times, to show the noise of the answers.", minimum=0
    )
    device: str = _option(
        "auto", "auto, cpu, cuda, cuda:1, mps; cuda:0,cuda:1 or all: a task on each.", RUNNING
    )
    dtype: Literal["float32", "bfloat16", "float16"] | None = _option(
        None, "Default: float32; bfloat16 for language models on CUDA.", RUNNING
    )
    """Data type of the weights."""
    batch_tokens: int | None = _option(None, "Tokens in a forward pass.", RUNNING, minimum=1)
    unpadded: bool = _option(
        False, "Lay texts end to end on a GPU, in bfloat16 or float16.", RUNNING, rare=True
    )
    """Whether a classifier reads texts so; tried when it is opened."""

    @property
    def source(self) -> str:
        """The model, with its revision if one is given, as `inspect` takes them."""
        return f"{self.model}@{self.revision}" if self.revision else self.model
