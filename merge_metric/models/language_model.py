"""Causal language models as NLI models, asked by letters (paper, A.4.1) or in words.

By letters, the answer is the next token. In words, it is read from what the model writes;
probabilities are the labels' shares of several answers.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.redaction import mask_secrets
from merge_metric.models.answer_words import MARK, NO_LABEL, thinking_begun
from merge_metric.models.checkpoints import Loaded
from merge_metric.models.pair_model import Answers, Description, Pair, batched, batches_of
from merge_metric.models.prompts import PromptTokens, common_prefix, encoded, written_prompts
from merge_metric.models.templates import Prompt

if TYPE_CHECKING:
    from merge_metric.models.fast_layers import PrefixCache
    from merge_metric.models.pair_model import ModelRequest, Prepared

TOLERANCE: Final = 1e-4
"""Largest allowed difference of float32 probabilities with and without the prefix cache."""
_TOLERANCE_HALF: Final = 0.05
"""Largest allowed one in 16-bit formats, whose rounding moves a probability by hundredths."""

_BLOCK, _WORDS_BLOCK = 4096, 1024
"""Pairs that are tokenised and sorted by length together, for letters and for words."""
_ROWS: Final = 16
"""Pairs in a batch on an accelerator where answers are in words."""
_FILLER: Final = 2048
"""Most padding tokens of a batch; none on a CPU, where they would change other prompts' bits."""
_BYTES: Final = 2**29
"""Most bytes for a batch's keys and values in one layer, and for its logits."""


log = logging.getLogger(__name__)

_Result = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Probabilities of labels or letters, (rows, labels), and the letter mass, (rows,)."""


def asked_by(
    prompt: Prompt, words: Words | None, identity: Mapping[str, Any], **more: Any
) -> Description:
    """Describe a language model, given its own part of the identity."""
    of_words = words.describe() if words else {}
    return Description(
        identity={**identity, **prompt.describe(), **of_words},
        prompt=prompt,
        samples=words.samples if words else 1,
        answer_tokens=words.most_tokens if words else 1,
        **more,
    )


def of_labels(
    prompt: Prompt, pairs: Sequence[Pair], of_letters: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Turn columns of the letters of problems' choices, (n, letters), into columns of labels."""
    if prompt.template.shuffle is None:
        return of_letters
    orders = np.array([prompt.template.order(*pair) for pair in pairs])
    return np.take_along_axis(of_letters, orders.argsort(axis=1), axis=1)


def require_room(
    name: str, prompts: Sequence[list[int]], pairs: Sequence[Pair], answer: int, most: float
) -> None:
    """Raise ValueError if a prompt and an answer of so many tokens exceed a model's context."""
    size, (premise, *_) = max((len(ids), pair) for ids, pair in zip(prompts, pairs, strict=True))
    if size + answer > most:
        raise ValueError(
            f"{name}: expected prompts and answers of at most {most} tokens, the model's context, "
            f"got a prompt of {size} for the premise {premise[:80]!r} and `max_answer_tokens` "
            f"{answer}: give fewer or shorter examples with `shots`, or allow fewer tokens"
        )


