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
from merge_nli_metric.templates import Example  # noqa: E402

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
        dataset=MemoryDataset([_sample(config, problem) for problem in problems], name=config),
        solver=generate(),
        scorer=words() if SETTINGS.is_in_words else letters(missing_letters),
        config=asked,
    )


def _sample(config: str, problem: dict[str, Any]) -> Sample:
    """Write a problem as a chat: the user asks questions, the assistant answers letters."""
    prompt = SETTINGS.prompts[config]
    fields = prompt.template.fields
    turns: list[ChatMessage] = [
        ChatMessageUser(content=turn["content"])
        if turn["role"] == "user"
        else ChatMessageAssistant(content=turn["content"])
        for turn in prompt.messages(*(problem[field] for field in fields))
    ]
    return Sample(
        input=turns,
        target=prompt.answer(Example(tuple(problem[name] for name in fields), problem["label"])),
        id=problem["variant_id"],
        metadata={"config": config} | {name: problem[name] for name in (*answers.KEPT, *fields)},
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
        labels = SETTINGS.prompts[whole[0]["config"]].template.labels
        figures = answers.figures(whole, SETTINGS.thresholds, labels)
        return {**figures, "n_seeds_left_out": left_out}

    return compute


@scorer(metrics=[seed_variant_accuracy()])
def letters(missing_letters: str = "error") -> Scorer:
    """Answer with the letter that is the most probable next token."""

    async def score(state: TaskState, target: Target) -> Score:
        prompt = SETTINGS.prompts[state.metadata["config"]]
        known = prompt.template.letters
        weights = letter_probabilities(_first_token(state), known)
        if not any(weights) and missing_letters != "uniform":
            raise ValueError(
                f"expected {', '.join(known)} among the most probable tokens, got none "
                f"for {state.sample_id!r}: ask for more with -T top_logprobs=…, or take such "
                f"answers for equally probable labels with -T missing_letters=uniform"
            )
        log_probs = [math.log(value) if value else -math.inf for value in weights]
        return _scored(state, answers.answer(state.metadata, prompt, log_probs))

    return score


@scorer(metrics=[seed_variant_accuracy()])
def words() -> Scorer:
    """Read the final answer of what the model wrote; one that names no label is wrong."""

    async def score(state: TaskState, target: Target) -> Score:
        prompt = SETTINGS.prompts[state.metadata["config"]]
        is_cut = state.output.stop_reason == "max_tokens"
        text = state.output.completion
        answer = answers.answer_in_words(state.metadata, prompt, text, is_cut=is_cut)
        return _scored(state, answer)

    return score


def _scored(state: TaskState, answer: dict[str, Any]) -> Score:
    row = answer | {"config": state.metadata["config"]}
    is_right = answer["prediction"] == answer["label"]
    return Score(value=float(is_right), answer=answer["letter"], metadata={"answer": row})


def _first_token(state: TaskState) -> dict[str, float]:
    """Return the most probable first tokens and their log-probabilities."""
    logprobs = state.output.choices[0].logprobs if state.output.choices else None
    if logprobs is None or not logprobs.content:
        raise ValueError(
            f"expected log-probabilities from {state.model}, got an answer without: without "
            f"them there are no probabilities of labels"
        )
    first = logprobs.content[0]
    return {choice.token: choice.logprob for choice in (first, *(first.top_logprobs or ()))}
