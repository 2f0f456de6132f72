"""The command `models`."""

from dataclasses import replace
from typing import Annotated, Literal

import typer

from generation.config import RECIPES, Config
from merge_dataset.commands.command_line import Format, command, in_options, input_option, option
from merge_dataset.settings import RUNNING
from merge_metric.commands.predict import Only, PresetName, read_list


@command(extra="predict")
def models_command(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Folders, Hub ids, .gguf files.")
    ] = None,
    preset: PresetName = None,
    only: Only = None,
    recipe: Annotated[
        str | None, input_option(f"The masked LMs of {', '.join(RECIPES)}, or a .toml file.")
    ] = None,
    label_order: Annotated[
        str | None, input_option("What classifiers' classes 0, 1, 2 mean, as in predict.")
    ] = None,
    device: Annotated[str, option("auto, cpu, cuda, cuda:1, mps.", panel=RUNNING)] = "auto",
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        option("Type of the weights. Default: as the run has it.", panel=RUNNING),
    ] = None,
    output: Format = "text",
) -> None:
    """Look at models before a run needs them: what is there, and what it takes.

    Reads lists of files, configurations and headers, of weights only pickled adapters;
    with HF_HUB_OFFLINE=1 those in the cache. Exit code 1 where a model cannot be used as it is.

    Before they begin, suggest, generate, paraphrase, signals and predict --preset look
    at all their models in the same way.

    \b
    Examples:
      merge-nli models FacebookAI/roberta-large-mnli ./my-classifier

    \b
      merge-nli models --preset paper --only S,SMFA

    \b
      merge-nli models --recipe paper-v2 --device cpu --format json
    """
    from generation.suggestions.store import mlm_names, wanted_mlms
    from merge_metric.models.inspection import CLASSIFIER, HEADS, find_head
    from merge_metric.models.pair_model import ModelRequest
    from merge_metric.models.readiness import (
        inspect_models,
        model_of_preset,
        readiness_table,
        this_machine,
    )

    if not (models or preset or recipe):
        raise ValueError("expected ids or folders of models, --preset or --recipe, got none")
    machine = this_machine(device)
    request = ModelRequest(model="", dtype=dtype, label_order=label_order)
    listed, _ = read_list(preset, only)
    left_out = [preset for preset in listed if preset.not_on_hub]
    asked = [
        ("", replace(request, model=name), find_head(name, HEADS, default=CLASSIFIER))
        for name in models or ()
    ]
    if recipe:
        config = Config.from_recipe(recipe)
        asked += wanted_mlms(mlm_names(config.mlms), dtype or config.dtype)
    asked += [model_of_preset(preset, request) for preset in listed if not preset.not_on_hub]
    looks = inspect_models(asked, machine)
    table = readiness_table(looks, left_out, in_options)
    typer.echo(table.to_json() if output == "json" else table.to_text())
    if any(look["wrong"] for look in looks):
        raise typer.Exit(1)
