"""Named lists of models, and their readiness before a long run: can each be loaded, does it fit?"""

from __future__ import annotations

import logging
import math
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rich.filesize import decimal

from merge_dataset.executors import Distribution
from merge_dataset.schema import LABELS
from merge_dataset.settings import check_members
from merge_metric.models.checkpoints import resolve_device
from merge_metric.models.inspection import BYTES, CAUSAL_LM, CLASSIFIER, Head, Inspection, inspect
from merge_metric.models.label_order import read_order, written
from merge_metric.models.pair_model import ModelRequest

if TYPE_CHECKING:
    from merge_metric.tables import Table

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Preset:
    """A model of a list."""

    name: str
    """Short name, as in the paper's figures: `BERT-B-S`."""
    model: str
    group: str
    """Training data (`S`, `M` or `SMFA`), or `LLM`."""
    kind: Literal["classifier", "lm"] = "classifier"
    label_order: str | None = None
    """Labels of its classes; `seeds` if no document states them; None if its names are labels."""
    label_order_source: str | None = None
    not_on_hub: str | None = None


def read_presets(name: str, only: Sequence[str] = ()) -> list[Preset]:
    """Read the models of a list, in its order.

    Raises:
        ValueError: there is no such list, model or group.

    >>> [preset.name for preset in read_presets("paper", ["bert-b-s", "llm"])]
    ['BERT-B-S', 'Gemma-2-9b', 'Llama-3.1-8B']
    """
    lists = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
    check_members("preset", [name], lists)
    presets, wanted = [Preset(**entry) for entry in lists[name]], {*map(str.casefold, only)}
    names = {own.casefold(): own for p in presets for own in (p.name, p.group)}
    check_members("only", [names.get(own.casefold(), own) for own in only], names.values())
    return [p for p in presets if not only or {p.name.casefold(), p.group.casefold()} & wanted]


def request_of(entry: Preset, request: ModelRequest) -> ModelRequest:
    """Fill a preset's model into a request; without a document, seeds decide its label order."""
    order = "seeds" if entry.label_order == "seeds" else None
    if entry.kind == "classifier":  # what the list's language models are asked with is not for it
        order = request.label_order or order
        request = replace(request, shots="auto", prompt_start="", chat_template=False)
    return replace(request, model=entry.model, kind=entry.kind, label_order=order)


def on_hub(presets: Sequence[Preset], only: Sequence[str] = ()) -> list[Preset]:
    """Leave out models that are not on the Hub, with a message; raise if one was named."""
    named = {entry.casefold() for entry in only}
    missing = [preset for preset in presets if preset.not_on_hub]
    for preset in missing:
        if preset.name.casefold() in named or len(missing) == len(presets):
            raise ValueError(f"{preset.name}: cannot be run: {preset.not_on_hub}")
        log.warning("left out: %s: %s", preset.name, preset.not_on_hub)
    return [preset for preset in presets if not preset.not_on_hub]


# --- Readiness ---

_PROCESS: Final = 600_000_000
"""Bytes of memory of a process with torch and transformers, without a model."""
_CPU_COPIES: Final = 2
"""Copies of weights in memory during packing; like `_PROCESS`, measured by `make bench`."""
_AT_ONCE: Final = 8
_FACTS: Final = (
    "commit", "architecture", "weights", "tokenizer", "base", "labels",
    "parameters", "download_bytes", "memory_bytes",
)  # fmt: skip
"""Keys of a model's record that are None where inspection did not get so far."""

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
    models: Sequence[NamedModel], machine: Machine, labels: tuple[str, ...] = LABELS
) -> list[dict[str, Any]]:
    """Inspect models in parallel, to be run in sequence; return a record of each.

    `wrong` says why the model cannot be used, and is else empty; `asks_seeds`, whether its label
    order will be determined from the seeds' gold labels.
    """

    def look(named: NamedModel) -> dict[str, Any]:
        short_name, request, head = named
        model, steps = request.model, list[str]()
        record: dict[str, Any] = {"name": short_name or model, "model": model, "kind": head.name}
        record |= dict.fromkeys(_FACTS) | {"asks_seeds": False, "wrong": ""}
        try:
            checkpoint = inspect(
                model, head, revision=request.revision, gguf_file=request.gguf_file
            )
            is_half = head.gguf and machine.device == "cuda"
            dtype = request.dtype or ("bfloat16" if is_half else "float32")
            record |= _facts(checkpoint, machine, dtype)
            if size := checkpoint.download_bytes:
                steps.append(f"downloads {decimal(size)}")
            steps += checkpoint.notes
            if head == CLASSIFIER:
                classes = checkpoint.config.id2label
                order = read_order(classes, checkpoint.files.name, request.label_order, labels)
                record["labels"] = f"{written(order.labels, labels)} ({order.source})"
                if order.source == "unknown":
                    record |= {"asks_seeds": True, "labels": "from the seeds"}
                    steps.append("finds out the label order from the seeds' gold labels")
            needed, room = record["memory_bytes"] or 0, machine.memory_bytes or math.inf
            if needed > room:
                record["wrong"] = (
                    f"needs about {decimal(needed)} of memory as {dtype}, "
                    f"{machine.owner or machine.device} has {decimal(int(room))}: "
                    f"{machine.remedy}, or --dtype bfloat16"
                )
        except ValueError as error:
            text = str(error).removeprefix(f"{Path(model).name}: ").removeprefix(f"{model}: ")
            record["wrong"] = text
        return record | {"loading": "; ".join(steps)}

    import transformers  # noqa: F401 - the first import fails in threads that do it at once

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(look, models))


