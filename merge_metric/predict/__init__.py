"""Runs of models over a dataset: from problems to predictions files; also baselines.

>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> import pyarrow as pa
>>> from merge_metric import read_predictions
>>> from merge_metric.demo import MODEL
>>> from merge_metric.models import Classifier
>>> from merge_metric.predict import predict
>>> problems = pa.table({"variant_id": ["a", "a/1"], "seed_id": ["a", "a"],
...                      "premise": ["A man sleeps.", "A dog sleeps."],
...                      "hypothesis": ["Nobody sleeps.", "No dog sleeps."], "label": [2, 2]})
>>> with TemporaryDirectory() as folder:
...     out = Path(folder, "bert-tiny.parquet")
...     outcome = predict(Classifier.load(MODEL, device="cpu"), problems, out, progress=False)
...     read_predictions(out)["prediction"].to_pylist()
[2, 0]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from merge_dataset import lazy_names

if TYPE_CHECKING:
    from merge_metric.predict.baselines import HypothesisOnly, Majority, read_training_data
    from merge_metric.predict.driver import Outcome, predict
    from merge_metric.predict.jobs import open_for
    from merge_metric.predict.problems import read_problems, sample_seeds

__all__ = [
    "HypothesisOnly",
    "Majority",
    "Outcome",
    "open_for",
    "predict",
    "read_problems",
    "read_training_data",
    "sample_seeds",
]

__getattr__ = lazy_names(__name__, __file__)
