import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused, run
from helpers.completions_server import Reply, remote_model, serving
from helpers.problem_folder import Problem, many_problems, write_folder
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from numpy.typing import NDArray

from merge_metric.frame.predictions import (
    read_metadata,
    read_predictions,
    with_metadata,
    write_predictions,
)
from merge_metric.models.checkpoints import Loaded
from merge_metric.models.classifier import Classifier
from merge_metric.models.language_model import LanguageModel, Words, WritingModel
from merge_metric.models.pair_model import Answers, Description, Pair
from merge_metric.models.prompts import read_prompt
from merge_metric.models.remote import RemoteModel
from merge_metric.predict import driver
from merge_metric.predict import problems as problems_module
from merge_metric.predict.driver import Asking, predict
from merge_metric.predict.problems import read_problems


def answer(pair: Pair) -> NDArray[np.float64]:
    """Probabilities that differ between pairs."""
    values = np.array([len(pair[0]), len(pair[1]), sum(map(ord, "".join(pair))) % 97], float) + 1
    return values / values.sum()


@dataclass
class Fake:
    """A model that answers by `answer`, from the last pair to the first, and keeps a diary."""

    name: str = "fake"
    batch: int = 7
    stop_after: int | None = None
    asked: list[Pair] = field(default_factory=list)

    def describe(self) -> Description:
        return Description(identity={"kind": "fake", "name": self.name, "revision": "1"})

    def answer(self, pairs: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        order = list(reversed(range(len(pairs))))
        for number, start in enumerate(range(0, len(pairs), self.batch)):
            if number == self.stop_after:
                raise KeyboardInterrupt
            positions = order[start : start + self.batch]
            self.asked += [pairs[i] for i in positions]
            yield Answers.of(positions, np.array([answer(pairs[i]) for i in positions]))


@pytest.fixture
def problems(tmp_path: Path) -> pa.Table:
    return read_problems(str(write_folder(tmp_path / "merge-nli", many_problems(30, 4))))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "predictions" / "fake.parquet"


def kept(out: Path) -> list[Path]:
    """Files of answers, each of one interrupted call."""
    return sorted(out.parent.glob(f".{out.name}.answers/*/*.answers"))


def interrupt(problems: pa.Table, out: Path, batches: int) -> Fake:
    model = Fake(stop_after=batches)
    with pytest.raises(KeyboardInterrupt):
        predict(model, problems, out, progress=False)
    return model


def test_each_distinct_pair_is_asked_once(problems: pa.Table, out: Path) -> None:
    ids = pa.array([f"{name}/again" for name in problems["variant_id"].to_pylist()])
    repeated = pa.concat_tables([problems, problems.set_column(0, "variant_id", ids).slice(20)])
    pairs = [*zip(repeated["premise"].to_pylist(), repeated["hypothesis"].to_pylist(), strict=True)]
    model = Fake()
    outcome = predict(model, repeated, out, progress=False)
    assert sorted(model.asked) == sorted(set(pairs))
    assert (outcome.problems, outcome.inferred) == (len(pairs), outcome.pairs)
    assert outcome.pairs == len(set(pairs)) < len(pairs)


def digest_of(*texts: str) -> str:
    content = "".join(f"{len(text.encode())}:{text}" for text in texts)
    return "md5:" + md5(content.encode()).hexdigest()[:16]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".jsonl.gz"])
