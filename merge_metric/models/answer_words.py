"""Answers of language models: probabilities of letters, and which label a text names, by `FORMS`.

It is exported with tasks for other harnesses, so it imports nothing of ours.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Final, NamedTuple

ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Letters of choices, in the order of the labels."""

NO_LABEL: Final = -1
"""In place of a label's position: the answer names none. As in the metric, which has NumPy."""

FORMS_OF_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "entailment": ("entailed", "entails", "entail"),
    "neutral": ("neutrality",),
    "contradiction": ("contradicts", "contradictory", "contradicted", "contradict"),
}
"""Label of NLI → other forms of the word that name it."""


class Form(NamedTuple):
    """A form of answers, and how it is read."""

    name: str
    rule: str
    examples: tuple[tuple[str, str], ...]
    """Text, and the letter that is read, or "" for no label, of the choices of NLI."""


FORMS: Final = (
    Form(
        "thinking",
        "Left out: what stands between tags of thinking, before the last closing one, or after "
        "an opening one that is never closed; of channels all but the final one.",
        (
            ("<think>It may be A.</think>\nB", "B"),
            ("so not A.\n</think>\n\n**C**", "C"),
            ("<think>Perhaps B. Wait, the answer is A", ""),
            ("[THINK]C?[/THINK]A", "A"),
            ("<|channel|>analysis<|message|>A?<|end|><|start|>assistant<|channel|>final"
             "<|message|>B<|return|>", "B"),
            ("<|channel|>analysis<|message|>The answer is A", ""),
            ("analysisWe think it is A.assistantfinalC", "C"),
            ("analysisWe think the answer is A", ""),
        ),
    ),
    Form(
        "explicit",
        "The last JSON object, box or statement of an answer counts; one of two choices is none. "
        "What is denied, or would be the answer if something else were so, does not count. Of an "
        "answer that was cut off, only one in its first sentence or at its end counts.",
        (
            ('{"label": "neutral"}', "B"),
            ('```json\n{"reason": "No cat.", "answer": "C"}\n```', "C"),
            ("So \\boxed{B}.", "B"),
            ("$\\boxed{\\text{Contradiction}}$", "C"),
            ("The answer is (B).", "B"),
            ("A. Entailment\nB. Neutral\nC. Contradiction\nAnswer: B", "B"),
            ("At first the answer is A. But no: the final answer is C", "C"),
            ("<answer>neutral</answer>", "B"),
            ("The correct answer is therefore **A. Entailment**", "A"),
            ("Die Antwort ist B.", "B"),
            ("La réponse est C.", "C"),
            ("La respuesta correcta es: (A)", "A"),
            ("答案是B。", "B"),
            ("Label: contradiction", "C"),
            ('{"label": "neutral", "reason": "The conclusion: entailment fails."}', "B"),
            ("Answer: entailment or neutral", ""),
            ("Answer: B\n\nConclusion: contradiction is not established.", "B"),
            ("Answer: B\n\nThe answer would be entailment if the dog was a cat.", "B"),
        ),
    ),
    Form(
        "line",
        "Else the last line that begins with a choice or consists of it, or the last bold choice; "
        "a list of choices is none. Of an answer that was cut off, one in the first sentence.",
        (
            ("B", "B"),
            ("b", "B"),
            (" B.", "B"),
            ("(C)", "C"),
            ("Neutral.", "B"),
            ("B. Neutral", "B"),
            ("C) Contradiction, as nobody can do both.", "C"),
            ("A. The man is the same.", "A"),
            ("It does not follow, hence **neutral**, as he may be ill.", "B"),
            ("A. Entailment\nB. Neutral\nC. Contradiction", ""),
            ("A. Entailment\nB. Neutral", ""),
        ),
    ),
    Form(
        "sentence",
        "Else the last sentence that names choices, if it names one. Denied ones do not count. Of "
        "an answer that was cut off sentences do not count.",
        (
            ("The premise entails the hypothesis.", "A"),
            ("This is not an entailment but a contradiction.", "C"),
            ("It is neither entailment nor contradiction, so it is neutral.", "B"),
            ("I would choose option C here.", "C"),
            ("It might be entailment. On reflection it is neutral.", "B"),
            ("It is either entailment or neutral.", ""),
            ("It is not clear whether it entails.", ""),
            ("Entailment? No, neutral.", "B"),
            ("Option A is wrong.", ""),
        ),
    ),
    Form(
        "none",
        "Everything else names no label, and so does a letter beside the name of another choice.",
        (
            ("", ""),
            ("I'm sorry, but I can't help with that.", ""),
            ("A dog is an animal.", ""),
            ("The answer is B. Contradiction", ""),
            ("A. Entailment is not possible.", ""),
            ("Answer: A, B", ""),
            ("Widerspruch", ""),
        ),
    ),
)  # fmt: skip
"""How answers are read, in this order."""

