"""Sources of problems: files, Hub datasets and the bundled demo, read as Seeds (D15).

Names of columns are in `merge_dataset.known_sources`, spellings of labels here. Files are read
with the standard library, which knows line numbers, and pyarrow; Hub datasets with `datasets`.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from generation.config import ProblemSettings, bundled_path
from generation.records import Seed
from merge_dataset.files import open_parquet
from merge_dataset.known_sources import COLUMN_NAMES, SOURCES, HubSplit, source_of
from merge_dataset.schema import DEMO_SOURCE, LABELS, NLI

Row = tuple[str, Mapping[str, Any]]
"""A row's location for messages, such as "test.jsonl:12", and its columns."""

_UNLABELLED: Final = dict.fromkeys(("-", "-1", ""), "")
_NLI_LABELS: Final = {
    **{label: label for label in LABELS},
    **{label[0]: label for label in LABELS},
    **{str(number): label for number, label in enumerate(LABELS)},
    **dict.fromkeys(("none", "hidden"), ""),
}
"""Spellings of the NLI labels in data sets, in lower case; "" means unlabelled."""

_MOST_REPORTED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """Summary of a source: counts, unlabelled rows, origin and digest."""

    count: int
    """Number of labelled problems."""
    unlabelled: list[str]
    """Ids of the rows dropped for having no gold label."""
    description: str
    """Origin: a file name, or a Hub id with split and revision."""
    sha256: str
    """Digest of the problems, by which two runs can tell whether they read the same ones."""


def load_problems(config: ProblemSettings, add: Callable[[Seed], object]) -> Problems:
    """Read the problems that `config` names.

    A file (`data`) takes precedence over a Hub dataset (`dataset`); without either, the source
    must be a known one. Rows without an id get their number; repeated ids get `~2`, `~3`, … in
    the order of the rows, counted before any row is dropped, so an id never depends on others.

    Args:
        config: Settings that name the source and its columns.
        add: Called with each labelled problem, in the order of the source; a source may be
            larger than memory.

    Raises:
        ValueError: there is no such source, columns are missing, or rows are malformed (with
            file, line and reason).
        FileNotFoundError: the file of `data` does not exist.
    """
    rows, description = _open(config)
    first, rows = _peek(rows, description)
    columns = _find_columns(config, first, description)
    spellings = _spellings(config)
    count, digest = 0, hashlib.sha256()
    unlabelled: list[str] = []
    problems: list[str] = []
    unique = _UniqueIds()
    for number, (where, row) in enumerate(rows):
        if count == config.limit:
            break
        row_id = row.get(columns["id"] or "")
        seed_id = f"{config.source}:{unique(str(number if row_id in (None, '') else row_id))}"
        try:
            seed = _seed(config, columns, spellings, seed_id, row)
        except ValueError as error:
            problems.append(f"{where}: {error}")
            continue
        if seed is None:
            unlabelled.append(seed_id)
        else:
            count += 1
            digest.update(json.dumps((seed_id, *seed.texts, seed.label)).encode())
            add(seed)
    if problems:
        raise ValueError(_report(problems))
    if not count:
        raise ValueError(f"{description}: expected labelled problems, found none")
    return Problems(
        count=count, unlabelled=unlabelled, description=description, sha256=digest.hexdigest()
    )


def require_labels(config: ProblemSettings) -> None:
    """Require that labels are named if problems are not NLI problems.

    Raises:
        ValueError: they are not; the message lists the labels in the data.
    """
    if config.labels or config.fields == NLI.fields:
        return
    rows, description = _open(config)
    first, rows = _peek(rows, description)
    column = _find_columns(config, first, description)["label"] or ""
    found = Counter(str(row.get(column, "")) for _, row in rows)
    shown = [f"{label!r} ({times:,})" for label, times in found.most_common(_MOST_REPORTED)]
    more = f" and {len(found) - len(shown):,} more" if len(found) > len(shown) else ""
    raise ValueError(
        f"labels: expected those of problems with the fields {', '.join(config.fields)}, got "
        f"none; {description} has in the column {column!r} {', '.join(shown)}{more}; name them "
        f"with labels, and other spellings of them with label_map"
    )


