import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pytest
from helpers.bench import exported, fill_mask
from helpers.bench.contender import FOLDER, Contender, spread
from helpers.bench.contexts import find_contexts
from helpers.bench.fill_mask import TOP, Context
from helpers.bench.models import PAPER_SHAPES, REAL, SHAPES, model_folder
from helpers.bench.on_device import over_pairs
from helpers.bench.packed_product import classifier_flop, packed, question_flop, speed_of
from helpers.bench.results import Asked, Measurement, Race, Row, Side, has_bfloat16
from tokenizers import Tokenizer

from generation.suggestions.masked_lm import _HEADS

pytestmark = pytest.mark.benchmark

REFERENCE: Final = "fp32"
REDUCED: Final = ("bfloat16",)
"""Precisions judged by the decisions that they change, if the processor supports them."""
IN_PYTORCH: Final = {"BERT-base": 1.8, "minilm-l6-mlm": 3.2, "bert-tiny-mlm": 9}
"""Model → least speed-up over the best peer in PyTorch; 1 for other models."""
RUNTIME: Final = {"bert-tiny-mlm": 1.2}
"""Model → least speed-up over the best runtime; 1 for other models."""
TEXT_ATTACK: Final = {"BERT-base": 40, "bert-tiny-mlm": 270}
AS_SHIPPED: Final = "TextAttack as it ships"
EXACT: Final = "fill-mask pipeline, sorted by length, batches of 32"
"""The peer whose answers must equal ours."""
NLPAUG: Final = "nlpaug, 200 words"
RUNTIMES: Final = ("ONNX Runtime", "OpenVINO")
REDUCED_RUNTIME: Final = "OpenVINO, bfloat16"
NEAR_TIE: Final = 1e-4
"""Difference of logits whose order may change by rounding."""


@pytest.mark.parametrize("model", [*REAL, *SHAPES])
def test_suggestions(
    model: str,
    labelled: list[dict[str, str]],
    shared_models: Path,
    peers_python: str,
    timed_race: Race,
    request: pytest.FixtureRequest,
) -> None:
    folder = model_folder(model, shared_models)
    if folder is None:
        pytest.skip(f"needs {shared_models / model}")
    measurement = Measurement("suggestions", model)
    contexts = find_contexts(labelled, shared_models, request.config.getoption("--contexts"))
    dtypes = REDUCED if has_bfloat16() else ()
    ours = [
        Contender(f"ours, {name}", fill_mask.masked_lm, _arguments(folder, contexts, dtype=dtype))
        for name, dtype in [(REFERENCE, "float32"), *((dtype, dtype) for dtype in dtypes)]
    ]
    peers = [
        Contender(name, load, _arguments(folder, contexts, **options), peers_python)
        for name, load, options in peers_of(model, folder)
    ]
    yardsticks = [packed(folder, dtype) for dtype in ("float32", *dtypes)]
    asked = timed_race([*ours, *peers], len(contexts), whole=len(ours), yardsticks=yardsticks)
    (reference, *reduced), theirs, products = (
        asked[: len(ours)], asked[len(ours) : -len(ours)], asked[-len(ours) :],
    )  # fmt: skip
    speeds = list(map(speed_of, products))
    others = [item for item in theirs if item.contender.name != REDUCED_RUNTIME]
    best, best_reduced = (min(some, key=lambda a: median(a.side.cpu)) for some in (others, theirs))
    # The fair comparison first.
    others.sort(key=lambda item: item is not best)
    pieces = Tokenizer.from_file(str(folder / "tokenizer.json")).id_to_token
    flop = question_flop(folder, [sentence for sentence, _, _ in contexts])
    row = partial(Row, f"suggestions, {model}", unit="context")
    goals = dict.fromkeys((EXACT, NLPAUG), IN_PYTORCH.get(model, 1))
    goals |= dict.fromkeys(RUNTIMES, RUNTIME.get(model, 1))
    goals[AS_SHIPPED] = TEXT_ATTACK.get(model)
    rows: list[Row] = [
        row(
            reference.side, item.side, at_least=goals.get(item.contender.name),
            agreement=agreement(reference, item, pieces), flop=flop, packed=speeds[0],
        )
        for item in others
    ]  # fmt: skip
    for item, speed in zip(reduced, speeds[1:], strict=True):
        text = f"{changed_decisions(reference, item):.1%} of the more probable words change"
        of_both = row(item.side, best_reduced.side, at_least=1, agreement=text, flop=flop,
                      packed=speed)  # fmt: skip
        rows += [of_both, row(item.side, reference.side, agreement=text)]
    measurement.write(rows)
    [exact] = [item for item in theirs if item.contender.name == EXACT]
    for i, result in exact.answers.items():
        assert_same_set(reference.answers[i], result)


