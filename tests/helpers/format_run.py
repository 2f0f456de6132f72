"""Run folders of problems that are not of NLI, written by hand: a seed and a variant each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from helpers.dataset_files import write_rows
from merge_dataset.schema import ProblemFormat, arrow_schema, variant_id

PAIRS: Final = ProblemFormat(("first", "second"), ("other", "same"))
READING: Final = ProblemFormat(("context", "question", "answer"), ("wrong", "right"))

_TEXTS: Final = {
    PAIRS: ("A dog sleeps.", "The dog sleeps."),
    READING: ("The dog found a key.", "What did the dog find?", "A key."),
}
"""Format → texts of the seed, in which "dog" becomes "cat"."""

_SHARED: Final[dict[ProblemFormat, tuple[str, ...]]] = {
    PAIRS: (),
    READING: ("context", "question"),
}


def rows_of(problem_format: ProblemFormat, source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The seed and its variant."""
    texts = dict(zip(problem_format.fields, _TEXTS[problem_format], strict=True))
    empty = {
        field.name: [] if pa.types.is_list(field.type) else None
        for field in arrow_schema(problem_format)
    }
    seed_id = f"{source}:1"
    seed = empty | texts | {
        "variant_id": seed_id, "seed_id": seed_id, "source": source, "label": 1
    }  # fmt: skip
    changed = [field for field, text in texts.items() if "dog" in text]
    variant = seed | {
        "variant_id": variant_id(seed_id, "noun", "dog", "cat"),
        **{field: text.replace("dog", "cat") for field, text in texts.items()},
        "word_class": "noun",
        "original": "dog",
        "replacement": "cat",
        **{f"{field}_spans": [_span(texts[field])] for field in changed},
        "mlms": ["a"],
        **{f"{field}_mlms": ["a"] for field in changed},
        "log_odds": 0.5,
        "mlm_count": 1,
        "subsamples": [0],
    }
    return seed, variant


def write_run(run: Path, problem_format: ProblemFormat, *, source: str = "") -> Path:
    """A run folder with just what an export reads."""
    source = source or ("pairs" if problem_format == PAIRS else "reading")
    for split, row in zip(("seeds", "variants"), rows_of(problem_format, source), strict=True):
        write_rows(run / f"{split}.parquet", [row], arrow_schema(problem_format))
    config: dict[str, Any] = {
        "fields": problem_format.fields, "labels": problem_format.labels, "subsamples": 1
    }  # fmt: skip
    if shared := _SHARED[problem_format]:
        config["shared_fields"] = shared
    manifest = {
        "source": source,
        "config": config,
        "mlms": [],
        "tagger": "en_core_web_sm",
        "packages": {},
        "fingerprint": "0",
        "problems": {"read": 1, "unlabelled": 0, "kept": 1},
        "source_data": {"description": "by hand", "sha256": "0"},
        "funnel": [],
        "eligible": {"noun": 1},
        "ablation": None,
    }
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return run


def _span(text: str) -> list[int]:
    start = text.index("dog")
    return [start, start + len("dog")]
