import pytest
from helpers.paraphrasing import searching

from generation.paraphrases.config import INSTRUCTION, fill_prompt
from generation.paraphrases.rounds import clean

H = "A girl jumps high."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A girl leaps.", "A girl leaps."),
        ("  A girl leaps. \n", "A girl leaps."),
        ("\n\n A girl leaps.\nA second line.", "A girl leaps."),
        ("Here is the rephrased sentence:\n\nA girl leaps.", "A girl leaps."),
        ('Here is the rephrased sentence:\r\n"A girl leaps."', "A girl leaps."),
        ("Here you are:", ""),
        ("", ""),
        (" \n\t\n", ""),
        ('"A girl leaps."', "A girl leaps."),
        ("“A girl leaps.”", "A girl leaps."),
        ("‘ A girl leaps. ’", "A girl leaps."),
        ("«A girl leaps.»", "A girl leaps."),
        ("'A girl doesn't sit.'", "A girl doesn't sit."),
        ("\"'A girl leaps.'\"", "A girl leaps."),
        ('""', ""),
        ('"', '"'),
        ('"A girl" is a "girl"', '"A girl" is a "girl"'),
        ('"Up" she leaps.', '"Up" she leaps.'),
        ("'Tis a girl who leaps'", "Tis a girl who leaps"),
        ("A girl's leap is the girls'", "A girl's leap is the girls'"),
        ("One: a girl leaps.", "One: a girl leaps."),
    ],
)
def test_cleaning(text: str, expected: str) -> None:
    """The first line stays, without an introduction and without quotation marks around it."""
    assert clean(text, H) == expected


@pytest.mark.parametrize(
    ("text", "hypothesis", "expected"),
    [
        ('"She leaps."', '"She jumps."', '"She leaps."'),
        ('"She leaps."', "'She jumps.'", '"She leaps."'),
        ('"She leaps."', '"She" jumps.', "She leaps."),
        ("She says this:", "She says:", "She says this:"),
        ("She says this:", "She says: ", "She says this:"),
    ],
)
def test_what_the_hypothesis_has_itself_stays(text: str, hypothesis: str, expected: str) -> None:
    assert clean(text, hypothesis) == expected


def test_prompts() -> None:
    """The paper's prompt takes any braces in the hypothesis; one without a place is refused."""
    assert fill_prompt(INSTRUCTION, "{a} {hypothesis} %s") == (
        "Rephrase the following sentence while preserving its original meaning: {a} {hypothesis} %s"
    )
    assert fill_prompt('{"text": "{hypothesis}"}', "x") == '{"text": "x"}'
    with pytest.raises(ValueError, match=r"prompt: expected \{hypothesis\} where .*: 'Say it'"):
        searching(prompt="Say it")
