"""A dataset folder → a dataset repository on the Hub: what would be done, and doing it.

`plan` only reads. `carry_out` uploads the folder to `main` in one commit, loads that commit back
with empty caches, tags it with the version of the data, and keeps the branch `script`, where the
loading script lies beside the same data for datasets 3. Both may be run again at any time: what
is done already is left as it is.

A version names the data: Parquet files and provenance. The card may change without a new one.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from merge_dataset.checks.folder import check
from merge_dataset.hub.dataset_card import BENCHMARK_FILE, benchmark, card_for_hub
from merge_dataset.hub.difference import Difference, File, compare, make_file
from merge_dataset.hub.errors import PublishError
from merge_dataset.hub.fresh import run_fresh
from merge_dataset.hub.repository import MAIN, Hub, Repository, State, parse_repository
from merge_dataset.layout import CARD, PROVENANCE, all_configurations, parquet_files

log = logging.getLogger(__name__)

SCRIPT_REVISION: Final = "script"
FIRST_VERSION: Final = (1, 0, 0)

Version = tuple[int, int, int]

_TAG = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_SCRIPT: Final = ("merge_nli.py", "schema.py")
"""The loading script and the module it imports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What publishing a folder would do."""

    folder: Path
    repository: Repository
    account: str | None
    """Who would do it; None where there is no token."""
    exists: bool
    head: str | None
    """Commit of `main` that this would change."""
    private: bool
    version: str
    """Tag of the data's version."""
    why: str
    """How that came about."""
    tagged: bool
    """Whether the repository has the tag, on these data."""
    superseded: bool
    """Whether `main` holds other data than this version, which is published: it stays then."""
    configurations: tuple[str, ...]
    files: tuple[File, ...]
    script_files: tuple[File, ...]
    main: Difference
    script: Difference
    left_out: tuple[str, ...]
    """What else lies in the folder."""

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.superseded or (self.tagged and not self.main and not self.script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What publishing has done."""

    revision: str
    """The commit that holds the data."""
    committed: bool
    tagged: bool
    rows: Mapping[str, Mapping[str, int]]
    """Rows loaded back by configuration and split; empty where nothing had to be."""


def plan(
    folder: Path, repository: str, *, version: str | None = None, private: bool = False
) -> Plan:
    """Find out what publishing a folder would do. Nothing is written.

    Args:
        folder: The dataset folder.
        repository: OWNER/NAME.
        version: Of the data, for example 1.2.0; by default that of the tag with the same data,
            else the next minor one.
        private: Make a new repository private; one that is there must be.

    Raises:
        ValueError: an argument is not as it should be, or contradicts the repository.
        PublishError: the folder is not good, or the Hub cannot be asked.
    """
    target = parse_repository(repository, "dataset")
    wanted = None if version is None else parse_version(version)
    if problems := check(folder):
        listed = "\n  ".join([f"{len(problems)} problem(s)", *problems])
        raise PublishError(f"{folder}: not published: {listed}")
    files = tuple(_files(folder, target))
    script_files = tuple(_script_files(files, target))
    hub = Hub()
    account = hub.account() if hub.has_token() else None
    state = hub.state(target)
    _check_visibility(target, state, private=private)
    same = {} if state is None else _compare_tags(hub, target, state, files)
    chosen, why = choose_version(same, wanted)
    main, script = _differences(hub, target, state, files, script_files)
    tagged = same.get(chosen, False)
    return Plan(
        folder=folder,
        repository=target,
        account=account,
        exists=state is not None,
        head=None if state is None else state.head,
        private=private if state is None else state.private,
        version=tag_of(chosen),
        why=why,
        tagged=tagged,
        superseded=tagged and any(map(_is_data, _paths(main))),
        configurations=tuple(all_configurations(folder)),
        files=files,
        script_files=script_files,
        main=main,
        script=script,
        left_out=tuple(_left_out(folder, files)),
    )


def carry_out(planned: Plan) -> Published:
    """Do what a plan says.

    Raises:
        PublishError: no token, no rights, a failure of the Hub, or what was loaded back is not
            the folder. The message says what became of `main`.
    """
    hub, target, tag = Hub(), planned.repository, planned.version
    hub.account()
    if planned.superseded:
        return Published(revision=tag, committed=False, tagged=False, rows={})
    if not planned.exists:
        hub.create(target, private=planned.private)
    revision = hub.make_equal(
        target,
        planned.files,
        message=f"Data {tag}",
        removable=_goes_from(target),
        planned_on=planned.head,
    )
    rows: dict[str, dict[str, int]] = {}
    if planned.main or not planned.tagged:
        rows = _verify(planned, revision)
    if not planned.tagged:
        _tag(hub, planned, revision)
    if planned.script or not planned.exists:
        hub.branch(target, SCRIPT_REVISION, revision)
        hub.make_equal(
            target,
            planned.script_files,
            message=f"Data {tag} with the loading script, for datasets 3",
            revision=SCRIPT_REVISION,
            removable=_goes_from(target),
        )
    return Published(
        revision=revision,
        committed=bool(planned.main),
        tagged=not planned.tagged,
        rows=rows,
    )


def find_revision(folder: Path, repository: str) -> tuple[str, str]:
    """The version of a repository that holds a folder's data: its tag and its commit.

    Raises:
        ValueError: `repository` is no name.
        PublishError: there is no such version, or the Hub cannot be asked.
    """
    target = parse_repository(repository, "dataset")
    hub = Hub()
    state = hub.state(target)
    if state is None:
        raise PublishError(
            f"expected a dataset repository {repository}, found none that you may see: run "
            f"`merge-nli publish dataset` first"
        )
    same = _compare_tags(hub, target, state, list(_data_files(folder)))
    for version in sorted(same, reverse=True):
        if same[version]:
            return tag_of(version), hub.commit_of(target, tag_of(version))
    raise PublishError(
        f"expected a version of {repository} with the data of {folder}, got "
        f"{', '.join(map(tag_of, sorted(same))) or 'no version'}, with other data: publish the "
        "folder first, or give the one that is published"
    )


def parse_version(text: str) -> Version:
    """Read a version.

    Raises:
        ValueError: it is none.

    >>> parse_version("1.2.0"), parse_version("v1.2.0")
    ((1, 2, 0), (1, 2, 0))
    """
    match = _TAG.fullmatch(f"v{text.removeprefix('v')}")
    if match is None:
        raise ValueError(f"expected a version of three numbers such as 1.0.0, got {text!r}")
    major, minor, patch = map(int, match.groups())
    return major, minor, patch


def tag_of(version: Version) -> str:
    """The tag that names a version.

    >>> tag_of((1, 2, 0))
    'v1.2.0'
    """
    return "v" + ".".join(map(str, version))


def choose_version(same: Mapping[Version, bool], wanted: Version | None) -> tuple[Version, str]:
    """The version of the data, and why it is that.

    Args:
        same: Version in the repository → whether its data are the same.
        wanted: What the user asks for.

    Raises:
        ValueError: the version wanted has other data, or is older than one that is there.

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
    """What `main` is to hold: the dataset, its card, and what makes it a benchmark."""
    card = (folder / CARD).read_text(encoding="utf-8")
    example = all_configurations(folder)[0]
    yield make_file(CARD, card_for_hub(card, target.name, example).encode())
    own = folder / BENCHMARK_FILE
    yield make_file(BENCHMARK_FILE, own.read_bytes() if own.is_file() else benchmark(folder))
    yield from _data_files(folder)


def _data_files(folder: Path) -> Iterator[File]:
    made = sorted(path.relative_to(folder).as_posix() for path in folder.glob(f"*/{PROVENANCE}"))
    for path in (*made, *parquet_files(folder)):
        yield make_file(path, folder / path)


def _script_files(files: Iterable[File], target: Repository) -> Iterator[File]:
    """What the branch `script` is to hold: the same, and a script of the repository's name."""
    yield from files
    here = Path(__file__).parents[1]
    for name in _SCRIPT:
        # datasets 3 looks for a script that is called like the repository.
        path = _script_name(target) if name == _SCRIPT[0] else name
        yield make_file(path, here / name)


def _script_name(target: Repository) -> str:
    return f"{target.short_name}.py"


def _is_data(path: str) -> bool:
    """Whether a file belongs to the data, which have a version, and not to what describes them."""
    return path.endswith((".parquet", f"/{PROVENANCE}"))


def _goes_from(target: Repository) -> Callable[[str], bool]:
    """What does not stay in the repository when the folder has it no more.

    On `main` also a script of the repository's name, with which datasets 4 and later refuse it.
    """
    return lambda path: _is_data(path) or path == _script_name(target)


def _left_out(folder: Path, files: Iterable[File]) -> Iterator[str]:
    published = {file.path for file in files}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in published:
            yield name


def _check_visibility(target: Repository, state: State | None, *, private: bool) -> None:
    if state is not None and private and not state.private:
        raise ValueError(
            f"expected {target.name} to be private, it is public: change that in its settings, "
            "or leave --private out"
        )


def _compare_tags(
    hub: Hub, target: Repository, state: State, files: Iterable[File]
) -> dict[Version, bool]:
    """Version in the repository → whether its data are these files'."""
    data = [file for file in files if _is_data(file.path)]
    versions = [parse_version(tag) for tag in state.tags if _TAG.fullmatch(tag)]
    return {
        version: not compare(data, hub.files(target, tag_of(version)), _is_data)
        for version in versions
    }


def _differences(
    hub: Hub,
    target: Repository,
    state: State | None,
    files: Iterable[File],
    script_files: Iterable[File],
) -> tuple[Difference, Difference]:
    """What commits to `main` and to `script` would do."""
    if state is None:
        return compare(files, {}), compare(script_files, {})
    removable = _goes_from(target)
    main = compare(files, hub.files(target, state.head), removable)
    begun = state.branches.get(SCRIPT_REVISION)
    there = {} if begun is None else hub.files(target, begun)
    return main, compare(script_files, there, removable)


def _paths(difference: Difference) -> tuple[str, ...]:
    return (*difference.added, *difference.changed, *difference.removed)


def _tag(hub: Hub, planned: Plan, revision: str) -> None:
    tag = planned.version
    hub.tag(planned.repository, tag, revision, f"Version {tag} of the data")
    data = [file for file in planned.files if _is_data(file.path)]
    if compare(data, hub.files(planned.repository, tag), _is_data):
        raise PublishError(
            f"{tag} was set on other data meanwhile, and versions do not change; run the same "
            "command again for the next one"
        )


def _verify(planned: Plan, revision: str) -> dict[str, dict[str, int]]:
    """Load the commit back as others would, and compare it with the folder."""
    log.info("Loading %s at %s back with empty caches …", planned.repository.name, revision[:12])
    try:
        output = run_fresh(
            "merge_dataset.hub.verify_dataset",
            planned.repository.name,
            revision,
            str(planned.folder.resolve()),
        )
    except PublishError as error:
        raise PublishError(
            f"{planned.repository.name} at {revision[:12]} does not load as the folder: {error}\n"
            f"{MAIN} holds it, and {planned.version} was not tagged; the same command, run again, "
            "checks it again."
        ) from error
    rows: Any = json.loads(output)
    return dict(rows)
