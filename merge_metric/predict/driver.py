"""Ask a model about each distinct pair of some problems, and make a file of its answers."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from merge_dataset.files import ROWS
from merge_dataset.locks import writing_to
from merge_dataset.schema import LABELS
from merge_metric.models.label_order import OrderCheck
from merge_metric.models.pair_model import (
    WHOLE,
    Known,
    PairModel,
    Share,
    require_probabilities,
)
from merge_metric.predict.journal import Journal, open_journal, remove_journals
from merge_metric.predict.outputs import check_file, require_replaceable
from merge_metric.predict.problems import (
    Pairs,
    description_of,
    first_rows,
    format_of_problems,
    may_repeat,
    pairs_of,
    problem_digests,
    values_of,
)
from merge_metric.runs.label_check import check_seeds
from merge_metric.runs.mapped import forget_read
from merge_metric.runs.predictions import read_metadata, with_metadata, write_batches
from merge_metric.runs.row_checks import (
    IDS,
    PROBABILITIES,
    REQUIRED,
    check_column,
    labelled,
    require_distinct,
    row_number,
)
from merge_metric.runs.texts import TEXT_DIGEST, combined, to_hex

log = logging.getLogger(__name__)


_TOO_LARGE: Final = "numbers too large for float16 do this: try `dtype` bfloat16 or float32"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A predictions file that is done, and what it took."""

    path: Path
    problems: int
    pairs: int
    """Distinct ones among the problems."""
    inferred: int
    """Pairs that the model was asked about this time."""
    seconds: float
    """For these; loading the model not counted."""
    metadata: dict[str, Any]


