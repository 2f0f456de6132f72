import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.commands import run
from helpers.dataset_files import write_rows
from helpers.judged import fill_in, write_dataset, write_session
from helpers.pages import commands, section
from typer.testing import Result

from merge_dataset.annotation import read_answers
from merge_dataset.files import read_record, write_record

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


def test_one_annotator(ask: Ask) -> None:
    text = ask("study/answers/ann.csv", "--session", "study").stdout
    assert "One annotator: how far others would agree cannot be told." in text
    assert "κ" not in text.replace("resamplings", "")


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
