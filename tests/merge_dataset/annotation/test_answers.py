import hashlib
import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merge_dataset.annotation.answers import (
    Answer,
    Event,
    Undo,
    answers_path,
    append,
    check_annotator,
    current,
    is_good,
    read_events,
    read_standing,
    replay,
)
from merge_dataset.annotation.transfer import SCHEMAS, read_answers
from merge_dataset.annotation.transfer import read_spreadsheet as read_csv
from merge_dataset.files import target_of
from merge_dataset.json_lines import sealed

SCHEMA = SCHEMAS["scores"]
CAT, COW = "snli:1/noun/dog/cat", "snli:1/noun/dog/cow"
POOR, FINE = Answer(CAT, 1, 2), Answer(CAT, 5, 4, "a “fine” one, really")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return answers_path(tmp_path, "ann")


def test_what_is_good() -> None:
    """MERGE, section 4: an average of 9 is good; the last answer that is not undone counts."""
    scores = [(f, r) for f in range(1, 6) for r in range(1, 6) if is_good(f + r)]
    assert scores == [(4, 5), (5, 4), (5, 5)]
    assert [is_good(10 + 8, 2), is_good(10 + 7, 2), is_good(10 + 9 + 8, 3)] == [True, False, True]
    assert is_good(np.array([18, 17, 27]), np.array([2, 2, 3])).tolist() == [True, False, True]
    other = Answer(COW, 3, 3)
    assert replay([POOR, other, FINE]) == [POOR, other, FINE]
    assert current(replay([POOR, other, FINE])) == {CAT: FINE, COW: other}
    assert replay([POOR, other, FINE, Undo(CAT)]) == [POOR, other]
    assert replay([POOR, FINE, Undo(CAT), Undo(CAT)]) == []
    assert replay([POOR, Undo(CAT), FINE]) == [FINE]


def test_undoing_nothing_is_an_error(path: Path) -> None:
    """An undo without an answer is not written by us."""
    with pytest.raises(ValueError, match=f"expected an answer to '{CAT}' to undo, got none"):
        replay([POOR, Undo(CAT), Undo(CAT)])
    append(path, [Undo(CAT)])
    with pytest.raises(ValueError, match=rf"ann\.jsonl: expected an answer to '{CAT}'"):
        read_standing(path)


def test_events_come_back_as_they_were_said(path: Path) -> None:
    append(path, [POOR])
    append(path, [FINE, Undo(CAT)])
    assert read_events(path) == [POOR, FINE, Undo(CAT)]
    assert read_standing(path) == [POOR]
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    said = json.loads(head)
    del said["crc32"]
    assert said == {"annotator": "ann", "lines": 3, "sha256": digest}
    assert [set(json.loads(line)) for line in lines] == [
        {"variant_id", "fluency", "reasoning", "comment", "time", "crc32"},
        {"variant_id", "fluency", "reasoning", "comment", "time", "crc32"},
        {"variant_id", "undone", "time", "crc32"},
    ]
    assert "“fine”" in lines[1]
    assert json.loads(lines[0])["time"].endswith("+00:00")


def test_a_file_that_was_cut_off_is_an_error(path: Path) -> None:
    append(path, [POOR, FINE, Undo(CAT)])
    whole = path.read_bytes()
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"ann\.jsonl: (line \d|expected)"):
            read_events(path)
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    path.write_bytes(whole[: ends[1]])
    with pytest.raises(ValueError, match=r"expected 3 lines after the first, .* got 1: the file"):
        append(path, [POOR])
    assert path.read_bytes() == whole[: ends[1]]
    path.write_bytes(whole[:-1])
    assert read_events(path) == [POOR, FINE, Undo(CAT)]


def test_lines_that_were_swapped_or_left_out_are_an_error(path: Path) -> None:
    append(path, [POOR, FINE, Answer(COW, 3, 3)])
    head, *lines = path.read_bytes().splitlines(keepends=True)
    for others in ([lines[1], lines[0], lines[2]], [lines[0], lines[0], lines[2]]):
        path.write_bytes(b"".join([head, *others]))
        with pytest.raises(ValueError, match=r"expected 3 lines after the first, .* got others"):
            read_events(path)
    path.write_bytes(b"".join([head, *lines[1:]]))
    with pytest.raises(ValueError, match=r"expected 3 lines .* got 2: .* remove its first line"):
        read_events(path)


