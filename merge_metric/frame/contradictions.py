"""Contradictions between predictions and a dataset: finds the rows for messages in Python."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.layout import all_configurations, format_in, split_files
from merge_dataset.schema import SPLITS
from merge_metric.frame.answer_table import AnswerTable
from merge_metric.frame.counting import ConfigAnswers, ConfigSeeds
from merge_metric.frame.relations import (
    DRAWS,
    EXAMPLES,
    changed_draws,
    fetch,
    merged_codes,
    preview,
    read_columns,
)
from merge_metric.frame.texts import UNVERIFIED, hex_of
from merge_metric.seed_variant_accuracy.inputs import read_rows

log = logging.getLogger(__name__)


def require_whole_seeds(seeds: ConfigSeeds, folder: Path, config: str) -> None:
    """Raise ValueError if a variant has no seed in the dataset, or a seed has no variant."""
    files = split_files(folder, config)
    bare = seeds.n_rows == 0
    if not len(seeds.orphans) and not bare.any():
        return
    of_seeds = read_columns(folder, files["seeds"], ["seed_id"])["seed_id"]
    if len(seeds.orphans):
        ids = read_columns(folder, files["variants"], ["seed_id"])["seed_id"]
        known = pc.is_in(ids, value_set=of_seeds.combine_chunks())
        ids = ids.filter(pc.invert(known)).unique()
        wrong = f"expected the seed of every variant in the dataset, got none for {preview(ids)}"
    else:
        ids = of_seeds.take(pa.array(np.sort(seeds.row_order[bare])))
        wrong = f"expected variants of every seed in the dataset, got none of {preview(ids)}"
    raise ValueError(
        f"{folder}: {config}: {wrong}; the dataset is damaged: `merge-nli check {folder}` says more"
    )


def require_agreement(model: AnswerTable, config: str) -> str:
    """Require the dataset's seeds, gold labels and texts in predictions; return `Frame.texts`."""
    numbers = [model.dataset.numbers(config, split) for split in SPLITS]
    (found,) = model.query(
        "SELECT coalesce(sum(texts), 0)::BIGINT AS texts, count(answer) AS asked, "
        "count(*) FILTER (answer IS NOT NULL AND verified IS NULL) AS other, "
        "count(*) FILTER (NOT verified) AS unverified "
        f"FROM answers WHERE file IN ({', '.join(each[1:-1] for each in numbers)})"
    ).to_pylist()
    if not found["other"]:
        return UNVERIFIED if found["unverified"] else hex_of(found["texts"])
    for files in numbers:
        for name, what in (("seed_id", "seed"), ("label", "gold label")):
            differing = fetch(
                model.dataset.connection,
                f"SELECT variant_id, p.{name} AS theirs, q.{name} AS ours, count(*) OVER () AS n, "
                f"(SELECT count(answer) FROM {model.answers} WHERE file IN {files}) AS asked "
                "FROM problems q JOIN predictions p USING (variant_id) "
                f"WHERE q.file IN {files} AND p.{name} IS DISTINCT FROM q.{name} "
                f"AND p.answer IN (SELECT answer FROM {model.answers} WHERE verified IS NULL) "
                "ORDER BY q.file, q.row LIMIT 1",
                problems=model.dataset.problems(merging=model.rows.merging),
                predictions=model.rows.stream(),
            ).to_pylist()
            for first in differing:
                theirs, ours, asked = first["theirs"], first["ours"], ""
                if name == "label":
                    theirs = model.rows.labels[theirs]
                    ours = None if ours is None else model.rows.labels[ours]
                    asked = f", and are its labels in the order {', '.join(model.rows.labels)}"
                raise ValueError(
                    f"{config}: expected for {first['variant_id']!r} the {what} {ours!r}, as in "
                    f"the dataset, got {theirs!r}; it differs in {first['n']:,} of "
                    f"{first['asked']:,} problems: is this the dataset that the model was run "
                    f"on{asked}?"
                )
    examples = _preview_of(model, config, "answer IS NOT NULL AND verified IS NULL")
    raise ValueError(
        f"{config}: expected predictions for the texts of the dataset {model.folder}, got "
        f"predictions for other texts of {found['other']:,} of {found['asked']:,} problems: "
        f"{examples}; give the dataset that the model was run on, or run the model on this one"
    )


