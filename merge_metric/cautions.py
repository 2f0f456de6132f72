"""Cautions about figures: seeds with different numbers of variants, and too few seeds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from merge_metric.runs.run import HasCountsT
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import FEW_SEEDS

log = logging.getLogger(__name__)

_LISTED: Final = 4
"""Numbers of variants that a sentence lists; of more it says the range."""


def mixture(per_seed: Mapping[str, Sequence[float]]) -> str:
    """Say which numbers of variants are mixed; nothing where all seeds have equally many.

    Args:
        per_seed: As results have it under `variants_per_seed`.

    >>> mixture({"variants": [20, 40], "seeds": [120.0, 52.0]}).partition(":")[0]
    'Seeds with 20 and 40 variants (120 and 52 seeds) are mixed'
    >>> mixture({"variants": [20], "seeds": [172.0]})
    ''
    """
    sizes, seeds = per_seed["variants"], per_seed["seeds"]
    if len(sizes) < 2:
        return ""
    if len(sizes) > _LISTED:
        found = f"{min(sizes):,} to {max(sizes):,} variants"
    else:
        listed = []
        for each in (sizes, seeds):
            *others, last = (f"{n:,.0f}" for n in each)
            listed.append(f"{', '.join(others)} and {last}")
        found = f"{listed[0]} variants ({listed[1]} seeds)"
    return (
        f"Seeds with {found} are mixed: the more variants, the likelier a failure, so SV accuracy "
        "at high thresholds and fooling rates compare only where the mixture is the same."
    )


def tell_mixture(config: str, counts: SeedCounts) -> None:
    """Warn of a mixture, for figures that no sentence of `mixture` goes with."""
    if found := mixture(counts.variants_per_seed):
        log.warning("%s: %s", config, found)


def tell_few(config: str, counts: SeedCounts, n_seeds: Mapping[str, int] | None = None) -> None:
    """Warn of a configuration or of parts with few seeds.

    Args:
        config: The configuration.
        counts: Of all of its seeds.
        n_seeds: Part, such as a word class → number of its seeds.
    """
    few = [f"{part} ({n:,})" for part, n in (n_seeds or {}).items() if n < FEW_SEEDS]
    if len(counts.seed_ids) < FEW_SEEDS:
        few = [f"{len(counts.seed_ids):,} in all"]
    if few:
        log.warning("%s: fewer than %s seeds: %s", config, FEW_SEEDS, ", ".join(few))


@dataclass(slots=True)
class Watch:
    """Cautions about the runs that pass by, each configuration once."""

    found: dict[tuple[str, str], str] = field(default_factory=dict)
    """Dataset and configuration → sentence of `mixture`."""

    def over(self, runs: Iterable[HasCountsT]) -> Iterator[HasCountsT]:
        """Yield the runs; note mixtures, and warn of a configuration's few seeds."""
        for run in runs:
            if (run.dataset, run.config) not in self.found:
                self.found[run.dataset, run.config] = mixture(run.counts.variants_per_seed)
                tell_few(run.config, run.counts)
            yield run

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for below a table."""
        return tuple(
            f"{config}: {sentence[0].lower()}{sentence[1:]}"
            for (_, config), sentence in self.found.items()
            if sentence
        )


def seeds_of_parts(result: Mapping[str, Any]) -> dict[str, int]:
    """Count the seeds of the parts of a result of `scoring.score`: part → number."""
    groups = {**result.get("by_group", {}), "label": result["by_label"]}
    return {
        f"{column.replace('_', ' ')} {value}": part["n_seeds"]
        for column, parts in groups.items()
        for value, part in parts.items()
    }