_TAGS: Final = r"think(?:ing)?|thought|reasoning|reflection"
_OPENING: Final = re.compile(rf"<(?:{_TAGS})>|\[THINK\]|◁think▷", re.IGNORECASE)
_CLOSING: Final = re.compile(rf"</(?:{_TAGS})>|\[/THINK\]|◁/think▷", re.IGNORECASE)
_FINAL: Final = re.compile(
    r"<\|channel\|>\s*final\b[^<]*<\|message\|>|^analysis.*assistantfinal", re.DOTALL
)
_CHANNEL: Final = re.compile(r"<\|channel\|>|^analysis(?=[A-Z])")
_MARK: Final = re.compile(
    rf"{_OPENING.pattern}|{_CLOSING.pattern}|<\|(?:start|channel|message|end)\|>", re.IGNORECASE
)
_TOKEN: Final = re.compile(r"<\|[^|<>]{1,40}\|>|</s>|<eos>|<end_of_turn>")

_CUE: Final = (
    r"(?i:answers?|antwort|réponse|respuesta|risposta|resposta|antwoord|odpowiedź|ответ|答案|答え|"
    r"(?:label|prediction|conclusion|verdict|classification|relation(?:ship)?)"
    r"(?=[\s*_`\"']*(?:[:=\-–—]|\b(?:is|was|would|should|must|will)\b)))"
)
_BETWEEN: Final = (
    r"(?:[\s*_`\"'“”‘’«»$#:=>\-–—(\[{]|(?i:\\text|\b(?:is|was|be|would|should|must|will|therefore|"
    r"thus|hence|most|likely|clearly|correct|final|option|choice|letter|the|ist|lautet|est|es|"
    r"an?(?=[ \t]+[*_`\"'“(]*\w\w)|"
    r"è|é|correcta|correct[ao]?|richtige|jest|het|де|это)\b)|[是为為はは：])*"
)
_DENIED: Final = re.compile(
    r"(?i:\b(?:not|neither|nor|never|non?(?!,)|cannot|without|rather than|instead of)\b|n['’]t\b)"
    r"(?:\W+(?i:an?|the|necessarily|be|a case of|directly|strictly))*\W*$"
    r"|(?i:\b(?:whether|(?:clear|know|say|sure) if)\b)[^,;]*$"
)
"""Words before a choice that deny it."""
_KEPT: Final = 600
"""Characters of an answer that are kept."""
_BEFORE: Final = 200
_REFUTED: Final = re.compile(
    r"[ \t*_`\"'”’)\]]*\b(?:(?:is|was|seems|would be)(?:n['’]t|(?: clearly| therefore)? (?:not|too|"
    r"wrong|incorrect|false|impossible|unlikely|excluded|ruled out))|(?<!\) )(?:can(?:not|['’]t)|"
    r"does(?: not|n['’]t)|would (?:need|require)|nothing))\b"
    r"|[ \t*_`]*:[ \t*_`]*(?i:no|false)[ \t*_`]*(?:[.;\n]|$)"
)
"""Words behind a choice that deny it."""
_SENTENCES: Final = re.compile(r"((?<=[.!?。])\s+|\n+)")
_CONDITION: Final = re.compile(r"(?i:\b(?:if|unless|otherwise)\b|^\W*(?:had|were)\b)")
_WOULD: Final = re.compile(r"(?<!\bI )\bwould\b[^,;]*")
_ANSWERED_NO: Final = re.compile(r"(?:[^.!?。\n,;–—]|,(?= or\b))*(\?\s*(?=(?i:no|nein|non)\b))?")
"""Text up to the end of a clause, or of a question answered by no (the group): linear in time."""
_GAP: Final = r"[\s*_`\"“”().!]+"
_KEYS: Final = ("answer", "final_answer", "label", "choice", "prediction")


class _Claim(NamedTuple):
    """A place that names a label, or several, which is none."""

    end: int
    start: int
    label: int


