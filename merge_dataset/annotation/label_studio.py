"""Items as tasks for Label Studio, and answers from what it exports (JSON and JSON-MIN).

Formats: https://labelstud.io/guide/task_format and https://labelstud.io/guide/export.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from merge_dataset.annotation.answers import (
    ASKED,
    EQUIVALENCE,
    SCALE,
    SCORES,
    Judgement,
    JudgementKind,
    check_annotator,
    parse_answer,
)
from merge_dataset.annotation.desk import pieces
from merge_dataset.annotation.sample import Item, Spans
from merge_dataset.files import describe_json_error, read_text

_SHOWN: Final = 60
"""Characters of a value that a message shows."""


def _choices(name: str, question: str, choices: Mapping[str, str]) -> str:
    lines = [f'    <Choice value="{word}" alias="{alias}"/>' for alias, word in choices.items()]
    return "\n".join(
        [
            f'  <Header size="5" value="{question}"/>',
            f'  <Choices name="{name}" toName="problem" choice="single-radio" showInline="true" '
            f'required="true">',
            *lines,
            "  </Choices>",
        ]
    )


_SCALE: Final = {str(n): f"{n} {word}" for n, word in SCALE.items()}

_QUESTIONS: Final[Mapping[JudgementKind, tuple[str, ...]]] = {
    SCORES: (
        _choices("fluency", "Fluency: is the variant grammatical, and does it make sense?", _SCALE),
        _choices("reasoning", "Reasoning: does the label of the original still hold?", _SCALE),
    ),
    EQUIVALENCE: (_choices("equivalent", "Do both mean the same?", {"yes": "yes", "no": "no"}),),
}

CONFIGS: Final[Mapping[JudgementKind, str]] = {
    kind: "\n".join(
        [
            "<View>",
            '  <HyperText name="problem" value="$problem"/>',
            *questions,
            '  <TextArea name="comment" toName="problem" maxSubmissions="1" '
            'placeholder="Comment"/>',
            "</View>",
            "",
        ]
    )
    for kind, questions in _QUESTIONS.items()
}
"""Kind → the labelling configuration, for any fields of texts."""


def render(
    items: Sequence[Item], annotator: str = "", kind: JudgementKind = SCORES
) -> dict[str, str]:
    """Render tasks as Label Studio imports them, in JSON, and the labelling configuration.

    Args:
        items: In the order they are to be annotated in.
        annotator: Left out: Label Studio knows who annotates.
        kind: Kind of question.

    Returns:
        The texts of the files, by their suffixes.
    """
    html = _html if kind == SCORES else _pair_html
    made = [{"data": {"variant_id": item.variant_id, "problem": html(item)}} for item in items]
    return {".json": json.dumps(made, indent=1, ensure_ascii=False) + "\n", ".xml": CONFIGS[kind]}


def _html(item: Item) -> str:
    """Lay out original and variant side by side, a row per field."""
    rows = [
        (
            field,
            _marked(item.seed_texts[field], item.seed_spans[field]),
            _marked(text, item.variant_spans[field]),
        )
        for field, text in item.variant_texts.items()
    ]
    head = f"<p>Label of the original: <b>{escape(item.label)}</b></p>"
    return head + _table("Variant", rows)


def _pair_html(item: Item) -> str:
    """Lay out what both share, and below it original and paraphrase, without the label."""
    shared, rows = "", []
    for field, text in item.variant_texts.items():
        if text == item.seed_texts[field]:
            shared += f"<p>{escape(field.replace('_', ' '))} of both: {escape(text)}</p>"
        else:
            rows.append((field, escape(item.seed_texts[field]), escape(text)))
    return shared + _table("Paraphrase", rows)


def _table(variant: str, rows: Sequence[tuple[str, str, str]]) -> str:
    columns = f"<tr><th></th><th>Original</th><th>{variant}</th></tr>"
    cells = "".join(
        f"<tr><th>{escape(field.replace('_', ' '))}</th><td>{old}</td><td>{new}</td></tr>"
        for field, old, new in rows
    )
    return f'<table border="1" cellpadding="8">{columns}{cells}</table>'


def _marked(text: str, spans: Spans) -> str:
    return "".join(
        f"<mark>{escape(piece)}</mark>" if marked else escape(piece)
        for piece, marked in pieces(text, spans)
    )


# --- Back ---


def read(path: Path, annotator: str | None = None) -> list[tuple[str, Judgement]]:
    """Read annotators and answers of an export, JSON or JSON-MIN; skipped tasks are left out.

    Args:
        path: The export.
        annotator: Whose answers they are; by default, whom the export names: an e-mail
            address or, of a user 3, `label-studio-3`.

    Raises:
        ValueError: it is no such export, an annotation is malformed, or somebody
            annotated a task twice, differently.
    """
    try:
        exported = json.loads(read_text(path).removeprefix("\ufeff"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, {describe_json_error(error)}") from error
    if not isinstance(exported, list):
        raise ValueError(
            f"{path}: expected a list of tasks, as Label Studio exports as JSON or JSON-MIN, "
            f"got something else"
        )
    found: dict[tuple[str, str], Judgement] = {}
    for number, task in enumerate(exported, start=1):
        try:
            for user, record in _annotations(task):
                answer = parse_answer(record)
                name = annotator or _name(user)
                if found.setdefault((name, answer.variant_id), answer) != answer:
                    raise ValueError(
                        f"expected one answer of {name} to {answer.variant_id!r}, got two"
                    )
        except ValueError as error:
            raise ValueError(f"{path}: task {number}: {error}") from error
    return [(name, answer) for (name, _), answer in found.items()]


def _annotations(task: object) -> Iterator[tuple[object, dict[str, Any]]]:
    """Yield who annotated a task, and an answer's record."""
    if not isinstance(task, dict):
        raise ValueError(f"expected a JSON object, got {_as_json(task)}")
    if "annotations" not in task:
        yield task.get("annotator"), _record(task, {name: task.get(name) for name in _NAMES})
        return
    data = task.get("data")
    if not isinstance(data, dict) or not isinstance(task["annotations"], list):
        raise ValueError("expected data, and a list of annotations, got something else")
    for annotation in task["annotations"]:
        results = annotation.get("result") if isinstance(annotation, dict) else None
        if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
            raise ValueError(
                f"expected an annotation with a list of results, got {_as_json(annotation)}"
            )
        if annotation.get("was_cancelled"):
            continue
        values = {result.get("from_name"): result.get("value") for result in results}
        yield annotation.get("completed_by"), _record(data, values)


