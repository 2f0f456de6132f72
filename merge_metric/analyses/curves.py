"""Accuracy and SV curves of models on sources, and the thresholds at which curves match S.

Figures 3 and 16 of the paper (accuracy), 4 and 18 (curves), 5 and 17 (matching thresholds), 8
(ablations), and section 5.4. The paper chooses the two best models and the worst of each training
group, by S on all test problems, averaged over sources; figures 3 to 5 show these, and figure 16
marks them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.schema import parse_config_name
from merge_metric.analyses.measures import (
    MEAN,
    Row,
    identity,
    measures,
    titled,
    values_of_models,
    weighted_mean,
)
from merge_metric.analyses.registry import Request
from merge_metric.frame.answer_table import parse_source
from merge_metric.frame.joined import by_config, on_common_seeds
from merge_metric.frame.predictions import read_metadata, read_predictions
from merge_metric.frame.relations import preview
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, MATCHING_RANGE, is_undetermined
from merge_metric.seed_variant_accuracy.formatting import show_value
from merge_metric.seed_variant_accuracy.options import NO_INTERVALS, Settings
from merge_metric.tables import Column, Table, is_few, plots
from merge_metric.tables.plots import distinct, grouped

log = logging.getLogger(__name__)

Tests = Mapping[str, Mapping[str, bool]]
"""Model → id of a test problem → whether it is answered right."""


# --- Accuracy ---


def accuracy(
    request: Request, *, tests: Tests | None = None, n_subsamples: int = 100, rng_seed: int = 0
) -> Table:
    """Make a row per model and configuration.

    To see whether the seeds are easier than the problems that they were chosen from (`tests`),
    `n_subsamples` random samples of the size of the seeds are drawn without replacement, the same
    for every model; `higher_share` is the share of samples with a higher S.
    """
    answers, rows = tests or {}, []
    for frame in request.frames():
        row: Row = identity(frame) | measures(frame.counts)
        del row["curve"]
        row |= {"n_test": None, "test_accuracy": None, "higher_share": None}
        if frame.model in answers:
            test, own = answers[frame.model], frame.counts.right
            source, _ = parse_config_name(frame.config)
            ids = sorted(name for name in test if name.startswith(f"{source}:"))
            right = np.array([test[name] for name in ids], bool)
            seeds = [str(seed) for seed in frame.counts.seed_ids]
            where = f"{frame.model}, {frame.config}"
            if missing := sorted(set(seeds) - set(ids)):
                raise ValueError(
                    f"{where}: expected the seeds among the test problems, with ids such as "
                    f"{seeds[0]!r}, got {len(ids):,} test problems of {source!r} without "
                    f"{len(missing):,} of {len(seeds):,} seeds: {preview(pa.array(missing))}"
                )
            if differ := int((np.array([test[seed] for seed in seeds]) != own).sum()):
                log.warning(
                    "%s: %s of %s seeds are right in only one of the predictions for the dataset "
                    "and those for all test problems: the same model, in the same precision?",
                    *(where, f"{differ:,}", f"{len(seeds):,}"),
                )
            rng = np.random.default_rng(rng_seed)
            draws = (rng.choice(len(ids), len(seeds), replace=False) for _ in range(n_subsamples))
            scores = np.array([right[draw].sum() for draw in draws])
            row |= {"n_test": len(ids), "test_accuracy": float(right.mean())}
            row["higher_share"] = float((scores > own.sum()).mean())
        rows.append(row)
    means = [
        (config, show_value(mean, "share"))
        for config, of_config in grouped(rows, "config").items()
        if (mean := mean_of_several(of_config, "higher_share")) is not None
    ]
    return titled("accuracy", rows, n_subsamples=n_subsamples, means=means)


def mean_of_several(rows: Sequence[Row], key: str) -> float | None:
    """Average the values of a key over models; None with fewer than two."""
    known = [row[key] for row in rows if row[key] is not None]
    return weighted_mean(known) if len(known) > 1 else None


def plot_accuracy(table: Table) -> plots.Figure:
    """Draw a panel per configuration: bars for test problems, where known, seeds and variants."""
    series = {"seeds": "seed_accuracy", "variants": "variant_accuracy"}
    if any(row["test_accuracy"] is not None for row in table.rows):
        series = {"test problems": "test_accuracy"} | series
    return plots.bar_panels(table, series, "accuracy, %")


def first_answers(request: Request) -> Table:
    """Make a row per model and configuration; None where no seed is right, or none wrong.

    Also has the numbers of seeds with one, half or all of their variants right: section 5.4 counts
    seeds answered wrong whose variants are right, and does not say how many variants that takes.
    """
    rows: list[Row] = []
    for frame in request.frames():
        rows.append(identity(frame))
        for which, chosen in (("right", frame.counts.right), ("wrong", ~frame.counts.right)):
            counts = frame.counts.take(chosen)
            values = measures(counts) if counts.seed_ids else {}
            rows[-1][f"n_{which}"] = len(counts.seed_ids)
            for key in ("variant_accuracy", "sv_at_50", "sv_at_100"):
                rows[-1][f"{key}_{which}"] = values.get(key)
            n_right, n = counts.n_correct, counts.n_variants
            enough = {"any": n_right > 0, "half": 2 * n_right >= n, "all": n_right == n}
            for key, holds in enough.items():  # in numbers of seeds, averaged over subsamples
                n_holding = (holds & counts.present).sum() / n.shape[1]
                rows[-1][f"n_{key}_{which}"] = float(n_holding)
    solved = ("any", "half", "all")
    averages = []
    for config, mine in grouped(rows, "config").items():
        means = [
            f"{show_value(mean, 'share')} where {which}"
            for which in ("right", "wrong")
            if (mean := mean_of_several(mine, f"variant_accuracy_{which}")) is not None
        ]
        if means:
            keys = ("n_wrong", *(f"n_{key}_wrong" for key in solved))
            mean_numbers = (weighted_mean(row[key] for row in mine) for key in keys)
            n_wrong, *n_solved = (show_value(number, "threshold") for number in mean_numbers)
            averages.append((config, means, n_wrong, n_solved))
    return titled("first-answers", rows, averages=averages)


plot_first_answers: Final = partial(
    plots.bar_panels,
    series={f"seed answered {which}": f"variant_accuracy_{which}" for which in ("right", "wrong")},
    label="variant accuracy, %",
)
"""Function that draws a panel per configuration, two bars per model."""


# --- The best and the worst models of each training group ---

BEST: Final = "best"
WORST: Final = "worst"

GROUP: Final = "group"
"""Key of a model's training group, in rows and in the metadata of predictions files."""


