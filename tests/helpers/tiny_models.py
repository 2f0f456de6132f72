"""Small random masked LMs of every kind, with tokenizers trained here, without our code."""

import atexit
import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer
from transformers import (
    AlbertConfig,
    AlbertTokenizer,
    AutoModelForMaskedLM,
    BartConfig,
    BertConfig,
    BertTokenizer,
    DebertaV2Config,
    DebertaV2Tokenizer,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaTokenizer,
)

MAX_TOKENS: Final = 64

_WORDS: Final = """
girl boy man woman dog cat horse bird car bus park street house river table ball book song game
walk play run can child teacher doctor singer friend coat hat café tree road music
girls boys men women dogs cats horses birds cars children people books songs friends games
walk walks play plays run runs see sees like likes hold holds carry carries sing sings make makes
sit sits watch watches walking playing running holding sitting watching singing walked played
held made sat watched is are can said
small big old young red blue green happy sad tall short white black quiet loud good bad new
quickly slowly often never today outside here not
snowman postman fireman chairman football snowball eyeball cannot knot doghouse farmhouse
"""

_LINES: Final = [line.split() for line in _WORDS.strip().splitlines()]
NOUNS: Final = _LINES[0] + _LINES[1]
PLURALS: Final = _LINES[2]
VERBS: Final = _LINES[3] + _LINES[4] + _LINES[5]
ADJECTIVES: Final = _LINES[6]
ADVERBS: Final = _LINES[7]
COMPOUNDS: Final = _LINES[8]
"""Words too rare to become tokens, but their common parts, "##man" and "##not", are tokens."""

_TEMPLATES: Final = (
    "{D} {a} {n} {v} {d} {n} .", "{P} {v} {d} {a} {n} {r} .",
    '{D} {n} said " {n} " and " {a} {p} " .', "{D} {n} {v} and {d} {a} {n} don't {v} .",
    "{N} , {n} and {n} {v} near {d} {n} .",
    '" {p} {v} " , said {d} {n} - {v} {n} , and he isn’t {a} .',
    "{d} {a} - {n} {v} {r} in {d} {n} .", "{D} {U} {n} {v} with {d} {U} .",
)  # fmt: skip


_SLOTS: Final = {
    "d": ("a", "the", "another", "some"), "n": NOUNS, "p": PLURALS, "v": VERBS, "a": ADJECTIVES,
    "r": ADVERBS, "u": NOUNS[:6],
}  # fmt: skip


def sentences(count: int = 1500) -> list[str]:
    rng = random.Random(0)

    def fill(slot: str) -> str:
        if slot[0] != "{":
            return slot
        word = rng.choice(_SLOTS[slot[1].lower()])
        return word.upper() if slot == "{U}" else word.capitalize() if slot[1].isupper() else word

    made = [_TEMPLATES[number % len(_TEMPLATES)].split() for number in range(count)]
    return [_detokenise(list(map(fill, slots))) for slots in made] + [
        f"The {word} and the {word}." for word in COMPOUNDS
    ]


def _detokenise(words: Sequence[str]) -> str:
    """Join words with spaces as in English: none inside quotation marks or at hyphens."""
    text, quoted = "", False
    for word in words:
        opening = word == '"' and not quoted
        glued = word in {".", ",", "-"} or (word == '"' and quoted) or text[-1:] in {"-", ""}
        if not glued and not (text.endswith('"') and quoted):
            text += " "
        text += word
        if word == '"':
            quoted = opening
    return text


def _wordpiece(lowercase: bool) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # The trainer numbers pieces such as "##a" differently in every process, and breaks ties
    # by these numbers, unless the pieces are given from the start.
    letters = [f"##{letter}" for letter in sorted(set("".join(sentences()).casefold()))]
    tokenizer.train_from_iterator(
        sentences(),
        WordPieceTrainer(
            vocab_size=600, min_frequency=4, show_progress=False, special_tokens=letters
        ),
    )
    pieces = special + sorted(tokenizer.get_vocab())
    return BertTokenizer(
        vocab={part: number for number, part in enumerate(pieces)}, do_lower_case=lowercase
    )


def byte_level_bpe(
    texts: Iterable[str], special_tokens: Sequence[str], size: int, *, min_frequency: int = 0
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=size, min_frequency=min_frequency, show_progress=False,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _roberta_tokenizer() -> PreTrainedTokenizerFast:
    trained = byte_level_bpe(
        sentences(), ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], 900, min_frequency=4
    )
    merges = [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]
    return RobertaTokenizer(vocab=trained.get_vocab(), merges=merges)


