"""Signals of replacements: what fills their columns, files of models' scores, and `quality`.

A signal is an entry of `merge_dataset/dataset_columns.toml`, which says what it means,
what it needs and which setting limits it. An entry of `FILLERS` here computes it; `validation.py`
has signals of masked LMs and of tags in context, and commands read scores from a `SignalFile`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from generation.config import Config, bundled_toml
from generation.problems.tagging import TaggedProblems
from generation.records import REPLACEMENT_KEY, Sentence, with_columns
from generation.run_folder import RunFolder
from generation.variants import grammar
from generation.variants.perturbations import WORD, Perturbation, keys_of, perturbations_of
from merge_dataset.annotation import ANSWERS, TRUSTED, read_answers, read_judge
from merge_dataset.dataset_columns import COLUMNS, LIMITS, OF_WORDS, OPTIONAL
from merge_dataset.files import digest_of_file, digests, read_record, read_table, write_table
from merge_dataset.schema import WORD_CLASSES, variant_id

MASKED, CAUSAL = "mlm", "lm"
"""Keys of the model in `signals.json`, by the model's kind."""
COMPLETE: Final = "complete"
"""Column of changes: whether all texts of the row were asked about, or only some."""
ONLY: Final = "only"
"""Key, in the record of a file, of the names of the texts whose changes it has, if not of all."""
JUDGED: Final = "judged"
"""Name of the file, and of the signal, of judgements that filter."""


# --- Frequencies of words ---


