"""Inspection: describe the model of a name before any weights are downloaded.

>>> from merge_metric.demo import MODEL
>>> found = inspect(MODEL, CLASSIFIER)
>>> found.format, found.tokenizer, found.class_names
('safetensors', 'tokenizer.json', ('entailment', 'neutral', 'contradiction'))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

from merge_metric.models.model_files import ModelFiles, find_files, list_files
from merge_metric.models.weights import (
    ADAPTER_CONFIG,
    ADAPTER_STEM,
    TASKS,
    Weights,
    count_classes,
    described_names,
    find_converted,
    find_weights,
    in_megabytes,
    read_adapter,
    read_gguf,
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
_TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_READ_SUFFIXES: Final = (".json", ".jinja", ".txt", ".model", ".spm", ".codes")
BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
_GGUF_SIZES: Final = {
    "num_layers": "block_count",
    "hidden_size": "embedding_length",
    "d_ff": "feed_forward_length",
}
"""Name of a size in a configuration → its name in GGUF files."""
_LAYERS: Final = frozenset(
    {
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks", "encoder_layers",
        "decoder_layers", "num_encoder_layers", "num_decoder_layers", "num_hidden_groups",
    }
)  # fmt: skip
"""Names of numbers of layers: each layer has a tensor of its own, unless all are shared."""
_WIDTHS: Final = frozenset(
    {"vocab_size", "hidden_size", "d_model", "n_embd", "dim", "intermediate_size", "d_ff"}
)
"""Names of sizes that must occur as a dimension of some tensor."""
_OF_CLASSES: Final = ("id2label", "label2id", "num_labels", "problem_type")
_MOST_CLASSES: Final = 10_000
_QUANTISED: Final = {
    "gptq": ("optimum", "gptqmodel"),
    "awq": ("gptqmodel",),
    "bitsandbytes": ("bitsandbytes",),
    "compressed-tensors": ("compressed-tensors",),
}
"""Method of quantisation → packages that transformers needs to read the weights."""
_ENDINGS: Final = re.compile(
    r"(Model|Decoder|LMHead|For(MaskedLM|PreTraining|CausalLM|ConditionalGeneration|"
    r"SequenceClassification|TokenClassification|QuestionAnswering\w*|MultipleChoice|"
    r"NextSentencePrediction|\w*Image\w*|\w*Audio\w*|\w*Speech\w*|CTC|\w*Retrieval))$"
)
"""Endings of transformers' class names; models of other classes need their own code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A task that a model is loaded for, with the class of transformers that loads it."""

    described: str
    """Noun phrase, with the article, for a checkpoint of the task, as in messages."""
    trained: str
    """Noun phrase, with the article, for the head that must have been trained."""
    auto_class: str
    encoder_decoder_class: str = ""
    architectures: tuple[str, ...]
    """Endings of the architectures that a configuration may name."""
    also: tuple[str, ...] = ()
    """Further architectures that can be loaded for it, though mainly for another task."""
    gguf: bool = False


