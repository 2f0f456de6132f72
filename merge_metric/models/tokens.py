"""Tokenizers: read without code of their own, made fast, and tried on the texts.

transformers builds a tokenizer anew by the class that `tokenizer_config.json` names, and takes
little more than the vocabulary from `tokenizer.json`. Where that class is another model's, words
fall into other tokens without an error. So the tokens of some texts are compared with those that
`tokenizer.json` gives by itself.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import lru_cache
from itertools import islice
from logging import getLogger
from pathlib import Path
from typing import Any, Final, cast

from merge_metric.models.inspection import CONFIG, TOKENIZER_CONFIG, Inspection

log = getLogger(__name__)

TOKENIZER: Final = "tokenizer.json"

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
    "do_lower_case": "lowercase", "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}  # fmt: skip
"""Settings by which BERT's classes change the normaliser of the file → their names in it."""
_TYPED, _NEVER_TYPED = frozenset({"xlnet"}), frozenset({"big_bird"})
"""Types of models whose `type_vocab_size` misleads: trained with types of tokens, or without."""


def read_tokenizer(inspection: Inspection, folder: Path, config: Any) -> Any:
    """Read a tokenizer, by its file alone if the stated class does not give the file's tokens.

    What the checkpoint states itself holds: `do_lower_case`, `add_prefix_space`, `add_bos_token`
    and the like, and `model_input_names`.
    """
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer
    from transformers import PreTrainedTokenizerFast as Fast

    files, file, stated = inspection.files, folder / TOKENIZER, folder / TOKENIZER_CONFIG
    gguf, tokenizer = files.gguf_file, cast(Any, None)
    with files.reading("a tokenizer", inspection.tokenizer):
        has_file = gguf is None and file.is_file()
        settings = json.loads(stated.read_text(encoding="utf-8")) if stated.is_file() else {}
        # Errors are of all kinds where a class gets the vocabulary of another.
        with suppress(Exception) if has_file else nullcontext():
            tokenizer = AutoTokenizer.from_pretrained(
                folder, config=config, trust_remote_code=False, gguf_file=gguf
            )
        if has_file and not _follows(tokenizer, file, settings):
            named = settings.get("tokenizer_class") or type(tokenizer).__name__
            log.warning(
                "%s: %s, as %s has it, does not make the tokens that %s says: they are made as "
                "the file says", files.name, named, TOKENIZER_CONFIG, TOKENIZER,
            )  # fmt: skip
            known = Tokenizer.from_file(str(file)).get_vocab()
            special = getattr(tokenizer, "special_tokens_map", {})
            special = {key: token for key, token in special.items() if str(token) in known}
            tokenizer = cast(Any, Fast).from_pretrained(folder, **special)
        if gguf is None:
            types = ["token_type_ids"] * _has_types(tokenizer, config)
            names = settings.get("model_input_names") or ["input_ids", "attention_mask", *types]
            tokenizer.model_input_names = names
    size = tokenizer.vocab_size  # tokens that were added to it do not count
    most = getattr(config.get_text_config(), "vocab_size", None) or size
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        size = 0  # transformers makes one up where it finds no file of the kind it wants
    if not 0 < size <= most:
        raise ValueError(
            f"{files.where(inspection.tokenizer)}: expected a tokenizer of at most {most:,} "
            f"tokens, as {CONFIG} says, got {size:,} beside special ones: is it that of another "
            "model?"
        )
    return tokenizer


def _follows(tokenizer: Any, file: Path, settings: Mapping[str, Any]) -> bool:
    """Tell whether a tokenizer's tokens of the probes are its file's, as it is or as settings say.

    Special tokens count unless the settings state them, or the file leaves them to the class.
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast as Fast

    if settings.get("fix_mistral_regex"):  # which mends the file
        return True
    content = json.loads(file.read_text(encoding="utf-8"))
    is_stated = {"add_bos_token", "add_eos_token"} & settings.keys()
    special = content.get("post_processor") is not None and not is_stated
    as_it_is = json.dumps(content)
    normalizer, splitter = content.get("normalizer") or {}, content.get("pre_tokenizer") or {}
    if normalizer.get("type") == "BertNormalizer":
        normalizer |= {own: settings[key] for key, own in _OF_BERT.items() if key in settings}
    if "add_prefix_space" in splitter and "add_prefix_space" in settings:
        splitter["add_prefix_space"] = bool(settings["add_prefix_space"])
    backends = map(Tokenizer.from_str, {as_it_is, json.dumps(content)})
    wanted = [_tokens(cast(Any, Fast)(tokenizer_object=one), special) for one in backends]
    return _tokens(tokenizer, special) in wanted


def _tokens(tokenizer: Any, special: bool) -> list[list[int]]:
    """Return the probes' tokens, as pairs and first texts alone, as far as it can read them."""
    tokens: list[list[int]] = []
    with suppress(Exception):  # a class of another model may need more than texts
        firsts, seconds = (list(texts) for texts in zip(*_PROBES, strict=True))
        for texts in ((firsts, seconds), (firsts,)):
            tokens += tokenizer(*texts, add_special_tokens=special, verbose=False)["input_ids"]
    return tokens


