"""Checkpoints: configuration, tokenizer and weights from a folder, the Hub, or a GGUF file.

The one place that loads weights, whatever head they are wanted with. Weights are safetensors or,
for models that write text, GGUF; no code of a repository is run.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import torch

DTYPES: Final = ("auto", "float32", "bfloat16", "float16", "float64")

_HASHED_SUFFIXES: Final = frozenset({".json", ".jinja", ".safetensors", ".model", ".txt"})
"""Suffixes of the files hashed into a folder's revision: configuration, tokenizer, chat
template, weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A task that weights are loaded for."""

    described: str
    """A checkpoint that can be loaded for it, as messages say, with the article."""
    trained: str
    """The head that must have been trained, as messages say, with the article."""
    auto_class: str
    """Class of transformers that loads it."""
    encoder_decoder_class: str = ""
    """Class for encoder-decoders, where it is another one."""
    architectures: tuple[str, ...] = ()
    """Endings of the architectures that a configuration may name; empty for any."""
    pickle_hint: str = ""
    """Advice in messages where there are pickled weights only."""


MASKED_LM: Final = Head(
    described="a masked LM with safetensors weights",
    trained="a trained masked-LM head",
    auto_class="AutoModelForMaskedLM",
)
CLASSIFIER: Final = Head(
    described="a sequence classifier",
    trained="a trained classification head",
    auto_class="AutoModelForSequenceClassification",
    pickle_hint=(
        "\nIf it has pickled weights only (pytorch_model.bin), which can run code when they are "
        "read, look for a conversion among the pull requests of its repository on the Hub, and "
        "name it: --revision refs/pr/1"
    ),
)
CAUSAL_LM: Final = Head(
    described="a causal language model with safetensors or GGUF weights,",
    trained="a trained causal language model",
    auto_class="AutoModelForCausalLM",
)
TEXT_GENERATOR: Final = Head(
    described="a text generator (encoder-decoder or causal) with safetensors or GGUF weights,",
    trained="a trained text generator",
    auto_class="AutoModelForCausalLM",
    encoder_decoder_class="AutoModelForSeq2SeqLM",
    architectures=("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"),
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a model's files lie; nothing of them is read yet."""

    source: str
    """Folder, or id on the Hub."""
    name: str
    """The id, or the name of the folder or GGUF file."""
    revision: str | None = None
    """Asked for on the Hub; None for the newest."""
    gguf_file: str | None = None
    """Name of the GGUF file in the folder or repository that everything is read from."""

    @property
    def is_local(self) -> bool:
        """Whether it is a folder."""
        return Path(self.source).is_dir()

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `from_pretrained` of transformers for any part of it."""
        arguments = {"revision": self.revision, "trust_remote_code": False}
        return arguments | ({"gguf_file": self.gguf_file} if self.gguf_file else {})


class Loaded(NamedTuple):
    """A model on its device, with what tells it from others."""

    model: Any
    """Its linear layers are packed where that is faster."""
    tokenizer: Any
    name: str
    revision: str
    """Commit on the Hub, or digest of the files."""


def find_checkpoint(model: str | Path, gguf_file: str | None = None) -> Checkpoint:
    """Tell folders, files and ids on the Hub apart.

    Args:
        model: Directory, Hub id with an optional `@revision`, or a .gguf file.
        gguf_file: Name of a GGUF file in the directory or repository.
    """
    path = Path(model)
    if path.suffix == ".gguf" and path.is_file():
        path, gguf_file = path.parent, path.name
    if path.is_dir():
        name = Path(gguf_file).stem if gguf_file else path.resolve().name
        return Checkpoint(str(path), name, gguf_file=gguf_file)
    source, _, revision = str(model).partition("@")
    return Checkpoint(source, source, revision or None, gguf_file)


def read_config(checkpoint: Checkpoint, head: Head) -> Any:
    """Read a checkpoint's configuration, as transformers understands it.

    Raises:
        ValueError: there is none, or it says that the model is for another task.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(checkpoint.source, **checkpoint.arguments)
    except ImportError as error:
        raise _packages_missing(checkpoint, error) from error
    except (OSError, ValueError) as error:
        hint = ""
        if "does not appear to have a file named" in str(error):
            hint = "\nAn adapter (adapter_config.json) must be merged into its base model first."
        raise _not_loaded(checkpoint, head, error, hint) from error
    if getattr(config, "is_gated_act", False) and config.feed_forward_proj == "relu":
        # Of GGUF files transformers (5.23) reads that a T5 has gates, but leaves the activation
        # at the first T5's, which had none. T5 v1.1 and Flan-T5, which have, use GELU.
        config.feed_forward_proj, config.dense_act_fn = "gated-gelu", "gelu_new"
    _check_architecture(config, checkpoint, head)
    return config


