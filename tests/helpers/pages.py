"""Commands on pages of the documentation."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]


def section(page: str, heading: str) -> str:
    """Text below a heading of a page, up to the next heading of level 2."""
    text = (ROOT / page).read_text(encoding="utf-8")
    result = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert result is not None
    return result[1]


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and code of each block of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[list[str]]:
    """Words after `merge-nli` in each line of a text's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(line) for line in lines]
    assert {program for program, *_ in words} == {"merge-nli"}
    return [arguments for _, *arguments in words]
