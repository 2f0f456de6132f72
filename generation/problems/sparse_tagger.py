"""Run spaCy's small taggers sparsely: compute a token's tag from the tokens that influence it.

These models embed each token by itself, then apply `depth` convolutions over a token and its two
neighbours. So a tag depends on 2 × depth + 1 tokens (9 in `en_core_web_sm`), and on 7, 5, 3 and 1
outputs of the successive convolutions. Weights and tags are the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

TokenKey = tuple[str, str | None, bool]
"""Inputs of a token's embedding: text, norm if special, whether a space follows."""

OUTSIDE: Final = 0
"""Id for positions before and after a sentence."""

_WINDOWS_PER_BLOCK: Final = 512


class Cone:
    """The tagger's layers, and the embeddings of the tokens seen so far."""

    def __init__(
        self, nlp: Any, embed: Callable[[Any, Sequence[TokenKey]], NDArray[np.float32]]
    ) -> None:
        """Take a pipeline's layers; `embed` applies a layer to single tokens: [n, width]."""
        listener, output = nlp.get_pipe("tagger").model.layers
        tok2vec = nlp.get_pipe("tok2vec").model if "listener" in listener.name else listener
        embedding, encode = tok2vec.layers
        self._embed, self._output = partial(embed, embedding), output.layers[0]
        residuals = encode.layers[0].layers
        self._convolutions = [_Convolution(residual.layers[0].layers[1]) for residual in residuals]
        self._ids: dict[TokenKey, int] = {}
        self._new: list[TokenKey] = []
        self._vectors: NDArray[np.float32] | None = None
        self.half_width = len(residuals)

    def token_id(self, token: TokenKey) -> int:
        """Return the number of a token; equal tokens have equal numbers."""
        number = self._ids.get(token)
        if number is None:
            number = self._ids[token] = len(self._ids) + 1
            self._new.append(token)
        return number

    def tags(self, windows: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return [n] label numbers of middle tokens; windows are [n, 2 × half_width + 1] ids."""
        if not len(windows):
            return np.zeros(0, np.int64)
        vectors = self._embedded()
        unique, place = np.unique(windows, axis=0, return_inverse=True)
        blocks = range(0, len(unique), _WINDOWS_PER_BLOCK)
        best = [self._best(unique[i : i + _WINDOWS_PER_BLOCK], vectors) for i in blocks]
        tags: NDArray[np.int64] = np.concatenate(best)[place.ravel()]
        return tags

    def tags_of_texts(self, texts: Sequence[Sequence[int]]) -> NDArray[np.int64]:
        """Return [Σ tokens] label numbers of the tokens of texts, which are lists of token ids."""
        if not any(texts):
            return np.zeros(0, np.int64)
        # The gap between two texts is as wide as the tagger's view to one side.
        around = [OUTSIDE] * self.half_width
        ids = np.array([*around, *(i for text in texts for i in (*text, *around))], np.int32)
        x = self._embedded()[ids]
        for layer in self._convolutions:
            x = x[1:-1] + layer(np.concatenate([x[:-2], x[1:-1], x[2:]], axis=1))
        tokens = ids[self.half_width : -self.half_width] != OUTSIDE
        tags: NDArray[np.int64] = self._output.predict(x[tokens]).argmax(axis=1)
        return tags

    def _embedded(self) -> NDArray[np.float32]:
        """Return [ids, width] vectors of all tokens so far, zeros for `OUTSIDE`."""
        if self._new:
            new = self._embed(self._new)
            old = (
                np.zeros((1, new.shape[1]), np.float32) if self._vectors is None else self._vectors
            )
            self._vectors, self._new = np.concatenate([old, new]), []
        assert self._vectors is not None
        return self._vectors

    def _best(self, windows: NDArray[np.int32], vectors: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return [n] the index of each window's best label."""
        first, *rest = self._convolutions
        triples = np.lib.stride_tricks.sliding_window_view(windows, 3, axis=1)
        example, place = _distinct(triples)
        neighbours = vectors[triples.reshape(-1, 3)[example]]
        outputs = neighbours[:, 1] + first(neighbours.reshape(len(example), -1))
        x = outputs[place].reshape(*triples.shape[:2], -1)
        for layer in rest:
            neighbours = np.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], axis=2)
            added = layer(neighbours.reshape(-1, neighbours.shape[2]))
            x = x[:, 1:-1] + added.reshape(len(x), -1, x.shape[2])
        best: NDArray[np.int64] = self._output.predict(x[:, 0]).argmax(axis=1)
        return best


def _distinct(rows: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first index of each distinct row of [..., 3], and each row's distinct number."""
    # Sorting rows packed into one number is five times as fast as sorting rows.
    numbers, small = np.unique(rows, return_inverse=True)
    left, middle, right = small.reshape(-1, 3).astype(np.int64).T
    keys = (left * len(numbers) + middle) * len(numbers) + right
    _, example, place = np.unique(keys, return_index=True, return_inverse=True)
    return example, place


class _Convolution:
    """Thinc's maxout layer and layer norm; a third faster, as it keeps nothing for training."""

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

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Map [n, 3 × width] to [n, width]."""
        y = x @ self._weights
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
