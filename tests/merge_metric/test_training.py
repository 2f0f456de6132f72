"""The callback of a Trainer: figures in its log and metrics, of the same seeds each time."""

from pathlib import Path

import pytest
from helpers.report_data import problems

from merge_metric import SeedVariantCallback, evaluate_model
from merge_metric.demo import MODEL

pytestmark = pytest.mark.slow


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
