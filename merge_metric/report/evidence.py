"""Evidence of a report: models, the dataset, every model's figures on it, compared."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from merge_dataset.dataset_columns import LABEL_FLAGS
from merge_dataset.layout import PROVENANCE, format_in, require_dataset
from merge_dataset.schema import (
    LABELS,
    NLI,
    PARAPHRASE,
    WORD_CLASSES,
    collection_name,
    parse_config_name,
)
from merge_metric.cautions import mixture, seeds_of_parts, tell_few
from merge_metric.compare import Comparison, compare_models
from merge_metric.report.classes import Classes, Result, Scored, classes_of, variants_per_seed
from merge_metric.runs.counted import count_model
from merge_metric.runs.coverage import check_configurations, choose
from merge_metric.runs.flags import FLAGS, NO_FLAG, flags_in
from merge_metric.runs.join import JoinOptions
from merge_metric.runs.model import Model, PredictionsSource, opened_models, parse_source
from merge_metric.runs.run import common_texts, same_labels
from merge_metric.score import score_counted
from merge_metric.seed_variant_accuracy.options import check_cluster

log = logging.getLogger(__name__)

MISSING: Final = -1
"""In place of a prediction that a file lacks."""


@dataclass(frozen=True, slots=True)
class VariantPart:
    """A part of a configuration's variants: all, a word class, or a gold label."""

    key: str
    title: str
    kind: str
    """all, word_class or label."""
    results: tuple[Result | None, ...]
    """Each model's result; None where it has none."""

    @property
    def some_result(self) -> Result:
        """Find a result that says how much there is: the one with most seeds."""
        return max((r for r in self.results if r), key=lambda r: int(r["n_seeds"]))


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration and the models' results on it."""

    name: str
    results: tuple[Result | None, ...]
    """Each model's result of `score.score_run`; None where a
    model has no predictions for it."""
    comparison: Comparison | None
    """Comparison of the models with a result; None where none is possible."""
    labels: tuple[str, ...] = LABELS

    @property
    def source(self) -> str:
        """The source of its problems."""
        return parse_config_name(self.name)[0]

    @property
    def collection(self) -> str:
        """The folder that holds it, with a provenance of its own."""
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
        """Sentence on seeds with different numbers of variants; empty where there are none."""
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
        word_classes = [(r or {}).get("by_group", {}).get("word_class", {}) for r in self.results]
        labels = [r["by_label"] if r else {} for r in self.results]
        found = {name for classes in word_classes for name in classes}
        names = [name for name in WORD_CLASSES if name in found]
        whole = VariantPart("all", "all", "all", self.results)
        return [
            whole,
            *(_parts("word_class", names, word_classes) if len(names) > 1 else ()),
            *_parts("label", self.labels, labels),
        ]

    def flag_parts(self) -> list[VariantPart]:
        """List all variants, those without a label flag, those with each; none without flags."""
        found = [(r or {}).get("by_group", {}).get(FLAGS, {}) for r in self.results]
        names = [name for name in (NO_FLAG, *LABEL_FLAGS) if any(name in each for each in found)]
        if not set(names) & set(LABEL_FLAGS):
            return []
        return [VariantPart("all", "all", FLAGS, self.results), *_parts(FLAGS, names, found)]

    def parts_by(self, kind: str) -> list[VariantPart]:
        """List the parts by `word_class` or by `label`."""
        return [part for part in self.parts() if part.kind == kind]


