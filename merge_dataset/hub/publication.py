"""Plans of publishing and their execution, the same for the dataset, the metric and results.

Planning only reads. `carry_out` makes `main` equal to the planned files in one commit, loads it
back with empty caches, tags it, and updates other branches. Both may be repeated.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from merge_dataset.files import size_in_words
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
    is_offline,
    make_file,
    parse_repository,
)

log = logging.getLogger(__name__)

NOTHING_TO_DO: Final = "Nothing to do."
NOTHING_WRITTEN: Final = "Nothing was written. To do this, add --yes."

LoadedBack = tuple[Mapping[str, Any], str]
"""Further entries of the JSON, and a text for readers, empty if nothing was loaded."""

_MARKS: Final = {"added": "+", "changed": "~", "removed": "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch, and its planned files."""

    name: str = MAIN
    files: tuple[File, ...]
    difference: Changes
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """The version of the published data."""

    name: str
    is_set: bool
    """Whether the repository already has the tag, on these files."""
    message: str
    covers: Callable[[str], bool]
    """Predicate for the files that the version covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishingPlan:
    """A plan of publishing."""

    repository: Repository
    account: str | None
    """The user of the token; None without a token."""
    state: State | None
    """Current state of the repository; None if it does not exist or was not looked up."""
    private: bool = False
    heading: str = ""
    """Line on what would be published, unless it is the whole repository."""
    facts: Mapping[str, Any]
    """Further entries of the plan's JSON."""
    notes: tuple[str, ...] = ()
    """Further lines for readers, before the branches."""
    branches: tuple[Branch, ...]
    """The branches; the first is `main`, which users load."""
    removable: Callable[[str], bool] | None = None
    """Predicate for files to remove from a branch if not planned; None keeps all files."""
    sdk: str | None = None
    tag: Tag | None = None
    load_back: Callable[[str], LoadedBack] | None = None
    """Function that loads a commit back; None if nothing can load it."""
    proposal: str | None = None
    """Description of a pull request to open instead of a commit; None for a commit."""
    is_done: bool
    settled: str | None = None
    """Reason to leave all branches unchanged, if there is one."""
    remark_lines: tuple[str, ...] = ()
    """Further lines for readers, after the branches."""
    usage: str = ""
    """Instruction for loading; if empty, the address of the commit is shown."""

    @property
    def has_steps(self) -> bool:
        """Whether `carry_out` does anything; even a Space that is up to date is loaded back."""
        return self.settled is None and (not self.is_done or self.load_back is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The outcome of publishing."""

    address: str
    revision: str | None = None
    """Commit of `main`; None for a pull request."""
    committed: bool = False
    tagged: bool = False
    loaded: LoadedBack = ({}, "")


def look_at(target: Repository, *, private: bool = False) -> tuple[str | None, State | None]:
    """Return the token's user and a repository's state; check that it is `private` if wanted."""
    if is_offline():
        return None, None
    account, state = account_of_token(), target.state()
    if state is not None and private and not state.private:
        raise ValueError(
            f"expected {target.name} to be private, it is public: change that in its settings, "
            "or leave --private out"
        )
    return account, state


def carry_out(plan: PublishingPlan) -> Published:
    """Carry out a plan; on failure, the message gives the state of `main`."""
    target, main = plan.repository, plan.branches[0]
    if account_of_token() is None:
        raise PublishError(
            "expected to be logged in to the Hub, found no token: run `hf auth login`, or set "
            "HF_TOKEN to one that may write (https://huggingface.co/settings/tokens)"
        )
    head = None if plan.state is None else plan.state.head
    if not plan.has_steps:
        return Published(address=target.address, revision=head)
    if plan.proposal is not None:
        address = target.propose(main.files, message=main.message, description=plan.proposal)
        return Published(address=address)
    if plan.state is None:
        target.create(private=plan.private, sdk=plan.sdk)
    revision = target.make_equal(
        main.files, message=main.message, removable=plan.removable, planned_on=head
    )
    loaded: LoadedBack = plan.load_back(revision) if plan.load_back is not None else ({}, "")
    if (tag := plan.tag) is not None and not tag.is_set:
        target.tag(tag.name, revision, tag.message)
        covered = [file for file in main.files if tag.covers(file.path)]
        if compare(covered, target.files(tag.name), tag.covers):
            raise PublishError(
                f"{tag.name} was set on other data meanwhile, and versions do not change; run the "
                "same command again for the next one"
            )
    for branch in plan.branches[1:]:
        if branch.difference or plan.state is None:
            target.branch(branch.name, revision)
            target.make_equal(
                branch.files, message=branch.message, revision=branch.name, removable=plan.removable
            )
    return Published(
        address=target.address if plan.usage else f"{target.address}/commit/{revision}",
        revision=revision,
        committed=bool(main.difference),
        tagged=plan.tag is not None and not plan.tag.is_set,
        loaded=loaded,
    )


# --- For readers and programs ---


def plan_lines(plan: PublishingPlan) -> Iterator[str]:
    """Yield lines on what publishing would do."""
    target, state = plan.repository, plan.state
    seen = "private" if (plan.private if state is None else state.private) else "public"
    kind: str = "Space" if target.kind == "space" else target.kind
    whole = f"{target.name}: {'a' if state is not None else 'to be made, a'} {seen} {kind}"
    yield plan.heading or whole
    if is_offline():
        yield "HF_HUB_OFFLINE is set, so the Hub was not asked what is there; --yes needs it unset"
    elif plan.account is not None:
        yield f"logged in as {plan.account}"
    else:
        yield "not logged in, which --yes needs: run `hf auth login`, or set HF_TOKEN"
    yield from plan.notes
    if plan.settled is not None:
        yield plan.settled
    else:
        main, *others = plan.branches
        where = main.name if plan.proposal is None else f"a pull request to {main.name}"
        yield f"{where}: {main.difference or ('nothing to commit' if plan.tag else 'up to date')}"
        sizes = {file.path: file.size for file in main.files}
        for kind, mark in _MARKS.items():
            for path in getattr(main.difference, kind):
                yield f"  {mark} {path}" + (
                    f"  {size_in_words(sizes[path])}" if path in sizes else ""
                )
        if plan.tag is not None:
            yield f"tag {plan.tag.name}: {'is there' if plan.tag.is_set else 'to be set'}"
        for branch in others:
            yield f"branch {branch.name}: {branch.difference or 'up to date'}"
    yield from plan.remark_lines


def done_lines(plan: PublishingPlan, done: Published | None) -> Iterator[str]:
    """Yield lines on what publishing has done, if anything."""
    if done is None:
        yield NOTHING_TO_DO if plan.is_done else NOTHING_WRITTEN
        return
    if plan.usage:
        yield f"main is at {done.revision}" + ("" if done.committed else ", as before")
    if text := done.loaded[1]:
        yield f"loaded back: {text}"
    yield f"Published: {done.address}"
    if plan.usage:
        yield plan.usage


def as_json(plan: PublishingPlan, done: Published | None) -> dict[str, Any]:
    """Render a plan, and its outcome if there is one, as a value for JSON."""
    private = plan.private if plan.state is None else plan.state.private
    seen = {"exists": plan.state is not None, "private": private} if plan.usage else {}
    outcome: dict[str, Any] = {"done": None}
    if not plan.usage:
        outcome = {"published": None if done is None else done.address}
    elif done is not None:
        steps = {"committed": done.committed, "tagged": done.tagged} if plan.tag else {}
        outcome = {"done": {"revision": done.revision, **steps, **done.loaded[0]}}
    return {
        "repository": plan.repository.name,
        **seen,
        "account": plan.account,
        **plan.facts,
        **{
            branch.name: {kind: list(getattr(branch.difference, kind)) for kind in _MARKS}
            for branch in plan.branches
        },
        "nothing_to_do": plan.is_done,
        **outcome,
    }


def plan_metric(
    folder: Path, repository: str, example: Mapping[str, Any], *, private: bool = False
) -> PublishingPlan:
    """Plan the publication of the metric; nothing is written.

    `example` has the `arguments` of `compute`, `figures` computed by hand, and the full `result`.
    """
    target = parse_repository(repository, "space")
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
    account, state = look_at(target, private=private)
    main = compare(files, {} if state is None else target.files(state.head), _is_removable)
    return PublishingPlan(
        repository=target,
        account=account,
        state=state,
        private=private,
        facts={},
        branches=(Branch(files=files, difference=main, message="The metric of merge-nli"),),
        removable=_is_removable,
        sdk="gradio",
        load_back=lambda _: _load_back(target, example),
        is_done=state is not None and not main,
        usage=f'evaluate.load("{target.name}")',
    )


def _load_back(target: Repository, example: Mapping[str, Any]) -> LoadedBack:
    """Compute the example by `evaluate.load(OWNER/NAME)` with empty caches."""
    log.info("Loading %s back with empty caches …", target.name)
    try:
        figures = load_back("metric", target.name, json.dumps(example))
    except PublishError as error:
        raise PublishError(
            f'evaluate.load("{target.name}") does not give the metric: {error}\n'
            "main of the Space holds it; the same command, run again, checks it again."
        ) from error
    return {"figures": figures}, ", ".join(f"{k} {v}" for k, v in figures.items())


def _is_removable(path: str) -> bool:
    """Return whether a file is a module of an earlier version, which is not needed any more."""
    return "/" not in path and path.endswith(".py")
