"""Publishing on the Hub: a dataset folder, the metric, and a model's results on a dataset.

Each function looks at the Hub, shows what it would do and, with `yes`, does it. `main` becomes
equal to the files in one commit, is loaded back with empty caches, and tagged. All may be repeated.

A version covers the data: Parquet files and provenance; the card may change without a new one. The
branch `script` has the loading script beside the same data, for datasets 3. A model's figures are
in `.eval_results/*.yaml` of the model's repository (docs: hub/eval-results).
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

import yaml
from rich.filesize import decimal

from merge_dataset.card import LOADING, loading_block
from merge_dataset.checks import check_dataset
from merge_dataset.files import read_text
from merge_dataset.hub.benchmark import BENCHMARK_FILE, benchmark, task_ids
from merge_dataset.hub.load_back import load_back
from merge_dataset.hub.repository import (
    MAIN,
    Changes,
    Content,
    Files,
    PublishError,
    Repository,
    call_hub,
    hub_api,
)
from merge_dataset.layout import CARD, PROVENANCE, all_configurations, as_dataset, parquet_files

log = logging.getLogger(__name__)

SCRIPT_REVISION: Final = "script"

Show = Callable[[str], object]

Version = tuple[int, int, int]

_TAG = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_DATA: Final = rf".*\.parquet|.*/{re.escape(PROVENANCE)}"
"""Pattern of the files that a version covers."""
_DONE: Final = "Nothing to do."
_DRY: Final = "Nothing was written. To do this, add --yes."


# --- What all do ---


def _look_at(target: Repository, show: Show) -> tuple[dict[str, str], dict[str, Any]]:
    """Read and show a repository's state, which must be private if that is wanted.

    Returns its revisions, none where it is to be made, and the first entries of the JSON.
    """
    from huggingface_hub import constants, get_token

    facts: dict[str, Any] = {"repository": target.name, "account": None, "done": None}
    if constants.HF_HUB_OFFLINE:
        show(f"{target.name}: not looked up")
        show("HF_HUB_OFFLINE is set, so the Hub was not asked what is there; --yes needs it unset")
        return {}, facts
    login = "not logged in, which --yes needs: run `hf auth login`, or set HF_TOKEN"
    if get_token() is not None:
        facts["account"] = str(call_hub("asking who you are", hub_api().whoami)["name"])
        login = f"logged in as {facts['account']}"
    seen = target.look()
    is_private, revisions = seen or (target.private, {})
    if target.private and not is_private:
        raise ValueError(
            f"expected {target.name} to be private, it is public: change that in its settings, "
            "or leave --private out"
        )
    kind = "Space" if target.kind == "space" else target.kind
    made, visible = "a" if seen else "to be made, a", "private" if is_private else "public"
    show(f"{target.name}: {made} {visible} {kind}")
    show(login)
    return revisions, facts | {"exists": seen is not None, "private": is_private}


def _show_changes(
    show: Show, name: str, content: Content, changes: Changes, *, listed: bool = True
) -> None:
    """Show what a commit does, also file by file if `listed`."""
    added, changed, removed = map(len, changes.values())
    words = {"to add": added, "to change": changed, "to remove": removed}
    words["as they are"] = len(content.files) - added - changed
    counts = ", ".join(f"{count:,} {what}" for what, count in words.items() if count)
    show(f"{name}: {counts if any(changes.values()) else 'up to date'}")
    sizes = {file.path_in_repo: f"  {decimal(file.upload_info.size)}" for file in content.files}
    for mark, paths in zip("+~-", changes.values(), strict=True) if listed else ():
        for path in paths:
            show(f"  {mark} {path}{sizes.get(path, '')}")


def _upload(
    target: Repository, content: Content, show: Show, *, head: str | None, check: str | None = None
) -> dict[str, Any]:
    """Make `main` equal to some content, in a new repository if it has no head yet.

    It is loaded back and compared with `check`, a folder or an example, unless that is None.
    Returns entries of the JSON.
    """
    if head is None:
        options: dict[str, Any] = {"space_sdk": "gradio"} if target.kind == "space" else {}
        options |= {"private": target.private, "exist_ok": True}
        target.call(f"making {target.name}", hub_api().create_repo, **options)
    revision = target.make_equal(content, parent=head)
    show(f"main is at {revision}{', as before' if revision == head else ''}")
    done = {"address": target.address, "revision": revision, "committed": revision != head}
    if check is None:
        return done
    log.info("Loading %s at %s back with empty caches …", target.name, revision[:12])
    loaded = load_back(target.kind, target.name, check, revision)
    if rows := loaded.get("rows"):
        count = sum(sum(splits.values()) for splits in rows.values())
        show(f"loaded back: {len(rows)} configurations, {count:,} rows, as in the folder")
    if figures := loaded.get("figures"):
        show(f"loaded back: {', '.join(f'{name} {value}' for name, value in figures.items())}")
    return done | loaded


def _files(contents: Mapping[str, Path | bytes | None]) -> Files:
    from huggingface_hub import CommitOperationAdd

    return [CommitOperationAdd(path, content) for path, content in contents.items() if content]


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
        show: Function that is called with each line for readers, as soon as it is known.

    Returns:
        What `--format json` prints: the version, what was changed, and under `done` the address
        and commit, or None if there was nothing to do.

    Raises:
        ValueError: an argument is not as it should be, or contradicts the repository.
        PublishError: the folder is not good, nobody is logged in, or the Hub fails.
    """
    folder, target = as_dataset(folder), Repository(repository, "dataset", private)
    wanted = None if version is None else parse_version(version)
    if problems := check_dataset(folder):
        listed = "\n  ".join([f"{len(problems)} problem(s)", *problems])
        raise PublishError(f"{folder}: not published: {listed}")
    configs = all_configurations(folder)
    # Datasets 3 looks for a script with the repository's name; datasets 4 refuses it on `main`.
    here, own = Path(__file__).parents[1], f"{repository.partition('/')[2]}.py"
    modules = {own: here / "merge_nli.py", "schema.py": here / "schema.py"}
    data, surplus = _data_files(folder), re.compile(f"{_DATA}|{re.escape(own)}")
    revisions, plan = _look_at(target, show)
    same = _same_data(target, revisions, data)
    chosen, why = choose_version(same, wanted)
    tag, is_tagged = tag_of(chosen), same.get(chosen, False)
    loading = loading_block(folder, target.name.partition("/")[2], target.name, tag)
    card = LOADING.sub(lambda _: loading, read_text(folder / CARD))
    files = [*_files({CARD: card.encode(), BENCHMARK_FILE: benchmark(folder)}), *data]
    main = Content(files, f"Data {tag}", surplus=surplus)
    message = f"Data {tag} with the loading script, for datasets 3"
    script = Content([*files, *_files(modules)], message, SCRIPT_REVISION, surplus)
    of_main = target.changes(main, revisions.get(MAIN))
    of_script = target.changes(script, revisions.get(SCRIPT_REVISION))
    to_main, to_script = ([*chain(*changes.values())] for changes in (of_main, of_script))
    is_older = is_tagged and any(re.fullmatch(_DATA, path) for path in to_main)
    is_done = is_older or (is_tagged and not to_main and not to_script)
    if not yes:
        shown = re.sub(r"(?m)^(?:configs|dataset_info):\n(?:[- ] .*\n)*", "", card)
        show(f"The card, without `configs` and `dataset_info`:\n\n{shown}")
    show(f"version {tag}: {why}")
    if is_older:
        show(f"main holds other data than {tag} and stays as it is")
    else:
        _show_changes(show, MAIN, main, of_main)
        show(f"tag {tag}: {'is there' if is_tagged else 'to be set'}")
        _show_changes(show, "branch script", script, of_script, listed=False)
        plan |= {MAIN: of_main, SCRIPT_REVISION: of_script}
    paths = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if left_out := sorted(paths - {file.path_in_repo for file in files}):
        show(f"left out: {', '.join(left_out)}")
    plan |= {
        "version": tag, "why": why, "card": card, "tagged": is_tagged, "superseded": is_older,
        "configurations": configs, "left_out": left_out, "nothing_to_do": is_done,
    }  # fmt: skip
    if is_done or not yes:
        show(_DONE if is_done else _DRY)
        return plan
    check = None if is_tagged and not to_main else str(folder.resolve())
    done = _upload(target, main, show, head=revisions.get(MAIN), check=check)
    at = {"revision": done["revision"]}
    if not is_tagged:
        words = f"Version {tag} of the data"
        target.call(f"tagging {tag}", hub_api().create_tag, tag=tag, tag_message=words, **at)
    if to_script:
        named = {"branch": SCRIPT_REVISION, "exist_ok": True}
        target.call("making the branch", hub_api().create_branch, **named, **at)
        target.make_equal(script)
    show(f"Published: {target.address}")
    show(f'load_dataset("{target.name}", "{configs[0]}", revision="{tag}")')
    return plan | {"done": done | {"tagged": not is_tagged}}


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
    """Choose the version of the data, given which ones have the same; also return the reason.

    >>> choose_version({}, None)
    ((1, 0, 0), 'the first')
    >>> choose_version({(1, 9, 0): True, (1, 10, 0): True, (2, 0, 0): False}, None)
    ((1, 10, 0), 'it has these data')
    >>> choose_version({(1, 9, 3): False, (1, 10, 0): False}, None)
    ((1, 11, 0), 'the data differ from those of v1.10.0')
    """
    alike = [version for version in same if same[version] and wanted in (None, version)]
    if alike:
        return max(alike), "it has these data"
    newest = max(same, default=(0, 0, 0))
    if wanted is None:
        why = f"the data differ from those of {tag_of(newest)}" if same else "the first"
        return (newest[0], newest[1] + 1, 0) if same else (1, 0, 0), why
    if same and wanted <= newest:
        raise ValueError(
            f"expected a newer version than {tag_of(newest)}, as versions do not change, got "
            f"{tag_of(wanted)}: give another, or leave --version out"
        )
    return wanted, "as given"


