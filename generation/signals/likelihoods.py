"""Log-likelihoods of sentences, and of the words around replacements, by LMs; kept on disk.

For a causal LM: the sum of log P(token | previous tokens), in nats, over the tokens that a
replacement changes and the two after them, minus that of the seed's; what stands before them is
run once for all replacements. For judging variants it is as good as whole texts (signals.md).

For a masked LM: PLL-word-l2r of Kauf and Ivanova (2023, arXiv 2305.10588), in which a token is
scored with itself and the later tokens of its word masked, so that a word's last pieces do not give
away its first.

Around a replacement, three words on each side are masked, one at a time, in the new text and in the
seed's. The word whose log-probability falls most counts for a text; the mean is taken over texts
and over masked LMs (signals.md says what it is worth).
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain, groupby, islice
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import torch

from generation.records import Span
from generation.suggestions.masked_lm import Input, MaskedLM
from merge_metric.models import fast_layers
from merge_metric.models.checkpoints import Loaded
from merge_metric.models.prompts import common_prefix

SCHEME: Final = "PLL-word-l2r"
CAUSAL_SCHEME: Final = "log-likelihood-2"

NEIGHBOURS_SCHEME: Final = "neighbours-3"
BESIDE: Final = 3
"""Number of neighbouring words on each side."""

_WORD: Final = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
"""Pattern of a word, or of a single punctuation mark."""

_TOKENS_AT_ONCE: Final = 2**13
"""Masked tokens held at a time, each with its sentence: enough to fill batches of equal length."""

FOLLOWING: Final = 2
"""Number of tokens after a replacement of which a causal LM's log-likelihood is the sum."""
_TOKENS_CPU, _TOKENS = 128, 2048
"""Most tokens of a causal LM's forward pass, on a CPU and elsewhere: with a large vocabulary, the
logits of each take a megabyte."""
_MOST_TOKENS: Final = 1024
"""Longest input, in tokens, of a causal LM that has no limit or a higher one."""

_Ids = tuple[int, ...]
_Row = TypeVar("_Row")

SCORES: Final = pa.schema([("pll", pa.float64()), ("windowed", pa.bool_())])
"""Log-likelihoods of sentences, or pseudo-log-likelihoods, in nats; and whether tokens were scored
within windows, as the sentence is too long for the model."""


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
        # Scores are kept for later texts, as most windows of long texts differ in one word only.
        if len(known) > 2**18:
            known.clear()
        numbers = (np.array([at, token, *ids], np.int32) for _, ids, at, token in some)
        keys = [blake2b(array.tobytes(), digest_size=16).digest() for array in numbers]
        new = {key: masked for key, masked in zip(keys, some, strict=True) if key not in known}
        inputs = [
            Input(n, ids, position, token, bool(windowed[row]))
            for n, (row, ids, position, token) in enumerate(new.values())
        ]
        known.update(zip(new, mlm.log_probs(inputs).tolist(), strict=True))
        # Adds in the order of the tokens, so that the sum is the same to the bit.
        np.add.at(pll, [row for row, *_ in some], [known[key] for key in keys])
    return pa.table([pll, windowed], schema=SCORES)


