"""Text generators: encoder-decoders and causal LMs of transformers that rewrite hypotheses.

A model's own generation settings are not used, except the tokens that begin and end a text. A
prompt is encoded once per request, and its beams share the result.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence
from transformers.modeling_outputs import BaseModelOutput

from generation.paraphrases.config import ParaphraseConfig
from generation.paraphrases.rounds import Candidate, ParaphraseRequest
from merge_metric.models.checkpoints import Loaded
from merge_metric.models.pair_model import Description

_DATE: Final = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}{{ '' }}"
"""Macro put before chat templates that use the date, so that prompts are the same every day."""


class Generator:
    """A `TextGenerator` that runs a model of transformers."""

    batch_size: int

    def __init__(self, loaded: Loaded, config: ParaphraseConfig) -> None:
        """Wrap a loaded model; a causal one without a chat template answers on a new line."""
        model, tokenizer, name, *_ = loaded
        self.name = name
        self.model: Any = model.eval()
        self.device = str(model.device.type)
        self._tokenizer, self._config, self._loaded = tokenizer, config, loaded
        self.encodes = bool(model.config.is_encoder_decoder)
        self._chat = bool(getattr(tokenizer, "chat_template", None))
        declared = getattr(model.generation_config, "eos_token_id", None)
        ids = declared if isinstance(declared, list) else [declared]
        self._eos = {i for i in (*ids, tokenizer.eos_token_id) if i is not None}
        # Special tokens are not text. In a causal model all of them end a text: chat models have
        # one for the end of a turn, under various names. In a decoder others serve other tasks
        # (T5's `<extra_id_0>`), and only its end token ends a text. Ids that the tokenizer does
        # not know, which fill up vocabularies to round sizes, are not text either.
        vocabulary = range(model.config.get_text_config().vocab_size)
        added = tokenizer.added_tokens_decoder.items()
        special = {i for i, token in added if token.special} & set(vocabulary)
        ends = self._eos & set(vocabulary)
        if not self.encodes:
            ends |= special
            if not self._chat:
                known = vocabulary[: len(tokenizer)]
                texts = tokenizer.batch_decode([[i] for i in known])
                ends |= {i for i, text in zip(known, texts, strict=True) if "\n" in text}
        never = ends | special | set(vocabulary[len(tokenizer) :])
        configs = (model.generation_config, model.config)
        first, forced = (
            next((i for c in configs if (i := getattr(c, key, None)) is not None), None)
            for key in ("decoder_start_token_id", "forced_bos_token_id")
        )
        if not ends or (self.encodes and first is None):
            raise ValueError(
                f"{name}: expected in generation_config.json an eos_token_id and, with an encoder, "
                f"a decoder_start_token_id, found {sorted(ends) or None} and {first}: set them"
            )
        # A start token, and in some models a forced second token.
        self.start = tuple(i for i in (first, forced) if i is not None and self.encodes)
        """First tokens of a decoder; none for a causal model, which continues the prompt."""
        self.ends, self.never = tuple(sorted(ends)), tuple(sorted(never))
        """Tokens that end a text, at least one; and tokens never chosen as text, ends included."""
        # Each beam of a forward pass has its own keys and values of prompt and answer.
        rows = 160 if model.device.type == "cpu" else 640
        self.batch_size = config.batch_size or max(1, rows // config.num_beams)

    def describe(self) -> Description:
        """Describe what determines the candidates with prompt and decoding, and the weights."""
        kind = "seq2seq" if self.encodes else "causal"
        more = {"kind": kind, "chat_template": self._chat, "batch_size": self.batch_size}
        facts = {"weights": self._loaded.weights}
        return Description(identity={**self._loaded.describe(), **more}, facts=facts)

    def length(self, hypothesis: str) -> int:
        """Count the tokens of a hypothesis's prompt."""
        return len(self._encode([hypothesis])[0])

    def candidates(self, requests: Sequence[ParaphraseRequest]) -> list[list[Candidate]]:
        """Find `num_beams` candidates per request, equal and empty ones included; see `search`."""
        prompts = self._encode([request.hypothesis for request in requests])
        temperatures = [request.temperature for request in requests]
        # Tokens of earlier texts, as they may have been generated.
        earlier = [self._ids(request.earlier, special=False) for request in requests]
        with torch.inference_mode():
            searched = search(Stepper(self, prompts, temperatures), self._config, earlier)
        candidates = []
        for beams in searched:
            texts = self._tokenizer.batch_decode(
                [[token for token in beam.tokens if token not in self._eos] for beam in beams],
                skip_special_tokens=True,
                clean_up_tokenization_spaces=False,
            )
            both = zip(texts, beams, strict=True)
            candidates.append([Candidate(text, beam.finished, beam.score) for text, beam in both])
        return candidates

    def _encode(self, hypotheses: Sequence[str]) -> list[list[int]]:
        # Not by `str.format`, as there may be other braces.
        texts = [self._config.prompt.replace("{hypothesis}", text) for text in hypotheses]
        if self._chat:  # each text is a user's turn, up to where the answer begins
            template = self._tokenizer.get_chat_template()
            texts = self._tokenizer.apply_chat_template(
                [[{"role": "user", "content": text}] for text in texts],
                chat_template=_DATE + template if "strftime_now" in template else template,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,  # templates ignore unknown arguments
            )
        elif not self.encodes:
            texts = [text + "\n" for text in texts]
        prompts = self._ids(texts, special=not self._chat)
        if not self.encodes and not self._chat:
            # Without the end token that some tokenizers add: no text would follow it.
            for ids in prompts:
                while len(ids) > 1 and ids[-1] in self._eos:
                    ids.pop()
        of_text = self.model.config.get_text_config()
        most = getattr(of_text, "max_position_embeddings", None) or float("inf")
        for ids, hypothesis in zip(prompts, hypotheses, strict=True):
            needed = len(ids) if self.encodes else len(ids) + self._config.max_new_tokens
            if needed > most:
                raise ValueError(
                    f"{self.name}: expected prompts that fit the model's {most} tokens with the "
                    f"answer, got {needed} for the hypothesis {hypothesis[:80]!r}: leave it out, "
                    f"or take a generator with a longer context"
                )
        return prompts

    def _ids(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        if not texts:
            return []
        # No warning of long texts, as `_encode` checks their length.
        options = {"add_special_tokens": special, "return_attention_mask": False}
        rows: list[list[int]] = self._tokenizer(list(texts), **options, verbose=False)["input_ids"]
        return rows


# --- A batch in the middle of the search ---


class Stepper:
    """A model and the rows of tokens it has read, at first a prompt each; for inference mode."""

    def __init__(
        self, of: Generator, prompts: Sequence[Sequence[int]], temperatures: Sequence[float]
    ) -> None:
        """Pad the prompts, ids per request: left for causal models, right for encoders."""
        self._model, self._encodes, self._start = of.model, of.encodes, of.start
        self._parameters = inspect.signature(self._model.forward).parameters
        rows = [torch.tensor(ids, dtype=torch.int64) for ids in prompts]
        side = "right" if self._encodes else "left"
        pad = partial(pad_sequence, batch_first=True, padding_side=side)
        self._ids = self._tensor(pad(rows))
        self._mask = self._tensor(pad([torch.ones_like(ids) for ids in rows]))
        self._ends, self._never = self._tensor(of.ends), self._tensor(of.never)
        self._temperatures = self._tensor(temperatures)[:, None]
        self._requests: Ints = np.arange(len(prompts))
        self.vocabulary = int(self._model.config.get_text_config().vocab_size)
        self._encoded = self._cache = cast("Any", None)

    def start(self, k: int) -> Following:
        """Return the likeliest end, and the `k` likeliest first tokens; a row per request."""
        if not self._encodes:
            return self._read(self._ids, k)
        encoder = self._model.get_encoder()
        self._encoded = encoder(input_ids=self._ids, attention_mask=self._mask).last_hidden_state
        return self._read(self._tensor([self._start] * len(self._ids)), k)

    def advance(self, rows: Ints, tokens: Ints, k: int) -> Following:
        """Return likely next tokens; row i becomes the old row `rows[i]` plus `tokens[i]`."""
        index, requests = self._tensor(rows), self._requests[rows]
        same = np.array_equal(requests, self._requests)
        self._requests = requests
        (self._cache.self_attention_cache if self._encodes else self._cache).reorder_cache(index)
        if not same:
            self._mask = self._mask[index]
        if not self._encodes:
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(index), 1)], dim=-1)
        elif not same:
            self._cache.cross_attention_cache.reorder_cache(index)
            self._encoded = self._encoded[index]
        return self._read(self._tensor(tokens)[:, None], k)

    def _read(self, ids: torch.Tensor, k: int) -> Following:
        """Run the model over new tokens of all rows."""
        arguments: dict[str, Any] = {
            "attention_mask": self._mask,
            "past_key_values": self._cache,
            "use_cache": True,
        }
        if self._encodes:
            arguments["decoder_input_ids"] = ids
            arguments["encoder_outputs"] = BaseModelOutput(last_hidden_state=self._encoded)
        else:
            arguments["input_ids"] = ids
            if "position_ids" in self._parameters:
                positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
                arguments["position_ids"] = positions[:, -ids.shape[1] :]
            if "logits_to_keep" in self._parameters:
                arguments["logits_to_keep"] = 1
        output = self._model(**arguments)
        self._cache = output.past_key_values
        logits = output.logits[:, -1]
        precise = torch.promote_types(logits.dtype, torch.float32)
        scaled = logits.to(precise) / self._temperatures[self._tensor(self._requests)].to(precise)
        normaliser = scaled.logsumexp(-1, keepdim=True)
        end = scaled[:, self._ends].max(-1, keepdim=True)
        scaled.index_fill_(1, self._never, -torch.inf)
        best = scaled.topk(min(k, scaled.shape[-1] - len(self._never)))
        tokens = torch.cat([self._ends[end.indices], best.indices], dim=-1)
        log_probs = torch.cat([end.values, best.values], dim=-1) - normaliser
        return tokens.cpu().numpy(), log_probs.double().cpu().numpy()

    def _tensor(self, numbers: Any) -> torch.Tensor:
        return torch.as_tensor(numbers, device=self._model.device)


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Following = tuple[Ints, Floats]
"""Likely next tokens, [rows, 1 + k], for each row that a model has read so far, and their
log-probabilities in nats, at the temperature: the most probable token that ends the text, then the
most probable ones that do not, best first."""


