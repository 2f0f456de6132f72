"""Log-likelihoods of sentences, and of the words around replacements, by LMs; kept on disk.

For a causal LM: the sum over tokens of log P(token | previous tokens), in nats. For a masked LM:
PLL-word-l2r of Kauf and Ivanova (2023, arXiv 2305.10588), in which a token is scored with itself
and the later tokens of its word masked, so that a word's last pieces do not give away its first.

Around a replacement, three words on each side are masked, one at a time, in the new text and in the
seed's. The word whose log-probability falls most counts for a text; the mean is taken over texts
and over masked LMs (signals.md says what it is worth).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from generation.records import Span
from generation.suggestions.masked_lm import Input
from merge_dataset.answer_store import AnswerStore
from merge_metric.models.checkpoints import Loaded

if TYPE_CHECKING:
    from generation.suggestions.masked_lm import MaskedLM

SCHEME: Final = "PLL-word-l2r"
CAUSAL_SCHEME: Final = "log-likelihood"

NEIGHBOURS_SCHEME: Final = "neighbours-3"
BESIDE: Final = 3
"""Number of neighbouring words on each side."""

_WORD: Final = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
"""Pattern of a word, or of a single punctuation mark."""

_TOKENS_AT_ONCE: Final = 2**13
"""Masked tokens held at a time, each with its sentence: enough to fill batches of equal length."""
_WINDOWS_REMEMBERED: Final = 2**18
"""Scores of windows kept for later texts, most of which differ in one word only."""

_ROWS_CPU, _ROWS = 8, 64
"""Rows of a causal LM's forward pass, on a CPU and elsewhere. The number is fixed, as matrix
kernels round differently for fewer rows; smaller batches are filled up with copies."""
_MOST_TOKENS: Final = 1024
"""Longest input, in tokens, of a causal LM that has no limit or a higher one."""


_SCORES: Final = pa.schema([("pll", pa.float64()), ("windowed", pa.bool_())])
"""Log-likelihoods of sentences, or pseudo-log-likelihoods, in nats; and whether tokens were scored
within windows, as the sentence is too long for the model."""


def likelihood_store(root: Path, identity: Mapping[str, str]) -> AnswerStore:
    """Open one model's likelihoods among others'."""
    return AnswerStore(root, {"scheme": SCHEME, **identity}, _SCORES, redo="merge-nli signals")


def pseudo_log_likelihoods(mlm: MaskedLM, sentences: Sequence[str]) -> pa.Table:
    """Return `pll` and `windowed` of each sentence; tokens of a long one in windows around them."""
    encodings = mlm.encode(sentences)
    pll = np.zeros(len(sentences))
    windowed = np.array([len(encoding.ids) > mlm.max_tokens for encoding in encodings], np.bool_)
    # Sorted by length, to fill batches; windows have equal lengths, so long texts stay in order.
    order = sorted(range(len(pll)), key=lambda row: min(len(encodings[row].ids), mlm.max_tokens))
    tokens = (
        (row, *masked) for row in order for masked in _masked(sentences[row], encodings[row], mlm)
    )
    known: dict[bytes, float] = {}
    while some := list(islice(tokens, _TOKENS_AT_ONCE)):
        rows = [row for row, *_ in some]
        keys = [
            blake2b(np.array([at, token, *ids], np.int32).tobytes(), digest_size=16).digest()
            if windowed[row]
            else b""
            for row, (_, ids, at, token) in zip(rows, some, strict=True)
        ]
        log_probs = np.array([known.get(key, np.nan) for key in keys])
        new = np.flatnonzero(np.isnan(log_probs)).tolist()
        inputs = [Input(n, *some[place][1:], bool(windowed[rows[place]]))
                  for n, place in enumerate(new)]  # fmt: skip
        log_probs[new] = mlm.log_probs(inputs)
        if len(known) > _WINDOWS_REMEMBERED:
            known.clear()
        known.update((keys[place], log_probs[place]) for place in new if keys[place])
        # Adds in the order of the tokens, so that the sum is the same to the bit.
        np.add.at(pll, rows, log_probs)
    return pa.table([pll, windowed], schema=_SCORES)


def _masked(
    sentence: str, encoding: Any, mlm: MaskedLM
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Yield for each token ids with it and the rest of its word masked, its position and id."""
    ends = word_ends(sentence, encoding)
    for i, token in enumerate(encoding.ids):
        if encoding.special_tokens_mask[i]:
            continue
        ids = list(encoding.ids)
        ids[i : ends[i]] = [mlm.mask_id] * (ends[i] - i)
        kept, position = mlm.fitted(ids, i, encoding)
        yield kept, position, token


