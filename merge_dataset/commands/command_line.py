"""Scaffolding of all commands: options, messages for users, and results."""

import functools
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import typer

from merge_dataset.engine import causes, engine_errors
from merge_dataset.executors import COMMANDS, EXECUTORS, Distribution
from merge_dataset.files import describe_os_error, to_json
from merge_dataset.layout import as_dataset
from merge_dataset.redaction import mask_urls
from merge_dataset.settings import (
    INPUT,
    OUTPUT,
    REQUIRED,
    STATISTICS,
    Setting,
    declared_settings,
    default_of,
    parse_pairs,
    parse_toml,
)

OutputFormat = Literal["text", "json"]
TableFormat = Literal["text", "markdown", "latex", "longtable", "csv", "json"]

STOPPED: Final = (
    "stopped: nothing is half-written, and what was finished is kept; the same command goes on "
    "from there"
)

INTERRUPTED: Final = 130
"""Exit code after Ctrl+C, as in shells: 128 plus the number of SIGINT."""

Given = dict[str, Any]
"""Name → value, for settings given on the command line."""


def option(help: str, *names: str, panel: str = OUTPUT, **more: Any) -> Any:
    """Declare an option, with its own name or the parameter's, and the heading of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


input_option: Final[Any] = partial(option, panel=INPUT)
statistics_option: Final[Any] = partial(option, panel=STATISTICS)


def config_option(default: str | None = None, **more: Any) -> Any:
    """Declare `--config`, with words for its default."""
    help = "Configuration, e.g. snli_nouns; may be repeated."
    help = f"{help} Default: {default}." if default else help
    return input_option(help, "--config", **more)


Format = Annotated[OutputFormat, option("How to write the result.", "--format")]

OF_DATASET: Final[dict[str, Any]] = {"parser": as_dataset, "metavar": "DATASET"}
"""Declares that a parameter is a dataset folder or a registered name."""

DatasetFolder = Annotated[
    Path, input_option("The dataset folder, or its registered name.", "--dataset", **OF_DATASET)
]
DatasetArgument = Annotated[
    Path, typer.Argument(help="The dataset folder, or its registered name.", **OF_DATASET)
]
LimitSeeds = Annotated[
    int | None,
    input_option("Take this many seeds of each source, drawn at random.", "--limit-seeds", min=1),
]
SampleSeed = Annotated[int, input_option("Seed of that random sample.", "--rng-seed", min=0)]
MergeLabels = Annotated[
    list[str] | None,
    input_option(
        "Labels that count as one, where the data have fewer classes than the model, such as "
        "contradiction,neutral=not_entailment; may be repeated.",
        "--merge-labels",
        metavar="LABELS=LABEL",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Options of commands that join predictions and a dataset: which answers count, and how."""

    config: Annotated[list[str] | None, config_option()] = None
    allow_missing: Annotated[
        bool, input_option("Leave out seeds that lack a prediction.", "--allow-missing")
    ] = False
    merge_labels: MergeLabels = None
    cluster: Annotated[
        str,
        statistics_option(
            "Text that seeds share, such as premise: the bootstrap draws these together.",
            "--cluster",
            metavar="COLUMN",
        ),
    ] = ""

    def arguments(self) -> Given:
        """Name the values as functions take them that join predictions and a dataset."""
        more = {"allow_missing": self.allow_missing, "cluster": self.cluster}
        return {"configs": self.config or (), "merge_labels": self.merge_labels or (), **more}


BootstrapSeed = Annotated[int, statistics_option("Seed of the bootstrap.", "--rng-seed", min=0)]
Replicates = Annotated[
    int, statistics_option("Replicates for intervals; 0 for none.", "--n-bootstrap", min=0)
]
ForSpreadsheets = Annotated[
    bool,
    option(
        "Put an apostrophe before texts that a spreadsheet would run as formulas (CSV).",
        "--for-spreadsheets",
    ),
]


# --- Options of settings classes ---


@dataclass(frozen=True, slots=True)
class OptionsOf:
    """Marker for options of settings, as in `Annotated[Given, OptionsOf(Config, "build")]`."""

    settings: type
    command: str
    defaults: bool = False

    @property
    def declared(self) -> dict[Field[Any], Setting]:
        """Settings that the command offers; required ones come first."""
        offered = {
            field: setting
            for field, setting in declared_settings(self.settings).items()
            if {*self.command.split()} & {*setting.commands.split()}
        }
        return dict(sorted(offered.items(), key=lambda pair: default_of(pair[0]) is not REQUIRED))

    def parameters(self) -> list[inspect.Parameter]:
        """Make a parameter of Typer for each of these settings."""
        types, made, kind = get_type_hints(self.settings), [], inspect.Parameter.KEYWORD_ONLY
        for field, setting in self.declared.items():
            annotation, default = types[field.name], default_of(field)
            is_list = any(get_origin(hint) is tuple for hint in (annotation, *get_args(annotation)))
            if setting.parse is not None:
                annotation = list[str] if setting.repeated else str
            elif is_list:
                annotation = list[str]
            if default is REQUIRED:
                default = inspect.Parameter.empty
            elif not self.defaults or setting.parse is not None or is_list:
                default = None
            annotation = annotation | None if default is None else annotation
            annotation = Annotated[annotation, option_of(self.settings, field.name)]
            made.append(inspect.Parameter(field.name, kind, default=default, annotation=annotation))
        return made

    def take(self, values: dict[str, Any]) -> Given:
        """Remove the given settings from a command's values, and return them."""
        given = {}
        for field, setting in self.declared.items():
            value = values.pop(field.name)
            if value is None or value == []:
                continue
            if setting.parse is not None:
                try:
                    value = setting.parse(value)
                except ValueError as error:
                    raise ValueError(f"{field.name}: {error}") from None
            given[field.name] = tuple(value) if isinstance(value, list) else value
        return given


