"""The figures that a report shows: their names, what they mean, and where results hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Result = Mapping[str, Any]
"""What `scoring.score` gives, or one of its groups."""


class Cell(NamedTuple):
    """A figure in percent, None where undefined, and its interval where there is one."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether both bounds are known."""
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True)
class Column:
    """A figure and its heading."""

    key: str
    """Of the result; or `SV@` and a threshold."""
    head: str
    name: str
    meaning: str
    falling: bool = False
    """Whether lower is better."""

    @property
    def label(self) -> str:
        """What stands beside a single figure: of `r_r` and `r_s` the words."""
        return {"r_r": "relaxed", "r_s": "strict"}.get(self.head, self.head)

    @property
    def short(self) -> str:
        """The heading below "SV accuracy at CT": of `SV@90` the threshold."""
        return self.head.removeprefix("SV@")


def sv_column(threshold: int) -> Column:
    """Seed-variant accuracy at a threshold, integer percent."""
    meaning = (
        "Share of seeds of which every variant is answered right."
        if threshold == 100
        else f"Share of seeds of which at least {threshold} % of the variants are answered right."
    )
    return Column(f"SV@{threshold}", f"SV@{threshold}", f"SV accuracy at CT {threshold}", meaning)


SEED: Final = Column(
    "seed_accuracy", "S", "Seed accuracy", "Share of the seeds themselves answered right."
)
VARIANT: Final = Column(
    "variant_accuracy",
    "Variants",
    "Variant accuracy",
    "Share of single variants answered right; sample accuracy (SA) in older papers.",
)
MATCHING: Final = Column(
    "matching_threshold",
    "MC",
    "Matching threshold",
    "The threshold CT at which SV accuracy comes closest to S; the higher, the more consistent. "
    "Where a range of thresholds comes equally close it is the lowest: a value near 1 is a sign "
    "of such a range.",
)
RELAXED: Final = Column(
    "relaxed_fooling_rate",
    "r_r",
    "Relaxed fooling rate",
    "Of the seeds answered right, those with a variant that changes the answer.",
    falling=True,
)
STRICT: Final = Column(
    "strict_fooling_rate",
    "r_s",
    "Strict fooling rate",
    "The same, where the answer becomes the opposite (entailment ↔ contradiction); "
    "for neutral seeds any change counts.",
    falling=True,
)
HEADLINE: Final = (
    SEED,
    VARIANT,
    *map(sv_column, (50, 80, 90, 100)),
    MATCHING,
    RELAXED,
    STRICT,
)
BREAKDOWN: Final = (SEED, VARIANT, sv_column(90), MATCHING)

_SEED_VARIANT: Final = "Seed, variant"
_SEED_IS: Final = "A seed is an NLI problem as it was collected."
_REPLACED: Final = (
    "differ from it in one word that premise and hypothesis share, replaced by the same word in "
    "both"
)
_REPLACED_ANYWHERE: Final = (
    "differ from it in one word that its texts share, replaced by the same word in all of them"
)
_PARAPHRASED: Final = "have its hypothesis paraphrased as a whole"

DEFINITIONS: Final = (
    (_SEED_VARIANT, f"{_SEED_IS} Its variants {_REPLACED}; the gold label stays."),
    ("S, seed accuracy", SEED.meaning),
    ("Variant accuracy", VARIANT.meaning),
    (
        "SV accuracy at CT, SV@CT",
        "Seed-variant accuracy: share of seeds of which at least CT percent of the variants are "
        "answered right (correctness threshold CT); pattern accuracy (PA) in older papers.",
    ),
    ("MC, matching threshold", MATCHING.meaning),
    ("r_r, relaxed fooling rate", RELAXED.meaning),
    ("r_s, strict fooling rate", STRICT.meaning),
    (
        "Subsamples",
        "Each figure is computed in every subsample of the variants as if it were the data, "
        "and averaged.",
    ),
    (
        "Intervals",
        "95 %, by bootstrap over seeds with all their variants (percentile method).",
    ),
)
"""Term and one sentence, where variants are replacements."""


def seed_is(*, is_nli: bool) -> str:
    """What a seed is."""
    return _SEED_IS if is_nli else "A seed is a problem as it was collected."


def definitions(
    *, replacements: bool, paraphrases: bool, is_nli: bool = True
) -> tuple[tuple[str, str], ...]:
    """Term and one sentence, according to the kinds of variants that there are."""
    if not is_nli:
        text = f"{seed_is(is_nli=False)} Its variants {_REPLACED_ANYWHERE}; the gold label stays."
        return ((_SEED_VARIANT, text), *DEFINITIONS[1:])
    if not paraphrases:
        return DEFINITIONS
    differ = f"either {_REPLACED}, or {_PARAPHRASED}" if replacements else _PARAPHRASED
    first = (_SEED_VARIANT, f"{_SEED_IS} Its variants {differ}; the gold label stays.")
    return (first, *DEFINITIONS[1:])


def cell(result: Result, column: Column) -> Cell:
    """A figure of a result, in percent.

    >>> curve = {"accuracy": [1.0] * 50 + [0.5] * 50}
    >>> cell({"sv_curve": curve}, sv_column(90))
    Cell(value=50.0, low=None, high=None)
    """
    if column.key.startswith("SV@"):
        curve, position = result["sv_curve"], int(column.key[3:]) - 1
        sides = [curve[side][position] for side in ("low", "high") if side in curve]
        return Cell(*(100 * share for share in (curve["accuracy"][position], *sides)))
    value, bounds = result[column.key], result.get(f"{column.key}_ci") or ()
    scale = 1 if column.key.startswith("matching_threshold") else 100
    if value is None:
        return Cell(None)
    return Cell(*(scale * each for each in (value, *bounds)))


def number(value: float | None) -> str:
    """A figure as it is shown: one decimal, 100 without.

    >>> number(81.25), number(100.0), number(None)
    ('81.2', '100', '–')
    """
    return "–" if value is None else f"{value:.1f}".replace("100.0", "100")


def interval(of: Cell) -> str:
    """An interval as it is shown, nothing where there is none.

    >>> interval(Cell(80.0, 77.31, 82.69))
    '77.3–82.7'
    """
    return f"{number(of.low)}–{number(of.high)}" if of.has_interval else ""