def _data_files(folder: Path) -> Files:
    made = sorted(path.relative_to(folder).as_posix() for path in folder.glob(f"*/{PROVENANCE}"))
    return _files({path: folder / path for path in (*made, *parquet_files(folder))})


def _same_data(target: Repository, revisions: Iterable[str], data: Files) -> dict[Version, bool]:
    """Map the versions among revisions to whether they have these data."""
    content = Content(data, surplus=re.compile(_DATA))
    return {
        parse_version(tag): not any(target.changes(content, tag).values())
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

    `example` has the `arguments` of `compute`, and the `result`.
    """
    target = Repository(repository, "space", private)
    if repository.partition("/")[2] != folder.name:
        raise ValueError(
            f"expected a Space called OWNER/{folder.name}, got {repository!r}: evaluate loads "
            "the script that is called like the Space"
        )
    paths = sorted((*folder.glob("*.py"), folder / "README.md", folder / "requirements.txt"))
    files = _files({path.name: path for path in paths})
    surplus = re.compile(r"[^/]*\.py")  # modules of an earlier version
    content = Content(files, "The metric of merge-nli", surplus=surplus)
    revisions, plan = _look_at(target, show)
    head = revisions.get(MAIN)
    changes = target.changes(content, head)
    is_done = head is not None and not any(changes.values())
    plan |= {MAIN: changes, "nothing_to_do": is_done}
    _show_changes(show, MAIN, content, changes)
    if not yes:
        show(_DONE if is_done else _DRY)
        return plan
    done = _upload(target, content, show, head=head, check=json.dumps(example))
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
    revisions, plan = _look_at(target, show)
    version, revision = "(version not looked up)", None
    if "exists" in plan:  # the Hub was asked
        version, revision = _published_version(folder, dataset)
        if not revisions:
            raise PublishError(f"{target.name}: expected a model repository, found none to see")
    path, head = f".eval_results/{dataset.replace('/', '__')}.yaml", revisions.get(MAIN)
    common = {"date": date, "dataset_id": dataset, "dataset_revision": revision}
    new = {name: {**of, **common} for name, of in figures.items()}
    files = _files({path: _with_figures(target, path, head, new)})
    content = Content(files, f"Results on {dataset} {version}")
    changes = target.changes(content, head)
    values = {config: of["value"] for config, of in figures.items()}
    show(content.message)
    _show_changes(show, "a pull request to main" if pull_request else MAIN, content, changes)
    is_done = not any(changes.values())
    plan |= {MAIN: changes, "nothing_to_do": is_done}
    plan |= {"dataset": dataset, "version": version, "values": values}
    lines = [f"{config}: {value}" for config, value in values.items()]
    for line in lines:
        show(f"  {line}")
    if is_done or not yes:
        show(_DONE if is_done else _DRY)
        return plan
    if pull_request:
        words = (
            f"Accuracy on the variants of {dataset} {version}, in percent, with seed-variant "
            "accuracy in the notes:\n\n"
        ) + "".join(f"- {line}\n" for line in lines)
        done = {"address": target.propose(content, description=words)}
    else:
        done = _upload(target, content, show, head=head)
    show(f"Published: {done['address']}")
    return plan | {"done": done}


def _published_version(folder: Path, repository: str) -> tuple[str, str]:
    """Find the newest version of a repository with a folder's data; return its tag and commit."""
    target = Repository(repository, "dataset")
    seen = target.look()
    same = _same_data(target, seen[1], _data_files(folder)) if seen else {}
    if alike := [version for version in same if same[version]]:
        tag = tag_of(max(alike))
        return tag, target.commit_of(tag)
    other = f"{', '.join(map(tag_of, sorted(same))) or 'no version'}, with other data"
    raise PublishError(
        f"expected a version of {repository} with the data of {folder}, got "
        f"{other if seen else 'no repository that you may see'}: publish the folder first with "
        "`merge-nli publish dataset`, or give the one that is published"
    )


def _with_figures(
    target: Repository, path: str, head: str | None, figures: Mapping[str, Mapping[str, Any]]
) -> bytes:
    """Write results as YAML: new ones by task, and earlier ones of other tasks."""
    from huggingface_hub import (
        EvalResultEntry,
        eval_result_entries_to_yaml,
        parse_eval_result_entries,
    )
    from huggingface_hub.errors import RemoteEntryNotFoundError

    doing, download = f"reading {path} of {target.name}", hub_api().hf_hub_download
    options = {"filename": path, "revision": head, "absent": RemoteEntryNotFoundError}
    local = head and target.call(doing, download, **options)
    try:
        listed = yaml.safe_load(Path(local).read_bytes()) if local else None
        entries = [
            entry
            for entry in parse_eval_result_entries(listed or [])
            if entry.task_id not in figures
        ]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise PublishError(
            f"{path} in the model repository: expected a list of results, got something else "
            f"({type(error).__name__}: {error}); mend or delete it"
        ) from error
    entries += [EvalResultEntry(task_id=name, **of) for name, of in figures.items()]
    written = eval_result_entries_to_yaml(sorted(entries, key=lambda entry: entry.task_id))
    text: str = yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=100)
    return text.encode()
