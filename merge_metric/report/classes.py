"""Classes of variants beside one another: words that were replaced, hypotheses paraphrased."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from merge_dataset.schema import PARAPHRASE, VARIANT_CLASSES, parse_config_name
from merge_metric.analyses.contrasts import difference
from merge_metric.runs.run import shared_seeds
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, MAIN_FIGURES
from merge_metric.seed_variant_accuracy.resampling import resampled_units
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import Column, Table, figure_column

Result = Mapping[str, Any]
"""A result of `scoring.score`, or one of its groups."""

WORDS: Final = "all words"
"""Name of all word classes together."""

_CT: Final = 90
"""Threshold of the SV accuracy shown, the metric's own default."""

_PER_SEED: Final = "Per seed: variants in a subsample, on average."


class Scored(NamedTuple):
    """A model's result and counts on one configuration."""

    result: Result
    counts: SeedCounts
    per_seed: Mapping[str, float]
    """Word class, or `WORDS` for all variants → variants per seed; see `variants_per_seed`."""
    texts: str = ""
    """As `Run.texts`."""


@dataclass(frozen=True, slots=True)
class Classes:
    """Tables of a source that has both replacements and paraphrases."""

    source: str
    table: Table
    """A row per model and class."""
    contrasts: tuple[Table, ...]
    """For each configuration of replacements, on the seeds that have paraphrases too: two rows
    per model. Without those that share no seed."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table of classes, then the contrasts."""
        return (self.table, *self.contrasts)


def variants_per_seed(
    counts: SeedCounts, groups: Mapping[str, Mapping[str, SeedCounts]]
) -> dict[str, float]:
    """Average a seed's variants in a subsample that has some: of all, and by word class."""
    parts = {WORDS: counts, **groups.get("word_class", {})}
    return {name: _per_seed(each) for name, each in parts.items()}


def _per_seed(counts: SeedCounts) -> float:
    return float(counts.n_variants.sum() / counts.present.sum())


def classes_of(
    source: str,
    scored: Mapping[str, Mapping[str, Scored]],
    *,
    n_bootstrap: int,
    rng_seed: int,
    cluster: str = "",
) -> Classes | None:
    """Put the classes of a source beside one another.

    Args:
        source: Its name.
        scored: Configuration of the source → model → how it fares.
        n_bootstrap: Replicates for the intervals of contrasts; 0 for none.
        rng_seed: Of the bootstrap.
        cluster: As seeds are clustered in the counts.

    Returns:
        None where the source does not have both replacements and paraphrases.
    """
    is_paraphrased = {config: parse_config_name(config)[1] == PARAPHRASE for config in scored}
    if len(set(is_paraphrased.values())) < 2:
        return None
    (paraphrases,) = (config for config, is_one in is_paraphrased.items() if is_one)
    units = resampled_units(cluster)
    contrasts = (
        _contrast(config, paraphrases, scored, units, n_bootstrap=n_bootstrap, rng_seed=rng_seed)
        for config, is_one in is_paraphrased.items()
        if not is_one
    )
    intervals = f", with 95 % intervals by bootstrap over {units}" if n_bootstrap else ""
    table = Table(
        name=f"classes-{source}",
        title=f"{source}: classes of variants",
        columns=_columns("variants", "variants"),
        rows=tuple(_class_rows(scored)),
        notes=(
            f"In percent{intervals}; of fooling rates the lower is better. {_PER_SEED}",
            "Classes have different seeds; those of paraphrases are problems that the model "
            "which chose the paraphrases answers right.",
        ),
    )
    return Classes(source, table, tuple(each for each in contrasts if each.rows))


def _class_rows(scored: Mapping[str, Mapping[str, Scored]]) -> Iterator[Mapping[str, Any]]:
    """Yield each model's classes in their usual order, model by model."""
    found: dict[str, dict[str, tuple[Result, float]]] = {}
    for config, models in scored.items():
        for model, each in models.items():
            for name, figures in _classes_in(config, each):
                found.setdefault(name, {}).setdefault(model, figures)
    names = [name for name in (WORDS, *VARIANT_CLASSES) if name in found]
    if names[0] == WORDS and len(names) == 3:  # the only word class is all words
        names.remove(WORDS)
    for model in dict.fromkeys(model for models in scored.values() for model in models):
        for name in names:
            if model in found[name]:
                result, per_seed = found[name][model]
                yield {"model": model, "variants": name, **_values(result, per_seed)}


def _classes_in(config: str, scored: Scored) -> Iterator[tuple[str, tuple[Result, float]]]:
    variant_class = parse_config_name(config)[1]
    yield variant_class or WORDS, (scored.result, scored.per_seed[WORDS])
    for name, result in scored.result.get("by_group", {}).get("word_class", {}).items():
        yield name, (result, scored.per_seed[name])


def _contrast(
    replacements: str,
    paraphrases: str,
    scored: Mapping[str, Mapping[str, Scored]],
    units: str,
    *,
    n_bootstrap: int,
    rng_seed: int,
) -> Table:
    """Compare both kinds of variants on the seeds that have both, so that nothing else differs."""
    rows: list[Mapping[str, Any]] = []
    for model, first in scored[replacements].items():
        if not (second := scored[paraphrases].get(model)):
            continue
        counts = shared_seeds([first.counts, second.counts])
        if not counts[0].seed_ids:
            continue
        options = {"n_bootstrap": n_bootstrap, "rng_seed": rng_seed}
        for config, each in zip((replacements, paraphrases), counts, strict=True):
            row = {"model": model, "config": config}
            rows.append(row | _values(summarise(each, **options), _per_seed(each)))
        gap = difference(counts[1], counts[0], correctness_threshold=_CT, **options)
        rows[-1] = {**rows[-1], **gap}
    return Table(
        name=f"shared-seeds-{replacements}".replace("_", "-"),
        title=f"{replacements} and {paraphrases} on the seeds that both have",
        columns=(
            *_columns("config", "variants"),
            Column("difference", f"SV@{_CT} diff.", "points", "difference_ci"),
        ),
        rows=tuple(rows),
        notes=(
            f"SV@{_CT} diff.: paraphrases less replacements"
            + (f", with 95 % interval by paired bootstrap over {units}" if n_bootstrap else "")
            + f". {_PER_SEED} SV accuracy at high thresholds falls with their number, variant "
            "accuracy does not.",
        ),
    )


def _columns(key: str, heading: str) -> tuple[Column, ...]:
    return (
        Column("model", "model"),
        Column(key, heading),
        Column("n_seeds", "seeds", "count"),
        Column("variants_per_seed", "per seed", "threshold"),
        *(figure_column(CATALOGUE[key].at(_CT)) for key in MAIN_FIGURES),
    )


def _values(result: Result, per_seed: float) -> dict[str, Any]:
    """Take the values that columns show from a result."""
    keys = ["n_seeds", "n_variants", *(name for key in MAIN_FIGURES for name in (key, f"{key}_ci"))]
    values = {key: result[key] for key in keys if key in result}
    return values | {"variants_per_seed": per_seed}
