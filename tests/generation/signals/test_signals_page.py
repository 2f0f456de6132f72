"""The figures of signals.md, computed from judged variants and their signals."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fit_quality import (
    BEFORE,
    CHANGES,
    CHOSEN,
    LIMITS,
    interval,
    on_others,
    out_of_fold,
    read_judged,
    together,
)
from helpers.judged import DATA, JUDGED, answers_of

from merge_metric.agreement.shares import wilson
from merge_metric.analyses.variant_rows import read_judgements

Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

PAGE = (Path(__file__).parents[3] / "generation/signals.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Sample:
    """Judged variants with their signals."""

    rows: list[dict[str, str]]
    good: Bools
    mended: Bools
    """Whether a wrong article is the only fault, which --repair-articles mends."""

    def of(self, name: str) -> Floats:
        """Values of a signal; NaN if unknown."""
        values = {"": float("nan"), "true": 1.0, "false": 0.0}
        return np.array([values[v] if v in values else float(v) for v in self.texts(name)])

    def texts(self, name: str) -> list[str]:
        return [row[name] for row in self.rows]


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """The samples of 330 and of 255 variants."""
    found = []
    for folder in JUDGED:
        with (folder / "signals.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        judged = read_judgements([folder])
        good = dict(zip(judged["variant_id"].to_pylist(), judged["good"].to_pylist(), strict=True))
        first = answers_of(sorted((folder / "answers").glob("*.csv"))[0])
        ids = [row["variant_id"] for row in rows]
        article = [(first[name].comment or "").split()[:1] == ["article"] for name in ids]
        found.append(Sample(rows, np.array([good[i] == 1 for i in ids]), np.array(article)))
    return found


def test_page_has_what_filters_keep(samples: list[Sample]) -> None:
    expected = []
    strict = [
        (each.of("number_changed") != 1) & (each.of("tense_changed") != 1) for each in samples
    ]
    every = [np.ones(len(each.rows), bool) for each in samples]
    for name, kept in (("nothing (`paper-v2`)", every), ("the recipe `strict`", strict)):
        cells: list[str] = []
        for sample, chosen in zip(samples, kept, strict=True):
            good = sample.good | (sample.mended if "recipe" in name else False)
            n, n_good = int(chosen.sum()), int((chosen & good).sum())
            low, high = (round(100 * bound) for bound in wilson(n_good, n))
            cells += [str(n), f"{round(100 * n_good / n)} [{low}, {high}]"]
        lost = round(100 * float((samples[1].good & ~chosen).sum() / samples[1].good.sum()))
        cells.append("" if chosen.all() else str(lost))
        expected.append(re.sub(" +", " ", f"| {name} | {' | '.join(cells)} |"))
    for line in expected:
        assert line in PAGE


def wins(score: Floats, good: Bools) -> Floats:
    """For each good (row) and bad variant (column): 1 if the good one has more; ties are ½."""
    better: Floats = (np.sign(score[good][:, None] - score[~good]) + 1) / 2
    return better


def cell(good: Bools, score: Floats) -> str:
    """Return AUC and its interval by DeLong et al. (1988), for variants with a known signal."""
    known = ~np.isnan(score)
    won = wins(score[known], good[known])
    off = 1.96 * np.sqrt(sum(won.mean(axis=n).var(ddof=1) / won.shape[1 - n] for n in (0, 1)))
    ends = f"{won.mean():.2f} [{won.mean() - off:.2f}, {won.mean() + off:.2f}]".replace("0.", ".")
    return ends + (f" of {int(known.sum())}" if not known.all() else "")


@pytest.mark.slow
def test_page_has_what_signals_tell(samples: list[Sample]) -> None:
    negative = {"number_changed", "tense_changed", "in_compound", "mean_rank"}
    scores: dict[str, list[Floats]] = {
        "lower change of log-likelihood by SmolLM2-135M": [
            np.minimum(*(each.of(name) for name in CHANGES)) for each in samples
        ]
    }
    for name in ("valency", "number_changed", "article_fits", "tense_changed", "number_agrees",
                 "form_attested", "mlm_count", "mean_rank", "neighbour_change", "in_compound",
                 "zipf_frequency"):  # fmt: skip
        sign = -1 if name in negative else 1
        scores[f"`{name}`"] = [sign * each.of(name) for each in samples]
    for name, of_samples in scores.items():
        cells = [cell(each.good, score) for each, score in zip(samples, of_samples, strict=True)]
        assert f"| {name} | {' | '.join(cells)} |" in PAGE
    page = " ".join(PAGE.split())
    low = [each.of("valency") < -1 for each in samples]
    verbs = sum(each.texts("word_class").count("verb") for each in samples)
    bad = sum(int((chosen & ~each.good).sum()) for chosen, each in zip(low, samples, strict=True))
    left_out = sum(int(each.sum()) for each in low)
    assert f"leaves out {left_out} of {verbs} verbs, and {bad} of these are bad" in page
    cost = [round(100 * float((each.of("in_compound") == 1)[each.good].mean())) for each in samples]
    assert f"costs {cost[0]} to {cost[1]} % of the good ones" in page


@pytest.mark.slow
def test_page_has_what_quality_tells() -> None:
    first, second = map(read_judged, JUDGED)
    judged, limits = together(first, second), [[f"{limit}"] for limit in LIMITS]
    plain, good = out_of_fold(judged, BEFORE)
    page = " ".join(PAGE.split())
    for name, chosen in (
        ("by grammar alone, as in 1.0.0", BEFORE),
        ("and ranks, which every build knows", CHOSEN["grammar"]),
        ("and neighbours by the masked LMs", CHOSEN["neighbours"]),
        ("and ranks and a causal LM", CHOSEN["likelihood"]),
    ):
        found, _ = out_of_fold(judged, chosen)
        others, good_others = on_others(first, second, chosen)
        cells = [cell(good > 0, found), cell(good_others > 0, others)]
        if chosen != BEFORE:
            low, high = interval(found, good, plain)
            more = wins(found, good > 0).mean() - wins(plain, good > 0).mean()
            cells.append(f"{more:.2f} [{low:.2f}, {high:.2f}]".replace("0.", "."))
            for limit, row in zip(LIMITS, limits, strict=True):
                kept = found >= limit
                n, n_good = int(kept.sum()), int(good[kept].sum())
                low, high = (100 * bound for bound in wilson(n_good, n))
                row += [f"{round(100 * n / len(good))} %",
                        f"{round(100 * n_good / n)} [{round(low)}, {round(high)}]"]  # fmt: skip
        assert f"| {name} | {' | '.join(cells)}" in PAGE, (name, cells)
    for row in limits:
        assert f"| {' | '.join(row)} |" in PAGE, row
    both, _ = out_of_fold(judged, (*CHOSEN["likelihood"], "neighbour_change"))
    likelihood, _ = out_of_fold(judged, CHOSEN["likelihood"])
    low, high = interval(both, good, likelihood)
    more = wins(both, good > 0).mean() - wins(likelihood, good > 0).mean()
    said = f"{more:.3f} [{low:.3f}, {high:.3f}]".replace("0.", ".").replace("-", "−")
    assert f"add nothing that shows ({said})" in page, said


def test_page_has_the_labels_doubted() -> None:
    folders = (*JUDGED, DATA / "judged_options")
    reasoning = [np.array(read_judgements([each])["reasoning"].to_pylist()) for each in folders]
    doubted, judged = sum(int((each < 4).sum()) for each in reasoning), sum(map(len, reasoning))
    assert f"judged variants ({doubted} of {judged:,}) it should not" in " ".join(PAGE.split())
