"""Baselines, which read no premises, or nothing at all; and the files they are trained on.

The only module here that imports scikit-learn.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from merge_dataset import json_lines as jsonl
from merge_dataset.files import digest_of_file
from merge_dataset.known_sources import COLUMN_NAMES
from merge_dataset.schema import LABELS
from merge_metric.models.pair_model import Pair

_BATCH: Final = 10_000
_WORDS: Final = {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}
_CHARACTERS: Final = {"analyzer": "char_wb", "ngram_range": (2, 5)}
_COMMON: Final = {"lowercase": True, "min_df": 2, "sublinear_tf": True, "dtype": np.float32}
_ITERATIONS: Final = 200

_UNLABELLED: Final = ("-", "", "-1", "None", "hidden")
_SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".csv", ".tsv", ".txt", ".parquet")

log = logging.getLogger(__name__)


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
        """Describe what determines the probabilities."""
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
        """Yield probabilities of the labels; of each pair only the hypothesis is read."""
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
        """Describe what determines the probabilities."""
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
        """Yield the labels' frequencies for every pair."""
        for start in range(0, len(pairs), _BATCH):
            positions = list(range(start, min(start + _BATCH, len(pairs))))
            yield positions, np.tile(self._frequencies, (len(positions), 1))


# --- Training data ---


@dataclass(frozen=True, slots=True, eq=False)
class TrainingData:
    """Hypotheses with gold labels, out of a file of NLI problems."""

    hypotheses: list[str]
    labels: NDArray[np.int64]
    """(n,), positions in `LABELS`."""
    description: dict[str, object]
    """Name and digest of the file, and what was left out."""


def read_training_data(
    path: Path, *, hypothesis_column: str | None = None, label_column: str | None = None
) -> TrainingData:
    """Read the hypotheses and labels of a file; problems without a label are left out.

    Args:
        path: JSON lines, comma- or tab-separated values with a header, or Parquet, by its
            suffix. Labels are names or positions in `LABELS`.
        hypothesis_column: Its name; by default one of the usual ones (`COLUMN_NAMES`).
        label_column: Its name; by default one of the usual ones (`COLUMN_NAMES`).

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read, lacks a column, has unknown labels or only one.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of NLI problems, found no file there")
    hypothesis = (hypothesis_column,) if hypothesis_column else COLUMN_NAMES["hypothesis"]
    label = (label_column,) if label_column else COLUMN_NAMES["label"]
    table = _read(path, hypothesis, label)
    texts = _column(table, hypothesis, path).to_pylist()
    names = [str(value) for value in _column(table, label, path).to_pylist()]
    codes = {name: code for code, name in enumerate(LABELS)}
    codes |= {str(code): code for code in codes.values()}
    if unknown := sorted(set(names) - set(codes) - set(_UNLABELLED)):
        raise ValueError(
            f"{path}: expected the labels {', '.join(LABELS)} or 0, 1, 2, got "
            f"{', '.join(map(repr, unknown[:5]))}"
        )
    kept = [row for row, (text, name) in enumerate(zip(texts, names, strict=True))
            if name in codes and text]  # fmt: skip
    labels = np.array([codes[names[row]] for row in kept], np.int64)
    if len(np.unique(labels)) < 2:
        raise ValueError(f"{path}: expected problems of several labels, got {len(kept)} problems")
    if left_out := len(names) - len(kept):
        log.info("%s: %s problems without a label or hypothesis left out", path, f"{left_out:,}")
    return TrainingData(
        [texts[row] for row in kept],
        labels,
        {
            "file": path.name,
            "sha256": digest_of_file(path),
            "problems": len(kept),
            "left_out": left_out,
        },
    )


def _read(path: Path, hypothesis: Sequence[str], label: Sequence[str]) -> pa.Table:
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        types: dict[str, Sequence[pa.DataType]] = dict.fromkeys(hypothesis, (pa.string(),))
        types |= dict.fromkeys(label, (pa.int64(), pa.string()))
        return jsonl.read(path, types)
    try:
        if path.suffix == ".parquet":
            return pq.ParquetFile(path).read()
        if path.suffix in {".csv", ".tsv", ".txt"}:
            separator = "," if path.suffix == ".csv" else "\t"
            # The releases' tab-separated files have quotation marks as they are.
            quote = '"' if path.suffix == ".csv" else False
            options = pv.ParseOptions(
                delimiter=separator, quote_char=quote, newlines_in_values=bool(quote)
            )
            types = dict.fromkeys((*hypothesis, *label), pa.string())
            return pv.read_csv(
                path,
                parse_options=options,
                convert_options=pv.ConvertOptions(column_types=types, strings_can_be_null=False),
            )
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: could not be read: {error}") from error
    raise ValueError(
        f"{path}: expected a name that ends in {', '.join(_SUFFIXES)}, got {path.suffix!r}"
    )


def _column(table: pa.Table, names: Sequence[str], path: Path) -> pa.ChunkedArray:
    for name in names:
        if name in table.column_names:
            return table[name]
    raise ValueError(
        f"{path}: expected a column {' or '.join(names)}, got "
        f"{', '.join(table.column_names) or 'none of them'}; name it by --hypothesis-column or "
        f"--label-column"
    )
