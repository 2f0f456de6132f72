"""Predictions files → an analysis' table, and what draws it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merge_dataset.layout import split_files
from merge_metric.analyses.catalogue import ANALYSES
from merge_metric.analyses.tables import Table
from merge_metric.coverage import read_columns
from merge_metric.predictions import read_predictions
from merge_metric.runs import Run, Source, parse_source, read_runs
from merge_metric.seed_variant_accuracy.options import check_threshold

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Plot = Callable[[Table], "Figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What single analyses can be told; None for an analysis' own default."""

    tests: Sequence[str] | None = None
    """Predictions for all test problems, as FILE or NAME=FILE."""
    mlm_map: Path | None = None
    """Models → MLMs, see `source_mlms.read_counterparts`; by default the paper's."""
    matched: bool | None = None
    top: int | None = None
    correctness_threshold: int | None = None
    n_bootstrap: int | None = None
    rng_seed: int | None = None

    def given(self) -> dict[str, Any]:
        """Those that are not None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def analyse(
    name: str,
    predictions: Sequence[str],
    dataset: Path,
    configs: Sequence[str] = (),
    *,
    allow_missing: bool = False,
    options: Options | None = None,
) -> tuple[Table, Plot]:
    """Make an analysis of predictions files.

    Args:
        name: One of `catalogue.ANALYSES`.
        predictions: Files as `FILE`, `NAME=FILE`, for ablations `FILE@DATASET`.
        dataset: The dataset folder.
        configs: Configurations; by default what each file is for.
        allow_missing: Leave out seeds of which a prediction is missing.
        options: Of that analysis.

    Returns:
        The table, and the function that draws it.

    Raises:
        ValueError: an unknown analysis, an option it does not have, or files that cannot
            be used.
    """
    given = (options or Options()).given()
    _check(name, given)
    sources = [parse_source(text) for text in predictions]
    if name != "ablations" and any(source.dataset for source in sources):
        raise ValueError(f"expected FILE@DATASET only for ablations, got it for {name}")
    columns = ("mlms",) if name == "mlms" else ()
    runs = read_runs(sources, dataset, configs, by=columns, allow_missing=allow_missing)
    return _made(name, runs, dataset, sources, given)


def _made(
    name: str,
    runs: Iterator[Run],
    dataset: Path,
    sources: Sequence[Source],
    given: dict[str, Any],
) -> tuple[Table, Plot]:
    """An analysis; its module is imported only when it is asked for."""
    if name == "accuracy":
        from merge_metric.analyses.accuracy import accuracy, plot_accuracy

        tests = _tests(given.pop("tests", ()), [source.model for source in sources])
        return accuracy(runs, tests, **given), plot_accuracy
    if name == "curves":
        from merge_metric.analyses.curves import curves, plot_curves

        return curves(runs, **given), plot_curves
    if name == "matching":
        from merge_metric.analyses.matching import matching, plot_matching

        return matching(runs), plot_matching
    if name == "classes":
        from merge_metric.analyses.contrasts import plot_contrasts
        from merge_metric.analyses.word_classes import word_classes

        return word_classes(runs, **given), plot_contrasts
    if name == "mlms":
        from merge_metric.analyses.contrasts import plot_contrasts
        from merge_metric.analyses.source_mlms import PAPER, read_counterparts, source_mlms

        counterparts = read_counterparts(given.pop("mlm_map", PAPER))
        return source_mlms(runs, counterparts, **given), plot_contrasts
    if name == "ablations":
        from merge_metric.analyses.ablations import ablations, plot_ablations

        return ablations(runs), plot_ablations
    if name == "hardest":
        from merge_metric.analyses.hardest import TEXTS, hardest, plot_hardest

        every = list(runs)
        seeds = {
            config: read_columns(dataset, split_files(dataset, config)["seeds"], TEXTS)
            for config in dict.fromkeys(run.config for run in every)
        }
        return hardest(every, seeds, **given), plot_hardest
    from merge_metric.analyses.first_answers import first_answers, plot_first_answers

    return first_answers(runs), plot_first_answers


def _check(name: str, given: dict[str, Any]) -> None:
    if name not in ANALYSES:
        raise ValueError(f"expected an analysis out of {', '.join(ANALYSES)}, got {name!r}")
    if other := sorted(given.keys() - ANALYSES[name].options):
        has = ", ".join(sorted(ANALYSES[name].options)) or "none"
        raise ValueError(f"{name}: expected options out of {has}, got {', '.join(other)}")
    if "correctness_threshold" in given:
        check_threshold(given["correctness_threshold"])


def _tests(files: Sequence[str], models: Sequence[str]) -> dict[str, dict[str, bool]]:
    """Model → id of a test problem → whether it is answered right."""
    from merge_metric.analyses.accuracy import answered_right

    tests: dict[str, dict[str, bool]] = {}
    for source in map(parse_source, files):
        if source.model not in models:
            raise ValueError(
                f"{source.path}: expected test predictions of {', '.join(dict.fromkeys(models))}, "
                f"got those of {source.model!r}; name them alike: NAME=FILE"
            )
        tests.setdefault(source.model, {}).update(answered_right(read_predictions(source.path)))
    return tests