class Beam(NamedTuple):
    """One output of the search."""

    tokens: tuple[int, ...]
    """The beam's tokens, including the end token if it has ended."""
    finished: bool
    score: float
    """Log-probability per token, without penalties."""


class _Lanes(NamedTuple):
    requests: Ints
    """[lanes] Number of the request."""
    groups: Ints
    """[lanes] Number of the group."""
    rows: Ints
    """[lanes, beams] Rows of the beams in the model's answer."""
    tokens: Ints
    """[lanes, beams, steps] Tokens so far."""
    log_probs: Floats
    """[lanes, beams] Log-probabilities in nats, at the temperature."""
    scores: Floats
    """[lanes, beams] Log-probabilities less diversity penalties."""

    def take(self, which: NDArray[np.bool_]) -> _Lanes:
        """Keep some of the lanes, in order."""
        return _Lanes._make(values[which] for values in self)


def search(
    model: Stepper, config: ParaphraseConfig, earlier: Sequence[Sequence[Sequence[int]]]
) -> list[list[Beam]]:
    """Search for `num_beams` beams for every request of a batch.

    At every step the groups of beams choose in order, each by its own beam search, with a penalty
    for each beam of earlier groups that has just chosen the same token (Hamming diversity). Within
    a group, the continuations of a beam have a penalty that grows with their rank; papers are named
    at `ParaphraseConfig`.

    - A beam's score is its log-probability less its diversity penalties so far, which are
      permanent. Sibling penalties count at one step only.
    - An end is a continuation like others, but without diversity penalty: texts of equal length
      are not alike for that reason.
    - A beam ends if its end is among the group's best continuations, as many as it has beams. A
      group is done when that number of its beams have ended, and its other beams are dropped; if
      more of them end at once, the ones with the highest log-probability per token stay. After
      the last step unfinished beams take the places left.

    `earlier` has for each request the tokens of texts that count as beams of groups before the
    first. The `num_beams` beams of a request are each group's best, group by group, then each
    group's second best, and so on. Within a group, finished beams come before unfinished ones.
    """
    n_groups, size = config.num_beam_groups, config.num_beams // config.num_beam_groups
    ended: list[list[list[Beam]]] = [[[] for _ in range(n_groups)] for _ in earlier]
    # Every group of every request, with the prompt alone.
    requests = np.tile(np.arange(len(earlier)), n_groups)
    lanes = _Lanes(
        requests=requests,
        groups=np.repeat(np.arange(n_groups), len(earlier)),
        rows=requests[:, None],
        tokens=np.empty((len(requests), 1, 0), np.int64),
        log_probs=np.zeros((len(requests), 1)),
        scores=np.zeros((len(requests), 1)),
    )
    counts = np.zeros((len(earlier), model.vocabulary), np.int32)
    for step in range(config.max_new_tokens):
        taken = [[ids[step] for ids in texts if step < len(ids)] for texts in earlier]
        counts.fill(0)
        for request, tokens in enumerate(taken):
            np.add.at(counts[request], tokens, 1)
        # Enough to include the best after penalties: at least `size` of these tokens have no
        # penalty, and no other token is more probable.
        k = size
        if config.diversity_penalty:
            k = config.num_beams + max((len(set(tokens)) for tokens in taken), default=0)
        if step == 0:
            following = model.start(k)
        else:
            following = model.advance(lanes.rows.ravel(), lanes.tokens[..., -1].ravel(), k)
            lanes = lanes._replace(rows=np.arange(lanes.rows.size).reshape(lanes.rows.shape))
        groups = [lanes.take(lanes.groups == group) for group in range(n_groups)]
        steps = [_step(of, following, config, counts, ended) for of in groups if len(of.requests)]
        lanes = _Lanes._make(np.concatenate(values) for values in zip(*steps, strict=True))
        if not lanes.requests.size:
            break
    # Beams cut at the last step take the places left.
    per_token = lanes.log_probs / max(1, lanes.tokens.shape[-1])
    for lane, (request, group) in enumerate(zip(lanes.requests, lanes.groups, strict=True)):
        beams = ended[request][group]
        for i in np.argsort(-per_token[lane], kind="stable")[: size - len(beams)]:
            text = tuple(lanes.tokens[lane, i].tolist())
            beams.append(Beam(text, finished=False, score=float(per_token[lane, i])))
    return [[beam for rank in zip(*groups, strict=True) for beam in rank] for groups in ended]


