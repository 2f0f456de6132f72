"""The commands `publish dataset`, `publish metric`, `publish results` and `register`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from merge_dataset.commands.command_line import (
    OF_DATASET,
    DatasetArgument,
    Format,
    MergeLabels,
    OutputFormat,
    command,
    config_option,
    input_option,
    option,
    write_result,
)
from merge_dataset.hub.repository import PublishError, Repository
from merge_dataset.schema import DATASET_NAME
from merge_metric.exports.registry import date_option

log = logging.getLogger(__name__)

publish_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Publish a dataset, the metric or a model's results on the Hub; dry runs by default.",
)

Yes = Annotated[bool, option("Do it, or only say what would be done.", "--yes/--dry-run")]
Private = Annotated[bool, option("Make it private; an existing one must be private.", "--private")]


@publish_app.command("dataset")
@command(failures=(PublishError,))
def publish_dataset_command(
    folder: DatasetArgument,
    repo: Annotated[str, typer.Argument(help="The dataset repository, OWNER/NAME.")],
    version: Annotated[
        str | None,
        option(
            "Version of the data, e.g. 1.0.0. Default: that of the tag with the same data, else "
            "the next minor one."
        ),
    ] = None,
    private: Private = False,
    yes: Yes = False,
    output: Format = "text",
) -> None:
    """Publish a dataset folder on the Hub.

    The folder is checked, uploaded to main in one commit, loaded back with empty caches and
    compared row by row, and tagged with its version. The branch `script` keeps the loading
    script for datasets 3. Without --yes it shows the card, and what it would do.

    Log in before with `hf auth login`, or set HF_TOKEN. A command that was cut short can be
    run again; what is done already is left as it is.

    \b
    Examples:
      merge-nli publish dataset merge-nli somebody/merge-nli --version 2.0.0 --yes
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.hub.publication import push_to_hub

    _publish(output, push_to_hub, folder, repo, version=version, private=private, yes=yes)


@publish_app.command("metric")
@command(failures=(PublishError,))
def publish_metric_command(
    repo: Annotated[str, typer.Argument(help="The Space, OWNER/seed_variant_accuracy.")],
    private: Private = False,
    yes: Yes = False,
    output: Format = "text",
) -> None:
    """Publish the metric as a Space, for evaluate.load("OWNER/seed_variant_accuracy").

    The Space has the metric's page. It is uploaded in one commit, then loaded with empty
    caches, and an example is computed. Without --yes it only shows what it would do.

    \b
    Examples:
      merge-nli publish metric somebody/seed_variant_accuracy --yes
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.hub.publication import publish_metric
    from merge_metric.register import SPACE
    from merge_metric.seed_variant_accuracy.scoring import score

    example = {"arguments": EXAMPLE, "result": score(**EXAMPLE)}
    _publish(output, publish_metric, SPACE, repo, example, private=private, yes=yes)


@publish_app.command("results")
@command(failures=(PublishError,))
def publish_results_command(
    predictions: Annotated[
        Path, typer.Argument(help="The predictions file: .parquet, .jsonl or .jsonl.gz.")
    ],
    repo: Annotated[str, typer.Argument(help="The model repository, OWNER/NAME.")],
    dataset_repo: Annotated[str, input_option("Where the dataset is published, OWNER/NAME.")],
    dataset: Annotated[
        Path, input_option("The dataset folder or name, the same as is published.", **OF_DATASET)
    ] = Path(DATASET_NAME),
    config: Annotated[list[str] | None, config_option("as score")] = None,
    merge_labels: MergeLabels = None,
    pr: Annotated[bool, option("As a pull request; needs no right to write.", "--pr")] = False,
    date: Annotated[
        datetime | None,
        date_option("Date of the evaluation, e.g. 2025-10-28. Default: the commit's."),
    ] = None,
    yes: Yes = False,
    output: Format = "text",
) -> None:
    """Publish a model's figures in its repository, as .eval_results/*.yaml.

    The value of a task of the dataset's eval.yaml is the accuracy on variants in percent, as its
    framework computes it; seed-variant accuracy at 90 % stands in the notes. The Hub shows both
    on the model's page, and on that of the dataset where it is listed as a benchmark. Without
    --yes it only shows what it would do.

    \b
    Examples:
      merge-nli publish results predictions.parquet other/model --dataset merge-nli
        --dataset-repo somebody/merge-nli --pr --yes
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.hub.publication import publish_results

    model = Repository(repo, "model")
    figures = _model_figures(predictions, dataset, config or (), repo, merge_labels or ())
    given = (figures, model, dataset, dataset_repo)
    day = f"{date:%Y-%m-%d}" if date else None
    _publish(output, publish_results, *given, pull_request=pr, date=day, yes=yes)


