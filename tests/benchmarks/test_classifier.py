"""Classifiers against runtimes with an exported graph."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from helpers.bench import exported
from helpers.bench.contender import Contender, spread
from helpers.bench.on_device import over_pairs
from helpers.bench.packed_product import classifier_flop, packed_products, products_flop, shape_of
from helpers.bench.results import Measurement, ask_in_turn, compare

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
    plain = Contender("PyTorch's public layers", over_pairs, where | {"packed": False})
    contenders = [Contender("ours, pairs alone", over_pairs, where), plain] + [
        Contender(
            name,
            exported.classifier,
            where | {"runtime": name.replace(" ", "").lower()},
            peers_python,
        )
        for name in ("ONNX Runtime", "OpenVINO")
    ]
    shape = shape_of(folder)
    yardstick = Contender(
        "packed products, float32",
        packed_products,
        {"hidden": shape[0], "inner": shape[1], "dtype": "float32"},
    )
    asked, [products] = ask_in_turn(
        contenders, len(pairs), rounds, budget, [yardstick], whole=len(contenders)
    )
    packed = products_flop(*shape) / float(np.median([reply.cpu for reply in products]))
    first, *others = (np.array(item.replies[0].answer) for item in asked)
    apart = max(float(abs(item - first).max()) for item in others)
    ours, *theirs = (item.side for item in asked)
    theirs.sort(key=lambda side: float(np.median(side.cpu)))
    measurement.write(
        [
            compare(
                f"classifier, {model}",
                ours,
                side,
                unit="pair",
                at_least=1,
                agreement=f"probabilities differ by {apart:.0e} at most",
                flop=classifier_flop(folder, pairs),
                packed=packed,
            )
            for side in theirs
        ]
    )
    assert apart < TOLERANCE
