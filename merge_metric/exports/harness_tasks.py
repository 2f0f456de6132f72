"""Export tasks for other harnesses, with the metric's modules; texts and code are templates."""

import inspect
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from merge_dataset.commands.command_line import input_option, option, option_of, statistics_option
from merge_dataset.files import write_json
from merge_dataset.layout import format_in
from merge_dataset.schema import parse_config_name
from merge_metric.exports.registry import (
    HARNESSES,
    Configs,
    Exported,
    Folder,
    Out,
    Overwrite,
    configurations_of,
    export,
    new_folder,
    place_of,
    template,
)
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.prompts import HeldOut, read_prompt, require_choices
from merge_metric.models.templates import Prompt
from merge_metric.register import METRIC_NAME, SPACE, module_files

if TYPE_CHECKING:
    from merge_metric.exports.task_answers import TaskSettings

_MODULE: Final = "merge_nli"
QUESTION, ANSWER = "merge_nli_question", "merge_nli_answer"
"""Columns of the tasks beside the dataset's columns: the question and the gold answer."""

METRIC_FOLDER: Final = "merge_nli_metric"
"""Folder of the metric's modules in an export; the module that needs `evaluate` is left out."""
_ANSWERS: Final = (
    "exports/task_answers",
    "models/answer_words",
    "models/templates",
    "frame/texts",
)

Letters = Literal["spaced", "both"]
"""Tokens that count as a letter: only with a space before it, or also without a space."""

AnswerKind = Literal["letters", "words"]

_Writer = Callable[[Any, Path], tuple[dict[str, Any], str]]


def prepare(
    folder: Folder = Path("merge-nli"),
    out: Out = Path("merge-nli-tasks"),
    config: Configs = None,
    *,
    shots: Annotated[str, option_of(ModelRequest, "shots", panel=None)] = "auto",
    prompt_start: Annotated[str, option_of(ModelRequest, "prompt_start", panel=None)] = "",
    answers: Annotated[AnswerKind, option_of(ModelRequest, "answers", panel=None)] = "letters",
    max_answer_tokens: Annotated[
        int, option_of(ModelRequest, "max_answer_tokens", panel=None)
    ] = 1024,
    letters: Annotated[
        Letters,
        option(
            "Tokens that count as a letter: after a space, or also without, as predict counts "
            "where the tokenizer has both after a colon.",
            "--letters",
        ),
    ] = "spaced",
    ct: Annotated[
        list[int] | None,
        statistics_option(
            "CT of sv@CT, an integer percent; may be repeated. Default: 90.", min=1, max=100
        ),
    ] = None,
    hub: Annotated[
        str | None, option("Have the harness load this dataset instead of the folder.", "--hub")
    ] = None,
    revision: Annotated[str | None, input_option("Revision of the dataset on the Hub.")] = None,
) -> "TaskSettings":
    """Check the options of an export of tasks, and read the prompts."""
    from merge_metric.exports.task_answers import TaskSettings
    from merge_metric.predict.problems import SHOTS, description_of, hold_out, read_problems
    from merge_metric.seed_variant_accuracy.options import check_threshold

    configs = configurations_of(folder, config or ())
    prompts, left_out = dict[str, Prompt](), dict[str, list[str]]()
    known: dict[Any, Prompt] = {}  # so that messages about a source's examples appear once
    for name in configs:
        source = parse_config_name(name)[0]
        held_out: HeldOut = {}
        if shots == "seeds":
            held_out = description_of(hold_out(read_problems(str(folder), [name])))[SHOTS]
        left_out[name] = [seed["seed_id"] for seeds in held_out.values() for seed in seeds]
        problem_format = format_in(folder, name)
        key = (source, problem_format, *left_out[name])
        if key not in known:
            known[key] = read_prompt(
                shots,
                sources=[source],
                start=prompt_start,
                problem_format=problem_format,
                held_out=held_out,
            )
        prompts[name] = known[key]
        if answers == "letters":
            require_choices(prompts[name])
    return TaskSettings(
        dataset=hub or place_of(folder, seen_from=out),
        revision=revision,
        prompts=prompts,
        left_out=left_out,
        thresholds=tuple(dict.fromkeys(map(check_threshold, ct or (90,)))),
        forms=(" ", "") if letters == "both" else (" ",),
        max_answer_tokens=max_answer_tokens if answers == "words" else None,
    )


