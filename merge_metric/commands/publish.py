"""The commands `publish metric` and `publish results`, and the group `publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merge_dataset.commands.command_line import Format, config_option, option, with_settings
from merge_dataset.commands.publish import (
    Private,
    Yes,
    publish,
    publish_dataset_command,
    publishing,
)
from merge_dataset.schema import DATASET_NAME

publish_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Publish a dataset, the metric or a model's results on the Hub; dry runs by default.",
)
publish_app.command("dataset")(publish_dataset_command)


@publish_app.command("metric")
@publishing()
@with_settings
def publish_metric_command(
    repo: Annotated[str, option("The Space, OWNER/seed_variant_accuracy.")],
    private: Private = False,
    yes: Yes = False,
    output: Format = "text",
) -> None:
    """Publish the metric as a Space, for evaluate.load("OWNER/seed_variant_accuracy").

    The Space has the metric's page. It is uploaded in one commit, then loaded with empty
    caches, and an example is computed. Without --yes it only shows what it would do.

    \b
    Examples:
      merge-nli publish metric --repo somebody/seed_variant_accuracy

    \b
      merge-nli publish metric --repo somebody/seed_variant_accuracy --yes
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.hub.publication import plan_metric
    from merge_metric.publishing import worked_example
    from merge_metric.register import SPACE

    publish(plan_metric(SPACE, repo, worked_example(), private=private), yes, output)


@publish_app.command("results")
@publishing()
@with_settings
def publish_results_command(
    predictions: Annotated[
        Path, typer.Argument(help="The predictions file: .parquet, .jsonl or .jsonl.gz.")
    ],
    repo: Annotated[str, option("The model repository, OWNER/NAME.")],
    dataset_repo: Annotated[str, option("Where the dataset is published, OWNER/NAME.")],
    dataset: Annotated[Path, option("The dataset folder, the same as is published.")] = Path(
        DATASET_NAME
    ),
    config: Annotated[list[str] | None, config_option("as score")] = None,
    pr: Annotated[bool, option("As a pull request; needs no right to write.", "--pr")] = False,
    source_url: Annotated[str | None, option("Link to where the figures come from.")] = None,
    source_name: Annotated[str | None, option("What the link is called.")] = None,
    date: Annotated[
        str | None, option("Date of the evaluation, e.g. 2025-10-28. Default: the commit's.")
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
      merge-nli publish results predictions.parquet --dataset merge-nli
        --dataset-repo somebody/merge-nli --repo somebody/my-model

    \b
      merge-nli publish results predictions.parquet --dataset merge-nli
        --dataset-repo somebody/merge-nli --repo other/model --pr --yes
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.hub.repository import parse_repository
    from merge_dataset.hub.results import plan_results
    from merge_metric.publishing import model_figures

    model = parse_repository(repo, "model")
    if source_name is not None and source_url is None:
        raise ValueError("--source-name: expected --source-url with it")
    figures = model_figures(predictions, dataset, config or (), model=repo)
    planned = plan_results(
        figures,
        model,
        dataset,
        dataset_repo,
        pull_request=pr,
        source_url=source_url,
        source_name=source_name,
        date=date,
    )
    publish(planned, yes, output)
