"""Files are synced before they get their names: a crash of the machine loses none."""

import pytest

from faults.attack import Attack
from faults.commands import COMMANDS, Workshop


@pytest.mark.slow
def test_synced_before_renamed(attack: Attack, workshop: Workshop) -> None:
    ends = "passes: what has its name after a crash of the machine is whole"
    for attempt in attack.tries("synced before renamed", len(COMMANDS), ends):
        name = sorted(COMMANDS)[attempt.number]
        with attempt:
            good = workshop.undisturbed(name)
            assert unsynced(good.changes, good.after) == [], name


def unsynced(changes: list[str], files: dict[str, str]) -> list[str]:
    synced: set[str] = set()
    result = []
    for change in changes:
        what, name, *new = change.split()
        if what == "fsync":
            synced.add(name)
        elif what == "open":
            synced.discard(name)
        elif what == "os.rename" and not name.startswith("hf/datasets") and ".old" not in new[0]:
            inside = [file.removeprefix(new[0]) for file in files if file.startswith(f"{new[0]}/")]
            result += [f"{name}{rest}" for rest in inside or [""] if f"{name}{rest}" not in synced]
            synced |= {f"{new[0]}{rest}" for rest in inside or [""] if f"{name}{rest}" in synced}
    return result


def test_what_is_not_synced_is_found() -> None:
    file = ["open a", "fsync a", "open a", "os.rename a b"]
    folder = ["open f/x", "open f/y", "fsync f/x", "os.rename f g"]
    good = ["open c", "fsync c", "os.rename c d", "os.rename d .d.old"]
    files = dict.fromkeys(("b", "g/x", "g/y", "d"), "")
    assert unsynced([*file, *folder, *good], files) == ["a", "f/y"]
