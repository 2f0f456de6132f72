"""Damaged, incomplete, hostile or absurd models, and a pattern for each message."""

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch

from helpers.hub import files as of
from helpers.hub.files import Files, Payload, written
from helpers.hub.layouts import adapter_config, lora
from helpers.hub.plain import plain_lm
from helpers.tiny_classifiers import tiny_classifier


@dataclass(frozen=True, slots=True)
class Damage:
    """A repository that cannot be loaded: its files, and a pattern that the message must match."""

    make: Callable[[], Files]
    named: str
    options: tuple[str, ...] = ("--label-order", "e,n,c")

    def write(self, folder: Path) -> Path:
        return written(self.make(), folder)


def _plain() -> Path:
    return tiny_classifier("bert-uncased")


@lru_cache(None)
def _whole() -> dict[str, bytes]:
    weights = of.safetensors_of(of.tensors_of(_plain()))
    return of.config_of(_plain()) | of.whole_tokenizer(_plain()) | weights


def _but(*left_out: str, **changed: bytes) -> Callable[[], Files]:
    """All files but some; in the names of changed ones, `__` stands for a dot."""
    return lambda: {
        **{path: content for path, content in _whole().items() if path not in left_out},
        **{name.replace("__", "."): content for name, content in changed.items()},
    }


def _config(**changes: Any) -> Callable[[], Files]:
    return lambda: _whole() | of.config_of(_plain(), **changes)


def _pickle(write: Callable[[of.Tensors], Files]) -> Callable[[], Files]:
    return lambda: {**_but("model.safetensors")(), **write(of.tensors_of(_plain()))}


def _pickled(content: Callable[[of.Tensors], bytes]) -> Damage:
    return Damage(_pickle(lambda t: {"pytorch_model.bin": content(t)}), r"pytorch_model\.bin")


def _bytes(change: Callable[[bytes], bytes]) -> Damage:
    """Weights of which the file's bytes are changed."""
    return Damage(
        lambda: _but(model__safetensors=change(_whole()["model.safetensors"]))(),
        r"model\.safetensors",
    )


def _tensors(change: Callable[[dict[str, torch.Tensor]], of.Tensors]) -> Callable[[], Files]:
    return lambda: _whole() | of.safetensors_of(change(of.tensors_of(_plain())))


def _without(name: str) -> Callable[[], Files]:
    """Weights without the tensors whose names begin so."""
    return _tensors(lambda tensors: {k: v for k, v in tensors.items() if not k.startswith(name)})


def _shards(left_out: str = "", *, place: str = "") -> Callable[[], Files]:
    """Two shards without one of them, or with another place of a tensor in the index."""

    def make() -> Files:
        files = dict(of.safetensors_of(of.tensors_of(_plain()), shards=2))
        index = json.loads(files["model.safetensors.index.json"])
        if place:
            index["weight_map"]["classifier.weight"] = place
        files["model.safetensors.index.json"] = of.as_json(index)
        files = {**_but("model.safetensors")(), **files}
        return {path: content for path, content in files.items() if path != left_out}

    return make


_QUERY = "bert.encoder.layer.1.attention.self.query.weight"
_INNER = "bert.encoder.layer.1.intermediate.dense.weight"


def _custom() -> Files:
    changes = {
        "architectures": ["BertForNaturalLanguageInference"],
        "auto_map": {"AutoConfig": "modeling_nli.BertNliConfig",
            "AutoModelForSequenceClassification": "modeling_nli.BertForNaturalLanguageInference"},
    }  # fmt: skip
    return _config(**changes)() | {"modeling_nli.py": of.REMOTE_CODE}


def _custom_tokenizer() -> Files:
    config = {
        "tokenizer_class": "NliTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_nli.NliTokenizer", None]},
    }
    files = _but("tokenizer.json", tokenizer_config__json=of.as_json(config))()
    return {**files, "tokenization_nli.py": of.REMOTE_CODE}


def _gguf(share: float | None) -> Damage:
    def make() -> Files:
        from helpers.gguf_files import write_llama
        from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
        from helpers.tiny_models import scratch

        if share is None:
            return {"model.gguf": b"not a GGUF file at all" * 10}
        target = scratch("llama.gguf")
        if not target.exists():
            plain_lm("llama-bytes")
            write_llama(tiny_lm("llama-bytes"), tiny_tokenizer("llama-bytes"), target)
        content = target.read_bytes()
        return {"model.gguf": content[: int(len(content) * share)]}

    return Damage(make, r"model\.gguf", ("--gguf-file", "model.gguf"))


def _adapter(**changes: Any) -> Callable[[], Files]:
    return lambda: {**lora(), **adapter_config(**changes)}


def _adapter_payload() -> Files:
    files = {path: content for path, content in lora().items() if "safetensors" not in path}
    return files | {"adapter_model.bin": of.PAYLOAD}


