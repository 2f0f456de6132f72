"""Comparison of models on the same seeds: differences, corrected p-values, ranks with ties."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from merge_dataset.hub.repository import Repository, call_hub, hub_api
from merge_metric.frame.joined import (
    Frame,
    Frames,
    as_frames,
    by_config,
    on_common_seeds,
    same_merging,
)
from merge_metric.frame.texts import UNVERIFIED
from merge_metric.score import mixture, tell_few
from merge_metric.seed_variant_accuracy.figures import (
    CATALOGUE,
    MAIN_FIGURES,
    MATCHING_RANGE,
    Floats,
    figures,
    is_undetermined,
    none_if_nan,
)
from merge_metric.seed_variant_accuracy.formatting import as_percent
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import (
    Pair,
    compare_all,
    holm,
    interval,
    resampled_units,
)
from merge_metric.seed_variant_accuracy.scoring import signature, summarise
from merge_metric.tables import Column, Table, Texts

log = logging.getLogger(__name__)

titled: Final = Texts.read(Path(__file__).with_suffix(".toml")).table
"""Function that makes a table with the title and the notes of its text in `compare.toml`."""

ALPHA: Final = 0.05
"""Level of the tests, over all pairs of models together."""

RANKED: Final = 4
"""Fewest models whose orders by S and by SV accuracy are compared."""

DECISIVE: Final = "seed_variant_accuracy"
"""Name of the figure by which models are ranked."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Models compared on one configuration."""

    config: str
    models: Table
    """Names of the models, best first."""
    pairs: Table
    """Rows of pairs of models, with the better one first."""
    signature: str
    kendall_tau: Mapping[str, Any] | None = None
    """Result of `rank_stability`; None for fewer than `RANKED` models."""

    def ranking(self) -> Table:
        """Make a table with only the ranks and the figure that decides them."""
        return replace(
            self.models,
            name="ranking",
            columns=tuple(c for c in self.models.columns if c.key in ("rank", "model", DECISIVE)),
            notes=self.models.notes[-1:],
        )

    def neighbours(self) -> Table:
        """Make a table of only the pairs of models that are neighbours in the ranking."""
        order = [row["model"] for row in self.models.rows]
        following = set(pairwise(order))
        rows = tuple(row for row in self.pairs.rows if (row["a"], row["b"]) in following)
        return replace(
            self.pairs,
            rows=rows,
            title="Differences: each model minus the next in the ranking",
            notes=(*self.pairs.notes, f"Shown are {len(rows)} of {len(self.pairs.rows)} pairs."),
        )

    def to_text(self, *, explain: bool = True) -> str:
        """Render both tables and the signature, with or without the definitions."""
        left_out = () if explain else (self.models.notes[-1], self.pairs.notes[1])
        tables = (
            replace(table, notes=tuple(note for note in table.notes if note not in left_out))
            for table in (self.models, self.pairs)
        )
        hint = [] if explain else ["What ranks and p-values are: --explain."]
        parts = (*(table.to_text() for table in tables), *hint, f"signature: {self.signature}")
        return "\n\n".join(parts)

    def to_latex(self) -> str:
        """Render both tables for LaTeX; see `Table.to_latex`."""
        return f"{self.models.to_latex()}\n\n{self.pairs.to_latex()}"

    def __repr__(self) -> str:
        """Show both tables."""
        return self.to_text()

    def _repr_html_(self) -> str:
        return f"{self.models.to_html()}\n{self.pairs.to_html()}"

    def as_dict(self) -> dict[str, Any]:
        """Make plain values for JSON."""
        return {
            "config": self.config,
            "models": self.models.as_dict(),
            "pairs": self.pairs.as_dict(),
            "signature": self.signature,
            **({"kendall_tau": dict(self.kendall_tau)} if self.kendall_tau else {}),
        }


def compare_models(
    models: Frames | Iterable[Frames] | Mapping[str, Frames],
    dataset: str | Path | None = None,
    configs: str | Sequence[str] = (),
    *,
    cluster: str = "",
    allow_missing: bool = False,
    correctness_threshold: int = 90,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
    merge_labels: str | Sequence[str] = (),
) -> dict[str, Comparison]:
    """Compare models on the configurations and seeds that all of them have.

    Two tests per pair, each corrected by Holm's method over all pairs: McNemar's exact
    test on which seeds are answered right, and the paired bootstrap of the difference in
    SV accuracy.

    Args:
        models: Two models or more: predictions files, as `FILE` or `NAME=FILE` (see
            `answer_table.parse_source`) or as `Path`, evaluations, or frames; or names of models
            with theirs.
        dataset: The dataset folder of predictions files; by default that of evaluations and frames.
        configs: Configurations; by default what the files are for.
        cluster: Text of the problems, such as `premise`: the bootstrap draws seeds that share it
            together. By default each seed by itself.
        allow_missing: Compare on the seeds for which every model has all predictions.
        correctness_threshold: CT of the SV accuracy that models are ranked by.
        n_bootstrap: Replicates for intervals, at least 1. The tests take more where Holm's
            correction needs them (see `replicates_for`).
        rng_seed: Of the bootstrap.
        merge_labels: Labels that count as one, such as contradiction,neutral=not_entailment.

    Returns:
        Configuration → comparison.

    Raises:
        FileNotFoundError, NotADirectoryError: no such file or dataset folder.
        TypeError: a path is none, or what is given as a model is nothing of the kind.
        ValueError: fewer than two models, two of one name, no configuration that all have, not the
            same data (see `resampling.compare`), or a file cannot be used.
    """
    settings = Settings(correctness_threshold, n_bootstrap, rng_seed)
    options = {"cluster": cluster, "allow_missing": allow_missing, "merge_labels": merge_labels}
    of_configs = by_config(as_frames(models, dataset, configs, **options))
    shared = _shared({config: [frame.model for frame in of] for config, of in of_configs.items()})
    for config in shared:
        tell_few(config, of_configs[config][0].counts)
    return {config: compare_frames(of_configs[config], settings) for config in shared}


