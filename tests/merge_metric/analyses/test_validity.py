"""Changes on variants judged good and bad: plain reading, simulations, judged variants."""

import hashlib
import json
import random
import statistics
from collections import defaultdict
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.commands import refused, run
from helpers.dataset_files import seed_row, variant_row, write_predictions, write_rows, write_source
from helpers.judged import JUDGED, write_dataset, write_judged, write_session
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from merge_dataset.files import read_table
from merge_dataset.schema import NLI, config_files
from merge_metric import analyse, evaluate_model
from merge_metric.analyses.validity import _effective, _sums, corrected_rate, validity_row
from merge_metric.analyses.variant_rows import VariantRows
from merge_metric.seed_variant_accuracy.options import Settings

Cases = list[tuple[int, str, bool, bool | None, float]]
"""Seed, class, whether the answer changed, whether it is good (None: not judged), weight."""


def slow_rate(cases: Cases) -> float:
    """The corrected rate, case by case; λ is the slope of a weighted regression."""
    judged_classes = {case[1] for case in cases if case[3] is not None}
    cases = [case for case in cases if case[1] in judged_classes]
    size, total = defaultdict[str, int](int), defaultdict[str, float](float)
    for _, kind, _, good, weight in cases:
        size[kind] += 1
        total[kind] += weight if good is not None else 0
    judged = [case for case in cases if case[3] is not None]
    weights = np.array([w * size[kind] / total[kind] for _, kind, _, _, w in judged])
    c = np.array([float(case[2]) for case in judged])
    g = np.array([float(bool(case[3])) for case in judged])
    rate = np.average(c, weights=weights * g)
    y = g * (c - rate)
    slope = np.cov(y, c, aweights=weights)[0, 1] / np.cov(c, aweights=weights)
    off = np.mean([case[2] for case in cases]) - np.average(c, weights=weights)
    return float(rate + slope * off / np.average(g, weights=weights))


def made(rng: random.Random, *, seeds: int, judged: float, weighted: bool = True) -> Cases:
    """Cases: good variants change in 10 %, bad ones in 25 %, more in some seeds; half are good."""
    cases: Cases = []
    for seed in range(seeds):
        kind, hard = rng.choice(("noun", "verb")), rng.choice((0.5, 1.5))
        for _ in range(rng.randint(3, 9)):
            good = rng.random() < (0.6 if kind == "noun" else 0.4)
            changed = rng.random() < hard * (0.1 if good else 0.25)
            weight = rng.choice((1.0, 2.0)) if weighted else 1.0
            known = good if rng.random() < judged / weight else None
            cases.append((seed, kind, changed, known, weight))
    return cases


def sums_of(cases: Cases) -> Any:
    seed, kind, changed, good, weight = zip(*cases, strict=True)
    return _sums(
        np.array(changed, float), np.array([np.nan if g is None else float(g) for g in good]),
        np.array(weight), np.array(seed), np.unique(kind, return_inverse=True)[1],
    )  # fmt: skip


@pytest.mark.parametrize("number", range(20))
def test_corrected_rate_by_plain_reading(number: int) -> None:
    cases = made(random.Random(number), seeds=40, judged=0.4)
    cases += [(41, "adjective", True, None, 1.0)]  # a class without any judgement
    (rate,) = corrected_rate(sums_of(cases).sum(axis=0)[None])
    assert rate == pytest.approx(slow_rate(cases))


@pytest.mark.slow
def test_intervals_cover() -> None:
    """About 95 % of intervals from 400 simulated studies contain the true rates and difference."""
    rng, covered = random.Random(0), defaultdict[str, list[bool]](list)
    truth = {"changed_good": 0.1, "changed_bad": 0.25, "difference": 0.15, "changed_corrected": 0.1}
    for number in range(400):
        cases = made(rng, seeds=150, judged=0.4, weighted=False)
        row = validity_row(rows_of(cases), settings=Settings(n_bootstrap=300, rng_seed=number))
        assert row is not None
        for key, value in truth.items():
            low, high = row[f"{key}_ci"]
            covered[key].append(low <= value <= high)
    for key, item in covered.items():
        assert 0.92 <= np.mean(item) <= 0.99, (key, np.mean(item))


def test_effective_numbers() -> None:
    """Independent variants count in full; copies of a variant count as one."""
    changed, unit = np.array([1.0, 0, 0, 1, 0]), np.arange(5)
    assert _effective(changed, unit) == pytest.approx((2, 5))
    assert _effective(changed.repeat(3), unit.repeat(3)) == pytest.approx((2, 5))
    assert _effective(np.zeros(6), np.array([0, 0, 0, 1, 1, 1])) == (0, 2)
    for changed in ([1.0, 0, 0], [1.0, 0] * 5):  # a seed varies only by rounding
        assert _effective(np.array(changed), np.zeros(len(changed), int))[1] == 1


