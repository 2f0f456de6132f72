import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_metric.models.answer_words import (
    ALPHABET,
    FORMS,
    NO_LABEL,
    AnswerReader,
    answer_reader,
    without_thinking,
)
from merge_metric.seed_variant_accuracy import options

LABELS = ("entailment", "neutral", "contradiction")
NLI = AnswerReader(LABELS)


def letter(text: str, *, is_cut: bool = False) -> str:
    code = NLI.read(text, is_cut=is_cut)
    return "" if code == NO_LABEL else "ABC"[code]


SEEN = [
    # answers as chat models write them
    ("A", "A"), ("a", "A"), ("A.", "A"), (" A\n", "A"), ("A)", "A"), ("[B]", "B"), ("`C`", "C"),
    ("**B**", "B"), ("**B.** Neutral", "B"), ("**B. Neutral**", "B"), ("*Neutral*", "B"),
    ("B: Neutral", "B"), ("B - Neutral", "B"), ("B (Neutral)", "B"), ("(B) Neutral", "B"),
    ("Neutral (B)", "B"), ("NEUTRAL", "B"), ("neutral", "B"), ("Neutral\n", "B"),
    ("Answer: C", "C"), ("Answer: **C**", "C"), ("**Answer:** C", "C"), ("**Answer: C**", "C"),
    ("answer: c. Contradiction", "C"), ("Answer:\n\nB", "B"), ("Answer: (A) Entailment", "A"),
    ("Final Answer: $\\boxed{C}$", "C"), ("\\boxed{\\textbf{B}}", "B"), ("\\boxed{Neutral}", "B"),
    ("\\boxed{B. Neutral}", "B"), ("### Answer\nB", "B"), ("The answer is: B", "B"),
    ("The correct answer is B. Neutral.", "B"), ("The answer is option C.", "C"),
    ("My final answer is contradiction.", "C"), ("Therefore, the answer is **neutral**.", "B"),
    ("The answer is A because both say so.", "A"), ("So the answer is C!", "C"),
    ("The relationship is entailment.", "A"), ("The correct label is \"neutral\".", "B"),
    ("The answer is a contradiction.", "C"), ("Prediction: entailment", "A"),
    # all choices, one after the other
    ("Entailment: 10%\nNeutral: 80%\nContradiction: 10%", ""),
    ("- **Entailment**: no.\n\n- **Neutral**: it may be.\n\n- **Contradiction**: no.\n\n"
     "Nothing is said of the weather, so it is neutral.", "B"),
    ("A. Entailment - no.\n\nB. Neutral - yes.\n\nC. Contradiction - no.\n\nIt is neutral.", "B"),
    ("Neutral.\nEntailment: No.\nContradiction: No.", "B"),
    ("Entailment: no. Contradiction: no. Neutral: yes.", "B"),
    ("Contradiction: No one can do both.", "C"),
    # explanations before and after
    ("The answer is A, is any information missing? No.", "A"),
    ("Is it neutral, or entailment? No, contradiction.", "C"),
    ("B. Neutral\n\nExplanation: The premise says nothing about entailment.", "B"),
    ("B\n\nThe premise does not say whether it is a contradiction.", "B"),
    ("The premise says that a man sleeps. The hypothesis says that he is awake.\n\nC", "C"),
    ("Step 1: compare.\nStep 2: they differ.\n\n**Answer: C. Contradiction**", "C"),
    ("The hypothesis contradicts the premise.", "C"),
    ("The hypothesis is entailed by the premise.", "A"),
    ("There's no contradiction; the statement is neutral.", "B"),
    ("The premise doesn't entail the hypothesis, it's neutral.", "B"),
    ("I think it isn't a contradiction.", ""),
    ("The hypothesis is neutral with respect to the premise.", "B"),
    ("Entailment would need more. Contradiction too. I choose (B).", "B"),
    # machine forms
    ('{"answer": "B"}', "B"), ('{"answer":"B. Neutral"}', "B"), ('{"Answer": "C"}', "C"),
    ('{"label": "Contradiction", "confidence": 0.9}', "C"), ('{"x": "neutral"}', "B"),
    ('{"label": 1}', ""), ('{"label": null}', ""), ('{"answer": "unsure"}', ""),
    ('Here you are:\n```json\n{"label": "entailment"}\n```', "A"),
    ('First {"answer": "A"}, no, {"answer": "C"}', "C"), ('{"answer": "B"', "B"),
    ("<answer>C</answer>", "C"), ("<answer>\nB. Neutral\n</answer>", "B"),
    # thinking
    ("<think>\nOkay, A or B? The answer is A.\n</think>\n\nThe answer is B.", "B"),
    ("<thinking>C</thinking><answer>A</answer>", "A"), ("<think></think>C", "C"),
    ("<think>a</think>B<think>the answer is C", "B"), ("<THINK>A</THINK>", ""),
    ("◁think▷A◁/think▷B", "B"), ("B<|im_end|>", "B"), ("C</s>", "C"), ("B<end_of_turn>", "B"),
    # two labels, refusals, nothing
    ("Entailment or neutral", ""), ("A or B", ""), ("Both A and C are possible.", ""),
    ("Entailment, neutral, contradiction", ""), ("entailment/neutral", ""),
    ("The answer could be either A or B, but the answer is B.", "B"),
    ("The answer is C. Neutral", ""), ("A. Neutral", ""),
    ("I cannot determine the relationship.", ""), ("As an AI model, I can't say.", ""),
    ("A man is sleeping.", ""), ("C'est vrai.", ""), ("I am not sure.", ""), ("...", ""),
    ("\n", ""), ("D", ""), ("The answer is D.", ""), ("Yes", ""), ("1", ""),
    ("Answer: A or B", ""), ("Answer: B or C", ""), ("Answer: (A) or (B)", ""), ("Answer: A-C", ""),
    ("Answer: A - C", ""), ("Answer: B/C", ""), ("Answer: B and C", ""), ("Answer: B/Neutral", "B"),
    ("**entailment** or **neutral**", ""), ("Answer: neutral or a contradiction", ""),
    # conditions
    ("B\n\nExplanation: The answer would be entailment if the dog was a cat.", "B"),
    ("Neutral.\n\nIt does not say so. If it did, the answer would be A.", "B"),
    ("**Neutral**\n\nIf it were a cat, the answer would be **entailment**.", "B"),
    ("**Neutral**\n\nHad it been a cat, the answer would be **entailment**.", "B"),
    ('{"label": "neutral", "reason": "The answer would be A if it was a cat."}', "B"),
    ("The answer would be B.", "B"), ("If I had to choose, I would say the answer is B.", "B"),
    ("The answer is B, because it would be entailment only if he slept.", "B"),
    ("If a man sleeps, he would not run, so the answer is contradiction.", "C"),
    # denied, before and after; words of a statement that is not an answer
    ('{"label": "neutral", "reason": "A label of contradiction would need X; the conclusion '
     'entailment is not forced."}', "B"),
    ("Answer: Entailment is not possible; neutral.", "B"),
    ("Answer: B\n\nConclusion: contradiction is not established.", "B"),
    ("Answer: B (not option A; label C is too strong)", "B"),
    ("Answer: B\n\nCannot be known.", "B"), ("Answer: (B) cannot be known", "B"),
    ("Answer: A\n\nContradiction would need more.", "A"),
    ("This conclusion contradicts nothing; it is neutral", "B"), ("Option A is wrong", ""),
    ("It is non-contradiction", ""), ("non-entailment", ""), ("Label: non-entailment", ""),
    ("It is not clear whether it entails.", ""), ("It is not clear if it entails.", ""),
    ("It is not entailment or contradiction; it's neutral.", "B"),
    ("Answer: A contradiction.", "C"), ('{"label": "neutral", ', "B"), ("**Label:** neutral", "B"),
    # SmolLM2-135M-Instruct, cut off
    ("B. Contradiction\n\nThe", ""), ("A. Entailment\nDemon", "A"), ("C. Contraction", "C"),
    ("C. Contradiction\n\nFurthermore", "C"), ("The tossetrim is not a contradiction", ""),
    ("A young musician left the trumpet on the", ""), ("False", ""), ("D. Contra", ""),
    # other languages
    ("Antwort: B", "B"), ("Die richtige Antwort ist C.", "C"), ("La respuesta es B.", "B"),
    ("La risposta è A.", "A"), ("A resposta é C.", "C"), ("Ответ: B", "B"), ("答案:C", "C"),
    ("答案是 (A)", "A"), ("答えはBです", "B"), ("Het antwoord is B", "B"), ("Implication", ""),
]  # fmt: skip


