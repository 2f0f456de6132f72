"""Fooling rates, sizes, shift and calibration: by hand, by scikit-learn and by plain loops."""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.analysed import given, make_run, run
from helpers.dataset_files import write_predictions
from helpers.metric_oracle import columns, problems
from helpers.sensitivity_data import LETTERS, answer_rows, write_lines
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from merge_dataset.files import write_record
from merge_metric import analyse
from merge_metric.analyses.measures import per_config, values_of_models
from merge_metric.analyses.sensitivity import confidence, fooling, read_sizes, shift, sizes
from merge_metric.frame.answer_table import PredictionsSource
from merge_metric.frame.joined import Frame
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import seed_weights

RELAXED = "relaxed_fooling_rate"


def test_labels_without_a_right_answer_have_no_rate() -> None:
    table = fooling(given(run(problems("E E EN", "N E NN"), subsamples=False)))
    (row,) = table.rows
    assert (row["n_right_neutral"], row[f"{RELAXED}_neutral"]) == (0, None)
    assert row[f"{RELAXED}_contradiction"] is None
    assert "–" in table.to_text()
    (row,) = fooling(given(run(problems("N E NN"), subsamples=False))).rows
    assert (row["n_right"], row[RELAXED], row[f"{RELAXED}_ci"]) == (0, None, None)


def line_frame(model: str, config: str, *lines: str) -> Frame:
    return run(problems(*lines), model, config, subsamples=False)


def test_averages_over_models_and_sources() -> None:
    runs = [
        line_frame("a", "snli_paraphrases", "E E C", "E E E", "E E E", "E E E"),  # 1/4
        line_frame("a", "mnli-m_paraphrases", "E E C", "C N C"),  # 1/1
        line_frame("b", "snli_paraphrases", "E E C", "C C E"),  # 2/2
        line_frame("b", "snli", "E E E"),  # replacements
    ]
    rows = fooling(given(*runs), settings=Settings(n_bootstrap=0)).rows
    assert [row["averaged"] for row in rows[:4]] == [None] * 4
    averages = {(row["config"], row["model"]): row for row in rows[4:]}
    assert list(averages) == [("snli_paraphrases", "(mean)"), ("(all paraphrases)", "a")]
    mean = averages["snli_paraphrases", "(mean)"]
    assert (mean[RELAXED], mean["n_right"], mean["averaged"]) == (0.625, 6, "models")
    every = averages["(all paraphrases)", "a"]
    assert (every[RELAXED], every["n_right"], every["averaged"]) == (2 / 5, 5, "configurations")
    assert every[f"{RELAXED}_contradiction"] is None  # answered wrong in the only source with one


def test_averages_by_numbers_of_problems(tmp_path: Path) -> None:
    lines = {
        "snli": ("E E C", "E E E", "E E E", "E E E"),  # 1/4, of 100 problems
        "mnli-m": ("E E C", "C N C"),  # 1/1, of 300
        "anli-r1": ("N N E", "N N N"),  # 1/2, of 50
    }
    runs = []
    for source, n in (("snli", 100), ("mnli-m", 300), ("anli-r1", 50)):
        (tmp_path / source).mkdir()
        write_record(tmp_path / source / "provenance.json", {"problems": {"kept": n}})
        for model in "ab":
            runs.append(replace(line_frame(model, source, *lines[source]), folder=tmp_path))
    table = fooling(given(*runs), in_domain=["mnli-m"], settings=Settings(n_bootstrap=0))
    result = {
        (row["config"], row["model"], row["weighted_by"]): (row[RELAXED], row["n_right"])
        for row in table.rows
        if row["averaged"] == "configurations"
    }
    for model, times in (("a", 1), ("b", 1), ("(mean)", 2)):
        assert result["(all)", model, "right"] == (pytest.approx(3 / 7), 7 * times)
        assert result["(all)", model, "problems"] == (pytest.approx(350 / 450), 7 * times)
        assert result["(out of domain)", model, "right"] == (pytest.approx(2 / 6), 6 * times)
        assert result["(out of domain)", model, "problems"] == (pytest.approx(50 / 150), 6 * times)
    assert len(result) == 12
    with pytest.raises(ValueError, match="predictions, anli-r1, mnli-m, snli, got mnli-mm"):
        fooling(given(*runs), in_domain=["mnli-mm"])
    (tmp_path / "snli" / "provenance.json").unlink()
    table = fooling(given(*runs), settings=Settings(n_bootstrap=0))
    assert not any(row.get("weighted_by") == "problems" for row in table.rows)


