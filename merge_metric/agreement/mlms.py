"""Which masked LM to drop: what would go with it, and whether that is worse than what stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from merge_metric.agreement.judgements import Judgements
from merge_metric.agreement.provided import Provided
from merge_metric.agreement.shares import wilson
from merge_metric.seed_variant_accuracy.resampling import CONFIDENCE
from merge_metric.tables import Column, Table

DROP: Final = "drop"
KEEP: Final = "keep"
UNKNOWN: Final = "unknown"

FEWEST: Final = 10
"""Judged variants that have to go, and to stay, for a verdict: a single bad one is none."""

_RULE: Final = (
    f"Verdict: {DROP} where the whole interval of the difference lies below zero, else {KEEP}; "
    f"{UNKNOWN} where fewer than {FEWEST} judged variants go, or stay. Each masked LM is looked at "
    f"as if the others stayed, and what two of them share goes with neither: after dropping one, "
    f"look again with --without-mlm."
)


def drop_table(judgements: Judgements, provided: Provided | None = None) -> Table:
    """A row per masked LM.

    Args:
        judgements: With items.
        provided: What each masked LM provides of the dataset, where that is at hand.

    Raises:
        ValueError: nothing is known of the variants.
    """
    if judgements.items is None:
        raise ValueError("expected what is known of the variants, got answers alone")
    mlms = sorted({mlm for item in judgements.items for mlm in item.mlms})
    rows = [{"mlm": mlm, **_row(judgements, mlm), **_of_dataset(mlm, provided)} for mlm in mlms]
    return Table(
        name="mlms",
        title="Which masked LM to drop",
        columns=(
            Column("mlm", "masked LM"),
            Column("n_validated", "validated", "count"),
            Column("validated", "good, %", "share", "validated_ci"),
            Column("n_goes", "goes", "count"),
            Column("goes", "good, %", "share", "goes_ci"),
            Column("n_stays", "stays", "count"),
            Column("stays", "good, %", "share", "stays_ci"),
            Column("difference", "difference", "points", "difference_ci"),
            *(
                [
                    Column("variants_lost", f"{provided.unit} lost", "count"),
                    Column("seeds_lost", "seeds lost", "count"),
                ]
                if provided
                else []
            ),
            Column("verdict", "verdict"),
        ),
        rows=tuple(rows),
        notes=(
            "Validated: judged variants that it validated in a text. Goes: those that would not be "
            "there without it, as in one of their texts no other validated them. Stays: all other "
            "judged variants. Difference: good of what goes less good of what stays, in "
            "percentage points.",
            "In brackets 95 % intervals: of shares Wilson's, of differences Newcombe's, which hold "
            "where few variants go and where all of them are bad; resampling them would not. Both "
            "take variants of a seed for independent.",
            _RULE,
            *(
                [
                    f"Lost: {provided.unit} of {provided.what} that need it, and seeds of which "
                    "none would be left. More seeds may fall below the number of replacements "
                    "that makes them eligible; the build says so."
                ]
                if provided
                else []
            ),
        ),
    )


def dropped(table: Table) -> list[str]:
    """The masked LMs whose verdict is to drop them."""
    return [row["mlm"] for row in table.rows if row["verdict"] == DROP]


def _row(judgements: Judgements, mlm: str) -> dict[str, Any]:
    parts = {
        "validated": judgements.where(lambda item: mlm in item.mlms),
        "goes": judgements.where(lambda item: mlm in item.needs),
        "stays": judgements.where(lambda item: mlm not in item.needs),
    }
    row: dict[str, Any] = {}
    for name, part in parts.items():
        n, good = len(part.variant_ids), int(part.good.sum())
        row |= {f"n_{name}": n, f"n_good_{name}": good}
        row |= {name: good / n if n else None, f"{name}_ci": wilson(good, n) if n else None}
    return row | _difference(row)


def _difference(row: Mapping[str, Any]) -> dict[str, Any]:
    if not (row["n_goes"] and row["n_stays"]):
        return {"difference": None, "difference_ci": None, "verdict": UNKNOWN}
    bounds = newcombe(row["n_good_goes"], row["n_goes"], row["n_good_stays"], row["n_stays"])
    verdict = DROP if bounds[1] < 0 else KEEP
    if min(row["n_goes"], row["n_stays"]) < FEWEST:
        verdict = UNKNOWN
    return {
        "difference": row["goes"] - row["stays"],
        "difference_ci": bounds,
        "verdict": verdict,
    }


def newcombe(count_a: int, n_a: int, count_b: int, n_b: int) -> list[float]:
    """95 % interval of a difference of two shares (Newcombe 1998), by statsmodels."""
    from statsmodels.stats.proportion import confint_proportions_2indep

    low, high = confint_proportions_2indep(
        count_a, n_a, count_b, n_b, method="newcomb", compare="diff", alpha=1 - CONFIDENCE
    )
    return [float(low), float(high)]


def _of_dataset(mlm: str, provided: Provided | None) -> dict[str, Any]:
    if provided is None:
        return {}
    variants, seeds = provided.lost.get(mlm, (0, 0))
    return {"variants_lost": variants, "seeds_lost": seeds}
