"""Inspection: what a model is, what it needs, and why it cannot be used, before it is loaded.

>>> from merge_metric.demo import MODEL
>>> found = inspect(MODEL, CLASSIFIER)
>>> found.format, found.tokenizer, found.class_names
('safetensors', 'tokenizer.json', ('entailment', 'neutral', 'contradiction'))
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

from merge_metric.models.model_files import (
    ADAPTER_CONFIG,
    ADAPTER_STEM,
    ModelFiles,
    Weights,
    count_classes,
    find_files,
    find_weights,
    list_files,
    read_adapter,
    unfit_torch,
)

T = TypeVar("T")

CONFIG: Final = "config.json"

_SENTENCEPIECE: Final = ("spiece.model", "spm.model", "sentencepiece.bpe.model", "tokenizer.model")
_TOKENIZERS: Final = (
    ("tokenizer.json",),
    ("vocab.txt",),
    ("vocab.json", "merges.txt"),
    *((name,) for name in _SENTENCEPIECE),
    ("source.spm", "vocab.json"),
    ("bpe.codes", "vocab.txt"),
)
"""Sets of tokenizer files that transformers reads; all files of a set are needed."""
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_READ_SUFFIXES: Final = (".json", ".jinja", ".txt", ".model", ".spm", ".codes")
BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
_OF_CLASSES: Final = ("id2label", "label2id", "num_labels", "problem_type")
_MOST_CLASSES: Final = 10_000
_QUANTISED: Final = {
    "gptq": ("optimum", "gptqmodel"),
    "awq": ("gptqmodel",),
    "bitsandbytes": ("bitsandbytes",),
    "compressed-tensors": ("compressed-tensors",),
}
"""Method of quantisation → packages that transformers needs to read the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A task that a model is loaded for, with the class of transformers that loads it."""

    name: str
    """The task in words, such as `sequence classifier`."""
    auto_class: str
    encoder_decoder_class: str = ""
    architectures: tuple[str, ...]
    """Endings of the architectures that a configuration may name."""
    also: tuple[str, ...] = ()
    """Further architectures that can be loaded for it, though mainly for another task."""
    gguf: bool = False
    """Whether GGUF files are read."""


MASKED_LM: Final = Head(
    name="masked LM",
    auto_class="AutoModelForMaskedLM",
    architectures=("ForMaskedLM", "ForPreTraining", "WithLMHeadModel"),
    also=("BartForConditionalGeneration",),
)
CLASSIFIER: Final = Head(
    name="sequence classifier",
    auto_class="AutoModelForSequenceClassification",
    architectures=("ForSequenceClassification",),
)
CAUSAL_LM: Final = Head(
    name="causal language model",
    auto_class="AutoModelForCausalLM",
    architectures=("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"),
    gguf=True,
)
TEXT_GENERATOR: Final = Head(
    name="text generator",
    auto_class="AutoModelForCausalLM",
    encoder_decoder_class="AutoModelForSeq2SeqLM",
    architectures=("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"),
    gguf=True,
)
HEADS: Final = (MASKED_LM, CLASSIFIER, CAUSAL_LM, TEXT_GENERATOR)
_ENDINGS: Final = ("Model", *(ending for head in HEADS for ending in head.architectures))
_TASKS: Final = {
    "SEQ_CLS": "ForSequenceClassification",
    "CAUSAL_LM": "ForCausalLM",
    "SEQ_2_SEQ_LM": "ForConditionalGeneration",
}
"""Task of an adapter in peft → ending of the resulting architecture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything known about a model before its weights are read."""

    files: ModelFiles
    """The model's files; empty if there is no such model, or if it may not be read."""
    head: Head
    model: str
    """The name that was asked for."""
    short_name: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Content of the configuration file; of an adapter, that of its base."""
    weights: Weights | None = None
    tokenizer: str = ""
    """Names of the tokenizer's files."""
    class_names: tuple[str, ...] = ()
    """Names of a classifier's classes in order; empty if not known before it is loaded."""
    parameters: int | None = None
    """Number of parameters; for pickles, an estimate from the size of the files."""
    problems: list[str] = field(default_factory=list)
    """Reasons why it cannot be used, in the order in which they were noticed."""
    notes: tuple[str, ...] = ()
    """Steps of loading beyond reading the files."""
    base: Inspection | None = None
    """The model that an adapter is merged into."""
    labels: str = ""
    """A classifier's labels and their source, in words."""
    asks_seeds: bool = False
    """Whether its label order will be determined from the seeds' gold labels."""
    room: int | None = None
    """Approximate bytes of memory needed to load and run it."""

    @property
    def name(self) -> str:
        """The id, or the name of the folder or GGUF file."""
        return self.files.name

    @property
    def format(self) -> str:
        """Format of the weights in words; empty where there are none."""
        if self.weights is None:
            return ""
        count = len(self.weights.names)
        return self.weights.format + (f", {count} files" if count > 1 else "")

    @property
    def architecture(self) -> str:
        """Class of transformers that the configuration names; empty where it names none."""
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    @property
    def download_bytes(self) -> int:
        """Total bytes of the needed files that are not on this machine yet."""
        missing = [name for name in self.needed if self.files.local(name) is None]
        own = sum(self.files.sizes[name] for name in missing)
        return own + (self.base.download_bytes if self.base else 0)

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the files that the model is loaded from."""
        weights = self.weights
        names = () if weights is None else weights.names
        if weights is not None and weights.index is not None:
            names += (weights.index,)
        if self.files.gguf_file is not None:
            return names
        texts = (name for name in self.files.sizes if name.endswith(_READ_SUFFIXES))
        return (*sorted(n for n in texts if not n.endswith(".index.json")), *names)

    def require(self) -> Weights:
        """Return the model's weights, if it can be loaded."""
        if self.problems or self.weights is None:
            raise ValueError(self.problems[0])
        return self.weights


