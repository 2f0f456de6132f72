"""Publishing on the Hub: a dataset folder, the metric, and a model's results on a dataset.

Each function looks at the Hub, shows what it would do and, with `yes`, does it. `main` becomes
equal to the files in one commit, is loaded back with empty caches, and tagged. All may be repeated.

A version covers the data: Parquet files and provenance; the card may change without a new one. The
branch `script` has the loading script beside the same data, for datasets 3. A model's figures are
in `.eval_results/*.yaml` of the model's repository (docs: hub/eval-results).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from merge_dataset.checks import check_dataset
from merge_dataset.files import size_in_words
from merge_dataset.hub.benchmark import BENCHMARK_FILE, benchmark, task_ids
from merge_dataset.hub.load_back import load_back
from merge_dataset.hub.repository import (
    MAIN,
    Changes,
    PublishError,
    Removable,
    Repository,
    account_of_token,
    compare,
    hub_api,
    is_offline,
    nothing,
)
from merge_dataset.layout import CARD, PROVENANCE, all_configurations, as_dataset, parquet_files

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

log = logging.getLogger(__name__)

SCRIPT_REVISION: Final = "script"

Files = list["CommitOperationAdd"]
Show = Callable[[str], object]
"""Function that is called with each line for readers, as soon as it is known."""

Version = tuple[int, int, int]

_TAG = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_SCRIPT: Final = ("merge_nli.py", "schema.py", "dataset_columns.py")
_LOADING: Final = "## Loading\n"


# --- What all do ---


def _look_at(
    target: Repository, *, private: bool = False
) -> tuple[dict[str, str] | None, list[str], dict[str, Any]]:
    """Read a repository's revisions; also return lines and JSON about it and the token's user.

    It must be `private` if that is wanted.
    """
    facts: dict[str, Any] = {"repository": target.name, "account": None, "done": None}
    if is_offline():
        line = "HF_HUB_OFFLINE is set, so the Hub was not asked what is there; --yes needs it unset"
        return None, [f"{target.name}: not looked up", line], facts
    account, seen = account_of_token(), target.look()
    is_private, revisions = seen or (private, None)
    if private and not is_private:
        raise ValueError(
            f"expected {target.name} to be private, it is public: change that in its settings, "
            "or leave --private out"
        )
    kind = "Space" if target.kind == "space" else target.kind
    made, visible = "a" if seen else "to be made, a", "private" if is_private else "public"
    login = f"logged in as {account}"
    if account is None:
        login = "not logged in, which --yes needs: run `hf auth login`, or set HF_TOKEN"
    facts |= {"exists": seen is not None, "private": is_private, "account": account}
    return revisions, [f"{target.name}: {made} {visible} {kind}", login], facts


def _changes(
    target: Repository, revisions: Mapping[str, str] | None, branch: str, *wanted: Any
) -> Changes:
    """Find what would change on a branch, which need not exist."""
    head = revisions and revisions.get(branch)
    return compare(wanted[0], target.files(head) if head else {}, *wanted[1:])


def _by_kind(changes: Changes) -> dict[str, list[str]]:
    return {
        kind: [path for path, change in changes.items() if change == kind]
        for kind in ("added", "changed", "removed")
    }


def _change_lines(branch: str, files: Files, changes: Changes) -> list[str]:
    added, changed, removed = map(len, _by_kind(changes).values())
    words = {"to add": added, "to change": changed, "to remove": removed}
    words["as they are"] = len(files) - added - changed
    listed = [f"{count:,} {what}" for what, count in words.items() if count]
    sizes = {file.path_in_repo: f"  {size_in_words(file.upload_info.size)}" for file in files}
    marks = {"added": "+", "changed": "~", "removed": "-"}
    return [
        f"{branch}: {', '.join(listed) if changes else 'up to date'}",
        *(f"  {marks[of]} {path}{sizes.get(path, '')}" for path, of in changes.items()),
    ]


def _is_agreed(lines: Iterable[str], show: Show, *, is_done: bool, may_act: bool) -> bool:
    """Show a plan, and return whether to carry it out; raise without a token."""
    for line in lines:
        show(line)
    if not may_act:
        undone = "Nothing was written. To do this, add --yes."
        show("Nothing to do." if is_done else undone)
    elif account_of_token() is None:
        raise PublishError(
            "expected to be logged in to the Hub, found no token: run `hf auth login`, or set "
            "HF_TOKEN to one that may write (https://huggingface.co/settings/tokens)"
        )
    return may_act


def _upload(
    target: Repository,
    revisions: Mapping[str, str] | None,
    files: Files,
    show: Show,
    *,
    message: str,
    removable: Removable = nothing,
    check: str | None = None,
    new: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make a repository, as `new` says, if there is none, and `main` equal to files.

    It is loaded back and compared with `check`, a folder or an example, unless that is None.
    Returns entries of the JSON.
    """
    if revisions is None:
        options = {"exist_ok": True, **(new or {})}
        target.call(f"making {target.name}", hub_api().create_repo, **options)
    head = revisions[MAIN] if revisions else None
    revision = target.make_equal(files, message=message, removable=removable, parent=head)
    show(f"main is at {revision}{', as before' if revision == head else ''}")
    done = {"address": target.address, "revision": revision, "committed": revision != head}
    if check is None:
        return done
    log.info("Loading %s at %s back with empty caches …", target.name, revision[:12])
    try:
        loaded = load_back(target.kind, target.name, check, revision)
    except PublishError as error:
        raise PublishError(
            f"{target.name} at {revision[:12]} does not load as it should: {error}\n{MAIN} holds "
            "it, without a tag; the same command, run again, checks it again."
        ) from error
    if rows := loaded.get("rows"):
        count = sum(sum(splits.values()) for splits in rows.values())
        show(f"loaded back: {len(rows)} configurations, {count:,} rows, as in the folder")
    if figures := loaded.get("figures"):
        show(f"loaded back: {', '.join(f'{name} {value}' for name, value in figures.items())}")
    return done | loaded


