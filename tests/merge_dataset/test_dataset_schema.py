import datasets
import pytest

from merge_dataset import schema
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
