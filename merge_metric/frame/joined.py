"""Frames: a model's answers to one configuration, joined to the dataset and counted once.

Source (a file named by a user) → AnswerTable (in the engine) → Frame (its counts)
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merge_dataset.layout import (
    as_dataset,
    check_configurations,
    collections,
    format_in,
    split_files,
)
from merge_dataset.schema import LABELS, SPLITS, parse_config_name
from merge_dataset.settings import as_texts, check_members
from merge_metric.frame.answer_table import (
    PREDICTIONS,
    AnswerTable,
    HasPredictions,
    Predictions,
    PredictionsSource,
    as_sources,
    choose,
    judge_missing,
    named,
    read_models,
    require_agreement,
    tell_other_draws,
)
from merge_metric.frame.checks import REQUIRED
from merge_metric.frame.counting import ConfigAnswers, groupings
from merge_metric.frame.noise import read_repeats
from merge_metric.frame.relations import preview, read_columns
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.inputs import Clusters, Ints, Rows, split_predictions
from merge_metric.seed_variant_accuracy.options import Merging, merging_advice
from merge_metric.seed_variant_accuracy.scoring import Sums

log = logging.getLogger(__name__)

ALL_ROWS: Final = "all rows"
"""Name for the results of a whole file without configurations."""

VARIANT_IDS: Final = "variant_ids"
"""Name of the column of ids in `Frame.values`."""

Groups = Mapping[str, Mapping[str, SeedCounts]]
"""Column → value → counts of the variants with this value."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One model's answers to one configuration of one dataset, counted."""

    model: str
    config: str
    counts: SeedCounts
    """Counts of all variants."""
    answers: Ints
    """Number of distinct variants per seed and answer, (S, L + 1); the last is for no label."""
    groups: Groups = field(default_factory=dict)
    shift: Sums | None = None
    """Sums of `scoring.distribution_shift`, if there are probabilities."""
    dataset: str = ""
    """Name of the dataset folder."""
    folder: Path = Path()
    """The dataset folder itself."""
    n_seeds_left_out: int = 0
    """Number of seeds left out because predictions are missing."""
    texts: str = ""
    """Digest of the dataset's texts that were answered, or `texts.UNVERIFIED`."""
    variants: Rows | None = None
    """The single variants, if they were requested; see `rows`."""
    repeats: Mapping[str, Ints] = field(default_factory=dict)
    """Seed → repeated answers to it, if it was asked several times; see `noise`."""
    merging: str = ""
    """How labels are merged, as text."""
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values of these variants: dataset column or `VARIANT_IDS` → value or list per row."""

    @property
    def rows(self) -> Rows:
        """The single variants, in the order of the dataset."""
        assert self.variants is not None, "the frame was read with `with_rows=False`"
        return self.variants


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a model's answers are counted, and whether odd ones are told; see `read_frames`."""

    by: tuple[str, ...] = ()
    cluster: str = ""
    allow_missing: bool = False
    with_rows: bool = False
    tell: bool = True


def read_frames(
    sources: Predictions | Iterable[Predictions],
    dataset: str | Path | None = None,
    configs: str | Sequence[str] = (),
    *,
    by: str | Sequence[str] = (),
    cluster: str = "",
    allow_missing: bool = False,
    with_rows: bool = True,
    tell: bool = True,
    merge_labels: str | Sequence[str] = (),
) -> Iterator[Frame]:
    """Read the frames of several models, one after the other.

    Args:
        sources: Predictions files, one or several, as text or `Path`; those of one name and
            dataset are parts of one model's answers. Evaluations have theirs.
        dataset: The dataset folder of those that name none. Without it every variant of a file
            counts once.
        configs: Configurations; by default what the predictions are for (see `choose`).
        by: Columns of `groupings` to group variants by, beside word classes where there are all.
        cluster: Text of the problems, such as `premise`, by which the bootstrap clusters seeds.
        allow_missing: Leave out seeds with a missing prediction, for themselves or a variant.
        with_rows: Keep the single variants, beside their counts.
        tell: Warn of odd or missing answers; false where `predict` just did so, or was told to
            leave seeds out.
        merge_labels: Labels that count as one, such as contradiction,neutral=not_entailment; by
            default as descriptions of predictions say.

    Raises:
        FileNotFoundError, TypeError: at once: no such file, or nothing of the kind.
        ValueError: a file cannot be used (see `frames_of`), or two of one model answer the same
            problems.
    """
    files = as_sources(sources)
    folder = None if dataset is None else as_dataset(dataset)
    configs, by = as_texts(configs), as_texts(by)
    asked = {"configs": configs, "by": by, "cluster": cluster, "allow missing": allow_missing}
    for number, source in enumerate(files):
        wanted = [name for name in asked if asked[name]]
        if source.model in [other.model for other in files[:number]]:
            wanted.append("several files of one model")
        if wanted and not (source.dataset or folder):
            raise ValueError(
                f"expected a dataset folder with {wanted[0]}, got none: only the dataset "
                "knows configurations, columns and what is missing; add --dataset FOLDER"
            )
    merging = Merging.parse(merge_labels)
    models = read_models(files, folder, columns=by, tell=tell, merging=merging)
    reading = Reading(
        by=by, cluster=cluster, allow_missing=allow_missing, with_rows=with_rows, tell=tell
    )
    return chain.from_iterable(frames_of(model, configs, reading) for model in models)


