"""Cost of a question for each of the paper's masked LMs; `-k cost --device cuda` on a GPU."""

import statistics
from pathlib import Path
from typing import Final

import pytest
from helpers.bench import fill_mask
from helpers.bench.contender import Contender
from helpers.bench.contexts import find_contexts
from helpers.bench.models import PAPER_SHAPES, model_folder
from helpers.bench.results import Measurement, Race, Row, Side, has_bfloat16

pytestmark = pytest.mark.benchmark

QUESTIONS_PER_PROBLEM: Final = 2.81
"""Questions per problem of SNLI's test set, each asked once; 14.5 tokens long on average."""
WORDS: Final = 11
"""Words per sentence, the average; batches of such sentences are full, as in a long run."""
FEWEST: Final = 48


@pytest.mark.parametrize("shape", PAPER_SHAPES)
def test_cost(
    shape: str,
    labelled: list[dict[str, str]],
    shared_models: Path,
    timed_race: Race,
    request: pytest.FixtureRequest,
) -> None:
    device = request.config.getoption("--device")
    every = find_contexts(labelled, shared_models, 10 * request.config.getoption("--contexts"))
    contexts = [item for item in every if len(item[0].split()) == WORDS]
    measurement = Measurement("cost", f"{shape}-{device}")
    sides = []
    dtypes = ["float32", *(["bfloat16"] if device != "cpu" or has_bfloat16() else [])]
    for dtype in dtypes:
        arguments = {
            "model": str(model_folder(shape, shared_models)),
            "contexts": contexts,
            "dtype": dtype,
            "device": device,
        }
        name = f"{device}, {dtype}"
        ours = Contender(name, fill_mask.masked_lm, arguments, needs_gpu=device != "cpu")
        [asked] = timed_race([ours], len(contexts), fewest=FEWEST)
        sides.append(asked.side)
    reference, *reduced = sides
    unit = "core hour" if device == "cpu" else "hour"
    rows = [row(shape, unit, side, reference) for side in reduced]
    measurement.write([row(shape, unit, reference), *rows])


def row(shape: str, hour: str, side: Side, reference: Side | None = None) -> Row:
    seconds = statistics.median(side.cpu if hour == "core hour" else side.wall)
    problems = 3600 / seconds / QUESTIONS_PER_PROBLEM
    text = f"{problems:,.0f} of SNLI's problems per {hour}"
    return Row(f"cost, {shape}", side, reference, "question", agreement=text)
