"""The commands `predict` and `baseline`."""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from merge_dataset.commands.command_line import (
    ExecutorName,
    Format,
    Given,
    LimitSeeds,
    OutputFormat,
    ResourceSettings,
    SampleSeed,
    TaskCount,
    WorkerCount,
    config_option,
    distribution_of,
    option,
    options_of,
    user_errors,
    with_settings,
    write_result,
)
from merge_dataset.executors.plan import Distribution, ExecutorError
from merge_metric.models.pair_model import ModelRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from merge_metric.models.presets import Preset
    from merge_metric.predict.baselines import BaselineRequest
    from merge_metric.predict.driver import Outcome

log = logging.getLogger(__name__)

baseline_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Predict without reading the premise, or without reading at all.",
)

Dataset = Annotated[
    str,
    option("Dataset folder, name for load_dataset, or a run's problems.parquet."),
]
Configs = Annotated[list[str] | None, config_option("all classes, and paraphrases")]
_OUT = "Predictions file, .parquet or .jsonl{}. Default: one file per source, in predictions."
Out = Annotated[Path | None, option(_OUT.format(""))]
Overwrite = Annotated[
    bool, option("Replace predictions of another model or of other settings.", "--overwrite")
]
HypothesisColumn = Annotated[
    str | None, option("Column of the hypothesis. Default: sentence2, hypothesis and the like.")
]
LabelColumn = Annotated[
    str | None, option("Column of the label. Default: gold_label, label and the like.")
]


