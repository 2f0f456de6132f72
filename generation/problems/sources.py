"""Sources of problems: files, data sets and the bundled demo, read as Seeds (D15)."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import logging
import os
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

from generation.config import ProblemSettings, bundled_path
from generation.problems.hub_datasets import Opened, open_dataset, open_folder
from generation.records import Seed
from merge_dataset.data_files import Row, is_data_file, read_file
from merge_dataset.files import partial_path, write_json
from merge_dataset.known_sources import (
    COLUMN_NAMES,
    LABEL_SPELLINGS,
    SOURCES,
    UNLABELLED,
    HubSplit,
    label_text,
    source_of,
)
from merge_dataset.schema import DEMO_SOURCE, LABELS, NLI, VARIANT_CLASSES

log = logging.getLogger(__name__)

LONGEST_TEXT: Final = 100_000
"""Maximum of characters, several times whole documents; the tagger takes memory and time."""
_MOST_REPORTED: Final = 10
_SHOWN: Final = 60
"""Maximum of characters of a value in a message."""
_SKIPPING: Final = "`skip_bad_rows` leaves out rows that cannot be used"
_OTHER_LABELS: Final = f"`label_map` says what other labels mean; {_SKIPPING}"
_TWO_CLASSES: Final = (
    "data of two classes keep them with `labels`, such as entailment,not_entailment; "
    f"{_OTHER_LABELS}"
)
_FEWEST: Final = 10
"""Fewest problems of which two labels alone are put down to data of two classes."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

PAIR_IDS = "problems/snli_pair_ids.tsv.gz"
_VARIANT_ID: Final = re.compile(r"(?P<seed>.+)/(?:" + "|".join(VARIANT_CLASSES) + r")/.+")
"""Pattern of ids that `merge_dataset.schema.variant_id` may return."""
_STATEMENTS: Final = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA cache_size = -65536",  # KiB
    "CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID",
    "BEGIN",
)
_DIGITS = 12
"""Hexadecimal digits of a digest; 20,000 problems have a collision with probability 1e-6."""


Skipped = dict[str, str]
"""A row that cannot be used and was left out: `seed_id`, `row`, its place, and `problem`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """Summary of a source: counts, rows left out, origin and digest."""

    count: int
    """Number of labelled problems."""
    unlabelled: list[str]
    """Ids of the rows that were dropped because they have no gold label."""
    skipped: list[Skipped]
    """Rows that cannot be used, if the settings say to leave them out."""
    description: str
    """Origin: a file name, or a data set with commit, configuration and split."""
    commit: str | None = None
    """Commit of a data set on the Hub."""
    sha256: str
    """Digest of the problems, which shows whether two runs read the same problems."""

    @property
    def source_data(self) -> dict[str, Any]:
        """Origin and digest for a manifest."""
        commit = {} if self.commit is None else {"commit": self.commit}
        return {"description": self.description, **commit, "sha256": self.sha256}

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of rows for a manifest."""
        unlabelled, skipped = len(self.unlabelled), len(self.skipped)
        return {
            "read": self.count + unlabelled + skipped,
            "unlabelled": unlabelled,
            **({"skipped": skipped} if skipped else {}),
            "kept": self.count,
        }

    def list_skipped(self, path: Path) -> None:
        """Write the rows that were left out, as JSON, or no file if there are none."""
        if not self.skipped:
            path.unlink(missing_ok=True)
            return
        write_json(path, self.skipped)
        log.warning("all rows that are left out are listed in %s", path)


