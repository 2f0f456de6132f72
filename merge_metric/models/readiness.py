"""Looking at models before a long run begins: can each be loaded, and is there room for it?

`inspection` tells what lies at a name; here is what a run adds: the label order that is asked
for, the machine, and that all models are looked at before any is complained about.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from merge_dataset.executors.plan import Distribution
from merge_dataset.schema import LABELS
from merge_metric.models.adapters import read_adapter
from merge_metric.models.checkpoints import require_libraries
from merge_metric.models.heads import CAUSAL_LM, CLASSIFIER, HEADS, Head
from merge_metric.models.inspection import Inspection, inspect
from merge_metric.models.label_order import (
    SEEDS,
    check_classes,
    parse_order,
    read_order,
    unknown_order,
    written,
)
from merge_metric.models.presets import Preset

_PROCESS: Final = 600_000_000
"""Bytes of a process with torch and transformers, before a model."""
_CPU_COPIES: Final = 2
"""Copies of the weights while they are packed for a CPU. Both as `make bench` measured masked LMs
of 50 to 360 million parameters: 0.6 GB and twice the weights, to within a tenth."""
_AT_ONCE: Final = 8
"""Models that are looked at at the same time: the Hub's answers are waited for."""
_ARCHITECTURES: Final = {
    "SEQ_CLS": "ForSequenceClassification",
    "CAUSAL_LM": "ForCausalLM",
    "SEQ_2_SEQ_LM": "ForConditionalGeneration",
}
"""Task of an adapter, as peft calls it → how the architecture that it makes ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A model that a run will load, and how."""

    model: str
    """Directory, Hub id with an optional `@revision`, or a .gguf file."""
    head: Head
    short_name: str = ""
    """Name in a list of models."""
    revision: str | None = None
    gguf_file: str | None = None
    dtype: str = "float32"
    label_order: str | None = None
    """The order that is asked for, of a classifier's classes."""
    labels: tuple[str, ...] = LABELS
    """The labels of the problems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A model as it was found."""

    wanted: Wanted
    found: Inspection
    labels: str = ""
    """A classifier's labels and how they are known, in words."""
    asks_seeds: bool = False
    """Whether its label order is to be found out from the seeds' gold labels."""
    steps: tuple[str, ...] = ()
    """Steps that loading takes beyond reading files."""
    problems: tuple[str, ...] = ()
    """Reasons why it cannot be used; empty if it can, as far as can be told beforehand."""
    memory_bytes: int | None = None
    """Bytes of memory that it takes to load and run it, roughly."""

    @property
    def kind(self) -> str:
        """Task that it is wanted for, in a few words."""
        return self.wanted.head.described.partition(" ")[2].partition(" (")[0]

    @property
    def record(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        found = self.found
        return {
            "model": self.wanted.model,
            "short_name": self.wanted.short_name or None,
            "kind": self.kind,
            "commit": found.commit,
            "architecture": found.architecture or None,
            "weights": found.format or None,
            "tokenizer": found.tokenizer or None,
            "base": found.base.name if found.base else None,
            "labels": self.labels or None,
            "parameters": found.parameters,
            "download_bytes": found.download_bytes,
            "memory_bytes": self.memory_bytes,
            "steps": list(self.steps),
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class Machine:
    """Memory and disk that models have to fit into."""

    device: str
    """Type of the device: `cpu`, `cuda`, `mps`."""
    memory_bytes: int | None
    """The device's memory in all; None where it cannot be told."""
    disk_bytes: int | None
    """Free bytes where the Hub's files are kept; None where it cannot be told."""
    owner: str = ""
    """Name for messages of the one that has the memory; by default the device."""
    remedy: str = "take another machine"
    """Advice where it is too little."""


def wanted_of(model: str, heads: Sequence[Head] = HEADS, **more: Any) -> Wanted:
    """Find out from its configuration what a model is for.

    Args:
        model: Directory, Hub id with an optional `@revision`, or a .gguf file.
        heads: What it can be for; a classifier if nothing says it.
        more: Fields of `Wanted`.
    """
    if model.endswith(".gguf"):
        return Wanted(model=model, head=CAUSAL_LM, **more)
    found = inspect(model, CLASSIFIER, revision=more.get("revision"))
    architecture = found.architecture
    if found.base is not None and found.files is not None:  # whose head an adapter may replace
        task = str(read_adapter(found.files).config.get("task_type"))
        architecture = _ARCHITECTURES.get(task, architecture)
    fitting = (head for head in heads if architecture.endswith(head.architectures))
    return Wanted(model=model, head=next(fitting, CLASSIFIER), **more)


def wanted_of_preset(
    preset: Preset,
    *,
    dtype: str | None,
    label_order: str | None,
    labels: tuple[str, ...] = LABELS,
) -> Wanted:
    """Tell what `predict --preset` will load.

    Args:
        preset: A model of a list.
        dtype: Type of the weights, where one is asked for.
        label_order: The order that is asked for, of classifiers.
        labels: The labels of the problems.
    """
    if preset.kind == "lm":
        return Wanted(model=preset.model, head=CAUSAL_LM, short_name=preset.name,
                      dtype=dtype or "auto")  # fmt: skip
    order = label_order or (SEEDS if preset.label_order == SEEDS else None)
    return Wanted(model=preset.model, head=CLASSIFIER, short_name=preset.name,
                  dtype=dtype or "float32", label_order=order, labels=labels)  # fmt: skip


def look_at(wanted: Sequence[Wanted], machine: Machine | None = None) -> list[Look]:
    """Look at models side by side; what is wrong is told, not raised.

    Args:
        wanted: The models, in any order.
        machine: The machine that will run them one after another; None where it is another one.

    Raises:
        ModuleNotFoundError: what models are loaded with is not installed.
    """
    require_libraries()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda each: _look(each, machine), wanted))


