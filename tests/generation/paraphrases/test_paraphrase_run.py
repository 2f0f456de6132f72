"""From problems to a run folder: a slow oracle, interruptions, other settings."""

import hashlib
import json
import shlex
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import run
from helpers.dataset_files import read_rows
from helpers.pages import commands
from helpers.paraphrase_oracle import (
    TABLES,
    World,
    check,
    expected_of,
    form_of,
    manifest,
    outcome,
    table,
)
from helpers.paraphrasing import (
    INSTRUCTION,
    Budget,
    FakeGenerator,
    FakeJudge,
    Interrupted,
    candidate,
    searching,
    settings,
    write_problems,
)
from helpers.tasks_here import TasksHere
from helpers.tiny_classifiers import one_by_one, tiny_classifier
from helpers.tiny_generators import saved_generator
from helpers.tiny_models import sentences
from hypothesis import given
from hypothesis import strategies as st

from generation.config import bundled_path
from generation.paraphrases import paraphrase_run
from generation.paraphrases.config import ParaphraseConfig
from generation.paraphrases.paraphrase_run import paraphrase
from generation.paraphrases.rounds import (
    REASONS,
    Candidate,
    ParaphraseRequest,
    clean,
    echoes,
    normalise,
    run_rounds,
    temperature_of,
)
from generation.run_folder import RunFolder
from generation.variants.reasons import KEPT
from merge_dataset.executors import Distribution
from merge_dataset.files import digest_of_file
from merge_dataset.schema import arrow_schema
from merge_metric.demo import MODEL


@pytest.mark.parametrize("seed", range(12))
def test_against_an_oracle(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paraphrase_run, "BLOCK", (1, 2, 3, 100)[seed % 4])
    world = World.of(seed)
    changes: dict[str, Any] = {"k": 1 + seed % 4, "max_rounds": 1 + seed % 5, "rng_seed": seed}
    run, _, judge = world.run(tmp_path / "run", **changes)
    config = ParaphraseConfig.read(run.config)
    expected = expected_of(world.problems, config, world.write, world.verdict)
    check(run, expected, world.problems)
    if seed % 4 == 3:  # one block: blocks are independent, so that tasks can process them
        assert set(judge.asked.values()) == {1}
    assert set(judge.asked) == expected.pairs
    for row in manifest(run)["funnel"]:
        assert row["generated"] == sum(row[reason] for reason in (*REASONS, "kept"))
        assert row.keys() - {"round"} == manifest(run)["explained"]["funnel"].keys()


def test_the_oracle_sees_every_reason(tmp_path: Path) -> None:
    """Otherwise, the comparison with the oracle would test less than it seems to."""
    seen: set[str] = set()
    for seed in range(12):
        world = World.of(seed)
        config = settings(tmp_path, tmp_path, k=2)
        result = expected_of(world.problems, config, world.write, world.verdict)
        seen |= {row["reason"] for row in result.candidates}
        seen |= {reason for reason, _ in result.exclusions.values()}
    assert seen >= {*REASONS, "kept", "unlabelled", "answered_wrong", "no_paraphrase"}


@pytest.mark.slow
def test_neither_order_nor_batches_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.of(3)
    run, generator, _ = world.run(tmp_path / "one")
    assert max(map(len, generator.batches)) == 4
    monkeypatch.setattr(paraphrase_run, "BLOCK", 2)
    backwards = World(world.problems[::-1], world.write, world.verdict)
    other, generator, _ = backwards.run(tmp_path / "two", generator_batches=1)
    assert {len(batch) for batch in generator.batches} == {1}
    for path in (f"{name}.parquet" for name in TABLES):
        assert (run.path / path).read_bytes() == (other.path / path).read_bytes()


def test_in_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.of(3)
    run, _, _ = world.run(tmp_path / "one")
    TasksHere(monkeypatch)
    monkeypatch.setattr(paraphrase_run, "look_at_models", lambda *_: None)
    generator, judge = FakeGenerator(world.write), FakeJudge(world.verdict)
    monkeypatch.setattr(paraphrase_run, "open_generator", lambda *_: generator)
    monkeypatch.setattr(paraphrase_run, "open_judge", lambda *_: judge)
    config = settings(tmp_path / "two", tmp_path / "one.jsonl")
    dealt = paraphrase(config, distribution=Distribution(executor="local", tasks=2))
    for name in TABLES:
        assert table(run, name) == table(dealt, name)
    assert dealt.manifest.read_bytes() == run.manifest.read_bytes()


