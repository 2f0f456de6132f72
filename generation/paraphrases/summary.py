"""What a run of paraphrases made, for people and for programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from generation.paraphrases.rounds import KEPT, REASONS
from generation.run_folder import RunFolder, slug
from merge_dataset.files import read_json, to_json
from merge_dataset.schema import PARAPHRASE


def render_funnel(rows: Iterable[Mapping[str, int]]) -> str:
    """The funnel as text: rounds as columns, what became of the candidates as lines."""
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    table = Table(title="Funnel: what became of the candidates", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(f"round {row['round']}", justify="right")
    table.add_row("generated", *(f"{row['generated']:,}" for row in rows))
    for key in (*REASONS, KEPT):
        shares = (f"{row[key]:,} {row[key] / max(1, row['generated']):5.1%}" for row in rows)
        table.add_row(key.replace("_", " "), *shares)
    console = Console(width=32 + 18 * len(rows), color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def summarise(
    run: Path,
    out: Path,
    configs: Sequence[str],
    *,
    model: Mapping[str, str | None],
    as_json: bool = False,
) -> str:
    """Funnel, eligible seeds, paraphrases, and what to do next.

    Args:
        run: A run folder that is done.
        out: The dataset folder it was exported to.
        configs: Names of the configurations written.
        model: Options of `predict` that name the NLI model.
        as_json: The same as one JSON object.
    """
    manifest = read_json(RunFolder(run).manifest)
    problems, seeds = manifest["problems"], manifest["eligible"][PARAPHRASE]
    predictions = f"predictions/{'_'.join(configs)}_{slug(manifest['nli_model']['name'])}.parquet"
    following = _next(out, configs, model, predictions)
    if as_json:
        keys = ("source", "fingerprint", "generator", "nli_model", "problems", "hypotheses",
                "funnel", "eligible", "variants")  # fmt: skip
        made = {key: manifest[key] for key in keys}
        where = {"run": str(run), "out": str(out), "configs": configs, "next": following}
        return to_json({**made, **where})
    return "\n".join(
        [
            f"Source {manifest['source']}, {manifest['source_data']['description']}: "
            f"{problems['kept']:,} problems, {problems['unlabelled']:,} without a label left out",
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


def _next(
    out: Path, configs: Sequence[str], model: Mapping[str, str | None], predictions: str
) -> list[str]:
    """Commands that measure the NLI model itself."""
    named = [
        word for name, value in model.items() if value for word in (f"--{name}", value)
    ]  # fmt: skip
    where = ["--dataset", str(out), *(word for name in configs for word in ("--config", name))]
    return [
        shlex.join(["merge-nli", "predict", *named, *where, "--out", predictions]),
        shlex.join(["merge-nli", "score", predictions, *where]),
    ]