def require_all(looks: Sequence[Look], machine: Machine | None = None, advice: str = "") -> None:
    """Raise where a model cannot be used, with all that is wrong with all of them.

    Args:
        looks: From `look_at`.
        machine: Where they are downloaded to.
        advice: What else to do, for the end of the message.

    Raises:
        ValueError: a model cannot be used, or the disk has no room for them.
    """
    wrong = [look for look in looks if look.problems]
    lines = [f"  {line}" for line in _by_problem(wrong)]
    head = f"{len(wrong)} of {len(looks)} models cannot be used as they are"
    if machine is not None and (full := describe_full_disk(looks, machine)):
        lines.append(f"  {full}")
        head = head if wrong else "there is no room for the models"
    if len(looks) == len(lines) == 1:
        raise ValueError("; ".join([lines[0].strip(), *([advice] if advice else [])]))
    if lines:
        raise ValueError("\n".join([f"{head}:", *lines, *([advice] if advice else [])]))


def bytes_to_download(looks: Sequence[Look]) -> int:
    """Sum up the bytes of the files that are not on this machine yet."""
    return sum(
        look.found.download_bytes for look in {look.found.name: look for look in looks}.values()
    )


def describe_full_disk(looks: Sequence[Look], machine: Machine) -> str:
    """Say how much room the downloads lack on disk; empty where there is enough."""
    pickled = [look for look in looks if look.found.format.startswith("pickle")]
    # These weights are kept a second time, converted.
    needed = bytes_to_download(looks) + bytes_to_download(pickled)
    if machine.disk_bytes is None or needed <= machine.disk_bytes:
        return ""
    return (
        f"downloads of {size_in_words(needed)} do not fit on the disk of the Hub's cache, which "
        f"has {size_in_words(machine.disk_bytes)} left: set HF_HOME to a folder with more"
    )


def this_machine(device: str) -> Machine:
    """Measure this machine.

    Args:
        device: `auto` takes a GPU if there is one.

    Raises:
        ValueError: torch knows no such device, or it is not there.
    """
    from huggingface_hub import constants

    from merge_metric.models.checkpoints import resolve_device

    resolved = "cpu" if device == "cpu" else resolve_device(device)
    memory = _main_memory()
    if resolved.startswith("cuda"):
        import torch

        memory = torch.cuda.get_device_properties(resolved).total_memory
    cache = Path(constants.HF_HUB_CACHE)
    there = next(path for path in (cache, *cache.absolute().parents) if path.is_dir())
    return Machine(resolved.partition(":")[0], memory, shutil.disk_usage(there).free)


def machine_for(distribution: Distribution | None, device: str) -> Machine:
    """Tell what a model may take: this machine, or what a task has, as far as that is known.

    On this machine, tasks that run at a time share its memory, unless each has GPUs of its own.
    On a cluster only what is asked for is known, which is no GPU's memory.

    Args:
        distribution: Where the tasks run; None where there are none.
        device: `auto` takes a GPU if there is one.

    Raises:
        ValueError: torch knows no such device, or it is not there.
    """
    if distribution is None:
        return this_machine(device)
    resources = distribution.resources
    if distribution.executor == "local":
        machine = this_machine(device)
        at_once = min(distribution.workers, distribution.tasks)
        if machine.memory_bytes is None or at_once == 1:
            return machine
        if machine.device != "cpu" and resources.gpus:
            return machine
        return replace(
            machine,
            memory_bytes=machine.memory_bytes // at_once,
            owner=f"each of {at_once} tasks at a time",
            remedy="take fewer --workers",
        )
    has_gpu = device not in ("auto", "cpu") or (device == "auto" and resources.gpus > 0)
    memory = None if has_gpu or resources.memory_gb is None else resources.memory_gb * 2**30
    return Machine(
        "cuda" if has_gpu else "cpu", memory, None, "a task", "give it more with --memory-gb"
    )


