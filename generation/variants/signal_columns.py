"""The signals of replacements as columns, and limits on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from generation.config import bundled_toml
from generation.records import REPLACEMENT_KEY, with_columns
from generation.run_folder import RunFolder
from generation.variants.grammar import article_position, fitting_article
from merge_dataset.dataset_columns import OPTIONAL, REFUSED
from merge_dataset.files import read_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from generation.problems.substitutions import Place

NUMBERS: Final = {"NN": 0, "NNS": 1}
"""Penn tag of a noun → its number."""

VERB_FORMS: Final = {"VB": 0, "VBP": 0, "VBZ": 1, "VBD": 2, "VBN": 3, "VBG": 4}
"""Penn tag of a verb → its form; VB and VBP are one, as they are spelt alike."""

UNKNOWN, NO, YES = -1, 0, 1
"""Answers about an occurrence; for several occurrences the highest answer counts."""

AGREEMENT: Final = ("number_changed", "tense_changed", "article_fits")

MASKED, CAUSAL = "mlm", "lm"
"""Keys of the model in `signals.json`, by the model's kind."""

PLL_CHANGE: Final = "_pll_change"
"""Ending of the names of columns with changes of pseudo-log-likelihood."""


def forms_changed(
    before: Sequence[str],
    labels: Sequence[str],
    after: NDArray[np.int64],
    occurrence: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return [n, 2] whether a noun's number, and a verb's form, change at any occurrence.

    `before` are Penn tags of all occurrences of originals. `after` are [m] tags of replacements in
    context, as numbers of `labels`, at [m] `occurrence`; each replacement's tags begin at [n]
    `starts`. Answers are `YES`, `NO`, or `UNKNOWN` where no original is a noun, or a verb.

    >>> forms_changed(
    ...     ["NN", "VBZ"], ["NNS", "VBZ"], np.array([0, 1]), np.array([0, 1]), np.array([0, 1])
    ... ).tolist()
    [[1, -1], [-1, 0]]
    """
    columns = []
    for kinds in (NUMBERS, VERB_FORMS):
        old, new = (
            np.array([kinds.get(tag, UNKNOWN) for tag in tags], np.int64)
            for tags in (before, labels)
        )
        changed = np.where(old[occurrence] < 0, UNKNOWN, old[occurrence] != new[after])
        columns.append(np.maximum.reduceat(changed, starts))
    return np.stack(columns, axis=1)


def answers_about_articles(
    places: Sequence[Place], standing: NDArray[np.int64], texts: Sequence[str]
) -> NDArray[np.int64]:
    """Return [n] whether "a" and "an" fit; `standing`: [n, texts] numbers of places, −1 if none."""
    articles = [
        frozenset(
            place.sentence.tokens[article].text.lower()
            for position in place.positions
            if (article := article_position(place.sentence, position)) is not None
        )
        for place in places
    ]
    has_article = np.array(list(map(bool, articles)), np.bool_)
    with_article = (standing >= 0) & has_article[standing]
    fits = np.full(len(standing), UNKNOWN)
    for row in np.flatnonzero(with_article.any(1)).tolist():
        before = frozenset[str]().union(*(articles[n] for n in standing[row][with_article[row]]))
        fits[row] = YES if before == {fitting_article(texts[row])} else NO
    return fits


def answers_of(values: NDArray[np.int64]) -> pa.BooleanArray:
    """Return `YES`, `NO` and `UNKNOWN` as true, false and null."""
    return pa.array(values == YES, mask=values == UNKNOWN)


def zipf_frequencies(texts: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return log10 of words' occurrences in a billion words of English; 0 for unknown words."""
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    encoded = column.dictionary_encode()
    values = [zipf_frequency(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, pa.float32()).take(encoded.indices)


@lru_cache(maxsize=200_000)
def zipf_frequency(text: str) -> float:
    """Return the frequency of a replacement; if it has several words, the rarest word's."""
    from wordfreq import zipf_frequency

    return min(zipf_frequency(word, "en") for word in text.split())


def with_signals_of_no_words(replacements: pa.Table) -> pa.Table:
    """Compute frequencies of shuffled letters; set agreement and optional signals to null."""
    new = {"zipf_frequency": zipf_frequencies(replacements["replacement"])}
    new |= {name: pa.nulls(len(replacements), pa.bool_()) for name in AGREEMENT}
    optional = [field for field in replacements.schema if field.name in OPTIONAL]
    new |= {field.name: pa.nulls(len(replacements), field.type) for field in optional}
    return with_columns(replacements, new)


@dataclass(frozen=True, slots=True)
class SignalFile:
    """A file that `merge-nli signals` wrote. Can be sent to other processes."""

    path: Path
    made_by: dict[str, Any]
    """The model and how it was asked, for the manifest."""
    cure: str = ""
    """Commands to run if changes of some replacements are missing."""
    setting: str = ""
    """The setting that may require the changes of all replacements."""

    @property
    def is_causal(self) -> bool:
        """Tell whether a causal language model computed them."""
        return CAUSAL in self.made_by

    def of(self, replacements: pa.Table, *, required: bool = False) -> dict[str, pa.ChunkedArray]:
        """Read the changes of replacements, by column; null where there are none."""
        if not len(replacements):
            return {}
        first, last = (pc.min_max(replacements["seed_id"])[end].as_py() for end in ("min", "max"))
        span = [("seed_id", ">=", first), ("seed_id", "<=", last)]
        changes = read_table(self.path, where=span)
        rows = pc.index_in(_keys(replacements), value_set=_keys(changes).combine_chunks())
        if required and rows.null_count:
            raise ValueError(
                f"{self.path}: expected for `{self.setting}` the changes of every replacement, "
                f"found none for {rows.null_count:,} of {len(rows):,} of some problems; {self.cure}"
            )
        names = changes.column_names[len(REPLACEMENT_KEY) :]
        return {name: changes[name].take(rows) for name in names}


def cure(build: RunFolder, base: RunFolder, setting: str) -> str:
    """Say how to compute the changes of all replacements of a build, which a setting requires."""
    if setting == "scored_by" and build.path == base.path:
        return "run merge-nli generate with these settings"
    of = "" if build.path == base.path else f" --of {build.path.name}"
    without, model = f"without `{setting}`", "--mlm MODEL"
    if setting == "scored_by":
        # Otherwise only replacements of the quality wanted, by other signals, would be scored.
        without, model = f"{without} and with `min_quality` 0", "--neighbours"
    return (
        f"build once {without}, run `merge-nli signals --run {base.path}{of} {model}`, "
        "then this command with --overwrite"
    )


def _keys(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*(table[name] for name in REPLACEMENT_KEY), "\n")


ColumnReader = Callable[[str], pa.Array]
"""Function from a column's name to its values."""

GRAMMAR, NEIGHBOURS, LIKELIHOOD = "grammar", "neighbours", "likelihood"

FAULTS: Final = {column: answer for column, (_, answer) in REFUSED.items()}
"""Flag → the answer that is a fault; the feature is 1 for this answer, else 0."""

LEAST_CHANGE, LEAST_NEIGHBOUR_CHANGE = -30.0, -5.0
"""Least changes of log-likelihood, and of a neighbour's log P, in nats; lower ones are clipped."""


@cache
def shipped() -> dict[str, Any]:
    """Read `quality.toml`: models, and the data that they were fitted on."""
    return bundled_toml("variants/quality.toml")


def probabilities(name: str, features: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return [n] probabilities by a logistic regression on standardised features; NaN if unknown.

    1 / (1 + e^−z), z = intercept + Σ coefficient · (x − mean) / deviation.
    """
    fitted = shipped()[name]
    rows, keys = fitted["features"], ("mean", "deviation", "coefficient")
    mean, deviation, coefficient = (np.array([row[key] for row in rows.values()]) for key in keys)
    values = np.stack([features[feature] for feature in rows], axis=1)
    z = fitted["intercept"] + ((values - mean) / deviation) @ coefficient
    probability: NDArray[np.float64] = 1 / (1 + np.exp(-z))
    return probability


def features(column: ColumnReader, pll_changes: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return [n] values of each feature; `pll_changes` are columns of a causal language model."""
    columns = {
        name: pc.fill_null(pc.equal(column(name), pa.scalar(fault)), False)
        for name, fault in FAULTS.items()
    }
    for word_class in ("verb", "adjective"):
        columns[f"is_{word_class}"] = pc.equal(column("word_class"), word_class)
    for name in ("zipf_frequency", "mean_rank", "neighbour_change", *pll_changes):
        columns[name] = column(name)
    numbers: dict[str, NDArray[np.float64]] = {
        name: pc.fill_null(values.cast(pa.float64()), np.nan).to_numpy()
        for name, values in columns.items()
    }
    numbers["log_rank"] = np.log(numbers["mean_rank"])
    numbers["neighbour_change"] = np.clip(numbers["neighbour_change"], LEAST_NEIGHBOUR_CHANGE, 0.0)
    # The text in which the word fits least; a text without the word has no change.
    unknown = np.full(len(numbers["mean_rank"]), np.nan)
    lowest = np.fmin.reduce([unknown, *(numbers[name] for name in pll_changes)])
    numbers["least_change"] = np.maximum(lowest, LEAST_CHANGE)
    return numbers


def quality(column: ColumnReader, pll_changes: Sequence[str]) -> pa.Array:
    """Return [n] the probability that a reader finds each replacement good.

    Each row takes the last of three logistic regressions in `quality.toml` whose features are all
    known: `grammar`; `neighbours`, which adds the change of neighbouring words; `likelihood`, which
    has the change by a causal LM instead. `python -m helpers.fit_quality`, in `tests/`, fits them.
    """
    values = features(column, pll_changes)
    known = probabilities(GRAMMAR, values)
    for name in (NEIGHBOURS, LIKELIHOOD):
        better = probabilities(name, values)
        known = np.where(np.isnan(better), known, better)
    return pa.array(known.astype(np.float32), mask=np.isnan(known))
