"""Predictions files → an analysis' table, and what draws it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from merge_dataset.layout import collections, format_in, require_dataset, split_files
from merge_metric.analyses.catalogue import ANALYSES
from merge_metric.runs.join import check_configurations, read_columns
from merge_metric.runs.predictions import read_predictions
from merge_metric.runs.run import Run, Source, parse_source, read_runs
from merge_metric.seed_variant_accuracy.options import check_threshold
from merge_metric.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from merge_metric.analyses.observed import Observed
    from merge_metric.analyses.overlap import Pairs

Plot = Callable[[Table], "Figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What single analyses can be told; None for an analysis' own default."""

    tests: Sequence[str] | None = None
    """Predictions for all test problems, as FILE or NAME=FILE."""
    mlm_map: Path | None = None
    """Models → MLMs, see `source_mlms.read_counterparts`; by default the paper's."""
    sizes: Sequence[str] | None = None
    """Numbers of parameters, as NAME=86M; by default what the predictions say."""
    encoder: str | None = None
    """Of sentences: a directory or Hub id, see `encoders.load_encoder`."""
    annotations: Sequence[str] | None = None
    """Sessions, .jsonl or .csv files, see `annotation.answers.read_answers`."""
    bins: int | None = None
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
    dataset: Path | None = None,
    configs: Sequence[str] = (),
    *,
    allow_missing: bool = False,
    options: Options | None = None,
) -> tuple[Table, Plot]:
    """Make an analysis of predictions files.

    Args:
        name: One of `catalogue.ANALYSES`.
        predictions: Files as `FILE`, `NAME=FILE` and, where the analysis `names_datasets`,
            `FILE@DATASET`; none for analyses that do without.
        dataset: The dataset folder of the files that name none.
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
    folder = _folder(name, sources, dataset)
    if not sources:
        return _without_predictions(name, folder, configs, given)
    runs = read_runs(
        sources,
        folder,
        configs,
        by=("mlms",) if name == "mlms" else (),
        keep=ANALYSES[name].keep,
        allow_missing=allow_missing,
    )
    if name in _SENSITIVITY:
        return _of_sensitivity(name, _once_each(runs), sources, given)
    return _made(name, runs if name == "ablations" else _once_each(runs), folder, sources, given)


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
    if name == "signals":
        from merge_metric.analyses.observed import observe, read_judgements

        judged = read_judgements(given.pop("annotations")) if "annotations" in given else None
        observed = (observe(run.folder, run.config, judged, run) for run in runs)
        return _signals(observed, given)
    if name == "ablations":
        from merge_metric.analyses.ablations import ablations, plot_ablations

        return ablations(runs), plot_ablations
    if name == "hardest":
        from merge_metric.analyses.hardest import hardest, plot_hardest, shown

        every = list(runs)
        seeds = {
            config: read_columns(
                dataset, split_files(dataset, config)["seeds"], shown(format_in(dataset, config))
            )
            for config in dict.fromkeys(run.config for run in every)
        }
        return hardest(every, seeds, **given), plot_hardest
    from merge_metric.analyses.first_answers import first_answers, plot_first_answers

    return first_answers(runs), plot_first_answers


_SENSITIVITY: Final = frozenset({"fooling", "sizes", "shift", "confidence", "overlap", "kinds"})
"""Analyses after Arakelyan, Liu and Augenstein (2024)."""


def _of_sensitivity(
    name: str, runs: Iterator[Run], sources: Sequence[Source], given: dict[str, Any]
) -> tuple[Table, Plot]:
    """One of `_SENSITIVITY`; its module is imported only when it is asked for."""
    if name == "fooling":
        from merge_metric.analyses.fooling import fooling_rates, plot_fooling

        return fooling_rates(runs, **given), plot_fooling
    if name == "sizes":
        from merge_metric.analyses.sizes import parse_sizes, plot_sizes, read_sizes, sizes

        size_of = read_sizes(sources, parse_sizes(given.pop("sizes", ())))
        return sizes(runs, size_of, **given), plot_sizes
    if name == "shift":
        from merge_metric.analyses.shift import plot_shift, shift

        return shift(runs), plot_shift
    if name == "confidence":
        from merge_metric.analyses.confidence import confidence, plot_confidence

        return confidence(runs), plot_confidence
    if name == "overlap":
        from merge_metric.analyses.overlap import pairs_of

        return _overlap(map(pairs_of, runs), given)
    from merge_metric.analyses.contrasts import plot_contrasts
    from merge_metric.analyses.kinds import kinds

    return kinds(runs, **given), plot_contrasts


def _without_predictions(
    name: str, folder: Path, configs: Sequence[str], given: dict[str, Any]
) -> tuple[Table, Plot]:
    """Of a dataset alone, by default of the configurations of whole collections."""
    require_dataset(folder)
    chosen = check_configurations(folder, configs) or collections(folder)
    if name == "overlap":
        from merge_metric.analyses.overlap import read_pairs

        return _overlap((read_pairs(folder, config) for config in chosen), given)
    from merge_metric.analyses.observed import observe, read_judgements

    if "annotations" not in given:
        raise ValueError(f"{name}: expected predictions files or --annotations, got neither")
    judged = read_judgements(given.pop("annotations"))
    return _signals((observe(folder, config, judged) for config in chosen), given)


def _signals(observed: Iterable[Observed], given: dict[str, Any]) -> tuple[Table, Plot]:
    from merge_metric.analyses.signals import plot_signals, signals

    return signals(observed, **given), plot_signals


def _overlap(pairs: Iterable[Pairs], given: dict[str, Any]) -> tuple[Table, Plot]:
    from merge_metric.analyses.overlap import overlap, plot_overlap

    encode = None
    if "encoder" in given:
        from merge_metric.analyses.encoders import load_encoder

        encode = load_encoder(given["encoder"])
    return overlap(pairs, encode=encode), plot_overlap


def _folder(name: str, sources: Sequence[Source], dataset: Path | None) -> Path:
    """The dataset folder of the files that name none.

    Raises:
        ValueError: files name one where they may not, or there are none, or it is missing.
    """
    analysis = ANALYSES[name]
    own = [source.dataset for source in sources if source.dataset]
    if own and not analysis.names_datasets:
        able = ", ".join(each.name for each in ANALYSES.values() if each.names_datasets)
        raise ValueError(f"expected FILE@DATASET only for {able}, got it for {name}")
    if not sources and analysis.needs_predictions:
        raise ValueError(f"{name}: expected predictions files, got none")
    if dataset is None and len(own) < max(1, len(sources)):
        raise ValueError(
            f"{name}: expected a dataset folder, got none; add --dataset FOLDER"
            + (" or name it for every file: FILE@FOLDER" if analysis.names_datasets else "")
        )
    return dataset or own[0]


def _once_each(runs: Iterable[Run]) -> Iterator[Run]:
    """The runs; an error where a model has a configuration in two data sets."""
    seen: dict[tuple[str, str], str] = {}
    for run in runs:
        if (run.model, run.config) in seen:
            raise ValueError(
                f"expected one data set per model and configuration, got "
                f"{seen[run.model, run.config]!r} and {run.dataset!r} for {run.model!r} on "
                f"{run.config}; name them apart: NAME=FILE@DATASET"
            )
        seen[run.model, run.config] = run.dataset
        yield run


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
