"""Files for people who judge a session's variants, and the answers in them.

A table for each annotator, for any spreadsheet, or tasks for Label Studio, whose formats are in
https://labelstud.io/guide/task_format and https://labelstud.io/guide/export.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from merge_dataset.annotation.session import (
    EQUIVALENCE,
    SCORES,
    Item,
    JudgementKind,
    Session,
    read_session,
)
from merge_dataset.data_files import plain, read_header, read_rows
from merge_dataset.files import draw_rank, read_json, write_text
from merge_dataset.paths import as_paths
from merge_dataset.show import pieces

SCALE: Final = {1: "poor", 2: "mostly poor", 3: "uncertain", 4: "mostly good", 5: "good"}
"""Meaning of the scores for fluency and for reasoning (MERGE paper, A.3)."""

ENOUGH: Final = 9
"""Least F + R of a good variant (paper, section 4)."""

ASKED: Final[Mapping[JudgementKind, tuple[str, ...]]] = {
    SCORES: ("fluency", "reasoning"),
    EQUIVALENCE: ("equivalent",),
}
"""Kind → names of the values of an answer."""

_TYPES: Final = {"fluency": pa.int8(), "reasoning": pa.int8(), "equivalent": pa.bool_()}

SCHEMAS: Final[Mapping[JudgementKind, pa.Schema]] = {
    kind: pa.schema(
        [
            (name, _TYPES.get(name, pa.string()))
            for name in ("annotator", "variant_id", *names, "comment")
        ]
    )
    for kind, names in ASKED.items()
}
"""Kind → schema of a table of answers."""

ANSWERS: Final = "answers"
"""Folder of the filled files, in that of a session."""
_SUFFIXES: Final = (".csv", ".json")
_ANNOTATOR: Final = re.compile(r"\w[\w.@+-]{0,63}")
_YES_NO: Final = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


def is_good(total: Any, annotators: Any = 1) -> Any:
    """Return whether sums of F + R (numbers or arrays) average at least `ENOUGH` per annotator.

    >>> is_good(4 + 5), is_good(4 + 4), is_good((4 + 4) + (5 + 5), annotators=2)
    (True, False, True)
    """
    return total >= ENOUGH * annotators


# --- Files to fill in ---


def write_files(session: Session, annotators: Sequence[str] = ()) -> list[Path]:
    """Write guidelines, Label Studio's tasks, and a table for each annotator, where there is none.

    An annotator's order is their own, so that tiredness affects different items.
    """
    for name in annotators:
        if not _ANNOTATOR.fullmatch(name):
            raise ValueError(
                f"--annotator: expected a name of up to 64 letters, digits and . _ - + @ that "
                f"begins with a letter or digit, got {name!r}"
            )
    guidelines = resources("merge_dataset.annotation") / f"guidelines_{session.kind}.md"
    texts = {
        "guidelines.md": guidelines.read_text(encoding="utf-8"),
        "label-studio.json": _tasks(session),
        "label-studio.xml": _labelling(session.kind),
        **{f"{ANSWERS}/{name}.csv": _table(session, name) for name in annotators},
    }
    written = [session.folder / name for name in texts if not (session.folder / name).exists()]
    for path in written:
        path.parent.mkdir(exist_ok=True)
        write_text(path, texts[path.relative_to(session.folder).as_posix()])
    return written


def _in_order(session: Session, annotator: str) -> list[Item]:
    return sorted(session.items.values(), key=lambda item: draw_rank(annotator, item.variant_id))


def _table(session: Session, annotator: str) -> str:
    """Render a CSV table to fill in, with a row per item, and a byte order mark for Excel."""
    items = _in_order(session, annotator)
    fields = list(dict.fromkeys(field for item in items for field in item.variant_texts))
    texts = [f"{side}_{field}" for field in fields for side in ("original", "variant")]
    told = ("label", "original", "replacement") if session.kind == SCORES else ()
    own = SCHEMAS[session.kind].names
    written = io.StringIO()
    written.write("\ufeff")
    table = csv.DictWriter(written, [*own[:2], *told, *texts, *own[2:]], restval="")
    table.writeheader()
    for item in items:
        row = {"annotator": annotator, "variant_id": item.variant_id}
        row |= {name: getattr(item, name) for name in told}
        row |= {f"original_{field}": text for field, text in item.seed_texts.items()}
        row |= {f"variant_{field}": text for field, text in item.variant_texts.items()}
        table.writerow({name: plain(text) for name, text in row.items()})
    return written.getvalue()


def _tasks(session: Session) -> str:
    """Render tasks for Label Studio, original and variant side by side, a row per text.

    Paraphrases are shown without label and marks, and texts of both problems once.
    """
    made, is_pair = [], session.kind == EQUIVALENCE
    for item in _in_order(session, ""):
        head = "" if is_pair else f"<p>Label of the original: <b>{escape(item.label)}</b></p>"
        rows = (
            f"<tr><th></th><th>Original</th><th>{'Paraphrase' if is_pair else 'Variant'}</th></tr>"
        )
        for field, text in item.variant_texts.items():
            name, original = escape(field.replace("_", " ")), item.seed_texts[field]
            if is_pair and text == original:
                head += f"<p>{name} of both: {escape(text)}</p>"
                continue
            old, new = ([], []) if is_pair else (item.seed_spans[field], item.variant_spans[field])
            cells = "</td><td>".join(
                "".join(
                    f"<mark>{escape(t)}</mark>" if is_marked else escape(t) for t, is_marked in side
                )
                for side in (pieces(original, old), pieces(text, new))
            )
            rows += f"<tr><th>{name}</th><td>{cells}</td></tr>"
        problem = f'{head}<table border="1" cellpadding="8">{rows}</table>'
        made.append({"data": {"variant_id": item.variant_id, "problem": problem}})
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _labelling(kind: JudgementKind) -> str:
    """Render Label Studio's configuration, for any names of texts."""
    scale = {str(n): f"{n} {word}" for n, word in SCALE.items()}
    questions = {
        "fluency": ("Fluency: is the variant grammatical, and does it make sense?", scale),
        "reasoning": ("Reasoning: does the label of the original still hold?", scale),
        "equivalent": ("Do both mean the same?", {"yes": "yes", "no": "no"}),
    }
    lines = ["<View>", '  <HyperText name="problem" value="$problem"/>']
    for name in ASKED[kind]:
        question, choices = questions[name]
        lines += [
            f'  <Header size="5" value="{question}"/>',
            f'  <Choices name="{name}" toName="problem" choice="single-radio" showInline="true" '
            'required="true">',
            *(f'    <Choice value="{word}" alias="{key}"/>' for key, word in choices.items()),
            "  </Choices>",
        ]
    comment = '  <TextArea name="comment" toName="problem" maxSubmissions="1"'
    return "\n".join([*lines, f'{comment} placeholder="Comment"/>', "</View>", ""])