def read_choice(
    request: Request,
    tests: Sequence[str] = (),
    groups: Sequence[str] = (),
    best_and_worst: bool = False,
) -> tuple[Tests, Callable[[Table], Table]]:
    """Read answers to all test problems, and make the function that marks models of a table.

    It adds each model's training group, given as NAME=GROUP or in the predictions files, if any is
    known, and marks the best and the worst of each; others are left out, if asked.
    """
    models = list(dict.fromkeys(source.model for source in request.sources))
    answers: dict[str, dict[str, bool]] = {}
    for source in map(parse_source, tests):
        if source.model not in models:
            raise ValueError(
                f"{source.path}: expected test predictions of {', '.join(models)}, got those of "
                f"{source.model!r}; name them alike: NAME=FILE"
            )
        rows = read_predictions(source.path, merge_labels=request.merge_labels)
        rows = rows.filter(pc.equal(rows["variant_id"], rows["seed_id"]))  # no variants
        right = pc.equal(rows["label"], rows["prediction"])
        of_file = zip(rows["variant_id"].to_pylist(), right.to_pylist(), strict=True)
        answers.setdefault(source.model, {}).update(of_file)
    stated = {s.model: read_metadata(s.path).get(GROUP) for s in reversed(request.sources)}
    stated |= values_of_models("groups", groups, models, "bert=S")
    known = {model: str(stated[model]) for model in models if stated[model]}

    def mark(table: Table) -> Table:
        if not known and not best_and_worst:
            return table
        configs = [row["config"] for row in table.rows if "config" in row]
        configs = configs or [column.key for column in table.columns if column.kind == "threshold"]
        models = distinct(table.rows, "model")
        of_shown = {model: group for model, group in known.items() if model in models}
        chosen = {}
        if best_and_worst or all(model in answers for model in of_shown):
            chosen = places(answers, of_shown, configs)
        rows = [
            {**row, GROUP: known.get(row["model"]), "place": chosen.get(row["model"])}
            for row in table.rows
            if not best_and_worst or row["model"] in chosen
        ]
        if best_and_worst:  # group by group, as figures 3 and 5 have them
            order, rank = [*dict.fromkeys(known.values())], (BEST, None, WORST)
            rows.sort(key=lambda row: (order.index(row[GROUP]), rank.index(row["place"])))
        after = 1 + [column.key for column in table.columns].index("model")
        own, notes = [Column(GROUP, "trained on")], table.notes
        if chosen:
            own.append(Column("place", "of these"))
            chosen_note = (
                "Best, worst: the two best models and the worst of those trained on the same data, "
                "by S on all test problems, averaged over sources"
            )
            notes += (chosen_note + ("; others are left out." if best_and_worst else "."),)
        of_table = (*table.columns[:after], *own, *table.columns[after:])
        return replace(table, columns=of_table, rows=tuple(rows), notes=notes)

    return answers, mark


