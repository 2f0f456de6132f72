import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_dataset.hub.benchmark import answer_pattern
from merge_metric.models import answer_words
from merge_metric.models.answer_words import (
    ALPHABET,
    NO_LABEL,
    AnswerReader,
    answer_reader,
    without_thinking,
)
from merge_metric.models.prompts import read_prompt

LABELS = ("entailment", "neutral", "contradiction")
PROMPT = read_prompt("none")
NLI = AnswerReader(LABELS, stop=PROMPT.stop)


def letter(text: str, *, is_cut: bool = False) -> str:
    code = NLI.read(text, is_cut=is_cut)
    return "" if code == NO_LABEL else "ABC"[code]


FORMS = tomllib.loads((Path(answer_words.__file__).parent / "answer_forms.toml").read_text())[
    "form"
]
READ = [(*example, form.get("is_cut", False)) for form in FORMS for example in form["examples"]]


@pytest.mark.parametrize(("text", "expected", "is_cut"), READ)
def test_forms_of_answers(text: str, expected: str, is_cut: bool) -> None:
    assert letter(text, is_cut=is_cut) == expected


def test_inspect_reads_answers_alike_or_not_at_all() -> None:
    """The form that `eval.yaml` asks for is read alike; nothing is read as another label."""
    pattern = re.compile(answer_pattern(PROMPT.template.fields, LABELS), re.IGNORECASE)
    asked, others = 0, 0
    for form in FORMS:
        for text, expected in () if form.get("is_cut") else form["examples"]:
            result = pattern.search(text)
            read = "".join(filter(None, result.groups())).upper() if result else ""
            assert read == expected or (form["name"] != "asked" and not read), text
            asked += form["name"] == "asked" and read != ""
            others += form["name"] != "asked" and read != ""
    assert asked > 20
    assert others > 40


@pytest.mark.parametrize(
    "text",
    ["\n#" * 9000, "no, " * 5000, "wait " * 4000, "<|im_end|>" * 2000, "\nPremise: x" * 2000,
     "Question:\n" * 2000, "A or B, " * 3000, "Answer: " * 3000, "<think>" * 3000],
)  # fmt: skip
def test_endless_answers_do_not_take_for_ever(text: str) -> None:
    assert letter(text) == ""
    assert not re.search(answer_pattern(PROMPT.template.fields, LABELS), text)


def test_other_labels_and_choices() -> None:
    readers = {
        "words": answer_reader(("incorrect", "correct"), ("No", "Yes")),
        "places": answer_reader(
            ("0", "1", "2", "3"), ("in the box", "on the table", "at home", "here")
        ),
        "pair": answer_reader(("entailment", "not_entailment")),
        "sentences": answer_reader(("0", "1"), ("He (Tom) left.", "She stayed.")),
    }
    for name, text, code in (
        ("words", "Yes", 1), ("words", "**No**", 0), ("words", "B", 1), ("words", "incorrect", 0),
        ("words", "It is correct.", 1), ("words", "The answer is: Yes.", 1), ("words", "C", -1),
        ("words", "Nope", -1), ("places", "D", 3), ("places", "On the table.", 1),
        ("places", "The answer is in the box", 0), ("places", "E", -1),
        ("places", "(C) at home", 2), ("places", "(C) here", -1), ("pair", "not_entailment", 1),
        ("pair", "Answer: not_entailment", 1), ("pair", "The label is not entailment.", 1),
        ("pair", "entailment", 0), ("sentences", "The answer is: He (Tom) left.", 0),
        ("sentences", "The answer is: B", 1),
    ):  # fmt: skip
        assert readers[name].read(text) == code, (name, text)
    assert answer_reader(("0", "1"), None) is answer_reader(("0", "1"), None)


@given(st.sampled_from("ABC"), st.sampled_from(["{}", "{}.", "({})", "**{}**", "Answer: {}"]))
def test_thinking_never_counts(said: str, form: str) -> None:
    for thought in "ABC":
        assert letter(f"<think>The answer is {thought}.</think>\n{form.format(said)}") == said


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert NLI.read(text) in (-1, 0, 1, 2)
    assert len(without_thinking(text)) <= len(text)
    assert len(ALPHABET) == 26
