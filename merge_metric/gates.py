"""Gates for pipelines: figures that a model must reach, as `score --fail-under` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merge_metric.seed_variant_accuracy.figures import (
    MATCHING_RANGE,
    Figure,
    estimate,
    figure_named,
    is_undetermined,
    span,
)

_ROUNDING = 1e-9
"""Averages that miss a limit by less reach it."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A figure and the value that it must not be under, or over."""

    figure: Figure
    limit: float
    """In 0–1 for shares, in percent for thresholds."""
    is_least: bool
    """Whether less is a failure; else more is."""

    def fails(self, value: float) -> bool:
        """Tell whether a value is on the wrong side of the limit."""
        short = self.limit - value if self.is_least else value - self.limit
        return short > _ROUNDING


def read_gates(
    texts: Sequence[str], *, is_least: bool = True, correctness_threshold: int = 90
) -> list[Gate]:
    """Read gates as `FIGURE=VALUE`.

    Args:
        texts: Such as `seed_variant_accuracy=0.7`, by keys of the metric's catalogue.
        is_least: Whether a value below is a failure; else a value above is.
        correctness_threshold: CT that figures are computed at.

    Raises:
        ValueError: no such figure, or no value of its range, or the figure is better the other
            way round.
    """
    option, other = ("fail-under", "fail-over")[:: 1 if is_least else -1]
    gates = []
    for text in texts:
        key, equals, number = text.partition("=")
        if not equals:
            raise ValueError(
                f"--{option}: expected FIGURE=VALUE, such as seed_variant_accuracy=0.7, got "
                f"{text!r}"
            )
        figure = named_figure(option, key.strip(), correctness_threshold)
        if figure.higher_is_better != is_least:
            better = "higher" if figure.higher_is_better else "lower"
            raise ValueError(
                f"--{option}: {figure.key} is the better the {better} it is; use --{other} {text}"
            )
        gates.append(Gate(figure, _limit(figure, number, f"--{option}"), is_least))
    return gates


def named_figure(option: str, key: str, correctness_threshold: int) -> Figure:
    """Find the figure that an option names.

    Raises:
        ValueError: there is none; the option is named.
    """
    try:
        return figure_named(key, correctness_threshold)
    except ValueError as error:
        raise ValueError(f"--{option}: {error}") from None


def _limit(figure: Figure, number: str, option: str) -> float:
    """Read a limit in the figure's own unit."""
    low, high = {"share": (0, 1), "points": (-1, 1), "threshold": (0, 100)}[figure.unit]
    unit = "percent" if figure.unit == "threshold" else "number"
    expected = f"{option}: expected a {unit} from {low} to {high} for {figure.key}, got {number!r}"
    try:
        value = float(number)
    except ValueError:
        raise ValueError(expected) from None
    if not low <= value <= high:  # not a number is neither
        hint = f"; did you mean {value / 100:g}?" if high == 1 and 1 < value <= 100 else ""
        raise ValueError(f"{expected}{hint}")
    return value


def failures(results: Mapping[str, Mapping[str, Any]], gates: Sequence[Gate]) -> list[str]:
    """Say which figures of which configurations fail, a line each.

    Args:
        results: Configuration → result of `scoring.score`.
        gates: Every one is for every configuration.

    Raises:
        ValueError: a figure is undefined or undetermined, so that nothing can be said.
    """
    lines = []
    for config, result in results.items():
        for gate in gates:
            key = gate.figure.key
            value = estimate(result, gate.figure).value
            low, high = (result[name] for name in MATCHING_RANGE)
            if key == "matching_threshold" and is_undetermined(low, high):
                found = f"is undetermined ({span(low, high)})"
            elif value is None:
                found = "is undefined"
            else:
                if gate.fails(value):
                    wanted = f"{gate.limit:g} or {'more' if gate.is_least else 'less'}"
                    lines.append(f"{config}: {key} is {_shown(value, gate)}, wanted {wanted}")
                continue
            raise ValueError(
                f"{config}: {key} {found}, so it cannot be compared with {gate.limit:g}; "
                "ask for another figure"
            )
    return lines


def _shown(value: float, gate: Gate) -> str:
    """Show a value with as many digits as tell it from the limit, four at least."""
    return next(
        text
        for digits in range(4, 18)
        if gate.fails(float(text := f"{value:.{digits}g}")) or digits == 17
    )
