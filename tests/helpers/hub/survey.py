"""Goes through the imitated layouts with the command line, online and then offline.

`python -m helpers.hub.survey [TREE] [PATTERN]`, in the folder of the tests, prints a table for the
code of a tree: whether each model loads, whether it gives what the plain model gives, and which
requests went elsewhere.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from helpers.hub.commands import ROOT, TOKEN, Console, Result, console, serve
from helpers.hub.layouts import LAYOUTS, Layout
from helpers.problem_folder import many_problems, write_folder

_PROBLEMS: Final = many_problems(60, 1)
_SENTENCES: Final = (
    ("The big dog runs near the house.", "The big dog sees the house."),
    ("A girl and a boy play a game.", "The girl likes the game."),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A command's end and results."""

    result: Result
    equal: bool
    """Whether its results are those of the plain model."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A layout's ends."""

    name: str
    online: Seen
    offline: Seen
    strayed: tuple[str, ...]
    """Requests that reading a model has no need of."""


def survey(at: Console, names: Iterable[str], *, preset: bool = True) -> Iterator[Surveyed]:
    """Load each layout with empty caches, then offline; all are served at the console.

    With `preset`, models of the preset "paper" are named by it, without a label order.
    """
    for name, layout in LAYOUTS.items():
        serve(at.hub, name, layout)
    short = _short_names() if preset else {}
    for name in names:
        at.forget()
        runs = (_suggest if LAYOUTS[name].task == "mlm" else _predict)(
            at, name, LAYOUTS[name], short.get(name)
        )
        online, strayed = next(runs), tuple(at.hub.strayed())
        yield Surveyed(name, online, next(runs), strayed)


def _short_names() -> dict[str, str]:
    from merge_metric.models.presets import read_presets

    return {preset.model: preset.name for preset in read_presets("paper")}


def _suggest(at: Console, name: str, layout: Layout, _: str | None) -> Iterator[Seen]:
    """Suggestions for a few sentences; their files are the same bytes for the same model."""
    rows = [
        {"id": str(i), "premise": premise, "hypothesis": hypothesis, "label": "neutral"}
        for i, (premise, hypothesis) in enumerate(_SENTENCES)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (at.folder / "problems.jsonl").write_text(text)

    def run(model: object, **more: Any) -> tuple[Result, list[bytes]]:
        folder = f"run-{len(list(at.folder.iterdir()))}"
        options = ("--source", "mine", "--data", "problems.jsonl", "--device", "cpu")
        result = at.run("suggest", *options, "--mlm", model, "--run", folder, **more)
        files = (at.folder / folder).glob("suggestions/*/**/*.parquet")
        return result, sorted(file.read_bytes() for file in files)

    assert layout.plain is not None
    plain, wanted = run(layout.plain(), offline=True)
    assert plain.code == 0, plain.err
    for offline in (False, True):
        result, found = run(name, offline=offline)
        yield Seen(result, found == wanted)


def _predict(at: Console, name: str, layout: Layout, short: str | None) -> Iterator[Seen]:
    """Predictions for problems whose gold labels are what the plain model says."""
    more = ("--shots", "none") if layout.task == "lm" else ()
    dataset = f"labelled-{len(list(at.folder.iterdir()))}"
    write_folder(at.folder / f"{dataset}-at-first", _PROBLEMS)
    assert layout.plain is not None
    plain = ("--model", layout.plain())
    first, told = _probabilities(at, f"{dataset}-at-first", *plain, *more, offline=True)
    assert first.code == 0, first.err
    problems = {n: (*_PROBLEMS[n][:2], int(p.argmax())) for n, p in told.items()}
    write_folder(at.folder / dataset, problems)
    named = ("--preset", "paper", "--only", short) if short else ("--model", name)
    if layout.order and not short:
        more += ("--label-order", layout.order)
    for offline in (False, True):
        result, found = _probabilities(at, dataset, *named, *more, offline=offline, token=TOKEN)
        yield Seen(result, _alike(found, told))


def _alike(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    return found.keys() == wanted.keys() and all(
        np.allclose(found[name], wanted[name], atol=1e-6) for name in wanted
    )


def _probabilities(
    at: Console, dataset: str, *arguments: object, **more: Any
) -> tuple[Result, dict[str, np.ndarray]]:
    """The results of `predict` by problem; none where it failed."""
    import pyarrow.parquet as pq

    folder = at.folder / f"predicted-{len(list(at.folder.iterdir()))}"
    preset = "--preset" in arguments
    out = folder if preset else folder.with_suffix(".parquet")
    result = at.run(
        "predict", "--dataset", dataset, "--device", "cpu", "--out", out, *arguments, **more
    )
    files = sorted(out.glob("*.parquet")) if preset else [out] if out.is_file() else []
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return result, {row["variant_id"]: np.array(row["probabilities"]) for row in rows}


def table(rows: Iterable[Surveyed]) -> Iterator[str]:
    """Lines of a table in Markdown."""
    yield "| model | online | offline afterwards | requests elsewhere | message |"
    yield "|---|---|---|---|---|"
    for row in rows:
        failed = next((s.result for s in (row.online, row.offline) if s.result.code), None)
        message = _shortened(failed.err) if failed else ""
        stray = ", ".join(
            sorted({re.sub(r"^\w+ (/api/models/)?|\?.*", "", s) for s in row.strayed})
        )
        cells = (row.name, _told(row.online), _told(row.offline), stray, message)
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _shortened(err: str) -> str:
    """The text after `error:`, or about the one that failed."""
    told = re.split(r"error: |models? failed:", err)[-1]
    return re.sub(r"\s+", " ", told).strip()[:200]


def _told(seen: Seen) -> str:
    if seen.result.code == 0:
        return "same figures" if seen.equal else "OTHER FIGURES"
    return {124: "hangs", 70: "traceback"}.get(seen.result.code, f"exit code {seen.result.code}")


def main(tree: Path = ROOT, pattern: str = "") -> None:
    """Print the table line by line."""
    with console(tree) as at:
        names = [name for name in LAYOUTS if re.search(pattern, name)]
        for line in table(survey(at, names)):
            print(line, flush=True)
        print("errors in the Hub:", at.hub.errors, "payload ran:", at.marker.exists())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *sys.argv[2:3])
