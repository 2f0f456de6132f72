"""Find the questions about a run's problems: tag them block by block, here or in tasks.

Tasks write a part for each block, and the command joins the parts. It depends on the problems alone
what is in a question's shard, so the files are the same.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from tqdm import tqdm

from generation.config import Config
from generation.part_store import read_unit_parts, write_unit_part
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.shared_words import tag_problems
from generation.problems.tagging import Tagger
from generation.run_folder import RunFolder, require_versions, versions
from generation.suggestions.questions import Questions, question_table, questions_about
from merge_dataset.executors.calls import call_tasks, plan_of, says
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import digest_of, digest_of_file

_PACKAGES: Final = ("merge-nli", "numpy", "spacy")
"""Packages on which it depends what is asked about a block."""


def find_questions(run: RunFolder, config: Config, distribution: Distribution | None) -> Questions:
    """Write the questions about the run's problems; those of an earlier run stay where they fit.

    Args:
        run: The run, whose settings are written down.
        config: Its settings.
        distribution: Where tasks tag the problems; by default this process does.

    Raises:
        ExecutorError: tasks failed; what the others did is kept.
        ValueError: the tagger is not installed, or what a task wrote is damaged.
    """
    tagger = Tagger.load(config.tagger)
    made_from = digest_of(
        [digest_of_file(run.problems), config.word_classes, config.masking, tagger.name,
         *(config.sharing or ())]
    )  # fmt: skip
    questions = Questions(run.questions) if run.questions.is_dir() else None
    if questions is None or questions.made_from != made_from or questions.changed():
        if distribution is None:
            tables = _tables(run, config, tagger)
        else:
            tables = _tables_of_tasks(run, tagger, made_from, distribution.without_gpus())
        count = sum(block_sizes(run.problems))
        questions = Questions.write(run.questions, tables, problems=count, made_from=made_from)
    shutil.rmtree(run.tasks("tagging"), ignore_errors=True)
    return questions


def _tables(run: RunFolder, config: Config, tagger: Tagger) -> Iterator[pa.Table]:
    """Yield the questions of all blocks."""
    sizes = block_sizes(run.problems)
    with tqdm(total=sum(sizes), desc="tagging", unit="problem") as bar:
        for number, size in enumerate(sizes):
            yield _table(run, number, config, tagger)
            bar.update(size)


def _table(run: RunFolder, block: int, config: Config, tagger: Tagger) -> pa.Table:
    """Return the questions about the problems of a block."""
    seeds = read_block(run.problems, block)
    problems = tag_problems(seeds, tagger, config.word_classes, config.sharing)
    return question_table(questions_about(problems, masking=config.masking))


# --- In tasks ---


def _tables_of_tasks(
    run: RunFolder, tagger: Tagger, made_from: str, distribution: Distribution
) -> Iterator[pa.Table]:
    """Have tasks tag all blocks; yield their questions.

    Raises:
        ExecutorError: tasks failed.
        ValueError: what a task wrote is damaged.
    """
    folder = run.tasks("tagging")
    plan = {
        "run": str(run.path.absolute()),
        "questions": made_from,
        "tagger": tagger.name,
        "packages": versions(*_PACKAGES),
    }
    units = [f"block {number}" for number in range(len(block_sizes(run.problems)))]
    said = call_tasks(f"{__name__}:tag_unit", folder, units, distribution, plan).all()
    for unit, part in zip(units, said, strict=True):
        yield from read_unit_parts(folder, unit, [part])


@says
def tag_unit(folder: Path, unit: str) -> str:
    """Do a unit of work: write the questions about the problems of a block.

    Args:
        folder: That of the call.
        unit: "block", and its number.

    Returns:
        Name of the part.
    """
    number = int(unit.split()[1])
    run, config, tagger = _opened(json.dumps(plan_of(folder)))
    return write_unit_part(folder, f"{number:06}", _table(run, number, config, tagger))


@lru_cache(maxsize=1)
def _opened(plan: str) -> tuple[RunFolder, Config, Tagger]:
    """Open the run; a task does so once.

    Raises:
        ValueError: this machine has another tagger, or other versions, than the command's.
    """
    values: dict[str, Any] = json.loads(plan)
    require_versions(values["packages"])
    run = RunFolder(Path(values["run"]))
    config = Config.read(run.config)
    tagger = Tagger.load(config.tagger, spare_torch=True)
    if tagger.name != values["tagger"]:
        raise ValueError(
            f"tagger: expected {values['tagger']}, which the command has, got {tagger.name}; "
            "install the same versions on all machines"
        )
    return run, config, tagger
