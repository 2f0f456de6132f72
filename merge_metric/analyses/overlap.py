"""Similarity of the hypotheses of variants and of their seeds, in tokens and in embeddings.

Arakelyan, Liu and Augenstein (2024), table 4 (tokens), and section 5.2 (embeddings).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from merge_metric.analyses.measures import Floats, Row, per_config, titled
from merge_metric.analyses.registry import Request
from merge_metric.seed_variant_accuracy.scoring import jensen_shannon
from merge_metric.tables import Table, plots

Encode = Callable[[Sequence[str]], Floats]
"""Function from n sentences to embeddings, (n, d)."""

_TOKEN: Final = re.compile(r"\w+|[^\w\s]")

_LENGTHS: Final = {"h": "length", "h′": "length_variant", "in both": "overlap"}
_FUZZY: Final = {"token sort ratio": "fuzzy_sort", "token set ratio": "fuzzy_set"}
_CHUNK: Final = 20_000

_MEASURES: Final = (*_LENGTHS.values(), *_FUZZY.values())

_DISTANCES: Final = {
    "all": "distance",
    "prediction unchanged": "distance_unchanged",
    "prediction changed": "distance_changed",
}
_ABOUT: Final = ("config", "model", "dataset", "averaged", "n_pairs")
"""Keys of a row that say of what it is; the others are figures."""


def overlap(request: Request, *, encoder: str | Encode | None = None) -> Table:
    """Make a row per configuration and model, and averages; with an encoder distances too.

    `encoder` is a directory or Hub id of a sentence encoder, or a function.
    """
    from rapidfuzz import fuzz, process

    scorers = (fuzz.token_sort_ratio, fuzz.token_set_ratio)
    rows: list[Row] = []
    encode = load_encoder(encoder) if isinstance(encoder, str) else encoder
    for variants in request.variants(lambda *_: ("hypothesis",), of_seeds=("hypothesis",)):
        n_pairs, has_model = len(variants.table), variants.model is not None
        texts = [variants.table[name].to_pylist() for name in ("seed_hypothesis", "hypothesis")]
        about = (variants.config, variants.model, variants.dataset, None, n_pairs)
        rows.append(dict(zip(_ABOUT, about, strict=True)))
        totals = np.zeros(len(_MEASURES))
        for start in range(0, n_pairs, _CHUNK):  # some thousands are tokenised at a time
            one, other = (
                [_TOKEN.findall(text.casefold()) for text in side[start : start + _CHUNK]]
                for side in texts
            )
            joined = [[" ".join(tokens) for tokens in side] for side in (one, other)]
            ratios = (process.cpdist(*joined, scorer=of, dtype=np.float64) for of in scorers)
            totals += [
                sum(map(len, one)),
                sum(map(len, other)),
                sum((Counter(a) & Counter(b)).total() for a, b in zip(one, other, strict=True)),
                *((of_pairs / 100).sum() for of_pairs in ratios),
            ]
        rows[-1] |= dict(zip(_MEASURES, (totals / n_pairs).tolist(), strict=True))
        if encode is None:
            continue
        distances = cosine_distances(texts[0], texts[1], encode)
        rows[-1]["distance"] = float(distances.mean())
        if has_model:
            right, is_changed = (variants.table[k].to_numpy() for k in ("seed_right", "changed"))
            changed, unchanged = distances[right & is_changed], distances[right & ~is_changed]
            for name, part in (("unchanged", unchanged), ("changed", changed)):
                rows[-1][f"distance_{name}"] = float(part.mean()) if len(part) else None
            rows[-1]["distance_jsd"] = histogram_divergence(changed, unchanged)
    measured = [key for key in rows[-1] if key not in _ABOUT]
    means = per_config(rows, measured, ["n_pairs"], merge_rounds=False) if has_model else []
    return titled("overlap", (*rows, *(row for row in means if row["averaged"])))


def plot_overlap(table: Table) -> plots.Figure:
    """Draw panels of lengths, of fuzzy matches and, where known, of distances, by configuration."""
    shown = {column.key for column in table.columns}
    distances = {name: key for name, key in _DISTANCES.items() if key in shown}
    parts = {"tokens on average": _LENGTHS, "fuzzy match, %": _FUZZY, "cosine distance": distances}
    keys = [*_MEASURES, *distances.values()]
    return plots.bars_by_config(per_config(table.rows, keys, merge_rounds=False), parts)


# --- Embeddings ---


def cosine_distances(one: Sequence[str], other: Sequence[str], encode: Encode) -> Floats:
    """Compute cosine distances of sentence embeddings, (n,), 0–2; each text is encoded once."""
    places = {text: number for number, text in enumerate(dict.fromkeys([*one, *other]))}
    embeddings = np.asarray(encode(list(places)), np.float64)
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    directions = embeddings / np.where(norms > 0, norms, 1.0)
    a, b = (directions[[places[text] for text in texts]] for texts in (one, other))
    return np.asarray(np.clip(1 - (a * b).sum(axis=1), 0, 2))


def histogram_divergence(one: Floats, other: Floats) -> float | None:
    """Compute the Jensen–Shannon divergence, in bits, of histograms (bins of 0.01), if any."""
    if not len(one) or not len(other):
        return None
    p, q = (
        np.histogram(sample, np.linspace(0, 2, 201))[0] / len(sample) for sample in (one, other)
    )
    return float(jensen_shannon(p[None], q[None])[0])


def load_encoder(name: str) -> Encode:
    """Load a sentence encoder, pooling as its files say, else by the mean of token vectors."""
    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(
        name,
        trust_remote_code=False,
        # float32 whatever type is stored: distances are small differences of products.
        model_kwargs={"use_safetensors": True, "dtype": "float32"},
    )

    def encode(texts: Sequence[str]) -> Floats:
        bar = len(texts) > 1000
        embeddings = model.encode(list(texts), convert_to_numpy=True, show_progress_bar=bar)
        return np.asarray(embeddings, np.float64)

    return encode
