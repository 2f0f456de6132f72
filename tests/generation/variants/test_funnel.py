from generation.reasons import FUNNEL_COLUMNS, KEPT, Reason
from generation.variants.funnel import (
    NOT_IN_VOCABULARY,
    OCCASIONAL_REASONS,
    SUGGESTION_REASONS,
    Funnel,
)


def test_funnel_rows_are_sorted_and_complete() -> None:
    funnel = Funnel()
    funnel.add("b", "noun", {KEPT: 2, Reason.IN_PROBLEM: 1, "replacements": 1})
    funnel.add("a", "verb", {NOT_IN_VOCABULARY: 3})
    funnel.add("b", "noun", {KEPT: 1})
    first, second = funnel.rows()
    assert (first["mlm"], first["word_class"], first["suggestions"]) == ("a", "verb", 0)
    assert first[NOT_IN_VOCABULARY] == 3
    assert (second["suggestions"], second[KEPT], second["replacements"]) == (4, 3, 1)
    assert list(first) == [
        "mlm", "word_class", "suggestions", *SUGGESTION_REASONS, KEPT, "replacements",
        NOT_IN_VOCABULARY,
    ]  # fmt: skip
    funnel = Funnel()
    funnel.add("a", "verb", dict.fromkeys(OCCASIONAL_REASONS, 1))
    (row,) = funnel.rows()
    assert row.keys() - {"mlm", "word_class"} == FUNNEL_COLUMNS.keys()
    assert FUNNEL_COLUMNS[Reason.LESS_PROBABLE] == "not more probable than the original"
