"""Which kind of model a name stands for, and how it is opened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from merge_metric.models.label_order import SEEDS, order_from_seeds, parse_order, unknown_order
from merge_metric.predict.problems import (
    format_of_problems,
    pairs_of,
    require_nli,
    sample_seeds,
    seeds_of,
    sources_of,
)

if TYPE_CHECKING:
    from merge_metric.models.classifier import Classifier
    from merge_metric.predict.run import PairModel

KINDS: Final = ("classifier", "lm", "remote")

_ORDER_SEEDS: Final = 300
"""Seeds that are asked about to find out an order of labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A model and its settings, as a user gives them; what is None or "" is not given."""

    model: str
    """Directory, Hub id, .gguf file, or what a server calls it."""
    kind: str | None = None
    """One of `KINDS`; by default found out."""
    revision: str | None = None
    device: str = "auto"
    dtype: str | None = None
    """By default float32 for classifiers; for language models bfloat16 on CUDA devices."""
    batch_tokens: int | None = None
    label_order: str | None = None
    """Classifiers: `e,n,c`, or `seeds` to find it out where nothing says it."""
    shots: str = "exc"
    prompt_start: str = ""
    chat_template: bool = False
    prefix_cache: bool = True
    gguf_file: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    concurrency: int = 8
    missing_letters: str = "error"


def open_model(request: ModelRequest, problems: pa.Table) -> PairModel:
    """Load a model, or get ready to ask one.

    Args:
        request: Which.
        problems: What it will be asked about; few-shot examples depend on where they are
            from, and `label_order` "seeds" asks about some.

    Raises:
        ValueError: it cannot be used; the message says why.
    """
    kind = request.kind or find_kind(request)
    if kind == "classifier":
        return _classifier(request, problems)
    require_nli(problems, f"{request.model}: the prompts of a model of the kind {kind}")
    _refuse_label_order(request, kind)
    return _remote(request, problems) if kind == "remote" else _language_model(request, problems)


def find_kind(request: ModelRequest) -> str:
    """The kind of model, from what is asked for and from its configuration.

    Raises:
        ValueError: there is no such model, or it is of neither kind.
    """
    if request.base_url:
        return "remote"
    if request.gguf_file or request.model.endswith(".gguf"):
        return "lm"
    config = _read_config(request.model, request.revision)
    architectures = config.get("architectures") or []
    for name in architectures:
        if name.endswith("ForSequenceClassification"):
            return "classifier"
        if name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
            return "lm"
    raise ValueError(
        f"{request.model}: expected a sequence classifier or a causal language model, got a "
        f"configuration that says {', '.join(architectures) or 'nothing'}; --kind classifier or "
        f"--kind lm has it loaded as one"
    )


def _read_config(model: str, revision: str | None) -> dict[str, Any]:
    path = Path(model)
    if not path.is_dir():
        from huggingface_hub import hf_hub_download

        try:
            path = Path(hf_hub_download(model, "config.json", revision=revision)).parent
        except (OSError, ValueError) as error:
            raise ValueError(
                f"expected a model in a folder or on the Hub, found none at {model!r}: {error}"
            ) from error
    file = path / "config.json"
    if not file.is_file():
        raise ValueError(f"{model}: expected a folder with a model, found no config.json in it")
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return config


def _source(request: ModelRequest) -> str:
    return f"{request.model}@{request.revision}" if request.revision else request.model


def _classifier(request: ModelRequest, problems: pa.Table) -> Classifier:
    from merge_metric.models.classifier import Classifier

    by_seeds, known = request.label_order == SEEDS, format_of_problems(problems).labels
    order = None
    if request.label_order and not by_seeds:
        order = parse_order(request.label_order, known)
    unknown = unknown_order(known)
    model = Classifier.load(
        _source(request),
        label_order=order,
        otherwise=unknown if by_seeds else None,
        labels=known,
        device=request.device,
        dtype=request.dtype or "float32",
        batch_tokens=request.batch_tokens,
    )
    if model.label_order == unknown:
        asked = sample_seeds(seeds_of(problems), _ORDER_SEEDS)
        model.label_order = order_from_seeds(
            _predictions(model, asked), asked["label"].to_numpy(), unknown
        )
    return model


def _predictions(model: PairModel, problems: pa.Table) -> Any:
    pairs = list(pairs_of(problems))
    found = np.empty(len(pairs), np.int64)
    for positions, probabilities in model.probabilities(pairs):
        found[positions] = probabilities.argmax(axis=1)
    return found


def _language_model(request: ModelRequest, problems: pa.Table) -> PairModel:
    from merge_metric.models.language_model import LanguageModel
    from merge_metric.models.prompts import read_prompt

    return LanguageModel.load(
        _source(request),
        prompt=read_prompt(request.shots, sources=sources_of(problems), start=request.prompt_start),
        gguf_file=request.gguf_file,
        device=request.device,
        dtype=request.dtype or "auto",
        chat_template=request.chat_template,
        prefix_cache=request.prefix_cache,
        batch_tokens=request.batch_tokens,
    )


def _remote(request: ModelRequest, problems: pa.Table) -> PairModel:
    from merge_metric.models.prompts import read_prompt
    from merge_metric.models.remote import RemoteModel

    if not request.base_url:
        raise ValueError("a remote model: expected --base-url, such as http://localhost:8000/v1")
    if request.missing_letters not in {"error", "uniform"}:
        raise ValueError(
            f"missing letters: expected error or uniform, got {request.missing_letters!r}"
        )
    return RemoteModel(
        request.base_url,
        request.model,
        prompt=read_prompt(request.shots, sources=sources_of(problems), start=request.prompt_start),
        chat=request.chat_template,
        api_key_env=request.api_key_env,
        concurrency=request.concurrency,
        missing="uniform" if request.missing_letters == "uniform" else "error",
    )


def _refuse_label_order(request: ModelRequest, kind: str) -> None:
    if request.label_order:
        raise ValueError(
            f"label order: expected for classifiers only, got {request.label_order!r} for a "
            f"model of the kind {kind}, which is asked for letters"
        )
