"""Annotators' answers about variants, in append-only files.

The first line has the name (`annotator`), the number of further lines (`lines`) and their digest
(`sha256`); earlier releases wrote no such line. Each further line is a JSON object with a checksum
(`crc32`): an answer, or the withdrawal of the last answer to a variant.
"""

import hashlib
import logging
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from merge_dataset.files import atomic
from merge_dataset.json_lines import parse_line, sealed

log = logging.getLogger(__name__)

SCALE: Final = {1: "poor", 2: "mostly poor", 3: "uncertain", 4: "mostly good", 5: "good"}
"""Meaning of the scores for fluency and for reasoning (MERGE paper, A.3)."""

ENOUGH: Final = 9
"""Least F + R of a good variant (paper, section 4)."""

SCORES: Final = "scores"
EQUIVALENCE: Final = "equivalence"

JudgementKind = Literal["scores", "equivalence"]
"""Fluency and reasoning (MERGE paper, A.3), or equivalence (Arakelyan et al. 2024, 3.1)."""

ASKED: Final[Mapping[JudgementKind, tuple[str, ...]]] = {
    SCORES: ("fluency", "reasoning"),
    EQUIVALENCE: ("equivalent",),
}
"""Kind → names of the values of an answer."""

COLUMNS: Final[Mapping[JudgementKind, tuple[str, ...]]] = {
    kind: ("annotator", "variant_id", *names, "comment") for kind, names in ASKED.items()
}
"""Kind → columns of a table or CSV file of answers."""

_YES_NO: Final = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}

_ANNOTATOR: Final = re.compile(r"\w[\w.@+-]{0,63}")
_CHECKSUM: Final = re.compile(rb'"crc32": "[0-9a-f]{8}"')


@dataclass(frozen=True, slots=True)
class Answer:
    """Judgement of one variant; scores are keys of `SCALE`."""

    kind: ClassVar[JudgementKind] = SCORES
    variant_id: str
    fluency: int
    reasoning: int
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Judgement of one paraphrase: whether it has the same meaning as its original."""

    kind: ClassVar[JudgementKind] = EQUIVALENCE
    variant_id: str
    equivalent: bool
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Undo:
    """Withdrawal of the last answer to a variant; an earlier answer counts again."""

    variant_id: str


Judgement = Answer | Equivalence

Event = Answer | Equivalence | Undo
"""Content of a line in an annotator's file."""


def require_kind(judgement: Judgement, kind: JudgementKind) -> None:
    """Raise ValueError if a judgement answers another kind of question."""
    if judgement.kind != kind:
        asked, got = (" and ".join(ASKED[each]) for each in (kind, judgement.kind))
        raise ValueError(f"expected {asked} for {judgement.variant_id!r}, got {got}")


def check_annotator(name: str) -> str:
    """Return the name if it is valid as a file name; raise ValueError otherwise."""
    if not _ANNOTATOR.fullmatch(name):
        raise ValueError(
            f"annotator: expected a name of up to 64 letters, digits and . _ - + @ that begins "
            f"with a letter or digit, got {repr(name) if name else 'none'}"
        )
    return name


def answers_path(session: Path, annotator: str) -> Path:
    """Return the path of an annotator's answers in a session folder."""
    return session / "answers" / f"{check_annotator(annotator)}.jsonl"


def is_good(total: Any, annotators: Any = 1) -> Any:
    """Return whether sums of F + R (numbers or arrays) average at least `ENOUGH` per annotator.

    >>> is_good(4 + 5), is_good(4 + 4), is_good((4 + 4) + (5 + 5), annotators=2)
    (True, False, True)
    """
    return total >= ENOUGH * annotators


# --- Events ---


def parse_event(record: object) -> Event:
    """Parse an event from its JSON object."""
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {record!r}")
    variant = record.get("variant_id")
    if not isinstance(variant, str) or not variant:
        raise ValueError(f"variant_id: expected the id of a variant, got {variant!r}")
    return Undo(variant) if record.get("undone") is True else parse_answer(record)


def parse_answer(record: Mapping[str, Any]) -> Judgement:
    """Parse an answer, about a paraphrase if it has `equivalent`; values may be texts.

    >>> parse_answer({"variant_id": "snli:1", "fluency": "4", "reasoning": " 5.0"})
    Answer(variant_id='snli:1', fluency=4, reasoning=5, comment='')
    >>> parse_answer({"variant_id": "snli:1", "equivalent": " TRUE "})
    Equivalence(variant_id='snli:1', equivalent=True, comment='')
    """
    comment = record.get("comment", "")
    if not isinstance(comment, str):
        raise ValueError(f"comment: expected a text, got {comment!r}")
    if "equivalent" in record:
        if others := [name for name in ASKED[SCORES] if record.get(name) is not None]:
            raise ValueError(f"expected equivalent alone, got {' and '.join(others)} too")
        value = record["equivalent"]
        said = _YES_NO.get(str(value).strip().lower()) if isinstance(value, str | bool) else None
        if said is None:
            raise ValueError(f"equivalent: expected yes or no, got {value!r}")
        return Equivalence(record["variant_id"], said, comment)
    scores: list[int] = []
    for name in ASKED[SCORES]:
        value, number = record.get(name), None
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            with suppress(ValueError, OverflowError):
                number = float(value)
        if number not in SCALE:
            raise ValueError(f"{name}: expected a whole number from 1 to 5, got {value!r}")
        scores.append(int(number))
    fluency, reasoning = scores
    return Answer(record["variant_id"], fluency, reasoning, comment)


