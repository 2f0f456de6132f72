import json
import math
import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import commands
from helpers.answers import answers
from helpers.completions_server import Reply, Request, Server, serving
from helpers.problem_folder import many_problems, write_folder
from helpers.tasks_here import TasksHere
from helpers.tiny_classifiers import folder_of, one_by_one, tiny_classifier
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from helpers.tiny_models import MAX_TOKENS
from numpy.typing import NDArray
from typer.testing import Result

from merge_dataset.executors import Distribution
from merge_dataset.schema import LABELS
from merge_metric.frame.predictions import read_predictions
from merge_metric.models import classifier
from merge_metric.models.pair_model import Description, ModelRequest
from merge_metric.models.prompts import read_prompt
from merge_metric.models.readiness import Machine, Preset
from merge_metric.predict import baselines, jobs
from merge_metric.predict.baselines import HypothesisOnly, Majority, read_training_data
from merge_metric.predict.problems import sources_of

PROBLEMS = many_problems(40, 4) | many_problems(10, 2, "demo")
GENERIC = ("LABEL_0", "LABEL_1", "LABEL_2")
MODEL = folder_of("xlnet")
Run = Callable[..., Result]


@pytest.fixture(scope="module", autouse=True)
def model() -> Path:
    return tiny_classifier("xlnet")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(here: None) -> Run:
    write_folder(Path("merge-nli"), PROBLEMS)
    return commands.run


@pytest.fixture
def predict(run: Run) -> Run:
    return partial(run, "predict", "--dataset", "merge-nli")


def rows_of(file: str | Path) -> dict[str, dict[str, Any]]:
    return {row["variant_id"]: row for row in read_predictions(Path(file)).to_pylist()}


def expected(folder: Path, problems: list[str], order: str = "e,n,c") -> list[str]:
    pairs = [PROBLEMS[name][:2] for name in problems]
    classes = one_by_one(folder, pairs, MAX_TOKENS).argmax(axis=1)
    return [order.split(",")[number] for number in classes]


def letters(rows: dict[str, dict[str, Any]]) -> list[str]:
    return [LABELS[row["prediction"]][0] for row in rows.values()]


def test_predictions_and_what_to_do_next(predict: Run, run: Run) -> None:
    done = predict("--model", MODEL, "--config", "snli_nouns", "--out", "mine.parquet")
    rows = rows_of("mine.parquet")
    assert set(rows) == {n for n in PROBLEMS if n.startswith("snli:") and "/verb/" not in n}
    assert letters(rows) == expected(MODEL, list(rows))
    assert f"{MODEL.name}: 120 problems, " in done.stdout
    assert "classes: entailment, neutral, contradiction (id2label)" in done.stdout
    command = done.stdout.splitlines()[-1].removeprefix("Next: ")
    assert command == "merge-nli score mine.parquet --dataset merge-nli"
    scored = run(*shlex.split(command)[1:], "--n-bootstrap", "0", "--format", "json")
    seeds = [name for name in rows if "/" not in name]
    right = np.mean([rows[name]["label"] == rows[name]["prediction"] for name in seeds])
    figures = json.loads(scored.stdout)["results"]["snli_nouns"]
    assert figures["seed_accuracy"] == pytest.approx(right)


@pytest.fixture
def turned(run: Run, tmp_path: Path) -> Path:
    """A model without class names; by the gold labels in `true`, its order is n,c,e."""
    folder = tiny_classifier("xlnet", GENERIC)
    truth = ["enc".index(letter) for letter in expected(folder, list(PROBLEMS), "n,c,e")]
    labelled = {
        name: (*texts[:2], label)
        for (name, texts), label in zip(PROBLEMS.items(), truth, strict=True)
    }
    write_folder(tmp_path / "true", labelled)
    return folder


