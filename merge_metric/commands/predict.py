"""The commands `predict` and `baseline`."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from merge_dataset.commands.check import OutputFormat, user_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from merge_metric.predict.run import Outcome, PairModel

_LM, _SERVER, _MACHINE = "Language models", "Models on a server", "Machine"

log = logging.getLogger(__name__)

baseline_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Predict without reading the premise, or without reading at all.",
)


class Kind(StrEnum):
    """Kinds of models."""

    classifier = "classifier"
    lm = "lm"
    remote = "remote"


class DType(StrEnum):
    """Number format of the weights."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class MissingLetters(StrEnum):
    """What becomes of an answer without letters."""

    error = "error"
    uniform = "uniform"


def _option(text: str, *names: str, group: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=group, **more)


Dataset = Annotated[
    str,
    _option("Dataset folder, name for load_dataset, or a run's problems.parquet."),
]
Configs = Annotated[
    list[str] | None,
    _option(
        "Configuration, e.g. snli_nouns; may be repeated. Default: all classes, and paraphrases.",
        "--config",
    ),
]
Out = Annotated[
    Path | None,
    _option(
        "Predictions file, .parquet or .jsonl; with --preset a folder. "
        "Default: one file per source, in predictions."
    ),
]
LimitSeeds = Annotated[
    int | None, _option("Only so many seeds of each source, drawn at random.", min=1)
]
RngSeed = Annotated[int, _option("Of that sample.", min=0)]
Format = Annotated[OutputFormat, _option("How to write the summary.", "--format")]


def predict_command(
    dataset: Dataset,
    model: Annotated[
        str | None, _option("Folder, Hub id, .gguf file, or a server's name for it.")
    ] = None,
    preset: Annotated[str | None, _option("A list of models instead: paper.")] = None,
    only: Annotated[
        str | None, _option("Of the list: models or groups, e.g. SMFA,BERT-B-M.")
    ] = None,
    config: Configs = None,
    out: Out = None,
    limit_seeds: LimitSeeds = None,
    rng_seed: RngSeed = 0,
    kind: Annotated[Kind | None, _option("Default: found out.")] = None,
    revision: Annotated[str | None, _option("Of the model, on the Hub.")] = None,
    dataset_revision: Annotated[str | None, _option("Of the dataset, on the Hub.")] = None,
    label_order: Annotated[
        str | None,
        _option(
            "What a classifier's classes 0, 1, 2 mean, e.g. c,e,n; or seeds: "
            "find it out from gold labels where nothing says it."
        ),
    ] = None,
    shots: Annotated[
        str, _option("exc, mix, none, snli, mnli, or a .toml or .jsonl file.", group=_LM)
    ] = "exc",
    prompt_start: Annotated[
        str, _option("Text before the prompt, e.g. <|endoftext|>.", group=_LM)
    ] = "",
    chat_template: Annotated[
        bool, _option("Ask in the model's chat template.", "--chat-template", group=_LM)
    ] = False,
    prefix_cache: Annotated[
        bool, _option("Run the examples once, not per pair.", group=_LM)
    ] = True,
    gguf_file: Annotated[str | None, _option("A GGUF file in the folder.", group=_LM)] = None,
    base_url: Annotated[
        str | None, _option("OpenAI-compatible, e.g. http://localhost:8000/v1.", group=_SERVER)
    ] = None,
    api_key_env: Annotated[
        str | None, _option("Environment variable with the key.", group=_SERVER)
    ] = None,
    concurrency: Annotated[int, _option("Requests at a time.", group=_SERVER, min=1)] = 8,
    missing_letters: Annotated[
        MissingLetters, _option("What an answer without letters means.", group=_SERVER)
    ] = MissingLetters.error,
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1, mps.", group=_MACHINE)] = "auto",
    dtype: Annotated[
        DType | None,
        _option("Default: float32; bfloat16 for language models on CUDA.", group=_MACHINE),
    ] = None,
    batch_tokens: Annotated[
        int | None, _option("Tokens in a forward pass.", group=_MACHINE, min=1)
    ] = None,
    output: Format = OutputFormat.text,
) -> None:
    """Run a model over a dataset and write a predictions file.

    NLI classifiers, causal language models (multiple choice), models on a server; of problems
    that are not of NLI, classifiers of their labels, which read the first text and the others
    as a pair. Each distinct pair is inferred once. An interrupted run goes on where it stopped
    when given the same command again; what is finished is not run again.

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
      merge-nli predict --preset paper --only SMFA --dataset merge-nli
    """  # \b is a mark of click: keep the lines that follow
    with user_errors(extra="predict"):
        from merge_metric.models.opening import ModelRequest
        from merge_metric.predict.jobs import run_preset, run_request

        _require_one(model, preset, only)
        problems = _read_problems(dataset, config, dataset_revision, limit_seeds, rng_seed)
        request = ModelRequest(
            model=model or "",
            kind=kind and kind.value,
            revision=revision,
            device=device,
            dtype=dtype and dtype.value,
            batch_tokens=batch_tokens,
            label_order=label_order,
            shots=shots,
            prompt_start=prompt_start,
            chat_template=chat_template,
            prefix_cache=prefix_cache,
            gguf_file=gguf_file,
            base_url=base_url,
            api_key_env=api_key_env,
            concurrency=concurrency,
            missing_letters=missing_letters.value,
        )
        failed: list[str] = []
        if preset is None:
            outcomes = list(run_request(request, problems, out=out))
        else:
            names = [name.strip() for name in (only or "").split(",") if name.strip()]
            outcomes, failed = run_preset(request, preset, names, problems, folder=out)
        _report(outcomes, failed, dataset, output)
    if failed:
        raise typer.Exit(1)


