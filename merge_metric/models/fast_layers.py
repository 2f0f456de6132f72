"""Fast forward passes: packed layers, texts without padding, prefixes run once, a thread a batch.

PyTorch computes float32 layers by MKL, which packs the weights anew in every call, and whose
results for a row depend on the number of rows. The operators used here, those of `torch.compile`,
are private: they are tried once per process, and layers stay as they are where the operators are
missing or wrong. On them classifiers take 3.6 (MiniLM) to 9.4 (BERT-tiny) times less CPU time than
on PyTorch's public layers, a pair at a time; `tests/benchmarks/test_suggestions.py` measures it.
"""

import inspect
import logging
import math
import os
import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import groupby, product
from threading import Barrier
from typing import Any, Final, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.activations import GELUActivation
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

log = logging.getLogger(__name__)

PACKED: Final = frozenset(
    {
        "albert", "bart", "bert", "camembert", "deberta-v2", "distilbert", "electra", "gemma2",
        "gemma3_text", "llama", "mistral", "modernbert", "mpnet", "opt", "qwen2", "roberta", "t5",
        "xlm-roberta",
    }
)  # fmt: skip
"""Types of models that call their linear layers and do not read the weights inside."""

_ROWS: Final = 512
"""Rows of inputs for which weights are packed; other numbers work, and are hardly slower."""
_APART: Final = {torch.float32: 1e-4, torch.bfloat16: 0.25}
"""Largest difference in the trial that counts as rounding; its results are below 40."""


class PackedLinear(nn.Module):
    """A linear layer up to rounding, whose result for a row depends on no other row."""

    def __init__(self, linear: nn.Linear, *, counted: bool = True, gelu: bool = False) -> None:
        """Take over a layer's weights; `counted` is false for a head tied to the embeddings."""
        super().__init__()
        packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)
        if counted:
            self.weight = nn.Parameter(packed, requires_grad=False)
        else:
            self.register_buffer("weight", packed, persistent=False)
        self.bias = linear.bias
        self._then = "gelu" if gelu else "none"

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Apply the layer: (…, in) → (…, out)."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self.weight, self.bias, self._then, [], "none"
        )
        return result


def pack_linear_layers(model: Any) -> Any:
    """Replace linear layers in place where this is known to work; the model is for inference."""
    if model.config.model_type in PACKED and can_pack(model.device, model.dtype):
        with torch.inference_mode():
            _pack(model, model.get_input_embeddings().weight)
    return model


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether layers can be packed on a device, in a data type."""
    return (
        device.type == "cpu"
        and platform.machine().lower() in {"x86_64", "amd64"}
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and dtype in {torch.float32, torch.bfloat16}
        and _operators_work(dtype)
    )


@cache
def _operators_work(dtype: torch.dtype) -> bool:
    """Compare packed layers with plain ones; warn if PyTorch's operators fail or differ."""
    for variable in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        # Of 1,024 shapes, as is usual, prepared data of 1 MB each would be kept. This is read at
        # the first such computation.
        os.environ.setdefault(variable, "128")
    width, height, fault = 48, 80, ""
    cases = product((True, False), (False, True), ((1,), (_ROWS + 1,), (2, 17)))
    try:
        if dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False  # depends on the processor
        for bias, gelu, rows in cases:
            with torch.inference_mode(), torch.random.fork_rng(devices=[]):
                plain = nn.Linear(width, height, bias=bias, dtype=dtype)
                for values in plain.parameters():
                    values.copy_(torch.arange(values.numel()).reshape(values.shape).sin())
                inputs = torch.arange(math.prod(rows) * width).cos().reshape(*rows, width).to(dtype)
                expected, result = plain(inputs), PackedLinear(plain, gelu=gelu)(inputs)
                expected = nn.functional.gelu(expected) if gelu else expected
                apart = float((result - expected).abs().max())
            if result.dtype != expected.dtype or not apart <= _APART[dtype]:  # also for NaN
                fault = f"results in {result.dtype} are up to {apart:.2g} apart"
    except Exception as error:  # a private operator may fail in any way
        fault = str(error).partition("\n")[0] or type(error).__name__
    if fault:
        log.warning(
            "models run on PyTorch's own linear layers, often at a third of the speed: those of "
            "oneDNN, tried in %s with torch %s: %s",
            str(dtype).removeprefix("torch."), torch.__version__, fault,
        )  # fmt: skip
    return not fault


