"""Import and export of answers and items: own files, tables for spreadsheets, Label Studio.

Label Studio's formats: https://labelstud.io/guide/task_format, https://labelstud.io/guide/export.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from merge_dataset.annotation.answers import (
    ASKED,
    COLUMNS,
    EQUIVALENCE,
    SCALE,
    SCORES,
    Equivalence,
    Judgement,
    JudgementKind,
    answers_path,
    append,
    check_annotator,
    current,
    parse_answer,
    read_standing,
    require_kind,
)
from merge_dataset.annotation.session import Item, Session, locked_answers, shown, shuffled
from merge_dataset.data_files import plain, read_header, read_rows
from merge_dataset.files import read_json, write_text
from merge_dataset.paths import as_paths

T = TypeVar("T")


def _choices(name: str, question: str, choices: Mapping[str, str]) -> str:
    return (
        f'  <Header size="5" value="{question}"/>\n'
        f'  <Choices name="{name}" toName="problem" choice="single-radio" showInline="true" '
        'required="true">\n'
        + "".join(f'    <Choice value="{w}" alias="{key}"/>\n' for key, w in choices.items())
        + "  </Choices>\n"
    )


_SCALE: Final = {str(n): f"{n} {word}" for n, word in SCALE.items()}

_QUESTIONS: Final[Mapping[JudgementKind, str]] = {
    SCORES: _choices(
        "fluency", "Fluency: is the variant grammatical, and does it make sense?", _SCALE
    )
    + _choices("reasoning", "Reasoning: does the label of the original still hold?", _SCALE),
    EQUIVALENCE: _choices("equivalent", "Do both mean the same?", {"yes": "yes", "no": "no"}),
}

LABEL_STUDIO_CONFIGS: Final[Mapping[JudgementKind, str]] = {
    kind: f"""\
<View>
  <HyperText name="problem" value="$problem"/>
{questions}  <TextArea name="comment" toName="problem" maxSubmissions="1" placeholder="Comment"/>
</View>
"""
    for kind, questions in _QUESTIONS.items()
}
"""Kind → labelling configuration, for any names of texts."""


def render_label_studio(
    items: Sequence[Item], annotator: str = "", kind: JudgementKind = SCORES
) -> dict[str, str]:
    """Render tasks for Label Studio's import, and its configuration: suffix → text."""
    made, other = [], "Variant" if kind == SCORES else "Paraphrase"
    for item in items:
        # Shared texts, and original and variant side by side, a row per field.
        seen, head = shown(item, kind), ""
        if seen["label"] is not None:
            head = f"<p>Label of the original: <b>{escape(seen['label'])}</b></p>"
        for each in seen["shared"]:
            name = escape(each["field"].replace("_", " "))
            head += f"<p>{name} of both: {escape(each['text'])}</p>"
        rows = f"<tr><th></th><th>Original</th><th>{other}</th></tr>"
        for each in seen["texts"]:
            cells = "</td><td>".join(
                "".join(
                    f"<mark>{escape(t)}</mark>" if is_marked else escape(t) for t, is_marked in side
                )
                for side in (each["original"], each["variant"])
            )
            rows += f"<tr><th>{escape(each['field'].replace('_', ' '))}</th><td>{cells}</td></tr>"
        problem = f'{head}<table border="1" cellpadding="8">{rows}</table>'
        made.append({"data": {"variant_id": item.variant_id, "problem": problem}})
    return {
        ".json": json.dumps(made, indent=1, ensure_ascii=False) + "\n",
        ".xml": LABEL_STUDIO_CONFIGS[kind],
    }


# --- Import ---


def read_label_studio(path: Path, annotator: str | None = None) -> list[tuple[str, Judgement]]:
    """Read annotators (user 3 is `label-studio-3`) and answers from an export; skip empty tasks."""
    exported = read_json(path)
    if not isinstance(exported, list):
        raise ValueError(
            f"{path}: expected a list of tasks, as Label Studio exports as JSON or JSON-MIN, "
            f"got something else"
        )
    return _gathered(path, "task", enumerate(exported, 1), partial(_annotations, annotator))


