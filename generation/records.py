"""The records that travel through the pipeline: data only, no behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Span = tuple[int, int]
"""Half-open [start, end) character offsets in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One original problem: of NLI ⟨p, h, l⟩."""

    seed_id: str
    """`<source>:<pairID>`, unique within a source."""
    source: str
    texts: tuple[str, ...]
    """By field of its format: of NLI premise and hypothesis."""
    label: str
    """One of the format's labels."""
    annotator_labels: tuple[str, ...] = ()
    """The annotators' votes where the source has them, labels as above."""

    @property
    def premise(self) -> str:
        """Of an NLI problem."""
        return self.texts[0]

    @property
    def hypothesis(self) -> str:
        """Of an NLI problem."""
        return self.texts[1]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a tagged sentence."""

    text: str
    start: int
    """Character offset of its first character in the sentence."""
    tag: str
    """Penn Treebank tag."""
    norm: str | None = None
    """The norm the tokeniser gives it by a rule of its own ("n't" → "not"): taggers
    look at it. None where the word form alone decides."""

    @property
    def span(self) -> Span:
        """The token's half-open character offsets."""
        return self.start, self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text of a problem, such as a premise, with its tokens in order."""

    text: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class SharedWord:
    """A word form that some texts of a problem share with the same class (D1)."""

    word: str
    """The surface form, case as in the text."""
    word_class: str
    """One of `merge_dataset.schema.WORD_CLASSES`."""
    positions: tuple[tuple[int, ...], ...]
    """For each text the indices of every token with this form, whatever its class (D2)."""


@dataclass(frozen=True, slots=True)
class MaskedQuery:
    """One question to a masked LM: what may stand at `span` of `sentence`?"""

    sentence: str
    span: Span
    masked: tuple[Span, ...]
    """The spans hidden from the model, `span` among them: alone with single
    masking, with the word's other occurrences with joint masking (D4)."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What a masked LM says about n queries; row i answers query i.

    `k` is the number of suggestions, at most the size of the model's output. Where words may
    have up to m > 1 pieces, a word is m ids, the last ones −1 if it has fewer, and takes a
    dimension more; its "logit" is its log-probability, and `log_normalizer` 0.
    """

    original: NDArray[np.int32]
    """[n] or [n, m] Token id of the original word, −1 where it is not one token (D3), or not
    m at most."""
    original_logit: NDArray[np.float32]
    """[n] Its logit; nan where there is no original, as in the next three."""
    log_normalizer: NDArray[np.float32]
    """[n] log Σ exp(logits): log P = logit − log_normalizer, in nats."""
    tokens: NDArray[np.int32]
    """[n, k] or [n, k, m] Ids of the most probable ones, most probable first; −1 if none."""
    logits: NDArray[np.float32]
    """[n, k] Their logits."""
    windowed: NDArray[np.bool_]
    """[n] Whether the sentence was cut to a window around the mask."""

    @classmethod
    def empty(cls, n: int, k: int, *, max_pieces: int = 1) -> Self:
        """Room for `n` queries, all of them marked as not in the vocabulary."""
        nan = np.float32(np.nan)
        word = (max_pieces,) if max_pieces > 1 else ()
        return cls(
            original=np.full((n, *word), -1, np.int32),
            original_logit=np.full(n, nan, np.float32),
            log_normalizer=np.full(n, nan, np.float32),
            tokens=np.full((n, k, *word), -1, np.int32),
            logits=np.full((n, k), nan, np.float32),
            windowed=np.zeros(n, np.bool_),
        )

    @property
    def answered(self) -> NDArray[np.bool_]:
        """[n] Whether the original is one token, or as many as a word may have (D3)."""
        first: NDArray[np.int32] = self.original if self.original.ndim == 1 else self.original[:, 0]
        return first >= 0

    @classmethod
    def concatenate(cls, pieces: Sequence[Self]) -> Self:
        """All rows, one after the other."""
        return cls(
            **{
                field.name: np.concatenate([getattr(piece, field.name) for piece in pieces])
                for field in fields(cls)
            }
        )

    def take(self, rows: Sequence[int] | slice) -> Self:
        """Some of the rows, in the order given."""
        columns = {field.name: getattr(self, field.name)[rows] for field in fields(self)}
        return type(self)(**columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A seed, word or (seed, class) that yields no variants, and why."""

    seed_id: str
    source: str
    word: str | None
    word_class: str | None
    reason: str
    replacements: int | None = None
    """How many replacements it had, where that decided."""