def never(*_: object) -> Any:
    raise AssertionError("opened")


def test_a_run_that_is_done_opens_no_model(tmp_path: Path) -> None:
    world = World.of(1)
    run, *_ = world.run(tmp_path / "run")
    before = outcome(run)
    config = ParaphraseConfig.read(run.config)
    assert outcome(paraphrase(config, generator=never, judge=never)) == before


@pytest.mark.slow(but=["{'k': 99}-True-None"])
@pytest.mark.parametrize(
    ("changes", "rewrites", "asks"),
    [
        ({"prompt": "Again: {hypothesis}"}, True, None),
        ({"temperature_max": 0.9}, True, None),
        ({"max_rounds": 1}, False, False),
        ({"k": 99}, True, None),
        ({"data": "copy"}, False, False),
    ],
    ids=str,
)
def test_other_settings_ask_what_they_change(
    changes: dict[str, Any], rewrites: bool, asks: bool | None, tmp_path: Path
) -> None:
    world = World.of(2)
    world.run(tmp_path / "run", k=1, max_rounds=2)
    data = tmp_path / "run.jsonl"
    if "data" in changes:
        changes = {}
        data = write_problems(tmp_path / "copy.jsonl", world.problems)
    values = {"k": 1, "max_rounds": 2} | changes
    again, generator, judge = world.run(tmp_path / "run", data, overwrite=True, **values)
    assert bool(generator.batches) is rewrites
    if asks is not None:
        assert bool(judge.asked) is asks
    fresh, *_ = world.run(tmp_path / "fresh", data, **values)
    assert outcome(again) == outcome(fresh)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["generator", "judge", "both"])
@pytest.mark.parametrize("interrupted", [False, True])
def test_models_that_changed_under_the_same_name(
    which: str, interrupted: bool, tmp_path: Path
) -> None:
    world, model = World.of(4), tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("old")
    named = {"generator": str(model), "model": str(model), "k": 2}
    if interrupted:
        with pytest.raises(Interrupted):
            world.run(tmp_path / "run", budget=Budget(15), **named)
    else:
        world.run(tmp_path / "run", **named)
    (model / "weights").write_text("other")
    revisions = {name: "r2" if which in (name, "both") else "r1" for name in ("generator", "judge")}

    def again(folder: Path) -> RunFolder:
        config = settings(folder, tmp_path / "run.jsonl", **named)
        generator = FakeGenerator(world.write, revision=revisions["generator"])
        judge = FakeJudge(world.verdict, revision=revisions["judge"])
        return paraphrase(config, generator=lambda: generator, judge=lambda problems: judge)

    run = again(tmp_path / "run")
    made = manifest(run)
    assert made["generator"]["revision"] == revisions["generator"]
    assert made["nli_model"]["revision"] == revisions["judge"]
    assert outcome(run) == outcome(again(tmp_path / "fresh"))


def test_a_hub_model_that_changed_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    world = World.of(4)
    with pytest.raises(Interrupted):
        world.run(tmp_path / "run", budget=Budget(25), k=2)
    assert (tmp_path / "run" / "generator.json").exists()
    config = settings(tmp_path / "run", tmp_path / "run.jsonl", k=2)
    generator = FakeGenerator(world.write, revision="r2")
    judge = FakeJudge(world.verdict, revision="r2")
    for name in ("generator", "nli_model"):
        with pytest.raises(ValueError, match=rf"{name}\.json: .* got another of the same name"):
            paraphrase(config, generator=lambda: generator, judge=lambda problems: judge)
    run = paraphrase(config, generator=lambda: generator, judge=lambda problems: judge)
    made = manifest(run)
    assert (made["generator"]["revision"], made["nli_model"]["revision"]) == ("r2", "r2")
    fresh = settings(tmp_path / "fresh", tmp_path / "run.jsonl", k=2)
    other = paraphrase(fresh, generator=lambda: generator, judge=lambda problems: judge)
    assert outcome(run) == outcome(other)


