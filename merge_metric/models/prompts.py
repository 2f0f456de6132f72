"""The multiple-choice prompt for language models and its few-shot examples.

The template is that of the paper (appendix, Table 6, after Madaan et al. 2025): one block
per example, a blank line between blocks, and the last block left open for the answer.

As token ids, every prompt is tokenised whole, with the answer, and split afterwards: what a
tokenizer makes of a text can depend on what stands beside it.
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
from merge_metric.models.answer_letters import LETTERS

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
    """A question to a language model, with examples before it."""

    examples: tuple[Example, ...]
    """Shown before every question, in this order; may be empty."""
    name: str = "own"
    """Name of the examples in metadata."""
    start: str = ""
    """Text before the first example, such as `<|endoftext|>`; not used in chats."""

    def text(self, premise: str, hypothesis: str) -> str:
        """Write the whole prompt; it ends in "Answer:", and " A", " B" or " C" is to follow.

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
        """Make a chat of it: every question is the user's, every letter the assistant's.

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
        """Describe the prompt: its name, number of examples, digest of the text."""
        digest = hashlib.sha256(self.text("{premise}", "{hypothesis}").encode()).hexdigest()
        return {"shots": self.name, "n_shots": len(self.examples), "prompt_sha256": digest}


def question(premise: str, hypothesis: str) -> str:
    """Write one block of the template, with "Answer:"; texts go in as they are."""
    return _QUESTION.format(premise=premise, hypothesis=hypothesis)


def read_prompt(shots: str, *, sources: Iterable[str] = (), start: str = "") -> Prompt:
    """Make the prompt with the few-shot examples that a user asks for.

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
    counts = Counter(example.label for example in examples)
    if len({counts[label] for label in range(len(LABELS))}) > 1:
        log.warning(
            "`shots` %s: expected as many examples of each label, got %s: models tend to "
            "answer with the label they saw most",
            shots,
            ", ".join(f"{counts[i]} {label}" for i, label in enumerate(LABELS)),
        )
    return Prompt(examples, Path(shots).stem, start)


