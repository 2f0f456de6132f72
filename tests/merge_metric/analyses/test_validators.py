"""Table 10, figure 11 and fewer masked LMs: by hand, and against sets of names."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.analysed import text_of
from helpers.commands import refused
from helpers.commands import run as command
from helpers.dataset_files import write_source

from merge_dataset.files import digests, write_record
from merge_metric.analyses import Request
from merge_metric.analyses.run_folders import plot_provenance, provenance

Names = tuple[str, ...]


def write_run(folder: Path, validated: Sequence[tuple[Names, ...]], seeds: int = 2) -> Path:
    """Write a run folder whose replacements were validated by these masked LMs in each text."""
    fields = ("premise", "hypothesis", "context")
    rows = [
        {"seed_id": f"s:{n % seeds}", "source": "s", "word": "man"}
        | {f"{field}_mlms": list(names) for field, names in zip(fields, texts, strict=False)}
        for n, texts in enumerate(validated)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "replacements.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    write_record(folder / "manifest.json", {"files": digests({path.name: path})})
    return folder


def test_both_readings_of_several_by_hand(tmp_path: Path) -> None:
    run = write_run(
        tmp_path,
        [
            (("A",), ("A",)),  # A alone, in a text and in each
            (("A",), ("B",)),  # two somewhere, but none in each
            (("A", "B"), ("A",)),  # two somewhere, A alone in each
            (("A", "B"), ("A", "B", "C")),  # three somewhere, two in each
        ],
    )
    table = provenance(Request(), run=run)
    counts = {row["by"]: (row["n_anywhere"], row["n_everywhere"]) for row in table.rows}
    assert counts == {
        "A": (1, 2), "B": (0, 0), "C": (0, 0), "2 masked LMs": (2, 1), "3 masked LMs": (1, 0),
        "several": (3, 1), "none": (0, 1), "all": (4, 4),
    }  # fmt: skip
    # Rows of A 1–4, of B 2–4, of C 4; the first only of A. Two problems.
    matrix = [[row[f"shared_{n}"] for n in (1, 2, 3)] for row in table.rows[:3]]
    assert matrix == [[0.5, 1.5, 0.5], [1.5, 0, 0.5], [0.5, 0.5, 0]]


def test_random_replacements_against_sets(tmp_path: Path) -> None:
    rng = random.Random(4)
    for number, (n_mlms, n_texts) in enumerate([(1, 2), (2, 2), (4, 2), (5, 3)]):
        mlms = "abcde"[:n_mlms]
        validated = [
            tuple(
                tuple(sorted(rng.sample(mlms, rng.randint(1, n_mlms))))
                if text < 2 or rng.random() < 0.5  # the third text may lack the word
                else ()
                for text in range(n_texts)
            )
            for _ in range(60)
        ]
        table = provenance(Request(), run=write_run(tmp_path / str(number), validated, seeds=7))
        anywhere = [set().union(*texts) for texts in validated]
        everywhere = [set.intersection(*(set(t) for t in texts if t)) for texts in validated]
        for row in table.rows:
            for key, sets in (("n_anywhere", anywhere), ("n_everywhere", everywhere)):
                sizes = Counter(map(len, sets))
                expected = {
                    "mlm": sum(item == {row["by"]} for item in sets),
                    "number": sizes[int(row["by"].split()[0])] if "LMs" in row["by"] else 0,
                    "several": sum(len(item) > 1 for item in sets), "none": sizes[0], "all": 60,
                }[row["kind"]]  # fmt: skip
                assert row[key] == expected, (row["by"], key)
        for k in range(1, n_mlms + 1):
            result = [
                sum(all(set(chosen) & set(text) for text in texts if text) for texts in validated)
                for chosen in combinations(mlms, k)
            ]
            if k == 1:
                assert [row["n_kept"] for row in table.rows[:n_mlms]] == result
            else:
                row = next(row for row in table.rows if row["by"] == f"{k} masked LMs")
                assert row["n_kept"] == pytest.approx(np.mean(result))
        plot_provenance(table)


def variant(n: int, premise: Names, hypothesis: Names, word_class: str = "noun") -> dict[str, Any]:
    return {
        "variant_id": f"s:1/{word_class}/man/w{n}", "seed_id": "s:1", "source": "s", "label": 0,
        "word_class": word_class, "original": "man", "mlms": sorted({*premise, *hypothesis}),
        "premise_mlms": list(premise), "hypothesis_mlms": list(hypothesis), "subsamples": [0],
    }  # fmt: skip


def test_the_command_reads_a_dataset_or_a_run(tmp_path: Path) -> None:
    dataset, run = tmp_path / "merge-nli", write_run(tmp_path / "run", [(("x/A",), ("x/A",))])
    seeds = [{"variant_id": "s:1", "seed_id": "s:1", "source": "s", "label": 0, **text_of("s:1")}]
    rows = [
        variant(1, ("x/A",), ("x/A",)),
        variant(2, ("x/A",), ("y/B",)),
        variant(3, ("y/B",), ("y/B",), "verb"),
    ]
    write_source(dataset, seeds, rows)
    paraphrase = {"word_class": "paraphrase", "seed_id": "s:1", "source": "s", "label": 0}
    write_source(dataset, seeds, [paraphrase])

    def analyse(*arguments: object) -> Any:
        return json.loads(command("analyse", "provenance", *arguments, "--format", "json").stdout)

    options = ("--dataset", dataset)
    told = analyse(*options, "--config", "s", "--config", "s_nouns")
    totals = [(r["config"], r["n_anywhere"]) for r in told["rows"] if r["kind"] == "all"]
    assert totals == [("s", 3), ("s_nouns", 2)]
    whole = analyse(*options)  # not of paraphrases, which no masked LM made
    assert {row["config"] for row in whole["rows"]} == {"s"}
    write_run(tmp_path / "other", [(("B",), ("B",))])
    changed = shutil.copytree(run, tmp_path / "changed")
    shutil.copy(tmp_path / "other/replacements.parquet", changed)
    for arguments, message in (
        ([], "provenance: expected a dataset folder, got none; add --dataset FOLDER, or a run "),
        (["--run", run, *options], "provenance: expected --run alone, got --dataset too"),
        (["--run", dataset],
         "expected a run folder with replacements.parquet as its record says, found none"),
        (["--run", tmp_path / "x"], "x: expected a run folder with"),
        ([*options, "--config", "s_paraphrases"], "expected variants that masked LMs validated"),
        ([run / "replacements.parquet", *options], "expected no predictions files, got"),
        (["--run", changed], "expected a run folder with replacements.parquet as its record says"),
    ):  # fmt: skip
        assert message in refused("analyse", "provenance", *arguments), arguments
