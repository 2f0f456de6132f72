"""The contract: names, files and columns."""

from __future__ import annotations

import hashlib

import datasets
import pytest

from merge_dataset import schema
from merge_metric.seed_variant_accuracy import options


@pytest.mark.parametrize(
    "name", ["snli", "mnli-m_nouns", "anli-r1_adverbs", "demo_adjectives", "anli-r3_paraphrases"]
)
def test_configuration_names_round_trip(name: str) -> None:
    """A name comes apart into source and class, and together again."""
    assert schema.config_name(*schema.parse_config_name(name)) == name


@pytest.mark.parametrize(
    "name", ["snli_noun", "snli_paraphrase", "SNLI", "my_set_nouns", "", "a--b", "../snli"]
)
def test_other_names_are_refused(name: str) -> None:
    """A text that is no configuration name raises and is quoted."""
    with pytest.raises(ValueError, match="expected a"):
        schema.parse_config_name(name)


def test_labels_of_the_metric_are_the_contracts() -> None:
    """The metric's folder is uploaded alone, so it has them again."""
    assert options.LABELS == schema.LABELS


def test_all_classes_list_the_classes_files() -> None:
    """The all-classes configuration has seeds of its own and every class's variants."""
    assert schema.config_files("snli") == {
        "seeds": ("snli/seeds.parquet",),
        "variants": tuple(
            f"snli/{folder}/variants.parquet"
            for folder in ("nouns", "verbs", "adjectives", "adverbs")
        ),
    }


def test_paraphrases_are_a_collection_of_their_own() -> None:
    """A configuration of paraphrases lies in a top folder of its name, and in no other."""
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


def test_variant_ids() -> None:
    """An id has what was put in place of what; of a paraphrase, twelve digits of SHA-256."""
    assert schema.variant_id("snli:1", "noun", "girl A", "owl An") == "snli:1/noun/girl+A/owl+An"
    digest = hashlib.sha256("Élan.".encode()).hexdigest()[:12]
    made = schema.variant_id("snli:1", "paraphrase", "Verve.", "Élan.")
    assert made == f"snli:1/paraphrase/{digest}"


def test_every_column_has_a_summary() -> None:
    """In the order of the columns, with the names of the texts put in."""
    problem_format = schema.ProblemFormat(("context", "question", "answer"), ("yes", "no"))
    for each in (schema.NLI, problem_format):
        summaries = schema.column_summaries(each)
        assert list(summaries) == schema.arrow_schema(each).names
    assert summaries["question_mlms"] == "Those that did in the question."


def test_features_are_the_columns_with_label_names() -> None:
    """Features and Parquet columns agree; both label columns know their names."""
    features = schema.features()
    assert features.arrow_schema.remove_metadata() == schema.arrow_schema()
    label = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    assert features["label"] == label
    assert features["annotator_labels"] == datasets.Sequence(label)