def _pack(module: nn.Module, embeddings: nn.Parameter) -> None:
    # Where transformers applies GELU to a layer `dense`, and only there, oneDNN does it at once.
    for name in ("intermediate_act_fn", "transform_act_fn"):
        then = getattr(module, name, None)
        is_gelu = type(then) is GELUActivation and then.act is nn.functional.gelu
        if is_gelu and type(getattr(module, "dense", None)) is nn.Linear:
            module.dense = PackedLinear(cast(nn.Linear, module.dense), gelu=True)
            setattr(module, name, nn.Identity())
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child, counted=child.weight is not embeddings))
        else:
            _pack(child, embeddings)


# --- Texts laid end to end ---
#
# All parts but attention handle each token separately, so a batch can be one long row of tokens.
# Few row lengths are used, as preparing a matrix product for a new length takes longer than a
# small model's product. Only the vector at one token of each text is needed, so the last layer
# computes no others.

FLAT: Final = frozenset({"albert", "bert", "camembert", "electra", "roberta", "xlm-roberta"})
"""Types of models with the components of BERT."""

HIDING: Final = FLAT | {"deberta-v2", "distilbert", "mpnet"}
"""Types of encoders in which masked tokens change other tokens by rounding only.

ModernBERT is not among them: a window of only masked tokens becomes NaN on some GPUs, and spreads.
"""
_FILLER: Final = 2048
"""Most padding tokens of a batch: an accelerator takes hardly longer with this number."""

FEWEST: Final = 16
"""Fewest rows of one thread's matrix product for which their number does not change a result."""
_STEPS: Final = 8
"""Number of allowed row counts per power of two."""

Texts = Sequence[Sequence[int]] | Sequence[NDArray[np.int32]]
"""One number per token of each text, such as token ids."""


