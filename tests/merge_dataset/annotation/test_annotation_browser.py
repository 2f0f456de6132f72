"""The annotation page in headless Chromium: by keyboard, after crashes, in two tabs."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import pytest
from helpers.annotating import MAIN, Client
from helpers.browser import chromium, console_errors, outside, requests
from helpers.processes import PATIENCE, running
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from merge_dataset.annotation.answers import (
    Answer,
    Equivalence,
    answers_path,
    current,
    read_events,
    read_standing,
)
from merge_dataset.annotation.server import serving, shuffled
from merge_dataset.annotation.session import Session, read_session

pytestmark = pytest.mark.browser

SECONDS = 10
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A browser without access to other machines."""
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture
def url(session: Session) -> Iterator[str]:
    with serving(session, "ann") as (_, address):
        yield address


@pytest.fixture
def opened(browser: Chrome, url: str) -> Iterator[Chrome]:
    """The page, past the guidelines; afterwards, there must be no errors or outside requests."""
    open_page(browser, url)
    press(browser, Keys.ESCAPE)
    yield browser
    assert console_errors(browser) == []
    assert outside(requests(browser)) == []


def open_page(browser: Chrome, url: str) -> None:
    """Open the page in this tab as for a new user, as ports may repeat."""
    origin = url.partition("/#")[0]
    browser.get("about:blank")
    clear = {"origin": origin, "storageTypes": "local_storage"}
    browser.execute_cdp_cmd("Storage.clearDataForOrigin", clear)
    console_errors(browser), requests(browser)
    browser.get(url)
    until(browser, lambda: visible(browser, "#item") or visible(browser, "#notice"))


def visible(browser: Chrome, css: str) -> bool:
    return browser.find_element(By.CSS_SELECTOR, css).is_displayed()


def text(browser: Chrome, css: str) -> str:
    return " ".join(browser.find_element(By.CSS_SELECTOR, css).text.split())


def until(browser: Chrome, condition: Callable[[], Any]) -> Any:
    return WebDriverWait(browser, SECONDS, poll_frequency=0.05).until(lambda _: condition())


def press(browser: Chrome, *keys: str) -> None:
    """Press keys wherever the focus is, one by one, and wait until each is saved."""
    for key in keys:
        ActionChains(browser).send_keys(key).perform()
        until(browser, lambda: text(browser, "#state") != "Saving …")


def reload(browser: Chrome) -> None:
    """Reload as a user; the page asks nothing, as nothing is unsaved."""
    browser.refresh()
    until(browser, lambda: visible(browser, "#item") or visible(browser, "#notice"))
    if browser.execute_script("return document.getElementById('guidelines').open"):
        press(browser, Keys.ESCAPE)


def chosen(browser: Chrome) -> tuple[int | None, int | None]:
    script = """
        const of = (name) => document.querySelector(`[name=${name}]:checked`)?.value ?? null;
        return [of("fluency"), of("reasoning")].map((value) => value && Number(value));
    """
    fluency, reasoning = browser.execute_script(script)
    return fluency, reasoning


def comment(browser: Chrome) -> str:
    value: str = browser.find_element(By.ID, "comment").get_property("value")
    return value


def item(browser: Chrome) -> int:
    """Number of the displayed item; after a notice, it takes a moment."""
    return int(until(browser, lambda: text(browser, "#item-title")).split()[1])


def order(session: Session, annotator: str = "ann") -> list[str]:
    return [each.variant_id for each in shuffled(session.items, annotator)]


def saved(session: Session, annotator: str = "ann") -> dict[str, Any]:
    return dict(current(read_standing(answers_path(session.folder, annotator))))


def test_annotating_everything_by_keyboard(opened: Chrome, session: Session) -> None:
    ids = order(session)
    expected = {}
    for number, variant in enumerate(ids, start=1):
        fluency, reasoning = 1 + number % 5, 1 + 2 * number % 5
        shown = session.items[variant]
        assert item(opened) == number
        assert text(opened, "#progress") == f"{number - 1} of 11 answered"
        assert text(opened, "#label") == shown.label
        assert text(opened, "#change") == f"{shown.original} → {shown.replacement}"
        for side, texts in (("original", shown.seed_texts), ("variant", shown.variant_texts)):
            words = opened.find_elements(By.CSS_SELECTOR, f"#{side} dd")
            assert [word.text for word in words] == list(texts.values())
        marks = {mark.text for mark in opened.find_elements(By.CSS_SELECTOR, "#variant mark")}
        assert marks == {shown.replacement}
        note = "jumps? 1 of “5”, ü" if number == 3 else ""
        press(opened, str(fluency), str(reasoning))
        if note:
            press(opened, "c", note)
        press(opened, Keys.ENTER)
        expected[variant] = Answer(variant, fluency, reasoning, note)
        assert saved(session) == expected
    assert text(opened, "#notice-title") == "All done, thank you"
    assert text(opened, "#progress") == "11 of 11 answered"
    press(opened, "u")
    assert item(opened) == 11
    assert len(saved(session)) == 10


