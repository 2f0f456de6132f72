import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.harness import CASES, Place, ask_others, assert_answers, make_place, run
from helpers.hub.loopback import loopback_hub
from helpers.hub.repositories import entries_of
from helpers.processes import python_of
from helpers.tiny_language_models import tiny_tokenizer

from merge_dataset.hub.benchmark import benchmark
from merge_dataset.layout import split_files
from merge_metric.frame.predictions import model_name, read_predictions

pytestmark = [pytest.mark.harness, pytest.mark.slow]

CONFIG = "snli"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = make_place(tmp_path_factory.mktemp("inspect"), chat=True)
    out = str(place.path / "tasks")
    place.export("inspect", str(place.dataset), "--out", out, "--ct", "50", "--ct", "90")
    return place


def inspect(place: Place, *options: str, config: str = CONFIG) -> tuple[dict[str, Any], Path]:
    """Run the task; return what Inspect itself reads from its log, and the log."""
    logs = place.path / f"logs-{len(list(place.path.iterdir()))}"
    command = [python_of("MERGE_NLI_INSPECT_PYTHON"), "-m", "inspect_ai"]
    asked = ["tasks/merge_nli.py", "--model", "hf/tiny", "-M", f"model_path={place.model}"]
    asked += ["-M", "device=cpu", "-T", f"config={config}", "--display", "plain"]
    run([*command, "eval", *asked, "--log-dir", str(logs), *options], place.path)
    (file,) = logs.glob("*.eval")
    return json.loads(run([*command, "log", "dump", str(file)], place.path)), file


def answers_of(log: dict[str, Any]) -> dict[str, Any]:
    scores = {sample["id"]: sample["scores"].values() for sample in log["samples"]}
    return {name: score["metadata"]["answer"] for name, (score,) in scores.items()}


def test_figures_and_probabilities_are_ours(place: Place) -> None:
    # A random model's letters may have any rank in its vocabulary.
    log, file = inspect(place, "-T", f"top_logprobs={len(tiny_tokenizer('gpt2'))}")
    assert log["status"] == "success"
    rows = place.ours(CONFIG, "--chat-template")
    expected = place.figures(CONFIG, (50, 90))
    (scores,) = log["results"]["scores"]
    result = {name: item["value"] for name, item in scores["metrics"].items()}
    counts = [result.pop(name) for name in ("n_seeds", "n_variants", "n_seeds_left_out")]
    assert counts == [8, 72, 0]
    assert result == pytest.approx(expected, nan_ok=True)
    assert result == pytest.approx(place.figures(CONFIG, (50, 90), log=file), nan_ok=True)
    assert model_name(file) == "hf/tiny"
    assert 0 < expected["variant_accuracy"] < 1
    assert len(log["samples"]) == len(rows)
    assert_answers(answers_of(log), rows)


_RULE = """
import re, sys
from inspect_ai import eval
from inspect_ai.model import ModelAPI, ModelOutput, modelapi

@modelapi(name="rule")
class Rule(ModelAPI):
    async def generate(self, input, tools, tool_choice, config):
        texts = re.match("Premise: (.*)\\nHypothesis: (.*)\\n", input[-1].text).groups()
        answer = f"First 2 lines of thought.\\nANSWER: {'ABC'[len(''.join(texts)) % 3]}"
        return ModelOutput.from_content(model="rule", content=answer)

    async def count_text_tokens(self, text):
        return len(text)

eval("hf/somebody/merge-nli", model="rule/x", log_dir=sys.argv[1], log_format="json",
     display="plain")
"""