DAMAGES: Final[Mapping[str, Damage]] = {
    # Half downloads and broken files.
    "cut/half": _bytes(lambda whole: whole[: len(whole) // 2]),
    "cut/header-garbled": _bytes(lambda whole: whole[:8] + b"\xff" * 32 + whole[40:]),
    "cut/pointer": _bytes(lambda whole: of.LFS_POINTER),
    "cut/pickle-pointer": _pickled(lambda _: of.LFS_POINTER),
    "cut/gguf": _gguf(0.5),
    "cut/gguf-none": _gguf(None),
    # Indices.
    "index/upwards": Damage(_shards(place="../../../../etc/passwd"), r"index\.json"),
    "index/another-format": Damage(_shards(place="pytorch_model.bin"), r"index\.json"),
    "index/shard-missing": Damage(
        _shards("model-00002-of-00002.safetensors"), r"model-00002-of-00002\.safetensors"
    ),
    "index/a-list": Damage(
        lambda: {**_shards()(), "model.safetensors.index.json": b"[]"}, r"index\.json"
    ),
    # Configurations.
    "config/layers": Damage(_config(num_hidden_layers=10_000_000), r"num_hidden_layers|layers"),
    "config/vocabulary": Damage(_config(vocab_size=4_000_000_000), r"vocab_size|word_embeddings"),
    "config/text-for-number": Damage(_config(hidden_size="many"), r"config\.json|hidden_size"),
    "config/no-json": Damage(_but(config__json=b"{"), r"config\.json"),
    "config/empty": Damage(_but(config__json=b"{}"), r"config|nothing"),
    "config/none": Damage(_but("config.json"), r"config\.json"),
    "config/unknown-type": Damage(_config(model_type="bert-of-mine"), r"a type .* 'bert-of-mine'"),
    "config/gptq": Damage(
        _config(quantization_config={"quant_method": "gptq", "bits": 4}),
        r"not quantised, got GPTQ: take .* --base-url.* pip install optimum gptqmodel",
    ),
    "config/no-names": Damage(
        _config(id2label=None, label2id=None), r"got LABEL_0, LABEL_1, LABEL_2: nothing says", ()
    ),
    "weights/no-number": Damage(
        _tensors(lambda t: t | {_QUERY: t[_QUERY] * float("nan")}),
        rf"got nan in {_QUERY}: .* is damaged",
    ),
    "weights/overflow": Damage(
        _tensors(lambda t: t | {_QUERY: t[_QUERY] + 1e5}),
        rf"got inf in {_QUERY}: .* --dtype bfloat16",
        ("--label-order", "e,n,c", "--dtype", "float16"),
    ),
    "weights/missing": Damage(_without(_QUERY), rf"all weights of a Bert.* lacks 1.*{_QUERY}"),
    "config/custom-head": Damage(_custom, r"got BertForNatural\w+, which needs code"),
    "sizes": Damage(
        _tensors(lambda t: t | {_INNER: torch.zeros(48, 32)}), _INNER.replace(".", r"\.")
    ),
    "no-head": Damage(_without("classifier"), r"classifier"),
    # Tokenizers.
    "tokenizer/none": Damage(_but("tokenizer.json", "tokenizer_config.json"), r"tokenizer"),
    "tokenizer/no-json": Damage(_but(tokenizer__json=b"{"), r"tokenizer"),
    "tokenizer/of-another-model": Damage(
        lambda: {**_whole(), **of.whole_tokenizer(tiny_classifier("roberta"))},
        r"tokenizer\.json: expected a tokenizer of at most \d+ tokens.* got \d+",
    ),
    "tokenizer/custom": Damage(_custom_tokenizer, r"tokenizer|NliTokenizer"),
    # Weights in a format that is not read.
    "weights/tensorflow": Damage(_but("model.safetensors", tf_model__h5=b"HDF"), r"safetensors"),
    # Pickles that run code.
    "payload/zip": Damage(
        _pickle(lambda t: of.pickles_of(t, more=Payload())), r"pytorch_model\.bin"
    ),
    "payload/old": Damage(
        _pickle(lambda t: of.pickles_of(t, old=True, more=Payload())), r"pytorch_model\.bin"
    ),
    "payload/bare": _pickled(lambda _: pickle.dumps({"state": Payload()})),
    "payload/sharded": Damage(
        _pickle(lambda t: of.pickles_of(t, shards=2, more=Payload())), r"pytorch_model-0000.*\.bin"
    ),
    "payload/whole-model": _pickled(lambda _: of.pickled(torch.nn.Linear(2, 2))),
    "payload/adapter": Damage(_adapter_payload, r"adapter_model\.bin"),
    # Adapters.
    "adapter/of-a-path": Damage(
        _adapter(base_model_name_or_path="/home/someone/bert"), r"/home/someone/bert"
    ),
    "adapter/cut": Damage(
        lambda: {
            path: content[: 2000 if path.endswith(".safetensors") else None]
            for path, content in lora().items()
        },
        r"adapter_model\.safetensors",
    ),
    "adapter/unknown-kind": Damage(_adapter(peft_type="MAGIC"), r"MAGIC|adapter_config\.json"),
    "adapter/no-weights": Damage(
        lambda: {path: c for path, c in lora().items() if not path.startswith("adapter_model")},
        r"adapter_model",
    ),
    "adapter/another-rank": Damage(_adapter(r=8), r"adapter|lora"),
}  # fmt: skip
