"""Sources of problems: files, data sets and the bundled demo, read as Seeds (D15)."""

import gzip
import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from generation.config import ProblemSettings, bundled_path
from generation.problems.hub_datasets import Opened, open_dataset, open_folder
from generation.records import Seed
from merge_dataset.data_files import SUFFIXES, Row, read_file
from merge_dataset.files import write_json
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
_TWO_CLASSES: Final = "data of two classes keep them with `labels` entailment,not_entailment"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

PAIR_IDS = "problems/snli_pair_ids.tsv.gz"
_VARIANT_ID: Final = re.compile(r"(?P<seed>.+)/(?:" + "|".join(VARIANT_CLASSES) + r")/.+")
"""Pattern of ids that `merge_dataset.schema.variant_id` may return."""


class ProblemReader:
    """Reader of the problems that settings name, whose first rows have the columns wanted.

    Rows without an id get SNLI's pairID or their number; repeated ids get `~2`, `~3`, …, before any
    row is dropped.
    """

    def __init__(self, config: ProblemSettings) -> None:
        """Open the problems.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: nothing can be read, or a column is missing.
        """
        opened = _open(config)
        self._config, self._commit, self.description = config, opened.commit, opened.description
        self.skipped: list[dict[str, str]] = []
        """Rows that cannot be used and are left out: `seed_id`, `row`, `problem`."""
        before: list[Row] = []
        first: dict[str, Any] = {}
        for row in opened.rows:
            before.append(row)
            first = {**row.columns, **first}
            if len(before) >= _MOST_REPORTED and (first or not config.skip_bad_rows):
                break
        if not first:
            bad = [{"row": row.where, "problem": row.problem} for row in before]
            nothing = f"{self.description}: expected problems, found no rows"
            raise ValueError(_report(bad, [row.remedy for row in before]) if bad else nothing)
        self._rows = chain(before, opened.rows)
        self._has_votes = any(name in first for name in ("annotator_labels", "label1"))
        is_nli = config.fields == NLI.fields
        self._columns: dict[str, str] = {}
        """Part of a problem → its column; "" if there is none of ids."""
        for part in (*config.fields, "label", "id"):
            by_field = part in config.fields and not is_nli
            named = (config.field_columns or {}).get(part)
            named = named or getattr(config, f"{part}_column", None)
            candidates = (named,) if named else (part,) if by_field else COLUMN_NAMES[part]
            self._columns[part] = next((name for name in candidates if name in first), "")
            if not self._columns[part] and (named or part != "id"):
                raise ValueError(
                    f"{opened.description}: expected for the {part} a column "
                    f"{' or '.join(candidates)}, found {_listed(first)}; name it with "
                    f"`{'field_columns' if by_field else f'{part}_column'}`"
                )
        self.format = config.problem_format
        names = self.format.labels
        usual_spellings = LABEL_SPELLINGS if names == LABELS else {}
        self._spellings = {**dict.fromkeys(UNLABELLED, ""), **usual_spellings,
                           **{name.lower(): name for name in names},
                           **{name: name for name in names}}  # fmt: skip
        """Spelling → label; "" means unlabelled."""
        snli = SOURCES["snli"].hub
        is_snli = config.source == "snli" or (snli is not None and config.dataset == snli.dataset)
        without_ids = is_snli and not self._columns["id"] and is_nli
        self._pair_ids: dict[str, list[str]] | None = None
        """SNLI's pairIDs by digest, where needed; equal problems have several, in order."""
        if without_ids:
            self._pair_ids = {}
            with gzip.open(bundled_path(PAIR_IDS), "rt", encoding="utf-8") as lines:
                for pair_id, of_problem in map(str.split, lines):
                    self._pair_ids.setdefault(of_problem, []).append(pair_id)
        self._of_snli = 0
        """Number of problems with a pairID."""

    def read(
        self, add: Callable[[Seed], object], skipped_rows: Path | None = None
    ) -> dict[str, Any]:
        """Read the problems once; `add` takes each labelled one, in the source's order.

        Rows that cannot be used are listed in the file `skipped_rows`, which is otherwise removed.
        Returns the parts of a run's record: `source_data`, with the origin and a digest of the
        problems, and `problems`, with counts of rows and the ids of the `unlabelled` ones.
        """
        config, bad, unlabelled, remedies = self._config, self.skipped, list[str](), list[str]()
        of_labels, digest = Counter[str](), hashlib.sha256()
        unique = UniqueIds()
        for number, row in enumerate(self._rows):
            if of_labels.total() == config.limit:
                break
            label, texts, votes = "", tuple[str, ...](), tuple[str, ...]()
            problem, advice = row.problem, [row.remedy]
            try:
                label, texts, votes = ("", (), ()) if problem else self._parts(row)
            except ValueError as error:
                problem, *advice = error.args
            row_id = row.columns.get(self._columns["id"])
            if self._pair_ids is not None and texts:  # the last of equal ids is for all
                same = self._pair_ids.get(problem_digest(texts, label), [])
                self._of_snli += bool(same)
                row_id = same.pop(0) if len(same) > 1 else next(iter(same), None)
            name = str(number if row_id in (None, "") else row_id)
            name = unique(_SURROGATE.sub("\ufffd", name), row.where)
            seed_id = f"{config.source}:{name}"
            if problem:
                bad.append({"seed_id": seed_id, "row": row.where, "problem": problem})
                remedies += advice
            elif not label:
                unlabelled.append(seed_id)
            else:
                of_labels[label] += 1
                digest.update(json.dumps((seed_id, *texts, label)).encode())
                add(Seed(seed_id=seed_id, source=config.source, texts=texts, label=label,
                         annotator_labels=votes))  # fmt: skip
        if bad and not config.skip_bad_rows:
            raise ValueError(_report(bad, remedies))
        dropped = chain(unlabelled, (row["seed_id"] for row in bad))
        if clash := unique.of_variant(name.partition(":")[2] for name in dropped):
            own, other, where = clash
            raise ValueError(
                f"{where}: expected an id that no variant of another problem can have, got "
                f"{own!r} beside {other!r}; name another column with `id_column`"
            )
        if not (count := of_labels.total()):
            raise ValueError(
                f"{self.description}: expected labelled problems, found none; {len(unlabelled):,} "
                f"without a label, {len(bad):,} that cannot be used"
            )
        self._tell(of_labels, len(unlabelled), skipped_rows)
        commit = {} if self._commit is None else {"commit": self._commit}
        origin = {"description": self.description, **commit, "sha256": digest.hexdigest()}
        counts = {"read": count + len(unlabelled) + len(bad), "unlabelled": unlabelled}
        skipped = {"skipped": len(bad)} if bad else {}
        return {"source_data": origin, "problems": {**counts, **skipped, "kept": count}}

    def _parts(self, row: Row) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Return a row's label, texts and votes; raise ValueError of what is wrong, and remedy."""
        values, columns = row.columns, self._columns
        if columns["label"] not in values:
            raise ValueError(f"expected a column {columns['label']!r}, found {_listed(values)}")
        if not (label := self._label(values[columns["label"]])):
            return "", (), ()
        names = [columns[field] for field in self._config.fields]
        texts = tuple(_require_text(name, values.get(name)) for name in names)
        # The annotators' labels: a list in .jsonl files, label1 … label5 in .txt ones.
        votes = values.get("annotator_labels") or [values.get(f"label{n}") for n in range(1, 6)]
        votes = votes.split() if isinstance(votes, str) else votes
        named = (self._label(vote) for vote in votes if vote not in (None, ""))
        voted = tuple(filter(None, named))
        if (row_id := values.get(columns["id"])) not in (None, ""):
            # The text of a list or the like is not a useful id.
            is_plain = not isinstance(row_id, list | dict | bool | bytes)
            _require_text(columns["id"], str(row_id) if is_plain else row_id)
        return label, texts, voted

    def _label(self, value: Any) -> str:
        """Return the label that a value spells, or ""; raise ValueError of problem and remedy."""
        text = "" if value is None else str(value).strip()
        number = label_text(value)
        tried = [(self._config.label_map, name) for name in (text, number)]
        tried += [(self._spellings, name) for name in (text, text.lower(), number)]
        for labels, name in tried:
            if name in labels:
                return labels[name]
        known = ", ".join(label for label in dict.fromkeys(self._spellings.values()) if label)
        is_two = self.format.labels == LABELS and text.lower().startswith("no")
        raise ValueError(
            f"expected a label out of {known}, got {_shown(text)}",
            *([_TWO_CLASSES] if is_two else []),
            f"`label_map` says what other labels mean; {_SKIPPING}",
        )

    def _tell(self, of_labels: Counter[str], unlabelled: int, skipped_rows: Path | None) -> None:
        """Log what was read and what may be unexpected; list the rows that are left out."""
        surprises = []
        count, is_nli = of_labels.total(), self.format.labels == LABELS
        # In fewer than ten problems two labels alone say little.
        if is_nli and count >= 10 and len(of_labels) == 2 and LABELS[0] in of_labels:
            (missing,) = {*LABELS} - {*of_labels}
            surprises.append(
                f"of {count:,} problems none is labelled {missing}; {_TWO_CLASSES} (numbers with "
                "`label_map`), and merge the answers of NLI models: merge-nli predict "
                "--merge-labels contradiction,neutral=not_entailment"
            )
        if self.skipped:
            listed = "\n  ".join([f"{len(self.skipped):,}", *_reported(self.skipped)])
            surprises.append(f"rows that cannot be used and are left out: {listed}")
        if self._pair_ids is not None and (of_others := count - self._of_snli) > 0:
            surprises.append(
                f"{of_others:,} of {count:,} problems are none of SNLI's test and development set; "
                "their ids are the numbers of their rows"
            )
        if (official := source_of(self._config.source).official_file) and not self._has_votes:
            surprises.append(
                f"no annotators' votes are here; the official file, {official}, has them"
            )
        for surprise in surprises:
            log.warning("%s: %s", self.description, surprise)
        log.info("%s: %d problems, %d without a label", self.description, count, unlabelled)
        if skipped_rows and self.skipped:
            write_json(skipped_rows, self.skipped)
            log.warning("all rows that are left out are listed in %s", skipped_rows)
        elif skipped_rows:
            skipped_rows.unlink(missing_ok=True)


