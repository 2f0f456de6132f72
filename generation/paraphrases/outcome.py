"""Tables and summary of a run of paraphrases."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from generation.paraphrases.rounds import REASONS, Tried
from generation.reasons import KEPT
from generation.records import Exclusion, Seed
from generation.run_folder import RunFolder, slug
from generation.run_summary import funnel_text, source_line
from generation.variants.rows import seed_rows
from merge_dataset.files import read_json, to_json
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
"""Columns of the candidates: the fields of `rounds.Tried`."""

ANSWERS = pa.schema(
    [
        ("seed_id", pa.string()),
        *((label, pa.float64()) for label in LABELS),
        ("prediction", pa.string()),
    ]
)
"""Columns of the NLI model's answers: a problem's probabilities, and the label predicted."""


def paraphrase_table(tried: Iterable[Tried]) -> pa.Table:
    """Make a table with a row per candidate, in the order given."""
    rows = list(tried)
    columns = {name: [getattr(row, name) for row in rows] for name in PARAPHRASES.names}
    return pa.table(columns, schema=PARAPHRASES)


def sorted_paraphrases(tables: Iterable[pa.Table]) -> pa.Table:
    """Put candidates into one piece, sorted by hypothesis, round and rank."""
    order = [(name, "ascending") for name in ("hypothesis", "round", "rank")]
    return pa.concat_tables(tables).sort_by(order).combine_chunks()


def answer_table(seed_ids: Sequence[str], answers: NDArray[np.float64]) -> pa.Table:
    """Make a table with a row per problem, of (n, 3) probabilities over `LABELS`."""
    predicted = pa.array(LABELS).take(pa.array(answers.argmax(axis=1)))
    return pa.table(
        [pa.array(seed_ids), *map(pa.array, answers.T), predicted], schema=ANSWERS
    )  # fmt: skip


def kept_texts(paraphrases: Iterable[pa.Table]) -> dict[str, pa.Array]:
    """Return the kept paraphrases of each hypothesis, for tables sorted by hypothesis.

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
    """Make the split `variants`, sorted by `seed_id`, then by `variant_id`."""
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
    """Record a problem without variants, and why."""
    return Exclusion(
        seed_id=seed.seed_id,
        source=seed.source,
        word=None,
        word_class=None,
        reason=reason,
        replacements=paraphrases,
    )


# --- The summary ---


def render_funnel(rows: Iterable[Mapping[str, int]]) -> str:
    """Render the funnel as text: rounds as columns, reasons and those kept as lines."""
    rows = list(rows)
    lines = {"generated": [f"{row['generated']:,}" for row in rows]}
    for key in (*REASONS, KEPT):
        lines[key] = [f"{row[key]:,} {row[key] / max(1, row['generated']):5.1%}" for row in rows]
    return funnel_text("candidates", [f"round {row['round']}" for row in rows], lines, width=18)


def summarise(
    run: Path,
    out: Path,
    configs: Sequence[str],
    *,
    model: Mapping[str, str | None],
    as_json: bool = False,
) -> str:
    """Sum a run up: funnel, eligible seeds, paraphrases, and what to do next."""
    manifest = read_json(RunFolder(run).manifest)
    problems, seeds = manifest["problems"], manifest["eligible"][PARAPHRASE]
    predictions = f"predictions/{'_'.join(configs)}_{slug(manifest['nli_model']['name'])}.parquet"
    named = [word for name, value in model.items() if value for word in (f"--{name}", value)]
    where = ["--dataset", str(out), *(word for name in configs for word in ("--config", name))]
    following = [
        shlex.join(["merge-nli", "predict", *named, *where, "--out", predictions]),
        shlex.join(["merge-nli", "score", predictions, *where]),
    ]
    if as_json:
        keys = ("source", "fingerprint", "generator", "nli_model", "problems", "hypotheses",
                "funnel", "eligible", "variants")  # fmt: skip
        made = {key: manifest[key] for key in keys}
        made |= {"run": str(run), "out": str(out), "configs": configs, "next": following}
        return to_json(made)
    return "\n".join(
        [
            source_line(manifest),
            f"{manifest['nli_model']['name']} answers {problems['answered_right']:,} of them "
            f"right, with {manifest['hypotheses']:,} different hypotheses",
            "",
            render_funnel(manifest["funnel"]),
            f"Eligible seeds:   {seeds:,}",
            f"Paraphrases:      {manifest['variants']:,}, {manifest['variants'] / seeds:.1f} per "
            f"seed",
            "",
            f"Run folder:       {run}  (settings, every candidate, exclusions, manifest)",
            f"Dataset folder:   {out}  (configuration {', '.join(configs)})",
            "",
            "Next:",
            *(f"    {line}" for line in following),
        ]
    )
