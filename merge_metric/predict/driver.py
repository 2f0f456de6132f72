"""Runs of a model: ask about each distinct pair of the problems, write a predictions file."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tqdm import tqdm

from merge_dataset.files import ROWS, read_schema, writing_to
from merge_metric.frame.column_checks import (
    ANSWER_TEXT,
    ANSWERS,
    FURTHER,
    IDS,
    PROBABILITIES,
    REPEATS,
    REQUIRED,
    check_column,
    require_distinct,
    row_number,
)
from merge_metric.frame.plausibility import (
    AnswerTally,
    tell_of_answers,
    tell_of_model,
    tell_of_new_answers,
)
from merge_metric.frame.prediction_columns import (
    MERGE_LABELS,
    SUFFIXES,
    labelled,
    open_predictions,
    suffix_of,
)
from merge_metric.frame.predictions import read_metadata, with_metadata, write_batches
from merge_metric.frame.relations import DRAWS
from merge_metric.frame.texts import TEXT_DIGEST, combined, to_hex
from merge_metric.models.odd_answers import require_as_asked, sentences, warn_of_unknown
from merge_metric.models.pair_model import (
    WHOLE,
    Answers,
    Description,
    Model,
    Share,
    require_probabilities,
)
from merge_metric.predict.journal import Journal, open_journal, remove_journals
from merge_metric.predict.problems import (
    asked_format,
    description_of,
    distinct_pairs,
    fingerprint_of,
    first_rows,
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

    Answers go to a journal beside `out` as they come, so the same call goes on from where
    it was interrupted. Model, settings and problems are part of the journal's name: a
    run with others starts afresh and leaves it alone. A finished file is kept.

    Args:
        model: The model.
        problems: From `problems.read_problems`.
        out: The predictions file, .parquet, .jsonl or .jsonl.gz; written at the end,
            whole or not at all. Parquet has metadata under `predictions.METADATA_KEY`: what the
            model says of itself, and what is known of the run.
        repeat_seeds: How often each seed is asked about again, to measure noise.
        progress: Show a bar on stderr.
        extra: More for the metadata, which does not determine the answers.
        overwrite: Replace a predictions file of another run.

    Raises:
        BlockingIOError: another process is at work on the same file.
        FileExistsError: there is a predictions file of another run.
        ValueError: no problems, a file name with another suffix, or the model gave
            something else than probabilities.
    """
    run = PredictRun(model.describe(), problems, out, model=model, repeat_seeds=repeat_seeds)
    name = run.identity["name"] if progress else None
    ask = partial(run.ask, share=WHOLE, name=name)
    return run.complete(ask, extra or {}, overwrite=overwrite)


