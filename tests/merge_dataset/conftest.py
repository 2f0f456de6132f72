"""A small run folder made by hand, the dataset exported from it, and sessions of annotation."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import run_manifest, seed_row, variant_row, write_run
from helpers.paraphrase_run import write_paraphrase_run

from merge_dataset.annotation import Session, open_session, read_session
from merge_dataset.card import render
from merge_dataset.export import export_dataset
from merge_dataset.schema import LABELS

ROOT = Path(__file__).parents[2]

PROBLEMS = {
    "1": ("A girl and a small dog run.", "A girl has a small dog.", "neutral", "nnc"),
    "2": ("A girl sees another girl.", "The girl sees somebody.", "entailment", "eee"),
    "3": ("Two men play chess.", "The men play cards.", "contradiction", ""),
}
"""Pair id → premise, hypothesis, label, annotators' votes."""

REPLACEMENTS = {
    ("1", "noun", "girl"): ("woman", "boy", "man"),
    ("1", "noun", "dog"): ("cat",),
    ("1", "adjective", "small"): ("big", "brown"),
    ("2", "noun", "girl"): ("woman", "boy"),
    ("2", "verb", "sees"): ("likes", "calls"),
    ("3", "verb", "play"): ("like",),
}
"""(pair id, class, shared word) → its replacements."""

DRAWS = ([0, 1], [1, 2], [0])
"""Subsamples of the first, second and third replacement of a word."""


def pair_row(source: str, pair: str) -> dict[str, Any]:
    """A row of the split `seeds`."""
    premise, hypothesis, label, votes = PROBLEMS[pair]
    numbers = ["enc".index(vote) for vote in votes]
    return seed_row(f"{source}:{pair}", (premise, hypothesis), LABELS.index(label), numbers)


def replaced_row(source: str, pair: str, word_class: str, word: str, number: int) -> dict[str, Any]:
    """A row of the split `variants`, with the word's replacement of this number."""
    return variant_row(
        pair_row(source, pair),
        word_class,
        word,
        REPLACEMENTS[pair, word_class, word][number],
        {"premise": ["b/roberta"], "hypothesis": ["a/bert", "b/roberta"]},
        log_odds=0.25 * (number + 1),
        mlm_count=2,
        premise_pll_change=-0.5 * number,
        hypothesis_pll_change=0.25,
        zipf_frequency=5.5,
        number_changed=False if word_class == "noun" else None,
        subsamples=DRAWS[number],
    )


def manifest(source: str) -> dict[str, Any]:
    """A run's manifest, with details that a dataset must not reveal."""
    return run_manifest(
        source,
        config={
            "recipe": "paper-v2",
            "data": "/home/somebody/snli/test.jsonl",
            "mlms": ["/opt/models/bert", "b/roberta"],
            "masking": "single",
            "min_replacements": 1,
            "probability_filter": True,
            "label_map": {},
            "limit": None,
            "subsamples": 3,
            "rng_seed": 20251028,
            "run": "runs/some run",
            "workers": 2,
        },
        mlms=[
            {"name": "a/bert", "revision": "cd5ef92a", "architecture": "BertForMaskedLM",
             "dtype": "float32", "device": "cpu"},
            {"name": "b/roberta", "revision": "e2da8e2f", "architecture": "RobertaForMaskedLM",
             "dtype": "float32", "device": "cpu"},
        ],
        packages={"spacy": "3.8.18", "transformers": "5.23.0"},
        fingerprint="0123456789abcdef",
        problems={"read": 1000, "unlabelled": 20, "kept": 980},
        source_data={"description": "file /home/somebody/test.jsonl", "sha256": "ab12"},
        funnel=[
            {"mlm": "a/bert", "word_class": "noun", "suggestions": 1200, "less_probable": 1000,
             "other_class": 33, "in_problem": 7, "kept": 160, "replacements": 6},
            {"mlm": "b/roberta", "word_class": "verb", "suggestions": 400, "less_probable": 300,
             "other_class": 0, "in_problem": 7, "kept": 93, "replacements": 3},
        ],
        eligible={"noun": 2, "verb": 2, "adjective": 1},
        started="2025-10-28T10:58:59Z",
    )  # fmt: skip


