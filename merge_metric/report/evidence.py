"""Evidence of a report: models, the dataset, the models' figures on it and comparisons."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from tqdm import tqdm

from merge_dataset.files import read_json
from merge_dataset.layout import PROVENANCE, as_dataset, check_configurations, format_in
from merge_dataset.schema import (
    LABELS,
    NLI,
    PARAPHRASE,
    VARIANT_CLASSES,
    WORD_CLASSES,
    collection_name,
    parse_config_name,
)
from merge_dataset.settings import as_paths, as_texts
from merge_metric.analyses.measures import Row
from merge_metric.analyses.validity import COLUMNS as _VALIDITY
from merge_metric.analyses.validity import good_rows, good_table, validity_row, validity_table
from merge_metric.analyses.variant_groups import difference
from merge_metric.analyses.variant_rows import mean_judgements, variant_rows
from merge_metric.compare import Comparison, compare_frames
from merge_metric.frame.answer_table import (
    AnswerTable,
    Predictions,
    as_sources,
    choose,
    read_models,
)
from merge_metric.frame.checks import ANSWER_TEXT
from merge_metric.frame.joined import (
    Frame,
    Reading,
    frames_of,
    same_labels,
    same_merging,
    shared_seeds,
)
from merge_metric.report.seeds import SourceSeeds, read_source
from merge_metric.score import Result as Result
from merge_metric.score import mixture, score_frame, tell_few
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, MAIN_FIGURES
from merge_metric.seed_variant_accuracy.options import USUAL, Merging, Settings
from merge_metric.seed_variant_accuracy.resampling import resampled_units
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import Table, Texts, figure_values

log = logging.getLogger(__name__)

TEXTS: Final = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))

titled: Final = Texts(TEXTS["tables"].__getitem__).table
"""Function that makes a table with the title and the notes of its text in `texts.toml`."""


@dataclass(frozen=True, slots=True)
class VariantPart:
    """A part of a configuration's variants: all, a word class, or a gold label."""

    key: str
    title: str
    kind: str
    results: tuple[Result | None, ...]
    """Results in the order of the models; None for a model without one."""

    @property
    def some_result(self) -> Result:
        """Result with the most seeds, for the numbers of seeds and variants."""
        return max((r for r in self.results if r), key=lambda r: int(r["n_seeds"]))


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration and the models' results on it."""

    name: str
    results: tuple[Result | None, ...]
    """Results of `score.score_frame` in the order of the models; None without predictions."""
    comparison: Comparison | None
    """Comparison of the models that have a result; None if it is not possible."""
    labels: tuple[str, ...] = LABELS

    @property
    def source(self) -> str:
        """The source of its problems."""
        return parse_config_name(self.name)[0]

    @property
    def collection(self) -> str:
        """The collection that holds it, with its own provenance."""
        return collection_name(*parse_config_name(self.name))

    @property
    def is_paraphrases(self) -> bool:
        """Whether its variants are paraphrases, not replacements."""
        return parse_config_name(self.name)[1] == PARAPHRASE

    @property
    def scored(self) -> list[Result]:
        """The results of the models that have one."""
        return [result for result in self.results if result]

    @property
    def mixture(self) -> str:
        """Sentence on seeds with different numbers of variants; empty if numbers are equal."""
        return mixture(self.parts()[0].some_result["variants_per_seed"])

    @property
    def signatures(self) -> list[str]:
        """Distinct signatures: one, unless models were scored on different seeds or texts."""
        return list(dict.fromkeys(result["signature"] for result in self.scored))

    @property
    def same_seeds(self) -> bool:
        """Whether all models were scored on the same seeds, as their signatures say."""
        parts = (part for signature in self.signatures for part in signature.split("|"))
        return len({part for part in parts if part.startswith("data:")}) < 2

    def parts(self, *kinds: str) -> list[VariantPart]:
        """List all variants, word classes where there are several, and labels; or some kinds."""
        made = [VariantPart("all", "all", "all", self.results)]
        for kind, names in (("word_class", WORD_CLASSES), ("label", self.labels)):
            groups = [
                {"label": of["by_label"], **of.get("by_group", {})}.get(kind, {}) if of else {}
                for of in self.results
            ]
            parts = [
                VariantPart(f"{kind}:{name}", name, kind, tuple(of.get(name) for of in groups))
                for name in names
                if any(name in of for of in groups)
            ]
            made += parts if kind == "label" or len(parts) > 1 else []
        return [part for part in made if not kinds or part.kind in kinds]


