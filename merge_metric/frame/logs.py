"""Logs of lm-evaluation-harness (`samples_*.jsonl`) and Inspect (`.eval`, `.json`) as predictions.

Tasks that `merge-nli export` writes log rows of predictions. Of other tasks over the same dataset,
a sample has the id or the texts of a problem, and in the task's own words the right answer and the
model's. One answer to a problem is read: that of the first epoch or filter.
"""

import json
import logging
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from zipfile import BadZipFile, ZipFile

import pyarrow as pa

from merge_dataset.data_files import column_names, read_file, readable
from merge_dataset.files import naming_damage
from merge_metric.frame.checks import ANSWER_TEXT, REQUIRED
from merge_metric.frame.relations import DatasetRelations
from merge_metric.frame.texts import TEXT_DIGEST, text_digests, to_hex
from merge_metric.seed_variant_accuracy.options import Merging

log = logging.getLogger(__name__)

INSPECT: Final = (".eval", ".json")
"""Suffixes of Inspect's logs."""

_ENTRY: Final = re.compile(r"(samples/.*_epoch_\d+)(/sample)?\.json")
"""Pattern of a sample's name in a log, with or without its metadata."""

_IS_RIGHT: Final[Mapping[Any, bool]] = {"C": True, 1: True, "I": False, "N": False, 0: False}
"""Value of a score → whether the answer is right."""

_DAMAGE: Final = (
    "log of lm-evaluation-harness (0.4) or Inspect (0.3)",
    (AttributeError, LookupError, TypeError, BadZipFile, zlib.error),
)
"""Kind of the files, and errors on reading damaged ones or others."""

Row = Mapping[str, Any]


class _Sample(NamedTuple):
    take: int | str
    """The epoch or filter."""
    about: Row
    """Columns of the problem that the task kept."""
    row: Row | None = None
    """A row of predictions, if the task is one of ours."""
    target: object = ""
    answer: object = ""
    at_target: str = ""
    """The choice at this position, if the target is a number."""
    value: object = None
    """Score of the answer; None if it is right where it equals the target."""
    error: str = ""
    """Reason why there is no answer."""


def is_log(path: Path) -> bool:
    """Return whether a file is a log of a harness, by its suffix or its first line."""
    of_lines = path.name.endswith((".jsonl", ".jsonl.gz"))
    return path.suffix in INSPECT or (
        of_lines and {"doc", "filtered_resps"} <= {*column_names(path)}
    )


def model_in(path: Path) -> str:
    """Return the model's name in a log or, of lm-evaluation-harness, in the results beside it."""
    with naming_damage(path, *_DAMAGE):
        if path.suffix in INSPECT:
            return str(next(_entries(path))["eval"]["model"])
        date = path.name.partition(".jsonl")[0].rpartition("_")[2]
        results = path.with_name(f"results_{date}.json")
        return str(json.loads(results.read_bytes())["model_name"]) if results.is_file() else ""


def read_log(path: Path, folder: Path | None, merging: Merging) -> pa.Table:
    """Read the predictions in a log; those of other tasks than ours need the dataset folder."""
    with naming_damage(path, *_DAMAGE):
        samples = list((_of_inspect if path.suffix in INSPECT else _of_lm_eval)(path))
    if is_ours := any(sample.row for sample in samples):  # whose scores say nothing without a row
        lacking = "it has no row of predictions"
        samples = [s if s.row else s._replace(error=s.error or lacking) for s in samples]
    if failed := [sample for sample in samples if sample.error]:
        many, example = f"{len(failed):,} of {len(samples):,}", failed[0]
        name = example.about.get("variant_id")
        log.warning("%s: %s samples have no answer: %s: %s", path, many, name, example.error)
    takes = dict.fromkeys(sample.take for sample in samples)
    first, *others = sorted(takes, key=lambda take: take if isinstance(take, int) else 0) or [0]
    if others:
        rest = ", ".join(map(str, others))
        log.warning("%s: answers of the epoch or filter %s are read, not of %s", path, first, rest)
    given = [sample for sample in samples if sample.take == first and not sample.error]
    if not given:
        raise ValueError(
            f"{path}: expected answers, got {len(samples):,} samples without any; of "
            "lm-evaluation-harness they are in samples_*.jsonl, by --log_samples"
        )
    if is_ours:
        return pa.Table.from_pylist([sample.row for sample in given])
    if folder is None:
        raise ValueError(
            f"{path}: expected the dataset with the log of a task that `merge-nli export` did not "
            "write, got none; add --dataset FOLDER"
        )
    return _of_dataset(path, given, DatasetRelations.of(folder), merging)


