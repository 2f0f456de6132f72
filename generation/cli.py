"""The command `merge-nli`: generation's own commands, and those of the other packages."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from generation.commands.options import (
    MACHINE,
    Data,
    Dataset,
    DatasetConfig,
    Device,
    DType,
    FamiliesOption,
    FieldColumn,
    Fields,
    Format,
    HypothesisColumn,
    IdColumn,
    LabelColumn,
    LabelMap,
    Labels,
    Limit,
    Out,
    PremiseColumn,
    RepairArticles,
    Revision,
    SharedFields,
    Source,
    Split,
    WordsAtOnce,
    option,
    read_field_columns,
    read_label_map,
    read_names,
)
from generation.commands.paraphrase import paraphrase_command
from generation.config import Config
from generation.executors.plan import ExecutorError
from merge_dataset.commands.annotate import annotate_command
from merge_dataset.commands.check import OutputFormat, check_command, user_errors
from merge_dataset.schema import DATASET_NAME, DEMO_SOURCE
from merge_metric.commands.score import (
    agreement_command,
    analyse_command,
    baseline_app,
    compare_command,
    evaluate_demo,
    export_app,
    predict_command,
    publish_app,
    report_command,
    score_command,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="MERGE: test NLI models on minimal variants of problems they know.",
    epilog="Start with: merge-nli demo",
)
app.command("check")(check_command)
app.command("predict")(predict_command)
app.add_typer(baseline_app, name="baseline")
app.command("score")(score_command)
app.command("compare")(compare_command)
app.command("annotate")(annotate_command)
app.command("analyse")(analyse_command)
app.command("report")(report_command)
app.command("agreement")(agreement_command)
app.add_typer(export_app, name="export")
app.add_typer(publish_app, name="publish")
app.command("paraphrase")(paraphrase_command)

_MODELS, _CLUSTER = "Masked language models", "Many processes, many machines"
_SIGNALS = "Replacements by their signals: all below the limits are left out"


class Masking(StrEnum):
    """Which occurrences of a word are masked at a time."""

    single = "single"
    joint = "joint"


class TagMatch(StrEnum):
    """How word classes are compared."""

    coarse = "coarse"
    fine = "fine"


class Scope(StrEnum):
    """Over what the smallest number of replacements is counted."""

    CLASS = "class"
    PROBLEM = "problem"
    WORD = "word"


class ExecutorName(StrEnum):
    """Where the tasks of suggest run."""

    local = "local"
    ray = "ray"
    slurm = "slurm"


Run = Annotated[
    str, option("Folder for settings, suggestions, replacements, variants and the manifest.")
]
Settings = Annotated[
    list[str] | None,
    option("Any setting of a recipe, as KEY=VALUE in TOML; may be repeated.", "--set"),
]
Workers = Annotated[
    int | None,
    option("Processes at a time: of build, and with --executor of suggest.", group=MACHINE, min=1),
]


def _config(
    recipe: Annotated[
        str, option("paper-v2, paper-v1, poster, demo, or a .toml file.")
    ] = "paper-v2",
    source: Source = None,
    data: Data = None,
    dataset: Dataset = None,
    dataset_config: DatasetConfig = None,
    split: Split = None,
    revision: Revision = None,
    premise_column: PremiseColumn = None,
    hypothesis_column: HypothesisColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    label_map: LabelMap = None,
    fields: Fields = None,
    labels: Labels = None,
    shared_fields: SharedFields = None,
    field_column: FieldColumn = None,
    limit: Limit = None,
    mlm: Annotated[
        list[str] | None,
        option("Hub id (optionally id@revision) or folder; may be repeated.", group=_MODELS),
    ] = None,
    masking: Annotated[
        Masking | None, option("One occurrence at a time, or all.", group=_MODELS)
    ] = None,
    max_pieces: Annotated[
        int | None,
        option(
            "Most word pieces of an original or a replacement; by default 1.", group=_MODELS, min=1
        ),
    ] = None,
    families: FamiliesOption = None,
    words_at_once: WordsAtOnce = None,
    repair_articles: RepairArticles = None,
    device: Device = None,
    dtype: Annotated[DType | None, option("float32 is the reference.", group=MACHINE)] = None,
    batch_tokens: Annotated[
        int | None, option("Tokens in a forward pass.", group=MACHINE, min=1)
    ] = None,
    store: Annotated[
        str | None, option("Suggestion store shared by runs; else in the run folder.")
    ] = None,
    workers: Workers = None,
    settings: Settings = None,
    run: Run = "runs/default",
) -> Config:
    """The configuration that a command line asks for."""
    options = {
        "source": source,
        "data": data,
        "dataset": dataset,
        "dataset_config": dataset_config,
        "split": split,
        "revision": revision,
        "premise_column": premise_column,
        "hypothesis_column": hypothesis_column,
        "label_column": label_column,
        "id_column": id_column,
        "label_map": read_label_map(label_map),
        "fields": read_names(fields),
        "labels": read_names(labels),
        "shared_fields": read_names(shared_fields),
        "field_columns": read_field_columns(field_column),
        "limit": limit,
        "mlms": tuple(mlm) if mlm else None,
        "masking": masking and masking.value,
        "max_pieces": max_pieces,
        "families": families and families.value,
        "words_at_once": words_at_once,
        "repair_articles": repair_articles,
        "device": device,
        "dtype": dtype and dtype.value,
        "batch_tokens": batch_tokens,
        "workers": workers,
        "store": store,
        "run": run,
    }
    return Config.from_recipe(recipe).overlaid(None, _overlay(settings, options))


def _distribution(
    executor: Annotated[
        ExecutorName | None,
        option("Deal suggest to tasks there; by default one process.", group=_CLUSTER),
    ] = None,
    tasks: Annotated[
        int | None, option("How many tasks; by default as many as workers.", group=_CLUSTER, min=1)
    ] = None,
    cpus_per_task: Annotated[int, option("Cores.", group=_CLUSTER, min=1)] = 1,
    gpus_per_task: Annotated[int, option("GPUs.", group=_CLUSTER, min=0)] = 0,
    memory_gb: Annotated[
        int | None, option("Memory of a task (ray, slurm).", group=_CLUSTER, min=1)
    ] = None,
    time: Annotated[
        str | None, option("Limit of a task, as 2:00:00 (slurm).", group=_CLUSTER)
    ] = None,
    partition: Annotated[str | None, option("Its partition (slurm).", group=_CLUSTER)] = None,
    sbatch: Annotated[
        list[str] | None,
        option("Other options of sbatch, as KEY=VALUE; may be repeated.", group=_CLUSTER),
    ] = None,
    setup: Annotated[
        str, option("Commands before a task, as 'module load cuda' (slurm).", group=_CLUSTER)
    ] = "",
    ray_address: Annotated[
        str | None, option("Of the cluster; by default RAY_ADDRESS.", group=_CLUSTER)
    ] = None,
) -> dict[str, Any]:
    """What the options say of where `suggest` works."""
    from generation.executors.plan import Resources

    if executor is None:
        if tasks is not None:
            raise ValueError("--tasks: expected --executor with it: local, ray or slurm")
        return {}
    pairs = [option.partition("=") for option in sbatch or ()]
    for key, equals, _ in pairs:
        if not equals:
            raise ValueError(f"--sbatch: expected KEY=VALUE, got {key!r}")
    resources = Resources(
        cpus=cpus_per_task,
        gpus=gpus_per_task,
        memory_gb=memory_gb,
        time=time,
        partition=partition,
        sbatch={key: value for key, _, value in pairs},
        setup=setup,
        address=ray_address,
    )
    return {"executor": executor.value, "tasks": tasks, "resources": resources}


def _with_config(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in place of two parameters, the options of the functions that make them."""
    makers: dict[str, Callable[..., Any]] = {"config": _config, "distribution": _distribution}
    shared = {name: inspect.signature(m, eval_str=True).parameters for name, m in makers.items()}
    own = inspect.signature(command, eval_str=True).parameters.values()

    def with_options(**options: Any) -> None:
        with user_errors(extra="generation"):
            made = {
                name: makers[name](**{option: options.pop(option) for option in shared[name]})
                for name in makers
            }
            try:
                command(**made, **options)
            except ExecutorError as error:
                typer.echo(f"error: {error}", err=True)
                raise typer.Exit(1) from error

    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    options = [p for of in shared.values() for p in of.values()]
    options += [p for p in own if p.name not in makers]
    with_options.__annotations__ = {p.name: p.annotation for p in options}
    with_options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=p.KEYWORD_ONLY) for p in options]
    )
    return with_options


