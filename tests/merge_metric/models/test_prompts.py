"""The prompt is the paper's, and its examples are as documented."""

import json
import logging
import re
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import merge_metric.models
from merge_dataset.hub.benchmark import answer_pattern
from merge_dataset.schema import NLI, ProblemFormat
from merge_metric.models import answer_words
from merge_metric.models.answer_words import (
    ALPHABET,
    NO_LABEL,
    AnswerReader,
    answer_reader,
    without_thinking,
)
from merge_metric.models.language_model import Words
from merge_metric.models.prompts import read_prompt
from merge_metric.models.templates import Prompt

SHOTS = Path(merge_metric.models.__file__).parent / "shots"
TABLE_6 = """\
{% for x in few_shot -%}
Premise: {{ x["premise"] }}
Hypothesis: {{ x["hypothesis"] }}
A. Entailment
B. Neutral
C. Contradiction
Answer: {{ x["answer"] }}

{% endfor -%}
Premise: {{ premise }}
Hypothesis: {{ hypothesis }}
A. Entailment
B. Neutral
C. Contradiction
Answer: {{ choice_text }}"""
"""The template as printed in the paper."""


def table_6(prompt: Prompt, premise: str, hypothesis: str, answer: str) -> str:
    """Render the paper's template with Jinja."""
    jinja2 = pytest.importorskip("jinja2")
    shots = [
        {"premise": e.texts[0], "hypothesis": e.texts[1], "answer": "ABC"[e.label]}
        for e in prompt.examples
    ]
    template = jinja2.Environment(autoescape=False).from_string(TABLE_6)
    texts = {"premise": premise, "hypothesis": hypothesis, "choice_text": answer}
    return template.render(few_shot=shots, **texts)


@pytest.mark.parametrize("shots", ["snli", "mnli", "mixed", "none"])
def test_prompts_are_the_papers_to_the_letter(shots: str) -> None:
    """Prompt, space and answer equal the rendered Table 6, with all line breaks."""
    prompt = read_prompt(shots)
    premise, hypothesis = "A {dog}  runs.", 'He said "no"\\n.'
    expected = table_6(prompt, premise, hypothesis, "B")
    assert prompt.text(premise, hypothesis) + " B" == expected
    assert expected.count("Premise: ") == len(prompt.examples) + 1


def test_a_chat_asks_the_same() -> None:
    prompt = read_prompt("mix")
    messages = prompt.messages("P", "H")
    assert [m["role"] for m in messages] == ["user", "assistant"] * 6 + ["user"]
    assert "".join(m["content"] for m in messages[1::2]) == "ABCABC"
    joined = "".join(
        m["content"] if m["role"] == "user" else f" {m['content']}\n\n" for m in messages
    )
    assert joined == prompt.text("P", "H")


@pytest.mark.parametrize(
    ("shots", "order"), [("snli", "ABCCBA"), ("mnli", "ABCABC"), ("mixed", "ABCABC")]
)
def test_bundled_examples_are_those_of_table_8(shots: str, order: str) -> None:
    """There are six examples, two per label, in the paper's order."""
    examples = read_prompt(shots).examples
    assert "".join("ABC"[e.label] for e in examples) == order
    assert {e.label: n for e, n in Counter(examples).items()} == {0: 1, 1: 1, 2: 1}
    assert set(Counter(e.label for e in examples).values()) == {2}
    snli, mnli, mixed = (set(read_prompt(s).examples) for s in ("snli", "mnli", "mixed"))
    assert len(mixed & snli) == 3
    assert not mixed & mnli
    assert read_prompt("mix") == read_prompt("mixed")


@pytest.mark.real
def test_snli_examples_are_snlis(shared_data: Path) -> None:
    lines = (shared_data / "snli_dev.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {row["pairID"]: row for row in map(json.loads, lines)}
    with_id = 0
    for name in ("snli", "mixed"):
        for shot in tomllib.loads((SHOTS / f"{name}.toml").read_text(encoding="utf-8"))["example"]:
            if "id" in shot:
                row, with_id = rows[shot["id"]], with_id + 1
                assert (shot["premise"], shot["hypothesis"]) == (row["sentence1"], row["sentence2"])
                assert shot["label"] == row["gold_label"]
    assert with_id == 9


def test_descriptions_tell_prompts_apart() -> None:
    prompts = [
        read_prompt("snli"), read_prompt("mnli"), read_prompt("snli", start="<s>"),
        replace(read_prompt("snli"), examples=read_prompt("snli").examples[::-1]),
    ]  # fmt: skip
    assert len({prompt.describe()["prompt_sha256"] for prompt in prompts}) == 4
    assert prompts[0].describe() == read_prompt("snli").describe()
    assert (prompts[0].describe()["shots"], prompts[0].describe()["n_shots"]) == ("snli", 6)
    # Answers in words are read by the choices' names, even if these are not shown.
    shown = read_prompt("none")
    hidden = replace(shown.template, question="{premise} {hypothesis} True, false or unclear?")
    other = [
        replace(shown, template=replace(hidden, choices=choices))
        for choices in (("True", "Unclear", "False"), ("False", "Unclear", "True"))
    ]
    assert len({prompt.describe()["prompt_sha256"] for prompt in other}) == 2


OWN = [
    {"premise": "Es regnet.", "hypothesis": "Es ist \u2028 naß.", "label": "entailment"},
    {"premise": "b", "hypothesis": "c", "label": 1, "id": 7},
    {"premise": "d", "hypothesis": "e", "label": "contradiction"},
]


def test_own_examples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """TOML and JSON lines are equivalent; labels are names or positions; other keys are ignored."""
    lines = tmp_path / "own.jsonl"
    lines.write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in OWN) + "\n\n", "utf-8")
    tables = tmp_path / "own.toml"
    cells = ("".join(f"{k} = {json.dumps(v)}\n" for k, v in row.items()) for row in OWN)
    tables.write_text("".join(f"[[example]]\n{row}" for row in cells), "utf-8")
    prompt = read_prompt(str(lines))
    assert prompt == read_prompt(str(tables))
    assert prompt.name == "own"
    assert [e.label for e in prompt.examples] == [0, 1, 2]
    assert prompt.examples[0].texts[1] == "Es ist \u2028 naß."
    assert not caplog.records
    # Two of one label, one of another and none of the third cause a warning.
    lines.write_text("\n".join(json.dumps({**OWN[0], "label": n}) for n in (0, 1, 1)), "utf-8")
    with caplog.at_level(logging.WARNING):
        read_prompt(str(lines))
    assert "got 1 entailment, 2 neutral, 0 contradiction" in caplog.text


