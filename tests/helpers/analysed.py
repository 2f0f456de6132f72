"""Models on the same random problems: as rows of the slow oracle, as runs, and as files."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from helpers.dataset_files import write_predictions, write_source
from helpers.metric_oracle import LABELS, Row, columns
from merge_dataset.schema import arrow_schema
from merge_metric.analyses import Request
from merge_metric.analyses.variant_rows import VariantRows
from merge_metric.frame.joined import Frame
from merge_metric.seed_variant_accuracy.counts import count
from merge_metric.seed_variant_accuracy.inputs import read_rows
from merge_metric.seed_variant_accuracy.scoring import label_shift

MLMS = ("bert", "bert-large", "roberta", "albert")


def make_run(model: str, config: str, given: dict[str, Any], **origin: Any) -> Frame:
    """Make a run from columns of the metric, as the metric reads them."""
    others = ("probabilities", "seed_probabilities", "groups")
    rows = read_rows(**{name: column for name, column in given.items() if name not in others})
    answers = np.zeros((len(rows.seed_ids), len(rows.labels)), np.int64)
    drawn = np.unique(rows.draw_row)
    np.add.at(answers, (rows.seed[drawn], rows.prediction[drawn]), 1)
    shift = None
    if "probabilities" in given:
        shift = label_shift(rows, given["probabilities"], given["seed_probabilities"], rows.labels)
    return Frame(
        model, config, count(rows), answers, shift=shift, variants=rows,
        values=given.get("groups", {}), **origin,
    )  # fmt: skip


def random_dataset(rng: random.Random, *, seeds: int, subsamples: int = 2) -> list[Row]:
    """Random problems as in MERGE: each class of a seed is in every subsample."""
    rows = []
    for number in range(seeds):
        gold = rng.choice(LABELS)
        for word in rng.sample(("noun", "verb", "adjective"), rng.randint(1, 3)):
            for place in range(rng.randint(2, 5)):
                chosen = [n for n in range(subsamples) if rng.random() < 0.5 or not place]
                mlms = tuple(sorted(rng.sample(MLMS, rng.choice((1, 1, 1, 2)))))
                groups = (("word", (word,)), ("mlm", mlms))
                rows.append(Row(f"s:{number}", gold, gold, gold, tuple(chosen), groups))
    rng.shuffle(rows)
    return rows


def answered(rows: Sequence[Row], rng: random.Random, skill: float) -> list[Row]:
    """Predictions of another model for these problems, with an accuracy of at least `skill`."""

    def answer(gold: str) -> str:
        return gold if rng.random() < skill else rng.choice(LABELS)

    own = {row.seed_id: answer(row.gold) for row in sorted(rows, key=lambda row: row.seed_id)}
    return [replace(row, own=own[row.seed_id], prediction=answer(row.gold)) for row in rows]


def run(
    rows: Sequence[Row],
    model: str = "a",
    config: str = "snli",
    *,
    subsamples: bool = True,
    dataset: str = "merge-nli",
) -> Frame:
    """Make a run from rows; their groups `word` and `mlm` become `word_class` and `mlms`."""
    given = columns(rows, subsamples=subsamples)
    groups = [dict(row.groups) for row in rows]
    if rows[0].groups:
        given["groups"] = {
            "word_class": [group["word"][0] for group in groups],
            "mlms": [list(group["mlm"]) for group in groups],
        }
    return make_run(model, config, given, dataset=dataset)


@dataclass(frozen=True)
class Given(Request):
    """A request whose variants and seeds, by configuration, are at hand as its frames are."""

    of_variants: Iterable[VariantRows] = ()
    of_configs: Mapping[str, pa.Table] = field(default_factory=dict)

    def variants(self, *_: Any, **__: Any) -> Iterator[VariantRows]:
        yield from self.of_variants

    def seeds(self, config: str) -> pa.Table:
        return self.of_configs[config]


def given(*frames: Frame, **more: Any) -> Request:
    """A request of frames."""
    return Given(at_hand=frames, **more)


def close(figure: Any, expected: Any) -> bool:
    """Whether figures are equal up to rounding, or both undefined."""
    if figure is None or expected is None:
        return figure is expected
    return bool(np.allclose(figure, np.array(expected, float), rtol=0, atol=1e-12))


def text_of(seed: str) -> dict[str, Any]:
    return {
        "premise": f"The {seed} & its premise.",
        "hypothesis": f"A {seed}.",
        "annotator_labels": [0, 0, 1, 0, 2] if seed.endswith("0") else [],
    }


def seed_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    gold = {row.seed_id: LABELS.index(row.gold) for row in rows}
    return [
        {"variant_id": seed, "seed_id": seed, "label": label, **text_of(seed)}
        for seed, label in sorted(gold.items())
    ]


def seeds_table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(seed_rows(rows), schema=arrow_schema())


def names_of(rows: Sequence[Row]) -> list[str]:
    return [f"{row.seed_id}/{dict(row.groups)['word'][0]}/{n}" for n, row in enumerate(rows)]


def signals_of(name: str, row: Row) -> dict[str, Any]:
    rng = random.Random(name)
    return {
        "log_odds": 4 * rng.random(), "mlm_count": len(dict(row.groups)["mlm"]),
        "zipf_frequency": rng.gauss(4, 1), "number_changed": rng.choice((True, False, None)),
        "article_fits": rng.choice((True, None, None)),
    }  # fmt: skip


def write_dataset(folder: Path, rows: Sequence[Row], source: str = "s") -> Path:
    variants = [
        {
            "variant_id": name, "seed_id": row.seed_id, "label": LABELS.index(row.gold),
            "word_class": dict(row.groups)["word"][0], "mlms": list(dict(row.groups)["mlm"]),
            **signals_of(name, row), "subsamples": list(row.subsamples),
        }
        for name, row in zip(names_of(rows), rows, strict=True)
    ]  # fmt: skip
    return write_source(folder, seed_rows(rows), variants)


def write_answers(path: Path, rows: Sequence[Row], name: str | None = None) -> Path:
    answers = [
        {"variant_id": id_, "seed_id": row.seed_id, "label": row.gold, "prediction": row.prediction}
        for id_, row in zip(names_of(rows), rows, strict=True)
    ]
    for seed, (gold, own) in {row.seed_id: (row.gold, row.own) for row in rows}.items():
        answers.append({"variant_id": seed, "seed_id": seed, "label": gold, "prediction": own})
    return write_predictions(path, answers, None if name is None else {"name": name})
