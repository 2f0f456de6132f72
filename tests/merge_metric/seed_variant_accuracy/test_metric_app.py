"""The page of the metric's Space: what it reads, what it shows, and the whole in a browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.browser import chromium, console_errors, outside, requests
from helpers.processes import PATIENCE, running
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from merge_metric.seed_variant_accuracy import app_inputs
from merge_metric.seed_variant_accuracy.app_inputs import EXAMPLE, read_file, read_table, whole
from merge_metric.seed_variant_accuracy.app_view import (
    curve_points,
    curve_text,
    figures_table,
    summary,
)
from merge_metric.seed_variant_accuracy.figures import CATALOGUE
from merge_metric.seed_variant_accuracy.scoring import score

FOLDER = Path(app_inputs.__file__).parent
CURVE = "#sva-curve svg"
SECONDS = 30
"""To wait at most for a page to show something."""

ENTAILMENT, NEUTRAL, CONTRADICTION = "entailment", "neutral", "contradiction"

EXAMPLE_FIGURES = {
    "seed_accuracy": "66.7 %",  # seeds 1 and 2 of 3
    "seed_variant_accuracy": "33.3 %",  # seed 1; the others have 3/4 and 2/4
    "matching_threshold": "51 %",  # from 51 to 75 two of three seeds hold, as S says
    "holding_threshold": "75 %",
    "qt_gap": "33.3 points",
    "variant_accuracy": "75.0 %",  # 4 + 3 + 2 of 12
    "relaxed_fooling_rate": "50.0 %",  # of seeds 1 and 2, seed 2
    "strict_fooling_rate": "50.0 %",  # seed 2 is neutral, where any change counts
    "sv_curve_area": "75.0 %",
    "core_index": "56.2 %",  # SV is 1 five times of ten, 2/3 twice, 1/3 thrice: M 11/15
    "contrast_consistency": "33.3 %",  # seed 1
    "agreement": "75.0 %",  # 4/4, 3/4, 2/4
    "agreement_gated_accuracy": "100.0 %",  # of seed 1
    "stable_but_wrong": "0.0 %",
}
"""The table that the page starts with, by hand."""

EDITED_FIGURES = {
    "seed_accuracy": "66.7 %",
    "seed_variant_accuracy": "0.0 %",  # 3/4, 3/4, 2/4
    "matching_threshold": "51 %",
    "holding_threshold": "75 %",
    "qt_gap": "66.7 points",
    "variant_accuracy": "66.7 %",  # 8 of 12
    "relaxed_fooling_rate": "100.0 %",
    "strict_fooling_rate": "100.0 %",  # entailment → contradiction in seed 1
    "sv_curve_area": "66.7 %",
    "core_index": "43.3 %",  # SV is 1 five times of ten, 2/3 twice, else 0: M 19/30
    "contrast_consistency": "0.0 %",
    "agreement": "66.7 %",  # 3/4, 3/4, 2/4
    "agreement_gated_accuracy": "–",
    "stable_but_wrong": "0.0 %",
}
"""That table with one variant of seed 1 predicted as contradiction."""


@pytest.fixture(scope="module")
def app() -> Any:
    """The page's module; only these few tests import Gradio, which takes seconds."""
    return import_module("merge_metric.seed_variant_accuracy.app")


def one_hot(label: str) -> list[float]:
    return [float(label == name) for name in (ENTAILMENT, NEUTRAL, CONTRADICTION)]


def file_rows() -> list[dict[str, Any]]:
    """Two seeds, both right, 2 of 3 and 1 of 2 of their variants right, all with certainty."""
    rows = [
        ("a", "a", ENTAILMENT, ENTAILMENT),
        ("a:1", "a", ENTAILMENT, ENTAILMENT),
        ("a:2", "a", ENTAILMENT, NEUTRAL),
        ("a:3", "a", ENTAILMENT, ENTAILMENT),
        ("b:1", "b", CONTRADICTION, ENTAILMENT),
        ("b:2", "b", CONTRADICTION, CONTRADICTION),
        ("b", "b", CONTRADICTION, CONTRADICTION),
    ]
    return [
        dict(zip(app_inputs.COLUMNS, row, strict=True), probabilities=one_hot(row[-1]))
        for row in rows
    ]


