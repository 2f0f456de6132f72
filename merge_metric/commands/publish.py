"""The commands `publish metric` and `publish results`, and the group `publish`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from merge_dataset.commands.check import OutputFormat
from merge_dataset.commands.publish import (
    NOTHING_TO_DO,
    NOTHING_WRITTEN,
    Format,
    Private,
    Yes,
    account_line,
    describe_files,
    difference_json,
    publish_dataset_command,
    publishing,
    repository_line,
    show,
)
from merge_dataset.schema import DATASET_NAME

if TYPE_CHECKING:
    from merge_metric.publish import SpacePlan, SpacePublished
    from merge_metric.publish_results import ResultsPlan

publish_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Publish a dataset, the metric or a model's results on the Hub; dry runs by default.",
)
publish_app.command("dataset")(publish_dataset_command)


@publish_app.command("metric")
def publish_metric_command(
    repo: Annotated[str, typer.Option(help="The Space, OWNER/seed_variant_accuracy.")],
    private: Private = False,
    yes: Yes = False,
    output: Format = OutputFormat.text,
) -> None:
    """Publish the metric as a Space, for evaluate.load("OWNER/seed_variant_accuracy").

    The Space has the metric's page. It is uploaded in one commit, then loaded with empty
    caches, and an example is computed. Without --yes only what would be done is shown.

    \b
    Examples:
      merge-nli publish metric --repo somebody/seed_variant_accuracy

    \b
      merge-nli publish metric --repo somebody/seed_variant_accuracy --yes
    """  # \b is a mark of click: keep the lines that follow
    with publishing():
        from merge_metric.publish import carry_out_space, plan_space

        planned = plan_space(repo, private=private)
        show(output, _space_text(planned))
        done = carry_out_space(planned) if yes else None
        show(output, _space_done(planned, done), value=lambda: _space_json(planned, done))


@publish_app.command("results")
def publish_results_command(
    predictions: Annotated[
        Path, typer.Argument(help="The predictions file: .parquet, .jsonl or .jsonl.gz.")
    ],
    repo: Annotated[str, typer.Option(help="The model repository, OWNER/NAME.")],
    dataset_repo: Annotated[str, typer.Option(help="Where the dataset is published, OWNER/NAME.")],
    dataset: Annotated[
        Path, typer.Option(help="The dataset folder, the same as is published.")
    ] = Path(DATASET_NAME),
    config: Annotated[
        list[str] | None,
        typer.Option(help="Configuration, e.g. snli_nouns; may be repeated. Default: as score."),
    ] = None,
    pr: Annotated[
        bool, typer.Option("--pr", help="As a pull request; needs no right to write.")
    ] = False,
    source_url: Annotated[
        str | None, typer.Option(help="Link to where the figures come from.")
    ] = None,
    source_name: Annotated[str | None, typer.Option(help="What the link is called.")] = None,
    date: Annotated[
        str | None, typer.Option(help="Of the evaluation, e.g. 2025-10-28. Default: the commit's.")
    ] = None,
    yes: Yes = False,
    output: Format = OutputFormat.text,
) -> None:
    """Publish a model's seed-variant accuracy in its repository, as .eval_results/*.yaml.

    The figures are computed from the predictions file, at a threshold of 90 %, in percent.
    The Hub shows them on the model's page, and on that of the dataset where it is listed as a
    benchmark. Without --yes only what would be done is shown.

    \b
    Examples:
      merge-nli publish results predictions.parquet --dataset merge-nli
        --dataset-repo somebody/merge-nli --repo somebody/my-model

    \b
      merge-nli publish results predictions.parquet --dataset merge-nli
        --dataset-repo somebody/merge-nli --repo other/model --pr --yes
    """  # \b is a mark of click: keep the lines that follow
    with publishing():
        from merge_metric.publish_results import carry_out_results, plan_results

        planned = plan_results(
            predictions,
            dataset,
            dataset_repo,
            repo,
            configs=config or (),
            source_url=source_url,
            source_name=source_name,
            date=date,
        )
        show(output, _results_text(planned, pull_request=pr))
        to_do = yes and not planned.is_done
        address = carry_out_results(planned, pull_request=pr) if to_do else None
        show(output, _results_done(planned, address), value=lambda: _results_json(planned, address))


def _space_text(planned: SpacePlan) -> Iterator[str]:
    target = planned.repository
    yield repository_line(target.name, "Space", exists=planned.exists, private=planned.private)
    yield account_line(planned.account)
    yield f"main: {planned.main or 'up to date'}"
    yield from describe_files(planned.main, planned.files)


def _space_done(planned: SpacePlan, done: SpacePublished | None) -> Iterator[str]:
    if done is None:
        yield NOTHING_TO_DO if planned.is_done else NOTHING_WRITTEN
        return
    yield f"main is at {done.revision}" + ("" if planned.main else ", as before")
    yield f"loaded back: {', '.join(f'{k} {v}' for k, v in done.figures.items())}"
    yield f"Published: {planned.repository.address}"
    yield f'evaluate.load("{planned.repository.name}")'


def _space_json(planned: SpacePlan, done: SpacePublished | None) -> dict[str, Any]:
    return {
        "repository": planned.repository.name,
        "exists": planned.exists,
        "private": planned.private,
        "account": planned.account,
        "main": difference_json(planned.main),
        "nothing_to_do": planned.is_done,
        "done": done and {"revision": done.revision, "figures": done.figures},
    }


def _results_text(planned: ResultsPlan, *, pull_request: bool) -> Iterator[str]:
    where = "a pull request to main" if pull_request else "main"
    yield f"{planned.repository.name}: results on {planned.dataset} {planned.version}"
    yield account_line(planned.account)
    yield f"{where}: {planned.main or 'up to date'}"
    yield from describe_files(planned.main, [planned.file])
    for config, value in planned.values.items():
        yield f"  {config}: {value}"


def _results_done(planned: ResultsPlan, address: str | None) -> Iterator[str]:
    if planned.is_done:
        yield NOTHING_TO_DO
    else:
        yield f"Published: {address}" if address else NOTHING_WRITTEN


def _results_json(planned: ResultsPlan, address: str | None) -> dict[str, Any]:
    return {
        "repository": planned.repository.name,
        "account": planned.account,
        "dataset": planned.dataset,
        "version": planned.version,
        "values": dict(planned.values),
        "main": difference_json(planned.main),
        "nothing_to_do": planned.is_done,
        "published": address,
    }
