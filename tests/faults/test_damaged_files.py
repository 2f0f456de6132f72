"""Damaged files are noticed, or give the same figures; keys that servers repeat never show."""

import base64
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from helpers.completions_server import Reply, Request, serving
from helpers.tiny_generators import saved_generator

from faults import small_world
from faults.attack import Attack
from faults.commands import CLASSIFIER, snapshot, words
from merge_dataset import files
from merge_dataset.answer_store import AnswerStore
from merge_dataset.commands.command_line import INTERRUPTED

pytestmark = pytest.mark.slow

PYTHON = re.compile(r"Traceback|\[Errno|<class|codec|NoneType|object has no|Error:")


PREDICT = f"predict --model {CLASSIFIER} --dataset merge-nli --batch-tokens 500"
PARAPHRASE = " ".join(words("paraphrase")).partition(" --run")[0]

PARTS = "build --run runs/demo --into parts --out parts --with-column form_attested --common-mlms"
"""A dataset with optional columns, and splits in several files."""


@dataclass(frozen=True)
class Reader:
    area: str
    command: str
    files: tuple[str, ...]
    """Patterns of the files to damage, one at a time."""
    tries: int
    made: str = ""
    """Folder that the command writes, whose bytes are compared; if empty, its output is."""
    goes_on: str = ""
    """Folder of an earlier command's results, of which `made` is a copy at first."""
    unchecked: str = ""
    """Suffix of files of which the format and the engine alone find damage, so that a flipped bit
    in an answer passes."""


READERS = (
    Reader("damaged dataset, check", "check merge-nli", ("merge-nli/**/*",), 150),
    Reader("damaged dataset, score", "score a.parquet --dataset merge-nli --n-bootstrap 0",
           ("merge-nli/**/*.parquet", "merge-nli/**/*.json"), 100),
    Reader("damaged predictions", "score {} --dataset merge-nli --n-bootstrap 0",
           ("a.parquet", "majority.parquet"), 150, unchecked=".parquet"),
    Reader("damaged parts, score", "score a.parquet --dataset parts --n-bootstrap 0",
           ("parts/**/*.parquet", "parts/**/*.json"), 60),
    Reader("damaged annotations", "agreement study --dataset merge-nli",
           ("study/session.json", "study/sample.jsonl"), 120),
    Reader("damaged run, build", "build --run runs/demo --out out --overwrite",
           ("runs/demo/problems.parquet", "runs/demo/config.toml", "runs/demo/suggested.json",
            "runs/demo/suggestions/**/*", "runs/demo/questions/**/*", "runs/demo/stores/*"),
           60, made="out"),
    Reader("damaged answers, predict", f"{PREDICT} --out new/p.parquet",
           ("begun/.*.answers/*/*",), 60, made="new", goes_on="begun"),
    Reader("damaged paraphrase run", f"{PARAPHRASE} --run new/run --out new/data",
           ("paraphrased/run/**/*",), 60, made="new", goes_on="paraphrased"),
    Reader("damaged registration", "register merge-nli --cache-dir new", ("cache/merge-nli/**/*",),
           60, made="new", goes_on="cache"),
)  # fmt: skip


def make(folder: Path) -> None:
    small_world.make(folder)
    with chdir(folder):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(files, "FILE_ROWS", 300)
            small_world.do(PARTS)
        saved_generator("llama-chat", Path("generator"))
        small_world.do(
            f"{PARAPHRASE} --run paraphrased/run --out paraphrased/data",
            "register merge-nli --cache-dir cache",
        )
        _interrupt_predictions()


def _interrupt_predictions() -> None:
    batches = []

    def add(store: AnswerStore, *batch: Any) -> None:
        if len(batches) == 8:
            raise KeyboardInterrupt
        batches.append(batch)
        keep(store, *batch)

    keep = AnswerStore.keep
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("merge_metric.predict.driver._joined", lambda batches, _: batches)
        patched.setattr(AnswerStore, "keep", add)
        assert small_world.call(*PREDICT.split(), "--out", "begun/p.parquet")[0] == INTERRUPTED


