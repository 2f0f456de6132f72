"""The dataset contract: formats of problems, classes of variants, configuration names, columns.

The loading script copies this module alone, so the table of columns is imported where it is needed.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

    from .dataset_columns import DatasetColumn

DATASET_NAME: Final = "merge-nli"
"""The name users load: `load_dataset("merge-nli", "snli_nouns")`."""

LABELS: Final = ("entailment", "neutral", "contradiction")
"""Gold labels of NLI; the integer stored in a file is the position here."""

TAGS_OF_CLASSES: Final = {
    "noun": ("NOUN", ("NN", "NNS")),
    "verb": ("VERB", ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ")),
    "adjective": ("ADJ", ("JJ", "JJR", "JJS")),
    "adverb": ("ADV", ("RB", "RBR", "RBS")),
}
"""Class of words that MERE replaces (paper, section 3, footnote 3) → universal tag, Penn tags."""

WORD_CLASSES: Final = tuple(TAGS_OF_CLASSES)

PARAPHRASE: Final = "paraphrase"
"""The class of variants whose hypothesis is paraphrased as a whole."""

VARIANT_CLASSES: Final = (*WORD_CLASSES, PARAPHRASE)
"""Values of the column `word_class` of a variant."""

CONFIG_SUFFIXES: Final = {name: f"{name}s" for name in VARIANT_CLASSES}
"""Class of variants → the ending of its configuration's name and its folder."""

ANLI_SOURCES: Final = ("anli-r1", "anli-r2", "anli-r3")
"""The test sets of the three rounds of Adversarial NLI."""

DEMO_SOURCE: Final = "demo"
"""The problems that come with this package."""

KNOWN_SOURCES: Final = (DEMO_SOURCE, "snli", "mnli-m", "mnli-mm", *ANLI_SOURCES)
"""Sources whose licence is known and whose configurations the loading script lists.

The paper uses SNLI's test set, and MultiNLI's development sets, matched and mismatched (D15)."""

SPLITS: Final = ("seeds", "variants")

METADATA: Final = b"merge-nli"
"""Key under which a table's metadata holds its format, unless it is `NLI`."""


def _columns_of(optional: Iterable[str]) -> list[DatasetColumn]:
    from .dataset_columns import COLUMNS

    return [column for column in COLUMNS if not column.optional or column.name in optional]


def _column_names(problem_format: ProblemFormat) -> list[str]:
    columns = _columns_of(problem_format.optional)
    return [name for column in columns for name in column.names(problem_format.fields)]


