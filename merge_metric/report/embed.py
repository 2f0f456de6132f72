"""What the page of a report computes with, as small as it goes: JSON for its scripts.

The scripts that read it are `assets/*.js`; `rebuild` is the other half of `textOf` there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase, digits
from typing import Any, Final

from merge_dataset.schema import PARAPHRASE, changed_words
from merge_metric.report.columns import HEADLINE, Result, cell
from merge_metric.report.evidence import Evidence, Part
from merge_metric.report.seeds import MISSING, SourceSeeds
from merge_metric.tables import initials

Spans = Sequence[Sequence[int]]

_DIGITS: Final = {**dict(enumerate(digits + ascii_lowercase)), MISSING: "-"}
"""Label → a character, which scripts read as a number of base 36."""


def embed(evidence: Evidence, sources: Sequence[SourceSeeds]) -> dict[str, Any]:
    """The whole: figures in percent, and problems."""
    return {
        "labels": list(evidence.labels),
        "letters": list(initials(evidence.labels)),
        "models": evidence.names,
        "columns": [
            {"key": c.key, "head": c.head, "name": c.name, "meaning": c.meaning} for c in HEADLINE
        ],
        "configs": [
            {"name": c.name, "parts": [_part(part) for part in c.parts()]}
            for c in evidence.configurations
        ],
        "sources": [embed_source(source) for source in sources],
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "key": part.key,
        "title": part.title,
        "kind": part.kind,
        "results": [result and _result(result) for result in part.results],
    }


def _result(result: Result) -> dict[str, Any]:
    """Figures as [value, low, high], in the order of `HEADLINE`, and the curve at CT 1..100."""
    curve = result["sv_curve"]
    sides = [side for side in ("accuracy", "low", "high") if side in curve]
    return {
        "n": [result["n_seeds"], result["n_variants"]],
        "figures": [
            [None if value is None else round(value, 2) for value in cell(result, column)]
            for column in HEADLINE
        ],
        "curve": [[round(100 * share, 2) for share in curve[side]] for side in sides],
    }


# --- Problems ---


def embed_source(source: SourceSeeds) -> dict[str, Any]:
    """Seeds in columns; shown variants in groups of one word replaced in one seed."""
    premises = source.seeds["premise"].to_pylist()
    hypotheses = source.seeds["hypothesis"].to_pylist()
    packed = _pack(source, premises, hypotheses)
    order = [variant for group in packed.groups for variant in group.variants]
    return {
        "name": source.source,
        "classes": list(source.word_classes),
        "ids": source.seeds["seed_id"].to_pylist(),
        "premises": premises,
        "hypotheses": hypotheses,
        "gold": _digits(source.gold.tolist()),
        "votes": [_digits(votes) for votes in source.seeds["annotator_labels"].to_pylist()],
        "own": [_digits(answers) for answers in source.own.tolist()],
        "n": source.n_variants.tolist(),
        "answered": _unless_all(source),
        "right": source.n_right.tolist(),
        "groups": [
            [g.seed, g.word_class, g.word, _flat(g.premise), _flat(g.hypothesis), len(g.variants)]
            for g in packed.groups
        ],
        "vocabulary": list(packed.vocabulary),
        "words": [packed.words[variant] for variant in order],
        "answers": [_digits(answers) for answers in source.answers[:, order].tolist()],
        "texts": {
            str(position): packed.texts[variant]
            for position, variant in enumerate(order)
            if variant in packed.texts
        },
    }


@dataclass(slots=True)
class _Group:
    """Variants that replace the same words of one seed, mostly one."""

    seed: int
    word_class: int
    word: str
    premise: Spans
    """Where the word stands in the seed's premise."""
    hypothesis: Spans
    variants: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Packed:
    groups: list[_Group]
    vocabulary: dict[str, int]
    words: dict[int, int]
    """Variant → position of its replacement in the vocabulary."""
    texts: dict[int, list[Any]]
    """Variant → what cannot be told from its seed and its replacement: its texts and spans."""


def _pack(source: SourceSeeds, premises: list[str], hypotheses: list[str]) -> _Packed:
    groups: dict[tuple[int, int, str], _Group] = {}
    vocabulary: dict[str, int] = {}
    words: dict[int, int] = {}
    texts: dict[int, list[Any]] = {}
    classes = {name: code for code, name in enumerate(source.word_classes)}
    seeds = source.seed.tolist()
    names = ("word_class", "original", "replacement", "premise", "hypothesis")
    columns = (source.variants[name].to_pylist() for name in names)
    spans = (source.variants[f"{side}_spans"].to_pylist() for side in ("premise", "hypothesis"))
    for variant, (word_class, original, replacement, premise, hypothesis, *marks) in enumerate(
        zip(*columns, *spans, strict=True)
    ):
        seed, word = seeds[variant], original or ""
        new = replacement or ""
        lengths = _original_lengths(word_class, word, new)
        in_premise, in_hypothesis = (
            spans_in_seed(each, [lengths.get(text[slice(*span)], len(word)) for span in each])
            for text, each in zip((premise, hypothesis), marks, strict=True)
        )
        group = groups.setdefault(
            (seed, classes[word_class or ""], word),
            _Group(seed, classes[word_class or ""], word, in_premise, in_hypothesis),
        )
        group.variants.append(variant)
        words[variant] = vocabulary.setdefault(new, len(vocabulary))
        told = (
            rebuild(premises[seed], group.premise, new),
            rebuild(hypotheses[seed], group.hypothesis, new),
        )
        if told != (premise, hypothesis) or not new:
            texts[variant] = [premise, _flat(marks[0]), hypothesis, _flat(marks[1])]
    return _Packed(sorted(groups.values(), key=lambda group: group.seed), vocabulary, words, texts)


def _original_lengths(word_class: str | None, original: str, replacement: str) -> dict[str, int]:
    """Replacement → length of its original, where several words change."""
    if word_class == PARAPHRASE or " " not in replacement:
        return {}
    return {new: len(old) for new, old in changed_words(original, replacement).items()}


def spans_in_seed(spans: Spans, lengths: Sequence[int]) -> list[list[int]]:
    """Where originals stood, from where their replacements stand and how long they were.

    >>> spans_in_seed([[2, 8], [15, 21]], [3, 3])  # a boy and a boy → a poodle and a poodle
    [[2, 5], [12, 15]]
    """
    found, shift = [], 0
    for (start, end), length in zip(spans, lengths, strict=True):
        found.append([start - shift, start - shift + length])
        shift += end - start - length
    return found


def rebuild(text: str, spans: Spans, replacement: str) -> str:
    """A variant's text from its seed's.

    >>> rebuild("a boy and a boy", [[2, 5], [12, 15]], "poodle")
    'a poodle and a poodle'
    """
    pieces, done = [], 0
    for start, end in spans:
        pieces += [text[done:start], replacement]
        done = end
    return "".join([*pieces, text[done:]])


def _unless_all(source: SourceSeeds) -> list[Any] | None:
    """Answered variants of each model, where that is not all of them."""
    if (source.n_answered == source.n_variants).all():
        return None
    counts: list[Any] = source.n_answered.tolist()
    return counts


def _flat(spans: Spans) -> list[int]:
    return [offset for span in spans for offset in span]


def _digits(codes: Sequence[int] | None) -> str:
    return "".join(_DIGITS[code] for code in codes or ())