_NAMES: Final = (*ASKED[SCORES], *ASKED[EQUIVALENCE], "comment")


def _record(data: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    variant = data.get("variant_id")
    if not isinstance(variant, str) or not variant:
        raise ValueError(
            f"variant_id: expected the id of a variant in the task's data, got {variant!r}"
        )
    kind: JudgementKind = SCORES if values.get("equivalent") is None else EQUIVALENCE
    said: dict[str, object] = {}
    for name in ASKED[kind]:  # a choice, "4" or with its word "4 mostly good", or a rating's number
        plain = _plain(values.get(name))
        said[name] = plain.split()[0] if isinstance(plain, str) and plain.split() else plain
    text = _plain(values.get("comment"))
    lines = text if isinstance(text, Sequence) and not isinstance(text, str) else [text]
    comment = "\n".join(str(line) for line in lines if line).strip()
    return {"variant_id": variant, "comment": comment, **said}


def _plain(value: object) -> object:
    """Unwrap a result's value: alone, in a list, or in an object under its kind."""
    while isinstance(value, dict | list) and len(value) == 1:
        (value,) = value.values() if isinstance(value, dict) else value
    return value


def _name(user: object) -> str:
    """Name an annotator by a number, an address, or an object with either."""
    if isinstance(user, dict):
        user = user.get("email") or user.get("id")
    if isinstance(user, int):
        return f"label-studio-{user}"
    if isinstance(user, str) and user:
        return check_annotator(user)
    raise ValueError(f"expected who annotated it, got {_as_json(user)}; name them with --annotator")


def _as_json(value: object) -> str:
    """Show the beginning of a value."""
    return json.dumps(value, ensure_ascii=False)[:_SHOWN]