@baseline_app.command("hypothesis-only")
def hypothesis_only_command(
    train: Annotated[
        Path, _option("NLI problems to learn from: .jsonl, .csv, .tsv, .txt, .parquet.")
    ],
    dataset: Dataset,
    config: Configs = None,
    out: Out = None,
    limit_seeds: LimitSeeds = None,
    rng_seed: RngSeed = 0,
    hypothesis_column: Annotated[str | None, _option("Default: hypothesis or sentence2.")] = None,
    label_column: Annotated[str | None, _option("Default: label or gold_label.")] = None,
    output: Format = OutputFormat.text,
) -> None:
    """Learn labels from hypotheses alone, and predict them (logistic regression).

    \b
    Examples:
      merge-nli baseline hypothesis-only --train snli_1.0_train.jsonl --dataset merge-nli
        --config snli
    """  # \b is a mark of click: keep the lines that follow
    with user_errors(extra="predict"):
        from merge_metric.predict.baselines import HypothesisOnly
        from merge_metric.predict.problems import require_nli
        from merge_metric.predict.training import read_training_data

        problems = _read_problems(dataset, config, None, limit_seeds, rng_seed)
        require_nli(problems, "hypothesis-only")
        data = read_training_data(
            train, hypothesis_column=hypothesis_column, label_column=label_column
        )
        log.info("learning from %s hypotheses", f"{len(data.hypotheses):,}")
        _run_baseline(HypothesisOnly(data), problems, out, dataset, output)


@baseline_app.command("majority")
def majority_command(
    dataset: Dataset,
    train: Annotated[
        Path | None, _option("NLI problems whose labels count; default: the dataset's seeds.")
    ] = None,
    config: Configs = None,
    out: Out = None,
    limit_seeds: LimitSeeds = None,
    rng_seed: RngSeed = 0,
    label_column: Annotated[str | None, _option("Default: label or gold_label.")] = None,
    output: Format = OutputFormat.text,
) -> None:
    """Always predict the most frequent label.

    \b
    Examples:
      merge-nli baseline majority --dataset merge-nli --config snli
    """  # \b is a mark of click: keep the lines that follow
    with user_errors(extra="predict"):
        from merge_metric.predict.baselines import Majority
        from merge_metric.predict.problems import format_of_problems, require_nli, seeds_of
        from merge_metric.predict.training import read_training_data

        problems = _read_problems(dataset, config, None, limit_seeds, rng_seed)
        if train is not None:
            require_nli(problems, "--train")
            data = read_training_data(train, label_column=label_column)
            model = Majority(data.labels, data.description)
        else:
            labels = seeds_of(problems)["label"].to_numpy()
            known = format_of_problems(problems).labels
            model = Majority(labels, {"seeds": len(labels)}, known)
        _run_baseline(model, problems, out, dataset, output)


# --- Running ---


def _require_one(model: str | None, preset: str | None, only: str | None) -> None:
    if (model is None) == (preset is None):
        raise ValueError("expected either --model or --preset")
    if only is not None and preset is None:
        raise ValueError("--only: expected together with --preset, of whose models it names some")


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
    model: PairModel, problems: pa.Table, out: Path | None, dataset: str, output: OutputFormat
) -> None:
    from merge_metric.predict.jobs import run_model

    _report(list(run_model(model, problems, out=out)), [], dataset, output)


def _report(outcomes: list[Outcome], failed: list[str], dataset: str, output: OutputFormat) -> None:
    from merge_metric.predict.summary import as_json, as_text

    if output is OutputFormat.json:
        typer.echo(as_json(outcomes, failed))
    elif outcomes:
        typer.echo(as_text(outcomes, dataset))
    if failed:
        reasons = "".join(f"\n  {reason}" for reason in failed)
        typer.echo(f"\n{len(failed)} models failed:{reasons}", err=True)