def rows_of(cases: Cases, **columns: Any) -> VariantRows:
    """The variants as a table, with seeds that the model answers right."""
    seed, kind, changed, good, weight = zip(*cases, strict=True)
    table = {
        "seed_id": [f"s:{number}" for number in seed], "word_class": kind,
        "seed_right": [True] * len(seed), "changed": changed,
        "good": pa.array([None if item is None else float(item) for item in good], pa.float64()),
        "chance": [1 / item for item in weight], **columns,
    }  # fmt: skip
    return VariantRows("snli", "data", pa.table(table))


def test_a_row_by_plain_reading() -> None:
    cases: Cases = [(n, "noun", n % 3 == 0, n < 20, 1.0 + n % 2) for n in range(50)]
    row = validity_row(rows_of(cases), settings=Settings(n_bootstrap=0))
    assert row is not None
    assert (row["n_good"], row["n_bad"]) == (20, 30)
    assert (row["changed_good"], row["changed_bad"]) == (7 / 20, 10 / 30)
    assert row["changed_good_ci"] == pytest.approx(proportion_confint(7, 20, method="wilson"))
    result = confint_proportions_2indep(10, 30, 7, 20, method="newcomb")
    assert row["difference_ci"] == pytest.approx(result)
    assert row["changed_corrected"] == pytest.approx(slow_rate(cases))
    assert "changed_corrected_ci" not in row
    without = Settings(n_bootstrap=0)
    unknown = validity_row(rows_of(cases, chance=[None] + [0.5] * 49), settings=without)
    even = validity_row(rows_of([(*case[:4], 1.0) for case in cases]), settings=without)
    assert unknown == even != row
    some = rows_of(cases, seed_premise=[str(n // 10) for n in range(50)])
    alike = validity_row(some, cluster="premise", settings=Settings(n_bootstrap=50))
    assert alike is not None
    assert alike["changed_good"] == row["changed_good"]
    assert alike["changed_good_ci"] != row["changed_good_ci"]
    same: Cases = [(*case[:2], False, *case[3:]) for case in cases]
    assert "changed_corrected_ci" not in (validity_row(rows_of(same)) or {})
    nobody: Cases = [(*case[:3], None, 1.0) for case in cases]
    assert validity_row(rows_of(nobody)) is None


@pytest.mark.slow
def test_command_and_report(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "data")
    write_session(tmp_path / "study", folder, per_class=40)
    rows = [
        {"variant_id": name, "seed_id": seed, "label": 0, "prediction": int(hash_of(name) % 4 == 0)}
        for path in folder.rglob("*.parquet")
        for name, seed in zip(*read_table(path, ["variant_id", "seed_id"]).columns, strict=True)
        for name, seed in [(name.as_py(), seed.as_py())]
    ]
    predictions = write_predictions(tmp_path / "model.parquet", rows)
    common = (predictions, "--dataset", folder, "--n-bootstrap", 50)
    judged = (*common, "--annotations", tmp_path / "study")
    (row,) = json.loads(run("analyse", "validity", *judged, "--format", "json").stdout)["rows"]
    assert row["n_good"] + row["n_bad"] <= 120
    for name in ("report.json", "report.md", "report.html"):
        out = tmp_path / name
        run("report", *judged, "--out", out)
        if name == "report.json":
            assert json.loads(out.read_text())["validity"]["rows"] == [row]
        else:
            assert f"{100 * row['changed_good']:.1f}" in out.read_text()
            assert "Korn and Graubard" in out.read_text()
    run("analyse", "validity", *judged, "--out", tmp_path / "x.svg")
    other = tmp_path / "other.csv"
    other.write_text("annotator,variant_id,fluency,reasoning\nann,snli:x/noun/a/b,5,5\n")
    told = refused("analyse", "validity", *common, "--annotations", other)
    assert "are they of another dataset?" in told


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[dict[str, Any]]]:
    """A dataset with qualities, answers that change more on bad variants, and its variants."""
    rng, folder = random.Random(3), tmp_path_factory.mktemp("rated")
    seeds, variants, answers = [], [], []
    for number in range(90):
        seed = seed_row(f"snli:{number}", ("A girl runs.", "A girl moves."), 0)
        seeds.append(seed)
        own = rng.random() < 0.2  # neutral, which is wrong
        answers.append({**seed, "prediction": own})
        for letter in "abcdefghi"[: rng.randint(2, 9)]:
            quality = None if rng.random() < 0.1 else rng.random()
            row = variant_row(seed, "noun", "girl", letter, {}, quality=quality, subsamples=[])
            changed = rng.random() < 0.3 * (1 - (quality or 0))
            about = {"changed": changed, "seed_right": not own, "right": own == changed}
            variants.append(row | about)
            answers.append({**row, "prediction": own != changed})
    data = write_source(folder / "data", seeds, variants)
    for split, rows in (("seeds", seeds), ("variants", variants)):
        for name in {config_files(config)[split][0] for config in ("snli", "snli_nouns")}:
            write_rows(data / name, rows, NLI.with_optional(["quality"]))
    kept = ("variant_id", "seed_id", "label", "prediction")
    given = [{key: int(a[key]) if key == "prediction" else a[key] for key in kept} for a in answers]
    return data, write_predictions(folder / "model.parquet", given), variants


Rated = tuple[Path, Path, list[dict[str, Any]]]


def test_good_variants_by_plain_reading(rated: Rated) -> None:
    data, predictions, variants = rated
    table, _ = analyse("good", predictions, data, configs="snli", n_bootstrap=60)
    whole, good = table.rows
    limit = statistics.median(v["quality"] for v in variants if v["quality"] is not None)
    assert good["limit"] == pytest.approx(limit)
    groups = defaultdict[str, list[dict[str, Any]]](list)
    for variant in variants:
        groups[variant["seed_id"]].append(variant)
    chosen = {
        seed: best
        for seed, rows in groups.items()
        if (best := [r for r in rows if r["quality"] is not None and r["quality"] >= limit])
    }
    right = [rows for rows in chosen.values() if rows[0]["seed_right"]]
    for row in (whole, good):
        assert row["n_seeds"] == len(chosen) < len(groups)
        assert row["seed_accuracy"] == len(right) / len(chosen)
        assert row["variants_per_seed"] == statistics.mean(map(len, chosen.values()))
    held = [sum(r["right"] for r in rows) >= 0.9 * len(rows) for rows in chosen.values()]
    assert good["seed_variant_accuracy"] == pytest.approx(statistics.mean(held))
    changed = [any(r["changed"] for r in rows) for rows in right]
    assert good["relaxed_fooling_rate"] == pytest.approx(statistics.mean(changed))
    # On draws without replacement the rate is known but for chance.
    expected = []
    for rows in right:
        n, m = len(groups[rows[0]["seed_id"]]), len(rows)
        steady = sum(not r["changed"] for r in groups[rows[0]["seed_id"]])
        expected.append(1 - comb(steady, m) / comb(n, m))
    assert whole["relaxed_fooling_rate"] == pytest.approx(statistics.mean(expected), abs=0.05)
    gap = good["relaxed_fooling_rate"] - whole["relaxed_fooling_rate"]
    assert good["relaxed_fooling_rate_difference"] == pytest.approx(gap)
    low, high = good["relaxed_fooling_rate_difference_ci"]
    assert low < gap < high < 0


def test_good_variants_in_commands(rated: Rated, tmp_path: Path) -> None:
    data, predictions, variants = rated
    common = (predictions, "--dataset", data, "--config", "snli", "--n-bootstrap", 60)
    whole, good = json.loads(run("analyse", "good", *common, "--format", "json").stdout)["rows"]
    scored = json.loads(run("score", *common, "--good", "--format", "json").stdout)
    assert scored["good"]["rows"] == [whole, good]
    text = run("score", *common, "--good").stdout
    assert "Good variants beside as many of all" in text
    assert scored["results"]["snli"]["signature"] in text
    assert run("analyse", "good", *common, "--format", "csv").stdout.count("as many of all") == 1
    run("report", *common, "--out", tmp_path / "r.json")
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["good"]["rows"] == [whole, good]
    points = -100 * good["relaxed_fooling_rate_difference"]
    (sentence,) = [s for s in report["configurations"][0]["findings"] if "Bad variants" in s]
    assert sentence.startswith(
        f"Bad variants account for {points:.1f} points of these changes (95 %"
    )
    # With judgements, those judged good instead: every variant, so nothing differs.
    judged = tmp_path / "judged.csv"
    lines = [f"ann,{v['variant_id']},5,5" for v in variants]
    judged.write_text("\n".join(["annotator,variant_id,fluency,reasoning", *lines, ""]))
    told = run("analyse", "good", *common, "--annotations", judged, "--format", "json").stdout
    whole, good = json.loads(told)["rows"]
    assert good["limit"] is None
    assert good["relaxed_fooling_rate"] == whole["relaxed_fooling_rate"]
    assert good["relaxed_fooling_rate_difference_ci"] == [0, 0]
    other = write_dataset(tmp_path / "unrated")
    told = refused("analyse", "good", predictions, "--dataset", other, "--config", "snli")
    assert "ids that none of its configurations holds" in told


def hash_of(text: str) -> int:
    return int(hashlib.md5(text.encode()).hexdigest(), 16)


@pytest.mark.slow
@pytest.mark.real
def test_on_the_judged_variants(shared_models: Path, tmp_path: Path) -> None:
    """Figures of the page: small models on the 585 variants that a language model judged."""
    page = (Path(__file__).parents[3] / "merge_metric/analyses.md").read_text(encoding="utf-8")
    folder, shares, changes = write_judged(tmp_path / "data"), [], 0.0
    for name in ("bert-tiny-nli", "minilm-l6-nli"):
        evaluation = evaluate_model(str(shared_models / name), folder, n_bootstrap=0)
        table, _ = analyse("validity", evaluation, folder, annotations=list(map(str, JUDGED)))
        for part in ("good", "bad"):
            sizes = [row[f"n_{part}"] for row in table.rows]
            rates = [row[f"changed_{part}"] for row in table.rows]
            shares.append(f"{100 * np.average(rates, weights=sizes):.1f}")
            changes += np.dot(rates, sizes)
    text = " ".join(page.split())
    assert "{} and {} % of bert-tiny-nli, {} and {} % of minilm-l6-nli".format(*shares) in text
    assert f"these are only {round(changes)} changes" in text
