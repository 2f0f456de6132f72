"""From suggestions to R_M(⟨p, h⟩, o): the set algebra of the paper's section 3.

Words are lower-case strings here (D6). Each set carries, per word, the smallest log-odds
seen so far (D14).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from generation.records import Evidence


def over_occurrences(sets: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """R_j(S, o) = ∩ over the occurrences i of o in S of R_j(S, i).

    >>> over_occurrences([{"girl": 1.0, "man": 2.0}, {"girl": 0.5}])
    {'girl': 0.5}
    """
    first, *rest = sorted(sets, key=len)
    return {
        word: min(odds, *(other[word] for other in rest)) if rest else odds
        for word, odds in first.items()
        if all(word in other for other in rest)
    }


def over_mlms(sets: Mapping[str, Mapping[str, float]]) -> dict[str, Evidence]:
    """R_M(S, o) = ∪ over the MLMs j of R_j(S, o), with who validated what (D14).

    >>> over_mlms({"a": {"girl": 1.0}, "b": {"girl": 0.5, "man": 2.0}})["girl"]
    Evidence(mlms=('a', 'b'), log_odds=0.5)
    """
    validated: dict[str, list[str]] = {}
    odds: dict[str, float] = {}
    for mlm in sorted(sets):
        for word, value in sets[mlm].items():
            validated.setdefault(word, []).append(mlm)
            odds[word] = min(value, odds.get(word, value))
    return {word: Evidence(tuple(mlms), odds[word]) for word, mlms in validated.items()}


def over_sentences(
    premise: Mapping[str, Evidence], hypothesis: Mapping[str, Evidence], *, combine: str
) -> list[str]:
    """Equation 1: R_M(⟨p, h⟩, o) = R_M(p, o) ∩ R_M(h, o), sorted.

    Args:
        premise: R_M(p, o).
        hypothesis: R_M(h, o).
        combine: `intersection`, or `union` for the ablation p ∪ h (D13).
    """
    if combine == "union":
        return sorted(premise.keys() | hypothesis.keys())
    return sorted(premise.keys() & hypothesis.keys())