@app.command("register")
def register_command(
    folder: Annotated[
        Path | None,
        typer.Argument(
            exists=True, file_okay=False, help="Dataset folder; by default ./merge-nli, if any."
        ),
    ] = None,
    cache_dir: Annotated[
        Path | None, option("Cache to use instead of that of `datasets`.", file_okay=False)
    ] = None,
    output: Format = OutputFormat.text,
) -> None:
    """Make the metric and a dataset load by name from any directory, offline.

    For evaluate.load("seed_variant_accuracy") and load_dataset("merge-nli", …).
    The folder is checked first. Register again after building anew, and after an
    update of this package.

    \b
    Examples:
      merge-nli register

    \b
      merge-nli register merge-nli --cache-dir /scratch/datasets
    """
    from merge_dataset.commands.check import register_folder
    from merge_metric.commands.score import register_metric

    if folder is None and Path(DATASET_NAME).is_dir():
        folder = Path(DATASET_NAME)
    configs: list[str] = []
    problem: ValueError | None = None
    with user_errors():
        metric = register_metric()
        try:
            configs = register_folder(folder, cache_dir) if folder else []
        except ValueError as error:
            problem = error
    if output is OutputFormat.json:
        made = {"metric": metric, "folder": folder and str(folder), "registered": configs}
        typer.echo(json.dumps(made, indent=2))
    else:
        typer.echo(f'evaluate.load("{metric}")')
        for config in configs:
            typer.echo(f'load_dataset("{DATASET_NAME}", "{config}")')
    if folder is None:
        typer.echo(f"No folder {DATASET_NAME} here: no dataset registered.", err=True)
    if problem:
        typer.echo(f"{folder}: not registered: {problem}", err=True)
        raise typer.Exit(1)


