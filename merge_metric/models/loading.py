"""Open a `Model`, given its name or a live object, without heavy imports."""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from merge_dataset.redaction import mask_secrets
from merge_dataset.schema import NLI, ProblemFormat
from merge_metric.models.checkpoints import Loaded, load
from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER, find_head, inspect
from merge_metric.models.label_order import (
    SEEDS,
    LabelOrder,
    describe_evidence,
    label_of,
    order_from_seeds,
    parse_order,
    read_order,
    written,
)
from merge_metric.models.pair_model import Answers, Description, Model, ModelRequest, Pair

if TYPE_CHECKING:
    from merge_metric.models.classifier import Classifier, RemoteClassifier
    from merge_metric.models.prompts import HeldOut

ModelKind = Literal["classifier", "lm", "remote", "baseline"]

log = logging.getLogger(__name__)

LabelledPairs = tuple[Sequence[Pair], NDArray[np.int64]]
"""Pairs, and the positions of their gold labels among the labels."""

AskFunction = Callable[[list[Pair]], Any]

_KINDS: Final = (
    "a name or folder, a function from a list of (premise, hypothesis) to labels or "
    "probabilities, a scikit-learn estimator, a transformers text-classification pipeline, a "
    "Trainer, (model, tokenizer), a CrossEncoder, an OpenAI client, or a Model"
)


def open_model(
    request: ModelRequest,
    *,
    problem_format: ProblemFormat = NLI,
    sources: Sequence[str] = (),
    seeds: Callable[[], LabelledPairs] | None = None,
    held_out: HeldOut | None = None,
) -> Model:
    """Load a model, or prepare to ask one on a server.

    Args:
        request: The model and its settings.
        problem_format: Fields and labels of the problems that it will be asked about.
        sources: Names of the problems' sources; few-shot examples depend on them.
        seeds: Reads seeds with gold labels, from which to tell what classes mean.
        held_out: Seeds that are not asked about, as `read_prompt` takes them.

    Raises:
        ModuleNotFoundError: a package that loads models is not installed.
        ValueError: it cannot be used; the message says why.
    """
    kind = request.kind or find_kind(request)
    require_settings_used(request, kind)
    if kind == "classifier":
        from merge_metric.models.classifier import Classifier, RemoteClassifier

        labels = problem_format.labels
        if request.base_url:
            classifier: Classifier | RemoteClassifier = RemoteClassifier(request, labels=labels)
        else:
            classifier = Classifier.load(
                request.source,
                label_order=request.label_order or None,
                labels=labels,
                device=request.device,
                dtype=request.dtype or "float32",
                batch_tokens=request.batch_tokens,
                unpadded=request.unpadded,
            )
        find_order(classifier, request.model, seeds, labels)
        return classifier
    require_no_order(request.label_order, f"a model of the kind {kind}, which is asked for letters")
    from merge_metric.models.language_model import LanguageModel, Words, WritingModel
    from merge_metric.models.prompts import read_prompt, require_choices

    prompt = read_prompt(
        request.shots,
        sources=sources,
        start=request.prompt_start,
        problem_format=problem_format,
        held_out=held_out,
        shuffle=request.letters_seed if request.shuffle_letters else None,
    )
    words = Words.of(request) if request.answers == "words" else None
    if words is None or request.shuffle_letters:
        require_choices(prompt)
    if kind == "remote":
        from merge_metric.models.remote import RemoteModel

        return RemoteModel(request, prompt=prompt, words=words)
    inspection = inspect(request.source, CAUSAL_LM, gguf_file=request.gguf_file)
    loaded = load(inspection, device=request.device, dtype=request.dtype or "auto")
    if words:
        return WritingModel(loaded, prompt=prompt, words=words, chat_template=request.chat_template)
    return LanguageModel(
        loaded,
        prompt=prompt,
        chat_template=request.chat_template,
        prefix_cache=request.prefix_cache,
        batch_tokens=request.batch_tokens,
    )


def find_kind(request: ModelRequest) -> ModelKind:
    """Find a model's kind; errors advise users to state it where that can help."""
    if request.base_url:
        return "remote"
    if request.gguf_file:
        return "lm"
    head = find_head(request.model, (CLASSIFIER, CAUSAL_LM), request.revision)
    return "classifier" if head is CLASSIFIER else "lm"