def answer_share(
    model: Model,
    problems: pa.Table,
    out: Path,
    share: Share,
    *,
    repeat_seeds: int = 0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Ask a model about a share of the pairs; return a JSON-able record for `write_shares`."""
    run = PredictRun(model.describe(), problems, out, model=model, repeat_seeds=repeat_seeds)
    inferred, seconds = 0, 0.0
    if not run.finished():
        run.require_replaceable(overwrite=overwrite)
        with open_journal(run.journal, len(run.asked), len(run.labels), share=share) as journal:
            inferred, seconds = run.ask(journal, share, None)
    return {
        "out": str(out),
        "identity": run.identity,
        "facts": run.facts,
        "inferred": inferred,
        "seconds": seconds,
    }


def write_shares(
    record: Mapping[str, Any],
    problems: pa.Table,
    out: Path,
    *,
    extra: Mapping[str, Any],
    overwrite: bool = False,
) -> Outcome:
    """Write the predictions file of shares that have all finished; repeat the tasks' warnings."""
    known = Description(identity=record["identity"], facts=record["facts"])
    run = PredictRun(known, problems, out, repeat_seeds=known.identity.get("repeat_seeds", 0))

    def look(journal: Journal) -> tuple[int, float]:
        if missing := int(journal.unanswered.sum()):
            raise ValueError(
                f"expected answers to all pairs, {missing:,} are missing: run the same command "
                "again"
            )
        warn_of_unknown(run.identity["name"], journal.notes.get("unknown_tokens", {}))
        return record["inferred"], record["seconds"]

    done = run.complete(look, extra, overwrite=overwrite)
    return replace(done, inferred=record["inferred"], seconds=record["seconds"])


class PredictRun:
    """Problems, the predictions file, and the model or, without one, its description."""

    def __init__(
        self,
        known: Description,
        problems: pa.Table,
        out: Path,
        *,
        model: Model | None = None,
        repeat_seeds: int = 0,
    ) -> None:
        """Find the distinct pairs of the problems, and the run's fingerprint."""
        check_output(out)
        if not len(problems):
            raise ValueError("expected problems to ask the model about, got none")
        try:
            _checked(problems)
            if len(np.unique(first_rows(problems, ["variant_id"]))) < len(problems):
                require_distinct(problems["variant_id"], row_number)
        except ValueError as error:
            raise ValueError(f"problems: {error}") from error
        self.model, self.known = model, known
        """The model that is asked; None where shares of the run have the answers."""
        self.problems, self.out = problems, out
        self.labels = asked_format(problems).labels
        """Labels that the model gives."""
        own, self.merging = format_of_problems(problems).labels, merging_of(problems)
        self.written = tuple(dict.fromkeys((*own, *self.labels)))
        """Labels in the file: those of the problems, and others that are merged on reading."""
        self.identity = {**known.identity}
        """All that determines the answers, and how they are written."""
        self.facts = {"prompt": known.prompt.form()} if known.prompt else {}
        self.facts |= known.facts
        if self.merging:
            self.identity[MERGE_LABELS] = str(self.merging)
        fields = known.prompt is not None
        self.pairs, self.pair_of_row = distinct_pairs(problems, fields=fields)
        self.asked = np.arange(len(self.pairs))
        """Pairs in the order of asking: each distinct pair, then repeated seeds."""
        self.rounds = [self.asked]
        if repeat_seeds:
            self.identity["repeat_seeds"] = repeat_seeds
            is_seed = pc.equal(problems["variant_id"], problems["seed_id"]).to_numpy()
            self.rounds += [np.unique(self.pair_of_row[is_seed])] * repeat_seeds
            self.asked = np.concatenate(self.rounds)
        self.digests = problem_digests(problems)
        self.fingerprint = fingerprint_of(self.identity, problems, self.digests)
        self.journal = out.with_name(f".{out.name}.{self.fingerprint[:16]}.answers")
        """Path of the journal of answers so far; shares have their own journals beside it."""

    def complete(
        self,
        ask: Callable[[Journal], tuple[int, float]],
        extra: Mapping[str, Any],
        *,
        overwrite: bool,
    ) -> Outcome:
        """Get the missing answers and write the file, unless it is finished."""
        out, inferred, seconds = self.out, 0, 0.0
        if metadata := self.finished():
            log.info("%s: complete already", out)
            with suppress(OSError), writing_to(out):
                # Journals and locks can remain if a command was stopped at its very end.
                remove_journals(self.journal)
                metadata = self.renewed(metadata)
            # Warn of suspicious answers, as when the file was written.
            if self.known.strict:
                require_as_asked(f"{out}: ", metadata, "; name another file, or move it away")
            written = open_predictions(out)
            tally = AnswerTally(written.labels)
            for rows in written.tables():
                tally.add(rows)
            tell_of_model(metadata["name"], metadata)
            tell_of_answers(metadata["name"], tally, metadata)
        else:
            with writing_to(out):
                self.require_replaceable(overwrite=overwrite)
                with open_journal(self.journal, len(self.asked), len(self.labels)) as journal:
                    inferred, seconds = ask(journal)
                    metadata = self.metadata(journal, extra)
                    # Another program may have written the file meanwhile.
                    self.require_replaceable(overwrite=overwrite)
                    self.write(journal, metadata)
        return Outcome(out, len(self.problems), len(self.pairs), inferred, seconds, metadata)

    def finished(self) -> dict[str, Any] | None:
        """Return the metadata of the predictions file, if it exists and is of this run."""
        there = read_metadata(self.out)
        return there if there.get("fingerprint") == self.fingerprint else None

    def renewed(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Record the dataset's current draw in the finished file; return the metadata."""
        problems = description_of(self.problems)
        recorded = metadata.get("problems") or {}
        if DRAWS not in recorded or recorded[DRAWS] == problems.get(DRAWS):
            return metadata
        metadata = metadata | {"problems": problems}
        further = [n for n in FURTHER if n in read_schema(self.out).names]
        more = pq.ParquetFile(self.out).read(further)

        def batches(names: Sequence[str]) -> Iterator[pa.Table]:
            done = 0
            for rows in open_predictions(self.out).unmerged():
                for name in further:
                    rows = rows.append_column(name, more[name].slice(done, len(rows)))
                done += len(rows)
                yield rows.select([*(names or rows.column_names)])

        few = with_metadata(next(batches(())), metadata)
        write_batches(self.out, labelled(few, self.written).schema, len(self.problems), batches)
        return metadata

    def require_replaceable(self, *, overwrite: bool) -> None:
        """Raise FileExistsError if the file has predictions of another run."""
        identity = {MERGE_LABELS: None, **self.identity, "fingerprint": self.fingerprint}
        require_replaceable(self.out, identity, self.problems, self.digests, overwrite=overwrite)

    def ask(self, journal: Journal, share: Share, name: str | None) -> tuple[int, float]:
        """Ask about a share's missing pairs; return number and seconds; show a bar if named."""
        assert self.model is not None
        if self.known.strict:
            noted = {"name": self.identity["name"], **journal.notes}
            require_as_asked(f"{self.journal}: ", noted, "; remove it to ask again")
        told = set[str]()
        self._tell_odd(journal, told)
        start, size = time.perf_counter(), len(self.asked)
        missing = np.flatnonzero(journal.unanswered)
        done = size - len(missing)
        if len(missing) and done:
            log.info("going on after %s of %s pairs", f"{done:,}", f"{size:,}")
        # Blocks of questions, so that a task has variants of the same seeds.
        block = max(1, min(_BLOCK, size // (4 * share.count)))
        mine = missing[missing // block % share.count == share.index]
        ends = np.cumsum([len(pairs) for pairs in self.rounds])
        rounds = np.split(mine, np.searchsorted(mine, ends[:-1]))
        answered = 0
        hidden = {"disable": True} if name is None else {}  # None: the environment decides
        with tqdm(total=size, initial=done, desc=name, unit="pair", **hidden) as bar:
            for repeat, places in enumerate(rounds):
                questions = self.pairs.at(self.asked[places])
                for answers in self.model.answer(questions, repeat=repeat) if len(places) else ():
                    positions = places[answers.positions].tolist()
                    self.keep(journal, replace(answers, positions=positions))
                    self._tell_odd(journal, told)
                    answered += len(positions)
                    bar.update(len(positions))
        if answered < len(mine):
            raise ValueError(
                f"expected an answer for each of {len(mine):,} pairs, the model gave {answered:,}"
            )
        return answered, time.perf_counter() - start

    def keep(self, journal: Journal, answers: Answers) -> None:
        """Check answers, whose positions are places in `asked`, and add them to the journal."""
        pairs, labels = self.pairs.at(self.asked[answers.positions]), self.labels
        if (rows := answers.probabilities) is None:
            journal.add(answers)
            return
        dtype = self.identity.get("dtype")
        why = "its numbers overflow: is the model damaged, or did its training diverge?"
        if dtype == "float16":
            why = "numbers too large for float16 do this: try `dtype` bfloat16 or float32"
        require_probabilities(pairs, labels, rows, why)
        # The same check as for readers of predictions files.
        flat = pa.FixedSizeListArray.from_arrays(np.ravel(rows).astype(float), len(labels))
        check_column(
            PROBABILITIES, pa.chunked_array([flat]), lambda row: f"the pair {pairs[row]}", labels
        )
        journal.add(answers)

    def _tell_odd(self, journal: Journal, told: set[str]) -> None:
        """Warn of oddities of answers that are not in `told` yet, and add them to it."""
        name = self.identity["name"]
        found = sentences({"name": name, **journal.notes})
        for key in found.keys() - told:
            log.warning("%s: warning: %s", name, found[key])
        told.update(found)

    def metadata(self, journal: Journal, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Make the file's metadata; warn of suspicious answers, and of few letters."""
        tally, codes = AnswerTally(self.merging.of(self.written)), self.merging.codes(self.written)
        for rows in self._rows(journal, REQUIRED):
            for name in ANSWERS if self.merging else ():
                merged = pa.array(codes[rows[name].to_numpy()])
                rows = rows.set_column(rows.column_names.index(name), name, merged)
            tally.add(rows)
        check = tally.check_order()
        metadata = {
            **self.identity,
            **extra,
            "problems": description_of(self.problems),
            "texts": combined(self.digests),
            "rows": len(self.problems),
            "distinct_pairs": len(self.pairs),
            **self.facts,
            **journal.counts,
            **journal.notes,
            **{name: float(values.mean()) for name, values in journal.numbers.items()},
            "label_order_check": None if check is None else asdict(check),
            "fingerprint": self.fingerprint,
        }
        tell_of_new_answers(metadata["name"], metadata)
        tell_of_answers(metadata["name"], tally, metadata)
        if "letter_mass" in metadata:
            from merge_metric.models.language_model import warn_of_few_letters

            warn_of_few_letters(metadata["name"], metadata["letter_mass"])
        return metadata

    def write(self, journal: Journal, metadata: Mapping[str, Any]) -> None:
        """Write the predictions file."""
        names = [*REQUIRED, TEXT_DIGEST]
        if not np.isnan(journal.probabilities).any():
            names.append(PROBABILITIES)
        if journal.texts:
            names.append(ANSWER_TEXT)
        if len(self.asked) > len(self.pairs):
            names.append(REPEATS)
        few = next(self._rows(journal, names))
        schema = labelled(with_metadata(few, metadata), self.written).schema
        write_batches(self.out, schema, len(self.problems), partial(self._rows, journal))

    def _rows(self, journal: Journal, names: Sequence[str]) -> Iterator[pa.Table]:
        for start in range(0, len(self.problems), ROWS):
            rows = slice(start, start + ROWS)
            chosen = self._chosen(journal, self.pair_of_row[rows])
            answers = np.zeros((len(chosen), len(self.written)))
            answers[:, self._places] = journal.probabilities[self.pair_of_row[rows]]
            columns = {
                **_checked(self.problems.slice(start, ROWS)),
                "prediction": chosen,
                TEXT_DIGEST: to_hex(self.digests[rows]),
                PROBABILITIES: pa.FixedSizeListArray.from_arrays(
                    answers.ravel(), len(self.written)
                ),
            }
            if ANSWER_TEXT in names:
                texts = [*map(journal.texts.get, self.pair_of_row[rows].tolist())]
                columns[ANSWER_TEXT] = pa.array(texts, pa.string())
            if REPEATS in names:
                # repeated answers to seeds; null for variants
                times = self.identity["repeat_seeds"]
                again = np.arange(len(self.pairs), len(self.asked)).reshape(times, -1)
                codes = self._chosen(journal, again).T.tolist()
                of_pair = dict(zip(self.asked[again[0]].tolist(), codes, strict=True))
                is_seed = pc.equal(columns["variant_id"], columns["seed_id"]).to_pylist()
                pairs = zip(self.pair_of_row[rows].tolist(), is_seed, strict=True)
                found = [of_pair[pair] if seed else None for pair, seed in pairs]
                columns[REPEATS] = pa.array(found, pa.list_(pa.int8()))
            yield pa.table(columns).select(names)
            forget_read()

    @property
    def _places(self) -> list[int]:
        return [*map(self.written.index, self.labels)]

    def _chosen(self, journal: Journal, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.array([*self._places, NO_LABEL])[journal.labels[positions]])


def _checked(problems: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Check and return the columns of problems that predictions have too."""
    labels = format_of_problems(problems).labels
    names = (*IDS, "label")
    return {name: check_column(name, problems[name], row_number, labels) for name in names}


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
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        advice = ": --preset writes several, so --out is a folder"
        advice = advice if there.name.endswith(SUFFIXES) else ""
        raise NotADirectoryError(
            f"{there}: expected a folder for predictions files, found a file{advice}"
        )
    if not os.access(there, os.W_OK):
        raise PermissionError(
            f"{there}: expected a folder to write to, got one without permission; name another "
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

    `description` is a model's identity with the run's `fingerprint` or, before loading, a part.
    """
    if overwrite or not out.exists():
        return
    there = read_metadata(out)
    found, differ = "a file in which no model is named", ""
    if there:
        texts = combined(problem_digests(problems) if digests is None else digests)
        found = _frame_of(there, there.get("problems", {}), there.get("rows"))
        keys = [key for key in description if there.get(key) != description[key]]
        if there.get("texts") != texts:
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
        f"{out}: expected no predictions of another run, found {found}; in their place would come "
        f"{coming}{differ}: name another file with `out`, or replace it with `overwrite`"
    )


def _frame_of(model: Mapping[str, Any], problems: Mapping[str, Any], rows: Any) -> str:
    """Name a run: "those of bert for 1,049 problems of snli"."""
    configs = "+".join(problems.get("configs") or []) or problems.get("dataset") or "a dataset"
    count = f"{rows:,}" if isinstance(rows, int) else "the"
    return f"those of {model.get('name', 'a model')} for {count} problems of {configs}"
