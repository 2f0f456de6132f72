"""Predictions dealt to tasks: each answers a share of a model's batches, and here files are made.

A call has a folder of its own beside the predictions, whose name stands for what is asked. It has
the problems, the jobs, what each share says of itself, and the logs, and is removed once all files
are there. Answers are in journals, as those of a single process.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import pyarrow as pa

from merge_dataset.executors.calls import call_tasks, forget, plan_of, says
from merge_dataset.executors.plan import Distribution, ExecutorError
from merge_dataset.files import RowGroupWriter, atomic, digest_of, read_row_groups, read_schema
from merge_dataset.locks import working_in
from merge_metric.models.model_files import file_stamps
from merge_metric.models.odd_answers import UnknownTokens
from merge_metric.models.pair_model import ModelRequest, Pair, Share
from merge_metric.models.presets import Preset, request_of
from merge_metric.models.prompts import SHOT_FILES
from merge_metric.models.readiness import machine_for, this_machine
from merge_metric.predict.baselines import BaselineRequest, read_training_data
from merge_metric.predict.driver import (
    PREDICTIONS,
    Outcome,
    answer_share,
    check_output,
    predict,
    require_replaceable,
)
from merge_metric.predict.jobs import (
    Job,
    by_source,
    known_of,
    open_files,
    require_usable,
    run_here,
)
from merge_metric.predict.problems import (
    fingerprint_of,
    format_of_problems,
    on_disk,
    problem_digests,
)

_PROBLEMS: Final = "problems.parquet"

Done = tuple[list[Outcome], list[str], ExecutorError | None]
"""Results of models, reasons of those that failed, and the tasks that did."""


def run_models(
    request: ModelRequest | BaselineRequest,
    problems: pa.Table,
    *,
    preset: str | None = None,
    entries: Sequence[Preset] = (),
    distribution: Distribution | None = None,
    out: Path | None = None,
    extra: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Done:
    """Look at a model or baseline, or at all `entries` of a list, and run it or them.

    They run here or in tasks. Of a list `request` has the settings of all models, and `out` is the
    folder of their predictions files.
    """
    if distribution is not None and getattr(request, "base_url", None):
        raise ValueError(
            "executor: expected a model that tasks load, got one on a server, which is asked from "
            "here: with more requests at a time, see `concurrency`"
        )
    known = known_of(request)
    if preset is None and out is not None:
        require_replaceable(out, known, problems, overwrite=overwrite)
    if isinstance(request, BaselineRequest):
        if distribution is not None:
            if request.train is not None:  # what is wrong with it is told before
                read_training_data(Path(request.train), format_of_problems(problems))
            # Training takes the time, so one task does all.
            distribution = replace(distribution.without_gpus(), tasks=1)
        jobs = [Job(request.name, request)]
        return _run(jobs, problems, distribution, out=out, overwrite=overwrite)
    machine = None if distribution is None else machine_for(distribution, request.device)
    if preset is not None or distribution is not None:
        require_usable(request, problems, machine, entries=entries)
    if preset is None:
        jobs = [Job(known.get("name", request.model), request, extra or {})]
        return _run(jobs, problems, distribution, out=out, overwrite=overwrite)
    jobs = [
        Job(
            each.name,
            request_of(each, request),
            {"preset": preset, "short_name": each.name, "group": each.group},
        )
        for each in entries
    ]
    return _run(jobs, problems, distribution, folder=out or PREDICTIONS, overwrite=overwrite)


def _run(
    jobs: Sequence[Job],
    problems: pa.Table,
    distribution: Distribution | None,
    *,
    out: Path | None = None,
    folder: Path = PREDICTIONS,
    overwrite: bool,
) -> Done:
    """Run models, here or in tasks, each of which has one model, and write predictions files.

    Files have the same bytes whatever the number of tasks, an even share of which each model gets,
    at least one. What was answered before is not asked again. `out` is the file of the one job; by
    default there is one per job and source, in `folder`.
    """
    if distribution is None:
        return *run_here(jobs, problems, out=out, folder=folder, overwrite=overwrite), None
    target = folder if out is None else out.parent
    absolute = [_absolute_paths(job.request) for job in jobs]
    jobs = [
        replace(job, request=replace(job.request, **paths))
        for job, paths in zip(jobs, absolute, strict=True)
    ]
    asked = [
        [asdict(job), *map(file_stamps, paths.values())]
        for job, paths in zip(jobs, absolute, strict=True)
    ]
    fingerprint = fingerprint_of({}, problems, problem_digests(problems))
    digest = digest_of([asked, fingerprint, str(out)])[:12]
    first = out.name if out is not None else jobs[0].extra.get("preset") or jobs[0].name
    slug = re.sub(r"[^A-Za-z0-9._+-]", "-", first.rsplit("/", 1)[-1])
    work = (target / f".{slug}.{digest}.tasks").absolute()
    check_output(work, is_folder=True)
    plan = {
        "jobs": {job.name: asdict(job) for job in jobs},
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
        units = {job.name: [f"{job.name} {Share(i, count)}" for i in range(count)] for job in jobs}
        said = call_tasks(
            "merge_metric.predict.tasks:answer_unit",
            work,
            list(chain.from_iterable(units.values())),
            replace(distribution, tasks=count * len(jobs)),
            plan,
        )
        outcomes, failed = list[Outcome](), list[str]()
        parts = [problems] if out is not None else by_source(problems)
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


def _absolute_paths(request: ModelRequest | BaselineRequest) -> dict[str, Any]:
    """Find the settings that name files or folders which are there; tasks may run elsewhere."""
    values = {name: getattr(request, name, None) for name in ("model", "shots", "train")}
    if Path(values["shots"] or "").suffix not in SHOT_FILES:  # a name, whatever is called so here
        del values["shots"]
    paths = {name: Path(value) for name, value in values.items() if value}
    return {name: str(path.absolute()) for name, path in paths.items() if path.exists()}


# --- In a task ---


@says
def answer_unit(folder: Path, unit: str) -> list[dict[str, Any]]:
    """Do a unit of work: ask a model about a share of the pairs.

    It returns what `answer_share` says of each predictions file.
    """
    name, _, text = unit.rpartition(" ")
    plan, path = plan_of(folder), folder / _PROBLEMS
    settings = plan["jobs"][name]["request"]
    request = (BaselineRequest if "train" in settings else ModelRequest)(**settings)
    problems = on_disk(read_row_groups(path), read_schema(path))
    share, out = Share.parse(text), plan["out"]
    if isinstance(request, ModelRequest):
        machine = this_machine(request.device)
        if machine.device != "cpu":  # of which the command could know nothing
            require_usable(request, problems, machine)
    files = open_files(
        request,
        problems,
        out=out and Path(out),
        folder=Path(plan["folder"]),
        short_name=plan["jobs"][name]["extra"].get("short_name"),
    )
    return [
        answer_share(model, part, path, share, overwrite=plan["overwrite"])
        for model, part, path in files
    ]


# --- After the tasks ---


def _write(
    answered: Mapping[str, Any],
    problems: pa.Table,
    folder: Path,
    extra: Mapping[str, Any],
    *,
    overwrite: bool,
) -> Outcome:
    """Write a predictions file of which all shares have finished; warn as the tasks' logs do."""
    description, notes = answered["description"], answered["notes"]

    def missing(pairs: Sequence[Pair]) -> NoReturn:
        raise ValueError(
            f"expected answers to all pairs, {len(pairs):,} are missing: run the same command again"
        )

    recorded: Any = SimpleNamespace(
        describe=lambda: dict(description),
        notes=lambda _: dict(notes),
        measured=answered["measured"],
        repeat_seeds=description.get("repeat_seeds", 0),
        has_probabilities=answered["has_probabilities"],
        probabilities=missing,
    )
    done = predict(
        recorded,
        problems,
        folder / Path(answered["out"]).name,
        progress=False,
        extra=extra,
        overwrite=overwrite,
    )
    if found := notes.get("unknown_tokens"):
        UnknownTokens(**found | {"words": tuple(found["words"])}).warn(description["name"])
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
            "has_probabilities": all(each["has_probabilities"] for each in of_file),
        }
