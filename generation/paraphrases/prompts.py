"""What a generator is asked, and what of its answer is the paraphrase."""

from __future__ import annotations

from typing import Final

INSTRUCTION: Final = (
    "Rephrase the following sentence while preserving its original meaning: {hypothesis}"
)
"""The paper's prompt."""

_MARKS: Final = ('""', "''", "“”", "‘’", "«»", "``")
"""Opening and closing quotation marks."""


def ask(prompt: str, hypothesis: str) -> str:
    """The prompt with the hypothesis in its place, whatever other braces either has.

    >>> ask(INSTRUCTION, "A girl jumps.")
    'Rephrase the following sentence while preserving its original meaning: A girl jumps.'
    """
    return prompt.replace("{hypothesis}", hypothesis)


def check_prompt(prompt: str) -> str:
    """The prompt itself.

    Raises:
        ValueError: it has no place for the hypothesis.
    """
    if "{hypothesis}" not in prompt:
        raise ValueError(
            f"prompt: expected {{hypothesis}} where the sentence is to stand, got {prompt!r}"
        )
    return prompt


def clean(text: str, hypothesis: str) -> str:
    r"""What counts as the paraphrase in a generator's answer; "" if there is none.

    The first line that says something: a first line that ends in a colon announces the
    answer. Quotation marks around the whole are left out. What the hypothesis has itself,
    a colon at the end or quotation marks, stays.

    >>> clean('Here is another way to say it:\n\n"A girl leaps."\nOr not.', "A girl jumps.")
    'A girl leaps.'
    >>> clean('"So," she said.', "She said so.")
    '"So," she said.'
    """
    hypothesis = hypothesis.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].endswith(":") and not hypothesis.endswith(":"):
        lines = lines[1:]
    line = lines[0] if lines else ""
    return line if _quoted(hypothesis) else _without_marks(line)


def _without_marks(line: str) -> str:
    while _quoted(line):
        line = line[1:-1].strip()
    return line


def _quoted(line: str) -> bool:
    """Whether one pair of quotation marks encloses the whole, and no more than that.

    >>> [_quoted(line) for line in ('"A girl."', '"A" and "B"', "'A girl doesn't.'", '"')]
    [True, False, True, False]
    """
    inner = line[1:-1]
    return any(
        len(line) > 1
        and line[0] == opening
        and line[-1] == closing
        and not any(_is_mark(inner, i) for i, c in enumerate(inner) if c in {opening, closing})
        for opening, closing in _MARKS
    )


def _is_mark(text: str, position: int) -> bool:
    """Whether a character is a quotation mark there, not an apostrophe between letters."""
    around = text[max(0, position - 1) : position + 2]
    return not (len(around) == 3 and around[0].isalpha() and around[2].isalpha())