def harness(name: str, hint: str, **fixed: Any) -> Callable[[_Writer], Callable[..., Exported]]:
    """Register a function as `merge-nli export NAME`, which writes a harness's tasks into a folder.

    It returns what `--format json` prints, and the same in a sentence. The folder has the metric's
    modules and settings, and a README from the template `NAME_readme.md.j2`. `hint` is the command
    to run next; what is `fixed` of the options of `prepare` is none of this export.
    """

    def register(write: _Writer) -> Callable[..., Exported]:
        usual = Path(f"merge-nli-{name}")

        def run(
            folder: Path = Path("merge-nli"),
            out: Path = usual,
            config: Sequence[str] | None = None,
            *,
            overwrite: bool = False,
            **options: Any,
        ) -> Exported:
            import jinja2

            from merge_metric.exports.task_answers import SETTINGS

            tasks = prepare(folder, out, list(config or ()), **options, **fixed)
            configs = list(tasks.prompts)
            facts = {"dataset": tasks.dataset, "revision": tasks.revision}
            description = {"export": name, **facts, "configurations": configs}
            # As given if relative, only the last part if absolute: no places of a machine.
            places = [of.name if of.is_absolute() else of.as_posix() for of in (out, folder)]
            text = template(f"{name.replace('-', '_')}_readme.md.j2")
            readme = jinja2.Template(text, trim_blocks=True, keep_trailing_newline=True)
            text = readme.render(tasks=tasks, config=configs[0], out=places[0], dataset=places[1])
            with new_folder(out, description, overwrite=overwrite) as partial:
                (partial / "README.md").write_text(text, encoding="utf-8")
                _copy_modules(partial / METRIC_FOLDER)
                write_json(partial / SETTINGS, asdict(tasks))
                contents, summary = write(tasks, partial)
            hint_here = hint.format(out=out, config=configs[0])
            return Exported(out, contents, f"{out}: {summary}", hint_here)

        own = inspect.signature(prepare).parameters
        changed = {name: p for name, p in own.items() if name not in fixed}
        changed["out"] = changed["out"].replace(default=usual)
        kind = inspect.Parameter.KEYWORD_ONLY
        last = inspect.Parameter("overwrite", kind, default=False, annotation=Overwrite)
        run.__signature__ = inspect.Signature([*changed.values(), last])  # type: ignore[attr-defined]
        run.__doc__ = write.__doc__
        return export(name, panel=HARNESSES, extra="predict")(run)

    return register


def _copy_modules(folder: Path) -> None:
    """Copy the metric's modules, which all lie in one folder there."""
    folder.mkdir()
    paths = [SPACE / name for name in module_files() if name != f"{METRIC_NAME}.py"]
    for path in [*paths, *(SPACE.parent / f"{name}.py" for name in _ANSWERS)]:
        rooms = rf"from merge_metric\.({METRIC_NAME}|exports|models|frame)\."
        text = re.sub(rooms, "from .", path.read_text(encoding="utf-8"))
        (folder / path.name).write_text(text, encoding="utf-8")
    shutil.copy(SPACE.parent / "models/answer_forms.toml", folder)


# --- lm-evaluation-harness ---

_FUNCTION: Final = '''\
def {function}(items: list[Any]) -> float:
    """The figure {figure}."""
    return _figure(items, "{figure}")
'''


@harness(
    "lm-eval",
    "lm_eval --model hf --model_args pretrained=MODEL --include_path {out} "
    "--tasks merge_nli_{config}",
)
def export_lm_eval(tasks: "TaskSettings", folder: Path) -> tuple[dict[str, Any], str]:
    """Tasks for lm-evaluation-harness (lm-eval 0.4.13).

    A folder for --include_path: a YAML file per configuration, and functions that compute
    seed-variant accuracy and its kin as merge-nli score does. Problems may have any texts and
    labels; models may be asked for letters or in words. It needs nothing of this package.

    \b
    Examples:
      merge-nli export lm-eval merge-nli --config snli --out tasks/merge-nli

    \b
      merge-nli export lm-eval merge-nli --shots seeds --answers words
    """  # \b is a mark of click: keep the lines that follow
    names = [f"merge_nli_{config}" for config in tasks.prompts]
    figures = tuple(figure_names(tasks.thresholds))
    for config, name in zip(tasks.prompts, names, strict=True):
        text = _as_yaml(_task(tasks, config, name, figures))
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    # The template with its constant, followed by a function for each figure.
    text = template("lm_eval.py")
    text = text.replace("FIGURES: tuple[str, ...] = ()", f"FIGURES = {figures!r}")
    functions = (_FUNCTION.format(function=f.replace("@", "_"), figure=f) for f in figures)
    text = "\n\n".join([text, *functions])
    (folder / f"{_MODULE}.py").write_text(text, encoding="utf-8")
    return {"tasks": names}, f"tasks {', '.join(names)}"


