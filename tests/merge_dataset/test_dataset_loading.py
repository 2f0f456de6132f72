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
from helpers.bench.made_up_rows import SOURCE, write_made_up_run
from helpers.commands import refused
from helpers.dataset_files import read_rows, write_rows, write_run
from helpers.format_run import PAIRS, READING, write_format_run

from merge_dataset import card, files, schema
from merge_dataset.card import read_front_matter, render
from merge_dataset.checks import check_dataset
from merge_dataset.dataset_columns import COLUMNS, OPTIONAL
from merge_dataset.export import export_dataset
from merge_dataset.files import RowGroupWriter, read_record
from merge_dataset.layout import (
    all_configurations,
    as_dataset,
    format_in,
    require_dataset,
    split_files,
)
from merge_dataset.merge_nli import MergeNli, builder
from merge_dataset.provenance import DRAW, _without_paths, differences
from merge_dataset.register import register_dataset
from merge_dataset.schema import (
    NLI,
    ProblemFormat,
    arrow_schema,
    column_meanings,
    content_hash,
    features,
    find_files,
    format_of,
    replacement_columns,
    with_format,
)
from merge_metric.predict.problems import read_problems
from merge_metric.seed_variant_accuracy import options

Python = Callable[[str, Path], Any]

NOUNS = [
    "snli:1/noun/dog/cat", "snli:1/noun/girl/boy", "snli:1/noun/girl/man", "snli:1/noun/girl/woman",
    "snli:2/noun/girl/boy", "snli:2/noun/girl/woman",
]  # fmt: skip

LOAD = """
def rows(*path, **options):
    data = datasets.load_dataset(*path, **options)
    return {split: list(data[split]) for split in data}
"""


def stored(*files: Path) -> list[dict[str, Any]]:
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


@pytest.mark.slow
def test_by_name_from_the_working_directory(dataset: Path, python: Python) -> None:
    loaded = python(
        LOAD
        + """
data = datasets.load_dataset("merge-nli", "snli_nouns")
print(json.dumps({
    "nouns": rows("merge-nli", "snli_nouns"),
    "streamed": rows("merge-nli", "snli_nouns", streaming=True),
    "all": rows("merge-nli", "snli"),
    "labels": data["variants"].features["label"].names,
    "votes": data["seeds"].features["annotator_labels"].feature.names,
    "same features": data["seeds"].features == data["variants"].features,
    "names": datasets.get_dataset_config_names("merge-nli"),
}))""",
        dataset.parent,
    )
    folder = dataset / "snli"
    assert (
        loaded["nouns"]
        == loaded["streamed"]
        == {
            "seeds": stored(folder / "nouns/seeds.parquet"),
            "variants": stored(folder / "nouns/variants.parquet"),
        }
    )
    classes = ("nouns", "verbs", "adjectives")
    assert loaded["all"] == {
        "seeds": stored(folder / "seeds.parquet"),
        "variants": stored(*(folder / name / "variants.parquet" for name in classes)),
    }
    assert [row["variant_id"] for row in loaded["nouns"]["variants"]] == NOUNS
    assert loaded["labels"] == loaded["votes"] == ["entailment", "neutral", "contradiction"]
    assert loaded["same features"]
    assert loaded["names"] == ["snli", "snli_nouns", "snli_verbs", "snli_adjectives"]


ANYWHERE = """
data = datasets.load_dataset("merge-nli", "snli_nouns")
print(json.dumps([list(data["variants"]["log_odds"]), data["seeds"].features["label"].names,
                  list(datasets.load_dataset("merge-nli", "anli-r1")["variants"]["source"])]))"""


@pytest.mark.slow
def test_registered_by_name_from_anywhere(
    make_run: Callable[..., Path],
    dataset: Path,
    python: Python,
    edit: Callable[..., None],
    tmp_path: Path,
) -> None:
    """Another folder of the name is refused, or replaces it and loads."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cache = tmp_path / "hf" / "datasets"
    own = make_run("own", "anli-r1", "3")
    export_dataset(own, dataset)
    names = ["anli-r1", "anli-r1_verbs", "snli", "snli_nouns", "snli_verbs", "snli_adjectives"]
    assert register_dataset(dataset, cache) == names
    labels = ["entailment", "neutral", "contradiction"]
    first = [[0.25, 0.5, 0.75, 0.25, 0.5, 0.25], labels, ["anli-r1"]]
    assert python(ANYWHERE, elsewhere) == first

    edit(tmp_path / "run/variants.parquet", lambda rows: [r.update(log_odds=8.0) for r in rows])
    changed = tmp_path / "changed" / "merge-nli"
    export_dataset(tmp_path / "run", changed)
    export_dataset(own, changed)
    with pytest.raises(FileExistsError, match=f"'merge-nli', by which {dataset} is registered"):
        register_dataset(changed, cache)
    assert python(ANYWHERE, elsewhere) == first
    register_dataset(changed, cache, overwrite=True)
    assert python(ANYWHERE, elsewhere) == [[8.0] * 6, labels, ["anli-r1"]]


@pytest.mark.slow
def test_folder_exported_anew_loads_anew(
    dataset: Path, python: Python, edit: Callable[..., None], tmp_path: Path
) -> None:
    code = """
