"""Export tasks for other harnesses, with the metric's modules; texts and code are templates."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from merge_dataset.commands.command_line import input_option, option, option_of, statistics_option
from merge_dataset.files import write_json
from merge_dataset.layout import CARD, format_in
from merge_dataset.schema import parse_config_name
from merge_metric.exports.registry import (
    HARNESSES,
    Configs,
    Exported,
    Folder,
    Out,
    Overwrite,
    configurations_of,
    count,
    export,
    new_folder,
    place_of,
    read_card,
    template,
)
from merge_metric.exports.task_settings import SETTINGS, TaskSettings
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.prompts import HeldOut, read_prompt, require_choices
from merge_metric.models.templates import Prompt
from merge_metric.register import METRIC_NAME, SPACE, module_files

_MODULE: Final = "merge_nli"
QUESTION, ANSWER = "merge_nli_question", "merge_nli_answer"
"""Columns of the tasks beside the dataset's columns: the question and the gold answer."""

METRIC_FOLDER: Final = "merge_nli_metric"
"""Folder of the metric's modules in an export; the module that needs `evaluate` is left out."""
_ANSWERS: Final = (
    "exports/task_answers",
    "exports/task_settings",
    "models/answer_words",
    "models/templates",
    "frame/texts",
)

Letters = Literal["spaced", "both"]
"""Tokens that count as a letter: only with a space before it, or also without a space."""

AnswerKind = Literal["letters", "words"]

Shots = Annotated[str, option_of(ModelRequest, "shots", panel=None)]
Answers = Annotated[AnswerKind, option_of(ModelRequest, "answers", panel=None)]
MaxAnswerTokens = Annotated[int, option_of(ModelRequest, "max_answer_tokens", panel=None)]
Thresholds = Annotated[
    list[int] | None,
    statistics_option(
        "CT of sv@CT, an integer percent; may be repeated. Default: 90.", min=1, max=100
    ),
]
Hub = Annotated[
    str | None, option("Have the harness load this dataset instead of the folder.", "--hub")
]
Revision = Annotated[str | None, input_option("Revision of the dataset on the Hub.")]


def prepare(
    folder: Path,
    out: Path,
    config: Sequence[str] | None = None,
    *,
    shots: str = "auto",
    prompt_start: str = "",
    answers: AnswerKind = "letters",
    max_answer_tokens: int = 1024,
    letters: Letters = "spaced",
    ct: Sequence[int] | None = None,
    hub: str | None = None,
    revision: str | None = None,
) -> TaskSettings:
    """Check the options of an export of tasks, and read the prompts."""
    from merge_metric.predict.problems import SHOTS, description_of, hold_out, read_problems
    from merge_metric.seed_variant_accuracy.options import check_threshold

    configs = configurations_of(folder, config or ())
    if not hub:
        listed = [entry.get("config_name") for entry in read_card(folder)[0]["configs"]]
        if missing := [config for config in configs if config not in listed]:
            raise ValueError(
                f"{folder / CARD}: expected a card that lists {', '.join(missing)}, by which "
                f"harnesses load the dataset, got one without; `merge-nli check {folder}` says more"
            )
    if revision and not hub:
        raise ValueError(f"--revision: expected --hub with it, got {revision!r} for a folder")
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


@contextmanager
def task_folder(
    folder: Path, out: Path, tasks: TaskSettings, harness: str, *, overwrite: bool
) -> Iterator[Path]:
    """Yield a folder with the metric's modules, settings and a README, to write tasks into."""
    configs = list(tasks.prompts)
    description = {
        "export": harness,
        "dataset": tasks.dataset,
        "revision": tasks.revision,
        "configurations": configs,
    }
    texts = tomllib.loads(template("answers.toml"))
    letters = "those after a space" + (", in chats those without" if harness == "lm-eval" else "")
    counted = texts["words"] if tasks.is_in_words else texts["letters"][harness]
    readme = template(f"{harness.replace('-', '_')}_readme.txt").format(
        # As given if relative, only the last part if absolute: no places of a machine.
        out=out.name if out.is_absolute() else out.as_posix(),
        dataset=folder.name if folder.is_absolute() else folder.as_posix(),
        config=configs[0],
        configs=", ".join(f"`{config}`" for config in configs),
        task=f"merge_nli_{configs[0]}",
        tasks=", ".join(f"`merge_nli_{config}`" for config in configs),
        asked="its answer in words" if tasks.is_in_words else "the letter of the label",
        counted=counted.format(
            letters="both" if len(tasks.forms) > 1 else letters,
            more=texts["more"].get(harness, ""),
            tokens=tasks.max_answer_tokens,
        ),
    )
    with new_folder(out, description, overwrite=overwrite) as partial:
        (partial / METRIC_FOLDER).mkdir()
        paths = [SPACE / name for name in module_files() if name != f"{METRIC_NAME}.py"]
        paths += [SPACE.parent / f"{name}.py" for name in _ANSWERS]
        for path in paths:
            text = path.read_text(encoding="utf-8")
            # In the export all modules lie in one folder.
            rooms = rf"from merge_metric\.({METRIC_NAME}|exports|models|frame)\."
            text = re.sub(rooms, "from .", text)
            (partial / METRIC_FOLDER / path.name).write_text(text, encoding="utf-8")
        shutil.copy(SPACE.parent / "models/answer_forms.toml", partial / METRIC_FOLDER)
        (partial / "README.md").write_text(readme, encoding="utf-8")
        write_json(partial / SETTINGS, asdict(tasks))
        yield partial


# --- lm-evaluation-harness ---

