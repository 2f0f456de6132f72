"""Judges: models that are asked about the fluency and reasoning of variants, and trials of them.

A judge is asked two questions about each variant by the machinery of `merge-nli predict`. The first
questions are its trial: they are about variants that were judged already. All answers stand in one
file, which `merge_dataset.annotation` reads like a person's.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.annotation import SESSION, is_good, read_answers, read_session
from merge_dataset.annotation.sample import Item, choose, items_of
from merge_dataset.files import read_row_groups, read_table
from merge_dataset.layout import split_files
from merge_dataset.schema import ProblemFormat
from merge_dataset.show import marked
from merge_metric.agreement.coefficients import auc, confusions, kappas, resampled
from merge_metric.frame.predictions import read_metadata, rewrite_metadata, with_metadata
from merge_metric.predict.problems import FORMAT, on_disk, problem_schema
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.seed_variant_accuracy.resampling import interval
from merge_metric.tables import Column, Table

BUNDLED: Final = Path(__file__).with_name("trial")
"""A session with 120 judged variants of SNLI and MultiNLI, 20 of each source and class."""
QUESTIONS: Final = Path(__file__).with_name("questions.toml")
"""The prompt, as for `--shots` of `merge-nli predict`."""

ASKED: Final[dict[str, str]] = {
    example["asked"].partition(":")[0].lower(): example["asked"]
    for example in tomllib.loads(QUESTIONS.read_text(encoding="utf-8"))["example"]
}
"""Score → its question."""
JUDGED: Final = ProblemFormat(
    ("gold_label", "original_problem", "variant_problem", "asked"), ("1", "2", "3", "4", "5")
)
"""Questions to judges, as a format of problems: their labels are the scores."""

OF_TRIAL: Final = "trial:"
"""Beginning of the ids of the trial's questions, before score and variant."""


def questions(
    judged: Path | None, configs: Sequence[str] = (), *, against: Path = BUNDLED
) -> tuple[pa.Table, dict[str, Any]]:
    """Make the questions about variants, as problems for `predict`, those of the trial first.

    `judged` is a dataset folder, by default with all configurations that have replacements, or a
    session of `merge-nli annotate`; `against`, a session with judgements, by which the judge is
    judged. In the trial each question is a seed, whose gold label is the mean score, rounded; its
    judgements are also returned, for the metadata.
    """
    given = read_answers(against)
    if "fluency" not in given.column_names or not len(given):
        raise ValueError(
            f"{against}: expected a session with scores of fluency and reasoning in answers/, "
            f"got {'none' if not len(given) else 'one about paraphrases'}"
        )
    means = given.group_by("variant_id").aggregate([(score, "mean") for score in ASKED])
    scores = {
        row["variant_id"]: [row[f"{score}_mean"] for score in ASKED] for row in means.to_pylist()
    }
    session = read_session(against)

    def tables() -> Iterator[pa.Table]:
        yield _table((session.items[name] for name in scores), scores)
        if judged and (judged / SESSION).is_file():
            own = read_session(judged)
            if own.kind != "scores":
                raise ValueError(
                    f"{judged}: expected a session of replacements, got one of paraphrases"
                )
            yield _table(own.items.values())
        elif judged:
            for config in choose(judged, configs):
                for name in split_files(judged, config)["variants"]:
                    for table in read_row_groups(judged / name, ["variant_id"]):
                        yield _table(items_of(judged, config, table["variant_id"].to_pylist()))

    about = {"dataset": judged.resolve().name if judged else against.name, "configs": []}
    described = {**about, "revision": None, FORMAT: JUDGED.as_record()}
    variants = {name: [*own, session.items[name].seed_id] for name, own in scores.items()}
    judges = "a language model" if against == BUNDLED else against.name
    table = on_disk(tables(), problem_schema(JUDGED))
    return with_metadata(table, described), {"trial": {"against": judges, "variants": variants}}


def _table(items: Iterable[Item], scores: Mapping[str, Sequence[float]] | None = None) -> pa.Table:
    """Make questions about variants; about those of a trial, with the scores that they have."""
    rows = []
    for item in items:
        texts = [
            "\n".join(
                f"{field.replace('_', ' ').capitalize()}: "
                f"{marked(text, spans[field], '**{}**'.format)}"
                for field, text in whole.items()
            )
            for whole, spans in (
                (item.seed_texts, item.seed_spans), (item.variant_texts, item.variant_spans)
            )
        ]  # fmt: skip
        for n, (score, asked) in enumerate(ASKED.items()):
            name = f"{score}:{item.variant_id}"
            ids = [name, f"{score}:{item.seed_id}"] if scores is None else [OF_TRIAL + name] * 2
            gold = 0 if scores is None else int(np.rint(scores[item.variant_id][n])) - 1
            rows.append((*ids, item.label, *texts, asked, gold))
    schema = problem_schema(JUDGED)
    return pa.table(dict(zip(schema.names, zip(*rows, strict=True), strict=True)), schema)