# --- The dataset ---


def push_to_hub(
    folder: str | Path,
    repository: str,
    *,
    version: str | None = None,
    private: bool = False,
    yes: bool = True,
    show: Show = log.info,
) -> dict[str, Any]:
    """Publish a dataset folder, with its card, as `merge-nli publish dataset --yes` does.

    Args:
        folder: The dataset folder.
        repository: OWNER/NAME.
        version: Of the data, for example 1.2.0; by default that of the tag with the same data,
            else the next minor one.
        private: Make a new repository private; one that is there must be.
        yes: Do it, instead of only showing what would be done.
        show: Function that is called with each line for readers.

    Returns:
        What `--format json` prints: the version, what was changed, and under `done` the address
        and commit, or None if there was nothing to do.

    Raises:
        TypeError: the folder is no path.
        ValueError: an argument is not as it should be, or contradicts the repository.
        PublishError: the folder is not good, nobody is logged in, or the Hub fails.
    """
    folder = as_dataset("folder", folder)
    target = Repository(repository, "dataset")
    wanted = None if version is None else parse_version(version)
    if problems := check_dataset(folder):
        listed = "\n  ".join([f"{len(problems)} problem(s)", *problems])
        raise PublishError(f"{folder}: not published: {listed}")
    configs = all_configurations(folder)
    own = f"{target.short_name}.py"  # datasets 3 looks for a script with the repository's name
    here = Path(__file__).parents[1]
    scripts = {own: here / _SCRIPT[0]} | {name: here / name for name in _SCRIPT[1:]}
    main = [*_files(_described(folder, target, configs[0])), *_data_files(folder)]
    script = [*main, *_files(scripts)]
    revisions, lines, facts = _look_at(target, private=private)
    same = _compare_tags(target, revisions or {}, main)
    chosen, why = choose_version(same, wanted)
    tag, is_tagged = tag_of(chosen), same.get(chosen, False)

    def removable(path: str) -> bool:
        # Also remove from `main` a script with the repository's name, which datasets 4 refuses.
        return _is_data(path) or path == own

    of_main = _changes(target, revisions, MAIN, main, removable)
    of_script = _changes(target, revisions, SCRIPT_REVISION, script, removable)
    is_older = is_tagged and any(map(_is_data, of_main))
    is_done = is_older or (is_tagged and not of_main and not of_script)
    lines.append(f"version {tag}: {why}")
    if is_older:
        lines.append(f"main holds other data than {tag} and stays as it is")
    elif is_done:
        lines.append("main, tag and script are up to date")
    else:
        lines += _change_lines(MAIN, main, of_main)
        lines.append(f"tag {tag}: {'is there' if is_tagged else 'to be set'}")
        lines.append(f"branch {_change_lines(SCRIPT_REVISION, script, of_script)[0]}")
    published = {file.path_in_repo for file in main}
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    if left_out := sorted({*paths} - published):
        lines.append(f"left out: {', '.join(left_out)}")
    plan = facts | {
        "version": tag, "why": why, "tagged": is_tagged, "superseded": is_older,
        "configurations": configs, "left_out": left_out, MAIN: _by_kind(of_main),
        SCRIPT_REVISION: _by_kind(of_script), "nothing_to_do": is_done,
    }  # fmt: skip
    if not _is_agreed(lines, show, is_done=is_done, may_act=yes and not is_done):
        return plan
    message, new = f"Data {tag}", {"private": private}
    check = None if is_tagged and not of_main else str(folder.resolve())
    done = _upload(
        target, revisions, main, show, message=message, removable=removable, check=check, new=new
    )
    if not is_tagged:
        _set_tag(target, tag, done["revision"])
    if of_script:
        message += " with the loading script, for datasets 3"
        target.make_branch(SCRIPT_REVISION, done["revision"])
        target.make_equal(script, message=message, revision=SCRIPT_REVISION, removable=removable)
    show(f"Published: {target.address}")
    show(f'load_dataset("{target.name}", "{configs[0]}", revision="{tag}")')
    return plan | {"done": done | {"tagged": not is_tagged}}


