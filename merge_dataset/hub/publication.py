"""Publishing on the Hub: a dataset folder, the metric, and a model's results on a dataset.

Planning only reads. `carry_out` makes `main` equal to the planned files in one commit, loads it
back with empty caches, tags it, and updates other branches. Both may be repeated.

A version covers the data: Parquet files and provenance; the card may change without a new one. The
branch `script` has the loading script beside the same data, for datasets 3. A model's figures are
in `.eval_results/*.yaml` of the model's repository (docs: hub/eval-results).
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from merge_dataset.checks import check_dataset
from merge_dataset.files import size_in_words
from merge_dataset.hub.benchmark import BENCHMARK_FILE, benchmark, task_ids
from merge_dataset.hub.load_back import load_back
from merge_dataset.hub.repository import (
    MAIN,
    Changes,
    File,
    PublishError,
    Repository,
    State,
    account_of_token,
    compare,
    hub_api,
    is_offline,
    make_file,
)
from merge_dataset.layout import CARD, PROVENANCE, all_configurations, as_dataset, parquet_files

log = logging.getLogger(__name__)

SCRIPT_REVISION: Final = "script"

Version = tuple[int, int, int]

_TAG = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_SCRIPT: Final = ("merge_nli.py", "schema.py", "dataset_columns.py")
_LOADING: Final = "## Loading\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch, and its planned files."""

    name: str = MAIN
    files: tuple[File, ...]
    changes: Changes
    message: str

    def by_kind(self) -> dict[str, list[str]]:
        """List the paths of each kind of change."""
        return {
            kind: [path for path, change in self.changes.items() if change == kind]
            for kind in ("added", "changed", "removed")
        }

    def __str__(self) -> str:
        """Write the counts of changes in words."""
        added, changed, removed = map(len, self.by_kind().values())
        unchanged = len(self.files) - added - changed
        words = {"add": added, "change": changed, "remove": removed}
        listed = [f"{count:,} to {what}" for what, count in words.items() if count]
        listed += [f"{unchanged:,} as they are"] if unchanged else []
        return f"{self.name}: {', '.join(listed) if self.changes else 'up to date'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishingPlan:
    """A plan of publishing."""

    repository: Repository
    state: State | None
    """Current state of the repository; None if it does not exist or was not looked up."""
    private: bool = False
    facts: Mapping[str, Any]
    """Further entries of the plan's JSON."""
    lines: Sequence[str]
    """Lines for readers."""
    branches: tuple[Branch, ...]
    """The branches; the first is `main`, which users load."""
    removable: Callable[[str], bool] | None = None
    """Predicate for files to remove from a branch if not planned; None keeps all files."""
    sdk: str | None = None
    tag: str | None = None
    """Tag of the data's version, to be set."""
    check: Callable[[str], dict[str, Any]] | None = None
    """Function that loads a commit back and returns entries of the JSON; None if it need not."""
    proposal: str | None = None
    """Description of a pull request to open instead of a commit; None for a commit."""
    is_done: bool
    usage: str = ""
    """Instruction for loading; if empty, the address of the commit is shown."""

    @property
    def has_steps(self) -> bool:
        """Whether `carry_out` does anything; even a Space that is up to date is loaded back."""
        return not self.is_done or self.check is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The outcome of publishing."""

    address: str
    revision: str | None = None
    """Commit of `main`; None for a pull request."""
    committed: bool = False
    tagged: bool = False
    loaded: Mapping[str, Any]
    """Rows or figures that were loaded back, by name; empty if nothing was loaded."""


def carry_out(plan: PublishingPlan) -> Published:
    """Carry out a plan."""
    target, main = plan.repository, plan.branches[0]
    if account_of_token() is None:
        raise PublishError(
            "expected to be logged in to the Hub, found no token: run `hf auth login`, or set "
            "HF_TOKEN to one that may write (https://huggingface.co/settings/tokens)"
        )
    head = None if plan.state is None else plan.state.head
    if not plan.has_steps:
        return Published(address=target.address, revision=head, loaded={})
    if plan.proposal is not None:
        address = target.propose(main.files, message=main.message, description=plan.proposal)
        return Published(address=address, loaded={})
    api = hub_api()
    if plan.state is None:
        options: dict[str, Any] = {"private": plan.private, "exist_ok": True, "space_sdk": plan.sdk}
        target.call(f"making {target.name}", api.create_repo, **options)
    revision = target.make_equal(
        main.files, message=main.message, removable=plan.removable, planned_on=head
    )
    loaded: dict[str, Any] = {}
    if plan.check is not None:
        log.info("Loading %s at %s back with empty caches …", target.name, revision[:12])
        try:
            loaded = plan.check(revision)
        except PublishError as error:
            untagged = f", and {plan.tag} was not tagged" if plan.tag else ""
            raise PublishError(
                f"{target.name} at {revision[:12]} does not load as it should: {error}\n{MAIN} "
                f"holds it{untagged}; the same command, run again, checks it again."
            ) from error
    if plan.tag is not None:
        options = {"tag": plan.tag, "tag_message": f"Version {plan.tag} of the data"}
        options |= {"revision": revision, "exist_ok": True}
        target.call(f"tagging {plan.tag}", api.create_tag, **options)
        data = [file for file in main.files if _is_data(file.path)]
        if compare(data, target.files(plan.tag), _is_data):
            raise PublishError(
                f"{plan.tag} was set on other data meanwhile, and versions do not change; run the "
                "same command again for the next one"
            )
    for branch in plan.branches[1:]:
        if branch.changes:
            options = {"branch": branch.name, "revision": revision, "exist_ok": True}
            target.call(f"making the branch {branch.name}", api.create_branch, **options)
            target.make_equal(
                branch.files, message=branch.message, revision=branch.name, removable=plan.removable
            )
    return Published(
        address=target.address if plan.usage else f"{target.address}/commit/{revision}",
        revision=revision,
        committed=bool(main.changes),
        tagged=plan.tag is not None,
        loaded=loaded,
    )


# --- Plans ---


def _look_at(
    target: Repository, *, private: bool = False
) -> tuple[State | None, list[str], dict[str, Any]]:
    """Read a repository's state; also return lines and JSON about it and the token's user.

    It must be `private` if that is wanted.
    """
    if is_offline():
        line = "HF_HUB_OFFLINE is set, so the Hub was not asked what is there; --yes needs it unset"
        return None, [f"{target.name}: not looked up", line], {"account": None}
    account, state = account_of_token(), target.state()
    if state is not None and private and not state.private:
        raise ValueError(
            f"expected {target.name} to be private, it is public: change that in its settings, "
            "or leave --private out"
        )
    is_private = private if state is None else state.private
    kind = "Space" if target.kind == "space" else target.kind
    made, seen = "to be made, a" if state is None else "a", "private" if is_private else "public"
    login = f"logged in as {account}"
    if account is None:
        login = "not logged in, which --yes needs: run `hf auth login`, or set HF_TOKEN"
    facts = {"exists": state is not None, "private": is_private, "account": account}
    return state, [f"{target.name}: {made} {seen} {kind}", login], facts


def _change_lines(branch: Branch) -> Iterator[str]:
    yield str(branch)
    sizes = {file.path: f"  {size_in_words(file.size)}" for file in branch.files}
    marks = {"added": "+", "changed": "~", "removed": "-"}
    yield from (f"  {marks[of]} {path}{sizes.get(path, '')}" for path, of in branch.changes.items())


# --- The dataset ---


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
    target = Repository(repository, "dataset")
    wanted = None if version is None else parse_version(version)
    if problems := check_dataset(folder):
        listed = "\n  ".join([f"{len(problems)} problem(s)", *problems])
        raise PublishError(f"{folder}: not published: {listed}")
    configs = all_configurations(folder)
    own = f"{target.short_name}.py"  # datasets 3 looks for a script with the repository's name
    files = (*_described(folder, target, configs[0]), *_data_files(folder))
    here = Path(__file__).parents[1]
    scripts = zip((own, *_SCRIPT[1:]), (here / name for name in _SCRIPT), strict=True)
    script_files = (*files, *(make_file(*script) for script in scripts))
    state, lines, facts = _look_at(target, private=private)
    same = {} if state is None else _compare_tags(target, state, files)
    chosen, why = choose_version(same, wanted)
    tag, is_tagged = tag_of(chosen), same.get(chosen, False)

    def removable(path: str) -> bool:
        # Also remove from `main` a script with the repository's name, which datasets 4 refuses.
        return _is_data(path) or path == own

    present = {} if state is None else target.files(state.head)
    begun = None if state is None else state.branches.get(SCRIPT_REVISION)
    main = Branch(files=files, changes=compare(files, present, removable), message=f"Data {tag}")
    script = Branch(
        name=SCRIPT_REVISION,
        files=script_files,
        changes=compare(script_files, target.files(begun) if begun else {}, removable),
        message=f"Data {tag} with the loading script, for datasets 3",
    )
    is_older = is_tagged and any(map(_is_data, main.changes))
    is_done = is_older or (is_tagged and not main.changes and not script.changes)
    lines.append(f"version {tag}: {why}")
    if is_older:
        lines.append(f"main holds other data than {tag} and stays as it is")
    elif is_done:
        lines.append("main, tag and script are up to date")
    else:
        tagging = f"tag {tag}: {'is there' if is_tagged else 'to be set'}"
        lines += [*_change_lines(main), tagging, f"branch {script}"]
    published = {file.path for file in files}
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    left_out = [n for path in paths if (n := path.relative_to(folder).as_posix()) not in published]
    lines += [f"left out: {', '.join(left_out)}"] if left_out else []
    check = partial(load_back, "dataset", target.name, str(folder.resolve()))
    return PublishingPlan(
        repository=target,
        state=state,
        private=private,
        facts=facts | {"version": tag, "why": why, "tagged": is_tagged, "superseded": is_older,
                       "configurations": configs, "left_out": left_out},
        lines=lines,
        branches=(main, script),
        removable=removable,
        tag=None if is_tagged else tag,
        check=check if not is_done and (main.changes or not is_tagged) else None,
        is_done=is_done,
        usage=f'load_dataset("{target.name}", "{configs[0]}", revision="{tag}")',
    )  # fmt: skip


def find_revision(folder: Path, repository: str) -> tuple[str, str]:
    """Find the version of a repository with a folder's data; return its tag and commit."""
    target = Repository(repository, "dataset")
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
            return (1, 0, 0), "the first"
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


