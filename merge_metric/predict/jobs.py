"""Runs of one model or a list of models over a dataset's problems, with a file per source.

Models run in this process or in tasks: a task asks a model about its blocks of questions, and this
process writes the files. A call has a folder beside the predictions, which is removed when all
files are written; stores hold the answers.
"""

import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa

from merge_dataset.answer_store import slug
from merge_dataset.executors import Distribution, ExecutorError, Task
from merge_dataset.executors.calls import call_tasks, keeps_result, plan_of
from merge_dataset.files import (
    RowGroupWriter,
    atomic,
    digest_of,
    read_row_groups,
    read_schema,
    working_in,
)
from merge_dataset.redaction import mask_urls
from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER
from merge_metric.models.label_order import ASKED_SEEDS, ENOUGH_SEEDS, SEEDS, check_order_asked
from merge_metric.models.loading import LabelledPairs, find_kind, open_model, require_settings_used
from merge_metric.models.model_files import file_stamps
from merge_metric.models.pair_model import Description, Model, ModelRequest
from merge_metric.models.presets import Preset, request_of
from merge_metric.models.prompts import SHOT_FILES
from merge_metric.models.readiness import (
    Machine,
    inspect_models,
    machine_for,
    model_of_preset,
    require_all,
    this_machine,
)
from merge_metric.models.tokens import warn_of_unknown
from merge_metric.predict.baselines import BaselineRequest, read_training_data
from merge_metric.predict.driver import (
    PREDICTIONS,
    Asking,
    Outcome,
    check_output,
    require_replaceable,
)
from merge_metric.predict.problems import (
    SHOTS,
    asked_format,
    description_of,
    fingerprint_of,
    format_of_problems,
    on_disk,
    pairs_of,
    part_of_source,
    problem_digests,
    sample_seeds,
    seeds_of,
    sources_of,
)

log = logging.getLogger(__name__)

_PROBLEMS: Final = "problems.parquet"

Done = tuple[list[Outcome], list[str], ExecutorError | None]
"""Outcomes of models, reasons why others failed, and tasks that failed."""


def open_for(request: ModelRequest, problems: pa.Table) -> Model:
    """Open a model for the problems that it will be asked about.

    Args:
        request: The model and its settings.
        problems: From `read_problems`. Few-shot examples depend on their sources; with
            `label_order` "seeds" some of their seeds may be asked about.

    Raises:
        ValueError: it cannot be used; the message says why.
    """
    return open_model(
        request,
        problem_format=asked_format(problems),
        sources=sources_of(problems),
        seeds=partial(labelled_seeds, problems),
        held_out=description_of(problems).get(SHOTS),
    )


def labelled_seeds(problems: pa.Table) -> LabelledPairs:
    """Draw seeds with their gold labels, to determine what a classifier's classes mean."""
    if asked_format(problems) != (own := format_of_problems(problems)):
        raise ValueError(
            f"label_order: expected the order itself with `merge_labels`, as the gold labels "
            f"{', '.join(own.labels)} cannot tell the labels apart that are merged, got {SEEDS}"
        )
    seeds = sample_seeds(seeds_of(problems), ASKED_SEEDS)
    return list(pairs_of(seeds)), seeds["label"].to_numpy()


def require_usable(
    request: ModelRequest,
    problems: pa.Table,
    machine: Machine | None = None,
    *,
    entries: Sequence[Preset] = (),
) -> None:
    """Inspect a model, or all models of a list, before the first one runs."""
    labels = asked_format(problems).labels
    check_order_asked(request.label_order, labels)
    machine = machine or this_machine(request.device)
    if entries:
        kinds: list[Any] = [entry.kind for entry in entries]
        models = [model_of_preset(entry, request) for entry in entries]
    else:
        kinds = [request.kind or find_kind(request)]
        models = [("", request, CLASSIFIER if kinds == ["classifier"] else CAUSAL_LM)]
    for kind in kinds:
        require_settings_used(request, kind)
    looks = inspect_models(models, machine, labels)
    if entries and (count := len(seeds_of(problems))) < ENOUGH_SEEDS:
        for look in looks:
            if look["asks_seeds"]:
                look["wrong"] = look["wrong"] or (
                    f"nothing says which class is which label; expected at least {ENOUGH_SEEDS} "
                    f"seeds to find it out from, got {count}: take more, or give `label_order`"
                )
    good = [look["name"] for look in looks if not look["wrong"]]
    require_all(looks, f"to run the others: --only {','.join(good)}" if good else "")


@dataclass(frozen=True, slots=True)
class Job:
    """A model or baseline to run over all problems."""

    name: str
    request: ModelRequest | BaselineRequest
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further metadata; for a preset: the list, the model's name and its group."""


