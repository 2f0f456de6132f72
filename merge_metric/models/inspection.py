"""Inspection: describe what lies at a model's name before any weights are fetched.

Reads configurations, tokenizers' files and headers of weights. `checkpoints.load` starts from the
same description, so nothing is found out twice.

>>> from merge_metric.demo import MODEL
>>> from merge_metric.models.heads import CLASSIFIER, MASKED_LM
>>> found = inspect(MODEL, CLASSIFIER)
>>> found.format, found.tokenizer, found.class_names
('safetensors', 'tokenizer.json', ('entailment', 'neutral', 'contradiction'))
>>> inspect(MODEL, MASKED_LM).problems[0].partition("config.json: ")[2][:50]
'expected an architecture that ends in …ForMaskedLM'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, TypeVar

from merge_metric.models.adapters import (
    ADAPTER_CONFIG,
    Adapter,
    count_classes,
    find_adapter_weights,
    is_adapter,
    read_adapter,
)
from merge_metric.models.conversion import (
    described_names,
    find_converted,
    in_megabytes,
    unfit_torch,
)
from merge_metric.models.gguf_header import read_gguf
from merge_metric.models.heads import Head
from merge_metric.models.model_config import (
    CONFIG,
    class_names,
    problems_of_config,
    problems_of_sizes,
    read_config,
)
from merge_metric.models.model_files import Checkpoint, ModelFiles, find_checkpoint, list_files
from merge_metric.models.weight_files import Weights, find_weights

T = TypeVar("T")

_SENTENCEPIECE: Final = ("spiece.model", "spm.model", "sentencepiece.bpe.model", "tokenizer.model")
_TOKENIZERS: Final = (
    ("tokenizer.json",),
    ("vocab.txt",),
    ("vocab.json", "merges.txt"),
    *((name,) for name in _SENTENCEPIECE),
    ("source.spm", "vocab.json"),
    ("bpe.codes", "vocab.txt"),
)
"""Files of tokenizers that transformers reads; all of a row are needed."""
_TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_READ_SUFFIXES: Final = (".json", ".jinja", ".txt", ".model", ".spm", ".codes")
"""Suffixes of the files beside the weights that a model may need."""
_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""Type → bytes of a parameter."""
_GGUF_SIZES: Final = {
    "num_layers": "block_count",
    "hidden_size": "embedding_length",
    "d_ff": "feed_forward_length",
}
"""Sizes of a configuration → what GGUF files call them."""
_OF_CLASSES: Final = ("id2label", "label2id", "num_labels", "problem_type")
"""Entries of a configuration that tell of classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A description of what lies at a name."""

    checkpoint: Checkpoint
    head: Head
    dtype: str = "auto"
    """Type that the weights are wanted in."""
    files: ModelFiles | None = None
    """None where there is no such model, or none that may be read."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The configuration as it lies there; empty where there is none."""
    weights: Weights | None = None
    tokenizer: str = ""
    """Files that the tokenizer is read from."""
    packages: tuple[str, ...] = ()
    """Packages that are needed and not installed, as pip calls them."""
    problems: tuple[str, ...] = ()
    """Reasons why it cannot be loaded, the first one first; empty if it can, as far as seen."""
    notes: tuple[str, ...] = ()
    """Steps that loading takes, where it takes more than reading."""
    base: Inspection | None = None
    """The model that an adapter is merged into."""

    @property
    def name(self) -> str:
        """The id, or the name of the folder or GGUF file."""
        return self.checkpoint.name

    @property
    def commit(self) -> str | None:
        """The commit on the Hub."""
        return self.files.commit if self.files else None

    @property
    def format(self) -> str:
        """Format of the weights in words; empty where there are none."""
        return self.weights.described if self.weights else ""

    @property
    def architecture(self) -> str:
        """Class of transformers that the configuration names; empty where it names none."""
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of a classifier's classes in order, as transformers understands them.

        Empty for adapters with pickled weights and no configuration of their own: how many
        classes these have is known once they are loaded.
        """
        if self.base is not None and self.weights is not None and not self.weights.tensors:
            own = self.files is not None and CONFIG in self.files
            return class_names(self.config) if own else ()
        return class_names(self.config)

    @property
    def parameters(self) -> int | None:
        """Number of parameters; of pickles, what the size of the files suggests."""
        return _count_parameters(self)

    @property
    def download_bytes(self) -> int:
        """Bytes of the files that are not on this machine yet."""
        own = self.files.bytes_to_download(self.needed) if self.files else 0
        return own + (self.base.download_bytes if self.base else 0)

    @property
    def memory_bytes(self) -> int | None:
        """Bytes of the weights in memory; `auto` is taken to be float32."""
        parameters = self.parameters
        return None if parameters is None else parameters * _BYTES.get(self.dtype, 4)

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the files that the model is loaded from."""
        if self.files is None:
            return ()
        if self.checkpoint.gguf_file is not None:
            return self.weights.names if self.weights else ()
        if self.weights is not None and self.weights.format == "pickle":
            converted = find_converted(self.files, self.weights) is not None
            return needed_files(self.files, None if converted else self.weights)
        return needed_files(self.files, self.weights)

    def require(self) -> tuple[ModelFiles, Weights]:
        """Return the model's files, and those of its weights, if it can be loaded.

        Raises:
            ValueError: it cannot: the first problem.
        """
        if self.problems or self.files is None or self.weights is None:
            raise ValueError(self.problems[0])
        return self.files, self.weights


