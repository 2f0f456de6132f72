"""Building: what a block of problems comes to, in this process or in several.

Blocks are independent of each other and follow each other by `seed_id`, so that the outcome is
theirs one after the other, whoever worked on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from generation.config import Config
from generation.executors.blocks import map_blocks
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.shared_words import TaggedProblems, tag_problems
from generation.problems.tagging import Tagger
from generation.records import Exclusion
from generation.run_tables import sorted_replacements
from generation.signals.automatic import rejections
from generation.signals.signal_file import PllChanges
from generation.variants.adaptation import (
    adapt,
    keys_of,
    with_letters_shuffled,
    with_pairs,
    with_signals,
)
from generation.variants.candidates import Candidates
from generation.variants.changes import Fate, Variation
from generation.variants.exclusions import without_replacement
from generation.variants.funnel import Funnel, count_rejections
from generation.variants.lexicon import Lexicon
from generation.variants.rows import Edits, edits_of, seed_rows, variant_rows, word_spans
from generation.variants.sampling import draw, eligible, eligible_pairs, of_pairs
from generation.variants.scrambling import as_no_words, scrambled
from generation.variants.several_words import Drawn, draw_several
from generation.variants.validation import find_replacements
from merge_dataset.files import distinct_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a block comes to; its tables are sorted by seed."""

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
    """What became of that which changes more than one word."""
    eligible: dict[str, int]
    """Word class → seeds."""
    tagger: str
    """Name and version of the tagger."""


@dataclass(frozen=True, slots=True)
class _Made:
    """Replacements and the variants drawn from them."""

    replacements: pa.Table
    """All of them."""
    variants: pa.Table
    """Those drawn; they are of eligible seeds."""
    edits: list[list[Edits]]
    """Of each variant, for each text."""
    exclusions: list[Exclusion]
    changes: Counter[Fate]


