"""Try mutants, each in a copy of the tree: `make test-mutants`, or `run.py WORD…`."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = ROOT / "tests" / "mutants" / "mutants.toml"
PACKAGES: Final = ("generation", "merge_dataset", "merge_metric")
ELSEWHERE: Final = (
    "legacy or benchmark or browser or server or distributed or ray or slurm or harness"
)
TIERS: Final = {
    "fast": [],
    "slow": ["--hypothesis-profile", "full", "-m", f"(slow or hypothesis) and not ({ELSEWHERE})"],
}
LONGEST: Final = 900
"""Most seconds of a test run; a mutant that makes tests hang is caught, too."""


@dataclass(frozen=True, slots=True)
class Mutant:
    package: str
    breaks: str
    text: str
    """Text that occurs once in the package's modules and templates, in any of them."""
    becomes: str
    tests: tuple[str, ...]
    """Names of files or folders of tests, or of modules with examples, to run first."""

    def place(self, root: Path) -> Path:
        paths = (root / self.package).rglob("*.*")
        modules = (path for path in paths if path.suffix in (".py", ".j2"))
        result = {path: path.read_text("utf-8").count(self.text) for path in modules}
        if sum(result.values()) != 1:
            raise ValueError(f"expected {self.text!r} once, got it {sum(result.values())} times")
        return next(path for path, count in result.items() if count)

    def nearest(self, root: Path) -> list[str]:
        """Paths of `tests` in any folder; names that no longer exist are ignored."""
        tops = [root / top for top in ("tests", *PACKAGES)]
        result = [path for name in self.tests for top in tops for path in sorted(top.rglob(name))]
        return [str(path.relative_to(root)) for path in result]

    def room(self, root: Path) -> list[str]:
        """The module, and the tests of its room: the folder of that name, or the files above it."""
        module = self.place(root).relative_to(root)
        tests = root / "tests" / module.parent
        while not tests.is_dir():
            tests = tests.parent
        inside = [tests] if len(module.parts) > 2 else sorted(tests.glob("test_*.py"))
        return [str(module), *(str(path.relative_to(root)) for path in inside)]


def read_mutants() -> list[Mutant]:
    entries = tomllib.loads(LIST.read_text("utf-8"))["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """Copy all files that git does not ignore; processes started by tests import them, too."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "tree"
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, copy / name)
        yield copy


def failing_test(tree: Path, tests: Sequence[str], options: Sequence[str]) -> str | None:
    """Run tests until one fails; return its name, or None if all pass."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "--tb=line"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", *options, *tests]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True,
                              check=False, timeout=LONGEST)  # fmt: skip
    except subprocess.TimeoutExpired:
        return "(the tests hang)"
    if done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    # Names of cases may have spaces; " - " precedes the message.
    if result := re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE):
        return result[1]
    return done.stdout[-300:].strip() or f"(exit status {done.returncode})"


def try_mutant(mutant: Mutant) -> tuple[str, str] | None:
    """Make a mutant in a copy; return the tier and the test that catches it, or None."""
    with copied_tree() as tree:
        path, room, nearest = mutant.place(tree), mutant.room(tree), mutant.nearest(tree)
        sound = path.read_text("utf-8")
        for tier, tests in (("fast", nearest), ("fast", room), ("slow", [*nearest, *room])):
            if not tests:
                continue
            options = TIERS[tier]
            path.write_text(sound.replace(mutant.text, mutant.becomes), "utf-8")
            if caught := failing_test(tree, tests, options):
                path.write_text(sound, "utf-8")
                alone = [caught] if "::" in caught else tests
                if failing_test(tree, alone, [*options, "-m", ""]):
                    raise RuntimeError(f"{caught} fails without the mutant, too")
                return tier, caught
    return None


def _tried(mutant: Mutant) -> tuple[Mutant, str, str]:
    """The mutant, its tier, `MISSED` or `ERROR`, and the test or the error."""
    try:
        return mutant, *(try_mutant(mutant) or ("MISSED", ""))
    except (RuntimeError, ValueError) as error:
        return mutant, "ERROR", str(error)


def main(words: Sequence[str]) -> int:
    mutants = [item for item in read_mutants() if not words or any(w in repr(item) for w in words)]
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for tried in as_completed([pool.submit(_tried, mutant) for mutant in mutants]):
            mutant, what, test = tried.result()
            counts[what] += 1
            print(f"{what:<6} {mutant.breaks}: {test}".rstrip(": "), flush=True)
    print(f"{len(mutants)} mutants: {', '.join(f'{n} {what}' for what, n in counts.items())}")
    return 1 if set(counts) - {*TIERS} else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
