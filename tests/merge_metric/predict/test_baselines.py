import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from merge_dataset.schema import LABELS
from merge_metric.predict import baselines
from merge_metric.predict.baselines import (
    HypothesisOnly,
    Majority,
    TrainingData,
    read_training_data,
)

WORDS = {0: "outside", 1: "tall", 2: "sleeping"}
"""Label → word that reveals it."""


def hypotheses(n: int = 90) -> tuple[list[str], NDArray[np.int64]]:
    """Hypotheses with a word that reveals the label, among other words."""
    generator = np.random.default_rng(0)
    labels = np.arange(n) % 3
    nouns = generator.choice(["man", "woman", "dog", "girl", "boy"], n)
    pairs = zip(nouns, labels, strict=True)
    return [f"The {noun} is {WORDS[label]}." for noun, label in pairs], labels


def training_data(n: int = 90) -> TrainingData:
    return TrainingData(*hypotheses(n), {"file": "x.jsonl", "sha256": "0" * 64})


def ask(model: Any, pairs: list[tuple[str, str]]) -> NDArray[np.float64]:
    found = np.full((len(pairs), 3), np.nan)
    for positions, probabilities in model.probabilities(pairs):
        assert np.isnan(found[positions]).all()
        found[positions] = probabilities
    return found


def test_it_never_reads_the_premise(monkeypatch: pytest.MonkeyPatch) -> None:
    model = HypothesisOnly(training_data())
    first = ask(model, [("A man is outside.", "The dog is tall."), ("", "The boy is outside.")])
    second = ask(model, [("Nobody sleeps.", "The dog is tall."), ("x", "The boy is outside."),
                         ("y", "The dog is tall.")])  # fmt: skip
    assert np.array_equal(first, second[:2])
    assert np.array_equal(second[0], second[2])
    several = [("", text) for text in hypotheses()[0]]
    expected = ask(model, several)
    monkeypatch.setattr(baselines, "_BATCH", 7)
    assert np.array_equal(ask(model, several), expected)


def test_a_label_that_is_not_in_the_training_data() -> None:
    texts, labels = hypotheses()
    two = np.flatnonzero(labels != 1)
    model = HypothesisOnly(TrainingData([texts[i] for i in two], labels[two], {"sha256": "1"}))
    found = ask(model, [("", text) for text in ("A cat is tall.", "Words.", "")])
    assert (found[:, 1] == 0).all()
    assert found.sum(axis=1) == pytest.approx(1)


