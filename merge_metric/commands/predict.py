"""The commands `predict` and `baseline`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from merge_dataset.commands.command_line import (
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
from merge_metric.models.pair_model import ModelRequest
from merge_metric.seed_variant_accuracy.formatting import as_percent

if TYPE_CHECKING:
    import pyarrow as pa

    from merge_dataset.executors import Distribution
    from merge_metric.models.presets import Preset
    from merge_metric.predict.driver import Outcome
    from merge_metric.predict.jobs import Done, Job

PresetName = Annotated[
    str | None, input_option("A list of models of presets.toml, e.g. paper.", "--preset")
]
Only = Annotated[
    str | None, input_option("Only these models or groups of the list, e.g. SMFA,BERT-B-M.")
]
Dataset = Annotated[
    str, input_option("Dataset folder, name on the Hub, or a run's problems.parquet.")
]
Configs = Annotated[list[str] | None, config_option("all classes, and paraphrases")]
_OUT = "Predictions file, .parquet or .jsonl{}. Default: one file per source, in predictions."
Overwrite = Annotated[
    bool, option("Replace predictions of another model or of other settings.", "--overwrite")
]

DryRun = Annotated[
    bool, option("Say how many requests and tokens it takes; ask nothing.", "--dry-run")
]
Prices = Annotated[
    tuple[float, float] | None,
    option("Of a million tokens of prompts and of answers, for the cost.", metavar="IN OUT"),
]
Tokenizer = Annotated[
    Path | None,
    option("A tokenizer.json by which --dry-run counts tokens.", exists=True, dir_okay=False),
]
BatchOut = Annotated[
    Path | None, option("Write requests in OpenAI's batch format, .jsonl; ask nothing.")
]
BatchIn = Annotated[
    list[Path] | None,
    input_option("Take answers from these results of batches; may be repeated."),
]


@command(extra="predict")
def predict_command(
    *,
    dataset: Dataset,
    model: Annotated[
        str | None,
        input_option("Folder, Hub id, .gguf file, or a server's name for it.", "--model"),
    ] = None,
    preset: PresetName = None,
    only: Only = None,
    config: Configs = None,
    out: Annotated[Path | None, option(_OUT.format("; with --preset a folder"), "--out")] = None,
    overwrite: Overwrite = False,
    limit_seeds: LimitSeeds = None,
    rng_seed: SampleSeed = 0,
    merge_labels: MergeLabels = None,
    dataset_revision: Annotated[
        str | None, input_option("Revision of the dataset on the Hub.")
    ] = None,
    dry_run: DryRun = False,
    prices: Prices = None,
    tokenizer: Tokenizer = None,
    batch_out: BatchOut = None,
    batch_in: BatchIn = None,
    given: Annotated[Given, OptionsOf(ModelRequest, "predict", defaults=True)],
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
    from merge_metric.models.presets import on_hub
    from merge_metric.predict.jobs import jobs_of
    from merge_metric.predict.problems import read_problems

    if (model is None) == (preset is None):
        raise ValueError("expected either --model or --preset, and not both")
    entries = on_hub(*read_list(preset, only))
    distribution, request = distribution_of(dealt), ModelRequest(model=model or "", **given)
    jobs = jobs_of(request, preset, entries, {"prices": [*prices]} if prices else {})
    problems = read_problems(
        dataset,
        config or (),
        revision=dataset_revision,
        with_shots=request.shots == "seeds",
        limit_seeds=limit_seeds,
        rng_seed=rng_seed,
        merge_labels=merge_labels or (),
    )
    done = ask_model(
        jobs,
        problems,
        output,
        preset=preset,
        distribution=distribution,
        out=out,
        overwrite=overwrite,
        dry_run=dry_run,
        prices=prices,
        tokenizer=tokenizer,
        batch_out=batch_out,
        batch_in=batch_in,
    )
    if done:
        _report(done, dataset, output)


def ask_model(
    jobs: Mapping[str, Job],
    problems: pa.Table,
    output: OutputFormat,
    *,
    preset: str | None = None,
    distribution: Distribution | None = None,
    out: Path | None,
    overwrite: bool,
    dry_run: bool,
    prices: tuple[float, float] | None,
    tokenizer: Path | None,
    batch_out: Path | None,
    batch_in: list[Path] | None,
) -> Done | None:
    """Run models; or print what a run takes, or write a batch instead, and return None."""
    from merge_metric.predict.batch_files import (
        costs_text,
        estimate,
        take_results,
        write_requests,
    )
    from merge_metric.predict.jobs import open_files, run_models
    from merge_metric.predict.problems import sources_of

    if not (dry_run or batch_out or batch_in):
        return run_models(
            jobs, problems, preset=preset, distribution=distribution, out=out, overwrite=overwrite
        )
    request = next(iter(jobs.values()))[0]
    is_remote = isinstance(request, ModelRequest) and request.base_url
    if preset or distribution or not (dry_run or is_remote):
        raise ValueError(
            "expected for --dry-run one --model, asked from here, and for batches one on a server, "
            "with --base-url"
        )
    (job,) = jobs.values()
    if dry_run:
        costs = estimate(open_files(job, problems, out), prices=prices, tokenizer=tokenizer)
        write_result(output, costs, costs_text(costs))
        return None
    if out is None and len(sources := sources_of(problems)) > 1:
        raise ValueError(
            f"expected for a batch problems of one source, or --out, a file for all of them, got "
            f"{', '.join(sources)}: name configurations of one with --config"
        )
    ((server, asking),) = open_files(job, problems, out)
    if batch_out is not None:
        made = write_requests(server, asking, batch_out, overwrite=overwrite)
        lines = "\n".join(f"{path}: {count:,} requests" for path, count in made.items())
        requests = {str(path): count for path, count in made.items()}
        write_result(output, {"requests": requests}, lines or "no request is left")
        return None
    take = partial(take_results, server, asking, batch_in or [])
    return [asking.complete(take, job[1], overwrite=overwrite)], []


def read_list(preset: str | None, only: str | None) -> tuple[list[Preset], list[str]]:
    """Read the requested models of a preset list; return them and the names of `--only`."""
    from merge_metric.models.presets import read_presets

    if only is not None and preset is None:
        raise ValueError("--only: expected together with --preset, of whose models it names some")
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    return list(read_presets(preset, names)) if preset else [], names


@command(extra="predict")
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
    dataset: Dataset,
    config: Configs = None,
    out: Annotated[Path | None, option(_OUT.format(""))] = None,
    overwrite: Overwrite = False,
    limit_seeds: LimitSeeds = None,
    rng_seed: SampleSeed = 0,
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
    from merge_metric.predict.baselines import BaselineRequest
    from merge_metric.predict.jobs import run_models
    from merge_metric.predict.problems import read_problems

    if (train is None) == (name == "hypothesis-only"):
        raise ValueError("--train: expected a file of labelled problems with hypothesis-only alone")
    distribution = distribution_of(dealt)
    problems = read_problems(dataset, config or (), limit_seeds=limit_seeds, rng_seed=rng_seed)
    request = BaselineRequest(name=name, train=None if train is None else str(train))
    done = run_models(
        {name: (request, {})}, problems, distribution=distribution, out=out, overwrite=overwrite
    )
    _report(done, dataset, output)


def _report(done: Done, dataset: str, output: OutputFormat) -> None:
    from merge_dataset.files import to_json

    outcomes, failed = done
    if output == "json":
        files = [{**asdict(outcome), "path": str(outcome.path)} for outcome in outcomes]
        typer.echo(to_json({"predictions": files, "failed": failed}))
    elif outcomes:
        typer.echo("\n\n".join(_tell(outcome, dataset) for outcome in outcomes))
    if failed:
        typer.echo("\n  ".join([f"\n{len(failed)} models failed:", *failed]), err=True)
        raise typer.Exit(1)


def _tell(outcome: Outcome, dataset: str) -> str:
    from merge_metric.frame.noise import usage_text
    from merge_metric.frame.predictions import MERGE_LABELS
    from merge_metric.models.label_order import describe_evidence

    metadata, pace = outcome.metadata, "inferred before"
    if outcome.inferred:
        pace = f"{outcome.inferred:,} inferred"
        if outcome.seconds:  # of answers from batch files no time is known
            speed = f"{outcome.inferred / outcome.seconds:,.0f} per second"
            pace += f" in {outcome.seconds:,.1f} s ({speed})"
    name, known_by = metadata.get("short_name") or metadata["name"], ""
    if order := metadata.get("label_order"):
        known_by = metadata["label_order_source"]
        if evidence := metadata.get("label_order_evidence"):
            known_by += f": {describe_evidence(evidence)}"
    requests, lost = metadata.get("requests"), metadata.get("samples_without_label")
    truncated = metadata.get("truncated")
    check = metadata.get("label_order_check") or {"seeds": 0}
    seeds = f"{check['seeds']:,} seeds" + " whose answers name a label" * bool(lost)
    lines = [
        f"{name}: {outcome.problems:,} problems, {outcome.pairs:,} distinct pairs, {pace}",
        order and f"  classes: {', '.join(order)} ({known_by})",
        requests and f"  {usage_text(metadata, requests)}",
        lost and f"  answers that name no label: {as_percent(lost)}",
        truncated and f"  cut to {metadata['max_tokens']} tokens: {truncated:,} pairs",
        check["seeds"] and f"  right on {as_percent(check['accuracy'])} of {seeds}",
        f"  {outcome.path}",
    ]
    if outcome.problems > check["seeds"]:
        command = ["merge-nli", "score", str(outcome.path)]
        if "all_problems" not in metadata["problems"]:
            command += ["--dataset", dataset]
            if {"limit_seeds", "shots"} & metadata["problems"].keys():
                command.append("--allow-missing")
        for labels in filter(None, metadata.get(MERGE_LABELS, "").split(";")):
            command += ["--merge-labels", labels]
        lines.append(f"Next: {shlex.join(command)}")
    return "\n".join(filter(None, lines))