def replay(events: Iterable[Event]) -> list[Judgement]:
    """Return the answers not withdrawn, in order; a variant may have several."""
    standing: list[Judgement] = []
    for event in events:
        if not isinstance(event, Undo):
            standing.append(event)
            continue
        given = [i for i, answer in enumerate(standing) if answer.variant_id == event.variant_id]
        if not given:
            raise ValueError(f"expected an answer to {event.variant_id!r} to undo, got none")
        del standing[given[-1]]
    return standing


def current(standing: Iterable[Judgement]) -> dict[str, Judgement]:
    """Map each variant to the answer that counts: the last one not withdrawn."""
    return {answer.variant_id: answer for answer in standing}


# --- An annotator's file ---


def append(path: Path, events: Iterable[Event]) -> None:
    """Append events to an annotator's file, and wait until they are on the disk."""
    lines = _read_lines(path)[0]
    time = datetime.now(UTC).isoformat(timespec="seconds")
    for event in events:
        undone = {"undone": True} if isinstance(event, Undo) else {}
        lines.append(sealed(asdict(event) | undone | {"time": time}).encode())
    digest = hashlib.sha256(b"\n".join(lines)).hexdigest()
    head = {"annotator": path.stem, "lines": len(lines), "sha256": digest}
    with atomic(path) as temporary:
        temporary.write_bytes(b"\n".join([sealed(head).encode(), *lines, b""]))
    if os.name == "posix":  # so that the file's name is on the disk, too
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_events(path: Path, *, renamed: bool = False) -> list[Event]:
    """Read the events of an annotator's file; none if it does not exist."""
    lines, first = _read_lines(path, renamed=renamed)
    return _parsed(path, lines, first)


def _read_lines(path: Path, *, renamed: bool = False) -> tuple[list[bytes], int]:
    """Return lines of events, and the number of the first; uncounted, drop a truncated last."""
    if not path.exists():
        return [], 1
    lines = path.read_bytes().split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if not lines or not lines[0].startswith(b'{"annotator": '):
        whole = lines
        if lines and not _CHECKSUM.search(lines[-1]):
            try:
                parse_event(parse_line(lines[-1]))
            except ValueError:
                whole = lines[:-1]
        if not whole:
            raise ValueError(
                f"{path}: expected answers, found no whole line: the file was cut off; restore it "
                f"from a copy, or remove it to begin anew"
            )
        _parsed(path, whole, 1)
        log.warning("%s: an earlier release's, without a count of its lines, so that answers "
                    "missing at its end cannot be noticed", path)  # fmt: skip
        return whole, 1
    head, *lines = lines
    try:
        said = parse_line(head)
        annotator, count, digest = said["annotator"], said["lines"], said["sha256"]
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path}: line 1: expected it as it was written: {error}") from error
    if not renamed and annotator != path.stem:
        raise ValueError(
            f"{path}: expected the answers of {path.stem}, found those of {annotator}; name the "
            f"file {annotator}.jsonl, or take them in under another name by "
            f"`merge-nli annotate --import` with --annotator"
        )
    if len(lines) != count or hashlib.sha256(b"\n".join(lines)).hexdigest() != digest:
        _parsed(path, lines, 2)  # parsing names the damaged line
        got = f"{len(lines):,}" if len(lines) != count else "others"
        raise ValueError(
            f"{path}: expected {count:,} lines after the first, as it says, got {got}: the file "
            f"was cut off or edited; restore it from a copy or, if you edited it, remove its first "
            f"line"
        )
    return lines, 2


def _parsed(path: Path, lines: Iterable[bytes], first: int) -> list[Event]:
    """Parse lines, numbered from `first`; skip blank lines."""
    events = []
    for number, line in enumerate(lines, start=first):
        try:
            if line.strip():
                events.append(parse_event(parse_line(line)))
        except ValueError as error:
            shown = line[:60].decode(errors="replace")
            where = "" if shown in str(error) else f", in {shown!r}"
            raise ValueError(f"{path}: line {number}: {error}{where}") from error
    return events


def read_standing(path: Path, *, renamed: bool = False) -> list[Judgement]:
    """Read the answers in an annotator's file that are not withdrawn, as from `replay`."""
    events = read_events(path, renamed=renamed)
    try:
        return replay(events)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
