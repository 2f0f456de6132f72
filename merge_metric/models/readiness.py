"""Readiness of all models before a long run: can each be loaded, and is there enough room?"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from merge_dataset.executors.plan import EXECUTORS, Distribution
from merge_dataset.files import size_in_words
from merge_dataset.schema import LABELS
from merge_metric.models.checkpoints import require_libraries, resolve_device
from merge_metric.models.inspection import BYTES, CAUSAL_LM, CLASSIFIER, Head, Inspection, inspect
from merge_metric.models.label_order import read_order, written
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.presets import Preset, request_of

if TYPE_CHECKING:
    from merge_metric.tables import Table

_PROCESS: Final = 600_000_000
"""Bytes of memory of a process with torch and transformers, without a model."""
_CPU_COPIES: Final = 2
"""Copies of weights in memory during packing; like `_PROCESS`, measured by `make bench`."""
_AT_ONCE: Final = 8

NamedModel = tuple[str, ModelRequest, Head]
"""A model's name in a preset, or ""; its request; and the task to load it for."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Memory and disk that models have to fit into."""

    device: str
    memory_bytes: int | None
    """Total memory of the device in bytes; None if unknown."""
    owner: str = ""
    """Owner of the memory, as named in messages; by default the device."""
    remedy: str = "take another machine"


def model_of_preset(entry: Preset, request: ModelRequest) -> NamedModel:
    """Return the model that `predict --preset` loads for an entry, with these settings."""
    head = CAUSAL_LM if entry.kind == "lm" else CLASSIFIER
    return entry.name, request_of(entry, request), head


def inspect_models(
    models: Sequence[NamedModel], machine: Machine | None = None, labels: tuple[str, ...] = LABELS
) -> list[Inspection]:
    """Inspect models in parallel, to be run in sequence; problems are recorded, not raised."""
    require_libraries()

    def look(named: NamedModel) -> Inspection:
        short_name, request, head = named
        dtype = request.dtype or ("auto" if head.gguf else "float32")
        if dtype == "auto" and machine is not None:
            dtype = "bfloat16" if machine.device == "cuda" else "float32"
        inspection = inspect(
            request.model, head, revision=request.revision, gguf_file=request.gguf_file
        )
        sizes = [model.parameters for model in (inspection, inspection.base) if model is not None]
        copies = _CPU_COPIES if machine is None or machine.device == "cpu" else 1
        of_weights = sum(size or 0 for size in sizes) * BYTES.get(dtype, 4)
        room = None if None in sizes else _PROCESS + copies * of_weights
        shown, asks_seeds = "", False
        if head == CLASSIFIER and inspection.config:
            # The number of classes that are known only from the weights is checked on loading.
            names = inspection.class_names or [f"LABEL_{n}" for n in range(len(labels))]
            try:
                order = read_order(
                    dict(enumerate(names)), inspection.name, request.label_order, labels
                )
            except ValueError as error:
                inspection.problems.append(str(error))
            else:
                asks_seeds = order.source == "unknown"
                shown = f"{written(order.labels, labels)} ({order.source})"
                shown = "from the seeds" if asks_seeds else shown
        if machine is not None and (room or 0) > (machine.memory_bytes or math.inf):
            inspection.problems.append(
                f"needs about {size_in_words(room or 0)} of memory as {dtype}, "
                f"{machine.owner or machine.device} has {size_in_words(machine.memory_bytes or 0)}"
                f": {machine.remedy}, or --dtype bfloat16"
            )
        return replace(
            inspection, short_name=short_name, labels=shown, asks_seeds=asks_seeds, room=room
        )

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(look, models))


def require_all(looks: Sequence[Inspection], advice: str = "") -> None:
    """Raise ValueError with all problems of all models, if there are any."""
    wrong = [look for look in looks if look.problems]
    models_of: dict[str, list[str]] = {}  # a problem that several models have appears once
    for look in wrong:
        name, model = look.short_name, look.model
        shown = f"./{model}" if model.isidentifier() and Path(model).exists() else model
        if name and Path(model).name != Path(name).name:
            shown = f"{name} ({shown})"
        for problem in look.problems:
            about = problem.removeprefix(f"{name}: ").removeprefix(f"{model}: ")
            models_of.setdefault(about, []).append(shown)
    lines = [f"  {', '.join(names)}: {problem}" for problem, names in models_of.items()]
    head = f"{len(wrong)} of {len(looks)} models cannot be used as they are"
    if len(looks) == len(lines) == 1:
        raise ValueError("; ".join([lines[0].strip(), *([advice] if advice else [])]))
    if lines:
        raise ValueError("\n".join([f"{head}:", *lines, *([advice] if advice else [])]))