@dataclass(frozen=True, slots=True, eq=False)
class Respondent:
    """A model of the report and its answers: two bytes for each row of the dataset."""

    name: str
    files: tuple[str, ...]
    """Names of the predictions files."""
    description: Mapping[str, Any]
    """As `Model.description`."""
    n_predictions: int
    answers: Mapping[str, NDArray[np.int16]]
    """File of the dataset → the answer to each of its rows, `MISSING` where there is none."""

    @classmethod
    def of(cls, model: Model) -> Respondent:
        """Look the model's answers up."""
        found: dict[str, list[NDArray[np.int16]]] = {}
        for predictions, coverage in model.parts.each():
            given = np.append(predictions["prediction"].to_numpy(), MISSING).astype(np.int16)
            for file, rows in coverage.rows.items():
                found.setdefault(file, []).append(given[rows])  # row -1 is the appended one
        answers = {file: np.concatenate(parts) for file, parts in found.items()}
        return cls(model.name, model.files, model.description, model.parts.rows, answers)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a report shows, but for the texts of problems."""

    title: str
    folder: Path
    models: tuple[Respondent, ...]
    configurations: tuple[Configuration, ...]
    classes: tuple[Classes, ...]
    """Tables of the sources that have replacements and paraphrases."""
    provenance: Mapping[str, Mapping[str, Any]]
    """Source, or source and `_paraphrases` → how its data was made."""
    n_bootstrap: int
    cluster: str = ""
    """Text by which seeds are clustered for the bootstrap; empty where each is by itself."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all problems."""
        return self.configurations[0].labels if self.configurations else LABELS

    @property
    def is_nli(self) -> bool:
        """Whether all problems are of NLI."""
        return all(format_in(self.folder, c.name) == NLI for c in self.configurations)

    @property
    def names(self) -> list[str]:
        """Names of the models, in the order given."""
        return [model.name for model in self.models]

    @property
    def has_paraphrases(self) -> bool:
        """Whether some variants are paraphrases."""
        return any(each.is_paraphrases for each in self.configurations)

    @property
    def has_replacements(self) -> bool:
        """Whether some variants are replacements."""
        return not all(each.is_paraphrases for each in self.configurations)


def gather_evidence(
    files: Sequence[str],
    folder: Path,
    configs: Sequence[str] = (),
    *,
    title: str | None = None,
    allow_missing: bool = False,
    cluster: str = "",
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
    progress: bool = False,
) -> Evidence:
    """Read predictions and score them.

    Args:
        files: Predictions files, each as FILE or NAME=FILE; see `runs.run.read_models`.
        folder: The dataset folder.
        configs: Configurations to score; by default what each file is complete for.
        title: Of the report.
        allow_missing: Score the seeds of which no prediction is missing.
        cluster: Text of the problems, such as `premise`: the bootstrap draws seeds that share it
            together.
        n_bootstrap: Replicates for intervals; 0 for neither intervals nor comparison.
        rng_seed: Of the bootstrap.
        progress: Show bars on stderr.

    Raises:
        FileNotFoundError, NotADirectoryError: no such file or dataset folder.
        ValueError: a file is unusable, or predictions are missing for a configuration that
            was asked for.
    """
    check_cluster(cluster, n_bootstrap)
    require_dataset(folder)
    with opened_models(map(_source, files), folder) as opened:
        meant = [choose(model.parts.tally) for model in opened]
        chosen = check_configurations(folder, configs) or list(dict.fromkeys(chain(*meant)))
        same_labels((config, format_in(folder, config).labels) for config in chosen)
        scored = _score_all(
            opened,
            _pairs(chosen, opened, meant, required=bool(configs)),
            allow_missing=allow_missing,
            cluster=cluster,
            n_bootstrap=n_bootstrap,
            rng_seed=rng_seed,
            progress=progress,
        )
        models = tuple(map(Respondent.of, opened))
    configurations = _configurations(
        tqdm(chosen, desc="comparing", unit="configuration", disable=not progress),
        folder,
        models,
        scored,
        n_bootstrap=n_bootstrap,
        rng_seed=rng_seed,
    )
    return Evidence(
        title=title or _title(models, configurations),
        folder=folder,
        models=models,
        configurations=configurations,
        classes=tuple(
            _classes(
                configurations,
                models,
                scored,
                n_bootstrap=n_bootstrap,
                rng_seed=rng_seed,
                cluster=cluster,
            )
        ),
        provenance={
            name: _read_provenance(folder / name / PROVENANCE)
            for name in dict.fromkeys(c.collection for c in configurations)
        },
        n_bootstrap=n_bootstrap,
        cluster=cluster,
    )


def _configurations(
    chosen: Iterable[str],
    folder: Path,
    models: Sequence[Respondent],
    scored: Mapping[tuple[str, int], Scored],
    *,
    n_bootstrap: int,
    rng_seed: int,
) -> tuple[Configuration, ...]:
    """Compare the models on each configuration; warn where they have not the same seeds."""
    configurations = tuple(
        _configuration(
            config,
            {model.name: scored.get((config, position)) for position, model in enumerate(models)},
            labels=format_in(folder, config).labels,
            n_bootstrap=n_bootstrap,
            rng_seed=rng_seed,
        )
        for config in chosen
    )
    for each in configurations:
        if not each.same_seeds:
            log.warning(
                "%s: the models are not scored on the same seeds; the report says so", each.name
            )
    return configurations


