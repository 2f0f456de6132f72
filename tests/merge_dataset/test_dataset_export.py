import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.commands import refused, run
from helpers.dataset_files import files_of as contents
from helpers.dataset_files import read_rows
from helpers.paraphrase_run import NLI_MODEL, PROBLEMS, write_paraphrase_run

from merge_dataset import card, layout
from merge_dataset.checks import check_dataset
from merge_dataset.export import export_dataset
from merge_dataset.files import digests, partial_path, read_record, write_record
from merge_dataset.schema import SPLITS, arrow_schema
from merge_dataset.show import choose_problems

MakeRun = Callable[..., Path]


def ids(file: Path) -> list[str]:
    return [str(v) for v in pq.ParquetFile(file).read()["variant_id"].to_pylist()]


def test_layout(make_run: MakeRun, tmp_path: Path, dataset: Path) -> None:
    """Files per class, each seed once; the schema's columns, zstd, no metadata of `datasets`."""
    out = tmp_path / "merge-nli"
    assert export_dataset(make_run(), out) == [
        "snli", "snli_nouns", "snli_verbs", "snli_adjectives",
    ]  # fmt: skip
    classes = ("adjectives", "nouns", "verbs")
    assert set(contents(out)) == {"README.md", "snli/provenance.json", "snli/seeds.parquet"} | {
        f"snli/{c}/{s}.parquet" for c in classes for s in ("seeds", "variants")
    }
    assert ids(out / "snli/seeds.parquet") == ["snli:1", "snli:2", "snli:3"]
    assert ids(out / "snli/nouns/seeds.parquet") == ["snli:1", "snli:2"]
    assert ids(out / "snli/verbs/seeds.parquet") == ["snli:2", "snli:3"]
    assert ids(out / "snli/adjectives/variants.parquet") == [
        "snli:1/adjective/small/big",
        "snli:1/adjective/small/brown",
    ]
    assert len(ids(out / "snli/nouns/variants.parquet")) == 6
    for path in dataset.rglob("*.parquet"):
        file = pq.ParquetFile(path)
        assert file.schema_arrow.equals(arrow_schema())
        assert set(file.metadata.metadata) == {b"ARROW:schema"}
        assert file.schema_arrow.metadata is None
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_provenance_tells_how_and_not_where(dataset: Path) -> None:
    text = (dataset / "snli/provenance.json").read_text()
    made = json.loads(text)
    assert (made["config"]["data"], made["config"]["mlms"]) == ("test.jsonl", ["bert", "b/roberta"])
    assert made["source_data"]["description"] == "file test.jsonl"
    assert made["funnel"][1]["in_problem"] == 7
    assert made["config"].keys().isdisjoint({"run", "workers"})
    assert "started" not in made
    assert "/home" not in text


def test_second_source_is_added(make_run: MakeRun, dataset: Path) -> None:
    before = contents(dataset / "snli")
    assert export_dataset(make_run("other", "my-own", "3"), dataset) == ["my-own", "my-own_verbs"]
    assert contents(dataset / "snli") == before
    assert check_dataset(dataset) == []
    card = (dataset / "README.md").read_text()
    assert "config_name: my-own_verbs" in card
    assert "config_name: snli_nouns" in card
    assert export_dataset(make_run("later", pairs="3"), dataset) == ["snli", "snli_verbs"]
    assert not (dataset / "snli/nouns").exists()
    assert ids(dataset / "snli/seeds.parquet") == ["snli:3"]
    assert check_dataset(dataset) == []


def test_stop_between_the_two_renames_is_undone(make_run: MakeRun, dataset: Path) -> None:
    before = contents(dataset / "snli")
    (dataset / "snli").rename(dataset / ".snli.old")
    partial_path(dataset / "README.md").write_text("half")
    export_dataset(make_run("other", "my-own", "3"), dataset)
    assert contents(dataset / "snli") == before
    assert check_dataset(dataset) == []


@pytest.mark.slow
def test_exports_at_once_wait_for_each_other(make_run: MakeRun, tmp_path: Path) -> None:
    names = [f"set-{i}" for i in range(4)]
    runs = [make_run(name, name) for name in names]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(export_dataset, runs, [tmp_path / "merge-nli"] * 4))
    assert check_dataset(tmp_path / "merge-nli") == []
    card = (tmp_path / "merge-nli/README.md").read_text()
    assert all(f"config_name: {name}_nouns" in card for name in names)


def test_foreign_folder_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("…")
    with pytest.raises(FileExistsError, match=r"holds chapter.tex; name another folder"):
        export_dataset(make_run(), tmp_path / "thesis")
    with pytest.raises(NotADirectoryError):
        export_dataset(tmp_path / "run", tmp_path / "thesis/chapter.tex")
    assert sorted(contents(tmp_path / "thesis")) == ["chapter.tex"]


