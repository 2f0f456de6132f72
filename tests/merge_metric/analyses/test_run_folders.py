"""Tables 2, 3, 5 and 10 and figure 11 from run folders: by hand, and against counting rows."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.analysed import random_dataset, text_of, write_dataset
from helpers.commands import refused
from helpers.commands import run as command
from helpers.dataset_files import write_source

from generation.problems.on_disk import problem_table
from generation.records import Seed
from merge_dataset.files import digest_of_file, digests, write_record
from merge_dataset.schema import LABELS, WORD_CLASSES
from merge_metric.analyses import Request, analyse, run_folders
from merge_metric.analyses.run_folders import (
    composition,
    filters,
    plot_filters,
    plot_provenance,
    plot_seeds,
    provenance,
    seeds,
)

Row = dict[str, Any]


def write_tables(folder: Path, manifest: Row, **tables: Sequence[Row]) -> Path:
    """Write tables of a run folder, and its manifest with their digests."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {f"{name}.parquet": folder / f"{name}.parquet" for name in tables}
    for path, rows in zip(paths.values(), tables.values(), strict=True):
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    write_record(folder / "manifest.json", manifest | {"files": digests(paths)})
    return folder


def word(seed: str, word_class: str, form: str, premise: int = 1, **more: Any) -> Row:
    """A shared word that occurs once in the hypothesis."""
    return {
        "seed_id": seed, "word_class": word_class, "word": form, "premise_occurrences": premise,
        "hypothesis_occurrences": more.get("hypothesis", 1), "other_forms": more.get("forms", []),
    }  # fmt: skip


def write_counted(
    folder: Path,
    labels: Sequence[str],
    words: Sequence[Row],
    variants: Sequence[tuple[str, str, str]] | None = None,
    counts: Sequence[Row] = (),
) -> Path:
    """Write a run folder with counts and, optionally, a build."""
    folder.mkdir(parents=True)
    problems = [
        Seed(seed_id=f"s:{n}", source="s", texts=("p", "h"), label=label)
        for n, label in enumerate(labels)
    ]
    pq.write_table(problem_table(problems), folder / "problems.parquet")
    path = folder / "shared_words.parquet"
    schema = pa.schema(
        [("seed_id", pa.string()), ("word_class", pa.string()), ("word", pa.string()),
         ("premise_occurrences", pa.int32()), ("hypothesis_occurrences", pa.int32()),
         ("other_forms", pa.list_(pa.string()))]
    )  # fmt: skip
    pq.write_table(pa.Table.from_pylist(list(words), schema), path)
    if variants is not None:
        names = ("seed_id", "word_class", "original")
        rows = [dict(zip(names, variant, strict=True)) for variant in variants]
        write_tables(folder, {}, variants=rows)
    write_record(folder / "suggested.json", {"mlms": []})
    record = {
        "source": "s", "filters": list(counts),
        "made_from": digest_of_file(folder / "suggested.json"), "files": digests({path.name: path}),
    }  # fmt: skip
    write_record(folder / "counts.json", record)
    return folder


