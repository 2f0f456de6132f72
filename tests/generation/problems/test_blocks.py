import dataclasses
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spacy
from helpers.tagged_texts import sentence, shared_words_of
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language

from generation.problems import on_disk as module
from generation.problems import tagging
from generation.problems.on_disk import block_sizes, read_block, sorted_problems
from generation.problems.substitutions import Place, Substitutions
from generation.problems.tagging import MODELS, Tagger, coarse_class, half_width
from generation.records import Seed, Sentence, SharedWord
from merge_dataset.schema import WORD_CLASSES


def seed(number: int) -> Seed:
    return Seed(
        seed_id=f"snli:{number}",
        source="snli",
        texts=(f"Premise {number}.", "Hypothesis “é”."),
        label="neutral",
        annotator_labels=("neutral", "entailment") if number % 2 else (),
    )


def write(path: Path, numbers: list[int]) -> None:
    with sorted_problems(path) as add:
        for number in numbers:
            add(seed(number))


@pytest.mark.slow
def test_blocks_are_sorted_and_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long problems make smaller blocks; the order in which problems come does not matter."""
    monkeypatch.setattr(module, "BLOCK", 16)
    numbers = random.Random(0).sample(range(10_000), 5_000)
    path, again = tmp_path / "problems.parquet", tmp_path / "again.parquet"
    write(path, numbers)
    assert block_sizes(path) == [16] * 312 + [8]
    blocks = [read_block(path, i) for i in range(313)]
    in_order = sorted(map(seed, numbers), key=lambda s: s.seed_id)
    assert [problem for block in blocks for problem in block] == in_order
    write(again, numbers[::-1])
    assert path.read_bytes() == again.read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(module, "_LETTERS", 80)
    write(path, numbers[:50])
    blocks = [read_block(path, i) for i in range(len(block_sizes(path)))]
    letters = [sum(len(text) for s in block for text in s.texts) for block in blocks]
    assert 40 < min(letters[:-1]) < max(letters) <= 80
    assert sum(map(len, blocks)) == 50


def test_ids_are_in_the_order_of_code_points(tmp_path: Path) -> None:
    """As Python sorts texts, and not as a locale does."""
    names = [
        "snli:é",
        "snli:\U0001f600",
        "snli:Z",
        "snli:a",
        "snli:a\0b",
        "snli:a b",
        "snli:\uffee",
    ]
    with sorted_problems(tmp_path / "p.parquet") as add:
        for name in names:
            add(replace(seed(1), seed_id=name))
    assert [s.seed_id for s in read_block(tmp_path / "p.parquet", 0)] == sorted(names)


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
    for text in sentences:
        forms = sorted({token.text for token in text.tokens if token.text.isalpha()})
        for _ in range(per_sentence if forms else 0):
            positions = positions_of(text, rng.choice(forms))
            made.append(Substitution(text, positions, rng.choice(words)))
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


def shared(
    premise: str, hypothesis: str, word_classes: tuple[str, ...] = WORD_CLASSES
) -> list[SharedWord]:
    return shared_words_of([sentence(premise), sentence(hypothesis)], word_classes)


def forms(found: list[SharedWord]) -> list[tuple[str, str]]:
    return [(word.word, word.word_class) for word in found]


def test_tags_of_the_four_classes() -> None:
    """Penn tags belong to the classes of D1; other tags belong to none."""
    classes = {"noun": "NN NNS", "verb": "VB VBD VBG VBN VBP VBZ", "adjective": "JJ JJR JJS",
               "adverb": "RB RBR RBS"}  # fmt: skip
    for word_class, tags in classes.items():
        assert {coarse_class(tag) for tag in tags.split()} == {word_class}
    others = "NNP NNPS MD RP WRB IN DT CD PRP UH . _SP".split()
    assert [coarse_class(tag) for tag in others] == others


def test_a_worked_example() -> None:
    """A problem like Figure 2; of three texts, all have the word, or the two that must."""
    result = shared(
        "A/DT little/JJ boy/NN jumps/VBZ in/IN the/DT air/NN ./.",
        "The/DT boy/NN jumps/VBZ high/RB ./.",
    )
    assert result == [
        SharedWord("boy", "noun", ((2,), (1,))),
        SharedWord("jumps", "verb", ((3,), (2,))),
    ]
    context = sentence("A/DT boy/NN feeds/VBZ a/DT dog/NN")
    question = sentence("Who/WP feeds/VBZ the/DT dog/NN")
    answer = sentence("The/DT boy/NN feeds/VBZ it/PRP dog/NNP")
    texts = [context, question, answer]
    assert shared_words_of(texts) == [SharedWord("feeds", "verb", ((2,), (1,), (2,)))]
    assert shared_words_of(texts, sharing=(0, 2)) == [
        SharedWord("boy", "noun", ((1,), (), (1,))),
        SharedWord("feeds", "verb", ((2,), (1,), (2,))),
    ]
    result = shared_words_of(texts, sharing=(0, 1))
    assert result[0] == SharedWord("dog", "noun", ((4,), (3,), (4,))), "also where it is a name"


TOKENS = st.lists(
    st.tuples(
        st.sampled_from(["run", "Run", "boy", "is", "n't", "can", "Paris", "big"]),
        st.sampled_from(["NN", "NNS", "VB", "VBZ", "JJ", "RB", "NNP", "MD", "IN"]),
    ).map("/".join),
    max_size=8,
).map(" ".join)


@given(TOKENS, TOKENS)
def test_shared_words_against_the_definition(premise: str, hypothesis: str) -> None:
    """D1 and D2 in nested loops give the same words; swapping the sentences swaps sides."""
    p, h = sentence(premise).tokens, sentence(hypothesis).tokens
    expected = set()
    for a in p:
        for b in h:
            if a.text == b.text and a.text.isalpha() and coarse_class(a.tag) == coarse_class(b.tag):
                expected.add((a.text, coarse_class(a.tag)))
    result = shared(premise, hypothesis)
    assert set(forms(result)) == {pair for pair in expected if pair[1] in WORD_CLASSES}
    assert len(set(forms(result))) == len(result)
    for word in result:
        for positions, tokens in zip(word.positions, (p, h), strict=True):
            assert list(positions) == [i for i, t in enumerate(tokens) if t.text == word.word]
    swapped = shared(hypothesis, premise)
    assert [SharedWord(w.word, w.word_class, w.positions[::-1]) for w in swapped] == result
