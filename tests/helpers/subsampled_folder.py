"""A dataset folder with texts, two word classes and three subsamples, and a card."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from helpers.dataset_files import write_rows
from helpers.tiny_models import sentences
from merge_dataset.export import export_dataset

Row = dict[str, Any]

SUBSAMPLES: Final = 3

_MANIFEST: Final[Mapping[str, Any]] = {
    "config": {"recipe": "paper-v2", "masking": "single", "subsamples": SUBSAMPLES},
    "mlms": [],
    "tagger": "none",
    "packages": {},
    "fingerprint": "f00d",
    "problems": {"read": 20, "unlabelled": 0, "kept": 20},
    "source_data": {"description": "made up", "sha256": None},
    "funnel": [],
    "eligible": {"noun": 8, "verb": 4},
    "ablation": None,
}


def write_folder(folder: Path, *, source: str = "snli", seeds: int = 8) -> Path:
    """Write a dataset folder: every seed has nouns, every other one verbs too.

    Args:
        folder: Where; the run that it is exported from is beside it.
        source: Name of the source.
        seeds: How many.
    """
    texts, rng = sentences(300), random.Random(7)
    of_seeds, variants = [], []
    for number in range(seeds):
        name, label = f"{source}:{number}", number % 3
        # Like what users have: quotes, commas, braces, and letters beyond ASCII.
        premise = f'{texts[number]} "Café {{x}}", it says.'
        of_seeds.append(_row(name, name, source, premise, texts[100 + number], label))
        for word_class in ("noun", "verb")[: 1 + (number % 2)]:
            for i in range(6):
                variant = f"{name}/{word_class}/{i}"
                row = _row(
                    variant, name, source, texts[rng.randrange(200)], texts[200 + number], label
                )
                drawn = {i % SUBSAMPLES} | {k for k in range(SUBSAMPLES) if rng.random() < 0.3}
                row |= {
                    "word_class": word_class,
                    "original": "x",
                    "replacement": "y",
                    "premise_spans": [[0, 1], [2, 3]],
                    "mlms": ["a/b", "c"],
                    "log_odds": 0.1 * (i + 1),
                    "mlm_count": 2,
                    "zipf_frequency": 4.0 + 0.1 * i,
                    "number_changed": i % 2 == 0,
                    "article_fits": None if i else True,
                    "subsamples": sorted(drawn),
                }
                variants.append(row)
    run = folder.with_name(f"run-of-{folder.name}")
    run.mkdir(parents=True)
    (run / "manifest.json").write_text(json.dumps({"source": source, **_MANIFEST}))
    for split, rows in (("seeds", of_seeds), ("variants", variants)):
        write_rows(run / f"{split}.parquet", rows)
    export_dataset(run, folder)
    return folder


def _row(variant: str, seed: str, source: str, premise: str, hypothesis: str, label: int) -> Row:
    lists = ("premise_spans", "hypothesis_spans", "mlms", "premise_mlms", "hypothesis_mlms")
    return {
        "variant_id": variant,
        "seed_id": seed,
        "source": source,
        "premise": premise,
        "hypothesis": hypothesis,
        "label": label,
        **{name: [] for name in lists},
        "subsamples": [],
        "annotator_labels": [label, 1],
    }