READING = ProblemFormat(("context", "question", "answer"), ("incorrect", "correct"))
PROMPT = """\
question = \"\"\"
Passage: {context}
{question} {answer}?
{choices}
Answer:\"\"\"

[choices]
incorrect = "No"
correct = "Yes, {answer}"

[[example]]
context = "A dog sleeps."
question = "Who sleeps?"
answer = "A dog"
label = "correct"
"""


def test_a_prompt_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(PROMPT, encoding="utf-8")
    prompt = read_prompt(str(path), problem_format=READING)
    assert prompt.text("A {cat} runs.", "Who?", "A cat") == (
        "Passage: A dog sleeps.\nWho sleeps? A dog?\nA. No\nB. Yes, A dog\nAnswer: B\n\n"
        "Passage: A {cat} runs.\nWho? A cat?\nA. No\nB. Yes, A cat\nAnswer:"
    )
    message = [("Yes, a cat.", False)]
    assert Words().read(prompt, ("A {cat} runs.", "Who?", "A cat"), message)[1:3] == (1, 0)
    assert prompt.stop == "\n\nPassage:"
    usual = read_prompt("none", problem_format=READING).text("C.", "Q?", "A")
    assert usual == "Context: C.\nQuestion: Q?\nAnswer: A\nA. Incorrect\nB. Correct\nAnswer:"
    with pytest.raises(ValueError, match=r"shots: expected none, seeds, or a .toml or .jsonl file"):
        read_prompt("mix", problem_format=READING)  # NLI's examples are for NLI only


NLI_FILES = [
    ("a.jsonl", '{"premise": "p"}', "line 1: expected texts premise, hypothesis and label"),
    ("a.jsonl", "{", r"expected TOML .*, or JSON lines in .jsonl: .*line 1"),
    ("a.toml", "x = ", r"expected TOML with tables \[\[example\]\], or JSON lines"),
    ("a.toml", "question = 3", r"question: expected places .* got none for \{premise\}"),
    ("a.toml", "example = 3", r"expected TOML with tables \[\[example\]\]"),
    ("a.toml", '[[example]]\npremise = "p"\nhypothesis = " "\nlabel = 0',
     "example 1: expected texts"),
    ("a.jsonl", '{"premise": "p", "hypothesis": "h", "label": 3}',
     "line 1: expected .* label, one of entailment, neutral, contradiction or its posi"),
]  # fmt: skip
READING_FILES = [
    ("a.toml", PROMPT.replace(*change), message)
    for *change, message in (
        ("{context}", "x", r"question: expected places for .* got none for \{context\}"),
        ("{choices}", "{choice}", r"question: expected places for .* got \{choice\}"),
        ('correct = "Yes, {answer}"', "", "choices: expected a text for each of incorrect, co"),
        ("Yes, {answer}", "{choices}", r"question: expected places .* got \{choices\}"),
    )
]


@pytest.mark.parametrize(
    ("problem_format", "name", "text", "message"),
    [(NLI, *row) for row in NLI_FILES] + [(READING, *row) for row in READING_FILES],
)
def test_prompts_that_are_none(
    tmp_path: Path, problem_format: ProblemFormat, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"{name}: .*{message}"):
        read_prompt(str(path), problem_format=problem_format)


@pytest.mark.parametrize(
    ("sources", "name"),
    [(["snli"], "snli"), (["mnli-m", "mnli-mm"], "mnli"), (["mine"], "mixed"), ([], "mixed")],
)
def test_examples_without_being_asked(
    sources: list[str], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert read_prompt("auto", sources=sources) == read_prompt(name if name != "mixed" else "mix")
    told = "`shots`: there are no examples of"
    assert [told in message for message in caplog.messages] == [True] * (name == "mixed")


LABELS = ("entailment", "neutral", "contradiction")
ZERO_SHOT = read_prompt("none")
NLI = AnswerReader(LABELS, stop=ZERO_SHOT.stop)


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
    pattern = re.compile(answer_pattern(ZERO_SHOT.template.fields, LABELS), re.IGNORECASE)
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
    assert not re.search(answer_pattern(ZERO_SHOT.template.fields, LABELS), text)


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
