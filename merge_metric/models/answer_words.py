"""Answers of language models: probabilities of letters, and which label a text names.

How answers are read, with examples, is in `answer_forms.toml` beside this file. Both are exported
with tasks for other harnesses, so this module imports nothing of ours.
"""

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

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


_TAGS: Final = r"think(?:ing)?|thought|reasoning|reflection"
_OPENING: Final = re.compile(rf"<(?:{_TAGS})>|\[THINK\]|◁think▷", re.IGNORECASE)
_CLOSING: Final = re.compile(rf"</(?:{_TAGS})>|\[/THINK\]|◁/think▷", re.IGNORECASE)
_FINAL: Final = re.compile(
    r"<\|channel\|>\s*final\b[^<]*<\|message\|>|^analysis.*assistantfinal", re.DOTALL
)
_CHANNEL: Final = re.compile(r"<\|channel\|>|^analysis(?=[A-Z])")
_BAR: Final = r"[|｜]"
_TURN: Final = re.compile(
    r"<\|(?:start_header_id|header_start|start_of_role)\|>\s*\w*\s*"
    r"<\|(?:end_header_id|header_end|end_of_role)\|>|<\|im_start\|>\s*\w*\s*(?:\n|<\|im_sep\|>)|"
    rf"<start_of_turn>\w*\s*\n|<{_BAR}(?:eo[tmsd](?:_id)?|im_(?:start|end|sep)|end|return|user|"
    r"assistant|system|observation|endofturn|end_?of_?text|(?:start|end)_of_turn(?:_token)?|"
    r"(?:start_header|end_header)_id|header_(?:start|end)|(?:start|end)_of_role|role_end|"
    rf"(?:user|chatbot|system)_token|end▁of▁sentence|endofprompt){_BAR}>|</?s>|<[eb]os>|"
    r"<(?:start|end)_of_(?:turn|utterance)>|\[/?INST\]|\[\|endofturn\|\]|<extra_id_1>",
    re.IGNORECASE,
)
"""Special tokens that begin or end a turn, with the name of a role, in the usual chat templates."""
_TOKEN: Final = re.compile(rf"{_TURN.pattern}|<{_BAR}[^|｜<>]{{1,40}}{_BAR}>", re.IGNORECASE)
MARK: Final = re.compile(
    rf"{_OPENING.pattern}|{_CLOSING.pattern}|<\|(?:start|channel|message)\|>|{_TURN.pattern}",
    re.IGNORECASE,
)
"""Special tokens that begin or end the thinking, a channel or a turn."""
_NEXT: Final = (
    r"(?:(?:next|new|another)[ \t]+)?(?:question|example|problem|exercise|task|instruction|input)"
    r"\b[ \t]*(?:#?\d+)?[*_ \t]*(?:[:.)]|[\r\n]|$)|(?:user|human|q[ \t]*\d*)[*_ \t]*:"
)
"""Beginnings of lines by which a model goes on to a problem of its own."""
_NEWLINE: Final = r"[\r\n\v\f\x85\u2028\u2029]"
_UNSEEN: Final = dict.fromkeys((0xAD, *range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF))
"""Characters without width."""

