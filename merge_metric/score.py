"""Figures of a predictions file, and their text: `merge-nli score`, also from Python."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, Literal

from merge_dataset.card import environment
from merge_dataset.files import read_text
from merge_dataset.layout import CARD, PROVENANCE
from merge_dataset.provenance import read
from merge_dataset.schema import collection_name, parse_config_name
from merge_dataset.settings import as_list
from merge_metric.frame.answer_table import PredictionsSource
from merge_metric.frame.joined import Frame, read_frames
from merge_metric.frame.noise import noise_figures, noise_text
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import (
    CATALOGUE,
    FEW_SEEDS,
    MAIN_FIGURES,
    MATCHING_RANGE,
    Figure,
    estimate,
    figure_named,
    is_undetermined,
    main_figures,
    percent,
    span,
    sv_at,
)
from merge_metric.seed_variant_accuracy.formatting import as_percent, show_value
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.seed_variant_accuracy.resampling import resampled_units
from merge_metric.seed_variant_accuracy.scoring import VERSION, score_counts
from merge_metric.tables import Column, Table, figure_column, figure_values
from merge_metric.tables.table import PACKAGES, WIDTH, escape

log = logging.getLogger(__name__)

_SV: Final = "seed_variant_accuracy"

Result = Mapping[str, Any]
"""A result of `scoring.score`, or one of its groups."""


def score_file(
    path: str | Path | Sequence[str | Path],
    dataset: str | Path | None = None,
    configs: str | Sequence[str] = (),
    *,
    by: str | Sequence[str] = (),
    cluster: str = "",
    allow_missing: bool = False,
    correctness_threshold: int = 90,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
    merge_labels: str | Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Score a predictions file.

    What is not scored, and why, is logged.

    Args:
        path: A predictions file or a harness's log (see `predictions`), or several of one model.
        dataset: The dataset folder, which knows the subsamples and word classes. Without
            it every variant of the file counts once.
        configs: Configurations such as `snli_nouns`; by default what the predictions are
            for (see `frame.answer_table.choose`).
        by: Further columns of the dataset to group variants by (see `counting.groupings`).
        cluster: Text of the problems, such as `premise`: the bootstrap draws seeds that share it
            together. By default each seed by itself.
        allow_missing: Score the seeds of which no prediction is missing.
        correctness_threshold: CT of `seed_variant_accuracy`, integer percent 1–100.
        n_bootstrap: Replicates of the bootstrap over seeds; 0 leaves intervals out.
        rng_seed: Of the bootstrap.
        merge_labels: Labels that count as one, such as contradiction,neutral=not_entailment, where
            the data have fewer classes than the model; by default as the file says.

    Returns:
        Configuration, or `ALL_ROWS` without a dataset → the result of `scoring.score` and
        `n_seeds_left_out`.

    Raises:
        FileNotFoundError, NotADirectoryError: no such file or dataset folder.
        ValueError: an option or file is not as it should be, or predictions are missing.
    """
    settings = Settings(correctness_threshold, n_bootstrap, rng_seed)
    frames = read_frames(
        [PredictionsSource("", Path(file)) for file in as_list(path, str, Path)],
        dataset,
        configs,
        by=by,
        cluster=cluster,
        allow_missing=allow_missing,
        with_rows=False,
        merge_labels=merge_labels,
    )
    return score_all(list(frames), settings, shown=False)


def score_all(
    frames: Sequence[Frame], settings: Settings, *, shown: bool
) -> dict[str, dict[str, Any]]:
    """Score frames; warn of few seeds, and of mixed numbers of variants if not `shown`."""
    if not all(frame.dataset for frame in frames):
        log.warning(
            "Every variant in the file counts once. With --dataset FOLDER figures are averages "
            "over the dataset's subsamples, which differ from these, and also given per word class."
        )
    results = {frame.config: score_frame(frame, settings) for frame in frames}
    for frame in frames:
        if not shown and (mixed := mixture(frame.counts.variants_per_seed)):
            log.warning("%s: %s", frame.config, mixed)
        tell_few(frame.config, frame.counts, results[frame.config])
    return results