EXAMPLES = [example for form in FORMS for example in form.examples]


@pytest.mark.parametrize(("text", "expected"), [*EXAMPLES, *SEEN])
def test_forms_of_answers(text: str, expected: str) -> None:
    assert letter(text) == expected


def test_cut_answers_need_more_than_a_sentence() -> None:
    """A sentence may change its meaning later; a statement of the answer is final."""
    assert letter("It seems to be entailment", is_cut=True) == ""
    assert letter("It seems to be entailment") == "A"
    assert letter("The answer is B. The prem", is_cut=True) == "B"
    assert letter("<think>The answer is B. The prem", is_cut=True) == ""
    thought = "Okay. At first, the label is neutral. But hold on, if the man"
    assert letter(thought, is_cut=True) == letter("Hm.\n**A**\nNo", is_cut=True) == ""
    assert letter("Both sleep.\n\nFinal answer: \\boxed{A}", is_cut=True) == "A"
    assert letter("C. Contradiction\n\nBoth cannot", is_cut=True) == "C"
    assert letter('{"label": "neutral", "reason": "No cat."}\nFor', is_cut=True) == "B"


def test_other_labels_and_choices() -> None:
    reader = answer_reader(("incorrect", "correct"), ("No", "Yes"))
    said = ["Yes", "**No**", "B", "incorrect", "It is correct.", "The answer is: Yes.", "C", "Nope"]
    assert [reader.read(text) for text in said] == [1, 0, 1, 0, 1, 1, -1, -1]
    places = answer_reader(("0", "1", "2", "3"), ("in the box", "on the table", "at home", "here"))
    said = ["D", "On the table.", "The answer is in the box", "E", "(C) at home", "(C) here"]
    assert [places.read(text) for text in said] == [3, 1, 0, -1, 2, -1]
    pair = answer_reader(("entailment", "not_entailment"))
    said = [
        "not_entailment", "Answer: not_entailment", "The label is not entailment.", "entailment",
    ]  # fmt: skip
    assert [pair.read(text) for text in said] == [1, 1, 1, 0]
    ends = answer_reader(("0", "1"), ("He (Tom) left.", "She stayed."))
    assert [ends.read(f"The answer is: {text}") for text in ("He (Tom) left.", "B")] == [0, 1]
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


def test_no_label_is_that_of_the_metric() -> None:
    """Two modules define it, as one must not import NumPy and the other none of ours."""
    assert NO_LABEL == options.NO_LABEL
