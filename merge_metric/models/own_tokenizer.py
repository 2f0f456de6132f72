"""A checkpoint's own tokenizer, whatever class its settings name.

transformers builds a tokenizer anew by the class that `tokenizer_config.json` names, and takes
little more than the vocabulary from `tokenizer.json`. Where that class is another model's, words
fall into other tokens without an error. So the tokens of some texts are compared with those that
`tokenizer.json` gives by itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

log = logging.getLogger(__name__)

FILE: Final = "tokenizer.json"
SETTINGS: Final = "tokenizer_config.json"

_PROBES: Final = (
    ("An old man is playing a guitar in the street.", "A man is making music outdoors."),
    (
        "A naïve café owner's 3rd-rate “Käse”, 1,234.50 kg of it, can't be sold in ZÜRICH — why?",
        'The QUICKEST brown fox (antidisestablishmentarian) re-jumped;  she said: "don\'t!"',
    ),
    ("Premise: Two dogs, 東京 and Søren, run & bark.\n\nAnswer:\n", "B\nC. It's 100% #1 @ 7 p.m."),
)
"""Pairs of texts with capitals, accents, punctuation, digits, rare words, and line breaks."""
_OF_BERT: Final = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Settings by which BERT's classes change the normaliser of the file → their names in it."""
_TYPED, _NEVER_TYPED = frozenset({"xlnet"}), frozenset({"big_bird"})
"""Types of models whose `type_vocab_size` misleads: trained with types of tokens, or without."""

_Tokens = list[list[int]]


def read_tokenizer(folder: Path, config: Any, name: str) -> Any:
    """Read a tokenizer, by a class that gives the tokens of the file if the stated one does not.

    What the checkpoint states itself holds: `do_lower_case`, `add_prefix_space`, `add_bos_token`
    and the like, and `model_input_names`.

    Args:
        folder: The checkpoint's.
        config: Its configuration.
        name: The model's, for warnings.

    Raises:
        ValueError: no class of transformers gives the tokens of the file.
        Exception: transformers cannot read it.
    """
    from transformers import AutoTokenizer

    stated = folder / SETTINGS
    settings = json.loads(stated.read_text(encoding="utf-8")) if stated.is_file() else {}
    try:
        made = AutoTokenizer.from_pretrained(folder, config=config, trust_remote_code=False)
    except Exception:  # of all kinds, where a class gets the vocabulary of another
        if not (folder / FILE).is_file():
            raise
        made = None
    found: Any = made
    if (folder / FILE).is_file() and not settings.get("fix_mistral_regex"):  # which mends the file
        special, wanted = _tokens_of_file(folder / FILE, settings)
        made_by = _candidates(made, folder, config)
        found = next((each for each in made_by if _tokens(each, special) in wanted), None)
        named = settings.get("tokenizer_class") or type(made).__name__
        if found is None:
            raise ValueError(
                f"{named}, as {SETTINGS} has it, makes other tokens than {FILE} says, and so does "
                f"every other class: save the tokenizer again as it was in training"
            )
        if found is not made:
            log.warning(
                "%s: %s, as %s has it, does not make the tokens that %s says: they are made as "
                "the file says", name, named, SETTINGS, FILE,
            )  # fmt: skip
    names = ["input_ids", "attention_mask", *["token_type_ids"] * _has_types(found, config)]
    found.model_input_names = settings.get("model_input_names") or names
    return found


def _candidates(made: Any, folder: Path, config: Any) -> Iterator[Any]:
    """Yield tokenizers by the stated class, by the usual one of the model, and by the file."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

    with suppress(Exception):  # as above
        if made is not None:
            yield made
        usual: Any = TOKENIZER_MAPPING[type(config)]
        made = usual.from_pretrained(folder)
        yield made
    known = Tokenizer.from_file(str(folder / FILE)).get_vocab()
    special = made.special_tokens_map if made is not None else {}
    special = {key: token for key, token in special.items() if str(token) in known}
    yield PreTrainedTokenizerFast.from_pretrained(folder, **special)


def _tokens_of_file(path: Path, settings: Mapping[str, Any]) -> tuple[bool, list[_Tokens]]:
    """Return the probes' tokens by the file alone, and by the file changed as the settings state.

    Also returns whether special tokens count: not where the settings state them, or where the
    file has none and leaves them to the class.
    """
    from tokenizers import Tokenizer

    content = json.loads(path.read_text(encoding="utf-8"))
    stated = {"add_bos_token", "add_eos_token"} & settings.keys()
    special = content.get("post_processor") is not None and not stated
    contents = [json.dumps(content)]
    normalizer, splitter = content.get("normalizer") or {}, content.get("pre_tokenizer") or {}
    if normalizer.get("type") == "BertNormalizer":
        normalizer |= {own: settings[key] for key, own in _OF_BERT.items() if key in settings}
    if "add_prefix_space" in splitter and "add_prefix_space" in settings:
        splitter["add_prefix_space"] = bool(settings["add_prefix_space"])
    contents.append(json.dumps(content))
    found = []
    for text in dict.fromkeys(contents):
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokens: _Tokens = []
        with suppress(Exception):  # one without a token for unknown words
            for texts in (_PROBES, [first for first, _ in _PROBES]):
                encoded = tokenizer.encode_batch(list(texts), add_special_tokens=special)
                tokens += [each.ids for each in encoded]
        found.append(tokens)
    return special, found


def _tokens(tokenizer: Any, special: bool) -> _Tokens:
    tokens: _Tokens = []
    with suppress(Exception):  # a class of another model may need more than texts
        firsts, seconds = (list(texts) for texts in zip(*_PROBES, strict=True))
        for texts in ((firsts, seconds), (firsts,)):
            tokens += tokenizer(*texts, add_special_tokens=special, verbose=False)["input_ids"]
    return tokens


def _has_types(tokenizer: Any, config: Any) -> bool:
    """Tell whether types of tokens told a pair's texts apart in the model's training.

    The usual class of its type says so; but transformers 5 takes them from classes that gave them
    before, such as ALBERT's and XLNet's, so older checkpoints are asked themselves.
    """
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

    kind, types = config.model_type, getattr(config.get_text_config(), "type_vocab_size", None)
    usual = TOKENIZER_MAPPING.get(type(config), None)
    major = str(getattr(config, "transformers_version", None) or 4).partition(".")[0]
    without = kind in _NEVER_TYPED or (major.isdecimal() and int(major) >= 5)
    if without and "token_type_ids" not in getattr(usual, "model_input_names", ()):
        return False
    pair = tokenizer(*_PROBES[0], return_token_type_ids=True, verbose=False)
    return ((types or 0) > 1 or kind in _TYPED) and any(pair["token_type_ids"])
