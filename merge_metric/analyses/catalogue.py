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
    keep: tuple[str, ...] = ()
    """Columns out of `runs.KEPT` that its runs keep."""
    names_datasets: bool = False
    """Whether files may name a dataset of their own: FILE@DATASET."""
    needs_predictions: bool = True
    extra: str = "plots"
    """Of this distribution, what brings all that it imports."""


_BOOTSTRAP: Final = frozenset({"n_bootstrap", "rng_seed"})
_CONTRAST: Final = frozenset({"matched", "correctness_threshold", *_BOOTSTRAP})
_PROBABILITIES: Final = ("probabilities", "seed_probabilities")

ANALYSES: Final = {
    analysis.name: analysis
    for analysis in (
        Analysis(
            "accuracy",
            "S on all test problems (with --test), on seeds, on variants; how often random test "
            "problems are easier than the seeds (figures 3, 16)",
            frozenset({"tests", "rng_seed"}),
            names_datasets=True,
        ),
        Analysis(
            "curves",
            "SV accuracy by correctness threshold; with --n-bootstrap a band (figures 4, 18)",
            _BOOTSTRAP,
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
            names_datasets=True,
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
        Analysis(
            "fooling",
            "strict and relaxed fooling rates, r_s and r_r, overall and per gold label "
            "(sensitivity, tables 2, 3)",
            _BOOTSTRAP,
            names_datasets=True,
        ),
        Analysis(
            "sizes",
            "fooling rates by the number of parameters, from the predictions' metadata or from "
            "--size (sensitivity, figure 2)",
            _BOOTSTRAP | {"sizes"},
            names_datasets=True,
        ),
        Analysis(
            "shift",
            "how far label probabilities move where predictions change and where not "
            "(sensitivity, figure 3)",
            keep=_PROBABILITIES,
            names_datasets=True,
        ),
        Analysis(
            "confidence",
            "how sure models are of seeds, and of variants that do and do not change predictions "
            "(sensitivity, figure 4)",
            keep=_PROBABILITIES,
            names_datasets=True,
        ),
        Analysis(
            "overlap",
            "tokens that the hypotheses of variants and seeds have in common; with --encoder, "
            "distances of embeddings; without predictions too (sensitivity, table 4)",
            frozenset({"encoder"}),
            keep=("variant_ids",),
            names_datasets=True,
            needs_predictions=False,
            extra="overlap",
        ),
        Analysis(
            "signals",
            "automatic signals of variants (frequency, likelihood, agreement, …) beside model "
            "accuracy and, with --annotations, human judgements",
            _BOOTSTRAP | {"annotations", "bins"},
            keep=("variant_ids",),
            names_datasets=True,
            needs_predictions=False,
            extra="signals",
        ),
        Analysis(
            "kinds",
            "replacements and paraphrases, on seeds with both",
            _CONTRAST,
            names_datasets=True,
        ),
    )
}