Frames = Frame | Predictions
"""Frames in the forms that users have; predictions files are read."""


def as_frames(
    given: Frames | Iterable[Frames] | Mapping[str, Frames],
    dataset: str | Path | None = None,
    configs: str | Sequence[str] = (),
    **options: Any,
) -> list[Frame]:
    """List the frames of one or several frames, evaluations or predictions files, named or not.

    Options are those of `read_frames`; with any, evaluations are read again from their files.
    """
    frames, files, configs = list[Frame](), list[PredictionsSource](), as_texts(configs)
    asked = [name for name, value in options.items() if value]
    for name, item in named(given, Frame, *PREDICTIONS):
        if isinstance(item, Frame) and asked:
            raise ValueError(
                f"expected predictions files or evaluations with `{asked[0]}`, got the frame of "
                f"{item.model}, whose answers are counted already; give it to `read_frames`"
            )
        if isinstance(item, HasPredictions) and asked:
            files.append(PredictionsSource(name or item.name, item.predictions, item.dataset))
            options["merge_labels"] = options.get("merge_labels") or item.frames[0].merging
        elif isinstance(item, Frame | HasPredictions):
            own = [item] if isinstance(item, Frame) else item.frames
            own = [frame for frame in own if not configs or frame.config in configs]
            if not own:
                who = name or (item.model if isinstance(item, Frame) else item.name)
                raise ValueError(
                    f"{who}: expected answers of {', '.join(configs)}, got those of other "
                    "configurations; leave the model out, or name others with `configs`"
                )
            frames += [replace(frame, model=name or frame.model) for frame in own]
        else:
            files += as_sources({name: item} if name else item)
    if files:
        dataset = dataset or next((frame.folder for frame in frames if frame.dataset), None)
        frames += read_frames(files, dataset, configs, with_rows=False, **options)
    return frames


def frames_of(model: AnswerTable, configs: Sequence[str], reading: Reading) -> Iterator[Frame]:
    """Check and count a model's answers, one configuration after the other; see `read_frames`."""
    folder, dataset = model.folder, model.dataset
    if not dataset.formats:  # a file without a dataset
        (file,) = model.predictions
        answers = ConfigAnswers.of(model, "(0)", "(1)")
        file.require_distinct()
        counts, by_answer, _ = answers.count((), None)
        if counts is None:
            table = file.table()
            try:
                split_predictions(*(table[name].to_pylist() for name in REQUIRED))
            except ValueError as error:
                raise ValueError(f"{file.path}: {error}") from error
        assert counts is not None
        shift, repeats = answers.shift(counts), read_repeats([file])
        yield Frame(model.name, ALL_ROWS, counts, by_answer, {}, shift, repeats=repeats)
        return
    # For each collection, as equal formats may have different optional columns.
    formats = [format_in(folder, name) for name in collections(folder)]
    known = dict.fromkeys(name for of_collection in formats for name in groupings(of_collection))
    check_members("by", reading.by, known)
    configs = check_configurations(folder, configs) or choose(model)
    for config in configs if reading.cluster else ():
        check_members("cluster", [reading.cluster], format_in(folder, config).fields)
    tell_other_draws(model, configs)
    for config in configs:
        yield _frame_of(model, config, reading)
    seeds, variants = (dataset.numbers(configs, split) for split in SPLITS)
    (scored,) = model.query(
        f"SELECT (SELECT count(DISTINCT answer) FROM answers WHERE file IN {seeds}) + "
        f"(SELECT count(answer) FROM answers WHERE file IN {variants}) AS n"
    ).to_pylist()
    if unscored := model.n_predictions - scored["n"]:
        log.info(
            "%s of %s predictions belong to other configurations and are not scored",
            f"{unscored:,}",
            f"{model.n_predictions:,}",
        )


