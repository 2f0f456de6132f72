"""Ask a model about each distinct pair of some problems, and make a file of its answers."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from merge_dataset.locks import writing_to
from merge_dataset.schema import LABELS
from merge_metric.models.pair_model import Pair, PairModel, require_probabilities
from merge_metric.predict.journal import Journal, open_journal
from merge_metric.predict.outputs import check_file, require_replaceable
from merge_metric.predict.problems import description_of, format_of_problems, pairs_of
from merge_metric.runs.label_check import check_seeds
from merge_metric.runs.predictions import (
    read_metadata,
    with_metadata,
    write_predictions,
)
from merge_metric.runs.row_checks import PROBABILITIES, labelled
from merge_metric.runs.texts import TEXT_DIGEST, combined, text_digests, to_hex

log = logging.getLogger(__name__)


_TOO_LARGE: Final = "numbers too large for float16 do this: try --dtype bfloat16 or float32"


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
    check_file(out)
    if not len(problems):
        raise ValueError("expected problems to ask the model about, got none")
    pairs, pair_of_row = distinct_pairs(problems)
    description = model.describe()
    digests = text_digests(problems, format_of_problems(problems).fields)
    fingerprint, texts = _fingerprint(description, problems, digests), combined(digests)
    if (metadata := read_metadata(out)) and metadata.get("fingerprint") == fingerprint:
        log.info("%s: complete already", out)
        with suppress(OSError), writing_to(out):
            pass  # the files of a lock that was killed at its end are gone now
        return Outcome(out, len(problems), len(pairs), 0, 0.0, metadata)
    identity = description | {"fingerprint": fingerprint}
    labels = format_of_problems(problems).labels
    kept = out.with_name(f".{out.name}.{fingerprint[:16]}.journal")
    with writing_to(out):
        require_replaceable(out, identity, problems, texts, overwrite=overwrite)
        with open_journal(kept, len(pairs), len(labels)) as journal:
            missing, start = journal.missing, time.perf_counter()
            _ask(model, pairs, labels, journal, missing, description["name"] if progress else None)
            seconds = time.perf_counter() - start
            table = _table(problems, journal.answers[pair_of_row], digests)
            if not getattr(model, "has_probabilities", True):
                table = table.drop_columns(PROBABILITIES)
            metadata = {
                **description,
                **(extra or {}),
                **_asked(model, problems, pairs, texts),
                "label_order_check": _check_labels(description, table, labels),
                "fingerprint": fingerprint,
            }
            # Another program may have written it meanwhile.
            require_replaceable(out, identity, problems, texts, overwrite=overwrite)
            write_predictions(out, labelled(with_metadata(table, metadata), labels))
    return Outcome(out, len(problems), len(pairs), len(missing), seconds, metadata)


def distinct_pairs(problems: pa.Table) -> tuple[list[Pair], NDArray[np.int64]]:
    """Return the distinct pairs in order of appearance, and each row's place among them."""
    places: dict[Pair, int] = {}
    of_row = np.fromiter(
        (places.setdefault(pair, len(places)) for pair in pairs_of(problems)),
        np.int64,
        len(problems),
    )
    return list(places), of_row


# --- Asking ---


def _ask(
    model: PairModel,
    pairs: Sequence[Pair],
    labels: Sequence[str],
    journal: Journal,
    missing: list[int],
    name: str | None,
) -> None:
    """Put the answers for the missing pairs into the journal.

    Args:
        model: The model.
        pairs: All pairs.
        labels: What the answers are probabilities of.
        journal: Where answers go.
        missing: Positions without an answer.
        name: What the progress bar says; None for no bar.
    """
    unanswered = np.zeros(len(pairs), bool)
    unanswered[missing] = True
    done = len(pairs) - len(missing)
    if missing and done:
        log.info("going on after %s of %s pairs", f"{done:,}", f"{len(pairs):,}")
    with tqdm(total=len(pairs), initial=done, desc=name, unit="pair", disable=name is None) as bar:
        for positions, answers in _answers(model, pairs, missing) if missing else ():
            require_probabilities([pairs[i] for i in positions], labels, answers, _TOO_LARGE)
            journal.add(positions, answers)
            bar.update(int(unanswered[positions].sum()))
            unanswered[positions] = False
    if unanswered.any():
        raise ValueError(
            f"expected an answer for each of {len(missing):,} pairs, the model gave "
            f"{len(missing) - unanswered.sum():,}"
        )


def _answers(
    model: PairModel, pairs: Sequence[Pair], missing: list[int]
) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
    """Yield batches of positions in `pairs` and answers."""
    if resume := getattr(model, "resume", None):
        yield from resume(pairs, frozenset(range(len(pairs))).difference(missing))
        return
    for positions, answers in model.probabilities([pairs[i] for i in missing]):
        yield [missing[i] for i in positions], answers


# --- What is written ---


def _table(
    problems: pa.Table, probabilities: NDArray[np.float64], digests: NDArray[np.uint64]
) -> pa.Table:
    flat = pa.array(np.ascontiguousarray(probabilities).reshape(-1))
    labels = format_of_problems(problems).labels
    table = pa.table(
        {
            "variant_id": problems["variant_id"],
            "seed_id": problems["seed_id"],
            "label": problems["label"],
            "prediction": pa.array(probabilities.argmax(axis=1)),
            TEXT_DIGEST: to_hex(digests),
            "probabilities": pa.FixedSizeListArray.from_arrays(flat, len(labels)),
        }
    )
    return labelled(table, labels)


def _asked(
    model: PairModel, problems: pa.Table, pairs: Sequence[Pair], texts: str
) -> dict[str, Any]:
    """Tell what was asked, and what the model notes about it, for the metadata."""
    notes = model.notes(pairs) if hasattr(model, "notes") else {}
    return {
        "problems": description_of(problems),
        "texts": texts,
        "rows": len(problems),
        "distinct_pairs": len(pairs),
        **notes,
    }


def _fingerprint(
    description: dict[str, Any], problems: pa.Table, digests: NDArray[np.uint64]
) -> str:
    """Digest of what determines a predictions file."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name in ("variant_id", "seed_id", "label"):
        digest.update(json.dumps(problems[name].to_pylist()).encode())
    digest.update(digests.astype("<u8").tobytes())
    return digest.hexdigest()


# --- Labels ---


def _check_labels(
    description: dict[str, Any], table: pa.Table, labels: Sequence[str]
) -> dict[str, Any] | None:
    """Check by the seeds whether labels are the right way round, and warn where they seem not."""
    check = check_seeds(table)
    if check is None:
        return None
    if not check.suspicious:
        return asdict(check)
    advice = "are its labels the right way round?"
    if order := description.get("label_order"):
        short = [label[0] for label in labels] if tuple(labels) == LABELS else labels
        better = ",".join(short[check.best[labels.index(label)]] for label in order)
        taken = ",".join(short[labels.index(label)] for label in order)
        advice = f"its classes are taken for {taken}: try --label-order {better}"
    log.warning(
        "warning: %s is right on %.0f %% of %s seeds, and would be on %.0f %% under another "
        "order of labels; %s",
        description["name"],
        100 * check.accuracy,
        f"{check.seeds:,}",
        100 * check.best_accuracy,
        advice,
    )
    return asdict(check)
