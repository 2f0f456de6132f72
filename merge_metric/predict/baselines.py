"""Baselines, which read only hypotheses or nothing at all, and their training data."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.data_files import read_file
from merge_dataset.files import digest_of_file
from merge_dataset.known_sources import COLUMN_NAMES, LABEL_SPELLINGS, UNLABELLED, label_text
from merge_dataset.schema import LABELS, NLI, ProblemFormat
from merge_metric.models.pair_model import Answers, Description, Model, Pair
from merge_metric.predict.problems import format_of_problems, seeds_of

_BATCH: Final = 10_000

log = logging.getLogger(__name__)


class HypothesisOnly:
    """Logistic regression on the hypothesis's n-grams of words and characters, TF-IDF.

    For formats other than NLI it reads all texts but the first. Its accuracy above chance shows
    how much the hypotheses alone reveal (Gururangan et al. 2018; paper, footnote 8).
    """

    def __init__(
        self,
        hypotheses: Sequence[str],
        labels: NDArray[np.int64],
        training: Mapping[str, object],
        known: tuple[str, ...] = LABELS,
    ) -> None:
        """Train on what `read_training_data` returns; the same data give the same model."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline, make_union
        from threadpoolctl import threadpool_limits

        usual: Any = {"min_df": 2, "sublinear_tf": True, "dtype": np.float32}
        words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", **usual)
        characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **usual)
        regression = LogisticRegression(max_iter=200)
        self._model = make_pipeline(make_union(words, characters), regression)
        with threadpool_limits(1):  # the same order of summation on all machines
            self._model.fit(hypotheses, labels)
        self._training, self._known = training, known

    def describe(self) -> Description:
        """Describe the training data and the features."""
        import sklearn

        identity = {
            "kind": "baseline",
            "name": "hypothesis-only",
            "revision": str(self._training["sha256"]),
            "training_data": self._training,
            "features": "TF-IDF of word 1- to 2-grams and, within words, character 2- to 5-grams",
            "packages": {"scikit-learn": sklearn.__version__},
        }
        return Description(identity=identity)

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield probabilities of the labels; only the hypothesis of each pair is read."""
        for start in range(0, len(questions), _BATCH):
            hypotheses = [hypothesis for _, hypothesis in questions[start : start + _BATCH]]
            distinct = {text: place for place, text in enumerate(dict.fromkeys(hypotheses))}
            answers = np.zeros((len(distinct), len(self._known)))
            answers[:, self._model.classes_] = self._model.predict_proba(list(distinct))
            positions = list(range(start, start + len(hypotheses)))
            yield Answers.of(positions, answers[[distinct[text] for text in hypotheses]])


class Majority:
    """Baseline that always predicts the most frequent label, with label frequencies."""

    def __init__(
        self, labels: NDArray[np.int64], source: dict[str, object], known: tuple[str, ...] = LABELS
    ) -> None:
        """Count labels, (n,) with n > 0, given as positions among `known`.

        `source` says in the metadata where the labels are from.
        """
        self._frequencies = np.bincount(labels, minlength=len(known)) / len(labels)
        self._source, self._known = source, known

    def describe(self) -> Description:
        """Describe the frequencies and where they are from."""
        identity = {
            "kind": "baseline",
            "name": "majority",
            "revision": None,
            "label_source": self._source,
            "frequencies": dict(zip(self._known, self._frequencies.tolist(), strict=True)),
        }
        return Description(identity=identity)

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield the labels' frequencies for every question."""
        positions = list(range(len(questions)))
        yield Answers.of(positions, np.tile(self._frequencies, (len(positions), 1)))


def open_baseline(name: str, train: str | None, problems: pa.Table) -> Model:
    """Train a baseline for the problems that it will be asked about.

    `train` is a file for `read_training_data`; "majority" counts the labels of the seeds instead.
    """
    if (train is None) == (name == "hypothesis-only"):
        raise ValueError("train: expected a file of labelled problems with hypothesis-only alone")
    if train is not None:
        data = read_training_data(Path(train), format_of_problems(problems))
        log.info("learning from %s hypotheses", f"{len(data[0]):,}")
        return HypothesisOnly(*data)
    labels = seeds_of(problems)["label"].to_numpy()
    return Majority(labels, {"seeds": len(labels)}, format_of_problems(problems).labels)


Training = tuple[list[str], NDArray[np.int64], dict[str, object], tuple[str, ...]]
"""Texts to learn from, positions of their labels, a description of the file, and all labels."""


def read_training_data(path: Path, problem_format: ProblemFormat = NLI) -> Training:
    """Read the hypotheses and labels of a file; problems without a label are left out.

    Args:
        path: Of any of the kinds that `data_files` reads. Columns are called as usual
            (`COLUMN_NAMES`), or as the format's fields but the first; labels as the usual releases
            do (`LABEL_SPELLINGS`), or as the format has them, in any case.
        problem_format: Fields and labels of the problems.

    Raises:
        OSError: there is no such file.
        ValueError: it cannot be read, lacks a column or has unknown labels.
    """
    known, spellings, texts = problem_format.labels, LABEL_SPELLINGS, [COLUMN_NAMES["hypothesis"]]
    if problem_format != NLI:
        texts = [(name,) for name in problem_format.fields[1:]]
        spellings = dict.fromkeys(UNLABELLED, "")
        spellings |= {label_text(label).lower(): label for label in known}
    hypotheses, labels, left_out, columns = list[str](), list[int](), 0, list[str]()
    for row in read_file(path):
        if row.problem:
            raise row.error
        for names in (*texts, COLUMN_NAMES["label"])[len(columns) :]:
            columns += [name for name in names if name in row.columns][:1]
            if not columns or columns[-1] not in names:
                raise ValueError(
                    f"{row.where}: expected a column {' or '.join(names)}, got "
                    f"{', '.join(row.columns) or 'none'}"
                )
        *parts, label = values = [*map(row.columns.get, columns)]
        spelled = label_text(label).lower()
        if spelled not in spellings or not all(isinstance(part, str | None) for part in parts):
            raise ValueError(
                f"{row.where}: expected texts and a label out of {', '.join(known)} in "
                f"{', '.join(columns)}, got {values}"
            )
        text = " ".join(part or "" for part in parts)
        if text.strip() and spellings[spelled]:
            hypotheses.append(text)
            labels.append(known.index(spellings[spelled]))
        else:
            left_out += 1
    if left_out:
        log.info("%s: %s problems without a label or hypothesis left out", path, f"{left_out:,}")
    training: dict[str, object] = {"file": path.name, "sha256": digest_of_file(path)}
    training |= {"problems": len(labels), "left_out": left_out}
    return hypotheses, np.array(labels, np.int64), training, known
