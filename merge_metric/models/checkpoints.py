"""Checkpoints: configuration, tokenizer and weights of one commit, loaded without their code."""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext, suppress
from functools import lru_cache
from itertools import islice
from logging import ERROR, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from merge_metric.models.inspection import (
    ADAPTER_CONFIG,
    CLASSIFIER,
    CONFIG,
    MASKED_LM,
    TOKENIZER_CONFIG,
    Inspection,
    build_on_meta,
    read_gguf_config,
)
from merge_metric.models.model_files import read_shapes

if TYPE_CHECKING:
    import torch

log = getLogger(__name__)

_UNUSED: Final = re.compile(
    r"^(cls|lm_head|lm_loss|predictions|sop_classifier|discriminator_predictions|generator_\w+|"
    r"lm_predictions|mask_predictions|vocab_\w+|qa_outputs|embeddings_project|final_logits_bias)\b"
    r"|(^|\.)(pooler|position_ids|token_type_ids|version|masked_bias|inv_freq|attn\.bias)\b"
)
"""Names of tensors that belong to a model of another class and change no answer."""
_LARGEST_KEPT: Final = 2**25 - 2**14
_MOST_TIMES: Final = 16
"""Most parameters of a model per element in its files: several may share one, or be packed."""
_SIZES: Final = (
    "num_hidden_layers", "decoder_layers", "num_decoder_layers", "num_attention_heads",
    "hidden_size", "vocab_size",
)  # fmt: skip
_ADAPTER_PREFIX: Final = "base_model.model."


class Loaded(NamedTuple):
    """A model on its device, in its dtype, with its tokenizer and identity."""

    model: Any
    tokenizer: Any
    name: str
    revision: str
    """Commit on the Hub, or digest of the files; for an adapter, followed by "+" and the base's."""
    weights: dict[str, Any] | None = None
    """Provenance of the weights: their format and digest, and the base of an adapter."""

    def describe(self) -> dict[str, Any]:
        """Describe everything that determines answers: model, architecture, dtype and packages."""
        import torch
        import transformers

        return {
            "name": self.name,
            "revision": self.revision,
            "architecture": type(self.model).__name__,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.model.device.type),
            "packages": {"torch": torch.__version__, "transformers": transformers.__version__},
        }

    def facts(self) -> dict[str, Any]:
        """Return the number of parameters, and the provenance of the weights if it is known."""
        of_weights = {"weights": self.weights} if self.weights else {}
        return {"parameters": self.model.num_parameters(), **of_weights}


def load(inspection: Inspection, *, device: str = "auto", dtype: str = "auto") -> Loaded:
    """Load a model, with layers packed if faster, and its tokenizer.

    The `dtype` is "auto", or the name of one of torch's types of real numbers.
    """
    import torch

    from merge_metric.models.fast_layers import pack_linear_layers

    device = resolve_device(device)
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    if device == "cpu":
        # glibc returns freed memory to the system, and then requests it again page by page, up
        # to a multiple of the largest block freed so far: a sixth of a small model's time.
        torch.empty(_LARGEST_KEPT, dtype=torch.uint8)
        if torch.backends.cpu.get_cpu_capability() == "AVX2":
            # Else MKL's rounding depends on the addresses of operands. It reads this variable at
            # its first product, so it has no effect in a process that has computed before.
            os.environ.setdefault("MKL_CBWR", "AVX2")
    base, files, config = inspection.base, inspection.files, inspection.config
    folder, kind = files.download(inspection.needed), getattr(torch, dtype)
    if base is None:
        config = config or read_gguf_config(files, str(files.gguf_file))
        tokenizer = read_tokenizer(inspection, folder, config)
        model = _read_model(inspection, config, folder, kind)
    else:
        base_folder = base.files.download(base.needed)
        has_own = all(name in files for name in inspection.tokenizer.split(", "))
        owner = (inspection, folder) if has_own else (base, base_folder)
        tokenizer = read_tokenizer(*owner, config)
        names = read_shapes(files, inspection.weights.names)  # also tells of half a download
        replaced = {name.partition(_ADAPTER_PREFIX)[2] for name in names}
        model = _read_model(base, config, base_folder, kind, replaced)
        with files.reading(f"an adapter of {base.files.name}", ADAPTER_CONFIG):
            model = _merge(model, folder, files.source)
    numbers = ((n, w) for n, w in model.named_parameters() if w.is_floating_point() and w.numel())
    for name, weight in numbers:
        bounds = torch.stack(torch.aminmax(weight.detach()))  # without a mask of all elements
        if not torch.isfinite(bounds).all():  # every answer would be none
            why = "the file is damaged, or training diverged; get it again"
            if weight.dtype == torch.float16 and not bounds.isnan().any():
                why = "numbers too large for float16 do this; try `dtype` bfloat16 or float32"
            raise ValueError(
                f"{files.where(inspection.weights.names[0])}: expected numbers, got "
                f"{bounds[0].item()} in {name}: {why}"
            )
    revision, provenance = _identify(inspection)
    return Loaded(pack_linear_layers(model.to(device)), tokenizer, files.name, revision, provenance)


