import csv
import errno
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from merge_dataset.annotation import transfer
from merge_dataset.annotation.answers import (
    Answer,
    Undo,
    answers_path,
    append,
    current,
    read_events,
    read_standing,
)
from merge_dataset.annotation.session import Session, locked_answers, shuffled
from merge_dataset.annotation.transfer import (
    ImportCounts,
    export_items,
    import_answers,
    read_answers,
)

CAT, WOMAN = "snli:1/noun/dog/cat", "snli:1/noun/girl/woman"


def saved(session: Session, annotator: str) -> dict[str, Answer]:
    return current(read_standing(answers_path(session.folder, annotator)))


def written(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_table_has_room_for_the_scores(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    assert export_items(session, path, "ann") == [path]
    text = path.read_bytes().decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["variant_id"] for row in rows] == [
        i.variant_id for i in shuffled(session.items, "ann")
    ]
    assert next(row for row in rows if row["variant_id"] == CAT) == {
        "annotator": "ann", "variant_id": CAT, "label": "neutral", "original": "dog",
        "replacement": "cat", "original_premise": "A girl and a small dog run.",
        "variant_premise": "A girl and a small cat run.",
        "original_hypothesis": "A girl has a small dog.",
        "variant_hypothesis": "A girl has a small cat.", "fluency": "", "reasoning": "",
        "comment": "",
    }  # fmt: skip


def test_a_filled_in_table_is_taken_in(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    export_items(session, path)
    assert import_answers(session, path, "ann") == []

    def fill(*answers: Answer) -> None:
        rows = list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8-sig"))))
        for row in rows:
            for answer in answers:
                if row["variant_id"] == answer.variant_id:
                    scores = {"fluency": answer.fluency, "reasoning": answer.reasoning}
                    row |= scores | {"comment": answer.comment}
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)

    first, second = Answer(CAT, 5, 4, "so, so"), Answer(WOMAN, 1, 2)
    fill(first)
    assert import_answers(session, path, "ann") == [ImportCounts("ann", 1, 0, 0)]
    fill(second)
    assert import_answers(session, path, "ann") == [ImportCounts("ann", 1, 0, 1)]
    assert saved(session, "ann") == {CAT: first, WOMAN: second}
    assert read_answers([session.folder]).num_rows == 2


def test_texts_are_no_formulas(session: Session) -> None:
    """A spreadsheet would execute them."""
    item = session.items[CAT]
    for start in "=+-@\t\r\n":
        text = f"{start}HYPERLINK(A1)"
        rendered = transfer.render_spreadsheet(
            [replace(item, variant_texts={"premise": text}, seed_texts={})]
        )[".csv"]
        (row,) = csv.DictReader(io.StringIO(rendered.removeprefix("\ufeff"), newline=""))
        assert row["variant_premise"] == f"'{text}"


def test_tasks_show_both_texts_with_marks(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    assert export_items(session, path) == [path, tmp_path / "tasks.xml"]
    made = json.loads(path.read_text(encoding="utf-8"))
    assert len(made) == 11
    task = next(task for task in made if task["data"]["variant_id"] == CAT)
    problem = task["data"]["problem"]
    assert "Label of the original: <b>neutral</b>" in problem
    assert (
        "<tr><th>premise</th><td>A girl and a small <mark>dog</mark> run.</td>"
        "<td>A girl and a small <mark>cat</mark> run.</td></tr>"
    ) in problem
    item = replace(
        session.items[CAT], label="<x>", seed_texts={"long_text": "a <b> & 1"},
        variant_texts={"long_text": "<i> dog"}, seed_spans={"long_text": [[2, 5]]},
        variant_spans={"long_text": [[0, 3]]},
    )  # fmt: skip
    (task,) = json.loads(transfer.render_label_studio([item])[".json"])
    assert "<b>&lt;x&gt;</b>" in task["data"]["problem"]
    assert (
        "<th>long text</th><td>a <mark>&lt;b&gt;</mark> &amp; 1</td>"
        "<td><mark>&lt;i&gt;</mark> dog</td>"
    ) in task["data"]["problem"]


def test_the_labelling_configuration(tmp_path: Path) -> None:
    view = ElementTree.fromstring(transfer.LABEL_STUDIO_CONFIGS["scores"])
    (text,) = view.findall("HyperText")
    assert text.attrib == {"name": "problem", "value": "$problem"}
    controls = [*view.findall("Choices"), *view.findall("TextArea")]
    assert [each.get("name") for each in controls] == ["fluency", "reasoning", "comment"]
    assert {each.get("toName") for each in controls} == {"problem"}
    for scale in view.findall("Choices"):
        assert scale.get("required") == "true"
        choices = [(choice.get("alias"), choice.get("value")) for choice in scale]
        assert choices[0] == ("1", "1 poor")
        assert choices[3:] == [("4", "4 mostly good"), ("5", "5 good")]


def annotation(user: object, *scores: str, comment: str | None = None, **more: Any) -> Any:
    """An annotation as in Label Studio's exports."""
    results = [
        {"from_name": name, "to_name": "problem", "type": "choices", "value": {"choices": [score]}}
        for name, score in zip(("fluency", "reasoning"), scores, strict=False)
    ]
    if comment is not None:
        value = {"text": [comment]}
        of = {"from_name": "comment", "to_name": "problem", "type": "textarea", "value": value}
        results.append(of)
    return {"id": 1, "completed_by": user, "result": results, "was_cancelled": False, **more}


def task(variant: str, *annotations: Any) -> Any:
    return {"id": 1, "data": {"variant_id": variant, "problem": ""}, "annotations": annotations}


def test_an_export_in_json_is_taken_in(session: Session, tmp_path: Path) -> None:
    path = written(
        tmp_path / "export.json",
        [
            task(CAT, annotation(1, "5", "4 mostly good", comment="a\nb"),
                 annotation({"id": 2, "email": "bo@example.org"}, "2", "1"),
                 annotation(3, "1", "1", was_cancelled=True)),
            task(WOMAN, annotation(1, "3", "3")),
            task("snli:1/noun/girl/boy"),
        ],
    )  # fmt: skip
    assert import_answers(session, path) == [
        ImportCounts("bo@example.org", 1, 0, 0),
        ImportCounts("label-studio-1", 2, 0, 0),
    ]
    assert saved(session, "label-studio-1") == {
        CAT: Answer(CAT, 5, 4, "a\nb"),
        WOMAN: Answer(WOMAN, 3, 3),
    }
    assert saved(session, "bo@example.org") == {CAT: Answer(CAT, 2, 1)}


def test_an_export_with_ratings_is_taken_in(session: Session, tmp_path: Path) -> None:
    stars = annotation(1)
    stars["result"] = [
        {"from_name": name, "type": "rating", "value": {"rating": score}}
        for name, score in (("fluency", 4), ("reasoning", 5))
    ]
    import_answers(session, written(tmp_path / "export.json", [task(CAT, stars)]), "ann")
    assert saved(session, "ann") == {CAT: Answer(CAT, 4, 5)}


def test_an_export_in_json_min_is_taken_in(session: Session, tmp_path: Path) -> None:
    minimal = {"id": 1, "annotator": 7, "annotation_id": 9, "lead_time": 3.2}
    path = written(
        tmp_path / "export.json",
        [
            {"variant_id": CAT, "problem": "", "fluency": "4", "reasoning": "5",
             "comment": "x"} | minimal,
            {"variant_id": WOMAN, "fluency": [{"rating": 2}], "reasoning": [{"rating": 3}],
             "comment": {"text": ["one", "two"]}} | minimal,
        ],
    )  # fmt: skip
    assert import_answers(session, path) == [ImportCounts("label-studio-7", 2, 0, 0)]
    assert saved(session, "label-studio-7") == {
        CAT: Answer(CAT, 4, 5, "x"),
        WOMAN: Answer(WOMAN, 2, 3, "one\ntwo"),
    }


@pytest.mark.parametrize(
    ("exported", "message"),
    [
        ({}, "expected a list of tasks, as Label Studio exports as JSON or JSON-MIN, got some"),
        (["x"], "task 1: expected a JSON object, got .x"),
        ([{"id": 1}], "task 1: variant_id: expected the id of a variant in the task's data, got N"),
        ([{"annotations": []}], "task 1: expected data, and a list of annotations, got something"),
        ([task(CAT, "x")], "task 1: expected an annotation with a list of results, got"),
        ([task(CAT), task(CAT, {"result": 1})],
         "task 2: expected an annotation with a list of res"),
        ([task(CAT, annotation(1, "5"))], "task 1: reasoning: expected a whole number .* got None"),
        ([task(CAT, annotation(1, "5", "6"))], "task 1: reasoning: expected .* 1 to 5, got '6'"),
        ([task(CAT, annotation(1, "5", "good"))], "reasoning: expected .* 1 to 5, got 'good'"),
        ([task(CAT, annotation(None, "5", "5"))], "expected who annotated it, got null; name them"),
        ([task(CAT, annotation(1, "5", "5"), annotation(1, "5", "4"))],
         f"task 1: expected one answer of label-studio-1 to '{CAT}', got two"),
        ([task("snli:99", annotation(1, "5", "5"))], "expected variants of .*, got 'snli:99'"),
    ],
)  # fmt: skip
def test_malformed_exports_are_named(
    session: Session, tmp_path: Path, exported: object, message: str
) -> None:
    path = written(tmp_path / "export.json", exported)
    with pytest.raises(ValueError, match=message) as error:
        import_answers(session, path)
    assert str(error.value).startswith(f"{path}: ")
    assert not (session.folder / "answers").exists()


def test_files_that_cannot_be_taken_in(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text("[")
    with pytest.raises(
        ValueError, match=r"export\.json: expected JSON, got something else at line 1"
    ):
        import_answers(session, path)
    (tmp_path / "x.txt").touch()
    with pytest.raises(ValueError, match=r"expected a file \.csv, \.json of Label Studio, or \.js"):
        import_answers(session, tmp_path / "x.txt")


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    """Write a table of answers: `table(("ann", CAT, 1, 2), …)`."""

    def write(*rows: tuple[object, ...]) -> Path:
        lines = ["annotator,variant_id,fluency,reasoning,comment"]
        lines += [",".join(map(str, (*row, ""))) for row in rows]
        path = tmp_path / "answers.csv"
        path.write_text("\n".join([*lines, ""]))
        return path

    return write


def test_other_answers_are_not_overwritten_in_silence(
    session: Session, table: Callable[..., Path]
) -> None:
    append(answers_path(session.folder, "bo"), [Answer(CAT, 5, 5)])
    path = table(("ann", WOMAN, 1, 1), ("bo", WOMAN, 1, 1), ("bo", CAT, 1, 1))
    with pytest.raises(ValueError, match=r"that bo gave to .* F5 R5 '', got F1 R1 ''; .*--over"):
        import_answers(session, path)
    assert saved(session, "ann") == {}
    assert saved(session, "bo") == {CAT: Answer(CAT, 5, 5)}
    taken = import_answers(session, path, overwrite=True)
    assert taken == [ImportCounts("ann", 1, 0, 0), ImportCounts("bo", 1, 1, 0)]
    assert saved(session, "bo") == {CAT: Answer(CAT, 1, 1), WOMAN: Answer(WOMAN, 1, 1)}
    events = read_events(answers_path(session.folder, "bo"))
    assert events == [Answer(CAT, 5, 5), Answer(WOMAN, 1, 1), Answer(CAT, 1, 1)]


def test_what_a_full_disk_left_out_is_added_by_importing_again(
    session: Session, table: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(("ann", WOMAN, 1, 1), ("ann", CAT, 1, 1), ("bo", WOMAN, 1, 1))

    def full(file: Path, events: list[Answer]) -> None:
        if file.stem == "bo":
            raise OSError(errno.ENOSPC, "No space left on device")
        append(file, events)

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "append", full)
        with pytest.raises(OSError, match="No space left"):
            import_answers(session, path)
    assert (len(saved(session, "ann")), len(saved(session, "bo"))) == (2, 0)
    assert import_answers(session, path) == [
        ImportCounts("ann", 0, 0, 2),
        ImportCounts("bo", 1, 0, 0),
    ]


def test_nobody_is_interfered_with(session: Session, table: Callable[..., Path]) -> None:
    """An import with answers of an annotator at work is refused as a whole."""
    path = table(("ann", WOMAN, 1, 1), ("bo", WOMAN, 1, 1))
    with (
        locked_answers(session, "bo"),
        pytest.raises(BlockingIOError, match="expected bo to annotate in"),
    ):
        import_answers(session, path)
    assert saved(session, "ann") == {}


def test_answers_of_another_session_are_taken_in(session: Session, tmp_path: Path) -> None:
    sent = answers_path(tmp_path / "elsewhere", "cy")
    append(sent, [Answer(CAT, 1, 1), Answer(CAT, 4, 4), Answer(WOMAN, 2, 2), Undo(WOMAN)])
    assert import_answers(session, sent) == [ImportCounts("cy", 1, 0, 0)]
    assert import_answers(session, sent, "dan") == [ImportCounts("dan", 1, 0, 0)]
    assert saved(session, "cy") == saved(session, "dan") == {CAT: Answer(CAT, 4, 4)}


@pytest.mark.parametrize("there", ["items.csv", "items.json", "items.xml"])
def test_an_export_replaces_nothing(session: Session, tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    wanted = "items.json" if there == "items.xml" else there
    with pytest.raises(FileExistsError, match=f"{there}: expected no file there yet, found one"):
        export_items(session, tmp_path / wanted)
    assert (tmp_path / there).read_text() == "mine"
    assert len([p for p in tmp_path.iterdir() if p.name.startswith((".items", "items"))]) == 1


def test_a_table_that_was_cut_off_is_not_taken_in(
    session: Session, table: Callable[..., Path]
) -> None:
    path = table(("ann", WOMAN, 1, 1), ("ann", CAT, 2, 5))
    whole = path.read_text()
    cuts = range(whole.index(WOMAN) + 1, len(whole))
    between = {n for n in cuts if whole[:n].endswith("\n")}
    for cut in cuts:
        path.write_text(whole[:cut])
        if cut not in between:
            with pytest.raises(ValueError, match=r"line \d: expected "):
                import_answers(session, path)
    assert len(between) == 1
    assert not (session.folder / "answers/ann.jsonl").exists()