def _step(
    lanes: _Lanes,
    following: Following,
    config: ParaphraseConfig,
    counts: NDArray[np.int32],
    ended: list[list[list[Beam]]],
) -> _Lanes:
    """Extend the lanes of one group by a token; return those that are not done.

    `counts` [requests, vocabulary], how often earlier beams chose a token, and the beams that have
    `ended`, by request and group, are updated.
    """
    size = config.num_beams // config.num_beam_groups
    lane = np.arange(len(lanes.requests))[:, None]
    tokens, log_probs = (values[lanes.rows] for values in following)
    penalties = config.diversity_penalty * counts[lanes.requests[:, None, None], tokens]
    penalties[..., 0] = 0  # ends have none
    scores = lanes.scores[..., None] + log_probs - penalties
    of_ends, others = scores[..., :1], scores[..., 1:]
    # Each beam's children, best first. Sorts are stable: equals stay in order.
    children = np.argsort(-others, axis=-1, kind="stable")[..., :size]
    of_children = np.take_along_axis(others, children, -1)
    ranks = np.arange(children.shape[-1]) + (of_ends > of_children)
    worth = (of_children - config.sibling_penalty * ranks).reshape(len(lane), -1)
    worth_of_ends = of_ends[..., 0] - config.sibling_penalty * (others >= of_ends).sum(-1)
    # A beam ends if its end is among the best of ends and children.
    both = np.concatenate([worth_of_ends, worth], axis=-1)
    best = np.argsort(-both, axis=-1, kind="stable")[:, :size]
    is_best = np.zeros(both.shape, np.bool_)
    np.put_along_axis(is_best, best, True, axis=-1)
    for at, beam in np.argwhere(is_best[:, : of_ends.shape[1]]):
        text = (*lanes.tokens[at, beam].tolist(), int(tokens[at, beam, 0]))
        log_prob = lanes.log_probs[at, beam] + log_probs[at, beam, 0]
        beams = ended[lanes.requests[at]][lanes.groups[at]]
        beams.append(Beam(text, finished=True, score=float(log_prob) / len(text)))
    # The best children take the places of their parents.
    best = np.argsort(-worth, axis=-1, kind="stable")[:, :size]
    parents, rank = np.divmod(best, children.shape[-1])
    child = 1 + children[lane, parents, rank]
    chosen = tokens[lane, parents, child]
    longer = lanes._replace(
        rows=lanes.rows[lane, parents],
        tokens=np.concatenate([lanes.tokens[lane, parents], chosen[..., None]], axis=-1),
        log_probs=lanes.log_probs[lane, parents] + log_probs[lane, parents, child],
        scores=scores[lane, parents, child],
    )
    is_done = []
    for request, group in zip(lanes.requests, lanes.groups, strict=True):
        beams = ended[request][group]
        beams.sort(key=lambda beam: -beam.score)
        del beams[size:]
        is_done.append(len(beams) == size)
    longer = longer.take(~np.array(is_done))
    np.add.at(counts, (longer.requests[:, None], longer.tokens[..., -1]), 1)
    return longer
