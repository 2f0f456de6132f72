"""Baselines: what can be had without reading the premise, or without reading at all.

The only module here that imports scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.schema import LABELS
from merge_metric.predict.training import TrainingData

if TYPE_CHECKING:
    from merge_metric.predict.problems import Pair

_BATCH: Final = 10_000
_WORDS: Final = {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}
_CHARACTERS: Final = {"analyzer": "char_wb", "ngram_range": (2, 5)}
_COMMON: Final = {"lowercase": True, "min_df": 2, "sublinear_tf": True, "dtype": np.float32}
_ITERATIONS: Final = 200


class HypothesisOnly:
    """Logistic regression on the hypothesis's n-grams of words and characters, TF-IDF.

    What it gets right above chance shows what the hypotheses alone give away (Gururangan
    et al. 2018; paper, footnote 8).
    """

    def __init__(self, data: TrainingData) -> None:
        """Train; the same data give the same model."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import FeatureUnion, Pipeline
        from threadpoolctl import threadpool_limits

        features = FeatureUnion(
            [
                ("words", TfidfVectorizer(**_WORDS, **_COMMON)),
                ("characters", TfidfVectorizer(**_CHARACTERS, **_COMMON)),
            ]
        )
        regression = LogisticRegression(solver="lbfgs", max_iter=_ITERATIONS)
        self._model: Any = Pipeline([("features", features), ("regression", regression)])
        with threadpool_limits(1):  # sums in one order, whatever the machine
            self._model.fit(data.hypotheses, data.labels)
        self._training = data.description

    def describe(self) -> dict[str, Any]:
        """What determines the probabilities."""
        import sklearn

        return {
            "kind": "baseline",
            "name": "hypothesis-only",
            "revision": str(self._training["sha256"]),
            "training_data": self._training,
            "features": "TF-IDF of word 1- to 2-grams and, within words, character 2- to 5-grams",
            "packages": {"scikit-learn": sklearn.__version__},
        }

    def probabilities(
        self, pairs: Sequence[Pair]
    ) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
        """Probabilities of the labels; of each pair only the hypothesis is read."""
        places: dict[str, list[int]] = {}
        for position, (_, hypothesis) in enumerate(pairs):
            places.setdefault(hypothesis, []).append(position)
        hypotheses = list(places)
        for start in range(0, len(hypotheses), _BATCH):
            some = hypotheses[start : start + _BATCH]
            answers = np.zeros((len(some), len(LABELS)))
            answers[:, self._model.classes_] = self._model.predict_proba(some)
            counts = [len(places[hypothesis]) for hypothesis in some]
            yield (
                [position for hypothesis in some for position in places[hypothesis]],
                answers.repeat(counts, axis=0),
            )


class Majority:
    """Always the most frequent label; probabilities are the labels' frequencies."""

    def __init__(
        self,
        labels: NDArray[np.int64],
        source: dict[str, object],
        known: tuple[str, ...] = LABELS,
    ) -> None:
        """Count.

        Args:
            labels: (n,), positions among the labels; n > 0.
            source: Where they are from, for the metadata.
            known: The labels of the problems.
        """
        self._frequencies = np.bincount(labels, minlength=len(known)) / len(labels)
        self._source, self._known = source, known

    def describe(self) -> dict[str, Any]:
        """What determines the probabilities."""
        return {
            "kind": "baseline",
            "name": "majority",
            "revision": None,
            "label_source": self._source,
            "frequencies": dict(zip(self._known, self._frequencies.tolist(), strict=True)),
        }

    def probabilities(
        self, pairs: Sequence[Pair]
    ) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
        """The same probabilities for every pair."""
        for start in range(0, len(pairs), _BATCH):
            positions = list(range(start, min(start + _BATCH, len(pairs))))
            yield positions, np.tile(self._frequencies, (len(positions), 1))
