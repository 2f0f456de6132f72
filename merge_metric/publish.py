"""The metric's folder → its Space on the Hub: what would be done, and doing it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from merge_dataset.hub.difference import Difference, File, compare, make_file
from merge_dataset.hub.errors import PublishError
from merge_dataset.hub.fresh import run_fresh
from merge_dataset.hub.repository import Hub, Repository, parse_repository
from merge_metric.register import METRIC_NAME, SPACE

log = logging.getLogger(__name__)

SDK: Final = "gradio"
_FILES: Final = ("README.md", "requirements.txt")
"""What the Space has beside its modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpacePlan:
    """What publishing the metric would do."""

    repository: Repository
    account: str | None
    """Who would do it; None where there is no token."""
    exists: bool
    private: bool
    files: tuple[File, ...]
    main: Difference

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.exists and not self.main


@dataclass(frozen=True, slots=True, kw_only=True)
class SpacePublished:
    """What publishing the metric has done."""

    revision: str
    figures: dict[str, Any]
    """Of the worked example, computed by what `evaluate` loaded from the Space."""


def plan_space(repository: str, *, private: bool = False) -> SpacePlan:
    """Find out what publishing the metric would do. Nothing is written.

    Args:
        repository: OWNER/seed_variant_accuracy.
        private: Make a new Space private; one that is there must be.

    Raises:
        ValueError: an argument is not as it should be, or contradicts the Space.
        PublishError: the Hub cannot be asked.
    """
    target = parse_repository(repository, "space")
    if target.short_name != METRIC_NAME:
        raise ValueError(
            f"expected a Space called OWNER/{METRIC_NAME}, got {repository!r}: evaluate loads "
            "the script that is called like the Space"
        )
    files = tuple(_files())
    hub = Hub()
    account = hub.account() if hub.has_token() else None
    state = hub.state(target)
    if state is not None and private and not state.private:
        raise ValueError(
            f"expected {repository} to be private, it is public: change that in its settings, "
            "or leave --private out"
        )
    there = {} if state is None else hub.files(target, state.head)
    return SpacePlan(
        repository=target,
        account=account,
        exists=state is not None,
        private=private if state is None else state.private,
        files=files,
        main=compare(files, there, _goes),
    )


def carry_out_space(planned: SpacePlan) -> SpacePublished:
    """Upload the folder in one commit, and load the metric as users do.

    Raises:
        PublishError: no token, no rights, a failure of the Hub, or `evaluate` does not load it.
    """
    hub, target = Hub(), planned.repository
    hub.account()
    if not planned.exists:
        hub.create(target, private=planned.private, sdk=SDK)
    revision = hub.make_equal(
        target, planned.files, message="The metric of merge-nli", removable=_goes
    )
    return SpacePublished(revision=revision, figures=verify_space(target))


def verify_space(target: Repository) -> dict[str, Any]:
    """Figures of the worked example, by `evaluate.load(OWNER/NAME)` with empty caches.

    Raises:
        PublishError: it does not load, or computes something else.
    """
    log.info("Loading %s back with empty caches …", target.name)
    try:
        output = run_fresh("merge_metric.publish_verify", target.name)
    except PublishError as error:
        raise PublishError(
            f'evaluate.load("{target.name}") does not give the metric: {error}\n'
            "main of the Space holds it; the same command, run again, checks it again."
        ) from error
    return dict(json.loads(output))


def _files() -> Iterator[File]:
    for path in sorted(SPACE.iterdir()):
        if path.suffix == ".py" or path.name in _FILES:
            yield make_file(path.name, path)


def _goes(path: str) -> bool:
    """A module of an earlier version, which `evaluate` and the page would not miss."""
    return "/" not in path and path.endswith(".py")
