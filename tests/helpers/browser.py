import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

LOCAL_SCHEMES = ("about", "blob", "chrome", "chrome-untrusted", "data", "file")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
    "--disable-background-networking", "--force-device-scale-factor=1", "--lang=en",
    f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {LOOPBACK[0]}, EXCLUDE {LOOPBACK[1]}",
)  # fmt: skip


@contextmanager
def chromium(folder: Path) -> Iterator[Chrome]:
    """A browser whose profile and downloads are in `folder`; an error if none is installed."""
    options = ChromeOptions()
    options.binary_location = _program("chromium", "google-chrome", "chrome")
    for option in (*OPTIONS, "--window-size=1280,1000", f"--user-data-dir={folder}"):
        options.add_argument(option)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(_program("chromedriver")))
    try:
        driver.get("about:blank")  # leave the browser's own start page,
        driver.get_log("performance")  # and forget its requests
        yield driver
    finally:
        driver.quit()


def _program(*names: str) -> str:
    for name in names:
        if result := shutil.which(name):
            return result
    raise FileNotFoundError(
        f"expected {' or '.join(names)} on the PATH, found none: "
        "tests marked `browser` need Chromium and chromedriver (Debian: chromium-driver)"
    )


def console_errors(driver: Chrome) -> list[str]:
    """Errors in the console of pages since the last call, uncaught ones included."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def requests(driver: Chrome) -> list[str]:
    """URLs that pages requested since the last call, in order."""
    messages = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


def outside(urls: list[str]) -> list[str]:
    return [
        url
        for url in urls
        if urlsplit(url).scheme not in LOCAL_SCHEMES and urlsplit(url).hostname not in LOOPBACK
    ]
