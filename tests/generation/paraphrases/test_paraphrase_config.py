from typing import Any

import pytest
from helpers.paraphrasing import searching

from generation.paraphrases.config import INSTRUCTION, ParaphraseConfig, fill_prompt
from generation.paraphrases.rounds import clean


def config(**changes: Any) -> ParaphraseConfig:
    return ParaphraseConfig(**({"model": "my-nli"} | changes))


def test_the_defaults_are_those_of_the_paper() -> None:
    """Defaults are those of Arakelyan et al. (2024), section 4.1; `decoding` is the search."""
    made = config()
    assert (made.k, made.temperature_min, made.temperature_max) == (10, 0.3, 0.6)
    assert (made.max_new_tokens, made.generator) == (40, "google/flan-t5-xl")
    assert made.prompt.startswith("Rephrase the following sentence while preserving its original")
    assert made.source == "snli"
    changed = {"num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 0.25,
               "sibling_penalty": 0.125, "max_new_tokens": 7}  # fmt: skip
    assert config(**changed).decoding == changed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "k: expected at least 1, got 0"),
        ({"temperature_min": 0.0}, "temperature: expected two numbers above 0, .* 0.0 and 0.6"),
        ({"temperature_max": float("inf")}, "temperature: .*, got 0.3 and inf"),
        ({"num_beams": 7, "num_beam_groups": 2}, "num_beams: expected a multiple of .* got 7"),
        ({"sibling_penalty": -1.0}, "sibling_penalty: expected at least 0, got -1.0"),
    ],
)
def test_values_out_of_range(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        config(**changes)


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
