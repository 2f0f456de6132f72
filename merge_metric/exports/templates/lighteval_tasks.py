"""Tasks for lighteval: a module for --custom-tasks.

Written by `merge-nli export lighteval`. Needs NumPy and datasets, which the harness brings.
Figures are those of `merge-nli score`, averaged over the subsamples.
"""

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
from merge_nli_metric.task_settings import TaskSettings  # noqa: E402

SETTINGS = TaskSettings.read()
DATA = json.loads((HERE / "data.json").read_text(encoding="utf-8"))
PREFIX = "merge_nli_"


class Answer(SampleLevelComputation):  # type: ignore[misc]
    """Metric of a sample: the model's answer to a problem."""

    def compute(self, doc: Doc, model_response: ModelResponse, **_: Any) -> dict[str, Any]:
        """Return a row of a predictions file with columns of the dataset."""
        config = doc.specific["config"]
        prompt = SETTINGS.prompts[config]
        if SETTINGS.is_in_words:
            (tokens,) = model_response.output_tokens
            is_cut = len(tokens) >= SETTINGS.max_answer_tokens
            (text,) = model_response.text
            answer = answers.answer_in_words(doc.specific, prompt, text, is_cut=is_cut)
        else:
            log_probs = [float(each) for each in model_response.logprobs]
            answer = answers.answer(doc.specific, log_probs, len(prompt.template.labels))
        return answer | {"config": config}


class Figures(CorpusLevelComputation):  # type: ignore[misc]
    """Figures of all answers.

    As these are several, lighteval makes no intervals of them; its own would resample
    variants, and those of a seed are alike.
    """

    def compute_corpus(self, items: list[dict[str, Any]]) -> dict[str, float]:
        """Map names to figures."""
        labels = SETTINGS.prompts[items[0]["config"]].template.labels
        return answers.figures(items, SETTINGS.thresholds, labels)


def prompt(line: dict[str, Any], task_name: str) -> Doc:
    """Write a problem with the examples before it as one text."""
    config = task_name.removeprefix(PREFIX)
    asked = SETTINGS.prompts[config]
    fields = asked.template.fields
    return Doc(
        query=asked.text(*(line[field] for field in fields)),
        choices=SETTINGS.choices(config),
        gold_index=line["label"],
        specific={"config": config, **{name: line[name] for name in (*answers.KEPT, *fields)}},
    )


TASKS_TABLE = [
    LightevalTaskConfig(
        name=f"{PREFIX}{config}",
        prompt_function=prompt,
        # lighteval keeps answers by task and position: this folder's name is a digest of
        # problems and prompts, and all are in one split.
        hf_repo=str(HERE / DATA),
        hf_subset=config,
        hf_avail_splits=["problems"],
        evaluation_splits=["problems"],
        generation_size=SETTINGS.max_answer_tokens,
        stop_sequence=[asked.stop] if SETTINGS.is_in_words else None,
        metrics=[
            Metric(
                metric_name="merge_nli",
                higher_is_better=True,
                category=SamplingMethod.GENERATIVE
                if SETTINGS.is_in_words
                else SamplingMethod.LOGPROBS,
                sample_level_fn=Answer(),
                corpus_level_fn=Figures(),
            )
        ],
    )
    for config, asked in SETTINGS.prompts.items()
]
