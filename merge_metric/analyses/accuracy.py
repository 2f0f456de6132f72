"""Accuracy on all test problems, on seeds, on variants, and on variants by their seeds' answers.

Figures 3 and 16, and section 5.4 of the paper. The paper chooses the two best models and the worst
of each training group, by S on all test problems, averaged over sources; figures 3 to 5 show
these, and figure 16 marks them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.schema import parse_config_name
from merge_metric.analyses.measures import RUN_COLUMNS, Row, identity, measures, values_of_models
from merge_metric.analyses.registry import Request
from merge_metric.frame.answer_table import parse_source
from merge_metric.frame.predictions import read_metadata, read_predictions
from merge_metric.frame.relations import preview
from merge_metric.seed_variant_accuracy.figures import CATALOGUE
from merge_metric.seed_variant_accuracy.formatting import show_value
from merge_metric.tables import Table, columns
from merge_metric.tables.plots import bar_panels, grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

_SOLVED: Final = ("any", "half", "all")

Tests = Mapping[str, Mapping[str, bool]]
"""Model → id of a test problem → whether it is answered right."""


def accuracy(
    request: Request,
    *,
    tests: Sequence[str] | Tests = (),
    groups: Sequence[str] = (),
    best_and_worst: bool = False,
    n_subsamples: int = 100,
    rng_seed: int = 0,
) -> Table:
    """Make a row per model and configuration.

    To see whether the seeds are easier than the problems that they were chosen from (`tests`),
    `n_subsamples` random samples of the size of the seeds are drawn without replacement, the same
    for every model; `higher_share` is the share of samples with a higher S.
    """
    answers, mark = read_choice(request, tests, groups, best_and_worst)
    rows = []
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
            row["n_test"] = len(ids)
            row["test_accuracy"] = float(right.mean())
            row["higher_share"] = float((scores > own.sum()).mean())
        rows.append(row)
    notes = [
        "In percent; variants averaged over subsamples. Higher: the share of "
        f"{n_subsamples} random sets of as many test problems as there are seeds on which S "
        "is higher than on the seeds."
    ]
    for config, of_config in grouped(rows, "config").items():
        known = [row["higher_share"] for row in of_config if row["higher_share"] is not None]
        if len(known) > 1:
            mean = show_value(float(np.mean(known)), "share")
            notes.append(f"{config}: higher in {mean} on average.")
    title = "Accuracy (S) on all test problems, on the seeds among them, and on variants"
    shown = (
        *RUN_COLUMNS,
        *columns("count", n_test="test problems", n_seeds="seeds"),
        *columns("share", test_accuracy="S test", seed_accuracy="S seeds"),
        *columns("share", variant_accuracy="S variants", higher_share="higher"),
    )
    return mark(Table("accuracy", title, shown, tuple(rows), tuple(notes)))


def plot_accuracy(table: Table) -> Figure:
    """Draw a panel per configuration: bars for test problems, where known, seeds and variants."""
    series = {"seeds": "seed_accuracy", "variants": "variant_accuracy"}
    if any(row["test_accuracy"] is not None for row in table.rows):
        series = {"test problems": "test_accuracy"} | series
    return bar_panels(table, series, "accuracy, %")


# --- By the answers to the seeds ---


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
            enough = zip(_SOLVED, (n_right > 0, 2 * n_right >= n, n_right == n), strict=True)
            for key, solved in enough:  # in numbers of seeds, averaged over subsamples
                n_solved = float((solved & counts.present).sum() / n.shape[1])
                rows[-1][f"n_{key}_{which}"] = n_solved
    shown = [*RUN_COLUMNS]
    for which in ("right", "wrong"):
        heading = CATALOGUE["variant_accuracy"].heading
        shown += columns("count", **{f"n_{which}": which})
        shown += columns("share", **{f"variant_accuracy_{which}": heading})
        shown += columns("threshold", **{f"n_{key}_{which}": key for key in _SOLVED})
    notes = []
    for config, mine in grouped(rows, "config").items():
        means = []
        for which in ("right", "wrong"):
            known = [x for row in mine if (x := row[f"variant_accuracy_{which}"]) is not None]
            if len(known) > 1:
                means.append(f"{show_value(float(np.mean(known)), 'share')} where {which}")
        if means:
            n_wrong, *solved = (
                show_value(float(np.mean([row[key] for row in mine])), "threshold")
                for key in ("n_wrong", *(f"n_{key}_wrong" for key in _SOLVED))
            )
            numbers = [f"{key} in {n}" for key, n in zip(_SOLVED, solved, strict=True)]
            notes.append(
                f"{config}: variant accuracy over models on average {', '.join(means)}; of "
                f"{n_wrong} seeds answered wrong variants are right: {', '.join(numbers)}."
            )
    title = "Variant accuracy for seeds that were themselves answered right or wrong"
    all_notes = (
        "Numbers of seeds answered right, and wrong; accuracy over their variants, in percent; "
        "any, half, all: numbers of these seeds of which at least one variant, at least half, "
        "all are answered right. Averaged over subsamples.",
        *notes,
    )
    return Table("first-answers", title, tuple(shown), tuple(rows), all_notes)


plot_first_answers: Final = partial(
    bar_panels,
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
    request: Request, tests: Sequence[str] | Tests, groups: Sequence[str], best_and_worst: bool
) -> tuple[Tests, Callable[[Table], Table]]:
    """Read answers to all test problems, and make the function that marks models of a table.

    It adds each model's training group, given as NAME=GROUP or in the predictions files, if any is
    known, and marks the best and the worst of each; others are left out, if asked.
    """
    models = list(dict.fromkeys(source.model for source in request.sources))
    answers: dict[str, dict[str, bool]] = {}
    for source in map(parse_source, tests) if not isinstance(tests, Mapping) else ():
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
    read = tests if isinstance(tests, Mapping) else answers
    known = {
        source.model: str(group)
        for source in reversed(request.sources)
        if (group := read_metadata(source.path).get(GROUP))
    }
    known |= values_of_models("groups", groups, models, "bert=S")
    known = {model: known[model] for model in models if model in known}
    without = [model for model in known if not read.get(model)]
    if best_and_worst and (without or not known):
        raise ValueError(
            "--best-and-worst: expected training groups of models, as predictions of merge-nli "
            "predict --preset say them, and their predictions for all test problems, got none of "
            f"{', '.join(without or models)}; add "
            + (f"--test {without[0]}=FILE" if known else "--group NAME=GROUP")
        )
    return read, partial(_mark, groups=known, tests=read, only_chosen=best_and_worst)


def _mark(table: Table, groups: Mapping[str, str], tests: Tests, *, only_chosen: bool) -> Table:
    if not groups:
        return table
    configs = [row["config"] for row in table.rows if "config" in row]
    configs = configs or [column.key for column in table.columns if column.kind == "threshold"]
    shown = {row["model"] for row in table.rows}
    of_shown = {model: group for model, group in groups.items() if model in shown}
    chosen = {}
    if only_chosen or all(model in tests for model in of_shown):
        chosen = places(tests, of_shown, configs)
    rows = [
        {**row, GROUP: groups.get(row["model"]), "place": chosen.get(row["model"])}
        for row in table.rows
        if not only_chosen or row["model"] in chosen
    ]
    if only_chosen:  # group by group, as figures 3 and 5 have them
        order, rank = [*dict.fromkeys(groups.values())], (BEST, None, WORST)
        rows.sort(key=lambda row: (order.index(row[GROUP]), rank.index(row["place"])))
    after = 1 + [column.key for column in table.columns].index("model")
    own, notes = columns(**{GROUP: "trained on"}), table.notes
    if chosen:
        own += columns(place="of these")
        note = (
            "Best, worst: the two best models and the worst of those trained on the same "
            "data, by S on all test problems, averaged over sources"
        )
        notes = (*notes, note + ("; others are left out." if only_chosen else "."))
    of_table = (*table.columns[:after], *own, *table.columns[after:])
    return replace(table, columns=of_table, rows=tuple(rows), notes=notes)


def places(tests: Tests, groups: Mapping[str, str], configs: Sequence[str]) -> dict[str, str]:
    """Find the two best models and the worst of each group, by S averaged over sources.

    In a group of one or two models none is the worst; of equal models the first is the better.

    >>> right = {"a": 1, "b": 3, "c": 2, "d": 0}
    >>> tests = {name: {f"s:{i}": i < n for i in range(4)} for name, n in right.items()}
    >>> places(tests, dict.fromkeys("abcd", "S"), ["s"])
    {'b': 'best', 'c': 'best', 'd': 'worst'}
    """
    scores = dict.fromkeys(groups, 0.0)
    for source in dict.fromkeys(parse_config_name(config)[0] for config in configs):
        for model in groups:
            answers = tests.get(model, {}).items()
            right = [is_right for name, is_right in answers if name.startswith(f"{source}:")]
            if not right:
                raise ValueError(
                    f"expected answers of {model} to all test problems of {source}, got none; add "
                    f"--test {model}=FILE"
                )
            scores[model] += sum(right) / len(right)
    best_and_worst: dict[str, str] = {}
    for group in dict.fromkeys(groups.values()):
        ranked = sorted((m for m in groups if groups[m] == group), key=lambda m: -scores[m])
        best_and_worst |= dict.fromkeys(ranked[:2], BEST)
        best_and_worst |= dict.fromkeys(ranked[2:][-1:], WORST)
    return best_and_worst
