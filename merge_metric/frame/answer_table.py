"""Predictions files as named by users, and a model's predictions joined to a dataset."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.layout import as_dataset, collections, configurations, sources, split_files
from merge_dataset.schema import PARAPHRASE, SPLITS, collection_name
from merge_dataset.settings import as_list
from merge_metric.frame.checks import PROBABILITIES, Condition, PredictionsFile
from merge_metric.frame.plausibility import AnswerTally, tell_of_answers, tell_of_model
from merge_metric.frame.predictions import model_name, open_predictions
from merge_metric.frame.relations import (
    DRAWS,
    EXAMPLES,
    DatasetRelations,
    changed_draws,
    preview,
    unknown_ids,
)
from merge_metric.frame.texts import TEXT_DIGEST, UNVERIFIED, hex_of
from merge_metric.seed_variant_accuracy.options import Merging

log = logging.getLogger(__name__)

# --- Files as named by users ---


@dataclass(frozen=True, slots=True)
class PredictionsSource:
    """A predictions file as named by a user: `FILE`, `NAME=FILE`, `FILE@DATASET`."""

    model: str
    path: Path
    dataset: Path | None = None


@runtime_checkable
class HasPredictions(Protocol):
    """An object with a predictions file and its frames, such as an `Evaluation`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def predictions(self) -> Path: ...  # noqa: D102
    @property
    def dataset(self) -> Path: ...  # noqa: D102
    @property
    def frames(self) -> tuple[Any, ...]: ...  # noqa: D102


Predictions = str | Path | PredictionsSource | HasPredictions

PREDICTIONS = (str, Path, PredictionsSource, HasPredictions)


def as_sources(
    given: Predictions | Iterable[Predictions] | Mapping[str, Predictions],
) -> list[PredictionsSource]:
    """Turn one or several predictions, or a mapping of model names to them, into sources."""
    models = list[PredictionsSource]()
    for name, item in named(given, *PREDICTIONS):
        if isinstance(item, HasPredictions):
            item = PredictionsSource(item.name, item.predictions)
        source = item if isinstance(item, PredictionsSource) else parse_source(item)
        models.append(replace(source, model=name or source.model))
    return models


def named(given: Any, *kinds: Any) -> list[tuple[str, Any]]:
    """List one or several things of some kinds, or a mapping of names to them, by name, or ""."""
    if isinstance(given, Mapping):
        return [(str(name), item) for name, item in given.items()]
    return [("", item) for item in as_list(given, *kinds)]


def parse_source(text: str | Path) -> PredictionsSource:
    """Parse `[NAME=]FILE[@DATASET]`; by default the name is from the metadata or the file name."""
    path = Path(text)
    name, dataset, text = "", None, str(text)
    if not path.exists():
        before, at, after = text.rpartition("@")
        if at and after and (place := as_dataset(after)).is_dir():
            text, dataset = before, place
            path = Path(text)
    if not path.exists() and "=" in text:
        name, _, file = text.partition("=")
        path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected a predictions file, as FILE, NAME=FILE or FILE@DATASET, "
            "found no file there"
        )
    return PredictionsSource(name or model_name(path), path, dataset)


# --- A model's answers ---


