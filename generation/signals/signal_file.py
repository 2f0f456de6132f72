"""`signals.parquet`: what `merge-nli signals` found out about replacements, for `build` to join."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from generation.run_folder import RunFolder
from generation.run_tables import REPLACEMENT_KEY
from merge_dataset.files import digest_of_file, read_json
from merge_dataset.schema import NLI, ProblemFormat


def signal_schema(problem_format: ProblemFormat = NLI) -> pa.Schema:
    """Its columns: a replacement's key, and for each text the change in nats."""
    keys = [(name, pa.string()) for name in REPLACEMENT_KEY]
    return pa.schema([*keys, *((name, pa.float32()) for name in problem_format.pll_changes)])


@dataclass(frozen=True, slots=True)
class PllChanges:
    """The changes of pseudo-log-likelihood that are there. Can be sent to other processes."""

    path: Path
    made_by: dict[str, Any]
    """The model and how it was asked, for the manifest."""
    cure: str
    """What to do where some are missing."""

    @classmethod
    def of(cls, build: RunFolder, base: RunFolder) -> Self | None:
        """Those for a build, else those for the run it belongs to; None where there are none.

        Raises:
            ValueError: they are of other problems than the run's.
        """
        for folder in (build, base):
            if not folder.signals_made.is_file():
                continue
            made_by = read_json(folder.signals_made)
            if made_by.pop("problems") != digest_of_file(base.problems):
                raise ValueError(
                    f"{folder.signals}: expected the signals of the run's problems, got those of "
                    f"others; run merge-nli signals again, or remove {folder.signals_made.name}"
                )
            return cls(folder.signals, made_by, cure(build, base))
        return None

    def join(self, replacements: pa.Table, *, required: bool = False) -> pa.Table:
        """Replacements with the changes; null where there are none.

        Args:
            replacements: Of some seeds.
            required: Whether each has to have them.

        Raises:
            ValueError: some that are required are missing.
        """
        if not len(replacements):
            return replacements
        first, last = (pc.min_max(replacements["seed_id"])[end].as_py() for end in ("min", "max"))
        span = [("seed_id", ">=", first), ("seed_id", "<=", last)]
        # Without partitioning: it would take a parent folder called a=b for a column.
        there = pq.read_table(self.path, filters=span, partitioning=None)
        rows = pc.index_in(_keys(replacements), value_set=_keys(there).combine_chunks())
        if required and rows.null_count:
            raise ValueError(
                f"{self.path}: expected the change of pseudo-log-likelihood of every replacement, "
                f"found none for {rows.null_count:,} of {len(rows):,} of some problems; {self.cure}"
            )
        for name in there.column_names[len(REPLACEMENT_KEY) :]:
            place = replacements.schema.get_field_index(name)
            replacements = replacements.set_column(
                place, replacements.schema.field(place), there[name].take(rows)
            )
        return replacements


def cure(build: RunFolder, base: RunFolder) -> str:
    """How to find out the changes of all replacements of a build, for a limit on them.

    Args:
        build: The folder of the build.
        base: The run it belongs to.
    """
    into, of = "", ""
    if build.path != base.path:
        into, of = f" --into {build.path.name}", f" --of {build.path.name}"
    return (
        f"run: merge-nli build --run {base.path}{into}, with these settings but without "
        f"min_pll_change; then: merge-nli signals --run {base.path}{of} --mlm …; then build again"
    )


def _keys(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*(table[name] for name in REPLACEMENT_KEY), "\n")
