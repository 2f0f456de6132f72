"""Export tasks for lm-evaluation-harness: YAML files, and a module of functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from merge_metric.exports.folders import shown
from merge_metric.exports.harness import (
    Hub,
    LettersOption,
    PromptStart,
    Revision,
    Shots,
    Tasks,
    Thresholds,
    prepare,
    task_folder,
    template,
)
from merge_metric.exports.registry import (
    HARNESSES,
    Configs,
    Exported,
    Folder,
    Out,
    Overwrite,
    count,
    export,
)
from merge_metric.models.answer_letters import LETTERS
from merge_metric.models.prompts import question

MODULE: Final = "merge_nli"

_README: Final = """\
# MERGE-NLI in lm-evaluation-harness

```sh
lm_eval --model hf --model_args pretrained=MODEL --include_path {out} --tasks {task}
```

Each task asks a model for the letter of the label and reports seed-variant accuracy (`sv@CT`) and
its kin, computed in each subsample and averaged, as `merge-nli score` does. Tasks: {tasks}.

- A part of the data: `--metadata '{{"limit_seeds": 100}}'` takes 100 seeds of each source with all
  their variants, the same as `merge-nli predict --limit-seeds 100`. `--limit` cuts seeds and is
  refused at the end.
- Few-shot examples are in the YAML; `--num_fewshot 0` leaves them out.
- `--apply_chat_template --fewshot_as_multiturn true` asks in the model's chat template.
- The harness gives no intervals for these figures, `merge-nli score` does. With `--log_samples`
  and `--output_path`, what is logged under a figure's name is a row of a predictions file:
  `jq -c '.seed_accuracy' samples_{task}_*.jsonl > answers.jsonl`, then
  `merge-nli score answers.jsonl --dataset {dataset} --config {config}`, for a sample of seeds
  with `--allow-missing`.
- `merge-nli predict` counts a letter with and without a space before it, where the tokenizer has
  both after "Answer:". This task counts {letters}. With both (`--letters both` of the export)
  numbers are the same; tokenizers that join letter and colon, as Llama 3's, know only one.

The code here is under Apache-2.0; the texts of the examples are under their source's licence.
"""

_FUNCTION: Final = '''\
def {function}(items: list[dict[str, Any]]) -> float:
    """The figure {figure}."""
    return _figure(items, "{figure}")
'''


@export("lm-eval", panel=HARNESSES, extra="predict")
def export_lm_eval(
    folder: Folder = Path("merge-nli"),
    out: Out = Path("merge-nli-lm-eval"),
    config: Configs = None,
    shots: Shots = "exc",
    prompt_start: PromptStart = "",
    letters: LettersOption = "spaced",
    ct: Thresholds = None,
    hub: Hub = None,
    revision: Revision = None,
    overwrite: Overwrite = False,
) -> Exported:
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
    tasks = prepare(
        folder,
        out,
        config,
        shots=shots,
        prompt_start=prompt_start,
        letters=letters,
        ct=ct,
        hub=hub,
        revision=revision,
    )
    task_of = {name: f"merge_nli_{name}" for name in tasks.prompts}
    names = list(task_of.values())
    readme = _README.format(
        out=shown(out),
        dataset=shown(folder),
        config=next(iter(task_of)),
        task=names[0],
        tasks=", ".join(f"`{name}`" for name in names),
        letters="both" if letters == "both" else "those after a space, in chats those without",
    )
    with task_folder(out, tasks, "lm-eval", readme, overwrite=overwrite) as partial:
        figures = tuple(figure_names(tasks.thresholds))
        for configuration, name in task_of.items():
            text = _as_yaml(_task(tasks, configuration, name, figures))
            (partial / f"{name}.yaml").write_text(text, encoding="utf-8")
        # The template with its constants, and a function for each figure.
        text = template("lm_eval.py")
        for name, values in (("FIGURES", figures), ("THRESHOLDS", tasks.thresholds)):
            text = re.sub(rf"^({name}: .* = )\(\)$", rf"\g<1>{values!r}", text, flags=re.MULTILINE)
        functions = [_FUNCTION.format(function=_function_of(each), figure=each) for each in figures]
        text = "\n\n".join([text, *functions])
        (partial / f"{MODULE}.py").write_text(text, encoding="utf-8")
    return Exported(
        out,
        {"tasks": names},
        f"{out}: {count(names, 'task')}: {', '.join(names)}",
        f"lm_eval --model hf --model_args pretrained=MODEL --include_path {out} --tasks {names[0]}",
    )


def figure_names(thresholds: Sequence[int]) -> list[str]:
    """List the figures that a harness reports, those at thresholds first."""
    from merge_metric.exports.task_answers import FIGURES

    return [*(f"sv@{threshold}" for threshold in thresholds), *FIGURES]


def _task(tasks: Tasks, config: str, name: str, figures: Sequence[str]) -> dict[str, Any]:
    """Build a task as the harness's YAML has it."""
    from merge_metric.seed_variant_accuracy.figures import CATALOGUE

    prompt = tasks.prompts[config]
    several = len(tasks.choices) > len(LETTERS)
    task = {
        "task": name,
        "custom_dataset": _Function(f"{MODULE}.load"),
        "dataset_kwargs": {
            "dataset": tasks.dataset,
            "config": config,
            "revision": tasks.revision,
        },
        "test_split": "test",
        "output_type": "multiple_choice",
        "description": prompt.start,
        "doc_to_text": question("{{premise}}", "{{hypothesis}}"),
        "doc_to_target": "label",
        # In chats the harness leaves the delimiter out.
        "doc_to_choice": list(tasks.choices) if several else list(LETTERS),
        "target_delimiter": "" if several else " ",
        "fewshot_delimiter": "\n\n",
        "num_fewshot": len(prompt.examples),
        "fewshot_config": {
            "sampler": "first_n",
            "samples": [
                {"premise": each.premise, "hypothesis": each.hypothesis, "label": each.label}
                for each in prompt.examples
            ],
            "doc_to_choice": list(LETTERS),
            "target_delimiter": " ",
        },
        "process_results": _Function(f"{MODULE}.process_results"),
        "metric_list": [
            {
                "metric": figure,
                "aggregation": _Function(f"{MODULE}.{_function_of(figure)}"),
                # Of `sv@CT` the higher is the better.
                "higher_is_better": figure not in CATALOGUE or CATALOGUE[figure].higher_is_better,
            }
            for figure in figures
        ],
        "metadata": {"version": 1.0},
    }
    if not prompt.examples:
        del task["fewshot_config"]
    return task


class _Function(str):
    """Name of a function, which the harness's YAML marks with a tag."""

    __slots__ = ()


def _as_yaml(task: dict[str, Any]) -> str:
    """Write a task with the harness's tag for functions, and prompts as blocks of lines."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # yaml is untyped
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: Any, text: str) -> Any:
        style = "|" if text.count("\n") > 2 else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def represent_function(dumper: Any, name: _Function) -> Any:
        return dumper.represent_scalar("!function", str(name))

    Dumper.add_representer(str, represent_text)
    Dumper.add_representer(_Function, represent_function)
    return str(yaml.dump(task, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100))


def _function_of(figure: str) -> str:
    """Name the function that computes a figure."""
    return figure.replace("@", "_")
