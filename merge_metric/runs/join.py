"""Predictions joined to a dataset: the columns to score."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.layout import all_configurations, collections, format_in, split_files
from merge_dataset.schema import LABELS, NLI, SPLITS, ProblemFormat, parse_config_name
from merge_metric.runs.coverage import (
    EXAMPLES,
    Coverage,
    Parts,
    Tally,
    check_configurations,
    choose,
    preview,
    read_columns,
)
from merge_metric.runs.flags import FLAGS, flag_lists, flags_in
from merge_metric.runs.row_checks import PROBABILITIES, labels_of
from merge_metric.runs.texts import TEXT_DIGEST, UNVERIFIED, combined, from_hex, text_digests

log = logging.getLogger(__name__)

_MANY_GROUPS: Final = 100
"""More make the bootstrap take minutes."""

_IDENTITY: Final = ("variant_id", "seed_id", "label")


def groupings(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """List what variants can be grouped by: columns of the dataset, `FLAGS` where it has any."""
    flags = (FLAGS,) if flags_in(problem_format) else ()
    return "word_class", "mlms", *problem_format.mlms, "original", "replacement", *flags


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """Choices of how predictions are joined to a dataset; by default all that they are for."""

    configs: Sequence[str] = ()
    """Configurations; by default what the predictions are for (see `coverage.choose`)."""
    by: Sequence[str] = ()
    """Columns out of `groupings` to group variants by; word classes always are where a
    configuration has all."""
    cluster: str = ""
    """Text of the problems, such as `premise`, by which the bootstrap clusters seeds; see
    `require_text`."""
    allow_missing: bool = False
    """Leave out seeds of which a prediction, their own or that of a variant, is missing."""


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """One configuration's columns for `scoring.score`."""

    config: str
    columns: dict[str, Any]
    """Keyword arguments of `scoring.score`."""
    n_seeds: int
    """Seeds of which no prediction is missing; without any there are no rows."""
    n_seeds_left_out: int
    """Seeds left out because predictions are missing."""
    missing: tuple[str, ...]
    """The first ids without a prediction, those of seeds before those of variants."""
    texts: str
    """Digest of the configuration's texts in the dataset, or `texts.UNVERIFIED`."""
    places: NDArray[np.int64]
    """(n,) numbers that ascend in the order of the dataset, in all parts together."""


Taken = TypeVar("Taken")


def join(
    parts: Parts,
    take: Callable[[Joined], Taken],
    options: JoinOptions,
) -> Iterator[tuple[str, list[Taken], int]]:
    """Put predictions beside what the dataset knows of their problems.

    Args:
        parts: The predictions.
        take: Takes what is needed of each part, with variants in the order of the dataset.
        options: Configurations, columns, and whether predictions may be missing.

    Yields:
        Per configuration its name, what was taken of each part that has seeds, and how many
        seeds were left out.

    Raises:
        ValueError: unknown configurations or columns, predictions for other texts or with other
            gold labels than the dataset's, or predictions missing.
    """
    chosen = _chosen_configurations(parts.tally, options)
    # What is in memory is joined to one configuration after the other; what is not is read once.
    rounds = [[config] for config in chosen] if parts.count == 1 else [chosen]
    unscored = 0
    for number, some in enumerate(rounds or [[]]):
        gathered = {config: _Gathered[Taken](config) for config in some}
        for predictions, coverage in parts.each():
            if not number:
                unscored += count_unscored(predictions, coverage, chosen)
            for config, each in gathered.items():
                each.add(join_one(predictions, coverage, config, options), take)
        for config in some:
            each = gathered.pop(config)
            each.judge(parts.tally, allow_missing=options.allow_missing)
            yield config, each.taken, each.left_out
    tell_unscored(unscored, parts.rows)


@dataclass(slots=True)
class _Gathered(Generic[Taken]):
    """A configuration's parts so far."""

    config: str
    taken: list[Taken] = field(default_factory=list)
    left_out: int = 0
    _seeds: int = 0
    _missing: list[str] = field(default_factory=list)
    _subsamples: set[int] | None = None
    _values: dict[str, set[Any]] = field(default_factory=dict)

    def add(self, joined: Joined, take: Callable[[Joined], Taken]) -> None:
        """Take from a part."""
        self._missing = [*self._missing, *joined.missing][: EXAMPLES + 1]
        self._seeds += joined.n_seeds
        self.left_out += joined.n_seeds_left_out
        if not joined.n_seeds:
            return
        for name, values in joined.columns.get("groups", {}).items():
            self._values.setdefault(name, set()).update(_distinct(values))
        self._require_subsamples(joined)
        self.taken.append(take(joined))

    def _require_subsamples(self, joined: Joined) -> None:
        """Raise where a part's seeds are in other subsamples than those before."""
        found = set(chain.from_iterable(joined.columns.get("subsamples") or ()))
        known = self._subsamples = found if self._subsamples is None else self._subsamples
        if found != known:
            raise ValueError(
                f"{self.config}: expected every seed to have variants in every subsample, got "
                f"seeds without any in {', '.join(map(str, sorted(found ^ known)))}; complete them "
                f"or leave them out"
            )

    def judge(self, tally: Tally, *, allow_missing: bool) -> None:
        """Raise about missing predictions, and tell of columns with many values."""
        judge_missing(
            tally,
            self.config,
            n_seeds=self._seeds,
            n_left_out=self.left_out,
            examples=self._missing,
            allow_missing=allow_missing,
        )
        for name, values in self._values.items():
            tell_many_groups(name, values)