def _has_types(tokenizer: Any, config: Any) -> bool:
    """Tell whether types of tokens told a pair's texts apart when the model was trained.

    They did if the usual class of the model's type says so; but transformers 5 takes them from
    classes that gave them before, such as ALBERT's, so older checkpoints are asked themselves.
    """
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

    kind, types = config.model_type, getattr(config.get_text_config(), "type_vocab_size", None)
    usual = TOKENIZER_MAPPING.get(type(config), None)
    major = str(getattr(config, "transformers_version", None) or 4).partition(".")[0]
    is_newer = kind in _NEVER_TYPED or (major.isdecimal() and int(major) >= 5)
    if is_newer and "token_type_ids" not in getattr(usual, "model_input_names", ()):
        return False
    pair = tokenizer(*_PROBES[0], return_token_type_ids=True, verbose=False)
    return ((types or 0) > 1 or kind in _TYPED) and any(pair["token_type_ids"])


def plain_tokenizer(tokenizer: Any) -> Any:
    """Copy the tokenizer of `tokenizers` inside a fast one, without padding and truncation."""
    from tokenizers import Tokenizer

    plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    plain.no_padding()
    plain.no_truncation()
    return plain


# --- Words ---
#
# BERT's tokenizers normalise single characters and split at spaces and punctuation before they look
# for word pieces, so the tokens of an ASCII text are the tokens of its words, one after the other.
# To join cached ids of words is six times as fast as the library.

_WORD: Final = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z ]")

PairTokens = Callable[[str, str], tuple[list[int], list[int]] | None]
"""Token ids and type ids of a pair of texts with special tokens; None if words do not tell."""


def word_tokens(tokenizer: Any) -> PairTokens | None:
    """Make the function for a tokenizer of `tokenizers`; None if it does not work like BERT's."""
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing, TemplateProcessing

    two, added = tokenizer.encode("a", "a"), tokenizer.get_added_tokens_decoder().values()
    works_so = (
        isinstance(tokenizer.normalizer, BertNormalizer)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and isinstance(tokenizer.model, WordPiece)
        and isinstance(tokenizer.post_processor, BertProcessing | TemplateProcessing)
        # Other added tokens are matched in the normalised text.
        and not any(token.normalized for token in added)
        and [n for n in two.sequence_ids if n is not None] == [0, 1]
    )
    if not works_so:
        return None
    special, ids, types = [token.content for token in added], two.ids, two.type_ids
    i, j = two.sequence_ids.index(0), two.sequence_ids.index(1)

    @lru_cache(2**17)
    def of_word(word: str) -> list[int]:
        return list(tokenizer.encode(word, add_special_tokens=False).ids)

    def of_pair(*pair: str) -> tuple[list[int], list[int]] | None:
        for text in pair:
            is_plain = text.isascii() and text.isprintable()
            if not is_plain or any(token in text for token in special):
                return None
        one, other = ([n for w in _WORD.findall(text) for n in of_word(w)] for text in pair)
        return (
            [*ids[:i], *one, *ids[i + 1 : j], *other, *ids[j + 1 :]],
            [*types[:i], *types[i : i + 1] * len(one), *types[i + 1 : j],
             *types[j : j + 1] * len(other), *types[j + 1 :]],
        )  # fmt: skip

    return of_pair


# --- Unknown tokens ---
#
# A vocabulary that fits the language splits unknown words, down to single letters if necessary:
# with BERT's, one token in 20,000 of MultiNLI is unknown, and none of SNLI. A model with a missing
# or broken tokenizer, or one of another language, still gives answers.

SHARE: Final = 0.03
"""Largest share of unknown tokens without a warning; a suitable vocabulary has far fewer."""
_TEXTS: Final = 2000
"""Size of the sample of texts: with 24 tokens each, 3 % is estimated to within 0.2."""
_EXAMPLES: Final = 5


def unknown_sentence(unknown: Mapping[str, Any]) -> str:
    """Describe the result of `count_unknown` in a sentence."""
    return (
        f"{unknown['unknown'] / unknown['tokens']:.0%} of {unknown['tokens']:,} tokens in "
        f"{unknown['texts']:,} texts are unknown to its tokenizer, as in "
        f"{', '.join(map(repr, unknown['words']))}; is it the tokenizer that it was trained with, "
        "and the right language?"
    ).replace("%", " %", 1)


def warn_of_unknown(name: str, unknown: Mapping[str, Any]) -> None:
    """Warn if `count_unknown` found many unknown tokens."""
    if unknown:
        log.warning("%s: warning: %s", name, unknown_sentence(unknown))


def count_unknown(
    questions: Sequence[Sequence[str]],
    tokenize: Callable[[list[str]], Sequence[Sequence[int]]],
    unknown_id: int | None,
) -> dict[str, Any]:
    """Count unknown tokens in an even sample of questions, for provenance; empty if few."""
    step = -(-len(questions) // _TEXTS) or 1
    sample = [" ".join(texts) for texts in questions[::step]]
    if unknown_id is None or not sample:
        return {}
    rows = tokenize(sample)
    tokens = sum(map(len, rows))
    unknown = sum(list(row).count(unknown_id) for row in rows)
    if unknown <= SHARE * tokens:
        return {}
    words = [w for w, _ in Counter(w for text in sample for w in text.split()).most_common()]
    bad = (word for word, row in zip(words, tokenize(words), strict=True) if unknown_id in row)
    examples = list(islice(bad, _EXAMPLES))
    return {"texts": len(sample), "tokens": tokens, "unknown": unknown, "words": examples}