def word_ends(sentence: str, encoding: Any) -> list[int]:
    """Return for each token its word's end, a token index; punctuation splits words ("air.")."""
    # A token of white space alone, such as "▁", belongs to the next token, mostly of a word.
    words = [
        (number, (text := sentence[start:end].strip()).isalnum() or not text)
        for number, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True)
    ]
    ends = list(range(1, len(words) + 1))
    for i in reversed(range(len(words) - 1)):
        if words[i] == words[i + 1] and words[i][0] is not None:
            ends[i] = ends[i + 1]
    return ends


class CausalLM:
    """A causal language model that scores sentences."""

    def __init__(self, loaded: Loaded) -> None:
        """Wrap a live `*ForCausalLM`."""
        model, tokenizer, name, self.revision, _ = loaded
        self.name = name
        self.architecture = type(model).__name__
        self.device = str(model.device.type)
        self.dtype = str(model.dtype).removeprefix("torch.")
        self._model, self._tokenizer = model.eval(), tokenizer
        # The BOS token of chat models begins a turn. Texts in their earlier training began with
        # `<|endoftext|>`, if they have it.
        ends = tokenizer.bos_token_id, tokenizer.eos_token_id
        starts = (tokenizer.get_vocab().get("<|endoftext|>"), *ends)
        start = next((token for token in starts if token is not None), None)
        if start is None:
            raise ValueError(
                f"{name}: expected a tokenizer with a token that begins or ends texts, found none; "
                "name another model with --lm, or a masked LM with --mlm"
            )
        self._start = int(start)
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.max_tokens = min(int(limit or _MOST_TOKENS), _MOST_TOKENS)

    def log_likelihoods(self, sentences: Sequence[str]) -> pa.Table:
        """Return `pll` and `windowed` of each sentence; a long one in windows half overlapping."""
        from merge_metric.models.fast_layers import on_single_threads

        # "<s>" in a text is split into ordinary tokens: it does not start another text.
        encoded = self._tokenizer(
            list(sentences), add_special_tokens=False, split_special_tokens=True
        ).input_ids
        total = np.zeros(len(sentences))
        # (length, row, ids with the start token first, index of the first score that counts)
        windows: list[tuple[int, int, list[int], int]] = []
        width = self.max_tokens - 1
        for row, ids in enumerate(encoded):
            start = done = 0
            while done < len(ids):
                window = [self._start, *ids[start : start + width]]
                windows.append((len(window), row, window, done - start))
                done = start + width
                start += width // 2
        windows.sort(key=lambda window: window[:2])
        rows = _ROWS_CPU if self.device == "cpu" else _ROWS
        batches = [
            of_length[start : start + rows]
            for _, same in groupby(windows, key=lambda window: window[0])
            for of_length in [list(same)]
            for start in range(0, len(of_length), rows)
        ]
        inputs = ([ids for _, _, ids, _ in batch] for batch in batches)
        log_probs = on_single_threads(partial(self._run, rows=rows), inputs, self.device)
        for batch, scores in zip(batches, log_probs, strict=True):
            for (_, row, _, first), own in zip(batch, scores, strict=True):
                total[row] += own[first:].sum()
        return pa.table([total, [len(ids) >= self.max_tokens for ids in encoded]], schema=_SCORES)

    def _run(self, inputs: Sequence[Sequence[int]], rows: int) -> np.ndarray[Any, Any]:
        """Return [n, tokens − 1] log P of all tokens but the first, in float64."""
        import torch

        padded = [*inputs, *[inputs[-1]] * (rows - len(inputs))]
        ids = torch.tensor(padded, device=self._model.device)
        if ids.shape[1] < 2:
            return np.zeros((len(inputs), 0))
        with torch.inference_mode():
            logits = self._model(input_ids=ids, use_cache=False).logits[:, :-1].float()
            chosen = logits.gather(2, ids[:, 1:, None])[..., 0]
            log_probs = chosen - logits.logsumexp(2)
        scores: np.ndarray[Any, Any] = log_probs[: len(inputs)].double().cpu().numpy()
        return scores


