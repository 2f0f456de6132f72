"""Ask the masked LMs what can matter: one text of each word first, then the others."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generation.config import Config
from generation.problems.on_disk import block_sizes
from generation.run_folder import RunFolder
from generation.suggestions.ask import ask, stores_asked, units_of
from generation.suggestions.asked import Asked
from generation.suggestions.questions import Questions
from generation.suggestions.store import SuggestionStore
from generation.variants.candidates import Candidates
from generation.variants.reach import Reach, can_ask_less, decisive_settings, wider_settings
from merge_dataset.executors.calls import call_tasks, plan_of, says
from merge_dataset.executors.dispatch import run_units
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import partial_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)


def ask_what_matters(
    run: RunFolder,
    config: Config,
    asked: Asked,
    ask_now: Callable[[], None],
    distribution: Distribution | None,
) -> None:
    """Ask about one text of each word first, then about the others where that can still matter.

    Every masked LM is asked about the first texts before any is asked about the others.

    Args:
        run: The run.
        config: Its settings.
        asked: Which questions are to be asked, so far all.
        ask_now: Asks them.
        distribution: Where tasks choose; by default `config.workers` processes do here.
    """
    run.asked.unlink(missing_ok=True)
    if can_ask_less(config):
        first = _wanted(run, Reach(run.problems, asked, {}, config), distribution)
        asked.write(first)
        log.info("%d of %d questions first: one text of each word", len(asked), len(first))
        if len(asked) < len(first):
            ask_now()
            with candidates_of(stores_asked(run, config), run, config, asked) as candidates:
                reach = Reach(run.problems, asked, candidates, config)
                asked.write(first | _wanted(run, reach, distribution))
            log.info("%d more, where there can be %d replacements per %s", len(asked) - first.sum(),
                     config.min_replacements, config.min_replacements_scope)  # fmt: skip
    ask_now()


# --- Choosing in tasks ---


def _wanted(run: RunFolder, reach: Reach, distribution: Distribution | None) -> NDArray[np.bool_]:
    """Return [questions] those to be asked, as `Reach.wanted` does."""
    if distribution is None:
        return reach.wanted()
    folder = run.tasks("asking")
    candidates = [str(each.folder.absolute()) for each in reach.candidates.values()]
    plan = {
        "run": str(run.path.absolute()),
        "config": reach.config.to_toml(),
        "questions": reach.asked.questions.made_from,
        "candidates": candidates,
    }
    units = [str(block) for block in range(len(block_sizes(run.problems)))]
    choose = "generation.phases.asking:choose_unit"
    rows = call_tasks(choose, folder, units, distribution.without_gpus(), plan).all()
    shutil.rmtree(folder)
    return reach.mask(rows)


@says
def choose_unit(folder: Path, unit: str) -> list[int]:
    """Do a unit of work: choose what to ask about the problems of a block.

    Args:
        folder: That of the call.
        unit: Number of the block.

    Returns:
        Rows of the questions.
    """
    rows: list[int] = _reach(json.dumps(plan_of(folder))).rows(int(unit)).tolist()
    return rows


@lru_cache(maxsize=1)
def _reach(plan: str) -> Reach:
    """Return what chooses; a task has it once, with its tagger."""
    values = json.loads(plan)
    run = RunFolder(Path(values["run"]))
    config, asked = Config.read(run.config), Asked(Questions(run.questions), run.asked)
    stores = stores_asked(run, config) if values["candidates"] else {}
    candidates = {
        mlm: Candidates(Path(path), asked.questions, store)
        for (mlm, store), path in zip(stores.items(), values["candidates"], strict=True)
    }
    return Reach(run.problems, asked, candidates, config)


# --- Asking ---


def ask_all(
    run: RunFolder,
    config: Config,
    questions: Questions,
    distribution: Distribution | None,
) -> None:
    """Let every masked LM answer the questions to be asked, here or dealt to tasks."""
    if distribution is None:
        for unit in units_of(config, questions, tasks=1):
            ask(run.path, unit)
        return
    units = units_of(config, questions, tasks=distribution.tasks)
    run_units("generation.suggestions.ask:ask", run.path, units, distribution)


def asked_record(asked: Asked, config: Config) -> dict[str, Any]:
    """Return what `suggested.json` says where not all questions were asked."""
    if len(asked) == len(asked.questions):
        return {}
    counts = {"questions": len(asked), "of": len(asked.questions)}
    return {"asked": {**counts, "for": decisive_settings(config)}}


def require_asked(run: Path, config: Config, suggested: Mapping[str, Any]) -> None:
    """Raise ValueError where questions were left out whose answers matter with these settings."""
    if "asked" not in suggested:
        return
    asked_for = suggested["asked"]["for"]
    if wider := wider_settings(config, asked_for):
        got = decisive_settings(config)
        left_out = suggested["questions"] - suggested["asked"]["questions"]
        raise ValueError(
            f"{run}: the masked LMs were not asked {left_out:,} of "
            f"{suggested['questions']:,} questions, which could not matter with "
            f"{', '.join(f'{name} = {_plain(asked_for[name])}' for name in wider)}; expected no "
            f"wider settings, got {', '.join(f'{name} = {_plain(got[name])}' for name in wider)}; "
            "run the command that made this run again with --ask-all, which asks only them"
        )


def _plain(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value).lower()


@contextmanager
def candidates_of(
    stores: Mapping[str, SuggestionStore], out: RunFolder, config: Config, asked: Asked
) -> Iterator[dict[str, Candidates]]:
    """Write the candidates of the run's questions to disk, for as long as they are needed."""
    folder = partial_path(out.candidates)
    try:
        yield {
            mlm: Candidates.write(
                folder / str(number),
                store,
                asked.questions,
                probability_filter=config.probability_filter,
                asked=asked,
            )
            for number, (mlm, store) in enumerate(stores.items())
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
