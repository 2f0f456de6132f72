"""Models: everything that loads weights or asks an endpoint.

A model gives probabilities of the labels for pairs of texts, as `Model` says; `open_model`
finds out of which kind one is. Weights of all kinds are loaded by `checkpoints`.

>>> from merge_metric.demo import MODEL
>>> from merge_metric.models import Classifier
>>> model = Classifier.load(MODEL, device="cpu")
>>> model.label_order.names
['entailment', 'neutral', 'contradiction']
>>> for answers in model.answer([("A man sleeps.", "Nobody sleeps.")]):
...     print(answers.positions, answers.labels)
[0] [2]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from merge_dataset import lazy_names

if TYPE_CHECKING:
    from merge_metric.models.classifier import Classifier
    from merge_metric.models.label_order import LabelOrder, parse_order
    from merge_metric.models.language_model import LanguageModel
    from merge_metric.models.loading import open_model
    from merge_metric.models.pair_model import Answers, Model, ModelRequest, Pair
    from merge_metric.models.prompts import read_prompt
    from merge_metric.models.readiness import read_presets
    from merge_metric.models.remote import RemoteModel
    from merge_metric.models.templates import Prompt

__all__ = [
    "Answers",
    "Classifier",
    "LabelOrder",
    "LanguageModel",
    "Model",
    "ModelRequest",
    "Pair",
    "Prompt",
    "RemoteModel",
    "open_model",
    "parse_order",
    "read_presets",
    "read_prompt",
]

__getattr__ = lazy_names(__name__, __file__)
