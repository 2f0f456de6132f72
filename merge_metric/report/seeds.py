"""Seeds of a report: their texts, gold labels, annotators' votes and every model's answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.engine import connect, parquet
from merge_dataset.files import naming_damage, open_parquet
from merge_dataset.layout import format_in, split_files
from merge_dataset.schema import (
    NLI,
    PARAPHRASE,
    SPLITS,
    VARIANT_CLASSES,
    ProblemFormat,
    changed_words,
    parse_config_name,
)
from merge_dataset.show import spans_in_seed
from merge_metric.analyses.hardest import hardest_first, mean_right
from merge_metric.frame.answer_table import AnswerTable
from merge_metric.frame.counting import MISSING
from merge_metric.frame.texts import rows_of
from merge_metric.seed_variant_accuracy.options import NO_LABEL, Merging

Ints = NDArray[np.signedinteger[Any]]

_LEAST: Final = 5
"""Fewest variants shown of a seed, if it has that many."""

_SIGNALS: Final = {
    "quality": ("quality", 2),
    "zipf_frequency": ("frequency", 1),
    "likelihood_change": ("log-likelihood", 1),
    "log_odds": ("log-odds", 1),
    "mlm_count": ("masked LMs", 0),
}
"""Column → its name on the page, and the number of decimals, 0 to 2."""

_FAULTS: Final = {
    "number_changed": (True, "other number"),
    "tense_changed": (True, "other verb form"),
    "article_fits": (False, "article does not fit"),
}
"""Column → the value that is a fault, and its name on the page."""

SIGNALS: Final = (*_SIGNALS, *_FAULTS)
"""Columns of automatic signals of a replacement's quality; null if no file has them."""


def problems_in(
    paths: Sequence[Path], problem_format: ProblemFormat, merging: Merging | None = None
) -> str:
    """Write the problems in files for `FROM`, numbered through all of them by the column `row`.

    Where the format has other texts, `premise` is the first and `hypothesis` the others, joined by
    spaces, both empty where texts are missing; with their spans, shifted accordingly.
    `likelihood_change` is the lowest of all texts. Labels are merged, if asked.
    """
    starts, names = [0], dict[str, None]()
    for path in paths:
        with naming_damage(path), open_parquet(path) as file:
            starts.append(starts[-1] + file.metadata.num_rows)
            names |= dict.fromkeys(file.schema_arrow.names)
    first, *others = problem_format.fields
    texts = [f"coalesce(\"{field}\", '')" for field in others]
    spans, shift = [], "0"
    for field, text in zip(others, texts, strict=True):
        spans.append(
            f'list_transform(coalesce("{field}_spans", []), lambda span: '
            f"list_transform(span, lambda place: place + {shift}))"
        )
        shift = f"{shift} + length({text}) + 1"
    made = dict.fromkeys((name for name in SIGNALS if name not in names), "NULL")
    made["row"] = f"{starts}[file_index::INT + 1] + file_row_number"
    if first in names:
        made |= {
            "premise": f"coalesce(\"{first}\", '')",
            "hypothesis": " || ' ' || ".join(texts),
            "premise_spans": f'coalesce("{first}_spans", [])',
            "hypothesis_spans": " || ".join(spans),
        }
    if merging:
        codes = merging.codes(problem_format.labels).tolist()
        merged = f"list_extract({codes}, {{}} + 1)::TINYINT".format
        made["label"] = merged("label")
        votes = f"list_transform(annotator_labels, lambda vote: {merged('vote')})"
        made["annotator_labels"] = votes
    if changes := [name for name in problem_format.pll_changes if name in names]:
        made["likelihood_change"] = f"least({', '.join(f'{name}::DOUBLE' for name in changes)})"
    kept = [f'"{name}"' for name in names if name not in made]
    shown = ", ".join([*kept, *(f'{value} AS "{name}"' for name, value in made.items())])
    return f"(SELECT {shown} FROM {parquet(paths, by_name=True)})"