def _set_tag(target: Repository, tag: str, revision: str) -> None:
    options: dict[str, Any] = {"tag": tag, "revision": revision, "exist_ok": True}
    options["tag_message"] = f"Version {tag} of the data"
    target.call(f"tagging {tag}", hub_api().create_tag, **options)
    if target.commit_of(tag) != revision:
        raise PublishError(
            f"{tag} was set on other data meanwhile, and versions do not change; run the same "
            "command again for the next one"
        )


def _files(contents: Mapping[str, Path | bytes]) -> Files:
    from huggingface_hub import CommitOperationAdd

    return [CommitOperationAdd(path, content) for path, content in contents.items()]


def find_revision(folder: Path, repository: str) -> tuple[str, str]:
    """Find the version of a repository with a folder's data; return its tag and commit."""
    target = Repository(repository, "dataset")
    seen = target.look()
    if seen is None:
        raise PublishError(
            f"expected a dataset repository {repository}, found none that you may see: run "
            f"`merge-nli publish dataset` first"
        )
    same = _compare_tags(target, seen[1], _data_files(folder))
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


def _described(folder: Path, target: Repository, example: str) -> dict[str, Path | bytes]:
    """Return the files beside the data: a card with loading instructions, and the benchmark."""
    card = (folder / CARD).read_text(encoding="utf-8")
    text = f"""\
{_LOADING}
From this repository, where each version of the data is a tag, such as `v1.0.0`:

```python
from datasets import load_dataset

data = load_dataset("{target.name}", "{example}", revision="v1.0.0")
```
"""
    tasks = benchmark(folder)
    beside = {BENCHMARK_FILE: tasks} if tasks else {}
    return {CARD: card.replace(_LOADING, text, 1).encode(), **beside}


def _data_files(folder: Path) -> Files:
    made = sorted(path.relative_to(folder).as_posix() for path in folder.glob(f"*/{PROVENANCE}"))
    return _files({path: folder / path for path in (*made, *parquet_files(folder))})


def _is_data(path: str) -> bool:
    """Return whether a file belongs to the data, which have a version, or to their description."""
    return path.endswith((".parquet", f"/{PROVENANCE}"))


def _compare_tags(
    target: Repository, revisions: Iterable[str], files: Files
) -> dict[Version, bool]:
    data = [file for file in files if _is_data(file.path_in_repo)]
    return {
        parse_version(tag): not compare(data, target.files(tag), _is_data)
        for tag in filter(_TAG.fullmatch, revisions)
    }


# --- The metric ---


