"""Every figure on the pages has a source, given section by section in `claims.toml`."""

import csv
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import yaml
from helpers.judged import JUDGED

from merge_dataset.known_sources import SOURCES, source_of
from merge_dataset.provenance import READ
from merge_dataset.schema import KNOWN_SOURCES
from merge_metric.agreement.judgements import read_judgements
from merge_metric.agreement.shares import wilson

ROOT = Path(__file__).parents[1]

CLAIMS: Final[dict[str, dict[str, list[str]]]] = tomllib.loads(
    (ROOT / "tests/claims.toml").read_text(encoding="utf-8")
)
"""Page → heading → figures, in order, and their source."""

ELSEWHERE: Final = {"THIRD-PARTY.md", "CHANGELOG.md", "merge_metric/reproduce.md"}
"""Pages without claims of ours, and the page whose commands have a separate test."""

PAGES: Final = [
    "merge_dataset/card.md.j2",
    *sorted(
        str(path.relative_to(ROOT))
        for folder in (".", "docs", "generation", "merge_dataset", "merge_metric")
        for path in (ROOT.glob("*.md") if folder == "." else (ROOT / folder).rglob("*.md"))
        if str(path.relative_to(ROOT)) not in ELSEWHERE
    ),
]

_NO_TEXT: Final = (
    r"^```.*?^```$|^    .*?$",
    r"<!-- benchmarks -->.*?<!-- /benchmarks -->",  # written by the benchmarks
    r"`[^`\n]*`",
    r"\]\([^)]*\)",
    r"https?://\S+",
    r"\bv?\d+\.\d+\.\d+\b|\b(?:19|20)\d\d\b",
)
"""Code, addresses, versions and years."""

_UNIT: Final = (
    "%|in a hundred|of a hundred|minutes|hours|core hours|times|points|dollars|GB|MB|s|ms"
)
FIGURE: Final = re.compile(rf"(?<![\w.−-])\.?\d[\d,.]*(?: ?(?:{_UNIT})\b| ?%)?(?!\w)")

SMALL: Final = re.compile(
    rf"\[#,|, #\]|\| #(?: [|/[])|/ # \||# of \d|\d of #|# to [\d.,]+ ?(?:{_UNIT})"
)
"""A number (#) below 30 is a figure in intervals, counts, ranges and separate cells."""

KINDS: Final = ("computed by", "stands in", "cites", "is set", "describes", "was measured by")
"""A test, a file, a document; a limit, default, version or example; bundled files; a command that
was run once, as it takes too long, or needs too much, for a test."""


