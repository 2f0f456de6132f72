import pytest

from merge_dataset.provenance import DRAW, _without_paths, differences


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/home/me/my data/dev.jsonl", "dev.jsonl"),
        ("C:\\data\\dev.jsonl", "dev.jsonl"),
        ("../shared/dev.jsonl", "dev.jsonl"),
        ("~/models/bert", "bert"),
        ("read from /srv/x/dev.jsonl (9 rows)", "read from dev.jsonl (9 rows)"),
        ("file:///srv/x/dev.jsonl", "dev.jsonl"),
        ("google-bert/bert-base-cased@main", "google-bert/bert-base-cased@main"),
        ("https://huggingface.co/datasets/stanfordnlp/snli", "https://huggingface.co/datasets/stanfordnlp/snli"),
        ("premise and/or hypothesis, 1 / 2", "premise and/or hypothesis, 1 / 2"),
        ({"a": ["/x/y", 3, None]}, {"a": ["y", 3, None]}),
    ],
)  # fmt: skip
def test_local_paths_become_names(text: object, kept: object) -> None:
    assert _without_paths(text) == kept


def test_what_draws_otherwise_is_made_otherwise() -> None:
    """Paraphrases are not drawn."""
    paraphrases: dict[str, object] = {"config": {}}
    now, later = {**paraphrases, "draw": DRAW}, {**paraphrases, "draw": 3}
    assert differences(now, later) == ["draw: 2 there, 3 now"]
    assert differences(now, now) == differences(paraphrases, now) == []