def size_in_words(size: int) -> str:
    """Write a number of bytes in words.

    >>> size_in_words(1_340_000_000), size_in_words(5_600_000), size_in_words(700)
    ('1.3 GB', '5.6 MB', '700 bytes')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def _look(wanted: Wanted, machine: Machine | None) -> Look:
    found = inspect(
        wanted.model,
        wanted.head,
        revision=wanted.revision,
        gguf_file=wanted.gguf_file,
        dtype=_dtype(wanted, machine),
    )
    look = Look(
        wanted=wanted, found=found, problems=found.problems, memory_bytes=_memory(found, machine)
    )
    if found.files is None:
        return look
    look = replace(look, steps=_steps(found))
    if wanted.head == CLASSIFIER and found.config:
        look = _with_labels(look)
    return _with_room(look, machine)


def _by_problem(looks: Sequence[Look]) -> list[str]:
    """List problems, each once, with the names of the models that have it before it."""
    names: dict[str, list[str]] = {}
    for look in looks:
        name, model = look.wanted.short_name, look.wanted.model
        shown = f"./{model}" if model.isidentifier() and Path(model).exists() else model
        if name and Path(model).name != Path(name).name:
            shown = f"{name} ({shown})"
        for problem in look.problems:
            about = problem.removeprefix(f"{name}: ").removeprefix(f"{model}: ")
            names.setdefault(about, []).append(shown)
    return [f"{', '.join(who)}: {problem}" for problem, who in names.items()]


def _dtype(wanted: Wanted, machine: Machine | None) -> str:
    if wanted.dtype == "auto" and machine is not None and machine.device == "cuda":
        return "bfloat16"
    return wanted.dtype


def _memory(found: Inspection, machine: Machine | None) -> int | None:
    weights = [each.memory_bytes for each in (found, found.base) if each is not None]
    if any(size is None for size in weights):
        return None
    copies = _CPU_COPIES if machine is None or machine.device == "cpu" else 1
    return _PROCESS + copies * sum(size or 0 for size in weights)


def _steps(found: Inspection) -> tuple[str, ...]:
    size = found.download_bytes
    return (*((f"downloads {size_in_words(size)}",) if size else ()), *found.notes)


def _with_labels(look: Look) -> Look:
    """Add a classifier's labels, or why they are not known."""
    wanted, found = look.wanted, look.found
    # Classes of which nothing is known before weights are read: their number is checked then.
    names = dict(enumerate(found.class_names or [f"LABEL_{n}" for n in range(len(wanted.labels))]))
    try:
        check_classes(names, found.name, wanted.labels)
        if wanted.label_order and wanted.label_order != SEEDS:
            order = parse_order(wanted.label_order, wanted.labels)
        else:
            unknown = unknown_order(wanted.labels) if wanted.label_order == SEEDS else None
            order = read_order(names, found.name, unknown, wanted.labels)
    except ValueError as error:
        return replace(look, problems=(*look.problems, str(error)))
    if order.source == "unknown":
        step = "finds out the label order from the seeds' gold labels"
        return replace(look, labels="from the seeds", asks_seeds=True, steps=(*look.steps, step))
    return replace(look, labels=f"{written(order.labels, wanted.labels)} ({order.source})")


def _with_room(look: Look, machine: Machine | None) -> Look:
    """Add that the machine has too little memory, if that is so."""
    if machine is None or machine.memory_bytes is None or look.memory_bytes is None:
        return look
    if look.memory_bytes <= machine.memory_bytes:
        return look
    lack = (
        f"needs about {size_in_words(look.memory_bytes)} of memory as {look.found.dtype}, "
        f"{machine.owner or machine.device} has {size_in_words(machine.memory_bytes)}: "
        f"{machine.remedy}, or --dtype bfloat16"
    )
    return replace(look, problems=(*look.problems, lack))


def _main_memory() -> int | None:
    """Bytes of this machine's memory, or of its container's; None where it cannot be told."""
    try:
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        return None
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            found.append(int(Path("/sys/fs/cgroup", limit).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return min(found)
