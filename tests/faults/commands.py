"""All commands that write files, on one small set of files."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from helpers.forks import Ended, Forks
from helpers.judged import fill_in
from helpers.kept_answers import keys_in

from merge_dataset.checks import check_dataset
from merge_dataset.files import digest_of, digest_of_file
from merge_dataset.layout import collections

ROOT: Final = Path(__file__).parents[2]
MLM: Final = str(ROOT / "generation/demo/bert-tiny-mlm")
CLASSIFIER: Final = str(ROOT / "merge_metric/demo/bert-tiny-nli")
PROBLEMS: Final = str(ROOT / "generation/demo/problems.jsonl")
SMALL: Final = (
    "--recipe", "demo", "--limit", "3", "--set", "suggestions_per_occurrence=40",
    "--set", "min_replacements=3", "--set", "variants_per_class=3", "--set", "subsamples=2",
)  # fmt: skip

COMMANDS: Final = {
    "demo": "demo --run new --out new-data",
    "generate": "generate {small} --run new --out new-data",
    "generate-overwrite": (
        "generate {small} --set subsamples=1 --run run --out merge-nli --overwrite"
    ),
    "suggest": "suggest {small} --run new",
    "suggest-overwrite": "suggest {small} --limit 2 --run run --overwrite",
    "build": "build --run run --set subsamples=1 --out merge-nli --overwrite",
    "build-into": "build --run run --set subsamples=1 --into other --out new-data",
    "signals": "signals --run run --mlm {mlm}",
    "paraphrase": (
        "paraphrase --model {classifier} --label-order c,n,e --generator generator "
        "--source anli-r1 --data {problems} --limit 10 --k 2 --max-rounds 2 --beams 4 --groups 2 "
        "--max-new-tokens 8 --run new --out merge-nli"
    ),
    "predict": "predict --model {classifier} --dataset merge-nli --out new/p.parquet",
    "predict-json": "predict --model {classifier} --dataset merge-nli --out new/p.jsonl.gz",
    "predict-overwrite": (
        "predict --model {classifier} --dataset merge-nli --out m.parquet --overwrite"
    ),
    "predict-tasks": (
        "predict --model {classifier} --dataset merge-nli --executor local --tasks 2 "
        "--batch-tokens 500 --out new/p.parquet"
    ),
    "majority": "baseline majority --dataset merge-nli --out new.parquet",
    "hypothesis-only": (
        "baseline hypothesis-only --train {problems} --dataset merge-nli --out new.jsonl"
    ),
    "annotate": "annotate merge-nli --out new --per-class 2 --annotator bo",
    "annotate-more": "annotate --out study --annotator dan",
    "register": "register merge-nli",
    "lm-eval": "export lm-eval merge-nli --shots none --out new",
    "inspect": "export inspect merge-nli --shots none --out new",
    "croissant": "export croissant merge-nli",
    "mini-datasets": "export mini-datasets merge-nli --out new",
    "jsonl": "export jsonl merge-nli --out new",
    "csv-overwrite": "export csv merge-nli --out flat --overwrite",
    "report": "report p.parquet m.parquet --dataset merge-nli --n-bootstrap 20 --out new.html",
    "report-overwrite": (
        "report p.parquet --dataset merge-nli --n-bootstrap 0 --out report.md --figures plots"
    ),
    "per-seed": "score p.parquet --dataset merge-nli --n-bootstrap 0 --per-seed new.csv",
    "analyse": "analyse curves p.parquet m.parquet --dataset merge-nli --out new.svg",
    "agreement": "agreement study --n-bootstrap 20 --plots new",
    "publish": "publish dataset merge-nli somebody/merge-nli",
    "publish-metric": "publish metric somebody/seed_variant_accuracy",
}  # fmt: skip
"""Name → command line. Names begin with the command; files called `new` do not exist before."""

GROUPS: Final = {
    "making": ("generate", "generate-overwrite", "suggest", "suggest-overwrite", "build",
               "build-into", "paraphrase"),
    "predicting": ("predict", "predict-json", "predict-overwrite", "predict-tasks", "majority",
                   "hypothesis-only", "signals"),
    "annotating and registering": ("annotate", "annotate-more", "register", "publish",
                                   "publish-metric", "demo"),
    "exporting": ("lm-eval", "inspect", "croissant", "mini-datasets", "jsonl", "csv-overwrite"),
    "reporting": ("report", "report-overwrite", "per-seed", "analyse", "agreement"),
}  # fmt: skip

FINISHED: Final = (
    "expected no file, found one", "got an earlier export", "in which no model is named"
)  # fmt: skip
"""Refusals by a command that was already finished when it was killed."""

_SAYS_NOTHING: Final = "found a file in which no model is named"
"""Refusal of finished JSON lines that do not name their model; --overwrite replaces them."""

_PREPARED: Final = (
    "generate {small} --run run --out merge-nli",
    "predict --model {classifier} --dataset merge-nli --out p.parquet",
    "baseline majority --dataset merge-nli --out m.parquet",
    "annotate merge-nli --out study --per-class 2 --annotator ann --annotator cy",
    "export csv merge-nli --config demo --out flat",
    "report m.parquet --dataset merge-nli --n-bootstrap 0 --out report.md --figures plots",
)


def words(line: str) -> list[str]:
    """Split a command line, or the one of a name in `COMMANDS`, into arguments."""
    known = {"mlm": MLM, "classifier": CLASSIFIER, "problems": PROBLEMS, "small": "{small}"}
    return [
        word
        for part in COMMANDS.get(line, line).split()
        for word in (SMALL if part == "{small}" else [part.format(**known)])
    ]


@dataclass(frozen=True)
class Workshop:
    forks: Forks
    base: Path
    outcomes: dict[str, Outcome]

    @property
    def folder(self) -> Path:
        return self.forks.folder

    def restore(self) -> None:
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self.base, self.folder, dirs_exist_ok=True)

    def undisturbed(self, name: str) -> Outcome:
        """Run a command, by name or as a line, once without faults, and return its outcome."""
        if name not in self.outcomes:
            self.restore()
            before = snapshot(self.folder)
            trace = self.folder.with_name("trace.json")
            ended = self.forks.run(*words(name), trace=str(trace))
            assert ended.code == 0, (name, ended)
            changes = json.loads(trace.read_text("utf-8"))
            after = snapshot(self.folder)
            assert unsynced(changes, after) == [], f"{name}: a crash of the machine loses them"
            sizes = {file: (self.folder / file).stat().st_size for file in after}
            self.outcomes[name] = Outcome(before, after, sizes, changes, ended.seconds, ended.out)
        return self.outcomes[name]

    def begin(self, name: str) -> Outcome:
        """Restore the files for a command, and return how it ends undisturbed."""
        good = self.undisturbed(name)
        self.restore()
        return good

    def run(self, name: str, **call: Any) -> Ended:
        return self.forks.run(*words(name), **call)

    def stopped(self, name: str, *, at: int | None = None, after: float = 0) -> int:
        """Start a command, and stop it before one of its file changes, or after some seconds."""
        stop = signal.SIGSTOP
        pid = self.forks.start(*words(name), end_at=at, signal=int(stop))
        if at is None:
            self.forks.kill(pid, stop, after=after)
        for _ in range(6000):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
            except FileNotFoundError:
                return pid
            if stat.rpartition(")")[2].split()[0] in "TZ":
                return pid
            time.sleep(0.01)
        raise TimeoutError("a command neither stops nor ends")

    def require_whole(self, name: str) -> None:
        """Require that each visible file is as before the command or as after it."""
        good = self.outcomes[name]
        for file, digest in snapshot(self.folder).items():
            if any(part.startswith(".") for part in Path(file).parts) or file.startswith("hf/"):
                continue
            if (self.folder / file).is_dir():  # a store, which may hold a part of the answers
                continue
            known = {files[file] for files in (good.before, good.after) if file in files}
            assert not known or digest in known, f"{file} is half-written"
        for data in (self.folder / "merge-nli", self.folder / "new-data"):
            if data.is_dir() and collections(data):
                # An interrupted export may leave files behind, and lack the card.
                result = check_dataset(data)
                assert [item for item in result if not item.startswith((".", "README.md"))] == []

    def again(self, name: str, *, renamed: bool = False) -> None:
        """Run a command to its end, and compare; a renamed folder's lock keeps its old name."""
        ended = self.run(name)
        if _SAYS_NOTHING in ended.err:
            ended = self.forks.run(*words(name), "--overwrite")
        if ended.code != 2 or not any(word in ended.err for word in FINISHED):
            assert ended.code == 0, (name, ended.err)
        good, after = self.outcomes[name], snapshot(self.folder)
        if renamed:
            after = {file: digest for file, digest in after.items() if not file.endswith(".lock")}
        assert set(after) - set(good.after) == set(), f"{name}: temporary files stay"
        assert after == good.after, name