def _masked(
    sentence: str, encoding: Any, mlm: MaskedLM
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Yield for each token ids with it and the rest of its word masked, its position and id.

    Punctuation splits words ("air."). A token of white space alone, such as "▁", belongs to the
    next token, mostly of a word.
    """
    words = [
        (number, (text := sentence[start:end].strip()).isalnum() or not text)
        for number, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True)
    ]
    ends = list(range(1, len(words) + 1))
    for i in reversed(range(len(words) - 1)):
        if words[i] == words[i + 1] and words[i][0] is not None:
            ends[i] = ends[i + 1]
    for i, token in enumerate(encoding.ids):
        if encoding.special_tokens_mask[i]:
            continue
        ids = list(encoding.ids)
        ids[i : ends[i]] = [mlm.mask_id] * (ends[i] - i)
        kept, position = mlm.fitted(ids, i, encoding)
        yield kept, position, token


class CausalLM:
    """A causal language model that scores replacements."""

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
        self._start = next(int(token) for token in starts if token is not None)
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.max_tokens = min(int(limit or _MOST_TOKENS), _MOST_TOKENS)
        self._shares = fast_layers.unsupported(model) is None
        # Where texts change each other's results by rounding, each is run by itself.
        self._most = (
            fast_layers.tokens_for(model, _TOKENS_CPU, _TOKENS)
            if fast_layers.keeps_apart(model)
            else 1
        )

    def changes(self, items: Sequence[str]) -> pa.Table:
        """Return as `pll` the change of log-likelihood by each replacement, in nats.

        Items are as `item_of` writes them. `windowed` are those of long texts, of which tokens
        far from the first change are left out.
        """
        pairs = [[text for text, _ in json.loads(item)] for item in items]
        texts = list(dict.fromkeys(chain.from_iterable(pairs)))
        # "<s>" in a text is split into ordinary tokens: it does not start another text.
        encoded = self._tokenizer(texts, add_special_tokens=False, split_special_tokens=True)
        ids = dict(zip(texts, encoded.input_ids, strict=True))
        half, asked, windowed = self.max_tokens // 2, [], []
        ends_of = defaultdict[_Ids, dict[_Ids, None]](dict)
        for sides in ([ids[text] for text in pair] for pair in pairs):
            same = len(common_prefix(sides))
            after = len(common_prefix([side[same:][::-1] for side in sides]))
            ends = [tuple(side[same : len(side) - after + FOLLOWING]) for side in sides]
            beginning = (self._start, *sides[0][max(0, same + 1 - half) : same])
            windowed.append(max(same + 1, *map(len, ends)) > half)
            asked.append([(beginning, end[:half]) for end in ends])
            ends_of[beginning].update((end, None) for _, end in asked[-1])
        batches = [
            some
            for length, group in groupby(sorted(ends_of, key=len), key=len)
            for some in _parts(list(group), self._most // length)
        ]
        scores: dict[tuple[_Ids, _Ids], float] = {}
        for of_batch in fast_layers.on_single_threads(
            partial(self._run, ends_of), batches, self.device
        ):
            scores |= of_batch
        pll = [scores[after] - scores[before] for before, after in asked]
        return pa.table([np.array(pll, np.float64), pa.array(windowed, pa.bool_())], schema=SCORES)

    def _run(
        self, ends_of: Mapping[_Ids, Iterable[_Ids]], beginnings: Sequence[_Ids]
    ) -> dict[tuple[_Ids, _Ids], float]:
        """Return log P of the ends of beginnings of equal length, by beginning and end."""
        rows = [(n, end) for n, beginning in enumerate(beginnings) for end in ends_of[beginning]]
        rows.sort(key=lambda row: len(row[1]))
        result = {}
        with torch.inference_mode():
            if self._shares:
                # Layers of a single row round differently, so there are two.
                cache = fast_layers.PrefixCache(
                    self._model, [*beginnings, *beginnings[: len(beginnings) == 1]]
                )
                # A first token follows the beginning, whose logits serve all of its ends.
                firsts = [(of_one := row.float())[0] - of_one.logsumexp(1) for row in cache.logits]
            for length, group in groupby(rows, key=lambda row: len(row[1])):
                for some in _parts(list(group), self._most // max(1, length)):
                    places, ends = map(list, zip(*some, strict=True))
                    if not self._shares:
                        whole = [(*beginnings[n], *end[:-1]) for n, end in some]
                        logits = self._logits(whole, use_cache=False)[:, -length:]
                    elif length > 1:
                        own = {"past_key_values": cache.first(cache.length, places)}
                        logits = self._logits([end[:-1] for end in ends], use_cache=True, **own)
                    else:
                        logits = cache.logits[places, :0]
                    asked = length - logits.shape[1]
                    # Row by row, so that a large vocabulary's logits stay in the cache.
                    for n, end, of_row in zip(places, ends, logits, strict=True):
                        of_row = of_row.float()
                        log_probs = of_row[range(len(of_row)), end[asked:]] - of_row.logsumexp(1)
                        if asked:
                            log_probs = torch.cat([firsts[n][list(end[:1])], log_probs])
                        result[beginnings[n], end] = float(log_probs.double().sum())
        return result

    def _logits(self, rows: Sequence[_Ids], **options: Any) -> torch.Tensor:
        ids = torch.tensor(rows, device=self._model.device)
        ids = ids.expand(2, -1) if ids.numel() == 1 else ids
        logits: torch.Tensor = self._model(ids, **options).logits
        return logits[: len(rows)]


def _parts(rows: Sequence[_Row], size: int) -> Iterator[Sequence[_Row]]:
    size = max(1, size)
    return (rows[start : start + size] for start in range(0, len(rows), size))


# --- Words beside replacements ---


def neighbour_changes(mlm: MaskedLM, items: Sequence[str]) -> pa.Table:
    """Return as `pll` the most negative change of a neighbour's log-probability, in nats.

    Items are as `item_of` writes them; NaN where the text has no other word. The log-probabilities
    of a word's tokens are summed, as in PLL-word-l2r.
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
    return pa.table([np.array(pll, np.float64), pa.array(windowed, pa.bool_())], schema=SCORES)


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