def places(tests: Tests, groups: Mapping[str, str], configs: Sequence[str]) -> dict[str, str]:
    """Find the two best models and the worst of each group, by S averaged over sources.

    In a group of one or two models none is the worst; of equal models the first is the better.

    >>> right = {"a": 1, "b": 3, "c": 2, "d": 0}
    >>> tests = {name: {f"s:{i}": i < n for i in range(4)} for name, n in right.items()}
    >>> places(tests, dict.fromkeys("abcd", "S"), ["s"])
    {'b': 'best', 'c': 'best', 'd': 'worst'}
    """
    sources = dict.fromkeys(parse_config_name(config)[0] for config in configs)
    scores = dict[str, float]()
    for model in groups:
        answers = tests.get(model, {}).items()
        right = [[r for name, r in answers if name.startswith(f"{of}:")] for of in sources]
        if all(right):
            scores[model] = sum(sum(of_source) / len(of_source) for of_source in right)
    if not groups or groups.keys() - scores:
        unknown = ", ".join(f"answers of {model}" for model in groups if model not in scores)
        raise ValueError(
            "expected training groups of models, and their answers to all test problems of "
            f"{', '.join(sources)}, for the best and the worst, got no {unknown or 'groups'}; add "
            "--group NAME=GROUP and --test NAME=FILE"
        )
    best_and_worst: dict[str, str] = {}
    for group in dict.fromkeys(groups.values()):
        ranked = sorted((m for m in groups if groups[m] == group), key=lambda m: -scores[m])
        best_and_worst |= dict.fromkeys(ranked[:2], BEST)
        best_and_worst |= dict.fromkeys(ranked[2:][-1:], WORST)
    return best_and_worst


# --- Curves of models ---


def curves(request: Request, *, settings: Settings = NO_INTERVALS) -> Table:
    """Make a row per model and configuration, with a 95 % band; average models with equal seeds."""
    frames = list(request.frames())
    rows = [identity(frame) | measures(frame.counts, settings) for frame in frames]
    for config, group in by_config(frames).items():
        own = [row for row in rows if row["config"] == config]
        if len(group) > 1 and len({(frame.dataset, frame.counts.seed_ids) for frame in group}) == 1:
            rows.append({"config": config, "model": MEAN} | _over_models(own))
    return titled("curves", rows, averaged=len(rows) > len(frames))


def _over_models(rows: Sequence[Row]) -> Row:
    """Average over models; leave out thresholds, whose mean is not where the mean curve matches."""
    return {
        key: value
        if key in ("n_seeds", "n_variants")  # the same for all models
        else np.mean([row[key] for row in rows], axis=0).tolist()
        for key, value in rows[0].items()
        if key not in ("config", "model") and "threshold" not in key and "curve_" not in key
    }


def plot_curves(table: Table) -> plots.Figure:
    """Draw a panel per configuration; a line per model, and dots where MC is determined."""
    of_models = "model" in table.rows[0]
    series = "model" if of_models else "dataset"
    names = distinct(table.rows, series)
    figure, of_configs = plots.config_panels(table)
    for axes, rows in of_configs:
        styles = (plots.line_style(names.index(row[series])) for row in rows)
        lines = ((row, row[series], style) for row, style in zip(rows, styles, strict=True))
        draw_curves(axes, lines, dots=of_models)
    plots.label_left(figure, SV_LABEL)
    plots.legend_below(figure, note="SV = S, at MC" if of_models else None)
    return figure


# --- Matching thresholds ---


def matching(request: Request) -> Table:
    """Tabulate matching thresholds: a row per model, a column per configuration."""
    return matching_table(
        ((frame.model, frame.config, measures(frame.counts)) for frame in request.frames()),
        "Matching correctness threshold (MC): the CT at which SV accuracy matches S",
        "In percent; 100 would be perfect generalisation. Of the curve averaged over subsamples. "
        f"{CATALOGUE['matching_threshold'].remark}",
    )