def _gathered(
    path: Path,
    unit: str,
    rows: Iterable[tuple[int, T]],
    parse: Callable[[T], Iterable[tuple[str, Judgement]]],
) -> list[tuple[str, Judgement]]:
    """Parse numbered rows into annotators and answers; raise if two to a variant differ."""
    found: dict[tuple[str, str], Judgement] = {}
    for number, row in rows:
        try:
            for name, answer in parse(row):
                if found.setdefault((name, answer.variant_id), answer) != answer:
                    raise ValueError(
                        f"expected one answer of {name} to {answer.variant_id!r}, got two"
                    )
        except ValueError as error:
            raise ValueError(f"{path}: {unit} {number}: {error}") from error
    return [(name, answer) for (name, _), answer in found.items()]


def _annotations(annotator: str | None, task: object) -> Iterator[tuple[str, Judgement]]:
    """Yield a task's answers with annotators: the given one, or the one in the file."""
    if not isinstance(task, dict):
        raise ValueError(f"expected a JSON object, got {_as_json(task)}")
    if "annotations" not in task:
        names = (*ASKED[SCORES], *ASKED[EQUIVALENCE], "comment")
        answer = _answer(task, {name: task.get(name) for name in names})
        yield annotator or _name(task.get("annotator")), answer
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
        answer = _answer(data, values)
        yield annotator or _name(annotation.get("completed_by")), answer


def _answer(data: Mapping[str, Any], values: Mapping[str, Any]) -> Judgement:
    variant = data.get("variant_id")
    if not isinstance(variant, str) or not variant:
        raise ValueError(
            f"variant_id: expected the id of a variant in the task's data, got {variant!r}"
        )
    kind: JudgementKind = SCORES if values.get("equivalent") is None else EQUIVALENCE
    said: dict[str, object] = {}
    for name in ASKED[kind]:  # a choice such as "4" or "4 mostly good", or the number of a rating
        plain = _plain(values.get(name))
        said[name] = plain.split()[0] if isinstance(plain, str) and plain.split() else plain
    text = _plain(values.get("comment"))
    lines = text if isinstance(text, Sequence) and not isinstance(text, str) else [text]
    comment = "\n".join(str(line) for line in lines if line).strip()
    return parse_answer({"variant_id": variant, "comment": comment, **said})


def _plain(value: object) -> object:
    """Unwrap the value of a result, which may be in a list, or in an object under its kind."""
    while isinstance(value, dict | list) and len(value) == 1:
        (value,) = value.values() if isinstance(value, dict) else value
    return value


def _name(user: object) -> str:
    """Return an annotator's name from a number, an address, or an object with either."""
    if isinstance(user, dict):
        user = user.get("email") or user.get("id")
    if isinstance(user, int):
        return f"label-studio-{user}"
    if isinstance(user, str) and user:
        return check_annotator(user)
    raise ValueError(f"expected who annotated it, got {_as_json(user)}; name them with --annotator")


def _as_json(value: object) -> str:
    """Format the beginning of a value as JSON."""
    return json.dumps(value, ensure_ascii=False)[:60]


_TYPES: Final = {"fluency": pa.int8(), "reasoning": pa.int8(), "equivalent": pa.bool_()}

SCHEMAS: Final[Mapping[JudgementKind, pa.Schema]] = {
    kind: pa.schema([(name, _TYPES.get(name, pa.string())) for name in names])
    for kind, names in COLUMNS.items()
}
"""Kind → schema of a table of answers."""


def _read_own(path: Path, annotator: str | None) -> list[tuple[str, Judgement]]:
    """Read an annotator's file from another session."""
    name = check_annotator(annotator or path.stem)
    standing = read_standing(path, renamed=annotator is not None)
    return [(name, answer) for answer in current(standing).values()]


