"""Whole files or none, digests, and tables that read back as they were."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.replacement_tables import Replacement, replacements_in, table_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from generation.problems.on_disk import read_block
from generation.records import Exclusion, Seed
from generation.run_folder import (
    RunFolder,
    digest_of,
    digest_of_file,
    digests,
    read_json,
    slug,
    write_atomic,
    write_json,
    write_table,
    write_text,
)
from generation.run_tables import (
    EXCLUSIONS,
    exclusion_table,
    problem_schema,
    problem_table,
    replacement_schema,
    sorted_replacements,
)

modest = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Examples enough to find what is wrong; a busy machine is no failure."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- Atomic files ---


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    """Whatever stops the writer, the old content stays and nothing else is left."""
    path = tmp_path / "f.txt"
    write_text(path, "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half of the n")
        raise error

    with pytest.raises(type(error)):
        write_atomic(path, fail)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["f.txt"]


def test_a_writer_that_never_begins(tmp_path: Path) -> None:
    """An error before the first byte goes through as it is."""
    with pytest.raises(ZeroDivisionError):
        write_atomic(tmp_path / "f", lambda _: 1 // 0)
    assert names(tmp_path) == []


def test_the_file_is_not_there_before_it_is_whole(tmp_path: Path) -> None:
    """While the writer is at work, readers see the old file."""
    path = tmp_path / "f.txt"
    path.write_text("old")
    seen = []

    def write(temporary: Path) -> None:
        temporary.write_text("new")
        seen.append(path.read_text())

    write_atomic(path, write)
    assert (seen, path.read_text()) == (["old"], "new")


def test_what_a_killed_run_left_is_overwritten(tmp_path: Path) -> None:
    """A temporary file from before neither stays nor gets into the new one."""
    path = tmp_path / "f.txt"
    left: list[Path] = []
    write_atomic(path, lambda temporary: left.append(temporary) or temporary.write_text("a"))
    left[0].write_text("what a killed run left, longer than the new text")
    write_text(path, "new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["f.txt"]


def test_folders_are_made(tmp_path: Path) -> None:
    """The folder of a file need not be there."""
    write_text(tmp_path / "a" / "b" / "f.txt", "é")
    assert (tmp_path / "a" / "b" / "f.txt").read_bytes() == "é".encode()


# --- JSON and Parquet ---


def test_json_round_trip(tmp_path: Path) -> None:
    """Values come back; letters stay readable; the order of keys stays."""
    path = tmp_path / "f.json"
    value = {"b": [1, 2.5, None, True], "a": {"é": "\N{GRINNING FACE}"}}
    write_json(path, value)
    text = path.read_text(encoding="utf-8")
    assert read_json(path) == value
    assert '"é": "\N{GRINNING FACE}"' in text
    assert text.index('"b"') < text.index('"a"')
    assert text.endswith("}\n")


def test_broken_json_names_the_file(tmp_path: Path) -> None:
    """The message has the path and the parser's place."""
    path = tmp_path / "broken.json"
    path.write_text('{"a": 1,\n "b" 2}')
    with pytest.raises(ValueError, match=r"broken\.json: expected JSON, got .*line 2"):
        read_json(path)


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    """Files can be compared by digest; another table gives other bytes."""
    table = pa.table({"a": list(range(1000)), "b": ["x"] * 1000})
    for name, each in {"1": table, "2": table, "3": table.slice(1)}.items():
        write_table(tmp_path / name, each)
    first, second, third = ((tmp_path / name).read_bytes() for name in "123")
    assert first == second != third
    assert pq.read_table(tmp_path / "1").equals(table)


# --- Digests ---


def test_digest_of_ignores_the_order_of_keys() -> None:
    """Equal values have equal digests; the order of a list counts, and so do types."""
    assert digest_of({"a": 1, "b": {"c": [1], "d": 2}}) == digest_of(
        {"b": {"d": 2, "c": [1]}, "a": 1}
    )
    others = [{"a": 1}, {"a": "1"}, {"a": 1.5}, {"a": [1]}, {"a": [1, 2]}, {"a": [2, 1]}, {}]
    assert len({digest_of(value) for value in others}) == len(others)


def test_digest_of_is_sha256_of_sorted_json() -> None:
    """Pinned, because fingerprints and folder names are made of it."""
    text = '{"a": [1, 2], "é": null}'
    assert digest_of({"é": None, "a": (1, 2)}) == hashlib.sha256(text.encode()).hexdigest()
    assert digest_of("") == hashlib.sha256(b'""').hexdigest()


def test_digest_of_a_file(tmp_path: Path) -> None:
    """SHA-256 of the bytes, also of many and of none."""
    for name, content in {"a": b"abc", "empty": b"", "large": b"x" * 3_000_000}.items():
        (tmp_path / name).write_bytes(content)
        assert digest_of_file(tmp_path / name) == hashlib.sha256(content).hexdigest()
    assert digests({"one": tmp_path / "a", "two": tmp_path / "empty"}) == {
        "one": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "two": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    }


@modest
@given(st.text(max_size=30))
def test_a_slug_is_a_file_name(text: str) -> None:
    """Letters, digits, dots and hyphens; what is one already stays."""
    found = slug(text)
    assert re.fullmatch(r"[A-Za-z0-9.-]*", found)
    assert slug(found) == found


