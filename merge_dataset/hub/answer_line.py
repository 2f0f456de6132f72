"""The regular expression by which Inspect reads answers to the tasks of `eval.yaml`.

Inspect's `pattern` scorer searches an answer for it, and compares its groups with the gold letter.
It reads the last line "ANSWER: LETTER" as `merge-nli predict --answers words` reads it, or not at
all; a label's name alone cannot be compared with a letter.
"""

import re
from collections.abc import Sequence
from string import ascii_uppercase

_CUE = r"\bANSWER[*_`\"']*\s*:"
_TAG = r"(?:think(?:ing)?|thought|reasoning|reflection)>"
_BETWEEN = (
    r"(?:[\s*_`\"'“”‘’$#=>(\[{\u200b\u2060\ufeff-]|\\(?:boxed|text\w*|math\w+)\{|"
    r"(?:the|option|choice|letter)\s)*"
)
_NEXT = (
    r"\n\W*(?:(?:next|new) )?(?:(?:question|example|problem|instruction|input)\b[ \t]*\d*[ \t"
    r"*_]*(?:[:.\n]|\Z)|(?:user|human|q[ \t]*\d*)[*_]*:)"
)
_TURN = r"</s>|<\[?[|｜]|\[\||<(?:end|start)_of_\w+>|<eos>|\[/?INST\]|<extra_id_1>"
_END = r"(?:[)\]}*_`\"'”’$]|\s*(?:[.,;:!(<—–-]|\Z|\n|(?:because|since|as)\b))"
_REVISION = r"\b(?:wait|actually|sorry|correction|hold on|no(?=\W*[,.;:!—–-]))\b\W+(?:\w+\W+){0,4}?"


def answer_pattern(fields: Sequence[str], labels: Sequence[str]) -> str:
    r"""Write the expression for a problem format; it has a group for each letter.

    >>> pattern = answer_pattern(["premise", "hypothesis"], ["entailment", "neutral"])
    >>> said = "They agree.\n**ANSWER:** (A) Entailment\n\nPremise: It rains.\nANSWER: B"
    >>> re.search(pattern, said, re.IGNORECASE).groups()
    ('A', None)
    """
    letters = ascii_uppercase[: len(labels)]
    names = [re.escape(label) for label in labels]
    first = fields[0].replace("_", " ")
    stop = rf"(?:{_TURN}|[\r\n\u2028]\W*{re.escape(first)}\W*:|{_NEXT})"
    named = "|".join([rf"(?-i:[{letters.replace('A', '')}]|A(?![ \t]+[a-z]))", *names])
    words = rf"(?:(?!{_CUE})[^\n]){{0,99}}?"
    # Up to the last such line before the answer ends. It is no thinking, and not of a further
    # problem that follows a first line with a choice.
    before = (
        rf"\A(?:.*</{_TAG})?(?!(?:<[|｜][^>]{{1,40}}>\s*(?:assistant|model)?\s*){{0,9}}{words}"
        rf"(?<!\w)(?:{named})(?!\w){words}\s*{stop})(?:(?!<{_TAG}|{_CUE}(?:(?!{_CUE}).)*?{stop}).)*?{_CUE}"
        rf"(?=(?:(?!{stop}|{_CUE}).)*(?:{stop}|\Z)){_BETWEEN}"
    )
    choices = []
    for letter, name in zip(letters, names, strict=True):
        others = [rf"{a}(?![ \t]+[a-z])" if a in "AI" else a for a in letters if a != letter]
        other = rf"(?:{'|'.join([*others, *(each for each in names if each != name)])})(?![\w'’])"
        choices.append(
            rf"(?:{name}\W+)?({letter})(?![\w'’])(?={_END})"
            rf"(?![^\w\n]*(?:(?:or|and)\b\W+)?(?:option\s+)?{other})"
            rf"(?![^\n]*\s*[^\n]*{_REVISION}{other}[^\w\n]*(?:\n|\Z))"
        )
    return rf"(?is){before}(?:{'|'.join(choices)})"
