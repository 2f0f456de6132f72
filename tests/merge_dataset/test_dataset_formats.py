import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused
from helpers.dataset_files import read_rows, write_rows, write_run
from helpers.format_run import PAIRS, READING, write_format_run

from merge_dataset import card
from merge_dataset.card import read_front_matter, render
from merge_dataset.checks import check_dataset
from merge_dataset.dataset_columns import COLUMNS, OPTIONAL
from merge_dataset.export import export_dataset
from merge_dataset.files import RowGroupWriter, read_record
from merge_dataset.layout import format_in
from merge_dataset.merge_nli import MergeNli
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