def _facts(checkpoint: Inspection, machine: Machine, dtype: str) -> dict[str, Any]:
    """Return what is there, and the memory that it takes with weights of a type."""
    weights, base, config = checkpoint.weights, checkpoint.base, checkpoint.config
    count, sizes = len(weights.names), [c.parameters for c in (checkpoint, base) if c is not None]
    copies = _CPU_COPIES if machine.device == "cpu" else 1
    needed = _PROCESS + copies * sum(size or 0 for size in sizes) * BYTES[dtype]
    return {
        "commit": checkpoint.files.commit,
        "architecture": next(iter((config and config.architectures) or ()), None),
        "weights": weights.format + (f", {count} files" if count > 1 else ""),
        "tokenizer": checkpoint.tokenizer,
        "base": base and base.files.name,
        "parameters": checkpoint.parameters,
        "download_bytes": checkpoint.download_bytes,
        "memory_bytes": None if None in sizes else needed,
    }


def require_all(looks: Sequence[Mapping[str, Any]], advice: str = "") -> None:
    """Raise ValueError with what is wrong with any model, if anything is."""
    wrong = [look for look in looks if look["wrong"]]
    models_of: dict[str, list[str]] = {}  # what is wrong with several models appears once
    for look in wrong:
        name, model = look["name"], look["model"]
        shown = f"./{model}" if model.isidentifier() and Path(model).exists() else model
        shown = shown if Path(model).name == Path(name).name else f"{name} ({shown})"
        models_of.setdefault(look["wrong"], []).append(shown)
    if wrong:
        lines = [f"{', '.join(names)}: {problem}" for problem, names in models_of.items()]
        end = advice and (f"; {advice}" if len(looks) == 1 else f"\n{advice}")
        head = f"{len(wrong)} of {len(looks)} models cannot be used as they are:"
        raise ValueError("\n  ".join([head, *lines] if len(looks) > 1 else lines) + end)


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
    if distribution is None or distribution.executor == "local":
        machine = this_machine(device)
        at_once = min(distribution.workers, distribution.tasks) if distribution else 1
        has_own = machine.device != "cpu" and distribution and distribution.gpus
        if machine.memory_bytes is None or at_once == 1 or has_own:
            return machine
        part, owner = machine.memory_bytes // at_once, f"each of {at_once} tasks at a time"
        return Machine(machine.device, part, owner, "take fewer --workers")
    has_gpu = device not in ("auto", "cpu") or (device == "auto" and distribution.gpus > 0)
    memory = None if has_gpu or distribution.memory_gb is None else distribution.memory_gb * 2**30
    return Machine("cuda" if has_gpu else "cpu", memory, "a task", "give it more with --memory-gb")


def readiness_table(
    looks: Sequence[Mapping[str, Any]], left_out: Sequence[Preset], reworded: Callable[[str], str]
) -> Table:
    """Tabulate records of models; `reworded` adapts what is wrong to the interface in use."""
    from merge_metric.tables import Column, Table

    rows = [
        {
            **look,
            "id": look["model"] if look["model"] != look["name"] else "",
            "memory": f"{look['memory_bytes'] / 10**9:.1f} GB" if look["memory_bytes"] else None,
            "wrong": reworded(look["wrong"]),
        }
        for look in looks
    ]
    columns = [Column("name", "model")]
    columns += [Column(key, key) for key in ("kind", "weights", "tokenizer", "labels", "memory")]
    columns += [Column(key, key, "passage") for key in ("id", "loading", "wrong")]
    notes = [f"left out: {p.name} ({p.model}): {p.not_on_hub}" for p in left_out]
    # A model that is listed twice is counted once.
    if size := sum({look["model"]: look["download_bytes"] or 0 for look in looks}.values()):
        notes.append(f"downloads in all: {decimal(size)}")
    wrong = sum(bool(look["wrong"]) for look in looks)
    count = f"{len(looks)} model{'s' if len(looks) != 1 else ''}"
    usable = f"{wrong} cannot be used as they are" if wrong else "all usable"
    return Table("models", f"{count}, {usable}", tuple(columns), tuple(rows), tuple(notes))
