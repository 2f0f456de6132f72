"""Runs of one model or a list of models over a dataset's problems, with a file per source.

Models run in this process or in tasks: a task asks a model about its blocks of questions, and this
process writes the files. A call has a folder beside the predictions, which is removed when all
files are written; stores hold the answers.
"""

import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from merge_dataset.answer_store import slug
from merge_dataset.executors import Distribution, ExecutorError, Task, plan_of, run_blocks
from merge_dataset.files import atomic, working_in
from merge_dataset.redaction import mask_urls
from merge_dataset.settings import from_mapping
from merge_metric.frame.noise import cost_of
from merge_metric.frame.predictions import read_metadata, suffix_of
from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER
from merge_metric.models.label_order import ASKED_SEEDS, SEEDS
from merge_metric.models.loading import LabelledPairs, find_kind, open_model, require_settings_used
from merge_metric.models.pair_model import Description, Model, ModelRequest
from merge_metric.models.readiness import (
    Machine,
    NamedModel,
    Preset,
    inspect_models,
    machine_for,
    request_of,
    require_all,
    this_machine,
)
from merge_metric.models.tokens import warn_of_unknown
from merge_metric.predict.baselines import open_baseline
from merge_metric.predict.driver import PREDICTIONS, Asking, Outcome, other_predictions
from merge_metric.predict.problems import (
    SHOTS,
    Pairs,
    asked_format,
    description_of,
    format_of_problems,
    mapped,
    part_of_source,
    sample_seeds,
    seeds_of,
    sources_of,
    write_stream,
)

log = logging.getLogger(__name__)

_PROBLEMS: Final = "problems.arrows"
_CHARACTERS: Final = 4
"""Approximate number of characters per token of English."""

Job = tuple[ModelRequest, Mapping[str, Any]]
"""Model to run over all problems, and more for the metadata, such as the `preset` it is of."""

Ask = Callable[[], tuple[int, float]]
"""Function that gets missing answers; it returns their number, and the seconds that it took."""

Files = Iterator[tuple[Asking, Ask]]
"""Predictions files of a model, with the function that gets what is missing of each."""

Done = tuple[list[Outcome], list[str]]
"""Outcomes of models, and reasons why others failed."""


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
    if request.kind == "baseline":
        return open_baseline(request.model, request.train, problems)
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


def require_usable(jobs: Mapping[str, Job], problems: pa.Table, machine: Machine) -> None:
    """Inspect models, by their names, before the first one runs."""
    labels, models = asked_format(problems).labels, list[NamedModel]()
    for name, (request, _) in jobs.items():
        kind = request.kind or find_kind(request)
        require_settings_used(request, kind)
        models.append((name, request, CLASSIFIER if kind == "classifier" else CAUSAL_LM))
    looks = inspect_models(models, machine, labels)
    good = [look["name"] for look in looks if not look["wrong"]]
    require_all(looks, f"to run the others: --only {','.join(good)}" if good else "")


def parts_of(job: Job, problems: pa.Table, out: Path | None) -> list[pa.Table]:
    """Split the problems by source, unless `out` is a file for all, not a folder, as of a list."""
    sources = sources_of(problems)
    if len(sources) < 2 or (out is not None and "preset" not in job[1]):
        return [problems]
    return [part_of_source(problems, source) for source in sources]


def open_files(job: Job, problems: pa.Table, out: Path | None) -> Iterator[tuple[Model, Asking]]:
    """Open a model; yield it with the questions of each file, `out` or, of a list, files in it."""
    (request, more), model = job, None
    request = replace(request, kind=request.kind or find_kind(request))
    if request.kind in ("classifier", "baseline"):
        model = open_for(request, problems)
    for part in parts_of(job, problems, out):
        # The examples that a language model is shown depend on the source.
        asked = model or open_for(request, part)
        known = asked.describe()
        file = out
        if file is None or "preset" in more:
            name = file_name(known.identity, part, more.get("short_name"))
            file = (out or PREDICTIONS) / name
        yield asked, Asking(known, part, file, repeat_seeds=request.repeat_seeds)


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


