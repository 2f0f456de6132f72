"""Checkpoints: configuration, tokenizer and weights of one commit, loaded without their code."""

from __future__ import annotations

import os
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from logging import ERROR, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from merge_metric.models.inspection import (
    CLASSIFIER,
    CONFIG,
    MASKED_LM,
    Head,
    Inspection,
    find_any_tokenizer,
)
from merge_metric.models.model_files import digest_of_files, find_files, list_files
from merge_metric.models.own_tokenizer import read_tokenizer
from merge_metric.models.weights import (
    ADAPTER_CONFIG,
    ADAPTER_STEM,
    Weights,
    convert,
    count_classes,
    find_weights,
)

if TYPE_CHECKING:
    import torch

log = getLogger(__name__)

DTYPES: Final = ("auto", "float32", "bfloat16", "float16", "float64")
_INSTRUCTIONS: Final = {
    "bfloat16": {"avx512_bf16", "amx_bf16"},
    "float16": {"avx512_fp16", "amx_fp16"},
}
"""Data type → flags of x86 processors, as Linux lists them, with instructions for it."""
_PROCESSOR: Final = Path("/proc/cpuinfo")

_UNUSED: Final = re.compile(
    r"^(cls|lm_head|lm_loss|predictions|sop_classifier|discriminator_predictions|generator_\w+|"
    r"lm_predictions|mask_predictions|vocab_\w+|qa_outputs|embeddings_project|final_logits_bias)\b"
    r"|(^|\.)(pooler|position_ids|token_type_ids|version|masked_bias|inv_freq|attn\.bias)\b"
)
"""Names of tensors that belong to a model of another class and change no answer."""
_HASHED_SUFFIXES: Final = frozenset({".json", ".jinja", ".safetensors", ".model", ".txt"})
"""Suffixes of the files hashed into a folder's revision."""
_LARGEST_KEPT: Final = 2**25 - 2**14
_MOST_TIMES: Final = 4
"""Most parameters of a model per element in its files, as parameters may share weights."""
_ADAPTER_PREFIX: Final = "base_model.model."


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


def require_libraries() -> None:
    """Raise ModuleNotFoundError if torch or transformers is missing, before any model is found."""
    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"loading a model needs {name}", name=name)


def load(found: Inspection, *, device: str = "auto", dtype: str = "auto") -> Loaded:
    """Load a model, with layers packed if faster, and its tokenizer; see `DTYPES` for `dtype`."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    device = resolve_device(device)
    found.require()
    import torch

    from merge_metric.models.fast_layers import keeps_to_avx2, pack_linear_layers

    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    if device == "cpu":
        _warn_of_slow_type(dtype)
        # glibc returns freed memory to the system, and then requests it again page by page, up
        # to a multiple of the largest block freed so far: a sixth of a small model's time.
        torch.empty(_LARGEST_KEPT, dtype=torch.uint8)
        if keeps_to_avx2():
            # Else MKL's rounding depends on the addresses of operands. It reads this variable at
            # its first product, so it has no effect in a process that has computed before.
            os.environ.setdefault("MKL_CBWR", "AVX2")
    model, tokenizer = _read(found, getattr(torch, dtype))
    _require_finite(model, found.files.where(found.require().names[0]))
    revision, weights = _identify(found)
    return Loaded(pack_linear_layers(model.to(device)), tokenizer, found.name, revision, weights)


def resolve_device(device: str) -> str:
    """Return the best device available for `auto`; require that torch has any other one."""
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        here = ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
        raise ValueError(
            f"device: expected one that torch finds here ({', '.join(['auto', 'cpu', *here])}), "
            f"got {device!r}"
        ) from error
    return device


@cache
def _warn_of_slow_type(dtype: str) -> None:
    try:
        lines = _PROCESSOR.read_text(encoding="utf-8").splitlines()
    except OSError:
        return  # not Linux
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), None)
    if flags and dtype in _INSTRUCTIONS and not flags & _INSTRUCTIONS[dtype]:
        log.warning(
            "this processor has no instructions for %s, so models may take several times as long "
            "as in float32: use float32 here, or run on a GPU",
            dtype,
        )


def max_tokens(model: Any, tokenizer: Any) -> int | None:
    """Return the longest input in tokens, with special tokens; None where there is no limit."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or -1
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    if positions > 0 and padding is not None:
        positions -= padding + 1
    limits = [limit for limit in (positions, tokenizer.model_max_length) if 0 < limit < 10**9]
    return min(limits, default=None)


