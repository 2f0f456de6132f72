"""Agreement: κ and α by hand, against libraries on random answers, and resampled."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import krippendorff
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused, run
from helpers.dataset_files import write_rows
from helpers.judged import answers_table, fill_in, make_item, write_dataset, write_session
from helpers.pages import commands, section
from helpers.paraphrase_run import write_paraphrase_run
from sklearn.metrics import cohen_kappa_score
from typer.testing import Result

from merge_dataset.annotation import open_session, read_answers
from merge_dataset.export import export_dataset
from merge_dataset.files import read_record, write_record
from merge_metric.agreement.coefficients import (
    Codes,
    Level,
    Weighting,
    alpha_table,
    alphas,
    coincidences,
    confusion_tables,
    confusions,
    kappas,
    pair_table,
    resampled,
)
from merge_metric.agreement.judgements import Judgements
from merge_metric.agreement.shares import meaning_table
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.tables import Table


def kappa(a: Codes, b: Codes, k: int, weighting: Weighting) -> float:
    """Cohen's κ of two annotators' answers to the same items."""
    return float(kappas(confusions(a, b, k).sum(axis=0)[None], weighting)[0])


def by_sklearn(a: Codes, b: Codes, k: int, weighting: Weighting) -> float:
    """κ by scikit-learn, which needs a list of all answers."""
    both = (a > 0) & (b > 0)
    if len(np.unique([a[both], b[both]])) < 2:
        return np.nan
    weights = None if weighting == "plain" else weighting
    labels = np.arange(1, k + 1)
    return float(cohen_kappa_score(a[both], b[both], labels=labels, weights=weights))


def by_krippendorff(codes: Codes, k: int, level: Level) -> float:
    pairable = codes[:, (codes > 0).sum(axis=0) >= 2]
    if len(np.unique(pairable[pairable > 0])) < 2:
        return np.nan
    data = np.where(pairable > 0, pairable, np.nan)
    domain = np.arange(1.0, k + 1)
    how = {"value_domain": domain, "level_of_measurement": level}
    return float(krippendorff.alpha(reliability_data=data, **how))


def random_codes(rng: np.random.Generator, annotators: int, n: int, k: int) -> Codes:
    """Random answers near a common truth, a fifth of them missing."""
    truth = rng.integers(1, k + 1, n)
    codes = np.clip(truth + rng.integers(-1, 2, (annotators, n)), 1, k)
    return np.where(rng.random((annotators, n)) < 0.2, 0, codes).astype(np.int8)


@pytest.mark.parametrize("number", range(20))
def test_figures_are_those_of_libraries(number: int) -> None:
    rng = np.random.default_rng(number)
    k = int(rng.choice([2, 5]))
    codes = random_codes(rng, int(rng.integers(2, 6)), int(rng.integers(4, 30)), k)
    a, b = codes[:2]
    for weighting in get_args(Weighting):
        expected = pytest.approx(by_sklearn(a, b, k, weighting), rel=1e-12, nan_ok=True)
        assert kappa(a, b, k, weighting) == expected
    for level in get_args(Level):
        expected = pytest.approx(by_krippendorff(codes, k, level), rel=1e-12, nan_ok=True)
        assert alphas(coincidences(codes, k).sum(axis=0)[None], level)[0] == expected


def test_seeds_are_drawn_with_all_their_variants() -> None:
    nine = list("abcdefghi")
    one, again, other = (resampled(nine, Settings(n_bootstrap=5, rng_seed=n)) for n in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()
    draws = resampled(["s", "t", "s", "u"], Settings(n_bootstrap=50))
    assert (draws[:, 0] == draws[:, 2]).all()
    assert set(draws[:, [0, 1, 3]].sum(axis=1)) == {3.0}


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


def judged(*said: str) -> Judgements:
    """Answers of annotators a, b, … to pairs 0, 1, …: y, n, or a dot for none."""
    rows = [
        {"annotator": "abc"[who], "variant_id": f"snli:{n}/p", "equivalent": answer == "y"}
        for who, answers in enumerate(said)
        for n, answer in enumerate(answers)
        if answer != "."
    ]
    return Judgements.from_answers(pa.Table.from_pylist(rows), {}, {})


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
    text = run(*words).stdout
    assert "κ linear" not in text
    assert "Paraphrases that mean the same as their original" in text
    some = ("--annotations", session.folder, "--config", "snli_paraphrases")
    told = refused("analyse", "signals", "--dataset", paraphrases, *some)
    assert "expected scores of fluency and reasoning, got answers about para" in told


Ask = Callable[..., Result]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_session(folder / "study", write_dataset(folder / "merge-nli"))
    return folder


@pytest.fixture
def ask(made: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.chdir(made)

    return lambda *words, code=0: run("agreement", *words, "--n-bootstrap", 50, code=code)


def test_a_table_from_elsewhere(ask: Ask, made: Path, tmp_path: Path) -> None:
    rows = read_answers([made / "study"]).to_pylist()
    path = fill_in(tmp_path / "answers.csv", rows)
    alone = ask(str(path)).stdout
    assert "Nothing is known of the variants: give --session or --dataset" in alone
    assert "Which masked LM to drop" not in alone
    assert ask(str(path), "--session", "study").stdout == ask("study").stdout


def test_a_dataset_does_not_know_how_variants_were_drawn(ask: Ask) -> None:
    """Only classes are weighted then, with a note; a session knows the chances."""
    answers, unknown = "study/answers/ann.csv", "How likely variants were to be drawn is not"
    text = ask(answers, "--dataset", "merge-nli").stdout
    assert f"{unknown} known of snli adjective, snli noun, snli verb" in " ".join(text.split())
    assert unknown not in ask(answers, "--dataset", "merge-nli", "--session", "study").stdout


def test_a_dataset_of_other_texts_is_refused(ask: Ask, made: Path, tmp_path: Path) -> None:
    other = tmp_path / "merge-nli"
    shutil.copytree(made / "merge-nli", other)
    for path in other.rglob("verbs/*.parquet"):
        rows = pq.ParquetFile(path).read().to_pylist()
        write_rows(path, [row | {"premise": f"{row['premise']} Really."} for row in rows])
    message = f"{other}: expected the texts that annotators judged, got others for "
    assert message in ask("study", "--dataset", str(other), code=2).stderr


def test_a_session_without_its_description(ask: Ask, made: Path, tmp_path: Path) -> None:
    """It could not be weighted: restore the file, or name answers, without known chances."""
    copy = shutil.copytree(made / "study", tmp_path / "study")
    (copy / "session.json").unlink()
    refused = ask(str(copy), "--dataset", "merge-nli", code=2)
    assert "session.json: no such file or directory" in refused.stderr
    text = ask(str(copy / "answers/ann.csv"), "--dataset", "merge-nli").stdout
    assert "How likely variants were to be drawn is not known of" in " ".join(text.split())


def test_sessions_of_other_data_do_not_mix(made: Path, ask: Ask, tmp_path: Path) -> None:
    description = read_record(made / "study/session.json")
    write_record(tmp_path / "session.json", description)
    (tmp_path / "sample.jsonl").write_bytes((made / "study/sample.jsonl").read_bytes())
    elsewhere = ["study/answers/ann.csv", "--session", str(tmp_path)]
    assert ask(*elsewhere).stdout == ask("study/answers/ann.csv", "--session", "study").stdout
    # With other numbers of seeds, weights would be others.
    description["population"][0]["seeds"] += 1
    write_record(tmp_path / "session.json", description)
    result = ask("study", "--session", str(tmp_path), code=2)
    assert (
        "expected sessions of the same data, got 41 seeds of snli noun, and 40 in" in result.stderr
    )


def test_figures_need_numpy_alone(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("krippendorff", "matplotlib", "matplotlib.figure", "scipy", "sklearn"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    assert "Krippendorff's α" in ask("study").stdout
    result = ask("study", "--plots", str(tmp_path), code=2)
    assert "needs matplotlib" in result.stderr
    assert "run: pip install 'merge-nli[annotation]'" in result.stderr


SECTION = section("merge_dataset/annotation/README.md", "What they say")


@pytest.mark.slow
def test_answers_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_session(tmp_path / "study", write_dataset(tmp_path / "merge-nli"))
    monkeypatch.chdir(tmp_path)
    (words,) = (words for words in commands(SECTION) if words[0] == "agreement")
    assert "build --run RUN --into without-bart-base --without-mlm" in run(*words).stdout
    assert len(list((tmp_path / "plots").glob("*.png"))) == 2
