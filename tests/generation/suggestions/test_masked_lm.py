"""Masked LMs against an ordinary forward pass over one sentence; questions, and their store."""

import hashlib
import json
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.masked_queries import ask, ask_all, assert_identical, score, seen_inputs
from helpers.reference import slow_mlm
from helpers.tiny_models import KINDS, MAX_TOKENS, randomised, save, sentences, tiny_model
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from generation.records import MaskedQuery, Scores
from generation.suggestions import masked_lm
from generation.suggestions import questions as module
from generation.suggestions.masked_lm import MaskedLM, most_probable
from generation.suggestions.questions import KEY, Questions, key_of, keys_of, question_table
from generation.suggestions.store import (
    read_scores,
    stored_vocabulary,
    suggestion_store,
    table_of,
    write_vocabulary,
)
from generation.suggestions.vocabulary import ATTACHED, OTHER, WHOLE, Vocabulary, read_vocabulary
from merge_metric.models.checkpoints import Loaded
from merge_metric.models.fast_layers import HIDING

BYTE_LEVEL = ("roberta", "modernbert", "bart")
K = 50


@cache
def tiny_mlm(kind: str) -> MaskedLM:
    return MaskedLM.load(tiny_model(kind), device="cpu")


def full_forward(
    kind: str, query: MaskedQuery, model: Any = None
) -> tuple[int, torch.Tensor] | None:
    """The original's id and all log-probabilities at its position, for one sentence at a time."""
    slow = slow_mlm(tiny_model(kind))
    places = [slow.locate(query.sentence, span) for span in query.masked]
    place = slow.locate(query.sentence, query.span)
    if place is None or None in places:
        return None
    ids = torch.tensor([slow.tokenizer(query.sentence)["input_ids"]])
    original = int(ids[0, place])
    ids[0, places] = slow.tokenizer.mask_token_id
    return original, log_probabilities(model or slow.model, ids, place)


def log_probabilities(model: Any, ids: torch.Tensor, place: int) -> torch.Tensor:
    with torch.no_grad():
        return torch.log_softmax(model(input_ids=ids).logits[0, place].double(), -1)


def assert_row(scores: Scores, row: int, original: int, expected: torch.Tensor) -> None:
    """Require that a row's scores equal those in `expected`, which has all tokens."""
    k = scores.tokens.shape[1]
    assert scores.original[row] == original
    log_p = scores.logits[row] - scores.log_normalizer[row]
    assert log_p == pytest.approx(expected[scores.tokens[row]].numpy(), abs=1e-4)
    own = scores.original_logit[row] - scores.log_normalizer[row]
    assert own == pytest.approx(float(expected[original]), abs=1e-4)
    assert np.all(np.diff(scores.logits[row]) <= 0)
    assert set(scores.tokens[row].tolist()) == set(expected.topk(k).indices.tolist())


def assert_empty(scores: Scores, row: int) -> None:
    """Require that a row has no answer, as its word is not one token (D3)."""
    assert scores.original[row] == -1
    assert np.all(scores.tokens[row] == -1)
    for column in (scores.original_logit, scores.log_normalizer, scores.logits):
        assert np.all(np.isnan(column[row]))
    assert not scores.windowed[row]


@pytest.mark.slow(but=("bert-uncased", "roberta", "albert", "bart"))
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_a_full_forward(kind: str) -> None:
    queries = ask_all(sentences()[:8])
    scores = score(tiny_mlm(kind), queries, k=K)
    answered = 0
    for row, query in enumerate(queries):
        expected = full_forward(kind, query)
        if expected is None:
            assert_empty(scores, row)
        else:
            answered += 1
            assert_row(scores, row, *expected)
    assert answered > 40
    assert not scores.windowed.any()


@pytest.mark.slow(but=("bert-cased", "roberta"))
@pytest.mark.parametrize("kind", KINDS)
def test_scores_do_not_depend_on_the_batch(kind: str) -> None:
    for result, expected in in_other_batches(tiny_mlm(kind), ask_all(sentences()[:12])):
        assert_identical(result, expected)


