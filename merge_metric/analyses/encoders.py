"""Sentence encoders from a folder or the Hub. No code of theirs is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merge_metric.analyses.distances import Encode


def load_encoder(name: str) -> Encode:
    """Load a sentence encoder.

    Args:
        name: A model of sentence-transformers, directory or Hub id, with safetensors weights. Of
            any other encoder of transformers the tokens' vectors are averaged.

    Returns:
        Sentences → embeddings, as the model itself pools and scales them.

    Raises:
        ValueError: there is no such model, or its weights are in another format.
    """
    from sentence_transformers import SentenceTransformer

    try:
        model: Any = SentenceTransformer(
            name,
            trust_remote_code=False,
            # Full precision whatever is stored: distances are small differences of products.
            model_kwargs={"use_safetensors": True, "dtype": "float32"},
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"expected a sentence encoder with safetensors weights, in a folder or on the Hub, "
            f"could not load {name!r}: {error}"
        ) from error

    def encode(texts: Sequence[str]) -> NDArray[np.float64]:
        found = model.encode(
            list(texts), convert_to_numpy=True, show_progress_bar=len(texts) > 1000
        )
        return np.asarray(found, np.float64)

    return encode