def test_the_hubs_benchmark(place: Place) -> None:
    with loopback_hub() as hub:
        files = {
            path.relative_to(place.dataset).as_posix(): path.read_bytes()
            for path in place.dataset.rglob("*")
            if path.is_file()
        }
        files["eval.yaml"] = benchmark(place.dataset)
        hub.make("dataset", "somebody/merge-nli").add("main", entries_of(files), "Data")
        logs, environment = place.path / "hub-logs", hub.environment()
        command = [python_of("MERGE_NLI_INSPECT_PYTHON"), "-c", _RULE, str(logs)]
        run(command, place.path, {**environment, "HF_HUB_OFFLINE": "0"})
    (file,) = logs.glob("*.json")
    log = json.loads(file.read_text(encoding="utf-8"))
    assert log["status"] == "success"
    files = split_files(place.dataset, CONFIG)["variants"]
    rows = pa.concat_tables([pq.read_table(place.dataset / file) for file in files])
    expected = {
        row["variant_id"]: len(row["premise"] + row["hypothesis"]) % 3 == row["label"]
        for row in rows.to_pylist()
    }
    result = {}
    for sample in log["samples"]:
        (score,) = sample["scores"].values()
        result[sample["metadata"]["variant_id"]] = score["value"] == "C"
    assert result == expected
    rows = read_predictions(file, place.dataset).to_pylist()
    assert {row["variant_id"]: row["prediction"] == row["label"] for row in rows} == expected
    (scores,) = log["results"]["scores"]
    accuracy = scores["metrics"]["accuracy"]["value"]
    assert accuracy == pytest.approx(sum(expected.values()) / len(expected))
    assert 0 < accuracy < 1


@pytest.mark.parametrize("answers", ["letters", "words"])
@pytest.mark.parametrize("case", CASES)
def test_other_problems_and_answers(case: str, answers: str, tmp_path: Path) -> None:
    place, config, asked = ask_others("inspect", case, answers, tmp_path, chat=True)
    more = (
        ("-M", "do_sample=false")
        if answers == "words"
        else ("-T", f"top_logprobs={len(tiny_tokenizer('gpt2'))}")
    )
    log, file = inspect(place, *more, config=config)
    assert log["status"] == "success"
    rows = place.ours(config, "--chat-template", *asked)
    expected = place.figures(config, (90,), allow_missing=config == "snli")
    (scores,) = log["results"]["scores"]
    result = {name: item["value"] for name, item in scores["metrics"].items()}
    result = {name: result[name] for name in expected}
    assert result == pytest.approx(expected, nan_ok=True)
    own = place.figures(config, (90,), allow_missing=config == "snli", log=file)
    assert result == pytest.approx(own, nan_ok=True)
    assert_answers(answers_of(log), rows, CASES[case][0].labels)


def test_answers_without_letters(place: Place) -> None:
    """The run stops, or labels are equally probable; a sample of seeds equals that of `predict`."""
    log, _ = inspect(place, "-T", "top_logprobs=1")
    assert log["status"] == "error"
    message = "expected A, B, C among the most probable tokens, got none for 'snli:"
    assert message in log["error"]["message"]
    uniform = ("-T", "missing_letters=uniform", "-T", "limit_seeds=2", "-T", "rng_seed=3")
    log, file = inspect(place, "-T", "top_logprobs=1", "--epochs", "2", *uniform)
    assert log["status"] == "success"
    sampled = place.ours(CONFIG, "--chat-template", "--limit-seeds", "2", "--rng-seed", "3")
    assert {sample["id"] for sample in log["samples"]} == set(sampled)
    (scores,) = log["results"]["scores"]  # of the first epoch
    own = place.figures(CONFIG, (50, 90), allow_missing=True, log=file)
    del own["most_frequent_letter"]  # it is of our own answers
    assert {name: scores["metrics"][name]["value"] for name in own} == pytest.approx(
        own, nan_ok=True
    )
    answers = [s["metadata"]["answer"] for item in log["samples"] for s in item["scores"].values()]
    kinds = {tuple(answer["probabilities"]) for answer in answers}
    assert (1 / 3, 1 / 3, 1 / 3) in kinds
    assert kinds <= {(1 / 3, 1 / 3, 1 / 3), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)}
