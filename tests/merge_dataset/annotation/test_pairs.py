import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.annotating import Client
from helpers.commands import refused

from merge_dataset.annotation.answers import (
    Answer,
    Equivalence,
    Undo,
    answers_path,
    append,
    current,
    parse_event,
    read_events,
    read_standing,
    replay,
)
from merge_dataset.annotation.server import serving
from merge_dataset.annotation.session import Session, open_session, read_session
from merge_dataset.annotation.transfer import SCHEMAS, export_items, import_answers, read_answers


def saved(session: Session, annotator: str = "ann") -> dict[str, object]:
    return dict(current(read_standing(answers_path(session.folder, annotator))))


def test_a_session_of_paraphrases_asks_about_meaning(
    pairs: Session, session: Session, paraphrases: Path
) -> None:
    assert (pairs.kind, session.kind) == ("equivalence", "scores")
    assert {item.word_class for item in pairs.items.values()} == {"paraphrase"}
    assert open_session(pairs.folder, paraphrases, ["snli_paraphrases"]).items == pairs.items
    description = json.loads((pairs.folder / "session.json").read_text())
    del description["kind"], description["sha256"]
    (pairs.folder / "session.json").write_text(json.dumps(description))
    assert read_session(pairs.folder).kind == "scores"  # drawn before there was another kind
    (pairs.folder / "session.json").write_text(json.dumps(description | {"kind": "grades"}))
    with pytest.raises(ValueError, match="expected a kind out of scores, equivalence, got 'grad"):
        read_session(pairs.folder)


def test_paraphrases_and_replacements_are_not_mixed(
    dataset: Path, paraphrases: Path, tmp_path: Path
) -> None:
    assert dataset == paraphrases
    words = ("annotate", dataset, "--out", tmp_path / "mixed", "--config", "snli")
    told = refused(*words, "--config", "snli_paraphrases")
    assert "got snli_paraphrases and snli_nouns, snli_verbs, snli_adjectives; make a" in told
    assert not (tmp_path / "mixed").exists()


def test_answers_in_files(tmp_path: Path) -> None:
    """Yes and no are saved and undone as scores are; the numbers 1 and 0 are neither."""
    yes, no = Equivalence("snli:1/p", True, "ü"), Equivalence("snli:1/p", False)
    path = tmp_path / "ann.jsonl"
    append(path, [yes, no, Undo("snli:1/p")])
    assert read_events(path) == [yes, no, Undo("snli:1/p")]
    assert replay(read_events(path)) == [yes]
    assert '"equivalent": true' in path.read_text().splitlines()[1]
    for value, expected in ((False, False), ("YES", True), ("n", False)):
        found = parse_event({"variant_id": "v", "equivalent": value})
        assert found == Equivalence("v", expected)
    for value in (1, 0, None, "maybe", ""):
        with pytest.raises(ValueError, match="equivalent: expected yes or no"):
            parse_event({"variant_id": "v", "equivalent": value})
    with pytest.raises(ValueError, match="expected equivalent alone, got fluency and reasoning"):
        parse_event({"variant_id": "v", "equivalent": True, "fluency": 1, "reasoning": 1})


def test_what_the_page_is_told(pairs: Session) -> None:
    with serving(pairs, "ann") as (desk, url):
        told = Client(url).session()
        assert told["kind"] == "equivalence"
        for item in told["items"]:
            known = pairs.items[item["id"]]
            assert (item["label"], item["changes"]) == (None, [])
            premise = known.seed_texts["premise"]
            assert item["shared"] == [{"field": "premise", "text": premise}]
            (text,) = item["texts"]
            assert text["original"] == [[known.seed_texts["hypothesis"], False]]
            assert text["variant"] == [[known.variant_texts["hypothesis"], False]]
        assert known.label not in json.dumps(told["items"])
        name = told["items"][0]["id"]
        refused = Client(url).save(0, {"variant_id": name, "fluency": 5, "reasoning": 5})
        assert (refused.status, desk.progress()[0]) == (400, 0)
        assert f"expected equivalent for '{name}'" in refused.json["error"]
        assert Client(url).save(0, {"variant_id": name, "equivalent": False}).status == 200
        assert Client(url).session()["standing"] == [
            {"variant_id": name, "equivalent": False, "comment": ""}
        ]
    assert saved(pairs) == {name: Equivalence(name, False)}


def test_a_table_there_and_back(pairs: Session, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    export_items(pairs, path, "ann")
    rows = list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8-sig"))))
    assert "label" not in rows[0]
    assert list(rows[0])[-2:] == ["equivalent", "comment"]
    expected = {}
    for row, said in zip(rows, ("yes", " No ", "TRUE"), strict=False):
        row["equivalent"] = said
        expected[row["variant_id"]] = Equivalence(row["variant_id"], said.strip() != "No")
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (counts,) = import_answers(pairs, path)
    assert (counts.annotator, counts.new) == ("ann", len(expected))
    assert saved(pairs) == expected
    table = read_answers([pairs.folder, path])
    assert table.schema == SCHEMAS["equivalence"]
    assert table["equivalent"].to_pylist() == [
        answer.equivalent for _, answer in sorted(expected.items())
    ]


def test_label_studio_there_and_back(pairs: Session, tmp_path: Path) -> None:
    export_items(pairs, tmp_path / "tasks.json")
    view = ElementTree.parse(tmp_path / "tasks.xml").getroot()
    assert [each.get("name") for each in view.findall("Choices")] == ["equivalent"]
    assert [each.get("alias") for each in view.iter("Choice")] == ["yes", "no"]
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert "Label" not in tasks[0]["data"]["problem"]
    assert "premise of both" in tasks[0]["data"]["problem"]
    result = [{"from_name": "equivalent", "value": {"choices": ["no"]}}]
    tasks[0]["annotations"] = [{"completed_by": 3, "result": result}]
    exported = tmp_path / "exported.json"
    exported.write_text(json.dumps(tasks[:1]))
    import_answers(pairs, exported)
    name = tasks[0]["data"]["variant_id"]
    assert saved(pairs, "label-studio-3") == {name: Equivalence(name, False)}
    exported.write_text(json.dumps([{"variant_id": name, "annotator": 4, "equivalent": "yes"}]))
    import_answers(pairs, exported)
    assert saved(pairs, "label-studio-4") == {name: Equivalence(name, True)}


def test_answers_of_the_other_kind_are_refused(
    pairs: Session, session: Session, tmp_path: Path
) -> None:
    name = next(iter(pairs.items))
    file = tmp_path / "ann.csv"
    file.write_text(f"annotator,variant_id,fluency,reasoning\nann,{name},5,5\n")
    with pytest.raises(ValueError, match=r"ann.csv: expected equivalent for .*, got fluency and"):
        import_answers(pairs, file)
    append(answers_path(pairs.folder, "bo"), [Equivalence(name, True)])
    append(answers_path(session.folder, "bo"), [Answer("snli:1/noun/dog/cat", 1, 1)])
    with pytest.raises(ValueError, match="answers to one kind of question, got fluency and reas"):
        read_answers([pairs.folder, session.folder])
