"""Runs of one model or a list of models over a dataset's problems, with a file per source.

Models run in this process or in tasks: a task asks a model about its blocks of questions, and this
process writes the files. A call has a folder beside the predictions, which is removed when all
files are written; stores hold the answers.
"""

import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa

from merge_dataset.answer_store import slug
from merge_dataset.executors import Distribution, ExecutorError, Task
from merge_dataset.executors.calls import plan_of, run_blocks
from merge_dataset.files import (
    RowGroupWriter,
    atomic,
    read_row_groups,
    read_schema,
    working_in,
)
from merge_dataset.redaction import mask_urls
from merge_dataset.settings import from_mapping
from merge_metric.frame.predictions import read_metadata
from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER
from merge_metric.models.label_order import ASKED_SEEDS, ENOUGH_SEEDS, SEEDS, check_order_asked
from merge_metric.models.loading import LabelledPairs, find_kind, open_model, require_settings_used
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
    other_predictions,
)
from merge_metric.predict.problems import (
    SHOTS,
    Pairs,
    asked_format,
    description_of,
    format_of_problems,
    on_disk,
    part_of_source,
    sample_seeds,
    seeds_of,
    sources_of,
)

log = logging.getLogger(__name__)

_PROBLEMS: Final = "problems.parquet"

Request = ModelRequest | BaselineRequest

Job = tuple[Request, Mapping[str, Any]]
"""Model or baseline to run over all problems, and more for the metadata, as its name in a list."""

Done = tuple[list[Outcome], list[str], ExecutorError | None]
"""Outcomes of models, reasons why others failed, and tasks that failed."""


# --- Opening models ---


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
    return list(Pairs(seeds)), seeds["label"].to_numpy()


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
    kinds: list[Any] = [entry.kind for entry in entries] or [request.kind or find_kind(request)]
    models = [model_of_preset(entry, request) for entry in entries]
    for kind in kinds:
        require_settings_used(request, kind)
    alone = ("", request, CLASSIFIER if kinds == ["classifier"] else CAUSAL_LM)
    looks = inspect_models(models or [alone], machine or this_machine(request.device), labels)
    if entries and (count := len(seeds_of(problems))) < ENOUGH_SEEDS:
        for look in looks:
            if look["asks_seeds"]:
                look["wrong"] = look["wrong"] or (
                    f"nothing says which class is which label; expected at least {ENOUGH_SEEDS} "
                    f"seeds to find it out from, got {count}: take more, or give `label_order`"
                )
    good = [look["name"] for look in looks if not look["wrong"]]
    require_all(looks, f"to run the others: --only {','.join(good)}" if good else "")


def open_files(
    job: Job, problems: pa.Table, out: Path | None, folder: Path = PREDICTIONS
) -> Iterator[tuple[Model, Asking]]:
    """Open a model; yield it with the questions of each source's file, or of `out` for all."""
    (request, more), model = job, None
    if isinstance(request, BaselineRequest):
        model = request.open(problems)
    else:
        request = replace(request, kind=request.kind or find_kind(request))
        if request.kind == "classifier":
            model = open_for(request, problems)
    for part in by_source(problems, out):
        # The examples that a language model is shown depend on the source.
        asked = model or open_for(cast(ModelRequest, request), part)
        known = asked.describe()
        file = out or folder / file_name(known.identity, part, more.get("short_name"))
        yield asked, Asking(known, part, file, repeat_seeds=request.repeat_seeds)


def by_source(problems: pa.Table, out: Path | None = None) -> list[pa.Table]:
    """Split the problems by source, unless one file is for all."""
    sources = sources_of(problems)
    if out is not None or len(sources) < 2:
        return [problems]
    return [part_of_source(problems, source) for source in sources]


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


# --- Runs ---


