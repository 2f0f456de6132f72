"""Masked LMs for measurements, made once: small real ones in fp32, and random ones."""

import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken
from transformers import (
    AlbertConfig,
    AlbertTokenizer,
    AutoTokenizer,
    BertConfig,
    ElectraConfig,
    PreTrainedConfig,
    RobertaConfig,
    RobertaTokenizer,
)

from generation.config import BUNDLED_MLM, bundled_path
from helpers.bench.contender import FOLDER
from helpers.tiny_models import byte_level_bpe, randomised, save

REAL: Final = ("bert-tiny-mlm", "minilm-l6-mlm")

_ALBERT_SIZE: Final = 30_000
_ROBERTA_SIZE: Final = 50_265


def _wordpiece() -> Any:
    return AutoTokenizer.from_pretrained(bundled_path(f"demo/{BUNDLED_MLM}"))


def _pieces() -> list[str]:
    ids = _wordpiece().get_vocab()
    return [part for part in sorted(ids, key=ids.__getitem__) if part[0] != "["]


def _byte_level() -> Any:
    """Byte-level BPE, trained on words with a space before them and without one."""
    words = [part for part in _pieces() if part.isalpha() and part.isascii()]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    # A line break before a word gives copies without a space.
    texts = (
        f" {word} {word} {word.title()}\n{word}\n{word.title()}" * max(1, 2000 // rank)
        for rank, word in enumerate(words, 1)
    )
    trained = byte_level_bpe(texts, special, _ROBERTA_SIZE, min_frequency=1)
    merges = json.loads(trained.to_str())["model"]["merges"]
    return RobertaTokenizer(
        vocab=trained.get_vocab(),
        merges=[tuple(pair) for pair in merges],
        # As in RoBERTa's tokenizer: the mask replaces a word with the space before it.
        mask_token=AddedToken("<mask>", lstrip=True, special=True),
    )


def _unigram() -> Any:
    """Pieces whose probability falls with their rank, so that most words are one piece."""
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [p[2:] if p.startswith("##") and p != "##" else f"▁{p}" for p in _pieces()]
    kept = list(dict.fromkeys(pieces))[: _ALBERT_SIZE - len(special)]
    scores = [(part, -math.log(rank)) for rank, part in enumerate(kept, 2)]
    return AlbertTokenizer(vocab=[(part, 0.0) for part in special] + scores)


_LARGE: Final = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
    "intermediate_size": 4096,
}  # fmt: skip
_ROBERTA: Final = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
_ELECTRA: Final = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}

_SHAPES: Final[
    Mapping[str, tuple[Callable[[], Any], Callable[..., PreTrainedConfig], Mapping[str, Any]]]
] = {
    "BERT-base": (_wordpiece, BertConfig, {}),
    "BERT-large": (_wordpiece, BertConfig, _LARGE),
    "RoBERTa-base": (_byte_level, RobertaConfig, _ROBERTA),
    "RoBERTa-large": (_byte_level, RobertaConfig, _ROBERTA | _LARGE),
    "ALBERT-base": (_unigram, AlbertConfig, {"hidden_size": 768, "num_attention_heads": 12,
        "intermediate_size": 3072}),
    "ALBERT-xxlarge": (_unigram, AlbertConfig, {}),
    "ELECTRA-generator": (_wordpiece, ElectraConfig, {"embedding_size": 768, **_ELECTRA}),
    "ELECTRA-large-generator": (_wordpiece, ElectraConfig, {"embedding_size": 1024,
        "num_hidden_layers": 24, **_ELECTRA}),
}  # fmt: skip
"""As in the checkpoints of the paper's masked LMs. Other values are the library's defaults, which
are those of BERT-base and of ALBERT-xxlarge."""

PAPER_SHAPES: Final = tuple(_SHAPES)

SHAPES: Final = ("BERT-base", "RoBERTa-base", "ELECTRA-generator", "ALBERT-base")


def model_folder(name: str, shared_models: Path) -> Path | None:
    """A model's folder, made on first use; None if a real model is missing."""
    real = (bundled_path("demo") if name == BUNDLED_MLM else shared_models) / name
    if name in _SHAPES:
        return made_once(name, lambda folder: _make(name, folder))
    return made_once(name, lambda folder: _copy_in_float32(real, folder)) if real.is_dir() else None


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    folder = FOLDER / "models" / name
    if not folder.is_dir():
        partial = folder.with_name(f".{name}")
        shutil.rmtree(partial, ignore_errors=True)
        make(partial)
        partial.rename(folder)
    return folder


def _make(name: str, folder: Path) -> None:
    make_tokenizer, make_config, sizes = _SHAPES[name]
    tokenizer = make_tokenizer()
    config = make_config(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id, **sizes,
    )  # fmt: skip
    save(randomised(config, seed=0), tokenizer, folder)


def noisy_folder(name: str, seed: int, shared_models: Path) -> Path:
    """A real model whose matrices have noise of a tenth of their spread, made once."""
    original = model_folder(name, shared_models)
    assert original

    def make(folder: Path) -> None:
        torch.manual_seed(seed)
        _copy_with(original, folder, lambda _, tensor: (
            tensor + 0.1 * tensor.std() * torch.randn_like(tensor) if tensor.ndim == 2 else tensor
        ))  # fmt: skip

    return made_once(f"{name}-noisy-{seed}", make)


def widened_folder(original: Path) -> Path:
    """A BERT of twice the width, with each hidden state twice, and the original's answers."""
    config = json.loads((original / "config.json").read_text("utf-8"))
    sizes = ("hidden_size", "intermediate_size", "num_attention_heads")
    doubled = {size: 2 * config[size] for size in sizes}
    return made_once(
        f"{original.name}-wide", lambda folder: _copy_with(original, folder, _widened, **doubled)
    )


def _widened(key: str, tensor: torch.Tensor) -> torch.Tensor:
    if key.startswith("cls.predictions.") and ("decoder" in key or key.endswith("s.bias")):
        return torch.cat([tensor] * 2, dim=1) if tensor.ndim == 2 else tensor
    if "embeddings" in key and tensor.ndim == 2:
        return torch.cat([tensor] * 2, dim=1)
    if tensor.ndim == 2:
        return tensor.repeat(2, 2) / 2
    # The output layer sums over both copies, as it shares its weights with the embeddings.
    return tensor.repeat(2) / (2 if "transform.LayerNorm" in key else 1)


def _copy_in_float32(source: Path, folder: Path) -> None:
    """Store float32 weights, as not every peer can compute in another type than the file's."""
    types = dict.fromkeys(("dtype", "torch_dtype"), "float32")
    _copy_with(source, folder, lambda _, tensor: tensor.to(torch.float32), **types)


def _copy_with(
    source: Path, folder: Path, change: Callable[[str, torch.Tensor], torch.Tensor], **config: Any
) -> None:
    shutil.copytree(source, folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    known = json.loads((source / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(known | config), "utf-8")
    weights = load_file(source / "model.safetensors")
    changed = {key: change(key, tensor).contiguous() for key, tensor in weights.items()}
    save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