# --- Answers ---


def read_answers(paths: str | Path | Sequence[Path | str]) -> pa.Table:
    """Read the answers of all annotators into a table.

    Args:
        paths: One or several session folders, whose files in `answers/` are read; tables (.csv)
            with the columns in `SCHEMAS`, and exports of Label Studio (.json). An answer may stand
            in several of them. Where a file does not name the annotator, its own name does.

    Returns:
        A table with the columns in `SCHEMAS` for the kind of judgement, sorted by annotator and
        variant, each pair once.

    Raises:
        FileNotFoundError: there is no such file or folder.
        TypeError: a path is none.
        ValueError: a file is malformed, has answers to variants that its session does not have, or
            an annotator's answers to a variant differ, or some are scores and others about
            equivalence.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    kinds: dict[JudgementKind, Path] = {}
    where: dict[tuple[str, str], str] = {}
    for path in as_paths("paths", paths):
        session = read_session(path) if path.is_dir() else None
        for file in _answer_files(path):
            read = _read_table if file.suffix == ".csv" else _read_label_studio
            for place, answer in read(file):
                kinds.setdefault(EQUIVALENCE if "equivalent" in answer else SCORES, file)
                variant = answer["variant_id"]
                if session is not None and variant not in session.items:
                    raise ValueError(f"{place}: expected variants of {path}, got {variant!r}")
                key = (answer["annotator"], variant)
                before = found.setdefault(key, answer)
                if before != answer:
                    raise ValueError(
                        f"{place}: expected the answer of {key[0]} to {variant!r} that "
                        f"{where[key]} has ({_shown(before)}), got {_shown(answer)}; leave out one "
                        f"of them"
                    )
                where.setdefault(key, place)
    if len(kinds) > 1:
        raise ValueError(
            f"expected answers to one kind of question, got fluency and reasoning in "
            f"{kinds[SCORES]}, and whether paraphrases mean the same in {kinds[EQUIVALENCE]}; look "
            f"at them one by one"
        )
    rows = [found[key] for key in sorted(found)]
    return pa.Table.from_pylist(rows, schema=SCHEMAS[next(iter(kinds), SCORES)])


def _answer_files(path: Path) -> list[Path]:
    """List the files of answers at a path."""
    if path.is_dir():
        if files := sorted(each for each in path.glob(f"{ANSWERS}/*") if each.suffix in _SUFFIXES):
            return files
        raise ValueError(
            f"{path}: expected filled tables (.csv) or exports of Label Studio (.json) in "
            f"{ANSWERS}/, found none"
        )
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected a session folder or a file of answers, found nothing there"
        )
    if path.suffix not in _SUFFIXES:
        raise ValueError(
            f"{path}: expected a session folder, a table of answers (.csv), or an export of Label "
            f"Studio (.json)"
        )
    return [path]


def _shown(answer: Mapping[str, Any]) -> str:
    if "equivalent" in answer:
        return f"{'yes' if answer['equivalent'] else 'no'} {answer['comment']!r}"
    return f"F{answer['fluency']} R{answer['reasoning']} {answer['comment']!r}"


def parse_answer(record: Mapping[str, Any]) -> dict[str, Any]:
    """Parse an answer, about a paraphrase if it has `equivalent`; values may be texts.

    >>> parse_answer({"variant_id": "snli:1", "fluency": "4", "reasoning": " 5.0"})
    {'variant_id': 'snli:1', 'fluency': 4, 'reasoning': 5}
    >>> parse_answer({"variant_id": "snli:1", "equivalent": " TRUE "})
    {'variant_id': 'snli:1', 'equivalent': True}
    """
    variant = record.get("variant_id")
    if not isinstance(variant, str) or not variant:
        raise ValueError(f"variant_id: expected the id of a variant, got {variant!r}")
    answer: dict[str, Any] = dict(record)
    if "equivalent" in record:
        said = _YES_NO.get(str(record["equivalent"]).strip().lower())
        if said is None:
            raise ValueError(f"equivalent: expected yes or no, got {record['equivalent']!r}")
        return answer | {"equivalent": said}
    for name in ASKED[SCORES]:
        value, number = record.get(name), None
        with suppress(ValueError, OverflowError):
            number = float(str(value))
        if number not in SCALE:
            raise ValueError(f"{name}: expected a whole number from 1 to 5, got {value!r}")
        answer[name] = int(number)
    return answer


def _read_table(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield places and answers of a table, whose columns show the kind; skip blank rows."""
    kind: JudgementKind = EQUIVALENCE if "equivalent" in read_header(path) else SCORES
    asked = ASKED[kind]
    rows = read_rows(path, ("variant_id", *asked), ("annotator", "comment"), ended=True)
    for number, cells in rows:
        place = f"{path}: line {number}"
        without = [name for name in asked if not cells[name].strip()]
        if len(without) == len(asked):
            continue
        if without:
            raise ValueError(
                f"{place}: expected both scores or neither, got no {without[0]}; fill it in, or "
                f"empty the other to leave {cells['variant_id']!r} unanswered"
            )
        annotator = cells.get("annotator", "").strip() or path.stem
        try:
            answer = parse_answer({"comment": "", **cells, "annotator": annotator})
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
        yield place, answer


