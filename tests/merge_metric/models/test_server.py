"""Our client and transformers on one model, in llama.cpp's server; `make test-server`."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.answers import answers
from helpers.completions_server import remote_model
from helpers.gguf_files import load_lm, smollm2, write_in_float32

from merge_metric.models.language_model import LanguageModel
from merge_metric.models.prompts import read_prompt

pytestmark = [pytest.mark.server, pytest.mark.slow]

NATS = 0.002
"""Largest difference of log-probabilities. Both sides compute in float32; the difference is
similar with llama.cpp's half-precision keys and values, and 0.1 with 4-bit weights, with
which it rounds activations to 8 bits."""
PROMPT = read_prompt("snli", start="<|endoftext|>")
PAIRS = [
    ("A girl jumps in the air.", "A girl jumps high."),
    ("Two dogs run on the beach.", "Animals are outside."),
    ("A man plays the guitar.", "A man is asleep."),
    ("A café by the river.", "«Nobody» is there."),
]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """SmolLM2 in float32: half a gigabyte, deleted afterwards."""
    path = tmp_path_factory.mktemp("gguf") / "smollm2.gguf"
    write_in_float32(smollm2(), path)
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def server(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = os.environ.get("MERGE_NLI_SERVER_PYTHON")
    if python is None:
        pytest.skip("run: make test-server")
    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        port = result.getsockname()[1]
    command = [python, "-m", "llama_cpp.server", "--model", str(gguf), "--model_alias", "smollm2"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--api_key", "sk-local"]
    command += ["--logits_all", "True", "--n_ctx", "1024", "--n_threads", "1"]
    command += ["--type_k", "0", "--type_v", "0"]  # keys and values in float32
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 120
        while not _listens(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LOCAL_KEY", "sk-local")
    return "LOCAL_KEY"


@pytest.mark.parametrize("chat", [False, True])
def test_the_server_agrees_with_transformers(server: str, key: str, gguf: Path, chat: bool) -> None:
    local = LanguageModel(load_lm(gguf), prompt=PROMPT, chat_template=chat)
    remote = remote_model(
        server, model="smollm2", prompt=PROMPT, chat_template=chat, api_key_env=key, concurrency=3
    )
    result, expected = answers(remote, PAIRS), answers(local, PAIRS)
    print(json.dumps({"chat": chat, "nats": float(abs(np.log(result) - np.log(expected)).max())}))
    np.testing.assert_allclose(np.log(result), np.log(expected), atol=NATS)
    np.testing.assert_array_equal(result.argmax(1), expected.argmax(1))
    without = {"answers_partial": 0, "answers_without_letters": 0}
    assert all(batch.counts == without for batch in remote.answer(PAIRS[:2]))


def test_a_wrong_key_is_refused(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG_KEY", "sk-wrong")
    model = remote_model(server, model="smollm2", prompt=PROMPT, api_key_env="WRONG_KEY")
    with pytest.raises(ValueError, match=r"HTTP 401.*`api_key_env`") as caught:
        answers(model, PAIRS)
    assert "sk-wrong" not in str(caught.value)


def test_prompts_beyond_the_context_are_refused(server: str, key: str) -> None:
    model = remote_model(server, model="smollm2", prompt=PROMPT, api_key_env=key, retries=0)
    with pytest.raises((ValueError, ConnectionError), match="context"):
        next(model.answer([("very " * 1200, "long")]))
