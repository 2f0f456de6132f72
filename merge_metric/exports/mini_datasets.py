"""Mini-datasets: each random subsample of a dataset in a file of its own (poster)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from merge_dataset.commands.command_line import option
from merge_dataset.files import RowGroupWriter
from merge_metric.exports.flat import write_jsonl
from merge_metric.exports.folders import configurations_of, new_folder, read_split
from merge_metric.exports.registry import (
    FILES,
    Configs,
    Exported,
    Folder,
    Out,
    Overwrite,
    export,
    exported_files,
)

if TYPE_CHECKING:
    import pyarrow as pa

MiniFormat = Literal["parquet", "jsonl"]


@export("mini-datasets", panel=FILES)
def mini_datasets(
    folder: Folder = Path("merge-nli"),
    out: Out = Path("merge-nli-mini"),
    config: Configs = None,
    kind: Annotated[MiniFormat, option("Kind of file.", "--as")] = "parquet",
    overwrite: Overwrite = False,
) -> Exported:
    """The random subsamples as data sets of their own, a file each.

    Ten per configuration, unless the recipe says otherwise, and the seeds beside them.

    \b
    Examples:
      merge-nli export mini-datasets merge-nli --config snli_nouns

    \b
      merge-nli export mini-datasets merge-nli --as jsonl --out mini
    """
    written = export_mini_datasets(folder, out, kind, config or (), overwrite=overwrite)
    return exported_files(out, written, loader="parquet" if kind == "parquet" else "json")


def export_mini_datasets(
    folder: Path,
    out: Path,
    output: MiniFormat = "parquet",
    configs: Sequence[str] = (),
    *,
    overwrite: bool = False,
) -> dict[str, dict[str, int]]:
    """Write `<configuration>/mini-00.parquet` and so on: the variants of one subsample each.

    A variant that is in several subsamples is in each of their files. The configuration's seeds,
    which all subsamples share, are in a file beside them. Columns are those of the dataset.

    Args:
        folder: The dataset folder.
        out: The folder to write.
        output: The kind of file; JSON lines as `flat` writes them.
        configs: Configurations; by default all.
        overwrite: Replace an earlier export.

    Returns:
        File, relative to `out` → rows, by configuration.

    Raises:
        FileExistsError: `out` holds something.
        NotADirectoryError: there is no dataset folder.
        ValueError: it is not a dataset folder, lacks a configuration, or one has no subsamples.
    """
    chosen = configurations_of(folder, configs)
    description = {
        "export": "mini-datasets",
        "dataset": str(folder.resolve()),
        "configurations": chosen,
    }
    written: dict[str, dict[str, int]] = {}
    with new_folder(out, description, overwrite=overwrite) as partial:
        for config in chosen:
            (partial / config).mkdir()
            counts = _write_config(folder, config, partial / config, output)
            written[config] = {f"{config}/{name}": rows for name, rows in counts.items()}
    return written


def numbers_of(folder: Path, config: str) -> list[int]:
    """List the numbers of a configuration's subsamples, ascending.

    Raises:
        ValueError: its variants are in no subsample.
    """
    import pyarrow.compute as pc

    found: set[int] = set()
    for table in read_split(folder, config, "variants"):
        found |= set(pc.unique(pc.list_flatten(table["subsamples"])).to_pylist())
    if not found:
        raise ValueError(
            f"{folder}: configuration {config!r}: expected variants in subsamples, got none in "
            f"any: there are no mini-datasets of it; `merge-nli export jsonl` writes all variants"
        )
    return sorted(found)


def of_subsample(tables: Iterable[pa.Table], number: int) -> Iterator[pa.Table]:
    """Yield the rows that a subsample drew."""
    for table in tables:
        yield table.filter(_drawn(table, number))


def _write_config(folder: Path, config: str, out: Path, output: MiniFormat) -> dict[str, int]:
    """Write the files of a configuration, and map each file to its number of rows."""
    write = _WRITERS[output]
    seeds = f"seeds.{output}"
    counts = {seeds: write(out / seeds, read_split(folder, config, "seeds"))}
    for number in numbers_of(folder, config):
        rows = of_subsample(read_split(folder, config, "variants"), number)
        name = f"mini-{number:02}.{output}"
        counts[name] = write(out / name, rows)
    return counts


def _write_parquet(path: Path, tables: Iterable[pa.Table]) -> int:
    tables = iter(tables)
    first = next(tables)
    with RowGroupWriter(path, first.schema) as writer:
        for table in chain([first], tables):
            writer.write(table)
    return writer.rows


def _drawn(table: pa.Table, number: int) -> pa.Array:
    """Return [rows] whether a subsample drew each row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table["subsamples"].combine_chunks()
    holds = pc.equal(pc.list_flatten(column), number)
    rows = pc.list_parent_indices(column).filter(holds)
    return pc.is_in(pa.array(range(len(table))), value_set=rows.cast(pa.int64()))


_WRITERS: Final[dict[MiniFormat, Callable[[Path, Iterable[pa.Table]], int]]] = {
    "parquet": _write_parquet,
    "jsonl": write_jsonl,
}
