"""The annotation page for paraphrases in headless Chromium: yes or no by keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.browser import chromium, console_errors, outside, requests
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from merge_dataset.annotation.answers import Equivalence, answers_path, current, read_standing
from merge_dataset.annotation.server import serving, shuffled
from merge_dataset.annotation.session import Session

pytestmark = pytest.mark.browser

SECONDS = 10


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A browser that reaches nothing but this machine."""
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture
def opened(browser: Chrome, pairs: Session) -> Iterator[Chrome]:
    """The page of ann, past the guidelines; afterwards, what went wrong in it."""
    with serving(pairs, "ann") as (_, url):
        browser.get("about:blank")
        storage = {"origin": url.partition("/#")[0], "storageTypes": "local_storage"}
        browser.execute_cdp_cmd("Storage.clearDataForOrigin", storage)
        console_errors(browser), requests(browser)
        browser.get(url)
        WebDriverWait(browser, SECONDS).until(lambda _: shown(browser, "#item"))
        yield browser
        assert console_errors(browser) == []
        assert outside(requests(browser)) == []


def shown(browser: Chrome, css: str) -> bool:
    return browser.find_element(By.CSS_SELECTOR, css).is_displayed()


def text(browser: Chrome, css: str) -> str:
    return " ".join(browser.find_element(By.CSS_SELECTOR, css).text.split())


def press(browser: Chrome, *keys: str) -> None:
    """Press keys wherever the focus is; then wait until what they save is saved."""
    for key in keys:
        browser.switch_to.active_element.send_keys(key)
        WebDriverWait(browser, SECONDS, poll_frequency=0.05).until(
            lambda _: text(browser, "#state") != "Saving …"
        )


def chosen(browser: Chrome) -> str | None:
    script = "return document.querySelector('[name=equivalent]:checked')?.value ?? null"
    answer: str | None = browser.execute_script(script)
    return answer


def saved(pairs: Session) -> dict[str, object]:
    return dict(current(read_standing(answers_path(pairs.folder, "ann"))))


def test_pairs_by_keyboard(opened: Chrome, pairs: Session) -> None:
    """A letter, a comment, Enter; both sentences and the premise are there, and no label."""
    press(opened, Keys.ESCAPE)
    expected = {}
    for number, item in enumerate(shuffled(pairs.items, "ann")):
        assert text(opened, "#shared") == f"premise of both {item.seed_texts['premise']}"
        assert text(opened, "#original dd") == item.seed_texts["hypothesis"]
        assert text(opened, "#variant dd") == item.variant_texts["hypothesis"]
        assert text(opened, "#variant-title").lower() == "paraphrase"
        assert not shown(opened, ".label")
        assert opened.find_elements(By.CSS_SELECTOR, "#texts mark") == []
        press(opened, "y" if number % 2 else "n")
        comment = "n or y?" if number == 1 else ""
        if comment:
            press(opened, "c")
            press(opened, comment)
        press(opened, Keys.ENTER)
        expected[item.variant_id] = Equivalence(item.variant_id, bool(number % 2), comment)
        assert saved(pairs) == expected
    assert text(opened, "#notice-title") == "All done, thank you"


def test_changing_and_taking_back(opened: Chrome, pairs: Session) -> None:
    """Another key changes the choice, u takes it back, digits and scales mean nothing."""
    press(opened, Keys.ESCAPE, Keys.ENTER)
    assert text(opened, "#state") == "Answer first: yes or no"
    press(opened, "5", "f", "r", Keys.ARROW_UP)
    assert (chosen(opened), saved(pairs)) == (None, {})
    press(opened, "y", "n")
    assert chosen(opened) == "false"
    press(opened, "u")
    assert (chosen(opened), text(opened, "#state")) == (None, "")
    press(opened, "n", Keys.ENTER)
    first = shuffled(pairs.items, "ann")[0].variant_id
    assert saved(pairs) == {first: Equivalence(first, False)}
    opened.refresh()
    WebDriverWait(opened, SECONDS).until(lambda _: shown(opened, "#item"))
    assert text(opened, "#item-title").startswith("Item 2 of")
    press(opened, Keys.ARROW_LEFT)
    assert (chosen(opened), text(opened, "#state")) == ("false", "Saved")
    press(opened, "o")
    assert text(opened, "#item-title").startswith("Item 2 of")
    press(opened, Keys.BACKSPACE)
    assert (chosen(opened), saved(pairs)) == (None, {})
    opened.find_element(By.CSS_SELECTOR, "[name=equivalent][value='true']").click()
    opened.find_element(By.ID, "save").click()
    WebDriverWait(opened, SECONDS).until(lambda _: saved(pairs))
    assert saved(pairs) == {first: Equivalence(first, True)}


def test_guidelines_are_about_meaning(opened: Chrome) -> None:
    """They are those of pairs, with their examples, and only the keys that do something."""
    examples = opened.find_elements(By.CSS_SELECTOR, ".examples li")
    assert sum(example.is_displayed() for example in examples) == 5
    assert "mean the same" in text(opened, "#guidelines")
    assert "Fluency" not in text(opened, "#guidelines")
    press(opened, Keys.ESCAPE)
    assert text(opened, "#open") == "Next open o"
    (keys,) = (each for each in opened.find_elements(By.CSS_SELECTOR, ".keys") if each.text)
    assert keys.text.startswith("y yes · n no · Enter save")
