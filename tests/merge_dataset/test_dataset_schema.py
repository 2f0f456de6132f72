import datasets
import pytest

from merge_dataset import schema
from merge_dataset.provenance import DRAW, _without_paths, differences
from merge_metric.seed_variant_accuracy import options


def test_names_of_configurations() -> None:
    for name in (
        "snli",
        "mnli-m_nouns",
        "anli-r1_adverbs",
        "demo_adjectives",
        "anli-r3_paraphrases",
    ):
        assert schema.config_name(*schema.parse_config_name(name)) == name
    for name in ("snli_noun", "snli_paraphrase", "SNLI", "my_set_nouns", "", "a--b", "../snli"):
        with pytest.raises(ValueError, match="expected a"):
            schema.parse_config_name(name)


def test_columns_and_labels() -> None:
    """The metric repeats the labels, as it is uploaded alone; features and columns agree."""
    assert options.LABELS == schema.LABELS
    with pytest.raises(ValueError, match="fields: expected two or more"):
        schema.ProblemFormat(("premise",), ("hypothesis", *schema.LABELS))
    problem_format = schema.ProblemFormat(("context", "question", "answer"), ("yes", "no"))
    meanings = schema.column_meanings(problem_format)
    assert list(meanings) == schema.arrow_schema(problem_format).names
    assert meanings["label"] == "0 yes, 1 no; a variant has its seed's"
    features = schema.features(schema.arrow_schema())
    assert features.arrow_schema.remove_metadata() == schema.arrow_schema()
    label = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    assert features["label"] == label
    assert features["annotator_labels"] == datasets.Sequence(label)


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