# --- The trial ---

Ints = NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Scores of a judge, and of those who judged before, of n variants."""

    judge: str
    against: str
    seed_ids: tuple[str, ...]
    given: NDArray[np.float64]
    """Means of fluency and reasoning, (n, 2), 1 to 5."""
    judged: Ints
    """The judge's scores, (n, 2), 1 to 5; 0 where its answer names none."""

    def figures(self, settings: Settings = USUAL) -> dict[str, NDArray[np.float64]]:
        """Compute figures of the variants that the judge scored, and of resamplings of the seeds.

        Returns:
            `auc` of F + R for what is good; `kappa_good`; and of `fluency` and `reasoning` a
            quadratic `kappa_…` and a `bias_…`, the judge's mean less the others': each of all
            and then of `n_bootstrap` resamplings, (1 + B,); NaN where undefined.
        """
        scored = np.flatnonzero((self.judged > 0).all(axis=1))
        given, judged = self.given[scored], self.judged[scored]
        seeds = [self.seed_ids[n] for n in scored]
        weights = np.concatenate([np.ones((1, len(given))), resampled(seeds, settings)])
        total = judged.sum(axis=1, dtype=np.int64)
        good = is_good(given.sum(axis=1))
        figures = {"auc": auc(np.unique(total, return_inverse=True)[1], good, weights)}
        pairs = {"good": (1 + good, 1 + is_good(total))}
        for n, score in enumerate(ASKED):
            pairs[score] = np.rint(given[:, n]), judged[:, n]
            with np.errstate(invalid="ignore"):
                bias = weights @ (judged[:, n] - given[:, n]) / weights.sum(axis=1)
            figures[f"bias_{score}"] = bias
        for name, both in pairs.items():
            one, other = (codes.astype(np.int8) for codes in both)
            matrices = confusions(one, other, 2 if name == "good" else 5)
            own = np.tensordot(weights, matrices, axes=1)
            figures[f"kappa_{name}"] = kappas(own, "plain" if name == "good" else "quadratic")
        return figures


def read_trial(file: Path) -> Trial:
    """Read the trial of a judge's file."""
    metadata = read_metadata(file)
    if "trial" not in metadata:
        raise ValueError(f"{file}: expected a file of `merge-nli judge`, got one without a trial")
    rows = read_table(file, ["variant_id", "prediction"])
    answers = dict(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))
    variants = metadata["trial"]["variants"]
    judged = [[answers[f"{OF_TRIAL}{score}:{name}"] or 0 for score in ASKED] for name in variants]
    return Trial(
        judge=metadata["name"],
        against=metadata["trial"]["against"],
        seed_ids=tuple(seed for *_, seed in variants.values()),
        given=np.array([scores for *scores, _ in variants.values()]),
        judged=np.array(judged).astype(np.int8),
    )


def keep_figures(file: Path) -> tuple[Trial, Table]:
    """Tabulate the figures of a judge's trial; keep them in its file, where builds read them.

    They have 95 % intervals over resampled seeds.
    """
    trial, metadata = read_trial(file), read_metadata(file)
    rows, figures = [], trial.figures()
    for key, heading in {
        "auc": "AUC of F + R for what is good",
        "kappa_good": "κ of good or not",
        "kappa_fluency": "κ of fluency, quadratic",
        "kappa_reasoning": "κ of reasoning, quadratic",
        "bias_fluency": "fluency: judge's mean less theirs",
        "bias_reasoning": "reasoning: judge's mean less theirs",
    }.items():
        value, *samples = figures[key].tolist()
        row = {"key": key, "figure": heading, "value": None, "value_ci": None}
        if not np.isnan(value):
            row |= {"value": value, "value_ci": interval(np.array(samples)).tolist()}
        rows.append(row)
    own = {row["key"]: {"value": row["value"], "ci": row["value_ci"]} for row in rows}
    if metadata["trial"].get("figures") != own:
        metadata["trial"]["figures"] = own
        rewrite_metadata(file, metadata)
    n, scored = len(trial.judged), int((trial.judged > 0).all(axis=1).sum())
    note = f"{n:,} variants that were judged before, by {trial.against}"
    note += "." if scored == n else f"; answers to {n - scored:,} name no score and do not count."
    shown = (Column("figure", ""), Column("value", "value", "fraction", "value_ci"))
    return trial, Table("trial", f"Trial of {trial.judge}", shown, tuple(rows), (note,))
