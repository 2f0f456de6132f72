"""Data of two classes and models of three: labels merged where predictions are read, and said."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused, run
from helpers.dataset_files import read_rows, run_manifest, seed_row, variant_row, write_plain
from helpers.dataset_files import write_plain as write
from helpers.dataset_files import write_run as write_run_folder
from helpers.format_run import PAIRS, READING, write_format_run
from helpers.tiny_classifiers import tiny_classifier

from merge_dataset.commands.command_line import MessageFormatter
from merge_dataset.export import export_dataset
from merge_dataset.schema import LABELS, NLI, ProblemFormat
from merge_metric import Evaluation, evaluate_model
from merge_metric.analyses import analyse
from merge_metric.compare import compare_models
from merge_metric.frame.joined import read_frames
from merge_metric.frame.per_seed import seed_results
from merge_metric.models.label_order import (
    LabelOrder,
    check_order,
    order_from_seeds,
    parse_order,
    read_order,
)
from merge_metric.predict.problems import Pairs, format_of_problems, read_problems
from merge_metric.report.evidence import gather_evidence
from merge_metric.report.write import write_report
from merge_metric.score import score_file
from merge_metric.seed_variant_accuracy.scoring import score

MERGED: Final = "contradiction,neutral=not_entailment"
TWO: Final = ProblemFormat(NLI.fields, ("not_entailment", "entailment"))
WORDS: Final = ("cat", "cow", "fox", "hen", "pig")


def answers() -> Iterator[tuple[str, str, list[str]]]:
    """Gold label, answer to the seed, and to five variants, of 40 seeds.

    Unmerged 15 + 14 seeds are right, of which 1 + 2 are fooled: 72.5 % and 3/29; merged 15 + 20
    and 1: 87.5 % and 1/35.
    """
    for n in range(20):
        own = "entailment" if n < 15 else "neutral"
        yield "entailment", own, ["neutral" if n == 0 else own, *[own] * 4]
    for n in range(20):
        own = "neutral" if n < 14 else "contradiction"
        yield "not_entailment", own, ["contradiction" if n < 2 else own, *[own] * 4]


def write_dataset(folder: Path, problem_format: ProblemFormat) -> Path:
    names = {"not_entailment": "neutral"} if problem_format == NLI else {}
    seeds, variants = [], []
    for n, (gold, _, _) in enumerate(answers()):
        code = problem_format.labels.index(names.get(gold, gold))
        texts = (f"A dog sleeps on sofa {n}.", "The dog sleeps.")
        votes = [code] if n else []
        seed = seed_row(f"rte:{n}", texts, code, votes, problem_format=problem_format)
        seeds.append(seed)
        variants += [
            variant_row(seed, "noun", "dog", word, {"premise": ["a"], "hypothesis": ["a"]},
                        log_odds=0.5, mlm_count=1, subsamples=[0])
            for word in WORDS
        ]  # fmt: skip
    config = {"subsamples": 1, "labels": problem_format.labels, "fields": problem_format.fields}
    counts = {"read": 40, "unlabelled": 0, "kept": 40}
    manifest = run_manifest("rte", config=config, problems=counts, eligible={"noun": 40})
    run_folder = folder.with_name(f"{folder.name}-run")
    export_dataset(write_run_folder(run_folder, seeds, variants, manifest, problem_format), folder)
    return folder


def predicted(gold_as: dict[str, str], *, probabilities: bool = True) -> list[dict[str, Any]]:
    rows = []
    for n, (gold, own, others) in enumerate(answers()):
        for word, text in zip(("", *WORDS), (own, *others), strict=True):
            name = f"rte:{n}" + (f"/noun/dog/{word}" if word else "")
            row = {"variant_id": name, "seed_id": f"rte:{n}", "label": gold_as.get(gold, gold)}
            row["prediction"] = text
            if probabilities:  # the sum of the others may be higher: answers are mapped, not summed
                row["probabilities"] = [0.4 if label == text else 0.3 for label in LABELS]
            rows.append(row)
    return rows


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("classes")
    write_dataset(place / "three", NLI)
    write_dataset(place / "two", TWO)
    as_three = predicted({"not_entailment": "neutral"})
    write_plain(place / "three.jsonl", as_three)
    codes = [
        {**row, **{k: LABELS.index(row[k]) for k in ("label", "prediction")}} for row in as_three
    ]
    write_plain(place / "three.parquet", codes)
    write_plain(place / "two.jsonl", predicted({}, probabilities=False))
    return place


def figures(result: dict[str, Any]) -> list[float]:
    return [
        round(100 * result[key], 1)
        for key in ("seed_accuracy", "relaxed_fooling_rate", "strict_fooling_rate")
    ]


@pytest.mark.parametrize(
    ("file", "dataset"),
    [("three.jsonl", "three"), ("three.parquet", "three"), ("three.jsonl", None),
     ("two.jsonl", "two"), ("two.jsonl", None)],
)  # fmt: skip
def test_merged_figures_are_those_of_two_classes(
    world: Path, caplog: pytest.LogCaptureFixture, file: str, dataset: str | None
) -> None:
    folder = dataset and world / dataset
    (result,) = score_file(world / file, folder, merge_labels=MERGED, n_bootstrap=0).values()
    assert figures(result) == [87.5, 2.9, 2.9]
    assert set(result["by_label"]) == {"entailment", "not_entailment"}
    assert f"|merged:{MERGED}|opposites:none|" in result["signature"]
    assert not [text for text in caplog.messages if "gold label" in text or "probable" in text]


def test_unmerged_figures_are_wrong_and_the_case_is_said(
    world: Path, caplog: pytest.LogCaptureFixture
) -> None:
    message = (
        "warning: predicts contradiction (16 %) although no problem has such a gold label, so "
        "these answers count as wrong; where the data have fewer classes than the model, "
        f"`merge_labels` {MERGED} counts labels as one"
    )
    file, folder = world / "three.jsonl", world / "three"
    (result,) = score_file(file, folder, n_bootstrap=0).values()
    assert figures(result) == [72.5, 10.3, 6.9]
    calls = {
        "score": lambda: score_file(file, folder, n_bootstrap=0),
        "compare": lambda: compare_models([f"a={file}", f"b={world / 'three.parquet'}"], folder),
        "report": lambda: gather_evidence([file], folder, n_bootstrap=0),
        "analyse": lambda: analyse("fooling", [file], folder),
        "evaluate_model": lambda: evaluate_model(answered(world), folder, n_bootstrap=0),
    }
    for name, call in calls.items():
        caplog.clear()
        call()
        assert any(text.endswith(message) for text in caplog.messages), name
    caplog.clear()
    run("score", file, "--dataset", folder)
    shown = map(MessageFormatter("%(message)s").format, caplog.records)
    assert any("--merge-labels" in text for text in shown)


def answered(world: Path) -> Any:
    texts = {
        row["variant_id"]: (row["premise"], row["hypothesis"])
        for split in ("seeds", "noun/variants")
        for path in (world / "three").rglob(f"*{split.split('/')[-1]}.parquet")
        for row in read_rows(path)
    }
    known = {texts[row["variant_id"]]: row["prediction"] for row in predicted({})}
    return lambda pairs: [known[tuple(pair)] for pair in pairs]


def test_the_metric(caplog: pytest.LogCaptureFixture) -> None:
    rows = [(n, *item) for n, item in enumerate(answers())]
    columns: dict[str, Any] = {
        "predictions": [message for *_, others in rows for message in others],
        "references": [gold for _, gold, _, others in rows for _ in others],
        "seed_ids": [n for n, *_, others in rows for _ in others],
        "seed_predictions": [own for _, _, own, others in rows for _ in others],
        "n_bootstrap": 0,
    }
    assert figures(score(**columns, merge_labels=MERGED)) == [87.5, 2.9, 2.9]
    own = [[0.5, 0.25, 0.25]] * len(columns["predictions"])
    given = {"probabilities": own, "seed_probabilities": own}
    result = score(**columns, **given, merge_labels=[MERGED])
    assert result["sigma_unchanged"] == pytest.approx(0)  # of 0.5 and 0.5
    assert not caplog.messages
    mapped = [name.replace("not_entailment", "neutral") for name in columns["references"]]
    assert figures(score(**columns | {"references": mapped})) == [72.5, 10.3, 6.9]
    assert "predicts contradiction (16 %)" in caplog.text
    with pytest.raises(ValueError, match="predictions: expected labels out of the ints 0 to 1"):
        score(predictions=[0, 2], references=[0, 0], seed_ids=[1, 1], seed_predictions=[0, 0],
              labels=TWO.labels, merge_labels=MERGED)  # fmt: skip


@pytest.mark.parametrize("dataset", ["three", "two"])
def test_predict_notes_it_and_all_that_follows_knows(
    world: Path, tmp_path: Path, dataset: str
) -> None:
    folder = world / dataset
    result = evaluate_model(
        answered(world), folder, out=tmp_path / "p.parquet", merge_labels=MERGED, n_bootstrap=10
    )
    (outcome,) = result.results.values()
    assert figures(outcome) == [87.5, 2.9, 2.9]
    metadata = json.loads(pq.read_schema(tmp_path / "p.parquet").metadata[b"merge_nli"])
    assert metadata["merge_labels"] == MERGED
    assert metadata["label_order_check"]["accuracy"] == 0.875
    (again,) = score_file(tmp_path / "p.parquet", folder, n_bootstrap=10).values()
    assert again == outcome
    saved = result.save(tmp_path / "p.jsonl")
    (again,) = score_file(saved, folder, merge_labels=MERGED, n_bootstrap=10).values()
    assert again == outcome
    loaded = Evaluation.load(f"x={saved}", folder, merge_labels=MERGED, n_bootstrap=10)
    (again,) = score_file(loaded.save(tmp_path / "x.parquet"), folder, n_bootstrap=10).values()
    assert again == outcome
    (compared,) = result.compare(loaded, allow_missing=True, n_bootstrap=10).values()
    assert [row["seed_accuracy"] for row in compared.models.rows] == [0.875, 0.875]
    for of in (result, loaded):
        report = json.loads(of.report(tmp_path / f"{of.name}.json").read_text())
        assert {row["gold"] for row in report["seeds"]} == {"entailment", "not_entailment"}


@pytest.mark.parametrize("dataset", ["three", "two"])
def test_classifiers_sum_probabilities(world: Path, tmp_path: Path, dataset: str) -> None:
    out = tmp_path / ("p.jsonl" if dataset == "two" else "p.parquet")
    words = ("predict", "--dataset", world / dataset, "--model")
    more = ("--limit-seeds", 10, "--device", "cpu", "--out", out)
    if dataset == "two":
        told = refused(*words, tiny_classifier("electra", LABELS), *more)
        assert f"where contradiction and neutral count as one, give --merge-labels {MERGED}" in told
        unnamed = tiny_classifier("electra", ("LABEL_0", "LABEL_1", "LABEL_2"))
        of_seeds = (*more, "--merge-labels", MERGED, "--label-order", "seeds")
        told = run(*words, unnamed, *of_seeds, code=2).stderr
        assert "expected the order itself with --merge-labels" in told
    told = run(*words, tiny_classifier("electra", LABELS), *more, "--merge-labels", MERGED).stdout
    assert f"--merge-labels {MERGED}" in told.splitlines()[-1]
    (result,) = score_file(
        out, world / dataset, allow_missing=True, merge_labels=MERGED, n_bootstrap=0
    ).values()
    assert result["sigma_unchanged"] <= 0.5
    if dataset == "two":
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert {len(row["probabilities"]) for row in rows} == {4}
        assert {row["probabilities"][0] for row in rows} == {0}
    else:
        told = run(*words, tiny_classifier("electra", LABELS), *more, code=2).stderr
        assert "which differ in merge labels" in told


def test_analyses_reports_and_seeds(world: Path, tmp_path: Path) -> None:
    file, folder = world / "three.jsonl", world / "three"
    table, _ = analyse("hardest", [file], folder, merge_labels=MERGED)
    assert {row["gold"] for row in table.rows} == {"entailment"}
    assert {row["votes"] for row in table.rows} == {"E1 N0"}
    seeds = seed_results(file, folder, merge_labels=MERGED)
    assert seeds["annotator_labels"][30].as_py() == ["not_entailment"]
    assert {"n_entailment", "n_not_entailment"} < {*seeds.column_names}
    evidence = gather_evidence([file], folder, merge_labels=MERGED, n_bootstrap=0)
    write_report(evidence, tmp_path / "r.html")
    run("compare", f"a={file}", f"b={world / 'three.parquet'}", "--dataset", folder,
        "--merge-labels", MERGED)  # fmt: skip
    run("export", "results", world / "three.parquet", "--dataset", folder, "--merge-labels", MERGED,
        "--out", tmp_path / "results")  # fmt: skip
    lines = (tmp_path / "results/samples.jsonl").read_text().splitlines()
    samples = list(map(json.loads, lines))
    assert sum(sample["evaluation"]["is_correct"] for sample in samples[:40]) == 35


def test_labels_that_do_not_fit(world: Path) -> None:
    for given, message in (
        ("maybe=unsure", "got 'maybe' (maybe=unsure)"),
        ("contradiction,neutral,entailment=all", "got all of them as 'all'"),
    ):
        with pytest.raises(ValueError, match="merge_labels: expected some of the labels") as error:
            score_file(world / "three.jsonl", world / "three", merge_labels=given)
        assert message in str(error.value)
    advice = f"where contradiction and neutral count as one: `merge_labels` {MERGED}"
    for file, dataset in (("two.jsonl", "two"), ("two.jsonl", "three")):
        with pytest.raises(ValueError, match="expected one of") as error:
            score_file(world / file, world / dataset)
        assert str(error.value).endswith(advice)
    (result,) = score_file(world / "two.jsonl", n_bootstrap=0).values()
    assert figures(result)[0] == 37.5  # four names, two of which are never gold
    counted = {text: next(read_frames(world / "three.jsonl", world / "three", merge_labels=text))
               for text in ("", MERGED)}  # fmt: skip
    with pytest.raises(ValueError, match="expected models whose labels are merged alike"):
        compare_models(counted)


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
