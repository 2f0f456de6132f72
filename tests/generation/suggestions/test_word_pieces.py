"""Words of several pieces against an enumeration of all words, one forward pass per piece."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.few_pieces import few_pieces
from helpers.masked_queries import ask, ask_all, assert_identical, jointly, seen_inputs
from helpers.slow_words import Pieces, SlowWords, slow_words
from helpers.tiny_models import KINDS, MAX_TOKENS, tiny_model

from generation.records import MaskedQuery, Scores
from generation.suggestions import word_pieces
from generation.suggestions.masked_lm import MaskedLM, pieces_of_spans
from generation.suggestions.word_pieces import score_words


@cache
def loaded(path: Path) -> MaskedLM:
    return MaskedLM.load(path, device="cpu")


def words_of(scores: Scores, row: int) -> dict[Pieces, float]:
    return {
        tuple(piece for piece in pieces if piece >= 0): log_prob
        for pieces, log_prob in zip(
            scores.tokens[row].tolist(), scores.logits[row].tolist(), strict=True
        )
        if pieces[0] >= 0
    }


def assert_row(
    scores: Scores, row: int, expected: tuple[Pieces, float, dict[Pieces, float]]
) -> None:
    original, own, words = expected
    assert tuple(scores.original[row][scores.original[row] >= 0].tolist()) == original
    assert scores.original_logit[row] == pytest.approx(own, abs=1e-4)
    assert scores.log_normalizer[row] == 0
    assert words_of(scores, row) == pytest.approx(words, abs=1e-4)
    found = scores.logits[row][~np.isnan(scores.logits[row])]
    assert np.all(np.diff(found) <= 0)


def long_words(scores: Scores) -> int:
    return int((scores.tokens[:, :, 1] >= 0).sum())


@pytest.mark.slow(but=("bert-uncased-{} sees a dog.",))
@pytest.mark.parametrize(
    ("kind", "template"),
    [
        *((kind, "The small {} sees a dog.") for kind in ("bert-uncased", "roberta", "deberta")),
        # The word is attached to the text before it, or to nothing.
        ("roberta", "{} sees a dog."),
        ("albert", 'The man said "{}" here.'),
    ],
)
def test_words_are_those_of_an_enumeration(
    kind: str, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_pieces, "_MOST_PREFIXES", 10**6)
    slow, mlm = slow_words(tiny_model(kind)), loaded(tiny_model(kind))
    k = mlm._model.config.vocab_size + 200
    sentence = two_pieces_in(template, slow)
    start = template.index("{")
    span = (start, start + len(sentence) - len(template) + 2)
    query = MaskedQuery(sentence, span, (span,))
    scores = score_words(mlm, [query], k=k, max_pieces=2)
    expected = slow.answer(query.sentence, query.span, query.masked, k=k, max_pieces=2)
    assert expected is not None
    assert_row(scores, 0, expected)
    assert len(expected[0]) == 2
    assert long_words(scores) > 3


def two_pieces_in(template: str, slow: SlowWords) -> str:
    """A sentence with a word that this tokenizer splits in two."""
    candidates = ("snowman", "postman", "doghouse", "dogman", "girlman", "carman", "bookcar")
    for word in (*candidates, *(a + b for a in ("dog", "girl", "big") for b in "snrty")):
        text = template.format(word)
        start = template.index("{")
        where = slow.locate(text, (start, start + len(word)), 2)
        if where is not None and len(where) == 2:
            return text
    raise AssertionError("every word is in one piece or in more than two")


QUESTIONS = [
    *ask_all(["The snowman sees the dogs."])[1:],
    *ask_all(["Dog and footballs near a red cat."]),
    *jointly("The snowman and a red snowman sees snowman.", "snowman"),
    *jointly("The cat and the cat.", "cat"),
]


@pytest.mark.slow
@pytest.mark.parametrize("sharpness", [1.0, 3.0])
@pytest.mark.parametrize("max_pieces", [2, 3])
@pytest.mark.parametrize("k", [5, 20, 5000])
def test_every_word_of_a_small_vocabulary(k: int, max_pieces: int, sharpness: float) -> None:
    path = few_pieces(sharpness)
    scores = score_words(loaded(path), QUESTIONS, k=k, max_pieces=max_pieces)
    for row, query in enumerate(QUESTIONS):
        expected = slow_words(path).answer(
            query.sentence, query.span, query.masked, k=k, max_pieces=max_pieces
        )
        if expected is None:
            assert_empty_words(scores, row)
        else:
            assert_row(scores, row, expected)
    assert long_words(scores) > 0


def assert_empty_words(scores: Scores, row: int) -> None:
    assert (scores.original[row] == -1).all()
    assert (scores.tokens[row] == -1).all()
    assert np.isnan(scores.original_logit[row])
    assert np.isnan(scores.logits[row]).all()


@pytest.mark.parametrize("most", [1, 3])
def test_only_so_many_beginnings_are_gone_on_with(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_pieces, "_MOST_PREFIXES", most)
    path = few_pieces()
    slow, mlm = slow_words(path), loaded(path)
    questions = [query for query in QUESTIONS if slow.locate(query.sentence, query.span, 2)]
    scores = score_words(mlm, questions, k=5000, max_pieces=2)
    for row, query in enumerate(questions):
        every = slow.answer(query.sentence, query.span, query.masked, k=5000, max_pieces=2)
        if every is None:
            continue
        original, own, words = every
        first = {
            word[0]: slow.log_prob(query.sentence, query.span, query.masked, word, steps=1)
            for word in slow.words(slow.read(original[0])[1], 2)
        }
        best = sorted(first, key=lambda piece: -first[piece])[:most]
        kept = {w: p for w, p in words.items() if len(w) == 1 or w[0] in best}
        assert_row(scores, row, (original, own, kept))
    assert long_words(scores) > 0


def test_joint_masking_hides_every_piece() -> None:
    mlm = loaded(few_pieces())
    sentence = "The snowman sees a snowman."
    with seen_inputs(mlm) as seen:
        joint = score_words(mlm, jointly(sentence, "snowman")[:1], k=5, max_pieces=2)
    masks = {(row.count(mlm.mask_id), len(row)) for batch in seen for row in batch}
    # One piece each: 2 masks. Two pieces: 4 masks, or 3 when the first piece is known.
    assert masks == {(2, 8), (4, 10), (3, 10)}
    single = score_words(mlm, [ask(sentence, "snowman")], k=5, max_pieces=2)
    assert single.original.tolist() == joint.original.tolist()
    assert abs(single.original_logit[0] - joint.original_logit[0]) > 1e-3
    assert not np.any(np.isin(single.logits, joint.logits))


@pytest.mark.parametrize("kind", KINDS)
def test_one_piece_scores_as_without_all_this(kind: str) -> None:
    mlm = loaded(tiny_model(kind))
    queries = ask_all(["The girls and a small dog run."])
    plain = mlm.score(queries, k=40)
    scores = score_words(mlm, queries, k=40, max_pieces=2)
    known = plain.original >= 0
    assert known.sum() > 4
    assert (scores.original[known, 0] == plain.original[known]).all()
    own = plain.original_logit - plain.log_normalizer
    assert scores.original_logit[known] == pytest.approx(own[known], abs=1e-6)
    log_probs = plain.logits - plain.log_normalizer[:, None]
    for row in np.flatnonzero(known):
        expected = dict(zip(plain.tokens[row].tolist(), log_probs[row].tolist(), strict=True))
        found = {word[0]: p for word, p in words_of(scores, row).items() if len(word) == 1}
        assert found == pytest.approx({token: expected[token] for token in found}, abs=1e-6)
        assert len(found) > 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert-uncased", "roberta"])
def test_words_do_not_depend_on_the_batch(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = ask_all(["The snowman sees girls.", "Dog and cats - the small ones."])
    for found, expected in in_other_batches(loaded(tiny_model(kind)), queries, 400, monkeypatch):
        assert long_words(expected) > 0
        assert_identical(found, expected)


def in_other_batches(
    mlm: MaskedLM, queries: list[MaskedQuery], k: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Scores, Scores]]:
    """Yield scores from other batches, another order and a search in twos, and those expected."""
    scores = score_words(mlm, queries, k=k, max_pieces=2)
    for budget in (1, 40, 100_000):
        with monkeypatch.context() as patch:
            patch.setattr(mlm, "batch_tokens", budget)
            found = score_words(mlm, queries, k=k, max_pieces=2)
        yield found, scores
    turned = score_words(mlm, queries[::-1], k=k, max_pieces=2)
    yield turned.take(range(len(queries))[::-1]), scores
    monkeypatch.setattr(word_pieces, "_TOGETHER_CPU", 2)
    yield score_words(mlm, queries, k=k, max_pieces=2), scores


def test_words_of_more_pieces_have_no_answer() -> None:
    """Unknown words and parts of tokens have none either; joint masking needs all (D3)."""
    mlm = loaded(few_pieces())
    sentence = "The snowmanballs and a catmans sees cats near the dog."
    inside = sentence.index("dog")
    queries = [
        ask(sentence, "snowmanballs"),
        ask(sentence, "catmans"),
        ask(sentence, "cats"),
        MaskedQuery(sentence, (inside, inside + 2), ((inside, inside + 2),)),
        MaskedQuery(sentence, ask(sentence, "dog").span,
                    (ask(sentence, "dog").span, ask(sentence, "catmans").span)),
        ask("The zebra sees.", "zebra"),
    ]  # fmt: skip
    scores = score_words(mlm, queries, k=5, max_pieces=2)
    assert scores.answered.tolist() == [False, False, True, False, False, False]
    for row in (0, 1, 3, 4, 5):
        assert_empty_words(scores, row)
    more = score_words(mlm, queries, k=5, max_pieces=3)
    assert more.answered.tolist() == [False, True, True, False, True, False]
    assert score_words(mlm, queries, k=5, max_pieces=4).answered.tolist()[0]


@pytest.mark.parametrize("before", [0, 30, 70, 99])
@pytest.mark.parametrize("max_pieces", [2, 3])
def test_long_sentences_are_seen_through_a_window(before: int, max_pieces: int) -> None:
    path = few_pieces()
    mlm, slow = loaded(path), slow_words(path)
    words = ["dog", "near", "a"] * 34
    text = " ".join([*words[:before], "snowman", *words[before:99]])
    with seen_inputs(mlm) as seen:
        scores = score_words(mlm, [ask(text, "snowman")], k=5, max_pieces=max_pieces)
    assert scores.windowed.tolist() == [True]
    assert {len(row) for batch in seen for row in batch} == {MAX_TOKENS}
    rows = [row for batch in seen for row in batch]
    assert all(mlm.mask_id in row for row in rows)
    # The two questions about the original: both its pieces masked, then the second alone.
    ids = slow.tokenizer.get_vocab()
    whole = slow.tokenizer(text)["input_ids"]
    at = before + 1
    assert whole[at : at + 2] == [ids["snow"], ids["##man"]]
    first = min(max(at - (MAX_TOKENS - 2) // 2, 1), len(whole) - 1 - (MAX_TOKENS - 2))
    total = 0.0
    for step in range(2):
        masked = [*whole[: at + step], *[mlm.mask_id] * (2 - step), *whole[at + 2 :]]
        window = [masked[0], *masked[first : first + MAX_TOKENS - 2], masked[-1]]
        logits = slow.slow.model(torch.tensor([window])).logits.detach()[0, at + step - first + 1]
        total += float(torch.log_softmax(logits.double(), -1)[whole[at + step]])
    assert scores.original_logit[0] == pytest.approx(total, abs=1e-4)


def test_models_too_short_for_such_words_are_refused() -> None:
    with pytest.raises(ValueError, match=r"max_pieces: expected at most 16 with .*64 tokens"):
        score_words(loaded(few_pieces()), [], k=5, max_pieces=17)


class Cut:
    """The part of an encoding that `pieces_of_spans` needs."""

    def __init__(self, *offsets: tuple[int, int]) -> None:
        self.offsets = [(0, 0), *offsets, (0, 0)]
        self.special_tokens_mask = [1, *[0] * len(offsets), 1]


def one_piece(sentence: str, encoding: Any, span: tuple[int, int]) -> range | None:
    """The one token that touches a span, if it covers exactly this span."""
    touching = [
        i
        for i, (start, end) in enumerate(encoding.offsets)
        if start < span[1] and end > span[0] and not encoding.special_tokens_mask[i]
    ]
    if len(touching) != 1:
        return None
    start, end = encoding.offsets[touching[0]]
    text = sentence[start:end]
    stripped = start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
    return range(touching[0], touching[0] + 1) if stripped == span else None


@pytest.mark.parametrize(
    ("offsets", "most", "expected"),
    [
        # "snowman" in two pieces: either piece, or both.
        ([(0, 4), (4, 7)], 2, {(0, 4): range(1, 2), (4, 7): range(2, 3), (0, 7): range(1, 3)}),
        ([(0, 4), (4, 7)], 1, {(0, 4): range(1, 2), (4, 7): range(2, 3)}),
        # The space is part of the second word's token.
        ([(0, 1), (1, 3)], 2, {(0, 1): range(1, 2), (2, 3): range(2, 3)}),
        # Two tokens for the bytes of one letter: not pieces of anything.
        ([(0, 2), (2, 3), (2, 3), (3, 5)], 9, {(0, 2): range(1, 2), (3, 5): range(4, 5)}),
        # A lone space marker covers the first letter of its word.
        ([(2, 3), (2, 7)], 9, {}),
    ],
)  # fmt: skip
def test_pieces_of_spans(
    offsets: Sequence[tuple[int, int]], most: int, expected: dict[tuple[int, int], range]
) -> None:
    sentence = "a bcdefghi" if offsets[0] == (0, 1) else "snowmanxyz"
    assert pieces_of_spans(sentence, Cut(*offsets), most=most) == expected
    for span in combinations(range(9), 2):
        pieces = expected.get(span, range(0))
        assert one_piece(sentence, Cut(*offsets), span) == (pieces if len(pieces) == 1 else None)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_real_encodings_tile_their_words(kind: str) -> None:
    mlm = loaded(tiny_model(kind))
    sentence = 'A doghouse - "girls" and snowballings.'
    encoding = mlm.encode([sentence])[0]
    single = pieces_of_spans(sentence, encoding, most=1)
    for span in combinations(range(len(sentence) + 1), 2):
        assert one_piece(sentence, encoding, span) == single.get(span)
    found = pieces_of_spans(sentence, encoding, most=9)
    for word in ("doghouse", "girls", "snowballings"):
        query = ask(sentence, word)
        tokens = [mlm.encode([sentence])[0].ids[i] for i in found[query.span]]
        assert mlm.is_word(tokens, word)
        assert slow_words(tiny_model(kind)).locate(sentence, query.span, 9) == list(
            found[query.span]
        )
    assert len(found[ask(sentence, "snowballings").span]) > 2


@pytest.mark.real
def test_a_unicyclist_gets_replacements(shared_models: Path) -> None:
    mlm = MaskedLM.load(shared_models / "minilm-l6-mlm", device="cpu")
    query = ask("A unicyclist rides down the street.", "unicyclist")
    assert mlm.score([query], k=5).original.tolist() == [-1]
    scores = score_words(mlm, [query], k=200, max_pieces=5)
    texts = mlm.vocabulary.texts
    # The most probable words come last, so that "##man" and the like do not overwrite them.
    words = {
        "".join(texts[piece] for piece in word): log_prob
        for word, log_prob in reversed(words_of(scores, 0).items())
    }
    assert "".join(texts[piece] for piece in scores.original[0]) == "unicyclist"
    assert {"man", "dog", "toddler", "skateboarder"} <= set(words)
    assert scores.original_logit[0] < words["skateboarder"] < words["toddler"] < words["man"]
