"""Lemmas and forms of English words by lemminflect, which has rules for unknown words."""

from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final

from generation.problems.shared_words import coarse_class

_UPOS: Final = {"noun": "NOUN", "verb": "VERB", "adjective": "ADJ", "adverb": "ADV"}
"""Word class → its tag in lemminflect."""

_BASE_TAGS: Final = frozenset({"NN", "VB", "VBP", "JJ", "RB"})
"""Tags of forms that are their own lemma, except "am" and "are"."""


@lru_cache(maxsize=200_000)
def has_form(word: str, tag: str) -> bool | None:
    """Tell whether a lower-case word is, by the dictionary, the form that a Penn tag names.

    None if the dictionary does not have the word in the tag's class, or the tag has no class.

    >>> has_form("seen", "VBN"), has_form("saw", "VBN"), has_form("children", "NN")
    (True, False, False)
    """
    upos = _UPOS.get(coarse_class(tag))
    if upos is None:
        return None
    library = _library()
    # The dictionary has all lemmas that a form may have: "see" and "saw" for "saw".
    lemmas: tuple[str, ...] = library.getAllLemmas(word, upos=upos).get(upos, ())
    if not lemmas:
        return None
    if (word, tag) == ("got", "VBN"):  # missing in the dictionary
        return True
    forms = (form for lemma in lemmas for form in library.getInflection(lemma, tag))
    return word in forms or (tag == "VB" and word in lemmas)


def inflected(word: str, tag: str, wanted: str) -> str | None:
    """Return the form of a lower-case word for another tag of its class, or None.

    Only the first form in the dictionary counts: rules would make "beautifuler". None for "be",
    whose forms depend on number and person, and if the word's lemmas disagree ("leaves").
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
    """Return a lower-case word's lemmas, likeliest first; the word itself outside four classes."""
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
    """Raise ValueError if lemminflect, which a setting needs, is not installed."""
    if not has_library():
        raise ValueError(
            f"{setting}: expected lemminflect to be installed, which knows lemmas and inflections; "
            "run: pip install 'merge-nli[morphology]'"
        )


def _library() -> Any:
    # Importing it imports spaCy, which is imported already: tags come from a tagger.
    import lemminflect

    return lemminflect