MASKED_LM: Final = Head(
    described="a masked LM",
    trained="a trained masked-LM head",
    auto_class="AutoModelForMaskedLM",
    architectures=("ForMaskedLM", "ForPreTraining", "WithLMHeadModel"),
    also=("BartForConditionalGeneration",),
)
CLASSIFIER: Final = Head(
    described="a sequence classifier",
    trained="a trained classification head",
    auto_class="AutoModelForSequenceClassification",
    architectures=("ForSequenceClassification",),
)
CAUSAL_LM: Final = Head(
    described="a causal language model",
    trained="a trained causal language model",
    auto_class="AutoModelForCausalLM",
    architectures=("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"),
    gguf=True,
)
TEXT_GENERATOR: Final = Head(
    described="a text generator (encoder-decoder or causal)",
    trained="a trained text generator",
    auto_class="AutoModelForCausalLM",
    encoder_decoder_class="AutoModelForSeq2SeqLM",
    architectures=("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"),
    gguf=True,
)
HEADS: Final = (MASKED_LM, CLASSIFIER, CAUSAL_LM, TEXT_GENERATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything known about a model before its weights are read."""

    files: ModelFiles
    """The model's files; empty if there is no such model, or if it may not be read."""
    head: Head
    config: dict[str, Any] = field(default_factory=dict)
    """Content of the configuration file; empty if there is none."""
    weights: Weights | None = None
    tokenizer: str = ""
    problems: list[str] = field(default_factory=list)
    """Reasons why it cannot be used, in the order found; empty if none was found."""
    notes: list[str] = field(default_factory=list)
    """Steps of loading beyond reading the files, such as conversion."""
    base: Inspection | None = None
    model: str = ""
    short_name: str = ""
    names_read: bool = False
    """Whether its classes are named in a way that transformers does not read; `config` has them."""
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
    def class_names(self) -> tuple[str, ...]:
        """Names of a classifier's classes in order; empty if not known before it is loaded."""
        unread = self.base is not None and self.weights is not None and not self.weights.tensors
        return () if unread and CONFIG not in self.files else class_names(self.config)

    @property
    def parameters(self) -> int | None:
        """Number of parameters; for pickles, an estimate from the size of the files."""
        if self.weights is None:
            return None
        if self.weights.tensors:
            return sum(
                tensor.size
                for tensor in self.weights.tensors.values()
                if self.weights.format == "GGUF" or tensor.dtype.startswith(("F", "BF"))
            )
        stored = self.config.get("dtype", self.config.get("torch_dtype"))
        return sum(map(self.files.sizes.__getitem__, self.weights.names)) // BYTES.get(
            str(stored), 4
        )

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
        if self.files.gguf_file is not None:
            return weights.names if weights else ()
        if weights is not None and weights.format == "pickle":
            weights = None if find_converted(self.files, weights) is not None else weights
        texts = [name for name in self.files.sizes if name.endswith(_READ_SUFFIXES)]
        texts = sorted(name for name in texts if not name.endswith(".index.json"))
        return (*texts, *(weights.all_names if weights else ()))

    def require(self) -> Weights:
        """Return the model's weights, if it can be loaded."""
        if self.problems or self.weights is None:
            raise ValueError(self.problems[0])
        return self.weights

    def attempt(self, step: Callable[..., T], *arguments: Any) -> T | None:
        """Run a step of the inspection; if it fails, add the reason to the problems."""
        try:
            return step(*arguments)
        except ValueError as error:
            if str(error) not in self.problems:  # the Hub refuses every file for the same reason
                self.problems.append(str(error))
            return None

    def has_packages(self, name: str, *packages: str) -> bool:
        """Return whether the packages that read a file are installed; else add a problem."""
        if missing := [each for each in packages if not has_package(each)]:
            self.problems.append(
                f"{self.files.where(name)}: expected the packages {' and '.join(packages)} to read "
                f"it: pip install {' '.join(missing)}"
            )
        return not missing


def inspect(
    model: str | Path, head: Head, *, revision: str | None = None, gguf_file: str | None = None
) -> Inspection:
    """Inspect a folder, a Hub id with an optional `@revision`, or a .gguf file; raise nothing."""
    files = find_files(model, gguf_file, revision)
    return _look(Inspection(files=files, head=head, model=str(model)))


def _look(found: Inspection, *, is_base: bool = False) -> Inspection:
    """Fill in an inspection that knows only the model's place; `is_base`: an adapter's base."""
    files = found.attempt(list_files, found.files)
    if files is None:
        return found
    found = replace(found, files=files)
    if files.gguf_file is not None:
        return _look_at_gguf(found, files.gguf_file)
    if ADAPTER_CONFIG in files and not is_base:
        return _look_at_adapter(found)
    problems, config = found.problems, found.attempt(_read_config, files) or {}
    if config:
        problems += problems_of_config(files, config, found.head, is_base=is_base)
    weights, tokenizer = found.attempt(find_weights, files), find_any_tokenizer(files)
    if not tokenizer and not is_base:
        found.attempt(_explain_no_tokenizer, files)
    if weights is not None:
        problems += _problems_of_sizes(files, config, weights)
        _note_conversion(found, weights)
    if tokenizer in _SENTENCEPIECE:
        found.has_packages(tokenizer, "sentencepiece", "protobuf")
    names: tuple[str, ...] = ()
    if found.head is CLASSIFIER and not isinstance(config.get("id2label"), Mapping):
        if config.get("id2label") or config.get("label2id"):
            names = class_names(config)
        elif weights is not None and "num_labels" not in config:
            names = tuple(f"LABEL_{n}" for n in range(count_classes(weights) or 0))
        config |= {"id2label": {str(n): each for n, each in enumerate(names)}} if names else {}
    return replace(
        found, config=config, weights=weights, tokenizer=tokenizer, names_read=bool(names)
    )


