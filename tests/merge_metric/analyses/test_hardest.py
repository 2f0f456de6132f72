"""Table 11: the seeds that models fail on."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import answered, run, seeds_table, text_of
from helpers.metric_oracle import Row, problems, random_problems

from merge_metric.analyses.hardest import hardest


@pytest.fixture(scope="module")
def models() -> dict[str, list[Row]]:
    """Three weak models on 30 seeds in two subsamples."""
    rng = random.Random(3)
    rows = random_problems(rng, seeds=30, variants=(2, 6), subsamples=2)
    return {
        name: answered(rows, rng, skill) for name, skill in (("a", 0.0), ("b", 0.2), ("c", 0.3))
    }


def variants_right(rows: list[Row]) -> Fraction:
    """Rows of one seed: each variant once, however many subsamples it is in."""
    return Fraction(sum(row.prediction == row.gold for row in rows), len(rows))


def expected_order(models: dict[str, list[Row]]) -> list[tuple[float, int, str]]:
    """(average share of variants right, models right, seed), the hardest first."""
    found = []
    for seed in {row.seed_id for row in models["a"]}:
        mine = {name: [r for r in rows if r.seed_id == seed] for name, rows in models.items()}
        rates = [variants_right(rows) for rows in mine.values()]
        n_right = sum(rows[0].own == rows[0].gold for rows in mine.values())
        found.append((float(sum(rates) / len(rates)), n_right, seed))
    return sorted(found)


def test_seeds_wrong_for_every_model(models: dict[str, list[Row]]) -> None:
    """These and no others, by the share of variants right, with texts, votes and answers."""
    table = hardest(
        [run(rows, name) for name, rows in models.items()], {"snli": seeds_table(models["a"])}
    )
    expected = [each for each in expected_order(models) if each[1] == 0]
    assert 1 < len(expected) < 30
    assert [row["seed_id"] for row in table.rows] == [seed for _, _, seed in expected]
    for row, (rate, _, seed) in zip(table.rows, expected, strict=True):
        assert row["variants_right"] == pytest.approx(rate, abs=1e-12)
        assert row["premise"] == text_of(seed)["premise"]
        assert row["votes"] == ("E3 N1 C1" if seed.endswith("0") else None)
        first = {name: next(r for r in rows if r.seed_id == seed) for name, rows in models.items()}
        assert row["gold"] == first["a"].gold
        answers = [each.own for each in first.values()]
        assert row["answers"] == " ".join(
            f"{label[0].upper()}{answers.count(label)}" for label in oracle.LABELS
        )
        for name, rows in models.items():
            exact = float(variants_right([r for r in rows if r.seed_id == seed]))
            assert row["by_model"][name] == pytest.approx(exact, abs=1e-12)
    share = f"{len(expected)} of 30 seeds ({100 * len(expected) / 30:.2f} %)"
    assert share in table.notes[1]


def test_the_hardest_whether_right_or_wrong(models: dict[str, list[Row]]) -> None:
    """As many as asked for, by the average share of variants right."""
    table = hardest(
        [run(rows, name) for name, rows in models.items()],
        {"snli": seeds_table(models["a"])},
        top=12,
    )
    assert [row["seed_id"] for row in table.rows] == [s for _, _, s in expected_order(models)[:12]]
    assert [row["n_right"] for row in table.rows] == [n for _, n, _ in expected_order(models)[:12]]


def test_votes_are_summed_up() -> None:
    """One of two hopeless seeds has votes, which differ."""
    rows = problems("E N NE", "E E EE", "E C C")
    rows = [
        Row("s:10" if r.seed_id == "s:0" else r.seed_id, r.gold, r.own, r.prediction) for r in rows
    ]
    table = hardest([run(rows)], {"snli": seeds_table(rows)})
    assert [row["seed_id"] for row in table.rows] == ["s:2", "s:10"]
    assert table.notes[1] == (
        "snli: 2 of 3 seeds (66.67 %) are answered wrong by the 1 model; annotators disagree "
        "on 1 of 1 with several votes."
    )
    text = table.to_text()
    assert "  P: The s:10 & its premise." in text.splitlines()
    assert r"The s:10 \& its premise." in table.to_latex()


def test_nothing_is_hard_for_a_perfect_model() -> None:
    """An empty table, which still says of how many seeds."""
    rows = problems("E E EN", "N N N")
    table = hardest([run(rows)], {"snli": seeds_table(rows)})
    assert table.rows == ()
    assert "0 of 2 seeds (0.00 %)" in table.to_text()