def _read_label_studio(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield places and answers of an export as JSON or JSON-MIN; user 3 is `label-studio-3`."""
    exported = read_json(path)
    if not isinstance(exported, list):
        raise ValueError(
            f"{path}: expected a list of tasks, as Label Studio exports as JSON or JSON-MIN, "
            f"got something else"
        )
    for number, task in enumerate(exported, start=1):
        place = f"{path}: task {number}"
        try:
            for user, data, values in _annotations(task):
                user = user.get("email") or user.get("id") if isinstance(user, dict) else user
                name = f"label-studio-{user}" if isinstance(user, int) else user or path.stem
                kind: JudgementKind = SCORES if values.get("equivalent") is None else EQUIVALENCE
                answer = {"annotator": str(name), "variant_id": data.get("variant_id")}
                for each in ASKED[kind]:
                    # A choice such as "4" or "4 mostly good", or the number of a rating.
                    value = _unwrapped(values.get(each))
                    answer[each] = str(value).split(maxsplit=1)[0] if value else value
                text = _unwrapped(values.get("comment")) or ""
                comment = text if isinstance(text, str) else "\n".join(map(str, text))
                yield place, parse_answer({**answer, "comment": comment.strip()})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{place}: expected data, and annotations with results, as Label Studio exports "
                f"them, got {json.dumps(task, ensure_ascii=False)[:60]}"
            ) from error
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error


def _annotations(task: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the user, data, and results by name, of each annotation of a task."""
    if "annotations" not in task:  # JSON-MIN
        yield task.get("annotator"), task, task
        return
    for annotation in task["annotations"]:
        if not annotation.get("was_cancelled"):
            results = {each["from_name"]: each["value"] for each in annotation["result"]}
            yield annotation.get("completed_by"), task["data"], results


def _unwrapped(value: Any) -> Any:
    """Unwrap the value of a result, which may be in a list, or in an object under its kind."""
    while isinstance(value, dict | list) and len(value) == 1:
        (value,) = value.values() if isinstance(value, dict) else value
    return value
