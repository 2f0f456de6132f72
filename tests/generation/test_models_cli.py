import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refused, run
from helpers.hub.commands import TOKEN, Console, console, serve
from helpers.hub.layouts import PAPER_MLMS, PAPER_MODELS
from helpers.paraphrasing import write_problems
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_models import tiny_model

from merge_metric.models.readiness import Machine, read_presets

NAMELESS = ("LABEL_0", "LABEL_1", "LABEL_2")


def models(*words: object, code: int = 0) -> list[dict[str, Any]]:
    done = run("models", *words, "--device", "cpu", "--format", "json", code=code)
    return list(json.loads(done.stdout)["rows"])


def test_what_lies_in_folders() -> None:
    named, nameless = tiny_classifier("bart"), tiny_classifier("xlnet", NAMELESS)
    result = models(named, tiny_model("roberta"), "--recipe", "demo")
    assert [item["kind"] for item in result] == ["sequence classifier", "masked LM", "masked LM"]
    assert [item["labels"] for item in result] == ["e,n,c (id2label)", None, None]
    assert {(item["weights"], item["tokenizer"]) for item in result} == {
        ("safetensors", "tokenizer.json")
    }
    assert result[2]["name"] == "bert-tiny-mlm"
    for item in result:
        assert (item["download_bytes"], item["loading"], item["wrong"]) == (0, "", "")
        assert item["memory_bytes"] == 600_000_000 + 2 * 4 * item["parameters"]
    for order, told in (("c,e,n", "c,e,n (given)"), ("seeds", "from the seeds")):
        (item,) = models(nameless, "--label-order", order)
        assert (item["labels"], bool(item["loading"])) == (told, order == "seeds")


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Machine("cpu", 500_000_000)
    monkeypatch.setattr("merge_metric.models.readiness.this_machine", lambda device: small)
    (result,) = models(tiny_model("roberta"), code=1)
    assert result["wrong"] == (
        "needs about 600.4 MB of memory as float32, cpu has 500.0 MB: take another machine, or "
        "--dtype bfloat16"
    )


def test_suggest_tells_all_that_is_wrong_first(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "data.jsonl", [("1", "A girl runs.", "A girl moves.", "-")])
    folder = tmp_path / "run"
    for command in ("suggest", "generate"):
        told = refused(command, "--source", "snli", "--data", data, "--run", folder,
                       "--mlm", "nobody/nothing", "--mlm", tiny_model("roberta"),
                       "--mlm", tiny_classifier("bart"))  # fmt: skip
        lines = told.strip().splitlines()
        assert lines[-4] == "error: 2 of 3 models cannot be used as they are:"
        assert lines[-3].startswith("  nobody/nothing: HF_HUB_OFFLINE is set")
        assert "expected an architecture that ends in …ForMaskedLM" in lines[-2]
        assert lines[-1] == "`merge-nli models` shows what is there"
        assert not folder.exists()


def test_paraphrase_tells_of_both_models(tmp_path: Path) -> None:
    problems = [("1", "A girl runs.", "A girl moves.", "entailment")]
    data = write_problems(tmp_path / "data.jsonl", problems)
    told = refused(
        *("paraphrase", "--model", tiny_classifier("xlnet", NAMELESS), "--generator", "a/b"),
        *("--source", "snli", "--data", data, "--run", tmp_path / "run"),
    )
    lines = told.strip().splitlines()
    assert lines[-3] == "error: 2 of 2 models cannot be used as they are:"
    assert lines[-2].startswith("  a/b: HF_HUB_OFFLINE is set")
    assert "nothing says which class is which label" in lines[-1]
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def shop() -> Iterator[Console]:
    """A Hub with imitations of all models that recipes and presets name."""
    with console() as made:
        for name, layout in {**PAPER_MLMS, **PAPER_MODELS}.items():
            serve(made.hub, name, layout)
        yield made


ALL = ("models", "--preset", "paper", "--recipe", "paper-v2", "--device", "cpu")


@pytest.mark.slow
def test_the_papers_models_on_a_hub(shop: Console) -> None:
    done = shop.run(*ALL, "--format", "json", token=TOKEN)
    assert done.code == 0, done.out
    told = json.loads(done.out)
    result = {row["model"]: row for row in told["rows"]}
    assert set(result) == {*PAPER_MLMS, *PAPER_MODELS}
    assert "(roberta-base-mnli)" in told["notes"][0]
    by_seeds = {p.model for p in read_presets("paper") if p.label_order == "seeds"}
    for name, layout in PAPER_MODELS.items():
        labels = result[name]["labels"]
        if layout.task == "lm":
            assert labels is None
        elif name in by_seeds:
            assert labels == "from the seeds"
        else:
            assert labels == (
                f"{layout.order} (documented)" if layout.order else "c,n,e (id2label)"
            )
    for value in result.values():
        assert value["wrong"] == ""
        assert value["commit"]
        assert value["download_bytes"] > 0
        assert value["loading"].startswith("downloads ")


@pytest.mark.slow
def test_gated_and_not_downloaded(shop: Console) -> None:
    done = shop.run(*ALL, "--only", "LLM,BERT-B-M")
    assert done.code == 1
    text = " ".join(done.out.split())
    assert text.count("the model is gated: ask for access at https://huggingface.co/") == 2
    shop.forget()
    offline = shop.run(*ALL, offline=True)
    assert offline.code == 1
    assert offline.out.splitlines()[0] == "26 models, 26 cannot be used as they are"
    assert offline.out.count("HF_HUB_OFFLINE is set") == 26
    assert shop.hub.requests == []


@pytest.mark.slow
def test_words_that_a_masked_lm_does_not_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = []
    for name, more in (("few", ""), ("many", " 猫 犬")):
        texts = [(f"{n}", f"A dog runs{more}.", f"The dog sleeps{more}.", "neutral") for n in "123"]
        data = write_problems(tmp_path / f"{name}.jsonl", texts)
        done = run("suggest", "--source", "snli", "--data", data, "--run", tmp_path / name,
                   "--mlm", tiny_model("bert-uncased"), "--format", "json")  # fmt: skip
        recorded.append(json.loads(done.stdout)["mlms"][0].get("unknown_tokens"))
        assert caplog.text.count("are unknown to its tokenizer, as in '猫', '犬") == bool(more)
    few, many = recorded
    assert few is None
    assert (many["texts"], many["unknown"]) == (2, 4)
    assert many["tokens"] > 4
