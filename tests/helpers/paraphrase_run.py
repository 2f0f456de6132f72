"""A small run folder of paraphrases, made by hand in the form of `merge-nli paraphrase`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.dataset_files import seed_row, write_run
from merge_dataset.provenance import EXPLAINED
from merge_dataset.schema import LABELS, PARAPHRASE, variant_id

Row = dict[str, Any]

Problem = tuple[str, str, str, Sequence[int], Sequence[str]]
"""Premise, hypothesis, gold label, annotators' votes, paraphrases of the hypothesis."""

PROBLEMS: Mapping[str, Problem] = {
    "1": ("A girl and a small dog run.", "A girl has a small dog.", "neutral", (1, 1, 2),
        ("A girl owns a little dog.", "There is a girl with a small dog.",
          "The girl’s dog is 🐕.")),
    "2": ("A girl sees another girl.", "The girl sees somebody.", "entailment", (0, 0, 0),
        ("Somebody is seen by the girl.", "The girl can see a person.")),
    "4": ("Two boys sing.", "Nobody makes a sound.", "contradiction", (), ("It is all quiet.",)),
}  # fmt: skip
"""Pair id → problem that the NLI model answers right."""

NLI_MODEL = {
    "kind": "classifier",
    "name": "/opt/models/some-nli-model",
    "revision": "sha256:0123456789ab",
    "architecture": "RobertaForSequenceClassification",
    "dtype": "float32",
    "device": "cpu",
    "label_order": ["contradiction", "neutral", "entailment"],
    "packages": {"torch": "2.13.0"},
}

PROMPT = "Rephrase the following sentence while preserving its original meaning: {hypothesis}"


def paraphrase_id(seed_id: str, text: str) -> str:
    return variant_id(seed_id, PARAPHRASE, "", text)


def problem_row(seed_id: str, problem: Problem) -> Row:
    premise, hypothesis, label, votes, _ = problem
    return seed_row(seed_id, (premise, hypothesis), LABELS.index(label), votes)


def paraphrased_row(seed: Row, text: str) -> Row:
    """A row of the split `variants` in which the whole hypothesis is replaced."""
    return seed | {
        "variant_id": paraphrase_id(seed["seed_id"], text),
        "hypothesis": text,
        "word_class": PARAPHRASE,
        "original": seed["hypothesis"],
        "replacement": text,
        "hypothesis_spans": [[0, len(text)]],
        "subsamples": [0],
    }


def rows_of(
    source: str = "snli", problems: Mapping[str, Problem] = PROBLEMS
) -> tuple[list[Row], list[Row]]:
    """Rows of seeds, sorted by id, and of variants, sorted by seed and id."""
    seeds = [problem_row(f"{source}:{name}", problem) for name, problem in sorted(problems.items())]
    variants = [
        paraphrased_row(seed, text)
        for seed in seeds
        for text in problems[seed["seed_id"].removeprefix(f"{source}:")][4]
    ]
    return seeds, sorted(variants, key=lambda row: (row["seed_id"], row["variant_id"]))


def manifest(
    source: str = "snli", problems: Mapping[str, Problem] = PROBLEMS, **changes: Any
) -> dict[str, Any]:
    """A run's manifest, with details that a dataset must not reveal."""
    kept = sum(len(texts) for *_, texts in problems.values())
    return {
        "kind": "paraphrases",
        "source": source,
        "config": {"source": source, "data": "/home/somebody/snli/test.jsonl",
            "generator": "/opt/models/flan-t5", "prompt": PROMPT, "k": 10, "max_rounds": 2,
            "temperature_min": 0.3, "temperature_max": 0.6, "num_beams": 20, "num_beam_groups": 10,
            "diversity_penalty": 0.5, "sibling_penalty": 0.0, "max_new_tokens": 40, "limit": None,
            "rng_seed": 0, "run": "runs/some run", "device": "cpu"},
        "generator": {"name": "/opt/models/flan-t5", "revision": "sha256:fedcba987654",
            "architecture": "T5ForConditionalGeneration", "dtype": "float32", "device": "cpu"},
        "nli_model": NLI_MODEL,
        "prompt": PROMPT,
        "packages": {"torch": "2.13.0", "transformers": "5.23.0"},
        "fingerprint": "89abcdef01234567",
        "problems": {"read": 1000, "unlabelled": 20, "kept": 980, "answered_right": 800},
        "source_data": {"description": "file /home/somebody/test.jsonl", "sha256": "ab12"},
        "funnel": [{"round": 1, "generated": 1600 + kept, "copy": 400, "duplicate": 200,
            "not_entailed": 1001, "kept": kept - 1}, {"round": 2, "generated": 400, "copy": 40,
            "duplicate": 160, "not_entailed": 199, "kept": 1}],
        "eligible": {"paraphrase": len(problems)},
        "variants": kept,
        EXPLAINED: {"settings": {}, "funnel": {}},
        "files": {},
        "started": "2026-01-28T10:58:59Z",
        **changes,
    }  # fmt: skip


def write_paraphrase_run(
    folder: Path, source: str = "snli", problems: Mapping[str, Problem] = PROBLEMS, **changes: Any
) -> Path:
    """Write a run folder; `changes` replaces values of the manifest, such as `nli_model`."""
    seeds, variants = rows_of(source, problems)
    return write_run(folder, seeds, variants, manifest(source, problems, **changes))
