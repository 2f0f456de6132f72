import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused, run
from helpers.dataset_files import write_plain as write
from helpers.format_run import PAIRS, READING, write_format_run
from helpers.tiny_classifiers import tiny_classifier

from merge_dataset.export import export_dataset
from merge_metric.models.label_order import (
    LabelOrder,
    check_order,
    order_from_seeds,
    parse_order,
    read_order,
)
from merge_metric.predict.problems import Pairs, format_of_problems, read_problems


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    out = tmp_path / "merge-nli"
    export_dataset(write_format_run(tmp_path / "pairs-run", PAIRS), out)
    export_dataset(write_format_run(tmp_path / "reading-run", READING), out)
    return out


def test_problems_of_a_folder(folder: Path) -> None:
    problems = read_problems(str(folder), ["reading"])
    assert format_of_problems(problems) == READING
    assert list(Pairs(problems)) == [
        ("The dog found a key.", "What did the dog find? A key."),
        ("The cat found a key.", "What did the cat find? A key."),
    ]
    with pytest.raises(ValueError, match=r"of one format, got pairs with .*; reading with"):
        read_problems(str(folder))


@pytest.mark.parametrize("config", ["pairs", "reading"])
def test_a_classifier_of_two_labels(folder: Path, tmp_path: Path, config: str) -> None:
    labels = {"pairs": PAIRS, "reading": READING}[config].labels
    model = tiny_classifier("bert-uncased", tuple(label.upper() for label in labels))
    out = tmp_path / "p.parquet"
    arguments = ("predict", "--model", model, "--dataset", folder, "--config", config, "--out")
    run(*arguments, out)
    table = pq.read_table(out)
    assert set(table["label"].to_pylist()) == {labels[1]}
    shares = np.array(table["probabilities"].to_pylist())
    assert shares.shape == (2, 2)
    assert table["prediction"].to_pylist() == [labels[i] for i in shares.argmax(1)]
    other = tmp_path / "o.parquet"
    run(*arguments, other, "--label-order", ",".join(labels[::-1]))
    turned = np.array(pq.read_table(other)["probabilities"].to_pylist())
    assert np.allclose(turned[:, ::-1], shares)
    assert config in run("score", out, "--dataset", folder).stdout


def test_classifiers_of_other_classes(folder: Path) -> None:
    arguments = ("predict", "--dataset", folder, "--config", "pairs", "--model")
    text = refused(*arguments, tiny_classifier("bert-uncased"))
    assert "expected a classifier of other, same, got one of 3 classes" in text
    nameless = tiny_classifier("bert-uncased", ("LABEL_0", "LABEL_1"))
    text = refused(*arguments, nameless)
    assert "id2label names other, same, got LABEL_0, LABEL_1" in text


@pytest.mark.parametrize("config", ["pairs", "reading"])
def test_baselines_that_learn(folder: Path, tmp_path: Path, config: str) -> None:
    problem_format = PAIRS if config == "pairs" else READING
    texts = problem_format.fields[1:]
    rows = [
        {**dict.fromkeys(texts, f"{'red' if n % 3 else 'blue'} A cat {n}."), "label": label}
        for n in range(30)
        for label in [problem_format.labels[n % 3 > 0].upper() if n else "-"]
    ]
    train = write(tmp_path / "t.jsonl", rows)
    options = ("--dataset", folder, "--config", config, "--train", train)
    for name, more in (("majority", options[:4]), ("hypothesis-only", options)):
        out = tmp_path / f"{name}.parquet"
        run("baseline", name, *more, "--out", out)
        result = pq.read_table(out)
        assert set(result["prediction"].to_pylist()) <= set(problem_format.labels)
        assert len(result["probabilities"][0]) == len(problem_format.labels)
    described = json.loads(result.schema.metadata[b"merge_nli"])
    assert described["training_data"]["left_out"] == 1
    rows[3]["label"] = "perhaps"
    write(tmp_path / "t.jsonl", rows)
    text = refused("baseline", "hypothesis-only", *options, "--out", out, "--overwrite")
    assert f"expected texts and a label out of {', '.join(problem_format.labels)} in" in text


def test_label_orders() -> None:
    """Names match in any case, exact names first; seeds determine orders of few labels."""
    known = ("no", "yes")
    assert parse_order("Yes, no", known) == LabelOrder((1, 0), "given", known)
    assert read_order({0: "YES", 1: "No"}, "m", known=known).labels == (1, 0)
    assert parse_order("A,a", ("a", "A")).labels == (1, 0)
    with pytest.raises(ValueError, match="each of no, yes once, such as yes,no"):
        parse_order("yes,maybe", known)
    gold = np.array([0, 1] * 20)
    check = check_order(1 - gold, gold, 2)
    assert (check.accuracy, check.best, check.best_accuracy) == (0, (1, 0), 1)
    assert order_from_seeds(1 - gold, gold, known).names == ["yes", "no"]
    many = tuple("abcdefg")
    with pytest.raises(ValueError, match="expected at most 6 labels, got 7"):
        order_from_seeds(gold, gold, many)
