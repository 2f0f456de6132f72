"""Plans for the Hub: a dataset folder as a dataset repository, and a model's results on it.

The branch `script` has the loading script beside the same data, for datasets 3. A version covers
the data: Parquet files and provenance; the card may change without a new version. A model's figures
are in `.eval_results/*.yaml` of the model's repository (docs: hub/eval-results).
"""

import datetime
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Final

import yaml

from merge_dataset.checks import check_dataset
from merge_dataset.files import read_record
from merge_dataset.hub.answer_line import answer_pattern
from merge_dataset.hub.load_back import load_back
from merge_dataset.hub.publication import (
    Branch,
    LoadedBack,
    Published,
    PublishingPlan,
    Tag,
    carry_out,
    look_at,
)
from merge_dataset.hub.repository import (
    MAIN,
    File,
    PublishError,
    Repository,
    State,
    compare,
    is_offline,
    make_file,
    parse_repository,
)
from merge_dataset.layout import (
    CARD,
    PROVENANCE,
    all_configurations,
    as_dataset,
    collections,
    format_in,
    parquet_files,
)
from merge_dataset.provenance import REPLACEMENTS, kind_of
from merge_dataset.schema import ProblemFormat

log = logging.getLogger(__name__)

SCRIPT_REVISION: Final = "script"
FIRST_VERSION: Final = (1, 0, 0)

Version = tuple[int, int, int]

_TAG = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_SCRIPT: Final = ("merge_nli.py", "schema.py", "dataset_columns.py", "numbered_files.py")

_LOADING: Final = "## Loading\n"

BENCHMARK_FILE: Final = "eval.yaml"

_DESCRIPTION: Final = """\
Tests whether a model that answers a natural language inference problem right also answers minimal \
variants of it right. The value is the accuracy on variants, each distinct one once, in percent, \
as Inspect computes it. Higher is better. The figure of the paper, seed-variant accuracy, is \
computed by merge-nli and stands in the notes of results.\
"""

_IDS: Final = ("variant_id", "seed_id")
"""Columns that identify a problem in Inspect's logs."""


def push_to_hub(
    folder: str | Path, repository: str, *, version: str | None = None, private: bool = False
) -> Published:
    """Publish a dataset folder, with its card, as `merge-nli publish dataset --yes` does.

    Args:
        folder: The dataset folder.
        repository: OWNER/NAME.
        version: Of the data, for example 1.2.0; by default that of the tag with the same data,
            else the next minor one.
        private: Make a new repository private; one that is there must be.

    Raises:
        TypeError: the folder is no path.
        ValueError: an argument is not as it should be, or contradicts the repository.
        PublishError: the folder is not good, nobody is logged in, or the Hub fails.
    """
    return carry_out(plan_dataset(folder, repository, version=version, private=private))


def plan_dataset(
    folder: str | Path, repository: str, *, version: str | None = None, private: bool = False
) -> PublishingPlan:
    """Plan what `push_to_hub` does, with the same arguments and errors; nothing is written."""
    folder = as_dataset("folder", folder)
    target = parse_repository(repository, "dataset")
    wanted = None if version is None else parse_version(version)
    if problems := check_dataset(folder):
        told = "\n  ".join([f"{len(problems)} problem(s)", *problems])
        raise PublishError(f"{folder}: not published: {told}")
    files = tuple(_files(folder, target))
    # datasets 3 looks for a script with the repository's name.
    own = f"{target.short_name}.py"
    paths = (own, *_SCRIPT[1:])
    script = map(make_file, paths, (Path(__file__).parents[1] / name for name in _SCRIPT))
    script_files = (*files, *script)
    account, state = look_at(target, private=private)
    same = {} if state is None else _compare_tags(target, state, files)
    chosen, why = choose_version(same, wanted)

    def removable(path: str) -> bool:
        # Also remove from `main` a script with the repository's name, which datasets 4 refuses.
        return _is_data(path) or path == own

    there = {} if state is None else target.files(state.head)
    begun = None if state is None else state.branches.get(SCRIPT_REVISION)
    main = compare(files, there, removable)
    of_script = compare(script_files, target.files(begun) if begun else {}, removable)
    tag, tagged = tag_of(chosen), same.get(chosen, False)
    superseded = tagged and any(map(_is_data, main.paths))
    is_done = superseded or (tagged and not main and not of_script)
    settled = "main, tag and script are up to date"
    if superseded:
        settled = f"main holds other data than {tag} and stays as it is"
    published, configs = {file.path for file in files}, all_configurations(folder)
    listed = [p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_file()]
    left_out = [name for name in listed if name not in published]
    facts = {"version": tag, "why": why, "tagged": tagged, "superseded": superseded}
    return PublishingPlan(
        repository=target,
        account=account,
        state=state,
        private=private,
        facts=facts | {"configurations": configs, "left_out": left_out},
        notes=(f"version {tag}: {why}",),
        branches=(
            Branch(files=files, difference=main, message=f"Data {tag}"),
            Branch(
                name=SCRIPT_REVISION,
                files=script_files,
                difference=of_script,
                message=f"Data {tag} with the loading script, for datasets 3",
            ),
        ),
        removable=removable,
        tag=Tag(name=tag, is_set=tagged, message=f"Version {tag} of the data", covers=_is_data),
        load_back=partial(_load_back, folder, target, tag, needed=bool(main) or not tagged),
        is_done=is_done,
        settled=settled if is_done else None,
        remark_lines=(f"left out: {', '.join(left_out)}",) if left_out else (),
        usage=f'load_dataset("{target.name}", "{configs[0]}", revision="{tag}")',
    )


