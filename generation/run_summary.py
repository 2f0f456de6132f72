"""The summary of a run, as text or JSON."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from generation.config import bundled_path
from generation.run_folder import RunFolder
from generation.variants.reasons import (
    KEPT,
    NOT_IN_VOCABULARY,
    OCCASIONAL_REASONS,
    SUGGESTION_REASONS,
    Reason,
)
from merge_dataset.engine import connect, parquet
from merge_dataset.files import read_record, read_text
from merge_dataset.provenance import note_of
from merge_dataset.schema import WORD_CLASSES
from merge_dataset.show import choose_problems, line_of


def summarise(
    run: Path, out: Path, configs: Sequence[str], *, registered: bool = False, as_json: bool = False
) -> str:
    """Summarise funnel, eligible seeds and variants per class, with examples and next steps."""
    folder = RunFolder(run)
    manifest = read_record(folder.manifest)
    fates, classes = _counts(folder, int(manifest["problems"]["kept"]))
    examples = choose_problems(out, configs[:1], n=3, variants=1)
    if as_json:
        keys = ("source", "recipe", "ablation", "fingerprint", "problems", "funnel")
        made = {key: manifest[key] for key in keys} | {"problem_fates": fates, "classes": classes}
        made |= {
            "examples": [row["variant_id"] for example in examples for row in example["variants"]]
        }
        return json.dumps({**made, "run": str(run), "out": str(out), "configs": configs}, indent=2)
    settings = manifest["config"]
    low = sum(row.get(Reason.LOW_QUALITY, 0) for row in manifest["funnel"])
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
        settings=settings,
        ablation=manifest["ablation"],
        thinned=manifest.get("thinned", ()),
        kept=sum(row[KEPT] for row in manifest["funnel"]),
        low=low,
        notes=[note_of(manifest, name) for name in ("try", "clean")],
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


def _counts(folder: RunFolder, problems: int) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """Count problems by their fates; and by class, or "all", the seeds and the variants."""
    with connect() as engine:
        seeds, excluded = (parquet([path]) for path in (folder.seeds, folder.exclusions))
        eligible, without = engine.sql(
            f"SELECT (SELECT count(*) FROM {seeds}), (SELECT count(*) FROM {excluded} "
            f"WHERE reason = '{Reason.NO_SHARED_WORD}')"
        ).fetchall()[0]
        counted = engine.sql(
            "SELECT coalesce(word_class, 'all'), count(DISTINCT seed_id), count(*) "
            f"FROM {parquet([folder.variants])} GROUP BY ROLLUP (word_class)"
        ).fetchall()
    fates = {
        "problems": problems,
        "eligible": eligible,
        Reason.NO_SHARED_WORD.value: without,
        Reason.TOO_FEW.value: problems - eligible - without,
    }
    of_classes = {name: tuple(counts) for name, *counts in counted}
    return fates, {n: of_classes[n] for n in (*WORD_CLASSES, "all") if n in of_classes}


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
    keys = ("suggestions", *reasons, KEPT, "replacements", NOT_IN_VOCABULARY)
    headings = [f"{row['mlm']}\n{row['word_class']}" for row in rows]
    return funnel_text("suggestions", rows, headings, keys, (*reasons, KEPT), width=16)


def funnel_text(
    what: str,
    rows: Sequence[Mapping[str, Any]],
    headings: Sequence[str],
    keys: Sequence[str],
    ends: Sequence[str],
    *,
    width: int,
) -> str:
    """Lay a funnel out as text, with what the `ends` are as shares of the first of the `keys`."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Funnel: what became of the {what}", title_justify="left")
    table.add_column("")
    for heading in headings:
        table.add_column(heading, justify="right")
    for key in keys:
        wholes = [row[keys[0]] if key in ends else 0 for row in rows]
        cells = [
            f"{row[key]:,}" + (f" {row[key] / whole:5.1%}" if whole else "")
            for row, whole in zip(rows, wholes, strict=True)
        ]
        table.add_row(key.replace("_", " "), *cells)
    console = Console(width=32 + width * len(headings), color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