def load_problems(
    config: ProblemSettings, add: Callable[[Seed], object], *, scratch: Path | None = None
) -> Problems:
    """Read the problems that `config` names; `add` takes each labelled one, in the source's order.

    Rows without an id get SNLI's pairID or their number; repeated ids get `~2`, `~3`, …, before any
    row is dropped. Ids are kept in memory or, for millions of rows, in a temporary file named
    after `scratch`.
    """
    opened, first, rows = _open_rows(config)
    columns = _find_columns(config, first, opened.description)
    snli = SOURCES["snli"].hub
    is_snli = config.source == "snli" or (snli is not None and config.dataset == snli.dataset)
    without_ids = is_snli and columns["id"] is None and config.fields == NLI.fields
    ids = PairIds() if without_ids else None
    of_labels, digest = Counter[str](), hashlib.sha256()
    unlabelled: list[str] = []
    bad: list[Skipped] = []
    remedies: dict[str, None] = {}
    with _as_os_error(scratch), UniqueIds(scratch) as unique:
        reader = _Reader(config, columns, ids=ids, unique=unique)
        for number, row in enumerate(rows):
            if of_labels.total() == config.limit:
                break
            seed_id, seed, problem, remedy = reader.read(row, number)
            if problem:
                bad.append({"seed_id": seed_id, "row": row.where, "problem": problem})
                remedies[remedy] = None
            elif seed is None:
                unlabelled.append(seed_id)
            else:
                of_labels[seed.label] += 1
                digest.update(json.dumps((seed_id, *seed.texts, seed.label)).encode())
                add(seed)
        if bad and not config.skip_bad_rows:
            raise ValueError(_report(bad, remedies))
        dropped = chain(unlabelled, (row["seed_id"] for row in bad))
        if clash := unique.of_variant(name.partition(":")[2] for name in dropped):
            own, other, where = clash
            raise ValueError(
                f"{where}: expected an id that no variant of another problem can have, got {own!r} "
                f"beside {other!r}; name problems otherwise, or by another column: `id_column`"
            )
    if not (count := of_labels.total()):
        skipped = f" and {len(bad):,} rows that cannot be used" if bad else ""
        raise ValueError(
            f"{opened.description}: expected labelled problems, found none; {len(unlabelled):,} "
            f"without a label{skipped}"
        )
    _say(config, opened, first, reader, bad, of_labels)
    return Problems(
        count=count,
        unlabelled=unlabelled,
        skipped=bad,
        description=opened.description,
        commit=opened.commit,
        sha256=digest.hexdigest(),
    )


def require_labels(config: ProblemSettings) -> None:
    """Raise ValueError if problems are not NLI problems and the settings do not name labels."""
    if config.labels or config.fields == NLI.fields:
        return
    opened, first, rows = _open_rows(config)
    column = _find_columns(config, first, opened.description)["label"] or ""
    counts = Counter(str(row.columns.get(column, "")) for row in rows if not row.problem)
    shown = [f"{label!r} ({times:,})" for label, times in counts.most_common(_MOST_REPORTED)]
    more = f" and {len(counts) - len(shown):,} more" if len(counts) > len(shown) else ""
    raise ValueError(
        f"`labels`: expected those of problems with the fields {', '.join(config.fields)}, got "
        f"none; {opened.description} has in the column {column!r} {', '.join(shown)}{more}; name "
        f"them with `labels`, and other spellings of them with `label_map`"
    )


def require_source(config: ProblemSettings) -> None:
    """Check the first rows of a file, before slower steps: models and connections."""
    place = config.data or config.dataset
    if place is None:
        if config.source != DEMO_SOURCE and source_of(config.source).hub is None:
            _open(config)
    elif (config.data is not None or is_data_file(place)) and not Path(place).is_dir():
        opened, first, _ = _open_rows(config)
        _find_columns(config, first, opened.description)


def _open(config: ProblemSettings) -> Opened:
    place = config.data or config.dataset
    if place is not None:
        path = Path(place)
        files = [path] if path.is_file() else []
        if not files and any(mark in path.name for mark in "*?["):  # such as web-*.jsonl
            files = sorted(p for p in path.parent.glob(path.name) if p.is_file())
        if files:
            for name in ("split", "dataset_config", "revision"):
                if value := getattr(config, name):
                    raise ValueError(f"`{name}`: expected none with the file {path}, got {value!r}")
            if files == [path]:
                return Opened(read_file(path), path.name)
            log.info("%s: %d files, from %s to %s", place, len(files), files[0], files[-1])
            rows = chain.from_iterable(map(read_file, files))
            return Opened(rows, f"{path.name} ({len(files):,} files)")
        if path.is_dir():
            if config.revision:
                raise ValueError(
                    f"`revision`: expected none with the folder {path}, got {config.revision!r}"
                )
            return open_folder(path, config=config.dataset_config, split=config.split)
        if config.data is not None or is_data_file(place):
            name = "data" if config.data is not None else "dataset"
            raise FileNotFoundError(f"`{name}`: expected a file, found none at {path}")
        hub: HubSplit | None = HubSplit(place, None, "test")
    elif config.source == DEMO_SOURCE:
        bundled = bundled_path("demo/problems.jsonl")
        return Opened(read_file(bundled), "the problems bundled with merge-nli")
    else:
        hub = source_of(config.source).hub
    if hub is None:
        known = [*(name for name, source in SOURCES.items() if source.hub), DEMO_SOURCE]
        raise ValueError(
            f"`source`: expected problems for {config.source!r}, got none; name them with `data` "
            f"(a file or folder) or `dataset` (on the Hub), or take a source that needs no more: "
            f"{', '.join(known)}"
        )
    return open_dataset(
        hub.dataset,
        config=config.dataset_config or hub.config,
        split=config.split or hub.split,
        revision=config.revision,
    )


