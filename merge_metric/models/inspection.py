"""Inspection: what a model is, what it needs, and why it cannot be used, before it is loaded.

>>> from merge_metric.demo import MODEL
>>> demo = inspect(MODEL, CLASSIFIER)
>>> demo.weights.format, demo.tokenizer, demo.config.id2label
('safetensors', 'tokenizer.json', {0: 'entailment', 1: 'neutral', 2: 'contradiction'})
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

from merge_metric.models.model_files import (
    ModelFiles,
    Weights,
    find_files,
    find_weights,
    list_files,
)

CONFIG: Final = "config.json"
ADAPTER_CONFIG: Final = "adapter_config.json"
"""File that marks a folder as an adapter (LoRA and related methods)."""
_MERGED: Final = ("LORA", "IA3", "LOHA", "LOKR")
_CLASS_MATRIX: Final = re.compile(
    r"(^|\.)(classifier(\.out_proj)?|classification_head\.out_proj|score|logits_proj)\.weight$"
)
"""Pattern of names of the last matrix of classification heads, with a row per class."""

_TOKENIZERS: Final = (
    "tokenizer.json", "vocab.txt", "merges.txt", "spiece.model", "spm.model",
    "sentencepiece.bpe.model", "tokenizer.model", "source.spm",
)  # fmt: skip
"""Files of tokenizers that transformers reads, some with others beside them."""
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_MOST_CLASSES: Final = 10_000
BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
_QUANTISED: Final = {
    "gptq": ("optimum", "gptqmodel"),
    "awq": ("gptqmodel",),
    "bitsandbytes": ("bitsandbytes",),
    "compressed-tensors": ("compressed-tensors",),
}
"""Method of quantisation → packages that transformers needs to read the weights."""


@dataclass(frozen=True, slots=True)
class Head:
    """A task that a model is loaded for, with the class of transformers that loads it."""

    name: str
    """The task in words, such as `sequence classifier`."""
    auto_class: str
    architectures: tuple[str, ...]
    """Endings of the architectures that a configuration may name."""
    gguf: bool = False
    """Whether GGUF files are read."""
    encoder_decoder_class: str = ""


_GENERATORS: Final = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
MASKED_LM: Final = Head(
    "masked LM", "AutoModelForMaskedLM",
    ("ForMaskedLM", "ForPreTraining", "WithLMHeadModel", "BartForConditionalGeneration"),
)  # fmt: skip
CLASSIFIER: Final = Head(
    "sequence classifier", "AutoModelForSequenceClassification", ("ForSequenceClassification",)
)
CAUSAL_LM: Final = Head("causal language model", "AutoModelForCausalLM", _GENERATORS, gguf=True)
TEXT_GENERATOR: Final = Head(
    "text generator", "AutoModelForCausalLM", (*_GENERATORS, "MTModel"), True,
    "AutoModelForSeq2SeqLM",
)  # fmt: skip
HEADS: Final = (MASKED_LM, CLASSIFIER, CAUSAL_LM, TEXT_GENERATOR)
_TASKS: Final = {
    "SEQ_CLS": "ForSequenceClassification",
    "CAUSAL_LM": "ForCausalLM",
    "SEQ_2_SEQ_LM": "ForConditionalGeneration",
}
"""Task of an adapter in peft → ending of the resulting architecture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything known about a model that can be loaded, before its weights are read."""

    files: ModelFiles
    head: Head
    config: Any = None
    """Configuration as transformers has it; of an adapter, that of its base with its own classes.
    None of GGUF files that have not been downloaded."""
    weights: Weights
    tokenizer: str
    """Name of the tokenizer's file."""
    parameters: int | None = None
    """Number of parameters; for pickles, an estimate from the size of the files."""
    notes: tuple[str, ...] = ()
    """Steps of loading beyond reading the files."""
    base: Inspection | None = None
    """The model that an adapter is merged into."""

    @property
    def download_bytes(self) -> int:
        """Total bytes of the needed files that are not on this machine yet."""
        missing = [name for name in self.needed if self.files.local(name) is None]
        own = sum(self.files.sizes[name] for name in missing)
        return own + (self.base.download_bytes if self.base else 0)

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the files that the model is loaded from."""
        suffixes = (".json", ".jinja", ".txt", ".model", ".spm", ".codes")
        texts = (name for name in self.files.sizes if name.endswith(suffixes))
        own = () if self.files.gguf_file else sorted(t for t in texts if ".index." not in t)
        return (*own, *self.weights.names, *filter(None, [self.weights.index]))


def inspect(
    model: str | Path, head: Head, *, revision: str | None = None, gguf_file: str | None = None
) -> Inspection:
    """Inspect a folder, a Hub id with an optional `@revision`, or a .gguf file."""
    return _inspect(list_files(find_files(model, gguf_file, revision)), head)


def _inspect(files: ModelFiles, head: Head, *, is_base: bool = False) -> Inspection:
    """Inspect listed files; an adapter's base needs neither tokenizer nor head."""
    config: Any = None
    if (gguf := files.gguf_file) is not None:
        if not head.gguf or gguf not in files:
            got = "got a GGUF file" if gguf in files else "found no file of this name"
            raise ValueError(f"{files.where(gguf)}: expected a {head.name}, {got}")
        if files.local(gguf) is not None:
            config = read_gguf_config(files, gguf)
        return Inspection(
            files=files, head=head, config=config, weights=Weights("GGUF", (gguf,)),
            tokenizer=gguf, notes=("unpacks its weights on reading",),
            parameters=config and build_on_meta(head, config).num_parameters(),
        )  # fmt: skip
    base, notes = None, tuple[str, ...]()
    is_adapter, says_classes = ADAPTER_CONFIG in files and not is_base, False
    if CONFIG in files or not is_adapter:
        config, says_classes = read_config(files, head, is_base=is_base or is_adapter)
    if is_adapter:
        place, _ = read_adapter(files)
        # Its own head may be for another task, and is then not used.
        base = _inspect(list_files(place), head, is_base=True)
        notes = (*base.notes, f"merges the adapter into {place.asked}")
        config = config if says_classes else base.config
    weights = find_weights(files, "adapter_model" if is_adapter else "model")
    tokenizer = next(
        (name for name in _TOKENIZERS if name in files), base.tokenizer if base else ""
    )
    if not (tokenizer or is_base):
        raise ValueError(
            f"{files.source}: expected the file of a tokenizer ({', '.join(_TOKENIZERS)}), found "
            "none: save it there, too, by tokenizer.save_pretrained; code of its own is never run"
        )
    parameters = sum(map(math.prod, weights.shapes.values()))
    if not parameters:
        stored = str(config.dtype).removeprefix("torch.")
        parameters = sum(files.sizes[name] for name in weights.names) // BYTES.get(stored, 4)
    classes = _classes(config, weights, says_classes=says_classes and not is_adapter)
    config = deepcopy(base.config if base else config)
    if head is CLASSIFIER:
        config.id2label, config.label2id = classes, {name: n for n, name in classes.items()}
    return Inspection(
        files=files, head=head, config=config, weights=weights, tokenizer=tokenizer,
        parameters=parameters, notes=notes, base=base,
    )  # fmt: skip