def open_files(
    request: ModelRequest | BaselineRequest,
    problems: pa.Table,
    *,
    out: Path | None,
    folder: Path = PREDICTIONS,
    short_name: str | None = None,
) -> Iterator[tuple[Model, Asking]]:
    """Open a model; yield it with the questions of each source's file, or of `out` for all."""
    is_apart = out is None and len(sources_of(problems)) > 1
    parts = by_source(problems) if is_apart else [problems]
    model: Model | None = None
    if isinstance(request, BaselineRequest):
        model = request.open(problems)
    else:
        request = replace(request, kind=request.kind or find_kind(request))
        if request.kind == "classifier":
            model = open_for(request, problems)
    for part in parts:  # the examples that a language model is shown depend on the source
        asked = model or open_for(cast(ModelRequest, request), part)
        known = asked.describe()
        file = out or folder / file_name(known.identity, part, short_name)
        yield asked, Asking(known, part, file, repeat_seeds=repeats_of(request))


def repeats_of(request: ModelRequest | BaselineRequest) -> int:
    """Return how often each seed is asked about again."""
    return request.repeat_seeds if isinstance(request, ModelRequest) else 0


def file_name(
    description: Mapping[str, Any], problems: pa.Table, short_name: str | None = None
) -> str:
    """Make the name of a predictions file from model, shots, configurations and seed sample.

    >>> problems = pa.table({}).replace_schema_metadata({"merge_nli": '{"configs": ["snli"]}'})
    >>> file_name({"name": "google/gemma-2-9b", "shots": "mix"}, problems)
    'gemma-2-9b-mix-snli.parquet'
    """
    parts = [short_name or str(description["name"]).rsplit("/", 1)[-1]]
    if "shots" in description:
        parts.append(description["shots"])
    source = description_of(problems)
    parts.append("+".join(source.get("configs", [])) or "problems")
    if "limit_seeds" in source:
        parts.append(f"{source['limit_seeds']}-seeds")
    if source.get("all_problems"):
        parts.append("all")
    return re.sub(r"[^A-Za-z0-9._+-]", "-", "-".join(parts)) + ".parquet"


def by_source(problems: pa.Table) -> list[pa.Table]:
    """Split the problems by source."""
    sources = sources_of(problems)
    return [part_of_source(problems, source) for source in sources] if sources[1:] else [problems]


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
    """Inspect and run a model, or all `entries` of a list with the settings of the request.

    In a list, a model that fails does not stop the others.
    """
    if distribution is not None and getattr(request, "base_url", None):
        raise ValueError(
            "executor: expected a model that tasks load, got one on a server, which is asked from "
            "here: with more requests at a time, see `concurrency`"
        )
    known: dict[str, str] = {}
    if isinstance(request, BaselineRequest):
        known = {"name": request.name}
    elif not (request.gguf_file or request.model.endswith(".gguf")):
        is_folder = Path(request.model).is_dir()
        shown = Path(request.model).resolve().name if is_folder else mask_urls(request.model)
        known = {"name": shown}
    if preset is None and out is not None:
        require_replaceable(out, known, problems, overwrite=overwrite)
    if isinstance(request, BaselineRequest):
        if distribution is not None:
            if request.train is not None:  # its errors are raised first
                read_training_data(Path(request.train), format_of_problems(problems))
            # Training takes most of the time, so one task does everything.
            distribution = replace(distribution.without_gpus(), tasks=1)
        jobs = [Job(request.name, request)]
    else:
        machine = None if distribution is None else machine_for(distribution, request.device)
        if preset is not None or distribution is not None:
            require_usable(request, problems, machine, entries=entries)
        single = Job(known.get("name", request.model), request, extra or {})
        jobs = [single] if preset is None else []
        for entry in entries:
            more = {"preset": preset, "short_name": entry.name, "group": entry.group}
            jobs.append(Job(entry.name, request_of(entry, request), more))
    folder = PREDICTIONS
    if preset is not None:
        folder, out = out or PREDICTIONS, None
    if distribution is not None:
        return _run_in_tasks(jobs, problems, distribution, out, folder, overwrite=overwrite)
    outcomes, failed = list[Outcome](), list[str]()
    for job in jobs:
        name, model_name = job.extra.get("short_name"), getattr(job.request, "model", "")
        if name is not None:
            log.info("%s (%s)", name, model_name)
        try:
            opened = open_files(job.request, problems, out=out, folder=folder, short_name=name)
            for model, asking in opened:
                ask = partial(asking.ask, model)
                outcomes.append(asking.complete(ask, job.extra, overwrite=overwrite))
        except (ValueError, OSError, RuntimeError, ImportError) as error:
            if name is None:
                raise
            failed.append(f"{name} ({model_name}): {error}")
            log.warning("failed: %s", failed[-1])
    return outcomes, failed, None