def inspect(
    model: str | Path, head: Head, *, revision: str | None = None, gguf_file: str | None = None
) -> Inspection:
    """Inspect a folder, a Hub id with an optional `@revision`, or a .gguf file.

    Problems are recorded, not raised.
    """
    return _inspect(find_files(model, gguf_file, revision), head, str(model))


def _inspect(place: ModelFiles, head: Head, model: str, *, is_base: bool = False) -> Inspection:
    """Inspect the model at a place; an adapter's base needs neither tokenizer nor head."""
    problems: list[str] = []
    known = Inspection(files=place, head=head, model=model, problems=problems)
    files = _attempt(problems, list_files, place)
    if files is None:
        return known
    known = replace(known, files=files)
    if files.gguf_file is not None:
        return _inspect_gguf(known, files.gguf_file)
    is_adapter = ADAPTER_CONFIG in files and not is_base
    own: Mapping[str, Any] = {}
    if CONFIG in files or not is_adapter:
        own = _attempt(problems, _config_of, files) or {}
    if own and not is_adapter:
        problems += problems_of_config(files, own, head, is_base=is_base)
    weights = _attempt(problems, find_weights, files, ADAPTER_STEM if is_adapter else "model")
    tokenizer = next((", ".join(s) for s in _TOKENIZERS if all(n in files for n in s)), "")
    config, base, notes = own, None, tuple[str, ...]()
    if is_adapter:
        where = files.where(ADAPTER_CONFIG)
        if not _has_package("peft"):
            problems.append(
                f"{where}: an adapter, which the package peft merges into its base model: "
                f"pip install 'merge-nli[adapters]'"
            )
        if (adapter := _attempt(problems, read_adapter, files)) is not None:
            # Its own head may be for another task, and is then not used.
            base = _inspect(adapter[0], head, model, is_base=True)
            problems += [f"{where}: its base model cannot be loaded: {p}" for p in base.problems]
            asked = f"@{base.files.revision}" if base.files.revision else ""
            notes = (*base.notes, f"merges the adapter into {base.files.source}{asked}")
            config = {**base.config, **{key: own[key] for key in _OF_CLASSES if key in own}}
            tokenizer = tokenizer or base.tokenizer
    if not tokenizer and not is_base and (base is not None or not is_adapter):
        _attempt(problems, _explain_no_tokenizer, files)
    if tokenizer in _SENTENCEPIECE:
        _need_packages(known, tokenizer, "sentencepiece", "protobuf")
    parameters = count = None
    if weights is not None:
        parameters = sum(map(math.prod, weights.shapes.values()))
        count = count_classes(weights.shapes)
        if weights.format == "pickle":
            stored = str(config.get("dtype", config.get("torch_dtype")))
            parameters = sum(files.sizes[n] for n in weights.names) // BYTES.get(stored, 4)
            if reason := unfit_torch():
                problems.append(f"{files.where(weights.names[0])}: {reason}")
    names = class_names(config)
    is_unsaid = is_adapter or not {"id2label", "label2id", "num_labels"} & config.keys()
    if count is not None and count != len(names) and is_unsaid:
        names = tuple(f"LABEL_{n}" for n in range(count))
    elif is_adapter and not own and weights is not None and weights.format == "pickle":
        names = ()
    return replace(
        known, config=config, weights=weights, tokenizer=tokenizer, class_names=names,
        parameters=parameters, notes=notes, base=base,
    )  # fmt: skip


