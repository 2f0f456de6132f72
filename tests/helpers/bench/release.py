"""The release's table of measurements: keep it, or compare a new measurement with it."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from helpers.bench.contender import FOLDER, ROOT

KEPT: Final = ROOT / "tests" / "benchmarks"
PAGE: Final = ROOT / "generation" / "scale.md"
START, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"

SLOWER: Final = 0.85
"""A ratio is slower below this share of the kept one, if the rounds' ranges do not overlap."""

_SHOWN: Final = (
    ("suggestions", "suggestions, BERT-base"), ("suggestions", "suggestions, minilm-l6-mlm"),
    ("classifier", "classifier, minilm-l6-nli"), ("language-model", "language model"),
    ("metric", "metric, 1,000,000 rows"),
)  # fmt: skip
"""Section and beginning of rows; the page shows the first row of each."""

Measurements = Sequence[Mapping[str, Any]]


def rows_of(measurements: Measurements) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows that have a ratio, each with a unique name."""
    for measurement in measurements:
        for row in measurement["rows"]:
            if row["ratio"]:
                yield f"{row['what']}: {row['ours']['name']} / {row['theirs']['name']}", row


def slower(kept: Measurements, new: Measurements) -> list[str]:
    before, result = dict(rows_of(kept)), []
    for name, row in rows_of(new):
        if name not in before:
            continue
        was, now = before[name]["ratio"], row["ratio"]
        if now["median"] < SLOWER * was["median"] and now["high"] < was["low"]:
            result.append(f"slower: {name}: {_ratio(now)}, was {_ratio(was)}{_shares(row)}")
    return result


def headline(measurements: Measurements) -> list[str]:
    """Make the page's lines: task, speed-up, peer, shares of the matrix product."""
    lines = []
    for section, beginning in _SHOWN:
        rows = (
            row
            for measurement in measurements
            if measurement["section"] == section
            for row in measurement["rows"]
            if row["what"].startswith(beginning) and row["ratio"]
        )
        if row := next(rows, None):
            lines.append(
                f"- {row['what']}: {_ratio(row['ratio'])} as fast as {row['theirs']['name']}"
                f"{_shares(row)}"
            )
    return lines


def with_lines(page: str, lines: Sequence[str]) -> str:
    start, end = page.find(START), page.find(END)
    if not 0 <= start < end:
        raise ValueError(f"expected {START} and {END} in the page, found none")
    return page[: start + len(START)] + "\n" + "\n".join(lines) + "\n" + page[end:]


def keep() -> None:
    for name in ("results.md", "results.json"):
        shutil.copyfile(FOLDER / name, KEPT / name)
    page, lines = PAGE.read_text(encoding="utf-8"), headline(_read(FOLDER / "results.json"))
    PAGE.write_text(with_lines(page, lines), encoding="utf-8")
    print(f"{KEPT}/results.md, results.json written; in scale.md:", *lines, sep="\n")


def check() -> int:
    """Compare new measurements with the kept table; return 1 if something is slower."""
    kept = KEPT / "results.json"
    if not kept.is_file():
        print(f"{kept}: expected the table of the release, found none; make bench bench-keep")
        return 2
    before = _read(kept)
    new = [item for item in _read(FOLDER / "results.json") if item not in before]
    known = dict(rows_of(before))
    compared = sum(name in known for name, _ in rows_of(new))
    result = slower(before, new)
    print(*result, f"{compared} ratios compared, {len(result)} slower", sep="\n")
    return int(bool(result))


def _ratio(ratio: Mapping[str, float]) -> str:
    return f"{ratio['median']:.3g}× ({ratio['low']:.3g}–{ratio['high']:.3g})"


def _shares(row: Mapping[str, Any]) -> str:
    shares = row.get("shares") or ()
    if len(shares) < 2:
        return ""
    return f"; {shares[0]:.0%} and {shares[1]:.0%} of a packed matrix product"


def _read(path: Path) -> Measurements:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(keep() if sys.argv[1:] == ["keep"] else check())
