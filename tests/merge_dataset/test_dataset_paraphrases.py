import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.dataset_files import files_of as contents
from helpers.dataset_files import read_rows
from helpers.paraphrase_run import NLI_MODEL, PROBLEMS, write_paraphrase_run

from merge_dataset import card, layout
from merge_dataset.checks import check_dataset
from merge_dataset.export import export_dataset

MakeRun = Callable[..., Path]

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