def _read_provenance(path: Path) -> dict[str, Any]:
    """Read a JSON object of any keys: other programs than MERE make datasets too."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got an error: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _source(argument: str) -> PredictionsSource:
    source = parse_source(argument)
    if source.dataset is not None:
        raise ValueError(
            f"expected FILE or NAME=FILE, got {argument!r}: a report is about one dataset folder"
        )
    return source


def _pairs(
    configs: Sequence[str],
    models: Sequence[Model],
    meant: Sequence[Sequence[str]],
    *,
    required: bool,
) -> list[tuple[str, int]]:
    """List configurations and models to score on them: all if required, else where meant."""
    pairs = []
    for config in configs:
        for i, model in enumerate(models):
            if required or config in meant[i] or model.parts.tally.is_complete(config):
                pairs.append((config, i))
            else:
                log.warning("%s has no complete predictions for %s", model.name, config)
    return pairs


def _score_all(
    models: Sequence[Model],
    pairs: Sequence[tuple[str, int]],
    *,
    allow_missing: bool,
    cluster: str,
    n_bootstrap: int,
    rng_seed: int,
    progress: bool,
) -> dict[tuple[str, int], Scored]:
    """Score models on configurations: each pair is read, joined and counted once."""
    scored: dict[tuple[str, int], Scored] = {}
    with tqdm(total=len(pairs), desc="scoring", unit="result", disable=not progress) as bar:
        for position, model in enumerate(models):
            configs = [config for config, i in pairs if i == position]
            if not configs:
                continue
            formats = (format_in(model.folder, config) for config in configs)
            by = (FLAGS,) if any(map(flags_in, formats)) else ()
            options = JoinOptions(
                configs=configs, by=by, cluster=cluster, allow_missing=allow_missing
            )
            for counted in count_model(model, options):
                result = score_counted(counted, n_bootstrap=n_bootstrap, rng_seed=rng_seed)
                config, counts = counted.config, counted.counts
                per_seed = variants_per_seed(counts, counted.groups)
                if config not in {config for config, _ in scored}:
                    tell_few(config, counts, seeds_of_parts(result))
                scored[config, position] = Scored(result, counts, per_seed, counted.texts)
                bar.update()
    return scored


def _configuration(
    name: str,
    scored: Mapping[str, Scored | None],
    *,
    labels: tuple[str, ...],
    n_bootstrap: int,
    rng_seed: int,
) -> Configuration:
    counts = {model: each.counts for model, each in scored.items() if each}
    comparison = None
    if len(counts) > 1 and n_bootstrap:
        try:
            texts = common_texts(each.texts for each in scored.values() if each)
            comparison = compare_models(
                counts, config=name, texts=texts, n_bootstrap=n_bootstrap, rng_seed=rng_seed
            )
        except ValueError as error:  # no seed that all have: the figures are still worth reading
            log.warning("the models are not compared: %s", error)
    results = tuple(each and each.result for each in scored.values())
    return Configuration(name, results, comparison, labels)


def _classes(
    configurations: Sequence[Configuration],
    models: Sequence[Respondent],
    scored: Mapping[tuple[str, int], Scored],
    *,
    n_bootstrap: int,
    rng_seed: int,
    cluster: str,
) -> Iterator[Classes]:
    for source in dict.fromkeys(each.source for each in configurations):
        of_source = {
            each.name: {
                model.name: scored[each.name, position]
                for position, model in enumerate(models)
                if (each.name, position) in scored
            }
            for each in configurations
            if each.source == source
        }
        options: dict[str, Any] = {"n_bootstrap": n_bootstrap, "rng_seed": rng_seed}
        if found := classes_of(source, of_source, cluster=cluster, **options):
            yield found


def _parts(
    kind: str, names: Sequence[str], results: Sequence[Mapping[str, Result]]
) -> Iterator[VariantPart]:
    for name in names:
        of_models = tuple(groups.get(name) for groups in results)
        if any(of_models):
            yield VariantPart(f"{kind}:{name}", name, kind, of_models)


def _title(models: Sequence[Respondent], configurations: Sequence[Configuration]) -> str:
    """Make a title such as "4 models on snli and mnli-m"."""
    who = models[0].name if len(models) == 1 else f"{len(models)} models"
    return f"{who} on {joined([c.name for c in configurations])}"


def joined(names: Sequence[str]) -> str:
    """Join names in a sentence.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
