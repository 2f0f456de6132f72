"""The judged variants, on which signals are measured, are as their page describes them."""

import csv
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fit_quality import CHANGES, CHOSEN, LIMITS, out_of_fold, read_judged
from helpers.judged import DATA, answers_of
from helpers.judged import JUDGED as SAMPLES

from generation.variants.signal_columns import GRAMMAR, LIKELIHOOD, NEIGHBOURS, shipped
from merge_dataset.annotation import is_good, read_session
from merge_metric.agreement.shares import wilson
from merge_metric.analyses.variant_rows import mean_judgements


@pytest.mark.parametrize(
    ("folder", "count", "passes"), [(SAMPLES[0], 330, 2), (SAMPLES[1], 255, 1)]
)
def test_pages_of_samples_have_the_counts(folder: Path, count: int, passes: int) -> None:
    """Each variant is of a problem of its own, and judged in every pass."""
    items = read_session(folder).items
    assert len(items) == len({item.seed_id for item in items.values()}) == count
    given = [answers_of(path) for path in sorted((folder / "answers").glob("*.csv"))]
    assert len(given) == passes
    for answers in given:
        assert answers.keys() == items.keys()
        for answer in answers.values():
            assert is_good(answer.fluency + answer.reasoning) == (not answer.comment)
    counts: Counter[tuple[str, str, bool]] = Counter()
    faults: Counter[str] = Counter()
    for variant, item in items.items():
        of = [answers[variant] for answers in given]
        good = is_good(sum(judged.fluency + judged.reasoning for judged in of), len(of))
        counts[item.source, item.word_class, good] += 1
        if not good:
            faults[of[-1].comment or of[0].comment] += 1
    page = " ".join((folder / "README.md").read_text(encoding="utf-8").split())
    require_figures(page, counts, faults)


def test_samples_are_of_other_problems() -> None:
    first, fresh = ({i.seed_id for i in read_session(f).items.values()} for f in SAMPLES)
    assert first.isdisjoint(fresh)


def require_figures(page: str, counts: dict[tuple[str, str, bool], int], faults: Any) -> None:
    for source in {source for source, *_ in counts}:
        cells = [
            f"{counts[source, item, True]} of "
            f"{counts[source, item, True] + counts[source, item, False]}"
            for item in ("noun", "verb", "adjective")
        ]
        heading = {"snli": "SNLI", "mnli-m": "MultiNLI matched"}[source]
        assert f"| {heading} | {' | '.join(cells)} |" in page
    good = sum(n for (*_, is_good), n in counts.items() if is_good)
    assert f"Together {good} of {sum(counts.values())}" in page
    text = re.search(r"Faults of the others: (.*?)\. ", page)
    assert text
    assert text[1] == ", ".join(f"{count} {name}" for name, count in faults.most_common())


ROOT = Path(__file__).parents[3]
OPTIONS = ROOT / "tests/data/judged_options"


def interval(values: list[float], problems: list[str]) -> str:
    """A 95 % interval of a mean, in percent, by bootstrap over problems."""
    unit = np.unique(problems, return_inverse=True)[1]
    sums: tuple[Any, ...] = np.bincount(unit, values), np.bincount(unit)
    drawn = np.random.default_rng(0).integers(len(sums[0]), size=(20_000, len(sums[0])))
    total, n = (item[drawn].sum(axis=1) for item in sums)
    low, high = np.percentile(100 * total / n, [2.5, 97.5])
    return f"[{low:.0f}, {high:.0f}]"


GONE = ("pairs", "pieces")
"""Options that were judged and then taken out, so no page has them."""


def test_pages_have_the_counts() -> None:
    gained: list[tuple[float, str]] = []
    items = read_session(OPTIONS).items
    answers = answers_of(OPTIONS / "answers/first-pass.csv")
    assert answers.keys() == items.keys()
    assert len(items) == 500
    page = (OPTIONS / "README.md").read_text(encoding="utf-8")
    beyond = (ROOT / "generation/README.md").read_text(encoding="utf-8")
    for option in sorted({item.stratum["option"] or "" for item in items.values()}):
        mine = [item for item in items.values() if item.stratum["option"] == option]
        given = [answers[item.variant_id] for item in mine]
        good = [is_good(judged.fluency + judged.reasoning) for judged in given]
        assert [bool(judged.comment) for judged in given] == [not judged for judged in good]
        doubtful = sum(judged.reasoning < 4 for judged in given)
        counts = (len(mine), len({item.seed_id for item in mine}), sum(good), doubtful)
        (row,) = re.findall(rf"^\| `{option}`:.*", page, re.MULTILINE)
        assert row.endswith(f"| {' | '.join(map(str, counts))} |")
        if option in GONE:
            continue
        (row,) = re.findall(rf"^\| .*\| `{option}` \|.*", beyond, re.MULTILINE)
        share = round(100 * sum(good) / len(good))
        problems = [item.seed_id for item in mine]
        text = (
            f"| {len(mine)} | {share} {interval(list(map(float, good)), problems)} | {doubtful} |"
        )
        assert text in row
        if sign := {"inflect": 2.0, "left": -2.0}.get(
            option
        ):  # pairs: 2 × the mean of ±1 is the difference
            gained += [(sign * one, problem) for one, problem in zip(good, problems, strict=True)]
    values, of_problems = map(list, zip(*gained, strict=True))
    text = f"{sum(values) / len(values):.0%}"
    text = f"{text.replace('%', ' points')} more {interval(values, of_problems)} of the same 60"
    assert text in beyond


