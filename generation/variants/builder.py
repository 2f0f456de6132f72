"""Building: from a block of problems to its rows of every file, in this process or in several.

Blocks are independent of each other and follow each other by `seed_id`, so that the outcome is
theirs one after the other, whoever worked on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from generation.config import Config
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.shared_words import TaggedProblems, tag_problems
from generation.problems.tagging import Tagger
from generation.reasons import KEPT, NO_REASON, Reason
from generation.records import Exclusion, sorted_replacements
from generation.signals.flag_columns import with_common_mlms, with_label_flags
from generation.signals.nonce_answers import NonceAnswers
from generation.signals.signal_columns import PllChanges, rejections, with_signals_of_no_words
from generation.variants.adaptation import (
    REPLACEMENTS,
    Fate,
    adapt,
    count_fates,
    rejected_families,
    shuffle_letters,
)
from generation.variants.candidates import Candidates
from generation.variants.combinations import draw_several
from generation.variants.funnel import (
    Funnel,
    WordKey,
    count_rejections,
    count_words,
    excluded_words,
)
from generation.variants.optional_columns import BlockRows, with_optional_columns
from generation.variants.perturbations import in_full, text_edits_of
from generation.variants.rows import seed_rows, variant_rows
from generation.variants.sampling import draw, eligible, eligible_pairs, of_pairs
from generation.variants.validation import find_replacements
from generation.variants.words import Lexicon
from merge_dataset.dataset_columns import LABEL_FLAGS
from merge_dataset.executors.blocks import map_blocks
from merge_dataset.files import distinct_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResult:
    """The rows that a block adds to every file, sorted by seed, and its counts."""

    last: str
    """The last `seed_id` of the block."""
    is_last: bool
    """Whether no block follows."""
    problems: int
    replacements: pa.Table
    """R_M(⟨p, h⟩, o) in full."""
    exclusions: list[Exclusion]
    seeds: pa.Table
    variants: pa.Table
    funnel: Funnel
    changes: Counter[Fate]
    """Fates of whatever edits more than one word."""
    eligible: dict[str, int]
    """Word class → seeds."""
    tagger: str
    """Name and version of the tagger."""


@dataclass(frozen=True)
class Builder:
    """Everything that a block needs beside its problems. Can be sent to other processes."""

    problems: Path
    candidates: Mapping[str, Candidates]
    """By MLM."""
    config: Config
    unablated: Path | None
    """Variants of the build whose eligible seeds an ablation keeps."""
    pll_changes: PllChanges | None = None
    """The output of `merge-nli signals`."""
    nonce: NonceAnswers | None = None
    """That of `merge-nli signals --nonce`."""

    def results(self) -> Iterator[BlockResult]:
        """Yield the results of all blocks, in order; `config.workers` are made at a time."""
        # Without what this process has loaded.
        builder = replace(self)
        return map_blocks(range(self._blocks), builder.open, workers=self.config.workers)

    def open(self) -> Callable[[int], BlockResult]:
        """Return the function that works on blocks; each process has its own tagger."""
        return self.result

    def result(self, block: int) -> BlockResult:
        """Find, filter, select and draw the replacements of the problems of one block."""
        config = self.config
        problems = tag_problems(
            read_block(self.problems, block), self._tagger, config.word_classes, config.sharing
        )
        rows, funnel, unsettled = find_replacements(
            problems, self.candidates, self._lexicon, self._tagger, config
        )
        rows, rejected, changes = self._filtered(problems, rows, funnel)
        out_of_reach = dict.fromkeys(unsettled, (Reason.OUT_OF_REACH, None))
        excluded = list(excluded_words(problems, rows, {**rejected, **out_of_reach}))
        drawn, too_few, of_combinations = self._drawn(problems, rows)
        variants = self._written(problems, drawn)
        ids = set(variants["seed_id"].unique().to_pylist())
        seeds = {seed.seed_id: seed for seed in problems.seeds if seed.seed_id in ids}
        edits = text_edits_of(drawn, problems)
        return BlockResult(
            last=problems.seeds[-1].seed_id,
            is_last=block == self._blocks - 1,
            problems=len(problems.seeds),
            replacements=self._sorted(self._written(problems, rows)),
            exclusions=[*excluded, *too_few],
            seeds=seed_rows(seeds.values(), config.problem_format),
            variants=variant_rows(variants, seeds, edits, config.problem_format),
            funnel=funnel,
            changes=changes + of_combinations,
            eligible=dict(Counter(eligible_pairs(variants)["word_class"].to_pylist())),
            tagger=self._tagger.name,
        )

    def _filtered(
        self, problems: TaggedProblems, rows: pa.Table, funnel: Funnel
    ) -> tuple[pa.Table, dict[WordKey, tuple[Reason, int]], Counter[Fate]]:
        """Add further edits, then drop what they, and the limits on signals, reject.

        Args:
            problems: The block.
            rows: Its replacements, a word for a word.
            funnel: Takes the rejections by limits.

        Returns:
            The rows left; the words whose replacements were rejected, why and how many; and what
            became of whatever edits more than its word.
        """
        rows, reasons = adapt(problems, rows, self._tagger, self.config)
        changes, rejected = count_fates(rows, reasons), rejected_families(rows, reasons)
        if any(reasons):
            rows = rows.filter(pa.array([reason is None for reason in reasons], pa.bool_()))
        whole = self._in_full(problems, rows, pll_required=self.config.min_pll_change is not None)
        numbers = rejections(whole, self.config)
        count_rejections(rows, numbers, problems, self.config.problem_format, funnel)
        is_kept = pa.array(numbers == NO_REASON)
        rejected |= {
            key: (Reason.REJECTED_BY_SIGNALS, count)
            for key, count in count_words(rows.filter(pc.invert(is_kept))).items()
        }
        rows = rows.filter(is_kept)
        if self.config.scramble:
            rows, ambiguous = shuffle_letters(rows, problems, self.config.rng_seed)
            for word_class, count in ambiguous.items():
                changes[REPLACEMENTS, word_class, KEPT] -= count
                changes[REPLACEMENTS, word_class, Reason.AMBIGUOUS] += count
        return rows, rejected, +changes

    def _drawn(
        self, problems: TaggedProblems, rows: pa.Table
    ) -> tuple[pa.Table, list[Exclusion], Counter[Fate]]:
        """Draw the subsamples (D10) of the seeds that are eligible (D9).

        In an ablation these are the seeds that are eligible without it.
        """
        config = self.config
        pairs = None if self.unablated is None else self._eligible_pairs
        if config.words_at_once > 1:
            return draw_several(rows, problems, self._tagger, config, pairs=pairs)
        too_few: list[Exclusion] = []
        if pairs is None:
            rows, too_few = eligible(
                rows, minimum=config.min_replacements, scope=config.min_replacements_scope
            )
        else:
            mine = pc.is_in(pairs["seed_id"], value_set=rows["seed_id"].unique())
            rows = of_pairs(rows, pairs.filter(mine))
        drawn = draw(
            rows,
            subsamples=config.subsamples,
            size=config.variants_per_class,
            rng_seed=config.rng_seed,
        )
        return drawn, too_few, Counter()

    def _written(self, problems: TaggedProblems, rows: pa.Table) -> pa.Table:
        """Return replacements or variants as they are written, by all that they edit."""
        config = self.config
        rows = self._in_full(problems, rows)
        if config.scramble:
            rows = with_signals_of_no_words(rows)
        wanted = set(config.optional_columns)
        if wanted & set(LABEL_FLAGS):
            rows = with_label_flags(rows, problems, self._tagger, self.nonce, config.problem_format)
        if "common_mlm_count" in wanted:
            rows = with_common_mlms(rows, problems, words_at_once=config.words_at_once)
        return rows

    def _in_full(
        self, problems: TaggedProblems, rows: pa.Table, *, pll_required: bool = False
    ) -> pa.Table:
        """Return rows by all that they edit, with all signals but those of shuffled letters."""
        whole = self._with_pll_changes(in_full(rows, problems), required=pll_required)
        late = {*LABEL_FLAGS, "common_mlm_count"}  # decide nothing, and so are filled in last
        names = [name for name in self.config.optional_columns if name not in late]
        if not names:
            return whole
        is_causal = self.pll_changes is not None and self.pll_changes.is_causal
        likelihoods = self.config.problem_format.pll_changes if is_causal else ()
        return with_optional_columns(BlockRows(whole, rows, problems, likelihoods), names)

    def _sorted(self, rows: pa.Table) -> pa.Table:
        """Sort replacements that are no longer in the order in which they were found."""
        is_changed = self.config.changes_more or self.config.scramble
        return sorted_replacements(rows) if is_changed else rows

    def _with_pll_changes(self, rows: pa.Table, *, required: bool = False) -> pa.Table:
        """Join the output of `merge-nli signals`, if there is any.

        Args:
            rows: Replacements or variants, by all that they edit.
            required: Whether a limit wants to know it of all.
        """
        return rows if self.pll_changes is None else self.pll_changes.join(rows, required=required)

    @cached_property
    def _tagger(self) -> Tagger:
        # Processes of our own can do without torch.
        return Tagger.load(self.config.tagger, spare_torch=self.config.workers > 1)

    @cached_property
    def _blocks(self) -> int:
        return len(block_sizes(self.problems))

    @cached_property
    def _eligible_pairs(self) -> pa.Table:
        """The distinct (seed_id, word_class) of the build without the ablation."""
        assert self.unablated is not None
        return distinct_rows(self.unablated, ["seed_id", "word_class"])

    @cached_property
    def _lexicon(self) -> Lexicon:
        return Lexicon.of({mlm: each.vocabulary for mlm, each in self.candidates.items()})