@user_errors(extra="predict", failures=(ExecutorError,))
@with_settings
def predict_command(
    *,
    dataset: Dataset,
    model: Annotated[
        str | None, option("Folder, Hub id, .gguf file, or a server's name for it.")
    ] = None,
    preset: Annotated[
        str | None, option("A list of models instead: paper, sensitivity or poster.")
    ] = None,
    only: Annotated[
        str | None, option("Only these models or groups of the list, e.g. SMFA,BERT-B-M.")
    ] = None,
    config: Configs = None,
    out: Annotated[Path | None, option(_OUT.format("; with --preset a folder"))] = None,
    overwrite: Overwrite = False,
    limit_seeds: LimitSeeds = None,
    rng_seed: SampleSeed = 0,
    dataset_revision: Annotated[str | None, option("Revision of the dataset on the Hub.")] = None,
    dry_run: Annotated[
        bool, option("Say how many requests and tokens it takes; ask nothing.", "--dry-run")
    ] = False,
    prices: Annotated[
        str | None,
        option(
            "Of a million tokens of prompts and of answers, e.g. 0.15,0.6; for the cost.",
            metavar="IN,OUT",
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None, option("A tokenizer.json by which --dry-run counts tokens.")
    ] = None,
    batch_out: Annotated[
        Path | None, option("Write requests in OpenAI's batch format, .jsonl; ask nothing.")
    ] = None,
    batch_in: Annotated[
        list[Path] | None, option("Take answers from these results of batches; may be repeated.")
    ] = None,
    given: Annotated[Given, options_of(ModelRequest, "predict", defaults=True)],
    executor: ExecutorName = None,
    tasks: TaskCount = None,
    workers: WorkerCount = 1,
    resources: ResourceSettings,
    output: Format = "text",
) -> None:
    """Run a model over a dataset and write a predictions file.

    The model is an NLI classifier, a causal language model (multiple choice) or a model on a
    server. A language model may answer in words, too (--answers words). A classifier of
    other labels than NLI's reads the first text and the others as a pair. Each distinct pair
    is asked once. An interrupted run goes on where it stopped when given the same command again.

    \b
    Examples:
      merge-nli predict --model facebook/bart-large-mnli --dataset merge-nli

    \b
      merge-nli predict --model ./my-classifier --dataset merge-nli
        --config snli_nouns --label-order c,e,n --out mine.parquet

    \b
      merge-nli predict --model meta-llama/Llama-3.1-8B --dataset merge-nli
        --config snli --limit-seeds 500 --shots mix

    \b
      merge-nli predict --base-url https://api.example.com/v1 --model reasoner
        --api-key-env EXAMPLE_KEY --chat-template --answers words --reasoning-effort low
        --dataset merge-nli --config snli --limit-seeds 200 --dry-run --prices 1.1,4.4

    \b
      merge-nli predict --preset paper --only SMFA --dataset merge-nli

    \b
      merge-nli predict --preset paper --dataset merge-nli --device cuda --executor slurm
        --tasks 76 --workers 16 --gpus-per-task 1 --partition gpu --time 2:00:00
    """
    from merge_metric.models.presets import on_hub, read_presets
    from merge_metric.predict.jobs import predict_preset, predict_request, require_usable

    if (model is None) == (preset is None):
        got = "neither" if model is None else "both"
        raise ValueError(f"expected either --model or --preset, got {got}")
    if only is not None and preset is None:
        raise ValueError("--only: expected together with --preset, of whose models it names some")
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    entries = on_hub(read_presets(preset, names), names) if preset is not None else []
    _check_output(out, is_folder=preset is not None)
    distribution = distribution_of(executor, tasks, workers, resources)
    problems = _read_problems(dataset, config, dataset_revision, limit_seeds, rng_seed)
    request = ModelRequest(model=model or "", **given)
    cost = _read_prices(prices)
    outcomes: list[Outcome] = []
    if dry_run or batch_out is not None or batch_in:
        asked = "--dry-run" if dry_run else "--batch-in" if batch_out is None else "--batch-out"
        if preset is not None or distribution is not None:
            got = "--executor" if preset is None else f"--preset {preset}"
            raise ValueError(f"{asked}: expected one --model, asked from here, got {got}")
        batches = {"written": batch_out, "read": batch_in or []}
        _ask_nothing(
            asked, request, problems, out, batches, cost, tokenizer, overwrite, dataset, output
        )
        return
    if distribution is not None:
        dealt = _predict_in_tasks(
            request, preset, entries, problems, distribution, out=out, overwrite=overwrite
        )
        _report(*dealt, dataset, output)
        return
    failed: list[str] = []
    if preset is None:
        outcomes = list(
            predict_request(
                request,
                problems,
                out=out,
                extra={"prices": list(cost)} if cost else {},
                overwrite=overwrite,
            )
        )
    else:
        require_usable(request, problems, entries=entries)
        outcomes, failed = predict_preset(
            request, preset, entries, problems, folder=out, overwrite=overwrite
        )
    _report(outcomes, failed, None, dataset, output)


def _ask_nothing(
    asked: str,
    request: ModelRequest,
    problems: pa.Table,
    out: Path | None,
    batches: Mapping[str, Any],
    prices: tuple[float, float] | None,
    tokenizer: Path | None,
    overwrite: bool,
    dataset: str,
    output: OutputFormat,
) -> None:
    """Do what the option `asked` says: count, write a batch's requests, or read its results."""
    from merge_metric.predict import batch
    from merge_metric.predict.driver import predict
    from merge_metric.predict.jobs import files_of, open_by_part
    from merge_metric.predict.problems import sources_of

    if out is None and asked != "--dry-run" and len(sources := sources_of(problems)) > 1:
        raise ValueError(
            f"{asked}: expected problems of one source, or --out, a file for all of them, got "
            f"{', '.join(sources)}: name configurations of one with --config"
        )
    extra = {"prices": list(prices)} if prices else {}
    take = partial(batch.take_results, paths=batches["read"])
    plans, made = list[dict[str, Any]](), dict[str, int]()
    outcomes: list[Outcome] = []
    for opened, part in open_by_part(request, problems, whole=out is not None):
        for each, path in files_of(opened, part, out=out, folder=None, short_name=None):
            if asked == "--dry-run":
                plans.append(batch.plan(opened, each, path, prices=prices, tokenizer=tokenizer))
            elif asked == "--batch-out":
                written = batch.write_requests(
                    opened, each, path, batches["written"], overwrite=overwrite
                )
                made |= {str(place): n for place, n in written}
            else:
                outcomes.append(
                    predict(opened, each, path, extra=extra, overwrite=overwrite, batch=take)
                )
    if asked == "--dry-run":
        total = plans[0] | {
            name: sum(plan[name] for plan in plans)
            for name, value in plans[0].items()
            if not isinstance(value, str)
        }
        write_result(output, total, batch.plan_text(total))
    elif asked == "--batch-out":
        lines = [f"{path}: {n:,} requests" for path, n in made.items()]
        write_result(output, {"requests": made}, *lines or ["no request is left"])
    else:
        _report(outcomes, [], None, dataset, output)


def _read_prices(text: str | None) -> tuple[float, float] | None:
    """Read prices of a million tokens of prompts and of answers."""
    if text is None:
        return None
    try:
        price_in, price_out = map(float, text.split(","))
        if not (0 <= price_in < math.inf and 0 <= price_out < math.inf):
            raise ValueError(text)
    except ValueError:
        raise ValueError(
            f"--prices: expected two numbers, of a million tokens of prompts and of answers, such "
            f"as 0.15,0.6, got {text!r}"
        ) from None
    return price_in, price_out


def _predict_in_tasks(
    request: ModelRequest,
    preset: str | None,
    entries: Sequence[Preset],
    problems: pa.Table,
    distribution: Distribution,
    *,
    out: Path | None,
    overwrite: bool,
) -> tuple[list[Outcome], list[str], ExecutorError | None]:
    """Look at the models, and deal their work to tasks."""
    if request.base_url:
        raise ValueError(
            "executor: expected a model that tasks load, got one on a server, which is asked from "
            "here: with more requests at a time, see `concurrency`"
        )
    from merge_metric.models.presets import request_of
    from merge_metric.models.readiness import machine_for
    from merge_metric.predict.jobs import extra_of, known_of, require_free, require_usable
    from merge_metric.predict.tasks import Job, predict_in_tasks

    machine = machine_for(distribution, request.device)
    if preset is None:
        if out is not None:
            require_free(out, known_of(request), problems, overwrite=overwrite)
        jobs = [Job(known_of(request).get("name", request.model), request, {})]
        require_usable(request, problems, machine)
        return predict_in_tasks(jobs, problems, distribution, out=out, overwrite=overwrite)
    require_usable(request, problems, machine, entries=entries)
    jobs = [
        Job(entry.name, request_of(entry, request), extra_of(entry, preset)) for entry in entries
    ]
    return predict_in_tasks(jobs, problems, distribution, folder=out, overwrite=overwrite)


@baseline_app.command("hypothesis-only")
@user_errors(extra="predict", failures=(ExecutorError,))
@with_settings
def hypothesis_only_command(
    *,
    train: Annotated[
        Path, option("A file of NLI problems to learn from, of any kind that generate reads.")
    ],
    dataset: Dataset,
    config: Configs = None,
    out: Out = None,
    overwrite: Overwrite = False,
    limit_seeds: LimitSeeds = None,
    rng_seed: SampleSeed = 0,
    hypothesis_column: HypothesisColumn = None,
    label_column: LabelColumn = None,
    executor: ExecutorName = None,
    tasks: TaskCount = None,
    workers: WorkerCount = 1,
    resources: ResourceSettings,
    output: Format = "text",
) -> None:
    """Learn labels from hypotheses alone, and predict them (logistic regression).

    \b
    Examples:
      merge-nli baseline hypothesis-only --train snli_1.0_train.jsonl --dataset merge-nli
        --config snli

    \b
      merge-nli baseline hypothesis-only --train snli_1.0_train.jsonl --dataset merge-nli
        --executor slurm --tasks 8 --memory-gb 8
    """
    from merge_metric.predict.baselines import BaselineRequest

    _check_output(out)
    distribution = distribution_of(executor, tasks, workers, resources)
    problems = _read_problems(dataset, config, None, limit_seeds, rng_seed)
    request = BaselineRequest(
        name="hypothesis-only",
        train=str(train),
        hypothesis_column=hypothesis_column,
        label_column=label_column,
    )
    _run_baseline(request, problems, distribution, out, overwrite, dataset, output)


@baseline_app.command("majority")
@user_errors(extra="predict", failures=(ExecutorError,))
@with_settings
def majority_command(
    *,
    dataset: Dataset,
    train: Annotated[
        Path | None, option("NLI problems whose labels are counted. Default: the dataset's seeds.")
    ] = None,
    config: Configs = None,
    out: Out = None,
    overwrite: Overwrite = False,
    limit_seeds: LimitSeeds = None,
    rng_seed: SampleSeed = 0,
    label_column: LabelColumn = None,
    executor: ExecutorName = None,
    tasks: TaskCount = None,
    workers: WorkerCount = 1,
    resources: ResourceSettings,
    output: Format = "text",
) -> None:
    """Always predict the most frequent label.

    \b
    Examples:
      merge-nli baseline majority --dataset merge-nli --config snli
    """
    from merge_metric.predict.baselines import BaselineRequest

    _check_output(out)
    distribution = distribution_of(executor, tasks, workers, resources)
    problems = _read_problems(dataset, config, None, limit_seeds, rng_seed)
    path = None if train is None else str(train)
    request = BaselineRequest(name="majority", train=path, label_column=label_column)
    _run_baseline(request, problems, distribution, out, overwrite, dataset, output)


# --- Running ---


def _read_problems(
    dataset: str,
    config: list[str] | None,
    revision: str | None,
    limit_seeds: int | None,
    rng_seed: int,
) -> pa.Table:
    from merge_metric.predict.problems import read_problems, sample_seeds

    problems = read_problems(dataset, config or (), revision=revision)
    if limit_seeds is not None:
        problems = sample_seeds(problems, limit_seeds, rng_seed=rng_seed)
    return problems


def _run_baseline(
    request: BaselineRequest,
    problems: pa.Table,
    distribution: Distribution | None,
    out: Path | None,
    overwrite: bool,
    dataset: str,
    output: OutputFormat,
) -> None:
    from merge_metric.predict.jobs import predict_by_source, require_free
    from merge_metric.predict.tasks import Job, predict_in_tasks

    if out is not None:
        require_free(out, {"name": request.name}, problems, overwrite=overwrite)
    if distribution is None:
        model = request.open(problems)
        outcomes = predict_by_source(model, problems, out=out, overwrite=overwrite)
        _report(list(outcomes), [], None, dataset, output)
        return
    request.read(problems)  # what is wrong with it is told before
    jobs, there = [Job(request.name, request, {})], distribution.without_gpus()
    dealt = predict_in_tasks(jobs, problems, there, out=out, overwrite=overwrite)
    _report(*dealt, dataset, output)


def _check_output(out: Path | None, *, is_folder: bool = False) -> None:
    """Check where predictions go before anything is read or loaded."""
    from merge_metric.predict.driver import check_file, check_folder
    from merge_metric.predict.jobs import PREDICTIONS

    if out is None or is_folder:
        check_folder(out or PREDICTIONS)
    else:
        check_file(out)


# --- What is said when it is done ---


def _report(
    outcomes: Sequence[Outcome],
    failed: Sequence[str],
    error: ExecutorError | None,
    dataset: str,
    output: OutputFormat,
) -> None:
    """Say what was done and what to do next, what failed and why; exit with 1 if anything did."""
    from merge_dataset.files import to_json

    if output == "json":
        files = [
            {
                "file": str(outcome.path),
                "problems": outcome.problems,
                "distinct_pairs": outcome.pairs,
                "inferred": outcome.inferred,
                "seconds": round(outcome.seconds, 3),
                "metadata": outcome.metadata,
            }
            for outcome in outcomes
        ]
        typer.echo(to_json({"predictions": files, "failed": failed}))
    elif outcomes:
        typer.echo("\n\n".join(_tell(outcome, dataset) for outcome in outcomes))
    if failed:
        reasons = "".join(f"\n  {reason}" for reason in failed)
        typer.echo(f"\n{len(failed)} models failed:{reasons}", err=True)
    if error is not None:
        raise error
    if failed:
        raise typer.Exit(1)


def _tell(outcome: Outcome, dataset: str) -> str:
    """Tell of a file: its problems, labels and accuracy, and the command that scores it."""
    from merge_metric.models.label_order import describe_evidence
    from merge_metric.runs.noise import usage_text

    metadata, inferred = outcome.metadata, outcome.inferred
    speed = f"{inferred / max(outcome.seconds, 1e-9):,.0f} per second"
    pace = f"{inferred:,} inferred in {outcome.seconds:,.1f} s ({speed})"
    lines = [
        f"{metadata.get('short_name') or metadata['name']}: {outcome.problems:,} problems, "
        f"{outcome.pairs:,} distinct pairs, {pace if inferred else 'inferred before'}"
    ]
    if order := metadata.get("label_order"):
        known_by = metadata["label_order_source"]
        if evidence := metadata.get("label_order_evidence"):
            known_by += f": {describe_evidence(evidence)}"
        lines.append(f"  classes: {', '.join(order)} ({known_by})")
    if requests := metadata.get("requests"):
        lines.append(f"  {usage_text(metadata, requests)}")
    if lost := metadata.get("samples_without_label"):
        lines.append(f"  answers that name no label: {lost:.1%}")
    if truncated := metadata.get("truncated"):
        lines.append(f"  cut to {metadata['max_tokens']} tokens: {truncated:,} pairs")
    if check := metadata.get("label_order_check"):
        lines.append(f"  right on {check['accuracy']:.1%} of {check['seeds']:,} seeds")
    lines.append(f"  {outcome.path}")
    if outcome.problems > (check["seeds"] if check else 0):
        command = ["merge-nli", "score", str(outcome.path)]
        if Path(dataset).is_dir():
            command += ["--dataset", dataset]
            if "limit_seeds" in metadata["problems"]:
                command.append("--allow-missing")
        lines.append(f"Next: {shlex.join(command)}")
    return "\n".join(lines)
