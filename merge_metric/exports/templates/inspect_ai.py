"""A task for Inspect.

Written by `merge-nli export inspect`. Needs NumPy and datasets beside inspect-ai. Unless the task
was exported with `--answers words`, models must give log-probabilities of the first token. Figures
are those of `merge-nli score`, averaged over the subsamples.
"""

import math
import sys
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageUser, GenerateConfig
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import TaskState, generate

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))

from merge_nli_metric import task_answers as answers  # noqa: E402
from merge_nli_metric.answer_words import letter_probabilities  # noqa: E402

SETTINGS = answers.TaskSettings.read()


@task
def merge_nli(
    config: str = next(iter(SETTINGS.prompts)),
    limit_seeds: int | None = None,
    rng_seed: int = 0,
    top_logprobs: int = 20,
    missing_letters: str = "error",
) -> Task:
    """Seed-variant accuracy and its kin.

    Args:
        config: Name of a configuration that was exported.
        limit_seeds: Only this number of seeds of each source, drawn at random, with their variants:
            those of `merge-nli predict --limit-seeds`. Inspect's own limit cuts seeds.
        rng_seed: Another number, another sample.
        top_logprobs: Alternatives asked for; a letter that is not among them has probability 0.
        missing_letters: Where none of the letters is among them: `error`, or `uniform`, which
            takes the labels for equally probable.
    """
    problems = answers.load_problems(SETTINGS, config, limit_seeds=limit_seeds, rng_seed=rng_seed)
    if SETTINGS.is_in_words:
        asked = GenerateConfig(max_tokens=SETTINGS.max_answer_tokens)
    else:
        asked = GenerateConfig(max_tokens=1, logprobs=True, top_logprobs=top_logprobs)
    return Task(
        dataset=MemoryDataset([_sample(problem) for problem in problems], name=config),
        solver=generate(),
        scorer=label(missing_letters),
        config=asked,
    )


def _sample(problem: dict[str, Any]) -> Sample:
    """Write a problem as a chat: the user asks questions, the assistant answers letters."""
    prompt = SETTINGS.prompts[problem[answers.CONFIG]]
    fields = prompt.template.fields
    speakers = {"user": ChatMessageUser, "assistant": ChatMessageAssistant}
    turns: list[ChatMessage] = [
        speakers[turn["role"]](content=turn["content"])
        for turn in prompt.messages(*(problem[field] for field in fields))
    ]
    return Sample(
        input=turns,
        target=problem[answers.ANSWER],
        id=problem["variant_id"],
        metadata={name: problem[name] for name in (*answers.KEPT, *fields)},
    )


@metric
def seed_variant_accuracy() -> Metric:
    """Compute all figures of seeds answered in full, and count the other seeds.

    Inspect asks while it runs, too.
    """

    def compute(scores: list[SampleScore]) -> Value:
        given = [score.score.metadata["answer"] for score in scores if score.score.metadata]
        whole, left_out = answers.whole_seeds(given)
        if not whole:
            return {"n_seeds_left_out": left_out}
        return {**answers.figures(whole, SETTINGS), "n_seeds_left_out": left_out}

    return compute


@scorer(metrics=[seed_variant_accuracy()])
def label(missing_letters: str = "error") -> Scorer:
    """Read the label from what the model wrote, or from the most probable first tokens."""

    async def score(state: TaskState, target: Target) -> Score:
        prompt = SETTINGS.prompts[state.metadata[answers.CONFIG]]
        letters = prompt.template.letters
        given: str | list[float] = state.output.completion
        if not SETTINGS.is_in_words:
            given = _log_probs(state, letters)
            if max(given) == -math.inf and missing_letters != "uniform":
                raise ValueError(
                    f"expected {', '.join(letters)} among the most probable tokens, got none for "
                    f"{state.sample_id!r}: ask for more with -T top_logprobs=…, or take such "
                    f"answers for equally probable labels with -T missing_letters=uniform"
                )
        is_cut = state.output.stop_reason == "max_tokens"
        row = answers.answer(state.metadata, prompt, given, is_cut)
        is_right = row["prediction"] == row["label"]
        return Score(value=float(is_right), answer=row["letter"], metadata={"answer": row})

    return score


def _log_probs(state: TaskState, letters: str) -> list[float]:
    """Return the log-probabilities of letters as the first token."""
    logprobs = state.output.choices[0].logprobs if state.output.choices else None
    if logprobs is None or not logprobs.content:
        raise ValueError(
            f"expected log-probabilities from {state.model}, got an answer without: without "
            f"them there are no probabilities of labels"
        )
    first = logprobs.content[0]
    tokens = {choice.token: choice.logprob for choice in (first, *(first.top_logprobs or ()))}
    weights = letter_probabilities(tokens, letters)
    return [math.log(value) if value else -math.inf for value in weights]
