"""Models as they live in a program → what can be asked about pairs of texts.

A function, a scikit-learn estimator, a transformers pipeline, a `Trainer`, a model with its
tokenizer, a `CrossEncoder` of sentence-transformers, a client of an OpenAI-compatible server, and
whatever a name stands for: each becomes a `PairModel`. Nothing is imported to find out what a
model is.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.schema import NLI, ProblemFormat
from merge_metric.models.label_order import (
    SEEDS,
    LabelOrder,
    check_classes,
    label_of,
    parse_order,
    read_order,
    unknown_order,
    written,
)
from merge_metric.models.opening import (
    LabelledPairs,
    find_order,
    open_model,
    require_nli,
    require_no_order,
)
from merge_metric.models.pair_model import ModelRequest, Pair, PairModel

if TYPE_CHECKING:
    from merge_metric.models.classifier import Classifier
    from merge_metric.models.remote import RemoteModel

AskFunction = Callable[[list[Pair]], Any]
"""A function from pairs to labels or to their probabilities."""

_TOLERANCE: Final = 1e-3
"""How far from 1 probabilities may sum up to."""

_KINDS: Final = (
    "a name or folder, a function from a list of (premise, hypothesis) to labels or "
    "probabilities, a scikit-learn estimator, a transformers text-classification pipeline, a "
    "Trainer, (model, tokenizer), a CrossEncoder, an OpenAI client, or a PairModel"
)


class AskedFunction:
    """A function that is asked for labels, or for their probabilities, in batches.

    Its description says which run this is: nobody can tell whether a function is still the same,
    so that answers from before are never taken for its own.
    """

    def __init__(
        self, function: AskFunction, *, name: str, order: LabelOrder, kind: str, batch_size: int
    ) -> None:
        """Wrap a function; see `as_pair_model` for what it may return."""
        self.name, self.has_probabilities, self.gives_names = name, True, False
        self.label_order = order
        self._function, self._kind, self._batch_size = function, kind, batch_size
        self._run = uuid.uuid4().hex

    def describe(self) -> dict[str, Any]:
        """Describe the function, as far as it can be known, and this run of it."""
        evidence = dict(self.label_order.evidence)
        return {
            "kind": self._kind,
            "name": self.name,
            "revision": None,
            "label_order": self.label_order.names,
            "label_order_source": self.label_order.source,
            **({"label_order_evidence": evidence} if evidence else {}),
            "run": self._run,
        }

    def probabilities(
        self, pairs: Sequence[Pair]
    ) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
        """Yield batches of positions and probabilities; 1 for a label that stands alone."""
        for start in range(0, len(pairs), self._batch_size):
            batch = list(pairs[start : start + self._batch_size])
            answers = self._read(self._function(batch), batch)
            yield list(range(start, start + len(batch))), answers

    def _read(self, given: Any, batch: Sequence[Pair]) -> NDArray[np.float64]:
        values = np.asarray(given)
        known = self.label_order.known
        n_labels = len(known)
        expected = (
            f"{self.name}: expected for {len(batch):,} pairs as many labels "
            f"({', '.join(known)}, or 0 to {n_labels - 1}), or probabilities of shape "
            f"({len(batch)}, {n_labels}) that sum to 1"
        )
        if values.shape == (len(batch),):
            self.has_probabilities = False
            return np.eye(n_labels)[self._codes(values.tolist(), expected)]
        if values.shape != (len(batch), n_labels):
            raise ValueError(f"{expected}; got an array of shape {values.shape}")
        numbers: NDArray[np.float64] = values.astype(np.float64)
        sums = numbers.sum(axis=1)
        bad = ~(np.isfinite(numbers).all(axis=1) & (numbers >= 0).all(axis=1))
        bad |= np.abs(sums - 1) > _TOLERANCE
        if bad.any():
            raise ValueError(
                f"{expected}; got {numbers[bad][0].tolist()} for {batch[int(bad.argmax())]}: of "
                "logits take the softmax"
            )
        return self.label_order.rearrange(numbers)

    def _codes(self, given: Sequence[Any], expected: str) -> list[int]:
        order, codes = self.label_order, []
        for value in given:
            if isinstance(value, str) and (position := label_of(value, order.known)) is not None:
                _require_order_unsaid(order, self.name)
                self.gives_names = True
                codes.append(position)
            elif not isinstance(value, str) and value in range(len(order.known)):
                codes.append(order.labels[int(value)])
            else:
                raise ValueError(f"{expected}; got the label {value!r}")
        return codes


def as_pair_model(
    model: Any,
    *,
    name: str | None = None,
    label_order: str | None = None,
    problem_format: ProblemFormat = NLI,
    sources: Sequence[str] = (),
    seeds: Callable[[], LabelledPairs] | None = None,
    batch_size: int = 256,
) -> PairModel:
    """Make a model that can be asked about pairs.

    Args:
        model: A folder, Hub id or .gguf file; a function that takes a list of (premise,
            hypothesis) and returns labels (names, or numbers) or probabilities (n, 3); an
            estimator with `classes_`; a pipeline; a `Trainer`; a pair of model and tokenizer; a
            `CrossEncoder`; a client with `base_url`, which needs `name`; or a `PairModel`.
        name: What results call it; by default what it is called.
        label_order: What its classes 0, 1, 2 mean, as `parse_order` reads it, or "seeds", which
            finds it out from gold labels where nothing else says it. By default the
            configuration's names; a function's numbers and columns are 0 entailment, 1 neutral,
            2 contradiction.
        problem_format: Fields and labels of the problems.
        sources: Names of the sources; examples for language models depend on them.
        seeds: As `open_model` takes them.
        batch_size: Pairs that a function is given at a time.

    Raises:
        TypeError: it is nothing of the kind.
        ValueError: it cannot be used, or nothing says which class is which label.
    """
    labels = problem_format.labels
    by_seeds, unknown = label_order == SEEDS and seeds is not None, unknown_order(labels)
    given = parse_order(label_order, labels) if label_order and label_order != SEEDS else None
    if isinstance(model, str | Path):
        request = ModelRequest(model=str(model), label_order=label_order)
        return open_model(request, problem_format=problem_format, sources=sources, seeds=seeds)
    if isinstance(model, type):
        raise TypeError(f"model: expected {_KINDS}; got type")
    if hasattr(model, "describe") and hasattr(model, "probabilities"):
        require_no_order(label_order, "a PairModel, which answers in the order of the labels")
        found: PairModel = model
        return found
    if hasattr(model, "base_url") and hasattr(model, "chat"):
        require_nli(problem_format, "an OpenAI client")
        require_no_order(label_order, "an OpenAI client, whose model is asked for letters")
        return _from_client(model, name, sources)
    asked: Classifier | AskedFunction
    otherwise = unknown if by_seeds else None
    if not _is_named(model, "CrossEncoder") and (parts := _parts(model)):
        asked = _classifier(*parts, name=name, order=given, otherwise=otherwise, labels=labels)
    else:
        asked = _function(
            model, name=name, order=given, otherwise=otherwise, labels=labels, batch_size=batch_size
        )
    if asked.label_order == unknown and seeds is not None:
        asked.label_order = find_order(asked, str(asked.describe()["name"]), seeds, labels)
    return asked


# --- Of each kind ---


def _function(
    model: Any,
    *,
    name: str | None,
    order: LabelOrder | None,
    otherwise: LabelOrder | None,
    labels: tuple[str, ...],
    batch_size: int,
) -> AskedFunction:
    """Wrap a `CrossEncoder`, an estimator or a function."""
    called = name or _name_of(model)
    plain = order or otherwise or LabelOrder(tuple(range(len(labels))), "default", labels)
    ask: AskFunction
    if _is_named(model, "CrossEncoder"):
        called = name or _loaded_from(model) or called
        classes = _classes(model.config.id2label)
        check_classes(classes, called, labels)
        plain = order or read_order(classes, called, otherwise, labels)
        ask, kind = _cross_encoder(model), "cross-encoder"
    elif hasattr(model, "classes_") and hasattr(model, "predict"):
        if any(isinstance(each, str) for each in model.classes_):
            _require_order_unsaid(plain, called)
        ask, kind = _estimator(model, labels), "estimator"
    elif callable(model) and not hasattr(model, "state_dict"):
        ask, kind = model, "function"
    else:
        raise TypeError(f"model: expected {_KINDS}; got {type(model).__name__}")
    return AskedFunction(ask, name=called, order=plain, kind=kind, batch_size=batch_size)


def _require_order_unsaid(order: LabelOrder, name: str) -> None:
    """Raise where an order of labels is asked for, and the model names its labels itself."""
    if order.source in ("given", "unknown"):
        raise ValueError(
            f"label_order: expected none for {name}, which answers with names of labels, got "
            f"{written(order.labels, order.known) if order.source == 'given' else SEEDS}"
        )


def _parts(model: Any) -> tuple[Any, Any] | None:
    """Find network and tokenizer of a pair, a pipeline or a `Trainer`, if the model is one."""
    if isinstance(model, tuple) and len(model) == 2 and hasattr(model[0], "state_dict"):
        return model[0], model[1]
    if hasattr(getattr(model, "model", None), "state_dict"):
        for attribute in ("processing_class", "tokenizer"):
            if (tokenizer := getattr(model, attribute, None)) is not None:
                return model.model, tokenizer
    return None


def _classifier(
    model: Any,
    tokenizer: Any,
    *,
    name: str | None,
    order: LabelOrder | None,
    otherwise: LabelOrder | None,
    labels: tuple[str, ...],
) -> Classifier:
    from merge_metric.models.classifier import Classifier

    name = name or _loaded_from(model) or type(model).__name__
    order = order or read_order(_classes(model.config.id2label), name, otherwise, labels)
    return Classifier(model, tokenizer, label_order=order, name=name, revision=_digest(model))


def _cross_encoder(model: Any) -> AskFunction:
    """Ask for the softmax of logits, whatever activation the model has of its own."""

    def ask(pairs: list[Pair]) -> Any:
        return model.predict(
            pairs,
            activation_fn=_unchanged,
            apply_softmax=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )

    return ask


def _unchanged(logits: Any) -> Any:
    return logits


def _estimator(model: Any, labels: tuple[str, ...]) -> AskFunction:
    """Ask an estimator for probabilities where it gives some, in the order of the labels."""
    classes = [str(c).strip().lower() if isinstance(c, str) else c for c in model.classes_]
    codes = [labels.index(c) if c in labels else c for c in classes]
    if sorted(map(str, codes)) != sorted(map(str, range(len(labels)))):
        raise ValueError(
            f"{_name_of(model)}: expected an estimator of {', '.join(labels)}, or of 0 to "
            f"{len(labels) - 1}, got one whose classes are {list(model.classes_)}"
        )
    if not hasattr(model, "predict_proba"):
        return lambda pairs: model.predict(pairs)
    columns = np.argsort(np.array(codes, np.int64))
    return lambda pairs: np.asarray(model.predict_proba(pairs))[:, columns]


def _from_client(client: Any, name: str | None, sources: Sequence[str]) -> RemoteModel:
    from merge_metric.models.prompts import read_prompt
    from merge_metric.models.remote import RemoteModel

    if not name:
        raise ValueError("an OpenAI client: expected name, what the server calls the model")
    return RemoteModel(
        str(client.base_url),
        name,
        prompt=read_prompt("exc", sources=sources),
        chat=True,
        api_key=getattr(client, "api_key", None),
    )


def _name_of(model: Any) -> str:
    return str(getattr(model, "__name__", None) or type(model).__name__).strip("<>")


def _loaded_from(model: Any) -> str:
    """The Hub id, or the folder's name, that a network says it was loaded from; or nothing."""
    place = str(getattr(model.config, "_name_or_path", "") or "")
    return Path(place).resolve().name if place and Path(place).is_dir() else place


def _is_named(model: Any, name: str) -> bool:
    return any(each.__name__ == name for each in type(model).__mro__)


def _classes(id2label: Any) -> dict[int, str]:
    return {int(number): str(label) for number, label in dict(id2label or {}).items()}


def _digest(model: Any) -> str:
    """Digest all weights of a network, so that answers before and after training differ."""
    digest = hashlib.sha256()
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(memoryview(flat.view(_bytes_type()).numpy()) if flat.numel() else b"")
    return digest.hexdigest()


def _bytes_type() -> Any:
    import torch

    return torch.uint8