def zipf_frequencies(texts: pa.ChunkedArray) -> pa.Array:
    """Return log10 of words' occurrences in a billion words of English; 0 for unknown words."""
    encoded = texts.combine_chunks().dictionary_encode()
    values = [zipf_frequency(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, pa.float32()).take(encoded.indices)


@lru_cache(maxsize=200_000)
def zipf_frequency(text: str) -> float:
    """Return the frequency of a replacement; if it has several words, the rarest word's."""
    from wordfreq import zipf_frequency

    return min(zipf_frequency(word, "en") for word in text.split())


# --- Files of models' scores ---


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

    @classmethod
    def read(cls, record: Path, problems: Path, remedy: str, setting: str) -> Self:
        """Open a file by its record, or raise ValueError if file or problems are others."""
        path, made_by = record.with_suffix(".parquet"), read_record(record)
        made_of = made_by["sha256"], made_by.pop("problems")
        if made_of != (digest_of_file(path), digest_of_file(problems)):
            raise ValueError(
                f"{path}: expected it as {record.name} has it, of the run's problems, got other "
                "contents; run merge-nli signals again, or remove both files"
            )
        return cls(path, made_by, remedy, setting)

    def of(self, replacements: pa.Table, *, required: bool = False) -> dict[str, pa.ChunkedArray]:
        """Read the changes of replacements, by column; null where there are none."""
        if not len(replacements):
            return {}
        first, last = (pc.min_max(replacements["seed_id"])[end].as_py() for end in ("min", "max"))
        span = [("seed_id", ">=", first), ("seed_id", "<=", last)]
        changes = read_table(self.path, where=span)
        if required:
            changes = changes.filter(changes[COMPLETE])
        known = keys_as_texts(changes).combine_chunks()
        rows = pc.index_in(keys_as_texts(replacements), value_set=known)
        if required and rows.null_count:
            raise ValueError(
                f"{self.path}: expected for `{self.setting}` the changes of every replacement, "
                f"found none for {rows.null_count:,} of {len(rows):,} of some problems; {self.cure}"
            )
        names = (name for name in changes.column_names if name not in (*REPLACEMENT_KEY, COMPLETE))
        return {name: changes[name].take(rows) for name in names}


def cure(build: RunFolder, base: RunFolder, setting: str, config: Config) -> str:
    """Say how to compute the changes of all replacements of a build, which a setting requires."""
    if setting == "scored_by" and build.path == base.path:
        return "run merge-nli generate with these settings"
    of = "" if build.path == base.path else f" --of {build.path.name}"
    without, model = f"without `{setting}`", "--mlm MODEL"
    if setting == "scored_by":
        # Otherwise only replacements of the quality wanted, by other signals, would be scored.
        without = f"{without} and with `min_quality` 0"
        model = f"--lm {config.lm}" if config.scored_by == CAUSAL else "--neighbours"
    return (
        f"build once {without}, run `merge-nli signals --run {base.path}{of} {model}`, "
        "then this command with --overwrite"
    )


def keys_as_texts(table: pa.Table) -> pa.ChunkedArray:
    """Join the keys of replacements into texts, [n]."""
    return pc.binary_join_element_wise(*(table[name] for name in REPLACEMENT_KEY), "\n")


# --- Columns of a block, and what fills them ---


@dataclass(frozen=True)
class BlockRows:
    """Replacements or variants of a block, for the functions that fill columns."""

    written: pa.Table
    """The rows as files have them, `in_full`, with the signals that validation has."""
    edited: pa.Table
    """These rows before `in_full`: each with its word alone, and its further edits."""
    problems: TaggedProblems
    config: Config
    signals: Mapping[str, SignalFile] = field(default_factory=dict)
    """Outputs of `merge-nli signals`, by name: `signals` and `neighbours`."""

    @cached_property
    def perturbations(self) -> list[Perturbation]:
        """[n] All edits of each row."""
        return perturbations_of(self.edited, self.problems)

    @cached_property
    def words(self) -> list[list[tuple[Sentence, int, str]]]:
        """[n] Sentence, position and new word of each edit of the shared word."""
        return [
            [(of_row.sentences[e.text], e.position, e.word) for e in of_row.edits if e.part == WORD]
            for of_row in self.perturbations
        ]

    _filled: dict[str, pa.Array] = field(default_factory=dict, init=False)

    def column(self, name: str) -> pa.Array:
        """Return the values of a signal, computed once."""
        if name not in self._filled:
            fill = FILLERS.get(name)
            self._filled[name] = fill(self) if fill else self.written[name].combine_chunks()
        return self._filled[name]


def _at_words(
    ask: Callable[[Sentence, int, str], bool | None], together: Callable[[Iterable[bool]], bool]
) -> Callable[[BlockRows], pa.Array]:
    """Make a filler that asks about each replaced word; `together` combines known answers."""

    def fill(rows: BlockRows) -> pa.Array:
        combined = []
        for words in rows.words:
            known = [answer for word in words if (answer := ask(*word)) is not None]
            combined.append(together(known) if known else None)
        return pa.array(combined, pa.bool_())

    return fill


def _fill_article_fits(rows: BlockRows) -> pa.Array:
    """Tell whether each "a" or "an" before an edit fits the new word; null without any."""
    positions: dict[tuple[int, int], int | None] = {}
    fits = []
    for perturbation in rows.perturbations:
        new = {(edit.text, edit.position): edit.word for edit in perturbation.edits}
        answers = []
        for edit in perturbation.edits:
            sentence = perturbation.sentences[edit.text]
            key = id(sentence), edit.position
            if key not in positions:
                positions[key] = grammar.article_position(sentence, edit.position)
            if (position := positions[key]) is not None:
                article = new.get((edit.text, position), sentence.tokens[position].text)
                answers.append(article.lower() == grammar.fitting_article(edit.word))
        fits.append(all(answers) if answers else None)
    return pa.array(fits, pa.bool_())


def _fill_quality(rows: BlockRows) -> pa.Array:
    by_causal = is_by_causal(rows.config, rows.signals)
    names = rows.config.problem_format.pll_changes if by_causal else ()
    scored = {"mlms": ("neighbour_change",), CAUSAL: names}.get(rows.config.scored_by, ())

    def column(name: str) -> pa.Array:
        # A row without a score, or not scored yet, counts as the best: see `SCORED`.
        return pc.fill_null(rows.column(name), 0.0) if name in scored else rows.column(name)

    return quality(column, names)


def _fill_neighbour_change(rows: BlockRows) -> pa.Array:
    neighbours = rows.signals.get("neighbours")
    if neighbours is None or not len(rows.written):
        return pa.nulls(len(rows.written), pa.float32())
    return neighbours.of(rows.written)["neighbour_change"].combine_chunks()


def _fill_judged(rows: BlockRows) -> pa.Array:
    if (judged := rows.signals.get(JUDGED)) is None:
        return pa.nulls(len(rows.written), pa.float32())
    known = read_table(judged.path)
    ids = pa.array([variant_id(*key) for key in keys_of(rows.written)], pa.string())
    at = pc.index_in(ids, value_set=known["variant_id"].combine_chunks())
    return known["judged"].combine_chunks().take(at)


def _fill_common_mlm_count(rows: BlockRows) -> pa.Array:
    table = rows.written
    standing = {
        (seed.seed_id, word.word_class, word.word): [n for n, at in enumerate(word.positions) if at]
        for seed, word in rows.problems.pairs()
    }
    fields = [table[name].to_pylist() for name in table.column_names if name.endswith("_mlms")]
    counts = []
    for (seed_id, word_class, words, _), *mlms in zip(keys_of(table), *fields, strict=True):
        # Where other words change too, the shared word comes first.
        texts = standing[seed_id, word_class, words.partition(" ")[0]]
        counts.append(len(set.intersection(*(set(mlms[text]) for text in texts))))
    return pa.array(counts, pa.int32())


FILLERS: Final[Mapping[str, Callable[[BlockRows], pa.Array]]] = {
    "zipf_frequency": lambda rows: zipf_frequencies(rows.written["replacement"]),
    "article_fits": _fill_article_fits,
    "form_attested": _at_words(grammar.form_attested, all),
    "number_agrees": _at_words(grammar.number_agrees, all),
    "determiner_fits": _at_words(grammar.determiner_fits, all),
    "in_compound": _at_words(
        lambda sentence, position, _: grammar.in_compound(sentence, position), any
    ),
    "neighbour_change": _fill_neighbour_change,
    "quality": _fill_quality,
    "judged": _fill_judged,
    "common_mlm_count": _fill_common_mlm_count,
}
"""Signal → the function that computes it for the replacements of a block."""


def with_signals_of_no_words(replacements: pa.Table) -> pa.Table:
    """Compute frequencies of shuffled letters; only their masked LMs are known beside."""
    new = {"zipf_frequency": zipf_frequencies(replacements["replacement"])}
    for column in replacements.schema:
        of_agreement = LIMITS.get(column.name, ("", None))[1] is not None
        if of_agreement or (column.name in OPTIONAL and column.name != "common_mlm_count"):
            new[column.name] = pa.nulls(len(replacements), column.type)
    return with_columns(replacements, new)


# --- What a build needs ---


def require_dictionary(config: Config) -> None:
    """Raise ValueError if a setting or column needs lemminflect, which is not installed."""
    by_dictionary = [column.name for column in COLUMNS if column.by_dictionary]
    wanting = [name for name in config.optional_columns if name in by_dictionary]
    if config.families != "ignore":
        wanting = ["families"]
    if wanting and not grammar.has_library():
        raise ValueError(
            f"{', '.join(wanting)}: expected lemminflect to be installed, which knows lemmas and "
            "inflections; run: pip install 'merge-nli[morphology]'"
        )


def require_columns(config: Config, asked: str | Sequence[str] | None) -> None:
    """Raise ValueError if columns that are asked for by name cannot be filled."""
    names = (asked,) if isinstance(asked, str) else asked or ()
    if gone := [name for name in names if name not in (config.with_columns or ())]:
        raise ValueError(
            f"with_columns: expected none of {', '.join(OF_WORDS)} with scramble, as they are "
            f"of words, got {', '.join(gone)}; leave out one or the other"
        )


# --- Judgements ---


def judged_variants(out: RunFolder, config: Config) -> dict[str, SignalFile]:
    """Write the means of the judgements, if any, to a build's folder; describe who judged.

    Raises:
        ValueError: there are none of variants, or a model's AUC in its trial is below `TRUSTED`.
    """
    if not config.judged:
        return {}
    paths = [Path(path) for path in config.judged]
    answers = read_answers(paths)
    if "fluency" not in answers.column_names or not len(answers):
        raise ValueError(
            f"judged: expected scores of fluency and reasoning in {', '.join(config.judged)}, got "
            "none"
        )
    files = [
        file
        for path in paths
        for file in (sorted(path.glob(f"{ANSWERS}/*")) if path.is_dir() else [path])
    ]
    trials = []
    for judge in (read_judge(file) for file in files if file.suffix == ".parquet"):
        auc = judge["trial"]["figures"]["auc"]
        if (auc["value"] or 0) < TRUSTED and not config.trust_judge:
            raise ValueError(
                f"judged: expected a judge with an AUC of {TRUSTED} or more in its trial, got "
                f"{auc['value']} by {judge['name']}: it hardly tells good variants from others; "
                "take another model, or filter nevertheless with `trust_judge`"
            )
        facts = {name: judge["trial"][name] for name in ("against", "figures")}
        trials.append({"name": judge["name"], "revision": judge["revision"], **facts})
    total = pc.add(*(answers[score].cast(pa.float32()) for score in ("fluency", "reasoning")))
    sums = pa.table({"variant_id": answers["variant_id"], "judged": total})
    means = sums.group_by("variant_id").aggregate([("judged", "mean")])
    means = means.rename_columns({"judged_mean": "judged"})
    file = out.path / "judged.parquet"
    write_table(file, means.set_column(1, "judged", means["judged"].cast(pa.float32())))
    annotators = sorted(answers["annotator"].unique().to_pylist())
    made_by: dict[str, Any] = {"annotators": annotators, "variants": len(means), "trials": trials}
    made_by["files"] = digests({path.name: path for path in files})
    return {JUDGED: SignalFile(file, made_by)}


# --- Quality ---


def is_by_causal(config: Config, signals: Mapping[str, SignalFile]) -> bool:
    """Tell whether `quality` takes changes by a causal LM, which are there or will be."""
    changes = signals.get("signals")
    has_them = changes is not None and CAUSAL in changes.made_by
    return config.scored_by == CAUSAL or (has_them and not config.scored_by)


def quality_sources(config: Config, signals: Mapping[str, SignalFile]) -> str:
    """Say what `quality` is estimated from."""
    if is_by_causal(config, signals):
        causal = signals["signals"].made_by[CAUSAL]["name"]
        fitted_by = shipped()["fitted"]["likelihood_by"]
        return (
            f"grammar, ranks and changes of log-likelihood by {causal}; fitted with those by "
            f"{fitted_by}"
        )
    if NEIGHBOURS in signals:
        return "grammar, ranks and what the masked LMs say of the words beside"
    return (
        "grammar and ranks alone; models tell more: merge-nli signals --neighbours, or --lm MODEL, "
        "then build again"
    )


ColumnReader = Callable[[str], pa.Array]
"""Function from a column's name to its values."""

GRAMMAR, NEIGHBOURS, LIKELIHOOD = "grammar", "neighbours", "likelihood"

FAULTS: Final = {name: answer for name, (_, answer) in LIMITS.items() if answer is not None}
"""Flag → the answer that is a fault; the feature is 1 for this answer, else 0."""

LEAST_CHANGE, LEAST_NEIGHBOUR_CHANGE = -30.0, -5.0
"""Least changes of log-likelihood, and of a neighbour's log P, in nats; lower ones are clipped, as
are those above 0: no replacement is better than as likely as the original."""


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
    for word_class in WORD_CLASSES:
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
    numbers["least_change"] = np.clip(lowest, LEAST_CHANGE, 0.0)
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