@contextmanager
def damaged(path: Path, others: Sequence[Path], random: Random) -> Iterator[str]:
    whole = path.read_bytes()
    alike = [other for other in others if other.suffix == path.suffix and other != path]
    way = ("flip", "flip", "flip", "flip", "cut", "swap" if alike else "cut", "gone")
    how = random.choice(way)
    if how == "flip":
        place = random.randrange(8 * len(whole))
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        how += f" of bit {place}"
    elif how == "cut":
        content = bytearray(whole[: random.randrange(len(whole))])
        how += f" to {len(content)} of {len(whole)} bytes"
    elif how == "swap":
        other = random.choice(alike)
        content = bytearray(other.read_bytes())
        how += f" by {other}"
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(content)
    try:
        yield how
    finally:
        path.write_bytes(whole)


def outcome(reader: Reader, file: str = "a.parquet") -> tuple[int, object, str]:
    if reader.made:
        shutil.rmtree(reader.made, ignore_errors=True)
    if reader.goes_on:
        shutil.copytree(reader.goes_on, reader.made)
    code, printed, error = small_world.call(*reader.command.format(file).split())
    made: object = printed.replace(file, "")
    if reader.made:
        files = snapshot(Path(reader.made)).items()
        made = {name: digest for name, digest in files if Path(name).name[0] != "."}
    return code, made, error if "error: " in error else printed


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.area.replace(" ", "-"))
def test_damage_is_noticed_or_harmless(
    reader: Reader,
    attack: Attack,
    once: Callable[..., Path],
    tmp_path: Path,
) -> None:
    shutil.copytree(once("damaged", make), tmp_path, dirs_exist_ok=True)
    with chdir(tmp_path):
        result = {path for pattern in reader.files for path in Path().glob(pattern)}
        paths = sorted(path for path in result if path.is_file() and path.stat().st_size)
        whole = {path: path.read_bytes() for path in paths}
        known = {path: outcome(reader, str(path))[:2] for path in paths if "{}" in reader.command}
        usual = outcome(reader)[:2]
        assert usual[0] == 0
        ends = "either: refused by the file's name, or harmless, with the same result"
        if reader.unchecked:
            ends += f"; in {reader.unchecked} a flipped bit that the format does not find passes"
        for attempt in attack.tries(reader.area, reader.tries, ends):
            with attempt:
                path = attempt.random.choice(paths)
                # Another model's predictions rightly give that model's figures.
                others = [] if "{}" in reader.command else paths
                with damaged(path, others, attempt.random) as how:
                    code, made, text = outcome(reader, str(path))
                _restore(whole)  # a failed build has begun to write
                read = path
                if reader.goes_on:
                    read = Path(reader.made) / path.relative_to(reader.goes_on)
                expected = known.get(path, usual)[1]
                if code == 0 and path.suffix == reader.unchecked and how.startswith("flip"):
                    expected = made
                _check(code, text, made, expected, read, f"{how} in {path}")


def _restore(whole: Mapping[Path, bytes]) -> None:
    for path, content in whole.items():
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _check(code: int, text: str, made: object, usual: object, path: Path, how: str) -> None:
    if code == 0:
        assert made == usual, f"{how}: another result"
        return
    is_error = "error: " in text
    message = text[text.find("error: ") :].strip() if is_error else text
    assert not PYTHON.search(message), f"{how}: {message}"
    assert message, how
    assert code == (2 if is_error else 1), f"{how}: {message}"
    assert not is_error or "\n" not in message, f"{how}: {message}"
    if not is_error:  # findings, of which the first may name another file
        assert ".parquet" in message or ".json" in message or "README.md" in message
        return
    # The message may name a store's folder, or, beside predictions, the dataset.
    named = any(f"{name}" in message for name in (path, *path.parents[:-1]))
    assert named, f"{how}: {message}"


KEY = "zq-Hidden/4711+value"

_MASKED = "passes or refused, as the rest of the answer is; the key is masked either way"
_SPELT: tuple[Callable[[str], str], ...] = (
    str, str.upper, lambda key: quote(key, safe=""), lambda key: f"Bearer {key}",
    lambda key: base64.b64encode(key.encode()).decode(), lambda key: f"{'x' * 293}{key}",
    lambda key: f"https://me:{key}@proxy/",
)  # fmt: skip