def _read(found: Inspection, dtype: torch.dtype) -> tuple[Any, Any]:
    """Load model and tokenizer, after all files have been downloaded."""
    base, own_folder = found.base or found, found.files.download(found.needed)
    folder = base.files.download(base.needed) if base is not found else own_folder
    weights, kept = _converted(found, own_folder)
    config = _read_config(base, folder)
    if base is found:
        tokenizer = _read_tokenizer(found, folder, config)
        return _read_model(found, config, weights, folder, kept, dtype), tokenizer
    names = found.class_names
    if (count := count_classes(weights)) is not None and count != len(names):
        names = tuple(f"LABEL_{n}" for n in range(count))
    if found.head is CLASSIFIER:
        config.id2label = dict(enumerate(names))
        config.label2id = {name: n for n, name in enumerate(names)}
    of_tokenizer = (found, own_folder) if find_any_tokenizer(found.files) else (base, folder)
    tokenizer = _read_tokenizer(*of_tokenizer, config)
    replaced = {name.partition(_ADAPTER_PREFIX)[2] for name in weights.tensors} - {""}
    base_weights, base_kept = _converted(base, folder)
    model = _read_model(base, config, base_weights, folder, base_kept, dtype, replaced)
    with _reading(found.files.where(ADAPTER_CONFIG), f"an adapter of {base.name}"):
        model = _merge(model, own_folder, kept, set(weights.tensors), found.files.source)
    return model, tokenizer


def _require_finite(model: Any, where: str) -> None:
    """Raise ValueError if a weight is no finite number: every answer would be none."""
    import torch

    for name, weight in model.named_parameters():
        if not weight.is_floating_point() or not weight.numel():
            continue
        bounds = torch.stack(torch.aminmax(weight.detach()))  # without a mask of all elements
        if torch.isfinite(bounds).all():
            continue
        why = "the file is damaged, or training diverged; get it again"
        if weight.dtype == torch.float16 and not bounds.isnan().any():
            why = "numbers too large for float16 do this; try `dtype` bfloat16 or float32"
        raise ValueError(f"{where}: expected numbers, got {bounds[0].item()} in {name}: {why}")


def _converted(found: Inspection, folder: Path) -> tuple[Weights, Path]:
    """Convert pickled weights; return the weights to read and their folder."""
    weights, stem = found.require(), "model" if found.base is None else ADAPTER_STEM
    if weights.format != "pickle":
        return weights, folder
    kept = convert(found.files, weights, stem=stem)
    return find_weights(list_files(find_files(kept)), stem), kept


def _merge(
    base: Any, config_folder: Path, weights_folder: Path, names: Set[str], source: str
) -> Any:
    from peft import PeftConfig, PeftModel, get_peft_model_state_dict

    with warnings.catch_warnings():
        # Its warnings are about settings of other versions, and missing keys, counted below.
        warnings.simplefilter("ignore")
        config = PeftConfig.from_pretrained(str(config_folder))
        config.auto_mapping = None
        model = PeftModel.from_pretrained(
            base, str(weights_folder), config=config, low_cpu_mem_usage=True
        )
    expected = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    if odd := sorted(expected ^ names):
        lacks = "lacks" if odd[0] in expected else "has, beside others,"
        raise ValueError(
            f"{source}: for {type(base).__name__} its weights' file {lacks} {odd[0]}: is it an "
            f"adapter of another base model?"
        )
    return model.merge_and_unload()


def _read_config(found: Inspection, folder: Path) -> Any:
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto

    name = found.files.gguf_file or CONFIG
    with _reading(found.files.where(name), "the configuration of a model"):
        content = dict(found.config)
        kind = content.pop("model_type", None)
        if content and kind is None:  # an old configuration, which names its architecture only
            tables = [t for t in vars(modeling_auto).values() if isinstance(t, Mapping)]
            kinds = [
                kind
                for table in tables
                for kind, name in table.items()
                if found.architecture and name == found.architecture and isinstance(kind, str)
            ]
            if not kinds:
                raise ValueError("expected model_type, such as bert, got none")
            config = AutoConfig.for_model(kinds[0], **content)
        elif found.names_read:
            config = AutoConfig.for_model(kind, **content)
        else:
            config = AutoConfig.from_pretrained(
                folder, trust_remote_code=False, gguf_file=found.files.gguf_file
            )
    # transformers knows some models by their names on the Hub, and mends their tokenizers.
    config._name_or_path = found.files.source
    if getattr(config, "is_gated_act", False) and config.feed_forward_proj == "relu":
        # Of GGUF files transformers (5.23) reads that a T5 has gates, but leaves the activation
        # at the first T5's, which had none. T5 v1.1 and Flan-T5, which have, use GELU.
        config.feed_forward_proj, config.dense_act_fn = "gated-gelu", "gelu_new"
    return config


def _read_tokenizer(found: Inspection, folder: Path, config: Any) -> Any:
    from transformers import AutoTokenizer

    where = found.files.where(found.tokenizer)
    with _reading(where, "a tokenizer"):
        if gguf := found.files.gguf_file:
            tokenizer = AutoTokenizer.from_pretrained(
                folder, config=config, trust_remote_code=False, gguf_file=gguf
            )
        else:
            tokenizer = read_tokenizer(folder, config, found.name)
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ValueError(  # transformers makes one up where it finds no file of the kind it wants
            f"{where}: expected the tokenizer of a {config.model_type} model, got one that knows "
            f"special tokens only: is it that of another model?"
        )
    most = getattr(config.get_text_config(), "vocab_size", None) or tokenizer.vocab_size
    if tokenizer.vocab_size > most:  # tokens that were added to it do not count
        raise ValueError(
            f"{where}: expected a tokenizer of at most {most:,} tokens, as {CONFIG} says, got "
            f"{tokenizer.vocab_size:,}: is it that of another model?"
        )
    return tokenizer


