"""Commands as pages show them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]


def section(page: str, heading: str) -> str:
    """The text below a heading of a page, until the next of level 2."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert found is not None
    return found[1]


def commands(text: str) -> list[list[str]]:
    """Words after `merge-nli` of each line in the shell blocks of a text."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(line) for line in lines]
    assert {program for program, *_ in words} == {"merge-nli"}
    return [arguments for _, *arguments in words]