def _frame_of(model: AnswerTable, config: str, reading: Reading) -> Frame:
    folder, dataset = model.folder, model.dataset
    problem_format = format_in(folder, config)
    labels, ours = model.merging.of(problem_format.labels), model.labels
    if ours != labels:
        proposed = merging_advice(ours, labels)
        raise ValueError(
            f"{model.where}: {config}: expected predictions out of the labels "
            f"{', '.join(labels)}, got {', '.join(ours)}"
            + f"; `merge_labels` {proposed} merges them"
            * bool(proposed)
        )
    answers = ConfigAnswers.of(model, *(dataset.numbers([config], split) for split in SPLITS))
    texts = require_agreement(model, config)
    complete = answers.is_complete
    if not complete.all():
        allow_missing, tell = reading.allow_missing, reading.tell
        judge_missing(model, config, complete, allow_missing=allow_missing, tell=tell)
    classes = () if parse_config_name(config)[1] else ("word_class",)
    chosen = [name for name in reading.by if name in groupings(problem_format)]
    grouped = list(dict.fromkeys((*classes, *chosen)))
    clusters, files = None, split_files(folder, config)
    if cluster := reading.cluster:
        texts_of_seeds = read_columns(folder, files["seeds"], [cluster])[cluster]
        clusters = Clusters(cluster, text_codes(texts_of_seeds)[answers.seeds["place"][complete]])
    counts, by_answer, groups = answers.count(grouped, clusters)
    if counts is None:
        raise ValueError(
            f"{folder}: {config}: expected every seed with variants of its gold label in "
            f"every subsample, got others; the dataset is damaged: `merge-nli check {folder}` "
            "says more"
        )
    rows: Rows | None = None
    values: dict[str, Any] = {}
    if reading.with_rows:
        rows, values = answers.rows(counts, grouped)
        ids = read_columns(folder, files["variants"], ["variant_id"])["variant_id"]
        values[VARIANT_IDS] = ids.take(pa.array(values.pop("place"))).combine_chunks()
    return Frame(
        model=model.name,
        config=config,
        counts=counts,
        answers=by_answer,
        groups=groups,
        shift=answers.shift(counts),
        dataset=folder.resolve().name,
        folder=folder,
        n_seeds_left_out=int((~complete).sum()),
        texts=texts,
        variants=rows,
        values=values,
        repeats=read_repeats(model.predictions),
        merging=str(model.merging),
    )


def text_codes(column: pa.ChunkedArray) -> Ints:
    """Map texts to numbers by their digests: equal texts have equal numbers everywhere."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    texts = (text or "" for text in encoded.dictionary.to_pylist())
    digests = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.asarray(np.frombuffer(digests, np.int64)[encoded.indices.to_numpy()])


# --- Common properties of frames ---


def by_config(frames: Iterable[Frame]) -> dict[str, list[Frame]]:
    """Group frames by configuration, in the given order."""
    frames_by_config: dict[str, list[Frame]] = {}
    for frame in frames:
        frames_by_config.setdefault(frame.config, []).append(frame)
    return frames_by_config


def common_labels(frames: Iterable[Frame]) -> tuple[str, ...]:
    """Return the labels that all frames share; NLI's without a frame."""
    return same_labels({frame.config: frame.counts.labels for frame in frames})


def same_labels(configs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the labels that all configurations share; NLI's without a configuration."""
    config_of = {labels: config for config, labels in configs.items()}
    if len(config_of) > 1:
        parts = "; ".join(f"{config}: {', '.join(labels)}" for labels, config in config_of.items())
        raise ValueError(
            f"expected problems with the same labels, got {parts}; name configurations of one "
            f"kind with `config`"
        )
    return next(iter(config_of), LABELS)


def same_merging(of_models: Mapping[str, str]) -> Merging:
    """Return how labels of all models are merged; `of_models` are mergings as text, by model."""
    if len(distinct := set(of_models.values())) > 1:
        parts = "; ".join(f"{name}: {merging or 'none'}" for name, merging in of_models.items())
        raise ValueError(
            f"expected models whose labels are merged alike, got {parts}; give `merge_labels`, "
            "which holds for all"
        )
    return Merging.parse(distinct.pop() if distinct else ())


def shared_seeds(counts: Sequence[SeedCounts]) -> list[SeedCounts]:
    """Restrict all counts to their common seeds, if any."""
    common = set.intersection(*(set(table.seed_ids) for table in counts))
    return [
        table.take(np.array([seed in common for seed in table.seed_ids], bool)) for table in counts
    ]


def on_common_seeds(counts: Sequence[SeedCounts], where: str) -> list[SeedCounts]:
    """Restrict all counts to their common seeds; log how many seeds are left out."""
    kept = shared_seeds(counts)
    total = len({seed for table in counts for seed in table.seed_ids})
    if not (n_common := len(kept[0].seed_ids)):
        some = " and ".join(preview(pa.array(map(str, table.seed_ids[:4]))) for table in counts[:2])
        raise ValueError(
            f"{where}: expected predictions for the same seeds, got none in common, such as {some}"
        )
    if n_common < total:
        log.warning(
            "%s: only the %s seeds that all have are used, out of %s",
            where,
            f"{n_common:,}",
            f"{total:,}",
        )
    return kept