@dataclass(frozen=True)
class Outcome:
    before: dict[str, str]
    after: dict[str, str]
    sizes: dict[str, int]
    changes: list[str]
    seconds: float
    out: str


def snapshot(folder: Path) -> dict[str, str]:
    """Digest all files by name, without times and the libraries' own files.

    Of a model's answers, the questions count: how many files they are in depends on interruptions.
    """
    result = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".answers" and path.parent.name[-13:-12] == "-":
            keys = sorted(set(keys_in(path.parent)))
            result[path.parent.relative_to(folder).as_posix()] = digest_of([k.hex() for k in keys])
            continue
        if path.is_file() and not re.search(r"^(tmp|home)/|^hf/.*(\.lock|__pycache__)", name):
            result[name] = digest_of_file(path)
    return result


def unsynced(changes: list[str], files: dict[str, str]) -> list[str]:
    """Files of a trace that get their names before they are synced: a crash may lose them."""
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


def environment_of(folder: Path) -> dict[str, str]:
    own = {"HF_HOME": "hf", "HOME": "home", "TMPDIR": "tmp", "XDG_CACHE_HOME": "home/cache"}
    return {
        **os.environ, **{name: str(folder / part) for name, part in own.items()},
        "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1", "MPLCONFIGDIR": str(folder.parent / "matplotlib"),
    }  # fmt: skip


def prepare(base: Path, forks: Forks) -> None:
    """Make the input files of the commands in the forks' folder, and keep them in `base`."""
    from helpers.tiny_generators import saved_generator

    saved_generator("llama-chat", forks.folder / "generator")
    for name in ("hf", "home", "tmp"):
        (forks.folder / name).mkdir()
    for line in _PREPARED:
        ended = forks.run(*words(line))
        assert ended.code == 0, (line, ended)
    for table in sorted((forks.folder / "study/answers").iterdir()):
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
        scores = [{"fluency": 1 + n % 5, "reasoning": 5 - n % 5} for n in range(len(rows))]
        fill_in(table, [row | score for row, score in zip(rows, scores, strict=True)])
    shutil.copytree(forks.folder, base, dirs_exist_ok=True)
