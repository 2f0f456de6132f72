"""Classifiers against runtimes with an exported graph."""

from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pytest
from helpers.bench import exported
from helpers.bench.contender import Contender, spread
from helpers.bench.on_device import over_pairs
from helpers.bench.packed_product import classifier_flop, packed, speed_of
from helpers.bench.results import Measurement, Row, race

pytestmark = pytest.mark.benchmark

PAIRS: Final = {"bert-tiny-nli": 3000, "minilm-l6-nli": 1000}
TOLERANCE: Final = 1e-4


@pytest.mark.parametrize("model", PAIRS)
def test_runtimes(
    model: str,
    labelled: list[dict[str, str]],
    shared_models: Path,
    peers_python: str,
    rounds: int,
    budget: float,
) -> None:
    folder = shared_models / model
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    measurement = Measurement("classifier", f"{model}-runtimes")
    pairs = [(item["sentence1"], item["sentence2"]) for item in labelled]
    pairs = [pairs[i] for i in spread(range(len(pairs)), PAIRS[model])]
    where: dict[str, Any] = {"model": str(folder), "pairs": pairs}
    contenders = [
        Contender("ours, pairs alone", over_pairs, where),
        Contender("PyTorch's public layers", over_pairs, where | {"packed": False}),
        Contender("ONNX Runtime", exported.classifier, where | {"runtime": "onnxruntime"},
                  peers_python),
        Contender("OpenVINO", exported.classifier, where | {"runtime": "openvino"}, peers_python),
    ]  # fmt: skip
    *asked, products = race(
        contenders, len(pairs), rounds, budget=budget, yardsticks=[packed(folder)],
        whole=len(contenders),
    )  # fmt: skip
    first, *others = (np.array(item.answer) for item in asked)
    apart = max(float(abs(item - first).max()) for item in others)
    ours, *theirs = (item.side for item in asked)
    row = partial(Row, f"classifier, {model}", ours, unit="pair", at_least=1,
        agreement=f"probabilities differ by {apart:.0e} at most",
        flop=classifier_flop(folder, pairs), packed=speed_of(products),
    )  # fmt: skip
    measurement.write([row(side) for side in sorted(theirs, key=lambda side: median(side.cpu))])
    assert apart < TOLERANCE
