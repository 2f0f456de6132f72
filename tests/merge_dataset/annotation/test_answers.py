import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.commands import run
from helpers.judged import fill_in
from helpers.pages import commands

from merge_dataset.annotation import (
    SCHEMAS,
    Session,
    is_good,
    read_answers,
    read_session,
    write_files,
)
from merge_dataset.files import draw_rank

SCHEMA = SCHEMAS["scores"]
CAT, WOMAN = "snli:1/noun/dog/cat", "snli:1/noun/girl/woman"
HEADER = "annotator,variant_id,fluency,reasoning,comment"


def test_what_is_good() -> None:
    """MERGE, section 4: an average of 9 is good."""
    scores = [(f, r) for f in range(1, 6) for r in range(1, 6) if is_good(f + r)]
    assert scores == [(4, 5), (5, 4), (5, 5)]
    assert [is_good(10 + 8, 2), is_good(10 + 7, 2), is_good(10 + 9 + 8, 3)] == [True, False, True]
    assert is_good(np.array([18, 17, 27]), np.array([2, 2, 3])).tolist() == [True, False, True]


def table(session: Session, name: str = "ann") -> list[dict[str, str]]:
    text = (session.folder / f"answers/{name}.csv").read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def tasks(session: Session) -> Any:
    return json.loads((session.folder / "label-studio.json").read_text(encoding="utf-8"))


def rows(*paths: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in read_answers(paths).to_pylist()]


# --- Files to fill in ---


def test_a_table_to_fill_in(session: Session) -> None:
    """A row per item, in the annotator's order; filled in, it is read; another is not touched."""
    path, bo = (session.folder / f"answers/{name}.csv" for name in ("ann", "bo"))
    assert path in write_files(session, ["ann"])
    asked = table(session)
    ranked = sorted(session.items, key=lambda name: draw_rank("ann", name))
    assert [row["variant_id"] for row in asked] == ranked
    assert asked[ranked.index(CAT)] == {
        "annotator": "ann", "variant_id": CAT, "label": "neutral", "original": "dog",
        "replacement": "cat", "original_premise": "A girl and a small dog run.",
        "variant_premise": "A girl and a small cat run.",
        "original_hypothesis": "A girl has a small dog.",
        "variant_hypothesis": "A girl has a small cat.", "fluency": "", "reasoning": "",
        "comment": "",
    }  # fmt: skip
    with pytest.raises(ValueError, match="expected answers to one kind of question, got none"):
        rows(session.folder)
    scores = {"fluency": "5", "reasoning": "4", "comment": "so, so"}
    fill_in(path, [row | scores if row["variant_id"] == CAT else row for row in asked])
    filled = path.read_bytes()
    assert write_files(session, ["ann", "bo"]) == [bo]
    assert path.read_bytes() == filled
    assert [row["variant_id"] for row in table(session, "bo")] != ranked
    assert rows(session.folder) == [("ann", CAT, 5, 4, "so, so")]


def test_texts_are_no_formulas(session: Session) -> None:
    """A spreadsheet would execute them."""
    for number, start in enumerate("=+-@\t\r\n"):
        text = f"{start}HYPERLINK(A1)"
        item = replace(
            session.items[CAT], variant_texts={"premise": text}, seed_texts={"premise": "A."},
            variant_spans={"premise": []}, seed_spans={"premise": []},
        )  # fmt: skip
        write_files(replace(session, items={CAT: item}), [str(number)])
        assert table(session, str(number))[0]["variant_premise"] == f"'{text}"


@pytest.mark.parametrize("name", ["", ".ann", "a/b", "../ann", "ann bee", "a" * 65, "-a", "a\n"])
def test_names_of_annotators_are_names_of_files(session: Session, name: str) -> None:
    with pytest.raises(ValueError, match="annotator: expected a name of up to 64 letters"):
        write_files(session, [name])


