"""Phase 1, `suggest`: ask the masked LMs and fill the suggestion store; slow without a GPU.

A replacement has to be in the sets of all texts (eq. 1), so the set of any one text bounds their
intersection from above. The text asked about first is the cheapest: short, or shared by many
problems. If its sets, after the filters that need only that text, add up to fewer words than
`min_replacements`, the masked LMs are not asked about the other texts.
"""

from __future__ import annotations

import logging
import math
import operator
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from generation.config import Config
from generation.problems.on_disk import block_sizes, sorted_problems
from generation.problems.sources import ProblemReader
from generation.records import pairs
from generation.run_folder import RunFolder
from generation.suggestions.questions import Questions, masked_queries, question_table
from generation.suggestions.store import ask_task, collect, mlm_names, wanted_mlms
from generation.variants.equation import Table, Words
from generation.variants.reasons import NO_REASON, first_reasons
from generation.variants.validation import judge_in_context
from generation.variants.work import BlockResult, BlockWork, work_on_blocks
from merge_dataset import files
from merge_dataset.executors import Distribution, Task, run_blocks
from merge_metric.models.readiness import inspect_models, machine_for, require_all

log = logging.getLogger(__name__)

_SCOPES: Final = ("problem", "class", "word")
"""Scopes in order: a seed that is eligible by one is also eligible by the ones before it."""

DECISIVE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "min_replacements": operator.ge,
    "min_replacements_scope": lambda now, then: _SCOPES.index(now) >= _SCOPES.index(then),
    "word_classes": lambda now, then: {*now} <= {*then},
    "probability_filter": operator.ge,
    "class_filter": operator.ge,
    "tag_match": lambda now, then: now in (then, "fine"),
    "combine": operator.eq,
}
"""Settings of a build that decide which answers can matter, and whether the answers that mattered
with an earlier value are all that matter with a new one."""


def suggest(
    config: Config, *, distribution: Distribution | None = None, overwrite: bool = False
) -> RunFolder:
    """Phase 1: ask every masked LM about the occurrences of shared words.

    Resumes where an earlier run stopped; questions with answers in the store are not asked again.

    Args:
        config: The run's settings; `config.run` is the folder to write.
        distribution: Where tasks ask the masked LMs; by default this process does.
        overwrite: Replace results of other problems or models. The masked LMs' answers stay in
            any case.

    Returns:
        The run folder.

    Raises:
        BlockingIOError: another command is at work in the folder.
        ExecutorError: tasks failed (answers are kept), or there is no such executor.
        FileExistsError: the folder has a build of other problems or models.
        FileNotFoundError: the source's file does not exist.
        ValueError: the settings name no MLM or two of the same name, or a model, a
            source or the tagger cannot be loaded.
    """
    run = RunFolder(Path(config.run))
    # Absolute paths, for processes that are started elsewhere.
    mlms = tuple(str(Path(m).resolve()) if Path(m).is_dir() else m for m in config.mlms)
    store = str(Path(config.store).resolve()) if config.store else None
    config = replace(config, mlms=mlms, store=store)
    reader, names = ProblemReader(config), mlm_names(config.mlms)
    with run.locked():
        run.require_kind(paraphrases=False)
        earlier: dict[str, Any] = {}  # the record of a run that has both phases
        if not overwrite and all(p.is_file() for p in (run.manifest, run.suggested, run.config)):
            settings = Config.read(run.config).output_settings()
            earlier = {**files.read_record(run.suggested), "config": settings}

        def require_same(**more: Any) -> None:
            if earlier:
                coming = {"config": config.output_settings(), **more}
                run.require_same(earlier, coming, f"{earlier['problems']['kept']:,} problems")

        require_same(mlms=[{"name": name} for name in names])
        # All faults of masked LMs are reported before the long work.
        machine = machine_for(distribution, config.device)
        looks = inspect_models(wanted_mlms(names, config.dtype), machine)
        require_all(looks, "`merge-nli models` shows what is there")
        with sorted_problems(run.problems, reader.format) as add:
            read = reader.read(add, run.skipped_rows)
            require_same(source_data=read["source_data"])
            if not earlier:
                # An earlier run's records do not fit these settings until both phases are done.
                run.manifest.unlink(missing_ok=True)
                run.suggested.unlink(missing_ok=True)
            shutil.rmtree(run.stores, ignore_errors=True)
        config.write(run.config)
        work = QuestionWork(run, replace(config, without_mlms=()))
        questions = find_questions(work, distribution)
        if not len(questions):
            fields = " and ".join(config.shared_fields or config.fields)
            raise ValueError(
                f"{reader.description}: expected a {' or '.join(config.word_classes)} shared by "
                f"{fields}, found none in {read['problems']['kept']} problems"
            )
        keep = 2 * sum(x["memory_bytes"] or math.inf for x in looks) <= (machine.memory_bytes or 0)
        ask_what_matters(work, list(names), distribution, keep=keep)
        require_same(mlms=(summaries := collect(run, work.config, names)))
        asked = int(questions.asked.sum())
        counts = {"questions": asked, "of": len(questions), "for": decisive_settings(config)}
        paths = (run.config, run.problems, questions.header, questions.selection)
        named = {p.relative_to(run.path).as_posix(): p for p in paths if p.is_file()}
        record = {
            "source": config.source,
            **read,
            "questions": len(questions),
            **({"asked": counts} if asked < len(questions) else {}),
            "mlms": summaries,
            "files": files.digests(named),
        }
        files.write_record(run.suggested, record)
    return run


