"""The list of the paper's models, and selections from it."""

from collections import Counter

from merge_metric.models.label_order import parse_order
from merge_metric.models.readiness import read_presets

TABLE_7 = """
BART-B-S BERT-B-S BERT-L-S DeBERTa-v3-B-S DeBERTa-v3-L-S GPT-2-L-S OPT-1-3b-S RoBERTa-B-S
ALBERT-XXL-SMFA BART-L-SMFA Electra-L-SMFA RoBERTa-L-SMFA XLNet-L-SMFA
BERT-B-M RoBERTa-B-M RoBERTa-L-M BART-L-M
Gemma-2-9b Llama-3.1-8B
""".split()


def test_the_papers_models() -> None:
    """Table 7 of the paper, in its order: 17 classifiers and 2 language models."""
    presets = read_presets("paper")
    assert [preset.name for preset in presets] == TABLE_7
    assert Counter(preset.group for preset in presets) == {"S": 8, "SMFA": 5, "M": 4, "LLM": 2}
    assert Counter(preset.kind for preset in presets) == {"classifier": 17, "lm": 2}
    assert len({preset.model for preset in presets}) == 19
    for preset in presets:
        assert preset.group == "LLM" or preset.name.endswith(f"-{preset.group}")


def test_a_model_of_two_lists_has_one_label_order() -> None:
    by_model: dict[str, set[object]] = {}
    for name in ("paper", "sensitivity", "poster"):
        for preset in read_presets(name):
            by_model.setdefault(preset.model, set()).add(
                (preset.label_order, preset.label_order_source)
            )
    assert {model: kinds for model, kinds in by_model.items() if len(kinds) > 1} == {}
    assert len(by_model) == 19 + 4 + 1


def test_every_order_has_a_document_or_none_is_claimed() -> None:
    named = {"FacebookAI/roberta-large-mnli", "facebook/bart-large-mnli"}
    for preset in read_presets("paper"):
        order, document = preset.label_order, preset.label_order_source
        if preset.kind == "lm" or preset.not_on_hub or preset.model in named:
            assert order is document is None
        elif order == "seeds":
            assert document is None
        else:
            assert parse_order(order or "").names[0]
            assert (document or "").startswith("https://github.com/")
