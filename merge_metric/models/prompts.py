"""Prompts for language models: few-shot examples, custom questions, and token ids."""

import json
import logging
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from merge_dataset.schema import ANLI_SOURCES, NLI, ProblemFormat
from merge_metric.models.templates import PLACE, Example, Prompt, Template

_BUNDLED: Final = ("snli", "mnli", "mixed")
_SUBSTITUTES: Final = dict.fromkeys(ANLI_SOURCES, "mnli")
"""Source without examples of its own → bundled examples that `exc` shows instead."""

HeldOut = Mapping[str, Sequence[Mapping[str, Any]]]
"""Source → its held-out seeds, which are not asked about, with their texts and `label`."""

log = logging.getLogger(__name__)


def read_prompt(
    shots: str,
    *,
    sources: Iterable[str] = (),
    start: str = "",
    problem_format: ProblemFormat = NLI,
    held_out: HeldOut | None = None,
    shuffle: int | None = None,
) -> Prompt:
    """Make the prompt with the few-shot examples that a user asks for.

    Args:
        shots: `exc`: the six examples from the training or development set of the problems' own
            source, for Adversarial NLI those of MultiNLI, which the log says; `mix`: three from
            SNLI and three from MultiNLI (paper, Table 8); `auto`: the first of these that there
            are, and `none` of other formats than NLI; `snli` or `mnli`: these six; `seeds`: those
            that are held out; or a file, TOML (tables `[[example]]`) or JSON lines, with the
            fields, such as `premise`, and `label` (a name or its position). TOML may also have
            `question`, with names of fields and `choices` in braces, and a table `[choices]`.
        sources: Where the problems are from, such as `snli`; `exc` and `auto` ask.
        start: See `Prompt.start`.
        problem_format: Fields and labels of the problems. Bundled examples are of NLI.
        held_out: As `problems.hold_out` records them, in the order in which they are shown.
        shuffle: Seed of the order of a problem's choices; see `Template.shuffle`.

    Raises:
        ValueError: unknown shots, no shots for these sources, or a malformed file.
    """
    template = Template.of(problem_format.fields, problem_format.labels, shuffle)
    is_file, is_nli = Path(shots).suffix in {".toml", ".jsonl"}, problem_format == NLI
    if shots == "none" or (shots == "auto" and not is_nli):
        return Prompt((), template, "none", start)
    if shots == "seeds":
        if len(held_out or {}) != 1:
            raise ValueError(
                "shots: expected with seeds problems of one source, of which some seeds are held "
                f"out, got {', '.join(held_out or ()) or 'none'}: run sources one by one"
            )
        ((source, seeds),) = (held_out or {}).items()
        examples = tuple(_example(seed, f"{source}: shots", template) for seed in seeds)
        return Prompt(examples, template, shots, start)
    if not is_file and (not is_nli or shots not in ("auto", "exc", "mix", *_BUNDLED)):
        options = "auto, exc, mix, none, snli, mnli, seeds, or a .toml or .jsonl file of your own"
        options = options if is_nli else "none, seeds, or a .toml or .jsonl file"
        raise ValueError(
            f"shots: expected {options} for problems with the {problem_format.described}, got "
            f"{shots!r}"
        )
    if shots in ("auto", "exc"):
        shots = _own_examples(shots, sorted(set(sources)))
    shots = "mixed" if shots == "mix" else shots
    template, examples = _read_examples(shots, template)
    counts = Counter(example.label for example in examples)
    shown = [f"{counts[i]} {label}" for i, label in enumerate(template.labels)]
    if len({counts[label] for label in range(len(shown))}) > 1:
        log.warning(
            "`shots` %s: expected as many examples of each label, got %s: models tend to "
            "answer with the label they saw most", shots, ", ".join(shown)
        )  # fmt: skip
    return Prompt(examples, template, Path(shots).stem, start)


def require_choices(prompt: Prompt) -> None:
    """Raise ValueError if a question shows no choices, so that no letter can be chosen."""
    if not prompt.template.shows_choices:
        raise ValueError(
            f"shots: expected a question with {{choices}}, whose letters are to be chosen, got "
            f"one without in {prompt.name}; ask for `answers` words, or show them"
        )


