"""The HTML report in headless Chromium, opened from disk."""

import base64
import csv
import re
from collections.abc import Iterator
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from helpers.browser import console_errors, outside, requests
from helpers.dataset_files import write_predictions
from helpers.report_data import EVIL
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.sections import (
    MATCHING,
    RELAXED,
    cell,
    figures_table,
    interval_text,
    number,
    shown,
    tables,
)
from merge_metric.report.seeds import SourceSeeds
from merge_metric.report.write import render_html
from merge_metric.seed_variant_accuracy.figures import Estimate, Figure, sv_at

pytestmark = pytest.mark.browser

SECONDS = 10
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


@pytest.fixture(scope="module")
def url(page: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser: Chrome, url: str) -> Iterator[Chrome]:
    """The opened report; afterwards, there must be no errors or outside requests."""
    console_errors(browser), requests(browser)
    browser.get(url)
    yield browser
    assert console_errors(browser) == []
    assert outside(requests(browser)) == []


def find(browser: Chrome, css: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, css)


def one(browser: Chrome | WebElement, css: str) -> WebElement:
    return browser.find_element(By.CSS_SELECTOR, css)


def text(element: WebElement) -> str:
    return " ".join(element.text.split())


def choose(browser: Chrome, id_: str, label: str) -> None:
    Select(one(browser, f"#{id_}")).select_by_visible_text(label)


def until(browser: Chrome, condition: Any) -> Any:
    return WebDriverWait(browser, SECONDS).until(lambda _: condition())


def text_of(result: dict[str, Any], figure: Figure) -> str:
    return f"{shown(result, figure)} {interval_text(cell(result, figure))}".strip()


def legend(browser: Chrome) -> dict[str, list[str]]:
    """Model → its cells: SV at the threshold with its interval, S, MC."""
    rows = find(browser, "#legend tbody tr")
    return {text(one(row, ".name")): cells(row) for row in rows}


def cells(row: WebElement) -> list[str]:
    return [text(td) for td in row.find_elements(By.TAG_NAME, "td")]


def found(browser: Chrome) -> int:
    """Number of seeds that pass the filters."""
    return int(one(browser, "#found").text.split(" of ")[1].split()[0].replace(",", ""))


def ids(browser: Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('.seed .id')].map((e) => e.textContent)"
    shown_ids: list[str] = browser.execute_script(script)
    return shown_ids


def snli(evidence: Evidence) -> Any:
    return next(c for c in evidence.configurations if c.name == "snli")


def test_it_opens_from_disk_alone(opened: Chrome, url: str) -> None:
    assert requests(opened) == [url]
    assert opened.title == "3 models on mnli-m and snli – MERGE report"
    assert find(opened, "img") == []
    assert len(find(opened, "#chart canvas")) == 1
    assert len(find(opened, ".seed")) == 9  # mnli-m, which comes first


