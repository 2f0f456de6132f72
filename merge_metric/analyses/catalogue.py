"""Which analyses there are, for the command line: imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Analysis:
    """An analysis as users know it."""

    name: str
    summary: str
    options: frozenset[str] = frozenset()
    """Of `analyse.Options`, those that it has."""


_CONTRAST: Final = frozenset({"matched", "correctness_threshold", "n_bootstrap", "rng_seed"})

ANALYSES: Final = {
    analysis.name: analysis
    for analysis in (
        Analysis(
            "accuracy",
            "S on all test problems (with --test), on seeds, on variants; how often random test "
            "problems are easier than the seeds (figures 3, 16)",
            frozenset({"tests", "rng_seed"}),
        ),
        Analysis(
            "curves",
            "SV accuracy by correctness threshold; with --n-bootstrap a band (figures 4, 18)",
            frozenset({"n_bootstrap", "rng_seed"}),
        ),
        Analysis("matching", "MC of models on sources, a heat map (figures 5, 17)"),
        Analysis(
            "classes",
            "nouns, verbs, adjectives, adverbs in pairs, on seeds with both (figures 6, 12-14)",
            _CONTRAST,
        ),
        Analysis(
            "mlms",
            "replacements of the model's own MLM, of one in another size, of several, of one of "
            "another kind, on seeds with all (figures 7, 15)",
            _CONTRAST | {"mlm_map"},
        ),
        Analysis(
            "ablations",
            "data sets made with other filters, given as FILE@DATASET, averaged over models "
            "(figure 8)",
        ),
        Analysis(
            "hardest",
            "seeds that every model answers wrong, or the --top hardest, with votes and texts "
            "(table 11)",
            frozenset({"top"}),
        ),
        Analysis(
            "first-answers",
            "variants of seeds answered right and of seeds answered wrong (section 5.4)",
        ),
    )
}
