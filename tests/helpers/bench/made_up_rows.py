from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb
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
        for some in _parts(seeds):
            of_seeds.write(_rows(some))
            of_variants.write(_rows(some, per_class, subsamples))
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
        for per_class in (0, 7):
            for some in _parts(seeds):
                writer.write(_answers(_rows(some, per_class), rng, schema))
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


def _parts(seeds: range) -> Iterator[range]:
    starts = range(seeds.start, seeds.stop, _SEEDS_AT_A_TIME)
    return (range(start, min(start + _SEEDS_AT_A_TIME, seeds.stop)) for start in starts)


def _rows(seeds: range, per_class: int = 0, subsamples: int = 1) -> pa.Table:
    """Seeds, whose word is "thing", or their variants in three classes, by a query."""
    letters = " || ".join(f"chr((97 + place // {26**k} % 26)::INT)" for k in range(3))
    word = f"('xy' || {letters})" if per_class else "'thing'"
    seed_id = f"'{SOURCE}:' || lpad(n::VARCHAR, 10, '0')"
    columns = {
        "variant_id": seed_id, "seed_id": seed_id, "source": f"'{SOURCE}'", "label": "n % 3",
        "premise": f"'The ' || {word} || ' of ' || n || ' runs.'",
        "hypothesis": f"'A ' || {word} || ' ' || n || ' moves.'",
    }  # fmt: skip
    if per_class:
        word_class = f"({list(_CLASSES)})[place // {per_class} + 1]"
        columns |= dict.fromkeys(("mlms", "premise_mlms", "hypothesis_mlms"), "['m']")
        columns |= {
            "variant_id": f"{seed_id} || '/' || {word_class} || '/thing/' || {word}",
            "word_class": word_class, "original": "'thing'", "replacement": word,
            "premise_spans": "[[4, 9]]", "hypothesis_spans": "[[2, 7]]", "log_odds": "1.0",
            "mlm_count": "1", "subsamples": f"range({subsamples})",
        }  # fmt: skip
    selected = ", ".join(
        f"{columns.get(field.name, '[]' if pa.types.is_list(field.type) else 'NULL')} "
        f'AS "{field.name}"'
        for field in arrow_schema()
    )
    places = f"range({max(1, len(_CLASSES) * per_class)})"
    query = (
        f"SELECT {selected} FROM range({seeds.start}, {seeds.stop}) s(n), {places} p(place) "
        "ORDER BY n, place"
    )
    with duckdb.connect() as connection:
        return connection.sql(query).to_arrow_table().cast(arrow_schema())


def _answers(problems: pa.Table, rng: np.random.Generator, schema: pa.Schema) -> pa.Table:
    label = problems["label"].to_numpy()
    prediction = np.where(rng.random(len(label)) < 0.9, label, (label + 1) % 3)
    shares = np.full((len(label), 3), 0.1)
    shares[np.arange(len(label)), prediction] = 0.8
    offsets = np.arange(0, 3 * len(label) + 1, 3, dtype=np.int32)
    digests = to_hex(text_digests(problems, ("premise", "hypothesis")))
    probabilities = pa.ListArray.from_arrays(offsets, shares.ravel())
    ids = problems["variant_id"], problems["seed_id"]
    return pa.table([*ids, label, prediction, digests, probabilities], schema=schema)
