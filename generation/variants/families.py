"""Families: other forms of a shared word that stand in its problem, by lemma.

"sleeps" and "sleeping" are of one family where both are verbs. Lemmas and inflections are those
of lemminflect, which looks words up and has rules for those it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final

from generation.problems.shared_words import coarse_class
from generation.records import Sentence, SharedWord

_UPOS: Final = {"noun": "NOUN", "verb": "VERB", "adjective": "ADJ", "adverb": "ADV"}
"""Word class → the tag by which lemminflect knows it."""

_BASE_TAGS: Final = frozenset({"NN", "VB", "VBP", "JJ", "RB"})
"""Tags of forms that are their own lemma, "am" and "are" aside."""

_AUXILIARIES: Final = frozenset({"be", "have", "do"})

_NOUN_TAGS: Final = frozenset({"NN", "NNS", "NNP", "NNPS"})


def family_of(word: SharedWord, sentences: Sequence[Sentence]) -> list[tuple[int, int]]:
    """Find other forms of a word in its problem: of the same class, with a lemma in common.

    A form of another class is none: not the noun "sleep", nor "sleeping" where it is tagged as
    a noun ("a sleeping bag"). "Boy" and "boy" are two forms.

    Args:
        word: A shared word.
        sentences: The texts of its problem.

    Returns:
        Where they stand: number of the text, number of the token.
    """
    tokens = [
        (text, position, token)
        for text, sentence in enumerate(sentences)
        for position, token in enumerate(sentence.tokens)
        if coarse_class(token.tag) == word.word_class and token.text.isalpha()
    ]
    mine = {
        lemma
        for _, _, token in tokens
        if token.text == word.word
        for lemma in lemmas(token.text.lower(), token.tag)
    }
    return [
        (text, position)
        for text, position, token in tokens
        if token.text != word.word and not mine.isdisjoint(lemmas(token.text.lower(), token.tag))
    ]


def is_in_compound(sentence: Sentence, position: int) -> bool:
    """Tell whether a noun is the first part of a nominal compound: whether a noun comes next.

    What it means there need not be what it means elsewhere: "leaf blowers" may be "air blowers",
    but leaves are no airs. This is what the paper warns of.
    """
    here, following = sentence.tokens[position], sentence.tokens[position + 1 : position + 2]
    return here.tag in _NOUN_TAGS and any(token.tag in _NOUN_TAGS for token in following)


def may_be_auxiliary(sentence: Sentence, position: int) -> bool:
    """Tell whether a verb is a form of "be", "have" or "do".

    These help other verbs, which what a masked LM puts for one form of them cannot do in the
    others: "is waiting" is not "looks waiting" where he "was tall" and now "looked tall".
    """
    token = sentence.tokens[position]
    mine = lemmas(token.text.lower(), token.tag)
    return coarse_class(token.tag) == "verb" and not _AUXILIARIES.isdisjoint(mine)


def inflected(word: str, tag: str, wanted: str) -> str | None:
    """Return the form of a lower-case word that has another Penn tag.

    Only forms in lemminflect's dictionary: its rules would make "beautifuler". Where a form has
    several spellings, the first. Of "be" none, as number and person decide between them. Where
    the word may come of several lemmas, which have different forms, none: "leaves" are of "leaf"
    or of "leave".

    Args:
        word: In lower case.
        tag: The Penn tag that it has where it stands.
        wanted: That of the form wanted.

    Returns:
        None where there is no such form, or the tags are of different classes.
    """
    if tag == wanted:
        return word
    word_class = coarse_class(wanted)
    if coarse_class(tag) != word_class or word_class not in _UPOS:
        return None
    mine = lemmas(word, tag)
    if "be" in mine:
        return None
    library = _library()
    forms = {
        next(iter(library.getInflection(lemma, wanted, inflect_oov=False)), None) for lemma in mine
    }
    return forms.pop() if len(forms) == 1 else None


@lru_cache(maxsize=100_000)
def lemmas(word: str, tag: str) -> tuple[str, ...]:
    """Return the lemmas of a lower-case word with a Penn tag, the likeliest first.

    With a tag outside the four classes it is the word itself.
    """
    upos = _UPOS.get(coarse_class(tag))
    if upos is None:
        return (word,)
    found: tuple[str, ...] = _library().getLemma(word, upos, lemmatize_oov=tag not in _BASE_TAGS)
    if tag in _BASE_TAGS and (word in found or not found):
        return (word,)
    return found or (word,)


def has_library() -> bool:
    """Tell whether lemminflect is installed."""
    try:
        return find_spec("lemminflect") is not None
    except ValueError:  # in `sys.modules` without a specification
        return False


def require_library() -> None:
    """Raise ValueError where lemminflect is not installed."""
    if not has_library():
        raise ValueError(
            "families: expected lemminflect to be installed, which knows lemmas and inflections; "
            "run: pip install 'merge-nli[morphology]'"
        )


def _library() -> Any:
    # It looks for spaCy, which is there already: what has tags came from a tagger.
    import lemminflect

    return lemminflect
