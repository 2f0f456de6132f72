from pathlib import Path
from typing import Any, Final

from helpers.dataset_files import run_manifest, seed_row, variant_row, write_run
from merge_dataset.schema import ProblemFormat

PAIRS: Final = ProblemFormat(("first", "second"), ("other", "same"))
READING: Final = ProblemFormat(("context", "question", "answer"), ("wrong", "right"))

_TEXTS: Final = {
    PAIRS: ("A dog sleeps.", "The dog sleeps."),
    READING: ("The dog found a key.", "What did the dog find?", "A key."),
}
"""Format → texts of a seed, in which "dog" becomes "cat"."""

_SHARED: Final[dict[ProblemFormat, tuple[str, ...]]] = {PAIRS: (), READING: ("context", "question")}


def rows_of(problem_format: ProblemFormat, source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    texts = _TEXTS[problem_format]
    seed = seed_row(f"{source}:1", texts, 1, problem_format=problem_format)
    by_field = zip(problem_format.fields, texts, strict=True)
    validated = {field: ["a"] for field, text in by_field if "dog" in text}
    columns: dict[str, Any] = {"log_odds": 0.5, "mlm_count": 1, "subsamples": [0]}
    return seed, variant_row(seed, "noun", "dog", "cat", validated, **columns)


def write_format_run(run: Path, problem_format: ProblemFormat, *, source: str = "") -> Path:
    source = source or ("pairs" if problem_format == PAIRS else "reading")
    seed, variant = rows_of(problem_format, source)
    config: dict[str, Any] = {
        "fields": problem_format.fields, "labels": problem_format.labels, "subsamples": 1
    }  # fmt: skip
    if shared := _SHARED[problem_format]:
        config["shared_fields"] = shared
    counts = {"read": 1, "unlabelled": 0, "kept": 1}
    manifest = run_manifest(source, config=config, problems=counts, eligible={"noun": 1})
    return write_run(run, [seed], [variant], manifest, problem_format)