@app.command()
def demo(
    run: Run = "runs/demo",
    out: Out = Path("merge-nli"),
    register: Annotated[bool, option("Also make the bare names load from any directory.")] = True,
) -> None:
    """Make a dataset from bundled problems and a bundled masked LM, and run an NLI model on it.

    All of it offline, in about a minute. The model's figures are printed, and a report
    for the browser is written into the run folder.

    \b
    Examples:
      merge-nli demo

    \b
      merge-nli demo --run /tmp/run --out /tmp/merge-nli --no-register
    """
    from generation.pipeline import generate as run_generate

    with user_errors(extra="generation"):
        folder = run_generate(Config.from_recipe("demo", run=run))
        _export(folder.path, out, OutputFormat.text, register=register)
        try:
            typer.echo(f"\n{evaluate_demo(out, DEMO_SOURCE, folder.path)}")
        except ModuleNotFoundError as error:
            needed = "to run a model too: pip install 'merge-nli[predict,report]'"
            typer.echo(f"{error.name} is not installed; {needed}", err=True)


@app.command()
@_with_config
def generate(
    config: Config,
    distribution: dict[str, Any],
    out: Out = Path("merge-nli"),
    output: Format = OutputFormat.text,
) -> None:
    """Make variants of problems, of NLI or others, and a dataset of them: suggest, then build.

    An interrupted run goes on where it stopped when given the same command again.

    \b
    Examples:
      merge-nli generate --source snli --data snli_1.0_test.jsonl --recipe paper-v2
        --run runs/snli --out merge-nli

    \b
      merge-nli generate --source snli --mlm google-bert/bert-base-cased --mlm ./my-mlm
        --limit 300 --device cuda

    \b
      merge-nli generate --source rte --data rte.tsv --label-map
        "not_entailment=neutral" --premise-column sentence1 --hypothesis-column sentence2

    \b
      merge-nli generate --source boolq --data boolq.jsonl --fields passage,question
        --labels no,yes --label-column answer --label-map "True=yes,False=no"
    """
    from generation.pipeline import generate as run_generate

    folder = run_generate(config, **distribution)
    _export(folder.path, out, output)


