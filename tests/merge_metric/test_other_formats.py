import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused, run
from helpers.dataset_files import write_plain as write
from helpers.format_run import PAIRS, READING, write_format_run
from helpers.tiny_classifiers import tiny_classifier

from merge_dataset.export import export_dataset
from merge_dataset.schema import ProblemFormat
from merge_metric.models.label_order import (
    LabelOrder,
    check_order,
    order_from_seeds,
    parse_order,
    read_order,
)
from merge_metric.predict.baselines import Majority
from merge_metric.predict.driver import predict
from merge_metric.predict.problems import format_of_problems, pairs_of, read_problems
from merge_metric.report.seeds import ProblemFiles
from merge_metric.runs.model import parse_source
from merge_metric.runs.prediction_columns import labelled, labels_of
from merge_metric.runs.predictions import read_predictions, with_metadata, write_predictions
from merge_metric.runs.run import ALL_ROWS, common_labels, read_runs
from merge_metric.score import score_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    out = tmp_path / "merge-nli"
    export_dataset(write_format_run(tmp_path / "pairs-run", PAIRS), out)
    export_dataset(write_format_run(tmp_path / "reading-run", READING), out)
    return out


def row(variant_id: str, label: Any, prediction: Any, **more: Any) -> dict[str, Any]:
    seed_id = variant_id.partition("/")[0]
    return {"variant_id": variant_id, "seed_id": seed_id, "label": label,
            "prediction": prediction, **more}  # fmt: skip


OF_PAIRS = [row("pairs:1", "same", "same"), row("pairs:1/noun/dog/cat", "same", "other")]
OF_READING = [row("reading:1", "right", "right"), row("reading:1/noun/dog/cat", "right", "right")]


@pytest.mark.parametrize("name", ["p.parquet", "p.jsonl"])
def test_scores_by_name(folder: Path, tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, OF_PAIRS)
    (result,) = score_file(path, folder, n_bootstrap=0).values()
    assert (result["seed_accuracy"], result["variant_accuracy"]) == (1, 0)
    assert result["seed_variant_accuracy"] == 0
    assert result["relaxed_fooling_rate"] == result["strict_fooling_rate"] == 1
    assert set(result["by_label"]) == {"same"}
    assert "labels:other,same|opposites:none" in result["signature"]
    (without,) = score_file(path, n_bootstrap=0).items()
    assert without[0] == ALL_ROWS
    assert without[1]["variant_accuracy"] == 0


def test_scores_by_position_and_probabilities(folder: Path, tmp_path: Path) -> None:
    """Integers are positions among the dataset's labels, as are positions of probabilities."""
    rows = [
        row("pairs:1", 1, 1, probabilities=[0.25, 0.75]),
        row("pairs:1/noun/dog/cat", 1, 1, probabilities=[0.5, 0.5]),
    ]
    path = write(tmp_path / "p.parquet", rows)
    (result,) = score_file(path, folder, n_bootstrap=0).values()
    assert result["seed_variant_accuracy"] == 1
    with pytest.raises(ValueError, match="probabilities: expected 3 per row"):
        score_file(path)
    rows[0]["prediction"] = 2
    with pytest.raises(ValueError, match=r"prediction: expected one of 0 to 1 \(other, same\)"):
        score_file(write(path, rows), folder)


