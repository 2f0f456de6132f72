import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from merge_dataset.checks import check_dataset
from merge_dataset.checks.rules import CHECKS, Finding, check
from merge_dataset.layout import CARD

ROOT = Path(__file__).parents[3]


def test_how_to_add_a_check(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(@check.*?)```", text, re.DOTALL)
    monkeypatch.setitem(CHECKS, "contents", [*CHECKS["contents"]])  # put back afterwards
    names = {"CARD": CARD, "Finding": Finding, "Iterator": Iterator, "Path": Path, "check": check}
    exec(code, names)
    assert check_dataset(dataset) == []
    card = dataset / CARD
    card.write_text(card.read_text(encoding="utf-8") + "\nRead this!\n", encoding="utf-8")
    (problem,) = check_dataset(dataset)
    assert problem == "README.md: expected no exclamation marks; got Read this!"
