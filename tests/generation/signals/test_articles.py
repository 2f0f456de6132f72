import pytest

from generation.records import Sentence, Token
from generation.variants.grammar import article_before, article_position, fitting_article


@pytest.mark.parametrize(
    ("article", "words"),
    [
        ("an", "owl apple hour honest heir umbrella uninteresting elf athlete other MP HTML"),
        ("a", "dog unicorn university one useful european house yellow year three TV hotel"),
        # Shouted, not spelled out.
        ("a", "SCHOOL STREET Street SMALL HOUSE"),
        ("an", "OWL Owl HOUR Apple"),
        ("a", "MAN HAT SUN RED SKY FLY SPY RUN"),
        # Spelled out, not shouted.
        ("an", "SUV NBA MRI LED FBI MBA LSD XML"),
        ("a", "UFO USB EU TV DVD"),
        ("a", "uni Uni UNI unis"),
    ],
)
def test_articles_go_by_sound(article: str, words: str) -> None:
    """Articles follow pronunciation; not every word with an initial vowel begins with its sound."""
    assert {word: fitting_article(word) for word in words.split()} == dict.fromkeys(
        words.split(), article
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("An owl", (0, 2)),
        ("He has an owl", (7, 9)),
        ("He has  AN \t owl", (8, 10)),
        ("(a owl", (1, 2)),
        ("“A owl", (1, 2)),
        ("The owl", None),
        ("owl", None),
        ("banana owl", None),
        ("type-a owl", None),
        ("R&A owl", None),
        ("an-owl", None),
        ("an old owl", None),
        ('a "owl', None),
    ],
)
def test_where_an_article_stands(text: str, expected: tuple[int, int] | None) -> None:
    assert article_before(text, text.rindex("owl")) == expected


def test_an_article_is_tagged_as_one() -> None:
    text = "vitamin A owl saw an  owl"
    tagged = [("vitamin", 0, "NN"), ("A", 8, "NN"), ("owl", 10, "NN"), ("saw", 14, "VBD"),
              ("an", 18, "DT"), (" ", 21, "_SP"), ("owl", 22, "NN")]  # fmt: skip
    sentence = Sentence(text, tuple(Token(*item) for item in tagged))
    assert [article_position(sentence, n) for n in (0, 2, 6)] == [None, None, 4]
