"""The masked LM to drop: by hand, and on data with a bad one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.judged import BAD, MLMS, answers_table, make_item, write_dataset, write_session
from statsmodels.stats.proportion import confint_proportions_2indep

from merge_dataset.annotation.sample import Item
from merge_metric.agreement.judgements import Judgements, read_judgements
from merge_metric.agreement.shares import DROP, KEEP, UNKNOWN, drop_table, newcombe


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("made") / "merge-nli")


@pytest.fixture(scope="module")
def study(dataset: Path) -> Path:
    return write_session(dataset.parent / "study", dataset).folder


def item(*validated: str) -> Item:
    """An item with one-letter masked LMs, by text."""
    texts = {str(n): [*mlms] for n, mlms in enumerate(validated)}
    mlms = sorted({*"".join(validated)})
    return make_item("noun", *mlms, seed_id="snli:1", mlms_by_field=texts)


def judged(*variants: tuple[Item, bool]) -> Judgements:
    rows = [("ann", str(i), 5, 5 if good else 1) for i, (_, good) in enumerate(variants)]
    items = {str(i): variant for i, (variant, _) in enumerate(variants)}
    return Judgements.from_answers(answers_table(rows), items, {})


def of(judgements: Judgements, mlm: str) -> dict[str, Any]:
    (row,) = [row for row in drop_table(judgements).rows if row["mlm"] == mlm]
    return dict(row)


def test_what_goes_with_a_masked_lm() -> None:
    found = judged(
        (item("a", "ab"), False),  # needs a
        (item("ab", "ab"), True),  # needs none
        (item("a", "b"), False),  # needs both
        (item("b", "b"), True),  # needs b
    )
    a, b = of(found, "a"), of(found, "b")
    assert (a["n_validated"], a["n_goes"], a["n_stays"]) == (3, 2, 2)
    assert (a["goes"], a["stays"], a["difference"]) == (0, 1, -1)
    assert (b["n_validated"], b["n_goes"], b["goes"], b["stays"]) == (4, 2, 0.5, 0.5)


@pytest.mark.parametrize("counts", [(0, 3, 9, 10), (5, 10, 5, 10), (7, 7, 1, 40)])
def test_newcombe_against_statsmodels(counts: tuple[int, int, int, int]) -> None:
    library = confint_proportions_2indep(*counts, method="newcomb", compare="diff", alpha=0.05)
    assert newcombe(*counts) == pytest.approx(library, rel=1e-12)


@pytest.mark.parametrize(
    ("n_bad", "n_good", "verdict"),
    [(1, 4, UNKNOWN), (9, 50, UNKNOWN), (10, 9, UNKNOWN), (10, 50, DROP), (0, 50, KEEP)],
)
def test_few_bad_variants_are_no_verdict(n_bad: int, n_good: int, verdict: str) -> None:
    """By Newcombe's interval, one bad variant against four good ones would already be worse."""
    bad, good = (item("a", "a"), False), (item("b", "b"), True)
    if not n_bad:
        bad, n_bad = (item("a", "a"), True), 12
    row = of(judged(*n_bad * [bad], *n_good * [good]), "a")
    assert row["verdict"] == verdict
    assert (row["difference_ci"][1] < 0) == (row["difference"] < 0)


def test_nothing_to_judge_by() -> None:
    found = judged((item("ab", "ab"), True), (item("b", "b"), True))
    assert of(found, "a")["verdict"] == UNKNOWN
    assert (of(found, "a")["goes"], of(found, "a")["goes_ci"]) == (None, None)
    alone = judged((item("a", "a"), True))
    assert (of(alone, "a")["verdict"], of(alone, "a")["difference"]) == (UNKNOWN, None)
    assert "nan" not in drop_table(alone).to_text()


def test_the_bad_one_is_dropped(study: Path, dataset: Path) -> None:
    table = drop_table(read_judgements([study]))
    assert [row["mlm"] for row in table.rows] == sorted(MLMS)
    assert [row["mlm"] for row in table.rows if row["verdict"] == DROP] == [BAD]
    assert {row["verdict"] for row in table.rows if row["mlm"] != BAD} == {KEEP}


def test_what_a_session_knows_is_what_the_dataset_knows(study: Path, dataset: Path) -> None:
    """Items are equal except for their chances of being drawn; so are weights."""
    files = sorted(study.glob("answers/*.csv"))
    from_session, from_dataset = read_judgements([study]), read_judgements(files, dataset=dataset)
    assert from_session.seeds == from_dataset.seeds
    for one, other in zip(from_session.items, from_dataset.items, strict=True):
        assert replace(one, chance=None, stratum={}) == replace(other, stratum={})
    assert read_judgements(files, [study]).items == from_session.items