@dataclass(frozen=True, slots=True, eq=False)
class SourceSeeds:
    """S seeds of a source, with V variants of C word classes, and answers of M models."""

    source: str
    texts: tuple[str, str]
    """Names of the texts in the columns `premise` and `hypothesis`; in NLI the same names."""
    seeds: pa.Table
    """Seeds, (S,), sorted by id."""
    problems: str
    """All variants of its configurations, with repetitions, as of `problems_in`."""
    rows: Ints
    """Rows of these of the variants to show, (V shown,), sorted by seed and id."""
    own: Ints
    """Answers to the seeds, (M, S)."""
    answers: Ints
    """Answers to the variants to show, (M, V shown)."""
    seed: Ints
    """Row of each shown variant's seed, (V shown,)."""
    rank: Ints
    """Rank of each shown variant among all variants of its seed, by a hash of ids, (V shown,)."""
    word_class: Ints
    """Word class of each shown variant, (V shown,), as position in `word_classes`."""
    word_classes: tuple[str, ...]
    n_variants: Ints
    """Number of distinct variants, shown or not, (C, S)."""
    n_answered: Ints
    """Number of these with an answer, (M, C, S); all, unless predictions are missing."""
    n_right: Ints
    """Number of these answered right, (M, C, S)."""

    @property
    def gold(self) -> Ints:
        """Gold labels of the seeds, (S,)."""
        return np.asarray(self.seeds["label"].to_numpy())

    @property
    def n_shown(self) -> Ints:
        """Number of variants to show per seed, (S,)."""
        return np.bincount(self.seed, minlength=len(self.seeds))

    def mean_right(self) -> NDArray[np.float64]:
        """Share of each seed's variants answered right, averaged over models, (S,)."""
        return mean_right(self.n_right.sum(axis=1), self.n_answered.sum(axis=1))

    def hardest(self) -> Ints:
        """Rows of seeds, hardest first, (S,)."""
        n_wrong = ((self.own != MISSING) & (self.own != self.gold)).sum(axis=0)
        return hardest_first(self.mean_right(), n_wrong)

    def sample(self, per_seed: int, n_seeds: int) -> SourceSeeds:
        """Keep at most `per_seed` variants, by a hash of ids, of each of the hardest `n_seeds`."""
        shown = np.zeros(len(self.seeds), bool)
        shown[self.hardest()[:n_seeds]] = True
        keep = np.flatnonzero((self.rank < per_seed) & shown[self.seed])
        return replace(
            self,
            answers=self.answers[:, keep],
            **{key: getattr(self, key)[keep] for key in ("rows", "seed", "rank", "word_class")},
        )

    def read(self, columns: Sequence[str], shown: Ints | slice = slice(None)) -> pa.Table:
        """Read columns of the variants to show, or of some of these, in their order."""
        rows = self.rows[shown]
        with connect() as connection:
            connection.register("wanted", pa.table({"row": rows, "place": np.arange(len(rows))}))
            return connection.sql(
                f"SELECT {', '.join(columns)} FROM {self.problems} JOIN wanted USING (row) "
                "ORDER BY place"
            ).to_arrow_table()


def limit_variants(sources: Sequence[SourceSeeds], most: int) -> tuple[SourceSeeds, ...]:
    """Keep at most `most` variants: equal numbers per seed, or `_LEAST` of the hardest seeds."""
    counts = np.concatenate([source.n_shown for source in sources])
    if counts.sum() <= most:
        return tuple(sources)
    per_seed = _LEAST
    while np.minimum(counts, per_seed + 1).sum() <= most:
        per_seed += 1
    share = min(1.0, most / max(1, np.minimum(counts, per_seed).sum()))
    return tuple(
        source.sample(per_seed, int(share * len(source.seeds)) if share < 1 else len(source.seeds))
        for source in sources
    )


def describe_sample(sources: Sequence[SourceSeeds]) -> str:
    """Say in a sentence which variants are shown."""
    shown = sum(len(source.seed) for source in sources)
    total = sum(int(source.n_variants.sum()) for source in sources)
    if shown == total:
        return f"All {total:,} answered variants are shown."
    if not shown:
        return f"None of the {total:,} variants is shown; counts and shares are those of all."
    counts = [count for source in sources for count in source.n_shown.tolist()]
    text = (
        f"To keep the file small, {shown:,} of {total:,} variants are shown: of each seed at "
        f"most {max(counts):,}, sampled by a hash of their ids"
    )
    if bare := sum(not count for count in counts):
        text += f", and none of the {bare:,} easiest seeds"
    return f"{text}. Counts and shares are those of all variants."


