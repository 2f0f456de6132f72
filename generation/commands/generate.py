"""The commands of runs: demo, generate, suggest, build, paraphrase, signals."""

import logging
from collections.abc import Callable
from dataclasses import replace as replace_settings
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from generation.config import RECIPES, Config, ProblemSettings, require
from generation.paraphrases.config import TEMPERATURES, ParaphraseConfig
from generation.run_folder import SCORED, RunFolder
from merge_dataset.commands.command_line import (
    Dealt,
    DealtAsConfigured,
    Format,
    Given,
    OptionsOf,
    command,
    distribution_of,
    input_option,
    option,
    option_of,
    parse_assignments,
    write_result,
)
from merge_dataset.executors import ExecutorError
from merge_dataset.provenance import DRAW, PARAPHRASES
from merge_dataset.schema import DEMO_SOURCE
from merge_dataset.settings import OUTPUT

log = logging.getLogger(__name__)

Run = Annotated[str, option_of(Config, "run")]
Out = Annotated[Path, option("Dataset folder to write or add to.", panel=OUTPUT)]
Recipe = Annotated[
    str,
    input_option(
        f"{', '.join(RECIPES)}, or a .toml file; default: {RECIPES[0]}.",
        metavar="NAME",
        show_default=False,
    ),
]
Overwrite = Annotated[
    bool, option("Replace results of other settings or data.", "--overwrite", panel=OUTPUT)
]
Assignments = Annotated[
    list[str] | None,
    input_option("A setting, in TOML; may be repeated.", "--set", metavar="KEY=VALUE"),
]


@command(extra="generation,predict,report")
def demo_command(
    run: Run = "runs/demo",
    out: Out = Path("merge-nli"),
    register: Annotated[
        bool, option("Also make the bare names load from any directory.", panel=OUTPUT)
    ] = True,
    overwrite: Overwrite = False,
) -> None:
    """Make a dataset from bundled problems and a bundled masked LM, and run an NLI model on it.

    It works offline, and takes a minute or two. The model's figures are printed, and a report
    for the browser is written into the run folder.

    \b
    Examples:
      merge-nli demo

    \b
      merge-nli demo --run /tmp/run --out /tmp/merge-nli --no-register
    """
    from generation.phases.build import generate
    from generation.run_summary import summarise
    from merge_metric.demo import evaluate

    config = Config.from_recipe("demo", run=run)
    log.info("Step 1 of 3: a masked LM makes variants (up to half a minute)")
    made = _make_dataset(
        partial(generate, config), config, RunFolder(Path(run)), out, overwrite=overwrite
    )
    if register:
        from merge_dataset.register import register_dataset
        from merge_metric.register import register_metric

        register_metric()
        try:
            register_dataset(out)
        except FileExistsError as error:  # the user's own dataset of that name
            log.warning("%s; `merge-nli register %s --name NAME` does that", error, out)
            register = False
    typer.echo(summarise(*made, registered=register))
    typer.echo(f"\n{evaluate(out, DEMO_SOURCE, Path(run))}")


@command(extra="generation", failures=(ExecutorError,))
def generate_command(
    *,
    recipe: Recipe = "paper-v2",
    given: Annotated[Given, OptionsOf(Config, "suggest generate")],
    settings: Assignments = None,
    run: Run = "runs/default",
    dealt: DealtAsConfigured,
    out: Out = Path("merge-nli"),
    overwrite: Overwrite = False,
    output: Format = "text",
) -> None:
    """Suggest and build variants of problems, of NLI or others, into a dataset.

    An interrupted run goes on by the same command.

    \b
    Examples:
      merge-nli generate --source snli --data snli_1.0_test.jsonl --run runs/snli
      merge-nli generate --source boolq --data boolq.jsonl --label-column answer
        --fields passage,question --labels no,yes --label-map True=yes,False=no
    """
    from generation.phases.build import generate
    from generation.run_summary import summarise

    config = _config(recipe, settings, given, run)
    make = partial(
        generate, config, distribution=distribution_of(dealt, config.workers, config.device)
    )
    made = _make_dataset(make, config, RunFolder(Path(run)), out, overwrite=overwrite)
    typer.echo(summarise(*made, as_json=output == "json"))


