"""Evidence of a report: models, the dataset, the models' figures on it and comparisons."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from merge_dataset.files import read_json
from merge_dataset.layout import PROVENANCE, as_dataset, format_in, require_dataset
from merge_dataset.paths import as_paths, as_texts
from merge_dataset.schema import (
    LABELS,
    NLI,
    PARAPHRASE,
    VARIANT_CLASSES,
    WORD_CLASSES,
    collection_name,
    parse_config_name,
)
from merge_metric.analyses.contrasts import difference
from merge_metric.analyses.measures import Row
from merge_metric.analyses.validity import COLUMNS as VALIDITY_COLUMNS
from merge_metric.analyses.validity import validity, validity_row
from merge_metric.analyses.variant_rows import read_judgements, variant_rows
from merge_metric.compare import Comparison, compare_models
from merge_metric.frame.answer_table import (
    AnswerTable,
    Predictions,
    as_sources,
    choose,
    read_models,
)
from merge_metric.frame.column_checks import ANSWER_TEXT
from merge_metric.frame.joined import (
    JoinOptions,
    common_texts,
    frames_of,
    same_labels,
    same_merging,
    shared_seeds,
)
from merge_metric.frame.relations import check_configurations
from merge_metric.score import figures_of, mixture, seeds_of_parts, tell_few
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, MAIN_FIGURES
from merge_metric.seed_variant_accuracy.merging import Merging
from merge_metric.seed_variant_accuracy.options import NO_LABEL, USUAL, Settings, check_cluster
from merge_metric.seed_variant_accuracy.resampling import resampled_units
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import Column, Table, columns, figure_column, interval_columns

log = logging.getLogger(__name__)

MISSING: Final = NO_LABEL - 1
"""Code of a missing prediction."""


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

    def parts(self) -> list[VariantPart]:
        """List all variants, then word classes where there are several, then labels."""
        classes = self._parts("word_class", WORD_CLASSES)
        labels = self._parts("label", self.labels)
        whole = VariantPart("all", "all", "all", self.results)
        return [whole, *(classes if len(classes) > 1 else ()), *labels]

    def _parts(self, kind: str, names: Sequence[str]) -> list[VariantPart]:
        """List the parts of a kind, given their names, for which some model has a result."""
        by = [
            result["by_label"] if kind == "label" else result.get("by_group", {}).get(kind, {})
            for result in (each or {"by_label": {}} for each in self.results)
        ]
        parts = ((name, tuple(groups.get(name) for groups in by)) for name in names)
        return [VariantPart(f"{kind}:{name}", name, kind, of) for name, of in parts if any(of)]

    def parts_by(self, *kinds: str) -> list[VariantPart]:
        """List the parts of some kinds: `all`, `word_class`, `label`."""
        return [part for part in self.parts() if part.kind in kinds]


@dataclass(frozen=True, slots=True, eq=False)
class Respondent:
    """A model of the report and its answers: two bytes for each row of the dataset."""

    name: str
    files: tuple[str, ...]
    description: Mapping[str, Any]
    n_predictions: int
    answers: Mapping[str, NDArray[np.int16]]
    """File of the dataset → answers to its rows, `MISSING` where there is none."""
    said: Mapping[str, str]
    """Id of a problem → answer in the model's own words, if it answers in words."""

    @classmethod
    def of(cls, model: AnswerTable) -> Respondent:
        """Read the answers of a model."""
        answers = {}
        for number, file in enumerate(model.dataset.files):
            found = model.query(
                f"SELECT coalesce(prediction, {MISSING})::SMALLINT AS answer FROM answers "
                f"WHERE file = {number} ORDER BY row"
            )
            answers[file] = found["answer"].to_numpy()
        facts = (model.name, model.files, model.description, model.n_predictions)
        words = (row for file in model.rows.files for row in file.further(ANSWER_TEXT))
        return cls(*facts, answers, {name: text for name, text in words if text})


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a report shows, except the texts of problems."""

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
    validity: Table | None = None
    """Table of changes on variants judged good and bad, if there are annotations."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all problems."""
        return self.configurations[0].labels if self.configurations else LABELS

    @property
    def is_nli(self) -> bool:
        """Whether all problems are of NLI."""
        formats = (format_in(self.folder, c.name) for c in self.configurations)
        return not self.merging and all(each == NLI for each in formats)

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
        return any(each.is_paraphrases for each in self.configurations)

    @property
    def has_replacements(self) -> bool:
        """Whether some variants are replacements."""
        return not all(each.is_paraphrases for each in self.configurations)


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
    check_cluster(cluster, n_bootstrap)
    folder, configs = as_dataset("folder", folder), as_texts("configs", configs)
    sources = as_sources("files", files)
    if own := [f"{source.path}@{source.dataset}" for source in sources if source.dataset]:
        raise ValueError(
            f"expected FILE or NAME=FILE, got {own[0]!r}: a report is about one dataset folder"
        )
    require_dataset(folder)
    settings = Settings(n_bootstrap=n_bootstrap, rng_seed=rng_seed)
    judged = read_judgements(paths) if (paths := as_paths("annotations", annotations)) else None
    asked = Merging.parse(merge_labels)
    opened = list(read_models(sources, folder, tell=tell, merging=asked))
    merging = same_merging({model.name: str(model.rows.merging) for model in opened})
    meant = [choose(model) for model in opened]
    chosen = check_configurations(folder, configs) or list(dict.fromkeys(chain(*meant)))
    known = {config: format_in(folder, config).labels for config in chosen}
    labels = same_labels((config, merging.of(each)) for config, each in known.items())
    wanted: dict[str, list[str]] = {model.name: [] for model in opened}
    for config in chosen:
        for model, its_own in zip(opened, meant, strict=True):
            if configs or config in its_own or model.is_complete(config):
                wanted[model.name].append(config)
            else:
                log.warning("%s has no complete predictions for %s", model.name, config)
    options = JoinOptions(configs=chosen, cluster=cluster, allow_missing=allow_missing)
    scored = _score_all(opened, wanted, options, settings, judged, progress=progress, tell=tell)
    models = tuple(map(Respondent.of, opened))
    # Closed before the message about an interrupt, else the bar is drawn again below it.
    with _bar(chosen, "comparing", "configuration", progress) as bar:
        configurations = tuple(
            _configuration(each, list(wanted), scored[each], settings, labels) for each in bar
        )
    for name in (each.name for each in configurations if not each.same_seeds):
        log.warning("%s: the models are not scored on the same seeds; the report says so", name)
    classes: list[Table] = []
    for source in dict.fromkeys(each.source for each in configurations):
        of_source = {c.name: scored[c.name] for c in configurations if c.source == source}
        classes += classes_of(source, of_source, settings, cluster)
    judged_table = None
    if judged is not None:  # the model's own argument comes first
        found = validity((row.validity for of in scored.values() for row in of.values()), cluster)
        config_column, model_column, *others = found.columns
        judged_table = replace(found, columns=(model_column, config_column, *others))
    who = models[0].name if len(models) == 1 else f"{len(models)} models"
    return Evidence(
        title=f"{who} on {joined(chosen)}",
        folder=folder,
        models=models,
        configurations=configurations,
        classes=tuple(classes),
        provenance={
            name: _read_provenance(folder / name / PROVENANCE)
            for name in dict.fromkeys(c.collection for c in configurations)
        },
        n_bootstrap=n_bootstrap,
        cluster=cluster,
        merging=merging,
        validity=judged_table,
    )