def _inspect_gguf(known: Inspection, name: str) -> Inspection:
    files, head, problems = known.files, known.head, known.problems
    if not head.gguf:
        problems.append(f"{files.where(name)}: expected a {head.name}, got a GGUF file")
    elif name not in files:
        near = ", ".join(sorted(file for file in files.sizes if file.endswith(".gguf")))
        problems.append(
            f"{files.where(name)}: there is no such file; GGUF files there: {near or 'none'}"
        )
    elif _need_packages(known, name, "gguf", "accelerate"):
        notes = ("unpacks its weights on reading",)
        known = replace(known, weights=Weights("GGUF", (name,)), tokenizer=name, notes=notes)
        if (path := files.local(name)) is not None:
            config = _attempt(problems, read_config, known, path.parent)
            if config is not None:
                return replace(known, parameters=build_on_meta(head, config).num_parameters())
    return known


def _attempt(problems: list[str], step: Callable[..., T], *arguments: Any) -> T | None:
    """Run a step of an inspection; if it fails, add the reason to the problems."""
    try:
        return step(*arguments)
    except ValueError as error:
        if str(error) not in problems:  # the Hub refuses every file for the same reason
            problems.append(str(error))
        return None


def _need_packages(known: Inspection, name: str, *packages: str) -> bool:
    if missing := [package for package in packages if not _has_package(package)]:
        known.problems.append(
            f"{known.files.where(name)}: expected the packages {' and '.join(packages)} to read "
            f"it: pip install {' '.join(missing)}"
        )
    return not missing


def _has_package(name: str) -> bool:
    with suppress(PackageNotFoundError):
        return bool(version(name))
    return False


def _explain_no_tokenizer(files: ModelFiles) -> None:
    settings = files.read_json(TOKENIZER_CONFIG) if TOKENIZER_CONFIG in files else {}
    if "auto_map" in settings:
        raise ValueError(
            f"{files.where(TOKENIZER_CONFIG)}: expected a tokenizer of transformers, got "
            f"{settings.get('tokenizer_class')}, which needs code of its own; that is never run"
        )
    choices = ", ".join(" with ".join(names) for names in _TOKENIZERS[:5])
    raise ValueError(
        f"{files.source}: expected the files of a tokenizer ({choices} or the like), found "
        f"none: save it there, too, by tokenizer.save_pretrained"
    )


def _config_of(files: ModelFiles) -> dict[str, Any]:
    if CONFIG not in files:
        raise ValueError(f"{files.source}: expected a model, found no {CONFIG} in it")
    return files.read_json(CONFIG)


def find_head(
    model: str,
    heads: tuple[Head, ...],
    revision: str | None = None,
    *,
    default: Head | None = None,
) -> Head:
    """Find which of the tasks a model is for; `default` if nothing says it, else raise."""
    if model.endswith(".gguf"):
        return CAUSAL_LM
    try:
        files = list_files(find_files(model, revision=revision))
        base, task = read_adapter(files) if ADAPTER_CONFIG in files else (files, "")
        if task in _TASKS:
            names = [_TASKS[task]]
        else:
            files = files if base is files else list_files(base)
            config = _config_of(files)
            for problem in problems_of_config(files, config, CLASSIFIER, is_base=True):
                raise ValueError(problem)
            names = config.get("architectures") or []
        for name in names:
            for head in heads:
                if name.endswith(head.architectures):
                    return head
        hint = ""
        if any(name.endswith(MASKED_LM.architectures) for name in names):
            hint = "; a masked LM suggests words: train it as a classifier of the labels first"
        elif all(name.endswith("Model") for name in names):
            hint = "; `kind` classifier or lm has it loaded as one"
        raise ValueError(
            f"{model}: expected a {' or a '.join(head.name for head in heads)}, got a "
            f"configuration that says {', '.join(names) or 'nothing'}{hint}"
        )
    except ValueError:
        if default is None:
            raise
        return default


