"""Causal language models as NLI models: the answer letter is the next token (paper, A.4.1)."""

from __future__ import annotations

import inspect
import logging
import random
from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_metric.models.checkpoints import Loaded
from merge_metric.models.pair_model import Answers, Description, batch_tokens_for, batched
from merge_metric.models.prompts import PromptTokens, common_prefix
from merge_metric.models.templates import Prompt

if TYPE_CHECKING:
    from merge_metric.models.fast_layers import PrefixCache
    from merge_metric.models.pair_model import Pair, Prepared

TOLERANCE: Final = 1e-4
"""Largest allowed difference of float32 probabilities with and without the prefix cache."""
_TOLERANCE_HALF: Final = 0.05
"""Largest allowed one in 16-bit formats, whose rounding moves a probability by hundredths."""

_WINDOW: Final = 4096
"""Pairs that are tokenised and sorted by length together."""
_PADDING: Final = 0.125
"""Largest share of padding in a batch; none on a CPU, where it would change other prompts' bits."""
_BYTES: Final = 2**29
"""Most bytes for a batch's keys and values in one layer, and for its logits."""

LETTER_MASS: Final = "letter_mass"
"""Name of the number: the probability that the next token is any of the letters."""
_FEW: Final = 0.1
"""Letter mass below which a model hardly answers in letters."""

log = logging.getLogger(__name__)

_Result = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Probabilities of the labels, (rows, labels), and the letter mass, (rows,)."""


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
        """Wrap a live `*ForCausalLM`.

        Args:
            loaded: The model, as `checkpoints.load` gives it.
            prompt: What it is asked.
            chat_template: Ask in the tokenizer's chat template.
            prefix_cache: Compute the keys and values of the few-shot examples once.
            batch_tokens: Most tokens in a forward pass, the cached ones not counted.

        Raises:
            ValueError: see `PromptTokens`.
        """
        from merge_metric.models.fast_layers import keeps_apart

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
        self._budget = batch_tokens or batch_tokens_for(model.device.type)
        self._keeps_apart = keeps_apart(model)
        self._padding = 0 if model.device.type == "cpu" else _PADDING

    def describe(self) -> Description:
        """Describe the model, its prompt and its size."""
        return Description(
            identity={
                "kind": "language-model",
                **self._loaded.describe(),
                "attention": getattr(self._model.config, "_attn_implementation", None),
                "chat_template": self._chat,
                "prefix_cache": self._asked_for_cache,
                **self.prompt.describe(),
            },
            facts={
                "parameters": self._model.num_parameters(),
                **({"weights": self.weights} if self.weights else {}),
            },
            prompt=self.prompt,
            chat=self._chat,
        )

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield probabilities of the labels, and the probability of any letter.

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

        def prepare(some: Sequence[Pair], start: int) -> Prepared[_Result]:
            prompts = self._encode(some)
            prefix = self._tokens.shared if self._cache else []
            # At least one token must be left to run; nearly all prompts have the whole prefix.
            shared = [min(len(common_prefix([prefix, ids])), len(ids) - 1) for ids in prompts]
            shapes = [(n, len(ids) - n) for n, ids in zip(shared, prompts, strict=True)]
            batches = self._batches(shapes)
            return batches, lambda batch: self._run([prompts[i] for i in batch], shared[batch[0]])

        notes = {"prefix_cached_tokens": self._cache.length if self._cache else 0}
        device = self._model.device.type
        for positions, (probabilities, mass) in batched(
            questions, window=_WINDOW, prepare=prepare, device=device
        ):
            yield Answers.of(positions, probabilities, numbers={LETTER_MASS: mass}, notes=notes)

    def _prepare(self, pairs: Sequence[Pair]) -> None:
        """Check the length of all prompts before any work, and decide on the prefix cache."""
        long = nlargest(16, pairs, key=lambda pair: len(pair[0]) + len(pair[1]))
        longest = max(self._encode(long), key=len)
        if self._decided or not self._tokens.shared:
            return
        self._decided = True
        from merge_metric.models.fast_layers import PrefixCache, on_single_threads, unsupported

        if reason := unsupported(self._model):
            log.warning("%s: running without the prefix cache: %s", self.name, reason)
            return

        def difference_of(longest: list[int]) -> float:
            reference, _ = self._run([longest], 0)
            self._cache = PrefixCache(self._model, self._tokens.shared)
            shared = len(common_prefix([self._tokens.shared, longest[:-1]]))
            return float(abs(self._run([longest], shared)[0] - reference).max())

        (difference,) = on_single_threads(difference_of, [longest], self._model.device.type)
        limit = TOLERANCE if self._loaded.describe()["dtype"] == "float32" else _TOLERANCE_HALF
        if not difference <= limit:
            self._cache = None
            log.warning(
                "%s: running without the prefix cache: with it, probabilities of the longest "
                "prompt differ by %.2g, and at most %.2g was expected",
                self.name,
                difference,
                limit,
            )

    def _encode(self, pairs: Sequence[Pair]) -> list[list[int]]:
        prompts = self._tokens.encode(pairs)
        lengths = [len(ids) for ids in prompts]
        longest = max(range(len(pairs)), key=lengths.__getitem__)
        if lengths[longest] > self._max_tokens:
            raise ValueError(
                f"{self.name}: expected prompts of at most {self._max_tokens} tokens, the "
                f"model's context, got {lengths[longest]} for the premise "
                f"{pairs[longest][0][:80]!r}: give fewer or shorter examples with `shots`"
            )
        return prompts

    def _batches(self, shapes: Sequence[tuple[int, int]]) -> list[list[int]]:
        """Group rows by length, shared and own; shuffle batches so that progress is even."""
        batches: list[list[int]] = []
        batch: list[int] = []
        for row in sorted(range(len(shapes)), key=lambda row: (shapes[row], row)):
            if batch and not self._fits([shapes[i] for i in (*batch, row)]):
                batches.append(batch)
                batch = []
            batch.append(row)
        batches.append(batch)
        random.Random(0).shuffle(batches)
        return batches

    def _fits(self, shapes: Sequence[tuple[int, int]]) -> bool:
        """Return whether rows of these lengths, shortest first, may share a forward pass."""
        lengths = [length for _, length in shapes]
        rows, (shared, longest) = len(shapes), shapes[-1]
        if shapes[0][0] != shared or not self._keeps_apart:
            return False
        tokens = rows * longest
        states = rows * (shared + longest) * (self._cache.layer_bytes if self._cache else 0)
        kept = longest - lengths[0] + 1 if self._keeps_logits else longest
        logits = rows * kept * self._model.config.get_text_config().vocab_size * 4
        padding = tokens - sum(lengths)
        return (
            tokens <= self._budget
            and padding <= self._padding * tokens
            and max(states, logits) <= _BYTES
        )

    def _run(self, prompts: Sequence[Sequence[int]], shared: int) -> _Result:
        """Run the tokens after the first `shared`, padded at the end."""
        import torch

        last = [len(ids) - shared - 1 for ids in prompts]
        width = max(last) + 1
        rows = [[*ids[shared:], *[ids[-1]] * (width + shared - len(ids))] for ids in prompts]
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


def warn_of_few_letters(name: str, letter_mass: float) -> None:
    """Warn if a model hardly answers in letters: their mean probability as next token is low."""
    if letter_mass < _FEW:
        log.warning(
            "%s: the next token is an answer letter with a mean probability of only %.1f %%: its "
            "answers may mean little; try `chat_template` or more examples",
            name,
            100 * letter_mass,
        )