def load(
    checkpoint: Checkpoint,
    head: Head,
    *,
    config: Any = None,
    device: str = "auto",
    dtype: str = "auto",
) -> Loaded:
    """Load a checkpoint's weights with a head, and its tokenizer.

    Args:
        checkpoint: From `find_checkpoint`.
        head: What the weights must have been trained for.
        config: From `read_config`, where that was called before.
        device: `auto` takes a GPU if there is one.
        dtype: One of `DTYPES`; `auto` is bfloat16 on CUDA devices and float32 elsewhere.

    Raises:
        ValueError: no such model, device or dtype, no weights in the formats read, or weights
            that were not trained with this head.
    """
    import torch

    from merge_metric.models.packed_linear import pack_linear_layers

    if dtype not in DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    device = resolve_device(device)
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    if config is None:
        config = read_config(checkpoint, head)
    model, tokenizer = _read(checkpoint, head, config, getattr(torch, dtype))
    return Loaded(
        pack_linear_layers(model.to(device)),
        tokenizer,
        checkpoint.name,
        _digest(checkpoint) if checkpoint.is_local else _hub_commit(checkpoint, model),
    )


def resolve_device(device: str) -> str:
    """`auto` → the best device there is; anything else must be a torch device.

    Raises:
        ValueError: torch knows no such device, or it is not there.
    """
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device: expected 'auto', 'cpu' or a device torch can use, got {device!r}: {error}"
        ) from error
    return device


def max_tokens(model: Any, tokenizer: Any) -> int | None:
    """Longest input in tokens, special ones included; None where there is no limit.

    RoBERTa and its kin count positions from `padding_idx + 1`.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or -1
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    if positions > 0 and padding is not None:
        positions -= padding + 1
    limits = [limit for limit in (positions, tokenizer.model_max_length) if 0 < limit < 10**9]
    return min(limits, default=None)


def _read(checkpoint: Checkpoint, head: Head, config: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """Load model and tokenizer with transformers."""
    import transformers

    auto_class = head.auto_class
    if getattr(config, "is_encoder_decoder", False) and head.encoder_decoder_class:
        auto_class = head.encoder_decoder_class
    source, arguments = checkpoint.source, checkpoint.arguments
    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(source, **arguments)
        model, info = getattr(transformers, auto_class).from_pretrained(
            source,
            config=config,  # reading a GGUF file's metadata again takes seconds
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            **arguments,
        )
    except ImportError as error:
        raise _packages_missing(checkpoint, error) from error
    except (OSError, ValueError) as error:
        raise _not_loaded(checkpoint, head, error, head.pickle_hint) from error
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"{source}: expected {head.trained}, but the checkpoint lacks {missing[:3]}; "
            f"is it a model for another task?"
        )
    return model, tokenizer


def _not_loaded(checkpoint: Checkpoint, head: Head, error: Exception, hint: str) -> ValueError:
    return ValueError(
        f"expected {head.described} in a folder or on the Hub, could not load "
        f"{checkpoint.source!r}: {error}{hint}"
    )


def _packages_missing(checkpoint: Checkpoint, error: ImportError) -> ValueError:
    return ValueError(
        f"{checkpoint.source}: expected the packages that can read it (for GGUF files: "
        f"pip install gguf accelerate): {error}"
    )


def _check_architecture(config: Any, checkpoint: Checkpoint, head: Head) -> None:
    """Refuse models for other tasks, which load where the weights' names are the same.

    Raises:
        ValueError: the architecture that the checkpoint names has another head.
    """
    names = config.architectures or []
    if head.architectures and names and not any(n.endswith(head.architectures) for n in names):
        raise ValueError(
            f"{checkpoint.source}: expected an architecture that generates text "
            f"(…{', …'.join(head.architectures)}), got {', '.join(names)}: is it a model for "
            f"another task?"
        )


def _digest(checkpoint: Checkpoint) -> str:
    """Digest of the names and contents of a local checkpoint's files."""
    folder = Path(checkpoint.source)
    paths = [path for path in folder.iterdir() if path.suffix in _HASHED_SUFFIXES]
    if checkpoint.gguf_file:  # holds configuration and tokenizer, too
        paths = [folder / checkpoint.gguf_file]
    digest = hashlib.sha256()
    for path in sorted(paths):
        with path.open("rb") as file:
            digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _hub_commit(checkpoint: Checkpoint, model: Any) -> str:
    """Find the commit on the Hub that a model was loaded from.

    Where a file lies in the cache tells it where the model does not, as with GGUF files.
    """
    if commit := getattr(model.config, "_commit_hash", None):
        return str(commit)
    from huggingface_hub import try_to_load_from_cache

    name = checkpoint.gguf_file or "config.json"
    cached = try_to_load_from_cache(checkpoint.source, name, revision=checkpoint.revision)
    found = re.search(r"snapshots[/\\]([0-9a-f]{40})[/\\]", str(cached))
    return found[1] if found else checkpoint.revision or "unknown"