def resolve_device(device: str) -> str:
    """Return the best device available for `auto`; require that torch has any other one."""
    import torch

    here = ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    if device == "auto":
        return [*here, "cpu"][0]
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device: expected one that torch finds here ({', '.join(['auto', 'cpu', *here])}), "
            f"got {device!r}"
        ) from error
    return device


def max_tokens(model: Any, tokenizer: Any) -> int | None:
    """Return the longest input in tokens, with special tokens; None where there is no limit."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or -1
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    if positions > 0 and padding is not None:
        positions -= padding + 1
    limits = [limit for limit in (positions, tokenizer.model_max_length) if 0 < limit < 10**9]
    return min(limits, default=None)


def _read_model(
    inspection: Inspection,
    config: Any,
    folder: Path,
    dtype: torch.dtype,
    replaced: Set[str] = frozenset(),
) -> Any:
    """Build the model of a configuration, and fill it with the checkpoint's tensors, no others.

    Tensors that an adapter has `replaced` may be missing or have another shape.
    """
    import transformers

    head, files, weights = inspection.head, inspection.files, inspection.weights
    is_pickle = weights.format == "pickle"
    shapes = read_shapes(files, weights.names) if is_pickle else weights.shapes
    if any(name.startswith("lm_predictions.") for name in shapes):
        config.legacy = False  # the masked-LM head that DeBERTa was published with
    with files.reading(f"the configuration of a {head.name}", files.gguf_file or CONFIG):
        # Sizes that do not fit would fill the memory, or take minutes to fail.
        sizes = {name: getattr(config.get_text_config(), name, None) for name in _SIZES}
        elements = sum(map(math.prod, shapes.values())) or 8 * files.sizes[weights.names[0]]
        is_odd = any(type(n) is int and not 0 <= n <= elements for n in sizes.values())
        built = None if is_odd else build_on_meta(head, config)
        if built is None or built.num_parameters() > _MOST_TIMES * elements + 2**20:
            raise ValueError(f"its sizes {sizes} do not fit weights of {elements:,} elements")
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(ERROR)  # below we check which tensors fit
    try:
        with files.reading(f"a {head.name}", weights.names[0]):
            model, info = type(built).from_pretrained(
                folder,
                config=config,  # reading a GGUF file's metadata again takes seconds
                dtype=dtype,
                use_safetensors=not is_pickle,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # raised below with our own message
                trust_remote_code=False,
                gguf_file=files.gguf_file,
            )
    finally:
        transformers.logging.set_verbosity(before)
    lacks = sorted(set(info["missing_keys"]) - replaced)
    surplus = sorted(key for key in info["unexpected_keys"] if not _UNUSED.search(key))
    others = [
        f"{key} of the shape {tuple(shape)}, where {CONFIG} says {tuple(expected)}"
        for key, shape, expected in sorted(info["mismatched_keys"], key=str)
        if key not in replaced
    ]
    if others or lacks or (surplus and head in (CLASSIFIER, MASKED_LM)):
        has = f", and has {(others or surplus)[:3]} beside them" if others or surplus else ""
        missing = f"{len(lacks):,}, such as {lacks[:3]}" if lacks else "none"
        raise ValueError(
            f"{files.where(weights.names[0])}: expected all weights of a {type(model).__name__} "
            f"and no others, but the checkpoint lacks {missing}{has}: is it damaged, or a model "
            "for another task, or with layers of its own?"
        )
    return model


def _merge(base: Any, folder: Path, source: str) -> Any:
    import peft

    with warnings.catch_warnings():
        # Its warnings are about settings of other versions, and missing keys, counted below.
        warnings.simplefilter("ignore")
        config = peft.PeftConfig.from_pretrained(str(folder))
        config.auto_mapping = None
        model = peft.get_peft_model(base, config)
        tensors = peft.load_peft_weights(str(folder), device="cpu")
        peft.set_peft_model_state_dict(model, tensors)
    names = set(peft.get_peft_model_state_dict(model, save_embedding_layers=False))
    if odd := names ^ tensors.keys():
        raise ValueError(
            f"{source}: expected the tensors of an adapter of {type(base).__name__}, got others or "
            f"too few, as {min(odd)} shows: is it an adapter of another base model?"
        )
    return model.merge_and_unload()


def _identify(inspection: Inspection) -> tuple[str, dict[str, Any]]:
    files, names = inspection.files, inspection.weights.names
    files.remember()
    revision = files.commit or files.digest_of_files(inspection.needed)
    digest = files.digest_of(names[0]) if len(names) == 1 else files.digest_of_files(names)
    provenance: dict[str, Any] = {"format": inspection.weights.format, "sha256": digest}
    if inspection.base is None:
        return revision, provenance
    base_revision, base = _identify(inspection.base)
    provenance["base"] = {"name": inspection.base.files.name, "revision": base_revision, **base}
    return f"{revision}+{base_revision}", provenance


# --- Tokenizers ---
#
# transformers builds a tokenizer anew by the class that `tokenizer_config.json` names, and takes
# little more than the vocabulary from `tokenizer.json`. Where that class is another model's, words
# fall into other tokens without an error. So the tokens of some texts are compared with those that
# `tokenizer.json` gives by itself.

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
    from transformers import AutoTokenizer

    files, gguf = inspection.files, inspection.files.gguf_file
    with files.reading("a tokenizer", inspection.tokenizer):
        if gguf is None:
            tokenizer = _own_tokenizer(folder, config, files.name)
        else:
            tokenizer = AutoTokenizer.from_pretrained(
                folder, config=config, trust_remote_code=False, gguf_file=gguf
            )
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


def _own_tokenizer(folder: Path, config: Any, name: str) -> Any:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer
    from transformers import PreTrainedTokenizerFast as Fast
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

    file, stated, tokenizer = folder / TOKENIZER, folder / TOKENIZER_CONFIG, cast(Any, None)
    settings = json.loads(stated.read_text(encoding="utf-8")) if stated.is_file() else {}
    # Errors are of all kinds where a class gets the vocabulary of another.
    with suppress(Exception) if file.is_file() else nullcontext():
        tokenizer = AutoTokenizer.from_pretrained(folder, config=config, trust_remote_code=False)
    if file.is_file() and not settings.get("fix_mistral_regex"):  # which mends the file
        # The probes' tokens by the file alone, and by the file changed as the settings state.
        # Special tokens count unless the settings state them, or the file leaves them to the class.
        content = json.loads(file.read_text(encoding="utf-8"))
        stated_special = {"add_bos_token", "add_eos_token"} & settings.keys()
        special = content.get("post_processor") is not None and not stated_special
        as_it_is, fast = json.dumps(content), cast("Any", Fast)
        normalizer, splitter = content.get("normalizer") or {}, content.get("pre_tokenizer") or {}
        if normalizer.get("type") == "BertNormalizer":
            normalizer |= {own: settings[key] for key, own in _OF_BERT.items() if key in settings}
        if "add_prefix_space" in splitter and "add_prefix_space" in settings:
            splitter["add_prefix_space"] = bool(settings["add_prefix_space"])
        backends = map(Tokenizer.from_str, {as_it_is, json.dumps(content)})
        wanted = [_tokens(fast(tokenizer_object=backend), special) for backend in backends]
        if _tokens(tokenizer, special) not in wanted:
            named = settings.get("tokenizer_class") or type(tokenizer).__name__
            log.warning(
                "%s: %s, as %s has it, does not make the tokens that %s says: they are made as "
                "the file says", name, named, TOKENIZER_CONFIG, TOKENIZER,
            )  # fmt: skip
            known = Tokenizer.from_file(str(file)).get_vocab()
            tokens = getattr(tokenizer, "special_tokens_map", {})
            tokens = {key: token for key, token in tokens.items() if str(token) in known}
            tokenizer = fast.from_pretrained(folder, **tokens)
    # Types of tokens told a pair's texts apart in training if the usual class of the model's type
    # says so; but transformers 5 takes them from classes that gave them before, such as ALBERT's
    # and XLNet's, so older checkpoints are asked themselves.
    kind, types = config.model_type, getattr(config.get_text_config(), "type_vocab_size", None)
    usual = TOKENIZER_MAPPING.get(type(config), None)
    major = str(getattr(config, "transformers_version", None) or 4).partition(".")[0]
    has_types = "token_type_ids" in getattr(usual, "model_input_names", ()) or not (
        kind in _NEVER_TYPED or (major.isdecimal() and int(major) >= 5)
    )
    if has_types:
        pair = tokenizer(*_PROBES[0], return_token_type_ids=True, verbose=False)
        has_types = ((types or 0) > 1 or kind in _TYPED) and any(pair["token_type_ids"])
    names = ["input_ids", "attention_mask", *["token_type_ids"] * has_types]
    tokenizer.model_input_names = settings.get("model_input_names") or names
    return tokenizer


def _tokens(tokenizer: Any, special: bool) -> list[list[int]]:
    """Return the probes' tokens, as pairs and first texts alone, as far as it can read them."""
    tokens: list[list[int]] = []
    with suppress(Exception):  # a class of another model may need more than texts
        firsts, seconds = (list(texts) for texts in zip(*_PROBES, strict=True))
        for texts in ((firsts, seconds), (firsts,)):
            tokens += tokenizer(*texts, add_special_tokens=special, verbose=False)["input_ids"]
    return tokens


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
_MOST_WORDS: Final = 2**17

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

    @lru_cache(_MOST_WORDS)
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