EXAMPLE: Final[dict[str, Any]] = {
    "predictions": ["entailment", "entailment", "entailment", "neutral"],
    "references": ["entailment"] * 4,
    "seed_ids": ["seed 1", "seed 1", "seed 2", "seed 2"],
    "seed_predictions": ["entailment"] * 4,
}
"""Arguments of the metric, with a wrong answer to one variant of the second seed."""


def _model_figures(
    predictions: Path, folder: Path, configs: Sequence[str], model: str, merge_labels: Sequence[str]
) -> dict[str, dict[str, Any]]:
    import numpy as np

    from merge_metric.frame.joined import read_frames
    from merge_metric.frame.predictions import read_metadata
    from merge_metric.score import score_all
    from merge_metric.seed_variant_accuracy.options import Settings

    name = str(read_metadata(predictions).get("name", ""))
    if name and name != model:
        log.warning(
            "%s says that it is of %s, not of %s: is that the same model?", predictions, name, model
        )
    frames = list(
        read_frames(predictions, folder, configs, with_rows=False, merge_labels=merge_labels)
    )
    results = score_all(frames, Settings(), shown=False)
    figures = {}
    for frame in frames:
        result, right = results[frame.config], (np.arange(len(frame.answers)), frame.counts.gold)
        shares = [frame.answers[right].sum() / frame.answers.sum(), result["seed_accuracy"]]
        shares += [result["seed_variant_accuracy"], *result["seed_variant_accuracy_ci"]]
        accuracy, of_seeds, sv, low, high = (round(100 * float(share), 2) for share in shares)
        figures[frame.config] = {
            "value": accuracy,
            "notes": f"value: accuracy on variants, each once; seed-variant accuracy at 90 % {sv}, "
            f"95 % interval {low}-{high}; accuracy on seeds {of_seeds}; {result['n_seeds']} seeds, "
            f"{result['n_variants']} variants; {result['signature_short']}",
        }
    return figures


def _publish(
    output: OutputFormat, publish: Callable[..., dict[str, Any]], *given: Any, **options: Any
) -> None:
    """Publish; write lines as they come, or what it returns as JSON."""
    whole = publish(*given, **options, show=typer.echo if output == "text" else lambda _: None)
    if output == "json":
        write_result(output, whole)


@command()
def register_command(
    folder: Annotated[
        Path | None,
        typer.Argument(
            exists=True, file_okay=False, help="Dataset folder; by default ./merge-nli, if any."
        ),
    ] = None,
    name: Annotated[str | None, option("Name to load it by. Default: that of the folder.")] = None,
    cache_dir: Annotated[
        Path | None, option("Cache to use instead of that of `datasets`.", file_okay=False)
    ] = None,
    overwrite: Annotated[
        bool, option("Replace another folder that has the name.", "--overwrite")
    ] = False,
    output: Format = "text",
) -> None:
    """Make the metric and a dataset load by name from any directory, offline.

    For evaluate.load("seed_variant_accuracy") and load_dataset("merge-nli", …); the name
    then stands for the folder in every command, too. The folder is checked first. Register
    again after building anew. The metric is also registered by every other command, where
    its cache can be written to.

    \b
    Examples:
      merge-nli register trials/verbs --name verbs-only
    """
    if folder is None and Path(DATASET_NAME).is_dir():
        folder = Path(DATASET_NAME)
    from merge_dataset.register import register_dataset, registered_name
    from merge_metric.register import METRIC_NAME, register_metric

    register_metric()
    configs: list[str] = []
    problem: ValueError | None = None
    if folder:
        name = registered_name(folder, name)
        try:
            configs = register_dataset(folder, cache_dir, name=name, overwrite=overwrite)
        except ValueError as error:
            problem = error
    about = {"metric": METRIC_NAME, "folder": folder and str(folder), "name": name}
    loads = [f'load_dataset("{name}", "{config}")' for config in configs]
    whole = {**about, "registered": configs}
    write_result(output, whole, f'evaluate.load("{METRIC_NAME}")', *loads)
    if folder is None:
        typer.echo(f"No folder {DATASET_NAME} here: no dataset registered.", err=True)
    if problem:
        typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(1)
