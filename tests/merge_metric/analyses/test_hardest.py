import csv
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import answered, given, run, seeds_table, text_of
from helpers.metric_oracle import Row, problems, random_problems

from merge_metric.analyses import Request
from merge_metric.analyses.hardest import hardest


@pytest.fixture(scope="module")
def models() -> dict[str, list[Row]]:
    rng = random.Random(3)
    rows = random_problems(rng, seeds=30, variants=(2, 6), subsamples=2)
    rows = [row for row in rows if row.subsamples]  # as in every dataset
    return {
        name: answered(rows, rng, skill) for name, skill in (("a", 0.0), ("b", 0.2), ("c", 0.3))
    }


def variants_right(rows: list[Row]) -> Fraction:
    """Share of one seed's variants that are right, each counted once for all subsamples."""
    return Fraction(sum(row.prediction == row.gold for row in rows), len(rows))


def expected_order(models: dict[str, list[Row]]) -> list[tuple[float, int, str]]:
    """Tuples of average share of variants right, models right, seed; the hardest first."""
    result = []
    for seed in {row.seed_id for row in models["a"]}:
        mine = {name: [r for r in rows if r.seed_id == seed] for name, rows in models.items()}
        rates = [variants_right(rows) for rows in mine.values()]
        n_right = sum(rows[0].own == rows[0].gold for rows in mine.values())
        result.append((float(sum(rates) / len(rates)), n_right, seed))
    return sorted(result)


def test_seeds_wrong_for_every_model(models: dict[str, list[Row]]) -> None:
    runs = (run(rows, name) for name, rows in models.items())
    table = hardest(given(*runs, of_configs={"snli": seeds_table(models["a"])}))
    expected = [item for item in expected_order(models) if item[1] == 0]
    assert 1 < len(expected) < 30
    assert [row["seed_id"] for row in table.rows] == [seed for _, _, seed in expected]
    for row, (rate, _, seed) in zip(table.rows, expected, strict=True):
        assert row["variants_right"] == pytest.approx(rate, abs=1e-12)
        assert row["premise"] == text_of(seed)["premise"]
        assert row["votes"] == ("E3 N1 C1" if seed.endswith("0") else None)
        first = {name: next(r for r in rows if r.seed_id == seed) for name, rows in models.items()}
        assert row["gold"] == first["a"].gold
        answers = [value.own for value in first.values()]
        counts = (f"{label[0].upper()}{answers.count(label)}" for label in oracle.LABELS)
        assert row["answers"] == " ".join(counts)
        for name, rows in models.items():
            exact = float(variants_right([r for r in rows if r.seed_id == seed]))
            assert row["by_model"][name] == pytest.approx(exact, abs=1e-12)
    share = f"{len(expected)} of 30 seeds ({100 * len(expected) / 30:.2f} %)"
    assert share in table.notes[1]


def test_votes_are_summed_up() -> None:
    rows = problems("E N NE", "E E EE", "E C C")
    rows = [replace(r, seed_id="s:10") if r.seed_id == "s:0" else r for r in rows]
    table = hardest(alone(rows))
    assert [row["seed_id"] for row in table.rows] == ["s:2", "s:10"]
    assert table.notes[1] == (
        "snli: 2 of 3 seeds (66.67 %) are answered wrong by the 1 model; annotators disagree "
        "on 1 of 1 with several votes."
    )
    assert table.notes[2] == "snli: of 1 seed less than 5 % of the variants are right."
    text = table.to_text()
    assert "  P: The s:10 & its premise." in text.splitlines()
    assert r"The s:10 \& its premise." in table.to_latex()


def alone(rows: list[Row]) -> Request:
    """One model's answers, and the texts of the seeds."""
    return given(run(rows), of_configs={"snli": seeds_table(rows)})


HARD = ("E N N" + "N" * 19, "E N E" + "N" * 19, "N N E" + "E" * 19, "C C C" + "C" * 19)
"""None of 20 variants is right for the first and third seed, and one, 5 %, for the second."""


def test_below_a_share_and_what_models_answer_instead() -> None:
    one = alone(problems(*HARD))
    for below, expected in ((5, ["s:0", "s:2"]), (6, ["s:0", "s:2", "s:1"])):
        table = hardest(one, below=below)
        assert [row["seed_id"] for row in table.rows] == expected
        told = f"snli: of {len(expected)} seeds less than {below:g} %"
        assert table.notes[2].startswith(told)
    assert table.title.startswith("Seeds of whose variants models answer less than 6 % right")
    assert hardest(one).notes[2].startswith("snli: of 2 seeds less than 5 %")
    table = hardest(one, top=4)
    instead = {row["seed_id"]: row["instead"] for row in table.rows}
    assert instead == {"s:0": "N 100 %", "s:1": "N 95 %", "s:2": "E 100 %", "s:3": None}
    assert "instead" in table.to_text().splitlines()[2]
    for text in (table.to_text(), table.to_markdown(), table.to_html(), table.to_latex()):
        assert "corrected" not in text
    assert "corrected_label" in table.to_csv()


def test_corrected_labels_go_there_and_back(tmp_path: Path) -> None:
    one = alone(problems(*HARD))
    lines = list(csv.DictReader(hardest(one, below=6).to_csv().splitlines()))
    assert [line["corrected_label"] for line in lines] == [""] * 3
    for line, label in zip(lines, ("N", "neutral", ""), strict=True):
        line["corrected_label"] = label
    file = tmp_path / "filled.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    table = hardest(one, below=6, corrected=[file])
    assert [row["corrected_label"] for row in table.rows] == ["neutral", "neutral", None]
    assert [row["gold_holds"] for row in table.rows] == [False, True, None]
    assert "of 2 with a corrected label the gold label is right in 1." in table.notes[2]
    assert "corrected" in table.to_text()
    more = tmp_path / "bo.csv"
    more.write_text("annotator,seed_id,corrected_label\nbo,s:0,C\nbo,s:2,N\n")
    table = hardest(one, corrected=[file, more], top=4)
    result = {row["seed_id"]: row["corrected_label"] for row in table.rows}
    assert result == {
        "s:0": "neutral; bo: contradiction", "s:2": "neutral", "s:1": None, "s:3": None
    }  # fmt: skip


def test_wrong_corrections_are_told(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    for lines, message in (
        ("s:0,E\ns:0,N", r"line 3: .* of an annotator without a name, got also 'N' for 's:0'"),
        ("s:0,maybe", r"out of entailment, .*, got 'maybe' for 's:0'"),
        ("s:9,E", r"for each seed of snli one label .* got 'E' for 's:9'"),
    ):
        file.write_text(f"seed_id,corrected_label\n{lines}\n")
        with pytest.raises(ValueError, match=message):
            hardest(alone(problems(*HARD)), corrected=[file])