_CUE: Final = (
    r"(?i:answers?|antwort|réponse|respuesta|risposta|resposta|antwoord|odpowiedź|ответ|答案|答え|"
    r"(?:label|prediction|conclusion|verdict|classification|relation(?:ship)?|choice|option|final|"
    r"selection|decision|result|response|output|assistant)"
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
_REVISION: Final = (
    r"\b(?i:wait|actually|correction|scratch that|on second thoughts?|hold on|oops|sorry|or rather|"
    r"i mean|(?:no|nope)(?=[ \t]*[,.;:!–—-]))\b(?:[\s,.;:!*_–—-]|\b(?i:wait|actually|no|it['’]s|"
    r"it is|that['’]s|it should be|should be|must be|i mean|make (?:it|that)|i choose|rather|sorry|"
    r"better|but|so|the|answer|is|correction|maybe|perhaps|probably)\b){0,12}"
)
"""Words by which a model takes another choice than before; only a choice may follow them."""
_RIGHT: Final = r"is (?:the )?(?:most )?(?:correct|right|true|best)"
_SENTENCES: Final = re.compile(r"((?<=[.!?。])\s+|\n+)")
_CONDITION: Final = re.compile(r"(?i:\b(?:if|unless|otherwise)\b|^\W*(?:had|were)\b)")
_WOULD: Final = re.compile(r"(?<!\bI )\bwould\b[^,;]*")
_ANSWERED_NO: Final = re.compile(r"(?:[^.!?。\n,;–—]|,(?= or\b))*(\?\s*(?=(?i:no|nein|non)\b))?")
"""Text up to the end of a clause, or of a question answered by no (the group): linear in time."""
_GAP: Final = r"[\s*_`\"“”().!]+"
_MORE: Final = "[A-Za-z0-9_À-ɏ'’]"
_BESIDE: Final = r"[ \t*_`)\].:,=\-–—(\"'“/]*"
_CLOSING_MARKS: Final = r"[ \t*_`\"'”’)\]]*"
_OPENING_MARKS: Final = r"[ \t>#*_`\"'“‘(\[\-–—$]*"
_SO: Final = (
    r"\b(?i:so|thus|hence|therefore|it['’]s|it is|(?:I|we)(?:['’](?:d|ll)| would| "
    r"will)? (?:choose|pick|select|go (?:with|for)|vote for|say))"
)
_CHOSEN_END: Final = (
    r"(?=[*_`\"'”’)\]]*(?:[.!;:]|\s*$|,\s+(?i:not|but|as|since|because)\b|"
    r"\s+(?i:because|since|as)\b))"
)
_LINE_END: Final = (
    r"(?=[\s*_`\"'”’)\].!:,;$]*$|[*_`)\]]*(?(letter)(?:[.):,]|\s+(?:[-–—]\s|"
    r"(?i:because|since)\b))|[.):])|\*\*)"
)
_KEYS: Final = ("answer", "final_answer", "label", "choice", "prediction")

_PARTS: Final = {
    # Small letters need it behind them; "A" and "I" too, which are words.
    "END": rf"\s*(?:$|[.,;:!)\]}}*_`\"”’<\-–—(]|(?i:because|since|as|{_RIGHT})\b|"
    r"(?i:and|or)\s+[*_`\"'“(]*[ABC]\b)|[^\x00-\u024f]",
    # Not before 's or more of a word, in scripts that have spaces.
    "UPPER": rf"[ABC](?!{_MORE})(?:(?<![AI])|(?=END))",
    "LETTER": r"(?:UPPER|[abc](?=\s*(?:$|[.,;:!)\]}*_`\"”’<])))",
    "LABEL": r"(?i:NAMES)(?![A-Za-z0-9_]|['’][a-z])",  # as a whole word
    "BESIDE": rf"{_BESIDE}(?P<beside>LABEL)",  # the name behind a letter
    "OTHER": r"[ \t*_`\"'“(\[]*(?:(?i:option\s+)?LETTER|(?i:an?\s+)?LABEL)",  # another choice
    # Behind a choice: "or B", "/ B", "- B", ", B, C and".
    "HEDGE": rf"{_CLOSING_MARKS}(?:\bor\b(?:OTHER)?|(?:/|\band\b)OTHER|[-–—][ \t]*LETTER|"
    rf"(?:,OTHER{_CLOSING_MARKS}){{1,26}}(?:$|[.!](?!\w)|\b(?:and|or)\b))",
    "CHOICE": r"(?:(?P<letter>LETTER)(?:BESIDE)?|(?P<label>LABEL))(?P<hedge>HEDGE)?",
    "CAPITAL": r"(?:(?P<letter>UPPER)(?:BESIDE)?|(?P<label>LABEL))(?P<hedge>HEDGE)?",
}
"""Meaning of capitalised words in rules, and in the parts further down.

CHOICE is a letter or a label's name; CAPITAL the same, but no small letter. A reader puts its own
values in place of ABC and abc (its letters), NAMES and STOP.
"""

_STATED: Final = (
    # "Answer: B", \boxed{B}
    rf"(?:{_CUE}{_BETWEEN}|\\boxed\{{\s*(?:\\\w+\{{)?\s*)CHOICE",
    # "So I choose B."
    rf"{_SO}[\s,:*_`\"'“(]+(?=[ABC]\b)CAPITAL{_CHOSEN_END}",
    # "B is correct"
    rf"(?:^{_OPENING_MARKS}|[.!?:;]\s+|"
    r"\b(?i:so|only|thus|hence|therefore|option|choice|that|think)\s+)"
    rf"[*_`\"'“(]*CAPITAL[*_`\"'”’)]*\s+(?i:{_RIGHT})\b"
    r"(?!\s+(?:only\s+)?(?i:if|when|unless)\b)",
)
"""Rules by which a choice is stated; of all places that one finds, the last counts."""
_ONLY: Final = rf"^{_OPENING_MARKS}CHOICE[ \t*_`\"'”’)\].!:,;$]*$"
"""Rule for lines with a choice only, if none is stated."""
_LINE: Final = rf"(?:^{_OPENING_MARKS}|\*\*\s*)CAPITAL{_LINE_END}"
"""Rule for lines that begin with a choice."""
_REVISED: Final = rf"{_REVISION}[*_`\"'“(]*CAPITAL{_CLOSING_MARKS}(?:[.!;]|$)"
_ITEM: Final = (
    r"\W*(?:\d+[.)]\W*)?(?:(?P<letter>[ABC]|[abc](?=\s*[.):]\s*LABEL))\s*(?:[.):]|[-–—]\s)|"
    r"(?P<label>LABEL)[\s*_`\"'”’]*(?:$|[:=(|\-–—]))"
)
"""Rule for what begins a line of a list of choices."""
_MENTION: Final = (
    r"(?<![\w])(?:(?:(?i:option|choice|letter)\s+|\()(?P<letter>[ABC])(?![\w'’])(?:BESIDE)?|"
    r"(?P<label>LABEL))(?P<hedge>HEDGE)?"
)
"""Rule for choices in sentences, if nothing else names one."""
_FOLLOWING: Final = rf"{_NEWLINE}[ \t>#*_=-]*(?i:(?P<stop>STOP)|{_NEXT})"
"""Rule for where the answer ends, as another problem begins."""


class _Claim(NamedTuple):
    """A place that names a label, or several, which is none."""

    end: int
    start: int
    label: int


class AnswerReader:
    """Reads which of some choices an answer names."""

    def __init__(
        self, labels: Sequence[str], choices: Sequence[str] | None = None, stop: str = ""
    ) -> None:
        """Prepare for labels, their names in the prompt (by default the same), and its stop."""
        self.letters = ALPHABET[: len(labels)]
        self._position: dict[str, int] = {}
        for position, (label, choice) in enumerate(zip(labels, choices or labels, strict=True)):
            for name in (label, choice, *FORMS_OF_LABELS.get(label, ())):
                self._position.setdefault(_plain(name), position)
        longest_first = sorted(self._position, key=len, reverse=True)
        names = "|".join(re.escape(name).replace(r"\ ", _GAP) for name in longest_first if name)
        given = {"ABC": self.letters, "abc": self.letters.lower(), "NAMES": names}
        given["STOP"] = re.escape(stop.strip()) or "(?!)"

        def compiled(rule: str) -> re.Pattern[str]:
            for name, part in reversed(_PARTS.items()):
                rule = rule.replace(name, part)
            return re.compile(re.sub("|".join(given), lambda it: given[it[0]], rule), re.MULTILINE)

        self._stated = [(compiled(rule), "CAPITAL" in rule) for rule in _STATED]
        self._only, self._line, self._revised = map(compiled, (_ONLY, _LINE, _REVISED))
        self._beside, self._item, self._mention = map(compiled, ("BESIDE", _ITEM, _MENTION))
        # At a stop that is only ends of lines, an empty line ends the answer.
        empty = rf"|(?:\r\n|{_NEWLINE}){{2}}" if stop and not stop.strip() else ""
        self._following = compiled(_FOLLOWING + empty)

    def read(self, text: str, *, is_cut: bool = False) -> int:
        """Find the position of the label that an answer names; `NO_LABEL` for none."""
        answer, is_ended = self.ended(text)
        return self._label_of(answer, is_cut=is_cut and not is_ended)[0]

    def ended(self, text: str) -> tuple[str, bool]:
        """Cut a text, without the thinking, where its answer ends; tell whether it did.

        Turn marks and end tokens end it; so does another problem that follows what names a label.
        """
        start = 0
        for mark in _TURN.finditer(text):
            has_words = re.search(r"\w", text[start : mark.start()])
            start = mark.end()
            if has_words and re.search(r"\w", answer := without_thinking(text[: mark.start()])):
                return self._before_next(answer)[0], True
        return self._before_next(without_thinking(text))

    def kept(self, text: str, among: int = 1) -> str:
        """Keep the beginning and end of an answer; `among` answers share the room."""
        answer = self.ended(text)[0] or text.strip()
        most = max(80, _KEPT // among)
        if len(answer) > most:
            answer = f"{answer[: most // 2]} … {answer[-most // 2 :]}"
        return answer.encode("utf-8", "replace").decode()

    def _before_next(self, answer: str) -> tuple[str, bool]:
        start = 0
        for following in self._following.finditer(answer):
            label, is_stated = self._label_of(answer[start : following.start()])
            start = following.start()
            # A sentence that names a label may also stand before a heading of the reasoning.
            if is_stated or (following["stop"] and label != NO_LABEL):
                return answer[:start].rstrip(), True
        return answer, False

    def _label_of(self, text: str, *, is_cut: bool = False) -> tuple[int, bool]:
        """Find the label that an answer names; tell whether it stands by itself, in no sentence."""
        answer = _normal(text)
        if (whole := self._position.get(_plain(answer))) is not None:
            return whole, True
        answer = self._without_list(answer)
        stated = _without_conditions(answer)
        opening = len(_SENTENCES.split(answer)[0]) if is_cut else len(answer)
        revised = [match.span() for match in self._revised.finditer(stated)]
        claims = [*self._objects(answer)]
        for pattern, is_bare in self._stated:
            for claim in self._claims(pattern, stated):
                if not (is_bare and any(start <= claim.start < end for start, end in revised)):
                    claims.append(claim)
        at_end = [c for c in claims if c.start < opening or not re.search(r"\w", answer[c.end :])]
        if at_end:
            return self._unless_revised(max(at_end), stated), True
        only, lines = (
            [claim for claim in self._claims(pattern, stated) if claim.start < opening]
            for pattern in (self._only, self._line)
        )
        if only:
            is_first = not re.search(r"\w", answer[: only[0].start])
            is_beside = not re.search(r"\w", answer[only[-2:][0].end : only[-1].start])
            if len({claim.label for claim in only}) > 1 and (is_first or is_beside):
                return NO_LABEL, True
        if only or lines:
            return self._unless_revised((only or lines)[-1], stated), True
        return NO_LABEL if is_cut else self._in_sentences(stated), False

    def _unless_revised(self, claim: _Claim, text: str) -> int:
        """Return the label of the last claim, or none if words behind it take another."""
        later = {after.label for after in self._claims(self._revised, text[claim.end :])}
        return claim.label if later <= {claim.label} else NO_LABEL

    def _claims(self, pattern: re.Pattern[str], text: str) -> Iterator[_Claim]:
        """Find what a pattern finds and the words behind it do not deny."""
        for match in pattern.finditer(text):
            # What ends a line may stand between a letter and its name: "A. Entailment is …".
            beside = (
                match["letter"] and not match["beside"] and self._beside.match(text, match.end())
            )
            end = beside.end() if beside else match.end()
            if not _REFUTED.match(text, end):
                names = (match["label"], match["beside"], beside and beside["beside"])
                named = {self._position[_plain(name)] for name in names if name}
                named |= {self.letters.index(match["letter"].upper())} if match["letter"] else set()
                is_one = len(named) == 1 and not match["hedge"]
                yield _Claim(match.end(), match.start(), named.pop() if is_one else NO_LABEL)

    def _objects(self, text: str) -> Iterator[_Claim]:
        for match in re.finditer(r"\{[^{}]*\}", text):
            values = dict[str, Any]()
            with suppress(ValueError, RecursionError):
                values = {key.casefold(): item for key, item in json.loads(match[0]).items()}
            given = next((values[key] for key in _KEYS if key in values), None)
            if given is None and len(values) == 1:
                (given,) = values.values()
            if isinstance(given, str):
                label = self.read(given) if not given.startswith("{") else NO_LABEL
                yield _Claim(match.end(), match.start(), label)

    def _without_list(self, text: str) -> str:
        """Blank lines, one after the other, that begin with different choices."""
        lines, named = text.split("\n"), list[int]()
        rows = [row for row, line in enumerate(lines) if line.strip()]
        for row in rows:
            letter = (item := self._item.match(lines[row])) and item["letter"]
            label = self._position[_plain(item["label"])] if item and not letter else NO_LABEL
            named.append(self.letters.index(letter.upper()) if letter else label)
        start = 0
        while start < len(rows):
            stop = start
            while stop < len(rows) and named[stop] not in (NO_LABEL, *named[start:stop]):
                stop += 1
            items = rows[start:stop]
            only = [bool(self._only.match(lines[row])) for row in items]
            # A choice, and then reasons for and against others.
            if only[:1] == [True] and not any(only[1:]):
                items = items[1:]
            for row in items if len(items) > 1 else ():
                lines[row] = ""
            start = max(stop, start + 1)
        return "\n".join(lines).strip("\n")

    def _in_sentences(self, text: str) -> int:
        for sentence in reversed(_SENTENCES.split(text)):
            named = {
                claim.label
                for claim in self._claims(self._mention, sentence)
                if not _DENIED.search(sentence[max(0, claim.start - _BEFORE) : claim.start])
            }
            if named:
                return named.pop() if len(named) == 1 else NO_LABEL
        return NO_LABEL


answer_reader: Final = lru_cache(maxsize=256)(AnswerReader)
"""Function that makes a reader, or takes the one made before."""


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


def thinking_begun(prompt: str) -> str:
    r"""Find the tag with which a prompt begins the thinking itself; empty for none.

    >>> thinking_begun("<|assistant|><think>\n"), thinking_begun("<think></think>")
    ('<think>', '')
    """
    last = [*_OPENING.finditer(prompt)][-1:]
    return "".join(tag[0] for tag in last if not prompt[tag.end() :].strip())


def _without_conditions(text: str) -> str:
    """Blank, at the same length, what would be so if something else were, and denied questions."""
    asked = _ANSWERED_NO.sub(lambda part: " " * len(part[0]) if part[1] else part[0], text)
    parts = _SENTENCES.split(asked)
    return "".join(
        _WOULD.sub(lambda would: " " * len(would[0]), part) if _CONDITION.search(part) else part
        for part in parts
    )


def _normal(text: str) -> str:
    """Write letters, spaces and ends of lines in one way each, and drop what has no width."""
    text = unicodedata.normalize("NFKC", re.sub(rf"\r\n|{_NEWLINE}", "\n", text))
    return text.translate(_UNSEEN).strip()


def _plain(name: str) -> str:
    return " ".join(re.sub(_GAP, " ", _normal(name)).casefold().split())


_SPACES: Final = " ▁Ġ"
"""Also in the forms in which tokenizers and servers show it."""


def letter_probabilities(tokens: Mapping[str, float], letters: Sequence[str]) -> list[float]:
    """Sum up the letters' probabilities, with and without a space before them.

    `tokens` are log-probabilities in nats.

    >>> tokens = {" A": math.log(0.5), "A": math.log(0.25), "▁C": math.log(0.25)}
    >>> letter_probabilities(tokens, "ABC")
    [0.75, 0.0, 0.25]
    """
    sums = [0.0] * len(letters)
    for token, log_prob in tokens.items():
        if (letter := token.lstrip(_SPACES)) in set(letters):
            sums[letters.index(letter)] += math.exp(log_prob)
    return sums