def _own_examples(sources: Sequence[str]) -> str:
    """Find the bundled file with examples from the given sources' own other sets."""
    own = {
        source: name
        for name in _BUNDLED
        for source in tomllib.loads(_bundled(name)).get("sources", [])
    }
    files = {(own | _SUBSTITUTES).get(source) for source in sources}
    if len(files) == 1 and (name := files.pop()):
        if substituted := [source for source in sources if source in _SUBSTITUTES]:
            log.warning(
                "`shots` exc: there are no examples of %s; those of %s are shown",
                ", ".join(substituted),
                name,
            )
        return name
    apart = "run sources one by one, or " if len(sources) > 1 else ""
    raise ValueError(
        f"shots: expected with exc problems of one of the sources {', '.join(own)} (MultiNLI's may "
        f"go together), got {', '.join(sources) or 'none'}; {apart}choose mix, snli, mnli, none or "
        f"a file of your own"
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
    return _require_examples(examples, str(path))


def _from_toml(text: str, where: str) -> tuple[Example, ...]:
    try:
        tables = tomllib.loads(text).get("example", [])
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: expected TOML, got an error: {error}") from error
    if not isinstance(tables, list):
        raise ValueError(f"{where}: expected tables called [[example]], got {tables!r}")
    return _require_examples(
        [_example(t, f"{where}: example {i}") for i, t in enumerate(tables, 1)], where
    )


def _require_examples(examples: list[Example], where: str) -> tuple[Example, ...]:
    if not examples:
        raise ValueError(
            f"{where}: expected at least one example, got none; `shots` none is a prompt without"
        )
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


# --- Prompts as token ids ---

_PROBES: Final = (("0", "0"), ("A b", "C"), ('"x"', "y."), ("é", "Z"))
"""Pairs so different that a prefix of all their prompts is one of every prompt."""

_FORMS: Final = (" ", "")
"""Texts between "Answer:" and the letter: the template's space, or nothing."""


class PromptTokens:
    """Makes token ids of prompts.

    Attributes:
        letters: Token ids of A, B and C, one row per form: after a space and, where that is
            another token after the same context, without one.
        shared: The tokens that prompts begin with, as far as some differing ones tell.
    """

    def __init__(self, tokenizer: Any, prompt: Prompt, *, chat: bool = False) -> None:
        """Find the letters' tokens and the shared beginning.

        Args:
            tokenizer: A fast tokenizer of transformers.
            prompt: What is asked.
            chat: Ask in the tokenizer's chat template.

        Raises:
            ValueError: no fast tokenizer, no chat template though one is asked for, or a
                letter that is not one token of its own.
        """
        name = type(tokenizer).__name__
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(f"expected a fast tokenizer, got {name}")
        if chat and not tokenizer.chat_template:
            raise ValueError(
                f"expected a tokenizer with a chat template, {name} has none: leave out "
                f"`chat_template`, or take the model's instruction-tuned version"
            )
        self._tokenizer, self._prompt, self._chat = tokenizer, prompt, chat
        # Templates write the tokens that begin a text themselves; so does who gives a start.
        self._adds_special = not chat and not prompt.start
        forms = _FORMS[::-1] if chat else _FORMS
        found = [(form, *letters) for form in forms if (letters := self._letters(form))]
        if not found:
            context = self._texts(_PROBES[:1])[0]
            answers = [context + form + letter for form in _FORMS for letter in LETTERS]
            ends = [tokenizer.convert_ids_to_tokens(ids)[-4:] for ids in self._encode(answers)]
            raise ValueError(
                f"expected a tokenizer in which the answers {', '.join(LETTERS)} are one token "
                f"each, {name} ends the prompts in {ends}: this model cannot be asked by letters"
            )
        self._form, first, _ = found[0]
        self.letters: tuple[tuple[int, ...], ...] = tuple(
            dict.fromkeys(ids for _, context, ids in found if context == first)
        )
        self.shared: list[int] = common_prefix(self.encode(_PROBES))

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        """Return the token ids of each pair's whole prompt, up to where the letter is to follow.

        Raises:
            ValueError: a prompt in which the answer is not a token of its own; a text that
                changes how what stands after it is tokenised would do that.
        """
        encoded = self._encode([text + self._form + LETTERS[0] for text in self._texts(pairs)])
        for ids, pair in zip(encoded, pairs, strict=True):
            if ids[-1] != self.letters[0][0]:
                raise ValueError(
                    f"expected the prompt with the answer {LETTERS[0]} to end in that letter's "
                    f"token {self.letters[0][0]}, got {ids[-1]} for the pair {pair}"
                )
        return [ids[:-1] for ids in encoded]

    def _texts(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        if not self._chat:
            return [self._prompt.text(*pair) for pair in pairs]
        texts: list[str] = self._tokenizer.apply_chat_template(
            [self._prompt.messages(*pair) for pair in pairs],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,  # what templates do not know they ignore
        )
        return texts

    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Encode texts, without the special tokens that some tokenizers put at the end."""
        encoded = self._tokenizer(
            texts,
            add_special_tokens=self._adds_special,
            return_attention_mask=False,
            return_special_tokens_mask=self._adds_special,
            verbose=False,  # no warning of long texts; whoever runs the model checks that
        )
        rows: list[list[int]] = encoded["input_ids"]
        if self._adds_special:
            masks = encoded["special_tokens_mask"]
            for ids, special in zip(rows, masks, strict=True):
                while ids and special[len(ids) - 1]:
                    ids.pop()
        return rows

    def _letters(self, form: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Find the tokens before the letters in a form, and each letter's token.

        None if they are not single, distinct tokens.
        """
        text = self._texts(_PROBES[:1])[0] + form
        encoded = self._encode([text + letter for letter in LETTERS])
        contexts = {tuple(ids[:-1]) for ids in encoded}
        ids = tuple(ids[-1] for ids in encoded)
        if len(contexts) > 1 or len(set(ids)) < len(LETTERS):
            return None
        return contexts.pop(), ids


def common_prefix(rows: Sequence[list[int]]) -> list[int]:
    """Find the longest sequence that all rows begin with.

    >>> common_prefix([[1, 2, 3], [1, 2, 4], [1, 2]])
    [1, 2]
    """
    # The smallest and the largest row differ first where any two do.
    first, last = min(rows), max(rows)
    for i, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return first[:i]
    return first[: min(len(first), len(last))]
