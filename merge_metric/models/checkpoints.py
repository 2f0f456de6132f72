"""Checkpoints: configuration, tokenizer and weights of one commit, loaded without their code."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Set
from contextlib import nullcontext
from logging import ERROR, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from merge_metric.models.inspection import (
    ADAPTER_CONFIG,
    CLASSIFIER,
    CONFIG,
    MASKED_LM,
    Inspection,
    build_on_meta,
    quick_gguf,
    read_gguf_config,
)
from merge_metric.models.model_files import read_shapes
from merge_metric.models.tokens import read_tokenizer

if TYPE_CHECKING:
    import torch

log = getLogger(__name__)

_UNUSED: Final = re.compile(
    r"^(cls|lm_head|lm_loss|predictions|sop_classifier|discriminator_predictions|generator_\w+|"
    r"lm_predictions|mask_predictions|vocab_\w+|qa_outputs|embeddings_project|final_logits_bias)\b"
    r"|(^|\.)(pooler|position_ids|token_type_ids|version|masked_bias|inv_freq|attn\.bias)\b"
)
"""Names of tensors that belong to a model of another class and change no answer."""
_SIZES: Final = (
    "num_hidden_layers", "decoder_layers", "num_decoder_layers", "num_attention_heads",
    "hidden_size", "vocab_size",
)  # fmt: skip


class Loaded(NamedTuple):
    """A model on its device, in its dtype, with its tokenizer and identity."""

    model: Any
    tokenizer: Any
    name: str
    revision: str
    """Commit on the Hub, or digest of the files; for an adapter, followed by "+" and the base's."""
    weights: dict[str, Any] | None = None
    """Provenance of the weights: their format and digest, and the base of an adapter."""

    def describe(self) -> dict[str, Any]:
        """Describe everything that determines answers: model, architecture, dtype and packages."""
        import torch
        import transformers

        return {
            "name": self.name,
            "revision": self.revision,
            "architecture": type(self.model).__name__,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.model.device.type),
            "packages": {"torch": torch.__version__, "transformers": transformers.__version__},
        }

    def facts(self) -> dict[str, Any]:
        """Return the number of parameters, and the provenance of the weights if it is known."""
        of_weights = {"weights": self.weights} if self.weights else {}
        return {"parameters": self.model.num_parameters(), **of_weights}


def load(inspection: Inspection, *, device: str = "auto", dtype: str = "auto") -> Loaded:
    """Load a model, with layers packed if faster, and its tokenizer.

    The `dtype` is "auto", or the name of one of torch's types of real numbers.
    """
    import torch

    from merge_metric.models.fast_layers import pack_linear_layers

    device = resolve_device(device)
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    if device == "cpu":
        # glibc returns freed memory to the system, and then requests it again page by page, up
        # to a multiple of the largest block freed so far: a sixth of a small model's time.
        torch.empty(2**25 - 2**14, dtype=torch.uint8)
        if torch.backends.cpu.get_cpu_capability() == "AVX2":
            # Else MKL's rounding depends on the addresses of operands. It reads this variable at
            # its first product, so it has no effect in a process that has computed before.
            os.environ.setdefault("MKL_CBWR", "AVX2")
    base, files, config = inspection.base, inspection.files, inspection.config
    folder, kind = files.download(inspection.needed), getattr(torch, dtype)
    if base is None:
        config = config or read_gguf_config(files, str(files.gguf_file))
        with quick_gguf() if files.gguf_file else nullcontext():
            tokenizer = read_tokenizer(inspection, folder, config)
            model = _read_model(inspection, config, folder, kind)
    else:
        base_folder = base.files.download(base.needed)
        owner = (inspection, folder) if inspection.tokenizer in files else (base, base_folder)
        tokenizer = read_tokenizer(*owner, config)
        names = read_shapes(files, inspection.weights.names)  # also tells of half a download
        replaced = {name.partition("base_model.model.")[2] for name in names}
        model = _read_model(base, config, base_folder, kind, replaced)
        with files.reading(f"an adapter of {base.files.name}", ADAPTER_CONFIG):
            model = _merge(model, folder, files.source)
    numbers = ((n, w) for n, w in model.named_parameters() if w.is_floating_point() and w.numel())
    for name, weight in numbers:
        bounds = torch.stack(torch.aminmax(weight.detach()))  # without a mask of all elements
        if not torch.isfinite(bounds).all():  # every answer would be none
            why = "the file is damaged, or training diverged; get it again"
            if weight.dtype == torch.float16 and not bounds.isnan().any():
                why = "numbers too large for float16 do this; try `dtype` bfloat16 or float32"
            raise ValueError(
                f"{files.where(inspection.weights.names[0])}: expected numbers, got "
                f"{bounds[0].item()} in {name}: {why}"
            )
    revision, provenance = _identify(inspection)
    return Loaded(pack_linear_layers(model.to(device)), tokenizer, files.name, revision, provenance)