def publish_metric(
    folder: Path,
    repository: str,
    example: Mapping[str, Any],
    *,
    private: bool,
    yes: bool,
    show: Show,
) -> dict[str, Any]:
    """Show how the metric would be published, and with `yes` publish it.

    `example` has the `arguments` of `compute`, `figures` computed by hand, and the full `result`.
    """
    target = Repository(repository, "space")
    if target.short_name != folder.name:
        raise ValueError(
            f"expected a Space called OWNER/{folder.name}, got {repository!r}: evaluate loads "
            "the script that is called like the Space"
        )
    files = _files(
        {
            path.name: path
            for path in sorted(folder.iterdir())
            if path.suffix == ".py" or path.name in ("README.md", "requirements.txt")
        }
    )

    def removable(path: str) -> bool:
        # A module of an earlier version, which is not needed any more.
        return "/" not in path and path.endswith(".py")

    revisions, lines, facts = _look_at(target, private=private)
    changes = _changes(target, revisions, MAIN, files, removable)
    is_done = revisions is not None and not changes
    plan = facts | {MAIN: _by_kind(changes), "nothing_to_do": is_done}
    lines += _change_lines(MAIN, files, changes)
    if not _is_agreed(lines, show, is_done=is_done, may_act=yes):
        return plan
    message, new = "The metric of merge-nli", {"private": private, "space_sdk": "gradio"}
    check = json.dumps(example)
    done = _upload(
        target, revisions, files, show, message=message, removable=removable, check=check, new=new
    )
    show(f"Published: {target.address}")
    show(f'evaluate.load("{target.name}")')
    return plan | {"done": done}


# --- Results of a model ---


def publish_results(
    figures: Mapping[str, Mapping[str, Any]],
    target: Repository,
    folder: Path,
    dataset: str,
    *,
    pull_request: bool,
    date: str | None,
    yes: bool,
    show: Show,
) -> dict[str, Any]:
    """Show how a model's results would be published, and with `yes` publish them.

    `figures` maps configurations to `value`, the accuracy on distinct variants in percent, and
    `notes`, a text with other figures. Results on the same dataset for other tasks are kept.
    `dataset` is the repository of the published folder, `date` (ISO 8601) the evaluation's day.
    """
    tasks = task_ids(folder)
    if other := sorted(figures.keys() - set(tasks)):
        raise ValueError(
            f"config: expected tasks of the dataset's eval.yaml ({', '.join(tasks) or 'none'}), "
            f"got {', '.join(other)}; word classes, paraphrases and ablations are no tasks"
        )
    revisions, lines, facts = _look_at(target)
    version, revision = "(version not looked up)", None
    if not is_offline():
        version, revision = find_revision(folder, dataset)
        if revisions is None:
            raise PublishError(f"{target.name}: expected a model repository, found none to see")
    path = f".eval_results/{dataset.replace('/', '__')}.yaml"
    earlier = _read_results(target, path, revisions[MAIN]) if revisions else []
    common = {"date": date, "dataset_id": dataset, "dataset_revision": revision}
    text = _with_figures(earlier, {name: {**of, **common} for name, of in figures.items()})
    files = _files({path: text.encode()})
    changes = _changes(target, revisions, MAIN, files)
    values = {config: of["value"] for config, of in figures.items()}
    message = f"Results on {dataset} {version}"
    branch = "a pull request to main" if pull_request else MAIN
    shares = [f"{name}: {value}" for name, value in values.items()]
    lines += [message, *_change_lines(branch, files, changes), *(f"  {share}" for share in shares)]
    plan = facts | {"dataset": dataset, "version": version, "values": values}
    plan |= {MAIN: _by_kind(changes), "nothing_to_do": not changes}
    if not _is_agreed(lines, show, is_done=not changes, may_act=yes and bool(changes)):
        return plan
    if pull_request:
        proposal = (
            f"Accuracy on the variants of {dataset} {version}, in percent, with seed-variant "
            "accuracy in the notes:\n\n" + "".join(f"- {share}\n" for share in shares)
        )
        done = {"address": target.propose(files, message=message, description=proposal)}
    else:
        done = _upload(target, revisions, files, show, message=message)
    show(f"Published: {done['address']}")
    return plan | {"done": done}


def _with_figures(earlier: Iterable[Any], figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Write results as YAML: new ones by task, and earlier ones of other tasks."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    entries = [entry for entry in earlier if entry.task_id not in figures]
    entries += [EvalResultEntry(task_id=name, **of) for name, of in figures.items()]
    listed = eval_result_entries_to_yaml(sorted(entries, key=lambda entry: entry.task_id))
    return str(yaml.safe_dump(listed, sort_keys=False, allow_unicode=True, width=100))


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