def tell_other_draws(model: AnswerTable, configs: Sequence[str]) -> None:
    """Warn if variants are in other subsamples than recorded, if that is recorded."""
    files = [file for each in configs for file in split_files(model.folder, each)["variants"]]
    for predictions in model.rows.files:
        asked_about = predictions.description.get("problems")
        recorded = asked_about.get(DRAWS) if isinstance(asked_about, dict) else None
        if others := changed_draws(model.folder, recorded, files):
            log.warning(
                "%s: warning: these predictions are of another draw: the dataset %s has the "
                "variants of %s in other subsamples than when the model was asked, so figures are "
                "those of its draw and not of that one; where that is not meant, give the dataset "
                "of then",
                predictions.path,
                model.folder,
                ", ".join(others),
            )


def judge_missing(
    model: AnswerTable, config: str, complete: NDArray[np.bool_], *, allow_missing: bool, tell: bool
) -> None:
    """Raise for missing predictions or, with `allow_missing`, report the seeds left out."""
    total, n_seeds = len(complete), int(complete.sum())
    missing = f"predictions are missing for {model.describe_missing(config)}"
    if n_seeds and allow_missing:
        log.log(
            logging.WARNING if tell else logging.DEBUG,
            "%s: %s of %s seeds are left out: %s",
            config,
            f"{total - n_seeds:,}",
            f"{total:,}",
            missing,
        )
        return
    advice = f"`allow_missing` scores the complete seeds, {n_seeds:,} of {total:,}"
    if not n_seeds:
        advice = "no seed has all of its predictions"
    if model.sizes_of(config, "seeds")[1] == total:
        advice += "; a seed's own prediction is the row whose variant_id is the seed's id"
    else:

        def lacking(name: str) -> int:
            return sum(model.sizes_of(name, split)[1] for split in SPLITS)

        better = [
            f"{name} ({model.describe_missing(name) + ' missing' if lacking(name) else 'complete'})"
            for name in all_configurations(model.folder)
            if lacking(name) < lacking(config) and model.has(name, "variants")
        ]
        advice += f"; with `config`: {', '.join(better)}" if better else ""
    examples = _preview_of(model, config, "answer IS NULL")
    raise ValueError(f"{config}: {missing}: {examples}; {advice}")


def _preview_of(model: AnswerTable, config: str, condition: str) -> str:
    """Show the ids of the first problems of a configuration whose answers meet a condition."""
    seeds, variants = (model.dataset.numbers(config, split) for split in SPLITS)
    order = f"ORDER BY file IN {variants}, file, row"
    found = fetch(
        model.dataset.connection,
        f"SELECT variant_id FROM problems JOIN (FROM {model.answers} WHERE {condition} "
        f"AND (file IN {seeds} OR file IN {variants}) {order} LIMIT {EXAMPLES + 1}) wanted "
        f"USING (file, row) {order}",
        problems=model.dataset.problems(["variant_id"]),
    )
    return preview(found["variant_id"])


def explain(answers: ConfigAnswers, seeds: ConfigSeeds, model: AnswerTable, config: str) -> None:
    """Pass the answers to the metric, whose error says how a dataset contradicts itself."""
    folder = model.folder
    names = ["variant_id", "seed_id", "label", "subsamples"]
    variants = read_columns(folder, split_files(folder, config)["variants"], names)
    found = fetch(
        answers.connection,
        f"SELECT seed, coalesce(prediction, -1) AS prediction, coalesce(own, -1) AS own FROM "
        f"{answers.variants} LEFT JOIN (SELECT seed, any_value(prediction) AS own FROM "
        f"{answers.table} WHERE file IN {answers.seeds_in} GROUP BY seed) USING (seed) "
        "ORDER BY file, row",
    )
    kept = pa.array(seeds.places[found["seed"].to_numpy()] >= 0)
    variants, found = variants.filter(kept), found.filter(kept)
    subsamples = variants["subsamples"].to_pylist()
    labels, merging = format_in(folder, config).labels, answers.predictions.merging
    gold = merged_codes(variants["label"].combine_chunks(), labels, merging)
    try:
        read_rows(
            predictions=found["prediction"].to_numpy(),
            references=gold.to_numpy(),
            seed_ids=variants["seed_id"].to_pylist(),
            seed_predictions=found["own"].to_numpy(),
            subsamples=subsamples if any(subsamples) else None,
            labels=answers.predictions.labels,
            variant_ids=variants["variant_id"].to_pylist(),
        )
    except ValueError as error:
        raise ValueError(f"{config}: {error}") from error
