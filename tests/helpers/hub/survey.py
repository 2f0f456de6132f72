import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from helpers.forks import Ended
from helpers.hub.commands import TOKEN, Console, serve
from helpers.hub.layouts import LAYOUTS, Layout
from helpers.problem_folder import many_problems, write_folder
from merge_metric.models.readiness import read_presets

_PROBLEMS: Final = many_problems(60, 1)
_SENTENCES: Final = (
    ("The big dog runs near the house.", "The big dog sees the house."),
    ("A girl and a boy play a game.", "The girl likes the game."),
)


Seen = tuple[Ended, bool]
"""The result of a command, and whether its output equals the plain model's."""


def survey(at: Console, names: Iterable[str]) -> Iterator[tuple[str, Seen, Seen, list[str]]]:
    """Load each layout with empty caches, then offline; yield both, and needless requests."""
    for name, layout in LAYOUTS.items():
        serve(at.hub, name, layout)
    short = {preset.model: preset.name for preset in read_presets("paper")}
    for name in names:
        at.forget()
        runs = (_suggest if LAYOUTS[name].task == "mlm" else _predict)(
            at, name, LAYOUTS[name], short.get(name)
        )
        online, strayed = next(runs), at.hub.strayed()
        yield name, online, next(runs), strayed


def _suggest(at: Console, name: str, layout: Layout, _: str | None) -> Iterator[Seen]:
    """Compare suggestions for a few sentences: the same model writes the same bytes."""
    rows = [
        {"id": str(i), "premise": premise, "hypothesis": hypothesis, "label": "neutral"}
        for i, (premise, hypothesis) in enumerate(_SENTENCES)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (at.folder / "problems.jsonl").write_text(text)

    def run(model: object, **more: Any) -> tuple[Ended, list[bytes]]:
        folder = f"run-{len(list(at.folder.iterdir()))}"
        options = ("--source", "mine", "--data", "problems.jsonl", "--device", "cpu")
        result = at.run("suggest", *options, "--mlm", model, "--run", folder, **more)
        files = (at.folder / folder).glob("suggestions/*/**/*.parquet")
        return result, sorted(file.read_bytes() for file in files)

    plain, wanted = run(layout.plain(), offline=True)
    assert plain.code == 0, plain.err
    for offline in (False, True):
        result, outcome = run(name, offline=offline)
        yield result, outcome == wanted


def _predict(at: Console, name: str, layout: Layout, short: str | None) -> Iterator[Seen]:
    """Compare predictions for problems whose gold labels are the plain model's answers."""
    more = ("--shots", "none") if layout.task == "lm" else ()
    dataset = f"labelled-{len(list(at.folder.iterdir()))}"
    write_folder(at.folder / f"{dataset}-at-first", _PROBLEMS)
    plain = ("--model", layout.plain())
    first, told = _probabilities(at, f"{dataset}-at-first", *plain, *more, offline=True)
    assert first.code == 0, first.err
    problems = {n: (*_PROBLEMS[n][:2], int(p.argmax())) for n, p in told.items()}
    write_folder(at.folder / dataset, problems)
    named = ("--preset", "paper", "--only", short) if short else ("--model", name)
    if layout.order and not short:
        more += ("--label-order", layout.order)
    for offline in (False, True):
        result, outcome = _probabilities(at, dataset, *named, *more, offline=offline, token=TOKEN)
        alike = (np.allclose(outcome[name], told[name], atol=1e-6) for name in outcome)
        yield result, outcome.keys() == told.keys() and all(alike)


def _probabilities(
    at: Console, dataset: str, *arguments: object, **more: Any
) -> tuple[Ended, dict[str, np.ndarray]]:
    folder = at.folder / f"predicted-{len(list(at.folder.iterdir()))}"
    preset = "--preset" in arguments
    out = folder if preset else folder.with_suffix(".parquet")
    result = at.run(
        "predict", "--dataset", dataset, "--device", "cpu", "--out", out, *arguments, **more
    )
    files = sorted(out.glob("*.parquet")) if preset else [out] if out.is_file() else []
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return result, {row["variant_id"]: np.array(row["probabilities"]) for row in rows}