@app.command()
@_with_config
def suggest(
    config: Config, distribution: dict[str, Any], output: Format = OutputFormat.text
) -> None:
    """Ask the masked LMs what could stand in place of each shared word.

    The slow half of generate. What the store in the run folder already holds is not asked
    again.

    \b
    Examples:
      merge-nli suggest --source mnli-m --data multinli_1.0_dev_matched.jsonl
        --run runs/mnli-m --device cuda

    \b
      merge-nli suggest --source snli --set suggestions_per_occurrence=50

    \b
      merge-nli suggest --source snli --mlm ./my-mlm --max-pieces 2 --masking joint

    \b
      merge-nli suggest --source snli --run runs/snli --device cuda --executor slurm
        --tasks 64 --workers 16 --gpus-per-task 1 --partition gpu --time 4:00:00
    """
    from generation.pipeline import suggest as run_suggest
    from merge_dataset.files import read_json

    run = run_suggest(config, **distribution)
    record = read_json(run.suggested)
    if output is OutputFormat.json:
        typer.echo(json.dumps(record, indent=2))
        return
    typer.echo(f"{record['questions']:,} occurrences asked about, answers in {run.path}:")
    for mlm in record["mlms"]:
        typer.echo(
            f"  {mlm['name']}: {mlm['not_in_vocabulary']:,} not in its vocabulary, "
            f"{mlm['windowed']:,} in sentences longer than its limit"
        )
    typer.echo(f"Next: merge-nli build --run {run.path}")


@app.command()
def build(
    run: Run = "runs/default",
    out: Annotated[
        Path | None, option("Dataset folder; by default merge-nli, or merge-nli-NAME.")
    ] = None,
    into: Annotated[
        str | None,
        option("NAME of a folder inside the run's for this build; the run's own stays."),
    ] = None,
    ablation: Annotated[
        str | None, option("union, pos, prob, none, scrambled or paper (paper, A.2).")
    ] = None,
    tag_match: Annotated[TagMatch | None, option("Same word class, or same Penn tag.")] = None,
    without_mlm: Annotated[
        list[str] | None,
        option("Leave out the answers of this masked LM; may be repeated."),
    ] = None,
    min_replacements: Annotated[int | None, option("For a seed to be eligible.", min=1)] = None,
    scope: Annotated[Scope | None, option("Over what they are counted.")] = None,
    families: FamiliesOption = None,
    words_at_once: WordsAtOnce = None,
    repair_articles: RepairArticles = None,
    rng_seed: Annotated[int | None, option("Of the subsamples.")] = None,
    min_log_odds: Annotated[
        float | None, option("More probable than the original by so many nats.", group=_SIGNALS)
    ] = None,
    min_mlms: Annotated[
        int | None, option("Validated by so many masked LMs.", group=_SIGNALS, min=1)
    ] = None,
    min_zipf_frequency: Annotated[
        float | None,
        option("log10 of its occurrences in a billion words of English.", group=_SIGNALS),
    ] = None,
    min_pll_change: Annotated[
        float | None,
        option("Of each text's pseudo-log-likelihood; after merge-nli signals.", group=_SIGNALS),
    ] = None,
    same_number: Annotated[
        bool, option("Nouns stay singular or plural.", "--same-number", group=_SIGNALS)
    ] = False,
    same_tense: Annotated[
        bool, option("Verbs keep their form.", "--same-tense", group=_SIGNALS)
    ] = False,
    fitting_article: Annotated[
        bool, option('"a" and "an" stay right.', "--fitting-article", group=_SIGNALS)
    ] = False,
    workers: Workers = None,
    settings: Settings = None,
    output: Format = OutputFormat.text,
) -> None:
    """Filter the suggestions of a run, sample variants and write the dataset.

    The quick half of generate; runs no masked LM. An ablation keeps the seeds of the
    run's own build and goes into a folder of its name inside the run's. merge-nli diff
    says what another build changes.

    \b
    Examples:
      merge-nli build --run runs/snli

    \b
      merge-nli build --run runs/snli --ablation union --out merge-nli-union

    \b
      merge-nli build --run runs/snli --tag-match fine --set subsamples=5 --into fine

    \b
      merge-nli build --run runs/snli --without-mlm google-bert/bert-base-cased

    \b
      merge-nli build --run runs/snli --families inflect --repair-articles --into grammar

    \b
      merge-nli build --run runs/snli --min-mlms 2 --min-zipf-frequency 3 --same-number
        --fitting-article --into strict
    """
    from generation.pipeline import build as run_build

    with user_errors(extra="generation"):
        options = {
            "tag_match": tag_match and tag_match.value,
            "without_mlms": tuple(without_mlm) if without_mlm else None,
            "min_replacements": min_replacements,
            "min_replacements_scope": scope and scope.value,
            "families": families and families.value,
            "words_at_once": words_at_once,
            "repair_articles": repair_articles,
            "rng_seed": rng_seed,
            "min_log_odds": min_log_odds,
            "min_mlms": min_mlms,
            "min_zipf_frequency": min_zipf_frequency,
            "min_pll_change": min_pll_change,
            "same_number": same_number or None,
            "same_tense": same_tense or None,
            "fitting_article": fitting_article or None,
            "workers": workers,
        }
        folder = run_build(run, ablation=ablation, into=into, **_overlay(settings, options))
        name = into or ablation
        target = out or Path("merge-nli" + (f"-{name}" if name else ""))
        _export(folder.path, target, output)


