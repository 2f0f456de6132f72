"""Imitations of models on the Hub: tiny random weights, in the layouts of real repositories."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, Literal

import safetensors.torch
import torch

from helpers.dataset_files import files_of
from helpers.hub import files as of
from helpers.hub.files import Files, noise, renamed, tensors_of, written
from helpers.hub.plain import (
    LABELS,
    balanced,
    of_pieces,
    pieces_files,
    plain_classifier,
    plain_lm,
    rounded,
)
from helpers.tiny_models import scratch, tiny_model

CONVERSION: Final = "Adding `safetensors` variant of this model"
"""Title of the conversion service's pull requests."""

Task = Literal["mlm", "classifier", "lm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    task: Task
    make: Callable[[], Files]
    plain: Callable[[], Path] | None = None  # model with the same weights; None if refused
    order: str | None = None  # meaning of its classes, if its configuration lacks it
    gated: bool = False
    conversion: Callable[[], Files] | None = None  # files of the service's open pull request
    moved_from: Sequence[str] = ()  # ids that redirect to it
    refused: str = ""  # part of the message

    @property
    def files(self) -> Files:
        return _made(self.make)

    def write(self, folder: Path) -> Path:
        return written(self.files, folder)


@lru_cache(None)
def _made(make: Callable[[], Files]) -> Files:
    return make()


# --- Weights under their old names ---


def old_bert(folder: Path) -> dict[str, torch.Tensor]:
    """Masked LMs of 2018: gamma and beta, a decoder, a next-sentence head, a pooler."""
    tensors = tensors_of(folder)
    size = tensors["bert.embeddings.word_embeddings.weight"].shape[1]
    return renamed(
        tensors
        | {
            "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
            "cls.seq_relationship.weight": noise(2, size),
            "cls.seq_relationship.bias": noise(2),
            "bert.pooler.dense.weight": noise(size, size),
            "bert.pooler.dense.bias": noise(size),
        },
        *of.OLD_NORMS,
    )


def old_roberta(folder: Path, *, decoder: bool) -> dict[str, torch.Tensor]:
    """RoBERTa with a buffer of positions and a pooler, and optionally the tied decoder."""
    tensors = tensors_of(folder)
    words = tensors["roberta.embeddings.word_embeddings.weight"]
    positions = torch.arange(tensors["roberta.embeddings.position_embeddings.weight"].shape[0])
    more = {
        "roberta.embeddings.position_ids": positions[None],
        "roberta.pooler.dense.weight": noise(words.shape[1], words.shape[1]),
        "roberta.pooler.dense.bias": noise(words.shape[1]),
    }
    if decoder:
        more |= {"lm_head.decoder.weight": words, "lm_head.decoder.bias": tensors["lm_head.bias"]}
    return tensors | more


def old_albert(folder: Path) -> dict[str, torch.Tensor]:
    """ALBERT with the tied decoder, a head for the order of sentences, and a pooler."""
    tensors = tensors_of(folder)
    words = tensors["albert.embeddings.word_embeddings.weight"]
    size = tensors["predictions.dense.weight"].shape[1]
    return tensors | {
        "predictions.decoder.weight": words,
        "predictions.decoder.bias": tensors["predictions.bias"],
        "albert.embeddings.position_ids": torch.arange(64)[None],
        "albert.pooler.weight": noise(size, size),
        "albert.pooler.bias": noise(size),
        "sop_classifier.classifier.weight": noise(2, size),
        "sop_classifier.classifier.bias": noise(2),
    }


def old_electra(folder: Path) -> dict[str, torch.Tensor]:
    tensors = tensors_of(folder)
    words = tensors["electra.embeddings.word_embeddings.weight"]
    return tensors | {
        "generator_lm_head.weight": words,
        "electra.embeddings.position_ids": torch.arange(64)[None],
    }


def old_deberta(folder: Path) -> dict[str, torch.Tensor]:
    """Microsoft's masked LMs: another name of the head, and a second head."""
    tensors = renamed(
        tensors_of(folder),
        (r"^cls\.predictions\.transform\.", "lm_predictions.lm_head."),
        (r"^cls\.predictions\.", "lm_predictions.lm_head."),
    )
    size = tensors["lm_predictions.lm_head.dense.weight"].shape[0]
    return tensors | {"mask_predictions.dense.weight": noise(size, size)}


def old_bart(folder: Path) -> dict[str, torch.Tensor]:
    """BART with its shared embeddings under all names, versions, and the bias of another head."""
    tensors = tensors_of(folder)
    words = tensors["model.shared.weight"]
    return tensors | {
        "model.encoder.embed_tokens.weight": words,
        "model.decoder.embed_tokens.weight": words,
        "model.encoder.version": torch.tensor([3.0]),
        "model.decoder.version": torch.tensor([3.0]),
        "final_logits_bias": torch.zeros(1, words.shape[0]),
    }


def old_gpt2(folder: Path) -> dict[str, torch.Tensor]:
    mask = torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64)
    buffers = {f"transformer.h.{i}.attn.bias": mask for i in range(2)}
    buffers |= {f"transformer.h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(2)}
    return tensors_of(folder) | buffers


# --- Adapters ---

_RANK, _ALPHA = 4, 8


@lru_cache(None)
def _adapted() -> tuple[Path, dict[str, torch.Tensor]]:
    """Make a plain classifier with a merged adapter, and the adapter's tensors."""
    base = LAYOUTS["google-bert/bert-large-cased"]
    tensors = renamed(
        safetensors.torch.load(base.files["model.safetensors"]),
        (r"LayerNorm\.gamma$", "LayerNorm.weight"),
        (r"LayerNorm\.beta$", "LayerNorm.bias"),
    )
    tensors = {name: item for name, item in tensors.items() if name.startswith("bert.")}
    adapter, scale = {}, _ALPHA / _RANK
    for layer in range(2):
        for part in ("query", "value"):
            name = f"bert.encoder.layer.{layer}.attention.self.{part}"
            down, up = noise(_RANK, 32) * 0.3, noise(32, _RANK) * (0.3 + layer)
            adapter[f"base_model.model.{name}.lora_A.weight"] = down
            adapter[f"base_model.model.{name}.lora_B.weight"] = up
            tensors[f"{name}.weight"] = tensors[f"{name}.weight"] + scale * (up @ down)
    tensors |= {"classifier.weight": noise(3, 32), "classifier.bias": noise(3)}
    plain = tiny_model("bert-cased")
    names = dict(enumerate(LABELS.values()))
    changes = {
        "architectures": ["BertForSequenceClassification"],
        "id2label": {str(number): label for number, label in names.items()},
        "label2id": {label: number for number, label in names.items()},
    }
    files = files_of(plain) | of.config_of(plain, **changes) | of.safetensors_of(tensors)
    merged = balanced(written(files, scratch("adapted")), scratch("adapted-balanced"))
    for name in ("classifier.weight", "classifier.bias"):
        adapter[f"base_model.model.{name}"] = tensors_of(merged)[name]
    return merged, adapter


def adapter_config(**changes: Any) -> dict[str, bytes]:
    """Make `adapter_config.json` of a LoRA for BERT's queries and values."""
    config = {
        "base_model_name_or_path": "bert-large-cased",
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "layers_pattern": None,
        "layers_to_transform": None,
        "lora_alpha": _ALPHA,
        "lora_dropout": 0.1,
        "modules_to_save": ["classifier"],
        "peft_type": "LORA",
        "r": _RANK,
        "revision": None,
        "target_modules": ["query", "value"],
        "task_type": "SEQ_CLS",
    }
    return {"adapter_config.json": of.as_json(config | changes)}


def lora(*, pickled: bool = False, config: bool = False, **changes: Any) -> Files:
    """Make an adapter with its tokenizer; optionally with a misplaced configuration."""
    plain, tensors = _adapted()
    files = (
        adapter_config(**changes)
        | of.whole_tokenizer(plain)
        | {"README.md": b"---\nlibrary_name: peft\n"}
    )
    if config:
        files |= of.config_of(plain, architectures=["BertForMaskedLM"], **of.anonymous())
    if pickled:
        return files | {"adapter_model.bin": of.pickled(tensors)}
    (content,) = of.safetensors_of(tensors).values()
    return files | {"adapter_model.safetensors": content}


# --- Repositories ---


def _bert_mlm(kind: str) -> Files:
    plain, decoys = tiny_model(kind), ("tf_model.h5", "flax_model.msgpack", "pytorch_model.bin")
    return (
        of.config_of(plain)
        | of.safetensors_of(old_bert(plain))
        | of.word_pieces(plain, lowercase=kind == "bert-uncased")
        | of.whole_tokenizer(plain)
        | dict.fromkeys(decoys, b"not this one")
    )


def _roberta_mlm(*, decoder: bool) -> Files:
    plain = tiny_model("roberta")
    weights = of.safetensors_of(old_roberta(plain, decoder=decoder))
    return of.config_of(plain) | weights | of.byte_pairs(plain) | of.whole_tokenizer(plain)


def _albert_mlm(*, pickled: bool = False, whole: bool = True) -> Files:
    plain, write = of_pieces("albert-pieces"), of.pickles_of if pickled else of.safetensors_of
    tokenizer = of.whole_tokenizer(plain) if whole else {}
    return (
        of.config_of(plain) | write(old_albert(plain)) | pieces_files("albert-pieces") | tokenizer
    )


def _electra_mlm() -> Files:
    plain = tiny_model("electra")
    config = of.config_of(plain, architectures=["ElectraForMaskedLM"])
    tokenizer = of.word_pieces(plain, lowercase=True) | of.whole_tokenizer(plain)
    return config | of.pickles_of(old_electra(plain), old=True) | tokenizer


def _deberta_mlm() -> Files:
    plain = tiny_model("deberta")
    return (
        of.config_of(plain, legacy=None)
        | of.pickles_of(old_deberta(plain))
        | of.whole_tokenizer(plain)
    )


def _textattack() -> Files:
    plain = plain_classifier("bert-uncased")()
    positions = {"bert.embeddings.position_ids": torch.arange(64)[None]}
    config = of.config_of(plain, finetuning_task="snli", **of.anonymous())
    weights = of.pickles_of(renamed(tensors_of(plain)) | positions, old=True)
    return config | weights | of.word_pieces(plain, lowercase=True)


def classifier(
    plain: Callable[[], Path],
    *,
    tokenizer: Callable[[Path], Files] = of.whole_tokenizer,
    weights: Callable[[of.Tensors], Files] = of.safetensors_of,
    tensors: Callable[[Path], of.Tensors] = tensors_of,
    **config: Any,
) -> Files:
    """Make a classifier without names of classes, unless `config` has them."""
    folder = plain()
    settings = of.anonymous() | config
    return {**of.config_of(folder, **settings), **weights(tensors(folder)), **tokenizer(folder)}


def _named(kind: str) -> Files:
    """Make a classifier with labels in capitals, in MNLI's order, as MNLI's models have them."""
    names = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
    labels = {str(number): name for number, name in enumerate(names)}
    return classifier(
        plain_classifier(kind, "c,n,e"),
        tokenizer=of.byte_pairs,
        tensors=old_bart if kind == "bart" else tensors_of,
        id2label=labels,
        label2id={name: int(number) for number, name in labels.items()},
    )


def _gated_lm(kind: str) -> Layout:
    def make() -> Files:
        folder = plain_lm(kind)
        config = json.loads((folder / "config.json").read_text())
        weights = of.safetensors_of(tensors_of(folder), shards=2)
        return {"config.json": of.as_json(config)} | weights | of.whole_tokenizer(folder)

    return Layout(task="lm", make=make, plain=partial(plain_lm, kind), gated=True)


def _pieces(kind: str) -> Callable[[Path], Files]:
    return lambda _: pieces_files(kind)


def _as(plain: Callable[[], Path], order: str | None = "e,n,c", **options: Any) -> Layout:
    make = options.pop("make", None) or partial(classifier, plain, **options)
    return Layout(task="classifier", plain=plain, order=order, make=make)


def _mlm(plain: Callable[[], Path], make: Callable[[], Files], *moved_from: str) -> Layout:
    return Layout(task="mlm", plain=plain, make=make, moved_from=moved_from)


def _proposed(kind: str, tokenizer: Callable[[Path], Files], **more: Any) -> Layout:
    """A classifier in a pickle, for which the conversion service proposes safetensors."""
    plain = plain_classifier(kind)

    def conversion() -> Files:
        everything = classifier(plain, tokenizer=tokenizer, weights=of.pickles_of)
        return {**everything, **of.safetensors_of(tensors_of(plain()))}

    made = _as(plain, tokenizer=tokenizer, weights=of.pickles_of, **more)
    return replace(made, conversion=conversion)


_SMFA: Final = "ynie/{}-snli_mnli_fever_anli_R1_R2_R3-nli"
_wordpieces = partial(of.word_pieces, lowercase=True)

_bert_cased = partial(tiny_model, "bert-cased"), partial(_bert_mlm, "bert-cased")
_albert = partial(of_pieces, "albert-pieces"), _albert_mlm
_electra = partial(tiny_model, "electra"), _electra_mlm
_roberta_of = partial(tiny_model, "roberta")

PAPER_MLMS: Final[Mapping[str, Layout]] = {
    "google-bert/bert-base-cased": _mlm(*_bert_cased, "bert-base-cased"),
    "google-bert/bert-large-cased": _mlm(*_bert_cased, "bert-large-cased"),
    "FacebookAI/roberta-base": _mlm(_roberta_of, partial(_roberta_mlm, decoder=True)),
    "FacebookAI/roberta-large": _mlm(_roberta_of, partial(_roberta_mlm, decoder=False)),
    "albert/albert-base-v2": _mlm(*_albert),
    "albert/albert-xxlarge-v2": _mlm(*_albert),
    "google/electra-base-generator": _mlm(*_electra),
    "google/electra-large-generator": _mlm(*_electra),
}

_adapted_classifier = partial(_as, lambda: _adapted()[0])
_textattack_bert = _as(plain_classifier("bert-uncased", "c,e,n"), "c,e,n", make=_textattack)

PAPER_MODELS: Final[Mapping[str, Layout]] = {
    "varun-v-rao/bart-base-snli-model1": _as(plain_classifier("bart")),
    "textattack/bert-base-uncased-snli": _textattack_bert,
    "varun-v-rao/bert-large-cased-lora-1.58M-snli": _adapted_classifier(make=lora),
    "pepa/deberta-v3-base-snli": _proposed("deberta-pieces", _pieces("deberta-pieces")),
    "pepa/deberta-v3-large-snli": _proposed("deberta-pieces", _pieces("deberta-pieces")),
    "varun-v-rao/gpt2-large-snli-model3": _as(
        plain_classifier("gpt2"), tensors=old_gpt2, pad_token_id=None
    ),
    "utahnlp/snli_facebook_opt-1.3b_seed-3": _as(
        plain_classifier("opt"), weights=partial(of.safetensors_of, shards=2)
    ),
    "pepa/roberta-base-snli": _proposed("roberta", of.byte_pairs),
    _SMFA.format("albert-xxlarge-v2"): _as(
        plain_classifier("albert-pieces"), tokenizer=_pieces("albert-pieces"), weights=of.pickles_of
    ),
    _SMFA.format("bart-large"): _proposed("bart", of.byte_pairs, tensors=old_bart),
    _SMFA.format("electra-large-discriminator"): _proposed("electra", _wordpieces),
    _SMFA.format("roberta-large"): _proposed("roberta", of.byte_pairs),
    _SMFA.format("xlnet-large-cased"): _as(
        plain_classifier("xlnet-pieces"), tokenizer=_pieces("xlnet-pieces"), weights=of.pickles_of
    ),
    "textattack/bert-base-uncased-MNLI": _textattack_bert,
    "FacebookAI/roberta-large-mnli": replace(
        _as(plain_classifier("roberta", "c,n,e"), None, make=partial(_named, "roberta")),
        moved_from=["roberta-large-mnli"],
    ),
    "facebook/bart-large-mnli": _as(
        plain_classifier("bart", "c,n,e"), None, make=partial(_named, "bart")
    ),
    "google/gemma-2-9b": _gated_lm("gemma2"),
    "meta-llama/Llama-3.1-8B": _gated_lm("llama"),
}
"""Models of the preset "paper"; its `roberta-base-mnli` does not exist."""

ABSENT: Final = "roberta-base-mnli"


_bert, _roberta = plain_classifier("bert-uncased"), plain_classifier("roberta")
_half = partial(rounded, _bert)


def _halved(write: Callable[..., Files], dtype: torch.dtype) -> Callable[[of.Tensors], Files]:
    return lambda tensors: write({name: item.to(dtype) for name, item in tensors.items()})


OTHERS: Final[Mapping[str, Layout]] = {
    "safetensors/sharded": _as(_bert, weights=partial(of.safetensors_of, shards=3)),
    "safetensors/old-norms": _as(_bert, tensors=lambda p: renamed(tensors_of(p), *of.OLD_NORMS)),
    "safetensors/float16": _as(_half, weights=_halved(of.safetensors_of, torch.float16)),
    "safetensors/beside-a-payload": _as(
        _bert, weights=lambda t: {**of.safetensors_of(t), "pytorch_model.bin": of.PAYLOAD}
    ),
    "pickle/zip": _as(_bert, weights=of.pickles_of),
    "pickle/old": _as(_bert, weights=partial(of.pickles_of, old=True)),
    "pickle/old-from-a-gpu": _as(_bert, weights=of.from_a_gpu),
    "pickle/parameters": _as(
        _bert,
        weights=lambda t: of.pickles_of({n: torch.nn.Parameter(w, False) for n, w in t.items()}),
    ),
    "pickle/sharded": _as(_bert, weights=partial(of.pickles_of, shards=3)),
    "pickle/beside-others": _as(
        _bert,
        weights=lambda t: {
            **of.pickles_of(t), "training_args.bin": of.PAYLOAD, "optimizer.pt": of.PAYLOAD
        },
    ),
    "tokenizer/byte-pairs-only": _as(_roberta, tokenizer=of.byte_pairs),
    "tokenizer/word-pieces-only": _as(_bert, tokenizer=_wordpieces),
    "adapter/pickled": _adapted_classifier(make=partial(lora, pickled=True)),
    "adapter/stray-config": _adapted_classifier(make=partial(lora, config=True)),
    "mlm/deberta-old-head": _mlm(partial(tiny_model, "deberta"), _deberta_mlm),
    "mlm/albert-pickle-and-pieces-only": _mlm(
        _albert[0], partial(_albert_mlm, pickled=True, whole=False)
    ),
}  # fmt: skip

LAYOUTS: Final[Mapping[str, Layout]] = {**PAPER_MLMS, **PAPER_MODELS, **OTHERS}