def test_tasks_show_both_texts_with_marks(session: Session) -> None:
    item = replace(
        session.items[CAT], label="<x>", seed_texts={"long_text": "a <b> & 1"},
        variant_texts={"long_text": "<i> dog"}, seed_spans={"long_text": [[2, 5]]},
        variant_spans={"long_text": [[0, 3]]},
    )  # fmt: skip
    write_files(replace(session, items={CAT: session.items[CAT], WOMAN: item}))
    by_label = {task["data"]["problem"].split("</b>")[0]: task for task in tasks(session)}
    (plain, other) = (
        by_label[f"<p>Label of the original: <b>{x}"] for x in ("neutral", "&lt;x&gt;")
    )
    assert plain["data"]["variant_id"] == CAT
    assert (
        "<tr><th>premise</th><td>A girl and a small <mark>dog</mark> run.</td>"
        "<td>A girl and a small <mark>cat</mark> run.</td></tr>"
    ) in plain["data"]["problem"]
    assert (
        "<th>long text</th><td>a <mark>&lt;b&gt;</mark> &amp; 1</td>"
        "<td><mark>&lt;i&gt;</mark> dog</td>"
    ) in other["data"]["problem"]
    view = ElementTree.parse(session.folder / "label-studio.xml").getroot()
    assert [element.get("name") for element in view.findall("Choices")] == ["fluency", "reasoning"]
    for scale in view.findall("Choices"):
        choices = [(choice.get("alias"), choice.get("value")) for choice in scale]
        assert choices[0] == ("1", "1 poor")
        assert choices[3:] == [("4", "4 mostly good"), ("5", "5 good")]
    assert "**Fluency**" in (session.folder / "guidelines.md").read_text(encoding="utf-8")


def test_paraphrases_are_judged_by_their_meaning(pairs: Session) -> None:
    write_files(pairs, ["ann"])
    assert "**mean the same**" in (pairs.folder / "guidelines.md").read_text(encoding="utf-8")
    asked = table(pairs)
    assert "label" not in asked[0]
    assert list(asked[0])[-2:] == ["equivalent", "comment"]
    text = dict(zip((row["variant_id"] for row in asked), ("yes", " No ", "TRUE"), strict=False))
    fill_in(
        pairs.folder / "answers/ann.csv",
        [row | {"equivalent": text.get(row["variant_id"], "")} for row in asked],
    )
    result = read_answers(pairs.folder)
    assert result.schema == SCHEMAS["equivalence"]
    given = dict(
        zip(result["variant_id"].to_pylist(), result["equivalent"].to_pylist(), strict=True)
    )
    assert given == {name: value != " No " for name, value in text.items()}
    view = ElementTree.parse(pairs.folder / "label-studio.xml").getroot()
    assert [element.get("name") for element in view.findall("Choices")] == ["equivalent"]
    assert [element.get("alias") for element in view.iter("Choice")] == ["yes", "no"]
    for task in tasks(pairs):
        problem, item = task["data"]["problem"], pairs.items[task["data"]["variant_id"]]
        assert "Label" not in problem
        assert "<mark>" not in problem
        assert f"<p>premise of both: {item.seed_texts['premise']}</p>" in problem
        assert f"<td>{item.seed_texts['hypothesis']}</td>" in problem


