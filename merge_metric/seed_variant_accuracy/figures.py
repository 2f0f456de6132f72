"""Figures: what each is called and means, and its formula over counts per seed.

`CATALOGUE` is the one list of figures: an entry holds a figure's formula, names and unit, and where
it is shown; tables, pages, plots and exports take all of them from there.

Arrays have a leading axis B, the replicates of a bootstrap, computed all at once; the figures of
the data themselves are those of a single replicate in which every seed weighs one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .counts import SeedCounts

Floats = NDArray[np.float64]

THRESHOLDS: Final = np.arange(1, 101)
"""Every correctness threshold, in integer percent."""

QUALITY_THRESHOLD: Final = 90
"""The CT of the QT gap (paper v1, Table 3)."""

UNDETERMINED_WIDTH: Final = 10
"""Matching thresholds that lie so far apart say nothing: two steps of a curve of 20 variants."""

FEW_SEEDS: Final = 30
"""Figures of fewer seeds are marked: intervals by bootstrap are too short then."""

MATCHING_RANGE: Final = ("matching_threshold_low", "matching_threshold_high")
"""Keys of the lowest and the highest matching threshold."""

_DIGITS: Final = 12
"""Decimals of a figure that is a sum of fractions: the rest depends on the order of seeds."""

_ROUNDING: Final = 10.0**-_DIGITS
"""Averages over subsamples that differ by less are rounding errors of equal ones."""


# --- The catalogue ---

Unit = Literal["share", "points", "threshold"]
"""A share of 0–1, a signed difference of two shares, or a threshold in percent."""

Place = Literal["main", "kin", "page", "labels", "tasks"]
"""Where a figure is shown: in all tables, comparisons and logs (main), in the report's table of
related figures (kin), on the Space's page, there for single labels, and by other harnesses."""