def rows_for(count: int) -> int:
    """Round a number of rows up to one of few allowed numbers.

    >>> [rows_for(count) for count in (1, 17, 500, 513)]
    [16, 32, 512, 640]
    """
    step = max(FEWEST, (1 << (count - 1).bit_length()) // _STEPS)
    return -(-count // step) * step


def is_flat(model: Any) -> bool:
    """Return whether `vectors_at` supports a model's type, and its layers are packed."""
    return _has_parts_of_bert(model) and _is_packed(model)


def _has_parts_of_bert(model: Any) -> bool:
    return model.config.model_type in FLAT and not getattr(model.config, "is_decoder", False)


def _is_packed(model: Any) -> bool:
    return any(type(module) is PackedLinear for module in model.modules())


def keeps_apart(model: Any) -> bool:
    """Return whether texts of equal length change no bit of each other's results in a batch.

    MKL computes products otherwise for few rows; packed layers of one row differ, so there are two.
    """
    config = model.config.get_text_config()
    names = ("hidden_size", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
    widths = [getattr(config, name, None) or 0 for name in names]
    # On a CPU, PyTorch's functions take 32 numbers at a time; SiLU rounds a rest otherwise.
    fits = not any(width % 32 for width in widths)
    return model.device.type != "cpu" or (_is_packed(model) and fits)


def filler_for(model: Any) -> int:
    """Return how many padding tokens a batch may have: none on CPUs, where they cost time."""
    hides = model.config.model_type in HIDING and not getattr(model.config, "is_decoder", False)
    return _FILLER if hides and model.device.type != "cpu" else 0


def padded(rows: Texts) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad rows with 0 to [rows, longest]; also return the mask of entries that are no padding.

    >>> padded([[5, 6], [7]])[0].tolist()
    [[5, 6], [7, 0]]
    """
    lengths = np.array([len(row) for row in rows])
    own = np.arange(lengths.max()) < lengths[:, None]
    full = np.zeros(own.shape, np.int64)
    full[own] = np.concatenate(rows)
    return full, own


def tokens_for(model: Any, on_cpu: int = 512, elsewhere: int = 16_384) -> int:
    """Choose a batch's number of tokens; activations of flat texts take 8 MB or a little more."""
    if is_flat(model):
        return rows_for(max(512, 2**21 // int(model.config.intermediate_size)))
    return on_cpu if model.device.type == "cpu" else elsewhere


def class_logits(model: Any, input_ids: Texts, token_type_ids: Texts | None = None) -> torch.Tensor:
    """Return a classifier's logits, [texts, classes]; the arguments are those of `vectors_at`."""
    trunk = getattr(model, model.base_model_prefix)
    pooled = vectors_at([0] * len(input_ids), trunk, input_ids, token_type_ids)
    pooler: Any = getattr(trunk, "pooler", None)
    if hasattr(trunk, "pooler_activation"):  # ALBERT's
        pooled = trunk.pooler_activation(pooler(pooled))
    else:
        pooled = pooled[:, None] if pooler is None else pooler(pooled[:, None])
    logits: torch.Tensor = model.classifier(pooled)
    return logits[: len(input_ids)]


def vectors_at(
    places: Sequence[int], trunk: Any, input_ids: Texts, token_type_ids: Texts | None = None
) -> torch.Tensor:
    """Return an encoder's vectors, [texts or more, width], at position `places` of each text.

    `is_flat` or `reads_unpadded` must hold for the trunk's model. Texts of equal length are
    adjacent.
    """
    lengths = [len(ids) for ids in input_ids]
    starts = np.cumsum([0, *lengths])
    total, embeddings, layers = int(starts[-1]), trunk.embeddings, _layers_of(trunk)
    of_tokens = torch.zeros((3, rows_for(total)), dtype=torch.long)
    ids, types, positions = of_tokens
    ids[:total] = torch.from_numpy(np.concatenate(input_ids))
    if token_type_ids is not None:
        types[:total] = torch.from_numpy(np.concatenate(token_type_ids))
    runs, text, start = [], 0, 0  # groups of texts of equal length
    for length, group in groupby(lengths):
        count = sum(1 for _ in group)
        stop = start + count * length
        if hasattr(embeddings, "create_position_ids_from_input_ids"):  # RoBERTa's
            same = ids[start:stop].view(-1, length)
            numbers = embeddings.create_position_ids_from_input_ids(same, embeddings.padding_idx)
        else:
            numbers = torch.arange(length).repeat(count)
        positions[start:stop] = numbers.flatten()
        runs.append((count, slice(start, stop), slice(text, text + count)))
        text, start = text + count, stop
    wanted = torch.from_numpy(starts[:-1] + np.asarray(places))
    wanted = _moved(torch.cat([wanted, wanted[-1:].expand(rows_for(text) - text)]), trunk)
    is_on_cpu = trunk.device.type == "cpu"
    attend = _attending_by_length(runs) if is_on_cpu else _attending_at_once(starts, trunk)
    states, first_place = _embedded(trunk, of_tokens)
    place: torch.Tensor | None = first_place

    def of_all(rows: torch.Tensor) -> torch.Tensor:
        return rows if place is None else rows.index_select(0, place)

    for number, (own, after_attention, feed_forward) in enumerate(layers, start=1):
        is_last = number == len(layers)
        asking = of_all(states).index_select(0, wanted) if is_last else of_all(states)
        query = own.query(asking) if is_last else of_all(own.query(states))
        shape = (-1, own.num_attention_heads, own.attention_head_size)
        of_layer = query, of_all(own.key(states)), of_all(own.value(states))
        query, key, value = (rows.view(shape) for rows in of_layer)
        place = None  # the states of all tokens are computed next
        context = attend(query, key, value, is_last)
        states = feed_forward(after_attention(context.flatten(1), asking))
    return states


def _moved(numbers: torch.Tensor, trunk: Any) -> torch.Tensor:
    """Return numbers on the device of a model, which may still be computing something else."""
    return numbers.to(trunk.device, non_blocking=True)


_Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
"""Attention within each text: of its tokens or, if true, of one token of each text.

It takes queries, keys and values, [rows, heads, width], and returns what the queries attend to.
Rows after the last text are 0. Scores are divided by the root of the width, as in BERT.
"""


def _attending_by_length(runs: Sequence[tuple[int, slice, slice]]) -> _Attend:
    """Texts of equal length are computed together; see `vectors_at` for runs."""

    def attend(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, one_each: bool
    ) -> torch.Tensor:
        context = torch.zeros_like(query)
        for count, tokens, texts in runs:
            rows = texts if one_each else tokens
            q, k, v = (
                vectors.view(count, -1, *query.shape[1:]).transpose(1, 2)
                for vectors in (query[rows], key[tokens], value[tokens])
            )
            attended = scaled_dot_product_attention(q, k, v).transpose(1, 2)
            context[rows] = attended.reshape(-1, *query.shape[1:])
        return context

    return attend


def _attending_at_once(starts: NDArray[np.int64], trunk: Any) -> _Attend:
    """All texts are computed at once, by PyTorch's attention for GPUs; they begin at `starts`."""
    from torch.nn.attention.varlen import varlen_attn

    count, total, longest = len(starts) - 1, int(starts[-1]), int(np.diff(starts).max())
    bounds = _moved(torch.from_numpy(starts.astype(np.int32)), trunk)
    of_one_each = _moved(torch.arange(count + 1, dtype=torch.int32), trunk)

    def attend(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, one_each: bool
    ) -> torch.Tensor:
        rows, own, most = (count, of_one_each, 1) if one_each else (total, bounds, longest)
        context = torch.zeros_like(query)
        of_tokens = query[:rows], key[:total], value[:total]
        context[:rows] = cast(torch.Tensor, varlen_attn(*of_tokens, own, bounds, most, longest))
        return context

    return attend


def _embedded(trunk: Any, of_tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the states of distinct tokens before the first layer, and [tokens] which each has.

    There, equal tokens at equal positions have equal states; variants share most. What comes of
    tokens are ids, types and positions, [3, tokens].
    """
    embeddings, (ids, types, positions) = trunk.embeddings, of_tokens
    places_of = (ids * len(embeddings.token_type_embeddings.weight) + types) * (
        len(embeddings.position_embeddings.weight)
    ) + positions
    _, example, same = np.unique(places_of.numpy(), return_index=True, return_inverse=True)
    more = rows_for(len(example)) - len(example)
    kept = torch.from_numpy(np.pad(example, (0, more), mode="edge"))
    ids, types, positions = _moved(of_tokens[:, kept], trunk)
    states: torch.Tensor = embeddings.word_embeddings(ids)
    states = states + embeddings.token_type_embeddings(types)
    states = embeddings.LayerNorm(states.add_(embeddings.position_embeddings(positions)))
    if hasattr(trunk, "embeddings_project"):  # ELECTRA's
        states = trunk.embeddings_project(states)
    elif hasattr(trunk.encoder, "embedding_hidden_mapping_in"):  # ALBERT's
        states = trunk.encoder.embedding_hidden_mapping_in(states)
    return states, _moved(torch.from_numpy(same), trunk)


def _layers_of(trunk: Any) -> list[tuple[Any, Callable[..., Any], Callable[..., Any]]]:
    """List (attention, attention output, feed-forward part) of each layer, in order."""

    def of_bert(layer: Any) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
        own = layer.attention
        return own.self, own.output, lambda states: layer.output(layer.intermediate(states), states)

    def of_albert(layer: Any) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
        own, norm = layer.attention, layer.full_layer_layer_norm
        return (
            own,
            lambda context, asking: own.LayerNorm(asking + own.dense(context)),
            lambda states: norm(layer.ff_chunk(states) + states),
        )

    if hasattr(trunk.encoder, "layer"):
        return [of_bert(layer) for layer in trunk.encoder.layer]
    groups, count = trunk.encoder.albert_layer_groups, trunk.config.num_hidden_layers
    in_turn = (groups[n * len(groups) // count] for n in range(count))
    return [of_albert(layer) for group in in_turn for layer in group.albert_layers]


_TRIED: Final = (
    "A dog.", "Two women talk.", "An old man plays a guitar while two children dance in the street."
)  # fmt: skip
_ROUNDED: Final = {torch.bfloat16: 0.05, torch.float16: 0.01}
"""Types that PyTorch's attention for GPUs takes, with the distance of two vectors, relative to
their length, that may be rounding: three times what was seen on CPUs. Wrong bounds: 0.15 or more.
"""


def reads_unpadded(model: Any, tokenizer: Any, name: str) -> bool:
    """Tell whether texts lie end to end on a model's GPU; try it first, and log the outcome.

    Raises ValueError if some texts then have other vectors than with padding.
    """
    if fault := why_padded(model):
        log.warning("%s: warning: `unpadded` changes nothing: %s", name, fault)
        return False
    texts, most = tokenizer(list(_TRIED))["input_ids"], _ROUNDED[model.dtype]
    ends = [0] * len(texts), [len(ids) - 1 for ids in texts]
    try:
        with torch.inference_mode():
            ids, own = (torch.from_numpy(part).to(model.device) for part in padded(texts))
            whole = model.base_model(input_ids=ids, attention_mask=own.long())[0]
            expected = torch.cat([whole[range(len(texts)), places] for places in ends]).float()
            found = (vectors_at(places, model.base_model, texts)[: len(texts)] for places in ends)
            came = torch.cat(list(found)).float()
            apart = float(((came - expected).norm(dim=-1) / expected.norm(dim=-1)).max())
    except RuntimeError as error:
        raise ValueError(f"{name}: {error}: leave out `unpadded`") from error
    if not apart <= most:  # also for NaN
        raise ValueError(
            f"{name}: expected vectors of texts without padding that are {most:.0%} apart from "
            f"those with padding at most, got {apart:.0%} with torch {torch.__version__}: leave "
            "out `unpadded`"
        )
    log.info("%s: texts are read without padding", name)
    return True


def why_padded(model: Any) -> str:
    """Say why texts cannot lie end to end on a model's GPU; empty if they can."""
    config, device, dtype = model.config, model.device, str(model.dtype).removeprefix("torch.")
    if device.type != "cuda":
        return f"expected a CUDA device, got {device.type}; on a CPU no text is padded"
    if not _has_parts_of_bert(model):
        return f"expected an encoder of {', '.join(sorted(FLAT))}, got {config.model_type}"
    if model.dtype not in _ROUNDED:
        return f"expected `dtype` bfloat16 or float16, got {dtype}"
    width = config.hidden_size // config.num_attention_heads
    if width % 8 or width > 256:
        return f"expected heads of a multiple of 8 numbers, 256 at most, got {width}"
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 0) or not torch.backends.cuda.is_flash_attention_available():
        return (
            "expected FlashAttention, in torch and on a GPU of capability 8.0 or more, got "
            f"{'.'.join(map(str, capability))} and torch {torch.__version__}"
        )
    return ""


# --- Keys and values of the prompts' common prefix: computed once, used by every batch ---


class _PrefixLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer's keys and values of the prefix, put before a batch's, which are not kept."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype, self.device = keys.dtype, keys.device
        self.keys, self.values = self._prefix = keys, values
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = (states.expand(len(key_states), -1, -1, -1) for states in self._prefix)
        return torch.cat([keys, key_states], dim=-2), torch.cat([values, value_states], dim=-2)


class PrefixCache:
    """The states of a model after it has read prefixes of equal length."""

    def __init__(self, model: Any, prefixes: Sequence[Sequence[int]]) -> None:
        """Run a causal LM over non-empty prefixes; keep all keys: its mask hides distant ones."""
        cache: Any = DynamicCache()
        with torch.inference_mode():
            rows = torch.tensor([list(ids) for ids in prefixes], device=model.device)
            output = model(input_ids=rows, past_key_values=cache, use_cache=True, logits_to_keep=1)
        self.logits: torch.Tensor = output.logits
        """[prefixes, 1, vocabulary] logits of the token after each."""
        self.length, self._states = rows.shape[1], [(la.keys, la.values) for la in cache.layers]
        self.layer_bytes = max((k.nbytes + v.nbytes) // self.length for k, v in self._states)
        """Bytes of memory per token in the largest layer."""

    def first(self, length: int, prefixes: Any = slice(None)) -> DynamicCache:
        """Return the state after the first `length` tokens, of one prefix for each text or all."""
        cache = DynamicCache()
        cache.layers = [
            _PrefixLayer(keys[prefixes, ..., :length, :], values[prefixes, ..., :length, :])
            for keys, values in self._states
        ]
        return cache


def unsupported(model: Any) -> str | None:
    """Say why a model's state cannot be shared between prompts; None if it can."""
    parameters, name = inspect.signature(model.forward).parameters, type(model).__name__
    if not {"past_key_values", "logits_to_keep"} <= set(parameters):
        return f"{name} takes no past_key_values"
    kinds = (type(layer) for layer in DynamicCache(config=model.config).layers)
    known = (DynamicLayer, DynamicSlidingWindowLayer)  # only keep keys and values per token
    others = (kind.__name__ for kind in kinds if kind not in known)
    return next((f"{name} has layers of the kind {other}" for other in others), None)


# --- Batches side by side on a CPU's threads, each computed by one thread ---
#
# Where threads share a product, its rounding depends on their number and on the number of rows.
# With one thread per batch neither matters, and small products take less time.

_Batch = TypeVar("_Batch")
_Result = TypeVar("_Result")


def on_single_threads(
    compute: Callable[[_Batch], _Result], batches: Iterable[_Batch], device: str
) -> Iterator[_Result]:
    """Yield the result for each batch, in order; on a CPU torch's threads take a batch each.

    There `compute` must be thread-safe, and gets later batches before earlier results are yielded.
    """
    threads = torch.get_num_threads() if device == "cpu" else 1
    if threads == 1:
        yield from map(compute, batches)
        return
    waiting = deque[Future[_Result]]()
    try:
        for batch in batches:
            waiting.append(_pool(threads).submit(compute, batch))
            # Two per thread, so that none waits for a longer batch before its own.
            if len(waiting) >= 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    def begin() -> None:
        torch.get_num_threads()  # the first call in a thread takes the number of the process
        torch.set_num_threads(1)

    pool, started = ThreadPoolExecutor(threads, "batches", begin), Barrier(threads + 1)
    for _ in range(threads):
        pool.submit(started.wait)
    started.wait()
    torch.set_num_threads(threads)  # also for threads that others start later
    return pool


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