data = datasets.load_dataset("merge-nli", "snli_nouns", split="variants")
print(json.dumps(list(data["log_odds"])))"""
    before = python(code, dataset.parent)
    sizes = {path: path.stat().st_size for path in dataset.rglob("*.parquet")}
    edit(
        tmp_path / "run/variants.parquet",
        lambda rows: [r.update(log_odds=r["log_odds"] + 8) for r in rows],
    )
    export_dataset(tmp_path / "run", dataset)
    assert {path: path.stat().st_size for path in dataset.rglob("*.parquet")} == sizes
    assert python(code, dataset.parent) == [value + 8 for value in before]


def test_registering_again_prepares_nothing(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = register_dataset(dataset, tmp_path)
    monkeypatch.setattr(MergeNli, "_generate_tables", None)
    assert register_dataset(dataset, tmp_path) == names


@pytest.mark.slow
def test_a_name_is_one_folder(
    dataset: Path,
    make_run: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Folders keep their own names; one made anew replaces itself, which is told."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    other, copy = tmp_path / "b" / "MyOwn", tmp_path / "c" / "merge-nli"
    export_dataset(make_run("later", pairs="2"), other)
    shutil.copytree(dataset, copy)
    dataset = dataset.rename(tmp_path / "first")
    for folder, name in ((dataset, None), (other, None), (dataset, "again"), (copy, "first")):
        register_dataset(folder, name=name)
    result = {name: as_dataset(name) for name in ("first", "MyOwn", "again")}
    assert result == {"first": copy, "MyOwn": other, "again": dataset}
    loaded = {name: len(datasets.load_dataset(name, "snli")["seeds"]) for name in result}
    assert loaded == {"first": 3, "MyOwn": 1, "again": 3}
    assert as_dataset("c/merge-nli") == Path("c/merge-nli")
    assert "replaces" not in caplog.text

    shutil.rmtree(dataset)
    with pytest.raises(NotADirectoryError, match=f"{dataset}: expected a dataset folder or a reg"):
        require_dataset(as_dataset("again"))
    shutil.copytree(other, dataset)
    register_dataset(dataset, name="again")
    assert f"again: replaces what was registered by this name from {dataset}" in caplog.text
    entries = [path.parts[-4] for path in tmp_path.glob("cache/again/*/*/*/dataset_info.json")]
    assert sorted(entries) == sorted(all_configurations(other))
    with pytest.raises(ValueError, match="expected letters, digits, -, _ and dots, got 'a/b'"):
        register_dataset(other, name="a/b")


def test_killed_preparation_of_other_content_is_tidied(dataset: Path, tmp_path: Path) -> None:
    """Its leftovers would break the fallback to the cache."""
    leftover = tmp_path / "cache/merge-nli/snli/0.0.0/0123456789abcdef.incomplete"
    leftover.mkdir(parents=True)
    register_dataset(dataset, tmp_path / "cache")
    entries = [path.name for path in leftover.parent.iterdir() if path.is_dir()]
    assert entries == [content_hash(dataset, "snli")]


def test_relative_folders_do_not_share_an_entry(
    dataset: Path, make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_dataset(make_run("later", pairs="2"), tmp_path / "b" / "merge-nli")
    result = []
    for place in (dataset.parent, tmp_path / "b"):
        monkeypatch.chdir(place)
        one = MergeNli(config_name="snli", data_dir="merge-nli", cache_dir=str(tmp_path / "cache"))
        one.download_and_prepare()
        result.append(one.as_dataset(split="seeds")["seed_id"][:])
    assert result == [["snli:1", "snli:2", "snli:3"], ["snli:2"]]


def test_missing_files_are_named(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        MergeNli(config_name="snli_adverbs", data_dir=str(dataset), cache_dir=str(tmp_path))
    assert str(dataset / "snli/adverbs/seeds.parquet") in str(error.value)
    assert "pass data_dir=" in str(error.value)
    without = MergeNli(config_name="snli", base_path=str(tmp_path), cache_dir=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="configuration 'snli', split 'seeds': expected"):
        without.download_and_prepare()
    (dataset / "snli/nouns/variants.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"split 'variants'.*nouns/variants.parquet, found"):
        builder(dataset, "snli_nouns")


def test_files_may_lie_behind_a_url(dataset: Path) -> None:
    files = find_files(f"file://{dataset}", "snli_nouns")
    assert files["seeds"] == [f"file://{dataset}/snli/nouns/seeds.parquet"]


SEEDS = 50


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 50 seeds, each with two variants in each of three classes."""
    return write_made_up_run(
        tmp_path_factory.mktemp("run"), range(SEEDS), per_class=2, subsamples=2
    )


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS", 10)
    monkeypatch.setattr(files, "FILE_ROWS", 30)


def rows(folder: Path) -> dict[str, list[object]]:
    return {
        f"{config} {split}": [row for name in names for row in read_rows(folder / name)]
        for config in (SOURCE, f"{SOURCE}_verbs")
        for split, names in split_files(folder, config).items()
    }


