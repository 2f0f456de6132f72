import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.format_run import PAIRS, READING, write_format_run

from merge_dataset import card
from merge_dataset.checks import check_dataset
from merge_dataset.export import export_dataset
from merge_dataset.files import RowGroupWriter
from merge_dataset.layout import format_in
from merge_dataset.merge_nli import MergeNli
from merge_dataset.schema import (
    NLI,
    arrow_schema,
    features,
    format_of,
    with_format,
)


@pytest.fixture(scope="module")
def made(dataset_beside_run: Callable[[Path], Path], tmp_path_factory: Any) -> Path:
    """A folder with NLI, pairs with two labels, and problems of three texts, beside their runs."""
    place = tmp_path_factory.mktemp("formats")
    out = dataset_beside_run(place)
    export_dataset(write_format_run(place / "pairs", PAIRS), out)
    export_dataset(write_format_run(place / "reading", READING), out)
    return out


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of this folder, beside its runs, for changes."""
    shutil.copytree(made.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "merge-nli"


def test_three_formats_in_one_folder(folder: Path) -> None:
    assert check_dataset(folder) == []
    formats = {name: format_in(folder, name) for name in ("snli", "pairs_nouns", "reading")}
    assert formats == {"snli": NLI, "pairs_nouns": PAIRS, "reading": READING}
    assert pq.read_schema(folder / "snli/seeds.parquet").metadata is None
    schema = pq.read_schema(folder / "reading/nouns/variants.parquet")
    assert schema.equals(arrow_schema(READING))
    assert list(schema.metadata) == [b"merge-nli"]


def test_streamed_and_by_the_class(folder: Path, tmp_path: Path) -> None:
    stream = datasets.load_dataset(str(folder), "pairs", split="seeds", streaming=True)
    assert next(iter(stream))["second"] == "The dog sleeps."
    demo = folder.with_name("demo")
    export_dataset(write_format_run(folder.with_name("demo-run"), PAIRS, source="demo"), demo)
    data = MergeNli(config_name="demo", data_dir=str(demo), cache_dir=str(tmp_path / "cache"))
    data.download_and_prepare()
    assert data.as_dataset(split="variants").features == features(arrow_schema(PAIRS))
    nowhere = MergeNli(config_name="demo", cache_dir=str(tmp_path), base_path=str(tmp_path))
    assert nowhere.info.features is None


def test_the_card(folder: Path) -> None:
    """The card has figures per set of labels, features per configuration, and the formats."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    header = card.read_front_matter(text)
    for entry in header["dataset_info"]:
        info = datasets.DatasetInfo._from_yaml_dict(entry)
        assert info.features == features(arrow_schema(format_in(folder, entry["config_name"])))
    assert header["task_ids"] == ["multi-input-text-classification", "natural-language-inference"]
    assert "nli" in header["tags"]
    assert "| `pairs` | first, second | other, same |" in text
    assert "| `reading` | context, question, answer | wrong, right |" in text
    assert "`first`, `second`; `context`, `question`, `answer`; `premise`, `hypothesis`" in text
    assert "`first_spans`, `second_spans`" in text
    numbers = "0 other, 1 same; or 0 wrong, 1 right; or 0 entailment, 1 neutral, 2 contradiction"
    assert f"| `label` | {numbers}; a variant has its seed's |" in text
    assert "| configuration | seeds | other (%) | same (%) |" in text
    assert "| configuration | seeds | wrong (%) | right (%) |" in text


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"answer": "The key."}, "the seed's answer once the original is put back"),
        ({"mlms": ["b"]}, "the sorted union of context_mlms and question_mlms and answer_mlms"),
        ({"answer_pll_change": 0.5}, "answer_pll_change where the word stands, or neither"),
    ],
)
def test_rows_are_checked_by_format(
    folder: Path, edit: Callable[..., None], changes: dict[str, Any], finding: str
) -> None:
    edit(folder / "reading/nouns/variants.parquet", lambda rows: rows[0].update(changes))
    for other in ("snli", "pairs"):
        shutil.rmtree(folder / other)
    assert any(finding in line for line in check_dataset(folder)), check_dataset(folder)


def test_another_format_than_the_collection_was_made_with(folder: Path) -> None:
    path = folder / "pairs/provenance.json"
    made = json.loads(path.read_text())
    made["config"]["labels"] = ["yes", "no"]
    path.write_text(json.dumps(made))
    expected = (
        "pairs/seeds.parquet: expected problems with the fields first, second and the labels yes, "
        "no, as in pairs/provenance.json; got fields first, second and the labels other, same"
    )
    assert expected in check_dataset(folder)


@pytest.mark.parametrize("recorded", [b"{", b'{"fields": ["a"], "labels": ["b"]}'])
def test_metadata_that_is_no_format(folder: Path, recorded: bytes) -> None:
    path = folder / "pairs/seeds.parquet"
    table = pq.ParquetFile(path).read().replace_schema_metadata({b"merge-nli": recorded})
    pq.write_table(table, path)
    assert any(
        "expected a format of problems in its metadata" in line for line in check_dataset(folder)
    )


def test_only_ours_is_kept(tmp_path: Path) -> None:
    """Metadata of `datasets` are dropped, as its earlier releases cannot read them."""
    schema = arrow_schema(PAIRS)
    more = schema.with_metadata({**schema.metadata, b"huggingface": b"{}"})
    for of_pairs in (schema, more):
        with RowGroupWriter(tmp_path / "x.parquet", of_pairs):
            pass
        kept = pq.read_schema(tmp_path / "x.parquet")
        assert kept.metadata == schema.metadata
        assert format_of(kept) == PAIRS
    with RowGroupWriter(
        tmp_path / "x.parquet", pa.schema([("a", pa.int8())], {b"huggingface": b""})
    ):
        pass
    assert pq.read_schema(tmp_path / "x.parquet").metadata is None
    assert with_format(arrow_schema(), NLI).metadata is None
