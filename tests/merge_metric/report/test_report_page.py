import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote

import jinja2
import pytest
from helpers.report_data import EVIL
from jinja2.meta import find_undeclared_variables

from merge_metric.report import write
from merge_metric.report.evidence import Evidence
from merge_metric.report.sections import HEADLINE, MATCHING, RELAXED, cell, interval_text, shown
from merge_metric.report.seeds import SourceSeeds
from merge_metric.report.write import ACROSS, UP, is_best, render_html, step_path
from merge_metric.seed_variant_accuracy.figures import Figure

SV90 = next(column for column in HEADLINE if column.key == "sv_at_90")
VOID = {"meta", "link", "input", "br", "wbr", "img", "hr", "col"}


def test_templates_use_all_that_they_may() -> None:
    """The list of what templates may call names nothing that none calls."""
    environment = write.templates()
    ours = environment.globals.keys() - jinja2.Environment().globals.keys()
    environment.globals.clear()
    texts = [
        environment.loader.get_source(environment, name)[0] for name in environment.list_templates()
    ]
    used = (find_undeclared_variables(environment.parse(text)) for text in texts)
    assert ours <= set().union(*used)


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append((dict(attrs).get("class") or "", []))
        elif tag == "tr" and "table" in self.open:
            self.tables[-1][1].append([])
        elif tag in ("td", "th") and "table" in self.open:
            self.tables[-1][1][-1].append("")
        elif tag in ("script", "style"):
            self.raw.append((tag, dict(attrs), ""))
        elif tag == "small" and self.open and "tr" in self.open:
            self.tables[-1][1][-1][-1] += " "
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            tag, attributes, text = self.raw[-1]
            self.raw[-1] = (tag, attributes, text + data)
            return
        self.text += data
        if "tr" in self.open and ("td" in self.open or "th" in self.open):
            self.tables[-1][1][-1][-1] += data

    def rows(self, kind: str, nth: int = 0) -> list[list[str]]:
        tables = [rows for name, rows in self.tables if kind in name.split()]
        return [[" ".join(text.split()) for text in row] for row in tables[nth]]


@pytest.fixture(scope="module")
def parsed(page: str) -> Page:
    return Page(page)


def text_of(result: dict[str, Any], figure: Figure) -> str:
    return f"{shown(result, figure)} {interval_text(cell(result, figure))}".strip()


def threshold(low: float, high: float | None = None) -> dict[str, float]:
    """A matching threshold, by default without equally close ones."""
    ends = {"matching_threshold_low": low, "matching_threshold_high": high or low}
    return {"matching_threshold": low, **ends}


def test_headline_shows_what_score_gives(parsed: Page, evidence: Evidence) -> None:
    assert parsed.open == []
    assert [tag for tag, _ in parsed.elements].count("h1") == 1
    for nth, configuration in enumerate(evidence.configurations):
        rows = parsed.rows("figures", nth)[2:]
        for name, result, row in zip(evidence.names, configuration.results, rows, strict=True):
            assert result is not None
            assert row == [name, *(text_of(result, column) for column in HEADLINE)]


def test_cells_by_hand() -> None:
    result = {
        "seed_accuracy": 0.8125, "seed_accuracy_ci": [0.75, 1.0], **threshold(56.0),
        "relaxed_fooling_rate": None, "relaxed_fooling_rate_ci": None,
        "sv_curve": {"accuracy": [0.9] * 89 + [0.5] * 11, "low": [0.25] * 100,
                     "high": [1.0] * 100},
    }  # fmt: skip
    cells = {column.key: cell(result, column) for column in HEADLINE if column.key in result}
    assert cells["seed_accuracy"] == (81.25, 75.0, 100.0)
    assert interval_text(cells["seed_accuracy"]) == "75.0–100"
    assert cells["matching_threshold"] == (56.0, None, None)
    assert cells["relaxed_fooling_rate"] == (None, None, None)
    assert cell(result, SV90) == (50.0, 25.0, 100.0)
    # Wide ranges of thresholds have no value; narrow ones have their lower end.
    perfect, other = result | threshold(1.0, 100.0), result | threshold(86.0, 90.0)
    assert shown(perfect, MATCHING) == "1–100"
    assert cell(perfect, MATCHING) == (None, None, None)
    assert shown(other, MATCHING) == "86.0"