def score_frame(frame: Frame, settings: Settings = USUAL) -> dict[str, Any]:
    """Score a frame.

    Returns:
        The result of `scoring.score` and `n_seeds_left_out`.
    """
    result = score_counts(
        frame.counts, frame.groups or None, settings, shift=frame.shift, texts=frame.texts
    )
    if frame.repeats:
        result["noise"] = noise_figures(frame.counts, frame.repeats, settings)
    return result | {"n_seeds_left_out": frame.n_seeds_left_out}


# --- Text ---


def scores_text(
    results: Mapping[str, Result],
    correctness_threshold: int = 90,
    *,
    more: Sequence[Figure] = (),
    cluster: str = "",
    explain: bool = False,
) -> str:
    """Render the results of `score_file`, with a table for each.

    A correctness threshold other than 50, 80, 90 or 100 has a column, in place of 90.
    """
    parts = []
    for config, result in results.items():
        table = score_table(config, result, correctness_threshold, more)
        parts += [table.to_text(), f"signature: {result['signature']}"]
    explained = dict.fromkeys((*(CATALOGUE[key] for key in MAIN_FIGURES), *more))
    legend = [
        line
        for figure in (explained if explain else ())
        for line in wrap(f"{figure.heading}: {figure.explanation}".replace("{ct}", "CT"), WIDTH)
    ]
    unit = "In percent"
    if any("seed_accuracy_ci" in result for result in results.values()):
        units = resampled_units(cluster)
        unit += f"; below each value its 95 % interval, by bootstrap over {units}"
    unit += "." if explain else ". What the figures mean: --explain."
    return "\n\n".join([*parts, "\n".join([*legend, *wrap(unit, WIDTH)])])


def scores_tables(
    results: Mapping[str, Result],
    correctness_threshold: int,
    more: Sequence[Figure],
    output: Literal["markdown", "latex", "longtable", "csv"],
) -> str:
    """Render the results of `score_file` as tables; CSV is one table with all configurations."""
    tables = [score_table(name, results[name], correctness_threshold, more) for name in results]
    if output != "csv":
        return "\n\n".join(getattr(table, f"to_{output}")() for table in tables)
    first = replace(
        tables[0],
        columns=(Column("config", "configuration"), *tables[0].columns),
        rows=tuple(
            {"config": config, **{key: row[key] for key in row if key != "size"}}
            for config, table in zip(results, tables, strict=True)
            for row in table.rows
        ),
    )
    return first.to_csv()


def score_table(
    config: str, result: Result, correctness_threshold: int = 90, more: Sequence[Figure] = ()
) -> Table:
    """Make the table of a result: all variants, then groups and labels."""
    thresholds = {50, 80, 90, 100}
    if correctness_threshold not in thresholds:
        thresholds = {50, 80, 100, correctness_threshold}
    figures = tuple(
        {figure.key: figure for figure in (*main_figures(*sorted(thresholds)), *more)}.values()
    )
    title = config
    if (subsamples := result.get("n_subsamples", 1)) > 1:
        title += f", averaged over {subsamples} subsamples"
    if clusters := result.get("n_clusters"):
        title += f"; seeds in {clusters:,} cluster{'s'[: clusters > 1]}"
    if left_out := result["n_seeds_left_out"]:
        title += f"; {left_out:,} seed{'s'[: left_out > 1]} left out, as predictions are missing"
    return Table(
        name="scores",
        title=title,
        columns=(Column("of", "seeds / variants", interval="size"), *map(figure_column, figures)),
        rows=tuple(
            {
                "of": name,
                "size": f"  {part['n_seeds']:,} / {part['n_variants']:,}",
                **figure_values(part, figures),
            }
            for name, part in _parts(result)
        ),
        notes=tuple(_notes(result, correctness_threshold)),
        tight=True,
    )


def _parts(result: Result) -> Iterator[tuple[str, Result]]:
    """Yield the whole result, then its groups and labels that are not all of it."""
    yield "all", result
    for column, groups in {**result.get("by_group", {}), "label": result["by_label"]}.items():
        counts = [(group["n_seeds"], group["n_variants"]) for group in groups.values()]
        if counts not in ([], [(result["n_seeds"], result["n_variants"])]):
            for value, part in groups.items():
                yield f"{column.replace('_', ' ')}: {value}", part


