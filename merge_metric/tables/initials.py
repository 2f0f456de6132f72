"""Labels in a letter each, for answers that stand side by side."""

from __future__ import annotations

from collections.abc import Sequence


def initials(labels: Sequence[str]) -> tuple[str, ...]:
    """The first letters in upper case; numbers where two labels begin alike.

    >>> initials(("entailment", "neutral", "contradiction")), initials(("no", "none"))
    (('E', 'N', 'C'), ('0', '1'))
    """
    letters = tuple(label[0].upper() for label in labels)
    if len(set(letters)) == len(letters):
        return letters
    return tuple(str(number) for number in range(len(labels)))


def legend(labels: Sequence[str]) -> str:
    """What `initials` stand for.

    >>> legend(("yes", "no")), legend(("no", "none"))
    ('Y(es), N(o)', '0 no, 1 none')
    """
    pairs = list(zip(initials(labels), labels, strict=True))
    if all(letter == label[0].upper() for letter, label in pairs):
        return ", ".join(f"{letter}({label[1:]})" for letter, label in pairs)
    return ", ".join(f"{letter} {label}" for letter, label in pairs)