def _stable(of: SeedCounts, ct: int) -> NDArray[np.bool_]:
    """Tell of which seeds CT percent of the variants, or more, get the same answer."""
    return np.asarray(100 * of.n_commonest // of.divisor >= ct)  # in integers, as `level`


_SUMMED: Final[Mapping[str, Callable[[SeedCounts, int], NDArray[Any]]]] = {
    "right": lambda of, ct: of.right & of.present,
    "variants": lambda of, ct: of.n_variants,
    "right_variants": lambda of, ct: of.n_correct,
    # Seeds answered right with a variant that is answered differently, or gets the opposite answer.
    "changed": lambda of, ct: of.right & (of.n_changed > 0),
    "opposite": lambda of, ct: of.right & (of.n_opposite > 0),
    "stable": _stable,
    "stable_wrong": lambda of, ct: _stable(of, ct) & (of.n_correct < of.n_commonest),
    # Shares of each seed's variants: with the commonest answer, and if it is stable answered right.
    "agreeing": lambda of, ct: of.n_commonest / of.divisor,
    "gated": lambda of, ct: _stable(of, ct) * of.n_correct / of.divisor,
}
"""Name of a sum → what is summed of a subsample's counts at a CT, (S,)."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the seeds of a subsample in B replicates, each (B,), that formulas start from."""

    correctness_threshold: int
    seeds: Floats
    held: Floats
    """Seeds that count as right at CT 1..100, (B, 100)."""
    met: Mapping[str, Floats]
    """Thresholds at which `held` meets `right`, and the gap in seeds; NaN without seeds."""
    summed: Mapping[str, Floats]
    """Sums of `_SUMMED`, which are attributes, too."""

    def __getattr__(self, name: str) -> Floats:
        """Return one of `summed`."""
        return self.summed[name]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure's names, meaning, unit and direction."""

    key: str
    """Under which results have it; its interval is `{key}_ci`."""
    name: str
    """As it is written out. Texts may hold {ct}, which `at` fills in."""
    meaning: str
    """One sentence."""
    formula: Callable[[Sums], Floats]
    """Function to the values, (B,); NaN where the figure is undefined."""
    shown: tuple[Place, ...] = ("page",)
    symbol: str = ""
    """As formulas write it, where the papers have a symbol."""
    short: str = ""
    """Heading of a narrow column, where it is not the symbol."""
    unit: Unit = "share"
    higher_is_better: bool = True
    remark: str = ""
    """A further sentence on how to read values."""

    @property
    def heading(self) -> str:
        """The heading of a column: short name or symbol."""
        return self.short or self.symbol or self.name

    @property
    def explanation(self) -> str:
        """The meaning, and how to read values."""
        return f"{self.meaning} {self.remark}".rstrip()

    def at(self, correctness_threshold: int) -> Figure:
        """Fill in the texts for a threshold, integer percent."""
        name, meaning, short = (
            text.format(ct=correctness_threshold) for text in (self.name, self.meaning, self.short)
        )
        return replace(self, name=name, meaning=meaning, short=short)


def _core_index(sums: Sums) -> Floats:
    """Compute CORE (Cavalin et al. 2025) on their grid of thresholds 0, 10, … 100.

    Every seed reaches the first of them. Their area is by the trapezoidal rule. Their closeness, by
    dynamic time warping, to a curve that is 1 everywhere is the mean over the other ten: every
    point is aligned with some 1, and once is cheapest.
    """
    tens = sums.held[:, 9::10].sum(axis=1)
    return np.asarray(tens * (2 * tens + sums.seeds - sums.held[:, -1]) / (200 * sums.seeds**2))


_ROWS: Final = (
    Figure(
        "seed_accuracy",
        "Seed accuracy",
        "Share of the seeds themselves answered right.",
        symbol="S",
        formula=lambda sums: sums.right / sums.seeds,
        shown=("main", "page", "labels", "tasks"),
    ),
    Figure(
        "variant_accuracy",
        "Variant accuracy",
        "Share of single variants answered right; sample accuracy (SA) in older papers.",
        short="var.acc",
        formula=lambda sums: sums.right_variants / sums.variants,
        shown=("main", "page", "labels", "tasks"),
    ),
    Figure(
        "seed_variant_accuracy",
        "SV accuracy at CT {ct}",
        "Share of seeds with at least {ct} % of their variants answered right.",
        short="SV@{ct}",
        formula=lambda sums: sums.held[:, sums.correctness_threshold - 1] / sums.seeds,
        shown=("main", "page", "labels"),
    ),
    Figure(
        "qt_gap",
        "QT gap, S − SV@90",
        "S minus SV accuracy at 90: what is lost if a seed needs 90 % of its variants right.",
        short="QT gap",
        unit="points",
        higher_is_better=False,
        formula=lambda sums: (sums.right - sums.held[:, QUALITY_THRESHOLD - 1]) / sums.seeds,
        shown=("page", "tasks"),
    ),
    Figure(
        "matching_threshold",
        "Matching threshold",
        "The threshold CT at which SV accuracy comes closest to S; the higher, the more "
        "consistent.",
        symbol="MC",
        unit="threshold",
        remark="If several thresholds come equally close, the lowest is shown. If these lie far "
        "apart, as for a perfect model, MC is undetermined, and their range is shown.",
        formula=lambda sums: sums.met["matching_threshold"],
        shown=("main", "page", "tasks"),
    ),
    Figure(
        "matching_threshold_low",
        "Lowest matching threshold",
        "The lowest of the thresholds at which SV accuracy comes closest to S.",
        short="MC low",
        unit="threshold",
        formula=lambda sums: sums.met["matching_threshold_low"],
        shown=("tasks",),
    ),
    Figure(
        "matching_threshold_high",
        "Highest matching threshold",
        "The highest of the thresholds at which SV accuracy comes closest to S.",
        short="MC high",
        unit="threshold",
        formula=lambda sums: sums.met["matching_threshold_high"],
        shown=("tasks",),
    ),
    Figure(
        "matching_gap",
        "Matching gap",
        "The distance between SV accuracy and S at the matching threshold.",
        short="gap",
        unit="points",
        higher_is_better=False,
        formula=lambda sums: sums.met["matching_gap"] / sums.seeds,
        shown=("tasks",),
    ),
    Figure(
        "holding_threshold",
        "Holding threshold",
        "The largest threshold at which SV accuracy still reaches S; 0 if none does.",
        short="holding",
        unit="threshold",
        formula=lambda sums: sums.met["holding_threshold"],
        shown=("page", "tasks"),
    ),
    Figure(
        "relaxed_fooling_rate",
        "Relaxed fooling rate",
        "Share of the seeds answered right that have a variant which changes the answer.",
        symbol="r_r",
        higher_is_better=False,
        formula=lambda sums: sums.changed / sums.right,
        shown=("main", "page", "tasks"),
    ),
    Figure(
        "strict_fooling_rate",
        "Strict fooling rate",
        "Share of the seeds answered right that have a variant which turns the answer into the "
        "opposite (entailment ↔ contradiction); for neutral seeds any change counts.",
        symbol="r_s",
        higher_is_better=False,
        formula=lambda sums: sums.opposite / sums.right,
        shown=("main", "page", "tasks"),
    ),
    Figure(
        "sv_curve_area",
        "Area under the SV curve",
        "Mean of SV accuracy over the thresholds 1 to 100.",
        short="area",
        remark="It is the mean share of a seed's variants answered right, in whole percents: "
        "variant accuracy, where all seeds have equally many variants.",
        formula=lambda sums: sums.held.sum(axis=1) / (100 * sums.seeds),
        shown=("kin", "page"),
    ),
    Figure(
        "core_index",
        "CORE index",
        "Mean of SV accuracy at the thresholds 10, 20, … 100, times the area under the straight "
        "lines through these points and 1 at the threshold 0.",
        symbol="CORE",
        remark="The consistency-oriented robustness estimate of Cavalin et al. (2025).",
        formula=_core_index,
        shown=("kin", "page"),
    ),
    Figure(
        "contrast_consistency",
        "Contrast-set consistency",
        "Share of seeds that are answered right, and every variant of them too.",
        short="contrast",
        remark="It is S · (1 − r_r).",
        formula=lambda sums: (sums.right - sums.changed) / sums.seeds,
        shown=("kin", "page"),
    ),
    Figure(
        "agreement",
        "Agreement",
        "Mean share of a seed's variants that have its variants' commonest answer, right or wrong.",
        short="agree",
        remark="It needs no gold label.",
        formula=lambda sums: np.round(sums.agreeing / sums.seeds, _DIGITS),
        shown=("kin", "page"),
    ),
    Figure(
        "agreement_gated_accuracy",
        "Accuracy at an agreement of {ct} % or more",
        "Mean share of variants answered right, over the seeds with the same answer to at least "
        "{ct} % of their variants.",
        short="AGA@{ct}",
        remark="A low value: answers are stable, but wrong.",
        formula=lambda sums: np.round(sums.gated / sums.stable, _DIGITS),
        shown=("kin", "page"),
    ),
    Figure(
        "stable_but_wrong",
        "Stable but wrong at {ct} %",
        "Share of seeds with the same wrong answer to at least {ct} % of their variants.",
        short="SBW@{ct}",
        higher_is_better=False,
        formula=lambda sums: sums.stable_wrong / sums.seeds,
        shown=("kin", "page"),
    ),
)

CATALOGUE: Final[Mapping[str, Figure]] = {figure.key: figure for figure in _ROWS}
"""Key → figure, for every figure of a result, in their usual order."""


def keys_shown(place: Place) -> tuple[str, ...]:
    """List the keys of the figures that are shown somewhere."""
    return tuple(figure.key for figure in _ROWS if place in figure.shown)


MAIN_FIGURES: Final = keys_shown("main")
"""Keys of the figures that every table has, that models are compared by, and that are logged."""


def sv_at(correctness_threshold: int) -> Figure:
    """Describe SV accuracy at any threshold, read from the curve: key `sv_at_90`.

    >>> sv_at(100).heading, sv_at(100).meaning
    ('SV@100', 'Share of seeds with every variant answered right.')
    """
    figure = CATALOGUE["seed_variant_accuracy"].at(correctness_threshold)
    if correctness_threshold == 100:
        figure = replace(figure, meaning="Share of seeds with every variant answered right.")
    return replace(figure, key=f"sv_at_{correctness_threshold}")


def figure_named(key: str, correctness_threshold: int = 90) -> Figure:
    """Find a figure by its key; `sv_at_95` is SV accuracy at 95.

    >>> figure_named("agreement").heading, figure_named("sv_at_95").heading
    ('agree', 'SV@95')
    """
    if key in CATALOGUE:
        return CATALOGUE[key].at(correctness_threshold)
    threshold = key.removeprefix("sv_at_")
    if threshold != key and threshold in map(str, THRESHOLDS):
        return sv_at(int(threshold))
    near = get_close_matches(key, CATALOGUE, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ", as the JSON output names them all"
    some = "seed_accuracy, core_index or sv_at_95 (1 to 100)"
    raise ValueError(f"expected the name of a figure, such as {some}, got {key!r}{hint}")


def main_figures(*thresholds: int) -> tuple[Figure, ...]:
    """List the main figures, with SV accuracy at each of these thresholds.

    >>> [figure.heading for figure in main_figures(50, 90)]
    ['S', 'var.acc', 'SV@50', 'SV@90', 'MC', 'r_r', 'r_s']
    """
    return tuple(
        figure
        for key in MAIN_FIGURES
        for figure in (
            map(sv_at, thresholds) if key == "seed_variant_accuracy" else [CATALOGUE[key]]
        )
    )


class Estimate(NamedTuple):
    """A figure's value, None where undefined, and its interval where there is one."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether both bounds are known."""
        return self.low is not None and self.high is not None


def is_undetermined(low: float, high: float) -> bool:
    """Tell whether the thresholds of least gap, in percent, lie so far apart that MC says nothing.

    >>> is_undetermined(81, 85), is_undetermined(1, 100)
    (False, True)
    """
    return high - low >= UNDETERMINED_WIDTH


def span(low: float, high: float) -> str:
    """Write the range of an undetermined threshold.

    >>> span(1.0, 100.0)
    '1–100'
    """
    return f"{low:g}–{high:g}"


def estimate(result: Mapping[str, Any], figure: Figure) -> Estimate:
    """Read a figure of a result of `scoring.score`, or of one of its groups, in its own unit.

    >>> curve = {"accuracy": [1.0] * 50 + [0.5] * 50}
    >>> estimate({"sv_curve": curve}, sv_at(90))
    Estimate(value=0.5, low=None, high=None)
    """
    if figure.key.startswith("sv_at_"):
        curve, position = result["sv_curve"], int(figure.key.removeprefix("sv_at_")) - 1
        sides = ("accuracy", "low", "high")
        return Estimate(*(curve[side][position] for side in sides if side in curve))
    return Estimate(result[figure.key], *(result.get(f"{figure.key}_ci") or ()))


def percent(value: float, unit: Unit) -> float:
    """Express a value of a unit in percent, or in percentage points."""
    return value if unit == "threshold" else 100 * value


# --- Formulas ---


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """Figures of B replicates in K subsamples; NaN where one is undefined."""

    scalars: dict[str, Floats]
    """Result key → (B, K)."""
    curve: Floats
    """(B, K, 100) SV accuracy at CT 1..100."""
    has_subsamples: bool

    def means(self) -> dict[str, Floats]:
        """Average over the subsamples in which a figure is defined: result key → (B,).

        Thresholds at which the curve meets S are those of the averaged curve (paper, section 4);
        the mean of the subsamples' own MC has a key to itself.
        """
        averaged = {key: _mean(values) for key, values in self.scalars.items()}
        if self.has_subsamples:
            averaged["matching_threshold_per_subsample"] = averaged["matching_threshold"]
            above = self.curve - self.scalars["seed_accuracy"][:, :, None]
            averaged |= _where_curve_meets(_mean(np.moveaxis(above, 1, -1)))
        return averaged

    def mean_curve(self) -> Floats:
        """Average the SV curve over subsamples: (B, 100)."""
        return _mean(np.moveaxis(self.curve, 1, -1))

    def spreads(self) -> dict[str, Floats]:
        """Compute standard deviations over subsamples (ddof 1; 0 for one): result key → (B,)."""
        averaged = {k: v for k, v in self.scalars.items() if k not in _MEETING}
        averaged["matching_threshold_per_subsample"] = self.scalars["matching_threshold"]
        spreads = dict[str, Floats]()
        for key, values in averaged.items():
            mean = _mean(values)
            degrees = np.maximum((~np.isnan(values)).sum(axis=-1) - 1, 1)
            squares = np.nansum((values - mean[..., None]) ** 2, axis=-1)
            spreads[key] = np.where(np.isnan(mean), np.nan, np.sqrt(squares / degrees))
        return spreads


def figures(
    counts: SeedCounts, correctness_threshold: int = 90, weights: Floats | None = None
) -> Figures:
    """Compute every figure of S seeds, each as often as `weights`, (B, S), says, or once."""
    if weights is None:
        weights = np.ones((1, len(counts.seed_ids)))
    curves, scalars = list[Floats](), {figure.key: list[Floats]() for figure in _ROWS}
    for k in range(counts.n_variants.shape[1]):
        part = counts.of_subsample(k)
        columns = [column(part, correctness_threshold) for column in _SUMMED.values()]
        # One product: whole numbers far below 2**53, so exact in any order of summation, but for
        # sums of fractions.
        # The bootstrap's draws meet levels, of which there are at most 101, not thresholds.
        levels = np.flatnonzero(np.bincount(part.level))
        position = np.searchsorted(levels, part.level)
        table = np.zeros((len(position), len(columns) + len(levels)))
        table[:, : len(columns)] = np.stack(columns, axis=1)
        table[np.arange(len(position)), len(columns) + position] = part.present
        sums = weights @ table
        reached = np.zeros((len(weights), 101))
        reached[:, levels] = sums[:, len(columns) :]
        held = reached[:, :0:-1].cumsum(axis=1)[:, ::-1]  # seeds that count as right at CT 1..100
        seeds = reached.sum(axis=1)
        summed = dict(zip(_SUMMED, sums.T, strict=False))
        met = _where_curve_meets(held - summed["right"][:, None])
        with np.errstate(invalid="ignore", divide="ignore"):  # 0/0: undefined, NaN
            defined = np.where(seeds > 0, 1.0, np.nan)
            met = {key: values * defined for key, values in met.items()}
            made = Sums(correctness_threshold, seeds, held, met, summed)
            for figure in _ROWS:
                scalars[figure.key].append(figure.formula(made))
            curves.append(held / seeds[:, None])
    return Figures(
        scalars={key: np.stack(values, axis=1) for key, values in scalars.items()},
        curve=np.stack(curves, axis=1),
        has_subsamples=counts.has_subsamples,
    )


_MEETING: Final = ("matching_threshold", *MATCHING_RANGE, "matching_gap", "holding_threshold")


def _where_curve_meets(above: Floats) -> dict[str, Floats]:
    """Find where SV curves meet S, from SV(CT) − S in any unit, (…, 100): key → (…).

    SV is a step function, so the thresholds of least gap form an interval (paper, section 4). The
    lowest is quoted, as the paper's values ending in 1 and 6 show (20 variants per seed).

    >>> met = _where_curve_meets(np.repeat([90.0, 80, 50], [40, 30, 30]) - 85)
    >>> [int(met[key]) for key in (*MATCHING_RANGE, "matching_gap", "holding_threshold")]
    [1, 70, 5, 40]
    """
    gap = np.abs(above)
    least = gap.min(axis=-1)
    tied = gap - least[..., None] < _ROUNDING
    low = tied.argmax(axis=-1) + 1.0
    high = 100.0 - tied[..., ::-1].argmax(axis=-1)
    least = np.where(least < _ROUNDING, 0.0, least)
    holding = (above > -_ROUNDING).sum(axis=-1).astype(np.float64)  # SV only falls with CT
    return dict(zip(_MEETING, (low, low, high, least, holding), strict=True))


def none_if_nan(value: float) -> float | None:
    """Write an undefined figure as results have it."""
    return None if math.isnan(value) else float(value)


def _mean(values: Floats) -> Floats:
    """Average what is not NaN over the last axis; NaN where nothing is."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nansum(values, axis=-1) / (~np.isnan(values)).sum(axis=-1))
