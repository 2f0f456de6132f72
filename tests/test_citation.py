import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from merge_dataset.known_sources import SOURCES, source_of
from merge_dataset.schema import KNOWN_SOURCES

ROOT = Path(__file__).resolve().parents[1]
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