def _look_at_gguf(found: Inspection, name: str) -> Inspection:
    files, problems, weights = found.files, found.problems, None
    if not found.head.gguf:
        problems.append(f"{files.where(name)}: expected {found.head.described}, got a GGUF file")
    elif name not in files:
        near = ", ".join(sorted(each for each in files.sizes if each.endswith(".gguf")))
        problems.append(
            f"{files.where(name)}: there is no such file; GGUF files there: {near or 'none'}"
        )
    elif found.has_packages(name, "gguf", "accelerate"):
        weights = found.attempt(read_gguf, files, name)
    if weights is None:
        return found
    told, family = weights.metadata, weights.metadata.get("general.architecture")
    sizes = {ours: told.get(f"{family}.{theirs}") for ours, theirs in _GGUF_SIZES.items()}
    problems += _problems_of_sizes(files, sizes, weights)
    return replace(found, weights=weights, tokenizer=name, notes=["unpacks its weights on reading"])


def _look_at_adapter(found: Inspection) -> Inspection:
    files, where = found.files, found.files.where(ADAPTER_CONFIG)
    adapter, base, config = found.attempt(read_adapter, files), None, dict[str, Any]()
    weights = found.attempt(find_weights, files, ADAPTER_STEM)
    if not has_package("peft"):
        found.problems.append(
            f"{where}: an adapter, which the package peft merges into its "
            f"base model: pip install 'merge-nli[adapters]'"
        )
    tokenizer = find_any_tokenizer(files)
    if adapter is not None:
        of_base, _ = adapter
        # Its own head may be for another task, and is then not used.
        base = _look(Inspection(files=of_base, head=found.head, model=found.model), is_base=True)
        said = [f"{where}: its base model cannot be loaded: {p}" for p in base.problems]
        found.problems.extend(said)
        asked = f"@{of_base.revision}" if of_base.revision else ""
        found.notes.extend([*base.notes, f"merges the adapter into {of_base.source}{asked}"])
        config, tokenizer = dict(base.config), tokenizer or base.tokenizer
    if weights is not None:
        _note_conversion(found, weights)
    own = (found.attempt(_read_config, files) or {}) if CONFIG in files else {}
    config |= {key: own[key] for key in _OF_CLASSES if key in own}
    count = count_classes(weights) if weights else None
    if count is not None and len(class_names(config)) != count:
        config |= {"id2label": {str(n): f"LABEL_{n}" for n in range(count)}}
    if adapter is not None and not tokenizer:
        found.attempt(_explain_no_tokenizer, files)
    return replace(found, config=config, weights=weights, tokenizer=tokenizer, base=base)


def has_package(name: str) -> bool:
    """Return whether a package is installed, given its name on PyPI."""
    with suppress(PackageNotFoundError):
        return bool(version(name))
    return False


def _note_conversion(found: Inspection, weights: Weights) -> None:
    """Note that pickled weights are to be converted, or why this torch may not."""
    files = found.files
    if weights.format == "pickle" and find_converted(files, weights) is None:
        size = in_megabytes(sum(files.sizes[name] for name in weights.names))
        note = f"converts {described_names(weights)}, {size}, to safetensors, once"
        found.notes.insert(0, note)
        if reason := unfit_torch():
            found.problems.append(f"{files.where(weights.names[0])}: {reason}")


def find_any_tokenizer(files: ModelFiles) -> str:
    """Return the names of the tokenizer's files in words; empty where there are none."""
    return next((", ".join(each) for each in _TOKENIZERS if all(n in files for n in each)), "")


def _explain_no_tokenizer(files: ModelFiles) -> None:
    """Raise ValueError: transformers would make up a tokenizer of five tokens."""
    settings = files.read_json(_TOKENIZER_CONFIG) if _TOKENIZER_CONFIG in files else {}
    if "auto_map" in settings:
        raise ValueError(
            f"{files.where(_TOKENIZER_CONFIG)}: expected a tokenizer of transformers, got "
            f"{settings.get('tokenizer_class')}, which needs code of its own; that is never run"
        )
    choices = ", ".join(" with ".join(names) for names in _TOKENIZERS[:5])
    raise ValueError(
        f"{files.source}: expected the files of a tokenizer ({choices} or the like), found "
        f"none: save it there, too, by tokenizer.save_pretrained"
    )


def _read_config(files: ModelFiles) -> dict[str, Any]:
    if CONFIG not in files:
        raise ValueError(f"{files.source}: expected a model, found no {CONFIG} in it")
    return files.read_json(CONFIG)


def task_config(files: ModelFiles) -> tuple[ModelFiles, dict[str, Any]]:
    """Return the files and the configuration that name the task: an adapter's are its base's."""
    if ADAPTER_CONFIG in files:
        base, task = read_adapter(files)
        if task in TASKS:
            return files, {"architectures": [TASKS[task]]}
        files = list_files(base)
    return files, _read_config(files)