def _notes(result: Result, correctness_threshold: int) -> Iterator[str]:
    if mixed := mixture(result["variants_per_seed"]):
        yield mixed
    if lost := result.get("without_label"):
        parts = [
            f"{name.partition(': ')[2]} {as_percent(part['without_label']['share'])}"
            for name, part in _parts(result)
            if name != "all" and "without_label" in part
        ]
        where = "a subsample's variants" if "n_subsamples" in result else "the variants"
        yield (
            f"answers without a label, which count as wrong: {as_percent(lost['share'])} "
            f"({lost['seeds']:,} of the seeds, {lost['variants']:,.4g} of {where})"
            + (f"; {', '.join(parts)}" if parts else "")
        )
    if noise := result.get("noise"):
        yield from noise_text(noise)
    if result.get("n_subsamples", 1) > 1:
        shown = ", ".join(
            f"{figure.heading} "
            + show_value(percent(result[f"{figure.key}_std"], figure.unit), "threshold")
            for figure in (
                CATALOGUE[k].at(correctness_threshold) for k in ("variant_accuracy", _SV)
            )
        )
        yield f"standard deviation over the subsamples: {shown}"
    if "jsd_changed" in result:
        ends = ("changed", "unchanged")
        shown = "; ".join(
            f"{name} {', '.join(show_value(result[f'{key}_{of}'], 'fraction') for of in ends)}"
            for name, key in (("JSD", "jsd"), ("KS", "ks"), ("σ", "sigma"))
        )
        yield f"label probabilities of variants (changed, unchanged): {shown}"


# --- Gates for pipelines: figures that a model must reach ---

_ROUNDING = 1e-9
"""Tolerance: an average that misses a limit by less reaches it."""


Gate = tuple[Figure, float]
"""A figure, and its limit (0–1 for shares, in percent for thresholds): the lowest value that is
good enough, or the highest of figures of which less is better."""


def fails(gate: Gate, value: float) -> bool:
    """Return whether a value is on the wrong side of the limit."""
    figure, limit = gate
    return (limit - value if figure.higher_is_better else value - limit) > _ROUNDING


def read_gates(texts: Sequence[str], correctness_threshold: int = 90) -> list[Gate]:
    """Parse limits such as `seed_variant_accuracy=0.7`."""
    gates = []
    for text in texts:
        key, _, number = text.partition("=")
        figure = figure_named(key.strip(), correctness_threshold)
        low, high = {"share": (0, 1), "points": (-1, 1), "threshold": (0, 100)}[figure.unit]
        limit = math.nan
        with suppress(ValueError):
            limit = float(number)
        if not low <= limit <= high:  # NaN is neither
            raise ValueError(
                f"--require: expected {figure.key}=VALUE with a number from {low} to {high}, got "
                f"{text!r}"
            )
        gates.append((figure, limit))
    return gates


def failures(results: Mapping[str, Mapping[str, Any]], gates: Sequence[Gate]) -> list[str]:
    """List lines on the figures that fail; gates apply to all configurations."""
    lines = []
    for (config, result), gate in product(results.items(), gates):
        figure, limit = gate
        value = estimate(result, figure).value
        low, high = (result[name] for name in MATCHING_RANGE)
        unknown = "undefined"
        if figure.key == "matching_threshold" and is_undetermined(low, high):
            value, unknown = None, f"undetermined ({span(low, high)})"
        if value is None:
            raise ValueError(
                f"{config}: {figure.key} is {unknown}, so it cannot be compared with {limit:g}; "
                "ask for another figure"
            )
        if fails(gate, value):
            # With enough digits to differ from the limit, at least four.
            texts = [f"{value:.{digits}g}" for digits in range(4, 18)]
            shown = next((text for text in texts if fails(gate, float(text))), texts[-1])
            wanted = f"{limit:g} or {'more' if figure.higher_is_better else 'less'}"
            lines.append(f"{config}: {figure.key} is {shown}, wanted {wanted}")
    return lines


# --- Cautions: seeds with different numbers of variants, and too few seeds ---

_LISTED: Final = 4
"""Most numbers of variants that a sentence lists; for more it gives the range."""