def peers_of(
    model: str, folder: Path
) -> list[tuple[str, Callable[..., fill_mask.Answer], dict[str, Any]]]:
    home = str(FOLDER / "textattack")
    result: list[tuple[str, Callable[..., fill_mask.Answer], dict[str, Any]]] = [
        (EXACT, fill_mask.pipeline, {"batch_size": 32})
    ]
    kind = json.loads((folder / "config.json").read_text("utf-8"))["model_type"]
    exact = {"heads": _HEADS[kind]}
    result += [
        (name, exported.suggestions, exact | {"runtime": name.replace(" ", "").lower()})
        for name in RUNTIMES
    ]
    if has_bfloat16():
        reduced = {"runtime": "openvino", "precision": "bf16"}
        result.append((REDUCED_RUNTIME, exported.suggestions, exact | reduced))
    if not model.startswith("ALBERT"):
        result.append((AS_SHIPPED, fill_mask.text_attack, {"home": home}))
    if not model.startswith(("ALBERT", "ELECTRA")):
        named = {"model_type": "roberta" if model.startswith("RoBERTa") else "bert"}
        result.append((NLPAUG, fill_mask.nlpaug, named))
    return result


def agreement(ours: Asked, theirs: Asked, pieces: Callable[[int], str]) -> str:
    """In how many contexts the sets are equal, or which share of their words we have."""
    equal, shares = 0, []
    for i, result in theirs.answers.items():
        tokens = set(ours.answers[i][0])
        if isinstance(result[0], str):
            top = {_plain(pieces(token)) for token in tokens}
            shares.append(np.mean([_plain(word) in top for word in result]))
        else:
            equal += set(result) == tokens
    if shares:
        return f"{np.mean(shares):.0%} of its words are in our top {TOP}"
    return f"top {TOP} equal in {equal} of {len(theirs.rows)}"


def assert_same_set(ours: tuple[list[int], list[float], float], theirs: Sequence[int]) -> None:
    """The sets are equal, except for near ties with our last token."""
    tokens, logits, _ = ours
    odd = [logit for token, logit in zip(tokens, logits, strict=True) if token not in theirs]
    assert len(set(theirs)) == len(tokens) == TOP
    assert all(logit - logits[-1] < NEAR_TIE for logit in odd)


def changed_decisions(reference: Asked, reduced: Asked) -> float:
    """Share of words that enter or leave the sets of words more probable than the original."""
    changed = total = 0
    for i, answer in reduced.answers.items():
        before, after = (
            {token for token, logit in zip(tokens, logits, strict=True) if logit > original}
            for tokens, logits, original in (reference.answers[i], answer)
        )
        changed, total = changed + len(before ^ after), total + len(before)
    return changed / total


def _plain(token: str) -> str:
    return token.replace("##", "").strip("Ġ▁ ")


def _arguments(folder: Path, contexts: Sequence[Context], **more: Any) -> dict[str, Any]:
    return {"model": str(folder), "contexts": contexts, **more}


PAIRS: Final = {"bert-tiny-nli": 3000, "minilm-l6-nli": 1000}
TOLERANCE: Final = 1e-4


@pytest.mark.parametrize("model", PAIRS)
def test_runtimes(
    model: str,
    labelled: list[dict[str, str]],
    shared_models: Path,
    peers_python: str,
    timed_race: Race,
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
    all_ask = {"whole": len(contenders), "yardsticks": [packed(folder)]}
    *asked, products = timed_race(contenders, len(pairs), **all_ask)
    first, *others = (np.array(item.answer) for item in asked)
    apart = max(float(abs(item - first).max()) for item in others)
    ours, *theirs = (item.side for item in asked)
    row = partial(Row, f"classifier, {model}", ours, unit="pair", at_least=1,
        agreement=f"probabilities differ by {apart:.0e} at most",
        flop=classifier_flop(folder, pairs), packed=speed_of(products),
    )  # fmt: skip
    measurement.write([row(side) for side in sorted(theirs, key=lambda side: median(side.cpu))])
    assert apart < TOLERANCE


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
    """Cost of a question for each of the paper's masked LMs; `-k cost --device cuda` on a GPU."""
    device = request.config.getoption("--device")
    every = find_contexts(labelled, shared_models, 10 * request.config.getoption("--contexts"))
    contexts = [item for item in every if len(item[0].split()) == WORDS]
    measurement = Measurement("cost", f"{shape}-{device}")
    sides = []
    dtypes = ["float32", *(["bfloat16"] if device != "cpu" or has_bfloat16() else [])]
    for dtype in dtypes:
        folder = model_folder(shape, shared_models)
        arguments = _arguments(folder, contexts, dtype=dtype, device=device)
        name = f"{device}, {dtype}"
        ours = Contender(name, fill_mask.masked_lm, arguments, needs_gpu=device != "cpu")
        [asked] = timed_race([ours], len(contexts), fewest=FEWEST)
        sides.append(asked.side)
    reference, *reduced = sides
    unit = "core hour" if device == "cpu" else "hour"
    rows = [cost_row(shape, unit, side, reference) for side in reduced]
    measurement.write([cost_row(shape, unit, reference), *rows])


def cost_row(shape: str, hour: str, side: Side, reference: Side | None = None) -> Row:
    seconds = median(side.cpu if hour == "core hour" else side.wall)
    problems = 3600 / seconds / QUESTIONS_PER_PROBLEM
    text = f"{problems:,.0f} of SNLI's problems per {hour}"
    return Row(f"cost, {shape}", side, reference, "question", agreement=text)