@dataclass(slots=True, eq=False)
class AnswerTable:
    """A model's predictions joined to one dataset folder: the frame that all counts come from.

    The columns of the table: `file`, `row`, `seed`, `label` of the problem and further ones;
    `texts`, the digest of its texts, where predictions have some; `answer`, the number of the
    prediction, null for none; `prediction`; `verified`, whether it has a digest; `p0`, `p1` …,
    probabilities; `wrong`, a position among conditions, or `OTHER_SEED` and the like. Predictions
    for no problem have no `file`.
    """

    name: str
    predictions: tuple[PredictionsFile, ...]
    """Its files, whose labels are the same; rows are numbered through all of them."""
    dataset: DatasetRelations
    answers: str
    """Name of the table."""
    sizes: Mapping[str | None, tuple[int, int]] = field(default_factory=dict)
    """File of the dataset → numbers of problems, and of problems without a prediction."""
    n_predictions: int = 0
    """Number of predictions; equal answers to a seed in several files count once."""

    @property
    def description(self) -> Mapping[str, Any]:
        """Description of the first file; empty if it has none."""
        return self.predictions[0].description

    @property
    def where(self) -> str:
        """The paths of the files, as messages name them."""
        return ", ".join(str(file.path) for file in self.predictions)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, merged."""
        return self.predictions[0].labels

    @property
    def merging(self) -> Merging:
        """The labels that count as one."""
        return self.predictions[0].merging

    @property
    def shares(self) -> list[str]:
        """Names of the columns of probabilities; none unless all predictions have some."""
        has_probabilities = all(PROBABILITIES in file.names for file in self.predictions)
        return [f"p{n}" for n in range(len(self.labels) if has_probabilities else 0)]

    @property
    def folder(self) -> Path:
        """The dataset folder."""
        return self.dataset.folder

    def query(self, query: str) -> pa.Table:
        """Fetch the rows of a query over its table, whose name in the query is `answers`."""
        return self.dataset.engine.fetch(f"WITH answers AS (FROM {self.answers}) {query}")

    def sizes_of(self, config: str, split: str) -> tuple[int, int]:
        """Count the problems of a split, and the problems without a prediction."""
        counts = [self.sizes[file] for file in split_files(self.folder, config)[split]]
        return sum(size for size, _ in counts), sum(missing for _, missing in counts)

    def has(self, config: str, split: str) -> bool:
        """Return whether any problem of a split has a prediction."""
        size, missing = self.sizes_of(config, split)
        return size > missing

    def is_complete(self, config: str) -> bool:
        """Return whether every problem of a configuration has a prediction."""
        return not any(self.sizes_of(config, split)[1] for split in SPLITS)

    def tell(self) -> None:
        """Warn of oddities in the predictions."""
        seeds = f"file IN ({', '.join(map(str, self.dataset.seeds))})"
        rows = self.dataset.engine.columns(
            f"SELECT answer, label, prediction, verified, {seeds} AS is_seed FROM {self.answers} "
            "WHERE answer IS NOT NULL"
        )
        if self.dataset.formats and not rows["verified"].all():
            log.warning(
                "%s: nothing in it says for which texts these are the predictions; they are taken "
                "to be for those of %s (unverified)",
                self.where,
                self.folder,
            )
        for file in self.predictions:
            tell_of_model(str(file.path), file.description)
        # In the order of the files; a seed stands in several files of the dataset.
        place = np.full(sum(file.rows for file in self.predictions), -1)
        place[rows["answer"]] = np.arange(len(rows["answer"]))
        place = place[place >= 0]
        columns = (rows[name][place] for name in ("label", "prediction", "is_seed"))
        tell_of_answers(self.where, AnswerTally(self.labels, *columns), self.description)

    def preview_of(self, config: str, condition: str) -> str:
        """Show the ids of a configuration's first problems whose answers meet a condition."""
        variants, both = (self.dataset.numbers([config], *own) for own in (["variants"], SPLITS))
        order = f"ORDER BY file IN {variants}, file, row"
        shown = self.dataset.engine.fetch(
            f"SELECT variant_id FROM {self.dataset.problems(['variant_id'])} JOIN (FROM "
            f"{self.answers} WHERE {condition} AND file IN {both} {order} "
            f"LIMIT {EXAMPLES + 1}) wanted USING (file, row) {order}"
        )
        return preview(shown["variant_id"])


OTHER_SEED, OTHER_LABEL, OTHER_TEXTS = -3, -2, -1
"""Numbers in `wrong` of answers whose seed, gold label or texts differ from the dataset's."""


