"""The judged variants of options are what their page, and the one on these options, say."""

from __future__ import annotations

import re
from pathlib import Path

from merge_dataset.annotation.answers import answers_path, current, is_good, read_standing
from merge_dataset.annotation.session import read_session

ROOT = Path(__file__).parents[3]
JUDGED = ROOT / "tests/data/judged_options"


def test_pages_have_the_counts() -> None:
    """Variants, problems, good ones and doubtful labels of each option; bad ones have a fault."""
    items = read_session(JUDGED).items
    answers = current(read_standing(answers_path(JUDGED, "first-pass")))
    assert answers.keys() == items.keys()
    assert len(items) == 500
    page = (JUDGED / "README.md").read_text(encoding="utf-8")
    beyond = (ROOT / "generation/beyond.md").read_text(encoding="utf-8")
    for option in sorted({item.stratum["option"] or "" for item in items.values()}):
        mine = [item for item in items.values() if item.stratum["option"] == option]
        given = [answers[item.variant_id] for item in mine]
        good = [is_good(each.fluency + each.reasoning) for each in given]
        assert [bool(each.comment) for each in given] == [not each for each in good]
        doubtful = sum(each.reasoning < 4 for each in given)
        counts = (len(mine), len({item.seed_id for item in mine}), sum(good), doubtful)
        (row,) = re.findall(rf"^\| `{option}`:.*", page, re.MULTILINE)
        assert row.endswith(f"| {' | '.join(map(str, counts))} |")
        (row,) = re.findall(rf"^\| .*\| `{option}` \|.*", beyond, re.MULTILINE)
        share = round(100 * sum(good) / len(good))
        assert re.search(rf"\| {len(mine)} \| {share} \[\d+, \d+\] \| {doubtful} \|", row)


def test_the_second_pass_is_as_the_pages_say() -> None:
    """How many were read again, and how many of these came out the same."""
    first, second = (
        current(read_standing(answers_path(JUDGED, name))) for name in ("first-pass", "second-pass")
    )
    page = " ".join((JUDGED / "README.md").read_text(encoding="utf-8").split())
    both = [(first[variant], answer) for variant, answer in second.items()]
    good = [[is_good(each.fluency + each.reasoning) for each in pair] for pair in both]
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
    beyond = " ".join((ROOT / "generation/beyond.md").read_text(encoding="utf-8").split())
    assert f"It read {len(both)} of them a second time, blind: good or not was the same" in beyond
    assert f"the same for {same}." in beyond
