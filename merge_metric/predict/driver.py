"""Asking a model about the problems of a dataset, now or in batches, and writing its answers."""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.answer_store import KEY, AnswerStore, ask
from merge_dataset.data_files import read_file
from merge_dataset.executors import Task
from merge_dataset.files import ROWS, atomic, require_new, writing_to
from merge_metric.frame.checks import ANSWER_TEXT, IDS, PROBABILITIES, REPEATS
from merge_metric.frame.noise import cost_of
from merge_metric.frame.plausibility import (
    AnswerTally,
    tell_of_answers,
    tell_of_model,
    tell_of_new_answers,
)
from merge_metric.frame.predictions import (
    MERGE_LABELS,
    described,
    read_metadata,
    rewrite_metadata,
    suffix_of,
    write_batches,
)
from merge_metric.frame.relations import DRAWS
from merge_metric.frame.texts import TEXT_DIGEST, combined, to_hex
from merge_metric.models.pair_model import Answers, Description, Model, require_probabilities
from merge_metric.models.remote import (
    RemoteModel,
    Taken,
    alternatives,
    beginning,
    require_as_asked,
    said_in,
    sentences,
)
from merge_metric.predict.problems import (
    asked_format,
    description_of,
    distinct_pairs,
    fingerprint_of,
    forget_read,
    format_of_problems,
)
from merge_metric.seed_variant_accuracy.options import NO_LABEL, Merging

log = logging.getLogger(__name__)

_ENOUGH: Final = 50
"""Answers after which the log says what all are going to cost."""
_BLOCK: Final = 256
"""Most questions that are dealt to a task together."""

WHOLE: Final = Task()
PREDICTIONS: Final = Path("predictions")
"""Folder of predictions files without a given name."""

MOST_REQUESTS: Final = 50_000
MOST_BYTES: Final = 190_000_000
"""Most bytes in a batch file; OpenAI accepts 200 MB."""
_DIGITS: Final = 16
"""Digits of the fingerprint with which ids of requests begin."""

_ROW: Final = pa.schema(
    [
        ("label", pa.int64()),
        ("text", pa.string()),
        ("probabilities", pa.list_(pa.float64())),
        ("numbers", pa.list_(pa.float64())),
        ("notes", pa.string()),
    ]
)
"""Columns of an answer in the store; `notes` of a batch's first row is JSON about the batch."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished predictions file, and the work done for it."""

    path: Path
    problems: int
    pairs: int
    """Number of distinct pairs among the problems."""
    inferred: int
    """Number of pairs that the model was asked about in this call."""
    seconds: float
    """Seconds for these pairs, without loading the model."""
    metadata: dict[str, Any]


