"""The seeds that models fail on (paper, section 5.4 and table 11); hardness, for the report too.

A seed is harder if fewer of its distinct variants are answered right, averaged over models: table
11's "average accuracy of NLI models across all variants per seed". Subsamples are not used, as
they would only leave variants of a seed out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.data_files import read_rows
from merge_dataset.schema import NLI, format_of
from merge_metric.analyses.measures import Floats, Ints, Row, titled
from merge_metric.analyses.registry import Request
from merge_metric.frame.joined import Frame, by_config, common_labels, on_common_seeds
from merge_metric.seed_variant_accuracy.options import NO_LABEL, Merging
from merge_metric.tables import Table, initials, legend, plots
from merge_metric.tables.plots import GREY, PAGE, PALETTE

_DECIMALS: Final = 12
"""Decimals to which averages are rounded: smaller differences are rounding errors."""


def mean_right(n_right: Ints, n_answered: Ints) -> Floats:
    """Compute the share (S,) of each seed's variants answered right, averaged over models.

    `n_right` and `n_answered`, (M, S), count each model's distinct variants. Models that answer
    none of a seed's variants do not count; NaN where no model answers any.

    >>> mean_right(np.array([[1, 0], [3, 0]]), np.array([[2, 0], [3, 0]])).tolist()
    [0.75, nan]
    """
    answered = n_answered > 0
    shares = np.where(answered, n_right / np.maximum(n_answered, 1), 0.0)
    with np.errstate(invalid="ignore"):  # 0/0: nobody answers
        return np.asarray(shares.sum(axis=0) / answered.sum(axis=0))


def hardest_first(right: Floats, n_wrong: Ints) -> Ints:
    """Order seeds by `mean_right`, (S,), lowest first and NaN last; ties by `n_wrong`, most first.

    >>> hardest_first(np.array([0.5, 0.25, 0.5]), np.array([0, 0, 1])).tolist()
    [1, 2, 0]
    """
    return np.lexsort((np.arange(len(right)), -n_wrong, right.round(_DECIMALS)))


# --- The analysis ---

FEW: Final = 0.05
"""Share of variants answered right below which the paper looks at seeds again (table 11)."""

CORRECTED: Final = "corrected_label"
"""Column of the label that an annotator thinks is right."""


def hardest(
    request: Request,
    *,
    top: int | None = None,
    below: float | None = None,
    corrected: Sequence[str | Path] = (),
) -> Table:
    """Make a row per seed, hardest first: wrong for all models, or `top`, or `below` a percent."""
    frames = list(request.frames())
    labels, groups = common_labels(frames), by_config(frames)
    seeds = {config: request.seeds(config) for config in groups}
    fields = dict.fromkeys(f for table in seeds.values() for f in format_of(table.schema).fields)
    ids = [seed for table in seeds.values() for seed in table["seed_id"].to_pylist()]
    corrections = read_corrections(map(Path, corrected), labels, ids, ", ".join(seeds))
    rows: list[Row] = []
    numbers: list[Row] = []
    share = FEW if below is None else below / 100
    for config, group in groups.items():
        of_seeds, n_seeds = _seeds(config, group, seeds[config], top=top, below=share)
        for row in of_seeds:
            given = corrections.get(row["seed_id"], {})
            one = set(given.values())
            named = "; ".join(f"{who}: {label}" if who else label for who, label in given.items())
            row[CORRECTED] = next(iter(one)) if len(one) == 1 else named or None
            row["gold_holds"] = one == {row["gold"]} if one else None
        wrong = [row for row in of_seeds if not row["n_right"]]
        few = [row for row in of_seeds if round(row["variants_right"], _DECIMALS) < share]
        chosen = wrong if top is None else of_seeds
        rows += (chosen if below is None else few)[:top]
        voted = [votes for row in wrong if len(votes := row["annotator_labels"]) > 1]
        hold = [row["gold_holds"] for row in few if row["gold_holds"] is not None]
        counts = {"models": len(group), "seeds": n_seeds, "wrong": len(wrong), "few": len(few)}
        counts |= {"voted": len(voted), "split": sum(len(set(votes)) > 1 for votes in voted)}
        numbers.append({"config": config, "corrected": len(hold), "holds": sum(hold)} | counts)
    texts = {f: f[0].upper() if tuple(fields) == NLI.fields else f for f in fields}
    return titled(
        "hardest",
        rows,
        texts=texts,
        top=top,
        below=below,
        share=f"{100 * share:g}",
        legend=legend(labels),
        configs=numbers,
    )


def read_corrections(
    paths: Iterable[Path], labels: Sequence[str], seeds: Collection[str], where: str
) -> dict[str, dict[str, str]]:
    """Read corrected labels from filled-in CSV files of `hardest`: seed → annotator → label."""
    spelled = dict(zip((*initials(labels), *labels), (*labels, *labels), strict=True))
    known, corrections = set(seeds), dict[str, dict[str, str]]()
    for path in paths:
        for line, row in read_rows(path, ("seed_id", CORRECTED), ("annotator",)):
            seed, text = row["seed_id"], row[CORRECTED].strip()
            if not text or text == "–":
                continue
            name, label = row.get("annotator", "").strip(), spelled.get(text, "")
            same = corrections.setdefault(seed, {}).setdefault(name, label) == label
            if seed not in known or not label or not same:
                raise ValueError(
                    f"{path}: line {line}: expected for each seed of {where} one label out of "
                    f"{', '.join(labels)} of {name or 'an annotator without a name'}, got "
                    f"{'' if same else 'also '}{text!r} for {seed!r}"
                )
    return corrections


def _seeds(
    config: str, frames: Sequence[Frame], texts: pa.Table, *, top: int | None, below: float
) -> tuple[list[Row], int]:
    """Make rows of the seeds for the table and its notes, hardest first; also count all seeds."""
    counts = on_common_seeds([frame.counts for frame in frames], config)
    ids = counts[0].seed_ids
    # Distinct variants of each seed by their answers: subsamples play no part.
    by_answer = np.stack(
        [frame.answers[np.isin(np.array(frame.counts.seed_ids), np.array(ids))] for frame in frames]
    )
    n_variants = by_answer.sum(axis=2)
    n_right = by_answer[:, np.arange(len(ids)), counts[0].gold]
    by_model, mean = n_right / n_variants, mean_right(n_right, n_variants)
    of_answers = by_answer.sum(axis=0)
    wrong_answers = of_answers.copy()
    wrong_answers[np.arange(len(ids)), counts[0].gold] = 0
    n_models_right = np.sum([of_model.right for of_model in counts], axis=0)
    letters = [*initials(counts[0].labels), "?"]
    instead = [  # the commonest wrong answer and its share of all, as "N 85 %"
        f"{letters[wrong.argmax()]} {100 * wrong.max() / n:.0f} %" if wrong.any() else None
        for wrong, n in zip(wrong_answers, of_answers.sum(axis=1), strict=True)
    ]
    order = hardest_first(mean, len(frames) - n_models_right)
    is_shown = (n_models_right == 0) | (mean.round(_DECIMALS) < below)
    is_shown[order[: top or 0]] = True
    chosen = order[is_shown[order]]
    labels, problem_format = counts[0].labels, format_of(texts.schema)
    codes = Merging.parse(counts[0].merged).codes(problem_format.labels).tolist()
    wanted = pa.array([ids[n] for n in chosen.tolist()], texts.schema.field("seed_id").type)
    problems = texts.take(pc.index_in(wanted, texts["seed_id"].combine_chunks())).to_pylist()
    models = [frame.model for frame in frames]
    rows = [
        {
            "config": config,
            "seed_id": ids[n],
            "gold": labels[counts[0].gold[n]],
            "votes": _tally([codes[v] for v in text["annotator_labels"] or ()], labels),
            "answers": _tally([int(of_model.own[n]) for of_model in counts], labels),
            "variants_right": float(mean[n]),
            "instead": instead[n],
            "n_right": int(n_models_right[n]),
            "n_models": len(frames),
            "by_model": dict(zip(models, by_model[:, n].tolist(), strict=True)),
            **{field: text[field] for field in problem_format.fields},
            "annotator_labels": [labels[codes[v]] for v in text["annotator_labels"] or ()],
        }
        for n, text in zip(chosen.tolist(), problems, strict=True)
    ]
    return rows, len(ids)


def _tally(codes: Sequence[int] | None, labels: Sequence[str]) -> str | None:
    """Write counts of answers, as "E3 N2 C0", with "?1" for no label; None without answers."""
    if not codes:
        return None
    times = Counter(codes)
    named = dict(enumerate(initials(labels))) | ({NO_LABEL: "?"} if NO_LABEL in times else {})
    # A count would run into the "letter" where that is a number.
    between = ":" if initials(labels)[0].isdigit() else ""
    return " ".join(f"{letter}{between}{times[code]}" for code, letter in named.items())


def plot_hardest(table: Table) -> plots.Figure:
    """Draw a line per seed: a dot per model, a bar at their mean; the first 40 seeds."""
    rows = table.rows[:40]
    figure = plots.new_figure(PAGE / 2 + 1, 1.0 + 0.17 * max(1, len(rows)))
    axes = figure.subplots()
    models = list(dict.fromkeys(model for row in rows for model in row["by_model"]))
    few = len(models) <= len(PALETTE)
    for number, model in enumerate(models):
        axes.plot(
            [row["by_model"].get(model, np.nan) for row in rows],
            range(len(rows)),
            "os^Dv<>"[number % 7] if few else "o",
            markersize=5,
            color=PALETTE[number] if few else GREY,
            alpha=0.9 if few else 0.4,
            label=model if few else "a model" if not number else None,
        )
    means = [row["variants_right"] for row in rows]
    axes.plot(means, range(len(rows)), "|", ms=11, mew=2, color="black", label="mean")
    axes.set_yticks(range(len(rows)), [row["seed_id"] for row in rows], fontsize="small")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    plots.percent_ticks(axes.xaxis)
    axes.set_xlabel("variants answered right, %")
    plots.grid(axes)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    return figure
