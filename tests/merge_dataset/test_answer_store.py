"""The store of answers: what goes in comes out, through kills, damage and several processes."""

import pickle
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.kept_answers import keys_in
from hypothesis import given
from hypothesis import strategies as st

from merge_dataset.answer_store import KEY, AnswerStore, ask, key_of

SCHEMA = pa.schema([("text", pa.string()), ("numbers", pa.list_(pa.float32()))])
IDENTITY = {"name": "org/a-model", "revision": "1"}
QUESTIONS = [f"What is {number}?" for number in range(40)]


def store_in(root: Path, **identity: Any) -> AnswerStore:
    return AnswerStore(root, IDENTITY | identity, SCHEMA, redo="merge-nli again")


def keys_of(questions: Sequence[str]) -> Any:
    return np.array([key_of(question) for question in questions], KEY)


def answers_to(questions: Sequence[str]) -> pa.Table:
    rows = [{"text": f"{q}é" * 3, "numbers": [float(c) for c in q if c.isdigit()]}
            for q in questions]  # fmt: skip
    return pa.Table.from_pylist(rows, SCHEMA)


class Killed(Exception):
    """Raised to interrupt a command in these tests."""


class Model:
    """Answers in batches of random size and order; killed after some batches."""

    def __init__(self, batches: int = 10**9, seed: int = 0) -> None:
        self.batches, self.random = batches, random.Random(seed)
        self.calls: list[list[str]] = []

    def answer(self, questions: Sequence[str]) -> Iterator[tuple[Sequence[int], pa.Table]]:
        self.calls.append(list(questions))
        left = self.random.sample(range(len(questions)), len(questions))
        while left:
            if not self.batches:
                raise Killed
            self.batches -= 1
            size = self.random.randint(1, 5)
            some, left = left[:size], left[size:]
            yield some, answers_to([questions[i] for i in some])


def fill(
    store: AnswerStore, model: Model, blocks: Sequence[Sequence[str]] = (QUESTIONS,), **more: Any
) -> list[str]:
    """Ask, and return the questions that the model got."""
    sizes = [len(block) for block in blocks]
    ask(store, blocks, model.answer, key=key_of, sizes=sizes, what="m", unit="question", **more)
    return [question for call in model.calls for question in call]


def test_what_goes_in_comes_out_in_any_order(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    assert store.missing(keys_of(QUESTIONS)).all()
    assert not store.folder.exists()
    fill(store, Model())
    for reader in (store, store_in(tmp_path), pickle.loads(pickle.dumps(store))):
        for asked in (QUESTIONS, QUESTIONS[::-1], QUESTIONS[3:9] * 2, []):
            assert reader.read(keys_of(asked)).equals(answers_to(asked))
    with pytest.raises(ValueError, match=r"41 questions, 1 are missing; run: merge-nli again"):
        store.read(keys_of([*QUESTIONS, "What else?"]))
    assert store_in(tmp_path, revision="2").missing(keys_of(QUESTIONS)).all()


@given(st.lists(st.lists(st.integers(0, 60), max_size=20), max_size=12), st.integers(1, 30))
def test_each_question_is_asked_once(numbers: list[list[int]], at_once: int) -> None:
    blocks = [[f"{n}" for n in block] for block in numbers]
    with TemporaryDirectory() as folder:
        store, model = store_in(Path(folder)), Model()
        asked = fill(store, model, blocks, at_once=at_once)
        assert sorted(asked) == sorted({question for block in blocks for question in block})
        assert all(len(call) >= at_once for call in model.calls[:-1])
        assert fill(store_in(Path(folder)), Model(), blocks) == []


@pytest.mark.parametrize("batches", [0, 1, 4])
def test_what_was_answered_before_a_kill_is_kept(batches: int, tmp_path: Path) -> None:
    killed = Model(batches)
    with pytest.raises(Killed):
        fill(store_in(tmp_path), killed)
    kept = set(keys_of(QUESTIONS)[~store_in(tmp_path).missing(keys_of(QUESTIONS))].tolist())
    assert bool(kept) == bool(batches)
    asked = fill(store_in(tmp_path), Model(seed=1))
    assert kept.isdisjoint(keys_of(asked).tolist())
    assert len(kept) + len(asked) == len(QUESTIONS)
    assert store_in(tmp_path).read(keys_of(QUESTIONS)).equals(answers_to(QUESTIONS))


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


DAMAGE: dict[str, Callable[[bytes, int], bytes]] = {
    "cut": lambda data, place: data[:place],
    "flip": flip,
    "zeros": lambda data, place: data[:place] + bytes(len(data) - place),
    "more": lambda data, place: data + data[: place % 40],
}


@pytest.mark.slow(but=["flip"])
@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_answers_are_asked_for_again(how: str, tmp_path: Path) -> None:
    fill(store_in(tmp_path), Model())
    (path,) = tmp_path.glob("*/*.answers")
    whole, keys = path.read_bytes(), keys_of(QUESTIONS)
    for place in range(0, len(whole), 37):
        path.write_bytes(DAMAGE[how](whole, place))
        if how == "more":
            assert store_in(tmp_path).read(keys).equals(answers_to(QUESTIONS))
        else:
            with pytest.raises(ValueError, match=re.escape(f"{path.parent}")):
                store_in(tmp_path).read(keys)
        asked = fill(store_in(tmp_path), Model())
        assert (how == "more") == (not asked)
        assert store_in(tmp_path).read(keys).equals(answers_to(QUESTIONS))
        for more in set(tmp_path.glob("*/*.answers")) - {path}:
            more.unlink()


def test_a_file_of_another_store_is_no_answer(tmp_path: Path) -> None:
    for revision in ("1", "2"):
        fill(store_in(tmp_path, revision=revision), Model())
    one, other = sorted(tmp_path.glob("*/*.answers"))
    one.write_bytes(other.read_bytes())
    missing = [store_in(tmp_path, revision=r).missing(keys_of(QUESTIONS)).sum() for r in "12"]
    assert sorted(missing) == [0, len(QUESTIONS)]


def test_processes_do_not_disturb_each_other(tmp_path: Path) -> None:
    stores = [store_in(tmp_path) for _ in range(2)]
    for store in stores:
        assert store.missing(keys_of(QUESTIONS)).all()
    for store in stores:  # the second has not seen what the first wrote
        fill(store, Model())
    assert len(keys_in(store.folder)) == 2 * len(QUESTIONS)
    assert len(list(store.folder.glob("*.answers"))) == 2
    assert store_in(tmp_path).read(keys_of(QUESTIONS)).equals(answers_to(QUESTIONS))


def test_a_model_that_leaves_questions_out(tmp_path: Path) -> None:
    def some(questions: Sequence[str]) -> Iterator[tuple[Sequence[int], pa.Table]]:
        yield [0], answers_to(questions[:1])

    with pytest.raises(ValueError, match="m: expected an answer to each of 40 questions, got 1"):
        ask(store_in(tmp_path), [QUESTIONS], some, key=key_of, sizes=[40], what="m", unit="q")
