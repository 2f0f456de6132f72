import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import sentences, tiny_model
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModel, AutoTokenizer

from merge_metric.analyses.overlap import cosine_distances, load_encoder

TEXTS = [*sentences(12), "A dog.", "A dog runs in the park and another dog sleeps.", "A dog."]


def states(folder: Path, text: str) -> NDArray[np.float64]:
    """Last-layer vectors (tokens, d) of one sentence alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        found = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    return np.asarray(found, np.float64)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as on the Hub, whose embedding is the first token's vector, with length 1."""
    folder = tmp_path_factory.mktemp("encoder")
    shutil.copytree(tiny_model("bert-uncased"), folder, dirs_exist_ok=True)
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    steps = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{name}"}
        for n, (name, path) in enumerate(modules)
    ]
    for _, path in modules[1:]:
        (folder / path).mkdir()
    size = AutoConfig.from_pretrained(folder).hidden_size
    pooling = {"word_embedding_dimension": size, "pooling_mode_cls_token": True}
    pooling["pooling_mode_mean_tokens"] = False
    (folder / "modules.json").write_text(json.dumps(steps))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.mark.slow
def test_other_encoders_are_averaged_over_tokens() -> None:
    folder = tiny_model("bert-uncased")
    found = load_encoder(str(folder))(TEXTS)
    expected = np.array([states(folder, text).mean(axis=0) for text in TEXTS])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float64
    assert np.array_equal(found[-1], found[-3])


@pytest.mark.slow
def test_the_model_says_how_it_pools(saved: Path) -> None:
    found = load_encoder(str(saved))(TEXTS)
    first = np.array([states(saved, text)[0] for text in TEXTS])
    expected = first / np.linalg.norm(first, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    distances = cosine_distances(TEXTS[:5], TEXTS[5:10], load_encoder(str(saved)))
    by_hand = [1 - a @ b for a, b in zip(expected[:5], expected[5:10], strict=True)]
    np.testing.assert_allclose(distances, by_hand, atol=1e-5)


def test_weights_in_half_precision_are_run_in_full(tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("bert-uncased"), tmp_path / "half")
    AutoModel.from_pretrained(folder, dtype=torch.float16).save_pretrained(folder)
    found = load_encoder(str(folder))(TEXTS[:3])
    expected = np.array([states(folder, text).mean(axis=0) for text in TEXTS[:3]])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_folders_without_a_usable_model_are_told(tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("bert-uncased"), tmp_path / "pickled")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    for name in (str(tmp_path), "nobody/nothing", str(folder)):
        with pytest.raises(ValueError, match="expected a sentence encoder with safetensors") as e:
            load_encoder(name)
        assert repr(name) in str(e.value)