def _chosen_configurations(tally: Tally, options: JoinOptions) -> list[str]:
    """Choose the configurations to score, and check what is asked for.

    Raises:
        ValueError: unknown configurations or columns.
    """
    folder = tally.folder
    # Of each collection: formats are equal whatever optional columns they have.
    formats = [format_in(folder, name) for name in collections(folder)]
    known = dict.fromkeys(name for each in formats for name in groupings(each))
    if unknown := [name for name in options.by if name not in known]:
        raise ValueError(
            f"expected columns to group by out of {', '.join(known)}, "
            f"got {', '.join(map(repr, unknown))}"
        )
    chosen = check_configurations(folder, options.configs) or choose(tally)
    for config in chosen:
        if options.cluster:
            require_text(folder, config, options.cluster)
    return chosen


def join_one(
    predictions: pa.Table, coverage: Coverage, config: str, options: JoinOptions
) -> Joined:
    """Join predictions to one configuration, without judging what is missing; see `join`."""
    problem_format = format_in(coverage.folder, config)
    if (got := labels_of(predictions)) != problem_format.labels:
        raise ValueError(
            f"{config}: expected predictions out of the labels {', '.join(problem_format.labels)}, "
            f"got {', '.join(got)}"
        )
    classes = () if parse_config_name(config)[1] else ("word_class",)
    chosen = [name for name in options.by if name in groupings(problem_format)]
    grouped = tuple(dict.fromkeys((*classes, *chosen)))
    files = split_files(coverage.folder, config)
    cluster = options.cluster
    texts_of_seeds = (*_IDENTITY, cluster) if cluster else _IDENTITY
    seeds = coverage.read(files["seeds"], texts_of_seeds)
    flags = flags_in(problem_format) if FLAGS in grouped else ()
    columns_of_groups = (name for name in grouped if name != FLAGS)
    wanted = (*_IDENTITY, "subsamples", *columns_of_groups, *flags)
    variants = coverage.read(files["variants"], wanted)
    if flags:
        variants = variants.append_column(FLAGS, flag_lists(variants, flags))
    own, rows = coverage.of(config, "seeds"), coverage.of(config, "variants")
    seed = _seeds_of(variants, seeds, config, coverage.folder)
    for split, split_rows in ((seeds, own), (variants, rows)):
        _require_same_identity(predictions, split, split_rows, config)
    texts = _require_same_texts(predictions, coverage, config)

    complete = (own >= 0) & (np.bincount(seed[rows < 0], minlength=len(seeds)) == 0)
    missing = [
        name
        for table, of_split in ((seeds, own), (variants, rows))
        for name in table["variant_id"].filter(of_split < 0)[: EXAMPLES + 1].to_pylist()
    ]
    kept = complete[seed]
    variants, rows, own_rows = variants.filter(pa.array(kept)), rows[kept], own[seed[kept]]

    columns = _variant_columns(variants, grouped) | _answers(predictions, rows, own_rows)
    if cluster:
        columns["clusters"] = {cluster: text_codes(seeds[cluster])[seed[kept]]}
    n_seeds = int(complete.sum())
    left_out, places = len(seeds) - n_seeds, coverage.places(config, "variants")[kept]
    return Joined(config, columns, n_seeds, left_out, tuple(missing), texts, places)


def require_text(folder: Path, config: str, cluster: str) -> None:
    """Raise unless the problems of a configuration have a text of that name.

    Raises:
        ValueError: they have not.
    """
    known = format_in(folder, config).fields
    if cluster not in known:
        raise ValueError(
            f"expected seeds to be clustered by a text of theirs, {' or '.join(known)}, got "
            f"{cluster!r} for {config}"
        )


