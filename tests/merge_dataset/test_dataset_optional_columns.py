import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused
from helpers.dataset_files import read_rows, write_rows, write_run

from merge_dataset.card import read_front_matter, render
from merge_dataset.checks import check_dataset
from merge_dataset.dataset_columns import COLUMNS, OPTIONAL
from merge_dataset.export import export_dataset
from merge_dataset.files import read_record
from merge_dataset.layout import format_in
from merge_dataset.schema import (
    NLI,
    ProblemFormat,
    arrow_schema,
    column_meanings,
    features,
    format_of,
    replacement_columns,
    with_format,
)

MORE = NLI.with_optional(["quality"])
MADE_UP = [0.125 * number for number in range(9)]


@pytest.fixture
def mixed(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder in which `snli` has the column `quality`, and `mnli-m` does not."""
    plain = make_run("plain", "snli")
    seeds, variants = (read_rows(plain / f"{name}.parquet") for name in ("seeds", "variants"))
    rows = [row | {"quality": MADE_UP[n % 9]} for n, row in enumerate(variants)]
    manifest = read_record(plain / "manifest.json")
    export_dataset(write_run(tmp_path / "more", seeds, rows, manifest, MORE), tmp_path / "data")
    export_dataset(make_run("other", "mnli-m"), tmp_path / "data")
    return tmp_path / "data"


def test_formats_differ_in_columns_alone() -> None:
    assert MORE == NLI
    assert hash(MORE) == hash(NLI)
    assert MORE.signals == (*NLI.signals, "quality")
    assert set(replacement_columns(MORE)) - set(replacement_columns()) == {"quality"}
    assert list(column_meanings(MORE)) == arrow_schema(MORE).names
    assert features(arrow_schema(MORE)).arrow_schema.remove_metadata() == arrow_schema(MORE)
    every = NLI.with_optional(OPTIONAL)
    assert len(arrow_schema(every)) == len(arrow_schema()) + len(OPTIONAL)
    names = [column.name for column in COLUMNS]
    assert all(names.index(name) < names.index("subsamples") for name in OPTIONAL)
    assert format_of(arrow_schema(every)).optional == OPTIONAL
    with pytest.raises(ValueError, match=r"optional: expected names of .*quality.*, got 'best'"):
        NLI.with_optional(["quality", "best"])
    pairs = ProblemFormat(("first", "second"), ("other", "same"))
    schema = arrow_schema(pairs.with_optional(["quality"]))
    assert schema.metadata == arrow_schema(pairs).metadata
    assert format_of(schema).optional == ("quality",)
    named = ProblemFormat(("text", "quality"), ("bad", "good"))
    assert format_of(with_format(arrow_schema(named), named)).optional == ()
    with pytest.raises(ValueError, match="dataset's columns, got 'quality'"):
        named.with_optional(["quality"])


def test_the_card_has_those_that_there_are(mixed: Path, dataset: Path) -> None:
    text = (mixed / "README.md").read_text(encoding="utf-8")
    assert text.count("| `quality` |") == 1
    infos = {entry["config_name"]: entry for entry in read_front_matter(text)["dataset_info"]}
    for config, entry in infos.items():
        info = datasets.DatasetInfo._from_yaml_dict(entry)
        assert info.features == features(arrow_schema(format_in(mixed, config)))
    assert (
        "quality" not in (dataset / "README.md").read_text(encoding="utf-8").split("## Limits")[0]
    )


def test_the_card_names_those_that_are_null_throughout(mixed: Path) -> None:
    names = dict.fromkeys((*NLI.signals, *MORE.signals))
    tables = [pq.ParquetFile(path).read() for path in mixed.rglob("variants.parquet")]
    null = {name for name in names if all(pc.all(t[name].is_null()).as_py() for t in tables
                                          if name in t.column_names)}  # fmt: skip
    assert set() < null < set(names)
    text = render(mixed)
    message = ", ".join(f"`{name}`" for name in names if name in null)
    assert f"empty in `seeds`. Null throughout: {message}.\n" in text
    assert not any(f"| `{name}` |" in text for name in null)
    assert "Both splits of a configuration have the same columns." in text
    path = next(mixed.rglob("variants.parquet"))
    pq.write_table(pq.ParquetFile(path).read(), path, write_statistics=False)
    assert "Null throughout" not in render(mixed)


def test_a_collection_has_the_same_columns_in_all_files(mixed: Path, tmp_path: Path) -> None:
    path = mixed / "snli/verbs/variants.parquet"
    rows = read_rows(path)
    write_rows(path, [{k: v for k, v in row.items() if k != "quality"} for row in rows])
    result = [line for line in check_dataset(mixed) if "optional" in line]
    assert len(result) == 1
    assert "snli/verbs/variants.parquet" in result[0]
    assert "expected the optional columns of its collection: quality; got none" in result[0]
    out = ("--out", tmp_path / "flat")
    assert "expected what" in refused("export", "csv", mixed, "--config", "snli", *out)


FLAGGED = ("in_compound", "quality", "common_mlm_count")


def sound(row: dict[str, Any]) -> dict[str, Any]:
    """Valid values for a row in the columns of `FLAGGED`."""
    common = set(row["premise_mlms"]) & set(row["hypothesis_mlms"])
    return {
        "in_compound": False, "quality": 0.5, "common_mlm_count": len(common),
    }  # fmt: skip


@pytest.fixture(scope="module")
def flagged(tmp_path_factory: pytest.TempPathFactory, same_dataset: Path) -> Path:
    """A dataset with the columns of `FLAGGED`, by a build with a limit on quality."""
    plain = same_dataset.parent / "run"
    seeds, variants = (read_rows(plain / f"{name}.parquet") for name in ("seeds", "variants"))
    rows = [row | sound(row) for row in variants]
    manifest = read_record(plain / "manifest.json")
    manifest["config"] |= {"min_quality": 0.25, "no_compounds": True}
    folder = tmp_path_factory.mktemp("flagged")
    run = write_run(folder / "run", seeds, rows, manifest, NLI.with_optional(FLAGGED))
    export_dataset(run, folder / "data")
    return folder / "data"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"common_mlm_count": None, "quality": None}, None),  # unknown there
        ({"common_mlm_count": 7}, "common_mlm_count to be the masked LMs of every text; got 7"),
        ({"quality": 1.5}, "quality from 0 to 1; got 1.5"),
        ({"quality": 0.125}, "quality of 0.25 at least, as min_quality says; got 0.125"),
        ({"quality": float("nan")}, "quality to be a number; got nan"),
        ({"in_compound": None}, "the same in_compound in all variants of one word"),
        ({"in_compound": True}, "in_compound not to be True, as no_compounds says; got True"),
    ],
)
def test_values_that_cannot_be(
    flagged: Path,
    tmp_path: Path,
    edit: Callable[..., None],
    changes: dict[str, Any],
    problem: str | None,
) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        rows[1].update(changes)  # of a word with three variants

    data = shutil.copytree(flagged, tmp_path / "data")
    edit(data / "snli/nouns/variants.parquet", change)
    other = ("README.md", "snli/nouns/variants.parquet: expected what was written, byte for byte")
    result = [line for line in check_dataset(data) if not line.startswith(other)]
    if problem is None:
        assert result == []
    else:
        assert any(f"expected {problem}" in line for line in result), result
