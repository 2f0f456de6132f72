"""Predictions → figures: score a model's answers, compare models, report on them.

`evaluate_model` asks a model, whatever it is, about a dataset and gives its figures. Predictions
files are scored by `score_file`, beside a dataset folder or alone; `read_frames` gives what all
further figures start from. Columns in memory are scored by the metric itself,
`seed_variant_accuracy.scoring.score`, which is also what `evaluate.load` finds.

A predictions file has a row per problem; a seed's own row is the one whose `variant_id` is the
seed's id:

>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> from pyarrow import table
>>> from merge_metric import score_file, write_predictions
>>> answers = table({"variant_id": ["a", "a/1", "b", "b/1"], "seed_id": ["a", "a", "b", "b"],
...                  "label": ["neutral"] * 4, "prediction": ["neutral"] * 3 + ["entailment"]})
>>> with TemporaryDirectory() as folder:
...     write_predictions(Path(folder, "bert.parquet"), answers)
...     (figures,) = score_file(Path(folder, "bert.parquet"), n_bootstrap=0).values()
>>> figures["seed_accuracy"], figures["seed_variant_accuracy"]
(1.0, 0.5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from merge_dataset import lazy_names

if TYPE_CHECKING:
    from merge_metric.analyses import analyse
    from merge_metric.compare import Comparison, compare_models
    from merge_metric.evaluation import Evaluation, evaluate_model
    from merge_metric.frame.joined import Frame, read_frames
    from merge_metric.frame.per_seed import seed_results
    from merge_metric.frame.predictions import read_predictions, write_predictions
    from merge_metric.register import register_metric
    from merge_metric.report.evidence import gather_evidence
    from merge_metric.report.write import write_report
    from merge_metric.score import score_file, score_frame
    from merge_metric.tables import Table
    from merge_metric.training import SeedVariantCallback

__all__ = [
    "Comparison",
    "Evaluation",
    "Frame",
    "SeedVariantCallback",
    "Table",
    "analyse",
    "compare_models",
    "evaluate_model",
    "gather_evidence",
    "read_frames",
    "read_predictions",
    "register_metric",
    "score_file",
    "score_frame",
    "seed_results",
    "write_predictions",
    "write_report",
]

__getattr__ = lazy_names(__name__, __file__)
