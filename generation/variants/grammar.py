"""Grammar of replacements, by tags and a dictionary of forms; and the articles "a" and "an".

A tagger takes "would comes" for an infinitive, so the original's tag says which form the context
asks for. Functions with a `position` take the tagged sentence with the original, the index of the
original's token, and the replacement.
"""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, Final
from unittest.mock import patch

from generation.problems.tagging import coarse_class
from generation.records import Sentence, Span
from merge_dataset.schema import TAGS_OF_CLASSES


def article_before(text: str, start: int) -> Span | None:
    """Find "a" or "an" directly before a word, with nothing but white space between.

    >>> article_before("See an owl", 7), article_before("See the owl", 8)
    ((4, 6), None)
    """
    before = text[:start].rstrip()
    # Not the A of "O'a", "e.a", "R&A" or "type-A".
    article = re.search(r"(?<![\w'’.&-])an?$", before, re.IGNORECASE)
    return article.span() if article and len(before) < start else None


def article_position(sentence: Sentence, position: int) -> int | None:
    """Return the index of an "a" or "an", tagged as a determiner, right before a token, or None."""
    span = article_before(sentence.text, sentence.tokens[position].start)
    if span is None:
        return None
    tokens = ((n, sentence.tokens[n]) for n in reversed(range(position)))
    return next((n for n, token in tokens if (token.span, token.tag) == (span, "DT")), None)


@lru_cache(maxsize=100_000)
def fitting_article(word: str) -> str:
    """Return a word's article by `inflect`; long words with vowels are not read as abbreviations.

    >>> [fitting_article(word) for word in ("owl", "unicorn", "hour", "one", "SCHOOL", "MRI")]
    ['an', 'a', 'an', 'a', 'a', 'an']
    """
    letters = set(word.lower())
    is_short = len(word) <= 3 and "y" not in letters  # "FBI", not "SKY"
    is_spelled = word.isupper() and (is_short or letters.isdisjoint("aeiouy"))
    spelled = word if is_spelled else word.lower()
    # Abbreviations that look like words, and a shortened word.
    exceptions = {"LED": "an", "SUV": "an", "uni": "a", "unis": "a"}
    article: str = exceptions.get(spelled) or _engine().a(spelled).partition(" ")[0]
    return article


@cache
def _engine() -> Any:
    # inflect has typeguard check its own calls, and this parses inflect's source once for each
    # of its functions: two seconds.
    with patch("typeguard.typechecked", lambda function: function):
        import inflect

    return inflect.engine()


NOUN_TAGS: Final = frozenset({"NN", "NNS", "NNP", "NNPS"})
_BETWEEN: Final = frozenset({"JJ", "JJR", "JJS", "VBN", "VBG", "NN", "CC", ","})