def _described(folder: Path, target: Repository, example: str) -> Iterator[File]:
    """Yield the files beside the data: a card with loading instructions, and the benchmark."""
    card = (folder / CARD).read_text(encoding="utf-8")
    text = f"""\
{_LOADING}
From this repository, where each version of the data is a tag, such as `v1.0.0`:

```python
from datasets import load_dataset

data = load_dataset("{target.name}", "{example}", revision="v1.0.0")
```
"""
    yield make_file(CARD, card.replace(_LOADING, text, 1).encode())
    if tasks := benchmark(folder):
        yield make_file(BENCHMARK_FILE, tasks)


def _data_files(folder: Path) -> Iterator[File]:
    made = sorted(path.relative_to(folder).as_posix() for path in folder.glob(f"*/{PROVENANCE}"))
    for path in (*made, *parquet_files(folder)):
        yield make_file(path, folder / path)


def _is_data(path: str) -> bool:
    """Return whether a file belongs to the data, which have a version, or to their description."""
    return path.endswith((".parquet", f"/{PROVENANCE}"))


def _compare_tags(target: Repository, state: State, files: Iterable[File]) -> dict[Version, bool]:
    data = [file for file in files if _is_data(file.path)]
    versions = [parse_version(tag) for tag in state.tags if _TAG.fullmatch(tag)]
    return {
        version: not compare(data, target.files(tag_of(version)), _is_data) for version in versions
    }