def _load_back(
    folder: Path, target: Repository, tag: str, revision: str, *, needed: bool
) -> LoadedBack:
    """Load a commit back as users would, and compare it with the folder, if that is needed."""
    if not needed:
        return {"rows": {}}, ""
    log.info("Loading %s at %s back with empty caches …", target.name, revision[:12])
    try:
        rows = load_back("dataset", target.name, revision, str(folder.resolve()))
    except PublishError as error:
        raise PublishError(
            f"{target.name} at {revision[:12]} does not load as the folder: {error}\n"
            f"{MAIN} holds it, and {tag} was not tagged; the same command, run again, checks it "
            "again."
        ) from error
    count = sum(sum(splits.values()) for splits in rows.values())
    text = f"{len(rows)} configurations, {count:,} rows, as in the folder"
    return {"rows": rows}, text if rows else ""


def find_revision(folder: Path, repository: str) -> tuple[str, str]:
    """Find the version of a repository with a folder's data; return its tag and commit."""
    target = parse_repository(repository, "dataset")
    state = target.state()
    if state is None:
        raise PublishError(
            f"expected a dataset repository {repository}, found none that you may see: run "
            f"`merge-nli publish dataset` first"
        )
    same = _compare_tags(target, state, list(_data_files(folder)))
    for version in sorted(same, reverse=True):
        if same[version]:
            return tag_of(version), target.commit_of(tag_of(version))
    raise PublishError(
        f"expected a version of {repository} with the data of {folder}, got "
        f"{', '.join(map(tag_of, sorted(same))) or 'no version'}, with other data: publish the "
        "folder first, or give the one that is published"
    )


def parse_version(text: str) -> Version:
    """Parse a version.

    >>> parse_version("1.2.0"), parse_version("v1.2.0")
    ((1, 2, 0), (1, 2, 0))
    """
    match = _TAG.fullmatch(f"v{text.removeprefix('v')}")
    if match is None:
        raise ValueError(f"version: expected three numbers such as 1.0.0, got {text!r}")
    major, minor, patch = map(int, match.groups())
    return major, minor, patch


def tag_of(version: Version) -> str:
    """Return the tag of a version, such as v1.2.0."""
    return "v" + ".".join(map(str, version))


def choose_version(same: Mapping[Version, bool], wanted: Version | None) -> tuple[Version, str]:
    """Choose the version of the data, and give the reason.

    >>> choose_version({}, None)
    ((1, 0, 0), 'the first')
    >>> choose_version({(1, 0, 0): True, (1, 1, 0): False}, None)
    ((1, 0, 0), 'it has these data')
    >>> choose_version({(1, 0, 0): False, (1, 9, 3): False}, None)
    ((1, 10, 0), 'the data differ from those of v1.9.3')
    """
    newest = max(same, default=None)
    if wanted is None:
        if alike := [version for version, is_same in same.items() if is_same]:
            return max(alike), "it has these data"
        if newest is None:
            return FIRST_VERSION, "the first"
        major, minor, _ = newest
        return (major, minor + 1, 0), f"the data differ from those of {tag_of(newest)}"
    if same.get(wanted):
        return wanted, "it has these data"
    if wanted in same:
        raise ValueError(
            f"{tag_of(wanted)} is there with other data, and versions do not change: give a "
            f"newer one than {tag_of(max(same))}, or leave --version out"
        )
    if newest is not None and wanted < newest:
        raise ValueError(f"expected a newer version than {tag_of(newest)}, got {tag_of(wanted)}")
    return wanted, "as given"


def _files(folder: Path, target: Repository) -> Iterator[File]:
    """Yield the files of `main`: the dataset, a card with loading instructions, the benchmark."""
    card = (folder / CARD).read_text(encoding="utf-8")
    example = all_configurations(folder)[0]
    text = f"""\
{_LOADING}
From this repository, where each version of the data is a tag, such as `v1.0.0`:

```python
from datasets import load_dataset

data = load_dataset("{target.name}", "{example}", revision="v1.0.0")
```
"""
    yield make_file(CARD, card.replace(_LOADING, text, 1).encode())
    if listed := benchmark(folder):
        yield make_file(BENCHMARK_FILE, listed)
    yield from _data_files(folder)


