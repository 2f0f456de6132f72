"""Try mutants, each in a copy of the tree: `make test-mutants`, or `run.py WORD…`."""

import importlib
import io
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = ROOT / "tests" / "mutants" / "mutants.toml"
PACKAGES: Final = ("generation", "merge_dataset", "merge_metric")
LIBRARIES: Final = (
    "hypothesis", "numpy", "pandas", "pyarrow.parquet", "pyarrow.compute", "scipy.stats", "torch",
    "transformers", "transformers.modeling_utils", "spacy", "datasets", "evaluate",
    "sklearn.metrics", "statsmodels.stats.proportion", "matplotlib.figure", "inflect",
    "wordfreq", "typer.testing",
)  # fmt: skip
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
    """Run tests in a fork until one fails; return its name, or None if all pass."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        status = 1
        try:
            text = _run_pytest(tree, tests, options)
            os.write(writing, json.dumps(text).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    end = time.monotonic() + LONGEST
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.05)
    if not ended[0]:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return "(the tests hang)"
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    return "(the process ends)" if not text else json.loads(text)


def _run_pytest(tree: Path, tests: Sequence[str], options: Sequence[str]) -> str | None:
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree)
    sys.path[:] = [str(tree), *(item for item in sys.path if not Path(item).is_relative_to(ROOT)
                                or ".venv" in item)]  # fmt: skip
    sys.dont_write_bytecode = True
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(text):
        code = pytest.main(
            [
                "-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "-W",
                "ignore::pytest.PytestAssertRewriteWarning", *options, *tests,
            ]
        )  # fmt: skip
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    # Names of cases may have spaces; " - " precedes the message.
    if result := re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", text.getvalue(), re.MULTILINE):
        return result[1]
    return text.getvalue()[-300:].strip() or f"(exit status {code})"


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
    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)
    counts: Counter[str] = Counter()
    # Not a Pool: its workers may not have children, which some tests start.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        for tried in as_completed([pool.submit(_tried, mutant) for mutant in mutants]):
            mutant, what, test = tried.result()
            counts[what] += 1
            print(f"{what:<6} {mutant.breaks}: {test}".rstrip(": "), flush=True)
    print(f"{len(mutants)} mutants: {', '.join(f'{n} {what}' for what, n in counts.items())}")
    return 1 if set(counts) - {*TIERS} else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