def test_the_manifest(tmp_path: Path) -> None:
    world = World.of(1)
    run, *_ = world.run(tmp_path / "run", k=3, batch_size=7, limit=25)
    made = manifest(run)
    assert (made["kind"], made["source"]) == ("paraphrases", "snli")
    assert made["prompt"] == f"{INSTRUCTION} {{hypothesis}}"
    assert made["generator"] == {
        "name": "fake-t5", "revision": "r1", "architecture": "Fake", "dtype": "float32",
        "device": "cpu", "batch_size": 4,
    }  # fmt: skip
    assert made["nli_model"] == {"kind": "classifier", "name": "fake-nli", "revision": "r1"}
    assert (made["config"]["k"], made["config"]["batch_size"]) == (3, 7)
    assert not {"run", "data", "device", "model"} & set(made["config"])
    assert made["source_data"]["description"] == "run.jsonl"
    assert len(made["source_data"]["sha256"]) == len(made["fingerprint"]) == 64
    assert {"torch", "transformers", "pyarrow"} <= set(made["packages"])
    assert "spacy" not in made["packages"]
    assert made["files"] == {
        f"{name}.parquet": hashlib.sha256((run.path / f"{name}.parquet").read_bytes()).hexdigest()
        for name in TABLES
    }
    for name in ("seeds", "variants"):
        assert pq.read_schema(run.path / f"{name}.parquet") == arrow_schema()


def test_no_right_answers(tmp_path: Path) -> None:
    problems = [("1", "P.", "H.", "neutral"), ("2", "P.", "I.", "contradiction")]
    world = World(problems, never, lambda p, h: (1, 0, 0))
    with pytest.raises(
        ValueError,
        match=r"^fake-nli: expected some right answers, got none to 2 problems; .*`label_order`",
    ):
        world.run(tmp_path / "run")


def test_no_paraphrases(tmp_path: Path) -> None:
    problems = [("1", "P.", "H.", "neutral"), ("2", "P.", "I.", "neutral")]
    world = World(problems, lambda r: [candidate(r.hypothesis)] * 2, lambda p, h: (0, 1, 0))
    with pytest.raises(ValueError, match="none of 2 hypotheses has a paraphrase; take") as caught:
        world.run(tmp_path / "run", max_rounds=2)
    lines = str(caught.value).splitlines()
    (copies,) = (line.replace("│", " ").split() for line in lines if "copy" in line)
    assert copies == ["copy", "4", "100.0%", "4", "100.0%"]
    run = RunFolder(tmp_path / "run")
    assert {row["reason"] for row in table(run, "paraphrases")} == {"copy"}
    assert not run.manifest.exists()


GIRL = "A girl jumps."


def config(**changes: Any) -> ParaphraseConfig:
    return ParaphraseConfig(**({"model": "my-nli", "max_rounds": 1} | changes))


class Scripted:
    """Candidates by round, and verdicts; by default, a text is a paraphrase."""

    def __init__(self, *rounds: dict[str, list[Candidate]]) -> None:
        self.script = rounds
        self.requests: list[list[ParaphraseRequest]] = []
        self.pairs: list[list[tuple[str, str]]] = []

    def rewrite(self, number: int, requests: list[ParaphraseRequest]) -> list[list[Candidate]]:
        assert number == len(self.requests) + 1
        self.requests.append(requests)
        return [self.script[number - 1].get(request.hypothesis, []) for request in requests]

    def judge(self, number: int, pairs: list[tuple[str, str]]) -> np.ndarray:
        assert number == len(self.requests)
        self.pairs.append(pairs)
        rows = [
            (0.2, 0.7, 0.1)
            if ("(more)" in hypothesis or "(less)" in premise)
            else (0.9, 0.05, 0.05)
            for premise, hypothesis in pairs
        ]
        return np.array(rows).reshape(-1, 3)

    def run(self, config: ParaphraseConfig, *hypotheses: str) -> list[list[dict[str, Any]]]:
        result = run_rounds(hypotheses or (GIRL,), config, rewrite=self.rewrite, judge=self.judge)
        return list(result)


