"""The protocol of models that answer pairs of texts, and the settings that define one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from merge_dataset.settings import RUNNING, Value, setting

_Answers = TypeVar("_Answers")

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Prepared = tuple[list[list[int]], Callable[[list[int]], _Answers]]
    """Batches, as positions of pairs, and a function that asks the model about a batch."""
    Answered = Iterator[tuple[list[int], NDArray[np.float64]]]
    """Batches: positions of pairs, (b,), and probabilities of the labels, (b, labels)."""

Pair = tuple[str, ...]
"""Texts of a problem: the first and the others joined, or with `reads_fields` all fields."""

_LM, _SERVER = "Language models", "Models on a server"
_WORDS = "Answers in words"
"""Heading of the help for settings of answers in words."""


PREDICTION: Final = "prediction"
"""Name of the measure that holds the position of the label answered."""


@dataclass(frozen=True, slots=True)
class Share:
    """One of `count` shares of a run's batches: number `index`, from 0."""

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Share:
        """Parse a share, written "index/count".

        >>> Share.parse("1/3"), str(Share(1, 3))
        (Share(index=1, count=3), '1/3')
        """
        index, count = map(int, text.split("/"))
        return cls(index, count)

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def takes(self, batch: int, window: int, windows: int) -> bool:
        """Return whether batch number `batch` of a window of pairs belongs to the share."""
        # At least four pieces per share, so that shares are of similar size.
        pieces = -(-4 * self.count // windows) if self.count > 1 else 1
        return (batch % pieces * windows + window) % self.count == self.index

    def looks_at(self, window: int, windows: int) -> bool:
        """Return whether any batch of a window may belong to the share."""
        return any(self.takes(batch, window, windows) for batch in range(4 * self.count))


WHOLE: Final = Share()


class Known(Set[int]):
    """Set of the positions of pairs with known answers, for `resume`; takes a byte per pair."""

    def __init__(self, is_known: NDArray[np.bool_]) -> None:
        """Make the set from a mask of known answers, (n,)."""
        self._is_known = is_known

    def __contains__(self, position: Any) -> bool:
        return position in range(len(self._is_known)) and bool(self._is_known[position])

    def __iter__(self) -> Iterator[int]:
        return (int(position) for position in self._is_known.nonzero()[0])

    def __len__(self) -> int:
        return int(self._is_known.sum())

    def issuperset(self, positions: Iterable[int]) -> bool:
        """Return whether the answers at all of these positions are known."""
        return bool(self._is_known[list(positions)].all())


Positions = frozenset[int] | Known


def unknown_batches(
    pairs: Sequence[Pair],
    known: Positions,
    share: Share,
    *,
    window: int,
    prepare: Callable[[Sequence[Pair], int], Prepared[_Answers]],
    device: str,
) -> Iterator[tuple[list[int], _Answers]]:
    """Yield answers of unknown batches; `prepare` encodes a window of pairs, given its start.

    On the device "cpu" several threads ask: see `on_single_threads`.
    """
    from merge_metric.models.batch_threads import on_single_threads

    starts = range(0, len(pairs), window)
    for number, start in enumerate(starts):
        end = min(start + window, len(pairs))
        if known.issuperset(range(start, end)) or not share.looks_at(number, len(starts)):
            continue
        batches, ask = prepare(pairs[start:end], start)
        asked = [
            batch
            for place, batch in enumerate(batches)
            if share.takes(place, number, len(starts))
            and not known.issuperset([start + i for i in batch])
        ]
        for batch, answers in zip(asked, on_single_threads(ask, asked, device), strict=True):
            yield [start + i for i in batch], answers


def batch_tokens_for(device: str, on_cpu: int = 512, elsewhere: int = 16_384) -> int:
    """Choose the tokens per forward pass by device type; defaults are for language models."""
    return on_cpu if device == "cpu" else elsewhere


def batches_of(
    shapes: Sequence[tuple[int, int]], budget: int, *, mixed: bool, filler: int = 0
) -> list[list[int]]:
    """Group positions of texts into batches of at most `budget` tokens; return them shuffled.

    Texts are given by their shapes: number of tokens, and a second number. Only if `mixed` may a
    batch have several second numbers and any lengths without padding; else the second numbers of
    a batch are equal, and padding to its longest text takes at most `filler` tokens.

    >>> batches_of([(3, 0), (2, 0), (3, 0), (2, 0)], 5, mixed=False)
    [[1, 3], [2], [0]]
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


class PairModel(Protocol):
    """A model that gives label probabilities for pairs of texts."""

    def describe(self) -> dict[str, Any]:
        """Describe everything that determines its answers; JSON-able.

        It has at least `kind`, `name` and `revision`, is written into the predictions file, and
        decides whether a partial run may be continued.
        """

    def probabilities(self, pairs: Sequence[Pair]) -> Answered:
        """Yield batches of positions in `pairs` and probabilities of the labels: (b, 3) of NLI.

        Each position comes once, in the order that is fastest.

        Models may have further members: see `OPTIONAL`.
        """


OPTIONAL: Final[dict[str, Any]] = {
    # Facts about the pairs for the metadata, such as how many were shortened.
    "notes": lambda pairs: {},
    # Facts about the answers yielded since its last call, which are kept beside them.
    "noted": dict,
    # As `probabilities(pairs, known, share)`, without batches outside the share or all in `known`;
    # batches are those of a whole run, so that interrupted runs and shares repeat them bit by bit.
    "resume": None,
    # If false, only labels are known: each has the probability 1, and files have none.
    "has_probabilities": True,
    # Names of `measures`: further numbers about each answer of the last batch, (b, names).
    # Metadata have their means; but `PREDICTION` is the label answered, `NO_LABEL` for none,
    # where it is not the most probable one.
    "measured": (),
    "measures": None,
    # The answers of the last batch in the model's words.
    "texts": None,
    # Times that each seed is asked about again, to measure noise.
    "repeat_seeds": 0,
    # Whether all fields of a problem are asked about, not the first and the joined others.
    "reads_fields": False,
    # Whether answers of another model, or to prompts that were cut, are errors.
    "strict": False,
    # The `Prompt` of a language model, the settings of answers in words, and whether it chats.
    "prompt": None,
    "words": None,
    "chat": False,
}
"""Optional members of a `PairModel` → their defaults."""


def optional(model: PairModel | None, name: str) -> Any:
    """Return a member that models may leave out, or its default."""
    return getattr(model, name, OPTIONAL[name])


def require_probabilities(
    pairs: Sequence[Pair], labels: Sequence[str], answers: NDArray[np.float64], remedy: str = ""
) -> None:
    """Raise ValueError unless answers are probabilities of the labels, (n, n_labels)."""
    import numpy as np

    if np.shape(answers) != (len(pairs), len(labels)):
        raise ValueError(
            f"expected label probabilities of shape {(len(pairs), len(labels))}, "
            f"got {np.shape(answers)}"
        )
    good = np.isfinite(answers).all(axis=1)
    if not good.all():
        premise, hypothesis = pairs[int((~good).argmax())]
        raise ValueError(
            f"expected label probabilities, got {answers[~good][0].tolist()} for the premise "
            f"{premise!r} and hypothesis {hypothesis!r}{remedy and f'; {remedy}'}"
        )


def _option(default: Value, help: str, panel: str | None = None, **more: Any) -> Value:
    return setting(default, help, commands="predict", panel=panel, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A model and its settings as given by a user; None and "" mean not given."""

    model: str
    """Directory, Hub id, .gguf file, or the server's name of the model."""
    kind: Literal["classifier", "lm", "remote"] | None = _option(
        None, "Kind of the model; found out by default."
    )
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
        None, "OpenAI-compatible, e.g. http://localhost:8000/v1.", _SERVER
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
    device: str = _option("auto", "auto, cpu, cuda, cuda:1, mps.", RUNNING)
    dtype: Literal["float32", "bfloat16", "float16"] | None = _option(
        None, "Default: float32; bfloat16 for language models on CUDA.", RUNNING
    )
    """Data type of the weights."""
    batch_tokens: int | None = _option(None, "Tokens in a forward pass.", RUNNING, minimum=1)
