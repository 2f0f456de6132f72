"""Predictions dealt to tasks: each answers a share of a model's batches, and here files are made.

A call has a folder of its own beside the predictions, whose name stands for what is asked. It has
the problems, the jobs, what each share says of itself, and the logs, and is removed once all files
are there. Answers are in journals, as those of a single process.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.executors.calls import call_tasks, forget, plan_of, says
from merge_dataset.executors.plan import Distribution, ExecutorError
from merge_dataset.files import RowGroupWriter, atomic, digest_of, read_row_groups, read_schema
from merge_dataset.locks import working_in
from merge_metric.models.model_files import file_stamps
from merge_metric.models.odd_answers import UnknownTokens
from merge_metric.models.pair_model import ModelRequest, Pair, PairModel, Share
from merge_metric.models.presets import Preset, request_of
from merge_metric.models.prompts import SHOT_FILES
from merge_metric.models.readiness import machine_for, this_machine
from merge_metric.predict.baselines import BaselineRequest, HypothesisOnly
from merge_metric.predict.driver import Outcome, answer_share, check_folder, predict
from merge_metric.predict.jobs import (
    PREDICTIONS,
    Job,
    by_source,
    files_of,
    known_of,
    open_by_part,
    require_free,
    require_usable,
    run_here,
)
from merge_metric.predict.problems import fingerprint_of, on_disk, problem_digests

_PROBLEMS: Final = "problems.parquet"


Done = tuple[list[Outcome], list[str], ExecutorError | None]
"""Results of models, reasons of those that failed, and the tasks that did."""


def run_models(
    request: ModelRequest,
    problems: pa.Table,
    *,
    preset: str | None = None,
    entries: Sequence[Preset] = (),
    distribution: Distribution | None = None,
    out: Path | None = None,
    extra: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Done:
    """Look at a model, or at all of a list, and run it or them, here or in tasks.

    Args:
        request: The model; of a list, the settings of all.
        problems: From `read_problems`.
        preset: Name of the list.
        entries: Its models.
        distribution: Where tasks work; by default this process does all.
        out: The predictions file, or the folder of those of a list.
        extra: More for the metadata.
        overwrite: Replace predictions files of other runs.
    """
    if distribution is not None and request.base_url:
        raise ValueError(
            "executor: expected a model that tasks load, got one on a server, which is asked from "
            "here: with more requests at a time, see `concurrency`"
        )
    machine = None if distribution is None else machine_for(distribution, request.device)
    jobs = [
        Job(
            each.name,
            request_of(each, request),
            {"preset": preset, "short_name": each.name, "group": each.group},
        )
        for each in entries
    ]
    if preset is None:
        if out is not None:
            require_free(out, known_of(request), problems, overwrite=overwrite)
        jobs = [Job(known_of(request).get("name", request.model), request, extra or {})]
    if preset is not None or distribution is not None:
        require_usable(request, problems, machine, entries=entries)
    place = {"out" if preset is None else "folder": out, "overwrite": overwrite}
    return _run(jobs, problems, distribution, **place)


def run_baseline(
    request: BaselineRequest,
    problems: pa.Table,
    *,
    distribution: Distribution | None = None,
    out: Path | None = None,
    overwrite: bool = False,
) -> Done:
    """Run a baseline, here or in tasks; see `run_models`."""
    if out is not None:
        require_free(out, {"name": request.name}, problems, overwrite=overwrite)
    if distribution is not None:
        request.read(problems)  # what is wrong with it is told before
        distribution = distribution.without_gpus()
    jobs = [Job(request.name, request)]
    return _run(jobs, problems, distribution, out=out, overwrite=overwrite)


def _run(
    jobs: Sequence[Job], problems: pa.Table, distribution: Distribution | None, **place: Any
) -> Done:
    if distribution is None:
        return *run_here(jobs, problems, **place), None
    return predict_in_tasks(jobs, problems, distribution, **place)


def predict_in_tasks(
    jobs: Sequence[Job],
    problems: pa.Table,
    distribution: Distribution,
    *,
    out: Path | None = None,
    folder: Path | None = None,
    overwrite: bool = False,
) -> Done:
    """Run models in tasks, each of which has one model, and write their predictions files.

    Files have the same bytes as those of one process, whatever the number of tasks. What was
    answered before is not asked again.

    Args:
        jobs: The models. Each gets an even share of the tasks, at least one.
        problems: From `read_problems`.
        distribution: Where the tasks run, on a file system that all machines share.
        out: The predictions file of the one job; by default one per job and source, in `folder`.
        folder: By default `PREDICTIONS`.
        overwrite: Replace predictions files of other runs.

    Returns:
        What was done, for each job without its files why, and the tasks that failed.

    Raises:
        BlockingIOError: the same command is at work already.
    """
    target = out.parent if out is not None else folder or PREDICTIONS
    jobs = [_with_absolute_paths(job) for job in jobs]
    asked = [
        [asdict(job), *(file_stamps(path) for path in _paths(job.request).values())] for job in jobs
    ]
    fingerprint = fingerprint_of({}, problems, problem_digests(problems))
    digest = digest_of([asked, fingerprint, str(out)])[:12]
    first = out.name if out is not None else jobs[0].extra.get("preset") or jobs[0].name
    slug = re.sub(r"[^A-Za-z0-9._+-]", "-", first.rsplit("/", 1)[-1])
    work = (target / f".{slug}.{digest}.tasks").absolute()
    check_folder(work)
    plan = {
        "jobs": {job.name: asdict(job) for job in jobs},
        "baselines": [job.name for job in jobs if isinstance(job.request, BaselineRequest)],
        "out": out and str(out.absolute()),
        "folder": str(target.absolute()),
        "overwrite": overwrite,
    }
    with working_in(work):
        with (
            atomic(work / _PROBLEMS) as temporary,
            RowGroupWriter(temporary, problems.schema, problems.schema.metadata) as writer,
        ):
            writer.write(problems)
        count = max(1, distribution.tasks // len(jobs))
        training = [
            f"train {job.name}"
            for job in jobs
            if isinstance(job.request, BaselineRequest) and job.request.learns
        ]
        train = "merge_metric.predict.tasks:train_unit"
        call_tasks(train, work, training, distribution, plan).all()
        units = {job.name: [f"{job.name} {Share(i, count)}" for i in range(count)] for job in jobs}
        said = call_tasks(
            "merge_metric.predict.tasks:answer_unit",
            work,
            list(chain.from_iterable(units.values())),
            replace(distribution, tasks=count * len(jobs)),
            plan,
        )
        outcomes, failed = list[Outcome](), list[str]()
        parts = [problems] if out is not None else list(by_source(problems))
        for job in jobs:
            found = [said.records[unit] for unit in units[job.name] if unit in said.records]
            if missing := count - len(found):
                failed.append(f"{job.name}: {missing} of {count} tasks did not finish")
                continue
            forget(work, units[job.name])  # if a file cannot be written, tasks say it all again
            try:
                for part, answered in zip(parts, _agreed(found), strict=True):
                    outcomes.append(_write(answered, part, target, job.extra, overwrite=overwrite))
            except (ValueError, OSError) as failure:
                failed.append(f"{job.name}: {failure}")
        if not failed:
            shutil.rmtree(work)
    return outcomes, failed, said.error


def _with_absolute_paths(job: Job) -> Job:
    """Make relative paths absolute, as tasks may run in other folders."""
    paths: dict[str, Any] = {
        name: str(Path(path).absolute()) for name, path in _paths(job.request).items()
    }
    return replace(job, request=replace(job.request, **paths))


def _paths(request: ModelRequest | BaselineRequest) -> dict[str, str]:
    """Return the settings that name files or folders which are there."""
    values = {name: getattr(request, name, None) for name in ("model", "shots", "train")}
    if Path(values["shots"] or "").suffix not in SHOT_FILES:  # a name, whatever is called so here
        del values["shots"]
    return {name: value for name, value in values.items() if value and Path(value).exists()}


# --- In a task ---


@says
def answer_unit(folder: Path, unit: str) -> list[dict[str, Any]]:
    """Do a unit of work: ask a model about a share of the pairs.

    Returns:
        What `answer_share` says of each predictions file.
    """
    name, _, text = unit.rpartition(" ")
    share, plan = Share.parse(text), plan_of(folder)
    job, out = plan["jobs"][name], plan["out"] and Path(plan["out"])
    return [
        answer_share(model, each, path, share, overwrite=plan["overwrite"])
        for model, part in _opened(folder, name, plan)
        for each, path in files_of(
            model,
            part,
            out=out,
            folder=Path(plan["folder"]),
            short_name=job["extra"].get("short_name"),
        )
    ]


def _opened(
    folder: Path, name: str, plan: Mapping[str, Any]
) -> Iterator[tuple[PairModel, pa.Table]]:
    """Yield the model of a job, opened, with the problems it is for."""
    problems = _problems(folder)
    request = _request(plan, name)
    if isinstance(request, ModelRequest):
        machine = this_machine(request.device)
        if machine.device != "cpu":  # of which the command could know nothing
            require_usable(request, problems, machine)
    elif (path := _trained(folder, name)).is_file():
        yield HypothesisOnly.load(path), problems
        return
    yield from open_by_part(request, problems, whole=plan["out"] is not None)


@says
def train_unit(folder: Path, unit: str) -> None:
    """Do a unit of work: train a baseline, once for all tasks."""
    name = unit.partition(" ")[2]
    ((model, _),) = open_by_part(_request(plan_of(folder), name), _problems(folder))
    assert isinstance(model, HypothesisOnly)
    model.save(_trained(folder, name))


def _problems(folder: Path) -> pa.Table:
    path = folder / _PROBLEMS
    return on_disk(read_row_groups(path), read_schema(path))


def _request(plan: Mapping[str, Any], name: str) -> ModelRequest | BaselineRequest:
    made = BaselineRequest if name in plan["baselines"] else ModelRequest
    return made(**plan["jobs"][name]["request"])


def _trained(folder: Path, name: str) -> Path:
    return folder / f"{name}.parquet"


# --- After the tasks ---


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A model that tasks have asked, with their records of it."""

    said: Mapping[str, Any]
    """Record of `answer_share`, of all shares together."""

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the further numbers about each answer."""
        return tuple(self.said["measured"])

    @property
    def repeat_seeds(self) -> int:
        """How often seeds were asked about again."""
        return int(self.said["description"].get("repeat_seeds", 0))

    @property
    def has_probabilities(self) -> bool:
        """Whether answers are probabilities."""
        return bool(self.said["has_probabilities"])

    def describe(self) -> dict[str, Any]:
        """Describe the model as the tasks did."""
        return dict(self.said["description"])

    def notes(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Return the tasks' notes."""
        return dict(self.said["notes"])

    def probabilities(
        self, pairs: Sequence[Pair]
    ) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
        """Raise ValueError, as answers are missing."""
        raise ValueError(
            f"expected answers to all pairs, {len(pairs):,} are missing: run the same command again"
        )


