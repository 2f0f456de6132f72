import os
import subprocess
import sys
from pathlib import Path

import pytest

from golden.record import PROCESSOR, WHOLE, Kept, differences, processor, read, write
from golden.worlds import WORLDS

TESTS = Path(__file__).parents[1]
QUICK = [name for name, world in WORLDS.items() if world.quick]


@pytest.mark.slow(but=["options"])
@pytest.mark.parametrize("world", QUICK)
def test_commands_give_what_is_recorded(world: str) -> None:
    if world != "options" and processor() != PROCESSOR.read_text(encoding="utf-8").strip():
        pytest.skip("the record is of another processor, on which last bits of figures depend")
    done = subprocess.run(
        [sys.executable, "-m", "golden", world, "--before", str(WHOLE)], cwd=TESTS,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(TESTS.parent), str(TESTS)))},
        capture_output=True, text=True, check=False, timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]


LONG = [f"figure {n} = {n / 7}" for n in range(200)]
COMMAND = {"score a": {"exit": ["0"], "stdout": ["S  57.1", "", "  seeds: 7"], "r.json": LONG}}


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "w.txt", COMMAND)
    kept = read(tmp_path / "w.txt")
    assert kept == {
        command: {name: Kept.of(lines) for name, lines in parts.items()}
        for command, parts in COMMAND.items()
    }
    assert list(differences(kept, COMMAND, {})) == []


def test_a_difference_names_command_part_and_lines(tmp_path: Path) -> None:
    write(tmp_path / "w.txt", COMMAND)
    kept = read(tmp_path / "w.txt")
    other = [*LONG[:150], LONG[150][:-1] + "x", *LONG[151:]]
    changed = {"exit": ["2"], "stdout": ["S  57.1", "", "  seeds: 8"], "r.json": other, "b": ["1"]}
    (text,) = differences(kept, {"score a": changed}, {})
    assert "- 3:   seeds: 7" in text
    assert "+ 3:   seeds: 8" in text
    assert f"+ 151: {other[150]}" in text
    assert "- 151: (a line of digest" in text
    assert "# b: there was none" in text
    (text,) = differences(kept, {"score a": changed}, COMMAND)
    assert f"- 151: {LONG[150]}" in text
    assert [difference.split("\n")[0] for difference in differences(kept, {"score b": {}}, {})] == [
        "$ score a", "$ score b",
    ]  # fmt: skip
