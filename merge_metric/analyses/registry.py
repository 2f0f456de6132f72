"""Registry of analyses: the names, options and needs of each, and how one is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from merge_dataset.settings import Setting, as_path, as_texts, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from merge_metric.analyses.variant_rows import VariantRows
    from merge_metric.frame.answer_table import Predictions, PredictionsSource
    from merge_metric.frame.joined import Frame
    from merge_metric.score import Watch
    from merge_metric.tables import Table


@dataclass(frozen=True, slots=True)
class Analysis:
    """An analysis as users know it."""

    name: str
    module: str
    """Module of its function, called like it, and of `plot_…`, which draws the function's table.

    The function's keyword-only parameters are the analysis's options.
    """
    summary: str
    """The question it answers, and where papers show it, for help and README."""
    options: Mapping[str, tuple[Any, Setting]] = field(default_factory=dict)
    """Name → type and description."""
    names_datasets: bool = False
    """Whether files may name a dataset of their own: FILE@DATASET."""
    predictions: Literal["needed", "optional", "none", "run"] = "needed"
    """Whether it requires, accepts or refuses predictions files, or is of a run folder."""
    extra: Literal["plots", "overlap", "signals"] = "plots"
    """Extra of this distribution that brings all that it imports."""
    of_seeds: bool = False
    """Whether figures depend on the number of variants per seed; a note tells of mixed numbers."""
    settings: tuple[str, ...] = ()
    """Fields of the metric's `Settings` that are further options, passed as `settings`."""
    clusters: bool = False
    """Whether it uses clusters of seeds; with `n_bootstrap` it always does."""

    @property
    def function(self) -> str:
        """Name of its function."""
        return self.name.replace("-", "_")


def option(kind: Any, help: str, name: str | None = None, **more: Any) -> tuple[Any, Setting]:
    """Describe an option, which is called like its parameter unless it has another `name`."""
    panel = "Options of single analyses"
    return kind, Setting(help=help, commands="analyse", panel=panel, option=name, **more)


THRESHOLD: Final = option(
    float, "threshold of the differences; else 90.", "--ct", metavar="PERCENT"
)
REPLICATES: Final = option(int, "replicates for intervals.", minimum=0)
RANDOM_SEED: Final = option(int, "seed of whatever is random; else 0.", minimum=0)

_SETTINGS: Final = {
    "correctness_threshold": THRESHOLD,
    "n_bootstrap": REPLICATES,
    "rng_seed": RANDOM_SEED,
}

ANALYSES: Final[dict[str, Analysis]] = {}
"""Name → analysis, in the order of the help."""


MAKERS: Final[dict[str, Callable[[Path], object]]] = {}
"""Files that analyses of run folders need → function of the folder that makes them.

The package that makes runs adds them: it imports this one, and not the other way round.
"""


def analysis(name: str, module: str, summary: str, **declared: Any) -> None:
    """Register an analysis; `declared` are further fields of `Analysis`."""
    made = Analysis(name, module, summary, **declared)
    options = {**made.options, **{key: _SETTINGS[key] for key in made.settings}}
    clusters = made.clusters or "n_bootstrap" in options
    ANALYSES[name] = replace(made, options=options, clusters=clusters)