def option_of(settings: type, name: str, **changes: Any) -> Any:
    """Make the option of one setting."""
    field, declared = next((f, s) for f, s in declared_settings(settings).items() if f.name == name)
    declared = replace(declared, **changes)
    flag = f"--{name.replace('_', '-')}" if default_of(field) is False else None
    names = tuple(filter(None, [declared.option or flag]))
    more: Any = {"metavar": declared.metavar, "min": declared.minimum, "hidden": declared.rare}
    return option(declared.help, *names, panel=declared.panel or OUTPUT, **more)


Dealt = Annotated[Given, OptionsOf(Distribution, f"{COMMANDS} workers", defaults=True)]
"""Options on where tasks run, and on what a task gets."""
DealtAsConfigured = Annotated[Given, OptionsOf(Distribution, COMMANDS, defaults=True)]
"""Options of tasks for commands whose own settings include the number of workers."""


def distribution_of(dealt: Given, workers: int = 1, device: str = "auto") -> Distribution | None:
    """Make the `Distribution` of a command's options; None for this process.

    With several devices, such as "cuda:0,cuda:1", or "all" GPUs, each local task has one of them.
    """
    if device == "all" or "," in device:
        from merge_dataset.executors.worker import gpus_here

        here = {f"cuda:{n}": gpu for n, gpu in enumerate(gpus_here())}
        names = [*here] if device == "all" else device.split(",")
        gpus = [here[name] for name in dict.fromkeys(names) if name in here]
        own = {"executor": "local", "workers": len(names), "gpus": min(1, len(gpus))}
        given = own | {"workers": workers} | dealt
        for is_wrong, expected in (
            (not names or ({*names} != {"cpu"} and len(gpus) < len(names)),
             f"one, GPUs of this machine ({', '.join(here) or 'none'}), all, or cpu,cpu"),
            (given["executor"] != "local", "one with an executor that is not local"),
            (given["workers"] not in (1, len(names)), "as many as --workers"),
        ):  # fmt: skip
            if is_wrong:
                raise ValueError(f"device: expected {expected}, got {device}")
        return Distribution(**{**dealt, **own, "devices": tuple(gpus)})
    if "executor" in dealt:
        return Distribution(**{"workers": workers, **dealt})
    usual = Distribution()
    for name, value in dealt.items():
        if name == "tasks" or (name != "workers" and value != getattr(usual, name)):
            *others, last = EXECUTORS
            raise ValueError(f"{name}: expected --executor with it: {', '.join(others)} or {last}")
    return None


def _show_all_options(ctx: typer.Context, asked: bool) -> None:
    if asked:
        whole = copy(ctx.command)
        whole.params = [copy(declared) for declared in ctx.command.params]
        for shown in whole.params:
            vars(shown)["hidden"] = False
        typer.echo(whole.get_help(ctx))
        raise typer.Exit