def _open_rows(config: ProblemSettings) -> tuple[Opened, Mapping[str, Any], Iterator[Row]]:
    opened = _open(config)
    before: list[Row] = []
    columns: dict[str, Any] = {}
    for row in opened.rows:
        before.append(row)
        columns = {**row.columns, **columns}
        if len(before) >= _MOST_REPORTED and (columns or not config.skip_bad_rows):
            break
    if columns:
        return opened, columns, chain(before, opened.rows)
    if not before:
        raise ValueError(f"{opened.description}: expected problems, found no rows")
    bad = [{"row": row.where, "problem": row.problem} for row in before]
    raise ValueError(_report(bad, dict.fromkeys(row.remedy or _SKIPPING for row in before)))


def _find_columns(
    config: ProblemSettings, row: Mapping[str, Any], description: str
) -> dict[str, str | None]:
    columns: dict[str, str | None] = {}
    is_nli = config.fields == NLI.fields
    for part in (*config.fields, "label", "id"):
        setting = "field_columns" if part in config.fields and not is_nli else f"{part}_column"
        told = (config.field_columns or {}).get(part) or getattr(config, f"{part}_column", None)
        usual = (part,) if setting == "field_columns" else COLUMN_NAMES[part]
        candidates = (told,) if told else usual
        columns[part] = next((name for name in candidates if name in row), None)
        if columns[part] is None and (told or part != "id"):
            raise ValueError(
                f"{description}: expected for the {part} a column {' or '.join(candidates)}, found "
                f"{_listed(row)}; name it with `{setting}`"
            )
    return columns


class _UnknownLabelError(ValueError):
    """A label that is neither in the settings nor among the usual spellings."""


