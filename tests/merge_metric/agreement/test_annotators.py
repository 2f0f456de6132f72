from typing import Any

import pytest
from helpers.judged import answers_table, make_item

from merge_metric.agreement.coefficients import alpha_table, confusion_tables, pair_table
from merge_metric.agreement.judgements import Judgements
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.tables import Table

NONE = Settings(n_bootstrap=0)


def judgements(*rows: tuple[str, str, int, int], **classes: str) -> Judgements:
    items = {
        variant: make_item(word_class, seed_id=variant) for variant, word_class in classes.items()
    }
    return Judgements.from_answers(answers_table(rows), items, {})


def row(table: Table, **wanted: Any) -> dict[str, Any]:
    (found,) = [r for r in table.rows if all(r[key] == value for key, value in wanted.items())]
    return dict(found)


TWO = (
    ("ann", "a", 5, 5), ("ben", "a", 5, 4),
    ("ann", "b", 4, 4), ("ben", "b", 5, 4),
    ("ann", "c", 1, 2), ("ben", "c", 1, 3),
    ("ann", "d", 5, 5),
)  # fmt: skip
"""Good for ann are a and d; for ben, a and b."""


def test_good_is_judged_by_each_annotator() -> None:
    """Out of a, b and c, ann finds a good, ben a and b: agreement 2/3, by chance 1/3·2/3 + 2/3·1/3.

    κ = (2/3 − 4/9) / (1 − 4/9) = 0.4.
    """
    found = row(pair_table(judgements(*TWO), NONE), score="good")
    assert (found["a"], found["b"], found["n_both"]) == ("ann", "ben", 3)
    assert found["agreement"] == pytest.approx(2 / 3)
    assert found["kappa"] == pytest.approx(0.4)
    assert "kappa_linear" not in found


def test_what_is_undefined_is_said() -> None:
    table = pair_table(judgements(("ann", "a", 5, 4), ("ben", "a", 5, 4), ("eve", "b", 1, 1)), NONE)
    same, apart = row(table, a="ann", b="ben", score="F"), row(table, a="ann", b="eve", score="F")
    assert (same["kappa"], same["agreement"]) == (None, 1)
    assert same["note"] == "undefined: every answer is 5"
    assert (apart["kappa"], apart["agreement"], apart["n_both"]) == (None, None, 0)
    assert apart["note"] == "both judged none"
    assert row(table, a="ann", b="ben", score="good")["note"] == "undefined: every answer is good"
    assert "nan" not in table.to_text() + table.to_json()
    alphas = alpha_table(judgements(("ann", "a", 1, 1), ("ben", "a", 1, 2)), NONE)
    assert row(alphas, score="F")["note"] == "undefined: every answer is 1"
    assert row(alphas, score="good")["note"] == "undefined: every answer is not good"
    assert row(alphas, score="R")["note"] == ""
    none = alpha_table(judgements(("ann", "a", 1, 1), ("ben", "b", 1, 2)), NONE)
    assert {r["note"] for r in none.rows} == {"no two judged the same"}


def test_the_mean_is_over_pairs_that_have_a_kappa() -> None:
    """Three pairs: ann and ben 0.4, ann and eve 1, ben and eve none, as they share only c."""
    three = judgements(*TWO, ("eve", "c", 1, 1), ("eve", "d", 5, 5))
    table = pair_table(three, NONE)
    assert "note" not in {column.key for column in pair_table(judgements(*TWO), NONE).columns}
    mean = row(table, b="(mean)", score="good")
    assert mean["a"] == "3 pairs"
    assert mean["kappa"] == pytest.approx((0.4 + 1) / 2)
    assert mean["agreement"] == pytest.approx((2 / 3 + 1 + 1) / 3)
    assert mean["note"] == "κ: of the 2 pairs that have one"


def test_no_interval_from_samples_most_of_which_say_nothing() -> None:
    """One variant in a hundred differs: a third of the resamples lack it, and have no κ."""
    rows = [(name, f"v{i}", 5, 5 if i else 1) for name in ("ann", "ben") for i in range(100)]
    table = pair_table(judgements(*rows), Settings(n_bootstrap=200, rng_seed=0))
    found = row(table, score="R")
    assert (found["kappa"], found["kappa_ci"]) == (1, None)
    assert found["agreement_ci"] == [1, 1]


def test_confusion_has_one_in_rows_and_the_other_in_columns() -> None:
    """For a, b and c: F 5–5, 4–5 and 1–1; R 5–4, 4–4 and 2–3; good for both, ben, neither."""
    scores, good = confusion_tables(judgements(*TWO))
    assert scores.title == "What ann said (rows) where ben said what (columns)"
    counts = {(r["answer"], key): r[key] for r in scores.rows for key in r if key != "answer"}
    assert {place: n for place, n in counts.items() if n} == {
        ("5", "F5"): 1, ("4", "F5"): 1, ("1", "F1"): 1, ("5", "R4"): 1, ("4", "R4"): 1,
        ("2", "R3"): 1,
    }  # fmt: skip
    expected = {"a": "ann", "b": "ben", "both": 1, "a_only": 0, "b_only": 1, "neither": 1}
    assert good.rows == (expected,)


def test_answers_have_to_be_there_and_known() -> None:
    with pytest.raises(ValueError, match="got 2 to others, such as 'c'"):
        judgements(*TWO, a="noun", b="noun")