def test_undoing(opened: Chrome, session: Session) -> None:
    """Undo unsaved input first, then answer by answer, with comments kept."""
    first, second, *_ = order(session)
    press(opened, "1", "1", "c", "why not", Keys.ENTER, "2", "2", Keys.ENTER, "3")
    press(opened, "u")
    assert (item(opened), chosen(opened)) == (3, (None, None))
    assert set(saved(session)) == {first, second}
    press(opened, Keys.BACKSPACE)
    assert (item(opened), chosen(opened)) == (2, (None, None))
    assert text(opened, "#state") == "Answer taken back"
    assert set(saved(session)) == {first}
    press(opened, "u")
    assert (item(opened), chosen(opened), comment(opened)) == (1, (None, None), "why not")
    assert saved(session) == {}
    press(opened, "u", Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert (item(opened), comment(opened)) == (1, "why not")
    press(opened, "5", "5", Keys.ENTER)
    assert saved(session) == {first: Answer(first, 5, 5, "why not")}


def test_going_back_to_change(opened: Chrome, session: Session) -> None:
    first = order(session)[0]
    press(opened, "1", "1", Keys.ENTER, "2", "2", Keys.ENTER)
    press(opened, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert (item(opened), chosen(opened), text(opened, "#state")) == (1, (1, 1), "Saved")
    press(opened, "5")
    assert text(opened, "#state") == "Not saved yet"
    press(opened, Keys.ENTER)
    assert item(opened) == 3
    assert saved(session)[first] == Answer(first, 5, 1)
    assert text(opened, "#progress") == "2 of 11 answered"
    press(opened, "u")
    assert (item(opened), chosen(opened)) == (1, (1, 1))
    assert saved(session)[first] == Answer(first, 1, 1)


def test_moving_about(opened: Chrome) -> None:
    """Moving wraps around; n goes to the next open item; Enter on a kept answer saves nothing."""
    press(opened, Keys.ARROW_LEFT)
    assert item(opened) == 11
    press(opened, "5", "5", Keys.ENTER)
    assert item(opened) == 1
    press(opened, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, "n")
    assert item(opened) == 4
    press(opened, Keys.ARROW_LEFT * 4, Keys.ENTER)
    assert item(opened) == 1
    assert text(opened, "#progress") == "1 of 11 answered"


def test_the_comment_is_a_text_field(opened: Chrome, session: Session) -> None:
    press(opened, "c", "5 u g c")
    assert (comment(opened), chosen(opened)) == ("5 u g c", (None, None))
    ActionChains(opened).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()
    press(opened, "two", Keys.ESCAPE, "4", "4", Keys.ENTER)
    assert [each.comment for each in saved(session).values()] == ["5 u g c\ntwo"]


def test_guidelines_come_first_and_when_asked_for(browser: Chrome, url: str) -> None:
    def is_open() -> Any:
        return browser.execute_script("return document.getElementById('guidelines').open")

    open_page(browser, url)
    until(browser, is_open)
    assert "What to judge" in text(browser, "#guidelines")
    examples = browser.find_elements(By.CSS_SELECTOR, ".examples li")
    assert sum(example.is_displayed() for example in examples) == 11
    press(browser, "5")
    press(browser, Keys.ESCAPE)
    assert not is_open()
    assert chosen(browser) == (None, None)
    for key in ("g", "?"):
        press(browser, key)
        assert is_open()
        press(browser, key)
        assert not is_open()
    press(browser, "5", "5", Keys.ENTER)
    reload(browser)
    assert not is_open()
    browser.find_element(By.ID, "open-guidelines").click()
    browser.find_element(By.ID, "close-guidelines").click()
    press(browser, "4", "4", Keys.ENTER)
    assert (is_open(), item(browser)) == (False, 3)


def test_by_mouse(opened: Chrome, session: Session) -> None:
    """After a click, keys have the same meaning as elsewhere."""
    opened.find_element(By.CSS_SELECTOR, "[name=fluency][value='4']").click()
    opened.find_element(By.CSS_SELECTOR, "[name=reasoning][value='5']").click()
    assert chosen(opened) == (4, 5)
    press(opened, Keys.ARROW_RIGHT)
    assert (item(opened), chosen(opened)) == (2, (None, None))
    opened.find_element(By.ID, "previous").click()
    assert (item(opened), chosen(opened)) == (1, (4, 5))
    opened.find_element(By.ID, "save").click()
    until(opened, lambda: item(opened) == 2)
    opened.find_element(By.ID, "next").click()
    press(opened, "1", "1", Keys.ENTER)
    assert [(a.fluency, a.reasoning) for a in saved(session).values()] == [(4, 5), (1, 1)]
    opened.find_element(By.ID, "undo").click()
    until(opened, lambda: item(opened) == 3)
    assert len(saved(session)) == 1


def test_it_can_be_heard(opened: Chrome) -> None:
    tree = opened.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node["ignored"]
    ]
    groups = [name for role, name in named if role in ("group", "radiogroup")]
    assert [name.split()[0] for name in groups] == ["Fluency", "Reasoning"]
    assert [name for role, name in named if role == "radio"] == [
        "1 poor", "2 mostly poor", "3 uncertain", "4 mostly good", "5 good"
    ] * 2  # fmt: skip
    assert all(name for role, name in named if role in ("button", "textbox", "navigation"))
    assert [name for role, name in named if role == "region"] == ["ORIGINAL", "VARIANT"]
    press(opened, "5", "5", Keys.ENTER)
    assert opened.execute_script("return document.activeElement.id") == "item-title"
    assert text(opened, "#said") == "Item 2"


def test_a_reload_goes_on_with_what_was_not_saved(opened: Chrome, session: Session) -> None:
    press(opened, "1", "1", Keys.ENTER, "4", "c", "half a comment")
    reload(opened)
    assert (item(opened), chosen(opened), comment(opened)) == (2, (4, None), "half a comment")
    assert len(saved(session)) == 1
    press(opened, Keys.ESCAPE, "r", "5", Keys.ENTER)
    second = order(session)[1]
    assert saved(session)[second] == Answer(second, 4, 5, "half a comment")
    reload(opened)
    assert item(opened) == 3
    press(opened, "u", "u")
    assert item(opened) == 1
    assert saved(session) == {}


@contextmanager
def command(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = ["annotate", "--out", str(folder), "--annotator", "ann", "--no-browser"]
    started = [sys.executable, "-c", MAIN, *words]
    with running(started, stdout=PIPE, stderr=DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


def test_a_killed_server_loses_nothing(browser: Chrome, session: Session) -> None:
    ids = order(session)
    with command(session.folder) as (process, url):
        open_page(browser, url)
        press(browser, Keys.ESCAPE)
        for _ in range(3):
            press(browser, "5", "4", Keys.ENTER)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    assert list(saved(session)) == ids[:3]
    press(browser, "2", "3")
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    until(browser, lambda: "Not saved yet. The server does not answer" in text(browser, "#trouble"))
    ActionChains(browser).send_keys("1", Keys.ARROW_LEFT).perform()
    browser.find_element(By.ID, "comment").send_keys("too late")
    assert (item(browser), chosen(browser), comment(browser)) == (4, (2, 3), "")
    with command(session.folder) as (process, again):
        assert again == url
        until(browser, lambda: item(browser) == 5)
        assert not visible(browser, "#trouble")
        assert saved(session)[ids[3]] == Answer(ids[3], 2, 3)
        press(browser, "1", "1", Keys.ENTER)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait(PATIENCE) == 0
        assert said.endswith("5 of 11 variants answered.\n")
    assert len(read_events(answers_path(session.folder, "ann"))) == 5
    console_errors(browser)  # of unanswered requests


def test_a_closed_tab_loses_nothing(browser: Chrome, session: Session) -> None:
    with command(session.folder) as (process, url):
        open_page(browser, url)
        press(browser, Keys.ESCAPE, "5", "4")
        process.kill()
        process.wait(PATIENCE)
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    until(browser, lambda: visible(browser, "#trouble"))
    browser.switch_to.new_window("tab")
    left = browser.window_handles[0]
    new = browser.current_window_handle
    browser.switch_to.window(left)
    browser.execute_cdp_cmd("Page.close", {})
    browser.switch_to.window(new)
    with command(session.folder) as (_, again):
        browser.get(again)
        until(browser, lambda: visible(browser, "#item"))
        press(browser, Keys.ESCAPE)
        assert chosen(browser) == (5, 4)
        press(browser, Keys.ENTER)
        assert len(saved(session)) == 1
    console_errors(browser)


def test_a_second_tab_is_told(browser: Chrome, session: Session, url: str) -> None:
    open_page(browser, url)
    press(browser, Keys.ESCAPE, "1", "1", Keys.ENTER)
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    browser.get(url)
    until(browser, lambda: visible(browser, "#notice"))
    assert text(browser, "#notice-title") == "This session is open in another tab"
    press(browser, "5", "5", "u")
    assert len(saved(session)) == 1
    browser.find_element(By.ID, "notice-button").click()
    until(browser, lambda: visible(browser, "#item"))
    press(browser, "2", "2", Keys.ENTER)
    second = browser.current_window_handle
    browser.switch_to.window(first)
    assert text(browser, "#notice-title") == "This session is open in another tab"
    browser.close()
    browser.switch_to.window(second)
    assert [answer.fluency for answer in saved(session).values()] == [1, 2]
    assert console_errors(browser) == []


def test_answers_from_another_browser_are_not_lost(
    opened: Chrome, session: Session, url: str
) -> None:
    first, second, *_ = order(session)
    Client(url).save(0, {"variant_id": first, "fluency": 3, "reasoning": 3})
    press(opened, "1", "1", Keys.ENTER)
    until(opened, lambda: visible(opened, "#trouble"))
    assert "answers were given in another place" in text(opened, "#trouble")
    assert item(opened) == 2
    assert saved(session) == {first: Answer(first, 3, 3)}
    press(opened, "5", "5", Keys.ENTER)
    assert saved(session)[second] == Answer(second, 5, 5)
    assert not visible(opened, "#trouble")
    assert any("409" in error for error in console_errors(opened))


@pytest.fixture
def strange(session: Session) -> Session:
    """A session with an item of another format, whose texts are hostile."""
    path = session.folder / "sample.jsonl"
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    texts = {"reading_passage": f"🙂 {EVIL} cat", "question": "Which cat?", "answer": "שלום cat"}
    spans = {name: [[text.index("cat"), text.index("cat") + 3]] for name, text in texts.items()}
    row |= {
        "label": EVIL,
        "seed_texts": {name: text.replace("cat", "dog") for name, text in texts.items()},
        "variant_texts": texts,
        "seed_spans": spans,
        "variant_spans": spans,
    }
    row.pop("crc32", None)
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    described = session.folder / "session.json"
    description = json.loads(described.read_text(encoding="utf-8"))
    del description["sha256"], description["sample_sha256"]  # as in earlier sessions
    described.write_text(json.dumps(description), encoding="utf-8")
    return read_session(session.folder)


def test_texts_are_texts(browser: Chrome, strange: Session) -> None:
    with serving(strange, "ann") as (_, url):
        open_page(browser, url)
        press(browser, Keys.ESCAPE)
        names = [name.text for name in browser.find_elements(By.CSS_SELECTOR, "#variant dt")]
        assert names == ["reading passage", "question", "answer"]
        (shown,) = strange.items.values()
        words = browser.find_elements(By.CSS_SELECTOR, "#variant dd")
        assert [word.text for word in words] == list(shown.variant_texts.values())
        marks = browser.find_elements(By.CSS_SELECTOR, "#variant mark")
        assert [mark.text for mark in marks] == ["cat", "cat", "cat"]
        assert text(browser, "#label") == EVIL
        assert browser.find_elements(By.CSS_SELECTOR, "main img, main script") == []
        assert browser.title == "Annotate variants – MERGE"
        assert console_errors(browser) == []
        heights = browser.execute_script(
            "return ['original', 'variant'].map((side) => [...document.querySelectorAll("
            "`#${side} dt`)].map((name) => name.getBoundingClientRect().top))"
        )
        assert heights[0] == heights[1]  # side by side


def test_nothing_foreign_runs(opened: Chrome) -> None:
    refused = """
        const done = arguments[0];
        const made = [];
        const attempt = (act) => { try { act(); made.push(act); } catch { /* as it should */ } };
        attempt(() => { document.body.innerHTML = "<p>"; });
        attempt(() => { document.createElement("script").src = "data:,"; });
        attempt(() => { document.createElement("script").textContent = "document.title = 1"; });
        fetch("http://127.0.0.1:9/").then(() => done("reached"), () => done(made.length));
    """
    assert opened.execute_async_script(refused) == 0
    assert any("Content Security Policy" in error for error in console_errors(opened))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_on_a_phone(opened: Chrome, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    try:
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        wide = "return document.documentElement.scrollWidth"
        assert opened.execute_script(wide) == PHONE["width"]
        press(opened, "g")
        assert opened.execute_script(wide) == PHONE["width"]
        inner = (
            "const e = document.querySelector('.guidelines'); return e.scrollWidth - e.clientWidth"
        )
        assert opened.execute_script(inner) == 0
        press(opened, "g")
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def opened_pairs(browser: Chrome, pairs: Session) -> Iterator[Chrome]:
    """The page with pairs; afterwards, there must be no errors or outside requests."""
    with serving(pairs, "ann") as (_, address):
        open_page(browser, address)
        yield browser
        assert console_errors(browser) == []
        assert outside(requests(browser)) == []


def chosen_answer(browser: Chrome) -> str | None:
    script = "return document.querySelector('[name=equivalent]:checked')?.value ?? null"
    answer: str | None = browser.execute_script(script)
    return answer


def test_pairs_by_keyboard(opened_pairs: Chrome, pairs: Session) -> None:
    press(opened_pairs, Keys.ESCAPE)
    expected = {}
    for number, item in enumerate(shuffled(pairs.items, "ann")):
        assert text(opened_pairs, "#shared") == f"premise of both {item.seed_texts['premise']}"
        assert text(opened_pairs, "#original dd") == item.seed_texts["hypothesis"]
        assert text(opened_pairs, "#variant dd") == item.variant_texts["hypothesis"]
        assert text(opened_pairs, "#variant-title").lower() == "paraphrase"
        assert not visible(opened_pairs, ".label")
        assert opened_pairs.find_elements(By.CSS_SELECTOR, "#texts mark") == []
        press(opened_pairs, "y" if number % 2 else "n")
        comment = "n or y?" if number == 1 else ""
        if comment:
            press(opened_pairs, "c")
            press(opened_pairs, comment)
        press(opened_pairs, Keys.ENTER)
        expected[item.variant_id] = Equivalence(item.variant_id, bool(number % 2), comment)
        assert saved(pairs) == expected
    assert text(opened_pairs, "#notice-title") == "All done, thank you"


def test_changing_and_taking_back(opened_pairs: Chrome, pairs: Session) -> None:
    press(opened_pairs, Keys.ESCAPE, Keys.ENTER)
    assert text(opened_pairs, "#state") == "Answer first: yes or no"
    press(opened_pairs, "5", "f", "r", Keys.ARROW_UP)
    assert (chosen_answer(opened_pairs), saved(pairs)) == (None, {})
    press(opened_pairs, "y", "n")
    assert chosen_answer(opened_pairs) == "false"
    press(opened_pairs, "u")
    assert (chosen_answer(opened_pairs), text(opened_pairs, "#state")) == (None, "")
    press(opened_pairs, "n", Keys.ENTER)
    first = shuffled(pairs.items, "ann")[0].variant_id
    assert saved(pairs) == {first: Equivalence(first, False)}
    opened_pairs.refresh()
    until(opened_pairs, lambda: visible(opened_pairs, "#item"))
    assert text(opened_pairs, "#item-title").startswith("Item 2 of")
    press(opened_pairs, Keys.ARROW_LEFT)
    assert (chosen_answer(opened_pairs), text(opened_pairs, "#state")) == ("false", "Saved")
    press(opened_pairs, "o")
    assert text(opened_pairs, "#item-title").startswith("Item 2 of")
    press(opened_pairs, Keys.BACKSPACE)
    assert (chosen_answer(opened_pairs), saved(pairs)) == (None, {})
    opened_pairs.find_element(By.CSS_SELECTOR, "[name=equivalent][value='true']").click()
    opened_pairs.find_element(By.ID, "save").click()
    until(opened_pairs, lambda: saved(pairs))
    assert saved(pairs) == {first: Equivalence(first, True)}


def test_guidelines_are_about_meaning(opened_pairs: Chrome) -> None:
    examples = opened_pairs.find_elements(By.CSS_SELECTOR, ".examples li")
    assert sum(example.is_displayed() for example in examples) == 5
    assert "mean the same" in text(opened_pairs, "#guidelines")
    assert "Fluency" not in text(opened_pairs, "#guidelines")
    press(opened_pairs, Keys.ESCAPE)
    assert text(opened_pairs, "#open") == "Next open o"
    (keys,) = (each for each in opened_pairs.find_elements(By.CSS_SELECTOR, ".keys") if each.text)
    assert keys.text.startswith("y yes · n no · Enter save")
