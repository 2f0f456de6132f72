import random

import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import answered, given
from helpers.metric_oracle import columns, problems, random_problems
from helpers.sensitivity_data import run_with_probabilities

from merge_metric.analyses.sensitivity import confidence, shift
from merge_metric.frame.joined import Frame


def test_shift_and_confidence_are_those_of_the_oracle() -> None:
    rng = random.Random(11)
    runs, exact = list[Frame](), dict[tuple[str, str], dict[str, float | None]]()
    for config in ("snli", "mnli-m"):
        problems_ = random_problems(rng, seeds=12, variants=(1, 5), subsamples=2)
        for model in "ab":
            rows = answered(problems_, rng, 0.6)
            of_rows = columns(rows, subsamples=True)
            one, after, before = run_with_probabilities(rows, of_rows, model, config)
            runs.append(one)
            # Rows that no subsample drew do not belong to the data.
            drawn = [n for n, row in enumerate(rows) if row.subsamples]
            some = ([item[n] for n in drawn] for item in (rows, after, before))
            result = oracle.divergences(*some)
            changed = [rows[n].prediction != rows[n].own for n in drawn
                       if rows[n].own == rows[n].gold]  # fmt: skip
            result |= {"n_changed": sum(changed), "n_unchanged": changed.count(False)}
            exact[model, config] = result
    of_shift, of_confidence = shift(given(*runs)).rows, confidence(given(*runs)).rows
    for table, part in ((of_shift, ("jsd", "ks", "n_")), (of_confidence, ("sigma", "n_"))):
        assert [(row["model"], row["config"]) for row in table[:4]] == list(exact)
        for row in table[:4]:
            expected = exact[row["model"], row["config"]]
            keys = [key for key in expected if key.startswith(part)]
            assert keys
            close = pytest.approx({key: expected[key] for key in keys}, abs=1e-12)
            assert {key: row[key] for key in keys} == close


def test_where_nothing_changes_there_is_nothing_to_say() -> None:
    rows = problems("E E EE")
    one, *_ = run_with_probabilities(rows, columns(rows))
    (row,) = shift(given(one)).rows
    assert (row["n_changed"], row["jsd_changed"], row["ks_changed"]) == (0, None, None)
    assert row["jsd_unchanged"] is not None
    notes = shift(given(one)).notes + confidence(given(one)).notes
    assert not any("Changed less" in note for note in notes)
    assert "–" in shift(given(one)).to_text()