def text_codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Number texts by their digests: the same number for equal ones, wherever they stand."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    texts = (text or "" for text in encoded.dictionary.to_pylist())
    digests = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in texts)
    codes: NDArray[np.int64] = np.frombuffer(digests, np.int64)[encoded.indices.to_numpy()]
    return codes


def _variant_columns(variants: pa.Table, grouped: Sequence[str]) -> dict[str, Any]:
    """Take columns for `scoring.score` from the dataset."""
    columns: dict[str, Any] = {
        "references": variants["label"].to_numpy(),
        "seed_ids": variants["seed_id"].to_pylist(),
        "variant_ids": variants["variant_id"].to_pylist(),
    }
    if grouped:
        columns["groups"] = {name: variants[name].to_pylist() for name in grouped}
    if len(pc.list_flatten(variants["subsamples"])):
        columns["subsamples"] = variants["subsamples"].to_pylist()
    return columns


def _answers(
    predictions: pa.Table, rows: NDArray[np.int64], own_rows: NDArray[np.int64]
) -> dict[str, Any]:
    """Take columns for `scoring.score` from the model, by rows of variants and their seeds."""
    prediction = predictions["prediction"].to_numpy()
    columns = {"predictions": prediction[rows], "seed_predictions": prediction[own_rows]}
    columns |= label_columns(predictions)
    if PROBABILITIES in predictions.column_names:
        table = probability_table(predictions)
        columns |= {"probabilities": table[rows], "seed_probabilities": table[own_rows]}
    return columns


def label_columns(predictions: pa.Table) -> dict[str, Any]:
    """Make the keyword `labels` of `scoring.score`, where it has to be told them."""
    labels = labels_of(predictions)
    return {} if labels == LABELS else {"labels": labels}


def probability_table(predictions: pa.Table) -> NDArray[np.float64]:
    """Read the probabilities of a predictions table, (n, labels)."""
    column = predictions[PROBABILITIES].combine_chunks()
    per_row = len(labels_of(predictions))
    table: NDArray[np.float64] = column.flatten().to_numpy().reshape(-1, per_row)
    return table


def _seeds_of(variants: pa.Table, seeds: pa.Table, config: str, folder: Path) -> NDArray[np.int64]:
    """Find for each variant the row of its seed."""
    found = pc.index_in(variants["seed_id"], value_set=seeds["seed_id"].combine_chunks())
    if found.null_count:
        ids = variants["seed_id"].filter(pc.is_null(found)).unique()
        raise ValueError(
            f"{folder}: {config}: expected the seed of every variant in the dataset, got none for "
            f"{preview(ids)}; the dataset is damaged: `merge-nli check {folder}` says more"
        )
    seed: NDArray[np.int64] = found.to_numpy().astype(np.int64)
    if (bare := np.bincount(seed, minlength=len(seeds)) == 0).any():
        ids = seeds["seed_id"].filter(pa.array(bare))
        raise ValueError(
            f"{folder}: {config}: expected variants of every seed in the dataset, got none of "
            f"{preview(ids)}; the dataset is damaged: `merge-nli check {folder}` says more"
        )
    return seed


def _require_same_identity(
    predictions: pa.Table, problems: pa.Table, rows: NDArray[np.int64], config: str
) -> None:
    """Raise where a prediction names another seed or gold label than the dataset does."""
    there, labels = rows >= 0, labels_of(predictions)
    given, known = predictions.take(rows[there]), problems.filter(pa.array(there))
    for name, what in (("seed_id", "seed"), ("label", "gold label")):
        differs = pc.not_equal(given[name], known[name])
        if not pc.any(differs).as_py():
            continue
        given, known = given.filter(differs), known.filter(differs)
        first, theirs, ours = (
            column[0].as_py() for column in (given["variant_id"], given[name], known[name])
        )
        asked = "is this the dataset that the model was run on"
        if name == "label":
            theirs, ours = labels[theirs], labels[ours]
            asked += f", and are its labels in the order {', '.join(labels)}"
        raise ValueError(
            f"{config}: expected for {first!r} the {what} {ours!r}, as in the dataset, got "
            f"{theirs!r}; it differs in {len(given):,} of {there.sum():,} problems: {asked}?"
        )