def _open(config: ProblemSettings) -> tuple[Iterator[Row], str]:
    if config.data is not None:
        path = Path(config.data)
        if not path.is_file():
            raise FileNotFoundError(f"data: expected a file, found none at {path}")
        return _read_file(path), path.name
    if config.source == DEMO_SOURCE:
        path = bundled_path("demo/problems.jsonl")
        return _read_file(path), "the problems bundled with merge-nli"
    if config.dataset is None and source_of(config.source).hub is None:
        known = [*(name for name, source in SOURCES.items() if source.hub), DEMO_SOURCE]
        raise ValueError(
            f"source {config.source!r} is not one of {known}: name its problems "
            "with data (a file) or dataset (a Hub id)"
        )
    return _read_hub(config)


def _read_file(path: Path) -> Iterator[Row]:
    try:
        yield from _reader(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: expected UTF-8, got other bytes: {error}") from error


def _reader(path: Path) -> Iterator[Row]:
    match path.suffix.lower():
        case ".jsonl" | ".json":
            return _read_jsonl(path)
        case ".csv":
            return _read_csv(path, ",")
        case ".tsv" | ".txt":
            return _read_csv(path, "\t")
        case ".parquet":
            return _read_parquet(path)
    raise ValueError(f"data: expected .jsonl, .csv, .tsv or .parquet, got {path.name!r}")


def _read_jsonl(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{path.name}:{number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{where}: expected a JSON object, got {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{where}: expected a JSON object, got {type(row).__name__}")
            yield where, row


def _read_csv(path: Path, delimiter: str) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        # Tab-separated releases hold bare quotation marks, comma-separated ones quote.
        quoting: Any = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        reader = csv.DictReader(lines, delimiter=delimiter, quoting=quoting)
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise ValueError(
                    f"{path.name}:{reader.line_num}: expected CSV, got an error: {error}"
                ) from error
            where = f"{path.name}:{reader.line_num}"
            if None in row or None in row.values():
                got = sum(value is not None for key, value in row.items() if key is not None)
                got += len(row.get(None) or ())
                raise ValueError(
                    f"{where}: expected {len(reader.fieldnames or ())} columns, got {got}"
                )
            yield where, row


def _read_parquet(path: Path) -> Iterator[Row]:
    number = 0
    for batch in open_parquet(path).iter_batches():
        for row in batch.to_pylist():
            number += 1
            yield f"{path.name}: row {number}", row


def _read_hub(config: ProblemSettings) -> tuple[Iterator[Row], str]:
    import datasets

    own = HubSplit(config.dataset, None, "test") if config.dataset else None
    hub = own or source_of(config.source).hub
    assert hub is not None
    name, subset, split = hub
    subset, split = config.dataset_config or subset, config.split or split
    try:
        table = datasets.load_dataset(name, subset, split=split, revision=config.revision)
    except Exception as error:
        raise ValueError(
            f"could not load split {split!r} of {name!r} from the Hub ({error}); without a "
            "connection pass the official file with data="
        ) from error
    labels = {
        column: feature
        for column, feature in table.features.items()
        if isinstance(feature, datasets.ClassLabel)
    }

    def rows() -> Iterator[Row]:
        for number, row in enumerate(table):
            named = {c: f.int2str(row[c]) if (row[c] or 0) >= 0 else "" for c, f in labels.items()
                     if row[c] is not None}  # fmt: skip
            yield f"{name} [{split}] row {number}", {**row, **named}

    revision = f"@{config.revision}" if config.revision else ""
    return rows(), f"{name}{revision} [{'/'.join(filter(None, (subset, split)))}]"


def _peek(rows: Iterator[Row], description: str) -> tuple[Mapping[str, Any], Iterator[Row]]:
    """Return the first row's columns, and an iterator over all rows."""
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{description}: expected problems, found no rows")
    return first[1], chain([first], rows)


def _find_columns(
    config: ProblemSettings, row: Mapping[str, Any], description: str
) -> dict[str, str | None]:
    """Map each part to its column: the one that is configured, else the first usual name found."""
    found: dict[str, str | None] = {}
    is_nli = config.fields == NLI.fields
    for part in (*config.fields, "label", "id"):
        setting = "field_columns" if part in config.fields and not is_nli else f"{part}_column"
        told = (config.field_columns or {}).get(part) or getattr(config, f"{part}_column", None)
        usual = (part,) if setting == "field_columns" else COLUMN_NAMES[part]
        candidates = (told,) if told else usual
        found[part] = next((name for name in candidates if name in row), None)
        if found[part] is None and (told or part != "id"):
            raise ValueError(
                f"{description}: expected a {part} column {' or '.join(candidates)}, found "
                f"{sorted(map(str, row))}; name it with {setting}"
            )
    return found


def _seed(
    config: ProblemSettings,
    columns: Mapping[str, str | None],
    spellings: Mapping[str, str],
    seed_id: str,
    row: Mapping[str, Any],
) -> Seed | None:
    """Convert a row to a seed, or None if it has no gold label.

    Raises:
        ValueError: the row is malformed; the message says how.
    """
    label_column = columns["label"] or ""
    if label_column not in row:
        raise ValueError(f"expected a column {label_column!r}, found {sorted(map(str, row))}")
    label = _label(row[label_column], config.label_map, spellings)
    if not label:
        return None
    texts = []
    for field in config.fields:
        text = row.get(columns[field] or "")
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"expected text in column {columns[field]!r}, got {text!r}")
        texts.append(text)
    named = [_label(vote, config.label_map, spellings) for vote in _votes(row)]
    return Seed(
        seed_id=seed_id,
        source=config.source,
        texts=tuple(texts),
        label=label,
        annotator_labels=tuple(vote for vote in named if vote),
    )


def _votes(row: Mapping[str, Any]) -> list[Any]:
    """Return the annotators' labels: a list in .jsonl releases, label1 … label5 in .txt ones."""
    votes = row.get("annotator_labels") or [row.get(f"label{n}") for n in range(1, 6)]
    votes = votes.split() if isinstance(votes, str) else votes
    return [vote for vote in votes if vote not in (None, "")]


def _spellings(config: ProblemSettings) -> dict[str, str]:
    """Map spellings of labels, besides those of `label_map`, to labels; "" means unlabelled.

    For NLI these are the spellings of the usual data sets. Other labels must appear by name: the
    meaning of a number is not guessed.
    """
    labels = config.problem_format.labels
    usual = _NLI_LABELS if labels == LABELS else {}
    named = {label.lower(): label for label in labels} | {label: label for label in labels}
    return {**_UNLABELLED, **usual, **named}


def _label(value: Any, label_map: Mapping[str, str], spellings: Mapping[str, str]) -> str:
    """Return the label that a value stands for, or "" if it is unlabelled.

    Raises:
        ValueError: neither the map nor the usual spellings know the value.
    """
    text = "" if value is None else str(value).strip()
    if text in label_map:
        return label_map[text]
    for spelling in (text, text.lower()):
        if spelling in spellings:
            return spellings[spelling]
    known = [label for label in dict.fromkeys(spellings.values()) if label]
    raise ValueError(f"expected a label of {known}, got {text!r}; say what it means with label_map")


class _UniqueIds:
    """Rename repeated ids: the second `x` becomes `x~2`, the third `x~3`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}
        """Repeated id → the last number given to it."""

    def __call__(self, row_id: str) -> str:
        unique, number = row_id, self._last.get(row_id, 1)
        while unique in self._taken:
            number += 1
            unique = f"{row_id}~{number}"
            self._last[row_id] = number
        self._taken.add(unique)
        return unique


def _report(problems: list[str]) -> str:
    lines = problems[:_MOST_REPORTED]
    if more := len(problems) - len(lines):
        lines.append(f"… and {more} more")
    return f"{len(problems)} malformed row(s):\n  " + "\n  ".join(lines)