@pytest.mark.slow
def test_many_files_hold_the_rows_of_one(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    export_dataset(run, tmp_path / "one")
    wanted = rows(tmp_path / "one")
    for name, value in (("ROWS", 10), ("FILE_ROWS", 30)):
        monkeypatch.setattr(files, name, value)
    folder = tmp_path / "merge-nli"
    export_dataset(run, folder)
    assert rows(folder) == wanted
    assert check_dataset(folder) == []
    assert check_dataset(shutil.copytree(folder, tmp_path / "[a]**?" / "d")) == []
    ids = [row["variant_id"] for row in wanted[f"{SOURCE}_verbs variants"]]
    cache = {"cache_dir": str(tmp_path / "cache")}
    by_card = datasets.load_dataset(str(folder), f"{SOURCE}_verbs", split="variants", **cache)
    assert by_card["variant_id"][:] == ids
    built = builder(folder, f"{SOURCE}_verbs", **cache)
    assert isinstance(built, MergeNli)
    built.download_and_prepare()
    assert built.as_dataset(split="variants")["variant_id"][:] == ids


@pytest.mark.usefixtures("small_files")
def test_a_missing_file_is_told(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "merge-nli"
    export_dataset(run, folder)
    (folder / SOURCE / "nouns" / "variants-00001-of-00004.parquet").unlink()
    message = "expected the 4 files .* got 3 files, without .*nouns/variants-00001-of-00004"
    with pytest.raises(FileNotFoundError, match=message):
        split_files(folder, f"{SOURCE}_nouns")
    with pytest.raises(FileNotFoundError, match=message):
        builder(folder, f"{SOURCE}_nouns")
    assert any("without" in problem for problem in check_dataset(folder))


def test_a_recorded_file_that_is_gone(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    export_dataset(run, folder)
    gone = folder / SOURCE / "nouns" / "variants.parquet"
    gone.unlink()
    message = rf"{SOURCE}/nouns/variants.parquet: expected a file, which {SOURCE}/provenance.json"
    with pytest.raises(FileNotFoundError, match=message):
        require_dataset(folder)
    with pytest.raises(FileNotFoundError, match=message):
        read_problems(str(folder))
    assert any(f"{SOURCE}/nouns/variants.parquet" in result for result in check_dataset(folder))


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


def test_names_of_configurations() -> None:
    for name in (
        "snli",
        "mnli-m_nouns",
        "anli-r1_adverbs",
        "demo_adjectives",
        "anli-r3_paraphrases",
    ):
        assert schema.config_name(*schema.parse_config_name(name)) == name
    for name in ("snli_noun", "snli_paraphrase", "SNLI", "my_set_nouns", "", "a--b", "../snli"):
        with pytest.raises(ValueError, match="expected a"):
            schema.parse_config_name(name)


def test_columns_and_labels() -> None:
    """The metric repeats the labels, as it is uploaded alone; features and columns agree."""
    assert options.LABELS == schema.LABELS
    with pytest.raises(ValueError, match="fields: expected two or more"):
        schema.ProblemFormat(("premise",), ("hypothesis", *schema.LABELS))
    problem_format = schema.ProblemFormat(("context", "question", "answer"), ("yes", "no"))
    meanings = schema.column_meanings(problem_format)
    assert list(meanings) == schema.arrow_schema(problem_format).names
    assert meanings["label"] == "0 yes, 1 no; a variant has its seed's"
    features = schema.features(schema.arrow_schema())
    assert features.arrow_schema.remove_metadata() == schema.arrow_schema()
    label = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    assert features["label"] == label
    assert features["annotator_labels"] == datasets.Sequence(label)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/home/me/my data/dev.jsonl", "dev.jsonl"),
        ("C:\\data\\dev.jsonl", "dev.jsonl"),
        ("../shared/dev.jsonl", "dev.jsonl"),
        ("~/models/bert", "bert"),
        ("read from /srv/x/dev.jsonl (9 rows)", "read from dev.jsonl (9 rows)"),
        ("file:///srv/x/dev.jsonl", "dev.jsonl"),
        ("google-bert/bert-base-cased@main", "google-bert/bert-base-cased@main"),
        ("https://huggingface.co/datasets/stanfordnlp/snli", "https://huggingface.co/datasets/stanfordnlp/snli"),
        ("premise and/or hypothesis, 1 / 2", "premise and/or hypothesis, 1 / 2"),
        ({"a": ["/x/y", 3, None]}, {"a": ["y", 3, None]}),
    ],
)  # fmt: skip
def test_local_paths_become_names(text: object, kept: object) -> None:
    assert _without_paths(text) == kept


def test_what_draws_otherwise_is_made_otherwise() -> None:
    """Paraphrases are not drawn."""
    paraphrases: dict[str, object] = {"config": {}}
    now, later = {**paraphrases, "draw": DRAW}, {**paraphrases, "draw": 3}
    assert differences(now, later) == ["draw: 2 there, 3 now"]
    assert differences(now, now) == differences(paraphrases, now) == []
