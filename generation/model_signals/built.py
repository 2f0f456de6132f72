"""A finished build whose texts a model is asked about, here or in tasks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from generation.config import Config
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.shared_words import TaggedProblems, tag_problems
from generation.problems.tagging import Tagger
from generation.run_folder import RunFolder
from merge_dataset.executors.calls import call_tasks, plan_of
from merge_dataset.executors.plan import Distribution, Task
from merge_dataset.files import digest_of_file, read_record, read_where, write_record
from merge_dataset.schema import WORD_CLASSES


def absolute(model: str) -> str:
    """Make the path of a model absolute, for tasks started elsewhere; leave a Hub id as it is."""
    return str(Path(model).absolute()) if Path(model).exists() else model


@dataclass(frozen=True)
class Built:
    """A build, and the run that it belongs to."""

    run: RunFolder
    build: RunFolder
    """The run's own build, or one inside its folder."""
    settings: Mapping[str, Any]
    """Settings of the command; a setting that is None has the build's value."""

    @classmethod
    @contextmanager
    def held(cls, run: str | Path, of: str | None, **settings: Any) -> Iterator[Self]:
        """Lock a build (the run's own if `of` is None), and check that it is unchanged."""
        base = RunFolder(Path(run))
        build = base.named(of)
        build.require_build()
        with build.locked():
            build.require_unchanged(build.manifest, [build.replacements.name], "build")
            base.require_unchanged(base.suggested, [base.problems.name], "suggest")
            yield cls(base, build, settings)

    @cached_property
    def config(self) -> Config:
        """The run's settings, overlaid by the build's, then by the command's."""
        made = {**read_record(self.build.manifest)["config"], **self.settings}
        return Config.read(self.run.config).overlaid(None, made)

    @cached_property
    def tagger(self) -> Tagger:
        """The tagger of the build."""
        return Tagger.load(self.config.tagger)

    @cached_property
    def sizes(self) -> list[int]:
        """Numbers of problems by block."""
        return block_sizes(self.run.problems)

    def store(self, own: Path) -> Path:
        """Return the path of a store: in the run's folder, unless the settings name another."""
        return Path(self.config.store) / own.name if self.config.store else own

    def problems(self, block: int) -> TaggedProblems:
        """Read a block of problems, with their shared words of all classes."""
        seeds = read_block(self.run.problems, block)
        return tag_problems(seeds, self.tagger, WORD_CLASSES, self.config.sharing)

    def replacements(self, problems: TaggedProblems, columns: Sequence[str]) -> pa.Table:
        """Read columns of the replacements in a block of problems."""
        first, last = (problems.seeds[n].seed_id for n in (0, -1))
        span = [("seed_id", ">=", first), ("seed_id", "<=", last)]
        return read_where(self.build.replacements, span, columns)

    def record(self, path: Path, made: Mapping[str, Any], file: Path) -> dict[str, Any]:
        """Write the record of a file, last; return it without the digest of the problems."""
        known = {**made, "sha256": digest_of_file(file)}
        write_record(path, {**known, "problems": digest_of_file(self.run.problems)})
        return known

    def in_tasks(
        self, function: str, folder: Path, plan: Mapping[str, Any], distribution: Distribution
    ) -> Any:
        """Do the work in tasks; return the description of the model, equal in all."""
        known = {
            **plan,
            "base": str(self.run.path.absolute()),
            "build": str(self.build.path.absolute()),
            "settings": self.settings,
        }
        units = [str(task) for task in Task.all(distribution.tasks)]
        models = call_tasks(function, folder, units, distribution, known).all()
        if other := [each for each in models if each != models[0]]:
            raise ValueError(
                f"{self.build.path}: expected the same model, device, dtype and packages in every "
                f"task, got {models[0]} and {other[0]}; name them with --device, --dtype and "
                "@revision"
            )
        return models[0]

    @classmethod
    def of_task(cls, folder: Path) -> tuple[Self, Any]:
        """Return the build that a task works on, and its plan."""
        plan = plan_of(folder)
        run, build = (RunFolder(Path(plan[name])) for name in ("base", "build"))
        return cls(run, build, plan["settings"]), plan