def test_texts_fewer_than_those_of_other_problems(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    model = Majority(np.array([1]), {}, PAIRS.labels)
    predict(model, read_problems(str(folder), ["pairs"]), path, progress=False)
    (result,) = score_file(path, folder, n_bootstrap=0).values()
    assert "|texts:unverified|" not in result["signature"]
    assert result["seed_variant_accuracy"] == 1


def test_one_set_of_labels_per_file(folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "p.parquet", [*OF_PAIRS, *OF_READING])
    with pytest.raises(ValueError, match="different ones: other, same; wrong, right; write a file"):
        score_file(path, folder)


def test_predictions_read_without_the_dataset(tmp_path: Path) -> None:
    path = write(tmp_path / "p.parquet", OF_PAIRS)
    assert labels_of(read_predictions(path)) == ("other", "same")
    mixed = [OF_PAIRS[0], OF_PAIRS[1] | {"prediction": "neutral"}]
    with pytest.raises(ValueError, match="expected one of entailment, neutral, contradiction"):
        read_predictions(write(path, mixed))
    alone = [each | {"prediction": each["label"]} for each in OF_PAIRS]
    with pytest.raises(ValueError, match="expected two or more labels, got 'same' alone; name the"):
        score_file(write(path, alone))


def test_written_by_name_and_read_back(tmp_path: Path) -> None:
    rows: dict[str, Any] = {"variant_id": ["x:1", "x:1/noun/a/b"], "seed_id": ["x:1", "x:1"]}
    rows |= {"label": [2, 2], "prediction": [0, 2]}
    rows["probabilities"] = [[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]
    table = pa.table(rows)
    path = tmp_path / "p.parquet"
    write_predictions(path, labelled(with_metadata(table, {"name": "m"}), ("c", "a", "b")))
    assert pq.read_table(path)["label"].to_pylist() == ["b", "b"]
    found = read_predictions(path)
    assert labels_of(found) == ("c", "a", "b")
    assert found["prediction"].to_pylist() == [0, 2]


def test_runs_with_different_labels(folder: Path, tmp_path: Path) -> None:
    paths = [write(tmp_path / "p.parquet", OF_PAIRS), write(tmp_path / "r.parquet", OF_READING)]
    runs = list(read_runs([parse_source(str(path)) for path in paths], folder))
    assert common_labels(runs[:1]) == ("other", "same")
    with pytest.raises(ValueError, match="the same labels, got pairs: other, same; reading: wrong"):
        common_labels(runs)
    said = refused("report", *paths, "--dataset", folder, "--out", tmp_path / "r.html")
    assert "error: expected problems with the same labels, got pairs: other, same" in said
    said = refused("analyse", "overlap", paths[0], "--dataset", folder)
    assert "pairs: expected problems of NLI" in said


def test_problems_of_a_folder(folder: Path) -> None:
    problems = read_problems(str(folder), ["reading"])
    assert format_of_problems(problems) == READING
    assert list(pairs_of(problems)) == [
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
    said = refused(*arguments, tiny_classifier("bert-uncased"))
    assert "expected a classifier of other, same, got one of 3 classes" in said
    nameless = tiny_classifier("bert-uncased", ("LABEL_0", "LABEL_1"))
    said = refused(*arguments, nameless)
    assert "id2label names other, same, got LABEL_0, LABEL_1" in said


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
        found = pq.read_table(out)
        assert set(found["prediction"].to_pylist()) <= set(problem_format.labels)
        assert len(found["probabilities"][0]) == len(problem_format.labels)
    described = json.loads(found.schema.metadata[b"merge_nli"])
    assert described["training_data"]["left_out"] == 1
    rows[3]["label"] = "perhaps"
    write(tmp_path / "t.jsonl", rows)
    said = refused("baseline", "hypothesis-only", *options, "--out", out, "--overwrite")
    assert f"expected a label out of {', '.join(problem_format.labels)}, got 'perhaps'" in said


def test_label_orders() -> None:
    """Names match in any case, exact names first; seeds determine orders of few labels."""
    known = ("no", "yes")
    assert parse_order("Yes, no", known) == LabelOrder((1, 0), "given", known)
    assert read_order({0: "YES", 1: "No"}, "m", known=known).labels == (1, 0)
    assert parse_order("A,a", ("a", "A")).labels == (1, 0)
    with pytest.raises(ValueError, match="classes 0, 1 mean, each of no, yes once, such as yes,no"):
        parse_order("yes,maybe", known)
    gold = np.array([0, 1] * 20)
    check = check_order(1 - gold, gold, 2)
    assert (check.accuracy, check.best, check.best_accuracy) == (0, (1, 0), 1)
    assert order_from_seeds(1 - gold, gold, known).names == ["yes", "no"]
    many = tuple("abcdefg")
    with pytest.raises(ValueError, match="expected at most 6 labels, got 7"):
        order_from_seeds(gold, gold, many)


def test_texts_as_pairs(tmp_path: Path) -> None:
    table = pa.table(
        {
            "seed_id": ["x"],
            "a": ["A dog."],
            "b": ["dog😀?"],
            "c": ["The dog."],
            "a_spans": [[[2, 5]]],
            "b_spans": [[[0, 3]]],
            "c_spans": [[[4, 7]]],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    three = ProblemFiles(tmp_path, ("t.parquet",), ProblemFormat(("a", "b", "c"), ("x", "y")))
    columns = ["premise", "hypothesis", "premise_spans", "hypothesis_spans"]
    (made,) = three.select(columns).to_pylist()
    assert made == {
        "premise": "A dog.", "hypothesis": "dog😀? The dog.", "premise_spans": [[2, 5]],
        "hypothesis_spans": [[0, 3], [10, 13]],
    }  # fmt: skip
    for start, end in made["hypothesis_spans"]:
        assert made["hypothesis"][start:end] == "dog"
    pq.write_table(table.set_column(1, "a", [pa.nulls(1, pa.string())]), tmp_path / "t.parquet")
    two = ProblemFiles(tmp_path, ("t.parquet",), ProblemFormat(("a", "b"), ("x", "y")))
    found = two.select(["seed_id", "premise", "hypothesis"]).to_pylist()
    assert found == [{"seed_id": "x", "premise": "", "hypothesis": "dog😀?"}]