def test_the_file_is_made_some_rows_at_a_time(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = many_problems(40, 3) | many_problems(11, 2, "demo")
    folder = write_folder(tmp_path / "merge-nli", rows)
    problems = read_problems(str(folder), ["snli_nouns", "demo", "snli_verbs"])
    ids = problems["variant_id"].to_pylist()
    assert sorted(ids) == sorted(rows)
    monkeypatch.setattr(driver, "ROWS", 9)
    monkeypatch.setattr(problems_module, "_PAIRS", 4)
    out = predict(Fake(), problems, tmp_path / f"p{suffix}", progress=False).path
    answers = [answer(rows[name][:2]) for name in ids]
    obvious = {
        "variant_id": ids,
        "seed_id": [name.partition("/")[0] for name in ids],
        "label": [rows[name][2] for name in ids],
        "prediction": [int(item.argmax()) for item in answers],
        "text_digest": [digest_of(name, *rows[name][:2]) for name in ids],
        "probabilities": pa.array(map(list, answers), pa.list_(pa.float64(), 3)),
    }
    table = with_metadata(pa.table(obvious), read_metadata(out))
    whole = tmp_path / f"whole{suffix}"
    write_predictions(whole, table)
    assert out.read_bytes() == whole.read_bytes()
    assert read_predictions(out).equals(pa.table(obvious))


def test_an_interrupted_run_goes_on(problems: pa.Table, out: Path) -> None:
    whole = predict(Fake(), problems, out.with_name("whole.parquet"), progress=False).path
    first, second = interrupt(problems, out, 3), Fake(batch=11)
    assert not out.exists()
    assert len(kept(out)) == 1
    outcome = predict(second, problems, out, progress=False)
    assert len(first.asked) == 21
    assert not set(first.asked) & set(second.asked)
    assert len(first.asked) + len(second.asked) == outcome.pairs
    assert outcome.inferred == len(second.asked)
    assert out.read_bytes() == whole.read_bytes()
    assert kept(out) == []


@pytest.mark.parametrize("other", ["model", "problems", "labels"])
def test_other_settings_are_not_mixed(problems: pa.Table, out: Path, other: str) -> None:
    interrupt(problems, out, 3)
    changed, model = problems, Fake()
    if other == "model":
        model = Fake("another")
    elif other == "problems":
        changed = problems.slice(1)
    else:
        flipped = pa.array([2 - label for label in problems["label"].to_pylist()])
        changed = problems.set_column(4, "label", flipped)
    outcome = predict(model, changed, out, progress=False)
    assert len(model.asked) == outcome.pairs
    assert len(kept(out)) == 1
    back, content = Fake(), out.read_bytes()
    differ = {"model": "name", "problems": "the texts of the problems", "labels": "gold labels"}
    result = f"found those of {model.name} for {len(changed)} problems, which"
    told = f"of another run, {result} differ in {differ[other]}: name another"
    with pytest.raises(FileExistsError, match=told):
        predict(back, problems, out, progress=False)
    assert (back.asked, out.read_bytes()) == ([], content)
    outcome = predict(back, problems, out, progress=False, overwrite=True)
    assert len(back.asked) == outcome.pairs - 21


def test_what_is_finished_is_not_run_again(problems: pa.Table, out: Path) -> None:
    first, model = predict(Fake(), problems, out, progress=False), Fake()
    left = Asking(model.describe(), problems, out).store.folder
    left.mkdir(parents=True)  # as if the command was stopped after the file appeared
    again = predict(model, problems, out, progress=False)
    assert (model.asked, left.exists()) == ([], False)
    assert (again.inferred, again.metadata["fingerprint"]) == (0, first.metadata["fingerprint"])
    assert len(read_predictions(out)) == len(problems)


def test_files_that_say_nothing_are_not_replaced(problems: pa.Table, out: Path) -> None:
    class Slow(Fake):
        def answer(self, pairs: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
            yield from super().answer(pairs)
            out.write_text("somebody else's")

    with pytest.raises(FileExistsError, match="found a file in which no model"):
        predict(Slow(), problems, out, progress=False)
    assert out.read_text() == "somebody else's"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (np.full((1, 3), np.nan), r"got \[nan, nan, nan\] in row 0; .* models may overflow"),
        (np.ones((2, 3)), r"for each of 1 texts, got an array of shape \(2, 3\)"),
        (np.array([[3.0, -2.0, 7.0]]), r"of logits take the softmax, .* got \[3.0, -2.0, 7.0\] in"),
        (np.ones((1, 3)) / 3, "fake: expected an answer to each of .* questions, got 1"),
    ],
)  # fmt: skip
def test_answers_that_are_none(
    problems: pa.Table, out: Path, answers: NDArray[np.float64], message: str
) -> None:
    class Broken(Fake):
        def answer(self, pairs: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
            yield Answers.of([0], answers)

    with pytest.raises(ValueError, match=message):
        predict(Broken(), problems, out, progress=False)
    assert not out.exists()
    with pytest.raises(ValueError, match="expected problems to ask the model about, got none"):
        predict(Fake(), problems.slice(0, 0), out, progress=False)


@dataclass
class Killed:
    """A model whose process ends after some batches."""

    model: Any
    batches: int

    def describe(self) -> Description:
        return self.model.describe()

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        for number, answers in enumerate(self.model.answer(questions, repeat=repeat)):
            if number == self.batches:
                raise KeyboardInterrupt
            yield answers


def classifier(tokens: int | None) -> Classifier:
    return Classifier.load(tiny_classifier("bert-uncased"), device="cpu", batch_tokens=tokens)


def language_model(tokens: int | None) -> LanguageModel:
    loaded = Loaded(tiny_lm("llama"), tiny_tokenizer("llama"), "llama", "1")
    return LanguageModel(loaded, prompt=read_prompt("none"), batch_tokens=tokens)


def writing_model(tokens: int | None) -> WritingModel:
    loaded = Loaded(tiny_lm("gpt2"), tiny_tokenizer("gpt2"), "gpt2", "1")
    words = Words(max_tokens=2, temperature=1.0, samples=2)
    return WritingModel(loaded, prompt=read_prompt("none"), words=words)


@pytest.mark.slow(but=["classifier"])
@pytest.mark.parametrize("load", [classifier, language_model, writing_model])
def test_going_on_in_other_batches_changes_no_byte(
    load: Any, problems: pa.Table, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = out.with_name("whole.parquet")
    predict(load(None), problems, whole, repeat_seeds=1, progress=False)
    monkeypatch.setattr(problems_module, "_PAIRS", 4)
    for tokens in (60, 300):
        with pytest.raises(KeyboardInterrupt):
            predict(Killed(load(tokens), 2), problems, out, repeat_seeds=1, progress=False)
    predict(load(4000), problems, out, repeat_seeds=1, progress=False)
    assert out.read_bytes() == whole.read_bytes()


N = 12
PROMPT = read_prompt("none")


def premises(number: int = N) -> pa.Table:
    seeds = [f"s{n // 4}" for n in range(number)]
    ids = [seed if n % 4 == 0 else f"{seed}/{n}" for n, seed in enumerate(seeds)]
    texts = {"premise": [f"Premise {n}." for n in range(number)], "hypothesis": ["H."] * number}
    return pa.table(
        {"variant_id": ids, "seed_id": seeds, **texts, "label": [n // 4 % 3 for n in range(number)]}
    )


def answered(body: dict[str, Any]) -> dict[str, Any]:
    """Answer a request as a server, by letters or in words."""
    n = int(body["messages"][-1]["content"].split("Premise ")[1].partition(".")[0])
    choice: dict[str, Any] = {"message": {"content": f"Answer: {'ABC?'[n % 4]}"}}
    if "logprobs" in body:
        top = [{"token": "ABC"[n % 3], "logprob": -0.1}, {"token": "A", "logprob": -3.0}]
        choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    usage = {"prompt_tokens": 30, "completion_tokens": 5}
    return {"choices": [{**choice, "finish_reason": "stop"}], "usage": usage}


def model_at(url: str, words: Words | None, **options: Any) -> RemoteModel:
    return remote_model(url, model="m", prompt=PROMPT, chat_template=True, words=words, **options)


def file_of(model: RemoteModel, out: Path) -> tuple[RemoteModel, Asking]:
    times = int(model.words is not None)
    return model, Asking(model.describe(), premises(), out, repeat_seeds=times)


def take(model: RemoteModel, out: Path, paths: list[Path]) -> None:
    _, asking = file_of(model, out)
    results = partial(driver.take_results, model, asking, paths)
    asking.complete(results, {}, overwrite=False)


def results_of(files: Iterable[Path]) -> list[str]:
    """Lines of results in a provider's format."""
    lines = [line for path in files for line in path.read_text().splitlines()]
    outcome = []
    for line in lines:
        request = json.loads(line)
        assert request.keys() == {"custom_id", "method", "url", "body"}
        assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
        response = {"status_code": 200, "request_id": "r", "body": answered(request["body"])}
        result = {"custom_id": request["custom_id"], "response": response, "error": None}
        outcome.append(json.dumps({"id": "b", **result}))
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [None, Words(), Words(samples=3, temperature=1.0)], ids=["letters", "words", "samples"]
)
def test_a_batch_is_as_good_as_asking(
    words: Words | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "MOST_REQUESTS", 5)
    with serving(lambda r, n: Reply(answered(r.payload))) as server:
        asked, url = tmp_path / "asked.parquet", server.url
        times = int(words is not None)
        predict(model_at(url, words), premises(), asked, repeat_seeds=times, progress=False)
    out = tmp_path / "p.parquet"
    total = (N + (3 if words else 0)) * (words.samples if words else 1)
    path = tmp_path / "requests.jsonl"
    files = driver.write_requests(*file_of(model_at(url, words), out), path)
    assert [place.name for place in files][:2] == ["requests.jsonl", "requests-2.jsonl"]
    assert [*files.values()] == [5] * (total // 5) + ([total % 5] if total % 5 else [])
    with pytest.raises(FileExistsError, match=r"requests.jsonl: expected no file, found one"):
        driver.write_requests(*file_of(model_at(url, words), out), path)
    lines = results_of(files)
    random.Random(0).shuffle(lines)
    failed = json.loads(lines.pop())
    failed["response"] = {"status_code": 429, "body": {"error": "slow down"}}
    parts = [lines[: total // 2], [*lines[total // 2 :], json.dumps(failed)]]
    places = [tmp_path / "results.jsonl.gz", tmp_path / "results.jsonl"]
    for place, part in zip(places, parts, strict=True):
        place.write_text("\n".join(part) + "\n\n", encoding="utf-8-sig")
    places[0].write_bytes(gzip.compress(places[0].read_bytes()))
    for _ in range(2):  # repeated results count once
        with pytest.raises(ValueError, match=r", 1 are missing: 1 requests failed, .* HTTP 429"):
            take(model_at(url, words), out, places)
    left = tmp_path / "rest.jsonl"
    rest = driver.write_requests(*file_of(model_at(url, words), out), left)
    assert sum(rest.values()) == (words.samples if words else 1)
    last, again = tmp_path / "last.jsonl", tmp_path / "again.jsonl"
    last.write_text("\n".join(results_of(rest)))
    # The first answer to a request counts.
    again.write_text("\n".join(lines).replace("Answer: C", "Answer: A"))
    take(model_at(url, words), out, [*places, last, again])
    tables = [pq.read_table(place) for place in (asked, out)]
    assert tables[0].equals(tables[1])
    assert {*tables[0].column_names} >= ({"answer_text", "repeats"} if words else {"probabilities"})
    metadata = [read_metadata(place) for place in (asked, out)]
    assert metadata[1].pop("milliseconds", None) is None
    metadata[0].pop("milliseconds", None)
    assert metadata[0] == metadata[1]
    assert not [*tmp_path.glob(".*answers*")]


def test_files_of_a_longer_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, out, path = model_at("http://x/v1", None), tmp_path / "p.parquet", tmp_path / "r.jsonl"
    monkeypatch.setattr(driver, "MOST_REQUESTS", 2)
    older = driver.write_requests(*file_of(model, out), path)
    path.unlink()
    monkeypatch.setattr(driver, "MOST_REQUESTS", N - 1)
    with pytest.raises(FileExistsError, match=r"r-2.jsonl: expected no file, found one"):
        driver.write_requests(*file_of(model, out), path)
    assert not path.exists()
    files = driver.write_requests(*file_of(model, out), path, overwrite=True)
    assert len(older) > len(files) == 2
    assert sorted(tmp_path.glob("r*.jsonl")) == sorted(files)
    assert sum(len(place.read_text().splitlines()) for place in files) == N


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no JSON", r"results.jsonl: line 1: expected a JSON object per line, got 'no JSON'"),
        ('{"custom_id": "other-0-0"}', r"line 1: expected a result of this run, whose custom_id"),
        ('{"custom_id": "RUN-0-1"}', r"line 1: expected a result of this run"),
        ('{"custom_id": "RUN-0-0"}', r"15 are missing: .*: expected a completion, got None'"),
        ('{"custom_id": "RUN-0-0", "response": {"status_code": 200, "body": {}}}',
         r"15 are missing: 1 requests failed, .*line 1: expected a completion, got \{\}"),
    ],
)  # fmt: skip
def test_results_that_are_none(line: str, message: str, tmp_path: Path) -> None:
    model, out = model_at("http://localhost:1/v1", Words()), tmp_path / "p.parquet"
    file, *_ = driver.write_requests(*file_of(model, out), tmp_path / "r.jsonl")
    id_ = json.loads(file.read_text().splitlines()[0])["custom_id"]
    path = tmp_path / "results.jsonl"
    path.write_text(line.replace("RUN", id_.partition("-")[0]))
    with pytest.raises(ValueError, match=message):
        take(model, out, [path])
    assert not out.exists()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: dict[str, Problem] = {
        f"snli:{n}{variant}": (f"Premise {n}. The {noun} runs.", f"A {noun} runs {n}.", n % 3)
        for n in range(4)
        for variant, noun in (("", "dog"), ("/noun/dog/cat", "cat"))
    }
    return write_folder(tmp_path_factory.mktemp("data") / "merge-nli", made)


def command(url: str, dataset: Path, out: Path, *more: object) -> list[str]:
    return [
        "predict", "--base-url", url, "--model", "m", "--dataset", str(dataset), "--shots", "none",
        "--chat-template", "--answers", "words", "--out", str(out), *map(str, more),
    ]  # fmt: skip


def test_the_expected_cost_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After 50 answers of 30 and 5 tokens each, where 100 are the most."""
    with serving(lambda request, _: Reply(answered(request.payload))) as server:
        model = model_at(server.url, Words(max_tokens=100))
        asking = Asking(model.describe(), premises(80), tmp_path / "p.parquet")
        with caplog.at_level("INFO"):
            asking.ask(model, progress=False, prices=(1e6, 2e6))
    told = "m: by the first answers, all cost about 3,200.00, at most 18,400.00"
    assert [record.message for record in caplog.records].count(told) == 1


def test_dry_runs(dataset: Path, tmp_path: Path) -> None:
    """They show requests, tokens and cost; nothing is asked or written."""
    asked = command("http://localhost:1/v1", dataset, tmp_path / "p.parquet", "--dry-run")
    asked += ["--prices", "1", "10", "--repeat-seeds", "2", "--max-answer-tokens", "100"]
    told = json.loads(run(*asked, "--format", "json").stdout)
    assert (told["requests"], told["most_answer_tokens"]) == (16, 1600)
    assert told["most_cost"] == pytest.approx((told["prompt_tokens"] + 16000) / 1e6)
    assert 16 * 15 < told["prompt_tokens"] < 16 * 60
    other = [*asked, "--server-setting", "max_tokens=null"]
    assert "a limit of an answer's tokens" in refused(*other)
    other += ["--server-setting", "max_completion_tokens=500", "--format", "json"]
    assert json.loads(run(*other).stdout)["most_answer_tokens"] == 8000
    text = run(*asked).stdout
    assert text.startswith("16 requests\nabout ")
    assert "cost: at most 0.02" in text
    assert [*tmp_path.iterdir()] == []


def test_sources_and_lists_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_folder(Path("merge-nli"), many_problems(1, 1) | many_problems(1, 1, "mine"))
    asked = command("http://localhost:1/v1", Path("merge-nli"), Path("out"))[:-2]
    told = run(*asked, "--dry-run", "--format", "json")
    assert json.loads(told.stdout)["requests"] == 4
    assert "of one source, or --out" in refused(*asked, "--batch-out", "r.jsonl")
    here = refused(*asked, "--config", "mine", "--kind", "lm", "--batch-out", "r.jsonl")
    assert "for batches a language model on a server" in here
    one = run(*asked, "--config", "mine", "--batch-out", "r.jsonl")
    assert one.stdout == "r.jsonl: 2 requests\n"


def test_batches_on_the_command_line(dataset: Path, tmp_path: Path) -> None:
    out, requests = tmp_path / "p.parquet", tmp_path / "r.jsonl"
    with serving(lambda r, n: Reply(answered(r.payload))) as server:
        written = run(*command(server.url, dataset, out, "--batch-out", requests))
        assert f"{requests}: 8 requests" in written.stdout
        results = tmp_path / "results.jsonl"
        results.write_text("\n".join(results_of([requests])))
        more = ("--batch-in", results, "--prices", 1000, 10000)
        read = run(*command(server.url, dataset, out, *more))
    assert server.requests == []
    assert "8 requests, 240 tokens of prompts and 40 of answers, cost 0.64" in read.stdout
    assert "answers that name no label: 25.0%" in read.stdout
    assert "distinct pairs, 8 inferred\n" in read.stdout
    assert "seeds whose answers name a label" in read.stdout