def run_models(
    request: Request,
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
    folder = PREDICTIONS
    if isinstance(request, BaselineRequest):
        jobs: dict[str, Job] = {request.name: (request, {})}
        if distribution is not None:
            if request.train is not None:  # its errors are raised first
                read_training_data(Path(request.train), format_of_problems(problems))
            # Training takes most of the time, so one task does everything.
            distribution = replace(distribution.without_gpus(), tasks=1)
    else:
        jobs = {
            entry.name: (
                request_of(entry, request),
                {"preset": preset, "short_name": entry.name, "group": entry.group},
            )
            for entry in entries
        }
        if preset is not None:
            folder, out = out or PREDICTIONS, None
        else:
            is_folder = Path(request.model).is_dir()
            name = Path(request.model).resolve().name if is_folder else mask_urls(request.model)
            jobs = {name: (request, extra or {})}
        if distribution is not None and request.base_url:
            raise ValueError(
                "executor: expected a model that tasks load, got one on a server, which is asked "
                "from here: with more requests at a time, see `concurrency`"
            )
        if preset is not None or distribution is not None:
            machine = None if distribution is None else machine_for(distribution, request.device)
            require_usable(request, problems, machine, entries=entries)
    if out is not None and out.exists() and not overwrite:
        recorded, (name,) = read_metadata(out), jobs  # before a model is loaded, or tasks wait
        is_gguf = name.endswith(".gguf") or getattr(request, "gguf_file", None)
        if recorded.get("name") != name and not is_gguf:
            raise other_predictions(out, recorded, ["name"])
    if distribution is not None:
        return _run_in_tasks(jobs, problems, distribution, out, folder, overwrite=overwrite)
    outcomes, failed = list[Outcome](), list[str]()
    for name, job in jobs.items():
        shown = f"{name} ({getattr(job[0], 'model', '')})"
        if preset is not None:
            log.info(shown)
        try:
            for model, asking in open_files(job, problems, out, folder):
                ask = partial(asking.ask, model)
                outcomes.append(asking.complete(ask, job[1], overwrite=overwrite))
        except (ValueError, OSError, RuntimeError, ImportError) as error:
            if preset is None:
                raise
            failed.append(f"{shown}: {error}")
            log.warning("failed: %s", failed[-1])
    return outcomes, failed, None


def _run_in_tasks(
    jobs: Mapping[str, Job],
    problems: pa.Table,
    distribution: Distribution,
    out: Path | None,
    folder: Path,
    *,
    overwrite: bool,
) -> Done:
    """Run models in tasks, each for one model; files do not depend on the number of tasks."""
    folder = folder if out is None else out.parent
    placed = {
        name: (asdict(replace(request, **_absolute_paths(request))), dict(extra))
        for name, (request, extra) in jobs.items()
    }
    called = (
        out.name
        if out is not None
        else next(extra.get("preset", name.rpartition("/")[2]) for name, (_, extra) in jobs.items())
    )
    work = (folder / f".{slug(called)}.tasks").absolute()
    plan = {
        "jobs": placed,
        "out": out and str(out.absolute()),
        "folder": str(folder.absolute()),
        "overwrite": overwrite,
    }
    tasks = Task.all(max(1, distribution.tasks // len(jobs)))
    outcomes, failed = list[Outcome](), list[str]()
    with working_in(work):
        with (
            atomic(work / _PROBLEMS) as temporary,
            RowGroupWriter(temporary, problems.schema, problems.schema.metadata) as writer,
        ):
            writer.write(problems)
        error: ExecutorError | None = None
        try:
            results: Mapping[str, Any] = run_blocks(
                "merge_metric.predict.jobs:answer_task",
                work,
                [f"{name} {task}" for name in jobs for task in tasks],
                replace(distribution, tasks=len(tasks) * len(jobs)),
                plan,
            )
        except ExecutorError as failed_tasks:
            results, error = failed_tasks.results, failed_tasks
        for name, (request, extra) in jobs.items():
            named = [f"{name} {task}" for task in tasks]
            records = [results[task] for task in named if task in results]
            if missing := len(tasks) - len(records):
                failed.append(f"{name}: {missing} of {len(tasks)} tasks did not finish")
                continue
            parts = zip(by_source(problems, out), zip(*records, strict=True), strict=True)
            try:
                for part, of_file in parts:
                    known = _common_description(of_file)
                    file, repeats = folder / of_file[0]["out"], request.repeat_seeds
                    asking = Asking(known, part, file, repeat_seeds=repeats)
                    done = asking.complete(lambda: (0, 0.0), extra, overwrite=overwrite)
                    inferred = sum(record["inferred"] for record in of_file)
                    seconds = max(record["seconds"] for record in of_file)
                    outcomes.append(replace(done, inferred=inferred, seconds=seconds))
                    warn_of_unknown(known.identity["name"], done.metadata.get("unknown_tokens", {}))
            except (ValueError, OSError) as failure:
                failed.append(f"{name}: {failure}")
        if not failed:
            shutil.rmtree(work)
    return outcomes, failed, error


def _common_description(records: Sequence[Mapping[str, Any]]) -> Description:
    """Return the description of the model that all tasks asked; raise ValueError for several."""
    first = records[0]
    one = {**first["identity"], "names": first["out"]}
    for record in records[1:]:
        two = {**record["identity"], "names": record["out"]}
        if differing := [key for key in one | two if one.get(key) != two.get(key)]:
            raise ValueError(
                f"expected the same model, device and versions in every task, got different "
                f"{', '.join(differing)}; name them with `device`, `dtype` and `revision`, and "
                "run the same command again"
            )
    return Description(identity=first["identity"], facts=first["facts"])


def _absolute_paths(request: Request) -> dict[str, Any]:
    """Make paths in the settings absolute if they exist, as tasks may run in another folder."""
    values = {name: getattr(request, name, None) for name in ("model", "shots", "train")}
    if Path(values["shots"] or "").suffix not in SHOT_FILES:  # a name, not a path
        del values["shots"]
    paths = {name: Path(value) for name, value in values.items() if value}
    return {name: str(path.absolute()) for name, path in paths.items() if path.exists()}


def answer_task(folder: Path, named: str) -> list[dict[str, Any]]:
    """Ask a model about a task's pairs; return a record for each predictions file."""
    name, _, task = named.rpartition(" ")
    plan, path = plan_of(folder), folder / _PROBLEMS
    settings, extra = plan["jobs"][name]
    kind: type[BaselineRequest | ModelRequest]
    kind = BaselineRequest if "train" in settings else ModelRequest
    request = from_mapping(kind, settings)
    problems = on_disk(read_row_groups(path), read_schema(path))
    if isinstance(request, ModelRequest):
        machine = this_machine(request.device)
        if machine.device != "cpu":  # the command could not know it
            require_usable(request, problems, machine)
    out = plan["out"] and Path(plan["out"])
    records = []
    for model, asking in open_files((request, extra), problems, out, Path(plan["folder"])):
        inferred, seconds = 0, 0.0
        if not asking.finished(overwrite=plan["overwrite"]):
            inferred, seconds = asking.ask(model, task=Task.parse(task), progress=False)
        work = {"out": asking.out.name, "inferred": inferred, "seconds": seconds}
        records.append({**work, "identity": asking.known.identity, "facts": asking.facts})
    return records
