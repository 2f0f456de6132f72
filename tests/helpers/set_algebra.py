"""Section 3's set algebra and the filters D7 and D8, slowly and obviously, on plain types."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from generation.problems.shared_words import coarse_class

Odds = Mapping[str, float]
"""A set of words, each with log-odds."""


@dataclass(frozen=True)
class Evidence:
    """Masked LMs that validated a word within one sentence, and its smallest log-odds (D14)."""

    mlms: tuple[str, ...]
    log_odds: float


def over_occurrences(sets: Sequence[Odds]) -> dict[str, float]:
    """R_j(S, o) = ∩ over the occurrences i of o in S of R_j(S, i)."""
    return {
        word: min(odds[word] for odds in sets)
        for word in set.intersection(*(set(odds) for odds in sets))
    }


def over_mlms(sets: Mapping[str, Odds]) -> dict[str, Evidence]:
    """R_M(S, o) = ∪ over the masked LMs j of R_j(S, o)."""
    found = {}
    for word in {word for odds in sets.values() for word in odds}:
        having = sorted(mlm for mlm, odds in sets.items() if word in odds)
        found[word] = Evidence(tuple(having), min(sets[mlm][word] for mlm in having))
    return found


def over_sentences(sets: Sequence[Collection[str]], *, combine: str) -> list[str]:
    """Equation 1: R_M(⟨p, h⟩, o) = R_M(p, o) ∩ R_M(h, o), or ∪ in the ablation."""
    if combine == "union":
        return sorted({word for each in sets for word in each})
    return sorted(word for word in sets[0] if all(word in each for each in sets))


def class_verdict(
    tags: tuple[str, ...] | None, originals: tuple[str, ...], *, tag_match: str
) -> str | None:
    """D8: the reason why a replacement fails in a sentence, or None if it passes."""
    if tags is None:
        return "tokenization"
    if tag_match == "coarse":
        tags, originals = tuple(map(coarse_class, tags)), tuple(map(coarse_class, originals))
    return None if tags == originals else "other_class"