def takers(option: str) -> str:
    """Names of the analyses that take an option, separated by commas."""
    return ", ".join(known.name for known in ANALYSES.values() if option in known.options)


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that an analysis is made from."""

    name: str = ""
    sources: tuple[PredictionsSource, ...] = ()
    """Predictions files; none for an analysis of a dataset alone."""
    dataset: Path = Path()
    """Dataset folder of the files that name none."""
    configs: tuple[str, ...] = ()
    allow_missing: bool = False
    cluster: str = ""
    """Text by which seeds are clustered for the bootstrap, such as `premise`."""
    merge_labels: str | Sequence[str] = ()
    """Labels that count as one; by default as descriptions of predictions say."""
    watch: Watch | None = None
    """Collector of cautions about the frames of an analysis that shows figures of seeds."""
    at_hand: Sequence[Frame] = ()
    """Frames in place of those of predictions files."""

    def frames(
        self, *, by: Sequence[str] = (), repeated: bool = False, with_rows: bool = False
    ) -> Iterator[Frame]:
        """Read the frames, one after the other, with columns of the dataset to group variants by.

        If `repeated`, a model may have a configuration in several datasets; unless `with_rows`,
        the variants are only counted.
        """
        from merge_metric.frame.joined import read_frames

        frames = iter(self.at_hand)
        if not self.at_hand:
            frames = read_frames(
                self.sources,
                self.dataset,
                self.configs,
                by=by,
                cluster=self.cluster,
                allow_missing=self.allow_missing,
                with_rows=with_rows,
                merge_labels=self.merge_labels,
            )
        frames = self.watch.over(frames) if self.watch else frames
        datasets: dict[tuple[str, str], str] = {}
        for frame in frames:
            other = datasets.get((frame.model, frame.config))
            if other is not None and not repeated:
                raise ValueError(
                    f"expected one data set per model and configuration, got {other!r} and "
                    f"{frame.dataset!r} for {frame.model!r} on {frame.config}; name them apart: "
                    "NAME=FILE@DATASET"
                )
            datasets[frame.model, frame.config] = frame.dataset
            yield frame

    def variants(
        self,
        columns: Callable[[Path, str], Sequence[str]] = lambda *_: (),
        of_seeds: Sequence[str] = (),
        *,
        annotations: Sequence[str] = (),
    ) -> Iterator[VariantRows]:
        """Read the variants of each frame or, without predictions, of each configuration.

        `columns` lists the columns wanted of a configuration of a dataset folder; texts of the
        seeds and answers of annotators stand beside them.
        """
        from merge_metric.analyses.variant_rows import read_judgements, variant_rows
        from merge_metric.frame.joined import require_text

        judged = read_judgements(annotations) if annotations else None
        places: Iterable[tuple[Path, str, Frame | None]]
        if self.sources:
            frames = self.frames(with_rows=True)
            places = ((frame.folder, frame.config, frame) for frame in frames)
        else:
            places = ((self.dataset, config, None) for config in self.chosen_configs())
        for folder, config, frame in places:
            wanted = columns(folder, config)
            for name in of_seeds:
                require_text(folder, config, name)
            yield variant_rows(folder, config, wanted, of_seeds, frame=frame, judged=judged)

    def seeds(self, config: str) -> pa.Table:
        """Read ids, labels, votes and texts of a configuration's seeds."""
        from merge_dataset.layout import format_in, split_files
        from merge_metric.frame.relations import read_columns

        files, fields = split_files(self.dataset, config), format_in(self.dataset, config).fields
        wanted = ("seed_id", "label", "annotator_labels", *fields)
        return read_columns(self.dataset, files["seeds"], wanted)

    def chosen_configs(self) -> list[str]:
        """List the configurations of a dataset: those asked for, else those of collections."""
        from merge_dataset.layout import collections, require_dataset
        from merge_metric.frame.relations import check_configurations

        require_dataset(self.dataset)
        return list(check_configurations(self.dataset, self.configs) or collections(self.dataset))


