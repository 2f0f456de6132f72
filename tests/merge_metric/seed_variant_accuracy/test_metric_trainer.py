"""The card's recipe as `compute_metrics` of a real Trainer, with a tiny random model on a CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import evaluate
import pytest
import torch
from datasets import Dataset, Features, List, Value
from helpers.metric_loading import card_blocks
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from merge_metric.seed_variant_accuracy.scoring import score
from merge_metric.seed_variant_accuracy.seed_variant_accuracy import SeedVariantAccuracy

NOUNS = ("girl", "boy", "dog", "soldier", "dancer", "man")
SEEDS = 7
VOCABULARY = 40
TEXTS = ("source", "word_class", "seed_id", "variant_id", "premise", "hypothesis")
FEATURES = Features(
    {
        **{name: Value("string") for name in TEXTS},
        "label": Value("int64"),
        "subsamples": List(Value("int32")),
    }
)


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    common = {"source": "snli", "word_class": "noun"}
    seeds, variants = [], []
    for number in range(SEEDS):
        row = {**common, "seed_id": f"snli:{number}", "label": number % 3}
        text = {"premise": f"A girl jumps {number}.", "hypothesis": "A girl jumps."}
        seeds.append({**row, **text, "variant_id": row["seed_id"], "subsamples": []})
        for place, noun in enumerate(NOUNS[: 2 + number % 4]):
            text = {"premise": f"A {noun} jumps {number}.", "hypothesis": f"A {noun} jumps."}
            drawn = {"variant_id": f"snli:{number}:{noun}", "subsamples": [place % 2]}
            variants.append({**row, **text, **drawn})
    for split, rows in (("seeds", seeds), ("variants", variants[::-1])):
        table = Dataset.from_list(rows, features=FEATURES)
        table.to_parquet(tmp_path / "merge-nli" / f"{split}.parquet")
    (tmp_path / "merge-nli" / "README.md").write_text(
        "---\nconfigs:\n- config_name: snli_nouns\n  data_files:\n"
        "  - {split: seeds, path: seeds.parquet}\n"
        "  - {split: variants, path: variants.parquet}\n---\n"
    )
    return tmp_path


@pytest.fixture
def recipe(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    def load(name: str, configuration: str = "default") -> Any:
        assert name == "seed_variant_accuracy"
        return SeedVariantAccuracy(configuration, cache_dir=str(dataset / "cache"))

    monkeypatch.setattr(evaluate, "load", load)
    (code,) = [block for block in card_blocks("python") if "compute_metrics" in block]
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def tokenize(row: dict[str, Any]) -> dict[str, Any]:
    """Compute ids of words from their letters; the lengths of texts differ."""
    words = f"{row['premise']} {row['hypothesis']}".split()
    ids = [1 + sum(map(ord, word)) % (VOCABULARY - 1) for word in words]
    padded = ids + [0] * (12 - len(ids))
    return {"input_ids": padded, "attention_mask": [int(i > 0) for i in padded]}


@pytest.fixture
def make_trainer(dataset: Path, recipe: dict[str, Any]) -> Callable[..., Trainer]:
    def make(**more: Any) -> Trainer:
        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        sizes |= {"intermediate_size": 16, "num_labels": 3, "vocab_size": VOCABULARY}
        model = BertForSequenceClassification(BertConfig(**sizes, initializer_range=2.0))
        here = {"output_dir": str(dataset / "out"), "use_cpu": True, "report_to": []}
        some = {"per_device_eval_batch_size": 5, "disable_tqdm": True}
        problems = recipe["problems"].map(tokenize)
        return Trainer(
            model, TrainingArguments(**here, **some, **more), train_dataset=problems,
            eval_dataset=problems, compute_metrics=recipe["compute_metrics"],
        )  # fmt: skip

    return make


def by_hand(trainer: Trainer, recipe: dict[str, Any]) -> dict[str, Any]:
    """Apply `score` to the model's answers to single problems."""
    trainer.model.eval()

    def labels(split: Dataset) -> list[int]:
        ids = torch.tensor([tokenize(row)["input_ids"] for row in split])
        with torch.no_grad():
            logits = trainer.model(input_ids=ids, attention_mask=(ids > 0).long()).logits
        return logits.argmax(-1).tolist()

    seeds, variants = recipe["seeds"], recipe["variants"]
    own = dict(zip(seeds["seed_id"], labels(seeds), strict=True))
    return score(
        predictions=labels(variants), references=variants["label"], seed_ids=variants["seed_id"],
        seed_predictions=[own[seed] for seed in variants["seed_id"]],
        subsamples=variants["subsamples"], n_bootstrap=0,
    )  # fmt: skip


def test_evaluation(make_trainer: Callable[..., Trainer], recipe: dict[str, Any]) -> None:
    """With uneven batches and variants in another order than seeds, figures are as by hand."""
    trainer = make_trainer()
    metrics = trainer.evaluate()
    expected = by_hand(trainer, recipe)
    assert 0 < expected["variant_accuracy"] < 1
    floats = {name for name, value in expected.items() if isinstance(value, float)}
    assert {f"eval_{name}" for name in floats} <= set(metrics)
    assert all(metrics[f"eval_{name}"] == expected[name] for name in floats)
    assert not any(isinstance(value, dict | list | str) for value in metrics.values())


def test_reordered_evaluation_is_refused(make_trainer: Callable[..., Trainer]) -> None:
    """Sampling by length also reorders evaluation, so that rows would not match."""
    trainer = make_trainer(train_sampling_strategy="group_by_length")
    with pytest.raises(ValueError, match="references: expected one gold label per seed"):
        trainer.evaluate()
