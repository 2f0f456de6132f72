import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import commands
from helpers.commands import refused
from helpers.completions_server import Reply, Request, serving
from helpers.dataset_files import files_of
from helpers.hub.loopback import loopback_hub
from helpers.hub.repositories import Entry, User, entries_of
from helpers.latex import PDFLATEX, compiled
from helpers.report_data import problems

from merge_dataset.layout import CARD
from merge_metric import (
    SeedVariantCallback,
    compare_models,
    evaluate_model,
    read_predictions,
    score_file,
)
from merge_metric.demo import MODEL
from merge_metric.evaluation import Evaluation
from merge_metric.frame.predictions import read_metadata
from merge_metric.models.loading import AskedFunction, as_model
from merge_metric.seed_variant_accuracy.figures import MAIN_FIGURES
from merge_metric.seed_variant_accuracy.formatting import as_percent
from merge_metric.tables.table import escape
from merge_metric.tracking import trainer_figures

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = problems(12)
KEYS = ("seed_accuracy", "variant_accuracy", "relaxed_fooling_rate", "jsd_unchanged", "sigma_seeds")
Pairs = Sequence[tuple[str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return PROBLEMS.write(tmp_path_factory.mktemp("evaluated") / "merge-nli")


def gold() -> dict[tuple[str, str], int]:
    rows = (*PROBLEMS.seeds, *PROBLEMS.variants)
    return {(row["premise"], row["hypothesis"]): row["label"] for row in rows}


def knows(pairs: Pairs) -> list[int]:
    return [gold()[pair] for pair in pairs]


def always(pairs: Pairs) -> list[int]:
    return [0] * len(pairs)


def turn(pairs: Pairs) -> list[int]:
    return [(label + 1) % 3 for label in knows(pairs)]


def run(model: Any, folder: Path, **options: Any) -> Evaluation:
    return evaluate_model(model, folder, "snli", n_bootstrap=0, progress=False, **options)


def test_functions_of_labels(folder: Path) -> None:
    result = run(knows, folder)
    assert result.name == "knows"
    assert result.results["snli"]["seed_variant_accuracy"] == 1.0
    assert "jsd_changed" not in result.results["snli"]
    assert "probabilities" not in read_predictions(result.predictions).column_names
    names = ("Entailment", "neutral", "CONTRADICTION ")
    by_name = run(lambda pairs: [names[label] for label in knows(pairs)], folder, name="named")
    assert by_name.results["snli"]["variant_accuracy"] == 1.0
    turned = run(turn, folder)
    assert turned.results["snli"]["seed_accuracy"] == 0.0
    # Class 0 is contradiction, 1 entailment, 2 neutral.
    right = run(turn, folder, label_order="c,e,n")
    assert right.results["snli"]["seed_accuracy"] == 1.0


def test_functions_of_probabilities(folder: Path) -> None:
    sizes = []

    def soft(pairs: Pairs) -> np.ndarray:
        sizes.append(len(pairs))
        return 0.7 * np.eye(3)[knows(pairs)] + 0.1

    result = run(soft, folder, batch_size=7)
    assert set(sizes[:-1]) == {7}
    assert result.results["snli"]["seed_variant_accuracy"] == 1.0
    first = read_predictions(result.predictions)["probabilities"][0].as_py()
    assert first == pytest.approx([0.8, 0.1, 0.1])
    turned = run(lambda pairs: soft(pairs)[:, [2, 0, 1]], folder, label_order="c,e,n")
    assert turned.results["snli"]["seed_variant_accuracy"] == 1.0


def test_options_are_checked_before_the_model_is_asked(folder: Path) -> None:
    def never(pairs: Pairs) -> list[int]:
        raise AssertionError("asked")

    with pytest.raises(ValueError, match=r"expected an integer percent .*, got 0\.9"):
        run(never, folder, correctness_threshold=0.9)
    with pytest.raises(ValueError, match="did you mean 'snli_nouns'"):
        evaluate_model(never, folder, "snli_noun")
    with pytest.raises(FileNotFoundError, match="nobody/merge-nli: expected a dataset folder or"):
        evaluate_model(never, "nobody/merge-nli")


def test_what_is_no_model(folder: Path) -> None:
    for model, kind in ((3, "int"), (AskedFunction, "type"), (("a", "b"), "tuple")):
        with pytest.raises(TypeError, match=f"Trainer, .*; got {kind}"):
            run(model, folder)


@pytest.mark.slow
def test_estimators(folder: Path) -> None:
    """Classes may be names or numbers in any order, with or without probabilities."""
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.dummy import DummyClassifier

    pairs = list(gold())
    labels = [("entailment", "neutral", "contradiction")[label] for label in gold().values()]
    frequent = DummyClassifier(strategy="prior").fit(pairs, labels)  # classes: c, e, n
    result = run(frequent, folder)
    rows = read_predictions(result.predictions)
    shares = np.bincount(list(gold().values())) / len(labels)
    assert rows["probabilities"][0].as_py() == pytest.approx(shares.tolist())

    class Hard(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        classes_ = np.array([2, 0, 1])

        def predict(self, pairs: Pairs) -> np.ndarray:
            return np.array(knows(pairs))

    assert run(Hard(), folder).results["snli"]["seed_variant_accuracy"] == 1.0
    with pytest.raises(ValueError, match=r"classes are .*'no'.*'yes'"):
        run(DummyClassifier().fit(pairs, ["yes", *["no"] * (len(pairs) - 1)]), folder)


@pytest.mark.slow
def test_networks_answer_as_predict_does(folder: Path, tmp_path: Path) -> None:
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
        pipeline,
    )

    model = AutoModelForSequenceClassification.from_pretrained(MODEL, dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    by_name = run(str(MODEL), folder)
    arguments = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    kinds = [
        (model, tokenizer),
        pipeline("text-classification", model=model, tokenizer=tokenizer, device=-1),
        Trainer(model=model, args=arguments, processing_class=tokenizer),
    ]
    with pytest.raises(TypeError, match=r"Trainer, .*; got Trainer"):
        as_model(Trainer(model=model, args=arguments))
    model.train()
    expected = by_name.results["snli"]
    for kind in kinds:
        result = run(kind, folder, name="live").results["snli"]
        # Products in float32 differ in their last bits by processor, and so do divergences.
        close = pytest.approx({key: expected[key] for key in KEYS}, abs=1e-8)
        assert {key: result[key] for key in KEYS} == close
        assert model.training
    before = as_model((model, tokenizer)).describe().identity["revision"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.config, "id2label", {0: "A", 1: "B", 2: "C"})
        with pytest.raises(ValueError, match="nothing says which class is which label"):
            as_model((model, tokenizer))
    model.classifier.bias.data += 1.0
    assert as_model((model, tokenizer)).describe().identity["revision"] != before


@pytest.mark.slow
def test_a_real_cross_encoder(folder: Path, tmp_path: Path) -> None:
    """A folder without data of sentence-transformers, as most NLI models, and one saved by it."""
    import torch
    from sentence_transformers import CrossEncoder
    from transformers import BertConfig, BertForSequenceClassification

    expected = run(str(MODEL), folder)
    by_id = {row["variant_id"]: row for row in read_predictions(expected.predictions).to_pylist()}
    options = {"device": "cpu", "model_kwargs": {"dtype": torch.float32}}
    plain = CrossEncoder(str(MODEL), **options)
    CrossEncoder(str(MODEL), activation_fn=torch.nn.Softmax(-1), **options).save(
        str(tmp_path / "s")
    )
    saved = CrossEncoder(str(tmp_path / "s"), **options)
    assert isinstance(saved.activation_fn, torch.nn.Softmax)
    for model in (plain.train(), saved):
        result = run(model, folder)
        assert result.name == Path(model.config._name_or_path).name
        assert plain.training
        rows = read_predictions(result.predictions).to_pylist()
        assert len(rows) == len(by_id)
        for row in rows:
            other = by_id[row["variant_id"]]
            assert row["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, num_labels=1)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "ranks")
    tokenizer = plain.tokenizer
    tokenizer.save_pretrained(tmp_path / "ranks")
    with pytest.raises(ValueError, match=r"ranks: expected a classifier of .*, got one of 1 class"):
        run(CrossEncoder(str(tmp_path / "ranks"), device="cpu"), folder, label_order="e,n,c")


def test_clients_of_servers(folder: Path) -> None:
    seen = []

    def answer(request: Request, _: int) -> Reply:
        seen.append((request.headers.get("Authorization"), request.payload["model"]))
        top = [{"token": "A", "logprob": -0.1}, {"token": "B", "logprob": -3.0}]
        content = [{"token": "A", "logprob": -0.1, "top_logprobs": top}]
        answered = {"choices": [{"logprobs": {"content": content}, "message": {}}]}
        return Reply({**answered, "model": "gpt-mini"})

    with serving(answer) as server:
        client = SimpleNamespace(base_url=server.url, chat=None, api_key="sk-hidden-4711")
        with pytest.raises(ValueError, match="of gpt-mini; `strict_server` refuses"):
            run(client, folder, name="gpt", strict_server=True)
        with pytest.raises(ValueError, match="an OpenAI client: expected name"):
            run(client, folder)
        result = run(client, folder, name="gpt", limit_seeds=1)
    assert set(seen) == {("Bearer sk-hidden-4711", "gpt")}
    assert b"hidden" not in result.predictions.read_bytes()
    assert result.results["snli"]["n_seeds"] == 1
    with pytest.raises(ValueError, match="`allow_missing` scores the complete seeds"):
        Evaluation.load(result.predictions, folder)
    loaded = Evaluation.load(result.predictions, folder, allow_missing=True)
    assert loaded["n_seeds"] == 1


def test_results_are_those_of_the_commands(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = evaluate_model(knows, folder, n_bootstrap=50, progress=False, name="a")
    second = evaluate_model(always, folder, n_bootstrap=50, progress=False, name="b")
    files = [str(item.save(tmp_path / f"{item.name}.parquet")) for item in (first, second)]
    with pytest.raises(FileExistsError, match=r"a\.parquet: expected no file"):
        first.save(files[0])
    loaded = Evaluation.load(f"b={files[0]}", folder, n_bootstrap=50)
    assert loaded.results == score_file(files[0], folder, n_bootstrap=50) == first.results
    again = loaded.save(tmp_path / "again.parquet")
    assert Evaluation.load(again, folder, n_bootstrap=0).name == "b", "files keep a given name"
    assert (loaded.name, loaded.predictions, loaded.dataset) == ("b", Path(files[0]), folder)
    (by_files,) = compare_models(files, folder, n_bootstrap=50).values()
    compared = first.compare(second, n_bootstrap=50)
    assert compared["snli"].as_dict() == by_files.as_dict()
    capsys.readouterr()
    report = first.report(tmp_path / "report.md", second)
    assert "scoring" not in capsys.readouterr().err, "a bar that nobody asked for"
    assert "# MERGE report: 2 models on snli" in report.read_text(encoding="utf-8")
    again = Evaluation.load(files[0], folder, n_bootstrap=20, rng_seed=7, cluster="premise")
    report = again.report(tmp_path / "report.json")
    (configuration,) = json.loads(report.read_text(encoding="utf-8"))["configurations"]
    (own,) = configuration["results"].values()
    keys = ("n_clusters", "seed_accuracy_ci", "relaxed_fooling_rate_ci")
    assert [own[key] for key in keys] == [again[key] for key in keys]
    text = str(first)
    assert text == first.summary().to_text()
    assert "100–100" in text
    shown = first._repr_html_()
    assert shown == first.summary().to_html()
    assert ">a</caption>" in shown
    assert "100–100</small>" in shown
    assert repr(compared["snli"]) == by_files.to_text()
    assert compared["snli"]._repr_html_().count("<table") == 2
    assert compared["snli"].to_latex().count("\\begin{tabular}") == 2
    for options, drawn in (({}, (3, 0)), ({"mean": False, "band": True}, (2, 2))):
        (axes,) = first.plot_curves(second, **options).axes
        solid = [line for line in axes.get_lines() if line.get_drawstyle() == "steps-pre"]
        assert (len(solid), len(axes.collections)) == drawn
    assert "label: neutral" in str(first.groups())
    with pytest.raises(ValueError, match=r"two models or more, got a$"):
        first.compare()
    with pytest.raises(ValueError, match=r"^a: expected answers of snli_nouns, got those of other"):
        compare_models([first, second], configs="snli_nouns")
    assert read_metadata(Path(files[0]))["kind"] == "function"


@pytest.mark.parametrize("tracker", ["wandb", "mlflow", "tensorboard"])
def test_trackers_that_are_not_installed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: str
) -> None:
    (tmp_path / tracker).mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    if (spec := find_spec(tracker)) and spec.origin:
        pytest.skip(f"{tracker} is installed")
    result = run(knows, folder)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'merge-nli\[{tracker}\]'"):
        result.log(tracker)  # type: ignore[arg-type]
    told = refused("score", "nowhere.parquet", "--log-to", tracker)
    extra = f"merge-nli[{tracker}]"
    assert told == f"error: this command needs {tracker}; run: pip install '{extra}'\n"


def test_names_of_logged_figures(folder: Path) -> None:
    configs = ["snli_nouns", "snli_verbs"]
    wrong = evaluate_model(turn, folder, configs, n_bootstrap=0, progress=False)
    figures = trainer_figures(wrong.results)
    defined = [key for key in MAIN_FIGURES if "fooling" not in key]
    names = [f"eval_merge_{config}_{key}" for config in wrong.results for key in defined]
    assert list(figures) == names
    (nouns, *_) = wrong.results
    alone = trainer_figures({nouns: wrong.results[nouns]})
    assert list(alone) == [f"eval_merge_{key}" for key in defined]
    assert figures["eval_merge_snli_nouns_seed_accuracy"] == 0.0


def test_kept_predictions_are_never_taken_for_another_function(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "kept.parquet"
    assert run(knows, folder, out=out).results["snli"]["seed_accuracy"] == 1.0
    with pytest.raises(FileExistsError):
        run(always, folder, out=out)
    again = run(always, folder, out=out, overwrite=True)
    assert again.results["snli"]["seed_accuracy"] < 1.0


@pytest.mark.slow
def test_datasets_of_the_hub(folder: Path, tmp_path: Path) -> None:
    with loopback_hub() as hub:
        hub.users["hf_of_the_owner"] = User("somebody")
        repo = hub.make("dataset", "somebody/merge-nli")
        unasked = {f"other/{name}": b"large" for name in ("provenance.json", "seeds.parquet")}
        files = entries_of({**files_of(folder), **unasked})
        repo.tags["v1.0.0"] = repo.add("main", files, "Data")
        repo.add("main", {"snli/seeds.parquet": Entry(b"newer", True)}, "Other data")

        def evaluate(token: str | None = None, **environment: str) -> dict[str, Any]:
            ours = hub.environment(token, HF_HOME=tmp_path / "home", PYTHONPATH=ROOT)
            done = subprocess.run(
                [sys.executable, "-c", _EVALUATE],
                env=ours | environment, capture_output=True,
                text=True, check=False, timeout=300,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            value: dict[str, Any] = json.loads(done.stdout)
            return value

        expected = run(always, folder).results["snli"]
        online = evaluate()
        assert online["results"] == expected
        assert not list(tmp_path.rglob("other/seeds.parquet"))
        assert "got 'mnli-m'" in evaluate(CONFIG="mnli-m")["error"]
        absent = evaluate(HF_HUB_OFFLINE="1", CONFIG="other")["error"]
        assert "with network access" in absent
        hub.requests.clear()
        assert evaluate(HF_HUB_OFFLINE="1")["results"] == expected
        assert hub.requests == []
        repo.private = True
        again = {"HF_HOME": str(tmp_path / "other")}
        assert "expected a dataset folder or a data set on the Hub" in evaluate(**again)["error"]
        assert evaluate("hf_of_the_owner", **again)["results"] == expected


_EVALUATE = """
import json, os
from merge_metric import evaluate_model
options = {"revision": "v1.0.0", "n_bootstrap": 0, "progress": False}
try:
    answer, config = lambda pairs: [0] * len(pairs), os.environ.get("CONFIG", "snli")
    made = evaluate_model(answer, "somebody/merge-nli", config, **options)
    print(json.dumps({"results": made.results["snli"]}))
except (FileNotFoundError, ValueError) as error:
    print(json.dumps({"error": str(error)}))
"""


@pytest.mark.slow
def test_figures_of_every_evaluation(tmp_path: Path) -> None:
    from datasets import Dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
    )

    made = problems(12)
    folder = made.write(tmp_path / "merge-nli")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, dtype="float32")
    texts = [(row["premise"], row["hypothesis"]) for row in made.seeds]
    encoded = tokenizer(*map(list, zip(*texts, strict=True)), padding=True, truncation=True)
    data = Dataset.from_dict(dict(encoded) | {"labels": [row["label"] for row in made.seeds]})
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=2, eval_strategy="steps", eval_steps=1,
        save_strategy="best", metric_for_best_model="eval_merge_seed_variant_accuracy",
        learning_rate=1e-3, report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        model, arguments, train_dataset=data, eval_dataset=data, processing_class=tokenizer
    )
    callback = SeedVariantCallback(trainer, folder, "snli", limit_seeds=8)
    trainer.add_callback(callback)
    trainer.train()
    assert [step for step, _ in callback.results] == [1, 2]
    logged = [entry for entry in trainer.state.log_history if "eval_merge_seed_accuracy" in entry]
    assert [entry["step"] for entry in logged] == [1, 2]
    after = evaluate_model(
        (model, tokenizer), folder, "snli", limit_seeds=8, n_bootstrap=0, progress=False
    ).results["snli"]
    assert after["n_seeds"] == 8
    for key in ("seed_accuracy", "seed_variant_accuracy", "matching_threshold"):
        assert logged[-1][f"eval_merge_{key}"] == pytest.approx(after[key])
    assert trainer.state.best_metric == max(
        entry["eval_merge_seed_variant_accuracy"] for entry in logged
    )
    metrics = trainer.evaluate()
    assert metrics["eval_merge_seed_accuracy"] == pytest.approx(after["seed_accuracy"])


BIBTEX = "@misc{zgreaban2025merge,\n  title = {{MERGE}}\n}"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Evaluation]:
    """Results of a model that says entailment, and of one that knows; the card has a citation."""
    folder = PROBLEMS.write(tmp_path_factory.mktemp("paper") / "merge-nli")
    (folder / CARD).write_text(f"# A card\n\n```bibtex\n{BIBTEX}\n```\n", encoding="utf-8")
    files = {always: folder.with_name("always.parquet"), knows: folder.with_name("knows.parquet")}
    return [
        evaluate_model(model, folder, "snli", progress=False, out=out)
        for model, out in files.items()
    ]


def percent(share: float) -> str:
    return as_percent(share).replace("%", r" \%")


def test_sentences_table_and_citation(results: list[Evaluation], tmp_path: Path) -> None:
    one, other = results
    text = one.reporting(other)
    for result in results:
        (sentence,) = (line for line in text.splitlines() if f"), {result.name} answers" in line)
        for key in ("seed_accuracy", "variant_accuracy", "seed_variant_accuracy"):
            assert percent(result[key]) in sentence
        low, high = map(percent, result["seed_variant_accuracy_ci"])
        assert rf"95 \% interval {low} to {high}" in sentence
        assert f"({result['n_seeds']} seeds with" in sentence
        signature = escape(result["signature_short"])
        assert f"signature {signature}." in sentence.replace(r"\allowbreak{}", "")
    assert text.endswith(f"{BIBTEX}\n")
    table = r"\begin{table}" + text.partition(r"\begin{table}")[2].partition("@misc")[0]
    assert [name for name in ("always", "knows") if f"& {name}" in table] == ["always", "knows"]
    if PDFLATEX:
        compiled(text.partition("\\usepackage")[0] + table, tmp_path)


def test_the_command_says_the_same(results: list[Evaluation]) -> None:
    one = results[0]
    words = ("score", one.predictions, "--reporting")
    told = commands.run(*words, "--dataset", one.dataset, "--config", "snli").stdout
    assert told.splitlines()[0] == one.reporting().splitlines()[0]
    assert "expected the --dataset" in refused(*words)
    gate = ("--dataset", one.dataset, "--config", "snli", "--require", "seed_accuracy=1")
    assert "seed_accuracy is " in commands.run(*words, *gate, code=1).stderr