def _own_examples(shots: str, sources: Sequence[str]) -> str:
    """Name the bundled examples of the problems' sources; of none, take "mix" or raise."""
    files = dict(_SUBSTITUTES)
    for own in _BUNDLED:
        files |= dict.fromkeys(tomllib.loads(_bundled(own)).get("sources", []), own)
    names = {files.get(source) for source in sources}
    name = names.pop() if len(names) == 1 else None
    others = sources if name is None else [s for s in sources if s in _SUBSTITUTES]
    if name is None and shots == "exc":
        raise ValueError(
            f"shots: expected with exc problems of one of the sources {', '.join(files)} "
            f"(MultiNLI's may go together), got {', '.join(sources) or 'none'}; run sources one by "
            "one, or choose mix, snli, mnli, none or a file of your own"
        )
    if others or name is None:
        log.log(
            logging.INFO if name is None else logging.WARNING,
            "`shots`: there are no examples of %s; those of %s are shown",
            ", ".join(others) or "these problems", name or "mix",
        )  # fmt: skip
    return name or "mix"


def _bundled(name: str) -> str:
    return Path(__file__).with_name("shots").joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _read_examples(shots: str, template: Template) -> tuple[Template, tuple[Example, ...]]:
    path, content = Path(shots), dict[str, Any]()
    try:
        text = _bundled(shots) if shots in _BUNDLED else path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            lines = enumerate(text.split("\n"), start=1)
            rows = {f"line {number}": json.loads(line) for number, line in lines if line.strip()}
        else:
            content = tomllib.loads(text)
            tables = enumerate(content.get("example", []), start=1)
            rows = {f"example {number}": table for number, table in tables}
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{shots}: expected TOML with tables [[example]], or JSON lines in .jsonl: {error}"
        ) from error
    if content:
        fields, labels = template.fields, template.labels
        names = content.get("choices", dict(zip(labels, template.choices, strict=True)))
        if not isinstance(names, dict) or {*names} != {*labels}:
            raise ValueError(
                f"{shots}: choices: expected a text for each of {', '.join(labels)}, got {names}"
            )
        question = str(content.get("question", template.question)).strip("\n")
        choices = tuple(str(names[label]) for label in labels)
        in_choices = {name for text in choices for name in PLACE.findall(text)}
        used = {*PLACE.findall(question)} | in_choices
        odd = [f"{{{name}}}" for name in sorted(used - {*fields, "choices"})]
        odd += ["{choices}"] * ("choices" in in_choices)
        odd += [f"none for {{{field}}}" for field in fields if field not in used]
        if odd:
            raise ValueError(
                f"{shots}: question: expected places for {{{'}, {'.join(fields)}}} and, if letters "
                f"are to be chosen, {{choices}}, got {odd[0]}"
            )
        template = replace(template, question=question, choices=choices)
    examples = [_example(row, f"{shots}: {place}", template) for place, row in rows.items()]
    if not examples and "question" not in content:
        raise ValueError(
            f"{shots}: expected at least one example, got none; `shots` none is a prompt without"
        )
    return template, tuple(examples)


def _example(row: Any, where: str, template: Template) -> Example:
    values, labels = row if isinstance(row, Mapping) else {}, template.labels
    texts: tuple[Any, ...] = tuple(values.get(field) for field in template.fields)
    label = values.get("label")
    number = labels.index(label) if label in labels else label
    is_good = all(isinstance(text, str) and text.strip() for text in texts)
    if not is_good or type(number) is not int or number not in range(len(labels)):
        raise ValueError(
            f"{where}: expected texts {', '.join(template.fields)} and label, one of "
            f"{', '.join(labels)} or its position from 0, got {row!r:.200}"
        )
    return Example(texts, number)


# --- Prompts as token ids ---

_PROBES: Final = (("0", "0"), ("A b", "C"), ('"x"', "y."), ("é", "Z"))
"""Pairs that differ from the first character on: their common prefix is that of all prompts."""

_FORMS: Final = (" ", "")
"""Separators of "Answer:" and the letter: a space, as in the template, or nothing."""


