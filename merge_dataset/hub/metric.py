"""The metric's folder → its Space on the Hub: files, and the plan."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from merge_dataset.hub.errors import PublishError
from merge_dataset.hub.load_back import load_back
from merge_dataset.hub.publication import (
    Branch,
    LoadedBack,
    PublishingPlan,
    look_at,
    repository_line,
)
from merge_dataset.hub.repository import Repository, compare, make_file, parse_repository

log = logging.getLogger(__name__)

_SDK: Final = "gradio"
_FILES: Final = ("README.md", "requirements.txt")
"""Files of the Space beside its modules."""


@dataclass(frozen=True, slots=True)
class MetricExample:
    """An example that the metric computes when it is loaded back."""

    arguments: Mapping[str, Any]
    """Arguments of `compute`."""
    figures: Mapping[str, float]
    """Figures computed by hand, which readers are told."""
    result: Mapping[str, Any]
    """All that this version of the metric computes."""


def plan_metric(
    folder: Path, repository: str, example: MetricExample, *, private: bool = False
) -> PublishingPlan:
    """Find out what publishing the metric would do. Nothing is written.

    Args:
        folder: What is uploaded; its name is that of the metric.
        repository: OWNER/NAME, where NAME is that of the metric.
        example: What `evaluate` must compute by the Space.
        private: Make a new Space private; one that is there must be.

    Raises:
        ValueError: an argument is not as it should be, or contradicts the Space.
        PublishError: the Hub cannot be asked.
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
        if path.suffix == ".py" or path.name in _FILES
    )
    hub, account, state = look_at(target, private=private)
    main = compare(files, {} if state is None else hub.files(target, state.head), _is_removable)
    return PublishingPlan(
        repository=target,
        account=account,
        exists=state is not None,
        private=private if state is None else state.private,
        heading=repository_line(target, state, private=private),
        facts={},
        branches=(Branch(files=files, difference=main, message="The metric of merge-nli"),),
        removable=_is_removable,
        sdk=_SDK,
        load_back=lambda _: _load_back(target, example),
        is_done=state is not None and not main,
        usage=f'evaluate.load("{target.name}")',
    )


def _load_back(target: Repository, example: MetricExample) -> LoadedBack:
    """Compute the example by `evaluate.load(OWNER/NAME)` with empty caches."""
    log.info("Loading %s back with empty caches …", target.name)
    try:
        figures = load_back("metric", target.name, json.dumps(asdict(example)))
    except PublishError as error:
        raise PublishError(
            f'evaluate.load("{target.name}") does not give the metric: {error}\n'
            "main of the Space holds it; the same command, run again, checks it again."
        ) from error
    return LoadedBack("figures", figures, ", ".join(f"{k} {v}" for k, v in figures.items()))


def _is_removable(path: str) -> bool:
    """Tell whether a file is a module of an earlier version, which nothing would miss."""
    return "/" not in path and path.endswith(".py")