@app.command("signals")
def signals_command(
    mlm: Annotated[str, option("Hub id (optionally id@revision) or folder of a masked LM.")],
    run: Run = "runs/default",
    of: Annotated[
        str | None, option("NAME of a build inside the run's folder; else the run's own.")
    ] = None,
    device: Device = None,
    dtype: Annotated[DType | None, option("float32 is the reference.", group=MACHINE)] = None,
    batch_tokens: Annotated[
        int | None, option("Tokens in a forward pass.", group=MACHINE, min=1)
    ] = None,
    output: Format = OutputFormat.text,
) -> None:
    """How likely texts are with each replacement: pseudo-log-likelihoods by a masked LM.

    After build, for all replacements that it found. The next build has the changes
    in the dataset and can filter by them. All other signals cost nothing and are
    there without this command.

    Each distinct text is scored once, all of its tokens: ten to a hundred times as
    many questions as suggest asks. An interrupted run goes on where it stopped.

    \b
    Examples:
      merge-nli signals --run runs/snli --mlm google-bert/bert-base-cased --device cuda
      merge-nli build --run runs/snli --min-pll-change -5

    \b
      merge-nli signals --run runs/snli --of union --mlm ./my-mlm
    """
    from generation.signals.pll_changes import write_pll_changes

    with user_errors(extra="generation"):
        made = write_pll_changes(
            run,
            mlm,
            of=of,
            device=device,
            dtype=dtype and dtype.value,
            batch_tokens=batch_tokens,
        )
    if output is OutputFormat.json:
        typer.echo(json.dumps(made, indent=2))
        return
    typer.echo(
        f"{made['replacements']:,} replacements, {made['texts']:,} distinct texts, scored by "
        f"{made['mlm']['name']}; {made['windowed']:,} longer than its limit, within windows"
    )
    into = f" --into {of}, with the settings it has" if of else ""
    typer.echo(f"Next: merge-nli build --run {run}{into}")


@app.command("diff")
def diff_command(
    first: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run folder after build.")],
    second: Annotated[Path, typer.Argument(metavar="RUN_B", help="Another.")],
    examples: Annotated[int, option("Variants to show that only one can have.", min=0)] = 10,
    rng_seed: Annotated[int, option("Of the examples.")] = 0,
    output: Format = OutputFormat.text,
) -> None:
    """Compare two builds: replacements and eligible seeds that only one has, with examples.

    For what an option, a threshold or a masked LM changes on your problems. An
    ablation is a folder of its name inside a run's.

    \b
    Examples:
      merge-nli diff runs/snli runs/snli/fine

    \b
      merge-nli diff runs/snli runs/snli/union --examples 30
    """
    from generation.diff import difference

    with user_errors(extra="generation"):
        found = difference(first, second, examples=examples, rng_seed=rng_seed)
    typer.echo(found.to_json() if output is OutputFormat.json else found.to_text())


def _export(run: Path, out: Path, output: OutputFormat, *, register: bool = False) -> None:
    """Turn a run folder into a dataset folder and say what was made."""
    from generation.summary import summarise
    from merge_dataset.commands.check import export_run, register_folder
    from merge_metric.commands.score import register_metric

    configs = export_run(run, out)
    if register:
        register_folder(out)
        register_metric()
    as_json = output is OutputFormat.json
    typer.echo(summarise(run, out, configs, registered=register, as_json=as_json))


def _overlay(settings: list[str] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """What `--set` says, overlaid by the options that were given."""
    values: dict[str, Any] = {}
    for setting in settings or ():
        try:
            values |= tomllib.loads(setting)
        except tomllib.TOMLDecodeError:
            key, equals, text = setting.partition("=")
            if not equals:
                raise ValueError(f"--set: expected KEY=VALUE, got {setting!r}") from None
            values[key.strip()] = text.strip()
    return values | {name: value for name, value in options.items() if value is not None}
