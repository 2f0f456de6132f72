from collections.abc import Sequence

from generation.problems.tagging import shared_words, word_forms
from generation.records import Sentence, SharedWord, Token
from merge_dataset.schema import WORD_CLASSES


def sentence(tagged: str) -> Sentence:
    """A sentence from "word/TAG word/TAG"; a full stop follows a word without a space."""
    tokens: list[Token] = []
    text = ""
    for pair in tagged.split():
        word, _, tag = pair.rpartition("/")
        text += " " if text and word != "." else ""
        tokens.append(Token(word, len(text), tag))
        text += word
    return Sentence(text, tuple(tokens))


def tagged(text: str) -> tuple[Sentence, int]:
    """A sentence from "word/TAG word/TAG", and the position of the word in brackets, or -1."""
    position = next((n for n, item in enumerate(text.split()) if item.startswith("[")), -1)
    return sentence(text.replace("[", "").replace("]", "")), position


def shared_words_of(
    sentences: Sequence[Sentence],
    word_classes: Sequence[str] = WORD_CLASSES,
    sharing: Sequence[int] | None = None,
) -> list[SharedWord]:
    return shared_words(list(map(word_forms, sentences)), word_classes, sharing)
