from typing import Any

import pytest

from generation.paraphrases.config import ParaphraseConfig


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
