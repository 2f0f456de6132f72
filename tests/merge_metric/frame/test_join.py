from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import write_plain, write_rows
from helpers.scored_folder import C, E, N, Rows, predicted, problem_row, without

from merge_metric.frame.answer_table import PredictionsSource
from merge_metric.frame.joined import VARIANT_IDS, Frame, read_frames
from merge_metric.frame.predictions import read_predictions


def columns_of(run: Frame) -> dict[str, Any]:
    rows = run.rows
    seeds = rows.seed.tolist()
    columns = {
        "predictions": rows.prediction.tolist(),
        "references": rows.gold[rows.seed].tolist(),
        "seed_ids": [rows.seed_ids[seed] for seed in seeds],
        "seed_predictions": rows.own[rows.seed].tolist(),
        "variant_ids": run.values[VARIANT_IDS].to_pylist(),
    }
    if rows.n_subsamples:
        drawn: list[list[int]] = [[] for _ in seeds]
        for row, subsample in zip(rows.draw_row, rows.draw_subsample, strict=True):
            drawn[row].append(int(subsample))
        columns["subsamples"] = drawn
    if groups := {name: item for name, item in run.values.items() if isinstance(item, list)}:
        columns["groups"] = groups
    return columns


def joined(rows: Rows, folder: Path, *configs: str, **options: Any) -> list[Frame]:
    path = write_plain(folder.parent / "p.parquet", rows)
    try:
        return list(read_frames([PredictionsSource("m", path)], folder, configs, **options))
    except ValueError as error:
        raise ValueError(str(error).removeprefix(f"{path}: ")) from error


def test_columns_of_a_class(folder: Path) -> None:
    """By hand: the class's variants, each beside its seed's prediction."""
    (nouns,) = joined(predicted("snli"), folder, "snli_nouns", by=["mlms"])
    assert (nouns.config, nouns.n_seeds_left_out) == ("snli_nouns", 0)
    assert columns_of(nouns) == {
        "predictions": [E, C, E, N, N],
        "references": [E, E, E, N, N],
        "seed_ids": ["snli:a"] * 3 + ["snli:b"] * 2,
        "seed_predictions": [E, E, E, N, N],
        "variant_ids": [
            f"snli:{v}" for v in "a/noun/1 a/noun/2 a/noun/3 b/noun/1 b/noun/2".split()
        ],
        "subsamples": [[0, 1], [0], [1], [0, 1], [0, 1]],
        "groups": {"mlms": [["x/big", "y/small"], ["x/big"], ["y/small"], ["x/big"], ["y/small"]]},
    }


def test_readers_at_the_same_time_do_not_meet(folder: Path) -> None:
    """Their tables have the same names in the database that a process has."""
    configs = ("snli_nouns", "snli_verbs")
    right = predicted("snli")
    wrong = [{**row, "prediction": (row["label"] + 1) % 3} for row in right]
    files = {name: write_plain(folder.parent / name, rows) for name, rows in
             (("right.parquet", right), ("wrong.parquet", wrong))}  # fmt: skip

    def read(name: str) -> Iterator[Frame]:
        return read_frames([PredictionsSource("m", files[name])], folder, configs)

    alone = {name: [frame.answers.tolist() for frame in read(name)] for name in files}
    for pair in zip(*map(read, files), zip(*alone.values(), strict=True), strict=True):
        *frames, expected = pair
        assert [frame.answers.tolist() for frame in frames] == list(expected)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
@pytest.mark.parametrize("lacking", [("seed_id", "label"), ("label",)])
def test_seeds_and_labels_of_the_dataset(
    lacking: tuple[str, ...], suffix: str, folder: Path
) -> None:
    """Ids and predictions are enough where the dataset is given; in any order."""
    rows = [{**row, "probabilities": [0.2, 0.3, 0.5]} for row in predicted("snli")[::-1]]
    fewer = pa.Table.from_pylist(rows).drop_columns([*lacking])
    path = folder.parent / f"few{suffix}"

    def write(table: pa.Table) -> None:
        if suffix == ".parquet":
            pq.write_table(table, path)
        else:
            frame = table.to_pandas()
            frame["probabilities"] = frame["probabilities"].map(np.ndarray.tolist)
            if suffix == ".csv":
                frame.to_csv(path, index=False)
            else:
                frame.to_json(path, orient="records", lines=True)

    write(fewer)
    whole = joined(rows, folder)
    assert [columns_of(run) for run in read_frames(path, folder)] == [*map(columns_of, whole)]
    with pytest.raises(ValueError, match=f"got no {' and no '.join(lacking)} among .*: give it"):
        read_predictions(path)
    write(pa.Table.from_pylist([*fewer.to_pylist(), fewer.to_pylist()[0] | {"variant_id": "no"}]))
    with pytest.raises(ValueError, match=f"got 1 of {len(rows) + 1} for ids that none.*'no'"):
        read_predictions(path, folder)


def test_a_dataset_without_subsamples(folder: Path) -> None:
    row = {**problem_row("demo:d/noun/1"), "subsamples": []}
    write_rows(folder / "demo/nouns/variants.parquet", [row])
    (demo,) = joined(predicted("demo"), folder)
    assert "subsamples" not in columns_of(demo)


@pytest.mark.parametrize(
    ("lacking", "configs"),
    [
        ([], ["demo", "snli"]),
        (["demo:d", "demo:d/noun/1"], ["snli"]),
        (["snli:c", *(f"snli:{v}" for v in "b/verb/1 b/verb/2 b/verb/3 c/verb/1 c/verb/2".split())],
         ["demo", "snli_nouns"]),
    ],
)  # fmt: skip
def test_what_the_file_is_for(lacking: list[str], configs: list[str], folder: Path) -> None:
    """Each source with all classes, or with those it has; absent sources do not count."""
    rows = without(predicted(), *lacking)
    assert [item.config for item in joined(rows, folder)] == configs
    assert [item.config for item in joined(rows, folder, allow_missing=True)] == configs


def message(rows: Rows, folder: Path, *configs: str, **options: Any) -> str:
    with pytest.raises(ValueError, match=r"expected|missing") as caught:
        joined(rows, folder, *configs, **options)
    return str(caught.value)


def test_incomplete_seeds_are_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = without(predicted("snli"), "snli:c", "snli:a/noun/2")
    (left,) = joined(rows, folder, "snli", allow_missing=True)
    assert left.n_seeds_left_out == 2
    columns = columns_of(left)
    assert set(columns["seed_ids"]) == {"snli:b"}
    assert columns["groups"] == {"word_class": ["noun", "noun", "verb", "verb", "verb"]}
    assert caplog.messages[1:] == [
        "snli: 2 of 3 seeds are left out: "
        "predictions are missing for 1 of 3 seeds and 1 of 10 variants"
    ]


def test_damaged_datasets(folder: Path) -> None:
    """Seeds without variants, variants without seeds, and files other than Parquet are errors."""
    path = folder / "snli/nouns/seeds.parquet"
    for seeds in ("a", "abc"):
        write_rows(path, (problem_row(f"snli:{name}") for name in seeds))
        assert message(predicted(), folder, "snli_nouns") == (
            f"{folder}: snli_nouns: expected every seed with variants of its gold label in every "
            f"subsample, got others; the dataset is damaged: `merge-nli check {folder}` says more"
        )
    path.write_bytes(b"")
    assert "seeds.parquet: expected a whole Parquet file, got " in message(predicted(), folder)