def write_pairs(folder: Path, source: str = "snli", pairs: str = "123") -> Path:
    """Write a run folder as `generate` does, with only these pairs."""
    variants = [
        replaced_row(source, pair, word_class, word, number)
        for (pair, word_class, word), words in REPLACEMENTS.items()
        for number in range(len(words))
        if pair in pairs
    ]
    variants.sort(key=lambda row: str(row["variant_id"]))
    return write_run(folder, [pair_row(source, p) for p in pairs], variants, manifest(source))


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run folder: `make_run(name, source, pairs)`."""

    def make(name: str = "run", source: str = "snli", pairs: str = "123") -> Path:
        return write_pairs(tmp_path / name, source, pairs)

    return make


@pytest.fixture(scope="session")
def dataset_beside_run() -> Callable[[Path], Path]:
    """Writes a run and a dataset folder of the source `snli` side by side."""

    def write(place: Path) -> Path:
        export_dataset(write_pairs(place / "run"), place / "merge-nli")
        return place / "merge-nli"

    return write


@pytest.fixture(scope="session")
def same_dataset(
    dataset_beside_run: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A dataset folder with the source `snli`, beside its run; tests only read it."""
    return dataset_beside_run(tmp_path_factory.mktemp("same"))


@pytest.fixture
def dataset(same_dataset: Path, tmp_path: Path) -> Path:
    """A copy of this folder, beside its run, for changes."""
    shutil.copytree(same_dataset.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "merge-nli"


@pytest.fixture(scope="session")
def same_paraphrases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder with only the paraphrases of `snli`, beside their run."""
    place = tmp_path_factory.mktemp("paraphrases")
    export_dataset(write_paraphrase_run(place / "paraphrase-run"), place / "merge-nli")
    return place / "merge-nli"


@pytest.fixture
def paraphrases(same_paraphrases: Path, tmp_path: Path) -> Path:
    """A copy of this folder, beside their run, for changes."""
    shutil.copytree(same_paraphrases.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "merge-nli"


@pytest.fixture
def edit() -> Callable[..., None]:
    """Changes the rows of a Parquet file in place: `edit(file, change)`."""

    def edit_rows(file: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
        table = pq.ParquetFile(file).read()
        rows = table.to_pylist()
        change(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)

    return edit_rows


@pytest.fixture
def edit_dataset(dataset: Path, edit: Callable[..., None]) -> Callable[..., None]:
    """Changes rows of the dataset and renews its card, so that only the rows are wrong."""

    def edit_rows(file: str, change: Callable[[list[dict[str, Any]]], object]) -> None:
        edit(dataset / file, change)
        (dataset / "README.md").write_text(render(dataset))

    return edit_rows


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., Any]:
    """Runs `python(code, folder)` offline, with a separate cache; parses its output as JSON."""

    def run_python(code: str, folder: Path) -> Any:
        hub = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", f"import datasets, json\n{code}"]
        result = subprocess.run(
            command, env=os.environ | hub, cwd=folder, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    return run_python


@pytest.fixture(scope="session")
def same_session(same_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return open_session(tmp_path_factory.mktemp("session") / "study", same_dataset).folder


@pytest.fixture
def session(same_session: Path, tmp_path: Path) -> Session:
    """A session with all eleven variants of `snli`: six nouns, three verbs, two adjectives."""
    return read_session(Path(shutil.copytree(same_session, tmp_path / "study")))


@pytest.fixture
def pairs(paraphrases: Path, tmp_path: Path) -> Session:
    """A session of paraphrases: whether each has the meaning of its original."""
    return open_session(tmp_path / "pairs", paraphrases, ["snli_paraphrases"])
