"""Models that answer in words: probabilities are the labels' shares of several answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merge_dataset.redaction import mask_secrets
from merge_metric.models.answer_words import (
    NO_LABEL,
    answer_reader,
    is_mark,
    thinking_begun,
)
from merge_metric.models.pair_model import PREDICTION, WHOLE, Pair, Share, unknown_batches
from merge_metric.models.templates import Prompt

if TYPE_CHECKING:
    from merge_metric.models.checkpoints import Loaded
    from merge_metric.models.pair_model import Answered, ModelRequest, Positions, Prepared

WITHOUT_LABEL: Final = "samples_without_label"

MEASURED: Final = (PREDICTION, WITHOUT_LABEL)

_WINDOW: Final = 1024
_ROWS: Final = 16
_DRAWING: Final = Lock()

_Answers = tuple[NDArray[np.float64], NDArray[np.float64], list[str], dict[str, int]]
"""Shares of the labels, measures, the words, and the numbers of tokens."""


class WrittenAnswer(NamedTuple):
    """An answer in a model's own words."""

    text: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Settings of models that answer in words; they identify a run."""

    max_tokens: int = 1024
    temperature: float = 0.0
    samples: int = 1
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of a server; None removes a setting that is sent by default."""

    @classmethod
    def of(cls, request: ModelRequest) -> Words:
        """Take the settings from a user's request."""
        more: dict[str, Any] = {}
        if request.reasoning_effort:
            more["reasoning_effort"] = request.reasoning_effort
        for text in request.server_settings:
            name, equals, value = text.partition("=")
            if not equals or not name.isidentifier():
                shown = mask_secrets(text)
                raise ValueError(f"server_setting: expected NAME=VALUE, got {shown!r}")
            try:
                more[name] = json.loads(value)
            except ValueError:
                more[name] = value
            if mask_secrets(said := json.dumps({name: more[name]})) != said:
                raise ValueError(
                    f"server_setting: expected no secret, as metadata have all settings, got one "
                    f"with the name {name}; name the environment variable that holds a key with "
                    "`api_key_env`"
                )
        found = cls(
            max_tokens=request.max_answer_tokens,
            temperature=request.temperature,
            samples=request.samples,
            more=more,
        )
        if found.samples > 1 and found.describe()["temperature"] == 0:
            raise ValueError(
                f"samples: expected a temperature above 0 with {found.samples}, got 0, at which "
                "all are meant to be the same"
            )
        if found.samples > 1 and more.get("seed") is not None:
            raise ValueError(
                f"samples: expected no seed with {found.samples}, got {more['seed']}, with which "
                "all are meant to be the same: leave out the server's setting `seed`"
            )
        return found

    def describe(self) -> dict[str, Any]:
        """Return the settings as they stand in the metadata."""
        return {
            "answers": "words",
            "max_answer_tokens": self.max_tokens,
            "temperature": self.more.get("temperature", self.temperature),
            "samples": self.samples,
            **({"server_settings": dict(sorted(self.more.items()))} if self.more else {}),
        }

    def read(
        self, prompt: Prompt, pair: Pair, answers: Sequence[WrittenAnswer]
    ) -> tuple[list[float], list[float], str]:
        """Read the answers to a question: return shares of labels, the measures, the words kept.

        >>> from merge_metric.models.prompts import read_prompt
        >>> said = [*map(WrittenAnswer, ("B", "Neutral.", "A", "Hm."))]
        >>> Words(samples=4).read(read_prompt("none"), ("A dog.", "A cat."), said)[1]
        [1.0, 0.25]
        """
        template = prompt.template
        reader = answer_reader(template.labels, template.named(*pair), prompt.stop)
        codes = [reader.read(said.text, is_cut=said.is_cut) for said in answers]
        counts = np.bincount([c for c in codes if c != NO_LABEL], minlength=len(template.labels))
        kept = "\n———\n".join(reader.kept(said.text, len(answers)) for said in answers)
        lost = codes.count(NO_LABEL) / len(codes)
        if not counts.any():
            n = len(template.labels)
            return [1 / n] * n, [NO_LABEL, lost], kept
        best = np.flatnonzero(counts == counts.max()).tolist()
        if len(best) > 1:  # ties are broken by an order that depends on the question
            texts = {code: "\0".join((*pair, str(code))).encode(errors="replace") for code in best}
            best.sort(key=lambda code: hashlib.sha256(texts[code]).digest())
        return (counts / counts.sum()).tolist(), [float(best[0]), lost], kept

    def read_all(
        self, prompt: Prompt, pairs: Sequence[Pair], answers: Iterable[Sequence[WrittenAnswer]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], list[str]]:
        """Apply `read` to each question: return arrays of shares and measures, and the words."""
        found = [self.read(prompt, *each) for each in zip(pairs, answers, strict=True)]
        shares, measures, texts = zip(*found, strict=True)
        return np.array(shares), np.array(measures), list(texts)


