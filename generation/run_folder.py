"""The layout of a run folder: which file holds what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps what."""

    path: Path

    @property
    def config(self) -> Path:
        """The settings the run was made with."""
        return self.path / "config.toml"

    @property
    def manifest(self) -> Path:
        """What was made from what, with counts and file digests; written last."""
        return self.path / "manifest.json"

    @property
    def suggested(self) -> Path:
        """What `suggest` leaves for `build`: problems read, models, their stores."""
        return self.path / "suggested.json"

    @property
    def store(self) -> Path:
        """The suggestion store, unless the settings put it elsewhere."""
        return self.path / "suggestions"

    @property
    def problems(self) -> Path:
        """All labelled problems of the source, by `seed_id`."""
        return self.path / "problems.parquet"

    @property
    def questions(self) -> Path:
        """What the masked LMs are asked, in shards."""
        return self.path / "questions"

    @property
    def stores(self) -> Path:
        """Which store each masked LM's answers are in, a file for each."""
        return self.path / "stores"

    @property
    def replacements(self) -> Path:
        """R_M(⟨p, h⟩, o) in full, before sampling."""
        return self.path / "replacements.parquet"

    @property
    def exclusions(self) -> Path:
        """Problems and words without variants, and why."""
        return self.path / "exclusions.parquet"

    @property
    def seeds(self) -> Path:
        """The eligible problems, as in the dataset."""
        return self.path / "seeds.parquet"

    @property
    def variants(self) -> Path:
        """The sampled variants, as in the dataset."""
        return self.path / "variants.parquet"

    @property
    def signals(self) -> Path:
        """What `merge-nli signals` found out about the replacements of a build."""
        return self.path / "signals.parquet"

    @property
    def signals_made(self) -> Path:
        """By which model; written last."""
        return self.path / "signals.json"

    @property
    def likelihoods(self) -> Path:
        """Pseudo-log-likelihoods of texts, unless the settings put them elsewhere."""
        return self.path / "likelihoods"

    def require_build(self) -> None:
        """Raise FileNotFoundError unless a build was finished here."""
        if not self.manifest.is_file():
            raise FileNotFoundError(
                f"{self.path}: expected a run folder with a finished build, found none; run: "
                "merge-nli build"
            )

    def named(self, name: str) -> RunFolder:
        """The folder of another build over this run's suggestions, such as an ablation.

        Raises:
            ValueError: it would lie elsewhere, or where a run keeps something else.
        """
        folder = RunFolder(self.path / name)
        kept = (self.store, self.questions, self.stores, self.likelihoods)
        taken = {path.name for path in kept} | {"tasks"}
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or name in taken:
            raise ValueError(
                f"expected a name for the build of letters, digits, - and _, none of "
                f"{sorted(taken)}, got {name!r}"
            )
        return folder


def slug(text: str) -> str:
    """`text` as a file name: letters, digits, dots and hyphens.

    >>> slug("google-bert/bert-base-cased")
    'google-bert--bert-base-cased'
    """
    return re.sub(r"[^A-Za-z0-9.-]", "-", text.replace("/", "--"))
