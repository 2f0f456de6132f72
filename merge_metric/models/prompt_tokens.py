"""Prompts as token ids: what all share, where each begins to differ, which token each letter is.

Every prompt is tokenised whole, with the answer, and split afterwards: what a tokenizer
makes of a text can depend on what stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from merge_metric.models.prompts import LETTERS, Prompt

_PROBES: Final = (("0", "0"), ("A b", "C"), ('"x"', "y."), ("é", "Z"))
"""Pairs that begin so differently that what their prompts share, all prompts should share."""

_FORMS: Final = (" ", "")
"""What stands between "Answer:" and the letter: the template's space, or nothing."""


@dataclass(frozen=True, slots=True)
class _Letters:
    """How a tokenizer writes the answers after one context."""

    form: str
    """What stands before the letter."""
    context: tuple[int, ...]
    """All tokens before the letter, for the first probe."""
    ids: tuple[int, ...]
    """The token of each letter, in the order of `LETTERS`."""


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
                f"--chat-template, or take the model's instruction-tuned version"
            )
        self._tokenizer, self._prompt, self._chat = tokenizer, prompt, chat
        # Templates write the tokens that begin a text themselves; so does who gives a start.
        self._adds_special = not chat and not prompt.start
        found = [f for form in (_FORMS[::-1] if chat else _FORMS) if (f := self._letters(form))]
        if not found:
            raise ValueError(self._no_letters())
        self._form = found[0].form
        self.letters: tuple[tuple[int, ...], ...] = tuple(
            dict.fromkeys(f.ids for f in found if f.context == found[0].context)
        )
        self.shared: list[int] = common_prefix(self.encode(_PROBES))

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        """Token ids of each pair's whole prompt, up to where the letter is to follow.

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
        """Without the special tokens that some tokenizers put at the end."""
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
            rows = [_without_end(ids, mask) for ids, mask in zip(rows, masks, strict=True)]
        return rows

    def _letters(self, form: str) -> _Letters | None:
        """The letters' tokens in a form; None if they are not single, distinct tokens."""
        text = self._texts(_PROBES[:1])[0] + form
        encoded = self._encode([text + letter for letter in LETTERS])
        contexts = {tuple(ids[:-1]) for ids in encoded}
        ids = tuple(ids[-1] for ids in encoded)
        if len(contexts) > 1 or len(set(ids)) < len(LETTERS):
            return None
        return _Letters(form, contexts.pop(), ids)

    def _no_letters(self) -> str:
        text = self._texts(_PROBES[:1])[0]
        shown = [
            self._tokenizer.convert_ids_to_tokens(ids)[-4:]
            for ids in self._encode([text + form + letter for form in _FORMS for letter in LETTERS])
        ]
        return (
            f"expected a tokenizer in which the answers {', '.join(LETTERS)} are one token each, "
            f"{type(self._tokenizer).__name__} ends the prompts in {shown}: "
            f"this model cannot be asked by letters"
        )


def common_prefix(rows: Sequence[list[int]]) -> list[int]:
    """The longest sequence that all rows begin with.

    >>> common_prefix([[1, 2, 3], [1, 2, 4], [1, 2]])
    [1, 2]
    """
    # The smallest and the largest row differ first where any two do.
    first, last = min(rows), max(rows)
    for i, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return first[:i]
    return first[: min(len(first), len(last))]


def _without_end(ids: list[int], special: list[int]) -> list[int]:
    end = len(ids)
    while end and special[end - 1]:
        end -= 1
    return ids[:end]