def _shared(names: Mapping[str, Sequence[str]]) -> list[str]:
    """List the configurations that all models have, of configuration → names of its models."""
    for of_config in names.values():
        require_distinct(of_config)
    every = dict.fromkeys(chain(*names.values()))
    if len(every) < 2:
        raise ValueError(f"expected two models or more, got {', '.join(every) or 'none'}")
    shared = [config for config in names if len(names[config]) == len(every)]
    if not shared:
        answered = "; ".join(f"{config}: {', '.join(names[config])}" for config in names)
        raise ValueError(
            f"expected a configuration that all models have predictions for, got {answered}; "
            "ask for one with `config`"
        )
    for config in (config for config in names if config not in shared):
        log.warning("%s is not compared: not all models have predictions for it", config)
    return shared


def compare_frames(frames: Sequence[Frame], settings: Settings) -> Comparison:
    """Compare models on one configuration; see `compare_models`."""
    config = frames[0].config
    same_merging({frame.model: frame.counts.merged for frame in frames})
    common = on_common_seeds([frame.counts for frame in frames], config)
    counts = {frame.model: of for frame, of in zip(frames, common, strict=True)}
    ct, n_bootstrap = settings.correctness_threshold, settings.n_bootstrap
    exact = {name: figures(of, ct).means() for name, of in counts.items()}
    names = sorted(counts, key=lambda name: -exact[name][DECISIVE][0])
    ordered = [counts[name] for name in names]
    replicates = max(n_bootstrap, replicates_for(len(names)))
    compared, resampled = compare_all(ordered, settings, replicates)
    some = ordered[0]
    units = resampled_units(some.clusters.name if some.clusters else "")
    differences = _pairs_table(names, compared, ct, replicates, units)
    pairs = zip(compared, differences.rows, strict=True)
    significant = [pair for pair, row in pairs if not row["tie"]]
    rows, shares = list[dict[str, Any]](), list[str]()
    summaries = summarise(ordered, settings)
    ranked = zip(names, summaries, rank_ranges(len(names), significant), strict=True)
    for name, summary, ranks in ranked:
        row: dict[str, Any] = {"model": name, "rank": "–".join(map(str, dict.fromkeys(ranks)))}
        row |= {"rank_low": ranks[0], "rank_high": ranks[1]}
        for key in MAIN_FIGURES:
            row |= {key: summary[key], f"{key}_ci": summary[f"{key}_ci"]}
        row |= {key: summary[key] for key in MATCHING_RANGE}
        if lost := summary.get("without_label"):
            row["without_label"] = lost["share"]
            shares.append(f"{name} {as_percent(lost['share'])}")
        rows.append(row | {"n_seeds": summary["n_seeds"], "n_variants": summary["n_variants"]})
    first, *others = {frame.texts for frame in frames}
    texts = UNVERIFIED if others else first
    fewer = [{key: values[:n_bootstrap] for key, values in model.items()} for model in resampled]
    tau = rank_stability([exact[name] for name in names], fewer)
    return Comparison(
        config=config,
        models=titled(
            "models",
            rows,
            config=config,
            n_models=len(names),
            n_seeds=len(some.seed_ids),
            units=units,
            mixture=mixture(some.variants_per_seed),
            shares=shares,
            tau=tau,
            ct=ct,
            figures=[CATALOGUE[key].at(ct) for key in MAIN_FIGURES],
        ),
        kendall_tau=tau and tau | {"correctness_threshold": ct},
        pairs=differences,
        signature=signature(some, settings, texts=texts)[0],
    )


def leaderboard(repository: str) -> Table:
    """Read what models' repositories on the Hub state of a published dataset."""
    Repository(repository, "dataset")  # checks the name
    read, doing = hub_api().get_dataset_leaderboard, f"reading the leaderboard of {repository}"
    entries = call_hub(doing, read, repository, base_model_only=False)
    keys = ("rank", "value", "verified", "notes")
    return Table(
        name="leaderboard",
        title=f"{repository}: {len(entries)} models on the Hub's leaderboard",
        columns=tuple(Column(name, name) for name in ("rank", "model", "value", "verified")),
        rows=tuple(
            {"model": of.model_id} | {key: getattr(of, key) for key in keys} for of in entries
        ),
        notes=(
            "As each model's repository states it, for answers that are not here: no test compares "
            "these with the models above.",
            *(f"{of.model_id}: {of.notes}" for of in entries if of.notes),
        ),
    )


