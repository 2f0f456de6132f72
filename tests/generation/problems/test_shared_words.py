"""Shared words and their occurrences (D1, D2), by hand and counted on real data."""

from helpers.tagged_texts import sentence, shared_words_of
from hypothesis import given
from hypothesis import strategies as st

from generation.problems.tagging import coarse_class
from generation.records import SharedWord
from merge_dataset.schema import WORD_CLASSES


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
