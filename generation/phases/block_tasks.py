"""Work on the blocks of a run's problems: in this process, in several, or in tasks."""

import json
import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from generation.problems.on_disk import block_sizes
from generation.run_folder import RunFolder, versions
from generation.variants.candidates import BlockWork
from generation.variants.grammar import has_library
from merge_dataset.executors.calls import (
    call_tasks,
    keeps_result,
    map_blocks,
    plan_of,
    read_block_tables,
    write_block_table,
)
from merge_dataset.executors.plan import Distribution

_PACKAGES: Final = ("inflect", "merge-nli", "numpy", "spacy", "wordfreq")
"""Packages on which the result of a block depends."""

BlockResult = tuple[Mapping[str, pa.Table], Mapping[str, Any]]
"""Tables by name, and further facts, JSON-able."""


def work_on_blocks(
    work: BlockWork, method: str, folder: Path, distribution: Distribution | None
) -> Iterator[BlockResult]:
    """Yield in order what a method of `work` makes of each block; tasks use the folder meanwhile.

    All machines have to have the same tagger and versions of packages.
    """
    blocks = range(len(block_sizes(work.run.problems)))
    if distribution is None:
        workers = work.config.workers
        # Other processes open a tagger of their own, as an open one cannot be sent there.
        own = work if workers == 1 else replace(work)
        yield from map_blocks(blocks, partial(getattr, own, method), workers=workers)
        return
    alone = replace(work, run=RunFolder(work.run.path.absolute()), in_task=True)
    plan = {
        "work": b64encode(pickle.dumps(alone)).decode(),
        "method": method,
        "made_with": _made_with(work),
    }
    names, where = [f"block {number}" for number in blocks], distribution.without_gpus()
    results = call_tasks(f"{__name__}:do_block", folder, names, where, plan).all()
    for block, (files, facts) in zip(names, results, strict=True):
        tables = read_block_tables(folder, block, list(files.values()))
        yield dict(zip(files, tables, strict=True)), facts


@keeps_result
def do_block(folder: Path, name: str) -> tuple[dict[str, str], Mapping[str, Any]]:
    """Do a block, such as "block 3": write tables; return their names, and more facts."""
    number = int(name.split()[1])
    work, method = _work_of(json.dumps(plan_of(folder)))
    tables, facts = getattr(work, method)(number)
    names = {
        name: write_block_table(folder, f"{number:06}.{name}", table)
        for name, table in tables.items()
    }
    return names, facts


def _made_with(work: BlockWork) -> dict[str, Any]:
    return {"tagger": work.tagger.name, "lemminflect": has_library(), **versions(*_PACKAGES)}


@lru_cache(maxsize=1)
def _work_of(text: str) -> tuple[BlockWork, str]:
    """Read the work of a plan, once per task, so that the task has one tagger."""
    plan = json.loads(text)
    work: BlockWork = pickle.loads(b64decode(plan["work"]))
    if (here := _made_with(work)) != plan["made_with"]:
        raise ValueError(
            f"expected the command's tagger and versions, {plan['made_with']}, a task's machine "
            f"has {here}; install the same on all machines"
        )
    return work, plan["method"]
