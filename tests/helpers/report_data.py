import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.dataset_files import run_manifest, seed_row, write_source
from helpers.paraphrase_run import manifest, paraphrased_row
from merge_dataset.provenance import describe
from merge_dataset.schema import variant_id

Row = dict[str, Any]

NOUNS = ("dog", "cat", "horse", "child", "monk", "pilot", "cook", "queen")
VERBS = ("runs", "sleeps", "waits", "sings", "reads")

EVIL = "</script><img src=x onerror=\"document.title='owned'\">"
"""Markup that must never be active in a page."""

_MLM = {
    "name": "some/mlm", "revision": "0123456789abcdef", "architecture": "BertForMaskedLM",
    "dtype": "float32", "device": "cpu",
}  # fmt: skip


@dataclass
class Problems:
    source: str = "snli"
    seeds: list[Row] = field(default_factory=list)
    variants: list[Row] = field(default_factory=list)

    def add(
        self,
        name: str,
        premise: str,
        hypothesis: str,
        label: int,
        words: Mapping[tuple[str, str], Sequence[str]],
        *,
        votes: Sequence[int] = (),
    ) -> None:
        """Add a seed; `words`, (class, word) → replacements of `[word]`, makes its variants."""
        original = {word: word for _, word in words}
        texts = [_fill(text, original)[0] for text in (premise, hypothesis)]
        seed = seed_row(f"{self.source}:{name}", texts, label, votes)
        self.seeds.append(seed)
        for (word_class, word), replacements in words.items():
            for number, new in enumerate(replacements):
                filled = [_fill(text, original | {word: new}) for text in (premise, hypothesis)]
                row = {
                    "variant_id": variant_id(seed["seed_id"], word_class, word, new),
                    "premise": filled[0][0], "hypothesis": filled[1][0],
                    "word_class": word_class, "original": word, "replacement": new,
                    "premise_spans": filled[0][1][word], "hypothesis_spans": filled[1][1][word],
                    "mlms": ["some/mlm"], "log_odds": 0.3 + 0.1 * number,
                    "number_changed": number % 2 == 1,
                    "subsamples": sorted({number % 3, (number + 1) % 3}),
                }  # fmt: skip
                self.variants.append(seed | row)

    def paraphrase(self, name: str, *texts: str) -> None:
        (seed,) = (row for row in self.seeds if row["seed_id"] == f"{self.source}:{name}")
        self.variants += [paraphrased_row(seed, text) for text in texts]

    def write(self, folder: Path, provenance: Mapping[str, Any] | None = None) -> Path:
        seeds, variants = (
            sorted(rows, key=lambda row: str(row["variant_id"]))
            for rows in (self.seeds, self.variants)
        )
        if provenance is None:
            counts = {"read": 1200, "unlabelled": 0, "kept": 1100}
            data = {"description": "snli_test.jsonl", "sha256": "beef"}
            provenance = run_manifest(self.source, mlms=[_MLM], problems=counts, source_data=data)
        both = {"provenance": provenance, "paraphrase_provenance": describe(manifest(self.source))}
        return write_source(folder, seeds, variants, **both)

    def predictions(self, ability: float, key: str) -> list[Row]:
        """Rows of a predictions file; the higher the ability (0 to 1), the more are right."""
        return [self.prediction(row, ability, key) for row in (*self.seeds, *self.variants)]

    def prediction(self, row: Row, ability: float, key: str) -> Row:
        """Make one row: some seeds are easy for all models, others are hard."""
        draws = random.Random(f"{row['seed_id']}"), random.Random(f"{key}{row['variant_id']}")
        right = 0.6 * draws[0].random() + 0.4 * draws[1].random() < ability
        answer = row["label"] if right else (row["label"] + draws[1].choice((1, 2))) % 3
        rest = (1 - 0.7) / 2
        return {
            **{name: row[name] for name in ("variant_id", "seed_id", "label")},
            "prediction": answer,
            "probabilities": [0.7 if label == answer else rest for label in range(3)],
        }


def problems(n: int, source: str = "snli") -> Problems:
    """Seeds with nouns, every second also with verbs; texts with many kinds of characters."""
    made = Problems(source)
    for i in range(n):
        noun, verb = NOUNS[i % len(NOUNS)], VERBS[i % len(VERBS)]
        words: dict[tuple[str, str], Sequence[str]]
        words = {("noun", noun): [w for w in NOUNS if w != noun][: 4 + i % 4]}
        if i % 2:
            words["verb", verb] = [w for w in VERBS if w != verb]
        made.add(
            f"p{i:03d}",
            f"A [{noun}] “{i}” 😀 & another [{noun}] [{verb}] in the park{EVIL if i == 3 else ''}.",
            f"The [{noun}] [{verb}] outside, number {i}.",
            i % 3,
            words,
            votes=[i % 3, i % 3, (i + 1) % 3] if i % 4 == 0 else (),
        )
    return made


def paraphrased(made: Problems) -> Problems:
    """Add one to four paraphrases to two of three seeds of a dataset, one of them long."""
    for i, seed in enumerate(made.seeds):
        if i % 3 < 2:
            text = seed["hypothesis"].rstrip(".")
            texts = [f"It is so that {text} – {number}." for number in range(1 + i % 4)]
            if i == 1:
                texts[0] = f"{text}, {', '.join(['which is long and 😀 winding'] * 12)}{EVIL}."
            made.paraphrase(seed["seed_id"].removeprefix(f"{made.source}:"), *texts)
    return made


def _fill(text: str, words: Mapping[str, str]) -> tuple[str, dict[str, list[list[int]]]]:
    made = ""
    spans: dict[str, list[list[int]]] = {word: [] for word in words}
    for part in text.replace("]", "[").split("["):
        if part in words:
            spans[part].append([len(made), len(made) + len(words[part])])
            made += words[part]
        else:
            made += part
    return made, spans
