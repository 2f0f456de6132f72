"""Common parts of tasks for lm-evaluation-harness, lighteval and Inspect.

An exported folder does not need this package: it has the metric's modules in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from merge_dataset.commands.command_line import option, option_of
from merge_dataset.layout import CARD, format_in
from merge_dataset.schema import NLI, parse_config_name
from merge_metric.exports.folders import configurations_of, new_folder, place_of
from merge_metric.models.answer_letters import LETTERS
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.prompts import Prompt, read_prompt
from merge_metric.register import METRIC_NAME, SPACE, module_files

METRIC_FOLDER: Final = "merge_nli_metric"
"""Folder of the metric's modules in an export; a package of this name."""

SETTINGS: Final = "merge_nli.json"

Letters = Literal["spaced", "both"]
"""Tokens that count as a letter: those after a space, or also those without."""

Shots = Annotated[str, option_of(ModelRequest, "shots", panel=None)]
PromptStart = Annotated[str, option_of(ModelRequest, "prompt_start", panel=None)]
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


@dataclass(frozen=True, slots=True)
class Tasks:
    """Checked options of tasks, with the prompts."""

    dataset: str
    revision: str | None
    prompts: dict[str, Prompt]
    """Configuration → its prompt."""
    choices: tuple[str, ...]
    """Texts that may follow "Answer:": three, or three for each way to write the letters."""
    thresholds: tuple[int, ...]


def prepare(
    folder: Path,
    out: Path,
    config: Sequence[str] | None = None,
    *,
    shots: str = "auto",
    prompt_start: str = "",
    letters: Letters = "spaced",
    ct: Sequence[int] | None = None,
    hub: str | None = None,
    revision: str | None = None,
) -> Tasks:
    """Check the options of an export of tasks, and read the prompts.

    Args:
        folder: The dataset folder.
        out: The folder that the export is written to, which finds the dataset from there.
        config: Configurations; by default all of the folder.
        shots: Few-shot examples, as `read_prompt` knows them.
        prompt_start: Text before the prompt.
        letters: Tokens that count as a letter.
        ct: Correctness thresholds, integer percents; by default 90.
        hub: Name under which the harness loads the dataset; by default the folder.
        revision: Revision of the dataset on the Hub.

    Raises:
        NotADirectoryError: there is no dataset folder.
        ValueError: an option cannot be used; the message says what was expected.
    """
    from merge_metric.seed_variant_accuracy.options import check_threshold

    configs = configurations_of(folder, config or ())
    for name in configs:
        if (problem_format := format_in(folder, name)) != NLI:
            raise ValueError(
                f"{name}: expected problems of NLI, as the prompts are of it, got "
                f"some with the {problem_format.described}; name others with --config"
            )
    if not hub:
        from merge_dataset.card.render import read_front_matter

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
    forms = (" ", "") if letters == "both" else (" ",)
    return Tasks(
        dataset=hub or place_of(folder, seen_from=out),
        revision=revision,
        prompts={
            name: read_prompt(shots, sources=[parse_config_name(name)[0]], start=prompt_start)
            for name in configs
        },
        choices=tuple(form + letter for form in forms for letter in LETTERS),
        thresholds=tuple(dict.fromkeys(map(check_threshold, ct or (90,)))),
    )


@contextmanager
def task_folder(
    out: Path, tasks: Tasks, export: str, readme: str, *, overwrite: bool
) -> Iterator[Path]:
    """Yield a folder with the metric's modules and a README, to write tasks into.

    Raises:
        FileExistsError: `out` holds something; see `folders.new_folder`.
    """
    description = {
        "export": export,
        "dataset": tasks.dataset,
        "revision": tasks.revision,
        "configurations": list(tasks.prompts),
    }
    with new_folder(out, description, overwrite=overwrite) as partial:
        (partial / METRIC_FOLDER).mkdir()
        for name, text in _metric_modules():
            (partial / METRIC_FOLDER / name).write_text(text, encoding="utf-8")
        (partial / "README.md").write_text(readme, encoding="utf-8")
        yield partial


def template(name: str) -> str:
    """Read the text of a module that is exported."""
    folder = resources.files("merge_metric.exports").joinpath("templates")
    return folder.joinpath(name).read_text(encoding="utf-8")


def settings_of(tasks: Tasks) -> dict[str, Any]:
    """Build the content of `SETTINGS`, which the task module reads."""
    return {
        "dataset": tasks.dataset,
        "revision": tasks.revision,
        "thresholds": list(tasks.thresholds),
        "choices": list(tasks.choices),
        "question": next(iter(tasks.prompts.values())).template.text("{premise}", "{hypothesis}"),
        "configurations": {
            config: {
                "shots": prompt.name,
                # The text before every question: the start and the examples.
                "before": prompt.text("", "").removesuffix(prompt.template.text("", "")),
                "turns": prompt.messages("", "")[:-1],
            }
            for config, prompt in tasks.prompts.items()
        },
    }


def _metric_modules() -> Iterator[tuple[str, str]]:
    """Yield the metric's modules, except the one that needs `evaluate`, and those of answers."""
    from merge_metric.exports import task_answers
    from merge_metric.models import answer_letters
    from merge_metric.runs import texts

    for name in module_files():
        if name != f"{METRIC_NAME}.py":
            yield name, (SPACE / name).read_text(encoding="utf-8")
    for module in (task_answers, answer_letters, texts):
        path = Path(str(module.__file__))
        text = path.read_text(encoding="utf-8")
        # There they lie side by side.
        yield (
            path.name,
            re.sub(rf"from merge_metric\.({METRIC_NAME}|models|runs)\.", "from .", text),
        )
