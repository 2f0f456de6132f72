"""Asking the text generator, batch by batch, each saved as it is done."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from generation.paraphrases.candidates import Candidate, Request, TextGenerator
from generation.paraphrases.parts import read_or_make
from merge_dataset.files import digest_of

_PART = pa.schema(
    [
        ("request", pa.int32()),
        ("text", pa.string()),
        ("finished", pa.bool_()),
        ("score", pa.float64()),
    ]
)
"""A row per candidate, those of a request in their order; `request` is its place."""
_BATCHES = pa.schema([("batch", pa.int32()), ("request", pa.int32())])


def rewrite_in_parts(
    generator: Callable[[], TextGenerator],
    requests: Sequence[Request],
    *,
    batch_size: int,
    identity: Any,
    folder: Path,
    what: str,
    kept: int,
) -> list[list[Candidate]]:
    """The candidates for each request; batches that are saved are not asked for again.

    Args:
        generator: Opens the model; called only where something is missing.
        requests: Of one round, distinct ones.
        batch_size: Requests of a batch.
        identity: What tells the generator and its search from others.
        folder: Where the parts lie, in a folder named after generator and requests.
        what: What the progress bar says.
        kept: Paraphrases so far, for the progress bar.

    Raises:
        ValueError: the generator gave candidates for more or fewer requests than it was asked.
    """
    asked = [asdict(request) for request in requests]
    mine = folder / digest_of([identity, batch_size, asked])[:16]
    found: list[list[Candidate]] = [[] for _ in requests]
    batches = _batches(generator, requests, batch_size, mine / "batches.parquet")
    paths = [mine / f"{number:06}.parquet" for number in range(len(batches))]
    there = sum(len(b) for b, path in zip(batches, paths, strict=True) if path.is_file())
    with tqdm(total=len(requests), initial=there, desc=what, unit="hypothesis") as bar:
        bar.set_postfix(kept=f"{kept:,}")
        for batch, path in zip(batches, paths, strict=True):
            is_new = not path.is_file()
            table = read_or_make(path, partial(_ask, generator, requests, batch))
            for row in table.to_pylist():
                found[row.pop("request")].append(Candidate(**row))
            bar.update(len(batch) if is_new else 0)
    return found


def _batches(
    generator: Callable[[], TextGenerator],
    requests: Sequence[Request],
    batch_size: int,
    path: Path,
) -> list[list[int]]:
    """Places of requests whose prompts are of similar lengths.

    The longest come first: what does not fit into memory shows at once. The others come in
    random order, so that the speed seen so far is an honest estimate of the speed to come.
    """
    table = read_or_make(path, partial(_deal, generator, requests, batch_size))
    batches: list[list[int]] = [[] for _ in table["batch"].unique()]
    for batch, request in zip(*(table[name].to_pylist() for name in _BATCHES.names), strict=True):
        batches[batch].append(request)
    return batches


def _deal(
    generator: Callable[[], TextGenerator], requests: Sequence[Request], batch_size: int
) -> pa.Table:
    lengths = [generator().length(request.hypothesis) for request in requests]
    order = sorted(range(len(requests)), key=lambda i: (-lengths[i], requests[i].hypothesis))
    first, *others = (order[i : i + batch_size] for i in range(0, len(order), batch_size))
    random.Random(0).shuffle(others)
    rows = [
        {"batch": number, "request": request}
        for number, batch in enumerate([first, *others])
        for request in batch
    ]
    return pa.Table.from_pylist(rows, schema=_BATCHES)


def _ask(
    generator: Callable[[], TextGenerator], requests: Sequence[Request], places: Sequence[int]
) -> pa.Table:
    """The candidates for the requests at some places, which are a batch."""
    found = generator().candidates([requests[place] for place in places])
    if len(found) != len(places):
        raise ValueError(
            f"expected candidates of the generator for each of {len(places)} hypotheses, got "
            f"them for {len(found)}"
        )
    rows = [
        {"request": place, **asdict(candidate)}
        for place, candidates in zip(places, found, strict=True)
        for candidate in candidates
    ]
    return pa.Table.from_pylist(rows, schema=_PART)