def test_without_javascript(browser: Chrome, url: str, evidence: Evidence) -> None:
    """All figures and drawings are there; parts that need scripts are hidden."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(url)
        tables = find(browser, "table.figures")
        assert [table.is_displayed() for table in tables] == [True, True]
        assert all(figure.is_displayed() for figure in find(browser, ".static svg"))
        assert not one(browser, "#problems").is_displayed()
        assert "JavaScript is off" in one(browser, "noscript").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_hovering_shows_values(opened: Chrome, evidence: Evidence) -> None:
    over = one(opened, "#chart .u-over")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", over)
    width = over.size["width"]
    results = evidence.configurations[0].results

    def expected(threshold: int, result: Any) -> str:
        curve = result["sv_curve"]
        sides = (100 * curve[side][threshold - 1] for side in ("accuracy", "low", "high"))
        of = Estimate(*sides)
        return f"{number(of.value)} {interval_text(of)}".strip()

    for threshold in (1, 40, 73, 100):
        x = round(width * threshold / 100) - width // 2
        ActionChains(opened).move_to_element_with_offset(over, min(x, width // 2 - 1), 0).perform()
        until(opened, lambda t=threshold: one(opened, "#legend-threshold").text == f"SV@{t}")
        for name, result in zip(evidence.names, results, strict=True):
            assert result is not None
            assert legend(opened)[name][0] == expected(threshold, result)
            assert legend(opened)[name][1] == number(100 * result["seed_accuracy"])
            assert legend(opened)[name][2] == shown(result, MATCHING)
        assert one(opened, ".cursor-flag").text == f"CT {threshold} %"
    ActionChains(opened).move_to_element(one(opened, "#curves h2")).perform()
    until(opened, lambda: one(opened, "#legend-threshold").text == "SV@90")


def colours(browser: Chrome) -> set[str]:
    pixels = browser.execute_script(
        """
        const canvas = document.querySelector("#chart canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const found = new Set();
        for (let i = 0; i < data.length; i += 4) {
          if (data[i + 3] === 255) found.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
        }
        return [...found];
        """
    )
    return {f"#{pixel:06X}" for pixel in pixels}


def test_switching_a_curve_off(opened: Chrome) -> None:
    blue, vermillion = "#0072B2", "#D55E00"
    until(opened, lambda: {blue, vermillion} <= colours(opened))
    boxes = find(opened, "#legend tbody input")
    boxes[0].click()
    until(opened, lambda: blue not in colours(opened))
    assert vermillion in colours(opened)  # although the pointer is over the first row
    assert "off" in (find(opened, "#legend tbody tr")[0].get_attribute("class") or "")
    one(opened, "#every").click()
    until(opened, lambda: vermillion not in colours(opened))
    assert [box.is_selected() for box in boxes] == [False] * 3
    one(opened, "#every").send_keys(Keys.SPACE)
    until(opened, lambda: {blue, vermillion} <= colours(opened))


def test_parts_and_configurations(opened: Chrome, evidence: Evidence) -> None:
    choose(opened, "part", "replaced word: verb")
    part = next(p for p in evidence.configurations[0].parts() if p.title == "verb")
    assert part.results[0] is not None
    assert legend(opened)["weak"][1] == number(100 * part.results[0]["seed_accuracy"])
    choose(opened, "config", "snli")
    other = next(p for p in snli(evidence).parts() if p.title == "verb")
    assert legend(opened)["weak"][1] == number(100 * other.results[0]["seed_accuracy"])
    visible = [table.is_displayed() for table in find(opened, "table.figures")]
    assert visible == [c.name == "snli" for c in evidence.configurations]
    assert found(opened) == 30


def test_values_as_a_table(opened: Chrome, evidence: Evidence) -> None:
    """The chart's content is also text, for users who cannot see it."""
    one(opened, "#curve-values summary").click()
    rows = [text(row) for row in find(opened, "#curve-values tbody tr")]
    curves = [result["sv_curve"]["accuracy"] for result in evidence.configurations[0].scored]
    assert rows[10] == " ".join(["50", *(number(100 * curve[49]) for curve in curves)])
    assert len(rows) == 21


def test_sorting(opened: Chrome, evidence: Evidence) -> None:
    """A click on a heading sorts from the highest value, another from the lowest; keys do, too."""
    results = evidence.configurations[0].scored
    s = {name: r["seed_accuracy"] for name, r in zip(evidence.names, results, strict=True)}
    (table, _) = find(opened, "table.figures")
    heading = table.find_elements(By.CSS_SELECTOR, ".sort")[1]
    heading.click()

    def column() -> list[float]:
        return [s[text(row)] for row in table.find_elements(By.CSS_SELECTOR, "tbody .name")]

    assert column() == sorted(s.values(), reverse=True)
    assert heading.find_element(By.XPATH, "..").get_attribute("aria-sort") == "descending"
    heading.send_keys(Keys.ENTER)
    assert column() == sorted(s.values())
    table.find_elements(By.CSS_SELECTOR, ".sort")[0].click()
    names = [text(row) for row in table.find_elements(By.CSS_SELECTOR, "tbody .name")]
    assert names == sorted(evidence.names)


def test_dark_mode(opened: Chrome) -> None:
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        opened.refresh()
        drawn = colours(opened)
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert {"#3D9BDC", "#FF8A4C"} <= drawn
    assert not {"#0072B2", "#D55E00"} & drawn


def test_heat_map_of_another_figure(opened: Chrome, evidence: Evidence) -> None:
    first = "#heat tbody tr:first-child td"
    before = [text(td) for td in find(opened, first)]
    classes = [td.get_attribute("class") for td in find(opened, first)]
    parts = [p for c in evidence.configurations for p in c.parts() if p.kind != "label"]
    opened_on = one(opened, "#measure option:checked").text
    assert opened_on.startswith("SV@90")
    assert before == [text_of(p.results[0], sv_at(90)) for p in parts if p.results[0]]
    choose(opened, "measure", "rr: Relaxed fooling rate")
    after = [text(td) for td in find(opened, first)]
    assert after == [text_of(p.results[0], RELAXED) for p in parts if p.results[0]]
    assert "changes the answer" in one(opened, "#measure-meaning").text
    choose(opened, "measure", opened_on)
    assert [text(td) for td in find(opened, first)] == before
    again = [(td.get_attribute("class") or "").split() for td in find(opened, first)]
    assert again == [(word_class or "").split() for word_class in classes]


@pytest.fixture
def table(opened: Chrome) -> Chrome:
    choose(opened, "config", "snli")
    return opened


def test_hardest_first_and_pages(table: Chrome, sources: tuple[SourceSeeds, ...]) -> None:
    source = next(item for item in sources if item.source == "snli")
    names = source.seeds["seed_id"].to_pylist()
    order = [names[i] for i in source.hardest()]
    assert ids(table) == order[:20]
    assert one(table, "#found").text == "1–20 of 30 seeds"
    one(table, ".pager .next").click()
    assert ids(table) == order[20:]
    assert not one(table, ".pager .next").is_enabled()
    one(table, ".pager .previous").click()
    assert ids(table) == order[:20]
    choose(table, "order", "by id")
    assert ids(table) == sorted(names)[:20]


def test_search(table: Chrome, case: Any) -> None:
    """All words must occur in premise, hypothesis or id, in any case."""
    one(table, "#search").send_keys("HORSE number")
    expected = [row for row in case.snli.seeds if "horse" in row["premise"]]
    until(table, lambda: found(table) == len(expected) < 20)
    one(table, "#search").clear()
    one(table, "#search").send_keys("p017")
    until(table, lambda: ids(table) == ["snli:p017"])
    one(table, "#search").send_keys(" nowhere")
    until(table, lambda: find(table, ".empty"))
    assert one(table, "#found").text == "0–0 of 0 seeds"


def test_filters(table: Chrome, case: Any) -> None:
    """Filters are by class, label, and the answers of one model or of all."""
    rows = {name: case.snli.predictions(a, name) for name, a in (("weak", 0.45), ("strong", 0.85))}
    choose(table, "gold", "neutral")
    assert found(table) == 10
    choose(table, "class", "verb")
    verbs = {row["seed_id"] for row in case.snli.variants if row["word_class"] == "verb"}
    neutral = {row["seed_id"] for row in case.snli.seeds if row["label"] == 1}
    assert found(table) == len(neutral & verbs)
    choose(table, "class", "any")
    choose(table, "gold", "any")

    def right_on_seeds(name: str) -> set[str]:
        return {r["seed_id"] for r in rows[name][:30] if r["prediction"] == r["label"]}

    choose(table, "model", "weak")
    choose(table, "condition", "the seed wrong")
    assert found(table) == 30 - len(right_on_seeds("weak"))
    choose(table, "model", "strong")
    choose(table, "condition", "the seed right, a variant wrong")
    wrong = {r["seed_id"] for r in rows["strong"][30:] if r["prediction"] != r["label"]}
    assert found(table) == len(right_on_seeds("strong") & wrong)
    choose(table, "condition", "seed and variants right")
    assert found(table) == len(right_on_seeds("strong") - wrong)
    choose(table, "model", "every model")
    choose(table, "condition", "the seed wrong")
    every = """
        const source = Report.data.sources.find(({ name }) => name === "snli");
        const wrong = (own, i) => own[i] !== source.gold[i];
        return source.ids.filter((_, i) => source.own.every((own) => wrong(own, i))).length;
    """
    assert found(table) == int(table.execute_script(every))


def test_opening_a_row(table: Chrome, case: Any) -> None:
    one(table, "#search").send_keys("p003")
    until(table, lambda: ids(table) == ["snli:p003"])
    opener = one(table, ".opener")
    assert EVIL in opener.text
    opener.send_keys(Keys.ENTER)
    assert opener.get_attribute("aria-expanded") == "true"
    mine = [row for row in case.snli.variants if row["seed_id"] == "snli:p003"]
    answers = [
        {r["variant_id"]: r["prediction"] for r in case.snli.predictions(ability, name)}
        for name, ability in (("weak", 0.45), ("middle", 0.65), ("strong", 0.85))
    ]
    rows = find(table, ".variants tbody tr")
    assert len(rows) == len(mine)
    seen = {}
    for row in rows:
        signals = text(one(row, ".replaced small"))
        replaced = text(one(row, ".replaced")).removesuffix(signals).strip()
        word, _, new = replaced.partition(" → ")
        marks = [mark.text for mark in row.find_elements(By.TAG_NAME, "mark")]
        premise, hypothesis = (one(row, css).get_attribute("textContent") for css in (".p", ".h"))
        given = [chip.text for chip in row.find_elements(By.CSS_SELECTOR, ".answer")]
        seen[word, new] = (premise, hypothesis, marks, given, signals)
    for row in mine:
        premise, hypothesis, marks, given, signals = seen[row["original"], row["replacement"]]
        fault = "other number · " if row["number_changed"] else ""
        assert signals == f"{fault}log-odds {row['log_odds']:.1f}"
        assert (premise, hypothesis) == (row["premise"], row["hypothesis"])
        spans = len(row["premise_spans"]) + len(row["hypothesis_spans"])
        assert marks == [row["replacement"]] * spans
        assert given == ["ENC"[model[row["variant_id"]]] for model in answers]
    wrong = [row.find_elements(By.CSS_SELECTOR, ".answer.wrong") for row in rows]
    assert [len(item) for item in wrong] == sorted((len(item) for item in wrong), reverse=True)
    assert table.title != "owned"
    opener.click()
    assert find(table, ".details") == []


def test_address_is_the_view(opened: Chrome, url: str) -> None:
    other = text(find(opened, "#config option")[1])
    choose(opened, "config", other)
    Select(one(opened, "#measure")).select_by_index(0)
    choose(opened, "gold", "neutral")
    one(opened, ".opener").click()
    seed = ids(opened)[0]
    until(opened, lambda: "seed=" in opened.current_url)
    address = opened.current_url
    assert {f"config={other}", "gold=1"} <= set(address.partition("#")[2].split("&"))
    opened.get("about:blank")
    opened.get(address)
    until(opened, lambda: len(find(opened, ".details")) == 1)
    assert one(opened, "#config option:checked").text == other
    assert one(opened, "#measure option:checked").text.startswith("S: ")
    assert one(opened, "#gold option:checked").text == "neutral"
    row = one(opened, ".details").find_element(By.XPATH, "preceding-sibling::tr[1]")
    assert text(one(row, ".id")) == seed
    opened.get("about:blank")
    opened.get(f"{url}#seed=snli%3Ap003")
    until(opened, lambda: len(find(opened, ".details")) == 1)
    assert "snli:p003" in ids(opened)
    opened.get("about:blank")
    opened.get(f"{url}#seed=nobody&gold=77&config=other")  # of another report
    assert found(opened) == 9 or found(opened) == 30
    assert find(opened, ".details") == []


def test_a_figure_leads_to_its_seeds(opened: Chrome, evidence: Evidence) -> None:
    choose(opened, "config", "snli")
    rows = find(opened, "#figures [data-config='snli'] tbody tr")
    for model, result in enumerate(snli(evidence).results):
        right, fooled = rows[model].find_elements(By.CSS_SELECTOR, "a.seeds")
        opened.execute_script("arguments[0].click()", right)  # the bar may cover it
        n_right = round(result["seed_accuracy"] * result["n_seeds"])
        assert found(opened) == n_right
        assert one(opened, "#model option:checked").text == evidence.names[model]
        opened.execute_script("arguments[0].click()", fooled)
        assert one(opened, "#condition option:checked").text == "the seed right, a variant wrong"
        assert 0 < found(opened) <= n_right
    link = one(opened, "[data-config='snli'] .example figcaption a")
    seed = link.text
    opened.execute_script("arguments[0].click()", link)
    until(opened, lambda: len(find(opened, ".details")) == 1)
    assert seed in ids(opened)


def test_models_that_disagree(table: Chrome, sources: tuple[SourceSeeds, ...]) -> None:
    choose(table, "condition", "the seed unlike another model")
    choose(table, "model", "some model")
    own = next(item for item in sources if item.source == "snli").own
    answered = [{int(code) for code in column if code >= 0} for column in own.T]
    assert found(table) == sum(len(item) > 1 for item in answered)


def test_tables_are_taken_away(opened: Chrome, evidence: Evidence) -> None:
    kept = """
        window.taken = [];
        URL.createObjectURL = (blob) => {
          blob.text().then((text) => window.taken.push(text));
          return "#";
        };
        HTMLAnchorElement.prototype.click = function () { window.taken.push(this.download); };
        navigator.clipboard.writeText = async (text) => { window.taken.push(text); };
    """
    opened.execute_script(kept)
    choose(opened, "config", "snli")
    names = {place.get_attribute("data-table") for place in find(opened, ".take")}
    made = chain.from_iterable(tables(evidence, for_page=True).values())
    assert names == {"seeds", *(table.name for table in made)}
    for nth, label in enumerate(("CSV", "JSON", "Copy Markdown", "Copy LaTeX")):
        button = find(opened, ".take[data-table='figures-snli'] button")[nth]
        assert button.text == label
        button.click()
    table = figures_table(evidence, snli(evidence), "figures")
    wanted = ["figures-snli.csv", "figures-snli.json", table.to_markdown(), table.to_latex()]
    wanted += [f"{table.to_csv()}\n", f"{table.to_json()}\n"]
    until(opened, lambda: sorted(opened.execute_script("return taken")) == sorted(wanted))
    opened.execute_script("window.taken = []")
    choose(opened, "gold", "neutral")
    find(opened, ".take[data-table='seeds'] button")[0].click()
    until(opened, lambda: len(opened.execute_script("return taken")) == 2)
    name, text_of_seeds = opened.execute_script("return taken")
    rows = list(csv.DictReader(StringIO(text_of_seeds)))
    assert name == "seeds.csv"
    assert len(rows) == found(opened) == 10
    assert {row["gold"] for row in rows} == {"neutral"}


def test_phone(browser: Chrome, url: str) -> None:
    """Nothing is wider than the screen, even with a row and a definition opened."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        browser.get(url)
        assert find(browser, "details.table[open]") == [], "tables wait for whoever wants them"
        for css in (".opener", ".definitions summary", "#curve-values summary"):
            browser.execute_script("arguments[0].click()", one(browser, css))
        sizes = "return [document.documentElement.scrollWidth, window.innerWidth]"
        widths = browser.execute_script(sizes)
        assert widths == [PHONE["width"], PHONE["width"]]
        chart = one(browser, "#chart canvas")
        assert chart.size["width"] <= PHONE["width"]
        narrow = PHONE | {"width": 320}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
        until(browser, lambda: browser.execute_script("return window.innerWidth") == 320)
        for css in ("#legend", "#chart-area", "#measure"):
            box = one(browser, css).rect
            assert box["x"] + box["width"] <= 320 - 15, "and its margin"
        assert one(browser, "table.figures tbody td").is_displayed()
        assert one(browser, ".variants mark").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert console_errors(browser) == []


def test_print(opened: Chrome) -> None:
    """A print has all configurations with their drawings, opened, without controls."""
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        opened.execute_script("dispatchEvent(new Event('beforeprint'))")
        assert all(table.is_displayed() for table in find(opened, "table.figures"))
        assert all(figure.is_displayed() for figure in find(opened, ".static svg"))
        assert all(term.is_displayed() for term in find(opened, ".definitions dt"))
        for css in (".bar", "#chart-area", "#filters", ".pager", "summary", "button.sort"):
            hidden = [e for e in find(opened, css) if e.is_displayed() and e.tag_name != "button"]
            assert hidden == [], css
        opened.execute_script("dispatchEvent(new Event('afterprint'))")
        assert not one(opened, ".definitions").get_attribute("open")
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    made = opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    pdf = base64.b64decode(made["data"])
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 3


def open_report(browser: Chrome, evidence: Evidence, path: Path) -> None:
    path.write_text(render_html(evidence), encoding="utf-8")
    console_errors(browser)
    browser.get(path.as_uri())


def test_many_models(browser: Chrome, case: Any, tmp_path: Path) -> None:
    """Beyond six models, pairs are folded, and problems have totals, with models in details."""
    files = [
        str(write_predictions(tmp_path / f"m{i}.parquet", case.mnli.predictions(i / 9, str(i))))
        for i in range(8)
    ]
    open_report(browser, gather_evidence(files, case.folder, n_bootstrap=10), tmp_path / "r.html")
    pairs = find(browser, "#comparison .pairs tbody tr")
    assert len(pairs) == 8 * 7 / 2
    assert not pairs[0].is_displayed()
    one(browser, "#comparison summary").click()
    assert pairs[-1].is_displayed()
    heads = [text(th) for th in find(browser, "#seed-table > thead th")]
    assert heads == ["Problem", "Gold", "Models right", "Variants right"]
    one(browser, ".opener").click()
    assert len(find(browser, ".totals .total")) == 8
    assert len(find(browser, ".variants tbody tr:first-child .answer")) == 8
    assert not one(browser, "#references").is_selected()
    assert console_errors(browser) == []


def test_missing_answers(browser: Chrome, case: Any, tmp_path: Path) -> None:
    """A model that was not asked is neither right nor wrong."""
    rows = case.snli.predictions(0.5, "x")
    seed = rows[0]["seed_id"]
    file = write_predictions(tmp_path / "x.parquet", [r for r in rows if r["seed_id"] != seed])
    files = [case.files[0], str(file)]
    evidence = gather_evidence(files, case.folder, ["snli"], allow_missing=True, n_bootstrap=0)
    open_report(browser, evidence, tmp_path / "r.html")
    one(browser, "#search").send_keys(seed.partition(":")[2])
    until(browser, lambda: ids(browser) == [seed])
    assert text(find(browser, ".seed td")[3]) == "– –"
    choose(browser, "model", "x")
    for condition in ("the seed right", "the seed wrong", "anything"):
        choose(browser, "condition", condition)
        assert found(browser) == 0
    assert console_errors(browser) == []
