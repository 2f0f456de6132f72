import shutil
from pathlib import Path

import numpy as np
import torch
from helpers.tiny_models import sentences, tiny_model
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from merge_metric.analyses.overlap import load_encoder

TEXTS = [*sentences(12), "A dog.", "A dog runs in the park and another dog sleeps.", "A dog."]


def states(folder: Path, text: str) -> NDArray[np.float64]:
    """Last-layer vectors (tokens, d) of one sentence alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        result = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    return np.asarray(result, np.float64)


def test_weights_in_half_precision_are_run_in_full(tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("bert-uncased"), tmp_path / "half")
    AutoModel.from_pretrained(folder, dtype=torch.float16).save_pretrained(folder)
    result = load_encoder(str(folder))(TEXTS[:3])
    expected = np.array([states(folder, text).mean(axis=0) for text in TEXTS[:3]])
    np.testing.assert_allclose(result, expected, atol=1e-5)