def _write(
    answered: Mapping[str, Any],
    problems: pa.Table,
    folder: Path,
    extra: Mapping[str, Any],
    *,
    overwrite: bool,
) -> Outcome:
    """Write a predictions file of which all shares have finished; warn as the tasks' logs do."""
    done = predict(
        _Recorded(answered),
        problems,
        folder / Path(answered["out"]).name,
        progress=False,
        extra=extra,
        overwrite=overwrite,
    )
    if found := answered["notes"].get("unknown_tokens"):
        name = answered["description"]["name"]
        UnknownTokens(**found | {"words": tuple(found["words"])}).warn(name)
    return replace(done, inferred=answered["inferred"], seconds=answered["seconds"])


def _agreed(found: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Put the records of a job's shares together, file by file."""
    for of_file in zip(*found, strict=True):
        first = next((each for each in of_file if each["notes"]), of_file[0])
        for each in of_file:
            differing = [
                key
                for key in {**first["description"], **each["description"]}
                if first["description"].get(key) != each["description"].get(key)
            ]
            if differing or each["out"] != first["out"]:
                raise ValueError(
                    f"expected the same model, device and versions in every task, got different "
                    f"{', '.join(differing) or 'names'}; name them with `device`, `dtype` and "
                    f"`revision`, and run the same command again"
                )
        yield {
            **first,
            "inferred": sum(each["inferred"] for each in of_file),
            "seconds": max(each["seconds"] for each in of_file),
            "has_probabilities": all(each.get("has_probabilities", True) for each in of_file),
        }
