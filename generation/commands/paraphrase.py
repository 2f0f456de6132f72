"""The command `paraphrase`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as replace_settings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from merge_metric.models.pair_model import ModelRequest, PairModel

if TYPE_CHECKING:
    from generation.paraphrases.rewriting import TextGenerator


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
    from generation.problems.sources import require_source
    from merge_dataset.export import export_dataset, require_target
    from merge_dataset.provenance import PARAPHRASES

    coming = {"kind": PARAPHRASES, "source": config.source, "config": config.output_settings()}
    require_target(out, coming, overwrite=overwrite)
    require_source(config)
    dealt: dict[str, Any] = {}
    _look_at_models(config, distribution)
    if distribution is not None:
        dealt = {"deal": partial(_deal, distribution), "tasks": distribution.tasks}
    with RunFolder(Path(config.run)).locked():
        folder = paraphrase(
            config,
            generator=partial(_open_generator, config),
            judge=partial(_open_judge, config),
            overwrite=overwrite,
            **dealt,
        )
        configs = export_dataset(folder.path, out, overwrite=overwrite)
    model = {
        "model": config.model,
        "kind": config.model_kind,
        "revision": config.model_revision,
        "label-order": config.label_order,
    }
    as_json = output == "json"
    typer.echo(summarise(folder.path, out, configs, model=model, as_json=as_json))


def _deal(distribution: Distribution, folder: Path, units: Sequence[str]) -> None:
    """Have units done by tasks."""
    from merge_dataset.executors.dispatch import run_units

    run_units("generation.commands.paraphrase:paraphrase_unit", folder, units, distribution)


def paraphrase_unit(folder: Path, unit: str) -> None:
    """Do a unit of work in a task, see `paraphrase_run.do_unit`."""
    from generation.paraphrases.paraphrase_run import do_unit

    config = ParaphraseConfig.read(RunFolder(folder).config)
    do_unit(
        folder,
        unit,
        generator=partial(_open_generator, config),
        judge=partial(_open_judge, config),
    )


def _look_at_models(config: ParaphraseConfig, distribution: Distribution | None = None) -> None:
    """Look at both models of a new run, before it makes anything.

    Args:
        config: The settings.
        distribution: Where tasks open them; by default they are opened here.

    Raises:
        ValueError: with all that is wrong with either.
    """
    from merge_metric.models.heads import CAUSAL_LM, CLASSIFIER, TEXT_GENERATOR
    from merge_metric.models.readiness import (
        Wanted,
        look_at,
        machine_for,
        require_all,
        wanted_of,
    )

    if (Path(config.run) / "generator.json").is_file():
        return  # a run that goes on opens a model only where it has to
    generator = Wanted(model=config.generator, head=TEXT_GENERATOR, gguf_file=config.gguf_file,
                       dtype=config.dtype)  # fmt: skip
    kinds = {"classifier": (CLASSIFIER,), "lm": (CAUSAL_LM,), None: (CLASSIFIER, CAUSAL_LM)}
    judge = wanted_of(config.model, kinds[config.model_kind], revision=config.model_revision,
                      label_order=config.label_order)  # fmt: skip
    machine = machine_for(distribution, config.device)
    require_all(look_at([generator, judge], machine), machine)


def _open_generator(config: ParaphraseConfig) -> TextGenerator:
    from generation.paraphrases.text_generator import Generator

    return Generator.load(
        config.generator,
        gguf_file=config.gguf_file,
        device=config.device,
        dtype=config.dtype,
        decoding=config.decoding,
        prompt=config.prompt,
        batch_size=config.batch_size,
    )


def _open_judge(config: ParaphraseConfig, problems: Path) -> PairModel:
    """Open the NLI model; some of the problems may tell what its classes mean."""
    from generation.paraphrases.paraphrase_run import sample_of_problems
    from merge_metric.models.opening import open_model

    request = ModelRequest(
        model=config.model,
        kind=config.model_kind,
        revision=config.model_revision,
        device=config.device,
        label_order=config.label_order,
    )
    return open_model(request, sources=[config.source], seeds=partial(sample_of_problems, problems))
