"""Tags of substituted words: windows against whole sentences (D8)."""

import dataclasses
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spacy
from spacy.language import Language

from generation.problems import tagging
from generation.problems.substitutions import Place, Substitutions
from generation.problems.tagging import MODELS, Tagger, half_width
from generation.records import Sentence


@pytest.fixture(scope="module")
def nlp() -> Language:
    """A separate pipeline for the oracle, as spaCy loads it."""
    name = next(name for name in MODELS if spacy.util.is_package(name))
    return spacy.load(name, exclude=["parser", "ner", "lemmatizer", "attribute_ruler"])


@dataclasses.dataclass(frozen=True)
class Substitution:
    """A word in place of the tokens at `positions`."""

    sentence: Sentence
    positions: tuple[int, ...]
    replacement: str


def columns_of(substitutions: Sequence[Substitution]) -> Substitutions:
    """Substitutions as columns, with each distinct place and form listed once."""
    places: dict[tuple[int, tuple[int, ...]], int] = {}
    forms: dict[str, int] = {}
    listed = list[Place]()
    rows = []
    for s in substitutions:
        key = (id(s.sentence), s.positions)
        if key not in places:
            places[key] = len(places)
            listed.append(Place(s.sentence, s.positions))
        rows.append((places[key], forms.setdefault(s.replacement, len(forms))))
    place, form = np.array(rows, np.int64).reshape(-1, 2).T
    return Substitutions(listed, list(forms), place, form)


def tags_after(
    tagger: Tagger, substitutions: Sequence[Substitution]
) -> list[tuple[str, ...] | None]:
    flat = iter(tagger.tags_after(columns_of(substitutions)).tolist())
    result = list[tuple[str, ...] | None]()
    for s in substitutions:
        numbers = [next(flat) for _ in s.positions]
        assert len({number < 0 for number in numbers}) == 1
        result.append(None if numbers[0] < 0 else tuple(tagger.labels[n] for n in numbers))
    assert next(flat, None) is None
    return result


def tagged(tagger: Tagger, text: str) -> Sentence:
    (sentence,) = tagger.tag([text])
    return sentence


def positions_of(sentence: Sentence, word: str) -> tuple[int, ...]:
    return tuple(i for i, token in enumerate(sentence.tokens) if token.text == word)


def substituted(substitution: Substitution) -> tuple[str, list[str]]:
    """The new sentence, joined token by token, and its expected tokens."""
    tokens, text = substitution.sentence.tokens, substitution.sentence.text
    words = [
        substitution.replacement if i in substitution.positions else token.text
        for i, token in enumerate(tokens)
    ]
    ends = [token.start for token in tokens[1:]] + [len(text)]
    gaps = [text[token.span[1] : end] for token, end in zip(tokens, ends, strict=True)]
    return "".join(w + gap for w, gap in zip(words, gaps, strict=True)), words


def tags_of_whole_sentences(
    nlp: Language, substitutions: Sequence[Substitution]
) -> list[tuple[str, ...] | None]:
    """The slow oracle: tokenise and tag each new sentence as a whole."""
    expected = [substituted(s) for s in substitutions]
    docs = nlp.pipe(text for text, _ in expected)
    return [
        tuple(doc[i].tag_ for i in s.positions) if [t.text for t in doc] == words else None
        for s, (_, words), doc in zip(substitutions, expected, docs, strict=True)
    ]


PIECES = """boy girl dog a an the A I he she they who it's don't can't won't isn't cannot gonna
wanna he'll we're I've boy's dogs' "well" “so” (big) 'run' runs ran running swims fast slowly
and/or x-ray boy/girl boy,girl re-do U.S. e.g. a.m. 10km 4pm $5 Mr. Dr. a. no. co. well, ok! ?!
… — boy—girl :) C++ don’t ’s let's o'clock ma'am is was will can small very not to of in on with
and or but if because""".split()
"""Words for sentences: contractions, quotes, abbreviations, units, hyphens."""

