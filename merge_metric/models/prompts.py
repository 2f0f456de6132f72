"""The multiple-choice prompt for language models and its few-shot examples.

The template is that of the paper (appendix, Table 6, after Madaan et al. 2025): one block
per example, a blank line between blocks, and the last block left open for the answer.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from merge_dataset.schema import ANLI_SOURCES, LABELS

LETTERS: Final = ("A", "B", "C")
"""Answer letters, in the order of `LABELS`."""

_QUESTION: Final = """\
Premise: {premise}
Hypothesis: {hypothesis}
A. Entailment
B. Neutral
C. Contradiction
Answer:"""

_BUNDLED: Final = ("snli", "mnli", "mixed")
_SUBSTITUTES: Final = dict.fromkeys(ANLI_SOURCES, "mnli")
"""Source without examples of its own → the bundled ones that `exc` shows instead."""

_OPTIONS: Final = "exc, mix, none, snli, mnli, or a .toml or .jsonl file of your own"
_KEYS: Final = ("premise", "hypothesis", "label")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Example:
    """A problem with its answer."""

    premise: str
    hypothesis: str
    label: int
    """Position in `LABELS`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a language model is asked."""

    examples: tuple[Example, ...]
    """Shown before every question, in this order; may be empty."""
    name: str = "own"
    """What metadata call the examples."""
    start: str = ""
    """Text before the first example, such as `<|endoftext|>`; not used in chats."""

    def text(self, premise: str, hypothesis: str) -> str:
        """The whole prompt; it ends in "Answer:", and " A", " B" or " C" is to follow.

        >>> print(Prompt((Example("It rains.", "It pours.", 1),)).text("A dog.", "A cat."))
        Premise: It rains.
        Hypothesis: It pours.
        A. Entailment
        B. Neutral
        C. Contradiction
        Answer: B
        <BLANKLINE>
        Premise: A dog.
        Hypothesis: A cat.
        A. Entailment
        B. Neutral
        C. Contradiction
        Answer:
        """
        shown = "".join(
            f"{question(example.premise, example.hypothesis)} {LETTERS[example.label]}\n\n"
            for example in self.examples
        )
        return self.start + shown + question(premise, hypothesis)

    def messages(self, premise: str, hypothesis: str) -> list[dict[str, str]]:
        """The same as a chat: every question is the user's, every letter the assistant's.

        There is no system message, as not every model's template has a place for one.
        """
        turns = []
        for example in self.examples:
            turns += [
                {"role": "user", "content": question(example.premise, example.hypothesis)},
                {"role": "assistant", "content": LETTERS[example.label]},
            ]
        return [*turns, {"role": "user", "content": question(premise, hypothesis)}]

    def describe(self) -> dict[str, Any]:
        """What tells this prompt from others: name, number of examples, digest of the text."""
        digest = hashlib.sha256(self.text("{premise}", "{hypothesis}").encode()).hexdigest()
        return {"shots": self.name, "n_shots": len(self.examples), "prompt_sha256": digest}


def question(premise: str, hypothesis: str) -> str:
    """One block of the template, up to and with "Answer:"; texts go in as they are."""
    return _QUESTION.format(premise=premise, hypothesis=hypothesis)


def read_prompt(shots: str, *, sources: Iterable[str] = (), start: str = "") -> Prompt:
    """The prompt with the few-shot examples that a user asks for.

    Args:
        shots: `exc`: the six examples from the training or development set of the
            problems' own source; for Adversarial NLI, of which there are none here, those
            of MultiNLI, which the log says; `mix`: three from SNLI and three from
            MultiNLI (paper, Table 8); `snli` or `mnli`: these six, whatever the problems;
            `none`; or a file, TOML (tables `[[example]]`) or JSON lines, with `premise`,
            `hypothesis` and `label` (a name or its position in `LABELS`).
        sources: Where the problems are from, such as `snli`; only `exc` asks.
        start: See `Prompt.start`.

    Raises:
        ValueError: unknown shots, no shots for these sources, or a malformed file.
    """
    if shots == "none":
        return Prompt((), "none", start)
    if shots == "exc":
        shots = _own_examples(sorted(set(sources)))
    if shots == "mix":
        shots = "mixed"
    if shots in _BUNDLED:
        text = _bundled(shots)
        examples = _from_toml(text, shots)
    elif Path(shots).suffix in {".toml", ".jsonl"}:
        examples = _from_file(Path(shots))
    else:
        raise ValueError(f"shots: expected {_OPTIONS}, got {shots!r}")
    _warn_if_unbalanced(examples, shots)
    return Prompt(examples, Path(shots).stem, start)


def _own_examples(sources: Sequence[str]) -> str:
    """The bundled file whose examples are from the given sources' own other sets."""
    own = {
        source: name
        for name in _BUNDLED
        for source in tomllib.loads(_bundled(name)).get("sources", [])
    }
    files = {(own | _SUBSTITUTES).get(source) for source in sources}
    if len(files) == 1 and (name := files.pop()):
        if substituted := [source for source in sources if source in _SUBSTITUTES]:
            log.warning(
                "shots 'exc': there are no examples of %s; those of %s are shown",
                ", ".join(substituted),
                name,
            )
        return name
    raise ValueError(
        f"shots 'exc': expected problems of one of the sources {', '.join(own)} (MultiNLI's may "
        f"go together), got {', '.join(sources) or 'none'}: run sources one by one, or choose "
        f"mix, snli, mnli, none or a file of your own"
    )


