"""Peers with an exported graph, ONNX Runtime and OpenVINO, as experts would use them."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from helpers.bench.contender import FOLDER
from helpers.bench.fill_mask import TOP, Answer, Context, masked_texts

_BATCH_SIZES: Final = (16, 32, 64)
_TRIED: Final = 256

Runs = Callable[..., Any]
"""Token ids, attention mask, and types or positions, (texts, tokens) or (texts,) → logits."""


def suggestions(
    model: str,
    contexts: Sequence[Context],
    runtime: str,
    heads: Sequence[str],
    precision: str = "f32",
) -> Answer:
    """The masked LM in a runtime with a precision as a hint: ids; `heads` follow the trunk."""
    import numpy as np
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    mask = tokenizer.mask_token_id
    mlm = AutoModelForMaskedLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="eager"
    )

    class AtMasks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlm = mlm

        def forward(
            self, ids: torch.Tensor, attention: torch.Tensor, places: torch.Tensor
        ) -> torch.Tensor:
            trunk = getattr(self.mlm, self.mlm.base_model_prefix)
            vectors = trunk(input_ids=ids, attention_mask=attention)[0]
            vectors = vectors[torch.arange(vectors.shape[0]), places]
            for head in heads:
                vectors = getattr(self.mlm, head)(vectors)
            return vectors

    run = _runtime(AtMasks().eval(), f"{Path(model).name}.onnx", runtime, precision)
    texts = masked_texts(contexts, tokenizer.mask_token)

    def of_rows(rows: Sequence[int], size: int) -> dict[int, Any]:
        encoded = tokenizer.backend_tokenizer.encode_batch_fast([texts[i] for i in rows])
        ids = dict(zip(rows, (item.ids for item in encoded), strict=True))
        result = {}
        for batch, *inputs in _batches(ids, size, tokenizer.pad_token_id):
            places = np.array([ids[i].index(mask) for i in batch])
            logits = run(*inputs, places)
            best = np.argpartition(logits, -TOP, axis=1)[:, -TOP:]
            order = np.argsort(-np.take_along_axis(logits, best, 1), axis=1)
            result |= zip(batch, np.take_along_axis(best, order, 1), strict=True)
        return result

    return _answer(of_rows, len(texts))


def classifier(
    model: str, pairs: Sequence[tuple[str, str]], runtime: str, precision: str = "f32"
) -> Answer:
    import numpy as np
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    of_pairs = AutoModelForSequenceClassification.from_pretrained(
        model, dtype=torch.float32, attn_implementation="eager"
    )
    order = [of_pairs.config.label2id[n] for n in ("entailment", "neutral", "contradiction")]

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.of_pairs = of_pairs

        def forward(
            self, ids: torch.Tensor, attention: torch.Tensor, types: torch.Tensor
        ) -> torch.Tensor:
            result: torch.Tensor = self.of_pairs(
                input_ids=ids, attention_mask=attention, token_type_ids=types
            ).logits
            return result

    run = _runtime(Logits().eval(), f"{Path(model).name}.onnx", runtime, precision)

    def of_rows(rows: Sequence[int], size: int) -> dict[int, Any]:
        encoded = tokenizer.backend_tokenizer.encode_batch_fast([tuple(pairs[i]) for i in rows])
        both = dict(zip(rows, ((e.ids, e.type_ids) for e in encoded), strict=True))
        ids = {row: item for row, (item, _) in both.items()}
        outcome = {}
        for batch, padded, attention in _batches(ids, size, tokenizer.pad_token_id):
            types = np.zeros_like(padded)
            for i, row in enumerate(batch):
                types[i, : len(ids[row])] = both[row][1]
            logits = run(padded, attention, types)
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            outcome |= zip(batch, (odds / odds.sum(axis=1, keepdims=True))[:, order], strict=True)
        return outcome

    return _answer(of_rows, len(pairs))


def _batches(ids: dict[int, list[int]], size: int, padding: int) -> Any:
    """Yield batches of rows sorted by length, their padded token ids, and attention masks."""
    import numpy as np

    order = sorted(ids, key=lambda row: len(ids[row]))
    for first in range(0, len(order), size):
        batch = order[first : first + size]
        padded = np.full((len(batch), len(ids[batch[-1]])), padding)
        attention = np.zeros_like(padded)
        for i, row in enumerate(batch):
            padded[i, : len(ids[row])] = ids[row]
            attention[i, : len(ids[row])] = 1
        yield batch, padded, attention


def quickest(ask: Callable[[Any], object], ways: Sequence[Any]) -> Any:
    """Choose the fastest of several ways, such as batch sizes, by the second of two trials."""
    seconds = []
    for way in ways:
        ask(way)
        before = time.process_time()
        ask(way)
        seconds.append(time.process_time() - before)
    return ways[seconds.index(min(seconds))]


def _answer(of_rows: Callable[[Sequence[int], int], dict[int, Any]], count: int) -> Answer:
    tried = range(min(_TRIED, count))
    size = quickest(lambda size: of_rows(tried, size), _BATCH_SIZES)

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        result = of_rows(rows, size)
        return lambda: [result[i].tolist() for i in rows]

    return answer


def _runtime(module: Any, name: str, runtime: str, precision: str) -> Runs:
    """Export a module of three inputs, unless it is already exported, and load it in a runtime."""
    import torch

    path = FOLDER / "exported" / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{name}")
        ids = torch.arange(5, 5 + 4 * 17).view(4, 17)
        third = (
            torch.zeros_like(ids) if "types" in module.forward.__annotations__ else ids[:, 0] - 4
        )
        names = ["ids", "attention", "third"]
        axes = {item: {0: "texts", 1: "tokens"} for item in names}
        if third.ndim == 1:
            axes["third"] = {0: "texts"}
            third = third % 17
        torch.onnx.export(
            module, (ids, torch.ones_like(ids), third), partial, input_names=names,
            dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip
        partial.rename(path)
    if runtime == "openvino":
        import openvino

        settings = {
            "PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1,
        }  # fmt: skip
        compiled = openvino.Core().compile_model(path, "CPU", settings)
        request = compiled.create_infer_request()
        return lambda *inputs: request.infer(inputs, share_inputs=True, share_outputs=True)[0]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))[0]