def _classes(config: Any, weights: Weights, *, says_classes: bool) -> dict[int, str]:
    """Return the classes that a configuration says, or else those that the head's matrix shows."""
    classes = dict(enumerate(config.id2label[n] for n in sorted(config.id2label)))
    heads = [  # of an adapter, LoRA's own matrices are as high as the head
        shape[0]
        for name, shape in weights.shapes.items()
        if _CLASS_MATRIX.search(name) and ".lora_" not in name and len(shape) == 2
    ]
    if heads and heads[0] != len(classes) and not says_classes:
        return {n: f"LABEL_{n}" for n in range(heads[0])}
    return classes


def _missing(*packages: str) -> str:
    """Name those of some packages that are not installed."""
    return " ".join(name for name in packages if not any(Distribution.discover(name=name)))


def read_adapter(files: ModelFiles) -> tuple[ModelFiles, str]:
    """Read from an adapter's configuration the base model, not yet listed, and the task."""
    config = files.read_json(ADAPTER_CONFIG)
    kind, base = config.get("peft_type"), config.get("base_model_name_or_path")
    expected = "peft to read it: pip install 'merge-nli[adapters]'" if _missing("peft") else ""
    if kind not in _MERGED or config.get("megatron_config") or not (base and str(base) == base):
        expected = (
            f"an adapter that can be merged ({', '.join(_MERGED)}) and base_model_name_or_path, "
            f"got {kind!r:.60}{' of Megatron' * bool(config.get('megatron_config'))} of the base "
            f"model {base!r}"
        )
    if expected:
        raise ValueError(f"{files.where(ADAPTER_CONFIG)}: expected {expected}")
    return find_files(str(base), revision=config.get("revision")), str(config.get("task_type"))