def find_head(model: str, heads: tuple[Head, ...] = HEADS, revision: str | None = None) -> Head:
    """Find a model's task in its configuration; a classifier if nothing says it."""
    if model.endswith(".gguf"):
        return CAUSAL_LM
    try:
        _, config = task_config(list_files(find_files(model, revision=revision)))
    except ValueError:
        return CLASSIFIER
    return head_of(config, heads) or CLASSIFIER


def head_of(config: Mapping[str, Any], heads: tuple[Head, ...]) -> Head | None:
    """Find the task among `heads` that matches a configuration's architectures."""
    names = config.get("architectures")
    names = [*map(str, names)] if isinstance(names, list) else []
    return next((h for name in names for h in heads if name.endswith(h.architectures)), None)


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
) -> Iterator[str]:
    """Yield a configuration's problems; an adapter's base may have a head for another task."""
    where = files.where(CONFIG)
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        yield f"{where}: expected architectures, a list of names, got {names!r:.80}"
        return
    count = config.get("num_labels", len(config.get("id2label") or ()))
    if type(count) is not int or not 0 <= count <= _MOST_CLASSES:
        yield f"{where}: expected num_labels up to {_MOST_CLASSES:,}, got {count!r:.40}"
    stored = config.get("quantization_config")
    method = str(stored.get("quant_method")).lower() if isinstance(stored, Mapping) else ""
    missing = [each for each in _QUANTISED.get(method, ()) if not has_package(each)]
    if missing and isinstance(stored, Mapping):
        shown = method.upper() if method in ("gptq", "awq") else method
        bits = f" in {stored['bits']} bits" if "bits" in stored else ""
        yield (
            f"{where}: expected weights that are not quantised, got {shown}{bits}: take "
            f"the model that it was made from; or ask this one on a server, such as vLLM, with "
            f"`base_url`; or, with a GPU, pip install {' '.join(missing)}"
        )
        return
    own = [name for name in names if not _ENDINGS.search(name)]
    table = config.get("auto_map")
    if not own and isinstance(table, Mapping) and not _is_known_type(config):
        keys = (head.auto_class, head.encoder_decoder_class, "AutoConfig")
        named = (table.get(key) for key in keys)
        own = [each.rpartition(".")[2] for each in named if isinstance(each, str)]
    if own:
        yield (
            f"{where}: expected a class of transformers, got {own[0]}, which needs code of its "
            f"own; that is never run"
        )
    elif "model_type" in config and not _is_known_type(config):
        yield (
            f"{where}: expected a type of model that transformers has, got "
            f"{config['model_type']!r:.60}: a newer transformers may have it"
        )
    elif (
        is_base
        or not names
        or any(name.endswith(head.architectures) or name in head.also for name in names)
    ):
        return
    elif not all(name.endswith("Model") for name in names):
        yield (
            f"{where}: expected an architecture that ends in …{', …'.join(head.architectures)}, "
            f"got {', '.join(names)}: is it a model for another task?"
        )


def _is_known_type(config: Mapping[str, Any]) -> bool:
    """Return whether transformers knows this model type; for most types without importing it."""
    kind, spec = str(config.get("model_type", "")), find_spec("transformers")
    folder = kind.replace("-", "_")
    models = Path(spec.origin).parent / "models" if spec and spec.origin else None
    if models is not None and folder.isidentifier() and (models / folder).is_dir():
        return True
    from transformers.models.auto import configuration_auto

    return kind in vars(configuration_auto)["CONFIG_MAPPING_NAMES"]


def _problems_of_sizes(
    files: ModelFiles, config: Mapping[str, Any], weights: Weights
) -> Iterator[str]:
    """Yield sizes of a configuration, by which a model is built, that contradict the weights."""
    if not weights.tensors:
        return
    largest = max((n for tensor in weights.tensors.values() for n in tensor.shape), default=0)
    for key, value in _integers(config):
        if value < 0 and (key in _LAYERS | _WIDTHS or key.startswith(("num_", "n_"))):
            yield f"{files.where(CONFIG)}: {key}: expected no negative number, got {value:,}"
            continue
        if key in _LAYERS and value > len(weights.tensors):
            told = f"the weights have {len(weights.tensors):,} tensors only"
        elif key in _WIDTHS and value > largest:
            told = f"the largest dimension of the weights is {largest:,}"
        else:
            continue
        yield (
            f"{files.where(CONFIG)}: it says {key} {value:,}; {told}: one of the two is damaged, "
            f"or not of this model; get it again"
        )


def _integers(config: Mapping[str, Any], depth: int = 3) -> Iterator[tuple[str, int]]:
    for key, value in config.items():
        if type(value) is int:
            yield key, value
        elif isinstance(value, Mapping) and depth:
            yield from _integers(value, depth - 1)
