"""What a run made, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from generation.artifacts import RunFolder, read_json
from generation.funnel import render_funnel


def summarise(run: Path, out: Path, configs: Sequence[str], *, as_json: bool) -> str:
    """Funnel, eligible seeds and variants per class, and how to load the dataset.

    Args:
        run: A run folder after `build`.
        out: The dataset folder made of it.
        configs: Names of its configurations.
        as_json: The same as one JSON object.
    """
    folder = RunFolder(run)
    manifest = read_json(folder.manifest)
    classes = _per_class(folder)
    if as_json:
        keys = ("source", "recipe", "ablation", "fingerprint", "problems", "funnel")
        made = {key: manifest[key] for key in keys}
        return json.dumps(
            {**made, "classes": classes, "run": str(run), "out": str(out), "configs": configs},
            indent=2,
        )
    problems = manifest["problems"]
    lines = [
        f"{problems['kept']:,} problems of {manifest['source_data']['description']}, "
        f"{problems['unlabelled']:,} unlabelled ones left out",
        "",
        render_funnel(manifest["funnel"]),
        f"{'':<12}{'eligible seeds':>16}{'unique variants':>18}{'per seed':>10}",
    ]
    lines += [
        f"{name:<12}{seeds:>16,}{variants:>18,}{variants / seeds:>10.1f}"
        for name, (seeds, variants) in classes.items()
        if seeds
    ]
    lines += [
        "",
        f"Run folder:     {run}  (settings, suggestions, replacements, exclusions, manifest)",
        f"Dataset folder: {out}  (configurations {', '.join(configs)})",
        "",
        "Load it from the folder that holds the dataset folder:",
        "    from datasets import load_dataset",
        f'    load_dataset("{out.name}", "{configs[-1]}")',
        f"or, after `merge-nli register {out}`, from anywhere:",
        f'    load_dataset("merge-nli", "{configs[-1]}")',
    ]
    return "\n".join(lines)


def _per_class(folder: RunFolder) -> dict[str, tuple[int, int]]:
    """Word class, and "all" → eligible seeds, unique variants."""
    table = pq.read_table(folder.variants, columns=["seed_id", "word_class"])
    counts = {}
    for word_class in table["word_class"].unique().to_pylist():
        mine = table.filter(pc.equal(table["word_class"], word_class))
        counts[word_class] = (len(mine["seed_id"].unique()), len(mine))
    return {**dict(sorted(counts.items())), "all": (len(table["seed_id"].unique()), len(table))}
