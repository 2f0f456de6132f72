"""Common parts of tasks for lm-evaluation-harness, lighteval and Inspect.

An exported folder does not need this package: it has the metric's modules in it.
"""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from merge_dataset.commands.command_line import option, option_of
from merge_dataset.files import write_json
from merge_dataset.layout import CARD, format_in
from merge_dataset.schema import parse_config_name
from merge_metric.exports.registry import (
    HARNESSES,
    Configs,
    Exported,
    Folder,
    Out,
    configurations_of,
    export,
    new_folder,
    place_of,
    shown,
    template,
)
from merge_metric.exports.task_settings import SETTINGS, TaskSettings
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.prompts import HeldOut, read_prompt, require_choices
from merge_metric.models.templates import Prompt
from merge_metric.register import METRIC_NAME, SPACE, module_files

METRIC_FOLDER: Final = "merge_nli_metric"
"""Folder of the metric's modules in an export, without the one that needs `evaluate`."""
_ANSWERS: Final = (
    "exports/task_answers",
    "exports/task_settings",
    "models/answer_words",
    "models/templates",
    "runs/texts",
)
"""Modules of answers, which go there too."""

Letters = Literal["spaced", "both"]
"""Tokens that count as a letter: those after a space, or also those without."""

AnswerKind = Literal["letters", "words"]

Shots = Annotated[str, option_of(ModelRequest, "shots", panel=None)]
PromptStart = Annotated[str, option_of(ModelRequest, "prompt_start", panel=None)]
Answers = Annotated[AnswerKind, option_of(ModelRequest, "answers", panel=None)]
MaxAnswerTokens = Annotated[int, option_of(ModelRequest, "max_answer_tokens", panel=None)]
LettersOption = Annotated[
    Letters,
    option(
        "Tokens that count as a letter: after a space, or also without, as predict counts "
        "where the tokenizer has both after a colon.",
        "--letters",
    ),
]
Thresholds = Annotated[
    list[int] | None,
    option("CT of sv@CT, an integer percent; may be repeated. Default: 90.", min=1, max=100),
]
Hub = Annotated[
    str | None, option("Have the harness load this dataset instead of the folder.", "--hub")
]
Revision = Annotated[str | None, option("Revision of the dataset on the Hub.")]


def prepare(
    folder: Folder,
    out: Out,
    config: Configs = None,
    *,
    shots: Shots = "auto",
    prompt_start: PromptStart = "",
    answers: Answers = "letters",
    max_answer_tokens: MaxAnswerTokens = 1024,
    letters: LettersOption = "spaced",
    ct: Thresholds = None,
    hub: Hub = None,
    revision: Revision = None,
) -> TaskSettings:
    """Check the options of an export of tasks, and read the prompts.

    The dataset is found from the folder that is written. Thresholds (`ct`) are integer percents.
    """
    from merge_metric.predict.problems import SHOTS, description_of, hold_out, read_problems
    from merge_metric.seed_variant_accuracy.options import check_threshold

    configs = configurations_of(folder, config or ())
    if not hub:
        from merge_dataset.card import read_front_matter

        path = folder / CARD
        try:
            listed = read_front_matter(path.read_text(encoding="utf-8")).get("configs") or []
            names = {each["config_name"] for each in listed}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{path}: expected the card of the dataset, by which harnesses load it, got "
                f"{error}; `merge-nli check {folder}` says more"
            ) from error
        if missing := [config for config in configs if config not in names]:
            raise ValueError(
                f"{path}: expected a card that lists {', '.join(missing)}, by which harnesses load "
                f"the dataset, got one without; `merge-nli check {folder}` says more"
            )
    if revision and not hub:
        raise ValueError(f"--revision: expected --hub with it, got {revision!r} for a folder")
    prompts, left_out = dict[str, Prompt](), dict[str, list[str]]()
    known: dict[Any, Prompt] = {}  # so that what is said of a source's examples is said once
    for name in configs:
        source = parse_config_name(name)[0]
        held_out: HeldOut = {}
        if shots == "seeds":
            held_out = description_of(hold_out(read_problems(str(folder), [name])))[SHOTS]
        left_out[name] = [seed["seed_id"] for each in held_out.values() for seed in each]
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


def task_export(
    name: str, **fixed: Any
) -> Callable[[Callable[..., Exported]], Callable[..., Exported]]:
    """Register a function as an export of tasks, with the options of `prepare` and its own.

    It gets the dataset folder, the one to write, and the settings from `prepare`, of which `fixed`
    has values that are no options with this harness.
    """

    def register(write: Callable[..., Exported]) -> Callable[..., Exported]:
        defaults = {"folder": Path("merge-nli"), "out": Path(f"merge-nli-{name}")}
        shared = inspect.signature(prepare, eval_str=True).parameters.values()
        own = inspect.signature(write, eval_str=True).parameters.values()
        options = [
            p.replace(default=defaults.get(p.name, p.default))
            for p in (*shared, *(p for p in own if p.kind is p.KEYWORD_ONLY))
            if p.name not in fixed
        ]
        signature = inspect.Signature(options)

        @functools.wraps(write)
        def run(*given: Any, **more: Any) -> Exported:
            bound = signature.bind(*given, **more)
            bound.apply_defaults()
            values = bound.arguments | fixed
            asked = {p.name: values.pop(p.name) for p in shared}
            return write(asked["folder"], asked["out"], prepare(**asked), **values)

        run.__signature__ = signature  # type: ignore[attr-defined]
        return export(name, panel=HARNESSES, extra="predict")(run)

    return register


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
        out=shown(out),
        dataset=shown(folder),
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
            # There they lie side by side.
            rooms = rf"from merge_metric\.({METRIC_NAME}|exports|models|runs)\."
            text = re.sub(rooms, "from .", text)
            (partial / METRIC_FOLDER / path.name).write_text(text, encoding="utf-8")
        (partial / "README.md").write_text(readme, encoding="utf-8")
        write_json(partial / SETTINGS, asdict(tasks))
        yield partial
