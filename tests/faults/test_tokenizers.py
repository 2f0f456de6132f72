"""Tokenizers that are not the checkpoint's: answers and tokens stay those of `tokenizer.json`."""

import json
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.answers import answers
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from helpers.tiny_models import tiny_model
from tokenizers import Tokenizer
from transformers import AutoConfig

from merge_metric.demo import MODEL
from merge_metric.models.classifier import Classifier
from merge_metric.models.inspection import HEADS, TOKENIZER_CONFIG, find_head, inspect
from merge_metric.models.tokens import TOKENIZER, read_tokenizer

Json = dict[str, Any]
PAIRS = [
    ("Two dogs run in a park.", "Animals are outdoors."),
    ("A man in Zürich plays 2 guitars.", "Nobody is playing."),
]
TEXT = "An OLD man can't play the naïve café's 1,234 guitars: “why?”"


def changed(folder: Path, to: Path, settings: Mapping[str, Any] | None, **file: Any) -> Path:
    """Copy a model with other settings of its tokenizer, none at all, or changes to its file."""
    copy = shutil.copytree(folder, to)
    content = json.loads((copy / TOKENIZER).read_text()) | file
    (copy / TOKENIZER).write_text(json.dumps(content))
    (copy / TOKENIZER_CONFIG).unlink()
    if settings is not None:
        (copy / TOKENIZER_CONFIG).write_text(json.dumps(settings))
    return copy


def stated(folder: Path) -> Json:
    result: Json = json.loads((folder / TOKENIZER_CONFIG).read_text())
    return result


def read(folder: Path) -> Any:
    config = AutoConfig.from_pretrained(folder)
    return read_tokenizer(inspect(folder, find_head(str(folder), HEADS)), folder, config)


REPLACED = ("RobertaTokenizer", "LlamaTokenizer", "XLNetTokenizer", "ByT5Tokenizer")
SAME_TOKENS = ("PreTrainedTokenizerFast", "NoSuchTokenizer", "DistilBertTokenizer")


@cache
def usual() -> Any:
    return answers(Classifier.load(MODEL, device="cpu"), PAIRS)


@pytest.mark.slow(but=["RobertaTokenizer", "PreTrainedTokenizerFast", "DistilBertTokenizer"])
@pytest.mark.parametrize("name", [*REPLACED, *SAME_TOKENS])
def test_a_classifier_answers_as_with_its_own_class(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = changed(MODEL, tmp_path / "m", stated(MODEL) | {"tokenizer_class": name})
    result = answers(Classifier.load(folder, device="cpu"), PAIRS)
    np.testing.assert_equal(result, usual())
    assert caplog.messages == [
        f"m: {name}, as {TOKENIZER_CONFIG} has it, does not make the tokens that {TOKENIZER} says: "
        "they are made as the file says"
    ] * (name in REPLACED)


@pytest.mark.parametrize("kind", ["bert-cased", "roberta", "albert"])
def test_masked_lms(kind: str, tmp_path: Path) -> None:
    plain = tiny_model(kind)
    other = "BertTokenizer" if kind != "bert-cased" else "RobertaTokenizer"
    folder = changed(plain, tmp_path / "m", stated(plain) | {"tokenizer_class": other})
    result = read(folder)
    wanted = Tokenizer.from_file(str(plain / TOKENIZER)).encode(TEXT).ids
    assert result(TEXT)["input_ids"] == read(plain)(TEXT)["input_ids"] == wanted
    assert result.mask_token == read(plain).mask_token


@pytest.mark.parametrize("other", ["BertTokenizer", "LlamaTokenizer", "NoSuchTokenizer"])
def test_language_models(other: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    tiny_lm("gpt2").save_pretrained(plain)
    tokenizer = tiny_tokenizer("gpt2")
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    tokenizer.save_pretrained(plain)
    folder = changed(plain, tmp_path / "m", stated(plain) | {"tokenizer_class": other})
    result = read(folder)
    assert result(TEXT)["input_ids"] == tokenizer(TEXT)["input_ids"]
    assert (result.eos_token, result.chat_template) == (
        tokenizer.eos_token,
        tokenizer.chat_template,
    )


UNCASED = tiny_classifier("bert-uncased", ("entailment", "neutral", "contradiction"))
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": None}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "file", "lower", "types"),
    [
        (None, {"lowercase": False}, False, True),
        ({"tokenizer_class": "RobertaTokenizer"}, {"lowercase": False}, False, True),
        ({"do_lower_case": True}, {"lowercase": False}, True, True),
        ({"do_lower_case": False}, {"lowercase": True}, False, True),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True},
         {"lowercase": False}, False, True),
        ({"model_input_names": ["input_ids", "attention_mask"]}, {}, True, False),
    ],
)  # fmt: skip
def test_what_a_checkpoint_states_holds(
    settings: Json | None, file: Json, lower: bool, types: bool, tmp_path: Path
) -> None:
    normalizer = BERT | {"lowercase": True} | file
    tokenizer = read(changed(UNCASED, tmp_path / "m", settings, normalizer=normalizer))
    backend = tokenizer.backend_tokenizer
    assert backend.normalizer.normalize_str("AB") == ("ab" if lower else "AB")
    assert tokenizer("a")["input_ids"][0] == backend.token_to_id("[CLS]")
    assert ("token_type_ids" in tokenizer.model_input_names) == types


@pytest.mark.parametrize(
    ("kind", "version", "types"),
    [("albert", "4.57.1", True), ("albert", "5.23.0", False), ("xlnet", "2.1.1", True),
     ("roberta", "4.57.1", False), ("bert-uncased", "5.23.0", True)],
)  # fmt: skip
def test_types_of_tokens_are_those_of_training(
    kind: str, version: str, types: bool, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_classifier(kind), tmp_path / "m")
    config = json.loads((folder / "config.json").read_text()) | {"transformers_version": version}
    (folder / "config.json").write_text(json.dumps(config))
    assert ("token_type_ids" in read(folder).model_input_names) == types