def test_a_file_of_another_annotator_is_an_error(path: Path) -> None:
    """A renamed or swapped file would attribute answers to another annotator."""
    append(path, [POOR])
    other = path.rename(path.with_name("bo.jsonl"))
    with pytest.raises(ValueError, match=r"expected the answers of bo, found those of ann; name"):
        read_events(other)
    with pytest.raises(ValueError, match="expected the answers of bo"):
        append(other, [POOR])
    assert read_standing(other, renamed=True) == [POOR]


def old(*events: Event, cut: bytes = b"") -> bytes:
    """Lines as in files of earlier releases."""
    time, undone = {"time": "2026-01-01T00:00:00+00:00"}, {"undone": True}
    rows = [asdict(event) | (undone if isinstance(event, Undo) else {}) for event in events]
    lines = [sealed(row | time) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode() + cut


def test_files_of_earlier_releases_are_read_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A line truncated by a crash is dropped, as no annotator was told that it is saved."""
    path.parent.mkdir(parents=True)
    line = old(FINE)
    for length in range(0, len(line) - 20, 7):
        path.write_bytes(old(POOR, cut=line[:length]))
        caplog.clear()
        assert read_events(path) == [POOR]
        assert "ann.jsonl: an earlier release's, without a count of its lines" in caplog.text
    append(path, [FINE])
    caplog.clear()
    assert read_events(path) == [POOR, FINE]
    assert caplog.text == ""
    path.write_bytes(old(POOR, FINE).rstrip(b"\n"))
    assert read_events(path) == [POOR, FINE]
    for nothing in (b"", b"\n", line[:40]):
        path.write_bytes(nothing)
        with pytest.raises(ValueError, match="expected answers, found no whole line"):
            read_events(path)


def test_each_answer_is_on_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    append(path, [POOR])
    append(path, [FINE])
    assert [target_of(each) or each for each in synced] == [path, path.parent] * 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", r"line 2: expected a JSON object per line, got '\[\]'$"),
        ('{"variant_id": ""}', "line 2: variant_id: expected the id of a variant, got ''"),
        ('{"fluency": 1, "reasoning": 1}', "variant_id: expected the id of a variant, got None"),
        ('{"variant_id": "a", "fluency": 6, "reasoning": 1}',
         "line 2: fluency: expected a whole number from 1 to 5, got 6"),
        ('{"variant_id": "a", "fluency": 5}', "reasoning: expected a whole number .*, got None"),
        ('{"variant_id": "a", "fluency": 5, "reasoning": 4, "comment": 3}',
         "line 2: comment: expected a text, got 3"),
        ("oops",
         r"line 2: expected a JSON object per line, got 'oops' \(Expecting value in column 1\)$"),
    ],
)  # fmt: skip
def test_malformed_lines_are_named(path: Path, line: str, message: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(old(POOR) + f"{line}\n".encode() + old(FINE))
    for use in (read_events, partial(append, events=[FINE])):
        with pytest.raises(ValueError, match=message) as error:
            use(path)
        assert str(error.value).startswith(f"{path}: line 2")


@pytest.mark.parametrize("name", ["", ".ann", "a/b", "../ann", "ann bee", "a" * 65, "-a", "a\n"])
def test_names_of_annotators_are_names_of_files(name: str) -> None:
    with pytest.raises(ValueError, match="annotator: expected a name of up to 64 letters"):
        check_annotator(name)


def rows(*paths: Path) -> list[tuple[Any, ...]]:
    table = read_answers(paths)
    assert table.schema == SCHEMA
    return [tuple(row.values()) for row in table.to_pylist()]


def test_a_session_is_read_as_what_counts(tmp_path: Path) -> None:
    append(answers_path(tmp_path, "bo"), [Answer(COW, 2, 2), POOR])
    append(answers_path(tmp_path, "ann"), [POOR, Answer(COW, 3, 3), FINE, Undo(COW)])
    (tmp_path / "answers/.bo.jsonl.lock").touch()
    expected = [
        ("ann", CAT, 5, 4, "a “fine” one, really"),
        ("bo", CAT, 1, 2, ""),
        ("bo", COW, 2, 2, ""),
    ]
    assert rows(tmp_path) == expected
    assert rows(tmp_path / "answers/bo.jsonl", tmp_path / "answers/ann.jsonl") == expected
    assert rows(tmp_path, tmp_path / "answers/bo.jsonl") == expected


def test_answers_that_contradict_each_other_are_an_error(tmp_path: Path) -> None:
    append(answers_path(tmp_path / "a", "ann"), [POOR])
    append(answers_path(tmp_path / "b", "ann"), [FINE])
    with pytest.raises(ValueError, match=r"expected the answer of ann .* \(F1 R2 ''\), got F5 R4"):
        read_answers([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(ValueError, match=r"expected a session with answers/NAME\.jsonl, found no"):
        read_answers([tmp_path])
    with pytest.raises(FileNotFoundError, match="a file of answers, found nothing there"):
        read_answers([tmp_path / "none"])
    (tmp_path / "export.json").touch()
    with pytest.raises(ValueError, match="taken in by `merge-nli annotate --import`"):
        read_answers([tmp_path / "export.json"])


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_spreadsheets_are_read(tmp_path: Path, delimiter: str, encoding: str) -> None:
    table = [
        ["premise", *SCHEMA.names],
        ['"Dogs, cats; all"', "ann", CAT, "5", "4", '"žluť\n""x"""'],
        ["", "ann", COW, "", "", ""],
        ["", "bo", COW, "2.0", " 1", ""],
    ]
    path = tmp_path / "answers.csv"
    text = "\r\n".join(delimiter.join(row) for row in table) + "\r\n"
    path.write_bytes(text.encode(encoding))
    assert rows(path) == [("ann", CAT, 5, 4, 'žluť\n"x"'), ("bo", COW, 2, 1, "")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected the columns annotator, .* in its first line, found none of them$"),
        (f"{','.join(SCHEMA.names)}\nann,{CAT},1,2,\nann,{COW},1,,\n",
         f"line 3: expected both scores or neither, got no reasoning; fill it in, or empty the "
         f"other to leave '{COW}' unanswered"),
        (f"{','.join(SCHEMA.names)}\nann,{CAT},,2,\n", "line 2: .* or neither, got no fluency;"),
        (f"{','.join(SCHEMA.names)}\nann,{CAT},1,six,\n", "line 2: reasoning: .* got 'six'"),
        (f"{','.join(SCHEMA.names)}\nann,,1,2,\n", "line 2: variant_id: expected the id"),
        (f"{','.join(SCHEMA.names)}\n,{CAT},1,2,\n", "line 2: annotator: expected a name"),
        (f'{",".join(SCHEMA.names)}\nann,{CAT},1,2,"a',
         "line 2: a quotation mark is opened and never closed"),
    ],
)  # fmt: skip
def test_malformed_tables_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_csv(path)
    assert str(error.value).startswith(f"{path}: ")


