"""Groups of variants on the same seeds, and of seeds by words: a slow oracle, and by hand."""

import json
import math
import random
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import (
    answered,
    given,
    names_of,
    random_dataset,
    run,
    write_answers,
    write_dataset,
)
from helpers.commands import run as command
from helpers.dataset_files import write_rows
from helpers.metric_oracle import LETTERS, Row, random_problems

from merge_metric.analyses.variant_groups import (
    ORIGINS,
    PAPER,
    classes,
    difference,
    mlms,
    on_shared_seeds,
    origins,
    read_counterparts,
    redrawn,
)
from merge_metric.seed_variant_accuracy.options import Settings

GroupOf = Callable[[Row], str | None]

NONE = Settings(n_bootstrap=0)


def contrast(rows: Sequence[Row], groups: Sequence[str], group_of: GroupOf) -> dict[str, Any]:
    """Group → figures, curve, seeds, on the seeds with all groups in a subsample."""
    parts: dict[str, list[list[Row]]] = {group: [] for group in groups}
    for part in oracle.parts(rows):
        shared = [
            seed
            for seed, variants in oracle.by_seed(part).items()
            if {group_of(row) for row in variants} >= set(groups)
        ]
        for group in groups:
            parts[group].append(
                [row for row in part if row.seed_id in shared and group_of(row) == group]
            )
    result = {}
    for group, of_group in parts.items():
        item = [oracle.figures(part) for part in of_group if part]
        curves = [oracle.curve(part) for part in of_group if part]
        result[group] = {
            key: oracle.mean(one[key] for one in item)
            for key in ("seed_accuracy", "variant_accuracy")
        }
        mean_curve = [oracle.mean(values) for values in zip(*curves, strict=True)]
        result[group] |= oracle.where_curve_meets_s(mean_curve, result[group]["seed_accuracy"])
        result[group]["curve"] = mean_curve
        result[group]["seeds"] = {row.seed_id for part in of_group for row in part}
        per_seed = sum(map(len, of_group)), sum(len(oracle.by_seed(part)) for part in of_group)
        result[group]["variants_per_seed"] = Fraction(*per_seed)
    return result


def word_of(row: Row) -> str:
    return str(dict(row.groups)["word"][0])


@pytest.mark.parametrize("regular", [True, False])
def test_word_classes_against_the_oracle(regular: bool) -> None:
    rng = random.Random(13)
    rows = (
        random_dataset(rng, seeds=30, subsamples=3)
        if regular
        else random_problems(rng, seeds=30, variants=(3, 9), subsamples=3)
    )
    rows = answered(rows, rng, 0.6)
    table = classes(given(run(rows)), settings=NONE)
    pairs = ["noun & verb", "noun & adjective", "verb & adjective"]
    assert [row["contrast"] for row in table.rows] == [pair for pair in pairs for _ in range(2)]
    for row in table.rows:
        groups = row["contrast"].split(" & ")
        exact = contrast(rows, groups, word_of)
        mine, first = exact[row["group"]], exact[groups[0]]
        assert row["n_seeds"] == len(mine["seeds"])
        for key in ("seed_accuracy", "variant_accuracy", "matching_threshold", "variants_per_seed"):
            assert row[key] == pytest.approx(float(mine[key]), abs=1e-12), key
        assert row["curve"] == pytest.approx([float(value) for value in mine["curve"]], abs=1e-12)
        if row["difference"] is not None:
            expected = mine["curve"][89] - first["curve"][89]
            assert row["difference"] == pytest.approx(float(expected), abs=1e-12)
    assert any(row["seeds_per_subsample"] < row["n_seeds"] for row in table.rows) != regular


def hand(seed: int, word: str, gold: str, own: str, predictions: str) -> list[Row]:
    return [
        Row(f"s:{seed}", LETTERS[gold], LETTERS[own], LETTERS[p], (0,),
            (("word", (word,)), ("mlm", ("m",))))
        for p in predictions
    ]  # fmt: skip