def render_spreadsheet(
    items: Sequence[Item], annotator: str = "", kind: JudgementKind = SCORES
) -> dict[str, str]:
    """Render a CSV table to fill in, with a row per item, and a byte order mark for Excel."""
    fields = list(dict.fromkeys(field for item in items for field in item.variant_texts))
    texts = [f"{side}_{field}" for field in fields for side in ("original", "variant")]
    told = ("label", "original", "replacement") if kind == SCORES else ()
    names = ["annotator", "variant_id", *told, *texts, *COLUMNS[kind][2:]]
    written = io.StringIO()
    written.write("\ufeff")
    table = csv.DictWriter(written, names, restval="", extrasaction="ignore")
    table.writeheader()
    for item in items:
        row = {
            "annotator": annotator,
            "variant_id": item.variant_id,
            "label": item.label,
            "original": item.original,
            "replacement": item.replacement,
        }
        row |= {f"original_{field}": text for field, text in item.seed_texts.items()}
        row |= {f"variant_{field}": text for field, text in item.variant_texts.items()}
        table.writerow({name: plain(text) for name, text in row.items()})
    return {".csv": written.getvalue()}


def read_spreadsheet(path: Path, annotator: str | None = None) -> list[tuple[str, Judgement]]:
    """Read annotators and answers from a table, whose columns show the kind; skip blank rows."""
    kind: JudgementKind = (
        EQUIVALENCE if set(ASKED[EQUIVALENCE]) & set(read_header(path)) else SCORES
    )
    asked, own = ASKED[kind], () if annotator is not None else ("annotator",)

    def answers(cells: Mapping[str, str]) -> Iterator[tuple[str, Judgement]]:
        row = {"annotator": "", "comment": "", **cells}
        without = [name for name in asked if not row[name].strip()]
        if len(without) == len(asked):
            return
        if without:
            raise ValueError(
                f"expected both scores or neither, got no {without[0]}; fill it in, or empty "
                f"the other to leave {row['variant_id']!r} unanswered"
            )
        if not row["variant_id"]:
            raise ValueError("variant_id: expected the id of a variant, got none")
        answer = parse_answer(row)
        name = check_annotator(row["annotator"].strip() or annotator or "")
        if annotator not in (None, name):
            raise ValueError(f"expected rows of {annotator}, got one of {name}")
        yield name, answer

    rows = read_rows(path, (*own, "variant_id", *asked), ("annotator", "comment"), ended=True)
    return _gathered(path, "line", rows, answers)


READERS: Final = {".csv": read_spreadsheet, ".json": read_label_studio, ".jsonl": _read_own}
"""Suffix → function that reads a file, given the annotator if the file does not name one."""
RENDERERS: Final = {".csv": render_spreadsheet, ".json": render_label_studio}
"""Suffix → function that renders files to fill in: suffix → text."""


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """Numbers of an annotator's answers in an imported file."""

    annotator: str
    new: int
    changed: int
    known: int
    """Number of answers that the session already had."""


def export_items(session: Session, path: Path, annotator: str | None = None) -> list[Path]:
    """Write items to annotate elsewhere, in the annotator's order; return the files."""
    items = shuffled(session.items, check_annotator(annotator) if annotator else "")
    if path.suffix not in RENDERERS:
        raise ValueError(f"{path}: expected a file .csv, or .json for Label Studio")
    rendered = RENDERERS[path.suffix](items, annotator or "", session.kind)
    texts = {path.with_suffix(suffix): text for suffix, text in rendered.items()}
    for file, text in texts.items():
        if file.exists() and file.read_bytes() != text.encode():
            raise FileExistsError(f"{file}: expected no file there yet, found one; name another")
    for file, text in texts.items():
        write_text(file, text)
    return list(texts)


