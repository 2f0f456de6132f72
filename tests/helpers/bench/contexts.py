import operator
import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from helpers.bench.fill_mask import Context
from helpers.bench.models import REAL, SHAPES, model_folder
from helpers.reference import tag


def find_contexts(
    problems: Sequence[dict[str, str]], shared_models: Path, count: int
) -> list[Context]:
    """Sentences, premises first, with the first noun that is a single token in all models."""
    folders = [model_folder(name, shared_models) for name in (*REAL, *SHAPES)]
    tokenizers = [Tokenizer.from_file(str(f / "tokenizer.json")) for f in folders if f]
    result = []
    for sentence in dict.fromkeys(p[side] for side in ("sentence1", "sentence2") for p in problems):
        words = re.findall(r"[\w'-]+", sentence)
        for token in tag(sentence):
            if (
                token.tag in {"NN", "NNS"}
                and token.start > 0
                and sentence.count(token.text) == words.count(token.text) == 1
                and all(_changes_one_token(t, sentence, token.span) for t in tokenizers)
            ):
                result.append((sentence, token.text, token.start))
                break
        if len(result) == count:
            break
    return result


def _changes_one_token(tokenizer: Tokenizer, sentence: str, span: tuple[int, int]) -> bool:
    """Whether a mask in place of a word changes one token and nothing else."""
    mask = next(m for m in ("[MASK]", "<mask>") if tokenizer.token_to_id(m) is not None)
    masked = tokenizer.encode(sentence[: span[0]] + mask + sentence[span[1] :]).ids
    ids = tokenizer.encode(sentence).ids
    return len(ids) == len(masked) and sum(map(operator.ne, ids, masked)) == 1