def test_the_second_pass_is_as_the_pages_say() -> None:
    first, second = (
        answers_of(OPTIONS / f"answers/{name}.csv") for name in ("first-pass", "second-pass")
    )
    page = " ".join((OPTIONS / "README.md").read_text(encoding="utf-8").split())
    both = [(first[variant], answer) for variant, answer in second.items()]
    good = [[is_good(item.fluency + item.reasoning) for item in pair] for pair in both]
    assert [not answer.comment for answer in second.values()] == [again for _, again in good]
    same = sum(one == other for one, other in good)
    assert f"{len(both)} of them, drawn at random" in page
    assert f"Good or not is the same for {same}, {100 * same / len(both):.1f} %" in page
    chance = (
        sum(
            sum(one == value for one, _ in good) * sum(other == value for _, other in good)
            for value in (True, False)
        )
        / len(good) ** 2
    )
    kappa = (same / len(both) - chance) / (1 - chance)
    assert f"(Cohen's κ {kappa:.2f} ".replace("0.", ".") in page
    fluency = [abs(one.fluency - other.fluency) for one, other in both]
    assert max(fluency) == 1
    assert f"fluency is the same for {round(100 * fluency.count(0) / len(both))} %" in page


# --- The figures of signals.md ---

Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

SIGNALS = (Path(__file__).parents[3] / "generation/signals.md").read_text(encoding="utf-8")


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
    result = []
    for folder in SAMPLES:
        with (folder / "signals.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        judged = mean_judgements([folder])
        good = dict(zip(judged["variant_id"].to_pylist(), judged["good"].to_pylist(), strict=True))
        first = answers_of(sorted((folder / "answers").glob("*.csv"))[0])
        ids = [row["variant_id"] for row in rows]
        article = [(first[name].comment or "").split()[:1] == ["article"] for name in ids]
        result.append(Sample(rows, np.array([good[i] == 1 for i in ids]), np.array(article)))
    return result


def together_of(samples: list[Sample]) -> Sample:
    return Sample(
        [row for sample in samples for row in sample.rows],
        np.concatenate([sample.good for sample in samples]),
        np.concatenate([sample.mended for sample in samples]),
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
    ) in " ".join(SIGNALS.split())


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
    told = dict(re.findall(r"^\| `(.*)` \| .* \| (\.\d.*) \|$", SIGNALS, flags=re.MULTILINE))
    assert scores.keys() | {"quality"} == told.keys()
    for name, score in scores.items():
        assert told[name] == cell(both.good, score), name


@pytest.mark.slow
def test_page_has_what_quality_tells() -> None:
    judged, table = read_judged(*SAMPLES), [[f"{limit}"] for limit in LIMITS]
    ranks = ["AUC"]
    for name in (GRAMMAR, NEIGHBOURS, LIKELIHOOD):
        result, good = out_of_fold(judged, CHOSEN[name])
        ranks += ["", cell(good > 0, result)]
        for limit, row in zip(LIMITS, table, strict=True):
            kept = result >= limit
            n, n_good = int(kept.sum()), int(good[kept].sum())
            row += [f"{round(100 * n / len(good))} %", share(n_good, n).replace(" %", "")]
    for row in (*table, ranks):
        assert re.sub(" +", " ", f"| {' | '.join(row)} |") in SIGNALS, row
    assert re.search(rf"^\| `quality` .* \| {re.escape(ranks[2])} \|$", SIGNALS, flags=re.MULTILINE)


def test_page_has_how_fits_transfer() -> None:
    for name, numbers in shipped()["fitted"]["auc"].items():
        cells = " | ".join(f"{number:.3f}".removeprefix("0") for number in numbers)
        assert f"| {name} | {cells} |" in SIGNALS


def test_page_has_the_labels_doubted() -> None:
    folders = (*SAMPLES, DATA / "judged_options")
    reasoning = [np.array(mean_judgements([folder])["reasoning"].to_pylist()) for folder in folders]
    doubted, judged = sum(int((item < 4).sum()) for item in reasoning), sum(map(len, reasoning))
    assert f"judged variants ({doubted} of {judged:,}) it should not" in " ".join(SIGNALS.split())