def _open(config: ProblemSettings) -> Opened:
    place, hub = config.data or config.dataset, source_of(config.source).hub
    if place is not None:
        path = Path(place)
        files = [path] if path.is_file() else []
        if not files and any(mark in path.name for mark in "*?["):  # such as web-*.jsonl
            files = sorted(p for p in path.parent.glob(path.name) if p.is_file())
        is_folder = not files and path.is_dir()
        is_named = Path(place.lower().removesuffix(".gz")).suffix in SUFFIXES
        if not files and not is_folder and (config.data is not None or is_named):
            files = [path]  # reading says that there is none
        for name in ("split", "dataset_config", "revision"):
            value = getattr(config, name)
            if value and (files or (is_folder and name == "revision")):
                raise ValueError(f"`{name}`: expected it with a data set, got {value!r} of {path}")
        if files:
            several = f" ({len(files):,} files)" if files != [path] else ""
            rows = chain.from_iterable(map(read_file, files))
            return Opened(rows, f"{path.name}{several}")
        if is_folder:
            return open_folder(path, config=config.dataset_config, split=config.split)
        hub = HubSplit(place, None, "test")
    elif config.source == DEMO_SOURCE:
        bundled = bundled_path("demo/problems.jsonl")
        return Opened(read_file(bundled), "the problems bundled with merge-nli")
    if hub is None:
        known = [*(name for name, source in SOURCES.items() if source.hub), DEMO_SOURCE]
        raise ValueError(
            f"`source`: expected problems for {config.source!r}, got none; name them with `data` "
            f"or `dataset` (on the Hub), or take a source that needs no more: {', '.join(known)}"
        )
    return open_dataset(
        hub.dataset,
        config=config.dataset_config or hub.config,
        split=config.split or hub.split,
        revision=config.revision,
    )