REPLACEMENTS = """girl girls boy swims running small quickly a I the cannot gonna wanna gotta lemme
gimme im cant dont wont s m d re no co inc Mr pm km g ok Girl GIRL US jan sept idc nt na o e x v
lets thats theres hes shes howd whos ya yall id ill well were hell shell shed wed naïve über can
will might Paris that""".split()
"""Words that are one token always, sometimes or never."""

SEPARATORS = [" "] * 10 + ["", "  ", "\t", "\n", "\u00a0"]


def random_texts(rng: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        pieces = rng.choices(PIECES, k=rng.randint(3, 22))
        yield "".join(part + rng.choice(SEPARATORS) for part in pieces).strip("\n")


def random_substitutions(
    rng: random.Random, sentences: Sequence[Sentence], words: Sequence[str], per_sentence: int
) -> list[Substitution]:
    """Substitute a random word for an alphabetic word of each sentence, at every occurrence."""
    made = []
    for sentence in sentences:
        forms = sorted({token.text for token in sentence.tokens if token.text.isalpha()})
        for _ in range(per_sentence if forms else 0):
            positions = positions_of(sentence, rng.choice(forms))
            made.append(Substitution(sentence, positions, rng.choice(words)))
    return made


@pytest.fixture(scope="module", params=[70, pytest.param(220, marks=pytest.mark.slow)])
def hard_cases(request: pytest.FixtureRequest, tagger: Tagger) -> list[Substitution]:
    rng = random.Random(20251112)
    sentences = list(tagger.tag(random_texts(rng, request.param)))
    return random_substitutions(rng, sentences, REPLACEMENTS, 14)


@pytest.mark.slow
def test_windows_tag_as_whole_sentences_do(
    tagger: Tagger, nlp: Language, hard_cases: list[Substitution]
) -> None:
    result = tags_after(tagger, hard_cases)
    expected = tags_of_whole_sentences(nlp, hard_cases)
    assert len(hard_cases) > 900
    assert result == expected
    keeps = tagger.keeps_tokens(columns_of(hard_cases)).tolist()
    assert keeps == [tags is not None for tags in expected]
    # Both outcomes and repeated words occur; otherwise the equality would show little.
    assert 0.16 < sum(tags is None for tags in expected) / len(expected) < 0.8
    assert sum(len(tags) > 1 for tags in expected if tags) > len(expected) / 30


def test_whole_sentences_are_the_fallback(
    tagger: Tagger, hard_cases: list[Substitution], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = hard_cases[::5]
    windowed = tags_after(tagger, some)
    monkeypatch.setattr(tagger, "_cone", None)
    assert tags_after(tagger, some) == windowed


HASHES = {"@architectures": "spacy.MultiHashEmbed.v2", "include_static_vectors": False}
LAYERS = {"@architectures": "spacy.MaxoutWindowEncoder.v2", "depth": 3, "window_size": 1}


@pytest.mark.parametrize(
    "changed",
    [
        {"embed": {"@architectures": "spacy.CharEmbed"}},
        {"embed": HASHES | {"include_static_vectors": True}},
        {"encode": LAYERS | {"window_size": 2}},
        {"encode": {"@architectures": "spacy.BiLSTM.v1"}},
    ],
    ids=str,
)
def test_other_architectures_tag_whole_sentences(changed: dict[str, Any]) -> None:
    model = {"tok2vec": {"embed": HASHES, "encode": LAYERS} | changed}
    nlp = SimpleNamespace(pipe_names=["tagger"], get_pipe_config=lambda name: {"model": model})
    assert half_width(nlp) is None


def random_pipeline(depth: int) -> Language:
    """An untrained tagger with random weights, its own encoder and no listener."""
    encode = {**LAYERS, "depth": depth, "width": 16, "maxout_pieces": 2}
    embed = {
        **HASHES,
        "width": 16,
        "attrs": ["NORM", "PREFIX", "SUFFIX", "SHAPE"],
        "rows": [100, 100, 100, 100],
    }
    tok2vec = {"@architectures": "spacy.Tok2Vec.v2", "embed": embed, "encode": encode}
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe(
        "tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec}}
    )
    for label in ("NN", "VB", "JJ", "RB", "IN", "DT"):
        pipe.add_label(label)
    nlp.initialize()
    rng = np.random.default_rng(depth)
    for node in pipe.model.walk():
        for name in node.param_names:
            shape = node.get_param(name).shape
            node.set_param(name, rng.normal(size=shape).astype(np.float32))
    return nlp


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_other_taggers_of_that_architecture(depth: int) -> None:
    rng = random.Random(depth)
    tagger, oracle = Tagger(random_pipeline(depth)), random_pipeline(depth)
    assert (tagger._cone is None) == (depth == 1)
    # Few words, so that other occurrences are at every distance.
    few = (" ".join(rng.choices(["boy", "runs", "small", "the"], k=12)) for _ in range(40))
    sentences = list(tagger.tag([*random_texts(rng, 40), *few]))
    cases = random_substitutions(rng, sentences, REPLACEMENTS, 5)
    expected = tags_of_whole_sentences(oracle, cases)
    assert tags_after(tagger, cases) == expected
    assert len({tag for tags in expected if tags for tag in tags}) > 3


def test_sentences_are_tagged_as_spacy_tags_them(tagger: Tagger, nlp: Language) -> None:
    """Without the norm of "n't", the tagger would see another sentence."""
    texts = [*random_texts(random.Random(3), 400), "", " ", "Go."]
    expected = [[(token.text, token.tag_) for token in doc] for doc in nlp.pipe(texts)]
    assert [[(t.text, t.tag) for t in s.tokens] for s in tagger.tag(texts)] == expected
    assert list(tagger.tag([])) == []
    assert list(tagger.tag([""])) == [Sentence("", ())]
    sentence = tagged(tagger, "I don't know.")
    here = Substitution(sentence, (3,), "big")
    assert tags_after(tagger, [here]) == tags_of_whole_sentences(nlp, [here])
    tokens = tuple(dataclasses.replace(token, norm=None) for token in sentence.tokens)
    without = Substitution(Sentence(sentence.text, tokens), (3,), "big")
    # A new tagger, as taggers cache sentences by their text.
    assert tags_after(Tagger.load.__wrapped__(), [without]) != tags_after(tagger, [here])


@pytest.mark.slow
def test_torch_can_be_spared() -> None:
    code = """
import sys
from generation.problems.tagging import Tagger
tagger = Tagger.load(spare_torch=True)
(sentence,) = tagger.tag(["A girl jumps."])
print([token.tag for token in sentence.tokens], "torch" in sys.modules)
import torch
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['DT', 'NN', 'VBZ', '.'] False"


def test_sentences_of_two_readers(tagger: Tagger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagging, "_SENTENCES_REMEMBERED", 2)
    texts = ["A dog runs fast.", "Two cats sleep."]
    expected, reader = list(tagger.tag(texts)), tagger.tag(texts)
    result = [next(reader), *tagger.tag(["A man sings.", "The women sing."])][:1]
    assert [*result, *reader] == expected


@pytest.mark.real
@pytest.mark.slow
def test_windows_on_real_premises(tagger: Tagger, nlp: Language, shared_data: Path) -> None:
    rng = random.Random(7)
    lines = (shared_data / "mnli_dev_matched.jsonl").read_text(encoding="utf-8").splitlines()
    texts = sorted({json.loads(line)["sentence1"] for line in lines})
    sentences = list(tagger.tag(rng.sample(texts, 900)))
    words = sorted({t.text for s in sentences for t in s.tokens if t.text.isalpha()})
    cases = random_substitutions(rng, sentences, words, 4)
    result, expected = tags_after(tagger, cases), tags_of_whole_sentences(nlp, cases)
    assert len(cases) > 3000
    assert sum(tags is None for tags in expected) > 20
    assert result == expected
