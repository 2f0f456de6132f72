"""Tasks for lighteval: a module for --custom-tasks.

Written by `merge-nli export lighteval`. Needs NumPy and datasets, which the harness brings.
Figures are those of `merge-nli score`, averaged over the subsamples.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lighteval.metrics.metrics_corpus import CorpusLevelComputation
from lighteval.metrics.metrics_sample import SampleLevelComputation
from lighteval.metrics.utils.metric_utils import Metric
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.requests import Doc, SamplingMethod

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))

from merge_nli_metric import task_answers as answers  # noqa: E402

SETTINGS = json.loads((HERE / "merge_nli.json").read_text(encoding="utf-8"))
PREFIX = "merge_nli_"


class Answer(SampleLevelComputation):  # type: ignore[misc]
    """Metric of a sample: the model's answer to a problem."""

    def compute(self, doc: Doc, model_response: ModelResponse, **_: Any) -> dict[str, Any]:
        """Return a row of a predictions file with columns of the dataset."""
        return answers.answer(doc.specific, [float(each) for each in model_response.logprobs])


class Figures(CorpusLevelComputation):  # type: ignore[misc]
    """Figures of all answers.

    As these are several, lighteval makes no intervals of them; its own would resample
    variants, and those of a seed are alike.
    """

    def compute_corpus(self, items: list[dict[str, Any]]) -> dict[str, float]:
        """Map names to figures."""
        return answers.figures(items, SETTINGS["thresholds"])


def prompt(line: dict[str, Any], task_name: str) -> Doc:
    """Write a problem with the examples before it as one text."""
    settings = SETTINGS["configurations"][task_name.removeprefix(PREFIX)]
    question = SETTINGS["question"].format(premise=line["premise"], hypothesis=line["hypothesis"])
    kept = ("variant_id", "seed_id", "label", "text_digest", "subsamples", "n_problems")
    return Doc(
        query=settings["before"] + question,
        choices=list(SETTINGS["choices"]),
        gold_index=line["label"],
        specific={name: line[name] for name in kept},
    )


TASKS_TABLE = [
    LightevalTaskConfig(
        name=f"{PREFIX}{config}",
        prompt_function=prompt,
        # lighteval keeps answers by task and position: this folder's name is a digest of
        # problems and prompts, and all are in one split.
        hf_repo=str(HERE / SETTINGS["data"]),
        hf_subset=config,
        hf_avail_splits=["problems"],
        evaluation_splits=["problems"],
        metrics=[
            Metric(
                metric_name="merge_nli",
                higher_is_better=True,
                category=SamplingMethod.LOGPROBS,
                sample_level_fn=Answer(),
                corpus_level_fn=Figures(),
            )
        ],
    )
    for config in SETTINGS["configurations"]
]
