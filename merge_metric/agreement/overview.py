"""All that judgements say: one table after the other, and which masked LMs to drop."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from merge_metric.agreement.annotators import alpha_table, confusion_tables, pair_table
from merge_metric.agreement.judgements import Judgements, read_judgements, variant_files
from merge_metric.agreement.masked_lms import (
    Provided,
    count_provided,
    drop_table,
    dropped,
    shared_table,
)
from merge_metric.agreement.shares import meaning_table, score_shares_table, share_table
from merge_metric.tables import Table

Output = Literal["text", "markdown", "latex", "json"]
"""How everything is written."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that `merge-nli agreement` writes."""

    judgements: Judgements
    provided: Provided | None
    tables: tuple[Table, ...]
    remarks: tuple[str, ...]
    drop: tuple[str, ...]
    """Masked LMs to drop."""
    command: str | None
    """Command line that drops them."""

    def render(self, output: Output) -> str:
        """Write everything, shares in JSON as fractions of 1.

        LaTeX has the tables alone, for a document that loads `merge_metric.tables.PACKAGES`.
        """
        judgements = self.judgements
        if output == "json":
            counts = judgements.answered.sum(axis=1).tolist()
            whole: dict[str, Any] = {
                "annotators": dict(zip(judgements.annotators, counts, strict=True)),
                "variants": len(judgements.variant_ids),
                "remarks": list(self.remarks),
                "tables": {table.name: table.as_dict() for table in self.tables},
                "drop": list(self.drop),
                "command": self.command,
            }
            return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)
        parts = [getattr(table, f"to_{output}")() for table in self.tables]
        if output == "latex":
            return "\n\n".join(parts)
        after = f"To drop {', '.join(self.drop)}:\n    {self.command}" if self.command else ""
        gap = "\n\n\n" if output == "text" else "\n\n"
        return gap.join(filter(None, ["\n".join(self.remarks), *parts, after]))

    def table(self, name: str) -> Table | None:
        """Find the table of a name."""
        return {table.name: table for table in self.tables}.get(name)


def agreement(
    files: Sequence[Path],
    *,
    sessions: Sequence[Path] = (),
    dataset: Path | None = None,
    run: Path | None = None,
    without: Sequence[str] = (),
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
) -> Overview:
    """Tabulate what annotators' answers say of each other, of the variants and the masked LMs.

    Args:
        files: Session folders, annotators' files (.jsonl) and tables (.csv).
        sessions: Session folders that know the variants, beside those among `files`.
        dataset: A dataset folder: knows variants too, and what each masked LM provides.
        run: A run folder: knows the latter before sampling.
        without: Look at the answers as if these masked LMs had not been asked.
        n_bootstrap: Replicates for intervals; 0 for none.
        rng_seed: Of the bootstrap.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file or folder.
        ValueError: one is malformed, or they do not fit each other.
    """
    judgements = read_judgements(files, sessions, dataset).without(without)
    options = {"n_bootstrap": n_bootstrap, "rng_seed": rng_seed}
    meaning = judgements.about_meaning
    found = None if meaning else _provided(judgements, dataset, run, without)
    tables = []
    if len(judgements.annotators) > 1:
        tables += [pair_table(judgements, **options), alpha_table(judgements, **options)]
        tables += confusion_tables(judgements)
    if meaning:
        tables.append(meaning_table(judgements))
    else:
        tables.append(share_table(judgements, judgements.seeds, **options))
        tables.append(score_shares_table(judgements, judgements.seeds))
    drop: tuple[str, ...] = ()
    if any(item.mlms for item in judgements.items or ()) and not judgements.several_words:
        tables.append(drop_table(judgements, found))
        drop = tuple(dropped(tables[-1]))
    if found is not None:
        tables.append(shared_table(found))
    counts = judgements.answered.sum(axis=1).tolist()
    who = ", ".join(f"{a} {n:,}" for a, n in zip(judgements.annotators, counts, strict=True))
    remarks = [f"{sum(counts):,} answers to {len(judgements.variant_ids):,} variants: {who}."]
    if without:
        remarks.append(f"As if these masked LMs had not been asked: {', '.join(without)}.")
    if len(judgements.annotators) == 1:
        remarks.append("One annotator: how far others would agree cannot be told.")
    if judgements.items is None:
        remarks.append(
            "Nothing is known of the variants: give --session or --dataset for classes, sources "
            "and masked LMs."
        )
    if judgements.several_words:
        remarks.append(
            "There are variants in which several words are replaced. Their masked LMs are those "
            "that validated any of the words, so it cannot be told what would go with one of them, "
            "nor which to drop."
        )
    command = _command(run, [*without, *drop]) if drop else None
    return Overview(judgements, found, tuple(tables), tuple(remarks), drop, command)


def _provided(
    judgements: Judgements, dataset: Path | None, run: Path | None, without: Sequence[str]
) -> Provided | None:
    sources = {item.source for item in judgements.items or ()}
    if run is not None:
        path = run / "replacements.parquet"
        if not path.is_file():
            raise FileNotFoundError(
                f"{run}: expected a run folder with {path.name}, found none; run: merge-nli build "
                f"--run {run}"
            )
        return count_provided(
            [path], what=str(run), unit="replacements", sources=sources, without=without
        )
    if dataset is None or judgements.several_words:
        return None
    return count_provided(
        variant_files(dataset),
        what=str(dataset),
        unit="variants",
        sources=sources,
        without=without,
    )


def _command(run: Path | None, mlms: Sequence[str]) -> str:
    """Write the command of a build of its own; one without a name would replace the run's."""
    names = (re.sub(r"[^A-Za-z0-9_-]+", "-", mlm.rpartition("/")[2]) for mlm in mlms)
    options = [word for mlm in mlms for word in ("--without-mlm", mlm)]
    into = "-".join(["without", *names])
    return shlex.join(["merge-nli", "build", "--run", str(run or "RUN"), "--into", into, *options])