def _require_text(column: str | None, value: Any) -> str:
    text = value if isinstance(value, str) and value.strip() else ""
    got = "" if text else _shown(value)
    if half := _SURROGATE.search(text):
        got = f"half of a character, \\u{ord(half.group()):x}, after "
        got += repr(text[: half.start()][-20:])
    elif len(text) > LONGEST_TEXT:
        got = f"{len(text):,} characters, more than {LONGEST_TEXT:,}; shorten it"
    if got:
        raise ValueError(f"expected text in column {column!r}, got {got}")
    return text


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, names))) or "none"


def _report(bad: Sequence[Mapping[str, str]], remedies: Iterable[str]) -> str:
    lines = [*_reported(bad), *(dict.fromkeys(filter(None, remedies)) or [_SKIPPING])]
    if len(bad) == 1:
        return "; ".join(lines)
    return "\n  ".join([f"{len(bad):,} rows cannot be used:", *lines])


def _reported(bad: Sequence[Mapping[str, str]]) -> list[str]:
    lines = [f"{row['row']}: {row['problem']}" for row in bad[:_MOST_REPORTED]]
    more = len(bad) - len(lines)
    return [*lines, *([f"… and {more:,} more"] if more else [])]


class UniqueIds:
    """Renamer of repeated ids to `x~2`, `x~3` and so on."""

    def __init__(self) -> None:
        """Start without ids."""
        self._taken: dict[str, int] = {}
        """Id → the last number given to it."""
        self._like_variants: dict[str, tuple[str, str]] = {}
        """Id in the form of a variant's → id of the problem that would have it, and the row."""

    def __call__(self, row_id: str, where: str = "") -> str:
        """Return the id itself or, if it is taken, the id with a number."""
        unique = row_id
        while unique in self._taken:
            self._taken[row_id] += 1
            unique = f"{row_id}~{self._taken[row_id]}"
        self._taken[unique] = 1
        if match := _VARIANT_ID.fullmatch(unique):
            self._like_variants[unique] = match["seed"], where
        return unique

    def of_variant(self, dropped: Iterable[str] = ()) -> tuple[str, str, str] | None:
        """Find an id that another problem's variant could have; return both ids, and the row."""
        without = {*dropped} if self._like_variants else set()
        for own, (seed, where) in self._like_variants.items():
            if seed in self._taken and not without & {own, seed}:
                return own, seed, where
        return None


def problem_digest(texts: Sequence[str], label: str) -> str:
    """Compute a digest of texts and label; spaces, in which copies of SNLI differ, do not count.

    >>> problem_digest(["A boy  runs. ", "He runs."], "entailment")
    'e9714bc41482'
    """
    words = [" ".join(text.split()) for text in texts]
    # Of 12 digits: 20,000 problems have a collision with probability 1e-6.
    return hashlib.sha256(json.dumps([*words, label]).encode()).hexdigest()[:12]