def read_source(models: Sequence[AnswerTable], configs: Sequence[str]) -> SourceSeeds:
    """Read the seeds of a source, with all variants of its configurations."""
    folder, dataset, merging = models[0].folder, models[0].dataset, models[0].merging
    problem_format, numbers = format_in(folder, configs[0]), list(dataset.formats)
    columns = ("variant_id", "seed_id", "label", "annotator_labels", "premise", "hypothesis")
    word_class = "coalesce(word_class, '') AS word_class"
    rank = "(dense_rank() OVER (PARTITION BY seed_id ORDER BY md5(variant_id)) - 1)::INT AS rank"
    wanted = {"seeds": columns, "variants": ("seed_id", "label", word_class, rank)}
    problems, tables, answers = dict[str, str](), dict[str, pa.Table](), dict[str, Ints]()
    for split in SPLITS:
        files = list(dict.fromkeys(f for of in configs for f in split_files(folder, of)[split]))
        problems[split] = problems_in([folder / f for f in files], problem_format, merging)
        with connect() as connection:
            tables[split] = connection.sql(
                f"SELECT row, {', '.join(wanted[split])} FROM {problems[split]} "
                "QUALIFY row_number() OVER (PARTITION BY seed_id, variant_id ORDER BY row) = 1 "
                "ORDER BY seed_id, variant_id"
            ).to_arrow_table()
        order = f"array_position({[numbers.index(file) for file in files]}, file), row"
        given = (
            model.query(
                f"SELECT coalesce(prediction, {MISSING})::SMALLINT AS answer FROM answers WHERE "
                f"file IN {tuple(map(numbers.index, files))} ORDER BY {order}"
            )
            for model in models
        )
        rows = tables[split]["row"].to_numpy()
        answers[split] = np.stack([column["answer"].to_numpy()[rows] for column in given])
    answered = (answers["variants"] != MISSING).any(axis=0)
    answers["variants"] = answers["variants"][:, answered]
    seeds, variants = tables["seeds"], tables["variants"].filter(pa.array(answered))
    place = {name: n for n, name in enumerate(VARIANT_CLASSES)}
    names = pc.unique(variants["word_class"]).to_pylist()
    names.sort(key=lambda name: (place.get(name, len(place)), name))
    classes = pc.index_in(variants["word_class"], value_set=pa.array(names)).to_numpy()
    seed = pc.index_in(variants["seed_id"], value_set=seeds["seed_id"].combine_chunks()).to_numpy()
    cell = classes.astype(np.int64) * len(seeds) + seed
    shape = (len(names), len(seeds))

    def tally(chosen: Any) -> Ints:
        return np.bincount(cell[chosen], minlength=shape[0] * shape[1]).reshape(shape)

    label = variants["label"].to_numpy()
    return SourceSeeds(
        source=parse_config_name(configs[0])[0],
        texts=(problem_format.fields[0], " + ".join(problem_format.fields[1:])),
        seeds=seeds.select(columns),
        problems=problems["variants"],
        rows=variants["row"].to_numpy(),
        own=answers["seeds"],
        answers=answers["variants"],
        seed=seed,
        rank=variants["rank"].to_numpy(),
        word_class=classes.astype(np.int16),
        word_classes=tuple(names),
        n_variants=tally(slice(None)),
        n_answered=np.stack([tally(given != MISSING) for given in answers["variants"]]),
        n_right=np.stack([tally(given == label) for given in answers["variants"]]),
    )


# --- Packed for the page ---

Spans = Sequence[Sequence[int]]

_ALPHABET: Final = digits + ascii_lowercase
_HALF: Final = 100
"""Number of characters that are shown of the beginning and of the end of a long answer."""
_DIGITS: Final = {**dict(enumerate(_ALPHABET)), NO_LABEL: "?", MISSING: "-"}
"""Label → a character, which scripts read as a number of base 36."""

_CODES: Final = np.array([a + b for a in _ALPHABET for b in _ALPHABET] + ["--"])
"""Two-digit numbers of base 36, and the mark for no value; 648, in the middle, stands for 0."""


