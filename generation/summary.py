"""What a run made, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from generation.run_folder import RunFolder
from generation.variants.funnel import KEPT, render_funnel
from merge_dataset.files import read_json, read_row_groups
from merge_dataset.schema import DATASET_NAME, WORD_CLASSES


def summarise(
    run: Path, out: Path, configs: Sequence[str], *, registered: bool = False, as_json: bool = False
) -> str:
    """Funnel, eligible seeds and variants per class, and how to load the dataset.

    Args:
        run: A run folder after `build`.
        out: The dataset folder made of it.
        configs: Names of its configurations.
        registered: Whether its bare name, and the metric's, load from anywhere.
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
    problems, example = manifest["problems"], configs[min(1, len(configs) - 1)]
    lines = [
        f"Source {manifest['source']}, {manifest['source_data']['description']}: "
        f"{problems['kept']:,} problems, {problems['unlabelled']:,} without a label left out",
        "",
        render_funnel(manifest["funnel"]),
        *_change_lines(manifest.get("changes", ())),
        f"{'':<12}{'eligible seeds':>16}{'unique variants':>18}{'per seed':>10}",
        *(
            f"{name:<12}{seeds:>16,}{variants:>18,}{variants / seeds:>10.1f}"
            for name, (seeds, variants) in classes.items()
        ),
        "",
        f"Run folder:     {run}  (settings, suggestions, replacements, exclusions, manifest)",
        f"Dataset folder: {out}  (configurations {', '.join(configs)})",
        "",
        f"Load it in {out.resolve().parent}:",
        "    from datasets import load_dataset",
        f'    load_dataset("{out.name}", "{example}")',
    ]
    if not registered:
        lines.append(f"To load it from anywhere: merge-nli register {out}")
    else:
        lines += [
            "or from anywhere, as it is registered now:",
            f'    load_dataset("{DATASET_NAME}", "{example}")',
            "and so does the metric:",
            "    import evaluate",
            '    evaluate.load("seed_variant_accuracy")',
            "HF_HUB_OFFLINE=1 skips the look-up on the Hub that comes first, and for the metric",
            "HF_EVALUATE_OFFLINE=1.",
        ]
    return "\n".join(lines)


def _change_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What became of that which changes more than one word, a line per kind and class."""
    if rows:
        yield "Where more than one word changes:"
    for row in rows:
        counts = [f"{row[KEPT]:,} kept"]
        counts += [
            f"{count:,} {reason.replace('_', ' ')}"
            for reason, count in row.items()
            if reason not in ("what", "word_class", KEPT)
        ]
        yield f"  {row['word_class']} {row['what']}: {', '.join(counts)}"
    if rows:
        yield ""


def _per_class(folder: RunFolder) -> dict[str, tuple[int, int]]:
    """Word class, and "all" → eligible seeds, unique variants."""
    seeds: dict[str, set[str]] = {}
    variants: Counter[str] = Counter()
    for table in read_row_groups(folder.variants, ["seed_id", "word_class"]):
        for word_class in table["word_class"].unique().to_pylist():
            mine = table["seed_id"].filter(pc.equal(table["word_class"], word_class))
            seeds.setdefault(word_class, set()).update(mine.unique().to_pylist())
            variants[word_class] += len(mine)
    everything = (len(set().union(*seeds.values())), variants.total())
    counts = {
        str(name): (len(seeds[name]), variants[name]) for name in WORD_CLASSES if name in seeds
    }
    return {**counts, "all": everything}