@pytest.mark.slow
def test_the_order_from_the_seeds(run: Run, turned: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    options = ("--model", turned, "--dataset", "true", "--config", "snli", "--out", "a.parquet")
    done = run("predict", *options, "--label-order", "seeds", "--format", "json")
    (facts,) = json.loads(done.stdout)["predictions"]
    metadata = facts["metadata"]
    assert metadata["label_order"] == ["neutral", "contradiction", "entailment"]
    evidence = metadata["label_order_evidence"]
    assert (evidence["seeds"], evidence["right"]["n,c,e"], len(evidence["right"])) == (40, 40, 6)
    assert evidence["p_value"] < 0.001
    next_best = sorted(evidence["right"].values())[-2] / 40
    told = f"n,c,e is right on 100.0% of 40 seeds, the next best order, .*, on {next_best:.1%}, p ="
    assert re.search(f"which class is which label, the seeds tell: {told}", caplog.text)
    warned = run("predict", *options, "--label-order", "e,n,c", code=2)
    assert re.search("which differ in label order, label order source.*: name ano", warned.stderr)
    warned = run("predict", *options, "--label-order", "e,n,c", "--overwrite")
    assert "right on 100.0% of 40 seeds" not in warned.stdout


@pytest.fixture
def preset(monkeypatch: pytest.MonkeyPatch) -> list[Preset]:
    """A list with two usable models, and two unusable ones in between."""
    entries = [
        Preset("First", str(MODEL), "S"),
        Preset("Absent", "nobody/nothing", "S"),
        Preset("Unknown", str(tiny_classifier("xlnet", GENERIC)), "M"),
        Preset("Last", str(tiny_classifier("gpt2")), "M"),
    ]

    def read(name: str, only: Sequence[str]) -> list[Preset]:
        return [e for e in entries if not only or e.name.casefold() in map(str.casefold, only)]

    monkeypatch.setattr("merge_metric.models.readiness.read_presets", read)
    return entries


def test_all_that_is_wrong_with_a_preset_is_told_first(predict: Run, preset: list[Preset]) -> None:
    done = predict("--preset", "mine", "--out", "all", code=2)
    lines = done.stderr.strip().splitlines()
    assert lines[-4] == "error: 2 of 4 models cannot be used as they are:"
    assert lines[-3].startswith("  Absent (nobody/nothing): HF_HUB_OFFLINE is set, and it is not")
    assert lines[-2].startswith("  Unknown (")
    assert "nothing says which class is which label" in lines[-2]
    assert lines[-1] == "to run the others: --only First,Last"
    assert not Path("all").exists()
    # How prompts are made is for the language models of a list.
    of_prompts = ("--shots", "mix", "--prompt-start", "<s>", "--chat-template")
    predict("--preset", "mine", "--only", "First,Last", *of_prompts, "--out", "all")


@pytest.mark.slow
def test_a_preset_goes_on_past_what_fails(
    predict: Run, preset: list[Preset], monkeypatch: pytest.MonkeyPatch
) -> None:
    preset[:] = [preset[0], Preset("Broken", str(tiny_classifier("bart")), "S"), preset[3]]
    opened = jobs.open_for

    def open_for(request: ModelRequest, problems: Any) -> Any:
        if request.model == preset[1].model:
            raise RuntimeError("it broke")
        return opened(request, problems)

    monkeypatch.setattr("merge_metric.predict.jobs.open_for", open_for)
    done = predict("--preset", "mine", "--out", "all", code=1)
    assert sorted(path.name for path in Path("all").iterdir()) == [
        f"{name}-{source}.parquet" for name in ("First", "Last") for source in ("demo", "snli")
    ]
    last = done.stderr.partition("1 models failed:")[2]
    assert f"Broken ({preset[1].model}): it broke" in " ".join(last.split())
    again = predict("--preset", "mine", "--out", "all", "--format", "json", code=1)
    facts = json.loads(again.stdout)
    assert [prediction["inferred"] for prediction in facts["predictions"]] == [0] * 4
    first = facts["predictions"][0]["metadata"]
    assert (len(facts["failed"]), first["group"], first["short_name"]) == (1, "S", "First")


@pytest.mark.slow
def test_models_whose_order_no_document_says(
    run: Run, turned: Path, preset: list[Preset], caplog: pytest.LogCaptureFixture
) -> None:
    preset[:] = [
        Preset("Turned", str(turned), "S", label_order="seeds"),
        Preset("Gone", "gone", "S", not_on_hub="it was deleted"),
    ]
    asked = ("predict", "--preset", "mine", "--dataset", "true")
    done = run(*asked, "--config", "snli")
    assert "classes: neutral, contradiction, entailment (seeds: n,c,e is" in done.stdout
    assert "left out: Gone: it was deleted" in caplog.text
    assert [path.name for path in Path("predictions").iterdir()] == ["Turned-snli.parquet"]
    few = run(*asked, "--limit-seeds", "9", code=2)
    assert "expected at least 30 seeds on which one order of labels is right" in few.stderr
    named = run(*asked, "--only", "gone", code=2)
    assert "Gone: cannot be run: it was deleted" in named.stderr


def test_language_models_run_source_by_source(
    predict: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_for(request: ModelRequest, problems: Any) -> Majority:
        opened.append(sources_of(problems))
        return Majority(np.array([0, 0, 1, 2]), {})

    monkeypatch.setattr("merge_metric.predict.jobs.open_for", open_for)
    predict("--model", "some/llm", "--kind", "lm")
    assert opened == [["demo"], ["snli"]]
    assert sorted(path.name for path in Path("predictions").iterdir()) == [
        "majority-demo.parquet", "majority-snli.parquet"]  # fmt: skip


DEALT = many_problems(9, 3) | many_problems(5, 2, "demo")
BERT = folder_of("bert-uncased")
TASKS = ("--executor", "local", "--tasks")


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> TasksHere:
    return TasksHere(monkeypatch)


@pytest.fixture
def deal(here: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    tiny_classifier("bert-uncased")
    write_folder(Path("merge-nli"), DEALT)
    monkeypatch.setattr(classifier, "_BLOCK", 20)
    fixed = ("predict", "--dataset", "merge-nli", "--device", "cpu", "--batch-tokens", "100")
    return partial(commands.run, *fixed)


def files(folder: str) -> dict[str, bytes]:
    """All files of a folder except locks, so that leftover files are found."""
    paths = Path(folder).iterdir()
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in paths}


@pytest.mark.slow
def test_tasks_that_had_other_models_are_not_mixed(
    deal: Run, tasks: TasksHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = classifier.Classifier.describe

    def other(self: Any) -> Description:
        known = describe(self)
        known.identity.update({"device": "cuda"} if tasks.distribution else {})
        return known

    answer = jobs.answer_task

    def answer_elsewhere(folder: Path, task: str) -> Any:
        with monkeypatch.context() as patch:
            if task.endswith("1/2"):
                patch.setattr(classifier.Classifier, "describe", other)
            return answer(folder, task)

    monkeypatch.setattr(jobs, "answer_task", answer_elsewhere)
    done = deal("--model", BERT, "--out", "mine.parquet", *TASKS, 2, code=1)
    assert "expected the same model, device and versions in every task, got different device" in (
        done.stderr
    )
    assert not Path("mine.parquet").exists()
    monkeypatch.setattr(jobs, "answer_task", answer)
    deal("--model", BERT, "--out", "mine.parquet", *TASKS, 2)
    assert len(tasks.blocks) == 2


@pytest.mark.slow
def test_each_task_of_a_list_has_one_model(
    deal: Run, tasks: TasksHere, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entries = [Preset("A", str(BERT), "S"), Preset("B", str(BERT), "M")]
    monkeypatch.setattr("merge_metric.models.readiness.read_presets", lambda name, only: entries)
    command = ("--preset", "mine", "--config", "demo")
    deal(*command, "--out", "one")
    tasks.failing = ("B 0/2",)
    failed = deal(*command, "--out", "dealt", *TASKS, 5, "--workers", 3, code=1)
    assert tasks.blocks == ["A 0/2", "A 1/2", "B 0/2", "B 1/2"]
    assert tasks.distribution == Distribution(executor="local", tasks=4, workers=3)
    assert f"1 models failed:\n  B ({BERT}): 1 of 2 tasks did not finish" in failed.stderr
    assert Path("dealt/A-demo.parquet").read_bytes() == Path("one/A-demo.parquet").read_bytes()
    tasks.failing = ()
    deal(*command, "--out", "dealt", *TASKS, 5)
    assert files("dealt") == files("one")
    deal(*command, "--out", "few", *TASKS, 1)
    assert tasks.blocks == ["A 0/1", "B 0/1"]


def test_a_task_on_each_device(deal: Run, tasks: TasksHere) -> None:
    deal("--model", BERT, "--out", "one.parquet")
    deal("--model", BERT, "--out", "two.parquet", "--device", "cpu,cpu")
    assert tasks.distribution == Distribution(executor="local", tasks=2, workers=2)
    assert [block.rpartition(" ")[2] for block in tasks.blocks] == ["0/2", "1/2"]
    assert Path("two.parquet").read_bytes() == Path("one.parquet").read_bytes()


def test_a_model_that_does_not_fit_a_task(
    deal: Run, tasks: TasksHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine("cpu", 1_000_000_000)
    monkeypatch.setattr("merge_metric.models.readiness.this_machine", lambda device: machine)
    deal("--model", BERT, "--out", "a.parquet", *TASKS, 2)
    done = deal("--model", BERT, "--out", "b.parquet", *TASKS, 2, "--workers", 2, code=2)
    assert (
        "memory as float32, each of 2 tasks at a time has 500.0 MB: take fewer --workers, or "
        "--dtype bfloat16"
    ) in done.stderr


WORDS = {0: "outside", 1: "tall", 2: "sleeping"}
"""Label → word that reveals it."""


def hypotheses(n: int = 90) -> tuple[list[str], NDArray[np.int64]]:
    """Hypotheses with a word that reveals the label, among other words."""
    generator = np.random.default_rng(0)
    labels = np.arange(n) % 3
    nouns = generator.choice(["man", "woman", "dog", "girl", "boy"], n)
    pairs = zip(nouns, labels, strict=True)
    return [f"The {noun} is {WORDS[label]}." for noun, label in pairs], labels


def trained() -> HypothesisOnly:
    return HypothesisOnly(*hypotheses(), {"file": "x.jsonl", "sha256": "0" * 64})


def test_it_never_reads_the_premise(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained()
    first = answers(model, [("A man is outside.", "The dog is tall."), ("", "The boy is outside.")])
    second = answers(model, [("Nobody sleeps.", "The dog is tall."), ("x", "The boy is outside."),
                         ("y", "The dog is tall.")])  # fmt: skip
    assert np.array_equal(first, second[:2])
    assert np.array_equal(second[0], second[2])
    several = [("", text) for text in hypotheses()[0]]
    expected = answers(model, several)
    monkeypatch.setattr(baselines, "_BATCH", 7)
    assert np.array_equal(answers(model, several), expected)


def test_a_label_that_is_not_in_the_training_data() -> None:
    texts, labels = hypotheses()
    two = np.flatnonzero(labels != 1)
    model = HypothesisOnly([texts[i] for i in two], labels[two], {"sha256": "1"})
    result = answers(model, [("", text) for text in ("A cat is tall.", "Words.", "")])
    assert (result[:, 1] == 0).all()
    assert result.sum(axis=1) == pytest.approx(1)


def test_the_majority_answers_everything_alike() -> None:
    model = Majority(np.array([2, 0, 2, 1, 2]), {"seeds": 5})
    assert answers(model, [("p", "h"), ("q", "i")]).tolist() == [[0.2, 0.2, 0.6]] * 2


@pytest.mark.real
def test_on_real_hypotheses(shared_data: Path) -> None:
    """Gururangan et al. (2018) report 67 % with all 550,000 problems; these are 9,842."""
    model = HypothesisOnly(*read_training_data(shared_data / "snli_dev.jsonl"))
    hypotheses, labels, *_ = read_training_data(shared_data / "snli_test.jsonl")
    result = answers(model, [("", text) for text in hypotheses])
    assert 0.55 < (result.argmax(axis=1) == labels).mean() < 0.65


def test_a_file_without_hypotheses(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,label\n1,0\n")
    message = "a column sentence2 or hypothesis or sentence_B or text2, got x, label"
    with pytest.raises(ValueError, match=message):
        read_training_data(tmp_path / "a.csv")


FEW = {
    "snli:1": ("A girl jumps.", "A girl is here.", 0),
    "snli:1/noun/0": ("A boy jumps.", "A boy is here.", 0),
    "snli:1/noun/1": ("A dog jumps.", "A dog is here.", 0),
    "snli:2": ("A man sits.", "A man walks.", 2),
    "snli:2/noun/0": ("A woman sits.", "A woman walks.", 2),
}
SHOTS = """
{"premise": "It runs.", "hypothesis": "It plays.", "label": 1}
{"premise": "A cat is red.", "hypothesis": "A cat is there.", "label": "entailment"}
{"premise": "A car is old.", "hypothesis": "A car is new.", "label": "contradiction"}
"""


@pytest.fixture
def few(here: None) -> None:
    write_folder(Path("merge-nli"), FEW)


COMMAND = ("predict", "--dataset", "merge-nli", "--out", "out.parquet")


def ask(*options: str, code: int = 0) -> Result:
    return commands.run(*COMMAND, *options, code=code)


def metadata_of() -> dict[str, Any]:
    return dict(json.loads(pq.read_schema("out.parquet").metadata[b"merge_nli"]))


def answers_to_few() -> tuple[NDArray[np.float64], list[int]]:
    rows = rows_of("out.parquet")
    assert set(rows) == set(FEW)
    probabilities = np.array([rows[name]["probabilities"] for name in FEW])
    return probabilities, [rows[name]["prediction"] for name in FEW]


@pytest.mark.usefixtures("few")
def test_a_model_in_a_folder() -> None:
    for part in (tiny_lm("gpt2"), tiny_tokenizer("gpt2")):
        part.save_pretrained("tiny")
    Path("own.jsonl").write_text(SHOTS)
    ask("--model", "tiny", "--shots", "own.jsonl", "--device", "cpu")
    (result, predictions), metadata = answers_to_few(), metadata_of()
    assert predictions == result.argmax(axis=1).tolist()
    assert (metadata["kind"], metadata["name"]) == ("language-model", "tiny")
    assert (metadata["shots"], metadata["n_shots"]) == ("own", 3)
    assert 0 < metadata["letter_mass"] < 1
    assert metadata["prefix_cached_tokens"] > 50


@pytest.mark.usefixtures("few")
def test_a_server() -> None:
    """The source's own examples are sent; an answer without letters may end the run."""

    def answer(request: Request, number: int) -> Reply:
        prompt = request.payload["prompt"]
        assert prompt.startswith(read_prompt("snli").text("", "")[:600])
        top = {" B": math.log(0.75), " C": math.log(0.25)} if "dog" not in prompt else {"I": -1}
        return Reply({"choices": [{"logprobs": {"top_logprobs": [top]}}]})

    with serving(answer) as server:
        options = ("--model", "big", "--base-url", server.url, "--concurrency", "2")
        stopped = ask(*options, code=2)
        assert "--missing-letters uniform" in " ".join(stopped.output.split())
        asked = len(server.requests)
        ask(*options, "--missing-letters", "uniform")
        assert len(server.requests) < asked + len(FEW), "it goes on where it stopped"
    (result, predictions), metadata = answers_to_few(), metadata_of()
    expected = [[0, 0.75, 0.25]] * 5
    expected[2] = [1 / 3] * 3
    np.testing.assert_allclose(result, expected)
    assert predictions == [1, 1, 0, 1, 1]
    assert (metadata["kind"], metadata["name"], metadata["shots"]) == ("remote", "big", "snli")
    assert metadata["answers_without_letters"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_odd_answers_of_an_interrupted_run(caplog: pytest.LogCaptureFixture) -> None:
    is_odd = True

    def answer(request: Request, number: int) -> Reply:
        if is_odd and number == 3:
            return Reply({"error": "no"}, 400)
        top = {" A": -0.5, " B": -1.0} | ({} if is_odd else {" C": -3.0})
        body = {"choices": [{"logprobs": {"top_logprobs": [top]}}]}
        return Reply({**body, "model": "small" if is_odd else "big"})

    with serving(answer) as server:
        options = ("--model", "big", "--base-url", server.url, "--concurrency", "1")
        strict = (*options, "--strict-server")
        assert "--strict-server refuses such answers" in ask(*strict, code=2).output
        ask(*options, code=2)
        is_odd = False
        assert "remove it to ask again" in " ".join(ask(*strict, code=2).output.split())
        for count in (2, 3):
            ask(*options)
            assert caplog.text.count("the server says they are of small") == count
        told = " ".join(ask(*strict, code=2).output.split())
    assert "refuses such answers; name another file" in told
    metadata = metadata_of()
    assert metadata["answered_as"] == ["small"]
    assert 0 < metadata["answers_partial"] < metadata["distinct_pairs"]


@pytest.mark.parametrize("answers", ["letters", "words"])
def test_a_model_that_always_says_a(answers: str, here: None) -> None:
    write_folder(Path("merge-nli"), many_problems(60, 3))

    def answer(request: Request, number: int) -> Reply:
        content = [{"token": t, "logprob": p, "top_logprobs": []} for t, p in ((" A", -0.1),)]
        content[0]["top_logprobs"] = [{"token": t, "logprob": -3.0} for t in "BC"]
        choice = {"message": {"content": "A"}, "finish_reason": "stop"}
        return Reply({"choices": [choice | {"logprobs": {"content": content}}]})

    def prompts(server: Server) -> set[str]:
        return {json.dumps(request.payload) for request in server.requests}

    with serving(answer) as server, serving(answer) as again, serving(answer) as other:
        asked = ["--model", "m", "--chat-template", "--answers", answers, "--config", "snli"]
        plain = ask(*asked, "--base-url", server.url)
        assert table_of("prediction") == [0] * 240
        assert "answers by letter: A 100.0%, B 0.0%, C 0.0%" in plain.stdout
        asked = [*asked, "--shuffle-letters", "--overwrite"]
        done = ask(*asked, "--base-url", server.url)
        right = np.equal(table_of("prediction"), table_of("label")).mean()
        assert 0.25 < right < 0.42
        assert "answers by letter: A 100.0%, B 0.0%, C 0.0%" in done.stdout
        assert metadata_of()["letters_seed"] == 0
        ask(*asked, "--base-url", again.url)
        assert prompts(again) < prompts(server)
        ask(*asked, "--letters-seed", "1", "--base-url", other.url)
        assert not prompts(other) & prompts(again)
    commands.run("report", "out.parquet", "--dataset", "merge-nli", "--out", "report.md")
    assert "m: answers by letter: A 100.0%, B 0.0%, C 0.0%." in Path("report.md").read_text()


def table_of(column: str) -> list[int]:
    return list(pq.read_table("out.parquet")[column].to_pylist())


def test_seeds_as_examples(here: None) -> None:
    mine = {n: (f"Now {p}", h, y) for n, (p, h, y) in many_problems(14, 2, "mine").items()}
    write_folder(Path("merge-nli"), many_problems(14, 2) | mine)

    def answer(request: Request, number: int) -> Reply:
        text = {"message": {"content": "B"}, "finish_reason": "stop"}
        return Reply({"choices": [text]})

    with serving(answer) as server:
        asked = ["--base-url", server.url, "--model", "m", "--chat-template", "--answers", "words"]
        asked += ["--shots", "seeds"]
        told = commands.refused(*COMMAND, *asked)
        assert "--shots: expected with seeds problems of one source" in told
        assert not server.requests
        done = ask(*asked, "--config", "snli")
    metadata = metadata_of()
    shots = metadata["problems"]["shots"]["snli"]
    assert (metadata["shots"], metadata["n_shots"], len(shots)) == ("seeds", 6, 6)
    shown = [message["content"] for message in server.requests[0].payload["messages"]]
    assert shown[1:12:2] == ["ABC"[LABELS.index(shot["label"])] for shot in shots]
    for request in server.requests:
        assert not {request.payload["messages"][-1]["content"]} & {*shown[:12:2]}
    result = set(pq.read_table("out.parquet")["seed_id"].to_pylist())
    assert not result & {shot["seed_id"] for shot in shots}
    assert len(result) == 14 - 6
    assert "--allow-missing" in done.stdout
