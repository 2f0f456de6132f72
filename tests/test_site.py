import os
import re
import time
from pathlib import Path

import pytest
from helpers.browser import chromium, console_errors, outside, requests
from helpers.processes import output_of
from selenium.webdriver.common.by import By

from docs.site.build import PACKAGES, SITE, api_page, for_site, pages

ROOT = Path(__file__).resolve().parents[1]


def test_every_page_is_in_the_navigation() -> None:
    """Exceptions are PyPI's page and the cards of bundled models and of test data."""
    config = (ROOT / "docs/site/mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", config, re.MULTILINE)
    every = {str(page.relative_to(ROOT)) for page in pages()}
    elsewhere = {page for page in every if re.search(r"pypi|/demo/|tests/data", page)}
    assert {page for page in elsewhere if not page.startswith("tests/data/judged_")} == {
        "docs/pypi.md", "generation/demo/README.md", "generation/demo/bert-tiny-mlm/README.md",
        "merge_metric/demo/bert-tiny-nli/README.md",
    }  # fmt: skip
    assert sorted(listed) == sorted(
        every - elsewhere | {f"api/{package}.md" for package in PACKAGES}
    )


def test_links_to_files_become_text() -> None:
    page = ROOT / "generation/README.md"
    text = "[a](signals.md#b) [`c/`](recipes) [d](https://e.f) [g](#h) [i](../LICENSE)"
    assert for_site(text, page) == "[a](signals.md#b) `c/` [d](https://e.f) [g](#h) i"


@pytest.mark.parametrize("package", PACKAGES)
def test_api_has_the_public_names(package: str) -> None:
    """The API has all of `__all__`, which is read from the file, without an import."""
    module = __import__(package)
    assert all(f'"{name}"' in api_page(package) for name in module.__all__)


@pytest.mark.browser
def test_site_is_read_without_a_network(tmp_path: Path) -> None:
    output_of(os.environ["MERGE_NLI_DOCS_PYTHON"], ROOT / "docs/site/build.py")
    with chromium(tmp_path) as browser:
        browser.get((SITE / "api/merge_metric.html").as_uri())
        assert "evaluate_model" in browser.find_element(By.TAG_NAME, "article").text
        assert browser.find_elements(By.CSS_SELECTOR, "article .highlight .gp")
        browser.get((SITE / "index.html").as_uri())
        browser.find_element(By.CSS_SELECTOR, "label[for=__palette_1]").click()
        scheme = "return document.body.dataset.mdColorScheme"
        assert browser.execute_script(scheme) == "slate"
        pictures = browser.find_elements(By.CSS_SELECTOR, "article img")
        shown = [picture.get_attribute("src") for picture in pictures if picture.is_displayed()]
        assert shown
        assert all("-dark." in name for name in shown), "pictures follow the site's switch"
        field = browser.find_element(By.CSS_SELECTOR, "input.md-search__input")
        field.click()
        field.send_keys("fooling rate")
        for _ in range(100):
            message = browser.find_element(By.CSS_SELECTOR, ".md-search-result__meta").text
            if "matching" in message:
                break
            time.sleep(0.2)
        assert re.match(r"\d+ matching documents", message)
        assert outside(requests(browser)) == []
        assert console_errors(browser) == []
