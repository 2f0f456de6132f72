"""Questions to language models: a template with places for texts, examples before it.

The template of NLI is the paper's (appendix, Table 6, after Madaan et al. 2025). This module is
copied into exports beside `answer_words`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from merge_metric.models.answer_words import ALPHABET, NO_LABEL, AnswerReader, answer_reader


@dataclass(frozen=True, slots=True)
class Example:
    """A problem with its answer."""

    texts: tuple[str, ...]
    """Texts of the format's fields; of NLI premise and hypothesis."""
    label: int
    """Position among the labels."""


@dataclass(frozen=True, slots=True)
class Template:
    """A question about a problem, with its texts and choices in the places of names in braces."""

    fields: tuple[str, ...]
    labels: tuple[str, ...]
    question: str
    """Text such as "{premise} … {choices} Answer:"; `{choices}` are the lettered lines."""
    choices: tuple[str, ...]
    """Name of each label in the prompt; may have texts in it, such as "{second_choice}"."""
    shuffle: int | None = None
    """Seed of the choices' order, drawn for each problem; by default it is that of the labels."""

    @classmethod
    def of(
        cls, fields: Sequence[str], labels: Sequence[str], shuffle: int | None = None
    ) -> Template:
        """Make the template of problems for which there is none: of NLI, the paper's.

        >>> print(Template.of(["premise", "hypothesis"], ["true", "false"]).text("A.", "B."))
        Premise: A.
        Hypothesis: B.
        A. True
        B. False
        Answer:
        """
        if len(labels) > len(ALPHABET) or "choices" in fields or any(map(PLACE.search, labels)):
            raise ValueError(
                f"expected of problems that a language model is asked about at most "
                f"{len(ALPHABET)} labels, none with braces, and no field choices, got the labels "
                f"{', '.join(labels)} and the fields {', '.join(fields)}"
            )
        shown = [f"{name[:1].upper()}{name[1:].replace('_', ' ')}: {{{name}}}" for name in fields]
        question = "\n".join([*shown, "{choices}", "Answer:"])
        choices = tuple(label[:1].upper() + label[1:] for label in labels)
        return cls(tuple(fields), tuple(labels), question, choices, shuffle)

    @property
    def shows_choices(self) -> bool:
        """Whether the question has lettered choices; else the answer is a name."""
        return "{choices}" in self.question

    @property
    def letters(self) -> str:
        """Letters of the choices."""
        return ALPHABET[: len(self.labels)]

    def named(self, *texts: str) -> tuple[str, ...]:
        """Name the choices of a problem."""
        values = dict(zip(self.fields, texts, strict=True))
        return tuple(_filled(choice, values) for choice in self.choices)

    def order(self, *texts: str) -> tuple[int, ...]:
        """Return the positions of the labels that a problem's letters A, B, … stand for.

        >>> labels = Template.of(["premise", "hypothesis"], "enc", shuffle=1)
        >>> labels.order("A dog.", "A cat."), labels.order("A dog.", "A cow.")
        ((0, 2, 1), (1, 0, 2))
        """
        places = range(len(self.labels))
        if self.shuffle is None:
            return tuple(places)
        key = "\0".join((str(self.shuffle), *texts)).encode(errors="replace")
        return tuple(sorted(places, key=lambda n: hashlib.sha256(key + bytes([n])).digest()))

    def text(self, *texts: str) -> str:
        """Write the question; texts go in as they are."""
        names, order = self.named(*texts), self.order(*texts)
        lines = zip(self.letters, order, strict=True)
        values = dict(zip(self.fields, texts, strict=True))
        values["choices"] = "\n".join(f"{letter}. {names[label]}" for letter, label in lines)
        return _filled(self.question, values)


def _filled(text: str, values: Mapping[str, str]) -> str:
    return PLACE.sub(lambda place: values[place[1]], text)


PLACE: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question to a language model, with examples before it."""

    examples: tuple[Example, ...]
    """Shown before every question, in this order; may be empty."""
    template: Template
    name: str = "own"
    start: str = ""
    """Text before the first example, such as `<|endoftext|>`; not used in chats."""

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Prompt:
        """Make the prompt that `dataclasses.asdict` made a record of."""
        texts = {name: record["template"][name] for name in ("fields", "labels", "choices")}
        lists: dict[str, Any] = {name: tuple(values) for name, values in texts.items()}
        examples = tuple(Example(tuple(e["texts"]), e["label"]) for e in record["examples"])
        template = Template(**record["template"] | lists)
        return cls(examples, template, record["name"], record["start"])

    def text(self, *texts: str) -> str:
        """Write the whole prompt; of NLI " A", " B" or " C" is to follow."""
        blocks = [f"{self.template.text(*e.texts)} {self.answer(e)}" for e in self.examples]
        return self.start + "\n\n".join([*blocks, self.template.text(*texts)])

    def answer(self, example: Example) -> str:
        """Write an example's answer: its letter or, where none are shown, its name."""
        if self.template.shows_choices:
            return self.template.letters[self.template.order(*example.texts).index(example.label)]
        return self.template.named(*example.texts)[example.label]

    def messages(self, *texts: str) -> list[dict[str, str]]:
        """Make a chat of it: every question is the user's, every letter the assistant's.

        There is no system message, as not every model's template has a place for one.
        """
        turns = [(self.template.text(*e.texts), self.answer(e)) for e in self.examples]
        contents = [*(text for turn in turns for text in turn), self.template.text(*texts)]
        roles = ("user", "assistant")
        return [{"role": roles[n % 2], "content": text} for n, text in enumerate(contents)]

    def form(self) -> str:
        """Write the prompt with names of texts in braces, as reports show it."""
        return self.text(*(f"{{{field}}}" for field in self.template.fields))

    def describe(self) -> dict[str, Any]:
        """Describe the prompt: its name, number of examples, digest of the text."""
        # Names that the question does not show still say how answers are read.
        unseen = () if self.template.shows_choices else self.template.choices
        digest = hashlib.sha256("\n".join([self.form(), *unseen]).encode()).hexdigest()
        seed = self.template.shuffle
        shuffled = {} if seed is None else {"letters_seed": seed}
        shown = {"shots": self.name, "n_shots": len(self.examples), "prompt_sha256": digest}
        return shown | shuffled

    def reader(self, *texts: str) -> tuple[AnswerReader, tuple[int, ...]]:
        """Make the reader of answers to a problem; return it with the labels of what it reads."""
        template, order = self.template, self.template.order(*texts)
        names = template.named(*texts)
        shown = (tuple(of[n] for n in order) for of in (template.labels, names))
        return answer_reader(*shown, self.stop), (*order, NO_LABEL)

    @property
    def stop(self) -> str:
        """Text by which a model that goes on shows that its answer has ended."""
        return "\n\n" + self.template.question.partition("{")[0].strip()