def find_head(
    model: str, heads: tuple[Head, ...], revision: str | None = None, *, default: Head | None = None
) -> Head:
    """Find which of the tasks a model is for; `default` if nothing says it, else raise."""
    if model.endswith(".gguf"):
        return CAUSAL_LM
    with suppress(ValueError) if default else nullcontext():
        files = list_files(find_files(model, revision=revision))
        base, task = read_adapter(files) if ADAPTER_CONFIG in files else (None, "")
        names = [_TASKS[task]] if task in _TASKS else []
        if not names:
            place = list_files(base) if base else files
            names = read_config(place, CLASSIFIER, is_base=True)[0].architectures or []
        for head in (h for name in names for h in heads if name.endswith(h.architectures)):
            return head
        raise ValueError(
            f"{model}: expected a {' or a '.join(head.name for head in heads)}, got a "
            f"configuration that says {', '.join(names) or 'nothing'}: train it as a classifier "
            "of the labels first, or say by `kind` what it is to be loaded as"
        )
    return default


# --- What transformers builds of a configuration ---


def read_config(files: ModelFiles, head: Head, *, is_base: bool) -> tuple[Any, bool]:
    """Read a configuration as transformers has it, if a class there for the task fits.

    Also tells whether it says anything about classes. The base of an adapter may have a head for
    another task.
    """
    from transformers import AutoConfig
    from transformers.models.auto import configuration_auto, modeling_auto

    content = files.read_json(CONFIG)
    names, kind = content.get("architectures") or [], content.get("model_type")
    if kind is None:  # an old configuration, which names its architecture only
        tables = [t for n, t in vars(modeling_auto).items() if n.endswith("_MAPPING_NAMES")]
        kind = next((k for t in tables for k, name in t.items() if [name] == names[:1]), None)
    is_known = kind in vars(configuration_auto)["CONFIG_MAPPING_NAMES"]
    endings = ("Model", *(ending for of in HEADS for ending in of.architectures))
    is_plain = is_known and any(name.endswith(endings) for name in names)
    fits = any(name.endswith(("Model", *head.architectures)) for name in names)
    shown, count = ", ".join(map(str, names)), content.get("num_labels", 0)
    stored = content.get("quantization_config")
    method = str(stored.get("quant_method")).lower() if isinstance(stored, Mapping) else ""
    missing = _missing(*_QUANTISED.get(method, ()))
    refusals = (
        (not str(count).isdecimal() or int(count) > _MOST_CLASSES,
         f"num_labels up to {_MOST_CLASSES:,}, got {count!r:.40}"),
        (missing, f"weights that are not quantised, got {method.upper()}: take the model that it "
         "was made from; or ask this one on a server, such as vLLM, with `base_url`; or, with a "
         f"GPU, pip install {missing}"),
        ("auto_map" in content and not is_plain, f"a class of transformers, got {shown or kind}, "
         "which needs code of its own; that is never run"),
        (not is_known, f"model_type, a type of model that transformers has, got {kind!r:.60}: a "
         "newer transformers may have it"),
        (names and not is_base and not fits, "an architecture that ends in "
         f"…{', …'.join(head.architectures)}, got {shown}: is it a model for another task?"),
    )  # fmt: skip
    if reasons := [words for is_refused, words in refusals if is_refused]:
        raise ValueError(f"{files.where(CONFIG)}: expected {reasons[0]}")
    classes, numbers = content.get("id2label"), content.get("label2id")
    with files.reading("the configuration of a model", CONFIG):
        if isinstance(classes, list):
            classes = dict(enumerate(classes))
        elif not classes and numbers:
            classes = {number: name for name, number in numbers.items()}
        if "model_type" in content and classes == content.get("id2label"):
            folder = files.download([CONFIG])
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        else:
            others = {k: v for k, v in content.items() if k not in ("model_type", "label2id")}
            config = AutoConfig.for_model(str(kind), **others | {"id2label": classes})
        # transformers knows some models by their names on the Hub, and mends their tokenizers.
        config._name_or_path = files.source
        return config, bool({"id2label", "label2id", "num_labels"} & content.keys())


