"""Likelihoods of sentences: by a masked LM, or a causal one, and kept on disk.

Kauf and Ivanova (2023, arXiv 2305.10588), PLL-word-l2r: a token is scored with itself and the
later tokens of its word masked, so that a word's last pieces do not give away its first. The sum
over all tokens, in nats, is the sentence's.

Each sentence is scored once per model revision. A store is a folder per model and setting with
`store.json`, the model and setting, and `parts/`, whose files are named after their sentences
(see `generation.part_store`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from generation.part_store import missing_parts, require_header, sound_parts, write_part
from generation.run_folder import slug
from generation.suggestions.masked_lm import Input
from merge_dataset.files import digest_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from generation.suggestions.masked_lm import MaskedLM

SCHEME: Final = "PLL-word-l2r"
CAUSAL_SCHEME: Final = "log-likelihood"
"""Scheme of `causal_lm.py`."""

PART_SIZE: Final = 512
"""Sentences in a part: a killed run loses at most as many."""
_KEY: Final = np.dtype("S16")
_LAYOUT: Final = 1
"""Version of the files' layout and of how sentences are scored."""

_IDS_AT_ONCE: Final = 2**20
"""Token ids of masked sentences held at a time: enough to fill batches of equal length."""
_WINDOWS_REMEMBERED: Final = 2**18
"""Scores of windows kept for the next texts, which are mostly the same with another word."""


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Pseudo-log-likelihoods of n sentences."""

    pll: NDArray[np.float64]
    """[n] In nats."""
    windowed: NDArray[np.bool_]
    """[n] Whether tokens were scored within windows, as the sentence is too long for the model."""

    def take(self, rows: slice) -> Likelihoods:
        """Select some of the sentences."""
        return Likelihoods(self.pll[rows], self.windowed[rows])


def pseudo_log_likelihoods(
    mlm: MaskedLM,
    sentences: Sequence[str],
    *,
    batch_tokens: int | None = None,
    on_progress: Callable[[int], object] = lambda sentences: None,
) -> Likelihoods:
    """Score sentences; a score does not depend on which others are scored with it.

    A sentence of more tokens than the model takes is scored token by token within a window
    around the token, as wide as the model allows. Each distinct masked sentence and window is
    asked once, where those of the same text stand together.

    Args:
        mlm: The masked LM.
        sentences: In any order; texts that differ in a word best one after the other.
        batch_tokens: Most tokens in a forward pass; by default what suits the device.
        on_progress: Called with the number of sentences done, as they are done.
    """
    encodings = mlm.encode(sentences)
    pll = np.zeros(len(sentences))
    windowed = np.array([len(each.ids) > mlm.max_tokens for each in encodings], np.bool_)
    # By length, to fill batches; windows are all of one length, so these texts stay in order.
    order = sorted(range(len(pll)), key=lambda row: min(len(encodings[row].ids), mlm.max_tokens))
    tokens = (
        (number, *masked)
        for number, row in enumerate(order)
        for masked in _masked(sentences[row], encodings[row], mlm)
    )
    known: dict[bytes, float] = {}
    done = 0
    for some in _held(tokens, _IDS_AT_ONCE):
        rows = [order[number] for number, *_ in some]
        keys = [
            _window_key(ids, position, token) if windowed[row] else b""
            for row, (_, ids, position, token) in zip(rows, some, strict=True)
        ]
        log_probs = np.array([known.get(key, np.nan) for key in keys])
        new = np.flatnonzero(np.isnan(log_probs)).tolist()
        inputs = [Input(n, *some[place][1:], bool(windowed[rows[place]]))
                  for n, place in enumerate(new)]  # fmt: skip
        log_probs[new] = mlm.log_probs(inputs, batch_tokens=batch_tokens)
        if len(known) > _WINDOWS_REMEMBERED:
            known.clear()
        known.update((keys[place], log_probs[place]) for place in new if keys[place])
        # Adds in the order of the tokens, so that the sum is the same to the bit.
        np.add.at(pll, rows, log_probs)
        on_progress(some[-1][0] - done)
        done = some[-1][0]
    on_progress(len(order) - done)
    return Likelihoods(pll, windowed)


_MaskedToken = tuple[int, tuple[int, ...], int, int]
"""Place of a sentence, ids in which one of its tokens is masked, its position, the token."""


def _held(tokens: Iterable[_MaskedToken], most: int) -> Iterator[list[_MaskedToken]]:
    """Yield as many masked tokens at a time as have `most` ids."""
    held: list[_MaskedToken] = []
    size = 0
    for each in tokens:
        held.append(each)
        size += len(each[1])
        if size >= most:
            yield held
            held, size = [], 0
    if held:
        yield held


def _window_key(ids: Sequence[int], position: int, token: int) -> bytes:
    return blake2b(np.array([position, token, *ids], np.int32).tobytes(), digest_size=16).digest()


def _masked(
    sentence: str, encoding: Any, mlm: MaskedLM
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Yield for each token ids with it and the rest of its word masked, its place, and itself."""
    ends = word_ends(sentence, encoding)
    for i, token in enumerate(encoding.ids):
        if encoding.special_tokens_mask[i]:
            continue
        ids = list(encoding.ids)
        ids[i : ends[i]] = [mlm.mask_id] * (ends[i] - i)
        kept, position = mlm.fitted(ids, i, encoding)
        yield kept, position, token