@dataclass(frozen=True, slots=True)
class Respondent:
    """A model of the report."""

    name: str
    files: tuple[str, ...]
    description: Mapping[str, Any]
    n_predictions: int
    words: Mapping[str, str]
    """Id of a problem → answer in the model's own words, if it answers in words."""

    @classmethod
    def of(cls, model: AnswerTable) -> Respondent:
        """Describe a model by its answers."""
        rows = (row for file in model.predictions for row in file.further(ANSWER_TEXT))
        words = {name: text for name, text in rows if text}
        files = tuple(file.path.name for file in model.predictions)
        return cls(model.name, files, model.description, model.n_predictions, words)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a report shows."""

    title: str
    folder: Path
    models: tuple[Respondent, ...]
    configurations: tuple[Configuration, ...]
    classes: tuple[Table, ...]
    """Tables of `classes_of` for each source with replacements and paraphrases."""
    provenance: Mapping[str, Mapping[str, Any]]
    """Source, or source with `_paraphrases` → provenance of its data."""
    n_bootstrap: int
    cluster: str = ""
    """Text by which seeds are clustered for the bootstrap; empty without clusters."""
    merging: Merging = field(default_factory=Merging)
    """Labels that count as one."""
    validity: tuple[Table, ...] = ()
    """Tables of figures on good variants, where quality or annotations tell which these are, and of
    changes on variants judged good and bad."""
    sources: tuple[SourceSeeds, ...] = ()
    """The problems, with the variants to show."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all problems."""
        return self.configurations[0].labels if self.configurations else LABELS

    @property
    def is_nli(self) -> bool:
        """Whether all problems are of NLI."""
        formats = (format_in(self.folder, c.name) for c in self.configurations)
        return not self.merging and all(problem_format == NLI for problem_format in formats)

    @property
    def names(self) -> list[str]:
        """Names of the models, in the order given."""
        return [model.name for model in self.models]

    @property
    def contrasts(self) -> list[Table]:
        """Tables of both kinds of variants on the seeds that have both."""
        return [table for table in self.classes if table.name.startswith(_SHARED)]

    @property
    def has_paraphrases(self) -> bool:
        """Whether some variants are paraphrases."""
        return any(of.is_paraphrases for of in self.configurations)

    @property
    def has_replacements(self) -> bool:
        """Whether some variants are replacements."""
        return not all(of.is_paraphrases for of in self.configurations)


