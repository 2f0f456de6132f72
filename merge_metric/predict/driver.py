"""Asking a model about the problems of a dataset, and writing a file of its answers."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.answer_store import KEY, AnswerStore, ask
from merge_dataset.executors import Task
from merge_dataset.files import (
    ROWS,
    RowGroupWriter,
    atomic,
    read_row_groups,
    read_schema,
    writing_to,
)
from merge_metric.frame.checks import (
    ANSWER_TEXT,
    IDS,
    PROBABILITIES,
    REPEATS,
    REQUIRED,
)
from merge_metric.frame.plausibility import (
    tally_of,
    tell_of_answers,
    tell_of_model,
    tell_of_new_answers,
)
from merge_metric.frame.predictions import (
    MERGE_LABELS,
    METADATA_KEY,
    SUFFIXES,
    labelled,
    read_metadata,
    suffix_of,
    with_metadata,
    write_batches,
)
from merge_metric.frame.relations import DRAWS
from merge_metric.frame.texts import TEXT_DIGEST, combined, to_hex
from merge_metric.models.pair_model import Answers, Description, Model, require_probabilities
from merge_metric.models.remote import require_as_asked, sentences
from merge_metric.predict.kept_answers import ROW, from_rows, merge_notes, to_rows
from merge_metric.predict.problems import (
    asked_format,
    description_of,
    distinct_pairs,
    fingerprint_of,
    forget_read,
    format_of_problems,
    merging_of,
    problem_digests,
)
from merge_metric.seed_variant_accuracy.options import NO_LABEL

log = logging.getLogger(__name__)

_SHOWN: Final = 4
_BLOCK: Final = 256
"""Most questions that are dealt to a task together."""

WHOLE: Final = Task()
PREDICTIONS: Final = Path("predictions")
"""Folder of predictions files without a given name."""


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
    """The questions of one predictions file to a model, and the answers kept so far."""

    def __init__(
        self, known: Description, problems: pa.Table, out: Path, *, repeat_seeds: int = 0
    ) -> None:
        """Find the distinct pairs of the problems, and the fingerprint of model and problems."""
        check_output(out)
        if not len(problems):
            raise ValueError("expected problems to ask the model about, got none")
        self.known, self.problems, self.out = known, problems, out
        self.facts = {"prompt": known.prompt.form()} if known.prompt else {}
        """More for the metadata."""
        self.facts |= known.facts
        self.labels = asked_format(problems).labels
        """Labels that the model gives."""
        own, self._merging = format_of_problems(problems).labels, merging_of(problems)
        self._written = tuple(dict.fromkeys((*own, *self.labels)))
        """Labels in the file: those of the problems, and others that are merged on reading."""
        self.identity = {**known.identity}
        """All that determines the answers, and how they are written."""
        if self._merging:
            self.identity[MERGE_LABELS] = str(self._merging)
        fields = known.prompt is not None
        self.pairs, self._pair_of_row = distinct_pairs(problems, fields=fields)
        self._rounds = [np.arange(len(self.pairs))]
        """Pairs to ask about: each distinct one, then those of seeds as often as is wished."""
        if repeat_seeds:
            self.identity["repeat_seeds"] = repeat_seeds
            is_seed = pc.equal(problems["variant_id"], problems["seed_id"]).to_numpy()
            self._rounds += [np.unique(self._pair_of_row[is_seed])] * repeat_seeds
        self.asked = np.concatenate(self._rounds)
        """The pair of each question."""
        self._digests = problem_digests(problems)
        self.fingerprint = fingerprint_of(self.identity, problems, self._digests)
        name = str(known.identity["name"])
        self.store = AnswerStore(
            out.with_name(f".{out.name}.answers"),
            {"name": name, "fingerprint": self.fingerprint},
            ROW,
            redo="the same command again",
        )
        self.keys = np.arange(len(self.asked)).astype(KEY)
        """The key of each question in the store, which has no others."""

    # --- Questions ---

    def ask(self, model: Model, *, task: Task = WHOLE, progress: bool = True) -> tuple[int, float]:
        """Ask about a task's missing pairs; return their number, and seconds."""
        kept = from_rows(self.store.read(self.keys[~self.store.missing(self.keys)]))
        notes, told = dict(kept.notes), set[str]()
        if self.known.strict:
            noted = {"name": self.identity["name"], **notes}
            require_as_asked(f"{self.store.folder}: ", noted, "; remove it to ask again")
        self._tell_odd(notes, told)
        count, start = 0, time.perf_counter()

        def answer(questions: Sequence[int]) -> Iterator[tuple[list[int], pa.Table]]:
            nonlocal count
            places = np.array(questions)
            ends = np.cumsum([len(pairs) for pairs in self._rounds])
            repeats = np.searchsorted(ends, places, side="right")
            for repeat in np.unique(repeats).tolist():
                mine = np.flatnonzero(repeats == repeat)
                pairs = self.pairs.at(self.asked[places[mine]])
                for answers in model.answer(pairs, repeat=repeat):
                    self.check(answers, pairs.at(answers.positions))
                    merge_notes(notes, answers.notes)
                    self._tell_odd(notes, told)
                    count += len(answers.positions)
                    yield mine[answers.positions].tolist(), to_rows(answers)

        # Blocks of questions, so that a task has variants of the same seeds.
        size = max(1, min(_BLOCK, len(self.asked) // (4 * task.count)))
        starts = task.of(range(0, len(self.asked), size))
        blocks = [range(n, min(n + size, len(self.asked))) for n in starts]
        ask(
            self.store,
            blocks,
            answer,
            key=self.keys.__getitem__,
            sizes=[*map(len, blocks)],
            what=str(self.identity["name"]),
            unit="pair",
            at_once=len(self.asked),
            hidden=not progress,
        )
        return count, time.perf_counter() - start

    def check(self, answers: Answers, pairs: Sequence[Any]) -> None:
        """Raise ValueError if what a model gave for the pairs is no answer."""
        if answers.probabilities is not None:
            require_probabilities(answers, pairs, self.labels)

    def _tell_odd(self, notes: Mapping[str, Any], told: set[str]) -> None:
        name = self.identity["name"]
        for key, sentence in sentences({"name": name, **notes}).items():
            if key not in told:
                log.warning("%s: warning: %s", name, sentence)
                told.add(key)

    # --- The file ---

    def complete(
        self,
        ask: Callable[[], tuple[int, float] | None],
        extra: Mapping[str, Any],
        *,
        overwrite: bool,
    ) -> Outcome:
        """Write the file, unless it is finished; `ask` gets missing answers, if there are any."""
        out, inferred, seconds = self.out, 0, 0.0
        if metadata := self.finished():
            log.info("%s: complete already", out)
            with suppress(OSError), writing_to(out):
                self._remove_answers()  # of a command that was stopped at its very end
                metadata = self._renewed(metadata)
            if self.known.strict:
                require_as_asked(f"{out}: ", metadata, "; name another file, or move it away")
            tell_of_model(metadata["name"], metadata)
        else:
            with writing_to(out):
                self.require_replaceable(overwrite=overwrite)
                inferred, seconds = ask() or (0, 0.0)
                answers = from_rows(self.store.read(self.keys))
                metadata = self._metadata(answers, extra)
                # Another program may have written the file meanwhile.
                self.require_replaceable(overwrite=overwrite)
                self._write(answers, metadata)
                self._remove_answers()
        return Outcome(out, len(self.problems), len(self.pairs), inferred, seconds, metadata)

    def finished(self) -> dict[str, Any] | None:
        """Return the metadata of the predictions file, if it has these answers."""
        metadata = read_metadata(self.out)
        return metadata if metadata.get("fingerprint") == self.fingerprint else None

    def require_replaceable(self, *, overwrite: bool) -> None:
        """Raise FileExistsError if the file has other predictions."""
        identity = {MERGE_LABELS: None, **self.identity, "fingerprint": self.fingerprint}
        require_replaceable(self.out, identity, self.problems, self._digests, overwrite=overwrite)

    def _remove_answers(self) -> None:
        shutil.rmtree(self.store.folder, ignore_errors=True)
        with suppress(OSError):  # others' answers are there, or none
            self.store.folder.parent.rmdir()

    def _renewed(self, metadata: dict[str, Any]) -> dict[str, Any]:
        problems = description_of(self.problems)
        recorded = metadata.get("problems") or {}
        if DRAWS not in recorded or recorded[DRAWS] == problems.get(DRAWS):
            return metadata
        metadata = metadata | {"problems": problems}
        schema = read_schema(self.out)
        renewed = json.dumps(metadata, ensure_ascii=False).encode()
        given = {**schema.metadata, METADATA_KEY: renewed}
        with (
            atomic(self.out) as temporary,
            RowGroupWriter(temporary, schema, given) as writer,
        ):
            for rows in read_row_groups(self.out, schema.names):
                writer.write(rows)
        return metadata

    def _metadata(self, answers: Answers, extra: Mapping[str, Any]) -> dict[str, Any]:
        written, merging = self._written, self._merging
        tally = tally_of(self._rows(answers, REQUIRED), merging.of(written), merging.codes(written))
        check = tally.check_order()
        metadata = {
            **self.identity,
            **extra,
            "problems": description_of(self.problems),
            "texts": combined(self._digests),
            "rows": len(self.problems),
            "distinct_pairs": len(self.pairs),
            **self.facts,
            **answers.counts,
            **answers.notes,
            **{name: float(values.mean()) for name, values in answers.numbers.items()},
            "label_order_check": None if check is None else asdict(check),
            "fingerprint": self.fingerprint,
        }
        tell_of_new_answers(metadata["name"], metadata)
        tell_of_answers(metadata["name"], tally, metadata)
        if "letter_mass" in metadata:
            from merge_metric.models.language_model import warn_of_few_letters

            warn_of_few_letters(metadata["name"], metadata["letter_mass"])
        return metadata

    def _write(self, answers: Answers, metadata: Mapping[str, Any]) -> None:
        names = [*REQUIRED, TEXT_DIGEST]
        if answers.probabilities is not None:
            names.append(PROBABILITIES)
        if answers.texts is not None:
            names.append(ANSWER_TEXT)
        if len(self._rounds) > 1:
            names.append(REPEATS)
        few = with_metadata(next(self._rows(answers, names)), metadata)
        schema = labelled(few, self._written).schema
        write_batches(self.out, schema, len(self.problems), partial(self._rows, answers))

    def _rows(self, answers: Answers, names: Sequence[str]) -> Iterator[pa.Table]:
        places = [*map(self._written.index, self.labels)]
        labels = np.array([*places, NO_LABEL])[answers.labels]
        ends = np.cumsum([len(pairs) for pairs in self._rounds])[:-1]
        again = [of_round.tolist() for of_round in np.split(labels, ends)[1:]]
        repeats = dict(zip(self._rounds[-1].tolist(), zip(*again, strict=True), strict=False))
        for start in range(0, len(self.problems), ROWS):
            rows, pairs = slice(start, start + ROWS), self._pair_of_row[start : start + ROWS]
            problems = self.problems.slice(start, ROWS)
            columns: dict[str, Any] = {name: problems[name] for name in (*IDS, "label")}
            columns["prediction"] = labels[pairs]
            if TEXT_DIGEST in names:
                columns[TEXT_DIGEST] = to_hex(self._digests[rows])
            if PROBABILITIES in names and answers.probabilities is not None:
                table = np.zeros((len(pairs), len(self._written)))
                table[:, places] = answers.probabilities[pairs]
                flat = pa.FixedSizeListArray.from_arrays(table.ravel(), len(self._written))
                columns[PROBABILITIES] = flat
            if ANSWER_TEXT in names and answers.texts is not None:
                columns[ANSWER_TEXT] = [answers.texts[pair] for pair in pairs]
            if REPEATS in names:  # null for variants
                is_seed = pc.equal(problems["variant_id"], problems["seed_id"]).to_pylist()
                of_rows = zip(pairs.tolist(), is_seed, strict=True)
                lists = [repeats[pair] if seed else None for pair, seed in of_rows]
                columns[REPEATS] = pa.array(lists, pa.list_(pa.int8()))
            yield pa.table(columns).select(names)
            forget_read()


def check_output(out: Path | None, *, is_folder: bool = False) -> None:
    """Raise ValueError or OSError if predictions cannot be written to a file or folder."""
    if out is None or is_folder:
        folder = out or PREDICTIONS
    else:
        suffix_of(out)
        if out.is_dir():
            raise IsADirectoryError(
                f"{out}: expected a predictions file or nothing, found a folder"
            )
        folder = out.parent
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not place.is_dir():
        advice = ": --preset writes several, so --out is a folder"
        advice = advice if place.name.endswith(SUFFIXES) else ""
        raise NotADirectoryError(
            f"{place}: expected a folder for predictions files, found a file{advice}"
        )
    if not os.access(place, os.W_OK):
        raise PermissionError(
            f"{place}: expected a folder to write to, got one without permission; name another "
            f"place, or allow it there, then give the same command again"
        )


def require_replaceable(
    out: Path,
    description: Mapping[str, Any],
    problems: pa.Table,
    digests: NDArray[np.uint64] | None = None,
    *,
    overwrite: bool,
) -> None:
    """Raise FileExistsError where a file's metadata differ in texts or in the description.

    `description` is a model's identity with the `fingerprint` or, before loading, a part.
    """
    if overwrite or not out.exists():
        return
    recorded = read_metadata(out)
    existing, differ = "a file in which no model is named", ""
    if recorded:
        texts = combined(problem_digests(problems) if digests is None else digests)
        existing = _frame_of(recorded, recorded.get("problems", {}), recorded.get("rows"))
        keys = [key for key in description if recorded.get(key) != description[key]]
        if recorded.get("texts") != texts:
            keys.insert(0, "the texts of the problems")
        if not keys:
            return
        if "fingerprint" in keys:  # digests all: only worth telling where all else agrees
            keys.remove("fingerprint")
            keys = keys or ["gold labels"]
        shown = ", ".join(key.replace("_", " ") for key in keys[:_SHOWN])
        differ = f"; they differ in {shown}" + (", …" if len(keys) > _SHOWN else "")
    coming = _frame_of(description, description_of(problems), len(problems))
    raise FileExistsError(
        f"{out}: expected no predictions of another run, found {existing}; in their place would "
        f"come {coming}{differ}: name another file with `out`, or replace it with `overwrite`"
    )


def _frame_of(model: Mapping[str, Any], problems: Mapping[str, Any], rows: Any) -> str:
    """Name a run: "those of bert for 1,049 problems of snli"."""
    configs = "+".join(problems.get("configs") or []) or problems.get("dataset") or "a dataset"
    count = f"{rows:,}" if isinstance(rows, int) else "the"
    return f"those of {model.get('name', 'a model')} for {count} problems of {configs}"
