import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from helpers.dataset_files import write_plain
from helpers.forks import Ended
from helpers.gguf_files import write_llama
from helpers.hub import files as of
from helpers.hub.commands import STRANGER, TOKEN, Console, console, serve
from helpers.hub.endpoints import Asked
from helpers.hub.files import Files, Payload, written
from helpers.hub.layouts import ABSENT, LAYOUTS, adapter_config, lora
from helpers.hub.plain import LABELS, plain_lm
from helpers.hub.repositories import entries_of
from helpers.kept_answers import suggestions_in
from helpers.problem_folder import many_problems, write_folder
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from helpers.tiny_models import scratch
from safetensors.torch import load
from typer.testing import CliRunner

from generation.cli import app
from merge_metric.models.readiness import read_presets

PROBLEMS = many_problems(60, 1)
SENTENCES = (
    ("The big dog runs near the house.", "The big dog sees the house."),
    ("A girl and a boy play a game.", "The girl likes the game."),
)
PROGRESS = re.compile(r"\d+%|^\s*$")
"""Lines that report the progress of a command."""

# --- Damaged, incomplete, hostile or absurd models, and a pattern for each message ---


@dataclass(frozen=True, slots=True)
class Damage:
    """A repository that cannot be loaded: its files, and a pattern that the message must match."""

    make: Callable[[], Files]
    named: str
    options: tuple[str, ...] = ("--label-order", "e,n,c")

    def write(self, folder: Path) -> Path:
        return written(self.make(), folder)


def _plain() -> Path:
    return tiny_classifier("bert-uncased")


@cache
def _whole() -> dict[str, bytes]:
    weights = of.safetensors_of(of.tensors_of(_plain()))
    return of.config_of(_plain()) | of.whole_tokenizer(_plain()) | weights


def _but(*left_out: str, **changed: bytes) -> Callable[[], Files]:
    """All files but some; in the names of changed ones, `__` stands for a dot."""
    return lambda: {
        **{path: content for path, content in _whole().items() if path not in left_out},
        **{name.replace("__", "."): content for name, content in changed.items()},
    }


def _config(**changes: Any) -> Callable[[], Files]:
    return lambda: _whole() | of.config_of(_plain(), **changes)


def _pickle(write: Callable[[of.Tensors], Files]) -> Callable[[], Files]:
    return lambda: {**_but("model.safetensors")(), **write(of.tensors_of(_plain()))}


def _pickled(content: Callable[[of.Tensors], bytes]) -> Damage:
    return Damage(_pickle(lambda t: {"pytorch_model.bin": content(t)}), r"pytorch_model\.bin")


def _bytes(change: Callable[[bytes], bytes]) -> Damage:
    """Weights of which the file's bytes are changed."""
    return Damage(
        lambda: _but(model__safetensors=change(_whole()["model.safetensors"]))(),
        r"model\.safetensors",
    )


def _tensors(change: Callable[[dict[str, torch.Tensor]], of.Tensors]) -> Callable[[], Files]:
    return lambda: _whole() | of.safetensors_of(change(of.tensors_of(_plain())))


def _without(name: str) -> Callable[[], Files]:
    """Weights without the tensors whose names begin so."""
    return _tensors(lambda tensors: {k: v for k, v in tensors.items() if not k.startswith(name)})


def _shards(left_out: str = "", *, place: str = "") -> Callable[[], Files]:
    """Two shards without one of them, or with another place of a tensor in the index."""

    def make() -> Files:
        files = dict(of.safetensors_of(of.tensors_of(_plain()), shards=2))
        index = json.loads(files["model.safetensors.index.json"])
        if place:
            index["weight_map"]["classifier.weight"] = place
        files["model.safetensors.index.json"] = of.as_json(index)
        files = {**_but("model.safetensors")(), **files}
        return {path: content for path, content in files.items() if path != left_out}

    return make


_QUERY = "bert.encoder.layer.1.attention.self.query.weight"
_INNER = "bert.encoder.layer.1.intermediate.dense.weight"


def _custom() -> Files:
    changes = {
        "architectures": ["BertForNaturalLanguageInference"],
        "auto_map": {"AutoConfig": "modeling_nli.BertNliConfig",
            "AutoModelForSequenceClassification": "modeling_nli.BertForNaturalLanguageInference"},
    }  # fmt: skip
    return _config(**changes)() | {"modeling_nli.py": of.REMOTE_CODE}