# --- The run folder ---


def test_everything_lies_in_the_run_folder(tmp_path: Path) -> None:
    """Every path is directly in the folder, no two are the same."""
    run = RunFolder(tmp_path)
    paths = [run.config, run.manifest, run.suggested, run.store, run.problems, run.replacements,
             run.exclusions, run.seeds, run.variants]  # fmt: skip
    assert {path.parent for path in paths} == {tmp_path}
    assert len({path.name for path in paths}) == len(paths)
    assert run.named("union").variants == tmp_path / "union" / "variants.parquet"


# --- Tables ---

IDS = st.text("ab:/~1é", min_size=1, max_size=5)
TEXT = st.text(max_size=12)
MLMS = st.lists(TEXT, max_size=3).map(tuple)
CLASSES = st.sampled_from(["noun", "verb"])

SEEDS = st.builds(
    Seed,
    seed_id=IDS,
    source=TEXT,
    texts=st.tuples(TEXT, TEXT),
    label=st.sampled_from(["entailment", "neutral", "contradiction"]),
    annotator_labels=st.lists(st.sampled_from(["entailment", "neutral"]), max_size=5).map(tuple),
)
REPLACED = st.builds(
    Replacement,
    seed_id=IDS,
    source=TEXT,
    word=TEXT,
    word_class=CLASSES,
    replacement=TEXT,
    premise_mlms=MLMS,
    hypothesis_mlms=MLMS,
    log_odds=st.floats(-50, 50, width=32),
)
EXCLUDED = st.builds(
    Exclusion,
    seed_id=IDS,
    source=TEXT,
    word=st.none() | TEXT,
    word_class=st.none() | CLASSES,
    reason=TEXT,
    replacements=st.none() | st.integers(0, 500),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables") / "t.parquet"


@modest
@given(seeds=st.lists(SEEDS, max_size=5))
def test_problems_read_back(file: Path, seeds: list[Seed]) -> None:
    """As they were, whatever is in them."""
    table = problem_table(seeds)
    assert table.schema == problem_schema()
    write_table(file, table)
    assert (read_block(file, 0) if seeds else []) == seeds


@modest
@given(replacements=st.lists(REPLACED, max_size=5))
def test_replacements_read_back_sorted(file: Path, replacements: list[Replacement]) -> None:
    """All of them, log-odds to the bit, by seed, class, word and replacement."""
    halves = table_of(replacements[:2]), table_of(replacements[2:])
    table = sorted_replacements(pa.concat_tables(halves))
    assert table.schema == replacement_schema()
    assert all(column.num_chunks <= 1 for column in table.columns)
    write_table(file, table)
    read = replacements_in(pq.read_table(file, schema=replacement_schema()))
    keys = [(r.seed_id, r.word_class, r.word, r.replacement) for r in read]
    assert keys == sorted(keys)
    assert sorted(map(repr, read)) == sorted(map(repr, replacements))


@modest
@given(st.lists(EXCLUDED, max_size=5))
def test_exclusions_are_sorted(exclusions: list[Exclusion]) -> None:
    """By seed, class and word, those without a class or word first; none is lost."""
    table = exclusion_table(exclusions)
    assert table.schema == EXCLUSIONS
    read = [Exclusion(**row) for row in table.to_pylist()]
    keys = [(e.seed_id, e.word_class or "", e.word or "", e.reason) for e in read]
    assert keys == sorted(keys)
    assert sorted(map(repr, read)) == sorted(map(repr, exclusions))


@modest
@given(st.lists(REPLACED, max_size=5, unique_by=lambda r: (r.seed_id, r.word, r.replacement)))
def test_tables_do_not_depend_on_the_order(replacements: list[Replacement]) -> None:
    """The same replacements in another order make the same table."""
    one, other = table_of(replacements), table_of(replacements[::-1])
    assert sorted_replacements(other) == sorted_replacements(one)


def test_rows_are_sorted_by_word_before_the_rest() -> None:
    """Within a seed and class the word decides, then the replacement or the reason."""
    pairs = [("b", "x"), ("a", "z"), ("b", "a"), ("a", "y")]
    same: dict[str, Any] = {"seed_id": "s:1", "source": "s", "word_class": "noun"}
    validated: dict[str, Any] = {"premise_mlms": (), "hypothesis_mlms": (), "log_odds": 0.0}
    replaced = [Replacement(**same, **validated, word=w, replacement=r) for w, r in pairs]
    excluded = [Exclusion(**same, word=w, reason=r) for w, r in pairs]
    for table, column in (
        (sorted_replacements(table_of(replaced)), "replacement"),
        (exclusion_table(excluded), "reason"),
    ):
        found = zip(table["word"].to_pylist(), table[column].to_pylist(), strict=True)
        assert list(found) == sorted(pairs)


def test_a_table_knows_none_from_zero() -> None:
    """An exclusion without a count is not one with zero replacements."""
    some: dict[str, Any] = {"seed_id": "s:1", "source": "s", "word": "a", "word_class": "noun"}
    table = exclusion_table(
        [Exclusion(**some, reason="b", replacements=0), Exclusion(**some, reason="a")]
    )
    assert table["replacements"].to_pylist() == [None, 0]
    assert json.loads(json.dumps(table.to_pylist()[1])) == {
        **some,
        "reason": "b",
        "replacements": 0,
    }