def inspect(
    model: str | Path,
    head: Head,
    *,
    revision: str | None = None,
    gguf_file: str | None = None,
    dtype: str = "auto",
) -> Inspection:
    """Find out what lies at a name. What is wrong with it is told, not raised.

    Args:
        model: Directory, Hub id with an optional `@revision`, or a .gguf file.
        head: What the weights must have been trained for.
        revision: On the Hub, where the id does not have it.
        gguf_file: Name of a GGUF file in the directory or repository.
        dtype: Type that the weights are wanted in.
    """
    checkpoint = find_checkpoint(model, gguf_file, revision)
    try:
        files = list_files(checkpoint)
    except ValueError as error:
        return Inspection(checkpoint=checkpoint, head=head, dtype=dtype, problems=(str(error),))
    if checkpoint.gguf_file is not None:
        return _inspect_gguf(checkpoint, head, files, dtype)
    if is_adapter(files):
        return _inspect_adapter(checkpoint, head, files, dtype)
    return _inspect_model(checkpoint, head, files, dtype)


def needed_files(files: ModelFiles, weights: Weights | None) -> tuple[str, ...]:
    """Name the files that a model is loaded from."""
    texts = sorted(
        name
        for name in files.files
        if name.endswith(_READ_SUFFIXES) and not name.endswith(".index.json")
    )
    return (*texts, *(weights.all_names if weights else ()))


def has_package(name: str) -> bool:
    """Tell whether a package is installed, by the name that pip knows it by."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


class _Findings:
    """Problems collected step by step; a step that fails leaves its reason."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def look(self, step: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return step(*arguments)
        except ValueError as error:
            if str(error) not in self.problems:  # the Hub refuses every file for the same reason
                self.problems.append(str(error))
            return None


def _inspect_model(
    checkpoint: Checkpoint, head: Head, files: ModelFiles, dtype: str, *, is_base: bool = False
) -> Inspection:
    """Describe a model with a configuration and weights of its own."""
    findings = _Findings()
    config = findings.look(read_config, files) or {}
    if config:
        findings.problems += problems_of_config(files, config, head, is_base=is_base)
    weights = findings.look(find_weights, files)
    tokenizer = findings.look(find_tokenizer, files) if not is_base else find_any_tokenizer(files)
    packages = _packages_of(tokenizer)
    notes = []
    if weights is not None:
        findings.problems += problems_of_sizes(files, config, weights)
        if weights.format == "pickle" and find_converted(files, weights) is None:
            notes.append(_note_conversion(files, weights))
            if reason := unfit_torch():
                findings.problems.append(f"{files.where(weights.names[0])}: {reason}")
    if packages:
        findings.problems.append(
            f"{files.where(tokenizer or '')}: expected the packages sentencepiece and protobuf to "
            f"read it: pip install {' '.join(packages)}"
        )
    return Inspection(
        checkpoint=checkpoint,
        head=head,
        dtype=dtype,
        files=files,
        config=config,
        weights=weights,
        tokenizer=tokenizer or "",
        packages=packages,
        problems=tuple(findings.problems),
        notes=tuple(notes),
    )


def _inspect_gguf(checkpoint: Checkpoint, head: Head, files: ModelFiles, dtype: str) -> Inspection:
    """Describe a GGUF file, which has configuration and tokenizer, too."""
    name = str(checkpoint.gguf_file)
    findings = _Findings()
    packages = tuple(each for each in ("gguf", "accelerate") if not has_package(each))
    weights = None
    if not head.gguf:
        findings.problems.append(f"{files.where(name)}: expected {head.described}, got a GGUF file")
    elif name not in files:
        near = sorted(each for each in files.files if each.endswith(".gguf"))
        findings.problems.append(
            f"{files.where(name)}: there is no such file; GGUF files there: "
            f"{', '.join(near) or 'none'}"
        )
    elif packages:
        findings.problems.append(
            f"{files.where(name)}: expected the packages gguf and accelerate to read it: "
            f"pip install {' '.join(packages)}"
        )
    else:
        weights = findings.look(read_gguf, files, name)
    if weights is not None:
        sizes = {
            ours: weights.metadata.get(f"{weights.metadata.get('general.architecture')}.{theirs}")
            for ours, theirs in _GGUF_SIZES.items()
        }
        findings.problems += problems_of_sizes(files, sizes, weights)
    return Inspection(
        checkpoint=checkpoint,
        head=head,
        dtype=dtype,
        files=files,
        weights=weights,
        tokenizer=name if weights else "",
        packages=packages,
        problems=tuple(findings.problems),
        notes=("unpacks its weights on reading",) if weights else (),
    )