@dataclass(frozen=True, slots=True)
class ProblemFormat:
    """The parts of a problem: texts, and one of some labels."""

    fields: tuple[str, ...]
    """Names of the texts, which are columns of the dataset."""
    labels: tuple[str, ...]
    """The integer stored in a file is the position here."""
    optional: tuple[str, ...] = field(default=(), compare=False)
    """Optional columns in files; formats that differ in nothing else are equal."""

    def __post_init__(self) -> None:
        """Raise ValueError for names that files cannot have."""
        fields, labels = self.fields, self.labels
        if (fields, labels, self.optional) == (("premise", "hypothesis"), LABELS, ()):
            return  # `NLI`, without the table of columns
        from .dataset_columns import OPTIONAL

        names = _column_names(self)
        is_few, is_twice = len(fields) < 2, len(labels) < 2 or len({*labels}) < len(labels)
        for expected, wrong in {
            "fields: expected two or more": (fields or ("none",)) * is_few,
            "fields: expected lower-case letters, digits and underscores, a letter first": [
                name for name in fields if not re.fullmatch(r"[a-z][a-z0-9_]*", name)
            ],
            f"optional: expected names of {', '.join(OPTIONAL)}": [
                name for name in self.optional if name not in OPTIONAL
            ],
            "fields: expected names that differ from each other and from the dataset's columns": [
                name for name in names if names.count(name) > 1
            ],
            "labels: expected two or more different ones": (labels or ("none",)) * is_twice,
            "labels: expected text without white space around it": [
                label for label in labels if not label or label != label.strip()
            ],
        }.items():
            if wrong:
                raise ValueError(f"{expected}, got {', '.join(map(repr, wrong))}")

    @property
    def described(self) -> str:
        """Fields and labels in words, for messages."""
        return f"fields {', '.join(self.fields)} and the labels {', '.join(self.labels)}"

    @property
    def spans(self) -> tuple[str, ...]:
        """Columns that say where in each field a variant was changed."""
        return tuple(f"{field}_spans" for field in self.fields)

    @property
    def mlms(self) -> tuple[str, ...]:
        """Columns that say who validated the replacement in each field."""
        return tuple(f"{field}_mlms" for field in self.fields)

    @property
    def pll_changes(self) -> tuple[str, ...]:
        """Columns with the change of each field's pseudo-log-likelihood."""
        return tuple(f"{field}_pll_change" for field in self.fields)

    @property
    def signals(self) -> tuple[str, ...]:
        """Columns with automatic signals of a replacement's quality; null where not known."""
        names = _column_names(self)
        return tuple(names[names.index("log_odds") + 1 : names.index("subsamples")])

    def as_record(self) -> dict[str, list[str]]:
        """Return fields and labels for JSON; which columns there are, a file says itself."""
        return {"fields": list(self.fields), "labels": list(self.labels)}

    def with_optional(self, names: Iterable[str]) -> ProblemFormat:
        """Return the format with these optional columns, in the order of `COLUMNS`."""
        from .dataset_columns import OPTIONAL

        asked = set(names)
        known = [name for name in OPTIONAL if name in asked]
        return replace(self, optional=(*known, *sorted(asked.difference(known))))


NLI: Final = ProblemFormat(("premise", "hypothesis"), LABELS)
"""The format of natural language inference, which problems have unless another is named."""


def is_source(name: str) -> bool:
    """Tell whether `name` is lower-case letters, digits and single hyphens, as of a source."""
    return re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) is not None


def config_name(source: str, variant_class: str | None = None) -> str:
    """Name a configuration; without a class, the one of all word classes.

    >>> config_name("snli", "noun"), config_name("mnli-m"), config_name("snli", PARAPHRASE)
    ('snli_nouns', 'mnli-m', 'snli_paraphrases')
    """
    return source if variant_class is None else f"{source}_{CONFIG_SUFFIXES[variant_class]}"


def parse_config_name(name: str) -> tuple[str, str | None]:
    """Split a configuration's name into source and class; inverse of `config_name`."""
    source, _, suffix = name.partition("_")
    classes = {"": None, **{ending: of for of, ending in CONFIG_SUFFIXES.items()}}
    if not is_source(source) or suffix not in classes:
        raise ValueError(
            f"expected a configuration such as snli, or snli_ and one of "
            f"{', '.join(CONFIG_SUFFIXES.values())}, got {name!r}"
        )
    return source, classes[suffix]


def collection_name(source: str, variant_class: str | None = None) -> str:
    """Name the top folder of a configuration: what one run makes, replaced as a whole."""
    return config_name(source, PARAPHRASE if variant_class == PARAPHRASE else None)


def config_files(name: str) -> dict[str, tuple[str, ...]]:
    """List the files a configuration may have, by split; see `numbered_file` for large ones.

    That of all classes has the variants of every word class, not the paraphrases, and seeds of its
    own.

    >>> config_files("snli_nouns")["variants"], config_files("snli")["seeds"]
    (('snli/nouns/variants.parquet',), ('snli/seeds.parquet',))
    >>> config_files("snli_paraphrases")["seeds"]
    ('snli_paraphrases/seeds.parquet',)
    """
    source, variant_class = parse_config_name(name)
    if variant_class == PARAPHRASE:
        return {split: (f"{name}/{split}.parquet",) for split in SPLITS}
    classes = WORD_CLASSES if variant_class is None else (variant_class,)
    folders = [f"{source}/{CONFIG_SUFFIXES[variant_class]}" for variant_class in classes]
    return {
        "seeds": (f"{source if variant_class is None else folders[0]}/seeds.parquet",),
        "variants": tuple(f"{folder}/variants.parquet" for folder in folders),
    }


