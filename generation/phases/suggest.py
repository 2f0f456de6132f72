"""Phase 1, `suggest`: ask the masked LMs and fill the suggestion store; slow, wants a GPU.

First the problems are tagged block by block, here or in tasks, for the questions about them. Tasks
write a part for each block, and the command joins the parts. It depends on the problems alone what
is in a question's shard, so the files are the same.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from tqdm import tqdm

from generation.config import Config
from generation.part_store import read_unit_parts, write_unit_part
from generation.phases.asking import ask_what_matters, decisive_settings
from generation.problems.on_disk import block_sizes, read_block, sorted_problems
from generation.problems.shared_words import tag_problems
from generation.problems.sources import Problems, load_problems, require_labels, require_source
from generation.problems.tagging import Tagger, tagger_for
from generation.run_folder import RunFolder, require_versions, versions
from generation.suggestions.ask import collect, mlm_names, wanted_mlms
from generation.suggestions.questions import Asked, Questions, question_table, questions_about
from merge_dataset.executors.calls import call_tasks, plan_of, says
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import (
    digest_of,
    digest_of_file,
    digests,
    read_record,
    write_record,
    write_text,
)
from merge_dataset.provenance import differences
from merge_metric.models.readiness import inspect_models, machine_for, require_all

log = logging.getLogger(__name__)

_PACKAGES: Final = ("merge-nli", "numpy", "spacy")
"""Packages on which it depends what is asked about a block."""


def suggest_run(
    config: Config,
    *,
    distribution: Distribution | None = None,
    overwrite: bool = False,
    problems: Problems | None = None,
) -> RunFolder:
    """Fill a run without slices, or a slice, with its problems known; see `slices.suggest`."""
    run, config = RunFolder(Path(config.run)), config.with_absolute_paths()
    if problems is None:
        require_labels(config)
        require_source(config)
    with run.locked():
        run.require_kind(paraphrases=False)
        there: dict[str, Any] | None = None
        made_by = (run.manifest, run.suggested, run.config)
        if not overwrite and all(path.is_file() for path in made_by):
            # Record and settings of a build's `suggest`, which is not replaced unasked.
            made = Config.read(run.config).output_settings()
            there = {**read_record(run.suggested), "config": made}
        _require_same(run, there, config, named_mlms(config))
        # All that is wrong with any masked LM is told before the long work.
        wanted = wanted_mlms(config.mlms, dtype=config.dtype)
        machine = machine_for(distribution, config.device)
        require_all(inspect_models(wanted, machine), "`merge-nli models` shows what is there")
        if problems is None:
            with sorted_problems(run.problems, config.problem_format) as add:
                problems = load_problems(config, add, scratch=run.sorting)
                _settle_problems(run, config, there, problems)
                problems.list_skipped(run.skipped_rows)
            log.info("%s: %d problems, %d without a label", problems.description, problems.count,
                     len(problems.unlabelled))  # fmt: skip
        else:
            _settle_problems(run, config, there, problems)
        write_text(run.config, config.to_toml())
        questions = find_questions(run, config, distribution)
        if not len(questions):
            raise ValueError(
                f"{problems.description}: expected a {' or '.join(config.word_classes)} shared by "
                f"{' and '.join(config.shared_fields or config.fields)}, found none in "
                f"{problems.count} problems"
            )
        asked = Asked(questions, run.asked)
        ask_what_matters(run, config, asked, distribution)
        mlms = collect(run, config)
        _require_same(run, there, config, {"mlms": mlms})
        paths = (run.config, run.problems, questions.header, run.asked)
        counts = {"questions": len(asked), "of": len(questions), "for": decisive_settings(config)}
        record = {
            "source": config.source,
            "source_data": problems.source_data,
            "problems": {**problems.counts, "unlabelled": problems.unlabelled},
            "questions": len(questions),
            **({"asked": counts} if len(asked) < len(questions) else {}),
            "mlms": mlms,
            "files": digests(
                {path.relative_to(run.path).as_posix(): path for path in paths if path.is_file()}
            ),
        }
        write_record(run.suggested, record)
    return run


def _require_same(
    run: RunFolder, there: Mapping[str, Any] | None, config: Config, made_from: Mapping[str, Any]
) -> None:
    """Raise FileExistsError where a build is there that these would not make again."""
    coming = {"config": config.output_settings(), **made_from}
    if there and (differing := differences(there, coming)):
        raise FileExistsError(
            f"{run.path}: expected no build or one of the same problems and models, found one "
            f"of {there['problems']['kept']:,} problems: {'; '.join(differing)}. Name another run "
            "folder with --run, or replace it with --overwrite; the masked LMs' answers stay"
        )


def _settle_problems(
    run: RunFolder, config: Config, there: Mapping[str, Any] | None, problems: Problems
) -> None:
    """Require the problems of the build that has to stay, or drop what fits no longer."""
    _require_same(run, there, config, {"source_data": problems.source_data})
    if not there:
        # What an earlier run left no longer fits these settings until both phases are done.
        run.manifest.unlink(missing_ok=True)
        run.suggested.unlink(missing_ok=True)
    shutil.rmtree(run.stores, ignore_errors=True)


def named_mlms(config: Config) -> dict[str, Any]:
    """Return what is known of the masked LMs before they are loaded, as the record has it."""
    return {"mlms": [{"name": name} for name in mlm_names(config.mlms)]}


# --- Questions ---


def find_questions(run: RunFolder, config: Config, distribution: Distribution | None) -> Questions:
    """Write the questions about the run's problems; those of an earlier run stay where they fit."""
    tagger = tagger_for(config.tagger)
    made_from = digest_of(
        [digest_of_file(run.problems), config.word_classes, config.masking, tagger.name,
         *(config.sharing or ())]
    )  # fmt: skip
    sizes, folder = block_sizes(run.problems), run.tasks("tagging")

    def tables() -> Iterator[pa.Table]:
        if distribution is None:
            with tqdm(total=sum(sizes), desc="tagging", unit="problem") as bar:
                for number, size in enumerate(sizes):
                    yield _table(run, number, config, tagger)
                    bar.update(size)
            return
        plan = {
            "run": str(run.path.absolute()),
            "questions": made_from,
            "tagger": tagger.name,
            "packages": versions(*_PACKAGES),
        }
        units = [f"block {number}" for number in range(len(sizes))]
        tag = f"{__name__}:tag_unit"
        said = call_tasks(tag, folder, units, distribution.without_gpus(), plan).all()
        for unit, part in zip(units, said, strict=True):
            yield from read_unit_parts(folder, unit, [part])

    questions = Questions(run.questions) if run.questions.is_dir() else None
    if questions is None or questions.made_from != made_from or questions.changed():
        count = sum(sizes)
        questions = Questions.write(run.questions, tables(), problems=count, made_from=made_from)
    shutil.rmtree(folder, ignore_errors=True)
    return questions


def _table(run: RunFolder, block: int, config: Config, tagger: Tagger) -> pa.Table:
    """Return the questions about the problems of a block."""
    seeds = read_block(run.problems, block)
    problems = tag_problems(seeds, tagger, config.word_classes, config.sharing)
    return question_table(questions_about(problems, masking=config.masking))


@says
def tag_unit(folder: Path, unit: str) -> str:
    """Do a unit of work, such as "block 3": write a part with the questions about its problems."""
    number = int(unit.split()[1])
    run, config, tagger = _opened(json.dumps(plan_of(folder)))
    return write_unit_part(folder, f"{number:06}", _table(run, number, config, tagger))


@lru_cache(maxsize=1)
def _opened(plan: str) -> tuple[RunFolder, Config, Tagger]:
    """Open the run; a task does so once."""
    values: dict[str, Any] = json.loads(plan)
    require_versions(values["packages"])
    run = RunFolder(Path(values["run"]))
    config = Config.read(run.config)
    tagger = tagger_for(config.tagger, spare_torch=True)
    if tagger.name != values["tagger"]:
        raise ValueError(
            f"tagger: expected {values['tagger']}, which the command has, got {tagger.name}; "
            "install the same versions on all machines"
        )
    return run, config, tagger
