"""Models that answer in words: probabilities are the labels' shares of several answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from merge_dataset.redaction import mask_secrets
from merge_metric.models.answer_words import (
    NO_LABEL,
    answer_reader,
    is_mark,
    thinking_begun,
)
from merge_metric.models.pair_model import Answers, Description, Pair, batched
from merge_metric.models.templates import Prompt

if TYPE_CHECKING:
    from merge_metric.models.checkpoints import Loaded
    from merge_metric.models.pair_model import ModelRequest, Prepared

WITHOUT_LABEL: Final = "samples_without_label"
"""Name of the number: the share of a question's answers that name no label."""

_WINDOW: Final = 1024
_ROWS: Final = 16
"""Questions in a batch on an accelerator; on a CPU, answers must not depend on others."""


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
            if mask_secrets(shown := json.dumps({name: more[name]})) != shown:
                raise ValueError(
                    f"server_setting: expected no secret, as metadata have all settings, got one "
                    f"with the name {name}; name the environment variable that holds a key with "
                    "`api_key_env`"
                )
        words = cls(
            max_tokens=request.max_answer_tokens,
            temperature=request.temperature,
            samples=request.samples,
            more=more,
        )
        if words.samples > 1 and words.describe()["temperature"] == 0:
            raise ValueError(
                f"samples: expected a temperature above 0 with {words.samples}, got 0, at which "
                "all are meant to be the same"
            )
        if words.samples > 1 and more.get("seed") is not None:
            raise ValueError(
                f"samples: expected no seed with {words.samples}, got {more['seed']}, with which "
                "all are meant to be the same: leave out the server's setting `seed`"
            )
        return words

    def describe(self) -> dict[str, Any]:
        """Return the settings as they stand in the metadata."""
        return {
            "answers": "words",
            "max_answer_tokens": self.max_tokens,
            "temperature": self.more.get("temperature", self.temperature),
            "samples": self.samples,
            **({"server_settings": dict(sorted(self.more.items()))} if self.more else {}),
        }

    @property
    def most_tokens(self) -> int | None:
        """Most tokens of an answer; further settings of a server override, as in requests."""
        sent = {"max_tokens": self.max_tokens} | dict(self.more)
        limits = (sent.get(name) for name in ("max_tokens", "max_completion_tokens"))
        return max((limit for limit in limits if type(limit) is int), default=None)

    def read(
        self, prompt: Prompt, pair: Pair, answers: Sequence[WrittenAnswer]
    ) -> tuple[list[float], int, float, str]:
        """Read the answers to a question.

        Returns shares of the labels, the label that counts, the share without one, the words kept.

        >>> from merge_metric.models.prompts import read_prompt
        >>> written = [*map(WrittenAnswer, ("B", "Neutral.", "A", "Hm."))]
        >>> Words(samples=4).read(read_prompt("none"), ("A dog.", "A cat."), written)[1:3]
        (1, 0.25)
        """
        template = prompt.template
        reader = answer_reader(template.labels, template.named(*pair), prompt.stop)
        codes = [reader.read(answer.text, is_cut=answer.is_cut) for answer in answers]
        counts = np.bincount([c for c in codes if c != NO_LABEL], minlength=len(template.labels))
        kept = "\n———\n".join(reader.kept(answer.text, len(answers)) for answer in answers)
        lost = codes.count(NO_LABEL) / len(codes)
        if not counts.any():
            n = len(template.labels)
            return [1 / n] * n, NO_LABEL, lost, kept
        best = np.flatnonzero(counts == counts.max()).tolist()
        if len(best) > 1:  # ties are broken by an order that depends on the question
            texts = {code: "\0".join((*pair, str(code))).encode(errors="replace") for code in best}
            best.sort(key=lambda code: hashlib.sha256(texts[code]).digest())
        return (counts / counts.sum()).tolist(), int(best[0]), lost, kept

    def answers(
        self,
        prompt: Prompt,
        questions: Sequence[Pair],
        positions: list[int],
        written: Iterable[Sequence[WrittenAnswer]],
        **more: Any,
    ) -> Answers:
        """Apply `read` to what was written about each question, of which `positions` are given."""
        read = [self.read(prompt, *question) for question in zip(questions, written, strict=True)]
        shares, labels, lost, texts = zip(*read, strict=True)
        return Answers(
            positions=positions,
            labels=np.array(labels, np.int64),
            probabilities=np.array(shares) if self.samples > 1 else None,
            texts=list(texts),
            numbers={WITHOUT_LABEL: np.array(lost, np.float64)},
            **more,
        )


