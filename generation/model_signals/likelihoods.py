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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from generation.records import Span
from generation.suggestions.masked_lm import Input
from merge_dataset.answer_store import slug
from merge_dataset.files import digest_of
from merge_dataset.part_store import missing_parts, require_header, sound_parts, write_part
from merge_metric.models.checkpoints import Loaded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from generation.suggestions.masked_lm import MaskedLM

SCHEME: Final = "PLL-word-l2r"
CAUSAL_SCHEME: Final = "log-likelihood"

NEIGHBOURS_SCHEME: Final = "neighbours-3"
BESIDE: Final = 3
"""Number of neighbouring words on each side."""

_WORD: Final = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
"""Pattern of a word, or of a single punctuation mark."""

PART_SIZE: Final = 512
"""Number of sentences in a part; on a CPU, a killed run loses at most one part."""
_KEY: Final = np.dtype("S16")
_LAYOUT: Final = 1
"""Version of the files' layout and of how sentences are scored."""

_IDS_AT_ONCE: Final = 2**20
"""Token ids of masked sentences held at a time: enough to fill batches of equal length."""
_WINDOWS_REMEMBERED: Final = 2**18
"""Scores of windows kept for later texts, most of which differ in one word only."""

_ROWS_CPU, _ROWS = 8, 64
"""Rows of a causal LM's forward pass, on a CPU and elsewhere. The number is fixed, as matrix
kernels round differently for fewer rows; smaller batches are filled up with copies."""
_MOST_TOKENS: Final = 1024
"""Longest input, in tokens, of a causal LM that has no limit or a higher one."""


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Log-likelihoods of n sentences, or pseudo-log-likelihoods."""

    pll: NDArray[np.float64]
    """[n] Log-likelihoods, in nats."""
    windowed: NDArray[np.bool_]
    """[n] Whether tokens were scored within windows, as the sentence is too long for the model."""


def pseudo_log_likelihoods(mlm: MaskedLM, sentences: Sequence[str]) -> Likelihoods:
    """Score each sentence by itself, in nats; each token of a long one in a window around it."""
    encodings = mlm.encode(sentences)
    pll = np.zeros(len(sentences))
    windowed = np.array([len(each.ids) > mlm.max_tokens for each in encodings], np.bool_)
    # Sorted by length, to fill batches; windows have equal lengths, so long texts stay in order.
    order = sorted(range(len(pll)), key=lambda row: min(len(encodings[row].ids), mlm.max_tokens))
    tokens = (
        (row, *masked) for row in order for masked in _masked(sentences[row], encodings[row], mlm)
    )
    known: dict[bytes, float] = {}
    while some := _taken(tokens, _IDS_AT_ONCE):
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
    return Likelihoods(pll, windowed)


_MaskedToken = tuple[int, tuple[int, ...], int, int]
"""Row of a sentence, ids with one of its tokens masked, the token's position, and its id."""


def _taken(tokens: Iterator[_MaskedToken], most: int) -> list[_MaskedToken]:
    """Take masked tokens until their inputs have `most` ids; an empty list at the end."""
    taken: list[_MaskedToken] = []
    size = 0
    for each in tokens:
        taken.append(each)
        size += len(each[1])
        if size >= most:
            break
    return taken


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

    def log_likelihoods(self, sentences: Sequence[str]) -> Likelihoods:
        """Score each sentence by itself, in nats; a long one in windows that overlap by half."""
        from merge_metric.models.batch_threads import on_single_threads

        # "<s>" in a text is split into ordinary tokens: it does not start another text.
        encoded = self._tokenizer(
            list(sentences), add_special_tokens=False, split_special_tokens=True
        ).input_ids
        total = np.zeros(len(sentences))
        # (length, row, ids with the start token first, index of the first score that counts)
        pieces: list[tuple[int, int, list[int], int]] = []
        width = self.max_tokens - 1
        for row, ids in enumerate(encoded):
            start = done = 0
            while done < len(ids):
                window = [self._start, *ids[start : start + width]]
                pieces.append((len(window), row, window, done - start))
                done = start + width
                start += width // 2
        pieces.sort(key=lambda piece: piece[:2])
        rows = _ROWS_CPU if self.device == "cpu" else _ROWS
        batches = [
            of_length[start : start + rows]
            for _, same in groupby(pieces, key=lambda piece: piece[0])
            for of_length in [list(same)]
            for start in range(0, len(of_length), rows)
        ]
        inputs = ([ids for _, _, ids, _ in batch] for batch in batches)
        found = on_single_threads(partial(self._run, rows=rows), inputs, self.device)
        for batch, scores in zip(batches, found, strict=True):
            for (_, row, _, first), own in zip(batch, scores, strict=True):
                total[row] += own[first:].sum()
        return Likelihoods(
            total, np.array([len(ids) >= self.max_tokens for ids in encoded], np.bool_)
        )

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