def test_random_words_against_rows(tmp_path: Path) -> None:
    rng = random.Random(6)
    labels = [rng.choice(LABELS) for _ in range(60)]
    words = []
    for n in range(60):
        for word_class in rng.sample(WORD_CLASSES, rng.randint(0, 3)):
            for k in range(rng.randint(1, 2)):
                twice, forms = rng.choice((1, 1, 2)), rng.choice(([], [], ["x"]))
                words.append(word(f"s:{n}", word_class, f"w{k}", twice, forms=forms))
    replaced = rng.sample(words, len(words) // 2)  # in one form or two
    variants = [
        (item["seed_id"], item["word_class"], " ".join([item["word"], *item["other_forms"]]))
        for item in replaced
    ]
    table = seeds(Request(), run=write_counted(tmp_path / "a", labels, words, variants))
    assert [row["which"] for row in table.rows] == ["sharing"] * 5 + ["eligible"] * 5
    for row in table.rows:
        every = words if row["which"] == "sharing" else replaced
        mine = [item for item in every if row["word_class"] in ("all", item["word_class"])]
        ids = {item["seed_id"] for item in mine}
        twice = {item["seed_id"] for item in mine if item["premise_occurrences"] > 1}
        forms = {item["seed_id"] for item in mine if item["other_forms"]}
        assert (row["n"], row["share"]) == (len(ids), len(ids) / 60)
        assert (row["n_stands_twice"], row["n_other_form"]) == (len(twice), len(forms))
        for number, label in enumerate(LABELS):
            of_label = [item for item in ids if labels[int(item[2:])] == label]
            assert row[f"label_{number}"] == len(of_label) / len(ids)
    unknown = [{**item, "other_forms": None} for item in words]
    table = seeds(Request(), run=write_counted(tmp_path / "b", labels, unknown))
    assert {row["other_form"] for row in table.rows} == {None}
    assert "lemminflect was not installed" in table.notes[-1]
    assert "no build yet" in " ".join(table.notes)
    plot_seeds(table)


def counts(mlm: str, word_class: str, field: str, *numbers: int) -> Row:
    names = ("occurrences", "not_in_vocabulary", "suggestions", "whole_words", "same_class",
             "more_probable", "both")  # fmt: skip
    return {
        "source": "s", "mlm": mlm, "word_class": word_class, "field": field,
        **dict(zip(names, numbers, strict=True)),
    }  # fmt: skip


def test_table_5_by_hand(tmp_path: Path) -> None:
    rows = [
        counts("m", "verb", "premise", 2, 2, 0, 0, 0, 0, 0),
        counts("m", "noun", "premise", 4, 1, 600, 500, 480, 60, 50),
        counts("m", "noun", "hypothesis", 1, 0, 200, 190, 180, 40, 30),
    ]
    table = filters(Request(), run=write_counted(tmp_path / "run", [], [], counts=rows))
    noun, verb = table.rows
    assert (noun["asked"], noun["not_in_vocabulary"], noun["per_occurrence"]) == (4, 1, 200)
    assert (noun["same_class_premise"], noun["same_class_hypothesis"]) == (0.8, 0.9)
    assert noun["same_class"] == 660 / 800
    assert (noun["more_probable"], noun["both"]) == (100 / 800, 80 / 800)
    assert (verb["asked"], verb["per_occurrence"], verb["same_class"]) == (0, None, None)
    plot_filters(table)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shared_words.parquet", "counts.json as its record says"),
        ("variants.parquet", "variants.parquet as its record says"),
        ("counts.json", "counts.json"),
    ],
)
def test_damage_is_told(
    tmp_path: Path, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file changed since the run is no source of figures."""
    monkeypatch.setattr(run_folders, "MAKERS", {})
    words, variants = [word("s:0", "noun", "man")], [("s:0", "noun", "man")]
    made = write_counted(tmp_path / "run", ["neutral"], words, variants)
    (made / name).write_bytes((made / name).read_bytes().replace(b'"s"', b'"t"') + b" ")
    with pytest.raises((FileNotFoundError, ValueError), match=message):
        seeds(Request(), run=made)


FOUND = {
    # seed: its label, and the number of replacements of each of its words
    "s:0": ("entailment", {("noun", "dog"): 3, ("noun", "cat"): 1, ("verb", "run"): 2}),
    "s:1": ("neutral", {("noun", "dog"): 1}),
    "s:2": ("contradiction", {("noun", "man"): 2, ("verb", "sit"): 1, ("adjective", "big"): 1}),
}


def write_sampled(folder: Path, scope: str, eligible: set[tuple[str, str]]) -> Path:
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
    config = {"min_replacements": 2, "min_replacements_scope": scope}
    manifest = {"source": "s", "config": config}
    return write_tables(folder, manifest, replacements=replacements, variants=variants)


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
    rows = rows_of(composition(Request(), run=write_sampled(tmp_path / "run", scope, eligible)))
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


Names = tuple[str, ...]


def write_validated(folder: Path, validated: Sequence[tuple[Names, ...]], seeds: int = 2) -> Path:
    """Write a run folder whose replacements were validated by these masked LMs in each text."""
    fields = ("premise", "hypothesis", "context")
    rows = [
        {"seed_id": f"s:{n % seeds}", "source": "s", "word": "man"}
        | {f"{field}_mlms": list(names) for field, names in zip(fields, texts, strict=False)}
        for n, texts in enumerate(validated)
    ]
    return write_tables(folder, {}, replacements=rows)


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
        table = provenance(
            Request(), run=write_validated(tmp_path / str(number), validated, seeds=7)
        )
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
        for one, other in product(range(n_mlms), repeat=2):
            both = {mlms[one], mlms[other]}
            shared = sum(item == both if one == other else item >= both for item in anywhere)
            assert table.rows[one][f"shared_{other + 1}"] == pytest.approx(shared / 7)
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


def variant(n: int, premise: Names, hypothesis: Names, word_class: str = "noun") -> Row:
    return {
        "variant_id": f"s:1/{word_class}/man/w{n}", "seed_id": "s:1", "source": "s", "label": 0,
        "word_class": word_class, "original": "man", "mlms": sorted({*premise, *hypothesis}),
        "premise_mlms": list(premise), "hypothesis_mlms": list(hypothesis), "subsamples": [0],
    }  # fmt: skip


def test_the_command_reads_a_dataset_or_a_run(tmp_path: Path) -> None:
    dataset, run = tmp_path / "merge-nli", write_validated(tmp_path / "run", [(("x/A",), ("x/A",))])
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
    write_validated(tmp_path / "other", [(("B",), ("B",))])
    changed = shutil.copytree(run, tmp_path / "changed")
    shutil.copy(tmp_path / "other/replacements.parquet", changed)
    told = refused("analyse", "provenance", "--run", changed)
    assert "expected a run folder with replacements.parquet as its record says" in told