def read_models(
    sources: Iterable[PredictionsSource],
    dataset: Path | None,
    *,
    columns: Sequence[str] = (),
    tell: bool = True,
    merging: Merging | None = None,
) -> Iterator[AnswerTable]:
    """Read models' predictions and join them to their dataset folders, by default `dataset`.

    Files with the same name and dataset are parts of one model's answers. Yields a model per
    dataset folder and set of labels, in the given order; `columns` are further dataset columns.
    Labels are merged as asked or else as a file's description says. A file without a dataset is
    joined to itself: file 0 has its rows of seeds, file 1 its rows of variants.
    """
    groups: dict[tuple[str, Path], list[PredictionsSource]] = {}
    for source in sources:
        joined_to = source.dataset or dataset or source.path
        groups.setdefault((source.model, joined_to.resolve()), []).append(source)
    opened: dict[Path, DatasetRelations] = {}
    for number, ((name, place), group) in enumerate(groups.items()):
        folder = group[0].dataset or dataset
        if place not in opened:
            opened[place] = DatasetRelations.of(folder) if folder else DatasetRelations()
        of_labels: dict[tuple[tuple[str, ...], str], list[PredictionsFile]] = {}
        for source in group:
            file = open_predictions(source.path, folder, merging, opened[place].engine)
            of_labels.setdefault((file.labels, str(file.merging)), []).append(file)
        for part, files in enumerate(of_labels.values()):
            table = f"answers_{number}_{part}"
            model = AnswerTable(name, tuple(files), opened[place], table)
            _join(model, columns)
            if tell:
                model.tell()
            yield model


def _join(model: AnswerTable, columns: Sequence[str]) -> None:
    """Make the table of a model; refuse wrong rows, and rows for no problem."""
    files, dataset, fetch = model.predictions, model.dataset, model.dataset.engine.fetch
    scans, conditions, start = [], list[tuple[PredictionsFile, Condition]](), 0
    for number, file in enumerate(files):
        checked = file.checked()
        own = [
            column if column in file.names else f"NULL::{kind} AS {column}"
            for column, kind in (("seed_id", "VARCHAR"), ("label", "TINYINT"))
        ]
        scanned = ["variant_id", *own, "prediction", "digest", "odd", *model.shares]
        scans.append(
            f"SELECT {', '.join(scanned)}, (row + {start})::INT AS answer, {number} AS part, "
            f"wrong + {len(conditions)} AS wrong FROM {checked.rows}"
        )
        conditions += [(file, condition) for condition in checked.conditions]
        start += file.rows
    given = f"({' UNION ALL '.join(scans)})"
    if dataset.formats:
        joined = _joined(model, given, columns)
    else:
        dataset.number_seeds(given)
        joined = (
            f"SELECT (variant_id <> seed_id)::INT AS file, answer AS row, seed, label, "
            f"{''.join(f'{share}, ' for share in model.shares)}answer, part, prediction, odd, "
            "digest IS NOT NULL AS verified, wrong, []::INT[] AS subsamples "
            f"FROM {given} LEFT JOIN seeds USING (seed_id)"
        )
    dataset.engine.execute(f"CREATE OR REPLACE TEMP TABLE {model.answers} AS {joined}")
    (signs,) = model.query("SELECT min(wrong) AS first FROM answers WHERE wrong >= 0").to_pylist()
    if signs["first"] is not None:
        file, condition = conditions[signs["first"]]
        file.explain(condition)
    odd = "SELECT part, count(DISTINCT answer) AS n FROM answers WHERE odd GROUP BY part ORDER BY 1"
    for row in model.query(odd).to_pylist():
        file = files[row["part"]]
        log.warning(
            "%s: in %s of %s rows another label than the prediction is the most probable one; "
            "are the probabilities in the order %s?",
            file.path,
            f"{row['n']:,}",
            f"{file.rows:,}",
            ", ".join(file.written),
        )
    model.n_predictions, model.sizes = start, dataset.sizes_in(model.answers)
    is_more = any(model.sizes[file][0] > size for file, size in dataset.sizes.items())
    if model.sizes[None][0] or is_more:
        model.n_predictions -= _drop_repeated_seeds(model, given)
        model.sizes = dataset.sizes_in(model.answers)
    if model.sizes[None][0]:
        unknown = fetch(
            f"SELECT variant_id, count(*) OVER () AS count FROM {given} p "
            f"ANTI JOIN {dataset.problems(['variant_id'])} USING (variant_id) ORDER BY answer "
            f"LIMIT {EXAMPLES + 1}"
        )
        count, ids = unknown["count"][0].as_py(), unknown["variant_id"]
        raise unknown_ids(model.where, dataset.folder, count, model.n_predictions, ids)


