"""Train two steps, with reports to every tracker, and log once more: `train_and_log.py DATASET`."""

import sys
from pathlib import Path
from typing import get_args

from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
)

from merge_metric import SeedVariantCallback, evaluate_model
from merge_metric.demo import MODEL
from merge_metric.tracking import Tracker


def main(dataset: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, dtype="float32")
    data = Dataset.from_dict(dict(tokenizer(["A dog runs."] * 4)) | {"labels": [0, 1, 2, 0]})
    arguments = TrainingArguments(
        output_dir="out", run_name="training", max_steps=2, eval_strategy="steps", eval_steps=1,
        save_strategy="no", learning_rate=1e-3, report_to=list(get_args(Tracker)), use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        model, arguments, train_dataset=data, eval_dataset=data, processing_class=tokenizer
    )
    trainer.add_callback(SeedVariantCallback(trainer, dataset, "snli", limit_seeds=None))
    trainer.train()
    result = evaluate_model(
        (model, tokenizer), dataset, "snli", name="after", n_bootstrap=0, progress=False
    )
    for tracker in get_args(Tracker):
        print(tracker, result.log(tracker, step=3))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
