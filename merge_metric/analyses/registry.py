"""Analyses as `analyses.toml` describes them, and what one is made from."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from merge_dataset.settings import Setting, check_members

if TYPE_CHECKING:
    import pyarrow as pa

    from merge_metric.analyses.variant_rows import VariantRows
    from merge_metric.frame.answer_table import PredictionsSource
    from merge_metric.frame.joined import Frame


_CATALOGUE: Final = tomllib.loads(
    Path(__file__).with_name("analyses.toml").read_text(encoding="utf-8")
)

_TYPES: Final[Mapping[str, Any]] = {
    "texts": tuple[str, ...],
    "text": str,
    "path": Path,
    "integer": int,
    "number": float,
    "flag": bool,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """An analysis as users know it."""

    name: str
    module: str
    """Name of the module of its function, called like it, and of `plot_…`, which draws its table.

    Its keyword-only parameters are the analysis's options, but those of `curves.read_choice`.
    """
    summary: str
    """The question it answers, and where papers show it, for help and README."""
    options: Mapping[str, tuple[Any, Setting]]
    """Name → type and description."""
    names_datasets: bool = False
    """Whether files may name a dataset of their own: FILE@DATASET."""
    predictions: Literal["needed", "optional", "none", "run"] = "needed"
    """Whether it requires, accepts or refuses predictions files, or is of a run folder."""
    extra: Literal["plots", "overlap", "signals"] = "plots"
    """Extra of this distribution that brings all that it imports."""
    of_seeds: bool = False
    """Whether figures depend on the number of variants per seed; a note tells of mixed numbers."""
    clusters: bool = False
    """Whether it uses clusters of seeds; with `n_bootstrap` it always does."""
    needs: str = ""
    """Rows without which there is no table; empty where one without rows is a result."""
    text: str = ""
    """Template of its table's title and, in further paragraphs, of the notes."""


def read_catalogue(content: Mapping[str, Any]) -> dict[str, Analysis]:
    """Read the analyses of tables as in `analyses.toml`, with the options that it describes."""
    options = {
        name: (
            _TYPES[about.pop("type")],
            Setting(commands="analyse", panel="Options of single analyses", **about),
        )
        for name, about in content.get("options", {}).items()
    }
    analyses = {}
    for name, about in content["analyses"].items():
        own = {option: options[option] for option in about.pop("options", ())}
        about.setdefault("clusters", "n_bootstrap" in own)
        analyses[name] = Analysis(name=name, options=own, **about)
    return analyses


ANALYSES: Final = read_catalogue(_CATALOGUE)
"""Name → analysis, in the order of the help."""

TEXTS: Final[Mapping[str, str]] = _CATALOGUE["texts"]
"""Name → template that the texts of several analyses include."""

MAKERS: Final[dict[str, Callable[[Path], object]]] = {}
"""Files that analyses of run folders need → function of the folder that makes them.

The package that makes runs adds them: it imports this one, and not the other way round.
"""


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
    mixtures: dict[tuple[str, str], str] | None = None
    """Dataset and configuration → sentence of `mixture`, collected for analyses that show figures
    of seeds; then the log also tells of few seeds."""
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
        from merge_metric.score import mixture, tell_few

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
        datasets: dict[tuple[str, str], str] = {}
        for frame in frames:
            place = (frame.dataset, frame.config)
            if self.mixtures is not None and place not in self.mixtures:
                self.mixtures[place] = mixture(frame.counts.variants_per_seed)
                tell_few(frame.config, frame.counts)
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
        from merge_dataset.layout import format_in
        from merge_metric.analyses.variant_rows import mean_judgements, variant_rows

        judged = mean_judgements(annotations) if annotations else None
        places: Iterable[tuple[Path, str, Frame | None]]
        if self.sources:
            frames = self.frames(with_rows=True)
            places = ((frame.folder, frame.config, frame) for frame in frames)
        else:
            places = ((self.dataset, config, None) for config in self.chosen_configs())
        for folder, config, frame in places:
            wanted = columns(folder, config)
            for name in of_seeds:
                check_members("cluster", [name], format_in(folder, config).fields)
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
        from merge_dataset.layout import check_configurations, collections, require_dataset

        require_dataset(self.dataset)
        return list(check_configurations(self.dataset, self.configs) or collections(self.dataset))
