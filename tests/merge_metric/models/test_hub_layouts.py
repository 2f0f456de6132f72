import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from helpers.forks import Ended
from helpers.hub.commands import STRANGER, TOKEN, Console, console, serve
from helpers.hub.damages import DAMAGES, Damage
from helpers.hub.endpoints import Asked
from helpers.hub.files import Payload, as_json, safetensors_of, written
from helpers.hub.layouts import ABSENT, LAYOUTS, OTHERS, PAPER_MLMS, PAPER_MODELS
from helpers.hub.plain import LABELS
from helpers.hub.repositories import entries_of
from helpers.hub.survey import survey
from helpers.problem_folder import many_problems, write_folder
from safetensors.torch import load
from typer.testing import CliRunner

from generation.cli import app
from merge_metric.frame.predictions import read_predictions

PROBLEMS = many_problems(6, 1)
PROGRESS = re.compile(r"\d+%|^\s*$")
"""Lines that report the progress of a command."""
Predict = Callable[..., tuple[Result, dict[str, list[float]]]]


@pytest.fixture
def predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Predict:
    """Runs `predict` in this process, offline; also returns the probabilities by problem."""
    write_folder(tmp_path / "merge-nli", PROBLEMS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.setenv(Payload.MARKER, str(tmp_path / "payload-ran"))

    def run(model: Path | str, *options: str) -> tuple[Result, dict[str, list[float]]]:
        out = Path("predicted.parquet")
        out.unlink(missing_ok=True)
        arguments = ("predict", "--dataset", "merge-nli", "--model", str(model), "--out", str(out))
        done = CliRunner().invoke(app, [*arguments, *options])
        rows = read_predictions(out).to_pylist() if out.exists() else []
        return done, {row["variant_id"]: row["probabilities"] for row in rows}

    return run


SHARPEST = (
    "cut/half", "cut/pickle-pointer", "cut/gguf", "index/upwards", "config/layers",
    "config/custom-head", "sizes", "tokenizer/none", "payload/zip", "payload/old",
)  # fmt: skip
"""Damages of each kind; all are tried on the Hub."""


def told(damage: Damage, message: str) -> bool:
    """Tell whether a message is one line that names the error."""
    lines = [line for line in message.splitlines() if not PROGRESS.search(line)]
    return len(lines) == 1 and re.search(damage.named, lines[0]) is not None


def test_damages_are_told_in_one_line(predict: Predict, tmp_path: Path) -> None:
    for name in SHARPEST:
        folder = DAMAGES[name].write(tmp_path / name)
        done, result = predict(folder, *DAMAGES[name].options)
        message = done.stderr.strip().replace(str(folder), "FOLDER")
        assert (done.exit_code, result) == (2, {}), (name, done.exception, message)
        assert told(DAMAGES[name], message), (name, message)
    assert not (tmp_path / "payload-ran").exists()


@pytest.fixture(scope="module")
def at() -> Iterator[Console]:
    """A Hub with all layouts, and a console; tests leave both unchanged."""
    with console() as made:
        for name, layout in LAYOUTS.items():
            serve(made.hub, name, layout)
        yield made
        assert made.hub.errors == []
        assert not made.marker.exists()


@pytest.fixture
def fresh(at: Console) -> Console:
    at.forget()
    return at


def plain_probabilities(at: Console, name: str) -> np.ndarray:
    plain = LAYOUTS[name].plain
    assert plain is not None
    more = ("--shots", "none") if LAYOUTS[name].task == "lm" else ()
    done = at.predict(plain(), *more)
    assert done.code == 0, done.err
    return at.probabilities()


def check_hub(at: Console, name: str, *options: str, offline: bool = False, **more: str) -> str:
    """Require that a model of the Hub answers as the plain one; return stderr."""
    layout = LAYOUTS[name]
    wanted = plain_probabilities(at, name)
    options += ("--label-order", layout.order) if layout.order else ()
    options += ("--shots", "none") if layout.task == "lm" else ()
    done = at.predict(name, *options, offline=offline, **more)
    assert done.code == 0, done.err
    np.testing.assert_allclose(at.probabilities(), wanted, atol=1e-6)
    return done.err


def refused(result: Ended) -> str:
    lines = [line for line in result.err.splitlines() if not PROGRESS.search(line)]
    assert (result.code, len(lines)) == (2, 1), result
    return lines[0]


@pytest.mark.slow
def test_a_branch_that_moves_while_a_model_is_loaded(fresh: Console, tmp_path: Path) -> None:
    files = dict(LAYOUTS["safetensors/float16"].files)
    config, own = json.loads(files["config.json"]), load(files["model.safetensors"])
    tensors = dict(own)
    tensors["classifier.bias"] = tensors["classifier.bias"] + torch.tensor([0.0, 3.0, -3.0])
    versions, wanted = [], []
    for weights, order in ((own, "enc"), (tensors, "cne")):
        labels = {str(number): LABELS[letter] for number, letter in enumerate(order)}
        named = as_json(config | {"id2label": labels, "label2id": {}})
        versions.append({**files, **safetensors_of(weights), "config.json": named})
        assert fresh.predict(written(versions[-1], tmp_path / order)).code == 0
        wanted.append(fresh.probabilities())
    assert not np.allclose(*wanted, atol=0.01)
    repo = fresh.hub.serve("moving/main", versions[0])

    def move(route: str, asked: Asked) -> None:
        number = len(repo.commits)
        repo.add("main", entries_of(versions[number % 2]), f"version {number % 2}")

    fresh.hub.watch = move
    try:
        done = fresh.predict("moving/main", "--format", "json")
    finally:
        fresh.hub.watch = lambda route, asked: None
    commit = recorded(done)["revision"]
    assert len(repo.commits) > 5
    version = repo.at(commit)["config.json"] == versions[1]["config.json"]
    np.testing.assert_allclose(fresh.probabilities(), wanted[version], atol=1e-6)
    # The newest commit is loaded next, and the older one is still available by its name.
    newest = repo.branches["main"]
    assert recorded(fresh.predict("moving/main", "--format", "json"))["revision"] == newest
    again = fresh.predict("moving/main", "--format", "json", offline=True)
    assert recorded(again)["revision"] == newest
    older = fresh.predict("moving/main", "--revision", commit, "--format", "json", offline=True)
    assert recorded(older)["revision"] == commit
    np.testing.assert_allclose(fresh.probabilities(), wanted[version], atol=1e-6)


def recorded(result: Ended) -> dict[str, Any]:
    assert result.code == 0, result.err
    (facts,) = json.loads(result.out)["predictions"]
    return dict(facts["metadata"])


@pytest.mark.slow
def test_gated_absent_and_moved_models(fresh: Console) -> None:
    name = "meta-llama/Llama-3.1-8B"
    assert re.search(r"log ?in", message := refused(fresh.predict(name))), message
    message = refused(fresh.predict(name, token=STRANGER))
    assert f"{name}" in message
    assert re.search(r"access|permission", message), message
    check_hub(fresh, name, token=TOKEN)
    check_hub(fresh, name, offline=True)
    assert ABSENT in refused(fresh.predict(ABSENT))
    assert "nobody/nothing" in refused(fresh.predict("nobody/nothing", token=TOKEN))
    assert "nobody/nothing" in refused(fresh.predict("nobody/nothing", offline=True))
    check_hub(fresh, "FacebookAI/roberta-large-mnli")
    assert fresh.predict("roberta-large-mnli").code == 0
    assert fresh.predict("roberta-large-mnli", offline=True).code == 0
    message = refused(fresh.predict("FacebookAI/roberta-large-mnli", "--revision", "v9"))
    assert "v9" in message


@pytest.mark.slow
def test_a_hub_that_fails(fresh: Console) -> None:
    name = "pickle/zip"
    for route, fault in (
        ("info", {"status": 503}),
        ("tree", {"status": 500}),
        ("resolve", {"status": 429, "headers": {"Retry-After": "0"}}),
        ("storage", {"cut": "during"}),
    ):
        fresh.forget()
        fresh.hub.fail(route, times=100, **fault)
        done = fresh.predict(name, "--label-order", "e,n,c")
        fresh.hub.forgive()
        if done.code != 0:  # the command may not use the route
            # Before it, the Hub's library reports attempts.
            message = done.err.splitlines()[-1]
            assert done.code == 2
            assert re.match(f"error: {name}: .*(the Hub|Hub cannot)", message), done.err
            assert str(fault.get("status", "")) in message
        check_hub(fresh, name)
    # A cached model needs no working Hub.
    for route in ("info", "tree", "resolve", "paths"):
        fresh.hub.fail(route, times=100, status=503)
    try:
        check_hub(fresh, name)
    finally:
        fresh.hub.forgive()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["mlms", "preset", "others"])
def test_every_layout_online_and_then_offline(part: str, at: Console) -> None:
    names = {"mlms": PAPER_MLMS, "preset": PAPER_MODELS, "others": OTHERS}[part]
    odd = []
    for name, online, offline, strayed in survey(at, names):
        if not (online[1] and offline[1]) or strayed:
            odd.append((name, online, offline, strayed))
    assert not odd, "\n".join(map(str, odd))


@pytest.mark.slow
def test_damages_on_the_hub(at: Console) -> None:
    odd = []
    for number, (name, damage) in enumerate(DAMAGES.items()):
        at.forget()
        at.hub.serve(f"some/{number}", damage.make())
        done = at.predict(f"some/{number}", *damage.options)
        if done.code != 2 or not told(damage, done.err) or at.hub.strayed():
            odd.append((name, done, at.hub.strayed()))
    assert not odd, "\n".join(map(str, odd))
