"""Settings of tasks in other harnesses, and figures of answers; copied into exports."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from merge_metric.frame.texts import TEXT_DIGEST, drawn_seeds, text_digests, to_hex
from merge_metric.models.templates import Example, Prompt
from merge_metric.seed_variant_accuracy.figures import keys_shown
from merge_metric.seed_variant_accuracy.inputs import split_predictions
from merge_metric.seed_variant_accuracy.scoring import score

if TYPE_CHECKING:
    import datasets

COLUMNS: Final = ("variant_id", "seed_id", "label", "subsamples")
"""Columns that are read beside the texts; a seed has its own id as `variant_id`."""
CONFIG, QUESTION, ANSWER = "merge_nli_config", "merge_nli_question", "merge_nli_answer"
"""Columns beside those: configuration, question and right answer."""
KEPT: Final = (*COLUMNS, TEXT_DIGEST, "n_problems", CONFIG)
"""Columns of `load_problems` that `answer` needs."""

FIGURES: Final = keys_shown("tasks")
"""Figures beside `sv@CT`, by their keys in the metric's catalogue."""


def figure_names(thresholds: Sequence[int]) -> list[str]:
    """List the figures that a harness reports; figures at thresholds come first."""
    others = ("without_label", "most_frequent_letter")
    return [*(f"sv@{threshold}" for threshold in thresholds), *FIGURES, *others]


TaskAnswer = dict[str, Any]
"""A row of a predictions file with columns of the dataset: see `answer`."""

EXPORTED: Final = Path(__file__).resolve().parents[1]
"""The exported folder, in which this file is in the metric's."""

SETTINGS: Final = "merge_nli.json"


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Content of `SETTINGS`: the questions to a model, and where the problems are."""

    dataset: str
    """Name for `datasets.load_dataset`, or a folder, as seen from the exported one."""
    revision: str | None
    prompts: dict[str, Prompt]
    left_out: dict[str, list[str]]
    thresholds: tuple[int, ...]
    forms: tuple[str, ...]
    """Texts that may stand before a letter: a space, or also nothing."""
    max_answer_tokens: int | None
    """Most tokens of an answer in words; None where letters are compared."""

    @classmethod
    def read(cls) -> TaskSettings:
        """Read the file of the exported folder."""
        settings = json.loads((EXPORTED / SETTINGS).read_text(encoding="utf-8"))
        prompts = {name: Prompt.of_record(record) for name, record in settings["prompts"].items()}
        lists = {name: tuple(settings[name]) for name in ("thresholds", "forms")}
        return cls(**settings | lists | {"prompts": prompts})

    @property
    def is_in_words(self) -> bool:
        """Whether the model writes, and its final answer is read."""
        return self.max_answer_tokens is not None

    def choices(self, config: str) -> list[str]:
        """List the letters, in each way to write them after the question."""
        letters = self.prompts[config].template.letters
        return [form + letter for form in self.forms for letter in letters]


def load_problems(
    settings: TaskSettings, config: str, *, limit_seeds: int | None = None, rng_seed: int = 0
) -> datasets.Dataset:
    """Load seeds, then variants, without the prompt's examples; limits draw as `predict` does."""
    import datasets

    folder, place = EXPORTED / settings.dataset, settings.dataset
    if place.startswith(".") or folder.is_dir():
        place = str(folder)
    splits = datasets.load_dataset(place, config, revision=settings.revision)
    columns = [*COLUMNS, *settings.prompts[config].template.fields]
    parts = [splits[name].select_columns(columns) for name in ("seeds", "variants")]
    rows = datasets.concatenate_datasets(parts).with_format("arrow")[:]
    chosen = {*rows["seed_id"].to_pylist()}.difference(settings.left_out[config])
    if limit_seeds is not None:
        chosen = {*drawn_seeds(chosen, limit_seeds, rng_seed=rng_seed)}
    rows = rows.filter(pa.array([seed in chosen for seed in rows["seed_id"].to_pylist()]))
    prompt = settings.prompts[config]
    n_problems = Counter(seeds := rows["seed_id"].to_pylist())
    texts = zip(*(rows[name].to_pylist() for name in prompt.template.fields), strict=True)
    examples = list(map(Example, texts, rows["label"].to_pylist()))
    for name, values in (
        (TEXT_DIGEST, to_hex(text_digests(rows, prompt.template.fields))),
        ("n_problems", pa.array(map(n_problems.get, seeds), pa.int64())),
        (CONFIG, pa.array([config] * len(rows), pa.string())),
        (QUESTION, pa.array([prompt.template.text(*e.texts) for e in examples], pa.string())),
        (ANSWER, pa.array(map(prompt.answer, examples), pa.string())),
    ):
        rows = rows.append_column(name, values)
    return datasets.Dataset(rows)