@pytest.mark.slow(but=("bert-cased", "roberta"))
@pytest.mark.parametrize("kind", KINDS)
def test_padding_as_on_accelerators(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attend = torch.nn.functional.scaled_dot_product_attention

    def watched(*tensors: torch.Tensor, **options: Any) -> torch.Tensor:
        mask = options["attn_mask"]
        assert mask is None or mask.any(-1).all(), "NaN on some GPUs"
        return attend(*tensors, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    queries = ask_all([*sentences()[:12], "A dog."])
    mlm = MaskedLM.load(tiny_model(kind), device="cpu")
    hides = mlm._model.config.model_type in HIDING
    mlm._is_flat, mlm._filler = False, 2048 * hides
    with seen_inputs(mlm) as seen:
        result, expected = score(mlm, queries, k=K), score(tiny_mlm(kind), queries, k=K)
    assert (0 in [row[-1] for batch in seen for row in batch]) == hides
    close = partial(np.testing.assert_allclose, atol=1e-5)
    # Token by token, as rounding may swap two that differ by 1e-6.
    orders = [item.tokens.argsort(axis=1) for item in (result, expected)]
    for name, compare in (("tokens", np.testing.assert_array_equal), ("logits", close)):
        values = (getattr(item, name) for item in (result, expected))
        compare(*map(np.take_along_axis, values, orders, [1, 1]))
    for name in ("logits", "original_logit", "log_normalizer"):
        close(getattr(result, name), getattr(expected, name))


def in_other_batches(mlm: MaskedLM, queries: list[MaskedQuery]) -> Iterator[tuple[Scores, Scores]]:
    """Yield scores from other batch sizes, another order and alone, each with the expected ones."""
    scores, usual = score(mlm, queries, k=K), mlm.batch_tokens
    for budget in (1, 40, 100_000):
        mlm.batch_tokens = budget
        yield score(mlm, queries, k=K), scores
    mlm.batch_tokens = 200
    turned = score(mlm, queries[::-1], k=K)
    mlm.batch_tokens = usual
    yield turned.take(range(len(queries))[::-1]), scores
    for row in (0, 3, len(queries) - 1):
        yield score(mlm, [queries[row]], k=K), scores.take([row])


@pytest.mark.parametrize("model_type", masked_lm._HEADS)
def test_the_head_alone_gives_what_the_whole_model_gives(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("bert-cased"))
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
    if model_type != "distilbert":
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                 "intermediate_size": 64}  # fmt: skip
    special = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
    config = AutoConfig.for_model(
        model_type, vocab_size=len(tokenizer), initializer_range=0.3, **sizes, **special
    )
    model = randomised(config, 0)
    queries = ask_all(sentences()[:4])
    by_head = score(MaskedLM(Loaded(model, tokenizer, "head", "")), queries, k=K)
    monkeypatch.setattr(masked_lm, "_HEADS", {})
    whole = score(MaskedLM(Loaded(model, tokenizer, "whole", "")), queries, k=K)
    assert (whole.original >= 0).sum() > 20
    assert np.ptp(whole.logits[whole.original >= 0]) > 1
    assert by_head.original.tolist() == whole.original.tolist()
    assert by_head.logits == pytest.approx(whole.logits, abs=1e-4, nan_ok=True)
    assert by_head.log_normalizer == pytest.approx(whole.log_normalizer, abs=1e-4, nan_ok=True)


def test_the_tokenizers_limit_counts_where_it_is_lower(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("bert-cased"), model_max_length=20)
    mlm = MaskedLM(Loaded(tiny_mlm("bert-cased")._model, tokenizer, "short", ""))
    assert mlm.max_tokens == 20
    sentence = "The dog and " * 10 + "a girl run."
    assert score(mlm, [ask(sentence, "girl")], k=3).windowed.tolist() == [True]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_that_just_fits_is_left_whole(kind: str) -> None:
    tokenizer = slow_mlm(tiny_model(kind)).tokenizer
    fits = next(
        text
        for n in range(40, 80)
        if len(tokenizer(text := "A girl" + " dog" * n)["input_ids"]) == MAX_TOKENS
    )
    queries = [ask(fits, "girl"), ask(fits + " dog", "girl")]
    scores = score(tiny_mlm(kind), queries, k=K)
    assert scores.windowed.tolist() == [False, True]
    expected = full_forward(kind, queries[0])
    assert expected is not None
    assert_row(scores, 0, *expected)


@pytest.mark.slow(but=("0-bert-cased", "40-roberta", "70-bart", "100-albert"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [0, 2, 40, 70, 99, 100])
def test_a_long_sentence_is_seen_through_a_window(kind: str, before: int) -> None:
    words = [word for text in sentences()[:60] for word in re.findall(r"[a-z]{3,}", text)]
    slow = slow_mlm(tiny_model(kind))
    known = [word for word in words if slow.locate(f"The {word}", (4, 4 + len(word))) is not None]
    text = " ".join([*known[:before], "music", *known[before:100]])
    start = len(" ".join(known[:before])) + (before > 0)
    span = (start, start + len("music"))
    assert text[slice(*span)] == "music"

    mlm = tiny_mlm(kind)
    with seen_inputs(mlm) as inputs:
        scores = score(mlm, [MaskedQuery(text, span, (span,))], k=K)
    window = inputs[0][0]
    whole = slow.tokenizer(text)["input_ids"]
    place = slow.locate(text, span)
    assert place is not None
    original, whole[place] = whole[place], slow.tokenizer.mask_token_id

    assert len(whole) > MAX_TOKENS == len(window)
    assert (window[0], window[-1]) == (whole[0], whole[-1])
    assert window.count(slow.tokenizer.mask_token_id) == 1
    at = window.index(slow.tokenizer.mask_token_id)
    room = MAX_TOKENS - 2
    first = place - (at - 1)
    assert window[1:-1] == whole[first : first + room]
    assert at - 1 >= min(room // 2 - 1, place - 1)
    assert room - at >= min(room // 2 - 1, len(whole) - 2 - place)
    assert scores.windowed.tolist() == [True]
    assert_row(scores, 0, original, log_probabilities(slow.model, torch.tensor([window]), at))


def test_a_tokenizer_file_cannot_cut_or_pad(tmp_path: Path) -> None:
    folder = tmp_path / "cutting"
    shutil.copytree(tiny_model("bert-cased"), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.enable_truncation(8)
    tokenizer.backend_tokenizer.enable_padding(length=32)
    tokenizer.save_pretrained(folder)
    assert len(AutoTokenizer.from_pretrained(folder).backend_tokenizer.encode("a").ids) == 32
    query = ask("The dog and another dog run near a small river today.", "river")
    mlm = MaskedLM.load(folder, device="cpu")
    with seen_inputs(mlm) as inputs:
        scores = score(mlm, [query], k=K)
    assert_identical(scores, score(tiny_mlm("bert-cased"), [query], k=K))
    assert {len(row) for batch in inputs for row in batch} == {14}


@pytest.mark.parametrize("kind", BYTE_LEVEL)
def test_byte_level_tokens_with_and_without_a_space(kind: str) -> None:
    ids = slow_mlm(tiny_model(kind)).tokenizer.get_vocab()
    queries = [
        ask('The man said "girl" here.', "girl"),
        ask("The man said girl here.", "girl"),
        ask("The man said  girl here.", "girl"),
        ask("girl and dog.", "girl"),
        ask("A small-girl.", "girl"),
    ]
    assert ids["girl"] != ids["Ġgirl"]
    scores = score(tiny_mlm(kind), queries, k=3)
    pieces = ["girl", "Ġgirl", "Ġgirl", "girl", "girl"]
    assert scores.original.tolist() == [ids[part] for part in pieces]
    for row, query in enumerate(queries):
        expected = full_forward(kind, query)
        assert expected is not None
        assert_row(scores, row, *expected)


@pytest.mark.parametrize("kind", KINDS)
def test_joint_masking_hides_every_occurrence(kind: str) -> None:
    sentence = "The dog and a small dog run near another dog."
    spans = tuple(match.span() for match in re.finditer("dog", sentence))
    jointly = [MaskedQuery(sentence, span, spans) for span in spans]
    singly = [MaskedQuery(sentence, span, (span,)) for span in spans]
    mlm = tiny_mlm(kind)
    with seen_inputs(mlm) as inputs:
        scores = score(mlm, jointly, k=K)
    assert {row.count(mlm.mask_id) for row in inputs[0]} == {3}
    for row, query in enumerate(jointly):
        expected = full_forward(kind, query)
        assert expected is not None
        assert_row(scores, row, *expected)
    assert not np.any(scores.logits == score(mlm, singly, k=K).logits)


def test_a_narrower_dtype_is_on_record() -> None:
    mlm = MaskedLM.load(tiny_model("bert-cased"), device="cpu", dtype="bfloat16", name="narrow")
    assert (mlm.name, mlm.dtype) == ("narrow", "bfloat16")
    query = ask("A girl sees the dog.", "dog")
    scores, exact = score(mlm, [query], k=5), score(tiny_mlm("bert-cased"), [query], k=5)
    assert scores.logits.dtype == np.float32
    assert scores.original_logit[0] == pytest.approx(exact.original_logit[0], abs=0.3)
    assert scores.original_logit[0] != exact.original_logit[0]


def test_bart_is_read_as_it_is_published(tmp_path: Path) -> None:
    """The Hub's configuration names `BartModel`, and the head is its embeddings (tables 4, 5)."""
    plain = AutoModelForMaskedLM.from_pretrained(tiny_model("bart"))
    plain.final_logits_bias.zero_()
    save(plain.model, AutoTokenizer.from_pretrained(tiny_model("bart")), tmp_path / "bart-base")
    config = json.loads((tmp_path / "bart-base" / "config.json").read_text())
    assert config["architectures"] == ["BartModel"]
    published = MaskedLM.load(tmp_path / "bart-base", device="cpu")
    assert not published._model.final_logits_bias.any()
    queries = ask_all(sentences()[:4])
    scores = score(published, queries, k=K)
    for row, query in enumerate(queries):
        if (expected := full_forward("bart", query, plain)) is not None:
            assert_row(scores, row, *expected)
    assert (scores.original >= 0).sum() > 20


@pytest.mark.parametrize(("size", "k"), [(30_522, 200), (1_000, 200), (250, 200), (200, 200)])
def test_the_most_probable_are_those_of_a_sort(size: int, k: int) -> None:
    """Ties, infinities and zeros of both signs are included: the lower token comes first."""
    random = torch.Generator().manual_seed(size)
    logits = torch.randn(5, size, generator=random)
    logits[1] = logits[1].round()  # many ties
    logits[2, ::2] = -torch.inf
    logits[3] = torch.where(logits[3] > 0, 0.0, -0.0)
    logits[4, 7] = torch.inf
    tokens, values = most_probable(logits, k)
    for row in range(5):
        order = sorted(range(size), key=lambda token: (-float(logits[row, token]), token))
        assert tokens[row].tolist() == order[:k]
        assert torch.equal(values[row], logits[row, order[:k]])
    nothing = torch.full((2, size), torch.nan)
    assert most_probable(nothing, k)[1].isnan().all()
    assert most_probable(logits[:0], k)[0].shape == (0, k)


UNIGRAM = ("albert", "deberta")
MARKS = {kind: "Ġ" if kind in BYTE_LEVEL else "▁" if kind in UNIGRAM else "" for kind in KINDS}
"""Kind → mark of a whole word in its vocabulary."""


def vocabulary_of(kind: str) -> Vocabulary:
    tokenizer = slow_mlm(tiny_model(kind)).tokenizer
    return read_vocabulary(tokenizer.backend_tokenizer, tokenizer.all_special_ids)


def ids_of(kind: str) -> dict[str, int]:
    """Vocabulary entry, including its mark → id."""
    ids: dict[str, int] = slow_mlm(tiny_model(kind)).tokenizer.get_vocab()
    return ids


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_and_texts_agree_with_the_markers(kind: str) -> None:
    vocabulary, slow = vocabulary_of(kind), slow_mlm(tiny_model(kind))
    special = set(slow.tokenizer.all_special_ids)
    seen = set()
    for part, number in ids_of(kind).items():
        text, begins = slow.read(part)
        if number in special or not re.search(r"[^\W\d_]", text):
            continue
        expected = WHOLE if begins else ATTACHED
        assert (vocabulary.texts[number], vocabulary.kinds[number]) == (text, expected), part
        seen.add(expected)
    assert seen == {WHOLE, ATTACHED}


@pytest.mark.parametrize("kind", KINDS)
def test_ids_that_stand_for_no_text(kind: str) -> None:
    """Special ids have the kind `OTHER`, as have the extra ids of a padded output layer."""
    vocabulary = vocabulary_of(kind)
    special = slow_mlm(tiny_model(kind)).tokenizer.all_special_ids
    assert len(special) >= 5
    for number in special:
        assert (vocabulary.kinds[number], vocabulary.texts[number]) == (OTHER, "")
        assert not vocabulary.is_text(number)
        assert not vocabulary.is_alphabetic[number]
    vocabulary = vocabulary_of(kind)
    assert len(vocabulary.texts) == len(ids_of(kind)) == len(vocabulary.kinds)
    assert not vocabulary.is_text(len(vocabulary.texts))
    assert vocabulary.is_text(ids_of(kind)[MARKS[kind] + "girl"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_fits_where_a_word_begins(kind: str) -> None:
    """If the original is a whole word, only whole words fit (D4)."""
    fitting = fitting_pieces(kind, MARKS[kind] + "girl")
    slow = slow_mlm(tiny_model(kind))
    begin = {part for part in ids_of(kind) if slow.read(part)[1]}
    assert MARKS[kind] + "dog" in fitting
    assert {part for part in fitting if slow.read(part)[0].isalpha()} == {
        part
        for part in begin
        if slow.read(part)[0].isalpha() and part not in slow.tokenizer.all_special_tokens
    }


def fitting_pieces(kind: str, original: str) -> set[str]:
    """Vocabulary entries that `fits` allows in place of another."""
    vocabulary, ids = vocabulary_of(kind), ids_of(kind)
    everything = np.arange(len(ids), dtype=np.int32)[None]
    fits = vocabulary.fits(everything, np.array([ids[original]], np.int32))[0]
    return {part for part, number in ids.items() if fits[number]}


QUERIES = [
    MaskedQuery(f"A girl № {number} and a girl.", span, masked)
    for number in range(60)
    for span, masked in (((2, 6), ((2, 6),)), ((2, 6), ((2, 6), (15, 19))), ((15, 19), ((15, 19),)))
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 20)


def written(folder: Path, queries: list[MaskedQuery]) -> Questions:
    """Write questions from small tables; repeated ones are in other tables."""
    tables = (question_table(queries[start : start + 7]) for start in range(0, len(queries), 7))
    return Questions.write(folder, tables, made_from="x")


def test_every_question_is_in_a_block_once(tmp_path: Path) -> None:
    """A sentence is in one block."""
    questions = written(tmp_path / "q", QUERIES + QUERIES[::3])
    of_block = [questions.of(block) for block in questions.blocks]
    assert list(map(len, of_block)) == [21] * 8 + [12]
    assert [query for queries in of_block for query in queries] == sorted(QUERIES, key=key_of)
    assert len(questions) == len(QUERIES)
    sentences = [{query.sentence for query in queries} for queries in of_block]
    assert sum(map(len, sentences)) == len(set().union(*sentences))
    assert sorted(path.name for path in questions.folder.iterdir()) == [
        "blocks", "keys.bin", "questions.json"
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "count"), [(1, 60), (20, 300), (300, 600)])
def test_order_and_repetition_do_not_matter(
    size: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal sets give equal files."""
    monkeypatch.setattr(module, "BLOCK", size)
    many = [
        MaskedQuery(f"A girl № {n} and a girl.", query.span, query.masked)
        for n in range(count) for query in QUERIES[:3]
    ]  # fmt: skip
    shuffled = random.Random(0).sample(many * 2, 2 * len(many))
    folders = [written(tmp_path / name, q).folder for name, q in (("a", many), ("b", shuffled))]
    a, b = (
        {p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders
    )
    assert a == b


def test_rows_number_all_questions(tmp_path: Path) -> None:
    questions = written(tmp_path / "q", QUERIES)
    map_blocks = [query for block in questions.blocks for query in questions.of(block)]
    assert questions.rows(map_blocks).tolist() == list(range(len(QUERIES)))
    some = random.Random(1).sample(QUERIES, 20)
    assert [map_blocks[row] for row in questions.rows(some)] == some
    questions = written(tmp_path / "q", QUERIES[:30])
    with pytest.raises(ValueError, match=r"expected 32 questions, 2 are missing; run: merge-nli"):
        questions.rows(QUERIES[:32])


def test_keys_with_trailing_zeros_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [0, 1, 256, 65536, 1 << 120]
    made = {query: n.to_bytes(KEY.itemsize) for query, n in zip(QUERIES, numbers, strict=False)}
    monkeypatch.setattr(module, "key_of", made.__getitem__)
    questions = written(tmp_path / "q", list(made))
    assert questions.rows(list(made)).tolist() == np.argsort(np.argsort(numbers)).tolist()


FEW = 4
IDENTITY = {
    "name": "org/a-model", "revision": "abc123", "architecture": "BertForMaskedLM",
    "masking": "single", "suggestions_per_occurrence": FEW, "dtype": "float32", "device": "cpu",
}  # fmt: skip
VOCABULARY = Vocabulary(("", "girl", "café", "s", "."), np.array([0, 1, 1, 2, 1], np.int8))
MADE_UP = [
    MaskedQuery(sentence, span, masked)
    for number in range(6)
    for sentence in (f"The café № {number} – “good”.", f"A girl and a girl {number}.")
    for span, masked in (((4, 8), ((4, 8),)), ((2, 6), ((2, 6), (13, 17))))
]


def answer(queries: Sequence[MaskedQuery]) -> Scores:
    """Made-up scores that depend only on each query; every fourth query has none."""
    scores = Scores.empty(len(queries), FEW)
    for row, query in enumerate(queries):
        digest = hashlib.sha256(repr(query).encode()).digest()
        if digest[0] % 4 == 0:
            continue
        numbers = np.frombuffer(digest[:16], np.uint8)
        scores.original[row] = numbers[1] % 5
        scores.original_logit[row] = numbers[2] / 7
        scores.log_normalizer[row] = numbers[3] / 3
        scores.tokens[row] = numbers[4:8] % 5
        scores.logits[row] = np.sort(numbers[8:12] / np.float32(11))[::-1]
        scores.windowed[row] = numbers[12] % 2
    return scores


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    store = suggestion_store(tmp_path, {**IDENTITY, "windowed": 3})
    write_vocabulary(store, VOCABULARY)
    for some in (MADE_UP[:7], MADE_UP[7:]):
        store.keep(keys_of(some), table_of(answer(some)))
    again = suggestion_store(tmp_path, IDENTITY)
    assert stored_vocabulary(again).texts == VOCABULARY.texts
    assert stored_vocabulary(again).kinds.tobytes() == VOCABULARY.kinds.tobytes()
    for asked in (MADE_UP, MADE_UP[::-1]):
        assert_identical(read_scores(again, asked), answer(asked))
    assert len(read_scores(again, []).original) == 0


def test_other_suggestions_go_to_another_folder(tmp_path: Path) -> None:
    """A store of its own for each model, revision, type, device and setting of the questions."""
    others = [{**IDENTITY, name: 1} for name in IDENTITY if name != "name"]
    others.append({**IDENTITY, "name": "org/another-model"})
    assert len({suggestion_store(tmp_path, one).folder for one in (IDENTITY, *others)}) == 8
