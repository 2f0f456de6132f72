"""The command `paraphrase`."""

from __future__ import annotations

from dataclasses import replace as replace_settings
from pathlib import Path
from typing import Annotated

import typer

from generation.commands.generate import Out, Overwrite
from generation.paraphrases.config import TEMPERATURES, ParaphraseConfig
from generation.run_folder import RunFolder
from merge_dataset.commands.command_line import (
    ExecutorName,
    Format,
    Given,
    OutputFormat,
    ResourceSettings,
    TaskCount,
    WorkerCount,
    distribution_of,
    option,
    option_of,
    options_of,
    user_errors,
    with_settings,
)
from merge_dataset.executors.plan import Distribution, ExecutorError


@user_errors(extra="generation,predict", failures=(ExecutorError,))
@with_settings
def paraphrase_command(
    *,
    given: Annotated[Given, options_of(ParaphraseConfig, "paraphrase", defaults=True)],
    temperature: Annotated[
        tuple[float, float],
        option(
            "Range from which it is drawn for each hypothesis and round.",
            metavar="MIN MAX",
            panel="Search",
        ),
    ] = TEMPERATURES,
    run: Annotated[str | None, option_of(ParaphraseConfig, "run")] = None,
    executor: ExecutorName = None,
    tasks: TaskCount = None,
    workers: WorkerCount = 1,
    resources: ResourceSettings,
    out: Out = Path("merge-nli"),
    overwrite: Overwrite = False,
    output: Format = "text",
) -> None:
    """Paraphrase the hypotheses of problems that an NLI model answers right.

    A text generator rewrites them. Paraphrases are kept if the NLI model predicts
    that they entail the hypothesis and the hypothesis entails them. They become the configuration
    SOURCE_paraphrases of the dataset.

    An interrupted run goes on where it stopped when given the same command again.

    \b
    Examples:
      merge-nli paraphrase --source snli --data snli_1.0_test.jsonl
        --model FacebookAI/roberta-large-mnli --device cuda

    \b
      merge-nli paraphrase --source anli-r1 --model ./my-classifier
        --label-order c,e,n --generator google/flan-t5-base --k 5

    \b
      merge-nli paraphrase --source mnli-m --model ./my-classifier
        --generator ./SmolLM2-135M-Instruct.gguf
        --prompt "Say this in other words: {hypothesis}"

    \b
      merge-nli paraphrase --source snli --model ./my-classifier --device cuda
        --executor slurm --tasks 8 --gpus-per-task 1 --partition gpu --time 4:00:00
    """
    smallest, greatest = temperature
    config = ParaphraseConfig(
        **given,
        temperature_min=smallest,
        temperature_max=greatest,
    )
    config = replace_settings(config, run=run or f"runs/{config.source}_paraphrases")
    distribution = distribution_of(executor, tasks, workers, resources)
    _paraphrase(config, out, overwrite=overwrite, output=output, distribution=distribution)


def _paraphrase(
    config: ParaphraseConfig,
    out: Path,
    *,
    overwrite: bool,
    output: OutputFormat,
    distribution: Distribution | None,
) -> None:
    """Run the second system and add what it made to a dataset folder."""
    from generation.paraphrases.outcome import summarise
    from generation.paraphrases.paraphrase_run import paraphrase
    from merge_dataset.export import export_dataset, require_target
    from merge_dataset.provenance import PARAPHRASES

    coming = {"kind": PARAPHRASES, "source": config.source, "config": config.output_settings()}
    require_target(out, coming, config.run, overwrite=overwrite)
    with RunFolder(Path(config.run)).locked():
        folder = paraphrase(config, distribution=distribution, overwrite=overwrite)
        configs = export_dataset(folder.path, out, overwrite=overwrite)
    model = {
        "model": config.model,
        "kind": config.model_kind,
        "revision": config.model_revision,
        "label-order": config.label_order,
    }
    as_json = output == "json"
    typer.echo(summarise(folder.path, out, configs, model=model, as_json=as_json))
