"""Ask the masked LMs what can matter: one text of each word first, then the others."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from generation.config import Config
from generation.run_folder import RunFolder
from generation.suggestions.ask import ask, stores_asked, units_of
from generation.suggestions.asked import Asked
from generation.suggestions.questions import Questions
from generation.suggestions.store import SuggestionStore
from generation.variants.candidates import Candidates
from generation.variants.reach import Reach, can_ask_less, decisive_settings, wider_settings
from merge_dataset.executors.dispatch import run_units
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import partial_path

log = logging.getLogger(__name__)


def ask_what_matters(
    run: RunFolder, config: Config, asked: Asked, ask_now: Callable[[], None]
) -> None:
    """Ask about one text of each word first, then about the others where that can still matter.

    Every masked LM is asked about the first texts before any is asked about the others.
    """
    run.asked.unlink(missing_ok=True)
    if can_ask_less(config):
        first = Reach(run.problems, asked, {}, config).wanted()
        asked.write(first)
        log.info("%d of %d questions first: one text of each word", len(asked), len(first))
        if len(asked) < len(first):
            ask_now()
            with candidates_of(stores_asked(run, config), run, config, asked) as candidates:
                asked.write(first | Reach(run.problems, asked, candidates, config).wanted())
            log.info("%d more, where there can be %d replacements per %s", len(asked) - first.sum(),
                     config.min_replacements, config.min_replacements_scope)  # fmt: skip
    ask_now()


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
