"""Open models for a dataset's problems and run them, one or a list, a file for each source."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from merge_dataset.redaction import mask_urls
from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER
from merge_metric.models.label_order import ASKED_SEEDS, ENOUGH_SEEDS, check_order_asked
from merge_metric.models.opening import LabelledPairs, find_kind, open_model, require_settings_used
from merge_metric.models.pair_model import ModelRequest, PairModel
from merge_metric.models.presets import Preset
from merge_metric.models.readiness import (
    Machine,
    inspect_models,
    model_of_preset,
    require_all,
    this_machine,
)
from merge_metric.predict.baselines import BaselineRequest
from merge_metric.predict.driver import PREDICTIONS, Outcome, predict
from merge_metric.predict.problems import (
    SHOTS,
    description_of,
    format_of_problems,
    pairs_of,
    part_of_source,
    sample_seeds,
    seeds_of,
    sources_of,
)

log = logging.getLogger(__name__)


def open_for(request: ModelRequest, problems: pa.Table) -> PairModel:
    """Open a model for the problems that it will be asked about.

    Args:
        request: Which.
        problems: From `read_problems`. Few-shot examples depend on their sources; with
            `label_order` "seeds" some of their seeds may be asked about.

    Raises:
        ValueError: it cannot be used; the message says why.
    """
    model = open_model(
        request,
        problem_format=format_of_problems(problems),
        sources=sources_of(problems),
        seeds=partial(labelled_seeds, problems),
        held_out=description_of(problems).get(SHOTS),
    )
    if request.repeat_seeds:
        model.repeat_seeds = request.repeat_seeds  # type: ignore[attr-defined]  # see `PairModel`
    return model


def labelled_seeds(problems: pa.Table) -> LabelledPairs:
    """Draw seeds with their gold labels, to find out what a classifier's classes mean."""
    seeds = sample_seeds(seeds_of(problems), ASKED_SEEDS)
    return list(pairs_of(seeds)), seeds["label"].to_numpy()


def require_usable(
    request: ModelRequest,
    problems: pa.Table,
    machine: Machine | None = None,
    *,
    entries: Sequence[Preset] = (),
) -> None:
    """Inspect a model, or all of a list, before the first is run."""
    labels = format_of_problems(problems).labels
    check_order_asked(request.label_order, labels)
    machine = machine or this_machine(request.device)
    if entries:
        kinds: list[Any] = [each.kind for each in entries]
        models = [model_of_preset(each, request) for each in entries]
    else:
        kinds = [request.kind or find_kind(request)]
        models = [("", request, CLASSIFIER if kinds == ["classifier"] else CAUSAL_LM)]
    for kind in kinds:
        require_settings_used(request, kind)
    looks = inspect_models(models, machine, labels)
    asks = bool(entries) and any(look.asks_seeds for look in looks)
    if asks and (count := len(seeds_of(problems))) < ENOUGH_SEEDS:
        lack = (
            f"nothing says which class is which label; expected at least {ENOUGH_SEEDS} seeds to "
            f"find it out from, got {count}: take more, or give `label_order`"
        )
        for look in looks:
            if look.asks_seeds:
                look.problems.append(lack)
    good = [look.short_name for look in looks if not look.problems]
    require_all(looks, f"to run the others: --only {','.join(good)}" if good else "")


@dataclass(frozen=True, slots=True)
class Job:
    """A model or baseline to be run over all problems."""

    name: str
    request: ModelRequest | BaselineRequest
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More for the metadata; of a model of a list the list, its name and its group there."""


def run_here(
    jobs: Sequence[Job],
    problems: pa.Table,
    *,
    out: Path | None = None,
    folder: Path = PREDICTIONS,
    overwrite: bool = False,
) -> tuple[list[Outcome], list[str]]:
    """Run models one after another; one of a list that fails does not stop the others.

    It returns what was done, and for each model of a list that failed why. `out` is the file of
    the one job; by default there is one per job and source, in `folder`.
    """
    outcomes, failed = list[Outcome](), list[str]()
    for job in jobs:
        name, model_name = job.extra.get("short_name"), getattr(job.request, "model", "")
        if name is not None:
            log.info("%s (%s)", name, model_name)
        try:
            opened = open_files(job.request, problems, out=out, folder=folder, short_name=name)
            for model, part, path in opened:
                outcomes.append(predict(model, part, path, extra=job.extra, overwrite=overwrite))
        except (ValueError, OSError, RuntimeError, ImportError) as error:
            if name is None:
                raise
            failed.append(f"{name} ({model_name}): {error}")
            log.warning("failed: %s", failed[-1])
    return outcomes, failed


def open_files(
    request: ModelRequest | BaselineRequest,
    problems: pa.Table,
    *,
    out: Path | None,
    folder: Path = PREDICTIONS,
    short_name: str | None = None,
) -> Iterator[tuple[PairModel, pa.Table, Path]]:
    """Open a model, and yield it with the problems and the file of each source, or of all: `out`.

    Few-shot examples are those of the source, so that language models are opened for each, unless
    there is one file.
    """

    def files(model: PairModel, part: pa.Table) -> Iterator[tuple[PairModel, pa.Table, Path]]:
        for each in by_source(part) if out is None else [part]:
            yield model, each, out or folder / file_name(model.describe(), each, short_name)

    if isinstance(request, BaselineRequest):
        yield from files(request.open(problems), problems)
        return
    kind = request.kind or find_kind(request)
    for part in [problems] if kind == "classifier" or out is not None else by_source(problems):
        model = open_for(replace(request, kind=kind), part)
        with model if isinstance(model, AbstractContextManager) else nullcontext():
            yield from files(model, part)


def known_of(request: ModelRequest | BaselineRequest) -> dict[str, Any]:
    """Predict a model's description as far as it is known before loading: its name."""
    if isinstance(request, BaselineRequest):
        return {"name": request.name}
    path = Path(request.model)
    if request.gguf_file or path.suffix == ".gguf":
        return {}
    return {"name": path.resolve().name if path.is_dir() else mask_urls(request.model)}


def file_name(
    description: Mapping[str, Any], problems: pa.Table, short_name: str | None = None
) -> str:
    """Name the predictions file of a model, as it describes itself, for problems.

    Models, few-shot examples, configurations and samples of seeds have files of their own.

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
    """List the problems of each source."""
    sources = sources_of(problems)
    if len(sources) < 2:
        return [problems]
    return [part_of_source(problems, source) for source in sources]
