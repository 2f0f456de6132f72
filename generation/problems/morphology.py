"""Lemmas and forms of English words by lemminflect, which has rules for those it does not know."""

from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final

from generation.problems.shared_words import coarse_class

_UPOS: Final = {"noun": "NOUN", "verb": "VERB", "adjective": "ADJ", "adverb": "ADV"}
"""Word class → the tag by which lemminflect knows it."""

_BASE_TAGS: Final = frozenset({"NN", "VB", "VBP", "JJ", "RB"})
"""Tags of forms that are their own lemma, "am" and "are" aside."""


@lru_cache(maxsize=200_000)
def has_form(word: str, tag: str) -> bool | None:
    """Tell whether a lower-case word is, by the dictionary, the form that a Penn tag names.

    None where the dictionary has no such word of the tag's class, or the tag is of none.

    >>> has_form("seen", "VBN"), has_form("saw", "VBN"), has_form("children", "NN")
    (True, False, False)
    """
    upos = _UPOS.get(coarse_class(tag))
    if upos is None:
        return None
    library = _library()
    # The dictionary has all lemmas that a form may be of, "see" and "saw" of "saw".
    lemmas: tuple[str, ...] = library.getAllLemmas(word, upos=upos).get(upos, ())
    if not lemmas:
        return None
    if (word, tag) == ("got", "VBN"):  # which the dictionary lacks
        return True
    forms = (form for lemma in lemmas for form in library.getInflection(lemma, tag))
    return word in forms or (tag == "VB" and word in lemmas)


def inflected(word: str, tag: str, wanted: str) -> str | None:
    """Return the form of a lower-case word that another tag of its class names, or None.

    Only the first form in the dictionary counts: rules would make "beautifuler". None for "be",
    whose forms depend on number and person, and where the word's lemmas disagree ("leaves").
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
    """Return a lower-case word's lemmas, the likeliest first; outside the four classes, itself."""
    upos = _UPOS.get(coarse_class(tag))
    if upos is None:
        return (word,)
    found: tuple[str, ...] = _library().getLemma(word, upos, lemmatize_oov=tag not in _BASE_TAGS)
    if tag in _BASE_TAGS and (word in found or not found):
        return (word,)
    return found or (word,)


def has_library() -> bool:
    """Tell whether lemminflect is installed."""
    return find_spec("lemminflect") is not None


def require_library(setting: str) -> None:
    """Raise ValueError where lemminflect is not installed, which a setting wants."""
    if not has_library():
        raise ValueError(
            f"{setting}: expected lemminflect to be installed, which knows lemmas and inflections; "
            "run: pip install 'merge-nli[morphology]'"
        )


def _library() -> Any:
    # It looks for spaCy, which is there already: what has tags came from a tagger.
    import lemminflect

    return lemminflect