def _completion(text: str, **log_probs: float) -> dict[str, Any]:
    return {"choices": [{"text": text, "logprobs": {"top_logprobs": [{text: -0.1, **log_probs}]}}]}


_PLACES: tuple[Callable[[str], Reply], ...] = (
    lambda key: Reply({"error": {"message": key}}, 401),
    lambda key: Reply({"error": {"message": key}}, 503),
    lambda key: Reply({"error": {"message": key}}), lambda key: Reply({key: [{key: key}]}),
    lambda key: Reply(f"<html>{key}".encode()), lambda key: Reply(("[" * 100_000 + key).encode()),
    lambda key: Reply(_completion(key)), lambda key: Reply(_completion(f" {key}", A=9.0)),
    lambda key: Reply({"choices": [{"logprobs": {"content": [{"token": key}]}}]}),
    lambda key: Reply({"choices": [{"logprobs": key}]}),
    lambda key: Reply({"model": key, "usage": key, **_completion(" A", B=-3.0, C=-4.0)}),
    lambda key: Reply(b"", 302, {"Location": f"http://127.0.0.1:9/{quote(key)}"}),
    lambda key: Reply(b"", 429, {"Retry-After": key}),
)  # fmt: skip


def make_demo(folder: Path) -> None:
    with chdir(folder):
        small_world.do("generate --recipe demo --limit 3 --run run --out merge-nli")


def _everything(folder: Path) -> str:
    return "".join(
        path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file()
    )


def test_keys_that_servers_repeat(
    attack: Attack, once: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merge_metric.models.remote._LONGEST_WAIT", 0.001)
    monkeypatch.setenv("THE_KEY", KEY)
    shutil.copytree(once("lying-servers", make_demo), tmp_path, dirs_exist_ok=True)
    with chdir(tmp_path):
        for attempt in attack.tries("servers that repeat the key", 91, _MASKED, least=len(_PLACES)):
            with attempt:
                _ask(attempt.number, attempt.random)


def _ask(number: int, random: Random) -> None:
    place, spelt = _PLACES[number % len(_PLACES)], _SPELT[number // len(_PLACES) % len(_SPELT)]
    begins = random.randrange(3)

    def answer(request: Request, asked: int) -> Reply:
        good = Reply(_completion(" A", B=-3.0, C=-4.0))
        return good if asked < begins else place(spelt(KEY))

    with serving(answer) as server:
        in_url = random.random() < 0.5
        url = server.url.replace("://", f"://me:{quote(KEY, safe='')}@") if in_url else server.url
        key = [] if in_url else ["--api-key-env", "THE_KEY"]
        command = ["predict", "--model", "m", "--base-url", url, *key, "--dataset", "merge-nli",
                   "--shots", "none", "--out", "p.jsonl", "--overwrite"]  # fmt: skip
        code, printed, text = small_world.call(*command)
        assert len(server.requests) > begins
    assert code == 0 or "error: " in text, text
    result = (printed + text + _everything(Path())).lower()
    for spelling in (KEY, quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode()[:12]):
        assert spelling.lower() not in result
        assert spelling[:9].lower() not in result
    assert "Traceback" not in text


@pytest.mark.parametrize("where", ["model", "data", "dataset", "mlm", "predictions"])
def test_keys_in_urls_that_are_no_servers(
    where: str, once: Callable[..., Path], tmp_path: Path
) -> None:
    shutil.copytree(once("lying-servers", make_demo), tmp_path, dirs_exist_ok=True)
    url = f"https://me:{KEY.replace('/', '')}@host/v1"
    commands = {
        "model": f"predict --model {url} --dataset merge-nli --out p.jsonl",
        "data": f"generate --recipe demo --source mine --data {url} --run new --out new-data",
        "dataset": f"generate --recipe demo --source mine --dataset {url} --run new --out new-data",
        "mlm": f"suggest --recipe demo --mlm {url} --run new",
        "predictions": f"score {url} --dataset merge-nli",
    }
    with chdir(tmp_path):
        code, printed, text = small_world.call(*commands[where].split())
        result = printed + text + _everything(Path())
    assert code == 2
    assert "Hidden" not in result
    assert "***" in text