def find_questions(work: QuestionWork, distribution: Distribution | None) -> Questions:
    """Write the questions about the run's problems; keep an earlier run's questions if they fit."""
    run, config = work.run, work.config
    made_from = files.digest_of(
        [files.digest_of_file(run.problems), config.word_classes, config.masking, work.tagger.name,
         *(config.sharing or ())]
    )  # fmt: skip
    sizes, folder = block_sizes(run.problems), run.tasks("tagging")

    def tables() -> Iterator[pa.Table]:
        blocks = work_on_blocks(work, "questions_in", folder, distribution)
        with tqdm(total=sum(sizes), desc="tagging", unit="problem") as bar:
            for size, (tables, _) in zip(sizes, blocks, strict=True):
                yield tables["questions"]
                bar.update(size)

    questions = Questions(run.questions) if run.questions.is_dir() else None
    if questions is None or questions.made_from != made_from:
        questions = Questions.write(run.questions, tables(), made_from=made_from)
    shutil.rmtree(folder, ignore_errors=True)
    return questions


def ask_what_matters(
    work: QuestionWork, names: Sequence[str], distribution: Distribution | None, *, keep: bool
) -> None:
    """Ask about one text of each word, then about others that matter; `keep` masked LMs open."""
    run, config, questions = work.run, work.config, work.questions
    opened: dict[str, Any] = {}

    def ask_now() -> None:
        count = min(distribution.tasks if distribution else 1, len(questions.blocks))
        tasks = [f"{name} {task}" for name in names for task in Task.all(count)]
        if distribution is None:
            for task in tasks:
                ask_task(run.path, task, opened if keep else None)
        else:
            run_blocks("generation.suggestions.store:ask_task", run.path, tasks, distribution)

    def wanted(by: QuestionWork) -> NDArray[np.bool_]:
        rows, folder = np.zeros(len(questions), np.bool_), run.tasks("asking")
        for tables, _ in work_on_blocks(by, "wanted_in", folder, distribution):
            rows[tables["rows"]["row"].to_numpy()] = True
        shutil.rmtree(folder, ignore_errors=True)
        return rows

    questions.selection.unlink(missing_ok=True)
    # Only with these settings is one text's set a bound on the number of replacements.
    if not config.ask_all and config.combine == "intersection":
        first = wanted(work)
        questions.select(first)
        log.info("%d of %d questions first: one text of each word", first.sum(), len(first))
        if not first.all():
            ask_now()
            with work.with_candidates(run.candidates) as knowing:
                every = first | wanted(knowing)
            questions.select(every)
            log.info("%d more, where there can be %d replacements per %s",
                     every.sum() - first.sum(), config.min_replacements,
                     config.min_replacements_scope)  # fmt: skip
    ask_now()


