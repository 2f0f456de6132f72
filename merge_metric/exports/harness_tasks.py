"""Export tasks for other harnesses, with the metric's modules; texts and code are templates."""

import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from merge_dataset.commands.command_line import input_option, option, option_of, statistics_option
from merge_dataset.files import write_json
from merge_dataset.layout import format_in
from merge_dataset.schema import parse_config_name
from merge_metric.exports.registry import HARNESSES, Exported, Out, export, filled, new_folder, tell
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.prompts import HeldOut, read_prompt, require_choices
from merge_metric.models.templates import Prompt
from merge_metric.register import METRIC_NAME, SPACE, module_files

if TYPE_CHECKING:
    from merge_metric.exports.task_answers import TaskSettings

_RUNS: Final = {
    "lm_eval": "lm_eval --model hf --model_args pretrained=MODEL --include_path {out} "
    "--tasks merge_nli_{config} --log_samples --output_path logs",
    "inspect_ai": "inspect eval {out}/merge_nli.py -T config={config} --model openai/MODEL "
    "--log-dir logs",
}
"""Harness → the command that runs a task."""

METRIC_FOLDER: Final = "merge_nli_metric"
"""Folder of the metric's modules in an export; the module that needs `evaluate` is left out."""
_ANSWERS: Final = ("exports/task_answers", "models/answer_words", "models/templates", "frame/texts")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options of all exports of tasks: how models are asked, and about what."""

    shots: Annotated[str, option_of(ModelRequest, "shots", panel=None)] = "auto"
    answers: Annotated[
        Literal["letters", "words"], option_of(ModelRequest, "answers", panel=None)
    ] = "letters"
    max_answer_tokens: Annotated[int, option_of(ModelRequest, "max_answer_tokens", panel=None)] = (
        1024
    )
    shuffle_letters: Annotated[bool, option_of(ModelRequest, "shuffle_letters", panel=None)] = False
    letters_seed: Annotated[int, option_of(ModelRequest, "letters_seed", panel=None)] = 0
    ct: Annotated[
        list[int] | None,
        statistics_option(
            "CT of sv@CT, an integer percent; may be repeated. Default: 90.", min=1, max=100
        ),
    ] = None
    hub: Annotated[
        str | None, option("Have the harness load this dataset instead of the folder.", "--hub")
    ] = None
    revision: Annotated[str | None, input_option("Revision of the dataset on the Hub.")] = None


def prepare(
    exported: Exported,
    out: Path,
    options: TaskOptions = TaskOptions(),
    *,
    prompt_start: str = "",
    letters: str = "spaced",
) -> "TaskSettings":
    """Check the options of an export of tasks, and read the prompts."""
    from merge_metric.exports.task_answers import TaskSettings
    from merge_metric.predict.problems import SHOTS, description_of, hold_out, read_problems

    prompts, left_out = dict[str, Prompt](), dict[str, list[str]]()
    known: dict[Any, Prompt] = {}  # so that messages about a source's examples appear once
    folder = exported.folder
    for name in exported.configurations():
        source = parse_config_name(name)[0]
        held_out: HeldOut = {}
        if options.shots == "seeds":
            held_out = description_of(hold_out(read_problems(str(folder), [name])))[SHOTS]
        left_out[name] = [seed["seed_id"] for seeds in held_out.values() for seed in seeds]
        problem_format = format_in(folder, name)
        key = (source, problem_format, *left_out[name])
        if key not in known:
            known[key] = read_prompt(
                options.shots,
                sources=[source],
                start=prompt_start,
                problem_format=problem_format,
                held_out=held_out,
                shuffle=options.letters_seed if options.shuffle_letters else None,
            )
        prompts[name] = known[key]
        if options.answers == "letters" or options.shuffle_letters:
            require_choices(prompts[name])
    return TaskSettings(
        dataset=options.hub or exported.place(seen_from=out),
        revision=options.revision,
        prompts=prompts,
        left_out=left_out,
        thresholds=tuple(dict.fromkeys(options.ct or (90,))),
        forms=(" ", "") if letters == "both" else (" ",),
        max_answer_tokens=options.max_answer_tokens if options.answers == "words" else None,
    )


def _write(harness: str, tasks: "TaskSettings", exported: Exported, out: Path) -> None:
    """Write the folder of tasks: metric, settings, the harness's files and a README."""
    from merge_metric.exports.task_answers import SETTINGS, figure_names
    from merge_metric.seed_variant_accuracy.figures import CATALOGUE

    first, *_ = configs = list(tasks.prompts)
    # As given if relative, only the last part if absolute: no places of a machine.
    places = [of.name if of.is_absolute() else of.as_posix() for of in (out, exported.folder)]
    readme = filled(
        "task_readme.md.j2",
        harness=harness,
        tasks=tasks,
        config=first,
        run=_RUNS[harness].format(out=places[0], config=first),
        dataset=places[1],
        is_on_hub=tasks.dataset != exported.place(seen_from=out),
    )
    files = {"README.md": readme, "merge_nli.py": filled(f"{harness}.py")}
    lower = [key for key, figure in CATALOGUE.items() if not figure.higher_is_better]
    for name in configs if harness == "lm_eval" else ():
        files[f"merge_nli_{name}.yaml"] = filled(
            "lm_eval.yaml.j2",
            tasks=tasks,
            config=name,
            figures=figure_names(tasks.thresholds),
            lower=[*lower, "without_label", "most_frequent_letter"],
        )
    paths = [SPACE / name for name in module_files() if name != f"{METRIC_NAME}.py"]
    for path in [*paths, *(SPACE.parent / f"{name}.py" for name in _ANSWERS)]:
        # They all lie in one folder there.
        rooms = rf"from merge_metric\.({METRIC_NAME}|exports|models|frame)\."
        text = re.sub(rooms, "from .", path.read_text(encoding="utf-8"))
        files[f"{METRIC_FOLDER}/{path.name}"] = text
    facts = {"dataset": tasks.dataset, "revision": tasks.revision, "configurations": configs}
    description = {"export": harness, **facts}
    with new_folder(out, description, overwrite=exported.overwrite) as partial:
        (partial / METRIC_FOLDER).mkdir()
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")
        write_json(partial / SETTINGS, asdict(tasks))
        shutil.copy(SPACE.parent / "models/answer_forms.toml", partial / METRIC_FOLDER)
    text = f"{out}: tasks for the configurations {', '.join(configs)}"
    run = _RUNS[harness].format(out=out, config=first)
    tell(exported.output, out, {"configurations": configs}, text, run)