# --- Costs ---


def estimate_costs(
    opened: Iterable[tuple[Model, Asking]],
    *,
    prices: tuple[float, float] | None = None,
    tokenizer: Path | None = None,
) -> dict[str, Any]:
    """Estimate the rest of a run: requests, tokens and, if prices are given, the cost."""
    count, counted_by = len, f"{_CHARACTERS} characters a token"
    if tokenizer is not None:
        from tokenizers import Tokenizer

        reader, counted_by = Tokenizer.from_file(str(tokenizer)), str(tokenizer)
        count = lambda text: len(reader.encode(text).ids) * _CHARACTERS  # noqa: E731
    requests = prompt_tokens = answer_tokens = 0
    for _, asking in opened:
        known, prompt = asking.known, asking.known.prompt
        if prompt is None or known.answer_tokens is None:
            raise ValueError(
                "dry_run: expected a language model, which is asked by prompts, and a limit of an "
                "answer's tokens, such as `server_settings` max_completion_tokens=N"
            )
        pairs = asking.pairs.at(asking.asked[asking.unanswered()])
        requests += len(pairs) * known.samples
        answer_tokens += len(pairs) * known.samples * known.answer_tokens
        for pair in pairs:
            messages = prompt.messages(*pair) if known.chat else [{"content": prompt.text(*pair)}]
            length = sum(count(message["content"]) for message in messages)
            prompt_tokens += -(-length // _CHARACTERS) * known.samples
    costs: dict[str, Any] = {
        "requests": requests,
        "prompt_tokens": prompt_tokens,
        "counted_by": counted_by,
        "most_answer_tokens": answer_tokens,
    }
    if prices:
        costs["most_cost"] = cost_of(prices, prompt_tokens, answer_tokens)
    return costs


# --- Runs ---


def jobs_of(
    request: ModelRequest,
    preset: str | None = None,
    entries: Sequence[Preset] = (),
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Job]:
    """Name the model of a request, or the models of a list that it is the settings of."""
    if preset is None:
        path = Path(request.model)
        name = path.resolve().name if path.is_dir() else mask_urls(request.model)
        return {name: (request, extra or {})}
    more = {e.name: {"preset": preset, "short_name": e.name, "group": e.group} for e in entries}
    return {entry.name: (request_of(entry, request), more[entry.name]) for entry in entries}


def run_models(
    jobs: Mapping[str, Job],
    problems: pa.Table,
    *,
    distribution: Distribution | None = None,
    out: Path | None = None,
    overwrite: bool = False,
) -> Done:
    """Inspect models and run them, here or in tasks; files do not depend on the tasks.

    `out` is a file for all sources or, of a list, the folder of all files. In a list, a model that
    fails does not stop the others.
    """
    first, (request, extra) = next(iter(jobs.items()))
    is_file, is_dealt = out is not None and "preset" not in extra, distribution is not None
    if is_dealt and request.base_url:
        raise ValueError(
            "executor: expected a model that tasks load, got one on a server, which is asked "
            "from here: with more requests at a time, see `concurrency`"
        )
    if request.kind != "baseline" and (is_dealt or "preset" in extra):
        require_usable(jobs, problems, machine_for(distribution, request.device))
    if out is not None and is_file and suffix_of(out) and out.exists() and not overwrite:
        recorded = read_metadata(out)  # before a model is loaded, or tasks wait
        if recorded.get("name") != first and not (first.endswith(".gguf") or request.gguf_file):
            raise other_predictions(out, recorded, ["name"])
    if distribution is None:

        def asked_here(name: str) -> Files:
            for model, asking in open_files(jobs[name], problems, out):
                yield asking, partial(asking.ask, model, prices=jobs[name][1].get("prices"))

        return _complete(jobs, asked_here, overwrite)
    called = out.name if out and is_file else extra.get("preset") or first.rpartition("/")[2]
    folder = out.parent if out and is_file else out or PREDICTIONS
    work = folder / f".{slug(called)}.tasks"
    with working_in(work):
        with atomic(work / _PROBLEMS) as temporary, temporary.open("wb") as file:
            write_stream(file, [problems], problems.schema)
        tasks = Task.all(max(1, distribution.tasks // len(jobs)))
        blocks = [f"{name} {task}" for name in jobs for task in tasks]
        requests = {name: (asdict(request), dict(more)) for name, (request, more) in jobs.items()}
        try:
            results: Mapping[str, Any] = run_blocks(
                "merge_metric.predict.jobs:answer_task",
                work,
                blocks,
                replace(distribution, tasks=len(blocks)),
                {"jobs": requests, "out": out and str(out), "overwrite": overwrite},
            )
        except ExecutorError as error:
            log.error("error: %s", error)
            results = error.results
        reports = {name: [results.get(f"{name} {task}") for task in tasks] for name in jobs}
        done = _complete(
            jobs, lambda name: _asked_in_tasks(reports[name], jobs[name], problems, out), overwrite
        )
        if not done[1]:
            shutil.rmtree(work)
    return done


def _complete(jobs: Mapping[str, Job], files_of: Callable[[str], Files], overwrite: bool) -> Done:
    """Complete the files of models, given their names; of several models, some may fail."""
    caught = (ValueError, OSError, RuntimeError, ImportError) if len(jobs) > 1 else ()
    outcomes, failed = list[Outcome](), list[str]()
    for name, (request, extra) in jobs.items():
        shown = name if request.model == name else f"{name} ({request.model})"
        if "preset" in extra:
            log.info(shown)
        try:
            for asking, ask in files_of(name):
                outcomes.append(asking.complete(ask, extra, overwrite=overwrite))
        except caught as error:
            failed.append(f"{shown}: {error}")
            log.warning("failed: %s", failed[-1])
    return outcomes, failed


def _asked_in_tasks(
    reports: Sequence[Any], job: Job, problems: pa.Table, out: Path | None
) -> Files:
    if missing := reports.count(None):
        raise ExecutorError(f"{missing} of {len(reports)} tasks did not finish")
    for part, of_file in zip(parts_of(job, problems, out), zip(*reports, strict=True), strict=True):
        first, *others = ({**report["identity"], "names": report["out"]} for report in of_file)
        names = {key for other in others for key in first | other}
        if differing := [n for n in names if any(first.get(n) != o.get(n) for o in others)]:
            raise ExecutorError(
                f"expected the same model, device and versions in every task, got different "
                f"{', '.join(sorted(differing))}; name them with `device`, `dtype` and `revision`, "
                "and run the same command again"
            )
        known = Description(identity=of_file[0]["identity"], facts=of_file[0]["facts"])
        file, repeats = Path(of_file[0]["out"]), job[0].repeat_seeds
        count = sum(report["inferred"] for report in of_file)
        work = count, max(report["seconds"] for report in of_file)
        yield Asking(known, part, file, repeat_seeds=repeats), partial(tuple, work)
        of_model = read_metadata(file)  # the tasks' logs had the warning
        warn_of_unknown(of_model["name"], of_model.get("unknown_tokens", {}))


def answer_task(folder: Path, named: str) -> list[dict[str, Any]]:
    """Ask a model about a task's pairs; return a record for each predictions file."""
    name, _, task = named.rpartition(" ")
    plan = plan_of(folder)
    settings, extra = plan["jobs"][name]
    request, out = from_mapping(ModelRequest, settings), plan["out"] and Path(plan["out"])
    with (folder / _PROBLEMS).open("rb") as file:
        problems = mapped(file)
    job = request, extra
    if request.kind != "baseline" and (machine := this_machine(request.device)).device != "cpu":
        require_usable({name: job}, problems, machine)  # the command could not know the device
    records = []
    for model, asking in open_files(job, problems, out):
        inferred, seconds = 0, 0.0
        if not asking.finished(overwrite=plan["overwrite"]):
            inferred, seconds = asking.ask(model, task=Task.parse(task), progress=False)
        work = {"out": str(asking.out), "inferred": inferred, "seconds": seconds}
        records.append({**work, "identity": asking.known.identity, "facts": asking.facts})
    return records
