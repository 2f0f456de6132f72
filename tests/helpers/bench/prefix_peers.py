"""Peers that read few-shot examples once: llama.cpp, and transformers with a batch of prompts."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from helpers.bench.exported import quickest

_AT_ONCE: Final = (1, 8)
_TRIED: Final = 8

Found = Callable[[], list[list[float]]]


def llama_cpp(
    gguf: str, prefix: list[int], questions: list[list[int]], letters: list[list[int]]
) -> Callable[..., Found]:
    """llama.cpp: probabilities of the letters; `letters` has the tokens of each letter's forms."""
    import llama_cpp as cpp
    import numpy as np

    cpp.llama_backend_init()
    model = cpp.llama_model_load_from_file(gguf.encode(), cpp.llama_model_default_params())
    words = cpp.llama_vocab_n_tokens(cpp.llama_model_get_vocab(model))
    longest = max(len(question) for question in questions)

    def asks(at_once: int, flash: int) -> Callable[[Sequence[int]], dict[int, Any]]:
        params = cpp.llama_context_default_params()
        params.n_threads = params.n_threads_batch = 1
        params.n_batch = params.n_ubatch = max(len(prefix), at_once * longest)
        params.n_ctx = len(prefix) + at_once * longest
        params.n_seq_max, params.kv_unified, params.flash_attn_type = at_once + 1, True, flash
        context = cpp.llama_init_from_model(model, params)
        memory = cpp.llama_get_memory(context)

        def read(rows: Sequence[list[int]], first: int, start: int) -> list[Any]:
            """Read sequences, numbered from `first`, at position `start`; return last logits."""
            batch = cpp.llama_batch_init(sum(map(len, rows)), 0, 1)
            batch.n_tokens, ends = 0, []
            for number, row in enumerate(rows, first):
                for place, token in enumerate(row, start):
                    i = batch.n_tokens
                    batch.token[i], batch.pos[i] = token, place
                    batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, number, 0
                    batch.n_tokens += 1
                batch.logits[batch.n_tokens - 1] = 1
                ends.append(batch.n_tokens - 1)
            if cpp.llama_decode(context, batch):
                raise RuntimeError("expected llama.cpp to read a batch, it did not")
            cpp.llama_batch_free(batch)
            logits = [cpp.llama_get_logits_ith(context, end) for end in ends]
            return [np.ctypeslib.as_array(logit, (words,)).copy() for logit in logits]

        read([prefix], 0, 0)

        def ask(rows: Sequence[int]) -> dict[int, Any]:
            result: dict[int, Any] = {}
            for first in range(0, len(rows), at_once):
                some = rows[first : first + at_once]
                for number in range(len(some)):
                    cpp.llama_memory_seq_cp(memory, 0, number + 1, -1, -1)
                result |= zip(some, read([questions[i] for i in some], 1, len(prefix)), strict=True)
                for number in range(len(some)):
                    cpp.llama_memory_seq_rm(memory, number + 1, -1, -1)
            return result

        return ask

    ways = [asks(at_once, flash) for at_once in _AT_ONCE for flash in (0, 1)]
    return _answer(ways, questions, letters)


def transformers(
    gguf: str, prefix: list[int], questions: list[list[int]], letters: list[list[int]]
) -> Callable[..., Found]:
    """transformers: a padded batch of questions after the examples' keys and values."""
    import copy
    from pathlib import Path

    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    torch.set_num_threads(1)
    model: Any = AutoModelForCausalLM.from_pretrained(
        Path(gguf).parent, gguf_file=Path(gguf).name, dtype=torch.float32
    ).eval()
    cache = DynamicCache()
    with torch.inference_mode():
        model(torch.tensor([prefix]), past_key_values=cache, logits_to_keep=1)

    def asks(at_once: int) -> Callable[[Sequence[int]], dict[int, Any]]:
        def ask(rows: Sequence[int]) -> dict[int, Any]:
            result: dict[int, Any] = {}
            order = sorted(rows, key=lambda i: len(questions[i]))
            for first in range(0, len(order), at_once):
                some = order[first : first + at_once]
                last = [len(questions[i]) - 1 for i in some]
                kept = sorted(set(last))
                padded = [questions[i] + [0] * (last[-1] + 1 - len(questions[i])) for i in some]
                own = copy.deepcopy(cache)
                own.batch_repeat_interleave(len(some))
                with torch.inference_mode():
                    logits = model(
                        torch.tensor(padded), past_key_values=own, logits_to_keep=torch.tensor(kept)
                    ).logits
                result |= {
                    i: logits[row, kept.index(last[row])].numpy() for row, i in enumerate(some)
                }
            return result

        return ask

    return _answer([asks(n) for n in _AT_ONCE], questions, letters)


