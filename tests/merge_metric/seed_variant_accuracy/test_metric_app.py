import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from helpers.browser import chromium, console_errors, outside, requests
from helpers.dataset_files import write_plain
from helpers.processes import PATIENCE, running
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from merge_metric.register import SPACE
from merge_metric.seed_variant_accuracy.inputs import split_predictions
from merge_metric.seed_variant_accuracy.scoring import score

CURVE = "#sva-curve svg"
COLUMNS = ("variant_id", "seed_id", "label", "prediction")
SECONDS = 30
"""Longest wait for a page to show something."""

ENTAILMENT, NEUTRAL, CONTRADICTION = "entailment", "neutral", "contradiction"

EXAMPLE_FIGURES = {
    "seed_accuracy": "66.7 %",  # seeds 1 and 2 of 3
    "variant_accuracy": "75.0 %",  # 4 + 3 + 2 of 12
    "seed_variant_accuracy": "33.3 %",  # seed 1; the others have 3/4 and 2/4
    "qt_gap": "33.3 points",
    "matching_threshold": "51 %",  # from 51 to 75, SV is two of three seeds, as is S
    "holding_threshold": "75 %",
    "relaxed_fooling_rate": "50.0 %",  # seed 2 of seeds 1 and 2
    "strict_fooling_rate": "50.0 %",  # seed 2 is neutral, for which any change counts
    "sv_curve_area": "75.0 %",
    "core_index": "56.2 %",  # SV is 1 five times of ten, 2/3 twice, 1/3 thrice: M 11/15
    "contrast_consistency": "33.3 %",  # seed 1
    "agreement": "75.0 %",  # 4/4, 3/4, 2/4
    "agreement_gated_accuracy": "100.0 %",  # for seed 1
    "stable_but_wrong": "0.0 %",
}
"""The page's initial table, by hand."""


@pytest.fixture(scope="module")
def app() -> Any:
    """The page's module; only these few tests import Gradio, which takes seconds."""
    return import_module("merge_metric.seed_variant_accuracy.app")


def one_hot(label: str) -> list[float]:
    return [float(label == name) for name in (ENTAILMENT, NEUTRAL, CONTRADICTION)]


def file_rows() -> list[dict[str, Any]]:
    """Two seeds, both right, with 2 of 3 and 1 of 2 variants right, all with probability 1."""
    rows = [
        ("a", "a", ENTAILMENT, ENTAILMENT), ("a:1", "a", ENTAILMENT, ENTAILMENT),
        ("a:2", "a", ENTAILMENT, NEUTRAL), ("a:3", "a", ENTAILMENT, ENTAILMENT),
        ("b:1", "b", CONTRADICTION, ENTAILMENT), ("b:2", "b", CONTRADICTION, CONTRADICTION),
        ("b", "b", CONTRADICTION, CONTRADICTION),
    ]  # fmt: skip
    return [dict(zip(COLUMNS, row, strict=True), probabilities=one_hot(row[-1])) for row in rows]


def scored(columns: dict[str, Any], **options: Any) -> dict[str, Any]:
    return score(**split_predictions(**columns), **{"n_bootstrap": 0, **options})


def example(app: Any, **options: Any) -> dict[str, Any]:
    return scored(app.read_table(app.EXAMPLE), **options)


def values(app: Any, result: dict[str, Any]) -> list[str]:
    return [row[1] for row in cells(app.figures_table(result, 90))]


