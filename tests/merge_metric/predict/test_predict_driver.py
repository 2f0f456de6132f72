from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.problem_folder import many_problems, write_folder
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
        (np.full((1, 3), np.nan), r"got \[nan, nan, nan\] .*; the model overflows"),
        (np.ones((2, 3)), r"of shape \(1, 3\), got \(2, 3\)"),
        (np.array([[3.0, -2.0, 7.0]]), r"got \[3.0, -2.0, 7.0\] for the pair .* take the softmax"),
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