def neighbour_changes(mlm: MaskedLM, items: Sequence[str]) -> Likelihoods:
    """Return [items] the most negative change of a neighbour's log-probability, in nats.

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
    windowed = np.array([each.windowed for each in inputs], np.bool_)
    changes = [
        [log_probs[after].sum() - log_probs[before].sum() for before, after in of_item]
        for of_item in asked
    ]
    return Likelihoods(
        np.array([min(each, default=np.nan) for each in changes], np.float64),
        np.array(
            [any(windowed[n].any() for pair in each for n in pair) for each in asked], np.bool_
        ),
    )


def neighbours(text: str, spans: Sequence[Sequence[int]]) -> list[Span]:
    """Find the words of a text within three words of a span, in order, without the spans.

    >>> [slice(*span) for span in neighbours("A set of youths is singing a new song.", [(2, 5)])]
    [slice(0, 1, None), slice(6, 8, None), slice(9, 15, None), slice(16, 18, None)]
    """
    words = [match.span() for match in _WORD.finditer(text)]
    found = set[Span]()
    for start, end in spans:
        before = [word for word in words if word[1] <= start]
        after = [word for word in words if word[0] >= end]
        found.update((*before[-BESIDE:], *after[:BESIDE]))
    return sorted(
        (start, end)
        for start, end in found
        if not any(start < stop and first < end for first, stop in spans)
    )


def item_of(old: str, old_spans: Sequence[Span], new: str, new_spans: Sequence[Span]) -> str:
    """Write a text before and after a replacement, with the spans replaced, as one key."""
    return json.dumps([[old, old_spans], [new, new_spans]], ensure_ascii=False)


# --- On disk ---


class LikelihoodStore:
    """Store of one model's likelihoods."""

    def __init__(self, root: Path, identity: Mapping[str, str]) -> None:
        """Open a model's store, or make it; each identity has a store of its own."""
        described = {"scheme": SCHEME, "layout": _LAYOUT, **identity}
        self.path = root / f"{slug(identity['name'])}-{digest_of(described)[:12]}"
        self.identity = dict(identity)
        require_header(self.path, self.identity, contents="likelihoods", redo="merge-nli signals")
        self._keys = np.empty(0, _KEY)
        self._known = Likelihoods(np.empty(0), np.empty(0, np.bool_))
        self._parts = [pq.read_table(path) for path in sound_parts(self.path / "parts")]
        """Parts that are not yet sorted into the known likelihoods."""

    def missing(
        self, sentences: Iterable[str], wanted: Callable[[int], bool] = lambda number: True
    ) -> list[list[str]]:
        """Group the sentences without a likelihood into parts to be written."""
        distinct = list(dict.fromkeys(sentences))
        _, known = self._find([_key(sentence) for sentence in distinct])
        items = list(zip(distinct, known.tolist(), strict=True))
        parts = missing_parts(items, lambda item: item[1], size=PART_SIZE, wanted=wanted)
        return [[sentence for sentence, _ in part] for part in parts]

    def add(self, parts: Sequence[Sequence[str]], found: Likelihoods) -> None:
        """Write parts, with the likelihoods of their sentences in order."""
        start = 0
        for sentences in parts:
            keys, end = [_key(sentence) for sentence in sentences], start + len(sentences)
            columns = {
                "key": pa.array(keys, pa.binary(_KEY.itemsize)),
                "pll": pa.array(found.pll[start:end]),
                "windowed": pa.array(found.windowed[start:end]),
            }
            name, start = digest_of([key.hex() for key in keys])[:16], end
            write_part(self.path / "parts", name, pa.table(columns))
            self._parts.append(pa.table(columns))

    def of(self, sentences: Sequence[str]) -> Likelihoods:
        """Return the likelihoods of sentences, in their order."""
        rows, known = self._find([_key(sentence) for sentence in sentences])
        if not known.all():
            raise ValueError(
                f"{self.path}: expected likelihoods of all texts of the build, "
                f"{(~known).sum()} are missing; run the same command again"
            )
        return Likelihoods(self._known.pll[rows], self._known.windowed[rows])

    def _find(self, keys: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return [n] places among the known keys, and [n] whether each key is known."""
        if self._parts:
            found = [np.array(part["key"].to_pylist(), _KEY) for part in self._parts]
            pll = np.concatenate([self._known.pll, *(p["pll"].to_numpy() for p in self._parts)])
            windowed = [self._known.windowed, *(p["windowed"].to_numpy() for p in self._parts)]
            self._keys, first = np.unique(np.concatenate([self._keys, *found]), return_index=True)
            self._known = Likelihoods(pll[first], np.concatenate(windowed)[first])
            self._parts = []
        wanted = np.array(keys, _KEY)
        rows = np.searchsorted(self._keys, wanted)
        if not len(self._keys):
            return rows, np.zeros(len(wanted), np.bool_)
        known: NDArray[np.bool_] = self._keys[np.minimum(rows, len(self._keys) - 1)] == wanted
        return rows, known


def _key(sentence: str) -> bytes:
    return blake2b(sentence.encode(), digest_size=_KEY.itemsize).digest()