def _answer(
    ways: Sequence[Callable[[Sequence[int]], dict[int, Any]]],
    questions: Sequence[Any],
    letters: list[list[int]],
) -> Callable[..., Found]:
    import numpy as np

    ask = quickest(lambda way: way(range(min(_TRIED, len(questions)))), ways)

    def answer() -> Found:
        logits = ask(range(len(questions)))

        def probabilities() -> list[list[float]]:
            rows = np.array([logits[i][letters] for i in range(len(questions))], np.float64)
            odds = np.exp(rows - rows.max((1, 2), keepdims=True)).sum(1)
            return (odds / odds.sum(1, keepdims=True)).tolist()

        return probabilities

    return answer


# --- Log-likelihoods of some tokens of texts: (ids, first and last position) of each ---

Scored = list[tuple[list[int], int, int]]


def whole_texts(gguf: str, texts: Scored) -> Callable[[], list[float]]:
    """transformers, with padded batches of texts that are sorted by length."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    folder, _, name = gguf.rpartition("/")
    model: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    order = sorted(range(len(texts)), key=lambda n: len(texts[n][0]))

    def ask(size: int, rows: Sequence[int] = order) -> list[float]:
        result = [0.0] * len(texts)
        for first in range(0, len(rows), size):
            some = rows[first : first + size]
            longest = len(texts[some[-1]][0])
            padded = [texts[n][0] + [0] * (longest - len(texts[n][0])) for n in some]
            with torch.inference_mode():
                logits = model(torch.tensor(padded), use_cache=False).logits
            for n, of_row in zip(some, logits, strict=True):
                ids, start, end = texts[n]
                log_probs = of_row[start - 1 : end - 1].log_softmax(-1)
                result[n] = float(log_probs[range(end - start), ids[start:end]].sum())
        return result

    size = quickest(lambda size: ask(size, order[::20]), (1, 8, 16))
    return lambda: ask(size)


def llama_cpp_likelihoods(gguf: str, texts: Scored) -> Callable[[], list[float]]:
    """llama.cpp, in alphabetical order, so that it keeps what a text shares with the last one."""
    import llama_cpp as cpp
    import numpy as np

    longest = max(len(ids) for ids, _, _ in texts)
    lm = cpp.Llama(gguf, n_ctx=longest, n_batch=longest, n_threads=1, n_threads_batch=1,
                   logits_all=True, verbose=False)  # fmt: skip
    order = sorted(range(len(texts)), key=lambda n: texts[n][0])

    def answer() -> list[float]:
        result, before = [0.0] * len(texts), list[int]()
        lm.reset()
        for n in order:
            ids, start, end = texts[n]
            pairs = enumerate(zip(ids, before, strict=False))
            shared = next((i for i, (a, b) in pairs if a != b), min(len(ids), len(before)))
            lm.n_tokens = min(shared, len(ids) - 1)
            lm.eval(ids[lm.n_tokens :])
            logits = np.array(lm.scores[start - 1 : end - 1], np.float64)
            odds = logits - logits.max(1, keepdims=True)
            log_probs = odds - np.log(np.exp(odds).sum(1, keepdims=True))
            result[n] = float(log_probs[range(end - start), ids[start:end]].sum())
            before = ids
        return result

    return answer