def _read_model(
    found: Inspection,
    config: Any,
    weights: Weights,
    folder: Path,
    kept: Path,
    dtype: torch.dtype,
    replaced: Set[str] = frozenset(),
) -> Any:
    """Build a model, and read its weights from `kept`; tensors in `replaced` may be missing."""
    import torch
    import transformers

    head, where = found.head, found.files.where(found.require().names[0])
    auto_class = head.auto_class
    if getattr(config, "is_encoder_decoder", False) and head.encoder_decoder_class:
        auto_class = head.encoder_decoder_class
    if any(name.startswith("lm_predictions.") for name in weights.tensors):
        config.legacy = False  # the masked-LM head that DeBERTa was published with
    with _reading(where, head.described):
        reader = getattr(transformers, auto_class)
        with torch.device("meta"):  # takes no memory, however absurd the sizes
            parameters = reader.from_config(config).parameters()
        wanted = sum(parameter.numel() for parameter in parameters)
        there = sum(tensor.size for tensor in weights.tensors.values())
        if wanted > _MOST_TIMES * there + 2**20:
            raise ValueError(
                f"its configuration describes a model of {wanted:,} parameters, the weights have "
                f"{there:,}"
            )
        before = transformers.logging.get_verbosity()
        transformers.logging.set_verbosity(ERROR)  # below we check which tensors fit
        try:
            model, info = reader.from_pretrained(
                kept,
                config=config,  # reading a GGUF file's metadata again takes seconds
                dtype=dtype,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # raised below with our own message
                trust_remote_code=False,
                gguf_file=found.files.gguf_file,
            )
        finally:
            transformers.logging.set_verbosity(before)
        settings = folder / "generation_config.json"
        if kept != folder and settings.is_file() and model.can_generate():
            model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    _check_tensors(where, model, info, head, replaced)
    return model


def _check_tensors(
    where: str, model: Any, info: Mapping[str, Any], head: Head, replaced: Set[str]
) -> None:
    name, prefix = type(model).__name__, f"{model.base_model_prefix}."
    for key, found, wanted in sorted(info["mismatched_keys"], key=lambda each: str(each[0])):
        if key not in replaced:
            raise ValueError(
                f"{where}: expected {key} with the shape {tuple(wanted)}, as {CONFIG} says, got "
                f"{tuple(found)}"
            )
    left = sorted(key for key in info["unexpected_keys"] if not _UNUSED.search(key))
    if missing := sorted(set(info["missing_keys"]) - replaced):
        has_trunk = model.base_model is not model
        trunk = [key for key in missing if key.startswith(prefix) or not has_trunk]
        trunk = [key for key in trunk if not key.startswith("lm_head.")]
        ours = [key for key in left if trunk or not key.startswith(prefix)]
        instead = f", and has {ours[:3]} instead" if ours else ""
        if trunk:
            raise ValueError(
                f"{where}: expected all weights of a {name}, but the checkpoint lacks "
                f"{len(missing):,}, such as {trunk[:3]}{instead}; is it damaged, or another's?"
            )
        raise ValueError(
            f"{where}: expected {head.trained}, but the checkpoint lacks {missing[:3]}{instead}; "
            f"is it a model for another task, or one with a head of its own?"
        )
    if left and head in (CLASSIFIER, MASKED_LM):
        raise ValueError(
            f"{where}: expected the weights of a {name} only, got {left[:3]}, which it would "
            f"leave out; is it a model with layers or a head of its own?"
        )


@contextmanager
def _reading(where: str, expected: str) -> Iterator[None]:
    """Turn any error from reading a model's files into a ValueError that names the file."""
    try:
        yield
    except Exception as error:  # damaged and hostile files raise errors of all kinds
        text = re.sub(r"\s+", " ", str(error)).strip()
        if isinstance(error, KeyError):
            text = f"it lacks {text}"
        text = textwrap.shorten(text, 300, placeholder=" …") or type(error).__name__
        lead = f"expected {expected}, could not load it"
        if isinstance(error, ImportError):
            lead = "expected the packages that can read it"
        raise ValueError(f"{where}: {lead}: {text}") from error


def _identify(found: Inspection) -> tuple[str, dict[str, Any]]:
    files, weights = found.files, found.require()
    files.remember()
    names, hashed = weights.names, set(weights.names)
    if files.gguf_file is None:  # else it holds configuration and tokenizer, too
        hashed |= {name for name in files.sizes if Path(name).suffix in _HASHED_SUFFIXES}
    revision = files.commit or digest_of_files(files, hashed)
    digest = files.digest_of(names[0]) if len(names) == 1 else digest_of_files(files, names)
    told: dict[str, Any] = {"format": weights.format, "sha256": digest}
    if found.base is None:
        return revision, told
    base_revision, base = _identify(found.base)
    told["base"] = {"name": found.base.name, "revision": base_revision, **base}
    return f"{revision}+{base_revision}", told