def mixture(per_seed: Mapping[str, Sequence[float]]) -> str:
    """Say which numbers of variants are mixed; empty if all seeds have the same number.

    >>> mixture({"variants": [20, 40], "seeds": [120.0, 52.0]}).partition(":")[0]
    'Seeds with 20 and 40 variants (120 and 52 seeds) are mixed'
    >>> mixture({"variants": [20], "seeds": [172.0]})
    ''
    """
    sizes, seeds = per_seed["variants"], per_seed["seeds"]
    if len(sizes) < 2:
        return ""
    if len(sizes) > _LISTED:
        numbers = f"{min(sizes):,} to {max(sizes):,} variants"
    else:
        listed = []
        for counts in (sizes, seeds):
            *others, last = (f"{n:,.0f}" for n in counts)
            listed.append(f"{', '.join(others)} and {last}")
        numbers = f"{listed[0]} variants ({listed[1]} seeds)"
    return (
        f"Seeds with {numbers} are mixed: the more variants, the likelier a failure, so SV "
        "accuracy at high thresholds and fooling rates compare only where the mixture is the same."
    )


def tell_few(config: str, counts: SeedCounts, result: Result | None = None) -> None:
    """Warn of a configuration, or parts of its result, with few seeds."""
    sizes = {name: int(part["n_seeds"]) for name, part in (_parts(result) if result else ())}
    few = [f"{part} ({n:,})" for part, n in sizes.items() if part != "all" and n < FEW_SEEDS]
    if len(counts.seed_ids) < FEW_SEEDS:
        few = [f"{len(counts.seed_ids):,} in all"]
    if few:
        log.warning("%s: fewer than %s seeds: %s", config, FEW_SEEDS, ", ".join(few))


# --- Text of a paper: sentences, a small table for LaTeX, and what to cite ---


def reporting(results: Mapping[str, Mapping[str, Mapping[str, Any]]], dataset: Path) -> str:
    """Write the sentences of a paper on figures, a table in LaTeX, and BibTeX.

    Results are by model and configuration; the dataset folder knows masked LMs and what to cite.
    """
    by_config: dict[str, dict[str, Any]] = {}
    for model, of_model in results.items():
        for config, result in of_model.items():
            by_config.setdefault(config, {})[model] = result
    made = {
        config: read(dataset / collection_name(*parse_config_name(config)) / PROVENANCE)
        for config in by_config
    }
    one = next(iter(next(iter(by_config.values())).values()))
    ct = int(one["signature"].partition("|")[0].removeprefix("ct:"))
    figures = (
        CATALOGUE["seed_accuracy"],
        CATALOGUE["variant_accuracy"],
        sv_at(ct),
        CATALOGUE["relaxed_fooling_rate"],
    )
    signatures = dict.fromkeys(
        f"{config}: {result['signature_short']}"
        for config, models in by_config.items()
        for result in models.values()
    )
    table = Table(
        name="merge",
        title="Figures in percent, with 95 % intervals by bootstrap over seeds",
        columns=(
            Column("config", "configuration"),
            Column("model", "model"),
            Column("n_seeds", "seeds", "count"),
            *map(figure_column, figures),
        ),
        rows=tuple(
            {"config": config, "model": model, "n_seeds": result["n_seeds"]}
            | figure_values(result, figures)
            for config, models in by_config.items()
            for model, result in models.items()
        ),
        notes=(f"Signatures: {'; '.join(signatures)}",),
    )
    card = read_text(dataset / CARD)
    templates = environment(Path(__file__).parent)
    bar = escape("|")
    templates.filters["latex"] = lambda text: escape(text).replace(bar, rf"{bar}\allowbreak{{}}")
    return templates.get_template("reporting.md.j2").render(
        percent=lambda share: as_percent(share).replace("%", " %"),
        results=by_config,
        dataset=dataset.name,
        mlms={config: [mlm["name"] for mlm in of.get("mlms", ())] for config, of in made.items()},
        ct=ct,
        version=VERSION,
        packages=PACKAGES,
        table=table.to_latex(),
        bibtex=card.partition("```bibtex\n")[2].partition("```")[0].strip(),
    )