def _joined(model: AnswerTable, given: str, columns: Sequence[str]) -> str:
    """Write the rows of a table of answers to a dataset, with why they do not fit."""
    with_digests = any(TEXT_DIGEST in file.names for file in model.predictions)
    more = list(dict.fromkeys(("word_class", "subsamples", *columns)))
    problems = model.dataset.problems(
        ("variant_id", "seed_id", "label", *more), merging=model.merging, with_digests=with_digests
    )
    digest = "q.digest" if with_digests else "NULL::UBIGINT"
    return f"""
        SELECT q.file, q.row, s.seed, q.label, {"".join(f'q."{column}", ' for column in more)}
            {"".join(f"p.{share}, " for share in model.shares)}
            ({digest} % 4294967296)::UINTEGER AS texts,
            p.answer, p.part, p.prediction, p.odd, p.digest IS NOT NULL AS verified,
            CASE WHEN p.wrong IS NOT NULL THEN p.wrong
                WHEN p.seed_id <> q.seed_id THEN {OTHER_SEED}
                WHEN p.label IS NOT NULL AND p.label IS DISTINCT FROM q.label THEN {OTHER_LABEL}
                WHEN p.digest <> {digest} THEN {OTHER_TEXTS} END::SMALLINT AS wrong
        FROM {problems} q FULL JOIN {given} p ON p.variant_id = q.variant_id
        LEFT JOIN seeds s ON s.seed_id = q.seed_id
        """


def _drop_repeated_seeds(model: AnswerTable, given: str) -> int:
    """Drop equal answers to a seed in several files but the first; return their number."""
    for file in model.predictions:
        file.require_distinct()
    engine = model.dataset.engine
    again = engine.fetch(
        "SELECT variant_id, answer, prediction <> first_value(prediction) OVER own OR "
        f"variant_id NOT IN (SELECT seed_id FROM seeds) AS wrong FROM {given} "
        "WINDOW own AS (PARTITION BY variant_id ORDER BY answer) QUALIFY row_number() OVER own > 1 "
        "ORDER BY answer"
    ).to_pylist()
    if wrong := list(dict.fromkeys(row["variant_id"] for row in again if row["wrong"])):
        advice = "if they are of different models, give each a name: NAME=FILE"
        if not model.name:  # of `score`, which takes one model
            advice = "score those of other models, or of other runs, by themselves"
        raise ValueError(
            f"expected {model.where} to answer different problems, as all are of the "
            f"model {model.name or 'scored'}, got several answers to {len(wrong):,} problems, such "
            f"as {wrong[0]!r}; {advice}"
        )
    numbers = ", ".join(str(row["answer"]) for row in again)
    engine.execute(f"DELETE FROM {model.answers} WHERE answer IN ({numbers or -1})")
    return len(again)


# --- Configurations ---


