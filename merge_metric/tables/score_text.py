"""Results as text: a table of groups per configuration, at most 110 columns wide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

WIDTH: Final = 110

_NAME: Final = 20
_CELL: Final = 10

_THRESHOLDS: Final = (50, 80, 90, 100)

_LEGEND: Final = """\
S: accuracy on seeds; var.acc: on single variants. SV@CT: share of seeds of which at least CT %
of the variants are right. MC: the CT at which SV accuracy comes closest to S, the lowest where
several do. r_r, r_s: share of the seeds answered right of which a variant is answered otherwise,
or with the opposite."""

_Result = Mapping[str, Any]
_Bounds = list[float] | None


def render(results: Mapping[str, _Result], correctness_threshold: int = 90) -> str:
    """The results of `score.score_file` as text.

    Args:
        results: Configuration → result.
        correctness_threshold: Has a column where it is not 50, 80, 90 or 100, in place of 90.

    Returns:
        Values in percent, with intervals, where there are any, in the line below.
    """
    tables = [
        "\n".join(_table(config, result, correctness_threshold))
        for config, result in results.items()
    ]
    legend = _LEGEND
    if any("seed_accuracy_ci" in result for result in results.values()):
        legend += "\nIn percent; below each value its 95 % interval, by bootstrap over seeds."
    else:
        legend += "\nIn percent."
    return "\n\n".join([*tables, legend])


def _table(config: str, result: _Result, correctness_threshold: int) -> Iterator[str]:
    thresholds = list(_THRESHOLDS)
    if correctness_threshold not in thresholds:
        thresholds = sorted({50, 80, 100, correctness_threshold})
    yield _title(config, result)
    yield ""
    titles = ["S", "var.acc", *(f"SV@{ct}" for ct in thresholds), "MC", "r_r", "r_s"]
    yield _line("seeds / variants", titles)
    yield from _group("all", result, thresholds)
    for column, groups in {**result.get("by_group", {}), "label": result["by_label"]}.items():
        if not groups or _is_whole(groups, result):
            continue
        yield f"by {column.replace('_', ' ')}"
        for value, figures in groups.items():
            yield from _group(value, figures, thresholds)
    yield ""
    yield from _notes(result, correctness_threshold)
    yield from _signature(result["signature"])


def _title(config: str, result: _Result) -> str:
    title = config
    if (subsamples := result.get("n_subsamples", 1)) > 1:
        title += f", averaged over {subsamples} subsamples"
    if left_out := result["n_seeds_left_out"]:
        title += f"; {left_out:,} seed{'s'[: left_out > 1]} left out, as predictions are missing"
    return title


def _is_whole(groups: Mapping[str, _Result], result: _Result) -> bool:
    """Whether the only group is all that there is."""
    counts = [(group["n_seeds"], group["n_variants"]) for group in groups.values()]
    return counts == [(result["n_seeds"], result["n_variants"])]


def _group(name: str, figures: _Result, thresholds: list[int]) -> Iterator[str]:
    """Name and values; below them counts and intervals."""
    if len(name) >= _NAME:
        yield name
        name = ""
    cells = list(_cells(figures, thresholds))
    yield _line(name, [_number(value) for value, _ in cells])
    counts = f"  {figures['n_seeds']:,} / {figures['n_variants']:,}"
    yield _line(counts, [_interval(bounds) for _, bounds in cells])


def _cells(figures: _Result, thresholds: list[int]) -> Iterator[tuple[float | None, _Bounds]]:
    """Value and interval of each column, in percent."""

    def cell(key: str, scale: int = 100) -> tuple[float | None, _Bounds]:
        value, bounds = figures[key], figures.get(f"{key}_ci")
        return value if value is None else scale * value, bounds and [scale * b for b in bounds]

    yield cell("seed_accuracy")
    yield cell("variant_accuracy")
    curve = figures["sv_curve"]
    for ct in thresholds:
        bounds = [100 * curve[side][ct - 1] for side in ("low", "high") if side in curve]
        yield 100 * curve["accuracy"][ct - 1], bounds
    yield cell("matching_threshold", scale=1)
    yield cell("relaxed_fooling_rate")
    yield cell("strict_fooling_rate")


def _notes(result: _Result, correctness_threshold: int) -> Iterator[str]:
    if result.get("n_subsamples", 1) > 1:
        spreads = {
            "var.acc": 100 * result["variant_accuracy_std"],
            f"SV@{correctness_threshold}": 100 * result["seed_variant_accuracy_std"],
            "MC": result["matching_threshold_std"],
        }
        shown = ", ".join(f"{name} {value:.1f}" for name, value in spreads.items())
        yield f"standard deviation over the subsamples: {shown}"
    if "jsd_changed" in result:
        shown = "; ".join(
            f"{name} {_fraction(result[f'{key}_changed'])}, {_fraction(result[f'{key}_unchanged'])}"
            for name, key in (("JSD", "jsd"), ("KS", "ks"), ("σ", "sigma"))
        )
        yield f"label probabilities of variants (changed, unchanged): {shown}"


def _line(name: str, cells: list[str]) -> str:
    return f"{name:<{_NAME}}{''.join(f'{cell:>{_CELL}}' for cell in cells)}".rstrip()


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _interval(bounds: _Bounds) -> str:
    return "–".join(_number(bound).replace("100.0", "100") for bound in bounds or ())


def _fraction(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _signature(signature: str) -> Iterator[str]:
    """Wrapped between its parts."""
    line = "signature: "
    for part in signature.replace("|", "|\n").split("\n"):
        if len(line + part) > WIDTH:
            yield line
            line = " " * len("signature: ")
        line += part
    yield line