@dataclass(slots=True)
class _Reader:
    """Converter of rows to seeds."""

    config: ProblemSettings
    columns: Mapping[str, str | None]
    """Part of a problem → its column."""
    ids: PairIds | None
    """SNLI's ids, if the rows have none."""
    unique: UniqueIds
    spellings: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Collect the spellings of labels; "" means unlabelled."""
        labels = self.config.problem_format.labels
        usual = LABEL_SPELLINGS if labels == LABELS else {}
        named = {label.lower(): label for label in labels} | {label: label for label in labels}
        self.spellings = {**dict.fromkeys(UNLABELLED, ""), **usual, **named}

    def read(self, row: Row, number: int) -> tuple[str, Seed | None, str, str]:
        """Return a row's id, its seed or None, the problem with the row or "", and the remedy."""
        values, problem, remedy = row.columns, row.problem, row.remedy or _SKIPPING
        row_id = values.get(self.columns["id"] or "")
        has_id = row_id not in (None, "")
        label, texts, votes = "", tuple[str, ...](), tuple[str, ...]()
        try:
            if not problem:
                label_column = self.columns["label"] or ""
                if label_column not in values:
                    raise ValueError(f"expected a column {label_column!r}, found {_listed(values)}")
                label = self._label(values[label_column])
            if label:
                columns = [self.columns[name] for name in self.config.fields]
                texts = tuple(_require_text(c, values.get(c or "")) for c in columns)
                votes = self._votes(values)
                if has_id:
                    # The text of a list or the like is not a useful id.
                    is_plain = not isinstance(row_id, list | dict | bool | bytes)
                    _require_text(self.columns["id"], str(row_id) if is_plain else row_id)
        except ValueError as error:
            problem = str(error)
            if isinstance(error, _UnknownLabelError):
                is_nli = self.config.problem_format.labels == LABELS
                is_two = is_nli and str(values.get(label_column)).strip().lower().startswith("no")
                remedy = row.remedy or (_TWO_CLASSES if is_two else _OTHER_LABELS)
        if not has_id and self.ids is not None and texts:
            row_id = self.ids(texts, label)
            has_id = row_id is not None
        name = _SURROGATE.sub("\ufffd", str(row_id if has_id else number))
        source = self.config.source
        seed_id = f"{source}:{self.unique(name, row.where)}"
        if problem or not label:
            return seed_id, None, problem, remedy
        seed = Seed(
            seed_id=seed_id, source=source, texts=texts, label=label, annotator_labels=votes
        )
        return seed_id, seed, "", ""

    def _votes(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the annotators' labels: a list in .jsonl files, label1 … label5 in .txt ones."""
        given = values.get("annotator_labels") or [values.get(f"label{n}") for n in range(1, 6)]
        given = given.split() if isinstance(given, str) else given
        if not isinstance(given, list):
            raise ValueError(f"expected a list in column 'annotator_labels', got {_shown(given)}")
        named = (self._label(vote) for vote in given if vote not in (None, ""))
        return tuple(filter(None, named))

    def _label(self, value: Any) -> str:
        text = "" if value is None else str(value).strip()
        number = label_text(value)
        for spelling in (text, number):
            if spelling in self.config.label_map:
                return self.config.label_map[spelling]
        for spelling in (text, text.lower(), number):
            if spelling in self.spellings:
                return self.spellings[spelling]
        known = [label for label in dict.fromkeys(self.spellings.values()) if label]
        raise _UnknownLabelError(f"expected a label out of {', '.join(known)}, got {_shown(text)}")


def _require_text(column: str | None, text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"expected text in column {column!r}, got {_shown(text)}")
    if half := _SURROGATE.search(text):
        raise ValueError(
            f"expected text in column {column!r}, got half of a character, "
            f"\\u{ord(half.group()):x}, after {text[: half.start()][-20:]!r}"
        )
    if len(text) > LONGEST_TEXT:
        raise ValueError(
            f"expected text of at most {LONGEST_TEXT:,} characters in column {column!r}, got "
            f"{len(text):,}; shorten it"
        )
    return text


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, names))) or "none"


def _say(
    config: ProblemSettings,
    opened: Opened,
    first: Mapping[str, Any],
    reader: _Reader,
    skipped: Sequence[Skipped],
    of_labels: Counter[str],
) -> None:
    count = of_labels.total()
    is_nli = config.problem_format.labels == LABELS
    if is_nli and count >= _FEWEST and len(of_labels) == 2 and LABELS[0] in of_labels:
        log.warning(
            "%s: of %s problems none is labelled %s; where the data have two classes, keep them "
            "with `labels`, such as entailment,not_entailment (of numbers with `label_map` "
            "0=entailment,1=not_entailment), and merge the answers of NLI models: merge-nli "
            "predict --merge-labels contradiction,neutral=not_entailment",
            opened.description, f"{count:,}", *{*LABELS} - {*of_labels},
        )  # fmt: skip
    if skipped:
        listed = "\n  ".join(_reported(skipped))
        log.warning("%s: rows that cannot be used and are left out: %s\n  %s", opened.description,
                    f"{len(skipped):,}", listed)  # fmt: skip
    if reader.ids is not None and reader.ids.found < count:
        log.warning(
            "%s: %s of %s problems are none of SNLI's test and development set; their ids are the "
            "numbers of their rows", opened.description, f"{count - reader.ids.found:,}",
            f"{count:,}",
        )  # fmt: skip
    official = source_of(config.source).official_file
    if official and not any(name in first for name in ("annotator_labels", "label1")):
        log.warning(
            "%s: no annotators' votes are here; the official file, %s, has them",
            opened.description, official,
        )  # fmt: skip