# --- Tables ---


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_spreadsheets_are_read(tmp_path: Path, delimiter: str, encoding: str) -> None:
    """Blank rows are left out; the file's name is the annotator where none is given."""
    cells = [
        ["premise", *SCHEMA.names],
        ['"Dogs, cats; all"', "ann", CAT, "5", "4", '"žluť\n""x"""'],
        ["", "ann", WOMAN, "", "", ""],
        ["", "", WOMAN, "2.0", " 1", ""],
    ]
    path = tmp_path / "bo.csv"
    text = "\r\n".join(delimiter.join(row) for row in cells) + "\r\n"
    path.write_bytes(text.encode(encoding))
    assert read_answers(path).schema == SCHEMA
    assert rows(path) == [("ann", CAT, 5, 4, 'žluť\n"x"'), ("bo", WOMAN, 2, 1, "")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected the columns variant_id, .* in its first line, found no variant_id and no "),
        (f"{HEADER}\nann,{CAT},1,2,\nann,{WOMAN},1,,\n",
         "line 3: reasoning: expected a whole number from 1 to 5, got ''"),
        (f"{HEADER}\nann,{CAT},1,six,\n", "line 2: reasoning: .* got 'six'"),
        (f"{HEADER}\nann,{CAT},6,1,\n", "fluency: expected a whole number from 1 to 5, got '6'"),
        (f"{HEADER}\nann,{CAT},2.5,1,\n", "fluency: expected a whole number .* got '2.5'"),
        (f"{HEADER}\nann,,1,2,\n", "line 2: variant_id: expected the id"),
        (f'{HEADER}\nann,{CAT},1,2,"a', "line 2: a quotation mark is opened and never closed"),
        (f"variant_id,equivalent\n{CAT},maybe\n", "line 2: equivalent: expected yes or no, got 'm"),
        (f"{HEADER}\nann,{CAT},1,2,\nann,{CAT},1,1,\n",
         rf"line 3: expected the answer of ann to '{CAT}' that stands in .*line 2, got another"),
        ("[", "answers.csv: expected the columns"),
    ],
)  # fmt: skip
def test_malformed_tables_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_answers(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_table_that_was_cut_off_is_an_error(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.csv", f"{HEADER}\nann,{WOMAN},1,1,\nann,{CAT},2,5,\n"
    for cut in range(whole.index(WOMAN) + 1, len(whole)):
        if not whole[:cut].endswith("\n"):
            path.write_text(whole[:cut])
            with pytest.raises(ValueError, match=r"line \d: (reasoning: )?expected "):
                read_answers(path)


def test_what_cannot_be_read_together(session: Session, pairs: Session, tmp_path: Path) -> None:
    first, second = (tmp_path / f"{n}.csv" for n in "ab")
    scores = {"annotator": "ann", "variant_id": CAT, "fluency": 1, "reasoning": 2}
    fill_in(first, [scores])
    fill_in(second, [scores | {"fluency": 5}])
    with pytest.raises(ValueError, match=r"b\.csv: line 2: expected .*a\.csv: line 2, got another"):
        read_answers([first, second])
    fill_in(second, [scores, scores])
    assert rows(first, second) == [("ann", CAT, 1, 2, "")]
    with pytest.raises(ValueError, match="expected a session folder with files in answers/"):
        read_answers(session.folder)
    with pytest.raises(FileNotFoundError):
        read_answers(tmp_path / "none.csv")
    (tmp_path / "x.txt").touch()
    for name in ("none", "x.txt"):
        with pytest.raises(ValueError, match="a session folder with files in answers/, a"):
            read_answers(tmp_path / name)
    fill_in(session.folder / "answers/ann.csv", [scores | {"variant_id": "snli:99"}])
    with pytest.raises(ValueError, match=r"line 2: expected variants of .*, got 'snli:99'"):
        read_answers(session.folder)
    name = next(iter(pairs.items))
    fill_in(second, [{"variant_id": name, "equivalent": "no"}])
    with pytest.raises(ValueError, match="answers to one kind of question, got fluency and reas"):
        read_answers([first, second])


# --- Label Studio ---


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


STARS = annotation(1) | {
    "result": [
        {"from_name": name, "type": "rating", "value": {"rating": score}}
        for name, score in (("fluency", 4), ("reasoning", 5))
    ]
}
MINIMAL: Mapping[str, object] = {"id": 1, "annotator": 7, "annotation_id": 9, "lead_time": 3.2}


@pytest.mark.parametrize(
    ("exported", "expected"),
    [
        ([
            task(CAT, annotation(1, "5", "4 mostly good", comment="a\nb"),
                 annotation({"id": 2, "email": "bo@example.org"}, "2", "1"),
                 annotation(3, "1", "1", was_cancelled=True)),
            task(WOMAN, annotation(1, "3", "3")), task("snli:1/noun/girl/boy"),
        ], [("bo@example.org", CAT, 2, 1, ""), ("label-studio-1", CAT, 5, 4, "a\nb"),
            ("label-studio-1", WOMAN, 3, 3, "")]),
        ([task(CAT, STARS)], [("label-studio-1", CAT, 4, 5, "")]),
        ([
            {"variant_id": CAT, "problem": "", "fluency": "4", "reasoning": "5",
             "comment": "x", **MINIMAL},
            {"variant_id": WOMAN, "fluency": [{"rating": 2}], "reasoning": [{"rating": 3}],
             "comment": {"text": ["one", "two"]}, **MINIMAL},
        ], [("label-studio-7", CAT, 4, 5, "x"), ("label-studio-7", WOMAN, 2, 3, "one\ntwo")]),
        ([task(CAT, annotation(None, "5", "5"))], [("export", CAT, 5, 5, "")]),
        ([{"variant_id": CAT, "annotator": 4, "equivalent": "yes"}],
         [("label-studio-4", CAT, True, "")]),
        ([task(CAT, annotation(3) | {"result": [
            {"from_name": "equivalent", "value": {"choices": ["no"]}}]})],
         [("label-studio-3", CAT, False, "")]),
    ],
)  # fmt: skip
def test_exports_of_label_studio(tmp_path: Path, exported: object, expected: object) -> None:
    """JSON and JSON-MIN; choices and ratings; skipped tasks do not count."""
    path = tmp_path / "export.json"
    path.write_text(json.dumps(exported), encoding="utf-8")
    assert rows(path) == expected


@pytest.mark.parametrize(
    ("exported", "message"),
    [
        (3, "task 1: expected data, and annotations with results, .*, got 3"),
        (["x"], "task 1: expected data, and annotations with results, .*, got .x"),
        ([{"id": 1}], "task 1: variant_id: expected the id of a variant, got N"),
        ([{"annotations": [annotation(1, "5", "5")]}], "task 1: expected data, and annotations"),
        ([task(CAT, "x")], "task 1: expected data, and annotations with results"),
        ([task(CAT), task(CAT, {"result": 1})], "task 2: expected data, and annotations with res"),
        ([task(CAT, annotation(1, "5"))], "task 1: reasoning: expected a whole number .* got None"),
        ([task(CAT, annotation(1, "5", "6"))], "task 1: reasoning: expected .* 1 to 5, got '6'"),
        ([task(CAT, annotation(1, "5", "good"))], "reasoning: expected .* 1 to 5, got 'good'"),
        ([task(CAT, annotation(1, "5", "5"), annotation(1, "5", "4"))],
         f"task 1: expected the answer of label-studio-1 to '{CAT}' that .* task 1, got"),
    ],
)  # fmt: skip
def test_malformed_exports_are_named(tmp_path: Path, exported: object, message: str) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(exported), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as error:
        read_answers(path)
    assert str(error.value).startswith(f"{path}: ")


README = (Path(__file__).parents[3] / "merge_dataset/annotation/README.md").read_text("utf-8")


def test_drawing_a_sample(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    text = run("annotate", dataset, "--out", out, "--per-class", 2, "--annotator", "ann").stdout
    written = ("guidelines.md", "label-studio.json", "label-studio.xml", "answers/ann.csv")
    assert text.splitlines() == [
        f"{out}: 6 variants", "  snli noun: 2 of 6", "  snli verb: 2 of 3",
        "  snli adjective: 2 of 2", *(f"  {out / name}: written" for name in written),
        f"Next: fill in tables in {out / 'answers'}, or export there from Label Studio; then "
        f"merge-nli agreement {out}",
    ]  # fmt: skip
    more = ("annotate", "--out", out, "--annotator", "ann", "--annotator", "bo")
    told = json.loads(run(*more, "--format", "json").stdout)
    assert told.pop("written") == [str(out / "answers/bo.csv")]
    description = json.loads((out / "session.json").read_text())
    del description["digest"]
    assert told == description


def as_label_studio(tasks: Path, path: Path) -> None:
    """Write an export of Label Studio in which the first task is judged good."""
    task: dict[str, Any] = json.loads(tasks.read_text(encoding="utf-8"))[0]
    results = [
        {"from_name": name, "value": {"choices": ["5"]}} for name in ("fluency", "reasoning")
    ]
    task["annotations"] = [{"completed_by": 1, "result": results}]
    path.write_text(json.dumps([task]), encoding="utf-8")


@pytest.mark.slow
def test_the_readme_runs(
    dataset: Path,
    paraphrases: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page's commands, then a table filled in and an export of Label Studio."""
    monkeypatch.chdir(tmp_path)
    for words in commands(README):
        if words[0] == "annotate":  # uses of answers are tested in tests/merge_metric/agreement
            run(*words)
    as_label_studio(Path("study/label-studio.json"), Path("study/answers/export.json"))
    for session, text in (
        ("study", {"fluency": 5, "reasoning": 4}),
        ("pairs", {"equivalent": "yes"}),
    ):
        rows = [{"variant_id": name, **text} for name in read_session(Path(session)).items]
        fill_in(Path(session, "answers/ann.csv"), rows)
    assert all(Path(path).exists() for path in re.findall(r"`(study/[^`]+)`", README))
    names = {path.name for path in Path("study").iterdir() if not path.name.startswith(".")}
    assert [name for name in names if name not in README] == []
    (code,), (printed,) = (
        re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
        for language in ("python", "text")
    )
    capsys.readouterr()
    exec(code, {})
    assert capsys.readouterr().out == printed