def rows_of(*values: tuple[str, str, float]) -> list[dict[str, Any]]:
    return [
        {"config": config, "model": model, "averaged": None, "x": x, "n": 1}
        for config, model, x in values
    ]


def test_rounds_of_anli_are_one_source() -> None:
    """ANLI counts as one source: the mean over rounds of means over models."""
    rows = rows_of(
        ("snli", "a", 0.5), ("anli-r1", "a", 0.1), ("anli-r1", "b", 0.3), ("anli-r2", "a", 0.8),
        ("anli-r3_paraphrases", "a", 0.9),
    )  # fmt: skip
    result = per_config(rows, ["x"], ["n"])
    assert [(r["config"], r["model"], r["averaged"], r["n"]) for r in result] == [
        ("snli", "a", None, 1),
        ("anli", "(mean)", "rounds", 3),
        ("anli-r3_paraphrases", "a", None, 1),
    ]
    assert [r["x"] for r in result] == pytest.approx([0.5, 0.5, 0.9])
    apart = per_config(rows, ["x"], merge_rounds=False)
    assert [r["config"] for r in apart] == ["snli", "anli-r1", "anli-r2", "anli-r3_paraphrases"]
    (whole,) = per_config(rows_of(("anli-r1", "a", 0.1), ("anli-r3", "a", 0.3)), ["x"])
    assert (whole["model"], whole["averaged"], whole["x"]) == ("a", "rounds", 0.2)


def sources_of(
    folder: Path, described: Mapping[str, dict[str, Any] | None]
) -> list[PredictionsSource]:
    """Files of predictions by models of these descriptions."""
    row = [{"variant_id": "x"}]
    return [
        PredictionsSource(name, write_predictions(folder / f"{name}.parquet", row, description))
        for name, description in described.items()
    ]


def test_sizes_are_in_order_of_configuration_family_and_size(tmp_path: Path) -> None:
    of = {"large": (300, "Bert"), "base": (100, "Bert"), "other": (200, "Roberta")}
    described = {m: {"parameters": n, "architecture": f"{f}Model"} for m, (n, f) in of.items()}
    runs = [line_frame(m, c, "E E C", "C C C") for c in ("snli", "mnli-m") for m in of]
    sources = tuple(sources_of(tmp_path, described))
    table = sizes(given(*runs, sources=sources), settings=Settings(n_bootstrap=0))
    assert [(r["config"], r["model"], r["parameters"], r["family"]) for r in table.rows] == [
        (config, model, *of[model])
        for config in ("snli", "mnli-m")
        for model in ("base", "large", "other")
    ]
    assert {row[RELAXED] for row in table.rows} == {0.5}


def test_sizes_are_read_from_the_predictions(tmp_path: Path) -> None:
    described = {
        "bert": {"parameters": 110, "architecture": "BertForSequenceClassification"},
        "xl": {"parameters": 900, "architecture": "DebertaV2ForSequenceClassification"},
        "gpt": {"parameters": 124, "architecture": "GPT2LMHeadModel"},
        "mine": None,
    }
    sources = sources_of(tmp_path, described)
    assert read_sizes(sources, ["mine=7", "xl=901"]) == {
        "bert": (110, "Bert"), "xl": (901, "DebertaV2"), "gpt": (124, "GPT2"),
        "mine": (7, "other"),
    }  # fmt: skip
    twice = [PredictionsSource("bert", sources[0].path), PredictionsSource("bert", sources[1].path)]
    with pytest.raises(ValueError, match="got 110 and 900 from its predictions; add --size bert="):
        read_sizes(twice, [])


def test_values_of_models(tmp_path: Path) -> None:
    numbers = {"86M": 86_000_000, "1.5B": 1_500_000_000, "4386178": 4_386_178, "2k": 2000}
    sources = sources_of(tmp_path, {"x": None})
    for text, number in numbers.items():
        assert read_sizes(sources, [f"x={text}"]) == {"x": (number, "other")}
    assert values_of_models("groups", ["a=b=1M"], ["a=b"], "x=1") == {"a=b": "1M"}
    for text in ("c=1M", "86M", "=86M", "x=", "x=86G", "x=-1", "x=1e6"):
        with pytest.raises(ValueError, match=f"sizes: .* once for each of x, got '{text}'"):
            read_sizes(sources, [text])
    with pytest.raises(ValueError, match="got 'x=2M'"):
        read_sizes(sources, ["x=1M", "x=2M"])