def _inspect_adapter(
    checkpoint: Checkpoint, head: Head, files: ModelFiles, dtype: str
) -> Inspection:
    """Describe an adapter, and the model that it is merged into."""
    findings = _Findings()
    adapter = findings.look(read_adapter, files)
    weights = findings.look(find_adapter_weights, files)
    base, config, notes, packages = None, dict[str, Any](), list[str](), tuple[str, ...]()
    if not has_package("peft"):
        packages = ("peft",)
        findings.problems.append(
            f"{files.where(ADAPTER_CONFIG)}: an adapter, which the package peft merges into its "
            f"base model: pip install 'merge-nli[adapters]'"
        )
    if adapter is not None:
        base = _inspect_base(adapter, head, dtype)
        findings.problems += [
            f"{files.where(ADAPTER_CONFIG)}: its base model cannot be loaded: {problem}"
            for problem in base.problems
        ]
        config = dict(base.config)
        notes = [*base.notes, f"merges the adapter into {adapter.asked_base}"]
    if weights is not None and weights.format == "pickle":
        notes.insert(0, _note_conversion(files, weights))
    own = (findings.look(read_config, files) or {}) if CONFIG in files else {}
    config |= {key: own[key] for key in _OF_CLASSES if key in own}
    count = count_classes(weights) if weights else None
    if count is not None and len(class_names(config)) != count:
        config |= {"id2label": {str(n): f"LABEL_{n}" for n in range(count)}}
    tokenizer = find_any_tokenizer(files) or (base.tokenizer if base else "")
    if base is not None and not tokenizer:
        findings.look(find_tokenizer, files)
    return Inspection(
        checkpoint=checkpoint,
        head=head,
        dtype=dtype,
        files=files,
        config=config,
        weights=weights,
        tokenizer=tokenizer,
        packages=packages,
        problems=tuple(findings.problems),
        notes=tuple(notes),
        base=base,
    )


def _inspect_base(adapter: Adapter, head: Head, dtype: str) -> Inspection:
    """Describe the base model of an adapter: its own head may be another, and not be used."""
    checkpoint = find_checkpoint(adapter.base, revision=adapter.base_revision)
    try:
        files = list_files(checkpoint)
    except ValueError as error:
        return Inspection(checkpoint=checkpoint, head=head, dtype=dtype, problems=(str(error),))
    return _inspect_model(checkpoint, head, files, dtype, is_base=True)


def _note_conversion(files: ModelFiles, weights: Weights) -> str:
    size = sum(files.files[name].size for name in weights.names)
    names = described_names(weights)
    return f"converts {names}, {in_megabytes(size)}, to safetensors, once"


def _packages_of(tokenizer: str | None) -> tuple[str, ...]:
    """Name the packages that reading a tokenizer takes and that are not installed."""
    if tokenizer not in _SENTENCEPIECE:
        return ()
    return tuple(name for name in ("sentencepiece", "protobuf") if not has_package(name))


def find_tokenizer(files: ModelFiles) -> str:
    """Name the files of the tokenizer.

    Raises:
        ValueError: there are none; transformers would make up a tokenizer of five tokens.
    """
    if found := find_any_tokenizer(files):
        return found
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


def find_any_tokenizer(files: ModelFiles) -> str:
    """Name the files of the tokenizer; empty where there is none."""
    for names in _TOKENIZERS:
        if all(name in files for name in names):
            return ", ".join(names)
    return ""


def _count_parameters(found: Inspection) -> int | None:
    if found.weights is None or found.files is None:
        return None
    if found.weights.tensors:
        return sum(
            tensor.size
            for tensor in found.weights.tensors.values()
            if found.weights.format == "GGUF" or tensor.dtype.startswith(("F", "BF"))
        )
    stored = found.config.get("dtype", found.config.get("torch_dtype"))
    size = sum(found.files.files[name].size for name in found.weights.names)
    return size // _BYTES.get(str(stored), 4)
