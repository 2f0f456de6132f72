"""The run folder: its files, and the manifest, which records how they were made."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, get_args

from merge_dataset import provenance
from merge_dataset.files import changed_files, read_record, remove_partials, working_in
from merge_dataset.settings import declared_settings, parse_toml

log = logging.getLogger(__name__)

DealtWork = Literal["tagging", "asking", "build", "signals", "neighbours"]
"""Work that can be divided among tasks."""

SCORED: Final = "scored"
"""Folder of the build that finds the replacements to score for `quality`. It assumes the best case:
that neighbouring words or texts stay as likely as they were."""


class _File:
    """A file or folder by its name in the folder of a run."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: RunFolder, owner: object = None) -> Path:
        return run.path / self.name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of a run."""

    path: Path

    def __fspath__(self) -> str:
        """Return the path, so that functions that take a run's path also take the run."""
        return str(self.path)

    config = _File("config.toml")
    """The settings the run was made with."""
    manifest = _File("manifest.json")
    """Settings, counts, versions and digests of a finished build; written last."""
    suggested = _File("suggested.json")
    """The output of `suggest` for `build`: problems read, models, their stores."""
    store = _File("suggestions")
    """The suggestion store, unless the settings put it elsewhere."""
    problems = _File("problems.parquet")
    """All labelled problems of the source, by `seed_id`."""
    skipped_rows = _File("skipped_rows.json")
    """Rows of the source that were left out because they cannot be used, with reasons, if any."""
    questions = _File("questions")
    """The questions to the masked LMs, in blocks, and which of them are asked."""
    stores = _File("stores")
    """Folder with a file for each masked LM, which names the store of its answers."""
    replacements = _File("replacements.parquet")
    """R_M(⟨p, h⟩, o) in full, before sampling."""
    exclusions = _File("exclusions.parquet")
    """Problems and words without variants, and the reasons."""
    seeds = _File("seeds.parquet")
    """The eligible problems, as in the dataset."""
    variants = _File("variants.parquet")
    """The sampled variants, as in the dataset."""
    signals = _File("signals.parquet")
    """Changes of pseudo-log-likelihood, which `merge-nli signals` computes for a build."""
    signals_made = _File("signals.json")
    """The model and settings that made `signals`; written last."""
    neighbours = _File("neighbours.parquet")
    """Changes of words beside replacements, by `merge-nli signals --neighbours`."""
    neighbours_made = _File("neighbours.json")
    """The masked LMs that made `neighbours`; written last."""
    shared_words = _File("shared_words.parquet")
    """All shared words of the problems, listed for `analyse seeds`."""
    counts = _File("counts.json")
    """Counts for `analyse seeds` and `analyse filters`; written last."""
    likelihoods = _File("likelihoods")
    """Pseudo-log-likelihoods of texts, unless the settings put them elsewhere."""
    answers = _File("answers.parquet")
    """Answers of the NLI model to the problems, in a run of paraphrases."""
    model_answers = _File("model_answers")
    """Answers of the text generator and the NLI model, in a run of paraphrases."""
    paraphrases = _File("paraphrases.parquet")
    """All candidates and their reasons, in a run of paraphrases."""
    candidates = _File("candidates")
    """Suggestions that pass the cheap filters, as long as a build reads them."""

    def tasks(self, work: DealtWork) -> Path:
        """Return the path of the plans, results and logs of a call's tasks, kept until it ends."""
        return self.path / f"{work}_tasks"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder, so that one command at a time writes to it, or BlockingIOError."""
        with working_in(self.path):
            remove_partials(self.path, _NAMES)  # left by killed commands
            yield

    def require_kind(self, *, paraphrases: bool) -> None:
        """Raise ValueError if the folder has a run of the other kind."""
        if self.config.is_file():
            settings = parse_toml(self.config.read_text(encoding="utf-8"), str(self.config))
            if ("generator" in settings) != paraphrases:
                kinds = (provenance.REPLACEMENTS, provenance.PARAPHRASES)
                raise ValueError(
                    f"{self.path}: expected no run or one of {kinds[paraphrases]}, got one of "
                    f"{kinds[not paraphrases]}; name another with --run"
                )

    def require(self, step: Literal["suggest", "build"]) -> None:
        """Raise FileNotFoundError unless a step was finished here, BlockingIOError if it may be."""
        record, expected = self.suggested, "suggestions"
        if step == "build":
            record, expected = self.manifest, "a finished build"
        if not record.is_file():
            if self.path.is_dir():
                with suppress(PermissionError), self.locked():
                    pass  # no command is at work
            raise FileNotFoundError(
                f"expected {expected} in {self.path}, found none; run: merge-nli {step} --run "
                f"{self.path}"
            )

    def require_unchanged(self, record: Path, names: Sequence[str], redo: str) -> None:
        """Raise ValueError unless files match the record of an earlier step."""
        recorded = read_record(record, "files")["files"]
        if changed := changed_files(self.path, {name: recorded.get(name, "") for name in names}):
            raise ValueError(
                f"{self.path}: expected {', '.join(changed)} as recorded in {record.name}, got "
                f"other contents; run merge-nli {redo} again"
            )

    def require_same_build(
        self, config: Mapping[str, Any], *, made_from: Mapping[str, Any] | None = None
    ) -> None:
        """Raise FileExistsError if a build would replace one of other settings or problems."""
        if not self.manifest.is_file():
            return
        remedy = "Restore it from a copy, or replace the build with --overwrite"
        earlier = read_record(self.manifest, "config", "eligible", "variants", remedy=remedy)
        coming = {"config": config, "draw": provenance.DRAW, **(made_from or {})}
        seeds, variants = max(earlier["eligible"].values(), default=0), earlier["variants"]
        self.require_same(earlier, coming, f"{variants:,} variants of at least {seeds:,} seeds")

    def require_same(
        self, earlier: Mapping[str, Any], coming: Mapping[str, Any], what: str
    ) -> None:
        """Raise FileExistsError if what is to come differs from what was made earlier."""
        if differing := provenance.differences(earlier, coming):
            raise FileExistsError(
                f"{self.path}: expected no build or the same one, found one of {what}: "
                f"{'; '.join(differing)}. Name another run folder with --run (or a build inside "
                "it: merge-nli build --into NAME), or replace it with --overwrite"
            )

    def named(self, name: str | None) -> RunFolder:
        """Return the folder of a named build of this run, such as an ablation, or the run's own."""
        if not name:
            return self
        used = {*_NAMES, "tasks", *(self.tasks(work).name for work in get_args(DealtWork))}
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or name in used:
            raise ValueError(
                "into: expected for the build a name of letters, digits, - and _ that no file or "
                f"folder of the run has, got {name!r}"
            )
        return RunFolder(self.path / name)


_NAMES: Final = frozenset(f.name for f in vars(RunFolder).values() if isinstance(f, _File))
"""Names of a run's files."""


def explain(
    declared: type, settings: Mapping[str, Any], funnel: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Describe settings and columns of the funnel, for readers who have only the manifest."""
    helps = {field.name: setting.help for field, setting in declared_settings(declared).items()}
    told = {name: helps[name] for name in settings if name in helps}
    return {"settings": told, "funnel": dict(funnel)}


def versions(*packages: str) -> dict[str, str]:
    """Return the installed versions of packages by name."""
    return {name: version(name) for name in packages}