def _run_in_tasks(
    jobs: Sequence[Job],
    problems: pa.Table,
    distribution: Distribution,
    out: Path | None,
    folder: Path,
    *,
    overwrite: bool,
) -> Done:
    """Run models in tasks, each for one model; files do not depend on the number of tasks."""
    target = folder if out is None else out.parent
    placed, asked = list[Job](), list[Any]()
    for job in jobs:
        paths = _absolute_paths(job.request)
        placed.append(replace(job, request=replace(job.request, **paths)))
        asked.append([asdict(placed[-1]), *map(file_stamps, paths.values())])
    fingerprint = fingerprint_of({}, problems, problem_digests(problems))
    digest = digest_of([asked, fingerprint, str(out)])[:12]
    first = out.name if out is not None else jobs[0].extra.get("preset") or jobs[0].name
    work = (target / f".{slug(first.rpartition('/')[2])}.{digest}.tasks").absolute()
    check_output(work, is_folder=True)
    plan = {
        "jobs": {job.name: asdict(job) for job in placed},
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
        tasks = Task.all(max(1, distribution.tasks // len(jobs)))
        names = {job.name: [f"{job.name} {task}" for task in tasks] for job in jobs}
        error: ExecutorError | None = None
        try:
            results: Mapping[str, Any] = call_tasks(
                "merge_metric.predict.jobs:answer_task",
                work,
                list(chain.from_iterable(names.values())),
                replace(distribution, tasks=len(tasks) * len(jobs)),
                plan,
            )
        except ExecutorError as failed_tasks:
            results, error = failed_tasks.results, failed_tasks
        outcomes, failed = list[Outcome](), list[str]()
        parts = [problems] if out is not None else by_source(problems)
        for job in jobs:
            records = [results[name] for name in names[job.name] if name in results]
            if missing := len(tasks) - len(records):
                failed.append(f"{job.name}: {missing} of {len(tasks)} tasks did not finish")
                continue
            try:
                for part, of_file in zip(parts, zip(*records, strict=True), strict=True):
                    outcomes.append(_written(job, part, target, of_file, overwrite=overwrite))
            except (ValueError, OSError) as failure:
                failed.append(f"{job.name}: {failure}")
        if not failed:
            shutil.rmtree(work)
    return outcomes, failed, error


def _written(
    job: Job,
    problems: pa.Table,
    folder: Path,
    records: Sequence[Mapping[str, Any]],
    *,
    overwrite: bool,
) -> Outcome:
    first, *others = records
    for other in others:
        one, two = first["identity"], other["identity"]
        differing = [key for key in one | two if one.get(key) != two.get(key)]
        if differing or other["out"] != first["out"]:
            raise ValueError(
                f"expected the same model, device and versions in every task, got different "
                f"{', '.join(differing) or 'names'}; name them with `device`, `dtype` and "
                f"`revision`, and run the same command again"
            )
    known = Description(identity=first["identity"], facts=first["facts"])
    asking = Asking(known, problems, folder / first["out"], repeat_seeds=repeats_of(job.request))
    done = asking.complete(lambda: None, job.extra, overwrite=overwrite)
    warn_of_unknown(known.identity["name"], done.metadata.get("unknown_tokens", {}))
    return replace(
        done,
        inferred=sum(record["inferred"] for record in records),
        seconds=max(record["seconds"] for record in records),
    )


def _absolute_paths(request: ModelRequest | BaselineRequest) -> dict[str, Any]:
    """Make paths in the settings absolute if they exist, as tasks may run in another folder."""
    values = {name: getattr(request, name, None) for name in ("model", "shots", "train")}
    if Path(values["shots"] or "").suffix not in SHOT_FILES:  # a name, not a path
        del values["shots"]
    paths = {name: Path(value) for name, value in values.items() if value}
    return {name: str(path.absolute()) for name, path in paths.items() if path.exists()}


@keeps_result
def answer_task(folder: Path, task: str) -> list[dict[str, Any]]:
    """Ask a model about a task's pairs; return a record for each predictions file."""
    name, _, text = task.rpartition(" ")
    plan, path = plan_of(folder), folder / _PROBLEMS
    settings = plan["jobs"][name]["request"]
    request = (BaselineRequest if "train" in settings else ModelRequest)(**settings)
    problems = on_disk(read_row_groups(path), read_schema(path))
    if isinstance(request, ModelRequest):
        machine = this_machine(request.device)
        if machine.device != "cpu":  # the command could not know it
            require_usable(request, problems, machine)
    files = open_files(
        request,
        problems,
        out=plan["out"] and Path(plan["out"]),
        folder=Path(plan["folder"]),
        short_name=plan["jobs"][name]["extra"].get("short_name"),
    )
    records = []
    for model, asking in files:
        inferred, seconds = 0, 0.0
        if not asking.finished():
            asking.require_replaceable(overwrite=plan["overwrite"])
            inferred, seconds = asking.ask(model, task=Task.parse(text), progress=False)
        work = {"out": asking.out.name, "inferred": inferred, "seconds": seconds}
        records.append({**work, "identity": asking.known.identity, "facts": asking.facts})
    return records