def test_best_figures() -> None:
    """The highest displayed figure is best, or the lowest fooling rate; a single model has none."""
    results = [{"relaxed_fooling_rate": 0.2, **threshold(51.0)}]
    assert not is_best(results, results[0], RELAXED)
    results.append({"relaxed_fooling_rate": 0.3, **threshold(51.0)})
    assert [is_best(results, result, RELAXED) for result in results] == [True, False]
    assert [is_best(results, result, MATCHING) for result in results] == [True, True]
    results[0] |= threshold(1.0, 100.0)
    assert [is_best(results, result, MATCHING) for result in results] == [False, True]


def test_paths_are_the_curves() -> None:
    curve = [1.0, 1.0, 0.875, 0.875, *[0.4] * 95, 0.1]
    path = step_path(curve)
    x, y, walked = 0.0, 0.0, []
    for command, first, second in re.findall(r"([MHV])([\d.]+)(?: ([\d.]+))?", path):
        if command == "H":
            while x < float(first) - 1e-9:
                walked.append(round(100 - y / UP, 1))
                x += ACROSS
        else:
            y = float(second or first)
    assert walked == [round(100 * share, 1) for share in curve]


def test_texts_stay_texts(page: str, parsed: Page) -> None:
    assert EVIL not in page
    assert "img" not in {tag for tag, _ in parsed.elements}
    assert "onerror" not in {name for _, attributes in parsed.elements for name in attributes}
    data = next(text for tag, of, text in parsed.raw if of.get("id") == "data")
    assert "<" not in data
    premises = json.loads(data)["sources"][1]["premises"]
    assert sum(EVIL in premise for premise in premises) == 1
    assert f"kind: <i>{EVIL}" in parsed.text


def test_only_its_own_scripts_run(parsed: Page) -> None:
    head = "Content-Security-Policy"
    (policy,) = (of["content"] or "" for _, of in parsed.elements if of.get("http-equiv") == head)
    rules = {words[0]: words[1:] for words in (rule.split() for rule in policy.split("; "))}
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        texts = [text for name, of, text in parsed.raw if name == tag and "type" not in of]
        hashes = [hashlib.sha256(text.encode()).digest() for text in texts]
        assert rules[kind] == [f"'sha256-{base64.b64encode(item).decode()}'" for item in hashes]
        assert not any("</" in text for text in texts if tag == "script")
    assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}


def test_nothing_is_loaded(parsed: Page) -> None:
    for tag, attributes in parsed.elements:
        assert "src" not in attributes
        assert "style" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert tag not in ("link", "iframe", "object", "embed", "base", "img")
        assert not [name for name in attributes if name.startswith("on")]
    styles = [text for tag, _, text in parsed.raw if tag == "style"]
    assert not re.search(r"url\(|@import", "".join(styles))


def test_links_lead_somewhere(parsed: Page, sources: tuple[SourceSeeds, ...]) -> None:
    seeds = {seed for source in sources for seed in source.seeds["seed_id"].to_pylist()}
    ids = [of["id"] for _, of in parsed.elements if "id" in of]
    assert len(ids) == len(set(ids))
    for _, attributes in parsed.elements:
        for name in ("href", "for", "aria-labelledby"):
            if attributes.get(name):
                target = str(attributes[name]).removeprefix("#")
                assert target in ids or unquote(target.removeprefix("seed=")) in seeds


@pytest.mark.slow
def test_large_pages_show_fewer_variants(
    evidence: Evidence, sources: tuple[SourceSeeds, ...], page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(page.encode())
    monkeypatch.setattr(write, "MAX_BYTES", size - 500)
    smaller = render_html(evidence)
    assert len(smaller.encode()) <= size - 500
    assert "To keep the file small, " in smaller
    assert Page(smaller).rows("figures") == Page(page).rows("figures")
    monkeypatch.setattr(write, "MAX_BYTES", 1000)  # smaller than possible
    assert "None of the" in render_html(evidence)