def _custom_tokenizer() -> Files:
    config = {
        "tokenizer_class": "NliTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_nli.NliTokenizer", None]},
    }
    files = _but("tokenizer.json", tokenizer_config__json=of.as_json(config))()
    return {**files, "tokenization_nli.py": of.REMOTE_CODE}


def _gguf(share: float | None) -> Damage:
    def make() -> Files:
        if share is None:
            return {"model.gguf": b"not a GGUF file at all" * 10}
        target = scratch("llama.gguf")
        if not target.exists():
            plain_lm("llama-bytes")
            write_llama(tiny_lm("llama-bytes"), tiny_tokenizer("llama-bytes"), target)
        content = target.read_bytes()
        return {"model.gguf": content[: int(len(content) * share)]}

    return Damage(make, r"model\.gguf", ("--gguf-file", "model.gguf"))


def _adapter(**changes: Any) -> Callable[[], Files]:
    return lambda: {**lora(), **adapter_config(**changes)}


def _adapter_payload() -> Files:
    files = {path: content for path, content in lora().items() if "safetensors" not in path}
    return files | {"adapter_model.bin": of.PAYLOAD}


DAMAGES: Final[Mapping[str, Damage]] = {
    # Half downloads and broken files.
    "cut/half": _bytes(lambda whole: whole[: len(whole) // 2]),
    "cut/header-garbled": _bytes(lambda whole: whole[:8] + b"\xff" * 32 + whole[40:]),
    "cut/pointer": _bytes(lambda whole: of.LFS_POINTER),
    "cut/pickle-pointer": _pickled(lambda _: of.LFS_POINTER),
    "cut/gguf": _gguf(0.5),
    "cut/gguf-none": _gguf(None),
    # Indices.
    "index/upwards": Damage(_shards(place="../../../../etc/passwd"), r"index\.json"),
    "index/another-format": Damage(_shards(place="pytorch_model.bin"), r"index\.json"),
    "index/shard-missing": Damage(
        _shards("model-00002-of-00002.safetensors"), r"model-00002-of-00002\.safetensors"
    ),
    "index/a-list": Damage(
        lambda: {**_shards()(), "model.safetensors.index.json": b"[]"}, r"index\.json"
    ),
    # Configurations.
    "config/layers": Damage(_config(num_hidden_layers=10_000_000), r"num_hidden_layers|layers"),
    "config/vocabulary": Damage(_config(vocab_size=4_000_000_000), r"vocab_size|word_embeddings"),
    "config/text-for-number": Damage(_config(hidden_size="many"), r"config\.json|hidden_size"),
    "config/no-json": Damage(_but(config__json=b"{"), r"config\.json"),
    "config/empty": Damage(_but(config__json=b"{}"), r"config|nothing"),
    "config/none": Damage(_but("config.json"), r"config\.json"),
    "config/unknown-type": Damage(_config(model_type="bert-of-mine"), r"a type .* 'bert-of-mine'"),
    "config/gptq": Damage(
        _config(quantization_config={"quant_method": "gptq", "bits": 4}),
        r"not quantised, got GPTQ: take .* --base-url.* pip install optimum gptqmodel",
    ),
    "config/no-names": Damage(
        _config(id2label=None, label2id=None), r"got LABEL_0, LABEL_1, LABEL_2: nothing says", ()
    ),
    "weights/no-number": Damage(
        _tensors(lambda t: t | {_QUERY: t[_QUERY] * float("nan")}),
        rf"got nan in {_QUERY}: .* is damaged",
    ),
    "weights/overflow": Damage(
        _tensors(lambda t: t | {_QUERY: t[_QUERY] + 1e5}),
        rf"got inf in {_QUERY}: .* --dtype bfloat16",
        ("--label-order", "e,n,c", "--dtype", "float16"),
    ),
    "weights/missing": Damage(_without(_QUERY), rf"all weights of a Bert.* lacks 1.*{_QUERY}"),
    "config/custom-head": Damage(_custom, r"got BertForNatural\w+, which needs code"),
    "sizes": Damage(
        _tensors(lambda t: t | {_INNER: torch.zeros(48, 32)}), _INNER.replace(".", r"\.")
    ),
    "no-head": Damage(_without("classifier"), r"classifier"),
    # Tokenizers.
    "tokenizer/none": Damage(_but("tokenizer.json", "tokenizer_config.json"), r"tokenizer"),
    "tokenizer/no-json": Damage(_but(tokenizer__json=b"{"), r"tokenizer"),
    "tokenizer/of-another-model": Damage(
        lambda: {**_whole(), **of.whole_tokenizer(tiny_classifier("roberta"))},
        r"tokenizer\.json: expected a tokenizer of at most \d+ tokens.* got \d+",
    ),
    "tokenizer/custom": Damage(_custom_tokenizer, r"tokenizer|NliTokenizer"),
    # Weights in a format that is not read.
    "weights/tensorflow": Damage(_but("model.safetensors", tf_model__h5=b"HDF"), r"safetensors"),
    # Pickles that run code.
    "payload/zip": Damage(
        _pickle(lambda t: of.pickles_of(t, more=Payload())), r"pytorch_model\.bin"
    ),
    "payload/old": Damage(
        _pickle(lambda t: of.pickles_of(t, old=True, more=Payload())), r"pytorch_model\.bin"
    ),
    "payload/bare": _pickled(lambda _: pickle.dumps({"state": Payload()})),
    "payload/sharded": Damage(
        _pickle(lambda t: of.pickles_of(t, shards=2, more=Payload())), r"pytorch_model-0000.*\.bin"
    ),
    "payload/whole-model": _pickled(lambda _: of.pickled(torch.nn.Linear(2, 2))),
    "payload/adapter": Damage(_adapter_payload, r"adapter_model\.bin"),
    # Adapters.
    "adapter/of-a-path": Damage(
        _adapter(base_model_name_or_path="/home/someone/bert"), r"/home/someone/bert"
    ),
    "adapter/cut": Damage(
        lambda: {
            path: content[: 2000 if path.endswith(".safetensors") else None]
            for path, content in lora().items()
        },
        r"adapter_model\.safetensors",
    ),
    "adapter/unknown-kind": Damage(_adapter(peft_type="MAGIC"), r"MAGIC|adapter_config\.json"),
    "adapter/no-weights": Damage(
        lambda: {path: c for path, c in lora().items() if not path.startswith("adapter_model")},
        r"adapter_model",
    ),
    "adapter/another-rank": Damage(_adapter(r=8), r"adapter|lora"),
}  # fmt: skip


def refusal(code: int, text: str) -> str:
    """The one line that a command which ended with code 2 has written."""
    lines = [line for line in text.splitlines() if not PROGRESS.search(line)]
    assert (code, len(lines)) == (2, 1), text
    return lines[0]


SHARPEST = (
    "cut/half", "cut/pickle-pointer", "cut/gguf", "index/upwards", "config/layers",
    "config/custom-head", "sizes", "tokenizer/none", "payload/zip", "payload/old",
)  # fmt: skip
"""Damages of each kind; all are tried on the Hub."""


@pytest.mark.parametrize("name", SHARPEST)
def test_damages_are_told_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "merge-nli", many_problems(6, 1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(Payload.MARKER, str(tmp_path / "payload-ran"))
    folder = written(DAMAGES[name].make(), tmp_path / name)
    words = ("predict", "--dataset", "merge-nli", "--model", str(folder), "--out", "out.parquet")
    done = CliRunner().invoke(app, [*words, *DAMAGES[name].options])
    message = refusal(done.exit_code, done.stderr.replace(str(folder), "FOLDER"))
    assert re.search(DAMAGES[name].named, message)
    assert not (tmp_path / "payload-ran").exists()
    assert not (tmp_path / "out.parquet").exists()


# --- On a Hub ---


@pytest.fixture(scope="module")
def at() -> Iterator[Console]:
    """A Hub with all layouts, and a console; tests leave both unchanged."""
    with console() as made:
        for name, layout in LAYOUTS.items():
            serve(made.hub, name, layout)
        rows = [
            {"id": str(i), "premise": premise, "hypothesis": hypothesis, "label": "neutral"}
            for i, (premise, hypothesis) in enumerate(SENTENCES)
        ]
        write_plain(made.folder / "problems.jsonl", rows)
        yield made
        assert made.hub.errors == []
        assert not made.marker.exists()


@pytest.fixture
def fresh(at: Console) -> Console:
    at.forget()
    return at


def suggestions(at: Console, model: object, **more: Any) -> bytes:
    run = f"run-{uuid4()}"
    options = ("--source", "mine", "--data", "problems.jsonl", "--device", "cpu", "--run", run)
    done = at.run("suggest", *options, "--mlm", model, **more)
    assert done.code == 0, done.err
    (answers,) = suggestions_in(at.folder / run / "suggestions").values()
    return answers


def probabilities(at: Console, dataset: str, *words: object, **more: Any) -> dict[str, np.ndarray]:
    folder = at.folder / f"predicted-{uuid4()}"
    out = folder if "--preset" in words else folder / "p.parquet"
    asked = ("--dataset", dataset, "--device", "cpu", "--out", out)
    done = at.run("predict", *asked, *words, **more)
    assert done.code == 0, done.err
    (file,) = folder.glob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    return {row["variant_id"]: np.array(row["probabilities"]) for row in rows}


def shots(name: str) -> tuple[str, ...]:
    return ("--shots", "none") if LAYOUTS[name].task == "lm" else ()


@cache
def plain_answers(at: Console, name: str) -> tuple[str, dict[str, np.ndarray]]:
    """A dataset whose gold labels are the plain model's answers, and these."""
    dataset = f"labelled-{uuid4()}"
    write_folder(at.folder / f"{dataset}-at-first", PROBLEMS)
    plain = ("--model", LAYOUTS[name].plain(), *shots(name))
    answers = probabilities(at, f"{dataset}-at-first", *plain, offline=True)
    labelled = {n: (*PROBLEMS[n][:2], int(p.argmax())) for n, p in answers.items()}
    write_folder(at.folder / dataset, labelled)
    return dataset, answers


def check_hub(at: Console, name: str, *named: str, **more: Any) -> None:
    """Require that a model of the Hub answers as the plain one."""
    layout = LAYOUTS[name]
    if layout.task == "mlm":
        assert suggestions(at, name, **more) == suggestions(at, layout.plain(), offline=True)
        return
    dataset, wanted = plain_answers(at, name)
    order = ("--label-order", layout.order) if layout.order else ()
    named = named or ("--model", name, *order)
    result = probabilities(at, dataset, *named, *shots(name), **more)
    assert result.keys() == wanted.keys()
    for problem, item in wanted.items():
        np.testing.assert_allclose(result[problem], item, atol=1e-6)


SHORT = {preset.model: preset.name for preset in read_presets("paper")}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_online_and_then_offline(name: str, fresh: Console) -> None:
    named = ("--preset", "paper", "--only", SHORT[name]) if name in SHORT else ()
    check_hub(fresh, name, *named, token=TOKEN)
    assert fresh.hub.strayed() == []
    check_hub(fresh, name, *named, token=TOKEN, offline=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_damages_on_the_hub(name: str, fresh: Console) -> None:
    damaged = f"some/{name.replace('/', '-')}"
    fresh.hub.serve(damaged, DAMAGES[name].make())
    done = fresh.predict(damaged, *DAMAGES[name].options)
    assert re.search(DAMAGES[name].named, refusal(done.code, done.err)), done.err
    assert fresh.hub.strayed() == []


def refused(done: Ended) -> str:
    return refusal(done.code, done.err)


@pytest.mark.slow
def test_a_branch_that_moves_while_a_model_is_loaded(fresh: Console, tmp_path: Path) -> None:
    files = dict(LAYOUTS["safetensors/float16"].files)
    config, own = json.loads(files["config.json"]), load(files["model.safetensors"])
    tensors = dict(own)
    tensors["classifier.bias"] = tensors["classifier.bias"] + torch.tensor([0.0, 3.0, -3.0])
    versions, wanted = [], []
    for weights, order in ((own, "enc"), (tensors, "cne")):
        labels = {str(number): LABELS[letter] for number, letter in enumerate(order)}
        named = of.as_json(config | {"id2label": labels, "label2id": {}})
        versions.append({**files, **of.safetensors_of(weights), "config.json": named})
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