def _require_same_texts(predictions: pa.Table, coverage: Coverage, config: str) -> str:
    """Raise where a model was asked about other texts than the dataset has.

    Returns:
        As `Joined.texts`.
    """
    if TEXT_DIGEST not in predictions.column_names:
        return UNVERIFIED
    given, is_given = from_hex(predictions[TEXT_DIGEST])
    known = {split: _texts_of(coverage, config, split) for split in SPLITS}
    other, unknown = [], False
    for split, digests in known.items():
        rows = coverage.of(config, split)
        asked = rows[rows >= 0]
        unknown |= not is_given[asked].all()
        other.append(asked[is_given[asked] & (given[asked] != digests[rows >= 0])])
    if len(differ := np.concatenate(other)):
        ids = predictions["variant_id"].take(pa.array(differ))
        asked_about = sum(int((coverage.of(config, split) >= 0).sum()) for split in SPLITS)
        raise ValueError(
            f"{config}: expected predictions for the texts of the dataset {coverage.folder}, got "
            f"predictions for other texts of {len(differ):,} of {asked_about:,} problems: "
            f"{preview(ids)}; give the dataset that the model was run on, or run the model on "
            f"this one"
        )
    return UNVERIFIED if unknown else combined(np.concatenate(list(known.values())))


def _texts_of(coverage: Coverage, config: str, split: str) -> NDArray[np.uint64]:
    """Digest the texts of a split's problems, in the order of the dataset."""
    folder = coverage.folder
    fields = format_in(folder, config).fields
    columns = ("variant_id", *fields)
    digests = [
        _texts_in(folder, file, fields, (folder / file).stat().st_mtime_ns)
        if coverage.seeds.is_all
        else text_digests(coverage.read([file], columns), fields)
        for file in split_files(folder, config)[split]
    ]
    return np.concatenate(digests or [np.empty(0, np.uint64)])


@lru_cache(maxsize=256)
def _texts_in(
    folder: Path, file: str, fields: tuple[str, ...], modified: int
) -> NDArray[np.uint64]:
    """Digest the texts of a file once for all models, unless it was `modified` since."""
    return text_digests(read_columns(folder, [file], ("variant_id", *fields)), fields)


def judge_missing(
    coverage: Tally,
    config: str,
    *,
    n_seeds: int,
    n_left_out: int,
    examples: Sequence[str],
    allow_missing: bool,
) -> None:
    """Raise about missing predictions, or tell of the seeds left out.

    Args:
        coverage: Counts of what is there.
        config: The configuration.
        n_seeds: Its complete seeds.
        n_left_out: Its other seeds.
        examples: As `Joined.missing`.
        allow_missing: As in `JoinOptions`.

    Raises:
        ValueError: predictions are missing, and may not, or no seed has all of them.
    """
    if not n_left_out:
        return
    missing = f"predictions are missing for {coverage.describe_missing(config)}"
    total = n_seeds + n_left_out
    if n_seeds and allow_missing:
        log.warning(
            "%s: %s of %s seeds are left out: %s", config, f"{n_left_out:,}", f"{total:,}", missing
        )
        return
    advice = f"`allow_missing` scores the complete seeds, {n_seeds:,} of {total:,}"
    if not n_seeds:
        advice = "no seed has all of its predictions"
    if coverage.n_missing(config, "seeds") == total:
        advice += "; a seed's own prediction is the row whose variant_id is the seed's id"
    else:
        advice += _less_incomplete(coverage, config)
    raise ValueError(f"{config}: {missing}: {preview(pa.array(examples))}; {advice}")


def _less_incomplete(coverage: Tally, config: str) -> str:
    """Name other configurations that lack less, for the end of a message."""

    def missing(name: str) -> int:
        return sum(coverage.n_missing(name, split) for split in SPLITS)

    better = [
        f"{name} ({coverage.describe_missing(name) + ' missing' if missing(name) else 'complete'})"
        for name in all_configurations(coverage.folder)
        if missing(name) < missing(config) and coverage.has(name, "variants")
    ]
    return f"; with `config`: {', '.join(better)}" if better else ""


def tell_many_groups(name: str, values: Sized) -> None:
    """Say that a column has so many distinct values that intervals take long."""
    if len(values) > _MANY_GROUPS:
        log.info("%s has %s values; without bootstrap they are scored sooner", name, len(values))


def _distinct(values: Sequence[Any]) -> set[Any]:
    """Find the distinct values of a column of values, or of lists of them."""
    lists = bool(len(values)) and isinstance(values[0], list)
    return set(chain.from_iterable(values) if lists else values)


def count_unscored(predictions: pa.Table, coverage: Coverage, configs: Iterable[str]) -> int:
    """Count the predictions that belong to other configurations only."""
    unscored = np.ones(len(predictions), bool)
    for config in configs:
        for split in SPLITS:
            rows = coverage.of(config, split)
            unscored[rows[rows >= 0]] = False
    return int(unscored.sum())


def tell_unscored(unscored: int, total: int) -> None:
    """Say how many predictions belong to other configurations only."""
    if unscored:
        log.info(
            "%s of %s predictions belong to other configurations and are not scored",
            f"{unscored:,}",
            f"{total:,}",
        )