@command(extra="generation", failures=(ExecutorError,))
def suggest_command(
    *,
    recipe: Recipe = "paper-v2",
    given: Annotated[Given, OptionsOf(Config, "suggest")],
    settings: Assignments = None,
    run: Run = "runs/default",
    dealt: DealtAsConfigured,
    overwrite: Overwrite = False,
    output: Format = "text",
) -> None:
    """Ask the masked LMs what could stand in place of each shared word.

    The slow half of generate. Questions that the store in the run folder answers are not asked
    again.

    \b
    Examples:
      merge-nli suggest --source mnli-m --data multinli_1.0_dev_matched.jsonl
        --run runs/mnli-m --device cuda

    \b
      merge-nli suggest --source snli --run runs/snli --device cuda --executor slurm
        --tasks 64 --workers 16 --gpus-per-task 1 --partition gpu --time 4:00:00
    """
    from generation.phases.suggest import suggest
    from merge_dataset.files import read_record

    config = _config(recipe, settings, given, run)
    distribution = distribution_of(dealt, config.workers, config.device)
    folder = suggest(config, overwrite=overwrite, distribution=distribution)
    record = read_record(folder.suggested)
    asked = record.get("asked")
    of = f"{asked['questions']:,} of " if asked else ""
    why = "  The others could not matter with these settings; --ask-all asks them too."
    write_result(
        output,
        record,
        f"{of}{record['questions']:,} occurrences asked about, answers in {folder.path}:",
        *([why] if asked else ()),
        *(
            f"  {mlm['name']}: {mlm['not_in_vocabulary']:,} not in its vocabulary, "
            f"{mlm['windowed']:,} in sentences longer than its limit"
            for mlm in record["mlms"]
        ),
        f"Next: merge-nli build --run {folder.path}",
    )


@command(extra="generation", failures=(ExecutorError,))
def build_command(
    *,
    run: Run = "runs/default",
    out: Annotated[
        Path | None,
        option("Dataset folder; by default merge-nli, or merge-nli-NAME.", panel=OUTPUT),
    ] = None,
    into: Annotated[
        str | None,
        option(
            "NAME of a folder inside the run's for this build; the run's own stays.", panel=OUTPUT
        ),
    ] = None,
    ablation: Annotated[
        str | None, option("union, pos, prob, none, scrambled or paper (paper, A.2).", panel=OUTPUT)
    ] = None,
    given: Annotated[Given, OptionsOf(Config, "build")],
    settings: Assignments = None,
    dealt: DealtAsConfigured,
    overwrite: Overwrite = False,
    output: Format = "text",
) -> None:
    """Filter the suggestions of a run, sample variants and write the dataset.

    The quick half of generate; runs no masked LM. An ablation keeps the seeds of the
    run's own build and goes into a folder of its name inside the run's.

    \b
    Examples:
      merge-nli build --run runs/snli

    \b
      merge-nli build --run runs/snli --ablation union --out merge-nli-union

    \b
      merge-nli build --run runs/snli --same-number --same-tense --repair-articles
        --into strict
    """
    from generation.phases.build import build, build_settings
    from generation.run_summary import summarise

    changed = parse_assignments(settings) | given
    name, base = into or ablation, RunFolder(Path(run))
    target = out or Path("merge-nli" + (f"-{name}" if name else ""))
    base.require("suggest")
    config = build_settings(base, ablation, changed)
    distribution = distribution_of(dealt, config.workers)
    make = partial(build, run, distribution=distribution, ablation=ablation, into=into, **changed)
    made = _make_dataset(make, config, base.named(name), target, overwrite=overwrite)
    typer.echo(summarise(*made, as_json=output == "json"))