def _bundled(name: str) -> str:
    folder = resources.files("merge_metric.models").joinpath("shots")
    return folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _from_file(path: Path) -> tuple[Example, ...]:
    if not path.is_file():
        raise ValueError(f"shots: expected a file at {path}, found none")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        return _from_toml(text, str(path))
    examples = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}: line {number}: expected JSON: {error}") from error
            examples.append(_example(row, f"{path}: line {number}"))
    return _some(examples, str(path))


def _from_toml(text: str, where: str) -> tuple[Example, ...]:
    try:
        tables = tomllib.loads(text).get("example", [])
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: expected TOML, got an error: {error}") from error
    if not isinstance(tables, list):
        raise ValueError(f"{where}: expected tables called [[example]], got {tables!r}")
    return _some([_example(t, f"{where}: example {i}") for i, t in enumerate(tables, 1)], where)


def _some(examples: list[Example], where: str) -> tuple[Example, ...]:
    if not examples:
        raise ValueError(f"{where}: expected at least one example, got none; or use shots 'none'")
    return tuple(examples)


def _example(row: Any, where: str) -> Example:
    if not isinstance(row, Mapping) or not set(_KEYS) <= set(row):
        got = ", ".join(row) if isinstance(row, Mapping) else repr(row)
        raise ValueError(f"{where}: expected {', '.join(_KEYS)}, got {got or 'nothing'}")
    for key in _KEYS[:2]:
        if not isinstance(row[key], str) or not row[key].strip():
            raise ValueError(f"{where}: {key}: expected a text, got {row[key]!r}")
    label = row["label"]
    if label in LABELS:
        label = LABELS.index(label)
    if not isinstance(label, int) or isinstance(label, bool) or not 0 <= label < len(LABELS):
        raise ValueError(
            f"{where}: label: expected one of {', '.join(LABELS)} or its position from 0, "
            f"got {label!r}"
        )
    return Example(row["premise"], row["hypothesis"], label)


def _warn_if_unbalanced(examples: Sequence[Example], name: str) -> None:
    counts = Counter(example.label for example in examples)
    if len({counts[label] for label in range(len(LABELS))}) > 1:
        shown = ", ".join(f"{counts[i]} {label}" for i, label in enumerate(LABELS))
        log.warning(
            "shots %s: expected as many examples of each label, got %s: models tend to "
            "answer with the label they saw most",
            name,
            shown,
        )