def test_interval_of_a_difference_is_that_of_all_resamples() -> None:
    """Five seeds have 126 resamples; both groups are resampled together."""
    a, b = (
        [row for n, p in enumerate(answers.split()) for row in hand(n, "noun", "E", "E", p)]
        for answers in ("EEE ENE EEN EEE NNE", "EEE NNE ENE NEE NNN")
    )
    outcomes = []
    for times, probability in oracle.every_resample([f"s:{n}" for n in range(5)]):
        of_a, of_b = (
            oracle.seed_variant_accuracy(oracle.resampled(rows, times), 60) for rows in (a, b)
        )
        outcomes.append((float(of_a - of_b), float(probability)))
    result = difference(run(a).counts, run(b).counts, Settings(60, n_bootstrap=20_000, rng_seed=1))
    assert result["difference"] == pytest.approx(0.2)
    far = 4 * math.sqrt(0.025 * 0.975 / 20_000)  # most that a share of replicates may differ
    for bound, at in zip(result["difference_ci"], (0.025, 0.975), strict=True):
        low, high = oracle.quantile(outcomes, at - far), oracle.quantile(outcomes, at + far)
        assert low - 1e-12 <= bound <= high + 1e-12
        assert high - low <= 0.2 + 1e-12


BERT = {"bert": "equiv", "bert-large": "size"}


def origin_of(row: Row) -> str | None:
    names = dict(row.groups)["mlm"]
    return "multi" if len(names) == 2 else BERT.get(names[0], "one")


def test_source_mlms_against_the_oracle() -> None:
    rng = random.Random(5)
    rows = answered(random_dataset(rng, seeds=80, subsamples=2), rng, 0.6)
    table = mlms(given(run(rows, "model")), mlm_map={"model": BERT}, settings=NONE)
    assert [row["group"] for row in table.rows] == [*ORIGINS, *ORIGINS]
    assert [row["contrast"] for row in table.rows] == ["equally many"] * 4 + ["all"] * 4
    per_seed = contrast(rows, ORIGINS, origin_of)["equiv"]["seeds"]
    seeds = oracle.by_seed(rows).items()
    shared = {seed for seed, variants in seeds if {*map(origin_of, variants)} >= set(ORIGINS)}
    exact = {g: [r for r in rows if r.seed_id in shared and origin_of(r) == g] for g in ORIGINS}
    assert len(shared) > len(per_seed) > 0  # within a subsample, fewer seeds have all groups
    for row in table.rows[4:]:
        figures, curve = oracle.figures(exact[row["group"]]), oracle.curve(exact[row["group"]])
        assert row["n_seeds"] == row["seeds_per_subsample"] == len(shared)
        assert row["n_variants"] == len(exact[row["group"]])
        assert row["variant_accuracy"] == pytest.approx(float(figures["variant_accuracy"]))
        assert row["curve"] == pytest.approx([float(value) for value in curve], abs=1e-12)
    least = sum(
        min(sum(row.seed_id == seed for row in exact[group]) for group in ORIGINS)
        for seed in shared
    )
    for row in table.rows[:4]:
        assert (row["n_seeds"], row["seeds_per_subsample"]) == (len(shared), len(shared))
        assert row["variants_per_seed"] == pytest.approx(least / len(shared))


def test_equally_many_of_fixed_seeds() -> None:
    rows = [
        *hand(0, "noun", "E", "E", "EEEN"),
        *hand(0, "verb", "E", "E", "EE"),
        *hand(1, "noun", "E", "E", "NNN"),  # without verbs
        *hand(2, "noun", "N", "N", "N"),
        *hand(2, "verb", "N", "N", "NEEE"),
    ]
    coded = run(rows).rows
    words, names = list(map(word_of, rows)), ("noun", "verb")
    drawn = redrawn(coded, 10)
    nouns, verbs = on_shared_seeds(drawn, words, names, draws_seed=2).values()
    assert nouns.seed_ids == verbs.seed_ids == ("s:0", "s:2")
    assert nouns.n_variants.tolist() == verbs.n_variants.tolist() == [[2] * 10, [1] * 10]
    assert verbs.n_correct[0].tolist() == [2] * 10  # all its variants
    assert set(nouns.n_correct[0].tolist()) == {1, 2}
    right = [
        item.n_correct.mean(axis=1)
        for seed in range(60)
        for item in on_shared_seeds(drawn, words, names, draws_seed=seed).values()
    ]
    n = 600  # draws of two out of four, one wrong; and of one out of four, one right
    assert abs(np.mean([r[0] for r in right[::2]]) - 1.5) < 4 * math.sqrt(0.25 / n)
    assert abs(np.mean([r[1] for r in right[1::2]]) - 0.25) < 4 * math.sqrt(0.25 * 0.75 / n)
    whole = on_shared_seeds(redrawn(coded, None), words, names).values()
    assert [item.n_variants.tolist() for item in whole] == [[[4], [1]], [[2], [4]]]
    assert [item.n_correct.tolist() for item in whole] == [[[3], [1]], [[2], [1]]]


