"""A predictions file → `.eval_results/*.yaml` in a model repository on the Hub.

The Hub shows such results on the model's page, and on that of the dataset where it is listed as
a benchmark (docs: hub/eval-results). The dataset's tasks are its configurations, and the value
of a task is seed-variant accuracy at one threshold, in percent; `merge_dataset.hub.dataset_card`
says both in the dataset repository.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from merge_dataset.hub.dataset import find_revision
from merge_dataset.hub.dataset_card import BENCHMARK_THRESHOLD
from merge_dataset.hub.difference import Difference, File, compare, make_file
from merge_dataset.hub.errors import PublishError
from merge_dataset.hub.repository import Hub, Repository, parse_repository
from merge_metric.runs.predictions import read_metadata
from merge_metric.score import score_file

log = logging.getLogger(__name__)

FOLDER: Final = ".eval_results"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsPlan:
    """What publishing a model's results would do."""

    repository: Repository
    """The model."""
    account: str | None
    """Who would do it; None where there is no token."""
    dataset: str
    version: str
    """Tag of the dataset's version that the figures are of."""
    values: Mapping[str, float]
    """Configuration → seed-variant accuracy in percent."""
    file: File
    main: Difference

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return not self.main

    @property
    def message(self) -> str:
        """Title of the commit and of the pull request."""
        return f"Results on {self.dataset} {self.version}"


def plan_results(
    predictions: Path,
    folder: Path,
    dataset: str,
    repository: str,
    *,
    configs: Sequence[str] = (),
    source_url: str | None = None,
    source_name: str | None = None,
    date: str | None = None,
) -> ResultsPlan:
    """Find out what publishing a model's results would do. Nothing is written.

    Results that the model has already for the same dataset and other tasks are kept.

    Args:
        predictions: The predictions file.
        folder: The dataset folder that it is for.
        dataset: OWNER/NAME of the repository where that folder is published.
        repository: OWNER/NAME of the model.
        configs: Configurations; by default what the predictions are for.
        source_url: Where more can be read of how the figures came about.
        source_name: What the link is called.
        date: When the model was evaluated, ISO 8601.

    Raises:
        FileNotFoundError, NotADirectoryError, ValueError: an argument or file is not as it
            should be.
        PublishError: the folder is not what is published there, there is no such model, or the
            Hub cannot be asked.
    """
    from huggingface_hub import EvalResultEntry

    target = parse_repository(repository, "model")
    if source_name is not None and source_url is None:
        raise ValueError("--source-name: expected --source-url with it")
    _warn_of_other_model(predictions, repository)
    results = score_file(predictions, folder, configs, correctness_threshold=BENCHMARK_THRESHOLD)
    version, revision = find_revision(folder, dataset)
    entries = {
        config: EvalResultEntry(
            dataset_id=dataset,
            task_id=config,
            value=_percent(result["seed_variant_accuracy"]),
            dataset_revision=revision,
            date=date,
            source_url=source_url,
            source_name=source_name,
            notes=_notes(result),
        )
        for config, result in results.items()
    }
    hub = Hub()
    state = hub.state(target)
    if state is None:
        raise PublishError(
            f"expected a model repository {repository}, found none that you may see: publish the "
            "model first"
        )
    path = f"{FOLDER}/{dataset.replace('/', '__')}.yaml"
    file = make_file(path, _merged(hub.read(target, path, state.head), path, entries))
    there = hub.files(target, state.head)
    return ResultsPlan(
        repository=target,
        account=hub.account() if hub.has_token() else None,
        dataset=dataset,
        version=version,
        values={config: entry.value for config, entry in entries.items()},
        file=file,
        main=compare([file], there),
    )


def carry_out_results(planned: ResultsPlan, *, pull_request: bool) -> str:
    """Commit the results, or propose them; the address where they are.

    Raises:
        PublishError: no token, no rights, or a failure of the Hub.
    """
    hub, target = Hub(), planned.repository
    hub.account()
    if not pull_request:
        revision = hub.make_equal(target, [planned.file], message=planned.message)
        return f"{target.address}/commit/{revision}"
    figures = "\n".join(f"- {config}: {value}" for config, value in planned.values.items())
    description = (
        f"Seed-variant accuracy at a threshold of {BENCHMARK_THRESHOLD} %, in percent, on "
        f"{planned.dataset} {planned.version}:\n\n{figures}\n"
    )
    return hub.propose(target, [planned.file], message=planned.message, description=description)


def _percent(share: float) -> float:
    return round(100 * share, 2)


def _notes(result: Mapping[str, Any]) -> str:
    """What the value is, with what is quoted beside it, and what determines it."""
    low, high = (_percent(bound) for bound in result["seed_variant_accuracy_ci"])
    return (
        f"seed-variant accuracy at {BENCHMARK_THRESHOLD} %, 95 % interval {low}-{high}; "
        f"accuracy on seeds {_percent(result['seed_accuracy'])}, "
        f"on variants {_percent(result['variant_accuracy'])}; "
        f"{result['n_seeds']} seeds, {result['n_variants']} variants; "
        f"{result['signature_short']}"
    )


def _merged(present: bytes, path: str, entries: Mapping[str, Any]) -> bytes:
    """The file's content with these entries, those of other tasks kept, sorted by task.

    Raises:
        PublishError: what is there is no list of results.
    """
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


def _warn_of_other_model(predictions: Path, repository: str) -> None:
    name = str(read_metadata(predictions).get("name", ""))
    if name and name != repository:
        log.warning(
            "%s says that it is of %s, not of %s: is that the same model?",
            predictions,
            name,
            repository,
        )
