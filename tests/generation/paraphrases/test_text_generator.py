"""Generators against the slow way: one request, the whole prompt in every forward pass."""

import copy
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.gguf_files import smollm2, write_llama, write_t5
from helpers.paraphrasing import searching
from helpers.tiny_generators import (
    CHAT,
    CONTEXT,
    KINDS,
    next_log_probs,
    saved_generator,
    tiny_generator,
    tiny_tokenizer,
)
from helpers.tiny_models import sentences
from transformers import (
    T5Tokenizer,
)

from generation.paraphrases.config import INSTRUCTION
from generation.paraphrases.config import ParaphraseConfig as Search
from generation.paraphrases.rounds import Candidate, ParaphraseRequest, clean
from generation.paraphrases.text_generator import Beam, Following, Generator, Ints, search
from merge_metric.models import checkpoints
from merge_metric.models.checkpoints import Loaded
from merge_metric.models.inspection import TEXT_GENERATOR, inspect

HYPOTHESES = [
    "A girl runs.",
    *sentences(9)[:6],
    "A dog.",
    "No, the " + "very small " * 9 + "cat sat.",
]
SMALL = searching(num_beams=6, num_beam_groups=3, max_new_tokens=7)


def generator(kind: str, decoding: Search = SMALL, **options: Any) -> Generator:
    model = options.pop("model", None) or tiny_generator(kind)
    tokenizer = options.pop("tokenizer", None) or tiny_tokenizer(kind)
    return Generator(Loaded(model, tokenizer, kind, "1"), replace(decoding, **options))


def texts(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.text for candidate in candidates]


Tokens = tuple[int, ...]


def slow_search(
    log_probs: Callable[[Tokens], Sequence[float]],
    ends: Collection[int],
    never: Collection[int],
    decoding: Search,
    earlier: Sequence[Sequence[int]] = (),
) -> list[Beam]:
    """Return the best candidate of each group, then the second best ones, and so on.

    `log_probs` returns those of all tokens after some new ones, at the request's temperature;
    `never` are tokens never chosen, ends included; `earlier` counts as chosen before the first.
    """
    size = decoding.num_beams // decoding.num_beam_groups
    groups: list[list[tuple[Tokens, float, float]]] = [
        [((), 0.0, 0.0)] for _ in range(decoding.num_beam_groups)
    ]
    result: list[list[Beam]] = [[] for _ in groups]
    for step in range(decoding.max_new_tokens):
        chosen = Counter(ids[step] for ids in earlier if step < len(ids))
        for g, beams in enumerate(groups):
            options = []
            for tokens, log_prob, score in beams:
                p = log_probs(tokens)
                end = max(ends, key=lambda t: p[t])
                children = [
                    (score + p[t] - decoding.diversity_penalty * chosen[t] * (t != end), t)
                    for t in range(len(p))
                    if t == end or t not in never
                ]
                for rank, (s, t) in enumerate(sorted(children, key=lambda child: -child[0])):
                    worth = s - decoding.sibling_penalty * rank
                    options.append((worth, t == end, (*tokens, t), log_prob + p[t], s))
            options.sort(key=lambda option: -option[0])
            for _, ended, tokens, log_prob, _ in options[:size]:
                if ended:
                    result[g].append(Beam(tokens, True, log_prob / len(tokens)))
            result[g] = sorted(result[g], key=lambda beam: -beam.score)[:size]
            going_on = [o for o in options if not o[1]][:size]
            groups[g] = [] if len(result[g]) == size else [o[2:] for o in going_on]
            chosen.update(tokens[-1] for tokens, _, _ in groups[g])
    for g, beams in enumerate(groups):
        cut = [Beam(t, False, log_prob / len(t)) for t, log_prob, _ in beams]
        result[g] += sorted(cut, key=lambda beam: -beam.score)
    return [result[g][i] for i in range(size) for g in range(len(groups))]


def prompt_ids(kind: str, hypothesis: str) -> list[int]:
    tokenizer = tiny_tokenizer(kind)
    asked = INSTRUCTION.replace("{hypothesis}", hypothesis)
    if kind == "t5":
        return tokenizer(asked)["input_ids"]
    if kind == "llama-chat":
        asked = f"<|end|>[user]\n{asked}\n[assistant]"
    return tokenizer(asked + "\n", add_special_tokens=False)["input_ids"]


