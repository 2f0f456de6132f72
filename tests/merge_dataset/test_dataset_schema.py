import hashlib

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
    problem_format = schema.ProblemFormat(("context", "question", "answer"), ("yes", "no"))
    for each in (schema.NLI, problem_format):
        summaries = schema.column_summaries(each)
        assert list(summaries) == schema.arrow_schema(each).names
    assert summaries["question_mlms"] == "Those that did in the question."
    features = schema.features()
    assert features.arrow_schema.remove_metadata() == schema.arrow_schema()
    label = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    assert features["label"] == label
    assert features["annotator_labels"] == datasets.Sequence(label)


def test_files_and_ids() -> None:
    assert schema.config_files("snli") == {
        "seeds": ("snli/seeds.parquet",),
        "variants": tuple(
            f"snli/{folder}/variants.parquet"
            for folder in ("nouns", "verbs", "adjectives", "adverbs")
        ),
    }
    assert schema.config_files("anli-r1_paraphrases") == {
        "seeds": ("anli-r1_paraphrases/seeds.parquet",),
        "variants": ("anli-r1_paraphrases/variants.parquet",),
    }
    assert [schema.collection_name("snli", each) for each in (None, "adverb", "paraphrase")] == [
        "snli",
        "snli",
        "snli_paraphrases",
    ]
    assert schema.VARIANT_CLASSES == ("noun", "verb", "adjective", "adverb", "paraphrase")
    assert list(schema.CONFIG_SUFFIXES) == list(schema.VARIANT_CLASSES)
    assert schema.variant_id("snli:1", "noun", "girl A", "owl An") == "snli:1/noun/girl+A/owl+An"
    digest = hashlib.sha256("Élan.".encode()).hexdigest()[:12]
    made = schema.variant_id("snli:1", "paraphrase", "Verve.", "Élan.")
    assert made == f"snli:1/paraphrase/{digest}"
