"""The dataset contract: formats of problems, classes of variants, configuration names, columns.

The other packages meet here and nowhere else, so this module imports nothing of
ours, and `datasets` and `pyarrow` only when a function that needs them is called.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

DATASET_NAME: Final = "merge-nli"
"""The name users load: `load_dataset("merge-nli", "snli_nouns")`."""

LABELS: Final = ("entailment", "neutral", "contradiction")
"""Gold labels of NLI; the integer stored in a file is the position here."""

WORD_CLASSES: Final = ("noun", "verb", "adjective", "adverb")
"""Classes of words that MERE replaces (paper, section 3, footnote 3)."""

PARAPHRASE: Final = "paraphrase"
"""The class of variants whose hypothesis is paraphrased as a whole."""

VARIANT_CLASSES: Final = (*WORD_CLASSES, PARAPHRASE)
"""Values of the column `word_class` of a variant."""

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
"""Sources whose licence is known and whose configurations the loading script lists."""

SPLITS: Final = ("seeds", "variants")

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FIELD = re.compile(r"[a-z][a-z0-9_]*")

_METADATA: Final = b"merge-nli"
"""Key under which a table's metadata holds its format, unless it is `NLI`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the dataset, or a column for each of a problem's texts."""

    name: str
    """With `{field}` in it, there is one for each text."""
    kind: str
    """Its type: a key in `arrow_schema`."""
    summary: str
    """A sentence that holds for both splits."""
    meaning: str
    """Its content in variants that replace words, as the card says it; `{labels}` in it are the
    labels with their numbers."""
    in_paraphrases: str = ""
    """Its content in paraphrases, where that is something else."""

    @property
    def per_field(self) -> bool:
        """True if there is one for each of a problem's texts."""
        return "{field}" in self.name

    def names(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Names of the columns for these texts.

        >>> COLUMNS[3].names(["premise", "hypothesis"]), COLUMNS[0].names(["premise"])
        (('premise', 'hypothesis'), ('variant_id',))
        """
        return tuple(self.name.format(field=f) for f in fields) if self.per_field else (self.name,)


COLUMNS: Final = (
    Column(
        name="variant_id",
        kind="text",
        summary="Identifier, unique in the configuration; of a seed, its own.",
        meaning="identifier, unique in the configuration; in `seeds` the seed's own",
    ),
    Column(
        name="seed_id",
        kind="text",
        summary="Identifier of the seed that a variant was made from; of a seed, its own.",
        meaning="identifier of the seed: join the splits and group the variants by it",
    ),
    Column(
        name="source",
        kind="text",
        summary="Where the seed is from.",
        meaning="where the seed is from, for example `snli`",
    ),
    Column(
        name="{field}",
        kind="text",
        summary="The {field}, with the replacement in place.",
        meaning="the two sentences, the replacement in place",
    ),
    Column(
        name="label",
        kind="label",
        summary="The gold label; a variant has its seed's.",
        meaning="{labels}; a variant has its seed's",
    ),
    Column(
        name="word_class",
        kind="text",
        summary="Class of the variant: what was replaced. Empty for seeds.",
        meaning="`noun`, `verb`, `adjective` or `adverb`",
        in_paraphrases="`paraphrase`",
    ),
    Column(
        name="original",
        kind="text",
        summary="What was replaced. Empty for seeds.",
        meaning="the seed's word",
        in_paraphrases="the seed's hypothesis",
    ),
    Column(
        name="replacement",
        kind="text",
        summary="What stands in its place. Empty for seeds.",
        meaning="the word that stands in its place",
        in_paraphrases="the variant's hypothesis",
    ),
    Column(
        name="{field}_spans",
        kind="spans",
        summary="Half-open character offsets of the replacement in the {field}.",
        meaning="where the replacement stands in this row's sentences: half-open [start, end) "
        "character offsets, one pair for each occurrence",
        in_paraphrases="none, and the whole hypothesis",
    ),
    Column(
        name="mlms",
        kind="names",
        summary="The masked language models that validated the replacement in either sentence.",
        meaning="the masked language models that validated the replacement in either sentence; "
        "where several words are replaced at once, at least one of them",
        in_paraphrases="none",
    ),
    Column(
        name="{field}_mlms",
        kind="names",
        summary="Those that did in the {field}.",
        meaning="the same for each sentence",
        in_paraphrases="none",
    ),
    Column(
        name="log_odds",
        kind="number",
        summary="Smallest log P(replacement) - log P(original), in nats.",
        meaning="smallest log P(replacement) - log P(original), in nats, over the occurrences and "
        "models",
        in_paraphrases="null",
    ),
    Column(
        name="mlm_count",
        kind="count",
        summary="How many masked language models validated the replacement.",
        meaning="how many models that is: the length of `mlms`",
        in_paraphrases="null",
    ),
    Column(
        name="{field}_pll_change",
        kind="number",
        summary="Change of the pseudo-log-likelihood of the {field}, in nats.",
        meaning="log-likelihood of this row's sentence less that of the seed's, in nats, as "
        "pseudo-log-likelihood by a masked language model, or log-likelihood by a causal one; null "
        "where it was not computed",
        in_paraphrases="null",
    ),
    Column(
        name="zipf_frequency",
        kind="number",
        summary="Log10 of the replacement's occurrences in a billion words of English.",
        meaning="how frequent the replacement is in English: log10 of its occurrences in a "
        "billion words, by wordfreq (whose data is under CC BY-SA 4.0)",
        in_paraphrases="null",
    ),
    Column(
        name="number_changed",
        kind="flag",
        summary="Whether a noun's number changed. Empty where there is no noun.",
        meaning="whether a singular noun became plural or the other way round, at any "
        "occurrence; null where no noun was replaced, and where tags are not known",
        in_paraphrases="null",
    ),
    Column(
        name="tense_changed",
        kind="flag",
        summary="Whether a verb's form changed. Empty where there is no verb.",
        meaning="whether a verb took another form (plain, -s, past, participle, -ing), at any "
        "occurrence; null where no verb was replaced, and where tags are not known",
        in_paraphrases="null",
    ),
    Column(
        name="article_fits",
        kind="flag",
        summary="Whether a or an before the replacement fits. Empty where there is none.",
        meaning="whether each *a* or *an* before the replacement is the right one; null where "
        "there is none",
        in_paraphrases="null",
    ),
    Column(
        name="subsamples",
        kind="numbers",
        summary="Numbers of the random subsamples that drew the variant, from 0.",
        meaning="numbers of the random subsamples the variant was drawn into, from 0",
        in_paraphrases="the one subsample 0",
    ),
    Column(
        name="annotator_labels",
        kind="labels",
        summary="The annotators' single votes on the seed, where the source has them.",
        meaning="the annotators' single votes on the seed, where the source has them",
    ),
)
"""The columns of both splits, in order: what each is called, its type, and what it means.

Those from `word_class` to `subsamples` are empty in the split `seeds`.
"""


def _column_names(fields: Iterable[str]) -> list[str]:
    fields = list(fields)
    return [name for column in COLUMNS for name in column.names(fields)]


@dataclass(frozen=True, slots=True)
class ProblemFormat:
    """The parts of a problem: texts, and one of some labels.

    >>> ProblemFormat(("context", "question"), ("yes", "no")).spans
    ('context_spans', 'question_spans')
    """

    fields: tuple[str, ...]
    """Names of the texts, which are columns of the dataset."""
    labels: tuple[str, ...]
    """The integer stored in a file is the position here."""

    def __post_init__(self) -> None:
        """Check names; raises ValueError saying what they can be."""
        if len(self.fields) < 2:
            raise ValueError(f"fields: expected two or more, got {', '.join(self.fields)}")
        if odd := [name for name in self.fields if not _FIELD.fullmatch(name)]:
            raise ValueError(
                f"fields: expected lower-case letters, digits and underscores, a letter first, "
                f"got {odd[0]!r}"
            )
        names = _column_names(self.fields)
        if clash := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"fields: expected names that differ from each other and from the dataset's "
                f"columns, got {', '.join(self.fields)}, which makes two columns {clash[0]!r}"
            )
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise ValueError(
                f"labels: expected two or more different ones, got {', '.join(self.labels)}"
            )
        if odd := [label for label in self.labels if not label or label != label.strip()]:
            raise ValueError(f"labels: expected text without white space around it, got {odd[0]!r}")

    @property
    def described(self) -> str:
        """Fields and labels in words, for messages.

        >>> NLI.described
        'fields premise, hypothesis and the labels entailment, neutral, contradiction'
        """
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
        names = _column_names(self.fields)
        return tuple(names[names.index("log_odds") + 1 : names.index("subsamples")])


NLI: Final = ProblemFormat(("premise", "hypothesis"), LABELS)
"""The format of natural language inference, which problems have unless another is named."""

SIGNALS: Final = NLI.signals
"""The columns `ProblemFormat.signals` of NLI."""


def is_source(name: str) -> bool:
    """Tell whether `name` can name a source; see `check_source`."""
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
            f"source: expected a name of lower-case letters, digits and hyphens such as anli-r1, "
            f"got {source!r}"
        )
    return source


def config_name(source: str, variant_class: str | None = None) -> str:
    """Name a configuration; without a class, the one of all word classes.

    >>> config_name("snli", "noun"), config_name("mnli-m"), config_name("snli", PARAPHRASE)
    ('snli_nouns', 'mnli-m', 'snli_paraphrases')
    """
    check_source(source)
    return source if variant_class is None else f"{source}_{CONFIG_SUFFIXES[variant_class]}"


def parse_config_name(name: str) -> tuple[str, str | None]:
    """Split a configuration's name into source and class of variants; inverse of `config_name`.

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
    """Name the top folder of a configuration: what one run makes, replaced as a whole.

    The replacements of a source, all word classes, are one collection and its
    paraphrases another.

    >>> collection_name("snli"), collection_name("snli", "noun")
    ('snli', 'snli')
    >>> collection_name("snli", PARAPHRASE)
    'snli_paraphrases'
    """
    return config_name(source, PARAPHRASE if variant_class == PARAPHRASE else None)


def config_files(name: str) -> dict[str, tuple[str, ...]]:
    """List the files a configuration may have, by split, relative to the dataset folder.

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


def replacement_columns(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """List the columns that say how a variant came about; empty (null, "" or []) in `seeds`.

    >>> replacement_columns()[:4]
    ('word_class', 'original', 'replacement', 'premise_spans')
    """
    names = _column_names(problem_format.fields)
    return tuple(names[names.index("word_class") : names.index("annotator_labels")])


def column_summaries(problem_format: ProblemFormat = NLI) -> dict[str, str]:
    """Map each column to the sentence that says what it holds.

    >>> column_summaries()["premise_spans"]
    'Half-open character offsets of the replacement in the premise.'
    """
    return {
        column.name.format(field=field): column.summary.format(field=field)
        for column in COLUMNS
        for field in (problem_format.fields if column.per_field else ("",))
    }


def variant_id(seed_id: str, variant_class: str, original: str, replacement: str) -> str:
    """Make the id of a variant: its seed's, its class, and what was put in place of what.

    Spaces between several words become `+`. A paraphrase is told by the first 12 digits of its
    SHA-256, as it is long and its original is the seed's whole hypothesis.

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
    """Map each replacement to its original, in a variant that replaces words.

    The columns hold words with spaces between; the i-th of `original` became the i-th of
    `replacement`, wherever it stood. Replacements differ from each other, so what stands at a
    span says what stood there.

    Raises:
        ValueError: it is not so.

    >>> changed_words("girl a", "owl an")
    {'owl': 'girl', 'an': 'a'}
    """
    old, new = original.split(" "), replacement.split(" ")
    if len(old) != len(new) or len(set(new)) < len(new):
        raise ValueError(
            f"expected another word in replacement for each in original, got {original!r} and "
            f"{replacement!r}"
        )
    return dict(zip(new, old, strict=True))


def arrow_schema(problem_format: ProblemFormat = NLI) -> pa.Schema:
    """Make the schema of both splits, as they lie in the Parquet files.

    Carries no `huggingface` metadata: with it, `datasets` 3.6 refuses list columns
    written for 5.x. The label names stand in the card's YAML instead, and those of another
    format than NLI also in metadata of our own, for `format_of`.
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
        for column in COLUMNS
        for name in column.names(problem_format.fields)
    ]
    return with_format(pa.schema(columns), problem_format)


def with_format(schema: pa.Schema, problem_format: ProblemFormat) -> pa.Schema:
    """Record in a schema of what format the problems in a table are."""
    if problem_format == NLI:
        return schema
    return schema.with_metadata({_METADATA: json.dumps(asdict(problem_format))})


def format_of(schema: pa.Schema) -> ProblemFormat:
    """Read the format that `with_format` recorded.

    Raises:
        ValueError: what is recorded is no format.
    """
    if _METADATA not in (schema.metadata or {}):
        return NLI
    try:
        recorded = json.loads(schema.metadata[_METADATA])
        return ProblemFormat(tuple(recorded["fields"]), tuple(recorded["labels"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"metadata {_METADATA.decode()}: expected fields and labels, got "
            f"{schema.metadata[_METADATA].decode(errors='replace')}: {error}"
        ) from error


def only_ours(schema: pa.Schema) -> pa.Schema:
    """Remove metadata from a schema that others put there."""
    ours = (schema.metadata or {}).get(_METADATA)
    bare = schema.remove_metadata()
    return bare if ours is None else bare.with_metadata({_METADATA: ours})


def features(problem_format: ProblemFormat = NLI) -> datasets.Features:
    """Make the features of `datasets` for these columns.

    `label` and `annotator_labels` are class labels over the format's labels. Spans are
    half-open [start, end) character offsets of the replacement in the row's own
    texts; a paraphrase is the whole hypothesis. `log_odds` and
    changes of pseudo-log-likelihood (`*_pll_change`) are in nats.
    In the split `seeds` the replacement columns are empty and `variant_id` equals
    `seed_id`.
    """
    import datasets

    label = datasets.ClassLabel(names=list(problem_format.labels))
    types = {
        "label": label,
        "annotator_labels": datasets.Sequence(label),
    }
    arrow = datasets.Features.from_arrow_schema(arrow_schema(problem_format))
    return datasets.Features({name: types.get(name, arrow[name]) for name in arrow})