@dataclass(frozen=True)
class Builder:
    """All that a block needs beside its problems. Can be sent to other processes."""

    problems: Path
    candidates: Mapping[str, Candidates]
    """By MLM."""
    config: Config
    unablated: Path | None
    """Variants of the build whose eligible seeds an ablation keeps."""
    pll_changes: PllChanges | None = None
    """What `merge-nli signals` left."""

    def outcomes(self) -> Iterator[Outcome]:
        """Of all blocks, in order.

        `config.workers` blocks are worked on at a time.
        """
        # Without what this process has loaded.
        builder = replace(self)
        return map_blocks(range(self._blocks), builder.open, workers=self.config.workers)

    def open(self) -> Callable[[int], Outcome]:
        """What works on blocks; each process has its own tagger."""
        return self.outcome

    def outcome(self, block: int) -> Outcome:
        """Filters, eq. 1, eligibility and sampling for the problems of one block."""
        config = self.config
        problems = tag_problems(
            read_block(self.problems, block), self._tagger, config.word_classes, config.sharing
        )
        found, funnel = find_replacements(
            problems, self.candidates, self._lexicon, self._tagger, config
        )
        make = self._with_more if config.changes_more else self._word_for_word
        made = make(problems, found, funnel)
        ids = set(made.variants["seed_id"].unique().to_pylist())
        seeds = {seed.seed_id: seed for seed in problems.seeds if seed.seed_id in ids}
        return Outcome(
            last=problems.seeds[-1].seed_id,
            is_last=block == self._blocks - 1,
            problems=len(problems.seeds),
            replacements=made.replacements,
            exclusions=made.exclusions,
            seeds=seed_rows(seeds.values(), config.problem_format),
            variants=variant_rows(made.variants, seeds, made.edits, config.problem_format),
            funnel=funnel,
            changes=made.changes,
            eligible=dict(Counter(eligible_pairs(made.variants)["word_class"].to_pylist())),
            tagger=self._tagger.name,
        )

    def _word_for_word(self, problems: TaggedProblems, found: pa.Table, funnel: Funnel) -> _Made:
        """Variants that put one word for another."""
        found = self._joined(found)
        within = self._within_limits(problems, found, found, funnel)
        found, rejected = found.filter(within), found.filter(pc.invert(within))
        if self.config.scramble:
            found = sorted_replacements(scrambled(found, self.config.rng_seed))
            found = self._joined(found, limited=True)
        kept, too_few = self._select(found)
        variants = self._draw(kept)
        ids = set(variants["seed_id"].unique().to_pylist())
        spans = {
            (seed.seed_id, word.word): word_spans(problems.of(seed), word)
            for seed in problems.seeds
            if seed.seed_id in ids
            for word in problems.words[seed.seed_id]
        }
        excluded = without_replacement(problems.seeds, problems.words, found, rejected)
        return _Made(found, variants, edits_of(variants, spans), [*excluded, *too_few], Counter())

    def _with_more(self, problems: TaggedProblems, found: pa.Table, funnel: Funnel) -> _Made:
        """Variants that may change more: families, articles, several words."""
        adapted = adapt(problems, found, self._tagger, self.config)
        left = adapted.replacements
        of_left = [adapted.variations[key] for key in keys_of(left)]
        whole = self._joined(with_signals(with_pairs(left, of_left), of_left))
        within = self._within_limits(problems, left, whole, funnel)
        left, rejected = left.filter(within), left.filter(pc.invert(within))
        if self.config.scramble:
            adapted = with_letters_shuffled(
                replace(adapted, replacements=left), self.config.rng_seed
            )
            left = adapted.replacements
        of_left = [adapted.variations[key] for key in keys_of(left)]
        if self.config.words_at_once > 1:
            pairs = None if self.unablated is None else self._eligible_pairs
            drawn = draw_several(left, of_left, self._tagger, self.config, pairs=pairs)
        else:
            kept, too_few = self._select(left)
            variants = self._draw(kept)
            mine = [adapted.variations[key] for key in keys_of(variants)]
            drawn = Drawn(variants, mine, too_few, Counter())
        in_families = {(e.seed_id, e.word_class, e.word) for e in adapted.exclusions}
        excluded = [
            exclusion
            for exclusion in without_replacement(problems.seeds, problems.words, left, rejected)
            if (exclusion.seed_id, exclusion.word_class, exclusion.word) not in in_families
        ]
        return _Made(
            replacements=sorted_replacements(self._with_all(left, of_left)),
            variants=self._with_all(drawn.variants, drawn.variations),
            edits=[variation.edits() for variation in drawn.variations],
            exclusions=[*adapted.exclusions, *excluded, *drawn.exclusions],
            changes=adapted.fates + drawn.fates,
        )

    def _within_limits(
        self, problems: TaggedProblems, found: pa.Table, whole: pa.Table, funnel: Funnel
    ) -> pa.Array:
        """Which replacements have signals that the settings let pass; the others are counted.

        Args:
            problems: The block.
            found: Replacements, each by its word alone.
            whole: The same by all that changes, with all signals.
            funnel: Takes the rejections.
        """
        reasons = rejections(whole, self.config)
        count_rejections(found, reasons, problems.words, self.config.problem_format, funnel)
        return pa.array(reasons < 0)

    def _joined(self, table: pa.Table, *, limited: bool = False) -> pa.Table:
        """With what `merge-nli signals` found out.

        Args:
            table: Replacements, or variants.
            limited: Whether they have passed the limits, which want to know it of all.
        """
        if self.pll_changes is None:
            return table
        required = self.config.min_pll_change is not None and not limited
        return self.pll_changes.join(table, required=required)

    def _with_all(self, table: pa.Table, variations: Sequence[Variation]) -> pa.Table:
        """Replacements or variants by all that changes, not by their word alone."""
        table = with_signals(with_pairs(table, variations), variations)
        table = self._joined(table, limited=True)
        return as_no_words(table) if self.config.scramble else table

    def _draw(self, kept: pa.Table) -> pa.Table:
        """The subsamples (D10)."""
        return draw(
            kept,
            subsamples=self.config.subsamples,
            size=self.config.variants_per_class,
            rng_seed=self.config.rng_seed,
        )

    @cached_property
    def _tagger(self) -> Tagger:
        # Processes of our own can do without torch.
        return Tagger.load(self.config.tagger, spare_torch=self.config.workers > 1)

    @cached_property
    def _blocks(self) -> int:
        return len(block_sizes(self.problems))

    def _select(self, found: pa.Table) -> tuple[pa.Table, list[Exclusion]]:
        """The replacements of eligible seeds (D9), or in an ablation of those eligible without."""
        if self.unablated is None:
            minimum, scope = self.config.min_replacements, self.config.min_replacements_scope
            return eligible(found, minimum=minimum, scope=scope)
        mine = pc.is_in(self._eligible_pairs["seed_id"], value_set=found["seed_id"].unique())
        return of_pairs(found, self._eligible_pairs.filter(mine)), []

    @cached_property
    def _eligible_pairs(self) -> pa.Table:
        """The distinct (seed_id, word_class) of the build without the ablation."""
        assert self.unablated is not None
        return distinct_rows(self.unablated, ["seed_id", "word_class"])

    @cached_property
    def _lexicon(self) -> Lexicon:
        return Lexicon.of({mlm: each.vocabulary for mlm, each in self.candidates.items()})