_FUNCTION: Final = '''\
def {function}(items: list[Any]) -> float:
    """The figure {figure}."""
    return _figure(items, "{figure}")
'''


@export("lm-eval", panel=HARNESSES, extra="predict")
def export_lm_eval(
    folder: Folder = Path("merge-nli"),
    out: Out = Path("merge-nli-lm-eval"),
    config: Configs = None,
    *,
    shots: Shots = "auto",
    prompt_start: Annotated[str, option_of(ModelRequest, "prompt_start", panel=None)] = "",
    answers: Answers = "letters",
    max_answer_tokens: MaxAnswerTokens = 1024,
    letters: Annotated[
        Letters,
        option(
            "Tokens that count as a letter: after a space, or also without, as predict counts "
            "where the tokenizer has both after a colon.",
            "--letters",
        ),
    ] = "spaced",
    ct: Thresholds = None,
    hub: Hub = None,
    revision: Revision = None,
    overwrite: Overwrite = False,
) -> Exported:
    """Tasks for lm-evaluation-harness (lm-eval 0.4.13).

    A folder for --include_path: a YAML file per configuration, and functions that compute
    seed-variant accuracy and its kin as merge-nli score does. Problems may have any texts and
    labels; models may be asked for letters or in words. It needs nothing of this package.

    \b
    Examples:
      merge-nli export lm-eval merge-nli --config snli --out tasks/merge-nli

    \b
      merge-nli export lm-eval merge-nli --shots mix --letters both --ct 50 --ct 90

    \b
      merge-nli export lm-eval merge-nli --shots seeds --answers words
    """  # \b is a mark of click: keep the lines that follow
    tasks = prepare(
        folder, out, config, shots=shots, prompt_start=prompt_start, answers=answers,
        max_answer_tokens=max_answer_tokens, letters=letters, ct=ct, hub=hub, revision=revision,
    )  # fmt: skip
    names = [f"merge_nli_{config}" for config in tasks.prompts]
    with task_folder(folder, out, tasks, "lm-eval", overwrite=overwrite) as partial:
        figures = tuple(figure_names(tasks.thresholds))
        for prompted, name in zip(tasks.prompts, names, strict=True):
            text = _as_yaml(_task(tasks, prompted, name, figures))
            (partial / f"{name}.yaml").write_text(text, encoding="utf-8")
        # The template with its constant, followed by a function for each figure.
        text = template("lm_eval.py")
        text = text.replace("FIGURES: tuple[str, ...] = ()", f"FIGURES = {figures!r}")
        functions = [
            _FUNCTION.format(function=figure.replace("@", "_"), figure=figure) for figure in figures
        ]
        text = "\n\n".join([text, *functions])
        (partial / f"{_MODULE}.py").write_text(text, encoding="utf-8")
    return Exported(
        out,
        {"tasks": names},
        f"{out}: {count(names, 'task')}: {', '.join(names)}",
        f"lm_eval --model hf --model_args pretrained=MODEL --include_path {out} --tasks {names[0]}",
    )


def figure_names(thresholds: Sequence[int]) -> list[str]:
    """List the figures that a harness reports; figures at thresholds come first."""
    from merge_metric.exports.task_answers import FIGURES

    return [*(f"sv@{threshold}" for threshold in thresholds), *FIGURES, "without_label"]


def _task(tasks: TaskSettings, config: str, name: str, figures: Sequence[str]) -> dict[str, Any]:
    from merge_metric.seed_variant_accuracy.figures import CATALOGUE

    prompt = tasks.prompts[config]
    template, several = prompt.template, len(tasks.forms) > 1
    shown: dict[str, Any] = {"target_delimiter": " ", "doc_to_target": ANSWER}
    asked: dict[str, Any]
    if tasks.is_in_words:
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
        shown |= {"doc_to_choice": list(template.letters), "doc_to_target": "label"}
        asked = {
            "output_type": "multiple_choice",
            "doc_to_target": "label",
            # In chats the harness omits the delimiter.
            "doc_to_choice": tasks.choices(config) if several else list(template.letters),
            "target_delimiter": "" if several else " ",
        }
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


@export("inspect", panel=HARNESSES, extra="predict")
def export_inspect(
    folder: Folder = Path("merge-nli"),
    out: Out = Path("merge-nli-inspect"),
    config: Configs = None,
    *,
    shots: Shots = "auto",
    answers: Answers = "letters",
    max_answer_tokens: MaxAnswerTokens = 1024,
    ct: Thresholds = None,
    hub: Hub = None,
    revision: Revision = None,
    overwrite: Overwrite = False,
) -> Exported:
    """A task for Inspect (inspect-ai 0.3.285).

    A folder with a task file for inspect eval, which asks chat models, examples as turns, and
    reads the letters' log-probabilities, or what models write. It needs nothing of this package.

    \b
    Examples:
      merge-nli export inspect merge-nli --config snli --out tasks/inspect
    """  # \b is a mark of click: keep the lines that follow
    tasks = prepare(
        folder, out, config, shots=shots, answers=answers, max_answer_tokens=max_answer_tokens,
        letters="both", ct=ct, hub=hub, revision=revision,
    )  # fmt: skip
    configs = list(tasks.prompts)
    with task_folder(folder, out, tasks, "inspect", overwrite=overwrite) as partial:
        text = template("inspect_ai.py")
        (partial / f"{_MODULE}.py").write_text(text, encoding="utf-8")
    return Exported(
        out,
        {"configurations": configs},
        f"{out}: a task for the configurations {', '.join(configs)}",
        f"inspect eval {out / _MODULE}.py -T config={configs[0]} --model openai/MODEL",
    )