def class_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Name a classifier's classes in order, as transformers understands a configuration.

    >>> class_names({"id2label": {"1": "no", "0": "yes"}}), class_names({"num_labels": 1})
    (('yes', 'no'), ('LABEL_0',))
    >>> class_names({"id2label": ["yes", "no"]}), class_names({"label2id": {"no": 1, "yes": 0}})
    (('yes', 'no'), ('yes', 'no'))
    """
    names, numbers = config.get("id2label"), config.get("label2id")
    if not names and isinstance(numbers, Mapping):
        names = {number: name for name, number in numbers.items()}
    elif isinstance(names, list):
        names = dict(enumerate(names))
    if isinstance(names, Mapping) and all(str(n).isdecimal() for n in names):
        return tuple(str(names[n]) for n in sorted(names, key=int))
    count = config.get("num_labels", 2)
    count = count if type(count) is int and 0 < count <= _MOST_CLASSES else 2
    return tuple(f"LABEL_{n}" for n in range(count))


def problems_of_config(
    files: ModelFiles, config: Mapping[str, Any], head: Head, *, is_base: bool
) -> list[str]:
    """List a configuration's problems; an adapter's base may have a head for another task."""
    where = files.where(CONFIG)
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return [f"{where}: expected architectures, a list of names, got {names!r:.80}"]
    count = config.get("num_labels", len(config.get("id2label") or ()))
    if type(count) is not int or not 0 <= count <= _MOST_CLASSES:
        return [f"{where}: expected num_labels up to {_MOST_CLASSES:,}, got {count!r:.40}"]
    stored = config.get("quantization_config")
    method = str(stored.get("quant_method")).lower() if isinstance(stored, Mapping) else ""
    missing = [package for package in _QUANTISED.get(method, ()) if not _has_package(package)]
    if missing and isinstance(stored, Mapping):
        shown = method.upper() if method in ("gptq", "awq") else method
        bits = f" in {stored['bits']} bits" if "bits" in stored else ""
        return [
            f"{where}: expected weights that are not quantised, got {shown}{bits}: take "
            f"the model that it was made from; or ask this one on a server, such as vLLM, with "
            f"`base_url`; or, with a GPU, pip install {' '.join(missing)}"
        ]
    kind, transformers = config.get("model_type"), find_spec("transformers")
    folder = str(kind).replace("-", "_")
    types = Path(str(transformers and transformers.origin)).parent / "models"
    is_known = folder.isidentifier() and (types / folder).is_dir()
    if kind is not None and not is_known:  # a type without a folder; this import takes seconds
        from transformers.models.auto import configuration_auto

        is_known = kind in vars(configuration_auto)["CONFIG_MAPPING_NAMES"]
    fits = any(n.endswith(("Model", *head.architectures)) or n in head.also for n in names)
    if "auto_map" in config and not (is_known and any(name.endswith(_ENDINGS) for name in names)):
        return [
            f"{where}: expected a class of transformers, got {', '.join(names) or kind}, which "
            f"needs code of its own; that is never run"
        ]
    if kind is not None and not is_known:
        return [
            f"{where}: expected a type of model that transformers has, got {kind!r:.60}: a newer "
            f"transformers may have it"
        ]
    if names and not is_base and not fits:
        return [
            f"{where}: expected an architecture that ends in …{', …'.join(head.architectures)}, "
            f"got {', '.join(names)}: is it a model for another task?"
        ]
    return []


# --- What transformers builds of a configuration ---


@contextmanager
def reading(where: str, expected: str) -> Iterator[None]:
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


def read_config(inspection: Inspection, folder: Path) -> Any:
    """Read the configuration of a model, whose files are in a folder, as transformers has it."""
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto

    files, content = inspection.files, dict(inspection.config)
    expected = "a GGUF file" if files.gguf_file else "the configuration of a model"
    with reading(files.where(files.gguf_file or CONFIG), expected):
        kind = content.pop("model_type", None)
        if files.gguf_file is not None:
            file = folder / files.gguf_file
            config = deepcopy(_gguf_config(file, file.stat().st_mtime_ns))
        elif kind is not None and not isinstance(content.get("id2label"), list):
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        else:  # an old configuration, which names its architecture only, or a list of classes
            tables = [t for t in vars(modeling_auto).values() if isinstance(t, Mapping)]
            kinds = (k for t in tables for k, name in t.items() if name == inspection.architecture)
            kind = kind or next(kinds, None)
            if kind is None:
                raise ValueError("expected model_type, such as bert, got none")
            others = {k: value for k, value in content.items() if k not in _OF_CLASSES}
            config = AutoConfig.for_model(kind, **others)
    if inspection.head is CLASSIFIER and inspection.class_names:
        config.id2label = dict(enumerate(inspection.class_names))
        config.label2id = {name: n for n, name in enumerate(inspection.class_names)}
    # transformers knows some models by their names on the Hub, and mends their tokenizers.
    config._name_or_path = files.source
    return config


@lru_cache(maxsize=4)
def _gguf_config(file: Path, changed: int) -> Any:
    """Read the configuration in a GGUF file; kept, as it takes seconds."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(file.parent, trust_remote_code=False, gguf_file=file.name)
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