def predict(
    model: PairModel,
    problems: pa.Table,
    out: Path,
    *,
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
        progress: Show a bar on stderr.
        extra: More for the metadata, which does not determine the answers.
        overwrite: Replace a predictions file of another run.

    Raises:
        BlockingIOError: another process is at work on the same file.
        FileExistsError: there is a predictions file of another run.
        ValueError: no problems, a file name with another suffix, or the model gave
            something else than probabilities.
    """
    run = _Run.of(model, problems, out)
    if metadata := run.finished():
        log.info("%s: complete already", out)
        with suppress(OSError), writing_to(out):
            run.remove_journals()  # left where a command was stopped at its very end, as its lock
        return Outcome(out, len(problems), len(run.pairs), 0, 0.0, metadata)
    with writing_to(out):
        run.require_replaceable(overwrite=overwrite)
        with run.open_journal() as journal:
            name = run.description["name"] if progress else None
            inferred, seconds = run.ask(journal, WHOLE, name)
            metadata = run.metadata(journal, extra or {})
            # Another program may have written it meanwhile.
            run.require_replaceable(overwrite=overwrite)
            run.write(journal, metadata)
    return Outcome(out, len(problems), len(run.pairs), inferred, seconds, metadata)


@dataclass(frozen=True, slots=True)
class Answered:
    """A share of a model's answers that is done, and what the model says of itself."""

    out: Path
    """The predictions file that the answers are for."""
    description: dict[str, Any]
    notes: dict[str, Any]
    measured: tuple[str, ...]
    inferred: int
    """Pairs that the model was asked about this time."""
    seconds: float
    """For these; loading the model not counted."""


def answer_share(
    model: PairModel, problems: pa.Table, out: Path, share: Share, *, overwrite: bool = False
) -> Answered:
    """Ask a model about a share of the pairs, for `predict` to make a file once all are done.

    Args:
        model: The model.
        problems: All of them.
        out: The predictions file; the answers go to a journal beside it.
        share: Pairs wanted.
        overwrite: As in `predict`.

    Raises:
        FileExistsError, ValueError: as in `predict`.
    """
    run = _Run.of(model, problems, out)
    if run.finished():
        return Answered(out, run.description, {}, run.measured, 0, 0.0)
    run.require_replaceable(overwrite=overwrite)
    with run.open_journal(share) as journal:
        inferred, seconds = run.ask(journal, share, None)
    return Answered(out, run.description, run.notes(), run.measured, inferred, seconds)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """A model and all that it is asked for one predictions file."""

    model: PairModel
    problems: pa.Table
    out: Path
    description: dict[str, Any]
    """The description that the model gives of itself."""
    pairs: Pairs
    """Distinct ones."""
    pair_of_row: NDArray[np.int64]
    digests: NDArray[np.uint64]
    """Digest of the texts of each problem."""
    fingerprint: str
    """Digest of what determines the file."""

    @classmethod
    def of(cls, model: PairModel, problems: pa.Table, out: Path) -> Self:
        """Look at the problems.

        Raises:
            ValueError: there are none, or a predictions file has no such name.
        """
        check_file(out)
        if not len(problems):
            raise ValueError("expected problems to ask the model about, got none")
        try:
            _checked(problems)
            if may_repeat(problems):
                require_distinct(problems["variant_id"], row_number)
        except ValueError as error:
            raise ValueError(f"problems: {error}") from error
        pairs, pair_of_row = distinct_pairs(problems)
        description = model.describe()
        digests = problem_digests(problems)
        fingerprint = fingerprint_of(description, problems, digests)
        return cls(model, problems, out, description, pairs, pair_of_row, digests, fingerprint)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels that answers are probabilities of."""
        return format_of_problems(self.problems).labels

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of further numbers about each answer."""
        return tuple(getattr(self.model, "measured", ()))

    def finished(self) -> dict[str, Any] | None:
        """Return the metadata of the file, if it is there and this run's."""
        there = read_metadata(self.out)
        return there if there.get("fingerprint") == self.fingerprint else None

    def require_replaceable(self, *, overwrite: bool) -> None:
        """Raise FileExistsError where the file has predictions of another run."""
        identity = self.description | {"fingerprint": self.fingerprint}
        texts = combined(self.digests)
        require_replaceable(self.out, identity, self.problems, texts, overwrite=overwrite)

    def open_journal(self, share: Share | None = None) -> AbstractContextManager[Journal]:
        """Open the journal of the whole run or of a share, with the answers of all."""
        width = len(self.labels) + len(self.measured)
        return open_journal(self._journal, len(self.pairs), width, share=share)

    def remove_journals(self) -> None:
        """Remove the answers so far, the shares' too."""
        remove_journals(self._journal)

    @property
    def _journal(self) -> Path:
        return self.out.with_name(f".{self.out.name}.{self.fingerprint[:16]}.journal")

    def ask(self, journal: Journal, share: Share, name: str | None) -> tuple[int, float]:
        """Ask about the missing pairs of a share; return how many there were, and the seconds.

        Args:
            journal: Where answers go.
            share: Pairs wanted.
            name: What the progress bar says; None for no bar.
        """
        start = time.perf_counter()
        inferred = _ask(self.model, self.pairs, self.labels, journal, share, name)
        return inferred, time.perf_counter() - start

    def notes(self) -> dict[str, Any]:
        """Return what the model notes about the pairs."""
        return self.model.notes(self.pairs) if hasattr(self.model, "notes") else {}

    def metadata(self, journal: Journal, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Make the metadata of the file of all answers."""
        means = journal.answers[:, len(self.labels) :].mean(axis=0).tolist()
        metadata = {
            **self.description,
            **extra,
            "problems": description_of(self.problems),
            "texts": combined(self.digests),
            "rows": len(self.problems),
            "distinct_pairs": len(self.pairs),
            **self.notes(),
            **dict(zip(self.measured, means, strict=True)),
            "label_order_check": self._check_labels(journal),
            "fingerprint": self.fingerprint,
        }
        _warn(metadata)
        return metadata

    def write(self, journal: Journal, metadata: Mapping[str, Any]) -> None:
        """Write the predictions file."""
        names = [*REQUIRED, TEXT_DIGEST]
        if getattr(self.model, "has_probabilities", True):
            names.append(PROBABILITIES)
        few = next(self._rows(journal, names))
        schema = labelled(with_metadata(few, metadata), self.labels).schema
        write_batches(self.out, schema, len(self.problems), partial(self._rows, journal))

    def _rows(self, journal: Journal, names: Sequence[str]) -> Iterator[pa.Table]:
        """Make columns of the file, some rows at a time.

        Args:
            journal: All answers.
            names: Of the columns.
        """
        for start in range(0, len(self.problems), ROWS):
            rows = slice(start, start + ROWS)
            answers = journal.answers[self.pair_of_row[rows], : len(self.labels)]
            flat = answers.reshape(-1)
            columns = {
                **_checked(self.problems.slice(start, ROWS)),
                "prediction": answers.argmax(axis=1),
                TEXT_DIGEST: to_hex(self.digests[rows]),
                PROBABILITIES: pa.FixedSizeListArray.from_arrays(flat, len(self.labels)),
            }
            yield pa.table(columns).select(names)
            forget_read()

    def _check_labels(self, journal: Journal) -> dict[str, Any] | None:
        """Check by the seeds whether labels are the right way round, and warn where not."""
        if (check := check_seeds(self._rows(journal, REQUIRED), self.labels)) is None:
            return None
        if check.suspicious:
            gives_names = getattr(self.model, "gives_names", False)
            _warn_of_order(self.description, check, self.labels, gives_names=gives_names)
        return asdict(check)


def _checked(problems: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Check the columns of problems that predictions have, too."""
    labels = format_of_problems(problems).labels
    names = (*IDS, "label")
    return {name: check_column(name, problems[name], row_number, labels) for name in names}


def distinct_pairs(problems: pa.Table) -> tuple[Pairs, NDArray[np.int64]]:
    """Return the distinct pairs in order of appearance, and each row's place among them."""
    first = first_rows(f"{len(one)}:{one}{other}" for one, other in pairs_of(problems))
    rows = np.flatnonzero(first == np.arange(len(first)))
    return Pairs(problems, rows), np.searchsorted(rows, first)


# --- Asking ---


def _ask(
    model: PairModel,
    pairs: Pairs,
    labels: Sequence[str],
    journal: Journal,
    share: Share,
    name: str | None,
) -> int:
    """Put the answers for the missing pairs of a share into the journal, and count them.

    Args:
        model: The model.
        pairs: All pairs.
        labels: What the answers are probabilities of.
        journal: Where answers go.
        share: Pairs wanted.
        name: What the progress bar says; None for no bar.
    """
    unanswered = journal.unanswered
    missing = np.flatnonzero(unanswered)
    done = len(pairs) - len(missing)
    if len(missing) and done:
        log.info("going on after %s of %s pairs", f"{done:,}", f"{len(pairs):,}")
    with tqdm(total=len(pairs), initial=done, desc=name, unit="pair", disable=name is None) as bar:
        for positions, rows in _answers(model, pairs, missing, share) if len(missing) else ():
            _require_distributions(pairs.at(positions), labels, rows)
            further = [getattr(model, name) for name in ("measures",) if hasattr(model, name)]
            journal.add(positions, np.concatenate([rows, *further], axis=1))
            bar.update(int(unanswered[positions].sum()))
            unanswered[positions] = False
    answered = len(missing) - int(unanswered.sum())
    if share == WHOLE and answered < len(missing):
        raise ValueError(
            f"expected an answer for each of {len(missing):,} pairs, the model gave {answered:,}"
        )
    return answered


def _require_distributions(
    pairs: Pairs, labels: Sequence[str], answers: NDArray[np.float64]
) -> None:
    """Check answers to pairs as readers of predictions files check them."""
    require_probabilities(pairs, labels, answers, _TOO_LARGE)
    rows = pa.FixedSizeListArray.from_arrays(np.ravel(answers).astype(float), len(labels))
    check_column(
        PROBABILITIES, pa.chunked_array([rows]), lambda row: f"the pair {pairs[row]}", labels
    )


def _answers(
    model: PairModel, pairs: Pairs, missing: NDArray[np.int64], share: Share
) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
    """Yield batches of positions in `pairs` and answers."""
    if resume := getattr(model, "resume", None):
        is_known = np.ones(len(pairs), bool)
        is_known[missing] = False
        known = Known(is_known)
        yield from resume(pairs, known, *([] if share == WHOLE else [share]))
        return
    mine = missing if share == WHOLE else missing[missing % share.count == share.index]
    asked = pairs if len(mine) == len(pairs) else pairs.at(mine)
    for positions, answers in model.probabilities(asked):
        yield mine[positions].tolist(), answers


def fingerprint_of(
    description: Mapping[str, Any], problems: pa.Table, digests: NDArray[np.uint64]
) -> str:
    """Digest what determines a predictions file.

    Args:
        description: What a model says of itself.
        problems: What it is asked about.
        digests: Of their texts.
    """
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name in ("variant_id", "seed_id", "label"):
        # As JSON has the list of all, of which not all are Python objects at a time.
        before = "["
        for (value,) in values_of(problems, [name]):
            digest.update(f"{before}{json.dumps(value)}".encode())
            before = ", "
        digest.update(b"]" if len(problems) else b"[]")
    digest.update(digests.astype("<u8", copy=False).data)
    return digest.hexdigest()


# --- Warnings ---


def _warn(metadata: Mapping[str, Any]) -> None:
    """Warn where a language model hardly answers in letters."""
    if "letter_mass" in metadata:
        from merge_metric.models.language_model import warn_of_few_letters

        warn_of_few_letters(metadata["name"], metadata["letter_mass"])


def _warn_of_order(
    description: Mapping[str, Any], check: OrderCheck, labels: Sequence[str], *, gives_names: bool
) -> None:
    """Warn that another order of labels would score far better.

    Args:
        description: What the model says of itself.
        check: Which order.
        labels: Of the problems.
        gives_names: Whether the model answers with names of labels, so that no order helps.
    """
    swapped = [f"{labels[n]} for {labels[b]}" for n, b in enumerate(check.best) if b != n]
    advice = f"it seems to say {', '.join(swapped)}"
    if not gives_names and (order := description.get("label_order")):
        short = [label[0] for label in labels] if tuple(labels) == LABELS else labels
        better = ",".join(short[check.best[labels.index(label)]] for label in order)
        taken = ",".join(short[labels.index(label)] for label in order)
        advice = f"its classes are taken for {taken}: try `label_order` {better}"
    log.warning(
        "warning: %s is right on %.0f %% of %s seeds, and would be on %.0f %% under another "
        "order of labels; %s",
        description["name"],
        100 * check.accuracy,
        f"{check.seeds:,}",
        100 * check.best_accuracy,
        advice,
    )