@cache
def ends_and_never(kind: str) -> tuple[frozenset[int], frozenset[int]]:
    tokenizer = tiny_tokenizer(kind)
    ends = {tokenizer.eos_token_id}
    if kind == "t5":
        others = tokenizer.convert_tokens_to_ids(["<unk>", "<s>", "<extra_id_0>"])
        rows = tiny_generator(kind).config.vocab_size
        return frozenset(ends), frozenset({*ends, *others, *range(len(tokenizer), rows)})
    if kind != "llama-chat":
        ends |= {i for i in range(len(tokenizer)) if "\n" in tokenizer.decode([i])}
    return frozenset(ends), frozenset(ends)


def slow(kind: str, request: ParaphraseRequest, decoding: Search, model: Any) -> list[Candidate]:
    tokenizer = tiny_tokenizer(kind)
    prompt = prompt_ids(kind, request.hypothesis)
    ends, never = ends_and_never(kind)
    earlier = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in request.earlier]

    @cache
    def log_probs(tokens: tuple[int, ...]) -> list[float]:
        return next_log_probs(model, prompt, tokens, request.temperature)

    return [
        Candidate(
            tokenizer.decode(beam.tokens, skip_special_tokens=True), beam.finished, beam.score
        )
        for beam in slow_search(log_probs, ends, never, decoding, earlier)
    ]


DOUBLE, SINGLE = 1e-5, 1e-4
"""Largest relative difference of scores in either precision. In float32, a CPU's kernels differ
in the fifth digit (AVX-512's by up to 1.03e-5, AVX2's by 2.7e-6); in float64, temperatures,
norms and positions are still float32."""


def assert_same(result: Sequence[Any], expected: Sequence[Any], *, rel: float = DOUBLE) -> None:
    """Compare candidates or beams: texts or tokens, ends, and scores."""
    for one, other in zip(result, expected, strict=True):
        assert one[:2] == other[:2]
        assert one.score == pytest.approx(other.score, rel=rel, abs=rel / 10)


SETTINGS = [
    (0, searching(num_beams=6, num_beam_groups=3, max_new_tokens=7)),
    (1, searching(num_beams=6, num_beam_groups=2, sibling_penalty=2, max_new_tokens=5)),
    (2, searching(num_beams=5, num_beam_groups=5, diversity_penalty=4, max_new_tokens=6)),
]