FILE_FIGURES = {
    "seed_accuracy": "100.0 %",
    "seed_variant_accuracy": "0.0 %",
    "matching_threshold": "1 %",  # up to 50 both seeds hold
    "holding_threshold": "50 %",
    "qt_gap": "100.0 points",
    "variant_accuracy": "60.0 %",  # 3 of 5
    "relaxed_fooling_rate": "100.0 %",
    "strict_fooling_rate": "50.0 %",  # only seed b has an opposite
    "sv_curve_area": "58.0 %",  # 50 and 66 whole percents
    "core_index": "33.0 %",  # SV is 1 five times of ten, 1/2 once, else 0: M 0.55
    "contrast_consistency": "0.0 %",
    "agreement": "58.3 %",  # 2/3 and 1/2
    "agreement_gated_accuracy": "–",
    "stable_but_wrong": "0.0 %",
}
"""Figures of `file_rows`, by hand."""


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


class Cells(HTMLParser):
    """The texts of table cells, row by row, of some HTML."""

    def __init__(self, markup: str) -> None:
        """Read the HTML."""
        super().__init__()
        self.rows: list[list[str]] = []
        self._inside = False
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._inside = True
        elif tag == "span":
            self.rows[-1][-1] += " | "

    def handle_endtag(self, tag: str) -> None:
        self._inside &= tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


def example(**options: Any) -> dict[str, Any]:
    return score(**read_table(EXAMPLE).arguments, **{"n_bootstrap": 0, **options})


# --- The table ---


def test_table_becomes_columns() -> None:
    """Labels by name in any case or by number; cells trimmed; rows without entries skipped."""
    source = read_table(
        [
            [" seed 1 ", "Entailment", "0", "2"],
            ["", None, " ", ""],
            ["7", " neutral", "CONTRADICTION", 1],
        ]
    )
    assert source.name == "the table"
    assert source.arguments == {
        "seed_ids": ["seed 1", "7"],
        "references": [ENTAILMENT, NEUTRAL],
        "seed_predictions": [ENTAILMENT, CONTRADICTION],
        "predictions": [CONTRADICTION, NEUTRAL],
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one variant, got an empty table: fill in a row"),
        ([["", "", "", ""]], "got an empty table"),
        (
            [["a", "0", "0", "0"], ["b", "", "0", "0"]],
            "row 2: expected a gold label, got an empty cell: fill it in, or empty the whole row",
        ),
        (
            [["", "", "", ""], ["a", "0", "yes", "0"]],
            "row 2, seed prediction: expected entailment, neutral, contradiction or 0, 1, 2; "
            "got 'yes'",
        ),
        ([["a", "0", "0", "3"]], "row 1, variant prediction: expected .* got '3'"),
        (
            [["a", "0", "0", "0", "0"]],
            "expected the columns seed, gold label, seed prediction, variant prediction, got 5",
        ),
    ],
)
def test_errors_of_the_table(rows: list[list[str]], message: str) -> None:
    """Each names the row as the page shows it, and what to do."""
    with pytest.raises(ValueError, match=message):
        read_table(rows)


# --- Files ---


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
@pytest.mark.parametrize("probabilities", [True, False])
def test_file_becomes_columns(write: Callable[..., Path], probabilities: bool, tmp_path: Path):
    """Both formats give the same arguments; other columns are left alone."""
    rows = [{**row, "word_class": "noun"} for row in file_rows()]
    if not probabilities:
        rows = [{k: v for k, v in row.items() if k != "probabilities"} for row in rows]
    suffix = {write_jsonl: ".jsonl", write_parquet: ".parquet"}[write]
    source = read_file(write(tmp_path / f"predictions{suffix}", rows))
    assert source.name == f"predictions{suffix}"
    arguments = {name: list(column) for name, column in source.arguments.items()}
    assert arguments["predictions"] == [ENTAILMENT, NEUTRAL, ENTAILMENT, ENTAILMENT, CONTRADICTION]
    assert arguments["references"] == [ENTAILMENT] * 3 + [CONTRADICTION] * 2
    assert arguments["seed_ids"] == ["a", "a", "a", "b", "b"]
    assert arguments["seed_predictions"] == [ENTAILMENT] * 3 + [CONTRADICTION] * 2
    assert ("probabilities" in arguments) == ("seed_probabilities" in arguments) == probabilities


