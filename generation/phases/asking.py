"""Questions to the masked LMs: about one text of each word first, then about what can still matter.

A replacement has to be in the sets of all texts (eq. 1), so the set of one text bounds their
intersection from above. The masked LMs are asked about a word in one text first: in the one whose
sentence is short, or shared by many problems. Where these sets, with the filters that need only
that text, add up to fewer words than `min_replacements`, the other texts are not asked about.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from generation.config import Config
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.shared_words import tag_problems
from generation.problems.tagging import Tagger, tagger_for
from generation.reasons import NO_REASON
from generation.records import split
from generation.run_folder import RunFolder
from generation.suggestions.ask import ask, stores_asked, units_of
from generation.suggestions.questions import Asked, Questions
from generation.suggestions.store import SuggestionStore
from generation.variants.candidates import Candidates
from generation.variants.funnel import Funnel
from generation.variants.set_algebra import Occurrences, over_mlms
from generation.variants.validation import judge_in_context, validated_by
from generation.variants.words import Lexicon
from merge_dataset.executors.calls import call_tasks, map_blocks, plan_of, run_units, says
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import partial_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

DECISIVE: Final = (
    "min_replacements", "min_replacements_scope", "word_classes", "probability_filter",
    "class_filter", "tag_match", "combine", "words_at_once",
)  # fmt: skip
"""Settings of a build on which it depends which answers can matter."""
_SCOPES: Final = ("problem", "class", "word")
"""Scopes: a seed that is eligible by one is also eligible by those before it."""


def ask_what_matters(
    run: RunFolder, config: Config, asked: Asked, distribution: Distribution | None
) -> None:
    """Ask about one text of each word first, then about the others where that can still matter.

    Every masked LM is asked about the first texts before any is asked about the others. Without
    tasks, `config.workers` processes choose here, and this one asks.
    """

    def ask_now() -> None:
        units = units_of(config, asked.questions, tasks=distribution.tasks if distribution else 1)
        if distribution is None:
            for unit in units:
                ask(run.path, unit)
        else:
            run_units("generation.suggestions.ask:ask", run.path, units, distribution)

    run.asked.unlink(missing_ok=True)
    # Only then is one text's set a bound on the number of replacements.
    if not config.ask_all and config.combine == "intersection" and config.words_at_once == 1:
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


def _wanted(run: RunFolder, reach: Reach, distribution: Distribution | None) -> NDArray[np.bool_]:
    """Return [questions] whether each is to be asked, about problems here or in tasks."""
    blocks = range(len(block_sizes(run.problems)))
    wanted = np.zeros(len(reach.asked.questions), np.bool_)
    if distribution is None:
        for rows in map_blocks(blocks, reach.open, workers=reach.config.workers):
            wanted[rows] = True
        return wanted
    folder = run.tasks("asking")
    plan = {
        "run": str(run.path.absolute()),
        "config": reach.config.to_toml(),
        "questions": reach.asked.questions.made_from,
        "candidates": [str(each.folder.absolute()) for each in reach.candidates.values()],
    }
    units = [str(block) for block in blocks]
    choose = f"{__name__}:choose_unit"
    for chosen in call_tasks(choose, folder, units, distribution.without_gpus(), plan).all():
        wanted[np.asarray(chosen, np.int64)] = True
    shutil.rmtree(folder)
    return wanted


@says
def choose_unit(folder: Path, unit: str) -> list[int]:
    """Do a unit of work: return the rows of the questions to ask about the problems of a block."""
    rows: list[int] = _reach(json.dumps(plan_of(folder))).rows(int(unit)).tolist()
    return rows


@lru_cache(maxsize=1)
def _reach(plan: str) -> Reach:
    """Read from a plan what is needed to choose; a task reads it once, with one tagger."""
    values = json.loads(plan)
    run = RunFolder(Path(values["run"]))
    config, asked = Config.read(run.config), Asked(Questions(run.questions), run.asked)
    stores = stores_asked(run, config) if values["candidates"] else {}
    candidates = {
        mlm: Candidates(Path(path), asked.questions, store)
        for (mlm, store), path in zip(stores.items(), values["candidates"], strict=True)
    }
    return Reach(run.problems, asked, candidates, config)


# --- Choosing ---


@dataclass(frozen=True)
class Reach:
    """Everything needed to choose questions, block by block. Can be sent to other processes."""

    problems: Path
    asked: Asked
    candidates: Mapping[str, Candidates]
    """Candidates by masked LM, at what was asked; none before anything was."""
    config: Config

    def open(self) -> Callable[[int], NDArray[np.int64]]:
        """Return the function that works on blocks; each process has its own tagger."""
        return self.rows

    def rows(self, block: int) -> NDArray[np.int64]:
        """Return [n] rows of the questions wanted about the problems of a block."""
        config = self.config
        problems = tag_problems(
            read_block(self.problems, block), self._tagger, config.word_classes, config.sharing
        )
        texts = len(config.problem_format.fields)
        words = Occurrences.of(problems, self._lexicon, masking=config.masking, texts=texts)
        rows = self.asked.questions.rows(words.queries)
        if self.candidates:
            return rows[self._within_reach(words)[words.side_word[words.side]]]
        # First the text with the least to read. What several problems ask costs each its share.
        _, question, shared_by = np.unique(rows, return_inverse=True, return_counts=True)
        lengths = np.array([len(query.sentence) for query in words.queries], np.float64)
        cost = np.bincount(words.side, lengths / shared_by[question], minlength=len(words.places))
        order = np.lexsort((words.side_text, cost, words.side_word))
        is_first = np.zeros(len(words.places), np.bool_)
        is_first[order[np.diff(words.side_word[order], prepend=-1) != 0]] = True
        return rows[is_first[words.side]]

    def _within_reach(self, words: Occurrences) -> NDArray[np.bool_]:
        """Return [words] whether the class of each can still get enough replacements."""
        config = self.config
        survivors = {mlm: each.take(words.queries) for mlm, each in self.candidates.items()}
        missing = words.side[~next(iter(survivors.values())).asked]
        # [sides] Whether all occurrences were asked about.
        known = np.bincount(missing, minlength=len(words.places)) == 0
        suggested = over_mlms(
            [validated_by(mlm, each, known, words, Funnel()) for mlm, each in survivors.items()]
        )
        units = words.units(config.min_replacements_scope)

        def enough(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
            # [words] Whether those counted together can have so many; `keys` are (side, word).
            sizes = np.bincount(split(keys)[0], minlength=len(words.places))
            bounds = np.full(len(words.words), np.iinfo(np.int32).max, np.int64)
            np.minimum.at(bounds, words.side_word[known], sizes[known])
            found: NDArray[np.bool_] = np.bincount(units, bounds)[units] >= config.min_replacements
            return found

        keys = suggested.keys
        alive = enough(keys)
        if config.class_filter:
            # Tagging is dear, so only where it can make the difference: first of so many on each
            # side as mostly are enough, then of the rest where they were not.
            keys = keys[alive[words.side_word[split(keys)[0]]]]
            side, _ = split(keys)
            rank = np.arange(len(side)) - np.searchsorted(side, side)
            keeps = np.zeros(len(keys), np.bool_)
            alive = np.zeros(len(alive), np.bool_)
            for some in (rank < 2 * config.min_replacements, rank >= 2 * config.min_replacements):
                asked = np.flatnonzero(some & ~alive[words.side_word[side]])
                put = words.put(keys[asked])
                reasons, _ = judge_in_context(put, self._tagger, tag_match=config.tag_match)
                keeps[asked] = reasons == NO_REASON
                alive = enough(keys[keeps])
        # Ablations keep seeds and classes, with all of their words.
        classes = words.units("class")
        return np.isin(classes, classes[alive])

    @cached_property
    def _tagger(self) -> Tagger:
        return tagger_for(self.config.tagger, spare_torch=self.config.workers > 1)

    @cached_property
    def _lexicon(self) -> Lexicon:
        return Lexicon.of({mlm: each.vocabulary for mlm, each in self.candidates.items()})


# --- Settings on which it depends what can matter ---


def decisive_settings(config: Config) -> dict[str, Any]:
    """Return the settings by which it was chosen what to ask."""
    values = {name: asdict(config)[name] for name in DECISIVE}
    return values | {"word_classes": list(config.word_classes)}


def wider_settings(config: Config, asked_for: Mapping[str, Any]) -> list[str]:
    """Name the settings of a build with which answers can matter that were not asked for."""
    wanted = decisive_settings(config)
    fits = {
        "min_replacements": wanted["min_replacements"] >= asked_for["min_replacements"],
        "min_replacements_scope": _SCOPES.index(wanted["min_replacements_scope"])
        >= _SCOPES.index(asked_for["min_replacements_scope"]),
        "word_classes": set(wanted["word_classes"]) <= set(asked_for["word_classes"]),
        "probability_filter": wanted["probability_filter"] or not asked_for["probability_filter"],
        "class_filter": wanted["class_filter"] or not asked_for["class_filter"],
        "tag_match": wanted["tag_match"] in (asked_for["tag_match"], "fine"),
        "combine": wanted["combine"] == asked_for["combine"],
        "words_at_once": wanted["words_at_once"] == asked_for["words_at_once"],
    }
    return [name for name in DECISIVE if not fits[name]]


def require_asked(run: Path, config: Config, suggested: Mapping[str, Any]) -> None:
    """Raise ValueError where questions were left out whose answers matter with these settings."""
    if "asked" not in suggested:
        return
    asked_for = suggested["asked"]["for"]
    if wider := wider_settings(config, asked_for):

        def shown(settings: Mapping[str, Any]) -> str:
            plain = {n: v if isinstance(v, list) else [str(v).lower()] for n, v in settings.items()}
            return ", ".join(f"{name} = {', '.join(plain[name])}" for name in wider)

        left_out = suggested["questions"] - suggested["asked"]["questions"]
        raise ValueError(
            f"{run}: the masked LMs were not asked {left_out:,} of {suggested['questions']:,} "
            f"questions, which could not matter with {shown(asked_for)}; expected no wider "
            f"settings, got {shown(decisive_settings(config))}; run the command that made this run "
            "again with --ask-all, which asks only them"
        )


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
