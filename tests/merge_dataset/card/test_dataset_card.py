import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from merge_dataset import card
from merge_dataset.export import export_dataset
from merge_dataset.files import read_record, write_record
from merge_dataset.hub.benchmark import benchmark
from merge_dataset.schema import arrow_schema, features


@pytest.fixture
def text(dataset: Path) -> str:
    return (dataset / "README.md").read_text()


def test_statistics_by_hand(text: str) -> None:
    """The figures of the small run are as counted by hand.

    Nouns: 6 variants, in 2+2+1+2+2+2 = 11 draws over 3 subsamples. Verbs: 3 variants, 6
    draws. Adjectives: 2 variants, 4 draws. Three seeds, one of each label.
    """
    assert (
        text[text.index("<!-- statistics -->") : text.index("<!-- /statistics -->")]
        == """\
<!-- statistics -->
| configuration | seeds | entailment (%) | neutral (%) | contradiction (%) | unique variants \
| unique variants per seed | variants per subsample |
| --- | --- | --- | --- | --- | --- | --- | --- |
| `snli` | 3 | 33.3 | 33.3 | 33.3 | 11 | 3.7 | 7.0 |
| `snli_nouns` | 2 | 50.0 | 50.0 | 0.0 | 6 | 3.0 | 3.7 |
| `snli_verbs` | 2 | 50.0 | 0.0 | 50.0 | 3 | 1.5 | 2.0 |
| `snli_adjectives` | 1 | 0.0 | 100.0 | 0.0 | 2 | 2.0 | 1.3 |
"""
    )


def rendered(dataset: Path, **settings: Any) -> str:
    path = dataset / "snli" / "provenance.json"
    made = json.loads(path.read_text())
    path.write_text(json.dumps({**made, "config": {**made["config"], **settings}}))
    return " ".join(card.render(dataset).split())


_PAIRS = "the i-th of `original` became the i-th of `replacement`"
_RELATIVES = "Morphological relatives of a replaced word are left alone"


@pytest.mark.parametrize(
    ("settings", "words", "pairs", "relatives"),
    [
        ({}, "", False, True),
        ({"families": "reject"}, "Words of which another form stands in", False, False),
        ({"families": "inflect"}, "Other forms of a replaced word are replaced too", True, False),
        ({"repair_articles": True}, 'Where "a" or "an" stands before', True, True),
    ],
)
def test_options_are_told(
    dataset: Path, settings: dict[str, Any], words: str, pairs: bool, relatives: bool
) -> None:
    text = rendered(dataset, **settings)
    assert words in text
    assert (_PAIRS in text, _RELATIVES in text) == (pairs, relatives)
    assert text.count("English only.") == 1


def test_dataset_info_is_read_by_datasets(dataset: Path) -> None:
    for entry in card.front_matter(dataset)["dataset_info"]:
        info = datasets.DatasetInfo._from_yaml_dict(entry)
        assert info.features == features(arrow_schema())
        assert info.features.arrow_schema.remove_metadata() == arrow_schema()
        n_variants = {"snli": 11, "snli_nouns": 6, "snli_verbs": 3, "snli_adjectives": 2}
        assert info.splits["variants"].num_examples == n_variants[entry["config_name"]]
        assert 0 < info.splits["seeds"].num_bytes < info.dataset_size
        assert info.download_size == sum(
            (dataset / path).stat().st_size
            for config in card.front_matter(dataset)["configs"]
            if config["config_name"] == entry["config_name"]
            for split in config["data_files"]
            for path in ([split["path"]] if isinstance(split["path"], str) else split["path"])
        )


def test_settings_and_the_funnel_are_explained(dataset: Path) -> None:
    path = dataset / "snli/provenance.json"
    made = read_record(path)
    funnel = {"in_problem": "is a word of the problem already", "rare_word": "is no column here"}
    made["explained"] = {"settings": {"rng_seed": "Seed of the draws."}, "funnel": funnel}
    write_record(path, made)
    text = card.render(dataset)
    assert "| rng_seed | 20251028 | Seed of the draws. |\n" in text
    assert "| `in_problem` | is a word of the problem already |\n" in text
    assert "rare_word" not in text


@pytest.mark.parametrize(
    ("source", "licence", "origin", "cites"),
    [
        ("snli", ["cc-by-sa-4.0"], "extended|snli", ["Bowman, Samuel R."]),
        ("mnli-m", ["cc-by-3.0", "cc-by-sa-3.0", "other"], "extended|multi_nli",
         ["Williams, Adina and Nangia"]),
        ("my-own", ["unknown"], "extended|other-my-own", []),
    ],
)  # fmt: skip
def test_each_source_has_its_own_licence_and_citation(
    make_run: Callable[..., Path],
    tmp_path: Path,
    source: str,
    licence: list[str],
    origin: str,
    cites: list[str],
) -> None:
    export_dataset(make_run(source=source), tmp_path / "merge-nli")
    text = (tmp_path / "merge-nli/README.md").read_text()
    header = card.read_front_matter(text)
    assert (header["license"], header["source_datasets"]) == (licence, [origin])
    everyone = ("Bowman, Samuel R.", "Williams, Adina and Nangia", "Nie, Yixin", "Arakelyan")
    assert [name for name in everyone if name in text.split("## Citation")[1]] == cites
    assert "Zgreab" in text


def test_own_data_have_title_source_and_masked_lms_first(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    run, folder = make_run(source="my-own"), tmp_path / "nurses"
    made = read_record(run / "manifest.json")
    write_record(run / "manifest.json", made | {"config": made["config"] | {"title": "Zoé’s"}})
    export_dataset(run, folder)
    text = (folder / "README.md").read_text()
    assert card.read_front_matter(text)["pretty_name"] == "Zoé’s: MERGE variants"
    first = text.partition("\n---\n\n")[2].splitlines()
    assert first[0] == "# Zoé’s: MERGE variants"
    lms = "masked LMs: a/bert, b/roberta."
    assert (
        first[2] == f"- `my-own`: 11 variants of 3 of 980 problems (Zoé’s: file test.jsonl); {lms}"
    )
    assert 'load_dataset("nurses", "my-own_nouns")' in text
    classes = "`my-own_nouns`, `my-own_verbs`, `my-own_adjectives`"
    assert f"- `my-own`: all word classes; of one class each: {classes}.\n" in text
    assert benchmark(folder).startswith(b'name: "Zo\\xE9\\u2019s: MERGE variants"\n')


def test_yaml_beyond_ascii_is_read_in_any_locale(dataset: Path) -> None:
    path = dataset / "README.md"
    changed = path.read_text(encoding="utf-8").replace("---\n", "---\nowner: Zoé\n", 1)
    path.write_text(changed, encoding="utf-8")
    program = "import sys, merge_dataset; print(merge_dataset.check_dataset(sys.argv[1]))"
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", program, str(dataset)]
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=300)
    assert done.stdout.strip() == b"[]", done.stdout + done.stderr