def choose(model: AnswerTable) -> list[str]:
    """Choose the configurations that a predictions file is meant for.

    For each source, it is the configuration of all word classes if every prediction is there, or
    some of every class; else the classes with predictions for variants, complete or not, so that
    truncated files are noticed. Paraphrases are chosen only if some are answered, as their seeds
    are shared with replacements.
    """
    chosen, known = list[str](), {*collections(model.folder)}
    for source in sources(model.folder):
        names = {collection_name(source), collection_name(source, PARAPHRASE)} & known
        of_source = [configurations(model.folder, name) for name in sorted(names)]
        begun = []
        for everything, *classes in of_source:
            parts = classes or [everything]
            with_variants = [config for config in parts if model.has(config, "variants")]
            whole = model.is_complete(everything) or with_variants == parts
            begun += [everything] if whole else with_variants
        # A file with only seeds was truncated, too.
        chosen += begun or [
            everything for everything, *_ in of_source if model.has(everything, "seeds")
        ]
    return chosen


def require_agreement(model: AnswerTable, config: str) -> str:
    """Require the dataset's seeds, gold labels and texts in predictions; return `Frame.texts`."""
    files = model.dataset.numbers([config], *SPLITS)
    (signs,) = model.query(
        "SELECT coalesce(sum(texts), 0)::BIGINT AS texts, count(answer) AS asked, "
        "count(*) FILTER (wrong < 0) AS other, min(wrong) AS wrong, "
        "count(*) FILTER (answer IS NOT NULL AND NOT verified) AS unverified "
        f"FROM answers WHERE file IN {files}"
    ).to_pylist()
    if not signs["other"]:
        return UNVERIFIED if signs["unverified"] else hex_of(signs["texts"])
    what = {OTHER_SEED: "seeds", OTHER_LABEL: "gold labels", OTHER_TEXTS: "texts"}[signs["wrong"]]
    order = f" (are its labels in the order {', '.join(model.labels)}?)" * (what == "gold labels")
    raise ValueError(
        f"{model.where}: {config}: expected predictions for the {what} of the dataset "
        f"{model.folder}, got some for others of {signs['other']:,} of {signs['asked']:,} "
        f"problems{order}: {model.preview_of(config, 'wrong < 0')}; give the dataset that the "
        "model was run on, or run the model on this one"
    )


def tell_other_draws(model: AnswerTable, configs: Sequence[str]) -> None:
    """Warn if variants are in other subsamples than recorded, if that is recorded."""
    files = [file for config in configs for file in split_files(model.folder, config)["variants"]]
    for predictions in model.predictions:
        asked_about = predictions.description.get("problems")
        recorded = asked_about.get(DRAWS) if isinstance(asked_about, dict) else None
        if others := changed_draws(model.folder, recorded, files):
            log.warning(
                "%s: warning: these predictions are of another draw: the dataset %s has the "
                "variants of %s in other subsamples than when the model was asked, so figures are "
                "those of its draw and not of that one; where that is not meant, give the dataset "
                "of then",
                predictions.path,
                model.folder,
                ", ".join(others),
            )


def judge_missing(
    model: AnswerTable, config: str, complete: NDArray[np.bool_], *, allow_missing: bool, tell: bool
) -> None:
    """Raise for missing predictions or, with `allow_missing`, report the seeds left out."""
    total, n_seeds = len(complete), int(complete.sum())
    lacking = " and ".join(
        f"{n_missing:,} of {size:,} {split}"
        for split in SPLITS
        for size, n_missing in [model.sizes_of(config, split)]
        if n_missing
    )
    missing = f"predictions are missing for {lacking}"
    if n_seeds and allow_missing:
        log.log(
            logging.WARNING if tell else logging.DEBUG,
            "%s: %s of %s seeds are left out: %s",
            config,
            f"{total - n_seeds:,}",
            f"{total:,}",
            missing,
        )
        return
    advice = f"`allow_missing` scores the complete seeds, {n_seeds:,} of {total:,}"
    if not n_seeds:
        advice = "no seed has all of its predictions"
    if model.sizes_of(config, "seeds")[1] == total:
        advice += "; a seed's own prediction is the row whose variant_id is the seed's id"
    examples = model.preview_of(config, "answer IS NULL")
    raise ValueError(f"{model.where}: {config}: {missing}: {examples}; {advice}")