def _data_files(folder: Path) -> Iterator[File]:
    made = sorted(path.relative_to(folder).as_posix() for path in folder.glob(f"*/{PROVENANCE}"))
    for path in (*made, *parquet_files(folder)):
        yield make_file(path, folder / path)


def _is_data(path: str) -> bool:
    """Return whether a file belongs to the data, which have a version, or to their description."""
    return path.endswith((".parquet", f"/{PROVENANCE}"))


def _compare_tags(target: Repository, state: State, files: Iterable[File]) -> dict[Version, bool]:
    """Map each version in the repository to whether its data equal these files'."""
    data = [file for file in files if _is_data(file.path)]
    versions = [parse_version(tag) for tag in state.tags if _TAG.fullmatch(tag)]
    return {
        version: not compare(data, target.files(tag_of(version)), _is_data) for version in versions
    }


def benchmark(folder: Path) -> bytes | None:
    """Return the content of `eval.yaml`: the folder's own file, or one with a task per source.

    None if no source has a task. Single word classes, ablations and paraphrases, which one NLI
    model chose, have no tasks. The Hub (docs: hub/eval-results) requires one of
    EVALUATION_FRAMEWORKS in packages/tasks/src/eval.ts of huggingface.js. Inspect's tasks need
    columns, solvers and scorers (HFTask in inspect_ai/_eval/task/hf.py), and measure accuracy on
    variants.
    """
    own = folder / BENCHMARK_FILE
    if own.is_file():
        return own.read_bytes()
    tasks = []
    for name in collections(folder):
        made = read_record(folder / name / PROVENANCE, verify=False)
        if kind_of(made) == REPLACEMENTS and made.get("ablation") in (None, "paper"):
            tasks.append(_task(name, format_in(folder, name)))
    if not tasks:
        return None
    value: dict[str, Any] = {
        "name": "MERGE-NLI",
        "description": _DESCRIPTION,
        "evaluation_runwork": "inspect-ai",
        "tasks": tasks,
    }
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    return text.encode()


def task_ids(folder: Path) -> list[str]:
    """List the ids of tasks in the `eval.yaml` that `benchmark` returns."""
    try:
        value = yaml.safe_load(benchmark(folder) or b"tasks: []")
        return [str(task["id"]) for task in value["tasks"]]
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder / BENCHMARK_FILE}: expected a list `tasks` of tasks with an `id`, got "
            f"something else ({type(error).__name__}: {error}); mend or delete it"
        ) from error


def _task(config: str, problem_format: ProblemFormat) -> dict[str, Any]:
    """Describe a task with the prompts of `merge-nli predict`; the answer is a letter on a line."""
    # Inspect's templates have its input as {prompt}, and other columns by their names.
    fields = problem_format.fields
    asked = "prompt" if "prompt" in fields else fields[-1]
    others = [name for name in fields if name != asked]
    lines = [
        f"{name.replace('_', ' ').capitalize()}: {{{'prompt' if name == asked else name}}}"
        for name in fields
    ]
    lines += [
        f"{letter}. {label.capitalize()}"
        for letter, label in zip(ascii_uppercase, problem_format.labels, strict=False)
    ]
    letters = ", ".join(ascii_uppercase[: len(problem_format.labels)])
    form = (
        'The last line of your response should be of the form "ANSWER: LETTER", without quotes, '
        f"where LETTER is one of {letters}."
    )
    return {
        "id": config,
        "config": config,
        "split": "variants",
        # With choices, Inspect makes the label's number a letter; the template shows the labels.
        "field_spec": {
            "input": asked,
            "target": "label",
            "choices": [_IDS[0]],
            "metadata": [*others, *_IDS],
        },
        "solvers": [
            {"name": "prompt_template", "args": {"template": "\n".join([*lines, "", form])}},
            {"name": "generate"},
        ],
        "scorers": [
            {"name": "pattern", "args": {"pattern": answer_pattern(fields, problem_format.labels)}}
        ],
    }


# --- Results of a model ---


@dataclass(frozen=True, slots=True)
class ModelFigure:
    """A model's figure on a configuration."""

    value: float
    """Accuracy on distinct variants, in percent."""
    notes: str
    """Text with seed-variant accuracy, other figures to quote, and their settings."""


def plan_results(
    figures: Mapping[str, ModelFigure],
    target: Repository,
    folder: Path,
    dataset: str,
    *,
    pull_request: bool = False,
    date: str | None = None,
) -> PublishingPlan:
    """Plan the publication of a model's results by configuration; nothing is written.

    Results on the same dataset for other tasks are kept. `dataset` is the repository of the
    published folder, `date` (ISO 8601) the day of the evaluation.
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
    path = f".eval_results/{dataset.replace('/', '__')}.yaml"
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
    """Merge these entries, sorted by task, into the file's content; keep those of other tasks."""
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