def test_tables_of_one_annotator(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(f"annotator,variant_id,fluency,reasoning\nbo,{CAT},1,2\n")
    with pytest.raises(ValueError, match="line 2: expected rows of ann, got one of bo"):
        read_csv(path, "ann")
    path = tmp_path / "answers.csv"
    path.write_bytes("variant_id,fluency,reasoning,annotator\nžluť".encode("cp1250"))
    with pytest.raises(ValueError, match="line 2: expected text in UTF-8, got the byte 0x9E"):
        read_csv(path)
    path = tmp_path / "answers.csv"
    path.write_text(f"variant_id,fluency,reasoning\n{CAT},1,2\n")
    assert read_csv(path, "ann") == [("ann", POOR)]


def test_a_damaged_last_line_is_not_taken_for_one_cut_off(path: Path) -> None:
    """Otherwise, a flipped bit in the line's end could drop a saved answer, also on appending."""
    append(path, [POOR, FINE])
    new = path.read_bytes()
    for content in (new, old(POOR, FINE)):
        for damaged in (content[:-1] + b"*", content[:-30] + b"x" + content[-29:]):
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"ann\.jsonl: line \d"):
                read_events(path)
            with pytest.raises(ValueError, match=r"ann\.jsonl: line \d"):
                append(path, [FINE])
            assert path.read_bytes() == damaged