@export("lm-eval", panel=HARNESSES, extra="predict")
def export_lm_eval(
    exported: Exported,
    out: Out = Path("merge-nli-lm-eval"),
    options: TaskOptions = TaskOptions(),
    *,
    prompt_start: Annotated[str, option_of(ModelRequest, "prompt_start", panel=None)] = "",
    letters: Annotated[
        Literal["spaced", "both"],
        option(
            "Tokens that count as a letter: after a space, or also without, as predict counts "
            "where the tokenizer has both after a colon.",
            "--letters",
        ),
    ] = "spaced",
) -> None:
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
    tasks = prepare(exported, out, options, prompt_start=prompt_start, letters=letters)
    _write("lm_eval", tasks, exported, out)


@export("inspect", panel=HARNESSES, extra="predict")
def export_inspect(
    exported: Exported, out: Out = Path("merge-nli-inspect"), options: TaskOptions = TaskOptions()
) -> None:
    """A task for Inspect (inspect-ai 0.3.285).

    A folder with a task file for inspect eval, which asks chat models, examples as turns, and
    reads the letters' log-probabilities, or what models write. It needs nothing of this package.

    \b
    Examples:
      merge-nli export inspect merge-nli --config snli --out tasks/inspect
    """  # \b is a mark of click: keep the lines that follow
    tasks = prepare(exported, out, options, letters="both")
    _write("inspect_ai", tasks, exported, out)