def matching_table(
    cells: Iterable[tuple[str, str, Mapping[str, Any] | None]], title: str, note: str
) -> Table:
    """Tabulate matching thresholds, in percent: a row per model, a column per heading.

    `cells` are (model, heading, figures as of `measures`, or None). JSON also has the lowest and
    the highest matching threshold, which text shows where they are far apart, and the number of
    seeds, which text marks where it is small.
    """
    ends = {end: f"matching_threshold{end}" for end in ("", "_low", "_high")}
    ends |= {"_n_seeds": "n_seeds"}
    rows: dict[str, Row] = {}
    headings: dict[str, None] = {}
    for model, heading, measured in cells:
        headings[heading] = None
        row = rows.setdefault(model, {"model": model})
        row |= {f"{heading}{end}": measured[key] for end, key in ends.items()} if measured else {}
    empty = {f"{heading}{end}": None for heading in headings for end in ends}
    shown = (Column("model", "model"), *(Column(name, name, "threshold") for name in headings))
    return Table("matching", title, shown, tuple(empty | row for row in rows.values()), (note,))


def plot_matching(table: Table) -> plots.Figure:
    """Draw a heat map with numbers; cells undetermined or of few seeds have no colour."""
    shown = [column for column in table.columns if column.kind == "threshold"]
    values: list[list[float | str | None]] = []
    for row in table.rows:
        values.append([])
        for column in shown:
            value, low, high = (row[f"{column.key}{end}"] for end in ("", "_low", "_high"))
            few = is_few(row.get(f"{column.key}_n_seeds"))
            if value is not None and (few or is_undetermined(low, high)):
                value = column.show(row)
            values[-1].append(value)
    known = [value for row in values for value in row if isinstance(value, float)] or [0.0, 99.0]
    # The scale ends at multiples of ten around the values, so that differences show.
    low, high = 10.0 * (min(known) // 10), min(100.0, 10.0 * (max(known) // 10 + 1))
    longest = max(len(str(row["model"])) for row in table.rows)
    figure = plots.new_figure(1.0 + 0.065 * longest + 0.7 * len(shown), 1.1 + 0.24 * len(values))
    axes = figure.subplots()
    image = plots.heat_map(axes, values, (low, high), "{:.0f}")
    configs = [column.key for column in shown]
    axes.set_xticks(range(len(configs)), configs, rotation=30, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(values)), [row["model"] for row in table.rows])
    figure.colorbar(image, ax=axes, label="MC, %", shrink=min(1.0, 3 / len(values) + 0.4))
    return figure


# --- Ablations ---


def ablations(request: Request) -> Table:
    """Average over the same models for each data set and configuration, on common seeds."""
    rows: list[Row] = []
    for config, group in by_config(request.frames(repeated=True)).items():
        of_datasets: dict[str, dict[str, Row]] = {}
        counts = on_common_seeds([frame.counts for frame in group], config)
        for frame, of_frame in zip(group, counts, strict=True):
            of_datasets.setdefault(frame.dataset, {})[frame.model] = measures(of_frame)
        models = {dataset: ", ".join(sorted(of)) for dataset, of in of_datasets.items()}
        if len(models) < 2 or len(set(models.values())) > 1:
            raise ValueError(
                f"{config}: expected predictions of the same models for two data sets or more, got "
                f"{'; '.join(f'{dataset}: {names}' for dataset, names in models.items())}; name "
                "the same model alike: NAME=FILE@DATASET"
            )
        for dataset, of in of_datasets.items():
            mean = _over_models(list(of.values()))
            rows.append({"config": config, "dataset": dataset, "models": list(of)} | mean)
    models_of_all = dict.fromkeys(model for row in rows for model in row["models"])
    return titled("ablations", rows, models=models_of_all)


plot_ablations: Final = plot_curves


# --- Drawing ---

SV_LABEL: Final = "seed-variant accuracy, %"


def draw_curves(
    axes: plots.Axes,
    lines: Iterable[tuple[Mapping[str, Any], str, Mapping[str, Any]]],
    *,
    dots: bool = False,
    bottom: bool = True,
) -> None:
    """Draw the SV curves of rows, step functions with their bands, by labels and styles.

    With `dots`, there is one where the MC of a single model is determined.
    """
    thresholds = np.arange(1, 101)
    for row, label, style in lines:
        axes.plot(thresholds, row["curve"], label=label, drawstyle="steps-pre", **style)
        if "curve_low" in row:
            band, colour = (row["curve_low"], row["curve_high"]), style["color"]
            axes.fill_between(thresholds, *band, color=colour, alpha=0.15, lw=0, step="pre")
        is_one = dots and row["model"] != MEAN
        if is_one and not is_undetermined(*(row[key] for key in MATCHING_RANGE)):
            dot = (row["matching_threshold"], row["seed_accuracy"], "o")
            axes.plot(*dot, color=style["color"], markersize=5, mec="white", mew=0.7)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 1)
    axes.set_xticks(range(0, 101, 20))
    plots.percent_ticks(axes.yaxis)
    plots.grid(axes)
    if bottom:
        axes.set_xlabel("correctness threshold (CT), %")