def embed_source(source: SourceSeeds, words_of: Sequence[Mapping[str, str]] = ()) -> dict[str, Any]:
    """Pack seeds as columns, variants by seed and words; `words_of` models are by id."""
    premises = source.seeds["premise"].to_pylist()
    hypotheses = source.seeds["hypothesis"].to_pylist()
    columns = ["word_class", "original", "replacement", *NLI.fields, *NLI.spans]
    variants = source.read([*columns, *SIGNALS, "variant_id"])
    classes = {name: code for code, name in enumerate(source.word_classes)}
    # (seed, class, words) → spans of the words in the seed's texts, and their variants.
    groups: dict[tuple[int, int, str], tuple[list[list[list[int]]], list[int]]] = {}
    vocabulary: dict[str, int] = {}
    words: list[int] = []
    texts: dict[int, list[Any]] = {}
    rows = zip(source.seed.tolist(), rows_of(variants, columns), strict=True)
    for variant, (seed, row) in enumerate(rows):
        word_class, original, replacement, premise, hypothesis, *marks = row
        word, new = original or "", replacement or ""
        key = (seed, classes[word_class or ""], word)
        if key not in groups:
            lengths = {}
            if word_class != PARAPHRASE and " " in new:  # several words change
                lengths = {to: len(of) for to, of in changed_words(word, new).items()}
            places = [
                spans_in_seed(of, [lengths.get(text[slice(*span)], len(word)) for span in of])
                for text, of in zip((premise, hypothesis), marks, strict=True)
            ]
            groups[key] = (places, [])
        places, members = groups[key]
        members.append(variant)
        words.append(vocabulary.setdefault(new, len(vocabulary)))
        in_seed = zip((premises[seed], hypotheses[seed]), places, strict=True)
        derived = [replaced(text, spans, new) for text, spans in in_seed]
        if derived != [premise, hypothesis] or not new:  # not from seed and replacement
            texts[variant] = [premise, _flat(marks[0]), hypothesis, _flat(marks[1])]
    by_seed = sorted(groups.items(), key=lambda group: group[0][0])
    order = [variant for _, (_, members) in by_seed for variant in members]
    variants = variants.take(pa.array(order, pa.int64()))
    all_answered = (source.n_answered == source.n_variants).all()
    named = {"own": source.seeds["seed_id"], "answers": variants["variant_id"]}
    return {
        "name": source.source,
        "classes": list(source.word_classes),
        "ids": source.seeds["seed_id"].to_pylist(),
        "premises": premises,
        "hypotheses": hypotheses,
        "gold": _digits(source.gold.tolist()),
        "votes": [_digits(votes) for votes in source.seeds["annotator_labels"].to_pylist()],
        "own": [_digits(answers) for answers in source.own.tolist()],
        "n": source.n_variants.tolist(),
        "answered": None if all_answered else source.n_answered.tolist(),
        "right": source.n_right.tolist(),
        "groups": [[*key, *map(_flat, at), len(members)] for key, (at, members) in by_seed],
        "vocabulary": list(vocabulary),
        "words": [words[variant] for variant in order],
        "answers": [_digits(answers) for answers in source.answers[:, order].tolist()],
        "signals": pack_signals(variants),
        "texts": {str(n): texts[variant] for n, variant in enumerate(order) if variant in texts},
        "said": [{kind: _cut(ids, own) for kind, ids in named.items()} for own in words_of],
    }


def _cut(ids: pa.ChunkedArray, words: Mapping[str, str]) -> dict[int, str]:
    """Take answers in a model's own words to problems, long ones without their middle."""
    chosen = enumerate(ids.to_pylist() if words else ())
    texts = ((number, words[name]) for number, name in chosen if name in words)
    return {
        number: text if len(text) <= 2 * _HALF else f"{text[:_HALF]} … {text[-_HALF:]}"
        for number, text in texts
    }


def replaced(text: str, spans: Spans, new: str) -> str:
    """Put a replacement in place of spans of a text, which gives a variant's text.

    >>> replaced("a boy and a boy", [[2, 5], [12, 15]], "poodle")
    'a poodle and a poodle'
    """
    starts, ends = zip(*spans, strict=True) if spans else ((), ())
    kept = zip((0, *ends), (*starts, len(text)), strict=True)
    return new.join(text[start:end] for start, end in kept)


def _flat(spans: Spans) -> list[int]:
    return [*chain.from_iterable(spans)]


def _digits(codes: Sequence[int] | None) -> str:
    return "".join(_DIGITS[code] for code in codes or ())


def pack_signals(variants: pa.Table) -> dict[str, Any]:
    """Pack `SIGNALS`, in the page's order: two characters for each figure, one for all faults.

    Figures are numbers of base 36: with two decimals from -6.48 to 6.47, with one decimal from
    -64.8 to 64.7; the page marks values at both ends.
    """
    figures = []
    for column, (name, decimals) in _SIGNALS.items():
        if len(variants[column].unique()) > 1:
            values = pc.fill_null(variants[column].cast(pa.float64()), math.nan).to_numpy()
            numbers = np.clip(np.rint(values * 10**decimals) + 648, 0, len(_CODES) - 2)
            codes = _CODES[np.where(np.isnan(values), len(_CODES) - 1, numbers).astype(int)]
            figures.append({"name": name, "decimals": decimals, "codes": "".join(codes)})
    faulty = np.zeros(len(variants), int)
    for place, (column, (bad, _)) in enumerate(_FAULTS.items()):
        faults = [value is bad for value in variants[column].to_pylist()]
        faulty += np.array(faults, int) << place
    return {
        "figures": figures,
        "faults": [name for _, name in _FAULTS.values()],
        "faulty": "".join(map(str, faulty.tolist())),
    }
