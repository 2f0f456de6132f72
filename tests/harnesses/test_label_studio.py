import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.harness import run
from helpers.judged import make_item
from helpers.processes import python_of

from merge_dataset.annotation import Session, read_answers, write_files
from merge_dataset.annotation.sample import Item

pytestmark = pytest.mark.harness

READER = Path(__file__).with_name("read_label_studio.py")
TEXTS = {"premise": "A <b> dog.", "hypothesis": "A dog."}
SPANS = {"premise": [[6, 9]], "hypothesis": [[2, 5]]}


def items(count: int) -> dict[str, Item]:
    texts: dict[str, Any] = {"seed_texts": TEXTS, "variant_texts": TEXTS}
    texts |= {"seed_spans": SPANS, "variant_spans": SPANS, "label": "neutral", "chance": 1.0}
    made = [
        replace(make_item("noun", seed_id=f"snli:{n}", **texts), variant_id=f"snli:{n}/noun/a/b")
        for n in range(count)
    ]
    return {item.variant_id: item for item in made}


def annotation(number: int, comments: list[str]) -> dict[str, Any]:
    """An annotation as Label Studio keeps it, by two users."""
    choices = {"fluency": str(1 + number), "reasoning": str(5 - number)}
    results: list[dict[str, Any]] = [
        {"id": name, "from_name": name, "to_name": "problem", "type": "choices",
         "value": {"choices": [score]}}
        for name, score in choices.items()
    ]  # fmt: skip
    if comments:
        results.append(
            {"id": "c", "from_name": "comment", "to_name": "problem", "type": "textarea",
             "value": {"text": comments}}
        )  # fmt: skip
    times = dict.fromkeys(("created_at", "updated_at"), "2026-01-31T12:00:00Z")
    user: object = {"id": 1, "email": "ann@example.org"} if number % 2 else 7
    return {"id": number, "completed_by": user, "was_cancelled": False, "lead_time": 3.5,
            "result": results, **times}  # fmt: skip


def test_there_and_back(tmp_path: Path) -> None:
    _, tasks, config = write_files(Session(tmp_path, items(4), {"kind": "scores"}))
    comments: list[list[str]] = [[], ["one"], ["one", "two"], []]
    exported = [
        task | {"id": number, "annotations": [annotation(number, comments[number])]}
        for number, task in enumerate(json.loads(tasks.read_text(encoding="utf-8")))
    ]
    export = tmp_path / "export.json"
    export.write_text(json.dumps(exported), encoding="utf-8")
    words = [READER, config, tasks, export, tmp_path / "min"]
    result = json.loads(
        run([python_of("MERGE_NLI_LABEL_STUDIO_PYTHON"), *map(str, words)], tmp_path)
    )
    assert result == {"controls": ["fluency", "reasoning", "comment"], "objects": ["problem"]}
    expected = sorted(
        (
            "ann@example.org" if number % 2 else "label-studio-7",
            task["data"]["variant_id"], 1 + number, 5 - number, "\n".join(comments[number]),
        )
        for number, task in enumerate(exported)
    )  # fmt: skip
    for path in (export, tmp_path / "min/result.json"):
        assert [tuple(row.values()) for row in read_answers(path).to_pylist()] == expected