class LanguageModel:
    """A causal LM that answers multiple-choice questions by a letter."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        prompt: Prompt,
        chat_template: bool = False,
        prefix_cache: bool = True,
        batch_tokens: int | None = None,
    ) -> None:
        """Wrap a live `*ForCausalLM`, which `PromptTokens` can ask.

        `prefix_cache` computes the keys and values of the few-shot examples once; `batch_tokens`
        are the most tokens in a forward pass, the cached ones not counted.
        """
        from merge_metric.models.fast_layers import keeps_apart, tokens_for

        model, tokenizer, self.name, _, self.weights = loaded
        self.prompt, self._loaded = prompt, loaded
        self._model: Any = model.eval()
        self._tokens = PromptTokens(tokenizer, prompt, chat=chat_template)
        self._chat, self._asked_for_cache = chat_template, prefix_cache
        self._cache: PrefixCache | None = None
        self._decided = not prefix_cache
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._max_tokens = int(positions or tokenizer.model_max_length)
        # whether the head can be computed at only some positions
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._budget = (batch_tokens or tokens_for(model)) if keeps_apart(model) else 1
        self._filler = 0 if model.device.type == "cpu" else _FILLER

    def describe(self) -> Description:
        """Describe the model, its prompt and its size."""
        identity = {
            "kind": "language-model",
            **self._loaded.describe(),
            "attention": getattr(self._model.config, "_attn_implementation", None),
            "chat_template": self._chat,
            "prefix_cache": self._asked_for_cache,
        }
        facts = self._loaded.facts()
        return asked_by(self.prompt, None, identity, facts=facts, chat=self._chat)

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield probabilities of the labels, and of any letter at all, as `letter_mass`.

        A letter's probability is that of its token, with and without a space before it,
        among the letters' tokens. On a CPU it does not depend on what else is asked, not even by
        rounding. The prefix cache changes probabilities by rounding only
        (`TOLERANCE`): the longest prompt is run with and without it first, and a model that
        differs by more runs without the cache, with a warning.

        Raises:
            ValueError: a prompt is longer than the model's context.
        """
        if not questions:
            return
        self._prepare(questions)
        vocabulary = self._model.config.get_text_config().vocab_size
        layer_bytes = self._cache.layer_bytes if self._cache else 0

        def prepare(some: Sequence[Pair], start: int) -> Prepared[_Result]:
            prompts = self._encode(some)
            prefix = self._tokens.shared if self._cache else []
            # At least one token must be left to run; nearly all prompts have the whole prefix.
            shared = [min(len(common_prefix([prefix, ids])), len(ids) - 1) for ids in prompts]
            shapes = [(len(ids) - n, n) for n, ids in zip(shared, prompts, strict=True)]
            batches = list[list[int]]()
            for batch in batches_of(shapes, self._budget, mixed=False, filler=self._filler):
                (shortest, _), (longest, of_cache) = shapes[batch[0]], shapes[batch[-1]]
                kept = longest - shortest + 1 if self._keeps_logits else longest
                row_bytes = max((of_cache + longest) * layer_bytes, kept * vocabulary * 4)
                rows = max(1, _BYTES // row_bytes)
                batches += [batch[n : n + rows] for n in range(0, len(batch), rows)]

            def ask(batch: list[int]) -> _Result:
                letters, mass = self._run([prompts[i] for i in batch], shared[batch[0]])
                return of_labels(self.prompt, [some[i] for i in batch], letters), mass

            return batches, ask

        notes = {"prefix_cached_tokens": self._cache.length if self._cache else 0}
        device = self._model.device.type
        for positions, (probabilities, mass) in batched(
            questions, block=_BLOCK, prepare=prepare, device=device
        ):
            yield Answers.of(positions, probabilities, numbers={"letter_mass": mass}, notes=notes)

    def _prepare(self, pairs: Sequence[Pair]) -> None:
        """Check the length of all prompts before any work, and decide on the prefix cache."""
        long = nlargest(16, pairs, key=lambda pair: len(pair[0]) + len(pair[1]))
        longest = max(self._encode(long), key=len)
        if self._decided or not self._tokens.shared:
            return
        self._decided = True
        from merge_metric.models.fast_layers import PrefixCache, on_single_threads, unsupported

        def difference_of(longest: list[int]) -> float:
            reference, _ = self._run([longest], 0)
            self._cache = PrefixCache(self._model, [self._tokens.shared])
            shared = len(common_prefix([self._tokens.shared, longest[:-1]]))
            return float(abs(self._run([longest], shared)[0] - reference).max())

        limit = TOLERANCE if self._loaded.describe()["dtype"] == "float32" else _TOLERANCE_HALF
        if not (reason := unsupported(self._model)):
            (apart,) = on_single_threads(difference_of, [longest], self._model.device.type)
            if not apart <= limit:
                reason = (
                    "with it, probabilities of the longest prompt differ by "
                    f"{apart:.2g}, and at most {limit:.2g} was expected"
                )
        if reason:
            self._cache = None
            log.warning("%s: running without the prefix cache: %s", self.name, reason)

    def _encode(self, pairs: Sequence[Pair]) -> list[list[int]]:
        prompts = self._tokens.encode(pairs)
        require_room(self.name, prompts, pairs, 0, self._max_tokens)
        return prompts

    def _run(self, prompts: Sequence[Sequence[int]], shared: int) -> _Result:
        """Run the tokens after the first `shared`, padded at the end."""
        import torch

        last, width = [len(ids) - shared - 1 for ids in prompts], max(map(len, prompts))
        rows = [[*ids[shared:], *[ids[-1]] * (width - len(ids))] for ids in prompts]
        kept = sorted(set(last)) * (2 if len(rows) == 1 else 1)  # see `keeps_apart`
        device = self._model.device
        arguments: dict[str, Any] = {"use_cache": False}
        if shared and self._cache is not None:
            arguments = {"past_key_values": self._cache.first(shared), "use_cache": True}
        if self._keeps_logits:
            arguments["logits_to_keep"] = torch.tensor(kept, device=device)
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor(rows, device=device), **arguments).logits
            columns = [kept.index(i) for i in last] if self._keeps_logits else last
            final = logits[torch.arange(len(rows)), columns].float()
            letters = torch.tensor(self._tokens.letters, device=device)
            log_probs = (
                (final - final.logsumexp(-1, keepdim=True))[:, letters].logsumexp(1).double()
            )
        mass = log_probs.exp().sum(-1)
        return log_probs.softmax(-1).cpu().numpy(), mass.cpu().numpy()


