"""Servers that repeat the key they were sent, wherever they can: no output ever shows it."""

import base64
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from helpers.completions_server import Reply, Request, serving

from faults import small_world
from faults.attack import Attack

pytestmark = pytest.mark.slow

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


def make(folder: Path) -> None:
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
    shutil.copytree(once("lying-servers", make), tmp_path, dirs_exist_ok=True)
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
    shutil.copytree(once("lying-servers", make), tmp_path, dirs_exist_ok=True)
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
