"""Open a model by its name: find out its kind, and load it or get ready to ask a server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from merge_dataset.schema import NLI, ProblemFormat
from merge_metric.models.adapters import is_adapter, read_adapter
from merge_metric.models.checkpoints import require_libraries
from merge_metric.models.heads import CLASSIFIER
from merge_metric.models.label_order import (
    SEEDS,
    LabelOrder,
    describe_evidence,
    order_from_seeds,
    parse_order,
    unknown_order,
)
from merge_metric.models.model_config import problems_of_config, read_config
from merge_metric.models.model_files import find_checkpoint, list_files
from merge_metric.models.pair_model import ModelRequest, Pair, PairModel

if TYPE_CHECKING:
    from merge_metric.models.classifier import Classifier

ModelKind = Literal["classifier", "lm", "remote"]

log = logging.getLogger(__name__)

_KINDS_OF_ADAPTERS: Final[Mapping[str, ModelKind]] = {
    "SEQ_CLS": "classifier",
    "CAUSAL_LM": "lm",
    "SEQ_2_SEQ_LM": "lm",
}
"""Task of an adapter, as peft calls it → kind of the model that it makes."""

LabelledPairs = tuple[Sequence[Pair], NDArray[np.int64]]
"""Pairs, and the position of each one's gold label among the labels."""


def open_model(
    request: ModelRequest,
    *,
    problem_format: ProblemFormat = NLI,
    sources: Sequence[str] = (),
    seeds: Callable[[], LabelledPairs] | None = None,
) -> PairModel:
    """Load a model, or get ready to ask one.

    Args:
        request: Which.
        problem_format: Fields and labels of the problems that it will be asked about.
        sources: Names of the sources they are from; few-shot examples depend on them.
        seeds: Reads some with gold labels; called where `label_order` is "seeds" and nothing
            else says what a classifier's classes mean.

    Raises:
        ModuleNotFoundError: what models are loaded with is not installed.
        ValueError: it cannot be used; the message says why.
    """
    kind = request.kind or find_kind(request)
    if kind != "remote":
        require_libraries()
    if kind == "classifier":
        return _open_classifier(request, problem_format.labels, seeds)
    require_nli(problem_format, f"{request.model}: the prompts of a model of the kind {kind}")
    require_no_order(request.label_order, f"a model of the kind {kind}, which is asked for letters")
    if kind == "remote":
        return _open_remote(request, sources)
    return _open_language_model(request, sources)


def find_kind(request: ModelRequest, *, can_be_told: bool = True) -> ModelKind:
    """Find the kind of a model from what is asked for and from its configuration.

    Args:
        request: The model.
        can_be_told: Whether users can name the kind where the configuration does not.

    Raises:
        ModuleNotFoundError: what models are loaded with is not installed.
        ValueError: there is no such model, or it is of neither kind.
    """
    if request.base_url:
        return "remote"
    if request.gguf_file or request.model.endswith(".gguf"):
        return "lm"
    require_libraries()
    files = list_files(find_checkpoint(request.model, revision=request.revision))
    if is_adapter(files):
        adapter = read_adapter(files)
        if (task := adapter.config.get("task_type")) in _KINDS_OF_ADAPTERS:
            return _KINDS_OF_ADAPTERS[str(task)]
        files = list_files(find_checkpoint(adapter.base, revision=adapter.base_revision))
    config = read_config(files)
    for problem in problems_of_config(files, config, CLASSIFIER, is_base=True):
        raise ValueError(problem)
    architectures = config.get("architectures") or []
    for name in architectures:
        if name.endswith("ForSequenceClassification"):
            return "classifier"
        if name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
            return "lm"
    raise ValueError(
        f"{request.model}: expected a sequence classifier or a causal language model, got a "
        f"configuration that says {', '.join(architectures) or 'nothing'}"
        + ("; `kind` classifier or lm has it loaded as one" if can_be_told else "")
    )


def require_no_order(label_order: str | None, what: str) -> None:
    """Raise where an order of labels is given for a model that has none.

    Args:
        label_order: As it was given.
        what: The model, for the message.

    Raises:
        ValueError: there is one.
    """
    if label_order:
        raise ValueError(
            f"label_order: expected for classifiers only, got {label_order!r} for {what}"
        )


def require_nli(problem_format: ProblemFormat, what: str) -> None:
    """Raise where problems are not of NLI.

    Args:
        problem_format: Of the problems.
        what: What can do with none else, for the message.

    Raises:
        ValueError: they are of another format.
    """
    if problem_format != NLI:
        raise ValueError(
            f"{what}: expected problems of NLI, got some with the {problem_format.described}"
        )


def _source(request: ModelRequest) -> str:
    return f"{request.model}@{request.revision}" if request.revision else request.model


def _open_classifier(
    request: ModelRequest, labels: tuple[str, ...], seeds: Callable[[], LabelledPairs] | None
) -> Classifier:
    from merge_metric.models.classifier import Classifier

    by_seeds, unknown = request.label_order == SEEDS, unknown_order(labels)
    order = None
    if request.label_order and not by_seeds:
        order = parse_order(request.label_order, labels)
    model = Classifier.load(
        _source(request),
        label_order=order,
        otherwise=unknown if by_seeds else None,
        labels=labels,
        device=request.device,
        dtype=request.dtype or "float32",
        batch_tokens=request.batch_tokens,
    )
    if model.label_order == unknown and seeds is not None:
        model.label_order = find_order(model, request.model, seeds, labels)
    return model


def find_order(
    model: PairModel, name: str, seeds: Callable[[], LabelledPairs], labels: tuple[str, ...]
) -> LabelOrder:
    """Ask a model about seeds, and find out what its classes mean.

    Args:
        model: Its answers are in the order of its classes.
        name: What messages call it.
        seeds: Reads seeds with gold labels.
        labels: Of the problems.

    Raises:
        ValueError: it is not clear.
    """
    pairs, gold = seeds()
    classes = np.empty(len(pairs), np.int64)
    for positions, probabilities in model.probabilities(pairs):
        classes[positions] = probabilities.argmax(axis=1)
    try:
        order = order_from_seeds(classes, gold, labels)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    log.info(
        "%s: nothing says which class is which label, the seeds tell: %s",
        name,
        describe_evidence(order.evidence),
    )
    return order


def _open_language_model(request: ModelRequest, sources: Sequence[str]) -> PairModel:
    from merge_metric.models.language_model import LanguageModel
    from merge_metric.models.prompts import read_prompt

    return LanguageModel.load(
        _source(request),
        prompt=read_prompt(request.shots, sources=sources, start=request.prompt_start),
        gguf_file=request.gguf_file,
        device=request.device,
        dtype=request.dtype or "auto",
        chat_template=request.chat_template,
        prefix_cache=request.prefix_cache,
        batch_tokens=request.batch_tokens,
    )


def _open_remote(request: ModelRequest, sources: Sequence[str]) -> PairModel:
    from merge_metric.models.prompts import read_prompt
    from merge_metric.models.remote import Missing, RemoteModel

    if not request.base_url:
        raise ValueError("a remote model: expected `base_url`, such as http://localhost:8000/v1")
    if request.missing_letters not in get_args(Missing):
        raise ValueError(
            f"missing letters: expected error or uniform, got {request.missing_letters!r}"
        )
    return RemoteModel(
        request.base_url,
        request.model,
        prompt=read_prompt(request.shots, sources=sources, start=request.prompt_start),
        chat=request.chat_template,
        api_key_env=request.api_key_env,
        concurrency=request.concurrency,
        missing=request.missing_letters,
    )