def require_distinct(names: Sequence[str]) -> None:
    """Raise ValueError where two models have one name."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"expected models of different names, got {names.count(name)} called {name!r}; say "
                'what each is called: `evaluate_model(…, name="…")`, or {"…": model, …}'
            )


def replicates_for(n_models: int) -> int:
    """Count the bootstrap replicates that Holm's correction of the smallest p-value needs.

    With B replicates no p-value is below 2 / (B + 1), and Holm multiplies the smallest by the
    number of pairs. About five replicates may contradict a significant difference.

    >>> [replicates_for(n) for n in (2, 5, 8, 19)]
    [1000, 2000, 6000, 35000]
    """
    pairs = math.comb(n_models, 2)
    return 1000 * max(1, math.ceil(5 * 2 * pairs / ALPHA / 1000))


def rank_stability(
    exact: Sequence[Mapping[str, Floats]], replicates: Sequence[Mapping[str, Floats]]
) -> dict[str, Any] | None:
    """Compare the order of models by S with that by SV accuracy: Kendall's τ-b (1945).

    Both are models' figures, (1,) and (B,). `value` and `ci`, between −1 (opposite order) and 1
    (same order), are None where all models tie; there are none for fewer than `RANKED` models.
    """
    if len(exact) < RANKED:
        return None

    def taus(models: Sequence[Mapping[str, Floats]]) -> Floats:
        signs = []
        for key in ("seed_accuracy", DECISIVE):
            values = np.stack([model[key] for model in models])  # (M, B)
            signs.append(np.sign(np.round(values[:, None] - values[None], 12)))
        with np.errstate(invalid="ignore"):  # 0/0: all tie
            tau: Floats = (signs[0] * signs[1]).sum(axis=(0, 1)) / np.sqrt(
                (signs[0] ** 2).sum(axis=(0, 1)) * (signs[1] ** 2).sum(axis=(0, 1))
            )
        return tau

    bounds = [none_if_nan(bound) for bound in interval(taus(replicates))]
    return {"value": none_if_nan(taus(exact)[0]), "ci": bounds}


def rank_ranges(n_models: int, significant: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Find each model's best and worst rank, given significant pairs (better, worse).

    >>> rank_ranges(3, [(0, 2)])  # the one in the middle ties with both
    [(1, 2), (1, 3), (2, 3)]
    """
    better = [sum(worse == model for _, worse in significant) for model in range(n_models)]
    worse = [sum(best == model for best, _ in significant) for model in range(n_models)]
    return [(1 + above, n_models - below) for above, below in zip(better, worse, strict=True)]


def _pairs_table(
    names: Sequence[str],
    compared: Mapping[tuple[int, int], Pair],
    ct: int,
    replicates: int,
    units: str,
) -> Table:
    """Make the table of differences; both p-values are corrected over all pairs."""
    p_values = holm([pair.mcnemar.p_value for pair in compared.values()])
    p_sv_values = holm([pair.figures[DECISIVE].p_value for pair in compared.values()])
    rows = list[dict[str, Any]]()
    for (i, j), p_mcnemar, p_sv in zip(compared, p_values, p_sv_values, strict=True):
        pair = compared[i, j]
        row: dict[str, Any] = {"a": names[i], "b": names[j]}
        for key in MAIN_FIGURES:
            of = pair.figures[key].as_dict()
            row |= {key: of["difference"], f"{key}_ci": None if None in of["ci"] else of["ci"]}
        low, high = (pair.figures[key] for key in MATCHING_RANGE)
        if is_undetermined(low.a, high.a) or is_undetermined(low.b, high.b):
            row |= {"matching_threshold": None, "matching_threshold_ci": None}
        row |= {f"mcnemar_{key}": value for key, value in pair.mcnemar._asdict().items()}
        p_value = pair.figures[DECISIVE].p_value
        row |= {"mcnemar_p_value_holm": p_mcnemar, f"{DECISIVE}_p_value": p_value}
        row |= {f"{DECISIVE}_p_value_holm": p_sv, "tie": p_sv > ALPHA}
        # No replicate has the other sign: more replicates could only make p smaller.
        if p_value <= 2 / (replicates + 1) and p_sv < 1:
            row[f"{DECISIVE}_p_value_holm_at_most"] = True
        rows.append(row)
    return titled(
        "pairs",
        rows,
        units=units,
        replicates=replicates,
        ct=ct,
        alpha=ALPHA,
        at_most=any(f"{DECISIVE}_p_value_holm_at_most" in row for row in rows),
        figures=[CATALOGUE[key].at(ct) for key in MAIN_FIGURES],
    )
