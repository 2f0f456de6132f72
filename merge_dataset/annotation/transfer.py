"""A session's items and answers to and from files of other tools."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from merge_dataset.annotation import label_studio
from merge_dataset.annotation import spreadsheet as tables
from merge_dataset.annotation.answers import (
    Answer,
    append,
    check_annotator,
    current,
    read_csv,
    read_standing,
)
from merge_dataset.annotation.desk import shuffled
from merge_dataset.annotation.session import Session, alone
from merge_dataset.files import write_text


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of the answers in a file."""

    annotator: str
    new: int
    changed: int
    known: int
    """As they already were."""


def export_items(session: Session, path: Path, annotator: str | None = None) -> list[Path]:
    """Write the items for annotating elsewhere, in an order of the annotator's own.

    Args:
        session: With the items.
        path: `.csv` for a table, `.json` for Label Studio's tasks, beside which its labelling
            configuration is written as `.xml`.
        annotator: Who is to annotate them, where that is known.

    Returns:
        The files written.

    Raises:
        FileExistsError: a file is there already, maybe with answers in it.
        ValueError: the suffix is another.
    """
    items = shuffled(session.items, check_annotator(annotator) if annotator else "")
    if path.suffix == ".csv":
        texts = {path: tables.render(items, annotator or "")}
    elif path.suffix == ".json":
        texts = {path: label_studio.tasks(items), path.with_suffix(".xml"): label_studio.CONFIG}
    else:
        raise ValueError(f"{path}: expected a file .csv, or .json for Label Studio")
    for file in texts:
        if file.exists():
            raise FileExistsError(f"{file}: expected no file there yet, found one; name another")
    for file, text in texts.items():
        write_text(file, text)
    return list(texts)


def import_answers(
    session: Session, path: Path, annotator: str | None = None, *, overwrite: bool = False
) -> list[Taken]:
    """Take answers into the session: all that a file has or, where something is wrong, none.

    Where the disk fills up in between, those of some annotators are in and those of others are not;
    the same file taken in again adds the others.

    Args:
        session: Whose variants they are about.
        path: `.csv`, `.json` of Label Studio (JSON or JSON-MIN), or `.jsonl` of another
            session.
        annotator: Whose they are, where the file does not say, or instead of what it says.
        overwrite: Also where the annotator said something else before.

    Raises:
        BlockingIOError: an annotator is annotating just now.
        FileNotFoundError: there is no such file.
        OSError: answers could not be written; see above.
        ValueError: the file is malformed, about other variants, or contradicts answers.
    """
    given: dict[str, list[Answer]] = {}
    for name, answer in _read(path, annotator):
        if answer.variant_id not in session.items:
            raise ValueError(
                f"{path}: expected variants of {session.folder}, got {answer.variant_id!r}"
            )
        given.setdefault(name, []).append(answer)
    with ExitStack() as stack:
        files = {name: stack.enter_context(alone(session, name)) for name in sorted(given)}
        before = {name: current(read_standing(file)) for name, file in files.items()}
        for name in () if overwrite else files:
            _require_no_others(path, name, before[name], given[name])
        taken = []
        for name, file in files.items():
            news = [a for a in given[name] if before[name].get(a.variant_id) != a]
            if news:
                append(file, news)
            changed = sum(answer.variant_id in before[name] for answer in news)
            known = len(given[name]) - len(news)
            taken.append(Taken(name, len(news) - changed, changed, known))
    return taken


def _read(path: Path, annotator: str | None) -> list[tuple[str, Answer]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of answers, found no file there")
    if path.suffix == ".csv":
        return read_csv(path, annotator)
    if path.suffix == ".json":
        return label_studio.read(path, annotator)
    if path.suffix == ".jsonl":
        name = check_annotator(annotator or path.stem)
        return [(name, answer) for answer in current(read_standing(path)).values()]
    raise ValueError(f"{path}: expected a file .csv, .json of Label Studio, or .jsonl")


def _require_no_others(
    path: Path, annotator: str, before: dict[str, Answer], given: Iterable[Answer]
) -> None:
    for answer in given:
        there = before.get(answer.variant_id)
        if there not in (None, answer):
            raise ValueError(
                f"{path}: expected the answer that {annotator} gave to {answer.variant_id!r}, "
                f"{there}, got {answer}; import it under another name by --annotator, or let it "
                f"replace the other by --overwrite"
            )