def predict(
    model: Model,
    problems: pa.Table,
    out: Path,
    *,
    repeat_seeds: int = 0,
    progress: bool = True,
    extra: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Outcome:
    """Ask a model about each distinct pair of the problems, and write a predictions file.

    Answers are kept beside `out` as they come, so the same call goes on from where it was
    interrupted; for another model, other settings or problems they are kept apart. On a CPU the
    file is then the same to the last bit; elsewhere the labels are, and probabilities differ by
    rounding. A finished file is kept.

    Args:
        model: The model.
        problems: From `problems.read_problems`.
        out: The predictions file, .parquet, .jsonl or .jsonl.gz; written at the end,
            whole or not at all. Parquet has metadata under `predictions.METADATA_KEY`: what the
            model says of itself, and what is known of its answers.
        repeat_seeds: How often each seed is asked about again, to measure noise.
        progress: Show a bar on stderr.
        extra: More for the metadata, which does not determine the answers.
        overwrite: Replace other predictions.

    Raises:
        BlockingIOError: another process is at work on the same file.
        FileExistsError: there is a predictions file of another model or other problems.
        ValueError: no problems, a file name with another suffix, or the model gave
            something else than probabilities.
    """
    asking = Asking(model.describe(), problems, out, repeat_seeds=repeat_seeds)
    return asking.complete(
        partial(asking.ask, model, progress=progress), extra or {}, overwrite=overwrite
    )


class Asking:
    """The questions of a file of predictions to a model, the answers kept, and the file."""

    def __init__(
        self, known: Description, problems: pa.Table, out: Path, *, repeat_seeds: int = 0
    ) -> None:
        """Prepare to ask a model about problems, and about seeds again; nothing is written yet."""
        suffix_of(out)
        if not len(problems):
            raise ValueError("expected problems to ask the model about, got none")
        self.known, self.problems, self.out = known, problems, out
        self.facts = {**({"prompt": known.prompt.form()} if known.prompt else {}), **known.facts}
        """More for the metadata."""
        is_prompted, description = known.prompt is not None, description_of(problems)
        self.pairs, self._pair_of_row, digests = distinct_pairs(problems, fields=is_prompted)
        merged = {key: description[key] for key in description.keys() & {MERGE_LABELS}}
        self.identity = known.identity | merged
        """All that determines the answers, and how they are written."""
        self._is_seed = pc.equal(problems["variant_id"], problems["seed_id"]).to_numpy()
        self._again = np.empty(0, np.int64)
        """Pairs of seeds, if they are asked about again."""
        if repeat_seeds:
            self.identity["repeat_seeds"] = repeat_seeds
            self._again = np.unique(self._pair_of_row[self._is_seed])
        rounds = [np.arange(len(self.pairs)), *[self._again] * repeat_seeds]
        self.asked = np.concatenate(rounds)
        """The pair of each question: each pair once, then those of seeds as often as is wished."""
        self._repeat = np.repeat(range(len(rounds)), [*map(len, rounds)])
        self.fingerprint = fingerprint_of(self.identity, problems, digests)
        self._digests, self._texts = to_hex(digests), combined(digests)
        self.labels = asked_format(problems).labels
        """Labels that the model gives."""
        self._written = tuple(dict.fromkeys((*format_of_problems(problems).labels, *self.labels)))
        """Labels in the file: those of the problems, and others that are merged on reading."""
        self.store = AnswerStore(
            out.with_name(f".{out.name}.answers"),
            {"name": str(known.identity["name"]), "fingerprint": self.fingerprint},
            _ROW,
            redo="the same command again",
        )
        self.keys = np.arange(len(self.asked)).astype(KEY)
        """The key of each question in the store, which has no others."""

    # --- Questions ---

    def ask(
        self,
        model: Model,
        *,
        task: Task = WHOLE,
        progress: bool = True,
        prices: Sequence[float] | None = None,
    ) -> tuple[int, float]:
        """Ask about a task's missing pairs; return their number, and seconds.

        With `prices` of a million tokens of prompts and of answers, the log says after `_ENOUGH`
        answers what all are going to cost.
        """
        name, count, start = self.identity["name"], 0, time.perf_counter()
        notes = _known_of(self.store.read(self.keys[~self.store.missing(self.keys)]))
        notes, told, used = {"name": name, **notes}, set[str](), Counter[str]()
        if self.known.strict:
            require_as_asked(f"{self.store.folder}: ", notes, "; remove it to ask again")

        def tell_odd() -> None:
            for key, sentence in sentences(notes).items():
                if key not in told:
                    log.warning("%s: warning: %s", name, sentence)
                    told.add(key)

        def answer(questions: Sequence[int]) -> Iterator[tuple[list[int], pa.Table]]:
            nonlocal count
            repeats = self._repeat[np.array(questions)]
            for repeat in np.unique(repeats).tolist():
                mine = np.flatnonzero(repeats == repeat)
                pairs = self.pairs.at(self.asked[np.array(questions)[mine]])
                for answers in model.answer(pairs, repeat=repeat):
                    rows = self.rows_of(answers, pairs.at(answers.positions))
                    _merge(notes, answers.notes)
                    tell_odd()
                    used.update(answers.counts)
                    if prices and count < _ENOUGH <= count + len(rows):
                        self._tell_cost(used, (count + len(rows)) / len(self.asked), prices)
                    count += len(rows)
                    yield mine[answers.positions].tolist(), rows

        tell_odd()
        # Blocks of questions, so that a task has variants of the same seeds.
        size = max(1, min(_BLOCK, len(self.asked) // (4 * task.count)))
        starts = task.of(range(0, len(self.asked), size))
        blocks = [range(n, min(n + size, len(self.asked))) for n in starts]
        ask(
            self.store,
            blocks,
            # An answer to a prompt may have been paid for, or have taken long; others may wait for
            # half a second to be kept together.
            lambda questions: _joined(answer(questions), 0 if self.known.prompt else 0.5),
            key=self.keys.__getitem__,
            sizes=[*map(len, blocks)],
            what=str(name),
            unit="pair",
            at_once=len(self.asked),
            hidden=not progress,
        )
        return count, time.perf_counter() - start

    def _tell_cost(self, used: Mapping[str, int], share: float, prices: Sequence[float]) -> None:
        prompts, answers = (used[name] / share for name in ("prompt_tokens", "answer_tokens"))
        cost, limit = cost_of(prices, prompts, answers), "without a limit"
        if most := (self.known.answer_tokens or 0) * self.known.samples * len(self.asked):
            limit = f"at most {cost_of(prices, prompts, most):,.2f}"
        name = self.identity["name"]
        log.info("%s: by the first answers, all cost about %s, %s", name, f"{cost:,.2f}", limit)

    def rows_of(self, answers: Answers, pairs: Sequence[Any]) -> pa.Table:
        """Turn answers to the pairs into rows of the store; raise ValueError if they are none."""
        if answers.probabilities is not None:
            require_probabilities(answers, pairs, self.labels)
        size, numbers = len(answers.labels), answers.numbers
        table = np.array([*numbers.values()]).T if numbers else None
        lists = [
            [None] * size if values is None else values.tolist()
            for values in (answers.probabilities, table)
        ]
        counts, prompt = dict(answers.counts), self.known.prompt
        if prompt and prompt.template.shows_choices:
            codes = zip(pairs, answers.labels.tolist(), strict=True)
            taken = [prompt.template.order(*pair).index(n) for pair, n in codes if n != NO_LABEL]
            letters = enumerate(prompt.template.letters)
            counts |= {f"letter_{letter}": taken.count(n) for n, letter in letters}
        notes = json.dumps([list(numbers), counts, dict(answers.notes)])
        texts: Sequence[str | None] = answers.texts or [None] * size
        first = [notes, *[None] * (size - 1)]
        return pa.table([answers.labels, texts, *lists, first], schema=_ROW)

    # --- The file ---

    def complete(
        self, ask: Callable[[], tuple[int, float]], extra: Mapping[str, Any], *, overwrite: bool
    ) -> Outcome:
        """Write the file, unless it is finished; `ask` gets missing answers, if there are any."""
        out, inferred, seconds = self.out, 0, 0.0
        metadata = recorded = self.finished(overwrite=overwrite)
        draws = description_of(self.problems).get(DRAWS)
        if recorded:
            log.info("%s: complete already", out)
            if self.known.strict:
                require_as_asked(f"{out}: ", recorded, "; name another file, or move it away")
            tell_of_model(recorded["name"], recorded)
        # A finished file may lie where nothing can be written.
        with suppress(*[OSError] * bool(recorded)), writing_to(out):
            if not recorded:
                inferred, seconds = ask()
                metadata, batches = self._file_of(self.store.read(self.keys), extra)
                self.finished(overwrite=overwrite)  # another program may have written a file
                write_batches(out, batches, self._written, described(metadata))
            elif draws != (recorded.get("problems") or {}).get(DRAWS, draws):
                metadata = {**recorded, "problems": description_of(self.problems)}
                rewrite_metadata(out, metadata)
            # Also those of a command that was stopped at its very end.
            shutil.rmtree(self.store.folder, ignore_errors=True)
            with suppress(OSError):  # others' answers are there, or none
                self.store.folder.parent.rmdir()
        return Outcome(out, len(self.problems), len(self.pairs), inferred, seconds, metadata)

    def finished(self, *, overwrite: bool) -> dict[str, Any]:
        """Return the metadata of the file if it has these answers; nothing if it may be written.

        Raises FileExistsError if it has others.
        """
        recorded = read_metadata(self.out)
        if recorded.get("fingerprint") == self.fingerprint:
            return recorded
        if self.out.exists() and not overwrite:
            identity = {MERGE_LABELS: None, **self.identity}
            keys = [key for key in identity if recorded.get(key) != identity[key]]
            if recorded.get("texts") != self._texts:
                keys.insert(0, "the texts of the problems")
            raise other_predictions(self.out, recorded, keys or ["gold labels"])
        return {}

    def unanswered(self, *, overwrite: bool = True) -> NDArray[np.int64]:
        """Number the questions without an answer; none if the file is finished."""
        missing = self.store.missing(self.keys)
        return np.flatnonzero(missing & (not self.finished(overwrite=overwrite)))

    def _file_of(
        self, kept: pa.Table, extra: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Iterator[pa.Table]]:
        """Return the metadata and the rows of the file, and warn of odd answers."""
        places = [*map(self._written.index, self.labels)]
        merging = Merging.parse(self.identity.get(MERGE_LABELS, ()))
        labels = np.array([*places, NO_LABEL])[kept["label"].to_numpy()]
        probabilities, texts = _table_of(kept["probabilities"]), kept["text"]
        merged, codes = merging.of(self._written), merging.codes(self._written)
        gold, predicted = self.problems["label"].to_numpy(), labels[self._pair_of_row]
        tally = AnswerTally(
            merged, codes[gold].astype(np.int8), codes[predicted].astype(np.int8), self._is_seed
        )
        check = tally.check_order()
        metadata = {
            **self.identity,
            **extra,
            "problems": description_of(self.problems),
            "texts": self._texts,
            "rows": len(self.problems),
            "distinct_pairs": len(self.pairs),
            **self.facts,
            **_known_of(kept),
            "label_order_check": None if check is None else asdict(check),
            "fingerprint": self.fingerprint,
        }
        tell_of_new_answers(metadata["name"], metadata)
        tell_of_answers(metadata["name"], tally, metadata)

        def rows() -> Iterator[pa.Table]:
            again = labels[len(self.pairs) :].reshape(-1, max(1, len(self._again))).T
            for start in range(0, len(self.problems), ROWS):
                block = slice(start, start + ROWS)
                problems, pairs = self.problems.slice(start, ROWS), self._pair_of_row[block]
                columns: dict[str, Any] = {name: problems[name] for name in (*IDS, "label")}
                columns |= {"prediction": labels[pairs], TEXT_DIGEST: self._digests[block]}
                if probabilities is not None:
                    table = np.zeros((len(pairs), len(self._written)))
                    table[:, places] = probabilities[pairs]
                    flat = pa.FixedSizeListArray.from_arrays(table.ravel(), len(self._written))
                    columns[PROBABILITIES] = flat
                if not texts.null_count:
                    columns[ANSWER_TEXT] = texts.take(pa.array(pairs))
                if len(self._again):
                    lists: list[Any] = [None] * len(pairs)  # stays null for variants
                    for row in np.flatnonzero(self._is_seed[block]):
                        lists[row] = again[np.searchsorted(self._again, pairs[row])].tolist()
                    columns[REPEATS] = pa.array(lists, pa.list_(pa.int8()))
                yield pa.table(columns)
                forget_read()

        return metadata, rows()


# --- Batch files in OpenAI's format ---


def write_requests(
    model: RemoteModel, asking: Asking, path: Path, *, overwrite: bool = False
) -> dict[Path, int]:
    """Write unanswered requests, all or none, to `path`, `-2`, …; count those of each file."""
    questions = asking.unanswered(overwrite=overwrite)
    name = re.compile(rf"{re.escape(path.stem)}(-\d+)?{re.escape(path.suffix)}")
    older = [place for place in path.parent.glob("*") if name.fullmatch(place.name)]
    if older and len(questions):
        require_new(min(older, key=lambda at: (len(at.name), at.name)), overwrite=overwrite)
    made = dict[Path, int]()
    with ExitStack() as files:  # moves all files into place when all are written
        size, file, place = 0, None, path
        pairs = asking.pairs.at(asking.asked[questions])
        for question, pair in zip(questions.tolist(), pairs, strict=True):
            body = model.body(pair)
            for sample in range(asking.known.samples):
                request = {
                    "custom_id": f"{asking.fingerprint[:_DIGITS]}-{question}-{sample}",
                    "method": "POST",
                    "url": f"/v1/{model.path}",
                    "body": body,
                }
                line = (json.dumps(request, ensure_ascii=False) + "\n").encode()
                size += len(line)
                if file is None or size > MOST_BYTES or made[place] == MOST_REQUESTS:
                    if made:
                        place = path.with_name(f"{path.stem}-{len(made) + 1}{path.suffix}")
                    size, made[place] = len(line), 0
                    file = files.enter_context(files.enter_context(atomic(place)).open("wb"))
                file.write(line)
                made[place] += 1
    for leftover in {*older} - made.keys() if made else ():
        leftover.unlink()  # of a longer earlier batch: with it, questions would be asked twice
    return made


def take_results(model: RemoteModel, asking: Asking, paths: Sequence[Path]) -> tuple[int, float]:
    """Keep the answers of result files, of several to a request the first.

    Returns their number, and 0 seconds.
    """
    samples, expected = asking.known.samples, asking.fingerprint[:_DIGITS]
    extract = said_in if model.words else alternatives
    results, failed = dict[tuple[int, int], Any](), dict[tuple[int, int], str]()
    for row in (row for path in paths for row in read_file(path, f"{path}: line ")):
        if row.problem:
            raise row.error
        identity, response = str(row.columns.get("custom_id")), row.columns.get("response")
        numbers = re.fullmatch(rf"{expected}-(\d+)-(\d+)", identity, re.ASCII)
        question, sample = map(int, numbers.groups()) if numbers else (0, samples)
        if question >= len(asking.asked) or sample >= samples:
            raise ValueError(
                f"{row.where}: expected a result of this run, whose custom_id begins with "
                f"{expected}, got {identity[:80]!r}: give model, settings and dataset as with "
                "`batch_out`"
            )
        response = response if isinstance(response, dict) else {}
        reason, body = row.columns.get("error"), response.get("body")
        if (status := response.get("status_code", 200)) != 200:
            reason = reason or f"HTTP {status}: {body}"
        try:
            extract(body)
        except ValueError as error:
            reason = reason or error
        if reason:
            failed[question, sample] = beginning(f"{row.where}: {reason}")
        else:
            results.setdefault((question, sample), body)
    unanswered = asking.unanswered().tolist()
    taken = [n for n in unanswered if all((n, sample) in results for sample in range(samples))]
    pairs, given = list(asking.pairs.at(asking.asked[taken])), list[list[Taken]]()
    for question, pair in zip(taken, pairs, strict=True):
        body = model.body(pair)
        given.append([model.take(body, results[question, sample]) for sample in range(samples)])
    if taken:
        rows = asking.rows_of(model.read([*range(len(taken))], given, pairs), pairs)
        asking.store.keep(asking.keys[taken], rows)
    if missing := len(unanswered) - len(taken):
        reasons = [reason for request, reason in failed.items() if request not in results]
        raise ValueError(
            f"expected answers to {len(asking.asked):,} questions, {missing:,} are missing: "
            f"{len(reasons):,} requests failed{f', such as {reasons[0]!r}' if reasons else ''}; "
            "what was answered is kept: give further results with `batch_in`, write requests for "
            "the rest with `batch_out`, or ask the server without either"
        )
    return len(taken), 0.0


# --- Answers as they come ---


def _joined(
    batches: Iterator[tuple[list[int], pa.Table]], seconds: float
) -> Iterator[tuple[list[int], pa.Table]]:
    """Join batches that come within some seconds, and those before an error."""
    places, tables, since = list[int](), list[pa.Table](), time.perf_counter()
    try:
        for of_batch, rows in batches:
            places, tables = [*places, *of_batch], [*tables, rows]
            if (now := time.perf_counter()) - since >= seconds:
                ready = places, pa.concat_tables(tables)
                places, tables, since = [], [], now
                yield ready
    finally:
        if tables:
            yield places, pa.concat_tables(tables)


def _table_of(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Read lists of equal length as a table; None of one batch leaves none to all."""
    if not len(column) or column.null_count:
        return None
    return np.reshape(column.combine_chunks().flatten().to_numpy(), (len(column), -1))


def _known_of(rows: pa.Table) -> dict[str, Any]:
    """Join what the batches of rows say: counts are summed, lists merged, numbers averaged."""
    names, counts, notes = list[str](), Counter[str](), dict[str, Any]()
    for text in rows["notes"].drop_null().to_pylist():
        names, more_counts, more_notes = json.loads(text)
        counts.update(more_counts)
        _merge(notes, more_notes)
    numbers = _table_of(rows["numbers"])
    means = [float(column.mean()) for column in (() if numbers is None else numbers.T)]
    return {**counts, **notes, **dict(zip(names, means, strict=False))}


def _merge(notes: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add notes to others: lists are merged, of other values the first stays."""
    for name, note in more.items():
        if isinstance(note, list):
            notes[name] = sorted({*notes.get(name, ()), *note})
        else:
            notes.setdefault(name, note)


def other_predictions(
    out: Path, recorded: Mapping[str, Any], keys: Sequence[str]
) -> FileExistsError:
    """Make the error for a file of other predictions, whose metadata differ in the keys."""
    got = "a file in which no model is named"
    if recorded:
        got = (
            f"those of {recorded.get('name', 'a model')} for {recorded.get('rows', 'the')} "
            f"problems, which differ in {', '.join(keys).replace('_', ' ')}"
        )
    return FileExistsError(
        f"{out}: expected no predictions of another run, found {got}: name another file with "
        "`out`, or replace it with `overwrite`"
    )