def _modernbert_tokenizer() -> PreTrainedTokenizerFast:
    trained = byte_level_bpe(
        sentences(), ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"], 900, min_frequency=4
    )
    trained.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(t, trained.token_to_id(t)) for t in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=trained, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        pad_token="[PAD]", mask_token="[MASK]", model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def _unigram(
    special_tokens: Sequence[str], unknown: str, normalizer: normalizers.Normalizer
) -> list[tuple[str, float]]:
    """Pieces and scores; words have made-up relatives, as pieces are shared parts of words."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    words = sorted(set(re.findall(r"[^\W_]+", " ".join(sentences()))))
    relatives = [f'{w}ness {w}ery {w} "{w}" "{w}ness" "{w}ery"' for w in words]
    tokenizer.train_from_iterator(
        sentences() + relatives,
        UnigramTrainer(
            vocab_size=8000, show_progress=False, special_tokens=[unknown], unk_token=unknown
        ),
    )
    # Numbers and last decimals differ from process to process.
    scores = dict(json.loads(tokenizer.to_str())["model"]["vocab"])
    pieces = sorted(scores.keys() - {unknown})
    return [(part, 0.0) for part in special_tokens] + [
        (part, round(scores[part], 1)) for part in pieces
    ]


def _albert_tokenizer() -> PreTrainedTokenizerFast:
    lower = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    return AlbertTokenizer(vocab=_unigram(special, "<unk>", lower))


def _deberta_tokenizer() -> PreTrainedTokenizerFast:
    spaces = normalizers.Sequence([normalizers.Replace(Regex(r"\s{2,}"), " "), normalizers.NFC()])
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    return DebertaV2Tokenizer(vocab=_unigram(special, "[UNK]", spaces), unk_id=3)


_SIZES: Final[Mapping[str, Any]] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "max_position_embeddings": MAX_TOKENS, "initializer_range": 0.3,
}  # fmt: skip
_bert: Final = partial(BertConfig, **_SIZES)
# Positions start at the padding's id, 1, plus 1.
_roberta: Final = partial(RobertaConfig, **_SIZES | {"max_position_embeddings": MAX_TOKENS + 2})
_distilbert: Final = partial(
    DistilBertConfig, dim=32, n_layers=2, n_heads=2, hidden_dim=64,
    max_position_embeddings=MAX_TOKENS, initializer_range=0.3,
)  # fmt: skip
_deberta: Final = partial(
    DebertaV2Config, **_SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"]
)


def _modernbert(**ids: int) -> PreTrainedConfig:
    ends = {"cls_token_id": ids["bos_token_id"], "sep_token_id": ids["eos_token_id"]}
    return ModernBertConfig(**_SIZES, local_attention=8, **ends, **ids)


def _bart(**ids: int) -> PreTrainedConfig:
    return BartConfig(
        d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, init_std=0.3,
        max_position_embeddings=MAX_TOKENS, decoder_start_token_id=ids["eos_token_id"], **ids,
    )  # fmt: skip


_cased, _uncased = partial(_wordpiece, False), partial(_wordpiece, True)
_KINDS: Final[
    Mapping[str, tuple[Callable[[], PreTrainedTokenizerFast], Callable[..., PreTrainedConfig]]]
] = {
    "bert-uncased": (_uncased, _bert),
    "bert-cased": (_cased, _bert),
    "roberta": (_roberta_tokenizer, _roberta),
    "albert": (_albert_tokenizer, partial(AlbertConfig, **_SIZES, embedding_size=16)),
    "electra": (_uncased, partial(ElectraConfig, **_SIZES, embedding_size=24)),
    "distilbert": (_cased, _distilbert),
    "modernbert": (_modernbert_tokenizer, _modernbert),
    "deberta": (_deberta_tokenizer, _deberta),
    "bart": (_roberta_tokenizer, _bart),
}

KINDS: Final = tuple(_KINDS)
"""Names of the tiny models; the project does not know DeBERTa's head."""


@lru_cache
def _root() -> Path:
    root = Path(tempfile.mkdtemp(prefix="tiny-models-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def scratch(name: str) -> Path:
    """Path of a folder that lasts as long as this process; not created yet."""
    return _root() / name


@lru_cache
def tiny_model(kind: str) -> Path:
    """Folder of one of `KINDS`, made on first use, for the Auto classes."""
    folder = _root() / kind
    make_tokenizer, make_config = _KINDS[kind]
    tokenizer = make_tokenizer()
    config = make_config(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id,
    )  # fmt: skip
    save(randomised(config, KINDS.index(kind)), tokenizer, folder)
    return folder


def randomised(config: PreTrainedConfig, seed: int, auto: Any = AutoModelForMaskedLM) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = auto.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.2)
            if hasattr(model, "final_logits_bias"):
                model.final_logits_bias.normal_()
    return model


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
