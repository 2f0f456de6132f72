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
from merge_metric.tables import Table, columns, plots

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
_JSD: Final = "distance_jsd"


def overlap(request: Request, *, encoder: str | Encode | None = None) -> Table:
    """Make a row per configuration and model, and averages; with an encoder distances too.

    `encoder` is a directory or Hub id of a sentence encoder, or a function.
    """
    rows: list[Row] = []
    encode = load_encoder(encoder) if isinstance(encoder, str) else encoder
    for variants in request.variants(lambda *_: ("hypothesis",), of_seeds=("hypothesis",)):
        n_pairs, has_model = len(variants.table), variants.model is not None
        texts = [variants.table[name].to_pylist() for name in ("seed_hypothesis", "hypothesis")]
        row: Row = {"config": variants.config, "model": variants.model, "dataset": variants.dataset}
        rows.append(row | {"averaged": None, "n_pairs": n_pairs})
        totals = np.zeros(len(_MEASURES))
        for start in range(0, n_pairs, _CHUNK):  # some thousands are tokenised at a time
            one, other = (
                [_TOKEN.findall(text.casefold()) for text in side[start : start + _CHUNK]]
                for side in texts
            )
            totals += [
                sum(map(len, one)),
                sum(map(len, other)),
                sum((Counter(a) & Counter(b)).total() for a, b in zip(one, other, strict=True)),
                *(ratios.sum() for ratios in fuzzy_match(one, other)),
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
            rows[-1][_JSD] = histogram_divergence(changed, unchanged)
    with_models = rows[-1]["model"] is not None
    keys = [key for key in (*_MEASURES, *_DISTANCES.values(), _JSD) if all(key in r for r in rows)]
    means = per_config(rows, keys, ["n_pairs"], merge_rounds=False) if with_models else []
    averages = [row for row in means if row["averaged"]]
    distances_shown = columns("fraction", distance="distance", distance_unchanged="unch.")
    distances_shown += columns("fraction", distance_changed="ch.", distance_jsd="JSD")
    shown = (
        *columns(config="source"),
        *(columns(model="model") if with_models else columns(dataset="data set")),
        *columns("count", n_pairs="pairs"),
        *columns("number", length="tokens h", length_variant="h′", overlap="in both"),
        *columns("share", fuzzy_sort="fuzzy sort", fuzzy_set="fuzzy set"),
        *(column for column in distances_shown if column.key in keys),
    )
    encoded, apart = encode is not None, _JSD in keys
    every = (*rows, *averages)
    return titled("overlap", shown, every, encoded=encoded, apart=apart, averages=averages)


def plot_overlap(table: Table) -> plots.Figure:
    """Draw panels of lengths, of fuzzy matches and, where known, of distances, by configuration."""
    shown = {column.key for column in table.columns}
    distances = {name: key for name, key in _DISTANCES.items() if key in shown}
    keys = [*_MEASURES, *distances.values()]
    rows = per_config(table.rows, keys, merge_rounds=False)
    parts = [("tokens on average", _LENGTHS), ("fuzzy match, %", _FUZZY)]
    parts += [("cosine distance", distances)] if distances else []
    figure, row_of_axes = plots.row_of_panels(len(parts), share_y=False)
    for axes, (title, series) in zip(row_of_axes, parts, strict=True):
        plots.config_bars(axes, rows, series)
        axes.set_ylabel(title)
        # Each panel has a legend above it, as colours mean something else in another panel.
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize="small"
        )
    plots.percent_axis(row_of_axes[1], 1.0)
    return figure


def fuzzy_match(one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> list[Floats]:
    """Compare n pairs of token lists by rapidfuzz: `token_sort_ratio`, `token_set_ratio`, 0–1."""
    from rapidfuzz import fuzz, process

    texts = [[" ".join(text) for text in lists] for lists in (one, other)]
    return [
        process.cpdist(*texts, scorer=scorer, dtype=np.float64) / 100
        for scorer in (fuzz.token_sort_ratio, fuzz.token_set_ratio)
    ]


# --- Embeddings ---


def cosine_distances(one: Sequence[str], other: Sequence[str], encode: Encode) -> Floats:
    """Compute cosine distances of sentence embeddings, (n,), 0–2; each text is encoded once."""
    places = {text: number for number, text in enumerate(dict.fromkeys([*one, *other]))}
    embeddings = np.asarray(encode(list(places)), np.float64)
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    directions = embeddings / np.where(norms > 0, norms, 1.0)
    a, b = (directions[[places[text] for text in texts]] for texts in (one, other))
    distances: Floats = np.clip(1 - (a * b).sum(axis=1), 0, 2)
    return distances


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
