"""What the figures say, in a few sentences: differences of figures, no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from merge_metric.report.columns import (
    MATCHING,
    RELAXED,
    SEED,
    VARIANT,
    Column,
    Result,
    cell,
    number,
    sv_column,
)


def findings(names: Sequence[str], results: Sequence[Result | None]) -> list[str]:
    """Sentences about all models of a configuration.

    Args:
        names: Of the models.
        results: Of each; those without one are passed over.
    """
    scored = [(name, result) for name, result in zip(names, results, strict=True) if result]
    return [sentence for sentence in _sentences(scored) if sentence]


def _sentences(scored: Sequence[tuple[str, Result]]) -> Iterator[str]:
    gaps = [_value(r, VARIANT) - _value(r, SEED) for _, r in scored]
    most = max(gaps, key=abs)
    yield (
        f"Single variants are about as hard as their seeds: variant accuracy is within "
        f"{number(abs(most))} points of S{' for every model' if len(scored) > 1 else ''}."
        if abs(most) <= _CLOSE
        else f"Variant accuracy differs from S by up to {_signed(most)} points."
    )
    drops = [_value(r, SEED) - _value(r, sv_column(90)) for _, r in scored]
    if min(drops) > 0:
        yield (
            f"Right on 90 % of a seed’s variants is harder: SV@90 is "
            f"{_range(drops)} points below S."
        )
    thresholds = [(_value(r, MATCHING), name) for name, r in scored]
    low, high = min(thresholds), max(thresholds)
    yield (
        f"SV accuracy matches S at thresholds from {number(low[0])} ({low[1]}) to "
        f"{number(high[0])} ({high[1]})."
        if len(scored) > 1
        else f"SV accuracy matches S at the threshold {number(low[0])}."
    )
    rates = [value for _, r in scored if (value := cell(r, RELAXED).value) is not None]
    if rates:
        yield (
            f"Of the seeds answered right, {_range(rates)} % have a variant that changes "
            f"the answer."
        )


_CLOSE = 3.0
"""Points of difference that one may call about the same."""


def _value(result: Result, column: Column) -> float:
    value = cell(result, column).value
    return 0.0 if value is None else value


def _range(values: Sequence[float]) -> str:
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")