class WritingModel:
    """A causal language model on this machine that answers in words."""

    measured: Final = MEASURED
    reads_fields: Final = True

    def __init__(
        self, loaded: Loaded, *, prompt: Prompt, words: Words, chat_template: bool = False
    ) -> None:
        """Wrap a model that is loaded."""
        if chat_template and not loaded.tokenizer.chat_template:
            raise ValueError(
                f"{loaded.name}: expected a tokenizer with a chat template, got one without: leave "
                "out `chat_template`, or take the model's instruction-tuned version"
            )
        self._loaded, self.prompt, self.words, self.chat = loaded, prompt, words, chat_template
        self.has_probabilities = words.samples > 1
        self.measures: NDArray[np.float64] = np.empty((0, len(MEASURED)))
        self.texts: list[str] = []
        self._n_tokens = {"prompt_tokens": 0, "answer_tokens": 0}

    def describe(self) -> dict[str, Any]:
        """Describe everything that determines the answers."""
        return {
            "kind": "language-model",
            **self._loaded.describe(),
            "chat_template": self.chat,
            **self.prompt.describe(),
            **self.words.describe(),
        }

    def notes(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Return the model's size and the origin of its weights."""
        weights = self._loaded.weights
        size = {"parameters": self._loaded.model.num_parameters()}
        return size | ({"weights": dict(weights)} if weights else {})

    def noted(self) -> dict[str, Any]:
        """Count the tokens of the answers yielded since the last call, and of their prompts."""
        told = dict(self._n_tokens)
        self._n_tokens = dict.fromkeys(told, 0)
        return told

    def probabilities(
        self, pairs: Sequence[Pair], known: Positions = frozenset(), share: Share = WHOLE
    ) -> Answered:
        """Yield shares of the labels (see `PairModel`); draws depend only on the batch."""

        def prepare(some: Sequence[Pair], start: int) -> Prepared[_Answers]:
            prompts = [self._encode(pair) for pair in some]
            order = sorted(range(len(some)), key=lambda row: (len(prompts[row]), row))
            batches = [order[n : n + _ROWS] for n in range(0, len(order), _ROWS)]
            return batches, lambda batch: self._answer(
                [some[i] for i in batch],
                [prompts[i] for i in batch],
                [start + i for i in batch],
            )

        device = str(self._loaded.model.device)
        for positions, (shares, measures, texts, counts) in unknown_batches(
            pairs, known, share, window=_WINDOW, prepare=prepare, device=device
        ):
            self.measures, self.texts = measures, texts
            self._n_tokens = {name: n + counts[name] for name, n in self._n_tokens.items()}
            yield positions, shares

    resume = probabilities

    def _encode(self, pair: Pair) -> list[int]:
        tokenizer = self._loaded.tokenizer
        if self.chat:
            text = tokenizer.apply_chat_template(
                self.prompt.messages(*pair), tokenize=False, add_generation_prompt=True
            )
        else:
            text = self.prompt.text(*pair)
        special = not self.chat and not self.prompt.start
        ids: list[int] = tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        while special and ids and ids[-1] == tokenizer.eos_token_id:
            ids.pop()
        config = self._loaded.model.config.get_text_config()
        most = getattr(config, "max_position_embeddings", None)
        if most and len(ids) + self.words.max_tokens > most:
            raise ValueError(
                f"{self._loaded.name}: expected prompts and answers of at most {most} tokens, the "
                f"model's context, got a prompt of {len(ids)} and `max_answer_tokens` "
                f"{self.words.max_tokens}: allow fewer tokens, or give fewer examples with `shots`"
            )
        return ids

    def _answer(
        self, pairs: Sequence[Pair], prompts: Sequence[list[int]], positions: Sequence[int]
    ) -> _Answers:
        counts = dict.fromkeys(self._n_tokens, 0)
        said = [self._write(prompts, (n, positions), counts) for n in range(self.words.samples)]
        return *self.words.read_all(self.prompt, pairs, zip(*said, strict=True)), counts

    def _write(
        self,
        prompts: Sequence[list[int]],
        draw: tuple[int, Sequence[int]],
        counts: dict[str, int],
    ) -> list[WrittenAnswer]:
        """Generate an answer per prompt of a batch; `draw` (sample, positions) is the seed.

        The numbers of tokens are added to `counts`.
        """
        import torch

        model, tokenizer = self._loaded.model, self._loaded.tokenizer
        width = max(map(len, prompts))
        end = model.generation_config.eos_token_id or tokenizer.eos_token_id
        ends = {end} if isinstance(end, int) else {*(end or ())}
        pad = tokenizer.pad_token_id
        pad = min(ends, default=0) if pad is None else pad
        rows = torch.tensor([[pad] * (width - len(ids)) + ids for ids in prompts])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
        # Draws depend on the batch, its positions and the number of the sample, not on earlier
        # draws; so a question that is asked again gets other draws.
        key = hashlib.sha256(repr((draw, prompts)).encode()).digest()
        sampling: dict[str, Any] = {"do_sample": False, "temperature": None}
        if self.words.temperature:
            sampling = {"do_sample": True, "temperature": self.words.temperature}
        # All threads draw from one source of random numbers, so they must draw in turn.
        with torch.inference_mode(), _DRAWING if self.words.temperature else nullcontext():
            if self.words.temperature:
                torch.manual_seed(int.from_bytes(key[:7]))
            written = model.generate(
                input_ids=rows.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=self.words.max_tokens,
                pad_token_id=pad,
                top_k=None,
                top_p=None,
                stop_strings=None if self.chat else [self.prompt.stop],
                tokenizer=tokenizer,
                **sampling,
            )[:, width:].tolist()
        found = []
        # Only the special tokens that mark the end of the thinking or of a turn are kept.
        silent = {
            number
            for number, token in tokenizer.added_tokens_decoder.items()
            if token.special and not is_mark(token.content)
        }
        for ids, answer in zip(prompts, written, strict=True):
            length = next((n for n, token in enumerate(answer) if token in ends), None)
            text = tokenizer.decode([token for token in answer[:length] if token not in silent])
            n_tokens = len(answer) if length is None else length
            is_cut = length is None and n_tokens >= self.words.max_tokens
            # Chat templates may begin the thinking; then the text written has only its end.
            begun = thinking_begun(tokenizer.decode(ids)) if self.chat else ""
            found.append(WrittenAnswer(begun + text, is_cut))
            counts["prompt_tokens"] += len(ids)
            counts["answer_tokens"] += n_tokens
        return found
