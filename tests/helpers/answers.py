from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def answers(model: Any, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
    """Label probabilities (n, 3) of pairs, each of which must be answered exactly once."""
    result = np.full((len(pairs), 3), np.nan)
    for batch in model.answer(pairs):
        rows, probabilities = batch.positions, batch.probabilities
        assert probabilities.shape == (len(rows), 3)
        assert probabilities.dtype == np.float64
        assert np.isnan(result[rows]).all()
        assert len(set(rows)) == len(rows)
        result[rows] = probabilities
    assert not np.isnan(result).any()
    return result
