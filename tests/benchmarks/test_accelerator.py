import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from helpers.bench import fill_mask, on_device
from helpers.bench.contender import Contender
from helpers.bench.fill_mask import TOP, Context
from helpers.bench.models import made_once, model_folder
from helpers.bench.packed_product import classifier_flop, question_flop
from helpers.bench.results import Goal, Measurement, Race, Row
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from merge_dataset.schema import LABELS

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CASES: Final = (("float32", False), ("bfloat16", False), ("bfloat16", True))
"""Types, and whether texts are read without padding."""
SHARE: Final = 0.4
"""Goal without padding: the share of the device's own products."""
BATCH: Final = 512
QUESTIONS: Final = 32_768
FEWEST: Final = 64


@pytest.mark.parametrize(("dtype", "unpadded"), CASES)
def test_suggestions(
    dtype: str,
    unpadded: bool,
    labelled: list[dict[str, str]],
    shared_models: Path,
    timed_race: Race,
) -> None:
    folder = model_folder("BERT-large", shared_models)
    assert folder
    contexts = masked_words(labelled, folder)
    flop = question_flop(folder, [sentence for sentence, _, _ in contexts])
    asked = {"model": str(folder), "contexts": contexts}
    ours = on_gpu(fill_mask.masked_lm, dtype, unpadded, **asked)
    peer = on_device.padded_questions
    measure("suggestions, BERT-large", "question", ours, peer, len(contexts), flop, timed_race)


@pytest.mark.parametrize(("dtype", "unpadded"), CASES)
def test_classifier(
    dtype: str,
    unpadded: bool,
    labelled: list[dict[str, str]],
    shared_models: Path,
    timed_race: Race,
) -> None:
    folder = large_classifier(shared_models)
    pairs = [(item["sentence1"], item["sentence2"]) for item in labelled]
    ours = on_gpu(on_device.over_pairs, dtype, unpadded, model=str(folder), pairs=pairs)
    flop = classifier_flop(folder, pairs)
    peer = on_device.padded_pairs
    measure("classifier, RoBERTa-large", "pair", ours, peer, len(pairs), flop, timed_race)


def on_gpu(load: Callable[..., Any], dtype: str, unpadded: bool, **asked: Any) -> Contender:
    arguments = {**asked, "device": "cuda", "dtype": dtype, "unpadded": unpadded}
    name = f"ours, {dtype}{', unpadded' * unpadded}"
    return Contender(name, load, arguments, needs_gpu=True)


def measure(
    what: str,
    unit: str,
    ours: Contender,
    peer: Callable[..., Any],
    units: int,
    flop: float,
    timed_race: Race,
) -> None:
    """Ask both in turn, and write the row; shares are of the device's own products."""
    options = ours.arguments | {"batch_size": BATCH}
    dtype, unpadded = options["dtype"], options.pop("unpadded")
    name = f"padded batches of {BATCH}, sorted by length, {dtype}"
    contenders = [ours, Contender(name, peer, options, needs_gpu=True)]
    yardstick = Contender(
        "square products", on_device.square_products, {"dtype": dtype}, needs_gpu=True
    )
    how = {"clock": "wall", "fewest": FEWEST, "trials": 4}
    *asked, products = timed_race(contenders, units, yardsticks=[yardstick], **how)
    peak = 2 * on_device.SIDE**3 / statistics.median(reply.wall for reply in products.replies)
    own, theirs = (item.answers for item in asked)
    both = [(own[i], answer) for i, answer in theirs.items() if i in own]
    share = flop / statistics.median(asked[0].side.cpu) / peak
    goal = Goal(f"≥ {SHARE:.0%} of products", share >= SHARE)
    row = Row(
        f"on a GPU, by the clock, {what}",
        *(item.side for item in asked),  # by the clock: work of the processor beside a GPU is free
        unit=unit,
        at_least=1,
        goals=(goal,) * unpadded,
        agreement=f"{agreement(*zip(*both, strict=True))}; "
        f"{torch.cuda.get_device_name()}, {peak / 1e12:.0f} TFLOP/s",
        flop=flop,
        packed=peak,
    )
    name = f"{what}-{dtype}{'-unpadded' * unpadded}".replace(", ", "-")
    Measurement("accelerator", name).write([row])


def agreement(ours: Sequence[Any], theirs: Sequence[Any]) -> str:
    if isinstance(ours[0][0], list):
        equal = sum(set(a[0]) == set(b) for a, b in zip(ours, theirs, strict=True))
        return f"top {TOP} equal in {equal:,} of {len(ours):,}"
    apart = float(np.abs(np.sort(ours, axis=1) - np.sort(theirs, axis=1)).max())
    return f"probabilities differ by {apart:.0e} at most"


def masked_words(problems: Sequence[dict[str, str]], folder: Path) -> list[Context]:
    tokens = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    result: list[Context] = []
    for sentence in dict.fromkeys(p[side] for side in ("sentence1", "sentence2") for p in problems):
        words = [word for word in sentence.split()[1:-1] if word in tokens and len(word) > 2]
        result += [(sentence, w, sentence.index(w)) for w in words if sentence.count(w) == 1]
    return result[:QUESTIONS]


def large_classifier(shared_models: Path) -> Path:
    source = model_folder("RoBERTa-large", shared_models)
    assert source

    def make(folder: Path) -> None:
        config = AutoConfig.from_pretrained(source, id2label=dict(enumerate(LABELS)))
        config.label2id = {name: number for number, name in enumerate(LABELS)}
        torch.manual_seed(0)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)

    return made_once("RoBERTa-large-nli", make)
