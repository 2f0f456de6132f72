"""Results per seed: texts, gold label, votes, and a model's answers to the variants."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.data_files import write_rows
from merge_dataset.files import atomic, require_new, write_table
from merge_dataset.layout import format_in, split_files
from merge_dataset.redaction import no_formula
from merge_metric.frame.joined import Frames, as_frames
from merge_metric.frame.predictions import suffix_of
from merge_metric.frame.relations import read_columns
from merge_metric.seed_variant_accuracy.options import Merging

SUFFIXES: Final = (".parquet", ".csv", ".jsonl")

VOTES: Final = "annotator_labels"
"""Column of annotators' votes: names of labels, empty where there are none."""


def check_seed_file(path: Path | None, *, overwrite: bool, for_spreadsheets: bool) -> None:
    """Raise before anything is computed if a file of results per seed cannot be written."""
    if for_spreadsheets and (path is None or path.suffix != ".csv"):
        got = path or "none: name it with `per_seed`"
        raise ValueError(f"`for_spreadsheets`: expected a file of seeds in CSV, got {got}")
    if path is None:
        return
    suffix_of(path, SUFFIXES)
    require_new(path, overwrite=overwrite)


def seed_results(
    frames: Frames | Iterable[Frames],
    dataset: str | Path | None = None,
    *,
    merge_labels: str | Sequence[str] = (),
) -> pa.Table:
    """Make a table with a row per seed, of frames on any configurations with the same labels.

    Every distinct variant counts once, in any number of subsamples, as in `analyse hardest`; the
    figures of `score` are averages over subsamples instead.

    Args:
        frames: Frames, evaluations or predictions files, one or several.
        dataset: The dataset folder of predictions files, which has their texts.
        merge_labels: Labels of predictions files that count as one.

    Returns:
        `config`, `model` where frames have one, `seed_id`; with a dataset the texts and `VOTES`;
        `label`, the gold label, and `prediction`, the answer to the seed itself, null where it
        names none; `n_variants`, `n_right` and `share_right`; `n_<label>`, how many variants get
        that answer; `agreement`,
        the share of the commonest answer.

    Raises:
        FileNotFoundError, NotADirectoryError: no such file or dataset folder.
        TypeError: `frames` is nothing of the kind.
        ValueError: no frames, or frames with other texts or labels.
    """
    tables = []
    for frame in as_frames(frames, dataset, merge_labels=merge_labels):
        counts, answers, labels = frame.counts, frame.answers, frame.counts.labels
        total, right = answers.sum(axis=1), answers[np.arange(len(answers)), counts.gold]
        names = pa.array([*labels, None])  # -1, an answer without a label, indexes the last
        columns: dict[str, Any] = {"config": pa.array([frame.config] * len(answers), pa.string())}
        if frame.model:
            columns["model"] = pa.array([frame.model] * len(answers), pa.string())
        columns["seed_id"] = pa.array([str(name) for name in counts.seed_ids])
        if frame.dataset:
            problem_format = format_in(frame.folder, frame.config)
            becomes = Merging.parse(counts.merged).becomes
            known = [becomes.get(label, label) for label in problem_format.labels]
            files = split_files(frame.folder, frame.config)["seeds"]
            seeds = read_columns(frame.folder, files, ("seed_id", *problem_format.fields, VOTES))
            rows = pc.index_in(columns["seed_id"], seeds["seed_id"].combine_chunks())
            seeds = seeds.take(rows).combine_chunks()
            columns |= {name: seeds[name] for name in problem_format.fields}
            votes = seeds[VOTES].to_pylist()
            votes = [codes and [known[code] for code in codes] for codes in votes]
            columns[VOTES] = pa.array(votes, pa.list_(pa.string()))
        columns |= {
            "label": names.take(pa.array(counts.gold)),
            "prediction": names.take(pa.array(counts.own % len(names))),
            "n_variants": pa.array(total),
            "n_right": pa.array(right),
            "share_right": pa.array(right / np.maximum(total, 1)),
            **{f"n_{name}": pa.array(answers[:, code]) for code, name in enumerate(labels)},
            "agreement": pa.array(answers[:, :-1].max(axis=1) / np.maximum(total, 1)),
        }
        tables.append(pa.table(columns).filter(pa.array(total > 0)))
    if any(table.schema != tables[0].schema for table in tables):
        raise ValueError(
            "expected configurations with the same texts and labels, got several kinds; name "
            "those of one kind with `config`"
        )
    return pa.concat_tables(tables)


def write_seed_results(path: Path, table: pa.Table, *, for_spreadsheets: bool = False) -> None:
    """Write results per seed to a file that `check_seed_file` allows, whole or not at all.

    In CSV, votes are one text separated by spaces; with `for_spreadsheets`, texts that look like
    formulas are marked.
    """
    if path.suffix == ".parquet":
        write_table(path, table)
        return
    if path.suffix == ".jsonl":
        write_rows(path, [table], compress=False)
        return
    from pyarrow import csv

    if VOTES in table.column_names:
        place = table.column_names.index(VOTES)
        table = table.set_column(place, VOTES, pc.binary_join(table[VOTES], " "))
    for place, field in enumerate(table.schema if for_spreadsheets else ()):
        if pa.types.is_string(field.type):
            marked = [text and no_formula(text) for text in table[place].to_pylist()]
            table = table.set_column(place, field, pa.array(marked, field.type))
    with atomic(path) as partial:
        csv.write_csv(table, partial)
