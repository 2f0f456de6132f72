"""Work on the blocks of a run's problems: here, in several processes, or in tasks.

A build's work, `Builder`, makes of a block's problems its rows of every file.
"""

import json
import pickle
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from generation.problems.on_disk import block_sizes
from generation.problems.shared_words import TaggedProblems
from generation.records import (
    Exclusion,
    exclusion_table,
    seed_rows,
    sorted_replacements,
    variant_rows,
    with_columns,
)
from generation.run_folder import RunFolder, versions
from generation.variants import reasons
from generation.variants.candidates import BlockWork
from generation.variants.grammar import has_library
from generation.variants.perturbations import (
    Fate,
    adapt,
    in_full,
    perturbations_of,
    shuffle_letters,
)
from generation.variants.signal_columns import (
    FILLERS,
    ONLY,
    BlockRows,
    SignalFile,
    with_signals_of_no_words,
)
from generation.variants.validation import draw, eligible, find_replacements, of_pairs
from merge_dataset.executors import Distribution, map_blocks, plan_of, run_blocks
from merge_dataset.files import distinct_rows, read_table, write_table

_PACKAGES: Final = ("inflect", "merge-nli", "numpy", "spacy", "wordfreq")
"""Packages on which the result of a block depends."""

Rejected = dict[reasons.WordKey, tuple[reasons.Reason, int]]
"""Word → reason and number of its replacements that were rejected."""

BlockResult = tuple[Mapping[str, pa.Table], Mapping[str, Any]]
"""Tables by name, and further facts, JSON-able."""

Reach = dict[str, list[float]]
"""Word class → for each seed with enough replacements, the quality that enough of them have."""


def work_on_blocks(
    work: BlockWork, method: str, folder: Path, distribution: Distribution | None
) -> Iterator[BlockResult]:
    """Yield in order what a method of `work` makes of each block; tasks use the folder meanwhile.

    All machines have to have the same tagger and versions of packages.
    """
    blocks = range(len(block_sizes(work.run.problems)))
    if distribution is None:
        workers = work.config.workers
        # Other processes open a tagger of their own, as an open one cannot be sent there.
        own = work if workers == 1 else replace(work)
        yield from map_blocks(blocks, partial(getattr, own, method), workers=workers)
        return
    alone = replace(work, run=RunFolder(work.run.path.absolute()), in_task=True)
    pickled = b64encode(pickle.dumps(alone)).decode()
    plan = {"work": pickled, "method": method, "made_with": _made_with(work)}
    names, where = [f"block {number}" for number in blocks], distribution.without_gpus()
    results = run_blocks(f"{__name__}:do_block", folder, names, where, plan)
    for files, facts in results.values():
        yield {name: read_table(folder / file) for name, file in files.items()}, facts


def do_block(folder: Path, name: str) -> tuple[dict[str, str], Mapping[str, Any]]:
    """Do a block, such as "block 3": write tables; return their files, and more facts."""
    number = int(name.split()[1])
    work, method = _work_of(json.dumps(plan_of(folder)))
    tables, facts = getattr(work, method)(number)
    files = {name: f"tables/{number:06}.{name}.parquet" for name in tables}
    for name, table in tables.items():
        write_table(folder / files[name], table)
    return files, facts


def _made_with(work: BlockWork) -> dict[str, Any]:
    return {"tagger": work.tagger.name, "lemminflect": has_library(), **versions(*_PACKAGES)}


@lru_cache(maxsize=1)
def _work_of(text: str) -> tuple[BlockWork, str]:
    """Read the work of a plan, once per task, so that the task has one tagger."""
    plan = json.loads(text)
    work: BlockWork = pickle.loads(b64decode(plan["work"]))
    if (here := _made_with(work)) != plan["made_with"]:
        raise ValueError(
            f"expected the command's tagger and versions, {plan['made_with']}, a task's machine "
            f"has {here}; install the same on all machines"
        )
    return work, plan["method"]


