"""The summary of a run, as text or JSON."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
import pyarrow.compute as pc

from generation.config import bundled_path
from generation.run_folder import RunFolder
from generation.variants.reasons import (
    KEPT,
    NOT_IN_VOCABULARY,
    OCCASIONAL_REASONS,
    SUGGESTION_REASONS,
    Reason,
)
from merge_dataset.files import read_record, read_row_groups, read_text
from merge_dataset.provenance import note_of
from merge_dataset.schema import WORD_CLASSES
from merge_dataset.show import choose_problems, line_of

_EXAMPLES: Final = 3
"""Number of variants in a summary."""


def summarise(
    run: Path, out: Path, configs: Sequence[str], *, registered: bool = False, as_json: bool = False
) -> str:
    """Summarise funnel, eligible seeds and variants per class, with examples and next steps."""
    folder = RunFolder(run)
    manifest = read_record(folder.manifest)
    fates = _fates(folder, manifest)
    seeds, variants = defaultdict[str, set[str]](set), Counter[str]()
    for table in read_row_groups(folder.variants, ["seed_id", "word_class"]):
        of_rows = table["word_class"]
        for word_class in of_rows.unique().to_pylist():
            mine = table["seed_id"].filter(pc.equal(of_rows, word_class))
            seeds[word_class].update(mine.unique().to_pylist())
            variants[word_class] += len(mine)
    classes = {
        str(name): (len(seeds[name]), variants[name]) for name in WORD_CLASSES if name in seeds
    } | {"all": (len(set().union(*seeds.values())), variants.total())}
    examples = choose_problems(out, configs[:1], n=_EXAMPLES, variants=1)
    if as_json:
        keys = ("source", "recipe", "ablation", "fingerprint", "problems", "funnel")
        made = {key: manifest[key] for key in keys} | {"problem_fates": fates, "classes": classes}
        made |= {
            "examples": [row["variant_id"] for example in examples for row in example["variants"]]
        }
        return json.dumps({**made, "run": str(run), "out": str(out), "configs": configs}, indent=2)
    settings = manifest["config"]
    few = f"{settings['min_replacements']} replacements per {settings['min_replacements_scope']}"
    few = "not eligible without the ablation" if manifest["ablation"] else f"with fewer than {few}"
    low = sum(row.get(Reason.LOW_QUALITY, 0) for row in manifest["funnel"])
    every = low + sum(row[KEPT] for row in manifest["funnel"])
    limited = (
        f"Of {every:,} suggestions that pass all else, {100 * (every - low) / every:.0f} % have a "
        f"quality of {settings['min_quality']} or more"
        if settings.get("min_quality") is not None and every
        else ""
    )
    template: Any = jinja2.Template(
        read_text(bundled_path("run_summary.txt.j2")),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    summary: str = template.render(
        source=source_line(manifest),
        funnel=render_funnel(manifest["funnel"]),
        changes=manifest.get("changes", ()),
        classes=classes,
        fates=[f"{count:,}" for count in fates.values()],
        few=few,
        remarks=(note_of(manifest, "try"), limited, note_of(manifest, "clean")),
        examples=examples,
        line_of=line_of,
        run=run,
        out=out,
        quoted=shlex.quote(str(out)),
        configs=configs,
        config=configs[min(1, len(configs) - 1)],
        registered=registered,
    )
    return summary


def _fates(folder: RunFolder, manifest: Mapping[str, Any]) -> dict[str, int]:
    """Count a run's problems: all, the eligible ones, and the others by reason."""
    kept = int(manifest["problems"]["kept"])
    eligible = sum(len(table) for table in read_row_groups(folder.seeds, ["seed_id"]))
    no_shared_word = sum(
        pc.sum(pc.equal(table["reason"], Reason.NO_SHARED_WORD.value)).as_py() or 0
        for table in read_row_groups(folder.exclusions, ["reason"])
    )
    return {
        "problems": kept,
        "eligible": eligible,
        Reason.NO_SHARED_WORD.value: no_shared_word,
        Reason.TOO_FEW.value: kept - eligible - no_shared_word,
    }


def source_line(manifest: Mapping[str, Any]) -> str:
    """Describe the source of a run's problems, with numbers of rows left out, in a line."""
    problems = manifest["problems"]
    skipped = problems.get("skipped")
    return (
        f"Source {manifest['source']}, {manifest['source_data']['description']}: "
        f"{problems['kept']:,} problems, {problems['unlabelled']:,} without a label left out"
        + (f", {skipped:,} that cannot be used left out" if skipped else "")
    )


def render_funnel(rows: Iterable[Mapping[str, Any]]) -> str:
    """Render the funnel as text: MLMs and classes as columns, reasons as lines, with shares."""
    rows = list(rows)
    reasons = [
        key for key in (*SUGGESTION_REASONS, *OCCASIONAL_REASONS) if any(key in row for row in rows)
    ]
    lines = {}
    for key in ("suggestions", *reasons, KEPT, "replacements", NOT_IN_VOCABULARY):
        has_share = key in reasons or key == KEPT
        lines[key] = [
            f"{row[key]:,}"
            + (f" {row[key] / row['suggestions']:5.1%}" if has_share and row["suggestions"] else "")
            for row in rows
        ]
    headings = [f"{row['mlm']}\n{row['word_class']}" for row in rows]
    return funnel_text("suggestions", headings, lines, width=16)


def funnel_text(
    what: str, headings: Sequence[str], lines: Mapping[str, Sequence[str]], *, width: int
) -> str:
    """Lay a funnel out as text."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Funnel: what became of the {what}", title_justify="left")
    table.add_column("")
    for heading in headings:
        table.add_column(heading, justify="right")
    for key, cells in lines.items():
        table.add_row(key.replace("_", " "), *cells)
    console = Console(width=32 + width * len(headings), color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