def reasons(texts: Sequence[str | Candidate], **changes: Any) -> list[str | None]:
    candidates = [c if isinstance(c, Candidate) else candidate(c) for c in texts]
    (tried,) = Scripted({GIRL: candidates}).run(config(**changes))
    return [row["reason"] for row in tried]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "empty"),
        ("“…”", "empty"),
        (candidate("A girl", finished=False), "unfinished"),
        ("a" * 401, "too_long"),
        (f"{INSTRUCTION} {GIRL}", "prompt_echoed"),
        ("I rephrase the FOLLOWING sentence", "prompt_echoed"),
        ("while preserving its original form", "prompt_echoed"),
        (GIRL, "copy"),
        ("  a GIRL — jumps", "copy"),
        ("\uff21 girl\u00a0jumps!", "copy"),
        (f'The original sentence is: "{GIRL}"', "quoted"),
        ("There a girl jumps.", "quoted"),
        ("A girl jumpsuit", KEPT),
        ("A girl leaps (more).", "not_entailed"),
        ("A girl leaps (less).", "not_entailing"),
        ("(more) (less)", "not_entailed"),
        ("a" * 400, KEPT),
    ],
)
def test_a_candidate_has_one_reason(given: str | Candidate, reason: str) -> None:
    assert reasons([given]) == [reason]


def test_temperatures_are_keyed() -> None:
    made = config(max_rounds=2)
    script = Scripted({}, {})
    script.run(made, "A.", "B.")
    result = {(number, r.hypothesis): r.temperature
             for number, requests in enumerate(script.requests, start=1)
             for r in requests}  # fmt: skip
    assert len(set(result.values())) == 4
    assert result == {(n, h): temperature_of(h, n, made) for n, h in result}
    assert temperature_of("A.", 1, config(rng_seed=1)) != result[1, "A."]
    alone = Scripted({})
    alone.run(config(), "B.")
    assert alone.requests[0][0].temperature == result[1, "B."]


@given(st.text(max_size=40))
def test_normalised_as_an_oracle_has_it(text: str) -> None:
    form = normalise(text)
    assert form == form_of(text)
    assert normalise(form) == form


@pytest.mark.parametrize(
    ("text", "hypothesis", "prompt", "expected"),
    [
        ("Rephrase the following sentence", "x", INSTRUCTION, True),
        ("the following sentence while", "x", INSTRUCTION, True),
        ("Rephrase the following text", "x", INSTRUCTION, False),
        ("He did it while preserving its original form.", "He did it.", INSTRUCTION, True),
        ("It was, while preserving its original form, new.",
         "It is new while preserving its original form.", INSTRUCTION, False),
        ("Paraphrase: x", "x", "Paraphrase: ", True),
        ("A paraphrase.", "The paraphrase.", "Paraphrase: ", False),
        ("Anything at all", "x", "", False),
        ("The answer is no.", "It is no.", "Say in other words: {hypothesis}\nAnswer:", False),
        ("Say in other words no.", "No.", "Say in other words: {hypothesis}\nAnswer:", True),
        ("the sentence a", "x", "The sentence {hypothesis} a girl jumps", False),
    ],
)  # fmt: skip
def test_echoes(text: str, hypothesis: str, prompt: str, expected: bool) -> None:
    """An echo has four words of one part of the instruction, or all of its longest part."""
    whole = prompt if "{hypothesis}" in prompt else prompt + "{hypothesis}"
    assert echoes(text, hypothesis, whole) is expected


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
    codes = [run(*shlex.split(command)[1:]).exit_code for command in real_run["made"]["next"]]
    assert codes == [0] * len(codes) != []


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
    """A prompt may have other braces; one without a place is refused."""
    assert searching(prompt='{"text": "{hypothesis}"}').prompt == '{"text": "{hypothesis}"}'
    with pytest.raises(ValueError, match=r"prompt: expected \{hypothesis\} where .*: 'Say it'"):
        searching(prompt="Say it")