def resolve_device(device: str) -> str:
    """Return the best device available for `auto`, and of several one for a task that sees it.

    Raises ValueError if torch has no such device.
    """
    import torch

    if device == "all" or "," in device:  # see `distribution_of`
        device = "cuda" if device == "all" else device.partition(",")[0].partition(":")[0]
    here = ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    if device == "auto":
        return [*here, "cpu"][0]
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device: expected one that torch finds here ({', '.join(['auto', 'cpu', *here])}), "
            f"got {device!r}"
        ) from error
    return device


def max_tokens(model: Any, tokenizer: Any) -> int | None:
    """Return the longest input in tokens, with special tokens; None where there is no limit."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or -1
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    if positions > 0 and padding is not None:
        positions -= padding + 1
    limits = [limit for limit in (positions, tokenizer.model_max_length) if 0 < limit < 10**9]
    return min(limits, default=None)


def _read_model(
    inspection: Inspection,
    config: Any,
    folder: Path,
    dtype: torch.dtype,
    replaced: Set[str] = frozenset(),
) -> Any:
    """Build the model of a configuration, and fill it with the checkpoint's tensors, no others.

    Tensors that an adapter has `replaced` may be missing or have another shape.
    """
    import transformers

    head, files, weights = inspection.head, inspection.files, inspection.weights
    is_pickle = weights.format == "pickle"
    shapes = read_shapes(files, weights.names) if is_pickle else weights.shapes
    if any(name.startswith("lm_predictions.") for name in shapes):
        config.legacy = False  # the masked-LM head that DeBERTa was published with
    elements = sum(map(math.prod, shapes.values())) or 8 * files.sizes[weights.names[0]]
    with files.reading(f"the configuration of a {head.name}", files.gguf_file or CONFIG):
        # Sizes that do not fit the weights would fill the memory, or take minutes to fail. Several
        # parameters may share an element of the files, or be packed into one.
        sizes = {name: getattr(config.get_text_config(), name, None) for name in _SIZES}
        is_odd = any(type(n) is int and not 0 <= n <= elements for n in sizes.values())
        built = None if is_odd else build_on_meta(head, config)
        if built is None or built.num_parameters() > 16 * elements + 2**20:
            raise ValueError(f"its sizes {sizes} do not fit weights of {elements:,} elements")
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(ERROR)  # below we check which tensors fit
    try:
        with files.reading(f"a {head.name}", weights.names[0]):
            model, info = type(built).from_pretrained(
                folder,
                config=config,  # reading a GGUF file's metadata again takes seconds
                dtype=dtype,
                use_safetensors=not is_pickle,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # raised below with our own message
                trust_remote_code=False,
                gguf_file=files.gguf_file,
            )
    finally:
        transformers.logging.set_verbosity(before)
    lacks = sorted(set(info["missing_keys"]) - replaced)
    surplus = sorted(key for key in info["unexpected_keys"] if not _UNUSED.search(key))
    others = [
        f"{key} of the shape {tuple(shape)}, where {CONFIG} says {tuple(expected)}"
        for key, shape, expected in sorted(info["mismatched_keys"], key=str)
        if key not in replaced
    ]
    if others or lacks or (surplus and head in (CLASSIFIER, MASKED_LM)):
        has = f", and has {(others or surplus)[:3]} beside them" if others or surplus else ""
        missing = f"{len(lacks):,}, such as {lacks[:3]}" if lacks else "none"
        raise ValueError(
            f"{files.where(weights.names[0])}: expected all weights of a {type(model).__name__} "
            f"and no others, but the checkpoint lacks {missing}{has}: is it damaged, or a model "
            "for another task, or with layers of its own?"
        )
    return model


def _merge(base: Any, folder: Path, source: str) -> Any:
    import peft

    with warnings.catch_warnings():
        # Its warnings are about settings of other versions, and missing keys, counted below.
        warnings.simplefilter("ignore")
        config = peft.PeftConfig.from_pretrained(str(folder))
        config.auto_mapping = None
        model = peft.get_peft_model(base, config)
        tensors = peft.load_peft_weights(str(folder), device="cpu")
        peft.set_peft_model_state_dict(model, tensors)
    names = set(peft.get_peft_model_state_dict(model, save_embedding_layers=False))
    if odd := names ^ tensors.keys():
        raise ValueError(
            f"{source}: expected the tensors of an adapter of {type(base).__name__}, got others or "
            f"too few, as {min(odd)} shows: is it an adapter of another base model?"
        )
    return model.merge_and_unload()


def _identify(inspection: Inspection) -> tuple[str, dict[str, Any]]:
    files, names = inspection.files, inspection.weights.names
    files.remember()
    revision = files.commit or files.digest_of_files(inspection.needed)
    digest = files.digest_of(names[0]) if len(names) == 1 else files.digest_of_files(names)
    provenance: dict[str, Any] = {"format": inspection.weights.format, "sha256": digest}
    if inspection.base is None:
        return revision, provenance
    base_revision, base = _identify(inspection.base)
    provenance["base"] = {"name": inspection.base.files.name, "revision": base_revision, **base}
    return f"{revision}+{base_revision}", provenance