def gather_evidence(
    files: Predictions | Iterable[Predictions],
    folder: str | Path,
    configs: str | Sequence[str] = (),
    *,
    allow_missing: bool = False,
    cluster: str = "",
    annotations: str | Path | Sequence[str | Path] = (),
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
    progress: bool = False,
    tell: bool = True,
    merge_labels: str | Sequence[str] = (),
) -> Evidence:
    """Read predictions and score them.

    Args:
        files: One or several predictions files, each as FILE or NAME=FILE, or evaluations; see
            `frame.answer_table.read_models`.
        folder: The dataset folder.
        configs: Configurations to score; by default what each file is complete for.
        allow_missing: Score the seeds of which no prediction is missing.
        cluster: Text of the problems, such as `premise`: the bootstrap draws seeds that share it
            together.
        annotations: Sessions of `merge-nli annotate`, or answers as .csv or .json.
        n_bootstrap: Replicates for intervals; 0 for neither intervals nor comparison.
        rng_seed: Of the bootstrap.
        progress: Show bars on stderr.
        tell: Warn of odd or missing answers.
        merge_labels: Labels that count as one, such as contradiction,neutral=not_entailment.

    Raises:
        FileNotFoundError, NotADirectoryError: no such file or dataset folder.
        TypeError: a path is none, or files are nothing of the kind.
        ValueError: a file is unusable, or predictions are missing for a configuration that
            was asked for.
    """
    folder, configs = as_dataset(folder), as_texts(configs)
    files = as_sources(files)
    if own := [f"{file.path}@{file.dataset}" for file in files if file.dataset]:
        raise ValueError(
            f"expected FILE or NAME=FILE, got {own[0]!r}: a report is about one dataset folder"
        )
    settings = Settings(n_bootstrap=n_bootstrap, rng_seed=rng_seed)
    judged = mean_judgements(paths) if (paths := as_paths(annotations)) else None
    models = list(read_models(files, folder, tell=tell, merging=Merging.parse(merge_labels)))
    merging = same_merging({model.name: str(model.merging) for model in models})
    chosen, wanted = _wanted(models, check_configurations(folder, configs))
    known = {config: format_in(folder, config).labels for config in chosen}
    labels = same_labels({config: merging.of(names) for config, names in known.items()})
    reading = Reading(cluster=cluster, allow_missing=allow_missing, tell=tell)
    hidden = {} if progress else {"disable": True}  # else the environment decides
    # Closed before the message about an interrupt, else the bar is drawn again below it.
    total = sum(map(len, wanted.values()))
    with tqdm(total=total, desc="scoring", unit="result", **hidden) as bar:
        frames, results, validity = _score_all(models, wanted, settings, judged, bar, reading)
    with tqdm(chosen, desc="comparing", unit="configuration", **hidden) as bar:
        comparisons = {config: _compared(frames[config], settings) for config in bar}
    configurations = tuple(
        Configuration(config, tuple(map(results[config].get, wanted)), comparison, labels)
        for config, comparison in comparisons.items()
    )
    for name in (of.name for of in configurations if not of.same_seeds):
        log.warning("%s: the models are not scored on the same seeds; the report says so", name)
    names: dict[str, list[str]] = {}
    for configuration in configurations:
        names.setdefault(configuration.source, []).append(configuration.name)
    who = models[0].name if len(models) == 1 else f"{len(models)} models"
    return Evidence(
        title=f"{who} on {joined(chosen)}",
        folder=folder,
        models=tuple(map(Respondent.of, models)),
        configurations=configurations,
        classes=tuple(
            table
            for configs in names.values()
            for table in _classes(configs, frames, results, settings, cluster)
        ),
        provenance={
            of.collection: read_json(folder / of.collection / PROVENANCE) for of in configurations
        },
        n_bootstrap=n_bootstrap,
        cluster=cluster,
        merging=merging,
        validity=validity,
        sources=tuple(read_source(models, configs) for configs in names.values()),
    )


