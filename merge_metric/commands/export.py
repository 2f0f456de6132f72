"""The commands `export …`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from merge_dataset.commands.check import OutputFormat, user_errors

if TYPE_CHECKING:
    from merge_metric.exports.harness import TaskOptions

export_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Write a dataset for other tools: harnesses' tasks, metadata, flat files.",
)

_HARNESSES, _FILES = "Tasks for harnesses", "Files"


class Letters(StrEnum):
    """Which tokens count as a letter."""

    spaced = "spaced"
    both = "both"


class MiniFormat(StrEnum):
    """Kinds of files of mini-datasets."""

    parquet = "parquet"
    jsonl = "jsonl"


def _option(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, **more)


Folder = Annotated[Path, typer.Argument(help="The dataset folder.")]
Configs = Annotated[
    list[str] | None,
    _option("Configuration, e.g. snli_nouns; may be repeated. Default: all.", "--config"),
]
Overwrite = Annotated[bool, _option("Replace an earlier export.", "--overwrite")]
Format = Annotated[OutputFormat, _option("How to write the summary.", "--format")]
Shots = Annotated[str, _option("exc, mix, none, snli, mnli, or a .toml or .jsonl file.")]
PromptStart = Annotated[str, _option("Text before the prompt, e.g. <|endoftext|>.")]
Thresholds = Annotated[
    list[int] | None,
    _option("CT of sv@CT, an integer percent; may be repeated. Default: 90.", min=1, max=100),
]
LettersOption = Annotated[
    Letters,
    _option(
        "Tokens that count as a letter: after a space, or also without, as predict counts "
        "where the tokenizer has both after a colon.",
        "--letters",
    ),
]
Hub = Annotated[
    str | None, _option("Have the harness load this dataset instead of the folder.", "--hub")
]
Revision = Annotated[str | None, _option("Of the dataset on the Hub.")]


@export_app.command("lm-eval", rich_help_panel=_HARNESSES)
def lm_eval_command(
    folder: Folder = Path("merge-nli"),
    out: Annotated[Path, _option("Folder to write.")] = Path("merge-nli-lm-eval"),
    config: Configs = None,
    shots: Shots = "exc",
    prompt_start: PromptStart = "",
    letters: LettersOption = Letters.spaced,
    ct: Thresholds = None,
    hub: Hub = None,
    revision: Revision = None,
    overwrite: Overwrite = False,
    output: Format = OutputFormat.text,
) -> None:
    """Tasks for lm-evaluation-harness (lm-eval 0.4.13).

    A folder for --include_path: a YAML file per configuration, and functions that compute
    seed-variant accuracy and its kin as merge-nli score does. It needs nothing of this
    package.

    \b
    Examples:
      merge-nli export lm-eval merge-nli --config snli --out tasks/merge-nli

    \b
      merge-nli export lm-eval merge-nli --shots mix --letters both --ct 50 --ct 90
    """  # \b is a mark of click: keep the lines that follow
    with user_errors(extra="predict"):
        from merge_metric.exports.lm_eval import export_lm_eval

        options = _options(config, shots, prompt_start, letters, ct, hub, revision)
        names = export_lm_eval(folder, out, options, overwrite=overwrite)
        _report(
            output,
            out,
            {"tasks": names},
            f"{out}: {_count(names, 'task')}: {', '.join(names)}",
            f"lm_eval --model hf --model_args pretrained=MODEL --include_path {out} "
            f"--tasks {names[0]}",
        )


@export_app.command("lighteval", rich_help_panel=_HARNESSES)
def lighteval_command(
    folder: Folder = Path("merge-nli"),
    out: Annotated[Path, _option("Folder to write.")] = Path("merge-nli-lighteval"),
    config: Configs = None,
    shots: Shots = "exc",
    prompt_start: PromptStart = "",
    letters: LettersOption = Letters.spaced,
    ct: Thresholds = None,
    limit_seeds: Annotated[
        int | None, _option("Only so many seeds of each source, drawn at random.", min=1)
    ] = None,
    rng_seed: Annotated[int, _option("Of that sample.", min=0)] = 0,
    overwrite: Overwrite = False,
    output: Format = OutputFormat.text,
) -> None:
    """Tasks for lighteval (0.13.0).

    A folder with the problems, a module for --custom-tasks, and a script that runs it
    without the network. It needs nothing of this package.

    \b
    Examples:
      merge-nli export lighteval merge-nli --config snli --out tasks/lighteval

    \b
      merge-nli export lighteval merge-nli --shots mix --limit-seeds 500
    """  # \b is a mark of click: keep the lines that follow
    with user_errors(extra="predict"):
        from merge_metric.exports.lighteval import MODULE, RUNNER, export_lighteval

        options = _options(config, shots, prompt_start, letters, ct)
        names = export_lighteval(
            folder, out, options, limit_seeds=limit_seeds, rng_seed=rng_seed, overwrite=overwrite
        )
        _report(
            output,
            out,
            {"module": MODULE, "tasks": names},
            f"{out}: {_count(names, 'task')}: {', '.join(names)}",
            f"python {out / RUNNER} --model MODEL --task {names[0]}",
        )


@export_app.command("inspect", rich_help_panel=_HARNESSES)
def inspect_command(
    folder: Folder = Path("merge-nli"),
    out: Annotated[Path, _option("Folder to write.")] = Path("merge-nli-inspect"),
    config: Configs = None,
    shots: Shots = "exc",
    ct: Thresholds = None,
    hub: Hub = None,
    revision: Revision = None,
    overwrite: Overwrite = False,
    output: Format = OutputFormat.text,
) -> None:
    """A task for Inspect (inspect-ai 0.3.285).

    A folder with a task file for inspect eval, which asks chat models, examples as turns,
    and reads the letters' log-probabilities. It needs nothing of this package.

    \b
    Examples:
      merge-nli export inspect merge-nli --config snli --out tasks/inspect
    """  # \b is a mark of click: keep the lines that follow
    with user_errors(extra="predict"):
        from merge_metric.exports.inspect_ai import MODULE, export_inspect

        options = _options(config, shots, "", Letters.both, ct, hub, revision)
        names = export_inspect(folder, out, options, overwrite=overwrite)
        _report(
            output,
            out,
            {"configurations": names},
            f"{out}: a task for the configurations {', '.join(names)}",
            f"inspect eval {out / MODULE}.py -T config={names[0]} --model openai/MODEL",
        )


@export_app.command("croissant", rich_help_panel=_FILES)
def croissant_command(
    folder: Folder = Path("merge-nli"),
    out: Annotated[
        Path | None, _option("File to write; by default croissant.json in the dataset folder.")
    ] = None,
    config: Configs = None,
    base_url: Annotated[
        str | None,
        _option("Where the files are to be had; by default beside the metadata, in the folder."),
    ] = None,
    version: Annotated[str | None, _option("Of the data, e.g. 1.0.0.", "--data-version")] = None,
    published: Annotated[str | None, _option("Date of publication, e.g. 2026-01-31.")] = None,
    overwrite: Overwrite = False,
    output: Format = OutputFormat.text,
) -> None:
    """Metadata of the dataset as MLCommons' Croissant (1.1), JSON-LD.

    Files with their hashes, and a record set per configuration and split. Write it again
    when the dataset is built anew.

    \b
    Examples:
      merge-nli export croissant merge-nli

    \b
      merge-nli export croissant merge-nli --out croissant.json
        --base-url https://huggingface.co/datasets/USER/merge-nli/resolve/v1
    """  # \b is a mark of click: keep the lines that follow
    with user_errors():
        from merge_metric.exports.croissant import export_croissant

        path, names = export_croissant(
            folder,
            out,
            config or (),
            base_url=base_url,
            version=version,
            published=published,
            overwrite=overwrite,
        )
        _report(
            output,
            path,
            {"record_sets": names},
            f"{path}: {_count(names, 'record set')}: {', '.join(names)}",
            f"mlcroissant validate --jsonld {path}",
        )


@export_app.command("mini-datasets", rich_help_panel=_FILES)
def mini_datasets_command(
    folder: Folder = Path("merge-nli"),
    out: Annotated[Path, _option("Folder to write.")] = Path("merge-nli-mini"),
    config: Configs = None,
    kind: Annotated[MiniFormat, _option("Kind of file.", "--as")] = MiniFormat.parquet,
    overwrite: Overwrite = False,
    output: Format = OutputFormat.text,
) -> None:
    """The random subsamples as data sets of their own, a file each.

    Ten per configuration, unless the recipe says otherwise, and the seeds beside them.

    \b
    Examples:
      merge-nli export mini-datasets merge-nli --config snli_nouns

    \b
      merge-nli export mini-datasets merge-nli --as jsonl --out mini
    """  # \b is a mark of click: keep the lines that follow
    with user_errors():
        from merge_metric.exports.mini_datasets import export_mini_datasets

        written = export_mini_datasets(folder, out, kind.value, config or (), overwrite=overwrite)
        _report_files(output, out, written, "parquet" if kind is MiniFormat.parquet else "json")


@export_app.command("jsonl", rich_help_panel=_FILES)
def jsonl_command(
    folder: Folder = Path("merge-nli"),
    out: Annotated[Path, _option("Folder to write.")] = Path("merge-nli-jsonl"),
    config: Configs = None,
    overwrite: Overwrite = False,
    output: Format = OutputFormat.text,
) -> None:
    """Each split of each configuration as JSON lines, labels as names.

    \b
    Examples:
      merge-nli export jsonl merge-nli --config snli_nouns --out flat
    """  # \b is a mark of click: keep the lines that follow
    with user_errors():
        from merge_metric.exports.flat import export_flat

        written = export_flat(folder, out, "jsonl", config or (), overwrite=overwrite)
        _report_files(output, out, written, "json")


@export_app.command("csv", rich_help_panel=_FILES)
def csv_command(
    folder: Folder = Path("merge-nli"),
    out: Annotated[Path, _option("Folder to write.")] = Path("merge-nli-csv"),
    config: Configs = None,
    overwrite: Overwrite = False,
    output: Format = OutputFormat.text,
) -> None:
    """Each split of each configuration as CSV, labels as names and lists as JSON.

    \b
    Examples:
      merge-nli export csv merge-nli --config snli_nouns --out flat
    """  # \b is a mark of click: keep the lines that follow
    with user_errors():
        from merge_metric.exports.flat import export_flat

        written = export_flat(folder, out, "csv", config or (), overwrite=overwrite)
        _report_files(output, out, written, "csv")


def _options(
    config: list[str] | None,
    shots: str,
    prompt_start: str,
    letters: Letters,
    ct: list[int] | None,
    hub: str | None = None,
    revision: str | None = None,
) -> TaskOptions:
    from merge_metric.exports.harness import TaskOptions

    return TaskOptions(
        configs=tuple(config or ()),
        shots=shots,
        prompt_start=prompt_start,
        letters=letters.value,
        thresholds=tuple(ct or (90,)),
        hub=hub,
        revision=revision,
    )


def _count(names: list[str], what: str) -> str:
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''}"


def _report_files(
    output: OutputFormat, out: Path, written: dict[str, dict[str, int]], loader: str
) -> None:
    """What files there are, and how to load the last one."""
    files = {name: rows for of_config in written.values() for name, rows in of_config.items()}
    shown = "\n".join(f"  {name}: {rows:,} rows" for name, rows in files.items())
    last = out / list(files)[-1]
    _report(
        output,
        out,
        {"files": files},
        f"{out}:\n{shown}",
        f'python -c "from datasets import load_dataset; '
        f"print(load_dataset('{loader}', data_files='{last}'))\"",
    )


def _report(
    output: OutputFormat, out: Path, made: dict[str, Any], text: str, following: str
) -> None:
    """Say what was made and what to run now."""
    if output is OutputFormat.json:
        whole = {"out": str(out), **made, "next": following}
        typer.echo(json.dumps(whole, indent=2, ensure_ascii=False))
    else:
        typer.echo(f"{text}\nNext: {following}")
