"""The columns of the dataset: what each is called, its type, and what it means.

Those with `optional=True` are only in files of builds that have them by default, were asked for
them, or set a limit on them. A new one stands before `subsamples`;
`generation/variants/signal_columns.py` fills it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
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
    limit: str = ""
    """The setting that limits it: by its least value or, of a flag, by the answer refused."""
    refused: bool | None = None
    """The answer that the setting refuses."""
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
        name="variant_id",
        kind="text",
        meaning="identifier, unique in the configuration; in `seeds` the seed's own",
    ),
    DatasetColumn(
        name="seed_id",
        kind="text",
        meaning="identifier of the seed: join the splits and group the variants by it",
    ),
    DatasetColumn(
        name="source",
        kind="text",
        meaning="where the seed is from, for example `snli`",
    ),
    DatasetColumn(
        name="{field}",
        kind="text",
        meaning="the two sentences, the replacement in place",
    ),
    DatasetColumn(
        name="label",
        kind="label",
        meaning="{labels}; a variant has its seed's",
    ),
    DatasetColumn(
        name="word_class",
        kind="text",
        meaning="`noun`, `verb`, `adjective` or `adverb`",
        in_paraphrases="`paraphrase`",
    ),
    DatasetColumn(
        name="original",
        kind="text",
        meaning="the seed's word",
        in_paraphrases="the seed's hypothesis",
    ),
    DatasetColumn(
        name="replacement",
        kind="text",
        meaning="the word that stands in its place",
        in_paraphrases="the variant's hypothesis",
    ),
    DatasetColumn(
        name="{field}_spans",
        kind="spans",
        meaning="where the replacement stands in this row's sentences: half-open [start, end) "
        "character offsets, one pair for each occurrence",
        in_paraphrases="none, and the whole hypothesis",
    ),
    DatasetColumn(
        name="mlms",
        kind="names",
        meaning="the masked language models that validated the replacement in either sentence",
        in_paraphrases="none",
    ),
    DatasetColumn(
        name="{field}_mlms",
        kind="names",
        meaning="the same for each sentence",
        in_paraphrases="none",
    ),
    _signal(
        name="log_odds",
        kind="number",
        meaning="smallest log P(replacement) - log P(original), in nats, over the occurrences and "
        "models",
        limit="min_log_odds",
    ),
    _signal(
        name="mlm_count",
        kind="count",
        meaning="how many models that is: the length of `mlms`",
        limit="min_mlms",
    ),
    _signal(
        name="{field}_pll_change",
        kind="number",
        meaning="log-likelihood of this row's sentence minus the seed's, in nats, as "
        "pseudo-log-likelihood by a masked language model, or log-likelihood by a causal one; null "
        "where it was not computed",
        limit="min_pll_change",
    ),
    _signal(
        name="zipf_frequency",
        kind="number",
        meaning="how frequent the replacement is in English: log10 of its occurrences in a "
        "billion words, by wordfreq (whose data is under CC BY-SA 4.0)",
        limit="min_zipf_frequency",
    ),
    _signal(
        name="number_changed",
        kind="flag",
        meaning="whether a singular noun became plural or the other way round, at any "
        "occurrence; null where no noun was replaced, and where tags are not known",
        limit="same_number",
        refused=True,
    ),
    _signal(
        name="tense_changed",
        kind="flag",
        meaning="whether a verb took another form (plain, -s, past, participle, -ing), at any "
        "occurrence; null where no verb was replaced, and where tags are not known",
        limit="same_tense",
        refused=True,
    ),
    _signal(
        name="article_fits",
        kind="flag",
        meaning="whether each *a* or *an* before the replacement is the right one; null where "
        "there is none",
        limit="fitting_article",
        refused=False,
    ),
    _optional(
        name="mean_rank",
        kind="number",
        meaning="rank of the replacement among the words that a model finds more probable than the "
        "original: geometric mean over all models and occurrences, from 1, the most probable; one "
        "more than the number of suggestions where it is none",
        of_words=True,
    ),
    _optional(
        name="neighbour_change",
        kind="number",
        meaning="change of log P, in nats, of the word that the replacement makes least expected "
        "among the three on each side, masked one at a time: mean over sentences and models; null "
        "where no model was asked, and where no word stands beside it",
        of_words=True,
    ),
    _optional(
        name="form_attested",
        kind="flag",
        meaning="whether the replacement is, by lemminflect's dictionary, a form as the original's "
        'Penn tag asks for ("went" is no participle), at every occurrence; null where the '
        "dictionary does not know it",
        limit="attested_form",
        refused=False,
        by_dictionary=True,
    ),
    _optional(
        name="number_agrees",
        kind="flag",
        meaning="whether a noun agrees in number with the determiner or numeral before it and the "
        "verb right after it; null where neither is there, or no noun was replaced",
        limit="agreeing_number",
        refused=False,
        by_dictionary=True,
    ),
    _optional(
        name="determiner_fits",
        kind="flag",
        meaning="whether what replaces an adjective goes with the determiner, numeral or "
        "possessive right before it, as quantifiers, ordinals and superlatives may not; null "
        "where there is none",
        limit="fitting_determiner",
        refused=False,
        by_dictionary=True,
    ),
    _optional(
        name="in_compound",
        kind="flag",
        meaning="whether the original stands beside another noun or a hyphen, or is a verb with a "
        "particle",
        limit="no_compounds",
        refused=True,
    ),
    _optional(
        name="quality",
        kind="number",
        meaning="how likely annotators are to find the variant good, from 0 to 1: a logistic "
        "regression over the signals, fitted on judged variants of SNLI and MultiNLI",
        limit="min_quality",
        of_words=True,
        by_dictionary=True,
    ),
    _optional(
        name="common_mlm_count",
        kind="count",
        meaning="how many models validated the replacement in every sentence in which it stands, "
        "where `mlm_count` counts those that did in any",
    ),
    DatasetColumn(
        name="subsamples",
        kind="numbers",
        meaning="numbers of the random subsamples the variant was drawn into, from 0",
        in_paraphrases="the one subsample 0",
    ),
    DatasetColumn(
        name="annotator_labels",
        kind="labels",
        meaning="the annotators' single votes on the seed, where the source has them",
    ),
)
"""The columns of both splits; those from `word_class` to `subsamples` are empty in `seeds`."""

OPTIONAL: Final = tuple(column.name for column in COLUMNS if column.optional)

OF_WORDS: Final = tuple(column.name for column in COLUMNS if column.of_words)

LIMITS: Final = {column.name: (column.limit, column.refused) for column in COLUMNS if column.limit}
"""Column → the setting that limits it, and the answer that this refuses; None for numbers."""
