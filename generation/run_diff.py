"""`merge-nli diff`: two builds compared, for people and for programs.

To see what a setting, an option or a masked LM changes: build with and without, then compare.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from generation.records import REPLACEMENT_KEY
from generation.run_folder import RunFolder
from merge_dataset.files import distinct_rows, draw_rank, read_row_groups, read_table
from merge_dataset.schema import WORD_CLASSES, changed_words
from merge_dataset.show import marked

_SEED: Final = ("seed_id", "word_class")
_KEY: Final = list(REPLACEMENT_KEY)
_SPANS: Final = "_spans"
_EXAMPLE: Final = ("variant_id", *_SEED, "original", "replacement", "log_odds")
"""Columns of an example, before its texts."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two builds side by side."""

    runs: tuple[str, str]
    replacements: dict[str, dict[str, int]]
    """Word class, and "all" → replacements before sampling that only the `first` build has, `both`
    have, or only the `second` has."""
    seeds: dict[str, dict[str, int]]
    """Word class, and "all" → eligible seeds likewise; a seed of two classes is one of all."""
    examples: tuple[list[dict[str, Any]], list[dict[str, Any]]]
    """Variants whose replacement the other build has not, of the first and of the second."""

    def to_json(self) -> str:
        """Return all of it as one JSON object."""
        shown = {name: getattr(self, name) for name in ("runs", "replacements", "seeds")}
        examples = dict(zip(("first", "second"), self.examples, strict=True))
        return json.dumps({**shown, "examples": examples}, indent=2, ensure_ascii=False)

    def to_text(self) -> str:
        """Return two tables, then the examples with their words marked."""
        lines = [f"A: {self.runs[0]}", f"B: {self.runs[1]}"]
        for title, counts in (
            ("replacements", self.replacements),
            ("eligible seeds", self.seeds),
        ):
            lines += ["", f"{title:<16}{'only A':>12}{'both':>12}{'only B':>12}"]
            lines += [
                f"{name:<16}" + "".join(f"{count:>12,}" for count in sides.values())
                for name, sides in counts.items()
            ]
        for name, examples in zip("AB", self.examples, strict=True):
            if examples:
                lines += ["", f"Variants that only {name} can have, {len(examples)} of them:"]
            for example in examples:
                texts = list(example.items())[len(_EXAMPLE) :]
                lines.append(f"  {example['variant_id']}")
                lines += [f"    {field}: {text}" for field, text in texts]
        return "\n".join(lines)


def difference(
    first: str | Path, second: str | Path, *, examples: int = 10, rng_seed: int = 0
) -> Difference:
    """Compare two builds of the same problems.

    Args:
        first: A run folder after `build`, or the folder of an ablation in it.
        second: Another.
        examples: How many variants to show of each, drawn at random.
        rng_seed: Another number, other examples.

    Raises:
        FileNotFoundError: a folder holds no finished build.
    """
    runs = RunFolder(Path(first)), RunFolder(Path(second))
    for run in runs:
        run.require_build()
        run.require_unchanged(run.manifest, [run.replacements.name, run.variants.name], "build")
    replacements = [read_table(run.replacements, _KEY) for run in runs]
    eligible = [distinct_rows(run.variants, _SEED) for run in runs]
    everywhere = [table.group_by("seed_id").aggregate([]) for table in eligible]
    return Difference(
        runs=(str(first), str(second)),
        replacements=_per_class(*replacements, keys=_KEY),
        seeds=_per_class(*eligible, keys=list(_SEED))
        | {"all": _counts(*everywhere, keys=["seed_id"])},
        examples=(
            _examples(runs[0], replacements[1], examples, rng_seed),
            _examples(runs[1], replacements[0], examples, rng_seed),
        ),
    )


def _per_class(first: pa.Table, second: pa.Table, *, keys: list[str]) -> dict[str, dict[str, int]]:
    """Compare the rows of each word class that either table has, and all of them."""
    found = {}
    for word_class in WORD_CLASSES:
        mine = [t.filter(pc.equal(t["word_class"], word_class)) for t in (first, second)]
        if any(len(table) for table in mine):
            found[word_class] = _counts(*mine, keys=keys)
    return {**found, "all": _counts(first, second, keys=keys)}


def _counts(first: pa.Table, second: pa.Table, *, keys: list[str]) -> dict[str, int]:
    both = len(first.join(second, keys, join_type="left semi"))
    return {"first": len(first) - both, "both": both, "second": len(second) - both}


def _examples(run: RunFolder, others: pa.Table, count: int, rng_seed: int) -> list[dict[str, Any]]:
    """Return variants with replacements that are not among `others`."""
    columns = ["variant_id", *_SEED, "original", "replacement"]
    keys = read_table(run.variants, columns).rename_columns(["variant_id", *_KEY])
    alone = keys.join(others, _KEY, join_type="left anti")["variant_id"].to_pylist()
    ranked = sorted(alone, key=lambda variant_id: draw_rank(rng_seed, variant_id))
    chosen = pa.array(ranked[:count], pa.string())
    return [
        _example(row)
        for table in read_row_groups(run.variants)
        for row in table.filter(pc.is_in(table["variant_id"], value_set=chosen)).to_pylist()
    ]


def _example(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of an example, and its texts with each changed word as [old → new]."""
    old = changed_words(row["original"], row["replacement"])
    texts = {
        name: marked(row[name], row[name + _SPANS], lambda new: f"[{old[new]} → {new}]")
        for name in row
        if name + _SPANS in row
    }
    return {name: row[name] for name in _EXAMPLE} | texts