# --- Answers in words ---

Written = tuple[str, bool]
"""An answer in a model's own words, and whether it was cut."""


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
        effort = request.reasoning_effort
        more: dict[str, Any] = {"reasoning_effort": effort} if effort else {}
        for text in request.server_settings:
            name, _, value = text.partition("=")
            more[name] = value
            with suppress(ValueError):
                more[name] = json.loads(value)
            shown = json.dumps({name: more[name]})
            if "=" not in text or not name.isidentifier() or mask_secrets(shown) != shown:
                raise ValueError(
                    "server_setting: expected NAME=VALUE and no secret, as metadata have all "
                    f"settings, got {mask_secrets(text) if '=' not in text else name!r}; name the "
                    "environment variable that holds a key with `api_key_env`"
                )
        samples, heat = request.samples, more.get("temperature", request.temperature)
        most, seed = request.max_requests, more.get("seed")
        for is_refused, words in (
            (samples > (most or math.inf), f"at least as many `max_requests`, got {most}"),
            (samples > 1 and heat == 0, "a temperature above 0, got 0"),
            (samples > 1 and seed is not None, f"no seed among the server's settings, got {seed}"),
        ):
            if is_refused:
                raise ValueError(f"samples: expected with {samples} {words}")
        tokens, heat = request.max_answer_tokens, request.temperature
        return cls(max_tokens=tokens, temperature=heat, samples=samples, more=more)

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
        self, prompt: Prompt, pair: Pair, answers: Sequence[Written]
    ) -> tuple[list[float], int, float, str]:
        """Return shares of the labels, the one that counts, the share without, the words kept.

        >>> from merge_metric.models.prompts import read_prompt
        >>> written = [(text, False) for text in ("B", "Neutral.", "A", "Hm.")]
        >>> Words(samples=4).read(read_prompt("none"), ("A dog.", "A cat."), written)[1:3]
        (1, 0.25)
        """
        reader, labels = prompt.reader(*pair)
        codes = [labels[reader.read(text, is_cut=is_cut)] for text, is_cut in answers]
        n, lost = len(prompt.template.labels), codes.count(NO_LABEL) / len(codes)
        counts = np.bincount([c for c in codes if c != NO_LABEL], minlength=n)
        kept = "\n———\n".join(reader.kept(text, len(answers)) for text, _ in answers)
        if not counts.any():
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
        written: Iterable[Sequence[Written]],
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
            numbers={"samples_without_label": np.array(lost, np.float64)},
            **more,
        )