def written_prompts(
    tokenizer: Any, prompt: Prompt, pairs: Sequence[tuple[str, ...]], *, chat: bool, **more: Any
) -> list[str]:
    """Write prompts, if `chat` in the tokenizer's chat template, which gets `more` variables."""
    if not chat:
        return [prompt.text(*pair) for pair in pairs]
    chats = [prompt.messages(*pair) for pair in pairs]
    more |= {"tokenize": False, "add_generation_prompt": True}
    return list(tokenizer.apply_chat_template(chats, **more))


def encoded(tokenizer: Any, texts: list[str], *, special: bool) -> list[list[int]]:
    """Encode texts; of `special` tokens, those that some tokenizers put at the end are left out."""
    tokens = tokenizer(
        texts,
        add_special_tokens=special,
        return_attention_mask=False,
        return_special_tokens_mask=special,
        verbose=False,  # no warning about long texts; models check lengths
    )
    rows: list[list[int]] = tokens["input_ids"]
    for ids, mask in zip(rows, tokens["special_tokens_mask"] if special else (), strict=special):
        while ids and mask[len(ids) - 1]:
            ids.pop()
    return rows


class PromptTokens:
    """Converter of prompts to token ids: each is tokenised with an answer, and then split.

    `letters` are the token ids of A, B, …, one row per form: after a space and, if the token is
    another, without a space. `shared` are the tokens with which all prompts begin, by the probes.
    """

    def __init__(self, tokenizer: Any, prompt: Prompt, *, chat: bool = False) -> None:
        """Find the letters' tokens and the shared beginning; `chat` asks in the chat template."""
        name = type(tokenizer).__name__
        self._tokenizer, self._prompt, self._chat = tokenizer, prompt, chat
        self._choices, n_fields = prompt.template.letters, len(prompt.template.fields)
        probes = [tuple(probe[i % 2] for i in range(n_fields)) for probe in _PROBES]
        readings, ends = [], []
        for form in _FORMS[::-1] if chat else _FORMS:
            rows = self._encode(probes[:1], [form + letter for letter in self._choices])
            ends.append([tokenizer.convert_ids_to_tokens(ids)[-4:] for ids in rows])
            contexts, ids = {tuple(row[:-1]) for row in rows}, tuple(row[-1] for row in rows)
            if len(contexts) == 1 and len(set(ids)) == len(self._choices):
                readings.append((form, contexts.pop(), ids))
        if not readings:
            raise ValueError(
                f"expected a tokenizer in which the answers {', '.join(self._choices)} are one "
                f"token each, {name} ends the prompts in {ends}: this model cannot be asked by "
                "letters; ask it with `answers` words"
            )
        self._form, first, _ = readings[0]
        self.letters: tuple[tuple[int, ...], ...] = tuple(
            dict.fromkeys(ids for _, context, ids in readings if context == first)
        )
        self.shared: list[int] = common_prefix(self.encode(probes))

    def encode(self, pairs: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Return the token ids of each pair's prompt, up to the position of the letter."""
        rows = self._encode(pairs, [self._form + self._choices[0]])
        for ids, pair in zip(rows, pairs, strict=True):
            if ids[-1] != self.letters[0][0]:
                raise ValueError(
                    f"expected the prompt with the answer {self._choices[0]} to end in that "
                    f"letter's token {self.letters[0][0]}, got {ids[-1]} for the pair {pair}"
                )
        return [ids[:-1] for ids in rows]

    def _encode(self, pairs: Sequence[tuple[str, ...]], answers: list[str]) -> list[list[int]]:
        """Encode each pair's prompt with each answer; templates are told not to let models think.

        Chat templates, and users who give a start, add the beginning-of-text tokens themselves.
        """
        prompts = written_prompts(
            self._tokenizer, self._prompt, pairs, chat=self._chat, enable_thinking=False
        )
        texts = [text + answer for text in prompts for answer in answers]
        special = not self._chat and not self._prompt.start
        return encoded(self._tokenizer, texts, special=special)


def common_prefix(rows: Sequence[list[int]]) -> list[int]:
    """Find the longest sequence that all rows begin with."""
    return list(os.path.commonprefix(rows))  # noqa: RUF071 - of any sequences
