"""Phase 1, `suggest`: ask the masked LMs and fill the suggestion store; slow, wants a GPU."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from generation.config import Config
from generation.phases.asking import ask_all, ask_what_matters, asked_record
from generation.phases.tagging_tasks import find_questions
from generation.problems.on_disk import sorted_problems
from generation.problems.sources import Problems, load_problems, require_labels, require_source
from generation.run_folder import RunFolder
from generation.suggestions.ask import collect, mlm_names, wanted_mlms
from generation.suggestions.asked import Asked
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import (
    digests,
    read_record,
    write_record,
    write_text,
)
from merge_dataset.provenance import differences
from merge_dataset.settings import parse_toml
from merge_metric.models.readiness import look_at, machine_for, require_all

log = logging.getLogger(__name__)


def suggest_run(
    config: Config,
    *,
    distribution: Distribution | None = None,
    overwrite: bool = False,
    problems: Problems | None = None,
) -> RunFolder:
    """Phase 1: ask every masked LM about every occurrence of a shared word.

    Resumes where an earlier run stopped; what the store already holds is not asked again.

    Args:
        config: The run's settings.
        distribution: Where tasks ask the masked LMs; by default this process does.
        overwrite: Replace what was made of other problems or by other models. The masked LMs'
            answers stay in any case.
        problems: What is known of the problems, where they lie in the run folder already.

    Raises:
        BlockingIOError: another command is at work in the folder.
        FileExistsError: the folder has a build of other settings, problems or models.
        ExecutorError: tasks failed; what they finished is kept. Or there is no such executor.
        ValueError: the settings name no MLM or two of the same name, or a model, a
            source or the tagger cannot be loaded.
        FileNotFoundError: the source's file does not exist.
    """
    run, config = RunFolder(Path(config.run)), config.with_absolute_paths()
    if problems is None:
        require_labels(config)
        require_source(config)
    with run.locked():
        _require_ours(run)
        earlier = None if overwrite else _Earlier.of(run)
        if earlier:
            earlier.require_same(run, config, named_mlms(config))
        _look_at_models(config, distribution)
        if problems is None:
            problems = _read_problems(run, config, earlier)
        else:
            _settle_problems(run, config, earlier, problems)
        _suggest(run, config, problems, earlier, distribution)
    return run


@dataclass(frozen=True, slots=True)
class _Earlier:
    """Settings and record of an earlier `suggest`, whose build is not replaced without a word."""

    record: Mapping[str, Any]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, run: RunFolder) -> Self | None:
        """Read it; None where nothing would be replaced."""
        if not (run.manifest.is_file() and run.suggested.is_file() and run.config.is_file()):
            return None
        return cls(read_record(run.suggested), Config.read(run.config).output_settings())

    def require_same(self, run: RunFolder, config: Config, made_from: Mapping[str, Any]) -> None:
        """Raise FileExistsError where something else would come of these settings."""
        there = {**self.record, "config": self.settings}
        coming = {"config": config.output_settings(), **made_from}
        if differing := differences(there, coming):
            problems = self.record["problems"]["kept"]
            raise FileExistsError(
                f"{run.path}: expected no build or one of the same problems and models, found one "
                f"of {problems:,} problems: {'; '.join(differing)}. Name another run folder "
                "with --run, or replace it with --overwrite; the masked LMs' answers stay"
            )


def _suggest(
    run: RunFolder,
    config: Config,
    problems: Problems,
    earlier: _Earlier | None,
    distribution: Distribution | None,
) -> None:
    """Fill the stores and write `suggested.json`; `earlier` is what has to stay."""
    write_text(run.config, config.to_toml())
    questions = find_questions(run, config, distribution)
    if not len(questions):
        raise ValueError(
            f"{problems.description}: expected a {' or '.join(config.word_classes)} shared by "
            f"{' and '.join(config.shared_fields or config.fields)}, found none in "
            f"{problems.count} problems"
        )
    asked = Asked(questions, run.asked)
    ask_now = partial(ask_all, run, config, questions, distribution)
    ask_what_matters(run, config, asked, ask_now, distribution)
    mlms = collect(run, config)
    if earlier:
        earlier.require_same(run, config, {"mlms": mlms})
    record = {
        "source": config.source,
        "source_data": problems.source_data,
        "problems": {
            **problems.counts,
            "unlabelled": problems.unlabelled,
        },
        "questions": len(questions),
        **asked_record(asked, config),
        "mlms": mlms,
        "files": digests(
            {
                path.relative_to(run.path).as_posix(): path
                for path in (run.config, run.problems, questions.header, run.asked)
                if path.is_file()
            }
        ),
    }
    write_record(run.suggested, record)


def _look_at_models(config: Config, distribution: Distribution | None) -> None:
    """Raise ValueError with all that is wrong with any masked LM, before the long work."""
    wanted = wanted_mlms(config.mlms, dtype=config.dtype)
    machine = machine_for(distribution, config.device)
    require_all(look_at(wanted, machine), machine, "`merge-nli models` shows what is there")


def named_mlms(config: Config) -> dict[str, Any]:
    """Return what is known of the masked LMs before they are loaded, as the record has it."""
    return {"mlms": [{"name": name} for name in mlm_names(config.mlms)]}


def _read_problems(run: RunFolder, config: Config, earlier: _Earlier | None) -> Problems:
    """Read the source into the run folder, and drop what belongs to other settings."""
    with sorted_problems(run.problems, config.problem_format) as add:
        problems = load_problems(config, add, scratch=run.sorting)
        _settle_problems(run, config, earlier, problems)
        problems.list_skipped(run.skipped_rows)
    log.info("%s: %d problems, %d without a label", problems.description, problems.count,
             len(problems.unlabelled))  # fmt: skip
    return problems


def _settle_problems(
    run: RunFolder, config: Config, earlier: _Earlier | None, problems: Problems
) -> None:
    """Require the problems of the build that has to stay, or drop what fits no longer."""
    if earlier:
        earlier.require_same(run, config, {"source_data": problems.source_data})
    else:
        # What an earlier run left no longer fits these settings until both phases are done.
        run.manifest.unlink(missing_ok=True)
        run.suggested.unlink(missing_ok=True)
    shutil.rmtree(run.stores, ignore_errors=True)


def _require_ours(run: RunFolder) -> None:
    """Raise ValueError where the folder holds a run of paraphrases."""
    if run.config.is_file() and "generator" in parse_toml(
        run.config.read_text(encoding="utf-8"), str(run.config)
    ):
        raise ValueError(
            f"{run.path}: expected a run folder of replacements or none, got one of paraphrases; "
            "name another with --run"
        )