def answer(
    problem: Mapping[str, Any], prompt: Prompt, given: str | Sequence[float], is_cut: bool = False
) -> TaskAnswer:
    """Convert what a model wrote, cut or not, or log-probabilities of letters to an answer.

    Log-probabilities are in nats, one for each letter or, where letters can be written in several
    ways, that many for each way, which are added up; `-inf` for a letter that was not returned. If
    none was returned, labels are equally probable.

    >>> row = dict.fromkeys(KEPT, "") | {"label": 0, "premise": "A dog.", "hypothesis": "A cat."}
    >>> from merge_metric.models.templates import Template
    >>> template = Template.of(["premise", "hypothesis"], ["yes", "maybe", "no"])
    >>> answer(row, Prompt((), template), [0.0, -math.inf, 0.0])["probabilities"]
    [0.5, 0.0, 0.5]
    """
    texts = [problem[field] for field in prompt.template.fields]
    row = {name: problem[name] for name in KEPT}
    row |= {"label": int(row["label"]), "subsamples": list(row["subsamples"] or ())}
    if isinstance(given, str):
        reader, labels = prompt.reader(*texts)
        place = reader.read(given, is_cut=is_cut)
        row |= {"prediction": labels[place], "answer_text": reader.kept(given)}
    else:
        order = prompt.template.order(*texts)
        forms = np.asarray(given, np.float64).reshape(-1, len(order))[:, np.argsort(order)]
        weights = np.ones(len(order))
        if (highest := forms.max()) > -math.inf:
            weights = np.exp(forms - highest).sum(axis=0)
        place = order.index(label := int(weights.argmax()))
        row |= {"prediction": label, "probabilities": (weights / weights.sum()).tolist()}
    return row | {"letter": prompt.template.letters[place] if place >= 0 else ""}


def figures(answers: Sequence[TaskAnswer], settings: TaskSettings) -> dict[str, float]:
    """Compute `FIGURES`, `sv@CT` (CT in percent) and shares of answers; NaN if undefined."""
    if cut := whole_seeds(answers)[1]:  # by a harness that limits rows
        raise ValueError(
            f"expected answers to all problems of a seed, itself and its variants, got some alone "
            f"of {cut:,}: a limit of samples cuts seeds; leave it out and limit the seeds"
        )
    names = ("variant_id", "seed_id", "label", "prediction")
    rows = split_predictions(**{name: [row[name] for row in answers] for name in names})
    drawn = {row["variant_id"]: row["subsamples"] for row in answers}
    if any(drawn.values()):
        rows["subsamples"] = [drawn[variant] for variant in rows["variant_ids"]]
    labels = settings.prompts[answers[0][CONFIG]].template.labels
    result = score(**rows, labels=labels, n_bootstrap=0)
    curve = result["sv_curve"]["accuracy"]
    reported = {name: result[name] for name in (*FIGURES, "n_seeds", "n_variants")}
    reported["without_label"] = result.get("without_label", {"share": 0.0})["share"]
    letters = Counter(row["letter"] for row in answers if row["letter"])
    reported["most_frequent_letter"] = max(letters.values(), default=0) / (letters.total() or 1)
    reported |= {f"sv@{threshold}": curve[threshold - 1] for threshold in settings.thresholds}
    return {name: math.nan if value is None else value for name, value in reported.items()}


def whole_seeds(answers: Sequence[TaskAnswer]) -> tuple[list[TaskAnswer], int]:
    """Return the answers of seeds that are answered in full, and the number of other seeds."""
    counts = Counter(row["seed_id"] for row in answers)
    whole = [row for row in answers if counts[row["seed_id"]] == row["n_problems"]]
    return whole, len(counts) - len({row["seed_id"] for row in whole})
