"""Whether paraphrases have the same meaning: agreement and shares, by hand and by command."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from helpers.commands import refused, run
from helpers.judged import fill_in, kappa
from helpers.paraphrase_run import write_paraphrase_run

from merge_dataset.annotation import open_session
from merge_dataset.export import export_dataset
from merge_metric.agreement.judgements import SAME, Judgements
from merge_metric.agreement.shares import meaning_table


def judged(*said: str) -> Judgements:
    """Answers of annotators a, b, … to pairs 0, 1, …: y, n, or a dot for none."""
    rows = [
        {"annotator": "abc"[who], "variant_id": f"snli:{n}/p", "equivalent": answer == "y"}
        for who, answers in enumerate(said)
        for n, answer in enumerate(answers)
        if answer != "."
    ]
    return Judgements.from_answers(pa.Table.from_pylist(rows), {}, {})


def test_the_papers_figures_fit_together() -> None:
    """99 % is agreement: with 90 times both yes, 9 times both no and one of each, κ is .94."""
    part = judged("y" * 91 + "n" * 9, "y" * 90 + "n" * 10)
    a, b = part.codes[SAME]
    assert kappa(a, b, 2, "plain") == pytest.approx(0.942, abs=0.0005)
    assert np.mean(a == b) == 0.99
    # With 99 equal pairs for both, the last pair would make κ 1 or 0.
    for last in ("nn", "yn"):
        both = judged(*("y" * 99 + letter for letter in last))
        a, b = both.codes[SAME]
        assert kappa(a, b, 2, "plain") == (1 if last == "nn" else 0)


def test_shares_by_hand() -> None:
    table = meaning_table(judged("yynn", "yn.y", "y..y"))
    rows = {(row["by"], row["group"]): row for row in table.rows}
    whole = rows["all", ""]
    assert (whole["n"], whole["n_answers"], whole["n_yes"], whole["n_by_all"]) == (4, 9, 6, 1)
    assert (whole["yes"], whole["by_all"]) == (6 / 9, 1 / 4)
    assert [rows["annotator", name]["yes"] for name in "abc"] == [0.5, 2 / 3, 1.0]
    assert [rows["annotator", name]["n"] for name in "abc"] == [4, 3, 2]


def test_the_command(tmp_path: Path) -> None:
    """The command shows κ, α, confusion and shares; plots; nothing about masked LMs."""
    paraphrases = tmp_path / "merge-nli"
    export_dataset(write_paraphrase_run(tmp_path / "run"), paraphrases)
    session = open_session(tmp_path / "pairs", paraphrases, ["snli_paraphrases"])
    names = sorted(session.items)
    assert len(names) > 2
    for who, no in (("ann", names[:2]), ("bo", names[:1])):
        said = [{"variant_id": name, "equivalent": name not in no} for name in names]
        fill_in(session.folder / f"answers/{who}.csv", said)
    words = ("agreement", session.folder, "--n-bootstrap", 50)
    tables = json.loads(run(*words, "--format", "json").stdout)["tables"]
    assert list(tables) == ["kappa", "alpha", "confusion same", "meaning"]
    n = len(names)
    row = tables["kappa"]["rows"][0]
    assert (row["score"], row["n_both"]) == ("same", n)
    assert row["agreement"] == pytest.approx((n - 1) / n)
    by_chance = (n - 2) / n * (n - 1) / n + 2 / n * 1 / n
    assert row["kappa"] == pytest.approx(((n - 1) / n - by_chance) / (1 - by_chance))
    (who_said,) = tables["confusion same"]["rows"]
    assert [who_said[key] for key in ("both", "a_only", "b_only", "neither")] == [n - 2, 0, 1, 1]
    assert tables["meaning"]["rows"][0]["by_all"] == pytest.approx((n - 2) / n)
    assert [row["group"] for row in tables["meaning"]["rows"]] == ["", "snli", "ann", "bo"]
    drawn = refused(*words, "--plots", tmp_path / "plots")
    assert "--plots: expected scores of fluency and reasoning" in drawn
    text = run(*words).stdout
    assert "κ linear" not in text
    assert "Paraphrases that mean the same as their original" in text
    some = ("--annotations", session.folder, "--config", "snli_paraphrases")
    told = refused("analyse", "signals", "--dataset", paraphrases, *some)
    assert "expected scores of fluency and reasoning, got answers about para" in told