_SINGULAR: Final = {"a", "an", "one", "each", "every", "another", "this", "either", "neither"}
_NUMERALS: Final = {"two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}
_PLURAL: Final = {"these", "those", "many", "few", "several", "both", "various", "numerous",
                  "multiple", "dozen"} | _NUMERALS  # fmt: skip
"""Words before a noun that show its number; other words tagged as numerals ask for a plural."""

_QUANTIFIERS: Final = {"many", "several", "few", "most", "more", "fewer", "less", "much", "enough",
                       "all", "both", "half", "such", "various"} | _NUMERALS  # fmt: skip
_SINGLE: Final = {"a", "an", "each", "every", "another", "this", "that", "no"}
_FITTING_PAIRS: Final = {("a", "few"), ("such", "a"), ("every", "two"), ("every", "few"),
                         ("another", "two"), ("another", "few"), ("no", "more"), ("no", "less"),
                         ("no", "fewer"), ("no", "such"), ("a", "half"),
                         ("another", "half")}  # fmt: skip


def form_attested(sentence: Sentence, position: int, word: str) -> bool | None:
    """Tell whether a word has the form that the original's tag asks for; None if not known."""
    return has_form(word.lower(), sentence.tokens[position].tag)


def number_agrees(sentence: Sentence, position: int, word: str) -> bool | None:
    """Tell whether a noun agrees with determiner, numeral and verb in number; None if unknown."""
    if sentence.tokens[position].tag not in ("NN", "NNS"):
        return None
    asked = set[str]()
    for token in reversed(sentence.tokens[:position]):
        before = token.text.lower()
        if before in _SINGULAR:
            asked.add("NN")
        elif before in _PLURAL or token.tag == "CD":
            asked.add("NNS")
        elif token.tag in _BETWEEN:
            continue
        break
    for token in sentence.tokens[position + 1 : position + 2]:
        after = token.text.lower()
        if token.tag == "VBZ" or after in {"is", "was", "has", "does"}:
            asked.add("NN")
        elif token.tag == "VBP" or after in {"are", "were", "have", "do"}:
            asked.add("NNS")
    answers = [has_form(word.lower(), tag) for tag in sorted(asked)]
    known = [answer for answer in answers if answer is not None]
    return all(known) if known else None


def determiner_fits(sentence: Sentence, position: int, word: str) -> bool | None:
    """Tell whether an adjective suits its determiner, unlike "two many"; None if it has none."""
    if not sentence.tokens[position].tag.startswith("JJ") or position == 0:
        return None
    before = sentence.tokens[position - 1]
    if before.tag not in ("DT", "CD", "PRP$", "POS") and before.text.lower() not in _PLURAL:
        return None
    word, determiner = word.lower(), before.text.lower()
    counts = before.tag == "CD" or determiner in _PLURAL
    if (determiner, word) in _FITTING_PAIRS:
        return True
    if word in _QUANTIFIERS:
        follows = word in {"more", "fewer", "less"}  # "two more", "many fewer"
        return determiner not in _SINGLE and (not counts or follows)
    if word == "same":
        return determiner in ("the", "this", "that", "these", "those")
    if word == "other":
        return determiner not in ("a", "an", "another")
    if word == "own":
        return before.tag in ("PRP$", "POS")
    if word in {"first", "last", "next", "second", "third"}:
        return not counts and (determiner, word) != ("a", "next")
    is_superlative = word.endswith(("est", "st")) and bool(has_form(word, "JJS"))
    return not (is_superlative and (counts or determiner in ("a", "an")))


def in_compound(sentence: Sentence, position: int) -> bool:
    """Tell by tags whether a word is part of a compound or a particle verb ("blow it up")."""
    tokens = sentence.tokens
    tag = tokens[position].tag
    before = tokens[position - 1 : position] if position else ()
    after = tokens[position + 1 : position + 3]
    beside = (*before, *after[:1])
    if any(token.text == "-" for token in beside):
        return True
    if tag in NOUN_TAGS:
        return any(token.tag in NOUN_TAGS for token in beside)
    return tag.startswith("VB") and any(token.tag == "RP" for token in after)


# --- Lemmas and forms of words, by lemminflect, which has rules for unknown words ---

_UPOS: Final = {name: upos for name, (upos, _) in TAGS_OF_CLASSES.items()}
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
    own = lemmas(word, tag)
    if "be" in own:
        return None
    library = _library()
    forms = {
        next(iter(library.getInflection(lemma, wanted, inflect_oov=False)), None) for lemma in own
    }
    return forms.pop() if len(forms) == 1 else None


@lru_cache(maxsize=100_000)
def lemmas(word: str, tag: str) -> tuple[str, ...]:
    """Return a lower-case word's lemmas, likeliest first; the word itself outside four classes."""
    upos = _UPOS.get(coarse_class(tag))
    if upos is None:
        return (word,)
    known: tuple[str, ...] = _library().getLemma(word, upos, lemmatize_oov=tag not in _BASE_TAGS)
    if tag in _BASE_TAGS and (word in known or not known):
        return (word,)
    return known or (word,)


def family_of(word: str, word_class: str, sentences: Sequence[Sentence]) -> list[tuple[int, int]]:
    """Find (text, token) numbers of a word's other forms, of its class and with a common lemma."""
    tokens = [
        (text, position, token)
        for text, sentence in enumerate(sentences)
        for position, token in enumerate(sentence.tokens)
        if coarse_class(token.tag) == word_class and token.text.isalpha()
    ]
    own = {
        lemma
        for _, _, token in tokens
        if token.text == word
        for lemma in lemmas(token.text.lower(), token.tag)
    }
    return [
        (text, position)
        for text, position, token in tokens
        if token.text != word and not own.isdisjoint(lemmas(token.text.lower(), token.tag))
    ]


def has_library() -> bool:
    """Tell whether lemminflect is installed."""
    return find_spec("lemminflect") is not None


def _library() -> Any:
    # Importing it imports spaCy, which is imported already: tags come from a tagger.
    import lemminflect

    return lemminflect