def test_one_masked_lm_and_several_by_hand() -> None:
    """The poster's split: on the seeds of each group, then on the seeds with all groups."""
    by_word = {"noun": ("bert",), "verb": ("roberta",), "adjective": ("bert", "roberta")}
    rows = [
        *hand(0, "noun", "E", "E", "EE"), *hand(0, "verb", "E", "E", "EN"),
        *hand(0, "adjective", "E", "E", "E"), *hand(1, "noun", "C", "N", "CN"),
        *hand(2, "adjective", "N", "N", "NNNE"),
    ]  # fmt: skip
    rows = [replace(row, groups=(row.groups[0], ("mlm", by_word[word_of(row)]))) for row in rows]
    table = origins(given(run(rows)), settings=NONE)
    result = {(row["contrast"], row["group"]): row for row in table.rows}
    assert [(c, g) for c, g in result] == [
        (c, g) for c in ("own seeds", "equally many", "all") for g in ("bert", "roberta", "several")
    ]
    own = [result["own seeds", g] for g in ("bert", "roberta", "several")]
    assert [row["n_seeds"] for row in own] == [2, 1, 2]
    assert [row["variant_accuracy"] for row in own] == [0.75, 0.5, 0.8]
    assert [row["sv_at_100"] for row in own] == [0.5, 0, 0.5]
    assert [row["difference"] for row in own] == [None] * 3
    for contrast_name in ("equally many", "all"):
        assert [result[contrast_name, g]["n_seeds"] for g in ("bert", "several")] == [1, 1]
    assert result["all", "roberta"]["difference"] == -1.0
    alone = [row for row in rows if dict(row.groups)["mlm"] == ("bert",)]
    with pytest.raises(ValueError, match="groups out of bert, several, got bert"):
        origins(given(run(alone)))