class QuestionWork(BlockWork):
    """Work that finds the questions about blocks of problems, and chooses which to ask."""

    def questions_in(self, block: int) -> BlockResult:
        """Return the questions about the problems of a block."""
        problems = self.problems(block)
        places = (place for pair in problems.pairs() for _, place in problems.places(*pair))
        queries = (masked_queries(place, masking=self.config.masking) for place in places)
        asked = dict.fromkeys(chain.from_iterable(queries))
        return {"questions": question_table(asked)}, {}

    def wanted_in(self, block: int) -> BlockResult:
        """Return the rows of the questions wanted about the problems of a block."""
        words = Words.of(self.problems(block), self.lexicon, self.config)
        rows = self.questions.rows(words.queries)
        if self.folder:
            wanted = rows[self._within_reach(words)[words.word_of]]
            return {"rows": pa.table({"row": wanted})}, {}
        # First the text with the least to read; problems that share a question share its cost.
        _, question, shared_by = np.unique(rows, return_inverse=True, return_counts=True)
        lengths = np.array([len(query.sentence) for query in words.queries], np.float64)
        cost = np.zeros(words.place.shape)
        np.add.at(cost, (words.word_of, words.text_of), lengths / shared_by[question])
        cheapest = np.where(words.occurrences > 0, cost, np.inf).argmin(axis=1)
        first = rows[words.text_of == cheapest[words.word_of]]
        return {"rows": pa.table({"row": first})}, {}

    def _within_reach(self, words: Words) -> NDArray[np.bool_]:
        """Return [words] whether the word's class can still get enough replacements."""
        config = self.config
        survivors = self.survivors(words.queries)
        table = Table.of(words, survivors, scope=config.min_replacements_scope)
        # [words, texts] Whether all occurrences were asked about.
        known, asked = words.occurrences > 0, next(iter(survivors.values())).asked
        known[words.word_of[~asked], words.text_of[~asked]] = False
        suggested = table.suggested > 0
        validated = suggested & (
            first_reasons(suggested, ("one text",), table, config) == NO_REASON
        )
        text, row = np.nonzero((validated.any(axis=2) & known[table.shared]).T)
        groups, least = words.groups(config.min_replacements_scope), config.min_replacements

        def enough(text: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.bool_]:
            # [words] Whether words counted together can have enough, if these are validated.
            sizes = np.zeros(words.place.shape, np.int64)
            np.add.at(sizes, (table.shared[row], text), 1)
            bounds = np.where(known, sizes, np.iinfo(np.int32).max).min(axis=1)
            can_have: NDArray[np.bool_] = np.bincount(groups, bounds)[groups] >= least
            return can_have

        alive = enough(text, row)
        if config.class_filter:
            # Tagging is expensive, so it is done only where it can decide: first for a number of
            # words that is mostly enough, 1.2 times those needed, then for more where it was not.
            may_matter = alive[table.shared[row]]
            text, row = text[may_matter], row[may_matter]
            shared = table.shared[row]
            together = pairs(text, groups[shared])
            _, first, place = np.unique(together, return_index=True, return_inverse=True)
            rank = np.arange(len(row)) - first[place]
            keeps_class: NDArray[np.bool_] = np.zeros(len(row), np.bool_)
            alive = np.zeros(len(alive), np.bool_)
            for done, end in pairwise([0, *(n * least for n in (1.2, 1.5, 2, 3, 5)), math.inf]):
                tagged = np.flatnonzero((done <= rank) & (rank < end) & ~alive[shared])
                put = table.put(row[tagged], text[tagged])
                reasons, _ = judge_in_context(put, self.tagger, tag_match=config.tag_match)
                keeps_class[tagged] = reasons == NO_REASON
                alive = enough(text[keeps_class], row[keeps_class])
        # Ablations keep seeds and classes, with all of their words.
        classes = words.groups("class")
        return np.isin(classes, classes[alive])


def decisive_settings(config: Config) -> dict[str, Any]:
    """Return the settings that decide which questions are asked, as in a record."""
    values = {name: getattr(config, name) for name in DECISIVE}
    return values | {"word_classes": list(config.word_classes)}


def require_asked(run: Path, config: Config, suggested: Mapping[str, Any]) -> None:
    """Raise ValueError if questions were left out whose answers matter with these settings."""
    if "asked" not in suggested:
        return
    asked_for, wanted = suggested["asked"]["for"], decisive_settings(config)
    wider = [name for name, fits in DECISIVE.items() if not fits(wanted[name], asked_for[name])]
    if wider:
        left_out = suggested["questions"] - suggested["asked"]["questions"]
        before, now = (
            ", ".join(f"{name} = {values[name]}" for name in wider)
            for values in (asked_for, wanted)
        )
        raise ValueError(
            f"{run}: the masked LMs were not asked {left_out:,} of {suggested['questions']:,} "
            f"questions, which could not matter with {before}; expected no wider settings, got "
            f"{now}; run the command that made this run again with --ask-all, which asks only them"
        )
