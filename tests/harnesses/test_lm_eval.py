import json
from pathlib import Path
from typing import Any

import pytest
from helpers.harness import CASES, Place, ask_others, assert_answers, make_place, run
from helpers.processes import python_of

from merge_metric.frame.predictions import model_name, read_predictions

pytestmark = [pytest.mark.harness, pytest.mark.slow]
VARIABLE = "MERGE_NLI_LM_EVAL_PYTHON"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("lm-eval"))


def lm_eval(place: Place, tasks: str, *options: str) -> tuple[dict[str, Any], list[Path]]:
    out = place.path / f"results-{len(list(place.path.iterdir()))}"
    command = [python_of(VARIABLE), "-m", "lm_eval", "--model", "hf", "--device", "cpu"]
    command += ["--model_args", f"pretrained={place.model},dtype=float32", "--tasks", tasks]
    command += ["--include_path", "tasks", "--output_path", str(out), "--log_samples"]
    run([*command, *options], place.path)
    (file,) = out.rglob("results_*.json")
    results = json.loads(file.read_text(encoding="utf-8"))["results"]
    figures = {
        task: {
            name.removesuffix(",none"): value
            for name, value in result.items()
            if name.endswith(",none") and "_stderr" not in name
        }
        for task, result in results.items()
    }
    return figures, sorted(out.rglob("samples_*.jsonl"))


def test_figures_and_probabilities_are_ours(place: Place) -> None:
    out = str(place.path / "tasks")
    place.export(
        "lm-eval", str(place.dataset), "--out", out, "--letters", "both", "--ct", "50", "--ct", "90"
    )
    figures, samples = lm_eval(place, "merge_nli_snli,merge_nli_snli_verbs", "--batch_size", "4")
    assert len(samples) == 2
    for config, file in zip(("snli", "snli_verbs"), samples, strict=True):
        rows = place.ours(config)
        expected = place.figures(config, (50, 90))
        assert figures[f"merge_nli_{config}"] == pytest.approx(expected, nan_ok=True)
        own = place.figures(config, (50, 90), log=file)
        assert own == pytest.approx(figures[f"merge_nli_{config}"], nan_ok=True)
        assert model_name(file) == "tiny"
        logged = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(logged) == len(rows)
        assert_answers({item["sv@90"]["variant_id"]: item["sv@90"] for item in logged}, rows)
    assert 0 < expected["variant_accuracy"] < 1


def test_a_sample_of_seeds(tmp_path: Path) -> None:
    """The sample equals that of `predict`; with a tokenizer of pieces, and a given start token."""
    place = make_place(tmp_path, "llama")
    start = ("--prompt-start", "<s>")
    out = str(tmp_path / "tasks")
    place.export(
        "lm-eval", str(place.dataset), "--config=snli", "--out", out, "--letters=both", *start
    )
    sample = '{"limit_seeds": 3, "rng_seed": 5}'
    figures, (samples,) = lm_eval(place, "merge_nli_snli", "--metadata", sample)
    assert first_prompt(samples).startswith("<s>Premise: It runs.\nHypothesis: It plays.\nA. E")
    rows = place.ours("snli", "--limit-seeds", "3", "--rng-seed", "5", *start)
    assert sum(name == row["seed_id"] for name, row in rows.items()) == 3
    expected = place.figures("snli", (90,), allow_missing=True)
    own = place.figures("snli", (90,), allow_missing=True, log=samples)
    assert figures["merge_nli_snli"] == pytest.approx(expected, nan_ok=True)
    assert figures["merge_nli_snli"] == pytest.approx(own, nan_ok=True)
    with pytest.raises(AssertionError, match="a limit of samples cuts seeds; leave it out"):
        lm_eval(place, "merge_nli_snli", "--limit", "12")


def test_a_chat(tmp_path: Path) -> None:
    place = make_place(tmp_path, chat=True)
    out = str(tmp_path / "tasks")
    place.export(
        "lm-eval", str(place.dataset), "--config=snli_verbs", "--out", out, "--letters=both"
    )
    chat = ["--apply_chat_template", "--fewshot_as_multiturn", "true"]
    figures, (samples,) = lm_eval(place, "merge_nli_snli_verbs", *chat)
    prompt = first_prompt(samples)
    assert prompt.startswith("user: Premise: It runs.\nHypothesis: It plays.\nA. Entailment")
    assert "Answer:\nassistant: B\nuser: Premise: A cat is red." in prompt
    assert prompt.endswith("Answer:\nassistant:")
    place.ours("snli_verbs", "--chat-template")
    expected = place.figures("snli_verbs", (90,))
    assert figures["merge_nli_snli_verbs"] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("answers", ["letters", "words"])
@pytest.mark.parametrize("case", CASES)
def test_other_problems_and_answers(case: str, answers: str, tmp_path: Path) -> None:
    place, config, asked = ask_others("lm-eval", case, answers, tmp_path, "--letters", "both")
    task = f"merge_nli_{config}"
    figures, (samples,) = lm_eval(place, task)
    rows = place.ours(config, *asked)
    expected = place.figures(config, (90,), allow_missing=config == "snli")
    assert figures[task] == pytest.approx(expected, nan_ok=True)
    own = place.figures(config, (90,), allow_missing=config == "snli", log=samples)
    assert figures[task] == pytest.approx(own, nan_ok=True)
    logged = [json.loads(line)["sv@90"] for line in samples.read_text().splitlines()]
    assert_answers({item["variant_id"]: item for item in logged}, rows, CASES[case][0].labels)


_TASK = """
task: other_{kind}
dataset_path: parquet
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{premise}}}}\\nQuestion: {{{{hypothesis}}}} True, False or Neither?\\nAnswer:"
doc_to_target: "{{{{ ['True', 'Neither', 'False'][label] }}}}"
{more}
"""
_KINDS = {
    "multiple_choice": 'doc_to_choice: ["True", "False", "Neither"]\nmetric_list: [{metric: acc}]',
    "generate_until": """
generation_kwargs: {until: ["\\n"], max_gen_toks: 4, do_sample: false}
filter_list:
- {name: none, filter: [{function: take_first}]}
- {name: letter, filter: [{function: regex, regex_pattern: "x"}, {function: take_first}]}
metric_list: [{metric: exact_match, ignore_case: true}]""",
}


def test_other_tasks_over_the_dataset(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Choices in another order, and words after two filters: accuracy is the harness's."""
    place = make_place(tmp_path)
    data = place.dataset / "snli/nouns/variants.parquet"
    (tmp_path / "tasks").mkdir()
    for kind, more in _KINDS.items():
        text = _TASK.format(kind=kind, data=data, more=more)
        (tmp_path / f"tasks/{kind}.yaml").write_text(text)
    figures, samples = lm_eval(place, ",".join(f"other_{kind}" for kind in _KINDS))
    shares = []
    for file in samples:
        rows = read_predictions(file, place.dataset).to_pylist()
        assert len(rows) == 48
        shares.append(sum(row["label"] == row["prediction"] for row in rows) / len(rows))
    words, chosen = shares
    assert {row["prediction"] for row in rows} <= {0, 1, 2}
    assert figures["other_multiple_choice"]["acc"] == pytest.approx(chosen)
    assert figures["other_generate_until"]["exact_match"] == pytest.approx(words)
    assert "of the epoch or filter none are read, not of letter" in caplog.text


def first_prompt(samples: Path) -> str:
    arguments = json.loads(samples.read_text().splitlines()[0])["arguments"]
    return str(arguments["gen_args_0"]["arg_0"])