def word_ends(sentence: str, encoding: Any) -> list[int]:
    """Return for each token the place after the last token of its word.

    Words are those of the tokenizer, cut where letters and digits meet other marks, as some
    tokenizers only split at white space ("air."). Special tokens stand alone.

    Args:
        sentence: A text.
        encoding: Its tokens, a `tokenizers.Encoding`.
    """
    words = [
        (number, _is_word(sentence[start:end]))
        for number, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True)
    ]
    ends = list(range(1, len(words) + 1))
    for i in reversed(range(len(words) - 1)):
        if words[i] == words[i + 1] and words[i][0] is not None:
            ends[i] = ends[i + 1]
    return ends


def _is_word(text: str) -> bool:
    # A token of white space alone, such as "▁", belongs to what follows: nearly always a word.
    return not text.strip() or text.strip().isalnum()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The model and settings of a store; likelihoods of different identities never mix."""

    name: str
    revision: str
    architecture: str
    dtype: str
    device: str

    @property
    def folder(self) -> str:
        """Name of the store's folder."""
        described = {**asdict(self), "scheme": SCHEME, "layout": _LAYOUT}
        return f"{slug(self.name)}-{digest_of(described)[:12]}"


class LikelihoodStore:
    """One model's likelihoods."""

    def __init__(self, root: Path, identity: Identity) -> None:
        """Open the store of `identity` under `root`, and make it if it does not exist."""
        self.path, self.identity = root / identity.folder, identity
        require_header(
            self.path, asdict(identity), contents="likelihoods", redo="merge-nli signals"
        )
        self._keys = np.empty(0, _KEY)
        self._known = Likelihoods(np.empty(0), np.empty(0, np.bool_))
        self._parts = [pq.read_table(path) for path in sound_parts(self.path / "parts")]
        """Parts that are not yet sorted into the known likelihoods."""

    def missing(
        self, sentences: Iterable[str], wanted: Callable[[int], bool] = lambda number: True
    ) -> list[list[str]]:
        """Group the sentences without a likelihood into the parts that are to be written.

        Args:
            sentences: In an order that depends on nothing but them.
            wanted: Whether the part of a number is wanted, as where tasks share the parts.
        """
        distinct = list(dict.fromkeys(sentences))
        _, known = self._find([_key(sentence) for sentence in distinct])
        items = list(zip(distinct, known.tolist(), strict=True))
        parts = missing_parts(items, lambda item: item[1], size=PART_SIZE, wanted=wanted)
        return [[sentence for sentence, _ in part] for part in parts]

    def add(self, sentences: Sequence[str], found: Likelihoods) -> None:
        """Write a part."""
        keys = [_key(sentence) for sentence in sentences]
        table = pa.table(
            {
                "key": pa.array(keys, pa.binary(_KEY.itemsize)),
                "pll": pa.array(found.pll),
                "windowed": pa.array(found.windowed),
            }
        )
        write_part(self.path / "parts", digest_of([key.hex() for key in keys])[:16], table)
        self._parts.append(table)

    def of(self, sentences: Sequence[str]) -> Likelihoods:
        """Return the likelihoods of sentences, in their order.

        Raises:
            KeyError: some are not in the store.
        """
        rows, known = self._find([_key(sentence) for sentence in sentences])
        if not known.all():
            raise KeyError(f"{int((~known).sum())} sentences are not in {self.path}")
        return Likelihoods(self._known.pll[rows], self._known.windowed[rows])

    def _find(self, keys: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return [n] places among the known keys, and [n] whether each key is known."""
        self._sort_in()
        wanted = np.array(keys, _KEY)
        rows = np.searchsorted(self._keys, wanted)
        if not len(self._keys):
            return rows, np.zeros(len(wanted), np.bool_)
        known: NDArray[np.bool_] = self._keys[np.minimum(rows, len(self._keys) - 1)] == wanted
        return rows, known

    def _sort_in(self) -> None:
        """Sort new parts into the known likelihoods, by key."""
        if not self._parts:
            return
        keys = [np.array(part["key"].to_pylist(), _KEY) for part in self._parts]
        pll = np.concatenate([self._known.pll, *(p["pll"].to_numpy() for p in self._parts)])
        windowed = np.concatenate(
            [self._known.windowed, *(p["windowed"].to_numpy() for p in self._parts)]
        )
        self._keys, rows = np.unique(np.concatenate([self._keys, *keys]), return_index=True)
        self._known = Likelihoods(pll[rows], windowed[rows])
        self._parts = []


def _key(sentence: str) -> bytes:
    return blake2b(sentence.encode(), digest_size=_KEY.itemsize).digest()