def keyed_draws(keys: Sequence[bytes], temperature: float, device: Any) -> Callable[..., Any]:
    """Make random draws of next tokens, of which each row has its own, whatever the others are.

    The largest of log-probabilities with independent noise of Gumbel's distribution is a draw from
    the probabilities (Maddison et al. 2014); so greedy search over `scores` with noise samples.
    """
    import torch

    seeds = [int.from_bytes(hashlib.sha256(key).digest()[:7]) for key in keys]
    sources = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def with_noise(input_ids: Any, scores: Any) -> Any:
        noise = torch.empty_like(scores, dtype=torch.float32)
        for row, source in zip(noise, sources, strict=True):
            row.exponential_(generator=source)
        return scores / temperature - noise.log()

    return with_noise


class WritingModel:
    """A causal language model on this machine that answers in words."""

    def __init__(
        self, loaded: Loaded, *, prompt: Prompt, words: Words, chat_template: bool = False
    ) -> None:
        """Wrap a live `*ForCausalLM`."""
        self._loaded, self.prompt, self.words, self.chat = loaded, prompt, words, chat_template

    def describe(self) -> Description:
        """Describe the model, its prompt and settings, and its size."""
        own = {"kind": "language-model", **self._loaded.describe(), "chat_template": self.chat}
        facts = self._loaded.facts()
        return asked_by(self.prompt, self.words, own, facts=facts, chat=self.chat)

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield labels read from words, and numbers of tokens."""
        device = self._loaded.model.device.type
        size = 1 if device == "cpu" else _ROWS  # there, answers must not depend on others

        def prepare(some: Sequence[Pair], start: int) -> Prepared[Answers]:
            prompts = self._encode(some)
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

        batches = batched(questions, block=_WORDS_BLOCK, prepare=prepare, device=device)
        yield from (answers for _, answers in batches)

    def _encode(self, pairs: Sequence[Pair]) -> list[list[int]]:
        tokenizer = self._loaded.tokenizer
        texts = written_prompts(tokenizer, self.prompt, pairs, chat=self.chat)
        rows = encoded(tokenizer, texts, special=not self.chat and not self.prompt.start)
        config = self._loaded.model.config.get_text_config()
        most = getattr(config, "max_position_embeddings", None) or math.inf
        require_room(self._loaded.name, rows, pairs, self.words.max_tokens, most)
        return rows

    def _write(
        self, prompts: Sequence[list[int]], draw: tuple[int, int], counts: dict[str, int]
    ) -> list[Written]:
        import torch

        model, tokenizer = self._loaded.model, self._loaded.tokenizer
        width, pad = max(map(len, prompts)), tokenizer.pad_token_id
        end = model.generation_config.eos_token_id or tokenizer.eos_token_id
        ends = {end} if isinstance(end, int) else {*(end or ())}
        pad = min(ends, default=0) if pad is None else pad
        rows = torch.tensor([[pad] * (width - len(ids)) + ids for ids in prompts])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
        draws = []
        if self.words.temperature:
            keys = [repr((draw, prompt)).encode() for prompt in prompts]
            draws = [keyed_draws(keys, self.words.temperature, model.device)]
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
        special = ((n, t.content) for n, t in tokenizer.added_tokens_decoder.items() if t.special)
        silent = {number for number, text in special if not MARK.fullmatch(text)}
        for ids, answer in zip(prompts, written, strict=True):
            length = next((n for n, token in enumerate(answer) if token in ends), None)
            text = tokenizer.decode([token for token in answer[:length] if token not in silent])
            n_tokens = len(answer) if length is None else length
            is_cut = length is None and n_tokens >= self.words.max_tokens
            # Chat templates may begin the thinking; then the text written has only its end.
            begun = thinking_begun(tokenizer.decode(ids)) if self.chat else ""
            answers.append((begun + text, is_cut))
            counts["prompt_tokens"] += len(ids)
            counts["answer_tokens"] += n_tokens
        return answers
