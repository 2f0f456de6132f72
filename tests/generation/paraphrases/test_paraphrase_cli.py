import json
import shlex
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import run
from helpers.dataset_files import read_rows
from helpers.pages import commands
from helpers.paraphrasing import FakeGenerator, candidate, searching, write_problems
from helpers.tiny_classifiers import one_by_one, tiny_classifier
from helpers.tiny_generators import saved_generator
from helpers.tiny_models import sentences

from generation.config import bundled_path
from generation.paraphrases import paraphrase_run
from generation.paraphrases.config import INSTRUCTION, ParaphraseConfig, fill_prompt
from generation.paraphrases.rounds import clean
from merge_dataset.files import digest_of_file
from merge_metric.demo import MODEL


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run of small random models; the most frequent class is entailment, so that some remain."""
    folder = tmp_path_factory.mktemp("real")
    classifier = tiny_classifier("bert-uncased", ("LABEL_0", "LABEL_1", "LABEL_2"))
    texts = [text for text in sentences(40) if len(text) < 60][:16]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    classes = one_by_one(classifier, [*pairs, *(pair[::-1] for pair in pairs)], 64).argmax(axis=1)
    entailment = Counter(classes.tolist()).most_common(1)[0][0]
    order = {entailment: "e", (entailment + 1) % 3: "n", (entailment + 2) % 3: "c"}
    names = {"e": "entailment", "n": "neutral", "c": "contradiction"}
    gold = [names[order[int(number)]] for number in classes[: len(pairs)]]
    problems = [
        (str(n), *pair, label) for n, (pair, label) in enumerate(zip(pairs, gold, strict=True))
    ]
    # The answer to one problem is wrong by its gold label.
    problems[0] = (*problems[0][:3], next(name for name in names.values() if name != gold[0]))
    data = write_problems(folder / "data.jsonl", problems)
    generator = saved_generator("llama-chat", folder / "tiny-llama")
    result = run(
        "paraphrase", "--model", classifier, "--label-order", ",".join(order[i] for i in range(3)),
        "--generator", generator, "--source", "anli-r1", "--data", data, "--k", 2,
        "--max-rounds", 2, "--beams", 6, "--groups", 3, "--max-new-tokens", 12, "--device", "cpu",
        "--run", folder / "run", "--out", folder / "my data", "--format", "json",
    )  # fmt: skip
    return {
        "made": json.loads(result.stdout), "folder": folder, "classifier": classifier,
        "entailment": entailment, "problems": problems,
    }  # fmt: skip


@pytest.mark.slow
def test_real_models_end_to_end(real_run: dict[str, Any]) -> None:
    folder, made = real_run["folder"], real_run["made"]
    count = len(real_run["problems"])
    assert made["problems"] == {
        "read": count, "unlabelled": 0, "kept": count, "answered_right": count - 1,
    }  # fmt: skip
    assert made["configs"] == ["anli-r1_paraphrases"]
    assert made["funnel"][0]["generated"] == 6 * made["hypotheses"]
    assert made["generator"]["architecture"] == "LlamaForCausalLM"
    assert made["generator"]["weights"] == {
        "format": "safetensors",
        "sha256": digest_of_file(folder / "tiny-llama" / "model.safetensors"),
    }
    assert made["nli_model"]["weights"]["sha256"] == digest_of_file(
        real_run["classifier"] / "model.safetensors"
    )
    rows = read_rows(folder / "run" / "paraphrases.parquet")
    judged = [row for row in rows if row["entailed"] is not None]
    assert len(judged) > 10
    pairs = [(row["hypothesis"], row["text"]) for row in judged]
    there, back = (
        one_by_one(real_run["classifier"], item, 64) for item in (pairs, [p[::-1] for p in pairs])
    )
    entailment, kept = real_run["entailment"], 0
    for row, forth, reverse in zip(judged, there, back, strict=True):
        assert row["entailed"] == pytest.approx(forth[entailment], abs=1e-5)
        assert row["entailing"] == pytest.approx(reverse[entailment], abs=1e-5)
        symmetric = forth.argmax() == reverse.argmax() == entailment
        assert symmetric == (row["reason"] in {"kept", "surplus"})
        kept += row["reason"] == "kept"
    assert kept == sum(row["kept"] for row in made["funnel"]) > 0
    assert all(0.3 <= row["temperature"] <= 0.6 for row in rows)
    run("check", folder / "my data")


def test_what_comes_next_works(real_run: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(real_run["folder"])
    for command in real_run["made"]["next"]:
        run(*shlex.split(command)[1:])


def write(request: Any) -> list[Any]:
    hypothesis = request.hypothesis
    swapped = hypothesis.replace("The ", "That ").replace("A ", "One ").replace(" a ", " one ")
    return [candidate(hypothesis), candidate(""), candidate(swapped), candidate("Nobody.")]


@pytest.mark.slow
def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paraphrase_run, "open_generator", lambda config: FakeGenerator(write))
    # The generator does not exist.
    monkeypatch.setattr(paraphrase_run, "look_at_models", lambda *_: None)
    shutil.copyfile(bundled_path("demo/problems.jsonl"), "snli_1.0_test.jsonl")
    page = bundled_path("paraphrases/README.md").read_text(encoding="utf-8")
    *made, analyse = commands(page)
    text = []
    for command in made:
        words = [w.replace("FacebookAI/roberta-large-mnli", str(MODEL)) for w in command]
        text.append(run(*words).stdout)
    assert len(text) == 3
    lines = [" ".join(line.replace("│", " ").split()) for line in text[0].splitlines()]
    for begins in (
        "bert-tiny-nli answers ", "Source snli, snli_1.0_test.jsonl: ", "generated ", "copy ",
        "empty ", "kept ", "Eligible seeds: ", "Paraphrases: ", "Dataset folder: ",
    ):  # fmt: skip
        assert any(line.startswith(begins) for line in lines), (begins, lines)
    assert "configuration snli_paraphrases" in text[0]
    assert "snli_paraphrases" in text[2]
    shutil.copyfile("roberta.parquet", "other.parquet")
    shutil.copytree("merge-nli", "merge-nli-other")
    words = [w.replace("other.parquet@", "other=other.parquet@") for w in analyse]
    assert "other" in run(*words).stdout


def config(**changes: Any) -> ParaphraseConfig:
    return ParaphraseConfig(**({"model": "my-nli"} | changes))


def test_the_defaults_are_those_of_the_paper() -> None:
    """Defaults are those of Arakelyan et al. (2024), section 4.1; `decoding` is the search."""
    made = config()
    assert (made.k, made.temperature_min, made.temperature_max) == (10, 0.3, 0.6)
    assert (made.max_new_tokens, made.generator) == (40, "google/flan-t5-xl")
    assert made.prompt.startswith("Rephrase the following sentence while preserving its original")
    assert made.source == "snli"
    changed = {"num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 0.25,
               "sibling_penalty": 0.125, "max_new_tokens": 7}  # fmt: skip
    assert config(**changed).decoding == changed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "k: expected at least 1, got 0"),
        ({"temperature_min": 0.0}, "temperature: expected two numbers above 0, .* 0.0 and 0.6"),
        ({"temperature_max": float("inf")}, "temperature: .*, got 0.3 and inf"),
        ({"num_beams": 7, "num_beam_groups": 2}, "num_beams: expected a multiple of .* got 7"),
        ({"sibling_penalty": -1.0}, "sibling_penalty: expected at least 0, got -1.0"),
    ],
)
def test_values_out_of_range(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        config(**changes)


H = "A girl jumps high."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A girl leaps.", "A girl leaps."),
        ("  A girl leaps. \n", "A girl leaps."),
        ("\n\n A girl leaps.\nA second line.", "A girl leaps."),
        ("Here is the rephrased sentence:\n\nA girl leaps.", "A girl leaps."),
        ('Here is the rephrased sentence:\r\n"A girl leaps."', "A girl leaps."),
        ("Here you are:", ""),
        ("", ""),
        (" \n\t\n", ""),
        ('"A girl leaps."', "A girl leaps."),
        ("“A girl leaps.”", "A girl leaps."),
        ("‘ A girl leaps. ’", "A girl leaps."),
        ("«A girl leaps.»", "A girl leaps."),
        ("'A girl doesn't sit.'", "A girl doesn't sit."),
        ("\"'A girl leaps.'\"", "A girl leaps."),
        ('""', ""),
        ('"', '"'),
        ('"A girl" is a "girl"', '"A girl" is a "girl"'),
        ('"Up" she leaps.', '"Up" she leaps.'),
        ("'Tis a girl who leaps'", "Tis a girl who leaps"),
        ("A girl's leap is the girls'", "A girl's leap is the girls'"),
        ("One: a girl leaps.", "One: a girl leaps."),
    ],
)
def test_cleaning(text: str, expected: str) -> None:
    """The first line stays, without an introduction and without quotation marks around it."""
    assert clean(text, H) == expected


@pytest.mark.parametrize(
    ("text", "hypothesis", "expected"),
    [
        ('"She leaps."', '"She jumps."', '"She leaps."'),
        ('"She leaps."', "'She jumps.'", '"She leaps."'),
        ('"She leaps."', '"She" jumps.', "She leaps."),
        ("She says this:", "She says:", "She says this:"),
        ("She says this:", "She says: ", "She says this:"),
    ],
)
def test_what_the_hypothesis_has_itself_stays(text: str, hypothesis: str, expected: str) -> None:
    assert clean(text, hypothesis) == expected


def test_prompts() -> None:
    """The paper's prompt takes any braces in the hypothesis; one without a place is refused."""
    assert fill_prompt(INSTRUCTION, "{a} {hypothesis} %s") == (
        "Rephrase the following sentence while preserving its original meaning: {a} {hypothesis} %s"
    )
    assert fill_prompt('{"text": "{hypothesis}"}', "x") == '{"text": "x"}'
    with pytest.raises(ValueError, match=r"prompt: expected \{hypothesis\} where .*: 'Say it'"):
        searching(prompt="Say it")