def require_settings_used(request: ModelRequest, kind: ModelKind) -> None:
    """Raise ValueError for settings of servers or of answers in words that a model does not use."""
    of_words, defaults = ("reasoning_effort", "server_settings"), ModelRequest(model="")
    for is_unused, names, where in (
        (request.answers == "letters", (*of_words, "samples", "temperature", "max_answer_tokens"),
         "with `answers` words"),
        (kind != "remote", of_words, "for a model on a server"),
        (not request.base_url, ("max_requests",), "for a model on a server"),
        (kind != "classifier" or not request.base_url, ("pair_separator",),
         "for a classifier on a server"),
        (kind == "classifier",
         ("answers", "shuffle_letters", "shots", "prompt_start", "chat_template"),
         "of language models"),
        (kind != "classifier" or request.base_url, ("unpadded",), "for a classifier on a GPU"),
        (not request.shuffle_letters, ("letters_seed",), "with `shuffle_letters`"),
    ):  # fmt: skip
        for name in names if is_unused else ():
            value = getattr(request, name)
            if value != getattr(defaults, name):
                shown = ", ".join(value) if isinstance(value, tuple) else str(value)
                raise ValueError(
                    f"{name}: expected only {where}, got {mask_secrets(shown)}: leave it out"
                )


def require_no_order(label_order: LabelOrder | str | None, what: str) -> None:
    """Raise ValueError if an order of labels is given for a model without one."""
    if isinstance(label_order, LabelOrder):
        given = written(label_order.labels, label_order.known)
        label_order = {"given": given, "unknown": SEEDS}.get(label_order.source)
    if label_order:
        raise ValueError(f"label_order: expected none for {what}, got {label_order}")


def find_order(
    model: Classifier | RemoteClassifier | AskedFunction,
    name: str,
    seeds: Callable[[], LabelledPairs] | None,
    labels: tuple[str, ...],
) -> None:
    """Determine what a model's classes mean, if unknown, from its answers about seeds."""
    if model.label_order.source != "unknown" or seeds is None:
        return
    pairs, gold = seeds()
    classes = np.empty(len(pairs), np.int64)
    for answers in model.answer(pairs):
        classes[answers.positions] = answers.labels
    model.label_order = order_from_seeds(classes, gold, labels, name=name)
    evidence = describe_evidence(model.label_order.evidence)
    log.info("%s: nothing says which class is which label, the seeds tell: %s", name, evidence)


# --- Live models of a program ---