class AnswerReader:
    """Reads which of some choices an answer names."""

    def __init__(self, labels: Sequence[str], choices: Sequence[str] | None = None) -> None:
        """Prepare for labels, and the names that the prompt has for them; by default the same."""
        self.letters = ALPHABET[: len(labels)]
        self._position: dict[str, int] = {}
        for position, (label, choice) in enumerate(zip(labels, choices or labels, strict=True)):
            for name in (label, choice, *FORMS_OF_LABELS.get(label, ())):
                self._position.setdefault(_plain(name), position)
        longest_first = sorted(self._position, key=len, reverse=True)
        names = "|".join(re.escape(name).replace(r"\ ", _GAP) for name in longest_first if name)
        # Not before 's or more of a word, in scripts that have spaces. "A" and "I" are words, too:
        # they need an end behind them.
        more = "[A-Za-z0-9_À-ɏ'’]"
        end = r"\s*(?:$|[.,;:!)\]}*_`\"”’<\-–—(]|(?i:because|since|as)\b)|[^\x00-\u024f]"
        letter = rf"[{self.letters}](?!{more})(?:(?<![AI])|(?={end}))"
        between = r"[ \t*_`)\].:,=\-–—(\"'“/]*"
        label = rf"(?i:{names})(?![A-Za-z0-9_]|['’][a-z])"
        other = rf"[ \t*_`\"'“(\[]*(?:(?i:option\s+)?{letter}|(?i:an?\s+)?{label})"
        closing = r"[ \t*_`\"'”’)\]]*"
        hedge = (
            rf"{closing}(?:\bor\b(?:{other})?|(?:/|\band\b){other}|[-–—][ \t]*{letter}|"
            rf"(?:,{other}{closing}){{1,26}}(?:$|[.!](?!\w)|\b(?:and|or)\b))"
        )
        choice = (
            rf"(?:(?P<letter>{letter})(?:{between}(?P<beside>{label}))?|(?P<label>{label}))"
            rf"(?P<hedge>{hedge})?"
        )
        flags = re.MULTILINE
        self._explicit = re.compile(
            rf"(?:{_CUE}{_BETWEEN}|\\boxed\{{\s*(?:\\\w+\{{)?\s*){choice}", flags
        )
        marks = r"[\s>#*_`\"'“‘(\[\-–—$]*"
        ends = r"(?=[\s*_`\"'”’)\].!:,;$]*$|[*_`)\]]*(?(letter)[.):,]|[.):])|\*\*)"
        self._line = re.compile(rf"(?:^{marks}|\*\*\s*){choice}{ends}", flags)
        self._beside = re.compile(rf"{between}(?P<beside>{label})")
        self._item = re.compile(
            rf"\W*(?:\d+[.)]\W*)?(?:(?P<letter>[{self.letters}])\s*[.):]|"
            rf"(?P<label>{label})[\s*_`\"'”’]*(?:$|[:=(|\-–—]))"
        )
        self._mention = re.compile(
            rf"(?<![\w])(?:(?:(?i:option|choice|letter)\s+|\()(?P<letter>[{self.letters}])"
            rf"(?![\w'’])(?:{between}(?P<beside>{label}))?|(?P<label>{label}))(?P<hedge>{hedge})?",
            flags,
        )

    def read(self, text: str, *, is_cut: bool = False) -> int:
        """Find the position of the label that an answer names; `NO_LABEL` for none."""
        said = without_thinking(text)
        if len(said) == 1 and said.upper() in self.letters:
            return self.letters.index(said.upper())
        if (whole := self._position.get(_plain(said))) is not None:
            return whole
        said = self._without_list(said)
        stated = _without_conditions(said)
        opening = len(_SENTENCES.split(said)[0]) if is_cut else len(said)
        explicit = [
            claim
            for claim in (*self._claims(self._explicit, stated), *self._objects(said))
            if claim.start < opening or not re.search(r"\w", said[claim.end :])
        ]
        if explicit:
            return max(explicit).label
        lines = [each for each in self._claims(self._line, stated) if each.start < opening]
        if lines:
            return lines[-1].label
        return NO_LABEL if is_cut else self._in_sentences(stated)

    def _claims(self, pattern: re.Pattern[str], text: str) -> Iterator[_Claim]:
        """Find what a pattern finds and the words behind it do not deny."""
        for found in pattern.finditer(text):
            # What ends a line may stand between a letter and its name: "A. Entailment is …".
            beside = (
                found["letter"] and not found["beside"] and self._beside.match(text, found.end())
            )
            end = beside.end() if beside else found.end()
            if not _REFUTED.match(text, end):
                names = (found["label"], found["beside"], beside and beside["beside"])
                named = {self._position[_plain(name)] for name in names if name}
                named |= {self.letters.index(found["letter"])} if found["letter"] else set()
                is_one = len(named) == 1 and not found["hedge"]
                yield _Claim(found.end(), found.start(), named.pop() if is_one else NO_LABEL)

    def _objects(self, text: str) -> Iterator[_Claim]:
        for found in re.finditer(r"\{[^{}]*\}", text):
            try:
                value = json.loads(found[0])
            except (ValueError, RecursionError):
                continue
            values = {str(key).casefold(): each for key, each in value.items()}
            given = next((values[key] for key in _KEYS if key in values), None)
            if given is None and len(values) == 1:
                (given,) = values.values()
            if isinstance(given, str):
                label = self.read(given) if not given.startswith("{") else NO_LABEL
                yield _Claim(found.end(), found.start(), label)

    def _without_list(self, text: str) -> str:
        """Drop lines that repeat the choices one after the other, all or the first ones."""
        lines = text.split("\n")
        rows = [row for row, line in enumerate(lines) if line.strip()]
        named = [self._listed(lines[row]) for row in rows]
        for start in range(len(rows)):
            listed = [*takewhile(lambda pair: pair[0] == pair[1], enumerate(named[start:]))]
            for row in rows[start : start + len(listed)] if len(listed) > 1 else ():
                lines[row] = ""
        return "\n".join(lines).strip("\n")

    def _listed(self, line: str) -> int:
        found = self._item.match(line)
        if not found:
            return NO_LABEL
        if found["letter"]:
            return self.letters.index(found["letter"])
        return self._position[_plain(found["label"])]

    def _in_sentences(self, text: str) -> int:
        """Find the one choice of the last sentence that names some."""
        for sentence in reversed(_SENTENCES.split(text)):
            named = {
                each.label
                for each in self._claims(self._mention, sentence)
                if not _DENIED.search(sentence[max(0, each.start - _BEFORE) : each.start])
            }
            if named:
                return named.pop() if len(named) == 1 else NO_LABEL
        return NO_LABEL