BINS = 4
Made = tuple[Path, Path, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A dataset, predictions with probabilities for it, and their rows."""
    folder, rng = tmp_path_factory.mktemp("calibrated"), random.Random(4)
    lines = [
        f"{rng.choice(LETTERS)} {rng.choice(LETTERS)} "
        f"{''.join(rng.choices(LETTERS, k=rng.randint(1, 6)))}"
        for _ in range(30)
    ]
    dataset = write_lines(folder / "merge-nli", "snli", lines)
    rows = answer_rows("snli", lines)
    return dataset, write_predictions(folder / "m.parquet", rows), rows


def test_figures_are_those_of_scikit_learn(made: Made) -> None:
    dataset, file, rows = made
    table, _ = analyse("calibration", file, dataset, bins=BINS, n_bootstrap=20)
    seeds, variants = table.rows
    own = {row["seed_id"]: row for row in rows if row["variant_id"] == row["seed_id"]}
    others = [row for row in rows if row["variant_id"] != row["seed_id"]]
    for of, row in ((list(own.values()), seeds), (others, variants)):
        sure = np.array([max(answer["probabilities"]) for answer in of])
        right = np.array([answer["prediction"] == answer["label"] for answer in of])
        shares, means = calibration_curve(right, sure, n_bins=BINS, strategy="quantile")
        edges = np.quantile(sure, np.linspace(0, 1, BINS + 1))[1:-1]
        sizes = np.bincount(np.searchsorted(edges, sure), minlength=BINS)
        assert row["n"] == len(of) == sizes.sum()
        assert np.allclose(row["curve"], [means, shares])
        assert row["ece"] == pytest.approx((sizes * abs(shares - means)).sum() / len(of))
        assert row["brier"] == pytest.approx(brier_score_loss(right, sure))
        assert row["reliability"] == pytest.approx((sizes * (shares - means) ** 2).sum() / len(of))
        of_means = (sizes * (means**2 - 2 * means * shares + shares)).sum() / len(of)
        parts = row["reliability"] - row["resolution"] + row["uncertainty"]
        assert parts == pytest.approx(of_means)
        assert row["ece_ci"][0] <= row["ece_ci"][1]
    changed = [row["prediction"] != own[row["seed_id"]]["prediction"] for row in others]
    means = [
        np.mean([max(r["probabilities"]) for r, c in zip(others, changed, strict=True) if c == of])
        for of in (False, True)
    ]
    assert variants["drop"] == pytest.approx(means[1] - means[0])
    assert seeds["drop"] is None


def test_intervals_are_those_of_repeated_seeds(made: Made) -> None:
    """Each resampling is the data with a seed's rows as often as it was drawn; bins stay."""
    dataset, file, rows = made
    table, _ = analyse("calibration", file, dataset, bins=BINS, n_bootstrap=40, rng_seed=3)
    others = [row for row in rows if row["variant_id"] != row["seed_id"]]
    sure = np.array([max(row["probabilities"]) for row in others])
    bins = np.searchsorted(np.quantile(sure, np.linspace(0, 1, BINS + 1))[1:-1], sure)
    ids = sorted({row["seed_id"] for row in rows})
    values = []
    (weights,) = seed_weights(len(ids), Settings(n_bootstrap=40, rng_seed=3))
    for drawn in weights:
        times = dict(zip(ids, drawn.astype(int).tolist(), strict=True))
        sums = np.zeros((BINS, 2))
        for row, of_answer, bin_of in zip(others, sure, bins, strict=True):
            right = row["prediction"] == row["label"]
            sums[bin_of] += np.array([1, of_answer - right]) * times[row["seed_id"]]
        values.append(abs(sums[:, 1]).sum() / sums[:, 0].sum())
    assert table.rows[1]["ece_ci"] == pytest.approx(np.quantile(values, [0.025, 0.975]).tolist())


def test_where_nothing_changes_there_is_nothing_to_say() -> None:
    sure = dict.fromkeys(("probabilities", "seed_probabilities"), [[0.8, 0.1, 0.1]] * 2)
    one = make_run("a", "snli", columns(problems("E E EE")) | sure)
    (row,) = shift(given(one)).rows
    assert (row["n_changed"], row["jsd_changed"], row["ks_changed"]) == (0, None, None)
    assert row["jsd_unchanged"] is not None
    notes = shift(given(one)).notes + confidence(given(one)).notes
    assert not any("Changed less" in note for note in notes)
    assert "–" in shift(given(one)).to_text()
