"""Figures in percent on the pages that users read first: each is checked, cited or defined."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from helpers.judged import JUDGED

from merge_metric.agreement.judgements import read_judgements

ROOT = Path(__file__).parents[1]

PAGES: Final = (
    "README.md",
    "docs/pypi.md",
    "generation/README.md",
    "generation/demo/bert-tiny-mlm/README.md",
    "merge_dataset/README.md",
    "merge_dataset/card/text.py",
    "merge_metric/README.md",
    "merge_metric/demo/bert-tiny-nli/README.md",
    "merge_metric/seed_variant_accuracy/README.md",
)

FIGURE = re.compile(r"\d[\d.]*(?: to \d+)? (?:%|in a hundred)")

CITED: Final = {
    "by 4 to 20 % worse where one word is replaced": "https://arxiv.org/abs/2510.24295v1",
}
"""Claim → what must be cited in the same paragraph."""

DESCRIBED: Final = {
    "20 % of the tokens are masked (of these 85 % by `[MASK]`, 10 % kept, 5 % random)",
    "42 % top-1 and 61 % top-5 accuracy on held-out masked tokens",
    "73.6 % of 1,500 pairs of SNLI's development set and 73.0 % of 1,000",
}
"""Figures of how the bundled models were trained, which came with their weights."""

DEFINED: Final = (
    r"at least (?:a given )?90 % of the variants",
    r"if 90 % of their variants have to be",
    r"at least CT percent, say 90 %",
    r"95 % interval",
    r"\[low, high\], 95 %",
    r"so 100 % is not what a perfect model gets",
    r"seed accuracy is 100 % by selection",
)
"""Thresholds and levels, which are what they are said to be."""

DEMO: Final = ("answers 77.3 % of the seeds", "But 36.0 % of these", "only 66.2 % of the seeds")
"""Figures of the demo, whose output on the page a test of the README compares with a run's."""

WORKED: Final = (
    *("(S 60 %)", "(68 %)", "(SV@90 40 %)", "(r_r 67 %)", "(r_s 33 %)"),
    "falls from 100 % to 20 % as the threshold rises",
)
"""Figures of the worked example, which a test of the README computes."""

JUDGED_CLAIMS: Final = (
    "Of 330 and of 255 variants by two small masked LMs 38 and 46 % read well",
    "2 to 3 in a hundred should have another label",
    "of 585 variants by two small ones, a language model, not people, found 42 % good, and the "
    "label doubtful in 3 %",
)


def paragraphs(page: str) -> list[str]:
    """Paragraphs, items and rows as lines, without code blocks and the benchmarks' own block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!-- benchmarks -->.*?<!-- /benchmarks -->", "", text, flags=re.DOTALL)
    return [" ".join(part.split()) for part in re.split(r"\n\n|\n(?=- |\|)", text)]


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_has_a_source(page: str) -> None:
    """A new one fails here until it is checked below, cited or computed by a test."""
    known = [*CITED, *DESCRIBED, *JUDGED_CLAIMS, *DEMO, *WORKED]
    for paragraph in paragraphs(page):
        rest = paragraph
        for claim in known:
            rest = rest.replace(claim, "")
        for pattern in DEFINED:
            rest = re.sub(pattern, "", rest)
        assert FIGURE.findall(rest) == [], f"{page}: {paragraph[:300]}"
        for claim, source in CITED.items():
            assert claim not in paragraph or source in paragraph, page


def test_figures_of_the_judged_variants() -> None:
    """As the sessions in the repository have them; each claim stands on some page."""
    first, second = (read_judgements([folder]) for folder in JUDGED)
    sizes = [len(each.variant_ids) for each in (first, second)]
    good = [float(each.good.mean()) for each in (first, second)]
    assert sizes == [330, 255]
    assert [round(100 * share) for share in good] == [38, 46]
    assert round(100 * float(np.average(good, weights=sizes))) == 42
    doubtful = sum(int((each.mean("R") < 4).sum()) for each in (first, second)) / sum(sizes)
    assert 0.02 <= doubtful <= 0.03
    assert round(100 * doubtful) == 3
    everything = " ".join(part for page in PAGES for part in paragraphs(page))
    assert [claim for claim in JUDGED_CLAIMS if claim not in everything] == []


def test_figures_of_the_demo_are_those_of_its_output() -> None:
    """In the sentence below the table of figures."""
    for page in ("README.md", "docs/pypi.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        (line,) = re.findall(r"^all  .*$", text, flags=re.MULTILINE)
        for claim in DEMO:
            figure = re.findall(r"\d+\.\d", claim)[0]
            assert claim not in " ".join(text.split()) or figure in line.split(), page