def test_groups_and_models_that_are_not_there_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rng = random.Random(6)
    rows = [
        replace(row, groups=(row.groups[0], ("mlm", ("albert", "roberta"))))
        if dict(row.groups)["mlm"] == ("bert-large",)
        else row
        for row in answered(random_dataset(rng, seeds=60), rng, 0.6)
    ]
    runs = [run(rows, "model"), run(rows, "other")]
    table = mlms(given(*runs), mlm_map={"model": BERT}, settings=NONE)
    assert [row["group"] for row in table.rows[:3]] == ["equiv", "multi", "one"]
    assert "model, snli: left out, as there are no variants of it: size" in caplog.text
    assert "not in the mapping to MLMs: other; name a model as there" in caplog.text
    assert not mlms(given(*runs[1:]), mlm_map={"model": BERT}).rows
    alone = [replace(row, groups=(row.groups[0], ("mlm", ("albert",)))) for row in rows]
    with pytest.raises(ValueError, match="groups out of equiv, size, multi, one, got one"):
        mlms(given(run(alone, "model")), mlm_map={"model": BERT})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a", "expected TOML, could not read it"),
        ('a = "x"', "expected a table for each model, once, .*got for 'a': 'x'"),
        ('[a]\nnames = ["b"]', "in the lists equivalent and size, one or both"),
        ('[a]\nsize = ["x"]\nequivalent = ["x"]', "of different MLMs .* got for 'a'"),
        ('[a]\nsize = []\n[b]\nnames = ["a"]\nsize = []', "got for 'b'"),
    ],
)
def test_wrong_mappings_are_told(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mlms.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_counterparts(file)
    assert str(file) in str(error.value)


def test_the_papers_mapping_names_the_papers_mlms() -> None:
    """From the eight MLMs of its table 4 without BART, each model has one of each size."""
    recipe = Path(__file__).parents[3] / "generation" / "recipes" / "paper-v2.toml"
    known = set(tomllib.loads(recipe.read_text())["mlms"])
    mapping = read_counterparts(PAPER)
    assert {"BERT-B-S", "ALBERT-XXL-SMFA", "roberta-large-mnli"} <= set(mapping)
    for names in mapping.values():
        assert sorted(names.values()) == ["equiv", "size"]
        assert set(names) <= known
        own, other = names
        assert own.partition("/")[0] == other.partition("/")[0]


WORDS: Final = {
    "quantifier": {"all", "some", "Most"},
    "negation": {"no", "nobody", "isn't", "don’t"},
    "time": {"before", "Yesterday", "days"},
}
NEARLY: Final = ("tall", "handsome", "knot", "nobodies", "beforehand", "int", "nt")
"""Words that contain such a word, but do not count."""


Place = tuple[Path, list[Row], dict[str, set[str]]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A dataset, answers `a.parquet`, and each seed's phenomena, word by word."""
    folder = tmp_path_factory.mktemp("phenomena")
    rng = random.Random(5)
    rows = answered(random_dataset(rng, seeds=40), rng, 0.6)
    write_dataset(folder / "merge-nli", rows, "s")
    write_answers(folder / "a.parquet", rows)
    has: dict[str, set[str]] = {}
    pool = sorted({*NEARLY}.union(*WORDS.values()))
    for path in (folder / "merge-nli").rglob("seeds*.parquet"):
        seeds = pq.ParquetFile(path).read().to_pylist()
        for row in seeds:
            words = random.Random(row["seed_id"]).sample(pool, 2)
            row["premise"], row["hypothesis"] = f"A {words[0]} b.", f"It, {' '.join(words)}?"
            names = {name for name, known in WORDS.items() if known & set(words)}
            has[row["seed_id"]] = names or {"none of these"}
        write_rows(path, seeds)
    return folder, rows, has


def analyse(*arguments: object) -> list[dict[str, Any]]:
    printed = command("analyse", "phenomena", *arguments, "--format", "json").stdout
    return list(json.loads(printed)["rows"])


def test_figures_of_each_group_of_seeds(place: Place) -> None:
    folder, rows, has = place
    options = ("--dataset", folder / "merge-nli", "--config", "s", "--n-bootstrap", "0")
    result = analyse(folder / "a.parquet", *options)
    assert [row["phenomenon"] for row in result] == [*WORDS, "none of these"]
    for row in result:
        mine = [item for item in rows if row["phenomenon"] in has[str(item.seed_id)]]
        exact = oracle.averaged(mine)
        assert row["n_seeds"] == len({item.seed_id for item in mine})
        assert row["n_variants"] == exact["n_variants"]
        for key in ("seed_accuracy", "variant_accuracy", "relaxed_fooling_rate"):
            assert row[key] == pytest.approx(float(exact[key])), key
        assert row["sv_at_90"] == pytest.approx(float(exact["curve"][89]))


def test_judgements_and_a_control(place: Place) -> None:
    folder, rows, has = place
    ids = enumerate(names_of(rows))
    scores = {name: (5, 5) if n % 3 else (4, 2) for n, name in ids if n % 2}
    lines = [f"{name},ann,{f},{r}" for name, (f, r) in scores.items()]
    path = folder / "scores.csv"
    path.write_text("\n".join(["variant_id,annotator,fluency,reasoning", *lines, ""]))
    result = analyse("--dataset", folder / "merge-nli", "--config", "s", "--annotations", path)
    for row in result:
        mine = [
            scores[name] for name in scores if row["phenomenon"] in has[re.sub("/.*", "", name)]
        ]
        assert row["n_judged"] == len(mine)
        assert row["good"] == pytest.approx(sum(f + r >= 9 for f, r in mine) / len(mine))
        assert row["n_doubtful"] == sum(r < 4 for _, r in mine)
