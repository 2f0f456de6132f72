"""The commands `predict`, `baseline` and `judge`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from merge_dataset.commands.command_line import (
    OF_DATASET,
    Dealt,
    Format,
    Given,
    LimitSeeds,
    MergeLabels,
    OptionsOf,
    OutputFormat,
    SampleSeed,
    command,
    config_option,
    distribution_of,
    input_option,
    option,
    write_result,
)
from merge_dataset.executors import ExecutorError
from merge_metric.models.pair_model import ModelRequest
from merge_metric.seed_variant_accuracy.formatting import as_percent

if TYPE_CHECKING:
    import pyarrow as pa

    from merge_dataset.executors import Distribution
    from merge_metric.models.readiness import Preset
    from merge_metric.predict.driver import Outcome
    from merge_metric.predict.jobs import Done, Job

PresetName = Annotated[
    str | None, input_option("A list of models of presets.toml, e.g. paper.", "--preset")
]
Only = Annotated[
    str | None, input_option("Only these models or groups of the list, e.g. SMFA,BERT-B-M.")
]
Settings = Annotated[Given, OptionsOf(ModelRequest, "predict", defaults=True)]

_MODEL = input_option("Folder, Hub id, .gguf file, or a server's name for it.", "--model")
_OUT = "Predictions file, .parquet or .jsonl{}. Default: one file per source, in predictions."
_OVERWRITE = option("Replace predictions of another model or of other settings.", "--overwrite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Options on the problems that are asked about."""

    dataset: Annotated[
        str, input_option("Dataset folder, name on the Hub, or a run's problems.parquet.")
    ]
    config: Annotated[list[str] | None, config_option("all classes, and paraphrases")] = None
    limit_seeds: LimitSeeds = None
    rng_seed: SampleSeed = 0

    def read(self, **more: Any) -> pa.Table:
        """Read the problems."""
        from merge_metric.predict.problems import read_problems

        more |= {"limit_seeds": self.limit_seeds, "rng_seed": self.rng_seed}
        return read_problems(self.dataset, self.config or (), **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Options on how a model is asked: now, in a batch, or not at all."""

    overwrite: Annotated[bool, _OVERWRITE] = False
    dry_run: Annotated[
        bool, option("Say how many requests and tokens it takes; ask nothing.", "--dry-run")
    ] = False
    prices: Annotated[
        tuple[float, float] | None,
        option("Of a million tokens of prompts and of answers, for the cost.", metavar="IN OUT"),
    ] = None
    tokenizer: Annotated[
        Path | None,
        option("A tokenizer.json by which --dry-run counts tokens.", exists=True, dir_okay=False),
    ] = None
    batch_out: Annotated[
        Path | None, option("Write requests in OpenAI's batch format, .jsonl; ask nothing.")
    ] = None
    batch_in: Annotated[
        list[Path] | None,
        input_option("Take answers from these results of batches; may be repeated."),
    ] = None


@command(extra="predict", failures=(ExecutorError,))
def predict_command(
    *,
    questions: Questions,
    model: Annotated[str | None, _MODEL] = None,
    preset: PresetName = None,
    only: Only = None,
    out: Annotated[Path | None, option(_OUT.format("; with --preset a folder"), "--out")] = None,
    way: Way,
    merge_labels: MergeLabels = None,
    dataset_revision: Annotated[
        str | None, input_option("Revision of the dataset on the Hub.")
    ] = None,
    given: Settings,
    dealt: Dealt,
    output: Format = "text",
) -> None:
    """Run a model over a dataset and write a predictions file.

    The model is an NLI classifier, a causal language model (multiple choice) or a model on a
    server. A language model may answer in words, too (--answers words). A classifier of
    other labels than NLI's reads the first text and the others as a pair. Each distinct pair
    is asked once. An interrupted run goes on where it stopped when given the same command again.

    \b
    Examples:
      merge-nli predict --model ./my-classifier --dataset merge-nli
        --config snli_nouns --label-order c,e,n --out mine.parquet

    \b
      merge-nli predict --model meta-llama/Llama-3.1-8B --dataset merge-nli
        --config snli --limit-seeds 500 --shots mix

    \b
      merge-nli predict --base-url https://api.example.com/v1 --model reasoner
        --api-key-env EXAMPLE_KEY --chat-template --answers words --reasoning-effort low
        --dataset merge-nli --config snli --limit-seeds 200 --dry-run --prices 1.1 4.4

    \b
      merge-nli predict --preset paper --dataset merge-nli --device cuda --executor slurm
        --tasks 76 --workers 16 --gpus-per-task 1 --partition gpu --time 2:00:00
    """
    from merge_metric.models.readiness import on_hub
    from merge_metric.predict.jobs import jobs_of

    if (model is None) == (preset is None):
        raise ValueError("expected either --model or --preset, and not both")
    entries = on_hub(*read_list(preset, only))
    request = ModelRequest(model=model or "", **given)
    distribution = distribution_of(dealt, device=request.device)
    jobs = jobs_of(request, preset, entries, {"prices": [*way.prices]} if way.prices else {})
    problems = questions.read(
        revision=dataset_revision,
        with_shots=request.shots == "seeds",
        merge_labels=merge_labels or (),
    )
    done = _ask(jobs, problems, way, distribution, output, out)
    if done:
        _report(done, questions.dataset, output)


def _ask(
    jobs: Mapping[str, Job],
    problems: pa.Table,
    way: Way,
    distribution: Distribution | None,
    output: OutputFormat,
    out: Path | None,
) -> Done | None:
    """Run models; or print what a run takes, or write a batch instead, and return None."""
    from merge_metric.models.remote import RemoteModel
    from merge_metric.predict.driver import take_results, write_requests
    from merge_metric.predict.jobs import estimate_costs, open_files, run_models
    from merge_metric.predict.problems import sources_of

    overwrite = way.overwrite
    if not (way.dry_run or way.batch_out or way.batch_in):
        return run_models(jobs, problems, distribution=distribution, out=out, overwrite=overwrite)
    job = request, extra = next(iter(jobs.values()))
    for_batch = request.base_url and request.kind in (None, "remote")
    for_batch = for_batch and (out is not None or len(sources_of(problems)) < 2)
    if "preset" in extra or distribution or not (way.dry_run or for_batch):
        raise ValueError(
            "expected for --dry-run one --model, asked from here; for batches a language model on "
            "a server, with --base-url, and problems (--config) of one source, or --out"
        )
    if way.dry_run:
        opened = open_files(job, problems, out)
        costs = estimate_costs(opened, prices=way.prices, tokenizer=way.tokenizer)
        by, asked = costs["counted_by"], costs["prompt_tokens"]
        others = "; other languages and tokenizers differ" * ("characters" in by)
        lines = [
            f"{costs['requests']:,} requests",
            f"about {asked:,} tokens of prompts ({by}{others})",
            f"at most {costs['most_answer_tokens']:,} tokens of answers, thinking included",
        ]
        if way.prices:
            lines.append(f"cost: at most {costs['most_cost']:,.2f}")
        write_result(output, costs, *lines)
        return None
    ((server, asking),) = open_files(job, problems, out)
    assert isinstance(server, RemoteModel)  # as `for_batch` says
    if way.batch_out is None:
        take = partial(take_results, server, asking, way.batch_in or [])
        return [asking.complete(take, extra, overwrite=overwrite)], []
    made = write_requests(server, asking, way.batch_out, overwrite=overwrite)
    lines = [f"{path}: {count:,} requests" for path, count in made.items()]
    requests = {str(path): count for path, count in made.items()}
    write_result(output, {"requests": requests}, *(lines or ["no request is left"]))
    return None


def read_list(preset: str | None, only: str | None) -> tuple[list[Preset], list[str]]:
    """Read the requested models of a preset list; return them and the names of `--only`."""
    from merge_metric.models.readiness import read_presets

    if only is not None and preset is None:
        raise ValueError("--only: expected together with --preset, of whose models it names some")
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    return list(read_presets(preset, names)) if preset else [], names


@command(extra="predict", failures=(ExecutorError,))
def baseline_command(
    name: Annotated[
        Literal["hypothesis-only", "majority"],
        typer.Argument(
            metavar="NAME",
            help="hypothesis-only learns labels from hypotheses alone (logistic regression); "
            "majority takes the most frequent label of the dataset's seeds.",
        ),
    ],
    *,
    train: Annotated[
        Path | None,
        input_option(
            "What hypothesis-only learns from: a file of problems, of any kind that generate reads."
        ),
    ] = None,
    questions: Questions,
    out: Annotated[Path | None, option(_OUT.format(""))] = None,
    overwrite: Annotated[bool, _OVERWRITE] = False,
    dealt: Dealt,
    output: Format = "text",
) -> None:
    """Predict without reading the premise, or without reading at all.

    Of other tasks than NLI, hypothesis-only reads all texts but the first.

    \b
    Examples:
      merge-nli baseline majority --dataset merge-nli --config snli

    \b
      merge-nli baseline hypothesis-only --train snli_1.0_train.jsonl --dataset merge-nli
        --executor slurm --memory-gb 8
    """
    from merge_metric.predict.jobs import jobs_of, run_models

    request = ModelRequest(model=name, kind="baseline", train=str(train) if train else None)
    if distribution := distribution_of(dealt):
        # Training takes most of the time, so one task does everything.
        distribution = replace(distribution.without_gpus(), tasks=1)
    jobs, problems = jobs_of(request), questions.read()
    done = run_models(jobs, problems, distribution=distribution, out=out, overwrite=overwrite)
    _report(done, questions.dataset, output)


def _report(done: Done, dataset: str, output: OutputFormat) -> None:
    outcomes, failed = done
    files = [{**asdict(outcome), "path": str(outcome.path)} for outcome in outcomes]
    text = "\n\n".join(_tell(outcome, dataset) for outcome in outcomes)
    if text or output == "json":
        write_result(output, {"predictions": files, "failed": failed}, text)
    if failed:
        typer.echo("\n  ".join([f"\n{len(failed)} models failed:", *failed]), err=True)
        raise typer.Exit(1)


def _tell(outcome: Outcome, dataset: str) -> str:
    from merge_metric.frame.noise import letters_text, usage_text
    from merge_metric.frame.predictions import MERGE_LABELS
    from merge_metric.models.label_order import describe_evidence

    facts, pace = outcome.metadata, "inferred before"
    if outcome.inferred:
        pace = f"{outcome.inferred:,} inferred"
        if outcome.seconds:  # of answers from batch files no time is known
            speed = f"{outcome.inferred / outcome.seconds:,.0f} per second"
            pace += f" in {outcome.seconds:,.1f} s ({speed})"
    order, known_by = facts.get("label_order"), facts.get("label_order_source")
    if evidence := facts.get("label_order_evidence"):
        known_by = f"{known_by}: {describe_evidence(evidence)}"
    lost, truncated = facts.get("samples_without_label"), facts.get("truncated")
    check = facts.get("label_order_check") or {"seeds": 0}
    seeds = f"{check['seeds']:,} seeds" + " whose answers name a label" * bool(lost)
    lines = [
        f"{facts.get('short_name') or facts['name']}: {outcome.problems:,} problems, "
        f"{outcome.pairs:,} distinct pairs, {pace}",
        order and f"  classes: {', '.join(order)} ({known_by})",
        facts.get("requests") and f"  {usage_text(facts, facts['requests'])}",
        lost and f"  answers that name no label: {as_percent(lost)}",
        letters_text(facts) and f"  answers by letter: {letters_text(facts)}",
        truncated and f"  cut to {facts['max_tokens']} tokens: {truncated:,} pairs",
        check["seeds"] and f"  right on {as_percent(check['accuracy'])} of {seeds}",
        f"  {outcome.path}",
    ]
    if outcome.problems > check["seeds"]:
        command = ["merge-nli", "score", str(outcome.path)]
        if "all_problems" not in facts["problems"]:
            command += ["--dataset", dataset]
            if {"limit_seeds", "shots"} & facts["problems"].keys():
                command.append("--allow-missing")
        for labels in filter(None, facts.get(MERGE_LABELS, "").split(";")):
            command += ["--merge-labels", labels]
        lines.append(f"Next: {shlex.join(command)}")
    return "\n".join(filter(None, lines))


@command(extra="predict", failures=(ExecutorError,))
def judge_command(
    *,
    judged: Annotated[
        Path | None,
        typer.Argument(
            help="The dataset folder, its registered name, or a session of merge-nli annotate. "
            "Without it, the trial alone.",
            **OF_DATASET,
        ),
    ] = None,
    model: Annotated[str, _MODEL],
    config: Annotated[list[str] | None, config_option("all but paraphrases")] = None,
    against: Annotated[
        Path | None,
        input_option(
            "A session with judgements for the trial. Default: 120 variants that come with "
            "merge-nli.",
            file_okay=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "The judge's file, .parquet. Default: MODEL.parquet, of a session in its answers, "
            "else in judgements."
        ),
    ] = None,
    way: Way,
    given: Settings,
    dealt: Dealt,
    output: Format = "text",
) -> None:
    """Ask a language model how fluent and how right variants are, after a trial.

    The judge scores fluency and reasoning from 1 to 5, as people do in merge-nli annotate.
    It first scores variants that were judged already: how well it tells the good ones (F + R of
    9 or more) is printed. merge-nli agreement, analyse validity and report read its file
    like an annotator's; merge-nli build --judged FILE --min-judged 9 keeps what it
    finds good, if its AUC in the trial is 0.7 or more.

    \b
    Examples:
      merge-nli judge --model Qwen/Qwen3-8B --chat-template --device cuda

    \b
      merge-nli judge merge-nli --model Qwen/Qwen3-8B --chat-template --device cuda

    \b
      merge-nli judge study --base-url https://api.example.com/v1 --model reasoner
        --api-key-env EXAMPLE_KEY --chat-template --answers words --dry-run --prices 1.1 4.4
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.annotation import ANSWERS, SESSION, TRUSTED
    from merge_dataset.answer_store import slug
    from merge_metric.judging import BUNDLED, QUESTIONS, keep_figures, questions
    from merge_metric.predict.jobs import jobs_of

    if given["shots"] == "auto":
        given["shots"] = str(QUESTIONS)
    if out is None:
        is_session = judged is not None and (judged / SESSION).is_file()
        folder = judged / ANSWERS if judged and is_session else Path("judgements")
        out = folder / f"{slug(Path(model).name)}.parquet"
    asked, extra = questions(judged, config or (), against=against or BUNDLED)
    if way.prices:
        extra["prices"] = [*way.prices]
    request = ModelRequest(model=model, **given)
    distribution = distribution_of(dealt, device=request.device)
    done = _ask(jobs_of(request, extra=extra), asked, way, distribution, output, out)
    if not done:
        return
    trial, table = keep_figures(out)
    count = (len(asked) - 2 * len(trial.judged)) // 2
    lines = [f"{out}: {count:,} variants judged", "", table.to_text(), ""]
    auc = table.rows[0]["value"] or 0.0
    if auc < TRUSTED:
        lines.append(
            f"Its AUC is below {TRUSTED}: merge-nli build does not filter by it without "
            "--trust-judge."
        )
    elif judged:
        lines.append(f"Next: {shlex.join(['merge-nli', 'agreement', str(out)])}")
    whole = {"file": str(out), "is_trusted": auc >= TRUSTED, "trial": table.as_dict()}
    write_result(output, whole, *lines)
