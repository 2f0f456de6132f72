"""The columns of the dataset: what each is called, its type, and what it means.

Those with `optional=True` are only in files of builds that have them by default, were asked for
them, or set a limit on them. A new one stands before `subsamples`;
`generation/variants/signal_columns.py` fills it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final


@dataclass(frozen=True, slots=True)
class DatasetColumn:
    """A column of the dataset, or a column for each of a problem's texts."""

    name: str
    """Name; with `{field}` in it, there is a column for each text."""
    kind: str
    """Its type: a key in `arrow_schema`."""
    meaning: str
    """Its content where words are replaced; `{labels}` stands for labels with numbers."""
    in_paraphrases: str = ""
    """Its content in paraphrases, where that is something else."""
    optional: bool = False
    limit: tuple[str, bool | None] | None = None
    """The setting that limits it, and of a flag the answer that this refuses."""
    of_words: bool = False
    """Whether it says nothing of shuffled letters, so that builds with them do not have it."""
    by_dictionary: bool = False
    """Whether lemminflect computes it."""

    def names(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Names of the columns for these texts."""
        if "{field}" not in self.name:
            return (self.name,)
        return tuple(self.name.format(field=field) for field in fields)


_signal: Final = partial(DatasetColumn, in_paraphrases="null")
_optional: Final = partial(_signal, optional=True)

COLUMNS: Final = (
    DatasetColumn(
        "variant_id", "text", "identifier, unique in the configuration; in `seeds` the seed's own"
    ),
    DatasetColumn(
        "seed_id", "text", "identifier of the seed: join the splits and group the variants by it"
    ),
    DatasetColumn("source", "text", "where the seed is from, for example `snli`"),
    DatasetColumn("{field}", "text", "the two sentences, the replacement in place"),
    DatasetColumn("label", "label", "{labels}; a variant has its seed's"),
    DatasetColumn(
        "word_class",
        "text",
        "`noun`, `verb`, `adjective` or `adverb`",
        in_paraphrases="`paraphrase`",
    ),
    DatasetColumn("original", "text", "the seed's word", in_paraphrases="the seed's hypothesis"),
    DatasetColumn(
        "replacement",
        "text",
        "the word that stands in its place",
        in_paraphrases="the variant's hypothesis",
    ),
    DatasetColumn(
        "{field}_spans",
        "spans",
        "where the replacement stands in this row's sentences: half-open [start, end) "
        "character offsets, one pair for each occurrence",
        in_paraphrases="none, and the whole hypothesis",
    ),
    DatasetColumn(
        "mlms",
        "names",
        "the masked language models that validated the replacement in either sentence",
        in_paraphrases="none",
    ),
    DatasetColumn("{field}_mlms", "names", "the same for each sentence", in_paraphrases="none"),
    _signal(
        "log_odds",
        "number",
        "smallest log P(replacement) - log P(original), in nats, over the occurrences and models",
        limit=("min_log_odds", None),
    ),
    _signal(
        "mlm_count",
        "count",
        "how many models that is: the length of `mlms`",
        limit=("min_mlms", None),
    ),
    _signal(
        "{field}_pll_change",
        "number",
        "log-likelihood of this row's sentence minus the seed's, in nats, as "
        "pseudo-log-likelihood by a masked language model, or by a causal one as log-likelihood of "
        "the tokens that differ and the next three; null where it was not computed",
        limit=("min_pll_change", None),
    ),
    _signal(
        "zipf_frequency",
        "number",
        "how frequent the replacement is in English: log10 of its occurrences in a "
        "billion words, by wordfreq (whose data is under CC BY-SA 4.0)",
        limit=("min_zipf_frequency", None),
    ),
    _signal(
        "number_changed",
        "flag",
        "whether a singular noun became plural or the other way round, at any "
        "occurrence; null where no noun was replaced, and where tags are not known",
        limit=("same_number", True),
    ),
    _signal(
        "tense_changed",
        "flag",
        "whether a verb took another form (plain, -s, past, participle, -ing), at any "
        "occurrence; null where no verb was replaced, and where tags are not known",
        limit=("same_tense", True),
    ),
    _signal(
        "article_fits",
        "flag",
        "whether each *a* or *an* before the replacement is the right one; null where "
        "there is none",
        limit=("fitting_article", False),
    ),
    _optional(
        "mean_rank",
        "number",
        "rank of the replacement among the words that a model finds more probable than the "
        "original: geometric mean over all models and occurrences, from 1, the most probable; one "
        "more than the number of suggestions where it is none",
        of_words=True,
    ),
    _optional(
        "neighbour_change",
        "number",
        "change of log P, in nats, of the word that the replacement makes least expected "
        "among the three on each side, masked one at a time: mean over sentences and models; null "
        "where no model was asked, and where no word stands beside it",
        of_words=True,
    ),
    _optional(
        "form_attested",
        "flag",
        "whether the replacement is, by lemminflect's dictionary, a form as the original's "
        'Penn tag asks for ("went" is no participle), at every occurrence; null where the '
        "dictionary does not know it",
        limit=("attested_form", False),
        by_dictionary=True,
    ),
    _optional(
        "number_agrees",
        "flag",
        "whether a noun agrees in number with the determiner or numeral before it and the "
        "verb right after it; null where neither is there, or no noun was replaced",
        limit=("agreeing_number", False),
        by_dictionary=True,
    ),
    _optional(
        "determiner_fits",
        "flag",
        "whether what replaces an adjective goes with the determiner, numeral or "
        "possessive right before it, as quantifiers, ordinals and superlatives may not; null "
        "where there is none",
        limit=("fitting_determiner", False),
        by_dictionary=True,
    ),
    _optional(
        "in_compound",
        "flag",
        "whether the original stands beside another noun or a hyphen, or is a verb with a particle",
        limit=("no_compounds", True),
    ),
    _optional(
        "quality",
        "number",
        "how likely annotators are to find the variant good, from 0 to 1: a logistic "
        "regression over the signals, fitted on judged variants of SNLI and MultiNLI",
        limit=("min_quality", None),
        of_words=True,
        by_dictionary=True,
    ),
    _optional(
        "judged",
        "number",
        "fluency plus reasoning, from 2 to 10: mean over the people or models that judged the "
        "variant; null where nobody did",
        limit=("min_judged", None),
    ),
    _optional(
        "common_mlm_count",
        "count",
        "how many models validated the replacement in every sentence in which it stands, "
        "where `mlm_count` counts those that did in any",
    ),
    DatasetColumn(
        "subsamples",
        "numbers",
        "numbers of the random subsamples the variant was drawn into, from 0",
        in_paraphrases="the one subsample 0",
    ),
    DatasetColumn(
        "annotator_labels",
        "labels",
        "the annotators' single votes on the seed, where the source has them",
    ),
)
"""The columns of both splits; those from `word_class` to `subsamples` are empty in `seeds`."""

OPTIONAL: Final = tuple(column.name for column in COLUMNS if column.optional)

OF_WORDS: Final = tuple(column.name for column in COLUMNS if column.of_words)

LIMITS: Final = {column.name: column.limit for column in COLUMNS if column.limit}
"""Column → the setting that limits it, and the answer that this refuses; None for numbers."""