def test_columns_of_nulls_are_no_probabilities(tmp_path: Path) -> None:
    """A file whose model gave none may still have the column."""
    rows = [{**row, "probabilities": None} for row in file_rows()]
    assert "probabilities" not in read_file(write_jsonl(tmp_path / "a.jsonl", rows)).arguments
    assert "probabilities" not in read_file(write_parquet(tmp_path / "a.parquet", rows)).arguments


ROW = '{"variant_id": "a", "seed_id": "a", "label": 0, "prediction": 0'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", r"expected a \.parquet or \.jsonl file, got 'a\.csv'"),
        ("a.jsonl", b"", "one row per seed and per variant, got an empty file"),
        ("a.jsonl", b"\n \n", "got an empty file"),
        ("a.jsonl", b"{}", "line 1: expected variant_id, .* got nothing: variant_id, "),
        (
            "a.jsonl",
            b'\n{"variant_id": 1, "seed_id": 1, "label": 0}',
            "line 2: .* got variant_id, seed_id, label: prediction missing",
        ),
        ("a.jsonl", b"[1]", r"line 1: expected a JSON object, got '\[1\]'"),
        ("a.jsonl", b"variant_id,seed_id", "line 1: expected a JSON object, got 'variant_id,seed"),
        ("a.jsonl", b"[" * 100_000, "line 1: expected a JSON object"),
        ("a.jsonl", b"\xff\xfe\x00", "expected text in UTF-8"),
        ("a.parquet", b"PAR1 but not really", "expected a Parquet file, got one that cannot be"),
        ("a.parquet", b"", "expected a Parquet file"),
        (
            "a.jsonl",
            f"{ROW}}}".encode(),
            "every seed to have variants, got a seed with no such rows: 'a'",
        ),
        (
            "a.jsonl",
            f'{ROW}, "probabilities": [1, 0, 0]}}\n{ROW}}}'.encode(),
            "expected probabilities in every row or in none, got 1 rows without",
        ),
    ],
)
def test_errors_of_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    """Each says where, what was expected and what came; never anything but ValueError."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_file(path)


def test_missing_column_of_parquet(tmp_path: Path) -> None:
    """Named together with what is there."""
    rows = [{k: v for k, v in row.items() if k != "label"} for row in file_rows()]
    with pytest.raises(ValueError, match=r"a\.parquet: expected .*: label missing"):
        read_file(write_parquet(tmp_path / "a.parquet", rows))


@pytest.mark.parametrize(
    ("write", "suffix"), [(write_jsonl, ".jsonl"), (write_parquet, ".parquet")]
)
def test_files_that_are_too_long(
    write: Callable[..., Path], suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused with the limit."""
    monkeypatch.setattr(app_inputs, "ROWS_AT_MOST", 6)
    with pytest.raises(ValueError, match="expected at most 6 rows, got 7 or more"):
        read_file(write(tmp_path / f"a{suffix}", file_rows()))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "an empty field"), (2.5, "2.5"), (-1, "-1"), (11, "11"), (float("inf"), "inf")],
)
def test_numbers_that_are_not_whole(value: float | None, shown: str) -> None:
    """Settings are judged here, as number fields accept anything."""
    with pytest.raises(
        ValueError, match=rf"Seed: expected a whole number from 0 to 10, got {shown}"
    ):
        whole("Seed", value, most=10)


# --- What is shown ---


def test_figures_of_the_example() -> None:
    """Names, values and, as there is no bootstrap, no intervals."""
    head, *rows = Cells(figures_table(example(), 90)).rows
    assert head == ["Figure", "Value", "Meaning"]
    assert [row[1] for row in rows] == list(EXAMPLE_FIGURES.values())
    by_name = {name: meaning for name, _, meaning in rows}
    assert "at least 90 % of their variants" in by_name["SV accuracy at CT 90"]
    assert "51–75 % come equally close (gap 0.0 points)." in by_name["Matching threshold MC"]
    assert by_name["Variant accuracy"] == CATALOGUE["variant_accuracy"].meaning


