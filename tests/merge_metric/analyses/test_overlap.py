"""Common tokens, fuzzy matches and distances of embeddings, the slow way."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.dataset_files import write_predictions
from helpers.sensitivity_data import answer_rows, sentence, write_lines
from helpers.tiny_models import sentences, tiny_model
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from merge_metric.analyses import Request
from merge_metric.analyses.overlap import (
    cosine_distances,
    histogram_divergence,
    load_encoder,
    overlap,
)
from merge_metric.frame.answer_table import PredictionsSource

LINES = ("E E EEC", "N N NE", "C E CC", "C C C")


def similarity(one: str, other: str) -> float:
    """Twice the longest common subsequence of characters, divided by the sum of lengths."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, x in enumerate(one):
        for j, y in enumerate(other):
            same = table[i][j] + 1
            table[i + 1][j + 1] = same if x == y else max(table[i][j + 1], table[i + 1][j])
    total = len(one) + len(other)
    return 2 * table[-1][-1] / total if total else 1.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "merge-nli", "snli", LINES)


def of_dataset(folder: Path) -> dict[str, object]:
    """The row of all pairs of a dataset."""
    (row,) = overlap(Request(dataset=folder)).rows
    return dict(row)


def pairs_by_hand() -> list[tuple[str, str]]:
    """Hypotheses of all variants of `LINES`, paired with those of their seeds."""
    return [
        (sentence(f"snli:{place}"), sentence(f"snli:{place}", number))
        for place, line in enumerate(LINES)
        for number in range(1, len(line.split()[2]) + 1)
    ]


def test_overlap_of_a_dataset(folder: Path) -> None:
    row = of_dataset(folder)
    split = [[re.findall(r"\w+|\.", text.lower()) for text in pair] for pair in pairs_by_hand()]
    assert (row["config"], row["dataset"], row["model"]) == ("snli_paraphrases", "merge-nli", None)
    assert row["n_pairs"] == len(split) == 8
    assert row["length"] == pytest.approx(np.mean([len(h) for h, _ in split]))
    assert row["length_variant"] == pytest.approx(np.mean([len(h) for _, h in split]))
    common = [len(h) - sum(token not in other for token in h) for h, other in split]
    assert row["overlap"] == pytest.approx(np.mean(common))  # no token is repeated in a hypothesis
    exact = [similarity(*(" ".join(sorted(item)) for item in pair)) for pair in split]
    assert row["fuzzy_sort"] == pytest.approx(np.mean(exact))
    assert row["fuzzy_set"] > row["fuzzy_sort"]
    assert "distance" not in row


def encode(texts: Sequence[str]) -> NDArray[np.float64]:
    """Count occurrences of some letters."""
    return np.array([[text.count(letter) for letter in "acdegnow."] for text in texts], float)


def distance(one: str, other: str) -> float:
    a, b = encode([one, other])
    return float(1 - a @ b / np.sqrt((a @ a) * (b @ b)))


def test_distances_of_embeddings() -> None:
    """Each distinct sentence is encoded once; equal sentences have distance 0."""
    asked: list[str] = []

    def counting(texts: Sequence[str]) -> NDArray[np.float64]:
        asked.extend(texts)
        return encode(texts)

    pairs = [*pairs_by_hand(), ("A dog.", "A dog."), ("xyz", "A dog.")]
    one, other = ([pair[side] for pair in pairs] for side in (0, 1))
    result = cosine_distances(one, other, counting)
    assert result[:-1] == pytest.approx([distance(*pair) for pair in pairs[:-1]], abs=1e-12)
    assert result[-1] == 1  # a vector of zeros
    assert len(asked) == len(set(asked)) == len({*one, *other})


def answers_of(folder: Path, name: str, lines: Sequence[str]) -> PredictionsSource:
    path = write_predictions(folder.parent / f"{name}.parquet", answer_rows("snli", lines))
    return PredictionsSource(name, path)


def test_distances_of_variants_that_change_predictions(folder: Path) -> None:
    other = [line.replace("EEC", "EEE") for line in LINES]
    sources = (answers_of(folder, "a", LINES), answers_of(folder, "b", other))
    a, b, mean = overlap(Request(sources=sources, dataset=folder), encoder=encode).rows
    pairs = pairs_by_hand()
    distances = [distance(*pair) for pair in pairs]
    assert a["distance"] == pytest.approx(np.mean(distances), abs=1e-12)
    # EEC, NE, [CC: seed wrong], C
    changed, unchanged = (np.array([distances[i] for i in some]) for some in ((2, 4), (0, 1, 3, 7)))
    assert a["distance_changed"] == pytest.approx(changed.mean())
    assert a["distance_unchanged"] == pytest.approx(unchanged.mean())
    assert a["distance_jsd"] == histogram_divergence(changed, unchanged)
    assert b["distance_changed"] == pytest.approx(distances[4])
    expected = (a["distance_changed"] + b["distance_changed"]) / 2
    assert mean["distance_changed"] == pytest.approx(expected)
    assert (mean["model"], mean["n_pairs"]) == ("(mean)", 16)
    lines = ("E E EEE", "N N NN", "C C CC", "C C C")
    one = Request(sources=(answers_of(folder, "a", lines),), dataset=folder)
    table = overlap(one, encoder=encode)
    assert table.rows[0]["distance_changed"] is table.rows[0]["distance_jsd"] is None
    assert table.to_text().splitlines()[4].split()[-2:] == ["–", "–"]


def states(folder: Path, text: str) -> NDArray[np.float64]:
    """Last-layer vectors (tokens, d) of one sentence alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        result = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    return np.asarray(result, np.float64)


def test_weights_in_half_precision_are_run_in_full(tmp_path: Path) -> None:
    texts = sentences(3)
    folder = shutil.copytree(tiny_model("bert-uncased"), tmp_path / "half")
    AutoModel.from_pretrained(folder, dtype=torch.float16).save_pretrained(folder)
    result = load_encoder(str(folder))(texts)
    expected = np.array([states(folder, text).mean(axis=0) for text in texts])
    np.testing.assert_allclose(result, expected, atol=1e-5)
