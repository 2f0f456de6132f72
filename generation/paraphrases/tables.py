"""The tables of a run of paraphrases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from generation.paraphrases.rounds import KEPT, Tried
from generation.records import Exclusion, Seed
from generation.variants.rows import seed_rows
from merge_dataset.schema import LABELS, PARAPHRASE, variant_id

PARAPHRASES = pa.schema(
    [
        ("hypothesis", pa.string()),
        ("text", pa.string()),
        ("raw_text", pa.string()),
        ("round", pa.int32()),
        ("rank", pa.int32()),
        ("temperature", pa.float64()),
        ("score", pa.float64()),
        ("entailed", pa.float64()),
        ("entailing", pa.float64()),
        ("reason", pa.string()),
    ]
)
"""Every candidate; the columns are the fields of `rounds.Tried`."""

ANSWERS = pa.schema(
    [
        ("seed_id", pa.string()),
        *((label, pa.float64()) for label in LABELS),
        ("prediction", pa.string()),
    ]
)
"""What the NLI model says about each problem: probabilities, and the label predicted."""


def paraphrase_table(tried: Iterable[Tried]) -> pa.Table:
    """One row per candidate, in the order given."""
    rows = list(tried)
    columns = {name: [getattr(row, name) for row in rows] for name in PARAPHRASES.names}
    return pa.table(columns, schema=PARAPHRASES)


def sorted_paraphrases(tables: Iterable[pa.Table]) -> pa.Table:
    """Candidates in one piece, by hypothesis, round and rank."""
    order = [(name, "ascending") for name in ("hypothesis", "round", "rank")]
    return pa.concat_tables(tables).sort_by(order).combine_chunks()


def answer_table(seed_ids: Sequence[str], answers: NDArray[np.float64]) -> pa.Table:
    """One row per problem, in the order given.

    Args:
        seed_ids: n of them.
        answers: (n, 3) probabilities over `LABELS`.
    """
    predicted = pa.array(LABELS).take(pa.array(answers.argmax(axis=1)))
    return pa.table(
        [pa.array(seed_ids), *map(pa.array, answers.T), predicted], schema=ANSWERS
    )  # fmt: skip


def kept_texts(paraphrases: Iterable[pa.Table]) -> dict[str, pa.Array]:
    """Hypothesis → its kept paraphrases, for tables sorted by hypothesis.

    A hypothesis whose rows are in two tables has all its paraphrases, too.
    """
    found: dict[str, pa.Array] = {}
    for table in paraphrases:
        if not (kept := table.filter(pc.equal(table["reason"], KEPT))):
            continue
        texts = kept["text"].combine_chunks()
        runs = kept["hypothesis"].combine_chunks().dictionary_encode()
        codes = runs.indices.to_numpy()
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(codes)], strict=True):
            hypothesis = runs.dictionary[codes[start]].as_py()
            mine = texts.slice(start, end - start)
            if hypothesis in found:
                mine = pa.concat_arrays([found[hypothesis], mine])
            found[hypothesis] = mine
    return found


def variant_rows(seeds: Sequence[Seed], texts: Mapping[str, Sequence[str]]) -> pa.Table:
    """The split `variants`, sorted by `seed_id`, then by `variant_id`.

    Args:
        seeds: Problems.
        texts: Hypothesis → paraphrases.
    """
    ordered = sorted(seeds, key=lambda seed: seed.seed_id)
    pairs = [
        (row, seed, text) for row, seed in enumerate(ordered) for text in texts[seed.hypothesis]
    ]
    found = [text for _, _, text in pairs]
    rows = seed_rows(ordered).take(pa.array([row for row, _, _ in pairs], pa.int64()))
    columns = {
        **{name: rows[name] for name in rows.column_names},
        "variant_id": [
            variant_id(seed.seed_id, PARAPHRASE, seed.hypothesis, text) for _, seed, text in pairs
        ],
        "hypothesis": found,
        "word_class": [PARAPHRASE] * len(pairs),
        "original": rows["hypothesis"],
        "replacement": found,
        "hypothesis_spans": [[(0, len(text))] for text in found],
        "subsamples": [[0]] * len(pairs),
    }
    table = pa.table(columns, schema=rows.schema)
    return table.sort_by([("seed_id", "ascending"), ("variant_id", "ascending")]).combine_chunks()


def excluded(seed: Seed, reason: str, *, paraphrases: int | None = None) -> Exclusion:
    """A problem without variants, and why."""
    return Exclusion(
        seed_id=seed.seed_id,
        source=seed.source,
        word=None,
        word_class=None,
        reason=reason,
        replacements=paraphrases,
    )