@command(extra="generation", failures=(ExecutorError,))
def signals_command(
    *,
    mlm: Annotated[
        str | None, input_option("Hub id (optionally id@revision) or folder of a masked LM.")
    ] = None,
    lm: Annotated[
        str | None, input_option("The same for a causal LM, or a .gguf file: one pass per text.")
    ] = None,
    neighbours: Annotated[
        bool, input_option("Ask the run's masked LMs about the words beside each.", "--neighbours")
    ] = False,
    run: Run = "runs/default",
    of: Annotated[
        str | None, input_option("NAME of a build inside the run's folder; else the run's own.")
    ] = None,
    given: Annotated[Given, OptionsOf(Config, "signals")],
    dealt: Dealt,
    output: Format = "text",
) -> None:
    """Compute how likely texts are with each replacement.

    After build, for all replacements that it found. The next build has the changes
    in the dataset and can filter by them. All other signals cost nothing and are
    there without this command.

    With --neighbours the masked LMs of the run say how much less expected a replacement
    makes the three words on each side. The next build knows more of the column quality.

    Each distinct text is scored once: by a causal LM in one forward pass, by a masked
    LM in one per token, ten to a hundred times as many questions as suggest asks. An
    interrupted run goes on where it stopped.

    \b
    Examples:
      merge-nli signals --run runs/snli --lm openai-community/gpt2 --device cuda
      merge-nli build --run runs/snli --min-pll-change -5 --into likely

    \b
      merge-nli signals --run runs/snli --neighbours
      merge-nli build --run runs/snli --min-quality 0.6 --into readable
    """
    from generation.signals.pll_changes import Kind, write_changes

    models = {"--lm": lm, "--mlm": mlm, "--neighbours": neighbours or None}
    chosen = [name for name, value in models.items() if value is not None]
    require(
        (
            len(chosen) == 1,
            "expected one model, with --lm or --mlm, or --neighbours, got "
            f"{' and '.join(chosen) or 'none'}",
        ),
        *(
            (not (lm and given.get(name)), f"{name}: expected with --mlm, got it with --lm")
            for name in ("batch_tokens", "unpadded")
        ),
    )
    distribution = distribution_of(dealt, device=given.get("device", "auto"))
    into = f" --into {of}, with the settings it has" if of and of != SCORED else ""
    kind: Kind = "neighbours" if neighbours else "lm" if lm else "mlm"
    made = write_changes(run, kind, lm or mlm or "", of=of, distribution=distribution, **given)
    names = ", ".join(model["name"] for model in made.get("mlms") or [made[kind]])
    write_result(
        output,
        made,
        f"{made['replacements']:,} replacements, {made['texts']:,} distinct texts, scored by "
        f"{names}; {made['windowed']:,} longer than its limit, within windows",
        f"Next: merge-nli build --run {run}{into}",
    )


def _config(recipe: str, assignments: list[str] | None, given: Given, run: str) -> Config:
    """Overlay a recipe by `--set`, then by the options that were given."""
    from generation.variants.signal_columns import require_columns

    values = parse_assignments(assignments) | given | {"run": run}
    if values.get("lm"):
        values.setdefault("scored_by", "lm")
    config = Config.from_recipe(recipe).overlaid(None, values)
    require_columns(config, values.get("with_columns"))
    return config


def _make_dataset(
    make: Callable[..., RunFolder],
    config: ProblemSettings,
    run: RunFolder,
    out: Path,
    *,
    overwrite: bool,
) -> tuple[Path, Path, list[str]]:
    """Check that the dataset can be written, make a run, and export it; return both, and names."""
    from merge_dataset.export import export_dataset, require_target

    kind: Any = {"draw": DRAW} if isinstance(config, Config) else {"kind": PARAPHRASES}
    coming = {"source": config.source, "config": config.output_settings(), **kind}
    require_target(out, coming, run.path, overwrite=overwrite)
    with run.locked():
        folder = make(overwrite=overwrite)
        return folder.path, out, export_dataset(folder.path, out, overwrite=overwrite)


@command(extra="generation,predict", failures=(ExecutorError,))
def paraphrase_command(
    *,
    given: Annotated[Given, OptionsOf(ParaphraseConfig, "paraphrase", defaults=True)],
    temperature: Annotated[
        tuple[float, float],
        option(
            "Range from which it is drawn for each hypothesis and round.",
            metavar="MIN MAX",
            panel="Search",
            hidden=True,
        ),
    ] = TEMPERATURES,
    run: Annotated[str | None, option_of(ParaphraseConfig, "run")] = None,
    dealt: Dealt,
    out: Out = Path("merge-nli"),
    overwrite: Overwrite = False,
    output: Format = "text",
) -> None:
    """Paraphrase hypotheses of problems that an NLI model M answers right.

    What M finds to say the same becomes the configuration SOURCE_paraphrases.
    An interrupted run goes on by the same command.

    \b
    Examples:
      merge-nli paraphrase --source anli-r1 --model ./my-classifier
        --label-order c,e,n --generator google/flan-t5-base --k 5
    """
    smallest, greatest = temperature
    config = ParaphraseConfig(**given, temperature_min=smallest, temperature_max=greatest)
    config = replace_settings(config, run=run or f"runs/{config.source}_paraphrases")
    # Imported after the options are checked: this takes seconds, and needs the extras.
    from generation.paraphrases.paraphrase_run import paraphrase
    from generation.paraphrases.rounds import summarise

    model = {
        "model": config.model,
        "kind": config.model_kind,
        "revision": config.model_revision,
        "label-order": config.label_order,
    }
    distribution = distribution_of(dealt, device=config.device)
    make = partial(paraphrase, config, distribution=distribution)
    folder = RunFolder(Path(config.run))
    made = _make_dataset(make, config, folder, out, overwrite=overwrite)
    typer.echo(summarise(*made, model=model, as_json=output == "json"))