def this_machine(device: str) -> Machine:
    """Measure the memory of this machine or its container; unknown on systems that do not say."""
    resolved = "cpu" if device == "cpu" else resolve_device(device)
    if resolved.startswith("cuda"):
        import torch

        return Machine("cuda", torch.cuda.get_device_properties(resolved).total_memory)
    sizes = []
    with suppress(AttributeError, ValueError, OSError):
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such limit
            sizes.append(int(Path("/sys/fs/cgroup", limit).read_text(encoding="ascii")))
    return Machine(resolved.partition(":")[0], min(sizes, default=None))


def machine_for(distribution: Distribution | None, device: str) -> Machine:
    """Describe the machine on which a model runs: this one, part of it, or a cluster task's."""
    if distribution is None:
        return this_machine(device)
    resources = distribution.resources
    if EXECUTORS[distribution.executor].is_here:
        machine = this_machine(device)
        at_once = min(distribution.workers, distribution.tasks)
        has_own = machine.device != "cpu" and resources.gpus
        if machine.memory_bytes is None or at_once == 1 or has_own:
            return machine
        part, owner = machine.memory_bytes // at_once, f"each of {at_once} tasks at a time"
        return Machine(machine.device, part, owner, "take fewer --workers")
    has_gpu = device not in ("auto", "cpu") or (device == "auto" and resources.gpus > 0)
    memory = None if has_gpu or resources.memory_gb is None else resources.memory_gb * 2**30
    return Machine("cuda" if has_gpu else "cpu", memory, "a task", "give it more with --memory-gb")


def readiness_record(looks: Sequence[Inspection], left_out: Sequence[Preset]) -> dict[str, Any]:
    """Return all results as a JSON object; steps are those of loading beyond reading files."""
    models = []
    for inspection in looks:
        size, steps = inspection.download_bytes, list(inspection.notes)
        if size:
            steps.insert(0, f"downloads {size_in_words(size)}")
        if inspection.asks_seeds:
            steps.append("finds out the label order from the seeds' gold labels")
        models.append(
            {
                "model": inspection.model,
                "short_name": inspection.short_name or None,
                "kind": inspection.head.name,
                "commit": inspection.files.commit,
                "architecture": inspection.architecture or None,
                "weights": inspection.format or None,
                "tokenizer": inspection.tokenizer or None,
                "base": inspection.base.name if inspection.base else None,
                "labels": inspection.labels or None,
                "parameters": inspection.parameters,
                "download_bytes": size,
                "memory_bytes": inspection.room,
                "steps": steps,
                "problems": inspection.problems,
            }
        )
    absent = [{"model": p.model, "short_name": p.name, "reason": p.not_on_hub} for p in left_out]
    return {"models": models, "left_out": absent}


def readiness_table(record: Mapping[str, Any], reworded: Callable[[str], str]) -> Table:
    """Tabulate a record of `readiness_record`; `reworded` adapts the problems."""
    from merge_metric.tables import Column, Table

    models, rows = record["models"], []
    for model in models:
        name, memory = model["short_name"] or model["model"], model["memory_bytes"]
        problems = [text.removeprefix(f"{model['model']}: ") for text in model["problems"]]
        rows.append(
            model
            | {
                "model": name,
                "id": model["model"] if model["model"] != name else "",
                "memory": f"{memory / 10**9:.1f} GB" if memory else None,
                "loading": "; ".join(model["steps"]),
                "wrong": reworded("; ".join(problems)),
            }
        )
    keys = ("model", "kind", "weights", "tokenizer", "labels", "memory")
    columns = [Column(key, key) for key in keys]
    columns += [Column(key, key, "passage") for key in ("id", "loading", "wrong")]
    notes = [
        f"left out: {m['short_name']} ({m['model']}): {m['reason']}" for m in record["left_out"]
    ]
    # A model that is listed twice is counted once.
    if size := sum({model["model"]: model["download_bytes"] for model in models}.values()):
        notes.append(f"downloads in all: {size_in_words(size)}")
    wrong = sum(bool(model["problems"]) for model in models)
    count = f"{len(models)} model{'s' if len(models) != 1 else ''}"
    usable = f"{wrong} cannot be used as they are" if wrong else "all usable"
    return Table("models", f"{count}, {usable}", tuple(columns), tuple(rows), tuple(notes))
