"""Table 2 and the poster's table: numbers of seeds, replacements and variants, by hand."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.analysed import random_dataset, write_dataset

from merge_dataset.files import write_record
from merge_metric.analyses import Request, analyse
from merge_metric.analyses.run_folders import composition

LABELS = ("entailment", "neutral", "contradiction")
FOUND = {
    # seed: its label, and the number of replacements of each of its words
    "s:0": ("entailment", {("noun", "dog"): 3, ("noun", "cat"): 1, ("verb", "run"): 2}),
    "s:1": ("neutral", {("noun", "dog"): 1}),
    "s:2": ("contradiction", {("noun", "man"): 2, ("verb", "sit"): 1, ("adjective", "big"): 1}),
}


def write_run(folder: Path, scope: str, eligible: set[tuple[str, str]]) -> Path:
    """Write a run that samples two variants of each eligible seed and class in either draw."""
    replacements, variants = [], []
    for seed, (label, words) in FOUND.items():
        drawn: Counter[str] = Counter()
        for (word_class, word), n in words.items():
            for k in range(n):
                replacements.append({"seed_id": seed, "word_class": word_class, "word": word})
                if (seed, word_class) in eligible and drawn[word_class] < 2:
                    variants.append(
                        {"seed_id": seed, "word_class": word_class, "label": LABELS.index(label)}
                        | {"subsamples": [0, 1] if k else [1]}
                    )
                    drawn[word_class] += 1
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(replacements), folder / "replacements.parquet")
    pq.write_table(pa.Table.from_pylist(variants), folder / "variants.parquet")
    config = {"min_replacements": 2, "min_replacements_scope": scope}
    write_record(folder / "manifest.json", {"source": "s", "config": config})
    return folder


def rows_of(table: Any) -> dict[str, dict[str, Any]]:
    return {row["word_class"]: row for row in table.rows}


@pytest.mark.parametrize(
    ("scope", "noun", "verb", "all_"),
    [
        ("class", [4, 0, 2], [2, 0, 0], [6, 0, 2]),
        ("word", [3, 0, 2], [2, 0, 0], [5, 0, 2]),  # one replacement of cat is too few for a word
        ("problem", [4, 0, 2], [2, 0, 1], [6, 0, 4]),  # the third seed has four in all
    ],
)
def test_before_sampling_only_what_is_enough_counts(
    scope: str, noun: list[int], verb: list[int], all_: list[int], tmp_path: Path
) -> None:
    eligible = {("s:0", "noun"), ("s:0", "verb"), ("s:2", "noun")}
    if scope == "problem":
        eligible |= {("s:2", "verb"), ("s:2", "adjective")}
    rows = rows_of(composition(Request(), run=write_run(tmp_path / "run", scope, eligible)))
    for name, expected in (("noun", noun), ("verb", verb), ("all", all_)):
        result = [rows[name][f"n_replacements_{label}"] for label in LABELS]
        assert result == expected
        assert rows[name]["n_replacements"] == sum(expected)
    assert (rows["noun"]["n_seeds"], rows["all"]["n_seeds"]) == (2, 2)
    assert [rows["noun"][f"seeds_{label}"] for label in LABELS] == [0.5, 0, 0.5]
    assert rows["noun"]["n_variants"] == 4
    assert rows["noun"]["per_seed"] == 2
    assert rows["noun"]["n_drawn"] == 3  # the first of each seed is in only one of two draws


def test_a_dataset_against_a_slow_count(tmp_path: Path) -> None:
    rows = random_dataset(random.Random(3), seeds=30)
    folder = write_dataset(tmp_path / "merge-nli", rows)
    result = rows_of(analyse("composition", (), folder, "s")[0])
    for name in ("noun", "verb", "adjective", "all"):
        mine = [row for row in rows if name in (dict(row.groups)["word"][0], "all")]
        seeds = {row.seed_id: row.gold for row in mine}
        row = result[name]
        assert (row["n_seeds"], row["n_variants"]) == (len(seeds), len(mine))
        assert row["per_seed"] == len(mine) / len(seeds)
        assert row["n_drawn"] == round(sum(len(item.subsamples) for item in mine) / 2)
        for label in LABELS:
            assert row[f"seeds_{label}"] == list(seeds.values()).count(label) / len(seeds)
        assert "n_replacements" not in row
    assert result["all"]["n_seeds"] < sum(result[name]["n_seeds"] for name in list(result)[:-1])
    alone = rows_of(analyse("composition", (), folder, "s_nouns")[0])
    assert alone["all"] | {"word_class": "noun", "config": "s"} == result["noun"]