@pytest.mark.slow(but=("t5-1-decoding1", "llama-0-decoding0", "gpt2-2-decoding2"))
@pytest.mark.parametrize(("seed", "decoding"), SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_candidates_are_those_of_the_slow_way(kind: str, seed: int, decoding: Search) -> None:
    earlier = ("The cat runs.", "The dog runs in the park.", "", "The cat")
    requests = [
        ParaphraseRequest(HYPOTHESES[seed], 0.3),
        ParaphraseRequest(HYPOTHESES[-1], 1.0, earlier),
        ParaphraseRequest(HYPOTHESES[seed + 2], 0.6, earlier[:1]),
        ParaphraseRequest(HYPOTHESES[seed], 0.5),
    ]
    assert len({len(prompt_ids(kind, r.hypothesis)) for r in requests}) == 3
    model = tiny_generator(kind, seed)
    result = generator(kind, decoding, model=model).candidates(requests)
    for request, candidates in zip(requests, result, strict=True):
        assert_same(candidates, slow(kind, request, decoding, model))


@pytest.mark.slow(but=("t5",))
@pytest.mark.parametrize("kind", KINDS)
def test_batches_change_nothing(kind: str) -> None:
    generate = generator(kind)
    requests = [ParaphraseRequest(h, 0.3 + 0.1 * (i % 4)) for i, h in enumerate(HYPOTHESES)]
    together = generate.candidates(requests)
    assert len({tuple(texts(candidates)) for candidates in together}) > 4
    for request, candidates in zip(requests, together, strict=True):
        assert_same(generate.candidates([request])[0], candidates)
    assert generate.candidates(requests) == together
    for candidates, other in zip(generate.candidates(requests[::-1])[::-1], together, strict=True):
        assert_same(candidates, other)


def with_bias(kind: str, **biases: float) -> Any:
    tokenizer, model = tiny_tokenizer(kind), tiny_generator(kind)
    ids = {tokenizer.convert_tokens_to_ids(token): bias for token, bias in biases.items()}
    biased = copy.deepcopy(model)

    def add(module: Any, inputs: Any, logits: torch.Tensor) -> torch.Tensor:
        for i, bias in ids.items():
            logits[..., i] += bias
        return logits

    biased.get_output_embeddings().register_forward_hook(add)
    return biased


@pytest.mark.parametrize(("kind", "end"), [("t5", "</s>"), ("llama-chat", "<|end|>")])
def test_ends(kind: str, end: str) -> None:
    """A text that ends at once is empty, and a text that never ends is truncated."""
    requests = [ParaphraseRequest(h, 0.5) for h in HYPOTHESES[:2]]
    greedy = searching(num_beams=1, num_beam_groups=1, max_new_tokens=5)
    at_once = generator(kind, greedy, model=with_bias(kind, **{end: 1e4}))
    assert at_once.candidates(requests) == [[Candidate("", True, 0.0)]] * 2
    never = generator(kind, SMALL, model=with_bias(kind, **{end: -1e4}))
    for candidates in never.candidates(requests):
        assert len(candidates) == 6
        assert not any(candidate.finished for candidate in candidates)
        assert all(candidate.text for candidate in candidates)


def test_special_tokens_are_no_text() -> None:
    request = ParaphraseRequest("A girl runs.", 0.5)
    for token in ("<extra_id_0>", "<s>", "<unk>"):
        model = with_bias("t5", **{token: 4.0})
        (result,) = generator("t5", model=model).candidates([request])
        assert_same(result, slow("t5", request, SMALL, model))
    tokenizer = tiny_tokenizer("llama-chat")
    tokenizer.add_special_tokens({"additional_special_tokens": ["Ġthe"]})
    (result,) = generator("llama-chat", tokenizer=tokenizer).candidates([request])
    assert not any("Ġthe" in text or " the " in text for text in texts(result))


def test_without_a_chat_template_a_line_is_an_answer() -> None:
    requests = [ParaphraseRequest(h, 0.5) for h in HYPOTHESES]
    base, chat = (
        [c for cs in generator(kind, model=likes).candidates(requests) for c in cs]
        for kind, likes in ((k, with_bias(k, Ċ=1.5)) for k in ("llama", "llama-chat"))
    )
    assert any(c.finished and c.text.endswith("\n") and c.text.strip() for c in base)
    assert any(c.finished and not c.text.endswith("\n") for c in base)
    assert not any("\n" in c.text.rstrip("\n") for c in base)
    assert any("\n" in c.text.rstrip("\n") for c in chat)
    end = tiny_tokenizer("llama").eos_token_id
    assert end in generator("llama").ends
    assert len(generator("llama").ends) > 1
    assert generator("llama-chat").ends == (end,)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts(kind: str) -> None:
    """The chat template is used if there is one, and then adds the only special tokens."""
    generate = generator(kind)
    for hypothesis in HYPOTHESES:
        assert generate._encode([hypothesis]) == [prompt_ids(kind, hypothesis)]
        assert generate.length(hypothesis) == len(prompt_ids(kind, hypothesis))
    other = generator(kind, prompt="Say {hypothesis} {anew}")
    assert generate.length("A dog.") - other.length("A dog.") > 5
    assert generate.describe().identity["chat_template"] == (kind == "llama-chat")


def test_odd_templates_and_prompts() -> None:
    tokenizer = tiny_tokenizer("llama-chat")
    tokenizer.chat_template = (
        CHAT + "{{ strftime_now('%d %b %Y') }}{% if enable_thinking == false %} quiet{% endif %}"
    )
    prompt = generator("llama-chat", tokenizer=tokenizer)._encode(["A dog."])[0]
    assert tokenizer.decode(prompt).endswith("[assistant]\n26 Jul 2024 quiet")
    with pytest.raises(ValueError, match=r"prompt: expected \{hypothesis\} where"):
        generator("t5", prompt="Say it")
    with pytest.raises(ValueError, match=f"fit the model's {CONTEXT} tokens .* 'dog dog"):
        generator("llama").candidates(
            [ParaphraseRequest("A dog.", 0.5), ParaphraseRequest("dog " * CONTEXT, 0.5)]
        )
    assert generator("t5").length("dog " * CONTEXT) > CONTEXT  # relative positions have no limit


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("generators")
    for kind in ("t5", "llama-chat"):
        saved_generator(kind, root / kind)
    return root


def load(
    folder: Path | str, config: Search = SMALL, *, gguf_file: str | None = None, **options: Any
) -> Generator:
    result = inspect(folder, TEXT_GENERATOR, gguf_file=gguf_file)
    return Generator(
        checkpoints.load(result, **{"device": "cpu", "dtype": "auto", **options}), config
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("t5", {"kind": "seq2seq", "architecture": "T5ForConditionalGeneration"}),
        ("llama-chat", {"kind": "causal", "architecture": "LlamaForCausalLM"}),
    ],
)
def test_folders(folders: Path, kind: str, expected: dict[str, str]) -> None:
    requests = [ParaphraseRequest(h, 0.45, ("The cat",)) for h in HYPOTHESES]
    loaded = load(folders / kind, dtype="float64")
    for result, other in zip(
        loaded.candidates(requests), generator(kind).candidates(requests), strict=True
    ):
        assert_same(result, other)
    described = load(folders / kind).describe().identity
    assert re.fullmatch(r"[0-9a-f]{64}", described.pop("revision"))
    assert set(described.pop("packages")) == {"torch", "transformers"}
    assert described == {
        **expected, "name": kind, "chat_template": kind == "llama-chat", "dtype": "float32",
        "device": "cpu", "batch_size": 26,
    }  # fmt: skip
    assert json.dumps(loaded.describe().identity)