@dataclass(frozen=True)
class Builder(BlockWork):
    """The inputs of a build, and the work on one block; can be sent to other processes."""

    unablated: Path | None = None
    """Variants of the build whose eligible seeds an ablation keeps."""
    signals: Mapping[str, SignalFile] = field(default_factory=dict)
    """Outputs of `merge-nli signals`: `signals` and `neighbours`."""

    @cached_property
    def kept_pairs(self) -> pa.Table | None:
        """Seeds and classes that an ablation keeps, as they are eligible without it."""
        of_build = self.unablated
        return None if of_build is None else distinct_rows(of_build, ["seed_id", "word_class"])

    def result(self, block: int) -> BlockResult:
        """Find, filter, select and draw a block's replacements; return rows by file, and counts."""
        config, problems = self.config, self.problems(block)
        rows, funnel, unsettled = find_replacements(
            problems, self.survivors, self.lexicon, self.tagger, config
        )
        rows, of_words, rejected, changes, reach = self._filtered(problems, rows, funnel)
        out_of_reach = dict.fromkeys(unsettled, (reasons.Reason.OUT_OF_REACH, None))
        excluded = list(reasons.excluded_words(problems, rows, {**rejected, **out_of_reach}))
        too_few: list[Exclusion] = []
        if self.kept_pairs is None:  # eligible seeds (D9); in an ablation, eligible without it
            chosen, too_few = eligible(rows, config)
        else:
            mine = pc.is_in(self.kept_pairs["seed_id"], value_set=rows["seed_id"].unique())
            chosen = of_pairs(rows, self.kept_pairs.filter(mine))
        drawn = draw(chosen, config)
        if (scores := self.signals.get(config.scores)) and ONLY not in scores.made_by:
            # Only replacements of eligible seeds were scored: enough, unless limits are looser.
            pairs = drawn.group_by(["seed_id", "word_class"]).aggregate([])
            scores.of(of_pairs(of_words, pairs), required=True)
        variants = self._in_full(problems, drawn)
        replacements = self._in_full(problems, rows)
        if config.changes_more or config.scramble:  # no longer in the order they were found in
            replacements = sorted_replacements(replacements)
        ids = set(variants["seed_id"].unique().to_pylist())
        seeds = {seed.seed_id: seed for seed in problems.seeds if seed.seed_id in ids}
        edits = [one.text_edits() for one in perturbations_of(drawn, problems)]
        tables = {
            "replacements": replacements,
            "exclusions": exclusion_table([*excluded, *too_few]),
            "seeds": seed_rows(seeds.values(), config.problem_format),
            "variants": variant_rows(variants, seeds, edits, config.problem_format),
        }
        eligible_pairs = variants.group_by(["seed_id", "word_class"]).aggregate([])
        counts = {
            "last": problems.seeds[-1].seed_id,
            "is_last": block == len(block_sizes(self.run.problems)) - 1,
            "problems": len(problems.seeds),
            "funnel": [[*key, count] for key, count in funnel.items()],
            "changes": [[*fate, count] for fate, count in changes.items()],
            "reach": reach,
            "eligible": dict(Counter(eligible_pairs["word_class"].to_pylist())),
            "tagger": self.tagger.name,
        }
        return tables, counts

    def _filtered(
        self, problems: TaggedProblems, rows: pa.Table, funnel: reasons.Funnel
    ) -> tuple[pa.Table, pa.Table, Rejected, Counter[Fate], Reach]:
        """Add further edits, then drop rows for reasons of further edits and limits on signals.

        Returns the rows left; these in full, before letters are shuffled; words with rejected
        replacements; fates of rows that edit more than a word; and what quality seeds reach.
        """
        rows, rejected, changes = adapt(problems, rows, self.tagger, self.config)
        whole = self._in_full(problems, rows, first=True)
        # Computed once: drawn and written rows take these signals from here.
        rows = with_columns(rows, {n: whole[n] for n in whole.schema.names if n in FILLERS})
        everything = np.ones(len(whole), np.bool_)
        numbers = reasons.first_reasons(everything, ("signals",), whole, self.config)
        reasons.count_rejections(rows, numbers, problems, self.config.problem_format, funnel)
        is_kept = pa.array(numbers == reasons.NO_REASON)
        reach: Reach = {}
        if self.config.min_quality is not None and self.config.min_replacements_scope == "class":
            good = np.isin(numbers, (reasons.NO_REASON, reasons.Reason.LOW_QUALITY.number))
            of_seeds = whole.filter(good).group_by(["word_class", "seed_id"])
            least = self.config.min_replacements
            for row in of_seeds.aggregate([("quality", "list")]).to_pylist():
                qualities = sorted(1.0 if q is None else q for q in row["quality_list"])
                if len(qualities) >= least:
                    reach.setdefault(row["word_class"], []).append(qualities[-least])
        rejected |= {
            key: (reasons.Reason.REJECTED_BY_SIGNALS, count)
            for key, count in reasons.count_words(rows.filter(pc.invert(is_kept))).items()
        }
        rows, of_words = rows.filter(is_kept), whole.filter(is_kept)
        if self.config.scramble:
            rows, ambiguous = shuffle_letters(rows, problems, self.config.rng_seed)
            for word_class, count in ambiguous.items():
                changes[word_class, reasons.KEPT] -= count
                changes[word_class, reasons.Reason.AMBIGUOUS] += count
        return rows, of_words, rejected, +changes, reach

    def _in_full(
        self, problems: TaggedProblems, rows: pa.Table, *, first: bool = False
    ) -> pa.Table:
        """Return rows with all words that they edit; all signals if `first`, else as written."""
        config, whole = self.config, in_full(rows, problems)
        if (changes := self.signals.get("signals")) is not None:
            required = first and config.min_pll_change is not None
            whole = with_columns(whole, changes.of(whole, required=required))
        if first:
            filled = BlockRows(whole, rows, problems, config, self.signals)
            new = {name: filled.column(name) for name in whole.column_names if name in FILLERS}
            return with_columns(whole, {n: x.cast(whole[n].type) for n, x in new.items()})
        return with_signals_of_no_words(whole) if config.scramble else whole