# --- Words beside replacements ---


def neighbour_changes(mlm: MaskedLM, items: Sequence[str]) -> pa.Table:
    """Return as `pll` the most negative change of a neighbour's log-probability, in nats.

    Items are as `item_of` writes them; NaN where the text has no other word. The
    log-probabilities of a word's tokens are summed, as in PLL-word-l2r. Each distinct masked text
    is scored once.
    """
    parsed = [json.loads(item) for item in items]
    texts = list(dict.fromkeys(side[0] for item in parsed for side in item))
    encodings = dict(zip(texts, mlm.encode(texts), strict=True))
    inputs: list[Input] = []
    known: dict[tuple[str, Span], range] = {}

    def ask(text: str, word: Span) -> range:
        if (text, word) not in known:
            first, encoding = len(inputs), encodings[text]
            tokens = [
                n
                for n, (start, end) in enumerate(encoding.offsets)
                if start < word[1] and word[0] < end and not encoding.special_tokens_mask[n]
            ]
            for place, token in enumerate(tokens):
                ids = list(encoding.ids)
                for later in tokens[place:]:
                    ids[later] = mlm.mask_id
                kept, position = mlm.fitted(ids, token, encoding)
                is_cut = len(kept) < len(ids)
                inputs.append(Input(len(inputs), kept, position, encoding.ids[token], is_cut))
            known[text, word] = range(first, len(inputs))
        return known[text, word]

    asked = [
        [
            (ask(old, before), ask(new, after))
            for before, after in zip(
                neighbours(old, old_spans), neighbours(new, new_spans), strict=True
            )
        ]
        for (old, old_spans), (new, new_spans) in parsed
    ]
    log_probs = mlm.log_probs(inputs).astype(np.float64)
    pll, windowed = [], []
    for of_item in asked:
        changes = [log_probs[after].sum() - log_probs[before].sum() for before, after in of_item]
        pll.append(min(changes, default=np.nan))
        windowed.append(any(inputs[n].windowed for n in chain.from_iterable(chain(*of_item))))
    return pa.table([np.array(pll, np.float64), pa.array(windowed, pa.bool_())], schema=_SCORES)


def neighbours(text: str, spans: Sequence[Sequence[int]]) -> list[Span]:
    """Find the words of a text within three words of a span, in order, without the spans.

    >>> [slice(*span) for span in neighbours("A set of youths is singing a new song.", [(2, 5)])]
    [slice(0, 1, None), slice(6, 8, None), slice(9, 15, None), slice(16, 18, None)]
    """
    words = [match.span() for match in _WORD.finditer(text)]
    words_beside = set[Span]()
    for start, end in spans:
        before = [word for word in words if word[1] <= start]
        after = [word for word in words if word[0] >= end]
        words_beside.update((*before[-BESIDE:], *after[:BESIDE]))
    return sorted(
        (start, end)
        for start, end in words_beside
        if not any(start < stop and first < end for first, stop in spans)
    )


def item_of(old: str, old_spans: Sequence[Span], new: str, new_spans: Sequence[Span]) -> str:
    """Write a text before and after a replacement, with the spans replaced, as one key."""
    return json.dumps([[old, old_spans], [new, new_spans]], ensure_ascii=False)