# --- The metric ---


def plan_metric(
    folder: Path, repository: str, example: Mapping[str, Any], *, private: bool = False
) -> PublishingPlan:
    """Plan the publication of the metric; nothing is written.

    `example` has the `arguments` of `compute`, `figures` computed by hand, and the full `result`.
    """
    target = Repository(repository, "space")
    if target.short_name != folder.name:
        raise ValueError(
            f"expected a Space called OWNER/{folder.name}, got {repository!r}: evaluate loads "
            "the script that is called like the Space"
        )
    files = tuple(
        make_file(path.name, path)
        for path in sorted(folder.iterdir())
        if path.suffix == ".py" or path.name in ("README.md", "requirements.txt")
    )

    def removable(path: str) -> bool:
        # A module of an earlier version, which is not needed any more.
        return "/" not in path and path.endswith(".py")

    state, lines, facts = _look_at(target, private=private)
    changes = compare(files, {} if state is None else target.files(state.head), removable)
    main = Branch(files=files, changes=changes, message="The metric of merge-nli")
    return PublishingPlan(
        repository=target,
        state=state,
        private=private,
        facts=facts,
        lines=[*lines, *_change_lines(main)],
        branches=(main,),
        removable=removable,
        sdk="gradio",
        check=partial(load_back, "metric", target.name, json.dumps(example)),
        is_done=state is not None and not changes,
        usage=f'evaluate.load("{target.name}")',
    )