def _wanted(
    models: Sequence[AnswerTable], asked: Sequence[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """List the configurations of a report, those asked for or all; and by model, its results."""
    meant = {model.name: choose(model) for model in models}
    chosen = list(asked) or list(dict.fromkeys(chain(*meant.values())))
    wanted: dict[str, list[str]] = {name: [] for name in meant}
    for config, model in product(chosen, models):
        if asked or config in meant[model.name] or model.is_complete(config):
            wanted[model.name].append(config)
        else:
            log.warning("%s has no complete predictions for %s", model.name, config)
    return chosen, wanted


def _score_all(
    models: Sequence[AnswerTable],
    wanted: Mapping[str, Sequence[str]],
    settings: Settings,
    judged: pa.Table | None,
    bar: tqdm,
    reading: Reading,
) -> tuple[dict[str, dict[str, Frame]], dict[str, dict[str, Result]], tuple[Table, ...]]:
    """Score what is wanted of models: by configuration and model; and `Evidence.validity`."""
    frames: dict[str, dict[str, Frame]] = {config: {} for config in chain(*wanted.values())}
    results: dict[str, dict[str, Result]] = {config: {} for config in frames}
    good, changes = list[Row](), list[Row | None]()
    cluster = reading.cluster
    texts = (cluster,) if cluster else ()
    for model in (model for model in models if wanted[model.name]):
        own = wanted[model.name]
        formats = [format_in(model.folder, config) for config in own]
        with_rows = judged is not None or any("quality" in of.signals for of in formats)
        for frame in frames_of(model, own, replace(reading, with_rows=with_rows)):
            folder, config, result = frame.folder, frame.config, score_frame(frame, settings)
            if not results[config]:
                tell_few(config, frame.counts, result)
            if judged is not None:
                rows = variant_rows(folder, config, _VALIDITY, texts, frame=frame, judged=judged)
                changes.append(validity_row(rows, cluster=cluster, settings=settings))
            good += good_rows(frame, judged, settings=settings) if with_rows else []
            frame = replace(frame, variants=None, values={})
            frames[config][model.name], results[config][model.name] = frame, result
            bar.update()
    tables = [good_table(good, settings, cluster, model_first=True)] if good else []
    tables += [] if judged is None else [validity_table(changes, cluster, model_first=True)]
    return frames, results, tuple(tables)


def _compared(frames: Mapping[str, Frame], settings: Settings) -> Comparison | None:
    if len(frames) < 2 or not settings.n_bootstrap:
        return None
    try:
        return compare_frames([*frames.values()], settings)
    except ValueError as error:  # no common seeds: the figures are still useful
        log.warning("the models are not compared: %s", error)
        return None


def joined(names: Sequence[str]) -> str:
    """Join names in a sentence.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


# --- Comparison of classes of variants ---

_WORDS: Final = "all words"
_CT: Final = USUAL.correctness_threshold
_FIGURES: Final = tuple(CATALOGUE[key].at(_CT) for key in MAIN_FIGURES)
_SHARED: Final = "shared-seeds"


def _classes(
    configs: Sequence[str],
    frames: Mapping[str, Mapping[str, Frame]],
    results: Mapping[str, Mapping[str, Result]],
    settings: Settings,
    cluster: str,
) -> list[Table]:
    """Tabulate a source's word classes beside its paraphrases, if any, also on shared seeds."""
    paraphrases = [config for config in configs if parse_config_name(config)[1] == PARAPHRASE]
    replacements = [config for config in configs if config not in paraphrases]
    if not paraphrases or not replacements:
        return []

    of_class: dict[tuple[str, str], Row] = {}
    for config in configs:
        source, word_class = parse_config_name(config)
        whole = word_class or _WORDS
        for model, frame in frames[config].items():
            counts = {whole: frame.counts, **frame.groups.get("word_class", {})}
            result = results[config][model]
            groups = {whole: result, **result.get("by_group", {}).get("word_class", {})}
            for name in groups:
                row = {"model": model, "variants": name} | _values(groups[name], counts[name])
                of_class.setdefault((model, name), row)
    known = {name for _, name in of_class}
    names = [name for name in (_WORDS, *VARIANT_CLASSES) if name in known]
    if names[0] == _WORDS and len(names) == 3:  # the only word class equals all words
        names.remove(_WORDS)
    models = dict.fromkeys(chain(*(frames[config] for config in configs)))
    rows = [of_class[key] for key in product(models, names) if key in of_class]
    values: Row = {"units": resampled_units(cluster), "intervals": settings.n_bootstrap}
    values["figures"] = _FIGURES
    tables = [titled("classes", rows, f"classes-{source}", source=source, **values)]
    for config in replacements:
        both, rows = (config, paraphrases[0]), list[Row]()
        for model in (model for model in frames[config] if model in frames[both[1]]):
            shared = shared_seeds([frames[of][model].counts for of in both])
            if shared[0].seed_ids:  # only the kind of variants differs
                for kind, of_kind in zip(both, shared, strict=True):
                    row = {"model": model, "config": kind}
                    rows.append(row | _values(summarise([of_kind], settings)[0], of_kind))
                rows[-1] |= difference(shared[1], shared[0], settings)
        name = f"{_SHARED}-{config}".replace("_", "-")
        values |= {"replacements": config, "paraphrases": both[1], "ct": _CT}
        tables += [titled("contrast", rows, name, **values)] if rows else []
    return tables


def _values(result: Result, counts: SeedCounts) -> Row:
    per_seed = float(counts.n_variants.sum() / counts.present.sum())
    return figure_values(result, _FIGURES) | {"variants_per_seed": per_seed}