class AskedFunction:
    """A function from pairs to labels or probabilities; each call of it has its own description."""

    def __init__(
        self, function: AskFunction, *, name: str, order: LabelOrder, kind: str, batch_size: int
    ) -> None:
        """Wrap a function; see `as_model` for what it may return."""
        self.name, self.label_order, self._kind = name, order, kind
        self._function, self._batch_size = function, batch_size
        self._gives_names, self._run = False, uuid.uuid4().hex

    def describe(self) -> Description:
        """Describe the function, as far as it can be known, and this call of it."""
        evidence = dict(self.label_order.evidence)
        identity = {
            "kind": self._kind,
            "name": self.name,
            "revision": None,
            "label_order": self.label_order.names,
            "label_order_source": self.label_order.source,
            **({"label_order_evidence": evidence} if evidence else {}),
            "run": self._run,
        }
        return Description(identity=identity)

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield probabilities or, from a function that gives these, bare labels."""
        order, n_labels = self.label_order, len(self.label_order.known)
        for start in range(0, len(questions), self._batch_size):
            batch = list(questions[start : start + self._batch_size])
            count, values = len(batch), np.asarray(self._function(batch))
            positions = list(range(start, start + count))
            if values.shape == (count, n_labels):
                yield Answers.of(positions, order.rearrange(values.astype(np.float64)))
                continue
            codes, got = list[int](), f"an array of shape {values.shape} for {count:,} pairs"
            for value in values.tolist() if values.shape == (count,) else ():
                code = label_of(value, order.known) if isinstance(value, str) else None
                if code is not None:
                    require_no_order(order, f"{self.name}, which answers with names of labels")
                    self._gives_names = True
                # A boolean says of one label at most whether it holds.
                elif type(value) in (int, float) and value in range(n_labels):
                    code = order.labels[int(value)]
                else:
                    got = f"the label {value!r}"
                    break
                codes.append(code)
            if len(codes) < count:
                raise ValueError(
                    f"{self.name}: expected for each pair a label ({', '.join(order.known)}, or 0 "
                    f"to {n_labels - 1}), or {n_labels} probabilities that sum to 1; got {got}"
                )
            # To names of labels no label order applies.
            notes = {"gives_names": True} if self._gives_names else {}
            yield Answers(positions=positions, labels=np.array(codes, np.int64), notes=notes)


def as_model(
    model: Any,
    *,
    name: str | None = None,
    label_order: str | None = None,
    problem_format: ProblemFormat = NLI,
    sources: Sequence[str] = (),
    seeds: Callable[[], LabelledPairs] | None = None,
    batch_size: int = 256,
    strict_server: bool = False,
) -> Model:
    """Make a `Model` out of any object that `_KINDS` names.

    A function takes a list of at most `batch_size` pairs, and returns labels or probabilities,
    (n, 3). A client with `base_url` needs `name`. `label_order` says what classes 0, 1, 2 mean; by
    default the configuration says so, and a function's classes are the labels in order.
    """
    labels = problem_format.labels
    if isinstance(model, str | Path):
        request = ModelRequest(model=str(model), label_order=label_order)
        return open_model(request, problem_format=problem_format, sources=sources, seeds=seeds)
    if hasattr(model, "describe") and hasattr(model, "answer") and not isinstance(model, type):
        require_no_order(label_order, "a Model, which answers in the order of the labels")
        return cast(Model, model)
    if hasattr(model, "base_url") and hasattr(model, "chat"):
        require_no_order(label_order, "an OpenAI client, whose model is asked for letters")
        if not name:
            raise ValueError("an OpenAI client: expected name, what the server calls the model")
        from merge_metric.models.prompts import read_prompt
        from merge_metric.models.remote import RemoteModel

        url, key = str(model.base_url), getattr(model, "api_key", None) or ""
        request = ModelRequest(
            model=name, base_url=url, chat_template=True, strict_server=strict_server
        )
        prompt = read_prompt("auto", sources=sources, problem_format=problem_format)
        return RemoteModel(request, prompt=prompt, api_key=key)
    order = None if label_order == SEEDS and seeds is None else label_order
    asked = _network(model, name, order, labels, batch_size)
    asked = asked or _function(model, name, order, labels, batch_size)
    find_order(asked, asked.name, seeds, labels)
    return asked


def _network(
    model: Any, name: str | None, order: str | None, labels: tuple[str, ...], batch_size: int
) -> Classifier | AskedFunction | None:
    """Wrap an object with a classification network of transformers; None if it is another."""
    is_encoder = any(base.__name__ == "CrossEncoder" for base in type(model).__mro__)
    network, tokenizer = (model, None) if is_encoder else (None, None)
    if isinstance(model, tuple) and len(model) == 2 and hasattr(model[0], "state_dict"):
        network, tokenizer = model
    elif not is_encoder and hasattr(getattr(model, "model", None), "state_dict"):
        tokenizer = getattr(model, "processing_class", None) or getattr(model, "tokenizer", None)
        network = None if tokenizer is None else model.model
    if network is None:
        return None
    place = str(getattr(network.config, "_name_or_path", "") or "")
    place = Path(place).resolve().name if place and Path(place).is_dir() else place
    name = name or place or type(network).__name__
    names = {int(n): str(label) for n, label in (network.config.id2label or {}).items()}
    known = read_order(names, name, order, labels)
    if not is_encoder:
        import torch

        from merge_metric.models.classifier import Classifier

        digest = hashlib.sha256()
        for key, tensor in sorted(network.state_dict().items()):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(memoryview(flat.view(torch.uint8).numpy()))
        loaded = Loaded(network, tokenizer, name, digest.hexdigest())
        return Classifier(loaded, label_order=known)
    # Softmax of the logits, whatever activation the model itself applies.
    ask = partial(
        model.predict, activation_fn=lambda logits: logits, apply_softmax=True,
        convert_to_numpy=True, show_progress_bar=False,
    )  # fmt: skip
    return AskedFunction(ask, name=name, order=known, kind="cross-encoder", batch_size=batch_size)


def _function(
    model: Any, name: str | None, order: str | None, labels: tuple[str, ...], batch_size: int
) -> AskedFunction:
    is_estimator = hasattr(model, "classes_") and hasattr(model, "predict")
    is_other = isinstance(model, type) or hasattr(model, "state_dict")
    if is_other or not (is_estimator or callable(model)):
        raise TypeError(f"model: expected {_KINDS}; got {type(model).__name__}")
    name = name or str(getattr(model, "__name__", None) or type(model).__name__).strip("<>")
    source = "unknown" if order == SEEDS else "default"
    plain = LabelOrder(tuple(range(len(labels))), source, labels)
    if order and order != SEEDS:
        plain = parse_order(order, labels)
    ask: AskFunction = model
    if is_estimator:
        classes = [str(c).strip().lower() if isinstance(c, str) else c for c in model.classes_]
        if any(isinstance(label, str) for label in classes):
            require_no_order(plain, f"{name}, which answers with names of labels")
        codes = [labels.index(c) if c in labels else c for c in classes]
        if sorted(map(str, codes)) != sorted(map(str, range(len(labels)))):
            raise ValueError(
                f"{type(model).__name__}: expected an estimator of {', '.join(labels)}, or of 0 to "
                f"{len(labels) - 1}, got one whose classes are {list(model.classes_)}"
            )
        columns = np.argsort(np.array(codes, np.int64))
        ask = model.predict
        if hasattr(model, "predict_proba"):
            ask = lambda pairs: np.asarray(model.predict_proba(pairs))[:, columns]  # noqa: E731
    kind = "estimator" if is_estimator else "function"
    return AskedFunction(ask, name=name, order=plain, kind=kind, batch_size=batch_size)