def _bar(items: Sequence[Any], what: str, unit: str, progress: bool) -> tqdm:
    hidden = {} if progress else {"disable": True}  # else the environment decides
    return tqdm(items, desc=what, unit=unit, **hidden)


def _score_all(
    models: Sequence[AnswerTable],
    wanted: Mapping[str, Sequence[str]],
    options: JoinOptions,
    settings: Settings,
    judged: pa.Table | None,
    *,
    progress: bool,
    tell: bool,
) -> dict[str, dict[str, Scored]]:
    """Score each model on its wanted configurations: configuration → model → result."""
    scored: dict[str, dict[str, Scored]] = {config: {} for config in options.configs}
    of_seeds = (options.cluster,) if options.cluster else ()
    everything = [*chain(*wanted.values())]
    with _bar(everything, "scoring", "result", progress) as bar:
        for model in (each for each in models if wanted[each.name]):
            mine = replace(options, configs=wanted[model.name])
            for frame in frames_of(model, mine, with_rows=judged is not None, tell=tell):
                result = figures_of(frame, settings)
                if not scored[frame.config]:
                    tell_few(frame.config, frame.counts, seeds_of_parts(result))
                parts = {WORDS: frame.counts, **frame.groups.get("word_class", {})}
                per_seed = {name: _per_seed(counts) for name, counts in parts.items()}
                row = None
                if judged is not None:
                    rows = variant_rows(
                        frame.folder,
                        frame.config,
                        VALIDITY_COLUMNS,
                        of_seeds,
                        frame=frame,
                        judged=judged,
                    )
                    row = validity_row(rows, cluster=options.cluster, settings=settings)
                found = Scored(result, frame.counts, per_seed, frame.texts, row)
                scored[frame.config][model.name] = found
                bar.update()
    return scored


def _configuration(
    config: str,
    names: Sequence[str],
    scored: Mapping[str, Scored],
    settings: Settings,
    labels: tuple[str, ...],
) -> Configuration:
    """Compare the models on a configuration."""
    comparison = None
    if len(scored) > 1 and settings.n_bootstrap:
        try:
            comparison = compare_models(
                {name: each.counts for name, each in scored.items()},
                config=config,
                texts=common_texts(each.texts for each in scored.values()),
                n_bootstrap=settings.n_bootstrap,
                rng_seed=settings.rng_seed,
            )
        except ValueError as error:  # no common seeds: the figures are still useful
            log.warning("the models are not compared: %s", error)
    results = tuple(scored[name].result if name in scored else None for name in names)
    return Configuration(config, results, comparison, labels)


