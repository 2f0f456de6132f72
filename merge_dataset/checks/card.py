"""Check of the card against the data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from merge_dataset.card.render import (
    find_statistics_block,
    front_matter,
    read_front_matter,
    statistics_block,
)
from merge_dataset.card.statistics import compute_statistics
from merge_dataset.checks.registry import Finding, Stage, folder_check
from merge_dataset.layout import CARD, all_configurations


@folder_check(
    "card",
    looks_at="whether the card's YAML and statistics are those of the data",
    stage=Stage.CONTENTS,
)
def check_card(folder: Path) -> Iterator[Finding]:
    """Find what the card says otherwise than the data."""
    path = folder / CARD
    if not path.is_file():
        yield Finding(CARD, "a dataset card", "no such file")
        return
    text = path.read_text(encoding="utf-8")
    try:
        given = read_front_matter(text)
    except ValueError as error:
        yield Finding(CARD, "YAML between two lines of ---", str(error))
        return
    fresh = front_matter(folder)
    for key in ("configs", "dataset_info"):
        yield from _entry_findings(key, _by_name(fresh[key]), _by_name(given.get(key) or []))
    names = all_configurations(folder)
    want = statistics_block([compute_statistics(folder, name) for name in names])
    got = find_statistics_block(text)
    if got is None:
        yield Finding(CARD, f"a statistics block: {want.splitlines()[0]} …", "none")
    elif got != want:
        missing = [line for line in want.splitlines() if line not in got.splitlines()]
        extra = [line for line in got.splitlines() if line not in want.splitlines()]
        yield Finding(CARD, f"the statistics of the data: {missing}", str(extra))


def _entry_findings(
    key: str, fresh: dict[str, dict[str, Any]], given: dict[str, dict[str, Any]]
) -> Iterator[Finding]:
    for name in dict.fromkeys((*fresh, *given)):
        if name not in given or name not in fresh:
            expected = f"`{key}` in the YAML for {list(fresh)}"
            yield Finding(CARD, expected, f"{'none' if name in fresh else 'one'} for {name}")
            continue
        for part in dict.fromkeys((*fresh[name], *given[name])):
            want, got = fresh[name].get(part), given[name].get(part)
            if want != got:
                yield Finding(CARD, f"{part} of {name} in the YAML to be {want}", str(got))


def _by_name(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(entry.get("config_name")): entry for entry in entries}