def command(
    *, extra: str | None = None, failures: tuple[type[Exception], ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: its `OptionsOf` become options, its errors messages and exit codes.

    A parameter whose type is a dataclass stands for options: its fields. The exit code is 1 for
    `failures`, and 2 for wrong use; `extra` installs what may be missing.
    """

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        groups, records = dict[str, OptionsOf](), dict[str, Any]()
        parameters, names, has_rare = list[inspect.Parameter](), dict[str, str](), False
        for name, p in inspect.signature(run, eval_str=True).parameters.items():
            marks = get_args(p.annotation)
            if group := next((mark for mark in marks if isinstance(mark, OptionsOf)), None):
                groups[name] = group
                parameters += group.parameters()
            elif is_dataclass(p.annotation):
                records[name] = p.annotation
                own = inspect.signature(records[name], eval_str=True)
                parameters += own.parameters.values()
            else:
                parameters.append(p)
        for p in parameters:
            for mark in get_args(p.annotation):
                if isinstance(mark, typer.models.OptionInfo):
                    # Before reading the annotation, Typer stores the first name as the default.
                    written = (mark.default, *(mark.param_decls or ()), f"--{p.name}")
                    long = (x for x in written if isinstance(x, str) and x.startswith("--"))
                    names[p.name] = next(long).partition("/")[0].replace("_", "-")
                    has_rare = has_rare or mark.hidden
        if has_rare:
            told: Any = typer.Option(
                "--help-all",
                callback=_show_all_options,
                is_eager=True,
                help="Show all options, also the rarer ones, and exit.",
            )
            asked = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False)
            parameters.append(asked.replace(annotation=Annotated[bool, told]))
        if "--set" in names.values():
            settings = [field for group in groups.values() for field in fields(group.settings)]
            names = {field.name: f"--set {field.name}" for field in settings} | names

        @functools.wraps(run)
        def with_options(**values: Any) -> None:
            _OPTION_NAMES.set(names)
            values.pop("help_all", None)
            with user_errors(extra=extra, failures=failures):
                taken: Given = {name: group.take(values) for name, group in groups.items()}
                for name, record in records.items():
                    taken[name] = record(**{f.name: values.pop(f.name) for f in fields(record)})
                run(**taken, **values)

        with_options.__annotations__ = {p.name: p.annotation for p in parameters}
        with_options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
        )
        return with_options

    return decorate


_OPTION_NAMES: Final[ContextVar[Mapping[str, str]]] = ContextVar("option_names", default={})  # noqa: B039 - never changed
"""Parameter of the command at work → its option."""


def in_options(message: str) -> str:
    """Name the command's options where a text begins with a setting, or has it in backticks.

    >>> _ = _OPTION_NAMES.set({"label_map": "--label-map", "id_column": "--id-column"})
    >>> in_options("label_map: expected …; see `id_column`")
    '--label-map: expected …; see --id-column'
    """
    names = _OPTION_NAMES.get()
    for name, option in names.items():
        message = message.replace(f"`{name}`", option)
    name, colon, rest = message.partition(": ")
    return f"{names.get(name, name)}{colon}{rest}"


def parse_assignments(texts: list[str] | None) -> dict[str, Any]:
    """Parse `--set`: settings as KEY=VALUE in TOML; a value that is not TOML is a string."""
    values: dict[str, Any] = {}
    for text in texts or ():
        try:
            values |= parse_toml(text, "--set")
        except ValueError:
            values |= parse_pairs([text], "KEY=VALUE after --set")
    for name in values.keys() & {"ablation", "recipe", "run"}:
        raise ValueError(f"--set: expected settings of recipes, got {name}; give it with --{name}")
    return values


# --- Messages and results ---


class MessageFormatter(logging.Formatter):
    """Formatter of log messages in the words of the command line, without passwords and keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as the base class does."""
        return mask_urls(in_options(super().format(record)))


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Mark errors of missing packages with the extra that installs them, if not the command's."""
    try:
        yield
    except ModuleNotFoundError as error:
        error.args = (*error.args, extra)
        raise


def is_stop(error: BaseException | None) -> bool:
    """Return whether Ctrl+C is the error or its cause."""
    return any(isinstance(cause, KeyboardInterrupt) for cause in causes(error))


@contextmanager
def user_errors(
    *, extra: str | None = None, failures: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn errors into messages and exit codes; see `command`."""
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(MessageFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[shown])
    for name in ("httpx", "httpx2"):  # the type depends on huggingface_hub's release
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub").propagate = False  # it has its own handler
    try:
        with engine_errors():
            yield
    except Exception as error:
        # Python before 3.13 raises RuntimeError for a link that leads to itself.
        loop = re.fullmatch("Symlink loop from '(.+)'", str(error))
        # Of wrong use, and of what is missing.
        usual = (ValueError, TypeError, OSError, MemoryError, ModuleNotFoundError)
        is_known = loop or isinstance(error, (*usual, *failures))
        if is_stop(error) or not is_known or isinstance(error, BrokenPipeError):
            raise  # a broken pipe's reader has closed the output
        match error:
            case ModuleNotFoundError():
                extra = next(iter(error.args[1:]), extra)  # see `needing`
                package = f"merge-nli[{extra}]" if extra else "merge-nli"
                text = f"this command needs {error.name}; run: pip install '{package}'"
            case MemoryError():
                is_own = type(error) is MemoryError and error.args
                text = str(error) if is_own else "expected more memory than there is"
            case OSError():
                text = describe_os_error(error)
            case UnicodeEncodeError(encoding="utf-8"):
                place = error.object[max(error.start - 20, 0) : error.end + 20]
                text = f"expected text in UTF-8, got {place!r}; rename the file or folder"
            case _:
                text = str(error)
        if loop:
            text = f"{loop[1]}: expected a file or folder, got a link that leads to itself"
        typer.echo(f"error: {mask_urls(in_options(text))}", err=True)
        raise typer.Exit(1 if isinstance(error, failures) else 2) from error


def write_result(output: OutputFormat, value: Mapping[str, Any], *lines: str) -> None:
    """Write a command's result to stdout: an object as JSON, or text lines."""
    typer.echo(to_json(value) if output == "json" else "\n".join(lines))