def figure_names(thresholds: Sequence[int]) -> list[str]:
    """List the figures that a harness reports; figures at thresholds come first."""
    from merge_metric.exports.task_answers import FIGURES

    return [*(f"sv@{threshold}" for threshold in thresholds), *FIGURES, "without_label"]


def _task(tasks: "TaskSettings", config: str, name: str, figures: Sequence[str]) -> dict[str, Any]:
    from merge_metric.seed_variant_accuracy.figures import CATALOGUE

    prompt = tasks.prompts[config]
    template, several = prompt.template, len(tasks.forms) > 1
    shown: dict[str, Any] = {"target_delimiter": " "}
    if tasks.is_in_words:
        shown |= {"doc_to_target": ANSWER}
        asked = {
            "output_type": "generate_until",
            **shown,
            "generation_kwargs": {
                "until": [prompt.stop],
                "max_gen_toks": tasks.max_answer_tokens,
                "do_sample": False,
                "temperature": 0.0,
            },
        }
    else:
        shown |= {"doc_to_target": "label", "doc_to_choice": list(template.letters)}
        asked = {"output_type": "multiple_choice", "doc_to_target": "label"}
        asked["doc_to_choice"] = tasks.choices(config) if several else list(template.letters)
        asked["target_delimiter"] = "" if several else " "  # which the harness omits in chats
    samples = [
        {QUESTION: template.text(*e.texts), "label": e.label, ANSWER: prompt.answer(e)}
        for e in prompt.examples
    ]
    task = {
        "task": name,
        "custom_dataset": _Function(f"{_MODULE}.load"),
        "dataset_kwargs": {"config": config},
        "test_split": "test",
        "description": prompt.start,
        "doc_to_text": QUESTION,
        **asked,
        "fewshot_delimiter": "\n\n",
        "num_fewshot": len(prompt.examples),
        "fewshot_config": {"sampler": "first_n", "samples": samples, **shown},
        "process_results": _Function(f"{_MODULE}.process_results"),
        "metric_list": [
            {
                "metric": figure,
                "aggregation": _Function(f"{_MODULE}.{figure.replace('@', '_')}"),
                # For `sv@CT` higher is better.
                "higher_is_better": figure != "without_label"
                and (figure not in CATALOGUE or CATALOGUE[figure].higher_is_better),
            }
            for figure in figures
        ],
        "metadata": {"version": 1.0},
    }
    if not prompt.examples:
        del task["fewshot_config"]
    return task


class _Function(str):
    """Name of a function, which the harness's YAML marks by a tag."""

    __slots__ = ()


def _as_yaml(task: dict[str, Any]) -> str:
    """Write a task as YAML, with the harness's tag for functions, and prompts as block scalars."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # yaml is untyped
        ignore_aliases = staticmethod(lambda _: True)

    def represent_text(dumper: Any, text: str) -> Any:
        style = "|" if text.count("\n") > 2 else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    Dumper.add_representer(_Function, lambda d, name: d.represent_scalar("!function", str(name)))
    return str(yaml.dump(task, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100))


# --- Inspect ---


@harness(
    "inspect",
    "inspect eval {out}/merge_nli.py -T config={config} --model openai/MODEL",
    prompt_start="",
    letters="both",
)
def export_inspect(tasks: "TaskSettings", folder: Path) -> tuple[dict[str, Any], str]:
    """A task for Inspect (inspect-ai 0.3.285).

    A folder with a task file for inspect eval, which asks chat models, examples as turns, and
    reads the letters' log-probabilities, or what models write. It needs nothing of this package.

    \b
    Examples:
      merge-nli export inspect merge-nli --config snli --out tasks/inspect
    """  # \b is a mark of click: keep the lines that follow
    (folder / f"{_MODULE}.py").write_text(template("inspect_ai.py"), encoding="utf-8")
    configs = list(tasks.prompts)
    return {"configurations": configs}, f"a task for the configurations {', '.join(configs)}"