def import_answers(
    session: Session, path: Path, annotator: str | None = None, *, overwrite: bool = False
) -> list[ImportCounts]:
    """Import a file's answers into the session: all, or none if something is wrong.

    If the disk fills up, some annotators' answers may be imported; importing the same file again
    adds the others.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of answers, found no file there")
    if path.suffix not in READERS:
        raise ValueError(f"{path}: expected a file .csv, .json of Label Studio, or .jsonl")
    given: dict[str, list[Judgement]] = {}
    for name, answer in READERS[path.suffix](path, annotator):
        if answer.variant_id not in session.items:
            raise ValueError(
                f"{path}: expected variants of {session.folder}, got {answer.variant_id!r}"
            )
        try:
            require_kind(answer, session.kind)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        given.setdefault(name, []).append(answer)
    with ExitStack() as stack:
        files = {name: stack.enter_context(locked_answers(session, name)) for name in sorted(given)}
        before = {name: current(read_standing(file)) for name, file in files.items()}
        for name in () if overwrite else files:
            for answer in given[name]:
                there = before[name].get(answer.variant_id, answer)
                if there != answer:
                    raise ValueError(
                        f"{path}: expected the answer that {name} gave to {answer.variant_id!r} "
                        f"before, {_shown(there)}, got {_shown(answer)}; import it under another "
                        f"name by --annotator, or let it replace the other with --overwrite"
                    )
        taken = []
        for name, file in files.items():
            news = [a for a in given[name] if before[name].get(a.variant_id) != a]
            if news:
                append(file, news)
            changed = sum(answer.variant_id in before[name] for answer in news)
            known = len(given[name]) - len(news)
            taken.append(ImportCounts(name, len(news) - changed, changed, known))
    return taken


def import_lines(session: Session, taken: Sequence[ImportCounts]) -> list[str]:
    """Write lines on what was imported, and what is left to answer."""
    lines = []
    for each in taken:
        line = f"{each.annotator}: {each.new:,} new, {each.changed:,} changed, "
        line += f"{each.known:,} as before"
        # The file may be truncated.
        answered = current(read_standing(answers_path(session.folder, each.annotator)))
        if left := len(session.items.keys() - answered.keys()):
            line += f"; {left:,} variants not answered yet"
        lines.append(line)
    return lines or ["no answers in it"]


def read_answers(paths: str | Path | Sequence[Path | str]) -> pa.Table:
    """Read the answers that count, of all annotators, into a table.

    Args:
        paths: One or several session folders, annotators' files (.jsonl), and tables (.csv) with
            the columns `COLUMNS`; an answer may stand in several of them.

    Returns:
        A table with the columns in `SCHEMAS` for the kind of judgement, sorted by annotator and
        variant, each pair once.

    Raises:
        FileNotFoundError: there is no such file or folder.
        TypeError: a path is none.
        ValueError: a file is malformed, or an annotator's answers to a variant differ, or some
            are scores and others about equivalence.
    """
    found: dict[tuple[str, str], tuple[Judgement, Path]] = {}
    for file in (file for path in as_paths("paths", paths) for file in _files(path)):
        for annotator, answer in READERS[file.suffix](file, None):
            key = (annotator, answer.variant_id)
            before, where = found.setdefault(key, (answer, file))
            if before != answer:
                raise ValueError(
                    f"{file}: expected the answer of {annotator} to {answer.variant_id!r} that "
                    f"{where} has ({_shown(before)}), got {_shown(answer)}; leave out one of them"
                )
    rows = [
        {"annotator": annotator, **asdict(found[annotator, variant][0])}
        for annotator, variant in sorted(found)
    ]
    kinds = {answer.kind: file for answer, file in found.values()}
    if len(kinds) > 1:
        raise ValueError(
            f"expected answers to one kind of question, got fluency and reasoning in "
            f"{kinds[SCORES]}, and whether paraphrases mean the same in {kinds[EQUIVALENCE]}; look "
            f"at them one by one"
        )
    return pa.Table.from_pylist(rows, schema=SCHEMAS[next(iter(kinds), SCORES)])


def _shown(answer: Judgement) -> str:
    if isinstance(answer, Equivalence):
        return f"{'yes' if answer.equivalent else 'no'} {answer.comment!r}"
    return f"F{answer.fluency} R{answer.reasoning} {answer.comment!r}"


def _files(path: Path) -> list[Path]:
    """List the files of answers at a path."""
    if path.is_dir():
        if files := sorted(path.glob("answers/*.jsonl")):
            return files
        raise ValueError(f"{path}: expected a session with answers/NAME.jsonl, found no answers")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected a session folder or a file of answers, found nothing there"
        )
    if path.suffix not in (".jsonl", ".csv"):
        raise ValueError(
            f"{path}: expected a session folder, a .jsonl file or a .csv file of answers; other "
            f"tools' files are taken in by `merge-nli annotate --import`"
        )
    return [path]
