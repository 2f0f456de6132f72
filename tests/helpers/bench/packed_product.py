"""The yardstick: matrix products in a model's shapes, with weights packed once."""

import json
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from helpers.bench.contender import Contender
from helpers.bench.results import Asked

ROWS: Final = 512
"""Rows of a product: about a batch of sentences."""


def layer_products(hidden: int, inner: int) -> list[tuple[int, int]]:
    """List the products of a transformer's layer, (in, out): attention's four, then two."""
    return [(hidden, hidden)] * 4 + [(hidden, inner), (inner, hidden)]


def packed_products(hidden: int, inner: int, dtype: str) -> Callable[[], None]:
    import torch
    from torch import nn

    from merge_metric.models.fast_layers import PackedLinear

    torch.set_num_threads(1)
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    layers = [PackedLinear(nn.Linear(*shape).to(kind)) for shape in layer_products(hidden, inner)]
    inputs = {size: torch.randn(ROWS, size, dtype=kind) for size in {hidden, inner}}

    def answer() -> None:
        with torch.inference_mode():
            for layer, (size, _) in zip(layers, layer_products(hidden, inner), strict=True):
                layer(inputs[size])

    return answer


def packed(folder: Path, dtype: str = "float32") -> Contender:
    """The yardstick of a model's shape."""
    hidden, inner = shape_of(folder)
    arguments = {"hidden": hidden, "inner": inner, "dtype": dtype}
    return Contender(f"packed products, {dtype}", packed_products, arguments)


def speed_of(products: Asked) -> float:
    """Operations per CPU second of a yardstick."""
    hidden, inner = (products.contender.arguments[name] for name in ("hidden", "inner"))
    return products_flop(hidden, inner) / statistics.median(r.cpu for r in products.replies)


def products_flop(hidden: int, inner: int) -> float:
    return sum(2.0 * ROWS * wide * high for wide, high in layer_products(hidden, inner))


def shape_of(folder: Path) -> tuple[int, int]:
    config = _config(folder)
    return config["hidden_size"], config["intermediate_size"]


def question_flop(folder: Path, texts: list[str]) -> float:
    """Average operations of a masked question, in the layers and the head."""
    config, (hidden, inner) = _config(folder), shape_of(folder)
    encode = Tokenizer.from_file(str(folder / "tokenizer.json")).encode
    tokens = sum(len(encode(text).ids) for text in texts) / len(texts)
    layer = sum(2.0 * wide * high for wide, high in layer_products(hidden, inner))
    narrow = config.get("embedding_size", hidden)
    head = 2.0 * (hidden * narrow + narrow * config["vocab_size"])
    return float(tokens * config["num_hidden_layers"] * layer + head)


def classifier_flop(folder: Path, pairs: list[tuple[str, str]]) -> float:
    """Average operations of a pair: the layers' products."""
    encode = Tokenizer.from_file(str(folder / "tokenizer.json")).encode
    tokens = sum(len(encode(*pair).ids) for pair in pairs) / len(pairs)
    layer = sum(2.0 * wide * high for wide, high in layer_products(*shape_of(folder)))
    return float(tokens * _config(folder)["num_hidden_layers"] * layer)


def _config(folder: Path) -> Mapping[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))
