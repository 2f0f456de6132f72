"""The dataset contract: labels, classes of variants, configuration names, columns.

The other packages meet here and nowhere else, so this module imports nothing of
ours, and `datasets` and `pyarrow` only when a function that needs them is called.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

DATASET_NAME: Final = "merge-nli"
"""The name users load: `load_dataset("merge-nli", "snli_nouns")`."""

LABELS: Final = ("entailment", "neutral", "contradiction")
"""Gold labels; the integer stored in a file is the position here."""

WORD_CLASSES: Final = ("noun", "verb", "adjective", "adverb")
"""Classes of words that MERE replaces (paper, section 3, footnote 3)."""

PARAPHRASE: Final = "paraphrase"
"""The class of variants whose hypothesis is paraphrased as a whole."""

VARIANT_CLASSES: Final = (*WORD_CLASSES, PARAPHRASE)
"""What the column `word_class` of a variant may hold."""

CONFIG_SUFFIXES: Final = {
    "noun": "nouns",
    "verb": "verbs",
    "adjective": "adjectives",
    "adverb": "adverbs",
    PARAPHRASE: "paraphrases",
}
"""Class of variants → the ending of its configuration's name and its folder."""

PAPER_SOURCES: Final = ("snli", "mnli-m", "mnli-mm")
"""Sources the paper uses: SNLI test, MultiNLI dev matched and mismatched (D15)."""

ANLI_SOURCES: Final = ("anli-r1", "anli-r2", "anli-r3")
"""The test sets of the three rounds of Adversarial NLI."""

DEMO_SOURCE: Final = "demo"
"""The problems that come with this package."""

KNOWN_SOURCES: Final = (DEMO_SOURCE, *PAPER_SOURCES, *ANLI_SOURCES)
"""Those whose licence is known and whose configurations the loading script lists."""

SPLITS: Final = ("seeds", "variants")

SIGNALS: Final = (
    "mlm_count",
    "premise_pll_change",
    "hypothesis_pll_change",
    "zipf_frequency",
    "number_changed",
    "tense_changed",
    "article_fits",
)
"""What a program can tell of a replacement's quality, beside `log_odds`; null where not known."""

REPLACEMENT_COLUMNS: Final = (
    "word_class",
    "original",
    "replacement",
    "premise_spans",
    "hypothesis_spans",
    "mlms",
    "premise_mlms",
    "hypothesis_mlms",
    "log_odds",
    *SIGNALS,
    "subsamples",
)
"""Columns that say how a variant came about; empty (null, "" or []) in the split `seeds`."""

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def is_source(name: str) -> bool:
    """Whether `name` can name a source; see `check_source`."""
    return _SLUG.fullmatch(name) is not None


def check_source(source: str) -> str:
    """Return `source` if it can name a source, else raise.

    A slug is lower-case letters, digits and single hyphens; underscores are left
    for the class of variants in configuration names.

    Raises:
        ValueError: `source` is not a slug.

    >>> check_source("mnli-m")
    'mnli-m'
    """
    if not is_source(source):
        raise ValueError(
            f"expected a source name of lower-case letters, digits and hyphens such as "
            f"'anli-r1', got {source!r}"
        )
    return source


def config_name(source: str, variant_class: str | None = None) -> str:
    """Name of a configuration; without a class, the one of all word classes.

    >>> config_name("snli", "noun"), config_name("mnli-m"), config_name("snli", PARAPHRASE)
    ('snli_nouns', 'mnli-m', 'snli_paraphrases')
    """
    check_source(source)
    return source if variant_class is None else f"{source}_{CONFIG_SUFFIXES[variant_class]}"


def parse_config_name(name: str) -> tuple[str, str | None]:
    """Source and class of variants of a configuration; the inverse of `config_name`.

    Raises:
        ValueError: `name` is no configuration name.

    >>> parse_config_name("snli_nouns"), parse_config_name("demo")
    (('snli', 'noun'), ('demo', None))
    """
    source, _, suffix = name.partition("_")
    check_source(source)
    if not suffix:
        return source, None
    for variant_class, ending in CONFIG_SUFFIXES.items():
        if ending == suffix:
            return source, variant_class
    raise ValueError(
        f"expected a configuration ending in one of {sorted(CONFIG_SUFFIXES.values())}, "
        f"got {name!r}"
    )