def _read_provenance(path: Path) -> dict[str, Any]:
    """Read a JSON object with any keys, as programs other than MERE make datasets too."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def joined(names: Sequence[str]) -> str:
    """Join names in a sentence.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


# --- Comparison of classes of variants ---

Result = Mapping[str, Any]
"""A result of `scoring.score`, or one of its groups."""

WORDS: Final = "all words"
_CT: Final = USUAL.correctness_threshold
_SHARED: Final = "shared-seeds"
_PER_SEED: Final = "Per seed: variants in a subsample, on average."


class Scored(NamedTuple):
    """A model's result and counts on one configuration."""

    result: Result
    counts: SeedCounts
    per_seed: Mapping[str, float]
    """Word class, or `WORDS` for all → mean variants per seed and subsample that has some."""
    texts: str = ""
    validity: Row | None = None


def _per_seed(counts: SeedCounts) -> float:
    return float(counts.n_variants.sum() / counts.present.sum())


def classes_of(
    source: str, scored: Mapping[str, Mapping[str, Scored]], settings: Settings, cluster: str = ""
) -> list[Table]:
    """Tabulate a source's word classes beside its paraphrases, if any, also on shared seeds."""
    paraphrases = [config for config in scored if parse_config_name(config)[1] == PARAPHRASE]
    replacements = [config for config in scored if config not in paraphrases]
    if not paraphrases or not replacements:
        return []
    units = resampled_units(cluster)
    intervals = f", with 95 % intervals by bootstrap over {units}" if settings.n_bootstrap else ""
    found: dict[str, dict[str, tuple[Result, float]]] = {}
    for config, models in scored.items():
        for model, each in models.items():
            by_class = each.result.get("by_group", {}).get("word_class", {})
            parts = [(parse_config_name(config)[1] or WORDS, each.result, each.per_seed[WORDS])]
            parts += [(name, result, each.per_seed[name]) for name, result in by_class.items()]
            for name, result, per_seed in parts:
                found.setdefault(name, {}).setdefault(model, (result, per_seed))
    names = [name for name in (WORDS, *VARIANT_CLASSES) if name in found]
    if names[0] == WORDS and len(names) == 3:  # the only word class equals all words
        names.remove(WORDS)
    rows = [
        {"model": model, "variants": name, **_values(*found[name][model])}
        for model in dict.fromkeys(chain(*scored.values()))
        for name in names
        if model in found[name]
    ]
    title = f"{source}: classes of variants"
    shown = _columns("variants")
    notes = (
        f"In percent{intervals}; of fooling rates the lower is better. {_PER_SEED}",
        "Classes have different seeds; those of paraphrases are problems that the model "
        "which chose the paraphrases answers right.",
    )
    table = Table(f"classes-{source}", title, shown, tuple(rows), notes)
    contrasts = (_contrast(name, paraphrases[0], scored, units, settings) for name in replacements)
    return [table, *(each for each in contrasts if each.rows)]


def _contrast(
    replacements: str,
    paraphrases: str,
    scored: Mapping[str, Mapping[str, Scored]],
    units: str,
    settings: Settings,
) -> Table:
    """Compare both kinds of variants on the seeds that have both, so that only the kind differs."""
    rows: list[Mapping[str, Any]] = []
    for model, first in scored[replacements].items():
        if not (second := scored[paraphrases].get(model)):
            continue
        counts = shared_seeds([first.counts, second.counts])
        if not counts[0].seed_ids:
            continue
        for config, each in zip((replacements, paraphrases), counts, strict=True):
            row = {"model": model, "config": config}
            rows.append(row | _values(summarise(each, settings), _per_seed(each)))
        rows[-1] = {**rows[-1], **difference(counts[1], counts[0], settings)}
    paired = f", with 95 % interval by paired bootstrap over {units}"
    interval = paired if settings.n_bootstrap else ""
    title = f"{replacements} and {paraphrases} on the seeds that both have"
    shown = (*_columns("config"), *interval_columns("points", difference=f"SV@{_CT} diff."))
    notes = (
        f"SV@{_CT} diff.: paraphrases less replacements{interval}. {_PER_SEED} SV accuracy at "
        "high thresholds falls with their number, variant accuracy does not.",
    )
    return Table(f"{_SHARED}-{replacements}".replace("_", "-"), title, shown, tuple(rows), notes)


def _columns(key: str) -> tuple[Column, ...]:
    return (
        *columns(model="model", **{key: "variants"}),
        *columns("count", n_seeds="seeds"),
        *columns("threshold", variants_per_seed="per seed"),
        *(figure_column(CATALOGUE[key].at(_CT)) for key in MAIN_FIGURES),
    )


def _values(result: Result, per_seed: float) -> dict[str, Any]:
    """Take from a result the values that the columns show."""
    keys = ["n_seeds", "n_variants", *(name for key in MAIN_FIGURES for name in (key, f"{key}_ci"))]
    values = {key: result[key] for key in keys if key in result}
    return values | {"variants_per_seed": per_seed}