def read_gguf_config(files: ModelFiles, name: str) -> Any:
    """Read the configuration in a GGUF file, which is downloaded if necessary."""
    file = files.download([name]) / name
    with files.reading("a GGUF file", name):
        config = deepcopy(_gguf_config(file, file.stat().st_mtime_ns))
    config._name_or_path = files.source
    return config


@contextmanager
def quick_gguf() -> Iterator[None]:
    """Have transformers read the fields of a GGUF file once, and much faster.

    Of a vocabulary's arrays its own reader makes several objects per token, which take seconds.
    """
    import gguf
    import numpy as np

    array, text = gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING

    class Reader(gguf.GGUFReader):
        def _build_fields(self, offs: int, count: int) -> int:
            data: Any = self.data.view(np.ndarray)  # slices of a memory map take microseconds
            self.data = data
            return int(super()._build_fields(offs, count))

        def _get_field_parts(
            self, orig_offs: int, raw_type: int
        ) -> tuple[int, list[Any], Any, Any]:
            if raw_type != array or self.byte_order != "I":
                return super()._get_field_parts(orig_offs, raw_type)
            data, parts, at = memoryview(cast(Any, self.data)), list[Any](), orig_offs + 12
            number, count = struct.unpack_from("<IQ", data, orig_offs)
            kind = gguf.GGUFValueType(number)
            if kind == array:
                return super()._get_field_parts(orig_offs, raw_type)
            if kind == text:
                for _ in range(count):
                    start = at + 8
                    at = start + struct.unpack_from("<Q", data, at)[0]
                    parts.append(bytes(data[start:at]))
            else:
                values = self._get(at, self.gguf_scalar_to_np[kind], count)
                parts, at = values[:, None].tolist(), at + values.nbytes
            return at - orig_offs, parts, [*range(len(parts))], [array, kind][: 1 + (count > 0)]

    with patch.object(gguf, "GGUFReader", cache(Reader)):
        yield


@lru_cache(maxsize=4)
def _gguf_config(file: Path, changed: int) -> Any:
    """Read the configuration in a GGUF file; kept, as it takes seconds."""
    from transformers import AutoConfig

    with quick_gguf():
        config = AutoConfig.from_pretrained(
            file.parent, trust_remote_code=False, gguf_file=file.name
        )
    if getattr(config, "is_gated_act", False) and config.feed_forward_proj == "relu":
        # Of GGUF files transformers (5.23) reads that a T5 has gates, but leaves the activation
        # at the first T5's, which had none. T5 v1.1 and Flan-T5, which have, use GELU.
        config.feed_forward_proj, config.dense_act_fn = "gated-gelu", "gelu_new"
    return config


def build_on_meta(head: Head, config: Any) -> Any:
    """Build the model that a configuration describes without memory for its weights."""
    import torch
    import transformers

    is_pair = getattr(config, "is_encoder_decoder", False) and head.encoder_decoder_class
    name = head.encoder_decoder_class if is_pair else head.auto_class
    with torch.device("meta"):
        return getattr(transformers, name).from_config(config)