def test_summary_says_from_what() -> None:
    """Counts, and a warning about intervals over few seeds; names of files are only text."""
    assert "From the table: 3 seeds with 12 variants.</p>" in summary("the table", example())
    assert "they are coarse" in summary("the table", example(n_bootstrap=10))
    assert "<b>" not in summary("<b>.jsonl", example())


def drawn(result: dict[str, Any], threshold: int, line: str) -> list[tuple[float, float]]:
    """The points of a line of the plot, in its order."""
    x, y, name = curve_points(result, threshold).T.to_numpy()
    return [(a, b) for a, b, of in zip(x, y, name, strict=True) if of == line]


def test_curve_marks_s_and_mc_and_the_threshold() -> None:
    """S is a line across at 2/3, MC and the threshold stand upright below the curve."""
    assert drawn(example(), 60, "S") == [(0, 66.67), (100, 66.67)]
    assert drawn(example(), 60, "CT") == [(60, 0), (60, 66.67)]
    assert drawn(example(), 60, "MC") == [(51, 0), (51, 66.67)]
    text = curve_text(example(), 60)
    assert "chosen threshold 60 %: SV 66.7 %" in text
    assert "seed accuracy S, 66.7 %; MC, 51 %" in text
    assert "from 100.0 % at threshold 1 % to 33.3 % at 100 %" in text


def test_errors_are_shown_as_text(app: Any) -> None:
    """Text that a user typed reaches the page escaped, and the figures of before disappear."""
    source, message, results, *shown = app.from_table([["<img src=x>", "0", "0", "<i>"]], 90, 0, 0)
    assert source is None
    assert "&lt;i&gt;" in message
    assert "<i>" not in message
    assert results.visible is False
    assert not any(shown)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0, 1000, 0), "Correctness threshold: expected a whole number from 1 to 100, got 0"),
        ((90, 10_001, 0), "Bootstrap replicates: expected a whole number from 0 to 10,000"),
        ((90, 10, None), "Random seed: expected a whole number .*, got an empty field"),
    ],
)
def test_bad_settings_keep_the_source(app: Any, settings: tuple[Any, ...], message: str) -> None:
    """So that the next good setting computes again."""
    source, shown, *_ = app.from_table([list(row) for row in EXAMPLE], *settings)
    assert re.search(message, shown)
    source, shown, results, _, figures, *_ = app.again(source, 50, 0, 0)
    assert shown == ""
    assert results.visible is True
    assert "SV accuracy at CT 50" in figures


def test_settings_before_any_source_change_nothing(app: Any) -> None:
    """A setting alone cannot be computed with."""
    assert app.again(None, 50, 0, 0)[0] is None
    assert len(app.again(None, 50, 0, 0)) == len(app.from_table([], 50, 0, 0))


def test_page_uses_nothing_deprecated(app: Any) -> None:
    """Building it warns of nothing, or this would fail; analytics are off."""

    async def build() -> bool:  # in a loop, or Gradio makes one and leaves it open
        return bool(app.build().analytics_enabled)

    assert asyncio.run(build()) is False