def figures(page: str) -> Iterator[tuple[str, str]]:
    """Yield heading and figure: a number with unit or decimals, of 30 or more, or marked as one."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for pattern in _NO_TEXT:
        text = re.sub(pattern, "", text, flags=re.DOTALL | re.MULTILINE)
    heading = ""
    for line in text.splitlines():
        if result := re.match(r"#+ (.*)", line):
            heading = result[1]
            continue
        for match in FIGURE.finditer(line):
            number, _, unit = match[0].rstrip("., ").replace("%", " %").partition(" ")
            number = number.rstrip(".,")
            around = f"{line[: match.start()]}#{line[match.start() + len(number) :]}"
            large = "." in number or int(number.replace(",", "")) >= 30
            if unit or large or SMALL.search(around):
                yield heading, " ".join([number, *unit.split()])


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_has_a_source(page: str) -> None:
    result: dict[str, list[str]] = {}
    for heading, figure in figures(page):
        result.setdefault(heading, []).append(figure)
    stated = CLAIMS.get(page, {})
    for heading in result.keys() | stated.keys():
        named = "  ".join(result.get(heading, []))
        text, *sources = stated.get(heading, [""])
        assert text == named, f"{page}: tests/claims.toml:\n{heading!r} = [{named!r}, 'SOURCE']"
        assert sources, f"{page}, {heading}: expected a source"
        for source in sources:
            check_source(source, page, named.split("  "))


def check_source(source: str, page: str, named: list[str]) -> None:
    kind, _, what = source.partition(": ")
    assert kind in KINDS, f"{page}: expected {', '.join(KINDS)}, got {source!r}"
    if kind == "computed by":
        path, _, test = what.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{page}: {source}"
    elif kind == "stands in":
        text = (ROOT / what).read_text(encoding="utf-8")
        assert [item for item in named if item.split()[0] not in text] == [], f"{page}: {source}"
    elif kind == "cites":
        assert what in (ROOT / page).read_text(encoding="utf-8"), f"{page}: {source}"


def test_claims_are_of_pages() -> None:
    assert CLAIMS.keys() <= set(PAGES)


def test_figures_of_the_judged_variants() -> None:
    first, second = (read_judgements([folder]) for folder in JUDGED)
    sizes = [len(item.variant_ids) for item in (first, second)]
    good = [float(item.good.mean()) for item in (first, second)]
    doubtful = sum(int((item.mean("R") < 4).sum()) for item in (first, second)) / sum(sizes)
    assert 0.02 <= doubtful <= 0.03  # "2 to 3 in a hundred"
    readme, card = (
        " ".join((ROOT / page).read_text(encoding="utf-8").split())
        for page in ("README.md", "merge_dataset/card.md.j2")
    )
    shares = [round(100 * share) for share in good]
    assert (
        "Of {} and of {} variants by two small masked LMs {} and {} % read well, and 2 to 3 in a "
        "hundred should have another label. The judge was one language model, not people."
    ).format(*sizes, *shares) in readme
    assert (
        f"of {sum(sizes)} variants by two small ones, a language model, not people, found "
        f"{round(100 * float(np.average(good, weights=sizes)))} % good, and the label doubtful in "
        f"{round(100 * doubtful)} %"
    ) in card


def test_figures_of_the_recipe_clean() -> None:
    folder = ROOT / "tests/data/judged_clean"
    with (folder / "readings.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len({(row["recipe"], row["variant_id"].partition("/")[0]) for row in rows}) == len(rows)

    def share(recipe: str, blind: str) -> str:
        mine = [
            row["good"] == "true"
            for row in rows
            if row["recipe"] == recipe and row["blind"] in blind
        ]
        low, high = (round(100 * bound) for bound in wilson(sum(mine), len(mine)))
        return f"{len(mine)} {100 * sum(mine) / len(mine):.0f} % [{low}, {high}]"

    clean, default = share("clean", "true false"), share("default", "true")
    assert [clean, default] == ["45 51 % [37, 65]", "35 31 % [19, 48]"]
    made = f"Of 45 such variants by two small masked LMs {clean[3:]} read well"
    assert READ["mlms"] == f"{made}, of 35 by default {default[3:]}"
    page = (folder / "README.md").read_text(encoding="utf-8")
    for name, recipe, blind in (
        ("`clean`, known", "clean", "false"),
        ("`clean`, blind", "clean", "true"),
        ("by default, blind", "default", "true"),
    ):
        count, _, result = share(recipe, blind).partition(" ")
        assert f"| {name} | {count} | {result} |" in page


def test_figures_of_clean_with_a_causal_lm() -> None:
    folder = ROOT / "tests/data/judged_lm"
    with (folder / "readings.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))

    def scores(row: dict[str, str], *readers: str) -> float:
        names = [f"{kind}_{reader}" for reader in readers for kind in ("fluency", "reasoning")]
        return sum(int(row[name]) for name in names) / len(readers)

    def share(recipe: str, least: float = 0) -> str:
        mine = [
            scores(row, "a", "b") >= 9
            for row in rows
            if row["recipe"] == recipe and float(row["quality"]) >= least
        ]
        low, high = (round(100 * bound) for bound in wilson(sum(mine), len(mine)))
        return f"{len(mine)} | {100 * sum(mine) / len(mine):.0f} [{low}, {high}]"

    pages = [
        " ".join((ROOT / name).read_text(encoding="utf-8").split())
        for name in ("generation/signals.md", "tests/data/judged_lm/README.md", "README.md")
    ]
    for recipe, known in (("clean", "62 % [49, 73]"), ("default, better half", "48 % [35, 61]")):
        n, _, result = share(recipe).partition(" | ")
        assert result == known.replace(" %", "")
        assert all(known in text for text in (READ["lm"], *pages[1:]))
        assert f"| {n} | {result} |" in pages[0]
        assert f"| {recipe} | {n} | {known} |" in pages[1]
    assert f"| {share('default, other half')} |" in pages[0]
    assert f"| {share('clean', 0.6)} |" in pages[0]
    assert [share("clean", least).split()[2] for least in (0.6, 0.7)] == ["73", "73"]
    alike = [(scores(row, "a") >= 9) == (scores(row, "b") >= 9) for row in rows]
    assert f"in {100 * sum(alike) / len(alike):.0f} % (κ .88)" in pages[1]


def test_figures_of_the_demo_are_those_of_its_output() -> None:
    shown = re.findall(r"^all  .*$", (ROOT / "README.md").read_text("utf-8"), flags=re.MULTILINE)[0]
    for page in ("README.md", "docs/pypi.md"):
        message = [item for _, item in figures(page) if item.endswith("%") and "." in item]
        assert message, page
        assert {item.removesuffix(" %") for item in message} <= set(shown.split()), page


CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
WORKS = [CITATION["preferred-citation"], *CITATION["references"]]


def entries() -> dict[str, dict[str, str]]:
    """Address → fields of each BibTeX entry of a card with all sources."""
    text = (ROOT / "merge_dataset/card.md.j2").read_text(encoding="utf-8")
    text += "".join(source.citation or "" for source in SOURCES.values())
    result = {}
    for entry in re.findall(r"^@.*?^}", text, flags=re.DOTALL | re.MULTILINE):
        field = r"^  (\w+) = \{(.*?)\}(?:,\n(?=  \w+ = )|\n\})"
        fields = dict(re.findall(field, entry, flags=re.DOTALL | re.MULTILINE))
        result[fields["url"]] = {name: plain(value) for name, value in fields.items()}
    return result


def plain(text: str) -> str:
    text = text.replace(r"{\u{a}}", "ă").replace("{", "").replace("}", "")
    return " ".join(text.split())


def test_required_fields() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION["message"]
    assert CITATION["title"]
    assert CITATION["type"] == "software"
    assert CITATION["authors"]
    assert (CITATION["version"], CITATION["license"]) == (project["version"], project["license"])
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = next(line for line in changes.splitlines() if re.match(r"## \d", line))
    assert newest.split()[1] == project["version"]
    for work in WORKS:
        assert {"type", "title", "authors"} <= work.keys()
        for person in work["authors"]:
            assert set(person) == {"family-names", "given-names"}


def test_the_works_are_those_of_the_cards() -> None:
    assert len(WORKS) == len(entries())
    assert {work["url"] for work in WORKS} == set(entries())
    assert CITATION["preferred-citation"]["url"] == next(iter(entries()))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert CITATION["preferred-citation"]["url"] in readme


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work["url"].rpartition("/")[2])
def test_a_work_agrees_with_the_cards(work: dict[str, Any]) -> None:
    entry = entries()[work["url"]]
    assert work["title"] == entry["title"]
    authors = [f"{person['family-names']}, {person['given-names']}" for person in work["authors"]]
    assert " and ".join(authors) == entry["author"]
    assert str(work["year"]) == entry["year"]
    assert work.get("collection-title") == entry.get("booktitle")
    if "pages" in entry:
        assert f"{work['start']}--{work['end']}" == entry["pages"]
    identifier = work["url"].rpartition("/")[2]
    if "eprint" in entry:
        assert entry["eprint"] == identifier
        assert work["doi"] == f"10.48550/arXiv.{identifier}"
    elif "doi" in work:
        assert work["doi"] == f"10.18653/v1/{identifier}"


def test_each_known_source_is_one_row() -> None:
    assert tuple(SOURCES) == KNOWN_SOURCES
    assert [name for name, source in SOURCES.items() if source.hub is None] == ["demo"]
    assert source_of("mine").licence_ids == ("unknown",)
    assert source_of("mine").source_dataset == "extended|other-mine"
