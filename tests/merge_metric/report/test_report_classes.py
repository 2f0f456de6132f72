"""Replaced words and paraphrased hypotheses in one report."""

from pathlib import Path
from typing import Any

import pytest
from helpers.browser import console_errors, outside, requests
from helpers.dataset_files import write_predictions
from helpers.report_data import EVIL, paraphrased, problems
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from merge_metric.frame.answer_table import PredictionsSource
from merge_metric.frame.joined import read_frames
from merge_metric.frame.predictions import read_predictions
from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.seeds import SourceSeeds
from merge_metric.report.write import render_html
from merge_metric.seed_variant_accuracy.scoring import score

FIGURES = ("seed_accuracy", "variant_accuracy", "seed_variant_accuracy", "matching_threshold",
           "relaxed_fooling_rate", "strict_fooling_rate")  # fmt: skip


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, Path, dict[str, str]]:
    """24 seeds of snli, 16 of them also with paraphrases, and 6 of mnli-m; two models."""
    place = tmp_path_factory.mktemp("classes")
    snli, mnli = paraphrased(problems(24)), problems(6, "mnli-m")
    folder = place / "merge-nli"
    for made in (snli, mnli):
        made.write(folder)
    files = {}
    for name, ability in {"weak": 0.5, "strong": 0.8}.items():
        rows = [row for made in (snli, mnli) for row in made.predictions(ability, name)]
        files[name] = str(write_predictions(place / f"{name}.parquet", rows, {"name": name}))
    return gather_evidence(list(files.values()), folder, n_bootstrap=60), folder, files


def test_rows_are_those_of_the_metric(mixed: Any) -> None:
    evidence, *_ = mixed
    of = {(row["model"], row["variants"]): row for row in evidence.classes[0].rows}
    assert list(of) == [
        (name, variants)
        for name in ("weak", "strong")
        for variants in ("all words", "noun", "verb", "paraphrase")
    ]
    words, paraphrases = (evidence.configurations[i].results for i in (1, 2))
    for number, name in enumerate(("weak", "strong")):
        expected = words[number]["by_group"]["word_class"] | {"all words": words[number]}
        expected["paraphrase"] = paraphrases[number]
        for variants, result in expected.items():
            for key in FIGURES:
                assert of[name, variants][key] == result[key]
                assert of[name, variants][f"{key}_ci"] == result[f"{key}_ci"]
    # Each variant is in two of three subsamples, where a seed with 5.5 nouns has 11/3.
    n_nouns = sum(min(4 + i % 4, 7) for i in range(24))
    assert of["weak", "noun"]["variants_per_seed"] == pytest.approx(2 * n_nouns / 3 / 24)
    assert of["weak", "verb"]["variants_per_seed"] == pytest.approx(2 * 4 / 3)
    n_paraphrases = sum(1 + i % 4 for i in range(24) if i % 3 < 2)
    assert of["weak", "paraphrase"]["variants_per_seed"] == pytest.approx(n_paraphrases / 16)


def test_shared_seeds_are_scored_as_if_alone(mixed: Any) -> None:
    """Compare with `score` on the rows of these seeds, and an explicit bootstrap."""
    evidence, folder, files = mixed
    (contrast,) = evidence.contrasts
    assert [(row["model"], row["config"]) for row in contrast.rows] == [
        (model, config) for model in files for config in ("snli", "snli_paraphrases")
    ]
    for row in contrast.rows:
        source = PredictionsSource("", Path(files[row["model"]]))
        both = list(read_frames([source], folder, ("snli", "snli_paraphrases")))
        shared = set.intersection(*(set(run.counts.seed_ids) for run in both))
        rows = next(run.rows for run in both if run.config == row["config"])
        some: dict[str, list[Any]] = {}
        for number in range(len(rows.seed)):
            seed = rows.seed[number]
            if rows.seed_ids[seed] not in shared:
                continue
            one = {
                "predictions": rows.prediction[number], "references": rows.gold[seed],
                "seed_ids": rows.seed_ids[seed], "seed_predictions": rows.own[seed],
                "subsamples": rows.draw_subsample[rows.draw_row == number].tolist(),
            }  # fmt: skip
            for name, value in one.items():
                some.setdefault(name, []).append(value)
        expected = score(**some, n_bootstrap=60)
        assert row["n_seeds"] == expected["n_seeds"] == 16
        for key in FIGURES:
            assert row[key] == expected[key]
            assert row[f"{key}_ci"] == expected[f"{key}_ci"]
    for words, paraphrases in zip(contrast.rows[::2], contrast.rows[1::2], strict=True):
        gap = paraphrases["seed_variant_accuracy"] - words["seed_variant_accuracy"]
        assert paraphrases["difference"] == pytest.approx(gap)
        low, high = paraphrases["difference_ci"]
        assert low <= gap <= high
        assert words["seed_accuracy"] == paraphrases["seed_accuracy"]  # the same seeds