def test_connections_are_bounded(app: Any) -> None:
    """One beyond the last is told so; once one of the others is closed there is room again."""
    sent: list[bytes] = []
    config = SimpleNamespace(http_protocol_class=lambda **given: given["config"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listening = SimpleNamespace(sockets=[listener])
        app.bound_connections(SimpleNamespace(config=config, servers=[listening]), most=2)
    state = SimpleNamespace(connections={1})
    assert config.http_protocol_class(config="served", server_state=state) == "served"
    state.connections.add(2)
    refusal = config.http_protocol_class(config="served", server_state=state)
    transport = Mock(spec=asyncio.WriteTransport, write=sent.append)
    refusal.connection_made(transport)
    assert sent[0].startswith(b"HTTP/1.1 503 ")
    transport.close.assert_called_once_with()
    state.connections.remove(1)
    assert config.http_protocol_class(config="served", server_state=state) == "served"


def test_without_gradio_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a script one line and exit code 2; whoever imports it gets the error itself."""
    monkeypatch.setitem(sys.modules, "gradio", None)
    script = str(FOLDER / "app.py")
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(script, run_name="__main__")
    assert capsys.readouterr().err == (
        "error: this page needs gradio; run: pip install 'merge-nli[app]', or without merge-nli: "
        f"pip install -r {FOLDER / 'requirements.txt'}\n"
    )
    with pytest.raises(ModuleNotFoundError, match="gradio"):
        runpy.run_path(script, run_name="app")


# --- The whole, in a browser ---


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app as a Space runs it: in a folder of another name, as a script of its own."""
    home = tmp_path_factory.mktemp("space")
    folder = home / "app"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("GRADIO_")}
    environment = {
        **inherited,
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "GRADIO_TEMP_DIR": str(home / "uploads"),
        "HF_HOME": str(home / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    log = home / "stderr"
    with (
        log.open("wb") as errors,
        running(
            [sys.executable, "app.py"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as server,
    ):
        try:
            yield _address(server, log)
        finally:
            server.terminate()
            server.wait(PATIENCE)
    assert "Traceback" not in log.read_text(encoding="utf-8"), log.read_text(encoding="utf-8")


def _address(server: subprocess.Popen[str], log: Path) -> str:
    """Where the server says that it listens; it is stopped if it does not say so in time."""
    assert server.stdout is not None
    timer = threading.Timer(SECONDS, server.kill)
    timer.start()
    try:
        for line in server.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                return found[0]
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
    """The app as someone uses it."""

    def __init__(self, driver: Chrome, address: str) -> None:
        """Load the page and wait until it shows figures."""
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

    def figures(self) -> dict[str, str]:
        """Key → value, as read now."""
        script = """return Object.fromEntries([...document.querySelectorAll("[data-figure]")].map(
            row => [row.dataset.figure, row.querySelector(".value").innerText]))"""
        return dict(self.driver.execute_script(script))

    def text(self, part: str) -> str:
        """Text of an output, as read now; nothing where it is hidden."""
        script = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return str(self.driver.execute_script(script, f"#sva-{part}")).strip()

    def edit(self, row: int, column: int, text: str) -> None:
        """Type into a cell, counted from 0, and leave it by Enter."""
        cell = f"[data-testid=cell-{row}-{column}]"
        ActionChains(self.driver).double_click(self.one(cell)).perform()
        field = self.wait(lambda: self.find(f"{cell} textarea"))[0]
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text, Keys.ENTER)
        self.wait(lambda: not self.find(f"{cell} textarea") and text in self.one(cell).text)

    def compute(self) -> None:
        self.one("#sva-compute").click()

    def fill(self, part: str, number: int) -> None:
        """A number field of the settings."""
        field = self.one(f"#sva-{part} input[type=number]")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(str(number), Keys.TAB)

    def upload(self, path: Path) -> None:
        (tab,) = [tab for tab in self.find("[role=tab]") if tab.text == "Upload a file"]
        tab.click()
        self.wait(lambda: self.find("#sva-upload input[type=file]"))[0].send_keys(str(path))


@pytest.fixture
def page(browser: Chrome, address: str) -> Iterator[Page]:
    """A fresh page, which at the end has no complaint and has asked no other machine."""
    yield Page(browser, address)
    assert console_errors(browser) == []
    asked = requests(browser)
    assert any(url.startswith(address) for url in asked)
    assert outside(asked) == []


@pytest.mark.browser
def test_page_starts_with_the_example(page: Page, tmp_path: Path) -> None:
    """Figures by hand, the curve, the signature and labels; nothing is empty."""
    assert page.figures() == EXAMPLE_FIGURES
    assert page.text("summary").startswith("From the table: 3 seeds with 12 variants.")
    assert "Seed accuracy S" in page.text("figures")
    drawing = page.wait(lambda: page.find(CURVE))[0]
    assert drawing.is_displayed()
    assert drawing.size["width"] > 200
    assert drawing.size["height"] > 50
    assert page.text("labels").count(CONTRADICTION) == 1
    signature = page.one("#sva-signature textarea").get_attribute("value")
    assert signature == example(n_bootstrap=1000)["signature"]
    assert page.one("#sva-signature button[aria-label=Copy]").is_displayed()
    assert page.driver.save_screenshot(str(tmp_path / "desktop.png"))


@pytest.mark.browser
def test_editing_a_cell(page: Page) -> None:
    """Old figures go as soon as the table changes; computing shows the new ones."""
    page.edit(3, 3, CONTRADICTION)
    page.wait(lambda: "press Compute" in page.text("message"))
    assert page.figures() == {}
    page.compute()
    page.wait(page.figures)
    assert page.figures() == EDITED_FIGURES
    assert page.text("message") == ""


@pytest.mark.browser
def test_moving_the_threshold(page: Page) -> None:
    """The figures follow, without pressing anything; so do fewer replicates."""
    page.fill("threshold", 50)
    page.wait(lambda: "SV accuracy at CT 50" in page.text("figures"))
    changed = {"seed_variant_accuracy": "100.0 %", "agreement_gated_accuracy": "75.0 %"}
    assert page.figures() == {**EXAMPLE_FIGURES, **changed}
    assert "chosen threshold 50 %: SV 100.0 %" in page.text("marks")
    page.one("#sva-threshold input[type=range]").send_keys(Keys.ARROW_RIGHT)
    page.wait(lambda: page.figures()["seed_variant_accuracy"] == "66.7 %")
    assert "SV accuracy at CT 51" in page.text("figures")
    page.fill("replicates", 0)
    page.wait(lambda: "95 % interval" not in page.text("figures"))
    page.wait(lambda: len(page.find(f"{CURVE} .mark-line path")) == 4)  # no interval


@pytest.mark.browser
def test_uploading_a_file(page: Page, tmp_path: Path) -> None:
    """A JSON Lines file is computed at once, probabilities included; so is Parquet."""
    page.upload(write_jsonl(tmp_path / "predictions.jsonl", file_rows()))
    page.wait(lambda: "predictions.jsonl: 2 seeds with 5 variants" in page.text("summary"))
    assert page.figures() == FILE_FIGURES
    assert "Jensen–Shannon" in page.text("labels")
    page.fill("threshold", 50)
    page.wait(lambda: page.figures()["seed_variant_accuracy"] == "100.0 %")
    assert "predictions.jsonl" in page.text("summary")


@pytest.mark.browser
def test_errors_are_read_on_the_page(page: Page, tmp_path: Path) -> None:
    """Errors of a cell, a setting, a file; figures stand beside no error, and come back."""
    page.edit(11, 3, "<img src=nowhere>")
    page.compute()
    page.wait(lambda: "row 12, variant prediction" in page.text("message"))
    assert page.text("message").startswith("Nothing was computed.")
    assert "got '<img src=nowhere>'" in page.text("message")
    assert not page.find("#sva-message img")
    assert page.figures() == {}
    page.edit(11, 3, ENTAILMENT)
    page.compute()
    page.wait(page.figures)
    page.fill("replicates", 20_000)
    page.wait(lambda: "from 0 to 10,000, got 20000" in page.text("message"))
    page.fill("replicates", 100)
    page.wait(page.figures)
    rows = [row for row in file_rows() if row["variant_id"] != "a"]
    page.upload(write_parquet(tmp_path / "lacking.parquet", rows))
    page.wait(lambda: "variant_id equal to seed_id" in page.text("message"))
    assert page.figures() == {}


@pytest.mark.browser
def test_downloading_the_figures(page: Page, downloads: Path) -> None:
    """The file is what `score` returns."""
    page.one("#sva-download a").click()
    saved = downloads / "seed_variant_accuracy.json"
    page.wait(saved.is_file)
    assert json.loads(saved.read_text(encoding="utf-8")) == example(n_bootstrap=1000)


@pytest.mark.browser
def test_phone(page: Page, tmp_path: Path) -> None:
    """On a narrow screen the page does not scroll sideways, and values stay in sight."""
    driver = page.driver
    screen = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        page.wait(lambda: driver.execute_script("return innerWidth") == 390)
        assert driver.execute_script("return document.documentElement.scrollWidth") == 390
        for element in (
            page.one("[data-figure=qt_gap] .interval"),
            page.wait(lambda: page.find(CURVE))[0],
        ):
            assert element.rect["x"] + element.rect["width"] <= 390
        driver.execute_script("document.querySelector('#sva-figures').scrollIntoView()")
        assert driver.save_screenshot(str(tmp_path / "phone.png"))
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