def analyse(
    name: str,
    predictions: Predictions | Iterable[Predictions],
    dataset: str | Path | None = None,
    configs: str | Sequence[str] = (),
    *,
    allow_missing: bool = False,
    cluster: str = "",
    merge_labels: str | Sequence[str] = (),
    **options: Any,
) -> tuple[Table, Callable[[Table], Figure]]:
    """Make an analysis of predictions files.

    Args:
        name: Name of a registered analysis.
        predictions: One or several files as `FILE`, `NAME=FILE` and, where the analysis
            `names_datasets`, `FILE@DATASET`, or evaluations; none for analyses that do without.
        dataset: Dataset folder of the files that name none.
        configs: Configurations; by default what each file is for.
        allow_missing: Leave out seeds of which a prediction is missing.
        cluster: Text of the problems, such as `premise`: the bootstrap draws seeds that share it
            together.
        merge_labels: Labels that count as one, such as contradiction,neutral=not_entailment.
        options: Further options of the analysis, called as in the help.

    Returns:
        The table, and the function that draws it.

    Raises:
        FileNotFoundError, NotADirectoryError: no such file or folder.
        TypeError: a path is none, or predictions are nothing of the kind.
        ValueError: an unknown analysis, an option it does not have, or files that cannot
            be used.
    """
    from merge_dataset.layout import as_dataset
    from merge_metric.frame.answer_table import as_sources
    from merge_metric.score import Watch
    from merge_metric.seed_variant_accuracy.options import (
        USUAL,
        Settings,
        check_cluster,
        check_threshold,
    )

    if name not in ANALYSES:
        some = ", ".join(list(ANALYSES)[:4])
        listed = f": {some}, …; `merge-nli analyse --help` lists all {len(ANALYSES)}"
        hint = did_you_mean(name, ANALYSES, listed)
        raise ValueError(f"expected the name of an analysis, got {name!r}{hint}")
    chosen = ANALYSES[name]
    if other := sorted(options.keys() - chosen.options.keys()):
        has = ", ".join(f"`{key}`" for key in sorted(chosen.options)) or "none"
        raise ValueError(
            f"`{other[0]}`: expected with {takers(other[0]) or 'no analysis'}, got it with "
            f"{name}, which takes {has} of the options of single analyses"
        )
    if cluster and not chosen.clusters:
        able = ", ".join(known.name for known in ANALYSES.values() if known.clusters)
        raise ValueError(
            f"cluster: expected with {able}, which say how seeds vary, got {cluster!r} with {name}"
        )
    module = import_module(chosen.module, "merge_metric.analyses")
    make, plot = (getattr(module, f"{part}{chosen.function}") for part in ("", "plot_"))
    if "correctness_threshold" in options:
        check_threshold(options["correctness_threshold"])
    if "n_bootstrap" in chosen.options:
        own = inspect.signature(make).parameters.get("n_bootstrap")
        usual = own.default if own else USUAL.n_bootstrap
        check_cluster(cluster, options.get("n_bootstrap", usual))
    sources = tuple(as_sources("predictions", predictions))
    place = None if dataset is None else as_dataset("dataset", dataset)
    wanted = as_texts("configs", configs)
    if "run" in options or chosen.predictions == "run":
        if options.get("run") is None:
            raise ValueError(f"{name}: expected a run folder, got none; add --run FOLDER")
        options["run"] = folder = as_path("run", options["run"])
        too = {"--dataset": place, "--config": wanted, "predictions files": sources}
        if others := [option for option, value in too.items() if value]:
            raise ValueError(f"{name}: expected --run alone, got {' and '.join(others)} too")
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder}: expected a run folder, found none")
        return make(Request(name), **options), plot
    folder = _dataset_folder(chosen, sources, place)
    if merge_labels and not sources:
        raise ValueError(f"merge_labels: expected predictions with it, got none for {name}")
    if chosen.settings:
        given = {key: options.pop(key) for key in chosen.settings if key in options}
        options["settings"] = Settings(**given)
    watch = Watch() if chosen.of_seeds else None
    request = Request(name, sources, folder, wanted, allow_missing, cluster, merge_labels, watch)
    table = make(request, **options)
    notes = [*(watch.notes if watch else ())]
    if cluster and "n_bootstrap" in chosen.options:
        notes.append(f"Intervals: the bootstrap draws seeds with the same {cluster} together.")
    return replace(table, notes=(*table.notes, *notes)), plot


def _dataset_folder(
    chosen: Analysis, sources: Sequence[PredictionsSource], dataset: Path | None
) -> Path:
    name = chosen.name
    own = [source.dataset for source in sources if source.dataset]
    if own and not chosen.names_datasets:
        able = ", ".join(known.name for known in ANALYSES.values() if known.names_datasets)
        raise ValueError(f"expected FILE@DATASET only for {able}, got it for {name}")
    if not sources and chosen.predictions == "needed":
        raise ValueError(f"{name}: expected predictions files, got none")
    if sources and chosen.predictions == "none":
        raise ValueError(f"{name}: expected no predictions files, got {sources[0].path}")
    if dataset is None and len(own) < max(1, len(sources)):
        raise ValueError(
            f"{name}: expected a dataset folder, got none; add --dataset FOLDER"
            + (" or name it for every file: FILE@FOLDER" if chosen.names_datasets else "")
            + (", or a run folder: --run FOLDER" if "run" in chosen.options else "")
        )
    return dataset or own[0]
