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

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from merge_metric.models.heads import Head
from merge_metric.models.model_files import Checkpoint, ModelFiles, find_checkpoint, list_files
from merge_metric.models.weight_files import Weights, find_weights

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
"""Files of tokenizers that transformers reads; all of a row are needed."""
_READ_SUFFIXES: Final = (".json", ".jinja", ".txt", ".model", ".spm", ".codes")
"""Suffixes of the files beside the weights that a model may need."""
_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""Type → bytes of a parameter."""
_LAYERS: Final = frozenset(
    {
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks", "encoder_layers",
        "decoder_layers", "num_encoder_layers", "num_decoder_layers", "num_hidden_groups",
    }
)  # fmt: skip
"""Numbers of layers: each has a tensor of its own at least, but for some that share all."""
_WIDTHS: Final = frozenset(
    {"vocab_size", "hidden_size", "d_model", "n_embd", "dim", "intermediate_size", "d_ff"}
)
"""Sizes that are the size of a dimension of some tensor."""
_MOST_CLASSES: Final = 10_000
_ENDINGS: Final = re.compile(r"(Model|For[A-Z]\w+|LMHead|Decoder)$")
"""How classes of transformers end; others are somebody's own."""


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
        """Names of a classifier's classes in order, as transformers understands them."""
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
    return _inspect_model(checkpoint, head, files, dtype)


def read_config(files: ModelFiles) -> dict[str, Any]:
    """Read a model's configuration as it lies there.

    Raises:
        ValueError: there is none, or it is no JSON object.
    """
    if CONFIG not in files:
        raise ValueError(f"{files.source}: expected a model, found no {CONFIG}")
    return files.read_json(CONFIG)


def class_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of a classifier's classes in order, as transformers understands a configuration.

    >>> class_names({"id2label": {"1": "no", "0": "yes"}}), class_names({"num_labels": 1})
    (('yes', 'no'), ('LABEL_0',))
    """
    names = config.get("id2label")
    if isinstance(names, Mapping) and all(str(n).isdecimal() for n in names):
        return tuple(str(names[n]) for n in sorted(names, key=int))
    count = config.get("num_labels", 2)
    count = count if type(count) is int and 0 < count <= _MOST_CLASSES else 2
    return tuple(f"LABEL_{n}" for n in range(count))


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


def _inspect_model(checkpoint: Checkpoint, head: Head, files: ModelFiles, dtype: str) -> Inspection:
    problems: list[str] = []
    config: dict[str, Any] = {}
    weights = None
    tokenizer, packages = "", tuple[str, ...]()
    if checkpoint.gguf_file:
        return _inspect_gguf(checkpoint, head, files, dtype)
    try:
        config = read_config(files)
        problems += _problems_of_config(files, config, head)
    except ValueError as error:
        problems.append(str(error))
    try:
        weights = find_weights(files)
        problems += _problems_of_sizes(files, config, weights)
    except ValueError as error:
        problems.append(str(error))
    try:
        tokenizer, packages = _find_tokenizer(files)
    except ValueError as error:
        problems.append(str(error))
    return Inspection(
        checkpoint=checkpoint,
        head=head,
        dtype=dtype,
        files=files,
        config=config,
        weights=weights,
        tokenizer=tokenizer,
        packages=packages,
        problems=tuple(problems),
    )


def _inspect_gguf(checkpoint: Checkpoint, head: Head, files: ModelFiles, dtype: str) -> Inspection:
    name = str(checkpoint.gguf_file)
    problems, weights = [], None
    if not head.gguf:
        problems.append(f"{files.where(name)}: expected {head.described}, got a GGUF file")
    if name not in files:
        near = sorted(each for each in files.files if each.endswith(".gguf"))
        problems.append(
            f"{files.where(name)}: there is no such file; GGUF files there: "
            f"{', '.join(near) or 'none'}"
        )
    else:
        weights = Weights("GGUF", (name,))
    return Inspection(
        checkpoint=checkpoint,
        head=head,
        dtype=dtype,
        files=files,
        weights=weights,
        tokenizer=name,
        packages=tuple(each for each in ("gguf", "accelerate") if not has_package(each)),
        problems=tuple(problems),
    )


def _problems_of_config(files: ModelFiles, config: Mapping[str, Any], head: Head) -> Iterator[str]:
    where = files.where(CONFIG)
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        yield f"{where}: expected architectures, a list of names, got {names!r:.80}"
        return
    count = config.get("num_labels", len(config.get("id2label") or ()))
    if type(count) is not int or not 0 <= count <= _MOST_CLASSES:
        yield f"{where}: expected num_labels up to {_MOST_CLASSES:,}, got {count!r:.40}"
    if not names or any(name.endswith(head.architectures) for name in names):
        return
    if own := [name for name in names if not _ENDINGS.search(name)]:
        yield (
            f"{where}: expected an architecture of transformers, got {own[0]}, which needs code "
            f"of its own; that is never run"
        )
    elif not all(name.endswith("Model") for name in names):
        yield (
            f"{where}: expected an architecture that ends in …{', …'.join(head.architectures)}, "
            f"got {', '.join(names)}: is it a model for another task?"
        )


def _problems_of_sizes(
    files: ModelFiles, config: Mapping[str, Any], weights: Weights
) -> Iterator[str]:
    """Compare the configuration's sizes with the header's: a model is built by the former."""
    if not weights.tensors:
        return
    largest = max((n for tensor in weights.tensors.values() for n in tensor.shape), default=0)
    for key, value in _integers(config):
        if key in _LAYERS and value > len(weights.tensors):
            told = f"the weights have {len(weights.tensors):,} tensors only"
        elif key in _WIDTHS and value > largest:
            told = f"the largest dimension of the weights is {largest:,}"
        else:
            continue
        yield f"{files.where(CONFIG)}: it says {key} {value:,}, but {told}"


def _integers(config: Mapping[str, Any], depth: int = 3) -> Iterator[tuple[str, int]]:
    for key, value in config.items():
        if type(value) is int:
            yield key, value
        elif isinstance(value, Mapping) and depth:
            yield from _integers(value, depth - 1)


def _find_tokenizer(files: ModelFiles) -> tuple[str, tuple[str, ...]]:
    """Find the files of the tokenizer, and packages that reading them lacks.

    Raises:
        ValueError: there are none; transformers would make up a tokenizer of five tokens.
    """
    for names in _TOKENIZERS:
        if all(name in files for name in names):
            break
    else:
        choices = ", ".join(" with ".join(names) for names in _TOKENIZERS[:5])
        raise ValueError(
            f"{files.source}: expected the files of a tokenizer ({choices} or the like), found "
            f"none: save it there, too, by tokenizer.save_pretrained"
        )
    packages: Sequence[str] = ()
    if names[0] in _SENTENCEPIECE:
        packages = [name for name in ("sentencepiece", "protobuf") if not has_package(name)]
    return ", ".join(names), tuple(packages)


def _count_parameters(found: Inspection) -> int | None:
    if found.weights is None or found.files is None:
        return None
    if found.weights.tensors:
        return sum(
            tensor.size
            for tensor in found.weights.tensors.values()
            if tensor.dtype.startswith(("F", "BF"))
        )
    stored = found.config.get("dtype", found.config.get("torch_dtype"))
    size = sum(found.files.files[name].size for name in found.weights.names)
    return size // _BYTES.get(str(stored), 4)