def _of_lm_eval(path: Path) -> Iterator[_Sample]:
    """Yield the samples; a line has the answer that one filter left."""
    for line in readable(read_file(path, f"{path}: line ")):
        logged = line.columns
        asked, answers = list(logged["arguments"].values()), logged["filtered_resps"]
        answer, target, at_target = answers[0], str(logged["target"]), ""
        if len(asked) > 1:  # of several choices the most probable one
            choices = [choice["arg_1"] for choice in asked if choice["arg_0"] == asked[0]["arg_0"]]
            answer = choices[max(range(len(choices)), key=lambda n: float(answers[n][0]))]
            if target.isdecimal() and int(target) < len(choices):
                at_target = choices[int(target)]
        value = logged.get("acc", logged.get("exact_match"))
        row = _row(logged.values())
        yield _Sample(
            logged.get("filter", ""), logged["doc"], row, target, answer, at_target, value
        )


def _of_inspect(path: Path) -> Iterator[_Sample]:
    """Yield the samples, with the answer in the first of their scores."""
    _, *samples = _entries(path)
    for logged in samples:
        about = {"variant_id": str(logged["id"])} | (logged.get("metadata") or {})
        scores = list((logged.get("scores") or {}).values())
        row = _row((score.get("metadata") or {}).get("answer") for score in scores)
        score, target = scores[0] if scores else {}, logged["target"]
        value, answer, error = score.get("value"), score.get("answer"), ""
        target = target if isinstance(target, str) else target[0]
        choices = dict(zip("ABCDEFGHIJ", logged.get("choices") or (), strict=False))
        if len(choices) > 1:  # which may be shuffled
            target, answer = (choices.get(word, word) for word in (target, f"{answer}"))
        if not row and (value is None or value != value):  # NaN
            error = (logged.get("error") or {}).get("message") or "it was not scored"
        yield _Sample(logged["epoch"], about, row, target, answer, "", value, error)


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the header of a log of Inspect, and then its samples."""
    if path.suffix == ".json":
        whole = json.loads(path.read_bytes())
        yield whole
        yield from whole.get("samples") or ()
        return
    with ZipFile(path) as archive, path.open("rb") as file:

        def read(name: str) -> dict[str, Any]:
            entry = archive.getinfo(name)
            if entry.compress_type != 93:  # Zstandard, which `zipfile` has from Python 3.14 on
                return dict(json.loads(archive.read(name)))
            file.seek(entry.header_offset + 26)
            sizes = file.read(4)  # of the name and of what is added to it
            file.seek(int.from_bytes(sizes[:2], "little") + int.from_bytes(sizes[2:], "little"), 1)
            packed = file.read(entry.compress_size)
            return dict(json.loads(pa.decompress(packed, entry.file_size, "zstd").to_pybytes()))

        names = dict.fromkeys(archive.namelist())
        yield read("header.json" if "header.json" in names else "_journal/start.json")
        for entry in filter(None, map(_ENTRY.fullmatch, names)):
            sample = read(entry[0])
            if (metadata := f"{entry[1]}/metadata.json") in names:
                sample["metadata"] = read(metadata)
            yield sample


def _row(values: Iterator[Any] | Any) -> Row | None:
    """Return the row of predictions that a task of ours logs."""
    return next((v for v in values if isinstance(v, dict) and {*REQUIRED} <= v.keys()), None)


def _of_dataset(
    path: Path, samples: list[_Sample], dataset: DatasetRelations, merging: Merging
) -> pa.Table:
    """Look up the problems, by their ids or texts, and labels for the words of right answers."""
    formats = list(dataset.formats.values())
    fields = list(dict.fromkeys(name for own in formats for name in own.fields))
    names = ("variant_id", "seed_id", "label", *fields)
    known = dataset.engine.fetch(
        f"SELECT DISTINCT ON (variant_id) * FROM {dataset.problems(names)}"
    )
    problems = {problem["variant_id"]: problem for problem in known.to_pylist()}
    asked = _candidates(path, samples, problems, fields)
    gold_of = {
        name: formats[problem["file"]].labels[problem["label"]]
        for name, problem in problems.items()
    }
    # Positions, as the harness takes them, unless scores fit the numbers as words better.
    as_words, as_positions = (
        sum((_plain(of.answer) == _plain(target)) == of.value for of, target in pairs)
        for pairs in (
            [(sample, sample.target) for sample in samples],
            [(sample, sample.at_target or sample.target) for sample in samples],
        )
    )
    rows, meanings = list[dict[str, Any]](), dict[str, set[str]]()
    # Of problems with the same texts each is asked once; they come last, when it is known which
    # label a target means.
    for same, texts, sample in sorted(asked, key=lambda problem: len(problem[0])):
        is_position = sample.at_target and as_positions >= as_words
        target = _plain(sample.at_target if is_position else sample.target)
        answer = _plain(sample.answer)
        name = min(same, key=lambda name: gold_of[name] not in meanings.get(target, ()))
        if len(same) > 1:
            same.remove(name)
        gold = gold_of[name]
        value = answer == target if sample.value is None else sample.value
        if isinstance(value, dict | list) or value not in _IS_RIGHT:
            raise ValueError(
                f"{path}: {name}: expected a score that says whether the answer is "
                f"right, 1 or C, or wrong, 0 or I, got {value!r}"
            )
        for word in {target, answer} if _IS_RIGHT[value] else {target}:
            meanings.setdefault(word, set()).add(gold)
        row = {"variant_id": name, "seed_id": problems[name]["seed_id"], "label": gold}
        rows.append(texts | row | {"is_right": _IS_RIGHT[value], ANSWER_TEXT: str(sample.answer)})
    if not any(row["is_right"] for row in rows) and samples[0].value is None:
        raise ValueError(
            f"{path}: expected scores, acc or exact_match, or answers in the words of the targets, "
            f"got {samples[0].answer!r} for {samples[0].target!r}"
        )
    for row in rows:
        # A word that is right for several labels names none of them.
        wrong = {*meanings.get(_plain(row[ANSWER_TEXT]), ())} - {row["label"]}
        one = (
            min(wrong) if len({merging.becomes.get(label, label) for label in wrong}) == 1 else None
        )
        row["prediction"] = row["label"] if row.pop("is_right") else one
    table = pa.Table.from_pylist(rows)
    if len({own.fields for own in formats}) > 1 or any(c.null_count for c in table.select(fields)):
        return table
    return table.append_column(TEXT_DIGEST, to_hex(text_digests(table, fields)))


def _candidates(
    path: Path, samples: list[_Sample], problems: Mapping[str, Row], fields: list[str]
) -> list[tuple[list[str], dict[str, Any], _Sample]]:
    """Look up the ids of problems that a sample may be of, and its texts."""
    by_texts: dict[tuple[str | None, ...], list[str]] = {}
    for name, problem in problems.items():
        by_texts.setdefault(tuple(problem[field] for field in fields), []).append(name)
    asked = list[tuple[list[str], dict[str, Any], _Sample]]()
    for sample in samples:
        texts = {field: sample.about.get(field) for field in fields}
        name = str(sample.about.get("variant_id"))
        same = [name] if name in problems else by_texts.get(tuple(texts.values()))
        if not same:
            raise ValueError(
                f"{path}: expected samples with the variant_id or the {' and '.join(fields)} of a "
                f"problem of the dataset, got {str(sample.about)[:300]}; give the one that the "
                "model was run on"
            )
        asked.append((same, texts, sample))
    return asked


def _plain(text: object) -> str:
    return " ".join(str(text).split()).casefold()