def cells(table: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_table_becomes_columns(app: Any) -> None:
    rows = [[" s ", "s", "neutral", " neutral"], ["", None, " ", ""], [7, "s", *["neutral"] * 2]]
    columns = [["s", "7"], ["s", "s"], ["neutral", "neutral"], ["neutral", "neutral"]]
    assert list(app.read_table(rows).values()) == columns
    with pytest.raises(ValueError, match="expected at least one variant"):
        scored(app.read_table([[""] * 4]))
    for bad in (["b"], ["", "", "neutral", "neutral"]):
        with pytest.raises(ValueError, match=r"filled row 2: expected .*fill in the ids"):
            app.read_table([rows[0], bad])


@pytest.mark.parametrize("name", ["predictions.jsonl", "predictions.parquet"])
def test_file_becomes_columns(app: Any, name: str, tmp_path: Path) -> None:
    rows, path = [{**row, "word_class": "noun"} for row in file_rows()], tmp_path / name
    columns = app.read_file(write_plain(path, rows))
    assert columns == {name: [row[name] for row in rows] for name in (*COLUMNS, "probabilities")}
    for other in ({"probabilities": None}, {}):
        without = [{name: row[name] for name in COLUMNS} | other for row in rows]
        assert list(app.read_file(write_plain(path, without))) == list(COLUMNS)


ROW = '{"variant_id": "a", "seed_id": "a", "label": 0, "prediction": 0'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", r"a\.csv: expected a \.parquet or \.jsonl file with .*Empty JSON file"),
        ("a.jsonl", b"{}", 'Field "variant_id" does not exist'),
        ("a.jsonl", f"{ROW}}}\n{ROW}".encode(), "row 1"),
        ("a.jsonl", b"[" * 100_000, "JSON parse error"),
        ("a.jsonl", b"\xff\xfe\x00", "JSON parse error"),
        ("a.parquet", b"PAR1 but not really", r"a\.parquet: expected .* not found in footer"),
    ],
)  # fmt: skip
def test_errors_of_files(app: Any, name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        app.read_file(tmp_path / name)


def test_figures_of_the_example(app: Any) -> None:
    rows = cells(app.figures_table(example(app), 90))
    assert values(app, example(app)) == list(EXAMPLE_FIGURES.values())
    by_name = {name: (interval, meaning) for name, _, interval, meaning in rows}
    assert "at least 90 % of their variants" in by_name["SV accuracy at CT 90"][1]
    assert "51–75 % come equally close." in by_name["Matching threshold MC"][1]
    assert {interval for interval, _ in by_name.values()} == {""}
    rows = cells(app.figures_table(example(app, n_bootstrap=10), 90))
    assert all(" – " in row[2] for row in rows[:2])
    row = cells(app.labels_table(example(app), 90))[2]
    assert row == [CONTRADICTION, "1", "4", "0.0 %", "50.0 %", "0.0 %"]


def test_curve_is_a_step_function_beside_s(app: Any) -> None:
    """S is a horizontal line at 2/3; three of four variants right count up to 75."""
    points = app.curve_points(example(app))
    drawn = {name: part[[*app.AXES]].values.tolist() for name, part in points.groupby("line")}
    assert drawn["S"] == [[0, 66.67], [100, 66.67]]
    assert drawn["SV"][:2] == [[0, 100], [1, 100]]
    assert drawn["SV"][148:152] == [[74, 66.67], [75, 66.67], [75, 33.33], [76, 33.33]]
    assert set(drawn) == {"S", "SV"}
    assert set(app.curve_points(example(app, n_bootstrap=10))["line"]) == set(app.COLOURS)


def test_errors_are_shown_as_text(app: Any, tmp_path: Path) -> None:
    message, results, *shown = app.answer([["<i>"] * 4], None, 90, 0)
    assert message.startswith("<strong>Nothing was computed.</strong>")
    assert "&lt;i&gt;" in message
    assert "<i>" not in message
    assert results.visible is False
    assert not any(shown)
    message = app.answer([], str(write_plain(tmp_path / "<b>.jsonl", file_rows())), 90, 10)[0]
    assert "&lt;b&gt;.jsonl: seeds 2, variants 5. Intervals:" in message
    assert message.endswith("they are coarse.")
    assert "threshold: expected" in app.answer(app.EXAMPLE, None, 0, 0)[0]
    rows = [*file_rows()[:-1], file_rows()[-1] | {"probabilities": None}]
    assert "<strong>" in app.answer([], str(write_plain(tmp_path / "a.jsonl", rows)), 90, 10)[0]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the app as a Space does: in a folder of another name, as a separate script."""
    home = tmp_path_factory.mktemp("space")
    folder = home / "app"
    shutil.copytree(SPACE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("GRADIO_")}
    environment = {
        **inherited, "GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SERVER_NAME": "127.0.0.1",
        "GRADIO_TEMP_DIR": str(home / "uploads"), "HF_HOME": str(home / "huggingface"),
        "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    log = home / "stderr"
    command = [sys.executable, "app.py"]
    pipes = {"stdout": subprocess.PIPE, "text": True, "cwd": folder, "env": environment}
    with log.open("wb") as errors, running(command, stderr=errors, **pipes) as server:
        try:
            yield _address(server, log)
        finally:
            server.terminate()
            server.wait(PATIENCE)
    assert "Traceback" not in log.read_text(encoding="utf-8"), log.read_text(encoding="utf-8")


def _address(server: subprocess.Popen[str], log: Path) -> str:
    """Return the address that the server prints; kill it if it prints none in time."""
    assert server.stdout is not None
    timer = threading.Timer(SECONDS, server.kill)
    timer.start()
    try:
        for line in server.stdout:
            if result := re.search(r"http://127\.0\.0\.1:\d+", line):
                return result[0]
    finally:
        timer.cancel()
    raise RuntimeError(f"the app did not start: {log.read_text(encoding='utf-8')}")


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Chrome]:
    with chromium(downloads) as driver:
        yield driver


class Page:
    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver = driver
        driver.get(address)
        self.wait(lambda: self.find("#sva-figures table"))

    def wait(self, condition: Callable[[], Any]) -> Any:
        return WebDriverWait(self.driver, SECONDS, poll_frequency=0.05).until(
            lambda driver: condition()
        )

    def find(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        (element,) = self.find(selector)
        return element

    def figures(self) -> list[str]:
        script = """return [...document.querySelectorAll("#sva-figures tbody tr")].map(
            row => row.cells[1].innerText)"""
        return list(self.driver.execute_script(script))

    def text(self, part: str) -> str:
        script = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return str(self.driver.execute_script(script, f"#sva-{part}")).strip()

    def edit(self, row: int, column: int, text: str) -> None:
        """Type into a cell, numbered from 0, and leave it by Enter."""
        cell = f"[data-testid=cell-{row}-{column}]"
        ActionChains(self.driver).double_click(self.one(cell)).perform()
        field = self.wait(lambda: self.find(f"{cell} textarea"))[0]
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text, Keys.ENTER)
        self.wait(lambda: not self.find(f"{cell} textarea") and text in self.one(cell).text)

    def fill(self, part: str, number: int) -> None:
        field = self.one(f"#sva-{part} input[type=number]")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(str(number), Keys.TAB)

    def upload(self, path: Path) -> None:
        self.one("#sva-upload input[type=file]").send_keys(str(path))


@pytest.fixture
def page(browser: Chrome, address: str) -> Iterator[Page]:
    """A fresh page, which must end without errors and without requests to other machines."""
    yield Page(browser, address)
    assert console_errors(browser) == []
    asked = requests(browser)
    assert any(url.startswith(address) for url in asked)
    assert outside(asked) == []


@pytest.mark.browser
def test_page_starts_with_the_example(app: Any, page: Page) -> None:
    assert page.figures() == list(EXAMPLE_FIGURES.values())
    assert page.text("message").startswith("From the table: seeds 3, variants 12.")
    assert "Seed accuracy S" in page.text("figures")
    drawing = page.wait(lambda: page.find(CURVE))[0]
    assert drawing.is_displayed()
    assert drawing.size["width"] > 200
    assert drawing.size["height"] > 50
    legend, block = page.one("#sva-curve .role-legend").rect, page.one("#sva-curve").rect
    assert legend["y"] + legend["height"] < block["y"] + block["height"]
    assert page.text("labels").count(CONTRADICTION) == 1
    signature = page.one("#sva-signature textarea").get_attribute("value")
    assert signature == example(app, n_bootstrap=1000)["signature"]
    assert page.one("#sva-signature button[aria-label=Copy]").is_displayed()


@pytest.mark.browser
def test_changing_the_table_and_settings(app: Any, page: Page) -> None:
    page.edit(4, 3, CONTRADICTION)
    edited = [list(row) for row in app.EXAMPLE]
    edited[4][3] = CONTRADICTION
    page.wait(lambda: page.figures() == values(app, scored(app.read_table(edited))))
    page.edit(4, 3, "<img src=nowhere> __as__ `typed`")
    page.wait(lambda: "got '<img src=nowhere> __as__ `typed`'" in page.text("message"))
    assert page.text("message").startswith("Nothing was computed.")
    assert not page.find("#sva-message img")
    assert page.figures() == []
    page.edit(4, 3, ENTAILMENT)
    page.wait(lambda: page.figures() == list(EXAMPLE_FIGURES.values()))
    page.fill("threshold", 50)
    page.wait(lambda: "SV accuracy at CT 50" in page.text("figures"))
    changed = {"seed_variant_accuracy": "100.0 %", "agreement_gated_accuracy": "75.0 %"}
    assert page.figures() == list({**EXAMPLE_FIGURES, **changed}.values())
    page.fill("replicates", 0)
    page.wait(lambda: "Intervals" not in page.text("message"))
    page.wait(lambda: len(page.find(f"{CURVE} .mark-line path")) == 2)  # no interval


@pytest.mark.browser
def test_uploading_a_file(app: Any, page: Page, tmp_path: Path) -> None:
    file = write_plain(tmp_path / "predictions.jsonl", file_rows())
    page.upload(file)
    page.wait(lambda: "predictions.jsonl: seeds 2, variants 5" in page.text("message"))
    assert page.figures() == values(app, scored(app.read_file(file)))
    assert "Jensen–Shannon" in page.text("figures")
    labels = ("'Remove this file'", "Clear")
    page.one(", ".join(f"#sva-upload button[aria-label={name}]" for name in labels)).click()
    page.wait(lambda: "From the table" in page.text("message"))
    rows = [row for row in file_rows() if row["variant_id"] != "a"]
    page.upload(write_plain(tmp_path / "lacking.parquet", rows))
    page.wait(lambda: "variant_id is seed_id" in page.text("message"))
    assert page.figures() == []


@pytest.mark.browser
def test_downloading_the_figures(app: Any, page: Page, downloads: Path) -> None:
    (heading,) = [e for e in page.find("button") if e.text.startswith("All figures as JSON")]
    heading.click()
    page.wait(lambda: page.find("#sva-json button[aria-label=Download]"))[0].click()
    saved = downloads / "file.json"
    page.wait(saved.is_file)
    assert json.loads(saved.read_text(encoding="utf-8")) == example(app, n_bootstrap=1000)
