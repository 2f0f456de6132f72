"""The function `evaluate_model`: one call from any kind of model and a dataset to results."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from merge_dataset.files import atomic, require_new
from merge_dataset.layout import as_dataset
from merge_dataset.settings import as_texts
from merge_metric.compare import Comparison, compare_models, require_distinct
from merge_metric.frame.answer_table import PredictionsSource, parse_source
from merge_metric.frame.joined import Frame, read_frames, same_merging
from merge_metric.frame.predictions import (
    MERGE_LABELS,
    read_metadata,
    read_predictions,
    rewrite_metadata,
    suffix_of,
    write_predictions,
)
from merge_metric.models.loading import as_model
from merge_metric.predict.driver import predict
from merge_metric.predict.jobs import labelled_seeds
from merge_metric.predict.problems import asked_format, dataset_folder, read_problems, sources_of
from merge_metric.score import reporting, score_all, score_frame, score_table
from merge_metric.seed_variant_accuracy.figures import main_figures
from merge_metric.seed_variant_accuracy.options import NO_INTERVALS, USUAL, Settings
from merge_metric.tables import Column, Table, figure_column, figure_values
from merge_metric.tables.table import flat

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from merge_metric.report import ReportFormat
    from merge_metric.tracking import Tracker


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Evaluation:
    """A model's answers to a dataset, and the figures computed from them."""

    name: str
    """The model's name."""
    dataset: Path
    """The dataset folder."""
    results: Mapping[str, dict[str, Any]]
    """Configuration → the result of `scoring.score`: shares of 1, thresholds in percent."""
    frames: tuple[Frame, ...]
    """Answers that the figures were computed from, one frame per configuration."""
    predictions: Path
    """The predictions file; temporary unless `evaluate_model` was told where to write it."""
    allow_missing: bool = False
    """Whether only a sample of the seeds was asked about."""
    settings: Settings = USUAL
    """Threshold and bootstrap of the figures."""

    @classmethod
    def load(
        cls,
        predictions: str | Path,
        dataset: str | Path,
        configs: str | Sequence[str] = (),
        *,
        allow_missing: bool = False,
        correctness_threshold: int = 90,
        n_bootstrap: int = 1000,
        rng_seed: int = 0,
        **options: Any,
    ) -> Evaluation:
        """Score a model's predictions, `FILE` or `NAME=FILE`; arguments are those of `score_file`.

        Raises:
            FileNotFoundError, NotADirectoryError: no such file or dataset folder.
            ValueError: an option or file is not as it should be, or predictions are missing.
        """
        settings = Settings(correctness_threshold, n_bootstrap, rng_seed)
        source, folder = parse_source(predictions), as_dataset(dataset)
        options |= {"allow_missing": allow_missing, "with_rows": False}
        frames = tuple(read_frames(source, folder, configs, **options))
        results = score_all(frames, settings, shown=False)
        return cls(source.model, folder, results, frames, source.path, allow_missing, settings)

    @property
    def merging(self) -> str:
        """How labels are merged, such as contradiction,neutral=not_entailment; "" without."""
        return self.frames[0].merging

    def __getitem__(self, key: str) -> Any:
        """Look up a configuration's result or, where there is one alone, a figure of it."""
        first, *more = self.results
        return {**({} if more else self.results[first]), **self.results}[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the configurations."""
        return iter(self.results)

    def to_pandas(self) -> Any:
        """Make a data frame of all figures: a row per configuration.

        Columns are called as in `results`; an interval has two, `…_ci_low` and `…_ci_high`. Groups,
        labels and curves are left to `results`.
        """
        import pyarrow as pa

        rows = [
            {"model": self.name, "config": config, **flat(result)}
            for config, result in self.results.items()
        ]
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: [row.get(name) for row in rows] for name in names}).to_pandas()

    def summary(self) -> Table:
        """Make the table of the figures: a row per configuration."""
        intervals = any("seed_accuracy_ci" in result for result in self.results.values())
        figures = main_figures(50, 80, 90, 100)
        return Table(
            name="summary",
            title=self.name,
            columns=(
                Column("config", "configuration"),
                Column("n_seeds", "seeds", "count"),
                Column("n_variants", "variants", "count"),
                *map(figure_column, figures),
            ),
            rows=tuple(
                {"config": config, **figure_values(result, figures)}
                for config, result in self.results.items()
            ),
            notes=(f"In percent{', with 95 % intervals by bootstrap' if intervals else ''}.",),
            tight=True,
        )

    def groups(self, config: str | None = None) -> Table:
        """Make the table of word classes and labels of a configuration, by default the first."""
        config = config or next(iter(self.results))
        if not self.allow_missing:
            return score_table(config, self[config])
        sample = self[config] | {"n_seeds_left_out": 0}
        return score_table(f"{config}, a sample of its seeds", sample)

    def reporting(self, *others: Evaluation) -> str:
        """Write what a paper should say of these and other models' figures, and what to cite."""
        own = {evaluation.name: evaluation.results for evaluation in self._beside(others)}
        return reporting(own, self.dataset)

    def per_seed(self) -> pa.Table:
        """Make an Arrow table with a row per seed; `.to_pandas()` makes a data frame of it."""
        from merge_metric.frame.per_seed import seed_results

        return seed_results(self.frames)

    def compare(self, *others: Evaluation, **options: Any) -> dict[str, Comparison]:
        """Compare with other models of the same dataset; see `compare_models`."""
        return compare_models([self, *others], **options)

    def plot_curves(self, *others: Evaluation, mean: bool = True, band: bool = False) -> Figure:
        """Draw SV accuracy by correctness threshold: a panel per configuration, a line per model.

        Args:
            others: Models of the same dataset.
            mean: With a line of the average over models.
            band: With the 95 % interval of each model's line, by bootstrap over seeds.

        Returns:
            A figure of matplotlib (extra `plots`), which `.savefig("curves.pdf")` writes.
        """
        from merge_metric.analyses import Request
        from merge_metric.analyses.curves import curves, plot_curves
        from merge_metric.analyses.measures import MEAN

        frames = [frame for evaluation in self._beside(others) for frame in evaluation.frames]
        table = curves(Request(at_hand=frames), settings=USUAL if band else NO_INTERVALS)
        rows = (row for row in table.rows if mean or row["model"] != MEAN)
        return plot_curves(replace(table, rows=tuple(rows)))

    def report(
        self, path: str | Path, *others: Evaluation, output: ReportFormat | None = None
    ) -> Path:
        """Write a report on this and other models; see `merge-nli report`.

        Intervals are by this evaluation's clusters, replicates and seed; SV accuracy is at 90.

        Args:
            path: The file: .html, .md, .tex or .json.
            others: Models of the same dataset.
            output: The format; by default what the suffix says.

        Raises:
            FileExistsError: there is another file.
            ValueError: the suffix says no format, or two models have one name.
        """
        from merge_metric.report.evidence import gather_evidence
        from merge_metric.report.write import write_report

        every, file = self._beside(others), Path(path)
        clusters = self.frames[0].counts.clusters
        evidence = gather_evidence(
            every,
            self.dataset,
            list(self.results),
            allow_missing=any(evaluation.allow_missing for evaluation in every),
            cluster=clusters.name if clusters else "",
            n_bootstrap=self.settings.n_bootstrap,
            rng_seed=self.settings.rng_seed,
            tell=False,  # `evaluate_model` did
            merge_labels=str(same_merging({of.name: of.merging for of in every})),
        )
        write_report(evidence, file, output)
        return file

    def log(self, tracker: Tracker, *, step: int | None = None) -> str:
        """Log the figures to an experiment tracker, as a `SeedVariantCallback` names them.

        The tracker's environment variables say where: WANDB_PROJECT and WANDB_MODE,
        MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME, TENSORBOARD_LOGGING_DIR. A run that is
        active, of W&B or MLflow, is used; else one is begun and ended.

        Args:
            tracker: wandb, mlflow or tensorboard.
            step: The training step, if there is one.

        Returns:
            Where they are.

        Raises:
            ModuleNotFoundError: the tracker's package is missing.
            ConnectionError: the tracker does not take them.
        """
        from merge_metric.tracking import log_results

        return log_results(
            tracker, self.results, model=self.name, dataset=str(self.dataset), step=step
        )

    def save(self, path: str | Path) -> Path:
        """Keep the predictions elsewhere, for `merge-nli score`, `compare` and `report`.

        Args:
            path: The file: .parquet, which has all that is known of the model, .jsonl or .jsonl.gz.

        Raises:
            FileExistsError: there is a file already.
            ValueError: the suffix is another.
        """
        file = Path(path)
        suffix = suffix_of(file)
        require_new(file)
        if not self.predictions.name.endswith(suffix):
            kept = read_predictions(self.predictions, self.dataset, merge_labels=self.merging)
            write_predictions(file, kept)
        else:
            with atomic(file) as new:
                copyfile(self.predictions, new)
        known = read_metadata(file)
        merged = {MERGE_LABELS: self.merging} if self.merging else {}
        if suffix == ".parquet" and (noted := known | {"name": self.name} | merged) != known:
            rewrite_metadata(file, noted)
        return file

    def _beside(self, others: Sequence[Evaluation]) -> list[Evaluation]:
        every = [self, *others]
        require_distinct([evaluation.name for evaluation in every])
        return every

    def __repr__(self) -> str:
        """Show the summary."""
        return self.summary().to_text()

    def _repr_html_(self) -> str:
        return self.summary().to_html()


def evaluate_model(
    model: Any,
    dataset: str | Path,
    config: str | Sequence[str] | None = None,
    *,
    name: str | None = None,
    label_order: str | None = None,
    limit_seeds: int | None = None,
    revision: str | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    batch_size: int = 256,
    strict_server: bool = False,
    correctness_threshold: int = 90,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
    progress: bool = True,
    merge_labels: str | Sequence[str] = (),
) -> Evaluation:
    """Ask a model about every seed and variant of a dataset, and score its answers.

    Options are checked before the model is asked.

    Args:
        model: Nearly anything; see `models.loading.as_model`.
        dataset: A dataset folder, or a dataset on the Hub as owner/name.
        config: One configuration or several, such as `snli_nouns`; by default those of all word
            classes and of paraphrases.
        name: What results call the model; a server's own name for it where `model` is a client.
        label_order: What classes 0, 1, 2 mean, such as `c,e,n`, where that is not known; or
            `seeds`, which finds it out from the seeds' gold labels.
        limit_seeds: Ask only about this number of seeds of each source, drawn by a hash.
        revision: Commit, branch or tag of a dataset on the Hub.
        out: Where predictions are kept, .parquet; an interrupted call then goes on. By default a
            temporary file, as long as the result lives.
        overwrite: Replace predictions of another run in `out`.
        batch_size: Pairs that a function is given at a time.
        strict_server: Where `model` is a client: refuse answers of another model than asked for,
            or to prompts that were cut. Else these are warnings.
        correctness_threshold: CT of `seed_variant_accuracy`, integer percent.
        n_bootstrap: Replicates for intervals; 0 for none.
        rng_seed: Seed of the bootstrap and of the sample of `limit_seeds`.
        progress: Show a bar on stderr.
        merge_labels: Labels that count as one, such as contradiction,neutral=not_entailment, where
            the data have fewer classes than the model.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such dataset.
        TypeError: the model is nothing that can be asked, or a path none.
        ValueError: it, an option or the dataset cannot be used.
    """
    settings = Settings(correctness_threshold, n_bootstrap, rng_seed)
    configs = as_texts(config)
    folder = dataset_folder(as_dataset(dataset), configs, revision)
    problems = read_problems(
        str(folder), configs, limit_seeds=limit_seeds, rng_seed=rng_seed, merge_labels=merge_labels
    )
    with ExitStack() as restored, ExitStack() as kept:
        networks = model if isinstance(model, tuple) else (model, getattr(model, "model", None))
        for network in networks:
            if getattr(network, "training", False) is True:
                restored.callback(network.train)
        if out:
            path = Path(out)
        else:
            temporary = kept.enter_context(TemporaryDirectory(prefix="merge-nli-"))
            path = Path(temporary) / "predictions.parquet"
        asked = as_model(
            model,
            name=name,
            label_order=label_order,
            problem_format=asked_format(problems),
            sources=sources_of(problems),
            seeds=partial(labelled_seeds, problems),
            batch_size=batch_size,
            strict_server=strict_server,
        )
        predict(asked, problems, path, progress=progress, overwrite=overwrite)
        called = name or str(asked.describe().identity["name"])
        is_sample = limit_seeds is not None
        source = PredictionsSource(called, path)
        options: dict[str, Any] = {"allow_missing": is_sample, "with_rows": False, "tell": False}
        frames = tuple(read_frames([source], folder, configs, **options))
        results = {frame.config: score_frame(frame, settings) for frame in frames}
        evaluation = Evaluation(called, folder, results, frames, path, is_sample, settings)
        weakref.finalize(evaluation, kept.pop_all().close)  # a temporary file lives as long
    return evaluation