def replacement_columns(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """List the columns that say how a variant came about, empty in `seeds`."""
    names = _column_names(problem_format)
    return tuple(names[names.index("word_class") : names.index("annotator_labels")])


def column_meanings(problem_format: ProblemFormat = NLI) -> dict[str, str]:
    """Map each column to what it holds where words are replaced."""
    labels = ", ".join(f"{n} {label}" for n, label in enumerate(problem_format.labels))
    return {
        name: column.meaning.format(labels=labels)
        for column in _columns_of(problem_format.optional)
        for name in column.names(problem_format.fields)
    }


def variant_id(seed_id: str, variant_class: str, original: str, replacement: str) -> str:
    """Make a variant's id: seed, class and words, or 12 digits of a paraphrase's SHA-256.

    >>> variant_id("snli:1", "noun", "girl a", "owl an")
    'snli:1/noun/girl+a/owl+an'
    >>> variant_id("snli:1", PARAPHRASE, "A girl jumps.", "A girl leaps.")
    'snli:1/paraphrase/e42b39af0e99'
    """
    if variant_class == PARAPHRASE:
        parts = [hashlib.sha256(replacement.encode()).hexdigest()[:12]]
    else:
        parts = [words.replace(" ", "+") for words in (original, replacement)]
    return f"{seed_id}/{variant_class}/{'/'.join(parts)}"


def changed_words(original: str, replacement: str) -> dict[str, str]:
    """Map each replacement to its original; the i-th of one became the i-th of the other."""
    return dict(zip(replacement.split(" "), original.split(" "), strict=False))


def arrow_schema(problem_format: ProblemFormat = NLI) -> pa.Schema:
    """Make the schema of both splits' Parquet files, with the labels of formats but NLI's.

    Without `huggingface` metadata: `datasets` 3.6 refuses list columns written for 5.x.
    """
    import pyarrow as pa

    types = {
        "text": pa.string(),
        "label": pa.int64(),
        "labels": pa.list_(pa.int64()),
        "spans": pa.list_(pa.list_(pa.int32())),
        "names": pa.list_(pa.string()),
        "number": pa.float32(),
        "count": pa.int32(),
        "flag": pa.bool_(),
        "numbers": pa.list_(pa.int32()),
    }
    columns = [
        (name, types[column.kind])
        for column in _columns_of(problem_format.optional)
        for name in column.names(problem_format.fields)
    ]
    return with_format(pa.schema(columns), problem_format)


def with_format(schema: pa.Schema, problem_format: ProblemFormat) -> pa.Schema:
    """Record in a schema of what format the problems in a table are."""
    if problem_format == NLI:
        return schema
    return schema.with_metadata({METADATA: json.dumps(problem_format.as_record())})


def format_of(schema: pa.Schema) -> ProblemFormat:
    """Read the format that `with_format` recorded, with the optional columns that there are."""
    from .dataset_columns import OPTIONAL

    known = [name for name in OPTIONAL if name in schema.names]
    if METADATA not in (schema.metadata or {}):
        return NLI.with_optional(known)
    try:
        recorded = json.loads(schema.metadata[METADATA])
        problem_format = ProblemFormat(tuple(recorded["fields"]), tuple(recorded["labels"]))
        return problem_format.with_optional(
            name for name in known if name not in problem_format.fields
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"metadata {METADATA.decode()}: expected fields and labels, got "
            f"{schema.metadata[METADATA].decode(errors='replace')}: {error}"
        ) from error


def features(schema: pa.Schema) -> datasets.Features:
    """Make the features of `datasets` for the columns of a file, label names included."""
    import datasets

    recorded = (schema.metadata or {}).get(METADATA)
    names = json.loads(recorded)["labels"] if recorded else LABELS
    label = datasets.ClassLabel(names=list(names))
    types = {"label": label, "annotator_labels": datasets.Sequence(label)}
    arrow = datasets.Features.from_arrow_schema(schema.remove_metadata())
    return datasets.Features({name: types.get(name, arrow[name]) for name in arrow})


# --- Files of a configuration, numbered ones of large splits too ---

_NUMBERED: Final = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.parquet$")


def numbered_file(name: str, number: int, count: int) -> str:
    """Name one of the files that a large split is divided into, in the order of its rows.

    >>> numbered_file("snli/seeds.parquet", 2, 12)
    'snli/seeds-00002-of-00012.parquet'
    """
    return f"{name.removesuffix('.parquet')}-{number:05}-of-{count:05}.parquet"


def patterns_of(files: Sequence[str]) -> list[str]:
    """Put a pattern in place of the files that one is divided into.

    >>> patterns_of(["a/seeds.parquet", "b/seeds-00000-of-00002.parquet",
    ...              "b/seeds-00001-of-00002.parquet"])
    ['a/seeds.parquet', 'b/seeds-*-of-00002.parquet']
    """
    return list(dict.fromkeys(_NUMBERED.sub(r"-*-of-\g<count>.parquet", file) for file in files))


def split_files(root: str | Path, config: str) -> dict[str, list[str]]:
    """List a configuration's files by split, relative to the folder, or a URL of fsspec."""
    base = _base_of(root)
    exists, find = os.path.exists, glob.glob
    if "://" in base:
        from fsspec.core import url_to_fs

        filesystem, _ = url_to_fs(base)
        exists, find = filesystem.exists, filesystem.glob
    return {
        split: [file for name in names for file in _files(exists, find, base, name)]
        for split, names in config_files(config).items()
    }


def find_files(root: str | Path, config: str) -> dict[str, list[str]]:
    """List the files of a configuration by split, absolute; an error where one has none."""
    if "://" not in str(root):
        root = Path(root).expanduser()
    base, files = _base_of(root), split_files(root, config)
    for split, names in config_files(config).items():
        if not files[split]:
            raise FileNotFoundError(
                f"configuration {config!r}, split {split!r}: expected "
                f"{' or '.join(f'{base}/{name}' for name in names)}, "
                f"found none; pass data_dir=<the folder that `merge-nli build` wrote>, or "
                f"make the source and class of variants this configuration is named after"
            )
    return {split: [f"{base}/{name}" for name in names] for split, names in files.items()}


def _base_of(root: str | Path) -> str:
    return str(root) if "://" in str(root) else Path(root).resolve().as_posix()


def _files(
    exists: Callable[[str], bool], find: Callable[[str], list[str]], base: str, name: str
) -> list[str]:
    if exists(f"{base}/{name}"):
        return [name]
    stem = glob.escape(f"{base}/{name.removesuffix('.parquet')}")
    folder, paths = name.rpartition("/")[0], find(f"{stem}-?????-of-?????.parquet")
    files = sorted(f"{folder}/{Path(path).name}" for path in paths)
    count = int(_NUMBERED.search(files[-1])["count"]) if files else 0  # type: ignore[index]
    expected = [numbered_file(name, number, count) for number in range(count)]
    if files != expected:
        missing = [file for file in expected if file not in files]
        raise FileNotFoundError(
            f"{base}/{name}: expected the {count:,} files that it is divided into, "
            f"{expected[0]} to {expected[-1]}, got {len(files):,} files"
            + (f", without {', '.join(missing[:3])}" if missing else "")
        )
    return files


def content_hash(root: str | Path, config: str) -> str:
    """Digest the names and bytes of a local configuration's files to 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for split, paths in find_files(root, config).items():
        for path in paths:
            digest.update(f"{split} {Path(path).parent.name}\n".encode())
            with Path(path).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