@pytest.mark.slow
def test_it_is_the_same_in_every_process() -> None:
    pairs = [("", text) for text in ("A cat is tall.", "Nobody is outside.", "Words.")]
    first, second = (ask(HypothesisOnly(training_data()), pairs) for _ in range(2))
    assert np.array_equal(first, second)
    root = Path(__file__).parents[3]
    code = f"""
import sys
sys.path[:0] = [{str(root)!r}, {str(root / "tests")!r}]
import importlib.util, json
spec = importlib.util.spec_from_file_location("here", {__file__!r})
here = importlib.util.module_from_spec(spec)
spec.loader.exec_module(here)
print(json.dumps(here.ask(here.HypothesisOnly(here.training_data()), {pairs!r}).tolist()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == first.tolist()


def test_descriptions() -> None:
    """Descriptions tell training data and packages; the majority answers everything alike."""
    description = HypothesisOnly(training_data()).describe()
    assert (description["kind"], description["name"]) == ("baseline", "hypothesis-only")
    assert description["revision"] == "0" * 64
    assert set(description["packages"]) == {"scikit-learn"}
    json.dumps(description)
    model = Majority(np.array([2, 0, 2, 1, 2]), {"seeds": 5})
    assert ask(model, [("p", "h"), ("q", "i")]).tolist() == [[0.2, 0.2, 0.6]] * 2
    frequencies = {"entailment": 0.2, "neutral": 0.2, "contradiction": 0.6}
    assert model.describe()["frequencies"] == frequencies


@pytest.mark.real
def test_on_real_hypotheses(shared_data: Path) -> None:
    """Gururangan et al. (2018) report 67 % with all 550,000 problems; these are 9,842."""
    model = HypothesisOnly(read_training_data(shared_data / "snli_dev.jsonl"))
    test = read_training_data(shared_data / "snli_test.jsonl")
    found = ask(model, [("", text) for text in test.hypotheses])
    assert 0.55 < (found.argmax(axis=1) == test.labels).mean() < 0.65


ROWS = [
    ("The dog runs.", "entailment"), ('It says "no".', "-"),
    ("A man, old and tall.", "contradiction"), ("Nobody sleeps.", "neutral"),
]  # fmt: skip


def content_of(name: str) -> str:
    """The rows in the format of a file of that name."""
    if name.endswith(".jsonl"):
        rows = [{"sentence1": "p", "sentence2": h, "gold_label": label} for h, label in ROWS]
        return "".join(json.dumps(row) + "\n" for row in rows)
    if name.endswith(".csv"):
        cells = [h.replace('"', '""') for h, _ in ROWS]
        return "\n".join(
            ["hypothesis,label", *(f'"{h}",{row[1]}' for h, row in zip(cells, ROWS, strict=True))]
        )
    return "\n".join(["gold_label\tsentence1\tsentence2", *(f"{x}\tp\t{h}" for h, x in ROWS), ""])


FILES = ("snli.jsonl", "snli_1.0_train.txt", "snli.tsv", "own.csv", "hub.parquet")


@pytest.mark.parametrize("name", FILES)
def test_files_of_all_kinds(name: str, tmp_path: Path) -> None:
    if name == "hub.parquet":
        codes = [LABELS.index(label) if label in LABELS else -1 for _, label in ROWS]
        table = {"premise": ["p"] * 4, "hypothesis": [h for h, _ in ROWS], "label": codes}
        pq.write_table(pa.table(table), tmp_path / name)
    else:
        (tmp_path / name).write_text(content_of(name))
    data = read_training_data(tmp_path / name)
    found = [(h, LABELS[label]) for h, label in zip(data.hypotheses, data.labels, strict=True)]
    assert found == [row for row in ROWS if row[1] != "-"]
    assert data.description.items() >= {"file": name, "problems": 3, "left_out": 1}.items()
    assert len(str(data.description["sha256"])) == 64


def test_classes_go_by_their_names(tmp_path: Path) -> None:
    classes = datasets.ClassLabel(names=["neutral", "contradiction", "entailment"])
    features = datasets.Features(hypothesis=datasets.Value("string"), label=classes)
    rows = {"hypothesis": ["h", "i", "j"], "label": [2, 0, 1]}
    datasets.Dataset.from_dict(rows, features).to_parquet(tmp_path / "hub.parquet")
    assert read_training_data(tmp_path / "hub.parquet").labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "x,label\n1,0\n",
         "expected a column sentence2 or hypothesis or sentence_B or text2, got x, label"),
        ("a.csv", "hypothesis,label\nh,yes\n", "a.csv:2: expected a label out of ent.*got 'yes'"),
        ("a.csv", "hypothesis,label\nh\n", "a.csv:2: expected 2 columns, got 1"),
        ("a.csv", "hypothesis,label\nh,0\ni,0\n", "expected problems of several labels, got 2"),
        ("a.jsonl", '{"hypothesis": 3, "label": 0}\n',
         "a.jsonl:1: expected a text in column 'hypothesis', got 3"),
        ("a.jsonl", '{"hypothesis": "half \\ud83d", "label": "neutral"}\n',
         "a.jsonl:1: expected a text in column 'hypothesis', got half a character"),
        ("a.jsonl", "{\n", "a.jsonl:1: expected .*JSON"),
        ("a.pkl", "", "a.pkl: expected a file whose name ends in .jsonl, "),
        ("a.parquet", "no", "a.parquet: expected a whole .parquet file"),
    ],
)  # fmt: skip
def test_files_that_will_not_do(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_training_data(tmp_path / name)


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and prediction work without reading pickles."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("read a pickle")

    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    answers = ask(HypothesisOnly(training_data()), [("p", "The man is tall.")])
    assert np.isfinite(answers).all()
