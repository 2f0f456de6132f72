"""The figures of signals.md, computed from judged variants and their signals."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fit_quality import (
    CHANGES,
    CHOSEN,
    LIMITS,
    out_of_fold,
    read_judged,
    together,
)
from helpers.judged import DATA, JUDGED, answers_of

from generation.signals.signal_columns import GRAMMAR, LIKELIHOOD, NEIGHBOURS
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


def together_of(samples: list[Sample]) -> Sample:
    return Sample(
        [row for each in samples for row in each.rows],
        np.concatenate([each.good for each in samples]),
        np.concatenate([each.mended for each in samples]),
    )


def share(good: int, n: int) -> str:
    low, high = (round(100 * bound) for bound in wilson(good, n))
    return f"{round(100 * good / n)} % [{low}, {high}]"


def test_page_has_what_filters_keep(samples: list[Sample]) -> None:
    both = together_of(samples)
    kept = (both.of("number_changed") != 1) & (both.of("tense_changed") != 1)
    good = both.good | both.mended
    n, n_good = len(kept), int(both.good.sum())
    lost = round(100 * float((both.good & ~kept).sum() / n_good))
    assert (
        f"Of these {n}, {share(n_good, n)} are good. `strict` keeps {round(100 * kept.mean())} %, "
        f"of which {share(int((kept & good).sum()), int(kept.sum()))} are good, and loses {lost} % "
        "of the good ones"
    ) in " ".join(PAGE.split())


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


def test_page_has_what_signals_tell(samples: list[Sample]) -> None:
    both = together_of(samples)
    negative = {"number_changed", "tense_changed", "in_compound", "mean_rank"}
    scores = {"`, `".join(CHANGES): np.minimum(*(both.of(name) for name in CHANGES))}
    for name in ("mlm_count", "zipf_frequency", "number_changed", "tense_changed", "article_fits",
                 "form_attested", "number_agrees", "determiner_fits", "in_compound",
                 "mean_rank", "neighbour_change"):  # fmt: skip
        scores[name] = both.of(name) * (-1 if name in negative else 1)
    told = dict(re.findall(r"^\| `(.*)` \| .* \| (\.\d.*) \|$", PAGE, flags=re.MULTILINE))
    assert scores.keys() | {"quality"} == told.keys()
    for name, score in scores.items():
        assert told[name] == cell(both.good, score), name
    page = " ".join(PAGE.split())
    cost = [round(100 * float((each.of("in_compound") == 1)[each.good].mean())) for each in samples]
    assert f"costs {cost[0]} to {cost[1]} % of the good ones" in page


@pytest.mark.slow
def test_page_has_what_quality_tells() -> None:
    judged, table = together(*map(read_judged, JUDGED)), [[f"{limit}"] for limit in LIMITS]
    ranks = ["AUC"]
    for name in (GRAMMAR, NEIGHBOURS, LIKELIHOOD):
        found, good = out_of_fold(judged, CHOSEN[name])
        ranks += ["", cell(good > 0, found)]
        for limit, row in zip(LIMITS, table, strict=True):
            kept = found >= limit
            n, n_good = int(kept.sum()), int(good[kept].sum())
            row += [f"{round(100 * n / len(good))} %", share(n_good, n).replace(" %", "")]
    for row in (*table, ranks):
        assert re.sub(" +", " ", f"| {' | '.join(row)} |") in PAGE, row
    assert re.search(rf"^\| `quality` .* \| {re.escape(ranks[2])} \|$", PAGE, flags=re.MULTILINE)


def test_page_has_the_labels_doubted() -> None:
    folders = (*JUDGED, DATA / "judged_options")
    reasoning = [np.array(read_judgements([each])["reasoning"].to_pylist()) for each in folders]
    doubted, judged = sum(int((each < 4).sum()) for each in reasoning), sum(map(len, reasoning))
    assert f"judged variants ({doubted} of {judged:,}) it should not" in " ".join(PAGE.split())