@pytest.mark.parametrize("name", ["manifest.json", "seeds.parquet", "variants.parquet"])
def test_missing_file_of_the_run(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    (make_run() / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name}.*run `merge-nli build` or"):
        export_dataset(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_changed_since_the_build(
    make_run: MakeRun, tmp_path: Path, edit: Callable[..., None]
) -> None:
    run = make_run()
    files = digests({f"{split}.parquet": run / f"{split}.parquet" for split in SPLITS})
    write_record(run / "manifest.json", read_record(run / "manifest.json") | {"files": files})
    edit(run / "variants.parquet", lambda rows: rows[0].update(source="mnli-m"))
    with pytest.raises(ValueError, match=r"expected variants.parquet as manifest.json had it, got"):
        export_dataset(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_texts_of_several_problems_are_told(
    make_run: MakeRun, tmp_path: Path, edit: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """`check` would refuse the folder, so a warning comes at once, unless seeds are equal."""
    run = make_run()
    export_dataset(run, tmp_path / "good")
    assert "texts that stand in" not in caplog.text
    fields = ("premise", "hypothesis")

    def repeat(rows: list[dict[str, Any]]) -> None:
        first, other = rows[0], next(r for r in rows if r["seed_id"] != rows[0]["seed_id"])
        other.update({name: first[name] for name in fields})

    edit(run / "variants.parquet", repeat)
    manifest = read_record(run / "manifest.json")
    write_record(run / "manifest.json", {**manifest, "files": {}})
    export_dataset(run, tmp_path / "repeated")
    assert (
        "repeated/snli: texts that stand in variants of several problems: 1, such as that"
        in caplog.text
    )
    assert any("texts that stand in one variant" in line for line in
               check_dataset(tmp_path / "repeated"))  # fmt: skip


OTHER_MODEL = NLI_MODEL | {"name": "some/other-model", "revision": None}


@pytest.fixture
def both(dataset: Path, tmp_path: Path) -> Path:
    export_dataset(write_paraphrase_run(tmp_path / "paraphrase-run"), dataset)
    return dataset


@pytest.mark.slow
def test_neither_collection_touches_the_other(
    make_run: MakeRun, dataset: Path, tmp_path: Path
) -> None:
    replacements = contents(dataset / "snli")
    run = write_paraphrase_run(tmp_path / "paraphrase-run")
    assert export_dataset(run, dataset) == ["snli_paraphrases"]
    assert contents(dataset / "snli") == replacements
    assert check_dataset(dataset) == []
    paraphrased = contents(dataset / "snli_paraphrases")
    assert export_dataset(make_run("later", pairs="3"), dataset) == ["snli", "snli_verbs"]
    assert contents(dataset / "snli_paraphrases") == paraphrased
    assert check_dataset(dataset) == []
    export_dataset(tmp_path / "run", dataset)
    assert contents(dataset / "snli") == replacements


def test_the_order_of_configurations(both: Path, make_run: MakeRun, tmp_path: Path) -> None:
    export_dataset(make_run("hard", "snli-hard", "3"), both)
    export_dataset(write_paraphrase_run(tmp_path / "anli", "anli-r1"), both)
    assert layout.collections(both) == ["anli-r1_paraphrases", "snli", "snli_paraphrases",
                                        "snli-hard"]  # fmt: skip
    assert layout.sources(both) == ["anli-r1", "snli", "snli-hard"]
    assert layout.all_configurations(both) == [
        "anli-r1_paraphrases",
        *("snli", "snli_nouns", "snli_verbs", "snli_adjectives"),
        "snli_paraphrases",
        *("snli-hard", "snli-hard_verbs"),
    ]
    header = card.read_front_matter((both / "README.md").read_text())
    names = [entry["config_name"] for entry in header["configs"]]
    assert names == layout.all_configurations(both)
    assert check_dataset(both) == []


def test_a_later_run_of_the_same_models_replaces(paraphrases: Path, tmp_path: Path) -> None:
    moved = NLI_MODEL | {"name": "elsewhere/some-nli-model", "device": "cuda"}
    moved["name"] = "/mnt/models/some-nli-model"
    generator = {"name": "g", "revision": "1", "architecture": "T", "dtype": "x", "device": "y"}
    fewer = {"4": PROBLEMS["4"]}
    export_dataset(write_paraphrase_run(tmp_path / "moved", nli_model=moved), paraphrases)
    run = write_paraphrase_run(
        tmp_path / "later", problems=fewer, nli_model=moved, generator=generator
    )
    with pytest.raises(FileExistsError, match=r"generator: .* there, g 1 T x y now"):
        export_dataset(run, paraphrases)
    export_dataset(run, paraphrases, overwrite=True)
    (seed,) = read_rows(paraphrases / "snli_paraphrases/seeds.parquet")
    assert seed["seed_id"] == "snli:4"
    assert check_dataset(paraphrases) == []


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (OTHER_MODEL, "some/other-model"),
        (NLI_MODEL | {"revision": "sha256:9"}, "some-nli-model sha256:9"),
    ],
)
def test_another_model_is_refused(
    paraphrases: Path, tmp_path: Path, other: dict[str, Any], name: str
) -> None:
    before = contents(paraphrases)
    run = write_paraphrase_run(tmp_path / "other", nli_model=other)
    message = (
        r"merge-nli/snli_paraphrases: expected none or the same data, found "
        r"data made otherwise: nli_model: .*some-nli-model sha256:0123456789ab there, .*"
        rf"{name} .*now. Name another --out, or replace them with --overwrite"
    )
    with pytest.raises(FileExistsError, match=message):
        export_dataset(run, paraphrases)
    assert contents(paraphrases) == before
    assert export_dataset(run, paraphrases, overwrite=True) == ["snli_paraphrases"]
    made = json.loads((paraphrases / "snli_paraphrases/provenance.json").read_text())
    assert made["nli_model"]["revision"] == other["revision"]
    assert check_dataset(paraphrases) == []


def test_a_prompt_is_kept_to_the_letter(tmp_path: Path) -> None:
    prompt = "Use ./simple words or /rephrase: {hypothesis}"
    config = {"prompt": prompt, "data": "./here/dev.jsonl"}
    export_dataset(
        write_paraphrase_run(tmp_path / "run", prompt=prompt, config=config), tmp_path / "out"
    )
    made = json.loads((tmp_path / "out/snli_paraphrases/provenance.json").read_text())
    assert made["prompt"] == made["config"]["prompt"] == prompt
    assert made["config"]["data"] == "dev.jsonl"


METRIC = 'evaluate.load("seed_variant_accuracy")'


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Evaluate's module cache, in which the metric is registered."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "modules"


def test_register(dataset: Path, tmp_path: Path, modules: Path) -> None:
    """Metric and dataset get entries in the given cache, and lines of code to load them."""
    command = ("register", dataset, "--cache-dir", tmp_path / "cache")
    result = run(*command)
    lines = [METRIC, *(f'load_dataset("merge-nli", "{name}")' for name in ("snli", "snli_nouns"))]
    assert result.stdout.splitlines()[:3] == lines
    names = ["snli", "snli_adjectives", "snli_nouns", "snli_verbs"]
    assert sorted(p.name for p in (tmp_path / "cache/merge-nli").iterdir() if p.is_dir()) == names
    assert len(list(modules.rglob("seed_variant_accuracy.py"))) == 1
    made = json.loads(run(*command, "--format", "json").stdout)
    assert (made["metric"], made["folder"]) == ("seed_variant_accuracy", str(dataset))
    assert sorted(made["registered"]) == names


def test_register_without_a_folder(
    dataset: Path, tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("register", "--cache-dir", tmp_path / "cache")
    monkeypatch.chdir(dataset.parent)
    assert 'load_dataset("merge-nli", "snli")' in run(*command).stdout
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = run(*command)
    assert result.stdout == METRIC + "\n"
    assert result.stderr == "No folder merge-nli here: no dataset registered.\n"
    made = json.loads(run(*command, "--format", "json").stdout)
    assert made == {
        "metric": "seed_variant_accuracy",
        "folder": None,
        "name": None,
        "registered": [],
    }


def test_register_with_a_bad_folder(dataset: Path, tmp_path: Path, modules: Path) -> None:
    (dataset / "README.md").unlink()
    cache = tmp_path / "cache"
    bad = ("register", dataset, "--cache-dir", cache)
    done = run(*bad, code=1)
    assert done.stdout == 'evaluate.load("seed_variant_accuracy")\n'
    assert re.search(r"not registered: \d+ problem\(s\)", done.stderr)
    assert "README.md: expected a dataset card" in done.stderr
    assert json.loads(run(*bad, "--format", "json", code=1).stdout)["registered"] == []
    assert "name" in refused(*bad, "--name", "a/b")
    assert not cache.exists()
    assert len(list(modules.rglob("seed_variant_accuracy.py"))) == 1
    run("register", tmp_path / "nowhere", code=2)


def test_draws_are_repeatable(dataset: Path) -> None:
    drawn = [
        [(p["seed_id"], [row["variant_id"] for row in p["variants"]]) for p in problems]
        for problems in (
            choose_problems(dataset, ["snli"], n=1, variants=1, rng_seed=seed)
            for seed in (*range(30), 0)
        )
    ]
    assert drawn[0] == drawn[-1]
    seeds = {seed_id for (first,) in drawn for seed_id in first[:1]}
    assert seeds == {"snli:1", "snli:2", "snli:3"}


def test_configurations_by_default(dataset: Path) -> None:
    assert {problem["config"] for problem in choose_problems(dataset)} == {"snli"}
    for problem in choose_problems(dataset, ["snli_verbs"], variants=None):
        assert {row["word_class"] for row in problem["variants"]} == {"verb"}
        assert {word_class for word_class, _ in problem["counts"]} == {"verb"}