def _report(bad: Sequence[Skipped], remedies: Iterable[str]) -> str:
    advice = [remedy for remedy in remedies if remedy != _SKIPPING] or [_SKIPPING]
    lines = _reported(bad)
    if len(bad) == 1:
        return "; ".join([*lines, *advice])
    return "\n  ".join([f"{len(bad):,} rows cannot be used:", *lines, *advice])


def _reported(bad: Sequence[Skipped]) -> list[str]:
    lines = [f"{row['row']}: {row['problem']}" for row in bad[:_MOST_REPORTED]]
    more = len(bad) - len(lines)
    return [*lines, *([f"… and {more:,} more"] if more else [])]


@contextmanager
def _as_os_error(path: Path | None) -> Iterator[None]:
    """Turn the database's errors about its file, such as a full disk, into those of files."""
    try:
        yield
    except sqlite3.OperationalError as error:
        number = _ERRORS.get(error.sqlite_errorcode & 0xFF, errno.EIO)
        raise OSError(number, os.strerror(number), str(path)) from error


_ERRORS: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EROFS,
}


class UniqueIds:
    """Renamer of repeated ids to `x~2`, `x~3`, …; ids are kept in memory or a temporary file."""

    def __init__(self, scratch: Path | None = None) -> None:
        """Start without ids; they are kept in memory or, beyond a cache, in a temporary file."""
        self._file = None if scratch is None else partial_path(scratch.absolute())
        # Without locks, which some file systems of clusters do not have.
        place = "file::memory:" if self._file is None else f"{self._file.as_uri()}?nolock=1"
        self._taken = sqlite3.connect(place, uri=True, isolation_level=None)
        for line in _STATEMENTS:
            self._taken.execute(line)
        self._last: dict[str, int] = {}
        """Repeated id → the last number given to it."""
        self._like_variants: dict[str, tuple[str, str]] = {}
        """Id in the form of a variant's → id of the problem that would have it, and the row."""

    def __call__(self, row_id: str, where: str = "") -> str:
        """Return the id itself or, if it is taken, the id with a number."""
        unique, number = row_id, self._last.get(row_id, 1)
        while not self._taken.execute("INSERT OR IGNORE INTO ids VALUES (?)", (unique,)).rowcount:
            number += 1
            unique = f"{row_id}~{number}"
            self._last[row_id] = number
        if match := _VARIANT_ID.fullmatch(unique):
            self._like_variants[unique] = match["seed"], where
        return unique

    def of_variant(self, dropped: Iterable[str] = ()) -> tuple[str, str, str] | None:
        """Find an id that another problem's variant could have; return both ids, and the row."""
        without = {*dropped} if self._like_variants else set()
        for own, (seed, where) in self._like_variants.items():
            query = self._taken.execute("SELECT 1 FROM ids WHERE id = ?", (seed,))
            if query.fetchone() and not without & {own, seed}:
                return own, seed, where
        return None

    def __enter__(self) -> Self:
        """Return the renamer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the file, if there is one."""
        self._taken.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)


class PairIds:
    """SNLI's pairIDs by texts and label; equal problems get theirs in alphabetical order."""

    def __init__(self) -> None:
        """Read the pairIDs from this package."""
        self._ids: defaultdict[str, list[str]] = defaultdict(list)
        with gzip.open(bundled_path(PAIR_IDS), "rt", encoding="utf-8") as lines:
            for line in lines:
                pair_id, digest = line.split()
                self._ids[digest].append(pair_id)
        self.found = 0
        """Number of problems that were looked up and found."""

    def __call__(self, texts: Sequence[str], label: str) -> str | None:
        """Return the pairID of a problem, or None if it is not in SNLI."""
        known = self._ids.get(problem_digest(texts, label))
        if not known:
            return None
        self.found += 1
        if len(known) > 1:
            return known.pop(0)
        return known[0]


def problem_digest(texts: Sequence[str], label: str) -> str:
    """Compute a digest of texts and label; spaces, in which copies of SNLI differ, do not count.

    >>> problem_digest(["A boy  runs. ", "He runs."], "entailment")
    'e9714bc41482'
    """
    words = [" ".join(text.split()) for text in texts]
    return hashlib.sha256(json.dumps([*words, label]).encode()).hexdigest()[:_DIGITS]