def test_configurations_of_one_class(mixed: Any) -> None:
    _, folder, files = mixed
    configs = ["snli_paraphrases", "snli_nouns", "snli_verbs"]
    evidence = gather_evidence([files["weak"]], folder, configs, n_bootstrap=0)
    assert [row["variants"] for row in evidence.classes[0].rows] == ["noun", "verb", "paraphrase"]
    names = ["classes-snli", "shared-seeds-snli-nouns", "shared-seeds-snli-verbs"]
    assert [table.name for table in evidence.classes] == names
    assert [table.rows[0]["n_seeds"] for table in evidence.contrasts] == [16, 8]


def test_a_model_without_paraphrases(mixed: Any, tmp_path: Path) -> None:
    evidence, folder, files = mixed
    predictions = read_predictions(Path(files[evidence.names[0]]))
    rows = [row for row in predictions.to_pylist() if "/paraphrase/" not in row["variant_id"]]
    file = str(write_predictions(tmp_path / "words.parquet", rows))
    classes, contrast = gather_evidence([files["strong"], file], folder, n_bootstrap=0).classes
    mine = [row["variants"] for row in classes.rows if row["model"] == "words"]
    assert mine == ["all words", "noun", "verb"]
    assert {row["model"] for row in contrast.rows} == {"strong"}


@pytest.mark.browser
def test_in_a_browser(browser: Chrome, mixed: Any, tmp_path: Path) -> None:
    evidence, *_ = mixed
    path = tmp_path / "report.html"
    path.write_text(render_html(evidence), encoding="utf-8")
    console_errors(browser), requests(browser)
    browser.get(path.as_uri())

    def find(css: str) -> list[Any]:
        return browser.find_elements(By.CSS_SELECTOR, css)

    Select(find("#source")[0]).select_by_visible_text("snli")
    Select(find("#class")[0]).select_by_visible_text("paraphrase")
    assert find("#found")[0].text == "1–16 of 16 seeds"
    find("#search")[0].send_keys("p001")
    browser.implicitly_wait(5)
    assert len(find("#seed-table .seed:only-child")) == 1
    find(".opener")[0].click()
    rows = find(".variants tbody tr")
    source: SourceSeeds = evidence.sources[1]
    texts = [
        row["hypothesis"]
        for row in source.read(["hypothesis", "seed_id", "word_class"]).to_pylist()
        if row["seed_id"] == "snli:p001" and row["word_class"] == "paraphrase"
    ]
    marked = [row.find_element(By.CSS_SELECTOR, "mark") for row in rows]
    assert sorted(mark.get_property("textContent") for mark in marked) == sorted(texts)
    assert any(EVIL in text for text in texts)
    hypotheses = [row.find_element(By.CSS_SELECTOR, ".h").text for row in rows]
    assert hypotheses == [mark.text for mark in marked]
    assert find(".variants .p mark") == []
    replaced = [row.find_element(By.CSS_SELECTOR, ".replaced").text for row in rows]
    assert replaced == ["paraphrase"] * 2
    assert browser.title == "2 models on mnli-m, snli and snli_paraphrases – MERGE report"
    assert find("img") == []
    assert console_errors(browser) == []
    assert outside(requests(browser)) == []
