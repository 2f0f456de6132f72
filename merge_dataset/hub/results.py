"""A model's figures → `.eval_results/*.yaml` in its repository on the Hub: content, and the plan.

The Hub shows such results on the model's page, and on that of the dataset where it is listed as
a benchmark (docs: hub/eval-results). Tasks, and what their value is, are those of the file
`eval.yaml` in the dataset repository.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from merge_dataset.hub.dataset import find_revision, task_ids
from merge_dataset.hub.errors import PublishError
from merge_dataset.hub.publication import Branch, PublishingPlan, look_at
from merge_dataset.hub.repository import Repository, compare, is_offline, make_file

FOLDER: Final = ".eval_results"


@dataclass(frozen=True, slots=True)
class ModelFigure:
    """A model's figure on a configuration."""

    value: float
    """Accuracy on variants, each distinct one once, in percent."""
    notes: str
    """Seed-variant accuracy and other figures to quote beside it, and what determines them."""


def plan_results(
    figures: Mapping[str, ModelFigure],
    target: Repository,
    folder: Path,
    dataset: str,
    *,
    pull_request: bool = False,
    date: str | None = None,
) -> PublishingPlan:
    """Find out what publishing a model's results would do. Nothing is written.

    Results that the model has already for the same dataset and other tasks are kept. Figures are
    by configuration, `target` is the model's repository, `folder` the dataset folder that they are
    of, `dataset` OWNER/NAME of the repository where it is published, and `date` when the model was
    evaluated, ISO 8601. With `pull_request` they are proposed instead of committed.
    """
    from huggingface_hub import EvalResultEntry

    if date is not None:
        try:
            datetime.date.fromisoformat(date)
        except ValueError:
            raise ValueError(f"date: expected a date such as 2026-01-31, got {date!r}") from None
    tasks = task_ids(folder)
    if other := sorted(figures.keys() - set(tasks)):
        raise ValueError(
            f"config: expected tasks of the dataset's eval.yaml ({', '.join(tasks) or 'none'}), "
            f"got {', '.join(other)}; word classes, paraphrases and ablations are no tasks"
        )
    account, state = look_at(target)
    version, revision = (
        ("(version not looked up)", None) if is_offline() else find_revision(folder, dataset)
    )
    told: dict[str, Any] = {"date": date, "dataset_id": dataset, "dataset_revision": revision}
    entries = {
        config: EvalResultEntry(task_id=config, value=figure.value, notes=figure.notes, **told)
        for config, figure in figures.items()
    }
    if state is None and not is_offline():
        raise PublishError(
            f"expected a model repository {target.name}, found none that you may see: publish "
            "the model first"
        )
    path = f"{FOLDER}/{dataset.replace('/', '__')}.yaml"
    present = target.read(path, state.head) if state is not None else b""
    file = make_file(path, _merged(present, path, entries))
    main = compare([file], target.files(state.head) if state is not None else {})
    values = {config: figure.value for config, figure in figures.items()}
    listed = "\n".join(f"- {config}: {value}" for config, value in values.items())
    proposal = (
        f"Accuracy on the variants of {dataset} {version}, in percent, with seed-variant accuracy "
        f"in the notes:\n\n{listed}\n"
    )
    return PublishingPlan(
        repository=target,
        account=account,
        state=state,
        heading=f"{target.name}: results on {dataset} {version}",
        facts={"dataset": dataset, "version": version, "values": values},
        branches=(
            Branch(files=(file,), difference=main, message=f"Results on {dataset} {version}"),
        ),
        proposal=proposal if pull_request else None,
        is_done=not main,
        remark_lines=tuple(f"  {config}: {value}" for config, value in values.items()),
    )


def _merged(present: bytes, path: str, entries: Mapping[str, Any]) -> bytes:
    """Write the file's content with these entries, sorted by task; other tasks keep theirs."""
    from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries

    try:
        kept = parse_eval_result_entries(yaml.safe_load(present) or [])
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise PublishError(
            f"{path} in the model repository: expected a list of results, got something else "
            f"({type(error).__name__}: {error}); mend or delete it"
        ) from error
    others = [entry for entry in kept if entry.task_id not in entries]
    merged = sorted([*others, *entries.values()], key=lambda entry: entry.task_id)
    text: str = yaml.safe_dump(
        eval_result_entries_to_yaml(merged), sort_keys=False, allow_unicode=True, width=100
    )
    return text.encode()