def test_gguf_files(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    path = tmp_path / "tiny.gguf"
    write_llama(tiny_generator("llama-chat"), tiny_tokenizer("llama-chat"), path)
    requests = [ParaphraseRequest(h, 0.45) for h in HYPOTHESES]
    expected = generator("llama-chat").candidates(requests)
    for loaded in (load(path), load(tmp_path, gguf_file="tiny.gguf")):
        assert (loaded.name, loaded.describe().identity["kind"]) == ("tiny", "causal")
        assert loaded.describe().identity["chat_template"] is True
        assert len(loaded.describe().identity["revision"]) == 64
        for result, other in zip(loaded.candidates(requests), expected, strict=True):
            assert_same(result, other, rel=SINGLE)


@pytest.mark.slow
def test_gguf_files_of_encoder_decoders(tmp_path: Path) -> None:
    """Flan-T5's kind: the file's T5 tokenizer and its weights equal the originals."""
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    pieces = [token for token in tiny_tokenizer("t5").get_vocab() if token[0] not in "<"]
    vocabulary = [(token, 0.0) for token in ("<pad>", "</s>", "<unk>")]
    vocabulary += [(part, -float(i)) for i, part in enumerate(sorted(pieces), start=1)]
    tokenizer = T5Tokenizer(vocab=vocabulary, extra_ids=2)
    model = copy.deepcopy(tiny_generator("t5"))
    model.config.eos_token_id = model.generation_config.eos_token_id = 1
    write_t5(model, tokenizer, tmp_path / "tiny.gguf")
    loaded = load(tmp_path / "tiny.gguf")
    assert loaded.describe().identity["kind"] == "seq2seq"
    requests = [ParaphraseRequest(h, 0.45) for h in HYPOTHESES]
    expected = generator("t5", model=model, tokenizer=tokenizer).candidates(requests)
    for result, other in zip(loaded.candidates(requests), expected, strict=True):
        assert_same(result, other, rel=SINGLE)


def test_what_decoders_are_made_to_begin_with() -> None:
    model = with_bias("t5")
    model.generation_config.forced_bos_token_id = 40
    forced = generator("t5", model=model)
    assert forced.start == (0, 40)
    prompt = prompt_ids("t5", "A dog.")
    ends, never = ends_and_never("t5")
    expected = slow_search(
        lambda tokens: next_log_probs(model, prompt, (40, *tokens), 0.5), ends, never, SMALL
    )
    (result,) = forced.candidates([ParaphraseRequest("A dog.", 0.5)])
    assert texts(result) == [
        tiny_tokenizer("t5").decode(beam.tokens, skip_special_tokens=True) for beam in expected
    ]


@pytest.mark.real
@pytest.mark.slow
def test_a_real_model() -> None:
    """SmolLM2 writes some different sentences, and ends by itself."""
    hypotheses = ["A girl jumps high.", "The woman is cooking dinner for her family."]
    decoding = searching(num_beams=10, num_beam_groups=5, max_new_tokens=24)
    model = load(smollm2(), decoding)
    result = model.candidates([ParaphraseRequest(h, 0.45) for h in hypotheses])
    for hypothesis, candidates in zip(hypotheses, result, strict=True):
        ended = {clean(c.text, hypothesis) for c in candidates if c.finished}
        assert len(ended - {hypothesis, ""}) >= 5


VOCABULARY = 30
END, OTHER_END, SPECIAL = 3, 17, 8
ENDS, NEVER = (END, OTHER_END), (END, OTHER_END, SPECIAL)


@cache
def log_probs(request: int, tokens: Tokens) -> tuple[float, ...]:
    """A random distribution for every text of every request, in which ends are not rare."""
    rng = random.Random(repr((request, tokens)))
    logits = [rng.gauss(0, 2) for _ in range(VOCABULARY)]
    logits[END] += 1
    normaliser = math.log(sum(map(math.exp, logits)))
    return tuple(logit - normaliser for logit in logits)


class Table:
    """A `Stepper` with such distributions, which counts the requested rows."""

    vocabulary = VOCABULARY

    def __init__(self, requests: Sequence[int]) -> None:
        self._rows: list[tuple[int, Tokens]] = [(request, ()) for request in requests]
        self.asked: list[int] = []

    def start(self, k: int) -> Following:
        self.asked.append(len(self._rows))
        p = np.array([log_probs(*row) for row in self._rows])
        ends = p[:, ENDS]
        texts = p.copy()
        texts[:, NEVER] = -np.inf
        best = np.argsort(-texts, axis=1)[:, : min(k, VOCABULARY - len(NEVER))]
        end = ends.argmax(1)[:, None]
        return (
            np.hstack([np.array(ENDS)[end], best]),
            np.hstack([np.take_along_axis(ends, end, 1), np.take_along_axis(texts, best, 1)]),
        )

    def advance(self, rows: Ints, tokens: Ints, k: int) -> Following:
        self._rows = [
            (self._rows[row][0], (*self._rows[row][1], int(token)))
            for row, token in zip(rows, tokens, strict=True)
        ]
        return self.start(k)


SEARCHES: list[dict[str, Any]] = [
    {"num_beams": 12, "num_beam_groups": 4, "diversity_penalty": 1.0, "sibling_penalty": 0.5},
    {"num_beams": 12, "num_beam_groups": 12, "diversity_penalty": 0.3, "sibling_penalty": 0.5},
    {"num_beams": 6, "num_beam_groups": 1, "diversity_penalty": 1.0, "sibling_penalty": 0.7},
    {"num_beams": 6, "num_beam_groups": 2, "diversity_penalty": 0.0, "sibling_penalty": 0.0},
    {"num_beams": 8, "num_beam_groups": 2, "diversity_penalty": 5.0, "sibling_penalty": 0.0},
    {"num_beams": 1, "num_beam_groups": 1, "diversity_penalty": 0.0, "sibling_penalty": 0.0},
]


@pytest.mark.parametrize("most", [1, 4, 12])
@pytest.mark.parametrize("settings", SEARCHES)
def test_the_search_is_the_slow_one(settings: dict[str, Any], most: int) -> None:
    decoding = searching(**settings, max_new_tokens=most)
    rng = random.Random(most)
    earlier = [
        [[rng.randrange(VOCABULARY) for _ in range(rng.randrange(7))] for _ in range(n)]
        for n in (0, 3, 25, 0, 1)
    ]
    requests = range(most, most + len(earlier))
    result = search(Table(requests), decoding, earlier)
    assert len(result) == len(earlier)
    for request, texts, beams in zip(requests, earlier, result, strict=True):
        assert len(beams) == decoding.num_beams
        expected = slow_search(partial(log_probs, request), ENDS, NEVER, decoding, texts)
        assert_same(beams, expected)


def test_what_is_done_is_not_run() -> None:
    decoding = searching(**SEARCHES[0], max_new_tokens=40)
    table = Table(range(6))
    search(table, decoding, [()] * 6)
    assert table.asked[0] == 6
    assert table.asked[1] <= 6 * 12
    assert table.asked[1:] == sorted(table.asked[1:], reverse=True)
    assert table.asked[-1] < 6 * 12 / 4
    assert len(table.asked) < 40
    decoding = searching(**SEARCHES[0], max_new_tokens=4)
    ended = [beam.finished for beams in search(Table(range(20)), decoding, [()] * 20)
             for beam in beams]  # fmt: skip
    assert 0.2 < sum(ended) / len(ended) < 0.9