# --- Results of a model ---


def plan_results(
    figures: Mapping[str, Mapping[str, Any]],
    target: Repository,
    folder: Path,
    dataset: str,
    *,
    pull_request: bool = False,
    date: str | None = None,
) -> PublishingPlan:
    """Plan the publication of a model's results; nothing is written.

    `figures` maps configurations to `value`, the accuracy on distinct variants in percent, and
    `notes`, a text with other figures. Results on the same dataset for other tasks are kept.
    `dataset` is the repository of the published folder, `date` (ISO 8601) the evaluation's day.
    """
    from huggingface_hub import (
        EvalResultEntry,
        eval_result_entries_to_yaml,
    )

    tasks = task_ids(folder)
    if other := sorted(figures.keys() - set(tasks)):
        raise ValueError(
            f"config: expected tasks of the dataset's eval.yaml ({', '.join(tasks) or 'none'}), "
            f"got {', '.join(other)}; word classes, paraphrases and ablations are no tasks"
        )
    state, lines, facts = _look_at(target)
    version, revision = (
        ("(version not looked up)", None) if is_offline() else find_revision(folder, dataset)
    )
    if state is None and not is_offline():
        raise PublishError(
            f"expected a model repository {target.name}, found none that you may see: publish "
            "the model first"
        )
    common: dict[str, Any] = {"date": date, "dataset_id": dataset, "dataset_revision": revision}
    entries = [EvalResultEntry(task_id=name, **of, **common) for name, of in figures.items()]
    path = f".eval_results/{dataset.replace('/', '__')}.yaml"
    earlier = [] if state is None else _read_results(target, path, state.head)
    entries += [entry for entry in earlier if entry.task_id not in figures]
    listed = eval_result_entries_to_yaml(sorted(entries, key=lambda entry: entry.task_id))
    text = yaml.safe_dump(listed, sort_keys=False, allow_unicode=True, width=100)
    file = make_file(path, text.encode())
    values = {config: of["value"] for config, of in figures.items()}
    main = Branch(
        files=(file,),
        changes=compare([file], target.files(state.head) if state is not None else {}),
        message=f"Results on {dataset} {version}",
    )
    where, *changed = _change_lines(main)
    proposal = (
        f"Accuracy on the variants of {dataset} {version}, in percent, with seed-variant accuracy "
        "in the notes:\n\n" + "".join(f"- {name}: {value}\n" for name, value in values.items())
    )
    return PublishingPlan(
        repository=target,
        state=state,
        facts=facts | {"dataset": dataset, "version": version, "values": values},
        lines=[
            *lines,
            main.message,
            f"a pull request to {where}" if pull_request else where,
            *changed,
            *(f"  {name}: {value}" for name, value in values.items()),
        ],
        branches=(main,),
        proposal=proposal if pull_request else None,
        is_done=not main.changes,
    )


def _read_results(target: Repository, path: str, revision: str) -> list[Any]:
    from huggingface_hub import parse_eval_result_entries
    from huggingface_hub.errors import RemoteEntryNotFoundError

    doing, download = f"reading {path} of {target.name}", hub_api().hf_hub_download
    absent = RemoteEntryNotFoundError
    local = target.call(doing, download, absent=absent, filename=path, revision=revision)
    try:
        entries = yaml.safe_load(Path(local).read_bytes()) if local else None
        return list(parse_eval_result_entries(entries or []))
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise PublishError(
            f"{path} in the model repository: expected a list of results, got something else "
            f"({type(error).__name__}: {error}); mend or delete it"
        ) from error
