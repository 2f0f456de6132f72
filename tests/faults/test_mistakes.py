import re
from collections.abc import Callable
from pathlib import Path

import pytest

from faults import mistakes, small_world
from faults.attack import Attack

pytestmark = pytest.mark.slow

PYTHON = re.compile(r"Traceback|\[Errno|<class|NoneType|\bdict\b|\[\{'|\['|Error:")


def make(folder: Path) -> None:
    small_world.make(folder)
    mistakes.write_files(folder)


def test_mistakes_end_as_recorded(attack: Attack, once: Callable[..., Path]) -> None:
    """Each mistake gives its recorded message (`make mistakes`), and writes only to run folders."""
    folder = once("mistakes", make)
    everything = mistakes.recorded()
    before = set(folder.rglob("*"))
    ends = "refused: in the line that is recorded, before anything is made"
    for each in attack.tries("mistakes", len(everything), ends):
        with each:
            mistake = everything[each.number % len(everything)]
            (now,) = mistakes.tried([mistake], folder)
            assert now == mistake
            assert now.exit in (1, 2)
            assert not PYTHON.search(now.message)
            assert now.exit == 1 or now.message.startswith(("error: ", "Usage: "))
    made = {path for path in folder.rglob("*") if path.relative_to(folder).parts[0] != "runs"}
    assert made <= before, "no mistake leaves anything but problems in a run folder"


def test_there_are_enough_mistakes() -> None:
    commands = [each.command for each in mistakes.recorded()]
    assert len(commands) == len(set(commands)) >= 100