def collection_name(source: str, variant_class: str | None = None) -> str:
    """The top folder of a configuration: what one run makes, exported and replaced as a whole.

    The replacements of a source, all word classes, are one collection and its
    paraphrases another.

    >>> collection_name("snli"), collection_name("snli", "noun")
    ('snli', 'snli')
    >>> collection_name("snli", PARAPHRASE)
    'snli_paraphrases'
    """
    return config_name(source, PARAPHRASE if variant_class == PARAPHRASE else None)


def config_files(name: str) -> dict[str, tuple[str, ...]]:
    """Files a configuration may consist of, by split, relative to the dataset folder.

    The all-classes configuration has seeds of its own, because a seed that is
    eligible in two classes stands in both classes' files, and lists the variants of
    every word class that the folder has, not the paraphrases. A class has variants or
    no configuration at all.

    Raises:
        ValueError: `name` is no configuration name.

    >>> config_files("snli_nouns")["variants"], config_files("snli")["seeds"]
    (('snli/nouns/variants.parquet',), ('snli/seeds.parquet',))
    >>> config_files("snli_paraphrases")["seeds"]
    ('snli_paraphrases/seeds.parquet',)
    """
    source, variant_class = parse_config_name(name)
    if variant_class == PARAPHRASE:
        return {split: (f"{name}/{split}.parquet",) for split in SPLITS}
    classes = WORD_CLASSES if variant_class is None else (variant_class,)
    folders = [f"{source}/{CONFIG_SUFFIXES[each]}" for each in classes]
    return {
        "seeds": (f"{source if variant_class is None else folders[0]}/seeds.parquet",),
        "variants": tuple(f"{folder}/variants.parquet" for folder in folders),
    }


def arrow_schema() -> pa.Schema:
    """Columns of both splits as they lie in the Parquet files.

    Carries no `huggingface` metadata: with it, `datasets` 3.6 refuses list columns
    written for 5.x. The label names stand in the card's YAML instead.
    """
    import pyarrow as pa

    spans = pa.list_(pa.list_(pa.int32()))
    names = pa.list_(pa.string())
    return pa.schema(
        [
            ("variant_id", pa.string()),
            ("seed_id", pa.string()),
            ("source", pa.string()),
            ("premise", pa.string()),
            ("hypothesis", pa.string()),
            ("label", pa.int64()),
            ("word_class", pa.string()),
            ("original", pa.string()),
            ("replacement", pa.string()),
            ("premise_spans", spans),
            ("hypothesis_spans", spans),
            ("mlms", names),
            ("premise_mlms", names),
            ("hypothesis_mlms", names),
            ("log_odds", pa.float32()),
            ("mlm_count", pa.int32()),
            ("premise_pll_change", pa.float32()),
            ("hypothesis_pll_change", pa.float32()),
            ("zipf_frequency", pa.float32()),
            ("number_changed", pa.bool_()),
            ("tense_changed", pa.bool_()),
            ("article_fits", pa.bool_()),
            ("subsamples", pa.list_(pa.int32())),
            ("annotator_labels", pa.list_(pa.int64())),
        ]
    )


def features() -> datasets.Features:
    """The same columns as `datasets` features.

    `label` and `annotator_labels` are class labels over `LABELS`. Spans are
    half-open [start, end) character offsets of the replacement in the row's own
    premise or hypothesis; a paraphrase is the whole hypothesis. `log_odds` and
    changes of pseudo-log-likelihood (`*_pll_change`) are in nats.
    In the split `seeds` the replacement columns are empty and `variant_id` equals
    `seed_id`.
    """
    import datasets

    label = datasets.ClassLabel(names=list(LABELS))
    types = {
        "label": label,
        "annotator_labels": datasets.Sequence(label),
    }
    arrow = datasets.Features.from_arrow_schema(arrow_schema())
    return datasets.Features({name: types.get(name, arrow[name]) for name in arrow})