class KeyedDraws:
    """Random draws of next tokens, of which each row has its own, whatever the other rows are.

    The largest of log-probabilities with independent noise of Gumbel's distribution is a draw from
    the probabilities (Maddison et al. 2014); so greedy search over `scores` with noise samples.
    """

    def __init__(self, keys: Sequence[bytes], temperature: float, device: Any) -> None:
        """Make a source of random numbers for each row of a batch from its key."""
        import torch

        self._temperature = temperature
        self._sources = [torch.Generator(device) for _ in keys]
        for source, key in zip(self._sources, keys, strict=True):
            source.manual_seed(int.from_bytes(hashlib.sha256(key).digest()[:7]))

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Add noise to the scores of next tokens, [rows, tokens]."""
        import torch

        noise = torch.empty_like(scores, dtype=torch.float32)
        for row, source in zip(noise, self._sources, strict=True):
            row.exponential_(generator=source)
        return scores / self._temperature - noise.log()


class WritingModel:
    """A causal language model on this machine that answers in words."""

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

    def describe(self) -> Description:
        """Describe the model, its prompt and settings, and its size."""
        weights = self._loaded.weights
        return Description(
            identity={
                "kind": "language-model",
                **self._loaded.describe(),
                "chat_template": self.chat,
                **self.prompt.describe(),
                **self.words.describe(),
            },
            facts={
                "parameters": self._loaded.model.num_parameters(),
                **({"weights": dict(weights)} if weights else {}),
            },
            prompt=self.prompt,
            chat=self.chat,
            samples=self.words.samples,
            answer_tokens=self.words.most_tokens,
        )

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield labels read from words, and numbers of tokens."""
        device = self._loaded.model.device.type
        size = 1 if device == "cpu" else _ROWS

        def prepare(some: Sequence[Pair], start: int) -> Prepared[Answers]:
            prompts = [self._encode(pair) for pair in some]
            order = sorted(range(len(some)), key=lambda row: (len(prompts[row]), row))
            batches = [order[n : n + size] for n in range(0, len(order), size)]

            def ask(batch: list[int]) -> Answers:
                positions, rows = [start + i for i in batch], [prompts[i] for i in batch]
                counts = {"prompt_tokens": 0, "answer_tokens": 0}
                samples = range(self.words.samples)
                written = [self._write(rows, (sample, repeat), counts) for sample in samples]
                mine = [some[i] for i in batch]
                by_question = zip(*written, strict=True)
                return self.words.answers(self.prompt, mine, positions, by_question, counts=counts)

            return batches, ask

        batches = batched(questions, window=_WINDOW, prepare=prepare, device=device)
        yield from (answers for _, answers in batches)

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

    def _write(
        self,
        prompts: Sequence[list[int]],
        draw: tuple[int, int],
        counts: dict[str, int],
    ) -> list[WrittenAnswer]:
        import torch

        model, tokenizer = self._loaded.model, self._loaded.tokenizer
        width = max(map(len, prompts))
        end = model.generation_config.eos_token_id or tokenizer.eos_token_id
        ends = {end} if isinstance(end, int) else {*(end or ())}
        pad = tokenizer.pad_token_id
        pad = min(ends, default=0) if pad is None else pad
        rows = torch.tensor([[pad] * (width - len(ids)) + ids for ids in prompts])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
        draws = []
        if self.words.temperature:
            keys = [repr((draw, prompt)).encode() for prompt in prompts]
            draws = [KeyedDraws(keys, self.words.temperature, model.device)]
        with torch.inference_mode():
            written = model.generate(
                input_ids=rows.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=self.words.max_tokens,
                pad_token_id=pad,
                do_sample=False,
                temperature=None,
                top_k=None,
                top_p=None,
                logits_processor=draws,
                stop_strings=None if self.chat else [self.prompt.stop],
                tokenizer=tokenizer,
            )[:, width:].tolist()
        answers = []
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
            answers.append(WrittenAnswer(begun + text, is_cut))
            counts["prompt_tokens"] += len(ids)
            counts["answer_tokens"] += n_tokens
        return answers
