"""The summary of a run, for people and for programs."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from generation.reasons import KEPT, Reason
from generation.run_folder import RunFolder
from generation.variants.funnel import NOT_IN_VOCABULARY, OCCASIONAL_REASONS, SUGGESTION_REASONS
from merge_dataset.files import read_record, read_row_groups
from merge_dataset.provenance import parts_of
from merge_dataset.schema import DATASET_NAME, WORD_CLASSES
from merge_dataset.show import Shown, choose_problems, line_of

_EXAMPLES: Final = 3
"""Variants that a summary shows."""


def summarise(
    run: Path, out: Path, configs: Sequence[str], *, registered: bool = False, as_json: bool = False
) -> str:
    """Show the funnel, eligible seeds and variants per class, three of these, and how to load them.

    Args:
        run: A run folder after `build`.
        out: The dataset folder made of it.
        configs: Names of its configurations.
        registered: Whether its bare name, and the metric's, load from anywhere.
        as_json: The same as one JSON object.
    """
    folder = RunFolder(run)
    manifest = read_record(folder.manifest)
    parts = [RunFolder(part) for part in parts_of(run, manifest)]
    classes, fates = _seeds_and_variants(parts), problem_fates(folder, manifest)
    examples = choose_problems(out, configs[:1], n=_EXAMPLES, variants=1)
    if as_json:
        keys = ("source", "recipe", "ablation", "fingerprint", "problems", "funnel")
        made = {key: manifest[key] for key in keys} | {"problem_fates": fates, "classes": classes}
        made |= {"examples": [row["variant_id"] for each in examples for row in each.variants]}
        return json.dumps({**made, "run": str(run), "out": str(out), "configs": configs}, indent=2)
    example = configs[min(1, len(configs) - 1)]
    lines = [
        source_line(manifest),
        "",
        render_funnel(manifest["funnel"]),
        *_change_lines(manifest.get("changes", ())),
        f"{'':<12}{'eligible seeds':>16}{'unique variants':>18}{'per seed':>10}",
        *(
            f"{name:<12}{seeds:>16,}{variants:>18,}{variants / seeds:>10.1f}"
            for name, (seeds, variants) in classes.items()
        ),
        "",
        fates_line(fates, manifest),
        "",
        f"Some variants, drawn at random (more: merge-nli show {shlex.quote(str(out))}):",
        *_lines_to_read(examples),
        "",
        f"Run folder:     {run}  (settings, suggestions, replacements, exclusions, manifest)",
        f"Dataset folder: {out}  (configurations {', '.join(configs)})",
        "",
    ]
    return "\n".join([*lines, *(_registered_lines(example) if registered else _next(out, example))])


def _registered_lines(example: str) -> list[str]:
    """Say how dataset and metric load, once their names are registered."""
    return [
        "Dataset and metric load in Python from any directory:",
        "    from datasets import load_dataset",
        f'    load_dataset("{DATASET_NAME}", "{example}")',
        "    import evaluate",
        '    evaluate.load("seed_variant_accuracy")',
        "HF_HUB_OFFLINE=1 and HF_EVALUATE_OFFLINE=1 skip the look-up on the Hub.",
    ]


def _next(out: Path, example: str) -> list[str]:
    """Say what can be done with the dataset."""
    folder = shlex.quote(str(out))
    return [
        "Next:",
        f"    merge-nli predict --model MODEL --dataset {folder} --out model.parquet",
        f"    merge-nli report model.parquet --dataset {folder} --out report.html",
        f"In Python, in {out.resolve().parent}:",
        "    from datasets import load_dataset",
        f'    load_dataset("{out.name}", "{example}")',
        f"To load it from any directory: merge-nli register {folder}",
    ]


def problem_fates(folder: RunFolder, manifest: Mapping[str, Any]) -> dict[str, int]:
    """Count a run's problems: all, those that are eligible, and why the others are not.

    Args:
        folder: After `build`.
        manifest: Its manifest.
    """
    kept = int(manifest["problems"]["kept"])
    parts = [RunFolder(part) for part in parts_of(folder.path, manifest)]
    eligible = sum(len(table) for p in parts for table in read_row_groups(p.seeds, ["seed_id"]))
    no_shared_word = sum(
        pc.sum(pc.equal(table["reason"], Reason.NO_SHARED_WORD.value)).as_py() or 0
        for part in parts
        for table in read_row_groups(part.exclusions, ["reason"])
    )
    return {
        "problems": kept,
        "eligible": eligible,
        Reason.NO_SHARED_WORD.value: no_shared_word,
        Reason.TOO_FEW.value: kept - eligible - no_shared_word,
    }


def fates_line(fates: Mapping[str, int], manifest: Mapping[str, Any]) -> str:
    """Say what became of a run's problems.

    >>> settings = {"min_replacements": 20, "min_replacements_scope": "class"}
    >>> fates = {"problems": 9, "eligible": 2, "no_shared_word": 3, "too_few_replacements": 4}
    >>> fates_line(fates, {"ablation": None, "config": settings})
    '9 problems: 2 eligible, 3 without a shared word, 4 with fewer than 20 replacements per class'
    """
    settings = manifest["config"]
    what = "combinations" if settings.get("words_at_once", 1) > 1 else "replacements"
    few = (
        "not eligible without the ablation"
        if manifest["ablation"]
        else f"with fewer than {settings['min_replacements']} {what} per "
        f"{settings['min_replacements_scope']}"
    )
    return (
        f"{fates['problems']:,} problems: {fates['eligible']:,} eligible, "
        f"{fates[Reason.NO_SHARED_WORD]:,} without a shared word, {fates[Reason.TOO_FEW]:,} {few}"
    )


def _lines_to_read(problems: Sequence[Shown]) -> Iterator[str]:
    """Yield a line for each variant: what was replaced, the label and the texts."""
    for each in problems:
        for row in each.variants:
            texts = line_of(row, each.texts)
            yield f"  {row['original']} → {row['replacement']} ({each.label}): {texts}"


def source_line(manifest: Mapping[str, Any]) -> str:
    """Say where a run's problems are from, and how many rows were left out."""
    problems = manifest["problems"]
    skipped = problems.get("skipped")
    return (
        f"Source {manifest['source']}, {manifest['source_data']['description']}: "
        f"{problems['kept']:,} problems, {problems['unlabelled']:,} without a label left out"
        + (f", {skipped:,} that cannot be used left out" if skipped else "")
    )


