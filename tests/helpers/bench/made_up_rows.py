from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from helpers.dataset_files import run_manifest
from merge_dataset.files import RowGroupWriter, digests, write_record
from merge_dataset.schema import WORD_CLASSES, arrow_schema
from merge_metric.frame.texts import text_digests, to_hex

SOURCE: Final = "made-up"
_CLASSES: Final = WORD_CLASSES[:3]
_SEEDS_AT_A_TIME: Final = 5_000
_LETTERS: Final = np.array(list("abcdefghijklmnopqrstuvwxyz"))


def write_made_up_run(
    folder: Path, seeds: range, *, per_class: int = 7, subsamples: int = 1
) -> Path:
    """Write a run: three classes, `per_class` variants in each, all in every subsample."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = arrow_schema()
    with (
        RowGroupWriter(folder / "seeds.parquet", schema) as of_seeds,
        RowGroupWriter(folder / "variants.parquet", schema) as of_variants,
    ):
        for numbers in _chunks(seeds):
            of_seeds.write(_seeds(numbers))
            of_variants.write(_variants(numbers, per_class, subsamples))
        count = of_variants.rows
    n = len(seeds)
    paths = {name: folder / name for name in ("seeds.parquet", "variants.parquet")}
    manifest = run_manifest(
        SOURCE,
        config={"recipe": "made-up", "masking": "single", "subsamples": subsamples},
        problems={"read": n, "unlabelled": 0, "kept": n},
        eligible=dict.fromkeys(_CLASSES, n),
        variants=count,
        files=digests(paths),
    )
    write_record(folder / "manifest.json", manifest)
    return folder


def write_made_up_predictions(path: Path, seeds: range) -> int:
    """Write predictions, nine in ten right, in the dataset's order, as `predict` does."""
    names = ["variant_id", "seed_id", "label", "prediction", "text_digest", "probabilities"]
    kinds = [pa.string(), pa.string(), pa.int64(), pa.int64(), pa.string(), pa.list_(pa.float64())]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    rng = np.random.default_rng(0)
    with RowGroupWriter(path, schema) as writer:
        for numbers in _chunks(seeds):
            writer.write(_answers(_seeds(numbers), rng, schema))
        for numbers in _chunks(seeds):
            writer.write(_answers(_variants(numbers, 7, 1), rng, schema))
        return writer.rows


def write_other_predictions(path: Path, other: Path) -> None:
    rng = np.random.default_rng(0)
    file = pq.ParquetFile(path)
    with RowGroupWriter(other, file.schema_arrow) as writer:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number)
            label = rows["label"].to_numpy()
            prediction = np.where(rng.random(len(label)) < 0.9, label, (label + 1) % 3)
            place = rows.column_names.index("prediction")
            writer.write(rows.set_column(place, "prediction", pa.array(prediction)))


def _chunks(seeds: range) -> Iterator[np.ndarray[Any, Any]]:
    for start in range(seeds.start, seeds.stop, _SEEDS_AT_A_TIME):
        yield np.arange(start, min(start + _SEEDS_AT_A_TIME, seeds.stop))


def _answers(problems: pa.Table, rng: np.random.Generator, schema: pa.Schema) -> pa.Table:
    label = problems["label"].to_numpy()
    prediction = np.where(rng.random(len(label)) < 0.9, label, (label + 1) % 3)
    shares = np.full((len(label), 3), 0.1)
    shares[np.arange(len(label)), prediction] = 0.8
    offsets = np.arange(0, 3 * len(label) + 1, 3, dtype=np.int32)
    return pa.table(
        [
            problems["variant_id"],
            problems["seed_id"],
            label,
            prediction,
            to_hex(text_digests(problems, ("premise", "hypothesis"))),
            pa.ListArray.from_arrays(offsets, shares.ravel()),
        ],
        schema=schema,
    )


def _seeds(numbers: np.ndarray[Any, Any]) -> pa.Table:
    ids = [f"{SOURCE}:{n:010}" for n in numbers]
    words = ["thing"] * len(numbers)
    return _table(ids, ids, numbers, words)


def _variants(numbers: np.ndarray[Any, Any], per_class: int, subsamples: int) -> pa.Table:
    of_seed = len(_CLASSES) * per_class
    repeated = np.repeat(numbers, of_seed)
    words = _words(of_seed) * len(numbers)
    classes = [name for name in _CLASSES for _ in range(per_class)] * len(numbers)
    seed_ids = [f"{SOURCE}:{n:010}" for n in repeated]
    ids = [
        f"{seed}/{name}/thing/{word}"
        for seed, name, word in zip(seed_ids, classes, words, strict=True)
    ]
    n = len(ids)
    return _table(
        ids,
        seed_ids,
        repeated,
        words,
        word_class=pa.array(classes),
        original=pa.array(["thing"] * n),
        replacement=pa.array(words),
        premise_spans=_same([[4, 9]], n, pa.list_(pa.list_(pa.int32()))),
        hypothesis_spans=_same([[2, 7]], n, pa.list_(pa.list_(pa.int32()))),
        mlms=_same(["m"], n, pa.list_(pa.string())),
        premise_mlms=_same(["m"], n, pa.list_(pa.string())),
        hypothesis_mlms=_same(["m"], n, pa.list_(pa.string())),
        log_odds=pa.array(np.ones(n, np.float32)),
        mlm_count=pa.array(np.ones(n, np.int32)),
        subsamples=_same(list(range(subsamples)), n, pa.list_(pa.int32())),
    )


def _words(count: int) -> list[str]:
    places = np.arange(count)
    letters = [_LETTERS[places // 26**k % 26] for k in range(3)]
    return ["".join(("xy", *item)) for item in zip(*letters, strict=True)]


def _table(
    ids: list[str],
    seed_ids: list[str],
    numbers: np.ndarray[Any, Any],
    words: list[str],
    **columns: pa.Array,
) -> pa.Table:
    schema, n = arrow_schema(), len(ids)
    columns |= {
        "variant_id": pa.array(ids),
        "seed_id": pa.array(seed_ids),
        "source": pa.array([SOURCE] * n),
        "premise": pa.array([f"The {w} of {n} runs." for w, n in zip(words, numbers, strict=True)]),
        "hypothesis": pa.array([f"A {w} {n} moves." for w, n in zip(words, numbers, strict=True)]),
        "label": pa.array(numbers % 3),
    }
    empty = {field.name: _empty(field, n) for field in schema}
    return pa.table({field.name: columns.get(field.name, empty[field.name]) for field in schema},
                    schema=schema)  # fmt: skip


def _empty(field: pa.Field, n: int) -> pa.Array:
    return _same([], n, field.type) if pa.types.is_list(field.type) else pa.nulls(n, field.type)


def _same(value: Any, n: int, kind: pa.DataType) -> pa.Array:
    return pa.array([value], kind).take(pa.array(np.zeros(n, np.int64)))
