"""Try lowest and newest versions, or environments named by WORD…: `make test-bounds`."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = ROOT / ".venv-bounds"
CLONE: Final = PLACE / "clone"
DIST: Final = PLACE / "dist"
ENDS: Final = {"lowest": "lowest-direct", "newest": "highest"}
"""Our names of the ends of the bounds → names in uv."""
PACKAGES: Final = ("generation", "merge_dataset", "merge_metric")
LONGEST: Final = 3600

LOAD: Final = """
import evaluate
from datasets import load_dataset

variants = load_dataset("merge-nli", "demo_nouns", split="variants")
labels = variants["label"]
metric = evaluate.load("seed_variant_accuracy")
result = metric.compute(
    predictions=labels,
    references=labels,
    seed_ids=variants["seed_id"],
    seed_predictions=labels,
    n_bootstrap=0,
)
assert len(variants) > 1000 and result["seed_variant_accuracy"] == 1, result
"""
LACKING: Final = "error: this command needs "


@dataclass(frozen=True, slots=True)
class Trial:
    python: str
    end: str

    @property
    def name(self) -> str:
        return f"{self.python}-{self.end}"

    def environment(self, kind: str, *extras: str) -> Path:
        """Make an environment with the wheel; `--all-extras` for all. Returns its commands."""
        place = PLACE / f"{self.name}-{kind}"
        uv("venv", "--quiet", "--clear", "--python", interpreter(self.python), str(place))
        # uv applies the resolution to direct requirements, and so not to those of a wheel.
        ends = ["--resolution", ENDS[self.end], "--only-binary", ":all:"]
        uv("pip", "install", "--quiet", *ends, "-r", "pyproject.toml", *extras, into=place)
        uv("pip", "install", "--quiet", "--no-deps", str(wheel()), into=place)
        frozen = uv("pip", "freeze", into=place)
        (PLACE / f"{self.name}-{kind}.txt").write_text(frozen, encoding="utf-8")
        return place / "bin"


def main(words: Sequence[str]) -> int:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    classifiers = tomllib.loads(text)["project"]["classifiers"]
    versions = [line.rpartition(" :: ")[2] for line in classifiers]
    trials = [Trial(python, end) for python in versions for end in ENDS]
    trials = [t for t in trials if not words or any(word in t.name for word in words)]
    PLACE.mkdir(exist_ok=True)
    absent = {trial.python for trial in trials if interpreter(trial.python) is None}
    for python in sorted(absent):
        say(f"Python {python}: not on this machine, so not tried")
    trials = [trial for trial in trials if trial.python not in absent]
    if not trials:
        say(f"expected words of names such as 3.11-lowest, got {' '.join(words)}")
        return 2
    make_distributions()
    table = [("environment", "demo", "base", "tests")]
    good = True
    for trial in trials:
        say(f"\n{trial.name}")
        outcomes = [try_demo(trial), try_base(trial), try_tests(trial)]
        good = good and all(ok for ok, _ in outcomes)
        table.append((trial.name, *(message for _, message in outcomes)))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    return 0 if good else 1


# --- Trials ---


def make_distributions() -> None:
    """Build both from a clean clone, the wheel from the sdist."""
    for folder in (CLONE, DIST):
        shutil.rmtree(folder, ignore_errors=True)
    if changed := call("git", "status", "--porcelain", cwd=ROOT).stdout:
        say(f"not committed, so not tried:\n{changed}")
    call("git", "clone", "--quiet", str(ROOT), str(CLONE), cwd=ROOT, check=True)
    uv("build", "--quiet", "--out-dir", str(DIST), str(CLONE))
    tracked = set(call("git", "ls-files", cwd=CLONE, check=True).stdout.splitlines())
    (sdist,) = DIST.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel()) as archive:
        in_wheel = set(archive.namelist())
    suffixes = (".ipynb", ".md")
    pages = {file for file in tracked if file.endswith(suffixes) and "seed_variant" not in file}
    ours = {file for file in tracked if file.startswith(tuple(f"{name}/" for name in PACKAGES))}
    for kind, missing in (("sdist", tracked - in_sdist), ("wheel", ours - pages - in_wheel)):
        if missing:
            raise SystemExit(f"{kind}: expected what is tracked, these lack: {sorted(missing)}")
    say(f"sdist: all {len(tracked)} files; wheel: {len(ours - pages)} of the packages, less pages")


def try_demo(trial: Trial) -> tuple[bool, str]:
    extras = [word for name in demo_extras() for word in ("--extra", name)]
    commands = trial.environment("demo", *extras)
    place = new_folder(f"{trial.name}-demo")
    done = call(str(commands / "merge-nli"), "demo", cwd=place)
    if done.returncode or not (place / "runs" / "demo" / "report.html").is_file():
        return failed(trial, "demo", done)
    return True, "good"


def try_base(trial: Trial) -> tuple[bool, str]:
    made = PLACE / "run" / f"{trial.name}-demo" / "merge-nli"
    if not made.is_dir():
        return False, "no dataset"
    commands = trial.environment("base")
    place = new_folder(f"{trial.name}-base")
    done = call(str(commands / "merge-nli"), "demo", cwd=place)
    if done.returncode != 2 or LACKING not in done.stderr or "Traceback" in done.stderr:
        return failed(trial, "base", done)
    shutil.copytree(made, place / "merge-nli", dirs_exist_ok=True)
    ours = str(commands / "merge-nli")
    for command in (
        [ours, "register", "merge-nli"],
        [ours, "check", "merge-nli"],
        [ours, "baseline", "majority", "--dataset", "merge-nli", "--out", "majority.parquet"],
        [ours, "score", "majority.parquet", "--dataset", "merge-nli"],
        [str(commands / "python"), "-c", LOAD],
    ):
        done = call(*command, cwd=place)
        if done.returncode:
            return failed(trial, "base", done)
    return True, "good"


def try_tests(trial: Trial) -> tuple[bool, str]:
    """Run the fast tests in the clone, where warnings of libraries are no failure."""
    commands = trial.environment("tests", "--all-extras")
    options = ["-q", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
    kinds = ("DeprecationWarning", "PendingDeprecationWarning", "ResourceWarning")
    ignored = [word for kind in kinds for word in ("-W", f"ignore::{kind}")]
    new_folder(f"{trial.name}-tests")
    done = call(str(commands / "python"), "-m", "pytest", *options, *ignored, cwd=CLONE)
    last = done.stdout.rstrip().rpartition("\n")[2]
    text = ", ".join(re.findall(r"\d+ (?:passed|failed|errors?)", last)) or "none ran"
    if done.returncode:
        failed(trial, "tests", done)
    return done.returncode == 0, text


def failed(trial: Trial, kind: str, done: subprocess.CompletedProcess[str]) -> tuple[bool, str]:
    log = PLACE / f"{trial.name}-{kind}.log"
    log.write_text(f"{done.args}\n{done.stdout}\n{done.stderr}", encoding="utf-8")
    say(f"{trial.name}, {kind}: failed; all of it is in {log}\n{done.stdout[-2000:]}")
    say(done.stderr[-2000:])
    return False, "failed"


# --- Their environment ---


def demo_extras() -> list[str]:
    """The extras of the README's first `pip install` that names any."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    result = re.search(r"pip install .*\[([\w,]+)\]", text)
    assert result is not None, "README.md says nowhere which extras the demo needs"
    return result[1].split(",")


def interpreter(version: str) -> str | None:
    """Path of a working Python, even if pyenv keeps it off the path; None if there is none."""
    places = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    places += sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin"))
    for place in places:
        result = place / f"python{version}"
        if result.is_file() and call(str(result), "-c", "", cwd=PLACE).returncode == 0:
            return str(result)
    return None


def wheel() -> Path:
    (file,) = DIST.glob("*.whl")
    return file


def new_folder(name: str) -> Path:
    """Make an empty working folder; its `home` becomes the cache, HF_HOME."""
    folder = PLACE / "run" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ["HF_HOME"] = str(folder / "home")
    return folder


def uv(*words: str | None, into: Path | None = None) -> str:
    if into is not None:
        os.environ["VIRTUAL_ENV"] = str(into)
    done = call("uv", *(word for word in words if word), cwd=CLONE)
    if done.returncode:
        raise SystemExit(f"uv {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def call(*words: str, cwd: Path, check: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command, with this environment's commands at the end of the path."""
    path = os.pathsep.join([os.environ["PATH"], str(Path(sys.executable).parent)])
    return subprocess.run(
        words, cwd=cwd, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        check=check, timeout=LONGEST,
    )  # fmt: skip


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