@lru_cache(maxsize=256)
def answer_reader(labels: tuple[str, ...], choices: tuple[str, ...] | None = None) -> AnswerReader:
    """Make a reader, or take the one made before."""
    return AnswerReader(labels, choices)


def without_thinking(text: str) -> str:
    """Leave out what a model thinks before its answer, and special tokens.

    >>> without_thinking("<think>Hm.</think> B"), without_thinking("<think>Hm.")
    ('B', '')
    """
    if final := [*_FINAL.finditer(text)]:
        text = text[final[-1].end() :]
    elif _CHANNEL.search(text):
        return ""
    if closing := [*_CLOSING.finditer(text)]:
        text = text[closing[-1].end() :]
    if opening := _OPENING.search(text):
        text = text[: opening.start()]
    return _TOKEN.sub("", text).strip()


def kept_words(text: str, among: int = 1) -> str:
    """Keep the beginning and end of a final answer; `among` answers share the room."""
    said = without_thinking(text) or text.strip()
    most = max(80, _KEPT // among)
    if len(said) > most:
        said = f"{said[: most // 2]} … {said[-most // 2 :]}"
    return said.encode("utf-8", "replace").decode()


def is_mark(token: str) -> bool:
    """Tell whether a special token begins or ends the thinking, or a channel.

    >>> is_mark("[THINK]"), is_mark("<|channel|>"), is_mark("<|im_end|>")
    (True, True, False)
    """
    return bool(_MARK.fullmatch(token))


def thinking_begun(prompt: str) -> str:
    r"""Find the tag with which a prompt begins the thinking itself; empty for none.

    >>> thinking_begun("<|assistant|><think>\n"), thinking_begun("<think></think>")
    ('<think>', '')
    """
    last = [*_OPENING.finditer(prompt)][-1:]
    return "".join(tag[0] for tag in last if not prompt[tag.end() :].strip())


def _without_conditions(text: str) -> str:
    """Blank, at the same length, what would be so if something else were, and denied questions."""
    asked = _ANSWERED_NO.sub(lambda found: " " * len(found[0]) if found[1] else found[0], text)
    parts = _SENTENCES.split(asked)
    return "".join(
        _WOULD.sub(lambda found: " " * len(found[0]), part) if _CONDITION.search(part) else part
        for part in parts
    )


def _plain(name: str) -> str:
    return " ".join(re.sub(_GAP, " ", name).casefold().split())


_SPACES: Final = " ▁Ġ"
"""Also in the forms in which tokenizers and servers show it."""


def letter_probabilities(tokens: Mapping[str, float], letters: Sequence[str]) -> list[float]:
    """Sum up the letters' probabilities, with and without a space before them.

    `tokens` are log-probabilities in nats.

    >>> tokens = {" A": math.log(0.5), "A": math.log(0.25), "▁C": math.log(0.25)}
    >>> letter_probabilities(tokens, "ABC")
    [0.75, 0.0, 0.25]
    """
    found = [0.0] * len(letters)
    for token, log_prob in tokens.items():
        if (letter := token.lstrip(_SPACES)) in set(letters):
            found[letters.index(letter)] += math.exp(log_prob)
    return found