def render_funnel(rows: Iterable[Mapping[str, Any]]) -> str:
    """Show the funnel as text: MLMs and classes as columns, reasons as lines.

    Shares are of all suggestions in the column.
    """
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    table = Table(title="Funnel: what became of the suggestions", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(f"{row['mlm']}\n{row['word_class']}", justify="right")
    reasons = [
        key for key in (*SUGGESTION_REASONS, *OCCASIONAL_REASONS) if any(key in row for row in rows)
    ]
    for key in ("suggestions", *reasons, KEPT, "replacements", NOT_IN_VOCABULARY):
        counted = key in reasons or key == KEPT
        cells = (_cell(row[key], row["suggestions"] if counted else None) for row in rows)
        table.add_row(key.replace("_", " "), *cells)
    console = Console(width=32 + 16 * len(rows), color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def _change_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the fates of whatever edits more than one word, a line per kind and class."""
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


def _seeds_and_variants(parts: Sequence[RunFolder]) -> dict[str, tuple[int, int]]:
    """Return eligible seeds and unique variants by word class, and of all of them."""
    seeds: dict[str, set[str]] = {}
    variants: Counter[str] = Counter()
    names = ["seed_id", "word_class"]
    for table in (table for part in parts for table in read_row_groups(part.variants, names)):
        for word_class in table["word_class"].unique().to_pylist():
            mine = table["seed_id"].filter(pc.equal(table["word_class"], word_class))
            seeds.setdefault(word_class, set()).update(mine.unique().to_pylist())
            variants[word_class] += len(mine)
    everything = (len(set().union(*seeds.values())), variants.total())
    counts = {
        str(name): (len(seeds[name]), variants[name]) for name in WORD_CLASSES if name in seeds
    }
    return {**counts, "all": everything}


def _cell(count: int, total: int | None) -> str:
    return f"{count:,}" if not total else f"{count:,} {count / total:5.1%}"
